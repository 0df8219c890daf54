//! MCP servers in a conversation: failures of servers (`docs/reference/failure-handling.md`), authorization, sessions, progress, and requests of servers. The
//! tests check the replies that the user gets and the failures in the turn report.

mod authorization;
mod elicitation_and_sampling;
mod failures;
mod fake_server;
mod http_sessions;
mod progress;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use fake_server::FakeMcpServer;
use segue::{
    Assistant, AssistantBuilder, CallContext, ChatRequest, ChatResponse, ChatStream, DiscardReplies, IncomingMessage,
    Llm, LlmError, ModelProfile, TurnReport,
    clock::Clock,
    llm::{FinishReason, Purpose, ToolArguments, ToolCall},
    project::Project,
    tools::mcp::McpServer,
};
use serde_json::json;

use crate::support::{
    project_files::{CONFIG, SILENT_COMPLETION, TOOL_RESULT_DOMAIN, tool_flow},
    starter::mcp_environment,
};

const DOMAIN: &str = "
version: '3.1'
intents: [work, look, ask]
slots:
  home: {type: text, initial_value: 'ada@example.org', mappings: [{type: controlled}]}
  mail: {type: text, mappings: [{type: from_text}]}
  seats: {type: float, mappings: [{type: from_llm}]}
responses:
  utter_ask_mail: [{text: 'Which address?'}]
  utter_ask_seats: [{text: 'How many seats?'}]
";
const ASK_FLOW: &str = "  ask: {description: asks the clerk, nlu_trigger: [{intent: ask}], steps: [{call: clerk}]}\n";
const CLERK: &str = "
agent: {name: clerk, protocol: RASA, description: looks things up}
connections: {mcp_servers: [{name: remote}]}
";

/// A project with the MCP server `remote`; `entry` is the rest of its entry in `endpoints.yml`.
fn project(entry: &str) -> Project {
    project_with(entry, "")
}

/// The same with this `configuration` of the agent.
fn project_with(entry: &str, agent: &str) -> Project {
    let clerk = format!("{CLERK}configuration: {{{agent}}}\n");
    let endpoints = format!("mcp_servers: [{{name: remote, trust_annotations: true, {entry}}}]");
    let [work, look] = ["work", "look"].map(|tool| tool_flow(tool, "remote", ""));
    let flows = format!("flows:{work}{look}{ASK_FLOW}{SILENT_COMPLETION}");
    let files = [
        CONFIG,
        TOOL_RESULT_DOMAIN,
        ("domain/domain.yml", DOMAIN),
        ("flows/flows.yml", &flows),
        ("endpoints.yml", &endpoints),
        ("sub_agents/clerk/config.yml", &clerk),
    ];
    let mut sources = segue::project::from_texts(files).sources;
    sources.environment.insert("SERVER_SECRET".into(), "s3cret".into());
    let loaded = Project::load(&sources);
    loaded.project.unwrap_or_else(|| panic!("{:?}", loaded.findings))
}

fn builder(entry: &str) -> AssistantBuilder {
    AssistantBuilder::new(Arc::new(project(entry)), ".".into())
}

/// The model of the tests, which records its requests. In the agent it calls the tool `work` once, or `read_resource` if there is no
/// `work`, and then replies with the tool result.
#[derive(Clone, Default)]
struct RecordingModel(Arc<Mutex<Vec<ChatRequest>>>);

impl RecordingModel {
    /// The tool results in the last request of the agent.
    fn tool_results(&self) -> Vec<String> {
        let requests = self.0.lock().unwrap();
        let last = requests.iter().rfind(|request| request.purpose == Purpose::AGENT);
        let messages = last.into_iter().flat_map(|request| &request.messages);
        messages
            .filter(|message| matches!(***message, segue::llm::ChatMessage::Tool { .. }))
            .map(|m| m.text().to_owned())
            .collect()
    }
    /// The names and descriptions of the tools in the first request of the agent.
    fn offered_tools(&self) -> Vec<(String, String)> {
        let requests = self.0.lock().unwrap();
        let first = requests.iter().find(|request| request.purpose == Purpose::AGENT).unwrap();
        first.tools.iter().map(|tool| (tool.name.to_string(), tool.description.to_string())).collect()
    }
}

#[async_trait]
impl Llm for RecordingModel {
    fn profile(&self) -> &ModelProfile {
        static PROFILE: std::sync::OnceLock<ModelProfile> = std::sync::OnceLock::new();
        PROFILE.get_or_init(|| ModelProfile::for_model("openai", "gpt-4o"))
    }
    async fn chat(&self, request: ChatRequest, _: &CallContext) -> Result<ChatStream, LlmError> {
        let answer = match request.purpose.as_str() {
            "agent" => {
                let result = request.messages.last().filter(|m| matches!(***m, segue::llm::ChatMessage::Tool { .. }));
                match result {
                    Some(result) => ChatResponse::text(format!("The result: {}", result.text())),
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
            other => panic!("unexpected purpose {other}"),
        };
        self.0.lock().unwrap().push(request);
        Ok(ChatStream::from_response(answer))
    }
}

/// An assistant and its model.
struct TestConversation {
    assistant: Assistant,
    model: RecordingModel,
}

impl TestConversation {
    /// With this server over pipes, and its clock.
    fn with(server: &FakeMcpServer, entry: &str) -> Self {
        Self::with_agent(server, entry, "")
    }
    /// The same with this `configuration` of the agent.
    fn with_agent(fake: &FakeMcpServer, entry: &str, agent: &str) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(fake.clock.clone());
        let project = project_with(&format!("type: stdio, command: remote, {entry}"), agent);
        let def = &project.endpoints.mcp_servers["remote"];
        let server = Arc::new(McpServer::in_process(def, fake.pipes(), mcp_environment(clock.clone())));
        Self::of(AssistantBuilder::new(Arc::new(project), ".".into()).source(server).clock(clock))
    }
    /// With the servers of the builder's project.
    fn of(builder: AssistantBuilder) -> Self {
        let model = RecordingModel::default();
        let assistant = builder.model(Arc::new(model.clone())).seeds(|| 7).build().unwrap();
        Self { assistant, model }
    }
    async fn send(&self, text: &str) -> TurnReport {
        self.assistant
            .receive(IncomingMessage::new("u", text).input_channel("test"), Box::new(DiscardReplies))
            .await
            .unwrap()
    }
    /// Says something. Returns the replies, and the failures as lines `code: reason`.
    async fn say(&self, text: &str) -> (Vec<String>, String) {
        let report = self.send(text).await;
        let replies =
            report.replies.iter().filter_map(|reply| reply.reply.text.as_deref().map(str::to_owned)).collect();
        let failures = report.failures.iter().map(|failure| format!("{}: {}", failure.code, failure.reason));
        (replies, failures.collect::<Vec<_>>().join("\n"))
    }
    /// The turn fails: the user gets one error response, and the failure contains `reason`.
    async fn assert_fails(&self, text: &str, reason: &str) {
        self.assert_reply_and_failure(text, "Broken.", reason).await;
    }
    /// The outcome is unknown: the user gets one reply that says so, and the failure contains `reason`.
    async fn assert_unknown(&self, text: &str, reason: &str) {
        self.assert_reply_and_failure(text, "It may have happened.", reason).await;
    }
    async fn assert_reply_and_failure(&self, text: &str, reply: &str, reason: &str) {
        let (replies, failures) = self.say(text).await;
        assert_eq!(replies, [reply], "one reply: {failures}");
        let is_expected = failures.starts_with("T0502: remote.") && failures.contains(reason);
        assert!(is_expected, "`{reason}` is not in: {failures}");
    }
    /// The tool returns `result`.
    async fn assert_succeeds(&self, text: &str, result: &str) {
        let (replies, failures) = self.say(text).await;
        assert_eq!((replies, failures), (vec![format!("It said {result}.")], String::new()));
    }
}
