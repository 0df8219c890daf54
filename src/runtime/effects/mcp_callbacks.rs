//! Answers the requests of MCP servers during a tool call: elicitation from slots, sampling with the model of the turn within its
//! budget. The user is not asked here; a flow step collects the missing slots instead.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
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
        ArgumentCheck, CallWrapper, ClientRequestHandler, ElicitationRequest, ElicitationResponse, FormField,
        ToolCallContext, ToolHandler, ToolOutcome, WrappedTool,
    },
};

/// The MCP servers that may send requests during a call; most projects have none.
pub(in crate::runtime) struct McpCallbacks(Vec<McpCallbackServer>);

/// A server that may send requests.
struct McpCallbackServer {
    server: ServerName,
    fields: Arc<FieldValues>,
    llm: Option<Arc<dyn Llm>>,
}

impl McpCallbacks {
    /// The servers of the project, with the current values of slots.
    pub(in crate::runtime) fn new(turn: &TurnContext<'_>, llm: &Arc<dyn Llm>) -> Self {
        let TurnContext { runtime, conversation, .. } = *turn;
        let servers = runtime.project.endpoints.mcp_servers.iter();
        let servers = servers.filter(|(_, def)| def.sampling || !def.elicitation.is_empty()).map(|(name, def)| {
            McpCallbackServer {
                server: name.clone(),
                fields: Arc::new(field_values(def, runtime, conversation)),
                llm: def.sampling.then(|| llm.clone()),
            }
        });
        Self(servers.collect())
    }

    /// The tool, with a handler for requests if its server may send any.
    pub(in crate::runtime) fn with_callbacks(
        &self,
        tool: Arc<dyn ToolHandler>,
        record: &TurnRecord,
    ) -> Arc<dyn ToolHandler> {
        let found = self.0.iter().find(|server| server.server.as_str() == &*tool.info().source);
        let Some(McpCallbackServer { fields, llm, .. }) = found else { return tool };
        let callbacks = ToolCallbacks { fields: fields.clone(), llm: llm.clone(), record: record.clone() };
        Arc::new(WrappedTool::new(tool, callbacks))
    }
}

/// The result of a flow's tool call, with slots in place of the fields that the tool asked for.
pub(in crate::runtime) fn needed_slots(
    result: ToolResult,
    server: &ServerName,
    runtime: &ProjectRuntime,
) -> ToolResult {
    let ToolResult::NeedsInput { reason, slots: fields } = result else { return result };
    let elicitation = runtime.project.endpoints.mcp_servers.get(server).map(|def| &def.elicitation);
    let slot = |field: &SlotName| elicitation?.get(field.as_str()).cloned();
    match fields.iter().map(slot).collect::<Option<Vec<_>>>() {
        Some(slots) => match slots.first().filter(|slot| !can_be_asked(slot, runtime)) {
            None => ToolResult::NeedsInput { reason, slots },
            Some(slot) => {
                let problem = format!("there is neither `utter_ask_{slot}` nor `action_ask_{slot}` to ask for it");
                ToolResult::Failed { reason: format!("{reason} {problem}") }
            }
        },
        None => ToolResult::Failed { reason },
    }
}

fn can_be_asked(slot: &SlotName, runtime: &ProjectRuntime) -> bool {
    runtime.project.response(&format!("utter_ask_{slot}")).is_some()
        || runtime.project.lists_action(&format!("action_ask_{slot}"))
}

fn field_values(def: &McpServerDef, runtime: &ProjectRuntime, conversation: &Conversation) -> FieldValues {
    let initial = |slot: &SlotName| runtime.project.slot(slot.as_str()).map(|slot| &slot.initial);
    let value =
        |slot: &SlotName| conversation.slots.get(slot.as_str()).or_else(|| initial(slot)).cloned().unwrap_or_default();
    def.elicitation.iter().map(|(field, slot)| (field.clone(), (slot.clone(), value(slot)))).collect()
}

/// Answers the requests that the server of a tool sends during a call. It wraps the recorded tool: sampling is part of the recorded
/// call, and only its usage is recorded separately.
struct ToolCallbacks {
    fields: Arc<FieldValues>,
    llm: Option<Arc<dyn Llm>>,
    record: TurnRecord,
}

/// By field of the form: the slot that answers it, and its value.
type FieldValues = IndexMap<String, (SlotName, Json)>;

#[async_trait]
impl CallWrapper for ToolCallbacks {
    async fn call(&self, inner: &dyn ToolHandler, arguments: Json, cx: &ToolCallContext) -> ToolOutcome {
        let handler = Arc::new(CallbackHandler {
            fields: self.fields.clone(),
            llm: self.llm.clone(),
            record: self.record.clone(),
            samples: Mutex::default(),
        });
        let outcome = inner.call(arguments, &cx.clone().with_client_requests(handler.clone())).await;
        if self.llm.is_some() {
            self.record_sampling(&handler, &cx.cx.step("samples")).await;
        }
        outcome
    }
}

impl ToolCallbacks {
    /// Records and counts the usage of sampling during a call.
    async fn record_sampling(&self, handler: &CallbackHandler, cx: &CallContext) {
        let samples = async { std::mem::take(&mut *handler.samples.lock().unwrap_or_else(PoisonError::into_inner)) };
        match self.record.journal.once(sampling_step(cx), samples).await {
            Ok(StepResult::Performed(samples)) => self.record.usage.record_sampling(&samples, false),
            Ok(StepResult::Replayed(samples)) => self.record.usage.record_sampling(&samples, true),
            // The same journal has failed the call itself.
            Ok(StepResult::Unknown) | Err(_) => {}
        }
    }
}

/// Counts the recorded usage of a call whose result comes from the record: the call is not made again.
pub(in crate::runtime) async fn replay_sampling(server: &ServerName, turn: &TurnContext<'_>, call: &CallContext) {
    let TurnContext { runtime, record, .. } = *turn;
    let def = runtime.project.endpoints.mcp_servers.get(server);
    if def.is_some_and(|def| def.sampling)
        && let Some(recorded) =
            record.journal.recorded_outcome::<Vec<ModelUsage>>(sampling_step(&call.step("samples"))).await
    {
        record.usage.record_sampling(&recorded, true);
    }
}

/// The step that records the usage of sampling during a call.
fn sampling_step(cx: &CallContext) -> Step<'_> {
    Step { key: &cx.key, kind: "samples", class: EffectClass::Read, request: "" }
}

/// Answers the requests of the server during one call.
struct CallbackHandler {
    fields: Arc<FieldValues>,
    llm: Option<Arc<dyn Llm>>,
    record: TurnRecord,
    /// The usage of sampling.
    samples: Mutex<Vec<ModelUsage>>,
}

#[async_trait]
impl ClientRequestHandler for CallbackHandler {
    fn fills(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    /// Fills each field from its slot, else from the default of the form; optional fields may be omitted. A form that requires other
    /// fields is declined: a server gets only the slots that its entry names.
    fn elicit(&self, request: &ElicitationRequest) -> ElicitationResponse {
        let none = Map::new();
        let properties = request.schema.get("properties").and_then(Json::as_object).unwrap_or(&none);
        let is_required = |field: &str| {
            let list = request.schema.get("required").and_then(Json::as_array);
            list.is_some_and(|list| list.iter().any(|name| name == field))
        };
        let (mut content, mut missing) = (Map::new(), Vec::new());
        for (field, schema) in properties {
            let check = FieldCheck::new(field, schema);
            let default = schema.get("default").filter(|default| default.is_null() || check.problem(default).is_none());
            match (self.fields.get(field), default) {
                (Some((_, value)), _) if !value.is_null() && check.problem(value).is_none() => {
                    content.insert(field.clone(), as_integer(value, schema));
                }
                // Null is no value of a form: the field is left out.
                (slot, Some(Json::Null)) if !is_required(field) && slot.is_none_or(|(_, value)| value.is_null()) => {}
                (slot, Some(default)) if !default.is_null() && slot.is_none_or(|(_, value)| value.is_null()) => {
                    content.insert(field.clone(), default.clone());
                }
                (Some((_, Json::Null)), _) => missing.push(FormField::without_value(field)),
                (Some((_, value)), _) => {
                    missing.push(FormField { name: field.clone(), problem: check.problem(value) });
                }
                (None, _) if is_required(field) => {
                    return ElicitationResponse::Decline(FormField::without_value(field));
                }
                (None, _) => {}
            }
        }
        if missing.is_empty() { ElicitationResponse::Accept(content) } else { ElicitationResponse::Missing(missing) }
    }

    async fn sample(&self, params: Json, cx: &CallContext) -> Result<Json, String> {
        let llm = self.llm.as_ref().ok_or("sampling is not allowed")?;
        let request = sampling_request(&params)?;
        let cx = cx.step("sample");
        let failed = |_| "the model gave no response".to_owned();
        self.record.usage.model_called(&cx.key, &request).map_err(failed)?;
        let answer = llm.chat(request, &cx).await.map_err(failed)?.finish().await.map_err(failed)?;
        self.samples.lock().unwrap_or_else(PoisonError::into_inner).push(ModelUsage::single(answer.usage));
        Ok(sampling_result(&answer, &llm.profile().model))
    }
}

/// Checks values for one field of a form.
struct FieldCheck<'a> {
    field: &'a str,
    check: Result<ArgumentCheck, String>,
}

impl<'a> FieldCheck<'a> {
    fn new(field: &'a str, schema: &Json) -> Self {
        let schema = json!({"type": "object", "properties": {field: schema}});
        Self { field, check: ArgumentCheck::compile_any(&schema).map_err(|error| error.to_string()) }
    }

    /// Why a value does not fit; `None` if it does.
    fn problem(&self, value: &Json) -> Option<String> {
        let problems = match &self.check {
            Ok(check) => check.problems(&json!({ self.field: value })),
            Err(error) => vec![error.clone()],
        };
        (!problems.is_empty()).then(|| problems.join(" "))
    }
}

/// Slots contain numbers as fractions; a field of type `integer` gets an integer if there is no fraction.
fn as_integer(value: &Json, schema: &Json) -> Json {
    let is_integer = schema.get("type").and_then(Json::as_str) == Some("integer");
    match value.as_f64().filter(|number| is_integer && number.fract() == 0.0 && number.abs() < 9e15) {
        Some(number) => Json::from(number as i64),
        None => value.clone(),
    }
}

/// The model request for the parameters of MCP's `sampling/createMessage`. Only texts are supported, no tools.
fn sampling_request(params: &Json) -> Result<ChatRequest, String> {
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
    let max_tokens = params.get("maxTokens").and_then(Json::as_u64).and_then(|tokens| u32::try_from(tokens).ok());
    let mut request = ChatRequest::new(Purpose::SAMPLING, messages);
    request.max_tokens = Some(max_tokens.unwrap_or(limits::MCP_SAMPLE_TOKENS).min(limits::MCP_SAMPLE_TOKENS));
    request.temperature = params.get("temperature").and_then(Json::as_f64);
    Ok(request)
}

fn text_of(content: Option<&Json>) -> Option<String> {
    let parts = match content? {
        Json::Array(parts) => parts.as_slice(),
        part => std::slice::from_ref(part),
    };
    let texts: Option<Vec<&str>> = parts.iter().map(|part| part.get("text")?.as_str()).collect();
    texts.map(|texts| texts.join("\n"))
}

/// The result of MCP's `sampling/createMessage`.
fn sampling_result(answer: &ChatResponse, model: &str) -> Json {
    let stop = if answer.finish == FinishReason::Length { "maxTokens" } else { "endTurn" };
    json!({"role": "assistant", "content": {"type": "text", "text": &*answer.text}, "model": model, "stopReason": stop})
}
