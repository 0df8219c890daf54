//! Time by hand.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use segue_lang::time::Timestamp;
use tokio::sync::watch;

use crate::{
    clock::{Clock, Deadline},
    context::CallContext,
};

/// Time that moves only when told, or, with [`ManualClock::jumping`], to the deadline of whoever sleeps. Clones are the
/// same clock.
#[derive(Clone, Debug)]
pub struct ManualClock {
    now: Arc<watch::Sender<Duration>>,
    epoch: Timestamp,
    jumps: bool,
    slept: Arc<Mutex<Vec<Duration>>>,
}

impl ManualClock {
    /// Time that moves only when told. It begins with 1970.
    pub fn new() -> Self {
        Self {
            now: Arc::new(watch::Sender::new(Duration::ZERO)),
            epoch: Timestamp::from_micros(0),
            jumps: false,
            slept: Arc::default(),
        }
    }
    /// Time that jumps to the end of every wait: a sleeper never waits.
    pub fn jumping() -> Self {
        Self { jumps: true, ..Self::new() }
    }
    /// The same with another beginning.
    #[must_use]
    pub fn at(mut self, epoch: Timestamp) -> Self {
        self.epoch = epoch;
        self
    }
    /// Lets time pass; wakes whoever slept until then.
    pub fn advance(&self, by: Duration) {
        self.now.send_modify(|now| *now += by);
    }
    /// The length of every wait that was begun, in order.
    pub fn slept(&self) -> Vec<Duration> {
        self.slept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// A context on this clock.
    pub fn cx(&self, limit: Duration) -> CallContext {
        CallContext::new(Arc::new(self.clone()), limit)
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.elapsed().as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(self.epoch.as_micros().saturating_add(passed))
    }
    fn elapsed(&self) -> Duration {
        *self.now.borrow()
    }
    fn sleep(&self, until: Deadline) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let length = until.0.saturating_sub(self.elapsed());
            self.slept.lock().unwrap_or_else(PoisonError::into_inner).push(length);
            if self.jumps {
                self.now.send_modify(|now| *now = (*now).max(until.0));
            }
            // The sender lives in `self`: the wait ends only with the time.
            let _ = self.now.subscribe().wait_for(|now| *now >= until.0).await;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sleeper_wakes_when_told_and_not_before() {
        let clock = ManualClock::new();
        let until = clock.deadline(Duration::from_secs(2));
        let mut sleeping = clock.sleep(until);
        assert!(futures::poll!(&mut sleeping).is_pending());
        clock.advance(Duration::from_secs(1));
        assert!(futures::poll!(&mut sleeping).is_pending());
        clock.advance(Duration::from_secs(1));
        assert!(futures::poll!(&mut sleeping).is_ready());
        assert_eq!(clock.slept(), [Duration::from_secs(2)]);
    }
}
