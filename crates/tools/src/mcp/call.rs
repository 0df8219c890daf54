//! One tool call to an MCP server: send it, wait for its result, cancel it after its deadline, and convert the result.
//!
//! The effect class decides what happens when a call fails without a result: a call that certainly did not run is sent
//! again at once; a call that may have run is sent again only if its effect class permits that.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use rmcp::{
    RoleClient, ServiceError,
    model::{
        CallToolRequestParams, ClientNotification, ClientRequest, CustomNotification, ErrorCode, MetaObject,
        RequestMetaObject,
    },
    service::{PeerRequestOptions, RequestHandle},
    transport::{DynamicTransportError, streamable_http_client::StreamableHttpError},
};
use serde_json::{Map, Value as Json, json};
use tokio::{sync::oneshot, time::timeout};

use super::{
    client_handler::McpClientHandler,
    elicitation::{self, CallInWork, CallInteraction},
    http_messages,
    http_transport::is_credentials_error,
    resource_tools::ResourceTool,
    server::{Command, ServerClosed, ServerState},
    session::{RequestError, SessionHandle, call_request},
    session_manager::SessionHealth,
};
use crate::{
    ArgumentCheck, EffectClass, FailureKind, Progress, ToolCallContext, ToolFailure, ToolHandler, ToolInfo,
    ToolOutcome, ToolOutput,
    invoke::{timed_out, waited_time},
    messages::{ToolMessage, render_message},
};
use segue_base::{
    context::{CallContext, WaitError},
    effect::Arrival,
    failpoint, limits,
};

/// The key of `_meta` that holds the idempotency key.
const IDEMPOTENCY_KEY: &str = "segue/idempotencyKey";

/// A call, as a command for the [session manager](super::session_manager).
pub(super) struct CallRequest {
    tool: Arc<str>,
    /// The operation on resources or prompts to send in place of `tools/call`.
    resource_tool: Option<ResourceTool>,
    arguments: Map<String, Json>,
    meta: Map<String, Json>,
    cx: CallContext,
    progress: Option<Arc<dyn Fn(Progress) + Send + Sync>>,
    /// The handler of requests from the server.
    interaction: CallInteraction,
    /// Set when the request is sent. Before that, the call has had no effect.
    sent: Arc<AtomicBool>,
    pub(super) reply: oneshot::Sender<Result<Json, CallError>>,
}

/// Why a call ended without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallError {
    /// There is no session, and none can be opened now; the reason is for operators.
    Unavailable(String),
    /// The session had ended before the call was sent.
    NotSent(String),
    /// The server no longer knows the session and rejected the call without reading it.
    SessionExpired,
    /// The server rejected the credentials; the reason is for operators.
    CredentialsRejected(String),
    /// The call was sent, and the session ended.
    ConnectionLost(String),
    /// The deadline passed after the call was sent.
    TimedOut,
    /// The deadline passed before the call was sent.
    TimedOutBeforeSend,
    /// It was cancelled.
    Cancelled,
    /// The server responded with a JSON-RPC error.
    JsonRpcError { code: i32, message: String },
}

/// A tool of a server.
pub(super) struct McpTool {
    info: ToolInfo,
    check: Arc<ArgumentCheck>,
    /// The check of structured results, if the tool has a valid `outputSchema`.
    output: Option<ArgumentCheck>,
    /// The operation on resources or prompts that it represents; `None` for a tool of the server.
    resource_tool: Option<ResourceTool>,
    state: Arc<ServerState>,
}

impl McpTool {
    pub(super) fn new(
        info: ToolInfo,
        check: ArgumentCheck,
        output: Option<ArgumentCheck>,
        state: Arc<ServerState>,
    ) -> Self {
        Self { info, check: Arc::new(check), output, resource_tool: None, state }
    }

    /// A tool that represents an operation on resources or prompts.
    pub(super) fn for_resource(
        info: ToolInfo,
        check: ArgumentCheck,
        resource_tool: ResourceTool,
        state: Arc<ServerState>,
    ) -> Self {
        Self { info, check: Arc::new(check), output: None, resource_tool: Some(resource_tool), state }
    }

    async fn run(&self, arguments: Map<String, Json>, cx: &ToolCallContext) -> ToolOutcome {
        let (started, timeout, effect) = (cx.cx.clock.elapsed(), cx.cx.remaining(), cx.effect(&self.info));
        let interaction = CallInteraction::new(cx.client_requests.clone(), cx.cx.clone());
        // Sent again once for any error, and once more for an expired session: after a restart of a server, first the pooled
        // connection fails, and then the server rejects the old session.
        let (mut attempts, mut expired_sessions) = (0, 0);
        let error = loop {
            let error = match self.attempt(arguments.clone(), cx, &interaction).await {
                Ok(raw) => return after_forms(self.outcome_of(raw, &interaction, effect), &interaction, effect),
                Err(error) => error,
            };
            attempts += 1;
            expired_sessions += u32::from(error == CallError::SessionExpired);
            let is_last = if error == CallError::SessionExpired { expired_sessions > 1 } else { attempts > 1 };
            if is_last || !error.may_be_resent(effect) || cx.cx.remaining().is_zero() {
                break error;
            }
        };
        let shown = error.without_message();
        tracing::warn!(server = %self.state.name, tool = %self.info.name, error = ?shown, "an MCP tool call failed without a result");
        // The server could not go on without the values, and says so by an error or not at all.
        let is_known = matches!(error, CallError::JsonRpcError { .. }) || !effect.in_doubt(error.arrival());
        if is_known && is_unanswered(&interaction) && error != CallError::Cancelled {
            return input_required(&interaction, "");
        }
        after_forms(error.outcome(effect, waited_time(&cx.cx, started, timeout)), &interaction, effect)
    }

    /// Sends the call to the session manager and waits for its result.
    async fn attempt(
        &self,
        arguments: Map<String, Json>,
        cx: &ToolCallContext,
        interaction: &CallInteraction,
    ) -> Result<Json, CallError> {
        let (reply, result) = oneshot::channel();
        let sent = Arc::new(AtomicBool::new(false));
        let request = CallRequest {
            tool: self.info.name.clone(),
            resource_tool: self.resource_tool,
            arguments,
            meta: self.meta(cx),
            cx: cx.cx.clone(),
            progress: cx.progress.clone(),
            interaction: interaction.clone(),
            sent: sent.clone(),
            reply,
        };
        let call = async {
            let closed = |ServerClosed| CallError::Unavailable("the server is closed".to_owned());
            self.state.send(Command::Call(Box::new(request))).await.map_err(closed)?;
            // The session manager drops a call only when the server is closed.
            result.await.unwrap_or_else(|_| Err(CallError::ConnectionLost("the server was closed".to_owned())))
        };
        match cx.cx.wait(call).await {
            Ok(result) => result,
            Err(WaitError::Cancelled) => Err(CallError::Cancelled),
            Err(WaitError::DeadlinePassed) if sent.load(Ordering::SeqCst) => Err(CallError::TimedOut),
            Err(WaitError::DeadlinePassed) => Err(CallError::TimedOutBeforeSend),
        }
    }

    /// The `_meta` object: the settings of the server, then the values of the caller, then the idempotency key, which
    /// every call with effects has. It is the same for every attempt.
    fn meta(&self, cx: &ToolCallContext) -> Map<String, Json> {
        let mut meta = self.state.meta.clone();
        meta.extend(cx.meta.iter().map(|(key, value)| (key.clone(), value.clone())));
        if cx.effect(&self.info) != EffectClass::Read {
            meta.insert(IDEMPOTENCY_KEY.to_owned(), Json::from(&*cx.idempotency_key));
        }
        meta
    }

    /// The outcome of a result. A result without `isError` means that the tool was carried out, even if its content is invalid.
    fn outcome_of(&self, raw: Json, interaction: &CallInteraction, effect: EffectClass) -> ToolOutcome {
        let is_error = raw.get("isError").and_then(Json::as_bool) == Some(true);
        let invalid = |message, values: &[(&str, &dyn std::fmt::Display)]| match is_error {
            true => ToolOutcome::failed(FailureKind::ToolError, render_message(message, values)),
            false => ToolOutcome::unusable(effect, render_message(message, values)),
        };
        // Whatever the server makes of a form that was not answered, the call did not get what it asked for.
        if is_unanswered(interaction) {
            return input_required(interaction, &said(&raw));
        }
        let Json::Object(mut raw) = raw else { return invalid(ToolMessage::InvalidResult, &[]) };
        match raw.get("resultType").and_then(Json::as_str) {
            None | Some("complete") => {}
            Some("input_required") => return input_required(interaction, ""),
            Some(_) => return invalid(ToolMessage::InvalidResult, &[]),
        }
        if let Some(resource_tool) = self.resource_tool {
            return ToolOutcome::Done(resource_tool.output(raw));
        }
        let keys = ["content", "structuredContent", "isError", "_meta", "resultType"];
        let is_tool_result = raw.keys().any(|key| keys.contains(&key.as_str())) || raw.is_empty();
        let content = match raw.remove("content") {
            None => Vec::new(),
            Some(Json::Array(parts)) => parts,
            Some(_) => return invalid(ToolMessage::InvalidResult, &[]),
        };
        if !is_tool_result {
            return invalid(ToolMessage::InvalidResult, &[]);
        }
        let meta = match raw.remove("_meta") {
            Some(Json::Object(meta)) => meta,
            _ => Map::new(),
        };
        let structured = raw.remove("structuredContent").filter(|value| !value.is_null());
        let output = ToolOutput { structured, content, meta, unusable: None };
        if is_error {
            return tool_error(&output);
        }
        if let (Some(check), Some(value)) = (&self.output, &output.structured) {
            let problems = check.problems(value);
            if !problems.is_empty() {
                return invalid(ToolMessage::ResultAgainstSchema, &[("problems", &problems.join(" "))]);
            }
        }
        ToolOutcome::Done(output)
    }
}

/// The outcome of a call whose tool requires values that are not known. They are collected from the user first, if the server may
/// request them.
fn input_required(interaction: &CallInteraction, message: &str) -> ToolOutcome {
    let missing_fields = interaction.missing();
    if missing_fields.is_empty() {
        return ToolOutcome::failed(FailureKind::Refused, render_message(ToolMessage::InputNotAllowed, &[]));
    }
    let message = render_message(
        ToolMessage::InputRequired,
        &[("fields", &interaction.missing_described()), ("message", &message)],
    );
    ToolOutcome::Failed(ToolFailure { missing_fields, ..ToolFailure::new(FailureKind::Refused, message) })
}

/// Whether the server asked for values that are not known.
fn is_unanswered(interaction: &CallInteraction) -> bool {
    !interaction.missing().is_empty()
}

/// The outcome of a call during which forms may have been declined. An error says whether the call was performed. A result does
/// not: servers return a text such as "The user declined." as they return that of a call that was carried out, so a call that
/// changes something does not count as done.
fn after_forms(outcome: ToolOutcome, interaction: &CallInteraction, effect: EffectClass) -> ToolOutcome {
    let Some(reasons) = interaction.declined_described() else { return outcome };
    let text =
        |message: &str| render_message(ToolMessage::FormDeclined, &[("reasons", &reasons), ("message", &message)]);
    let with_reasons = |failure: ToolFailure| ToolFailure { message: text(&failure.message), ..failure };
    match outcome {
        ToolOutcome::Failed(failure) => ToolOutcome::Failed(with_reasons(failure)),
        ToolOutcome::Unknown(failure) => ToolOutcome::Unknown(with_reasons(failure)),
        ToolOutcome::Done(output) if effect.changes().is_some() => {
            let message = text(&output.joined_text());
            ToolOutcome::without_response(effect, Arrival::Possible, FailureKind::Refused, message)
        }
        other => other,
    }
}

/// The text of a result.
fn said(raw: &Json) -> String {
    let content = raw.get("content").and_then(Json::as_array).cloned().unwrap_or_default();
    ToolOutput { content, ..ToolOutput::default() }.joined_text()
}

/// The outcome of a result with `isError`. It is final: the call is not sent again.
fn tool_error(output: &ToolOutput) -> ToolOutcome {
    let message = match (output.joined_text(), &output.structured) {
        (text, _) if !text.trim().is_empty() => render_message(ToolMessage::ToolError, &[("message", &text.trim())]),
        (_, Some(value)) => render_message(ToolMessage::ToolError, &[("message", value)]),
        _ => render_message(ToolMessage::ToolErrorWithoutText, &[]),
    };
    ToolOutcome::failed(FailureKind::ToolError, message)
}

#[async_trait]
impl ToolHandler for McpTool {
    fn info(&self) -> &ToolInfo {
        &self.info
    }
    fn argument_check(&self) -> Option<Arc<ArgumentCheck>> {
        Some(self.check.clone())
    }
    fn idle_timeout(&self) -> Option<Duration> {
        self.state.tool_timeout
    }
    fn total_timeout(&self) -> Option<Duration> {
        self.state.tool_timeout_total
    }
    async fn call(&self, arguments: Json, cx: &ToolCallContext) -> ToolOutcome {
        let arguments = match arguments {
            Json::Object(map) => map,
            _ => Map::new(),
        };
        self.run(arguments, cx).await
    }
}

impl CallError {
    /// Whether the call may be sent again.
    fn may_be_resent(&self, effect: EffectClass) -> bool {
        match self {
            Self::NotSent(_) => true,
            Self::SessionExpired | Self::ConnectionLost(_) => !effect.in_doubt(Arrival::Possible),
            _ => false,
        }
    }

    /// The error for logs. What the server says is left out, because it may repeat a secret of the arguments; outcomes have it, masked.
    fn without_message(&self) -> Self {
        match self {
            Self::JsonRpcError { code, .. } => Self::JsonRpcError { code: *code, message: "…".to_owned() },
            other => other.clone(),
        }
    }

    /// Whether the call may have had its effect. A call that the server rejected arrived but was not performed, so it counts as
    /// not arrived. Any other error may have come in the middle of the call, or after its effect.
    fn arrival(&self) -> Arrival {
        match self {
            Self::JsonRpcError { code, .. } if !is_rejection(*code) => Arrival::Possible,
            Self::ConnectionLost(_) | Self::TimedOut | Self::Cancelled => Arrival::Possible,
            Self::Unavailable(_)
            | Self::NotSent(_)
            | Self::SessionExpired
            | Self::CredentialsRejected(_)
            | Self::TimedOutBeforeSend
            | Self::JsonRpcError { .. } => Arrival::Impossible,
        }
    }

    /// The outcome for the model. `waited` is the time that the call was waited for.
    fn outcome(self, effect: EffectClass, waited: Duration) -> ToolOutcome {
        let (kind, message) = match &self {
            Self::TimedOut => return timed_out(effect, waited),
            Self::Unavailable(_) | Self::NotSent(_) => {
                (FailureKind::Unavailable, render_message(ToolMessage::Unavailable, &[]))
            }
            Self::SessionExpired => (FailureKind::Unavailable, render_message(ToolMessage::SessionExpired, &[])),
            Self::CredentialsRejected(_) => {
                (FailureKind::Unavailable, render_message(ToolMessage::CredentialsRejected, &[]))
            }
            Self::TimedOutBeforeSend => (FailureKind::Timeout, render_message(ToolMessage::TimedOutBeforeSend, &[])),
            Self::ConnectionLost(_) => (FailureKind::Unavailable, render_message(ToolMessage::ConnectionLost, &[])),
            Self::Cancelled => (FailureKind::Cancelled, render_message(ToolMessage::Cancelled, &[])),
            Self::JsonRpcError { code, message } => {
                // -32602: invalid params (https://www.jsonrpc.org/specification#error_object).
                let kind = if *code == -32602 { FailureKind::BadArguments } else { FailureKind::ToolError };
                (kind, render_message(ToolMessage::ToolError, &[("message", message)]))
            }
        };
        ToolOutcome::without_response(effect, self.arrival(), kind, message)
    }

    fn from_request_error(error: RequestError) -> Self {
        match error {
            RequestError::NotSent(reason) => Self::NotSent(reason),
            RequestError::SessionEnded => Self::ConnectionLost("the session ended".to_owned()),
            RequestError::Failed(ServiceError::McpError(error)) => {
                Self::JsonRpcError { code: error.code.0, message: error.message.into_owned() }
            }
            RequestError::Failed(ServiceError::TransportSend(error)) => Self::from_transport_error(&error),
            RequestError::Failed(error) => Self::ConnectionLost(error.to_string()),
        }
    }

    /// The error of a failed HTTP request; it depends on whether the server may have performed the call.
    fn from_transport_error(error: &DynamicTransportError) -> Self {
        match error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
            Some(StreamableHttpError::SessionExpired) => Self::SessionExpired,
            Some(error) if is_credentials_error(error) => Self::CredentialsRejected(error.to_string()),
            Some(StreamableHttpError::Client(cause)) if Arrival::from_http_error(cause) == Arrival::Impossible => {
                Self::NotSent(cause.to_string())
            }
            Some(error) if http_messages::status_of(error).is_some_and(http_messages::is_rejection) => {
                Self::Unavailable(error.to_string())
            }
            _ => Self::ConnectionLost(error.error.to_string()),
        }
    }

    /// What the error says about the session.
    fn session_health(&self) -> SessionHealth {
        match self {
            Self::SessionExpired => SessionHealth::Broken,
            Self::NotSent(_) | Self::ConnectionLost(_) => SessionHealth::TransportFailed,
            Self::TimedOut => SessionHealth::Suspect,
            _ => SessionHealth::Healthy,
        }
    }
}

/// Whether an error of this code was found before the call was performed: the message is not JSON, not a request, of an unknown
/// method, or its parameters are invalid (<https://www.jsonrpc.org/specification#error_object>). The last one also says
/// that there is no such tool
/// (<https://modelcontextprotocol.io/specification/2025-11-25/server/tools#error-handling>).
pub(super) fn is_rejection(code: i32) -> bool {
    [ErrorCode::PARSE_ERROR, ErrorCode::INVALID_REQUEST, ErrorCode::METHOD_NOT_FOUND, ErrorCode::INVALID_PARAMS]
        .contains(&ErrorCode(code))
}

/// Performs one call in a session and sends its result to the caller; returns the health of the session.
pub(super) async fn perform(
    session: &SessionHandle,
    request: CallRequest,
    handler: &McpClientHandler,
) -> SessionHealth {
    let CallRequest { tool, resource_tool, arguments, meta, cx, progress, interaction, sent, mut reply } = request;
    let resource_request = resource_tool.and_then(|resource_tool| resource_tool.request(&arguments));
    let mut params = CallToolRequestParams::new(tool.to_string()).with_arguments(arguments);
    let (session_health, result) = loop {
        let single = SingleRequest {
            session,
            meta: &meta,
            cx: &cx,
            progress: &progress,
            interaction: &interaction,
            sent: &sent,
        };
        let request = resource_request.clone().unwrap_or_else(|| call_request(params.clone()));
        let (session_health, result) = single.send(request, &mut reply, handler).await;
        let next = match &result {
            Ok(result) if resource_request.is_none() => {
                with_input_responses(result, handler, &interaction, params.clone()).await
            }
            _ => None,
        };
        match next {
            Some(next) => params = next,
            None => break (session_health, result),
        }
    };
    let _ = reply.send(result);
    session_health
}

/// The parameters for calling the tool again with responses to the input requests in its result; `None` if the result is complete
/// or not all requests can be answered.
async fn with_input_responses(
    result: &Json,
    handler: &McpClientHandler,
    interaction: &CallInteraction,
    params: CallToolRequestParams,
) -> Option<CallToolRequestParams> {
    if result.get("resultType").and_then(Json::as_str) != Some("input_required") {
        return None;
    }
    let empty = Map::new();
    let requests = result.get("inputRequests").and_then(Json::as_object).unwrap_or(&empty);
    let responses = elicitation::responses(&handler.server, handler.allowed, requests, interaction).await?;
    // Without a user every form is declined. The server has not performed the call, so it is not sent again.
    if !interaction.has_user() {
        return None;
    }
    let mut next = params.with_input_responses(responses);
    next.request_state = result.get("requestState").and_then(Json::as_str).map(str::to_owned);
    Some(next)
}

/// One request of a call. A call needs several if the server requests input.
struct SingleRequest<'a> {
    session: &'a SessionHandle,
    meta: &'a Map<String, Json>,
    cx: &'a CallContext,
    progress: &'a Option<Arc<dyn Fn(Progress) + Send + Sync>>,
    interaction: &'a CallInteraction,
    sent: &'a AtomicBool,
}

impl SingleRequest<'_> {
    /// Sends the request and waits for its result, the end of the session, the deadline or a cancellation.
    async fn send(
        &self,
        request: ClientRequest,
        reply: &mut oneshot::Sender<Result<Json, CallError>>,
        handler: &McpClientHandler,
    ) -> (SessionHealth, Result<Json, CallError>) {
        let (session, cx) = (self.session, self.cx);
        let options = PeerRequestOptions::no_options().with_meta(RequestMetaObject(MetaObject(self.meta.clone())));
        self.sent.store(true, Ordering::SeqCst);
        let in_work = session.calls.add(self.interaction.clone());
        let mut handle = match session.call(request, options).await {
            Ok(handle) => handle,
            Err(error) => {
                let error = CallError::from_request_error(error);
                return (error.session_health(), Err(error));
            }
        };
        let _progress =
            self.progress.clone().map(|sink| handler.progress.register(handle.progress_token.clone(), sink));
        let result = tokio::select! {
            biased;
            response = &mut handle.rx => match response {
                Ok(Ok(result)) => Ok(serde_json::to_value(result).unwrap_or_default()),
                Ok(Err(error)) => Err(CallError::from_request_error(RequestError::Failed(error))),
                Err(_) => Err(CallError::from_request_error(RequestError::SessionEnded)),
            },
            () = session.ended.cancelled() => Err(CallError::from_request_error(RequestError::SessionEnded)),
            () = failpoint::while_waiting("C13", limits::MCP_CANCEL) => Err(CallError::TimedOut),
            () = reply.closed() => Err(CallError::Cancelled),
            stopped = cx.wait(std::future::pending::<()>()) => match stopped {
                Err(WaitError::DeadlinePassed) | Ok(()) => Err(CallError::TimedOut),
                Err(WaitError::Cancelled) => Err(CallError::Cancelled),
            },
        };
        // The caller stopped waiting: its deadline passed, or it was cancelled.
        let is_late = matches!(result, Err(CallError::Cancelled)) && cx.remaining().is_zero();
        let result = if is_late { Err(CallError::TimedOut) } else { result };
        match result {
            Err(CallError::TimedOut | CallError::Cancelled) => {
                in_work.abandon();
                self.cancel(handle, in_work).await;
            }
            // No response: the server may be working on the call behind a proxy that gave up.
            Err(CallError::ConnectionLost(_)) => in_work.abandon(),
            _ => {}
        }
        (result.as_ref().map_or_else(CallError::session_health, |_| SessionHealth::Healthy), result)
    }

    /// Sends a cancellation to the server. The server may go on with the call nevertheless, so it stays in work.
    async fn cancel(&self, handle: RequestHandle<RoleClient>, in_work: CallInWork) {
        let reason = "the caller no longer waits for the result";
        if self.session.is_http {
            // Ends the HTTP request too, so that requests that hang do not use up those that may run at once.
            let _ = timeout(limits::MCP_CANCEL, handle.cancel(Some(reason.to_owned()))).await;
            return;
        }
        // With its own notification the MCP library would forget the request, and a late response would not be noticed.
        let params = json!({"requestId": handle.id, "reason": reason});
        let notification = CustomNotification::new("notifications/cancelled", Some(params));
        let _ = timeout(
            limits::MCP_CANCEL,
            handle.peer.send_notification(ClientNotification::CustomNotification(notification)),
        )
        .await;
        let ended = self.session.ended.clone();
        tokio::spawn(async move {
            let mut handle = handle;
            tokio::select! {
                _ = &mut handle.rx => in_work.answered(),
                () = ended.cancelled() => {}
            }
        });
    }
}
