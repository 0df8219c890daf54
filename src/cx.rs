//! What travels with every call that may wait: deadline, cancellation, and the address of the step.

use std::{
    fmt::{self, Write},
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use pin_project_lite::pin_project;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use crate::clock::{Clock, Deadline};

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
pub struct Cx {
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
pub enum Stopped {
    /// The deadline of the context passed.
    #[error("the deadline passed")]
    DeadlinePassed,
    /// Somebody cancelled.
    #[error("cancelled")]
    Cancelled,
}

impl Cx {
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
    /// Time left until the wait is over.
    pub fn remaining(&self) -> Duration {
        self.ends().0.saturating_sub(self.clock.elapsed())
    }
    /// Waits for `work`, but no longer than the deadline or the cancellation. The work is dropped when it is stopped.
    ///
    /// # Errors
    /// [`Stopped`] when the deadline passed or somebody cancelled first.
    pub fn wait<F: Future>(&self, work: F) -> Waiting<'_, F> {
        self.wait_beyond(Duration::ZERO, work)
    }
    /// As [`wait`](Self::wait), with `grace` beyond the deadline.
    ///
    /// # Errors
    /// [`Stopped`] when the deadline and the grace passed or somebody cancelled first.
    pub fn wait_beyond<F: Future>(&self, grace: Duration, work: F) -> Waiting<'_, F> {
        Waiting { cx: self, grace, work, watch: None }
    }
}

pin_project! {
    /// A wait within a context: what [`Cx::wait`] returns.
    ///
    /// By hand and not as an `async fn`, which holds what it is given twice: works are large, and there is one in every call.
    #[must_use = "a wait does nothing unless it is awaited"]
    pub struct Waiting<'a, F> {
        cx: &'a Cx,
        grace: Duration,
        #[pin]
        work: F,
        // What is done at once needs neither an alarm nor an ear for the cancellation.
        #[pin]
        watch: Option<Watch<'a>>,
    }
}

pin_project! {
    /// What may end a wait before its work.
    struct Watch<'a> {
        #[pin]
        cancelled: WaitForCancellationFuture<'a>,
        // When the wait was over as things stood.
        until: Deadline,
        alarm: BoxFuture<'a, ()>,
    }
}

impl<'a> Watch<'a> {
    fn new(cx: &'a Cx, grace: Duration) -> Self {
        let until = cx.ends();
        Self { cancelled: cx.cancel.cancelled(), until, alarm: alarm(cx, until, grace) }
    }
}

fn alarm(cx: &Cx, until: Deadline, grace: Duration) -> BoxFuture<'_, ()> {
    cx.clock.sleep(Deadline(until.0.saturating_add(grace)))
}

impl<F: Future> Future for Waiting<'_, F> {
    type Output = Result<F::Output, Stopped>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let (cx, grace) = (*this.cx, *this.grace);
        let cancelled = match this.watch.as_mut().as_pin_mut() {
            Some(watch) => watch.project().cancelled.poll(task).is_ready(),
            None => cx.cancel.is_cancelled(),
        };
        if cancelled {
            return Poll::Ready(Err(Stopped::Cancelled));
        }
        if let Poll::Ready(done) = this.work.poll(task) {
            return Poll::Ready(Ok(done));
        }
        if this.watch.is_none() {
            this.watch.set(Some(Watch::new(cx, grace)));
            // Only who has been polled is woken.
            let watch = this.watch.as_mut().as_pin_mut();
            if watch.is_some_and(|watch| watch.project().cancelled.poll(task).is_ready()) {
                return Poll::Ready(Err(Stopped::Cancelled));
            }
        }
        let Some(watch) = this.watch.as_pin_mut() else { return Poll::Pending };
        let watch = watch.project();
        while watch.alarm.poll_unpin(task).is_ready() {
            // A sign of life may have come meanwhile.
            let ends = cx.ends();
            if ends <= *watch.until {
                return Poll::Ready(Err(Stopped::DeadlinePassed));
            }
            *watch.until = ends;
            *watch.alarm = alarm(cx, ends, grace);
        }
        Poll::Pending
    }
}

impl fmt::Debug for Cx {
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
    use crate::testing::ManualClock;

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
        assert_eq!(waiting.await, Err(Stopped::DeadlinePassed));
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
        assert_eq!(waiting.await.unwrap(), Err(Stopped::Cancelled));
    }

    #[tokio::test]
    async fn a_sign_of_life_that_comes_too_late_changes_nothing() {
        let clock = ManualClock::new();
        let cx = clock.cx(100 * SECOND).patient(3 * SECOND, 50 * SECOND);
        clock.advance(3 * SECOND);
        cx.alive();
        assert_eq!(cx.remaining(), Duration::ZERO);
        assert_eq!(cx.wait(pending::<()>()).await, Err(Stopped::DeadlinePassed));
    }
}
