//! Formats of the results: text, one JSON object, a result file, files of failed cases, and JUnit XML.
//!
//! Only the XML contains durations, and nothing contains a random name: two runs with the same results have the same text.

mod failed;
mod xml;
mod yaml;

use std::fmt::Write as _;

use segue_engine::finding::Finding;
use serde_json::{Map, Value as Json, json};

pub use self::{failed::failed_files, xml::junit};
use super::{AssertionFailure, CaseOutcome, CaseResult, Coverage, Results, TurnTranscript, observed::truncate};

/// The maximum number of reasons that are shown for a failed case.
const MAX_REASONS: usize = 60;

/// The result of one case as text: one line if it passed, otherwise with failures, reasons and transcript.
pub fn text(result: &CaseResult) -> String {
    let run = if result.run > 1 { format!(" (run {})", result.run) } else { String::new() };
    let word = match result.outcome {
        CaseOutcome::Passed => return format!("ok    {}{run}\n", result.address()),
        CaseOutcome::Failed => "FAIL ",
        CaseOutcome::Error => "ERROR",
    };
    let mut out = format!("{word} {}{run}\n", result.address());
    for failure in &result.failures {
        write_failure(&mut out, failure);
    }
    if let Some(failure) = result.failures.last() {
        write_reasons(&mut out, failure);
    }
    write_transcript(&mut out, &result.turns);
    out
}

fn write_failure(out: &mut String, failure: &AssertionFailure) {
    let place = &failure.place;
    let turn = match failure.turn {
        0 => String::new(),
        turn => format!(", turn {turn}, after {}", truncate(&Json::from(failure.user.as_str()).to_string())),
    };
    let kind = if is_code(failure.kind) { format!("error[{}]", failure.kind) } else { failure.kind.to_owned() };
    let _ = writeln!(out, "  {}:{}:{}: {kind}{turn}", place.file, place.line, place.column);
    for line in &failure.expected {
        let _ = writeln!(out, "    - {line}");
    }
    for line in &failure.actual {
        let _ = writeln!(out, "    + {}", truncate(line));
    }
    if failure.actual.is_empty() {
        let _ = writeln!(out, "    + (no such event)");
    }
}

/// Whether the kind of a failure is an error code, such as `E0501`, and not a key of an assertion or step.
fn is_code(kind: &str) -> bool {
    kind.len() == 5 && kind.starts_with(|c: char| c.is_ascii_uppercase())
}

fn write_reasons(out: &mut String, failure: &AssertionFailure) {
    if !failure.reasons.is_empty() {
        out.push_str("  reasons\n");
    }
    for reason in failure.reasons.iter().take(MAX_REASONS) {
        let _ = writeln!(out, "    {}", truncate(&reason.to_string()));
    }
    if failure.reasons.len() > MAX_REASONS {
        let _ = writeln!(out, "    and {} more", failure.reasons.len() - MAX_REASONS);
    }
    for (code, message) in &failure.errors {
        let _ = writeln!(out, "  error {} [{code}]", truncate(message));
    }
}

fn write_transcript(out: &mut String, turns: &[TurnTranscript]) {
    if !turns.is_empty() {
        out.push_str("  transcript\n");
    }
    for turn in turns {
        let _ = writeln!(out, "    user: {}", truncate(&Json::from(turn.user.as_str()).to_string()));
        for line in &turn.events {
            let _ = writeln!(out, "      {line}");
        }
    }
}

/// The last lines of the text output: assertions by kind, cases that ran several times, and the number of cases by outcome.
pub fn summary(results: &Results) -> String {
    let mut out = String::new();
    for (kind, counts) in results.assertion_counts() {
        let all = counts.passed + counts.failed;
        let share = 100.0 * counts.passed as f64 / all.max(1) as f64;
        let _ = write!(out, "{kind}: {} of {all} passed ({share:.0}%)", counts.passed);
        let _ = match counts.not_reached {
            0 => writeln!(out),
            count => writeln!(out, ", {count} not reached"),
        };
    }
    for (address, passed, runs) in rates(results) {
        let _ = writeln!(out, "{address}: {passed} of {runs} runs passed");
    }
    let _ = write!(out, "{} passed, {} failed", results.count(CaseOutcome::Passed), results.count(CaseOutcome::Failed));
    for (count, word) in [(results.count(CaseOutcome::Error), "could not run"), (results.skipped.len(), "skipped")] {
        if count > 0 {
            let _ = write!(out, ", {count} {word}");
        }
    }
    out.push('\n');
    out
}

/// For each case that ran more than once: its address, how often it passed, and the number of its runs.
fn rates(results: &Results) -> Vec<(String, usize, usize)> {
    let mut rates: Vec<(String, usize, usize)> = Vec::new();
    for case in &results.cases {
        let (address, passed) = (case.address(), usize::from(case.outcome == CaseOutcome::Passed));
        match rates.iter_mut().find(|(known, ..)| *known == address) {
            Some((_, sum, runs)) => (*sum, *runs) = (*sum + passed, *runs + 1),
            None => rates.push((address, passed, 1)),
        }
    }
    rates.retain(|(_, _, runs)| *runs > 1);
    rates
}

/// The results as one JSON object.
pub fn json(results: &Results, findings: &[Finding], coverage: Option<&Coverage>) -> Json {
    let counts: Map<String, Json> = results
        .assertion_counts()
        .into_iter()
        .map(|(kind, counts)| {
            (
                kind.to_owned(),
                json!({"held": counts.passed, "failed": counts.failed, "not_reached": counts.not_reached}),
            )
        })
        .collect();
    let mut report = json!({
        "cases": results.cases.iter().map(case_json).collect::<Vec<_>>(),
        "assertions": counts,
        "findings": segue_engine::project::findings_report::json(findings).get("findings"),
        "summary": {
            "passed": results.count(CaseOutcome::Passed),
            "failed": results.count(CaseOutcome::Failed),
            "not_run": results.count(CaseOutcome::Error),
            "skipped": results.skipped.len(),
        },
    });
    if let (Some(coverage), Some(fields)) = (coverage, report.as_object_mut()) {
        fields.insert("coverage".to_owned(), serde_json::to_value(coverage).unwrap_or_default());
    }
    report
}

fn case_json(case: &CaseResult) -> Json {
    let outcome = match case.outcome {
        CaseOutcome::Passed => "passed",
        CaseOutcome::Failed => "failed",
        CaseOutcome::Error => "not_run",
    };
    let turns = case.turns.iter().map(|turn| json!({"user": turn.user, "happened": turn.events}));
    json!({
        "file": case.file,
        "name": case.name,
        "line": case.place.line,
        "run": case.run,
        "outcome": outcome,
        "misses": case.failures.iter().map(failure_json).collect::<Vec<_>>(),
        "turns": turns.collect::<Vec<_>>(),
    })
}

fn failure_json(failure: &AssertionFailure) -> Json {
    let errors = failure.errors.iter().map(|(code, message)| json!({"code": code, "reason": message}));
    json!({
        "file": &*failure.place.file,
        "line": failure.place.line,
        "column": failure.place.column,
        "turn": failure.turn,
        "user": failure.user,
        "what": failure.kind,
        "expected": failure.expected,
        "seen": failure.actual,
        "why": failure.reasons.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "failures": errors.collect::<Vec<_>>(),
    })
}

/// The text of the result file in YAML, similar to that of Rasa: each case with its outcome, steps, events and, if it did not pass,
/// the differences.
pub fn result_file(results: &Results) -> String {
    let entries = |passed: bool| -> Vec<Json> {
        let cases = results.cases.iter().filter(|case| (case.outcome == CaseOutcome::Passed) == passed);
        cases.map(entry).collect()
    };
    let mut sections = Map::new();
    for (name, entries) in [("passed", entries(true)), ("failed", entries(false))] {
        sections.insert(name.to_owned(), Json::Array(entries));
    }
    yaml::write(&Json::Object(sections))
}

fn entry(case: &CaseResult) -> Json {
    let mut fields = Map::new();
    fields.insert("name".into(), Json::from(case.name.as_str()));
    fields.insert("file".into(), Json::from(case.file.as_str()));
    fields.insert("line".into(), Json::from(case.place.line));
    if case.run > 1 {
        fields.insert("run".into(), Json::from(case.run));
    }
    fields.insert("pass_status".into(), Json::from(case.outcome == CaseOutcome::Passed));
    fields.insert("expected_steps".into(), case.definition().written.get("steps").cloned().unwrap_or_default());
    let mut difference = Vec::new();
    for failure in &case.failures {
        difference
            .push(format!("{}:{}: {}, turn {}", failure.place.file, failure.place.line, failure.kind, failure.turn));
        difference.extend(failure.expected.iter().map(|line| format!("- {line}")));
        difference.extend(failure.actual.iter().map(|line| format!("+ {}", truncate(line))));
    }
    if !difference.is_empty() {
        fields.insert("difference".into(), Json::from(difference));
    }
    let turns = case.turns.iter().map(|turn| json!({"user": turn.user, "happened": turn.events}));
    fields.insert("actual_events".into(), Json::Array(turns.collect()));
    Json::Object(fields)
}

#[cfg(test)]
mod tests;
