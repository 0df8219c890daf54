//! What the active flows have changed outside the program, so that a failure tells it.
//!
//! Each flow's frame contains the writes of its own steps, of its agents and of the flows it called. A flow that fails after a write, or
//! with one whose outcome is not known, has another pattern than one that changed nothing: its user must not simply try again.

use serde_json::{Map, Value as Json};

use super::{
    advance_context::AdvanceContext,
    chains, patterns,
    response::{DONE_BEFORE_CANCELLATION, INTERNAL_ERROR, OUTCOME_UNKNOWN, PARTLY_DONE},
};
use crate::{
    conversation::{ErrorKind, Frame, Writes},
    ids::AgentName,
};

/// Adds the writes of an event to the topmost flow.
pub(super) fn note(turn: &mut AdvanceContext<'_>, writes: Option<Writes>) {
    let Some(writes) = writes else { return };
    if let Some(frame) = turn.stack.iter_mut().rev().find(|frame| frame.is_flow()) {
        frame.writes.merge(&writes);
    }
}

/// Adds the writes of a frame that ended to the frame that called it.
pub(super) fn move_to_caller(caller: Option<&mut Frame>, ended: &Frame) {
    if let Some(caller) = caller {
        caller.writes.merge(&ended.writes);
    }
}

/// The writes of the flows of the topmost chain.
pub(super) fn of_top_chain(turn: &AdvanceContext<'_>) -> Writes {
    let base = chains::top_base(&turn.stack).unwrap_or(0);
    of_all(turn.stack.get(base..).unwrap_or_default())
}

/// The writes of these frames.
pub(super) fn of_all<'f>(frames: impl IntoIterator<Item = &'f Frame>) -> Writes {
    let mut writes = Writes::default();
    frames.into_iter().for_each(|frame| writes.merge(&frame.writes));
    writes
}

/// The writes of the current task of an agent.
pub(super) fn of_agent(turn: &AdvanceContext<'_>, agent: &AgentName) -> Writes {
    turn.conversation().agents.get(agent).map(|record| record.writes.clone()).unwrap_or_default()
}

/// The pattern of a failure and its response, for projects without the pattern. The names of what was changed are added to `info`.
pub(super) fn pattern(kind: ErrorKind, writes: &Writes, info: &mut Map<String, Json>) -> (&'static str, &'static str) {
    info.extend(names(writes));
    match kind {
        ErrorKind::Unknown => (patterns::OUTCOME_UNKNOWN, OUTCOME_UNKNOWN),
        _ if !writes.in_doubt.is_empty() => (patterns::OUTCOME_UNKNOWN, OUTCOME_UNKNOWN),
        _ if !writes.done.is_empty() => (patterns::PARTLY_DONE, PARTLY_DONE),
        ErrorKind::Failed | ErrorKind::PartlyDone => (patterns::INTERNAL_ERROR, INTERNAL_ERROR),
    }
}

/// The names of what was changed, as values of responses: `done` and `in_doubt`, each only if there are any.
pub(super) fn names(writes: &Writes) -> Map<String, Json> {
    let lists = [("done", writes.done_names()), ("in_doubt", writes.in_doubt_names())];
    lists
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(key, names)| (key.to_owned(), names.into()))
        .collect()
}

/// Tells the user what flows that are cancelled have changed: to stop them does not undo it.
pub(super) fn tell_cancelled(turn: &mut AdvanceContext<'_>, writes: &Writes) {
    if !writes.is_empty() {
        turn.say(DONE_BEFORE_CANCELLATION, &names(writes));
    }
}
