//! Log lines on standard error.

use std::{fmt, io};

use anyhow::bail;
use segue::environment;
use tracing::field::Field;
use tracing_subscriber::{
    EnvFilter,
    field::MakeExt as _,
    fmt::format::{Writer, debug_fn},
};

/// The levels of Python that have another name here, and ours.
const PYTHON: [(&str, &str); 4] = [("warning", "warn"), ("critical", "error"), ("fatal", "error"), ("notset", "trace")];
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Begins to log. `LOG_LEVEL`, or `RUST_LOG` for single parts, say how much; `usual` is the level of this program otherwise.
///
/// # Errors
/// The variable holds no level and no filter.
pub(super) fn log(usual: &str) -> anyhow::Result<()> {
    let given = |name: &str| environment::variable(name).filter(|text| !text.trim().is_empty());
    let wanted = match (given("RUST_LOG"), given("LOG_LEVEL")) {
        (Some(text), _) => filter("RUST_LOG", &text)?,
        (None, Some(text)) => filter("LOG_LEVEL", &text)?,
        (None, None) => format!("warn,segue={usual}"),
    };
    // At `debug` this part of a library prints codes that could be exchanged for tokens.
    let Ok(filter) = EnvFilter::try_new(format!("{wanted},rmcp::transport::auth=warn")) else {
        bail!("`{wanted}` is no filter of log lines; write a level, or `target=level` pairs with commas between them");
    };
    let colours = io::IsTerminal::is_terminal(&io::stderr());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(colours);
    // A log that nobody reads any more is lost; reporting that on the same stream would panic.
    let log = log.log_internal_errors(false);
    // An error says that a log exists already.
    let _ = log.with_target(false).fmt_fields(debug_fn(field).delimited(" ")).try_init();
    Ok(())
}

/// Writes one field of a line, within that line.
fn field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    match field.name() {
        "message" => write!(writer, "{}", Escaped(value)),
        name => write!(writer, "{name}={}", Escaped(value)),
    }
}

/// The filter in the words of the library. Levels may have their Python names; what is neither a level nor a pair would pass
/// there as the name of a part and silence all others, so for `LOG_LEVEL`, which holds levels, it is an error.
fn filter(variable: &str, text: &str) -> anyhow::Result<String> {
    let mut parts = Vec::new();
    for part in text.to_lowercase().split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (target, level) = part.rsplit_once('=').map_or((None, part), |(target, level)| (Some(target), level));
        let level = PYTHON.iter().find(|(python, _)| *python == level).map_or(level, |(_, ours)| ours);
        let is_level = LEVELS.contains(&level);
        if !is_level && variable == "LOG_LEVEL" {
            bail!("LOG_LEVEL: `{level}` is no level; use debug, info, warning, error or critical");
        }
        parts.push(target.map_or_else(|| level.to_owned(), |target| format!("{target}={level}")));
    }
    Ok(parts.join(","))
}

/// Writes a value in one line: ids and texts of others stand in log lines, and none of them may forge a line or send codes to
/// a terminal.
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
    fn levels_of_python_are_understood_and_words_without_a_meaning_are_not() {
        for (given, expected) in
            [("WARNING", "warn"), ("CRITICAL", "error"), ("Debug", "debug"), ("info,segue=WARNING", "info,segue=warn")]
        {
            assert_eq!(filter("LOG_LEVEL", given).unwrap(), expected);
        }
        assert_eq!(filter("RUST_LOG", "segue::store,hyper=debug").unwrap(), "segue::store,hyper=debug");
        assert!(filter("LOG_LEVEL", "verbose").is_err());
        assert!(EnvFilter::try_new("segue=loud").is_err());
    }

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_id_or_a_message_of_others_forges_no_line_and_sends_no_codes() {
        let written = Written::default();
        let to = written.clone();
        let log = tracing_subscriber::fmt().with_writer(move || to.clone()).with_ansi(false).with_target(false);
        let log = log.without_time().fmt_fields(debug_fn(field).delimited(" ")).finish();
        let id = segue::ids::ConversationId::from("a\u{1b}[2J\nb\r\u{9b}c\u{2028}ä");
        tracing::subscriber::with_default(log, || {
            tracing::warn!(conversation = %id, turn = 3, code = "R0104", "of {id}: it failed");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let safe = "a\\u{1b}[2J\\nb\\r\\u{9b}c\\u{2028}ä";
        assert_eq!(text, format!(" WARN of {safe}: it failed conversation={safe} turn=3 code=\"R0104\"\n"));
    }
}
