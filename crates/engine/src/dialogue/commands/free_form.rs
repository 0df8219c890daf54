//! Commands that are answered in words and change nothing: small talk, knowledge, repeat, skip, a human.

use super::CommandDecision;
use crate::{
    conversation::Command,
    dialogue::{patterns, turn::Turn},
    project::{ActionReference, StepKind, builtin::TRIGGER_CHITCHAT},
};

/// Small talk goes first; a pattern that wants free generation without anything to generate with cannot answer.
pub(super) fn clean_chitchat(turn: &Turn<'_>, kept: &[Command]) -> CommandDecision {
    let project = turn.project;
    let triggers = project.flow(patterns::CHITCHAT).is_some_and(|flow| {
        flow.steps
            .iter()
            .any(|s| matches!(&s.kind, StepKind::Action(ActionReference::Plain(name)) if *name == *TRIGGER_CHITCHAT))
    });
    if triggers && !project.lists_action(TRIGGER_CHITCHAT) {
        let by = Command::CannotHandle { reason: "cannot_handle_chitchat".to_owned() };
        return CommandDecision::Replace(by, "nothing can make up small talk here");
    }
    clean_once(kept, &Command::ChitChat, CommandDecision::Front)
}

/// A second one is dropped.
pub(super) fn clean_once(kept: &[Command], command: &Command, verdict: CommandDecision) -> CommandDecision {
    if kept.contains(command) { CommandDecision::Drop("said once") } else { verdict }
}
