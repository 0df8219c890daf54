//! How frames end: at their last step, by failure, or because the turn exceeds a limit.

use serde_json::{Map, Value as Json};

use super::{
    Next, Reason,
    advance_context::{AdvanceContext, StepResult, step_or_end},
    agent_frame, chains, completed_steps, on_error, patterns, search, writes,
};
use crate::{
    conversation::{AgentState, ErrorKind, EventKind, FlowFrameType, Frame, FrameKind, PatternFrame, Position, Writes},
    ids::SlotName,
    project::{Call, Flow, Project, Step, StepKind},
};

impl AdvanceContext<'_> {
    /// Ends the frame on top.
    pub(super) fn end(&mut self) -> StepResult {
        let Some(frame) = self.stack.pop() else { return StepResult::Continue };
        let project = self.project;
        let flow = project.flow(frame.flow_id.as_str());
        match &frame.kind {
            FrameKind::Flow { frame_type } => {
                let offers = flow.is_none_or(|flow| flow.run_pattern_completed);
                if self.stack.is_empty() && offers && *frame_type != FlowFrameType::Call {
                    let previous_flow_name = self.flow_name(&frame.flow_id);
                    self.push_pattern(patterns::COMPLETED, PatternFrame::Completed { previous_flow_name });
                } else if matches!(frame_type, FlowFrameType::Interrupt | FlowFrameType::Link) {
                    chains::offer_to_continue(self);
                }
                if *frame_type == FlowFrameType::Call {
                    writes::move_to_caller(self.stack.last_mut(), &frame);
                    completed_steps::move_to_caller(self.stack.last_mut(), &frame);
                } else {
                    reset_slots(self, &frame, flow.map(|flow| &**flow));
                }
            }
            FrameKind::Pattern { .. } => {
                search::on_pattern_end(self, &frame, flow.map(|flow| &**flow));
                reset_slots(self, &frame, flow.map(|flow| &**flow));
            }
            FrameKind::Agent(agent) if agent.state == AgentState::Restarting => return StepResult::Continue,
            FrameKind::Agent(agent) => {
                let (flow_id, agent_id) = (frame.flow_id.clone(), agent.agent_id.clone());
                self.emit_at(&frame, EventKind::AgentCancelled { flow_id, agent_id, reason: None });
                return StepResult::Continue;
            }
        }
        let (flow_id, step_id) = (frame.flow_id.clone(), step_or_end(&frame));
        self.emit_at(&frame, EventKind::FlowCompleted { flow_id, step_id });
        StepResult::Continue
    }

    /// Ends the active flow, everything above it and the flows that called it, and sends one error response.
    pub(super) fn fail(&mut self, because: &str) -> StepResult {
        self.fail_with(because, Map::new());
        StepResult::Continue
    }

    /// Like [`Self::fail`], with values for the pattern. What the flow has changed decides which pattern it is.
    pub(super) fn fail_with(&mut self, because: &str, info: Map<String, Json>) {
        self.fail_as(ErrorKind::Failed, because, info);
    }

    /// Like [`Self::fail_with`], for an effect that may have happened.
    pub(super) fn fail_in_doubt(&mut self, because: &str, info: Map<String, Json>) {
        self.fail_as(ErrorKind::Unknown, because, info);
    }

    fn fail_as(&mut self, kind: ErrorKind, because: &str, mut info: Map<String, Json>) {
        let (pattern, response) = writes::pattern(kind, &writes::of_top_chain(self), &mut info);
        let flow = self.stack.iter().rev().find(|frame| frame.is_flow());
        let flow = flow.map(|frame| frame.flow_id.to_string()).unwrap_or_default();
        self.add_reason(Reason::Failed { flow: flow.clone(), cause: because.to_owned() });
        info.entry("flow_id").or_insert_with(|| flow.into());
        info.entry("error_message").or_insert_with(|| because.into());
        // Pending error messages do not belong to the failed flow: the user has not seen them yet.
        let pending_errors = chains::take_pending_errors(self);
        chains::remove_chain(self, because);
        let error_type = "rasa_internal_error_default".to_owned();
        let values = info.clone();
        if !self.push_pattern(pattern, PatternFrame::InternalError { error_type, info }) {
            self.say(response, &values);
        }
        self.stack.extend(pending_errors);
    }

    /// Handles a flow that exceeds its step or effect limit. The second time in one advance the error pattern itself
    /// loops: then the stack is cleared and only the error response is sent.
    pub(super) fn trip_breaker(&mut self) -> StepResult {
        if self.breaker_tripped || self.conversation().turn.effects > crate::limits::ENGINE_TURN_EFFECTS {
            self.add_note("the turn is in a loop: the stack is cleared");
            clear_followup(self);
            let mut info = Map::new();
            let (_, response) = writes::pattern(ErrorKind::Failed, &writes::of_all(self.stack.iter()), &mut info);
            while !self.stack.is_empty() {
                chains::remove_chain(self, "the turn is in a loop");
            }
            self.say(response, &info);
            return StepResult::Return(self.listen());
        }
        self.breaker_tripped = true;
        self.steps = 0;
        self.fail("the flow took too many steps without listening")
    }
}

/// Ends a turn that another version started: records the outcomes of its effects and notifies the user of the change.
pub(super) fn on_version_change(turn: &mut AdvanceContext<'_>, outcomes: Vec<EventKind>) -> Next {
    let in_doubt = outcomes.iter().any(on_error::is_in_doubt);
    let mut changed = writes::of_all(turn.stack.iter());
    outcomes.iter().filter_map(EventKind::writes).for_each(|writes| changed.merge(&writes));
    for outcome in outcomes {
        turn.emit(outcome);
    }
    turn.add_note("the turn was started by another version of the program or the project");
    agent_frame::cancel_running_agent(turn, "another version recovered the turn");
    turn.pending = None;
    turn.push_pattern(patterns::CODE_CHANGE, PatternFrame::Plain);
    if in_doubt || !changed.is_empty() {
        let (error_type, mut info) = ("rasa_internal_error_default".to_owned(), Map::new());
        let kind = if in_doubt { ErrorKind::Unknown } else { ErrorKind::Failed };
        let (pattern, _) = writes::pattern(kind, &changed, &mut info);
        // The pattern names it; a flow that ends because it has changed does not name it again.
        turn.stack.iter_mut().for_each(|frame| frame.writes = Writes::default());
        turn.push_pattern(pattern, PatternFrame::InternalError { error_type, info });
    }
    turn.run_until_effect()
}

/// The budget of the turn is exhausted: the active flow fails with one message, and no further effect is performed.
pub(super) fn on_budget_exhausted(turn: &mut AdvanceContext<'_>, budget: &str) -> Next {
    let reason = format!("the budget of the turn is exhausted: {budget}");
    agent_frame::cancel_running_agent(turn, &reason);
    turn.pending = None;
    clear_followup(turn);
    turn.fail_with(&reason, Map::new());
    let pending_errors = turn.stack.iter().rev().take_while(|frame| chains::is_pending_error(frame)).count();
    turn.protected_frames = Some(turn.stack.len().saturating_sub(pending_errors));
    turn.run_until_effect()
}

/// The turn failed too often: records the outcomes of its effects and closes all frames, because how far it came is not
/// known. An open question is closed too, so that the next message is not taken for its answer.
pub(super) fn on_give_up(turn: &mut AdvanceContext<'_>, outcomes: Vec<EventKind>, response: &str) -> Next {
    const REASON: &str = "the turn failed too often";
    let mut changed = writes::of_all(turn.stack.iter());
    outcomes.iter().filter_map(EventKind::writes).for_each(|writes| changed.merge(&writes));
    for outcome in outcomes {
        turn.emit(outcome);
    }
    turn.add_note(REASON);
    agent_frame::cancel_running_agent(turn, REASON);
    turn.pending = None;
    clear_followup(turn);
    while let Some(frame) = turn.stack.pop() {
        turn.close_frame(&frame, REASON);
    }
    if !turn.conversation().paused {
        turn.say(response, &writes::names(&changed));
    }
    turn.listen()
}

/// Clears the followup action, so that it does not run at the next message.
fn clear_followup(turn: &mut AdvanceContext<'_>) {
    if turn.conversation().followup.is_some() {
        turn.emit(EventKind::Followup { name: None });
    }
}

/// Resets the slots that a flow and the flows it called collected and set, except persisted ones.
pub(super) fn reset_slots(turn: &mut AdvanceContext<'_>, frame: &Frame, flow: Option<&Flow>) {
    let Some(flow) = flow else { return };
    let (mut collected, mut kept, mut set) = (Vec::new(), Vec::new(), Vec::new());
    for_each_step_kind(turn.project, flow, &mut Vec::new(), &mut |kind| match kind {
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

fn reset_slot(turn: &mut AdvanceContext<'_>, frame: &Frame, name: SlotName) {
    let initial = turn.project.slot(name.as_str()).map_or(Json::Null, |slot| slot.initial.clone());
    // A slot that was never set needs no event.
    let touched = turn.conversation().slots.state(name.as_str()).is_some_and(|s| s.has_been_set || s.value != initial);
    if touched {
        turn.emit_at(frame, EventKind::Slot { name, value: initial, filled_by: None, reset: true });
    }
}

/// Visits the kind of each step of a flow and of the flows it calls; each flow once.
pub(super) fn for_each_step_kind<'p>(
    project: &'p Project,
    flow: &'p Flow,
    visited: &mut Vec<&'p str>,
    visit: &mut dyn FnMut(&'p StepKind),
) {
    for_each_step(project, flow, visited, &mut |step| visit(&step.kind));
}

/// Visits each step of a flow and of the flows it calls; each flow once.
pub(super) fn for_each_step<'p>(
    project: &'p Project,
    flow: &'p Flow,
    visited: &mut Vec<&'p str>,
    visit: &mut dyn FnMut(&'p Step),
) {
    if visited.contains(&flow.id.as_str()) {
        return;
    }
    visited.push(flow.id.as_str());
    for step in &flow.steps {
        visit(step);
        if let StepKind::Call(Call::Flow(child)) = &step.kind
            && let Some(child) = project.flow(child.as_str())
        {
            for_each_step(project, child, visited, visit);
        }
    }
}

impl AdvanceContext<'_> {
    /// Pushes a pattern; false when the project has none of that name or the stack is full.
    pub(super) fn push_pattern(&mut self, flow: &str, context: PatternFrame) -> bool {
        let project = self.project;
        let Some(flow) = project.flow(flow) else {
            self.add_note(format!("this project has no `{flow}`"));
            return false;
        };
        let frame = self.frame(&flow.id, FrameKind::Pattern { context });
        self.push(frame)
    }

    /// Ends the frames that match: they complete as the stack reaches them. A frame that has not started is removed at
    /// once.
    pub(super) fn end_frames(&mut self, ends: impl Fn(&Frame) -> bool) {
        let (gone, kept): (Vec<Frame>, Vec<Frame>) = std::mem::take(&mut self.stack)
            .into_frames()
            .into_iter()
            .partition(|frame| ends(frame) && frame.at == Position::Start);
        self.stack = kept.into();
        for frame in gone.iter().rev() {
            self.add_note(format!("`{}` does not start", frame.flow_id));
            self.close_frame(frame, "it has not started");
        }
        self.stack.iter_mut().filter(|frame| ends(frame)).for_each(|frame| frame.at = Position::End);
    }

    /// Records the end of a frame that is removed before its end: patterns count as completed, flows and agents as
    /// cancelled.
    pub(super) fn close_frame(&mut self, frame: &Frame, reason: &str) {
        let project = self.project;
        let flow_id = frame.flow_id.clone();
        match &frame.kind {
            // A restarting agent has completed its task and has not started again.
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
            return; // it has not started
        }
        let step_id = step_or_end(frame);
        let kind = match &frame.kind {
            FrameKind::Flow { .. } => EventKind::FlowCancelled { flow_id, step_id },
            _ => EventKind::FlowCompleted { flow_id, step_id },
        };
        self.emit_at(frame, kind);
    }
}
