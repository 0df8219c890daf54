//! The time of a case: it stands still while a turn runs and moves on between turns, so that the same case sees the same
//! times in every run.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use futures::future::BoxFuture;
use segue_engine::time::Timestamp;

use crate::clock::{Clock, Deadline, SystemClock};

/// What passes between two messages of a user.
const BETWEEN_TURNS: Duration = Duration::from_secs(1);
/// Shorter waits are the pace of a scripted model or a pause between looks; longer ones are deadlines.
const PACE: Duration = Duration::from_secs(1);

/// The time of a case.
pub(super) struct CaseClock {
    now: AtomicI64,
    /// Whether short waits end at once: where nothing outside is waited for.
    hurries: bool,
}

impl CaseClock {
    /// A clock that stands at `began`.
    pub(super) fn new(began: Timestamp, hurries: bool) -> Self {
        Self { now: AtomicI64::new(began.as_micros()), hurries }
    }
    /// Lets the time between two messages pass.
    pub(super) fn next_turn(&self) {
        self.now.fetch_add(i64::try_from(BETWEEN_TURNS.as_micros()).unwrap_or(0), Ordering::SeqCst);
    }
}

impl Clock for CaseClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now.load(Ordering::SeqCst))
    }
    fn elapsed(&self) -> Duration {
        SystemClock.elapsed()
    }
    fn sleep(&self, until: Deadline) -> BoxFuture<'_, ()> {
        if self.hurries && until.0.saturating_sub(self.elapsed()) <= PACE {
            return Box::pin(std::future::ready(()));
        }
        SystemClock.sleep(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_moves_between_turns_only() {
        let clock = CaseClock::new(Timestamp::from_micros(5), true);
        let before = clock.now();
        assert_eq!(clock.now(), before);
        clock.next_turn();
        assert_eq!(clock.now().since(before), 1_000_000);
    }

    #[tokio::test]
    async fn a_case_without_a_world_does_not_wait_for_the_pace_of_its_model() {
        let clock = CaseClock::new(Timestamp::from_micros(0), true);
        assert!(futures::poll!(clock.sleep(clock.deadline(Duration::from_millis(900)))).is_ready());
        assert!(futures::poll!(clock.sleep(clock.deadline(Duration::from_secs(60)))).is_pending());
        let patient = CaseClock::new(Timestamp::from_micros(0), false);
        assert!(futures::poll!(patient.sleep(patient.deadline(Duration::from_millis(900)))).is_pending());
    }
}
