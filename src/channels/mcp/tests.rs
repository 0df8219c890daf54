#![allow(deprecated, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod cancellation;
mod elicitation;
mod http;
mod limits;
mod prompts_and_resources;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rmcp::{
    ClientHandler, RoleClient, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult,
        ElicitationAction, Implementation, LoggingMessageNotificationParam, ProgressNotificationParam,
        ReadResourceRequestParams, RequestMetaObject, RequestParamsMeta, ResourceContents,
        ResourceUpdatedNotificationParam,
    },
    service::{NotificationContext, RequestContext, RunningService},
};
use segue_engine::conversation::ActionOutcome;
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use super::{
    McpServerChannel, McpServerSettings, McpServerState, NAME,
    session::{CONVERSATION_PREFIX, IDEMPOTENCY_KEY},
};
use crate::{
    context::CallContext,
    conversation::Conversation,
    llm::Llm,
    runtime::{Action, Assistant, AssistantBuilder, IncomingMessage},
    store::MemoryStore,
    testing::ScriptedLlm,
};

const DOMAIN: &str = "
actions: [action_break, action_send]
slots:
  name: {type: text, mappings: [{type: from_llm}]}
  size: {type: categorical, values: [small, large], mappings: [{type: from_llm}]}
  count: {type: float, min_value: 1, max_value: 9, mappings: [{type: from_llm}]}
  sure: {type: bool, mappings: [{type: from_llm}]}
  note: {type: text, initial_value: no, mappings: [{type: from_llm}]}
  pace: {type: categorical, values: [slow, fast], mappings: [{type: from_llm}]}
  member: {type: bool, initial_value: false, mappings: [{type: controlled}]}
responses:
  utter_ask_name: [{text: Who are you?}]
  utter_ask_size: [{text: Which size?, buttons: [{title: Small, payload: '/SetSlots(size=small)'}]}]
  utter_ask_count: [{text: How many?}]
  utter_ask_note: [{text: 'Anything else?'}]
  utter_ask_pace: [{text: 'How fast?', buttons: [{title: As usual, payload: '/SetSlots(pace=slow)'}, {title: At once, payload: '/SetSlots(pace=fast)'}]}]
  utter_noted: [{text: '{note}, {pace}'}]
  utter_ask_sure: [{text: 'Send {count} {size} ones?'}]
  utter_hello: [{text: 'Hello {name}!'}]
  utter_sent: [{text: Sent.}]
  utter_club: [{text: Welcome to the club.}]
";

const FLOWS: &str = "
flows:
  greet: {description: Greets somebody., run_pattern_completed: false, steps: [{collect: name}, {action: utter_hello}]}
  order:
    name: ordering
    description: Orders something.
    run_pattern_completed: false
    steps:
      - {collect: size, description: the size}
      - {collect: count}
      - {collect: sure, ask_before_filling: true}
      - {action: action_send}
      - {action: utter_sent}
  notes:
    description: Takes a note.
    run_pattern_completed: false
    steps:
      - {id: how, collect: pace}
      - {collect: note, ask_before_filling: true}
      - {action: utter_noted}
  club: {description: For members., if: slots.member, run_pattern_completed: false, steps: [{action: utter_club}]}
  broken: {description: Breaks., run_pattern_completed: false, steps: [{action: action_break}]}
  inner: {description: Only for others., if: false, steps: [{action: utter_hello}]}
";

const CONFIG: &str =
    "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n";

/// An action with a fixed outcome.
struct FixedAction(ActionOutcome);

#[async_trait]
impl Action for FixedAction {
    async fn run(&self, _: &Conversation, _: &CallContext) -> ActionOutcome {
        self.0.clone()
    }
}

fn builder(model: Arc<dyn Llm>) -> AssistantBuilder {
    let files = [("config.yml", CONFIG), ("domain.yml", DOMAIN), ("flows/all.yml", FLOWS)];
    let done = ActionOutcome::Done { events: Vec::new() };
    Assistant::builder_from_texts(files)
        .unwrap()
        .model(model)
        .store(Arc::new(MemoryStore::default()))
        .action("action_send", Arc::new(FixedAction(done)))
        .action("action_break", Arc::new(FixedAction(ActionOutcome::failed("it broke".to_owned()))))
}

fn assistant(lines: &[&str]) -> Assistant {
    builder(Arc::new(ScriptedLlm::strict(lines.iter().copied()))).build().unwrap()
}

/// A host that records notifications and elicitation requests, and answers the latter with `answers`; it declines when none is left.
#[derive(Clone, Default)]
struct Host {
    progress: Arc<Mutex<Vec<String>>>,
    /// Message and schema of each elicitation request.
    forms: Arc<Mutex<Vec<(String, Json)>>>,
    answers: Arc<Mutex<Vec<Json>>>,
    updated: Arc<Mutex<Vec<String>>>,
    logged: Arc<Mutex<Vec<Json>>>,
    has_no_elicitation: bool,
}

impl ClientHandler for Host {
    fn get_info(&self) -> ClientConfig {
        let capabilities = match self.has_no_elicitation {
            true => ClientCapabilities::default(),
            false => ClientCapabilities::builder().enable_elicitation().build(),
        };
        ClientConfig::new(capabilities, Implementation::new("host", "1"))
    }
    async fn on_progress(&self, progress: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.progress.lock().unwrap().push(progress.message.unwrap());
    }
    async fn on_resource_updated(&self, update: ResourceUpdatedNotificationParam, _: NotificationContext<RoleClient>) {
        self.updated.lock().unwrap().push(update.uri);
    }
    async fn on_logging_message(&self, message: LoggingMessageNotificationParam, _: NotificationContext<RoleClient>) {
        self.logged.lock().unwrap().push(message.data);
    }
    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, rmcp::ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = request else { panic!() };
        let schema = serde_json::to_value(requested_schema).unwrap();
        self.forms.lock().unwrap().push((message, schema));
        let mut answers = self.answers.lock().unwrap();
        if answers.is_empty() {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        }
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(answers.remove(0)))
    }
}

type Client = RunningService<RoleClient, Host>;

/// An MCP server for this assistant.
fn mcp_server(assistant: &Assistant, settings: McpServerSettings) -> Arc<McpServerState> {
    McpServerChannel::new(settings).state(assistant)
}

/// A session of this host with a server.
async fn connect(server: &Arc<McpServerState>, host: Host) -> Client {
    let (client_end, server_end) = tokio::io::duplex(64 * 1024);
    let server = server.clone();
    tokio::spawn(async move { Box::pin(server.serve(tokio::io::split(server_end), CancellationToken::new())).await });
    host.serve(client_end).await.unwrap()
}

async fn client(assistant: &Assistant, settings: McpServerSettings) -> Client {
    connect(&mcp_server(assistant, settings), Host::default()).await
}

fn params(tool: &str, arguments: Json, key: &str) -> CallToolRequestParams {
    let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments.as_object().unwrap().clone());
    if !key.is_empty() {
        let mut meta = RequestMetaObject::new();
        meta.insert(IDEMPOTENCY_KEY.to_owned(), key.into());
        *params.meta_mut() = Some(meta);
    }
    params
}

async fn call(client: &Client, tool: &str, arguments: Json) -> CallToolResult {
    client.call_tool(params(tool, arguments, "")).await.unwrap()
}

fn texts(result: &CallToolResult) -> String {
    result
        .content
        .iter()
        .filter_map(|block| block.as_text())
        .map(|text| text.text.as_str())
        .collect::<Vec<_>>()
        .join("|")
}

fn data(result: &CallToolResult) -> &Json {
    result.structured_content.as_ref().unwrap()
}

fn conversation_id(result: &CallToolResult) -> &str {
    data(result)["conversation_id"].as_str().unwrap()
}

#[tokio::test]
async fn each_user_flow_is_a_tool_with_its_slots_as_arguments() {
    let client = client(&assistant(&["x"]), McpServerSettings::default()).await;
    let tools = client.list_all_tools().await.unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(
        names,
        ["converse", "greet", "order", "notes", "club", "broken"],
        "a flow that only other flows start is no tool"
    );
    let schema = Json::Object((*tools[2].input_schema).clone());
    let size = json!({"type": "string", "enum": ["small", "large"], "description": "the size"});
    assert_eq!(schema["properties"]["size"], size);
    assert_eq!(schema["properties"]["count"]["type"], "number");
    assert!(schema["properties"].get("sure").is_none(), "a confirmation is no argument: {schema}");
    let read_only = |index: usize| tools[index].annotations.as_ref().unwrap().read_only_hint;
    assert_eq!((read_only(0), read_only(1), read_only(2)), (Some(false), Some(true), Some(false)));
    assert!(tools[1].description.as_ref().unwrap().starts_with("Greets somebody."));
}

#[tokio::test]
async fn conversation_id_continues_the_conversation() {
    let client = client(&assistant(&["start flow greet", "set slot name Ada"]), McpServerSettings::default()).await;
    let first = call(&client, "converse", json!({"message": "hello"})).await;
    assert!(texts(&first).starts_with("Who are you?"), "{first:?}");
    assert_eq!(data(&first)["waiting_for_input"], true);
    assert_eq!(data(&first)["question"], json!({"slot": "name", "schema": {"type": "string"}}));
    assert!(texts(&first).contains(conversation_id(&first)), "the id is in the text too: a model may see nothing else");
    let second =
        call(&client, "converse", json!({"message": "I am Ada", "conversation_id": conversation_id(&first)})).await;
    assert!(texts(&second).starts_with("Hello Ada!"), "{second:?}");
    assert_eq!(
        (conversation_id(&second), &data(&second)["waiting_for_input"]),
        (conversation_id(&first), &json!(false))
    );
}

#[tokio::test]
async fn conversation_of_another_channel_cannot_be_continued() {
    let is_reserved = crate::channels::RESERVED_PREFIXES.contains(&CONVERSATION_PREFIX);
    assert!(is_reserved, "nor can another channel continue one of this channel");
    let assistant = assistant(&["start flow greet"]);
    assistant
        .receive(IncomingMessage::new("mine", "hello").input_channel("rest"), Box::new(crate::DiscardReplies))
        .await
        .unwrap();
    let client = client(&assistant, McpServerSettings::default()).await;
    for id in ["mine", "mcp-0123", "mcp-"] {
        let refused = call(&client, "converse", json!({"message": "hello", "conversation_id": id})).await;
        assert_eq!(refused.is_error, Some(true));
        assert!(texts(&refused).contains(id) && refused.structured_content.is_none(), "{refused:?}");
    }
}

#[tokio::test]
async fn flow_tool_fills_slots_from_its_arguments_and_asks_for_the_others() {
    let client = client(&assistant(&[]), McpServerSettings::default()).await;
    let first = call(&client, "order", json!({"size": "large"})).await;
    assert!(texts(&first).starts_with("How many?"), "{first:?}");
    let second =
        call(&client, "converse", json!({"message": "/SetSlots(count=3)", "conversation_id": conversation_id(&first)}))
            .await;
    assert!(
        texts(&second).starts_with("Send 3.0 large ones?") || texts(&second).starts_with("Send 3 large ones?"),
        "{second:?}"
    );
    assert_eq!(data(&second)["question"]["slot"], "sure");
    let third = call(&client, "converse", json!({"message": "yes", "conversation_id": conversation_id(&first)})).await;
    assert!(texts(&third).starts_with("Sent."), "{third:?}");
    let wrong = call(&client, "order", json!({"size": "huge", "sure": true})).await;
    assert_eq!(wrong.is_error, Some(true));
    assert!(texts(&wrong).contains("size") && texts(&wrong).contains("sure"), "{wrong:?}");
}

#[tokio::test]
async fn flow_whose_guard_is_false_is_refused() {
    let client = client(&assistant(&[]), McpServerSettings::default()).await;
    let refused = call(&client, "club", json!({})).await;
    assert_eq!(refused.is_error, Some(true));
    assert!(texts(&refused).contains("club"), "{refused:?}");
    let unknown = client.call_tool(params("inner", json!({}), "")).await;
    assert!(unknown.is_err(), "a flow that no user may start is no tool: {unknown:?}");
}

#[tokio::test]
async fn failed_action_is_an_error_result_without_its_cause() {
    let client = client(&assistant(&[]), McpServerSettings::default()).await;
    let broken = call(&client, "broken", json!({})).await;
    assert_eq!(broken.is_error, Some(true));
    assert!(!texts(&broken).contains("it broke") && broken.content.len() > 1, "{broken:?}");
}

#[tokio::test]
async fn repeated_call_with_the_same_idempotency_key_runs_no_second_turn() {
    let assistant = assistant(&["start flow greet", "start flow greet"]);
    let server = mcp_server(&assistant, McpServerSettings::default());
    let client = connect(&server, Host::default()).await;
    let message = params("converse", json!({"message": "hello"}), "k-1");
    let first = client.call_tool(message.clone()).await.unwrap();
    let again = client.call_tool(message.clone()).await.unwrap();
    assert_eq!((conversation_id(&again), &data(&again)["repeated"]), (conversation_id(&first), &json!(true)));
    assert_eq!(texts(&again), texts(&first));
    let start = params("order", json!({"size": "small"}), "k-2");
    let order = client.call_tool(start.clone()).await.unwrap();
    assert_eq!(texts(&client.call_tool(start).await.unwrap()), texts(&order));
    let other = connect(&server, Host::default()).await;
    let separate = other.call_tool(message).await.unwrap();
    assert_ne!(conversation_id(&separate), conversation_id(&first), "the same key in another session is another call");
}

async fn read(client: &Client, uri: &str) -> Option<String> {
    let read = client.read_resource(ReadResourceRequestParams::new(uri)).await.ok()?;
    match &read.contents[0] {
        ResourceContents::TextResourceContents { text, .. } => Some(text.clone()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn transcript_is_readable_only_by_the_session_that_started_the_conversation() {
    let assistant = assistant(&["start flow greet"]);
    let server = mcp_server(&assistant, McpServerSettings::default());
    let (owner, other) = (connect(&server, Host::default()).await, connect(&server, Host::default()).await);
    let first = call(&owner, "converse", json!({"message": "hello"})).await;
    let uri = owner.list_all_resources().await.unwrap()[0].uri.clone();
    assert_eq!(read(&owner, &uri).await.as_deref(), Some("user: hello\nassistant: Who are you?"));
    assert!(other.list_all_resources().await.unwrap().is_empty());
    call(&other, "converse", json!({"message": "/SetSlots(name=Eve)", "conversation_id": conversation_id(&first)}))
        .await;
    assert_eq!(read(&other, &uri).await, None, "not even with its id");
    assert!(read(&owner, &uri).await.unwrap().ends_with("assistant: Hello Eve!"));
}

#[tokio::test]
async fn no_elicitation_unless_the_settings_enable_it() {
    let host = Host::default();
    let client = connect(&mcp_server(&assistant(&[]), McpServerSettings::default()), host.clone()).await;
    assert_eq!(data(&call(&client, "order", json!({})).await)["question"]["slot"], "size");
    assert!(host.forms.lock().unwrap().is_empty());
}

#[tokio::test]
async fn replies_are_sent_as_progress() {
    let host = Host::default();
    let client =
        connect(&mcp_server(&assistant(&["start flow greet"]), McpServerSettings::default()), host.clone()).await;
    // rmcp's client puts a progress token into every request.
    call(&client, "converse", json!({"message": "hello"})).await;
    assert_eq!(*host.progress.lock().unwrap(), ["Who are you?"]);
}
