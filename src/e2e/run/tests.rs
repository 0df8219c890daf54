#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;

#[test]
fn the_number_of_parallel_cases_is_limited() {
    assert_eq!(TestOptions::default().jobs, limits::TEST_JOBS);
    assert_eq!((clamp_jobs(0), clamp_jobs(3), clamp_jobs(usize::MAX)), (1, 3, limits::TEST_JOBS_MAX));
}

#[test]
fn a_project_is_scripted_only_if_all_its_models_are() {
    let project = |endpoints: &str, config: &str| {
        let config = format!(
            "recipe: default.v1\npipeline: [{{name: CompactLLMCommandGenerator{config}}}]\npolicies: [{{name: FlowPolicy}}]\n"
        );
        let files = [
            ("config.yml", config.as_str()),
            ("flows/a.yml", "flows: {a: {description: b, steps: [{noop: true, next: END}]}}"),
            ("endpoints.yml", endpoints),
        ];
        let loaded = crate::project::from_texts(files);
        loaded.project.unwrap_or_else(|| panic!("{:?}", loaded.findings))
    };
    let scripted = "model_groups: [{id: a, models: [{provider: scripted, model: s, script: s.yml}]}]";
    let real = "model_groups: [{id: a, router: {routing_strategy: simple-shuffle}, models: [{provider: scripted, model: s, script: s.yml}, {provider: self-hosted, model: m, api_base: 'http://localhost:1'}]}]";
    assert!(is_scripted(&project(scripted, "")));
    assert!(!is_scripted(&project(real, "")));
    assert!(!is_scripted(&project(scripted, ", llm: {provider: openai, model: m}")));
    assert!(!is_scripted(&project("", "")));
}
