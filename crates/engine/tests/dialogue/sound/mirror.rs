//! The fold, watched from two sides: the events as they are written and read again, and a small account of our own of what
//! each event means.

use std::collections::{BTreeMap, BTreeSet};

use segue_engine::conversation::{Conversation, Event, EventKind, Frame};
use serde_json::Value as Json;

use super::{Ledger, Turn, Verdict};

/// What the events say, by our own account.
pub(super) struct Mirror {
    /// The engine's fold of the events as they were read back from their text.
    read: Conversation,
    slots: Values,
    stack: Vec<Frame>,
    events: u64,
    turns: u64,
    session_turns: u64,
    /// The number of the newest frame, as the newest event about the stack said it.
    next_frame: u64,
    session_ended: bool,
    paused: bool,
    followup: Option<String>,
    acts: u32,
    spoke: bool,
    started: BTreeSet<String>,
    hashes: BTreeMap<String, u64>,
    /// Tasks begun and completed, by agent.
    agents: BTreeMap<String, (u32, u32)>,
    said: Option<String>,
    /// Slots, stack and the last thing said as the newest user message found them.
    before_message: Option<Box<Before>>,
    /// Slots and the last thing said as the newest action found them.
    before_action: Option<Box<(Values, Option<String>)>>,
}

/// Slots, stack and the last thing said.
type Before = (Values, Vec<Frame>, Option<String>);

/// Values of slots, and whether they were set since their last reset.
type Values = BTreeMap<String, (Json, bool)>;

impl Mirror {
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
            acts: 0,
            spoke: false,
            started: BTreeSet::new(),
            hashes: BTreeMap::new(),
            agents: BTreeMap::new(),
            said: None,
            before_message: None,
            before_action: None,
        }
    }

    fn forget_session(&mut self) {
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
        // One that only says what is waited for does not count.
        let is_counted = !matches!(kind, EventKind::Stack { frames, next_frame, .. } if self.stack == frames.frames() && self.next_frame == *next_frame);
        self.events += u64::from(is_counted);
        match kind {
            EventKind::User(_) => {
                self.turns += 1;
                self.session_turns += 1;
                (self.acts, self.spoke) = (0, false);
                self.before_action = None;
                self.before_message = Some(Box::new((self.slots.clone(), self.stack.clone(), self.said.clone())));
            }
            EventKind::External { .. } => {
                (self.acts, self.spoke) = (0, false);
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
            EventKind::SessionStarted => self.forget_session(),
            EventKind::SessionEnded { .. } => self.session_ended = true,
            EventKind::Restart => {
                self.forget_session();
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
                self.acts += 1;
                // Between turns there is nothing to take back.
                if self.before_message.is_some() {
                    self.before_action = Some(Box::new((self.slots.clone(), self.said.clone())));
                }
            }
            EventKind::ActionFailed { .. } | EventKind::ActionExecutionRejected { .. } => {
                self.acts += 1;
                if self.before_message.is_some() {
                    self.before_action = Some(Box::new((self.slots.clone(), self.said.clone())));
                }
            }
            EventKind::ToolExecuted { agent_id: None, .. } => self.acts += 1,
            EventKind::AgentStarted { agent_id, .. } => {
                self.acts += 1;
                self.agents.entry(agent_id.to_string()).or_default().0 += 1;
            }
            EventKind::AgentCompleted { agent_id, .. } => {
                self.agents.entry(agent_id.to_string()).or_default().1 += 1;
            }
            _ => {}
        }
    }
}

/// A conversation is stored as the text of its events; what is not in it, a restart of the program would forget.
pub(super) fn the_events_are_the_whole_truth(ledger: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    for event in turn.events {
        let text = serde_json::to_string(event).map_err(|error| error.to_string())?;
        let read = Event::from_json(&text).map_err(|error| format!("{error}: {text}"))?;
        let again = serde_json::to_string(&read).map_err(|error| error.to_string())?;
        if again != text {
            return Err(format!("an event is written differently after it was read: {text} became {again}"));
        }
        ledger.mirror.read.apply(&read);
    }
    same("the conversation", &ledger.mirror.read, &turn.driver.conversation)
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, ours: &T, engines: &T) -> Verdict {
    if ours == engines { Ok(()) } else { Err(format!("{what} is {engines:?}, but the events make it {ours:?}")) }
}

/// Two folds by the same code agree even when it is wrong: so a second account of the events must come to the same values.
pub(super) fn the_fold_says_what_happened(ledger: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    let mirror = &mut ledger.mirror;
    turn.events.iter().for_each(|event| mirror.take(&event.kind));
    let is = &turn.driver.conversation;
    let slots = is.slots.iter().map(|(name, slot)| (name.to_string(), (slot.value.clone(), slot.has_been_set)));
    same("the slots", &mirror.slots, &slots.collect())?;
    same("the stack", &mirror.stack, &is.stack.frames().to_vec())?;
    let counted = (is.events, is.turns, is.session.turns, is.turn.acts);
    same("the counting", &(mirror.events, mirror.turns, mirror.session_turns, mirror.acts), &counted)?;
    let marks = (is.session.ended, is.paused, is.turn.spoke);
    same("ended, paused, spoke", &(mirror.session_ended, mirror.paused, mirror.spoke), &marks)?;
    same("the followup", &mirror.followup, &is.followup.as_ref().map(ToString::to_string))?;
    same("the started flows", &mirror.started, &is.started_flows.iter().map(ToString::to_string).collect())?;
    same(
        "the fingerprints",
        &mirror.hashes,
        &is.flow_hashes.iter().map(|(id, hash)| (id.to_string(), *hash)).collect(),
    )?;
    let of = |(name, record): (&_, &segue_engine::conversation::AgentRecord)| {
        let name: &segue_engine::ids::AgentName = name;
        (record.started + record.completed > 0).then(|| (name.to_string(), (record.started, record.completed)))
    };
    same("the agents", &mirror.agents, &is.agents.iter().filter_map(of).collect())?;
    let last = is.history.iter().rev().find_map(|item| match item {
        segue_engine::conversation::HistoryItem::Bot { text, .. } => Some(text.to_string()),
        _ => None,
    });
    match (&mirror.said, &last) {
        // Button titles stand behind the text.
        (Some(said), Some(last)) if last.starts_with(said.as_str()) => Ok(()),
        // It may have left the history, which is bounded.
        (Some(_), None) | (None, None) => Ok(()),
        _ => Err(format!("the last thing said was {:?}, the history has {last:?}", mirror.said)),
    }
}
