//! Streaming HTTP responses, with a heartbeat while no data is sent.

use std::{convert::Infallible, sync::Arc};

use axum::http::{
    HeaderValue, Response,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};

use super::Body;
use crate::{clock::Clock, limits};

/// The heartbeat of a stream of server-sent events: a comment line, which clients ignore.
pub(super) const SSE_HEARTBEAT: Bytes = Bytes::from_static(b": ping\n\n");

/// A response that sends `chunks` as they become available, and `heartbeat` after [`limits::HEARTBEAT`] without one.
/// *Cancellation*: `chunks` is dropped when the client disconnects.
pub(super) fn stream_response(
    chunks: impl Stream<Item = Bytes> + Send + 'static,
    media_type: &'static str,
    heartbeat: Option<Bytes>,
    clock: &Arc<dyn Clock>,
) -> Response<Body> {
    let state = (chunks.boxed(), heartbeat, clock.clone());
    let body = stream::unfold(state, |(mut chunks, heartbeat, clock)| async move {
        let bytes = match &heartbeat {
            None => chunks.next().await?,
            Some(heartbeat) => tokio::select! {
                biased;
                chunk = chunks.next() => chunk?,
                () = clock.sleep(clock.deadline(limits::HEARTBEAT)) => heartbeat.clone(),
            },
        };
        Some((bytes, (chunks, heartbeat, clock)))
    });
    let mut response = Response::new(Body::from_stream(body.map(Ok::<_, Infallible>)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Turns off response buffering in nginx.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::ManualClock;

    #[tokio::test]
    async fn heartbeat_is_sent_while_no_data_is_available() {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::auto_advancing());
        let response = stream_response(stream::pending(), "text/event-stream", Some(SSE_HEARTBEAT), &clock);
        let mut chunks = response.into_body().into_data_stream();
        assert_eq!(chunks.next().await.unwrap().unwrap(), SSE_HEARTBEAT);
    }
}
