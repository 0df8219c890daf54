//! Walking flows: one step after the other, until something must be performed or the assistant listens.

use serde_json::Value as Json;

use super::{
    Next, Reason, actions, agent_frame, collect, interrupt, rerun, search, slots, tool_call,
    turn::{Turn, Walk, step_of},
    walked,
};
use crate::{
    conversation::{EventKind, FilledBy, FlowFrameType, Frame, FrameKind, PatternFrame, Position},
    ids::{ActionName, FlowId},
    limits,
    project::{Call, Flow, NextStep, Step, StepKind, Target, builtin::LISTEN},
};

/// What comes next in a flow.
enum Upcoming<'a> {
    Step(&'a Step),
    End,
    /// The step the frame stands at is no longer there.
    Lost,
    /// None of the ways on is open.
    Stuck,
}

impl Turn<'_> {
    /// Walks until something must be done outside.
    pub(super) fn walk(&mut self) -> Next {
        loop {
            if self.conversation().session.ended {
                return Next::EndSession;
            }
            if self.rewound || self.floor.is_some_and(|floor| self.stack.len() <= floor) {
                return self.listen();
            }
            self.steps += 1;
            let too_much = self.steps > limits::FLOW_STEPS || self.conversation().turn.acts > limits::TURN_ACTS;
            let walk = if too_much { self.trip() } else { self.step() };
            if let Walk::Stop(next) = walk {
                return next;
            }
        }
    }

    /// Ends the turn.
    pub(super) fn listen(&mut self) -> Next {
        self.emit_here(EventKind::Action { name: ActionName::from(LISTEN) });
        Next::Listen
    }

    fn step(&mut self) -> Walk {
        if let Some(walk) = actions::followup(self) {
            return walk;
        }
        let Some(top) = self.stack.last() else { return Walk::Stop(self.listen()) };
        if search::is_search(top) {
            return search::on_top(self);
        }
        if top.at == Position::End {
            return self.end();
        }
        if walked::comes_back(self) {
            return Walk::On;
        }
        let Some(top) = self.stack.last() else { return Walk::On };
        if top.is_agent() {
            return agent_frame::on_top(self);
        }
        let project = self.project;
        let Some(flow) = project.flow(top.flow_id.as_str()) else { return self.lost() };
        let begins = top.at == Position::Start;
        match self.upcoming(flow) {
            Upcoming::Step(step) => {
                self.because(Reason::Step { flow: flow.id.clone(), step: step.id.clone() });
                if let Some(top) = self.stack.last_mut() {
                    top.at = Position::At(step.id.clone());
                    if top.is_flow() {
                        top.reach = step.continuation_hash;
                    }
                }
                if walked::matters(step) {
                    self.remember_step();
                }
                if begins {
                    self.flow_started(flow);
                }
                self.run(flow, step)
            }
            Upcoming::End => self.end(),
            Upcoming::Lost => self.lost(),
            Upcoming::Stuck => self.stuck(),
        }
    }

    fn flow_started(&mut self, flow: &Flow) {
        // The context of a question is in its collect step; leaving it out keeps the commonest turn short.
        let context = match self.stack.top().and_then(Frame::pattern) {
            None | Some(PatternFrame::CollectInformation { .. } | PatternFrame::Plain) => Json::Null,
            Some(_) => super::context::facts(&self.stack).unwrap_or_default(),
        };
        let (flow_id, fingerprint) = (flow.id.clone(), flow.fingerprint);
        self.emit_here(EventKind::FlowStarted { flow_id, fingerprint, context });
    }

    fn upcoming<'f>(&mut self, flow: &'f Flow) -> Upcoming<'f> {
        let Some(top) = self.stack.last() else { return Upcoming::End };
        match &top.at {
            Position::Start => flow.first().map_or(Upcoming::End, Upcoming::Step),
            Position::Before(id) => flow.step(id.as_str()).map_or(Upcoming::Lost, Upcoming::Step),
            Position::End => Upcoming::End,
            Position::At(id) => match flow.step(id.as_str()) {
                Some(step) => self.after(flow, step),
                None => Upcoming::Lost,
            },
        }
    }

    fn after<'f>(&mut self, flow: &'f Flow, step: &'f Step) -> Upcoming<'f> {
        match self.choose(flow, step, &step.next) {
            Some(Target::Step(id)) => flow.step(id.as_str()).map_or(Upcoming::Lost, Upcoming::Step),
            Some(Target::End) => Upcoming::End,
            None => Upcoming::Stuck,
        }
    }

    /// Where `next` of a step leads now; `None` when no branch holds and there is no `else`.
    pub(super) fn choose<'f>(&mut self, flow: &Flow, step: &Step, next: &'f NextStep) -> Option<&'f Target> {
        match next {
            NextStep::Go(target) => Some(target),
            NextStep::Branch { branches, otherwise } => {
                let taken = branches.iter().find(|branch| self.holds(&branch.condition));
                let words = match (taken, otherwise) {
                    (Some(branch), _) => branch.condition.text(),
                    (None, Some(_)) => "else",
                    (None, None) => "none",
                };
                self.because(Reason::Branch {
                    flow: flow.id.as_str().to_owned(),
                    step: step.id.as_str().to_owned(),
                    taken: words.to_owned(),
                });
                taken.map(|branch| &branch.target).or(otherwise.as_ref().map(|otherwise| &otherwise.target))
            }
        }
    }

    fn run(&mut self, flow: &Flow, step: &Step) -> Walk {
        match &step.kind {
            StepKind::Collect(collect) => collect::enter(self, step, collect),
            StepKind::Action(name) => actions::step(self, name),
            StepKind::SetSlots(values) => {
                for (name, value) in values {
                    let value = slots::settled_for(self.project, name, value.clone());
                    self.set_slot(name, value, FilledBy::Flow);
                }
                Walk::On
            }
            StepKind::Call(Call::Flow(child)) => self.call(child),
            StepKind::Call(Call::Agent { agent, exit_if }) => agent_frame::call(self, flow, step, agent, exit_if),
            StepKind::Call(Call::Tool { server, tool, input, .. }) => {
                tool_call::call(self, flow, step, server, tool, input)
            }
            StepKind::Link(target) => self.link(target),
            StepKind::Noop => Walk::On,
        }
    }

    fn call(&mut self, child: &FlowId) -> Walk {
        let mut frame = self.frame(child, FrameKind::Flow { frame_type: FlowFrameType::Call });
        rerun::hand_down(self.stack.last_mut(), &mut frame);
        if self.push(frame) { Walk::On } else { self.fail("the flows call one another too deeply") }
    }

    /// The target goes below the frame on top, which ends: its slots are reset before the target begins. So does what was
    /// cancelled below.
    fn link(&mut self, target: &FlowId) -> Walk {
        let project = self.project;
        let kind = match project.flow(target.as_str()) {
            Some(flow) if flow.is_pattern() => FrameKind::Pattern { context: PatternFrame::Plain },
            _ => FrameKind::Flow { frame_type: FlowFrameType::Link },
        };
        // What a pattern leads to comes between the flow under way and the user, as any other digression does.
        let digresses = matches!(kind, FrameKind::Flow { .. }) && self.stack.last().is_some_and(Frame::is_pattern);
        if digresses {
            // A question what to do next that lies below is answered by this; it is asked anew afterwards.
            let pattern = self.stack.pop();
            interrupt::leave_questions(self);
            self.stack.extend(pattern);
            interrupt::step_aside(self);
        }
        let frame = self.frame(target, kind);
        if let Some(top) = self.stack.last_mut() {
            top.at = Position::End;
        }
        let under_way = self.stack.iter().rposition(|frame| frame.at != Position::End);
        self.stack.insert(under_way.map_or(0, |at| at + 1), frame);
        if self.stack.len() > limits::STACK_FRAMES { self.fail("too many flows are under way") } else { Walk::On }
    }

    /// Remembers the step on top as the last of the way here. Where the flow has come round by its own way, the trail ends there.
    pub(super) fn remember_step(&mut self) {
        let Some(top) = self.stack.last_mut().filter(|frame| frame.is_flow()) else { return };
        let Position::At(step) = &top.at else { return };
        match top.trail.iter().position(|one| one == step) {
            Some(at) if at + 1 < top.trail.len() => {
                top.trail.truncate(at + 1);
                rerun::came_round(top);
            }
            Some(_) => {}
            None => top.trail.push(step.clone()),
        }
    }

    /// No branch holds and there is no `else`. The checks at loading refuse such a step.
    fn stuck(&mut self) -> Walk {
        if self.stack.last().is_some_and(Frame::is_pattern) {
            self.note("no branch of a pattern holds: it ends here");
            self.stack.pop();
            return Walk::On;
        }
        self.fail("no branch of a step holds, and there is no `else`")
    }

    /// The frame on top stands at a step, or in a flow, that this project no longer has. A question begins again; anything
    /// else goes, with the flow it belongs to, and the user is told; the rest of the stack lives on.
    fn lost(&mut self) -> Walk {
        let Some(top) = self.stack.last() else { return Walk::On };
        let (flow, step) = (top.flow_id.clone(), step_of(top).cloned());
        let known = self.project.flow(flow.as_str()).is_some();
        let is_pattern = top.is_pattern();
        let step = step.map_or_else(|| "START".to_owned(), |step| step.to_string());
        self.note(format!("`{flow}` stands at `{step}`, from which nothing leads on in this project"));
        if is_pattern {
            if known && !matches!(top_at(self), Some(Position::Start | Position::Before(_))) && !self.tripped {
                if let Some(top) = self.stack.last_mut() {
                    top.at = Position::Start;
                }
                return Walk::On;
            }
            self.stack.pop();
            return Walk::On;
        }
        interrupt::remove_chain(self, "the flow changed");
        self.say("utter_inform_code_change", &serde_json::Map::new());
        Walk::On
    }
}

fn top_at<'t>(turn: &'t Turn<'_>) -> Option<&'t Position> {
    turn.stack.last().map(|frame| &frame.at)
}
