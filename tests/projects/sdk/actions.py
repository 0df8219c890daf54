"""Actions on the genuine library. ACTION_LOG names a file that remembers every run."""

import datetime
import os
import signal

from rasa_sdk import Action, FormValidationAction, ValidationAction
from rasa_sdk.events import (
    ActionExecuted,
    ActionReverted,
    ActiveLoop,
    AgentUttered,
    AllSlotsReset,
    BotUttered,
    ConversationPaused,
    ConversationResumed,
    FollowupAction,
    LoopInterrupted,
    ReminderCancelled,
    ReminderScheduled,
    Restarted,
    SessionEnded,
    SessionStarted,
    SlotSet,
    StoryExported,
    UserUttered,
    UserUtteranceReverted,
)
from rasa_sdk.interfaces import ActionExecutionRejection


def ran(name):
    with open(os.environ["ACTION_LOG"], "a") as log:
        log.write(name + "\n")


class Logged:
    def run(self, dispatcher, tracker, domain):
        ran(self.name())
        return self.work(dispatcher, tracker, domain)


class ActionSessionStart(Logged, Action):
    def name(self):
        return "action_session_start"

    def work(self, dispatcher, tracker, domain):
        return [SessionStarted(), SlotSet("greeted", True), ActionExecuted("action_listen")]


class Plain(Logged, Action):
    def name(self):
        return "action_plain"

    def work(self, dispatcher, tracker, domain):
        events = [event["event"] for event in tracker.events]
        facts = [
            tracker.sender_id,
            tracker.latest_message["text"],
            tracker.latest_message["intent"]["name"],
            tracker.get_latest_input_channel(),
            tracker.stack[-1]["flow_id"],
            str(tracker.get_slot("greeted")),
            str(tracker.is_paused()),
            str(events.count("user")),
            str(next(tracker.get_latest_entity_values("mood"), None)),
            str(tracker.active_loop_name),
            str(tracker.followup_action),
        ]
        return [SlotSet("note", " ".join(facts)), SlotSet("count", len(events)), SlotSet("unknown_slot", 1)]


class Rich(Logged, Action):
    def name(self):
        return "action_rich"

    def work(self, dispatcher, tracker, domain):
        dispatcher.utter_message(text="Choose.", buttons=[{"title": "A", "payload": "/a"}, {"title": "B"}])
        dispatcher.utter_message(image="http://host/image.png")
        dispatcher.utter_message(json_message={"blocks": [1]})
        dispatcher.utter_message(attachment="http://host/file.pdf", elements=[{"title": "E"}])
        return []


class Response(Logged, Action):
    def name(self):
        return "action_response"

    def work(self, dispatcher, tracker, domain):
        dispatcher.utter_message(response="utter_greeting", who="you", buttons=[{"title": "Two", "payload": "/two"}])
        dispatcher.utter_message(template="utter_greeting", who="again", text="Instead.")
        return [SlotSet("name", "Ada")]


class Follow(Logged, Action):
    def name(self):
        return "action_follow"

    def work(self, dispatcher, tracker, domain):
        return [FollowupAction("action_followed")]


class Followed(Logged, Action):
    def name(self):
        return "action_followed"

    def work(self, dispatcher, tracker, domain):
        return [SlotSet("note", "followed")]


class Reject(Logged, Action):
    def name(self):
        return "action_reject"

    def work(self, dispatcher, tracker, domain):
        raise ActionExecutionRejection(self.name(), "not now")


class Raise(Logged, Action):
    def name(self):
        return "action_raise"

    def work(self, dispatcher, tracker, domain):
        raise ValueError("broken on purpose")


class Domain(Logged, Action):
    def name(self):
        return "action_domain"

    def work(self, dispatcher, tracker, domain):
        return [SlotSet("note", "%s %s" % (domain["slots"]["count"]["type"], "utter_day" in domain["responses"]))]


class AskDay(Logged, Action):
    def name(self):
        return "action_ask_day"

    def work(self, dispatcher, tracker, domain):
        dispatcher.utter_message(text="Which day?")
        return []


class ValidateDay(Logged, Action):
    def name(self):
        return "validate_day"

    def work(self, dispatcher, tracker, domain):
        day = tracker.get_slot("day")
        if day is None:
            return []
        if day.lower() == "sunday":
            dispatcher.utter_message(text="Closed on Sundays.")
            return [SlotSet("day", None)]
        return [SlotSet("day", day.capitalize())]


class EveryTurn(ValidationAction):
    async def extract_mood(self, dispatcher, tracker, domain):
        mood = next(tracker.get_latest_entity_values("mood"), None)
        return {"mood": mood} if mood else {}

    def validate_mood(self, value, dispatcher, tracker, domain):
        return {"mood": value.upper()}


class VisitForm(FormValidationAction):
    def name(self):
        return "validate_visit_form"

    async def required_slots(self, domain_slots, dispatcher, tracker, domain):
        return domain_slots + ["note"]

    async def extract_note(self, dispatcher, tracker, domain):
        return {"note": "from the form"}

    def validate_note(self, value, dispatcher, tracker, domain):
        return {"note": value + ", checked"}


class Many(Logged, Action):
    def name(self):
        return "action_many"

    def work(self, dispatcher, tracker, domain):
        later = datetime.datetime(2030, 1, 1, 12, 0)
        return [
            SlotSet("note", "gone"),
            AllSlotsReset(),
            SlotSet("note", "many"),
            ActiveLoop("visit_form"),
            LoopInterrupted(True),
            ReminderScheduled("remind", later, name="r1", kill_on_user_message=False),
            ReminderCancelled("r1"),
            ConversationPaused(),
            ConversationResumed(),
            UserUttered("from outside"),
            BotUttered("by an event", {"buttons": [{"title": "X", "payload": "/x"}]}),
            ActionExecuted("action_elsewhere"),
            StoryExported(),
            AgentUttered("a person", None),
            {"event": "weather", "rain": True},
            {"no": "event"},
        ]


class Undo(Logged, Action):
    def name(self):
        return "action_undo"

    def work(self, dispatcher, tracker, domain):
        return [SlotSet("note", "never"), ActionReverted()]


class Rewind(Logged, Action):
    def name(self):
        return "action_rewind"

    def work(self, dispatcher, tracker, domain):
        return [SlotSet("note", "never"), UserUtteranceReverted()]


class Die(Logged, Action):
    def name(self):
        return "action_die"

    def work(self, dispatcher, tracker, domain):
        os.killpg(os.getpgrp(), signal.SIGKILL)


class Stream(Action):
    def name(self):
        return "action_stream"

    async def run(self, dispatcher, tracker, domain):
        await dispatcher.stream_start()
        await dispatcher.stream_chunk(text="One ")
        await dispatcher.stream_chunk(text="two.")
        await dispatcher.stream_end()
        return []


class RestartAction(Logged, Action):
    def name(self):
        return "action_restart"

    def work(self, dispatcher, tracker, domain):
        dispatcher.utter_message(text="All is forgotten.")
        return [Restarted()]


class End(Logged, Action):
    def name(self):
        return "action_end"

    def work(self, dispatcher, tracker, domain):
        dispatcher.utter_message(text="Goodbye.")
        return [SessionEnded(metadata={"_reason": "the user is done"})]
