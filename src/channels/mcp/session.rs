//! One session of a host: what it asks for becomes a turn, and what it began it may look at.

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
    conversation::{ExternalTrigger, TriggerAction, UserMessage},
    ids::{ConversationId, FlowId, MessageId},
};
use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::{
    super::{Caller, inbox::strip_payload_slash},
    McpServerState, NAME,
    exchange::{self, Answers},
    http,
    offers::Offered,
    sink::ProgressSink,
    watch::Level,
    words::say,
};
use crate::{
    limits,
    runtime::{IncomingMessage, ReceiveError, TurnReport},
};

/// The key in `_meta` by which a repeated call is known; our own client sends it under the same name.
pub(super) const IDEMPOTENCY_KEY: &str = "segue/idempotencyKey";
/// What the id of every talk begins with, so that none of another channel can be meant.
pub(super) const PREFIX: &str = "mcp-";

/// One session.
pub(super) struct Session {
    pub(super) shared: Arc<McpServerState>,
    /// Tells this session, and its keys, from others.
    pub(super) scope: Uuid,
    /// From which level on it wishes to be told what happens.
    level: Mutex<Option<Level>>,
    /// The talks it began, the newest last.
    began: Mutex<VecDeque<ConversationId>>,
    /// Calls of this session.
    calls: Semaphore,
}

/// What a call wants.
pub(super) enum Wish {
    /// To say something.
    Say(String),
    /// To begin a flow with these values.
    Begin(FlowId, Map<String, Json>),
}

/// A call on its way.
pub(super) struct Call<'a> {
    /// The talk.
    pub(super) id: ConversationId,
    /// The tool, and what stands behind it.
    pub(super) tool: &'a str,
    pub(super) offered: &'a Offered,
    /// By which a repetition is known; empty when it is not.
    pub(super) key: String,
    pub(super) context: &'a RequestContext<RoleServer>,
}

impl Session {
    pub(super) fn new(shared: Arc<McpServerState>) -> Self {
        let calls = Semaphore::new(limits::MCP_SERVED_CALLS);
        Self { shared, scope: Uuid::new_v4(), level: Mutex::default(), began: Mutex::default(), calls }
    }

    /// From which level on it wishes to be told what happens.
    pub(super) fn level(&self) -> Option<Level> {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_level(&self, level: Level) {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner) = Some(level);
    }

    /// The talks that this session began, oldest first.
    pub(super) fn began(&self) -> Vec<ConversationId> {
        self.began.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// Calls a tool. An error of the protocol is for what breaks it; whatever else goes wrong, the model reads.
    pub(super) async fn call(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = &*request.name;
        let Some(offered) = self.shared.offers.get(tool) else {
            return Err(ErrorData::invalid_params(format!("there is no tool {tool:?}"), None));
        };
        let answers = Answers::new(request.input_responses)?;
        let waiting = exchange::waiting(request.request_state.as_deref(), tool)?;
        let (Ok(_mine), Ok(_all)) = (self.calls.try_acquire(), self.shared.calls.try_acquire()) else {
            return Ok(refusal(say("busy", &[])).into());
        };
        let done = match waiting {
            Some(waiting) => {
                let id = waiting.talk.clone();
                if !self.is_there(&id).await {
                    return Err(ErrorData::invalid_params("the talk of this requestState is not there any more", None));
                }
                let key = waiting.written(tool);
                self.resume(&Call { id, tool, offered, key, context }, &waiting, answers).await
            }
            None => match self.wish(offered, request.arguments.unwrap_or_default(), context).await {
                Ok((id, key, wish)) => self.perform(&Call { id, tool, offered, key, context }, wish, answers).await,
                Err(problem) => return Ok(refusal(problem).into()),
            },
        };
        Ok(done.unwrap_or_else(|error| {
            tracing::error!(channel = NAME, code = error.code(), "{error}");
            let reason = match error {
                ReceiveError::Busy(why) => format!("the talk is busy: {why}"),
                ReceiveError::Overloaded(overload) => overload.to_string(),
                _ => "something went wrong on our side".to_owned(),
            };
            refusal(say("no_turn", &[("reason", &reason)])).into()
        }))
    }

    /// What the arguments of a call wish for, in which talk, under which key; or what is wrong with them.
    async fn wish(
        &self,
        offered: &Offered,
        arguments: JsonObject,
        context: &RequestContext<RoleServer>,
    ) -> Result<(ConversationId, String, Wish), String> {
        let arguments = Json::Object(arguments);
        let problems = offered.problems(&arguments);
        let Json::Object(mut arguments) = arguments else { return Err(String::new()) };
        if !problems.is_empty() {
            return Err(say("wrong_arguments", &[("problems", &problems.join(" "))]));
        }
        let given = arguments.shift_remove(&offered.conversation);
        let key = context.meta.get(IDEMPOTENCY_KEY).and_then(Json::as_str).unwrap_or_default().to_owned();
        let id = self.talk(given.as_ref().and_then(Json::as_str), &key, context).await?;
        let wish = match &offered.flow {
            Some(flow) => Wish::Begin(flow.clone(), arguments),
            None => {
                let text = arguments.get("message").and_then(Json::as_str).unwrap_or_default();
                Wish::Say(
                    if self.shared.settings.refuses_payloads { strip_payload_slash(text) } else { text }.to_owned(),
                )
            }
        };
        Ok((id, key, wish))
    }

    /// Whether a talk of this channel is stored under an id.
    async fn is_there(&self, id: &ConversationId) -> bool {
        id.as_str().starts_with(PREFIX)
            && self.shared.assistant.conversation(id).await.is_ok_and(|talk| talk.events > 0)
    }

    /// The talk that is meant: an earlier one of this channel, or a new one.
    async fn talk(
        &self,
        given: Option<&str>,
        key: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<ConversationId, String> {
        if key.len() > limits::WIRE_ID {
            let problem = format!("`_meta.{IDEMPOTENCY_KEY}` is longer than {} bytes", limits::WIRE_ID);
            return Err(say("wrong_arguments", &[("problems", &problem)]));
        }
        if let Some(given) = given.filter(|given| !given.is_empty()) {
            let id = ConversationId::from(given);
            return if self.is_there(&id).await { Ok(id) } else { Err(say("no_conversation", &[("id", given)])) };
        }
        let id = match (key, alone(context)) {
            ("", _) => Uuid::new_v4().simple().to_string(),
            // Where nothing tells two callers apart but the key, it must be one that nobody guesses or happens to use.
            (key, Some(_)) if key.len() < limits::MCP_SERVED_KEY => {
                return Err(say("short_key", &[("least", &limits::MCP_SERVED_KEY.to_string())]));
            }
            (key, Some(mark)) => digest(&format!("{mark}\n{key}")),
            (key, None) => digest(&format!("{}\n{key}", self.scope)),
        };
        let id = ConversationId::from(format!("{PREFIX}{id}"));
        let mut began = self.began.lock().unwrap_or_else(PoisonError::into_inner);
        if !began.contains(&id) {
            if began.len() >= limits::MCP_SERVED_CONVERSATIONS {
                began.pop_front();
            }
            began.push_back(id.clone());
        }
        Ok(id)
    }

    /// One turn. Rounds of one call have keys of their own.
    /// What is said in a `silent` one is no progress.
    pub(super) async fn turn(
        &self,
        call: &Call<'_>,
        wish: Wish,
        round: usize,
        silent: bool,
    ) -> Result<TurnReport, ReceiveError> {
        let key = match (call.key.as_str(), round) {
            ("", _) => String::new(),
            (key, 0) => key.to_owned(),
            (key, round) => format!("{key}/{round}"),
        };
        let sink = Box::new(ProgressSink::new(call.context, silent));
        let assistant = &self.shared.assistant;
        let report = match wish {
            Wish::Say(text) => {
                let message = UserMessage {
                    text: text.trim().into(),
                    message_id: MessageId::from(key),
                    input_channel: NAME.into(),
                    metadata: Map::new(),
                };
                let (tenant, account) = ("".into(), "".into());
                let incoming = IncomingMessage { conversation: call.id.clone(), message, tenant, account };
                assistant.receive_for(caller(call.context), incoming, sink).await
            }
            Wish::Begin(flow, values) => {
                let trigger = ExternalTrigger { action: TriggerAction::StartIfAllowed(flow), values, reminder: None };
                assistant.trigger(call.id.clone(), trigger, MessageId::from(key), sink).await
            }
        };
        self.tell(&call.id, call.context).await;
        report
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.watchers.forget(self.scope, None);
    }
}

/// The mark of the caller of a request, where callers can be told apart.
fn caller(context: &RequestContext<RoleServer>) -> Option<&str> {
    let head = context.extensions.get::<axum::http::request::Parts>()?;
    head.extensions.get::<Caller>().and_then(|caller| caller.id.as_deref())
}

/// The mark of the caller of a request that belongs to no session, empty where callers cannot be told apart: nothing but the
/// request itself says who calls.
fn alone(context: &RequestContext<RoleServer>) -> Option<&str> {
    let head = context.extensions.get::<axum::http::request::Parts>()?;
    http::session(&head.headers).is_none().then(|| caller(context).unwrap_or_default())
}

/// Whether the host speaks a revision that asks a person in another way than we do.
pub(super) fn is_newer(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

/// A short digest.
pub(super) fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// An answer that says what was wrong.
pub(super) fn refusal(problem: String) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(problem)])
}
