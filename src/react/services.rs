//! The services of a loop: guards, compaction and the store of long results.

use std::sync::Arc;

use super::{
    budget::Budget,
    compaction::CompactionRules,
    guards::{BudgetGuard, Guards, RepeatGuard, RepeatLimits},
    interception::ResultStore,
    skills::SkillSession,
};

/// The services of a loop. By default: the guard against repeated calls; no compaction; long results are cut; no skills.
#[derive(Default)]
pub(crate) struct LoopServices {
    /// The guards.
    pub(crate) guards: Guards,
    /// When the history is compacted, if ever.
    pub(crate) compaction: Option<CompactionRules>,
    /// Where long results are stored; without one they are cut.
    pub(crate) results: Option<Arc<ResultStore>>,
    /// The skills that the agent may load, if any.
    pub(crate) skills: Option<SkillSession>,
}

impl LoopServices {
    /// The services of an agent in a conversation.
    pub(crate) fn of_dialogues() -> Self {
        let repeats = RepeatGuard::new(RepeatLimits::of_dialogues());
        Self { guards: Guards::of(vec![Box::new(repeats)]), ..Self::default() }
    }

    /// The same services, and a guard of this budget, if it has a limit.
    #[must_use]
    pub(crate) fn with_budget(mut self, budget: Arc<Budget>) -> Self {
        if budget.is_limited() {
            self.guards = self.guards.with(BudgetGuard::new(budget));
        }
        self
    }
}
