//! The service around a channel: it checks the head of a request, reads its body within limits, and calls the channel with both.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    body::Body,
    http::{
        Request, Response, StatusCode,
        header::{CONTENT_LENGTH, HeaderValue, RETRY_AFTER},
        request::Parts,
    },
};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, future::BoxFuture};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{Service, ServiceExt};

use crate::{
    channels::{Channel, ChannelService, Inbox, problem},
    clock::Clock,
    context::CallContext,
    limits,
    runtime::Assistant,
};

/// The service around one channel. Cheap to clone.
#[derive(Clone)]
pub(super) struct BufferedChannelService {
    channel: Arc<dyn Channel>,
    service: ChannelService,
    clock: Arc<dyn Clock>,
    /// The budget in a server that embeds the routes; [`super::serve`] has one for all channels, in the extensions of requests.
    own_budget: BodyBudget,
}

impl BufferedChannelService {
    pub(super) fn new(channel: &Arc<dyn Channel>, assistant: &Assistant) -> Self {
        let service = channel.service(Inbox::new(assistant.clone(), channel.name()));
        Self { channel: channel.clone(), service, clock: assistant.clock().clone(), own_budget: BodyBudget::default() }
    }
}

impl Service<Request<Body>> for BufferedChannelService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // `oneshot` in `call` waits until the clone of the service is ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { channel, service, clock, own_budget } = self.clone();
        Box::pin(async move {
            let (mut head, body) = request.into_parts();
            // The body of a caller that is not authenticated is not read.
            if let Err(response) = channel.check(&mut head, &clock).await {
                return Ok(response);
            }
            let budget = head.extensions.remove::<BodyBudget>().unwrap_or(own_budget);
            let cx = CallContext::new(clock, limits::HTTP_BODY_TIMEOUT);
            let (bytes, permit) = match cx.wait(budget.read(&head, body)).await {
                Ok(Ok(read)) => read,
                Ok(Err(response)) => return Ok(response),
                Err(_) => return Ok(problem(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")),
            };
            let response = service.oneshot(Request::from_parts(head, bytes)).await;
            drop(permit);
            response
        })
    }
}

/// The memory budget for request bodies: [`limits::BODIES`] bytes in all. Clones share it.
#[derive(Clone)]
pub(super) struct BodyBudget(Arc<Semaphore>);

/// Bytes of one permit: the number of permits that can be acquired at once is a `u32`.
const UNIT: usize = 1024;

impl Default for BodyBudget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(limits::BODIES / UNIT)))
    }
}

impl BodyBudget {
    /// Reads a body of at most [`limits::HTTP_BODY`] bytes. Permits are acquired as the bytes arrive: a client that announces a large body
    /// and sends nothing uses none of the budget.
    ///
    /// # Errors
    /// The response that refuses the request: the body is too large or incomplete, or the budget is exhausted.
    async fn read(&self, head: &Parts, body: Body) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Response<Body>> {
        let too_large = || problem(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large");
        let announced = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|length| length > limits::HTTP_BODY as u64) {
            return Err(too_large());
        }
        let mut chunks = body.into_data_stream();
        let mut bytes = Bytes::new();
        let mut permit: Option<OwnedSemaphorePermit> = None;
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|_| problem(StatusCode::BAD_REQUEST, "the body is incomplete"))?;
            let length = bytes.len() + chunk.len();
            if length > limits::HTTP_BODY {
                return Err(too_large());
            }
            let acquired = permit.as_ref().map_or(0, |permit| permit.num_permits());
            let missing = length.div_ceil(UNIT).saturating_sub(acquired);
            let more = self.0.clone().try_acquire_many_owned(u32::try_from(missing).unwrap_or(u32::MAX));
            let Ok(more) = more else { return Err(budget_exhausted()) };
            match &mut permit {
                Some(permit) => permit.merge(more),
                None => permit = Some(more),
            }
            bytes = if bytes.is_empty() { chunk } else { append(bytes, &chunk) };
        }
        Ok((bytes, permit))
    }
}

fn append(bytes: Bytes, chunk: &[u8]) -> Bytes {
    // A buffer that was appended to before is not shared: it grows in place.
    let mut buffer = bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&*shared));
    buffer.extend_from_slice(chunk);
    buffer.freeze()
}

fn budget_exhausted() -> Response<Body> {
    let mut response = problem(StatusCode::SERVICE_UNAVAILABLE, "too many requests are being read; try again later");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io;

    use futures::stream;

    use super::*;

    async fn read(budget: &BodyBudget, chunks: Vec<io::Result<Vec<u8>>>) -> Result<usize, StatusCode> {
        let (head, body) = Request::new(Body::from_stream(stream::iter(chunks))).into_parts();
        budget.read(&head, body).await.map(|(bytes, _)| bytes.len()).map_err(|response| response.status())
    }

    #[tokio::test]
    async fn bodies_in_memory_share_one_budget() {
        let budget = BodyBudget(Arc::new(Semaphore::new(3)));
        assert_eq!(read(&budget, vec![Ok(vec![0; 2 * UNIT]), Ok(vec![0; UNIT])]).await, Ok(3 * UNIT));
        assert_eq!(
            read(&budget, vec![Ok(vec![0; 3 * UNIT]), Ok(vec![0; 1])]).await,
            Err(StatusCode::SERVICE_UNAVAILABLE)
        );
        let (head, body) = Request::new(Body::from(vec![0; 2 * UNIT])).into_parts();
        let held = budget.read(&head, body).await.unwrap();
        assert_eq!(read(&budget, vec![Ok(vec![0; UNIT + 1])]).await, Err(StatusCode::SERVICE_UNAVAILABLE));
        drop(held);
        assert_eq!(read(&budget, vec![Ok(vec![0; UNIT + 1])]).await, Ok(UNIT + 1));
        assert_eq!(budget.0.available_permits(), 3, "every permit is released");
    }

    #[tokio::test]
    async fn incomplete_body_and_too_large_body_have_different_statuses() {
        let budget = BodyBudget::default();
        let broken = || Err(io::Error::from(io::ErrorKind::ConnectionReset));
        assert_eq!(read(&budget, vec![Ok(vec![0; 9]), broken()]).await, Err(StatusCode::BAD_REQUEST));
        assert_eq!(read(&budget, vec![Ok(vec![0; limits::HTTP_BODY])]).await, Ok(limits::HTTP_BODY));
        let too_large = vec![Ok(vec![0; limits::HTTP_BODY]), Ok(vec![0; 1])];
        assert_eq!(read(&budget, too_large).await, Err(StatusCode::PAYLOAD_TOO_LARGE));
        // A body that announces a larger length is not read at all.
        let head = Request::builder().header(CONTENT_LENGTH, limits::HTTP_BODY + 1).body(()).unwrap().into_parts().0;
        let pending = Body::from_stream(stream::pending::<io::Result<Vec<u8>>>());
        assert_eq!(budget.read(&head, pending).await.unwrap_err().status(), StatusCode::PAYLOAD_TOO_LARGE);
    }
}
