//! Decides which failures are retried, when, and how often. The router does the waiting and the calls.
//!
//! Rules: nothing is retried after text was streamed to the user. All retries of a call share one time budget. Waits are
//! exponential with full jitter (<https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/>). A wait is never
//! shorter than the provider's `Retry-After`; if that exceeds the time left, the call goes to the next model.

use std::time::Duration;

use segue_base::limits;

use super::error::LlmError;

/// What to do after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// Call the same model again after this wait.
    RetryAfter(Duration),
    /// Call the next model at once.
    NextModel,
    /// Return the error.
    Fail,
}

/// Limits of retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The longest first wait; doubles with each attempt.
    pub initial_backoff: Duration,
    /// The longest wait.
    pub max_backoff: Duration,
    /// Time that all attempts after the first may take together.
    pub budget: Duration,
    /// Whether a request that exceeds the model's context window is retried once with less of the conversation.
    pub shortens_requests: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            initial_backoff: Duration::from_millis(500),
            max_backoff: Duration::from_secs(4),
            budget: limits::MODEL_RETRY_BUDGET,
            shortens_requests: true,
        }
    }
}

/// The state of a call when an attempt has failed.
#[derive(Clone, Copy, Debug)]
pub struct AttemptState {
    /// Attempts with this model so far, at least 1.
    pub made: u32,
    /// Attempts that this model may have.
    pub allowed: u32,
    /// Whether the group has another model.
    pub has_next: bool,
    /// Time since the first attempt failed.
    pub spent: Duration,
    /// Time left until the caller's deadline.
    pub left: Duration,
}

impl RetryPolicy {
    /// What to do after `error`. The same `random_number` results in the same wait.
    pub fn decide(&self, error: &LlmError, attempt: AttemptState, random_number: u64) -> RetryDecision {
        let next =
            if attempt.has_next && error.allows_fallback() { RetryDecision::NextModel } else { RetryDecision::Fail };
        if !error.retryable() || attempt.made >= attempt.allowed {
            return next;
        }
        let ceiling = self.initial_backoff.saturating_mul(1 << (attempt.made - 1).min(16)).min(self.max_backoff);
        let jitter = ceiling.mul_f64((random_number >> 11) as f64 / (1u64 << 53) as f64);
        let wait = jitter.max(error.retry_after().unwrap_or_default());
        let time_left = self.budget.saturating_sub(attempt.spent).min(attempt.left);
        if wait < time_left { RetryDecision::RetryAfter(wait) } else { next }
    }
}

/// The `n`-th random number of `seed` (SplitMix64, <https://prng.di.unimi.it/splitmix64.c>).
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

    fn decide(kind: K, attempt: AttemptState, random_number: u64) -> RetryDecision {
        RetryPolicy::default().decide(&kind.into(), attempt, random_number)
    }

    #[test]
    fn the_kind_of_error_decides_about_retry_and_fallback() {
        let limited = |seconds| K::RateLimited { after: Some(Duration::from_secs(seconds)) };
        let with_next = AttemptState { has_next: true, ..FRESH };
        for (kind, alone, in_group) in [
            (K::Truncated, RetryDecision::RetryAfter(Duration::ZERO), RetryDecision::RetryAfter(Duration::ZERO)),
            (
                K::InvalidResponse(InvalidResponse::UnexpectedFormat),
                RetryDecision::RetryAfter(Duration::ZERO),
                RetryDecision::RetryAfter(Duration::ZERO),
            ),
            (
                limited(3),
                RetryDecision::RetryAfter(Duration::from_secs(3)),
                RetryDecision::RetryAfter(Duration::from_secs(3)),
            ),
            (limited(30), RetryDecision::Fail, RetryDecision::NextModel),
            (K::QuotaExhausted, RetryDecision::Fail, RetryDecision::NextModel),
            (K::NotFound, RetryDecision::Fail, RetryDecision::NextModel),
            (K::FirstTokenTimeout, RetryDecision::Fail, RetryDecision::NextModel),
            (K::CallTimeout, RetryDecision::Fail, RetryDecision::NextModel),
            (K::BadRequest, RetryDecision::Fail, RetryDecision::Fail),
            (K::Cancelled, RetryDecision::Fail, RetryDecision::Fail),
            (K::DeadlineExceeded, RetryDecision::Fail, RetryDecision::Fail),
            (K::CallLimit, RetryDecision::Fail, RetryDecision::Fail),
        ] {
            assert_eq!(decide(kind.clone(), FRESH, 0), alone, "{kind:?} alone");
            assert_eq!(decide(kind.clone(), with_next, 0), in_group, "{kind:?} in a group");
        }
    }

    #[test]
    fn attempts_budget_and_deadline_end_retries() {
        let kind = || K::Overloaded { after: Some(Duration::from_secs(1)) };
        assert_eq!(decide(kind(), AttemptState { made: 2, ..FRESH }, 0), RetryDecision::Fail);
        assert_eq!(decide(kind(), AttemptState { spent: limits::MODEL_RETRY_BUDGET, ..FRESH }, 0), RetryDecision::Fail);
        assert_eq!(decide(kind(), AttemptState { left: Duration::from_millis(900), ..FRESH }, 0), RetryDecision::Fail);
    }

    #[test]
    fn jitter_is_full_and_bounded() {
        let waits: Vec<Duration> = (0..200)
            .map(|n| match decide(K::Truncated, AttemptState { made: 4, allowed: 9, ..FRESH }, random(7, n)) {
                RetryDecision::RetryAfter(wait) => wait,
                other => unreachable!("{other:?}"),
            })
            .collect();
        assert!(waits.iter().all(|wait| *wait <= Duration::from_secs(4)));
        assert!(waits.iter().any(|wait| *wait < Duration::from_millis(400)), "some are short");
        assert!(waits.iter().any(|wait| *wait > Duration::from_millis(3600)), "some are long");
    }
}
