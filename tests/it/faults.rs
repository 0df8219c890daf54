//! Faults of models, at the boundary of the runtime: what the user is told, what an operator finds, and what was asked.
//!
//! Each row is a world of its own: a group of models that answer or fail as the row says, a flow that asks an agent, and a
//! turn. How a wire's bytes become these failures is shown by the grid of `crates/llm/src/conformance.rs`; `docs/reference/failure-handling.md` ties both to
//! the rows of the matrix.

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
        router::{GroupMember, MemberLimits, Router},
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

/// A tool that counts how often it runs.
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

/// What came of a turn.
#[derive(Debug)]
struct Turn {
    /// Whole messages that the user got.
    told: Vec<String>,
    /// Codes of the failures that an operator finds.
    codes: Vec<String>,
    /// How often each model of the group was asked.
    asked: Vec<usize>,
    /// How often the tool ran.
    paid: usize,
    /// How long it took by the clock of the world.
    took: Duration,
}

/// The world of one row.
struct Row {
    world: TestAssistant,
    models: Vec<Arc<StrictLlm>>,
    paid: Arc<AtomicUsize>,
}

impl Row {
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
        Self { world: TestAssistant::build(set(builder)).unwrap(), models, paid }
    }

    async fn say(&self, text: &str) -> Turn {
        let clock: &dyn segue::clock::Clock = &self.world.clock;
        let began = clock.elapsed();
        let (report, collected) = self.world.send("u", text).await.unwrap();
        // What stands in the channel and what is stored are the same messages.
        let stored: Vec<String> =
            report.replies.iter().map(|reply| reply.reply.text.as_deref().unwrap_or("").into()).collect();
        assert_eq!(collected.texts(), stored);
        Turn {
            told: stored,
            codes: report.failures.iter().map(|failure| failure.code.clone()).collect(),
            asked: self.models.iter().map(|model| model.requests().len()).collect(),
            paid: self.paid.load(Ordering::SeqCst),
            took: clock.elapsed() - began,
        }
    }

    /// Every step was used, and walking the conversation again gives the same.
    async fn verify(&self) {
        for model in &self.models {
            model.verify().unwrap();
        }
        let difference = self.world.assistant.replay(&"u".into()).await.unwrap();
        assert!(difference.is_none(), "{difference:#?}");
    }
}

/// What the models said, as a trace shows it, newest last.
async fn heard(row: &Row) -> Vec<serde_json::Value> {
    let seen = serde_json::to_value(row.world.assistant.trace(&"u".into(), None).await.unwrap()).unwrap();
    let turns = seen.as_array().unwrap().iter().flat_map(|turn| turn["entries"].as_array().unwrap());
    turns.filter(|seen| seen["effect"] == "model_response").map(|seen| seen["answer"].clone()).collect()
}

/// The texts that are stored as not whole.
async fn cut(row: &Row) -> Vec<String> {
    let turns = row.world.assistant.store().turns(&"u".into()).await.unwrap();
    let events = turns.iter().flat_map(|turn| &turn.events).map(|event| json!(event));
    events.filter(|event| event["cut"] == json!(true)).map(|event| event["text"].as_str().unwrap().to_owned()).collect()
}

/// One turn in which the command generator meets these steps.
async fn understanding(models: Vec<Vec<ScriptedCall>>) -> Turn {
    let row = Row::new(models);
    let turn = row.say("please ask the clerk").await;
    row.verify().await;
    turn
}

/// One turn in which the agent meets these steps: the flow starts at once.
async fn agent(mut models: Vec<Vec<ScriptedCall>>) -> Turn {
    models[0].insert(0, "start flow ask".into());
    let row = Row::new(models);
    let turn = row.say("please ask the clerk").await;
    row.verify().await;
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

const LIMITED: K = K::RateLimited { after: Some(Duration::from_secs(3)) };
const OVERLOADED: K = K::Overloaded { after: None };

/// The one honest message: what the pattern says, and nothing of the cause.
const BROKEN: &[&str] = &["Broken."];

#[track_caller]
fn told(turn: &Turn, texts: &[&str], codes: &[&str], asked: &[usize]) {
    assert_eq!(turn.told, texts, "{turn:?}");
    assert_eq!(turn.codes, codes, "{turn:?}");
    assert_eq!(turn.asked, asked, "{turn:?}");
}

#[tokio::test]
async fn l01_a_limit_is_waited_for_or_another_model_asked() {
    let turn = agent(vec![vec![LIMITED.into(), "Hello.".into()]]).await;
    told(&turn, &["Hello."], &[], &[3]);
    assert_eq!(turn.took, Duration::from_secs(3), "as long as the vendor asks for");
    let long = K::RateLimited { after: Some(Duration::from_secs(30)) };
    let turn = agent(vec![vec![long.into()], vec!["Hello.".into()]]).await;
    told(&turn, &["Hello."], &[], &[2, 1]);
    assert!(turn.took.is_zero());
}

#[tokio::test]
async fn l02_without_quota_nothing_is_tried_again() {
    told(&understanding(vec![vec![K::QuotaExhausted.into()]]).await, BROKEN, &["U0501"], &[1]);
    told(&agent(vec![vec![K::QuotaExhausted.into()]]).await, BROKEN, &["A0503"], &[2]);
    told(&agent(vec![vec![K::QuotaExhausted.into()], vec!["Hello.".into()]]).await, &["Hello."], &[], &[2, 1]);
}

#[tokio::test]
async fn l03_a_failing_vendor_is_tried_again_then_the_next_then_the_pattern() {
    let turn = agent(vec![vec![OVERLOADED.into(), "Hello.".into()]]).await;
    told(&turn, &["Hello."], &[], &[3]);
    let fails = || vec![OVERLOADED.into(), OVERLOADED.into()];
    told(&understanding(vec![fails(), fails()]).await, BROKEN, &["U0501"], &[2, 2]);
    told(&agent(vec![fails(), fails()]).await, BROKEN, &["A0503"], &[3, 2]);
}

#[tokio::test]
async fn l03_a_vendor_that_fails_turn_after_turn_is_left_alone_and_the_answer_stays_honest() {
    let fails: Vec<ScriptedCall> = (0..5).map(|_| OVERLOADED.into()).collect();
    let row = Row::new(vec![fails.into_iter().chain(["start flow ask".into(), "Hello.".into()]).collect()]);
    for asked in [2, 4, 5, 5] {
        let turn = row.say("please ask the clerk").await;
        told(&turn, BROKEN, &["U0501"], &[asked]);
    }
    row.world.advance(Duration::from_secs(30));
    told(&row.say("please ask the clerk").await, &["Hello."], &[], &[7]);
    row.verify().await;
}

#[tokio::test]
async fn l04_a_request_that_is_too_long_is_asked_with_less_and_then_given_up() {
    let row = Row::new(vec![vec![
        "start flow ask".into(),
        "Which one?".into(),
        "continue agent".into(),
        K::ContextLengthExceeded.into(),
        "Hello.".into(),
        "continue agent".into(),
        K::ContextLengthExceeded.into(),
        K::ContextLengthExceeded.into(),
    ]]);
    told(&row.say("please ask the clerk").await, &["Which one?"], &[], &[2]);
    told(&row.say("the second").await, &["Hello."], &[], &[5]);
    told(&row.say("the third").await, BROKEN, &["A0503"], &[8]);
    row.verify().await;
    told(&understanding(vec![vec![K::ContextLengthExceeded.into()]]).await, BROKEN, &["U0501"], &[1]);
}

#[tokio::test]
async fn l05_a_wrong_configuration_is_told_to_operators_and_not_to_users() {
    for kind in [K::BadRequest, K::Unauthorised, K::NotFound] {
        told(&understanding(vec![vec![kind.clone().into()]]).await, BROKEN, &["U0501"], &[1]);
        told(&agent(vec![vec![kind.into()]]).await, BROKEN, &["A0503"], &[2]);
    }
    told(&agent(vec![vec![K::NotFound.into()], vec!["Hello.".into()]]).await, &["Hello."], &[], &[2, 1]);
    let secret = segue::LlmError::new(K::Unauthorised).with_detail("the vendor's own words");
    let row = Row::new(vec![vec![secret.into()]]);
    row.say("please ask the clerk").await;
    let seen = serde_json::to_string(&row.world.assistant.trace(&"u".into(), None).await.unwrap()).unwrap();
    assert!(seen.contains("the vendor's own words"), "operators find them in the trace");
}

#[tokio::test]
async fn l06_no_connection_is_tried_again_and_then_elsewhere() {
    told(&agent(vec![vec![K::Unreachable.into(), "Hello.".into()]]).await, &["Hello."], &[], &[3]);
    let unreachable = || vec![K::Unreachable.into(), K::Unreachable.into()];
    told(&agent(vec![unreachable(), vec!["Hello.".into()]]).await, &["Hello."], &[], &[3, 1]);
    told(&understanding(vec![unreachable()]).await, BROKEN, &["U0501"], &[2]);
}

#[tokio::test]
async fn l07_l08_silence_goes_to_the_next_model_at_once() {
    for kind in [K::FirstTokenTimeout, K::IdleTimeout, K::CallTimeout] {
        told(&agent(vec![vec![kind.clone().into()], vec!["Hello.".into()]]).await, &["Hello."], &[], &[2, 1]);
        told(&agent(vec![vec![kind.clone().into()]]).await, BROKEN, &["A0503"], &[2]);
        told(&understanding(vec![vec![kind.into()]]).await, BROKEN, &["U0501"], &[1]);
    }
    // The time of the turn is over: there is none for another.
    told(&agent(vec![vec![K::DeadlineExceeded.into()], vec![]]).await, BROKEN, &["A0505"], &[2, 0]);
}

#[tokio::test]
async fn l09_text_that_was_shown_stays_and_is_not_called_whole() {
    let row = Row::new(vec![
        vec!["start flow ask".into(), ScriptedCall::failing_after("The boat leaves at", K::Truncated)],
        vec![],
    ]);
    told(&row.say("please ask the clerk").await, &["The boat leaves at", "Broken."], &["A0503"], &[2, 0]);
    assert_eq!(cut(&row).await, ["The boat leaves at"], "what is not whole is marked, and nothing else");
}

/// There the mark of a text that nothing was decided before is beside the database until the turn is stored: a replay wants to know it.
#[tokio::test]
async fn l09_the_same_where_conversations_are_kept_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(&folder.path().join("talks.db"), false).unwrap());
    let models = vec![vec![ScriptedCall::failing_after("The boat leaves at", K::Truncated)], vec![]];
    let row = Row::with(models, |builder| builder.store(store));
    told(&row.say("/ask").await, &["The boat leaves at", "Broken."], &["A0503"], &[1, 0]);
    assert_eq!(cut(&row).await, ["The boat leaves at"]);
    row.verify().await;
}

#[tokio::test]
async fn l09_what_nobody_saw_is_asked_for_again() {
    // Commands are read only as a whole.
    let broken = || ScriptedCall::failing_after("start flow", K::Truncated);
    let turn = understanding(vec![vec![broken(), "start flow ask".into(), "Hello.".into()]]).await;
    told(&turn, &["Hello."], &[], &[3]);
    told(&understanding(vec![vec![broken(), broken()]]).await, BROKEN, &["U0501"], &[2]);
    // A channel that shows no pieces.
    let steps = vec![
        "start flow ask".into(),
        ScriptedCall::failing_after("The boat leaves at", K::Truncated),
        "The boat leaves at six.".into(),
    ];
    let row = Row::new(vec![steps]);
    let report = row
        .world
        .assistant
        .receive(IncomingMessage::text("u", "please ask the clerk", "world"), Box::new(DiscardReplies))
        .await;
    let report = report.unwrap();
    let texts: Vec<_> = report.replies.iter().map(|reply| reply.reply.text.as_deref().unwrap()).collect();
    assert_eq!(texts, ["The boat leaves at six."]);
    row.verify().await;
}

#[tokio::test]
async fn l10_l19_half_of_a_call_never_runs() {
    let lost = |finish| ChatResponse { truncated_calls: vec!["pay".into()], finish, ..ChatResponse::default() };
    told(&agent(vec![vec![K::Truncated.into(), "Hello.".into()]]).await, &["Hello."], &[], &[3]);
    let with_room = |request: &segue::ChatRequest| match request.max_tokens {
        Some(_) => Ok(()),
        None => Err("it is asked again as before".to_owned()),
    };
    let again = ScriptedCall::from(paying(3)).expecting(with_room);
    let turn = agent(vec![vec![lost(FinishReason::Length).into(), again, "Paid.".into()]]).await;
    told(&turn, &["Paid."], &[], &[4]);
    assert_eq!(turn.paid, 1, "only the call that came whole");
    // With more room than there was, whoever set the limit.
    let long = ChatResponse { usage: Usage { output: 8_192, ..Usage::default() }, ..lost(FinishReason::Length) };
    let doubled = |request: &segue::ChatRequest| match request.max_tokens {
        Some(16_384) => Ok(()),
        other => Err(format!("it is asked again with {other:?}")),
    };
    let again = ScriptedCall::from(paying(3)).expecting(doubled);
    told(&agent(vec![vec![long.into(), again, "Paid.".into()]]).await, &["Paid."], &[], &[4]);
    let turn =
        agent(vec![vec![lost(FinishReason::Length).into(), lost(FinishReason::Length).into(), "Hello.".into()]]).await;
    assert_eq!((turn.told.len(), turn.paid), (1, 0), "{turn:?}");
    // Text that the limit cut is shown as it is and marked, and the agent waits for what the user says.
    let row = Row::new(vec![vec!["start flow ask".into(), finished("The boat leaves at", FinishReason::Length)]]);
    told(&row.say("please ask the clerk").await, &["The boat leaves at"], &[], &[2]);
    assert_eq!(cut(&row).await, ["The boat leaves at"]);
    // Text before a call is whole, wherever the limit fell after it.
    let pays = ChatResponse {
        finish: FinishReason::Length,
        text: "One moment.".into(),
        truncated_calls: vec!["pay".into()],
        ..paying(3)
    };
    let row = Row::new(vec![vec!["start flow ask".into(), pays.into(), "Paid.".into()]]);
    row.say("please ask the clerk").await;
    assert!(cut(&row).await.is_empty());
}

/// An agent makes these calls; what it is told of each, what the user hears, and how often the tool ran.
async fn calling(calls: Vec<ToolCall>) -> (Vec<String>, Turn) {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = kept.clone();
    let listens = move |request: &segue::ChatRequest| {
        let tools = request.messages.iter().filter(|message| matches!(***message, ChatMessage::Tool { .. }));
        *keep.lock().unwrap() = tools.map(|message| message.text().to_owned()).collect();
        Ok(())
    };
    let turn =
        agent(vec![vec![ChatResponse::calls(calls).into(), ScriptedCall::from("Sorry.").expecting(listens)]]).await;
    told(&turn, &["Sorry."], &[], &[3]);
    let told = kept.lock().unwrap().clone();
    (told, turn)
}

#[tokio::test]
async fn l11_arguments_that_are_no_json_are_told_with_the_place() {
    let malformed = || ToolArguments::Malformed { text: "{\"amount\": ".into(), error: "EOF at column 11".into() };
    let (told, turn) = calling(vec![call("c1", malformed())]).await;
    assert!(told.len() == 1 && told[0].contains("EOF at column 11"), "{told:?}");
    assert_eq!(turn.paid, 0, "no brace is closed for it");
    // Again and again: the honest pattern.
    let again = || ChatResponse::calls(vec![call("c1", malformed())]).into();
    let turn = agent(vec![vec![again(), again(), again(), again()]]).await;
    self::told(&turn, BROKEN, &["A0502"], &[5]);
    assert_eq!(turn.paid, 0);
}

#[tokio::test]
async fn l12_arguments_against_the_schema_are_told_and_calls_beside_them_run() {
    let misfit = call("c1", ToolArguments::json(json!({"amount": "3"})));
    let (told, turn) = calling(vec![misfit, call("c2", ToolArguments::json(json!({"amount": 4})))]).await;
    assert!(told.len() == 2 && told[0].contains("/amount") && told[1].contains("paid"), "{told:?}");
    assert_eq!(turn.paid, 1, "nothing is made a number that is none");
}

#[tokio::test]
async fn l13_a_tool_that_is_not_there_is_told_with_those_that_are() {
    for name in ["launch", "Pay", "pay_", "depot__pay"] {
        let unknown = ToolCall { name: name.into(), ..call("c1", ToolArguments::json(json!({"amount": 3}))) };
        let (told, turn) = calling(vec![unknown]).await;
        assert!(told.len() == 1 && told[0].ends_with("The tools are: pay, task_completed."), "{told:?}");
        assert_eq!(turn.paid, 0, "{name} is not taken for another");
    }
}

#[tokio::test]
async fn l14_one_id_for_two_calls_and_the_same_call_twice() {
    // The wire gives each call an id of its own and drops repetitions; both run once.
    let calls = vec![
        call("c1", ToolArguments::json(json!({"amount": 1}))),
        call("c2", ToolArguments::json(json!({"amount": 2}))),
    ];
    let turn = agent(vec![vec![ChatResponse::calls(calls).into(), "Paid.".into()]]).await;
    told(&turn, &["Paid."], &[], &[3]);
    assert_eq!(turn.paid, 2);
}

#[tokio::test]
async fn l15_l21_what_was_strange_about_an_answer_stands_in_the_trace() {
    let warnings = vec![ResponseWarning::DataAfterEnd, ResponseWarning::InvalidUnicodeReplaced];
    let row =
        Row::new(vec![vec!["start flow ask".into(), ChatResponse { warnings, ..ChatResponse::text("Hello.") }.into()]]);
    told(&row.say("please ask the clerk").await, &["Hello."], &[], &[2]);
    assert_eq!(heard(&row).await.last().unwrap()["oddities"], json!(["after_end", "repaired"]));
    row.verify().await;
}

#[tokio::test]
async fn l16_nothing_said_is_asked_again_and_never_an_empty_message() {
    let blank = || finished(" \n", FinishReason::Stop);
    let turn = agent(vec![vec![blank(), "Hello.".into()]]).await;
    told(&turn, &["Hello."], &[], &[3]);
    let turn = agent(vec![vec![blank(), blank(), blank()]]).await;
    told(&turn, BROKEN, &["A0504"], &[4]);
}

#[tokio::test]
async fn l16_no_commands_at_all_are_asked_for_once_more_with_a_nudge() {
    let blanks = || {
        [
            finished(" \n", FinishReason::Stop),
            finished("", FinishReason::Length),
            "<think>Hm. Which flow?</think>\n".into(),
        ]
    };
    let nudged = |request: &segue::ChatRequest| {
        let last = request.messages.last().unwrap();
        if last.text().starts_with("Your answer was empty.") { Ok(()) } else { Err(format!("{last:?}")) }
    };
    for blank in blanks() {
        let again = ScriptedCall::from("start flow ask").expecting(nudged);
        told(&understanding(vec![vec![blank, again, "Hello.".into()]]).await, &["Hello."], &[], &[3]);
    }
    for (blank, still) in blanks().into_iter().zip(blanks()) {
        told(&understanding(vec![vec![blank, still]]).await, &["Pardon?"], &[], &[2]);
    }
    // In the middle of an agent's task too: the wish may be another one. Only then the message is for the agent.
    let row = Row::new(vec![vec![
        "start flow ask".into(),
        "Which one?".into(),
        "".into(),
        ScriptedCall::from("cancel flow").expecting(nudged),
    ]]);
    row.say("please ask the clerk").await;
    assert!(row.say("forget it").await.told.iter().all(|text| text != "Hello."));
    row.verify().await;
    let answers = ["start flow ask", "Which one?", "", "", "Hello."];
    let row = Row::new(vec![answers.into_iter().map(ScriptedCall::from).collect()]);
    row.say("please ask the clerk").await;
    told(&row.say("the second").await, &["Hello."], &[], &[5]);
    row.verify().await;
}

#[tokio::test]
async fn l17_what_the_vendors_filter_stops_is_not_got_round() {
    let filtered = |text: &str| finished(text, FinishReason::ContentFilter);
    let lost = ChatResponse {
        truncated_calls: vec!["pay".into()],
        finish: FinishReason::ContentFilter,
        ..ChatResponse::default()
    };
    for stopped in [K::ContentFilter.into(), filtered(""), lost.into()] {
        let turn = agent(vec![vec![stopped], vec![]]).await;
        told(&turn, BROKEN, &["A0503"], &[2, 0]);
        assert_eq!(turn.paid, 0);
    }
    // What was shown before it stepped in stays; what was not is not said.
    told(&agent(vec![vec![filtered("The bomb")]]).await, &["The bomb", "Broken."], &["A0503"], &[2]);
    let row = Row::new(vec![vec!["start flow ask".into(), filtered("The bomb")]]);
    let sent = row
        .world
        .assistant
        .receive(IncomingMessage::text("u", "please ask the clerk", "world"), Box::new(DiscardReplies))
        .await;
    let texts: Vec<_> = sent.unwrap().replies.iter().filter_map(|reply| reply.reply.text.clone()).collect();
    assert_eq!(texts.iter().map(|text| &**text).collect::<Vec<_>>(), BROKEN);
    row.verify().await;
}

#[tokio::test]
async fn l17_commands_that_the_vendors_filter_cut_are_none() {
    let turn = understanding(vec![vec![finished("start flow ask\nsta", FinishReason::ContentFilter)], vec![]]).await;
    told(&turn, &["Pardon?"], &[], &[1, 0]);
    told(&understanding(vec![vec![K::ContentFilter.into()], vec![]]).await, BROKEN, &["U0501"], &[1, 0]);
}

#[tokio::test]
async fn l18_a_refusal_is_an_answer_of_an_agent_and_no_command() {
    let refusal =
        || ScriptedCall::from(ChatResponse { refusal: Some("start flow ask".into()), ..ChatResponse::default() });
    told(&agent(vec![vec![refusal()]]).await, &["start flow ask"], &[], &[2]);
    let turn = understanding(vec![vec![refusal()]]).await;
    assert_eq!((turn.told.len(), turn.asked), (1, vec![1]), "not read as a command");
}

#[tokio::test]
async fn l20_l22_an_answer_that_breaks_the_rules_is_no_answer() {
    let too_much = K::InvalidResponse(InvalidResponse::TextTooLong);
    told(&agent(vec![vec![too_much.clone().into()], vec!["Hello.".into()]]).await, &["Hello."], &[], &[2, 1]);
    told(&understanding(vec![vec![too_much.into()]]).await, BROKEN, &["U0501"], &[1]);
    // A gateway's page may be gone the next time.
    let page = || K::InvalidResponse(InvalidResponse::UnexpectedFormat);
    told(&agent(vec![vec![page().into(), "Hello.".into()]]).await, &["Hello."], &[], &[3]);
    told(&agent(vec![vec![page().into(), page().into()]]).await, BROKEN, &["A0503"], &[3]);
}

#[tokio::test]
async fn l24_what_a_turn_used_is_stored_and_shown() {
    let usage = Usage { input: 100, output: 10, cached: 60, cost: Some(0.25), ..Usage::default() };
    let used = |text: &str| ScriptedCall::from(ChatResponse { usage, ..ChatResponse::text(text) });
    let guessed = Usage { estimated: true, cost: None, ..usage };
    let row = Row::new(vec![vec![
        used("start flow ask"),
        OVERLOADED.into(),
        ChatResponse { usage: guessed, ..ChatResponse::text("Which one?") }.into(),
        used("continue agent"),
        used("Hello."),
    ]]);
    row.say("please ask the clerk").await;
    row.say("the first").await;
    let traces = row.world.assistant.trace(&"u".into(), None).await.unwrap();
    let (first, second) = (&traces[0].usage.usage, &traces[1].usage.usage);
    assert_eq!((first.input, first.cached, first.cost), (200, 120, Some(0.25)));
    assert_eq!((traces[0].usage.answers, traces[1].usage.answers), (2, 2));
    assert!(first.estimated && !second.estimated, "a figure that was guessed says so");
    assert_eq!(second.cost, Some(0.5));
    assert_eq!((traces[1].usage_so_far.usage.input, traces[1].usage_so_far.usage.cost), (400, Some(0.75)));
    let turns = row.world.assistant.store().turns(&"u".into()).await.unwrap();
    let last = serde_json::to_value(turns[1].events.last().unwrap()).unwrap();
    assert_eq!((&last["event"], &last["output"]), (&json!("models_used"), &json!(20)));
    row.verify().await;
}

#[tokio::test]
async fn l25_the_model_that_answered_stands_in_the_record() {
    let warnings = vec![ResponseWarning::ModelChanged { before: "gpt-4o-2024-08-06".into() }];
    let row = Row::new(vec![
        vec!["start flow ask".into(), K::NotFound.into()],
        vec![ChatResponse { model: "gpt-4o-2024-11-20".into(), warnings, ..ChatResponse::text("Hello.") }.into()],
    ]);
    row.say("please ask the clerk").await;
    let answer = heard(&row).await.pop().unwrap();
    assert_eq!(answer["model"], json!("gpt-4o-2024-11-20"));
    assert_eq!(answer["oddities"], json!([{"other_model": {"before": "gpt-4o-2024-08-06"}}]), "with the warning");
    assert_eq!((&answer["route"]["member"], &answer["route"]["tries"]), (&json!(1), &json!(2)));
}

#[tokio::test]
async fn l26_commands_that_name_what_is_not_there_do_nothing() {
    let turn = understanding(vec![vec!["start flow heist".into(), "start flow heist".into()]]).await;
    assert_eq!((turn.told.len(), turn.paid), (1, 0), "{turn:?}");
}

#[tokio::test]
async fn l26_what_is_left_out_of_an_answer_stands_in_the_trace_with_its_place() {
    let row = Row::new(vec![vec!["start flow ask\nset slot loot 5".into(), "Which one?".into()]]);
    row.say("please ask the clerk").await;
    let trace = serde_json::to_value(row.world.assistant.trace(&"u".into(), None).await.unwrap()).unwrap();
    let read = trace[0]["entries"].as_array().unwrap().iter().find(|seen| seen["effect"] == "commands_read").unwrap();
    assert_eq!(read["notes"], json!(["line 2, column 10: \"set slot loot 5\": there is no such slot"]));
    row.verify().await;
}
