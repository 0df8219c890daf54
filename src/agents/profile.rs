//! The profile of a run: the settings in which open agents and task agents differ, and the limits of the loop.

use std::{sync::Arc, time::Duration};

use segue_engine::{
    condition::Condition,
    conversation::{AgentCall, AgentKind},
    project::{AgentDef, Call, OnToolError, Project, StepKind},
};

use super::{AgentRequest, completion, slot_tools};
use crate::limits;

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
    /// What happens when a tool fails.
    pub(super) on_tool_error: OnToolError,
    /// Model calls of one run.
    pub(super) max_iterations: u32,
    /// Time limit of one tool call, if the configuration sets one.
    pub(super) tool_timeout: Option<Duration>,
    /// Consecutive model responses whose calls may all fail; one more ends the run.
    pub(super) max_failed_answers: u32,
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
            on_tool_error: definition.on_tool_error,
            max_iterations: definition.max_iterations.unwrap_or(limits::AGENT_ITERATIONS).min(limits::LOOP_MODEL_CALLS),
            tool_timeout: definition.tool_timeout,
            max_failed_answers: limits::AGENT_FAILURES,
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
