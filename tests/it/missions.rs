//! Runs of missions: with models of the test and a store in memory, and with the program, a SQLite file and real crashes.

mod budgets;
mod builtin;
mod crashes;
mod endings;
mod files;
mod graph;
mod loops;
mod questions;
mod scenarios;
mod secrets;
mod tool_server;
mod twelve_tasks;
mod writes;

#[cfg(unix)]
mod operating;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use axum::{Json as Body, Router, extract::State, http::StatusCode, response::IntoResponse, routing::post};
use futures::future::BoxFuture;
use segue::{
    Assistant, AssistantBuilder, CallContext, ChatRequest, ChatResponse, ChatStream, Llm, LlmError, ModelProfile,
    llm::{ChatMessage, ToolArguments, ToolCall},
    missions::{RunEnd, RunEngine, StartRun},
    store::runs::{MemoryRunStore, RunStore},
};
use segue_engine::mission::{
    event::{RunEvent, RunEventKind},
    state::TaskStatus,
};
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use crate::support::program::{ProgramOutput, command};

/// A model whose responses a function makes from the messages.
struct FunctionModel<F> {
    profile: ModelProfile,
    respond: F,
    requests: Arc<Mutex<Vec<ChatRequest>>>,
}

#[async_trait]
impl<F: Fn(&ChatRequest) -> ChatResponse + Send + Sync> Llm for FunctionModel<F> {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }
    async fn chat(&self, request: ChatRequest, _: &CallContext) -> Result<ChatStream, LlmError> {
        let answer = (self.respond)(&request);
        self.requests.lock().unwrap().push(request);
        Ok(ChatStream::from_response(answer))
    }
}

fn calls(calls: &[(&str, Json)]) -> ChatResponse {
    let call = |(at, (name, arguments)): (usize, &(&str, Json))| ToolCall {
        id: format!("call-{at}").into(),
        name: (*name).into(),
        arguments: ToolArguments::json(arguments.clone()),
    };
    ChatResponse { tool_calls: calls.iter().enumerate().map(call).collect(), ..ChatResponse::default() }
}

/// A response with a text alone.
fn says(text: &str) -> ChatResponse {
    ChatResponse { text: text.into(), ..ChatResponse::default() }
}

/// A response that completes the task.
fn done(summary: &str) -> ChatResponse {
    calls(&[("task_complete", json!({ "summary": summary }))])
}

/// The text of the last message.
fn last(request: &ChatRequest) -> &str {
    request.messages.last().unwrap().text()
}

fn is_agent(request: &ChatRequest) -> bool {
    request.purpose.as_str() == "agent"
}

/// A run in memory, worked on to its end.
struct Finished {
    end: RunEnd,
    engine: RunEngine,
    run: segue::ids::RunId,
    events: Vec<RunEvent>,
    requests: Arc<Mutex<Vec<ChatRequest>>>,
}

/// The builder for a project with a mission, and the requests to its model.
fn builder_of(
    mission: &str,
    respond: impl Fn(&ChatRequest) -> ChatResponse + Send + Sync + 'static,
) -> (AssistantBuilder, Arc<Mutex<Vec<ChatRequest>>>) {
    let files = [
        ("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n"),
        ("domain.yml", ""),
        ("missions/m.yml", mission),
    ];
    let requests: Arc<Mutex<Vec<ChatRequest>>> = Arc::default();
    let profile = ModelProfile::for_model("test", "");
    let model = FunctionModel { profile, respond, requests: requests.clone() };
    let builder = Assistant::builder_from_texts(files).unwrap_or_else(|error| panic!("{error:?}"));
    (builder.model(Arc::new(model)), requests)
}

async fn finish(
    mission: &str,
    inputs: Json,
    respond: impl Fn(&ChatRequest) -> ChatResponse + Send + Sync + 'static,
) -> Finished {
    let (builder, requests) = builder_of(mission, respond);
    let engine = builder.build_missions(Arc::new(MemoryRunStore::new())).unwrap();
    let inputs = inputs.as_object().unwrap().clone();
    let run = engine.start(StartRun::new("m").inputs(inputs)).await.unwrap();
    let mut events = Vec::new();
    let end = engine.drive(&run, &CancellationToken::new(), &mut |event| events.push(event.clone())).await.unwrap();
    assert_pairs(&events);
    Finished { end, engine, run, events, requests }
}

/// Checks that each event that begins something has one that ends it, and that a run has one beginning and one end.
fn assert_pairs(events: &[RunEvent]) {
    let mut open: BTreeMap<(&str, String), u64> = BTreeMap::new();
    let (mut begun, mut ended) = (0, 0);
    for event in events {
        let new = &event.event;
        let place = format!("{:?} {:?} {:?}", new.task, new.round, new.iteration);
        let (kind, key, begins) = match &new.kind {
            RunEventKind::MissionStarted { .. } => {
                begun += 1;
                continue;
            }
            RunEventKind::MissionCompleted {}
            | RunEventKind::MissionFailed { .. }
            | RunEventKind::MissionStopped {} => {
                ended += 1;
                continue;
            }
            RunEventKind::TaskStarted { .. } => ("task", format!("{:?}", new.task), true),
            RunEventKind::TaskCompleted { .. }
            | RunEventKind::TaskRoundCompleted { .. }
            | RunEventKind::TaskFailed { .. }
            | RunEventKind::TaskCancelled {} => ("task", format!("{:?}", new.task), false),
            RunEventKind::IterationStarted { .. } => ("item", place, true),
            RunEventKind::IterationCompleted { .. }
            | RunEventKind::IterationFailed { .. }
            | RunEventKind::IterationCancelled {} => ("item", place, false),
            RunEventKind::AgentStarted { agent, .. } => ("agent", format!("{place} {agent}"), true),
            RunEventKind::AgentCompleted { agent, .. } => ("agent", format!("{place} {agent}"), false),
            RunEventKind::ToolCalled { call, .. } => ("tool", format!("{place} {call}"), true),
            RunEventKind::ToolCompleted { call, .. } => ("tool", format!("{place} {call}"), false),
            _ => continue,
        };
        let found = match begins {
            true => open.insert((kind, key), event.sequence).is_none(),
            false => open.remove(&(kind, key)).is_some(),
        };
        assert!(found, "event {} is one of a pair: {event:?}", event.sequence);
    }
    assert_eq!((begun, ended, open.len()), (1, 1, 0), "{open:?}");
}

const HEAD: &str = "mission:\n  name: m\n  description: x\n  agents: [helper]\n  commander: {plan: optional}\n  local_agents: {helper: {description: helps}}\n";

#[tokio::test]
async fn items_of_a_parallel_iteration_start_in_order_and_within_the_limit_and_their_outputs_keep_the_order() {
    const ITEMS: u32 = 150;
    let mission = format!(
        "{HEAD}  inputs: {{rows: {{type: list}}}}\n  datasets: {{rows: {{bind_to: rows, schema: {{n: {{type: integer, required: true}}}}}}}}\n  tasks:\n    read:\n      objective: 'Read {{{{ item.n }}}}.'\n      iterator: {{dataset: rows, parallel: true, concurrency_limit: 10}}\n      output: {{n: {{type: integer, required: true}}}}\n"
    );
    let rows: Vec<Json> = (0..ITEMS).map(|n| json!({ "n": n })).collect();
    let finished = finish(&mission, json!({ "rows": rows }), |request| {
        let objective = request.messages[1].text();
        let n: u32 = objective.trim_start_matches("Read ").trim_end_matches('.').parse().unwrap();
        calls(&[("submit_output", json!({"output": {"n": n}})), ("task_complete", json!({}))])
    })
    .await;
    assert_eq!(finished.end, RunEnd::Completed);
    let (mut started, mut open, mut most) = (Vec::new(), 0_u32, 0_u32);
    for event in &finished.events {
        match event.event.kind {
            RunEventKind::IterationStarted { .. } => {
                started.push(event.event.iteration.unwrap());
                open += 1;
                most = most.max(open);
            }
            RunEventKind::IterationCompleted { .. } => open -= 1,
            _ => {}
        }
    }
    assert_eq!(started, (0..ITEMS).collect::<Vec<_>>());
    assert_eq!(most, 10);
    let state = finished.engine.status(&finished.run).await.unwrap().state;
    let outputs: Vec<Option<Json>> = state.tasks["read"].items.values().map(|item| item.output.clone()).collect();
    assert_eq!(outputs, (0..ITEMS).map(|n| Some(json!({ "n": n }))).collect::<Vec<_>>());
    assert_eq!(finished.requests.lock().unwrap().len(), ITEMS as usize);
}

/// A run of a mission of a project on disk whose agent reads `report.md` in `memory`, and writes it, and a file in the workspace, if it is
/// not there. Returns the summary of its commander, and the requests to its model.
async fn run_with_files(folder: &Path, dry_run: bool) -> (String, segue::ids::RunId, Vec<ChatRequest>) {
    std::fs::create_dir_all(folder.join("missions")).unwrap();
    std::fs::create_dir_all(folder.join("packets/rules")).unwrap();
    std::fs::write(folder.join("config.yml"), "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n")
        .unwrap();
    std::fs::write(folder.join("domain.yml"), "").unwrap();
    let mission = HEAD.replace("description: helps", "description: helps, workspace: files")
        + "  storage: {memory: Reports, scratchpad: true, packets: [rules]}\n  tasks: {write: {objective: Write.}}\n";
    std::fs::write(folder.join("missions/m.yml"), mission).unwrap();
    let respond = |request: &ChatRequest| {
        let last = request.messages.last().unwrap();
        let result = matches!(**last, ChatMessage::Tool { .. }).then(|| last.text());
        let create = json!({"slot": "memory", "path": "report.md", "content": "# Report"});
        let write = json!({"description": "a note", "path": "notes.md", "content": "noted"});
        match (request.purpose.as_str(), result) {
            ("agent", None) => calls(&[("file_read", json!({"slot": "memory", "path": "report.md"}))]),
            ("agent", Some(text)) if text.contains("does not exist") => calls(&[("file_create", create)]),
            ("agent", Some(text)) if text.contains("\"created\"") => calls(&[("write_file", write)]),
            ("agent", Some(text)) => ChatResponse::text(text),
            (_, None) => calls(&[("call_agent", json!({"name": "helper", "task": "Write it."}))]),
            (_, Some(text)) => calls(&[("task_complete", json!({"summary": text}))]),
        }
    };
    let requests = Arc::<Mutex<Vec<ChatRequest>>>::default();
    let model = FunctionModel { profile: ModelProfile::for_model("test", ""), respond, requests: requests.clone() };
    let runs: Arc<dyn RunStore> = Arc::new(MemoryRunStore::new());
    let builder = Assistant::builder(folder).unwrap_or_else(|error| panic!("{error:?}"));
    let engine = builder.model(Arc::new(model)).build_missions(runs).unwrap();
    let start = StartRun::new("m").dry_run(dry_run);
    let run = engine.start(start).await.unwrap();
    let end = engine.drive(&run, &CancellationToken::new(), &mut |_| {}).await.unwrap();
    let state = engine.status(&run).await.unwrap().state;
    assert_eq!(end, RunEnd::Completed, "{:?}", state.tasks);
    let requests = requests.lock().unwrap().clone();
    (state.tasks["write"].summary.as_deref().unwrap_or_default().to_owned(), run, requests)
}

#[tokio::test]
async fn memory_lasts_from_run_to_run_and_a_workspace_belongs_to_its_run() {
    let folder = tempfile::tempdir().unwrap();
    let (summary, first, _) = run_with_files(folder.path(), false).await;
    assert!(summary.contains("Created /mnt/user-data/workspace/notes.md"), "{summary}");
    let (summary, second, _) = run_with_files(folder.path(), false).await;
    assert!(summary.contains("# Report"), "{summary}");
    let files = folder.path().join(".segue");
    assert_eq!(std::fs::read_to_string(files.join("missions/m/memory/report.md")).unwrap(), "# Report");
    let note = |run: &segue::ids::RunId| files.join("runs").join(run.as_str()).join("workspace/notes.md");
    assert!(note(&first).is_file() && !note(&second).exists());
}

#[tokio::test]
async fn commanders_and_agents_read_which_tools_reach_which_files() {
    let folder = tempfile::tempdir().unwrap();
    let (_, _, requests) = run_with_files(folder.path(), false).await;
    let instructions = |purpose: &str| {
        let request = requests.iter().find(|request| request.purpose.as_str() == purpose).unwrap();
        let system = request.messages.iter().filter(|message| matches!(***message, ChatMessage::System { .. }));
        system.map(|message| message.text()).collect::<Vec<_>>().join("\n")
    };
    let (commander, agent) = (instructions("commander"), instructions("agent"));
    assert!(
        commander.contains("# Folders of the mission") && commander.contains("`helper` can use files"),
        "{commander}"
    );
    assert!(!commander.contains("Paths without a leading slash begin in workspace"), "{commander}");
    assert!(agent.contains("Paths without a leading slash begin in workspace"), "{agent}");
    assert!(agent.contains("These folders are not below /mnt/user-data"), "{agent}");
}

#[tokio::test]
async fn a_commander_uses_the_folders_of_its_mission() {
    let folder = tempfile::tempdir().unwrap();
    run_with_files(folder.path(), false).await;
    let respond = |request: &ChatRequest| {
        let last = request.messages.last().unwrap();
        let result = matches!(**last, ChatMessage::Tool { .. }).then(|| last.text());
        let delete = json!({"slot": "memory", "path": "report.md"});
        match result {
            None => calls(&[("file_grep", json!({"slot": "memory", "pattern": "Report"}))]),
            Some(text) if text.contains("\"line\":1") => calls(&[("file_delete", delete)]),
            Some(text) => calls(&[("task_complete", json!({"summary": text}))]),
        }
    };
    let model = FunctionModel { profile: ModelProfile::for_model("test", ""), respond, requests: Arc::default() };
    let requests = model.requests.clone();
    let builder = Assistant::builder(folder.path()).unwrap_or_else(|error| panic!("{error:?}"));
    let engine = builder.model(Arc::new(model)).build_missions(Arc::new(MemoryRunStore::new())).unwrap();
    let run = engine.start(StartRun::new("m")).await.unwrap();
    engine.drive(&run, &CancellationToken::new(), &mut |_| {}).await.unwrap();
    let state = engine.status(&run).await.unwrap().state;
    let summary = state.tasks["write"].summary.as_deref().unwrap_or_default().to_owned();
    assert!(summary.contains("\"deleted\""), "{summary}");
    assert!(!folder.path().join(".segue/missions/m/memory/report.md").exists());
    let offered: Vec<_> = requests.lock().unwrap()[0].tools.iter().map(|tool| tool.name.to_string()).collect();
    for tool in ["file_list", "file_read", "file_create", "file_delete", "file_search", "file_grep", "call_agent"] {
        assert!(offered.iter().any(|name| name == tool), "{tool}: {offered:?}");
    }
    assert!(!offered.iter().any(|name| name == "write_file"), "the workspace is for agents: {offered:?}");
}

#[tokio::test]
async fn a_dry_run_writes_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let (summary, run, _) = run_with_files(folder.path(), true).await;
    assert!(summary.contains("dry run"), "{summary}");
    let files = folder.path().join(".segue");
    assert!(!files.join("missions/m/memory/report.md").exists());
    assert!(!files.join("runs").join(run.as_str()).join("workspace/notes.md").exists());
}

#[tokio::test]
async fn a_condition_over_the_output_decides_the_route() {
    let mission = format!(
        "{HEAD}  tasks:\n    judge:\n      objective: Judge.\n      output: {{score: {{type: integer, required: true}}}}\n      router:\n        - {{to: good, if: 'output.score > 5'}}\n        - {{to: bad, if: 'output.score <= 5'}}\n    good: {{objective: Praise.}}\n    bad: {{objective: Scold.}}\n"
    );
    for (score, taken, other) in [(9, "good", "bad"), (2, "bad", "good")] {
        let finished = finish(&mission, json!({}), move |request| match request.messages[1].text() {
            "Judge." => calls(&[
                ("submit_output", json!({"output": {"score": score}})),
                ("task_complete", json!({"summary": "judged"})),
            ]),
            _ => calls(&[("task_complete", json!({"summary": "done"}))]),
        })
        .await;
        assert_eq!(finished.end, RunEnd::Completed);
        let state = finished.engine.status(&finished.run).await.unwrap().state;
        assert_eq!(state.task_status(taken), TaskStatus::Completed, "{score}");
        assert_ne!(state.task_status(other), TaskStatus::Completed, "{score}");
    }
}

#[tokio::test]
async fn the_learnings_of_an_item_are_in_the_fresh_session_of_the_next_one() {
    let mission = format!(
        "{HEAD}  datasets: {{rows: {{items: [{{n: 1}}, {{n: 2}}]}}}}\n  tasks:\n    read:\n      objective: Read.\n      iterator: {{dataset: rows, session: fresh}}\n      output: {{n: {{type: integer, required: true}}}}\n"
    );
    let finished = finish(&mission, json!({}), |request| {
        let Some(result) = request.messages.last().filter(|message| matches!(***message, ChatMessage::Tool { .. }))
        else {
            return calls(&[("dataset_next", json!({}))]);
        };
        let result: Json = serde_json::from_str(result.text()).unwrap();
        if result["status"] == "exhausted" {
            return calls(&[("task_complete", json!({"summary": "all read"}))]);
        }
        let n = result["item"]["n"].as_u64().unwrap();
        let text = format!("<LEARNINGS>{{\"key_insights\": [\"insight {n}\"]}}</LEARNINGS>");
        let calls = calls(&[("submit_output", json!({"output": {"n": n}})), ("dataset_next", json!({}))]);
        ChatResponse { text: text.into(), ..calls }
    })
    .await;
    assert_eq!(finished.end, RunEnd::Completed);
    let state = finished.engine.status(&finished.run).await.unwrap().state;
    assert_eq!(state.tasks["read"].items.len(), 2);
    let requests = finished.requests.lock().unwrap();
    let second = requests.iter().find(|request| request.messages.last().unwrap().text().contains("\"n\":2")).unwrap();
    let fresh = &second.messages[2..];
    assert!(fresh[0].text().contains("insight 1"), "{fresh:?}");
    assert!(!fresh.iter().any(|message| message.text().contains("\"n\":1")), "{fresh:?}");
}

#[tokio::test]
async fn calls_that_a_commander_makes_for_each_item_are_not_taken_for_a_loop() {
    for session in ["shared", "fresh"] {
        let mission = format!(
            "{HEAD}  inputs: {{rows: {{type: list}}}}\n  datasets: {{rows: {{bind_to: rows}}}}\n  tasks:\n    read:\n      objective: Read.\n      iterator: {{dataset: rows, session: {session}}}\n      output: {{ok: {{type: boolean, required: true}}}}\n"
        );
        let rows: Vec<Json> = (0..40).map(|n| json!({ "n": n })).collect();
        let finished = finish(&mission, json!({ "rows": rows }), |request| {
            let last = request.messages.last().unwrap().text();
            if last.contains("\"exhausted\"") {
                return calls(&[("task_complete", json!({"summary": "all read"}))]);
            }
            match last.contains("\"item\"") {
                true => calls(&[("submit_output", json!({"output": {"ok": true}}))]),
                false => calls(&[("dataset_next", json!({}))]),
            }
        })
        .await;
        let state = finished.engine.status(&finished.run).await.unwrap().state;
        assert_eq!((finished.end, state.failure), (RunEnd::Completed, None), "{session}");
        assert_eq!(state.tasks["read"].count(TaskStatus::Completed), 40, "{session}");
    }
}

#[tokio::test]
async fn an_agent_asks_its_commander_and_goes_on_with_the_answer() {
    let mission = format!("{HEAD}  tasks: {{paint: {{objective: Paint.}}}}\n");
    let finished = finish(&mission, json!({}), |request| {
        let last = request.messages.last().unwrap().text();
        if request.purpose.as_str() == "agent" {
            return match last.contains("<COMMANDER_RESPONSE>") {
                true => ChatResponse { text: "<ANSWER>It is blue.</ANSWER>".into(), ..ChatResponse::default() },
                false => calls(&[("ask_commander", json!({"question": "Which colour?"}))]),
            };
        }
        match last {
            "Paint." => calls(&[("call_agent", json!({"name": "helper", "task": "paint it"}))]),
            "Which colour?" => calls(&[("call_agent", json!({"name": "helper", "response": "blue"}))]),
            answer => calls(&[("task_complete", json!({ "summary": answer }))]),
        }
    })
    .await;
    assert_eq!(finished.end, RunEnd::Completed);
    let state = finished.engine.status(&finished.run).await.unwrap().state;
    assert_eq!(state.tasks["paint"].summary.as_deref(), Some("It is blue."));
}

#[tokio::test]
async fn a_commander_answers_questions_about_its_completed_task_without_tools() {
    let mission = format!(
        "{HEAD}  tasks:\n    gather: {{objective: Gather.}}\n    write: {{objective: Write., depends_on: [gather]}}\n"
    );
    let finished = finish(&mission, json!({}), |request| {
        let last = request.messages.last().unwrap().text();
        if last.contains("<QUESTION>") {
            assert!(request.tools.is_empty() && last.contains("Why?"), "{last}");
            assert_eq!(request.messages[1].text(), "Gather.");
            return ChatResponse { text: "Because.".into(), ..ChatResponse::default() };
        }
        match last {
            "Gather." => calls(&[("task_complete", json!({"summary": "gathered"}))]),
            "Write." => calls(&[("ask_commander", json!({"task_name": "gather", "question": "Why?"}))]),
            answer => calls(&[("task_complete", json!({ "summary": answer }))]),
        }
    })
    .await;
    assert_eq!(finished.end, RunEnd::Completed);
    let state = finished.engine.status(&finished.run).await.unwrap().state;
    assert_eq!(state.tasks["write"].summary.as_deref(), Some("Because."));
}

/// A model that stops the run at its second call.
struct StoppingModel {
    profile: ModelProfile,
    stop: CancellationToken,
    called: AtomicUsize,
}

#[async_trait]
impl Llm for StoppingModel {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }
    async fn chat(&self, _: ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError> {
        let answer = match self.called.fetch_add(1, Ordering::SeqCst) {
            0 => calls(&[("get_subtasks", json!({}))]),
            1 => {
                self.stop.cancel();
                cx.cancel.cancelled().await;
                return Err(segue::llm::LlmErrorKind::Cancelled.into());
            }
            _ => calls(&[("task_complete", json!({}))]),
        };
        Ok(ChatStream::from_response(answer))
    }
}

#[tokio::test]
async fn a_stopped_run_is_resumed_where_it_was_and_a_cancelled_one_has_ended() {
    let mission = format!("{HEAD}  tasks: {{paint: {{objective: Paint.}}}}\n");
    let files = [
        ("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n"),
        ("domain.yml", ""),
        ("missions/m.yml", &*mission),
    ];
    let stop = CancellationToken::new();
    let profile = ModelProfile::for_model("test", "");
    let model = Arc::new(StoppingModel { profile, stop: stop.clone(), called: AtomicUsize::new(0) });
    let builder = Assistant::builder_from_texts(files).unwrap_or_else(|error| panic!("{error:?}"));
    let engine = builder.model(model.clone()).build_missions(Arc::new(MemoryRunStore::new())).unwrap();
    let start = StartRun::new("m");
    let run = engine.start(start.clone()).await.unwrap();
    assert_eq!(engine.drive(&run, &stop, &mut |_| {}).await.unwrap(), RunEnd::Stopped);
    engine.resume(&run).await.unwrap();
    assert_eq!(engine.drive(&run, &CancellationToken::new(), &mut |_| {}).await.unwrap(), RunEnd::Completed);
    // The first answer was recorded; only the interrupted call is made a second time.
    assert_eq!(model.called.load(Ordering::SeqCst), 3);
    let other = engine.start(start).await.unwrap();
    engine.stop(&other, segue::store::runs::StopRequest::Cancel).await.unwrap();
    assert_eq!(engine.drive(&other, &CancellationToken::new(), &mut |_| {}).await.unwrap(), RunEnd::Cancelled);
    assert_eq!(model.called.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_used_up_budget_leaves_one_turn_to_end_the_task() {
    let mission =
        format!("{HEAD}  budget: {{tokens: 10, on_breach: finish_turn}}\n  tasks: {{paint: {{objective: Paint.}}}}\n");
    for ends in [true, false] {
        let finished = finish(&mission, json!({}), move |request| {
            let is_last = !request.tools.iter().any(|tool| &*tool.name == "call_agent");
            let usage = segue::llm::Usage { input: 8, output: 8, ..Default::default() };
            let answer = match is_last && ends {
                true => calls(&[("task_complete", json!({}))]),
                false => calls(&[("get_subtasks", json!({}))]),
            };
            ChatResponse { usage, ..answer }
        })
        .await;
        assert_eq!(
            finished.end,
            if ends { RunEnd::Completed } else { RunEnd::Failed },
            "{ends}: {:?}",
            finished.events
        );
        assert_eq!(finished.requests.lock().unwrap().len(), 2, "{ends}");
    }
}

/// A budget is compared after each response of an agent: one response goes beyond it, and the warning comes once.
#[tokio::test]
async fn a_used_up_budget_stops_an_agent_that_works() {
    for (on_breach, end, responses) in
        [("fail", RunEnd::Failed, 4), ("finish_turn", RunEnd::Completed, 6), ("fail, warn_at: 0.5", RunEnd::Failed, 4)]
    {
        for of_task in [true, false] {
            let budget = format!("budget: {{tokens: 3500, on_breach: {on_breach}}}");
            let (of_run, of_task) =
                if of_task { (String::new(), format!(", {budget}")) } else { (format!("  {budget}\n"), String::new()) };
            let mission = format!(
                "{HEAD}{of_run}  datasets: {{rows: {{items: [{{n: 1}}, {{n: 2}}]}}}}\n  tasks: {{paint: {{objective: Paint.{of_task}}}}}\n"
            );
            let made = AtomicUsize::new(0);
            let finished = finish(&mission, json!({}), move |request| {
                let has_tools = !request.tools.is_empty();
                let is_last = !request.tools.iter().any(|tool| &*tool.name == "call_agent");
                let seed = made.fetch_add(1, Ordering::SeqCst);
                let answer = match (is_agent(request), has_tools, is_last) {
                    (true, true, _) => calls(&[("dataset_sample", json!({"name": "rows", "count": 1, "seed": seed}))]),
                    (true, false, _) => says("<ANSWER>so far</ANSWER>"),
                    (false, _, false) => calls(&[("call_agent", json!({"name": "helper", "task": "work"}))]),
                    (false, _, true) => calls(&[("task_complete", json!({}))]),
                };
                let usage = segue::llm::Usage { input: 800, output: 200, ..Default::default() };
                ChatResponse { usage, ..answer }
            })
            .await;
            assert_eq!(finished.end, end, "{on_breach}: {:?}", finished.events);
            assert_eq!(finished.requests.lock().unwrap().len(), responses, "{on_breach}");
            let issues: Vec<&str> = finished
                .events
                .iter()
                .filter_map(|event| match &event.event.kind {
                    RunEventKind::MissionIssue { category, .. } => Some(&**category),
                    _ => None,
                })
                .collect();
            assert_eq!(issues, ["budget_warning", "budget_exceeded"], "{on_breach}");
        }
    }
}

// ---- the program ----

const SCRIPT: &str = r#"
rules:
  - when: {purpose: agent, last_tool: {name: order}}
    say: '<ANSWER>{{ tool_text }}</ANSWER>'
  - when: {purpose: agent, user: 'order'}
    calls: [{name: order, arguments: {what: cup}}]
  - when: {purpose: agent}
    say: '<ANSWER>three pages</ANSWER>'
  - when: {purpose: commander, last_tool: {}}
    calls: [{name: task_complete, arguments: {summary: 'result: {{ tool_text }}'}}]
  - when: {purpose: commander, user: 'Choose'}
    calls: [{name: ask, arguments: {question: 'Which colour?'}}]
  - when: {purpose: commander, user: 'Order'}
    calls: [{name: call_agent, arguments: {name: helper, task: 'order a cup'}}]
  - when: {purpose: commander}
    calls: [{name: call_agent, arguments: {name: helper, task: 'find pages'}}]
"#;

fn write_project(folder: &Path, tools: &str, servers: &str, tasks: &str) {
    let mission = format!(
        "mission:\n  name: m\n  description: x\n  agents: [helper]\n  commander: {{plan: optional}}\n  local_agents: {{helper: {{description: helps, tools: [{tools}]}}}}\n  inputs: {{topic: {{type: string}}}}\n  tasks:\n{tasks}"
    );
    let endpoints =
        format!("model_groups: [{{id: main, models: [{{provider: scripted, script: script.yml}}]}}]\n{servers}");
    std::fs::create_dir_all(folder.join("missions")).unwrap();
    for (name, text) in [
        ("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n"),
        ("domain.yml", "version: '3.1'\n"),
        ("endpoints.yml", &endpoints),
        ("script.yml", SCRIPT),
        ("missions/m.yml", &mission),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
}

const TWO_TASKS: &str = "    gather: {objective: 'Find pages about {{ inputs.topic }}.'}\n    write: {objective: Write., depends_on: [gather]}\n";

fn segue(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> ProgramOutput {
    let mut command = command();
    command.current_dir(folder).args(["mission"]).args(arguments).envs(environment.iter().copied());
    command.output().unwrap().into()
}

/// The events of the last run that the output shows, and how often each kind occurs for a task.
fn counts(output: &ProgramOutput) -> BTreeMap<(String, String), u32> {
    let mut counts = BTreeMap::new();
    for line in output.lines() {
        let event: Json = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        *counts.entry((text("task"), text("event"))).or_default() += 1;
    }
    counts
}

#[test]
fn a_mission_of_two_tasks_runs_in_memory_and_prints_its_events_as_json_lines() {
    let folder = tempfile::tempdir().unwrap();
    write_project(folder.path(), "", "", TWO_TASKS);
    let ran = segue(folder.path(), &["run", "m", "--store", "memory", "--input", "topic=energy"], &[]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
    let first: Json = serde_json::from_str(ran.lines()[0]).unwrap();
    assert_eq!((&first["sequence"], &first["event"]), (&json!(1), &json!("mission_started")));
    assert_eq!(first["inputs"], json!({"topic": "energy"}));
    let last: Json = serde_json::from_str(ran.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"], "mission_completed");
    assert!(ran.out.contains("result: three pages"), "{}", ran.out);
    let missing = segue(folder.path(), &["run", "n", "--store", "memory"], &[]);
    assert_eq!(missing.code, 2, "{}", missing.err);
    let missing = segue(folder.path(), &["run", "m", "--store", "memory", "--input", "topic"], &[]);
    assert_eq!(missing.code, 2, "{}", missing.err);
}

#[test]
fn another_process_answers_a_question_and_the_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    write_project(folder.path(), "", "", "    choose: {objective: Choose.}\n");
    let store = ["--store", "sqlite:runs.db"];
    let with = |arguments: &[&str]| segue(folder.path(), &[arguments, &store].concat(), &[]);
    let ran = with(&["run", "m", "--input", "topic=x"]);
    assert_eq!(ran.code, 4, "{}\n{}", ran.out, ran.err);
    let started: Json = serde_json::from_str(ran.lines()[0]).unwrap();
    let run = started["run"].as_str().unwrap();
    assert_eq!(with(&["resume", run]).code, 4);
    let answered = with(&["answer", run, "blue"]);
    assert_eq!(answered.code, 0, "{}", answered.err);
    assert_eq!(with(&["answer", run, "red"]).code, 2);
    let resumed = with(&["resume", run]);
    assert_eq!(resumed.code, 0, "{}\n{}", resumed.out, resumed.err);
    assert!(resumed.out.contains("result: blue"), "{}", resumed.out);
    // Only what is new is printed.
    let new = counts(&resumed);
    assert_eq!(new[&("choose".into(), "session_turn".into())], 1, "{new:?}");
    assert!(!new.contains_key(&("choose".into(), "human_input_requested".into())), "{new:?}");
    let counts = counts(&with(&["show", run, "--events"]));
    assert_eq!(counts[&("choose".into(), "session_turn".into())], 2, "{counts:?}");
    assert_eq!(counts[&("choose".into(), "human_input_requested".into())], 1, "{counts:?}");
}

#[test]
fn after_a_crash_another_process_continues_the_run_and_no_completed_task_runs_again() {
    for failpoint in [
        "run_claimed",
        "run_claimed@2",
        "run_append_ready",
        "run_append_ready@4",
        "run_append_stored@2",
        "run_append_done",
        "run_append_done@5",
    ] {
        let folder = tempfile::tempdir().unwrap();
        write_project(folder.path(), "", "", TWO_TASKS);
        let run = ["run", "m", "--store", "sqlite:runs.db", "--input", "topic=x", "--idempotency-key", "one"];
        let crashed = segue(folder.path(), &run, &[("SEGUE_FAILPOINT", failpoint)]);
        assert_eq!(crashed.code, -1, "{failpoint} was not hit: {}\n{}", crashed.out, crashed.err);
        // The lease of the process that crashed is over.
        let resumed = segue(folder.path(), &run, &[("SEGUE_TEST_CLOCK_AHEAD", "120")]);
        assert_eq!(resumed.code, 0, "{failpoint}: {}\n{}", resumed.out, resumed.err);
        let counts = counts(&resumed);
        for task in ["gather", "write"] {
            for event in ["task_started", "agent_started", "agent_completed", "task_completed"] {
                let found = counts.get(&(task.into(), event.into()));
                assert_eq!(found, Some(&1), "{failpoint}: {task} {event}: {counts:?}");
            }
        }
    }
}

/// What a tool server does when its tool `order` is called: it returns the text of the result.
type OrderHandler = Arc<dyn Fn() -> BoxFuture<'static, String> + Send + Sync>;

/// The address of a tool server with the tool `order`.
async fn tool_server(order: OrderHandler) -> String {
    async fn handle(State(order): State<OrderHandler>, Body(message): Body<Json>) -> axum::response::Response {
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "shop", "version": "1"}}),
            "tools/list" => json!({"tools": [{"name": "order", "description": "orders something",
                "inputSchema": {"type": "object", "properties": {"what": {"type": "string"}}}}]}),
            "tools/call" => json!({"content": [{"type": "text", "text": order().await}]}),
            "ping" => json!({}),
            _ => return StatusCode::ACCEPTED.into_response(),
        };
        Body(json!({"jsonrpc": "2.0", "id": message["id"], "result": result})).into_response()
    }
    let router = Router::new().route("/mcp", post(handle)).with_state(order);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// A tool server that counts the orders it gets.
async fn order_server() -> (String, Arc<AtomicUsize>) {
    let orders = Arc::new(AtomicUsize::new(0));
    let counted = orders.clone();
    let order: OrderHandler = Arc::new(move || {
        let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
        Box::pin(std::future::ready(format!("order number {number}")))
    });
    (tool_server(order).await, orders)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_is_never_repeated_after_a_crash() {
    // The failpoint, the orders that the server gets, and a part of the result.
    for (failpoint, expected, result) in
        [("C11", 0, "unknown"), ("C14", 1, "unknown"), ("C15", 1, "order number 1"), ("none", 1, "order number 1")]
    {
        let (address, orders) = order_server().await;
        let folder = tempfile::tempdir().unwrap();
        let servers = format!("mcp_servers: [{{name: shop, type: http, url: '{address}'}}]\n");
        write_project(folder.path(), "shop", &servers, "    buy: {objective: Order a cup.}\n");
        let run = ["run", "m", "--store", "sqlite:runs.db", "--input", "topic=x", "--idempotency-key", "one"];
        let first = segue(folder.path(), &run, &[("SEGUE_FAILPOINT", failpoint)]);
        assert_eq!(first.code, if failpoint == "none" { 0 } else { -1 }, "{failpoint}: {}\n{}", first.out, first.err);
        let resumed = segue(folder.path(), &run, &[("SEGUE_TEST_CLOCK_AHEAD", "120")]);
        assert_eq!(resumed.code, 0, "{failpoint}: {}\n{}", resumed.out, resumed.err);
        assert_eq!(orders.load(Ordering::SeqCst), expected, "{failpoint}: {}", resumed.out);
        let completed =
            resumed.lines().into_iter().find(|line| line.contains("\"task_completed\"")).unwrap().to_owned();
        assert!(completed.contains(result), "{failpoint}: {completed}");
    }
    // A dry run sends nothing.
    let (address, orders) = order_server().await;
    let folder = tempfile::tempdir().unwrap();
    let servers = format!("mcp_servers: [{{name: shop, type: http, url: '{address}'}}]\n");
    write_project(folder.path(), "shop", &servers, "    buy: {objective: Order a cup.}\n");
    let dry = segue(folder.path(), &["run", "m", "--store", "memory", "--input", "topic=x", "--dry-run"], &[]);
    assert_eq!((dry.code, orders.load(Ordering::SeqCst)), (0, 0), "{}\n{}", dry.out, dry.err);
    assert!(dry.out.contains("this is a dry run"), "{}", dry.out);
    // The refused call is in the events.
    let refused = dry.lines().into_iter().filter(|line| line.contains(r#""tool":"order""#)).collect::<Vec<_>>();
    assert!(refused.len() == 2 && refused[1].contains(r#""failed":true"#), "{refused:?}");
}
