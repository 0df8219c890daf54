//! Commands that only lead to a reply: chitchat, search, repeat, skip, human handoff.

use super::CommandDecision;
use crate::{
    conversation::Command,
    dialogue::{advance_context::AdvanceContext, patterns},
    project::{ActionReference, StepKind, builtin::TRIGGER_CHITCHAT},
};

/// Moves chitchat to the front. Without an action that generates small talk, a pattern that triggers it cannot answer.
pub(super) fn clean_chitchat(turn: &AdvanceContext<'_>, kept: &[Command]) -> CommandDecision {
    let project = turn.project;
    let triggers = project.flow(patterns::CHITCHAT).is_some_and(|flow| {
        flow.steps
            .iter()
            .any(|s| matches!(&s.kind, StepKind::Action(ActionReference::Plain(name)) if *name == *TRIGGER_CHITCHAT))
    });
    if triggers && !project.lists_action(TRIGGER_CHITCHAT) {
        let by = Command::CannotHandle { reason: "cannot_handle_chitchat".to_owned() };
        return CommandDecision::Replace(by, "the project has no action that generates small talk");
    }
    clean_once(kept, &Command::ChitChat, CommandDecision::Front)
}

/// Drops a second command of the same kind.
pub(super) fn clean_once(kept: &[Command], command: &Command, verdict: CommandDecision) -> CommandDecision {
    if kept.contains(command) { CommandDecision::Drop("the command is kept once") } else { verdict }
}
