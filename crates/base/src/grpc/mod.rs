//! Outbound gRPC, over the HTTP client that is there: its connections, its certificates and its rules for addresses.
//!
//! *For*: every room that asks others by gRPC. *Entry*: [`GrpcClient`]; [`dynamic`] holds the messages that stand for JSON. *Never*:
//! nothing is tried twice or waited for without the caller's [`CallContext`], and no message is larger than the caller says.

pub mod dynamic;
mod trouble;

use std::task::{Context, Poll};

use axum::http::{Request, Response, Uri, uri::PathAndQuery};
use futures::{
    StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use prost::Message;
use tonic::{
    codec::CompressionEncoding,
    metadata::{AsciiMetadataKey, AsciiMetadataValue},
};
use tonic_prost::ProstCodec;

pub use self::trouble::{Code, GrpcError};
use crate::{
    context::{CallContext, WaitError},
    secret::Secret,
};

/// Asks one server.
#[derive(Clone)]
pub struct GrpcClient {
    carrier: Carrier,
    origin: Uri,
    headers: Vec<(AsciiMetadataKey, AsciiMetadataValue)>,
}

/// A message of the answer, or why there is none.
type Item<M> = Result<M, GrpcError>;

impl GrpcClient {
    /// For the server at this address, of the scheme `http` or `https`; a path goes before the paths of methods, and a query is
    /// refused: there is no place for it.
    ///
    /// # Errors
    /// In words: the address cannot be asked.
    pub fn new(client: reqwest::Client, address: &str) -> Result<Self, String> {
        let origin: Uri = address.trim_end_matches('/').parse().map_err(|error| format!("{error}"))?;
        if origin.scheme().is_none() || origin.authority().is_none() {
            return Err("it needs a scheme and a host".to_owned());
        }
        if origin.query().is_some() {
            return Err("its address has a query (after `?`), which gRPC does not carry".to_owned());
        }
        Ok(Self { carrier: Carrier(client), origin, headers: Vec::new() })
    }

    /// Says this with every request.
    ///
    /// # Errors
    /// In words, without the value: gRPC cannot carry it.
    pub fn with_header(mut self, name: &str, value: &Secret) -> Result<Self, String> {
        let unfit = |_| format!("gRPC cannot carry the header `{name}`");
        let key = AsciiMetadataKey::from_bytes(name.to_ascii_lowercase().as_bytes()).map_err(|_| unfit(()))?;
        let mut value = AsciiMetadataValue::try_from(value.expose()).map_err(|_| unfit(()))?;
        value.set_sensitive(true);
        self.headers.push((key, value));
        Ok(self)
    }

    /// Asks and waits for the one answer, of at most `limit` bytes. The server is told how long we wait.
    /// *Cancellation*: the call is given up; whether it was done is not known.
    ///
    /// # Errors
    /// [`GrpcError`].
    pub async fn ask<Q, A>(
        &self,
        path: &'static str,
        message: Q,
        limit: usize,
        cx: &CallContext,
    ) -> Result<A, GrpcError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut request = self.request(message);
        request.set_timeout(cx.remaining());
        let mut asking = self.asking(limit);
        let codec = ProstCodec::<Q, A>::default();
        let answered = cx.wait(asking.unary(request, PathAndQuery::from_static(path), codec)).await;
        Ok(answered.map_err(GrpcError::from)?.map_err(GrpcError::of)?.into_inner())
    }

    /// Asks and waits for the first sign of an answer that comes in pieces, each of at most `limit` bytes.
    /// *Cancellation*: as of [`ask`](Self::ask); dropping the stream gives the rest of it up.
    ///
    /// # Errors
    /// [`GrpcError`].
    pub async fn listen<Q, A>(
        &self,
        path: &'static str,
        message: Q,
        limit: usize,
        cx: &CallContext,
    ) -> Result<BoxStream<'static, Item<A>>, GrpcError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let request = self.request(message);
        let mut asking = self.asking(limit);
        let codec = ProstCodec::<Q, A>::default();
        let answered = cx.wait(asking.server_streaming(request, PathAndQuery::from_static(path), codec)).await;
        let pieces = answered.map_err(GrpcError::from)?.map_err(GrpcError::of)?.into_inner();
        // After an error nothing follows.
        let whole = stream::unfold(Some(pieces), |pieces| async move {
            let mut pieces = pieces?;
            match pieces.next().await? {
                Ok(piece) => Some((Ok(piece), Some(pieces))),
                Err(status) => Some((Err(GrpcError::of(status)), None)),
            }
        });
        Ok(whole.boxed())
    }

    fn request<Q>(&self, message: Q) -> tonic::Request<Q> {
        let mut request = tonic::Request::new(message);
        for (name, value) in &self.headers {
            request.metadata_mut().insert(name.clone(), value.clone());
        }
        request
    }

    fn asking(&self, limit: usize) -> tonic::client::Grpc<Carrier> {
        // The limit is that of the message as it is read, however small it came.
        tonic::client::Grpc::with_origin(self.carrier.clone(), self.origin.clone())
            .max_decoding_message_size(limit)
            .accept_compressed(CompressionEncoding::Gzip)
    }
}

impl std::fmt::Debug for GrpcClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl From<WaitError> for GrpcError {
    fn from(stopped: WaitError) -> Self {
        match stopped {
            WaitError::DeadlinePassed => Self::Late,
            WaitError::Cancelled => Self::Cancelled,
        }
    }
}

/// An address for gRPC as it is asked. Most are written without a scheme, or with one of their own: what does not say that it
/// goes without TLS goes with it, except to this machine.
pub fn address(text: &str) -> String {
    if let Some(rest) = text.strip_prefix("grpc://") {
        return format!("http://{rest}");
    }
    if let Some(rest) = text.strip_prefix("grpcs://") {
        return format!("https://{rest}");
    }
    if text.contains("://") {
        return text.to_owned();
    }
    let host = text.rsplit_once(':').map_or(text, |(host, _)| host).trim_matches(['[', ']']);
    let local = host == "localhost" || host.parse().is_ok_and(|host: std::net::IpAddr| host.is_loopback());
    format!("{}://{text}", if local { "http" } else { "https" })
}

/// Lets requests of gRPC ride on the HTTP client.
#[derive(Clone)]
struct Carrier(reqwest::Client);

impl tower::Service<Request<tonic::body::Body>> for Carrier {
    type Response = Response<reqwest::Body>;
    type Error = tower::BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let client = self.0.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            // One message, whole already: its size is known when it leaves.
            let body = axum::body::to_bytes(axum::body::Body::new(body), usize::MAX).await?;
            let request = reqwest::Request::try_from(Request::from_parts(head, body))?;
            Ok(Response::from(client.execute(request).await?))
        })
    }
}

#[cfg(test)]
mod tests;
