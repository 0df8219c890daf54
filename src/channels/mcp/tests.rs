#![allow(deprecated, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod bounds;
mod extras;
mod forms;
mod over_http;
mod stopping;

use std::sync::{Arc, Mutex};

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
    session::{IDEMPOTENCY_KEY, PREFIX},
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

/// Does nothing, or fails.
struct Act(ActionOutcome);

impl Action for Act {
    fn run<'a>(&'a self, _: &'a Conversation, _: &'a CallContext) -> futures::future::BoxFuture<'a, ActionOutcome> {
        Box::pin(std::future::ready(self.0.clone()))
    }
}

fn builder(model: Arc<dyn Llm>) -> AssistantBuilder {
    let files = [("config.yml", CONFIG), ("domain.yml", DOMAIN), ("flows/all.yml", FLOWS)];
    let done = ActionOutcome::Done { events: Vec::new() };
    Assistant::builder_from_texts(files)
        .unwrap()
        .model(model)
        .store(Arc::new(MemoryStore::default()))
        .action("action_send", Arc::new(Act(done)))
        .action("action_break", Arc::new(Act(ActionOutcome::failed("it broke".to_owned()))))
}

fn assistant(lines: &[&str]) -> Assistant {
    builder(Arc::new(ScriptedLlm::strict(lines.iter().copied()))).build().unwrap()
}

/// A host: what it was told of progress and asked, and what the person answers.
#[derive(Clone, Default)]
struct Host {
    progress: Arc<Mutex<Vec<String>>>,
    asked: Arc<Mutex<Vec<(String, Json)>>>,
    answers: Arc<Mutex<Vec<Json>>>,
    updated: Arc<Mutex<Vec<String>>>,
    logged: Arc<Mutex<Vec<Json>>>,
    cannot_ask: bool,
}

impl ClientHandler for Host {
    fn get_info(&self) -> ClientConfig {
        let capabilities = match self.cannot_ask {
            true => ClientCapabilities::default(),
            false => ClientCapabilities::builder().enable_elicitation().build(),
        };
        ClientConfig::new(capabilities, Implementation::new("host", "1"))
    }
    async fn on_progress(&self, news: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.progress.lock().unwrap().push(news.message.unwrap());
    }
    async fn on_resource_updated(&self, news: ResourceUpdatedNotificationParam, _: NotificationContext<RoleClient>) {
        self.updated.lock().unwrap().push(news.uri);
    }
    async fn on_logging_message(&self, news: LoggingMessageNotificationParam, _: NotificationContext<RoleClient>) {
        self.logged.lock().unwrap().push(news.data);
    }
    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, rmcp::ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = request else { panic!() };
        let schema = serde_json::to_value(requested_schema).unwrap();
        self.asked.lock().unwrap().push((message, schema));
        let mut answers = self.answers.lock().unwrap();
        if answers.is_empty() {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        }
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(answers.remove(0)))
    }
}

type Client = RunningService<RoleClient, Host>;

/// A server of this assistant.
fn serving(assistant: &Assistant, settings: McpServerSettings) -> Arc<McpServerState> {
    McpServerChannel::new(settings).state(assistant)
}

/// A host of a server.
async fn at(server: &Arc<McpServerState>, host: Host) -> Client {
    let (here, there) = tokio::io::duplex(64 * 1024);
    let server = server.clone();
    tokio::spawn(async move { Box::pin(server.serve(tokio::io::split(there), CancellationToken::new())).await });
    host.serve(here).await.unwrap()
}

async fn client(assistant: &Assistant, offer: McpServerSettings) -> Client {
    at(&serving(assistant, offer), Host::default()).await
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

fn talk(result: &CallToolResult) -> &str {
    data(result)["conversation_id"].as_str().unwrap()
}

#[tokio::test]
async fn flows_are_tools_with_the_values_they_take() {
    let client = client(&assistant(&["x"]), McpServerSettings::default()).await;
    let tools = client.list_all_tools().await.unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["converse", "greet", "order", "notes", "club", "broken"], "not those that only others reach");
    let schema = Json::Object((*tools[2].input_schema).clone());
    let size = json!({"type": "string", "enum": ["small", "large"], "description": "the size"});
    assert_eq!(schema["properties"]["size"], size);
    assert_eq!(schema["properties"]["count"]["type"], "number");
    assert!(schema["properties"].get("sure").is_none(), "a confirmation is the person's: {schema}");
    let reads = |at: usize| tools[at].annotations.as_ref().unwrap().read_only_hint;
    assert_eq!((reads(0), reads(1), reads(2)), (Some(false), Some(true), Some(false)));
    assert!(tools[1].description.as_ref().unwrap().starts_with("Greets somebody."));
}

#[tokio::test]
async fn a_talk_goes_on_under_its_id() {
    let client = client(&assistant(&["start flow greet", "set slot name Ada"]), McpServerSettings::default()).await;
    let first = call(&client, "converse", json!({"message": "hello"})).await;
    assert!(texts(&first).starts_with("Who are you?"), "{first:?}");
    assert_eq!(data(&first)["waiting_for_input"], true);
    assert_eq!(data(&first)["question"], json!({"slot": "name", "schema": {"type": "string"}}));
    assert!(texts(&first).contains(talk(&first)), "a model sees the texts alone");
    let second = call(&client, "converse", json!({"message": "I am Ada", "conversation_id": talk(&first)})).await;
    assert!(texts(&second).starts_with("Hello Ada!"), "{second:?}");
    assert_eq!((talk(&second), &data(&second)["waiting_for_input"]), (talk(&first), &json!(false)));
}

#[tokio::test]
async fn a_talk_of_another_channel_is_not_reached() {
    assert!(crate::channels::RESERVED_PREFIXES.contains(&PREFIX), "nor is one of this channel from another");
    let assistant = assistant(&["start flow greet"]);
    assistant.receive(IncomingMessage::text("mine", "hello", "rest"), Box::new(crate::DiscardReplies)).await.unwrap();
    let client = client(&assistant, McpServerSettings::default()).await;
    for id in ["mine", "mcp-0123", "mcp-"] {
        let refused = call(&client, "converse", json!({"message": "hello", "conversation_id": id})).await;
        assert_eq!(refused.is_error, Some(true));
        assert!(texts(&refused).contains(id) && refused.structured_content.is_none(), "{refused:?}");
    }
}

#[tokio::test]
async fn a_flow_begins_with_what_is_known_and_asks_for_the_rest() {
    let client = client(&assistant(&[]), McpServerSettings::default()).await;
    let first = call(&client, "order", json!({"size": "large"})).await;
    assert!(texts(&first).starts_with("How many?"), "{first:?}");
    let second =
        call(&client, "converse", json!({"message": "/SetSlots(count=3)", "conversation_id": talk(&first)})).await;
    assert!(
        texts(&second).starts_with("Send 3.0 large ones?") || texts(&second).starts_with("Send 3 large ones?"),
        "{second:?}"
    );
    assert_eq!(data(&second)["question"]["slot"], "sure");
    let third = call(&client, "converse", json!({"message": "yes", "conversation_id": talk(&first)})).await;
    assert!(texts(&third).starts_with("Sent."), "{third:?}");
    let wrong = call(&client, "order", json!({"size": "huge", "sure": true})).await;
    assert_eq!(wrong.is_error, Some(true));
    assert!(texts(&wrong).contains("size") && texts(&wrong).contains("sure"), "{wrong:?}");
}

#[tokio::test]
async fn a_guard_holds_for_those_who_ask() {
    let client = client(&assistant(&[]), McpServerSettings::default()).await;
    let refused = call(&client, "club", json!({})).await;
    assert_eq!(refused.is_error, Some(true));
    assert!(texts(&refused).contains("club"), "{refused:?}");
    let unknown = client.call_tool(params("inner", json!({}), "")).await;
    assert!(unknown.is_err(), "a flow for others is no tool: {unknown:?}");
}

#[tokio::test]
async fn what_breaks_is_an_error_with_an_honest_word() {
    let client = client(&assistant(&[]), McpServerSettings::default()).await;
    let broken = call(&client, "broken", json!({})).await;
    assert_eq!(broken.is_error, Some(true));
    assert!(!texts(&broken).contains("it broke") && broken.content.len() > 1, "causes are for operators: {broken:?}");
}

#[tokio::test]
async fn a_repeated_call_is_answered_once() {
    let assistant = assistant(&["start flow greet", "start flow greet"]);
    let server = serving(&assistant, McpServerSettings::default());
    let client = at(&server, Host::default()).await;
    let said = params("converse", json!({"message": "hello"}), "k-1");
    let first = client.call_tool(said.clone()).await.unwrap();
    let again = client.call_tool(said.clone()).await.unwrap();
    assert_eq!((talk(&again), &data(&again)["repeated"]), (talk(&first), &json!(true)));
    assert_eq!(texts(&again), texts(&first));
    let begun = params("order", json!({"size": "small"}), "k-2");
    let order = client.call_tool(begun.clone()).await.unwrap();
    assert_eq!(texts(&client.call_tool(begun).await.unwrap()), texts(&order));
    let other = at(&server, Host::default()).await;
    let theirs = other.call_tool(said).await.unwrap();
    assert_ne!(talk(&theirs), talk(&first), "the same key in another session is another call");
}

async fn read(client: &Client, address: &str) -> Option<String> {
    let read = client.read_resource(ReadResourceRequestParams::new(address)).await.ok()?;
    match &read.contents[0] {
        ResourceContents::TextResourceContents { text, .. } => Some(text.clone()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_transcript_is_for_the_session_that_began_the_talk() {
    let assistant = assistant(&["start flow greet"]);
    let server = serving(&assistant, McpServerSettings::default());
    let (mine, other) = (at(&server, Host::default()).await, at(&server, Host::default()).await);
    let first = call(&mine, "converse", json!({"message": "hello"})).await;
    let address = mine.list_all_resources().await.unwrap()[0].uri.clone();
    assert_eq!(read(&mine, &address).await.as_deref(), Some("user: hello\nassistant: Who are you?"));
    assert!(other.list_all_resources().await.unwrap().is_empty());
    call(&other, "converse", json!({"message": "/SetSlots(name=Eve)", "conversation_id": talk(&first)})).await;
    assert_eq!(read(&other, &address).await, None, "not even with its id");
    assert!(read(&mine, &address).await.unwrap().ends_with("assistant: Hello Eve!"));
}

#[tokio::test]
async fn nobody_is_asked_unless_it_was_wished_for() {
    let host = Host::default();
    let client = at(&serving(&assistant(&[]), McpServerSettings::default()), host.clone()).await;
    assert_eq!(data(&call(&client, "order", json!({})).await)["question"]["slot"], "size");
    assert!(host.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_is_said_on_the_way_is_progress() {
    let host = Host::default();
    let client = at(&serving(&assistant(&["start flow greet"]), McpServerSettings::default()), host.clone()).await;
    // The SDK's client puts a token for progress into every request.
    call(&client, "converse", json!({"message": "hello"})).await;
    assert_eq!(*host.progress.lock().unwrap(), ["Who are you?"]);
}
