//! `action_clarify_flows`: the names of the candidates as an enumeration.

use serde_json::Value as Json;

use crate::{
    conversation::{Frame, FrameKind, PatternFrame},
    dialogue::{interrupt::enumerated, turn::Turn},
};

/// How many are offered when the slot `max_clarification_options` says nothing; as in the CALM format (dialogue.md 5.8).
const OPTIONS: usize = 3;

/// Fills `context.clarification_options`.
pub(super) fn run(turn: &mut Turn<'_>) {
    let most = turn.slot("max_clarification_options").as_f64();
    let most = most.filter(|most| *most >= 1.0).map_or(OPTIONS, |most| most.min(100.0) as usize);
    let options = match turn.stack.last_mut() {
        Some(Frame {
            kind: FrameKind::Pattern { context: PatternFrame::Clarification { names, clarification_options, .. } },
            ..
        }) => {
            let quoted: Vec<String> = names.iter().take(most).map(|name| Json::from(&**name).to_string()).collect();
            *clarification_options = enumerated(&quoted);
            Ok(())
        }
        _ => Err(()),
    };
    if options.is_err() {
        turn.note("`action_clarify_flows` has nothing to clarify here");
    }
}
