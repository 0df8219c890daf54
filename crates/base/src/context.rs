//! What travels with every call that may wait: deadline, cancellation, and the address of the step.

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

/// The address of one effect within its turn, such as `booking/2/tool.0`. The same turn, run again from its record, gives
/// the same keys; the idempotency key sent to others is made of the conversation, the turn, its seed and this.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct StepKey(Arc<str>);

impl StepKey {
    /// The key of a turn as a whole.
    pub fn root() -> Self {
        Self("".into())
    }
    /// Takes a stored key.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }
    /// The key one level below.
    pub fn child(&self, part: impl fmt::Display) -> Self {
        // Room for most parts: a key is made for every step.
        let mut text = String::with_capacity(self.0.len() + 32);
        if !self.0.is_empty() {
            text.push_str(&self.0);
            text.push('/');
        }
        // Writing to a text cannot fail.
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

/// Travels with every call that may wait. Cheap to clone.
#[derive(Clone)]
pub struct CallContext {
    /// When the call must have ended; a callee may only shorten it.
    pub deadline: Deadline,
    /// Fires when nobody wants the result any more.
    pub cancel: Arc<CancellationToken>,
    /// The address of this step within its turn.
    pub key: StepKey,
    /// The seed of the turn: drawn when its message was accepted and stored with it, so that it is the same whenever the turn
    /// runs again, and no other turn has it. 0 outside of turns.
    pub seed: u64,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// How long the callee may be silent, where its signs of life count: the wait then ends before the deadline.
    pub patience: Option<Arc<Patience>>,
}

/// A wait that signs of life push on, up to the deadline of its context.
#[derive(Debug)]
pub struct Patience {
    /// The longest silence.
    silence: Duration,
    /// When the present silence is over, in microseconds of the monotonic clock.
    until: AtomicU64,
}

impl Patience {
    fn new(silence: Duration, now: Duration) -> Self {
        Self { silence, until: AtomicU64::new(micros(now.saturating_add(silence))) }
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
    /// Somebody cancelled.
    #[error("cancelled")]
    Cancelled,
}

impl CallContext {
    /// A context that ends `limit` from now.
    pub fn new(clock: Arc<dyn Clock>, limit: Duration) -> Self {
        Self {
            deadline: clock.deadline(limit),
            cancel: Arc::default(),
            key: StepKey::root(),
            seed: 0,
            clock,
            patience: None,
        }
    }
    /// The same context for the step `part` below this one.
    pub fn step(&self, part: impl fmt::Display) -> Self {
        Self { key: self.key.child(part), ..self.clone() }
    }
    /// The same context, ending `limit` from now at the latest.
    pub fn within(&self, limit: Duration) -> Self {
        Self { deadline: self.deadline.min(self.clock.deadline(limit)), ..self.clone() }
    }
    /// The same context for a callee that may be silent for `silence`, and take `most` altogether as long as it shows signs
    /// of life by [`alive`](Self::alive).
    pub fn patient(&self, silence: Duration, most: Duration) -> Self {
        let patience = Arc::new(Patience::new(silence, self.clock.elapsed()));
        Self { patience: Some(patience), ..self.within(most) }
    }
    /// A sign of life: whoever waits with patience waits anew. What comes too late changes nothing.
    pub fn alive(&self) {
        let Some(patience) = &self.patience else { return };
        let now = self.clock.elapsed();
        if now < patience.ends().0 {
            patience.until.fetch_max(micros(now.saturating_add(patience.silence)), Ordering::SeqCst);
        }
    }
    /// When the wait is over, as things stand.
    fn ends(&self) -> Deadline {
        self.patience.as_ref().map_or(self.deadline, |patience| self.deadline.min(patience.ends()))
    }
    /// A context whose cancellation follows this one's but can also be fired alone.
    pub fn child(&self) -> Self {
        Self { cancel: self.cancel.child_token().into(), ..self.clone() }
    }
    /// The same context for what runs to its end whoever cancels.
    pub fn sheltered(&self) -> Self {
        Self { cancel: CancellationToken::new().into(), ..self.clone() }
    }
    /// The same context for carrying out an effect of this class: a running `write` is never cancelled, it ends by itself or by its
    /// deadline.
    pub fn performing(&self, class: EffectClass) -> Self {
        if class == EffectClass::Write { self.sheltered() } else { self.clone() }
    }
    /// Time left until the wait is over.
    pub fn remaining(&self) -> Duration {
        self.ends().0.saturating_sub(self.clock.elapsed())
    }
    /// Waits for `work`, but no longer than the deadline or the cancellation. The work is dropped when it is stopped.
    ///
    /// # Errors
    /// [`WaitError`] when the deadline passed or somebody cancelled first.
    pub async fn wait<F: Future>(&self, work: F) -> Result<F::Output, WaitError> {
        self.wait_beyond(Duration::ZERO, work).await
    }
    /// As [`wait`](Self::wait), with `grace` beyond the deadline.
    ///
    /// # Errors
    /// [`WaitError`] when the deadline and the grace passed or somebody cancelled first.
    pub async fn wait_beyond<F: Future>(&self, grace: Duration, work: F) -> Result<F::Output, WaitError> {
        let mut work = pin!(work);
        loop {
            let until = self.ends();
            // In this order: what is cancelled does no more; what is done counts, however late it is.
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Err(WaitError::Cancelled),
                done = &mut work => return Ok(done),
                () = self.clock.sleep(Deadline(until.0.saturating_add(grace))) => {
                    // A sign of life may have come meanwhile.
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
        f.debug_struct("Cx").field("key", &self.key).field("deadline", &self.deadline).finish_non_exhaustive()
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
    async fn signs_of_life_push_the_end_on_but_never_past_the_deadline() {
        let clock = ManualClock::new();
        let cx = clock.cx(100 * SECOND).patient(3 * SECOND, 7 * SECOND);
        assert_eq!(cx.remaining(), 3 * SECOND);
        let mut waiting = pin!(cx.wait(pending::<()>()));
        for left in [3, 3, 1] {
            assert!(poll!(&mut waiting).is_pending());
            clock.advance(2 * SECOND);
            cx.alive();
            assert!(poll!(&mut waiting).is_pending());
            assert_eq!(cx.remaining(), left * SECOND);
        }
        clock.advance(SECOND);
        cx.alive();
        assert_eq!(waiting.await, Err(WaitError::DeadlinePassed));
    }

    #[tokio::test]
    async fn a_wait_wakes_when_it_is_cancelled() {
        let clock = ManualClock::new();
        let cx = clock.cx(SECOND);
        let cancel = cx.cancel.clone();
        let waiting = tokio::spawn(async move { cx.wait(pending::<()>()).await });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        cancel.cancel();
        assert_eq!(waiting.await.unwrap(), Err(WaitError::Cancelled));
    }

    #[tokio::test]
    async fn a_sign_of_life_that_comes_too_late_changes_nothing() {
        let clock = ManualClock::new();
        let cx = clock.cx(100 * SECOND).patient(3 * SECOND, 50 * SECOND);
        clock.advance(3 * SECOND);
        cx.alive();
        assert_eq!(cx.remaining(), Duration::ZERO);
        assert_eq!(cx.wait(pending::<()>()).await, Err(WaitError::DeadlinePassed));
    }
}
