//! Admission control: limits the open turns, the expected wait, and the open turns of each caller. A message above a limit is rejected
//! before anything is stored, with the time after which a retry is useful.
//!
//! The expected wait is the average time of recent turns, times the turns before the message: those of its conversation, or all open
//! turns divided by those that run at once. A turn whose caller has left continues; its place in the limits becomes free.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use segue_engine::project::ServerDef;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::ReceiveError;
use crate::{clock::Clock, limits};

/// Limits on the work that an assistant accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Turns that may be open: accepted and not answered.
    pub open_turns: usize,
    /// Turns that run at once; other open ones wait.
    pub running_turns: usize,
    /// Open turns of one caller.
    pub turns_per_caller: usize,
    /// The longest expected time to an answer at which a message is still accepted.
    pub expected_wait: Duration,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            open_turns: limits::OPEN_TURNS,
            running_turns: limits::TURNS_IN_FLIGHT,
            turns_per_caller: limits::TURNS_PER_CALLER,
            expected_wait: limits::EXPECTED_WAIT,
        }
    }
}

impl Admission {
    /// The limits of `server` in `endpoints.yml`. Without `expected_wait` it is half of `turn_timeout`, but at least the default.
    pub(super) fn from_config(def: &ServerDef, turn_timeout: Duration) -> Self {
        let usual = Self::default();
        Self {
            open_turns: def.open_turns.unwrap_or(usual.open_turns),
            running_turns: def.running_turns.unwrap_or(usual.running_turns),
            turns_per_caller: def.turns_per_caller.unwrap_or(usual.turns_per_caller),
            expected_wait: def.expected_wait.unwrap_or(usual.expected_wait.max(turn_timeout / 2)),
        }
    }
}

/// Why a message was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overload {
    /// Which limit was reached.
    pub limit: OverloadLimit,
    /// The time after which a retry is useful.
    pub retry_after: Duration,
}

/// The limits of [`Admission`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverloadLimit {
    /// Too many turns are open.
    OpenTurns,
    /// The answer would take too long.
    ExpectedWait,
    /// Earlier messages of the conversation take too long.
    Conversation,
    /// The caller has too many open turns.
    Caller,
}

impl Overload {
    /// Whether only this caller is at a limit.
    pub fn is_caller_limit(&self) -> bool {
        matches!(self.limit, OverloadLimit::Conversation | OverloadLimit::Caller)
    }
}

impl fmt::Display for Overload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.limit {
            OverloadLimit::OpenTurns => "too many turns are open",
            OverloadLimit::ExpectedWait => "the answer would take too long",
            OverloadLimit::Conversation => "the messages before it in its conversation take too long",
            OverloadLimit::Caller => "its caller has too many open turns",
        };
        write!(f, "{what}; try again in {} s", self.retry_after.as_secs())
    }
}

/// Counts open turns and compares them with the limits.
pub(super) struct AdmissionControl {
    limits: Admission,
    clock: Arc<dyn Clock>,
    counts: Mutex<Counts>,
    /// Limits the turns that run at once.
    running: Arc<Semaphore>,
    /// Limits the turns without a caller: those of an earlier process, and those whose callers left before they ran.
    background: Arc<Semaphore>,
}

#[derive(Default)]
struct Counts {
    open: usize,
    /// Open turns whose callers have left; not part of `open`.
    abandoned: usize,
    /// Open turns by caller.
    callers: HashMap<Arc<str>, usize>,
    /// The moving average of the time of a turn.
    turn_time: Option<Duration>,
    /// Messages that were rejected since the last log line.
    rejected_since_log: u64,
    /// The monotonic time of the last log line.
    last_logged: Option<Duration>,
}

impl AdmissionControl {
    pub(super) fn new(limits: Admission, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            limits,
            clock,
            counts: Mutex::default(),
            running: Arc::new(Semaphore::new(limits.running_turns.min(Semaphore::MAX_PERMITS))),
            background: Arc::new(Semaphore::new(limits::RECOVERY_AT_ONCE)),
        })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A permit for an open turn. Messages of callers may be rejected; those of the assistant itself are only counted.
    pub(super) fn admit(self: &Arc<Self>, is_from_caller: bool) -> Result<Arc<AdmissionPermit>, ReceiveError> {
        let mut counts = self.counts();
        if is_from_caller && counts.open >= self.limits.open_turns {
            return Err(self.reject(&mut counts, OverloadLimit::OpenTurns, Duration::ZERO));
        }
        counts.open += 1;
        Ok(Arc::new(AdmissionPermit {
            control: self.clone(),
            abandoned: CancellationToken::new(),
            state: Mutex::new(PermitState { caller: None, is_abandoned: false, started_at: None, permit: None }),
        }))
    }

    /// Waits for a permit to run a turn without a caller.
    pub(super) async fn acquire_background(&self) -> Result<OwnedSemaphorePermit, ReceiveError> {
        self.background.clone().acquire_owned().await.map_err(|_| ReceiveError::ShuttingDown)
    }

    fn reject(&self, counts: &mut Counts, limit: OverloadLimit, excess: Duration) -> ReceiveError {
        counts.rejected_since_log += 1;
        let now = self.clock.elapsed();
        if counts.last_logged.is_none_or(|last_logged| now.saturating_sub(last_logged) >= limits::OVERLOAD_LOG_INTERVAL)
        {
            let rejected = std::mem::take(&mut counts.rejected_since_log);
            counts.last_logged = Some(now);
            let (open, abandoned) = (counts.open, counts.abandoned);
            tracing::warn!(code = "R0106", rejected, open, abandoned, "messages are rejected: {limit:?} is reached");
        }
        // The header `Retry-After` takes whole seconds.
        let after = excess.max(counts.turn_time.unwrap_or_default()).as_millis().div_ceil(1000);
        let most = limits::RETRY_AFTER_MAX.as_secs();
        let retry_after = Duration::from_secs(u64::try_from(after).unwrap_or(most).clamp(1, most));
        ReceiveError::Overloaded(Overload { limit, retry_after })
    }
}

/// The permit of one open turn. Dropping it ends the turn in the counts.
pub(super) struct AdmissionPermit {
    control: Arc<AdmissionControl>,
    abandoned: CancellationToken,
    state: Mutex<PermitState>,
}

struct PermitState {
    caller: Option<Arc<str>>,
    is_abandoned: bool,
    /// The monotonic time at which the turn began to run.
    started_at: Option<Duration>,
    /// The permit to run.
    permit: Option<OwnedSemaphorePermit>,
}

impl AdmissionPermit {
    fn state(&self) -> MutexGuard<'_, PermitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the turn for its caller. `before` is the number of messages that wait in its conversation.
    pub(super) fn assign_caller(&self, caller: &str, before: usize) -> Result<(), ReceiveError> {
        let control = &self.control;
        let mut counts = control.counts();
        let own = counts.callers.get(caller).copied().unwrap_or_default();
        if own >= control.limits.turns_per_caller {
            return Err(control.reject(&mut counts, OverloadLimit::Caller, Duration::ZERO));
        }
        let turn = counts.turn_time.unwrap_or_default();
        let rounds = counts.open.div_ceil(control.limits.running_turns.max(1));
        let times = |rounds: usize| turn.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX));
        let (queue, all) = (times(before + 1), times(rounds));
        let most = control.limits.expected_wait;
        if before > 0 && queue > most {
            return Err(control.reject(&mut counts, OverloadLimit::Conversation, queue - most));
        }
        // A few open turns are always accepted, however long turns take.
        if all > most && counts.open > limits::ADMITTED_MIN {
            return Err(control.reject(&mut counts, OverloadLimit::ExpectedWait, all - most));
        }
        let caller: Arc<str> = caller.into();
        *counts.callers.entry(caller.clone()).or_default() += 1;
        drop(counts);
        self.state().caller = Some(caller);
        Ok(())
    }

    /// Waits until the turn may run.
    pub(super) async fn begin(&self) -> Result<(), ReceiveError> {
        let shutting_down = |_| ReceiveError::ShuttingDown;
        let (permit, is_background) = tokio::select! {
            biased;
            permit = self.control.running.clone().acquire_owned() => (permit.map_err(shutting_down)?, false),
            () = self.abandoned.cancelled() => (self.control.acquire_background().await?, true),
        };
        let mut state = self.state();
        state.started_at = Some(self.control.clock.elapsed());
        // A caller that left meanwhile has given up the permit to run.
        if is_background || !state.is_abandoned {
            state.permit = Some(permit);
        }
        Ok(())
    }

    /// Marks the turn as abandoned by its caller: it continues, and its permits become free for others. Above
    /// [`limits::TURNS_ABANDONED`] such turns keep their permits.
    pub(super) fn abandon(&self) {
        let mut state = self.state();
        let mut counts = self.control.counts();
        if state.is_abandoned || counts.abandoned >= limits::TURNS_ABANDONED {
            return;
        }
        state.is_abandoned = true;
        counts.open -= 1;
        counts.abandoned += 1;
        drop(counts);
        state.permit = None;
        drop(state);
        self.abandoned.cancel();
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut counts = self.control.counts();
        if state.is_abandoned {
            counts.abandoned -= 1
        } else {
            counts.open -= 1
        }
        if let Some(caller) = state.caller.take()
            && let Some(count) = counts.callers.get_mut(&caller)
        {
            *count -= 1;
            if *count == 0 {
                counts.callers.remove(&caller);
            }
        }
        if let Some(started_at) = state.started_at {
            let took = self.control.clock.elapsed().saturating_sub(started_at);
            let weight = limits::TURN_TIME_WEIGHT;
            counts.turn_time = Some(match counts.turn_time {
                Some(time) => (time * (weight - 1) + took) / weight,
                None => took,
            });
        }
    }
}

/// Marks a turn as abandoned when it is dropped, unless it is disarmed first.
pub(super) struct AbandonGuard(Option<Arc<AdmissionPermit>>);

impl AbandonGuard {
    pub(super) fn new(permit: &Arc<AdmissionPermit>) -> Self {
        Self(Some(permit.clone()))
    }
    pub(super) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for AbandonGuard {
    fn drop(&mut self) {
        if let Some(permit) = self.0.take() {
            permit.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::ManualClock;

    #[tokio::test]
    async fn the_time_of_a_turn_is_averaged_over_the_latest() {
        let clock = ManualClock::new();
        let control = AdmissionControl::new(Admission::default(), Arc::new(clock.clone()));
        let weight = limits::TURN_TIME_WEIGHT;
        for (seconds, expected) in [(32, 32 * weight), (16, 32 * (weight - 1) + 16)] {
            let permit = control.admit(true).unwrap();
            permit.begin().await.unwrap();
            clock.advance(Duration::from_secs(seconds));
            drop(permit);
            assert_eq!(control.counts().turn_time, Some(Duration::from_secs(expected.into()) / weight));
        }
        // A turn that never ran does not count for the average.
        let before = control.counts().turn_time;
        drop(control.admit(true).unwrap());
        assert_eq!(control.counts().turn_time, before);
        let counts = control.counts();
        assert_eq!((counts.open, counts.callers.len()), (0, 0));
    }

    #[tokio::test]
    async fn retry_after_is_at_most_its_limit() {
        let clock = ManualClock::new();
        let one = Admission { open_turns: 1, ..Admission::default() };
        let control = AdmissionControl::new(one, Arc::new(clock.clone()));
        let permit = control.admit(true).unwrap();
        permit.begin().await.unwrap();
        clock.advance(10 * limits::RETRY_AFTER_MAX);
        drop(permit);
        let _open = control.admit(true).unwrap();
        let error = control.admit(true).err().unwrap();
        assert_eq!(error.retry_after(), Some(limits::RETRY_AFTER_MAX));
        assert!(control.admit(false).is_ok(), "messages of the assistant itself are only counted");
    }

    #[test]
    fn rejected_messages_are_logged_at_intervals() {
        let clock = ManualClock::new();
        let one = Admission { open_turns: 1, ..Admission::default() };
        let control = AdmissionControl::new(one, Arc::new(clock.clone()));
        let _open = control.admit(true).unwrap();
        let reject = |times: usize| (0..times).for_each(|_| assert!(control.admit(true).is_err()));
        reject(5);
        assert_eq!(control.counts().rejected_since_log, 4, "the first is logged at once");
        clock.advance(limits::OVERLOAD_LOG_INTERVAL);
        reject(1);
        assert_eq!(control.counts().rejected_since_log, 0, "logged together with the earlier ones");
    }

    #[test]
    fn expected_wait_defaults_to_half_of_a_long_turn_timeout() {
        let wait = |def: &ServerDef, seconds: u64| {
            Admission::from_config(def, Duration::from_secs(seconds)).expected_wait.as_secs()
        };
        assert_eq!((wait(&ServerDef::default(), 60), wait(&ServerDef::default(), 300)), (30, 150));
        let own = ServerDef { expected_wait: Some(Duration::from_secs(5)), ..ServerDef::default() };
        assert_eq!(wait(&own, 300), 5);
    }
}
