//! Plans: what a run would need, without a model.

use segue_engine::mission::plan::{Plan, plan};
use serde_json::json;

use crate::{definitions::mission, driver::object};

const MISSION: &str = "{name: m, budget: {tokens: 1000},
    inputs: {topic: {type: string}, rows: {type: list, default: []}},
    datasets: {rows: {bind_to: rows}, fixed: {items: [{id: a}, {id: b}]}, later: {}},
    tasks: {
        gather: {objective: 'Collect {{ inputs.topic }}', router: [{to: extra, when: needed}]},
        read: {depends_on: [gather], objective: 'Read {{ item.id }}', budget: {tokens: 500},
            iterator: {dataset: rows, parallel: true, max_retries: 2}},
        fix: {depends_on: [read], objective: 'Fix', output: {ok: boolean}, repeat: {until: output.ok, max: 4}},
        extra: {objective: 'More', iterator: {dataset: fixed}}}}";

fn calls(plan: &Plan) -> Vec<(&str, Option<u64>, Option<u64>)> {
    plan.tasks.iter().map(|task| (&*task.task, task.sessions, task.commander_calls)).collect()
}

#[test]
fn a_plan_counts_sessions_and_model_calls_at_most() {
    let def = mission(MISSION);
    let rows = json!([{"id": "x"}, {"id": "y"}, {"id": "z"}]);
    let plan = plan(&def, Some(&object(json!({"topic": "tea", "rows": rows}))), None).unwrap();
    assert_eq!(
        calls(&plan),
        [
            ("gather", Some(1), Some(60)),
            ("read", Some(9), Some(540)),
            ("fix", Some(4), Some(240)),
            ("extra", Some(1), Some(60))
        ]
    );
    assert_eq!((plan.commander_calls, plan.tokens, plan.tasks[1].tokens), (Some(900), Some(1000), Some(500)));
    let objectives: Vec<&str> = plan.tasks.iter().map(|task| task.objective.as_deref().unwrap()).collect();
    assert_eq!(objectives, ["Collect tea", "Read x", "Fix", "More"]);
    assert!(plan.tasks[3].optional && !plan.tasks[0].optional);
}

#[test]
fn what_is_not_known_before_the_run_is_not_guessed() {
    let def = mission(MISSION);
    let without = plan(&def, None, None).unwrap();
    assert_eq!((without.tasks[1].sessions, without.commander_calls), (None, None));
    assert_eq!(without.tasks[0].objective, None);
    let none = plan(&def, Some(&object(json!({"topic": "tea"}))), None).unwrap();
    assert_eq!(
        (none.tasks[1].items, none.tasks[1].sessions, none.tasks[1].objective.as_deref()),
        (Some(0), Some(0), None)
    );
}

#[test]
fn wrong_inputs_and_entries_are_reported() {
    let def = mission(MISSION);
    let problems = |given, entry: Option<&str>| {
        let found = plan(&def, Some(&object(given)), entry.map(Into::into)).unwrap_err();
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        problems(json!({"topik": 1}), None),
        ["input `topic`: it is required", "input `topik`: the mission has no such input"]
    );
    assert_eq!(problems(json!({"topic": "tea"}), Some("x")), ["input `entry`: the mission has no task `x`"]);
    let entered = plan(&def, Some(&object(json!({"topic": "tea"}))), Some("fix".into())).unwrap();
    assert_eq!(entered.tasks.len(), 1, "only what follows the entry");
}
