//! The state of a conversation, checked in two ways: against the state of serialised events, and against an independent
//! computation.

use std::collections::{BTreeMap, BTreeSet};

use segue_engine::conversation::{Conversation, Event, EventKind, Frame};
use serde_json::Value as Json;

use super::{CheckResult, InvariantChecker, TurnRecord};

/// An independent computation of the state from the events.
pub(super) struct ReferenceState {
    /// The engine's state of the serialised and parsed events.
    read: Conversation,
    slots: Values,
    stack: Vec<Frame>,
    events: u64,
    turns: u64,
    session_turns: u64,
    /// The number of the newest frame according to the newest stack event.
    next_frame: u64,
    session_ended: bool,
    paused: bool,
    followup: Option<String>,
    effects: u32,
    spoke: bool,
    started: BTreeSet<String>,
    hashes: BTreeMap<String, u64>,
    /// Numbers of started and completed tasks, by agent.
    agents: BTreeMap<String, (u32, u32)>,
    said: Option<String>,
    /// Slots, stack and last text before the newest user message.
    before_message: Option<Box<Before>>,
    /// Slots and last text before the newest action.
    before_action: Option<Box<(Values, Option<String>)>>,
}

/// Slots, stack and last text.
type Before = (Values, Vec<Frame>, Option<String>);

/// Values of slots, and whether they were set since their last reset.
type Values = BTreeMap<String, (Json, bool)>;

impl ReferenceState {
    pub(super) fn new(conversation: &Conversation) -> Self {
        Self {
            read: conversation.clone(),
            slots: BTreeMap::new(),
            stack: Vec::new(),
            events: 0,
            next_frame: 0,
            turns: 0,
            session_turns: 0,
            session_ended: false,
            paused: false,
            followup: None,
            effects: 0,
            spoke: false,
            started: BTreeSet::new(),
            hashes: BTreeMap::new(),
            agents: BTreeMap::new(),
            said: None,
            before_message: None,
            before_action: None,
        }
    }

    fn reset_session(&mut self) {
        self.stack.clear();
        self.agents.clear();
        self.started.clear();
        self.hashes.clear();
        self.followup = None;
        self.session_ended = false;
        self.session_turns = 0;
        self.said = None;
        (self.before_message, self.before_action) = (None, None);
    }

    fn take(&mut self, kind: &EventKind) {
        // Changes of the pending effect alone are not counted.
        let is_counted = !matches!(kind, EventKind::Stack { frames, next_frame, .. } if self.stack == frames.frames() && self.next_frame == *next_frame);
        self.events += u64::from(is_counted);
        match kind {
            EventKind::User(_) => {
                self.turns += 1;
                self.session_turns += 1;
                (self.effects, self.spoke) = (0, false);
                self.before_action = None;
                self.before_message = Some(Box::new((self.slots.clone(), self.stack.clone(), self.said.clone())));
            }
            EventKind::External { .. } => {
                (self.effects, self.spoke) = (0, false);
                (self.before_message, self.before_action) = (None, None);
            }
            EventKind::Rewind => {
                self.before_action = None;
                if let Some(before) = self.before_message.take() {
                    (self.slots, self.stack, self.said) = *before;
                }
            }
            EventKind::Undo => {
                if let Some(before) = self.before_action.take() {
                    (self.slots, self.said) = *before;
                }
            }
            EventKind::Bot(bot) => {
                self.spoke = true;
                if bot.reply.text.is_some() {
                    self.said = bot.reply.text.as_deref().map(str::to_owned);
                }
            }
            EventKind::Slot { name, value, reset, .. } => {
                self.slots.insert(name.to_string(), (value.clone(), !reset));
            }
            EventKind::ResetSlots => self.slots.clear(),
            EventKind::SessionStarted => self.reset_session(),
            EventKind::SessionEnded { .. } => self.session_ended = true,
            EventKind::Restart => {
                self.reset_session();
                self.slots.clear();
                self.paused = false;
            }
            EventKind::Pause => self.paused = true,
            EventKind::Resume => self.paused = false,
            EventKind::Followup { name } => self.followup = name.as_ref().map(ToString::to_string),
            EventKind::Stack { frames, next_frame, .. } => {
                frames.frames().clone_into(&mut self.stack);
                self.next_frame = *next_frame;
            }
            EventKind::FlowStarted { flow_id, fingerprint, .. } => {
                self.started.insert(flow_id.to_string());
                self.hashes.insert(flow_id.to_string(), *fingerprint);
            }
            EventKind::Action { .. } => {
                self.effects += 1;
                // Between turns nothing can be reverted.
                if self.before_message.is_some() {
                    self.before_action = Some(Box::new((self.slots.clone(), self.said.clone())));
                }
            }
            EventKind::ActionFailed { .. } | EventKind::ActionExecutionRejected { .. } => {
                self.effects += 1;
                if self.before_message.is_some() {
                    self.before_action = Some(Box::new((self.slots.clone(), self.said.clone())));
                }
            }
            EventKind::ToolExecuted { agent_id: None, .. } => self.effects += 1,
            EventKind::AgentStarted { agent_id, .. } => {
                self.effects += 1;
                self.agents.entry(agent_id.to_string()).or_default().0 += 1;
            }
            EventKind::AgentCompleted { agent_id, .. } => {
                self.agents.entry(agent_id.to_string()).or_default().1 += 1;
            }
            _ => {}
        }
    }
}

/// The serialised events determine the conversation: a restart of the program loads nothing else.
pub(super) fn events_determine_the_conversation(checker: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
    for event in turn.events {
        let text = serde_json::to_string(event).map_err(|error| error.to_string())?;
        let read = Event::from_json(&text).map_err(|error| format!("{error}: {text}"))?;
        let again = serde_json::to_string(&read).map_err(|error| error.to_string())?;
        if again != text {
            return Err(format!("an event is written differently after it was read: {text} became {again}"));
        }
        checker.reference_state.read.apply(&read);
    }
    same("the conversation", &checker.reference_state.read, &turn.driver.conversation)
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, ours: &T, engines: &T) -> CheckResult {
    if ours == engines { Ok(()) } else { Err(format!("{what} is {engines:?}, but the events make it {ours:?}")) }
}

/// The state equals that of an independent computation: two computations by the same code would agree even if it were
/// wrong.
pub(super) fn state_matches_the_reference(checker: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
    let reference_state = &mut checker.reference_state;
    turn.events.iter().for_each(|event| reference_state.take(&event.kind));
    let is = &turn.driver.conversation;
    let slots = is.slots.iter().map(|(name, slot)| (name.to_string(), (slot.value.clone(), slot.has_been_set)));
    same("the slots", &reference_state.slots, &slots.collect())?;
    same("the stack", &reference_state.stack, &is.stack.frames().to_vec())?;
    let counted = (is.events, is.turns, is.session.turns, is.turn.effects);
    same(
        "the counting",
        &(reference_state.events, reference_state.turns, reference_state.session_turns, reference_state.effects),
        &counted,
    )?;
    let marks = (is.session.ended, is.paused, is.turn.spoke);
    same(
        "ended, paused, spoke",
        &(reference_state.session_ended, reference_state.paused, reference_state.spoke),
        &marks,
    )?;
    same("the followup", &reference_state.followup, &is.followup.as_ref().map(ToString::to_string))?;
    same("the started flows", &reference_state.started, &is.started_flows.iter().map(ToString::to_string).collect())?;
    same(
        "the fingerprints",
        &reference_state.hashes,
        &is.flow_fingerprints.iter().map(|(id, hash)| (id.to_string(), *hash)).collect(),
    )?;
    let of = |(name, record): (&_, &segue_engine::conversation::AgentRecord)| {
        let name: &segue_engine::ids::AgentName = name;
        (record.started + record.completed > 0).then(|| (name.to_string(), (record.started, record.completed)))
    };
    same("the agents", &reference_state.agents, &is.agents.iter().filter_map(of).collect())?;
    let last = is.history.iter().rev().find_map(|item| match item {
        segue_engine::conversation::HistoryItem::Bot { text, .. } => Some(text.to_string()),
        _ => None,
    });
    match (&reference_state.said, &last) {
        // Button titles follow the text.
        (Some(said), Some(last)) if last.starts_with(said.as_str()) => Ok(()),
        // It may have been dropped from the bounded history.
        (Some(_), None) | (None, None) => Ok(()),
        _ => Err(format!("the last thing said was {:?}, the history has {last:?}", reference_state.said)),
    }
}
