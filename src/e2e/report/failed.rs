//! Test files with only the cases that did not pass, to run them again.

use std::path::Path;

use segue_engine::project::test_cases::{LocatedName, SharedFixtures, StubAgent, StubStatus, StubTool};
use serde_json::{Map, Value as Json, json};

use super::{
    super::{CaseOutcome, CaseResult, Results, resolve::ResolvedCase},
    yaml,
};

/// The text of one test file for each file with a case that did not pass, in order. It contains these cases and the fixtures, metadata
/// and stubs of the file and of the `conftest.yml` files above it. Its paths are absolute, so that it can be stored anywhere.
pub fn failed_files(results: &Results) -> Vec<String> {
    let failed: Vec<&CaseResult> = results.cases.iter().filter(|case| case.outcome != CaseOutcome::Passed).collect();
    let mut files: Vec<&str> = Vec::new();
    for case in &failed {
        if !files.contains(&case.file.as_str()) {
            files.push(&case.file);
        }
    }
    files
        .into_iter()
        .map(|file| test_file(&failed.iter().copied().filter(|case| case.file == file).collect::<Vec<_>>()))
        .collect()
}

fn test_file(cases: &[&CaseResult]) -> String {
    let mut file = Map::new();
    if let Some(first) = cases.first() {
        file.extend(shared_definitions(&first.case.shared));
    }
    let mut definitions: Vec<Json> = Vec::new();
    for case in cases {
        let definition = &case.definition().written;
        // A case that ran several times is written once.
        if !definitions.contains(definition) {
            definitions.push(definition.clone());
        }
    }
    file.insert("test_cases".to_owned(), Json::Array(definitions));
    yaml::write(&Json::Object(file))
}

fn single(key: &str, value: Json) -> Json {
    Json::Object(Map::from_iter([(key.to_owned(), value)]))
}

fn shared_definitions(shared: &SharedFixtures) -> Map<String, Json> {
    let mut out = Map::new();
    let mut add = |key: &str, value: Json| {
        let empty = value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty);
        if !empty && !value.is_null() {
            out.insert(key.to_owned(), value);
        }
    };
    let fixtures = shared.fixtures.iter().map(|(name, fixture)| {
        let slots = fixture.slots.iter().map(|(slot, value)| single(&slot.name, value.clone()));
        single(name, Json::Array(slots.collect()))
    });
    add("fixtures", Json::Array(fixtures.collect()));
    let metadata = shared.metadata.iter().map(|(name, values)| single(name, Json::Object(values.clone())));
    add("metadata", Json::Array(metadata.collect()));
    let actions = shared
        .actions
        .iter()
        .map(|(name, stub)| (name.to_string(), json!({"events": stub.events, "responses": stub.responses})));
    add("stub_custom_actions", Json::Object(actions.collect()));
    let tools = shared
        .tools
        .iter()
        .map(|(name, stub)| (name.to_string(), Json::Array(stub.answers.iter().map(tool).collect())));
    add("stub_mcp_tools", Json::Object(tools.collect()));
    let agents = shared
        .agents
        .iter()
        .map(|(name, stub)| (name.to_string(), Json::Array(stub.answers.iter().map(agent).collect())));
    add("stub_agents", Json::Object(agents.collect()));
    let path = |named: &Option<LocatedName>| {
        named.as_ref().map_or(Json::Null, |named| absolute(&ResolvedCase::path_of(named)))
    };
    add("stub_llm", path(&shared.llm));
    add("endpoints", path(&shared.endpoints));
    add("llm_judge", shared.judge.as_ref().map_or(Json::Null, |judge| json!({"llm": judge})));
    out
}

fn absolute(path: &Path) -> Json {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    Json::from(path.display().to_string())
}

fn tool(answer: &StubTool) -> Json {
    match answer {
        StubTool::Result(result) => json!({"result": result}),
        StubTool::Error(error) => json!({"error": &**error}),
        StubTool::Unknown => json!({"outcome": "unknown"}),
    }
}

fn agent(run: &StubAgent) -> Json {
    let status = match run.ends {
        StubStatus::AwaitingUser => "awaiting_user",
        StubStatus::Finished => "finished",
        StubStatus::Failed => "failed",
    };
    json!({"says": run.says.iter().map(|text| &**text).collect::<Vec<_>>(), "slots": run.slots, "status": status})
}
