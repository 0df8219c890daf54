"""LiveKit Agents and Pipecat as clients of the channel `openai`, without audio: a booking in each, with two interruptions. The argument is the
binary `segue`. Prints a line for each test."""

import asyncio
import sys

from livekit.agents import Agent, AgentSession
from livekit.plugins import openai
from pipecat.frames.frames import InterruptionFrame, LLMContextFrame, LLMTextFrame
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.tests.utils import SleepFrame, run_test

from segue_server import HOLD, KEY, Server

QUESTION = "Which boats go from Arnvik to Skelby tomorrow?"
SUMMARY = "Shall I book it?"
BOOKED = "Booked! Your reference is"
MODEL = "northwater_ferries"


async def livekit_books_with_two_interruptions(server):
    language_model = openai.LLM(model=MODEL, base_url=server.base_url("room"), api_key=KEY)
    async with language_model, AgentSession(llm=language_model) as session:
        await session.start(Agent(instructions="The flows decide."))

        async def say(text):
            result = await session.run(user_input=text)
            said = [event.item.text_content for event in result.events if event.type == "message"]
            return " ".join(said)

        async def interrupt(text, after):
            """Says something and interrupts the answer."""
            result = session.run(user_input=text)
            await asyncio.sleep(after)
            await session.interrupt()
            await result

        await interrupt(QUESTION, 0.8)
        answer = await say("Book the early one, please")
        assert "there are 3 boats" not in answer, answer
        if "how many" not in answer.lower():
            answer = await say("the early one from Arnvik to Skelby tomorrow")
        answer = await say("two")
        assert SUMMARY in answer, answer
        await interrupt("yes", HOLD / 3)
        assert server.bookings("openai:room") == 0
        answer = await say("no, make it three")
        assert "3 people" in answer and SUMMARY in answer, answer
        answer = await say("yes")
        assert answer.count(BOOKED) == 1, answer
        assert server.bookings("openai:room") == 1


async def pipecat_books_with_two_interruptions(server):
    context = LLMContext()

    async def say(text, interrupted_after=None):
        context.add_message({"role": "user", "content": text})
        service = OpenAILLMService(model=MODEL, base_url=server.base_url("call"), api_key=KEY)
        frames = [LLMContextFrame(context)]
        if interrupted_after is not None:
            frames += [SleepFrame(interrupted_after), InterruptionFrame()]
        down, _ = await run_test(service, frames_to_send=frames)
        answer = "".join(frame.text for frame in down if isinstance(frame, LLMTextFrame))
        if answer:
            context.add_message({"role": "assistant", "content": answer})
        return answer

    await say(QUESTION, interrupted_after=0.8)
    answer = await say("Book the early one, please")
    assert "there are 3 boats" not in answer, answer
    if "how many" not in answer.lower():
        answer = await say("the early one from Arnvik to Skelby tomorrow")
    answer = await say("two")
    assert SUMMARY in answer, answer
    await say("yes", interrupted_after=HOLD / 3)
    await asyncio.sleep(HOLD)
    assert server.bookings("openai:call") == 0
    answer = await say("no, make it three")
    assert "3 people" in answer and SUMMARY in answer, answer
    answer = await say("yes")
    assert answer.count(BOOKED) == 1, answer
    assert server.bookings("openai:call") == 1


with Server(sys.argv[1]) as server:
    for test in [livekit_books_with_two_interruptions, pipecat_books_with_two_interruptions]:
        asyncio.run(test(server))
        print("ok", test.__name__, flush=True)
