//! Remembering: everything durable, one transaction at a time.
//!
//! Entry: [`Store`]. One contract suite runs against every driver. This room never interprets events, and never decides
//! what may be repeated: it keeps what it is given and guards the version.

use std::sync::Arc;

use futures::future::BoxFuture;
use segue_engine::{
    conversation::{Conversation, Event, Reply, UserMessage},
    ids::{ConversationId, MessageId},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::cx::StepKey;

/// How many batches a conversation has; the guard of every append.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version(pub u64);

/// The number of a turn within its conversation, from 1; given when its message is accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TurnNumber(pub u64);

/// A message at the door. (tenant, input channel, account, conversation, message id) is the key against duplicates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inbound {
    /// The tenant; "" unless there are several.
    pub tenant: Arc<str>,
    /// The account on the channel; "" unless there are several.
    pub account: Arc<str>,
    /// Whose conversation.
    pub conversation: ConversationId,
    /// The message.
    pub message: UserMessage,
    /// When it was accepted; the time of the turn.
    pub at: Timestamp,
    /// The seed of the turn.
    pub seed: u64,
}

/// What the store says to a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Accepted {
    /// It is new, and stored.
    New(TurnNumber),
    /// It was accepted before and is not answered yet.
    Running(TurnNumber),
    /// It was answered before, with these replies.
    Answered(TurnNumber, Vec<StoredReply>),
}

/// A reply as stored; it leaves only afterwards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredReply {
    /// The same after a crash, so that a channel can suppress a repetition.
    pub id: Arc<str>,
    /// The message.
    pub reply: Reply,
    /// What it was for.
    pub kind: segue_engine::conversation::BotKind,
}

/// A conversation as stored.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// The newest snapshot, if any.
    pub snapshot: Option<Conversation>,
    /// Events after the snapshot.
    pub tail: Vec<Event>,
    /// How many batches there are.
    pub version: Version,
}

/// All that a turn leaves, written in one transaction.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The turn.
    pub turn: TurnNumber,
    /// Its events.
    pub events: Vec<Event>,
    /// Its replies: they wait in the outbox until they are delivered.
    pub replies: Vec<StoredReply>,
    /// Journal records that were not written before.
    pub journal: Vec<JournalRecord>,
    /// A snapshot after these events, when one is due.
    pub snapshot: Option<Conversation>,
    /// The trace of the turn, as JSON text.
    pub trace: Option<String>,
}

/// One record of the journal: an intent, or an outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalRecord {
    /// The step.
    pub key: StepKey,
    /// What it does: `llm`, `tool`, `action`, `speaking`, `input`.
    pub kind: Arc<str>,
    /// Hash of the request; a replay with another one is an error.
    pub request: Arc<str>,
    /// The outcome as JSON text; absent in an intent.
    pub outcome: Option<Arc<str>>,
    /// When the outcome came, or the intent was written.
    pub at: Timestamp,
    /// Hash of engine version and project; a turn is replayed only by the build that began it.
    pub build: u64,
}

/// A message that was accepted and not answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Unfinished {
    /// Its turn.
    pub turn: TurnNumber,
    /// The message.
    pub inbound: Inbound,
    /// What its turn had recorded: the latest record of each step.
    pub journal: Vec<JournalRecord>,
}

/// A turn as stored, for traces and replays.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredTurn {
    /// Its number.
    pub turn: TurnNumber,
    /// Its message.
    pub inbound: Inbound,
    /// Its events.
    pub events: Vec<Event>,
    /// Its replies.
    pub replies: Vec<StoredReply>,
    /// Its journal; empty when it is past its retention.
    pub journal: Vec<JournalRecord>,
    /// Its trace, as JSON text.
    pub trace: Option<String>,
}

/// Why the store did not do it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Somebody else appended in the meantime.
    #[error("the conversation has moved on: expected version {expected:?}, found {found:?}")]
    Conflict {
        /// The version that was read.
        expected: Version,
        /// The version that is there.
        found: Version,
    },
    /// A record of this conversation cannot be read; others are not affected.
    #[error("the record of conversation {conversation} is damaged: {reason}")]
    Damaged {
        /// Whose.
        conversation: ConversationId,
        /// What is wrong.
        reason: String,
    },
    /// The store does not answer; whether the write happened is not known.
    #[error("the store does not answer: {0}")]
    Unavailable(String),
    /// The store was written by a newer version.
    #[error("the store has schema version {found}, this program knows up to {known}: use a newer program")]
    TooNew {
        /// What is there.
        found: u32,
        /// What we know.
        known: u32,
    },
}

/// Everything durable. Object-safe; every method may be called at once from many conversations.
pub trait Store: Send + Sync {
    /// Stores a message before anything is done about it, or says what became of the same one earlier. Durable when it returns.
    fn accept(&self, inbound: Inbound) -> BoxFuture<'_, Result<Accepted, StoreError>>;
    /// The conversation; empty when nothing is known of it.
    fn load<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<Stored, StoreError>>;
    /// Writes records of a running turn. Durable when it returns.
    fn journal<'a>(
        &'a self,
        id: &'a ConversationId,
        turn: TurnNumber,
        records: Vec<JournalRecord>,
    ) -> BoxFuture<'a, Result<(), StoreError>>;
    /// Writes a turn: events, replies, journal, snapshot, and the mark that its message is answered; all or nothing, and only
    /// if the version is still `after`. *Cancellation*: the write goes on; read the version to know.
    fn append<'a>(
        &'a self,
        id: &'a ConversationId,
        after: Version,
        batch: Batch,
    ) -> BoxFuture<'a, Result<Version, StoreError>>;
    /// Messages accepted and not answered, oldest first.
    fn unfinished<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<Vec<Unfinished>, StoreError>>;
    /// Conversations that have unfinished messages, for the sweep at start.
    fn waiting(&self) -> BoxFuture<'_, Result<Vec<ConversationId>, StoreError>>;
    /// Replies that were stored and not delivered, oldest first, with the channel they are for.
    fn undelivered<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<Vec<StoredReply>, StoreError>>;
    /// Marks replies as delivered.
    fn delivered<'a>(&'a self, id: &'a ConversationId, replies: Vec<Arc<str>>)
    -> BoxFuture<'a, Result<(), StoreError>>;
    /// The turns of a conversation, oldest first.
    fn turns<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<Vec<StoredTurn>, StoreError>>;
    /// Ids of the conversations, newest first, at most `limit`.
    fn conversations(&self, limit: usize) -> BoxFuture<'_, Result<Vec<ConversationId>, StoreError>>;
    /// Forgets a conversation, bodies included.
    fn erase<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<(), StoreError>>;
    /// Removes journals and duplicate marks that are past their retention; how many rows went.
    fn expire(&self, now: Timestamp) -> BoxFuture<'_, Result<u64, StoreError>>;
    /// The replies to one message, if it was answered.
    fn answered<'a>(
        &'a self,
        id: &'a ConversationId,
        message: &'a MessageId,
    ) -> BoxFuture<'a, Result<Option<Vec<StoredReply>>, StoreError>>;
}
