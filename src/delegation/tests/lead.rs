//! A whole assistant whose agent delegates.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use segue_engine::conversation::EventKind;
use serde_json::{Value as Json, json};

use super::harness::{Collected, Script, call, plain_tools, say, task};
use crate::{
    delegation::DelegationSettings,
    llm::{ChatMessage, ChatRequest, LlmErrorKind},
    runtime::{Assistant, AssistantBuilder, IncomingMessage, TurnReport},
    testing::{CollectingSink, ManualClock},
    tools::Tool,
};

pub(super) const FILES: [(&str, &str); 4] = [
    (
        "config.yml",
        "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n",
    ),
    // The session does not expire while a delegate works.
    ("domain.yml", "responses: {utter_hello: [{text: Hello.}]}\nsession_config: {session_expiration_time: 0}\n"),
    (
        "data/flows.yml",
        "flows:\n  survey: {description: looks things up, run_pattern_completed: false, steps: [{call: desk}]}\n",
    ),
    (
        "sub_agents/desk/config.yml",
        "agent: {name: desk, protocol: RASA, description: Looks things up.}\nconnections: {mcp_servers: []}\n",
    ),
];

pub(super) struct Lead {
    pub(super) assistant: Assistant,
    pub(super) clock: ManualClock,
    pub(super) model: Arc<Script>,
    pub(super) events: Arc<Collected>,
    pub(super) called: Arc<Mutex<Vec<String>>>,
}

impl Lead {
    pub(super) fn new(model: Arc<Script>, settings: DelegationSettings) -> Self {
        Self::build(Assistant::builder_from_texts(FILES).unwrap().delegation("desk", settings), model)
    }
    /// With these files in place of those of the same name.
    fn of_files(files: &[(&str, &str)], model: Arc<Script>) -> Self {
        let kept = FILES.into_iter().filter(|(name, _)| files.iter().all(|(other, _)| other != name));
        Self::build(Assistant::builder_from_texts(kept.chain(files.iter().copied())).unwrap(), model)
    }
    pub(super) fn build(builder: AssistantBuilder, model: Arc<Script>) -> Self {
        Self::with_clock(builder, model, ManualClock::new())
    }
    pub(super) fn with_clock(builder: AssistantBuilder, model: Arc<Script>, clock: ManualClock) -> Self {
        let (events, called) = (Arc::new(Collected::default()), Arc::default());
        let mut builder =
            builder.model(model.clone()).clock(Arc::new(clock.clone())).seeds(|| 7).task_events(events.clone());
        for tool in plain_tools(&called) {
            builder = builder.tool("desk", Tool::from_handler(tool));
        }
        Self { assistant: builder.build().unwrap(), clock, model, events, called }
    }

    /// Says something, advances the clock second by second, and calls `each` in between.
    pub(super) async fn say(&self, text: &str, each: impl Fn(&Self)) -> TurnReport {
        let message = IncomingMessage::new("u", text).input_channel("test");
        let turn = self.assistant.receive(message, Box::new(CollectingSink::streaming()));
        let seconds = async {
            for _ in 0..2_000 {
                for _ in 0..50 {
                    tokio::task::yield_now().await;
                }
                each(self);
                self.clock.advance(Duration::from_secs(1));
            }
            panic!("the turn does not end");
        };
        tokio::select! { biased; report = turn => report.unwrap(), () = seconds => unreachable!() }
    }
}

pub(super) fn results(request: &ChatRequest) -> Vec<String> {
    let result = |message: &Arc<ChatMessage>| match &**message {
        ChatMessage::Tool { text, .. } => Some(text.to_string()),
        _ => None,
    };
    request.messages.iter().filter_map(result).collect()
}

#[tokio::test]
async fn five_delegates_with_limit_three_end_in_five_ways_and_the_lead_goes_on() {
    let mut data = task("prices");
    data["output_schema"] =
        json!({"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]});
    let calls = [task("slow"), task("stuck"), task("broken"), data, task("plain")].map(|arguments| ("task", arguments));
    let model = Script::new([
        ("commands: ", vec![say("start flow survey"), say("continue agent")]),
        ("agent: go", vec![call("", &calls), say("Here is what I have.")]),
        ("agent: and?", vec![say("Nothing new.")]),
        ("delegate: slow", vec![call("Found two so far.", &[("hang", json!({}))])]),
        ("delegate: stuck", vec![call("", &[("hang", json!({}))])]),
        ("delegate: broken", vec![Err(LlmErrorKind::Unreachable)]),
        (
            "delegate: prices",
            vec![
                call("", &[("submit_result", json!({"price": "much"}))]),
                call("", &[("submit_result", json!({"price": 7.5}))]),
            ],
        ),
        ("delegate: plain", vec![call("", &[("find", json!({}))]), say("It is blue.")]),
    ]);
    let lead = Lead::new(model, DelegationSettings::default());
    let most = Mutex::new(0);
    let report = lead
        .say("go", |lead| {
            let delegations = lead.assistant.delegations();
            let mut most = most.lock().unwrap();
            *most = (*most).max(delegations.counts().0);
            let stuck = delegations.running().into_iter().find(|child| &*child.description == "look at stuck");
            if let Some(stuck) = stuck.filter(|_| crate::clock::Clock::elapsed(&lead.clock) > Duration::from_secs(100))
            {
                assert!(delegations.cancel(&stuck.id));
            }
        })
        .await;
    assert_eq!(report.texts(), ["Here is what I have."]);
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    assert!(*most.lock().unwrap() <= 3);
    let second = &lead.model.requests("agent: go")[1];
    assert_eq!(
        results(second),
        [
            "Task timed out. Error: Execution timed out after 900 seconds Partial result: Found two so far.",
            "Task cancelled by user.",
            "Task failed. Error: The model of the sub-agent failed",
            r#"Task Succeeded. Result: {"price":7.5}"#,
            "Task Succeeded. Result: It is blue.",
        ]
    );
    let events = lead.events.all();
    let of = |kind: &str| -> Vec<Json> { events.iter().filter(|event| event["type"] == kind).cloned().collect() };
    assert_eq!(of("task_queued").len(), 5);
    let started: Vec<Json> = of("task_started").iter().map(|event| event["description"].clone()).collect();
    let expected = ["slow", "stuck", "broken", "prices", "plain"].map(|name| json!(format!("look at {name}")));
    assert_eq!(started, expected, "in the order of the calls");
    for queued in of("task_queued") {
        let ends = events.iter().filter(|event| {
            let kind = event["type"].as_str().unwrap();
            event["task_id"] == queued["task_id"] && !["task_queued", "task_started", "task_running"].contains(&kind)
        });
        assert_eq!(ends.count(), 1, "{queued}");
    }
    let difference = lead.assistant.replay(&"u".into()).await.unwrap();
    assert!(difference.is_none(), "{difference:?}");
    // Ten of delegates, two of the agent, one of the command generator.
    let stored = lead.assistant.store().turns(&"u".into()).await.unwrap();
    let used = stored[0].events.iter().find_map(|event| match &event.kind {
        EventKind::ModelsUsed(used) => Some(used.answers),
        _ => None,
    });
    assert_eq!(used, Some(9));

    let report = lead.say("and?", |_| {}).await;
    assert_eq!(report.texts(), ["Nothing new."]);
    let request = &lead.model.requests("agent: and?")[0];
    let ledger = request.messages.iter().find(|message| message.text().starts_with("# Sub-agents so far")).unwrap();
    let lines: Vec<&str> = ledger.text().lines().collect();
    assert_eq!(lines.len(), 6);
    assert!(lines[1].contains("look at plain") && lines[5].contains("timed_out"), "{lines:?}");
    let difference = lead.assistant.replay(&"u".into()).await.unwrap();
    assert!(difference.is_none(), "{difference:?}");
}

#[tokio::test]
async fn a_lead_reads_types_and_policy_and_its_tools_have_no_reserved_name() {
    let model = Script::new([("commands: ", vec![say("start flow survey")]), ("agent: go", vec![say("What?")])]);
    let mut settings = DelegationSettings::default();
    let mut analysis = settings.types[0].clone();
    (analysis.name, analysis.preset) = ("analysis".into(), None);
    analysis.description = Some("Reads tables.\n# New rules\u{200b} \"quoted\"".into());
    settings.types.insert("analysis".into(), analysis);
    let lead = Lead::new(model, settings);
    lead.say("go", |_| {}).await;
    let request = &lead.model.requests("agent: go")[0];
    let policy = request.messages[1].text();
    assert!(policy.starts_with("# Sub-agents"), "{policy}");
    assert!(policy.contains("- general-purpose: independent work"));
    assert!(policy.contains(r#"- analysis: "Reads tables. # New rules \"quoted\"""#), "{policy}");
    assert!(policy.contains("At most 3 sub-agents run at the same time") && policy.contains("At most 6"));
    let tool = request.tools.iter().find(|tool| &*tool.name == "task").unwrap();
    let properties: Vec<&String> = tool.parameters["properties"].as_object().unwrap().keys().collect();
    assert_eq!(
        properties,
        ["description", "prompt", "subagent_type", "max_turns", "output_schema", "acceptance_criteria"]
    );
    assert_eq!(tool.parameters["properties"]["subagent_type"]["description"], "One of: general-purpose, analysis");
}

const SUBAGENTS: &str = "
subagents:
  types:
    prices:
      description: Compares prices.
      system_prompt: You compare prices.
      tools: [find, write]
      output: {price: {type: number, required: true}}
";

#[tokio::test]
async fn settings_come_from_the_files_and_rules_of_the_lead_keep_tools_from_delegates() {
    let agent = "
agent: {name: desk, protocol: RASA, description: Looks things up.}
configuration: {tools: {write: {confirm: true}}}
connections: {mcp_servers: []}
delegation: {types: [prices], max_total: 1}
";
    let mut arguments = task("prices");
    arguments["subagent_type"] = json!("prices");
    let model = Script::new([
        ("commands: ", vec![say("start flow survey")]),
        ("agent: go", vec![call("", &[("task", arguments.clone()), ("task", arguments)]), say("Here.")]),
        ("delegate: prices", vec![call("", &[("submit_result", json!({"price": 3}))])]),
    ]);
    let files = [("sub_agents/desk/config.yml", agent), ("subagents.yml", SUBAGENTS)];
    let lead = Lead::of_files(&files, model);
    assert_eq!(lead.say("go", |_| {}).await.texts(), ["Here."]);
    let request = &lead.model.requests("delegate: prices")[0];
    assert!(request.messages[0].text().contains("# Your role\nYou compare prices."), "{:?}", request.messages[0]);
    let tools: Vec<&str> = request.tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(tools, ["find", "submit_result"], "`write` needs the user's confirmation");
    let results = results(&lead.model.requests("agent: go")[1]);
    assert_eq!(results[0], r#"Task Succeeded. Result: {"price":3}"#);
    assert!(results[1].contains("Limit: at most 1 sub-agent in one turn"), "{results:?}");
}

#[tokio::test]
async fn a_lead_answers_without_tools_when_the_budget_of_its_run_is_spent() {
    let agent = "
agent: {name: desk, protocol: RASA, description: Looks things up.}
connections: {mcp_servers: []}
delegation: {budget: {tokens: 50}}
";
    let model = Script::new([
        ("commands: ", vec![say("start flow survey")]),
        ("agent: go", vec![call("", &[("task", task("a")), ("task", task("b"))]), say("This is what I have.")]),
        ("delegate: a", vec![call("", &[("find", json!({}))]), say("A.")]),
        ("delegate: b", vec![call("B so far.", &[("find", json!({}))]), call("B later.", &[("find", json!({}))])]),
    ]);
    let lead = Lead::of_files(&[("sub_agents/desk/config.yml", agent)], model);
    assert_eq!(lead.say("go", |_| {}).await.texts(), ["This is what I have."]);
    let requests = lead.model.requests("agent: go");
    assert!(requests[0].messages[1].text().contains("share one budget per turn: 50 tokens."), "{:?}", requests[0]);
    assert!(requests[1].tools.is_empty());
    let told = requests[1].messages.last().unwrap().text();
    assert!(told.starts_with("The budget of this task is spent"), "{told}");
    let used: usize =
        ["agent: go", "delegate: a", "delegate: b"].map(|scene| lead.model.requests(scene).len()).iter().sum();
    assert_eq!(used, 5, "four responses spend 60 of 50 tokens, and one more is the answer");
    let difference = lead.assistant.replay(&"u".into()).await.unwrap();
    assert!(difference.is_none(), "{difference:?}");
}

#[tokio::test]
async fn a_filler_says_the_description_of_a_slow_delegate() {
    let agent = "
agent: {name: desk, protocol: RASA, description: Looks things up.}
connections: {mcp_servers: []}
configuration: {enable_filler_messages: true, filler_after: 3}
delegation: {enabled: true}
";
    let model = Script::new([
        ("commands: ", vec![say("start flow survey")]),
        ("agent: go", vec![call("", &[("task", task("slow"))]), say("Here.")]),
        ("delegate: slow", vec![call("", &[("hang", json!({}))])]),
    ]);
    let lead = Lead::of_files(&[("sub_agents/desk/config.yml", agent)], model);
    let report = lead.say("go", |_| {}).await;
    assert_eq!(report.texts().first(), Some(&"Still on it: look at slow"), "{:?}", report.texts());
    assert_eq!(report.texts().last(), Some(&"Here."));
}

#[test]
fn delegation_for_an_unknown_agent_is_refused() {
    let builder = Assistant::builder_from_texts(FILES).unwrap().delegation("desks", DelegationSettings::default());
    assert!(builder.model(Script::new([])).build().is_err_and(|error| error.to_string().contains("`desks`")));
}
