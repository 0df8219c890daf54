//! Deliver: sends replies to the channel. Deltas of a streamed reply may be sent before the turn is stored; each such reply is announced
//! in the journal before its first delta, so that the next attempt after a crash knows what the user may have seen. All other replies
//! are sent after the commit.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use futures::future::BoxFuture;
use segue_engine::ids::ConversationId;

use crate::{
    context::CallContext,
    conversation::{DeliveryError, Receipt, Reply, ReplyEvent, ReplySink},
    failpoint,
    journal::Journal,
    runtime::{Inner, TurnReport},
    store::StoredReply,
};

/// Sends the replies that the channel does not have yet, and returns whether it has all of them. A failed delivery does not fail the
/// turn: the reply stays in the outbox.
pub(super) async fn deliver(
    inner: &Inner,
    id: &ConversationId,
    report: &TurnReport,
    sink: &mut TurnSink<'_>,
    cx: &CallContext,
) -> bool {
    let mut done = Vec::with_capacity(report.replies.len());
    let mut has_all = true;
    for reply in &report.replies {
        if sink.is_delivered(reply) {
            continue;
        }
        if sink.deliver_stored(reply, cx).await {
            done.push(reply.id.clone());
        } else {
            has_all = false;
        }
    }
    failpoint::hit("C22");
    if !done.is_empty()
        && let Err(error) = inner.store.mark_delivered(id, done).await
    {
        tracing::warn!(conversation = %id, turn = report.turn.0, code = "S0501", "receipts were not stored: {error}");
    }
    if !has_all {
        inner.outbox.add(id);
    }
    has_all
}

/// The sink of a turn, for all its attempts. It announces streamed replies in the journal.
pub(in crate::runtime) struct TurnSink<'a> {
    inner: &'a mut dyn ReplySink,
    journal: Arc<dyn Journal>,
    /// Complete replies that the channel has, by id.
    delivered: HashMap<Arc<str>, Box<Reply>>,
    /// Ids of replies that are announced in the journal.
    announced: HashSet<Arc<str>>,
    /// If set, whether models stream: as recorded, independent of the channel.
    recorded_streaming: Option<bool>,
}

impl<'a> TurnSink<'a> {
    /// A sink that writes to the sink of a channel.
    pub(in crate::runtime) fn new(inner: &'a mut dyn ReplySink, journal: Arc<dyn Journal>) -> Self {
        Self { inner, journal, delivered: HashMap::new(), announced: HashSet::new(), recorded_streaming: None }
    }

    /// Whether the channel shows deltas.
    pub(in crate::runtime) fn streams_to_channel(&self) -> bool {
        self.inner.wants_deltas()
    }

    /// Sets whether models stream from here on as the record has it, whatever the channel does: recorded requests depend on it.
    pub(in crate::runtime) fn set_recorded_streaming(&mut self, recorded_streaming: Option<bool>) {
        self.recorded_streaming = recorded_streaming;
    }

    /// Sends the replies so far, before an effect that may take long. Only if the channel shows deltas; other channels get replies
    /// after the commit.
    pub(in crate::runtime) async fn send_early(&mut self, replies: &[StoredReply], cx: &CallContext) {
        if !self.inner.wants_deltas() {
            return;
        }
        for reply in replies {
            self.deliver(reply, cx).await;
        }
    }

    /// Sends a complete reply, unless the channel has it.
    pub(in crate::runtime) async fn deliver(&mut self, reply: &StoredReply, cx: &CallContext) -> bool {
        self.is_delivered(reply) || self.send(full_message(reply), cx).await.is_ok()
    }

    /// Whether the channel has this reply in full.
    pub(in crate::runtime) fn is_delivered(&self, reply: &StoredReply) -> bool {
        self.delivered.get(&reply.id).is_some_and(|had| **had == reply.reply)
    }

    /// Sends a stored reply. It needs no announcement.
    pub(in crate::runtime) async fn deliver_stored(&mut self, reply: &StoredReply, cx: &CallContext) -> bool {
        self.inner.send(full_message(reply), cx).await.is_ok()
    }

    async fn forward(&mut self, event: ReplyEvent, cx: &CallContext) -> Result<Receipt, DeliveryError> {
        if !self.inner.wants_deltas() {
            return Ok(Receipt::Skipped);
        }
        let event = match self.remaining(event) {
            Some(event) => event,
            None => return Ok(Receipt::Skipped),
        };
        let id = match &event {
            ReplyEvent::Start { id, .. } | ReplyEvent::Message { id, .. } if !self.announced.contains(id) => {
                // Durable before anything is sent; without the record nothing may be shown.
                if let Err(error) = self.journal.announce_reply(id).await {
                    return Err(DeliveryError::Temporary(error.to_string()));
                }
                self.announced.insert(id.clone());
                id
            }
            ReplyEvent::Start { id, .. }
            | ReplyEvent::Delta { id, .. }
            | ReplyEvent::End { id, .. }
            | ReplyEvent::Message { id, .. } => id,
            ReplyEvent::Activity { .. } => return self.inner.send(event, cx).await,
        };
        if !self.announced.contains(id) {
            // Its start was not sent: the complete reply follows after the commit.
            return Ok(Receipt::Skipped);
        }
        let ended = match &event {
            ReplyEvent::End { id, message, .. } | ReplyEvent::Message { id, message, .. } => {
                Some((id.clone(), message.clone()))
            }
            _ => None,
        };
        let receipt = self.inner.send(event, cx).await?;
        failpoint::hit("C09");
        if let Some((id, message)) = ended
            && receipt == Receipt::Delivered
        {
            self.delivered.insert(id, message);
        }
        Ok(receipt)
    }

    /// Filters what an earlier attempt has sent. If the reply differs now, the new one is sent in full.
    fn remaining(&self, event: ReplyEvent) -> Option<ReplyEvent> {
        match event {
            ReplyEvent::Start { id, .. } | ReplyEvent::Delta { id, .. } if self.delivered.contains_key(&id) => None,
            ReplyEvent::End { id, message, kind, .. } | ReplyEvent::Message { id, message, kind }
                if self.delivered.contains_key(&id) =>
            {
                let same = self.delivered.get(&id).is_some_and(|had| *had == message);
                (!same).then_some(ReplyEvent::Message { id, message, kind })
            }
            event => Some(event),
        }
    }
}

/// A stored reply as one event.
pub(in crate::runtime) fn full_message(reply: &StoredReply) -> ReplyEvent {
    ReplyEvent::Message { id: reply.id.clone(), message: Box::new(reply.reply.clone()), kind: reply.kind }
}

impl ReplySink for TurnSink<'_> {
    fn wants_deltas(&self) -> bool {
        self.recorded_streaming.unwrap_or_else(|| self.inner.wants_deltas())
    }
    fn send<'a>(&'a mut self, event: ReplyEvent, cx: &'a CallContext) -> BoxFuture<'a, Result<Receipt, DeliveryError>> {
        // Short path for deltas: only starts and ends concern the journal.
        match event {
            ReplyEvent::Delta { ref id, .. }
                if self.announced.contains(id)
                    && !self.delivered.contains_key(id)
                    && self.inner.wants_deltas()
                    && !failpoint::is_armed("C09") =>
            {
                self.inner.send(event, cx)
            }
            event => Box::pin(self.forward(event, cx)),
        }
    }
}
