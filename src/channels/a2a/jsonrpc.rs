//! The JSON-RPC binding: one path; the method determines the operation and the protocol version.

use axum::http::{HeaderMap, Response, StatusCode};
use serde_json::{Map, Value as Json, json};

use super::{
    A2aRequestError, A2aServer, check_version, json as json_response,
    operations::{OperationRequest, OperationResponse},
    stream::{self, Envelope},
};
use crate::{
    a2a::{A2aVersion, A2aWireFormat, Operation, codes},
    channels::Body,
};

/// Answers a request.
pub(super) async fn respond(server: &A2aServer, body: &[u8], headers: &HeaderMap) -> Response<Body> {
    let request: Json = match serde_json::from_slice(body) {
        Ok(request) => request,
        Err(problem) => {
            let error = A2aRequestError::new(codes::PARSE_ERROR, format!("the body is not JSON: {problem}"));
            return json_response(StatusCode::OK, &error_response(&Json::Null, &error));
        }
    };
    let id = request.get("id").filter(|id| id.is_string() || id.is_i64() || id.is_u64()).cloned().unwrap_or(Json::Null);
    match perform(server, request, &id, headers).await {
        Ok(response) => response,
        Err(error) => error.set_retry_headers(json_response(StatusCode::OK, &error_response(&id, &error))),
    }
}

/// Performs the operation of a request. `id` is the id of the request, or null if it has none or an invalid one.
async fn perform(
    server: &A2aServer,
    request: Json,
    id: &Json,
    headers: &HeaderMap,
) -> Result<Response<Body>, A2aRequestError> {
    let invalid = |message: &str| A2aRequestError::new(codes::INVALID_REQUEST, message);
    let Json::Object(mut fields) = request else { return Err(invalid("a request must be one JSON object")) };
    if fields.get("jsonrpc").and_then(Json::as_str) != Some("2.0") {
        return Err(invalid("`jsonrpc` must be \"2.0\""));
    }
    if fields.get("id").is_some_and(|value| !value.is_null() && id.is_null()) {
        return Err(invalid("`id` must be a text or a whole number"));
    }
    let method = fields.get("method").and_then(Json::as_str).ok_or_else(|| invalid("`method` is missing"))?;
    let (operation, version) = Operation::from_method(method)
        .ok_or_else(|| A2aRequestError::new(codes::METHOD_NOT_FOUND, format!("there is no method `{method}`")))?;
    check_version(headers)?;
    let params = match fields.shift_remove("params") {
        None | Some(Json::Null) => Json::Object(Map::new()),
        Some(params @ Json::Object(_)) => params,
        Some(_) => return Err(A2aRequestError::invalid_params("`params` must be an object")),
    };
    let format = if version == A2aVersion::V0_3 { A2aWireFormat::JsonRpcV0_3 } else { A2aWireFormat::ProtoJsonV1_0 };
    let last_event_id = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let request = OperationRequest::from_params(operation, format, params, last_event_id);
    match server.perform(request).await? {
        OperationResponse::Json(result) => {
            Ok(json_response(StatusCode::OK, &json!({"jsonrpc": "2.0", "id": id, "result": result})))
        }
        OperationResponse::Stream(source) => {
            let envelope = Envelope::JsonRpc(id.clone());
            Ok(stream::sse_response(source, envelope, format, server.0.assistant.clock()))
        }
    }
}

/// An error as a JSON-RPC response.
pub(super) fn error_response(id: &Json, error: &A2aRequestError) -> Json {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": error.code, "message": error.message}})
}
