//! A project of each generation, written to the letter of the format: it loads without an unknown key and talks.

use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

use futures::future::BoxFuture;
use segue::{
    context::CallContext,
    conversation::{ActionOutcome, Conversation},
    effect::EffectClass,
    llm::scripted::ScriptedLlm,
    project::{LoadOptions, Project, SCHEMAS, Severity, Support},
    runtime::{Action, AssistantBuilder},
    testing::TestAssistant,
    tools::{Tool, ToolInfo, ToolOutcome, ToolOutput, Toolbox},
};
use serde::Deserialize;
use serde_json::{Value as Json, json};

const GENERATIONS: [&str; 4] = ["3.13", "3.14", "3.15", "3.16"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exchange {
    user: String,
    #[serde(default)]
    bot: Vec<String>,
}

fn folder(generation: &str) -> String {
    crate::project(&format!("generations/{generation}"))
}

fn loaded(generation: &str) -> Project {
    let read = segue::project::load(Path::new(&folder(generation)), &LoadOptions::default()).unwrap();
    let mut texts = read.sources;
    texts.environment.insert("LIBRARY_SECRET".into(), "s".into());
    let loaded = Project::load(&texts);
    // An author is told of Python that is not run, of parts of the older engine, and of what looks like a slip; nothing of
    // that is an unknown key or stops the project.
    let strange: Vec<_> =
        loaded.findings.iter().filter(|found| found.severity == Severity::Error || found.code == "F0107").collect();
    assert!(strange.is_empty(), "{generation}: {strange:#?}");
    loaded.project.unwrap()
}

/// The tools of the shelf: one finds two books, one reserves any.
fn shelf() -> Toolbox {
    let tool = |name: &str, effect, answer: fn() -> Json| {
        let schema = json!({"type": "object", "properties": {}, "additionalProperties": true});
        let info = ToolInfo::new(name, "Of the shelf.").parameters(schema).effect(effect).source("shelf");
        Tool::from_fn(info, move |_, _| {
            let value = answer();
            let text = ToolOutput::text(value.to_string());
            std::future::ready(ToolOutcome::Done(ToolOutput { structured: Some(value), ..text }))
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

/// An action that has nothing to do.
struct Idle;

impl Action for Idle {
    fn run<'a>(&'a self, _: &'a Conversation, _: &'a CallContext) -> BoxFuture<'a, ActionOutcome> {
        Box::pin(std::future::ready(ActionOutcome::Done { events: Vec::new() }))
    }
}

fn world(generation: &str) -> TestAssistant {
    let script = fs::read_to_string(format!("{}/script.yml", folder(generation))).unwrap();
    let model = ScriptedLlm::from_text("script.yml", &script, 3).unwrap();
    let project = Arc::new(loaded(generation));
    let mut builder = AssistantBuilder::new(project.clone(), folder(generation).into());
    for name in project.domain.actions.keys() {
        builder = builder.action(name.as_str(), Arc::new(Idle));
    }
    TestAssistant::build(builder.model(Arc::new(model)).source(Arc::new(shelf()))).unwrap()
}

#[tokio::test]
async fn a_project_of_each_generation_talks() {
    for generation in GENERATIONS {
        let world = world(generation);
        let talk = fs::read_to_string(format!("{}/talk.yml", folder(generation))).unwrap();
        let talk: Vec<Exchange> = serde_yaml::from_str(&talk).unwrap();
        let mut so_far = String::new();
        for exchange in talk {
            let said = world.say(&exchange.user).await.unwrap();
            so_far += &format!("> {}\n{}\n", exchange.user, said.join("\n"));
            assert!(!said.is_empty(), "{generation}: silence\n{so_far}");
            let mut rest = said.iter();
            for wanted in &exchange.bot {
                assert!(rest.any(|text| text.contains(wanted)), "{generation}: {wanted:?} is missing\n{so_far}");
            }
        }
        let difference = world.assistant.replay(&"u".into()).await.unwrap();
        assert!(difference.is_none(), "{generation}: the replay differs: {difference:#?}");
    }
}

#[test]
fn every_key_of_the_format_stands_in_one_of_them() {
    let mut written = BTreeSet::new();
    // Alternatives to other keys, which a project cannot have at once, and what is said to be without effect.
    for word in ["redis_url", "basic_auth", "secret", "active_loop", "requested_slot"] {
        written.insert(word.to_owned());
    }
    for generation in GENERATIONS {
        keys(Path::new(&folder(generation)), &mut written);
    }
    // Cases of tests have projects of their own.
    let missing: Vec<String> = SCHEMAS
        .iter()
        .filter(|schema| !schema.file.starts_with("tests/"))
        .flat_map(|schema| schema.keys.iter().map(move |key| (schema, key)))
        .filter(|(_, key)| !matches!(key.support, Support::Refused(_)) && !written.contains(key.name))
        .map(|(schema, key)| format!("{}: {}", schema.name, key.name))
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Every word that stands before a colon as keys do.
fn keys(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            keys(&path, found);
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
