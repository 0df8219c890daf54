//! Hook servers: hooks over HTTP, one POST for each call of a hook, JSON in both directions (docs/how-to/hooks-in-python.md).
//!
//! [`HookServer::describe`] reads which hooks the server has, [`HookServer::hooks`] returns them. Only listed hooks are called, so that
//! prompts, messages and tools are sent only to a server that lists the hook for them. Of the metadata only the keys of
//! `forward_metadata` are sent.

use std::sync::Arc;

use async_trait::async_trait;
use segue_base::json::from_slice_lossy;
use segue_engine::project::{AgentDef, SlotDef};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value as Json, json};

use super::{
    AgentHooks, AgentInput, AgentOutput, HookContext, HookError, HookEvent, HookResult, OutputChange, ToolBatch,
    json_types,
};
use crate::{
    agents,
    clock::Clock,
    context::{CallContext, WaitError},
    effect::Arrival,
    http::{BodyError, HttpClients, parse_endpoint_url, read_limited},
    limits, llm,
    outbound_auth::OutboundCredentials,
    secret::Secret,
    tools::{
        EffectClass, FailureKind, Tool, ToolCallContext, ToolFailure, ToolHandler, ToolInfo, ToolOutcome, ToolOutput,
    },
};

/// The version of the protocol.
const VERSION: u32 = 1;

/// A server with hooks.
pub struct HookServer {
    url: reqwest::Url,
    http: HttpClients,
    credentials: Result<OutboundCredentials, String>,
    forwarded_metadata: Vec<Arc<str>>,
    agent: Arc<str>,
}

/// The answer of a hook server to `describe`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HookServerInfo {
    /// The names of its hooks.
    #[serde(default)]
    pub hooks: Vec<Arc<str>>,
    /// Its tools.
    #[serde(default)]
    pub tools: Vec<HookServerTool>,
    /// A description for the tool `task_completed` that replaces the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_completed: Option<Arc<str>>,
    /// An instruction for the closing message that replaces the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty_closing_message: Option<Arc<str>>,
}

/// A tool of a hook server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HookServerTool {
    /// Its name.
    pub name: Arc<str>,
    /// What it does.
    pub description: Arc<str>,
    /// JSON Schema of its arguments.
    #[serde(default)]
    pub parameters: Json,
    /// Its effect class; `write` if absent.
    #[serde(default = "write")]
    pub effect: EffectClass,
}

fn write() -> EffectClass {
    EffectClass::Write
}

/// The response of a hook: its value, and texts for the user.
#[derive(Deserialize)]
struct HookResponse<T> {
    #[serde(flatten)]
    value: T,
    #[serde(default)]
    say: Vec<Arc<str>>,
}

/// The response to `process_input`: only what changes.
#[derive(Default, Deserialize)]
#[serde(default)]
struct InputChange {
    user_message: Option<Arc<str>>,
    slots: Option<Map<String, Json>>,
    metadata: Map<String, Json>,
}

/// The responses to `prompt`, `messages`, `tools` and `slot_tool`: an absent value changes nothing.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PromptChange {
    prompt: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MessagesChange {
    messages: Option<Vec<json_types::Message>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolsChange {
    tools: Option<Vec<json_types::Tool>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolChange {
    tool: Option<json_types::Tool>,
}

/// The response to `before_run` and `after_run`.
#[derive(Default, Deserialize)]
struct EmptyResponse {}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EventsResponse {
    events: Vec<HookEvent>,
}

/// The response of a tool.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolResponse {
    result: Option<Json>,
    error: Option<String>,
    fatal: bool,
}

impl HookServer {
    /// The hook server at `url` for an agent.
    ///
    /// # Errors
    /// [`HookError`] if the URL is invalid or not allowed.
    pub fn new(url: &str, definition: &AgentDef, http: HttpClients, clock: &Arc<dyn Clock>) -> Result<Self, HookError> {
        let url = parse_endpoint_url(url).map_err(HookError)?;
        let auth = if definition.remote.is_some() { &definition.hook_auth } else { &definition.auth };
        let credentials = agents::credentials(auth, clock, &http);
        Ok(Self {
            url,
            http,
            credentials,
            forwarded_metadata: definition.rules.forward_metadata.clone(),
            agent: definition.name.as_str().into(),
        })
    }

    /// Calls `describe`.
    ///
    /// # Errors
    /// [`HookError`] if the response does not follow the protocol.
    pub async fn describe(&self, cx: &CallContext) -> Result<HookServerInfo, HookError> {
        let mut info: HookServerInfo = self.request("describe", json!({}), cx.key.as_str(), cx).await?;
        if info.tools.len() > limits::HOOK_TOOLS {
            return Err(HookError(format!("describe: more than {} tools", limits::HOOK_TOOLS)));
        }
        for tool in &mut info.tools {
            tool.parameters = crate::tools::schema::with_object_type(std::mem::take(&mut tool.parameters));
        }
        Ok(info)
    }

    /// Its hooks.
    pub fn hooks(self: &Arc<Self>, info: HookServerInfo) -> HttpHooks {
        HttpHooks { server: self.clone(), info }
    }

    /// The part of the metadata that may be sent.
    fn allowed(&self, metadata: &Map<String, Json>) -> Map<String, Json> {
        let keys =
            self.forwarded_metadata.iter().filter_map(|key| Some((key.to_string(), metadata.get(&**key)?.clone())));
        keys.collect()
    }

    async fn request<T: DeserializeOwned>(
        &self,
        hook: &str,
        payload: Json,
        id: &str,
        cx: &CallContext,
    ) -> Result<T, HookError> {
        let cx = cx.with_timeout(limits::HOOK_DEADLINE);
        let bytes = match cx.wait(self.post(hook, payload, id)).await {
            Ok(response) => response.map_err(|error| HookError(format!("{hook}: {}", error.reason)))?,
            Err(stopped) => return Err(HookError(format!("{hook}: {stopped}"))),
        };
        from_slice_lossy(&bytes).map(|(answer, _)| answer).map_err(|error| {
            HookError(format!(
                "{hook}: its response does not follow the protocol (docs/how-to/hooks-in-python.md): {error}"
            ))
        })
    }

    /// Sends one request; returns the body of a response with status 200. The text of an error never contains the URL.
    async fn post(&self, hook: &str, payload: Json, id: &str) -> Result<Vec<u8>, PostError> {
        let mut body = json!({"version": VERSION, "hook": hook, "id": id, "agent": &*self.agent});
        if let (Some(body), Json::Object(payload)) = (body.as_object_mut(), payload) {
            body.extend(payload);
        }
        let client = self.http.client().map_err(|error| PostError::before(error.to_string()))?;
        let body = body.to_string();
        let send_error = |error: reqwest::Error| match Arrival::from_http_error(&error) {
            Arrival::Impossible => PostError::before("the hook server cannot be reached"),
            Arrival::Possible => PostError::after("the connection was lost"),
        };
        let credentials = self.credentials.as_ref().map_err(|why| PostError::before(why.clone()))?;
        let mut refused: Option<Secret> = None;
        let response = loop {
            let header = credentials.header(refused.as_ref()).await;
            let header = header.map_err(|why| PostError::before(why.to_string()))?;
            let mut request = client.post(self.url.clone()).body(body.clone());
            request = request.header("content-type", "application/json").header("idempotency-key", id);
            if let Some((name, value)) = &header {
                request = request.header(name, value.expose());
            }
            let response = request.send().await.map_err(send_error)?;
            // A rejected token is renewed once; the server did nothing with the rejected request.
            match header {
                Some((_, value))
                    if matches!(response.status().as_u16(), 401 | 403)
                        && refused.is_none()
                        && credentials.may_change() =>
                {
                    refused = Some(value);
                }
                _ => break response,
            }
        };
        if response.status().as_u16() != 200 {
            return Err(PostError::after(format!("it responded with status {}", response.status().as_u16())));
        }
        read_limited(response, limits::HOOK_ANSWER).await.map_err(|error| match error {
            BodyError::TooLong { limit } => PostError::after(format!("its response is larger than {limit} bytes")),
            BodyError::Broken(_) => PostError::after("the connection was lost"),
        })
    }
}

/// Why a hook server gave no usable response.
struct PostError {
    reason: String,
    arrival: Arrival,
}

impl PostError {
    /// An error before the request was sent.
    fn before(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), arrival: Arrival::Impossible }
    }
    /// An error after the request may have arrived.
    fn after(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), arrival: Arrival::Possible }
    }
}

/// The hooks of a hook server.
pub struct HttpHooks {
    server: Arc<HookServer>,
    info: HookServerInfo,
}

impl HttpHooks {
    fn has(&self, hook: &str) -> bool {
        self.info.hooks.iter().any(|known| **known == *hook)
    }

    /// The input with the metadata that may be sent.
    fn outgoing(&self, input: &AgentInput) -> AgentInput {
        AgentInput { metadata: self.server.allowed(&input.metadata), ..input.clone() }
    }

    async fn call_hook<T: DeserializeOwned + Default>(
        &self,
        hook: &str,
        payload: impl FnOnce() -> Json,
        cx: &HookContext,
    ) -> Result<T, HookError> {
        if !self.has(hook) {
            return Ok(T::default());
        }
        let mut payload = payload();
        if let Some(payload) = payload.as_object_mut() {
            payload.insert("channel".to_owned(), Json::from(&*cx.channel));
        }
        let response: HookResponse<T> = self.server.request(hook, payload, &cx.id, &cx.cx).await?;
        response.say.into_iter().for_each(|text| cx.say(text));
        Ok(response.value)
    }
}

#[async_trait]
impl AgentHooks for HttpHooks {
    async fn before_run(&self, cx: &HookContext) -> HookResult {
        self.call_hook::<EmptyResponse>("before_run", || json!({}), cx).await.map(|_| ())
    }
    async fn after_run(&self, cx: &HookContext) -> HookResult {
        self.call_hook::<EmptyResponse>("after_run", || json!({}), cx).await.map(|_| ())
    }
    async fn process_input(&self, input: &mut AgentInput, cx: &HookContext) -> HookResult {
        let sent = || json!({ "input": self.outgoing(input) });
        let change: InputChange = self.call_hook("process_input", sent, cx).await?;
        if let Some(message) = change.user_message {
            input.user_message = message;
        }
        if let Some(slots) = change.slots {
            input.slots = slots;
        }
        input.metadata.extend(change.metadata);
        Ok(())
    }
    async fn process_tool_output(&self, batch: &ToolBatch, cx: &HookContext) -> Result<Vec<HookEvent>, HookError> {
        let answer: EventsResponse = self.call_hook("process_tool_output", || json!({ "batch": batch }), cx).await?;
        Ok(answer.events)
    }
    async fn process_output(&self, output: &AgentOutput, cx: &HookContext) -> Result<OutputChange, HookError> {
        self.call_hook("process_output", || outgoing(output, &self.server), cx).await
    }
    async fn process_agent_output(&self, output: &AgentOutput, cx: &HookContext) -> Result<OutputChange, HookError> {
        self.call_hook("process_agent_output", || outgoing(output, &self.server), cx).await
    }
    fn custom_tools(&self) -> Vec<Tool> {
        let tool = |tool: &HookServerTool| {
            let info = ToolInfo::new(tool.name.clone(), tool.description.clone());
            let spec = info.parameters(tool.parameters.clone()).effect(tool.effect);
            Tool::from_handler(HookTool { server: self.server.clone(), spec })
        };
        self.info.tools.iter().map(tool).collect()
    }
    fn task_completed_tool(&self, default: llm::ToolSpec) -> llm::ToolSpec {
        match &self.info.task_completed {
            Some(description) => llm::ToolSpec { description: description.clone(), ..default },
            None => default,
        }
    }
    fn empty_closing_message(&self, default: String) -> String {
        self.info.empty_closing_message.as_deref().map_or(default, str::to_owned)
    }
    async fn slot_tool(
        &self,
        slot: &SlotDef,
        default: &llm::ToolSpec,
        cx: &HookContext,
    ) -> Result<Option<llm::ToolSpec>, HookError> {
        let sent = || json!({ "slot": json_types::slot(slot), "tool": json_types::tool(default) });
        let change: ToolChange = self.call_hook("slot_tool", sent, cx).await?;
        Ok(change.tool.map(|tool| tool.apply_to(default)))
    }
    async fn tools(
        &self,
        default: &[llm::ToolSpec],
        input: &AgentInput,
        cx: &HookContext,
    ) -> Result<Option<Vec<llm::ToolSpec>>, HookError> {
        let tools = || default.iter().map(json_types::tool).collect::<Json>();
        let sent = || json!({ "input": self.outgoing(input), "tools": tools() });
        let change: ToolsChange = self.call_hook("tools", sent, cx).await?;
        let known = |tool: json_types::Tool| {
            let default = default.iter().find(|default| default.name == tool.name)?;
            Some(tool.apply_to(default))
        };
        Ok(change.tools.map(|tools| tools.into_iter().filter_map(known).collect()))
    }
    async fn messages(
        &self,
        default: &[Arc<llm::ChatMessage>],
        input: &AgentInput,
        cx: &HookContext,
    ) -> Result<Option<Vec<Arc<llm::ChatMessage>>>, HookError> {
        let messages = || default.iter().map(|message| json_types::message(message)).collect::<Json>();
        let sent = || json!({ "input": self.outgoing(input), "messages": messages() });
        let change: MessagesChange = self.call_hook("messages", sent, cx).await?;
        let changed = change.messages.map(|messages| json_types::messages(messages, default)).transpose();
        changed.map_err(|reason| HookError(format!("messages: {reason}")))
    }
    async fn prompt(&self, default: &str, input: &AgentInput, cx: &HookContext) -> Result<Option<String>, HookError> {
        let sent = || json!({ "input": self.outgoing(input), "prompt": default });
        let change: PromptChange = self.call_hook("prompt", sent, cx).await?;
        Ok(change.prompt)
    }
}

fn outgoing(output: &AgentOutput, server: &HookServer) -> Json {
    let output = AgentOutput { metadata: server.allowed(&output.metadata), ..output.clone() };
    json!({ "output": output })
}

/// A tool of a hook server.
struct HookTool {
    server: Arc<HookServer>,
    spec: ToolInfo,
}

#[async_trait]
impl ToolHandler for HookTool {
    fn info(&self) -> &ToolInfo {
        &self.spec
    }
    async fn call(&self, arguments: Json, cx: &ToolCallContext) -> ToolOutcome {
        let payload = json!({
            "tool": &*self.spec.name,
            "arguments": arguments,
            "conversation": &*cx.caller.conversation,
            "metadata": self.server.allowed(&cx.metadata),
        });
        let effect = cx.effect(&self.spec);
        // The caller has set the deadline of the tool.
        let sent = self.server.post("tool", payload, &cx.idempotency_key);
        let (error, kind) = match cx.cx.wait(sent).await {
            Ok(Ok(bytes)) => return answer(&bytes, effect),
            Ok(Err(error)) => (error, FailureKind::Unavailable),
            Err(WaitError::DeadlinePassed) => (PostError::after("it did not respond in time"), FailureKind::Timeout),
            Err(WaitError::Cancelled) => (PostError::after("the call was cancelled"), FailureKind::Cancelled),
        };
        ToolOutcome::without_response(effect, error.arrival, kind, error.reason)
    }
}

fn answer(bytes: &[u8], effect: EffectClass) -> ToolOutcome {
    let Ok((answer, _)) = from_slice_lossy::<ToolResponse>(bytes) else {
        return ToolOutcome::unusable(
            effect,
            "the tool returned no JSON that follows the protocol (docs/how-to/hooks-in-python.md)",
        );
    };
    match (answer.error, answer.result) {
        (Some(message), _) => {
            let mut failure = ToolFailure::new(FailureKind::ToolError, message);
            failure.fatal = answer.fatal;
            ToolOutcome::Failed(failure)
        }
        (None, Some(Json::String(text))) => ToolOutcome::Done(ToolOutput::text(text)),
        (None, Some(result)) => ToolOutcome::Done(ToolOutput::structured(result)),
        (None, None) => ToolOutcome::unusable(effect, "the tool returned neither `result` nor `error`"),
    }
}

#[cfg(test)]
mod tests;
