//! What differs between the dialogue profiles of the one loop.

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
    /// When a task agent is done: all must hold.
    pub(super) exit_if: Vec<Condition>,
    /// The slots that `exit_if` names, by first appearance: the order of their tools never changes.
    pub(super) exit_slots: Vec<Arc<str>>,
    /// Whether texts before tool calls are fillers.
    pub(super) fillers: bool,
    /// What a failed tool does.
    pub(super) on_tool_error: OnToolError,
    /// Iterations of one run.
    pub(super) iterations: u32,
    /// Time for one tool call, where the author set one.
    pub(super) tool_timeout: Option<Duration>,
    /// Answers in a row of which no call works; one more ends the run.
    pub(super) failures: u32,
}

impl Profile {
    /// The slots to fill, for templates.
    pub(super) fn slot_names(&self) -> Vec<String> {
        self.exit_slots.iter().map(|name| name.to_string()).collect()
    }
    /// The profile that the calling step and the agent's configuration make.
    pub(super) fn of(task: &AgentRequest<'_>) -> Self {
        let exit_if = exit_conditions(task.project, task.call);
        let definition: &AgentDef = task.definition;
        Self {
            kind: task.call.kind,
            exit_slots: exit_slots(&exit_if),
            exit_if,
            fillers: definition.enable_filler_messages,
            on_tool_error: definition.on_tool_error,
            iterations: definition.max_iterations.unwrap_or(limits::AGENT_ITERATIONS).min(limits::LOOP_MODEL_CALLS),
            tool_timeout: definition.tool_timeout,
            failures: limits::AGENT_FAILURES,
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
