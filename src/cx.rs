//! What travels with every call that may wait: deadline, cancellation, and the address of the step.

use std::{fmt, future::Future, sync::Arc, task::Poll, time::Duration};

use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, Deadline};

/// The address of one effect within its turn, such as `booking/2/tool.0`. The same turn, run again from its record, gives
/// the same keys; the idempotency key sent to others is made of the conversation, the turn and this.
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
        if self.0.is_empty() { Self(part.to_string().into()) } else { Self(format!("{}/{part}", self.0).into()) }
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
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
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
        Self { deadline: clock.deadline(limit), cancel: Arc::default(), key: StepKey::root(), clock }
    }
    /// The same context for the step `part` below this one.
    pub fn step(&self, part: impl fmt::Display) -> Self {
        Self { key: self.key.child(part), ..self.clone() }
    }
    /// The same context, ending `limit` from now at the latest.
    pub fn within(&self, limit: Duration) -> Self {
        Self { deadline: self.deadline.min(self.clock.deadline(limit)), ..self.clone() }
    }
    /// A context whose cancellation follows this one's but can also be fired alone.
    pub fn child(&self) -> Self {
        Self { cancel: self.cancel.child_token().into(), ..self.clone() }
    }
    /// The same context for what runs to its end whoever cancels.
    pub fn sheltered(&self) -> Self {
        Self { cancel: CancellationToken::new().into(), ..self.clone() }
    }
    /// Time left until the deadline.
    pub fn remaining(&self) -> Duration {
        self.deadline.0.saturating_sub(self.clock.elapsed())
    }
    /// Waits for `work`, but no longer than the deadline or the cancellation. The work is dropped when it is stopped.
    ///
    /// # Errors
    /// [`Stopped`] when the deadline passed or somebody cancelled first.
    pub async fn wait<F: Future>(&self, work: F) -> Result<F::Output, Stopped> {
        if self.cancel.is_cancelled() {
            return Err(Stopped::Cancelled);
        }
        let mut work = std::pin::pin!(work);
        // What is done at once needs neither an alarm nor an ear for the cancellation.
        if let Poll::Ready(done) = futures::poll!(work.as_mut()) {
            return Ok(done);
        }
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(Stopped::Cancelled),
            done = work => Ok(done),
            () = self.clock.sleep(self.deadline) => Err(Stopped::DeadlinePassed),
        }
    }
}

impl fmt::Debug for Cx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cx").field("key", &self.key).field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
