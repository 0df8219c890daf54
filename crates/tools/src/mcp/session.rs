//! A session with an MCP server: opening it, sending requests, closing it.

use std::time::Duration;

use futures::future::BoxFuture;
use rmcp::{
    RoleClient,
    model::{
        ClientRequest, ListToolsRequest, PaginatedRequestParams, PingRequest, ProtocolVersion, Request, ServerResult,
        SubscriptionFilter,
    },
    service::{
        ClientInitializeError, ClientLifecycleMode, ClientServiceExt, Peer, PeerRequestOptions, RequestHandle,
        RunningService, RunningServiceCancellationToken, ServiceError,
    },
    transport::{
        DynamicTransportError, IntoTransport, async_rw::AsyncRwTransport, streamable_http_client::StreamableHttpError,
    },
};
use tokio::time::timeout;
use tokio_util::{
    sync::CancellationToken,
    task::{AbortOnDropHandle, TaskTracker},
};

use super::{
    child::{self, Child, OutputTail},
    client_handler::McpClientHandler,
    elicitation::CallsInWork,
    http_transport,
    line_guard::LineGuard,
    server::{ServerState, ServerTransport},
};
use segue_base::{context::CallContext, failpoint, limits};

type Service = RunningService<RoleClient, McpClientHandler>;

/// A handle of a session. Cheap to clone.
#[derive(Clone)]
pub(super) struct SessionHandle {
    pub(super) peer: Peer<RoleClient>,
    /// Cancelled when the connection has ended.
    pub(super) ended: CancellationToken,
    /// The running requests of this session.
    pub(super) requests: TaskTracker,
    /// The calls that the server may be working on.
    pub(super) calls: CallsInWork,
    /// Whether each request has an HTTP request of its own.
    pub(super) is_http: bool,
}

/// A session, with everything that must be closed at its end.
pub(super) struct McpSession {
    pub(super) handle: SessionHandle,
    /// The elapsed time of the clock when it was opened.
    pub(super) opened_at: Duration,
    cancel: RunningServiceCancellationToken,
    /// The task that runs the MCP service of the session.
    service: tokio::task::JoinHandle<()>,
    child: Option<Child>,
    /// The latest standard error output of the child.
    stderr: OutputTail,
    /// Subscribes to changes of lists, if the protocol version requires that.
    _subscription: Option<AbortOnDropHandle<()>>,
}

/// Opens a session. The caller limits the time; dropping the future ends a started child process.
///
/// # Errors
/// A text for operators, with the latest lines of the child's standard error.
pub(super) fn connect(state: &ServerState) -> BoxFuture<'_, Result<McpSession, String>> {
    Box::pin(try_handshakes(state))
}

/// Opens a session with the first handshake that the server accepts.
async fn try_handshakes(state: &ServerState) -> Result<McpSession, String> {
    // The newest protocol version has no `initialize` handshake. If the entry of the server names it, discovery is tried first.
    let discovers_first = state.protocol_version.as_deref() == Some(ProtocolVersion::LATEST.as_str());
    if discovers_first {
        let preferred_versions = vec![ProtocolVersion::LATEST];
        match open(state, ClientLifecycleMode::Discover { preferred_versions }).await {
            Err(ConnectError::HandshakeRefused(_)) => {}
            Err(ConnectError::Other(reason)) => return Err(reason),
            Ok(session) => return Ok(session),
        }
    }
    // All servers understand `initialize`, except those that support only the newest protocol version.
    match open(state, ClientLifecycleMode::Initialize).await {
        Err(ConnectError::HandshakeRefused(first)) => {
            let preferred_versions = vec![ProtocolVersion::LATEST];
            open(state, ClientLifecycleMode::Discover { preferred_versions }).await.map_err(|second| match second {
                ConnectError::HandshakeRefused(_) => first,
                ConnectError::Other(reason) => format!("{first}; without a handshake: {reason}"),
            })
        }
        Err(ConnectError::Other(reason)) => Err(reason),
        Ok(session) => Ok(session),
    }
}

/// Why a session cannot be opened; the texts are for operators.
enum ConnectError {
    /// The server responds, but rejects this handshake.
    HandshakeRefused(String),
    /// Any other reason.
    Other(String),
}

/// Opens the transport, then the session with this handshake.
async fn open(state: &ServerState, mode: ClientLifecycleMode) -> Result<McpSession, ConnectError> {
    let ended = CancellationToken::new();
    match &state.transport {
        ServerTransport::Http { url } => {
            let client = state.environment.http.client().map_err(|error| ConnectError::Other(error.to_string()))?;
            let transport =
                http_transport::transport(client, url, &state.headers, state.tokens().map_err(ConnectError::Other)?)
                    .map_err(ConnectError::Other)?;
            let service = initialize(state, transport, mode).await?;
            Ok(McpSession::new(state, service, ended, None, OutputTail::default()))
        }
        ServerTransport::Stdio { command, args, env } => {
            let env: Vec<_> = env.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect();
            let spawned = child::start(command, args, &env, &state.environment).map_err(ConnectError::Other)?;
            let output = LineGuard::new(spawned.output, ended.clone());
            let transport = AsyncRwTransport::<RoleClient, _, _>::new(
                output,
                failpoint::torn_write("C12", "\"tools/call\"", spawned.input),
            );
            match initialize(state, transport, mode).await {
                Ok(service) => Ok(McpSession::new(state, service, ended, Some(spawned.child), spawned.errors)),
                Err(error) => {
                    spawned.child.terminate().await;
                    let stderr = stderr_suffix(&spawned.errors);
                    Err(match error {
                        ConnectError::HandshakeRefused(reason) => ConnectError::HandshakeRefused(reason + &stderr),
                        ConnectError::Other(reason) => ConnectError::Other(reason + &stderr),
                    })
                }
            }
        }
        ServerTransport::Pipes(pipes) => {
            let (output, input) = pipes();
            let transport = AsyncRwTransport::<RoleClient, _, _>::new(LineGuard::new(output, ended.clone()), input);
            let service = initialize(state, transport, mode).await?;
            Ok(McpSession::new(state, service, ended, None, OutputTail::default()))
        }
    }
}

/// Performs the handshake over a transport.
async fn initialize<T, E, A>(
    state: &ServerState,
    transport: T,
    mode: ClientLifecycleMode,
) -> Result<Service, ConnectError>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    state.handler.for_session().serve_with_lifecycle(transport, mode).await.map_err(|error| match &error {
        ClientInitializeError::JsonRpcError(_) | ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            ConnectError::HandshakeRefused(format!("it rejects the handshake: {error}"))
        }
        ClientInitializeError::TransportError { error, context } => {
            ConnectError::Other(format!("{} ({context})", transport_reason(error)))
        }
        _ => ConnectError::Other(with_causes(&error)),
    })
}

/// Whether a request failed because the server no longer knows the session.
pub(super) fn is_session_expired(error: &ServiceError) -> bool {
    let ServiceError::TransportSend(error) = error else { return false };
    let error = error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>();
    matches!(error, Some(StreamableHttpError::SessionExpired))
}

/// The reason of a failed request, for operators.
pub(super) fn error_reason(error: &ServiceError) -> String {
    match error {
        ServiceError::TransportSend(error) => transport_reason(error),
        other => with_causes(other),
    }
}

/// The reason of a transport error, for operators. The message of the MCP library names its own types, so the causes below it are
/// used.
fn transport_reason(error: &DynamicTransportError) -> String {
    match error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(cause)) => with_causes(cause),
        // The reason for a missing token is in its challenge.
        Some(StreamableHttpError::AuthRequired(error)) => error.www_authenticate_header.clone(),
        Some(other) => with_causes(other),
        None => with_causes(error.error.as_ref()),
    }
}

/// An error with its causes, without those whose text is already part of it.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let message = inner.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = inner.source();
    }
    text
}

/// The last 400 bytes of a child's standard error, as the end of a reason.
fn stderr_suffix(output: &OutputTail) -> String {
    let stderr = output.last(400);
    if stderr.is_empty() { String::new() } else { format!("; its standard error ends with: {stderr}") }
}

impl McpSession {
    fn new(
        state: &ServerState,
        service: Service,
        ended: CancellationToken,
        child: Option<Child>,
        stderr: OutputTail,
    ) -> Self {
        let calls = service.service().calls.clone();
        let is_http = matches!(state.transport, ServerTransport::Http { .. });
        let handle =
            SessionHandle { peer: service.peer().clone(), ended, requests: TaskTracker::new(), calls, is_http };
        let cancel = service.cancellation_token();
        let must_subscribe = handle.peer.peer_info().is_some_and(|info| !info.protocol_version.has_initialize());
        let _subscription = must_subscribe.then(|| {
            AbortOnDropHandle::new(tokio::spawn(subscribe_to_list_changes(handle.clone(), state.handler.clone())))
        });
        let ended = handle.ended.clone();
        let service = tokio::spawn(async move {
            let _ = service.waiting().await;
            ended.cancel();
        });
        Self { opened_at: state.environment.clock.elapsed(), handle, cancel, service, child, stderr, _subscription }
    }

    /// Why it ended, for operators.
    pub(super) fn reason(&self) -> String {
        let reason = if self.handle.is_alive() { "it no longer responds" } else { "it closed the connection" };
        format!("{reason}{}", stderr_suffix(&self.stderr))
    }

    /// Closes the session when its running requests have ended, each within its own limits, or when `closing` is
    /// cancelled.
    pub(super) async fn close_after_requests(self, closing: CancellationToken) {
        self.handle.requests.close();
        tokio::select! {
            () = self.handle.requests.wait() => {}
            () = closing.cancelled() => {}
        }
        self.close().await;
    }

    /// Closes the session and ends the child process, within a few times [`limits::MCP_CLOSE`].
    pub(super) async fn close(self) {
        self.cancel.cancel();
        let service = async {
            let _ = timeout(limits::MCP_CLOSE, self.service).await;
        };
        let child = async {
            if let Some(child) = self.child {
                child.terminate().await;
            }
        };
        // Concurrently, because ending the service closes the child's input, for whose end the child may wait.
        futures::join!(service, child);
    }
}

/// Subscribes to changes of the tool list, in sessions without the `initialize` handshake.
async fn subscribe_to_list_changes(handle: SessionHandle, handler: McpClientHandler) {
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    let Ok(mut changes) = handle.peer.listen(filter).await else { return };
    while let Ok(Some(_)) = changes.next().await {
        handler.list_changed();
    }
}

/// Why a request has no result.
#[derive(Debug)]
pub(super) enum RequestError {
    /// It was not sent.
    NotSent(String),
    /// It was sent, or may have been.
    Failed(ServiceError),
    /// It was sent, and the session ended before the response.
    SessionEnded,
}

impl SessionHandle {
    /// Whether the session is open. An ended connection may not have been noticed yet.
    pub(super) fn is_alive(&self) -> bool {
        !self.ended.is_cancelled() && !self.peer.is_transport_closed()
    }

    /// Sends a tool call. The response arrives through the returned handle.
    pub(super) async fn call(
        &self,
        request: ClientRequest,
        options: PeerRequestOptions,
    ) -> Result<RequestHandle<RoleClient>, RequestError> {
        let sent = self.peer.send_request_with_option(request, options);
        sent.await.map_err(|error| RequestError::NotSent(error.to_string()))
    }

    /// One page of the list of tools.
    pub(super) async fn list_tools_page(&self, cursor: Option<String>) -> Result<ServerResult, RequestError> {
        let request = match cursor {
            Some(cursor) => ListToolsRequest::with_param(PaginatedRequestParams::default().with_cursor(Some(cursor))),
            None => ListToolsRequest::default(),
        };
        self.request(ClientRequest::ListToolsRequest(request)).await
    }

    /// Whether the server responds to a ping.
    pub(super) async fn ping(&self, cx: &CallContext) -> bool {
        let ping = ClientRequest::PingRequest(PingRequest::default());
        // Any response counts, also an error about an unknown method.
        match cx.wait(self.request(ping)).await {
            Ok(Ok(_) | Err(RequestError::Failed(ServiceError::McpError(_)))) => true,
            Ok(Err(_)) | Err(_) => false,
        }
    }

    /// Sends a request and waits for its response. The caller limits the time.
    async fn request(&self, request: ClientRequest) -> Result<ServerResult, RequestError> {
        let sent = self.peer.send_request_with_option(request, PeerRequestOptions::no_options());
        let mut handle = sent.await.map_err(|error| RequestError::NotSent(error.to_string()))?;
        tokio::select! {
            biased;
            response = &mut handle.rx => match response {
                Ok(response) => response.map_err(RequestError::Failed),
                Err(_) => Err(RequestError::SessionEnded),
            },
            () = self.ended.cancelled() => Err(RequestError::SessionEnded),
        }
    }
}

/// The `tools/call` request with these parameters.
pub(super) fn call_request(params: rmcp::model::CallToolRequestParams) -> ClientRequest {
    ClientRequest::CallToolRequest(Request::new(params))
}
