//! Streamable HTTP: the proof of the caller, how many sessions there may be, and the way to the protocol's own server.

use std::{convert::Infallible, sync::Arc};

use axum::{
    body,
    http::{
        HeaderValue, Method, Request, Response, StatusCode,
        header::{RETRY_AFTER, WWW_AUTHENTICATE},
    },
};
use bytes::Bytes;
use futures::StreamExt;
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService,
    session::local::{LocalSessionManager, SessionConfig},
};
use serde::Deserialize;

use super::{
    super::{Body, Service},
    Session, Shared,
};
use crate::limits;

/// Pages of this machine.
const HERE: [&str; 3] = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"];

/// The way in over HTTP.
struct Gate {
    shared: Arc<Shared>,
    sessions: Arc<LocalSessionManager>,
    inner: StreamableHttpService<Session, LocalSessionManager>,
}

pub(super) fn service(shared: &Arc<Shared>) -> Service {
    let mut keeping = SessionConfig::default();
    keeping.keep_alive = Some(limits::MCP_SERVED_IDLE);
    let mut sessions = LocalSessionManager::default();
    sessions.session_config = keeping;
    let sessions = Arc::new(sessions);
    let makes = shared.clone();
    let inner = StreamableHttpService::new(move || Ok(Session::new(makes.clone())), sessions.clone(), config(shared));
    let gate = Arc::new(Gate { shared: shared.clone(), sessions, inner });
    Service::new(tower::service_fn(move |request| {
        let gate = gate.clone();
        async move { Ok::<_, Infallible>(gate.answer(request).await) }
    }))
}

/// Against pages of others that point their own name at this machine: `Host` and `Origin` are looked at. Where a token is asked
/// for and no name is set, any name will do: a page does not know the token.
fn config(shared: &Shared) -> StreamableHttpServerConfig {
    let offer = &shared.offer;
    let mut origins = offer.origins.clone();
    if offer.local {
        origins.extend(HERE.map(str::to_owned));
    }
    let config = StreamableHttpServerConfig::default()
        .with_allowed_origins(origins)
        .enforce_origin_validation()
        .with_sse_keep_alive(Some(limits::HEARTBEAT))
        .with_max_request_body_bytes(limits::BODY)
        .with_cancellation_token(shared.closed.clone());
    match (&*offer.hosts, offer.local) {
        ([], true) => config,
        ([], false) => config.disable_allowed_hosts(),
        (hosts, _) => config.with_allowed_hosts(hosts.iter().cloned()),
    }
}

impl Gate {
    async fn answer(&self, request: Request<Bytes>) -> Response<Body> {
        if self.shared.offer.token.as_ref().is_some_and(|token| !token.admits(request.headers())) {
            let mut answer = refusal(StatusCode::UNAUTHORIZED, "this server needs its token as a bearer");
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return answer;
        }
        if begins(&request) && self.sessions.sessions.read().await.len() >= limits::MCP_SERVED_SESSIONS {
            let mut answer = refusal(StatusCode::SERVICE_UNAVAILABLE, "too many sessions are open");
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("60"));
            return answer;
        }
        let answer = self.inner.handle(request.map(body::Body::from)).await;
        answer.map(|body| {
            let pieces = body::Body::new(body).into_data_stream();
            Body::Stream(pieces.filter_map(|piece| std::future::ready(piece.ok())).boxed())
        })
    }
}

/// Whether a request begins a session.
fn begins(request: &Request<Bytes>) -> bool {
    #[derive(Deserialize)]
    struct Head<'a> {
        method: Option<&'a str>,
    }
    request.method() == Method::POST
        && !request.headers().contains_key("mcp-session-id")
        && serde_json::from_slice::<Head<'_>>(request.body()).is_ok_and(|head| head.method == Some("initialize"))
}

fn refusal(status: StatusCode, problem: &str) -> Response<Body> {
    let mut answer = Response::new(Body::from(serde_json::json!({"error": problem}).to_string()));
    *answer.status_mut() = status;
    answer
}
