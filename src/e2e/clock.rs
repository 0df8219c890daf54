//! The clock of a case. Its time does not change during a turn and advances by one second between turns, so that every run of a case
//! has the same times.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use segue_engine::time::Timestamp;

use crate::clock::{Clock, Deadline, SystemClock};

/// The time that passes between two messages of the user.
const BETWEEN_TURNS: Duration = Duration::from_secs(1);
/// The longest wait that can be skipped: delays of a scripted model and polling intervals. Longer waits are deadlines.
const SHORT_WAIT: Duration = Duration::from_secs(1);

/// The clock of one case.
pub(super) struct CaseClock {
    now: AtomicI64,
    /// Whether short waits end immediately: for cases that use no external service.
    skips_short_waits: bool,
}

impl CaseClock {
    /// A clock that starts at `started_at`.
    pub(super) fn new(started_at: Timestamp, skips_short_waits: bool) -> Self {
        Self { now: AtomicI64::new(started_at.as_micros()), skips_short_waits }
    }
    /// Advances to the time of the next message.
    pub(super) fn next_turn(&self) {
        self.now.fetch_add(i64::try_from(BETWEEN_TURNS.as_micros()).unwrap_or(0), Ordering::SeqCst);
    }
}

#[async_trait]
impl Clock for CaseClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now.load(Ordering::SeqCst))
    }
    fn elapsed(&self) -> Duration {
        SystemClock.elapsed()
    }
    async fn sleep(&self, until: Deadline) {
        if self.skips_short_waits && until.0.saturating_sub(self.elapsed()) <= SHORT_WAIT {
            return;
        }
        SystemClock.sleep(until).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_advances_only_between_turns() {
        let clock = CaseClock::new(Timestamp::from_micros(5), true);
        let before = clock.now();
        assert_eq!(clock.now(), before);
        clock.next_turn();
        assert_eq!(clock.now().since(before), 1_000_000);
    }

    #[tokio::test]
    async fn short_waits_are_skipped_without_external_services() {
        let clock = CaseClock::new(Timestamp::from_micros(0), true);
        assert!(futures::poll!(clock.sleep(clock.deadline(Duration::from_millis(900)))).is_ready());
        assert!(futures::poll!(clock.sleep(clock.deadline(Duration::from_secs(60)))).is_pending());
        let live = CaseClock::new(Timestamp::from_micros(0), false);
        assert!(futures::poll!(live.sleep(live.deadline(Duration::from_millis(900)))).is_pending());
    }
}
