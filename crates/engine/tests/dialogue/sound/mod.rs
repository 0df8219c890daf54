//! What must hold after every turn of every conversation, whatever the project and whatever people do: invariants, each a
//! function of its own with a sentence why. They are written from the format's description, not from the engine, and read
//! nothing but the project, the inputs and the events.
//!
//! Entry: [`Ledger::turn`] after every turn, [`at_the_end`] once. Random conversations and the written cases are both held to them.

mod agents;
mod course;
mod ending;
mod flows;
mod mirror;
mod model;
mod rest;
mod slots;
mod speech;

use segue_engine::{
    conversation::{Command, Event, EventKind, Frame},
    dialogue::{InputKind, Next, Reason},
    project::Project,
};

pub(crate) use self::ending::{at_the_end, way_on, way_out};
use self::{agents::Agents, flows::Flows, mirror::Mirror, slots::Slots};
use crate::driver::{Driver, Taken};

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Breach {
    /// The name of the invariant's function.
    pub(crate) rule: &'static str,
    pub(crate) says: String,
}

/// What an invariant says: nothing, or what is wrong.
type Verdict = Result<(), String>;

/// One turn as the invariants see it.
struct Turn<'a> {
    driver: &'a Driver,
    /// Its inputs, the user's message first.
    taken: &'a [Taken],
    /// All its events.
    events: &'a [Event],
    /// The number of its first event.
    first: usize,
}

impl Turn<'_> {
    fn project(&self) -> &Project {
        &self.driver.project
    }

    /// The stack as the turn left it.
    fn rest(&self) -> &[Frame] {
        self.driver.conversation.stack.frames()
    }

    /// Whether the turn came to its end; one that the next message cuts does not.
    fn is_over(&self) -> bool {
        matches!(self.driver.next, Next::Listen | Next::EndSession)
    }

    /// Whether the assistant listens. Not after the end of a session, nor in the middle of a turn.
    fn listens(&self) -> bool {
        self.driver.next == Next::Listen
    }

    /// Whether the turn's budget was spent: then what lies below is left as it is.
    fn is_exhausted(&self) -> bool {
        self.taken.iter().any(|taken| matches!(taken.input.kind, InputKind::Exhausted { .. }))
    }

    fn why(&self) -> impl Iterator<Item = &Reason> {
        self.taken.iter().flat_map(|taken| &taken.why)
    }

    fn notes(&self, part: &str) -> bool {
        self.why().any(|why| matches!(why, Reason::Note { text } if text.contains(part)))
    }

    /// The events of one of its inputs.
    fn events_of(&self, taken: &Taken) -> &[Event] {
        &self.driver.all[taken.events.clone()]
    }

    fn has(&self, wanted: impl Fn(&EventKind) -> bool) -> bool {
        self.events.iter().any(|event| wanted(&event.kind))
    }

    /// What the message was understood as, and the input that brought it.
    fn understood(&self) -> Option<(&Taken, &[Command], &str)> {
        self.taken.iter().find_map(|taken| {
            self.events_of(taken).iter().find_map(|event| match &event.kind {
                EventKind::Understood { commands, source } => Some((taken, commands.as_slice(), source.as_str())),
                _ => None,
            })
        })
    }

    /// Whether the user was told that a task had changed meanwhile.
    fn is_told_of_change(&self) -> bool {
        self.has(|kind| match kind {
            EventKind::FlowStarted { flow_id, .. } => *flow_id == "pattern_code_change",
            EventKind::Bot(bot) => bot.utter_action.as_deref() == Some("utter_inform_code_change"),
            _ => false,
        })
    }

    /// Whether everything was forgotten after the message was understood: an action can do that.
    fn forgets_it(&self) -> bool {
        let after = self.events.iter().skip_while(|event| !matches!(event.kind, EventKind::Understood { .. }));
        let mut after = after.map(|event| &event.kind);
        after.any(|kind| matches!(kind, EventKind::Restart | EventKind::SessionStarted))
    }

    /// Whether something of it was taken back, by `rewind` or `undo`.
    fn is_undone(&self) -> bool {
        self.has(|kind| matches!(kind, EventKind::Rewind | EventKind::Undo))
    }

    /// The stack on which the commands were judged.
    fn judged(&self, taken: &Taken) -> Vec<Frame> {
        let fresh = begins_session(self.events_of(taken));
        if fresh { Vec::new() } else { taken.before.clone() }
    }

    /// Whether the message found the turn before it still at work.
    fn cuts(&self) -> bool {
        let at = self.driver.log.len() - self.taken.len();
        at.checked_sub(1).is_some_and(|at| !matches!(self.driver.log[at].next, Next::Listen | Next::EndSession))
    }
}

/// Whether a session began before the message was understood; what listens by itself may leave the beginning of one for later.
fn begins_session(events: &[Event]) -> bool {
    let mut before = events.iter().take_while(|event| !matches!(event.kind, EventKind::Understood { .. }));
    before.any(|event| matches!(event.kind, EventKind::SessionStarted))
}

type Rule = (&'static str, fn(&mut Ledger, &Turn<'_>) -> Verdict);

macro_rules! rules {
    ($($room:ident::$name:ident),* $(,)?) => { [$((stringify!($name), $room::$name as fn(&mut Ledger, &Turn<'_>) -> Verdict)),*] };
}

/// Every invariant of a turn, in the order in which they are asked.
const RULES: &[Rule] = &rules![
    rest::the_turn_ends,
    mirror::the_events_are_the_whole_truth,
    mirror::the_fold_says_what_happened,
    rest::frame_ids_are_never_used_twice,
    slots::values_change_for_a_reason,
    slots::what_was_given_is_taken,
    slots::a_slot_is_filled_when_its_author_says,
    slots::a_flow_that_ended_takes_its_values_with_it,
    slots::no_refused_value_gets_past_its_question,
    flows::flows_are_bracketed,
    flows::no_flow_is_left_behind,
    agents::agents_are_bracketed,
    agents::agents_stand_as_the_stack_says,
    rest::nothing_that_is_over_stays,
    rest::somebody_is_waited_for,
    rest::nothing_waits_when_the_stack_is_empty,
    rest::one_correction_at_a_time,
    speech::the_open_question_is_the_last_thing_said,
    speech::a_failure_is_told_once,
    speech::nobody_is_left_without_an_answer,
    speech::a_paused_conversation_is_silent,
    course::a_start_is_followed_or_explained,
    course::a_guard_keeps_its_flow_closed,
    course::a_forced_question_takes_its_answer_only,
    course::what_is_named_comes_to_the_top,
    course::what_is_cancelled_is_gone,
    course::nothing_interrupted_goes_on_by_itself,
    course::an_agent_that_waits_gets_the_message,
];

/// What is remembered from turn to turn.
pub(crate) struct Ledger {
    mirror: Mirror,
    slots: Slots,
    flows: Flows,
    agents: Agents,
    /// The greatest number of a frame so far.
    frames: u64,
    /// Inputs that were looked at.
    seen: usize,
}

impl Ledger {
    pub(crate) fn new(driver: &Driver) -> Self {
        Self {
            mirror: Mirror::new(&driver.conversation),
            slots: Slots::default(),
            flows: Flows::default(),
            agents: Agents::default(),
            frames: 0,
            seen: driver.log.len(),
        }
    }

    /// Looks at the turn since the last look.
    pub(crate) fn turn(&mut self, driver: &Driver) -> Result<(), Breach> {
        let taken = &driver.log[self.seen..];
        let Some(first) = taken.first() else { return Ok(()) };
        let first = first.events.start;
        let turn = Turn { driver, taken, events: &driver.all[first..], first };
        for (rule, check) in RULES {
            check(self, &turn).map_err(|says| Breach { rule, says })?;
        }
        self.seen = driver.log.len();
        Ok(())
    }
}
