//! Objectives: names that are not declared, and rendering.

use segue_engine::{mission::objective, mission::state::MissionStatus, template::TemplateEngine};
use serde_json::json;

use crate::{definitions::mission, driver::Run};

fn problems(objective: &str, iterator: &str) -> Vec<(&'static str, String)> {
    let def = mission(&format!(
        "name: m
inputs: {{topic: {{type: string}}, key: {{type: string, protected: true}}}}
datasets: {{d: {{schema: {{url: {{type: string}}}}}}, free: {{}}}}
tasks: {{a: {{objective: {}, iterator: {iterator}}}}}",
        json!(objective)
    ));
    let found = objective::problems(&def, &def.tasks["a"], &TemplateEngine::new());
    found.iter().map(|problem| (problem.code(), problem.to_string())).collect()
}

#[test]
fn undeclared_names_of_an_objective_are_found() {
    let parallel = "{dataset: d, parallel: true}";
    let cases = [
        ("Read {{ inputs.topic }}{% if inputs.topic %} well{% endif %}", "null", vec![]),
        ("{% for i in range(2) %}{{ i }}{% endfor %}", "null", vec![]),
        ("{{ inputs.tpoic }}", "null", vec!["mission.objective.undeclared_input"]),
        ("{{ inputs.key }}", "null", vec!["mission.objective.protected_input"]),
        ("{{ topic }}", "null", vec!["mission.objective.unknown_name"]),
        ("{{ item.url }}", "null", vec!["mission.objective.no_item"]),
        ("{{ item.url }}", "{dataset: d}", vec!["mission.objective.no_item"]),
        ("{{ item.url }} {{ item }}", parallel, vec![]),
        ("{{ item.title }}", parallel, vec!["mission.objective.undeclared_field"]),
        ("{{ item.title }}", "{dataset: free, parallel: true}", vec![]),
        (
            "{{ inputs.a }} {{ inputs.a }} {{ b }}",
            "null",
            vec!["mission.objective.unknown_name", "mission.objective.undeclared_input"],
        ),
    ];
    for (text, iterator, expected) in cases {
        let mut found: Vec<&str> = problems(text, iterator).iter().map(|(code, _)| *code).collect();
        let mut expected = expected;
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{text}");
    }
    let shown = &problems("{{ inputs.tpoic }}", "null")[0].1;
    assert_eq!(shown, "task `a`: the objective reads the input `tpoic`, which the mission does not declare");
}

#[test]
fn objectives_have_conditions_over_inputs_and_the_fields_of_the_item() {
    let run = Run::new(mission(
        "name: m
inputs: {deep: {type: boolean, default: true}}
datasets: {d: {schema: {url: {type: string}, title: {type: string}}, items: [{url: u0, title: T}, {url: u1}]}}
tasks:
  p:
    iterator: {dataset: d, parallel: true}
    objective: \"Read {{ item.url }}{% if item.title %} ({{ item.title }}){% endif %}{% if inputs.deep %} twice{% endif %}\"",
    ));
    let run = run.started(&json!({}), Default::default());
    let objectives: Vec<_> = run.of_kind("iteration_started").iter().map(|event| event["objective"].clone()).collect();
    assert_eq!(objectives, ["Read u0 (T) twice", "Read u1 twice"], "a declared field without value is no error");
}

#[test]
fn an_objective_that_cannot_be_rendered_fails_its_task() {
    let run = Run::of("{name: m, tasks: {a: {objective: '{{ inputs.x.y }}'}}}");
    assert_eq!(run.state.status, MissionStatus::Failed);
    assert_eq!(run.of_kind("task_failed")[0]["code"], "task.objective");
    let run = Run::of(
        "{name: m, datasets: {d: {items: [{}, {a: 1}]}}, tasks: {
            p: {objective: '{{ item.a }}', iterator: {dataset: d, parallel: true, on_error: continue, max_retries: 1}}}}",
    );
    assert_eq!(run.starts(), ["p[1]"], "the other item runs");
    assert_eq!(run.of_kind("iteration_failed").len(), 2);
}

#[test]
fn an_objective_reads_inputs_by_name_by_key_and_all_of_them() {
    let inputs = json!({"topic": "tea", "rows": [1, 2]});
    for (text, expected) in [
        ("{{ inputs.topic }}", "tea"),
        ("{{ inputs['topic'] }}", "tea"),
        ("{% set name = 'topic' %}{{ inputs[name] }}", "tea"),
        ("{% for name in inputs %}{{ name }} {% endfor %}{{ inputs.rows | length }}", "topic rows 2"),
        ("{% if inputs.rows %}{{ inputs.rows[1] }}{% endif %}", "2"),
    ] {
        let objective = json!(text);
        let def = mission(&format!(
            "name: m\ninputs: {{topic: {{type: string}}, rows: {{type: list}}}}\ntasks: {{a: {{objective: {objective}}}}}"
        ));
        let rendered = objective::render(&def.tasks["a"], inputs.as_object().unwrap(), None);
        assert_eq!(rendered.unwrap(), expected, "{text}");
    }
}
