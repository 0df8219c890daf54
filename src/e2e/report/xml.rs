//! JUnit XML for CI servers: one test suite for each file.

use std::time::Duration;

use indexmap::IndexMap;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::{
    super::{CaseOutcome, CaseResult, Results, resolve::ResolvedCase},
    text,
};

/// The results as JUnit XML. Times are in seconds.
pub fn junit(results: &Results) -> String {
    let finished = results.cases.iter().map(|case| (case.file.as_str(), finished_case(case)));
    let skipped = results.skipped.iter().map(|case| (case.file.as_str(), entry(case, TestCaseStatus::skipped())));
    let mut suites: IndexMap<&str, TestSuite> = IndexMap::new();
    for (file, case) in finished.chain(skipped) {
        suites.entry(file).or_insert_with(|| TestSuite::new(file)).add_test_case(case);
    }
    let mut report = Report::new("segue test");
    report.set_time(results.cases.iter().map(|case| case.duration).sum());
    for mut suite in suites.into_values() {
        let time: Duration = suite.test_cases.iter().filter_map(|case| case.time).sum();
        suite.set_time(time);
        report.add_test_suite(suite);
    }
    // Writing to a string cannot fail.
    report.to_string().unwrap_or_default().replace(|c| !is_xml(c), "\u{FFFD}")
}

/// Whether a document may contain this character (<https://www.w3.org/TR/xml/#charsets>). A parser rejects the others, escaped or not.
fn is_xml(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..)
}

fn finished_case(case: &CaseResult) -> TestCase {
    let kind = match case.outcome {
        CaseOutcome::Passed => None,
        CaseOutcome::Failed => Some(NonSuccessKind::Failure),
        CaseOutcome::Error => Some(NonSuccessKind::Error),
    };
    let status = kind.map_or_else(TestCaseStatus::success, |kind| {
        let mut status = TestCaseStatus::non_success(kind);
        if let Some(failure) = case.failures.first() {
            status.set_type(failure.kind).set_message(failure.expected.join(", "));
        }
        status.set_description(text(case));
        status
    });
    let mut entry = entry(&case.case, status);
    entry.set_time(case.duration);
    entry
}

fn entry(case: &ResolvedCase, status: TestCaseStatus) -> TestCase {
    let mut entry = TestCase::new(&*case.case.name, status);
    entry.set_classname(case.file.trim_end_matches(".yml").replace('/', "."));
    entry.extra.insert("file".into(), case.file.as_str().into());
    entry.extra.insert("line".into(), case.case.place.line.to_string().into());
    entry
}

#[cfg(test)]
mod tests {
    use super::is_xml;

    #[test]
    fn characters_that_no_document_may_contain_are_recognised() {
        for c in ['\0', '\u{8}', '\u{b}', '\u{1f}', '\u{FFFE}', '\u{FFFF}'] {
            assert!(!is_xml(c), "{c:?}");
        }
        for c in ['\t', '\n', ' ', '\u{7f}', '\u{FFFD}', '\u{E000}', '😀', '\u{1FFFE}', '\u{10FFFF}'] {
            assert!(is_xml(c), "{c:?}");
        }
    }
}
