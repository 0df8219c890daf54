//! Outbound gRPC, over the connections, certificates and address rules of [`HttpClients`](crate::http::HttpClients).
//!
//! [`GrpcClient`] calls a server; [`well_known`] has the messages that represent JSON. Nothing is retried, every wait ends with the
//! [`CallContext`] of the caller, and the caller limits the size of messages.

mod error;
pub mod well_known;

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

pub use self::error::{Code, GrpcError};
use crate::{
    context::{CallContext, WaitError},
    secret::Secret,
};

/// A client for one gRPC server. Cloning is cheap.
#[derive(Clone)]
pub struct GrpcClient {
    service: ReqwestService,
    origin: Uri,
    headers: Vec<(AsciiMetadataKey, AsciiMetadataValue)>,
}

/// A message of a response stream, or the error that ends it.
type Item<M> = Result<M, GrpcError>;

impl GrpcClient {
    /// A client for the server at this address (scheme `http` or `https`). Its path is put before the paths of methods. A query is refused,
    /// because gRPC cannot carry one.
    ///
    /// # Errors
    /// A message: the address cannot be used.
    pub fn new(client: reqwest::Client, address: &str) -> Result<Self, String> {
        let origin: Uri = address.trim_end_matches('/').parse().map_err(|error| format!("{error}"))?;
        if origin.scheme().is_none() || origin.authority().is_none() {
            return Err("it needs a scheme and a host".to_owned());
        }
        if origin.query().is_some() {
            return Err("its address has a query (after `?`), which gRPC does not carry".to_owned());
        }
        Ok(Self { service: ReqwestService(client), origin, headers: Vec::new() })
    }

    /// Sends this header with every request.
    ///
    /// # Errors
    /// A message without the value: gRPC cannot carry the header.
    pub fn with_header(mut self, name: &str, value: &Secret) -> Result<Self, String> {
        let unfit = |_| format!("gRPC cannot carry the header `{name}`");
        let key = AsciiMetadataKey::from_bytes(name.to_ascii_lowercase().as_bytes()).map_err(|_| unfit(()))?;
        let mut value = AsciiMetadataValue::try_from(value.expose()).map_err(|_| unfit(()))?;
        value.set_sensitive(true);
        self.headers.push((key, value));
        Ok(self)
    }

    /// Calls a unary method and waits for the response, of at most `limit` bytes. The remaining time is sent as `grpc-timeout`.
    /// *Cancellation*: the call is dropped; whether the server performed it is unknown.
    ///
    /// # Errors
    /// [`GrpcError`].
    pub async fn unary<Q, A>(
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
        let mut transport = self.transport(limit);
        let codec = ProstCodec::<Q, A>::default();
        let result = cx.wait(transport.unary(request, PathAndQuery::from_static(path), codec)).await;
        Ok(result.map_err(GrpcError::from)?.map_err(GrpcError::from_status)?.into_inner())
    }

    /// Calls a server-streaming method and waits for the start of the response, whose messages have at most `limit` bytes each.
    /// *Cancellation*: as for [`unary`](Self::unary); dropping the stream ends the call.
    ///
    /// # Errors
    /// [`GrpcError`].
    pub async fn server_streaming<Q, A>(
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
        let mut transport = self.transport(limit);
        let codec = ProstCodec::<Q, A>::default();
        let result = cx.wait(transport.server_streaming(request, PathAndQuery::from_static(path), codec)).await;
        let messages = result.map_err(GrpcError::from)?.map_err(GrpcError::from_status)?.into_inner();
        // An error ends the stream.
        let whole = stream::unfold(Some(messages), |messages| async move {
            let mut messages = messages?;
            match messages.next().await? {
                Ok(message) => Some((Ok(message), Some(messages))),
                Err(status) => Some((Err(GrpcError::from_status(status)), None)),
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

    fn transport(&self, limit: usize) -> tonic::client::Grpc<ReqwestService> {
        // The limit applies to the decompressed message.
        tonic::client::Grpc::with_origin(self.service.clone(), self.origin.clone())
            .max_decoding_message_size(limit)
            .accept_compressed(CompressionEncoding::Gzip)
    }
}

impl std::fmt::Debug for GrpcClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrpcClient").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl From<WaitError> for GrpcError {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::DeadlinePassed => Self::DeadlineExceeded,
            WaitError::Cancelled => Self::Cancelled,
        }
    }
}

/// A gRPC address as a URL. An address without a scheme gets `https`, or `http` if it is a loopback address; `grpc://` means `http` and
/// `grpcs://` means `https`.
pub fn parse_address(text: &str) -> String {
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

/// A tower service that sends gRPC requests with the HTTP client.
#[derive(Clone)]
struct ReqwestService(reqwest::Client);

impl tower::Service<Request<tonic::body::Body>> for ReqwestService {
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
            // The body is one complete message, so its length can be sent.
            let body = axum::body::to_bytes(axum::body::Body::new(body), usize::MAX).await?;
            let request = reqwest::Request::try_from(Request::from_parts(head, body))?;
            Ok(Response::from(client.execute(request).await?))
        })
    }
}

#[cfg(test)]
mod tests;
