//! Recovery after a crash: open turns run again from their journals while new messages are already accepted, and undelivered replies go
//! to the outbox.

use std::{pin::pin, sync::atomic::Ordering};

use futures::StreamExt;
use segue_engine::ids::ConversationId;

use super::{
    Assistant, Inner, ReceiveError, mailbox::CachedConversation, reminders::OutboxSink, turn::AcceptedMessage,
};
use crate::{
    limits,
    store::{StoreError, TurnNumber, UnfinishedTurn},
};

impl Inner {
    /// Finishes the open turns of a conversation before the turn `until`, oldest first; returns how many.
    pub(super) async fn finish_open_turns(
        &self,
        state: &mut Option<Box<CachedConversation>>,
        id: &ConversationId,
        until: TurnNumber,
    ) -> Result<usize, ReceiveError> {
        let mut finished = 0;
        for UnfinishedTurn { turn, inbound, journal } in
            self.store.unfinished_turns_in(id, TurnNumber(0)..until).await?
        {
            let accepted = AcceptedMessage::new(turn, &inbound);
            // Its caller is not connected: the replies go to the outbox.
            self.run_until_stored(state, accepted, Some(journal), &mut OutboxSink).await?;
            finished += 1;
        }
        Ok(finished)
    }

    /// Finishes the open turns that a conversation has at the start.
    async fn finish_conversation(&self, id: &ConversationId) -> Result<usize, ReceiveError> {
        // Acquired before the turn lock: new messages of the conversation do not wait for this permit.
        let _permit = self.admission.acquire_background().await?;
        let mailbox = self.mailboxes.get_or_create(id);
        let accept_lock = mailbox.accept_lock.lock().await;
        // No message can be accepted while the newest open turn is read and the queue of the turn lock is entered. A message that is
        // accepted later has a higher turn number and runs by itself; one that this process accepted earlier runs first.
        let newest = self.store.unfinished_turns(id).await?.last().map(|unfinished| unfinished.turn);
        let Some(newest) = newest else {
            drop(accept_lock);
            // It has only undelivered replies.
            if !self.pending_or_expire(id).await?.is_empty() {
                self.outbox.add(id);
            }
            return Ok(0);
        };
        let epoch = mailbox.epoch.load(Ordering::SeqCst);
        let mut queue = pin!(mailbox.turn_lock.clone().lock_owned());
        let first = futures::poll!(&mut queue);
        drop(accept_lock);
        let mut state = match first {
            std::task::Poll::Ready(state) => state,
            std::task::Poll::Pending => queue.await,
        };
        if epoch != mailbox.epoch.load(Ordering::SeqCst) {
            // The conversation was erased meanwhile; its turn numbers now belong to other turns.
            return Ok(0);
        }
        self.finish_open_turns(&mut state, id, TurnNumber(newest.0.saturating_add(1))).await
    }
}

impl Assistant {
    /// Continues the sub-agents in the background of earlier processes ([`resume_tasks`](Self::resume_tasks)), and finishes their open
    /// turns: the most recently active conversations first, at most [`limits::RECOVERY_AT_ONCE`] at a time. Returns the number of finished
    /// turns. Messages may be accepted meanwhile: a message of a conversation with open turns finishes them first. *Cancellation*: turns
    /// that have begun continue; [`Assistant::close`] waits for them.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot list the open turns. A conversation that cannot be finished is logged and skipped.
    pub async fn recover(&self) -> Result<usize, StoreError> {
        match self.resume_tasks(None).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "sub-agents in the background continue"),
            // Turns do not depend on them.
            Err(error) => {
                tracing::error!(code = error.code(), "sub-agents in the background cannot be listed: {error}")
            }
        }
        let waiting = self.0.store.conversations_with_work().await?;
        self.0.recovering.store(waiting.len(), Ordering::Relaxed);
        let finished = futures::stream::iter(waiting).map(|id| async {
            let finished = self.recover_one(id).await;
            self.0.recovering.fetch_sub(1, Ordering::Relaxed);
            finished
        });
        Ok(finished.buffer_unordered(limits::RECOVERY_AT_ONCE).fold(0, |sum, one| std::future::ready(sum + one)).await)
    }

    /// Continues the sub-agents in the background that have not ended, of one conversation or of all; returns how many. One that another
    /// process works on is continued when the lease of that process is over. Its agent gets it as before: nothing is sent to the user.
    ///
    /// # Errors
    /// [`StoreError`] if the store of runs cannot list them.
    pub async fn resume_tasks(&self, conversation: Option<&ConversationId>) -> Result<usize, StoreError> {
        match &self.0.runtime.background {
            Some(tasks) => Ok(tasks.resume(conversation).await?),
            None => Ok(0),
        }
    }

    /// Finishes the open turns of one conversation in a task; returns how many.
    async fn recover_one(&self, id: ConversationId) -> usize {
        if self.0.tasks.is_closed() {
            return 0;
        }
        let this = self.clone();
        let task = self.0.tasks.spawn(Box::pin(async move {
            this.0.finish_conversation(&id).await.unwrap_or_else(|error| {
                tracing::error!(conversation = %id, code = "R0104", "a turn could not be finished: {error}");
                0
            })
        }));
        task.await.unwrap_or_default()
    }

    /// Deletes journals and deduplication keys after their retention; returns the number of rows. To be called once a day.
    ///
    /// # Errors
    /// [`StoreError`] if the store fails.
    pub async fn expire(&self) -> Result<u64, StoreError> {
        self.0.store.purge_expired(self.0.clock.now()).await
    }
}
