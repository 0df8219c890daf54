//! The test harness: one run of an agent in a small project, with a scripted model.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures::future::BoxFuture;
use segue_engine::{
    conversation::{
        AgentCall, AgentKind, AgentOutcome, AgentStatus, BotKind, Conversation, Event, EventKind, FlowLocation,
        UserMessage,
    },
    ids::ConversationId,
    project::{Project, SourceFile, Sources},
    time::Timestamp,
};
use serde_json::{Map, Value as Json, json};

use crate::{
    agents::{AgentRequest, ReactAgent},
    context::CallContext,
    conversation::{DeliveryError, Receipt, ReplySink, TurnEvent},
    llm::{
        ChatResponse, FinishReason, ToolArguments, ToolCall,
        scripted::{ScriptedCall, ScriptedLlm, StrictLlm},
    },
    prompts::PromptSet,
    react::ToolNarrowing,
    testing::ManualClock,
    tools::{EffectClass, Progress, Tool, ToolCallContext, ToolInfo, ToolOutcome, ToolOutput, tool_set::ToolSet},
};

const FLOWS: &str = r#"
flows:
  search:
    description: find something
    steps:
      - call: finder
  book:
    description: book something
    steps:
      - call: finder
        exit_if:
          - slots.crossing is not null
          - slots.passengers > 0
  choose:
    description: choose a class
    steps:
      - call: finder
        exit_if: ["slots.class is not null"]
"#;
const DOMAIN: &str = r#"
slots:
  crossing: { type: text }
  passengers: { type: float }
  class: { type: categorical, values: [Deck, Cabin] }
  vehicle: { type: bool }
"#;
const ENDPOINTS: &str = r#"
mcp_servers:
  - { name: ferries, url: "http://127.0.0.1:9/mcp", type: http }
"#;

/// A project with one agent with this `configuration`.
pub(super) fn project(configuration: &str) -> Arc<Project> {
    project_with_endpoints(ENDPOINTS, configuration)
}

fn project_with_endpoints(endpoints: &str, configuration: &str) -> Arc<Project> {
    let file = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into() };
    let agent = format!(
        "agent:\n  name: finder\n  description: Finds crossings.\n{configuration}connections:\n  mcp_servers:\n    - name: ferries\n"
    );
    let mut sources = Sources {
        domain: vec![file("domain.yml", DOMAIN)],
        data: vec![file("data/flows.yml", FLOWS)],
        endpoints: Some(file("endpoints.yml", endpoints)),
        agents: vec![file("sub_agents/finder/config.yml", &agent)],
        texts: [
            ("prompts/own.jinja2".to_owned(), super::prompts::OWN.into()),
            (".agents/skills/tone/SKILL.md".to_owned(), super::skills::TONE.into()),
        ]
        .into(),
        ..Sources::default()
    };
    sources.read_skills_of_texts();
    let loaded = Project::load(&sources);
    Arc::new(loaded.project.unwrap_or_else(|| panic!("{:#?}", loaded.findings)))
}

/// The parts of one run.
pub(super) struct Harness {
    pub(super) project: Arc<Project>,
    pub(super) conversation: Conversation,
    pub(super) call: AgentCall,
    pub(super) model: Arc<StrictLlm>,
    pub(super) clock: ManualClock,
    /// Names and arguments of the calls that reached a tool.
    pub(super) tool_calls: Arc<Mutex<Vec<(String, Json)>>>,
    pub(super) sink: RecordingSink,
    pub(super) hooks: Option<Arc<dyn crate::agents::AgentHooks>>,
    pub(super) host: Arc<RecordingHost>,
    /// Whether the agent has a slow tool; the test then advances the clock.
    has_slow_tool: bool,
}

/// A host that stores records and warnings in memory, and renders a response as its name and values.
#[derive(Default)]
pub(super) struct RecordingHost {
    pub(super) records: Mutex<std::collections::BTreeMap<String, Json>>,
    pub(super) warnings: Mutex<Vec<(&'static str, String)>>,
}

impl crate::agents::AgentHost for RecordingHost {
    fn once<'a>(&'a self, cx: &'a CallContext, work: BoxFuture<'a, Json>) -> BoxFuture<'a, Option<Json>> {
        Box::pin(async move {
            let recorded = self.records.lock().unwrap().get(cx.key.as_str()).cloned();
            if recorded.is_none() {
                let recorded = work.await;
                self.records.lock().unwrap().insert(cx.key.to_string(), recorded);
            }
            recorded
        })
    }
    fn render_response(&self, response: &str, values: &Map<String, Json>, seed: u64) -> Option<Arc<str>> {
        let values: String = values.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        Some(format!("{response} {}{values}", seed % 3).into())
    }
    fn report_warning(&self, code: &'static str, message: String) {
        self.warnings.lock().unwrap().push((code, message));
    }
}

/// A sink that collects its events.
#[derive(Default)]
pub(super) struct RecordingSink {
    pub(super) events: Vec<TurnEvent>,
    pub(super) without_streaming: bool,
}

#[async_trait]
impl ReplySink for RecordingSink {
    fn wants_deltas(&self) -> bool {
        !self.without_streaming
    }
    async fn send(&mut self, event: TurnEvent, _: &CallContext) -> Result<Receipt, DeliveryError> {
        self.events.push(event);
        Ok(Receipt::Delivered)
    }
}

impl Harness {
    /// A run in which the user sends `text` to the agent that `flow` calls, and the model responds with `steps`.
    pub(super) fn new(flow: &str, configuration: &str, text: &str, steps: Vec<ScriptedCall>) -> Self {
        let project = project(configuration);
        let step = project.flow(flow).unwrap().first().unwrap().id.clone();
        let kind = if flow == "search" { AgentKind::Open } else { AgentKind::Task };
        let call = AgentCall {
            agent: "finder".into(),
            kind,
            flow_id: flow.into(),
            step_id: step,
            user_message: text.into(),
            resumed: false,
            resumed_last_request: None,
            restarted: false,
            metadata: Map::new(),
            confirmed: None,
            at: Timestamp::from_seconds(1_795_000_000.0),
        };
        let mut harness = Self {
            project,
            conversation: Conversation::new(ConversationId::from("c")),
            call,
            model: Arc::new(ScriptedLlm::strict(steps)),
            clock: ManualClock::auto_advancing(),
            tool_calls: Arc::default(),
            sink: RecordingSink::default(),
            hooks: None,
            host: Arc::default(),
            has_slow_tool: false,
        };
        harness.user(text);
        harness.apply(EventKind::AgentStarted {
            flow_id: flow.into(),
            agent_id: "finder".into(),
            context_id: None,
            restarted: false,
        });
        harness
    }
    /// A run of `search` whose server has this value of `progress_messages`.
    pub(super) fn with_progress_messages(enabled: bool, configuration: &str, steps: Vec<ScriptedCall>) -> Self {
        let endpoints = ENDPOINTS.replace("type: http", &format!("type: http, progress_messages: {enabled}"));
        Self {
            project: project_with_endpoints(&endpoints, configuration),
            ..Self::new("search", configuration, "go", steps)
        }
    }
    /// Adds a message of the user.
    pub(super) fn user(&mut self, text: &str) {
        let message = UserMessage {
            via: "".into(),
            holds_writes: false,
            before_question: false,
            text: text.into(),
            message_id: "m".into(),
            input_channel: "test".into(),
            metadata: Map::new(),
        };
        self.call.user_message = text.into();
        self.apply(EventKind::User(message));
    }
    /// Applies an event to the conversation.
    pub(super) fn apply(&mut self, kind: EventKind) {
        let event = Event { at: Timestamp::default(), kind, location: FlowLocation::default() };
        self.conversation.apply(&event);
    }
    /// Runs once, then checks that the model used all steps of its script.
    pub(super) async fn run(&mut self) -> AgentOutcome {
        let outcome = self.run_without_verify().await;
        self.model.verify().unwrap();
        outcome
    }
    /// Runs once with a slow tool, and advances the clock second by second.
    pub(super) async fn run_slowly(&mut self) -> AgentOutcome {
        (self.has_slow_tool, self.clock) = (true, ManualClock::new());
        let clock = self.clock.clone();
        let seconds = async {
            for _ in 0..200 {
                for _ in 0..50 {
                    tokio::task::yield_now().await;
                }
                clock.advance(Duration::from_secs(1));
            }
            panic!("the run does not end within 200 seconds");
        };
        tokio::select! { biased; outcome = self.run_without_verify() => outcome, () = seconds => unreachable!() }
    }
    /// Runs once and applies the events to the conversation.
    pub(super) async fn run_without_verify(&mut self) -> AgentOutcome {
        let agent = ReactAgent::new(Arc::new(PromptSet::new(|_| None).unwrap()));
        let cx = self.clock.context(Duration::from_secs(120));
        let definition = self.project.agent("finder").unwrap().clone();
        let request = AgentRequest {
            project: &self.project,
            conversation: &self.conversation,
            call: &self.call,
            definition: &definition,
            llm: self.model.clone(),
            tools: tools(&self.tool_calls, self.has_slow_tool, &self.project),
            metadata: Arc::default(),
            mcp_meta: Arc::default(),
            hooks: self.hooks.clone(),
            user_message_changed: false,
            slots: None,
            delegation: None,
            narrowing: ToolNarrowing::default(),
            host: &*self.host,
        };
        let outcome = agent.run(request, &mut self.sink, &cx).await;
        outcome.events.iter().for_each(|event| self.conversation.apply(event));
        outcome
    }
    /// The role and text of each message of the `n`th request.
    pub(super) fn request(&self, n: usize) -> Vec<(String, String)> {
        let request = &self.model.requests()[n];
        let role = |message: &Arc<crate::llm::ChatMessage>| {
            let json = serde_json::to_value(&**message).unwrap();
            (json["role"].as_str().unwrap().to_owned(), message.text().to_owned())
        };
        request.messages.iter().map(role).collect()
    }
}

/// The tools `find` (returns a crossing), `fail` (fails, or loses its connection), `other`, and if requested `slow`.
fn tools(tool_calls: &Arc<Mutex<Vec<(String, Json)>>>, has_slow_tool: bool, project: &Project) -> ToolSet {
    let mut set = ToolSet::builder();
    for (name, answer) in
        [("find", Some(json!({"crossings": ["NW-1"]}))), ("fail", None), ("other", Some(json!({"ok": true})))]
    {
        let info = info_of(name).parameters(json!({"type": "object", "properties": {"port": {"type": "string"}}}));
        let tool_calls = tool_calls.clone();
        let run = move |arguments: Json, _: ToolCallContext| {
            // With `lines`, the result has this many lines.
            let lines = arguments["lines"].as_u64().map(|lines| json!({"lines": "a line\n".repeat(lines as usize)}));
            tool_calls.lock().unwrap().push((name.to_owned(), arguments));
            let outcome = match lines.as_ref().or(answer.as_ref()) {
                Some(answer) => ToolOutcome::Done(ToolOutput::structured(answer.clone())),
                None if tool_calls
                    .lock()
                    .unwrap()
                    .last()
                    .is_some_and(|(_, arguments)| arguments["lost"] == json!(true)) =>
                {
                    ToolOutcome::without_response(
                        EffectClass::Write,
                        crate::effect::Arrival::Possible,
                        crate::tools::FailureKind::Unavailable,
                        "The connection was lost.",
                    )
                }
                None => ToolOutcome::failed(crate::tools::FailureKind::ToolError, "no such port"),
            };
            std::future::ready(outcome)
        };
        set = set.tool(Arc::new(Tool::from_fn(info, run)));
    }
    let parameters = json!({"type": "object", "properties": {"seconds": {"type": "number"}}});
    let slow = info_of("slow").parameters(parameters);
    let run = |arguments: Json, cx: ToolCallContext| async move {
        let until = cx.cx.clock.deadline(Duration::from_secs(arguments["seconds"].as_u64().unwrap_or(0)));
        if arguments["cancel"] == json!(true) {
            cx.cx.cancel.cancel();
        }
        let notifications = arguments["notifications"].as_u64().unwrap_or(0);
        for number in 1..=notifications {
            let until = cx.cx.clock.deadline(Duration::from_secs(1));
            cx.cx.clock.sleep(until).await;
            let mut progress = Progress::new(number as f64 * 10.0).total(100.0);
            progress.message = arguments["words"].as_str().map(|words| format!("{words} {number}"));
            cx.report(progress);
        }
        cx.cx.clock.sleep(until).await;
        ToolOutcome::Done(ToolOutput::structured(json!({"ok": true})))
    };
    if has_slow_tool {
        set = set.tool(Arc::new(Tool::from_fn(slow, run)));
    }
    let rules = &project.agent("finder").unwrap().rules;
    set.build().with_effects(|name| rules.tool(name)?.effect.as_deref().and_then(EffectClass::from_name))
}

fn info_of(name: &str) -> ToolInfo {
    ToolInfo::new(name, "does").effect(EffectClass::Read).source("ferries")
}

/// A response of text alone.
pub(super) fn text(text: &str) -> ScriptedCall {
    ScriptedCall::from(ChatResponse::text(text))
}

/// A response with text and calls.
pub(super) fn calls(text: &str, calls: &[(&str, Json)]) -> ScriptedCall {
    let calls = calls.iter().enumerate().map(|(at, (name, arguments))| ToolCall {
        id: format!("c{at}").into(),
        name: (*name).into(),
        arguments: ToolArguments::json(arguments.clone()),
    });
    ScriptedCall::from(ChatResponse {
        text: text.into(),
        tool_calls: calls.collect(),
        finish: FinishReason::ToolCalls,
        ..ChatResponse::default()
    })
}

/// A response whose one call has arguments that are not JSON.
pub(super) fn malformed(name: &str) -> ScriptedCall {
    let arguments =
        ToolArguments::Malformed { text: "{\"port\": ".into(), error: "EOF while parsing at column 9".into() };
    let call = ToolCall { id: "c0".into(), name: name.into(), arguments };
    ScriptedCall::from(ChatResponse {
        tool_calls: vec![call],
        finish: FinishReason::ToolCalls,
        ..ChatResponse::default()
    })
}

/// What the user saw: kind and text, in order.
pub(super) fn said(outcome: &AgentOutcome) -> Vec<(BotKind, String)> {
    let bot = |event: &Event| match &event.kind {
        EventKind::Bot(bot) => Some((bot.kind, bot.reply.text.as_deref().unwrap_or_default().to_owned())),
        _ => None,
    };
    outcome.events.iter().filter_map(bot).collect()
}

/// The slots that were set, in order.
pub(super) fn slots(outcome: &AgentOutcome) -> Vec<(String, Json)> {
    let slot = |event: &Event| match &event.kind {
        EventKind::Slot { name, value, .. } => Some((name.to_string(), value.clone())),
        _ => None,
    };
    outcome.events.iter().filter_map(slot).collect()
}

/// The code of a failed run.
pub(super) fn code(outcome: &AgentOutcome) -> &str {
    match &outcome.status {
        AgentStatus::Failed { code, .. } => code,
        other => panic!("{other:?}"),
    }
}
