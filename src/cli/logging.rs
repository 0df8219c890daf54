//! Logging to standard error.

use std::{fmt, io};

use anyhow::bail;
use segue::environment;
use tracing::field::Field;
use tracing_subscriber::{
    EnvFilter,
    field::MakeExt as _,
    fmt::format::{Writer, debug_fn},
};

/// Levels of Python's `logging` with a different name in `tracing`, and that name.
const PYTHON_LEVELS: [(&str, &str); 4] =
    [("warning", "warn"), ("critical", "error"), ("fatal", "error"), ("notset", "trace")];
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Initialises logging. `RUST_LOG` (levels by target) or else `LOG_LEVEL` sets the level; without both, this program logs at
/// `default_level` and its libraries at `warn`.
///
/// # Errors
/// The variable does not contain a valid filter.
pub(super) fn init_logging(default_level: &str) -> anyhow::Result<()> {
    let variable = |name: &str| environment::variable(name).filter(|text| !text.trim().is_empty());
    let directives = match (variable("RUST_LOG"), variable("LOG_LEVEL")) {
        (Some(text), _) => parse_directives("RUST_LOG", &text)?,
        (None, Some(text)) => parse_directives("LOG_LEVEL", &text)?,
        (None, None) => format!("warn,segue={default_level}"),
    };
    // At `debug` this module of the MCP library logs authorization codes, which can be exchanged for tokens.
    let Ok(filter) = EnvFilter::try_new(format!("{directives},rmcp::transport::auth=warn")) else {
        bail!("`{directives}` is not a log filter; write a level, or `target=level` pairs separated by commas");
    };
    let colours = io::IsTerminal::is_terminal(&io::stderr());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(colours);
    // If standard error is closed, log lines are lost. Reporting that error on the same stream would panic.
    let log = log.log_internal_errors(false);
    // The only error is that logging is initialised already.
    let _ = log.with_target(false).fmt_fields(debug_fn(write_field).delimited(" ")).try_init();
    Ok(())
}

/// Writes one field of a log line, with control characters escaped.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    match field.name() {
        "message" => write!(writer, "{}", Escaped(value)),
        name => write!(writer, "{name}={}", Escaped(value)),
    }
}

/// Translates the value of a variable to directives of [`EnvFilter`]; levels may have their Python names. In `LOG_LEVEL`, an item that
/// is not a level is an error: `EnvFilter` would take it as the name of a target and disable all others.
fn parse_directives(variable: &str, text: &str) -> anyhow::Result<String> {
    let mut directives = Vec::new();
    for directive in text.to_lowercase().split(',').map(str::trim).filter(|directive| !directive.is_empty()) {
        let (target, level) =
            directive.rsplit_once('=').map_or((None, directive), |(target, level)| (Some(target), level));
        let level = PYTHON_LEVELS.iter().find(|(python, _)| *python == level).map_or(level, |(_, tracing)| tracing);
        let is_level = LEVELS.contains(&level);
        if !is_level && variable == "LOG_LEVEL" {
            bail!("LOG_LEVEL: `{level}` is not a level; use debug, info, warning, error or critical");
        }
        directives.push(target.map_or_else(|| level.to_owned(), |target| format!("{target}={level}")));
    }
    Ok(directives.join(","))
}

/// Escapes line breaks and control characters of a value: an id or a text of a user, model or tool must not forge a log line or send
/// escape sequences to a terminal.
struct Escaped<'a>(&'a dyn fmt::Debug);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        let text = format!("{:?}", self.0);
        text.chars().try_for_each(|c| match c {
            '\u{2028}' | '\u{2029}' => write!(f, "{}", c.escape_unicode()),
            c if c.is_control() => write!(f, "{}", c.escape_default()),
            c => f.write_char(c),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn python_levels_are_accepted_and_unknown_levels_are_errors() {
        for (given, expected) in
            [("WARNING", "warn"), ("CRITICAL", "error"), ("Debug", "debug"), ("info,segue=WARNING", "info,segue=warn")]
        {
            assert_eq!(parse_directives("LOG_LEVEL", given).unwrap(), expected);
        }
        assert_eq!(parse_directives("RUST_LOG", "segue::store,hyper=debug").unwrap(), "segue::store,hyper=debug");
        assert!(parse_directives("LOG_LEVEL", "verbose").is_err());
        assert!(EnvFilter::try_new("segue=loud").is_err());
    }

    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn control_characters_in_log_lines_are_escaped() {
        let buffer = LogBuffer::default();
        let writer = buffer.clone();
        let log = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).with_target(false);
        let log = log.without_time().fmt_fields(debug_fn(write_field).delimited(" ")).finish();
        let id = segue::ids::ConversationId::from("a\u{1b}[2J\nb\r\u{9b}c\u{2028}ä");
        tracing::subscriber::with_default(log, || {
            tracing::warn!(conversation = %id, turn = 3, code = "R0104", "of {id}: it failed");
        });
        let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        let safe = "a\\u{1b}[2J\\nb\\r\\u{9b}c\\u{2028}ä";
        assert_eq!(text, format!(" WARN of {safe}: it failed conversation={safe} turn=3 code=\"R0104\"\n"));
    }
}
