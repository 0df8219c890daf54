//! Budgets while an agent works: they are compared after each response of its loop, as after each response of a commander, so that one
//! response at most goes beyond a budget in each loop.

use segue_engine::project::missions::OnBreach;

use super::slice::UnitRun;
use crate::context::CallContext;

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

impl UnitRun {
    /// Compares the budgets of the task and of the run after a response of an agent. `None`: the state cannot be read or stored.
    pub(super) async fn after_response(&self, model_calls: u32, cx: &CallContext) -> Option<AfterResponse> {
        let task = self.def.tasks.get(&self.id.task);
        let mut budgets = task.and_then(|task| task.budget).into_iter().chain(self.def.budget);
        if budgets.clone().next().is_none() {
            return Some(AfterResponse::GoOn);
        }
        let fails = self.journal.check_budgets(&self.def).await?;
        let state = self.view.latest().await.ok()?;
        // A task that always runs goes on although the run fails.
        if fails && task.is_none_or(|task| !task.always) || state.budget_question(&self.id.task).is_some() {
            return Some(AfterResponse::Stop);
        }
        if !budgets.any(|budget| budget.on_breach == OnBreach::FinishTurn) {
            return Some(AfterResponse::GoOn);
        }
        // Recorded, because other units spend from the same budgets: a step that runs again decides the same.
        let must_finish = async { Some(state.must_finish(&self.id.task)) };
        let must_finish = self.journal.once(&cx.step(format!("last.{model_calls}")).key, must_finish).await?;
        Some(if must_finish { AfterResponse::Finish } else { AfterResponse::GoOn })
    }
}
