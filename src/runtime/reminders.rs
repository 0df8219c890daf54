//! Turns without a user message: reminders at their times, and external triggers.
//!
//! A trigger is accepted and stored like a message, on a channel that no user can write to. So it is not lost, it runs once, and a
//! replay gives the same events. The conversation contains its reminders; the store keeps the earliest time of each conversation,
//! written in the commit of the turn that changed it. So reminders survive a restart, and of several processes only one fires each.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures::future::join_all;
use segue_engine::{
    conversation::{Conversation, ExternalTrigger, Reminder, TriggerAction, UserMessage},
    dialogue::InputKind,
    ids::{ConversationId, FlowId, MessageId},
    time::Timestamp,
};
use serde_json::{Map, Value as Json};

use super::{Assistant, IncomingMessage, ReceiveError, TurnReport, turn::Origin};
use crate::{
    context::CallContext,
    conversation::{DeliveryError, Receipt, ReplySink, TurnEvent},
    limits,
    store::{InboxMessage, StoreError},
};

/// The input channel of stored triggers.
const TRIGGER_CHANNEL: &str = "(trigger)";
/// The metadata key of the trigger in its message.
const TRIGGER_KEY: &str = "trigger";

/// Creates the sink for the replies of a reminder. Arguments: the conversation and the channel that accepted its last message.
pub type ReminderSinks<'a> = dyn Fn(&ConversationId, &str) -> Box<dyn ReplySink> + Send + Sync + 'a;

/// A sink that leaves all replies in the outbox; [`Assistant::deliver_pending`] delivers them later.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutboxSink;

#[async_trait]
impl ReplySink for OutboxSink {
    fn wants_deltas(&self) -> bool {
        false
    }
    async fn send(&mut self, _: TurnEvent, _: &CallContext) -> Result<Receipt, DeliveryError> {
        Err(DeliveryError::Temporary("the user is not connected".into()))
    }
}

/// The message of a user; `None` if the turn has another cause.
pub(super) fn user_message(inbound: &InboxMessage) -> Option<&UserMessage> {
    (*inbound.message.input_channel != *TRIGGER_CHANNEL).then_some(&inbound.message)
}

/// The first input of a turn.
pub(super) fn initial_input(inbound: &InboxMessage) -> InputKind {
    let trigger = match user_message(inbound) {
        Some(_) => None,
        None => inbound.message.metadata.get(TRIGGER_KEY),
    };
    match trigger.and_then(|trigger| serde_json::from_value(trigger.clone()).ok()) {
        Some(trigger) => InputKind::Trigger(trigger),
        None => InputKind::Message(inbound.message.clone()),
    }
}

/// Removes the channel name of a caller's message if it is that of triggers, which is reserved.
pub(super) fn strip_trigger_channel(incoming: &mut IncomingMessage) {
    incoming.input_channel.take_if(|channel| **channel == *TRIGGER_CHANNEL);
}

impl Assistant {
    /// Triggers an intent, or a flow with values for its slots, without a message of the user. Flow guards do not apply, except for
    /// [`TriggerAction::StartIfAllowed`]. A trigger without effect sends no reply. `id` is the deduplication key; empty for none.
    ///
    /// # Errors
    /// As [`Assistant::receive`].
    pub async fn trigger(
        &self,
        conversation: ConversationId,
        trigger: ExternalTrigger,
        id: MessageId,
        sink: Box<dyn ReplySink>,
    ) -> Result<TurnReport, ReceiveError> {
        // A flow that a caller starts is limited like a message.
        let origin =
            if matches!(trigger.action, TriggerAction::StartIfAllowed(_)) { Origin::Caller(None) } else { Origin::Own };
        let text = match &trigger.action {
            TriggerAction::Intent(intent) => format!("EXTERNAL: {intent}"),
            TriggerAction::Flow(flow) | TriggerAction::StartIfAllowed(flow) => format!("EXTERNAL: start flow {flow}"),
            TriggerAction::Cancel { .. } => "EXTERNAL: cancel".to_owned(),
            TriggerAction::Continue(agent) => format!("EXTERNAL: continue agent {agent}"),
            TriggerAction::Note { about } => format!("EXTERNAL: {about}"),
        };
        let metadata = Map::from_iter([(TRIGGER_KEY.to_owned(), serde_json::to_value(trigger).unwrap_or(Json::Null))]);
        let incoming = IncomingMessage::new(conversation, text).message_id(id).input_channel(TRIGGER_CHANNEL);
        self.enqueue(incoming.metadata(metadata), sink, origin, None)?.finished().await
    }

    /// Whether a caller may start the flow in this state of the conversation.
    pub fn may_start(&self, conversation: &Conversation, flow: &FlowId) -> bool {
        segue_engine::dialogue::may_start(&self.project(), conversation, flow)
    }

    /// Fires reminders at their times. It never returns; run it once per process. *Cancellation*: turns that have begun continue.
    pub async fn run_reminders(&self, sinks: &ReminderSinks<'_>) {
        let clock = self.clock().clone();
        loop {
            let pause = match self.fire_due_reminders(sinks).await {
                Ok(next) => pause_until(clock.now(), next),
                Err(error) => {
                    tracing::warn!(code = error.code(), "due reminders cannot be read: {error}");
                    limits::REMINDER_POLL_INTERVAL
                }
            };
            tokio::select! {
                () = clock.sleep(clock.deadline(pause)) => {}
                () = self.0.reminders_changed.notified() => {}
            }
        }
    }

    /// Fires all due reminders and returns the time of the next one.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot list the reminders. A reminder that fails is logged and tried again after a pause that doubles
    /// with each failure; other conversations are not delayed.
    pub async fn fire_due_reminders(&self, sinks: &ReminderSinks<'_>) -> Result<Option<Timestamp>, StoreError> {
        loop {
            let backoff = self.0.reminder_backoff.waiting_at(self.clock().elapsed());
            let waiting = self.store().next_reminders(limits::REMINDERS_AT_ONCE.saturating_add(backoff.len())).await?;
            let now = self.clock().now();
            let next = waiting.iter().map(|(_, due)| *due).find(|due| *due > now);
            let due = waiting.into_iter().filter(|(id, due)| *due <= now && !backoff.contains(id));
            let fired =
                join_all(due.take(limits::REMINDERS_AT_ONCE).map(|(id, _)| self.fire_or_back_off(id, now, sinks)))
                    .await;
            if fired.into_iter().all(|has_changed| !has_changed) {
                return Ok(next);
            }
        }
    }

    /// Fires the due reminders of one conversation. Returns whether a reminder was fired or the conversation backs off.
    async fn fire_or_back_off(&self, id: ConversationId, now: Timestamp, sinks: &ReminderSinks<'_>) -> bool {
        match self.fire_reminders(&id, now, sinks).await {
            Ok(fired) => {
                self.0.reminder_backoff.reset(&id);
                fired > 0
            }
            Err(error) => {
                let pause = self.0.reminder_backoff.back_off(&id, self.clock().elapsed());
                let (code, pause) = (error.code, pause.as_secs());
                tracing::warn!(conversation = %id, code, "{}; the next attempt is in {pause} s", error.message);
                true
            }
        }
    }

    /// Fires the due reminders of one conversation; returns how many.
    async fn fire_reminders(
        &self,
        id: &ConversationId,
        now: Timestamp,
        sinks: &ReminderSinks<'_>,
    ) -> Result<usize, FireError> {
        let conversation = self.conversation(id).await.map_err(|error| FireError {
            code: error.code(),
            message: format!("a due reminder cannot be read: {error}"),
        })?;
        let due: Vec<Reminder> = conversation.reminders.iter().take_while(|one| one.due <= now).cloned().collect();
        let channel = conversation.route;
        let mut fired = 0;
        for reminder in due {
            // The key is unique for one scheduling of a reminder: a second process or a retry finds a duplicate.
            let key = MessageId::from(format!("reminder/{}", reminder.event_number));
            let sink = sinks(id, &channel);
            let report =
                self.trigger(id.clone(), ExternalTrigger::of(&reminder), key, sink).await.map_err(|error| {
                    FireError {
                        code: error.code(),
                        message: format!("reminder `{}` was not fired: {error}", reminder.name),
                    }
                })?;
            fired += usize::from(!report.is_duplicate);
        }
        Ok(fired)
    }
}

/// Why the reminders of a conversation were not fired.
struct FireError {
    code: &'static str,
    message: String,
}

/// Conversations whose last attempt failed, with exponential backoff: one that fails does not delay others. Times are monotonic.
#[derive(Default)]
pub(super) struct RetryBackoff(Mutex<HashMap<ConversationId, Backoff>>);

#[derive(Clone, Copy)]
struct Backoff {
    until: Duration,
    pause: Duration,
}

impl RetryBackoff {
    fn lock(&self) -> MutexGuard<'_, HashMap<ConversationId, Backoff>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The conversations that wait at this time. Old entries are removed.
    pub(super) fn waiting_at(&self, elapsed: Duration) -> HashSet<ConversationId> {
        let mut all = self.lock();
        all.retain(|_, backoff| backoff.until.saturating_add(limits::REMINDER_BACKOFF_MAX) > elapsed);
        all.iter().filter(|(_, backoff)| backoff.until > elapsed).map(|(id, _)| id.clone()).collect()
    }
    /// Doubles the pause of a conversation, up to [`limits::REMINDER_BACKOFF_MAX`], and returns it.
    pub(super) fn back_off(&self, id: &ConversationId, elapsed: Duration) -> Duration {
        let mut all = self.lock();
        let earlier = all.get(id).map(|backoff| backoff.pause);
        let pause = earlier.map_or(limits::REMINDER_BACKOFF, |pause| (pause * 2).min(limits::REMINDER_BACKOFF_MAX));
        all.insert(id.clone(), Backoff { until: elapsed.saturating_add(pause), pause });
        pause
    }
    pub(super) fn reset(&self, id: &ConversationId) {
        self.lock().remove(id);
    }
}

/// The pause until `next`; at most [`limits::REMINDER_POLL_INTERVAL`], because another process or a change of the wall clock may make
/// a reminder due earlier.
fn pause_until(now: Timestamp, next: Option<Timestamp>) -> Duration {
    let micros = next.and_then(|next| u64::try_from(next.since(now)).ok());
    micros.map_or(limits::REMINDER_POLL_INTERVAL, Duration::from_micros).min(limits::REMINDER_POLL_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_backoff_doubles_up_to_its_limit_and_starts_again_after_a_success() {
        let (backoff, id) = (RetryBackoff::default(), ConversationId::from("c"));
        let mut now = Duration::ZERO;
        let mut pauses = Vec::new();
        for _ in 0..10 {
            let pause = backoff.back_off(&id, now);
            assert!(backoff.waiting_at(now).contains(&id));
            now += pause;
            assert!(backoff.waiting_at(now).is_empty());
            pauses.push(pause);
        }
        assert_eq!(pauses.first(), Some(&limits::REMINDER_BACKOFF));
        assert_eq!(pauses.get(1), Some(&(limits::REMINDER_BACKOFF * 2)));
        assert_eq!(pauses.last(), Some(&limits::REMINDER_BACKOFF_MAX));
        backoff.reset(&id);
        assert_eq!(backoff.back_off(&id, now), limits::REMINDER_BACKOFF);
        // An entry without further attempts is removed.
        assert!(backoff.waiting_at(now + 2 * limits::REMINDER_BACKOFF_MAX).is_empty() && backoff.lock().is_empty());
    }
}
