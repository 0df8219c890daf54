//! The state of a conversation, computed from its events.
//!
//! [`Conversation::apply`] is the only way to change it. It makes no decisions, accepts names that it does not know,
//! and has no access to external services. The state is bounded: the cost of a turn does not grow with the length of
//! the conversation.

mod command;
mod effects;
mod event;
mod history;
#[cfg(test)]
mod json_tests;
mod message;
mod recent_replies;
mod reminder;
mod slots;
mod stack;
pub mod tracker;
mod undo;
mod writes;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

pub use self::{
    command::Command,
    effects::{
        ActionCall, ActionOrigin, ActionOutcome, ActionServerResponse, AgentCall, AgentKind, AgentOutcome, AgentStatus,
        ErrorKind, FlowToolCall, PendingEffect, SearchCall, SearchOutcome, StepError, ToolResult,
        UNCONFIRMED_CALLS_KEY, UnconfirmedCall,
    },
    event::{BotKind, BotMessage, Event, EventKind, FilledBy, FlowLocation, RephraseInstruction},
    history::{History, HistoryItem},
    message::{Button, Reply, UserMessage},
    recent_replies::RecentReplies,
    reminder::{ExternalTrigger, Reminder, Reminders, TriggerAction},
    slots::{SlotState, Slots},
    stack::{
        AgentFrame, AgentState, CompletedStep, FlowFrameType, Frame, FrameKind, KeptValue, PatternFrame, Position,
        Stack,
    },
    undo::UndoLog,
    writes::{Write, WriteState, Writes, request_hash},
};
use crate::{
    ids::{AgentName, ConversationId, FlowId},
    project::builtin::{LISTEN, REQUEST_INPUT},
    time::Timestamp,
};
pub use segue_lang::usage::{ModelUsage, Usage, round_cost};

/// The state of one conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    /// The id of the conversation.
    pub id: ConversationId,
    /// Slots that were set; a slot that is absent has its initial value.
    pub slots: Slots,
    /// The active flows, patterns and agents, bottom first.
    pub stack: Stack,
    /// The effect that was requested and has not returned; snapshots of older releases do not contain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingEffect>,
    /// The latest messages; bounded.
    pub history: History,
    /// The complete replies to the last messages, for repeating them and for the buttons that the user can press.
    #[serde(default, rename = "said", skip_serializing_if = "RecentReplies::is_empty")]
    pub recent_replies: RecentReplies,
    /// The current session.
    pub session: Session,
    /// The newest user message; removed by a restart.
    pub latest_message: Option<UserMessage>,
    /// The channel that accepted the newest message for which a channel is known: the way to the user, also after a restart. Empty if there
    /// is none.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub route: Arc<str>,
    /// The agents that ran in this session, by name.
    pub agents: BTreeMap<AgentName, AgentRecord>,
    /// Fingerprints of the flows of this session, taken when each started.
    #[serde(rename = "flow_hashes")]
    pub flow_fingerprints: BTreeMap<FlowId, u64>,
    /// Flows that were started in this session; the command generator always sees them.
    pub started_flows: BTreeSet<FlowId>,
    /// The action that runs next, set by a `followup` event.
    pub followup: Option<crate::ids::ActionName>,
    /// The active form (loop) as an action reported it; only passed on to action servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_loop: Option<String>,
    /// While true, messages are recorded and not answered.
    pub paused: bool,
    /// Number of applied events.
    pub events: u64,
    /// Number of applied user messages.
    pub turns: u64,
    /// The counter that frame ids are made from, so that a replay makes the same ids.
    pub next_frame: u64,
    /// The progress of the current turn.
    #[serde(default)]
    pub turn: TurnState,
    /// The pending reminders.
    #[serde(default, skip_serializing_if = "Reminders::is_empty")]
    pub reminders: Reminders,
    /// The changes of the newest turn.
    #[serde(default, skip_serializing_if = "UndoLog::is_empty")]
    pub undo: UndoLog,
    /// The model usage in all sessions.
    #[serde(default, skip_serializing_if = "ModelUsage::is_empty")]
    pub models: ModelUsage,
}

/// The progress of a turn: what is needed to continue it after an effect, and to end a turn that loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnState {
    /// Number of actions, tool calls and agent runs since the turn started.
    #[serde(rename = "acts")]
    pub effects: u32,
    /// Whether the commands of the message are known; before that, only actions that run at every message have run.
    pub understood: bool,
    /// Whether the assistant sent a message.
    pub spoke: bool,
    /// Whether its message is the first of the session; a session that starts during the turn does not change this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first: bool,
    /// Whether a user message started it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_message: bool,
}

/// The current session of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Whether a session has started.
    pub started: bool,
    /// Whether it ended.
    pub ended: bool,
    /// When it started.
    pub started_at: Timestamp,
    /// When a user message or a trigger last started a turn.
    pub last_user_at: Timestamp,
    /// Number of user messages in this session.
    #[serde(default)]
    pub turns: u64,
}

/// The record of one agent in this session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentRecord {
    /// The flow that called it most recently.
    pub flow_id: Option<FlowId>,
    /// Number of tasks it started.
    pub started: u32,
    /// Number of tasks it completed.
    pub completed: u32,
    /// The flows for which it completed a task.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub completed_in: BTreeSet<FlowId>,
    /// Number of tasks that ended without a result.
    #[serde(default)]
    pub cancelled: u32,
    /// The last text it sent; on resume it is passed to the agent as its last question.
    pub last_text: Option<String>,
    /// The context id of the remote agent for this conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_id: Option<String>,
    /// What its current task has changed.
    #[serde(default, skip_serializing_if = "Writes::is_empty")]
    pub writes: Writes,
    /// What tasks changed that ended without a result since it last completed one, also in earlier sessions. Its next run is told.
    #[serde(default, skip_serializing_if = "Writes::is_empty")]
    pub unfinished: Writes,
}

impl AgentRecord {
    /// Whether it completed a task for this flow. A record of an older release does not count tasks by flow.
    pub fn has_completed_in(&self, flow: &FlowId) -> bool {
        self.completed_in.contains(flow)
            || self.completed_in.is_empty() && self.completed > 0 && self.flow_id.as_ref() == Some(flow)
    }
}

impl Conversation {
    /// A conversation without events.
    pub fn new(id: ConversationId) -> Self {
        Self {
            id,
            slots: Slots::default(),
            stack: Stack::default(),
            pending: None,
            history: History::default(),
            recent_replies: RecentReplies::default(),
            session: Session::default(),
            latest_message: None,
            route: "".into(),
            agents: BTreeMap::new(),
            flow_fingerprints: BTreeMap::new(),
            started_flows: BTreeSet::new(),
            followup: None,
            active_loop: None,
            paused: false,
            events: 0,
            turns: 0,
            next_frame: 0,
            turn: TurnState::default(),
            reminders: Reminders::default(),
            undo: UndoLog::default(),
            models: ModelUsage::default(),
        }
    }

    /// Computes the state of a stored conversation.
    pub fn fold<'a>(id: ConversationId, events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut conversation = Self::new(id);
        events.into_iter().for_each(|event| conversation.apply(event));
        conversation
    }

    /// Whether an event changes only the pending effect.
    fn only_pending_changes(&self, kind: &EventKind) -> bool {
        matches!(kind, EventKind::Stack { frames, next_frame, .. } if *frames == self.stack && *next_frame == self.next_frame)
    }

    /// Applies one event. Never fails; unknown events are counted and otherwise ignored.
    pub fn apply(&mut self, event: &Event) {
        // Changes of the pending effect alone are not counted: earlier releases did not record them, and random choices
        // depend on the count.
        self.events += u64::from(!self.only_pending_changes(&event.kind));
        match &event.kind {
            EventKind::User(message) => self.user(message, event.at),
            EventKind::Bot(bot) => {
                if let (Some(agent), false) = (&bot.agent, bot.kind == BotKind::Filler) {
                    self.agents.entry(agent.clone()).or_default().last_text = bot.reply.text.as_deref().map(Into::into);
                }
                self.turn.spoke = true;
                self.recent_replies.bot(bot);
                let said = usize::from(self.history.bot(bot, event.at));
                self.undo.log_history(said);
            }
            EventKind::Slot { name, value, filled_by, reset } => {
                let before = if *reset {
                    self.slots.reset(name, value)
                } else {
                    self.slots.set(name.clone(), value.clone(), *filled_by)
                };
                self.undo.log_slot(name, before);
            }
            EventKind::ResetSlots => {
                for (name, state) in self.slots.clear() {
                    self.undo.log_slot(&name, Some(state));
                }
            }
            EventKind::Rewind => self.rewind(),
            EventKind::Undo => self.undo_action(),
            EventKind::SessionStarted => self.start_session(event.at),
            EventKind::SessionEnded { .. } => self.session.ended = true,
            EventKind::Restart => {
                let (id, events, turns, frame) = (self.id.clone(), self.events, self.turns, self.next_frame);
                let models = self.models;
                let route = self.route.clone();
                *self = Self { events, turns, next_frame: frame, turn: self.turn, models, route, ..Self::new(id) };
            }
            EventKind::Pause => self.paused = true,
            EventKind::Resume => self.paused = false,
            EventKind::Followup { name } => self.followup.clone_from(name),
            EventKind::Stack { frames, next_frame, pending } => {
                let before = std::mem::replace(&mut self.stack, frames.clone());
                if self.undo.open {
                    self.undo.stack.get_or_insert(before);
                }
                self.next_frame = *next_frame;
                self.pending.clone_from(pending);
            }
            EventKind::FlowStarted { flow_id, fingerprint, .. } => {
                self.started_flows.insert(flow_id.clone());
                self.flow_fingerprints.insert(flow_id.clone(), *fingerprint);
            }
            EventKind::ActionFailed { .. } | EventKind::ActionExecutionRejected { .. } => {
                self.turn.effects += 1;
                self.undo.log_action();
            }
            EventKind::ActiveLoop { name } => self.active_loop.clone_from(name),
            EventKind::Reported { reported, .. } => {
                // A user message that an action reports belongs to the history, although it starts no turn.
                if let (Some("user"), Some(text)) = (tracker::text(reported, "event"), tracker::text(reported, "text"))
                {
                    self.history.user(&text.into(), event.at);
                    self.undo.log_history(1);
                }
            }
            EventKind::Action { name } => {
                self.turn.effects += 1;
                // A turn can only be reverted while it runs; between turns the log is empty.
                match name.as_str() {
                    LISTEN | REQUEST_INPUT => self.undo = UndoLog::default(),
                    _ => self.undo.log_action(),
                }
            }
            EventKind::Reminder { .. } | EventKind::CancelReminder { .. } => self.apply_reminder(&event.kind),
            EventKind::External { trigger } => {
                self.turn = TurnState::default();
                self.undo = UndoLog::default();
                self.session.last_user_at = event.at;
                if let Some(name) = &trigger.reminder {
                    self.reminders.retain(|one| one.name != *name);
                }
            }
            EventKind::Understood { .. } => self.turn.understood = true,
            EventKind::ToolExecuted { .. }
            | EventKind::AgentStarted { .. }
            | EventKind::AgentCompleted { .. }
            | EventKind::AgentCancelled { .. }
            | EventKind::AgentExchanges { .. } => self.apply_agent(&event.kind),
            EventKind::ReplyInterrupted { .. } => {
                self.history.interrupted();
                self.undo.log_history(1);
            }
            EventKind::ModelsUsed(used) => self.models += *used,
            EventKind::FlowCompleted { .. }
            | EventKind::FlowCancelled { .. }
            | EventKind::FlowInterrupted { .. }
            | EventKind::FlowResumed { .. }
            | EventKind::AgentInterrupted { .. }
            | EventKind::AgentResumed { .. }
            | EventKind::RoutingSessionEnded
            | EventKind::Unknown(_) => {}
        }
    }

    fn start_session(&mut self, at: Timestamp) {
        self.session = Session { started: true, started_at: at, ..Session::default() };
        self.stack = Stack::default();
        self.pending = None;
        self.history.clear();
        self.recent_replies = RecentReplies::default();
        self.forget_agents();
        self.started_flows.clear();
        self.flow_fingerprints.clear();
        self.followup = None;
        self.active_loop = None;
        self.undo = UndoLog::default();
    }

    /// Forgets what agents did, but not what they changed before they ended without a result: their next run is told.
    fn forget_agents(&mut self) {
        self.agents.retain(|_, record| {
            let AgentRecord { writes, mut unfinished, .. } = std::mem::take(record);
            unfinished.merge(&writes);
            record.unfinished = unfinished;
            !record.unfinished.is_empty()
        });
    }

    /// The events of reminders.
    fn apply_reminder(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Reminder { name, intent, entities, date_time, kill_on_user_msg } => {
                if let (Some(name), Some(due)) = (name, Timestamp::from_rfc3339(date_time)) {
                    self.reminders.add(Reminder {
                        name: name.clone(),
                        due,
                        intent: intent.clone(),
                        entities: entities.clone(),
                        kill_on_user_msg: *kill_on_user_msg,
                        event_number: self.events,
                    });
                }
            }
            EventKind::CancelReminder { name, intent, entities } => self.reminders.retain(|one| {
                name.as_ref().is_some_and(|name| *name != one.name)
                    || intent.as_ref().is_some_and(|intent| *intent != one.intent)
                    || !entities.is_null() && *entities != one.entities
            }),
            _ => {}
        }
    }

    /// What agents and their tools did.
    fn apply_agent(&mut self, kind: &EventKind) {
        match kind {
            EventKind::ToolExecuted { agent_id: None, .. } => self.turn.effects += 1,
            EventKind::ToolExecuted { agent_id: Some(agent_id), .. } => {
                if let Some(writes) = kind.writes() {
                    self.agents.entry(agent_id.clone()).or_default().writes.merge(&writes);
                }
            }
            EventKind::AgentStarted { flow_id, agent_id, .. } => {
                self.turn.effects += 1;
                let record = self.agents.entry(agent_id.clone()).or_default();
                record.started += 1;
                record.flow_id = Some(flow_id.clone());
                // What a run has changed whose end was not recorded.
                let writes = std::mem::take(&mut record.writes);
                record.unfinished.merge(&writes);
                self.history.agent_task(agent_id, true);
                self.undo.log_history(1);
            }
            EventKind::AgentCompleted { flow_id, agent_id, context_id, .. } => {
                let record = self.agents.entry(agent_id.clone()).or_default();
                record.completed += 1;
                record.completed_in.insert(flow_id.clone());
                (record.writes, record.unfinished) = Default::default();
                if context_id.is_some() {
                    record.context_id.clone_from(context_id);
                }
                self.history.agent_task(agent_id, false);
                self.undo.log_history(1);
            }
            EventKind::AgentCancelled { agent_id, .. } => {
                let record = self.agents.entry(agent_id.clone()).or_default();
                record.cancelled += 1;
                let writes = std::mem::take(&mut record.writes);
                record.unfinished.merge(&writes);
            }
            EventKind::AgentExchanges { agent_id, exchanges } => {
                self.history.exchanges(agent_id, exchanges);
                self.undo.log_history(1);
            }
            _ => {}
        }
    }

    fn user(&mut self, message: &UserMessage, at: Timestamp) {
        self.turns += 1;
        self.session.turns += 1;
        self.turn = TurnState { first: self.session.turns == 1, by_message: true, ..TurnState::default() };
        self.session.last_user_at = at;
        self.history.user(&message.text, at);
        self.recent_replies.user();
        self.reminders.retain(|one| !one.kill_on_user_msg);
        if !message.via.is_empty() {
            self.route = message.via.clone();
        }
        let before = self.latest_message.replace(message.clone());
        self.undo = UndoLog { message: before.map(Box::new), history_entries: 1, open: true, ..UndoLog::default() };
    }

    /// The value that was set for a slot; `None` when it still has its initial value.
    pub fn set_value(&self, slot: &str) -> Option<&Json> {
        self.slots.get(slot)
    }
}
