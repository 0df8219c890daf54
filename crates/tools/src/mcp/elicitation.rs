//! Requests of a server during a call: elicitation (a form for the user) and sampling (a response of the configured
//! model).
//!
//! They are handled only for servers whose entry allows them, and only during a call, by the handler of that call. A
//! request within a session does not name the call it belongs to, so it is answered only if the server can be working on
//! one call only: otherwise a form for the call of one user could be filled with the values of another. A call that
//! timed out or was cancelled still counts until its response arrives, because the server may go on with it. In the
//! newest protocol version, which has no sessions, the requests are in the result of the call.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use rmcp::{
    ErrorData,
    model::{CreateMessageRequestMethod, InputResponses},
};
use serde_json::{Map, Value as Json, json};

use crate::{ArgumentCheck, ClientRequestHandler, ElicitationRequest, ElicitationResponse};
use segue_base::{context::CallContext, limits};

/// The handler of requests during one call, and what it could not answer.
#[derive(Clone)]
pub(super) struct CallInteraction {
    pub(super) handler: Arc<dyn ClientRequestHandler>,
    pub(super) cx: CallContext,
    /// Fields that only the user can fill.
    missing: Arc<Mutex<Vec<String>>>,
    /// The number of requests so far, at most [`limits::MCP_QUESTIONS`].
    count: Arc<AtomicUsize>,
}

/// The requests that a server may send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AllowedRequests {
    pub(super) elicitation: bool,
    pub(super) sampling: bool,
}

impl CallInteraction {
    pub(super) fn new(handler: Arc<dyn ClientRequestHandler>, cx: CallContext) -> Self {
        Self { handler, cx, missing: Arc::default(), count: Arc::default() }
    }

    /// The fields that the user must fill before the call can succeed.
    pub(super) fn missing(&self) -> Vec<String> {
        lock(&self.missing).clone()
    }

    /// Answers an elicitation; `None` if values must be collected from the user first.
    fn elicit(&self, server: &Arc<str>, params: &Json) -> Option<Json> {
        let declined = json!({"action": "decline"});
        // Elicitation by URL is declined: the user would have to open the URL outside of the conversation.
        let schema = params.get("requestedSchema");
        let Some(schema) = schema.filter(|_| params.get("mode").and_then(Json::as_str) != Some("url")) else {
            return Some(declined);
        };
        let message = params.get("message").and_then(Json::as_str).unwrap_or_default().to_owned();
        // The handler reads the form, and the check of its answer may be long: the same bounds hold as for other schemas.
        let check = match ArgumentCheck::compile(schema) {
            Ok(check) => check,
            Err(error) => {
                tracing::warn!(%server, %error, "a form of an MCP server cannot be read, so it is declined");
                return Some(declined);
            }
        };
        match self.handler.elicit(&ElicitationRequest { server: server.clone(), message, schema: schema.clone() }) {
            ElicitationResponse::Accept(content) => {
                let content = Json::Object(content);
                let problems = check.problems(&content);
                if !problems.is_empty() {
                    tracing::warn!(%server, problems = problems.join(" "), "the values for a form of an MCP server do not match it, so it is declined");
                    return Some(declined);
                }
                Some(json!({"action": "accept", "content": content}))
            }
            ElicitationResponse::Decline => Some(declined),
            ElicitationResponse::Missing(fields) => {
                let mut missing = lock(&self.missing);
                for field in fields {
                    if !missing.contains(&field) {
                        missing.push(field);
                    }
                }
                None
            }
        }
    }

    /// Counts a request; returns whether it is within the limit.
    fn count_request(&self) -> bool {
        self.count.fetch_add(1, Ordering::SeqCst) < limits::MCP_QUESTIONS
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The calls of one session that the server may be working on. A call is added when it is sent, with or without a handler.
#[derive(Clone, Default)]
pub(super) struct CallsInWork(Arc<Mutex<HashMap<u64, SentCall>>>, Arc<AtomicU64>);

/// A call that was sent.
#[derive(Clone)]
enum SentCall {
    /// Its caller waits for the result; requests of the server may be answered by its handler, if it has one.
    Awaited(Option<CallInteraction>),
    /// Nobody waits for it any more, but it was not answered either.
    Abandoned {
        /// Whether it waited for a form, which was cancelled for want of values: the server has nothing left to do for it.
        is_cancelled: bool,
    },
}

impl CallsInWork {
    /// Adds a call until the returned guard is dropped.
    pub(super) fn add(&self, interaction: Option<CallInteraction>) -> CallInWork {
        let number = self.1.fetch_add(1, Ordering::SeqCst);
        lock(&self.0).insert(number, SentCall::Awaited(interaction));
        CallInWork { calls: self.clone(), number }
    }

    /// Whether a call that nobody waits for keeps requests from being answered.
    pub(super) fn has_abandoned(&self) -> bool {
        lock(&self.0).values().any(|call| matches!(call, SentCall::Abandoned { .. }))
    }

    /// Whether the server has only calls whose forms were cancelled, and none that it may be working on.
    pub(super) fn has_only_cancelled(&self) -> bool {
        let calls = lock(&self.0);
        !calls.is_empty() && calls.values().all(|call| matches!(call, SentCall::Abandoned { is_cancelled: true }))
    }

    /// The interaction of the call to which a request of the server must belong; `None` if there is no such call.
    fn the_only_call(&self) -> Option<CallInteraction> {
        let calls = lock(&self.0);
        match calls.values().next() {
            Some(SentCall::Awaited(interaction)) if calls.len() == 1 => interaction.clone(),
            _ => None,
        }
    }

    /// Answers an elicitation request within a session.
    pub(super) fn elicit(&self, server: &Arc<str>, params: &Json) -> Json {
        let Some(interaction) = self.the_only_call().filter(CallInteraction::count_request) else {
            tracing::warn!(%server, "an elicitation is declined: the server may be working on another call too, or the call has no user or too many requests");
            return json!({"action": "decline"});
        };
        interaction.elicit(server, params).unwrap_or_else(|| json!({"action": "cancel"}))
    }

    /// Answers a sampling request within a session, by the configured model.
    ///
    /// # Errors
    /// The request cannot be assigned to one call, the call has too many requests, or the model has no answer.
    pub(super) async fn sample(&self, server: &Arc<str>, params: Json) -> Result<Json, ErrorData> {
        let Some(interaction) = self.the_only_call().filter(CallInteraction::count_request) else {
            tracing::warn!(%server, "a sampling request is rejected: the server may be working on another call too, or the call has no user or too many requests");
            return Err(ErrorData::method_not_found::<CreateMessageRequestMethod>());
        };
        let result = interaction.handler.sample(params, &interaction.cx).await;
        result.map_err(|reason| ErrorData::internal_error(reason, None))
    }
}

/// A call that the server may be working on. Removed when dropped, unless it was abandoned.
pub(super) struct CallInWork {
    calls: CallsInWork,
    number: u64,
}

impl CallInWork {
    /// Nobody waits for the call any more. It stays until [`answered`](Self::answered) or the end of the session.
    pub(super) fn abandon(&self) {
        let mut calls = lock(&self.calls.0);
        let is_cancelled = match calls.get(&self.number) {
            Some(SentCall::Awaited(Some(interaction))) => !interaction.missing().is_empty(),
            _ => false,
        };
        calls.insert(self.number, SentCall::Abandoned { is_cancelled });
    }

    /// The server has responded to an abandoned call.
    pub(super) fn answered(self) {
        lock(&self.calls.0).remove(&self.number);
    }
}

impl Drop for CallInWork {
    fn drop(&mut self) {
        let mut calls = lock(&self.calls.0);
        if matches!(calls.get(&self.number), Some(SentCall::Awaited(_))) {
            calls.remove(&self.number);
        }
    }
}

/// The responses to all input requests in an incomplete result; `None` if not all of them can be answered.
pub(super) async fn responses(
    server: &Arc<str>,
    allowed: AllowedRequests,
    requests: &Map<String, Json>,
    interaction: &CallInteraction,
) -> Option<InputResponses> {
    // An incomplete result without requests counts as a request too, so that it cannot repeat without end.
    if requests.is_empty() && !interaction.count_request() {
        return None;
    }
    let mut responses = InputResponses::new();
    let mut is_complete = true;
    for (key, request) in requests {
        let params = request.get("params").cloned().unwrap_or_default();
        if !interaction.count_request() {
            return None;
        }
        let response = match request.get("method").and_then(Json::as_str) {
            Some("elicitation/create") if allowed.elicitation => interaction.elicit(server, &params),
            Some("sampling/createMessage") if allowed.sampling => {
                interaction.handler.sample(params, &interaction.cx).await.ok()
            }
            Some("elicitation/create") => Some(json!({"action": "decline"})),
            _ => None,
        };
        match response {
            Some(response) => {
                responses.insert(key.clone(), response);
            }
            None => is_complete = false,
        }
    }
    is_complete.then_some(responses)
}
