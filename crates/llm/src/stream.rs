//! The answer of a model as it comes.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::{Stream, StreamExt, stream};

use super::{
    error::{LlmError, LlmErrorKind},
    message::ChatResponse,
};

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Delta {
    /// More text; never empty.
    Text(Arc<str>),
    /// More text of a typed refusal; never empty.
    Refusal(Arc<str>),
    /// The model began to write a call. For progress and for warming up only: the call itself comes with `Done`, or never.
    /// After a retry the same may be told again.
    CallBegan {
        /// Its place among the calls of the answer.
        index: usize,
        /// The tool, as the model wrote it.
        name: Arc<str>,
    },
    /// The terminal mark: the whole answer, calls included. The last item of every stream that did not fail.
    Done(Arc<ChatResponse>),
}

/// The answer of a model as it comes: some deltas, then either [`Delta::Done`] or an error, then nothing.
///
/// # Cancellation
/// Dropping it closes the connection.
pub struct ChatStream(Pin<Box<dyn Stream<Item = Result<Delta, LlmError>> + Send>>);

impl ChatStream {
    /// Wraps a stream that keeps the order promised above.
    pub fn new(deltas: impl Stream<Item = Result<Delta, LlmError>> + Send + 'static) -> Self {
        Self(Box::pin(deltas))
    }

    /// A stream of an answer that is already there: its text in one piece, then `Done`.
    pub fn of(answer: impl Into<Arc<ChatResponse>>) -> Self {
        let answer = answer.into();
        let text = (!answer.text.is_empty()).then(|| Ok(Delta::Text(answer.text.clone())));
        let refusal = answer.refusal.clone().map(|text| Ok(Delta::Refusal(text)));
        Self::new(stream::iter(text.into_iter().chain(refusal).chain([Ok(Delta::Done(answer))])))
    }

    /// A stream that fails at once.
    pub fn failed(error: LlmError) -> Self {
        Self::new(stream::iter([Err(error)]))
    }

    /// The next piece; `None` after the end.
    ///
    /// # Errors
    /// [`LlmError`] once, as the last item, when the answer broke off.
    pub async fn next(&mut self) -> Option<Result<Delta, LlmError>> {
        self.0.next().await
    }

    /// Waits for the whole answer.
    ///
    /// # Errors
    /// [`LlmError`] when the answer did not reach its terminal mark.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection; what came so far is lost.
    pub async fn finish(mut self) -> Result<Arc<ChatResponse>, LlmError> {
        while let Some(delta) = self.0.next().await {
            if let Delta::Done(answer) = delta? {
                return Ok(answer);
            }
        }
        Err(LlmErrorKind::CutShort.into())
    }
}

impl Stream for ChatStream {
    type Item = Result<Delta, LlmError>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for ChatStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChatStream(…)")
    }
}
