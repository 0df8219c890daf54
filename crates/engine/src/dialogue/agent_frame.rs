//! The states of an agent on the stack.
//!
//! | state of the frame | when it is on top of the stack | next state |
//! | --- | --- | --- |
//! | none | its step calls it: `agent_started` | waiting, or removed |
//! | waiting | the assistant listens | continuing after `continue agent`, interrupted when another flow starts |
//! | continuing | it is invoked with the message | waiting, or removed |
//! | interrupted | it resumes, since nothing is above it any more | resuming |
//! | resuming | it is invoked: `agent_resumed` | waiting, or removed |
//! | restarting | a frame of an older release: the flow goes back to the calling step | none |
//!
//! An agent that restarts is called by its step again, with the slots of `exit_if` emptied. The flow goes back to that
//! step as after a correction, so that all later steps that use the agent's values run again.
//!
//! A message that arrives while an agent is running finds it waiting. `agent_started` is recorded once per task, not
//! once per message.

use serde_json::{Map, Value as Json};

use super::{
    Next, actions,
    advance_context::{AdvanceContext, StepResult, step_of},
    chains, confirmation, patterns,
    pending::called_by_top,
    writes,
};
use crate::{
    condition::Condition,
    conversation::{
        AgentCall, AgentFrame, AgentKind, AgentOutcome, AgentState, AgentStatus, BotKind, BotMessage, EventKind,
        FilledBy, Frame, FrameKind, PendingEffect, Position, Reply, StepError,
    },
    ids::{ActionName, AgentName, FlowId, SlotName, StepId},
    project::{Call, Flow, ResumeRule, Step, StepKind, builtin::REQUEST_INPUT},
};

/// Whether the agent on top waits for the user.
pub(super) fn is_top_agent_waiting(frames: &[Frame]) -> bool {
    frames.last().and_then(Frame::agent).is_some_and(|agent| agent.state == AgentState::WaitingForInput)
}

/// Whether this agent is on top and waits for the user.
pub(super) fn is_waiting(frames: &[Frame], agent: &AgentName) -> bool {
    is_top_agent_waiting(frames) && frames.last().and_then(Frame::agent).is_some_and(|frame| frame.agent_id == *agent)
}

/// Calls an agent for a step: its task starts, or restarts if the agent completed it before in this flow.
pub(super) fn call(
    turn: &mut AdvanceContext<'_>,
    flow: &Flow,
    step: &Step,
    agent: &AgentName,
    exit_if: &[Condition],
) -> StepResult {
    if turn.protected_frames.is_some() {
        return turn.fail("no agent is called: the budget of the turn is exhausted");
    }
    let restarted = turn.conversation().agents.get(agent).is_some_and(|record| record.has_completed_in(&flow.id));
    start_task(turn, &flow.id, agent, exit_if, restarted);
    let metadata =
        remote_context_id(turn, agent).map(|id| (CONTEXT_ID_KEY.to_owned(), Json::from(id))).into_iter().collect();
    StepResult::Return(invoke(
        turn,
        &flow.id,
        &step.id,
        agent,
        Invocation { restarted, metadata, ..Invocation::default() },
    ))
}

/// The metadata key of a remote agent's context id.
const CONTEXT_ID_KEY: &str = "context_id";

/// The context id of a remote agent from an earlier task of this conversation.
fn remote_context_id(turn: &AdvanceContext<'_>, agent: &AgentName) -> Option<String> {
    turn.conversation().agents.get(agent)?.context_id.clone()
}

fn start_task(turn: &mut AdvanceContext<'_>, flow: &FlowId, agent: &AgentName, exit_if: &[Condition], restarted: bool) {
    let (flow_id, agent_id) = (flow.clone(), agent.clone());
    let context_id = remote_context_id(turn, agent);
    turn.emit_in_top_frame(EventKind::AgentStarted { flow_id, agent_id, context_id, restarted });
    if restarted {
        let slots = exit_slots(turn, exit_if);
        let emptied = if slots.is_empty() {
            String::new()
        } else {
            format!("; these slots are emptied: {}", slots.iter().map(SlotName::as_str).collect::<Vec<_>>().join(", "))
        };
        turn.add_note(format!("agent `{agent}` has completed a task in `{flow}` before and starts again{emptied}"));
        for slot in slots {
            turn.set_slot(&slot, Json::Null, FilledBy::Flow);
        }
    }
}

/// The slots of `exit_if` that have a value.
fn exit_slots(turn: &AdvanceContext<'_>, exit_if: &[Condition]) -> Vec<SlotName> {
    let mut names: Vec<SlotName> = Vec::new();
    for name in exit_if.iter().flat_map(Condition::slots) {
        if turn.project.slot(name).is_some() && !turn.slot(name).is_null() && !names.iter().any(|n| *n == *name) {
            names.push(SlotName::from(name));
        }
    }
    names
}

/// The parameters of an invocation that differ from the first one.
#[derive(Default)]
struct Invocation {
    resumed: bool,
    restarted: bool,
    metadata: Map<String, Json>,
    confirmed: Option<bool>,
}

fn invoke(turn: &mut AdvanceContext<'_>, flow: &FlowId, step: &StepId, agent: &AgentName, how: Invocation) -> Next {
    let (flow_id, step_id, agent_id) = (flow.clone(), step.clone(), agent.clone());
    turn.pending = Some(PendingEffect::Agent { flow_id, step_id, agent_id });
    let kind = match step_call(turn, flow, step) {
        Some((_, exit_if)) if !exit_if.is_empty() => AgentKind::Task,
        _ => AgentKind::Open,
    };
    let conversation = turn.conversation();
    let last = conversation.agents.get(agent).and_then(|record| record.last_text.clone());
    Next::Agent(Box::new(AgentCall {
        agent: agent.clone(),
        kind,
        flow_id: flow.clone(),
        step_id: step.clone(),
        user_message: conversation.latest_message.as_ref().map_or_else(|| "".into(), |message| message.text.clone()),
        resumed: how.resumed,
        resumed_last_request: last.filter(|_| how.resumed),
        restarted: how.restarted,
        metadata: how.metadata,
        confirmed: how.confirmed,
        at: turn.at,
    }))
}

fn step_call<'a>(turn: &AdvanceContext<'a>, flow: &FlowId, step: &StepId) -> Option<(&'a AgentName, &'a [Condition])> {
    let project = turn.project;
    match &project.flow(flow.as_str())?.step(step.as_str())?.kind {
        StepKind::Call(Call::Agent { agent, exit_if }) => Some((agent, exit_if)),
        _ => None,
    }
}

/// Runs the agent whose frame is on top.
pub(super) fn run_top_agent(turn: &mut AdvanceContext<'_>) -> StepResult {
    let Some(Frame { kind: FrameKind::Agent(frame), flow_id, at, .. }) = turn.stack.last() else {
        return StepResult::Continue;
    };
    let (frame, flow) = (frame.clone(), flow_id.clone());
    let step = match at {
        Position::At(step) | Position::Before(step) => step.clone(),
        Position::Start | Position::End => return turn.end(),
    };
    if step_call(turn, &flow, &step).is_none() {
        // The project has changed: the task of the agent no longer exists.
        turn.add_note(format!("step `{step}` of `{flow}` no longer calls an agent"));
        return turn.end();
    }
    if frame.state == AgentState::WaitingForInput {
        repeat_question_if_silent(turn, &frame);
        return StepResult::Return(turn.listen());
    }
    if turn.protected_frames.is_some() {
        return StepResult::Return(turn.listen());
    }
    if frame.state == AgentState::Restarting {
        return restart_from_calling_step(turn, &flow, step);
    }
    let resumed = matches!(frame.state, AgentState::Interrupted | AgentState::Resuming);
    if resumed {
        let (flow_id, agent_id) = (flow.clone(), frame.agent_id.clone());
        turn.emit_in_top_frame(EventKind::AgentResumed { flow_id, agent_id });
    }
    // Agreeing to resume does not confirm a tool call: unconfirmed calls are shown again.
    if resumed && (confirmation::has_unconfirmed_calls(&frame) || repeats_question_on_resume(turn, &frame.agent_id)) {
        set_state(turn, AgentState::WaitingForInput);
        repeat_question(turn, &frame);
        return StepResult::Return(turn.listen());
    }
    let confirmed = (!resumed).then(|| confirmation::answer_of_turn(turn, &frame)).flatten();
    set_state(turn, AgentState::Continuing);
    let metadata = frame.metadata;
    // The answer is used up: if this run is interrupted, a second yes must not run the calls again.
    confirmation::clear_unconfirmed_calls(turn);
    let how = Invocation { resumed, metadata, confirmed, ..Invocation::default() };
    StepResult::Return(invoke(turn, &flow, &step, &frame.agent_id, how))
}

/// A frame of an older release in the state `restarting`: the flow goes back to the calling step.
fn restart_from_calling_step(turn: &mut AdvanceContext<'_>, flow: &FlowId, step: StepId) -> StepResult {
    let walks = |frame: &Frame| frame.flow_id == *flow && frame.is_flow();
    match turn.stack.iter().rposition(walks) {
        Some(at) => patterns::back_to(turn, at, step, "an agent of an earlier step restarts"),
        None => _ = turn.stack.pop(),
    }
    StepResult::Continue
}

/// Repeats the agent's question if the frames above it ended without a message.
fn repeat_question_if_silent(turn: &mut AdvanceContext<'_>, frame: &AgentFrame) {
    if !turn.conversation().turn.spoke {
        repeat_question(turn, frame);
    }
}

/// Whether the agent's question is repeated after an interruption, instead of running the agent.
fn repeats_question_on_resume(turn: &AdvanceContext<'_>, agent: &AgentName) -> bool {
    let rule = turn.project.agent(agent.as_str()).map(|agent| agent.rules.resume);
    rule == Some(ResumeRule::Repeat) && last_text(turn, agent).is_some()
}

fn last_text(turn: &AdvanceContext<'_>, agent: &AgentName) -> Option<String> {
    turn.conversation().agents.get(agent).and_then(|record| record.last_text.clone())
}

/// Repeats what the agent waits for: its unconfirmed calls, otherwise its last message.
fn repeat_question(turn: &mut AdvanceContext<'_>, frame: &AgentFrame) {
    let mut metadata = frame.metadata.clone();
    if confirmation::ask_for_confirmation(turn, &frame.agent_id, &mut metadata) {
        if let Some(frame) = turn.stack.last_mut().and_then(Frame::agent_mut) {
            frame.metadata = metadata;
        }
        return;
    }
    let Some(text) = last_text(turn, &frame.agent_id) else { return };
    let (reply, kind, agent) = (Reply::text(text), BotKind::InputRequired, Some(frame.agent_id.clone()));
    turn.emit_in_top_frame(EventKind::bot(BotMessage { reply, kind, agent, ..BotMessage::default() }));
}

fn set_state(turn: &mut AdvanceContext<'_>, state: AgentState) {
    if let Some(agent) = turn.stack.last_mut().and_then(Frame::agent_mut) {
        agent.state = state;
    }
}

/// A message arrived while an agent was running. The agent now waits, and the message may be for it. If the calling
/// step no longer exists, the task ends.
pub(super) fn park_running_agent(turn: &mut AdvanceContext<'_>, flow_id: FlowId, agent_id: AgentName) {
    if turn.stack.top().is_some_and(Frame::is_agent) {
        return;
    }
    let step = turn.stack.top().filter(|top| top.flow_id == flow_id).and_then(step_of).cloned();
    match step.filter(|_| matches!(called_by_top(turn), Some(Call::Agent { agent, .. }) if *agent == agent_id)) {
        Some(step) => {
            turn.add_note(format!("agent `{agent_id}` was interrupted by a new message"));
            wait_for_user(turn, &flow_id, step, &agent_id, Map::new());
        }
        None => {
            let reason = Some("the step that called it no longer exists".to_owned());
            turn.emit_in_top_frame(EventKind::AgentCancelled { flow_id, agent_id, reason });
        }
    }
}

/// Returns an agent that was about to continue when the turn was stopped to the waiting state.
pub(super) fn wait_for_user_again(turn: &mut AdvanceContext<'_>) {
    if let Some(agent) = turn.stack.last_mut().and_then(Frame::agent_mut)
        && agent.state == AgentState::Continuing
    {
        agent.state = AgentState::WaitingForInput;
    }
}

/// The turn ends while an agent without a frame is running: the run is recorded as cancelled.
pub(super) fn cancel_running_agent(turn: &mut AdvanceContext<'_>, reason: &str) {
    if let Some(PendingEffect::Agent { flow_id, agent_id, .. }) = turn.pending.clone() {
        cancel_without_frame(turn, &flow_id, &agent_id, reason);
    }
}

/// `continue agent`: passes the message to the waiting agent, once its frame is on top.
pub(super) fn continue_waiting_agent(turn: &mut AdvanceContext<'_>) {
    let mut agents = turn.stack.iter_mut().rev().filter_map(Frame::agent_mut);
    if let Some(agent) = agents.find(|agent| agent.state == AgentState::WaitingForInput) {
        agent.state = AgentState::Continuing;
    }
}

/// The most recent call of this agent in the chain at `base`: the index of the frame on the stack, and the step. If a
/// correction has led the flow past the call, it is the first call of the agent in a flow for which it completed a task.
pub(super) fn restart_point(turn: &AdvanceContext<'_>, base: usize, agent: &AgentName) -> Option<(usize, StepId)> {
    let project = turn.project;
    let calls =
        |step: &Step| matches!(&step.kind, StepKind::Call(Call::Agent { agent: called, .. }) if called == agent);
    let flows = || {
        chains::chain(&turn.stack, base).rev().filter_map(|at| {
            let frame = turn.stack.get(at).filter(|frame| frame.is_flow())?;
            Some((at, frame, project.flow(frame.flow_id.as_str())?))
        })
    };
    let visited = flows().find_map(|(at, frame, flow)| {
        let is_call = |id: &&StepId| flow.step(id.as_str()).is_some_and(calls);
        Some((at, frame.visited_steps.iter().rev().find(is_call)?.clone()))
    });
    visited.or_else(|| {
        let record = turn.conversation().agents.get(agent)?;
        let mut completed_in = flows().filter(|(_, _, flow)| record.has_completed_in(&flow.id));
        completed_in.find_map(|(at, _, flow)| Some((at, flow.steps.iter().find(|step| calls(step))?.id.clone())))
    })
}

/// `restart agent`: the flow at `base` goes back to the step that called the agent, as after a correction, and
/// continues from there when the agent is done. Flows that the same message started above it stay.
pub(super) fn restart(turn: &mut AdvanceContext<'_>, base: usize, agent: &AgentName) {
    let Some((at, step)) = restart_point(turn, base, agent) else {
        return turn.add_note(format!("no active flow has called `{agent}`, so it is not restarted"));
    };
    patterns::back_to(turn, at, step, "an agent of an earlier step restarts");
}

/// Handles the outcome of an agent run.
pub(super) fn on_agent_outcome(turn: &mut AdvanceContext<'_>, mut outcome: AgentOutcome) -> Next {
    let Some(PendingEffect::Agent { flow_id: flow, step_id: step, agent_id: agent }) = turn.pending.clone() else {
        turn.add_note("received the outcome of an agent that is not pending");
        return Next::Listen;
    };
    if step_call(turn, &flow, &step).is_none() {
        turn.add_note(format!("received the outcome of `{agent}`, but the step that called it no longer exists"));
        return Next::Listen;
    }
    turn.pending = None;
    for mut event in outcome.events {
        writes::note(turn, event.kind.writes());
        // Values of an agent are coerced to the type of the slot.
        if let EventKind::Slot { name, value, .. } = &mut event.kind
            && let Some(slot) = turn.project.slot(name.as_str())
        {
            *value = super::slots::coerce(&slot.kind, std::mem::take(value));
        }
        actions::apply_external_event(turn, event, FilledBy::Agent);
    }
    if turn.conversation().session.ended {
        return Next::EndSession;
    }
    match outcome.status {
        AgentStatus::AwaitingUser | AgentStatus::Yielded => {
            confirmation::ask_for_confirmation(turn, &agent, &mut outcome.metadata);
            wait_for_user(turn, &flow, step, &agent, outcome.metadata);
            let name = ActionName::from(REQUEST_INPUT);
            turn.emit_in_top_frame(EventKind::Action { name });
            Next::Listen
        }
        AgentStatus::Finished => {
            let status = "completed".to_owned();
            let context_id = outcome.metadata.get(CONTEXT_ID_KEY).and_then(Json::as_str).map(str::to_owned);
            turn.emit_in_top_frame(EventKind::AgentCompleted { flow_id: flow, agent_id: agent, status, context_id });
            if turn.stack.top().is_some_and(Frame::is_agent) {
                turn.stack.pop();
            }
            turn.run_until_effect()
        }
        AgentStatus::Failed { code, reason } => {
            let error = match code == SENT_IN_DOUBT {
                true => StepError::in_doubt(&code, &reason),
                false => StepError::reported(&code, &reason),
            };
            let writes = writes::of_agent(turn, &agent);
            on_agent_failed(turn, &flow, &step, &agent, error.after(&writes));
            turn.run_until_effect()
        }
        AgentStatus::Cancelled { reason } => on_agent_cancelled(turn, &flow, &agent, &reason),
    }
}

/// Updates or pushes the agent's frame: from now on it waits for the user.
fn wait_for_user(
    turn: &mut AdvanceContext<'_>,
    flow: &FlowId,
    step: StepId,
    agent: &AgentName,
    metadata: Map<String, Json>,
) {
    if let Some(frame) = turn.stack.last_mut().and_then(Frame::agent_mut) {
        frame.state = AgentState::WaitingForInput;
        frame.metadata = metadata;
        return;
    }
    let state = AgentState::WaitingForInput;
    let kind = FrameKind::Agent(AgentFrame { agent_id: agent.clone(), state, is_restart: false, metadata });
    let mut frame = turn.frame(flow, kind);
    frame.at = Position::At(step);
    turn.push(frame);
}

/// The error code of a remote agent that may have received the message.
const SENT_IN_DOUBT: &str = "A0515";

/// Handles a failed agent run: the flow follows `on_error`, or ends with one message to the user.
fn on_agent_failed(turn: &mut AdvanceContext<'_>, flow: &FlowId, step: &StepId, agent: &AgentName, error: StepError) {
    cancel_without_frame(turn, flow, agent, &error.message);
    let info = [
        ("error_source", Json::from("agent")),
        ("agent_name", Json::from(agent.as_str())),
        ("flow_id", Json::from(flow.as_str())),
        ("step_id", Json::from(step.as_str())),
        ("error_code", Json::from(error.code.as_str())),
        ("error_message", Json::from(error.message.as_str())),
    ];
    let info = info.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let because = format!("agent `{agent}` failed ({}): {}", error.code, error.message);
    turn.step_failed(&because, error, info);
}

/// Handles a cancelled agent run: its flow ends, with a message only if the task has changed something.
fn on_agent_cancelled(turn: &mut AdvanceContext<'_>, flow: &FlowId, agent: &AgentName, reason: &str) -> Next {
    let writes = writes::of_agent(turn, agent);
    cancel_without_frame(turn, flow, agent, reason);
    if writes.is_empty() {
        chains::remove_chain(turn, reason);
        return turn.listen();
    }
    turn.fail_with(reason, Map::new());
    turn.run_until_effect()
}

/// Records the end of an agent that has no frame.
fn cancel_without_frame(turn: &mut AdvanceContext<'_>, flow: &FlowId, agent: &AgentName, reason: &str) {
    if !turn.stack.top().is_some_and(Frame::is_agent) {
        let (flow_id, agent_id) = (flow.clone(), agent.clone());
        turn.emit_in_top_frame(EventKind::AgentCancelled { flow_id, agent_id, reason: Some(reason.to_owned()) });
    }
}
