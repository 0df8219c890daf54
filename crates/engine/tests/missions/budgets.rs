//! Budgets of tasks and runs.

use segue_engine::mission::{
    budget,
    event::{NewEvent, RunEvent, RunEventKind},
    state::{MissionStatus, TaskStatus},
};
use serde_json::json;

use crate::driver::Run;

/// A model call of a unit with so many tokens, and what follows from it.
pub(crate) fn spend(run: &mut Run, unit: &str, tokens: u64) {
    let id = run.unit(unit);
    let usage = segue_lang_usage(tokens);
    let turn = RunEventKind::SessionTurn { entity: "commander".into(), model: None, usage, duration_ms: 0 };
    run.append(vec![NewEvent::of_unit(&id, turn)]);
    let events = budget::check(&run.def, &run.state, &id);
    if !events.is_empty() {
        run.append(events);
    }
    run.settle();
}

fn segue_lang_usage(tokens: u64) -> segue_engine::usage::Usage {
    segue_engine::usage::Usage { input: tokens - 1, output: 1, cost: Some(tokens as f64 / 100.0), ..Default::default() }
}

fn issues(run: &Run) -> Vec<String> {
    let issues = run.of_kind("mission_issue");
    issues
        .iter()
        .map(|issue| format!("{}: {}", issue["severity"].as_str().unwrap(), issue["message"].as_str().unwrap()))
        .collect()
}

#[test]
fn a_warning_comes_once_and_just_below_the_limit_nothing_ends() {
    let mut run = Run::of("{name: m, budget: {tokens: 100}, tasks: {a: {}, b: {depends_on: [a]}}}");
    spend(&mut run, "a", 79);
    assert_eq!(issues(&run), [""; 0]);
    spend(&mut run, "a", 5);
    spend(&mut run, "a", 15);
    assert_eq!(issues(&run), ["warning: the budget of mission m is nearly used up: 84 of 100 tokens"]);
    run.complete("a");
    assert_eq!(run.open(), ["b"]);
    spend(&mut run, "b", 1);
    assert_eq!(issues(&run)[1..], ["fatal: the budget of mission m is used up: 100 of 100 tokens"]);
    assert_eq!(run.cancelled, ["b"]);
    assert_eq!(run.state.failure.as_ref().unwrap().code.as_ref(), "budget.exceeded");
    assert_eq!(run.state.status, MissionStatus::Failed);
}

#[test]
fn the_budget_of_a_task_covers_all_its_iterations_and_comes_before_that_of_the_run() {
    let mut run = Run::of(
        "{name: m, budget: {tokens: 50}, datasets: {d: {items: [{}, {}]}}, tasks: {
            p: {iterator: {dataset: d, parallel: true}, budget: {tokens: 50, warn_at: 1}}}}",
    );
    spend(&mut run, "p[0]", 30);
    spend(&mut run, "p[1]", 30);
    assert_eq!(issues(&run), ["fatal: the budget of task p is used up: 60 of 50 tokens"]);
    assert_eq!(run.state.status, MissionStatus::Failed);
    let failed = |event: &RunEvent| matches!(&event.event.kind, RunEventKind::TaskFailed { code, .. } if &**code == "budget.exceeded");
    assert!(run.events.iter().any(failed), "the task is not cancelled because another one failed: {:?}", run.events);
}

#[test]
fn cost_counts_after_tokens() {
    let mut run = Run::of("{name: m, budget: {tokens: 1000, cost: 0.5, warn_at: 1}, tasks: {a: {}}}");
    spend(&mut run, "a", 50);
    assert_eq!(issues(&run), ["fatal: the budget of mission m is used up: 0.5 of 0.5 cost units"]);
}

#[test]
fn with_finish_turn_open_tasks_end_their_work_and_no_other_starts() {
    let mut run = Run::of(
        "{name: m, budget: {tokens: 10, on_breach: finish_turn, warn_at: 1}, tasks: {a: {}, b: {}, c: {depends_on: [a]}}}",
    );
    spend(&mut run, "a", 10);
    assert_eq!(run.state.status, MissionStatus::Running);
    assert!(run.state.must_finish("a") && run.state.must_finish("b"));
    run.complete("a");
    assert_eq!(run.starts(), ["a", "b"]);
    run.complete("b");
    assert_eq!(run.state.status, MissionStatus::Failed);
    assert_eq!(run.state.tasks["a"].summary.as_deref(), Some("a is done"), "its result is stored");
    assert_eq!(run.of_kind("mission_failed")[0]["code"], "budget.exceeded");
}

/// A run whose last task ends within its last turn has everything that it should produce.
#[test]
fn with_finish_turn_a_run_that_is_done_succeeds() {
    let mut run = Run::of("{name: m, budget: {tokens: 10, on_breach: finish_turn, warn_at: 1}, tasks: {a: {}}}");
    spend(&mut run, "a", 10);
    run.complete("a");
    assert_eq!(run.state.status, MissionStatus::Completed);
}

#[test]
fn with_finish_turn_of_a_task_its_other_items_do_not_start() {
    let mut run = Run::of(
        "{name: m, datasets: {d: {items: [{}, {}, {}]}}, tasks: {
            p: {iterator: {dataset: d, parallel: true, limit: 1, on_error: continue, min_success: 0.9},
                budget: {tokens: 10, on_breach: finish_turn}}}}",
    );
    spend(&mut run, "p[0]", 10);
    run.complete("p[0]");
    assert_eq!(run.starts(), ["p[0]"]);
    assert_eq!(run.state.task_status("p"), TaskStatus::Failed);
    let error = run.state.tasks["p"].error.clone().unwrap();
    assert_eq!(&*error, "the budget was used up when 1 of 3 items were done");
}

/// In the original, counters began at zero when a run was resumed.
#[test]
fn usage_is_rebuilt_from_the_events() {
    let mut run = Run::of("{name: m, budget: {tokens: 100, warn_at: 1}, tasks: {a: {}}}");
    spend(&mut run, "a", 60);
    let mut resumed = run.cut(run.events.len());
    assert_eq!(resumed.state.usage.usage.input, 59);
    spend(&mut resumed, "a", 40);
    assert_eq!(resumed.state.status, MissionStatus::Failed);
    // A run that is resumed with the same budget ends at once.
    resumed.record(RunEventKind::MissionResumed {});
    spend(&mut resumed, "a", 1);
    assert_eq!(resumed.state.status, MissionStatus::Failed);
    assert_eq!(resumed.of_kind("mission_issue").len(), 2);
    assert_eq!(json!(resumed.state.usage.answers), json!(3));
}

/// A person answers the latest question.
fn answer(run: &mut Run, answer: Option<&str>) {
    let (id, input) = run.state.human_inputs.last().unwrap();
    let resolved = RunEventKind::HumanInputResolved {
        question_id: id.clone(),
        answer: answer.map(Into::into),
        timed_out: answer.is_none(),
        responder: None,
    };
    let event = NewEvent::of_unit(&input.unit, resolved);
    run.append(vec![event]);
    run.settle();
}

#[test]
fn with_ask_a_person_raises_the_budget_by_as_much_as_it_had_and_is_asked_again_when_that_is_used_up() {
    let mut run = Run::of("{name: m, budget: {tokens: 100, on_breach: ask}, tasks: {a: {}, b: {}}}");
    spend(&mut run, "a", 120);
    assert_eq!(issues(&run), ["error: the budget of mission m is used up: 120 of 100 tokens"]);
    let (id, input) = run.state.human_inputs.first().unwrap();
    assert_eq!(
        (&**id, &*input.question.question),
        (
            "r1/budget/tokens/1",
            "The budget of mission m is used up: 120 of 100 tokens. `continue` adds 100 tokens, `stop` ends the run."
        )
    );
    assert_eq!(input.question.choices, [std::sync::Arc::from("continue"), "stop".into()]);
    // All units of the run wait, and nobody is asked twice.
    assert!(run.state.is_waiting());
    spend(&mut run, "b", 10);
    assert_eq!((run.state.human_inputs.len(), issues(&run).len()), (1, 1));
    answer(&mut run, Some("continue"));
    assert!(!run.state.is_waiting() && run.state.failure.is_none());
    let limit = |task| budget::limit_of(&run.state, task, budget::BudgetKind::Tokens, 100.0);
    assert_eq!((limit(None), limit(Some("a"))), (220.0, 100.0));
    spend(&mut run, "b", 50);
    assert_eq!(issues(&run)[1..], ["warning: the budget of mission m is nearly used up: 180 of 220 tokens"]);
    spend(&mut run, "b", 40);
    assert_eq!(issues(&run)[2..], ["error: the budget of mission m is used up: 220 of 220 tokens"]);
    assert_eq!(run.state.human_inputs.keys().last().unwrap().as_ref(), "r1/budget/tokens/2");
    // What is left of the run has one unit that waits.
    answer(&mut run, Some("continue"));
    run.complete("a");
    run.complete("b");
    assert_eq!(run.state.status, MissionStatus::Completed);
}

#[test]
fn with_ask_the_run_fails_if_the_answer_is_no_or_nobody_answers_in_time() {
    for given in [Some("stop"), None] {
        let mut run = Run::of(
            "{name: m, tasks: {a: {budget: {tokens: 10, warn_at: 1, on_breach: ask}, questions: {timeout_seconds: 60}}, b: {}}}",
        );
        spend(&mut run, "a", 12);
        let (id, input) = run.state.human_inputs.first().unwrap();
        assert_eq!((&**id, input.question.timeout_seconds), ("r1/budget/a/tokens/1", Some(60)));
        assert!(run.state.budget_question("a").is_some() && run.state.budget_question("b").is_none());
        assert!(!run.state.is_waiting(), "the other task goes on");
        answer(&mut run, given);
        let unit = run.unit("a");
        let events = budget::check(&run.def, &run.state, &unit);
        run.append(events);
        run.settle();
        assert_eq!(issues(&run)[1..], ["fatal: the budget of task a is used up: 12 of 10 tokens"]);
        assert_eq!(
            (run.state.status, &*run.state.failure.as_ref().unwrap().code),
            (MissionStatus::Failed, "budget.exceeded")
        );
        assert_eq!(budget::check(&run.def, &run.state, &unit), []);
        // The resumed run asks again: somebody may have changed their mind.
        run.record(RunEventKind::MissionResumed {});
        spend(&mut run, "a", 1);
        assert_eq!(run.state.human_inputs.keys().last().unwrap().as_ref(), "r1/budget/a/tokens/2");
    }
}

#[test]
fn with_ask_a_task_that_is_done_asks_nobody_and_the_next_one_does() {
    let mut run =
        Run::of("{name: m, budget: {tokens: 10, warn_at: 1, on_breach: ask}, tasks: {a: {}, b: {depends_on: [a]}}}");
    run.complete("a");
    spend(&mut run, "a", 10);
    assert_eq!((issues(&run).len(), run.state.human_inputs.len()), (0, 0));
    let unit = run.unit("b");
    let events = budget::check(&run.def, &run.state, &unit);
    run.append(events);
    assert!(run.state.is_waiting());
    // A stopped run waits for the same answer when it is resumed.
    run.record(RunEventKind::MissionStopped {});
    run.record(RunEventKind::MissionResumed {});
    assert!(run.state.budget_question("b").is_some());
    answer(&mut run, Some("continue"));
    run.record(RunEventKind::MissionStopped {});
    run.record(RunEventKind::MissionResumed {});
    spend(&mut run, "b", 5);
    assert_eq!(issues(&run), ["error: the budget of mission m is used up: 10 of 10 tokens"], "the raised budget stays");
}
