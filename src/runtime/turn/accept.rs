//! A message is stored, or recognised as a repeat, and waits for its turn.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering},
    task::Poll,
};

use segue_engine::ids::ConversationId;

use super::AcceptedMessage;
use crate::{
    context::CallContext,
    conversation::{ReplyEvent, ReplySink},
    failpoint, limits,
    runtime::{
        Assistant, IncomingMessage, Inner, ReceiveError, TurnReport,
        admission::{CallerWatch, Place},
        mailbox::{CachedConversation, Mailbox},
    },
    store::{AcceptOutcome, InboxMessage, StoreError, StoredReply, TurnNumber},
};

/// Where a message comes from.
pub(in crate::runtime) enum Origin<'a> {
    /// A caller, which the limits hold back; where it has no name of its own, the conversation is the caller.
    Caller(Option<&'a str>),
    /// The assistant itself, such as a reminder: it is counted and never refused.
    Own,
}

impl Assistant {
    /// Takes a message into the mailbox of its conversation, and runs its turn in a task of its own.
    pub(in crate::runtime) async fn enqueue(
        &self,
        incoming: IncomingMessage,
        sink: Box<dyn ReplySink>,
        origin: Origin<'_>,
    ) -> Result<TurnReport, ReceiveError> {
        if self.0.tasks.is_closed() {
            return Err(ReceiveError::Closing);
        }
        let this = self.clone();
        // First of all: what is refused here leaves no trace, not even in the memory of conversations.
        let place = self.0.admission.admit(matches!(origin, Origin::Caller(_)))?;
        let mailbox = self.0.mailboxes.of(&incoming.conversation);
        let waiting = limits::MAILBOX.saturating_sub(mailbox.capacity.available_permits());
        let seat =
            mailbox.capacity.clone().try_acquire_owned().map_err(|_| ReceiveError::Busy("its mailbox is full"))?;
        if let Origin::Caller(caller) = origin {
            place.claim(caller.unwrap_or(incoming.conversation.as_str()), waiting)?;
        }
        let caller = CallerWatch::of(&place);
        let inbound = self.0.inbound(incoming);
        // Boxed: the future of a turn is large, and would be moved several times on its way to the runtime.
        let turn = self.0.tasks.spawn(Box::pin(async move {
            let report = this.0.receive(&mailbox, &inbound, sink, &place).await;
            drop((seat, place));
            report
        }));
        let report = turn.await.unwrap_or(Err(ReceiveError::Broken));
        caller.answered();
        report
    }
}

impl Inner {
    /// The turn of a message that has a place in the queue of its conversation.
    async fn receive(
        &self,
        mailbox: &Mailbox,
        inbound: &InboxMessage,
        mut sink: Box<dyn ReplySink>,
        place: &Place,
    ) -> Result<TurnReport, ReceiveError> {
        let accept_lock = match mailbox.accept_lock.try_lock() {
            Ok(lock) => lock,
            Err(_) => {
                let cx = CallContext::new(self.clock.clone(), limits::ACCEPT_TIMEOUT);
                let busy = |_| ReceiveError::Busy("the messages before it are not stored yet");
                cx.wait(mailbox.accept_lock.lock()).await.map_err(busy)?
            }
        };
        failpoint::hit("C03");
        let accepted = match self.store.accept(inbound.clone()).await {
            Ok(AcceptOutcome::Answered(turn, replies)) => {
                // Nothing is left to do, so it waits for no turn.
                drop(accept_lock);
                sink.on_accepted();
                return self.resend_replies(&inbound.conversation, turn, replies, &mut *sink).await;
            }
            Ok(accepted) => accepted,
            Err(error) => {
                // It may be stored all the same: then its turn comes before those of later messages.
                mailbox.stale.store(true, Ordering::SeqCst);
                return Err(error.into());
            }
        };
        sink.on_accepted();
        let epoch = mailbox.epoch.load(Ordering::SeqCst);
        let mut queue = pin!(mailbox.turn_lock.clone().lock_owned());
        // One poll takes the place in the queue; only then may the next message be accepted.
        let first = futures::poll!(&mut queue);
        drop(accept_lock);
        let mut state = match first {
            Poll::Ready(state) => state,
            // Bounded by the places of the queue and by the bounds of each turn. It is never given up: the message is accepted.
            Poll::Pending => queue.await,
        };
        let (AcceptOutcome::New(turn) | AcceptOutcome::Running(turn) | AcceptOutcome::Answered(turn, _)) = accepted;
        if epoch != mailbox.epoch.load(Ordering::SeqCst) {
            // The conversation was erased meanwhile: what its number names now is another turn.
            let conversation = inbound.conversation.clone();
            return Err(StoreError::TurnNotOpen { conversation, turn: turn.0 }.into());
        }
        if mailbox.stale.swap(false, Ordering::SeqCst) {
            *state = None;
        }
        failpoint::hit("C05");
        place.begin().await?;
        if matches!(accepted, AcceptOutcome::New(TurnNumber::FIRST)) {
            // Nothing is stored: there is nothing to look for, and what is cached was erased. Should that be wrong, the append says so,
            // and the turn loads.
            *state = Some(CachedConversation::new(inbound.conversation.clone()));
        } else if state.is_none() {
            // Boxed, as what follows a crash below: it has a whole turn in it, and few messages need it.
            Box::pin(self.finish_earlier(&mut state, &inbound.conversation, turn)).await?;
        }
        if let AcceptOutcome::Running(turn) = accepted {
            return Box::pin(self.resume_accepted(&mut state, turn, inbound, &mut *sink)).await;
        }
        self.answer(&mut state, AcceptedMessage { turn, inbound }, &mut *sink).await
    }

    /// Runs a new turn, after the replies that waited for this channel.
    async fn answer(
        &self,
        state: &mut Option<Box<CachedConversation>>,
        accepted: AcceptedMessage<'_>,
        sink: &mut dyn ReplySink,
    ) -> Result<TurnReport, ReceiveError> {
        let id = &accepted.inbound.conversation;
        let mut earlier = Vec::new();
        if sink.accepts_earlier_replies() && state.as_ref().is_none_or(|cached| cached.waits) {
            let (sent, has_all) = Box::pin(self.send_earlier(id, sink)).await;
            earlier = sent;
            if let (true, Some(cached)) = (has_all, state.as_mut()) {
                cached.waits = false;
            }
        }
        let mut report = self.run_new(state, accepted, sink).await?;
        if !earlier.is_empty() {
            if let (false, Some(cached)) = (self.has_sent_earlier(id, &earlier).await, state.as_mut()) {
                cached.waits = true;
            }
            report.earlier = earlier;
        }
        Ok(report)
    }

    /// A message that was accepted before: its turn ran while we waited, or a process died before its end.
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
            Some(open) => self.run_found(state, open, sink).await,
            None => Err(ReceiveError::Broken),
        }
    }

    fn inbound(&self, incoming: IncomingMessage) -> InboxMessage {
        let IncomingMessage { conversation, mut message, tenant, account } = incoming;
        // One character more than the limit is kept: by it the engine sees that the message is too long, and says so.
        let most = segue_engine::limits::MESSAGE_TEXT + 1;
        if let Some((end, _)) = message.text.char_indices().nth(most) {
            message.text = message.text.get(..end).unwrap_or_default().into();
        }
        InboxMessage { tenant, account, conversation, message, at: self.clock.now(), seed: (self.seeds)() }
    }

    /// Answers a repeated message with what it was answered before.
    async fn resend_replies(
        &self,
        id: &ConversationId,
        turn: TurnNumber,
        replies: Vec<StoredReply>,
        sink: &mut dyn ReplySink,
    ) -> Result<TurnReport, ReceiveError> {
        let cx = CallContext::new(self.clock.clone(), limits::TURN_TIMEOUT);
        let mut done: Vec<Arc<str>> = Vec::new();
        for reply in &replies {
            let message = Box::new(reply.reply.clone());
            let piece = ReplyEvent::Message { id: reply.id.clone(), message, kind: reply.kind };
            if sink.send(piece, &cx).await.is_ok() {
                done.push(reply.id.clone());
            }
        }
        if !done.is_empty()
            && let Err(error) = self.store.mark_delivered(id, done).await
        {
            tracing::warn!(conversation = %id, turn = turn.0, code = "S0501", "receipts were not stored: {error}");
        }
        let earlier = Vec::new();
        Ok(TurnReport { turn, earlier, replies, failures: Vec::new(), session_ended: false, repeated: true })
    }
}
