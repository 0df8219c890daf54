//! One session of an MCP host: its tool calls become turns, and it may read the transcripts of the conversations that it started.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use rmcp::{
    ErrorData, RoleServer,
    model::{CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject, ProtocolVersion},
    service::RequestContext,
};
use segue_engine::{
    conversation::{ExternalTrigger, TriggerAction},
    ids::{ConversationId, FlowId, MessageId},
};
use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::{
    super::{Caller, inbox::strip_payload_slash},
    McpServerState, NAME, http,
    notifications::LogLevel,
    served_tools::ServedTool,
    sink::ProgressSink,
    texts::text,
    tool_call::{self, FormAnswers},
};
use crate::{
    limits,
    runtime::{IncomingMessage, ReceiveError, TurnReport},
};

/// The key in `_meta` of a tool call that identifies a repeated call. Segue's MCP client sends the same key.
pub(super) const IDEMPOTENCY_KEY: &str = "segue/idempotencyKey";
/// The prefix of the ids of all conversations of this channel: a call cannot name a conversation of another channel.
pub(super) const CONVERSATION_PREFIX: &str = "mcp-";

/// One session. In MCP 2026-07-28, which has no sessions, one request over HTTP.
pub(super) struct Session {
    pub(super) shared: Arc<McpServerState>,
    /// Separates the idempotency keys and subscriptions of this session from those of others.
    pub(super) id: Uuid,
    /// The lowest level of log messages that the host wants; `None` before it sets one.
    log_level: Mutex<Option<LogLevel>>,
    /// The conversations that this session started, the newest last.
    own_conversations: Mutex<VecDeque<ConversationId>>,
    /// Permits for the active calls of this session.
    calls: Semaphore,
}

/// What a tool call asks for.
pub(super) enum ToolRequest {
    /// A message of the user.
    SendMessage(String),
    /// The start of a flow with these slot values.
    StartFlow(FlowId, Map<String, Json>),
}

/// A tool call whose arguments are valid.
pub(super) struct IncomingToolCall<'a> {
    pub(super) conversation: ConversationId,
    pub(super) tool_name: &'a str,
    pub(super) tool: &'a ServedTool,
    /// The deduplication key; empty when the call has none.
    pub(super) key: String,
    pub(super) context: &'a RequestContext<RoleServer>,
}

impl Session {
    pub(super) fn new(shared: Arc<McpServerState>) -> Self {
        let calls = Semaphore::new(limits::MCP_SERVED_CALLS);
        Self { shared, id: Uuid::new_v4(), log_level: Mutex::default(), own_conversations: Mutex::default(), calls }
    }

    /// The lowest level of log messages that the host wants; `None` before it sets one.
    pub(super) fn log_level(&self) -> Option<LogLevel> {
        *self.log_level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_log_level(&self, level: LogLevel) {
        *self.log_level.lock().unwrap_or_else(PoisonError::into_inner) = Some(level);
    }

    /// The conversations that this session started, oldest first; at most [`limits::MCP_SERVED_CONVERSATIONS`].
    pub(super) fn own_conversations(&self) -> Vec<ConversationId> {
        self.own_conversations.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// Runs a tool call. A request that violates the protocol is a protocol error; every other failure is a tool result with
    /// `isError`, which the host's model reads.
    pub(super) async fn call(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool_name = &*request.name;
        let Some(tool) = self.shared.tools.get(tool_name) else {
            return Err(ErrorData::invalid_params(format!("there is no tool {tool_name:?}"), None));
        };
        let answers = FormAnswers::new(request.input_responses)?;
        let state = tool_call::request_state(request.request_state.as_deref(), tool_name)?;
        let (Ok(_session_permit), Ok(_server_permit)) = (self.calls.try_acquire(), self.shared.calls.try_acquire())
        else {
            return Ok(error_result(text("busy", &[])).into());
        };
        let (conversation, result) = match state {
            Some(state) => {
                let conversation = state.conversation.clone();
                if !self.exists(&conversation, context).await {
                    let problem = "the conversation of this requestState does not exist any more";
                    return Err(ErrorData::invalid_params(problem, None));
                }
                let key = state.encode(tool_name);
                let call = IncomingToolCall { conversation, tool_name, tool, key, context };
                let result = self.resume(&call, &state, answers).await;
                (call.conversation, result)
            }
            None => match self.parse_request(tool, request.arguments.unwrap_or_default(), context).await {
                Ok((conversation, key, request)) => {
                    let call = IncomingToolCall { conversation, tool_name, tool, key, context };
                    let result = self.start(&call, request, answers).await;
                    (call.conversation, result)
                }
                Err(problem) => return Ok(error_result(problem).into()),
            },
        };
        Ok(result.unwrap_or_else(|error| {
            tracing::error!(channel = NAME, code = error.code(), "{error}");
            let reason = match error {
                ReceiveError::Busy(reason) => format!("the conversation is busy: {reason}"),
                ReceiveError::Overloaded(overload) => overload.to_string(),
                _ => "an internal error occurred".to_owned(),
            };
            let key = if error.retry_after().is_some() { "no_turn" } else { "no_answer" };
            error_result(text(key, &[("reason", &reason), ("id", conversation.as_str())])).into()
        }))
    }

    /// The conversation, the deduplication key and the request of a call.
    ///
    /// # Errors
    /// What is wrong with the arguments, as a text for the model.
    async fn parse_request(
        &self,
        tool: &ServedTool,
        arguments: JsonObject,
        context: &RequestContext<RoleServer>,
    ) -> Result<(ConversationId, String, ToolRequest), String> {
        let arguments = Json::Object(arguments);
        let problems = tool.problems(&arguments);
        let Json::Object(mut arguments) = arguments else { return Err(String::new()) };
        if !problems.is_empty() {
            return Err(text("wrong_arguments", &[("problems", &problems.join(" "))]));
        }
        let named = arguments.shift_remove(&tool.conversation_argument);
        let key = context.meta.get(IDEMPOTENCY_KEY).and_then(Json::as_str).unwrap_or_default().to_owned();
        let conversation = self.conversation_for(named.as_ref().and_then(Json::as_str), &key, context).await?;
        let request = match &tool.flow {
            Some(flow) => ToolRequest::StartFlow(flow.clone(), arguments),
            None => {
                let message = arguments.get("message").and_then(Json::as_str).unwrap_or_default();
                let message =
                    if self.shared.settings.refuses_payloads { strip_payload_slash(message) } else { message };
                ToolRequest::SendMessage(message.to_owned())
            }
        };
        Ok((conversation, key, request))
    }

    /// Whether the store has a conversation of this channel and of the caller with this id.
    async fn exists(&self, id: &ConversationId, context: &RequestContext<RoleServer>) -> bool {
        is_of_caller(id.as_str(), context)
            && self.shared.assistant.conversation(id).await.is_ok_and(|conversation| conversation.events > 0)
    }

    /// The conversation that a call names, or a new one. A repeated call that names none gets the conversation of the first, by its
    /// idempotency key: the id of the new conversation is computed from it.
    ///
    /// # Errors
    /// The named conversation does not exist, or the key is too short or too long; as a text for the model.
    async fn conversation_for(
        &self,
        named: Option<&str>,
        key: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<ConversationId, String> {
        if key.len() > limits::WIRE_ID {
            let problem = format!("`_meta.{IDEMPOTENCY_KEY}` is longer than {} bytes", limits::WIRE_ID);
            return Err(text("wrong_arguments", &[("problems", &problem)]));
        }
        if let Some(named) = named.filter(|named| !named.is_empty()) {
            let id = ConversationId::from(named);
            return if self.exists(&id, context).await {
                Ok(id)
            } else {
                Err(text("no_conversation", &[("id", named)]))
            };
        }
        let id = match (key, sessionless_caller(context)) {
            ("", _) => Uuid::new_v4().simple().to_string(),
            // Without a session, and where callers have no identity, the key alone separates two callers: it must not be guessable, nor
            // be used by two of them by chance.
            (key, Some(_)) if key.len() < limits::MCP_SERVED_KEY => {
                return Err(text("short_key", &[("least", &limits::MCP_SERVED_KEY.to_string())]));
            }
            (key, Some(caller)) => digest(&format!("{caller}\n{key}")),
            (key, None) => digest(&format!("{}\n{key}", self.id)),
        };
        let id = ConversationId::from(format!("{}{id}", own_prefix(context)));
        let mut own = self.own_conversations.lock().unwrap_or_else(PoisonError::into_inner);
        if !own.contains(&id) {
            if own.len() >= limits::MCP_SERVED_CONVERSATIONS {
                own.pop_front();
            }
            own.push_back(id.clone());
        }
        Ok(id)
    }

    /// Runs one turn of a call, then notifies subscribers. `round` numbers the turns of the call from 0: each has a deduplication key of
    /// its own. The replies of a silent turn are not sent as progress.
    pub(super) async fn run_turn(
        &self,
        call: &IncomingToolCall<'_>,
        request: ToolRequest,
        round: usize,
        is_silent: bool,
    ) -> Result<TurnReport, ReceiveError> {
        let key = match (call.key.as_str(), round) {
            ("", _) => String::new(),
            (key, 0) => key.to_owned(),
            (key, round) => format!("{key}/{round}"),
        };
        let sink = Box::new(ProgressSink::new(call.context, is_silent));
        let assistant = &self.shared.assistant;
        let report = match request {
            ToolRequest::SendMessage(message) => {
                let incoming = IncomingMessage::new(call.conversation.clone(), message).input_channel(NAME);
                assistant.receive_for(caller_id(call.context), incoming.message_id(key), sink).await
            }
            ToolRequest::StartFlow(flow, values) => {
                let trigger = ExternalTrigger { action: TriggerAction::StartIfAllowed(flow), values, reminder: None };
                assistant.trigger(call.conversation.clone(), trigger, MessageId::from(key), sink).await
            }
        };
        self.notify_after_turn(&call.conversation, call.context).await;
        report
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.subscriptions.remove(self.id, None);
    }
}

/// The identity of the caller of a request, where its credentials contain one.
fn caller_id(context: &RequestContext<RoleServer>) -> Option<&str> {
    let head = context.extensions.get::<axum::http::request::Parts>()?;
    head.extensions.get::<Caller>().and_then(|caller| caller.id.as_deref())
}

/// The prefix of the ids of this caller's conversations. Callers with an identity have conversations of their own: a conversation whose id
/// another caller has found out does not exist for it.
fn own_prefix(context: &RequestContext<RoleServer>) -> String {
    match caller_id(context) {
        Some(caller) => format!("{CONVERSATION_PREFIX}{}-", digest(caller)),
        None => CONVERSATION_PREFIX.to_owned(),
    }
}

/// Whether a conversation of this id belongs to the caller. What follows the prefix has no `-`.
fn is_of_caller(id: &str, context: &RequestContext<RoleServer>) -> bool {
    id.strip_prefix(&own_prefix(context)).is_some_and(|rest| !rest.contains('-'))
}

/// The identity of the caller of an HTTP request that names no session; empty where callers have no identity. `None` for a request
/// of a session, and on stdio.
fn sessionless_caller(context: &RequestContext<RoleServer>) -> Option<&str> {
    let head = context.extensions.get::<axum::http::request::Parts>()?;
    http::session_id(&head.headers).is_none().then(|| caller_id(context).unwrap_or_default())
}

/// Whether the host speaks MCP 2026-07-28 or newer: no sessions, and elicitation by `requestState` between two calls.
pub(super) fn is_sessionless_revision(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

/// The first 16 bytes of the SHA-256 digest, in hexadecimal.
pub(super) fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// A tool result with `isError`, whose text says what was wrong.
pub(super) fn error_result(problem: String) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(problem)])
}
