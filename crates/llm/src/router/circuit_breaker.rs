//! Health of a group's members: a circuit breaker, the current load and the latency of each (`docs/reference/failure-handling.md`).
//!
//! A circuit is closed (calls pass), open (no calls until a time), or half open (one call probes the member, the others skip
//! it). Times come from the clock of the calls, so that tests control them.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use segue_base::limits;

use crate::{
    error::{LlmError, LlmErrorKind},
    message::Usage,
    router::{RateLimit, RouterConfig},
};

/// The load and latency of one member when a call begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MemberStats {
    /// Calls in progress.
    pub(super) active_calls: u32,
    /// Smoothed time to the first delta; `None` without a recent response.
    pub(super) latency: Option<Duration>,
    /// Tokens used in the current minute.
    pub(super) tokens: u64,
    /// Requests in the current minute.
    pub(super) requests: u64,
}

/// Why a circuit is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenReason {
    /// The provider asked to wait.
    RateLimited,
    /// The member failed too often, or with an error that does not pass by itself.
    Failing,
}

/// The health of all members, shared by the calls of a group.
#[derive(Debug)]
pub(super) struct MemberHealth {
    allowed_fails: usize,
    cooldown: Duration,
    /// Never locked across an await.
    members: Mutex<Vec<CircuitBreaker>>,
}

#[derive(Debug, Default)]
struct CircuitBreaker {
    /// Times of recent failures; at most `allowed_fails`.
    failures: VecDeque<Duration>,
    /// Until when the circuit is open, and why. `None`: closed.
    open_until: Option<(Duration, OpenReason)>,
    /// When it opened last.
    opened_at: Duration,
    /// Half open: a call is probing whether the member answers again.
    is_probing: bool,
    active_calls: u32,
    /// When it was measured, and its smoothed value.
    latency: Option<(Duration, Duration)>,
    /// The minute that `tokens` and `requests` count.
    minute: u64,
    tokens: u64,
    requests: u64,
    /// The wait that its provider asked for, which may come from another group.
    rate_limit: RateLimit,
}

impl CircuitBreaker {
    /// Whether a call may pass now.
    fn allows_call(&self, now: Duration) -> bool {
        now >= self.rate_limit.until() && self.open_until.is_none_or(|(until, _)| now >= until && !self.is_probing)
    }

    /// When calls may pass again, and why they may not; `None` if the circuit is closed.
    fn closes_at(&self, now: Duration) -> Option<(Duration, OpenReason)> {
        let limited = Some((self.rate_limit.until(), OpenReason::RateLimited)).filter(|(until, _)| *until > now);
        match (self.open_until, limited) {
            (Some(open), Some(limited)) => Some(if limited.0 > open.0 { limited } else { open }),
            (open, limited) => open.or(limited),
        }
    }

    /// Resets the counters when a new minute has begun.
    fn in_minute(&mut self, now: Duration) -> &mut Self {
        let minute = now.as_secs() / 60;
        if self.minute != minute {
            (self.minute, self.tokens, self.requests) = (minute, 0, 0);
        }
        self
    }
}

impl MemberHealth {
    /// All circuits closed, without measurements.
    pub(super) fn new(rate_limits: impl Iterator<Item = RateLimit>, config: &RouterConfig) -> Arc<Self> {
        let member = |rate_limit| CircuitBreaker { rate_limit, ..CircuitBreaker::default() };
        Arc::new(Self {
            // At least one failure is needed to open a circuit.
            allowed_fails: config.allowed_fails.map_or(limits::MODEL_FAILURES, |fails| (fails as usize).max(1)),
            cooldown: config.cooldown.unwrap_or(limits::MODEL_COOLDOWN),
            members: Mutex::new(rate_limits.map(member).collect()),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<CircuitBreaker>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The load and latency of each member.
    pub(super) fn stats(&self, now: Duration) -> Vec<MemberStats> {
        let stats = |state: &mut CircuitBreaker| {
            let state = state.in_minute(now);
            let fresh = state.latency.filter(|(at, _)| now.saturating_sub(*at) < limits::MODEL_LATENCY_WINDOW);
            MemberStats {
                active_calls: state.active_calls,
                latency: fresh.map(|(_, latency)| latency),
                tokens: state.tokens,
                requests: state.requests,
            }
        };
        self.lock().iter_mut().map(stats).collect()
    }

    /// Whether the member may be called now.
    pub(super) fn is_available(&self, member: usize, now: Duration) -> bool {
        self.lock().get(member).is_some_and(|state| state.allows_call(now))
    }

    /// A permit for one call to the member; `None` while its circuit is open.
    pub(super) fn try_acquire(self: &Arc<Self>, member: usize, now: Duration) -> Option<CallPermit> {
        // Checked and taken under one lock, so that only one of several concurrent calls probes the member.
        let mut members = self.lock();
        let state = members.get_mut(member).filter(|state| state.allows_call(now))?.in_minute(now);
        state.active_calls += 1;
        state.requests += 1;
        let is_probe = state.open_until.is_some();
        state.is_probing |= is_probe;
        Some(CallPermit { health: self.clone(), member, began: now, is_probe, is_released: false })
    }

    /// When the first circuit lets calls pass again, and why it is open; `None` when some circuit is closed.
    pub(super) fn next_available(&self, now: Duration) -> Option<(Duration, OpenReason)> {
        let members = self.lock();
        let mut soonest: Option<(Duration, OpenReason)> = None;
        for state in members.iter() {
            let (until, why) = state.closes_at(now)?;
            // Another call is probing the member; its end is unknown, but near.
            let until = if state.is_probing { until.max(now + limits::MODEL_PROBE_EXPECTED) } else { until };
            if soonest.is_none_or(|(earlier, _)| until < earlier) {
                soonest = Some((until, why));
            }
        }
        soonest
    }
}

/// The permit of one call to one member. Dropping it without a result counts neither as success nor as failure.
#[derive(Debug)]
pub(super) struct CallPermit {
    health: Arc<MemberHealth>,
    member: usize,
    began: Duration,
    is_probe: bool,
    is_released: bool,
}

impl CallPermit {
    /// The first delta of the response came.
    pub(super) fn record_first_delta(&self, now: Duration) {
        let took = now.saturating_sub(self.began);
        if let Some(state) = self.health.lock().get_mut(self.member) {
            // An exponential moving average; the newest value counts 30 %.
            let smoothed = state.latency.map_or(took, |(_, earlier)| earlier.mul_f64(0.7) + took.mul_f64(0.3));
            state.latency = Some((now, smoothed));
        }
    }

    /// The response is complete. Closes the circuit and forgets earlier failures, unless the call began before the circuit opened:
    /// such a call says nothing about the member's present state.
    pub(super) fn record_success(mut self, usage: &Usage, now: Duration) {
        let (is_probe, began) = (self.is_probe, self.began);
        self.release(|state| {
            state.in_minute(now).tokens += usage.input.saturating_add(usage.output);
            if state.open_until.is_none() || (is_probe && began >= state.opened_at) {
                state.failures.clear();
                state.open_until = None;
            }
        });
    }

    /// The call failed. Returns whether this opened the circuit.
    pub(super) fn record_failure(mut self, error: &LlmError, now: Duration) -> bool {
        let (is_probe, allowed, cooldown) = (self.is_probe, self.health.allowed_fails, self.health.cooldown);
        let mut opens = false;
        self.release(|state| {
            let open_until = match failure_impact(&error.kind, cooldown) {
                FailureImpact::None => return,
                FailureImpact::OpenFor(time, why) => {
                    let until = now.saturating_add(time);
                    if why == OpenReason::RateLimited {
                        state.rate_limit.wait_until(until);
                    }
                    Some((until, why))
                }
                FailureImpact::OneFailure => {
                    state.failures.push_back(now);
                    while state.failures.len() > allowed
                        || state
                            .failures
                            .front()
                            .is_some_and(|at| now.saturating_sub(*at) > limits::MODEL_FAILURE_WINDOW)
                    {
                        state.failures.pop_front();
                    }
                    let too_often = is_probe || state.failures.len() >= allowed;
                    too_often.then_some((now.saturating_add(cooldown), OpenReason::Failing))
                }
            };
            opens = open_until.is_some();
            if let Some((until, why)) = open_until {
                // A shorter wait does not replace a longer one.
                let longer = state.open_until.filter(|(earlier, _)| *earlier > until);
                state.open_until = Some(longer.unwrap_or((until, why)));
                state.opened_at = now;
            }
        });
        opens
    }

    fn release(&mut self, record: impl FnOnce(&mut CircuitBreaker)) {
        self.is_released = true;
        if let Some(state) = self.health.lock().get_mut(self.member) {
            state.active_calls = state.active_calls.saturating_sub(1);
            if self.is_probe {
                state.is_probing = false;
            }
            record(state);
        }
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        if !self.is_released {
            self.release(|_| {});
        }
    }
}

/// What a failure means for the circuit of a member.
enum FailureImpact {
    /// Nothing: the request or the caller caused it.
    None,
    /// It counts as one failure.
    OneFailure,
    /// It opens the circuit for this time.
    OpenFor(Duration, OpenReason),
}

fn failure_impact(kind: &LlmErrorKind, cooldown: Duration) -> FailureImpact {
    use LlmErrorKind as K;
    match kind {
        K::RateLimited { after: Some(after) } => FailureImpact::OpenFor(*after, OpenReason::RateLimited),
        K::QuotaExhausted => FailureImpact::OpenFor(limits::MODEL_COOLDOWN_QUOTA, OpenReason::Failing),
        K::Unauthorised | K::NotFound => FailureImpact::OpenFor(cooldown, OpenReason::Failing),
        K::RateLimited { after: None }
        | K::Overloaded { .. }
        | K::Unreachable
        | K::FirstTokenTimeout
        | K::IdleTimeout
        | K::CallTimeout
        | K::Truncated
        | K::InvalidResponse(_) => FailureImpact::OneFailure,
        K::ContextLengthExceeded
        | K::BadRequest
        | K::DeadlineExceeded
        | K::CallLimit
        | K::ContentFilter
        | K::Cancelled
        | K::NotInScript => FailureImpact::None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn single_member() -> Arc<MemberHealth> {
        let config = RouterConfig { allowed_fails: Some(1), ..RouterConfig::default() };
        MemberHealth::new(std::iter::once(RateLimit::default()), &config)
    }

    #[test]
    fn during_a_probe_other_calls_get_a_short_wait() {
        let health = single_member();
        assert!(
            health
                .try_acquire(0, Duration::ZERO)
                .unwrap()
                .record_failure(&LlmErrorKind::Unreachable.into(), Duration::ZERO)
        );
        assert_eq!(health.next_available(SECOND), Some((limits::MODEL_COOLDOWN, OpenReason::Failing)));
        let now = limits::MODEL_COOLDOWN;
        let probe = health.try_acquire(0, now).unwrap();
        assert!(health.try_acquire(0, now).is_none(), "one call probes, the others skip the member");
        assert_eq!(health.next_available(now), Some((now + limits::MODEL_PROBE_EXPECTED, OpenReason::Failing)));
        probe.record_success(&Usage::default(), now);
        assert!(health.try_acquire(0, now).is_some());
        assert_eq!(health.next_available(now), None);
    }

    #[test]
    fn a_shorter_wait_does_not_replace_a_longer_one() {
        let health = single_member();
        let (slow, quick) =
            (health.try_acquire(0, Duration::ZERO).unwrap(), health.try_acquire(0, Duration::ZERO).unwrap());
        slow.record_failure(&LlmErrorKind::QuotaExhausted.into(), SECOND);
        quick.record_failure(&LlmErrorKind::RateLimited { after: Some(SECOND) }.into(), SECOND);
        assert_eq!(health.next_available(SECOND), Some((SECOND + limits::MODEL_COOLDOWN_QUOTA, OpenReason::Failing)));
    }

    #[test]
    fn only_one_of_concurrent_calls_probes_a_failed_member() {
        for _ in 0..50 {
            let health = single_member();
            health
                .try_acquire(0, Duration::ZERO)
                .unwrap()
                .record_failure(&LlmErrorKind::Unreachable.into(), Duration::ZERO);
            let permits: Vec<Option<CallPermit>> = std::thread::scope(|scope| {
                let try_acquire = || health.try_acquire(0, limits::MODEL_COOLDOWN);
                let all: Vec<_> = (0..8).map(|_| scope.spawn(try_acquire)).collect();
                all.into_iter().map(|one| one.join().unwrap()).collect()
            });
            assert_eq!(permits.iter().flatten().count(), 1);
        }
    }

    #[test]
    fn a_very_long_wait_does_not_overflow() {
        let health = single_member();
        let kind = LlmErrorKind::RateLimited { after: Some(Duration::MAX) };
        health.try_acquire(0, 3_000 * SECOND).unwrap().record_failure(&kind.into(), 3_000 * SECOND);
        assert!(health.try_acquire(0, 4_000 * SECOND).is_none());
    }

    #[test]
    fn latency_is_smoothed_and_expires() {
        let health = single_member();
        let latency = |now| health.stats(now)[0].latency;
        assert_eq!(latency(SECOND), None);
        let permit = health.try_acquire(0, Duration::ZERO).unwrap();
        permit.record_first_delta(SECOND);
        assert_eq!(latency(SECOND), Some(SECOND));
        let permit = health.try_acquire(0, SECOND).unwrap();
        permit.record_first_delta(3 * SECOND);
        assert_eq!(latency(4 * SECOND), Some(Duration::from_millis(1300)));
        assert_eq!(latency(3 * SECOND + limits::MODEL_LATENCY_WINDOW), None);
    }

    #[test]
    fn calls_and_tokens_are_counted_per_minute() {
        let health = single_member();
        let permit = health.try_acquire(0, SECOND).unwrap();
        let other = health.try_acquire(0, SECOND).unwrap();
        let stats = health.stats(SECOND)[0];
        assert_eq!((stats.active_calls, stats.requests, stats.tokens), (2, 2, 0));
        permit.record_success(&Usage { input: 7, output: 5, ..Usage::default() }, 2 * SECOND);
        drop(other);
        let stats = health.stats(2 * SECOND)[0];
        assert_eq!((stats.active_calls, stats.requests, stats.tokens), (0, 2, 12));
        assert_eq!(health.stats(60 * SECOND)[0], MemberStats::default());
    }
}
