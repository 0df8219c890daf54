//! One mission for each rule that only a run with models shows: what commanders and agents are told, what their answers lead to, and what
//! they never get.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use segue::{
    Assistant, AssistantBuilder, CallContext, ChatRequest, ChatResponse, ChatStream, Llm, LlmError, ModelProfile,
    llm::{ChatMessage, FinishReason, Usage},
    missions::{RunEnd, RunEngine, StartRun},
    store::runs::{MemoryRunStore, RunStore},
    testing::ManualClock,
};
use segue_engine::mission::{event::RunEventKind, state::TaskStatus};
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use super::{FunctionModel, HEAD, calls, done, finish, is_agent, last, says};

const FILES: [(&str, &str); 2] =
    [("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n"), ("domain.yml", "")];

/// The tools of a request, without those that read long results, which everybody has.
fn tool_names(request: &ChatRequest) -> Vec<&str> {
    request.tools.iter().map(|tool| &*tool.name).filter(|name| !name.starts_with("result_")).collect()
}

/// The commander's first request for the task with this objective.
fn first_request(requests: &Mutex<Vec<ChatRequest>>, objective: &str) -> ChatRequest {
    let requests = requests.lock().unwrap();
    let is_meant = |request: &&ChatRequest| request.messages.len() == 2 && last(request).contains(objective);
    requests.iter().find(is_meant).unwrap_or_else(|| panic!("{objective}")).clone()
}

#[tokio::test]
async fn a_commander_reads_the_summaries_before_it_and_queries_outputs_and_has_no_other_tools() {
    let mission = format!(
        "{HEAD}  directive: Facts only.\n  tasks:\n    gather: {{objective: Gather., output: {{found: {{type: integer, required: true, description: How many}}}}}}\n    write: {{objective: Write., depends_on: [gather]}}\n"
    );
    let finished = finish(&mission, json!({}), |request| {
        if is_agent(request) {
            return says("<ANSWER>three pages</ANSWER>");
        }
        match last(request) {
            "Gather." => calls(&[("call_agent", json!({"name": "helper", "task": "find pages"}))]),
            "three pages" => calls(&[
                ("submit_output", json!({"output": {"found": 3}})),
                ("task_complete", json!({"summary": "Three pages were found."})),
            ]),
            "Write." => calls(&[("query_task_output", json!({"task": "gather"}))]),
            answer => done(answer),
        }
    })
    .await;
    assert_eq!(finished.end, RunEnd::Completed);
    let state = finished.engine.status(&finished.run).await.unwrap().state;
    assert_eq!(state.tasks["write"].summary.as_deref(), Some(r#"{"task":"gather","output":{"found":3}}"#));

    let gather = first_request(&finished.requests, "Gather.");
    let names = ["set_subtasks", "get_subtasks", "complete_subtask", "task_complete", "submit_output", "call_agent"];
    assert_eq!(tool_names(&gather), [&names[..], &["ask_agent", "ask"]].concat());
    let system = gather.messages[0].text();
    for part in ["Facts only.", "Its name is `gather`", "- `helper`: helps", "submit_output", r#""found""#] {
        assert!(system.contains(part), "{part}: {system}");
    }
    assert!(!system.contains("# Completed tasks"), "{system}");

    let write = first_request(&finished.requests, "Write.");
    let system = write.messages[0].text();
    for part in ["## `gather`\nThree pages were found.", "- `found` (integer, required): How many", "query_task_output"]
    {
        assert!(system.contains(part), "{part}: {system}");
    }
    assert!(tool_names(&write).contains(&"query_task_output") && !tool_names(&write).contains(&"submit_output"));

    let requests = finished.requests.lock().unwrap();
    let agent = requests.iter().find(|request| is_agent(request)).unwrap();
    assert_eq!(agent.messages[1].text(), "<NEW_TASK>\nfind pages\n</NEW_TASK>");
    assert_eq!(tool_names(agent), ["ask_commander"]);
}

#[tokio::test]
async fn prompts_show_routes_items_datasets_and_the_questions_of_others() {
    let mission = format!(
        "{HEAD}  datasets:\n    rows: {{description: Rows, schema: {{n: {{type: integer, required: true}}}}, items: [{{n: 1}}]}}\n  tasks:\n    list:\n      objective: List.\n      iterator: {{dataset: rows}}\n      router: [{{to: short, when: it is short}}, {{to: 'mission:m', when: it begins again}}]\n    each: {{objective: 'Do {{{{ item.n }}}}.', depends_on: [begin], iterator: {{dataset: rows, parallel: true}}}}\n    begin: {{objective: Begin.}}\n    short: {{objective: Shorten.}}\n"
    );
    let finished = finish(&mission, json!({}), |request| {
        if is_agent(request) {
            return says("ok");
        }
        match request.messages.last().unwrap().text() {
            text if text.contains("\"exhausted\"") => {
                calls(&[("task_complete", json!({"summary": "x", "route": "none"}))])
            }
            "Begin." => calls(&[("call_agent", json!({"name": "helper", "task": "x"}))]),
            text if text.contains("List.") || text.contains("\"item\"") => calls(&[("dataset_next", json!({}))]),
            _ => done("x"),
        }
    })
    .await;
    assert_eq!(finished.end, RunEnd::Completed, "{:?}", finished.events);
    let list = first_request(&finished.requests, "List.");
    let (system, objective) = (list.messages[0].text(), last(&list));
    for part in ["- `short`: it is short", "- `m`: it begins again", "`none` takes no route", "<LEARNINGS>"] {
        assert!(system.contains(part), "{part}: {system}");
    }
    assert!(objective.contains("1 items") && objective.contains("dataset_next"), "{objective}");
    let each = first_request(&finished.requests, "Do 1.");
    assert!(each.messages[0].text().contains("list_commander_questions"), "{each:?}");
    let requests = finished.requests.lock().unwrap();
    let system = requests.iter().find(|request| is_agent(request)).unwrap().messages[0].text().to_owned();
    for part in ["- `rows` (1 items): Rows", r#""n":{"type":"integer"#] {
        assert!(system.contains(part), "{part}: {system}");
    }
}

#[tokio::test]
async fn an_unknown_route_is_corrected_and_a_failure_takes_no_route() {
    let mission = format!(
        "{HEAD}  tasks:\n    judge: {{objective: Judge., router: [{{to: good, when: good}}, {{to: bad, when: bad}}]}}\n    good: {{objective: Praise.}}\n    bad: {{objective: Scold.}}\n"
    );
    let finished = finish(&mission, json!({}), |request| match last(request) {
        "Judge." => calls(&[("task_complete", json!({"summary": "x"}))]),
        text if text.contains("route.required") => {
            calls(&[("task_complete", json!({"summary": "x", "route": "best"}))])
        }
        text if text.contains("route.unknown") => calls(&[("task_complete", json!({"summary": "x", "route": "bad"}))]),
        _ => done("done"),
    })
    .await;
    assert_eq!(finished.end, RunEnd::Completed);
    let state = finished.engine.status(&finished.run).await.unwrap().state;
    assert_eq!((state.task_status("bad"), state.task_status("good")), (TaskStatus::Completed, TaskStatus::Pending));

    let finished = finish(&mission, json!({}), |_| {
        calls(&[("task_complete", json!({"succeed": false, "reason": "torn", "route": "bad"}))])
    })
    .await;
    assert_eq!(finished.end, RunEnd::Failed);
    let chose =
        |event: &&segue_engine::mission::event::RunEvent| matches!(event.event.kind, RunEventKind::RouteChosen { .. });
    assert_eq!(finished.events.iter().filter(chose).count(), 0);
}

/// A project with these missions and a model.
fn builder(missions: &[(&str, &str)], model: Arc<dyn Llm>) -> AssistantBuilder {
    let files = FILES.into_iter().chain(missions.iter().copied());
    Assistant::builder_from_texts(files).unwrap_or_else(|error| panic!("{error:?}")).model(model)
}

fn engine(missions: &[(&str, &str)], model: Arc<dyn Llm>, runs: Arc<dyn RunStore>) -> RunEngine {
    builder(missions, model).build_missions(runs).unwrap()
}

fn model(
    respond: impl Fn(&ChatRequest) -> ChatResponse + Send + Sync + 'static,
) -> (Arc<dyn Llm>, Arc<Mutex<Vec<ChatRequest>>>) {
    let requests: Arc<Mutex<Vec<ChatRequest>>> = Arc::default();
    let profile = ModelProfile::for_model("test", "");
    (Arc::new(FunctionModel { profile, respond, requests: requests.clone() }), requests)
}

async fn drive(engine: &RunEngine, run: &segue::ids::RunId) -> RunEnd {
    engine.drive(run, &CancellationToken::new(), &mut |_| {}).await.unwrap()
}

#[tokio::test]
async fn a_route_to_a_mission_needs_its_inputs_and_starts_one_new_run() {
    let first = format!(
        "{HEAD}  tasks:\n    judge: {{objective: Judge., router: [{{to: 'mission:next', when: severe}}]}}\n    other: {{objective: Other., router: [{{to: 'mission:next', when: severe}}]}}\n"
    );
    let next = HEAD.replace("name: m", "name: next")
        + "  inputs: {topic: {type: string, description: What}}\n  tasks: {act: {objective: 'Act on {{ inputs.topic }}.'}}\n";
    let (model, _) = model(|request| match last(request) {
        "Judge." | "Other." => calls(&[("task_complete", json!({"summary": "x", "route": "next"}))]),
        text if text.contains("route.inputs_missing") => {
            assert!(text.contains("topic") && text.contains("What"), "{text}");
            calls(&[("task_complete", json!({"summary": "x", "route": "next", "mission_inputs": {"topic": "tea"}}))])
        }
        text => done(text),
    });
    let missions = [("missions/m.yml", &*first), ("missions/next.yml", &*next)];
    let engine = engine(&missions, model, Arc::new(MemoryRunStore::new()));
    let run = engine.start(StartRun::new("m")).await.unwrap();
    assert_eq!(drive(&engine, &run).await, RunEnd::Completed);
    let state = engine.status(&run).await.unwrap().state;
    let runs: Vec<&str> = state.follow_ups.iter().map(|next| &*next.run).collect();
    assert_eq!(runs, [format!("{run}/next"), format!("{run}/next-2")]);
    for next in runs {
        let next = segue::ids::RunId::new(next);
        assert_eq!(drive(&engine, &next).await, RunEnd::Completed);
        let state = engine.status(&next).await.unwrap().state;
        assert_eq!(state.tasks["act"].summary.as_deref(), Some("Act on tea."));
        assert_eq!(state.chain, 1);
    }
}

/// A model whose calls for one objective wait until they are cancelled.
struct WaitingModel {
    profile: ModelProfile,
    waits_for: &'static str,
    cancelled: AtomicUsize,
}

#[async_trait]
impl Llm for WaitingModel {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }
    async fn chat(&self, request: ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError> {
        if last(&request) == self.waits_for {
            cx.cancel.cancelled().await;
            self.cancelled.fetch_add(1, Ordering::SeqCst);
            return Err(segue::llm::LlmErrorKind::Cancelled.into());
        }
        let failed = json!({"succeed": false, "reason": "no connection"});
        Ok(ChatStream::from_response(calls(&[("task_complete", failed)])))
    }
}

#[tokio::test]
async fn a_failed_task_cancels_the_model_call_of_its_sibling_and_starts_nothing_else() {
    let mission = format!(
        "{HEAD}  tasks:\n    slow: {{objective: Slow.}}\n    broken: {{objective: Broken.}}\n    late: {{objective: Late., depends_on: [slow]}}\n"
    );
    let profile = ModelProfile::for_model("test", "");
    let model = Arc::new(WaitingModel { profile, waits_for: "Slow.", cancelled: AtomicUsize::new(0) });
    let engine = engine(&[("missions/m.yml", &mission)], model.clone(), Arc::new(MemoryRunStore::new()));
    let run = engine.start(StartRun::new("m")).await.unwrap();
    assert_eq!(drive(&engine, &run).await, RunEnd::Failed);
    assert_eq!(model.cancelled.load(Ordering::SeqCst), 1);
    let state = engine.status(&run).await.unwrap().state;
    assert_eq!(state.task_status("slow"), TaskStatus::Cancelled);
    assert_eq!(state.task_status("late"), TaskStatus::Pending);
    assert_eq!(&*state.failure.unwrap().error, "task broken failed: no connection");
}

#[tokio::test]
async fn eight_targets_of_one_task_run_to_their_ends() {
    let names: Vec<String> = (0..8).map(|n| format!("t{n}")).collect();
    let tasks: String = names.iter().map(|name| format!("    {name}: {{objective: Work.}}\n")).collect();
    let mission = format!("{HEAD}  tasks:\n    s: {{objective: Start., send_to: [{}]}}\n{tasks}", names.join(", "));
    let finished = finish(&mission, json!({}), |_| done("done")).await;
    assert_eq!(finished.end, RunEnd::Completed);
    let state = finished.engine.status(&finished.run).await.unwrap().state;
    assert!(names.iter().all(|name| state.task_status(name) == TaskStatus::Completed));
}

#[tokio::test]
async fn a_retried_item_has_a_fresh_session_that_knows_why_the_first_failed() {
    let mission = format!(
        "{HEAD}  datasets: {{rows: {{items: [{{n: 1}}]}}}}\n  tasks:\n    read: {{objective: Read., iterator: {{dataset: rows, parallel: true, max_retries: 1, retry_delay: 0}}}}\n"
    );
    let finished = finish(&mission, json!({}), |request| {
        if is_agent(request) {
            return says("<ANSWER>the page is empty</ANSWER>");
        }
        let is_second = request.messages[0].text().contains("An earlier attempt failed");
        match (last(request), is_second) {
            ("Read.", false) => calls(&[("call_agent", json!({"name": "helper", "task": "read it"}))]),
            (_, false) => calls(&[("task_complete", json!({"succeed": false, "reason": "an empty page"}))]),
            (_, true) => done("read"),
        }
    })
    .await;
    assert_eq!(finished.end, RunEnd::Completed);
    let requests = finished.requests.lock().unwrap();
    let second = requests.last().unwrap();
    assert_eq!(second.messages.len(), 2, "{second:?}");
    assert!(second.messages[0].text().contains("An earlier attempt failed: an empty page"), "{second:?}");
    assert!(!format!("{:?}", second.messages).contains("the page is empty"));
}

#[tokio::test]
async fn a_text_without_a_call_is_corrected_at_most_three_times_and_stays_in_the_session() {
    let mission = format!("{HEAD}  tasks: {{paint: {{objective: Paint.}}}}\n");
    for texts in [3, 4] {
        let given = AtomicUsize::new(0);
        let finished = finish(&mission, json!({}), move |_| match given.fetch_add(1, Ordering::SeqCst) {
            n if n < texts => says(&format!("Thought {n}.")),
            _ => done("painted"),
        })
        .await;
        let requests = finished.requests.lock().unwrap().clone();
        let request = requests.last().unwrap();
        let is_response = |message: &Arc<ChatMessage>| matches!(**message, ChatMessage::Assistant { .. });
        let responses: Vec<bool> = request.messages[2..].iter().map(is_response).collect();
        assert_eq!(responses, [true, false, true, false, true, false], "each text is followed by its correction");
        assert!(last(request).contains("contains no tool call"));
        let expected = if texts == 3 { RunEnd::Completed } else { RunEnd::Failed };
        assert_eq!((finished.end, requests.len()), (expected, 4));
        let state = finished.engine.status(&finished.run).await.unwrap().state;
        assert_eq!(state.usage.answers, 4, "corrections count");
        if texts == 4 {
            let error = state.tasks["paint"].error.clone().unwrap();
            assert!(error.contains("without a tool call 4 times in a row, at last: "), "{error}");
        }
    }
}

#[tokio::test]
async fn calls_that_the_output_limit_cut_are_not_executed() {
    let mission = format!("{HEAD}  tasks: {{paint: {{objective: Paint.}}}}\n");
    let given = AtomicUsize::new(0);
    let finished = finish(&mission, json!({}), move |request| match given.fetch_add(1, Ordering::SeqCst) {
        0 => ChatResponse {
            truncated_calls: vec!["task_complete".into()],
            finish: FinishReason::Length,
            ..ChatResponse::default()
        },
        _ => {
            assert!(request.max_tokens.is_some(), "the limit is raised");
            done("painted")
        }
    })
    .await;
    assert_eq!((finished.end, finished.requests.lock().unwrap().len()), (RunEnd::Completed, 2));
    let state = finished.engine.status(&finished.run).await.unwrap().state;
    assert_eq!(state.tasks["paint"].summary.as_deref(), Some("painted"));
}

#[tokio::test]
async fn a_question_to_an_agent_leaves_no_trace_in_its_session() {
    let mission = format!("{HEAD}  tasks: {{paint: {{objective: Paint.}}}}\n");
    let finished = finish(&mission, json!({}), |request| {
        let last = last(request);
        if is_agent(request) {
            return match last {
                text if text.contains("<QUESTION>") => {
                    assert!(request.tools.is_empty() && text.contains("Which brush?"), "{text}");
                    says("<ANSWER>The broad one.</ANSWER>")
                }
                text if text.contains("first coat") => says("<ANSWER>one coat</ANSWER>"),
                _ => says("<ANSWER>two coats</ANSWER>"),
            };
        }
        match last {
            "Paint." => calls(&[("call_agent", json!({"name": "helper", "task": "first coat"}))]),
            "one coat" => calls(&[("ask_agent", json!({"agent_id": "helper", "question": "Which brush?"}))]),
            "The broad one." => calls(&[("call_agent", json!({"name": "helper", "task": "second coat"}))]),
            answer => done(answer),
        }
    })
    .await;
    assert_eq!(finished.end, RunEnd::Completed);
    let requests = finished.requests.lock().unwrap();
    let second = requests.iter().find(|request| is_agent(request) && last(request).contains("second coat")).unwrap();
    let texts: Vec<&str> = second.messages[1..].iter().map(|message| message.text()).collect();
    assert!(texts[0].contains("first coat") && texts[1].contains("one coat"), "one session: {texts:?}");
    assert!(!texts.iter().any(|text| text.contains("brush") || text.contains("broad")), "{texts:?}");
}

#[tokio::test]
async fn an_item_waits_for_the_answer_that_another_item_asked_for() {
    let mission = format!(
        "{HEAD}  datasets: {{rows: {{items: [{{n: 0}}, {{n: 1}}]}}}}\n  tasks:\n    gather: {{objective: Gather.}}\n    each: {{objective: 'Do {{{{ item.n }}}}.', depends_on: [gather], iterator: {{dataset: rows, parallel: true}}}}\n"
    );
    /// Answers the question to the commander only when the other item has asked for the answer.
    struct PairedModel {
        profile: ModelProfile,
        fails: bool,
        asked: tokio::sync::Notify,
        waits: tokio::sync::Notify,
    }
    #[async_trait]
    impl Llm for PairedModel {
        fn profile(&self) -> &ModelProfile {
            &self.profile
        }
        async fn chat(&self, request: ChatRequest, _: &CallContext) -> Result<ChatStream, LlmError> {
            let answer = match last(&request) {
                text if text.contains("<QUESTION>") => {
                    self.asked.notify_one();
                    self.waits.notified().await;
                    // A repeated call does not wait again.
                    self.waits.notify_one();
                    if self.fails {
                        return Err(segue::llm::LlmErrorKind::Unreachable.into());
                    }
                    says("Because.")
                }
                "Gather." => done("gathered"),
                "Do 0." => calls(&[("ask_commander", json!({"task_name": "gather", "question": "Why?"}))]),
                "Do 1." => {
                    self.asked.notified().await;
                    calls(&[("list_commander_questions", json!({"task_name": "gather"}))])
                }
                "0: \"Why?\"" => {
                    self.waits.notify_one();
                    calls(&[("get_commander_answer", json!({"task_name": "gather", "index": 0}))])
                }
                answer => done(answer),
            };
            Ok(ChatStream::from_response(answer))
        }
    }
    for fails in [false, true] {
        let profile = ModelProfile::for_model("test", "");
        let model = Arc::new(PairedModel { profile, fails, asked: Default::default(), waits: Default::default() });
        let clock = ManualClock::new();
        let builder = builder(&[("missions/m.yml", &mission)], model).clock(Arc::new(clock.clone()));
        let engine = builder.build_missions(Arc::new(MemoryRunStore::new())).unwrap();
        let run = engine.start(StartRun::new("m")).await.unwrap();
        let seconds = async {
            loop {
                for _ in 0..50 {
                    tokio::task::yield_now().await;
                }
                clock.advance(Duration::from_secs(1));
            }
        };
        let end = tokio::select! { biased; end = drive(&engine, &run) => end, () = seconds => unreachable!() };
        assert_eq!(end, RunEnd::Completed);
        let state = engine.status(&run).await.unwrap().state;
        for item in state.tasks["each"].items.values() {
            let expected = if fails { "ask.failed" } else { "Because." };
            assert!(item.summary.contains(expected), "{}", item.summary);
        }
        assert_eq!(state.commander_questions.len(), 1);
    }
}

#[tokio::test]
async fn an_edited_mission_goes_on_with_its_new_tasks_and_keeps_what_is_completed() {
    let one = format!("{HEAD}  tasks: {{first: {{objective: First.}}, second: {{objective: Second.}}}}\n");
    let two = one.replace(
        "second: {objective: Second.}",
        "second: {objective: Other., depends_on: [first]}, third: {objective: Third., depends_on: [second]}",
    );
    let runs: Arc<dyn RunStore> = Arc::new(MemoryRunStore::new());
    let (failing, _) = model(|request| match last(request) {
        "First." => done("one"),
        _ => calls(&[("task_complete", json!({"succeed": false, "reason": "not yet"}))]),
    });
    let before = engine(&[("missions/m.yml", &one)], failing, runs.clone());
    let run = before.start(StartRun::new("m")).await.unwrap();
    assert_eq!(drive(&before, &run).await, RunEnd::Failed);
    let first_ended = before.status(&run).await.unwrap().state.task_status("first");

    let (succeeding, requests) = model(|request| done(last(request)));
    let after = engine(&[("missions/m.yml", &two)], succeeding, runs);
    after.resume(&run).await.unwrap();
    assert_eq!(drive(&after, &run).await, RunEnd::Completed);
    let state = after.status(&run).await.unwrap().state;
    assert_eq!(state.tasks["second"].summary.as_deref(), Some("Other."), "the objective is that of the edited file");
    assert_eq!(state.tasks["third"].summary.as_deref(), Some("Third."));
    let expected = if first_ended == TaskStatus::Completed { 2 } else { 3 };
    assert_eq!(requests.lock().unwrap().len(), expected, "what is completed does not run again");
}

#[tokio::test]
async fn every_model_call_of_a_run_counts() {
    let mission = format!(
        "{HEAD}  tasks:\n    gather: {{objective: Gather.}}\n    write: {{objective: Write., depends_on: [gather]}}\n"
    );
    let finished = finish(&mission, json!({}), |request| {
        let answer = if is_agent(request) {
            says("<ANSWER>a page</ANSWER>")
        } else {
            match last(request) {
                "Gather." => says("Let me think."),
                text if text.contains("no tool call") => {
                    calls(&[("call_agent", json!({"name": "helper", "task": "find it"}))])
                }
                text if text.contains("<QUESTION>") => says("Because."),
                "Write." => calls(&[("ask_commander", json!({"task_name": "gather", "question": "Why?"}))]),
                answer => done(answer),
            }
        };
        ChatResponse { usage: Usage { input: 10, output: 1, ..Usage::default() }, ..answer }
    })
    .await;
    let requests = finished.requests.lock().unwrap().len() as u64;
    let state = finished.engine.status(&finished.run).await.unwrap().state;
    assert_eq!((state.usage.answers, requests), (7, 7), "a correction, an agent and a clone among them");
    assert_eq!((state.usage.usage.input, state.usage.usage.output), (70, 7));
    assert_eq!(state.tasks["gather"].usage.answers + state.tasks["write"].usage.answers, 7);
    let entities: Vec<Json> = finished
        .events
        .iter()
        .filter(|event| matches!(event.event.kind, RunEventKind::SessionTurn { .. }))
        .map(|event| serde_json::to_value(event).unwrap()["entity"].clone())
        .collect();
    assert_eq!(entities, ["commander", "commander", "helper", "commander", "commander", "clone", "commander"]);
}
