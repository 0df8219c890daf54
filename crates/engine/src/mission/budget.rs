//! Budgets: warnings and breaches, computed from the recorded usage.

use std::sync::Arc;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::{
    event::{IssueSeverity, NewEvent, PersonQuestion, RunEventKind},
    state::{HumanInput, RunState},
    unit::UnitId,
};
use crate::project::missions::{BudgetDef, MissionDef, OnBreach};
use crate::usage::Usage;

/// The code of a failure by a used-up budget.
pub const CODE_EXCEEDED: &str = "budget.exceeded";
/// The answer of a person that raises a used-up budget.
pub const ANSWER_CONTINUE: &str = "continue";
/// The answer of a person that ends the run.
pub const ANSWER_STOP: &str = "stop";
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
    /// The question to a person whether the budget is raised. The units that it concerns wait for the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Arc<str>>,
}

impl BudgetIssue {
    pub(super) fn from_details(category: &str, details: &Json) -> Option<Self> {
        if !matches!(category, CATEGORY_WARNING | CATEGORY_EXCEEDED) {
            return None;
        }
        serde_json::from_value(details.clone()).ok()
    }

    /// Whether the run fails by it.
    fn is_final(&self) -> bool {
        self.is_breach && !self.finish_turn && self.question.is_none()
    }

    /// The question to a person, if there is one.
    fn input<'a>(&self, inputs: &'a IndexMap<Arc<str>, HumanInput>) -> Option<&'a HumanInput> {
        inputs.get(self.question.as_ref()?)
    }

    /// Whether a person has raised the budget.
    fn is_raised(&self, inputs: &IndexMap<Arc<str>, HumanInput>) -> bool {
        self.input(inputs).is_some_and(|input| input.answer.as_deref() == Some(ANSWER_CONTINUE))
    }

    /// Whether it still holds when the run is resumed: a warning, a raised budget, and a question that is open. Other breaches are
    /// recorded again if the budget is still used up.
    pub(super) fn outlasts_the_end(&self, inputs: &IndexMap<Arc<str>, HumanInput>) -> bool {
        !self.is_breach || self.is_raised(inputs) || self.input(inputs).is_some_and(|input| input.open)
    }

    fn sentence(&self, mission: &str) -> String {
        let scope = match &self.task {
            Some(task) => format!("task {task}"),
            None => format!("mission {mission}"),
        };
        let state = if self.is_breach { "used up" } else { "nearly used up" };
        format!("the budget of {scope} is {state}: {} of {} {}", self.used, self.limit, self.unit())
    }

    fn unit(&self) -> &'static str {
        match self.kind {
            BudgetKind::Tokens => "tokens",
            BudgetKind::Cost => "cost units",
        }
    }

    /// The event of the question to a person. `raise`: by how much the answer raises the budget.
    fn request(&self, mission: &str, raise: f64, timeout_seconds: Option<u64>, unit: &UnitId) -> Option<NewEvent> {
        let sentence = self.sentence(mission);
        let counted = self.unit();
        let question = PersonQuestion {
            question: format!(
                "{}{}. `{ANSWER_CONTINUE}` adds {raise} {counted}, `{ANSWER_STOP}` ends the run.",
                sentence.get(..1).unwrap_or_default().to_uppercase(),
                sentence.get(1..).unwrap_or_default()
            )
            .into(),
            short_summary: Some("a used-up budget".into()),
            choices: vec![ANSWER_CONTINUE.into(), ANSWER_STOP.into()],
            timeout_seconds,
            ..PersonQuestion::default()
        };
        let kind = RunEventKind::HumanInputRequested { question_id: self.question.clone()?, question };
        Some(NewEvent::of_unit(unit, kind))
    }

    fn event(&self, mission: &str) -> NewEvent {
        let message = self.sentence(mission);
        let severity = match (self.is_final(), self.is_breach) {
            (true, _) => IssueSeverity::Fatal,
            (false, true) => IssueSeverity::Error,
            (false, false) => IssueSeverity::Warning,
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

impl RunState {
    /// Why the run fails, if that is the budget of this task itself.
    pub(super) fn budget_breach(&self, task: &str) -> Option<&Arc<str>> {
        let is_own = |issue: &BudgetIssue| issue.is_final() && issue.task.as_deref() == Some(task);
        let failure = self.failure.as_ref().filter(|failure| &*failure.code == CODE_EXCEEDED)?;
        self.budget_issues.iter().any(is_own).then_some(&failure.error)
    }

    /// Whether the run fails because a budget is used up.
    pub fn fails_by_budget(&self) -> bool {
        self.budget_issues.iter().any(BudgetIssue::is_final)
    }

    /// The open question whether a used-up budget is raised, of this task or of the run. The units that it concerns wait for the answer.
    pub fn budget_question(&self, task: &str) -> Option<&Arc<str>> {
        let concerns = |issue: &&BudgetIssue| issue.task.as_deref().is_none_or(|name| name == task);
        let is_open = |issue: &&BudgetIssue| issue.input(&self.human_inputs).is_some_and(|input| input.open);
        self.budget_issues.iter().filter(concerns).find(is_open)?.question.as_ref()
    }
}

/// Whether a person is asked when a budget of this task or of the run is used up.
pub fn asks(def: &MissionDef, task: &str) -> bool {
    let of_task = def.tasks.get(task).and_then(|task| task.budget);
    of_task.into_iter().chain(def.budget).any(|budget| budget.on_breach == OnBreach::Ask)
}

/// The events to record before and after model calls of a unit: warnings and breaches that are not recorded yet. The budget of the task
/// comes before that of the run, tokens before cost; after the first breach nothing more is recorded.
///
/// With `on_breach: ask` a breach is recorded with a question to a person, on behalf of this unit if it has not ended. If the answer
/// raises the budget, as much as it had is added to what was used; if it does not, or if the time of the question is over, the run fails.
pub fn check(def: &MissionDef, state: &RunState, unit: &UnitId) -> Vec<NewEvent> {
    let mut events = Vec::new();
    if state.budget_issues.iter().any(BudgetIssue::is_final) {
        return events;
    }
    let task_state = state.tasks.get(&unit.task);
    let is_open = task_state.and_then(|task| task.unit(unit)).is_some_and(|unit| unit.status.is_open());
    let questions = def.tasks.get(&unit.task).map(|task| &task.questions);
    let of_task = def.tasks.get_key_value(&unit.task).and_then(|(name, task)| Some((Some(name), task.budget?)));
    let used_by_task = task_state.map(|task| task.usage.usage).unwrap_or_default();
    let of_run = def.budget.map(|budget| (None, budget));
    for ((task, budget), used) in
        of_task.map(|of| (of, used_by_task)).into_iter().chain(of_run.map(|of| (of, state.usage.usage)))
    {
        for (kind, used, amount) in amounts(&budget, &used) {
            let of_budget = |issue: &&BudgetIssue| issue.task.as_ref() == task && issue.kind == kind;
            let issues = || state.budget_issues.iter().filter(of_budget);
            let new = |limit, is_breach| BudgetIssue {
                task: task.cloned(),
                kind,
                used,
                limit,
                is_breach,
                finish_turn: budget.on_breach == OnBreach::FinishTurn,
                question: None,
            };
            let limit = match issues().rfind(|issue| issue.question.is_some()) {
                None => amount,
                Some(asked) if asked.is_raised(&state.human_inputs) => asked.used + amount,
                Some(asked) if asked.input(&state.human_inputs).is_some_and(|input| input.open) => continue,
                Some(asked) => {
                    events.push(new(asked.limit, true).event(&def.name));
                    return events;
                }
            };
            let is_breach = used >= limit;
            let is_known = issues().any(|issue| issue.is_breach == is_breach && issue.limit == limit);
            if is_known || !is_breach && budget.limits.warn_at.is_none_or(|share| used < limit * share) {
                continue;
            }
            let mut issue = new(limit, is_breach);
            if is_breach && budget.on_breach == OnBreach::Ask {
                if !is_open {
                    continue; // the next unit that would use it asks
                }
                let prefix = question_prefix(state, task, kind);
                let asked = state.human_inputs.keys().filter(|id| id.starts_with(&*prefix)).count();
                issue.question = Some(format!("{prefix}{}", asked + 1).into());
                let timeout = questions.and_then(|questions| questions.timeout_seconds);
                events.push(issue.event(&def.name));
                events.extend(issue.request(&def.name, amount, timeout, unit));
                return events;
            }
            events.push(issue.event(&def.name));
            if is_breach {
                return events;
            }
        }
    }
    events
}

/// How much there is of a budget: what is declared, or more if a person has raised it. `task`: `None` for the budget of the run.
pub fn limit_of(state: &RunState, task: Option<&str>, kind: BudgetKind, declared: f64) -> f64 {
    let is_raised = |issue: &&BudgetIssue| {
        issue.task.as_deref() == task && issue.kind == kind && issue.is_raised(&state.human_inputs)
    };
    state.budget_issues.iter().rfind(is_raised).map_or(declared, |asked| asked.used + declared)
}

/// What the ids of the questions about a budget begin with.
fn question_prefix(state: &RunState, task: Option<&Arc<str>>, kind: BudgetKind) -> String {
    let kind = match kind {
        BudgetKind::Tokens => "tokens",
        BudgetKind::Cost => "cost",
    };
    match task {
        Some(task) => format!("{}/budget/{task}/{kind}/", state.run),
        None => format!("{}/budget/{kind}/", state.run),
    }
}

fn amounts(budget: &BudgetDef, used: &Usage) -> Vec<(BudgetKind, f64, f64)> {
    let mut amounts = Vec::new();
    if let Some(limit) = budget.limits.tokens {
        amounts.push((BudgetKind::Tokens, used.input.saturating_add(used.output) as f64, limit as f64));
    }
    if let Some(limit) = budget.limits.cost {
        amounts.push((BudgetKind::Cost, used.cost.unwrap_or(0.0), limit));
    }
    amounts
}
