//! Agents of missions that are remote or that start sub-agents, with the program, a SQLite file and real crashes.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use segue::{
    Assistant, Store, Tool, ToolCallContext, ToolInfo, ToolOutcome, ToolOutput,
    delegation::{TaskEvent, TaskEventSink},
    effect::EffectClass,
    llm::scripted::ScriptedLlm,
    missions::{RunEnd, StartRun},
    store::{SqliteStore, runs::MemoryRunStore},
};
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use crate::support::{
    program::{ProgramOutput, command},
    server_process::{ServerProcess, start_project},
};

const SCRIPT: &str = r#"
rules:
  - when: {purpose: commander, last_tool: {matches: 'For how many people'}}
    calls: [{name: call_agent, arguments: {name: waiter, response: '4 people'}}]
  - when: {purpose: commander, last_tool: {matches: 'At what time'}}
    calls: [{name: call_agent, arguments: {name: waiter, response: "8 o'clock"}}]
  - when: {purpose: commander, last_tool: {}}
    calls: [{name: task_complete, arguments: {summary: 'result: {{ tool_text }}'}}]
  - when: {purpose: commander, user: 'Reserve'}
    calls: [{name: call_agent, arguments: {name: waiter, task: 'A table, please.'}}]
  - when: {purpose: commander}
    calls: [{name: call_agent, arguments: {name: lead, task: 'book a crossing'}}]
  - when: {purpose: agent, last_tool: {name: task}}
    say: '<ANSWER>{{ tool_text }}</ANSWER>'
  - when: {purpose: agent}
    calls:
      - {name: task, arguments: {description: book, prompt: Book the crossing., subagent_type: general-purpose}}
      - {name: task, arguments: {description: look, prompt: List the ports., subagent_type: general-purpose}}
  - when: {purpose: delegate, user: 'ports'}
    say: Eight ports.
  - when: {purpose: delegate, last_tool: {}}
    say: 'Result: {{ tool_text }}'
  - when: {purpose: delegate}
    calls: [{name: book_crossing, arguments: {crossing_id: ARN-SKE-20261201-0740, passengers: 2}}]
"#;

fn write_project(folder: &Path, agents: &[(&str, String)], objective: &str) {
    let names: Vec<&str> = agents.iter().map(|(name, _)| *name).collect();
    let mission = format!(
        "mission:\n  name: m\n  description: x\n  agents: [{}]\n  commander: {{plan: optional}}\n  tasks: {{only: {{objective: {objective}}}}}\n",
        names.join(", ")
    );
    let endpoints = r#"
model_groups: [{id: main, models: [{provider: scripted, script: script.yml}]}]
mcp_servers:
  - {name: ferries, type: stdio, command: segue, args: [demo, ferries, --data, bookings.json, --today, "2026-11-21"], trust_annotations: true}
"#;
    let files = [
        ("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n"),
        ("domain.yml", "version: '3.1'\n"),
        ("endpoints.yml", endpoints),
        ("script.yml", SCRIPT),
        ("missions/m.yml", &mission),
    ];
    for (name, text) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    for (name, text) in agents {
        let path = folder.join("sub_agents").join(name);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("config.yml"), text).unwrap();
    }
}

const RUN: [&str; 6] = ["run", "m", "--store", "sqlite:runs.db", "--idempotency-key", "one"];

fn segue(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> ProgramOutput {
    let mut command = command();
    command.current_dir(folder).arg("mission").args(arguments).envs(environment.iter().copied());
    command.output().unwrap().into()
}

fn events(output: &ProgramOutput) -> Vec<Json> {
    output.lines().into_iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn summary(output: &ProgramOutput) -> String {
    let completed = events(output).into_iter().rfind(|event| event["event"] == "task_completed");
    completed.map(|event| event["summary"].as_str().unwrap_or_default().to_owned()).unwrap_or_default()
}

/// A server of the project `desk`, which books tables over A2A and asks two questions.
fn remote(folder: &Path) -> (ServerProcess, String) {
    start_project(&crate::project("desk"), folder, &["--store", "sqlite:talks.db"])
}

/// How many messages the remote agent got, over all its conversations.
async fn turns(folder: &Path) -> usize {
    let store = SqliteStore::open(&folder.join("talks.db"), false).unwrap();
    let mut turns = 0;
    for id in store.conversations(100).await.unwrap() {
        turns += store.turns(&id).await.unwrap().len();
    }
    turns
}

fn waiter(address: &str) -> String {
    format!(
        "agent: {{name: waiter, protocol: A2A, description: Reserves tables.}}\nconfiguration: {{agent_card: '{address}/.well-known/agent-card.json'}}\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_agent_asks_its_commander_and_gets_each_message_once_even_after_a_crash() {
    // At these points the process is killed: an intent or an outcome of the first or the second message is stored. A message that may have
    // been sent is not sent again: the commander is told so, and nothing of what the remote agent did is repeated.
    let all: &[&str] = &["asked", "asked", "answered"];
    for (failpoint, expected, messages) in [
        ("none", all, 3),
        ("C11", &["failed"], 0),
        ("C14", &["failed"], 1),
        ("C15", all, 3),
        ("C14@2", all, 3),
        ("C15@2", all, 3),
    ] {
        let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (server, address) = remote(other.path());
        write_project(own.path(), &[("waiter", waiter(&address))], "Reserve a table.");
        let first = segue(own.path(), &RUN, &[("SEGUE_FAILPOINT", failpoint)]);
        assert_eq!(first.code, if failpoint == "none" { 0 } else { -1 }, "{failpoint}: {}\n{}", first.out, first.err);
        // The lease of the process that was killed is over.
        let second = segue(own.path(), &RUN, &[("SEGUE_TEST_CLOCK_AHEAD", "120")]);
        assert_eq!(second.code, 0, "{failpoint}: {}\n{}", second.out, second.err);
        let text = if expected == all { "A table for 4.0 at 8 o'clock." } else { "may have been sent before" };
        assert!(summary(&second).contains(text), "{failpoint}: {}", second.out);
        let outcomes: Vec<Json> = events(&second)
            .into_iter()
            .filter(|event| event["event"] == "agent_completed")
            .map(|event| event["outcome"].clone())
            .collect();
        assert_eq!(outcomes, expected, "{failpoint}");
        drop(server);
        assert_eq!(turns(other.path()).await, messages, "{failpoint}: the remote agent got each message once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_sends_nothing_to_a_remote_agent() {
    let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (server, address) = remote(other.path());
    write_project(own.path(), &[("waiter", waiter(&address))], "Reserve a table.");
    let dry = segue(own.path(), &["run", "m", "--store", "memory", "--dry-run"], &[]);
    assert_eq!(dry.code, 0, "{}\n{}", dry.out, dry.err);
    assert!(dry.out.contains("this is a dry run"), "{}", dry.out);
    drop(server);
    assert_eq!(turns(other.path()).await, 0);
}

fn lead(delegation: &str) -> String {
    format!(
        "agent: {{name: lead, description: Lets sub-agents work.}}\nconfiguration: {{llm: {{model_group: main}}}}\nconnections: {{mcp_servers: [{{name: ferries, include_tools: [book_crossing, list_ports]}}]}}\ndelegation: {delegation}\n"
    )
}

fn bookings(folder: &Path) -> usize {
    let Ok(text) = fs::read_to_string(folder.join("bookings.json")) else { return 0 };
    text.matches("\"reference\"").count()
}

#[test]
fn sub_agents_of_an_agent_of_a_mission_are_recorded_and_never_repeat_a_write() {
    for failpoint in ["none", "C11", "C14", "C15", "C11@2", "C15@2", "C15@3"] {
        let folder = tempfile::tempdir().unwrap();
        write_project(folder.path(), &[("lead", lead("{types: [general-purpose]}"))], "Book.");
        let first = segue(folder.path(), &RUN, &[("SEGUE_FAILPOINT", failpoint)]);
        assert_eq!(first.code, if failpoint == "none" { 0 } else { -1 }, "{failpoint}: {}\n{}", first.out, first.err);
        let second = segue(folder.path(), &RUN, &[("SEGUE_TEST_CLOCK_AHEAD", "120")]);
        assert_eq!(second.code, 0, "{failpoint}: {}\n{}", second.out, second.err);
        assert!(summary(&second).contains("Eight ports."), "{failpoint}: {}", second.out);
        let all = events(&second);
        let called =
            |tool: &str| all.iter().filter(|event| event["event"] == "tool_called" && event["tool"] == tool).count();
        assert!(called("book_crossing") <= 1 && called("task") >= 2, "{failpoint}: {}", second.out);
        let outcomes: Vec<bool> = all
            .iter()
            .filter(|event| event["event"] == "tool_completed" && event["tool"] == "book_crossing")
            .map(|event| event["failed"] == true)
            .collect();
        assert_eq!(outcomes.len(), 1, "{failpoint}: one outcome of the write: {}", second.out);
        let made = bookings(folder.path());
        assert!(made == 1 || made == 0 && outcomes[0], "{failpoint}: {made} bookings: {}", second.out);
    }
}

#[test]
fn the_model_calls_of_sub_agents_count_for_the_mission_and_end_with_the_budget_of_their_agent() {
    let folder = tempfile::tempdir().unwrap();
    write_project(folder.path(), &[("lead", lead("{budget: {tokens: 1}}"))], "Book.");
    let ran = segue(folder.path(), &["run", "m", "--store", "memory"], &[]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
    // The first response of the agent spends its budget: its calls are refused, and it is asked for its answer.
    assert!(!ran.out.contains("\"tool\":\"book_crossing\""), "{}", ran.out);
    assert_eq!(bookings(folder.path()), 0);
    let folder = tempfile::tempdir().unwrap();
    write_project(folder.path(), &[("lead", lead("{types: [general-purpose]}"))], "Book.");
    let ran = segue(folder.path(), &["run", "m", "--store", "memory"], &[]);
    let turns = events(&ran).iter().filter(|event| event["event"] == "session_turn").count();
    assert_eq!(turns, 7, "two of the commander, two of the agent, three of its sub-agents: {}", ran.out);
    let dry = tempfile::tempdir().unwrap();
    write_project(dry.path(), &[("lead", lead("{types: [general-purpose]}"))], "Book.");
    let ran = segue(dry.path(), &["run", "m", "--store", "memory", "--dry-run"], &[]);
    assert_eq!((ran.code, bookings(dry.path())), (0, 0), "{}\n{}", ran.out, ran.err);
}

/// The types of the events of sub-agents, without those of single messages.
#[derive(Default)]
struct TaskEvents(Mutex<Vec<String>>);

impl TaskEventSink for TaskEvents {
    fn emit(&self, _: &str, event: &TaskEvent) {
        let kind = serde_json::to_value(event).unwrap()["type"].as_str().unwrap().to_owned();
        if kind != "task_running" {
            self.0.lock().unwrap().push(kind);
        }
    }
}

/// A sub-agent that works when its run is stopped has not ended: it goes on when the run is resumed.
#[tokio::test]
async fn a_sub_agent_of_a_stopped_run_is_continued_when_the_run_is_resumed_and_ends_once() {
    let script = SCRIPT.replace(
        "- {name: task, arguments: {description: look, prompt: List the ports., subagent_type: general-purpose}}",
        "",
    );
    let files = [
        ("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n"),
        ("endpoints.yml", "mcp_servers: [{name: ferries, type: http, url: \"http://127.0.0.1:9/mcp\"}]\n"),
        (
            "missions/m.yml",
            "mission: {name: m, description: x, agents: [lead], commander: {plan: optional}, tasks: {only: {objective: Book.}}}\n",
        ),
        (
            "sub_agents/lead/config.yml",
            "agent: {name: lead, description: x}\nconnections: {mcp_servers: [{name: ferries}]}\ndelegation: {types: [general-purpose]}\n",
        ),
    ];
    let (events, stop) = (Arc::new(TaskEvents::default()), CancellationToken::new());
    let calls = Arc::new(Mutex::new(Vec::new()));
    let (called, stopping) = (calls.clone(), stop.clone());
    let book = move |_: Json, cx: ToolCallContext| {
        let (called, stopping) = (called.clone(), stopping.clone());
        async move {
            called.lock().unwrap().push(cx.idempotency_key.to_string());
            if !stopping.is_cancelled() {
                // The run is stopped in the middle of the first call.
                stopping.cancel();
                std::future::pending::<()>().await;
            }
            ToolOutcome::Done(ToolOutput::structured(json!({"reference": "NW-1"})))
        }
    };
    let info = ToolInfo::new("book_crossing", "books").source("ferries").effect(EffectClass::Idempotent);
    let builder = Assistant::builder_from_texts(files).unwrap_or_else(|error| panic!("{error:?}"));
    let model = ScriptedLlm::from_text("script", &script, 7).unwrap();
    let engine = builder
        .tool("ferries", Tool::from_fn(info, book))
        .model(Arc::new(model))
        .task_events(events.clone())
        .build_missions(Arc::new(MemoryRunStore::new()))
        .unwrap();
    let run = engine.start(StartRun::new("m")).await.unwrap();
    assert_eq!(engine.drive(&run, &stop, &mut |_| {}).await.unwrap(), RunEnd::Stopped);
    let completed = async |tool: &str| {
        let all = engine.control().events(&run, 0).await.unwrap();
        let all = all.iter().map(|event| serde_json::to_value(event).unwrap());
        all.filter(|event| event["event"] == "tool_completed" && event["tool"] == tool).collect::<Vec<_>>()
    };
    assert_eq!(*events.0.lock().unwrap(), ["task_queued", "task_started"]);
    assert!(completed("task").await.is_empty(), "it has not ended: {:?}", completed("task").await);

    engine.resume(&run).await.unwrap();
    assert_eq!(engine.drive(&run, &CancellationToken::new(), &mut |_| {}).await.unwrap(), RunEnd::Completed);
    let ended = completed("task").await;
    assert_eq!(ended.len(), 1, "{ended:?}");
    assert!(ended[0]["result"].as_str().unwrap().starts_with("Task Succeeded. Result: "), "{ended:?}");
    assert_eq!(
        *events.0.lock().unwrap(),
        ["task_queued", "task_started", "task_queued", "task_started", "task_completed"]
    );
    let calls = calls.lock().unwrap();
    assert!(calls.len() == 2 && calls[0] == calls[1], "the same call again: {calls:?}");
}
