//! The environment: the only place that reads variables of the process.

/// The value of a variable; `None` when it is not set or is not text.
pub fn variable(name: &str) -> Option<String> {
    #[allow(clippy::disallowed_methods)] // the one place that reads the environment
    std::env::var(name).ok()
}

/// All variables whose names and values are text.
pub fn all() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// The running program; its name alone when the system does not tell where it is.
pub fn program() -> std::path::PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "segue".into())
}
