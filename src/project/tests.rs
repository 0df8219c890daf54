//! Whole projects of this repository: the planted faults, and the starter.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use super::*;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Twenty faults of twenty kinds: code and place.
const PLANTED: [&str; 20] = [
    "F0702 config.yml:4:11",                   // a component that does not exist here
    "F0606 config.yml:6:24",                   // a model group
    "F0705 config.yml:7:15",                   // a time zone
    "F0102 data/broken.yml:3:18",              // a quote that is never closed
    "F0218 data/rules.yml:9:15",               // calls in a circle
    "F0108 data/transfer.yml:6:29",            // `yes` is no boolean
    "F0107 data/transfer.yml:7:9",             // a misspelt key
    "F0206 data/transfer.yml:10:11",           // no `else`
    "F0403 data/transfer.yml:10:17",           // a slot in a condition
    "F0405 data/transfer.yml:12:17",           // a value that the slot never has
    "F0205 data/transfer.yml:13:19",           // a step id
    "F0222 data/transfer.yml:15:17",           // an action
    "F0211 data/transfer.yml:17:17",           // a step that no way leads to
    "F0109 data/transfer.yml:19:5",            // no description
    "F0217 data/transfer.yml:20:15",           // a call
    "F0302 domain.yml:6:11",                   // a type of slots
    "F0310 domain.yml:16:44",                  // a button's slot
    "F0406 domain.yml:22:28",                  // a template
    "F0601 endpoints.yml:6:18",                // a secret
    "F0505 sub_agents/helper/config.yml:6:13", // a server of an agent
];

#[test]
fn all_twenty_planted_faults_are_found_in_one_load() {
    let loaded = check(&here("tests/projects/planted"), &Places::default()).unwrap();
    let found: Vec<String> = loaded
        .findings
        .iter()
        .map(|f| format!("{} {}:{}:{}", f.code, f.place.file, f.place.line, f.place.column))
        .collect();
    for planted in PLANTED {
        assert!(found.iter().any(|found| found == planted), "{planted} is not among {found:#?}");
    }
    let others: Vec<_> = found.iter().filter(|found| !PLANTED.contains(&found.as_str())).collect();
    assert!(others.is_empty(), "{others:#?}");
    assert!(loaded.project.is_none());
    let shown = findings_report::all(&loaded.findings, &loaded.texts);
    assert!(shown.contains("  17 |       - action: utter_sent\n     |                 ^^^^^^^^^^"), "{shown}");
    assert!(shown.contains("Did you mean `Europe/Berlin`?") && shown.ends_with("18 errors, 2 warnings\n"), "{shown}");
    assert!(!shown.contains("sk-planted"), "{shown}");
}

#[test]
fn the_repository_itself_is_an_assistant() {
    let loaded = check(&here(""), &Places::default()).unwrap();
    let project = loaded.project.unwrap_or_else(|| panic!("{}", findings_report::all(&loaded.findings, &loaded.texts)));
    assert!(project.user_flows().count() > 2);
    assert!(project.flow("pattern_collect_information").is_some_and(|flow| flow.place.file.starts_with("(built in)")));
    assert_eq!(loaded.findings.len(), 0, "{}", findings_report::all(&loaded.findings, &loaded.texts));
}

#[test]
fn a_folder_of_documents_must_be_there_and_inside() {
    let root = tempfile::tempdir().unwrap();
    let write = |source: &str| {
        let policy = format!("  - name: EnterpriseSearchPolicy\n    vector_store: {{source: '{source}'}}\n");
        std::fs::write(root.path().join("config.yml"), format!("policies:\n{policy}")).unwrap();
        let steps = "flows:\n  pattern_search:\n    description: x\n    steps: [{action: action_trigger_search}]\n";
        std::fs::create_dir_all(root.path().join("data")).unwrap();
        std::fs::write(root.path().join("data/search.yml"), steps).unwrap();
        load(root.path(), &Places::default()).unwrap()
    };
    let missing = write("./manuals/");
    let found: Vec<_> = missing.findings.iter().map(|finding| (finding.code, finding.severity)).collect();
    assert_eq!(found, [("F0725", Severity::Warning)]);
    assert!(missing.project.is_some(), "what needs no document works");
    std::fs::create_dir(root.path().join("manuals")).unwrap();
    assert!(write("manuals").findings.is_empty());
    let outside = write("..");
    assert_eq!(
        outside.findings.last().map(|finding| (finding.code, finding.severity)),
        Some(("F0725", Severity::Error))
    );
    assert!(outside.project.is_none());
}
