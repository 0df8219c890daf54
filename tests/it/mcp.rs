//! MCP servers at the boundary of the runtime: what a fault of theirs does to a conversation (the rows of `docs/faults.md`),
//! and what they may ask and offer. Each row: what the user hears, once and honestly, and what the operator is told.

mod asks;
mod auth;
mod far;
mod faults;
mod progress;
mod web;

use std::sync::{Arc, Mutex};

use far::Far;
use futures::future::BoxFuture;
use segue::{
    Assistant, AssistantBuilder, CallContext, ChatRequest, ChatResponse, ChatStream, DiscardReplies, IncomingMessage,
    Llm, LlmError, ModelProfile, TurnReport,
    clock::Clock,
    http::HttpClients,
    llm::{FinishReason, Purpose, ToolArguments, ToolCall},
    project::Project,
    tools::mcp::{McpEnvironment, McpServer},
};
use serde_json::json;

const CONFIG: &str = "
recipe: default.v1
pipeline: [{name: CompactLLMCommandGenerator}]
policies: [{name: FlowPolicy}]
";
const DOMAIN: &str = "
version: '3.1'
intents: [work, look, ask]
slots:
  said: {type: text, mappings: [{type: controlled}]}
  home: {type: text, initial_value: 'ada@example.org', mappings: [{type: controlled}]}
  mail: {type: text, mappings: [{type: from_text}]}
  seats: {type: float, mappings: [{type: from_llm}]}
responses:
  utter_said: [{text: 'It said {said}.'}]
  utter_internal_error_rasa: [{text: Broken.}]
  utter_outcome_unknown: [{text: 'It may have happened.'}]
  utter_ask_mail: [{text: 'Which address?'}]
  utter_ask_seats: [{text: 'How many seats?'}]
";
const FLOWS: &str = "
flows:
  work:
    description: works
    nlu_trigger: [{intent: work}]
    steps:
      - call: work
        mcp_server: far
        mapping: {input: [], output: [{slot: said, value: result.text}]}
      - action: utter_said
  look:
    description: looks
    nlu_trigger: [{intent: look}]
    steps:
      - call: look
        mcp_server: far
        mapping: {input: [], output: [{slot: said, value: result.text}]}
      - action: utter_said
  ask: {description: asks the clerk, nlu_trigger: [{intent: ask}], steps: [{call: clerk}]}
  pattern_completed: {name: done, description: nothing is said, steps: [{noop: true, next: END}]}
";
const CLERK: &str = "
agent: {name: clerk, protocol: RASA, description: looks things up}
connections: {mcp_servers: [{name: far}]}
";

/// A project with the server `far`, whose entry says this besides.
fn project(entry: &str) -> Project {
    project_with(entry, "")
}

/// The same, with an agent whose `configuration` holds this.
fn project_with(entry: &str, agent: &str) -> Project {
    let clerk = format!("{CLERK}configuration: {{{agent}}}\n");
    let endpoints = format!("mcp_servers: [{{name: far, trust_annotations: true, {entry}}}]");
    let files = [
        ("config.yml", CONFIG),
        ("domain.yml", DOMAIN),
        ("flows/flows.yml", FLOWS),
        ("endpoints.yml", &endpoints),
        ("sub_agents/clerk/config.yml", &clerk),
    ];
    let mut sources = segue::project::from_texts(files).texts;
    sources.environment.insert("FAR_SECRET".into(), "s3cret".into());
    let loaded = Project::load(&sources);
    loaded.project.unwrap_or_else(|| panic!("{:?}", loaded.findings))
}

fn builder(entry: &str) -> AssistantBuilder {
    AssistantBuilder::new(Arc::new(project(entry)), ".".into())
}

/// What the clerk's model was asked.
#[derive(Clone, Default)]
struct Clerk(Arc<Mutex<Vec<ChatRequest>>>);

impl Clerk {
    /// What it was told of its calls.
    fn told(&self) -> Vec<String> {
        let requests = self.0.lock().unwrap();
        let last = requests.iter().rfind(|request| request.purpose == Purpose::AGENT);
        let tools = last.into_iter().flat_map(|request| &request.messages);
        tools
            .filter(|message| matches!(***message, segue::llm::ChatMessage::Tool { .. }))
            .map(|m| m.text().to_owned())
            .collect()
    }
    /// The tools that it was offered.
    fn offered(&self) -> Vec<(String, String)> {
        let requests = self.0.lock().unwrap();
        let first = requests.iter().find(|request| request.purpose == Purpose::AGENT).unwrap();
        first.tools.iter().map(|tool| (tool.name.to_string(), tool.description.to_string())).collect()
    }
}

/// Calls `work` once with the arguments of the newest `call:` of the message, then tells what it was told.
impl Llm for Clerk {
    fn profile(&self) -> &ModelProfile {
        static PROFILE: std::sync::OnceLock<ModelProfile> = std::sync::OnceLock::new();
        PROFILE.get_or_init(|| ModelProfile::for_model("openai", "gpt-4o"))
    }
    fn chat<'a>(&'a self, request: ChatRequest, _: &'a CallContext) -> BoxFuture<'a, Result<ChatStream, LlmError>> {
        let answer = match request.purpose.as_str() {
            "agent" => {
                let told = request.messages.last().filter(|m| matches!(***m, segue::llm::ChatMessage::Tool { .. }));
                match told {
                    Some(told) => ChatResponse::text(format!("I was told: {}", told.text())),
                    None => {
                        let name = if request.tools.iter().any(|tool| &*tool.name == "work") {
                            "work"
                        } else {
                            "read_resource"
                        };
                        let arguments = if name == "work" { json!({}) } else { json!({"uri": "notes://1"}) };
                        let call =
                            ToolCall { id: "c0".into(), name: name.into(), arguments: ToolArguments::json(arguments) };
                        ChatResponse { finish: FinishReason::ToolCalls, ..ChatResponse::calls(vec![call]) }
                    }
                }
            }
            "sampling" => ChatResponse::text(format!("sampled {}", request.messages.last().unwrap().text())),
            "commands" => {
                let prompt = request.messages.last().unwrap().text();
                let newest = prompt.rsplit("# Newest message of the person\n").next().unwrap();
                ChatResponse::text(if newest.contains("never mind") { "cancel flow" } else { "cannot handle" })
            }
            other => panic!("nobody should ask for {other}"),
        };
        self.0.lock().unwrap().push(request);
        Box::pin(std::future::ready(Ok(ChatStream::from_response(answer))))
    }
}

/// An assistant, and what its model heard.
struct Talk {
    assistant: Assistant,
    clerk: Clerk,
}

impl Talk {
    /// With this server over pipes, on its time.
    fn with(far: &Far, entry: &str) -> Self {
        Self::pacing(far, entry, "")
    }
    /// The same, with an agent whose `configuration` holds this.
    fn pacing(far: &Far, entry: &str, agent: &str) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(far.clock.clone());
        let project = project_with(&format!("type: stdio, command: far, {entry}"), agent);
        let def = &project.endpoints.mcp_servers["far"];
        let server = Arc::new(McpServer::in_process(def, far.pipes(), around(clock.clone())));
        Self::of(AssistantBuilder::new(Arc::new(project), ".".into()).source(server).clock(clock))
    }
    /// With whatever the entry names.
    fn of(builder: AssistantBuilder) -> Self {
        let clerk = Clerk::default();
        let assistant = builder.model(Arc::new(clerk.clone())).seeds(|| 7).build().unwrap();
        Self { assistant, clerk }
    }
    async fn hear(&self, text: &str) -> TurnReport {
        self.assistant.receive(IncomingMessage::text("u", text, "world"), Box::new(DiscardReplies)).await.unwrap()
    }
    /// What the user hears, and what the operator is told.
    async fn say(&self, text: &str) -> (Vec<String>, String) {
        let report = self.hear(text).await;
        let replies =
            report.replies.iter().filter_map(|reply| reply.reply.text.as_deref().map(str::to_owned)).collect();
        let told = report.failures.iter().map(|failure| format!("{}: {}", failure.code, failure.reason));
        (replies, told.collect::<Vec<_>>().join("\n"))
    }
    /// The user hears one message that owns up, and the operator hears these words.
    async fn breaks(&self, text: &str, why: &str) {
        self.ends(text, "Broken.", why).await;
    }
    /// The user hears once that it may have happened, and the operator hears these words.
    async fn is_in_doubt(&self, text: &str, why: &str) {
        self.ends(text, "It may have happened.", why).await;
    }
    async fn ends(&self, text: &str, said: &str, why: &str) {
        let (replies, told) = self.say(text).await;
        assert_eq!(replies, [said], "one honest message: {told}");
        assert!(told.starts_with("T0502: far.") && told.contains(why), "`{why}` is not in: {told}");
    }
    /// The tool answers.
    async fn works(&self, text: &str, said: &str) {
        let (replies, told) = self.say(text).await;
        assert_eq!((replies, told), (vec![format!("It said {said}.")], String::new()));
    }
}

fn around(clock: Arc<dyn Clock>) -> McpEnvironment {
    McpEnvironment {
        clock,
        http: HttpClients::new(),
        program: env!("CARGO_BIN_EXE_segue").into(),
        directory: None,
        variables: Arc::from([]),
        logins: None,
    }
}
