//! Output: results on standard output, everything else on standard error. Callers remove control characters from text that users,
//! models or tools wrote; see [`strip_control_characters`].

use std::{
    borrow::Cow,
    io::{self, Write},
};

/// Writes text unchanged to standard output, and flushes it.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes one line to standard output, and flushes it.
pub(crate) fn println(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Writes a status message to standard error, without control characters. Errors of writing are ignored.
pub(crate) fn status(text: &str) {
    let _ = writeln!(io::stderr().lock(), "segue: {}", strip_control_characters(text));
}

/// Writes text unchanged to standard error. Errors of writing are ignored.
pub(crate) fn eprint(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Removes control characters except line feeds and tabs. Text that users, models or tools wrote could otherwise send escape
/// sequences to the terminal.
pub(crate) fn strip_control_characters(text: &str) -> Cow<'_, str> {
    let is_removed = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(is_removed) { Cow::Owned(text.replace(is_removed, "")) } else { Cow::Borrowed(text) }
}

/// Text of a user or model on one line, without control characters.
pub(crate) fn single_line(text: &str) -> String {
    strip_control_characters(text).replace(['\n', '\t'], " ")
}

/// A duration in a suitable unit.
pub(crate) fn format_age(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::strip_control_characters;

    #[test]
    fn control_characters_are_stripped() {
        assert_eq!(strip_control_characters("a\tb\nc"), "a\tb\nc");
        assert_eq!(strip_control_characters("a\u{1b}[2Jb\r\u{9b}c"), "a[2Jbc");
    }
}
