//! Between a turn and a client who reads slowly, or not at all: a bounded queue of bytes that are ready to leave.

use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, StreamExt, future::BoxFuture, stream};
use tokio::sync::{mpsc, oneshot};

use super::{stream::PING, wire};
use crate::{
    context::CallContext,
    conversation::{DeliveryError, Receipt, ReplyEvent, ReplySink},
    limits,
};

/// How a stream is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One whole message per line, nothing else: what clients of other servers expect.
    Lines,
    /// One event per line.
    Events,
    /// Server-sent events.
    Sse,
}

impl Form {
    /// The media type of the answer. Lines carry the wrong one on purpose: existing clients look for it.
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::Lines | Self::Sse => "text/event-stream",
            Self::Events => "application/x-ndjson",
        }
    }
    /// An event on the wire; lines have none.
    pub(super) fn event(self, name: &str, json: &str) -> Option<Bytes> {
        match self {
            Self::Lines => None,
            Self::Events => Some(format!("{json}\n").into()),
            Self::Sse => Some(format!("event: {name}\ndata: {json}\n\n").into()),
        }
    }
    /// What keeps the connection open while nothing happens.
    pub(super) fn heartbeat(self) -> Option<Bytes> {
        match self {
            Self::Lines => None,
            Self::Events => Some(Bytes::from_static(b"{\"type\":\"ping\"}\n")),
            Self::Sse => Some(PING),
        }
    }
    fn piece(self, recipient: &str, piece: &ReplyEvent) -> Option<Bytes> {
        match (self, piece) {
            (Self::Lines, ReplyEvent::Message { message, kind, .. } | ReplyEvent::End { message, kind, .. }) => {
                let lines = wire::messages(recipient, message, *kind);
                let text: String = lines.iter().flat_map(|message| [wire::line(message), "\n".to_owned()]).collect();
                (!text.is_empty()).then(|| text.into())
            }
            (Self::Lines, _) => None,
            _ => {
                let (name, json) = wire::event(recipient, piece);
                self.event(name, &json)
            }
        }
    }
}

/// Puts pieces into the queue.
pub(super) struct QueueSink {
    recipient: Arc<str>,
    form: Form,
    queue: mpsc::Sender<Bytes>,
    accepted: Option<oneshot::Sender<()>>,
}

impl QueueSink {
    /// Told when the message is accepted; closed when it is not.
    pub(super) fn acceptance(&mut self) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        self.accepted = Some(tell);
        told
    }

    /// Another way into the queue, for what follows the turn.
    pub(super) fn sender(&self) -> mpsc::Sender<Bytes> {
        self.queue.clone()
    }
}

/// A sink, and the end of the queue that the client reads.
pub(super) fn queue(recipient: Arc<str>, form: Form) -> (QueueSink, mpsc::Receiver<Bytes>) {
    let (queue, read) = mpsc::channel(limits::CHANNEL_QUEUE);
    (QueueSink { recipient, form, queue, accepted: None }, read)
}

impl ReplySink for QueueSink {
    fn wants_deltas(&self) -> bool {
        true
    }
    fn accepts_earlier_replies(&self) -> bool {
        true
    }
    fn on_accepted(&mut self) {
        if let Some(tell) = self.accepted.take() {
            let _ = tell.send(());
        }
    }
    fn send<'a>(&'a mut self, piece: ReplyEvent, cx: &'a CallContext) -> BoxFuture<'a, Result<Receipt, DeliveryError>> {
        Box::pin(async move {
            let Some(bytes) = self.form.piece(&self.recipient, &piece) else { return Ok(Receipt::Skipped) };
            let bytes = match self.queue.try_send(bytes) {
                Ok(()) => return Ok(Receipt::Delivered),
                Err(mpsc::error::TrySendError::Closed(_)) => return Err(gone()),
                Err(mpsc::error::TrySendError::Full(bytes)) => bytes,
            };
            // A client who does not read must not hold a turn for long: then it is as good as gone.
            match cx.with_timeout(limits::CHANNEL_SEND_TIMEOUT).wait(self.queue.send(bytes)).await {
                Ok(Ok(())) => Ok(Receipt::Delivered),
                Ok(Err(_)) => Err(gone()),
                Err(_) => {
                    self.queue = mpsc::channel(1).0;
                    Err(gone())
                }
            }
        })
    }
}

fn gone() -> DeliveryError {
    DeliveryError::Permanent("the client went away".to_owned())
}

/// Everything from the queue as it comes, until `turn` has ended and nothing more can enter it.
pub(super) fn pieces(
    mut read: mpsc::Receiver<Bytes>,
    turn: impl Future<Output = ()> + Send + 'static,
) -> impl Stream<Item = Bytes> + Send {
    let queued = stream::poll_fn(move |cx| read.poll_recv(cx));
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

    fn piece(text: &str) -> ReplyEvent {
        ReplyEvent::Message { id: "m".into(), message: Box::new(Reply::text(text)), kind: BotKind::Response }
    }

    #[tokio::test]
    async fn pieces_come_before_what_the_turn_leaves() {
        let clock = Arc::new(ManualClock::new());
        let cx = CallContext::new(clock.clone(), Duration::from_secs(60));
        let (mut sink, read) = queue("u".into(), Form::Lines);
        let queue = sink.sender();
        let turn = async move {
            sink.send(piece("one"), &cx).await.unwrap();
            sink.send(piece("two\n\nthree"), &cx).await.unwrap();
            queue.send(Bytes::from_static(b"end")).await.unwrap();
        };
        let text: Vec<Bytes> = pieces(read, turn).collect().await;
        let text = String::from_utf8(text.concat()).unwrap();
        let line = |text: &str| format!("{{\"recipient_id\":\"u\",\"text\":\"{text}\"}}\n");
        assert_eq!(text, format!("{}{}{}end", line("one"), line("two"), line("three")));
    }

    #[tokio::test]
    async fn a_client_who_does_not_read_is_given_up() {
        let clock = Arc::new(ManualClock::auto_advancing());
        let cx = CallContext::new(clock, Duration::from_secs(600));
        let (mut sink, read) = queue("u".into(), Form::Events);
        for _ in 0..limits::CHANNEL_QUEUE {
            sink.send(piece("x"), &cx).await.unwrap();
        }
        let left = cx.remaining();
        assert!(sink.send(piece("x"), &cx).await.is_err());
        assert_eq!(left - cx.remaining(), limits::CHANNEL_SEND_TIMEOUT);
        assert!(sink.send(piece("x"), &cx).await.is_err());
        assert_eq!(left - cx.remaining(), limits::CHANNEL_SEND_TIMEOUT, "the second time it does not wait");
        drop(read);
    }
}
