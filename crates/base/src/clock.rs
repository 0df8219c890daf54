//! Time as a dependency: code that needs the time or waits uses a [`Clock`].

use std::{
    sync::OnceLock,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
pub use segue_lang::time::Timestamp;

use crate::failpoint;

/// A point on the monotonic clock: the time since a fixed point of this process. Must not be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(pub Duration);

impl Deadline {
    /// The earlier of the two.
    pub fn min(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }
}

/// A source of time. Tests use [`ManualClock`](crate::manual_clock::ManualClock), everything else [`SystemClock`].
#[async_trait]
pub trait Clock: Send + Sync {
    /// Wall-clock time in UTC. May jump.
    fn now(&self) -> Timestamp;
    /// Monotonic time since a fixed point of this process; only for deadlines.
    fn elapsed(&self) -> Duration;
    /// Completes at `until`. Dropping the future cancels the wait.
    async fn sleep(&self, until: Deadline);
    /// The deadline `after` from now.
    fn deadline(&self, after: Duration) -> Deadline {
        Deadline(self.elapsed().saturating_add(after))
    }
}

/// The clocks of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    #[allow(clippy::disallowed_methods)] // the one place that reads the monotonic clock
    *START.get_or_init(Instant::now)
}

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[allow(clippy::disallowed_methods)] // the one place that reads the wall clock
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(now.saturating_add(failpoint::clock_offset_micros()))
    }
    fn elapsed(&self) -> Duration {
        start().elapsed()
    }
    async fn sleep(&self, until: Deadline) {
        tokio::time::sleep(until.0.saturating_sub(self.elapsed())).await
    }
}
