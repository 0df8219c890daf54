//! The Streamable HTTP transport: authenticates callers, limits the number of sessions, and protects a session against other callers.
//! rmcp's service does the rest.

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

/// Checks requests before rmcp's service handles them.
struct HttpGateway {
    shared: Arc<McpServerState>,
    sessions: Arc<LocalSessionManager>,
    inner: StreamableHttpService<Session, LocalSessionManager>,
    owners: SessionOwners,
    /// Held while a session is created, so that concurrent requests cannot exceed the limit.
    creating: tokio::sync::Mutex<()>,
}

/// The caller that created each session. Another caller cannot use the session, even with its id. Callers without an identity of their
/// own count as one.
#[derive(Default)]
struct SessionOwners(Mutex<HashMap<Arc<str>, Caller>>);

impl SessionOwners {
    fn all(&self) -> MutexGuard<'_, HashMap<Arc<str>, Caller>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const SESSION_HEADER: &str = "mcp-session-id";

/// The session id of a request, read in the same way as rmcp reads it.
pub(super) fn session_id(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION_HEADER)?.to_str().ok()
}

pub(super) fn service(shared: &Arc<McpServerState>) -> ChannelService {
    let mut session_config = SessionConfig::default();
    session_config.keep_alive = Some(limits::MCP_SERVED_IDLE);
    let mut sessions = LocalSessionManager::default();
    sessions.session_config = session_config;
    let sessions = Arc::new(sessions);
    let state = shared.clone();
    let new_session = move || Ok(Session::new(state.clone()));
    let inner = StreamableHttpService::new(new_session, sessions.clone(), config(shared));
    let gateway = Arc::new(HttpGateway {
        shared: shared.clone(),
        sessions,
        inner,
        owners: SessionOwners::default(),
        creating: tokio::sync::Mutex::default(),
    });
    ChannelService::new(tower::service_fn(move |request| {
        let gateway = gateway.clone();
        async move { Ok::<_, Infallible>(gateway.respond(request).await) }
    }))
}

/// rmcp does not check `Host`: `src/server/requests.rs` checks `Host` and `Origin` for all channels.
fn config(shared: &McpServerState) -> StreamableHttpServerConfig {
    StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_sse_keep_alive(Some(limits::HEARTBEAT))
        .with_max_request_body_bytes(limits::HTTP_BODY)
        .with_cancellation_token(shared.closed.clone())
}

impl HttpGateway {
    async fn respond(&self, mut request: Request<Bytes>) -> Response<Body> {
        // `Channel::check` has stored the caller; a server that does not call it leaves this to the gateway.
        let caller = match request.extensions_mut().remove::<Caller>() {
            Some(caller) => caller,
            None => match caller(&self.shared.settings.auth, request.headers(), self.shared.assistant.clock()).await {
                Ok(caller) => caller,
                Err(response) => return response,
            },
        };
        if let Some(session) = session_id(request.headers())
            && !self.may_use(session, &caller).await
        {
            return problem(StatusCode::NOT_FOUND, "there is no such session");
        }
        // Without a session, the session code separates the idempotency keys of callers by this.
        request.extensions_mut().insert(caller.clone());
        if creates_session(&request) { self.create_session(request, caller).await } else { self.forward(request).await }
    }

    /// Whether a caller may use a session. True for the id of a session that is not open: rmcp refuses it, or ignores it where the
    /// revision has no sessions.
    async fn may_use(&self, session: &str, caller: &Caller) -> bool {
        !self.sessions.sessions.read().await.contains_key(session) || self.owners.all().get(session) == Some(caller)
    }

    async fn create_session(&self, request: Request<Bytes>, caller: Caller) -> Response<Body> {
        let _guard = self.creating.lock().await;
        if self.sessions.sessions.read().await.len() >= limits::MCP_SERVED_SESSIONS {
            let mut response = problem(StatusCode::SERVICE_UNAVAILABLE, "too many sessions are open");
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("60"));
            return response;
        }
        let response = self.forward(request).await;
        if let Some(session) = session_id(response.headers()) {
            let open = self.sessions.sessions.read().await;
            let mut owners = self.owners.all();
            owners.retain(|session, _| open.contains_key(session));
            owners.insert(session.into(), caller);
        }
        response
    }

    async fn forward(&self, request: Request<Bytes>) -> Response<Body> {
        self.inner.handle(request.map(Body::from)).await.map(Body::new)
    }
}

/// The authenticated caller of a request.
///
/// # Errors
/// The response that refuses the request.
pub(super) async fn caller(
    auth: &Authenticator,
    headers: &HeaderMap,
    clock: &Arc<dyn Clock>,
) -> Result<Caller, Response<Body>> {
    auth.authenticate(headers, clock).await.map_err(|error| error.response("this server"))
}

/// Whether a request creates a session. It is parsed with rmcp's own types: a request that both read differently could bypass the
/// limit.
fn creates_session(request: &Request<Bytes>) -> bool {
    let initializes = |message: ClientJsonRpcMessage| match message {
        ClientJsonRpcMessage::Request(call) => matches!(call.request, ClientRequest::InitializeRequest(_)),
        _ => false,
    };
    request.method() == Method::POST
        && session_id(request.headers()).is_none()
        && serde_json::from_slice(request.body()).is_ok_and(initializes)
}
