//! Messages on pipes, one a line. A line longer than [`limits::MCP_SERVED_LINE`] ends the session: it is not kept in memory.

use bytes::{BufMut, Bytes, BytesMut};
use futures::StreamExt;
use rmcp::{RoleServer, transport::async_rw::AsyncRwTransport};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::{
    codec::{AnyDelimiterCodec, FramedRead},
    io::StreamReader,
};

use crate::limits;

/// The transport over both directions of a pipe.
pub(super) fn transport<R, W>(read: R, write: W) -> AsyncRwTransport<RoleServer, impl AsyncRead + Send + Unpin, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let codec = AnyDelimiterCodec::new_with_max_length(b"\n".to_vec(), b"\n".to_vec(), limits::MCP_SERVED_LINE);
    let lines = FramedRead::new(read, codec).map(|line| match line {
        Ok(line) => {
            let mut whole = BytesMut::from(line);
            whole.put_u8(b'\n');
            Ok(Bytes::from(whole))
        }
        Err(error) => {
            tracing::warn!(channel = super::NAME, most = limits::MCP_SERVED_LINE, "the session ends: {error}");
            Err(std::io::Error::other(error))
        }
    });
    AsyncRwTransport::new_server(StreamReader::new(lines), write).with_max_line_length(usize::MAX)
}
