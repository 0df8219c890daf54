//! One turn: the life of a message, in the order of the stages.
//!
//! | stage | what happens | file |
//! | --- | --- | --- |
//! | accept | a message is stored, or recognised as a repeat, and waits for its place | `accept.rs` |
//! | load | the conversation is read and folded; what a crash left is taken over | `load.rs`, `recover.rs` |
//! | run | engine and effects take turns until the engine listens | `run.rs`, `interruption.rs` |
//! | commit | events, replies, reminders, journal and "answered" are stored as one | `commit.rs` |
//! | deliver | replies go to the channel; receipts are stored | `deliver.rs` |
//!
//! What a stage or an effect needs is in `context.rs`. Here: a turn is tried until it is stored, or given up.

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

pub use self::usage::TraceEntry;
pub(super) use self::{
    accept::Origin,
    context::{AcceptedMessage, TurnContext, TurnRecord},
    deliver::TurnSink,
    interruption::Interruption,
    load::load,
    recover::{RecoveredTurn, recorded_give_up, recovered_from_record},
    run::{TurnFailures, TurnResult, give_up, run_turn},
    shared_texts::{KnownTexts, SharedTexts, shared_text},
    unsaved::UnsavedTurns,
    usage::UsageMeter,
};
use self::{commit::commit, deliver::deliver, recover::After};
use super::{Inner, ReceiveError, TurnReport, mailbox::CachedConversation};
use crate::{
    context::CallContext,
    conversation::ReplySink,
    failpoint,
    journal::{Journal, TurnJournal},
    limits,
    store::{self, JournalRecord, StoreError, UnfinishedTurn},
};

/// An accepted message whose turn is not stored yet: what all tries of the turn share.
pub(super) struct OpenTurn<'a> {
    inner: &'a Inner,
    accepted: AcceptedMessage<'a>,
    journal: Arc<TurnJournal>,
    /// The same, or what somebody put around it.
    wrapped: Arc<dyn Journal>,
    /// Fires when the caller wants no more.
    stop: Option<CancellationToken>,
}

impl Inner {
    /// Runs the turn of a message that was accepted just now until it is stored, then delivers.
    pub(super) async fn run_new(
        &self,
        state: &mut Option<Box<CachedConversation>>,
        accepted: AcceptedMessage<'_>,
        sink: &mut dyn ReplySink,
    ) -> Result<TurnReport, ReceiveError> {
        let turn = OpenTurn::new(self, accepted, None, sink.cancellation());
        let mut sink = TurnSink::new(sink, turn.wrapped.clone());
        turn.run_until_stored(state, 0, None, &mut sink).await
    }

    /// Runs a turn that was found open, until it is stored or given up; then delivers.
    pub(super) async fn run_found(
        &self,
        state: &mut Option<Box<CachedConversation>>,
        UnfinishedTurn { turn, inbound, journal }: UnfinishedTurn,
        sink: &mut dyn ReplySink,
    ) -> Result<TurnReport, ReceiveError> {
        let turn = OpenTurn::new(self, AcceptedMessage { turn, inbound: &inbound }, Some(journal), sink.cancellation());
        let made = store::attempts(&turn.journal.records());
        let mut sink = TurnSink::new(sink, turn.wrapped.clone());
        turn.run_until_stored(state, made, Some(After::Interruption), &mut sink).await
    }

    /// Ends an open turn with one honest message, without trying it again.
    pub(super) async fn close_open(
        &self,
        state: &mut Option<Box<CachedConversation>>,
        UnfinishedTurn { turn, inbound, journal }: UnfinishedTurn,
        sink: &mut dyn ReplySink,
    ) -> Result<TurnReport, ReceiveError> {
        let turn = OpenTurn::new(self, AcceptedMessage { turn, inbound: &inbound }, Some(journal), None);
        let mut sink = TurnSink::new(sink, turn.wrapped.clone());
        let report = turn.give_up(state, "an operator closed it", &mut sink).await;
        turn.keep_unsaved(report)
    }
}

impl<'a> OpenTurn<'a> {
    /// `recorded` is what the store has of an open turn. What this process knows and could not store is more.
    fn new(
        inner: &'a Inner,
        accepted: AcceptedMessage<'a>,
        recorded: Option<Vec<JournalRecord>>,
        stop: Option<CancellationToken>,
    ) -> Self {
        let (id, number) = (&accepted.inbound.conversation, accepted.turn);
        let unsaved = recorded.as_ref().and_then(|_| inner.unsaved.take(id, number));
        let journal = unsaved.unwrap_or_else(|| {
            let recorded = recorded.unwrap_or_default();
            let (store, clock) = (inner.store.clone(), inner.clock.clone());
            Arc::new(TurnJournal::new(store, id.clone(), number, inner.build, clock, recorded))
        });
        let wrapped = match &inner.journal_wrapper {
            Some(wrap) => wrap(journal.clone()),
            None => journal.clone() as Arc<dyn Journal>,
        };
        Self { inner, accepted, journal, wrapped, stop }
    }

    /// Tries the turn until it is stored, at most [`limits::TURN_ATTEMPTS`] times, of which `made` are over.
    async fn run_until_stored(
        &self,
        state: &mut Option<Box<CachedConversation>>,
        made: u32,
        after: Option<After>,
        sink: &mut TurnSink<'_>,
    ) -> Result<TurnReport, ReceiveError> {
        let report = self.attempts(state, made, after, sink).await;
        self.keep_unsaved(report)
    }

    /// What could not be stored is kept for whoever takes the turn up again.
    fn keep_unsaved(&self, report: Result<TurnReport, ReceiveError>) -> Result<TurnReport, ReceiveError> {
        let erased = matches!(report, Err(ReceiveError::Store(StoreError::TurnNotOpen { .. })));
        if report.is_err() && !erased && !self.journal.pending().is_empty() {
            let AcceptedMessage { turn, inbound } = self.accepted;
            self.inner.unsaved.keep(&inbound.conversation, turn, self.journal.clone());
        }
        report
    }

    async fn attempts(
        &self,
        state: &mut Option<Box<CachedConversation>>,
        mut made: u32,
        mut after: Option<After>,
        sink: &mut TurnSink<'_>,
    ) -> Result<TurnReport, ReceiveError> {
        let Self { inner, accepted: AcceptedMessage { turn, inbound }, .. } = *self;
        let id = &inbound.conversation;
        loop {
            // These defects show where nothing else covers them.
            let uncovered = ["defect:interrupted-first", "defect:clock-first"].into_iter().any(failpoint::is_armed);
            if made >= limits::TURN_ATTEMPTS && !uncovered {
                return Box::pin(self.give_up(state, "it was tried too often", sink)).await;
            }
            if made > 0 {
                // Durable before the turn is tried again: it may be what ends the process.
                self.journal.record_attempt(made + 1).await?;
            }
            made += 1;
            let cached = match state.take() {
                Some(cached) => cached,
                None => load(inner, id).await?,
            };
            failpoint::hit("C07");
            let error = match self.attempt(cached, after, sink).await {
                Ok((cached, report)) => {
                    *state = Some(cached);
                    return Ok(report);
                }
                Err(StoreError::RequestChanged { key, recorded, found }) if !uncovered => {
                    tracing::warn!(
                        conversation = %id, turn = turn.0, step = %key, code = "S0201",
                        "a turn that runs again asks for something else than was recorded ({recorded} then, {found} now): \
                         nothing is sent again, its outcomes are kept as they are recorded"
                    );
                    after = Some(After::Misfit);
                    continue;
                }
                Err(error) => error,
            };
            // The store decides: somebody else appended or answered, or nobody knows. What is stored says what to do.
            if !error.is_transient() && !matches!(error, StoreError::TurnNotOpen { .. }) {
                return Err(error.into());
            }
            if let Some(replies) = inner.store.replies_of(id, turn).await? {
                let (earlier, failures) = (Vec::new(), Vec::new());
                let report = TurnReport { turn, earlier, replies, failures, session_ended: false, repeated: false };
                let cx = CallContext::new(inner.clock.clone(), inner.turn_wall);
                deliver(inner, id, &report, sink, &cx).await;
                return Ok(report);
            }
            if !error.is_transient() {
                return Err(error.into());
            }
            after = Some(After::Failure);
        }
    }

    /// One try: run, commit, deliver.
    async fn attempt(
        &self,
        mut cached: Box<CachedConversation>,
        after: Option<After>,
        sink: &mut TurnSink<'_>,
    ) -> Result<(Box<CachedConversation>, TurnReport), StoreError> {
        let Self { inner, accepted: AcceptedMessage { turn, inbound }, .. } = *self;
        let recovered = match after {
            None => RecoveredTurn::none(turn),
            Some(after) => recover::recover(inner.build, turn, &self.journal.records(), sink.shows(), after),
        };
        let record = self.record(&mut cached);
        let mut cx = CallContext::new(record.clock(), inner.turn_wall);
        cx.key = recovered.root.clone();
        if let Some(stop) = &self.stop {
            cx.cancel = stop.clone().into();
        }
        let due = commit::next_reminder(&cached.conversation);
        let conversation = &mut cached.conversation;
        let mut result = run_turn(&inner.runtime, conversation, self.accepted, recovered, &record, sink, &cx).await;
        if let Some(error) = record.usage.take_store_error() {
            return Err(error);
        }
        result.delivered =
            result.replies.iter().filter(|reply| sink.has(reply)).map(|reply| reply.id.clone()).collect();
        let records = self.journal.pending();
        let report = commit(inner, &mut cached, turn, result, due, records, &record.texts).await?;
        cached.waits |= !deliver(inner, &inbound.conversation, &report, sink, &cx).await;
        Ok((cached, report))
    }

    /// Ends the turn without running it.
    async fn give_up(
        &self,
        state: &mut Option<Box<CachedConversation>>,
        reason: &str,
        sink: &mut TurnSink<'_>,
    ) -> Result<TurnReport, ReceiveError> {
        let Self { inner, accepted: AcceptedMessage { turn, inbound }, .. } = *self;
        let id = &inbound.conversation;
        let mut cached = match state.take() {
            Some(cached) => cached,
            None => load(inner, id).await?,
        };
        let record = self.record(&mut cached);
        let left = recover::left_behind(&self.journal.records());
        let given_up = recover::give_up_record(turn, &left, inner.clock.now(), inner.build);
        let due = commit::next_reminder(&cached.conversation);
        let mut result = give_up(&inner.runtime, &mut cached.conversation, self.accepted, left);
        result.failures.push(("R0105".into(), format!("the turn was given up: {reason}")));
        let records = self.journal.pending().into_iter().chain([given_up]).collect();
        let report = commit(inner, &mut cached, turn, result, due, records, &record.texts).await?;
        tracing::error!(conversation = %id, turn = turn.0, code = "R0105", "a turn was given up: {reason}");
        cached.waits |= !deliver(inner, id, &report, sink, &CallContext::new(record.clock(), inner.turn_wall)).await;
        *state = Some(cached);
        Ok(report)
    }

    fn record(&self, cached: &mut CachedConversation) -> TurnRecord {
        let Self { inner, accepted: AcceptedMessage { inbound, .. }, .. } = *self;
        // A recording is read without this conversation's store: every text stands in it whole.
        let known =
            if inner.journal_wrapper.is_some() { Default::default() } else { std::mem::take(&mut cached.texts) };
        let at = if failpoint::is_armed("defect:clock-first") { inner.clock.now() } else { inbound.at };
        let texts = SharedTexts::new(inner.store.clone(), inbound.conversation.clone(), known);
        TurnRecord::new(self.wrapped.clone(), inner.clock.clone(), at, UsageMeter::default(), texts)
    }
}
