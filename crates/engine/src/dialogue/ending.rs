//! How flows end: at their last step, by failure, or because the turn has run too long.

use serde_json::{Map, Value as Json};

use super::{
    Next, Reason, agent_frame, failure, interrupt, patterns,
    reply::{INTERNAL_ERROR, OUTCOME_UNKNOWN},
    rerun, search,
    turn::{Turn, Walk, step_or_end},
};
use crate::{
    conversation::{AgentState, EventKind, FlowFrameType, Frame, FrameKind, PatternFrame, Position},
    ids::SlotName,
    project::{Call, Flow, Project, Step, StepKind},
};

impl Turn<'_> {
    /// Takes down the frame on top.
    pub(super) fn end(&mut self) -> Walk {
        let Some(frame) = self.stack.pop() else { return Walk::On };
        let project = self.project;
        let flow = project.flow(frame.flow_id.as_str());
        match &frame.kind {
            FrameKind::Flow { frame_type } => {
                let offers = flow.is_none_or(|flow| flow.run_pattern_completed);
                if self.stack.is_empty() && offers && *frame_type != FlowFrameType::Call {
                    let previous_flow_name = self.flow_name(&frame.flow_id);
                    self.push_pattern(patterns::COMPLETED, PatternFrame::Completed { previous_flow_name });
                } else if matches!(frame_type, FlowFrameType::Interrupt | FlowFrameType::Link) {
                    interrupt::offer_to_continue(self);
                }
                if *frame_type == FlowFrameType::Call {
                    rerun::hand_up(self.stack.last_mut(), &frame);
                } else {
                    reset_slots(self, &frame, flow.map(|flow| &**flow));
                }
            }
            FrameKind::Pattern { .. } => {
                search::ended(self, &frame, flow.map(|flow| &**flow));
                reset_slots(self, &frame, flow.map(|flow| &**flow));
            }
            FrameKind::Agent(agent) if agent.state == AgentState::Restarting => return Walk::On,
            FrameKind::Agent(agent) => {
                let (flow_id, agent_id) = (frame.flow_id.clone(), agent.agent_id.clone());
                self.emit_at(&frame, EventKind::AgentCancelled { flow_id, agent_id, reason: None });
                return Walk::On;
            }
        }
        let (flow_id, step_id) = (frame.flow_id.clone(), step_or_end(&frame));
        self.emit_at(&frame, EventKind::FlowCompleted { flow_id, step_id });
        Walk::On
    }

    /// Ends the flow under way, everything above it and the flows that called it, and says once that something failed.
    pub(super) fn fail(&mut self, because: &str) -> Walk {
        self.fail_with(because, Map::new());
        Walk::On
    }

    /// The same, with facts for the pattern.
    pub(super) fn fail_with(&mut self, because: &str, info: Map<String, Json>) {
        self.fail_as((patterns::INTERNAL_ERROR, INTERNAL_ERROR), because, info);
    }

    /// The same, and says that it may have happened.
    pub(super) fn fail_in_doubt(&mut self, because: &str, info: Map<String, Json>) {
        self.fail_as((patterns::OUTCOME_UNKNOWN, OUTCOME_UNKNOWN), because, info);
    }

    fn fail_as(&mut self, (pattern, words): (&str, &str), because: &str, mut info: Map<String, Json>) {
        let flow = self.stack.iter().rev().find(|frame| frame.is_flow());
        let flow = flow.map(|frame| frame.flow_id.to_string()).unwrap_or_default();
        self.because(Reason::Failed { flow: flow.clone(), because: because.to_owned() });
        info.entry("flow_id").or_insert_with(|| flow.into());
        info.entry("error_message").or_insert_with(|| because.into());
        // What went wrong before, or a message that was refused, is no part of what fails now: the user has yet to hear it.
        let untold = interrupt::take_untold(self);
        interrupt::remove_chain(self, because);
        let error_type = "rasa_internal_error_default".to_owned();
        if !self.push_pattern(pattern, PatternFrame::InternalError { error_type, info }) {
            self.say(words, &Map::new());
        }
        self.stack.extend(untold);
    }

    /// The breaker. A second time in one advance means that the error pattern itself runs in circles: then the plain text
    /// must do, and nothing stays on the stack that could begin again.
    pub(super) fn trip(&mut self) -> Walk {
        if self.tripped || self.conversation().turn.acts > crate::limits::TURN_ACTS {
            self.note("the turn ran in circles: the stack is cleared");
            forget_followup(self);
            while !self.stack.is_empty() {
                interrupt::remove_chain(self, "the turn ran in circles");
            }
            self.say(INTERNAL_ERROR, &Map::new());
            return Walk::Stop(self.listen());
        }
        self.tripped = true;
        self.steps = 0;
        self.fail("the flow took too many steps without listening")
    }
}

/// A turn that another version had begun: what its effects came to is kept, and the user is told that
/// things changed.
pub(super) fn upgraded(turn: &mut Turn<'_>, outcomes: Vec<EventKind>) -> Next {
    let in_doubt = outcomes.iter().any(failure::is_in_doubt);
    for outcome in outcomes {
        turn.emit(outcome);
    }
    turn.note("the turn was begun by another version of the program or the project");
    agent_frame::give_up(turn, "another version took the turn over");
    turn.pending = None;
    turn.push_pattern(patterns::CODE_CHANGE, PatternFrame::Plain);
    if in_doubt {
        let error_type = "rasa_internal_error_default".to_owned();
        turn.push_pattern(patterns::OUTCOME_UNKNOWN, PatternFrame::InternalError { error_type, info: Map::new() });
    }
    turn.walk()
}

/// The turn's budget is spent: the flow under way fails, the user hears it once, and nothing further is performed.
pub(super) fn exhausted(turn: &mut Turn<'_>, budget: &str) -> Next {
    let reason = format!("the turn's budget is spent: {budget}");
    agent_frame::give_up(turn, &reason);
    turn.pending = None;
    forget_followup(turn);
    turn.fail_with(&reason, Map::new());
    let told = turn.stack.iter().rev().take_while(|frame| interrupt::is_untold(frame)).count();
    turn.floor = Some(turn.stack.len().saturating_sub(told));
    turn.walk()
}

/// The turn was tried too often: what its effects came to is kept, and nothing goes on from where it stood, for nobody can tell how far it
/// came. A question that was open is asked no more: what the user says next would be taken for its answer.
pub(super) fn given_up(turn: &mut Turn<'_>, outcomes: Vec<EventKind>, response: &str) -> Next {
    const REASON: &str = "the turn was tried too often";
    for outcome in outcomes {
        turn.emit(outcome);
    }
    turn.note(REASON);
    agent_frame::give_up(turn, REASON);
    turn.pending = None;
    forget_followup(turn);
    while let Some(frame) = turn.stack.pop() {
        turn.take_down(&frame, REASON);
    }
    if !turn.conversation().paused {
        turn.say(response, &Map::new());
    }
    turn.listen()
}

/// What an action wanted to run next does not lie in wait for the next message when its turn is stopped.
fn forget_followup(turn: &mut Turn<'_>) {
    if turn.conversation().followup.is_some() {
        turn.emit(EventKind::Followup { name: None });
    }
}

/// Puts back the slots of a flow that ended: what it collected and set, called flows included, but for
/// those that persist.
pub(super) fn reset_slots(turn: &mut Turn<'_>, frame: &Frame, flow: Option<&Flow>) {
    let Some(flow) = flow else { return };
    let (mut collected, mut kept, mut set) = (Vec::new(), Vec::new(), Vec::new());
    each_step(turn.project, flow, &mut Vec::new(), &mut |kind| match kind {
        StepKind::Collect(collect) => {
            let stays = !collect.reset_after_flow_ends || flow.persisted_slots.contains(&collect.slot);
            if stays { kept.push(collect.slot.clone()) } else { collected.push(collect.slot.clone()) }
        }
        StepKind::SetSlots(values) => set.extend(values.iter().map(|(slot, _)| slot.clone())),
        _ => {}
    });
    set.retain(|slot| !kept.contains(slot) && !flow.persisted_slots.contains(slot) && !collected.contains(slot));
    for slot in collected.into_iter().chain(set) {
        reset_slot(turn, frame, slot);
    }
}

fn reset_slot(turn: &mut Turn<'_>, frame: &Frame, name: SlotName) {
    let initial = turn.project.slot(name.as_str()).map_or(Json::Null, |slot| slot.initial.clone());
    // A slot that nobody touched needs no event.
    let touched = turn.conversation().slots.state(name.as_str()).is_some_and(|s| s.has_been_set || s.value != initial);
    if touched {
        turn.emit_at(frame, EventKind::Slot { name, value: initial, filled_by: None, reset: true });
    }
}

/// Visits what the steps of a flow and of the flows it calls do, each flow once.
pub(super) fn each_step<'p>(
    project: &'p Project,
    flow: &'p Flow,
    seen: &mut Vec<&'p str>,
    visit: &mut dyn FnMut(&'p StepKind),
) {
    each_whole_step(project, flow, seen, &mut |step| visit(&step.kind));
}

/// The same for the steps themselves.
pub(super) fn each_whole_step<'p>(
    project: &'p Project,
    flow: &'p Flow,
    seen: &mut Vec<&'p str>,
    visit: &mut dyn FnMut(&'p Step),
) {
    if seen.contains(&flow.id.as_str()) {
        return;
    }
    seen.push(flow.id.as_str());
    for step in &flow.steps {
        visit(step);
        if let StepKind::Call(Call::Flow(child)) = &step.kind
            && let Some(child) = project.flow(child.as_str())
        {
            each_whole_step(project, child, seen, visit);
        }
    }
}

impl Turn<'_> {
    /// Puts a pattern on top; false when this project has none of that name, or the stack is full.
    pub(super) fn push_pattern(&mut self, flow: &str, context: PatternFrame) -> bool {
        let project = self.project;
        let Some(flow) = project.flow(flow) else {
            self.note(format!("this project has no `{flow}`"));
            return false;
        };
        let frame = self.frame(&flow.id, FrameKind::Pattern { context });
        self.push(frame)
    }

    /// Lets those frames end: they are walked to their end as the stack comes to them. One that has not begun has no end and
    /// goes at once.
    pub(super) fn let_end(&mut self, ends: impl Fn(&Frame) -> bool) {
        let (gone, kept): (Vec<Frame>, Vec<Frame>) = std::mem::take(&mut self.stack)
            .into_frames()
            .into_iter()
            .partition(|frame| ends(frame) && frame.at == Position::Start);
        self.stack = kept.into();
        for frame in gone.iter().rev() {
            self.note(format!("`{}` does not begin", frame.flow_id));
            self.take_down(frame, "it has not begun");
        }
        self.stack.iter_mut().filter(|frame| ends(frame)).for_each(|frame| frame.at = Position::End);
    }

    /// Takes down a frame that is being left, without walking it: patterns count as completed, flows as cancelled, agents
    /// too.
    pub(super) fn take_down(&mut self, frame: &Frame, reason: &str) {
        let project = self.project;
        let flow_id = frame.flow_id.clone();
        match &frame.kind {
            // One that was to begin anew had completed, and has not begun.
            FrameKind::Agent(agent) if agent.state == AgentState::Restarting => return,
            FrameKind::Agent(agent) => {
                let (agent_id, reason) = (agent.agent_id.clone(), Some(reason.to_owned()));
                self.emit_at(frame, EventKind::AgentCancelled { flow_id, agent_id, reason });
                return;
            }
            FrameKind::Flow { frame_type: FlowFrameType::Call } => {}
            _ => reset_slots(self, frame, project.flow(flow_id.as_str()).map(|flow| &**flow)),
        }
        if frame.at == Position::Start {
            return; // it never began, so nothing ended
        }
        let step_id = step_or_end(frame);
        let kind = match &frame.kind {
            FrameKind::Flow { .. } => EventKind::FlowCancelled { flow_id, step_id },
            _ => EventKind::FlowCompleted { flow_id, step_id },
        };
        self.emit_at(frame, kind);
    }
}
