//! The stdio transport: one JSON-RPC message per line. A line longer than [`limits::MCP_SERVED_LINE`] ends the session before it is
//! in memory as a whole.

use bytes::{BufMut, Bytes, BytesMut};
use futures::StreamExt;
use rmcp::{RoleServer, transport::async_rw::AsyncRwTransport};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::{
    codec::{AnyDelimiterCodec, FramedRead},
    io::StreamReader,
};

use crate::limits;

/// The transport of a server that reads messages from `read` and writes them to `write`.
pub(super) fn transport<R, W>(read: R, write: W) -> AsyncRwTransport<RoleServer, impl AsyncRead + Send + Unpin, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let codec = AnyDelimiterCodec::new_with_max_length(b"\n".to_vec(), b"\n".to_vec(), limits::MCP_SERVED_LINE);
    let lines = FramedRead::new(read, codec).map(|line| match line {
        Ok(line) => {
            let mut terminated = BytesMut::from(line);
            terminated.put_u8(b'\n');
            Ok(Bytes::from(terminated))
        }
        Err(error) => {
            let limit = limits::MCP_SERVED_LINE;
            tracing::warn!(channel = super::NAME, limit, "the MCP session ends: a message cannot be read: {error}");
            Err(std::io::Error::other(error))
        }
    });
    AsyncRwTransport::new_server(StreamReader::new(lines), write).with_max_line_length(usize::MAX)
}
