#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeMap;

use jsonschema::error::{ValidationError, ValidationErrorKind};

use super::{super::SCHEMAS, *};
use crate::{
    finding::Finding,
    project::{SourceFile, yaml},
};

/// The kind of a project file, by its path.
fn kind(path: &str) -> Option<ProjectFile> {
    Some(match path {
        "config.yml" => ProjectFile::Config,
        "endpoints.yml" => ProjectFile::Endpoints,
        "credentials.yml" => ProjectFile::Credentials,
        "subagents.yml" => ProjectFile::Subagents,
        _ if path.starts_with("missions/") => ProjectFile::Mission,
        _ if path.starts_with("domain") => ProjectFile::Domain,
        _ if path.starts_with("sub_agents/") && path.ends_with(".yml") => ProjectFile::Agent,
        _ => return None,
    })
}

/// The validation errors of a YAML text.
fn problems(file: ProjectFile, text: &str) -> Vec<String> {
    let source = SourceFile { path: "x.yml".into(), text: text.into() };
    let mut findings = crate::finding::Findings::default();
    let Some(root) = yaml::read(&source, &mut findings) else { return vec!["no YAML".to_owned()] };
    let validator = jsonschema::draft202012::new(&json_schema(file)).unwrap();
    let json = root.json();
    validator.iter_errors(&json).flat_map(|error| messages(&error)).collect()
}

/// The messages of an error, with those of each alternative of an `anyOf`.
fn messages(error: &ValidationError<'_>) -> Vec<String> {
    let mut all = vec![format!("{}: {error}", error.instance_path())];
    if let ValidationErrorKind::AnyOf { context } = error.kind() {
        all.extend(context.iter().flatten().flat_map(messages));
    }
    all
}

/// Asserts that every file without a finding is valid by its JSON Schema. Every test that loads a project calls it.
pub(crate) fn assert_agrees_with_loader(files: &[(&str, &str)], findings: &[Finding]) {
    for (path, text) in files {
        if findings.iter().any(|finding| *finding.place.file == **path) {
            continue;
        }
        let by_content = || {
            let source = SourceFile { path: (*path).into(), text: (*text).into() };
            let root = yaml::read(&source, &mut crate::finding::Findings::default())?;
            Some(if root.get("flows").is_some() { ProjectFile::Flows } else { ProjectFile::Domain })
        };
        let is_data = path.starts_with("data/");
        let Some(file) = kind(path).or_else(|| is_data.then(by_content).flatten()) else { continue };
        let problems = problems(file, text);
        assert!(problems.is_empty(), "{path}: {problems:#?}\n{text}");
    }
}

#[test]
fn every_schema_is_valid_json_schema() {
    for file in ProjectFile::ALL {
        let schema = json_schema(file);
        assert!(jsonschema::draft202012::meta::is_valid(&schema), "{file:?}");
        assert!(jsonschema::draft202012::new(&schema).is_ok(), "{file:?}");
    }
}

#[test]
fn definition_names_are_unique_in_a_file() {
    let mut names: BTreeMap<(&str, String), &str> = BTreeMap::new();
    for schema in SCHEMAS {
        if let Some(other) = names.insert((schema.file, reference_name(schema)), schema.name) {
            panic!("{other} and {} have the same name in {}", schema.name, schema.file);
        }
    }
}

#[test]
fn every_map_schema_is_part_of_a_file_schema() {
    let written: String = ProjectFile::ALL.map(|file| json_schema(file).to_string()).concat();
    let roots = ProjectFile::ALL.map(|file| file.root().name);
    for schema in SCHEMAS {
        let name = format!("#/$defs/{}\"", reference_name(schema));
        assert!(roots.contains(&schema.name) || written.contains(&name), "{} is declared and never used", schema.name);
    }
}

#[test]
fn the_schema_refuses_what_the_loader_refuses() {
    for (file, text, expected) in [
        (ProjectFile::Config, "language: [en]", "/language"),
        (ProjectFile::Config, "languge: en", "languge"),
        (ProjectFile::Config, "recipe: default.v2", "/recipe"),
        (ProjectFile::Config, "pipeline: [{llm: {model_group: a}}]", "/pipeline/0"),
        (ProjectFile::Config, "shortcuts: 'yes'", "/shortcuts"),
        (ProjectFile::Config, "compat: {patterns: '4'}", "/compat/patterns"),
        (ProjectFile::Domain, "slots: {a: {}}", "/slots/a"),
        (ProjectFile::Domain, "slots: {a: {type: number}}", "/slots/a/type"),
        (ProjectFile::Domain, "slots: {a: {type: text, mappings: [{typ: from_llm}]}}", "/slots/a/mappings/0"),
        (ProjectFile::Domain, "responses: {utter_a: [{text: [a]}]}", "/responses/utter_a"),
        (ProjectFile::Domain, "session_config: {session_expiration_time: long}", "/session_config"),
        (ProjectFile::Flows, "flows: {a: {steps: [{action: utter_a}]}}", "description"),
        (ProjectFile::Flows, "flows: {a: {description: x, steps: {action: utter_a}}}", "/flows/a/steps"),
        (ProjectFile::Flows, "flows: {a: {description: x, steps: [{actoin: utter_a}]}}", "actoin"),
        (ProjectFile::Flows, "flows: {a: {description: x, steps: [{if: a, then: END}]}}", "/flows/a/steps/0"),
        (ProjectFile::Flows, "flows: {a: {description: x, steps: [{noop: , next: [{if: a, thn: END}]}]}}", "/next"),
        (ProjectFile::Endpoints, "model_groups: [{id: a}]", "models"),
        (ProjectFile::Endpoints, "mcp_servers: [{name: a, type: tcp}]", "/type"),
        (ProjectFile::Endpoints, "mcp_servers: [{name: a, url: x, token: literal}]", "/token"),
        (ProjectFile::Endpoints, "mcp_servers: [{name: a, url: x, tool_timeout: 0}]", "/tool_timeout"),
        (ProjectFile::Endpoints, "server: {open_turns: many}", "/server/open_turns"),
        (ProjectFile::Credentials, "rest: true", "/rest"),
        (ProjectFile::Credentials, "rest: {auth_tokn: x}", "auth_tokn"),
        (ProjectFile::Credentials, "mcp: {prompts: [{name: a}]}", "/mcp/prompts/0"),
        (ProjectFile::Agent, "agent: {name: a}", "description"),
        (ProjectFile::Agent, "agent: {name: a, description: b}\nconfiguration: {confirm: always}", "/confirm"),
        (ProjectFile::Agent, "agent: {name: a, description: b}\ndelegation: {max_total: 0}", "/max_total"),
        (ProjectFile::Mission, "mission: {tasks: {}}", "description"),
        (ProjectFile::Mission, "mission: {description: x, tasks: {a: {objectiv: x}}}", "objectiv"),
        (ProjectFile::Mission, "mission: {description: x, inputs: {a: {type: text}}, tasks: {}}", "/type"),
        (ProjectFile::Subagents, "subagents: {types: {a: {tols: [x]}}}", "tols"),
        (ProjectFile::TestCases, "test_cases: [{test_case: a, steps: [{usr: hi}]}]", "usr"),
        (ProjectFile::TestCases, "fixtures: []", "test_cases"),
        (ProjectFile::Conftest, "test_cases: []", "test_cases"),
    ] {
        let problems = problems(file, text);
        assert!(problems.iter().any(|problem| problem.contains(expected)), "{text}: {problems:?}");
    }
}

#[test]
fn the_schema_contains_descriptions_defaults_and_aliases() {
    let schema = json_schema(ProjectFile::Endpoints);
    let model = &schema["$defs"]["model"]["properties"];
    assert_eq!(model["model"]["description"], "The name of the model.");
    assert_eq!(model["model_name"]["deprecated"], true);
    assert_eq!(model["idle_timeout"]["default"], 10);
    assert_eq!(schema["additionalProperties"], false);
    assert!(
        schema["$defs"]["model"].get("additionalProperties").is_none(),
        "a model may have keys that only its vendor defines"
    );
    let server = &schema["$defs"]["MCP-server"];
    assert_eq!(server["required"], json!(["name"]));
    assert_eq!(server["properties"]["type"]["anyOf"][0]["enum"], json!(["http", "https", "stdio"]));
}
