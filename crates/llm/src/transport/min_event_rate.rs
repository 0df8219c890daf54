//! Ends streams that send events too slowly: they are no better than silence.

use std::time::Duration;

use segue_base::limits;

use crate::error::{LlmError, LlmErrorKind};

/// Watches how many events come in the time that an answer is waited for. The time its reader takes does not count.
#[derive(Debug, Default)]
pub(super) struct MinEventRate {
    /// Since when the next event is waited for; `None` before the first.
    since: Option<Duration>,
    /// How long the events of this stretch were waited for together.
    waited: Duration,
    /// Events before this stretch.
    before: u64,
}

impl MinEventRate {
    /// The reader is back at `now`.
    pub(super) fn resume(&mut self, now: Duration) {
        if let Some(since) = &mut self.since {
            *since = now;
        }
    }

    /// Takes note that `events` have come until `now`, of a stream whose events may be `idle` apart.
    ///
    /// # Errors
    /// They were fewer than [`limits::MODEL_MIN_EVENTS`] in twice that time.
    pub(super) fn came(&mut self, events: u64, now: Duration, idle: Duration) -> Result<(), LlmError> {
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
            let said = format!("only {came} events in {:?}; the minimum is {}", self.waited, limits::MODEL_MIN_EVENTS);
            return Err(LlmError::new(LlmErrorKind::Idle).because(said));
        }
        (self.waited, self.before) = (Duration::ZERO, events);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(10);

    /// Events that are this many milliseconds apart, and after how many of them it is enough; each is read for `reading`.
    fn patience(apart: u64, reading: u64) -> Option<u64> {
        let (mut rate, mut now) = (MinEventRate::default(), Duration::ZERO);
        (1..1000).find(|n| {
            now += Duration::from_millis(apart);
            let judged = rate.came(*n, now, IDLE);
            now += Duration::from_millis(reading);
            rate.resume(now);
            judged.is_err()
        })
    }

    #[test]
    fn the_rate_decides_and_not_the_pauses() {
        assert_eq!(patience(9_000, 0), Some(4), "three pauses of nine seconds");
        assert_eq!(patience(3_000, 0), Some(8), "seven of three");
        assert_eq!(patience(2_000, 0), None, "slow, but it comes");
        assert_eq!(patience(0, 60_000), None, "a slow reader is not the model's fault");
    }

    #[test]
    fn a_good_beginning_does_not_excuse_the_rest() {
        let (mut rate, mut now) = (MinEventRate::default(), Duration::ZERO);
        for n in 1..500 {
            now += Duration::from_millis(100);
            assert_eq!(rate.came(n, now, IDLE), Ok(()));
        }
        let cut = (500..520).find(|n| {
            now += Duration::from_secs(8);
            rate.came(*n, now, IDLE).is_err()
        });
        assert!(cut.is_some_and(|n| n < 508), "{cut:?}");
    }
}
