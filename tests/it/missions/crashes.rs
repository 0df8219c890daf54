//! A process that works on a run is killed at every write to the store, and another one continues. The mission has every kind of step, and
//! the tool server counts its calls. `SEGUE_FULL=1` kills at each of three points around every write.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use segue_engine::time::Timestamp;
use serde_json::Value as Json;

use super::{segue, tool_server::ToolServer};
use crate::{folder::copy_folder, support::program::ProgramOutput};

const MISSION: &str = "mission:
  name: m
  description: x
  agents: [helper]
  commander: {plan: optional}
  datasets:
    rows: {items: [{id: a}, {id: b}]}
    pages: {schema: {url: {type: string, required: true}}}
  tasks:
    gather: {objective: Gather., output: {found: {type: integer, required: true}}}
    walk: {objective: Walk., depends_on: [gather], iterator: {dataset: rows}, output: {n: {type: integer, required: true}}}
    read:
      objective: 'Read {{ item.url }}.'
      depends_on: [walk]
      iterator: {dataset: pages, parallel: true, concurrency_limit: 2}
      output: {n: {type: integer, required: true}}
    choose: {objective: Choose., depends_on: [read], router: [{to: write, when: it is blue}, {to: drop, when: it is red}]}
    write: {objective: Write., router: [{to: 'mission:follow', when: always}]}
    drop: {objective: Drop.}
";

const HELPER: &str = "agent: {name: helper, protocol: RASA, description: helps}
connections: {mcp_servers: [{name: shop}]}
configuration: {tools: {look: {effect: read}}}
";

const FOLLOW: &str = "mission:
  name: follow
  description: x
  agents: [helper]
  commander: {plan: optional}
  inputs: {colour: {type: string}}
  tasks: {close: {objective: 'Close {{ inputs.colour }}.'}}
";

const SCRIPT: &str = r#"
rules:
  - when: {purpose: agent, last_tool: {name: look}}
    say: '<ANSWER>looked: {{ tool_text }}</ANSWER>'
  - when: {purpose: agent, last_tool: {name: order}}
    say: '<ANSWER>{{ tool_text }}</ANSWER>'
  - when: {purpose: agent, user: 'look around'}
    calls: [{name: look, arguments: {}}]
  - when: {purpose: agent, user: 'order a cup'}
    calls: [{name: order, arguments: {what: cup}}]
  - when: {purpose: commander, last_tool: {name: call_agent, matches: '^looked'}}
    calls: [{name: call_agent, arguments: {name: helper, task: 'order a cup'}}]
  - when: {purpose: commander, last_tool: {name: call_agent}}
    calls:
      - {name: set_dataset, arguments: {name: pages, items: [{url: u0}, {url: u1}, {url: u2}]}}
      - {name: submit_output, arguments: {output: {found: 3}}}
      - {name: task_complete, arguments: {summary: '{{ tool_text }}'}}
  - when: {purpose: commander, last_tool: {name: dataset_next, matches: 'exhausted'}}
    calls: [{name: task_complete, arguments: {summary: walked}}]
  - when: {purpose: commander, last_tool: {name: dataset_next}}
    calls:
      - {name: submit_output, arguments: {output: {n: '{{ results.dataset_next.index }}'}}}
      - {name: dataset_next, arguments: {}}
  - when: {purpose: commander, last_tool: {name: ask}}
    calls: [{name: task_complete, arguments: {summary: '{{ tool_text }}', route: write}}]
  - when: {purpose: commander, user: 'Gather'}
    calls: [{name: call_agent, arguments: {name: helper, task: 'look around'}}]
  - when: {purpose: commander, user: 'Walk'}
    calls: [{name: dataset_next, arguments: {}}]
  - when: {purpose: commander, user: 'Read u(?P<n>\d)'}
    calls:
      - {name: submit_output, arguments: {output: {n: '{{ n | int }}'}}}
      - {name: task_complete, arguments: {}}
  - when: {purpose: commander, user: 'Choose'}
    calls: [{name: ask, arguments: {question: 'Which colour?'}}]
  - when: {purpose: commander, user: 'Write'}
    say: Let me think.
  - when: {purpose: commander, user: 'no tool call'}
    calls: [{name: task_complete, arguments: {summary: written, route: follow, mission_inputs: {colour: blue}}}]
  - when: {purpose: commander}
    calls: [{name: task_complete, arguments: {summary: closed}}]
"#;

fn write_project(folder: &Path, server: &str) {
    let endpoints = format!(
        "model_groups: [{{id: main, models: [{{provider: scripted, script: script.yml}}]}}]\nmcp_servers: [{{name: shop, type: http, url: '{server}'}}]\n"
    );
    for part in ["missions", "sub_agents/helper"] {
        std::fs::create_dir_all(folder.join(part)).unwrap();
    }
    for (name, text) in [
        ("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n"),
        ("domain.yml", "version: '3.1'\n"),
        ("endpoints.yml", &endpoints),
        ("script.yml", SCRIPT),
        ("missions/m.yml", MISSION),
        ("missions/follow.yml", FOLLOW),
        ("sub_agents/helper/config.yml", HELPER),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
}

const RUN: [&str; 6] = ["run", "m", "--store", "sqlite:runs.db", "--idempotency-key", "one"];

fn events(output: &ProgramOutput) -> Vec<Json> {
    output.lines().into_iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What must be the same however often the processes were killed: each event with its place and its data, but without what a model call or
/// a repeated read adds.
fn history(events: &[Json]) -> BTreeMap<String, usize> {
    let mut history = BTreeMap::new();
    for event in events {
        let kind = event["event"].as_str().unwrap();
        if !["session_turn", "tool_called", "tool_completed"].contains(&kind) {
            let place = format!("{}{}", event["task"], event["iteration"]).replace('"', "").replace("null", "");
            let data = format!("{} {}", event["output"], event["target"]).replace("null", "");
            *history.entry(format!("{place} {kind} {data}").trim().to_owned()).or_default() += 1;
        }
    }
    history
}

/// The last event that was stored before the clock of the next process, which is minutes ahead. The first events, before the answer to a
/// question, are older by what the test took.
fn last_before_the_crash(events: &[Json], older: usize) -> String {
    let at = |event: &Json| serde_json::from_value::<Timestamp>(event["at"].clone()).unwrap().as_micros();
    let is_jump = |pair: &[Json]| at(&pair[1]) - at(&pair[0]) > 60_000_000;
    let jump = events.windows(2).skip(older).position(is_jump);
    let last = &events[jump.map_or(events.len() - 1, |jump| older + jump)];
    format!("{} {}", last["task"].as_str().unwrap_or("run"), last["event"].as_str().unwrap())
}

/// Kills the process at hit `n` of a point, and in every fourth case the next process too. `None`: the point has no such hit.
fn crash_and_continue(
    folder: &Path,
    arguments: &[&str],
    point: &str,
    n: usize,
) -> Option<(ProgramOutput, ProgramOutput)> {
    let crashed = segue(folder, arguments, &[("SEGUE_FAILPOINT", &format!("{point}@{n}"))]);
    if crashed.code >= 0 {
        return None;
    }
    if n.is_multiple_of(4) {
        let environment = [("SEGUE_TEST_CLOCK_AHEAD", "120"), ("SEGUE_FAILPOINT", "run_append_stored")];
        segue(folder, arguments, &environment);
    }
    let continued = segue(folder, arguments, &[("SEGUE_TEST_CLOCK_AHEAD", "240")]);
    Some((crashed, continued))
}

/// The points around a write to the store. Before it, all effects since the last write have happened; after it, none of the next.
fn points(n: usize) -> &'static [&'static str] {
    let all = &["run_append_ready", "run_append_stored", "run_append_done"];
    if segue::environment::variable("SEGUE_FULL").is_some() || n.is_multiple_of(6) { all } else { &all[..1] }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wherever_the_process_is_killed_the_run_goes_on_and_no_completed_step_runs_again() {
    let server = ToolServer::start().await;
    let fresh = || {
        let folder = tempfile::tempdir().unwrap();
        write_project(folder.path(), &server.address);
        server.clear();
        folder
    };
    let calls = |tool: &str| server.calls(tool).len();
    let mut seen = BTreeSet::new();

    // Up to the question to a person.
    let asked = fresh();
    let whole = segue(asked.path(), &RUN, &[]);
    assert_eq!(whole.code, 4, "{}\n{}", whole.out, whole.err);
    let expected = history(&events(&whole));
    assert_eq!((calls("look"), calls("order")), (1, 1));
    let mut repeated_reads = 0;
    let mut check = |point: &str, n: usize| {
        let folder = fresh();
        let Some((_, continued)) = crash_and_continue(folder.path(), &RUN, point, n) else { return false };
        assert_eq!(continued.code, 4, "{point}@{n}: {}\n{}", continued.out, continued.err);
        let events = events(&continued);
        assert_eq!(history(&events), expected, "{point}@{n}");
        assert!(calls("order") <= 1, "{point}@{n}: a write was repeated");
        repeated_reads += usize::from(calls("look") > 1);
        seen.insert(last_before_the_crash(&events, 0));
        true
    };
    for n in 1..=3 {
        check("C08", n); // within a response of the model
    }
    for n in (1..200).take_while(|n| points(*n).iter().all(|point| check(point, *n))) {
        assert!(n < 150, "the run ends");
    }
    assert!(repeated_reads > 0, "a read whose outcome was not stored runs again");

    // From the stored answer on.
    let older = events(&whole).len();
    let run = events(&whole)[0]["run"].as_str().unwrap().to_owned();
    let store = ["--store", "sqlite:runs.db"];
    let answered = segue(asked.path(), &[&["answer", &run, "blue"], &store[..]].concat(), &[]);
    assert_eq!(answered.code, 0, "{}", answered.err);
    // As `resume`, but prints all events.
    let resume = RUN;
    let copy = || {
        let folder = tempfile::tempdir().unwrap();
        copy_folder(asked.path(), folder.path());
        folder
    };
    let whole = segue(copy().path(), &resume, &[]);
    assert_eq!(whole.code, 0, "{}\n{}", whole.out, whole.err);
    let expected = history(&events(&whole));
    assert_eq!(expected["close task_completed"], 1, "the next mission runs too: {expected:?}");
    let mut check = |point: &str, n: usize| {
        let folder = copy();
        let Some((_, continued)) = crash_and_continue(folder.path(), &resume, point, n) else { return false };
        assert_eq!(continued.code, 0, "{point}@{n}: {}\n{}", continued.out, continued.err);
        let events = events(&continued);
        assert_eq!(history(&events), expected, "{point}@{n}");
        seen.insert(last_before_the_crash(&events, older));
        true
    };
    for n in (1..200).take_while(|n| points(*n).iter().all(|point| check(point, *n))) {
        assert!(n < 150, "the run ends");
    }

    for point in [
        "run mission_started",
        "gather task_started",
        "gather agent_started",
        "gather tool_completed",
        "gather agent_completed",
        "gather dataset_items_set",
        "gather output_submitted",
        "gather task_completed",
        "walk iteration_started",
        "walk output_submitted",
        "read iteration_started",
        "read output_submitted",
        "read iteration_completed",
        "choose human_input_requested",
        "choose human_input_resolved",
        "choose task_completed",
        "write task_completed",
    ] {
        assert!(seen.contains(point), "no crash after `{point}`: {seen:?}");
    }
}

const ASKING: &str = "mission:
  name: m
  description: x
  agents: [helper, second]
  commander: {plan: optional}
  local_agents: {second: {description: helps too}}
  tasks: {paint: {objective: Paint., questions: {agents: [helper, second]}}}
";

const ASKING_SCRIPT: &str = r#"
rules:
  - when: {purpose: agent, last_tool: {name: ask}}
    say: '<ANSWER>{{ tool_text }}</ANSWER>'
  - when: {purpose: agent, last_tool: {name: order}}
    calls: [{name: ask, arguments: {question: 'Which colour has the cup?'}}]
  - when: {purpose: agent, user: 'order a cup'}
    calls: [{name: order, arguments: {what: cup}}]
  - when: {purpose: agent}
    calls: [{name: ask, arguments: {question: 'Which colour has the plate?'}}]
  - when: {purpose: commander, last_tool: {name: call_agent}}
    calls: [{name: task_complete, arguments: {summary: 'done'}}]
  - when: {purpose: commander}
    calls:
      - {name: call_agent, arguments: {name: helper, task: 'order a cup'}}
      - {name: call_agent, arguments: {name: second, task: 'choose a plate'}}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wherever_the_process_is_killed_agents_that_ask_people_get_their_answers_and_write_once() {
    let server = ToolServer::start().await;
    let fresh = || {
        let folder = tempfile::tempdir().unwrap();
        write_project(folder.path(), &server.address);
        std::fs::write(folder.path().join("missions/m.yml"), ASKING).unwrap();
        std::fs::write(folder.path().join("script.yml"), ASKING_SCRIPT).unwrap();
        server.clear();
        folder
    };
    let asked = fresh();
    let whole = segue(asked.path(), &RUN, &[]);
    assert_eq!(whole.code, 4, "{}\n{}", whole.out, whole.err);
    let expected = history(&events(&whole));
    let requested = events(&whole).into_iter().filter(|event| event["event"] == "human_input_requested");
    let ids: Vec<String> = requested.map(|event| event["question_id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids.len(), 2, "{}", whole.out);
    let check = |n: usize| {
        let folder = fresh();
        let Some((_, continued)) = crash_and_continue(folder.path(), &RUN, "run_append_ready", n) else { return false };
        assert_eq!(continued.code, 4, "{n}: {}\n{}", continued.out, continued.err);
        assert_eq!(history(&events(&continued)), expected, "{n}");
        assert!(server.calls("order").len() <= 1, "{n}: a write was repeated");
        true
    };
    let first = (1..60).take_while(|n| check(*n)).count();
    assert!((8..59).contains(&first), "{first}");

    let run = events(&whole)[0]["run"].as_str().unwrap().to_owned();
    let store = ["--store", "sqlite:runs.db"];
    for (id, colour) in ids.iter().zip(["blue", "red"]) {
        let answer = [&["answer", &run, colour, "--question", id], &store[..]].concat();
        let answered = segue(asked.path(), &answer, &[]);
        assert_eq!(answered.code, 0, "{}", answered.err);
    }
    // As `resume`, but prints all events.
    let resume = RUN;
    let copy = || {
        let folder = tempfile::tempdir().unwrap();
        copy_folder(asked.path(), folder.path());
        folder
    };
    server.clear();
    let whole = segue(copy().path(), &resume, &[]);
    assert_eq!(whole.code, 0, "{}\n{}", whole.out, whole.err);
    let expected = history(&events(&whole));
    assert_eq!(expected["paint agent_completed"], 2, "{expected:?}");
    let check = |n: usize| {
        let folder = copy();
        let crashed = segue(folder.path(), &resume, &[("SEGUE_FAILPOINT", &format!("run_append_ready@{n}"))]);
        if crashed.code >= 0 {
            return false;
        }
        let continued = segue(folder.path(), &resume, &[("SEGUE_TEST_CLOCK_AHEAD", "120")]);
        assert_eq!(continued.code, 0, "{n}: {}\n{}", continued.out, continued.err);
        assert_eq!(history(&events(&continued)), expected, "{n}");
        true
    };
    let then = (1..60).take_while(|n| check(*n)).count();
    assert!((4..59).contains(&then), "{then}");
    assert_eq!(server.calls("order").len(), 0, "what was done before the questions is not done again");
}
