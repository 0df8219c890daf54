//! The loops of commanders and agents: long results, compaction, guards, and runs that are stopped at each model call.

use async_trait::async_trait;
use segue::{
    clock::Clock as _,
    llm::Usage,
    store::runs::{ClaimRequest, UnitBatch, UnitTransition},
    tools::{EffectClass, Tool, ToolInfo, ToolOutcome, ToolOutput},
};

use super::*;
use crate::support::is_full;

/// A model that stops the run at one of its calls, and otherwise makes its responses from the requests.
struct Model<F> {
    profile: ModelProfile,
    respond: F,
    requests: Arc<Mutex<Vec<ChatRequest>>>,
    stop_at: Option<usize>,
    stop: CancellationToken,
}

#[async_trait]
impl<F: Fn(&ChatRequest) -> ChatResponse + Send + Sync> Llm for Model<F> {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }
    async fn chat(&self, request: ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError> {
        let number = {
            let mut requests = self.requests.lock().unwrap();
            requests.push(request.clone());
            requests.len() - 1
        };
        if Some(number) == self.stop_at {
            self.stop.cancel();
            cx.cancel.cancelled().await;
            return Err(segue::llm::LlmErrorKind::Cancelled.into());
        }
        Ok(ChatStream::from_response((self.respond)(&request)))
    }
}

/// The tool `find` of the server `shop`: 40 items.
fn find() -> Tool {
    Tool::from_fn(ToolInfo::new("find", "Finds").effect(EffectClass::Read), |_, _| async move {
        ToolOutcome::Done(ToolOutput::structured(rows(40)))
    })
}

fn rows(count: usize) -> Json {
    json!((0..count).map(|n| json!({"name": format!("row {n}"), "note": "n".repeat(80)})).collect::<Vec<Json>>())
}

/// A run in memory with the tool `find`, worked on to its end. If it is stopped at a model call, it is resumed.
async fn run(
    mission: &str,
    stop_at: Option<usize>,
    respond: impl Fn(&ChatRequest) -> ChatResponse + Send + Sync + 'static,
) -> Finished {
    let (engine, requests, stop) = engine(mission, stop_at, Arc::new(MemoryRunStore::new()), respond);
    let run = engine.start(StartRun::new("m")).await.unwrap();
    let mut events = Vec::new();
    let mut end = engine.drive(&run, &stop, &mut |event| events.push(event.clone())).await.unwrap();
    if stop_at.is_some() {
        assert_eq!(end, RunEnd::Stopped);
        engine.resume(&run).await.unwrap();
        events.clear();
        end = engine.drive(&run, &CancellationToken::new(), &mut |event| events.push(event.clone())).await.unwrap();
    }
    Finished { end, engine, run, events, requests }
}

fn engine(
    mission: &str,
    stop_at: Option<usize>,
    store: Arc<dyn RunStore>,
    respond: impl Fn(&ChatRequest) -> ChatResponse + Send + Sync + 'static,
) -> (RunEngine, Arc<Mutex<Vec<ChatRequest>>>, CancellationToken) {
    engine_with(mission, stop_at, store, find(), respond)
}

/// An engine with one tool of the server `shop`.
fn engine_with(
    mission: &str,
    stop_at: Option<usize>,
    store: Arc<dyn RunStore>,
    tool: Tool,
    respond: impl Fn(&ChatRequest) -> ChatResponse + Send + Sync + 'static,
) -> (RunEngine, Arc<Mutex<Vec<ChatRequest>>>, CancellationToken) {
    let files = [
        ("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n"),
        ("domain.yml", ""),
        ("endpoints.yml", "mcp_servers: [{name: shop, type: http, url: 'http://127.0.0.1:9/mcp'}]\n"),
        ("missions/m.yml", mission),
    ];
    let (requests, stop): (Arc<Mutex<Vec<ChatRequest>>>, _) = Default::default();
    let profile = ModelProfile::for_model("test", "");
    let model = Model { profile, respond, requests: requests.clone(), stop_at, stop };
    let stop = model.stop.clone();
    let builder = Assistant::builder_from_texts(files).unwrap_or_else(|error| panic!("{error:?}"));
    let engine = builder.model(Arc::new(model)).tool("shop", tool).build_missions(store).unwrap();
    (engine, requests, stop)
}

/// A request as text.
fn text_of(request: &ChatRequest) -> String {
    let tools: Vec<&str> = request.tools.iter().map(|tool| &*tool.name).collect();
    format!("{:#?}\n{tools:?}", request.messages)
}

/// Checks that each call of a request has one result, and each result a call.
fn check_pairs(request: &ChatRequest) {
    let mut open: Vec<&str> = Vec::new();
    for message in &request.messages {
        match &**message {
            ChatMessage::Assistant { tool_calls, .. } => {
                assert!(open.is_empty(), "{}", text_of(request));
                open = tool_calls.iter().map(|call| &*call.id).collect();
            }
            ChatMessage::Tool { call_id, .. } => {
                let at = open.iter().position(|id| **id == **call_id);
                open.remove(at.unwrap_or_else(|| panic!("{call_id} has no call: {}", text_of(request))));
            }
            _ => assert!(open.is_empty(), "{}", text_of(request)),
        }
    }
    assert!(open.is_empty(), "{}", text_of(request));
}

/// Runs a mission, and again with a stop at each `step`-th of its model calls: the models always get the same requests, and the run has the same
/// events. Returns the run without a stop.
async fn the_same_after_each_stop(
    mission: &str,
    step: usize,
    respond: impl Fn(&ChatRequest) -> ChatResponse + Clone + Send + Sync + 'static,
) -> Finished {
    let whole = run(mission, None, respond.clone()).await;
    let expected: Vec<String> = whole.requests.lock().unwrap().iter().map(text_of).collect();
    whole.requests.lock().unwrap().iter().for_each(check_pairs);
    for stop_at in (0..expected.len()).step_by(step) {
        let stopped = run(mission, Some(stop_at), respond.clone()).await;
        assert_eq!(stopped.end, whole.end, "{stop_at}");
        let mut requests: Vec<String> = stopped.requests.lock().unwrap().iter().map(text_of).collect();
        requests.remove(stop_at);
        for (at, (found, expected)) in requests.iter().zip(&expected).enumerate() {
            assert_eq!(found, expected, "request {at} after a stop at {stop_at}");
        }
        assert_eq!(requests.len(), expected.len(), "{stop_at}");
        assert_eq!(kinds(&stopped.events), kinds(&whole.events), "{stop_at}");
    }
    whole
}

/// How often each kind of event occurs, without those of stopping and resuming.
fn kinds(events: &[RunEvent]) -> BTreeMap<String, u32> {
    let mut kinds = BTreeMap::new();
    for event in events {
        let kind = serde_json::to_value(&event.event.kind).unwrap()["event"].as_str().unwrap().to_owned();
        if !matches!(&*kind, "mission_stopping" | "mission_stopped" | "mission_resumed") {
            *kinds.entry(kind).or_default() += 1;
        }
    }
    kinds
}

/// The tool results after the last response.
fn last_results(request: &ChatRequest) -> Vec<&str> {
    let results = request.messages.iter().rev().take_while(|message| matches!(***message, ChatMessage::Tool { .. }));
    let mut results: Vec<&str> = results.map(|message| message.text()).collect();
    results.reverse();
    results
}

fn say(text: impl Into<Arc<str>>) -> ChatResponse {
    ChatResponse { text: text.into(), ..ChatResponse::default() }
}

fn is_agent(request: &ChatRequest) -> bool {
    request.purpose.as_str() == "agent"
}

const FIND_HEAD: &str = "mission:\n  name: m\n  description: x\n  agents: [helper]\n  local_agents: {helper: {description: helps, tools: [shop]}}\n";

#[tokio::test]
async fn a_long_result_is_read_in_pages_copied_to_a_dataset_and_read_by_a_copy_of_the_commander() {
    let mission = format!(
        "{FIND_HEAD}  commander: {{plan: optional}}\n  datasets: {{rows: {{}}}}\n  tasks:\n    gather: {{objective: Gather.}}\n    write: {{objective: Write., depends_on: [gather]}}\n"
    );
    let respond = |request: &ChatRequest| {
        let last = request.messages.last().unwrap().text();
        let results = last_results(request);
        if is_agent(request) {
            return match results.as_slice() {
                [found] if found.contains("row 38") => say("<ANSWER>It has row 38.</ANSWER>"),
                [found] => {
                    assert!(found.contains("id: _result_find_1\npartial: true\ntotal_items: 40"), "{found}");
                    say(format!("<ANSWER>{}</ANSWER>", rows(40)))
                }
                _ if last.contains("look again") => {
                    calls(&[("result_items", json!({"id": "_result_find_1", "offset": 38, "count": 1}))])
                }
                _ => calls(&[("find", json!({}))]),
            };
        }
        if last.contains("Which is the last?") {
            return calls(&[("result_get", json!({"id": "_result_call_agent_1", "path": "39.name"}))]);
        }
        match results.as_slice() {
            // The copy of the commander.
            [value] if value.contains(r#""value":"row 39""#) => say("It is row 39."),
            _ if last.contains("And what did I ask?") => {
                let earlier = request.messages.iter().any(|message| message.text() == "It is row 39.");
                say(if earlier { "The last row." } else { "I do not know." })
            }
            // The commander.
            [found] if found.contains("_result_call_agent_1") => {
                assert!(found.contains("row 4") && !found.contains("row 5"), "{found}");
                calls(&[
                    ("result_items", json!({"id": "_result_call_agent_1", "offset": 39, "count": 5})),
                    ("result_to_dataset", json!({"id": "_result_call_agent_1", "dataset_name": "rows"})),
                    ("result_to_dataset", json!({"id": "_result_call_agent_9", "dataset_name": "rows"})),
                ])
            }
            [page, stored, unknown] => {
                assert!(page.contains("row 39") && !page.contains("row 38"), "{page}");
                assert_eq!(*stored, r#"{"status":"ok","dataset":"rows","added":40,"count":40}"#);
                assert!(unknown.contains("result.unknown"), "{unknown}");
                calls(&[("call_agent", json!({"name": "helper", "task": "look again"}))])
            }
            ["It has row 38."] => calls(&[("task_complete", json!({"summary": "gathered"}))]),
            ["It is row 39."] => {
                calls(&[("ask_commander", json!({"task_name": "gather", "question": "And what did I ask?"}))])
            }
            ["The last row."] => calls(&[("task_complete", json!({"summary": "asked"}))]),
            _ if last == "Gather." => calls(&[("call_agent", json!({"name": "helper", "task": "find all"}))]),
            _ => calls(&[("ask_commander", json!({"task_name": "gather", "question": "Which is the last?"}))]),
        }
    };
    let finished = the_same_after_each_stop(&mission, 1, respond).await;
    assert_eq!(finished.end, RunEnd::Completed, "{:?}", finished.events.last());
    let state = finished.engine.status(&finished.run).await.unwrap().state;
    assert_eq!(json!(state.datasets["rows"].items), rows(40));
    assert_eq!(state.tasks["write"].summary.as_deref(), Some("asked"));
}

#[tokio::test]
async fn long_histories_are_replaced_by_the_same_summary_before_and_after_a_stop() {
    let compaction = "compaction: {token_limit: 100, turn_retention: 2}";
    let mission = format!(
        "mission:\n  name: m\n  description: x\n  agents: [helper]\n  commander: {{{compaction}}}\n  local_agents: {{helper: {{description: helps, tools: [shop], {compaction}}}}}\n  datasets: {{rows: {{items: [{{name: a}}, {{name: b}}, {{name: c}}]}}}}\n  tasks:\n    read:\n      objective: Read.\n      iterator: {{dataset: rows}}\n      output: {{n: {{type: string, required: true}}}}\n"
    );
    let respond = |request: &ChatRequest| {
        let last = request.messages.last().unwrap().text();
        let results = last_results(request);
        let response = match is_agent(request) {
            true => match results.as_slice() {
                [] => calls(&[("find", json!({"at": last}))]),
                [found] if found.contains("id: ") => calls(&[("result_info", json!({"id": "_result_find_1"}))]),
                _ => say("<ANSWER>seen</ANSWER>"),
            },
            false => match results.as_slice() {
                [] => calls(&[("dataset_next", json!({}))]),
                ["seen"] => {
                    calls(&[("submit_output", json!({"output": {"n": "seen"}})), ("complete_subtask", json!({}))])
                }
                [found] | [.., found] if found.contains("\"item\"") => {
                    let item: Json = serde_json::from_str(found).unwrap();
                    let name = item["item"]["name"].as_str().unwrap();
                    calls(&[
                        ("set_subtasks", json!({"subtasks": [format!("look at {name}")]})),
                        ("call_agent", json!({"name": "helper", "task": format!("look at {name}")})),
                    ])
                }
                [.., "seen"] => {
                    calls(&[("submit_output", json!({"output": {"n": "seen"}})), ("complete_subtask", json!({}))])
                }
                [found] if found.contains("exhausted") => calls(&[("task_complete", json!({"summary": "read"}))]),
                _ => calls(&[("dataset_next", json!({}))]),
            },
        };
        let usage = Usage { input: 30 * request.messages.len() as u64, output: 1, ..Usage::default() };
        ChatResponse { usage, ..response }
    };
    let finished = the_same_after_each_stop(&mission, 3, respond).await;
    assert_eq!(finished.end, RunEnd::Completed, "{:?}", finished.events.last());
    let requests = finished.requests.lock().unwrap();
    let summary = |request: &ChatRequest| {
        let mut texts = request.messages.iter().map(|message| message.text().to_owned());
        texts.find(|text| text.contains("is replaced by this summary"))
    };
    let of = |agent: bool| requests.iter().filter(move |request| is_agent(request) == agent).filter_map(summary);
    let commander = of(false).next_back().unwrap();
    for part in [
        "[completed] look at c",
        "The current item is number 2 (`c`) of 3; numbers begin with 0.",
        "outputs of 3 of 3 items are submitted",
        "- set_subtasks: ",
    ] {
        assert!(commander.contains(part), "{part}: {commander}");
    }
    assert!(!commander.contains("## Assignment"), "{commander}");
    assert!(
        requests
            .iter()
            .filter(|request| !is_agent(request))
            .all(|request| request.messages[1].text().contains("Read."))
    );
    let agent = of(true).next_back().unwrap();
    assert!(agent.contains("## Assignment\nlook at c") && agent.contains("_result_find_1: array"), "{agent}");
    for entity in ["commander", "helper"] {
        let compacted = |event: &&RunEvent| matches!(&event.event.kind, RunEventKind::Compaction { entity: found, .. } if **found == *entity);
        assert!(finished.events.iter().filter(compacted).count() > 1, "{entity}");
    }
}

/// The code with which the only task of a run failed.
fn failure(events: &[RunEvent]) -> Option<&str> {
    events.iter().find_map(|event| match &event.event.kind {
        RunEventKind::TaskFailed { code, .. } => Some(&**code),
        _ => None,
    })
}

#[tokio::test]
async fn repeated_and_failing_calls_end_a_loop_and_a_cursor_does_not() {
    let one = format!("{FIND_HEAD}  commander: {{plan: optional}}\n  tasks: {{read: {{objective: Read.}}}}\n");
    // The same call again and again.
    let stuck = |request: &ChatRequest| match request.tools.is_empty() {
        true => say("I do not know."),
        false => calls(&[("get_subtasks", json!({}))]),
    };
    let finished = run(&one, None, stuck).await;
    assert_eq!((finished.end, failure(&finished.events)), (RunEnd::Failed, Some("A0526")));
    assert_eq!(finished.requests.lock().unwrap().len(), 6);
    // Other calls each time, which all fail.
    let failing = |request: &ChatRequest| {
        calls(&[("call_agent", json!({"name": "nobody", "task": format!("{}", request.messages.len())}))])
    };
    let finished = run(&one, None, failing).await;
    assert_eq!((finished.end, failure(&finished.events)), (RunEnd::Failed, Some("A0502")));
    assert_eq!(finished.requests.lock().unwrap().len(), 9);
    // An agent that repeats itself is asked for its answer.
    let agent = |request: &ChatRequest| match (is_agent(request), last_results(request).as_slice()) {
        (true, _) if request.tools.is_empty() => say("<ANSWER>enough</ANSWER>"),
        (true, _) => calls(&[("find", json!({}))]),
        (false, [answer]) => calls(&[("task_complete", json!({"summary": answer}))]),
        (false, _) => calls(&[("call_agent", json!({"name": "helper", "task": "find"}))]),
    };
    let finished = run(&one, None, agent).await;
    let state = finished.engine.status(&finished.run).await.unwrap().state;
    assert_eq!(state.tasks["read"].summary.as_deref(), Some("enough"));
    // An agent that reaches its limit of model calls: the commander gets what it had written.
    let busy = |request: &ChatRequest| match (is_agent(request), last_results(request).as_slice()) {
        (true, _) => {
            let at = request.messages.len();
            ChatResponse { text: format!("So far: {at}.").into(), ..calls(&[("find", json!({ "at": at }))]) }
        }
        (false, [answer]) => calls(&[("task_complete", json!({"summary": answer}))]),
        (false, _) => calls(&[("call_agent", json!({"name": "helper", "task": "find"}))]),
    };
    let finished = run(&one, None, busy).await;
    let state = finished.engine.status(&finished.run).await.unwrap().state;
    let summary = state.tasks["read"].summary.clone().unwrap();
    assert!(summary.contains("agent.capped") && summary.contains("\"partial\":\"So far: "), "{summary}");
    // The cursor of a dataset has the same call for each item.
    let items: Vec<Json> = (0..30).map(|n| json!({ "n": n })).collect();
    let many = format!(
        "{FIND_HEAD}  commander: {{plan: optional}}\n  datasets: {{rows: {{items: {}}}}}\n  tasks: {{read: {{objective: Read., iterator: {{dataset: rows}}}}}}\n",
        json!(items)
    );
    let cursor = |request: &ChatRequest| match last_results(request).as_slice() {
        [found] if found.contains("exhausted") => calls(&[("task_complete", json!({"summary": "read"}))]),
        _ => calls(&[("dataset_next", json!({}))]),
    };
    assert_eq!(run(&many, None, cursor).await.end, RunEnd::Completed);
}

#[tokio::test]
async fn calls_after_the_end_of_a_task_are_answered_as_not_started() {
    let mission = format!(
        "{FIND_HEAD}  commander: {{plan: optional}}\n  tasks:\n    gather: {{objective: Gather.}}\n    write: {{objective: Write., depends_on: [gather]}}\n"
    );
    let respond = |request: &ChatRequest| {
        let last = request.messages.last().unwrap().text();
        match last {
            "Gather." => calls(&[
                ("task_complete", json!({"summary": "gathered"})),
                ("call_agent", json!({"name": "helper", "task": "find"})),
            ]),
            "Write." => calls(&[("ask_commander", json!({"task_name": "gather", "question": "Why?"}))]),
            _ if last.contains("Why?") => {
                check_pairs(request);
                assert!(request.messages.iter().any(|message| message.text().contains("tool.queued")));
                say("Because.")
            }
            answer => calls(&[("task_complete", json!({ "summary": answer }))]),
        }
    };
    let finished = run(&mission, None, respond).await;
    assert_eq!(finished.end, RunEnd::Completed);
    assert!(!kinds(&finished.events).contains_key("agent_started"));
}

#[tokio::test]
async fn a_unit_that_cannot_be_read_fails_and_its_run_ends() {
    let mission = format!("{FIND_HEAD}  commander: {{plan: optional}}\n  tasks: {{read: {{objective: Read.}}}}\n");
    let store: Arc<dyn RunStore> = Arc::new(MemoryRunStore::new());
    let respond = |_: &ChatRequest| calls(&[("task_complete", json!({}))]);
    let (engine, _, stop) = engine(&mission, Some(0), store.clone(), respond);
    let run = engine.start(StartRun::new("m")).await.unwrap();
    assert_eq!(engine.drive(&run, &stop, &mut |_| {}).await.unwrap(), RunEnd::Stopped);
    engine.resume(&run).await.unwrap();
    let now = segue_engine::time::Timestamp::from_micros(i64::MAX / 4);
    let lease = std::time::Duration::from_micros(1);
    let claim = ClaimRequest { run: Some(run.clone()), owner: "test".into(), now, lease, limit: 1, gone: Vec::new() };
    let claimed = store.claim(claim).await.unwrap().remove(0);
    let mut batch = UnitBatch::new(claimed.key, claimed.epoch, now);
    batch.checkpoint = Some("{\"commander\": 7}".into());
    batch.transition = UnitTransition::Ready { wake_at: None };
    store.append(batch).await.unwrap();
    let mut events = Vec::new();
    let end = engine.drive(&run, &CancellationToken::new(), &mut |event| events.push(event.clone())).await.unwrap();
    assert_eq!((end, failure(&events)), (RunEnd::Failed, Some("unit.unreadable")));
}

/// A tool that looks how many of its calls run at the same time.
fn meet(active: Arc<AtomicUsize>, most: Arc<AtomicUsize>) -> Tool {
    Tool::from_fn(ToolInfo::new("meet", "Meets").effect(EffectClass::Read), move |_, _| {
        let (active, most) = (active.clone(), most.clone());
        async move {
            most.fetch_max(active.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            active.fetch_sub(1, Ordering::SeqCst);
            ToolOutcome::Done(ToolOutput::text("met"))
        }
    })
}

#[tokio::test]
async fn adjacent_calls_of_different_agents_run_together_within_the_limit_and_others_do_not() {
    let names = ["a", "b", "c", "d", "e"];
    let agents: Vec<String> =
        names.iter().map(|name| format!("{name}: {{description: helps, tools: [shop]}}")).collect();
    let call = |name: &str| ("call_agent", json!({"name": name, "task": format!("meet as {name}")}));
    let other = ("get_subtasks", json!({}));
    for (limit, calls_of_response, expected, order) in [
        ("", names.map(call).to_vec(), 3, None),
        ("max_parallel_agents: 5, ", names.map(call).to_vec(), 5, None),
        ("max_parallel_agents: 1, ", names.map(call).to_vec(), 1, None),
        ("", vec![call("a"), call("b"), call("a"), call("b")], 2, None),
        ("", vec![call("a"), other, call("b")], 1, Some(["a started", "a completed", "b started", "b completed"])),
    ] {
        let mission = format!(
            "mission:\n  name: m\n  description: x\n  agents: [{}]\n  commander: {{{limit}plan: optional}}\n  local_agents: {{{}}}\n  tasks: {{read: {{objective: Read.}}}}\n",
            names.join(", "),
            agents.join(", ")
        );
        let (active, most): (Arc<AtomicUsize>, Arc<AtomicUsize>) = Default::default();
        let wanted = calls_of_response.clone();
        let respond = move |request: &ChatRequest| match (is_agent(request), last_results(request).as_slice()) {
            (true, []) => calls(&[("meet", json!({}))]),
            (true, _) => {
                let task =
                    request.messages.iter().rev().map(|message| message.text()).find(|text| text.contains("meet as"));
                let name = task.unwrap().split("meet as ").nth(1).unwrap().split_whitespace().next().unwrap();
                say(format!("<ANSWER>met as {name}</ANSWER>"))
            }
            (false, []) => calls(&wanted),
            (false, results) => calls(&[("task_complete", json!({"summary": results.join(", ")}))]),
        };
        let tool = meet(active, most.clone());
        let (engine, ..) = engine_with(&mission, None, Arc::new(MemoryRunStore::new()), tool, respond);
        let run = engine.start(StartRun::new("m")).await.unwrap();
        let mut events = Vec::new();
        let end = engine.drive(&run, &CancellationToken::new(), &mut |event| events.push(event.clone())).await.unwrap();
        assert_eq!((end, most.load(Ordering::SeqCst)), (RunEnd::Completed, expected), "{limit}{calls_of_response:?}");
        let state = engine.status(&run).await.unwrap().state;
        let summary = state.tasks["read"].summary.clone().unwrap();
        let results = calls_of_response.iter().map(|(tool, arguments)| match *tool {
            "call_agent" => format!("met as {}", arguments["name"].as_str().unwrap()),
            _ => r#"{"status":"ok","subtasks":[],"note":"No subtasks are planned."}"#.to_owned(),
        });
        let results: Vec<String> = results.collect();
        if order.is_none() {
            assert_eq!(*summary, results.join(", "));
        }
        let steps = events.iter().filter_map(|event| match &event.event.kind {
            RunEventKind::AgentStarted { agent, .. } => Some(format!("{agent} started")),
            RunEventKind::AgentCompleted { agent, .. } => Some(format!("{agent} completed")),
            _ => None,
        });
        let steps: Vec<String> = steps.collect();
        assert_eq!(steps.len(), 2 * results.iter().filter(|result| result.starts_with("met")).count());
        if let Some(order) = order {
            assert_eq!(steps, order);
        }
    }
}

#[tokio::test]
async fn after_a_stop_only_the_calls_of_agents_go_on_that_had_not_ended() {
    let mission = "mission:\n  name: m\n  description: x\n  agents: [a, b, c]\n  commander: {plan: optional}\n  local_agents: {a: {description: helps, tools: [shop]}, b: {description: helps, tools: [shop]}, c: {description: helps, tools: [shop]}}\n  tasks: {read: {objective: Read.}}\n";
    let respond = |request: &ChatRequest| match (is_agent(request), last_results(request).as_slice()) {
        (true, []) => calls(&[("find", json!({}))]),
        (true, _) => say(request.messages[0].text()),
        (false, []) => calls(&["a", "b", "c"].map(|name| ("call_agent", json!({"name": name, "task": "find"})))),
        (false, results) => calls(&[("task_complete", json!({"summary": results.concat()}))]),
    };
    let distinct = |finished: &Finished| {
        let requests = finished.requests.lock().unwrap();
        requests.iter().map(text_of).collect::<std::collections::BTreeSet<String>>()
    };
    let whole = run(mission, None, respond).await;
    let summary = async |finished: &Finished| {
        finished.engine.status(&finished.run).await.unwrap().state.tasks["read"].summary.clone().unwrap()
    };
    let count = whole.requests.lock().unwrap().len();
    assert_eq!(count, 8);
    for stop_at in 0..count {
        let stopped = run(mission, Some(stop_at), respond).await;
        assert_eq!(stopped.end, RunEnd::Completed, "{stop_at}");
        assert_eq!(distinct(&stopped), distinct(&whole), "{stop_at}");
        assert_eq!(summary(&stopped).await, summary(&whole).await, "{stop_at}");
        let (found, expected) = (kinds(&stopped.events), kinds(&whole.events));
        for kind in ["agent_started", "agent_completed", "session_turn", "task_completed"] {
            assert_eq!(found.get(kind), expected.get(kind), "{stop_at}: {kind}");
        }
    }
}

#[tokio::test]
async fn a_long_call_of_an_agent_takes_several_slices_and_is_not_repeated() {
    let mission = format!("{FIND_HEAD}  commander: {{plan: optional}}\n  tasks: {{read: {{objective: Read.}}}}\n");
    let respond = |request: &ChatRequest| match (is_agent(request), request.messages.len()) {
        (true, 42..) => say("<ANSWER>enough</ANSWER>"),
        (true, length) => calls(&[("find", json!({ "at": length }))]),
        (false, 2) => calls(&[("get_subtasks", json!({})), ("call_agent", json!({"name": "helper", "task": "find"}))]),
        (false, _) => calls(&[("task_complete", json!({"summary": last_results(request)[1]}))]),
    };
    let finished = the_same_after_each_stop(&mission, 5, respond).await;
    assert_eq!((finished.end, finished.requests.lock().unwrap().len()), (RunEnd::Completed, 23));
    // What is stored of the unit in the middle of the call is bounded, and the unit was claimed several times.
    let store: Arc<dyn RunStore> = Arc::new(MemoryRunStore::new());
    let (engine, _, stop) = engine(&mission, Some(20), store.clone(), respond);
    let run = engine.start(StartRun::new("m")).await.unwrap();
    assert_eq!(engine.drive(&run, &stop, &mut |_| {}).await.unwrap(), RunEnd::Stopped);
    let unit = store.units(&run).await.unwrap().remove(0);
    assert!(unit.epoch >= 3, "{unit:?}");
    let content = store.unit(&unit.key).await.unwrap().unwrap();
    assert!(content.records.len() < 20, "{:?}", content.records.iter().map(|record| &record.key).collect::<Vec<_>>());
    let checkpoint: Json = serde_json::from_str(&content.checkpoint.unwrap()).unwrap();
    assert!(checkpoint["records"].as_array().unwrap().len() < 10, "{}", checkpoint["records"]);
}

#[tokio::test]
async fn iterations_wait_for_a_provider_that_limits_the_rate_without_an_attempt_and_without_requests() {
    use segue::llm::{
        LlmErrorKind,
        retry::RetryPolicy,
        router::{GroupMember, MemberLimits, RateLimit, Router, RouterConfig},
    };
    use segue::testing::ManualClock;

    const ITEMS: usize = 20;
    /// A model whose provider allows no request before second 60.
    struct Limited(ModelProfile, Arc<Mutex<Vec<u64>>>);
    #[async_trait]
    impl Llm for Limited {
        fn profile(&self) -> &ModelProfile {
            &self.0
        }
        async fn chat(&self, _: ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError> {
            let now = cx.clock.elapsed().as_secs();
            self.1.lock().unwrap().push(now);
            let after = std::time::Duration::from_secs(60_u64.saturating_sub(now));
            match after.is_zero() {
                true => Ok(ChatStream::from_response(calls(&[("task_complete", json!({}))]))),
                false => Err(LlmErrorKind::RateLimited { after: Some(after) }.into()),
            }
        }
    }
    let items: Vec<Json> = (0..ITEMS).map(|n| json!({ "n": n })).collect();
    let mission = format!(
        "{HEAD}  datasets: {{rows: {{items: {}}}}}\n  tasks:\n    read:\n      objective: 'Read {{{{ item.n }}}}.'\n      iterator: {{dataset: rows, parallel: true, concurrency_limit: {ITEMS}}}\n",
        json!(items)
    );
    let files = [
        ("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n"),
        ("domain.yml", ""),
        ("missions/m.yml", &*mission),
    ];
    let requests: Arc<Mutex<Vec<u64>>> = Arc::default();
    let model = Arc::new(Limited(ModelProfile::for_model("test", ""), requests.clone()));
    let member =
        GroupMember { model, max_attempts: 2, limits: MemberLimits::default(), rate_limit: RateLimit::default() };
    let group = Router::new(member, vec![], RouterConfig::default(), RetryPolicy::default(), 7);
    let clock = Arc::new(ManualClock::new());
    let builder = Assistant::builder_from_texts(files).unwrap_or_else(|error| panic!("{error:?}"));
    let builder = builder.model(Arc::new(group)).clock(clock.clone());
    let engine = builder.build_missions(Arc::new(MemoryRunStore::new())).unwrap();
    let run = engine.start(StartRun::new("m")).await.unwrap();
    let mut events = Vec::new();
    let (stop, mut on_event) = (CancellationToken::new(), |event: &RunEvent| events.push(event.clone()));
    let end = tokio::select! {
        end = engine.drive(&run, &stop, &mut on_event) => end.unwrap(),
        () = pass_time(&clock) => unreachable!(),
    };
    assert_eq!(end, RunEnd::Completed);
    let requests = requests.lock().unwrap();
    assert_eq!(requests.len(), ITEMS + 1, "{requests:?}");
    assert_eq!(requests.iter().filter(|second| **second < 60).count(), 1, "{requests:?}");
    let kinds = kinds(&events);
    assert_eq!((kinds["iteration_completed"], kinds.get("iteration_retrying")), (20, None));
    assert_eq!(kinds["mission_issue"], 20, "each loop says that it waits");
}

/// Lets virtual seconds pass, with time for every task between them.
async fn pass_time(clock: &segue::testing::ManualClock) {
    loop {
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
        clock.advance(std::time::Duration::from_secs(1));
    }
}

#[tokio::test]
async fn a_unit_that_works_longer_than_its_lease_is_not_taken_over() {
    /// A model that takes five minutes.
    struct Slow(ModelProfile, AtomicUsize);
    #[async_trait]
    impl Llm for Slow {
        fn profile(&self) -> &ModelProfile {
            &self.0
        }
        async fn chat(&self, _: ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError> {
            self.1.fetch_add(1, Ordering::SeqCst);
            cx.wait(cx.clock.sleep(cx.clock.deadline(std::time::Duration::from_secs(300)))).await?;
            Ok(ChatStream::from_response(calls(&[("task_complete", json!({}))])))
        }
    }
    let mission = format!("{HEAD}  tasks: {{read: {{objective: Read.}}}}\n");
    let model = Arc::new(Slow(ModelProfile::for_model("test", ""), AtomicUsize::new(0)));
    let (store, clock) = (Arc::new(MemoryRunStore::new()), Arc::new(segue::testing::ManualClock::new()));
    let engine = || {
        let files = [
            ("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n"),
            ("domain.yml", ""),
            ("missions/m.yml", &*mission),
        ];
        let builder = Assistant::builder_from_texts(files).unwrap_or_else(|error| panic!("{error:?}"));
        builder.model(model.clone()).clock(clock.clone()).build_missions(store.clone()).unwrap()
    };
    let (first, second) = (engine(), engine());
    let run = first.start(StartRun::new("m")).await.unwrap();
    let stop = CancellationToken::new();
    let (mut one, mut other) = (|_: &RunEvent| {}, |_: &RunEvent| {});
    let both = async { tokio::join!(first.drive(&run, &stop, &mut one), second.drive(&run, &stop, &mut other)) };
    let ends = tokio::select! {
        ends = both => (ends.0.unwrap(), ends.1.unwrap()),
        () = pass_time(&clock) => unreachable!(),
    };
    assert_eq!(ends, (RunEnd::Completed, RunEnd::Completed));
    assert_eq!(model.1.load(Ordering::SeqCst), 1);
    assert!(clock.elapsed() >= std::time::Duration::from_secs(300), "{:?}", clock.elapsed());
}

/// A tool server with one tool that lists 60 rows, and the number of its calls.
async fn list_server() -> (String, Arc<AtomicUsize>) {
    async fn handle(State(count): State<Arc<AtomicUsize>>, Body(message): Body<Json>) -> axum::response::Response {
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "shop", "version": "1"}}),
            "tools/list" => {
                json!({"tools": [{"name": "list", "description": "lists rows", "inputSchema": {"type": "object"},
                "annotations": {"readOnlyHint": true}}]})
            }
            "tools/call" => {
                count.fetch_add(1, Ordering::SeqCst);
                json!({"content": [{"type": "text", "text": rows(60).to_string()}]})
            }
            "ping" => json!({}),
            _ => return StatusCode::ACCEPTED.into_response(),
        };
        Body(json!({"jsonrpc": "2.0", "id": message["id"], "result": result})).into_response()
    }
    let count = Arc::new(AtomicUsize::new(0));
    let router = Router::new().route("/mcp", post(handle)).with_state(count.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, count)
}

const LIST_SCRIPT: &str = r#"
rules:
  - when: {purpose: agent, last_tool: {name: list}}
    calls: [{name: result_items, arguments: {id: _result_list_1, offset: 58, count: 1}}]
  - when: {purpose: agent, last_tool: {name: result_items}}
    say: '<ANSWER>{{ tool.items[0].name }} of {{ tool.total_items }}</ANSWER>'
  - when: {purpose: agent}
    calls: [{name: list, arguments: {}}]
  - when: {purpose: commander, last_tool: {}}
    calls: [{name: task_complete, arguments: {summary: '{{ tool_text }}'}}]
  - when: {purpose: commander}
    calls: [{name: call_agent, arguments: {name: helper, task: 'list all'}}]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_result_is_read_by_its_id_after_the_process_was_killed() {
    let mut killed = 0;
    for hit in (1..).step_by(if is_full() { 1 } else { 3 }) {
        let (address, listed) = list_server().await;
        let folder = tempfile::tempdir().unwrap();
        let servers = format!("mcp_servers: [{{name: shop, type: http, url: '{address}', trust_annotations: true}}]\n");
        write_project(folder.path(), "shop", &servers, "    read: {objective: Read.}\n");
        std::fs::write(folder.path().join("script.yml"), LIST_SCRIPT).unwrap();
        let run = ["run", "m", "--store", "sqlite:runs.db", "--input", "topic=x", "--idempotency-key", "one"];
        let failpoint = format!("run_append_done@{hit}");
        let first = segue(folder.path(), &run, &[("SEGUE_FAILPOINT", &failpoint)]);
        let was_killed = first.code == -1;
        let resumed = segue(folder.path(), &run, &[("SEGUE_TEST_CLOCK_AHEAD", "120")]);
        assert_eq!(resumed.code, 0, "{failpoint}: {}\n{}", resumed.out, resumed.err);
        let completed =
            resumed.lines().into_iter().find(|line| line.contains("\"task_completed\"")).unwrap().to_owned();
        assert!(completed.contains("row 58 of 60"), "{failpoint}: {completed}");
        assert!(listed.load(Ordering::SeqCst) <= 1 + usize::from(was_killed), "{failpoint}");
        if !was_killed {
            break;
        }
        killed += 1;
    }
    assert!(killed > 2, "{killed}");
}

#[tokio::test]
async fn a_call_that_reaches_no_tool_is_in_the_events_as_a_failed_one_and_once() {
    let mission = format!("{FIND_HEAD}  commander: {{plan: optional}}\n  tasks: {{gather: {{objective: Gather.}}}}\n");
    let respond = |request: &ChatRequest| {
        let results = last_results(request);
        match (is_agent(request), results.as_slice()) {
            (true, []) => {
                let mut response = calls(&[("fly", json!({"to": "the moon"})), ("find", json!({}))]);
                response.tool_calls[1].arguments =
                    ToolArguments::Malformed { text: "{oops".into(), error: "key must be a string".into() };
                response
            }
            (true, [unknown, malformed]) => {
                assert!(unknown.contains("find") && malformed.contains("key must be a string"), "{results:?}");
                calls(&[("find", json!({}))])
            }
            (true, _) => say("<ANSWER>found</ANSWER>"),
            (false, []) => calls(&[
                ("fly", json!({})),
                ("set_subtasks", json!({"subtasks": []})),
                ("call_agent", json!({"name": "helper", "task": "find it"})),
            ]),
            (false, _) => done("gathered"),
        }
    };
    let finished = the_same_after_each_stop(&mission, 1, respond).await;
    assert_eq!(finished.end, RunEnd::Completed, "{:?}", finished.events.last());
    assert_pairs(&finished.events);
    let mut completed = Vec::new();
    let mut inputs = Vec::new();
    for event in &finished.events {
        match &event.event.kind {
            RunEventKind::ToolCalled { tool, input, .. } => inputs.push((&**tool, input.clone())),
            RunEventKind::ToolCompleted { entity, tool, failed, result, .. } => {
                assert!(!result.is_empty(), "{event:?}");
                completed.push((&**entity, &**tool, *failed));
            }
            _ => {}
        }
    }
    assert_eq!(
        completed,
        [
            ("commander", "fly", true),
            ("commander", "set_subtasks", true),
            ("helper", "fly", true),
            ("helper", "find", true),
            ("helper", "find", false)
        ]
    );
    assert!(inputs.contains(&("fly", json!({"to": "the moon"}))) && inputs.contains(&("find", json!("{oops"))));
}
