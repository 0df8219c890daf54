//! Channels on which one request is one message, and its answer holds the replies.

use std::{convert::Infallible, sync::Arc};

use axum::{
    http::{HeaderValue, Request, Response, StatusCode, header::RETRY_AFTER},
    response::IntoResponse,
};
use bytes::Bytes;

use super::{Arrival, Body, ChannelService, Inbox, problem, refused, rest::with_turn_error};
use crate::{
    conversation::AcceptAllSink,
    runtime::{ReceiveError, TurnReport},
};

/// A service that reads a message from each request and answers with what the user is told: a text, `axum::Json`, or any other
/// response of axum with its status and headers.
///
/// A request that `read` refuses is answered with 400 and its words. A message that is not accepted is answered with 429 or 503 and
/// `Retry-After`, one whose turn failed with 500; `X-Turn-Error` names the code of what went wrong.
pub fn request_response<R, W, A>(inbox: Inbox, read: R, write: W) -> ChannelService
where
    R: Fn(&Request<Bytes>) -> Result<Arrival, String> + Send + Sync + 'static,
    W: Fn(&TurnReport) -> A + Send + Sync + 'static,
    A: IntoResponse,
{
    let functions = Arc::new((read, write));
    ChannelService::new(tower::service_fn(move |request: Request<Bytes>| {
        let (inbox, functions) = (inbox.clone(), functions.clone());
        async move {
            let (read, write) = &*functions;
            let arrival = match read(&request) {
                Ok(arrival) => arrival,
                Err(reason) => return Ok::<_, Infallible>(problem(StatusCode::BAD_REQUEST, &reason)),
            };
            Ok(match inbox.receive(arrival, Box::new(AcceptAllSink)).await {
                Ok(report) => {
                    let code = report.failures.first().map(|failure| &*failure.code);
                    with_turn_error(write(&report).into_response(), code)
                }
                Err(error) => unanswered(&error),
            })
        }
    }))
}

fn unanswered(error: &ReceiveError) -> Response<Body> {
    let later = refused(error);
    if later.is_none() {
        tracing::error!(code = error.code(), "{error}");
    }
    let status = later.map_or(StatusCode::INTERNAL_SERVER_ERROR, |(status, _)| status);
    let mut answer = problem(status, "the message got no turn; send it again");
    if let Some((_, after)) = later {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(after.as_secs()));
    }
    with_turn_error(answer, Some(error.code()))
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

    /// Status, media type and text of the answer to one message.
    async fn answered<A: IntoResponse>(
        write: impl Fn(&TurnReport) -> A + Send + Sync + 'static,
    ) -> (StatusCode, String, String) {
        let model = Arc::new(ScriptedLlm::strict(["start flow greet"]));
        let assistant = Assistant::builder_from_texts(FILES).unwrap().model(model).build().unwrap();
        let service = request_response(Inbox::new(assistant, "plain"), |_| Ok(Arrival::new("u", "hi")), write);
        let answer = service.oneshot(Request::new(Bytes::new())).await.unwrap();
        let media_type = answer.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
        let status = answer.status();
        let bytes = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        (status, media_type, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn any_response_of_axum_is_an_answer() {
        let first = |report: &TurnReport| report.texts().first().map(ToString::to_string).unwrap_or_default();
        let (status, media_type, text) = answered(first).await;
        assert_eq!((status, &*media_type, &*text), (StatusCode::OK, "text/plain; charset=utf-8", "Hello!"));
        let (status, media_type, text) =
            answered(move |report| (StatusCode::CREATED, Json(json!({"said": first(report)})))).await;
        assert_eq!((status, &*media_type), (StatusCode::CREATED, "application/json"));
        assert_eq!(text, r#"{"said":"Hello!"}"#);
    }
}
