//! Replies that were stored and that no channel has: what a reminder said, what a recovered turn said, and what was said after a client
//! had left. A channel that reaches its users by itself is given them at once; on the others they go out with the next answer. What
//! nobody has asked for in [`limits::OUTBOX_AGE`] is given up.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use segue_engine::ids::ConversationId;
use tokio::sync::Notify;

use super::{Assistant, Inner, reminders::HeldBack};
use crate::{
    context::CallContext,
    conversation::{ReplyEvent, ReplySink},
    limits,
    store::{StoreError, StoredReply},
};

/// Makes the sink for replies that wait: given the conversation and the channel its user last wrote on. `None` where that channel
/// cannot reach anybody by itself.
pub type Reach<'a> = dyn Fn(&ConversationId, &str) -> Option<Box<dyn ReplySink>> + Send + Sync + 'a;

/// Conversations with replies that may wait for a channel.
#[derive(Default)]
pub(super) struct Waiting {
    all: Mutex<HashSet<ConversationId>>,
    rings: Notify,
}

impl Waiting {
    fn all(&self) -> MutexGuard<'_, HashSet<ConversationId>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// One more. Those beyond the limit wait for their next answer, or for the next start.
    pub(super) fn add(&self, id: &ConversationId) {
        let mut all = self.all();
        if all.len() < limits::OUTBOX_WAITING && all.insert(id.clone()) {
            self.rings.notify_one();
        }
    }
}

impl Assistant {
    /// Delivers replies that wait, through channels that reach their users by themselves; never ends. One call for each process is
    /// enough. A conversation whose channel fails is tried again after a pause that doubles with each failure.
    pub async fn deliveries(&self, reach: &Reach<'_>) {
        let held = HeldBack::default();
        loop {
            let resting = held.at(self.clock().elapsed());
            let due: Vec<_> = {
                let mut all = self.0.outbox.all();
                let due = all.iter().filter(|id| !resting.contains(*id)).cloned().collect::<Vec<_>>();
                all.retain(|id| resting.contains(id));
                due
            };
            for id in due {
                match self.deliver_waiting(&id, reach).await {
                    Ok(()) => held.release(&id),
                    Err(problem) => {
                        let pause = held.hold(&id, self.clock().elapsed()).as_secs();
                        tracing::warn!(conversation = %id, "replies wait: {problem}; it is tried again in {pause} s");
                        self.0.outbox.all().insert(id);
                    }
                }
            }
            let clock = self.clock();
            tokio::select! {
                () = clock.sleep(clock.deadline(limits::REMINDER_POLL_INTERVAL)) => {}
                () = self.0.outbox.rings.notified() => {}
            }
        }
    }

    async fn deliver_waiting(&self, id: &ConversationId, reach: &Reach<'_>) -> Result<(), String> {
        let told = |error: StoreError| error.to_string();
        let conversation = self.conversation(id).await.map_err(told)?;
        let channel = conversation.latest_message.map_or_else(|| "".into(), |message| message.input_channel);
        let Some(mut sink) = reach(id, &channel) else { return Ok(()) };
        // A turn that runs says its own words first.
        let _turn = self.0.mailboxes.of(id).turn_lock.clone().lock_owned().await;
        self.flush(id, &mut *sink).await.map_err(told)?;
        match self.store().pending_replies(id).await.map_err(told)?.as_slice() {
            [] => Ok(()),
            left => Err(format!("the channel `{channel}` did not take {} of them", left.len())),
        }
    }
}

impl Inner {
    /// Sends the replies that wait, before those of a turn: what the sink took, and whether that is all.
    pub(super) async fn send_earlier(&self, id: &ConversationId, sink: &mut dyn ReplySink) -> (Vec<StoredReply>, bool) {
        let waiting = match self.unexpired(id).await {
            Ok(waiting) => waiting,
            Err(error) => {
                tracing::warn!(conversation = %id, code = error.code(), "replies that wait cannot be read: {error}");
                return (Vec::new(), false);
            }
        };
        let cx = CallContext::new(self.clock.clone(), limits::TURN_TIMEOUT);
        let mut sent = Vec::new();
        for reply in waiting {
            let message = Box::new(reply.reply.clone());
            let piece = ReplyEvent::Message { id: reply.id.clone(), message, kind: reply.kind };
            if sink.send(piece, &cx).await.is_err() {
                return (sent, false);
            }
            sent.push(reply);
        }
        (sent, true)
    }

    /// Notes that they were sent; only once the turn after them is stored, for the answer may carry both. Whether none waits any more.
    pub(super) async fn has_sent_earlier(&self, id: &ConversationId, sent: &[StoredReply]) -> bool {
        let ids = sent.iter().map(|reply| reply.id.clone()).collect();
        match self.store.mark_delivered(id, ids).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(conversation = %id, code = "S0501", "receipts were not stored: {error}");
                false
            }
        }
    }

    /// The replies of a conversation that wait. When nothing has happened in it for long, they are given up instead.
    pub(super) async fn unexpired(&self, id: &ConversationId) -> Result<Vec<StoredReply>, StoreError> {
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
        tracing::info!(conversation = %id, replies = waiting.len(), "replies that nobody asked for are given up");
        self.store.mark_delivered(id, waiting.into_iter().map(|reply| reply.id).collect()).await?;
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_conversations_wait_for_a_channel() {
        let waiting = Waiting::default();
        for n in 0..2 * limits::OUTBOX_WAITING {
            waiting.add(&format!("c{n}").as_str().into());
        }
        assert_eq!(waiting.all().len(), limits::OUTBOX_WAITING);
    }
}
