//! A strict test double: it expects given calls in order, and reports unexpected and missing calls.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use segue_base::context::CallContext;

use super::profile;
use crate::{ChatRequest, ChatResponse, ChatStream, Delta, Llm, LlmError, LlmErrorKind, ModelProfile};

/// Checks the request of an expected call; `Err` is the problem.
type Check = Box<dyn FnOnce(&ChatRequest) -> Result<(), String> + Send>;

/// One expected call and its result.
pub struct ScriptedCall {
    check: Option<Check>,
    result: Result<Arc<ChatResponse>, LlmError>,
    /// Text that is streamed before the error.
    text_before_error: Option<Arc<str>>,
}

impl ScriptedCall {
    /// Checks the request with `check`; the call fails if it returns `Err`.
    #[must_use]
    pub fn expecting(mut self, check: impl FnOnce(&ChatRequest) -> Result<(), String> + Send + 'static) -> Self {
        self.check = Some(Box::new(check));
        self
    }
    /// A call that fails with `error` after it streamed `text`.
    pub fn failing_after(text: impl Into<Arc<str>>, error: impl Into<LlmError>) -> Self {
        Self { check: None, result: Err(error.into()), text_before_error: Some(text.into()) }
    }
}

impl From<ChatResponse> for ScriptedCall {
    fn from(answer: ChatResponse) -> Self {
        Self { check: None, result: Ok(Arc::new(answer)), text_before_error: None }
    }
}
impl From<LlmError> for ScriptedCall {
    fn from(error: LlmError) -> Self {
        Self { check: None, result: Err(error), text_before_error: None }
    }
}
impl From<LlmErrorKind> for ScriptedCall {
    fn from(kind: LlmErrorKind) -> Self {
        LlmError::new(kind).into()
    }
}
impl From<&str> for ScriptedCall {
    fn from(text: &str) -> Self {
        ChatResponse::text(text).into()
    }
}

/// A model for tests that expects given calls in order. Made by [`ScriptedLlm::strict`](super::ScriptedLlm::strict); end a test
/// with [`StrictLlm::verify`].
pub struct StrictLlm {
    profile: ModelProfile,
    /// Never locked across an await.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    expected: VecDeque<ScriptedCall>,
    requests: Vec<ChatRequest>,
    problems: Vec<String>,
}

impl StrictLlm {
    pub(super) fn new(calls: impl IntoIterator<Item = impl Into<ScriptedCall>>) -> Self {
        let expected = calls.into_iter().map(Into::into).collect();
        Self { profile: profile(), state: Mutex::new(State { expected, ..State::default() }) }
    }

    /// The same model with another profile.
    #[must_use]
    pub fn with_profile(mut self, profile: ModelProfile) -> Self {
        self.profile = profile;
        self
    }

    /// The requests so far, in order.
    pub fn requests(&self) -> Vec<ChatRequest> {
        self.state().requests.clone()
    }

    /// Appends an expected call.
    pub fn push(&self, call: impl Into<ScriptedCall>) {
        self.state().expected.push_back(call.into());
    }

    /// Checks that every expected call came and no other.
    ///
    /// # Errors
    /// All problems, one per line.
    pub fn verify(&self) -> Result<(), String> {
        let state = self.state();
        let mut problems = state.problems.clone();
        if !state.expected.is_empty() {
            problems.push(format!("{} expected calls did not come", state.expected.len()));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, request: ChatRequest) -> Result<ChatStream, LlmError> {
        let mut state = self.state();
        let number = state.requests.len() + 1;
        state.requests.push(request.clone());
        let Some(call) = state.expected.pop_front() else {
            let problem = format!("call {number} ({}) was not expected", request.purpose);
            state.problems.push(problem.clone());
            return Err(LlmError::new(LlmErrorKind::NotInScript).with_detail(problem));
        };
        if let Some(check) = call.check
            && let Err(problem) = check(&request)
        {
            let problem = format!("call {number} ({}): {problem}", request.purpose);
            state.problems.push(problem.clone());
            return Err(LlmError::new(LlmErrorKind::NotInScript).with_detail(problem));
        }
        match (call.result, call.text_before_error) {
            (Ok(answer), _) => Ok(ChatStream::from_response(answer)),
            (Err(error), None) => Err(error),
            (Err(error), Some(text)) => Ok(ChatStream::new(futures::stream::iter([Ok(Delta::Text(text)), Err(error)]))),
        }
    }
}

#[async_trait]
impl Llm for StrictLlm {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }
    async fn chat(&self, request: ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError> {
        if cx.cancel.is_cancelled() {
            return Err(LlmErrorKind::Cancelled.into());
        }
        self.take(request)
    }
}
