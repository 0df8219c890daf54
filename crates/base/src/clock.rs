//! Time as a dependency: whoever needs the time or wants to wait asks a [`Clock`].

use std::{
    sync::OnceLock,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use futures::future::BoxFuture;
pub use segue_lang::time::Timestamp;

use crate::failpoint;

/// A point on the monotonic clock, as the time since the process started. Never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(pub Duration);

impl Deadline {
    /// The earlier of the two.
    pub fn min(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }
}

/// Where time comes from. Tests use a manual one; everything else [`SystemClock`].
pub trait Clock: Send + Sync {
    /// Wall time in UTC. May jump.
    fn now(&self) -> Timestamp;
    /// Monotonic time since some fixed point of this process; for deadlines only.
    fn elapsed(&self) -> Duration;
    /// Completes at `until`. Dropping the future cancels the wait.
    fn sleep(&self, until: Deadline) -> BoxFuture<'_, ()>;
    /// The deadline that lies `after` from now.
    fn deadline(&self, after: Duration) -> Deadline {
        Deadline(self.elapsed().saturating_add(after))
    }
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    #[allow(clippy::disallowed_methods)] // the one place that reads the monotonic clock
    *START.get_or_init(Instant::now)
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[allow(clippy::disallowed_methods)] // the one place that reads the wall clock
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(now.saturating_add(failpoint::clock_ahead()))
    }
    fn elapsed(&self) -> Duration {
        start().elapsed()
    }
    fn sleep(&self, until: Deadline) -> BoxFuture<'_, ()> {
        Box::pin(async move { tokio::time::sleep(until.0.saturating_sub(self.elapsed())).await })
    }
}
