//! The limits of budgets, of missions, agents and sub-agents alike.

use serde::{Deserialize, Serialize};

/// The limits of a budget; without any, it only counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BudgetLimits {
    /// Input and output tokens; input includes cached tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Cost, in the currency of the project's prices. Responses of models without a price cost nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// The share at which those who spend from it are asked to finish, above 0 and at most 1; never if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warn_at: Option<f64>,
}

impl BudgetLimits {
    /// A limit of input and output tokens.
    pub fn of_tokens(tokens: u64) -> Self {
        Self { tokens: Some(tokens), ..Self::default() }
    }

    /// Whether there is a limit.
    pub fn is_limited(self) -> bool {
        self.tokens.is_some() || self.cost.is_some()
    }

    /// The smaller of each limit of the two; the share of this one.
    pub fn narrowed(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.into_iter().chain(other.tokens).min(),
            cost: self.cost.into_iter().chain(other.cost).reduce(f64::min),
            warn_at: self.warn_at,
        }
    }
}
