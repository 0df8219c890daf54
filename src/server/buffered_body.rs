//! A channel as a service of the server: it checks the head of a request, reads the body within limits, and hands both on.

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

/// The service of one channel. Cheap to clone.
#[derive(Clone)]
pub(super) struct BufferedBody {
    channel: Arc<dyn Channel>,
    service: ChannelService,
    clock: Arc<dyn Clock>,
    /// Where no server has one for all its routes.
    bodies: Bodies,
}

impl BufferedBody {
    pub(super) fn new(channel: &Arc<dyn Channel>, assistant: &Assistant) -> Self {
        let service = channel.service(Inbox::new(assistant.clone(), channel.name()));
        Self { channel: channel.clone(), service, clock: assistant.clock().clone(), bodies: Bodies::default() }
    }
}

impl Service<Request<Body>> for BufferedBody {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // The copy that takes the request is made ready in `call`.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { channel, service, clock, bodies } = self.clone();
        Box::pin(async move {
            let (mut head, body) = request.into_parts();
            // A caller without a proof does not make the server read.
            if let Err(answer) = channel.check(&mut head, &clock).await {
                return Ok(answer);
            }
            let bodies = head.extensions.remove::<Bodies>().unwrap_or(bodies);
            let cx = CallContext::new(clock, limits::HTTP_BODY_TIMEOUT);
            let (bytes, room) = match cx.wait(bodies.read(&head, body)).await {
                Ok(Ok(read)) => read,
                Ok(Err(answer)) => return Ok(answer),
                Err(_) => return Ok(problem(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
            };
            let answer = service.oneshot(Request::from_parts(head, bytes)).await;
            drop(room);
            answer
        })
    }
}

/// The budget for bodies of requests that are in memory. Clones share it.
#[derive(Clone)]
pub(super) struct Bodies(Arc<Semaphore>);

/// What is counted: bodies are small, and a permit for each byte would allow only 4 GiB.
const UNIT: usize = 1024;

impl Default for Bodies {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(limits::BODIES / UNIT)))
    }
}

impl Bodies {
    /// Reads a body. Room is taken as the bytes come, so that a client who only says that it will send much takes none.
    async fn read(&self, head: &Parts, body: Body) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Response<Body>> {
        let too_large = || problem(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large");
        let said = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if said.is_some_and(|said| said > limits::HTTP_BODY as u64) {
            return Err(too_large());
        }
        let mut pieces = body.into_data_stream();
        let mut whole = Bytes::new();
        let mut room: Option<OwnedSemaphorePermit> = None;
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|_| problem(StatusCode::BAD_REQUEST, "the body was cut short"))?;
            let length = whole.len() + piece.len();
            if length > limits::HTTP_BODY {
                return Err(too_large());
            }
            let wanted = length.div_ceil(UNIT).saturating_sub(room.as_ref().map_or(0, |room| room.num_permits()));
            let more = self.0.clone().try_acquire_many_owned(u32::try_from(wanted).unwrap_or(u32::MAX));
            let Ok(more) = more else { return Err(no_room()) };
            match &mut room {
                Some(room) => room.merge(more),
                None => room = Some(more),
            }
            whole = if whole.is_empty() { piece } else { joined(whole, &piece) };
        }
        Ok((whole, room))
    }
}

fn joined(whole: Bytes, piece: &[u8]) -> Bytes {
    // What was joined before is nobody else's: it grows in place.
    let mut whole = whole.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&*shared));
    whole.extend_from_slice(piece);
    whole.freeze()
}

fn no_room() -> Response<Body> {
    let mut answer = problem(StatusCode::SERVICE_UNAVAILABLE, "too many requests are being read; try again later");
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io;

    use futures::stream;

    use super::*;

    async fn read(bodies: &Bodies, pieces: Vec<io::Result<Vec<u8>>>) -> Result<usize, StatusCode> {
        let (head, body) = Request::new(Body::from_stream(stream::iter(pieces))).into_parts();
        bodies.read(&head, body).await.map(|(bytes, _)| bytes.len()).map_err(|answer| answer.status())
    }

    #[tokio::test]
    async fn all_bodies_in_memory_share_one_budget() {
        let bodies = Bodies(Arc::new(Semaphore::new(3)));
        assert_eq!(read(&bodies, vec![Ok(vec![0; 2 * UNIT]), Ok(vec![0; UNIT])]).await, Ok(3 * UNIT));
        assert_eq!(
            read(&bodies, vec![Ok(vec![0; 3 * UNIT]), Ok(vec![0; 1])]).await,
            Err(StatusCode::SERVICE_UNAVAILABLE)
        );
        let (head, body) = Request::new(Body::from(vec![0; 2 * UNIT])).into_parts();
        let held = bodies.read(&head, body).await.unwrap();
        assert_eq!(read(&bodies, vec![Ok(vec![0; UNIT + 1])]).await, Err(StatusCode::SERVICE_UNAVAILABLE));
        drop(held);
        assert_eq!(read(&bodies, vec![Ok(vec![0; UNIT + 1])]).await, Ok(UNIT + 1));
        assert_eq!(bodies.0.available_permits(), 3, "everything is given back");
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_no_body_that_is_too_large() {
        let bodies = Bodies::default();
        let broken = || Err(io::Error::from(io::ErrorKind::ConnectionReset));
        assert_eq!(read(&bodies, vec![Ok(vec![0; 9]), broken()]).await, Err(StatusCode::BAD_REQUEST));
        assert_eq!(read(&bodies, vec![Ok(vec![0; limits::HTTP_BODY])]).await, Ok(limits::HTTP_BODY));
        let too_large = vec![Ok(vec![0; limits::HTTP_BODY]), Ok(vec![0; 1])];
        assert_eq!(read(&bodies, too_large).await, Err(StatusCode::PAYLOAD_TOO_LARGE));
        // What says so itself is not read at all.
        let head = Request::builder().header(CONTENT_LENGTH, limits::HTTP_BODY + 1).body(()).unwrap().into_parts().0;
        let never = Body::from_stream(stream::pending::<io::Result<Vec<u8>>>());
        assert_eq!(bodies.read(&head, never).await.unwrap_err().status(), StatusCode::PAYLOAD_TOO_LARGE);
    }
}
