//! Requests of a server during a call: elicitation (a form for the user) and sampling (a response of the configured
//! model).
//!
//! They are handled only for servers whose entry allows them, and only during a call, whose caller answers them. In a
//! session nothing says which call a request belongs to, so it is answered only if exactly one call is possible. In the
//! stateless protocol the request is in the result of the call itself.

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

use crate::{ClientRequestHandler, ElicitationRequest, ElicitationResponse};
use segue_base::{context::CallContext, limits};

/// The handler of one call, and what it could not answer.
#[derive(Clone)]
pub(super) struct CallInteraction {
    pub(super) who: Arc<dyn ClientRequestHandler>,
    pub(super) cx: CallContext,
    /// Fields that only the user can fill.
    missing: Arc<Mutex<Vec<String>>>,
    /// The number of requests so far.
    count: Arc<AtomicUsize>,
}

/// The requests that a server may send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AllowedRequests {
    pub(super) elicitation: bool,
    pub(super) sampling: bool,
}

impl CallInteraction {
    pub(super) fn new(who: Arc<dyn ClientRequestHandler>, cx: CallContext) -> Self {
        Self { who, cx, missing: Arc::default(), count: Arc::default() }
    }

    /// The fields that the user must fill before the call can succeed.
    pub(super) fn missing(&self) -> Vec<String> {
        lock(&self.missing).clone()
    }

    /// Answers an elicitation. `None`: the user must be asked first.
    fn form(&self, server: &Arc<str>, params: &Json) -> Option<Json> {
        let declined = json!({"action": "decline"});
        // A URL to open cannot be answered in a conversation.
        let schema = params.get("requestedSchema");
        let Some(schema) = schema.filter(|_| params.get("mode").and_then(Json::as_str) != Some("url")) else {
            return Some(declined);
        };
        let message = params.get("message").and_then(Json::as_str).unwrap_or_default().to_owned();
        match self.who.form(&ElicitationRequest { server: server.clone(), message, schema: schema.clone() }) {
            ElicitationResponse::Accept(content) => Some(json!({"action": "accept", "content": content})),
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

    /// Whether one more request is allowed.
    fn one_more(&self) -> bool {
        self.count.fetch_add(1, Ordering::SeqCst) < limits::MCP_QUESTIONS
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The running calls of one server that accept requests.
#[derive(Clone, Default)]
pub(super) struct InteractiveCalls(Arc<Mutex<HashMap<u64, CallInteraction>>>, Arc<AtomicU64>);

impl InteractiveCalls {
    /// Accepts requests for this call until the returned guard is dropped.
    pub(super) fn admit(&self, asked: CallInteraction) -> Admitted {
        let number = self.1.fetch_add(1, Ordering::SeqCst);
        lock(&self.0).insert(number, asked);
        Admitted { askable: self.clone(), number }
    }

    /// The only possible call.
    fn only(&self) -> Option<CallInteraction> {
        let calls = lock(&self.0);
        let mut all = calls.values();
        all.next().filter(|_| calls.len() == 1).cloned()
    }

    /// Answers an elicitation that is a request of its own.
    pub(super) fn form(&self, server: &Arc<str>, params: &Json) -> Json {
        let Some(asked) = self.only().filter(CallInteraction::one_more) else {
            tracing::warn!(%server, "a question belongs to no one call: it is declined");
            return json!({"action": "decline"});
        };
        asked.form(server, params).unwrap_or_else(|| json!({"action": "cancel"}))
    }

    /// Lets the configured model answer.
    ///
    /// # Errors
    /// The call is ambiguous, or there is no answer.
    pub(super) async fn sample(&self, server: &Arc<str>, params: Json) -> Result<Json, ErrorData> {
        let Some(asked) = self.only().filter(CallInteraction::one_more) else {
            tracing::warn!(%server, "a request for our model belongs to no one call: it is refused");
            return Err(ErrorData::method_not_found::<CreateMessageRequestMethod>());
        };
        let sampled = asked.who.sample(params, &asked.cx).await;
        sampled.map_err(|reason| ErrorData::internal_error(reason, None))
    }
}

/// Ends the acceptance when dropped.
pub(super) struct Admitted {
    askable: InteractiveCalls,
    number: u64,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        lock(&self.askable.0).remove(&self.number);
    }
}

/// The responses to all requests in an incomplete result. `None`: not all of them can be answered now.
pub(super) async fn responses(
    server: &Arc<str>,
    allowed: AllowedRequests,
    asks: &Map<String, Json>,
    asked: &CallInteraction,
) -> Option<InputResponses> {
    // An incomplete result without requests counts as a request too, so that it cannot repeat without end.
    if asks.is_empty() && !asked.one_more() {
        return None;
    }
    let mut responses = InputResponses::new();
    let mut whole = true;
    for (key, ask) in asks {
        let params = ask.get("params").cloned().unwrap_or_default();
        if !asked.one_more() {
            return None;
        }
        let response = match ask.get("method").and_then(Json::as_str) {
            Some("elicitation/create") if allowed.elicitation => asked.form(server, &params),
            Some("sampling/createMessage") if allowed.sampling => asked.who.sample(params, &asked.cx).await.ok(),
            Some("elicitation/create") => Some(json!({"action": "decline"})),
            _ => None,
        };
        match response {
            Some(response) => {
                responses.insert(key.clone(), response);
            }
            None => whole = false,
        }
    }
    whole.then_some(responses)
}
