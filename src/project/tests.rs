//! Whole projects of this repository: one with twenty mistakes, and the starter.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use super::*;

fn repository_path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The mistakes in `tests/projects/planted`, of twenty kinds: code and location.
const MISTAKES: [&str; 20] = [
    "F0702 config.yml:4:11",                   // a component that does not exist here
    "F0606 config.yml:6:24",                   // a model group
    "F0705 config.yml:7:15",                   // a time zone
    "F0102 data/broken.yml:3:18",              // a quote that is never closed
    "F0218 data/rules.yml:9:15",               // a cycle of calls
    "F0108 data/transfer.yml:6:29",            // `yes` is not a boolean
    "F0107 data/transfer.yml:7:9",             // a misspelt key
    "F0206 data/transfer.yml:10:11",           // no `else`
    "F0403 data/transfer.yml:10:17",           // a slot in a condition
    "F0405 data/transfer.yml:12:17",           // a value that the slot cannot have
    "F0205 data/transfer.yml:13:19",           // a step id
    "F0222 data/transfer.yml:15:17",           // an action
    "F0211 data/transfer.yml:17:17",           // a step that cannot be reached
    "F0109 data/transfer.yml:19:5",            // no description
    "F0217 data/transfer.yml:20:15",           // a call
    "F0302 domain.yml:6:11",                   // a slot type
    "F0310 domain.yml:16:44",                  // a button's slot
    "F0406 domain.yml:22:28",                  // a template
    "F0601 endpoints.yml:6:18",                // a secret
    "F0505 sub_agents/helper/config.yml:6:13", // an agent's server
];

#[test]
fn one_load_reports_all_twenty_mistakes() {
    let loaded = check(&repository_path("tests/projects/planted"), &LoadOptions::default()).unwrap();
    let found: Vec<String> = loaded
        .findings
        .iter()
        .map(|f| format!("{} {}:{}:{}", f.code, f.place.file, f.place.line, f.place.column))
        .collect();
    for mistake in MISTAKES {
        assert!(found.iter().any(|found| found == mistake), "{mistake} is not among {found:#?}");
    }
    let others: Vec<_> = found.iter().filter(|found| !MISTAKES.contains(&found.as_str())).collect();
    assert!(others.is_empty(), "{others:#?}");
    assert!(loaded.project.is_none());
    let report = findings_report::all(&loaded.findings, &loaded.sources);
    assert!(report.contains("  17 |       - action: utter_sent\n     |                 ^^^^^^^^^^"), "{report}");
    assert!(
        report.contains("Did you mean `Europe/Berlin`?") && report.ends_with("18 errors, 2 warnings\n"),
        "{report}"
    );
    assert!(!report.contains("sk-planted"), "{report}");
}

#[test]
fn starter_project_of_the_repository_loads_without_findings() {
    let loaded = check(&repository_path(""), &LoadOptions::default()).unwrap();
    let project =
        loaded.project.unwrap_or_else(|| panic!("{}", findings_report::all(&loaded.findings, &loaded.sources)));
    assert!(project.user_flows().count() > 2);
    assert!(project.flow("pattern_collect_information").is_some_and(|flow| flow.place.file.starts_with("(built in)")));
    assert_eq!(loaded.findings.len(), 0, "{}", findings_report::all(&loaded.findings, &loaded.sources));
}

#[test]
fn the_folder_of_a_packet_must_exist_in_the_project() {
    let root = tempfile::tempdir().unwrap();
    let mission = "mission:\n  description: x\n  agents: [a]\n  local_agents: {a: {description: x}}\n  storage: {packets: [rules]}\n  tasks: {t: {objective: Work}}\n";
    std::fs::create_dir(root.path().join("missions")).unwrap();
    std::fs::write(root.path().join("missions/m.yml"), mission).unwrap();
    std::fs::write(root.path().join("config.yml"), "policies: [{name: FlowPolicy}]\n").unwrap();
    let found = || {
        let loaded = load(root.path(), &LoadOptions::default()).unwrap();
        let packets = loaded.findings.into_iter().filter(|finding| finding.code == "F0857");
        packets.map(|finding| finding.severity).collect::<Vec<_>>()
    };
    assert_eq!(found(), [Severity::Warning]);
    std::fs::create_dir_all(root.path().join("packets/rules")).unwrap();
    assert_eq!(found(), []);
}

#[test]
fn document_folder_must_exist_and_be_in_the_project() {
    let root = tempfile::tempdir().unwrap();
    let write = |source: &str| {
        let policy = format!("  - name: EnterpriseSearchPolicy\n    vector_store: {{source: '{source}'}}\n");
        std::fs::write(root.path().join("config.yml"), format!("policies:\n{policy}")).unwrap();
        let steps = "flows:\n  pattern_search:\n    description: x\n    steps: [{action: action_trigger_search}]\n";
        std::fs::create_dir_all(root.path().join("data")).unwrap();
        std::fs::write(root.path().join("data/search.yml"), steps).unwrap();
        load(root.path(), &LoadOptions::default()).unwrap()
    };
    let missing = write("./manuals/");
    let found: Vec<_> = missing.findings.iter().map(|finding| (finding.code, finding.severity)).collect();
    assert_eq!(found, [("F0725", Severity::Warning)]);
    assert!(missing.project.is_some(), "the project loads without documents");
    std::fs::create_dir(root.path().join("manuals")).unwrap();
    assert!(write("manuals").findings.is_empty());
    let outside = write("..");
    assert_eq!(
        outside.findings.last().map(|finding| (finding.code, finding.severity)),
        Some(("F0725", Severity::Error))
    );
    assert!(outside.project.is_none());
}
