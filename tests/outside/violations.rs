//! The violated guarantees of a run.

use std::sync::Mutex;

/// Violated guarantees, at most 200, without duplicates.
#[derive(Default)]
pub(crate) struct Violations(Mutex<Vec<String>>);

impl Violations {
    /// Records and prints a violated guarantee.
    pub(crate) fn add(&self, description: String) {
        let mut violations = self.0.lock().unwrap();
        if violations.len() < 200 && !violations.contains(&description) {
            eprintln!("VIOLATION: {description}");
            violations.push(description);
        }
    }
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap().is_empty()
    }
}
