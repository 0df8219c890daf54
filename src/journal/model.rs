//! Models with recorded responses: a complete response is recorded before its end reaches the caller, and is never requested again.

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream;
use serde::{Deserialize, Serialize, de::IgnoredAny};

use super::{EffectJournal, Step, TypedStart};
use crate::{
    context::{CallContext, StepKey},
    effect::EffectClass,
    failpoint,
    llm::{ChatRequest, ChatResponse, ChatStream, Delta, Llm, LlmError, LlmErrorKind, ModelProfile},
};

/// A model whose responses are recorded.
pub struct JournaledModel {
    inner: Arc<dyn Llm>,
    journal: EffectJournal,
}

impl JournaledModel {
    /// Records the responses of `inner`.
    pub fn new(inner: Arc<dyn Llm>, journal: EffectJournal) -> Self {
        Self { inner, journal }
    }

    async fn ask(&self, request: ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError> {
        self.journal.observer.model_called(&cx.key, &request)?;
        let hash = request.hash().to_string();
        let step = Step { key: &cx.key, kind: "llm", class: EffectClass::Read, request: &hash };
        self.journal.once_stream(step, self.inner.chat(request, cx)).await
    }
}

#[async_trait]
impl Llm for JournaledModel {
    fn profile(&self) -> &ModelProfile {
        self.inner.profile()
    }
    async fn chat(&self, request: ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError> {
        self.ask(request, cx).await
    }
}

/// The record of a call. `Ok` and `Err` are the names of a serialised `Result`, which older records contain.
#[derive(Serialize, Deserialize)]
enum RecordedAnswer<A, T> {
    /// A complete response.
    Ok(A),
    /// A failure before any text was forwarded.
    Err(LlmError),
    /// A failure after this text was forwarded.
    Broken { shown: T, error: LlmError },
}

/// The complete response in the record of a call of a model, if it has one.
pub(crate) fn recorded_response(outcome: &str) -> Option<ChatResponse> {
    match serde_json::from_str::<RecordedAnswer<ChatResponse, IgnoredAny>>(outcome) {
        Ok(RecordedAnswer::Ok(response)) => Some(response),
        _ => None,
    }
}

impl EffectJournal {
    /// Like [`once`](Self::once), for the response of a model: deltas are forwarded at once, and the whole response is recorded before
    /// its end is forwarded. A cancelled response is not recorded.
    ///
    /// # Errors
    /// [`LlmError`] of the model, performed or recorded, or an error of the journal.
    pub async fn once_stream(
        &self,
        step: Step<'_>,
        open: impl Future<Output = Result<ChatStream, LlmError>>,
    ) -> Result<ChatStream, LlmError> {
        match self.start::<RecordedAnswer<Arc<ChatResponse>, Arc<str>>>(step).await {
            Ok(TypedStart::Replay(recorded)) => return self.replayed(step.key, recorded),
            Ok(TypedStart::Run) => {}
            Ok(TypedStart::Unknown) => return Err(refused(super::JournalError::OutcomeUnknown)),
            Err(error) => return Err(refused(error)),
        }
        match open.await {
            Ok(stream) => {
                failpoint::hit("C08");
                Ok(self.recording(stream, step.key.clone()))
            }
            Err(error) => {
                self.record_answer(step.key, Err(&error), "").await?;
                Err(error)
            }
        }
    }

    /// The recorded response as a stream.
    fn replayed(
        &self,
        key: &StepKey,
        recorded: RecordedAnswer<Arc<ChatResponse>, Arc<str>>,
    ) -> Result<ChatStream, LlmError> {
        match recorded {
            RecordedAnswer::Ok(answer) => {
                self.observer.model_answered(key, Ok(&answer));
                Ok(ChatStream::from_response(answer))
            }
            RecordedAnswer::Err(error) => {
                self.observer.model_answered(key, Err(&error));
                Err(error)
            }
            RecordedAnswer::Broken { shown, error } => {
                self.observer.model_answered(key, Err(&error));
                Ok(ChatStream::new(stream::iter([Ok(Delta::Text(shown)), Err(error)])))
            }
        }
    }

    /// Forwards deltas, and records the whole response before its last item is forwarded.
    fn recording(&self, stream: ChatStream, key: StepKey) -> ChatStream {
        // The stream and the forwarded text; `None` after the end was forwarded.
        let start = Some((stream, String::new()));
        let journal = self.clone();
        let next = move |state: Option<(ChatStream, String)>| {
            let (journal, key) = (journal.clone(), key.clone());
            async move {
                let (mut stream, mut shown) = state?;
                let end = match stream.next().await? {
                    Ok(Delta::Done(answer)) => Ok(answer),
                    Err(error) => Err(error),
                    Ok(piece) => {
                        if let Delta::Text(text) | Delta::Refusal(text) = &piece {
                            shown.push_str(text);
                        }
                        return Some((Ok(piece), Some((stream, shown))));
                    }
                };
                let last = match journal.record_answer(&key, end.as_deref(), &shown).await {
                    Ok(()) => end.map(Delta::Done),
                    Err(error) => Err(error),
                };
                Some((last, None))
            }
        };
        ChatStream::new(stream::unfold(start, next))
    }

    async fn record_answer(
        &self,
        key: &StepKey,
        end: Result<&ChatResponse, &LlmError>,
        shown: &str,
    ) -> Result<(), LlmError> {
        self.observer.model_answered(key, end);
        let recorded: RecordedAnswer<&ChatResponse, &str> = match end {
            // The result of a cancelled call is not needed: a turn that runs again must call the model again.
            Err(error) if error.kind == LlmErrorKind::Cancelled => return Ok(()),
            Err(error) if shown.is_empty() => RecordedAnswer::Err(error.clone()),
            Err(error) => RecordedAnswer::Broken { shown, error: error.clone() },
            Ok(answer) => RecordedAnswer::Ok(answer),
        };
        self.record_outcome(key, &recorded).await.map_err(refused)
    }
}

fn refused(error: super::JournalError) -> LlmError {
    LlmError::new(LlmErrorKind::Cancelled).with_detail(error)
}
