//! A mission of twelve tasks: routes by data and by words, fan-out, fan-in, 120 items in parallel, and a sequential iteration with learnings.
//! Its outputs are the same after a kill in the middle.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use serde_json::{Value as Json, json};

use super::segue;
use crate::support::program::ProgramOutput;

const ITEMS: u32 = 120;
const LIMIT: u32 = 10;

const TASKS: &str = "  tasks:
    plan: {objective: Plan.}
    gather: {objective: Gather., depends_on: [plan]}
    read:
      objective: 'Read {{ item.n }}.'
      depends_on: [gather]
      iterator: {dataset: rows, parallel: true, concurrency_limit: 10}
      output: {double: {type: integer, required: true}}
    walk:
      objective: Walk.
      depends_on: [plan]
      iterator: {dataset: few, session: fresh}
      output: {step: {type: integer, required: true}}
    judge:
      objective: Judge.
      depends_on: [read, walk]
      output: {score: {type: integer, required: true}}
      router: [{to: deep, if: output.score > 5}, {to: shallow, if: output.score <= 5}]
    deep: {objective: Dig., router: [{to: fan, when: it is worth it}, {to: stop, when: it is not}]}
    shallow: {objective: Skim.}
    fan: {objective: Fan., send_to: [east, west]}
    east: {objective: Go east., send_to: [report]}
    west: {objective: Go west., send_to: [report]}
    stop: {objective: Stop.}
    report: {objective: Report., output: {text: {type: string, required: true}}}
";

const SCRIPT: &str = r#"
rules:
  - when: {purpose: commander, last_tool: {name: dataset_next, matches: exhausted}}
    calls: [{name: task_complete, arguments: {summary: walked}}]
  - when: {purpose: commander, last_tool: {name: dataset_next}}
    say: '<LEARNINGS>{"key_insights": ["insight {{ results.dataset_next.index }}"]}</LEARNINGS>'
    calls:
      - {name: submit_output, arguments: {output: {step: '{{ results.dataset_next.index }}'}}}
      - {name: dataset_next, arguments: {}}
  - when: {purpose: commander, last_tool: {name: query_task_output}}
    calls:
      - {name: submit_output, arguments: {output: {score: 9}}}
      - {name: task_complete, arguments: {summary: 'sum {{ tool_text }}'}}
  - when: {purpose: commander, user: 'Read (?P<n>\d+)'}
    calls:
      - {name: submit_output, arguments: {output: {double: '{{ (n | int) * 2 }}'}}}
      - {name: task_complete, arguments: {}}
  - when: {purpose: commander, user: Walk}
    calls: [{name: dataset_next, arguments: {}}]
  - when: {purpose: commander, user: Judge}
    calls: [{name: query_task_output, arguments: {task: read, aggregate: {op: sum, field: double}}}]
  - when: {purpose: commander, user: Dig}
    calls: [{name: task_complete, arguments: {summary: dug, route: fan}}]
  - when: {purpose: commander, user: Report}
    calls:
      - {name: submit_output, arguments: {output: {text: all done}}}
      - {name: task_complete, arguments: {summary: reported}}
  - when: {purpose: commander}
    calls: [{name: task_complete, arguments: {summary: done}}]
"#;

fn write_project(folder: &Path) {
    let mut mission = "mission:\n  name: m\n  description: x\n  agents: [helper]\n  commander: {plan: optional}\n  local_agents: {helper: {description: helps}}\n  datasets:\n    few: {items: [{id: a}, {id: b}, {id: c}]}\n    rows:\n      items:\n".to_owned();
    for n in 0..ITEMS {
        writeln!(mission, "        - {{n: {n}}}").unwrap();
    }
    mission.push_str(TASKS);
    std::fs::create_dir(folder.join("missions")).unwrap();
    for (name, text) in [
        ("config.yml", "recipe: default.v1\npipeline: []\npolicies: [{name: FlowPolicy}]\n"),
        ("domain.yml", "version: '3.1'\n"),
        ("endpoints.yml", "model_groups: [{id: main, models: [{provider: scripted, script: script.yml}]}]\n"),
        ("script.yml", SCRIPT),
        ("missions/m.yml", &mission),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
}

const RUN: [&str; 6] = ["run", "m", "--store", "sqlite:runs.db?synchronous=normal", "--idempotency-key", "one"];

/// Checks the order and the limits, and returns the outputs and summaries of all tasks.
fn checked(output: &ProgramOutput, folder: &Path) -> Json {
    assert_eq!(output.code, 0, "{}", output.err);
    let events: Vec<Json> = output.lines().into_iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (mut open, mut started, mut ended) = (0, BTreeMap::new(), BTreeMap::new());
    for (at, event) in events.iter().enumerate() {
        let task = event["task"].as_str().unwrap_or_default().to_owned();
        match event["event"].as_str().unwrap() {
            "task_started" => assert!(started.insert(task.clone(), at).is_none(), "{task} started twice"),
            "task_completed" => assert!(ended.insert(task, at).is_none()),
            "iteration_started" if task == "read" => {
                open += 1;
                assert!(open <= LIMIT, "{open} items at the same time");
            }
            "iteration_completed" if task == "read" => open -= 1,
            _ => {}
        }
    }
    for (before, after) in [
        ("plan", "gather"),
        ("gather", "read"),
        ("plan", "walk"),
        ("read", "judge"),
        ("walk", "judge"),
        ("judge", "deep"),
        ("deep", "fan"),
        ("fan", "east"),
        ("fan", "west"),
    ] {
        assert!(ended[before] < started[after], "{before} ends before {after} starts");
    }
    assert!(ended["east"].min(ended["west"]) < started["report"]);
    assert!(!started.contains_key("shallow") && !started.contains_key("stop"));
    let run = events[0]["run"].as_str().unwrap();
    let shown = segue(folder, &["show", run, "--store", "sqlite:runs.db"], &[]);
    let shown: Json = serde_json::from_str(shown.out.trim()).unwrap();
    shown["tasks"].clone()
}

#[test]
fn twelve_tasks_with_many_items_have_the_same_results_after_a_kill_in_the_middle() {
    let folder = tempfile::tempdir().unwrap();
    write_project(folder.path());
    let whole = segue(folder.path(), &RUN, &[]);
    let expected = checked(&whole, folder.path());
    assert_eq!(expected["report"]["output"], json!({"text": "all done"}), "{expected}");
    let sum: u32 = (0..ITEMS).map(|n| n * 2).sum();
    assert!(expected["judge"]["summary"].as_str().unwrap().contains(&sum.to_string()), "{}", expected["judge"]);
    let learned = "insight 1";
    assert!(whole.out.contains(learned), "the learnings are in the events of the items");

    let folder = tempfile::tempdir().unwrap();
    write_project(folder.path());
    let crashed = segue(folder.path(), &RUN, &[("SEGUE_FAILPOINT", "run_append_stored@170")]);
    assert_eq!(crashed.code, -1, "{}", crashed.err);
    assert!(crashed.out.contains("\"read\"") && !crashed.out.contains("\"report\""), "the kill is within the items");
    let continued = segue(folder.path(), &RUN, &[("SEGUE_TEST_CLOCK_AHEAD", "120")]);
    assert_eq!(checked(&continued, folder.path()), expected);
}
