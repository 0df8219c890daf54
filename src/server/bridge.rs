//! Between the server's requests, whose bodies are still on the wire, and a channel's, whose bodies were read.

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

use crate::{channels, clock::Clock, context::CallContext, limits};

/// Looks at the head of a request before its body is read; gives it back, or the answer that refuses the request.
pub(super) type Check = Arc<dyn Fn(Parts) -> BoxFuture<'static, Result<Parts, Response<channels::Body>>> + Send + Sync>;

/// A channel as the server sees it.
#[derive(Clone)]
pub(super) struct Bridge {
    channel: channels::Service,
    check: Check,
    clock: Arc<dyn Clock>,
    /// Where no server has one for all its routes.
    bodies: Bodies,
}

impl Bridge {
    pub(super) fn new(channel: channels::Service, check: Check, clock: &Arc<dyn Clock>) -> Self {
        Self { channel, check, clock: clock.clone(), bodies: Bodies::default() }
    }
}

/// The check of routes that ask for no proof.
pub(super) fn no_check() -> Check {
    Arc::new(|head| Box::pin(std::future::ready(Ok(head))))
}

impl Service<Request<Body>> for Bridge {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // The copy that takes the request is made ready in `call`.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { channel, check, clock, bodies } = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            // Who has no proof does not make the server read.
            let mut head = match check(head).await {
                Ok(head) => head,
                Err(answer) => return Ok(written(answer)),
            };
            let bodies = head.extensions.remove::<Bodies>().unwrap_or(bodies);
            let cx = CallContext::new(clock, limits::HTTP_BODY_TIMEOUT);
            let (bytes, room) = match cx.wait(bodies.read(&head, body)).await {
                Ok(Ok(read)) => read,
                Ok(Err(answer)) => return Ok(answer),
                Err(_) => return Ok(refusal(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
            };
            let answer = channel.oneshot(Request::from_parts(head, bytes)).await?;
            drop(room);
            Ok(written(answer))
        })
    }
}

fn written(answer: Response<channels::Body>) -> Response<Body> {
    answer.map(|body| match body {
        channels::Body::Whole(bytes) => Body::from(bytes),
        channels::Body::Stream(pieces) => Body::from_stream(pieces.map(Ok::<_, Infallible>)),
    })
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
        let too_large = || refusal(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large");
        let said = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if said.is_some_and(|said| said > limits::HTTP_BODY as u64) {
            return Err(too_large());
        }
        let mut pieces = body.into_data_stream();
        let mut whole = Bytes::new();
        let mut room: Option<OwnedSemaphorePermit> = None;
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|_| refusal(StatusCode::BAD_REQUEST, "the body was cut short"))?;
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
    let mut answer = refusal(StatusCode::SERVICE_UNAVAILABLE, "too many requests are being read; try again later");
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

/// The answer to a request that is refused.
pub(super) fn refusal(status: StatusCode, problem: &str) -> Response<Body> {
    written(channels::problem(status, problem))
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
