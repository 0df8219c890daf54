//! `action_clarify_flows`: enumerates the names of the candidate flows.

use serde_json::Value as Json;

use crate::{
    conversation::{Frame, PatternFrame},
    dialogue::{advance_context::AdvanceContext, chains::enumerate_names},
    project::builtin::MAX_CLARIFICATION_OPTIONS,
};

/// The number of offered flows when the slot `max_clarification_options` is not set; as in the CALM format.
const DEFAULT_OPTIONS: usize = 3;

/// Fills `context.clarification_options`.
pub(in crate::dialogue) fn run(turn: &mut AdvanceContext<'_>) {
    let most = turn.slot(MAX_CLARIFICATION_OPTIONS).as_f64();
    let most = most.filter(|most| *most >= 1.0).map_or(DEFAULT_OPTIONS, |most| most.min(100.0) as usize);
    let Some(PatternFrame::Clarification { names, .. }) = turn.stack.top().and_then(Frame::pattern) else {
        return turn.add_note("`action_clarify_flows` has nothing to clarify here");
    };
    let quoted: Vec<String> = names.iter().take(most).map(|name| Json::from(&**name).to_string()).collect();
    let options = enumerate_names(turn, &quoted);
    if let Some(PatternFrame::Clarification { clarification_options, .. }) =
        turn.stack.last_mut().and_then(Frame::pattern_mut)
    {
        *clarification_options = options;
    }
}
