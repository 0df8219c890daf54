//! A service for simple channels: each request contains one message, and its response contains the replies.

use std::{convert::Infallible, sync::Arc};

use axum::{
    http::{HeaderValue, Request, Response, StatusCode, header::RETRY_AFTER},
    response::IntoResponse,
};
use bytes::Bytes;

use super::{Body, ChannelService, Inbox, problem, rest::with_turn_error, retryable_status};
use crate::{
    conversation::AcceptAllSink,
    runtime::{IncomingMessage, ReceiveError, TurnReport},
};

/// A service that parses each request as a message, runs its turn, and builds the response from the report of the turn: a text,
/// `axum::Json`, or any other axum response with status and headers.
///
/// If `parse` fails, the response has the status 400 and the body `{"error": …}` with the returned text. A message that was not accepted
/// gets 429 or 503 with `Retry-After`; if its turn fails, or the store, the status is 500, and the body says whether the message may be
/// sent again. The header [`X-Turn-Error`](super::TURN_ERROR)
/// contains the error code, also of a turn that ended with an error message to the user.
pub fn request_response<P, B, R>(inbox: Inbox, parse: P, build_response: B) -> ChannelService
where
    P: Fn(&Request<Bytes>) -> Result<IncomingMessage, String> + Send + Sync + 'static,
    B: Fn(&TurnReport) -> R + Send + Sync + 'static,
    R: IntoResponse,
{
    let functions = Arc::new((parse, build_response));
    ChannelService::new(tower::service_fn(move |request: Request<Bytes>| {
        let (inbox, functions) = (inbox.clone(), functions.clone());
        async move {
            let (parse, build_response) = &*functions;
            let message = match parse(&request) {
                Ok(message) => message,
                Err(reason) => return Ok::<_, Infallible>(problem(StatusCode::BAD_REQUEST, &reason)),
            };
            Ok(match inbox.receive(message, Box::new(AcceptAllSink)).await {
                Ok(report) => {
                    let code = report.failures.first().map(|failure| &*failure.code);
                    with_turn_error(build_response(&report).into_response(), code)
                }
                Err(error) => error_response(&error),
            })
        }
    }))
}

pub(super) fn error_response(error: &ReceiveError) -> Response<Body> {
    let retryable = retryable_status(error);
    if retryable.is_none() {
        tracing::error!(code = error.code(), "{error}");
    }
    let status = retryable.map_or(StatusCode::INTERNAL_SERVER_ERROR, |(status, _)| status);
    let mut response = problem(status, error.advice());
    if let Some((_, after)) = retryable {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(after.as_secs()));
    }
    with_turn_error(response, Some(error.code()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use axum::{Json, body::to_bytes, http::header::CONTENT_TYPE};
    use serde_json::json;
    use tower::ServiceExt as _;

    use super::*;
    use crate::{runtime::Assistant, testing::ScriptedLlm};

    const FILES: [(&str, &str); 3] = [
        (
            "config.yml",
            "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n",
        ),
        ("domain.yml", "responses: {utter_hello: [{text: Hello!}]}\n"),
        ("flows/greet.yml", "flows: {greet: {description: greets, steps: [{action: utter_hello}]}}\n"),
    ];

    /// Status, media type and text of the response to one message.
    async fn respond<R: IntoResponse>(
        build_response: impl Fn(&TurnReport) -> R + Send + Sync + 'static,
    ) -> (StatusCode, String, String) {
        let model = Arc::new(ScriptedLlm::strict(["start flow greet"]));
        let assistant = Assistant::builder_from_texts(FILES).unwrap().model(model).build().unwrap();
        let service =
            request_response(Inbox::new(assistant, "plain"), |_| Ok(IncomingMessage::new("u", "hi")), build_response);
        let response = service.oneshot(Request::new(Bytes::new())).await.unwrap();
        let media_type = response.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
        let status = response.status();
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, media_type, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn response_can_be_a_text_or_a_status_with_json() {
        let first = |report: &TurnReport| report.texts().first().map(ToString::to_string).unwrap_or_default();
        let (status, media_type, text) = respond(first).await;
        assert_eq!((status, &*media_type, &*text), (StatusCode::OK, "text/plain; charset=utf-8", "Hello!"));
        let (status, media_type, text) =
            respond(move |report| (StatusCode::CREATED, Json(json!({"said": first(report)})))).await;
        assert_eq!((status, &*media_type), (StatusCode::CREATED, "application/json"));
        assert_eq!(text, r#"{"said":"Hello!"}"#);
    }
}
