//! The life of an agent on the stack.
//!
//! | state of the frame | on top of the stack it | becomes |
//! | --- | --- | --- |
//! | none | is called by its step: `agent_started` | waiting, or gone |
//! | waiting | listens | continuing by `continue agent`, interrupted by a flow that starts |
//! | continuing | is invoked with the message | waiting, or gone |
//! | interrupted | goes on by itself, since nothing is above it any more | resuming |
//! | resuming | is invoked: `agent_resumed` | waiting, or gone |
//! | restarting | is a frame of an older program: the flow goes back to the step that calls it | none |
//!
//! An agent that begins anew is called by its step again, with the slots of `exit_if` emptied: the flow goes back to that step as
//! after a correction, so that whatever looks at the agent's values comes after it.
//!
//! A message that comes while an agent still runs finds it waiting. `agent_started` comes once per task, not once per message.

use serde_json::{Map, Value as Json};

use super::{
    Next, actions, confirm, interrupt, patterns,
    pending::called_by_top,
    turn::{Turn, Walk, step_of},
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
pub(super) fn waits(frames: &[Frame]) -> bool {
    frames.last().and_then(Frame::agent).is_some_and(|agent| agent.state == AgentState::WaitingForInput)
}

/// Whether this agent is on top and waits.
pub(super) fn is_waiting(frames: &[Frame], agent: &AgentName) -> bool {
    waits(frames) && frames.last().and_then(Frame::agent).is_some_and(|frame| frame.agent_id == *agent)
}

/// A step calls an agent: its task begins. If it completed the task before in this flow, it begins anew.
pub(super) fn call(turn: &mut Turn<'_>, flow: &Flow, step: &Step, agent: &AgentName, exit_if: &[Condition]) -> Walk {
    if turn.floor.is_some() {
        return turn.fail("no agent is called any more: the turn's budget is spent");
    }
    let restarted = turn.conversation().agents.get(agent).is_some_and(|record| record.has_completed_in(&flow.id));
    begin(turn, &flow.id, agent, exit_if, restarted);
    let metadata = known_as(turn, agent).map(|id| (CONTEXT.to_owned(), Json::from(id))).into_iter().collect();
    Walk::Stop(invoke(turn, &flow.id, &step.id, agent, Invocation { restarted, metadata, ..Invocation::default() }))
}

/// The key under which a remote agent leaves the id of its context.
const CONTEXT: &str = "context_id";

/// The context id under which a remote agent knows this conversation from an earlier task.
fn known_as(turn: &Turn<'_>, agent: &AgentName) -> Option<String> {
    turn.conversation().agents.get(agent)?.context_id.clone()
}

fn begin(turn: &mut Turn<'_>, flow: &FlowId, agent: &AgentName, exit_if: &[Condition], restarted: bool) {
    let (flow_id, agent_id) = (flow.clone(), agent.clone());
    let context_id = known_as(turn, agent);
    turn.emit_here(EventKind::AgentStarted { flow_id, agent_id, context_id, restarted });
    if restarted {
        for slot in exit_slots(turn, exit_if) {
            turn.set_slot(&slot, Json::Null, FilledBy::Flow);
        }
    }
}

/// The slots that decide whether the task is done and that have a value.
fn exit_slots(turn: &Turn<'_>, exit_if: &[Condition]) -> Vec<SlotName> {
    let mut names: Vec<SlotName> = Vec::new();
    for name in exit_if.iter().flat_map(Condition::slots) {
        if turn.project.slot(name).is_some() && !turn.slot(name).is_null() && !names.iter().any(|n| *n == *name) {
            names.push(SlotName::from(name));
        }
    }
    names
}

/// How an invocation differs from the first.
#[derive(Default)]
struct Invocation {
    resumed: bool,
    restarted: bool,
    metadata: Map<String, Json>,
    confirmed: Option<bool>,
}

fn invoke(turn: &mut Turn<'_>, flow: &FlowId, step: &StepId, agent: &AgentName, how: Invocation) -> Next {
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

fn step_call<'a>(turn: &Turn<'a>, flow: &FlowId, step: &StepId) -> Option<(&'a AgentName, &'a [Condition])> {
    let project = turn.project;
    match &project.flow(flow.as_str())?.step(step.as_str())?.kind {
        StepKind::Call(Call::Agent { agent, exit_if }) => Some((agent, exit_if)),
        _ => None,
    }
}

/// The walk came to an agent's frame.
pub(super) fn on_top(turn: &mut Turn<'_>) -> Walk {
    let Some(Frame { kind: FrameKind::Agent(frame), flow_id, at, .. }) = turn.stack.last() else { return Walk::On };
    let (frame, flow) = (frame.clone(), flow_id.clone());
    let step = match at {
        Position::At(step) | Position::Before(step) => step.clone(),
        Position::Start | Position::End => return turn.end(),
    };
    if step_call(turn, &flow, &step).is_none() {
        // The project changed under the agent: its task cannot be named any more.
        turn.note(format!("`{flow}` calls no agent at `{step}` any more"));
        return turn.end();
    }
    if frame.state == AgentState::WaitingForInput {
        ask_again(turn, &frame);
        return Walk::Stop(turn.listen());
    }
    if turn.floor.is_some() {
        return Walk::Stop(turn.listen());
    }
    if frame.state == AgentState::Restarting {
        return from_its_step(turn, &flow, step);
    }
    let resumed = matches!(frame.state, AgentState::Interrupted | AgentState::Resuming);
    if resumed {
        let (flow_id, agent_id) = (flow.clone(), frame.agent_id.clone());
        turn.emit_here(EventKind::AgentResumed { flow_id, agent_id });
    }
    // A yes to going on is no yes to a call: what waits for one is shown again, whatever was said meanwhile.
    if resumed && (confirm::waits(&frame) || repeats(turn, &frame.agent_id)) {
        set_state(turn, AgentState::WaitingForInput);
        say_again(turn, &frame);
        return Walk::Stop(turn.listen());
    }
    let confirmed = (!resumed).then(|| confirm::answer(turn, &frame)).flatten();
    set_state(turn, AgentState::Continuing);
    let metadata = frame.metadata;
    // What was answered is answered: should this run be cut, a second yes finds nothing to run again.
    confirm::forget(turn);
    let how = Invocation { resumed, metadata, confirmed, ..Invocation::default() };
    Walk::Stop(invoke(turn, &flow, &step, &frame.agent_id, how))
}

/// A frame of an older program says that its agent begins anew: the flow goes back to the step that called it.
fn from_its_step(turn: &mut Turn<'_>, flow: &FlowId, step: StepId) -> Walk {
    let walks = |frame: &Frame| frame.flow_id == *flow && frame.is_flow();
    match turn.stack.iter().rposition(walks) {
        Some(at) => patterns::back_to(turn, at, step, "an agent of an earlier step begins anew"),
        None => _ = turn.stack.pop(),
    }
    Walk::On
}

/// What lay above an agent that waits has ended without a word: the user hears what they are waited for.
fn ask_again(turn: &mut Turn<'_>, frame: &AgentFrame) {
    if !turn.conversation().turn.spoke {
        say_again(turn, frame);
    }
}

/// Whether this agent's question is said again after an interruption, in place of a run.
fn repeats(turn: &Turn<'_>, agent: &AgentName) -> bool {
    let rule = turn.project.agent(agent.as_str()).map(|agent| agent.rules.resume);
    rule == Some(ResumeRule::Repeat) && last_text(turn, agent).is_some()
}

fn last_text(turn: &Turn<'_>, agent: &AgentName) -> Option<String> {
    turn.conversation().agents.get(agent).and_then(|record| record.last_text.clone())
}

/// Says what an agent waits for: the calls that it wants a yes to, else its last words.
fn say_again(turn: &mut Turn<'_>, frame: &AgentFrame) {
    let mut metadata = frame.metadata.clone();
    if confirm::ask(turn, &frame.agent_id, &mut metadata) {
        if let Some(frame) = turn.stack.last_mut().and_then(Frame::agent_mut) {
            frame.metadata = metadata;
        }
        return;
    }
    let Some(text) = last_text(turn, &frame.agent_id) else { return };
    let (reply, kind, agent) = (Reply::text(text), BotKind::InputRequired, Some(frame.agent_id.clone()));
    turn.emit_here(EventKind::bot(BotMessage { reply, kind, agent, ..BotMessage::default() }));
}

fn set_state(turn: &mut Turn<'_>, state: AgentState) {
    if let Some(agent) = turn.stack.last_mut().and_then(Frame::agent_mut) {
        agent.state = state;
    }
}

/// A message came while an agent still ran. The agent waits from now on, and the message may be for it; where the project no
/// longer has the step that called it, the task is over.
pub(super) fn park_running_agent(turn: &mut Turn<'_>, flow_id: FlowId, agent_id: AgentName) {
    if turn.stack.top().is_some_and(Frame::is_agent) {
        return;
    }
    let step = turn.stack.top().filter(|top| top.flow_id == flow_id).and_then(step_of).cloned();
    match step.filter(|_| matches!(called_by_top(turn), Some(Call::Agent { agent, .. }) if *agent == agent_id)) {
        Some(step) => {
            turn.note(format!("agent `{agent_id}` was cut short by a new message"));
            wait(turn, &flow_id, step, &agent_id, Map::new());
        }
        None => {
            let reason = Some("the step that called it is gone".to_owned());
            turn.emit_here(EventKind::AgentCancelled { flow_id, agent_id, reason });
        }
    }
}

/// An agent that was about to go on when the turn was stopped waits again.
pub(super) fn wait_again(turn: &mut Turn<'_>) {
    if let Some(agent) = turn.stack.last_mut().and_then(Frame::agent_mut)
        && agent.state == AgentState::Continuing
    {
        agent.state = AgentState::WaitingForInput;
    }
}

/// The turn ends while an agent runs that has no frame yet: nobody waits for it any more.
pub(super) fn give_up(turn: &mut Turn<'_>, reason: &str) {
    if let Some(PendingEffect::Agent { flow_id, agent_id, .. }) = turn.pending.clone() {
        without_frame(turn, &flow_id, &agent_id, reason);
    }
}

/// `continue agent`: the agent that waits gets the message, once the walk comes to it.
pub(super) fn go_on(turn: &mut Turn<'_>) {
    let mut agents = turn.stack.iter_mut().rev().filter_map(Frame::agent_mut);
    if let Some(agent) = agents.find(|agent| agent.state == AgentState::WaitingForInput) {
        agent.state = AgentState::Continuing;
    }
}

/// Where the chain on that base has called this agent last: the frame's place on the stack, and the step.
pub(super) fn restart_point(turn: &Turn<'_>, base: usize, agent: &AgentName) -> Option<(usize, StepId)> {
    let project = turn.project;
    interrupt::chain(&turn.stack, base).rev().find_map(|at| {
        let frame = turn.stack.get(at).filter(|frame| frame.is_flow())?;
        let flow = project.flow(frame.flow_id.as_str())?;
        let calls = |id: &&StepId| {
            let kind = flow.step(id.as_str()).map(|step| &step.kind);
            matches!(kind, Some(StepKind::Call(Call::Agent { agent: called, .. })) if called == agent)
        };
        Some((at, frame.trail.iter().rev().find(calls)?.clone()))
    })
}

/// `restart agent`: the flow on that base goes back to the step that called it, as after a correction, and walks on from there
/// when the agent is done. What the same message started above stays above.
pub(super) fn restart(turn: &mut Turn<'_>, base: usize, agent: &AgentName) {
    let Some((at, step)) = restart_point(turn, base, agent) else {
        return turn.note(format!("no flow under way has called `{agent}`, so it does not begin anew"));
    };
    patterns::back_to(turn, at, step, "an agent of an earlier step begins anew");
}

/// An agent came back from one invocation.
pub(super) fn came_back(turn: &mut Turn<'_>, mut outcome: AgentOutcome) -> Next {
    let Some(PendingEffect::Agent { flow_id: flow, step_id: step, agent_id: agent }) = turn.pending.clone() else {
        turn.note("an agent came back that nobody called");
        return Next::Listen;
    };
    if step_call(turn, &flow, &step).is_none() {
        turn.note(format!("`{agent}` came back, but the step that called it is gone"));
        return Next::Listen;
    }
    turn.pending = None;
    let in_doubt = outcome.events.iter().any(|event| super::failure::is_in_doubt(&event.kind));
    for mut event in outcome.events {
        // An agent's value is typed by the slot, as its tool for it is.
        if let EventKind::Slot { name, value, .. } = &mut event.kind
            && let Some(slot) = turn.project.slot(name.as_str())
        {
            *value = super::slots::coerced(&slot.kind, std::mem::take(value));
        }
        actions::accept(turn, event, FilledBy::Agent);
    }
    if turn.conversation().session.ended {
        return Next::EndSession;
    }
    match outcome.status {
        AgentStatus::AwaitingUser | AgentStatus::Yielded => {
            confirm::ask(turn, &agent, &mut outcome.metadata);
            wait(turn, &flow, step, &agent, outcome.metadata);
            let name = ActionName::from(REQUEST_INPUT);
            turn.emit_here(EventKind::Action { name });
            Next::Listen
        }
        AgentStatus::Finished => {
            let status = "completed".to_owned();
            let context_id = outcome.metadata.get(CONTEXT).and_then(Json::as_str).map(str::to_owned);
            turn.emit_here(EventKind::AgentCompleted { flow_id: flow, agent_id: agent, status, context_id });
            if turn.stack.top().is_some_and(Frame::is_agent) {
                turn.stack.pop();
            }
            turn.walk()
        }
        AgentStatus::Failed { code, reason } => {
            let in_doubt = in_doubt || code == SENT_IN_DOUBT;
            let error =
                if in_doubt { StepError::in_doubt(&code, &reason) } else { StepError::reported(&code, &reason) };
            failed(turn, &flow, &step, &agent, error);
            turn.walk()
        }
        AgentStatus::Cancelled { reason } => {
            cancelled(turn, &flow, &agent, &reason);
            turn.listen()
        }
    }
}

/// Keeps the agent's frame, or makes it: from now on it waits for the user.
fn wait(turn: &mut Turn<'_>, flow: &FlowId, step: StepId, agent: &AgentName, metadata: Map<String, Json>) {
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

/// The code of an agent of which nobody knows whether it took the message.
const SENT_IN_DOUBT: &str = "A0515";

/// The flow ends with every agent in it, and the user hears of it once.
fn failed(turn: &mut Turn<'_>, flow: &FlowId, step: &StepId, agent: &AgentName, error: StepError) {
    without_frame(turn, flow, agent, &error.message);
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

/// Somebody stopped the run: its flow goes, and nothing is said.
fn cancelled(turn: &mut Turn<'_>, flow: &FlowId, agent: &AgentName, reason: &str) {
    without_frame(turn, flow, agent, reason);
    interrupt::remove_chain(turn, reason);
}

/// An agent that is over and never got a frame has nothing whose end would be recorded.
fn without_frame(turn: &mut Turn<'_>, flow: &FlowId, agent: &AgentName, reason: &str) {
    if !turn.stack.top().is_some_and(Frame::is_agent) {
        let (flow_id, agent_id) = (flow.clone(), agent.clone());
        turn.emit_here(EventKind::AgentCancelled { flow_id, agent_id, reason: Some(reason.to_owned()) });
    }
}
