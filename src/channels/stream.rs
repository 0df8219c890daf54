//! Answers that come in pieces, with a heartbeat while nothing happens.

use std::{convert::Infallible, sync::Arc};

use axum::http::{
    HeaderValue, Response,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};

use super::Body;
use crate::{clock::Clock, limits};

/// What keeps a stream of server-sent events open.
pub(super) const PING: Bytes = Bytes::from_static(b": ping\n\n");

/// The answer that sends `pieces` as they come. *Cancellation*: they are dropped when the client goes away.
pub(super) fn respond(
    pieces: impl Stream<Item = Bytes> + Send + 'static,
    media_type: &'static str,
    heartbeat: Option<Bytes>,
    clock: &Arc<dyn Clock>,
) -> Response<Body> {
    let state = (pieces.boxed(), heartbeat, clock.clone());
    let body = stream::unfold(state, |(mut pieces, heartbeat, clock)| async move {
        let bytes = match &heartbeat {
            None => pieces.next().await?,
            Some(heartbeat) => tokio::select! {
                biased;
                piece = pieces.next() => piece?,
                () = clock.sleep(clock.deadline(limits::HEARTBEAT)) => heartbeat.clone(),
            },
        };
        Some((bytes, (pieces, heartbeat, clock)))
    });
    let mut answer = Response::new(Body::from_stream(body.map(Ok::<_, Infallible>)));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies that would collect the pieces are asked not to.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    answer
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::ManualClock;

    #[tokio::test]
    async fn silence_is_filled_with_heartbeats_where_the_wire_has_them() {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::auto_advancing());
        let answer = respond(stream::pending(), "text/event-stream", Some(PING), &clock);
        let mut pieces = answer.into_body().into_data_stream();
        assert_eq!(pieces.next().await.unwrap().unwrap(), PING);
    }
}
