//! Hooks behind an address: one POST for each call of a hook, JSON both ways (docs/how-to/hooks-in-python.md).
//!
//! Entry: [`HookServer::describe`], then [`HookServer::hooks`]. What the server did not list is never asked. Metadata leaves
//! by the author's list alone (`forward_metadata`); prompts, messages and tools leave only for the hooks that the server lists.

use std::sync::Arc;

use async_trait::async_trait;
use segue_engine::project::{AgentDef, SlotDef};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value as Json, json};

use super::{
    AgentHooks, AgentInput, AgentOutput, HookContext, HookError, HookEvent, HookResult, OutputChange, ToolBatch, wire,
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

/// The version of the contract.
const VERSION: u32 = 1;

/// A server with hooks.
pub struct HookServer {
    url: reqwest::Url,
    http: HttpClients,
    credentials: Result<OutboundCredentials, String>,
    forward: Vec<Arc<str>>,
    agent: Arc<str>,
}

/// What a server says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The hooks it wants to be asked.
    #[serde(default)]
    pub hooks: Vec<Arc<str>>,
    /// The tools it adds.
    #[serde(default)]
    pub tools: Vec<DescribedTool>,
    /// The description of `task_completed`, if it has an own one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_completed: Option<Arc<str>>,
    /// What the model is told when it finished without a word, if it has an own text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty_closing_message: Option<Arc<str>>,
}

/// A tool of a hook server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DescribedTool {
    /// Its name.
    pub name: Arc<str>,
    /// What it does.
    pub description: Arc<str>,
    /// JSON Schema of its arguments.
    #[serde(default)]
    pub parameters: Json,
    /// What may be repeated; a write unless it says otherwise.
    #[serde(default = "write")]
    pub effect: EffectClass,
}

fn write() -> EffectClass {
    EffectClass::Write
}

/// An answer to a hook: what it gives, and what the user is told meanwhile.
#[derive(Deserialize)]
struct Answered<T> {
    #[serde(flatten)]
    given: T,
    #[serde(default)]
    say: Vec<Arc<str>>,
}

/// The answer to `process_input`: only what changes.
#[derive(Default, Deserialize)]
#[serde(default)]
struct InputChange {
    user_message: Option<Arc<str>>,
    slots: Option<Map<String, Json>>,
    metadata: Map<String, Json>,
}

/// The answers to `prompt`, `messages`, `tools` and `slot_tool`: absent, nothing changes.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PromptChange {
    prompt: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MessagesChange {
    messages: Option<Vec<wire::Message>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolsChange {
    tools: Option<Vec<wire::Tool>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolChange {
    tool: Option<wire::Tool>,
}

/// The answer to `before_run` and `after_run`.
#[derive(Default, Deserialize)]
struct Nothing {}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Events {
    events: Vec<HookEvent>,
}

/// The answer to a tool.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolAnswer {
    result: Option<Json>,
    error: Option<String>,
    fatal: bool,
}

impl HookServer {
    /// The server at `url` for an agent.
    ///
    /// # Errors
    /// [`HookError`] when the address is none that may be asked.
    pub fn new(url: &str, definition: &AgentDef, http: HttpClients, clock: &Arc<dyn Clock>) -> Result<Self, HookError> {
        let url = parse_endpoint_url(url).map_err(HookError)?;
        let auth = if definition.remote.is_some() { &definition.hook_auth } else { &definition.auth };
        let credentials = agents::credentials(auth, clock, &http);
        Ok(Self {
            url,
            http,
            credentials,
            forward: definition.rules.forward_metadata.clone(),
            agent: definition.name.as_str().into(),
        })
    }

    /// Asks the server what it has.
    ///
    /// # Errors
    /// [`HookError`] when it does not answer as the contract says.
    pub async fn describe(&self, cx: &CallContext) -> Result<Description, HookError> {
        let mut description: Description = self.ask("describe", json!({}), cx.key.as_str(), cx).await?;
        if description.tools.len() > limits::HOOK_TOOLS {
            return Err(HookError(format!("describe: more than {} tools", limits::HOOK_TOOLS)));
        }
        for tool in &mut description.tools {
            tool.parameters = crate::tools::schema::completed(std::mem::take(&mut tool.parameters));
        }
        Ok(description)
    }

    /// Its hooks.
    pub fn hooks(self: &Arc<Self>, description: Description) -> HttpHooks {
        HttpHooks { server: self.clone(), description }
    }

    /// The part of the metadata that may leave.
    fn allowed(&self, metadata: &Map<String, Json>) -> Map<String, Json> {
        let keys = self.forward.iter().filter_map(|key| Some((key.to_string(), metadata.get(&**key)?.clone())));
        keys.collect()
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        hook: &str,
        payload: Json,
        id: &str,
        cx: &CallContext,
    ) -> Result<T, HookError> {
        let cx = cx.with_timeout(limits::HOOK_DEADLINE);
        let bytes = match cx.wait(self.post(hook, payload, id)).await {
            Ok(answered) => answered.map_err(|error| HookError(format!("{hook}: {}", error.reason)))?,
            Err(stopped) => return Err(HookError(format!("{hook}: {stopped}"))),
        };
        serde_json::from_slice(&bytes)
            .map_err(|error| HookError(format!("{hook}: its answer is not as agreed: {error}")))
    }

    /// Sends one request; the bytes of a good answer. The words of an error never hold the address.
    async fn post(&self, hook: &str, payload: Json, id: &str) -> Result<Vec<u8>, PostError> {
        let mut body = json!({"version": VERSION, "hook": hook, "id": id, "agent": &*self.agent});
        if let (Some(body), Json::Object(payload)) = (body.as_object_mut(), payload) {
            body.extend(payload);
        }
        let client = self.http.client().map_err(|error| PostError::before(error.to_string()))?;
        let body = body.to_string();
        let lost = |error: reqwest::Error| match Arrival::of_http(&error) {
            Arrival::Impossible => PostError::before("the hook server cannot be reached"),
            Arrival::Possible => PostError::after("the connection broke"),
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
            let response = request.send().await.map_err(lost)?;
            // A token that ran out is asked for anew, once: nothing was done with the one before.
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
            return Err(PostError::after(format!("it answers with the status {}", response.status().as_u16())));
        }
        read_limited(response, limits::HOOK_ANSWER).await.map_err(|error| match error {
            BodyError::TooLong { limit } => PostError::after(format!("its answer is larger than {limit} bytes")),
            BodyError::Broken(_) => PostError::after("the connection broke"),
        })
    }
}

/// Why a hook server gave no answer.
struct PostError {
    reason: String,
    arrival: Arrival,
}

impl PostError {
    /// Nothing was sent.
    fn before(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), arrival: Arrival::Impossible }
    }
    /// The request may have arrived.
    fn after(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), arrival: Arrival::Possible }
    }
}

/// Hooks behind an address.
pub struct HttpHooks {
    server: Arc<HookServer>,
    description: Description,
}

impl HttpHooks {
    fn has(&self, hook: &str) -> bool {
        self.description.hooks.iter().any(|known| **known == *hook)
    }

    /// The input with the metadata that may leave.
    fn outgoing(&self, input: &AgentInput) -> AgentInput {
        AgentInput { metadata: self.server.allowed(&input.metadata), ..input.clone() }
    }

    async fn asked<T: DeserializeOwned + Default>(
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
        let answered: Answered<T> = self.server.ask(hook, payload, &cx.id, &cx.cx).await?;
        answered.say.into_iter().for_each(|text| cx.say(text));
        Ok(answered.given)
    }
}

#[async_trait]
impl AgentHooks for HttpHooks {
    async fn before_run(&self, cx: &HookContext) -> HookResult {
        self.asked::<Nothing>("before_run", || json!({}), cx).await.map(|_| ())
    }
    async fn after_run(&self, cx: &HookContext) -> HookResult {
        self.asked::<Nothing>("after_run", || json!({}), cx).await.map(|_| ())
    }
    async fn process_input(&self, input: &mut AgentInput, cx: &HookContext) -> HookResult {
        let sent = || json!({ "input": self.outgoing(input) });
        let change: InputChange = self.asked("process_input", sent, cx).await?;
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
        let answer: Events = self.asked("process_tool_output", || json!({ "batch": batch }), cx).await?;
        Ok(answer.events)
    }
    async fn process_output(&self, output: &AgentOutput, cx: &HookContext) -> Result<OutputChange, HookError> {
        self.asked("process_output", || outgoing(output, &self.server), cx).await
    }
    async fn process_agent_output(&self, output: &AgentOutput, cx: &HookContext) -> Result<OutputChange, HookError> {
        self.asked("process_agent_output", || outgoing(output, &self.server), cx).await
    }
    fn custom_tools(&self) -> Vec<Tool> {
        let tool = |tool: &DescribedTool| {
            let info = ToolInfo::new(tool.name.clone(), tool.description.clone());
            let spec = info.parameters(tool.parameters.clone()).effect(tool.effect);
            Tool::from_handler(HookTool { server: self.server.clone(), spec })
        };
        self.description.tools.iter().map(tool).collect()
    }
    fn task_completed_tool(&self, usual: llm::ToolSpec) -> llm::ToolSpec {
        match &self.description.task_completed {
            Some(description) => llm::ToolSpec { description: description.clone(), ..usual },
            None => usual,
        }
    }
    fn empty_closing_message(&self, usual: String) -> String {
        self.description.empty_closing_message.as_deref().map_or(usual, str::to_owned)
    }
    async fn slot_tool(
        &self,
        slot: &SlotDef,
        usual: &llm::ToolSpec,
        cx: &HookContext,
    ) -> Result<Option<llm::ToolSpec>, HookError> {
        let sent = || json!({ "slot": wire::slot(slot), "tool": wire::tool(usual) });
        let change: ToolChange = self.asked("slot_tool", sent, cx).await?;
        Ok(change.tool.map(|tool| tool.over(usual)))
    }
    async fn tools(
        &self,
        usual: &[llm::ToolSpec],
        input: &AgentInput,
        cx: &HookContext,
    ) -> Result<Option<Vec<llm::ToolSpec>>, HookError> {
        let tools = || usual.iter().map(wire::tool).collect::<Json>();
        let sent = || json!({ "input": self.outgoing(input), "tools": tools() });
        let change: ToolsChange = self.asked("tools", sent, cx).await?;
        let known = |tool: wire::Tool| {
            let usual = usual.iter().find(|usual| usual.name == tool.name)?;
            Some(tool.over(usual))
        };
        Ok(change.tools.map(|tools| tools.into_iter().filter_map(known).collect()))
    }
    async fn messages(
        &self,
        usual: &[Arc<llm::ChatMessage>],
        input: &AgentInput,
        cx: &HookContext,
    ) -> Result<Option<Vec<Arc<llm::ChatMessage>>>, HookError> {
        let messages = || usual.iter().map(|message| wire::message(message)).collect::<Json>();
        let sent = || json!({ "input": self.outgoing(input), "messages": messages() });
        let change: MessagesChange = self.asked("messages", sent, cx).await?;
        let changed = change.messages.map(|messages| wire::messages(messages, usual)).transpose();
        changed.map_err(|reason| HookError(format!("messages: {reason}")))
    }
    async fn prompt(&self, usual: &str, input: &AgentInput, cx: &HookContext) -> Result<Option<String>, HookError> {
        let sent = || json!({ "input": self.outgoing(input), "prompt": usual });
        let change: PromptChange = self.asked("prompt", sent, cx).await?;
        Ok(change.prompt)
    }
}

fn outgoing(output: &AgentOutput, server: &HookServer) -> Json {
    let output = AgentOutput { metadata: server.allowed(&output.metadata), ..output.clone() };
    json!({ "output": output })
}

/// A tool that runs behind the address.
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
        // The deadline is the tool's; whoever called has set it.
        let sent = self.server.post("tool", payload, &cx.idempotency_key);
        let (error, kind) = match cx.cx.wait(sent).await {
            Ok(Ok(bytes)) => return answer(&bytes, effect),
            Ok(Err(error)) => (error, FailureKind::Unavailable),
            Err(WaitError::DeadlinePassed) => (PostError::after("it did not answer in time"), FailureKind::Timeout),
            Err(WaitError::Cancelled) => (PostError::after("nobody waits for it any more"), FailureKind::Cancelled),
        };
        ToolOutcome::unanswered(effect, error.arrival, kind, error.reason)
    }
}

fn answer(bytes: &[u8], effect: EffectClass) -> ToolOutcome {
    let Ok(answer) = serde_json::from_slice::<ToolAnswer>(bytes) else {
        return ToolOutcome::unusable(effect, "the tool gave no JSON as agreed");
    };
    match (answer.error, answer.result) {
        (Some(message), _) => {
            let mut failure = ToolFailure::new(FailureKind::ToolError, message);
            failure.fatal = answer.fatal;
            ToolOutcome::Failed(failure)
        }
        (None, Some(Json::String(text))) => ToolOutcome::Done(ToolOutput::text(text)),
        (None, Some(result)) => ToolOutcome::Done(ToolOutput::structured(result)),
        (None, None) => ToolOutcome::unusable(effect, "the tool gave neither `result` nor `error`"),
    }
}

#[cfg(test)]
mod tests;
