//! Plain HTTP: a path for each operation; `/v1/…` is the older generation, `/rest/…` the newer.

use axum::http::{Method, Response, StatusCode, request::Parts};
use serde_json::{Map, Value as Json, json};

use super::{
    A2aRequestError, A2aServer, json as json_answer,
    rpc::{Call, Reply},
    stream::{self, Wrap},
    unknown_version,
};
use crate::{
    a2a::{A2aWireFormat, Operation, codes},
    channels::Body,
};

/// Answers a request; `path` is what follows `/a2a`.
pub(super) async fn answer(agent: &A2aServer, head: &Parts, path: &str, body: &[u8]) -> Response<Body> {
    let answered = match call(head, path, body) {
        Ok(call) => {
            let dialect = call.dialect;
            agent.perform(call).await.map(|reply| (reply, dialect))
        }
        Err(refusal) => Err(refusal),
    };
    match answered {
        Ok((Reply::Json(json), _)) => json_answer(StatusCode::OK, &wrapped(json)),
        Ok((Reply::Stream(show), dialect)) => stream::answer(show, Wrap::Rest, dialect, agent.0.assistant.clock()),
        Err(refusal) => {
            let (status, json) = error(&refusal);
            refusal.told(json_answer(status, &json))
        }
    }
}

/// As it is: writing wrapped already what must be wrapped.
fn wrapped(json: Json) -> Json {
    if json.is_null() { json!({}) } else { json }
}

fn call(head: &Parts, path: &str, body: &[u8]) -> Result<Call, A2aRequestError> {
    let nothing = || A2aRequestError::new(codes::METHOD_NOT_FOUND, format!("there is nothing at `{path}`"));
    let (dialect, path) = match (path.strip_prefix("/v1/"), path.strip_prefix("/rest/")) {
        (Some(rest), _) => (A2aWireFormat::ProtoJsonV0_3, rest),
        (_, Some(rest)) => (A2aWireFormat::ProtoJsonV1_0, rest),
        _ => return Err(nothing()),
    };
    if let Some(refusal) = unknown_version(&head.headers) {
        return Err(refusal);
    }
    let parts: Vec<String> = path.split('/').map(decoded).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let verb = |part: &str| part.rsplit_once(':').map(|(id, verb)| (id.to_owned(), verb.to_owned()));
    let (operation, task, report) = match (&head.method, parts.as_slice()) {
        (&Method::POST, ["message:send"]) => (Operation::Send, None, None),
        (&Method::POST, ["message:stream"]) => (Operation::Stream, None, None),
        (&Method::GET, ["tasks"]) if dialect == A2aWireFormat::ProtoJsonV1_0 => (Operation::List, None, None),
        (&Method::GET, ["extendedAgentCard" | "card"]) => (Operation::ExtendedCard, None, None),
        (&Method::POST | &Method::GET, ["tasks", last]) if last.ends_with(":subscribe") => {
            (Operation::Subscribe, verb(last).map(|(id, _)| id), None)
        }
        (&Method::POST, ["tasks", last]) if last.ends_with(":cancel") => {
            (Operation::Cancel, verb(last).map(|(id, _)| id), None)
        }
        (&Method::GET, ["tasks", id]) => (Operation::Get, Some((*id).to_owned()), None),
        (method, ["tasks", id, "pushNotificationConfigs", rest @ ..]) => {
            let operation = match (method, rest) {
                (&Method::POST, []) => Operation::SetPush,
                (&Method::GET, []) => Operation::ListPush,
                (&Method::GET, [_]) => Operation::GetPush,
                (&Method::DELETE, [_]) => Operation::DeletePush,
                _ => return Err(nothing()),
            };
            (operation, Some((*id).to_owned()), rest.first().map(|id| (*id).to_owned()))
        }
        _ => return Err(nothing()),
    };
    let params = if body.is_empty() { query(head.uri.query()) } else { parsed(body)? };
    let cursor = head.headers.get("last-event-id").and_then(|value| value.to_str().ok()).map(str::to_owned);
    Ok(Call { operation, dialect, task, report, params, cursor })
}

fn parsed(body: &[u8]) -> Result<Json, A2aRequestError> {
    match serde_json::from_slice(body) {
        Ok(json @ Json::Object(_)) => Ok(json),
        Ok(_) => Err(A2aRequestError::params("the body must be a JSON object")),
        Err(error) => Err(A2aRequestError::new(codes::PARSE_ERROR, format!("the body is no JSON: {error}"))),
    }
}

fn query(text: Option<&str>) -> Json {
    let pairs = form_urlencoded::parse(text.unwrap_or_default().as_bytes());
    let fields: Map<String, Json> = pairs
        .map(|(key, value)| (key.into_owned(), if value == "true" { Json::Bool(true) } else { Json::from(value) }))
        .collect();
    Json::Object(fields)
}

/// Percent signs and what follows as the bytes they stand for.
pub(super) fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// An error as plain HTTP tells it: the status for people, the word for programs.
pub(super) fn error(refusal: &A2aRequestError) -> (StatusCode, Json) {
    let (status, name, reason) = match refusal.code {
        codes::TASK_NOT_FOUND => (StatusCode::NOT_FOUND, "NOT_FOUND", "TASK_NOT_FOUND"),
        codes::TASK_NOT_CANCELABLE => (StatusCode::BAD_REQUEST, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
        codes::PUSH_NOTIFICATION_NOT_SUPPORTED => {
            (StatusCode::BAD_REQUEST, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED")
        }
        codes::UNSUPPORTED_OPERATION => (StatusCode::BAD_REQUEST, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
        codes::CONTENT_TYPE_NOT_SUPPORTED => {
            (StatusCode::BAD_REQUEST, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED")
        }
        codes::EXTENDED_AGENT_CARD_NOT_CONFIGURED => {
            (StatusCode::BAD_REQUEST, "FAILED_PRECONDITION", "EXTENDED_AGENT_CARD_NOT_CONFIGURED")
        }
        codes::VERSION_NOT_SUPPORTED => (StatusCode::BAD_REQUEST, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"),
        codes::METHOD_NOT_FOUND => (StatusCode::NOT_FOUND, "NOT_FOUND", "METHOD_NOT_FOUND"),
        codes::INTERNAL_ERROR => (StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", "INTERNAL_ERROR"),
        _ => (StatusCode::BAD_REQUEST, "INVALID_ARGUMENT", "INVALID_PARAMS"),
    };
    let details = json!([{
        "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "a2a-protocol.org",
    }]);
    let error = json!({"code": status.as_u16(), "status": name, "message": refusal.message, "details": details});
    (status, json!({"error": error, "message": refusal.message}))
}
