//! The environment: the only place that reads variables of the process.

/// The value of a variable; `None` when it is not set or is not text.
pub fn variable(name: &str) -> Option<String> {
    #[allow(clippy::disallowed_methods)] // the one place that reads the environment
    std::env::var(name).ok()
}
