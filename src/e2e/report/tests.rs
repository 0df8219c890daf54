#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn codes_and_keys_are_told_apart() {
    assert!(is_code("E0501") && is_code("R0102"));
    assert!(!is_code("utter") && !is_code("bot_uttered"));
}

#[test]
fn nothing_came_of_no_cases() {
    let results = Results::default();
    assert_eq!(summary(&results), "0 passed, 0 failed\n");
    assert_eq!(result_file(&results), "passed: []\nfailed: []\n");
    assert!(failed_files(&results).is_empty());
    assert_eq!(json(&results, &[], None)["summary"]["passed"], 0);
}
