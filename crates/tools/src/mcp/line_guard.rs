//! Limits for the output of a server over pipes, which may contain endless lines, or text between its messages; and
//! replacement of broken characters in its lines, which the MCP library would drop with the message around them.

use std::{
    borrow::Cow,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use segue_base::{json, limits};
use segue_engine::text::{ELLIPSIS, TextLimit, truncate};
use serde::de::IgnoredAny;
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Characters of a skipped line in the log.
const SHOWN_NOISE: usize = 200;

/// A reader that forwards lines that are messages, and skips others: servers write logs there, some before the handshake and some in
/// every call. It fails at a line longer than [`limits::MCP_LINE`] bytes, or at more than [`limits::MCP_NOISE`] bytes without a message.
/// When it ends for any reason, it cancels its token, so that running calls end without waiting until the session is closed.
pub(super) struct LineGuard<R> {
    inner: R,
    /// The current line, until its end is read.
    line: Vec<u8>,
    /// Complete lines, and how much of them was forwarded.
    ready: Vec<u8>,
    forwarded: usize,
    /// Bytes of the lines since the last message.
    noise: usize,
    /// Whether a line was skipped, of which the log tells once.
    has_skipped: bool,
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
            noise: 0,
            has_skipped: false,
            ended: ended.clone(),
            _ended_guard: ended.drop_guard(),
        }
    }

    /// Adds bytes that were read to the lines.
    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            let is_complete = part.ends_with(b"\n");
            if self.line.len() > limits::MCP_LINE + usize::from(is_complete) {
                return Err(io::Error::other("the server wrote a line that is too long"));
            }
            if is_complete {
                self.finish_line()?;
            }
        }
        Ok(())
    }

    /// Forwards the current line if it is a message.
    fn finish_line(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        let text = json::repair(&line);
        // A message is an object or an array of objects.
        let is_message = text.trim_start().starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(&text).is_ok();
        if is_message {
            self.noise = 0;
            if matches!(text, Cow::Owned(_)) {
                tracing::warn!("a line of an MCP server has invalid text, which is replaced by U+FFFD");
            }
            self.ready.extend_from_slice(text.as_bytes());
            return Ok(());
        }
        self.noise += line.len();
        if self.noise > limits::MCP_NOISE {
            return Err(io::Error::other("the server wrote too much to its standard output that is no message"));
        }
        if !text.trim().is_empty() && !std::mem::replace(&mut self.has_skipped, true) {
            let start = truncate(text.trim(), TextLimit::Chars(SHOWN_NOISE), ELLIPSIS);
            tracing::warn!(
                "an MCP server writes lines to its standard output that are no messages; they are skipped: {start}"
            );
        }
        Ok(())
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
                self.finish_line()?;
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

    async fn forwarded(text: &[u8]) -> String {
        let mut lines = LineGuard::new(text, CancellationToken::new());
        let mut out = Vec::new();
        lines.read_to_end(&mut out).await.unwrap();
        String::from_utf8(out).unwrap()
    }

    #[tokio::test]
    async fn messages_are_forwarded_other_lines_are_skipped_and_the_end_cancels_the_token() {
        let lines = b"starting\n{\"a\": 1}\n\n[INFO] ready\n  [1]\n{\"half\": \n{object} log\n\xff\xfe\n{\"b\": 2}";
        assert_eq!(forwarded(lines).await, "{\"a\": 1}\n  [1]\n{\"b\": 2}");
        assert!(read(lines).await.1);
    }

    #[tokio::test]
    async fn broken_characters_in_a_line_are_replaced() {
        let lines = b"\xef\xbb\xbf{\"a\": \"\xff \\ud83d\"}\n{}";
        assert_eq!(forwarded(lines).await, "{\"a\": \"\u{FFFD} \u{FFFD}\"}\n{}");
    }

    #[tokio::test]
    async fn a_line_beyond_the_limit_is_an_error() {
        let long = vec![b'{'; limits::MCP_LINE + 1];
        assert!(read(&long).await.0.unwrap_err().to_string().contains("too long"));
        let message = format!("\"{}\"", "x".repeat(limits::MCP_LINE - 4));
        let two = format!("[{message}]\n{{}}\n").into_bytes();
        assert!(read(&two).await.0.is_ok());
    }

    #[tokio::test]
    async fn too_much_between_two_messages_is_an_error() {
        let noise = "note\n".repeat(limits::MCP_NOISE / 5);
        assert!(read(format!("{noise}{{}}\n{noise}{{}}\n").as_bytes()).await.0.is_ok());
        assert!(read(format!("{noise}{noise}").as_bytes()).await.0.is_err());
    }

    #[tokio::test]
    async fn dropping_the_reader_cancels_the_token() {
        let ended = CancellationToken::new();
        drop(LineGuard::new(&b""[..], ended.clone()));
        assert!(ended.is_cancelled());
    }
}
