//! `action_clarify_flows`: the names of the candidates as an enumeration.

use serde_json::Value as Json;

use crate::{
    conversation::{Frame, PatternFrame},
    dialogue::{interrupt::enumerated, turn::Turn},
    project::builtin::MAX_CLARIFICATION_OPTIONS,
};

/// How many are offered when the slot `max_clarification_options` says nothing; as in the CALM format.
const OPTIONS: usize = 3;

/// Fills `context.clarification_options`.
pub(in crate::dialogue) fn run(turn: &mut Turn<'_>) {
    let most = turn.slot(MAX_CLARIFICATION_OPTIONS).as_f64();
    let most = most.filter(|most| *most >= 1.0).map_or(OPTIONS, |most| most.min(100.0) as usize);
    let top = turn.stack.last_mut().and_then(Frame::pattern_mut);
    let Some(PatternFrame::Clarification { names, clarification_options, .. }) = top else {
        return turn.note("`action_clarify_flows` has nothing to clarify here");
    };
    let quoted: Vec<String> = names.iter().take(most).map(|name| Json::from(&**name).to_string()).collect();
    *clarification_options = enumerated(&quoted);
}
