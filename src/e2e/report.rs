//! Results for people and programs: text, one JSON object, a result file, a file of the cases that failed, and JUnit's XML.
//!
//! Nothing here but the XML holds a time or a random name, so two runs that went the same way write the same bytes.

mod failed;
mod xml;
mod yaml;

use std::fmt::Write as _;

use segue_engine::finding::Finding;
use serde_json::{Map, Value as Json, json};

pub use self::{failed::failed_files, xml::junit};
use super::{AssertionFailure, CaseResult, Coverage, Outcome, Results, TurnTranscript, seen::cut};

/// Lines of why a turn went as it did that one failure shows.
const WHY: usize = 60;

/// One case for people: a line when it passed, everything that helps when it did not.
pub fn text(result: &CaseResult) -> String {
    let round = if result.round > 1 { format!(" (run {})", result.round) } else { String::new() };
    let word = match result.outcome {
        Outcome::Passed => return format!("ok    {}{round}\n", result.address()),
        Outcome::Failed => "FAIL ",
        Outcome::NotRun => "ERROR",
    };
    let mut out = format!("{word} {}{round}\n", result.address());
    for miss in &result.misses {
        one(&mut out, miss);
    }
    if let Some(miss) = result.misses.last() {
        because(&mut out, miss);
    }
    talk(&mut out, &result.turns);
    out
}

fn one(out: &mut String, miss: &AssertionFailure) {
    let place = &miss.place;
    let turn = match miss.turn {
        0 => String::new(),
        turn => format!(", turn {turn}, after {}", cut(&Json::from(miss.user.as_str()).to_string())),
    };
    let what = if is_code(miss.what) { format!("error[{}]", miss.what) } else { miss.what.to_owned() };
    let _ = writeln!(out, "  {}:{}:{}: {what}{turn}", place.file, place.line, place.column);
    for line in &miss.expected {
        let _ = writeln!(out, "    - {line}");
    }
    for line in &miss.seen {
        let _ = writeln!(out, "    + {}", cut(line));
    }
    if miss.seen.is_empty() {
        let _ = writeln!(out, "    + nothing of the kind");
    }
}

/// A code that `segue explain` knows, and no key of a case.
fn is_code(what: &str) -> bool {
    what.len() == 5 && what.starts_with(|c: char| c.is_ascii_uppercase())
}

fn because(out: &mut String, miss: &AssertionFailure) {
    if !miss.why.is_empty() {
        out.push_str("  why\n");
    }
    for reason in miss.why.iter().take(WHY) {
        let _ = writeln!(out, "    {}", cut(&reason.to_string()));
    }
    if miss.why.len() > WHY {
        let _ = writeln!(out, "    and {} more", miss.why.len() - WHY);
    }
    for (code, reason) in &miss.failures {
        let _ = writeln!(out, "  failure {} [{code}]", cut(reason));
    }
}

fn talk(out: &mut String, turns: &[TurnTranscript]) {
    if !turns.is_empty() {
        out.push_str("  what happened\n");
    }
    for turn in turns {
        let _ = writeln!(out, "    user: {}", cut(&Json::from(turn.user.as_str()).to_string()));
        for line in &turn.happened {
            let _ = writeln!(out, "      {line}");
        }
    }
}

/// The sums at the end.
pub fn summary(results: &Results) -> String {
    let mut out = String::new();
    for (kind, tally) in results.tally() {
        let all = tally.held + tally.failed;
        let share = 100.0 * tally.held as f64 / all.max(1) as f64;
        let _ = writeln!(out, "{kind}: {} of {all} held ({share:.0}%)", tally.held);
    }
    for (address, passed, runs) in rates(results) {
        let _ = writeln!(out, "{address}: {passed} of {runs} runs passed");
    }
    let _ = write!(out, "{} passed, {} failed", results.count(Outcome::Passed), results.count(Outcome::Failed));
    for (count, word) in [(results.count(Outcome::NotRun), "could not run"), (results.skipped.len(), "not begun")] {
        if count > 0 {
            let _ = write!(out, ", {count} {word}");
        }
    }
    out.push('\n');
    out
}

/// How often each case passed, where cases ran more than once.
fn rates(results: &Results) -> Vec<(String, usize, usize)> {
    let mut rates: Vec<(String, usize, usize)> = Vec::new();
    for case in &results.cases {
        let (address, passed) = (case.address(), usize::from(case.outcome == Outcome::Passed));
        match rates.iter_mut().find(|(known, ..)| *known == address) {
            Some((_, sum, runs)) => (*sum, *runs) = (*sum + passed, *runs + 1),
            None => rates.push((address, passed, 1)),
        }
    }
    rates.retain(|(_, _, runs)| *runs > 1);
    rates
}

/// Everything as one object.
pub fn json(results: &Results, findings: &[Finding], coverage: Option<&Coverage>) -> Json {
    let tally: Map<String, Json> = results
        .tally()
        .into_iter()
        .map(|(kind, tally)| (kind.to_owned(), json!({"held": tally.held, "failed": tally.failed})))
        .collect();
    let mut whole = json!({
        "cases": results.cases.iter().map(case_json).collect::<Vec<_>>(),
        "assertions": tally,
        "findings": segue_engine::project::findings_report::json(findings).get("findings"),
        "summary": {
            "passed": results.count(Outcome::Passed),
            "failed": results.count(Outcome::Failed),
            "not_run": results.count(Outcome::NotRun),
            "skipped": results.skipped.len(),
        },
    });
    if let (Some(coverage), Some(fields)) = (coverage, whole.as_object_mut()) {
        fields.insert("coverage".to_owned(), serde_json::to_value(coverage).unwrap_or_default());
    }
    whole
}

fn case_json(case: &CaseResult) -> Json {
    let outcome = match case.outcome {
        Outcome::Passed => "passed",
        Outcome::Failed => "failed",
        Outcome::NotRun => "not_run",
    };
    let turns = case.turns.iter().map(|turn| json!({"user": turn.user, "happened": turn.happened}));
    json!({
        "file": case.file,
        "name": case.name,
        "line": case.place.line,
        "run": case.round,
        "outcome": outcome,
        "misses": case.misses.iter().map(miss_json).collect::<Vec<_>>(),
        "turns": turns.collect::<Vec<_>>(),
    })
}

fn miss_json(miss: &AssertionFailure) -> Json {
    let failures = miss.failures.iter().map(|(code, reason)| json!({"code": code, "reason": reason}));
    json!({
        "file": &*miss.place.file,
        "line": miss.place.line,
        "column": miss.place.column,
        "turn": miss.turn,
        "user": miss.user,
        "what": miss.what,
        "expected": miss.expected,
        "seen": miss.seen,
        "why": miss.why.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "failures": failures.collect::<Vec<_>>(),
    })
}

/// The result file: every case with its verdict, its steps and, when it failed, the difference.
pub fn result_file(results: &Results) -> String {
    let of = |passed: bool| -> Vec<Json> {
        let cases = results.cases.iter().filter(|case| (case.outcome == Outcome::Passed) == passed);
        cases.map(entry).collect()
    };
    let mut sections = Map::new();
    for (name, entries) in [("passed", of(true)), ("failed", of(false))] {
        sections.insert(name.to_owned(), Json::Array(entries));
    }
    yaml::write(&Json::Object(sections))
}

fn entry(case: &CaseResult) -> Json {
    let mut fields = Map::new();
    fields.insert("name".into(), Json::from(case.name.as_str()));
    fields.insert("file".into(), Json::from(case.file.as_str()));
    fields.insert("line".into(), Json::from(case.place.line));
    if case.round > 1 {
        fields.insert("run".into(), Json::from(case.round));
    }
    fields.insert("pass_status".into(), Json::from(case.outcome == Outcome::Passed));
    fields.insert("expected_steps".into(), case.written().written.get("steps").cloned().unwrap_or_default());
    let mut difference = Vec::new();
    for miss in &case.misses {
        difference.push(format!("{}:{}: {}, turn {}", miss.place.file, miss.place.line, miss.what, miss.turn));
        difference.extend(miss.expected.iter().map(|line| format!("- {line}")));
        difference.extend(miss.seen.iter().map(|line| format!("+ {}", cut(line))));
    }
    if !difference.is_empty() {
        fields.insert("difference".into(), Json::from(difference));
    }
    let turns = case.turns.iter().map(|turn| json!({"user": turn.user, "happened": turn.happened}));
    fields.insert("actual_events".into(), Json::Array(turns.collect()));
    Json::Object(fields)
}

#[cfg(test)]
mod tests;
