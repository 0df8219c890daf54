//! What happened: a conversation is the fold of its events.
//!
//! Entry: [`Conversation::apply`]. This room never decides anything, never fails on names it does not know, and never sees
//! a driver. What the fold keeps is bounded: the cost of a turn does not grow with the length of the conversation.

mod command;
mod event;
mod history;
#[cfg(test)]
mod json_tests;
mod message;
mod outcome;
mod reminder;
mod said;
mod slots;
mod stack;
pub mod tracker;
mod undo;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

pub use self::{
    command::Command,
    event::{BotKind, BotMessage, Event, EventKind, FilledBy, FlowLocation, RephraseInstruction},
    history::{History, HistoryItem},
    message::{Button, Reply, UserMessage},
    outcome::{
        ActionAnswer, ActionCall, ActionOrigin, ActionOutcome, AgentCall, AgentKind, AgentOutcome, AgentStatus,
        ErrorKind, FlowToolCall, HELD, PendingEffect, SearchCall, SearchOutcome, StepError, ToolResult,
        UnconfirmedCall,
    },
    reminder::{Reminder, Reminders, Trigger, TriggerAction},
    said::Said,
    slots::{SlotState, Slots},
    stack::{AgentFrame, AgentState, CompletedStep, FlowFrameType, Frame, FrameKind, PatternFrame, Position, Stack},
    undo::Undo,
};
use crate::{
    ids::{AgentName, ConversationId, FlowId},
    project::builtin::{LISTEN, REQUEST_INPUT},
    time::Timestamp,
};
pub use segue_lang::usage::{ModelUsage, Usage, round_cost};

/// One conversation as its events left it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    /// Whose it is.
    pub id: ConversationId,
    /// Values that were set; a slot that is not here has its initial value.
    pub slots: Slots,
    /// What is under way, bottom first.
    pub stack: Stack,
    /// The effect that was asked for and has not come back; conversations of older releases do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingEffect>,
    /// The latest utterances, bounded.
    pub history: History,
    /// What was said last, whole: for saying it again, and for the buttons that the user can press.
    #[serde(default, skip_serializing_if = "Said::is_empty")]
    pub said: Said,
    /// The present session.
    pub session: Session,
    /// The newest user message; gone after a restart.
    pub latest_message: Option<UserMessage>,
    /// What agents did so far, by name.
    pub agents: BTreeMap<AgentName, AgentRecord>,
    /// Fingerprints of the flows on the stack, taken when each started.
    pub flow_hashes: BTreeMap<FlowId, u64>,
    /// Flows that were started in this session; they stay in the model's view.
    pub started_flows: BTreeSet<FlowId>,
    /// An action that must run next, set by a `followup` event.
    pub followup: Option<crate::ids::ActionName>,
    /// The loop of the older dialogue engine that an action says is active; only action servers are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_loop: Option<String>,
    /// While true, messages are recorded and nothing is said.
    pub paused: bool,
    /// How many events were applied.
    pub events: u64,
    /// How many user messages were applied.
    pub turns: u64,
    /// The number of the next frame; frame ids are made from it, so that a replay makes the same ones.
    pub next_frame: u64,
    /// How far the present turn is.
    #[serde(default)]
    pub turn: TurnState,
    /// What waits for its time.
    #[serde(default, skip_serializing_if = "Reminders::is_empty")]
    pub reminders: Reminders,
    /// What the newest turn changed.
    #[serde(default, skip_serializing_if = "Undo::is_empty")]
    pub undo: Undo,
    /// What models used so far, in all sessions.
    #[serde(default, skip_serializing_if = "ModelUsage::is_empty")]
    pub models: ModelUsage,
}

/// How far a turn is: enough to go on with it after an effect, and to end one that runs in circles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnState {
    /// Actions, tool calls and agent runs since the user wrote.
    pub acts: u32,
    /// Whether the message was understood; before, only actions that run at every message have run.
    pub understood: bool,
    /// Whether the assistant said anything.
    pub spoke: bool,
    /// Whether its message is the first of the session; a session that begins in the middle of the turn changes nothing here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first: bool,
    /// Whether a message of the user opened it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_message: bool,
}

/// The present session of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Whether one has begun.
    pub started: bool,
    /// Whether it ended for good.
    pub ended: bool,
    /// When it began.
    pub started_at: Timestamp,
    /// When the user last wrote, or something else last began a turn.
    pub last_user_at: Timestamp,
    /// Messages of the user in this session.
    #[serde(default)]
    pub turns: u64,
}

/// What one agent did in this session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentRecord {
    /// The flow that called it last.
    pub flow_id: Option<FlowId>,
    /// How many tasks it began.
    pub started: u32,
    /// How many tasks it completed.
    pub completed: u32,
    /// The flows in which it completed one.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub completed_in: BTreeSet<FlowId>,
    /// How many tasks of it ended otherwise.
    #[serde(default)]
    pub cancelled: u32,
    /// The last text it said; on resume it is told what it had asked.
    pub last_text: Option<String>,
    /// The context id under which a remote agent knows this conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_id: Option<String>,
}

impl AgentRecord {
    /// Whether it completed a task for this flow. A record of an older program counts tasks without the flow of each.
    pub fn has_completed_in(&self, flow: &FlowId) -> bool {
        self.completed_in.contains(flow)
            || self.completed_in.is_empty() && self.completed > 0 && self.flow_id.as_ref() == Some(flow)
    }
}

impl Conversation {
    /// A conversation in which nothing has happened.
    pub fn new(id: ConversationId) -> Self {
        Self {
            id,
            slots: Slots::default(),
            stack: Stack::default(),
            pending: None,
            history: History::default(),
            said: Said::default(),
            session: Session::default(),
            latest_message: None,
            agents: BTreeMap::new(),
            flow_hashes: BTreeMap::new(),
            started_flows: BTreeSet::new(),
            followup: None,
            active_loop: None,
            paused: false,
            events: 0,
            turns: 0,
            next_frame: 0,
            turn: TurnState::default(),
            reminders: Reminders::default(),
            undo: Undo::default(),
            models: ModelUsage::default(),
        }
    }

    /// Folds a stored conversation.
    pub fn fold<'a>(id: ConversationId, events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut conversation = Self::new(id);
        events.into_iter().for_each(|event| conversation.apply(event));
        conversation
    }

    /// Whether an event changes nothing but what is waited for.
    fn only_pending_changes(&self, kind: &EventKind) -> bool {
        matches!(kind, EventKind::Stack { frames, next_frame, .. } if *frames == self.stack && *next_frame == self.next_frame)
    }

    /// Applies one event. This is the only way in which a conversation changes; it never fails: what it does not know, it
    /// counts and otherwise leaves alone.
    pub fn apply(&mut self, event: &Event) {
        // One that only says what is waited for is not counted: earlier releases did not record it, and choices depend on the count.
        self.events += u64::from(!self.only_pending_changes(&event.kind));
        match &event.kind {
            EventKind::User(message) => self.user(message, event.at),
            EventKind::Bot(bot) => {
                if let (Some(agent), false) = (&bot.agent, bot.kind == BotKind::Filler) {
                    self.agents.entry(agent.clone()).or_default().last_text = bot.reply.text.as_deref().map(Into::into);
                }
                self.turn.spoke = true;
                self.said.bot(bot);
                let said = usize::from(self.history.bot(bot, event.at));
                self.undo.said(said);
            }
            EventKind::Slot { name, value, filled_by, reset } => {
                let before = if *reset {
                    self.slots.reset(name, value)
                } else {
                    self.slots.set(name.clone(), value.clone(), *filled_by)
                };
                self.undo.slot(name, before);
            }
            EventKind::ResetSlots => {
                for (name, state) in self.slots.clear() {
                    self.undo.slot(&name, Some(state));
                }
            }
            EventKind::Rewind => self.rewind(),
            EventKind::Undo => self.undo_action(),
            EventKind::SessionStarted => {
                self.session = Session { started: true, started_at: event.at, ..Session::default() };
                self.stack = Stack::default();
                self.pending = None;
                self.history.clear();
                self.said = Said::default();
                self.agents.clear();
                self.started_flows.clear();
                self.flow_hashes.clear();
                self.followup = None;
                self.active_loop = None;
                self.undo = Undo::default();
            }
            EventKind::SessionEnded { .. } => self.session.ended = true,
            EventKind::Restart => {
                let (id, events, turns, frame) = (self.id.clone(), self.events, self.turns, self.next_frame);
                let models = self.models;
                *self = Self { events, turns, next_frame: frame, turn: self.turn, models, ..Self::new(id) };
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
                self.flow_hashes.insert(flow_id.clone(), *fingerprint);
            }
            EventKind::ActionFailed { .. } | EventKind::ActionExecutionRejected { .. } => {
                self.turn.acts += 1;
                self.undo.action();
            }
            EventKind::ActiveLoop { name } => self.active_loop.clone_from(name),
            EventKind::Reported { reported, .. } => {
                // What an action says the user said belongs to the talk, though it begins no turn.
                if let (Some("user"), Some(text)) = (tracker::text(reported, "event"), tracker::text(reported, "text"))
                {
                    self.history.user(&text.into(), event.at);
                    self.undo.said(1);
                }
            }
            EventKind::Action { name } => {
                self.turn.acts += 1;
                // What a turn did is taken back while it runs; at rest nothing is kept for it.
                match name.as_str() {
                    LISTEN | REQUEST_INPUT => self.undo = Undo::default(),
                    _ => self.undo.action(),
                }
            }
            EventKind::ToolExecuted { agent_id: None, .. } => self.turn.acts += 1,
            EventKind::Reminder { name, intent, entities, date_time, kill_on_user_msg } => {
                if let (Some(name), Some(due)) = (name, Timestamp::from_rfc3339(date_time)) {
                    self.reminders.add(Reminder {
                        name: name.clone(),
                        due,
                        intent: intent.clone(),
                        entities: entities.clone(),
                        kill_on_user_msg: *kill_on_user_msg,
                        set: self.events,
                    });
                }
            }
            EventKind::CancelReminder { name, intent, entities } => self.reminders.keep(|one| {
                name.as_ref().is_some_and(|name| *name != one.name)
                    || intent.as_ref().is_some_and(|intent| *intent != one.intent)
                    || !entities.is_null() && *entities != one.entities
            }),
            EventKind::External { trigger } => {
                self.turn = TurnState::default();
                self.undo = Undo::default();
                self.session.last_user_at = event.at;
                if let Some(name) = &trigger.reminder {
                    self.reminders.keep(|one| one.name != *name);
                }
            }
            EventKind::Understood { .. } => self.turn.understood = true,
            EventKind::AgentStarted { flow_id, agent_id, .. } => {
                self.turn.acts += 1;
                let record = self.agents.entry(agent_id.clone()).or_default();
                record.started += 1;
                record.flow_id = Some(flow_id.clone());
                self.history.mark(agent_id, true);
                self.undo.said(1);
            }
            EventKind::AgentCompleted { flow_id, agent_id, context_id, .. } => {
                let record = self.agents.entry(agent_id.clone()).or_default();
                record.completed += 1;
                record.completed_in.insert(flow_id.clone());
                if context_id.is_some() {
                    record.context_id.clone_from(context_id);
                }
                self.history.mark(agent_id, false);
                self.undo.said(1);
            }
            EventKind::AgentCancelled { agent_id, .. } => {
                self.agents.entry(agent_id.clone()).or_default().cancelled += 1;
            }
            EventKind::ReplyInterrupted { .. } => {
                self.history.interrupted();
                self.undo.said(1);
            }
            EventKind::ModelsUsed(used) => self.models += *used,
            EventKind::AgentExchanges { agent_id, exchanges } => {
                self.history.exchanges(agent_id, exchanges);
                self.undo.said(1);
            }
            EventKind::FlowCompleted { .. }
            | EventKind::FlowCancelled { .. }
            | EventKind::FlowInterrupted { .. }
            | EventKind::FlowResumed { .. }
            | EventKind::AgentInterrupted { .. }
            | EventKind::AgentResumed { .. }
            | EventKind::ToolExecuted { .. }
            | EventKind::RoutingSessionEnded
            | EventKind::Unknown(_) => {}
        }
    }

    fn user(&mut self, message: &UserMessage, at: Timestamp) {
        self.turns += 1;
        self.session.turns += 1;
        self.turn = TurnState { first: self.session.turns == 1, by_message: true, ..TurnState::default() };
        self.session.last_user_at = at;
        self.history.user(&message.text, at);
        self.said.user();
        self.reminders.keep(|one| !one.kill_on_user_msg);
        let before = self.latest_message.replace(message.clone());
        self.undo = Undo { message: before.map(Box::new), said: 1, open: true, ..Undo::default() };
    }

    /// The value that was set for a slot; `None` when it still has its initial value.
    pub fn set_value(&self, slot: &str) -> Option<&Json> {
        self.slots.get(slot)
    }
}
