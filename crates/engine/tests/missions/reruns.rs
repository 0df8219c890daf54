//! Reruns from a task.

use segue_engine::mission::{
    inputs::{NewRunOptions, start},
    rerun::{RerunFrom, RerunProblem, taken_over},
    state::{MissionStatus, RunState},
};
use serde_json::json;

use crate::driver::Run;

const MISSION: &str = "{name: m, datasets: {d: {}}, tasks: {
    fill: {}, other: {},
    read: {depends_on: [fill], objective: 'Read {{ item.id }}', iterator: {dataset: d, parallel: true, on_error: continue, min_success: 0}, output: {n: integer}},
    judge: {depends_on: [read], router: [{to: good, when: good}, {to: bad, when: bad}]},
    good: {}, bad: {}}}";

/// A run to its end; item 1 fails.
fn ended() -> Run {
    let mut run = Run::of(MISSION);
    run.call("fill", "set_dataset", json!({"name": "d", "items": [{"id": "a"}, {"id": "b"}, {"id": "c"}]}));
    run.complete("fill");
    run.complete("other");
    for (unit, n) in [("read[0]", 0), ("read[2]", 2)] {
        run.call(unit, "submit_output", json!({"output": {"n": n}}));
        run.complete(unit);
    }
    run.fail("read[1]", "broken");
    run.call("judge", "task_complete", json!({"summary": "judged", "route": "good"}));
    run.complete("good");
    assert_eq!(run.state.status, MissionStatus::Completed);
    run
}

fn rerun(run: &Run, task: &str, failed_items: bool) -> Result<Run, RerunProblem> {
    let taken = taken_over(&run.def, &run.events, &RerunFrom { task: task.into(), failed_items })?;
    let mut new = run.cut(0);
    let options = NewRunOptions { datasets: taken.datasets, ..NewRunOptions::default() };
    let started = start(&run.def, &"r2".into(), &serde_json::Map::new(), options).unwrap().event;
    new.append(std::iter::once(started).chain(taken.events).collect());
    new.settle();
    Ok(new)
}

#[test]
fn what_hangs_on_the_task_runs_again_and_the_rest_is_taken_over() {
    let mut new = rerun(&ended(), "judge", false).unwrap();
    assert_eq!(new.starts(), ["judge"], "neither fill, other and read, nor good before it is chosen again");
    let read = &new.state.tasks["read"];
    assert_eq!((read.copied_from.as_deref(), read.items.len()), (Some("r1"), 3));
    assert_eq!(read.usage, Default::default());
    let rows =
        new.call("judge", "query_task_output", json!({"task": "read", "aggregate": {"op": "sum", "field": "n"}}));
    assert_eq!(rows.result["aggregate"]["value"], 2);
    new.call("judge", "task_complete", json!({"summary": "again", "route": "bad"}));
    assert_eq!(new.starts(), ["judge", "bad"], "what the first judge chose does not count");
    new.complete("bad");
    assert_eq!(new.state.status, MissionStatus::Completed);
}

#[test]
fn datasets_that_a_stale_task_filled_are_empty_again() {
    let mut new = rerun(&ended(), "fill", false).unwrap();
    assert_eq!(new.starts(), ["fill"]);
    assert!(!new.state.datasets.contains_key("d"));
    new.call("fill", "set_dataset", json!({"name": "d", "items": [{"id": "z"}], "append": true}));
    new.complete("fill");
    assert_eq!(new.starts(), ["fill", "read[0]"]);
    assert_eq!(new.state.datasets["d"].items, [json!({"id": "z"})]);
}

#[test]
fn only_failed_items_run_again() {
    let mut new = rerun(&ended(), "read", true).unwrap();
    assert_eq!(new.open(), ["read[1].2"], "with a further attempt");
    new.call("read[1]", "submit_output", json!({"output": {"n": 1}}));
    new.complete("read[1]");
    let read = &new.state.tasks["read"];
    assert_eq!(read.summary.as_deref(), Some("3 of 3 items completed"));
    let outputs: Vec<_> = read.items.values().map(|item| item.output.clone().unwrap()["n"].clone()).collect();
    assert_eq!(outputs, [0, 1, 2]);
    assert_eq!(new.open(), ["judge"]);
}

#[test]
fn a_rerun_of_a_rerun_knows_where_its_sessions_are() {
    let mut new = rerun(&ended(), "judge", false).unwrap();
    new.call("judge", "task_complete", json!({"summary": "again", "route": "none"}));
    let again = rerun(&new, "judge", false).unwrap();
    assert_eq!(again.state.tasks["read"].copied_from.as_deref(), Some("r1"));
}

#[test]
fn what_cannot_be_repeated_is_refused() {
    let run = ended();
    let problem = |task: &str, failed_items| rerun(&run, task, failed_items).err().unwrap().to_string();
    assert_eq!(problem("x", false), "the mission has no task `x`; it has fill, other, read, judge, good, bad");
    assert!(problem("judge", true).contains("does not iterate in parallel"));
    assert!(problem("bad", false).contains("was not started"), "the router chose another task");
    let all = rerun(
        &rerun(&run, "read", true)
            .map(|mut new| {
                new.complete("read[1]");
                new.call("judge", "task_complete", json!({"summary": "again", "route": "none"}));
                new
            })
            .unwrap(),
        "read",
        true,
    );
    assert_eq!(all.err().unwrap(), RerunProblem::NothingFailed("read".into()));
    assert_eq!(rerun(&Run::of(MISSION), "fill", false).err().unwrap(), RerunProblem::NotEnded);
}

/// Many items are in several events, so that none is too large.
#[test]
fn a_large_task_is_taken_over_in_parts() {
    let items: Vec<String> = (0..1201).map(|n| format!("{{id: i{n}}}")).collect();
    let mut run = Run::of(&format!(
        "{{name: m, datasets: {{d: {{items: [{}]}}}}, tasks: {{
            p: {{objective: 'x', iterator: {{dataset: d, parallel: true, limit: 2000}}}}, after: {{depends_on: [p]}}}}}}",
        items.join(", ")
    ));
    for n in 0..1201 {
        run.complete(&format!("p[{n}]"));
    }
    run.complete("after");
    let from = RerunFrom { task: "after".into(), failed_items: false };
    let taken = taken_over(&run.def, &run.events, &from).unwrap();
    assert_eq!(taken.events.len(), 3);
    let events: Vec<_> = (1..).zip(taken.events).map(|(n, event)| event.at(n, run.now)).collect();
    let state = RunState::from_events(&events);
    assert_eq!(state.tasks["p"].items, run.state.tasks["p"].items);
}
