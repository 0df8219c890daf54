//! The sink of a streamed response: a bounded queue of encoded bytes between a turn and a client that may read slowly or not at all.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use tokio::sync::mpsc;

use super::{encode, stream::SSE_HEARTBEAT};
use crate::{
    context::CallContext,
    conversation::{DeliveryError, Receipt, ReplySink, TurnEvent},
    limits,
};

/// The format of a streamed response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamFormat {
    /// One complete message per line and no other events: the format of Rasa's REST channel with `?stream=true`.
    MessageLines,
    /// Newline-delimited JSON: one event per line, text deltas included.
    NdJson,
    /// Server-sent events, text deltas included.
    Sse,
}

impl StreamFormat {
    /// The media type of the response. Message lines are not server-sent events, but Rasa sends them with that type and its clients
    /// expect it.
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::MessageLines | Self::Sse => "text/event-stream",
            Self::NdJson => "application/x-ndjson",
        }
    }
    /// Encodes an event; `None` for message lines, which have no events.
    fn event(self, name: &str, json: &str) -> Option<Bytes> {
        match self {
            Self::MessageLines => None,
            Self::NdJson => Some(format!("{json}\n").into()),
            Self::Sse => Some(format!("event: {name}\ndata: {json}\n\n").into()),
        }
    }
    /// The heartbeat that keeps an idle connection open; `None` for message lines, whose clients would read it as a message.
    pub(super) fn heartbeat(self) -> Option<Bytes> {
        match self {
            Self::MessageLines => None,
            Self::NdJson => Some(Bytes::from_static(b"{\"type\":\"ping\"}\n")),
            Self::Sse => Some(SSE_HEARTBEAT),
        }
    }
    /// Encodes an event of a turn; `None` if the format does not contain it.
    fn turn_event(self, recipient: &str, event: &TurnEvent) -> Option<Bytes> {
        match (self, event) {
            (
                Self::MessageLines,
                TurnEvent::Message { message, kind, .. } | TurnEvent::MessageEnd { message, kind, .. },
            ) => {
                let messages = encode::messages(recipient, message, *kind);
                let text: String =
                    messages.iter().flat_map(|message| [encode::json_text(message), "\n".to_owned()]).collect();
                (!text.is_empty()).then(|| text.into())
            }
            (Self::MessageLines, _) => None,
            _ => {
                let (name, json) = encode::event(recipient, event);
                self.event(name, &json)
            }
        }
    }
}

/// Encodes the events of a turn and puts them into the queue of a response.
pub(super) struct StreamSink {
    recipient: Arc<str>,
    format: StreamFormat,
    queue: mpsc::Sender<Bytes>,
}

/// A sink, and the receiver from which the response reads.
pub(super) fn stream_sink(recipient: Arc<str>, format: StreamFormat) -> (StreamSink, mpsc::Receiver<Bytes>) {
    let (queue, receiver) = mpsc::channel(limits::CHANNEL_QUEUE);
    (StreamSink { recipient, format, queue }, receiver)
}

#[async_trait]
impl ReplySink for StreamSink {
    fn wants_deltas(&self) -> bool {
        true
    }
    fn accepts_earlier_replies(&self) -> bool {
        true
    }
    fn repeats_delivered_replies(&self) -> bool {
        true
    }
    async fn send(&mut self, event: TurnEvent, cx: &CallContext) -> Result<Receipt, DeliveryError> {
        let Some(bytes) = self.format.turn_event(&self.recipient, &event) else { return Ok(Receipt::Skipped) };
        let bytes = match self.queue.try_send(bytes) {
            Ok(()) => return Ok(Receipt::Delivered),
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(disconnected()),
            Err(mpsc::error::TrySendError::Full(bytes)) => bytes,
        };
        // A client that does not read must not block the turn: after the timeout it counts as disconnected.
        match cx.with_timeout(limits::CHANNEL_SEND_TIMEOUT).wait(self.queue.send(bytes)).await {
            Ok(Ok(())) => Ok(Receipt::Delivered),
            Ok(Err(_)) => Err(disconnected()),
            Err(_) => {
                // A closed queue, so that the following events do not wait again.
                self.queue = mpsc::channel(1).0;
                Err(disconnected())
            }
        }
    }
}

fn disconnected() -> DeliveryError {
    DeliveryError::Permanent("the client disconnected".to_owned())
}

/// The bytes of the queue in order, until `turn` has ended and the queue is closed and empty. The stream drives `turn`.
pub(super) fn chunks(
    mut queue: mpsc::Receiver<Bytes>,
    turn: impl Future<Output = ()> + Send + 'static,
) -> impl Stream<Item = Bytes> + Send {
    let queued = stream::poll_fn(move |cx| queue.poll_recv(cx));
    let turn = stream::once(turn).filter_map(|()| std::future::ready(None));
    stream::select(queued, turn)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use segue_engine::conversation::{BotKind, Reply};

    use super::*;
    use crate::testing::ManualClock;

    fn message_event(text: &str) -> TurnEvent {
        TurnEvent::Message { id: "m".into(), message: Box::new(Reply::text(text)), kind: BotKind::Response }
    }

    #[tokio::test]
    async fn queued_events_are_sent_before_the_end_of_the_turn() {
        let clock = Arc::new(ManualClock::new());
        let cx = CallContext::new(clock.clone(), Duration::from_secs(60));
        let (mut sink, receiver) = stream_sink("u".into(), StreamFormat::MessageLines);
        let turn = async move {
            sink.send(message_event("one"), &cx).await.unwrap();
            sink.send(message_event("two\n\nthree"), &cx).await.unwrap();
        };
        let text: Vec<Bytes> = chunks(receiver, turn).collect().await;
        let text = String::from_utf8(text.concat()).unwrap();
        let line = |text: &str| format!("{{\"recipient_id\":\"u\",\"text\":\"{text}\"}}\n");
        assert_eq!(text, format!("{}{}{}", line("one"), line("two"), line("three")));
    }

    #[tokio::test]
    async fn client_that_does_not_read_is_disconnected_after_a_timeout() {
        let clock = Arc::new(ManualClock::auto_advancing());
        let cx = CallContext::new(clock, Duration::from_secs(600));
        let (mut sink, receiver) = stream_sink("u".into(), StreamFormat::NdJson);
        for _ in 0..limits::CHANNEL_QUEUE {
            sink.send(message_event("x"), &cx).await.unwrap();
        }
        let before = cx.remaining();
        assert!(sink.send(message_event("x"), &cx).await.is_err());
        assert_eq!(before - cx.remaining(), limits::CHANNEL_SEND_TIMEOUT);
        assert!(sink.send(message_event("x"), &cx).await.is_err());
        assert_eq!(before - cx.remaining(), limits::CHANNEL_SEND_TIMEOUT, "the next event does not wait again");
        drop(receiver);
    }
}
