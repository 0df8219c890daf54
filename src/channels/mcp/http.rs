//! Streamable HTTP: the proof of the caller, how many sessions there may be, and the way to the protocol's own server.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    body,
    http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header::RETRY_AFTER},
};
use bytes::Bytes;
use futures::StreamExt;
use rmcp::{
    model::{ClientJsonRpcMessage, ClientRequest},
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService,
        session::local::{LocalSessionManager, SessionConfig},
    },
};

use super::{
    super::{Body, Caller, Service, problem},
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
    /// Held while a session begins: of many that come at once, no more begin than there is room for.
    beginning: tokio::sync::Mutex<()>,
}

/// Who began which session: it is nobody else's, whatever its id is worth. Those who cannot be told apart count as one.
#[derive(Default)]
struct Owners(Mutex<HashMap<Arc<str>, Caller>>);

impl Owners {
    fn all(&self) -> MutexGuard<'_, HashMap<Arc<str>, Caller>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const SESSION: &str = "mcp-session-id";

/// The session that a request names, read as the protocol's own server reads it.
pub(super) fn session(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION)?.to_str().ok()
}

pub(super) fn service(shared: &Arc<Shared>) -> Service {
    let mut keeping = SessionConfig::default();
    keeping.keep_alive = Some(limits::MCP_SERVED_IDLE);
    let mut sessions = LocalSessionManager::default();
    sessions.session_config = keeping;
    let sessions = Arc::new(sessions);
    let makes = shared.clone();
    let inner = StreamableHttpService::new(move || Ok(Session::new(makes.clone())), sessions.clone(), config(shared));
    let gate = Arc::new(Gate {
        shared: shared.clone(),
        sessions,
        inner,
        owners: Owners::default(),
        beginning: tokio::sync::Mutex::default(),
    });
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
        .with_max_request_body_bytes(limits::HTTP_BODY)
        .with_cancellation_token(shared.closed.clone());
    match (&*offer.hosts, offer.local) {
        ([], true) => config,
        ([], false) => config.disable_allowed_hosts(),
        (hosts, _) => config.with_allowed_hosts(hosts.iter().cloned()),
    }
}

impl Gate {
    async fn answer(&self, mut request: Request<Bytes>) -> Response<Body> {
        // Found out when the head was checked, where the server does that.
        let caller = match request.extensions_mut().remove::<Caller>() {
            Some(caller) => caller,
            None => match caller(&self.shared, request.headers()).await {
                Ok(caller) => caller,
                Err(refused) => return refused,
            },
        };
        if let Some(session) = session(request.headers())
            && !self.admits(session, &caller).await
        {
            return problem(StatusCode::NOT_FOUND, "there is no such session");
        }
        // For whoever answers: where there is no session, nothing else says whose a key is.
        request.extensions_mut().insert(caller.clone());
        if begins(&request) { self.begin(request, caller).await } else { self.pass(request).await }
    }

    /// Whether a caller may name a session. One that is not open is let through: the protocol's own server refuses it, or
    /// overlooks it where the revision knows none.
    async fn admits(&self, session: &str, caller: &Caller) -> bool {
        !self.sessions.sessions.read().await.contains_key(session) || self.owners.all().get(session) == Some(caller)
    }

    async fn begin(&self, request: Request<Bytes>, caller: Caller) -> Response<Body> {
        let _one = self.beginning.lock().await;
        if self.sessions.sessions.read().await.len() >= limits::MCP_SERVED_SESSIONS {
            let mut answer = problem(StatusCode::SERVICE_UNAVAILABLE, "too many sessions are open");
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("60"));
            return answer;
        }
        let answer = self.pass(request).await;
        if let Some(session) = session(answer.headers()) {
            let open = self.sessions.sessions.read().await;
            let mut owners = self.owners.all();
            owners.retain(|session, _| open.contains_key(session));
            owners.insert(session.into(), caller);
        }
        answer
    }

    async fn pass(&self, request: Request<Bytes>) -> Response<Body> {
        self.inner.handle(request.map(body::Body::from)).await.map(|body| {
            let pieces = body::Body::new(body).into_data_stream();
            Body::Stream(pieces.filter_map(|piece| std::future::ready(piece.ok())).boxed())
        })
    }
}

/// Whose request it is, or the answer that refuses it.
pub(super) async fn caller(shared: &Shared, headers: &HeaderMap) -> Result<Caller, Response<Body>> {
    let caller = shared.offer.door.caller(headers, shared.assistant.clock()).await;
    caller.map_err(|refused| refused.answer("this server"))
}

/// Whether a request begins a session, read as the protocol's own server reads it: what both may read differently would be a way
/// round the limit.
fn begins(request: &Request<Bytes>) -> bool {
    let initializes = |message: ClientJsonRpcMessage| match message {
        ClientJsonRpcMessage::Request(call) => matches!(call.request, ClientRequest::InitializeRequest(_)),
        _ => false,
    };
    request.method() == Method::POST
        && session(request.headers()).is_none()
        && serde_json::from_slice(request.body()).is_ok_and(initializes)
}
