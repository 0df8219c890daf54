//! The strict double for tests: exact answers in order; an unexpected call fails, and so does an unused answer.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;
use segue_base::context::CallContext;

use super::profile;
use crate::{ChatRequest, ChatResponse, ChatStream, Delta, Llm, LlmError, LlmErrorKind, ModelProfile};

/// What the request of a step must be like; `Err` says what is wrong with it.
type Check = Box<dyn FnOnce(&ChatRequest) -> Result<(), String> + Send>;

/// One expected call and its answer.
pub struct Step {
    check: Option<Check>,
    answer: Result<Arc<ChatResponse>, LlmError>,
    /// Text told before the failure.
    shown: Option<Arc<str>>,
}

impl Step {
    /// Demands that the request passes `check` before the answer is given.
    #[must_use]
    pub fn expecting(mut self, check: impl FnOnce(&ChatRequest) -> Result<(), String> + Send + 'static) -> Self {
        self.check = Some(Box::new(check));
        self
    }
    /// A failure after some text was told.
    pub fn broken(text: impl Into<Arc<str>>, error: impl Into<LlmError>) -> Self {
        Self { check: None, answer: Err(error.into()), shown: Some(text.into()) }
    }
}

impl From<ChatResponse> for Step {
    fn from(answer: ChatResponse) -> Self {
        Self { check: None, answer: Ok(Arc::new(answer)), shown: None }
    }
}
impl From<LlmError> for Step {
    fn from(error: LlmError) -> Self {
        Self { check: None, answer: Err(error), shown: None }
    }
}
impl From<LlmErrorKind> for Step {
    fn from(kind: LlmErrorKind) -> Self {
        LlmError::new(kind).into()
    }
}
impl From<&str> for Step {
    fn from(text: &str) -> Self {
        ChatResponse::text(text).into()
    }
}

/// Made by [`ScriptedLlm::strict`](super::ScriptedLlm::strict). End a test with [`StrictLlm::verify`].
pub struct StrictLlm {
    profile: ModelProfile,
    /// Guards steps, requests and problems together; held for no wait.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    steps: VecDeque<Step>,
    requests: Vec<ChatRequest>,
    problems: Vec<String>,
}

impl StrictLlm {
    pub(super) fn new(steps: impl IntoIterator<Item = impl Into<Step>>) -> Self {
        let steps = steps.into_iter().map(Into::into).collect();
        Self { profile: profile(), state: Mutex::new(State { steps, ..State::default() }) }
    }

    /// The same double with other facts about the model.
    #[must_use]
    pub fn with_profile(mut self, profile: ModelProfile) -> Self {
        self.profile = profile;
        self
    }

    /// The requests so far, in order.
    pub fn requests(&self) -> Vec<ChatRequest> {
        self.state().requests.clone()
    }

    /// Adds a step at the end.
    pub fn push(&self, step: impl Into<Step>) {
        self.state().steps.push_back(step.into());
    }

    /// Whether every step was used and no call was unexpected.
    ///
    /// # Errors
    /// All that went wrong, one per line.
    pub fn verify(&self) -> Result<(), String> {
        let state = self.state();
        let mut problems = state.problems.clone();
        if !state.steps.is_empty() {
            problems.push(format!("{} answers were never asked for", state.steps.len()));
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
        let Some(step) = state.steps.pop_front() else {
            let problem = format!("call {number} ({}) was not expected", request.purpose);
            state.problems.push(problem.clone());
            return Err(LlmError::new(LlmErrorKind::Unscripted).because(problem));
        };
        if let Some(check) = step.check
            && let Err(problem) = check(&request)
        {
            let problem = format!("call {number} ({}): {problem}", request.purpose);
            state.problems.push(problem.clone());
            return Err(LlmError::new(LlmErrorKind::Unscripted).because(problem));
        }
        match (step.answer, step.shown) {
            (Ok(answer), _) => Ok(ChatStream::of(answer)),
            (Err(error), None) => Err(error),
            (Err(error), Some(text)) => Ok(ChatStream::new(futures::stream::iter([Ok(Delta::Text(text)), Err(error)]))),
        }
    }
}

impl Llm for StrictLlm {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }
    fn chat<'a>(&'a self, request: ChatRequest, cx: &'a CallContext) -> BoxFuture<'a, Result<ChatStream, LlmError>> {
        Box::pin(async move {
            if cx.cancel.is_cancelled() {
                return Err(LlmErrorKind::Cancelled.into());
            }
            self.take(request)
        })
    }
}
