//! Streamable HTTP: the proof of the caller, how many sessions there may be, and the way to the protocol's own server.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    body,
    http::{HeaderValue, Method, Request, Response, StatusCode, header::RETRY_AFTER},
};
use bytes::Bytes;
use futures::StreamExt;
use indexmap::IndexMap;
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService,
    session::local::{LocalSessionManager, SessionConfig},
};
use serde::Deserialize;

use super::{
    super::{Body, Caller, Service},
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
    owners: Owners,
}

/// Who began which session, where callers can be told apart: a session is nobody else's, whatever its id is worth.
#[derive(Default)]
struct Owners(Mutex<IndexMap<HeaderValue, Arc<str>>>);

impl Owners {
    fn admits(&self, session: &HeaderValue, caller: &Caller) -> bool {
        let owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        owners.get(session).is_none_or(|owner| caller.mark.as_ref() == Some(owner))
    }

    fn owns(&self, session: &HeaderValue, caller: &Caller) {
        let Some(mark) = caller.mark.clone() else { return };
        let mut owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        owners.insert(session.clone(), mark);
        // Twice as many as there may be: those that are forgotten have ended long ago.
        while owners.len() > limits::MCP_SERVED_SESSIONS * 2 {
            owners.shift_remove_index(0);
        }
    }
}

const SESSION: &str = "mcp-session-id";

pub(super) fn service(shared: &Arc<Shared>) -> Service {
    let mut keeping = SessionConfig::default();
    keeping.keep_alive = Some(limits::MCP_SERVED_IDLE);
    let mut sessions = LocalSessionManager::default();
    sessions.session_config = keeping;
    let sessions = Arc::new(sessions);
    let makes = shared.clone();
    let inner = StreamableHttpService::new(move || Ok(Session::new(makes.clone())), sessions.clone(), config(shared));
    let gate = Arc::new(Gate { shared: shared.clone(), sessions, inner, owners: Owners::default() });
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
        let clock = self.shared.assistant.clock();
        let caller = match self.shared.offer.door.caller(request.headers(), clock).await {
            Ok(caller) => caller,
            Err(refused) => return refused.answer("this server"),
        };
        let named = request.headers().get(SESSION).cloned();
        if named.as_ref().is_some_and(|session| !self.owners.admits(session, &caller)) {
            return refusal(StatusCode::NOT_FOUND, "there is no such session");
        }
        if begins(&request) && self.sessions.sessions.read().await.len() >= limits::MCP_SERVED_SESSIONS {
            let mut answer = refusal(StatusCode::SERVICE_UNAVAILABLE, "too many sessions are open");
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("60"));
            return answer;
        }
        let answer = self.inner.handle(request.map(body::Body::from)).await;
        if let (None, Some(session)) = (named, answer.headers().get(SESSION)) {
            self.owners.owns(session, &caller);
        }
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
        && !request.headers().contains_key(SESSION)
        && serde_json::from_slice::<Head<'_>>(request.body()).is_ok_and(|head| head.method == Some("initialize"))
}

fn refusal(status: StatusCode, problem: &str) -> Response<Body> {
    let mut answer = Response::new(Body::from(serde_json::json!({"error": problem}).to_string()));
    *answer.status_mut() = status;
    answer
}
