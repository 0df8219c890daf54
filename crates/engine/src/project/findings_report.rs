//! Prints findings as text with source lines, and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use super::{SourceFile, Sources};
use crate::finding::{Finding, Severity, SourceLocation};

/// The maximum number of columns of a source line that are shown. Longer lines are cut around the caret.
const SHOWN: usize = 160;
/// The code of findings about secrets in a file. Their source line is shown only up to the secret, for every finding.
const SECRET: &str = "F0601";
/// Suffixes of keys whose value may be a secret, including misspelt keys that the loader does not know.
const SECRET_KEYS: [&str; 5] = ["apikey", "secret", "password", "authorization", "token"];

/// A finding with its source line:
///
/// ```text
/// data/pay.yml:7:20: error[F0205]: there is no step `don` in the flow `pay`
///    7 |         next: don
///      |               ^^^
///      = help: Did you mean `done`?
/// ```
pub fn text(finding: &Finding, sources: &Sources) -> String {
    one(finding, &secrets(std::slice::from_ref(finding)), sources)
}

/// The locations of secrets in these findings.
fn secrets(findings: &[Finding]) -> Vec<&SourceLocation> {
    findings.iter().filter(|finding| finding.code == SECRET).map(|finding| &finding.place).collect()
}

fn one(finding: &Finding, secrets: &[&SourceLocation], sources: &Sources) -> String {
    let place = &finding.place;
    let mut out = place.file.to_string();
    if place.line > 0 {
        let _ = write!(out, ":{}:{}", place.line, place.column);
    }
    let _ = writeln!(out, ": {}[{}]: {}", finding.severity, finding.code, plain(&finding.message));
    let line = sources.file(&place.file).and_then(|text| text.lines().nth(place.line.checked_sub(1)? as usize));
    if let Some(line) = line {
        // The line may contain a secret, which must not reach a log.
        let secret =
            secrets.iter().filter(|at| at.file == place.file && at.line == place.line).map(|at| at.column).min();
        let named = sources.has_secrets(&place.file).then(|| secret_of(line)).flatten();
        let before = secret.map(|column| column.saturating_sub(1) as usize).into_iter().chain(named).min();
        let public = before.map(|chars| line.chars().take(chars).chain("…".chars()).collect::<String>());
        let column = before.map_or(place.column as usize, |chars| chars.saturating_add(1).min(place.column as usize));
        let (line, column) = cut(public.as_deref().unwrap_or(line), column);
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

/// All findings, separated by blank lines, and the number of errors and warnings.
pub fn all(findings: &[Finding], sources: &Sources) -> String {
    let mut out = String::new();
    let secrets = secrets(findings);
    for finding in findings {
        out.push_str(&one(finding, &secrets, sources));
        out.push('\n');
    }
    let Summary { errors, warnings } = summary(findings);
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    let _ = writeln!(out, "{errors} error{}, {warnings} warning{}", plural(errors), plural(warnings));
    out
}

/// The findings as JSON, as printed by `segue check --format json`.
pub fn json(findings: &[Finding]) -> serde_json::Value {
    let findings: Vec<Flat<'_>> = findings.iter().map(Flat::from).collect();
    let errors = findings.iter().filter(|f| f.severity == Severity::Error).count();
    let warnings = findings.iter().filter(|f| f.severity == Severity::Warning).count();
    serde_json::json!({ "findings": findings, "summary": Summary { errors, warnings } })
}

/// The number of errors and warnings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Errors.
    pub errors: usize,
    /// Warnings, without notes.
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
        let skills = self.skills.iter().flat_map(|folder| &folder.skills).map(|skill| &skill.file);
        let mut files = single.into_iter().flatten().chain(many.into_iter().flatten()).chain(skills);
        files
            .find(|file: &&SourceFile| &*file.path == path)
            .map(|file| &*file.text)
            .or_else(|| self.texts.get(path).map(|t| &**t))
    }

    /// Whether the file may contain credentials.
    fn has_secrets(&self, path: &str) -> bool {
        let single = [&self.config, &self.endpoints, &self.credentials];
        single.into_iter().flatten().chain(&self.agents).any(|file| &*file.path == path)
    }
}

/// The number of characters before the first value of the line that looks like a secret and is not from the environment.
fn secret_of(line: &str) -> Option<usize> {
    let query = line.find("://").and_then(|at| Some(at + line.get(at..)?.find('?')? + 1));
    let query = query.and_then(|at| line.split_at_checked(at)).filter(|(_, after)| !after.contains("${"));
    let value = line.match_indices(':').find_map(|(colon, _)| {
        let (before, after) = (line.get(..colon)?, line.get(colon + 1..)?);
        let key = before.rsplit(['{', ',', ' ']).next()?.to_lowercase().replace(['_', '-', '"', '\''], "");
        let value = after.split(',').next().unwrap_or_default().trim();
        let is_secret =
            SECRET_KEYS.iter().any(|name| key.ends_with(name)) && !value.is_empty() && !value.contains("${");
        is_secret.then(|| before.chars().count() + 1 + usize::from(after.starts_with(' ')))
    });
    query.map(|(before, _)| before.chars().count()).into_iter().chain(value).min()
}

/// The line with control characters and tabs replaced by spaces, cut to the visible width, and the column of the caret in it.
fn cut(line: &str, column: usize) -> (String, usize) {
    let safe: Vec<char> =
        line.trim_start_matches('\u{feff}').chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let before = column.saturating_sub(1).min(safe.len());
    let start = if before >= SHOWN { before - SHOWN / 2 } else { 0 };
    (safe.iter().skip(start).take(SHOWN).collect(), before - start)
}

/// Replaces control characters, which names from files may contain and which could control a terminal.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(line: u32, column: u32, width: u32) -> Finding {
        Finding {
            code: "F0205",
            severity: Severity::Error,
            place: SourceLocation { file: "data/pay.yml".into(), line, column, width },
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
    fn invalid_locations_do_not_panic() {
        for (line, column, width) in [(0, 0, 0), (9, 9, 9), (1, 900, 900), (1, 0, 0)] {
            assert!(text(&finding(line, column, width), &sources("äö\u{1b}[2J\t")).contains("F0205"));
        }
        let long = format!("{}x", " ".repeat(5_000));
        assert!(text(&finding(1, 5_001, 1), &sources(&long)).lines().all(|line| line.len() < 300));
        assert!(!text(&finding(1, 3, 1), &sources("äö\u{1b}[2J\t")).contains('\u{1b}'));
    }

    #[test]
    fn the_source_line_is_cut_at_a_secret() {
        let secret = Finding { code: SECRET, ..finding(1, 8, 6) };
        assert_eq!(text(&secret, &sources("key: { sk-123 }")).lines().nth(1), Some("   1 | key: { …"));
    }

    #[test]
    fn other_findings_do_not_show_a_secret_in_their_line() {
        let line = "  - {provider: openai, model: m, api_key: sk-live-123456, temperatur: 1}\n";
        let secret = Finding { code: SECRET, ..finding(1, 43, 1) };
        let shown = all(&[finding(1, 59, 10), secret, finding(1, 6, 8)], &sources(line));
        assert!(!shown.contains("sk-live") && shown.matches("api_key: …").count() == 3, "{shown}");
        // Unknown keys have no finding with the code of secrets.
        for key in ["apikey", "openai-api-key", "\"Authorization\"", "password", "auth_token"] {
            let file = SourceFile { path: "data/pay.yml".into(), text: format!("a: {{{key}: sk-1, b: 2}}").into() };
            let shown = text(&finding(1, 5, 3), &Sources { endpoints: Some(file), ..Sources::default() });
            assert!(!shown.contains("sk-1") && shown.contains(&format!("{key}: …")), "{shown}");
        }
        let file = SourceFile { path: "data/pay.yml".into(), text: "url: http://h/mcp?k=sk-1".into() };
        let shown = text(&finding(1, 1, 3), &Sources { endpoints: Some(file), ..Sources::default() });
        assert!(shown.contains("http://h/mcp?…") && !shown.contains("sk-1"), "{shown}");
        for harmless in
            ["max_tokens: 5x", "api_key: ${KEY}, b: 2", "token_url: http://a", "keys: [a]", "url: http://h?a=${KEY}"]
        {
            let file = SourceFile { path: "data/pay.yml".into(), text: harmless.into() };
            let shown = text(&finding(1, 1, 3), &Sources { endpoints: Some(file), ..Sources::default() });
            assert!(shown.contains(harmless), "{shown}");
        }
    }

    #[test]
    fn the_json_form_is_flat() {
        let json = json(&[finding(2, 7, 3)]);
        assert_eq!(json["summary"], serde_json::json!({"errors": 1, "warnings": 0}));
        assert_eq!(json["findings"][0]["line"], 2);
        assert_eq!(json["findings"][0]["severity"], "error");
    }
}
