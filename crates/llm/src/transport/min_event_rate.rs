//! A minimum rate of events: fails streams that send events so slowly that the response would not end in reasonable time.

use std::time::Duration;

use segue_base::limits;

use crate::error::{LlmError, LlmErrorKind};

/// Counts events per waiting time. The time that the consumer takes does not count.
#[derive(Debug, Default)]
pub(super) struct MinEventRate {
    /// When the wait for the next event began; `None` before the first event.
    since: Option<Duration>,
    /// Total waiting time in the current window.
    waited: Duration,
    /// Events before the current window.
    before: u64,
}

impl MinEventRate {
    /// The consumer asked for the next delta at `now`.
    pub(super) fn resume(&mut self, now: Duration) {
        if let Some(since) = &mut self.since {
            *since = now;
        }
    }

    /// Records that `events` have come until `now`, in a stream with the idle timeout `idle`.
    ///
    /// # Errors
    /// Fewer than [`limits::MODEL_MIN_EVENTS`] events came in twice the idle timeout.
    pub(super) fn record(&mut self, events: u64, now: Duration, idle: Duration) -> Result<(), LlmError> {
        let Some(since) = self.since.replace(now) else {
            self.before = events;
            return Ok(());
        };
        self.waited += now.saturating_sub(since);
        if self.waited < idle.saturating_mul(2) {
            return Ok(());
        }
        let came = events.saturating_sub(self.before);
        if came < limits::MODEL_MIN_EVENTS {
            let detail =
                format!("only {came} events in {:?}; the minimum is {}", self.waited, limits::MODEL_MIN_EVENTS);
            return Err(LlmError::new(LlmErrorKind::IdleTimeout).with_detail(detail));
        }
        (self.waited, self.before) = (Duration::ZERO, events);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(10);

    /// The number of events after which a stream fails whose events are `apart` milliseconds apart. The consumer takes `reading`
    /// milliseconds for each.
    fn fails_after(apart: u64, reading: u64) -> Option<u64> {
        let (mut rate, mut now) = (MinEventRate::default(), Duration::ZERO);
        (1..1000).find(|n| {
            now += Duration::from_millis(apart);
            let result = rate.record(*n, now, IDLE);
            now += Duration::from_millis(reading);
            rate.resume(now);
            result.is_err()
        })
    }

    #[test]
    fn the_rate_decides_and_not_single_pauses() {
        assert_eq!(fails_after(9_000, 0), Some(4), "three pauses of 9 s");
        assert_eq!(fails_after(3_000, 0), Some(8), "seven pauses of 3 s");
        assert_eq!(fails_after(2_000, 0), None, "slow, but above the minimum");
        assert_eq!(fails_after(0, 60_000), None, "the consumer's time does not count");
    }

    #[test]
    fn a_fast_start_does_not_hide_a_slow_rest() {
        let (mut rate, mut now) = (MinEventRate::default(), Duration::ZERO);
        for n in 1..500 {
            now += Duration::from_millis(100);
            assert_eq!(rate.record(n, now, IDLE), Ok(()));
        }
        let failed_at = (500..520).find(|n| {
            now += Duration::from_secs(8);
            rate.record(*n, now, IDLE).is_err()
        });
        assert!(failed_at.is_some_and(|n| n < 508), "{failed_at:?}");
    }
}
