//! Limits for the output of a server over pipes, which may contain endless lines, or text between its messages.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::sync::{CancellationToken, DropGuard};

use segue_base::limits;

/// A reader that forwards bytes, and fails at a line longer than [`limits::MCP_LINE`] bytes or at more than
/// [`limits::MCP_INVALID_LINES`] lines that are not messages. When it ends for any reason, it cancels its token, so that
/// running calls end without waiting until the session is closed.
pub(super) struct LineGuard<R> {
    inner: R,
    /// Bytes of the current line.
    line_length: usize,
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
            line_length: 0,
            has_content: false,
            invalid_lines: 0,
            ended: ended.clone(),
            _ended_guard: ended.drop_guard(),
        }
    }

    /// Counts the bytes and the lines that are not messages.
    fn count(&mut self, bytes: &[u8]) -> io::Result<()> {
        for byte in bytes {
            if *byte == b'\n' {
                (self.line_length, self.has_content) = (0, false);
                continue;
            }
            self.line_length += 1;
            if self.line_length > limits::MCP_LINE {
                return Err(io::Error::other("the server wrote a line that is too long"));
            }
            if !self.has_content && !byte.is_ascii_whitespace() {
                self.has_content = true;
                // A message is an object or an array of objects; the first may follow a byte order mark.
                if !matches!(byte, b'{' | b'[' | 0xEF) {
                    self.invalid_lines += 1;
                }
                if self.invalid_lines > limits::MCP_INVALID_LINES {
                    return Err(io::Error::other(
                        "the server wrote too many lines to its standard output that are not messages",
                    ));
                }
            }
        }
        Ok(())
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for LineGuard<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = ready!(Pin::new(&mut self.inner).poll_read(cx, buffer)).and_then(|()| {
            let new_bytes = buffer.filled().get(before..).unwrap_or_default();
            if new_bytes.is_empty() {
                self.ended.cancel();
            }
            self.count(new_bytes)
        });
        if result.is_err() {
            buffer.set_filled(before);
            self.ended.cancel();
        }
        Poll::Ready(result)
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
