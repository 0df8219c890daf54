//! The limits of a running assistant: each test reaches one and checks what happens then.

mod admission;
mod connections;
mod recovery;
mod timeouts;
mod turns;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::future::BoxFuture;
use segue::{
    Action, ActionOutcome, Assistant, AssistantBuilder, CallContext, ChatRequest, ChatResponse, ChatStream,
    Conversation, DiscardReplies, IncomingMessage, Llm, LlmError, ModelProfile, ReceiveError, Toolbox, TurnReport,
    llm::{FinishReason, Purpose, ToolArguments, ToolCall},
    testing::ManualClock,
    tools::{EffectClass, Tool, ToolInfo, ToolOutcome, ToolOutput},
};
use serde_json::{Value as Json, json};
use tokio::sync::Semaphore;

const CONFIG: &str = "
recipe: default.v1
pipeline: [{name: CompactLLMCommandGenerator, user_input: {max_characters: -1}}]
policies: [{name: FlowPolicy}]
";
const DOMAIN: &str = "
actions: [action_work]
responses: {utter_done: [{text: Done.}], utter_internal_error_rasa: [{text: Broken.}]}
";
const FLOWS: &str = "
flows:
  work: {description: works, steps: [{action: action_work}, {action: utter_done}]}
  circle:
    description: works without end
    steps: [{id: again, action: action_work, next: again, on_error: again}]
  ask: {description: asks the clerk, steps: [{call: clerk}, {action: utter_done}]}
  ask_often:
    description: asks the clerk four times
    steps: [{call: clerk}, {call: clerk}, {call: clerk}, {call: clerk}, {action: utter_done}]
";
const ENDPOINTS: &str = "mcp_servers: [{name: depot, type: http, url: 'http://127.0.0.1:9/mcp'}]";

/// A project with flows that run the action `action_work`, and an agent with this configuration.
fn builder(agent: &str) -> AssistantBuilder {
    builder_with(agent, "")
}

/// The same with more lines in `endpoints.yml`.
fn builder_with(agent: &str, endpoints: &str) -> AssistantBuilder {
    let endpoints = format!("{ENDPOINTS}\n{endpoints}");
    let agent = format!(
        "agent: {{name: clerk, protocol: RASA, description: looks things up}}\n\
         configuration: {{{agent}}}\nconnections: {{mcp_servers: [{{name: depot}}]}}\n"
    );
    let files = [
        ("config.yml", CONFIG),
        ("domain.yml", DOMAIN),
        ("flows/flows.yml", FLOWS),
        ("endpoints.yml", &endpoints),
        ("sub_agents/clerk/config.yml", &agent),
    ];
    let builder = Assistant::builder_from_texts(files).unwrap_or_else(|error| panic!("{error:?}"));
    builder.model(Arc::new(FlowAndAgentModel(AtomicUsize::new(0)))).source(Arc::new(Toolbox::new("depot", [look_up()])))
}

fn look_up() -> Tool {
    let spec = ToolInfo::new("look_up", "looks")
        .parameters(json!({"type": "object", "properties": {}}))
        .effect(EffectClass::Read)
        .source("depot");
    let run = |_, _| std::future::ready(ToolOutcome::Done(ToolOutput::text("nothing")));
    Tool::from_fn(spec, run)
}

/// The model calls of one run of the agent.
const MODEL_CALLS_PER_RUN: usize = 11;

/// A model. It starts the flow that the message names. In the agent it calls a tool ten times and completes the task with the eleventh
/// answer.
struct FlowAndAgentModel(AtomicUsize);

#[async_trait]
impl Llm for FlowAndAgentModel {
    fn profile(&self) -> &ModelProfile {
        static PROFILE: std::sync::OnceLock<ModelProfile> = std::sync::OnceLock::new();
        PROFILE.get_or_init(|| ModelProfile::for_model("openai", "gpt-4o"))
    }
    async fn chat(&self, request: ChatRequest, _: &CallContext) -> Result<ChatStream, LlmError> {
        let answer = if request.purpose == Purpose::COMMANDS {
            let prompt = request.messages.last().unwrap().text();
            let newest = prompt.rsplit("# Newest message of the person\n").next().unwrap();
            ChatResponse::text(format!("start flow {}", newest.lines().next().unwrap().trim_matches('"')))
        } else {
            let is_last = self.0.fetch_add(1, Ordering::SeqCst) % MODEL_CALLS_PER_RUN == MODEL_CALLS_PER_RUN - 1;
            let (text, name) = if is_last { ("There.", "task_completed") } else { ("", "look_up") };
            let call = ToolCall { id: "c0".into(), name: name.into(), arguments: ToolArguments::json(json!({})) };
            ChatResponse { text: text.into(), finish: FinishReason::ToolCalls, ..ChatResponse::calls(vec![call]) }
        };
        Ok(ChatStream::from_response(answer))
    }
}

/// An action that waits for a permit. It counts its starts.
struct BlockingAction {
    permits: Semaphore,
    started: AtomicUsize,
}

impl BlockingAction {
    fn new(permits: usize) -> Arc<Self> {
        Arc::new(Self { permits: Semaphore::new(permits), started: AtomicUsize::new(0) })
    }
    /// How often the action has started.
    fn started(&self) -> usize {
        self.started.load(Ordering::SeqCst)
    }
    /// Waits until the action has started so often.
    async fn wait_until_started(&self, count: usize) {
        wait_until(|| self.started() >= count).await;
    }
}

#[async_trait]
impl Action for BlockingAction {
    async fn run(&self, _: &Conversation, _: &CallContext) -> ActionOutcome {
        self.started.fetch_add(1, Ordering::SeqCst);
        self.permits.acquire().await.unwrap().forget();
        ActionOutcome::Done { events: Vec::new() }
    }
}

/// Lets the other tasks run until a condition holds.
async fn wait_until(condition: impl Fn() -> bool) {
    for _ in 0..1_000_000 {
        if condition() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the condition never holds");
}

/// Yields so often that the other tasks reach their next wait.
async fn run_other_tasks() {
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
    }
}

fn say(assistant: &Assistant, conversation: &str, text: &str) -> BoxFuture<'static, Result<TurnReport, ReceiveError>> {
    let (assistant, incoming) = (assistant.clone(), IncomingMessage::new(conversation, text).input_channel("test"));
    Box::pin(async move { assistant.receive(incoming, Box::new(DiscardReplies)).await })
}

fn texts(report: &TurnReport) -> Vec<&str> {
    report.replies.iter().filter_map(|reply| reply.reply.text.as_deref()).collect()
}

/// The codes and reasons of a report.
fn failures(report: &TurnReport) -> Json {
    report.failures.iter().map(|failure| json!([failure.code, failure.reason])).collect()
}

/// An assistant with this action and a manual clock.
fn assistant_with_manual_clock(work: &Arc<BlockingAction>) -> (Assistant, ManualClock) {
    let clock = ManualClock::new();
    let builder = builder("").action("action_work", work.clone()).clock(Arc::new(clock.clone()));
    (builder.build().unwrap(), clock)
}

/// How often a wait of this length was started.
fn sleep_count(clock: &ManualClock, length: Duration) -> usize {
    clock.slept().iter().filter(|slept| **slept == length).count()
}
