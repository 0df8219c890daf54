//! Events: the only stored truth.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::{Map, Value as Json};

use super::{Command, ModelUsage, PendingEffect, Reply, Stack, StepError, Trigger, UserMessage};
use crate::{
    ids::{ActionName, AgentName, FlowId, ServerName, SlotName, StepId, ToolName},
    time::Timestamp,
};

/// One thing that happened.
///
/// As JSON it is one flat object: `event`, `timestamp`, the fields of its kind, and `metadata` with the place. A `user`
/// event's `metadata` is its message's, as in the CALM format; its own place, if it has one, stands under `place`. An event of
/// an unknown kind keeps all its fields, so its place is under `_place`, a key that its fields may not use.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When; the time of the input that caused it.
    pub at: Timestamp,
    /// What.
    pub kind: EventKind,
    /// Where in the flows it happened.
    pub place: FlowLocation,
}

/// The key for the place of an event of an unknown kind. Such events come from other programs with fields of any name; this one
/// and `timestamp` are reserved and dropped from their fields.
const PLACE: &str = "_place";

/// How an event is written; borrowed, so that writing copies nothing.
#[derive(Serialize)]
struct Line<'a> {
    timestamp: Timestamp,
    #[serde(flatten)]
    kind: &'a EventKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a FlowLocation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<&'a FlowLocation>,
}

impl Serialize for Event {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let place = (!self.place.is_empty()).then_some(&self.place);
        let line = Line { timestamp: self.at, kind: &self.kind, metadata: None, place: None };
        match &self.kind {
            EventKind::User(_) => Line { place, ..line }.serialize(s),
            EventKind::Unknown(fields) => {
                let mut fields = fields.clone();
                fields.retain(|key, _| !is_reserved(key));
                // A field `place` would be taken for the place of the event, as older records have it, if that stood nowhere.
                if place.is_some() || fields.contains_key("place") {
                    let place = serde_json::to_value(&self.place).map_err(serde::ser::Error::custom)?;
                    fields.insert(PLACE.to_owned(), place);
                }
                Line { kind: &EventKind::Unknown(fields), ..line }.serialize(s)
            }
            _ => Line { metadata: place, ..line }.serialize(s),
        }
    }
}

fn is_reserved(key: &str) -> bool {
    matches!(key, "timestamp" | PLACE)
}

impl<'de> Deserialize<'de> for Event {
    /// Fails only when there is no object or no timestamp: a kind, or a shape of a known kind, that this version does not
    /// know becomes [`EventKind::Unknown`].
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let whole = Json::deserialize(d)?;
        let around = Around::deserialize(&whole).map_err(serde::de::Error::custom)?;
        let kind = EventKind::deserialize(&whole).map_err(serde::de::Error::custom)?;
        Ok(around.with(kind))
    }
}

impl Event {
    /// Reads one event from JSON text; the same as [`serde_json::from_str`], in little more than half the time.
    ///
    /// # Errors
    /// The text is no JSON object with a `timestamp`.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        // Twice over the text is faster than once through a tree of values.
        match serde_json::from_str::<Around>(text) {
            Ok(around) => Ok(around.with(serde_json::from_str(text)?)),
            // Older versions could write an unknown event with `place` twice: its own field, then the place of the event. Of a
            // key that stands twice, a tree of values keeps the last.
            Err(_) => Self::deserialize(serde_json::from_str::<Json>(text)?),
        }
    }
}

/// What stands around the kind of a written event.
#[derive(Deserialize)]
struct Around {
    timestamp: Timestamp,
    #[serde(default)]
    metadata: Lenient,
    #[serde(default)]
    place: Lenient,
    #[serde(default, rename = "_place")]
    reserved: Option<Lenient>,
}

impl Around {
    fn with(self, mut kind: EventKind) -> Event {
        let place = match (&mut kind, self.reserved) {
            (EventKind::Unknown(fields), Some(reserved)) => {
                fields.retain(|key, _| !is_reserved(key));
                reserved.0
            }
            // As older versions wrote it: the place of the event is under `place`.
            (EventKind::Unknown(fields), None) => {
                // `shift_remove` keeps the order of the others: what is not known is written again as it came.
                fields.shift_remove("timestamp");
                if self.place.0 != FlowLocation::default() {
                    fields.shift_remove("place");
                }
                self.place.0
            }
            (EventKind::User(_), _) => self.place.0,
            _ => self.metadata.0,
        };
        Event { at: self.timestamp, kind, place }
    }
}

/// The flow and step that an event belongs to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowLocation {
    /// The flow under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_flow: Option<FlowId>,
    /// Its step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<StepId>,
}

impl EventKind {
    /// The assistant said this.
    pub fn bot(message: BotMessage) -> Self {
        Self::Bot(Box::new(message))
    }

    /// An event of a kind that this version does not know, as another program wrote it. The keys under which the store keeps
    /// time and place are dropped from its fields.
    pub fn unknown(mut fields: Map<String, Json>) -> Self {
        fields.retain(|key, _| !is_reserved(key));
        Self::Unknown(fields)
    }
}

/// A place where there is one; anything else in its stead is no place.
#[derive(Default)]
struct Lenient(FlowLocation);

impl<'de> Deserialize<'de> for Lenient {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Given {
            Place(FlowLocation),
            Other(IgnoredAny),
        }
        Ok(Self(match Given::deserialize(d)? {
            Given::Place(place) => place,
            Given::Other(_) => FlowLocation::default(),
        }))
    }
}

impl FlowLocation {
    fn is_empty(&self) -> bool {
        self.active_flow.is_none() && self.step_id.is_none()
    }
}

fn yes() -> bool {
    true
}

/// Who filled a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FilledBy {
    /// The command generator.
    #[serde(rename = "LLM")]
    Llm,
    /// A mapping that needs no model, an intent message for instance.
    #[serde(rename = "NLU")]
    Nlu,
    /// A button or a `/SetSlots` message.
    #[serde(rename = "CommandPayloadReader")]
    Payload,
    /// An action.
    #[serde(rename = "CUSTOM")]
    Custom,
    /// The text was taken without a model: a title, a number, yes or no.
    #[serde(rename = "shortcut")]
    Shortcut,
    /// A sub-agent.
    #[serde(rename = "agent")]
    Agent,
    /// A `set_slots` step or the mapping of a tool call.
    #[serde(rename = "flow")]
    Flow,
}

/// What a text of the assistant was for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BotKind {
    /// A response of the domain or of an action.
    #[default]
    Response,
    /// Said by an agent while it works on.
    Filler,
    /// An agent's question to the user.
    InputRequired,
    /// An agent's last words.
    FinalResponse,
    /// A message of a remote agent that still works.
    Intermediate,
}

/// One message that the user saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BotMessage {
    /// The message.
    #[serde(flatten)]
    pub reply: Reply,
    /// The response it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utter_action: Option<Arc<str>>,
    /// What it was for.
    #[serde(default)]
    pub kind: BotKind,
    /// The agent that said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// Its id on the wire; the same after a crash, so that a channel can suppress a repetition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_id: Option<Arc<str>>,
    /// Who made the text, where it was not written by the author: `EnterpriseSearchPolicy`, `ContextualResponseRephraser`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utter_source: Option<Arc<str>>,
    /// The passages that an answer was made from, best first: `{source, text, score, cited}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search_results: Vec<Json>,
    /// What a rephraser or a response server must know to word it. Set only where the project has one, and taken away before
    /// the message is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wording: Option<Box<RephraseInstruction>>,
    /// True when the text already stands inside a tool exchange of the same agent, so that a prompt does not show it twice.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_exchange: bool,
    /// True when the text is not whole: the answer broke off, or a limit or a filter ended it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// What a rephraser or a response server must know of a response.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RephraseInstruction {
    /// Which of its variations was chosen.
    pub variation: usize,
    /// Values that were handed in beside the slots.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub arguments: Map<String, Json>,
}

/// The kinds of events. Names and fields follow the CALM format; ours beyond those are marked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// The user wrote.
    User(UserMessage),
    /// The assistant said. Boxed, for it is far larger than all the others, and every event is moved several times.
    Bot(Box<BotMessage>),
    /// An action ran.
    Action {
        /// Its name.
        name: ActionName,
    },
    /// A slot got a value.
    Slot {
        /// Which.
        name: SlotName,
        /// The value; null is empty.
        value: Json,
        /// Who filled it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filled_by: Option<FilledBy>,
        /// Whether this puts the initial value back.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        reset: bool,
    },
    /// All slots are back at their initial values.
    ResetSlots,
    /// A session began.
    SessionStarted,
    /// A session ended for good.
    SessionEnded {
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Everything is forgotten.
    Restart,
    /// Be silent.
    Pause,
    /// Speak again.
    Resume,
    /// This action runs next.
    Followup {
        /// Its name; null takes it back.
        name: Option<ActionName>,
    },
    /// Back to before the newest user message; a second one in the same turn changes nothing.
    Rewind,
    /// The newest action is taken back: what it said and the values it set. The stack is not.
    Undo,
    /// Something is to happen later, unless it is cancelled before.
    Reminder {
        /// Its name; the dialogue engine gives it one where there is none.
        #[serde(default)]
        name: Option<Arc<str>>,
        /// The intent that comes then.
        intent: Arc<str>,
        /// Its entities.
        #[serde(default, skip_serializing_if = "Json::is_null")]
        entities: Json,
        /// When, in the form of ISO 8601; the dialogue engine writes the zone to it.
        date_time: String,
        /// Whether a message of the user cancels it.
        #[serde(default = "yes")]
        kill_on_user_msg: bool,
    },
    /// Reminders are cancelled: all that fit what is given; all there are, if nothing is.
    CancelReminder {
        /// By name.
        #[serde(default)]
        name: Option<Arc<str>>,
        /// By intent.
        #[serde(default)]
        intent: Option<Arc<str>>,
        /// By entities.
        #[serde(default, skip_serializing_if = "Json::is_null")]
        entities: Json,
    },
    /// Ours: something came that no user wrote: a reminder, or a call of a program. A turn begins.
    External {
        /// What.
        trigger: Trigger,
    },
    /// The conversation goes back to the coexisting NLU assistant; kept for those who read events.
    RoutingSessionEnded,
    /// The stack changed: the whole of it, so that any part of a history can be read alone.
    Stack {
        /// Bottom first.
        frames: Stack,
        /// The number of the next frame.
        next_frame: u64,
        /// The effect that was asked for and has not come back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pending: Option<PendingEffect>,
    },
    /// A flow began.
    FlowStarted {
        /// Which.
        flow_id: FlowId,
        /// Its fingerprint then.
        #[serde(default)]
        fingerprint: u64,
        /// The context of its frame, for patterns.
        #[serde(default, skip_serializing_if = "Json::is_null")]
        context: Json,
    },
    /// A flow reached its end.
    FlowCompleted {
        /// Which.
        flow_id: FlowId,
        /// Its last step.
        step_id: StepId,
    },
    /// The user stopped a flow, or it failed.
    FlowCancelled {
        /// Which.
        flow_id: FlowId,
        /// Where it stood.
        step_id: StepId,
    },
    /// Another flow came in between.
    FlowInterrupted {
        /// Which.
        flow_id: FlowId,
        /// Where it stands.
        step_id: StepId,
    },
    /// It goes on.
    FlowResumed {
        /// Which.
        flow_id: FlowId,
        /// Where it stands.
        step_id: StepId,
    },
    /// An agent began a task.
    AgentStarted {
        /// The calling flow.
        flow_id: FlowId,
        /// The agent.
        agent_id: AgentName,
        /// The context id of a remote agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        context_id: Option<String>,
        /// Whether it had completed this task before.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        restarted: bool,
    },
    /// An agent finished its task.
    AgentCompleted {
        /// The calling flow.
        flow_id: FlowId,
        /// The agent.
        agent_id: AgentName,
        /// How: `completed`.
        status: String,
        /// The context id of a remote agent: its next task continues there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        context_id: Option<String>,
    },
    /// The user turned to something else while an agent waited.
    AgentInterrupted {
        /// The calling flow.
        flow_id: FlowId,
        /// The agent.
        agent_id: AgentName,
    },
    /// The agent goes on.
    AgentResumed {
        /// The calling flow.
        flow_id: FlowId,
        /// The agent.
        agent_id: AgentName,
    },
    /// The agent's task is over without a result.
    AgentCancelled {
        /// The calling flow.
        flow_id: FlowId,
        /// The agent.
        agent_id: AgentName,
        /// Why, for operators.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Ours: tool calls and results of an agent's run, kept for its next turns (size-capped).
    AgentExchanges {
        /// The agent.
        agent_id: AgentName,
        /// The messages as a model wire has them: assistant messages with calls, and one tool message for each call.
        exchanges: Arc<Vec<Json>>,
    },
    /// Ours: a tool ran.
    ToolExecuted {
        /// The server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        server: Option<ServerName>,
        /// The tool.
        tool_name: ToolName,
        /// The agent that called, none for a call step.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent_id: Option<AgentName>,
        /// What it was given.
        arguments: Json,
        /// `done`, `failed`, `unknown`, `pending`, or `refused` by the author's rules.
        status: String,
        /// What it said, capped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
        /// Of an agent's call that changes something: where each argument comes from, by its path: `user`, `shown` (a text
        /// the user saw), `tool` (a result of a tool or a document), or `model`.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        origins: BTreeMap<String, String>,
    },
    /// An action refused to run.
    ActionExecutionRejected {
        /// Its name.
        name: ActionName,
    },
    /// Ours: an action failed.
    ActionFailed {
        /// Its name.
        name: ActionName,
        /// Why.
        error: StepError,
    },
    /// A loop of the older dialogue engine began, or ended.
    ActiveLoop {
        /// Its name; null when it ended.
        name: Option<String>,
    },
    /// Ours: an action reported an event that only the dialogue engine may write. It stands here as it came and changes nothing.
    Reported {
        /// The action.
        by: ActionName,
        /// The event in the tracker format.
        reported: Map<String, Json>,
    },
    /// Ours: what was understood of the newest message.
    Understood {
        /// The commands as they came in.
        commands: Vec<Command>,
        /// Where they came from: `model`, `payload`, `intent`, `shortcut`, `mapping`, `check`, `external`.
        source: String,
    },
    /// Ours: a crash or an interruption cut this reply; how much of it was seen is not known.
    ReplyInterrupted {
        /// The reply.
        reply_id: String,
    },
    /// Ours: what models used in this turn; its last event, where a model answered.
    ModelsUsed(ModelUsage),
    /// A kind that this version does not know; kept as it is.
    #[serde(untagged)]
    Unknown(Map<String, Json>),
}
