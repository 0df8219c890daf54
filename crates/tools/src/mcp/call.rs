//! One MCP call: send it, wait for its result, cancel it when it is late, and convert the result.
//!
//! The effect class decides what happens after a lost call: what certainly did not run may be sent again at once; what
//! may have run is repeated only if that is harmless.

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
    model::{CallToolRequestParams, ClientRequest, MetaObject, RequestMetaObject},
    service::{PeerRequestOptions, RequestHandle},
    transport::{DynamicTransportError, streamable_http_client::StreamableHttpError},
};
use serde_json::{Map, Value as Json};
use tokio::{sync::oneshot, time::timeout};

use super::{
    client_handler::McpClientHandler,
    elicitation::{self, CallInteraction},
    http_transport::wants_credentials,
    resource_tools::ResourceTool,
    server::{Closed, Command, Shared},
    session::{RequestError, SessionHandle, call_request},
    session_manager::SessionHealth,
};
use crate::{
    ArgumentCheck, EffectClass, FailureKind, Progress, ToolCallContext, ToolFailure, ToolHandler, ToolInfo,
    ToolOutcome, ToolOutput,
    invoke::{late, waited},
    words::{Word, say},
};
use segue_base::{
    context::{CallContext, WaitError},
    effect::Arrival,
    failpoint, limits,
};

/// The key of `_meta` that holds the idempotency key.
const IDEMPOTENCY_KEY: &str = "segue/idempotencyKey";

/// A call for the owner task.
pub(super) struct CallRequest {
    tool: Arc<str>,
    /// The resource request, if it is no tool.
    offer: Option<ResourceTool>,
    arguments: Map<String, Json>,
    meta: Map<String, Json>,
    cx: CallContext,
    progress: Option<Arc<dyn Fn(Progress) + Send + Sync>>,
    /// The handler of requests from the server.
    asked: Option<CallInteraction>,
    /// Set when the request is sent: before that, it has no effect.
    left: Arc<AtomicBool>,
    pub(super) reply: oneshot::Sender<Result<Json, CallError>>,
}

/// Why a call ended without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallError {
    /// There is no session, and none can be opened now; the reason is for operators.
    Away(String),
    /// The session had ended before the call was sent.
    NotSent(String),
    /// The server does not know the session any more and refused the call unread.
    Forgotten,
    /// The server refused the credentials; the reason is for operators.
    Credentials(String),
    /// The call was sent, and the session ended.
    Lost(String),
    /// The deadline passed.
    Late,
    /// The deadline passed before it was sent.
    LateBefore,
    /// It was cancelled.
    Stopped,
    /// The server responded with a JSON-RPC error.
    Refused { code: i32, message: String },
}

/// A tool of a server.
pub(super) struct McpTool {
    spec: ToolInfo,
    check: Arc<ArgumentCheck>,
    output: Option<ArgumentCheck>,
    /// The resource request it represents, if it is no tool of the server.
    offer: Option<ResourceTool>,
    shared: Arc<Shared>,
}

impl McpTool {
    pub(super) fn new(
        spec: ToolInfo,
        check: ArgumentCheck,
        output: Option<ArgumentCheck>,
        shared: Arc<Shared>,
    ) -> Self {
        Self { spec, check: Arc::new(check), output, offer: None, shared }
    }

    /// A tool that represents a resource request.
    pub(super) fn offering(spec: ToolInfo, check: ArgumentCheck, offer: ResourceTool, shared: Arc<Shared>) -> Self {
        Self { spec, check: Arc::new(check), output: None, offer: Some(offer), shared }
    }

    async fn run(&self, arguments: Map<String, Json>, cx: &ToolCallContext) -> ToolOutcome {
        let (began, limit, effect) = (cx.cx.clock.elapsed(), cx.cx.remaining(), cx.effect(&self.spec));
        let asked = cx.inquired.clone().map(|who| CallInteraction::new(who, cx.cx.clone()));
        // Retried once; twice if the server forgot the session at the first attempt, because after a restart of a
        // server the pooled connection fails first, and then the old session is refused.
        let (mut tries, mut forgotten) = (0, 0);
        let end = loop {
            let end = match self.once(arguments.clone(), cx, &asked).await {
                Ok(raw) => return self.judged(raw, &asked, effect),
                Err(end) => end,
            };
            tries += 1;
            forgotten += u32::from(end == CallError::Forgotten);
            let is_tried = if end == CallError::Forgotten { forgotten > 1 } else { tries > 1 };
            if is_tried || !end.may_be_repeated(effect) || cx.cx.remaining().is_zero() {
                break end;
            }
        };
        tracing::warn!(server = %self.shared.name, tool = %self.spec.name, ?end, "a tool gave no answer");
        end.outcome(effect, waited(&cx.cx, began, limit))
    }

    async fn once(
        &self,
        arguments: Map<String, Json>,
        cx: &ToolCallContext,
        asked: &Option<CallInteraction>,
    ) -> Result<Json, CallError> {
        let (reply, answer) = oneshot::channel();
        let left = Arc::new(AtomicBool::new(false));
        let request = CallRequest {
            tool: self.spec.name.clone(),
            offer: self.offer,
            arguments,
            meta: self.meta(cx),
            cx: cx.cx.clone(),
            progress: cx.progress.clone(),
            asked: asked.clone(),
            left: left.clone(),
            reply,
        };
        let asked = async {
            let closed = |Closed| CallError::Away("the server is closed".to_owned());
            self.shared.send(Command::Call(Box::new(request))).await.map_err(closed)?;
            // The owner task drops a call only when the server is closed.
            answer.await.unwrap_or_else(|_| Err(CallError::Lost("the server was closed".to_owned())))
        };
        match cx.cx.wait(asked).await {
            Ok(result) => result,
            Err(WaitError::Cancelled) => Err(CallError::Stopped),
            Err(WaitError::DeadlinePassed) if left.load(Ordering::SeqCst) => Err(CallError::Late),
            Err(WaitError::DeadlinePassed) => Err(CallError::LateBefore),
        }
    }

    /// The `_meta` object: the settings of the server, then the values of the caller, then the idempotency key, which
    /// every call with effects has. It is the same for every attempt.
    fn meta(&self, cx: &ToolCallContext) -> Map<String, Json> {
        let mut meta = self.shared.meta.clone();
        meta.extend(cx.meta.iter().map(|(key, value)| (key.clone(), value.clone())));
        if cx.effect(&self.spec) != EffectClass::Read && !failpoint::is_armed("defect:no-key") {
            meta.insert(IDEMPOTENCY_KEY.to_owned(), Json::from(&*cx.idempotency_key));
        }
        meta
    }

    /// The outcome of a result. A result means success unless `isError` is set, whatever its form.
    fn judged(&self, raw: Json, asked: &Option<CallInteraction>, effect: EffectClass) -> ToolOutcome {
        let is_error = raw.get("isError").and_then(Json::as_bool) == Some(true);
        let bad = |word, values: &[(&str, &dyn std::fmt::Display)]| match is_error {
            true => ToolOutcome::failed(FailureKind::ToolError, say(word, values)),
            false => ToolOutcome::unusable(effect, say(word, values)),
        };
        let Json::Object(mut raw) = raw else { return bad(Word::NoAnswer, &[]) };
        match raw.get("resultType").and_then(Json::as_str) {
            None | Some("complete") => {}
            Some("input_required") => return wanting(asked, ""),
            Some(_) => return bad(Word::NoAnswer, &[]),
        }
        if let Some(offer) = self.offer {
            return ToolOutcome::Done(offer.output(raw));
        }
        let known = ["content", "structuredContent", "isError", "_meta", "resultType"];
        let known = raw.keys().any(|key| known.contains(&key.as_str())) || raw.is_empty();
        let content = match raw.remove("content") {
            None => Vec::new(),
            Some(Json::Array(parts)) => parts,
            Some(_) => return bad(Word::NoAnswer, &[]),
        };
        if !known {
            return bad(Word::NoAnswer, &[]);
        }
        let meta = match raw.remove("_meta") {
            Some(Json::Object(meta)) => meta,
            _ => Map::new(),
        };
        let structured = raw.remove("structuredContent").filter(|value| !value.is_null());
        let output = ToolOutput { structured, content, meta, unusable: None };
        if is_error {
            // The elicitation could not be answered, and the tool gave up because of it.
            if asked.as_ref().is_some_and(|asked| !asked.missing().is_empty()) {
                return wanting(asked, &output.joined_text());
            }
            return refused_by_tool(&output);
        }
        if let (Some(check), Some(value)) = (&self.output, &output.structured) {
            let problems = check.problems(value);
            if !problems.is_empty() {
                return bad(Word::AgainstSchema, &[("problems", &problems.join(" "))]);
            }
        }
        ToolOutcome::Done(output)
    }
}

/// The tool requested unknown values: the user must be asked, if that is allowed.
fn wanting(asked: &Option<CallInteraction>, message: &str) -> ToolOutcome {
    let wants = asked.as_ref().map(CallInteraction::missing).unwrap_or_default();
    if wants.is_empty() {
        return ToolOutcome::failed(FailureKind::Refused, say(Word::WantsInput, &[]));
    }
    let message = say(Word::NeedsInput, &[("fields", &wants.join(", ")), ("message", &message)]);
    ToolOutcome::Failed(ToolFailure { wants, ..ToolFailure::new(FailureKind::Refused, message) })
}

/// The tool reported an error. That is a definite result: nothing is repeated.
fn refused_by_tool(output: &ToolOutput) -> ToolOutcome {
    let said = match (output.joined_text(), &output.structured) {
        (text, _) if !text.trim().is_empty() => say(Word::Said, &[("message", &text.trim())]),
        (_, Some(value)) => say(Word::Said, &[("message", value)]),
        _ => say(Word::SaidNothing, &[]),
    };
    ToolOutcome::failed(FailureKind::ToolError, said)
}

#[async_trait]
impl ToolHandler for McpTool {
    fn info(&self) -> &ToolInfo {
        &self.spec
    }
    fn arguments(&self) -> Option<Arc<ArgumentCheck>> {
        Some(self.check.clone())
    }
    fn limit(&self) -> Option<Duration> {
        self.shared.tool_timeout
    }
    fn most(&self) -> Option<Duration> {
        self.shared.tool_timeout_total
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
    fn may_be_repeated(&self, effect: EffectClass) -> bool {
        match self {
            Self::NotSent(_) => true,
            Self::Forgotten | Self::Lost(_) => !effect.in_doubt(Arrival::Possible),
            _ => false,
        }
    }

    /// Whether the call may have arrived. A refused call arrived, and was not performed.
    fn arrival(&self) -> Arrival {
        match self {
            Self::Lost(_) | Self::Late | Self::Stopped => Arrival::Possible,
            Self::Away(_)
            | Self::NotSent(_)
            | Self::Forgotten
            | Self::Credentials(_)
            | Self::LateBefore
            | Self::Refused { .. } => Arrival::Impossible,
        }
    }

    fn outcome(self, effect: EffectClass, limit: Duration) -> ToolOutcome {
        let (kind, message) = match &self {
            Self::Late => return late(effect, limit),
            Self::Away(_) | Self::NotSent(_) => (FailureKind::Unavailable, say(Word::Away, &[])),
            Self::Forgotten => (FailureKind::Unavailable, say(Word::NotRun, &[])),
            Self::Credentials(_) => (FailureKind::Unavailable, say(Word::RefusedCredentials, &[])),
            Self::LateBefore => (FailureKind::Timeout, say(Word::LateBefore, &[])),
            Self::Lost(_) => (FailureKind::Unavailable, say(Word::Lost, &[])),
            Self::Stopped => (FailureKind::Cancelled, say(Word::Stopped, &[])),
            Self::Refused { code, message } => {
                // -32602: invalid params, as JSON-RPC numbers it.
                let kind = if *code == -32602 { FailureKind::BadArguments } else { FailureKind::ToolError };
                (kind, say(Word::Said, &[("message", message)]))
            }
        };
        ToolOutcome::unanswered(effect, self.arrival(), kind, message)
    }

    fn of(unanswered: RequestError) -> Self {
        match unanswered {
            RequestError::NotSent(reason) => Self::NotSent(reason),
            RequestError::Gone => Self::Lost("the session ended".to_owned()),
            RequestError::Failed(ServiceError::McpError(error)) => {
                Self::Refused { code: error.code.0, message: error.message.into_owned() }
            }
            RequestError::Failed(ServiceError::TransportSend(error)) => Self::of_transport(&error),
            RequestError::Failed(error) => Self::Lost(error.to_string()),
        }
    }

    /// Whether the server may have seen a failed HTTP request.
    fn of_transport(error: &DynamicTransportError) -> Self {
        match error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
            Some(StreamableHttpError::SessionExpired) => Self::Forgotten,
            Some(refused) if wants_credentials(refused) => Self::Credentials(refused.to_string()),
            Some(StreamableHttpError::Client(cause)) if Arrival::of_http(cause) == Arrival::Impossible => {
                Self::NotSent(cause.to_string())
            }
            Some(StreamableHttpError::HttpStatus(status)) if status.status == 429 => Self::Away(status.to_string()),
            _ => Self::Lost(error.error.to_string()),
        }
    }

    fn fate(&self) -> SessionHealth {
        match self {
            Self::Forgotten => SessionHealth::Broken,
            Self::NotSent(_) | Self::Lost(_) => SessionHealth::Lost,
            Self::Late => SessionHealth::Doubtful,
            _ => SessionHealth::Good,
        }
    }
}

/// Performs one call in a session and sends its result to the caller; returns the state of the session.
pub(super) async fn perform(line: &SessionHandle, request: CallRequest, listener: &McpClientHandler) -> SessionHealth {
    let CallRequest { tool, offer, arguments, meta, cx, progress, asked, left, mut reply } = request;
    let _admitted = asked.clone().map(|asked| listener.askable.admit(asked));
    let other = offer.and_then(|offer| offer.request(&arguments));
    let mut params = CallToolRequestParams::new(tool.to_string()).with_arguments(arguments);
    let (fate, result) = loop {
        let round = Round { line, meta: &meta, cx: &cx, progress: &progress, left: &left };
        let request = other.clone().unwrap_or_else(|| call_request(params.clone()));
        let (fate, result) = round.ask(request, &mut reply, listener).await;
        let more = match (&result, &asked) {
            (Ok(result), Some(asked)) if other.is_none() => answers(result, listener, asked, params.clone()).await,
            _ => None,
        };
        match more {
            Some(next) => params = next,
            None => break (fate, result),
        }
    };
    let _ = reply.send(result);
    fate
}

/// The call with the responses to the requests in its result; `None` if there are none, or not all values are known.
async fn answers(
    result: &Json,
    listener: &McpClientHandler,
    asked: &CallInteraction,
    params: CallToolRequestParams,
) -> Option<CallToolRequestParams> {
    if result.get("resultType").and_then(Json::as_str) != Some("input_required") {
        return None;
    }
    let none = Map::new();
    let asks = result.get("inputRequests").and_then(Json::as_object).unwrap_or(&none);
    let responses = elicitation::responses(&listener.server, listener.allowed, asks, asked).await?;
    let mut next = params.with_input_responses(responses);
    next.request_state = result.get("requestState").and_then(Json::as_str).map(str::to_owned);
    Some(next)
}

/// One request of a call, which may need several.
struct Round<'a> {
    line: &'a SessionHandle,
    meta: &'a Map<String, Json>,
    cx: &'a CallContext,
    progress: &'a Option<Arc<dyn Fn(Progress) + Send + Sync>>,
    left: &'a AtomicBool,
}

impl Round<'_> {
    async fn ask(
        &self,
        request: ClientRequest,
        reply: &mut oneshot::Sender<Result<Json, CallError>>,
        listener: &McpClientHandler,
    ) -> (SessionHealth, Result<Json, CallError>) {
        let (line, cx) = (self.line, self.cx);
        let options = PeerRequestOptions::no_options().with_meta(RequestMetaObject(MetaObject(self.meta.clone())));
        self.left.store(true, Ordering::SeqCst);
        let mut handle = match line.call(request, options).await {
            Ok(handle) => handle,
            Err(unanswered) => {
                let end = CallError::of(unanswered);
                return (end.fate(), Err(end));
            }
        };
        let _watching =
            self.progress.clone().map(|report| listener.watchers.watch(handle.progress_token.clone(), report));
        let result = tokio::select! {
            biased;
            answer = &mut handle.rx => match answer {
                Ok(Ok(result)) => Ok(serde_json::to_value(result).unwrap_or_default()),
                Ok(Err(error)) => Err(CallError::of(RequestError::Failed(error))),
                Err(_) => Err(CallError::of(RequestError::Gone)),
            },
            () = line.gone.cancelled() => Err(CallError::of(RequestError::Gone)),
            () = failpoint::while_waiting("C13", limits::MCP_CANCEL) => Err(CallError::Late),
            () = reply.closed() => Err(CallError::Stopped),
            stopped = cx.wait(std::future::pending::<()>()) => match stopped {
                Err(WaitError::DeadlinePassed) | Ok(()) => Err(CallError::Late),
                Err(WaitError::Cancelled) => Err(CallError::Stopped),
            },
        };
        // The caller stopped waiting: its deadline passed, or it was cancelled.
        let late = matches!(result, Err(CallError::Stopped)) && cx.remaining().is_zero();
        let result = if late { Err(CallError::Late) } else { result };
        if let Err(CallError::Late | CallError::Stopped) = result {
            call_off(handle).await;
        }
        (result.as_ref().map_or_else(CallError::fate, |_| SessionHealth::Good), result)
    }
}

/// Sends a cancellation to the server. The MCP library forgets the id, so a late response is ignored.
async fn call_off(handle: RequestHandle<RoleClient>) {
    let _ = timeout(limits::MCP_CANCEL, handle.cancel(Some("nobody waits for the answer any more".to_owned()))).await;
}
