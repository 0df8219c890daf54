//! Each check finds what it is for, at the right place.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::super::load::tests::{clean, load, places};

const DOMAIN: &str = "slots:
  amount: {type: float}
  name: {type: text}
  size: {type: categorical, values: [small, large]}
  ready: {type: bool}
  items: {type: list}
responses:
  utter_ask_amount: [{text: How much?}]
  utter_ask_name: [{text: Who?}]
  utter_ok: [{text: ok}]
";

/// The findings of a domain and one flow file, without the hint about the missing configuration.
fn found(flows: &str) -> Vec<String> {
    let loaded = load(&[("config.yml", "recipe: default.v1\n"), ("domain.yml", DOMAIN), ("data/a.yml", flows)]);
    places(&loaded.findings)
}

fn steps(steps: &str) -> Vec<String> {
    found(&format!("flows:\n  a:\n    description: x\n    steps:\n{steps}"))
}

#[test]
fn unknown_names_are_reported() {
    assert_eq!(steps("      - collect: amuont\n"), ["F0301 data/a.yml:5:18"]);
    assert_eq!(steps("      - action: utter_okay\n"), ["F0309 data/a.yml:5:17"]);
    assert_eq!(steps("      - action: action_pay\n"), ["F0222 data/a.yml:5:17"]);
    assert_eq!(steps("      - link: b\n"), ["F0216 data/a.yml:5:15"]);
    assert_eq!(steps("      - call: b\n"), ["F0217 data/a.yml:5:15"]);
    assert_eq!(
        steps("      - call: t\n        mcp_server: s\n        mapping: {input: [{param: p, slot: nme}]}\n"),
        ["F0229 data/a.yml:6:21", "F0301 data/a.yml:7:44"]
    );
    assert_eq!(steps("      - set_slots: [{nam: 1}]\n"), ["F0301 data/a.yml:5:22"]);
    assert_eq!(steps("      - action: action_listen\n"), [""; 0]);
}

#[test]
fn a_called_mission_is_said_to_be_one() {
    let flows = "flows:\n  a:\n    description: x\n    steps:\n      - call: report\n";
    let mission = "mission:\n  name: report\n  description: x\n  agents: [h]\n  local_agents: {h: {description: x}}\n  tasks: {t: {objective: x}}\n";
    let loaded = load(&[
        ("config.yml", "recipe: default.v1\n"),
        ("domain.yml", DOMAIN),
        ("data/a.yml", flows),
        ("missions/report.yml", mission),
    ]);
    let found = loaded.findings.iter().find(|finding| finding.code == "F0217").expect("a finding");
    assert!(found.message.contains("`report` is a mission"), "{}", found.message);
    assert!(found.help.contains("segue mission run report"), "{}", found.help);
}

fn condition(text: &str) -> Vec<String> {
    let next = format!("        next:\n          - if: {text}\n            then: END\n          - else: END\n");
    steps(&format!("      - action: utter_ok\n{next}"))
}

#[test]
fn errors_in_conditions_are_reported() {
    assert_eq!(condition("slots.amuont > 5"), ["F0403 data/a.yml:7:17"]);
    assert_eq!(condition("not amount > 5"), ["F0402 data/a.yml:7:21"]);
    assert_eq!(condition("slots.ready and slots.amount > 5 or slots.name"), ["F0404 data/a.yml:7:17"]);
    assert_eq!(condition("slots.ready and (slots.amount > 5 or slots.name)"), [""; 0]);
    assert_eq!(condition("slots.amount >"), ["F0401 data/a.yml:7:31"]);
    assert_eq!(condition("\"slots.{{context.x is null\""), ["F0406 data/a.yml:7:39"]);
}

#[test]
fn comparisons_that_are_never_true_are_reported() {
    for text in [
        "slots.amount > \"5\"",
        "slots.name < 5",
        "slots.name = true",
        "slots.size = \"huge\"",
        "slots.size = \"Small\"",
        "slots.ready = \"true\"",
        "slots.ready = 2",
        "slots.items = \"a\"",
        "slots.name is undefined",
        "slots.amount matches \"5\"",
        "slots.amount > null",
    ] {
        let at = condition(&format!("'{text}'"));
        assert_eq!(at, ["F0405 data/a.yml:7:18"], "{text}");
    }
    for text in [
        "slots.amount > 5",
        "slots.size = \"small\"",
        "slots.ready = true",
        "slots.ready = 1",
        "slots.name is null",
        "slots.items contains \"a\"",
        "slots.size != \"huge\"",
        "slots.name < \"5\"",
    ] {
        assert_eq!(condition(&format!("'{text}'")), [""; 0], "{text}");
    }
}

#[test]
fn invalid_calls_and_links_are_reported() {
    let flow = |id: &str, step: &str| format!("  {id}:\n    description: x\n    steps:\n      - {step}\n");
    let both = |a: &str, b: &str| found(&format!("flows:\n{}{}", flow("a", a), flow("b", b)));
    assert_eq!(both("call: b", "call: a"), ["F0218 data/a.yml:9:15"]);
    assert_eq!(both("call: b", "link: a"), ["F0219 data/a.yml:9:15"]);
    assert_eq!(both("link: b", "link: b"), ["F0221 data/a.yml:9:15"]);
    assert_eq!(both("call: pattern_search", "action: utter_ok"), ["F0220 data/a.yml:5:15"]);
    assert_eq!(both("action: utter_ok", "call: a\n        exit_if: [slots.name]"), ["F0228 data/a.yml:10:9"]);
    let pattern = found(&format!(
        "flows:\n{}{}",
        flow("pattern_serch", "action: utter_ok"),
        flow("pattern_search", "call: pattern_search")
    ));
    assert_eq!(
        pattern,
        ["F0230 data/a.yml:2:3", "F0218 data/a.yml:9:15", "F0220 data/a.yml:9:15", "F0220 data/a.yml:9:15"]
    );
}

#[test]
fn collect_steps_that_cannot_ask_or_be_answered_are_reported() {
    assert_eq!(steps("      - collect: items\n"), ["F0223 data/a.yml:5:18", "F0225 data/a.yml:5:18"]);
    assert_eq!(steps("      - collect: ready\n"), ["F0225 data/a.yml:5:18"]);
    let more = "slots:\n  by_hand: {type: text, mappings: [{type: controlled}]}\nresponses:\n  utter_ask_by_hand: [{text: x}]\nactions: [action_ask_name]\n";
    let flow = "flows:\n  a:\n    description: x\n    persisted_slots: [amount]\n    steps:\n      - collect: name\n      - collect: by_hand\n";
    let loaded = load(&[("config.yml", ""), ("domain/a.yml", DOMAIN), ("domain/b.yml", more), ("data/a.yml", flow)]);
    assert_eq!(places(&loaded.findings), ["F0226 data/a.yml:2:3", "F0224 data/a.yml:6:18", "F0232 data/a.yml:7:18"]);
}

#[test]
fn an_agent_with_the_name_of_a_flow_is_reported() {
    let agent = "agent: {name: helper, description: helps}\nconnections: {mcp_servers: [{name: srv}]}\n";
    let endpoints = "mcp_servers: [{name: srv, url: 'http://localhost/mcp', type: http}]\n";
    let flow = |id: &str| {
        format!(
            "flows:\n  {id}:\n    description: x\n    steps:\n      - call: helper\n        exit_if:\n          - slots.name is not null\n"
        )
    };
    let files = |flow: &str| {
        load(&[
            ("config.yml", ""),
            ("endpoints.yml", endpoints),
            ("domain.yml", DOMAIN),
            ("sub_agents/h/config.yml", agent),
            ("data/a.yml", flow),
        ])
    };
    assert_eq!(places(&files(&flow("a")).findings), [""; 0]);
    assert_eq!(places(&files(&flow("helper")).findings), ["F0512 sub_agents/h/config.yml:1:15"]);
    assert_eq!(
        places(&files(&flow("a").replace("slots.name is not null", "1 = 1")).findings),
        ["F0515 data/a.yml:7:13"]
    );
}

#[test]
fn exit_if_of_a_remote_agent_is_an_error() {
    let agent = "agent: {name: far, description: helps, protocol: A2A}\nconfiguration: {agent_card: 'https://example.org/card'}\n";
    let flow = "flows:\n  a:\n    description: x\n    steps:\n      - call: far\n        exit_if: ['slots.name']\n";
    let loaded =
        load(&[("config.yml", ""), ("domain.yml", DOMAIN), ("sub_agents/h/config.yml", agent), ("data/a.yml", flow)]);
    assert_eq!(places(&loaded.findings), ["F0516 data/a.yml:5:15"]);
}

#[test]
fn a_clean_project_has_no_findings() {
    let flow = "flows:\n  a:\n    description: x\n    steps:\n      - collect: name\n        rejections:\n          - if: not (slots.name matches \"^[A-Z]\")\n            utter: utter_ok\n      - action: utter_ok\n";
    clean(&[("config.yml", "recipe: default.v1\n"), ("domain.yml", DOMAIN), ("data/a.yml", flow)]);
}
