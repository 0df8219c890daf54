//! The loop with its services: a scripted model, and a host without a conversation.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use segue_engine::{
    conversation::{AgentStatus, BotKind},
    project::BudgetLimits,
};
use serde_json::{Value as Json, json};

use super::*;
use crate::{
    conversation::DiscardReplies,
    limits,
    llm::{
        DropReason, FinishReason, Purpose, ToolArguments, Usage,
        scripted::{ScriptedCall, ScriptedLlm, StrictLlm},
    },
    react::healer::tests::{PROMPTS, call},
    testing::ManualClock,
    tools::{EffectClass, Tool, ToolCallContext, ToolInfo, ToolOutcome, ToolOutput},
};

struct TestHost {
    model: Arc<StrictLlm>,
    facts: KeptFacts,
    compactions: Vec<CompactionReport>,
    refused: usize,
}

#[async_trait]
impl LoopHost for TestHost {
    async fn messages(&mut self, state: &LoopState, _: &CallContext) -> Result<Messages, AgentStatus> {
        Ok(state.messages.clone())
    }
    async fn call_model(&mut self, request: ChatRequest, cx: &CallContext) -> ModelTurn {
        stream_answer(&*self.model, &"agent:test".into(), request, None, &mut DiscardReplies, cx).await
    }
    async fn kept_facts(&mut self, _: &LoopState, _: &CallContext) -> KeptFacts {
        self.facts.clone()
    }
    fn compacted(&mut self, report: &CompactionReport, _: &CallContext) {
        self.compactions.push(*report);
    }
    fn is_control(&self, call: &ToolCall) -> bool {
        &*call.name == "done"
    }
    fn completes(&self, call: &ToolCall) -> bool {
        &*call.name == "done"
    }
    async fn control(&mut self, _: &ToolCall, _: &BatchSummary, _: &CallContext) -> ControlResult {
        ControlResult { text: "noted".into(), effect: ControlEffect::Completed }
    }
    fn call_refused(&mut self, _: &ToolCall, _: &str, _: &CallContext) {
        self.refused += 1;
    }
    fn tool_context(&self, at: usize, _: &ToolCall, cx: &CallContext) -> ToolCallContext {
        ToolCallContext::new(cx.step(format!("tool.{at}")), "c", "key")
    }
}

/// A loop in which the model gives these responses. `find` answers 30 items.
struct Run {
    profile: LoopProfile,
    host: TestHost,
    tools: ToolSet,
    offered: ToolList,
    state: LoopState,
}

impl Run {
    fn new(bare_text: BareText, responses: Vec<ScriptedCall>) -> Self {
        Self::with_tools(bare_text, responses, Vec::new())
    }

    fn with_tools(bare_text: BareText, responses: Vec<ScriptedCall>, more: Vec<Tool>) -> Self {
        let find = Tool::from_fn(ToolInfo::new("find", "Finds").effect(EffectClass::Read), |_, _| async move {
            let item = |at: usize| json!({"id": at, "note": "n".repeat(100)});
            let items = json!((0..30).map(item).collect::<Vec<Json>>());
            ToolOutcome::Done(ToolOutput::structured(items))
        });
        let mut builder = ToolSet::builder();
        for tool in [find].into_iter().chain(more) {
            builder = builder.tool(Arc::new(tool));
        }
        let tools = builder.build();
        let spec = |name: &str| crate::llm::ToolSpec {
            name: name.into(),
            description: "".into(),
            parameters: Arc::new(json!({"type": "object"})),
            strict: false,
        };
        let offered = tools.infos().map(|info| spec(&info.name)).chain([spec("done")]).collect();
        Self {
            profile: LoopProfile {
                purpose: Purpose::AGENT,
                bare_text,
                closing_message: false,
                max_model_calls: 20,
                max_failed_answers: 3,
                fails_on_tool_error: false,
                tool_timeout: None,
                text_beside_calls: BotKind::Intermediate,
            },
            host: TestHost {
                model: Arc::new(ScriptedLlm::strict(responses)),
                facts: KeptFacts::default(),
                compactions: Vec::new(),
                refused: 0,
            },
            tools,
            offered,
            state: LoopState { messages: vec![ChatMessage::user("Find a ferry.")], ..LoopState::default() },
        }
    }

    async fn run(&mut self, services: LoopServices) -> LoopEnd {
        let clock = ManualClock::auto_advancing();
        let mut run = ReactLoop {
            profile: &self.profile,
            prompts: &PROMPTS,
            offered: self.offered.clone(),
            tools: &self.tools,
            host: &mut self.host,
            state: std::mem::take(&mut self.state),
            services,
        };
        let end = run.run(&clock.context(Duration::from_secs(600))).await;
        self.state = run.state;
        self.host.model.verify().unwrap();
        end
    }

    /// Roles and texts of the messages of a request.
    fn request(&self, at: usize) -> Vec<(String, String)> {
        let messages = &self.host.model.requests()[at].messages;
        let role = |message: &ChatMessage| serde_json::to_value(message).unwrap()["role"].as_str().unwrap().to_owned();
        messages.iter().map(|message| (role(message), message.text().to_owned())).collect()
    }
}

fn calls(id: usize, input: u64, calls: &[(&str, Json)]) -> ScriptedCall {
    let calls =
        calls.iter().enumerate().map(|(at, (name, arguments))| call(&format!("c{id}_{at}"), name, arguments.clone()));
    ChatResponse {
        tool_calls: calls.collect(),
        finish: FinishReason::ToolCalls,
        usage: Usage { input, ..Usage::default() },
        ..ChatResponse::default()
    }
    .into()
}

fn same(count: usize) -> Vec<ScriptedCall> {
    (0..count).map(|at| calls(at, 10, &[("find", json!({"port": "Arnvik"}))])).collect()
}

#[tokio::test]
async fn repeated_calls_are_warned_about_then_refused_and_the_model_must_answer() {
    let mut responses = same(5);
    responses.push("There is no ferry.".into());
    let mut run = Run::new(BareText::Final, responses);
    let end = run.run(LoopServices::default()).await;
    assert_eq!((end.status, end.cap.map(Cap::label)), (AgentStatus::Finished, Some("loop_capped")));
    assert_eq!(&*end.last.unwrap().0.text, "There is no ferry.");
    // The warning comes after the result of the third call.
    let request = run.request(3);
    let tail: Vec<&str> = request[request.len() - 3..].iter().map(|(role, _)| &**role).collect();
    assert_eq!(tail, ["assistant", "tool", "system"]);
    assert!(request.last().unwrap().1.starts_with("You have made the same call 3 times (find)."));
    let request = run.request(5);
    assert!(request[request.len() - 2].1.starts_with("error: refused: "), "{request:?}");
    assert!(request.last().unwrap().1.starts_with("You repeat the same calls"));
    assert!(run.host.model.requests()[5].tools.is_empty(), "no tools are offered");
    assert_eq!(run.host.refused, 1);
    assert_eq!(healer::tests::problem(&run.state.messages), None);
}

#[tokio::test]
async fn a_capped_run_without_an_answer_fails() {
    for (bare_text, last, status) in [
        (BareText::Final, ChatResponse::text(""), Some("A0526")),
        (BareText::Correct { most: 3 }, ChatResponse::text("Nothing."), Some("A0526")),
        (BareText::AskUser, ChatResponse::text("Which port?"), None),
        (BareText::Final, ChatResponse::calls(vec![call("x", "find", json!({}))]), Some("A0526")),
    ] {
        let mut responses = same(5);
        responses.push(last.into());
        let end = Run::new(bare_text, responses).run(LoopServices::default()).await;
        let code = match &end.status {
            AgentStatus::Failed { code, .. } => Some(code.to_string()),
            other => {
                assert_eq!(*other, AgentStatus::AwaitingUser);
                None
            }
        };
        assert_eq!((code.as_deref(), end.cap), (status, Some(Cap::Loop)), "{bare_text:?}");
    }
}

#[tokio::test]
async fn repeats_are_counted_over_a_stored_state() {
    let mut run = Run::new(BareText::Final, same(4));
    run.profile.max_model_calls = 4;
    assert_eq!(run.run(LoopServices::default()).await.cap, Some(Cap::Turns));
    let stored = serde_json::to_string(&run.state).unwrap();
    run.state = serde_json::from_str(&stored).unwrap();
    run.profile.max_model_calls = 9;
    run.host.model.push(calls(4, 10, &[("find", json!({"port": "Arnvik"}))]));
    run.host.model.push("None.");
    let end = run.run(LoopServices::default()).await;
    assert_eq!((end.status, end.cap), (AgentStatus::Finished, Some(Cap::Loop)));
}

fn with_budget(tokens: u64) -> LoopServices {
    let limits = BudgetLimits { warn_at: Some(0.5), ..BudgetLimits::of_tokens(tokens) };
    let guards = Guards::default().with(BudgetGuard::new(Budget::new(limits)));
    LoopServices { guards, ..LoopServices::default() }
}

#[tokio::test]
async fn a_spent_budget_ends_the_run_with_an_answer() {
    let responses = vec![
        calls(0, 60, &[("find", json!({"port": "a"}))]),
        calls(1, 60, &[("find", json!({"port": "b"}))]),
        "Only this much.".into(),
    ];
    let mut run = Run::new(BareText::Final, responses);
    let end = run.run(with_budget(100)).await;
    assert_eq!((end.status, end.cap.map(Cap::label)), (AgentStatus::Finished, Some("token_capped")));
    assert_eq!(
        run.request(1).last().unwrap().1,
        "60 % of the budget of this task is spent. Finish soon: leave out what is not essential."
    );
    assert!(run.request(2).last().unwrap().1.starts_with("The budget of this task is spent"));
}

#[tokio::test]
async fn a_call_that_completes_the_task_is_accepted_although_the_budget_is_spent() {
    let mut run = Run::new(BareText::Final, vec![calls(0, 500, &[("done", json!({}))])]);
    let end = run.run(with_budget(100)).await;
    assert_eq!((end.status, end.cap), (AgentStatus::Finished, None));
}

#[tokio::test]
async fn a_long_history_is_compacted_between_model_calls() {
    let different = |at: usize| calls(at, if at == 2 { 5_001 } else { 10 }, &[("find", json!({"port": at}))]);
    let mut responses: Vec<ScriptedCall> = (0..4).map(different).collect();
    responses.push("Done.".into());
    let mut run = Run::new(BareText::Final, responses);
    run.host.facts.plan = vec!["[ ] find".into()];
    let compaction = Some(CompactionRules { token_limit: 5_000, keep_turns: 1 });
    let end = run.run(LoopServices { compaction, ..LoopServices::default() }).await;
    assert_eq!(end.status, AgentStatus::Finished);
    let report = CompactionReport { input_tokens: 5_001, token_limit: 5_000, messages: 5, kept_turns: 1 };
    assert_eq!(run.host.compactions, [report]);
    let request = run.request(3);
    assert_eq!(request.iter().map(|(role, _)| &**role).collect::<Vec<_>>(), ["user", "assistant", "tool"]);
    assert!(request[0].1.contains("## Assignment\nFind a ferry.\n\n## Plan\n- [ ] find"), "{}", request[0].1);
    assert_eq!(run.request(4).len(), 5, "the next response is measured again");
}

#[tokio::test]
async fn a_long_result_becomes_a_preview_that_the_result_tools_read() {
    let store = interception::tests::store(limits::RESULT_TOKENS_MIN);
    let read = json!({"id": "_result_find_1", "path": "29.id"});
    let chunk = json!({"id": "_result_find_1", "offset": 0, "length": 65_536});
    let responses = vec![
        calls(0, 10, &[("find", json!({}))]),
        calls(1, 10, &[("result_get", read), ("result_chunk", chunk)]),
        "29".into(),
    ];
    let mut run = Run::with_tools(BareText::Final, responses, store.tools());
    let services = LoopServices { results: Some(store.clone()), ..LoopServices::default() };
    assert_eq!(run.run(services).await.status, AgentStatus::Finished);
    let shown = run.request(1).last().unwrap().1.clone();
    assert!(
        shown.contains("type: array\nid: _result_find_1\npartial: true\ntotal_items: 30\nshown_items: 5"),
        "{shown}"
    );
    let request = run.request(2);
    assert_eq!(request[request.len() - 2].1, r#"{"status":"ok","type":"number","value":29}"#);
    assert!(request.last().unwrap().1.contains("next_offset") && !request.last().unwrap().1.contains("partial: true"));
    assert_eq!(run.state.results, store.index());
    assert_eq!(run.state.results.count, 1, "results of the tools of the store are not stored again");
}

/// A call that can never run.
fn dropped(id: &str, name: &str, reason: DropReason) -> ToolCall {
    ToolCall { id: id.into(), name: name.into(), arguments: ToolArguments::Dropped { reason } }
}

#[tokio::test]
async fn calls_that_cannot_run_have_an_error_as_their_result_and_the_others_run() {
    let all = |reason| {
        vec![dropped(&format!("{reason:?} 1"), "find", reason), dropped(&format!("{reason:?} 2"), "done", reason)]
    };
    let mixed = vec![
        call("a", "find", json!({})),
        dropped("b", "unnamed", DropReason::NoName),
        dropped("c", "done", DropReason::TooLong),
        dropped("d", "find", DropReason::TooMany),
        dropped("e", "custom", DropReason::OtherType),
    ];
    let mut responses = vec![ChatResponse::calls(mixed).into()];
    responses.extend([DropReason::TooMany, DropReason::TooLong].map(|reason| ChatResponse::calls(all(reason)).into()));
    responses.push("ok".into());
    let mut run = Run::new(BareText::Final, responses);
    assert_eq!(run.run(LoopServices::default()).await.status, AgentStatus::Finished);
    let request = run.request(1);
    let results: Vec<&str> = request[2..].iter().map(|(_, text)| &**text).collect();
    assert!(results[0].starts_with("[{"), "{results:?}");
    for (result, part) in results[1..].iter().zip(["has no name", "at most 256 KiB", "at most 16 calls", "`function`"])
    {
        assert!(result.starts_with("error: not_run: ") && result.contains(part), "{part}: {result}");
    }
    assert_eq!(healer::tests::problem(&run.state.messages), None);
    // Only repeated mistakes end the run.
    let mut run =
        Run::new(BareText::Final, (0..4).map(|_| ChatResponse::calls(all(DropReason::TooMany)).into()).collect());
    let AgentStatus::Failed { code, .. } = run.run(LoopServices::default()).await.status else { panic!("it goes on") };
    assert_eq!(&*code, CODE_TOOL_FAILURES);
}

#[tokio::test]
async fn with_on_tool_error_fail_no_call_starts_after_a_failed_one() {
    for effect in [EffectClass::Read, EffectClass::Write] {
        let started: Arc<std::sync::Mutex<Vec<i64>>> = Arc::default();
        let seen = started.clone();
        let act = Tool::from_fn(ToolInfo::new("act", "Acts").effect(effect), move |arguments, _| {
            let at = arguments["at"].as_i64().unwrap();
            seen.lock().unwrap().push(at);
            async move {
                match at {
                    1 => ToolOutcome::failed(crate::tools::FailureKind::ToolError, "broken"),
                    _ => ToolOutcome::Done(ToolOutput::text("acted")),
                }
            }
        });
        let acts: Vec<(&str, Json)> =
            (0..4).map(|at| ("act", json!({"at": at}))).chain([("done", json!({}))]).collect();
        let mut run = Run::with_tools(BareText::Final, vec![calls(0, 10, &acts)], vec![act]);
        run.profile.fails_on_tool_error = true;
        let AgentStatus::Failed { code, .. } = run.run(LoopServices::default()).await.status else {
            panic!("it goes on")
        };
        assert_eq!((&*code, &*started.lock().unwrap()), (CODE_TOOL_FAILURES, &vec![0, 1]));
        let results: Vec<String> =
            run.state.messages.iter().rev().take(5).map(|message| message.text().to_string()).collect();
        assert!(results[..3].iter().all(|text| text.contains("was not started")), "{results:?}");
        assert!(results[3].contains("broken") && results[4] == "acted", "{results:?}");
    }
}

#[tokio::test]
async fn the_newest_results_are_shortened_until_the_request_fits() {
    for store in [None, Some(interception::tests::store(limits::RESULT_TOKENS))] {
        let long = Tool::from_fn(ToolInfo::new("read", "Reads").effect(EffectClass::Read), |arguments, _| async move {
            ToolOutcome::Done(ToolOutput::text(format!("{arguments}{}the end", "x".repeat(40_000))))
        });
        let reads: Vec<(&str, Json)> = (0..5).map(|at| ("read", json!({"at": at}))).collect();
        let too_long = || ScriptedCall::from(LlmErrorKind::ContextLengthExceeded);
        let responses = vec![calls(0, 10, &reads), too_long(), too_long(), "All read.".into()];
        let mut run = Run::with_tools(BareText::Final, responses, vec![long]);
        let services = LoopServices { results: store.clone(), ..LoopServices::default() };
        assert_eq!(run.run(services).await.status, AgentStatus::Finished);
        let lengths = |at: usize| run.request(at)[2..].iter().map(|(_, text)| text.len()).collect::<Vec<_>>();
        assert_eq!((lengths(1).len(), lengths(1)[0] > 40_000), (5, true));
        assert!(lengths(2).iter().all(|length| *length <= 10_100), "{:?}", lengths(2));
        assert!(lengths(3).iter().all(|length| *length <= 2_600), "{:?}", lengths(3));
        let shown = run.request(3)[2].1.clone();
        match store {
            None => assert!(shown.contains("bytes are shown]") && shown.ends_with("the end"), "{shown}"),
            Some(_) => assert!(shown.contains("_result_read_1"), "the id stays: {shown}"),
        }
    }
}

#[tokio::test]
async fn results_that_cannot_be_shortened_end_the_run() {
    let mut responses = vec![calls(0, 10, &[("find", json!({}))])];
    // 3,900 bytes, then 975, then the shortest.
    responses.extend((0..3).map(|_| LlmErrorKind::ContextLengthExceeded.into()));
    let mut run = Run::new(BareText::Final, responses);
    let AgentStatus::Failed { code, .. } = run.run(LoopServices::default()).await.status else { panic!("it goes on") };
    assert_eq!(&*code, CODE_MODEL_FAILED);
}

#[tokio::test]
async fn a_long_error_of_a_tool_is_stored_and_marked_as_an_error() {
    let broken = Tool::from_fn(ToolInfo::new("broken", "Fails").effect(EffectClass::Read), |_, _| async move {
        ToolOutcome::failed(crate::tools::FailureKind::ToolError, format!("{}the cause", "x".repeat(100_000)))
    });
    let store = interception::tests::store(limits::RESULT_TOKENS);
    let responses = vec![calls(0, 10, &[("broken", json!({}))]), "ok".into()];
    let mut run = Run::with_tools(BareText::Final, responses, vec![broken]);
    run.run(LoopServices { results: Some(store.clone()), ..LoopServices::default() }).await;
    let shown = run.request(1).last().unwrap().1.clone();
    assert!(shown.starts_with("error[tool_error]: x") && shown.contains("id: _result_broken_1"), "{shown}");
    assert!(store.load("_result_broken_1").await.unwrap().text.ends_with("the cause"));
}

#[tokio::test]
async fn without_a_store_results_are_cut() {
    let long = Tool::from_fn(ToolInfo::new("read", "Reads").effect(EffectClass::Read), |_, _| async move {
        ToolOutcome::Done(ToolOutput::text("x".repeat(limits::TOOL_RESULT + 1)))
    });
    let mut run = Run::with_tools(BareText::Final, vec![calls(0, 10, &[("read", json!({}))]), "ok".into()], vec![long]);
    run.run(LoopServices::default()).await;
    assert!(run.request(1).last().unwrap().1.len() <= limits::TOOL_RESULT);
    assert!(run.state.results.is_empty());
}

#[tokio::test]
async fn the_last_text_is_kept_for_runs_that_end_at_a_limit() {
    let response =
        ChatResponse { text: "So far: NW-1.".into(), ..ChatResponse::calls(vec![call("c", "find", json!({}))]) };
    let mut run = Run::new(BareText::Final, vec![response.into()]);
    run.profile.max_model_calls = 1;
    let end = run.run(LoopServices::default()).await;
    assert_eq!((end.cap.map(Cap::label), run.state.last_text()), (Some("turn_capped"), Some("So far: NW-1.")));
}

#[tokio::test]
async fn loaded_skill_survives_compaction_and_a_restart_and_its_body_is_in_each_request_once() {
    use super::skills::tests::{TONE, session, skills};
    let own = skills("  skills: all\n", &[("tone/SKILL.md", TONE)]);
    let services = |own| LoopServices {
        skills: Some(session(own)),
        compaction: Some(CompactionRules { token_limit: 100, keep_turns: 1 }),
        ..LoopServices::default()
    };
    let load = json!({"name": "tone"});
    let responses = vec![
        calls(0, 10, &[("load_skill", load.clone()), ("find", json!({"at": 0}))]),
        calls(1, 200, &[("find", json!({"at": 1}))]),
        calls(2, 200, &[("find", json!({"at": 2}))]),
    ];
    let mut run = Run::new(BareText::Final, responses);
    run.profile.max_model_calls = 3;
    assert_eq!(run.run(services(&own)).await.cap, Some(Cap::Turns));
    // Another process continues.
    let stored = serde_json::to_string(&run.state).unwrap();
    assert!(!stored.contains("Be kind."), "only the name is stored: {stored}");
    run.state = serde_json::from_str(&stored).unwrap();
    run.profile.max_model_calls = 9;
    run.host.model.push(calls(3, 200, &[("load_skill", load)]));
    run.host.model.push("Done.");
    let end = run.run(services(&own)).await;
    assert_eq!(end.status, AgentStatus::Finished);
    for at in 0..5 {
        let texts: String = run.request(at).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts.matches("Be kind.").count(), usize::from(at > 0), "request {at}: {texts}");
    }
    let last = run.request(4);
    assert!(last.iter().any(|(_, text)| text.contains("## Loaded skills\n- tone")), "{last:?}");
    assert!(last.last().unwrap().1.starts_with("The skill `tone` is already loaded."), "{last:?}");
    assert!(!run.host.compactions.is_empty());
}
