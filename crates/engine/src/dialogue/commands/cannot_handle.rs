//! `cannot handle`: the message cannot be handled, and the user is notified.

use serde_json::Map;

use super::CommandDecision;
use crate::{
    conversation::{Command, PatternFrame},
    dialogue::{advance_context::AdvanceContext, patterns},
};

/// Kept once.
pub(super) fn clean(kept: &[Command]) -> CommandDecision {
    let is_kept = kept.iter().any(|command| matches!(command, Command::CannotHandle { .. }));
    if is_kept { CommandDecision::Drop("the command is kept once") } else { CommandDecision::Keep }
}

/// Pushes the pattern; a project without it sends `utter_ask_rephrase`.
pub(super) fn run(turn: &mut AdvanceContext<'_>, reason: &str) {
    let reason = reason.to_owned();
    if !turn.push_pattern(patterns::CANNOT_HANDLE, PatternFrame::CannotHandle { reason }) {
        turn.say("utter_ask_rephrase", &Map::new());
    }
}
