//! The profiles of open agents and task agents.

use std::sync::Arc;

use segue_engine::{
    condition::Condition,
    conversation::{AgentCall, AgentKind, BotKind},
    project::{AgentDef, Call, OnToolError, Project, StepKind},
};

use super::{AgentRequest, completion, slot_tools};
use crate::{
    limits,
    llm::Purpose,
    react::{BareText, LoopProfile},
};

/// The profile of one run.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    /// Open or task.
    pub(super) kind: AgentKind,
    /// The conditions that complete a task: all must be true.
    pub(super) exit_if: Vec<Condition>,
    /// The slots that `exit_if` names, by first appearance: the order of their tools never changes.
    pub(super) exit_slots: Vec<Arc<str>>,
    /// Whether texts before tool calls are fillers.
    pub(super) fillers: bool,
    /// The data of the loop.
    pub(super) react: LoopProfile,
}

impl Profile {
    /// The slots to fill, for templates.
    pub(super) fn slot_names(&self) -> Vec<String> {
        self.exit_slots.iter().map(|name| name.to_string()).collect()
    }
    /// The profile from the calling step and the agent's configuration.
    pub(super) fn new(request: &AgentRequest<'_>) -> Self {
        let exit_if = exit_conditions(request.project, request.call);
        let definition: &AgentDef = request.definition;
        Self {
            kind: request.call.kind,
            exit_slots: exit_slots(&exit_if),
            exit_if,
            fillers: definition.enable_filler_messages,
            react: LoopProfile {
                purpose: Purpose::AGENT,
                bare_text: BareText::AskUser,
                closing_message: request.call.kind == AgentKind::Open,
                max_model_calls: definition
                    .max_iterations
                    .unwrap_or(limits::AGENT_ITERATIONS)
                    .min(segue_engine::limits::AGENT_MODEL_CALLS),
                max_failed_answers: limits::AGENT_FAILURES,
                fails_on_tool_error: definition.on_tool_error == OnToolError::Fail,
                tool_timeout: definition.tool_timeout,
                text_beside_calls: match definition.enable_filler_messages {
                    true => BotKind::Filler,
                    false => BotKind::Intermediate,
                },
            },
        }
    }
}

/// Names that tools of servers may not have in a run.
pub(super) fn reserved_names(project: &Project, call: &AgentCall) -> Vec<String> {
    match call.kind {
        AgentKind::Open => vec![completion::TASK_COMPLETED.to_owned()],
        AgentKind::Task => exit_slots(&exit_conditions(project, call))
            .iter()
            .map(|name| format!("{}{name}", slot_tools::PREFIX))
            .collect(),
    }
}

fn exit_conditions(project: &Project, call: &AgentCall) -> Vec<Condition> {
    let step = project.flow(call.flow_id.as_str()).and_then(|flow| flow.step(call.step_id.as_str()));
    match step.map(|step| &step.kind) {
        Some(StepKind::Call(Call::Agent { exit_if, .. })) => exit_if.clone(),
        _ => Vec::new(),
    }
}

fn exit_slots(conditions: &[Condition]) -> Vec<Arc<str>> {
    let mut names: Vec<Arc<str>> = Vec::new();
    for name in conditions.iter().flat_map(Condition::slots) {
        if !names.iter().any(|known| **known == *name) {
            names.push(name.into());
        }
    }
    names
}
