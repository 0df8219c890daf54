//! The way out during a turn: pieces may leave before the turn is stored, marked provisional; each message is announced to
//! the journal before its first piece, so that after a crash it is known what the user may have seen.

use std::{collections::HashSet, sync::Arc};

use futures::future::BoxFuture;

use crate::{
    conversation::{DeliveryError, Receipt, ReplyPiece, ReplySink},
    cx::Cx,
    failpoint,
    store::{Journal, StoredReply},
};

/// The way out during a turn.
pub(super) struct TurnSink<'a> {
    inner: &'a mut dyn ReplySink,
    journal: Arc<dyn Journal>,
    /// Messages whose last piece the channel has.
    delivered: HashSet<Arc<str>>,
    /// The message that is being streamed.
    open: Option<Arc<str>>,
}

impl<'a> TurnSink<'a> {
    /// Around the sink of a channel.
    pub(super) fn new(inner: &'a mut dyn ReplySink, journal: Arc<dyn Journal>) -> Self {
        Self { inner, journal, delivered: HashSet::new(), open: None }
    }

    /// Sends what was said so far, before something that may take long. Only where the channel shows pieces; elsewhere a
    /// reply leaves after it is stored.
    pub(super) async fn catch_up(&mut self, replies: &[StoredReply], cx: &Cx) {
        if !self.inner.streams() {
            return;
        }
        for reply in replies {
            self.deliver(reply, cx).await;
        }
    }

    /// Sends one complete reply, unless the channel has it.
    pub(super) async fn deliver(&mut self, reply: &StoredReply, cx: &Cx) -> bool {
        if self.delivered.contains(&reply.id) {
            return true;
        }
        let piece =
            ReplyPiece::Message { id: reply.id.clone(), message: Box::new(reply.reply.clone()), kind: reply.kind };
        self.send(piece, cx).await.is_ok()
    }

    /// Whether the channel has the whole of this reply.
    pub(super) fn has(&self, id: &Arc<str>) -> bool {
        self.delivered.contains(id)
    }

    /// Sends one stored reply that the channel does not have; nothing needs to be announced any more.
    pub(super) async fn deliver_stored(&mut self, reply: &StoredReply, cx: &Cx) -> bool {
        let piece =
            ReplyPiece::Message { id: reply.id.clone(), message: Box::new(reply.reply.clone()), kind: reply.kind };
        self.inner.send(piece, cx).await.is_ok()
    }

    async fn forward(&mut self, piece: ReplyPiece, cx: &Cx) -> Result<Receipt, DeliveryError> {
        let (begins, ends) = match &piece {
            ReplyPiece::Start { id, .. } => (Some(id.clone()), None),
            ReplyPiece::Message { id, .. } => (Some(id.clone()), Some(id.clone())),
            ReplyPiece::End { id, .. } => (None, Some(id.clone())),
            ReplyPiece::Delta { .. } | ReplyPiece::Activity { .. } => (None, None),
        };
        if !self.inner.streams() {
            return Ok(Receipt::Skipped);
        }
        if let Some(id) = begins
            && self.open.as_ref() != Some(&id)
        {
            // Stored before the first piece leaves (decisions.md 13.4); without the mark nothing may be shown.
            if let Err(error) = self.journal.speaking(&id).await {
                return Err(DeliveryError::Temporary(error.to_string()));
            }
            self.open = Some(id);
        }
        let receipt = self.inner.send(piece, cx).await?;
        failpoint::hit("C09");
        if let Some(id) = ends {
            self.open = None;
            if receipt == Receipt::Delivered {
                self.delivered.insert(id);
            }
        }
        Ok(receipt)
    }
}

impl ReplySink for TurnSink<'_> {
    fn streams(&self) -> bool {
        self.inner.streams()
    }
    fn send<'a>(&'a mut self, piece: ReplyPiece, cx: &'a Cx) -> BoxFuture<'a, Result<Receipt, DeliveryError>> {
        // The many pieces of a text take the short way: only beginnings and ends concern the journal.
        match piece {
            ReplyPiece::Delta { .. } if self.inner.streams() && !failpoint::is_set("C09") => self.inner.send(piece, cx),
            piece => Box::pin(self.forward(piece, cx)),
        }
    }
}
