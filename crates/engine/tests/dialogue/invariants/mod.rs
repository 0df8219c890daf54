//! Invariants: what must hold after every turn of every conversation, for every project and every user.
//!
//! Each invariant is a function with its reason. They are written from the description of the format, not from the
//! engine, and use only the project, the inputs and the events. [`InvariantChecker::turn`] checks them after every
//! turn, [`check_conversation`] at the end. Random conversations and the written cases are both checked.

mod agents;
mod commands;
mod flows;
mod idle_state;
mod reference;
mod replay;
mod responses;
mod slots;
mod whole_conversation;

use segue_engine::{
    conversation::{Command, Event, EventKind, Frame},
    dialogue::{InputKind, Next, Reason},
    project::Project,
};

pub(crate) use self::whole_conversation::{check_cancellable, check_completable, check_conversation};
use self::{agents::Agents, flows::Flows, replay::ReferenceState, slots::Slots};
use crate::driver::{Driver, InputRecord};

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The name of the invariant's function.
    pub(crate) rule: &'static str,
    pub(crate) message: String,
}

/// The result of an invariant: the error is a description of the violation.
type CheckResult = Result<(), String>;

/// One turn, for the invariants.
struct TurnRecord<'a> {
    driver: &'a Driver,
    /// Its inputs, the first input first.
    inputs: &'a [InputRecord],
    /// All its events.
    events: &'a [Event],
    /// The index of its first event.
    first: usize,
}

impl TurnRecord<'_> {
    fn project(&self) -> &Project {
        &self.driver.project
    }

    /// The stack at the end of the turn.
    fn rest(&self) -> &[Frame] {
        self.driver.conversation.stack.frames()
    }

    /// Whether the turn is over; a turn that the next message interrupts is not.
    fn is_over(&self) -> bool {
        matches!(self.driver.next, Next::Listen | Next::EndSession)
    }

    /// Whether the assistant listens: not after the end of a session, nor during a turn.
    fn listens(&self) -> bool {
        self.driver.next == Next::Listen
    }

    /// Whether the budget of the turn was exhausted, or the turn was interrupted: then the frames below stay as they are.
    fn is_exhausted(&self) -> bool {
        let stops = |kind: &InputKind| matches!(kind, InputKind::BudgetExhausted { .. } | InputKind::Interrupted);
        self.inputs.iter().any(|record| stops(&record.input.kind))
    }

    fn reasons(&self) -> impl Iterator<Item = &Reason> {
        self.inputs.iter().flat_map(|record| &record.reasons)
    }

    fn notes(&self, part: &str) -> bool {
        self.reasons().any(|why| matches!(why, Reason::Note { text } if text.contains(part)))
    }

    /// The events of one input.
    fn events_of(&self, record: &InputRecord) -> &[Event] {
        &self.driver.all[record.events.clone()]
    }

    fn has(&self, wanted: impl Fn(&EventKind) -> bool) -> bool {
        self.events.iter().any(|event| wanted(&event.kind))
    }

    /// The commands of the message with their source, and the input that contains them.
    fn understood(&self) -> Option<(&InputRecord, &[Command], &str)> {
        self.inputs.iter().find_map(|record| {
            self.events_of(record).iter().find_map(|event| match &event.kind {
                EventKind::Understood { commands, source } => Some((record, commands.as_slice(), source.as_str())),
                _ => None,
            })
        })
    }

    /// Whether the user was notified that a flow had changed.
    fn is_notified_of_change(&self) -> bool {
        self.has(|kind| match kind {
            EventKind::FlowStarted { flow_id, .. } => *flow_id == "pattern_code_change",
            EventKind::Bot(bot) => bot.utter_action.as_deref() == Some("utter_inform_code_change"),
            _ => false,
        })
    }

    /// Whether the conversation was reset after the message was understood; an action can do that.
    fn resets_after_understanding(&self) -> bool {
        let after = self.events.iter().skip_while(|event| !matches!(event.kind, EventKind::Understood { .. }));
        let mut after = after.map(|event| &event.kind);
        after.any(|kind| matches!(kind, EventKind::Restart | EventKind::SessionStarted))
    }

    /// Whether something was reverted by `rewind` or `undo`.
    fn is_reverted(&self) -> bool {
        self.has(|kind| matches!(kind, EventKind::Rewind | EventKind::Undo))
    }

    /// The stack before the commands ran.
    fn judged(&self, record: &InputRecord) -> Vec<Frame> {
        let fresh = begins_session(self.events_of(record));
        if fresh { Vec::new() } else { record.before.clone() }
    }

    /// Whether the message interrupted the previous turn.
    fn interrupts_turn(&self) -> bool {
        let at = self.driver.log.len() - self.inputs.len();
        at.checked_sub(1).is_some_and(|at| !matches!(self.driver.log[at].next, Next::Listen | Next::EndSession))
    }
}

/// Whether a session started before the message was understood.
fn begins_session(events: &[Event]) -> bool {
    let mut before = events.iter().take_while(|event| !matches!(event.kind, EventKind::Understood { .. }));
    before.any(|event| matches!(event.kind, EventKind::SessionStarted))
}

type Rule = (&'static str, fn(&mut InvariantChecker, &TurnRecord<'_>) -> CheckResult);

macro_rules! rules {
    ($($module:ident::$name:ident),* $(,)?) => { [$((stringify!($name), $module::$name as fn(&mut InvariantChecker, &TurnRecord<'_>) -> CheckResult)),*] };
}

/// All invariants of a turn, in the order of their checks.
const RULES: &[Rule] = &rules![
    idle_state::turn_ends_within_limits,
    replay::events_determine_the_conversation,
    replay::state_matches_the_reference,
    idle_state::frame_ids_are_unique,
    slots::slot_changes_have_a_cause,
    slots::given_values_are_applied,
    slots::fill_policy_is_respected,
    slots::ended_flow_resets_its_slots,
    slots::rejected_values_do_not_pass,
    flows::flow_events_are_paired,
    flows::started_flows_end_or_stay_on_the_stack,
    agents::agent_events_are_paired,
    agents::agent_states_match_the_stack,
    idle_state::ended_frames_are_removed,
    idle_state::open_stack_waits_for_the_user,
    idle_state::nothing_is_pending_on_an_empty_stack,
    idle_state::one_correction_and_validation_at_a_time,
    responses::open_question_is_the_last_reply,
    responses::failure_is_reported_once,
    responses::every_message_is_answered,
    responses::paused_conversation_is_silent,
    commands::start_flow_is_executed_or_explained,
    commands::guards_prevent_starts,
    commands::force_slot_filling_accepts_only_the_answer,
    commands::started_flow_is_on_top,
    commands::cancelled_flow_is_removed,
    commands::interrupted_flow_resumes_only_after_a_question,
    commands::waiting_agent_gets_the_message,
];

/// Checks the invariants; keeps what they need from turn to turn.
pub(crate) struct InvariantChecker {
    reference_state: ReferenceState,
    slots: Slots,
    flows: Flows,
    agents: Agents,
    /// The greatest frame number so far.
    frames: u64,
    /// Number of checked inputs.
    seen: usize,
}

impl InvariantChecker {
    pub(crate) fn new(driver: &Driver) -> Self {
        Self {
            reference_state: ReferenceState::new(&driver.conversation),
            slots: Slots::default(),
            flows: Flows::default(),
            agents: Agents::default(),
            frames: 0,
            seen: driver.log.len(),
        }
    }

    /// Checks the turn since the last check.
    pub(crate) fn turn(&mut self, driver: &Driver) -> Result<(), Violation> {
        let inputs = &driver.log[self.seen..];
        let Some(first) = inputs.first() else { return Ok(()) };
        let first = first.events.start;
        let turn = TurnRecord { driver, inputs, events: &driver.all[first..], first };
        for (rule, check) in RULES {
            check(self, &turn).map_err(|message| Violation { rule, message })?;
        }
        self.seen = driver.log.len();
        Ok(())
    }
}
