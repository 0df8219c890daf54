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

use super::form;
use crate::{
    ArgumentCheck, ClientRequestHandler, ElicitationRequest, ElicitationResponse, FormField,
    messages::{ToolMessage, render_message},
};
use segue_base::{context::CallContext, limits};

/// The handler of requests during one call, and what it could not answer.
#[derive(Clone)]
pub(super) struct CallInteraction {
    /// `None` for a call without a user, such as one of a mission.
    handler: Option<Arc<dyn ClientRequestHandler>>,
    cx: CallContext,
    /// Fields that were not answered.
    unanswered: Arc<Mutex<UnansweredFields>>,
    /// The number of requests so far, at most [`limits::MCP_QUESTIONS`].
    count: Arc<AtomicUsize>,
}

/// The fields of the forms of a call that were not answered.
#[derive(Default)]
struct UnansweredFields {
    /// Fields that only the user can fill; the form was cancelled.
    missing: Vec<FormField>,
    /// Fields because of which a form was declined.
    declined: Vec<FormField>,
}

/// Adds fields, each name once.
fn add_fields(to: &mut Vec<FormField>, fields: impl IntoIterator<Item = FormField>) {
    for field in fields {
        if !to.iter().any(|known| known.name == field.name) {
            to.push(field);
        }
    }
}

/// The fields as a text for a model: their names, and why each is not answered.
fn described(fields: &[FormField], join: &str, without_problem: impl Fn(&str) -> String) -> String {
    let one = |field: &FormField| match (&field.problem, field.name.as_str()) {
        (Some(problem), "") => problem.clone(),
        (Some(problem), name) => format!("`{name}`: {problem}"),
        (None, name) => without_problem(name),
    };
    fields.iter().map(one).collect::<Vec<_>>().join(join)
}

/// The names of the fields of a form, for a form that is declined as a whole.
fn field_names(params: &Json) -> Vec<String> {
    let properties = params.pointer("/requestedSchema/properties").and_then(Json::as_object);
    let names = properties.into_iter().flat_map(|properties| properties.keys());
    let short =
        |name: &String| name.get(..name.floor_char_boundary(limits::TOOL_PROBLEM_TEXT)).unwrap_or_default().to_owned();
    names.take(limits::TOOL_PROBLEMS).map(short).collect()
}

/// The requests that a server may send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AllowedRequests {
    pub(super) elicitation: bool,
    pub(super) sampling: bool,
}

impl CallInteraction {
    pub(super) fn new(handler: Option<Arc<dyn ClientRequestHandler>>, cx: CallContext) -> Self {
        Self { handler, cx, unanswered: Arc::default(), count: Arc::default() }
    }

    /// Whether there is somebody who can answer requests.
    pub(super) fn has_user(&self) -> bool {
        self.handler.is_some()
    }

    /// The names of the fields that the user must fill before the call can succeed.
    pub(super) fn missing(&self) -> Vec<String> {
        lock(&self.unanswered).missing.iter().map(|field| field.name.clone()).collect()
    }

    /// The same fields as a text, with the reasons why known values do not fit.
    pub(super) fn missing_described(&self) -> String {
        described(&lock(&self.unanswered).missing, ", ", str::to_owned)
    }

    /// Which forms were declined and why, as a text; `None` if none was.
    pub(super) fn declined_described(&self) -> Option<String> {
        let without_value = |name: &str| format!("`{name}`: {}", render_message(ToolMessage::FormNoValue, &[]));
        let unanswered = lock(&self.unanswered);
        (!unanswered.declined.is_empty()).then(|| described(&unanswered.declined, " ", without_value))
    }

    /// Declines a form because of a field; the call's result names it.
    fn decline(&self, server: &Arc<str>, field: FormField) -> Json {
        let cause = field.problem.as_deref().unwrap_or("there is no value for it");
        tracing::warn!(%server, field = field.name, cause, "a form of an MCP server is declined");
        add_fields(&mut lock(&self.unanswered).declined, [field]);
        json!({"action": "decline"})
    }

    /// Declines a form of which no field can be answered.
    fn decline_all(&self, server: &Arc<str>, params: &Json, reason: ToolMessage) -> Json {
        for name in field_names(params) {
            self.decline(server, FormField::new(name, render_message(reason, &[])));
        }
        json!({"action": "decline"})
    }

    /// Answers an elicitation; `None` if values must be collected from the user first.
    fn elicit(&self, server: &Arc<str>, params: &Json) -> Option<Json> {
        let Some(handler) = &self.handler else {
            return Some(self.decline_all(server, params, ToolMessage::FormNobodyAsked));
        };
        // Elicitation by URL is declined: the user would have to open the URL outside of the conversation.
        let schema = params.get("requestedSchema");
        let Some(schema) = schema.filter(|_| params.get("mode").and_then(Json::as_str) != Some("url")) else {
            return Some(json!({"action": "decline"}));
        };
        if let Some(field) = form::problem(schema, |field| handler.fills(field)) {
            return Some(self.decline(server, field));
        }
        let message = params.get("message").and_then(Json::as_str).unwrap_or_default().to_owned();
        // The handler reads the form, and the check of its answer may be long: the same bounds hold as for other schemas.
        let check = match ArgumentCheck::compile(schema) {
            Ok(check) => check,
            Err(error) => {
                return Some(self.decline(server, FormField::new("", error.to_string())));
            }
        };
        match handler.elicit(&ElicitationRequest { server: server.clone(), message, schema: schema.clone() }) {
            ElicitationResponse::Accept(content) => {
                let content = Json::Object(content);
                let problems = check.problems(&content);
                if !problems.is_empty() {
                    return Some(self.decline(server, FormField::new("", problems.join(" "))));
                }
                Some(json!({"action": "accept", "content": content}))
            }
            ElicitationResponse::Decline(field) => Some(self.decline(server, field)),
            ElicitationResponse::Missing(fields) => {
                add_fields(&mut lock(&self.unanswered).missing, fields);
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
    Awaited(CallInteraction),
    /// Nobody waits for it any more, but it was not answered either.
    Abandoned {
        /// Whether it waited for a form, which was cancelled for want of values: the server has nothing left to do for it.
        is_cancelled: bool,
    },
}

impl CallsInWork {
    /// Adds a call until the returned guard is dropped.
    pub(super) fn add(&self, interaction: CallInteraction) -> CallInWork {
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
            Some(SentCall::Awaited(interaction)) if calls.len() == 1 => Some(interaction.clone()),
            _ => None,
        }
    }

    /// Declines a form that may belong to any of the calls: the result of each names its fields.
    fn decline_for_all(&self, server: &Arc<str>, params: &Json) -> Json {
        tracing::warn!(%server, "an elicitation is declined: the server may be working on another call too, or the call has too many requests");
        for call in lock(&self.0).values() {
            if let SentCall::Awaited(interaction) = call {
                interaction.decline_all(server, params, ToolMessage::FormOfOtherCall);
            }
        }
        json!({"action": "decline"})
    }

    /// Answers an elicitation request within a session.
    pub(super) fn elicit(&self, server: &Arc<str>, params: &Json) -> Json {
        let Some(interaction) = self.the_only_call().filter(CallInteraction::count_request) else {
            return self.decline_for_all(server, params);
        };
        interaction.elicit(server, params).unwrap_or_else(|| json!({"action": "cancel"}))
    }

    /// Answers a sampling request within a session, by the configured model.
    ///
    /// # Errors
    /// The request cannot be assigned to one call, the call has too many requests, or the model has no answer.
    pub(super) async fn sample(&self, server: &Arc<str>, params: Json) -> Result<Json, ErrorData> {
        let interaction = self.the_only_call().filter(CallInteraction::count_request);
        let Some((handler, cx)) = interaction.and_then(|call| Some((call.handler?, call.cx))) else {
            tracing::warn!(%server, "a sampling request is rejected: the server may be working on another call too, or the call has no user or too many requests");
            return Err(ErrorData::method_not_found::<CreateMessageRequestMethod>());
        };
        let result = handler.sample(params, &cx).await;
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
            Some(SentCall::Awaited(interaction)) => !interaction.missing().is_empty(),
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
            Some("sampling/createMessage") if allowed.sampling => match &interaction.handler {
                Some(handler) => handler.sample(params, &interaction.cx).await.ok(),
                None => None,
            },
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
