//! Steps that failed: the flow branches where its author said how, else it ends and the user hears of it once.

use serde_json::{Map, Value as Json};

use super::{Reason, interrupt, rejections, turn::Turn};
use crate::{
    conversation::{ErrorKind, EventKind, Position, StepError},
    project::{Flow, Step, Target},
};

/// Whether an event tells of something of which nobody knows whether it was carried out.
pub(super) fn is_in_doubt(kind: &EventKind) -> bool {
    match kind {
        EventKind::ToolExecuted { status, .. } => status == "unknown",
        EventKind::ActionFailed { error, .. } => error.kind == ErrorKind::Unknown,
        _ => false,
    }
}

impl<'a> Turn<'a> {
    /// The step on top failed: the nearest `on_error` of the chain decides, else the flow ends with `info` for the pattern. What
    /// may have happened is told by a pattern of its own: who hears of a failure tries again.
    pub(super) fn step_failed(&mut self, because: &str, error: StepError, mut info: Map<String, Json>) {
        if self.caught(&error) {
            return;
        }
        info.entry("error_code").or_insert_with(|| error.code.into());
        info.entry("may_have_run").or_insert_with(|| error.may_have_run.into());
        match error.kind {
            ErrorKind::Failed => self.fail_with(because, info),
            ErrorKind::Unknown => self.fail_in_doubt(because, info),
        }
    }

    /// Whether a step of the chain on top says what follows an error; then it does: what stands above that step is taken
    /// down, and its flow goes on there. The error is `context.error` in that flow from now on.
    pub(super) fn caught(&mut self, error: &StepError) -> bool {
        // With the turn's budget spent nothing is performed any more, so nothing may be tried in another way.
        if self.floor.is_some() {
            return false;
        }
        let Some((at, flow, step)) = self.catcher() else { return false };
        let Some(next) = &step.on_error else { return false };
        while self.stack.len() > at + 1 {
            let Some(frame) = self.stack.pop() else { break };
            self.take_down(&frame, "a step of it failed");
            rejections::leave(self, &frame);
        }
        if let Some(frame) = self.stack.last_mut() {
            frame.error = Some(Box::new(error.clone()));
        }
        let target = self.choose(flow, step, next);
        let position = match target {
            Some(Target::Step(id)) => Position::Before(id.clone()),
            Some(Target::End) => Position::End,
            None => return false,
        };
        self.because(Reason::Note {
            text: format!("`{}` of `{}` failed ({}), `on_error` says what follows", step.id, flow.id, error.code),
        });
        if let Some(frame) = self.stack.last_mut() {
            frame.at = position;
        }
        true
    }

    /// The topmost frame of the chain whose step says what follows an error.
    fn catcher(&self) -> Option<(usize, &'a Flow, &'a Step)> {
        let project = self.project;
        let base = interrupt::top_base(&self.stack).unwrap_or(0);
        self.stack.iter().enumerate().skip(base).rev().find_map(|(at, frame)| {
            let Position::At(step) = &frame.at else { return None };
            if frame.is_agent() {
                return None; // it stands at the step that called it, in the frame below
            }
            let flow = project.flow(frame.flow_id.as_str())?;
            let step = flow.step(step.as_str()).filter(|step| step.on_error.is_some())?;
            Some((at, &**flow, step))
        })
    }
}
