//! The response of a model as a stream of deltas.

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

/// One increment of a response.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Delta {
    /// More text; never empty.
    Text(Arc<str>),
    /// More text of a refusal; never empty.
    Refusal(Arc<str>),
    /// The model began to write a tool call. For progress and preparation only: the call itself comes with `Done`, or never.
    /// After a retry the same call may be announced again.
    ToolCallStarted {
        /// Its position among the tool calls of the response.
        index: usize,
        /// The tool, as the model wrote it.
        name: Arc<str>,
    },
    /// The complete response, tool calls included. The last item of every stream that did not fail.
    Done(Arc<ChatResponse>),
}

/// The response of a model: deltas, then either [`Delta::Done`] or an error, then the end of the stream.
///
/// # Cancellation
/// Dropping it closes the connection.
pub struct ChatStream(Pin<Box<dyn Stream<Item = Result<Delta, LlmError>> + Send>>);

impl ChatStream {
    /// Wraps a stream of deltas, which must have the order above.
    pub fn new(deltas: impl Stream<Item = Result<Delta, LlmError>> + Send + 'static) -> Self {
        Self(Box::pin(deltas))
    }

    /// A stream of a response that is already complete: its text as one delta, then `Done`.
    pub fn from_response(answer: impl Into<Arc<ChatResponse>>) -> Self {
        let answer = answer.into();
        let text = (!answer.text.is_empty()).then(|| Ok(Delta::Text(answer.text.clone())));
        let refusal = answer.refusal.clone().map(|text| Ok(Delta::Refusal(text)));
        Self::new(stream::iter(text.into_iter().chain(refusal).chain([Ok(Delta::Done(answer))])))
    }

    /// A stream that fails at once.
    pub fn failed(error: LlmError) -> Self {
        Self::new(stream::iter([Err(error)]))
    }

    /// The next delta; `None` after the end.
    ///
    /// # Errors
    /// [`LlmError`] once, as the last item, when the call failed.
    pub async fn next(&mut self) -> Option<Result<Delta, LlmError>> {
        self.0.next().await
    }

    /// Waits for the complete response.
    ///
    /// # Errors
    /// [`LlmError`] when the response has no finish reason or the call failed.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection; earlier deltas are lost.
    pub async fn finish(mut self) -> Result<Arc<ChatResponse>, LlmError> {
        while let Some(delta) = self.0.next().await {
            if let Delta::Done(answer) = delta? {
                return Ok(answer);
            }
        }
        Err(LlmErrorKind::Truncated.into())
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
