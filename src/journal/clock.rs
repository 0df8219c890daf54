//! The clock of a turn: wall time from the journal.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use segue_engine::time::Timestamp;

use crate::clock::{Clock, Deadline};

/// A clock whose wall time is the time of the newest recorded outcome. It does not advance while the turn computes, so that a replay
/// sees the same times. Sleeping and deadlines use the real clock.
pub struct TurnClock {
    real: Arc<dyn Clock>,
    latest: AtomicI64,
}

impl TurnClock {
    /// A clock that starts at `at`.
    pub fn new(real: Arc<dyn Clock>, at: Timestamp) -> Self {
        Self { real, latest: AtomicI64::new(at.as_micros()) }
    }
    /// The real time, for an outcome that is recorded now. Never before a recorded time.
    pub(super) fn real_now(&self) -> Timestamp {
        self.real.now().max(self.now())
    }
    pub(super) fn advance(&self, at: Timestamp) {
        self.latest.fetch_max(at.as_micros(), Ordering::SeqCst);
    }
}

#[async_trait]
impl Clock for TurnClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.latest.load(Ordering::SeqCst))
    }
    fn elapsed(&self) -> Duration {
        self.real.elapsed()
    }
    async fn sleep(&self, until: Deadline) {
        self.real.sleep(until).await
    }
}
