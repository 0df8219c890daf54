//! Environment variables of the process. No other module reads them.

/// The value of a variable; `None` if it is not set or not valid Unicode.
pub fn variable(name: &str) -> Option<String> {
    #[allow(clippy::disallowed_methods)] // the one place that reads the environment
    std::env::var(name).ok()
}

/// All variables whose names and values are valid Unicode.
pub fn all() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// The path of the running program, or `segue` if the system does not report it.
pub fn program() -> std::path::PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "segue".into())
}
