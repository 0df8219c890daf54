//! `start flow`: begins a flow, or resumes one that lies below.

use super::{Source, Verdict};
use crate::{
    conversation::Command,
    dialogue::{clean::Scene, interrupt, turn::Turn},
    ids::FlowId,
};

/// Only known flows of the author whose guard holds; not the one on top, unless the user is asked what to go on with.
pub(super) fn clean(turn: &mut Turn<'_>, scene: &Scene, kept: &[Command], flow: &FlowId, source: Source) -> Verdict {
    let project = turn.project;
    let Some(definition) = project.flow(flow.as_str()) else { return Verdict::Drop("there is no such flow") };
    if definition.is_pattern() {
        return Verdict::Drop("patterns are not started by name");
    }
    if kept.iter().any(|command| matches!(command, Command::StartFlow { flow: other } if other == flow)) {
        return Verdict::Drop("the flow is started once");
    }
    if scene.active.contains(flow) && !scene.asks_to_continue {
        return Verdict::Drop("the flow is under way already");
    }
    // An intent message starts a flow whatever its guard says (dialogue.md 2.9).
    match &definition.guard {
        Some(guard) if !matches!(source, Source::Intent | Source::External) && !turn.holds(guard) => {
            Verdict::Drop("the flow's guard does not hold")
        }
        _ => Verdict::Keep,
    }
}

/// Puts it on top.
pub(super) fn run(turn: &mut Turn<'_>, scene: &Scene, flow: &FlowId) {
    interrupt::start(turn, flow, scene.base.is_some());
}
