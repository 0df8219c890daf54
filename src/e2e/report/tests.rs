#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn error_codes_are_distinguished_from_keys() {
    assert!(is_code("E0501") && is_code("R0102"));
    assert!(!is_code("utter") && !is_code("bot_uttered"));
}

#[test]
fn empty_results_have_empty_reports() {
    let results = Results::default();
    assert_eq!(summary(&results), "0 passed, 0 failed\n");
    assert_eq!(result_file(&results), "passed: []\nfailed: []\n");
    assert!(failed_files(&results).is_empty());
    assert_eq!(json(&results, &[], None)["summary"]["passed"], 0);
}
