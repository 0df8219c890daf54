//! Streamable HTTP: the proof of the caller, how many sessions there may be, and the way to the protocol's own server.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header::RETRY_AFTER};
use bytes::Bytes;
use rmcp::{
    model::{ClientJsonRpcMessage, ClientRequest},
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService,
        session::local::{LocalSessionManager, SessionConfig},
    },
};

use super::{
    super::{Authenticator, Body, Caller, ChannelService, problem},
    McpServerState, Session,
};
use crate::{clock::Clock, limits};

/// What stands in front of the protocol's own server.
struct HttpGateway {
    shared: Arc<McpServerState>,
    sessions: Arc<LocalSessionManager>,
    inner: StreamableHttpService<Session, LocalSessionManager>,
    owners: SessionOwners,
    /// Held while a session begins: of many that come at once, no more begin than there is room for.
    beginning: tokio::sync::Mutex<()>,
}

/// Who began which session: it is nobody else's, whatever its id is worth. Those who cannot be told apart count as one.
#[derive(Default)]
struct SessionOwners(Mutex<HashMap<Arc<str>, Caller>>);

impl SessionOwners {
    fn all(&self) -> MutexGuard<'_, HashMap<Arc<str>, Caller>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const SESSION: &str = "mcp-session-id";

/// The session that a request names, read as the protocol's own server reads it.
pub(super) fn session(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION)?.to_str().ok()
}

pub(super) fn service(shared: &Arc<McpServerState>) -> ChannelService {
    let mut keeping = SessionConfig::default();
    keeping.keep_alive = Some(limits::MCP_SERVED_IDLE);
    let mut sessions = LocalSessionManager::default();
    sessions.session_config = keeping;
    let sessions = Arc::new(sessions);
    let makes = shared.clone();
    let inner = StreamableHttpService::new(move || Ok(Session::new(makes.clone())), sessions.clone(), config(shared));
    let gate = Arc::new(HttpGateway {
        shared: shared.clone(),
        sessions,
        inner,
        owners: SessionOwners::default(),
        beginning: tokio::sync::Mutex::default(),
    });
    ChannelService::new(tower::service_fn(move |request| {
        let gate = gate.clone();
        async move { Ok::<_, Infallible>(gate.answer(request).await) }
    }))
}

/// `Host` and `Origin` were looked at before, by the server and for all channels.
fn config(shared: &McpServerState) -> StreamableHttpServerConfig {
    StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_sse_keep_alive(Some(limits::HEARTBEAT))
        .with_max_request_body_bytes(limits::HTTP_BODY)
        .with_cancellation_token(shared.closed.clone())
}

impl HttpGateway {
    async fn answer(&self, mut request: Request<Bytes>) -> Response<Body> {
        // Found out when the head was checked, where the server does that.
        let caller = match request.extensions_mut().remove::<Caller>() {
            Some(caller) => caller,
            None => match caller(&self.shared.settings.auth, request.headers(), self.shared.assistant.clock()).await {
                Ok(caller) => caller,
                Err(refused) => return refused,
            },
        };
        if let Some(session) = session(request.headers())
            && !self.admits(session, &caller).await
        {
            return problem(StatusCode::NOT_FOUND, "there is no such session");
        }
        // Kept for the answer: where there is no session, nothing else says whose a key is.
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
        self.inner.handle(request.map(Body::from)).await.map(Body::new)
    }
}

/// Whose request it is, or the answer that refuses it.
pub(super) async fn caller(
    auth: &Authenticator,
    headers: &HeaderMap,
    clock: &Arc<dyn Clock>,
) -> Result<Caller, Response<Body>> {
    auth.authenticate(headers, clock).await.map_err(|error| error.response("this server"))
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
