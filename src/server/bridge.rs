//! Between the server's requests, whose bodies are still on the wire, and a channel's, whose bodies were read.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    body::{self, Body},
    http::{Request, Response, StatusCode},
};
use futures::{StreamExt, future::BoxFuture};
use tower::{Service, ServiceExt};

use crate::{channels, clock::Clock, cx::Cx, limits};

/// A channel as the server sees it.
#[derive(Clone)]
pub(super) struct Bridge {
    channel: channels::Service,
    clock: Arc<dyn Clock>,
}

impl Bridge {
    pub(super) fn new(channel: channels::Service, clock: &Arc<dyn Clock>) -> Self {
        Self { channel, clock: clock.clone() }
    }
}

impl Service<Request<Body>> for Bridge {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // The copy that takes the request is made ready in `call`.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { channel, clock } = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let cx = Cx::new(clock, limits::BODY_READ);
            let bytes = match cx.wait(body::to_bytes(body, limits::BODY)).await {
                Ok(Ok(bytes)) => bytes,
                Ok(Err(_)) => {
                    return Ok(refusal(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large, or was cut short"));
                }
                Err(_) => return Ok(refusal(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
            };
            let answer = channel.oneshot(Request::from_parts(head, bytes)).await?;
            Ok(answer.map(|body| match body {
                channels::Body::Whole(bytes) => Body::from(bytes),
                channels::Body::Stream(pieces) => Body::from_stream(pieces.map(Ok::<_, Infallible>)),
            }))
        })
    }
}

fn refusal(status: StatusCode, problem: &str) -> Response<Body> {
    let mut answer = Response::new(Body::from(serde_json::json!({"error": problem}).to_string()));
    *answer.status_mut() = status;
    answer
}
