//! Recorded exchanges with a model: recorded once against a real one, replayed for ever without a network.
//!
//! A cassette is a file of JSON lines, one exchange each: the masked hash of the request, a few words of it for people, and
//! the answer. Dates, times and ids are masked before hashing, so that a cassette outlives the day it was made.

use std::{
    collections::VecDeque,
    fmt,
    io::{self, Write},
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

use futures::{StreamExt, future::BoxFuture, stream};
use regex::Regex;
use segue_base::context::CallContext;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    ChatRequest, ChatResponse, ChatStream, Delta, Llm, LlmError, LlmErrorKind, ModelConfig, ModelConfigError,
    ModelProfile, RequestHash, scripted,
};

/// One exchange.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Exchange {
    /// [`masked_hash`] of the request.
    pub hash: RequestHash,
    /// What was asked, in brief.
    pub request: Slim,
    /// The pieces of text as they came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pieces: Vec<Arc<str>>,
    /// How it ended.
    #[serde(flatten)]
    pub end: ExchangeOutcome,
}

/// A request in brief, for people who read a cassette.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Slim {
    /// Who asked.
    pub purpose: String,
    /// How many messages it had.
    pub messages: usize,
    /// The tools on offer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Arc<str>>,
    /// The end of its last message.
    pub last: String,
}

/// How an exchange ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExchangeOutcome {
    /// With an answer.
    Answer(Arc<ChatResponse>),
    /// With a failure.
    Error(LlmError),
}

impl Slim {
    fn of(request: &ChatRequest) -> Self {
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

/// The hash of a request without what differs from day to day: dates, times, weekdays, UUIDs.
pub fn masked_hash(request: &ChatRequest) -> RequestHash {
    static VOLATILE: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let months = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*";
        let clock = r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:\s?[AaPp]\.?[Mm]\b\.?)?(?:Z|\s?[+-]\d{2}:?\d{2})?";
        let uuid = "[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}";
        Regex::new(&format!(
            r"{uuid}|\d{{4}}-\d{{2}}-\d{{2}}(?:[T ]{clock})?|{clock}|\b\d{{1,2}}(?:st|nd|rd|th)?\.? {months},? \d{{4}}|\b{months} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}|\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b"
        ))
        .ok()
    });
    let canonical = request.canonical();
    let masked = VOLATILE.as_ref().map_or((&*canonical).into(), |volatile| volatile.replace_all(&canonical, "#"));
    RequestHash(Sha256::digest(masked.as_bytes()).into())
}

/// Records what passes through it.
pub struct Recorder {
    inner: Arc<dyn Llm>,
    tape: Arc<Tape>,
}

/// Where exchanges are written, one line each, whole lines only.
struct Tape {
    out: Mutex<Box<dyn Write + Send>>,
}

impl Tape {
    /// A line that cannot be written is told in the log; the conversation goes on.
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
        Self { inner, tape: Arc::new(Tape { out: Mutex::new(Box::new(out)) }) }
    }
}

/// An exchange under way. Abandoned ones are not written.
struct Recording {
    exchange: Exchange,
    tape: Arc<Tape>,
    stream: ChatStream,
}

impl Llm for Recorder {
    fn profile(&self) -> &ModelProfile {
        self.inner.profile()
    }

    fn chat<'a>(&'a self, request: ChatRequest, cx: &'a CallContext) -> BoxFuture<'a, Result<ChatStream, LlmError>> {
        Box::pin(async move {
            let cut = ExchangeOutcome::Error(LlmErrorKind::CutShort.into());
            let (hash, slim) = (masked_hash(&request), Slim::of(&request));
            let mut exchange = Exchange { hash, request: slim, pieces: Vec::new(), end: cut };
            let stream = match self.inner.chat(request, cx).await {
                Ok(stream) => stream,
                Err(error) => {
                    exchange.end = ExchangeOutcome::Error(error.clone());
                    self.tape.write(&exchange);
                    return Err(error);
                }
            };
            let recording = Recording { exchange, tape: self.tape.clone(), stream };
            Ok(ChatStream::new(stream::unfold(recording, |mut recording| async move {
                let delta = recording.stream.next().await?;
                recording.take(&delta);
                Some((delta, recording))
            })))
        })
    }
}

impl Recording {
    fn take(&mut self, delta: &Result<Delta, LlmError>) {
        self.exchange.end = match delta {
            Ok(Delta::Text(text)) => return self.exchange.pieces.push(text.clone()),
            Ok(Delta::Done(answer)) => ExchangeOutcome::Answer(answer.clone()),
            Ok(_) => return,
            Err(error) => ExchangeOutcome::Error(error.clone()),
        };
        self.tape.write(&self.exchange);
    }
}

/// In which order a cassette answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As recorded: each request must be the next one of the tape.
    AsRecorded,
    /// By hash: requests may come in any order; equal ones get their answers in the order recorded.
    Any,
}

/// Answers from a cassette. An unexpected request fails; [`Replayer::verify`] finds unused exchanges.
pub struct Replayer {
    profile: ModelProfile,
    order: Order,
    /// Exchanges not yet used, and what went wrong; held for no wait.
    state: Mutex<State>,
}

struct State {
    left: VecDeque<Exchange>,
    problems: Vec<String>,
}

/// A cassette that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CassetteError {
    /// Counted from 1.
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
    /// [`CassetteError`] for the first line that is no exchange.
    pub fn new(text: &str, order: Order) -> Result<Self, CassetteError> {
        let mut left = VecDeque::new();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let exchange = serde_json::from_str(line);
            left.push_back(exchange.map_err(|error| CassetteError { line: at + 1, problem: error.to_string() })?);
        }
        Ok(Self { profile: scripted::profile(), order, state: Mutex::new(State { left, problems: Vec::new() }) })
    }

    /// The provider `cassette`: any order, unless the entry says `order: recorded`.
    pub(super) fn open(config: &ModelConfig) -> Result<Self, ModelConfigError> {
        let (name, text) = scripted::read_source(config, "cassette")?;
        let order = match config.extra.get("order").and_then(|order| order.as_str()) {
            Some("recorded") => Order::AsRecorded,
            None | Some("any") => Order::Any,
            Some(_) => return Err(ModelConfigError::new(config, "order", "expected `recorded` or `any`")),
        };
        Self::new(&text, order).map_err(|bad| ModelConfigError::new(config, "cassette", format_args!("{name}: {bad}")))
    }

    /// Whether every exchange was used and no request was unexpected.
    ///
    /// # Errors
    /// All that went wrong, one per line.
    pub fn verify(&self) -> Result<(), String> {
        let state = self.state();
        let mut problems = state.problems.clone();
        let unused =
            |exchange: &Exchange| format!("never asked for: {}: …{}", exchange.request.purpose, exchange.request.last);
        problems.extend(state.left.iter().map(unused));
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, request: &ChatRequest) -> Result<Exchange, LlmError> {
        let hash = masked_hash(request);
        let mut state = self.state();
        let at = match self.order {
            Order::AsRecorded => state.left.front().is_some_and(|next| next.hash == hash).then_some(0),
            Order::Any => state.left.iter().position(|exchange| exchange.hash == hash),
        };
        at.and_then(|at| state.left.remove(at)).ok_or_else(|| {
            let slim = Slim::of(request);
            let problem = format!("not on the cassette: {}: …{}", slim.purpose, slim.last);
            state.problems.push(problem.clone());
            LlmError::new(LlmErrorKind::Unscripted).because(problem)
        })
    }
}

impl Llm for Replayer {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }

    fn chat<'a>(&'a self, request: ChatRequest, cx: &'a CallContext) -> BoxFuture<'a, Result<ChatStream, LlmError>> {
        Box::pin(async move {
            if cx.cancel.is_cancelled() {
                return Err(LlmErrorKind::Cancelled.into());
            }
            let exchange = self.take(&request)?;
            let end = match exchange.end {
                ExchangeOutcome::Answer(answer) => Ok(Delta::Done(answer)),
                ExchangeOutcome::Error(error) if exchange.pieces.is_empty() => return Err(error),
                ExchangeOutcome::Error(error) => Err(error),
            };
            let pieces = stream::iter(exchange.pieces.into_iter().map(|text| Ok(Delta::Text(text))));
            Ok(ChatStream::new(pieces.chain(stream::iter([end]))))
        })
    }
}

#[cfg(test)]
mod tests;
