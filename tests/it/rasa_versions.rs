//! One project for each Rasa version from 3.13 to 3.16 (`tests/projects/generations/`): it loads without unknown keys, and its recorded
//! conversation works.

use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

use async_trait::async_trait;
use segue::{
    context::CallContext,
    conversation::{ActionOutcome, Conversation},
    effect::EffectClass,
    llm::scripted::ScriptedLlm,
    project::{Finding, LoadOptions, MapSchema, Project, SCHEMAS, Severity, Support},
    runtime::{Action, AssistantBuilder},
    testing::TestAssistant,
    tools::{Tool, ToolInfo, ToolOutcome, ToolOutput, Toolbox},
};
use serde::Deserialize;
use serde_json::{Value as Json, json};

const VERSIONS: [&str; 4] = ["3.13", "3.14", "3.15", "3.16"];

/// One message of `talk.yml`, and texts that its replies contain in this order.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exchange {
    user: String,
    #[serde(default)]
    bot: Vec<String>,
}

fn folder(version: &str) -> String {
    crate::project(&format!("generations/{version}"))
}

fn load(version: &str) -> Project {
    let first = segue::project::load(Path::new(&folder(version)), &LoadOptions::default()).unwrap();
    let mut texts = first.sources;
    texts.environment.insert("LIBRARY_SECRET".into(), "s".into());
    let loaded = Project::load(&texts);
    // Notes and warnings are expected: about Python that is not run, parts of older engines, likely mistakes. Errors and unknown keys
    // (F0107) are not.
    let is_unexpected = |finding: &&Finding| finding.severity == Severity::Error || finding.code == "F0107";
    let unexpected: Vec<_> = loaded.findings.iter().filter(is_unexpected).collect();
    assert!(unexpected.is_empty(), "{version}: {unexpected:#?}");
    loaded.project.unwrap()
}

/// The tools of the MCP server `shelf`: one finds two books, one reserves a book.
fn shelf() -> Toolbox {
    let tool = |name: &str, effect, answer: fn() -> Json| {
        let schema = json!({"type": "object", "properties": {}, "additionalProperties": true});
        let info = ToolInfo::new(name, "A tool of the shelf.").parameters(schema).effect(effect).source("shelf");
        Tool::from_fn(info, move |_, _| {
            let value = answer();
            let text = ToolOutput::text(value.to_string());
            std::future::ready(ToolOutcome::Done(text.with_structured(value)))
        })
    };
    Toolbox::new(
        "shelf",
        [
            tool("find_books", EffectClass::Read, || json!({"books": ["Emma", "Moby Dick"]})),
            tool("reserve", EffectClass::Write, || json!({"reservation": {"number": 7}, "due": null})),
        ],
    )
}

/// An action that does nothing.
struct NoOpAction;

#[async_trait]
impl Action for NoOpAction {
    async fn run(&self, _: &Conversation, _: &CallContext) -> ActionOutcome {
        ActionOutcome::Done { events: Vec::new() }
    }
}

fn assistant(version: &str) -> TestAssistant {
    let script = fs::read_to_string(format!("{}/script.yml", folder(version))).unwrap();
    let model = ScriptedLlm::from_text("script.yml", &script, 3).unwrap();
    let project = Arc::new(load(version));
    let mut builder = AssistantBuilder::new(project.clone(), folder(version).into());
    for name in project.domain.actions.keys() {
        builder = builder.action(name.as_str(), Arc::new(NoOpAction));
    }
    TestAssistant::build(builder.model(Arc::new(model)).source(Arc::new(shelf()))).unwrap()
}

#[tokio::test]
async fn conversation_of_each_rasa_version_works() {
    for version in VERSIONS {
        let test = assistant(version);
        let talk = fs::read_to_string(format!("{}/talk.yml", folder(version))).unwrap();
        let talk: Vec<Exchange> = serde_yaml::from_str(&talk).unwrap();
        let mut transcript = String::new();
        for exchange in talk {
            let replies = test.say(&exchange.user).await.unwrap();
            transcript += &format!("> {}\n{}\n", exchange.user, replies.join("\n"));
            assert!(!replies.is_empty(), "{version}: no reply\n{transcript}");
            let mut rest = replies.iter();
            for expected in &exchange.bot {
                assert!(rest.any(|text| text.contains(expected)), "{version}: {expected:?} is missing\n{transcript}");
            }
        }
        let difference = test.assistant.replay(&"u".into()).await.unwrap();
        assert!(difference.is_none(), "{version}: the replay differs: {difference:#?}");
    }
}

#[test]
fn projects_use_every_supported_key() {
    let mut written = BTreeSet::new();
    // Alternatives to other keys that a project cannot have at the same time, and keys without effect.
    for key in ["redis_url", "basic_auth", "secret", "active_loop", "requested_slot"] {
        written.insert(key.to_owned());
    }
    // Agent Skills are not part of it either; `tests/it/skills.rs` covers their keys.
    for key in ["skills", "skill_folders", "skill_scripts", "skills_narrow_tools", "skills_by_user", "trust"] {
        written.insert(key.to_owned());
    }
    // Keys of this program; `tests/it/writes.rs`, `tests/it/retries.rs` and the engine's dialogue cases cover them.
    for key in ["on_success", "on_failure", "write_once", "public"] {
        written.insert(key.to_owned());
    }
    for version in VERSIONS {
        collect_keys(Path::new(&folder(version)), &mut written);
    }
    // Missions and sub-agents are not part of the Rasa format; `crates/engine/src/project/load/missions/tests.rs` and
    // `crates/engine/src/project/load/delegation/tests.rs` cover their keys.
    for key in ["sandbox", "delegation", "workspace", "workspaces", "runs", "retention_days", "builtin_tools", "allow"]
    {
        written.insert(key.to_owned());
    }
    let is_own = |schema: &MapSchema| {
        let sections = [
            "`delegation` section",
            "`budget` section",
            "`sandbox` section",
            "`workspaces` section",
            "`builtin_tools` section",
            "grant of scripts",
        ];
        schema.file.starts_with("missions/") || schema.file == "subagents.yml" || sections.contains(&schema.name)
    };
    // The keys of test files are covered by other projects.
    let missing: Vec<String> = SCHEMAS
        .iter()
        .filter(|schema| !schema.file.starts_with("tests/") && !is_own(schema))
        .flat_map(|schema| schema.keys.iter().map(move |key| (schema, key)))
        .filter(|(_, key)| !matches!(key.support, Support::Refused(_)) && !written.contains(key.name))
        .map(|(schema, key)| format!("{}: {}", schema.name, key.name))
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Collects every word before a colon in the YAML files below a folder.
fn collect_keys(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_keys(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "yml") {
            for line in fs::read_to_string(&path).unwrap().lines().filter(|line| !line.trim_start().starts_with('#')) {
                for (at, _) in line.match_indices(':') {
                    let before = &line[..at];
                    let word = before.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
                    found.insert(word.to_owned());
                }
            }
        }
    }
}
