//! Findings: problems in project files, each with a code, a location, a message and a fix.

use std::{fmt, sync::Arc};

use serde::Serialize;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The project cannot run.
    Error,
    /// The project runs, but probably not as intended.
    Warning,
    /// Information.
    Note,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        })
    }
}

/// A location in a project file. Lines and columns count from 1; columns count characters. Line 0 means the whole file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
pub struct SourceLocation {
    /// Path relative to the project folder, separated by `/`.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// How many characters the caret underlines; at least 1.
    pub width: u32,
}

/// One finding about a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The code, such as `F0203`; `segue explain` prints its page.
    pub code: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The location.
    pub place: SourceLocation,
    /// What is wrong and what was expected, in one sentence without a full stop.
    pub message: String,
    /// How to fix it, in one sentence.
    pub help: String,
}

/// All findings of one load, in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub struct Findings(Vec<Finding>);

impl Findings {
    /// Adds a finding.
    pub fn push(&mut self, finding: Finding) {
        self.0.push(finding);
    }
    /// Adds an error.
    pub fn error(
        &mut self,
        code: &'static str,
        place: &SourceLocation,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add(Severity::Error, code, place, message, help);
    }
    /// Adds a warning.
    pub fn warning(
        &mut self,
        code: &'static str,
        place: &SourceLocation,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add(Severity::Warning, code, place, message, help);
    }
    /// Adds a note.
    pub fn note(
        &mut self,
        code: &'static str,
        place: &SourceLocation,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add(Severity::Note, code, place, message, help);
    }
    fn add(
        &mut self,
        severity: Severity,
        code: &'static str,
        place: &SourceLocation,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.0.push(Finding { code, severity, place: place.clone(), message: message.into(), help: help.into() });
    }
    /// All findings, sorted by file, line and column, then by severity and code.
    pub fn sorted(mut self) -> Vec<Finding> {
        self.0.sort_by(|a, b| a.place.cmp(&b.place).then(a.severity.cmp(&b.severity)).then(a.code.cmp(b.code)));
        self.0
    }
    /// All findings, in the order in which they were added.
    pub fn as_slice(&self) -> &[Finding] {
        &self.0
    }
    /// Whether any finding is an error.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|f| f.severity == Severity::Error)
    }
    /// The number of findings so far.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Drops the findings after the first `count` that `keep` rejects.
    pub fn retain_after(&mut self, count: usize, keep: impl Fn(&Finding) -> bool) {
        let mut position = 0;
        self.0.retain(|finding| {
            position += 1;
            position <= count || keep(finding)
        });
    }
    /// Whether there is no finding.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The name in `known` that is most similar to `written`, if it is similar enough for a likely typo (Damerau-Levenshtein distance of at
/// most a third of the length, from 1 to 3).
pub fn did_you_mean<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (written.chars().count() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&written.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_names_are_suggested() {
        assert_eq!(did_you_mean("colect", ["collect", "action"]), Some("collect"));
        assert_eq!(did_you_mean("banana", ["collect", "action"]), None);
    }
}
