//! Repeated tasks: rounds until a condition holds.

use segue_engine::{
    mission::{
        event::{NewEvent, RunEventKind},
        learnings::Learnings,
        rounds,
        state::{MissionStatus, TaskStatus},
        tools::Arguments,
    },
    usage::Usage,
};
use serde_json::{Value as Json, json};

use crate::{
    budgets::spend,
    driver::{CallOptions, Run},
};

fn repeated(more: &str) -> Run {
    Run::of(&format!(
        "{{name: m, tasks: {{
            fix: {{repeat: {{until: output.passed, {more}}}, output: {{passed: boolean, log: string}}}},
            ship: {{depends_on: [fix]}}}}}}"
    ))
}

/// One round: the output, and the result of `task_complete`.
fn round(run: &mut Run, passed: bool, log: &str) -> Json {
    run.call("fix", "submit_output", json!({"output": {"passed": passed, "log": log}}));
    run.call("fix", "task_complete", json!({"summary": format!("summary of {log}")})).result
}

fn context(run: &Run, task: &str, item: Option<u32>) -> rounds::RoundContext {
    rounds::context(&run.def.tasks[task], &run.state, item).unwrap()
}

#[test]
fn a_task_is_repeated_in_new_sessions_until_its_condition_holds() {
    let mut run = repeated("max: 5");
    let first = round(&mut run, false, "one");
    assert_eq!(first, json!({"status": "ok", "repeated": true, "round": 1, "until": "output.passed"}));
    assert_eq!(run.starts(), ["fix", "fix(2)"], "nothing else starts");
    round(&mut run, false, "two");
    let last = round(&mut run, true, "three");
    assert_eq!(last, json!({"status": "ok"}));
    assert_eq!(run.starts(), ["fix", "fix(2)", "fix(3)", "ship"]);
    let fix = &run.state.tasks["fix"];
    assert_eq!((fix.status, fix.round()), (TaskStatus::Completed, 3));
    assert_eq!(fix.output, Some(json!({"passed": true, "log": "three"})), "the result is that of the last round");
    assert_eq!(fix.summary.as_deref(), Some("summary of three"));
    let rows: Vec<&Json> = fix.rounds.iter().map(|round| &round.output.as_ref().unwrap()["log"]).collect();
    assert_eq!(rows, ["one", "two"]);
    let ended = run.of_kind("task_round_completed");
    assert_eq!(ended[0].get("round"), None);
    assert_eq!((&ended[1]["round"], &ended[1]["values"]), (&json!(2), &json!({"output.passed": false})));
}

#[test]
fn the_next_round_is_told_the_findings_of_those_before() {
    let mut run = repeated("max: 3");
    assert!(context(&run, "fix", None).earlier.is_empty());
    let insight = r#"<LEARNINGS>{"key_insights": ["the cache is stale"]}</LEARNINGS>"#;
    let options = CallOptions { learnings: Learnings::parse(insight), ..CallOptions::default() };
    run.call("fix", "submit_output", json!({"output": {"passed": false, "log": "one"}}));
    run.try_call("fix", "task_complete", Arguments::Json(&json!({"summary": "not yet"})), &options);
    let shown = context(&run, "fix", None);
    assert_eq!((shown.number, shown.max, &*shown.until), (2, 3, "output.passed"));
    assert_eq!(shown.learned, ["the cache is stale"]);
    assert_eq!(shown.earlier.len(), 1);
    assert_eq!(shown.earlier[0].summary, "not yet");
    assert_eq!(shown.earlier[0].output, r#"{"passed":false,"log":"one"}"#);
    assert_eq!(shown.earlier[0].values, r#"{"output.passed":false}"#);
}

#[test]
fn many_and_long_rounds_are_shown_in_part() {
    let mut run = repeated("max: 9");
    for n in 1..9 {
        round(&mut run, false, &format!("{n} {}", "x".repeat(10_000)));
    }
    let shown = context(&run, "fix", None);
    let numbers: Vec<u32> = shown.earlier.iter().map(|round| round.number).collect();
    assert_eq!(numbers, [4, 5, 6, 7, 8]);
    assert!(shown.earlier.iter().all(|round| round.output.chars().count() <= 4_001), "{shown:?}");
}

#[test]
fn after_the_last_round_the_task_fails_and_is_never_a_success() {
    let mut run = repeated("max: 2");
    round(&mut run, false, "one");
    let last = round(&mut run, false, "two");
    assert_eq!((&last["status"], &last["succeed"]), (&json!("ok"), &json!(false)));
    assert_eq!(run.state.status, MissionStatus::Failed);
    let failed = run.of_kind("task_failed");
    assert_eq!(failed[0]["code"], "repeat.exhausted");
    assert_eq!(
        failed[0]["error"],
        r#"round 2 was the last one, and `output.passed` does not hold; it read {"output.passed":false}"#
    );
    assert_eq!(run.starts(), ["fix", "fix(2)"]);
    run.record(RunEventKind::MissionResumed {});
    assert_eq!(run.starts().last(), Some(&"fix(2).2"), "a resumed run repeats the last round only");
    round(&mut run, true, "three");
    run.complete("ship");
    assert_eq!(run.state.status, MissionStatus::Completed);
}

#[test]
fn a_declared_outcome_completes_the_task_with_a_warning() {
    let mut run = repeated("max: 1, on_exhausted: continue");
    round(&mut run, false, "one");
    assert_eq!(run.starts(), ["fix", "ship"]);
    let issues = run.of_kind("mission_issue");
    assert_eq!((&issues[0]["severity"], &issues[0]["category"]), (&json!("warning"), &json!("repeat_exhausted")));
    assert_eq!(issues[0]["details"]["values"], json!({"output.passed": false}));
}

#[test]
fn a_failed_round_is_not_repeated() {
    let mut run = repeated("max: 3");
    run.call("fix", "task_complete", json!({"succeed": false, "reason": "no access"}));
    assert_eq!(run.state.status, MissionStatus::Failed);
    assert_eq!(run.starts(), ["fix"]);
}

#[test]
fn a_round_needs_a_summary_for_the_next_one() {
    let mut run = repeated("max: 3");
    run.call("fix", "submit_output", json!({"output": {"passed": false}}));
    assert_eq!(run.refused("fix", "task_complete", json!({})), "complete.summary_missing");
}

/// The route is asked for when the repetition ends, not in each round.
#[test]
fn a_route_is_chosen_after_the_last_round() {
    let mut run = Run::of(
        "{name: m, tasks: {
            fix: {repeat: {until: output.passed}, output: {passed: boolean}, router: [{to: ship, when: good}]},
            ship: {}}}",
    );
    run.call("fix", "submit_output", json!({"output": {"passed": false}}));
    run.call("fix", "task_complete", json!({"summary": "one", "route": "ship"}));
    assert_eq!(run.of_kind("route_chosen"), Vec::<Json>::new());
    run.call("fix", "submit_output", json!({"output": {"passed": true}}));
    assert_eq!(run.refused("fix", "task_complete", json!({"summary": "two"})), "route.required");
    run.call("fix", "task_complete", json!({"summary": "two", "route": "ship"}));
    assert_eq!(run.starts(), ["fix", "fix(2)", "ship"]);
}

#[test]
fn a_parallel_iteration_is_repeated_with_all_its_items() {
    let mut run = Run::of(
        "{name: m, datasets: {d: {items: [{id: a}, {id: b}]}}, tasks: {
            p: {objective: 'Work on {{ item.id }}', iterator: {dataset: d, parallel: true},
                repeat: {until: 'output | map(attribute=\"n\") | min > 1'}, output: {n: integer}}}}",
    );
    for (unit, n) in [("p[0]", 1), ("p[1]", 5)] {
        run.call(unit, "submit_output", json!({"output": {"n": n}}));
        run.complete(unit);
    }
    assert_eq!(run.starts(), ["p[0]", "p[1]", "p(2)[0]", "p(2)[1]"]);
    assert_eq!(context(&run, "p", Some(0)).earlier[0].output, r#"{"n":1}"#, "an item is told its own output");
    for unit in ["p[0]", "p[1]"] {
        run.call(unit, "submit_output", json!({"output": {"n": 7}}));
        run.complete(unit);
    }
    assert_eq!(run.state.status, MissionStatus::Completed);
    assert_eq!(run.state.tasks["p"].rounds[0].items[&1].output, Some(json!({"n": 5})));
    assert_eq!(run.state.tasks["p"].items[&1].output, Some(json!({"n": 7})));
}

#[test]
fn a_sequential_iteration_is_repeated_from_its_first_item() {
    let mut run = Run::of(
        "{name: m, datasets: {d: {items: [{id: a}, {id: b}]}}, tasks: {
            s: {iterator: {dataset: d}, repeat: {until: 'summary == \"good\"'}, output: {n: integer}}}}",
    );
    for summary in ["bad", "good"] {
        for n in 0..2 {
            assert_eq!(run.call("s", "dataset_next", json!({})).result["index"], n);
            run.call("s", "submit_output", json!({"output": {"n": n}}));
        }
        run.call("s", "task_complete", json!({ "summary": summary }));
    }
    assert_eq!(run.starts(), ["s", "s(2)"]);
    assert_eq!(run.state.status, MissionStatus::Completed);
}

#[test]
fn a_used_up_budget_ends_the_repetition() {
    let mut run = Run::of(
        "{name: m, tasks: {fix: {repeat: {until: output.passed}, output: {passed: boolean},
            budget: {tokens: 10, on_breach: finish_turn}}}}",
    );
    spend(&mut run, "fix", 20);
    run.call("fix", "submit_output", json!({"output": {"passed": false}}));
    run.call("fix", "task_complete", json!({"summary": "one"}));
    assert_eq!(run.of_kind("task_failed")[0]["code"], "budget.exceeded");
}

/// What a commander of the round before used counts although its round has ended.
#[test]
fn usage_of_an_earlier_round_counts() {
    let mut run = repeated("max: 3");
    let first = run.unit("fix");
    round(&mut run, false, "one");
    let usage = Usage { input: 7, ..Default::default() };
    let kind = RunEventKind::SessionTurn { entity: "commander".into(), model: None, usage, duration_ms: 0 };
    run.append(vec![NewEvent::of_unit(&first, kind)]);
    assert_eq!(run.state.tasks["fix"].usage.usage.input, 7);
    assert_eq!(run.open(), ["fix(2)"]);
}

#[test]
fn a_repeated_task_continues_from_any_point() {
    let mut run = repeated("max: 3");
    round(&mut run, false, "one");
    round(&mut run, true, "two");
    run.complete("ship");
    for events in 1..run.events.len() {
        let mut cut = run.cut(events);
        cut.settle();
        assert!(cut.state.status != MissionStatus::Failed, "{events}: {:?}", cut.state.failure);
        assert!(cut.open().len() <= 1, "{events}: {:?}", cut.open());
    }
}
