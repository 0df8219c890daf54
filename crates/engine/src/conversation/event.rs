//! Events: the only stored state of a conversation; everything else is computed from them.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::{Map, Value as Json};

use super::{
    Command, ExternalTrigger, ModelUsage, PendingEffect, Reply, Stack, StepError, UserMessage, Write, WriteState,
    Writes,
};
use crate::{
    ids::{ActionName, AgentName, FlowId, ServerName, SlotName, StepId, ToolName},
    time::Timestamp,
};

/// An event of a conversation.
///
/// As JSON it is one flat object: `event`, `timestamp`, the fields of its kind, and `metadata` with the flow location.
/// The `metadata` of a `user` event is that of its message, as in the CALM format; its location, if any, is under
/// `place`. An event of an unknown kind keeps all its fields, so its location is under `_place`, a key that its fields
/// may not use.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The time of the input that caused the event.
    pub at: Timestamp,
    /// The kind, with its fields.
    pub kind: EventKind,
    /// The flow and step it belongs to.
    pub location: FlowLocation,
}

/// The key for the location of an event of an unknown kind. Such events come from other programs with fields of any
/// name; this key and `timestamp` are reserved and removed from their fields.
const LOCATION_KEY: &str = "_place";

/// The JSON form of an event; borrowed, so that serialising copies nothing.
#[derive(Serialize)]
struct EventJson<'a> {
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
        let place = (!self.location.is_empty()).then_some(&self.location);
        let line = EventJson { timestamp: self.at, kind: &self.kind, metadata: None, place: None };
        match &self.kind {
            EventKind::User(_) => EventJson { place, ..line }.serialize(s),
            EventKind::Unknown(fields) => {
                let mut fields = fields.clone();
                fields.retain(|key, _| !is_reserved(key));
                // Without `_place`, a field `place` of the event would be read as its location, as older records store
                // it.
                if place.is_some() || fields.contains_key("place") {
                    let place = serde_json::to_value(&self.location).map_err(serde::ser::Error::custom)?;
                    fields.insert(LOCATION_KEY.to_owned(), place);
                }
                EventJson { kind: &EventKind::Unknown(fields), ..line }.serialize(s)
            }
            _ => EventJson { metadata: place, ..line }.serialize(s),
        }
    }
}

fn is_reserved(key: &str) -> bool {
    matches!(key, "timestamp" | LOCATION_KEY)
}

impl<'de> Deserialize<'de> for Event {
    /// Fails only when there is no object or no timestamp: a kind that this version does not know, or a known kind in
    /// another shape, becomes [`EventKind::Unknown`].
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let whole = Json::deserialize(d)?;
        let envelope = EventEnvelope::deserialize(&whole).map_err(serde::de::Error::custom)?;
        let kind = EventKind::deserialize(&whole).map_err(serde::de::Error::custom)?;
        Ok(envelope.with(kind))
    }
}

impl Event {
    /// Parses one event from JSON text. Equivalent to [`serde_json::from_str`], in about half the time.
    ///
    /// # Errors
    /// The text is not a JSON object with a `timestamp`.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        // Parsing the text twice is faster than building a tree of values.
        match serde_json::from_str::<EventEnvelope>(text) {
            Ok(envelope) => Ok(envelope.with(serde_json::from_str(text)?)),
            // Older versions could write an unknown event with two keys `place`: its own field, then the location of
            // the event. A tree of values keeps the last of two equal keys.
            Err(_) => Self::deserialize(serde_json::from_str::<Json>(text)?),
        }
    }
}

/// The fields of a stored event that do not belong to its kind.
#[derive(Deserialize)]
struct EventEnvelope {
    timestamp: Timestamp,
    #[serde(default)]
    metadata: LenientLocation,
    #[serde(default)]
    place: LenientLocation,
    #[serde(default, rename = "_place")]
    reserved: Option<LenientLocation>,
}

impl EventEnvelope {
    fn with(self, mut kind: EventKind) -> Event {
        let location = match (&mut kind, self.reserved) {
            (EventKind::Unknown(fields), Some(reserved)) => {
                fields.retain(|key, _| !is_reserved(key));
                reserved.0
            }
            // The format of older versions: the location of the event is under `place`.
            (EventKind::Unknown(fields), None) => {
                // `shift_remove` keeps the order of the other fields, so that unknown events are written as they were
                // read.
                fields.shift_remove("timestamp");
                if self.place.0 != FlowLocation::default() {
                    fields.shift_remove("place");
                }
                self.place.0
            }
            (EventKind::User(_), _) => self.place.0,
            _ => self.metadata.0,
        };
        Event { at: self.timestamp, kind, location }
    }
}

/// The flow and step that an event belongs to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowLocation {
    /// The active flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_flow: Option<FlowId>,
    /// The step of that flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<StepId>,
}

impl EventKind {
    /// A bot message.
    pub fn bot(message: BotMessage) -> Self {
        Self::Bot(Box::new(message))
    }

    /// An event of a kind that this version does not know, as another program wrote it. The keys that the store
    /// reserves for time and location are removed from its fields.
    pub fn unknown(mut fields: Map<String, Json>) -> Self {
        fields.retain(|key, _| !is_reserved(key));
        Self::Unknown(fields)
    }

    /// What a tool call has changed, or may have: the call itself and the work that it started. `None` for a call without such effects,
    /// and for other events.
    pub fn writes(&self) -> Option<Writes> {
        let Self::ToolExecuted { tool_name, arguments, status, summary, effect, writes, .. } = self else {
            return None;
        };
        let mut all = writes.clone();
        let state = match (status.as_str(), effect) {
            ("done", Some(_)) => Some(WriteState::Done),
            // Only the outcome of a `write` can be unknown; a call that goes on elsewhere has no outcome yet.
            ("unknown", _) | ("pending", Some(_)) => Some(WriteState::InDoubt),
            _ => None,
        };
        if let Some(state) = state {
            let write = Write::new(tool_name.as_str(), arguments).with_effect(effect.as_deref().unwrap_or("write"));
            let result = summary.as_deref().filter(|_| state == WriteState::Done).unwrap_or_default();
            all.add(write.with_result(result), state);
        }
        (!all.is_empty()).then_some(all)
    }
}

/// A flow location; any other value counts as an empty location.
#[derive(Default)]
struct LenientLocation(FlowLocation);

impl<'de> Deserialize<'de> for LenientLocation {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum LocationOrOther {
            Location(FlowLocation),
            Other(IgnoredAny),
        }
        Ok(Self(match LocationOrOther::deserialize(d)? {
            LocationOrOther::Location(location) => location,
            LocationOrOther::Other(_) => FlowLocation::default(),
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

/// The source of a slot value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FilledBy {
    /// The command generator.
    #[serde(rename = "LLM")]
    Llm,
    /// A slot mapping that needs no model, for example of an intent message.
    #[serde(rename = "NLU")]
    Nlu,
    /// A button or a `/SetSlots` message.
    #[serde(rename = "CommandPayloadReader")]
    Payload,
    /// A custom action.
    #[serde(rename = "CUSTOM")]
    Custom,
    /// A rule that needs no model: a button title, a number, yes or no.
    #[serde(rename = "shortcut")]
    Shortcut,
    /// A sub-agent.
    #[serde(rename = "agent")]
    Agent,
    /// A `set_slots` step, or the output mapping of a tool call.
    #[serde(rename = "flow")]
    Flow,
}

/// The purpose of a bot message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BotKind {
    /// A response of the domain or of an action.
    #[default]
    Response,
    /// A text that an agent sends while it continues to work.
    Filler,
    /// An agent's question to the user.
    InputRequired,
    /// The final message of an agent.
    FinalResponse,
    /// A message of an agent that is not its last of the run: text beside tool calls, a custom agent's `say`, text before a
    /// failure, or news of a remote agent that continues to work.
    Intermediate,
}

/// A message to the user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BotMessage {
    /// The content.
    #[serde(flatten)]
    pub reply: Reply,
    /// The response it was rendered from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utter_action: Option<Arc<str>>,
    /// The purpose.
    #[serde(default)]
    pub kind: BotKind,
    /// The agent that sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// The id under which channels send it; the same after a crash, so that a channel can suppress duplicates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_id: Option<Arc<str>>,
    /// The component that generated the text, when the author did not write it: `EnterpriseSearchPolicy`,
    /// `ContextualResponseRephraser`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utter_source: Option<Arc<str>>,
    /// The passages that an answer is based on, best first: `{source, text, score, cited}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search_results: Vec<Json>,
    /// Input for the rephraser or the NLG server. Set only when the project has one, and removed before the message is
    /// stored.
    #[serde(default, rename = "wording", skip_serializing_if = "Option::is_none")]
    pub rephrase: Option<Box<RephraseInstruction>>,
    /// Whether the text is already part of a tool exchange of the same agent, so that a prompt does not show it twice.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_exchange: bool,
    /// Whether the text is incomplete: the response was interrupted, or a limit or a filter ended it.
    #[serde(default, rename = "cut", skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// What a rephraser or an NLG server needs to know about a response.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RephraseInstruction {
    /// Index of the chosen variation.
    pub variation: usize,
    /// Values that were passed in addition to the slots.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub arguments: Map<String, Json>,
}

/// The kinds of events. Names and fields follow the CALM format; kinds marked "Segue" are not part of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// The user sent a message.
    User(UserMessage),
    /// The assistant sent a message. Boxed, because it is far larger than the other kinds and events are moved often.
    Bot(Box<BotMessage>),
    /// An action was executed.
    Action {
        /// The action.
        name: ActionName,
    },
    /// A slot was set.
    Slot {
        /// The slot.
        name: SlotName,
        /// The value; null means empty.
        value: Json,
        /// The source of the value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filled_by: Option<FilledBy>,
        /// Whether this resets the slot to its initial value.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        reset: bool,
    },
    /// All slots were reset to their initial values.
    ResetSlots,
    /// A session started.
    SessionStarted,
    /// The session ended.
    SessionEnded {
        /// The reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The conversation was reset.
    Restart,
    /// The assistant stops replying.
    Pause,
    /// The assistant replies again.
    Resume,
    /// Sets the action that runs next.
    Followup {
        /// The action; null clears it.
        name: Option<ActionName>,
    },
    /// Reverts everything since the newest user message, including the message. A second one in the same turn has no
    /// effect.
    Rewind,
    /// Reverts the newest action: its messages and the values it set, but not the stack.
    Undo,
    /// A reminder is set.
    Reminder {
        /// The name; the dialogue engine generates one when it is absent.
        #[serde(default)]
        name: Option<Arc<str>>,
        /// The intent to trigger.
        intent: Arc<str>,
        /// The entities of the intent.
        #[serde(default, skip_serializing_if = "Json::is_null")]
        entities: Json,
        /// The due time in ISO 8601; the dialogue engine adds the time zone.
        date_time: String,
        /// Whether a user message cancels it.
        #[serde(default = "yes")]
        kill_on_user_msg: bool,
    },
    /// Cancels the reminders that match all given fields; without fields, all reminders.
    CancelReminder {
        /// The name to match.
        #[serde(default)]
        name: Option<Arc<str>>,
        /// The intent to match.
        #[serde(default)]
        intent: Option<Arc<str>>,
        /// The entities to match.
        #[serde(default, skip_serializing_if = "Json::is_null")]
        entities: Json,
    },
    /// Segue: a reminder or another program starts a turn.
    External {
        /// The trigger.
        trigger: ExternalTrigger,
    },
    /// The conversation returns to the coexisting NLU assistant. Recorded for consumers of events; it has no effect
    /// here.
    RoutingSessionEnded,
    /// The stack changed. The event contains the whole stack, so that any part of a history can be read alone.
    Stack {
        /// The frames, bottom first.
        frames: Stack,
        /// The number of the next frame.
        next_frame: u64,
        /// The effect that was requested and has not returned.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pending: Option<PendingEffect>,
    },
    /// A flow started.
    FlowStarted {
        /// The flow.
        flow_id: FlowId,
        /// Its fingerprint at the start.
        #[serde(default)]
        fingerprint: u64,
        /// The context of the frame; for patterns.
        #[serde(default, skip_serializing_if = "Json::is_null")]
        context: Json,
    },
    /// A flow completed.
    FlowCompleted {
        /// The flow.
        flow_id: FlowId,
        /// Its last step.
        step_id: StepId,
    },
    /// A flow was cancelled by the user, or failed.
    FlowCancelled {
        /// The flow.
        flow_id: FlowId,
        /// The current step.
        step_id: StepId,
    },
    /// A flow was interrupted by another one.
    FlowInterrupted {
        /// The flow.
        flow_id: FlowId,
        /// The current step.
        step_id: StepId,
    },
    /// An interrupted flow resumed.
    FlowResumed {
        /// The flow.
        flow_id: FlowId,
        /// The current step.
        step_id: StepId,
    },
    /// An agent started a task.
    AgentStarted {
        /// The calling flow.
        flow_id: FlowId,
        /// The agent.
        agent_id: AgentName,
        /// The context id of a remote agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        context_id: Option<String>,
        /// Whether the agent had completed this task before.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        restarted: bool,
    },
    /// An agent completed its task.
    AgentCompleted {
        /// The calling flow.
        flow_id: FlowId,
        /// The agent.
        agent_id: AgentName,
        /// The status: `completed`.
        status: String,
        /// The context id of a remote agent, used for its next task.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        context_id: Option<String>,
    },
    /// The user changed the subject while an agent waited.
    AgentInterrupted {
        /// The calling flow.
        flow_id: FlowId,
        /// The agent.
        agent_id: AgentName,
    },
    /// An interrupted agent resumed.
    AgentResumed {
        /// The calling flow.
        flow_id: FlowId,
        /// The agent.
        agent_id: AgentName,
    },
    /// An agent's task ended without a result.
    AgentCancelled {
        /// The calling flow.
        flow_id: FlowId,
        /// The agent.
        agent_id: AgentName,
        /// The reason, for operators.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Segue: tool calls and results of an agent run, kept for its next turns; limited in size.
    AgentExchanges {
        /// The agent.
        agent_id: AgentName,
        /// The messages in the format of a chat completions API: assistant messages with tool calls, and one tool
        /// message for each call.
        exchanges: Arc<Vec<Json>>,
    },
    /// Segue: a tool was called.
    ToolExecuted {
        /// The server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        server: Option<ServerName>,
        /// The tool.
        tool_name: ToolName,
        /// The calling agent; absent for a call step.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent_id: Option<AgentName>,
        /// The arguments.
        arguments: Json,
        /// `done`, `failed`, `unknown`, `pending`, or `refused` by the author's rules.
        status: String,
        /// The result or error, limited to [`crate::limits::TOOL_SUMMARY`] characters.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
        /// For agent calls that have side effects: the origin of each argument by its path, which is `user`, `shown` (a
        /// text the user was sent), `tool` (a result of a tool or a document), or `model`.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        origins: BTreeMap<String, String>,
        /// `write` or `idempotent`; absent for a call that changes nothing itself, and in events of older releases.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effect: Option<Arc<str>>,
        /// What the work that it started has changed, for a call that starts other work, such as a sub-agent.
        #[serde(default, skip_serializing_if = "Writes::is_empty")]
        writes: Writes,
    },
    /// An action rejected its execution.
    ActionExecutionRejected {
        /// The action.
        name: ActionName,
    },
    /// Segue: an action failed.
    ActionFailed {
        /// The action.
        name: ActionName,
        /// The error.
        error: StepError,
    },
    /// A form (active loop) of the older Rasa dialogue engine started or ended.
    ActiveLoop {
        /// The form; null when it ended.
        name: Option<String>,
    },
    /// Segue: an action returned an event that only the dialogue engine may write. It is recorded unchanged and has no
    /// effect.
    Reported {
        /// The action.
        by: ActionName,
        /// The event in the tracker format.
        reported: Map<String, Json>,
    },
    /// Segue: the commands of the newest message.
    Understood {
        /// The commands before command cleanup.
        commands: Vec<Command>,
        /// Their source: `model`, `payload`, `intent`, `shortcut`, `mapping`, `check`, `external`.
        source: String,
    },
    /// Segue: a crash or an interruption ended this reply early; how much of it was delivered is not known.
    ReplyInterrupted {
        /// The id of the reply.
        reply_id: String,
    },
    /// Segue: the model usage of this turn; the last event of a turn with model calls.
    ModelsUsed(ModelUsage),
    /// A kind that this version does not know; kept unchanged.
    #[serde(untagged)]
    Unknown(Map<String, Json>),
}
