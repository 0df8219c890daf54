//! One turn: the processing of a message, in five stages.
//!
//! | stage | what happens | file |
//! | --- | --- | --- |
//! | accept | the message is stored or recognised as a duplicate, and waits for the turns before it | `accept.rs` |
//! | load | the conversation is read and folded; a turn that a crash left open is recovered | `load.rs`, `recover.rs` |
//! | run | the engine advances and effects are performed, until the engine waits for the user | `run.rs`, `interruption.rs` |
//! | commit | events, replies, reminders, journal and the mark "answered" are stored in one transaction | `commit.rs` |
//! | deliver | replies go to the channel; receipts are stored | `deliver.rs` |
//!
//! `context.rs` has the contexts of stages and effects. This file makes the attempts: a turn is attempted until it is stored or given up.

mod accept;
mod commit;
mod context;
mod deliver;
mod interruption;
mod load;
mod recover;
mod run;
mod shared_texts;
mod unsaved;
mod usage;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

pub use self::{accept::Accepted, usage::TraceEntry};
pub(super) use self::{
    accept::Origin,
    context::{AcceptedMessage, TurnContext, TurnRecord},
    deliver::{TurnSink, full_message},
    interruption::Interruption,
    load::load,
    recover::{RecoveredTurn, recorded_give_up, recovered_from_record},
    run::{TurnFailures, TurnResult, give_up, run_turn},
    shared_texts::{KnownTexts, SharedTexts, shared_text},
    unsaved::UnsavedTurns,
    usage::UsageMeter,
};
use self::{commit::commit, deliver::deliver, recover::RetryReason};
use super::{
    Inner, ReceiveError, TurnReport, feed::FeedWriter, mailbox::CachedConversation, running_turns::RunningTurn,
};
use crate::{
    context::CallContext,
    conversation::{DiscardReplies, ReplySink, WriteGate},
    failpoint,
    journal::{HeldWrites, Journal, TurnJournal},
    limits,
    store::{self, JournalRecord, StoreError, UnfinishedTurn},
};

/// An accepted message whose turn is not stored yet. All attempts of the turn share it.
pub(super) struct OpenTurn<'a> {
    inner: &'a Inner,
    accepted: AcceptedMessage<'a>,
    journal: Arc<TurnJournal>,
    /// The same journal, wrapped if a [`JournalWrapper`](super::JournalWrapper) is set.
    wrapped_journal: Arc<dyn Journal>,
    /// Cancelled when the turn is interrupted, by its sink or from outside.
    cancel: CancellationToken,
    /// Holds writes back, if the client may still take its request back.
    held: Option<HeldWrites>,
    _running: RunningTurn,
}

impl Inner {
    /// Runs the turn of an accepted message until it is stored or given up, then delivers. `recorded` is the journal of a turn that was
    /// found open in the store.
    pub(super) async fn run_until_stored(
        &self,
        state: &mut Option<Box<CachedConversation>>,
        accepted: AcceptedMessage<'_>,
        recorded: Option<Vec<JournalRecord>>,
        sink: &mut dyn ReplySink,
    ) -> Result<TurnReport, ReceiveError> {
        let before_question = self.was_written_before_question(state, accepted).await?;
        let accepted = AcceptedMessage { before_question, ..accepted };
        let retry_reason = recorded.as_ref().map(|_| RetryReason::FoundOpen);
        let turn = OpenTurn::new(self, accepted, recorded, sink);
        let mut sink = turn.sink(sink);
        let report = turn.run_attempts(state, retry_reason, &mut sink).await;
        turn.keep_unsaved(report, &sink)
    }

    /// Whether the sender of a message has not got the question that is open: one that the turn before has asked without a message, as a
    /// reminder does, and whose replies are undelivered. They come with the response to this message.
    async fn was_written_before_question(
        &self,
        state: &mut Option<Box<CachedConversation>>,
        AcceptedMessage { turn, inbound, .. }: AcceptedMessage<'_>,
    ) -> Result<bool, ReceiveError> {
        let id = &inbound.conversation;
        let cached = match state {
            Some(cached) => cached,
            None => state.insert(load(self, id).await?),
        };
        let conversation = &cached.conversation;
        if conversation.turn.by_message || conversation.stack.is_empty() {
            return Ok(false);
        }
        let before = format!("{}/", turn.0.saturating_sub(1));
        let undelivered = self.store.pending_replies(id).await?;
        // The id of a reply begins with its turn.
        Ok(undelivered.iter().any(|reply| reply.id.starts_with(&before)))
    }

    /// Ends an open turn with an error message, without another attempt.
    pub(super) async fn close_open_turn(
        &self,
        state: &mut Option<Box<CachedConversation>>,
        UnfinishedTurn { turn, inbound, journal }: UnfinishedTurn,
        sink: &mut dyn ReplySink,
    ) -> Result<TurnReport, ReceiveError> {
        let turn = OpenTurn::new(self, AcceptedMessage::new(turn, &inbound), Some(journal), &DiscardReplies);
        let mut sink = turn.sink(sink);
        let report = turn.give_up(state, "an operator closed it", &mut sink).await;
        turn.keep_unsaved(report, &sink)
    }
}

impl<'a> OpenTurn<'a> {
    /// `recorded` is the stored journal of an open turn. A journal that this process could not store is preferred: it contains more.
    fn new(
        inner: &'a Inner,
        accepted: AcceptedMessage<'a>,
        recorded: Option<Vec<JournalRecord>>,
        sink: &dyn ReplySink,
    ) -> Self {
        let (id, number) = (&accepted.inbound.conversation, accepted.turn);
        let unsaved = recorded.as_ref().and_then(|_| inner.unsaved.take(id, number));
        let journal = unsaved.unwrap_or_else(|| {
            let recorded = recorded.unwrap_or_default();
            let (store, clock) = (inner.store.clone(), inner.clock.clone());
            Arc::new(TurnJournal::new(store, id.clone(), number, inner.build_hash, clock, recorded))
        });
        let wrapped_journal = match &inner.journal_wrapper {
            Some(wrap) => wrap(journal.clone()),
            None => journal.clone() as Arc<dyn Journal>,
        };
        let cancel = sink.cancellation().map_or_else(CancellationToken::new, |cancel| cancel.child_token());
        let running = inner.running_turns.enter(number, accepted.inbound, cancel.clone());
        // Without its client, nobody confirms the request any more.
        let is_abandoned = accepted.inbound.message.holds_writes;
        let gate = sink.write_gate().or_else(|| is_abandoned.then(|| Arc::new(WriteGate::closed(inner.clock.clone()))));
        let held = gate
            .filter(|_| journal.recorded(&HeldWrites::open_step(number)).is_none())
            .map(|gate| HeldWrites::new(gate, cancel.clone()));
        Self { inner, accepted, journal, wrapped_journal, cancel, held, _running: running }
    }

    /// The sink of the turn: that of the channel, and the readers of the conversation.
    fn sink<'s>(&self, channel: &'s mut dyn ReplySink) -> TurnSink<'s> {
        let AcceptedMessage { turn, inbound, .. } = self.accepted;
        let gate = channel.write_gate().filter(|_| self.held.is_some());
        TurnSink::new(channel, FeedWriter::begin(self.inner, turn, inbound), self.wrapped_journal.clone())
            .with_gate(gate)
    }

    /// Keeps the journal of a turn that could not be stored, for its next attempt in this process, and ends this run for readers.
    fn keep_unsaved(
        &self,
        report: Result<TurnReport, ReceiveError>,
        sink: &TurnSink<'_>,
    ) -> Result<TurnReport, ReceiveError> {
        sink.finish(self.inner, &self.accepted.inbound.conversation, &report);
        let is_erased = matches!(report, Err(ReceiveError::Store(StoreError::TurnNotOpen { .. })));
        if report.is_err() && !is_erased && !self.journal.pending().is_empty() {
            let AcceptedMessage { turn, inbound, .. } = self.accepted;
            self.inner.unsaved.insert(&inbound.conversation, turn, self.journal.clone());
        }
        report
    }

    /// Attempts the turn until it is stored, at most [`limits::TURN_ATTEMPTS`] times including those of earlier runs. `retry_reason`: why it
    /// is not the first run.
    async fn run_attempts(
        &self,
        state: &mut Option<Box<CachedConversation>>,
        mut retry_reason: Option<RetryReason>,
        sink: &mut TurnSink<'_>,
    ) -> Result<TurnReport, ReceiveError> {
        let Self { inner, accepted: AcceptedMessage { turn, inbound, .. }, .. } = *self;
        let id = &inbound.conversation;
        let mut attempts_made = retry_reason.map_or(0, |_| store::attempts(&self.journal.records()));
        loop {
            if attempts_made >= limits::TURN_ATTEMPTS {
                return Box::pin(self.give_up(state, "too many attempts failed", sink)).await;
            }
            if attempts_made > 0 {
                // Durable before the attempt, because the attempt may crash the process.
                self.journal.record_attempt(attempts_made + 1).await?;
            }
            attempts_made += 1;
            let cached = match state.take() {
                Some(cached) => cached,
                None => load(inner, id).await?,
            };
            failpoint::hit("C07");
            let error = match self.attempt(cached, retry_reason, sink).await {
                Ok((cached, report)) => {
                    *state = Some(cached);
                    return Ok(report);
                }
                Err(StoreError::RequestChanged { key, recorded, found }) => {
                    tracing::warn!(
                        conversation = %id, turn = turn.0, step = %key, code = "S0201",
                        "a turn that runs again makes another request than the recorded one ({recorded} before, {found} now): \
                         no effect is repeated, the recorded outcomes are kept"
                    );
                    retry_reason = Some(RetryReason::RequestChanged);
                    continue;
                }
                Err(error) => error,
            };
            // After a conflict the store decides: another process may have stored or answered this turn.
            if !error.is_transient() && !matches!(error, StoreError::TurnNotOpen { .. }) {
                return Err(error.into());
            }
            if let Some(replies) = inner.store.replies_of(id, turn).await? {
                let report = TurnReport::new(turn, replies);
                let cx = CallContext::new(inner.clock.clone(), inner.turn_timeout);
                deliver(inner, id, &report, Vec::new(), sink, &cx).await;
                return Ok(report);
            }
            if !error.is_transient() {
                return Err(error.into());
            }
            retry_reason = Some(RetryReason::StoreFailure);
        }
    }

    /// One attempt: run, commit, deliver.
    async fn attempt(
        &self,
        mut cached: Box<CachedConversation>,
        retry_reason: Option<RetryReason>,
        sink: &mut TurnSink<'_>,
    ) -> Result<(Box<CachedConversation>, TurnReport), StoreError> {
        let Self { inner, accepted: AcceptedMessage { turn, inbound, .. }, .. } = *self;
        let recovered = match retry_reason {
            None => RecoveredTurn::none(turn),
            Some(reason) => {
                recover::recover(inner.build_hash, turn, &self.journal.records(), sink.streams_to_channel(), reason)
            }
        };
        sink.begin_attempt();
        let record = self.record(&mut cached);
        let mut cx = CallContext::new(record.clock(), inner.turn_timeout);
        cx.key = recovered.root.clone();
        cx.cancel = self.cancel.clone().into();
        let due = commit::next_reminder(&cached.conversation);
        let conversation = &mut cached.conversation;
        let mut result = run_turn(&inner.runtime, conversation, self.accepted, recovered, &record, sink, &cx).await;
        if let Some(error) = record.usage.take_store_error() {
            return Err(error);
        }
        result.delivered =
            result.replies.iter().filter(|reply| sink.is_delivered(reply)).map(|reply| reply.id.clone()).collect();
        let records = self.journal.pending();
        let rest = sink.rest(&inner.runtime.project, &result.events, &cached.conversation);
        let report = commit(inner, &mut cached, turn, result, due, records, &record.texts).await?;
        cached.may_have_pending_replies |= !deliver(inner, &inbound.conversation, &report, rest, sink, &cx).await;
        Ok((cached, report))
    }

    /// Ends the turn without running it.
    async fn give_up(
        &self,
        state: &mut Option<Box<CachedConversation>>,
        reason: &str,
        sink: &mut TurnSink<'_>,
    ) -> Result<TurnReport, ReceiveError> {
        let Self { inner, accepted: AcceptedMessage { turn, inbound, .. }, .. } = *self;
        let id = &inbound.conversation;
        let mut cached = match state.take() {
            Some(cached) => cached,
            None => load(inner, id).await?,
        };
        let record = self.record(&mut cached);
        let give_up_record = recover::give_up_outcomes(&self.journal.records());
        let journal_record =
            recover::give_up_journal_record(turn, &give_up_record, inner.clock.now(), inner.build_hash);
        let due = commit::next_reminder(&cached.conversation);
        let mut result = give_up(&inner.runtime, &mut cached.conversation, self.accepted, give_up_record);
        result.failures.push(("R0105".into(), format!("the turn was given up: {reason}")));
        let records = self.journal.pending().into_iter().chain([journal_record]).collect();
        sink.begin_attempt();
        let rest = sink.rest(&inner.runtime.project, &result.events, &cached.conversation);
        let report = commit(inner, &mut cached, turn, result, due, records, &record.texts).await?;
        tracing::error!(conversation = %id, turn = turn.0, code = "R0105", "a turn was given up: {reason}");
        cached.may_have_pending_replies |=
            !deliver(inner, id, &report, rest, sink, &CallContext::new(record.clock(), inner.turn_timeout)).await;
        *state = Some(cached);
        Ok(report)
    }

    fn record(&self, cached: &mut CachedConversation) -> TurnRecord {
        let Self { inner, accepted: AcceptedMessage { inbound, .. }, .. } = *self;
        // A recording is played back without this store, so it must contain every text in full.
        let known_texts =
            if inner.journal_wrapper.is_some() { Default::default() } else { std::mem::take(&mut cached.known_texts) };
        let at = inbound.at;
        let texts = SharedTexts::new(inner.store.clone(), inbound.conversation.clone(), known_texts);
        TurnRecord::new(self.wrapped_journal.clone(), inner.clock.clone(), at, UsageMeter::default(), texts)
            .with_held_writes(self.held.clone())
    }
}
