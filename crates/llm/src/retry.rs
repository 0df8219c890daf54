//! Which failures are tried again, when, and how often. Decides only; the router waits and asks.
//!
//! Rules: never after a piece of the answer was shown; all tries of a call share one budget; full
//! jitter; what the vendor asks to wait is a floor, and a floor beyond what is left sends the call to the next model.

use std::time::Duration;

use segue_base::limits;

use super::error::LlmError;

/// What to do with a failed try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// Ask the same model again after this wait.
    Again(Duration),
    /// Ask the next model at once.
    Next,
    /// Give up: the failure is the answer.
    Fail,
}

/// How retries behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The longest first wait; doubles with each try.
    pub first: Duration,
    /// The longest wait of all.
    pub most: Duration,
    /// What all tries beyond the first may take together.
    pub budget: Duration,
    /// Whether a request that is longer than the model's window is tried once more with less of the conversation.
    pub shrinks: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(500),
            most: Duration::from_secs(4),
            budget: limits::MODEL_RETRY_BUDGET,
            shrinks: true,
        }
    }
}

/// How things stand when a try failed.
#[derive(Clone, Copy, Debug)]
pub struct AttemptState {
    /// Tries of this model so far, at least 1.
    pub made: u32,
    /// Tries that this model may have.
    pub allowed: u32,
    /// Whether the group has another model.
    pub has_next: bool,
    /// Time since the first try failed.
    pub spent: Duration,
    /// Time left until the caller's deadline.
    pub left: Duration,
}

impl RetryPolicy {
    /// What to do with `error`. `luck` is a random number; the same one gives the same wait.
    pub fn judge(&self, error: &LlmError, standing: AttemptState, luck: u64) -> RetryDecision {
        let next =
            if standing.has_next && error.next_model_may_help() { RetryDecision::Next } else { RetryDecision::Fail };
        if !error.retryable() || standing.made >= standing.allowed {
            return next;
        }
        let ceiling = self.first.saturating_mul(1 << (standing.made - 1).min(16)).min(self.most);
        let jitter = ceiling.mul_f64((luck >> 11) as f64 / (1u64 << 53) as f64);
        let wait = jitter.max(error.retry_after().unwrap_or_default());
        let room = self.budget.saturating_sub(standing.spent).min(standing.left);
        if wait < room { RetryDecision::Again(wait) } else { next }
    }
}

/// The `n`-th random number of `seed` (SplitMix64).
pub(crate) fn random(seed: u64, n: u64) -> u64 {
    let mut z = seed.wrapping_add(n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{InvalidResponse, LlmErrorKind as K};

    const FRESH: AttemptState =
        AttemptState { made: 1, allowed: 2, has_next: false, spent: Duration::ZERO, left: Duration::from_secs(60) };

    fn judge(kind: K, standing: AttemptState, luck: u64) -> RetryDecision {
        RetryPolicy::default().judge(&kind.into(), standing, luck)
    }

    #[test]
    fn kinds_decide() {
        let limited = |seconds| K::RateLimited { after: Some(Duration::from_secs(seconds)) };
        let with_next = AttemptState { has_next: true, ..FRESH };
        for (kind, alone, in_group) in [
            (K::CutShort, RetryDecision::Again(Duration::ZERO), RetryDecision::Again(Duration::ZERO)),
            (
                K::BadAnswer(InvalidResponse::NotAnAnswer),
                RetryDecision::Again(Duration::ZERO),
                RetryDecision::Again(Duration::ZERO),
            ),
            (limited(3), RetryDecision::Again(Duration::from_secs(3)), RetryDecision::Again(Duration::from_secs(3))),
            (limited(30), RetryDecision::Fail, RetryDecision::Next),
            (K::Quota, RetryDecision::Fail, RetryDecision::Next),
            (K::NotFound, RetryDecision::Fail, RetryDecision::Next),
            (K::FirstTokenTimeout, RetryDecision::Fail, RetryDecision::Next),
            (K::CallTimeout, RetryDecision::Fail, RetryDecision::Next),
            (K::BadRequest, RetryDecision::Fail, RetryDecision::Fail),
            (K::Cancelled, RetryDecision::Fail, RetryDecision::Fail),
            (K::Total, RetryDecision::Fail, RetryDecision::Fail),
        ] {
            assert_eq!(judge(kind.clone(), FRESH, 0), alone, "{kind:?} alone");
            assert_eq!(judge(kind.clone(), with_next, 0), in_group, "{kind:?} in a group");
        }
    }

    #[test]
    fn tries_budget_and_deadline_end_it() {
        let kind = || K::Overloaded { after: Some(Duration::from_secs(1)) };
        assert_eq!(judge(kind(), AttemptState { made: 2, ..FRESH }, 0), RetryDecision::Fail);
        assert_eq!(judge(kind(), AttemptState { spent: limits::MODEL_RETRY_BUDGET, ..FRESH }, 0), RetryDecision::Fail);
        assert_eq!(judge(kind(), AttemptState { left: Duration::from_millis(900), ..FRESH }, 0), RetryDecision::Fail);
    }

    #[test]
    fn jitter_is_full_and_bounded() {
        let waits: Vec<Duration> = (0..200)
            .map(|n| match judge(K::CutShort, AttemptState { made: 4, allowed: 9, ..FRESH }, random(7, n)) {
                RetryDecision::Again(wait) => wait,
                other => unreachable!("{other:?}"),
            })
            .collect();
        assert!(waits.iter().all(|wait| *wait <= Duration::from_secs(4)));
        assert!(waits.iter().any(|wait| *wait < Duration::from_millis(400)), "some are short");
        assert!(waits.iter().any(|wait| *wait > Duration::from_millis(3600)), "some are long");
    }
}
