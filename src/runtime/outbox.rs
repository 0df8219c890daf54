//! The outbox: replies that are stored and not delivered, for example of a reminder, of a recovered turn, or after a client has left.
//! A channel that can send unprompted gets them at once; other channels get them with the next answer, unless a reader of the conversation has
//! them. After [`limits::OUTBOX_AGE`]
//! without an event in the conversation they are dropped.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use futures::{StreamExt, stream::FuturesUnordered};
use segue_engine::ids::ConversationId;
use tokio::sync::Notify;

use super::{Assistant, Inner, reminders::RetryBackoff, turn::full_message};
use crate::{
    context::CallContext,
    conversation::ReplySink,
    limits,
    store::{StoreError, StoredReply},
};

/// Creates the sink for undelivered replies. Arguments: the conversation and the channel that accepted its last message
/// ([`Conversation::route`](segue_engine::conversation::Conversation::route)). `None` if this channel cannot send unprompted.
pub type OutboxSinks<'a> = dyn Fn(&ConversationId, &str) -> Option<Box<dyn ReplySink>> + Send + Sync + 'a;

/// Conversations with replies that may be undelivered.
#[derive(Default)]
pub(super) struct OutboxQueue {
    conversations: Mutex<HashSet<ConversationId>>,
    added: Notify,
}

impl OutboxQueue {
    fn conversations(&self) -> MutexGuard<'_, HashSet<ConversationId>> {
        self.conversations.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Adds a conversation. Above [`limits::OUTBOX_WAITING`] its replies wait for its next message or the next start.
    pub(super) fn add(&self, id: &ConversationId) {
        let mut all = self.conversations();
        if all.len() < limits::OUTBOX_WAITING && all.insert(id.clone()) {
            self.added.notify_one();
        }
    }
}

impl Assistant {
    /// Delivers undelivered replies through channels that can send unprompted. It never returns; run it once per process. After a
    /// failure the conversation is tried again after a pause that doubles with each failure.
    ///
    /// Up to [`limits::OUTBOX_CONCURRENT`] conversations are delivered at once: one that waits, for its running turn or for its
    /// platform, holds no other one up.
    pub async fn deliver_outbox(&self, sinks: &OutboxSinks<'_>) {
        let backoff = RetryBackoff::default();
        let mut delivering = HashSet::new();
        let mut deliveries = FuturesUnordered::new();
        loop {
            let waiting = backoff.waiting_at(self.clock().elapsed());
            {
                let mut all = self.0.outbox.conversations();
                let free = limits::OUTBOX_CONCURRENT.saturating_sub(deliveries.len());
                let is_due = |id: &&ConversationId| !waiting.contains(*id) && !delivering.contains(*id);
                for id in all.iter().filter(is_due).take(free).cloned().collect::<Vec<_>>() {
                    all.remove(&id);
                    delivering.insert(id.clone());
                    deliveries.push(async move {
                        let result = self.deliver_conversation(&id, sinks).await;
                        (id, result)
                    });
                }
            }
            let clock = self.clock();
            tokio::select! {
                Some((id, result)) = deliveries.next() => {
                    delivering.remove(&id);
                    match result {
                        Ok(()) => backoff.reset(&id),
                        Err(error) => {
                            let pause = backoff.back_off(&id, self.clock().elapsed()).as_secs();
                            tracing::warn!(conversation = %id, "replies are not delivered: {error}; the next attempt is in {pause} s");
                            self.0.outbox.conversations().insert(id);
                        }
                    }
                }
                () = clock.sleep(clock.deadline(limits::REMINDER_POLL_INTERVAL)) => {}
                () = self.0.outbox.added.notified() => {}
            }
        }
    }

    /// Lets [`deliver_outbox`](Self::deliver_outbox) deliver the undelivered replies of a conversation: its client can be reached again.
    pub fn deliver_soon(&self, id: &ConversationId) {
        self.0.outbox.add(id);
    }

    /// The undelivered replies of a conversation, for a reader that begins without a position. It counts them as delivered when it has
    /// sent them.
    pub(crate) async fn undelivered(&self, id: &ConversationId) -> Result<Vec<StoredReply>, StoreError> {
        self.0.pending_or_expire(id).await
    }
    /// Counts these replies as delivered.
    pub(crate) async fn count_as_delivered(&self, id: &ConversationId, sent: &[StoredReply]) -> bool {
        sent.is_empty() || self.0.mark_sent(id, sent).await
    }
    /// Whether somebody reads a conversation.
    pub(crate) fn has_readers(&self, id: &ConversationId) -> bool {
        self.0.feeds.has_readers(id)
    }

    /// Sends the undelivered replies of a conversation until the sink fails; returns how many were sent. For channels that can send
    /// unprompted.
    ///
    /// # Errors
    /// [`StoreError`] if the outbox cannot be read or updated.
    pub async fn deliver_pending(&self, id: &ConversationId, sink: &mut dyn ReplySink) -> Result<usize, StoreError> {
        let cx = CallContext::new(self.0.clock.clone(), limits::TURN_TIMEOUT);
        let mut done = Vec::new();
        for reply in self.0.store.pending_replies(id).await? {
            if sink.send(full_message(&reply), &cx).await.is_err() {
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

    /// Counts the undelivered replies of a conversation as delivered if somebody reads it, and no channel can send them: the reader has them.
    pub(crate) async fn count_as_read(&self, id: &ConversationId) -> Result<(), StoreError> {
        if self.0.feeds.has_readers(id) {
            let waiting = self.0.store.pending_replies(id).await?;
            self.0.store.mark_delivered(id, waiting.into_iter().map(|reply| reply.id).collect()).await?;
        }
        Ok(())
    }

    async fn deliver_conversation(&self, id: &ConversationId, sinks: &OutboxSinks<'_>) -> Result<(), String> {
        let text = |error: StoreError| error.to_string();
        let conversation = self.conversation(id).await.map_err(text)?;
        let channel = conversation.route;
        let Some(mut sink) = sinks(id, &channel) else { return self.count_as_read(id).await.map_err(text) };
        // A running turn sends its replies first.
        let _turn = self.0.mailboxes.get_or_create(id).turn_lock.clone().lock_owned().await;
        self.deliver_pending(id, &mut *sink).await.map_err(text)?;
        match self.store().pending_replies(id).await.map_err(text)?.as_slice() {
            [] => Ok(()),
            rest => Err(format!("the channel `{channel}` did not take {} of them", rest.len())),
        }
    }
}

impl Inner {
    /// Sends undelivered replies before those of a turn. Returns the replies that were sent, and whether these are all.
    pub(super) async fn send_pending(&self, id: &ConversationId, sink: &mut dyn ReplySink) -> (Vec<StoredReply>, bool) {
        let waiting = match self.pending_or_expire(id).await {
            Ok(waiting) => waiting,
            Err(error) => {
                tracing::warn!(conversation = %id, code = error.code(), "undelivered replies cannot be read: {error}");
                return (Vec::new(), false);
            }
        };
        let cx = CallContext::new(self.clock.clone(), limits::TURN_TIMEOUT);
        let mut sent = Vec::new();
        for reply in waiting {
            if sink.send(full_message(&reply), &cx).await.is_err() {
                return (sent, false);
            }
            sent.push(reply);
        }
        (sent, true)
    }

    /// Marks these replies as delivered; returns whether that was stored. To be called after the commit of the turn that follows
    /// them: a channel may send both in one answer.
    pub(super) async fn mark_sent(&self, id: &ConversationId, sent: &[StoredReply]) -> bool {
        let ids = sent.iter().map(|reply| reply.id.clone()).collect();
        match self.store.mark_delivered(id, ids).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(conversation = %id, code = "S0501", "receipts were not stored: {error}");
                false
            }
        }
    }

    /// The undelivered replies of a conversation. If its last event is older than [`limits::OUTBOX_AGE`], they are dropped.
    pub(super) async fn pending_or_expire(&self, id: &ConversationId) -> Result<Vec<StoredReply>, StoreError> {
        let waiting = self.store.pending_replies(id).await?;
        let Some(latest) = (match waiting.as_slice() {
            [] => None,
            _ => self.store.latest_events(id, 1).await?.pop(),
        }) else {
            return Ok(waiting);
        };
        let age = u64::try_from(self.clock.now().since(latest.at)).unwrap_or_default();
        if u128::from(age) < limits::OUTBOX_AGE.as_micros() {
            return Ok(waiting);
        }
        tracing::info!(conversation = %id, replies = waiting.len(), "undelivered replies are dropped after their time");
        self.store.mark_delivered(id, waiting.into_iter().map(|reply| reply.id).collect()).await?;
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outbox_queue_has_a_limited_number_of_conversations() {
        let waiting = OutboxQueue::default();
        for n in 0..2 * limits::OUTBOX_WAITING {
            waiting.add(&format!("c{n}").as_str().into());
        }
        assert_eq!(waiting.conversations().len(), limits::OUTBOX_WAITING);
    }
}
