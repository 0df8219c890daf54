//! Replays several thousand conditions whose verdicts were recorded from the original library (pypred 0.4.0).
//!
//! `tests/oracle/condition_cases.py` made the records. Each verdict is one of three: the condition holds, it fails, or it raises,
//! which for us means that it does not parse or that its outcome tells a trouble.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use segue_lang::condition::{Condition, Document};
use serde_json::Value as Json;

const CASES: &str = include_str!("data/conditions.jsonl");
const DOCUMENTS: &str = include_str!("data/condition_documents.json");

/// Texts that are deliberately answered differently. Strict both ways: an entry that no longer differs is an error.
const DIFFERENCES: &[(&str, &str)] = &[
    ("slots.t matches /^HEL/i", SLASHES),
    ("slots.t matches /l+o/", SLASHES),
    (
        "((((((((((((((((((((((((((((((((((((((((true))))))))))))))))))))))))))))))))))))))))",
        "nesting is bounded at load",
    ),
    ("'a\u{301}' matches 'a\\b'", "the matchers count a combining mark as part of a word, Python does not"),
];
const SLASHES: &str = "the library's documentation has slashes, its last release does not: we take them";

fn verdict(text: &str, document: &Json) -> (&'static str, String) {
    let condition = match Condition::parse(text) {
        Ok(condition) => condition,
        Err(error) => return ("raises", error.to_string()),
    };
    let none = serde_json::Map::new();
    let slots = document.get("slots").and_then(Json::as_object).unwrap_or(&none);
    let outcome = condition.eval(&Document { slots, context: document.get("context") });
    match outcome.trouble {
        Some(trouble) => {
            assert!(!outcome.holds, "{text}");
            ("raises", trouble)
        }
        None if outcome.holds => ("holds", String::new()),
        None => ("fails", String::new()),
    }
}

#[test]
fn every_recorded_verdict_is_ours() {
    let documents: Vec<Json> = serde_json::from_str(DOCUMENTS).unwrap();
    let (mut cases, mut wrong) = (0, Vec::new());
    for line in CASES.lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        let text = case["text"].as_str().unwrap();
        let at = usize::try_from(case["document"].as_u64().unwrap()).unwrap();
        let (ours, why) = verdict(text, &documents[at]);
        let differs = ours != case["verdict"].as_str().unwrap();
        if differs != DIFFERENCES.iter().any(|(known, _)| *known == text) {
            wrong.push(format!("{text:?} in document {at}: recorded {}, ours {ours} {why}", case["verdict"]));
        }
        cases += 1;
    }
    assert!(cases >= 3_000, "only {cases} cases: the record is damaged");
    assert!(wrong.is_empty(), "{} of {cases} differ:\n{}", wrong.len(), wrong.join("\n"));
}
