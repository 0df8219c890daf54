//! Accept: stores a message or recognises a duplicate, and waits until the turn may run.

use std::{
    pin::pin,
    sync::{Arc, Weak, atomic::Ordering},
    task::Poll,
};

use segue_engine::{ids::ConversationId, project::WhileBusy};
use tokio::{
    sync::{MutexGuard, oneshot},
    task::JoinHandle,
};

use super::{
    AcceptedMessage,
    deliver::{full_message, last_events},
};
use crate::{
    context::CallContext,
    conversation::{ReplySink, TurnEvent},
    failpoint, limits,
    runtime::{
        Assistant, IncomingMessage, Inner, ReceiveError, TurnReport,
        admission::{AbandonGuard, AdmissionPermit},
        mailbox::{CachedConversation, Mailbox},
    },
    store::{AcceptOutcome, InboxMessage, StoreError, StoredReply, TurnNumber},
};

/// The origin of a message.
pub(in crate::runtime) enum Origin<'a> {
    /// A caller; its open turns are limited. `None`: the conversation counts as the caller.
    Caller(Option<&'a str>),
    /// The assistant itself, for example a reminder. Counts as an open turn and is never rejected.
    Own,
}

/// A message that is stored: its turn runs, or will run, whatever becomes of this value.
#[derive(Debug)]
pub struct Accepted {
    turn: TurnNumber,
    is_duplicate: bool,
    task: JoinHandle<Result<TurnReport, ReceiveError>>,
    permit: Weak<AdmissionPermit>,
}

impl Accepted {
    /// The number of the turn.
    pub fn turn(&self) -> TurnNumber {
        self.turn
    }
    /// Whether the message was accepted before, so that it has no turn of its own.
    pub fn is_duplicate(&self) -> bool {
        self.is_duplicate
    }
    /// Waits for the turn. *Cancellation*: the turn continues; it counts as abandoned by its caller, so that its place in the queue of an
    /// overloaded assistant is the last.
    ///
    /// # Errors
    /// [`ReceiveError`] if the turn could not be finished.
    pub async fn finished(self) -> Result<TurnReport, ReceiveError> {
        let guard = self.permit.upgrade().map(|permit| AbandonGuard::new(&permit));
        let report = self.task.await.unwrap_or(Err(ReceiveError::TurnFailed));
        if let Some(guard) = guard {
            guard.disarm();
        }
        report
    }
}

/// What is known of a message once it is stored.
pub(in crate::runtime) struct Acceptance {
    turn: TurnNumber,
    is_duplicate: bool,
}

/// A message in the mailbox of its conversation. Its turn runs in a task.
pub(in crate::runtime) struct Enqueued {
    task: JoinHandle<Result<TurnReport, ReceiveError>>,
    guard: AbandonGuard,
    permit: Weak<AdmissionPermit>,
}

impl Enqueued {
    /// Waits for the turn.
    pub(in crate::runtime) async fn finished(self) -> Result<TurnReport, ReceiveError> {
        let report = self.task.await.unwrap_or(Err(ReceiveError::TurnFailed));
        self.guard.disarm();
        report
    }
}

impl Assistant {
    /// [`enqueue`](Self::enqueue), and waits until the message is stored.
    pub(in crate::runtime) async fn enqueue_and_accept(
        &self,
        incoming: IncomingMessage,
        sink: Box<dyn ReplySink>,
        origin: Origin<'_>,
    ) -> Result<Accepted, ReceiveError> {
        let (stored, acceptance) = oneshot::channel();
        let Enqueued { task, guard, permit } = self.enqueue(incoming, sink, origin, Some(stored))?;
        let accepted = match acceptance.await {
            Ok(Acceptance { turn, is_duplicate }) => Ok(Accepted { turn, is_duplicate, task, permit }),
            // The task has ended without storing it.
            Err(_) => {
                Err(task.await.unwrap_or(Err(ReceiveError::TurnFailed)).err().unwrap_or(ReceiveError::TurnFailed))
            }
        };
        guard.disarm();
        accepted
    }

    /// Puts a message into the mailbox of its conversation and runs its turn in a task. `stored` is told when the message is stored.
    pub(in crate::runtime) fn enqueue(
        &self,
        incoming: IncomingMessage,
        sink: Box<dyn ReplySink>,
        origin: Origin<'_>,
        stored: Option<oneshot::Sender<Acceptance>>,
    ) -> Result<Enqueued, ReceiveError> {
        if self.0.tasks.is_closed() {
            return Err(ReceiveError::ShuttingDown);
        }
        let this = self.clone();
        // First, because a rejected message must not create a mailbox.
        let permit = self.0.admission.admit(matches!(origin, Origin::Caller(_)))?;
        let mailbox = self.0.mailboxes.get_or_create(&incoming.conversation);
        let waiting = limits::MAILBOX.saturating_sub(mailbox.capacity.available_permits());
        let mailbox_permit =
            mailbox.capacity.clone().try_acquire_owned().map_err(|_| ReceiveError::Busy("its mailbox is full"))?;
        if let Origin::Caller(caller) = origin {
            permit.assign_caller(caller.unwrap_or(incoming.conversation.as_str()), waiting)?;
        }
        let (guard, weak_permit) = (AbandonGuard::new(&permit), Arc::downgrade(&permit));
        let while_busy = incoming.while_busy.unwrap_or_default();
        let mut inbound = incoming.accepted(self.0.clock.now(), (self.0.seed_source)());
        inbound.message.holds_writes = sink.write_gate().is_some_and(|gate| !gate.is_open());
        // Boxed, because the future of a turn is large and would be copied several times.
        let task = self.0.tasks.spawn(Box::pin(async move {
            let report = this.0.receive(&mailbox, (&inbound, while_busy), sink, stored, &permit).await;
            drop((mailbox_permit, permit));
            report
        }));
        Ok(Enqueued { task, guard, permit: weak_permit })
    }
}

/// Whether the client has ended its request before it counted as confirmed.
fn is_taken_back(sink: &dyn ReplySink) -> bool {
    sink.write_gate().is_some_and(|gate| gate.is_closed())
}

impl Inner {
    /// Stores a message that has a place in its mailbox, and runs its turn.
    async fn receive(
        &self,
        mailbox: &Mailbox,
        (inbound, while_busy): (&InboxMessage, WhileBusy),
        mut sink: Box<dyn ReplySink>,
        stored: Option<oneshot::Sender<Acceptance>>,
        permit: &AdmissionPermit,
    ) -> Result<TurnReport, ReceiveError> {
        let accept_lock = match mailbox.accept_lock.try_lock() {
            Ok(lock) => lock,
            Err(_) => {
                let cx = CallContext::new(self.clock.clone(), limits::ACCEPT_TIMEOUT);
                let busy = |_| ReceiveError::Busy("the messages before it are not stored yet");
                cx.wait(mailbox.accept_lock.lock()).await.map_err(busy)?
            }
        };
        let (id, message_id) = (&inbound.conversation, &inbound.message.message_id);
        if while_busy == WhileBusy::Reject && self.running_turns.is_busy(id, message_id) {
            return Err(ReceiveError::Busy("a message before it is processed"));
        }
        failpoint::hit("C03");
        let accepted = match self.store.accept(inbound.clone()).await {
            Ok(accepted) => accepted,
            Err(error) => {
                // It may be stored nevertheless: then its turn precedes those of later messages.
                mailbox.is_stale.store(true, Ordering::SeqCst);
                return Err(error.into());
            }
        };
        let (AcceptOutcome::New(turn) | AcceptOutcome::Running(turn) | AcceptOutcome::Answered(turn, _)) = accepted;
        if while_busy == WhileBusy::Interrupt && matches!(accepted, AcceptOutcome::New(_)) {
            // Its own turn has not begun.
            self.running_turns.interrupt(id, None);
        }
        if let Some(stored) = stored {
            let is_duplicate = !matches!(accepted, AcceptOutcome::New(_));
            // Fails if nobody waits any more; the turn runs nevertheless.
            let _ = stored.send(Acceptance { turn, is_duplicate });
        }
        let result = match accepted {
            AcceptOutcome::Answered(turn, replies) => {
                drop(accept_lock);
                // Nothing to run, so it waits for no other turn. What is undelivered is known when its own turn has stored its receipts.
                let is_delivering = self.running_turns.is_running(id, turn);
                let receipts = match is_delivering && !sink.repeats_delivered_replies() {
                    true => Some(mailbox.turn_lock.lock().await),
                    false => None,
                };
                self.send_events(&mut *sink, [TurnEvent::Started { turn, at: self.clock.now() }]).await;
                let resent = self.resend_replies(&inbound.conversation, turn, replies, &mut *sink).await;
                drop(receipts);
                resent
            }
            accepted => self.run_accepted(mailbox, inbound, (accepted, accept_lock), &mut *sink, permit).await,
        };
        let result = result.map_err(ReceiveError::after_accept);
        self.send_events(&mut *sink, last_events(&result)).await;
        result
    }

    /// Sends events that are no replies to the sink of a turn.
    async fn send_events(&self, sink: &mut dyn ReplySink, events: impl IntoIterator<Item = TurnEvent>) {
        let cx = CallContext::new(self.clock.clone(), limits::TURN_TIMEOUT);
        for event in events {
            // A client that has left sees nothing of it.
            let _ = sink.send(event, &cx).await;
        }
    }

    /// Runs the turn of a stored message when those before it are over; undelivered replies of earlier turns are sent first. `accept_lock` is
    /// released when the turn has its place in the queue.
    async fn run_accepted(
        &self,
        mailbox: &Mailbox,
        inbound: &InboxMessage,
        (accepted, accept_lock): (AcceptOutcome, MutexGuard<'_, ()>),
        sink: &mut dyn ReplySink,
        permit: &AdmissionPermit,
    ) -> Result<TurnReport, ReceiveError> {
        let id = &inbound.conversation;
        let epoch = mailbox.epoch.load(Ordering::SeqCst);
        let mut queue = pin!(mailbox.turn_lock.clone().lock_owned());
        // The first poll enters the queue of the lock; only after it the next message may be accepted.
        let first = futures::poll!(&mut queue);
        drop(accept_lock);
        let (AcceptOutcome::New(turn) | AcceptOutcome::Running(turn) | AcceptOutcome::Answered(turn, _)) = accepted;
        self.send_events(sink, [TurnEvent::Started { turn, at: self.clock.now() }]).await;
        let mut state = match first {
            Poll::Ready(state) => state,
            // Limited by the capacity of the mailbox and the time limit of a turn. No timeout here: the message is accepted.
            Poll::Pending => queue.await,
        };
        if epoch != mailbox.epoch.load(Ordering::SeqCst) {
            // The conversation was erased meanwhile; the turn number now belongs to another turn.
            return Err(StoreError::TurnNotOpen { conversation: id.clone(), turn: turn.0 }.into());
        }
        if mailbox.is_stale.swap(false, Ordering::SeqCst) {
            *state = None;
        }
        failpoint::hit("C05");
        permit.begin().await?;
        if matches!(accepted, AcceptOutcome::New(TurnNumber::FIRST)) {
            // Nothing is stored, so nothing needs to be loaded, and a cached conversation was erased. If this assumption is wrong, the
            // version check of the commit fails and the next attempt loads.
            *state = Some(CachedConversation::new(id.clone()));
        } else if state.is_none() {
            // Boxed like `resume_accepted` below: it contains the future of a whole turn, and few messages need it.
            Box::pin(self.finish_open_turns(&mut state, id, turn)).await?;
        }
        if let AcceptOutcome::Running(turn) = accepted {
            return Box::pin(self.resume_accepted(&mut state, turn, inbound, sink)).await;
        }
        let mut earlier = Vec::new();
        if sink.accepts_earlier_replies() && state.as_ref().is_none_or(|cached| cached.may_have_pending_replies) {
            let (sent, has_all) = Box::pin(self.send_pending(id, sink)).await;
            earlier = sent;
            if let (true, Some(cached)) = (has_all, state.as_mut()) {
                cached.may_have_pending_replies = false;
            }
        }
        let mut report = self.run_until_stored(&mut state, AcceptedMessage::new(turn, inbound), None, sink).await?;
        // What a client got before it ended its request, it does not show.
        if is_taken_back(sink)
            && let Some(cached) = state.as_mut()
        {
            cached.may_have_pending_replies |= !earlier.is_empty();
        } else if !earlier.is_empty() {
            if let (false, Some(cached)) = (self.mark_sent(id, &earlier).await, state.as_mut()) {
                cached.may_have_pending_replies = true;
            }
            report.earlier_replies = earlier;
        }
        Ok(report)
    }

    /// Handles a message that was accepted earlier: its turn ran meanwhile, or the process of that turn died.
    async fn resume_accepted(
        &self,
        state: &mut Option<Box<CachedConversation>>,
        turn: TurnNumber,
        inbound: &InboxMessage,
        sink: &mut dyn ReplySink,
    ) -> Result<TurnReport, ReceiveError> {
        let id = &inbound.conversation;
        if let Some(replies) = self.store.replies_of(id, turn).await? {
            return self.resend_replies(id, turn, replies, sink).await;
        }
        match self.store.unfinished_turns_in(id, turn..TurnNumber(turn.0 + 1)).await?.pop() {
            Some(open) => {
                let accepted = AcceptedMessage::new(turn, &open.inbound);
                self.run_until_stored(state, accepted, Some(open.journal), sink).await
            }
            None => Err(ReceiveError::TurnFailed),
        }
    }

    /// Answers a duplicate message with the stored replies: all of them, or those that are undelivered, as the sink wants it.
    async fn resend_replies(
        &self,
        id: &ConversationId,
        turn: TurnNumber,
        replies: Vec<StoredReply>,
        sink: &mut dyn ReplySink,
    ) -> Result<TurnReport, ReceiveError> {
        let cx = CallContext::new(self.clock.clone(), limits::TURN_TIMEOUT);
        let mut done: Vec<Arc<str>> = Vec::new();
        let undelivered = match sink.repeats_delivered_replies() {
            true => None,
            false => Some(self.store.pending_replies(id).await?),
        };
        let is_due = |reply: &&StoredReply| {
            undelivered.as_ref().is_none_or(|undelivered| undelivered.iter().any(|one| one.id == reply.id))
        };
        for reply in replies.iter().filter(is_due) {
            if sink.send(full_message(reply), &cx).await.is_ok() {
                done.push(reply.id.clone());
            }
        }
        if !done.is_empty()
            && let Err(error) = self.store.mark_delivered(id, done).await
        {
            tracing::warn!(conversation = %id, turn = turn.0, code = "S0501", "receipts were not stored: {error}");
        }
        Ok(TurnReport { is_duplicate: true, ..TurnReport::new(turn, replies) })
    }
}
