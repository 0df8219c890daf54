//! The limits of a running assistant, each reached, and what is said then.

mod admission;
mod connections;
mod held;
mod recovery;
mod turns;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

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

/// A project of flows that work, and of an agent with this configuration.
fn builder(agent: &str) -> AssistantBuilder {
    builder_with(agent, "")
}

/// The same with more in its endpoints.yml.
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
    builder.model(Arc::new(Model(AtomicUsize::new(0)))).source(Arc::new(Toolbox::new("depot", [look_up()])))
}

fn look_up() -> Tool {
    let spec = ToolInfo::new("look_up", "looks")
        .parameters(json!({"type": "object", "properties": {}}))
        .effect(EffectClass::Read)
        .source("depot");
    let run = |_, _| std::future::ready(ToolOutcome::Done(ToolOutput::text("nothing")));
    Tool::from_fn(spec, run)
}

/// Calls of a model that one run of the clerk takes.
const CALLS_OF_A_RUN: usize = 11;

/// Starts the flow that the message names; as the clerk it looks up ten times and is done with the eleventh answer.
struct Model(AtomicUsize);

impl Llm for Model {
    fn profile(&self) -> &ModelProfile {
        static PROFILE: std::sync::OnceLock<ModelProfile> = std::sync::OnceLock::new();
        PROFILE.get_or_init(|| ModelProfile::for_model("openai", "gpt-4o"))
    }
    fn chat<'a>(&'a self, request: ChatRequest, _: &'a CallContext) -> BoxFuture<'a, Result<ChatStream, LlmError>> {
        let answer = if request.purpose == Purpose::COMMANDS {
            let prompt = request.messages.last().unwrap().text();
            let newest = prompt.rsplit("# Newest message of the person\n").next().unwrap();
            ChatResponse::text(format!("start flow {}", newest.lines().next().unwrap().trim_matches('"')))
        } else {
            let is_last = self.0.fetch_add(1, Ordering::SeqCst) % CALLS_OF_A_RUN == CALLS_OF_A_RUN - 1;
            let (text, name) = if is_last { ("There.", "task_completed") } else { ("", "look_up") };
            let call = ToolCall { id: "c0".into(), name: name.into(), arguments: ToolArguments::json(json!({})) };
            ChatResponse { text: text.into(), finish: FinishReason::ToolCalls, ..ChatResponse::calls(vec![call]) }
        };
        Box::pin(std::future::ready(Ok(ChatStream::from_response(answer))))
    }
}

/// Work that lasts until it is let through.
struct Work {
    gate: Semaphore,
    begun: AtomicUsize,
}

impl Work {
    fn new(through: usize) -> Arc<Self> {
        Arc::new(Self { gate: Semaphore::new(through), begun: AtomicUsize::new(0) })
    }
    fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }
    /// Waits until so much work has begun.
    async fn until(&self, begun: usize) {
        until(|| self.begun() >= begun).await;
    }
}

impl Action for Work {
    fn run<'a>(&'a self, _: &'a Conversation, _: &'a CallContext) -> BoxFuture<'a, ActionOutcome> {
        Box::pin(async {
            self.begun.fetch_add(1, Ordering::SeqCst);
            self.gate.acquire().await.unwrap().forget();
            ActionOutcome::Done { events: Vec::new() }
        })
    }
}

/// Lets everybody work until something holds.
async fn until(holds: impl Fn() -> bool) {
    for _ in 0..1_000_000 {
        if holds() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it never holds");
}

/// Lets everybody work who can.
async fn settle() {
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
    }
}

fn say(assistant: &Assistant, conversation: &str, text: &str) -> BoxFuture<'static, Result<TurnReport, ReceiveError>> {
    let (assistant, incoming) = (assistant.clone(), IncomingMessage::text(conversation, text, "test"));
    Box::pin(async move { assistant.receive(incoming, Box::new(DiscardReplies)).await })
}

fn texts(report: &TurnReport) -> Vec<&str> {
    report.replies.iter().filter_map(|reply| reply.reply.text.as_deref()).collect()
}

/// The codes and reasons of a report.
fn failures(report: &TurnReport) -> Json {
    report.failures.iter().map(|failure| json!([failure.code, failure.reason])).collect()
}

/// An assistant whose time stands still, with this work.
fn still(work: &Arc<Work>) -> (Assistant, ManualClock) {
    let clock = ManualClock::new();
    let builder = builder("").action("action_work", work.clone()).clock(Arc::new(clock.clone()));
    (builder.build().unwrap(), clock)
}

/// How often somebody began to wait for so long.
fn waits(clock: &ManualClock, length: Duration) -> usize {
    clock.slept().iter().filter(|slept| **slept == length).count()
}
