//! Budgets: warnings and breaches, computed from the recorded usage.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::{
    event::{IssueSeverity, NewEvent, RunEventKind},
    state::RunState,
};
use crate::project::missions::{BudgetDef, MissionDef, OnBreach};
use crate::usage::Usage;

/// The code of a failure by a used-up budget.
pub const CODE_EXCEEDED: &str = "budget.exceeded";
const CATEGORY_WARNING: &str = "budget_warning";
const CATEGORY_EXCEEDED: &str = "budget_exceeded";

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetKind {
    /// Input and output tokens.
    Tokens,
    /// Cost in the currency of the project's prices.
    Cost,
}

/// A recorded warning or breach of a budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BudgetIssue {
    /// The task whose budget it is; absent for that of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Arc<str>>,
    /// What is counted.
    pub kind: BudgetKind,
    /// How much was used.
    pub used: f64,
    /// How much there is.
    pub limit: f64,
    /// Whether it is used up; otherwise the issue is a warning.
    #[serde(default)]
    pub is_breach: bool,
    /// Whether open loops get one more turn to end their work.
    #[serde(default)]
    pub finish_turn: bool,
}

impl BudgetIssue {
    pub(super) fn from_details(category: &str, details: &Json) -> Option<Self> {
        if !matches!(category, CATEGORY_WARNING | CATEGORY_EXCEEDED) {
            return None;
        }
        serde_json::from_value(details.clone()).ok()
    }

    fn event(&self, mission: &str) -> NewEvent {
        let scope = match &self.task {
            Some(task) => format!("task {task}"),
            None => format!("mission {mission}"),
        };
        let unit = match self.kind {
            BudgetKind::Tokens => "tokens",
            BudgetKind::Cost => "cost units",
        };
        let message = match self.is_breach {
            true => format!("the budget of {scope} is used up: {} of {} {unit}", self.used, self.limit),
            false => format!("the budget of {scope} is nearly used up: {} of {} {unit}", self.used, self.limit),
        };
        let severity = match (self.is_breach, self.finish_turn) {
            (true, false) => IssueSeverity::Fatal,
            (true, true) => IssueSeverity::Error,
            (false, _) => IssueSeverity::Warning,
        };
        let category = if self.is_breach { CATEGORY_EXCEEDED } else { CATEGORY_WARNING };
        let kind = RunEventKind::MissionIssue {
            severity,
            category: category.into(),
            message: message.into(),
            details: serde_json::to_value(self).unwrap_or_default(),
        };
        match &self.task {
            Some(task) => NewEvent::of_task(task, kind),
            None => NewEvent::of_run(kind),
        }
    }
}

/// The events to record after model calls of a task: warnings and breaches that are not recorded yet. The budget of the task comes before
/// that of the run, tokens before cost; after the first breach nothing more is recorded.
pub fn check(def: &MissionDef, state: &RunState, task: &str) -> Vec<NewEvent> {
    let mut events = Vec::new();
    if state.budget_issues.iter().any(|issue| issue.is_breach && !issue.finish_turn) {
        return events;
    }
    let of_task = def.tasks.get_key_value(task).and_then(|(name, task)| Some((Some(name), task.budget?)));
    let used_by_task = state.tasks.get(task).map(|task| task.usage.usage).unwrap_or_default();
    let of_run = def.budget.map(|budget| (None, budget));
    for ((task, budget), used) in
        of_task.map(|of| (of, used_by_task)).into_iter().chain(of_run.map(|of| (of, state.usage.usage)))
    {
        for (kind, used, limit) in amounts(&budget, &used) {
            let known = |is_breach: bool| {
                let same = |issue: &&BudgetIssue| {
                    issue.task.as_ref() == task && issue.kind == kind && issue.is_breach == is_breach
                };
                state.budget_issues.iter().find(same).is_some()
            };
            let is_breach = used >= limit;
            if known(is_breach) || (!is_breach && used < limit * budget.warn_at) {
                continue;
            }
            let finish_turn = budget.on_breach == OnBreach::FinishTurn;
            let issue = BudgetIssue { task: task.cloned(), kind, used, limit, is_breach, finish_turn };
            events.push(issue.event(&def.name));
            if is_breach {
                return events;
            }
        }
    }
    events
}

fn amounts(budget: &BudgetDef, used: &Usage) -> Vec<(BudgetKind, f64, f64)> {
    let mut amounts = Vec::new();
    if let Some(limit) = budget.tokens {
        amounts.push((BudgetKind::Tokens, used.input.saturating_add(used.output) as f64, limit as f64));
    }
    if let Some(limit) = budget.cost {
        amounts.push((BudgetKind::Cost, used.cost.unwrap_or(0.0), limit));
    }
    amounts
}
