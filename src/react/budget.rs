//! Budgets of tokens and money. A child's budget is a slice of its parent's: what a child spends, its parents spend.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use segue_engine::project::BudgetLimits;

use crate::llm::Usage;

/// A counter with limits, shared by all loops that spend from it.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: BudgetLimits,
    /// Never locked while a parent is.
    spent: Mutex<Usage>,
    parent: Option<Arc<Budget>>,
}

impl Budget {
    /// A budget without a parent.
    pub(crate) fn new(limits: BudgetLimits) -> Arc<Self> {
        Arc::new(Self { limits, spent: Mutex::default(), parent: None })
    }
    /// A budget that also spends from this one.
    pub(crate) fn slice(self: &Arc<Self>, limits: BudgetLimits) -> Arc<Self> {
        Arc::new(Self { limits, spent: Mutex::default(), parent: Some(self.clone()) })
    }

    /// Adds the usage of a response, here and in all parents.
    pub(crate) fn spend(&self, usage: &Usage) {
        *self.lock() += *usage;
        if let Some(parent) = &self.parent {
            parent.spend(usage);
        }
    }
    /// The spent share: the largest of tokens and cost, here and in all parents. A limit of 0 is always spent.
    pub(crate) fn share(&self) -> f64 {
        let parent = self.parent.as_ref().map(|parent| parent.share());
        [self.own_share(), parent].into_iter().flatten().fold(0.0, f64::max)
    }
    /// Whether nothing is left, here or in a parent.
    pub(crate) fn is_spent(&self) -> bool {
        self.share() >= 1.0
    }
    /// Whether the share at which those who spend from it are asked to finish is reached, here or in a parent.
    pub(crate) fn is_near(&self) -> bool {
        let own = self.own_share().zip(self.limits.warn_at).is_some_and(|(share, warn_at)| share >= warn_at);
        own || self.parent.as_ref().is_some_and(|parent| parent.is_near())
    }
    /// Whether it or a parent has a limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.limits.is_limited() || self.parent.as_ref().is_some_and(|parent| parent.is_limited())
    }
    /// The tokens that are left here and in all parents; `None` without a limit of tokens.
    pub(crate) fn tokens_left(&self) -> Option<u64> {
        let own = self.limits.tokens.map(|limit| limit.saturating_sub(tokens_of(&self.spent())));
        let parent = self.parent.as_ref().and_then(|parent| parent.tokens_left());
        own.into_iter().chain(parent).min()
    }
    /// Sets half of what is left aside, for work that outlives the run. Returns the limits of that work; without a limit, nothing is
    /// set aside.
    pub(crate) fn reserve_half(&self) -> BudgetLimits {
        let reserve = BudgetLimits {
            tokens: self.tokens_left().map(|left| left / 2),
            cost: self.cost_left().map(|left| left / 2.0),
            warn_at: None,
        };
        self.set_aside(reserve);
        reserve
    }
    /// Sets a part of the budget aside: it counts as spent.
    pub(crate) fn set_aside(&self, reserve: BudgetLimits) {
        self.spend(&Usage { input: reserve.tokens.unwrap_or_default(), cost: reserve.cost, ..Usage::default() });
    }
    fn cost_left(&self) -> Option<f64> {
        let spent = self.spent().cost.unwrap_or_default();
        let own = self.limits.cost.map(|limit| (limit - spent).max(0.0));
        let parent = self.parent.as_ref().and_then(|parent| parent.cost_left());
        own.into_iter().chain(parent).reduce(f64::min)
    }
    fn own_share(&self) -> Option<f64> {
        let spent = self.spent();
        let tokens = self.limits.tokens.map(|limit| share(tokens_of(&spent) as f64, limit as f64));
        let cost = self.limits.cost.map(|limit| share(spent.cost.unwrap_or_default(), limit));
        tokens.into_iter().chain(cost).reduce(f64::max)
    }
    /// What was spent from this budget, by its slices too.
    pub(crate) fn spent(&self) -> Usage {
        *self.lock()
    }
    /// Sets what was spent, when a stored run continues. Parents restore theirs, which includes this.
    pub(crate) fn restore(&self, spent: Usage) {
        *self.lock() = spent;
    }

    fn lock(&self) -> MutexGuard<'_, Usage> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tokens_of(usage: &Usage) -> u64 {
    usage.input.saturating_add(usage.output)
}

fn share(spent: f64, limit: f64) -> f64 {
    if limit > 0.0 { spent / limit } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: u64, output: u64, cost: Option<f64>) -> Usage {
        Usage { input, output, cost, ..Usage::default() }
    }

    fn tokens(limit: u64) -> BudgetLimits {
        BudgetLimits::of_tokens(limit)
    }

    #[test]
    fn a_slice_spends_from_its_parents_and_is_spent_with_them() {
        let run = Budget::new(tokens(1_000));
        let task = run.slice(BudgetLimits::default());
        let [one, other] = [400, 2_000].map(|limit| task.slice(tokens(limit)));
        one.spend(&usage(150, 50, None));
        assert_eq!((one.share(), other.share(), run.share()), (0.5, 0.2, 0.2));
        other.spend(&usage(700, 100, None));
        assert_eq!((run.share(), one.share()), (1.0, 1.0), "the parent is spent");
        assert_eq!((run.spent().input, task.spent().output, one.spent().input), (850, 150, 150));
    }

    #[test]
    fn what_is_left_and_when_to_finish_depend_on_all_parents() {
        let run = Budget::new(BudgetLimits { warn_at: Some(0.8), ..tokens(1_000) });
        let own = run.slice(BudgetLimits { warn_at: Some(0.5), ..tokens(400) });
        assert_eq!((own.tokens_left(), own.is_near(), own.is_limited()), (Some(400), false, true));
        own.spend(&usage(200, 0, None));
        assert_eq!((own.tokens_left(), own.is_near(), run.is_near()), (Some(200), true, false));
        run.spend(&usage(700, 0, None));
        assert_eq!((own.tokens_left(), run.is_near(), own.is_spent()), (Some(100), true, false));
        run.spend(&usage(100, 0, None));
        assert!(own.is_spent() && own.tokens_left() == Some(0));
        let run = Budget::new(BudgetLimits { cost: Some(3.0), ..tokens(1_000) });
        run.spend(&usage(200, 0, Some(1.0)));
        let reserve = run.slice(tokens(500)).reserve_half();
        assert_eq!((reserve.tokens, reserve.cost), (Some(250), Some(1.0)));
        assert_eq!((run.tokens_left(), run.cost_left()), (Some(550), Some(1.0)));
        assert_eq!(Budget::new(BudgetLimits::default()).reserve_half(), BudgetLimits::default());
        let open = Budget::new(BudgetLimits { warn_at: Some(0.0), ..BudgetLimits::default() });
        assert_eq!((open.tokens_left(), open.is_near(), open.is_limited()), (None, false, false));
    }

    #[test]
    fn the_larger_share_of_tokens_and_cost_counts() {
        let budget = Budget::new(BudgetLimits { cost: Some(2.0), ..tokens(1_000) });
        budget.spend(&usage(100, 0, Some(1.0)));
        assert_eq!(budget.share(), 0.5);
        budget.spend(&usage(700, 0, None));
        assert_eq!(budget.share(), 0.8, "a response without a price");
        assert_eq!(Budget::new(tokens(0)).share(), 1.0);
        assert_eq!(Budget::new(BudgetLimits::default()).share(), 0.0);
    }
}
