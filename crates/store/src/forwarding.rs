//! Stores that wrap another store and change some of its methods.

use std::{ops::Range, sync::Arc, time::Duration};

use async_trait::async_trait;
use segue_engine::{
    conversation::Event,
    ids::{ConversationId, MessageId, RunId},
    time::Timestamp,
};

use crate::{
    AcceptOutcome, ConversationProblem, InboxMessage, JournalRecord, Store, StoreError, StoredConversation,
    StoredReply, StoredTurn, TurnCommit, TurnEvents, TurnNumber, UnfinishedTurn, Version,
    runs::{
        ClaimRequest, ClaimedUnit, NewRun, QuestionFilter, QuestionKey, QuestionReply, ReplyOutcome, RunAdmission,
        RunBatch, RunCounts, RunFilter, RunLimits, RunStore, RunStoreError, RunSummary, Signal, SignalOutcome, Signals,
        StartOutcome, StoredQuestion, StoredRun, StoredRunEvent, StoredUnit, UnitBatch, UnitContent, UnitKey,
    },
};

macro_rules! forwarding_store {
    (
        $(#[$about:meta])* $forwarding:ident for $store:ident, $error:ident;
        $($method:ident($($argument:ident: $type:ty),*) -> $output:ty;)*
    ) => {
        $(#[$about])*
        #[async_trait]
        pub trait $forwarding: Send + Sync {
            /// The store that gets the calls.
            fn inner(&self) -> &dyn $store;
            $(
                #[doc = concat!("Forwards [`", stringify!($store), "::", stringify!($method), "`].")]
                async fn $method(&self, $($argument: $type),*) -> Result<$output, $error> {
                    self.inner().$method($($argument),*).await
                }
            )*
        }

        #[async_trait]
        impl<T: $forwarding> $store for T {
            $(
                async fn $method(&self, $($argument: $type),*) -> Result<$output, $error> {
                    $forwarding::$method(self, $($argument),*).await
                }
            )*
        }
    };
}

forwarding_store! {
    /// A store that forwards every call to [`inner`](Self::inner). An implementation overrides the methods that it changes, for
    /// example to write an audit log. [`Store`] is implemented for every `ForwardingStore`.
    ///
    /// Errors and cancellation of each method: see the method of the same name of [`Store`]. Where both traits are imported, a method
    /// call on such a store is ambiguous: import only [`Store`], and write `impl segue::store::ForwardingStore for MyStore`.
    ForwardingStore for Store, StoreError;
    accept(inbound: InboxMessage) -> AcceptOutcome;
    load(id: &ConversationId) -> StoredConversation;
    append_journal(id: &ConversationId, turn: TurnNumber, records: Vec<JournalRecord>) -> ();
    append(id: &ConversationId, after: Version, batch: TurnCommit) -> Version;
    unfinished_turns(id: &ConversationId) -> Vec<UnfinishedTurn>;
    unfinished_turns_in(id: &ConversationId, turns: Range<TurnNumber>) -> Vec<UnfinishedTurn>;
    replies_of(id: &ConversationId, turn: TurnNumber) -> Option<Vec<StoredReply>>;
    conversations_with_work() -> Vec<ConversationId>;
    next_reminders(limit: usize) -> Vec<(ConversationId, Timestamp)>;
    pending_replies(id: &ConversationId) -> Vec<StoredReply>;
    mark_delivered(id: &ConversationId, replies: Vec<Arc<str>>) -> ();
    turn(id: &ConversationId, turn: TurnNumber) -> Option<StoredTurn>;
    turns(id: &ConversationId) -> Vec<StoredTurn>;
    latest_turns(id: &ConversationId, before: Option<Version>, most: usize) -> Vec<TurnEvents>;
    latest_events(id: &ConversationId, most: usize) -> Vec<Event>;
    conversations(limit: usize) -> Vec<ConversationId>;
    erase(id: &ConversationId) -> ();
    purge_expired(now: Timestamp) -> u64;
    replies_to_message(id: &ConversationId, message: &MessageId) -> Option<Vec<StoredReply>>;
    problems() -> Vec<ConversationProblem>;
    ping() -> ();
    close() -> ();
    text_by_hash(id: &ConversationId, hash: &str) -> Option<Arc<str>>;
    set_private_text(id: &ConversationId, name: &str, text: Option<String>, at: Timestamp) -> ();
    private_text(id: &ConversationId, name: &str) -> Option<String>;
}

forwarding_store! {
    /// As [`ForwardingStore`], for a store of runs.
    ForwardingRunStore for RunStore, RunStoreError;
    start_run(run: NewRun) -> StartOutcome;
    admit(run: &RunId, limits: RunLimits, at: Timestamp) -> RunAdmission;
    run(run: &RunId) -> Option<StoredRun>;
    summary(run: &RunId) -> Option<RunSummary>;
    runs(filter: RunFilter, limit: usize) -> Vec<RunSummary>;
    events(run: &RunId, after: u64, limit: usize) -> Vec<StoredRunEvent>;
    units(run: &RunId) -> Vec<StoredUnit>;
    unit(unit: &UnitKey) -> Option<UnitContent>;
    claim(request: ClaimRequest) -> Vec<ClaimedUnit>;
    append(batch: UnitBatch) -> u64;
    append_run(batch: RunBatch) -> u64;
    renew(unit: &UnitKey, epoch: u64, until: Timestamp) -> Signals;
    release(unit: &UnitKey, epoch: u64, at: Timestamp) -> ();
    blob(run: &RunId, id: &str) -> Option<Arc<str>>;
    questions(filter: QuestionFilter, limit: usize) -> Vec<StoredQuestion>;
    question(question: &QuestionKey) -> Option<StoredQuestion>;
    answer(reply: QuestionReply) -> ReplyOutcome;
    signal(run: &RunId, signal: Signal, at: Timestamp) -> SignalOutcome;
    next_wake() -> Option<Timestamp>;
    counts(now: Timestamp) -> RunCounts;
    purge_runs(now: Timestamp, older_than: Duration) -> Vec<RunId>;
    erase_runs(conversation: &ConversationId) -> Vec<RunId>;
}
