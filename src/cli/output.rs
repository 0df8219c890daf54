//! The two ways out: results on standard output, everything else on standard error. What moves a cursor leaves by neither.

use std::{
    borrow::Cow,
    io::{self, Write},
};

/// Writes text as it is, at once.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes one line, at once.
pub(crate) fn println(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Says something about the work, on standard error. Lost when nobody listens.
pub(crate) fn status(text: &str) {
    let _ = writeln!(io::stderr().lock(), "segue: {}", strip_control_characters(text));
}

/// Writes text as it is to standard error. Lost when nobody listens.
pub(crate) fn eprint(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Text of others made safe for a terminal: line breaks and tabs stay, every other control character goes.
pub(crate) fn strip_control_characters(text: &str) -> Cow<'_, str> {
    let moves = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(moves) { Cow::Owned(text.replace(moves, "")) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use super::strip_control_characters;

    #[test]
    fn what_moves_the_cursor_is_taken_out() {
        assert_eq!(strip_control_characters("a\tb\nc"), "a\tb\nc");
        assert_eq!(strip_control_characters("a\u{1b}[2Jb\r\u{9b}c"), "a[2Jbc");
    }
}
