//! The recorded door: decorators that let effects through a [`Journal`]. Whoever calls a model or a tool through them does
//! not know that it is recorded; when the same turn runs again, what was recorded answers instead of the world.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::{Stream, StreamExt, future::BoxFuture, stream};
use segue_engine::time::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value as Json;

use super::{
    bodies::Bodies,
    meter::Meter,
    news::{Ear, RecordedCall},
};
use crate::{
    clock::{Clock, Deadline},
    cx::Cx,
    effect::Effect,
    failpoint,
    llm::{Answer, ChatRequest, ChatStream, Delta, Hashed, Llm, LlmError, LlmErrorKind, ModelProfile},
    store::{Begun, Journal, Standing, StoreError},
    tools::{ArgumentCheck, FailureKind, Progress, Tool, ToolCx, ToolFailure, ToolOutcome, ToolSpec},
};

/// Wall time as a turn sees it: the time of the newest recorded outcome. It stands still while the turn computes, so that
/// a replay sees the same times. Waiting and deadlines use the real clock.
pub(super) struct RecordedClock {
    real: Arc<dyn Clock>,
    latest: AtomicI64,
}

impl RecordedClock {
    /// A clock that begins at `at`.
    pub(super) fn new(real: Arc<dyn Clock>, at: Timestamp) -> Self {
        Self { real, latest: AtomicI64::new(at.as_micros()) }
    }
    /// The real time, for what is being recorded now. Never before what was recorded.
    fn real_now(&self) -> Timestamp {
        self.real.now().max(self.now())
    }
    fn advance(&self, at: Timestamp) {
        self.latest.fetch_max(at.as_micros(), Ordering::SeqCst);
    }
}

impl Clock for RecordedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.latest.load(Ordering::SeqCst))
    }
    fn elapsed(&self) -> Duration {
        self.real.elapsed()
    }
    fn sleep(&self, until: Deadline) -> BoxFuture<'_, ()> {
        self.real.sleep(until)
    }
}

/// The door of one turn.
#[derive(Clone)]
pub(super) struct Door {
    /// Where intents and outcomes go.
    pub(super) journal: Arc<dyn Journal>,
    /// The turn's clock.
    pub(super) clock: Arc<RecordedClock>,
    /// What the turn used, for budgets and traces.
    pub(super) meter: Arc<Meter>,
    /// Texts that the record names by their hash.
    pub(super) bodies: Arc<Bodies>,
}

/// Why the door let nothing through.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Shut {
    /// The store failed, or the record does not fit: the turn must stop here and be tried again from what is stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The step was recorded by another build (decisions.md 13.5).
    #[error("the turn was begun by another version of the program or the project")]
    OtherBuild,
    /// It may have happened; nobody knows.
    #[error("whether this happened is not known")]
    Unknown,
}

impl Door {
    /// Asks the door: a recorded outcome, or `None` when the effect may leave.
    pub(super) async fn begin<T: DeserializeOwned>(
        &self,
        cx: &Cx,
        kind: &str,
        effect: Effect,
        request: &str,
    ) -> Result<Option<T>, Shut> {
        match self.journal.begin(&cx.key, kind, effect, request).await {
            Ok(Begun::Fresh) => Ok(None),
            Ok(Begun::Done { outcome, at }) => {
                self.clock.advance(at);
                serde_json::from_str(&outcome).map(Some).map_err(|_| Shut::OtherBuild)
            }
            Ok(Begun::Unknown) => Err(Shut::Unknown),
            Ok(Begun::OtherBuild) => Err(Shut::OtherBuild),
            Err(error) => {
                self.meter.broken(&error);
                Err(error.into())
            }
        }
    }

    /// What is known of an effect before it begins.
    pub(super) fn standing(&self, cx: &Cx, kind: &str, request: &str) -> Standing {
        self.journal.standing(&cx.key, kind, request)
    }

    /// Records what came of it.
    pub(super) async fn finish<T: Serialize>(&self, cx: &Cx, outcome: &T) -> Result<(), Shut> {
        self.finish_text(cx, serde_json::to_string(outcome).unwrap_or_else(|_| "null".into()).into()).await
    }

    /// Records what came of it, in JSON already.
    pub(super) async fn finish_text(&self, cx: &Cx, text: Arc<str>) -> Result<(), Shut> {
        let at = self.clock.real_now();
        let done = self.journal.finish(&cx.key, text, at).await;
        self.clock.advance(at);
        done.map_err(|error| {
            self.meter.broken(&error);
            error.into()
        })
    }
}

/// A model whose answers are recorded.
pub(super) struct RecordedLlm {
    inner: Arc<dyn Llm>,
    door: Door,
    /// What is known of the request before.
    hashed: Mutex<Option<Hashed>>,
}

/// What is recorded of a call. The names are those of a plain result, as older records have it.
#[derive(Serialize, Deserialize)]
enum Recorded<A, T> {
    /// It answered.
    Ok(A),
    /// It failed, and nobody had seen anything of an answer.
    Err(LlmError),
    /// It broke off: this text had been handed on.
    Broken { shown: T, error: LlmError },
}

impl Llm for RecordedLlm {
    fn profile(&self) -> &ModelProfile {
        self.inner.profile()
    }
    fn chat<'a>(&'a self, request: ChatRequest, cx: &'a Cx) -> BoxFuture<'a, Result<ChatStream, LlmError>> {
        Box::pin(self.ask(request, cx))
    }
}

impl RecordedLlm {
    /// `inner` behind the door.
    pub(super) fn new(inner: Arc<dyn Llm>, door: Door) -> Self {
        Self { inner, door, hashed: Mutex::default() }
    }

    async fn ask(&self, request: ChatRequest, cx: &Cx) -> Result<ChatStream, LlmError> {
        self.door.meter.asked(&cx.key, &request)?;
        let hash = {
            let mut before = self.hashed.lock().unwrap_or_else(PoisonError::into_inner);
            request.hash_after(&mut before).to_string()
        };
        match self.door.begin::<Recorded<Arc<Answer>, Arc<str>>>(cx, "llm", Effect::Read, &hash).await {
            Ok(Some(recorded)) => return self.again(cx, recorded),
            Ok(None) => {}
            Err(shut) => return Err(LlmError::new(LlmErrorKind::Cancelled).because(shut)),
        }
        match self.inner.chat(request, cx).await {
            Ok(stream) => {
                failpoint::hit("C08");
                Ok(self.record(stream, cx.clone()))
            }
            Err(error) => {
                keep(&self.door, cx, Err(&error), "").await?;
                Err(error)
            }
        }
    }

    /// What was recorded, told again.
    fn again(&self, cx: &Cx, recorded: Recorded<Arc<Answer>, Arc<str>>) -> Result<ChatStream, LlmError> {
        let (shown, end) = match recorded {
            Recorded::Ok(answer) => (None, Ok(answer)),
            Recorded::Err(error) => (None, Err(error)),
            Recorded::Broken { shown, error } => (Some(shown), Err(error)),
        };
        self.door.meter.heard(&cx.key, end.as_deref());
        match (shown, end) {
            (_, Ok(answer)) => Ok(ChatStream::of(answer)),
            (None, Err(error)) => Err(error),
            (Some(shown), Err(error)) => Ok(ChatStream::new(stream::iter([Ok(Delta::Text(shown)), Err(error)]))),
        }
    }

    /// Passes deltas on as they come, and records the whole before its terminal mark goes on.
    fn record(&self, stream: ChatStream, cx: Cx) -> ChatStream {
        ChatStream::new(Recording {
            stream,
            end: End::Ahead(self.door.clone(), cx),
            shown: String::with_capacity(Answer::USUAL),
        })
    }
}

/// Records how a call ended; its last item, once that is stored.
async fn ended(door: Door, cx: Cx, end: Result<Arc<Answer>, LlmError>, shown: String) -> Result<Delta, LlmError> {
    keep(&door, &cx, end.as_deref(), &shown).await?;
    end.map(Delta::Done)
}

async fn keep(door: &Door, cx: &Cx, end: Result<&Answer, &LlmError>, shown: &str) -> Result<(), LlmError> {
    door.meter.heard(&cx.key, end);
    let recorded: Recorded<&Answer, &str> = match end {
        // A cancelled call was wanted by nobody: running the turn again must ask anew.
        Err(error) if error.kind == LlmErrorKind::Cancelled => return Ok(()),
        Err(error) if shown.is_empty() => Recorded::Err(error.clone()),
        Err(error) => Recorded::Broken { shown, error: error.clone() },
        Ok(answer) => Recorded::Ok(answer),
    };
    let done = door.finish(cx, &recorded).await;
    done.map_err(|shut| LlmError::new(LlmErrorKind::Cancelled).because(shut))
}

/// An answer on its way through the door.
struct Recording {
    stream: ChatStream,
    /// Text that was handed on.
    shown: String,
    end: End,
}

/// Where the end of an answer is.
enum End {
    /// Still to come.
    Ahead(Door, Cx),
    /// Being recorded.
    Kept(BoxFuture<'static, Result<Delta, LlmError>>),
    /// Told.
    Told,
}

/// Polled by hand: the pieces of a text pass without a future of their own, only the end waits for the store.
impl Stream for Recording {
    type Item = Result<Delta, LlmError>;
    fn poll_next(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if let End::Ahead(..) = this.end {
            let end = match ready!(this.stream.poll_next_unpin(task)) {
                Some(Ok(Delta::Done(answer))) => Ok(answer),
                Some(Err(error)) => Err(error),
                Some(Ok(delta)) => {
                    if let Delta::Text(text) | Delta::Refusal(text) = &delta {
                        this.shown.push_str(text);
                    }
                    return Poll::Ready(Some(Ok(delta)));
                }
                None => {
                    this.end = End::Told;
                    return Poll::Ready(None);
                }
            };
            if let End::Ahead(door, cx) = std::mem::replace(&mut this.end, End::Told) {
                // Of a whole answer the text is in the answer.
                let shown = if end.is_ok() { String::new() } else { std::mem::take(&mut this.shown) };
                this.end = End::Kept(Box::pin(ended(door, cx, end, shown)));
            }
        }
        let End::Kept(kept) = &mut this.end else { return Poll::Ready(None) };
        let last = ready!(kept.as_mut().poll(task));
        this.end = End::Told;
        Poll::Ready(Some(last))
    }
}

/// A tool whose calls are recorded. Without an inner tool it only answers from the record.
pub(super) struct RecordedTool {
    pub(super) spec: ToolSpec,
    pub(super) inner: Option<Arc<dyn Tool>>,
    pub(super) door: Door,
}

impl Tool for RecordedTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }
    fn arguments(&self) -> Option<Arc<ArgumentCheck>> {
        self.inner.as_ref()?.arguments()
    }
    fn limit(&self) -> Option<Duration> {
        self.inner.as_ref()?.limit()
    }
    fn most(&self) -> Option<Duration> {
        self.inner.as_ref()?.most()
    }
    fn call<'a>(&'a self, arguments: Json, cx: &'a ToolCx) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(self.run(arguments, cx))
    }
}

impl RecordedTool {
    async fn run(&self, arguments: Json, cx: &ToolCx) -> ToolOutcome {
        let request =
            format!("{}:{}", self.spec.name, super::hash::text(&serde_json::to_string(&arguments).unwrap_or_default()));
        match self.door.begin::<RecordedCall>(&cx.cx, "tool", self.spec.effect, &request).await {
            Ok(Some(recorded)) => return recorded.outcome,
            Ok(None) => {}
            Err(Shut::Unknown) => return self.unknown(cx).await,
            Err(shut) => return refused(FailureKind::Cancelled, shut.to_string(), true),
        }
        let Some(inner) = &self.inner else {
            return refused(FailureKind::Unavailable, "the tool is not connected".into(), false);
        };
        self.door.meter.called(&cx.cx.key, &self.spec, &arguments);
        let ear = Ear::new(cx.cx.clock.clone());
        let (listens, outer) = (ear.clone(), cx.progress.clone());
        let progress: Arc<dyn Fn(Progress) + Send + Sync> = Arc::new(move |news| {
            listens.hear(&news);
            if let Some(outer) = &outer {
                outer(news);
            }
        });
        let outcome = inner.call(arguments, &ToolCx { progress: Some(progress), ..cx.clone() }).await;
        let recorded = RecordedCall { outcome, news: ear.news() };
        match self.door.finish(&cx.cx, &recorded).await {
            Ok(()) => recorded.outcome,
            Err(shut) => refused(FailureKind::Cancelled, shut.to_string(), true),
        }
    }

    /// A `write` whose intent stands without an outcome: it is never repeated, and the model is told (decisions.md 3).
    async fn unknown(&self, cx: &ToolCx) -> ToolOutcome {
        let message = format!("{} may have run before an interruption; its outcome is not known", self.spec.name);
        let outcome = ToolOutcome::Unknown(ToolFailure {
            kind: FailureKind::Unavailable,
            message,
            fatal: false,
            wants: Vec::new(),
        });
        let _ = self.door.finish(&cx.cx, &outcome).await;
        outcome
    }
}

fn refused(kind: FailureKind, message: String, fatal: bool) -> ToolOutcome {
    ToolOutcome::Failed(ToolFailure { kind, message, fatal, wants: Vec::new() })
}
