//! JUnit's XML, as build servers read it: one suite for each file.

use std::time::Duration;

use indexmap::IndexMap;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::{
    super::{CaseResult, Outcome, Results, plan::Planned},
    text,
};

/// The results as XML; times in seconds. Cases that were not begun count as skipped.
pub fn junit(results: &Results) -> String {
    let ran = results.cases.iter().map(|case| (case.file.as_str(), ran(case)));
    let skipped = results.skipped.iter().map(|case| (case.file.as_str(), entry(case, TestCaseStatus::skipped())));
    let mut suites: IndexMap<&str, TestSuite> = IndexMap::new();
    for (file, case) in ran.chain(skipped) {
        suites.entry(file).or_insert_with(|| TestSuite::new(file)).add_test_case(case);
    }
    let mut report = Report::new("segue test");
    report.set_time(results.cases.iter().map(|case| case.took).sum());
    for mut suite in suites.into_values() {
        let time: Duration = suite.test_cases.iter().filter_map(|case| case.time).sum();
        suite.set_time(time);
        report.add_test_suite(suite);
    }
    // Only a writer can fail, and a text is none that does.
    report.to_string().unwrap_or_default()
}

fn ran(case: &CaseResult) -> TestCase {
    let kind = match case.outcome {
        Outcome::Passed => None,
        Outcome::Failed => Some(NonSuccessKind::Failure),
        Outcome::NotRun => Some(NonSuccessKind::Error),
    };
    let status = kind.map_or_else(TestCaseStatus::success, |kind| {
        let mut status = TestCaseStatus::non_success(kind);
        if let Some(miss) = case.misses.first() {
            status.set_type(miss.what).set_message(miss.expected.join(", "));
        }
        status.set_description(text(case));
        status
    });
    let mut entry = entry(&case.case, status);
    entry.set_time(case.took);
    entry
}

fn entry(case: &Planned, status: TestCaseStatus) -> TestCase {
    let mut entry = TestCase::new(&*case.case.name, status);
    entry.set_classname(case.file.trim_end_matches(".yml").replace('/', "."));
    entry.extra.insert("file".into(), case.file.as_str().into());
    entry.extra.insert("line".into(), case.case.place.line.to_string().into());
    entry
}
