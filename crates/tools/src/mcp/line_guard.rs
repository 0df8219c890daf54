//! Limits for the output of a server over pipes, which may contain endless lines, or text between its messages; and
//! replacement of broken characters in its lines, which the MCP library would drop with the message around them.

use std::{
    borrow::Cow,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::sync::{CancellationToken, DropGuard};

use segue_base::{json, limits};

/// A reader that forwards lines, and fails at a line longer than [`limits::MCP_LINE`] bytes or at more than
/// [`limits::MCP_INVALID_LINES`] lines that are not messages. When it ends for any reason, it cancels its token, so that
/// running calls end without waiting until the session is closed.
pub(super) struct LineGuard<R> {
    inner: R,
    /// The current line, until its end is read.
    line: Vec<u8>,
    /// Complete lines, and how much of them was forwarded.
    ready: Vec<u8>,
    forwarded: usize,
    /// Whether the line has a non-blank byte.
    has_content: bool,
    /// The number of lines so far that are not messages.
    invalid_lines: usize,
    /// Cancelled when reading ends, or when this reader is dropped.
    ended: CancellationToken,
    _ended_guard: DropGuard,
}

impl<R> LineGuard<R> {
    pub(super) fn new(inner: R, ended: CancellationToken) -> Self {
        Self {
            inner,
            line: Vec::new(),
            ready: Vec::new(),
            forwarded: 0,
            has_content: false,
            invalid_lines: 0,
            ended: ended.clone(),
            _ended_guard: ended.drop_guard(),
        }
    }

    /// Adds bytes that were read to the lines, and counts lines that are not messages.
    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            let is_complete = part.ends_with(b"\n");
            if self.line.len() > limits::MCP_LINE + usize::from(is_complete) {
                return Err(io::Error::other("the server wrote a line that is too long"));
            }
            if !self.has_content
                && let Some(first) = part.iter().find(|byte| !byte.is_ascii_whitespace())
            {
                self.has_content = true;
                // A message is an object or an array of objects; the first may follow a byte order mark.
                if !matches!(first, b'{' | b'[' | 0xEF) {
                    self.invalid_lines += 1;
                }
                if self.invalid_lines > limits::MCP_INVALID_LINES {
                    return Err(io::Error::other(
                        "the server wrote too many lines to its standard output that are not messages",
                    ));
                }
            }
            if is_complete {
                self.finish_line();
            }
        }
        Ok(())
    }

    /// Forwards the current line.
    fn finish_line(&mut self) {
        match json::repair(&self.line) {
            Cow::Borrowed(line) => self.ready.extend_from_slice(line.as_bytes()),
            Cow::Owned(line) => {
                tracing::warn!("a line of an MCP server has invalid text, which is replaced by U+FFFD");
                self.ready.extend_from_slice(line.as_bytes());
            }
        }
        self.line.clear();
        self.has_content = false;
    }

    /// Moves lines that are ready to the reader.
    fn forward(&mut self, buffer: &mut ReadBuf<'_>) {
        let rest = self.ready.get(self.forwarded..).unwrap_or_default();
        let part = rest.get(..rest.len().min(buffer.remaining())).unwrap_or_default();
        buffer.put_slice(part);
        self.forwarded += part.len();
        if self.forwarded == self.ready.len() {
            // A large line does not hold its memory for the rest of the session.
            self.ready = Vec::new();
            self.forwarded = 0;
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for LineGuard<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut bytes = [0; 8 * 1024];
        while self.ready.is_empty() {
            let mut read = ReadBuf::new(&mut bytes);
            let result =
                ready!(Pin::new(&mut self.inner).poll_read(cx, &mut read)).and_then(|()| self.add(read.filled()));
            if let Err(error) = result {
                self.ended.cancel();
                return Poll::Ready(Err(error));
            }
            if read.filled().is_empty() {
                self.ended.cancel();
                self.finish_line();
                if self.ready.is_empty() {
                    return Poll::Ready(Ok(()));
                }
            }
        }
        self.forward(buffer);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
    use tokio::io::AsyncReadExt;

    use super::*;

    async fn read(text: &[u8]) -> (io::Result<usize>, bool) {
        let ended = CancellationToken::new();
        let mut lines = LineGuard::new(text, ended.clone());
        let mut sink = Vec::new();
        let result = lines.read_to_end(&mut sink).await;
        (result, ended.is_cancelled())
    }

    #[tokio::test]
    async fn messages_are_forwarded_and_the_end_cancels_the_token() {
        let (result, ended) = read(b"{\"a\": 1}\n\n  [1]\nlog line\n").await;
        assert_eq!(result.unwrap(), 25);
        assert!(ended);
    }

    #[tokio::test]
    async fn broken_characters_in_a_line_are_replaced() {
        let mut lines = LineGuard::new(&b"\xef\xbb\xbf{\"a\": \"\xff \\ud83d\"}\n{}"[..], CancellationToken::new());
        let mut out = Vec::new();
        lines.read_to_end(&mut out).await.unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "{\"a\": \"\u{FFFD} \u{FFFD}\"}\n{}");
    }

    #[tokio::test]
    async fn a_line_beyond_the_limit_is_an_error() {
        let long = vec![b'{'; limits::MCP_LINE + 1];
        assert!(read(&long).await.0.unwrap_err().to_string().contains("too long"));
        let two = [vec![b'{'; limits::MCP_LINE], b"\n{}\n".to_vec()].concat();
        assert!(read(&two).await.0.is_ok());
    }

    #[tokio::test]
    async fn too_many_invalid_lines_are_an_error() {
        assert!(read("note\n".repeat(limits::MCP_INVALID_LINES).as_bytes()).await.0.is_ok());
        assert!(read("note\n".repeat(limits::MCP_INVALID_LINES + 1).as_bytes()).await.0.is_err());
    }

    #[tokio::test]
    async fn dropping_the_reader_cancels_the_token() {
        let ended = CancellationToken::new();
        drop(LineGuard::new(&b""[..], ended.clone()));
        assert!(ended.is_cancelled());
    }
}
