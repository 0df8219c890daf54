//! Loading arbitrary files ends with findings and never with a panic.

use proptest::prelude::*;
use segue_engine::project::{Project, SourceFile, Sources, findings_report};

const CONFIG: &str = "recipe: default.v1\npipeline:\n  - name: CompactLLMCommandGenerator\n    llm: {model_group: main}\n    timezone: UTC\n";
const DOMAIN: &str = "slots:\n  amount: {type: float, initial_value: null}\n  size:\n    type: categorical\n    values: [small, 'large']\n    validation:\n      rejections:\n        - if: not (slots.size = \"small\")\n          utter: utter_no\nresponses:\n  utter_no:\n    - text: |\n        no {amount} {{x}}\n      buttons: [{title: Yes, payload: \"/SetSlots(size=small, amount=[1,2])\"}]\n      metadata: {template: jinja}\n";
const FLOWS: &str = "flows:\n  a: &a\n    description: x\n    if: slots.amount > 5\n    steps:\n      - id: first\n        collect: amount\n        rejections: [{if: slots.amount < 1, utter: utter_no}]\n        next:\n          - if: slots.size is \"small\" and not slots.amount\n            then:\n              - set_slots: [{amount: 010}]\n                next: first\n          - else: END\n  b:\n    <<: *a\n    steps:\n      - call: tool\n        mcp_server: s\n        mapping:\n          input: [{param: p, slot: amount}]\n          output: [{slot: size, value: result.content[0].text}]\n      - noop:\n        next: [{link: a}]\n";
const ENDPOINTS: &str = "model_groups: [{id: main, models: [{provider: openai, model: m, api_key: \"${KEY}\"}]}]\nmcp_servers: [{name: s, type: stdio, command: segue, args: [demo]}]\n";
const AGENT: &str = "agent: {name: h, description: d}\nconfiguration: {timeout: 5, timezone: UTC}\nconnections: {mcp_servers: [{name: s, include_tools: [a]}]}\n";
const PIECES: [&str; 24] = [
    "{",
    "}",
    "[",
    "]",
    ": ",
    "- ",
    "\n",
    "&a ",
    "*a",
    "!t ",
    "\"",
    "'",
    "|\n",
    "<<: ",
    "#",
    "~",
    "{{",
    "%}",
    "\t",
    "\u{feff}",
    "é\u{301}",
    "99999999999999999999",
    "-.inf",
    "---\n",
];

/// Removes, repeats or inserts something at a random position of a text.
fn damaged(text: &'static str) -> impl Strategy<Value = String> {
    let edit = (any::<prop::sample::Index>(), 0_usize..12, 0_usize..4, prop::sample::select(&PIECES[..]));
    prop::collection::vec(edit, 0..6).prop_map(move |edits| {
        let mut chars: Vec<char> = text.chars().collect();
        for (at, length, kind, piece) in edits {
            let start = at.index(chars.len() + 1);
            let end = (start + length).min(chars.len());
            match kind {
                0 => drop(chars.drain(start..end)),
                1 => drop(chars.splice(start..start, piece.chars())),
                2 => drop(chars.splice(start..end, piece.chars())),
                _ => {
                    let again: Vec<char> = chars.iter().skip(start).take(end - start).copied().collect();
                    drop(chars.splice(start..start, again));
                }
            }
        }
        chars.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn damaged_projects_load_without_a_panic(
        config in damaged(CONFIG),
        domain in damaged(DOMAIN),
        flows in damaged(FLOWS),
        endpoints in damaged(ENDPOINTS),
        agent in damaged(AGENT),
    ) {
        let file = |path: &str, text: String| SourceFile { path: path.into(), text: text.into() };
        let mut sources = Sources {
            config: Some(file("config.yml", config)),
            domain: vec![file("domain.yml", domain)],
            data: vec![file("data/a.yml", flows)],
            endpoints: Some(file("endpoints.yml", endpoints)),
            agents: vec![file("sub_agents/h/config.yml", agent)],
            ..Sources::default()
        };
        sources.environment.insert("KEY".into(), "k".into());
        let loaded = Project::load_and_analyse(&sources);
        prop_assert!(loaded.project.is_some() || !loaded.findings.is_empty());
        for finding in &loaded.findings {
            prop_assert!(!finding.message.is_empty() && !finding.message.ends_with('.'), "{finding:?}");
        }
        let _ = findings_report::all(&loaded.findings, &sources);
        prop_assert_eq!(loaded.findings, Project::load_and_analyse(&sources).findings);
    }

    #[test]
    fn any_text_loads_without_a_panic(text in "[ -~\\n\u{e9}]{0,200}") {
        let file = |path: &str| SourceFile { path: path.into(), text: text.as_str().into() };
        let sources = Sources {
            config: Some(file("config.yml")),
            domain: vec![file("domain.yml")],
            data: vec![file("data/a.yml")],
            credentials: Some(file("credentials.yml")),
            ..Sources::default()
        };
        let _ = Project::load_and_analyse(&sources);
    }
}
