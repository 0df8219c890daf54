//! Cassettes: recorded exchanges with a model, replayed without a network.
//!
//! A cassette is a file of JSON lines, one exchange per line: the masked hash of the request, a summary of it for readers, and
//! the response. Dates, times and UUIDs are masked before hashing, so that a cassette stays valid after the day of its recording.

use std::{
    collections::VecDeque,
    fmt,
    io::{self, Write},
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use futures::{StreamExt, stream};
use regex::Regex;
use segue_base::context::CallContext;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    ChatRequest, ChatResponse, ChatStream, Delta, Llm, LlmError, LlmErrorKind, ModelConfig, ModelConfigError,
    ModelProfile, RequestHash, scripted,
};

/// One request and its response.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Exchange {
    /// [`masked_hash`] of the request.
    pub hash: RequestHash,
    /// A summary of the request.
    pub request: RequestSummary,
    /// The text deltas as they came.
    #[serde(rename = "pieces", default, skip_serializing_if = "Vec::is_empty")]
    pub deltas: Vec<Arc<str>>,
    /// The result of the call.
    #[serde(flatten)]
    pub outcome: ExchangeOutcome,
}

/// A summary of a request, for people who read a cassette.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RequestSummary {
    /// What the call was for.
    pub purpose: String,
    /// The number of its messages.
    pub messages: usize,
    /// The names of its tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Arc<str>>,
    /// The last 160 characters of its last message.
    pub last: String,
}

/// The result of a recorded call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExchangeOutcome {
    /// A complete response.
    #[serde(rename = "answer")]
    Response(Arc<ChatResponse>),
    /// An error.
    Error(LlmError),
}

impl RequestSummary {
    fn new(request: &ChatRequest) -> Self {
        let last = request.messages.last().map_or("", |message| message.text());
        let skip = last.chars().count().saturating_sub(160);
        Self {
            purpose: request.purpose.to_string(),
            messages: request.messages.len(),
            tools: request.tools.iter().map(|tool| tool.name.clone()).collect(),
            last: last.chars().skip(skip).collect(),
        }
    }
}

/// The hash of a request with dates, times, weekdays and UUIDs masked.
pub fn masked_hash(request: &ChatRequest) -> RequestHash {
    static MASKED: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let months = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*";
        let clock = r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:\s?[AaPp]\.?[Mm]\b\.?)?(?:Z|\s?[+-]\d{2}:?\d{2})?";
        let uuid = "[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}";
        Regex::new(&format!(
            r"{uuid}|\d{{4}}-\d{{2}}-\d{{2}}(?:[T ]{clock})?|{clock}|\b\d{{1,2}}(?:st|nd|rd|th)?\.? {months},? \d{{4}}|\b{months} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}|\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b"
        ))
        .ok()
    });
    let canonical = request.canonical();
    let masked = MASKED.as_ref().map_or((&*canonical).into(), |pattern| pattern.replace_all(&canonical, "#"));
    RequestHash(Sha256::digest(masked.as_bytes()).into())
}

/// A model that records the exchanges with another model.
pub struct Recorder {
    inner: Arc<dyn Llm>,
    writer: Arc<CassetteWriter>,
}

/// Writes exchanges as whole lines.
struct CassetteWriter {
    out: Mutex<Box<dyn Write + Send>>,
}

impl CassetteWriter {
    /// Writes one exchange. A failed write is logged and does not fail the call.
    fn write(&self, exchange: &Exchange) {
        let written = serde_json::to_string(exchange).map_err(io::Error::from).and_then(|line| {
            let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
            writeln!(out, "{line}")?;
            out.flush()
        });
        if let Err(error) = written {
            tracing::error!(%error, "an exchange could not be recorded");
        }
    }
}

impl Recorder {
    /// Records the exchanges with `inner` into `out`: a file, or a buffer.
    pub fn new(inner: Arc<dyn Llm>, out: impl Write + Send + 'static) -> Self {
        Self { inner, writer: Arc::new(CassetteWriter { out: Mutex::new(Box::new(out)) }) }
    }
}

/// An exchange in progress. One that the caller abandons is not written.
struct Recording {
    exchange: Exchange,
    writer: Arc<CassetteWriter>,
    stream: ChatStream,
}

#[async_trait]
impl Llm for Recorder {
    fn profile(&self) -> &ModelProfile {
        self.inner.profile()
    }

    async fn chat(&self, request: ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError> {
        let truncated = ExchangeOutcome::Error(LlmErrorKind::Truncated.into());
        let (hash, summary) = (masked_hash(&request), RequestSummary::new(&request));
        let mut exchange = Exchange { hash, request: summary, deltas: Vec::new(), outcome: truncated };
        let stream = match self.inner.chat(request, cx).await {
            Ok(stream) => stream,
            Err(error) => {
                exchange.outcome = ExchangeOutcome::Error(error.clone());
                self.writer.write(&exchange);
                return Err(error);
            }
        };
        let recording = Recording { exchange, writer: self.writer.clone(), stream };
        Ok(ChatStream::new(stream::unfold(recording, |mut recording| async move {
            let delta = recording.stream.next().await?;
            recording.take(&delta);
            Some((delta, recording))
        })))
    }
}

impl Recording {
    fn take(&mut self, delta: &Result<Delta, LlmError>) {
        self.exchange.outcome = match delta {
            Ok(Delta::Text(text)) => return self.exchange.deltas.push(text.clone()),
            Ok(Delta::Done(answer)) => ExchangeOutcome::Response(answer.clone()),
            Ok(_) => return,
            Err(error) => ExchangeOutcome::Error(error.clone()),
        };
        self.writer.write(&self.exchange);
    }
}

/// The order in which a cassette expects requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayOrder {
    /// As recorded: each request must be the next one of the cassette.
    AsRecorded,
    /// Any order: requests are found by hash. Equal requests get their responses in the order recorded.
    Any,
}

/// A model that replays a cassette. An unexpected request fails; [`Replayer::verify`] finds unused exchanges.
pub struct Replayer {
    profile: ModelProfile,
    order: ReplayOrder,
    /// Never locked across an await.
    state: Mutex<ReplayState>,
}

struct ReplayState {
    /// Exchanges that were not used yet.
    remaining: VecDeque<Exchange>,
    /// Unexpected requests.
    problems: Vec<String>,
}

/// A cassette that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CassetteError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong.
    pub problem: String,
}

impl fmt::Display for CassetteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}; record the cassette again", self.line, self.problem)
    }
}

impl Replayer {
    /// Reads a cassette.
    ///
    /// # Errors
    /// [`CassetteError`] for the first line that is not an exchange.
    pub fn new(text: &str, order: ReplayOrder) -> Result<Self, CassetteError> {
        let mut remaining = VecDeque::new();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let exchange = serde_json::from_str(line);
            remaining.push_back(exchange.map_err(|error| CassetteError { line: at + 1, problem: error.to_string() })?);
        }
        Ok(Self {
            profile: scripted::profile(),
            order,
            state: Mutex::new(ReplayState { remaining, problems: Vec::new() }),
        })
    }

    /// The provider `cassette`: any order, unless the entry has `order: recorded`.
    pub(super) fn open(config: &ModelConfig) -> Result<Self, ModelConfigError> {
        let (name, text) = scripted::read_source(config, "cassette")?;
        let order = match config.extra.get("order").and_then(|order| order.as_str()) {
            Some("recorded") => ReplayOrder::AsRecorded,
            None | Some("any") => ReplayOrder::Any,
            Some(_) => return Err(ModelConfigError::new(config, "order", "expected `recorded` or `any`")),
        };
        Self::new(&text, order).map_err(|bad| ModelConfigError::new(config, "cassette", format_args!("{name}: {bad}")))
    }

    /// Whether every exchange was used and no request was unexpected.
    ///
    /// # Errors
    /// All problems, one per line.
    pub fn verify(&self) -> Result<(), String> {
        let state = self.state();
        let mut problems = state.problems.clone();
        let unused =
            |exchange: &Exchange| format!("unused exchange: {}: …{}", exchange.request.purpose, exchange.request.last);
        problems.extend(state.remaining.iter().map(unused));
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }

    fn state(&self) -> MutexGuard<'_, ReplayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, request: &ChatRequest) -> Result<Exchange, LlmError> {
        let hash = masked_hash(request);
        let mut state = self.state();
        let at = match self.order {
            ReplayOrder::AsRecorded => state.remaining.front().is_some_and(|next| next.hash == hash).then_some(0),
            ReplayOrder::Any => state.remaining.iter().position(|exchange| exchange.hash == hash),
        };
        at.and_then(|at| state.remaining.remove(at)).ok_or_else(|| {
            let summary = RequestSummary::new(request);
            let problem = format!("not in the cassette: {}: …{}", summary.purpose, summary.last);
            state.problems.push(problem.clone());
            LlmError::new(LlmErrorKind::NotInScript).with_detail(problem)
        })
    }
}

#[async_trait]
impl Llm for Replayer {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }

    async fn chat(&self, request: ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError> {
        if cx.cancel.is_cancelled() {
            return Err(LlmErrorKind::Cancelled.into());
        }
        let exchange = self.take(&request)?;
        let end = match exchange.outcome {
            ExchangeOutcome::Response(answer) => Ok(Delta::Done(answer)),
            ExchangeOutcome::Error(error) if exchange.deltas.is_empty() => return Err(error),
            ExchangeOutcome::Error(error) => Err(error),
        };
        let deltas = stream::iter(exchange.deltas.into_iter().map(|text| Ok(Delta::Text(text))));
        Ok(ChatStream::new(deltas.chain(stream::iter([end]))))
    }
}

#[cfg(test)]
mod tests;
