//! `cannot handle`: the message led to nothing, and the user is told so.

use serde_json::Map;

use super::CommandDecision;
use crate::{
    conversation::{Command, PatternFrame},
    dialogue::{patterns, turn::Turn},
};

/// Once.
pub(super) fn clean(kept: &[Command]) -> CommandDecision {
    let is_kept = kept.iter().any(|command| matches!(command, Command::CannotHandle { .. }));
    if is_kept { CommandDecision::Drop("said once") } else { CommandDecision::Keep }
}

/// Puts the pattern on top. A project without it still answers.
pub(super) fn run(turn: &mut Turn<'_>, reason: &str) {
    let reason = reason.to_owned();
    if !turn.push_pattern(patterns::CANNOT_HANDLE, PatternFrame::CannotHandle { reason }) {
        turn.say("utter_ask_rephrase", &Map::new());
    }
}
