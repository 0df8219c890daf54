//! A store that wraps another store and changes some of its methods.

use std::{ops::Range, sync::Arc};

use futures::future::BoxFuture;
use segue_engine::{
    conversation::Event,
    ids::{ConversationId, MessageId},
    time::Timestamp,
};

use crate::{
    AcceptOutcome, ConversationProblem, InboxMessage, JournalRecord, Store, StoreError, StoredConversation,
    StoredReply, StoredTurn, TurnCommit, TurnEvents, TurnNumber, UnfinishedTurn, Version,
};

macro_rules! forwarding_store {
    ($life:lifetime; $($method:ident($($argument:ident: $type:ty),*) -> $output:ty;)*) => {
        /// A store that forwards every call to [`inner`](Self::inner). An implementation overrides the methods that it changes, for
        /// example to write an audit log. [`Store`] is implemented for every `ForwardingStore`.
        ///
        /// Errors and cancellation of each method: see the method of the same name of [`Store`]. Where both traits are imported, a method
        /// call on such a store is ambiguous: import only [`Store`], and write `impl segue::store::ForwardingStore for MyStore`.
        pub trait ForwardingStore: Send + Sync {
            /// The store that gets the calls.
            fn inner(&self) -> &dyn Store;
            $(
                #[doc = concat!("Forwards [`Store::", stringify!($method), "`].")]
                fn $method<$life>(&$life self, $($argument: $type),*) -> BoxFuture<$life, Result<$output, StoreError>> {
                    self.inner().$method($($argument),*)
                }
            )*
        }

        impl<T: ForwardingStore> Store for T {
            $(
                fn $method<$life>(&$life self, $($argument: $type),*) -> BoxFuture<$life, Result<$output, StoreError>> {
                    ForwardingStore::$method(self, $($argument),*)
                }
            )*
        }
    };
}

forwarding_store! {
    'a;
    accept(inbound: InboxMessage) -> AcceptOutcome;
    load(id: &'a ConversationId) -> StoredConversation;
    append_journal(id: &'a ConversationId, turn: TurnNumber, records: Vec<JournalRecord>) -> ();
    append(id: &'a ConversationId, after: Version, batch: TurnCommit) -> Version;
    unfinished_turns(id: &'a ConversationId) -> Vec<UnfinishedTurn>;
    unfinished_turns_in(id: &'a ConversationId, turns: Range<TurnNumber>) -> Vec<UnfinishedTurn>;
    replies_of(id: &'a ConversationId, turn: TurnNumber) -> Option<Vec<StoredReply>>;
    conversations_with_work() -> Vec<ConversationId>;
    next_reminders(limit: usize) -> Vec<(ConversationId, Timestamp)>;
    pending_replies(id: &'a ConversationId) -> Vec<StoredReply>;
    mark_delivered(id: &'a ConversationId, replies: Vec<Arc<str>>) -> ();
    turns(id: &'a ConversationId) -> Vec<StoredTurn>;
    latest_turns(id: &'a ConversationId, before: Option<Version>, most: usize) -> Vec<TurnEvents>;
    latest_events(id: &'a ConversationId, most: usize) -> Vec<Event>;
    conversations(limit: usize) -> Vec<ConversationId>;
    erase(id: &'a ConversationId) -> ();
    purge_expired(now: Timestamp) -> u64;
    replies_to_message(id: &'a ConversationId, message: &'a MessageId) -> Option<Vec<StoredReply>>;
    problems() -> Vec<ConversationProblem>;
    ping() -> ();
    close() -> ();
    text_by_hash(id: &'a ConversationId, hash: &'a str) -> Option<Arc<str>>;
    set_private_text(id: &'a ConversationId, name: &'a str, text: Option<String>, at: Timestamp) -> ();
    private_text(id: &'a ConversationId, name: &'a str) -> Option<String>;
}
