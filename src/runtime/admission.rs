//! Which messages are taken: one budget for open turns, one for the expected wait, and a share for each caller. What is beyond them
//! is refused before anything is stored, with the time after which it is worth trying again.
//!
//! The expected wait is what a turn takes lately, times the turns that stand before the message: those of its conversation, or all
//! open ones divided by those that run at once. A turn whose caller has left goes on, and gives its place in the budget to others.

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

/// How much an assistant takes on at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Turns that may be open: accepted and not answered.
    pub open_turns: usize,
    /// Turns that run at once; other open ones wait.
    pub running_turns: usize,
    /// Open turns of one caller.
    pub turns_per_caller: usize,
    /// The longest time to an answer that may be expected when a message is accepted.
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
    /// As `server` of endpoints.yml says, for turns that may take as long as `turn_wall`: where nothing else is set, half of that may
    /// be waited when it is more than usual.
    pub(super) fn of(def: &ServerDef, turn_wall: Duration) -> Self {
        let usual = Self::default();
        Self {
            open_turns: def.open_turns.unwrap_or(usual.open_turns),
            running_turns: def.running_turns.unwrap_or(usual.running_turns),
            turns_per_caller: def.turns_per_caller.unwrap_or(usual.turns_per_caller),
            expected_wait: def.expected_wait.unwrap_or(usual.expected_wait.max(turn_wall / 2)),
        }
    }
}

/// Why a message was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overload {
    /// Which limit was reached.
    pub limit: OverloadLimit,
    /// When it is worth trying again.
    pub retry_after: Duration,
}

/// The limits of [`Admission`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverloadLimit {
    /// Too many turns are open.
    OpenTurns,
    /// The answer would take too long.
    ExpectedWait,
    /// The conversation has messages before this one whose answers take too long.
    Conversation,
    /// The caller has too many open turns.
    Caller,
}

impl Overload {
    /// Whether the caller alone is at its limit, and others are not.
    pub fn is_callers(&self) -> bool {
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

/// Counts open turns against the limits.
pub(super) struct AdmissionControl {
    limits: Admission,
    clock: Arc<dyn Clock>,
    counts: Mutex<Counts>,
    /// Turns that run.
    running: Arc<Semaphore>,
    /// Turns that nobody waits for: those of an earlier process, and those that had not begun when their callers left.
    background: Arc<Semaphore>,
}

#[derive(Default)]
struct Counts {
    open: usize,
    /// Open turns whose callers have left; they are not in `open`.
    left: usize,
    callers: HashMap<Arc<str>, usize>,
    /// What a turn takes, averaged over the latest.
    turn_time: Option<Duration>,
    /// Messages that were refused since the log said so, and when it did.
    refused: u64,
    told: Option<Duration>,
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

    /// A place among the open turns. Whoever asks for it from outside may be refused; what the assistant does by itself is only counted.
    pub(super) fn admit(self: &Arc<Self>, is_from_outside: bool) -> Result<Arc<Place>, ReceiveError> {
        let mut counts = self.counts();
        if is_from_outside && counts.open >= self.limits.open_turns {
            return Err(self.refuse(&mut counts, OverloadLimit::OpenTurns, Duration::ZERO));
        }
        counts.open += 1;
        Ok(Arc::new(Place {
            control: self.clone(),
            left: CancellationToken::new(),
            held: Mutex::new(MailboxTable { caller: None, is_left: false, began: None, permit: None }),
        }))
    }

    /// Waits for one of the few places of turns that nobody waits for.
    pub(super) async fn in_background(&self) -> Result<OwnedSemaphorePermit, ReceiveError> {
        self.background.clone().acquire_owned().await.map_err(|_| ReceiveError::Closing)
    }

    fn refuse(&self, counts: &mut Counts, limit: OverloadLimit, beyond: Duration) -> ReceiveError {
        counts.refused += 1;
        let now = self.clock.elapsed();
        if counts.told.is_none_or(|told| now.saturating_sub(told) >= limits::OVERLOAD_LOG_INTERVAL) {
            let refused = std::mem::take(&mut counts.refused);
            counts.told = Some(now);
            let (open, left) = (counts.open, counts.left);
            tracing::warn!(code = "R0106", refused, open, left, "messages are refused: {limit:?} is reached");
        }
        // Rounded up to whole seconds, which is what the header takes.
        let after = beyond.max(counts.turn_time.unwrap_or_default()).as_millis().div_ceil(1000);
        let most = limits::RETRY_AFTER_MAX.as_secs();
        let retry_after = Duration::from_secs(u64::try_from(after).unwrap_or(most).clamp(1, most));
        ReceiveError::Overloaded(Overload { limit, retry_after })
    }
}

/// One open turn in the budget; dropped when it ends.
pub(super) struct Place {
    control: Arc<AdmissionControl>,
    left: CancellationToken,
    held: Mutex<MailboxTable>,
}

struct MailboxTable {
    caller: Option<Arc<str>>,
    is_left: bool,
    began: Option<Duration>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Place {
    fn held(&self) -> MutexGuard<'_, MailboxTable> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the turn for its caller, behind so many others of its conversation.
    pub(super) fn claim(&self, caller: &str, before: usize) -> Result<(), ReceiveError> {
        let control = &self.control;
        let mut counts = control.counts();
        let own = counts.callers.get(caller).copied().unwrap_or_default();
        if own >= control.limits.turns_per_caller {
            return Err(control.refuse(&mut counts, OverloadLimit::Caller, Duration::ZERO));
        }
        let turn = counts.turn_time.unwrap_or_default();
        let rounds = counts.open.div_ceil(control.limits.running_turns.max(1));
        let times = |rounds: usize| turn.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX));
        let (queue, all) = (times(before + 1), times(rounds));
        let most = control.limits.expected_wait;
        if before > 0 && queue > most {
            return Err(control.refuse(&mut counts, OverloadLimit::Conversation, queue - most));
        }
        // With few open turns nobody waits for others: however long turns take, trying is worth it.
        if all > most && counts.open > limits::ADMITTED_MIN {
            return Err(control.refuse(&mut counts, OverloadLimit::ExpectedWait, all - most));
        }
        let caller: Arc<str> = caller.into();
        *counts.callers.entry(caller.clone()).or_default() += 1;
        drop(counts);
        self.held().caller = Some(caller);
        Ok(())
    }

    /// Waits until the turn may run.
    pub(super) async fn begin(&self) -> Result<(), ReceiveError> {
        let closing = |_| ReceiveError::Closing;
        let (permit, is_background) = tokio::select! {
            biased;
            permit = self.control.running.clone().acquire_owned() => (permit.map_err(closing)?, false),
            () = self.left.cancelled() => (self.control.in_background().await?, true),
        };
        let mut held = self.held();
        held.began = Some(self.control.clock.elapsed());
        // Whoever left meanwhile gave the place among those that run away.
        if is_background || !held.is_left {
            held.permit = Some(permit);
        }
        Ok(())
    }

    /// OfflineModel waits for the answer any more: the turn goes on, and its place is free for others. Of turns that go on so there are
    /// only so many; those beyond them keep their places.
    pub(super) fn leave(&self) {
        let mut held = self.held();
        let mut counts = self.control.counts();
        if held.is_left || counts.left >= limits::TURNS_ABANDONED {
            return;
        }
        held.is_left = true;
        counts.open -= 1;
        counts.left += 1;
        drop(counts);
        held.permit = None;
        drop(held);
        self.left.cancel();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut counts = self.control.counts();
        if held.is_left {
            counts.left -= 1
        } else {
            counts.open -= 1
        }
        if let Some(caller) = held.caller.take()
            && let Some(count) = counts.callers.get_mut(&caller)
        {
            *count -= 1;
            if *count == 0 {
                counts.callers.remove(&caller);
            }
        }
        if let Some(began) = held.began {
            let took = self.control.clock.elapsed().saturating_sub(began);
            let weight = limits::TURN_TIME_WEIGHT;
            counts.turn_time = Some(match counts.turn_time {
                Some(time) => (time * (weight - 1) + took) / weight,
                None => took,
            });
        }
    }
}

/// Says that a caller has left, unless the answer came first.
pub(super) struct CallerWatch(Option<Arc<Place>>);

impl CallerWatch {
    pub(super) fn of(place: &Arc<Place>) -> Self {
        Self(Some(place.clone()))
    }
    pub(super) fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for CallerWatch {
    fn drop(&mut self) {
        if let Some(place) = self.0.take() {
            place.leave();
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
            let place = control.admit(true).unwrap();
            place.begin().await.unwrap();
            clock.advance(Duration::from_secs(seconds));
            drop(place);
            assert_eq!(control.counts().turn_time, Some(Duration::from_secs(expected.into()) / weight));
        }
        // What never began says nothing about turns.
        let before = control.counts().turn_time;
        drop(control.admit(true).unwrap());
        assert_eq!(control.counts().turn_time, before);
        let counts = control.counts();
        assert_eq!((counts.open, counts.callers.len()), (0, 0));
    }

    #[tokio::test]
    async fn nobody_is_asked_to_wait_for_longer_than_a_minute() {
        let clock = ManualClock::new();
        let one = Admission { open_turns: 1, ..Admission::default() };
        let control = AdmissionControl::new(one, Arc::new(clock.clone()));
        let place = control.admit(true).unwrap();
        place.begin().await.unwrap();
        clock.advance(10 * limits::RETRY_AFTER_MAX);
        drop(place);
        let _open = control.admit(true).unwrap();
        let error = control.admit(true).err().unwrap();
        assert_eq!(error.retry_after(), Some(limits::RETRY_AFTER_MAX));
        assert!(control.admit(false).is_ok(), "what the assistant does by itself is only counted");
    }

    #[test]
    fn a_crowd_that_is_refused_is_told_in_the_log_now_and_then() {
        let clock = ManualClock::new();
        let one = Admission { open_turns: 1, ..Admission::default() };
        let control = AdmissionControl::new(one, Arc::new(clock.clone()));
        let _open = control.admit(true).unwrap();
        let refuse = |times: usize| (0..times).for_each(|_| assert!(control.admit(true).is_err()));
        refuse(5);
        assert_eq!(control.counts().refused, 4, "the first was told at once");
        clock.advance(limits::OVERLOAD_LOG_INTERVAL);
        refuse(1);
        assert_eq!(control.counts().refused, 0, "with the others");
    }

    #[test]
    fn a_project_with_long_turns_may_let_its_callers_wait_for_longer() {
        let of = |def: &ServerDef, wall: u64| Admission::of(def, Duration::from_secs(wall)).expected_wait.as_secs();
        assert_eq!((of(&ServerDef::default(), 60), of(&ServerDef::default(), 300)), (30, 150));
        let own = ServerDef { expected_wait: Some(Duration::from_secs(5)), ..ServerDef::default() };
        assert_eq!(of(&own, 300), 5);
    }
}
