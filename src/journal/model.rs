//! Models behind the journal: a finished answer is recorded at its terminal mark, before the mark goes on, and never asked for
//! again.

use std::sync::Arc;

use futures::{future::BoxFuture, stream};
use serde::{Deserialize, Serialize};

use super::{EffectJournal, Started, Step};
use crate::{
    context::{CallContext, StepKey},
    effect::EffectClass,
    failpoint,
    llm::{ChatRequest, ChatResponse, ChatStream, Delta, Llm, LlmError, LlmErrorKind, ModelProfile},
};

/// A model whose answers are recorded.
pub struct JournaledModel {
    inner: Arc<dyn Llm>,
    journal: EffectJournal,
}

impl JournaledModel {
    /// `inner` behind the journal.
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

impl Llm for JournaledModel {
    fn profile(&self) -> &ModelProfile {
        self.inner.profile()
    }
    fn chat<'a>(&'a self, request: ChatRequest, cx: &'a CallContext) -> BoxFuture<'a, Result<ChatStream, LlmError>> {
        Box::pin(self.ask(request, cx))
    }
}

/// What is recorded of a call. The names are those of a plain result, as older records have it.
#[derive(Serialize, Deserialize)]
enum RecordedAnswer<A, T> {
    /// It answered.
    Ok(A),
    /// It failed, and nobody had seen anything of an answer.
    Err(LlmError),
    /// It broke off: this text had been handed on.
    Broken { shown: T, error: LlmError },
}

impl EffectJournal {
    /// As [`once`](Self::once), for the answer of a model: its pieces pass as they come; the whole is recorded at its terminal
    /// mark, before the mark goes on. An answer that was cancelled is not recorded.
    ///
    /// # Errors
    /// [`LlmError`]: that of the model, now or as it is recorded; or the journal lets nothing through.
    pub async fn once_stream(
        &self,
        step: Step<'_>,
        open: impl Future<Output = Result<ChatStream, LlmError>>,
    ) -> Result<ChatStream, LlmError> {
        match self.start::<RecordedAnswer<Arc<ChatResponse>, Arc<str>>>(step).await {
            Ok(Started::Replay(recorded)) => return self.replayed(step.key, recorded),
            Ok(Started::Run) => {}
            Ok(Started::Unknown) => return Err(refused(super::JournalError::OutcomeUnknown)),
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

    /// What was recorded, told again.
    fn replayed(
        &self,
        key: &StepKey,
        recorded: RecordedAnswer<Arc<ChatResponse>, Arc<str>>,
    ) -> Result<ChatStream, LlmError> {
        match recorded {
            RecordedAnswer::Ok(answer) => {
                self.observer.model_answered(key, Ok(&answer));
                Ok(ChatStream::of(answer))
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

    /// Passes pieces on as they come, and records the whole before its last item goes on.
    fn recording(&self, stream: ChatStream, key: StepKey) -> ChatStream {
        // The stream, and the text that was handed on; none once the end was told.
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
            // A cancelled call was wanted by nobody: running the turn again must ask anew.
            Err(error) if error.kind == LlmErrorKind::Cancelled => return Ok(()),
            Err(error) if shown.is_empty() => RecordedAnswer::Err(error.clone()),
            Err(error) => RecordedAnswer::Broken { shown, error: error.clone() },
            Ok(answer) => RecordedAnswer::Ok(answer),
        };
        self.settle(key, &recorded).await.map_err(refused)
    }
}

fn refused(error: super::JournalError) -> LlmError {
    LlmError::new(LlmErrorKind::Cancelled).with_detail(error)
}
