//! The context of a call: deadline, cancellation and step key. Every call that may wait takes one.

use std::{
    fmt::{self, Write},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use crate::{
    clock::{Clock, Deadline},
    effect::EffectClass,
};

/// The path of one effect within its turn, such as `booking/2/tool.0`. Replaying a turn yields the same keys. The idempotency key of an
/// outbound request is derived from the conversation, the turn, its seed and this key.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct StepKey(Arc<str>);

impl StepKey {
    /// The key of a turn as a whole.
    pub fn root() -> Self {
        Self("".into())
    }
    /// A stored key.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }
    /// The key one level below.
    pub fn child(&self, part: impl fmt::Display) -> Self {
        // Avoids a reallocation for most parts; a key is created for every step.
        let mut text = String::with_capacity(self.0.len() + 32);
        if !self.0.is_empty() {
            text.push_str(&self.0);
            text.push('/');
        }
        // Writing to a String cannot fail.
        let _ = write!(text, "{part}");
        Self(text.into())
    }
    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StepKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl fmt::Debug for StepKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StepKey({})", self.0)
    }
}

/// The context of one call that may wait. Cloning is cheap.
#[derive(Clone)]
pub struct CallContext {
    /// When the call must have ended. A callee may only shorten it.
    pub deadline: Deadline,
    /// Cancelled when the result is no longer needed.
    pub cancel: Arc<CancellationToken>,
    /// The step key of the call within its turn.
    pub key: StepKey,
    /// The random seed of the turn, drawn when its message was accepted and stored with it: every replay of the turn has the same seed.
    /// 0 outside of turns.
    pub seed: u64,
    /// The clock for deadlines and waits.
    pub clock: Arc<dyn Clock>,
    /// The idle timeout, if the callee reports progress: without progress the wait ends before the deadline.
    pub idle_timeout: Option<Arc<IdleTimeout>>,
}

/// A timeout that progress of the callee renews, up to the deadline of its context.
#[derive(Debug)]
pub struct IdleTimeout {
    /// The longest time without progress.
    limit: Duration,
    /// When the current period ends, in microseconds of the monotonic clock.
    until: AtomicU64,
}

impl IdleTimeout {
    fn new(limit: Duration, now: Duration) -> Self {
        Self { limit, until: AtomicU64::new(micros(now.saturating_add(limit))) }
    }
    fn ends(&self) -> Deadline {
        Deadline(Duration::from_micros(self.until.load(Ordering::SeqCst)))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Why a wait ended without its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The deadline of the context passed.
    #[error("the deadline passed")]
    DeadlinePassed,
    /// The call was cancelled.
    #[error("cancelled")]
    Cancelled,
}

impl CallContext {
    /// A context whose deadline is `limit` from now.
    pub fn new(clock: Arc<dyn Clock>, limit: Duration) -> Self {
        Self {
            deadline: clock.deadline(limit),
            cancel: Arc::default(),
            key: StepKey::root(),
            seed: 0,
            clock,
            idle_timeout: None,
        }
    }
    /// The same context for the step `part` below this one.
    pub fn step(&self, part: impl fmt::Display) -> Self {
        Self { key: self.key.child(part), ..self.clone() }
    }
    /// The same context with a deadline at most `limit` from now.
    pub fn with_timeout(&self, limit: Duration) -> Self {
        Self { deadline: self.deadline.min(self.clock.deadline(limit)), ..self.clone() }
    }
    /// The same context for a callee that reports progress with [`reset_idle_timeout`](Self::reset_idle_timeout): it may take `limit`
    /// without progress and `total` altogether.
    pub fn with_idle_timeout(&self, limit: Duration, total: Duration) -> Self {
        let idle_timeout = Arc::new(IdleTimeout::new(limit, self.clock.elapsed()));
        Self { idle_timeout: Some(idle_timeout), ..self.with_timeout(total) }
    }
    /// Renews the idle timeout, because the callee reported progress. Has no effect after the timeout has passed.
    pub fn reset_idle_timeout(&self) {
        let Some(idle_timeout) = &self.idle_timeout else { return };
        let now = self.clock.elapsed();
        if now < idle_timeout.ends().0 {
            idle_timeout.until.fetch_max(micros(now.saturating_add(idle_timeout.limit)), Ordering::SeqCst);
        }
    }
    /// When the wait ends, unless the idle timeout is renewed.
    fn ends(&self) -> Deadline {
        self.idle_timeout.as_ref().map_or(self.deadline, |idle_timeout| self.deadline.min(idle_timeout.ends()))
    }
    /// A context that is cancelled with this one, and that can also be cancelled alone.
    pub fn child(&self) -> Self {
        Self { cancel: self.cancel.child_token().into(), ..self.clone() }
    }
    /// The same context without cancellation, for work that must run to its end.
    pub fn uncancellable(&self) -> Self {
        Self { cancel: CancellationToken::new().into(), ..self.clone() }
    }
    /// The same context for performing an effect of this class. A running `write` is never cancelled; it ends by itself or at its
    /// deadline.
    pub fn for_effect(&self, class: EffectClass) -> Self {
        if class == EffectClass::Write { self.uncancellable() } else { self.clone() }
    }
    /// The time left until the wait ends.
    pub fn remaining(&self) -> Duration {
        self.ends().0.saturating_sub(self.clock.elapsed())
    }
    /// Waits for `work` until the deadline or the cancellation, and then drops it.
    ///
    /// # Errors
    /// [`WaitError`] if the deadline passes or the call is cancelled first.
    pub async fn wait<F: Future>(&self, work: F) -> Result<F::Output, WaitError> {
        self.wait_with_grace(Duration::ZERO, work).await
    }
    /// As [`wait`](Self::wait), with `grace` beyond the deadline.
    ///
    /// # Errors
    /// [`WaitError`] if deadline and grace pass or the call is cancelled first.
    pub async fn wait_with_grace<F: Future>(&self, grace: Duration, work: F) -> Result<F::Output, WaitError> {
        let mut work = pin!(work);
        loop {
            let until = self.ends();
            // The order matters: cancelled work is not polled again, and a result that is ready counts even after the deadline.
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Err(WaitError::Cancelled),
                done = &mut work => return Ok(done),
                () = self.clock.sleep(Deadline(until.0.saturating_add(grace))) => {
                    // The idle timeout may have been renewed during the wait.
                    if self.ends() <= until {
                        return Err(WaitError::DeadlinePassed);
                    }
                }
            }
        }
    }
}

impl fmt::Debug for CallContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallContext").field("key", &self.key).field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{future::pending, pin::pin};

    use futures::poll;

    use super::*;
    use crate::manual_clock::ManualClock;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn progress_renews_the_idle_timeout_up_to_the_deadline() {
        let clock = ManualClock::new();
        let cx = clock.context(100 * SECOND).with_idle_timeout(3 * SECOND, 7 * SECOND);
        assert_eq!(cx.remaining(), 3 * SECOND);
        let mut waiting = pin!(cx.wait(pending::<()>()));
        for left in [3, 3, 1] {
            assert!(poll!(&mut waiting).is_pending());
            clock.advance(2 * SECOND);
            cx.reset_idle_timeout();
            assert!(poll!(&mut waiting).is_pending());
            assert_eq!(cx.remaining(), left * SECOND);
        }
        clock.advance(SECOND);
        cx.reset_idle_timeout();
        assert_eq!(waiting.await, Err(WaitError::DeadlinePassed));
    }

    #[tokio::test]
    async fn cancellation_ends_a_wait() {
        let clock = ManualClock::new();
        let cx = clock.context(SECOND);
        let cancel = cx.cancel.clone();
        let waiting = tokio::spawn(async move { cx.wait(pending::<()>()).await });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        cancel.cancel();
        assert_eq!(waiting.await.unwrap(), Err(WaitError::Cancelled));
    }

    #[tokio::test]
    async fn progress_after_the_idle_timeout_has_no_effect() {
        let clock = ManualClock::new();
        let cx = clock.context(100 * SECOND).with_idle_timeout(3 * SECOND, 50 * SECOND);
        clock.advance(3 * SECOND);
        cx.reset_idle_timeout();
        assert_eq!(cx.remaining(), Duration::ZERO);
        assert_eq!(cx.wait(pending::<()>()).await, Err(WaitError::DeadlinePassed));
    }
}
