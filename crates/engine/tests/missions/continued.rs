//! Runs that continue from any stored point come to the same end, whatever the order in which units work.

use std::collections::BTreeSet;

use proptest::prelude::*;
use segue_engine::mission::{
    state::{MissionStatus, RunState},
    unit::UnitView,
};
use serde_json::{Value as Json, json};

use crate::driver::Run;

const MISSION: &str = "
name: survey
plan: required
max_tasks: 3
inputs: {}
datasets:
  companies: {items: [{id: a}, {id: b}, {id: c}, {id: d}, {id: e}]}
  chapters: {schema: {title: {type: string, required: true}}}
tasks:
  begin: {}
  outline: {depends_on: [begin], output: {chapters: {type: integer, required: true}}}
  background: {depends_on: [begin]}
  research:
    depends_on: [outline]
    iterator: {dataset: companies, parallel: true, limit: 2, smoketest: true, max_retries: 2, on_error: continue, min_success: 0.5}
    output: {score: {type: integer, required: true}}
    send_to: [facts, figures]
  facts: {}
  figures: {}
  write:
    depends_on: [outline, background]
    iterator: {dataset: chapters}
    output: {text: {type: string, required: true}}
  review:
    depends_on: [write]
    output: {grade: {type: integer, required: true}}
    router:
      - {to: publish, if: output.grade >= 3}
      - {to: rewrite, when: it is weak}
  publish: {router: [{to: print, when: paper}, {to: web, when: screen}]}
  rewrite: {}
  print: {}
  web: {}
";

/// What a commander does next. It depends only on what is stored.
fn next_call(view: &UnitView<'_>) -> (&'static str, Json) {
    let name = &*view.id.task;
    let item = view.item().map(|(index, _)| index);
    let sequential = view.sequential().is_some();
    if sequential && view.state.current.is_none() && view.next_index() < view.dataset_items().len() as u32 {
        return ("dataset_next", json!({}));
    }
    if !view.state.planned {
        return ("set_subtasks", json!({"subtasks": ["one", "two"]}));
    }
    if view.state.plan.as_ref().is_some_and(|plan| plan.open() > 0) {
        return ("complete_subtask", json!({}));
    }
    if name == "outline" && view.run.datasets.get("chapters").is_none_or(|dataset| dataset.items.len() < 3) {
        let items = json!([{"title": "x"}, {"title": "y"}, {"title": "z"}]);
        return ("set_dataset", json!({"name": "chapters", "items": items}));
    }
    if !view.task.output.is_empty() && !view.has_output() {
        let output = match name {
            "outline" => json!({"chapters": 3}),
            "research" => json!({"score": item.unwrap() * 10}),
            "write" => json!({"text": format!("chapter {}", item.unwrap())}),
            _ => json!({"grade": 4}),
        };
        return ("submit_output", json!({"output": output}));
    }
    if name == "research" && item == Some(3) {
        return ("task_complete", json!({"succeed": false, "reason": "no data"}));
    }
    if name == "research" && item == Some(1) && view.id.attempt == 1 {
        return ("task_complete", json!({"succeed": false, "reason": "not yet"}));
    }
    if sequential && view.next_index() < view.dataset_items().len() as u32 {
        return ("dataset_next", json!({}));
    }
    let route = if name == "publish" { json!("web") } else { Json::Null };
    ("task_complete", json!({"summary": format!("{} is done", view.id.task), "route": route}))
}

/// Lets units work in the order that the choices give.
fn work(run: &mut Run, choices: &[u8]) {
    run.settle();
    let mut choices = choices.iter().cycle();
    for _ in 0..2_000 {
        let open = run.state.open_units();
        let Some(chosen) = open.get(usize::from(*choices.next().unwrap_or(&0)) % open.len().max(1)) else { return };
        let view = UnitView::new(&run.def, &run.state, chosen).unwrap();
        let (tool, arguments) = next_call(&view);
        let unit = match chosen.iteration {
            Some(index) => format!("{}[{index}]", chosen.task),
            None => chosen.task.to_string(),
        };
        run.now = segue_engine::time::Timestamp::from_micros(run.now.as_micros() + 1_000_000);
        run.call(&unit, tool, arguments);
    }
    panic!("the run does not end: {:?}", run.open());
}

/// What counts at the end: statuses, outputs, summaries, routes.
fn end(state: &RunState) -> Json {
    let mut end = json!({"status": state.status});
    for (name, task) in &state.tasks {
        let items: Vec<Json> =
            task.items.values().map(|item| json!([item.item_id, item.status, item.output])).collect();
        end[&**name] = json!({
            "status": task.status, "summary": task.summary, "output": task.output, "items": items,
            "by": task.activated_by, "routes": task.routes.len(),
        });
    }
    end
}

fn assert_events_in_pairs(run: &Run) {
    let mut seen = BTreeSet::new();
    for event in run.of_kind("iteration_started").iter().chain(&run.of_kind("task_started")) {
        let id = format!("{} {} {} {}", event["event"], event["task"], event["iteration"], event["attempt"]);
        assert!(seen.insert(id.clone()), "started twice: {id}");
    }
    let ended = ["iteration_completed", "iteration_failed"].iter().map(|kind| run.of_kind(kind).len()).sum::<usize>();
    assert_eq!(run.of_kind("iteration_started").len(), ended);
    assert_eq!(run.of_kind("task_started").len(), run.of_kind("task_completed").len());
    assert_eq!(run.of_kind("mission_completed").len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_run_that_continues_from_any_point_comes_to_the_same_end(
        first in prop::collection::vec(any::<u8>(), 1..20),
        second in prop::collection::vec(any::<u8>(), 1..20),
        at in any::<prop::sample::Index>(),
    ) {
        let mut whole = Run::of(MISSION);
        work(&mut whole, &first);
        prop_assert_eq!(whole.state.status, MissionStatus::Completed);
        assert_events_in_pairs(&whole);

        let cut = whole.transactions[at.index(whole.transactions.len())];
        let mut continued = whole.cut(cut);
        work(&mut continued, &second);
        assert_events_in_pairs(&continued);
        let (mut expected, mut found) = (end(&whole.state), end(&continued.state));
        // Which of the two comes first depends on the order; that each runs once does not.
        for end in [&mut expected, &mut found] {
            end.as_object_mut().unwrap().sort_keys();
        }
        prop_assert_eq!(expected, found);
    }
}

#[test]
fn a_run_of_twelve_tasks_completes_with_all_its_outputs() {
    let mut run = Run::of(MISSION);
    work(&mut run, &[0]);
    let research = &run.state.tasks["research"];
    assert_eq!(research.summary.as_deref(), Some("4 of 5 items completed; failed: 3"));
    assert_eq!(research.items[&1].output, Some(json!({"score": 10})));
    assert_eq!(research.items[&3].rejected.len(), 3);
    assert!(!run.state.tasks.contains_key("rewrite"), "the condition over data held");
    assert!(run.state.tasks.contains_key("web") && !run.state.tasks.contains_key("print"));
}
