//! What happens without a user: reminders at their times, and triggers of programs.
//!
//! A trigger is accepted, result and stored like a message, on a channel that no user can write to: so it is not lost, not
//! done twice, and comes out the same in a replay. Which reminders wait, the conversation knows; the store keeps the earliest
//! time of each conversation, written in the transaction of the turn that changed it. So reminders survive a restart, and of
//! several processes on one store only one fires each.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::{BoxFuture, join_all, ready};
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
    conversation::{DeliveryError, Receipt, ReplyEvent, ReplySink},
    limits,
    store::{InboxMessage, StoreError},
};

/// The channel of triggers in the store.
const TRIGGER_CHANNEL: &str = "(trigger)";
/// Where the trigger stands in the metadata of its message.
const TRIGGER_KEY: &str = "trigger";

/// Makes the sink for what a reminder says: given the conversation and the channel its user last wrote on.
pub type Outlet<'a> = dyn Fn(&ConversationId, &str) -> Box<dyn ReplySink> + Send + Sync + 'a;

/// A sink that leaves every reply in the outbox, for channels that call [`Assistant::flush`] later.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outbox;

impl ReplySink for Outbox {
    fn wants_deltas(&self) -> bool {
        false
    }
    fn send<'a>(&'a mut self, _: ReplyEvent, _: &'a CallContext) -> BoxFuture<'a, Result<Receipt, DeliveryError>> {
        Box::pin(ready(Err(DeliveryError::Temporary("nobody reaches this user now".into()))))
    }
}

/// The first input of a turn.
pub(super) fn first_input(inbound: &InboxMessage) -> InputKind {
    let trigger = (*inbound.message.input_channel == *TRIGGER_CHANNEL)
        .then(|| inbound.message.metadata.get(TRIGGER_KEY))
        .flatten();
    match trigger.and_then(|trigger| serde_json::from_value(trigger.clone()).ok()) {
        Some(trigger) => InputKind::Trigger(trigger),
        None => InputKind::Message(inbound.message.clone()),
    }
}

/// The channel of a message from outside: that of triggers is none of them.
pub(super) fn outer_channel(channel: Arc<str>) -> Arc<str> {
    if *channel == *TRIGGER_CHANNEL { "".into() } else { channel }
}

impl Assistant {
    /// Lets something happen that no user wrote: an intent, or a flow with values for its slots. Guards do not hold it back;
    /// what leads to nothing says nothing. `id` is the key against repetitions; empty when there is none.
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
        // A flow that somebody asks for is a message as any other.
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
        let message =
            UserMessage { text: text.into(), message_id: id, input_channel: TRIGGER_CHANNEL.into(), metadata };
        self.enqueue(IncomingMessage { conversation, message, tenant: "".into(), account: "".into() }, sink, origin)
            .await
    }

    /// Whether somebody may ask for a flow as the conversation stands.
    pub fn may_start(&self, conversation: &Conversation, flow: &FlowId) -> bool {
        segue_engine::dialogue::may_start(self.project(), conversation, flow)
    }

    /// Fires reminders at their times; never ends. One call for each process is enough. Dropping the future stops it; turns
    /// that have begun go on.
    pub async fn timers(&self, outlet: &Outlet<'_>) {
        let clock = self.clock().clone();
        loop {
            let pause = match self.fire_due(outlet).await {
                Ok(next) => pause_until(clock.now(), next),
                Err(error) => {
                    tracing::warn!(code = error.code(), "due reminders cannot be read: {error}");
                    limits::REMINDER_POLL_INTERVAL
                }
            };
            tokio::select! {
                () = clock.sleep(clock.deadline(pause)) => {}
                () = self.0.timer_set.notified() => {}
            }
        }
    }

    /// Fires every reminder that is due, and tells when the next one is.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot say what is due. A reminder that cannot be fired is logged and tried again after a pause
    /// that doubles with each failure; those of other conversations do not wait for it.
    pub async fn fire_due(&self, outlet: &Outlet<'_>) -> Result<Option<Timestamp>, StoreError> {
        loop {
            let held = self.0.timers_held.at(self.clock().elapsed());
            let waiting = self.store().next_reminders(limits::REMINDERS_AT_ONCE.saturating_add(held.len())).await?;
            let now = self.clock().now();
            let next = waiting.iter().map(|(_, due)| *due).find(|due| *due > now);
            let due = waiting.into_iter().filter(|(id, due)| *due <= now && !held.contains(id));
            let fired =
                join_all(due.take(limits::REMINDERS_AT_ONCE).map(|(id, _)| self.fire_or_hold(id, now, outlet))).await;
            if fired.into_iter().all(|moved| !moved) {
                return Ok(next);
            }
        }
    }

    /// Fires what is due in one conversation. Whether anything changed: a reminder was fired, or the conversation is held back.
    async fn fire_or_hold(&self, id: ConversationId, now: Timestamp, outlet: &Outlet<'_>) -> bool {
        match self.fire(&id, now, outlet).await {
            Ok(fired) => {
                self.0.timers_held.release(&id);
                fired > 0
            }
            Err(problem) => {
                let pause = self.0.timers_held.hold(&id, self.clock().elapsed());
                let (code, pause) = (problem.code, pause.as_secs());
                tracing::warn!(conversation = %id, code, "{}; it is tried again in {pause} s", problem.what);
                true
            }
        }
    }

    /// Fires what is due in one conversation; how many reminders.
    async fn fire(&self, id: &ConversationId, now: Timestamp, outlet: &Outlet<'_>) -> Result<usize, Problem> {
        let conversation = self
            .conversation(id)
            .await
            .map_err(|error| Problem { code: error.code(), what: format!("a due reminder cannot be read: {error}") })?;
        let due: Vec<Reminder> = conversation.reminders.iter().take_while(|one| one.due <= now).cloned().collect();
        let channel = conversation.latest_message.map_or_else(|| "".into(), |message| message.input_channel);
        let mut fired = 0;
        for reminder in due {
            // One setting of a reminder is one message: a second process, or a second try, finds it done.
            let key = MessageId::from(format!("reminder/{}", reminder.event_number));
            let sink = outlet(id, &channel);
            let report =
                self.trigger(id.clone(), ExternalTrigger::of(&reminder), key, sink).await.map_err(|error| Problem {
                    code: error.code(),
                    what: format!("reminder `{}` waits: {error}", reminder.name),
                })?;
            fired += usize::from(!report.repeated);
        }
        Ok(fired)
    }
}

/// Why the reminders of a conversation could not be fired.
struct Problem {
    code: &'static str,
    what: String,
}

/// Conversations for which something failed, such as firing a reminder: they are left alone for a while, so that others get their turn.
#[derive(Default)]
pub(super) struct HeldBack(Mutex<HashMap<ConversationId, Hold>>);

#[derive(Clone, Copy)]
struct Hold {
    until: Duration,
    pause: Duration,
}

impl HeldBack {
    fn all(&self) -> MutexGuard<'_, HashMap<ConversationId, Hold>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Those that are held back at a time. One that was not tried again long after its pause has no reminder any more.
    pub(super) fn at(&self, elapsed: Duration) -> HashSet<ConversationId> {
        let mut all = self.all();
        all.retain(|_, hold| hold.until.saturating_add(limits::REMINDER_BACKOFF_MAX) > elapsed);
        all.iter().filter(|(_, hold)| hold.until > elapsed).map(|(id, _)| id.clone()).collect()
    }
    /// Holds a conversation back once more; how long.
    pub(super) fn hold(&self, id: &ConversationId, elapsed: Duration) -> Duration {
        let mut all = self.all();
        let earlier = all.get(id).map(|hold| hold.pause);
        let pause = earlier.map_or(limits::REMINDER_BACKOFF, |pause| (pause * 2).min(limits::REMINDER_BACKOFF_MAX));
        all.insert(id.clone(), Hold { until: elapsed.saturating_add(pause), pause });
        pause
    }
    pub(super) fn release(&self, id: &ConversationId) {
        self.all().remove(id);
    }
}

/// How long to wait for `next`; never long enough to miss what another process sets, or a clock that jumps.
fn pause_until(now: Timestamp, next: Option<Timestamp>) -> Duration {
    let micros = next.and_then(|next| u64::try_from(next.since(now)).ok());
    micros.map_or(limits::REMINDER_POLL_INTERVAL, Duration::from_micros).min(limits::REMINDER_POLL_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_after_a_failure_doubles_up_to_its_limit_and_begins_anew_after_a_success() {
        let (held, id) = (HeldBack::default(), ConversationId::from("c"));
        let mut now = Duration::ZERO;
        let mut pauses = Vec::new();
        for _ in 0..10 {
            let pause = held.hold(&id, now);
            assert!(held.at(now).contains(&id));
            now += pause;
            assert!(held.at(now).is_empty());
            pauses.push(pause);
        }
        assert_eq!(pauses.first(), Some(&limits::REMINDER_BACKOFF));
        assert_eq!(pauses.get(1), Some(&(limits::REMINDER_BACKOFF * 2)));
        assert_eq!(pauses.last(), Some(&limits::REMINDER_BACKOFF_MAX));
        held.release(&id);
        assert_eq!(held.hold(&id, now), limits::REMINDER_BACKOFF);
        // One that is not tried any more is forgotten.
        assert!(held.at(now + 2 * limits::REMINDER_BACKOFF_MAX).is_empty() && held.all().is_empty());
    }
}
