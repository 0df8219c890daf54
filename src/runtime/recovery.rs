//! After a crash: turns that were accepted and not answered are run again from their records, while the server takes messages
//! already; replies that were stored and not delivered are delivered.

use std::{pin::pin, sync::atomic::Ordering};

use futures::StreamExt;
use segue_engine::ids::ConversationId;

use super::{Assistant, Inner, ReceiveError, mailbox::CachedConversation, reminders::Outbox};
use crate::{
    context::CallContext,
    conversation::{ReplyEvent, ReplySink},
    failpoint, limits,
    store::{StoreError, TurnNumber},
};

impl Inner {
    /// Finishes the unfinished turns of a conversation that stand before `until`, oldest first.
    pub(super) async fn finish_earlier(
        &self,
        state: &mut Option<Box<CachedConversation>>,
        id: &ConversationId,
        until: TurnNumber,
    ) -> Result<usize, ReceiveError> {
        let mut finished = 0;
        for unfinished in self.store.unfinished_turns_in(id, TurnNumber(0)..until).await? {
            // OfflineModel waits here for the answer: it goes to the outbox.
            self.run_found(state, unfinished, &mut Outbox).await?;
            finished += 1;
        }
        Ok(finished)
    }

    /// Finishes the open turns of a conversation that nobody runs.
    async fn finish_left(&self, id: &ConversationId) -> Result<usize, ReceiveError> {
        // Before the place in the queue of the conversation: while this waits, nobody waits for it.
        let _permit = self.admission.in_background().await?;
        let mailbox = self.mailboxes.of(id);
        let accept_lock = mailbox.accept_lock.lock().await;
        // While no message can be accepted, the newest open turn is read and the place in the queue is taken. What is accepted later
        // has a greater number and runs by itself; what was accepted before by this process runs before us.
        let newest = self.store.unfinished_turns(id).await?.last().map(|unfinished| unfinished.turn);
        let Some(newest) = newest else {
            drop(accept_lock);
            // It is here for its replies.
            if !self.unexpired(id).await?.is_empty() {
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
            // It was erased meanwhile: the numbers name other turns now.
            return Ok(0);
        }
        self.finish_earlier(&mut state, id, TurnNumber(newest.0.saturating_add(1))).await
    }
}

impl Assistant {
    /// Finishes what an earlier process left unfinished: conversations that were active last come first, at most
    /// [`limits::RECOVERY_AT_ONCE`] at a time. Messages may be taken meanwhile: one that finds open turns of its conversation has
    /// them finished at once. How many turns were finished. *Cancellation*: turns that have begun go on; [`Assistant::close`] waits
    /// for them.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot say what is unfinished. A conversation that cannot be finished is logged and left.
    pub async fn recover(&self) -> Result<usize, StoreError> {
        let waiting = self.0.store.conversations_with_work().await?;
        self.0.recovering.store(waiting.len(), Ordering::Relaxed);
        let finished = futures::stream::iter(waiting).map(|id| async {
            let finished = self.recover_one(id).await;
            self.0.recovering.fetch_sub(1, Ordering::Relaxed);
            finished
        });
        let at_once = if failpoint::is_armed("defect:recover-first") { 1 } else { limits::RECOVERY_AT_ONCE };
        Ok(finished.buffer_unordered(at_once).fold(0, |sum, one| std::future::ready(sum + one)).await)
    }

    /// Finishes the open turns of one conversation in a task of its own; how many.
    async fn recover_one(&self, id: ConversationId) -> usize {
        if self.0.tasks.is_closed() {
            return 0;
        }
        let this = self.clone();
        let task = self.0.tasks.spawn(Box::pin(async move {
            this.0.finish_left(&id).await.unwrap_or_else(|error| {
                tracing::error!(conversation = %id, code = "R0104", "a turn could not be finished: {error}");
                0
            })
        }));
        task.await.unwrap_or_default()
    }

    /// Removes what is past its retention: journals, and marks against duplicates. To be called once a day. How many rows went.
    ///
    /// # Errors
    /// [`StoreError`] when the store fails.
    pub async fn expire(&self) -> Result<u64, StoreError> {
        self.0.store.purge_expired(self.0.clock.now()).await
    }

    /// Delivers what is stored and not delivered, for a channel that reaches its users at any time. How many replies left.
    ///
    /// # Errors
    /// [`StoreError`] when the outbox cannot be read or marked.
    pub async fn flush(&self, id: &ConversationId, sink: &mut dyn ReplySink) -> Result<usize, StoreError> {
        let cx = CallContext::new(self.0.clock.clone(), limits::TURN_TIMEOUT);
        let mut done = Vec::new();
        for reply in self.0.store.pending_replies(id).await? {
            let piece = ReplyEvent::Message { id: reply.id.clone(), message: Box::new(reply.reply), kind: reply.kind };
            if sink.send(piece, &cx).await.is_err() {
                break;
            }
            done.push(reply.id);
        }
        let count = done.len();
        if count > 0 {
            self.0.store.mark_delivered(id, done).await?;
        }
        Ok(count)
    }
}
