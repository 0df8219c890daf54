//! After a crash: turns that were accepted and not answered are walked again from their records; replies that were stored
//! and not delivered are delivered.

use segue_engine::ids::ConversationId;

use super::{Assistant, Inner, ReceiveError, commit, mailbox::Cached, timers::Outbox};
use crate::{
    conversation::{ReplyPiece, ReplySink},
    cx::Cx,
    limits,
    store::{StoreError, TurnNumber},
};

impl Inner {
    /// Finishes the unfinished turns of a conversation that stand before `until`, oldest first.
    pub(super) async fn finish_earlier(
        &self,
        state: &mut Option<Box<Cached>>,
        id: &ConversationId,
        until: TurnNumber,
    ) -> Result<usize, ReceiveError> {
        let mut finished = 0;
        for unfinished in self.store.open_turns(id, TurnNumber(0)..until).await? {
            // Nobody waits here for the answer: it goes to the outbox.
            commit::take_over(self, state, unfinished, &mut Outbox).await?;
            finished += 1;
        }
        Ok(finished)
    }
}

impl Assistant {
    /// Finishes what an earlier process left unfinished. Called once at start, before messages are taken. How many turns were
    /// finished.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot say what is unfinished. A conversation that cannot be finished is logged and left.
    pub async fn recover(&self) -> Result<usize, StoreError> {
        let mut finished = 0;
        for id in self.0.store.waiting().await? {
            let cell = self.0.mailboxes.cell(&id);
            let mut state = cell.turn.clone().lock_owned().await;
            match self.0.finish_earlier(&mut state, &id, TurnNumber(u64::MAX)).await {
                Ok(turns) => finished += turns,
                Err(error) => {
                    tracing::error!(conversation = %id, code = "R0104", "a turn could not be finished: {error}")
                }
            }
        }
        Ok(finished)
    }

    /// Removes what is past its retention: journals, and marks against duplicates. To be called once a day. How many rows went.
    ///
    /// # Errors
    /// [`StoreError`] when the store fails.
    pub async fn expire(&self) -> Result<u64, StoreError> {
        self.0.store.expire(self.0.clock.now()).await
    }

    /// Delivers what is stored and not delivered, for a channel that reaches its users at any time. How many replies left.
    ///
    /// # Errors
    /// [`StoreError`] when the outbox cannot be read or marked.
    pub async fn flush(&self, id: &ConversationId, sink: &mut dyn ReplySink) -> Result<usize, StoreError> {
        let cx = Cx::new(self.0.clock.clone(), limits::TURN_WALL);
        let mut done = Vec::new();
        for reply in self.0.store.undelivered(id).await? {
            let piece = ReplyPiece::Message { id: reply.id.clone(), message: Box::new(reply.reply), kind: reply.kind };
            if sink.send(piece, &cx).await.is_err() {
                break;
            }
            done.push(reply.id);
        }
        let count = done.len();
        if count > 0 {
            self.0.store.delivered(id, done).await?;
        }
        Ok(count)
    }
}
