//! Flow execution: one step after the other, until an effect must be performed or the assistant listens.

use serde_json::Value as Json;

use super::{
    Next, Reason, actions,
    advance_context::{AdvanceContext, StepResult, step_of},
    agent_frame, chains, collect, completed_steps, kept_values, late_confirmations, search, slot_dependencies, slots,
    tool_call, writes,
};
use crate::{
    conversation::{EventKind, FilledBy, FlowFrameType, Frame, FrameKind, PatternFrame, Position},
    ids::{ActionName, FlowId},
    limits,
    project::{ActionReference, Call, Flow, NextStep, Step, StepKind, Target, builtin::LISTEN},
};

/// The next step of a flow.
enum Upcoming<'a> {
    Step(&'a Step),
    End,
    /// The step or its target no longer exists.
    Missing,
    /// No branch holds and there is no `else`.
    NoBranch,
}

impl AdvanceContext<'_> {
    /// Executes steps until the runtime must perform an effect or the turn ends.
    pub(super) fn run_until_effect(&mut self) -> Next {
        loop {
            if self.conversation().session.ended {
                return Next::EndSession;
            }
            if self.rewound || self.protected_frames.is_some_and(|protected| self.stack.len() <= protected) {
                return self.listen();
            }
            self.steps += 1;
            let over_limit =
                self.steps > limits::FLOW_STEPS || self.conversation().turn.effects > limits::ENGINE_TURN_EFFECTS;
            let result = if over_limit { self.trip_breaker() } else { self.step() };
            if let StepResult::Return(next) = result {
                return next;
            }
        }
    }

    /// Ends the turn.
    pub(super) fn listen(&mut self) -> Next {
        late_confirmations::on_pause(self);
        self.emit_in_top_frame(EventKind::Action { name: ActionName::from(LISTEN) });
        Next::Listen
    }

    fn step(&mut self) -> StepResult {
        if let Some(result) = actions::run_followup(self) {
            return result;
        }
        let Some(top) = self.stack.last() else { return StepResult::Return(self.listen()) };
        if search::is_search(top) {
            return search::run_top_search(self);
        }
        if top.at == Position::End {
            return self.end();
        }
        if kept_values::set(self) || slot_dependencies::go_back_if_changed(self) {
            return StepResult::Continue;
        }
        let Some(top) = self.stack.last() else { return StepResult::Continue };
        if top.is_agent() {
            return agent_frame::run_top_agent(self);
        }
        let project = self.project;
        let Some(flow) = project.flow(top.flow_id.as_str()) else { return self.on_missing_step() };
        let begins = top.at == Position::Start;
        match self.upcoming(flow) {
            Upcoming::Step(step) => {
                let action = match &step.kind {
                    StepKind::Action(name @ ActionReference::Template(_)) => actions::resolve(self, name).ok(),
                    _ => None,
                };
                self.add_reason(Reason::Step { flow: flow.id.clone(), step: step.id.clone(), action });
                if let Some(top) = self.stack.last_mut() {
                    top.at = Position::At(step.id.clone());
                    if top.is_flow() {
                        top.continuation_hash = step.continuation_hash;
                    }
                }
                if slot_dependencies::is_recorded(step) {
                    self.record_visit();
                }
                if begins {
                    self.flow_started(flow);
                }
                self.run(flow, step)
            }
            Upcoming::End => self.end(),
            Upcoming::Missing => self.on_missing_step(),
            Upcoming::NoBranch => self.on_no_branch(),
        }
    }

    fn flow_started(&mut self, flow: &Flow) {
        // The context of a collect pattern can be read from its collect step; omitting it keeps the most frequent turn
        // small.
        let context = match self.stack.top().and_then(Frame::pattern) {
            None | Some(PatternFrame::CollectInformation { .. } | PatternFrame::Plain) => Json::Null,
            Some(_) => super::eval_scope::context_json(&self.stack).unwrap_or_default(),
        };
        let (flow_id, fingerprint) = (flow.id.clone(), flow.fingerprint);
        self.emit_in_top_frame(EventKind::FlowStarted { flow_id, fingerprint, context });
    }

    fn upcoming<'f>(&mut self, flow: &'f Flow) -> Upcoming<'f> {
        let Some(top) = self.stack.last() else { return Upcoming::End };
        match &top.at {
            Position::Start => flow.first().map_or(Upcoming::End, Upcoming::Step),
            Position::Before(id) => flow.step(id.as_str()).map_or(Upcoming::Missing, Upcoming::Step),
            Position::End => Upcoming::End,
            Position::At(id) => match flow.step(id.as_str()) {
                Some(step) => self.after(flow, step),
                None => Upcoming::Missing,
            },
        }
    }

    fn after<'f>(&mut self, flow: &'f Flow, step: &'f Step) -> Upcoming<'f> {
        match self.choose(flow, step, &step.next) {
            Some(Target::Step(id)) => flow.step(id.as_str()).map_or(Upcoming::Missing, Upcoming::Step),
            Some(Target::End) => Upcoming::End,
            None => Upcoming::NoBranch,
        }
    }

    /// The target of a step's `next` or `on_error`; `None` when no branch holds and there is no `else`.
    pub(super) fn choose<'f>(&mut self, flow: &Flow, step: &Step, next: &'f NextStep) -> Option<&'f Target> {
        match next {
            NextStep::Go(target) => Some(target),
            NextStep::Branch { branches, otherwise } => {
                let taken = branches.iter().find(|branch| self.holds(&branch.condition));
                let label = match (taken, otherwise) {
                    (Some(branch), _) => branch.condition.text(),
                    (None, Some(_)) => "else",
                    (None, None) => "none",
                };
                self.add_reason(Reason::Branch {
                    flow: flow.id.as_str().to_owned(),
                    step: step.id.as_str().to_owned(),
                    taken: label.to_owned(),
                });
                taken.map(|branch| &branch.target).or(otherwise.as_ref().map(|otherwise| &otherwise.target))
            }
        }
    }

    fn run(&mut self, flow: &Flow, step: &Step) -> StepResult {
        match &step.kind {
            StepKind::Collect(collect) => collect::enter(self, step, collect),
            StepKind::Action(name) => actions::step(self, name),
            StepKind::SetSlots(values) => {
                for (name, value) in values {
                    let value = slots::normalize_for(self.project, name, value.clone());
                    self.set_slot(name, value, FilledBy::Flow);
                }
                StepResult::Continue
            }
            StepKind::Call(Call::Flow(child)) => self.call(child),
            StepKind::Call(Call::Agent { agent, exit_if }) => agent_frame::call(self, flow, step, agent, exit_if),
            StepKind::Call(Call::Tool { server, tool, input, .. }) => {
                tool_call::call(self, flow, step, server, tool, input)
            }
            StepKind::Link(target) => self.link(target),
            StepKind::Noop => StepResult::Continue,
        }
    }

    fn call(&mut self, child: &FlowId) -> StepResult {
        let mut frame = self.frame(child, FrameKind::Flow { frame_type: FlowFrameType::Call });
        completed_steps::move_to_callee(self.stack.last_mut(), &mut frame);
        if self.push(frame) { StepResult::Continue } else { self.fail("the calls between flows are nested too deeply") }
    }

    /// Links to a flow: the target is placed below the frame on top, which ends, so that its slots are reset before the
    /// target starts. The same applies to cancelled frames below.
    fn link(&mut self, target: &FlowId) -> StepResult {
        let project = self.project;
        let kind = match project.flow(target.as_str()) {
            Some(flow) if flow.is_pattern() => FrameKind::Pattern { context: PatternFrame::Plain },
            _ => FrameKind::Flow { frame_type: FlowFrameType::Link },
        };
        // A flow that a pattern links to interrupts the active flow, as any other digression does.
        let digresses = matches!(kind, FrameKind::Flow { .. }) && self.stack.last().is_some_and(Frame::is_pattern);
        if digresses {
            // It answers a follow-up question below, which is asked again afterwards.
            let pattern = self.stack.pop();
            chains::drop_follow_up_questions(self);
            self.stack.extend(pattern);
            chains::interrupt_top_chain(self);
        }
        let mut frame = self.frame(target, kind);
        frame.writes = writes::of_top_chain(self);
        if let Some(top) = self.stack.last_mut() {
            top.at = Position::End;
        }
        let active = self.stack.iter().rposition(|frame| frame.at != Position::End);
        self.stack.insert(active.map_or(0, |at| at + 1), frame);
        if self.stack.len() > limits::STACK_FRAMES {
            self.fail("too many flows are active")
        } else {
            StepResult::Continue
        }
    }

    /// Records the step on top as the last visited step. If the flow has looped back to a visited step, the list is cut
    /// there.
    pub(super) fn record_visit(&mut self) {
        let Some(top) = self.stack.last_mut().filter(|frame| frame.is_flow()) else { return };
        let Position::At(step) = &top.at else { return };
        match top.visited_steps.iter().position(|one| one == step) {
            Some(at) if at + 1 < top.visited_steps.len() => {
                top.visited_steps.truncate(at + 1);
                completed_steps::forget_after_loop(top);
            }
            Some(_) => {}
            None => top.visited_steps.push(step.clone()),
        }
    }

    /// Handles a step of which no branch holds and that has no `else`. The loader rejects such steps.
    fn on_no_branch(&mut self) -> StepResult {
        if self.stack.last().is_some_and(Frame::is_pattern) {
            self.add_note("no branch of a pattern holds: the pattern ends");
            self.stack.pop();
            return StepResult::Continue;
        }
        self.fail("no branch of a step holds, and there is no `else`")
    }

    /// Handles a frame whose step or flow no longer exists in the project. A pattern starts again. A flow ends and the
    /// user is notified; the rest of the stack is kept.
    fn on_missing_step(&mut self) -> StepResult {
        let Some(top) = self.stack.last() else { return StepResult::Continue };
        let (flow, step) = (top.flow_id.clone(), step_of(top).cloned());
        let known = self.project.flow(flow.as_str()).is_some();
        let is_pattern = top.is_pattern();
        let step = step.map_or_else(|| "START".to_owned(), |step| step.to_string());
        self.add_note(format!("`{flow}` is at `{step}`, which does not exist or has no next step in this project"));
        if is_pattern {
            if known && !matches!(top_at(self), Some(Position::Start | Position::Before(_))) && !self.breaker_tripped {
                if let Some(top) = self.stack.last_mut() {
                    top.at = Position::Start;
                }
                return StepResult::Continue;
            }
            self.stack.pop();
            return StepResult::Continue;
        }
        chains::remove_chain(self, "the flow changed");
        self.say("utter_inform_code_change", &serde_json::Map::new());
        StepResult::Continue
    }
}

fn top_at<'t>(turn: &'t AdvanceContext<'_>) -> Option<&'t Position> {
    turn.stack.last().map(|frame| &frame.at)
}
