//! A session with a server: opening it, sending requests, closing it.

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
    http_transport,
    lines::LineGuard,
    server::{ServerTransport, Shared},
};
use segue_base::{context::CallContext, failpoint, limits};

type Service = RunningService<RoleClient, McpClientHandler>;

/// A handle of a session. Cheap to clone.
#[derive(Clone)]
pub(super) struct SessionHandle {
    pub(super) peer: Peer<RoleClient>,
    /// Cancelled when the connection has ended.
    pub(super) gone: CancellationToken,
    /// The running requests of this session.
    pub(super) requests: TaskTracker,
}

/// A session, with everything that must be closed at its end.
pub(super) struct McpSession {
    pub(super) line: SessionHandle,
    /// When it was opened.
    pub(super) since: Duration,
    stop: RunningServiceCancellationToken,
    /// Dropped with the session.
    session: tokio::task::JoinHandle<()>,
    child: Option<Child>,
    errors: OutputTail,
    /// Subscribes to changes of lists, if the protocol version requires that.
    _listening: Option<AbortOnDropHandle<()>>,
}

/// Opens a session. The caller limits the time; dropping the future ends a started child process.
///
/// # Errors
/// A text for operators, with the latest lines of the child's standard error.
pub(super) fn connect(shared: &Shared) -> BoxFuture<'_, Result<McpSession, String>> {
    Box::pin(connected(shared))
}

async fn connected(shared: &Shared) -> Result<McpSession, String> {
    // A server without the handshake does not get one.
    let newest = shared.protocol_version.as_deref() == Some(ProtocolVersion::LATEST.as_str());
    if newest {
        let preferred_versions = vec![ProtocolVersion::LATEST];
        match open(shared, ClientLifecycleMode::Discover { preferred_versions }).await {
            Err(Refusal::Handshake(_)) => {}
            Err(Refusal::Other(reason)) => return Err(reason),
            Ok(link) => return Ok(link),
        }
    }
    // One round trip that every server understands, except those of the newest protocol version without the handshake.
    match open(shared, ClientLifecycleMode::Initialize).await {
        Err(Refusal::Handshake(first)) => {
            let preferred_versions = vec![ProtocolVersion::LATEST];
            open(shared, ClientLifecycleMode::Discover { preferred_versions }).await.map_err(|second| match second {
                Refusal::Handshake(_) => first,
                Refusal::Other(reason) => format!("{first}; without a handshake: {reason}"),
            })
        }
        Err(Refusal::Other(reason)) => Err(reason),
        Ok(link) => Ok(link),
    }
}

enum Refusal {
    /// The server responds, but not to this handshake.
    Handshake(String),
    Other(String),
}

async fn open(shared: &Shared, mode: ClientLifecycleMode) -> Result<McpSession, Refusal> {
    let gone = CancellationToken::new();
    match &shared.reach {
        ServerTransport::Http { url } => {
            let client = shared.around.http.client().map_err(|error| Refusal::Other(error.to_string()))?;
            let transport =
                http_transport::transport(client, url, &shared.headers, shared.tokens().map_err(Refusal::Other)?)
                    .map_err(Refusal::Other)?;
            let service = greet(shared, transport, mode).await?;
            Ok(McpSession::of(shared, service, gone, None, OutputTail::default()))
        }
        ServerTransport::Stdio { command, args, env } => {
            let env: Vec<_> = env.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect();
            let started = child::start(command, args, &env, &shared.around).map_err(Refusal::Other)?;
            let output = LineGuard::new(started.output, gone.clone());
            let transport = AsyncRwTransport::<RoleClient, _, _>::new(
                output,
                failpoint::torn_write("C12", "\"tools/call\"", started.input),
            );
            match greet(shared, transport, mode).await {
                Ok(service) => Ok(McpSession::of(shared, service, gone, Some(started.child), started.errors)),
                Err(refusal) => {
                    started.child.terminate().await;
                    let said = said(&started.errors);
                    Err(match refusal {
                        Refusal::Handshake(reason) => Refusal::Handshake(reason + &said),
                        Refusal::Other(reason) => Refusal::Other(reason + &said),
                    })
                }
            }
        }
        ServerTransport::Pipes(pipes) => {
            let (output, input) = pipes();
            let transport = AsyncRwTransport::<RoleClient, _, _>::new(LineGuard::new(output, gone.clone()), input);
            let service = greet(shared, transport, mode).await?;
            Ok(McpSession::of(shared, service, gone, None, OutputTail::default()))
        }
    }
}

async fn greet<T, E, A>(shared: &Shared, transport: T, mode: ClientLifecycleMode) -> Result<Service, Refusal>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    shared.listener.clone().serve_with_lifecycle(transport, mode).await.map_err(|error| match &error {
        ClientInitializeError::JsonRpcError(_) | ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            Refusal::Handshake(format!("it refuses the handshake: {error}"))
        }
        ClientInitializeError::TransportError { error, context } => {
            Refusal::Other(format!("{} ({context})", of_transport(error)))
        }
        _ => Refusal::Other(with_causes(&error)),
    })
}

/// Whether a request failed because the server does not know the session any more.
pub(super) fn is_forgotten(error: &ServiceError) -> bool {
    let ServiceError::TransportSend(error) = error else { return false };
    let error = error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>();
    matches!(error, Some(StreamableHttpError::SessionExpired))
}

/// The reason of a failed request for operators.
pub(super) fn why(error: &ServiceError) -> String {
    match error {
        ServiceError::TransportSend(error) => of_transport(error),
        other => with_causes(other),
    }
}

/// The message of the library names its types; the cause is useful for operators.
fn of_transport(error: &DynamicTransportError) -> String {
    match error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(cause)) => with_causes(cause),
        // The reason for a missing token is in its challenge.
        Some(StreamableHttpError::AuthRequired(refused)) => refused.www_authenticate_header.clone(),
        Some(other) => with_causes(other),
        None => with_causes(error.error.as_ref()),
    }
}

/// An error with its causes: the outermost message of a transport often says little.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let words = inner.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = inner.source();
    }
    text
}

/// The latest lines of a child's standard error, for a reason.
fn said(errors: &OutputTail) -> String {
    let said = errors.last(400);
    if said.is_empty() { String::new() } else { format!("; its standard error ends with: {said}") }
}

impl McpSession {
    fn of(
        shared: &Shared,
        service: Service,
        gone: CancellationToken,
        child: Option<Child>,
        errors: OutputTail,
    ) -> Self {
        let line = SessionHandle { peer: service.peer().clone(), gone, requests: TaskTracker::new() };
        let stop = service.cancellation_token();
        let asks = line.peer.peer_info().is_some_and(|info| !info.protocol_version.has_initialize());
        let _listening =
            asks.then(|| AbortOnDropHandle::new(tokio::spawn(listen(line.clone(), shared.listener.clone()))));
        let gone = line.gone.clone();
        let session = tokio::spawn(async move {
            let _ = service.waiting().await;
            gone.cancel();
        });
        Self { since: shared.around.clock.elapsed(), line, stop, session, child, errors, _listening }
    }

    /// Why it ended, for operators.
    pub(super) fn reason(&self) -> String {
        let over = if self.line.is_alive() { "it no longer answers" } else { "it went away" };
        format!("{over}{}", said(&self.errors))
    }

    /// Closes the session when its running requests have ended, each within its own limits, or when `closing` is
    /// cancelled.
    pub(super) async fn retire(self, closing: CancellationToken) {
        self.line.requests.close();
        tokio::select! {
            () = self.line.requests.wait() => {}
            () = closing.cancelled() => {}
        }
        self.close().await;
    }

    /// Closes the session and ends the child process, within a few times [`limits::MCP_CLOSE`].
    pub(super) async fn close(self) {
        self.stop.cancel();
        let session = async {
            let _ = timeout(limits::MCP_CLOSE, self.session).await;
        };
        let child = async {
            if let Some(child) = self.child {
                child.terminate().await;
            }
        };
        // Both concurrently: a child that waits for the end of its input gets it from the session.
        futures::join!(session, child);
    }
}

/// Subscribes to changes of the tool list, in sessions without a handshake.
async fn listen(line: SessionHandle, listener: McpClientHandler) {
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    let Ok(mut news) = line.peer.listen(filter).await else { return };
    while let Ok(Some(_)) = news.next().await {
        listener.changed();
    }
}

/// Why a request has no result.
#[derive(Debug)]
pub(super) enum RequestError {
    /// It was not sent.
    NotSent(String),
    /// It was sent, or may have been.
    Failed(ServiceError),
    /// The session ended meanwhile.
    Gone,
}

impl SessionHandle {
    /// Whether the session is open, as far as known.
    pub(super) fn is_alive(&self) -> bool {
        !self.gone.is_cancelled() && !self.peer.is_transport_closed()
    }

    /// Sends a tool call; the response comes through the handle.
    pub(super) async fn call(
        &self,
        request: ClientRequest,
        options: PeerRequestOptions,
    ) -> Result<RequestHandle<RoleClient>, RequestError> {
        let sent = self.peer.send_request_with_option(request, options);
        sent.await.map_err(|error| RequestError::NotSent(error.to_string()))
    }

    /// One page of the list of tools.
    pub(super) async fn page(&self, cursor: Option<String>) -> Result<ServerResult, RequestError> {
        let request = match cursor {
            Some(cursor) => ListToolsRequest::with_param(PaginatedRequestParams::default().with_cursor(Some(cursor))),
            None => ListToolsRequest::default(),
        };
        self.ask(ClientRequest::ListToolsRequest(request)).await
    }

    /// Whether the server responds to a ping.
    pub(super) async fn answers(&self, cx: &CallContext) -> bool {
        let ping = ClientRequest::PingRequest(PingRequest::default());
        // Any response counts, also an error about an unknown method.
        match cx.wait(self.ask(ping)).await {
            Ok(Ok(_) | Err(RequestError::Failed(ServiceError::McpError(_)))) => true,
            Ok(Err(_)) | Err(_) => false,
        }
    }

    async fn ask(&self, request: ClientRequest) -> Result<ServerResult, RequestError> {
        let sent = self.peer.send_request_with_option(request, PeerRequestOptions::no_options());
        let mut handle = sent.await.map_err(|error| RequestError::NotSent(error.to_string()))?;
        tokio::select! {
            biased;
            answer = &mut handle.rx => match answer {
                Ok(answer) => answer.map_err(RequestError::Failed),
                Err(_) => Err(RequestError::Gone),
            },
            () = self.gone.cancelled() => Err(RequestError::Gone),
        }
    }
}

/// A call of a tool.
pub(super) fn call_request(params: rmcp::model::CallToolRequestParams) -> ClientRequest {
    ClientRequest::CallToolRequest(Request::new(params))
}
