//! Budgets of tokens and money. A child's budget is a slice of its parent's: what a child spends, its parents spend.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::llm::Usage;

/// The limits of a budget; without any, it only counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct BudgetLimits {
    /// Input and output tokens; input includes cached tokens.
    pub(crate) tokens: Option<u64>,
    /// Cost, in the currency of the project's prices. Responses of models without a price cost nothing.
    pub(crate) cost: Option<f64>,
}

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
        let spent = self.spent();
        let tokens = self.limits.tokens.map(|limit| share(tokens_of(&spent) as f64, limit as f64));
        let cost = self.limits.cost.map(|limit| share(spent.cost.unwrap_or_default(), limit));
        let parent = self.parent.as_ref().map(|parent| parent.share());
        [tokens, cost, parent].into_iter().flatten().fold(0.0, f64::max)
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

    #[test]
    fn a_slice_spends_from_its_parents_and_is_spent_with_them() {
        let run = Budget::new(BudgetLimits { tokens: Some(1_000), cost: None });
        let task = run.slice(BudgetLimits::default());
        let [one, other] = [400, 2_000].map(|tokens| task.slice(BudgetLimits { tokens: Some(tokens), cost: None }));
        one.spend(&usage(150, 50, None));
        assert_eq!((one.share(), other.share(), run.share()), (0.5, 0.2, 0.2));
        other.spend(&usage(700, 100, None));
        assert_eq!((run.share(), one.share()), (1.0, 1.0), "the parent is spent");
        assert_eq!((run.spent().input, task.spent().output, one.spent().input), (850, 150, 150));
    }

    #[test]
    fn the_larger_share_of_tokens_and_cost_counts() {
        let budget = Budget::new(BudgetLimits { tokens: Some(1_000), cost: Some(2.0) });
        budget.spend(&usage(100, 0, Some(1.0)));
        assert_eq!(budget.share(), 0.5);
        budget.spend(&usage(700, 0, None));
        assert_eq!(budget.share(), 0.8, "a response without a price");
        assert_eq!(Budget::new(BudgetLimits { tokens: Some(0), cost: None }).share(), 1.0);
        assert_eq!(Budget::new(BudgetLimits::default()).share(), 0.0);
    }
}
