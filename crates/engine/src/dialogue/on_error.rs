//! Failed steps: the flow follows `on_error` if it is set; otherwise it ends with one error response.

use serde_json::{Map, Value as Json};

use super::{Reason, advance_context::AdvanceContext, chains, rejections, writes};
use crate::{
    conversation::{ErrorKind, EventKind, Position, StepError},
    project::{Flow, Step, Target},
};

/// Whether an event reports an effect whose outcome is not known.
pub(super) fn is_in_doubt(kind: &EventKind) -> bool {
    match kind {
        EventKind::ToolExecuted { status, .. } => status == "unknown",
        EventKind::ActionFailed { error, .. } => error.kind == ErrorKind::Unknown,
        _ => false,
    }
}

impl<'a> AdvanceContext<'a> {
    /// Handles the failure of the step on top: the nearest `on_error` of the chain applies, otherwise the flow ends
    /// with `info` for the pattern. An unknown outcome has a pattern of its own, because a user who reads of a failure
    /// tries again.
    pub(super) fn step_failed(&mut self, because: &str, error: StepError, mut info: Map<String, Json>) {
        if self.handle_by_on_error(&error) {
            return;
        }
        info.entry("error_code").or_insert_with(|| error.code.into());
        info.entry("may_have_run").or_insert_with(|| error.may_have_run.into());
        match error.kind {
            ErrorKind::Failed | ErrorKind::PartlyDone => self.fail_with(because, info),
            ErrorKind::Unknown => self.fail_in_doubt(because, info),
        }
    }

    /// Applies the nearest `on_error` of the chain on top, if there is one, and returns whether it did: closes the
    /// frames above that step and continues its flow there. The error is then `context.error` in that flow.
    pub(super) fn handle_by_on_error(&mut self, error: &StepError) -> bool {
        // With an exhausted budget no effect is performed, so `on_error` cannot apply.
        if self.protected_frames.is_some() {
            return false;
        }
        let Some((at, flow, step)) = self.on_error_step() else { return false };
        let Some(next) = &step.on_error else { return false };
        while self.stack.len() > at + 1 {
            let Some(frame) = self.stack.pop() else { break };
            writes::move_to_caller(self.stack.get_mut(at), &frame);
            self.close_frame(&frame, "a step of it failed");
            rejections::empty_unchecked_slot(self, &frame);
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
        self.add_reason(Reason::Note {
            text: format!("`{}` of `{}` failed ({}), the flow follows `on_error`", step.id, flow.id, error.code),
        });
        if let Some(frame) = self.stack.last_mut() {
            frame.at = position;
        }
        true
    }

    /// The topmost frame of the chain whose current step has `on_error`.
    fn on_error_step(&self) -> Option<(usize, &'a Flow, &'a Step)> {
        let project = self.project;
        let base = chains::top_base(&self.stack).unwrap_or(0);
        self.stack.iter().enumerate().skip(base).rev().find_map(|(at, frame)| {
            let Position::At(step) = &frame.at else { return None };
            if frame.is_agent() {
                return None; // the calling step is in the frame below
            }
            let flow = project.flow(frame.flow_id.as_str())?;
            let step = flow.step(step.as_str()).filter(|step| step.on_error.is_some())?;
            Some((at, &**flow, step))
        })
    }
}
