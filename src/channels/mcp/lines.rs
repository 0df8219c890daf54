//! Messages on pipes, one a line: none longer than the limit is kept, and whoever sent one is told so.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::future::BoxFuture;
use rmcp::{
    ErrorData, RoleServer,
    model::{RequestId, ServerJsonRpcMessage},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::{Transport, async_rw::AsyncRwTransport},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::mpsc,
};

use super::words::say;
use crate::limits;

/// How much of both ends of a long line is looked at: the id of a request stands at one of them.
const END: usize = 256;
/// Refusals that wait to be told; more are only logged.
const REFUSALS: usize = 16;

/// Lines of a pipe, without those that are too long.
struct Lines<R> {
    inner: R,
    /// The line so far; of a long one its beginning.
    line: Vec<u8>,
    /// The end of a long line so far.
    tail: Vec<u8>,
    is_long: bool,
    /// Whole lines, and how much of them was read.
    whole: Vec<u8>,
    read: usize,
    refused: mpsc::Sender<RequestId>,
}

impl<R> Lines<R> {
    fn take(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !self.is_long && self.line.len() + part.len() > limits::MCP_SERVED_LINE {
                self.is_long = true;
                self.tail = self.line.iter().skip(self.line.len().saturating_sub(END)).copied().collect();
                self.line.extend(part.iter().take(END));
                self.line.truncate(END);
                self.line.shrink_to_fit();
            }
            let into = if self.is_long { &mut self.tail } else { &mut self.line };
            into.extend_from_slice(part);
            if self.is_long {
                let long = self.tail.len().saturating_sub(END);
                self.tail.drain(..long);
            }
            if part.ends_with(b"\n") {
                self.end();
            }
        }
    }

    fn end(&mut self) {
        if !std::mem::take(&mut self.is_long) {
            return self.whole.append(&mut self.line);
        }
        let (head, tail) = (String::from_utf8_lossy(&self.line), String::from_utf8_lossy(&self.tail));
        let told = id_of(&head, &tail).is_some_and(|id| self.refused.try_send(id).is_ok());
        tracing::warn!(
            channel = super::NAME,
            told,
            "a message of more than {} bytes was refused",
            limits::MCP_SERVED_LINE
        );
        self.line.clear();
        self.tail.clear();
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Lines<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let this = &mut *self;
            let rest = this.whole.get(this.read..).unwrap_or_default();
            if !rest.is_empty() {
                let part = rest.get(..out.remaining()).unwrap_or(rest);
                out.put_slice(part);
                this.read += part.len();
                return Poll::Ready(Ok(()));
            }
            this.whole.clear();
            this.read = 0;
            let mut space = [0_u8; 8 * 1024];
            let mut piece = ReadBuf::new(&mut space);
            ready!(Pin::new(&mut this.inner).poll_read(cx, &mut piece))?;
            if piece.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.take(piece.filled());
        }
    }
}

/// The id of a request of which only both ends are known: among the plain members at its beginning, or those at its end.
fn id_of(head: &str, tail: &str) -> Option<RequestId> {
    let first = head.trim_start().strip_prefix('{')?.split_once("\"id\"");
    let first = first.filter(|(before, _)| !before.contains(['{', '['])).map(|(_, value)| value);
    let last = tail.trim_end().strip_suffix('}')?.rsplit_once("\"id\"").map(|(_, value)| value);
    let begin = first.or_else(|| last.filter(|value| !value.contains(['}', ']', '{', '['])))?;
    let value = begin.trim_start().strip_prefix(':')?;
    let mut values = serde_json::Deserializer::from_str(value).into_iter::<RequestId>();
    values.next()?.ok()
}

/// The two directions of a pipe.
pub(super) struct Pipe<R: AsyncRead + Unpin, W: AsyncWrite> {
    inner: AsyncRwTransport<RoleServer, Lines<R>, W>,
    refused: mpsc::Receiver<RequestId>,
    /// A refusal on its way; it goes on where a wait for the next message is given up.
    telling: Option<BoxFuture<'static, io::Result<()>>>,
}

impl<R, W> Pipe<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub(super) fn new(read: R, write: W) -> Self {
        let (sender, refused) = mpsc::channel(REFUSALS);
        let (line, tail, whole) = (Vec::new(), Vec::new(), Vec::new());
        let lines = Lines { inner: read, line, tail, is_long: false, whole, read: 0, refused: sender };
        let inner = AsyncRwTransport::new(lines, write).with_max_line_length(usize::MAX);
        Self { inner, refused, telling: None }
    }
}

impl<R, W> Transport<RoleServer> for Pipe<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(telling) = &mut self.telling {
                telling.await.ok()?;
                self.telling = None;
            }
            tokio::select! {
                biased;
                Some(id) = self.refused.recv() => {
                    let most = limits::MCP_SERVED_LINE.to_string();
                    let problem = ErrorData::invalid_request(say("too_long", &[("most", &most)]), None);
                    self.telling = Some(Box::pin(self.inner.send(ServerJsonRpcMessage::error(problem, Some(id)))));
                }
                message = self.inner.receive() => return message,
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_stands_at_one_end_of_a_message() {
        let number = |id| Some(RequestId::Number(id));
        let long = "\"params\":{\"a\":\"x";
        assert_eq!(id_of(&format!("{{\"jsonrpc\":\"2.0\",\"id\":7,{long}"), "x\"}}\n"), number(7));
        assert_eq!(id_of(&format!("{{{long}"), "x\"},\"jsonrpc\":\"2.0\",\"id\": 8 }\n"), number(8));
        assert_eq!(
            id_of(&format!("{{{long}"), "x\"},\"id\":\"n\",\"jsonrpc\":\"2.0\"}"),
            Some(RequestId::String("n".into()))
        );
        assert_eq!(id_of(&format!("{{{long}"), "x\",\"id\":9}}\n"), None, "an argument of that name");
        assert_eq!(id_of("[1,2", "3]"), None);
    }
}
