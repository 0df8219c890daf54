//! What a tool asks back is answered from the conversation: a form from slots, a request for our model by the model of
//! the turn, within its budget. Nothing is asked of the user here; a call step whose tool lacks something asks by its flow.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::future::BoxFuture;
use indexmap::IndexMap;
use segue_engine::{
    conversation::{Conversation, ModelUsage, ToolResult},
    ids::{ServerName, SlotName},
    project::McpServerDef,
};
use serde_json::{Map, Value as Json, json};

use crate::{
    context::CallContext,
    effect::EffectClass,
    journal::{JournalObserver, Step, StepResult},
    limits,
    llm::{ChatMessage, ChatRequest, ChatResponse, FinishReason, Llm, Purpose},
    runtime::{
        project_runtime::ProjectRuntime,
        turn::{TurnContext, TurnRecord},
    },
    tools::{
        ArgumentCheck, ClientRequestHandler, ElicitationRequest, ElicitationResponse, ToolCallContext, ToolHandler,
        ToolInfo, ToolOutcome,
    },
};

/// The servers that may ask something in the middle of a call, and who answers them. Mostly there is none.
pub(in crate::runtime) struct McpCallbacks(Vec<McpCallbackServer>);

/// A server that may ask.
struct McpCallbackServer {
    server: ServerName,
    fields: Arc<Fields>,
    llm: Option<Arc<dyn Llm>>,
}

impl McpCallbacks {
    /// Those of the project, with the values of slots as they are now.
    pub(in crate::runtime) fn of(turn: &TurnContext<'_>, llm: &Arc<dyn Llm>) -> Self {
        let TurnContext { runtime, conversation, .. } = *turn;
        let servers = runtime.project.endpoints.mcp_servers.iter();
        let asking = servers.filter(|(_, def)| def.sampling || !def.elicitation.is_empty()).map(|(name, def)| {
            McpCallbackServer {
                server: name.clone(),
                fields: Arc::new(fields(def, runtime, conversation)),
                llm: def.sampling.then(|| llm.clone()),
            }
        });
        Self(asking.collect())
    }

    /// The tool, with somebody to ask where its server may do so.
    pub(in crate::runtime) fn with_callbacks(
        &self,
        tool: Arc<dyn ToolHandler>,
        record: &TurnRecord,
    ) -> Arc<dyn ToolHandler> {
        let found = self.0.iter().find(|server| server.server.as_str() == &*tool.info().source);
        let Some(McpCallbackServer { fields, llm, .. }) = found else { return tool };
        Arc::new(ToolWithCallbacks { tool, fields: fields.clone(), llm: llm.clone(), record: record.clone() })
    }
}

/// A call step's result with slots in place of the fields that its tool wants.
pub(in crate::runtime) fn slots(result: ToolResult, server: &ServerName, runtime: &ProjectRuntime) -> ToolResult {
    let ToolResult::NeedsInput { reason, slots: fields } = result else { return result };
    let elicitation = runtime.project.endpoints.mcp_servers.get(server).map(|def| &def.elicitation);
    let slot = |field: &SlotName| elicitation?.get(field.as_str()).cloned();
    match fields.iter().map(slot).collect::<Option<Vec<_>>>() {
        Some(slots) => match slots.first().filter(|slot| !can_be_asked(slot, runtime)) {
            None => ToolResult::NeedsInput { reason, slots },
            Some(slot) => {
                let lacks = format!("there is neither `utter_ask_{slot}` nor `action_ask_{slot}` to ask for it");
                ToolResult::Failed { reason: format!("{reason} {lacks}") }
            }
        },
        None => ToolResult::Failed { reason },
    }
}

fn can_be_asked(slot: &SlotName, runtime: &ProjectRuntime) -> bool {
    runtime.project.response(&format!("utter_ask_{slot}")).is_some()
        || runtime.project.lists_action(&format!("action_ask_{slot}"))
}

fn fields(def: &McpServerDef, runtime: &ProjectRuntime, conversation: &Conversation) -> Fields {
    let initial = |slot: &SlotName| runtime.project.slot(slot.as_str()).map(|slot| &slot.initial);
    let value =
        |slot: &SlotName| conversation.slots.get(slot.as_str()).or_else(|| initial(slot)).cloned().unwrap_or_default();
    def.elicitation.iter().map(|(field, slot)| (field.clone(), (slot.clone(), value(slot)))).collect()
}

/// A tool whose server may ask. It stands outside of the record of its call: what our model was asked meanwhile is a part of
/// that call, and only what it used is recorded beside it.
struct ToolWithCallbacks {
    tool: Arc<dyn ToolHandler>,
    fields: Arc<Fields>,
    llm: Option<Arc<dyn Llm>>,
    record: TurnRecord,
}

/// By field: the slot that answers it, and its value.
type Fields = IndexMap<String, (SlotName, Json)>;

#[async_trait]
impl ToolHandler for ToolWithCallbacks {
    fn info(&self) -> &ToolInfo {
        self.tool.info()
    }
    fn argument_check(&self) -> Option<Arc<ArgumentCheck>> {
        self.tool.argument_check()
    }
    fn idle_timeout(&self) -> Option<std::time::Duration> {
        self.tool.idle_timeout()
    }
    fn total_timeout(&self) -> Option<std::time::Duration> {
        self.tool.total_timeout()
    }
    async fn call(&self, arguments: Json, cx: &ToolCallContext) -> ToolOutcome {
        let known = Arc::new(CallbackState {
            fields: self.fields.clone(),
            llm: self.llm.clone(),
            record: self.record.clone(),
            samples: Mutex::default(),
        });
        let outcome =
            self.tool.call(arguments, &ToolCallContext { client_requests: Some(known.clone()), ..cx.clone() }).await;
        if self.llm.is_some() {
            self.record_sampling(&known, &cx.cx.step("samples")).await;
        }
        outcome
    }
}

impl ToolWithCallbacks {
    /// Counts what our model used, as it was or as it is recorded.
    async fn record_sampling(&self, known: &CallbackState, cx: &CallContext) {
        let samples = async { std::mem::take(&mut *known.samples.lock().unwrap_or_else(PoisonError::into_inner)) };
        match self.record.journal.once(samples_of(cx), samples).await {
            Ok(StepResult::Performed(samples)) => self.record.usage.sampled(&samples, false),
            Ok(StepResult::Replayed(samples)) => self.record.usage.sampled(&samples, true),
            // The same journal refused the call itself, which said so.
            Ok(StepResult::Unknown) | Err(_) => {}
        }
    }
}

/// The same for a call whose result was read from the record: the call itself is not made again.
pub(in crate::runtime) async fn replay_sampling(server: &ServerName, turn: &TurnContext<'_>, call: &CallContext) {
    let TurnContext { runtime, record, .. } = *turn;
    let def = runtime.project.endpoints.mcp_servers.get(server);
    if def.is_some_and(|def| def.sampling)
        && let Some(recorded) =
            record.journal.recorded_outcome::<Vec<ModelUsage>>(samples_of(&call.step("samples"))).await
    {
        record.usage.sampled(&recorded, true);
    }
}

/// The step that records what our model used during a call.
fn samples_of(cx: &CallContext) -> Step<'_> {
    Step { key: &cx.key, kind: "samples", class: EffectClass::Read, request: "" }
}

/// What is known when the call begins.
struct CallbackState {
    fields: Arc<Fields>,
    llm: Option<Arc<dyn Llm>>,
    record: TurnRecord,
    /// What our model used.
    samples: Mutex<Vec<ModelUsage>>,
}

impl ClientRequestHandler for CallbackState {
    /// A field is answered by its slot, else by the default that the form gives, else left out where the form allows it. A
    /// form that needs anything else is declined: the server may ask for what its entry names, and for nothing more.
    fn elicit(&self, inquiry: &ElicitationRequest) -> ElicitationResponse {
        let none = Map::new();
        let asked = inquiry.schema.get("properties").and_then(Json::as_object).unwrap_or(&none);
        let needed = |field: &str| {
            let list = inquiry.schema.get("required").and_then(Json::as_array);
            list.is_some_and(|list| list.iter().any(|name| name == field))
        };
        let (mut content, mut missing) = (Map::new(), Vec::new());
        for (field, schema) in asked {
            match (self.fields.get(field), schema.get("default")) {
                (Some((_, value)), _) if matches_schema(value, schema) => {
                    content.insert(field.clone(), as_integer(value, schema));
                }
                (known, Some(default)) if known.is_none_or(|(_, value)| value.is_null()) => {
                    content.insert(field.clone(), default.clone());
                }
                (Some(_), _) => missing.push(field.clone()),
                (None, _) if needed(field) => {
                    tracing::warn!(server = %inquiry.server, field, "a server asks for what its entry does not name");
                    return ElicitationResponse::Decline;
                }
                (None, _) => {}
            }
        }
        if missing.is_empty() { ElicitationResponse::Accept(content) } else { ElicitationResponse::Missing(missing) }
    }

    fn sample<'a>(&'a self, params: Json, cx: &'a CallContext) -> BoxFuture<'a, Result<Json, String>> {
        Box::pin(async move {
            let llm = self.llm.as_ref().ok_or("sampling is not allowed")?;
            let request = request(&params)?;
            let cx = cx.step("sample");
            let refused = |_| "our model gave no answer".to_owned();
            self.record.usage.model_called(&cx.key, &request).map_err(refused)?;
            let answer = llm.chat(request, &cx).await.map_err(refused)?.finish().await.map_err(refused)?;
            self.samples.lock().unwrap_or_else(PoisonError::into_inner).push(ModelUsage::single(answer.usage));
            Ok(result(&answer, &llm.profile().model))
        })
    }
}

/// Whether a value is an answer to a field of this schema.
fn matches_schema(value: &Json, schema: &Json) -> bool {
    if value.is_null() {
        return false;
    }
    let schema = json!({"type": "object", "properties": {"it": schema}});
    ArgumentCheck::compile_any(&schema).is_ok_and(|check| check.problems(&json!({"it": value})).is_empty())
}

/// A slot's number is a fraction by nature; a field may want it whole.
fn as_integer(value: &Json, schema: &Json) -> Json {
    let whole = schema.get("type").and_then(Json::as_str) == Some("integer");
    match value.as_f64().filter(|number| whole && number.fract() == 0.0 && number.abs() < 9e15) {
        Some(number) => Json::from(number as i64),
        None => value.clone(),
    }
}

/// The request that `sampling/createMessage` means: text alone, and no tools.
fn request(params: &Json) -> Result<ChatRequest, String> {
    let mut messages = Vec::new();
    if let Some(prompt) = params.get("systemPrompt").and_then(Json::as_str) {
        messages.push(ChatMessage::system(prompt));
    }
    for message in params.get("messages").and_then(Json::as_array).into_iter().flatten() {
        let text = text_of(message.get("content")).ok_or("only text can be sampled")?;
        messages.push(match message.get("role").and_then(Json::as_str) {
            Some("assistant") => ChatMessage::assistant(text),
            _ => ChatMessage::user(text),
        });
    }
    let bytes: usize = messages.iter().map(|message| message.text().len()).sum();
    if messages.is_empty() || bytes > limits::MCP_SAMPLE {
        return Err(format!("a request holds 1 to {} bytes of text", limits::MCP_SAMPLE));
    }
    let asked = params.get("maxTokens").and_then(Json::as_u64).and_then(|tokens| u32::try_from(tokens).ok());
    let mut request = ChatRequest::new(Purpose::SAMPLING, messages);
    request.max_tokens = Some(asked.unwrap_or(limits::MCP_SAMPLE_TOKENS).min(limits::MCP_SAMPLE_TOKENS));
    request.temperature = params.get("temperature").and_then(Json::as_f64);
    Ok(request)
}

fn text_of(content: Option<&Json>) -> Option<String> {
    let runtime = match content? {
        Json::Array(runtime) => runtime.clone(),
        one => vec![one.clone()],
    };
    let texts: Option<Vec<String>> = runtime.iter().map(|part| Some(part.get("text")?.as_str()?.to_owned())).collect();
    texts.map(|texts| texts.join("\n"))
}

fn result(answer: &ChatResponse, model: &str) -> Json {
    let stop = if answer.finish == FinishReason::Length { "maxTokens" } else { "endTurn" };
    json!({"role": "assistant", "content": {"type": "text", "text": &*answer.text}, "model": model, "stopReason": stop})
}
