//! Agents of missions that are remote or that start sub-agents, with the program, a SQLite file and real crashes.

use std::{fs, path::Path};

use segue::store::{SqliteStore, Store};
use serde_json::Value as Json;

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
async fn a_trial_run_sends_nothing_to_a_remote_agent() {
    let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (server, address) = remote(other.path());
    write_project(own.path(), &[("waiter", waiter(&address))], "Reserve a table.");
    let trial = segue(own.path(), &["run", "m", "--store", "memory", "--dry-run"], &[]);
    assert_eq!(trial.code, 0, "{}\n{}", trial.out, trial.err);
    assert!(trial.out.contains("this is a trial run"), "{}", trial.out);
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
    let trial = tempfile::tempdir().unwrap();
    write_project(trial.path(), &[("lead", lead("{types: [general-purpose]}"))], "Book.");
    let ran = segue(trial.path(), &["run", "m", "--store", "memory", "--dry-run"], &[]);
    assert_eq!((ran.code, bookings(trial.path())), (0, 0), "{}\n{}", ran.out, ran.err);
}
