//! Failures of models: which replies the user gets, which failures the turn report has, and which requests were sent.
//!
//! Each test scripts a model group, and runs turns of a flow that calls an agent. How responses of a provider become these failures is
//! tested by `crates/llm/src/conformance.rs`. `docs/reference/failure-handling.md` describes the behaviour.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use segue::{
    Assistant, ChatResponse, DiscardReplies, IncomingMessage, Llm, Toolbox,
    llm::{
        ChatMessage, FinishReason, InvalidResponse, LlmErrorKind as K, ResponseWarning, RouterConfig, ToolArguments,
        ToolCall, Usage,
        retry::RetryPolicy,
        router::{GroupMember, MemberLimits, RateLimit, Router},
    },
    runtime::AssistantBuilder,
    store::SqliteStore,
    testing::{ScriptedCall, ScriptedLlm, StrictLlm, TestAssistant},
    tools::{Tool, ToolInfo, ToolOutcome, ToolOutput},
};
use serde_json::json;

const CONFIG: &str = "
recipe: default.v1
pipeline: [{name: CompactLLMCommandGenerator}]
policies: [{name: FlowPolicy}]
";
const DOMAIN: &str = "
intents: [ask]
responses:
  utter_done: [{text: Done.}]
  utter_internal_error_rasa: [{text: Broken.}]
  utter_cannot_handle: [{text: Pardon?}]
  utter_ask_rephrase: [{text: Pardon?}]
";
const FLOWS: &str = "
flows:
  ask: {description: asks the clerk, nlu_trigger: [{intent: ask}], steps: [{call: clerk}, {action: utter_done}]}
";
const ENDPOINTS: &str = "mcp_servers: [{name: depot, type: http, url: 'http://127.0.0.1:9/mcp'}]";
const CLERK: &str = "
agent: {name: clerk, protocol: RASA, description: looks things up}
connections: {mcp_servers: [{name: depot}]}
";

/// A tool that counts its calls.
fn pay(paid: Arc<AtomicUsize>) -> Tool {
    let spec = ToolInfo::new("pay", "pays")
        .parameters(json!({
            "type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"],
        }))
        .source("depot");
    let run = move |_, _| {
        paid.fetch_add(1, Ordering::SeqCst);
        std::future::ready(ToolOutcome::Done(ToolOutput::text("paid")))
    };
    Tool::from_fn(spec, run)
}

/// The result of a turn.
#[derive(Debug)]
struct TurnResult {
    /// The complete messages that the user got.
    replies: Vec<String>,
    /// The codes of the failures in the turn report.
    codes: Vec<String>,
    /// The requests to each model of the group so far.
    requests: Vec<usize>,
    /// The calls of the tool so far.
    paid: usize,
    /// The duration by the clock of the assistant.
    duration: Duration,
}

/// An assistant with a scripted model group.
struct FailureScenario {
    test: TestAssistant,
    models: Vec<Arc<StrictLlm>>,
    paid: Arc<AtomicUsize>,
}

impl FailureScenario {
    fn new(models: Vec<Vec<ScriptedCall>>) -> Self {
        Self::with(models, |builder| builder)
    }

    fn with(models: Vec<Vec<ScriptedCall>>, set: impl FnOnce(AssistantBuilder) -> AssistantBuilder) -> Self {
        let models: Vec<Arc<StrictLlm>> =
            models.into_iter().map(|steps| Arc::new(ScriptedLlm::strict(steps))).collect();
        let member = |model: &Arc<StrictLlm>| GroupMember {
            model: model.clone(),
            max_attempts: 2,
            limits: MemberLimits::default(),
            rate_limit: RateLimit::default(),
        };
        let mut members = models.iter().map(member);
        let first = members.next().unwrap();
        let group = Router::new(first, members.collect(), RouterConfig::default(), RetryPolicy::default(), 7);
        let paid = Arc::new(AtomicUsize::new(0));
        let files = [
            ("config.yml", CONFIG),
            ("domain.yml", DOMAIN),
            ("flows/flows.yml", FLOWS),
            ("endpoints.yml", ENDPOINTS),
            ("sub_agents/clerk/config.yml", CLERK),
        ];
        let builder = Assistant::builder_from_texts(files).unwrap_or_else(|error| panic!("{error:?}"));
        let builder = builder.model(Arc::new(group) as Arc<dyn Llm>);
        let builder = builder.source(Arc::new(Toolbox::new("depot", [pay(paid.clone())])));
        Self { test: TestAssistant::build(set(builder)).unwrap(), models, paid }
    }

    async fn say(&self, text: &str) -> TurnResult {
        let clock: &dyn segue::clock::Clock = &self.test.clock;
        let start = clock.elapsed();
        let (report, collected) = self.test.send("u", text).await.unwrap();
        // The channel gets the messages that are stored.
        let stored: Vec<String> =
            report.replies.iter().map(|reply| reply.reply.text.as_deref().unwrap_or("").into()).collect();
        assert_eq!(collected.texts(), stored);
        TurnResult {
            replies: stored,
            codes: report.failures.iter().map(|failure| failure.code.clone()).collect(),
            requests: self.models.iter().map(|model| model.requests().len()).collect(),
            paid: self.paid.load(Ordering::SeqCst),
            duration: clock.elapsed() - start,
        }
    }

    /// Every scripted answer was used, and a replay gives the same events.
    async fn verify(&self) {
        for model in &self.models {
            model.verify().unwrap();
        }
        let difference = self.test.assistant.replay(&"u".into()).await.unwrap();
        assert!(difference.is_none(), "{difference:#?}");
    }
}

/// The answers of the models in the trace, newest last.
async fn traced_answers(scenario: &FailureScenario) -> Vec<serde_json::Value> {
    let trace = serde_json::to_value(scenario.test.assistant.trace(&"u".into(), None).await.unwrap()).unwrap();
    let entries = trace.as_array().unwrap().iter().flat_map(|turn| turn["entries"].as_array().unwrap());
    entries.filter(|entry| entry["effect"] == "model_response").map(|entry| entry["answer"].clone()).collect()
}

/// The texts that are stored as incomplete.
async fn incomplete_texts(scenario: &FailureScenario) -> Vec<String> {
    let turns = scenario.test.assistant.store().turns(&"u".into()).await.unwrap();
    let events = turns.iter().flat_map(|turn| &turn.events).map(|event| json!(event));
    events.filter(|event| event["cut"] == json!(true)).map(|event| event["text"].as_str().unwrap().to_owned()).collect()
}

/// Runs one turn in which the command generator gets these answers.
async fn understanding(models: Vec<Vec<ScriptedCall>>) -> TurnResult {
    let scenario = FailureScenario::new(models);
    let turn = scenario.say("please ask the clerk").await;
    scenario.verify().await;
    turn
}

/// Runs one turn in which the agent gets these answers. The flow is started before.
async fn agent(mut models: Vec<Vec<ScriptedCall>>) -> TurnResult {
    models[0].insert(0, "start flow ask".into());
    let scenario = FailureScenario::new(models);
    let turn = scenario.say("please ask the clerk").await;
    scenario.verify().await;
    turn
}

fn call(id: &str, arguments: ToolArguments) -> ToolCall {
    ToolCall { id: id.into(), name: "pay".into(), arguments }
}

fn paying(amount: i32) -> ChatResponse {
    ChatResponse::calls(vec![call("c1", ToolArguments::json(json!({"amount": amount})))])
}

fn finished(text: &str, finish: FinishReason) -> ScriptedCall {
    ChatResponse { finish, ..ChatResponse::text(text) }.into()
}

const RATE_LIMITED: K = K::RateLimited { after: Some(Duration::from_secs(3)) };
const OVERLOADED: K = K::Overloaded { after: None };

/// The error response of the pattern. It does not contain the cause.
const ERROR_RESPONSE: &[&str] = &["Broken."];

/// Checks the replies, the failure codes and the requests to each model.
#[track_caller]
fn assert_turn(turn: &TurnResult, replies: &[&str], codes: &[&str], requests: &[usize]) {
    assert_eq!(turn.replies, replies, "{turn:?}");
    assert_eq!(turn.codes, codes, "{turn:?}");
    assert_eq!(turn.requests, requests, "{turn:?}");
}

#[tokio::test]
async fn rate_limit_waits_or_falls_back() {
    let turn = agent(vec![vec![RATE_LIMITED.into(), "Hello.".into()]]).await;
    assert_turn(&turn, &["Hello."], &[], &[3]);
    assert_eq!(turn.duration, Duration::from_secs(3), "it waits as long as the provider asks for");
    let long = K::RateLimited { after: Some(Duration::from_secs(30)) };
    let turn = agent(vec![vec![long.into()], vec!["Hello.".into()]]).await;
    assert_turn(&turn, &["Hello."], &[], &[2, 1]);
    assert!(turn.duration.is_zero());
}

#[tokio::test]
async fn exhausted_quota_is_not_retried() {
    assert_turn(&understanding(vec![vec![K::QuotaExhausted.into()]]).await, ERROR_RESPONSE, &["U0501"], &[1]);
    assert_turn(&agent(vec![vec![K::QuotaExhausted.into()]]).await, ERROR_RESPONSE, &["A0503"], &[2]);
    assert_turn(&agent(vec![vec![K::QuotaExhausted.into()], vec!["Hello.".into()]]).await, &["Hello."], &[], &[2, 1]);
}

#[tokio::test]
async fn server_error_is_retried_then_falls_back_then_gives_the_error_response() {
    let turn = agent(vec![vec![OVERLOADED.into(), "Hello.".into()]]).await;
    assert_turn(&turn, &["Hello."], &[], &[3]);
    let fails = || vec![OVERLOADED.into(), OVERLOADED.into()];
    assert_turn(&understanding(vec![fails(), fails()]).await, ERROR_RESPONSE, &["U0501"], &[2, 2]);
    assert_turn(&agent(vec![fails(), fails()]).await, ERROR_RESPONSE, &["A0503"], &[3, 2]);
}

#[tokio::test]
async fn repeated_failures_open_the_circuit_breaker() {
    let fails: Vec<ScriptedCall> = (0..5).map(|_| OVERLOADED.into()).collect();
    let scenario =
        FailureScenario::new(vec![fails.into_iter().chain(["start flow ask".into(), "Hello.".into()]).collect()]);
    for requests in [2, 4, 5, 5] {
        let turn = scenario.say("please ask the clerk").await;
        assert_turn(&turn, ERROR_RESPONSE, &["U0501"], &[requests]);
    }
    scenario.test.advance(Duration::from_secs(30));
    assert_turn(&scenario.say("please ask the clerk").await, &["Hello."], &[], &[7]);
    scenario.verify().await;
}

#[tokio::test]
async fn context_overflow_is_retried_with_less_history() {
    let scenario = FailureScenario::new(vec![vec![
        "start flow ask".into(),
        "Which one?".into(),
        "continue agent".into(),
        K::ContextLengthExceeded.into(),
        "Hello.".into(),
        "continue agent".into(),
        // Without the start of the history, then with a shortened result.
        K::ContextLengthExceeded.into(),
        K::ContextLengthExceeded.into(),
        K::ContextLengthExceeded.into(),
    ]]);
    assert_turn(&scenario.say("please ask the clerk").await, &["Which one?"], &[], &[2]);
    assert_turn(&scenario.say("the second").await, &["Hello."], &[], &[5]);
    assert_turn(&scenario.say("the third").await, ERROR_RESPONSE, &["A0503"], &[9]);
    scenario.verify().await;
    assert_turn(&understanding(vec![vec![K::ContextLengthExceeded.into()]]).await, ERROR_RESPONSE, &["U0501"], &[1]);
}

#[tokio::test]
async fn configuration_errors_are_reported_to_operators_only() {
    for kind in [K::BadRequest, K::Unauthorised, K::NotFound] {
        assert_turn(&understanding(vec![vec![kind.clone().into()]]).await, ERROR_RESPONSE, &["U0501"], &[1]);
        assert_turn(&agent(vec![vec![kind.into()]]).await, ERROR_RESPONSE, &["A0503"], &[2]);
    }
    assert_turn(&agent(vec![vec![K::NotFound.into()], vec!["Hello.".into()]]).await, &["Hello."], &[], &[2, 1]);
    let error = segue::LlmError::new(K::Unauthorised).with_detail("the provider's message");
    let scenario = FailureScenario::new(vec![vec![error.into()]]);
    scenario.say("please ask the clerk").await;
    let trace = serde_json::to_string(&scenario.test.assistant.trace(&"u".into(), None).await.unwrap()).unwrap();
    assert!(trace.contains("the provider's message"), "the provider's message is in the trace");
}

#[tokio::test]
async fn connection_failure_is_retried_then_falls_back() {
    assert_turn(&agent(vec![vec![K::Unreachable.into(), "Hello.".into()]]).await, &["Hello."], &[], &[3]);
    let unreachable = || vec![K::Unreachable.into(), K::Unreachable.into()];
    assert_turn(&agent(vec![unreachable(), vec!["Hello.".into()]]).await, &["Hello."], &[], &[3, 1]);
    assert_turn(&understanding(vec![unreachable()]).await, ERROR_RESPONSE, &["U0501"], &[2]);
}

#[tokio::test]
async fn timeout_falls_back_without_retry() {
    for kind in [K::FirstTokenTimeout, K::IdleTimeout, K::CallTimeout] {
        assert_turn(&agent(vec![vec![kind.clone().into()], vec!["Hello.".into()]]).await, &["Hello."], &[], &[2, 1]);
        assert_turn(&agent(vec![vec![kind.clone().into()]]).await, ERROR_RESPONSE, &["A0503"], &[2]);
        assert_turn(&understanding(vec![vec![kind.into()]]).await, ERROR_RESPONSE, &["U0501"], &[1]);
    }
    // The time of the turn is over: no other model is tried.
    assert_turn(&agent(vec![vec![K::DeadlineExceeded.into()], vec![]]).await, ERROR_RESPONSE, &["A0505"], &[2, 0]);
}

#[tokio::test]
async fn interrupted_stream_keeps_shown_text_marked_as_incomplete() {
    let scenario = FailureScenario::new(vec![
        vec!["start flow ask".into(), ScriptedCall::failing_after("The boat leaves at", K::Truncated)],
        vec![],
    ]);
    assert_turn(&scenario.say("please ask the clerk").await, &["The boat leaves at", "Broken."], &["A0503"], &[2, 0]);
    assert_eq!(incomplete_texts(&scenario).await, ["The boat leaves at"], "only the incomplete text is marked");
}

/// In SQLite, the announcement of a reply is in a file beside the database until the turn is committed. A replay needs it.
#[tokio::test]
async fn interrupted_stream_keeps_shown_text_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(&folder.path().join("talks.db"), false).unwrap());
    let models = vec![vec![ScriptedCall::failing_after("The boat leaves at", K::Truncated)], vec![]];
    let scenario = FailureScenario::with(models, |builder| builder.store(store));
    assert_turn(&scenario.say("/ask").await, &["The boat leaves at", "Broken."], &["A0503"], &[1, 0]);
    assert_eq!(incomplete_texts(&scenario).await, ["The boat leaves at"]);
    scenario.verify().await;
}

#[tokio::test]
async fn interrupted_answer_that_was_not_shown_is_retried() {
    // Commands are parsed only when the answer is complete.
    let truncated = || ScriptedCall::failing_after("start flow", K::Truncated);
    let turn = understanding(vec![vec![truncated(), "start flow ask".into(), "Hello.".into()]]).await;
    assert_turn(&turn, &["Hello."], &[], &[3]);
    assert_turn(&understanding(vec![vec![truncated(), truncated()]]).await, ERROR_RESPONSE, &["U0501"], &[2]);
    // A channel without streaming.
    let steps = vec![
        "start flow ask".into(),
        ScriptedCall::failing_after("The boat leaves at", K::Truncated),
        "The boat leaves at six.".into(),
    ];
    let scenario = FailureScenario::new(vec![steps]);
    let report = scenario
        .test
        .assistant
        .receive(IncomingMessage::new("u", "please ask the clerk").input_channel("test"), Box::new(DiscardReplies))
        .await;
    let report = report.unwrap();
    let texts: Vec<_> = report.replies.iter().map(|reply| reply.reply.text.as_deref().unwrap()).collect();
    assert_eq!(texts, ["The boat leaves at six."]);
    scenario.verify().await;
}

#[tokio::test]
async fn truncated_tool_call_never_runs() {
    let truncated_call =
        |finish| ChatResponse { truncated_calls: vec!["pay".into()], finish, ..ChatResponse::default() };
    assert_turn(&agent(vec![vec![K::Truncated.into(), "Hello.".into()]]).await, &["Hello."], &[], &[3]);
    let has_token_limit = |request: &segue::ChatRequest| match request.max_tokens {
        Some(_) => Ok(()),
        None => Err("the request is repeated without a token limit".to_owned()),
    };
    let retry = ScriptedCall::from(paying(3)).expecting(has_token_limit);
    let turn = agent(vec![vec![truncated_call(FinishReason::Length).into(), retry, "Paid.".into()]]).await;
    assert_turn(&turn, &["Paid."], &[], &[4]);
    assert_eq!(turn.paid, 1, "only the complete call runs");
    // The token limit is doubled, wherever the first limit came from.
    let long =
        ChatResponse { usage: Usage { output: 8_192, ..Usage::default() }, ..truncated_call(FinishReason::Length) };
    let doubled = |request: &segue::ChatRequest| match request.max_tokens {
        Some(16_384) => Ok(()),
        other => Err(format!("the request is repeated with {other:?}")),
    };
    let retry = ScriptedCall::from(paying(3)).expecting(doubled);
    assert_turn(&agent(vec![vec![long.into(), retry, "Paid.".into()]]).await, &["Paid."], &[], &[4]);
    let turn = agent(vec![vec![
        truncated_call(FinishReason::Length).into(),
        truncated_call(FinishReason::Length).into(),
        "Hello.".into(),
    ]])
    .await;
    assert_eq!((turn.replies.len(), turn.paid), (1, 0), "{turn:?}");
    // A text that the token limit truncated is shown and marked as incomplete; the agent waits for the user.
    let scenario =
        FailureScenario::new(vec![vec!["start flow ask".into(), finished("The boat leaves at", FinishReason::Length)]]);
    assert_turn(&scenario.say("please ask the clerk").await, &["The boat leaves at"], &[], &[2]);
    assert_eq!(incomplete_texts(&scenario).await, ["The boat leaves at"]);
    // A text before a call is complete, even if the limit truncated the calls after it.
    let payment = ChatResponse {
        finish: FinishReason::Length,
        text: "One moment.".into(),
        truncated_calls: vec!["pay".into()],
        ..paying(3)
    };
    let scenario = FailureScenario::new(vec![vec!["start flow ask".into(), payment.into(), "Paid.".into()]]);
    scenario.say("please ask the clerk").await;
    assert!(incomplete_texts(&scenario).await.is_empty());
}

/// Runs a turn in which the agent makes these calls. Returns the tool results that the model gets, and the turn.
async fn calling(calls: Vec<ToolCall>) -> (Vec<String>, TurnResult) {
    let results = Arc::new(Mutex::new(Vec::new()));
    let recorded = results.clone();
    let record = move |request: &segue::ChatRequest| {
        let tools = request.messages.iter().filter(|message| matches!(***message, ChatMessage::Tool { .. }));
        *recorded.lock().unwrap() = tools.map(|message| message.text().to_owned()).collect();
        Ok(())
    };
    let turn =
        agent(vec![vec![ChatResponse::calls(calls).into(), ScriptedCall::from("Sorry.").expecting(record)]]).await;
    assert_turn(&turn, &["Sorry."], &[], &[3]);
    let results = results.lock().unwrap().clone();
    (results, turn)
}

#[tokio::test]
async fn invalid_json_arguments_are_reported_to_the_model() {
    let malformed = || ToolArguments::Malformed { text: "{\"amount\": ".into(), error: "EOF at column 11".into() };
    let (results, turn) = calling(vec![call("c1", malformed())]).await;
    assert!(results.len() == 1 && results[0].contains("EOF at column 11"), "{results:?}");
    assert_eq!(turn.paid, 0, "incomplete arguments are not completed");
    // After repeated failures: the error response.
    let invalid = || ChatResponse::calls(vec![call("c1", malformed())]).into();
    let turn = agent(vec![vec![invalid(), invalid(), invalid(), invalid()]]).await;
    assert_turn(&turn, ERROR_RESPONSE, &["A0502"], &[5]);
    assert_eq!(turn.paid, 0);
}

#[tokio::test]
async fn schema_errors_are_reported_to_the_model_and_other_calls_run() {
    let wrong_type = call("c1", ToolArguments::json(json!({"amount": "3"})));
    let (results, turn) = calling(vec![wrong_type, call("c2", ToolArguments::json(json!({"amount": 4})))]).await;
    assert!(results.len() == 2 && results[0].contains("/amount") && results[1].contains("paid"), "{results:?}");
    assert_eq!(turn.paid, 1, "a text is not converted to a number");
}

#[tokio::test]
async fn unknown_tool_is_reported_with_the_available_tools() {
    for name in ["launch", "Pay", "pay_", "depot__pay"] {
        let unknown = ToolCall { name: name.into(), ..call("c1", ToolArguments::json(json!({"amount": 3}))) };
        let (results, turn) = calling(vec![unknown]).await;
        assert!(results.len() == 1 && results[0].ends_with("The tools are: pay, task_completed."), "{results:?}");
        assert_eq!(turn.paid, 0, "{name} is not taken for another tool");
    }
}

#[tokio::test]
async fn two_calls_of_one_answer_each_run_once() {
    // The model client gives each call its own id and drops repeated calls; both calls run once.
    let calls = vec![
        call("c1", ToolArguments::json(json!({"amount": 1}))),
        call("c2", ToolArguments::json(json!({"amount": 2}))),
    ];
    let turn = agent(vec![vec![ChatResponse::calls(calls).into(), "Paid.".into()]]).await;
    assert_turn(&turn, &["Paid."], &[], &[3]);
    assert_eq!(turn.paid, 2);
}

#[tokio::test]
async fn response_warnings_are_in_the_trace() {
    let warnings = vec![ResponseWarning::DataAfterEnd, ResponseWarning::InvalidUnicodeReplaced];
    let scenario = FailureScenario::new(vec![vec![
        "start flow ask".into(),
        ChatResponse { warnings, ..ChatResponse::text("Hello.") }.into(),
    ]]);
    assert_turn(&scenario.say("please ask the clerk").await, &["Hello."], &[], &[2]);
    assert_eq!(traced_answers(&scenario).await.last().unwrap()["oddities"], json!(["after_end", "repaired"]));
    scenario.verify().await;
}

#[tokio::test]
async fn empty_answer_of_an_agent_is_retried_and_never_sent() {
    let blank = || finished(" \n", FinishReason::Stop);
    let turn = agent(vec![vec![blank(), "Hello.".into()]]).await;
    assert_turn(&turn, &["Hello."], &[], &[3]);
    let turn = agent(vec![vec![blank(), blank(), blank()]]).await;
    assert_turn(&turn, ERROR_RESPONSE, &["A0504"], &[4]);
}

#[tokio::test]
async fn empty_answer_for_commands_is_retried_once_with_a_hint() {
    let blank_answers = || {
        [
            finished(" \n", FinishReason::Stop),
            finished("", FinishReason::Length),
            "<think>Hm. Which flow?</think>\n".into(),
        ]
    };
    let has_hint = |request: &segue::ChatRequest| {
        let last = request.messages.last().unwrap();
        if last.text().starts_with("Your answer was empty.") { Ok(()) } else { Err(format!("{last:?}")) }
    };
    for blank in blank_answers() {
        let retry = ScriptedCall::from("start flow ask").expecting(has_hint);
        assert_turn(&understanding(vec![vec![blank, retry, "Hello.".into()]]).await, &["Hello."], &[], &[3]);
    }
    for (blank, second) in blank_answers().into_iter().zip(blank_answers()) {
        assert_turn(&understanding(vec![vec![blank, second]]).await, &["Pardon?"], &[], &[2]);
    }
    // The same while an agent is active: the user may want something else. If the second answer is empty too, the agent gets the message.
    let scenario = FailureScenario::new(vec![vec![
        "start flow ask".into(),
        "Which one?".into(),
        "".into(),
        ScriptedCall::from("cancel flow").expecting(has_hint),
    ]]);
    scenario.say("please ask the clerk").await;
    assert!(scenario.say("forget it").await.replies.iter().all(|text| text != "Hello."));
    scenario.verify().await;
    let answers = ["start flow ask", "Which one?", "", "", "Hello."];
    let scenario = FailureScenario::new(vec![answers.into_iter().map(ScriptedCall::from).collect()]);
    scenario.say("please ask the clerk").await;
    assert_turn(&scenario.say("the second").await, &["Hello."], &[], &[5]);
    scenario.verify().await;
}

#[tokio::test]
async fn content_filter_stop_is_final() {
    let filtered = |text: &str| finished(text, FinishReason::ContentFilter);
    let truncated = ChatResponse {
        truncated_calls: vec!["pay".into()],
        finish: FinishReason::ContentFilter,
        ..ChatResponse::default()
    };
    for stopped in [K::ContentFilter.into(), filtered(""), truncated.into()] {
        let turn = agent(vec![vec![stopped], vec![]]).await;
        assert_turn(&turn, ERROR_RESPONSE, &["A0503"], &[2, 0]);
        assert_eq!(turn.paid, 0);
    }
    // Text that was already streamed is kept; text that was not streamed is dropped.
    assert_turn(&agent(vec![vec![filtered("The bomb")]]).await, &["The bomb", "Broken."], &["A0503"], &[2]);
    let scenario = FailureScenario::new(vec![vec!["start flow ask".into(), filtered("The bomb")]]);
    let report = scenario
        .test
        .assistant
        .receive(IncomingMessage::new("u", "please ask the clerk").input_channel("test"), Box::new(DiscardReplies))
        .await;
    let texts: Vec<_> = report.unwrap().replies.iter().filter_map(|reply| reply.reply.text.clone()).collect();
    assert_eq!(texts.iter().map(|text| &**text).collect::<Vec<_>>(), ERROR_RESPONSE);
    scenario.verify().await;
}

#[tokio::test]
async fn commands_truncated_by_a_content_filter_are_dropped() {
    let turn = understanding(vec![vec![finished("start flow ask\nsta", FinishReason::ContentFilter)], vec![]]).await;
    assert_turn(&turn, &["Pardon?"], &[], &[1, 0]);
    assert_turn(&understanding(vec![vec![K::ContentFilter.into()], vec![]]).await, ERROR_RESPONSE, &["U0501"], &[1, 0]);
}

#[tokio::test]
async fn refusal_is_a_reply_of_an_agent_and_no_command() {
    let refusal =
        || ScriptedCall::from(ChatResponse { refusal: Some("start flow ask".into()), ..ChatResponse::default() });
    assert_turn(&agent(vec![vec![refusal()]]).await, &["start flow ask"], &[], &[2]);
    let turn = understanding(vec![vec![refusal()]]).await;
    assert_eq!((turn.replies.len(), turn.requests), (1, vec![1]), "a refusal is not parsed as commands");
}

#[tokio::test]
async fn malformed_or_oversized_answer_is_an_error() {
    let too_long = K::InvalidResponse(InvalidResponse::TextTooLong);
    assert_turn(&agent(vec![vec![too_long.clone().into()], vec!["Hello.".into()]]).await, &["Hello."], &[], &[2, 1]);
    assert_turn(&understanding(vec![vec![too_long.into()]]).await, ERROR_RESPONSE, &["U0501"], &[1]);
    // An HTML page of a gateway may be a temporary error.
    let page = || K::InvalidResponse(InvalidResponse::UnexpectedFormat);
    assert_turn(&agent(vec![vec![page().into(), "Hello.".into()]]).await, &["Hello."], &[], &[3]);
    assert_turn(&agent(vec![vec![page().into(), page().into()]]).await, ERROR_RESPONSE, &["A0503"], &[3]);
}

#[tokio::test]
async fn token_usage_is_stored_and_traced() {
    let usage = Usage { input: 100, output: 10, cached: 60, cost: Some(0.25), ..Usage::default() };
    let with_usage = |text: &str| ScriptedCall::from(ChatResponse { usage, ..ChatResponse::text(text) });
    let estimated = Usage { estimated: true, cost: None, ..usage };
    let scenario = FailureScenario::new(vec![vec![
        with_usage("start flow ask"),
        OVERLOADED.into(),
        ChatResponse { usage: estimated, ..ChatResponse::text("Which one?") }.into(),
        with_usage("continue agent"),
        with_usage("Hello."),
    ]]);
    scenario.say("please ask the clerk").await;
    scenario.say("the first").await;
    let traces = scenario.test.assistant.trace(&"u".into(), None).await.unwrap();
    let (first, second) = (&traces[0].usage.usage, &traces[1].usage.usage);
    assert_eq!((first.input, first.cached, first.cost), (200, 120, Some(0.25)));
    assert_eq!((traces[0].usage.answers, traces[1].usage.answers), (2, 2));
    assert!(first.estimated && !second.estimated, "estimated usage is marked");
    assert_eq!(second.cost, Some(0.5));
    assert_eq!((traces[1].usage_so_far.usage.input, traces[1].usage_so_far.usage.cost), (400, Some(0.75)));
    let turns = scenario.test.assistant.store().turns(&"u".into()).await.unwrap();
    let last = serde_json::to_value(turns[1].events.last().unwrap()).unwrap();
    assert_eq!((&last["event"], &last["output"]), (&json!("models_used"), &json!(20)));
    scenario.verify().await;
}

#[tokio::test]
async fn answering_model_is_recorded() {
    let warnings = vec![ResponseWarning::ModelChanged { before: "gpt-4o-2024-08-06".into() }];
    let scenario = FailureScenario::new(vec![
        vec!["start flow ask".into(), K::NotFound.into()],
        vec![ChatResponse { model: "gpt-4o-2024-11-20".into(), warnings, ..ChatResponse::text("Hello.") }.into()],
    ]);
    scenario.say("please ask the clerk").await;
    let answer = traced_answers(&scenario).await.pop().unwrap();
    assert_eq!(answer["model"], json!("gpt-4o-2024-11-20"));
    assert_eq!(
        answer["oddities"],
        json!([{"other_model": {"before": "gpt-4o-2024-08-06"}}]),
        "the warning is recorded"
    );
    assert_eq!((&answer["route"]["member"], &answer["route"]["tries"]), (&json!(1), &json!(2)));
}

#[tokio::test]
async fn commands_with_unknown_names_are_dropped() {
    let turn = understanding(vec![vec!["start flow heist".into(), "start flow heist".into()]]).await;
    assert_eq!((turn.replies.len(), turn.paid), (1, 0), "{turn:?}");
}

#[tokio::test]
async fn dropped_commands_are_in_the_trace_with_their_position() {
    let scenario = FailureScenario::new(vec![vec!["start flow ask\nset slot loot 5".into(), "Which one?".into()]]);
    scenario.say("please ask the clerk").await;
    let trace = serde_json::to_value(scenario.test.assistant.trace(&"u".into(), None).await.unwrap()).unwrap();
    let read = trace[0]["entries"].as_array().unwrap().iter().find(|entry| entry["effect"] == "commands_read").unwrap();
    assert_eq!(read["notes"], json!(["line 2, column 10: \"set slot loot 5\": there is no such slot"]));
    scenario.verify().await;
}
