//! Replays several thousand conditions whose results were recorded from pypred 0.4.0, the library that Rasa uses.
//!
//! `tests/reference_data/condition_cases.py` records them. A result is one of three: the condition holds, it fails, or it raises, which here
//! means that it does not parse or that its evaluation has an error.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use segue_lang::condition::{Condition, Document};
use serde_json::Value as Json;

const CASES: &str = include_str!("data/conditions.jsonl");
const DOCUMENTS: &str = include_str!("data/condition_documents.json");

/// Conditions with deliberately different results. An entry that no longer differs is an error too.
const DIFFERENCES: &[(&str, &str)] = &[
    ("slots.t matches /^HEL/i", SLASHES),
    ("slots.t matches /l+o/", SLASHES),
    (
        "((((((((((((((((((((((((((((((((((((((((true))))))))))))))))))))))))))))))))))))))))",
        "nesting is limited at load",
    ),
    ("'a\u{301}' matches 'a\\b'", "the matchers count a combining mark as part of a word, Python does not"),
];
const SLASHES: &str =
    "pypred documents regular expressions in slashes, its last release does not support them; Segue does";

fn result_of(text: &str, document: &Json) -> (&'static str, String) {
    let condition = match Condition::parse(text) {
        Ok(condition) => condition,
        Err(error) => return ("raises", error.to_string()),
    };
    let none = serde_json::Map::new();
    let slots = document.get("slots").and_then(Json::as_object).unwrap_or(&none);
    let evaluation = condition.eval(&Document { slots, context: document.get("context") });
    match evaluation.error {
        Some(error) => {
            assert!(!evaluation.holds, "{text}");
            ("raises", error)
        }
        None if evaluation.holds => ("holds", String::new()),
        None => ("fails", String::new()),
    }
}

#[test]
fn results_equal_those_of_pypred() {
    let documents: Vec<Json> = serde_json::from_str(DOCUMENTS).unwrap();
    let (mut cases, mut wrong) = (0, Vec::new());
    for line in CASES.lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        let text = case["text"].as_str().unwrap();
        let at = usize::try_from(case["document"].as_u64().unwrap()).unwrap();
        let (ours, error) = result_of(text, &documents[at]);
        let differs = ours != case["verdict"].as_str().unwrap();
        if differs != DIFFERENCES.iter().any(|(known, _)| *known == text) {
            wrong.push(format!("{text:?} in document {at}: recorded {}, ours {ours} {error}", case["verdict"]));
        }
        cases += 1;
    }
    assert!(cases >= 3_000, "only {cases} cases: conditions.jsonl is incomplete");
    assert!(wrong.is_empty(), "{} of {cases} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_set_in_the_form_of_another_language_gets_the_whole_right_form() {
    for text in [
        "slots.a in {\"x\" \"y\"}",
        "slots.a in [\"x\", \"y\"]",
        "slots.a is [\"x\"]",
        "{\"x\", \"y\"} contains slots.a",
    ] {
        let error = Condition::parse(text).unwrap_err();
        assert!(error.help.contains("`{\"a\" \"b\"} contains slots.name`"), "{text}: {error:?}");
    }
}
