//! A clock that only advances when a test advances it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use segue_lang::time::Timestamp;
use tokio::sync::watch;

use crate::{
    clock::{Clock, Deadline},
    context::CallContext,
};

/// A clock that moves only with [`advance`](Self::advance), or, if created by [`auto_advancing`](Self::auto_advancing), to the deadline of
/// every wait. Clones share their time.
#[derive(Clone, Debug)]
pub struct ManualClock {
    now: Arc<watch::Sender<Duration>>,
    epoch: Timestamp,
    auto_advances: bool,
    slept: Arc<Mutex<Vec<Duration>>>,
}

impl ManualClock {
    /// A clock that moves only with [`advance`](Self::advance). It starts at 1970-01-01 00:00 UTC.
    pub fn new() -> Self {
        Self {
            now: Arc::new(watch::Sender::new(Duration::ZERO)),
            epoch: Timestamp::from_micros(0),
            auto_advances: false,
            slept: Arc::default(),
        }
    }
    /// A clock that advances to the end of every wait, so that no wait takes real time.
    pub fn auto_advancing() -> Self {
        Self { auto_advances: true, ..Self::new() }
    }
    /// The same clock with another start.
    #[must_use]
    pub fn at(mut self, epoch: Timestamp) -> Self {
        self.epoch = epoch;
        self
    }
    /// Advances the time and wakes the waits whose deadline is reached.
    pub fn advance(&self, by: Duration) {
        self.now.send_modify(|now| *now += by);
    }
    /// The length of every wait so far, in the order in which they started.
    pub fn slept(&self) -> Vec<Duration> {
        self.slept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// A call context with this clock and a deadline `limit` from now.
    pub fn context(&self, limit: Duration) -> CallContext {
        CallContext::new(Arc::new(self.clone()), limit)
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.elapsed().as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(self.epoch.as_micros().saturating_add(passed))
    }
    fn elapsed(&self) -> Duration {
        *self.now.borrow()
    }
    async fn sleep(&self, until: Deadline) {
        let length = until.0.saturating_sub(self.elapsed());
        self.slept.lock().unwrap_or_else(PoisonError::into_inner).push(length);
        if self.auto_advances {
            self.now.send_modify(|now| *now = (*now).max(until.0));
        }
        // The sender is in `self`, so the channel cannot close before the deadline.
        let _ = self.now.subscribe().wait_for(|now| *now >= until.0).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_ends_at_its_deadline_and_not_before() {
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
