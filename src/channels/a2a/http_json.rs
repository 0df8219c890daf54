//! The binding HTTP+JSON: each operation has a path, below `/v1/` for A2A 0.3 and below `/rest/` for 1.0.

use axum::http::{Method, Response, StatusCode, request::Parts};
use serde_json::{Map, Value as Json, json};

use super::{
    A2aRequestError, A2aServer, check_version, json as json_response,
    operations::{OperationRequest, OperationResponse},
    stream::{self, Envelope},
};
use crate::{
    a2a::{A2aWireFormat, Operation, codes},
    channels::Body,
};

/// Answers a request; `path` is the path after `/a2a`.
pub(super) async fn respond(server: &A2aServer, head: &Parts, path: &str, body: &[u8]) -> Response<Body> {
    let response = match parse_request(head, path, body) {
        Ok(request) => {
            let format = request.format;
            server.perform(request).await.map(|response| (response, format))
        }
        Err(error) => Err(error),
    };
    match response {
        Ok((OperationResponse::Json(json), _)) => {
            json_response(StatusCode::OK, &if json.is_null() { json!({}) } else { json })
        }
        Ok((OperationResponse::Stream(source), format)) => {
            stream::sse_response(source, Envelope::None, format, server.0.assistant.clock())
        }
        Err(error) => {
            let (status, json) = status_and_error(&error);
            error.set_retry_headers(json_response(status, &json))
        }
    }
}

fn parse_request(head: &Parts, path: &str, body: &[u8]) -> Result<OperationRequest, A2aRequestError> {
    let not_found = || A2aRequestError::new(codes::METHOD_NOT_FOUND, format!("unknown path `{path}`"));
    let (format, path) = match (path.strip_prefix("/v1/"), path.strip_prefix("/rest/")) {
        (Some(rest), _) => (A2aWireFormat::ProtoJsonV0_3, rest),
        (_, Some(rest)) => (A2aWireFormat::ProtoJsonV1_0, rest),
        _ => return Err(not_found()),
    };
    check_version(&head.headers)?;
    let parts: Vec<String> = path.split('/').map(percent_decode).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let id_before_verb = |part: &str| part.rsplit_once(':').map(|(id, _)| id.to_owned());
    let (operation, task, push_config) = match (&head.method, parts.as_slice()) {
        (&Method::POST, ["message:send"]) => (Operation::Send, None, None),
        (&Method::POST, ["message:stream"]) => (Operation::Stream, None, None),
        (&Method::GET, ["tasks"]) if format == A2aWireFormat::ProtoJsonV1_0 => (Operation::List, None, None),
        (&Method::GET, ["extendedAgentCard" | "card"]) => (Operation::ExtendedCard, None, None),
        (&Method::POST | &Method::GET, ["tasks", last]) if last.ends_with(":subscribe") => {
            (Operation::Subscribe, id_before_verb(last), None)
        }
        (&Method::POST, ["tasks", last]) if last.ends_with(":cancel") => {
            (Operation::Cancel, id_before_verb(last), None)
        }
        (&Method::GET, ["tasks", id]) => (Operation::Get, Some((*id).to_owned()), None),
        (method, ["tasks", id, "pushNotificationConfigs", rest @ ..]) => {
            let operation = match (method, rest) {
                (&Method::POST, []) => Operation::SetPush,
                (&Method::GET, []) => Operation::ListPush,
                (&Method::GET, [_]) => Operation::GetPush,
                (&Method::DELETE, [_]) => Operation::DeletePush,
                _ => return Err(not_found()),
            };
            (operation, Some((*id).to_owned()), rest.first().map(|id| (*id).to_owned()))
        }
        _ => return Err(not_found()),
    };
    let params = if body.is_empty() { params_of_query(head.uri.query()) } else { params_of_body(body)? };
    let last_event_id = head.headers.get("last-event-id").and_then(|value| value.to_str().ok()).map(str::to_owned);
    Ok(OperationRequest { operation, format, task, push_config, params, last_event_id })
}

fn params_of_body(body: &[u8]) -> Result<Json, A2aRequestError> {
    match serde_json::from_slice(body) {
        Ok(json @ Json::Object(_)) => Ok(json),
        Ok(_) => Err(A2aRequestError::invalid_params("the body must be a JSON object")),
        Err(error) => Err(A2aRequestError::new(codes::PARSE_ERROR, format!("the body is not JSON: {error}"))),
    }
}

fn params_of_query(text: Option<&str>) -> Json {
    let pairs = form_urlencoded::parse(text.unwrap_or_default().as_bytes());
    let fields: Map<String, Json> = pairs
        .map(|(key, value)| (key.into_owned(), if value == "true" { Json::Bool(true) } else { Json::from(value) }))
        .collect();
    Json::Object(fields)
}

/// Decodes the percent-encoding of a part of a path.
pub(super) fn percent_decode(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The HTTP status for an error, and the body: an error object as in [AIP-193](https://google.aip.dev/193), with the A2A reason in
/// its details.
pub(super) fn status_and_error(error: &A2aRequestError) -> (StatusCode, Json) {
    let (status, name, reason) = match error.code {
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
    let body = json!({"code": status.as_u16(), "status": name, "message": error.message, "details": details});
    (status, json!({"error": body, "message": error.message}))
}
