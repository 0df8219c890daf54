//! The codes of missions: those of errors, and those that say why a run, a task or an item failed. Each has a page.

use super::parts::MissionError;

/// Why runs, tasks and items fail: the code in their events, and the code of the page about it. Tasks and items also fail with codes of
/// agents, such as `A0525`.
pub const FAILURES: [(&str, &str); 17] = [
    ("iteration.failed", "N0201"),
    ("task.objective", "N0202"),
    ("task.reported", "N0203"),
    ("task.unfinished", "N0204"),
    ("budget.exceeded", "N0205"),
    ("model.missing", "N0206"),
    ("unit.changed", "N0207"),
    ("run.stuck", "N0208"),
    ("unit.unreadable", "N0209"),
    ("unit.too_large", "N0210"),
    ("repeat.exhausted", "N0211"),
    ("repeat.condition", "N0212"),
    ("iteration.not_retried", "N0213"),
    ("run.too_large", "N0214"),
    ("follow_up.failed", "N0215"),
    ("unit.panicked", "N0216"),
    ("run.unreadable", "N0103"),
];

/// The code of the page about a failure.
pub fn page_of_failure(code: &str) -> Option<&'static str> {
    FAILURES.iter().find(|(failure, _)| *failure == code).map(|(_, page)| *page)
}

impl MissionError {
    /// The error code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownMission(_) | Self::WithoutMission(..) => "N0101",
            Self::Inputs(_) => "N0102",
            Self::UnknownRun(_) => "S0204",
            Self::Unreadable { .. } => "N0103",
            Self::Question(_) => "N0104",
            Self::Full(..) => "N0105",
            Self::Rerun(_) => "N0106",
            Self::AmbiguousRun(..) => "N0107",
            Self::Files(..) => "N0108",
            Self::Store(error) => error.code(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

    use super::*;

    #[test]
    fn the_page_of_a_failure_names_it() {
        for (failure, page) in FAILURES {
            assert_eq!(page_of_failure(failure), Some(page));
            let path = format!("{}/docs/errors/{page}.md", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).unwrap();
            assert!(text.contains(&format!("`{failure}`")), "{page} does not name {failure}");
        }
        assert_eq!(page_of_failure("other"), None);
    }
}
