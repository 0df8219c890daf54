//! What a run may read of the run before it, and the routes that lead there.

use std::sync::Arc;

use segue_engine::mission::{
    event::{ChosenTarget, PreviousRun},
    handed_over::SourceRun,
    inputs::NewRunOptions,
    routes,
};
use serde_json::{Value as Json, json};

use crate::{definitions::mission, driver::Run};

const SOURCE: &str = "{name: report, datasets: {d: {items: [{id: a}, {id: b}]}}, tasks: {
    gather: {output: {count: integer}},
    read: {depends_on: [gather], objective: 'Read {{ item.id }}', iterator: {dataset: d, parallel: true}, output: {n: integer}},
    judge: {depends_on: [read], router: [{to: 'mission:deep#dig', when: there are gaps, hand_over: [HANDED]}]},
    skipped: {depends_on: [judge]}}}";

/// A run that ended with a route to another mission, and that mission's run.
fn chained(handed: &str) -> (Run, Run) {
    let mut source = Run::new(mission(&SOURCE.replace("HANDED", handed)));
    source.missions.insert("deep".into(), Arc::new(mission("{name: deep, tasks: {plan: {}, dig: {}}}")));
    let mut source = source.started(&Json::Null, NewRunOptions::default());
    source.call("gather", "submit_output", json!({"output": {"count": 2}}));
    source.complete("gather");
    for (unit, n) in [("read[0]", 10), ("read[1]", 20)] {
        source.call(unit, "submit_output", json!({"output": {"n": n}}));
        source.complete(unit);
    }
    source.call("judge", "task_complete", json!({"summary": "gaps", "route": "deep"}));
    source.complete("skipped");
    let follow_up = source.launched[0].clone();
    let options = NewRunOptions {
        entry: follow_up.entry.clone(),
        previous: Some(PreviousRun { run: source.state.run.clone(), task: follow_up.task.clone() }),
        chain: 1,
        chain_id: Some(source.state.chain_id.clone()),
        hand_over: follow_up.hand_over,
        ..NewRunOptions::default()
    };
    let mut target = Run::new(mission("{name: deep, tasks: {plan: {}, dig: {}}}"));
    target.source = Some((source.def.clone(), source.state.clone()));
    let target = target.started(&Json::Null, options);
    (source, target)
}

fn context(source: &Run, target: &Run) -> Vec<(String, String, usize)> {
    let source = SourceRun { def: &source.def, state: &source.state };
    let shown = source.context(target.state.hand_over);
    shown.iter().map(|one| (one.task.to_string(), one.summary.to_string(), one.fields.len())).collect()
}

#[test]
fn the_next_run_reads_summaries_and_queries_outputs_of_the_run_before() {
    let (source, mut target) = chained("summaries, outputs");
    assert_eq!(target.starts(), ["dig"], "the route names the task to enter");
    assert_eq!(target.state.chain_id, source.state.run, "one id for the chain");
    let expected = [
        ("report:gather", "gather is done", 1),
        ("report:read", "2 of 2 items completed", 1),
        ("report:judge", "gaps", 0),
        ("report:skipped", "skipped is done", 0),
    ];
    let expected: Vec<_> = expected.map(|(task, summary, fields)| (task.to_owned(), summary.to_owned(), fields)).into();
    assert_eq!(context(&source, &target), expected);
    let whole = target.call("dig", "query_task_output", json!({"task": "report:gather"})).result;
    assert_eq!(whole, json!({"task": "report:gather", "output": {"count": 2}}));
    let query = json!({"task": "report:read", "filters": [{"field": "n", "op": "gt", "value": 10}]});
    let rows = target.call("dig", "query_task_output", query).result;
    assert_eq!(
        (&rows["task"], &rows["total"], &rows["items"][0]["item_id"]),
        (&json!("report:read"), &json!(1), &json!("b"))
    );
    let refused = target.refused("dig", "query_task_output", json!({"task": "gather"}));
    assert_eq!(refused, "query.task_unknown", "the names of the run before are marked");
}

#[test]
fn only_what_the_route_hands_over_is_read() {
    let (source, mut target) = chained("summaries");
    assert!(context(&source, &target).iter().all(|(_, summary, fields)| !summary.is_empty() && *fields == 0));
    assert_eq!(target.refused("dig", "query_task_output", json!({"task": "report:gather"})), "tool.unknown");
    let (source, mut target) = chained("outputs");
    let shown = context(&source, &target);
    assert_eq!(shown.iter().map(|(task, ..)| task.as_str()).collect::<Vec<_>>(), ["report:gather", "report:read"]);
    assert!(shown.iter().all(|(_, summary, _)| summary.is_empty()));
    target.call("dig", "query_task_output", json!({"task": "report:gather"}));
    let (source, target) = chained("");
    assert_eq!(context(&source, &target), []);
}

/// A run before that is no longer stored hands nothing over.
#[test]
fn a_deleted_run_hands_nothing_over() {
    let (_, mut target) = chained("summaries, outputs");
    target.source = None;
    assert_eq!(target.refused("dig", "query_task_output", json!({"task": "report:gather"})), "tool.unknown");
}

#[test]
fn without_routes_in_words_code_takes_the_one_for_all_other_cases() {
    let yaml = "{name: m, tasks: {
        a: {output: {n: integer}, router: [{to: big, if: output.n > 9}, {to: small}]}, big: {}, small: {}}}";
    for (n, taken) in [(10, "big"), (1, "small")] {
        let mut run = Run::of(yaml);
        run.call("a", "submit_output", json!({"output": {"n": n}}));
        run.call("a", "task_complete", json!({"summary": "done"}));
        assert_eq!(run.starts(), ["a", taken]);
        assert_eq!(run.of_kind("route_chosen")[0]["by"], "data");
    }
    let run = Run::of("{name: m, tasks: {a: {router: [{to: b, when: good}, {to: c}]}, b: {}, c: {}}}");
    let options = routes::options(&run.def.tasks["a"], &run.missions);
    let shown: Vec<(&str, &str)> = options.iter().map(|option| (option.key.as_str(), &*option.when)).collect();
    assert_eq!(shown, [("b", "good"), ("c", "in all other cases")]);
}

#[test]
fn the_chosen_mission_keeps_what_is_handed_over() {
    let (source, _) = chained("outputs");
    let ChosenTarget::Mission { hand_over, .. } = &source.state.tasks["judge"].routes[0].target else { panic!() };
    assert!(hand_over.outputs && !hand_over.summaries);
}
