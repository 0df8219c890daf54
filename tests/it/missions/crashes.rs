//! A process that works on a run is killed before every kind of write to the store, and another one continues. The mission has every kind of
//! step, and the tool server counts its calls. `SEGUE_FULL=1` kills at each of three points around every write.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use segue_engine::time::Timestamp;
use serde_json::Value as Json;

use super::{segue, tool_server::ToolServer};
use crate::{
    folder::copy_folder,
    support::{is_full, program::ProgramOutput},
};

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
    name(last)
}

/// Kills the process at a point, and, if `twice`, the next process too, after its first write. `None`: the point was not reached.
fn crash_and_continue(folder: &Path, point: &str, twice: bool) -> Option<ProgramOutput> {
    let crashed = segue(folder, &RUN, &[("SEGUE_FAILPOINT", point)]);
    if crashed.code >= 0 {
        return None;
    }
    if twice {
        let environment = [("SEGUE_TEST_CLOCK_AHEAD", "120"), ("SEGUE_FAILPOINT", "run_append_stored")];
        segue(folder, &RUN, &environment);
    }
    Some(segue(folder, &RUN, &[("SEGUE_TEST_CLOCK_AHEAD", "240")]))
}

/// The points at which a process is killed: before each write whose last event and that of the write before it are a new pair of a task
/// and a kind; and around some writes without an event. So there is a crash after each kind of event, when all effects up to the next
/// write have happened. `events` are those of a run that was not killed.
fn points(events: &[Json]) -> Vec<String> {
    let mut points = ["run_append_stored", "run_append_done@2", "run_append_ready nothing"].map(String::from).to_vec();
    let (mut pairs, mut times, mut before) = (BTreeSet::new(), BTreeMap::<_, u32>::new(), String::new());
    for (at, event) in events.iter().enumerate() {
        // The events of one write have the same time.
        if events.get(at + 1).is_some_and(|next| next["at"] == event["at"]) {
            continue;
        }
        let name = name(event);
        let nth = times.entry(name.clone()).or_default();
        *nth += 1;
        if pairs.insert((before, name.clone())) {
            points.push(format!("run_append_ready {name}@{nth}"));
        }
        before = name;
    }
    points
}

/// Kills at each of the points, and checks each run that went on. With `SEGUE_FULL=1` also at each of three points around every write.
fn kill_at_all(events: &[Json], mut is_killed_at: impl FnMut(&str, bool) -> bool) {
    let killed =
        points(events).iter().enumerate().filter(|(at, point)| is_killed_at(point, at.is_multiple_of(4))).count();
    assert!(killed > 3, "{killed} of {:?}", points(events));
    if is_full() {
        let mut is_killed = |n: usize| {
            let around = ["run_append_ready", "run_append_stored", "run_append_done"];
            around.iter().all(|point| is_killed_at(&format!("{point}@{n}"), n.is_multiple_of(4)))
        };
        let writes = (1..150).take_while(|n| is_killed(*n)).count();
        assert!(writes < 149, "the run ends");
    }
}

/// The task and the kind of an event.
fn name(event: &Json) -> String {
    format!("{} {}", event["task"].as_str().unwrap_or("run"), event["event"].as_str().unwrap())
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
    let whole = segue(fresh().path(), &RUN, &[]);
    assert_eq!(whole.code, 4, "{}\n{}", whole.out, whole.err);
    let expected = history(&events(&whole));
    assert_eq!((calls("look"), calls("order")), (1, 1));
    let (mut seen, mut repeated_reads) = (BTreeSet::new(), 0);
    let mut is_killed_at = |point: &str, twice: bool| {
        let folder = fresh();
        let Some(continued) = crash_and_continue(folder.path(), point, twice) else { return false };
        assert_eq!(continued.code, 4, "{point}: {}\n{}", continued.out, continued.err);
        let events = events(&continued);
        assert_eq!(history(&events), expected, "{point}");
        assert!(calls("order") <= 1, "{point}: a write was repeated");
        repeated_reads += usize::from(calls("look") > 1);
        seen.insert(last_before_the_crash(&events, 0));
        true
    };
    // Within a response of the model.
    for n in 1..=3 {
        is_killed_at(&format!("C08@{n}"), false);
    }
    kill_at_all(&events(&whole), &mut is_killed_at);
    assert!(repeated_reads > 0, "a read whose outcome was not stored runs again");
    // Without those within the parallel iteration, whose order is not always the same.
    for point in [
        "run mission_started",
        "gather task_started",
        "gather agent_started",
        "gather tool_called",
        "gather tool_completed",
        "gather agent_completed",
        "gather dataset_items_set",
        "gather output_submitted",
        "gather task_completed",
        "walk iteration_started",
        "walk output_submitted",
        "read iteration_started",
        "read iteration_completed",
    ] {
        assert!(seen.contains(point), "no crash after `{point}`: {seen:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wherever_the_process_is_killed_after_an_answer_the_run_goes_on_to_the_next_mission() {
    let server = ToolServer::start().await;
    let asked = tempfile::tempdir().unwrap();
    write_project(asked.path(), &server.address);
    let whole = segue(asked.path(), &RUN, &[]);
    assert_eq!(whole.code, 4, "{}\n{}", whole.out, whole.err);
    let older = events(&whole).len();
    let run = events(&whole)[0]["run"].as_str().unwrap().to_owned();
    let answered = segue(asked.path(), &["answer", &run, "blue", "--store", "sqlite:runs.db"], &[]);
    assert_eq!(answered.code, 0, "{}", answered.err);
    let copy = || {
        let folder = tempfile::tempdir().unwrap();
        copy_folder(asked.path(), folder.path());
        folder
    };
    // `run` with the same key goes on as `resume` does, and prints all events.
    let whole = segue(copy().path(), &RUN, &[]);
    assert_eq!(whole.code, 0, "{}\n{}", whole.out, whole.err);
    let expected = history(&events(&whole));
    assert_eq!(expected["close task_completed"], 1, "the next mission runs too: {expected:?}");
    let mut seen = BTreeSet::new();
    kill_at_all(&events(&whole)[older..], |point, twice| {
        let folder = copy();
        let Some(continued) = crash_and_continue(folder.path(), point, twice) else { return false };
        assert_eq!(continued.code, 0, "{point}: {}\n{}", continued.out, continued.err);
        let events = events(&continued);
        assert_eq!(history(&events), expected, "{point}");
        seen.insert(last_before_the_crash(&events, older));
        true
    });
    for point in ["choose human_input_resolved", "choose task_completed", "write task_completed"] {
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
    kill_at_all(&events(&whole), |point, twice| {
        let folder = fresh();
        let Some(continued) = crash_and_continue(folder.path(), point, twice) else { return false };
        assert_eq!(continued.code, 4, "{point}: {}\n{}", continued.out, continued.err);
        assert_eq!(history(&events(&continued)), expected, "{point}");
        assert!(server.calls("order").len() <= 1, "{point}: a write was repeated");
        true
    });

    let older = events(&whole).len();
    let run = events(&whole)[0]["run"].as_str().unwrap().to_owned();
    let store = ["--store", "sqlite:runs.db"];
    for (id, colour) in ids.iter().zip(["blue", "red"]) {
        let answer = [&["answer", &run, colour, "--question", id], &store[..]].concat();
        let answered = segue(asked.path(), &answer, &[]);
        assert_eq!(answered.code, 0, "{}", answered.err);
    }
    let copy = || {
        let folder = tempfile::tempdir().unwrap();
        copy_folder(asked.path(), folder.path());
        folder
    };
    server.clear();
    let whole = segue(copy().path(), &RUN, &[]);
    assert_eq!(whole.code, 0, "{}\n{}", whole.out, whole.err);
    let expected = history(&events(&whole));
    assert_eq!(expected["paint agent_completed"], 2, "{expected:?}");
    kill_at_all(&events(&whole)[older..], |point, twice| {
        let folder = copy();
        let Some(continued) = crash_and_continue(folder.path(), point, twice) else { return false };
        assert_eq!(continued.code, 0, "{point}: {}\n{}", continued.out, continued.err);
        assert_eq!(history(&events(&continued)), expected, "{point}");
        true
    });
    assert_eq!(server.calls("order").len(), 0, "what was done before the questions is not done again");
}
