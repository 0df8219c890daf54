//! Findings as people read them, and as programs do.

use std::fmt::Write as _;

use serde::Serialize;

use super::{SourceFile, Sources};
use crate::finding::{Finding, Severity};

/// Columns of a source line that are shown; longer lines are cut around the caret.
const SHOWN: usize = 160;
/// The code of a secret in a file: its line is shown up to the secret only.
const SECRET: &str = "F0601";

/// One finding with its line:
///
/// ```text
/// data/pay.yml:7:20: error[F0205]: there is no step `don` in the flow `pay`
///    7 |         next: don
///      |               ^^^
///      = help: Did you mean `done`?
/// ```
pub fn text(finding: &Finding, sources: &Sources) -> String {
    let place = &finding.place;
    let mut out = place.file.to_string();
    if place.line > 0 {
        let _ = write!(out, ":{}:{}", place.line, place.column);
    }
    let _ = writeln!(out, ": {}[{}]: {}", finding.severity, finding.code, plain(&finding.message));
    let line = sources.file(&place.file).and_then(|text| text.lines().nth(place.line.checked_sub(1)? as usize));
    if let Some(line) = line {
        let (mut line, column) = cut(line, place.column as usize);
        if finding.code == SECRET {
            // What stands there must not reach a log.
            line = line.chars().take(column).chain("…".chars()).collect();
        }
        let width = (place.width as usize).clamp(1, line.chars().count().saturating_sub(column).max(1));
        let number = place.line.to_string();
        let gutter = number.len().max(4);
        let _ = writeln!(out, "{number:>gutter$} | {line}");
        let _ = writeln!(out, "{:>gutter$} | {}{}", "", " ".repeat(column), "^".repeat(width));
    }
    if !finding.help.is_empty() {
        let _ = writeln!(out, "{:>4} = help: {}", "", plain(&finding.help));
    }
    out
}

/// All findings, a blank line between them, and the sum at the end.
pub fn all(findings: &[Finding], sources: &Sources) -> String {
    let mut out = String::new();
    for finding in findings {
        out.push_str(&text(finding, sources));
        out.push('\n');
    }
    let Summary { errors, warnings } = summary(findings);
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    let _ = writeln!(out, "{errors} error{}, {warnings} warning{}", plural(errors), plural(warnings));
    out
}

/// The object that `check --format json` prints (decisions.md 8).
pub fn json(findings: &[Finding]) -> serde_json::Value {
    let findings: Vec<Flat<'_>> = findings.iter().map(Flat::from).collect();
    let errors = findings.iter().filter(|f| f.severity == Severity::Error).count();
    let warnings = findings.iter().filter(|f| f.severity == Severity::Warning).count();
    serde_json::json!({ "findings": findings, "summary": Summary { errors, warnings } })
}

/// How many errors and warnings there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Errors.
    pub errors: usize,
    /// Warnings; notes do not count.
    pub warnings: usize,
}

/// Counts errors and warnings.
pub fn summary(findings: &[Finding]) -> Summary {
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    Summary { errors: count(Severity::Error), warnings: count(Severity::Warning) }
}

#[derive(Serialize)]
struct Flat<'a> {
    code: &'static str,
    severity: Severity,
    file: &'a str,
    line: u32,
    column: u32,
    message: &'a str,
    help: &'a str,
}

impl<'a> From<&'a Finding> for Flat<'a> {
    fn from(finding: &'a Finding) -> Self {
        let Finding { code, severity, place, message, help } = finding;
        Self { code, severity: *severity, file: &place.file, line: place.line, column: place.column, message, help }
    }
}

impl Sources {
    /// The text of a file by its path.
    pub fn file(&self, path: &str) -> Option<&str> {
        let single = [&self.config, &self.endpoints, &self.credentials];
        let many = [&self.domain, &self.data, &self.agents, &self.patterns];
        let mut files = single.into_iter().flatten().chain(many.into_iter().flatten());
        files
            .find(|file: &&SourceFile| &*file.path == path)
            .map(|file| &*file.text)
            .or_else(|| self.texts.get(path).map(|t| &**t))
    }
}

/// The line made safe for a terminal, and how many columns stand before the caret. Control characters and tabs become blanks.
fn cut(line: &str, column: usize) -> (String, usize) {
    let safe: Vec<char> =
        line.trim_start_matches('\u{feff}').chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let before = column.saturating_sub(1).min(safe.len());
    let start = if before >= SHOWN { before - SHOWN / 2 } else { 0 };
    (safe.iter().skip(start).take(SHOWN).collect(), before - start)
}

/// Names out of files stand in messages; what would move the cursor does not.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Place;

    fn finding(line: u32, column: u32, width: u32) -> Finding {
        Finding {
            code: "F0205",
            severity: Severity::Error,
            place: Place { file: "data/pay.yml".into(), line, column, width },
            message: "there is no step `don`".into(),
            help: "Did you mean `done`?".into(),
        }
    }

    fn sources(text: &str) -> Sources {
        let file = SourceFile { path: "data/pay.yml".into(), text: text.into() };
        Sources { data: vec![file], ..Sources::default() }
    }

    #[test]
    fn a_finding_shows_its_line_and_a_caret() {
        let shown = text(&finding(2, 7, 3), &sources("a:\n next: don\n"));
        let expected = "data/pay.yml:2:7: error[F0205]: there is no step `don`\n   2 |  next: don\n     |       ^^^\n     = help: Did you mean `done`?\n";
        assert_eq!(shown, expected);
    }

    #[test]
    fn places_that_are_not_there_do_no_harm() {
        for (line, column, width) in [(0, 0, 0), (9, 9, 9), (1, 900, 900), (1, 0, 0)] {
            assert!(text(&finding(line, column, width), &sources("äö\u{1b}[2J\t")).contains("F0205"));
        }
        let long = format!("{}x", " ".repeat(5_000));
        assert!(text(&finding(1, 5_001, 1), &sources(&long)).lines().all(|line| line.len() < 300));
        assert!(!text(&finding(1, 3, 1), &sources("äö\u{1b}[2J\t")).contains('\u{1b}'));
    }

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Finding { code: SECRET, ..finding(1, 8, 6) };
        assert_eq!(text(&secret, &sources("key: { sk-123 }")).lines().nth(1), Some("   1 | key: { …"));
    }

    #[test]
    fn the_json_form_is_flat() {
        let json = json(&[finding(2, 7, 3)]);
        assert_eq!(json["summary"], serde_json::json!({"errors": 1, "warnings": 0}));
        assert_eq!(json["findings"][0]["line"], 2);
        assert_eq!(json["findings"][0]["severity"], "error");
    }
}
