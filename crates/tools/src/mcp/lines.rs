//! Limits for the lines of a server, which may never end a line or write noise between its messages.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::sync::{CancellationToken, DropGuard};

use segue_base::limits;

/// Forwards bytes, and fails at a line longer than [`limits::MCP_LINE`] or after [`limits::MCP_INVALID_LINES`] lines that are
/// no messages. When it ends for any reason, its token is cancelled, so that running calls need not wait until the
/// session is closed.
pub(super) struct LineGuard<R> {
    inner: R,
    /// Bytes of the current line.
    length: usize,
    /// Whether the line has a non-blank byte.
    begun: bool,
    noise: usize,
    /// Cancelled when reading ends, or when this is dropped.
    _over: DropGuard,
    token: CancellationToken,
}

impl<R> LineGuard<R> {
    pub(super) fn new(inner: R, over: CancellationToken) -> Self {
        Self { inner, length: 0, begun: false, noise: 0, token: over.clone(), _over: over.drop_guard() }
    }

    fn count(&mut self, bytes: &[u8]) -> io::Result<()> {
        for byte in bytes {
            if *byte == b'\n' {
                (self.length, self.begun) = (0, false);
                continue;
            }
            self.length += 1;
            if self.length > limits::MCP_LINE {
                return Err(io::Error::other("a line of the server is too long"));
            }
            if !self.begun && !byte.is_ascii_whitespace() {
                self.begun = true;
                // A message is an object or an array of objects; the first may follow a byte order mark.
                if !matches!(byte, b'{' | b'[' | 0xEF) {
                    self.noise += 1;
                }
                if self.noise > limits::MCP_INVALID_LINES {
                    return Err(io::Error::other(
                        "the server writes other things than messages to its standard output",
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
            let fresh = buffer.filled().get(before..).unwrap_or_default();
            if fresh.is_empty() {
                self.token.cancel();
            }
            self.count(fresh)
        });
        if result.is_err() {
            buffer.set_filled(before);
            self.token.cancel();
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
        let over = CancellationToken::new();
        let mut lines = LineGuard::new(text, over.clone());
        let mut sink = Vec::new();
        let result = lines.read_to_end(&mut sink).await;
        (result, over.is_cancelled())
    }

    #[tokio::test]
    async fn messages_pass_and_the_end_is_told() {
        let (result, over) = read(b"{\"a\": 1}\n\n  [1]\nlog line\n").await;
        assert_eq!(result.unwrap(), 25);
        assert!(over);
    }

    #[tokio::test]
    async fn a_line_without_end_ends_the_connection() {
        let long = vec![b'{'; limits::MCP_LINE + 1];
        assert!(read(&long).await.0.unwrap_err().to_string().contains("too long"));
        let two = [vec![b'{'; limits::MCP_LINE], b"\n{}\n".to_vec()].concat();
        assert!(read(&two).await.0.is_ok());
    }

    #[tokio::test]
    async fn noise_without_end_ends_the_connection() {
        assert!(read("note\n".repeat(limits::MCP_INVALID_LINES).as_bytes()).await.0.is_ok());
        assert!(read("note\n".repeat(limits::MCP_INVALID_LINES + 1).as_bytes()).await.0.is_err());
    }

    #[tokio::test]
    async fn dropping_tells_the_end_too() {
        let over = CancellationToken::new();
        drop(LineGuard::new(&b""[..], over.clone()));
        assert!(over.is_cancelled());
    }
}
