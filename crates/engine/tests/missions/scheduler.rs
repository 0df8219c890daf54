//! What starts when, what a failure stops, and how iterations go on.

use segue_engine::{
    ids::AgentName,
    mission::{
        event::{ChosenTarget, RunEventKind},
        inputs::NewRunOptions,
        scheduler,
        state::{MissionStatus, TaskStatus},
        tools::{self, MissionTool},
    },
    time::Timestamp,
};
use serde_json::{Value as Json, json};

use crate::{
    definitions::mission,
    driver::{CallOptions, Run},
};

fn parallel(items: u32, iterator: &str) -> Run {
    let items: Vec<String> = (0..items).map(|n| format!("{{id: i{n}}}")).collect();
    Run::of(&format!(
        "{{name: m, datasets: {{d: {{items: [{}]}}}}, tasks: {{
            p: {{objective: 'Work on {{{{ item.id }}}}', iterator: {{dataset: d, parallel: true, {iterator}}}, output: {{n: integer}}}},
            after: {{depends_on: [p]}}}}}}",
        items.join(", ")
    ))
}

fn status(run: &Run, index: u32) -> TaskStatus {
    run.state.tasks["p"].items.get(&index).map_or(TaskStatus::Pending, |item| item.status)
}

#[test]
fn tools_that_fill_datasets_are_offered_while_one_can_be_filled() {
    let offers_filling = |run: &Run, unit: &str| {
        let offered = run.context(unit, &CallOptions::default(), tools::offered);
        assert!(offered.contains(&MissionTool::DatasetCount));
        [MissionTool::SetDataset, MissionTool::ResultToDataset].map(|tool| offered.contains(&tool))
    };
    assert_eq!(offers_filling(&parallel(2, ""), "p[0]"), [false; 2], "a task iterates over the only dataset");
    let two = Run::of("{name: m, datasets: {d: {}, e: {items: [{}]}}, tasks: {fill: {}, p: {iterator: {dataset: e}}}}");
    assert_eq!(offers_filling(&two, "fill"), [true; 2]);
    assert_eq!(offers_filling(&two, "p"), [true; 2], "the other dataset can still be filled");
}

#[test]
fn ready_tasks_start_at_once_up_to_max_tasks() {
    let mut run = Run::of("{name: m, max_tasks: 2, tasks: {a: {}, b: {}, c: {}, d: {depends_on: [a, b]}}}");
    assert_eq!(run.starts(), ["a", "b"]);
    run.complete("b");
    assert_eq!(run.starts(), ["a", "b", "c"]);
    run.complete("a");
    assert_eq!(run.starts(), ["a", "b", "c", "d"]);
    run.complete("c");
    run.complete("d");
    assert_eq!(run.state.status, MissionStatus::Completed);
}

/// In the original, more dynamic than static tasks that end together could block the run for ever.
#[test]
fn eight_targets_of_one_task_all_run() {
    let names: Vec<String> = (0..8).map(|n| format!("t{n}")).collect();
    let tasks: Vec<String> = names.iter().map(|name| format!("{name}: {{}}")).collect();
    let mut run = Run::of(&format!(
        "{{name: m, max_tasks: 20, tasks: {{s: {{send_to: [{}]}}, {}}}}}",
        names.join(", "),
        tasks.join(", ")
    ));
    run.complete("s");
    assert_eq!(run.starts().len(), 9);
    assert_eq!(run.of_kind("route_chosen").len(), 8);
    for name in &names {
        run.complete(name);
    }
    assert_eq!(run.state.status, MissionStatus::Completed);
    assert_eq!(run.state.tasks["t3"].activated_by.as_deref(), Some("s"));
}

#[test]
fn a_failure_stops_scheduling_and_cancels_the_siblings_before_the_run_ends() {
    let mut run = Run::of("{name: m, max_tasks: 3, tasks: {a: {}, b: {}, c: {}, d: {}, e: {depends_on: [b]}}}");
    run.cancels = false;
    run.fail("a", "no connection");
    assert_eq!(run.state.status, MissionStatus::Running, "it waits for the siblings");
    run.complete("b"); // a sibling that ends before it is cancelled
    assert_eq!(run.starts(), ["a", "b", "c"], "neither d nor e starts");
    run.cancels = true;
    run.settle();
    assert_eq!(run.cancelled, ["c"]);
    assert_eq!(run.state.status, MissionStatus::Failed);
    let failed = run.of_kind("mission_failed");
    assert_eq!(failed[0]["error"], "task a failed: no connection");
    assert_eq!(run.state.task_status("c"), TaskStatus::Cancelled);
    assert_eq!(run.state.task_status("d"), TaskStatus::Pending);
}

#[test]
fn parallel_iterations_keep_the_limit_and_the_order() {
    let mut run = parallel(5, "limit: 2");
    assert_eq!(run.starts(), ["p[0]", "p[1]"]);
    run.complete("p[1]");
    run.complete("p[2]");
    assert_eq!(run.starts(), ["p[0]", "p[1]", "p[2]", "p[3]"]);
    for unit in ["p[3]", "p[0]", "p[4]"] {
        run.complete(unit);
    }
    assert_eq!(run.state.tasks["p"].summary.as_deref(), Some("5 of 5 items completed"));
    assert_eq!(run.starts().last(), Some(&"after"));
    assert!(run.state.datasets["d"].locked);
}

#[test]
fn first_iterations_start_one_after_the_other() {
    let run = parallel(6, "limit: 3, start_delay: 200");
    assert_eq!(run.started[..3], [("p[0]".into(), 0), ("p[1]".into(), 200), ("p[2]".into(), 400)]);
    let mut run = run;
    run.now = Timestamp::from_micros(1_000_000);
    run.complete("p[0]");
    assert_eq!(run.started[3], ("p[3]".into(), 1000), "only the first batch is delayed");
}

#[test]
fn a_failed_smoke_test_starts_nothing_else() {
    for on_error in ["fail_fast", "continue", "finish_then_fail"] {
        let mut run = parallel(4, &format!("smoketest: true, max_retries: 1, on_error: {on_error}"));
        assert_eq!(run.starts(), ["p[0]"]);
        run.fail("p[0]", "first");
        assert_eq!(run.starts(), ["p[0]", "p[0].2"], "its retries count");
        run.fail("p[0]", "second");
        assert_eq!(run.starts(), ["p[0]", "p[0].2"], "{on_error}");
        assert_eq!(run.state.status, MissionStatus::Failed);
        assert_eq!(run.state.tasks["p"].error.as_deref(), Some("item 0 (i0) failed: second"));
    }
}

#[test]
fn after_the_smoke_test_the_others_start_with_the_delay() {
    let mut run = parallel(4, "smoketest: true, limit: 2, start_delay: 100");
    run.now = Timestamp::from_micros(5_000_000);
    run.complete("p[0]");
    assert_eq!(run.started[1..], [("p[1]".into(), 5000), ("p[2]".into(), 5100)]);
}

/// An item that waits for its time is not in work: it holds no place, and no event says that it was started.
#[test]
fn an_item_that_waits_for_its_retry_holds_no_place() {
    let mut run = parallel(3, "limit: 1, max_retries: 1, retry_delay: 60000, on_error: continue");
    run.clock_stands = true;
    run.fail("p[0]", "first");
    assert_eq!(run.starts(), ["p[0]", "p[1]"], "the next item takes the place");
    assert_eq!(run.of_kind("iteration_retrying").len(), 0);
    assert_eq!(scheduler::next_wake(&run.def, &run.state, &run.templates, run.now), None, "no place is free");
    run.complete("p[1]");
    run.complete("p[2]");
    let due = Timestamp::from_micros(60_000_000);
    assert_eq!(scheduler::next_wake(&run.def, &run.state, &run.templates, run.now), Some(due));
    assert_eq!(run.state.status, MissionStatus::Running);
    run.now = due;
    run.settle();
    assert_eq!(run.starts(), ["p[0]", "p[1]", "p[2]", "p[0].2"]);
    assert_eq!(run.of_kind("iteration_started").len(), 4);
}

#[test]
fn items_start_in_their_order_although_places_are_free() {
    let mut run = parallel(6, "limit: 3, start_delay: 200");
    run.started.clear();
    let mut run = Run { clock_stands: true, ..run.cut(1) };
    run.settle();
    run.complete("p[0]");
    assert_eq!(run.starts(), ["p[0]"], "the second and the third wait, and the fourth waits for them");
    for (now, last) in [(200_000, "p[1]"), (400_000, "p[3]")] {
        run.now = Timestamp::from_micros(now);
        run.settle();
        assert_eq!(run.starts().last(), Some(&last));
    }
}

/// In the original, a retry resumed the failed conversation, and a second row was added.
#[test]
fn a_retry_is_a_new_attempt_with_doubling_delay_and_one_row() {
    let mut run = parallel(1, "max_retries: 3, retry_delay: 100");
    run.call("p[0]", "submit_output", json!({"output": {"n": 1}}));
    run.fail("p[0]", "first");
    assert_eq!(run.started[1], ("p[0].2".into(), 100));
    assert_eq!(run.state.tasks["p"].items[&0].output, None, "the output of a failed attempt does not count");
    run.now = Timestamp::from_micros(1_000_000);
    run.fail("p[0]", "second");
    assert_eq!(run.started[2], ("p[0].3".into(), 1200));
    run.call("p[0]", "submit_output", json!({"output": {"n": 3}}));
    run.complete("p[0]");
    let item = &run.state.tasks["p"].items[&0];
    assert_eq!(item.output, Some(json!({"n": 3})));
    assert_eq!(item.rejected.len(), 2);
    assert_eq!(item.rejected[0].output, Some(json!({"n": 1})), "rows of failed attempts are kept apart");
    let retrying = run.of_kind("iteration_retrying");
    assert_eq!((&retrying[0]["attempt"], &retrying[0]["error"]), (&json!(2), &json!("first")));
    assert_eq!(run.of_kind("iteration_started").len(), 3);
}

/// In the original, an iteration that had submitted counted as complete although it failed.
#[test]
fn a_failed_iteration_with_output_is_not_complete() {
    let mut run = parallel(2, "on_error: finish_then_fail");
    run.call("p[0]", "submit_output", json!({"output": {"n": 1}}));
    run.fail("p[0]", "killed");
    run.complete("p[1]");
    assert_eq!(run.state.status, MissionStatus::Failed);
    run.record(RunEventKind::MissionResumed {});
    assert_eq!(run.starts().last(), Some(&"p[0].2"), "only the failed item runs again");
    run.complete("p[0]");
    run.complete("after");
    assert_eq!(run.state.status, MissionStatus::Completed);
}

#[test]
fn fail_fast_cancels_the_running_iterations() {
    let mut run = parallel(5, "limit: 3");
    run.fail("p[1]", "broken");
    assert_eq!(run.cancelled, ["p[0]", "p[2]"]);
    assert_eq!(status(&run, 3), TaskStatus::Pending);
    assert_eq!(run.state.status, MissionStatus::Failed);
    assert_eq!(run.state.tasks["p"].error.as_deref(), Some("item 1 (i1) failed: broken"));
}

#[test]
fn finish_then_fail_reports_the_lowest_failed_index() {
    let mut run = parallel(3, "on_error: finish_then_fail, limit: 3");
    run.fail("p[2]", "third");
    assert_eq!(run.open(), ["p[0]", "p[1]"]);
    run.fail("p[0]", "first");
    run.complete("p[1]");
    assert_eq!(run.state.tasks["p"].error.as_deref(), Some("item 0 (i0) failed: first"));
}

#[test]
fn continue_succeeds_with_enough_items() {
    for (least, expected) in [("0.6", MissionStatus::Running), ("0.7", MissionStatus::Failed)] {
        let mut run = parallel(3, &format!("on_error: continue, min_success: {least}"));
        run.fail("p[1]", "broken");
        run.complete("p[0]");
        run.complete("p[2]");
        assert_eq!(run.state.status, expected, "{least}");
        if expected == MissionStatus::Running {
            assert_eq!(run.state.tasks["p"].summary.as_deref(), Some("2 of 3 items completed; failed: 1"));
            assert_eq!(run.state.tasks["p"].items[&1].error.as_deref(), Some("broken"));
        } else {
            let error = run.state.tasks["p"].error.as_deref().unwrap();
            assert!(error.ends_with("the least share is 0.7; item 1 (i1) failed: broken"), "{error}");
        }
    }
}

#[test]
fn an_empty_dataset_completes_its_task() {
    for parallel in ["true", "false"] {
        let run = Run::of(&format!(
            "{{name: m, datasets: {{d: {{}}}}, tasks: {{a: {{iterator: {{dataset: d, parallel: {parallel}}}, send_to: [b]}}, b: {{}}}}}}"
        ));
        assert_eq!(run.starts(), ["b"], "{parallel}");
        assert_eq!(run.state.tasks["a"].summary.as_deref(), Some("0 of 0 items completed"));
    }
}

/// In the original, the choice of a sequential task without output schema was lost, and nothing after it was activated.
#[test]
fn a_sequential_task_without_output_keeps_its_summary_and_route() {
    let mut run = Run::of(
        "{name: m, datasets: {d: {items: [{}, {}]}}, tasks: {
            s: {iterator: {dataset: d}, router: [{to: keep, when: good}, {to: drop, when: bad}]}, keep: {}, drop: {}}}",
    );
    assert_eq!(run.starts(), ["s"], "one unit for all items");
    run.call("s", "dataset_next", json!({}));
    run.call("s", "dataset_next", json!({}));
    run.call("s", "task_complete", json!({"summary": "both are bad", "route": "drop"}));
    assert_eq!(run.state.tasks["s"].summary.as_deref(), Some("both are bad"));
    assert_eq!(run.starts(), ["s", "drop"]);
    run.complete("drop");
    assert_eq!(run.state.status, MissionStatus::Completed, "keep was never activated");
}

/// In the original, the error was dropped and the task counted as completed.
#[test]
fn a_sequential_loop_that_ends_with_an_error_fails_and_keeps_its_outputs() {
    let mut run = Run::of(
        "{name: m, datasets: {d: {items: [{}, {}, {}]}}, tasks: {s: {iterator: {dataset: d}, output: {n: integer}}}}",
    );
    run.call("s", "dataset_next", json!({}));
    run.call("s", "submit_output", json!({"output": {"n": 0}}));
    run.call("s", "dataset_next", json!({}));
    assert_eq!(run.refused("s", "task_complete", json!({"summary": "enough"})), "complete.output_missing");
    run.fail("s", "corrections used up");
    assert_eq!(run.state.status, MissionStatus::Failed);
    assert_eq!(run.state.tasks["s"].items[&0].output, Some(json!({"n": 0})));

    // Indices stay absolute when the run is resumed: item 1 is the next one.
    run.record(RunEventKind::MissionResumed {});
    assert_eq!(run.starts(), ["s", "s.2"]);
    let next = run.call("s", "dataset_next", json!({}));
    assert_eq!((&next.result["index"], &next.result["total"]), (&json!(1), &json!(3)));
    run.call("s", "submit_output", json!({"output": {"n": 1}}));
    run.call("s", "dataset_next", json!({}));
    run.call("s", "submit_output", json!({"output": {"n": 2}}));
    assert_eq!(run.call("s", "dataset_next", json!({})).result["status"], "exhausted");
    run.complete("s");
    let outputs: Vec<Json> = run.state.tasks["s"].items.values().filter_map(|item| item.output.clone()).collect();
    assert_eq!(outputs, [json!({"n": 0}), json!({"n": 1}), json!({"n": 2})]);
}

#[test]
fn an_early_completion_of_a_sequential_task_is_refused() {
    let mut run = Run::of("{name: m, datasets: {d: {items: [{}, {}]}}, tasks: {s: {iterator: {dataset: d}}}}");
    assert_eq!(run.refused("s", "task_complete", json!({"summary": "x"})), "complete.dataset_open");
    run.call("s", "dataset_next", json!({}));
    assert_eq!(run.refused("s", "task_complete", json!({"summary": "x"})), "complete.dataset_open");
    run.call("s", "dataset_next", json!({}));
    run.complete("s");
    assert_eq!(run.state.tasks["s"].count(TaskStatus::Completed), 2);
}

/// In the original, the arguments were ignored as a whole and the task counted as completed.
#[test]
fn undecodable_arguments_complete_nothing() {
    use segue_engine::mission::tools::Arguments;
    let mut run = Run::of("{name: m, tasks: {a: {}}}");
    let bad = [json!(null), json!("done"), json!([1]), json!({"summary": 5}), json!({"summry": "x"})];
    for arguments in &bad {
        assert_eq!(run.refused("a", "task_complete", arguments.clone()), "args.invalid", "{arguments}");
    }
    let broken = Arguments::Malformed("expected `,` at line 1");
    let answer = run.try_call("a", "task_complete", broken, &CallOptions::default());
    assert_eq!(answer.result["code"], "args.invalid");
    assert_eq!(run.state.task_status("a"), TaskStatus::Running);
    run.call("a", "task_complete", json!({}));
    assert_eq!(run.state.status, MissionStatus::Completed, "empty arguments pass");
}

#[test]
fn a_mission_route_becomes_one_follow_up_after_the_other_tasks() {
    let mut run = Run::new(mission(
        "{name: m, tasks: {a: {router: [{to: 'mission:next_one#late', when: always}]}, b: {router: [{to: 'mission:next_one', when: always}]}}}",
    ));
    let target = mission(
        "{name: next_one, inputs: {topic: {type: string}}, tasks: {early: {}, late: {depends_on: [early]}, last: {depends_on: [late]}}}",
    );
    run.missions.insert("next_one".into(), target.into());
    let mut run = run.started(&Json::Null, NewRunOptions::default());
    run.call("a", "task_complete", json!({"route": "mission:next_one#late", "mission_inputs": {"topic": "tea"}}));
    assert!(run.launched.is_empty(), "the other task still runs");
    run.call("b", "task_complete", json!({"route": "next_one", "mission_inputs": {"topic": "jam"}}));
    assert_eq!(run.state.status, MissionStatus::Completed);
    let launched: Vec<(&str, Option<&str>)> =
        run.launched.iter().map(|follow_up| (&*follow_up.run, follow_up.entry.as_deref())).collect();
    assert_eq!(launched, [("r1/next", Some("late")), ("r1/next-2", None)], "none is lost");
    assert_eq!(scheduler::next(&run.def, &run.state, &run.templates, run.now), [], "each is launched once");

    // The new run enters at the task and has nothing before it.
    let follow_up = run.launched[0].clone();
    let options = NewRunOptions { entry: follow_up.entry.clone(), chain: 1, ..Default::default() };
    let target = Run::new(mission(
        "{name: next_one, inputs: {topic: {type: string}}, tasks: {early: {}, late: {depends_on: [early]}, last: {depends_on: [late]}}}",
    ));
    let mut target = target.started(&Json::Object(follow_up.inputs), options);
    assert_eq!(target.starts(), ["late"]);
    target.complete("late");
    target.complete("last");
    assert_eq!(target.state.status, MissionStatus::Completed);
}

#[test]
fn a_run_that_ended_with_a_mission_route_is_not_resumed_into_a_task() {
    let mut run =
        Run::new(mission("{name: m, tasks: {a: {router: [{to: 'mission:b', when: always}]}, b: {depends_on: [a]}}}"));
    run.missions.insert("b".into(), mission("{name: b, tasks: {x: {}}}").into());
    let mut run = run.started(&Json::Null, NewRunOptions::default());
    run.call("a", "task_complete", json!({"summary": "s", "route": "b"}));
    let cut = run.cut(run.events.len());
    assert_eq!(cut.state.tasks["a"].routes.len(), 1);
    assert!(matches!(&cut.state.tasks["a"].routes[0].target, ChosenTarget::Mission { name, .. } if &**name == "b"));
    run.complete("b");
    assert_eq!(run.state.status, MissionStatus::Completed);
}

#[test]
fn the_length_of_a_chain_is_limited() {
    let mut run = Run::new(mission("{name: m, tasks: {a: {router: [{to: 'mission:m', when: again}]}}}"));
    run.missions.insert("m".into(), mission("{name: m, tasks: {a: {}}}").into());
    let mut run = run.started(&Json::Null, NewRunOptions { chain: 15, ..Default::default() });
    assert_eq!(run.refused("a", "task_complete", json!({"route": "m"})), "route.chain_limit");
    run.call("a", "task_complete", json!({"route": "none"}));
    assert!(run.launched.is_empty());
}

#[test]
fn a_stopped_run_starts_nothing_and_goes_on_when_it_is_resumed() {
    let mut run = Run::of("{name: m, tasks: {a: {}, b: {depends_on: [a]}}}");
    run.record(RunEventKind::MissionStopping { reason: None });
    run.complete("a");
    assert_eq!(run.starts(), ["a"]);
    run.record(RunEventKind::MissionStopped {});
    assert!(run.state.status.has_ended());
    run.record(RunEventKind::MissionResumed {});
    assert_eq!(run.starts(), ["a", "b"], "the completed task does not run again");
}

#[test]
fn a_failed_task_runs_again_with_a_new_attempt_when_the_run_is_resumed() {
    let mut run = Run::of("{name: m, plan: required, tasks: {a: {}, b: {}}}");
    run.call("a", "set_subtasks", json!({"subtasks": ["one"]}));
    run.fail("a", "broken");
    run.record(RunEventKind::MissionResumed {});
    assert_eq!(run.starts(), ["a", "b", "a.2", "b.2"]);
    assert_eq!(run.state.tasks["a"].unit.as_ref().unwrap().plan, None, "the new session has no plan");
}

#[test]
fn questions_to_people_block_only_their_task() {
    let mut run = Run::of("{name: m, tasks: {a: {}, b: {}}}");
    let blocked =
        json!({"succeed": false, "reason": "the budget is unknown", "questions": ["How much?", "Until when?"]});
    run.call("a", "task_complete", blocked);
    assert_eq!(run.state.task_status("a"), TaskStatus::Blocked);
    assert!(!run.state.is_waiting());
    run.complete("b");
    assert!(run.state.is_waiting());
    assert_eq!(run.state.status, MissionStatus::Running);
    let ids: Vec<_> = run.state.human_inputs.keys().cloned().collect();
    for (id, expected) in ids.iter().zip([TaskStatus::Blocked, TaskStatus::Running]) {
        let answered = RunEventKind::HumanInputResolved {
            question_id: id.clone(),
            answer: Some("100".into()),
            timed_out: false,
            responder: None,
        };
        run.record(answered);
        assert_eq!(run.state.task_status("a"), expected);
    }
    run.complete("a");
    assert_eq!(run.state.status, MissionStatus::Completed);
}

/// In the original, the id of the question changed with each execution and the answer was lost.
#[test]
fn a_question_that_is_asked_again_after_a_crash_is_the_same() {
    let mut run = Run::of("{name: m, tasks: {a: {}}}");
    let options = CallOptions { call: Some("call-1".into()), ..Default::default() };
    let arguments = json!({"question": "Which region?"});
    let ask =
        |run: &mut Run| run.try_call("a", "ask", segue_engine::mission::tools::Arguments::Json(&arguments), &options);
    let first = ask(&mut run);
    let again = ask(&mut run.cut(run.events.len()));
    assert_eq!(first.then, again.then);
    assert_eq!(again.events, [], "it is not asked twice");
    let question_id = run.state.human_inputs.keys().next().unwrap().clone();
    run.record(RunEventKind::HumanInputResolved {
        question_id,
        answer: Some("north".into()),
        timed_out: false,
        responder: None,
    });
    assert_eq!(ask(&mut run).result, json!("north"), "an answer that came meanwhile is used");
}

#[test]
fn an_event_that_was_applied_already_changes_nothing() {
    let mut run = parallel(3, "limit: 2");
    run.complete("p[0]");
    let before = run.state.clone();
    for event in run.events.clone() {
        run.state.apply(&event);
    }
    assert_eq!(run.state, before);
}

#[test]
fn agents_of_the_tasks_before_can_be_asked() {
    use segue_engine::mission::{event::AssignmentOutcome, tools::agents};
    let mut run = Run::of("{name: m, agents: [helper], tasks: {a: {}, b: {depends_on: [a]}}}");
    run.call("a", "call_agent", json!({"name": "helper", "task": "Look it up"}));
    let done = agents::finished(&run.unit("a"), &AgentName::from("helper"), AssignmentOutcome::Answered, "42", None);
    assert_eq!(done.result, json!("42"));
    run.append(done.events);
    run.complete("a");
    let answer = run.call("b", "ask_agent", json!({"agent_id": "helper", "question": "Where?"}));
    let text = format!("{:?}", answer.then);
    assert!(text.contains(r#"unit: Some(UnitId { task: "a""#), "{text}");
}

/// In the original, the router was not offered again after a resume.
#[test]
fn a_sequential_task_keeps_its_router_and_cursor_when_it_is_continued() {
    let mut run = Run::of(
        "{name: m, datasets: {d: {items: [{}, {}]}}, tasks: {
            s: {iterator: {dataset: d}, output: {n: {type: integer, required: true}}, router: [{to: good, when: it is}]}, good: {}}}",
    );
    run.call("s", "dataset_next", json!({}));
    run.call("s", "submit_output", json!({"output": {"n": 1}}));
    let mut run = run.cut(run.events.len());
    let next = run.call("s", "dataset_next", json!({}));
    assert_eq!(next.result["index"], 1);
    run.call("s", "submit_output", json!({"output": {"n": 2}}));
    let mut run = run.cut(run.events.len()); // all outputs exist
    assert_eq!(run.refused("s", "task_complete", json!({"summary": "all"})), "route.required");
    run.call("s", "task_complete", json!({"summary": "all", "route": "good"}));
    assert_eq!(run.starts(), ["good"]);
    assert_eq!(run.state.tasks["s"].summary.as_deref(), Some("all"));
}

/// In the original, only the first commander of a parallel iteration existed after a resume.
#[test]
fn the_commander_of_each_item_can_be_asked_after_a_restart() {
    let mut run = parallel(3, "limit: 3");
    for unit in ["p[0]", "p[1]", "p[2]"] {
        run.complete(unit);
    }
    let mut run = run.cut(run.events.len());
    for index in 0..3 {
        let question = json!({"task_name": "p", "index": index, "question": "Why?"});
        let text = format!("{:?}", run.call("after", "ask_commander", question).then);
        assert!(text.contains(&format!("iteration: Some({index})")), "{text}");
    }
}

#[test]
fn no_event_and_no_state_has_the_value_of_a_protected_input() {
    let run = Run::new(mission(
        "{name: m, inputs: {key: {type: string, protected: true}, topic: {type: string}}, tasks: {a: {objective: '{{ inputs.topic }}'}}}",
    ));
    let run = run.started(&json!({"topic": "tea"}), NewRunOptions::default());
    let text =
        format!("{} {}", serde_json::to_string(&run.events).unwrap(), serde_json::to_string(&run.state).unwrap());
    assert!(text.contains("tea") && !text.contains("s3cret") && !text.contains("key"), "{text}");
}

#[test]
fn outputs_that_are_submitted_twice_leave_one_row() {
    let mut run = parallel(1, "limit: 1");
    run.call("p[0]", "submit_output", json!({"output": {"n": 1}}));
    run.call("p[0]", "submit_output", json!({"output": {"n": 2}}));
    run.complete("p[0]");
    let rows = run.call("after", "query_task_output", json!({"task": "p"}));
    assert_eq!(rows.result["items"][0]["output"], json!({"n": 2}));
    assert_eq!(rows.result["total"], 1);
}

#[test]
fn tasks_read_the_summaries_of_the_tasks_before_in_their_order() {
    use segue_engine::mission::context;
    let mut run = Run::of(
        "{name: m, datasets: {d: {items: [{}]}}, tasks: {c: {depends_on: [x]}, d: {depends_on: [b, c]}, x: {depends_on: [r], iterator: {dataset: d, parallel: true}, output: {n: {type: integer, description: A number}}}, r: {}, b: {depends_on: [r]}}}",
    );
    for unit in ["r", "b", "x[0]", "c"] {
        run.complete(unit);
    }
    let told = context::ancestors(&run.def, &run.state, "d");
    let names: Vec<(&str, &str)> = told.iter().map(|told| (&*told.task, &*told.summary)).collect();
    assert_eq!(names, [("r", "r is done"), ("x", "1 of 1 items completed"), ("c", "c is done"), ("b", "b is done")]);
    assert!(told[1].is_parallel && told[1].fields[0].kind == "integer");
}

#[test]
fn the_options_of_a_router_list_the_inputs_of_missions() {
    use segue_engine::mission::routes;
    let mut run = Run::new(mission(
        "{name: m, tasks: {a: {router: [{to: b, when: small}, {to: 'mission:b', when: large}, {to: c, if: summary}]}, b: {}, c: {}}}",
    ));
    run.missions.insert("b".into(), mission("{name: b, inputs: {topic: {type: string, description: What}, n: {type: integer, default: 1}, key: {type: string, protected: true}}, tasks: {x: {}}}").into());
    let options = routes::options(&run.def.tasks["a"], &run.missions);
    assert_eq!(
        serde_json::to_value(options).unwrap(),
        json!([
            {"key": "b", "when": "small", "is_mission": false, "inputs": []},
            {"key": "mission:b", "when": "large", "is_mission": true, "inputs": [
                {"name": "topic", "type": "string", "required": true, "description": "What"},
                {"name": "n", "type": "integer", "required": false, "description": ""},
            ]},
        ])
    );
}

#[test]
fn answers_of_people_are_checked_against_the_choices() {
    use segue_engine::mission::{event::PersonQuestion, tools::people::check_answer};
    let open = PersonQuestion { question: "How much?".into(), ..Default::default() };
    assert_eq!(check_answer(&open, " 5 ").as_deref(), Ok("5"));
    assert_eq!(check_answer(&open, " ").unwrap_err(), "the answer is empty");
    let one = PersonQuestion { choices: vec!["North".into(), "South".into()], ..open };
    for answer in ["North", "north", "1"] {
        assert_eq!(check_answer(&one, answer).as_deref(), Ok("North"), "{answer}");
    }
    assert_eq!(check_answer(&one, "West").unwrap_err(), "`West` is none of the choices: North, South");
    let several = PersonQuestion { multi_select: true, ..one };
    for answer in ["2, north", "[\"South\", \"North\"]"] {
        assert_eq!(check_answer(&several, answer).as_deref(), Ok("[\"South\",\"North\"]"), "{answer}");
    }
    assert!(check_answer(&several, "North, West").is_err());
}

#[test]
fn the_first_answer_to_a_question_counts() {
    let mut run = Run::of("{name: m, tasks: {a: {}}}");
    run.call("a", "ask", json!({"question": "Which year?"}));
    let id = run.state.human_inputs.keys().next().unwrap().clone();
    let resolved = |answer: &str| RunEventKind::HumanInputResolved {
        question_id: id.clone(),
        answer: Some(answer.into()),
        timed_out: false,
        responder: Some("ann".into()),
    };
    run.record(resolved("2026"));
    run.record(resolved("2025"));
    assert_eq!(run.state.human_inputs[&id].answer.as_deref(), Some("2026"));
}

#[test]
fn a_thousand_items_run_in_order_within_the_limit() {
    let mut run = parallel(1_000, "limit: 10, max_retries: 1");
    let mut most = 0;
    while let Some(unit) = run.state.open_units().into_iter().find(|unit| unit.iteration.is_some()) {
        most = most.max(run.state.open_units().len());
        let name = format!("p[{}]", unit.iteration.unwrap());
        if unit.attempt == 1 && unit.iteration.unwrap() % 100 == 7 {
            run.fail(&name, "once");
        } else {
            run.complete(&name);
        }
    }
    assert_eq!(most, 10);
    let first: Vec<&str> =
        run.starts().into_iter().filter(|unit| unit.starts_with("p[") && unit.ends_with(']')).collect();
    assert_eq!(first, (0..1_000).map(|index| format!("p[{index}]")).collect::<Vec<_>>());
    assert_eq!(run.starts().len(), 1_000 + 10 + 1, "ten items ran twice");
    assert_eq!(run.state.tasks["p"].summary.as_deref(), Some("1000 of 1000 items completed"));
}

const CLEANED: &str = "{name: m, tasks: {a: {}, b: {depends_on: [a]}, clean: {always: true}}}";

#[test]
fn a_task_that_always_runs_is_the_last_one_of_a_run_that_succeeds() {
    let mut run = Run::of(CLEANED);
    run.complete("a");
    assert_eq!(run.starts(), ["a", "b"]);
    run.complete("b");
    assert_eq!(run.starts(), ["a", "b", "clean"]);
    assert_eq!(run.state.status, MissionStatus::Running);
    let before = segue_engine::mission::context::ancestors(&run.def, &run.state, "clean");
    assert_eq!(before.iter().map(|task| &*task.task).collect::<Vec<_>>(), ["a", "b"], "it is told all results");
    run.complete("clean");
    assert_eq!(run.state.status, MissionStatus::Completed);
}

#[test]
fn a_task_that_always_runs_comes_after_a_failure_and_does_not_hide_it() {
    for ends in ["completes", "fails"] {
        let mut run = Run::of(CLEANED);
        run.fail("a", "broken");
        assert_eq!(run.starts(), ["a", "clean"], "b never starts");
        assert_eq!(run.cancelled, [""; 0], "the failure does not cancel it");
        match ends {
            "completes" => run.complete("clean"),
            _ => run.fail("clean", "cannot clean up"),
        }
        assert_eq!(run.state.status, MissionStatus::Failed);
        assert_eq!(run.of_kind("mission_failed")[0]["error"], "task a failed: broken");
        run.record(RunEventKind::MissionResumed {});
        assert_eq!(run.open(), ["a.2"]);
        run.complete("a");
        run.complete("b");
        assert_eq!(run.open(), ["clean.2"], "it runs again at the end of the resumed run");
        run.complete("clean");
        assert_eq!(run.state.status, MissionStatus::Completed);
    }
}

#[test]
fn a_failed_clean_up_fails_the_run() {
    let mut run = Run::of(CLEANED);
    run.complete("a");
    run.complete("b");
    run.fail("clean", "cannot clean up");
    assert_eq!(run.state.status, MissionStatus::Failed);
}
