"""OpenAI's Python SDK as a client of the channel `openai`: a booking, streamed and not, with requests that are ended, repeated, and cut by
the end of the server. The arguments are the binary `segue`, and the folder node_modules with the SDK for JavaScript, whose
client `openai_client.mjs` runs against the same server. Prints a line for each test."""

import subprocess
import sys
import time

import openai

from segue_server import HOLD, KEY, ROOT, Server

QUESTION = "Which boats go from Arnvik to Skelby tomorrow?"
SUMMARY = "Shall I book it?"
BOOKED = "Booked! Your reference is"


class Talk:
    """One conversation, with its history as a client has it."""

    def __init__(self, server, conversation, key=KEY):
        self.client = openai.OpenAI(base_url=server.base_url(conversation), api_key=key, max_retries=0)
        self.messages = []

    def request(self, text=None, **parameters):
        if text is not None:
            self.messages.append({"role": "user", "content": text})
        return self.client.chat.completions.create(model="northwater_ferries", messages=self.messages, **parameters)

    def say(self, text):
        answer = self.request(text).choices[0].message.content
        self.messages.append({"role": "assistant", "content": answer})
        return answer

    def stream(self, text):
        """Parts of the answer, with the time of each."""
        parts = [(time.monotonic(), chunk.choices[0].delta.content or "") for chunk in self.request(text, stream=True)]
        self.messages.append({"role": "assistant", "content": "".join(part for _, part in parts)})
        return parts


def ask_for_summary(talk):
    talk.say(QUESTION)
    talk.say("Book the early one, please")
    answer = talk.say("two")
    assert SUMMARY in answer, answer


def a_booking_is_streamed_with_its_filler_first(server):
    talk = Talk(server, "streamed")
    parts = talk.stream(QUESTION)
    text = "".join(part for _, part in parts)
    filler, answer = text.split(" On ")
    assert filler.endswith(".") and "there are 3 boats" in answer, text
    # The filler is there before the answer that it bridges.
    begun = next(at for at, part in parts if part)
    answered = next(at for at, part in parts if "boats" in part)
    assert answered - begun > 0.3, parts
    talk.stream("Book the early one, please")
    assert SUMMARY in "".join(part for _, part in talk.stream("two"))
    began = time.monotonic()
    assert BOOKED in "".join(part for _, part in talk.stream("yes"))
    assert time.monotonic() - began >= HOLD
    assert server.bookings("openai:streamed") == 1


def a_repeated_request_gets_the_recorded_answer(server):
    talk = Talk(server, "repeated")
    ask_for_summary(talk)
    first = talk.request("yes").choices[0].message.content
    again = talk.request().choices[0].message.content
    assert BOOKED in first and again == first, (first, again)
    assert server.bookings("openai:repeated") == 1


def nothing_is_booked_for_a_request_that_is_ended_early(server):
    talk = Talk(server, "ended")
    ask_for_summary(talk)
    with talk.request("yes", stream=True) as stream:
        next(iter(stream))
    time.sleep(HOLD + 0.7)
    assert server.bookings("openai:ended") == 0
    # The user goes on: the question is open again.
    answer = talk.say("no, make it three")
    assert "3 people" in answer and SUMMARY in answer, answer
    assert BOOKED in talk.say("yes")
    assert server.bookings("openai:ended") == 1


def what_was_booked_is_told_if_the_client_has_gone(server):
    talk = Talk(server, "gone")
    ask_for_summary(talk)
    try:
        talk.client.with_options(timeout=HOLD + 0.5).chat.completions.create(
            model="northwater_ferries", messages=[*talk.messages, {"role": "user", "content": "yes"}]
        )
        raise AssertionError("the booking takes longer")
    except openai.APITimeoutError:
        pass
    time.sleep(1.5)
    talk.messages += [{"role": "user", "content": "yes"}]
    answer = talk.say("Until when could I cancel?")
    assert answer.count(BOOKED) == 1 and "free of charge" in answer, answer
    assert server.bookings("openai:gone") == 1


def a_reply_is_whole_after_the_end_of_the_server(server):
    talk = Talk(server, "killed")
    parts = iter(talk.request(QUESTION, stream=True))
    text = ""
    while "boats" not in text:
        text += next(parts).choices[0].delta.content or ""
    server.kill()
    try:
        for _ in parts:
            pass
        raise AssertionError("the stream has ended as if it were complete")
    except Exception as error:
        assert not isinstance(error, AssertionError), error
    server.start()
    answer = Talk(server, "killed")
    answer.messages = talk.messages
    text = answer.request().choices[0].message.content
    assert text.count("there are 3 boats") == 1, text


def errors_are_those_of_the_sdk(server):
    expect = {
        "conversation_id_required": (openai.BadRequestError, Talk(server, None)),
        "invalid_api_key": (openai.AuthenticationError, Talk(server, "wrong", key="wrong")),
    }
    for code, (kind, talk) in expect.items():
        try:
            talk.request("hi")
            raise AssertionError(code)
        except kind as error:
            assert error.code == code, error
    client = Talk(server, None).client
    assert [model.id for model in client.models.list()] == ["northwater_ferries"]
    try:
        client.chat.completions.create(model="gpt-9", user="x", messages=[{"role": "user", "content": "hi"}])
        raise AssertionError("gpt-9")
    except openai.NotFoundError as error:
        assert error.code == "model_not_found" and "northwater_ferries" in error.message, error


with Server(sys.argv[1]) as server:
    for test in [
        a_booking_is_streamed_with_its_filler_first,
        a_repeated_request_gets_the_recorded_answer,
        nothing_is_booked_for_a_request_that_is_ended_early,
        what_was_booked_is_told_if_the_client_has_gone,
        a_reply_is_whole_after_the_end_of_the_server,
        errors_are_those_of_the_sdk,
    ]:
        test(server)
        print("ok", test.__name__, flush=True)
    script = ROOT / "tests" / "interop" / "openai_client.mjs"
    subprocess.run(["node", script, f"http://127.0.0.1:{server.port}", KEY, sys.argv[2]], check=True)
