//! Loading whole projects from texts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::super::*;
use crate::finding::Finding;

/// Loads files by their names: `config.yml`, `domain.yml`, `endpoints.yml`, `credentials.yml`, `sub_agents/…`, `data/…`.
pub(crate) fn load(files: &[(&str, &str)]) -> Loaded {
    let mut sources = Sources::default();
    for (path, text) in files {
        let file = SourceFile { path: (*path).into(), text: (*text).into() };
        match *path {
            "config.yml" => sources.config = Some(file),
            "endpoints.yml" => sources.endpoints = Some(file),
            "credentials.yml" => sources.credentials = Some(file),
            _ if path.starts_with("domain") => sources.domain.push(file),
            _ if path.starts_with("sub_agents/") && path.ends_with(".yml") => sources.agents.push(file),
            _ if path.starts_with("data/") => sources.data.push(file),
            _ if path.starts_with("patterns/") => sources.patterns.push(file),
            _ => _ = sources.texts.insert((*path).to_owned(), file.text),
        }
    }
    sources.environment.insert("KEY".into(), "hidden".into());
    sources.environment.insert("PORT".into(), "5055".into());
    Project::load(&sources)
}

/// Loads and expects nothing to be found.
pub(crate) fn clean(files: &[(&str, &str)]) -> Project {
    let loaded = load(files);
    assert!(loaded.findings.is_empty(), "{:#?}", loaded.findings);
    loaded.project.unwrap()
}

/// The findings as `code file:line:column`.
pub(crate) fn places(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|f| format!("{} {}:{}:{}", f.code, f.place.file, f.place.line, f.place.column)).collect()
}

const DOMAIN: &str = "slots:\n  amount: {type: float}\n  name: {type: text}\nresponses:\n  utter_ask_amount: [{text: How much?}]\n  utter_ask_name: [{text: Who?}]\n  utter_ok: [{text: 'ok {name}'}]\n";

#[test]
fn a_simple_project_loads() {
    let flow = "flows:\n  pay:\n    description: send money\n    steps:\n      - collect: amount\n        next:\n          - if: slots.amount > 10\n            then:\n              - collect: name\n                next: done\n          - else:\n              - action: utter_ok\n                next: END\n      - id: done\n        action: utter_ok";
    let project = clean(&[("config.yml", ""), ("domain.yml", DOMAIN), ("data/pay.yml", flow)]);
    let flow = project.flow("pay").unwrap();
    let ids: Vec<&str> = flow.steps.iter().map(|step| step.id.as_str()).collect();
    assert_eq!(ids, ["pay_0_collect_amount", "pay_1_collect_name", "pay_2_utter_ok", "done"]);
    let NextStep::Branch { branches, otherwise } = &flow.steps[0].next else { panic!() };
    assert_eq!(branches[0].target, Target::Step("pay_1_collect_name".into()));
    assert_eq!(*otherwise, Some(Target::Step("pay_2_utter_ok".into())));
    assert!(matches!(&flow.steps[3].next, NextStep::Go(Target::End)));
    assert_eq!((&*flow.name, flow.steps[1].place.line, flow.steps[1].place.column), ("pay", 9, 26));
    assert!(project.slot("language").is_some_and(|slot| slot.builtin));
}

#[test]
fn idioms_of_public_projects_are_accepted() {
    let flow = "flows:\n  a:\n    description: x\n    if: True\n    steps:\n      # a comment\n      - noop:\n        next:\n          - if: not slots.amount\n            then:\n              - set_slots:\n                  amount: 5\n                next: \"END\"\n\n          # between\n          - else: END";
    let project = clean(&[("config.yml", ""), ("domain.yml", DOMAIN), ("data/pay.yml", flow)]);
    assert!(matches!(&project.flow("a").unwrap().steps[1].kind, StepKind::SetSlots(pairs) if pairs.len() == 1));
}
