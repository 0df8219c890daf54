//! What a group knows of its members: who fails, who is busy, who is quick. The circuit breaker of `docs/faults.md` L1 to L3.
//!
//! A member is closed (it is asked), open (it is left alone until a time), or half open (one call may try it; the others go
//! by). Times are those of the clock of the calls, so a test moves them by hand.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use segue_base::limits;

use crate::{
    error::{LlmError, LlmErrorKind},
    message::Usage,
    router::RouterConfig,
};

/// What is known of one member when a call begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// Calls that it answers now.
    pub(super) busy: u32,
    /// Until the first piece of its answers, smoothed; absent when there is none of late.
    pub(super) latency: Option<Duration>,
    /// Tokens that it used in this minute.
    pub(super) tokens: u64,
    /// Requests that it took in this minute.
    pub(super) requests: u64,
}

/// Why a member is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It asked to wait.
    Limited,
    /// It failed too often, or in a way that does not pass by itself.
    Failing,
}

/// What is known of all members. Shared by the calls of a group.
#[derive(Debug)]
pub(super) struct Health {
    allowed_fails: usize,
    cooldown: Duration,
    /// Held for no wait.
    members: Mutex<Vec<State>>,
}

#[derive(Clone, Debug, Default)]
struct State {
    /// When it failed, of late; never more than are allowed.
    fails: VecDeque<Duration>,
    /// Left alone until then.
    shut: Option<(Duration, Why)>,
    /// Since when.
    shut_since: Duration,
    /// A call tries whether it answers again.
    probed: bool,
    busy: u32,
    latency: Option<(Duration, Duration)>,
    minute: u64,
    tokens: u64,
    requests: u64,
}

impl State {
    /// Whether it may be asked now.
    fn is_open(&self, now: Duration) -> bool {
        self.shut.is_none_or(|(until, _)| now >= until && !self.probed)
    }

    fn in_minute(&mut self, now: Duration) -> &mut Self {
        let minute = now.as_secs() / 60;
        if self.minute != minute {
            (self.minute, self.tokens, self.requests) = (minute, 0, 0);
        }
        self
    }
}

impl Health {
    /// Of so many members, of whom nothing is known yet.
    pub(super) fn new(members: usize, config: &RouterConfig) -> Arc<Self> {
        Arc::new(Self {
            // At least one failure must come before a member is left alone.
            allowed_fails: config.allowed_fails.map_or(limits::MODEL_FAILURES, |fails| (fails as usize).max(1)),
            cooldown: config.cooldown.unwrap_or(limits::MODEL_COOLDOWN),
            members: Mutex::new(vec![State::default(); members]),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<State>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of each.
    pub(super) fn known(&self, now: Duration) -> Vec<Known> {
        let known = |state: &mut State| {
            let state = state.in_minute(now);
            let fresh = state.latency.filter(|(at, _)| now.saturating_sub(*at) < limits::MODEL_LATENCY_WINDOW);
            Known {
                busy: state.busy,
                latency: fresh.map(|(_, latency)| latency),
                tokens: state.tokens,
                requests: state.requests,
            }
        };
        self.lock().iter_mut().map(known).collect()
    }

    /// Whether a member may be asked now.
    pub(super) fn may_ask(&self, member: usize, now: Duration) -> bool {
        self.lock().get(member).is_some_and(|state| state.is_open(now))
    }

    /// Lets a call through to a member, or not.
    pub(super) fn enter(self: &Arc<Self>, member: usize, now: Duration) -> Option<Visit> {
        // Looked at and taken under one lock: of two calls that come together, one tries the member.
        let mut members = self.lock();
        let state = members.get_mut(member).filter(|state| state.is_open(now))?.in_minute(now);
        state.busy += 1;
        state.requests += 1;
        let probes = state.shut.is_some();
        state.probed |= probes;
        Some(Visit { health: self.clone(), member, began: now, probes, is_over: false })
    }

    /// When the first member may be asked again, and why it is left alone; `None` when some may be asked now.
    pub(super) fn next_opening(&self, now: Duration) -> Option<(Duration, Why)> {
        let members = self.lock();
        let mut soonest: Option<(Duration, Why)> = None;
        for state in members.iter() {
            let (until, why) = state.shut?;
            // Another call is trying it: its end is not known, but it is near.
            let until = if state.probed { until.max(now + limits::MODEL_PROBE_EXPECTED) } else { until };
            if soonest.is_none_or(|(known, _)| until < known) {
                soonest = Some((until, why));
            }
        }
        soonest
    }
}

/// One call to one member. Dropping it without a word counts neither for nor against the member.
#[derive(Debug)]
pub(super) struct Visit {
    health: Arc<Health>,
    member: usize,
    began: Duration,
    probes: bool,
    is_over: bool,
}

impl Visit {
    /// The first piece of the answer came.
    pub(super) fn began_to_answer(&self, now: Duration) {
        let took = now.saturating_sub(self.began);
        if let Some(state) = self.health.lock().get_mut(self.member) {
            // The newest counts for three tenths.
            let smoothed = state.latency.map_or(took, |(_, known)| known.mul_f64(0.7) + took.mul_f64(0.3));
            state.latency = Some((now, smoothed));
        }
    }

    /// The answer is whole: whatever was held against the member is forgotten. What began before the member was left alone
    /// says nothing of how it is now.
    pub(super) fn answered(mut self, usage: &Usage, now: Duration) {
        let (probes, began) = (self.probes, self.began);
        self.leave(|state| {
            state.in_minute(now).tokens += usage.input.saturating_add(usage.output);
            if state.shut.is_none() || (probes && began >= state.shut_since) {
                state.fails.clear();
                state.shut = None;
            }
        });
    }

    /// The call failed. Tells whether the member is left alone from now on.
    pub(super) fn failed(mut self, error: &LlmError, now: Duration) -> bool {
        let (probes, allowed, cooldown) = (self.probes, self.health.allowed_fails, self.health.cooldown);
        let mut shuts = false;
        self.leave(|state| {
            let shut = match held_against(&error.kind, cooldown) {
                Held::Nothing => return,
                Held::For(time, why) => Some((now.saturating_add(time), why)),
                Held::OneFailure => {
                    state.fails.push_back(now);
                    while state.fails.len() > allowed
                        || state.fails.front().is_some_and(|at| now.saturating_sub(*at) > limits::MODEL_FAILURE_WINDOW)
                    {
                        state.fails.pop_front();
                    }
                    let too_often = probes || state.fails.len() >= allowed;
                    too_often.then_some((now.saturating_add(cooldown), Why::Failing))
                }
            };
            shuts = shut.is_some();
            if let Some((until, why)) = shut {
                // A shorter wait takes nothing from a longer one.
                let longer = state.shut.filter(|(known, _)| *known > until);
                state.shut = Some(longer.unwrap_or((until, why)));
                state.shut_since = now;
            }
        });
        shuts
    }

    fn leave(&mut self, tell: impl FnOnce(&mut State)) {
        self.is_over = true;
        if let Some(state) = self.health.lock().get_mut(self.member) {
            state.busy = state.busy.saturating_sub(1);
            if self.probes {
                state.probed = false;
            }
            tell(state);
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if !self.is_over {
            self.leave(|_| {});
        }
    }
}

/// What a failure says about a member.
enum Held {
    /// The request or the caller was at fault.
    Nothing,
    OneFailure,
    /// Asking again before this time is of no use.
    For(Duration, Why),
}

fn held_against(kind: &LlmErrorKind, cooldown: Duration) -> Held {
    use LlmErrorKind as K;
    match kind {
        K::RateLimited { after: Some(after) } => Held::For(*after, Why::Limited),
        K::Quota => Held::For(limits::MODEL_COOLDOWN_QUOTA, Why::Failing),
        K::Unauthorised | K::NotFound => Held::For(cooldown, Why::Failing),
        K::RateLimited { after: None }
        | K::Overloaded { .. }
        | K::Unreachable
        | K::FirstTokenTimeout
        | K::Idle
        | K::CallTimeout
        | K::CutShort
        | K::BadAnswer(_) => Held::OneFailure,
        K::TooLong | K::BadRequest | K::Total | K::ContentFilter | K::Cancelled | K::Unscripted => Held::Nothing,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn alone() -> Arc<Health> {
        Health::new(1, &RouterConfig { allowed_fails: Some(1), ..RouterConfig::default() })
    }

    #[test]
    fn while_one_call_tries_a_member_the_others_hear_that_its_end_is_near() {
        let health = alone();
        assert!(health.enter(0, Duration::ZERO).unwrap().failed(&LlmErrorKind::Unreachable.into(), Duration::ZERO));
        assert_eq!(health.next_opening(SECOND), Some((limits::MODEL_COOLDOWN, Why::Failing)));
        let now = limits::MODEL_COOLDOWN;
        let probe = health.enter(0, now).unwrap();
        assert!(health.enter(0, now).is_none(), "one tries, the others go by");
        assert_eq!(health.next_opening(now), Some((now + limits::MODEL_PROBE_EXPECTED, Why::Failing)));
        probe.answered(&Usage::default(), now);
        assert!(health.enter(0, now).is_some());
        assert_eq!(health.next_opening(now), None);
    }

    #[test]
    fn a_shorter_wait_takes_nothing_from_a_longer_one() {
        let health = alone();
        let (slow, quick) = (health.enter(0, Duration::ZERO).unwrap(), health.enter(0, Duration::ZERO).unwrap());
        slow.failed(&LlmErrorKind::Quota.into(), SECOND);
        quick.failed(&LlmErrorKind::RateLimited { after: Some(SECOND) }.into(), SECOND);
        assert_eq!(health.next_opening(SECOND), Some((SECOND + limits::MODEL_COOLDOWN_QUOTA, Why::Failing)));
    }

    #[test]
    fn of_calls_that_come_together_one_tries_a_member_that_failed() {
        for _ in 0..50 {
            let health = alone();
            health.enter(0, Duration::ZERO).unwrap().failed(&LlmErrorKind::Unreachable.into(), Duration::ZERO);
            let visits: Vec<Option<Visit>> = std::thread::scope(|scope| {
                let enter = || health.enter(0, limits::MODEL_COOLDOWN);
                let all: Vec<_> = (0..8).map(|_| scope.spawn(enter)).collect();
                all.into_iter().map(|one| one.join().unwrap()).collect()
            });
            assert_eq!(visits.iter().flatten().count(), 1);
        }
    }

    #[test]
    fn an_absurd_wait_ends_some_day_and_panics_nowhere() {
        let health = alone();
        let kind = LlmErrorKind::RateLimited { after: Some(Duration::MAX) };
        health.enter(0, 3_000 * SECOND).unwrap().failed(&kind.into(), 3_000 * SECOND);
        assert!(health.enter(0, 4_000 * SECOND).is_none());
    }

    #[test]
    fn quickness_is_smoothed_and_forgotten_after_a_while() {
        let health = alone();
        let latency = |now| health.known(now)[0].latency;
        assert_eq!(latency(SECOND), None);
        let visit = health.enter(0, Duration::ZERO).unwrap();
        visit.began_to_answer(SECOND);
        assert_eq!(latency(SECOND), Some(SECOND));
        let visit = health.enter(0, SECOND).unwrap();
        visit.began_to_answer(3 * SECOND);
        assert_eq!(latency(4 * SECOND), Some(Duration::from_millis(1300)));
        assert_eq!(latency(3 * SECOND + limits::MODEL_LATENCY_WINDOW), None);
    }

    #[test]
    fn calls_and_tokens_are_counted_by_the_minute() {
        let health = alone();
        let visit = health.enter(0, SECOND).unwrap();
        let other = health.enter(0, SECOND).unwrap();
        let known = health.known(SECOND)[0];
        assert_eq!((known.busy, known.requests, known.tokens), (2, 2, 0));
        visit.answered(&Usage { input: 7, output: 5, ..Usage::default() }, 2 * SECOND);
        drop(other);
        let known = health.known(2 * SECOND)[0];
        assert_eq!((known.busy, known.requests, known.tokens), (0, 2, 12));
        assert_eq!(health.known(60 * SECOND)[0], Known::default());
    }
}
