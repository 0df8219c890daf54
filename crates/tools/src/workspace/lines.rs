//! Reads a file line by line, with bounded memory whatever the length of its lines.

use std::io::{self, BufRead};

use segue_base::limits;

/// Bytes at the start of a file that decide whether it is text.
const INSPECTED: usize = 8 * 1024;

/// One line.
pub(super) struct Line {
    /// Its start, at most [`limits::WORKSPACE_LINE`] bytes, with its line end if that is there.
    pub(super) bytes: Vec<u8>,
    /// Whether the rest of the line was dropped.
    pub(super) cut: bool,
}

/// The next line; `None` at the end.
pub(super) fn next_line(reader: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut line = Line { bytes: Vec::new(), cut: false };
    let mut any = false;
    loop {
        let buffer = match reader.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if buffer.is_empty() {
            return Ok(any.then_some(line));
        }
        any = true;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(buffer.len(), |at| at + 1);
        let room = limits::WORKSPACE_LINE.saturating_sub(line.bytes.len());
        line.bytes.extend_from_slice(buffer.get(..used.min(room)).unwrap_or_default());
        line.cut |= used > room;
        reader.consume(used);
        if end.is_some() {
            return Ok(Some(line));
        }
    }
}

/// Whether the start of a file, from a reader that was not read yet, is not text: it has a zero byte, or is not UTF-8.
pub(super) fn is_binary(reader: &mut impl BufRead) -> io::Result<bool> {
    let start = reader.fill_buf()?;
    let start = start.get(..INSPECTED.min(start.len())).unwrap_or_default();
    Ok(start.contains(&0)
        || match std::str::from_utf8(start) {
            Ok(_) => false,
            // A character may continue after what was inspected.
            Err(error) => error.error_len().is_some(),
        })
}
