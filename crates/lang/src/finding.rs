//! What is wrong with a project, said so that it can be mended: code, place, what was expected, the cure.

use std::{fmt, sync::Arc};

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The project cannot run like this.
    Error,
    /// It runs, but probably not as meant.
    Warning,
    /// Good to know.
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

/// A place in a project file. Lines and columns count from 1; columns count characters. Line 0 means the whole file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
pub struct SourceLocation {
    /// Path from the project's folder, with `/`.
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
    /// The code that `segue explain` knows, such as `F0203`.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// Where it stands.
    pub place: SourceLocation,
    /// What is wrong and what was expected, in one sentence without a final stop.
    pub message: String,
    /// The cure, in one sentence.
    pub help: String,
}

/// All findings of a load, in the order they were met.
#[derive(Clone, Debug, Default)]
pub struct Findings(Vec<Finding>);

impl Findings {
    /// Adds one.
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
    /// All of them, by file, line and column.
    pub fn sorted(mut self) -> Vec<Finding> {
        self.0.sort_by(|a, b| a.place.cmp(&b.place).then(a.severity.cmp(&b.severity)).then(a.code.cmp(b.code)));
        self.0
    }
    /// All of them as met.
    pub fn as_slice(&self) -> &[Finding] {
        &self.0
    }
    /// Whether any is an error.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|f| f.severity == Severity::Error)
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The known name nearest to `written`, if one is near enough to be meant.
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
    fn a_near_name_is_offered_and_a_far_one_is_not() {
        assert_eq!(did_you_mean("colect", ["collect", "action"]), Some("collect"));
        assert_eq!(did_you_mean("banana", ["collect", "action"]), None);
    }
}
