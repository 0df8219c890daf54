//! Replies leave for the channel. Pieces may leave before the turn is stored, marked provisional; each message is announced to the
//! journal before its first piece, so that after a crash it is known what the user may have seen. The rest is delivered when the turn
//! is stored.

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

/// Hands the replies to the channel that it does not have yet; whether it has all of them. Delivery never fails a turn: what was not
/// delivered stays in the outbox.
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
        if sink.has(reply) {
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

/// The way out for one message, in every try of its turn.
pub(in crate::runtime) struct TurnSink<'a> {
    inner: &'a mut dyn ReplySink,
    journal: Arc<dyn Journal>,
    /// Whole messages that the channel has.
    delivered: HashMap<Arc<str>, Box<Reply>>,
    /// Messages that were announced to the journal.
    announced: HashSet<Arc<str>>,
    /// Whether whoever speaks makes pieces, where the record says it and not the channel.
    as_recorded: Option<bool>,
}

impl<'a> TurnSink<'a> {
    /// JournalWrapper the sink of a channel.
    pub(in crate::runtime) fn new(inner: &'a mut dyn ReplySink, journal: Arc<dyn Journal>) -> Self {
        Self { inner, journal, delivered: HashMap::new(), announced: HashSet::new(), as_recorded: None }
    }

    /// Whether the channel shows pieces.
    pub(in crate::runtime) fn shows(&self) -> bool {
        self.inner.wants_deltas()
    }

    /// From here on whoever speaks does so as then, whatever this channel shows: what was recorded depends on it.
    pub(in crate::runtime) fn speak_as_recorded(&mut self, as_recorded: Option<bool>) {
        self.as_recorded = as_recorded;
    }

    /// Sends what was said so far, before something that may take long. Only where the channel shows pieces; elsewhere a
    /// reply leaves after it is stored.
    pub(in crate::runtime) async fn send_early(&mut self, replies: &[StoredReply], cx: &CallContext) {
        if !self.inner.wants_deltas() {
            return;
        }
        for reply in replies {
            self.deliver(reply, cx).await;
        }
    }

    /// Sends one complete reply, unless the channel has it.
    pub(in crate::runtime) async fn deliver(&mut self, reply: &StoredReply, cx: &CallContext) -> bool {
        self.has(reply) || self.send(whole(reply), cx).await.is_ok()
    }

    /// Whether the channel has the whole of this reply.
    pub(in crate::runtime) fn has(&self, reply: &StoredReply) -> bool {
        self.delivered.get(&reply.id).is_some_and(|had| **had == reply.reply)
    }

    /// Sends one stored reply that the channel does not have; nothing needs to be announced any more.
    pub(in crate::runtime) async fn deliver_stored(&mut self, reply: &StoredReply, cx: &CallContext) -> bool {
        self.inner.send(whole(reply), cx).await.is_ok()
    }

    async fn forward(&mut self, piece: ReplyEvent, cx: &CallContext) -> Result<Receipt, DeliveryError> {
        if !self.inner.wants_deltas() {
            return Ok(Receipt::Skipped);
        }
        let piece = match self.left_to_send(piece) {
            Some(piece) => piece,
            None => return Ok(Receipt::Skipped),
        };
        let id = match &piece {
            ReplyEvent::Start { id, .. } | ReplyEvent::Message { id, .. } if !self.announced.contains(id) => {
                // Stored before the first piece leaves; without the mark nothing may be shown.
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
            ReplyEvent::Activity { .. } => return self.inner.send(piece, cx).await,
        };
        if !self.announced.contains(id) {
            // Its beginning was held back: it comes as a whole when its turn is stored.
            return Ok(Receipt::Skipped);
        }
        let ended = match &piece {
            ReplyEvent::End { id, message, .. } | ReplyEvent::Message { id, message, .. } => {
                Some((id.clone(), message.clone()))
            }
            _ => None,
        };
        let receipt = self.inner.send(piece, cx).await?;
        failpoint::hit("C09");
        if let Some((id, message)) = ended
            && receipt == Receipt::Delivered
        {
            self.delivered.insert(id, message);
        }
        Ok(receipt)
    }

    /// What is left to send of a message that an earlier try has sent; where it came out another way, the new one follows as a whole.
    fn left_to_send(&self, piece: ReplyEvent) -> Option<ReplyEvent> {
        match piece {
            ReplyEvent::Start { id, .. } | ReplyEvent::Delta { id, .. } if self.delivered.contains_key(&id) => None,
            ReplyEvent::End { id, message, kind, .. } | ReplyEvent::Message { id, message, kind }
                if self.delivered.contains_key(&id) =>
            {
                let same = self.delivered.get(&id).is_some_and(|had| *had == message);
                (!same).then_some(ReplyEvent::Message { id, message, kind })
            }
            piece => Some(piece),
        }
    }
}

fn whole(reply: &StoredReply) -> ReplyEvent {
    ReplyEvent::Message { id: reply.id.clone(), message: Box::new(reply.reply.clone()), kind: reply.kind }
}

impl ReplySink for TurnSink<'_> {
    fn wants_deltas(&self) -> bool {
        self.as_recorded.unwrap_or_else(|| self.inner.wants_deltas())
    }
    fn send<'a>(&'a mut self, piece: ReplyEvent, cx: &'a CallContext) -> BoxFuture<'a, Result<Receipt, DeliveryError>> {
        // The many pieces of a text take the short way: only beginnings and ends concern the journal.
        match piece {
            ReplyEvent::Delta { ref id, .. }
                if self.announced.contains(id)
                    && !self.delivered.contains_key(id)
                    && self.inner.wants_deltas()
                    && !failpoint::is_armed("C09") =>
            {
                self.inner.send(piece, cx)
            }
            piece => Box::pin(self.forward(piece, cx)),
        }
    }
}
