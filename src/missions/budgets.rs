//! Budgets while agents and their sub-agents work: they are compared after each response, as after each response of a commander, so that
//! one response at most goes beyond a budget in each loop.

use std::sync::Arc;

use async_trait::async_trait;
use segue_engine::{
    mission::{
        budget::{self, BudgetKind},
        state::RunState,
        unit::UnitId,
    },
    project::{
        BudgetLimits,
        missions::{BudgetDef, MissionDef, OnBreach},
    },
    usage::Usage,
};

use super::{journal::UnitJournal, slice::UnitRun, view::RunView};
use crate::{
    context::CallContext,
    delegation::{BudgetCheck, SharedBudget},
};

/// What follows for a loop after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterResponse {
    /// It goes on.
    GoOn,
    /// It is asked for its answer: a budget is used up, and open work gets one more turn.
    Finish,
    /// It stops where it is: the run fails by a used-up budget, or a person is asked whether it is raised.
    Stop,
}

/// The budgets of a task and of its run, of which there is at least one.
pub(super) struct TaskBudgets {
    def: Arc<MissionDef>,
    id: UnitId,
    view: Arc<RunView>,
    journal: Arc<UnitJournal>,
}

impl UnitRun {
    /// The budgets that the unit spends from, if there is one.
    pub(super) fn budgets(&self) -> Option<TaskBudgets> {
        let of_task = self.def.tasks.get(&self.id.task).and_then(|task| task.budget);
        of_task.or(self.def.budget)?;
        Some(TaskBudgets {
            def: self.def.clone(),
            id: self.id.clone(),
            view: self.view.clone(),
            journal: self.journal.clone(),
        })
    }

    /// Compares the budgets of the task and of the run after a response of an agent. `None`: the state cannot be read or stored.
    pub(super) async fn after_response(&self, model_calls: u32, cx: &CallContext) -> Option<AfterResponse> {
        let Some(budgets) = self.budgets() else { return Some(AfterResponse::GoOn) };
        let (after, _) = budgets.compare().await?;
        if after == AfterResponse::Stop || !budgets.all().any(|(_, budget)| budget.on_breach == OnBreach::FinishTurn) {
            return Some(after);
        }
        // Recorded, because other units spend from the same budgets: a step that runs again decides the same.
        let must_finish = async { Some(after == AfterResponse::Finish) };
        let must_finish = self.journal.once(&cx.step(format!("last.{model_calls}")).key, must_finish).await?;
        Some(if must_finish { AfterResponse::Finish } else { AfterResponse::GoOn })
    }
}

impl TaskBudgets {
    /// Each budget, with its task unless it is that of the run.
    fn all(&self) -> impl Iterator<Item = (Option<&str>, BudgetDef)> {
        let of_task = self.def.tasks.get(&self.id.task).and_then(|task| task.budget);
        of_task
            .map(|budget| (Some(&*self.id.task), budget))
            .into_iter()
            .chain(self.def.budget.map(|budget| (None, budget)))
    }

    /// Stores the usage so far, and the warnings and breaches that follow from it. Returns what follows for a loop of the unit, and the
    /// budgets that are near their end or limit its tokens. `None`: the state cannot be read or stored.
    async fn compare(&self) -> Option<(AfterResponse, BudgetCheck)> {
        let fails = self.journal.check_budgets(&self.def).await?;
        let state = self.view.latest().await.ok()?;
        // A task that always runs goes on although the run fails.
        let always = self.def.tasks.get(&self.id.task).is_some_and(|task| task.always);
        let after = if fails && !always || state.budget_question(&self.id.task).is_some() {
            AfterResponse::Stop
        } else if state.must_finish(&self.id.task) {
            AfterResponse::Finish
        } else {
            AfterResponse::GoOn
        };
        let limiting = self.all().filter(|(task, _)| task.is_some() || !always);
        let checks = limiting.map(|(task, budget)| left_of(&state, task, &self.id, budget.limits));
        let check = checks.fold(BudgetCheck::default(), BudgetCheck::with);
        Some((after, BudgetCheck { is_spent: after != AfterResponse::GoOn, ..check }))
    }
}

#[async_trait]
impl SharedBudget for TaskBudgets {
    async fn check(&self) -> Option<BudgetCheck> {
        self.compare().await.map(|(_, check)| check)
    }
}

/// What is left of the budget of a task, or of the run without one.
fn left_of(state: &RunState, task: Option<&str>, id: &UnitId, limits: BudgetLimits) -> BudgetCheck {
    let used_by_task = || state.tasks.get(&id.task).map(|task| task.usage.usage).unwrap_or_default();
    let used: Usage = if task.is_some() { used_by_task() } else { state.usage.usage };
    let limit = |kind, declared| budget::limit_of(state, task, kind, declared);
    let is_near = |used: f64, limit: f64| limits.warn_at.is_some_and(|share| used >= limit * share);
    let used_tokens = used.input.saturating_add(used.output);
    let tokens = limits.tokens.map(|tokens| (used_tokens, limit(BudgetKind::Tokens, tokens as f64)));
    let cost = limits.cost.map(|cost| (used.cost.unwrap_or_default(), limit(BudgetKind::Cost, cost)));
    BudgetCheck {
        is_spent: false,
        is_near: tokens.is_some_and(|(used, limit)| is_near(used as f64, limit))
            || cost.is_some_and(|(used, limit)| is_near(used, limit)),
        tokens_left: tokens.map(|(used, limit)| (limit as u64).saturating_sub(used)),
    }
}
