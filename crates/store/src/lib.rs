//! Durable storage of conversations (messages, events, replies, effect journals and reminders) and of runs
//! ([`runs`]).
//!
//! [`open`] returns a [`Store`]. The contract suite (`contract.rs`) runs against every implementation. A store never
//! interprets events and never performs an effect: it stores what it is given and checks the version of each append.

#[cfg(feature = "sqlite")]
mod checksum;
#[cfg(any(test, debug_assertions, feature = "testing"))]
pub mod contract;
mod dedup;
mod forwarding;
mod location;
mod memory;
pub mod runs;
#[cfg(feature = "sqlite")]
mod sqlite;
mod turn_records;

use std::{ops::Range, sync::Arc};

use async_trait::async_trait;
use segue_base::context::StepKey;
use segue_engine::{
    conversation::{BotKind, BotMessage, Conversation, Event, EventKind, Reply, UserMessage},
    ids::{ConversationId, MessageId},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

#[cfg(feature = "sqlite")]
pub use self::sqlite::SqliteStore;
pub use self::turn_records::{ATTEMPTS, REPLY_ANNOUNCED, announce_reply};
pub use self::{
    forwarding::ForwardingStore,
    location::{
        OpenedStores, StoreLocation, backup, open, open_read_only, open_runs, open_stores, open_stores_read_only,
    },
    memory::MemoryStore,
    turn_records::{announced_replies, attempts},
};

/// The number of commits (batches) in a conversation. Every append names the version it expects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version(pub u64);

/// The number of a turn within its conversation, from 1, assigned when its message is accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TurnNumber(pub u64);

impl TurnNumber {
    /// The first turn of a conversation that had no stored data.
    pub const FIRST: Self = Self(1);
}

/// A message to accept. Tenant, input channel, account, conversation and message id together are the deduplication key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InboxMessage {
    /// The tenant; "" unless there are several.
    pub tenant: Arc<str>,
    /// The account on the channel; "" unless there are several.
    pub account: Arc<str>,
    /// The conversation it belongs to.
    pub conversation: ConversationId,
    /// The message.
    pub message: UserMessage,
    /// When it was accepted. This is the time of the turn.
    pub at: Timestamp,
    /// The seed of the random numbers of the turn.
    pub seed: u64,
}

/// The result of [`Store::accept`].
#[derive(Clone, Debug, PartialEq)]
pub enum AcceptOutcome {
    /// The message is new and is stored. Turn 1 means that nothing else of this conversation is stored. Where there are
    /// commits without turns, as after an import, the first turn is number 2.
    New(TurnNumber),
    /// The message was accepted before and is not answered yet.
    Running(TurnNumber),
    /// The message was answered before, with these replies.
    Answered(TurnNumber, Vec<StoredReply>),
}

/// A stored reply. It is sent only after it was stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StoredReply {
    /// Stays the same after a crash, so that a channel can suppress a repeated delivery.
    pub id: Arc<str>,
    /// The message.
    pub reply: Reply,
    /// The kind of the bot message.
    pub kind: BotKind,
}

impl StoredReply {
    /// A reply with this id.
    pub fn new(id: impl Into<Arc<str>>, reply: Reply, kind: BotKind) -> Self {
        Self { id: id.into(), reply, kind }
    }
    /// The id of the reply made from a bot message, the `at`th of its turn from 0: the id the message carries, or one
    /// made of turn and position.
    pub fn id_of(turn: TurnNumber, at: usize, bot: &BotMessage) -> Arc<str> {
        bot.reply_id.clone().unwrap_or_else(|| format!("{}/r{at}", turn.0).into())
    }

    /// The replies in the events of a turn, numbered after `before` earlier ones.
    pub fn from_events(turn: TurnNumber, before: usize, events: &[Event]) -> impl Iterator<Item = Self> {
        bot_messages(events).zip(before..).map(move |(bot, at)| Self {
            id: Self::id_of(turn, at, bot),
            reply: bot.reply.clone(),
            kind: bot.kind,
        })
    }
}

/// The bot messages among events.
fn bot_messages(events: &[Event]) -> impl Iterator<Item = &BotMessage> {
    events.iter().filter_map(|event| match &event.kind {
        EventKind::Bot(bot) => Some(&**bot),
        _ => None,
    })
}

/// A conversation as stored: the latest snapshot and the events after it.
#[derive(Clone, Debug, Default)]
pub struct StoredConversation {
    /// The newest snapshot, if any.
    pub snapshot: Option<Conversation>,
    /// Events after the snapshot.
    pub tail: Vec<Event>,
    /// The number of commits.
    pub version: Version,
}

/// The result of one turn, written in one transaction.
#[derive(Clone, Debug, Default)]
pub struct TurnCommit {
    /// The turn; 0 for events that answer no message, such as those of a reminder or of the API.
    pub turn: TurnNumber,
    /// Its events.
    pub events: Vec<Event>,
    /// Its replies. They wait in the outbox until they are delivered, except those in `delivered`.
    pub replies: Vec<StoredReply>,
    /// The ids of replies that the channel already has. They do not wait in the outbox.
    pub delivered: Vec<Arc<str>>,
    /// Journal records that were not written before.
    pub journal: Vec<JournalRecord>,
    /// A snapshot after these events, when one is due.
    pub snapshot: Option<Conversation>,
    /// The trace of the turn, as JSON text.
    pub trace: Option<String>,
    /// When the earliest reminder of the conversation is due, if that has changed; the inner `None` means that there is
    /// no reminder.
    pub next_reminder: Option<Option<Timestamp>>,
    /// Large texts that the trace or the journal refer to by hash. Each is stored once in a conversation.
    pub texts: Vec<StoredText>,
}

/// A text that is stored once and referred to by hash, such as a prompt or a tool list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredText {
    /// Its hash, computed by the caller; the key under which it is found.
    pub hash: Arc<str>,
    /// The text.
    pub text: Arc<str>,
}

/// One record of the effect journal: an intent (the step has started) or an outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalRecord {
    /// The step.
    pub key: StepKey,
    /// The kind of step: `llm`, `tools`, `tool`, `action`, `speaking`, `input`, `takeover`, `attempts`.
    pub kind: Arc<str>,
    /// Hash of the request. A replay with another hash is an error.
    pub request: Arc<str>,
    /// The outcome as JSON text; absent in an intent.
    pub outcome: Option<Arc<str>>,
    /// When the outcome arrived, or the intent was written.
    pub at: Timestamp,
    /// Hash of the engine version and the project. A turn is replayed only by the build that started it.
    pub build: u64,
}

impl JournalRecord {
    /// Whether this is an intent: an effect is about to be performed. It has no outcome and announces no reply.
    pub(crate) fn is_intent(&self) -> bool {
        self.outcome.is_none() && *self.kind != *REPLY_ANNOUNCED
    }
}

/// Merges records of one turn: the latest record of each step wins, but an intent never replaces an outcome.
pub(crate) fn merge_journal(into: &mut Vec<JournalRecord>, records: Vec<JournalRecord>) {
    for record in records {
        match into.iter_mut().find(|earlier| earlier.key == record.key) {
            Some(earlier) if record.outcome.is_some() || earlier.outcome.is_none() => *earlier = record,
            Some(_) => {}
            None => into.push(record),
        }
    }
}

/// The newest events, at most `most`, oldest first. The batches are given newest first.
pub(crate) fn newest_events(batches: Vec<Vec<Event>>, most: usize) -> Vec<Event> {
    let mut events: Vec<Event> = batches.into_iter().rev().flatten().collect();
    events.drain(..events.len().saturating_sub(most));
    events
}

/// A turn whose message was accepted and is not answered yet.
#[derive(Clone, Debug, PartialEq)]
pub struct UnfinishedTurn {
    /// Its turn.
    pub turn: TurnNumber,
    /// The message.
    pub inbound: InboxMessage,
    /// Its journal: the latest record of each step.
    pub journal: Vec<JournalRecord>,
}

/// A conversation that may need an operator: it has unfinished turns, undelivered replies or corrupt rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConversationProblem {
    /// Whose.
    pub conversation: ConversationId,
    /// Its unfinished turns, oldest first.
    pub unfinished_turns: Vec<UnfinishedTurnSummary>,
    /// How many stored replies are not delivered.
    pub pending_replies: usize,
    /// Why its stored data cannot be read, if so.
    pub corruption: Option<String>,
}

/// An unfinished turn, in short.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UnfinishedTurnSummary {
    /// Its number.
    pub turn: TurnNumber,
    /// When its message was accepted.
    pub at: Timestamp,
    /// How often it was attempted; see [`UnfinishedTurn::attempts`].
    pub attempts: u32,
}

impl UnfinishedTurn {
    /// How often the turn was attempted, as far as the journal says; at most
    /// [`limits::TURN_ATTEMPTS`](segue_base::limits::TURN_ATTEMPTS).
    pub fn attempts(&self) -> u32 {
        attempts(&self.journal)
    }
}

/// A stored turn with its journal and trace, for traces and replays.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredTurn {
    /// Its number.
    pub turn: TurnNumber,
    /// Its message.
    pub inbound: InboxMessage,
    /// Its events.
    pub events: Vec<Event>,
    /// Its replies.
    pub replies: Vec<StoredReply>,
    /// Its journal; empty after its retention period.
    pub journal: Vec<JournalRecord>,
    /// Its trace, as JSON text.
    pub trace: Option<String>,
}

/// The events of one turn, without journal and trace.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnEvents {
    /// The version of the conversation after them.
    pub version: Version,
    /// The turn; 0 if they answer no message.
    pub turn: TurnNumber,
    /// The events.
    pub events: Vec<Event>,
}

/// A conversation id with control characters escaped. Callers choose ids, and an id in a message must neither move a
/// cursor nor start a line.
fn escape_controls(id: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    id.chars().map(shown).collect()
}

/// Why a store operation failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Another writer appended in the meantime.
    #[error("another writer has changed the conversation: expected version {expected:?}, found {found:?}")]
    Conflict {
        /// The version the caller expected.
        expected: Version,
        /// The version in the store.
        found: Version,
    },
    /// The stored data of this conversation cannot be read. Other conversations are not affected.
    #[error("the stored data of conversation {} is corrupt: {reason}", escape_controls(conversation.as_str()))]
    Corrupt {
        /// Whose.
        conversation: ConversationId,
        /// What is wrong.
        reason: String,
    },
    /// The store does not answer. Whether a write happened is unknown.
    #[error("the store does not answer: {0}")]
    Unavailable(String),
    /// The files that belong to a conversation or its runs could not be deleted. The conversation is still stored.
    #[error("files could not be deleted: {0}")]
    Files(String),
    /// The store was written by a newer version.
    #[error(
        "the store has schema version {found}, but this program supports versions up to {known}: use a newer program"
    )]
    SchemaTooNew {
        /// The schema version of the store.
        found: u32,
        /// The newest schema version this program supports.
        known: u32,
    },
    /// The turn is not open: its message was never accepted, or is answered already, or the conversation was erased.
    #[error(
        "turn {turn} of conversation {} is not open: it was answered already, or never accepted, or the conversation was erased meanwhile",
        escape_controls(conversation.as_str())
    )]
    TurnNotOpen {
        /// Whose.
        conversation: ConversationId,
        /// Which.
        turn: u64,
    },
    /// Another process has the store open for writing.
    #[error(
        "the store {path} is in use by another process{}: stop that process, or name another file",
        pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
    )]
    InUse {
        /// The file.
        path: String,
        /// The process that has it open, if it could be read.
        pid: Option<u32>,
    },
    /// The intent of the step is stored already: another run of the same turn may be performing it.
    #[error("step `{key}` of turn {turn} has started already: it is not performed a second time")]
    StepAlreadyStarted {
        /// The turn.
        turn: u64,
        /// The step.
        key: StepKey,
    },
    /// The request of a step differs from the recorded one: the turn must not continue.
    #[error(
        "the request of step `{key}` differs from the recorded one: {recorded} was recorded, {found} is requested now"
    )]
    RequestChanged {
        /// The step.
        key: StepKey,
        /// The hash of the recorded request.
        recorded: Arc<str>,
        /// The hash of the present request.
        found: Arc<str>,
    },
    /// A replay reached a step that has no record.
    #[error("step `{key}` ({kind}) was not recorded: the replay took a different path")]
    NotRecorded {
        /// The step.
        key: StepKey,
        /// Its kind.
        kind: Arc<str>,
    },
    /// The store cannot be used as asked: the address, the file or the operation is not supported.
    #[error("{given}: {reason}; {help}")]
    Unsupported {
        /// As written.
        given: String,
        /// Why not.
        reason: String,
        /// How to fix it.
        help: String,
    },
}

impl StoreError {
    /// The error code, as in `segue explain`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Conflict { .. } => "S0101",
            Self::Corrupt { .. } => "S0102",
            Self::Unavailable(_) => "S0103",
            Self::SchemaTooNew { .. } => "S0104",
            Self::TurnNotOpen { .. } => "S0105",
            Self::Unsupported { .. } => "S0106",
            Self::InUse { .. } => "S0107",
            Self::StepAlreadyStarted { .. } => "S0108",
            Self::Files(_) => "S0109",
            Self::RequestChanged { .. } => "S0201",
            Self::NotRecorded { .. } => "S0202",
        }
    }

    /// Whether the same operation may succeed later without any change.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Conflict { .. } | Self::StepAlreadyStarted { .. })
    }

    /// A [`StoreError::Corrupt`].
    pub fn corrupt(conversation: &ConversationId, reason: impl std::fmt::Display) -> Self {
        Self::Corrupt { conversation: conversation.clone(), reason: reason.to_string() }
    }
}

/// A durable store of conversations. It is object-safe, and every method may be called concurrently.
#[async_trait]
pub trait Store: Send + Sync {
    /// Stores a message before it is processed, or returns what happened to the same message earlier. Durable when it
    /// returns. A message without an id is always new. [`AcceptOutcome::New`] with turn 1 means that nothing of the
    /// conversation is stored: it need not be loaded.
    async fn accept(&self, inbound: InboxMessage) -> Result<AcceptOutcome, StoreError>;
    /// The conversation; empty if nothing of it is stored.
    async fn load(&self, id: &ConversationId) -> Result<StoredConversation, StoreError>;
    /// Appends records to the journal of an open turn. Durable when it returns. The latest record of a step replaces
    /// the earlier ones. An intent (a record without an outcome that announces no reply) is written once per step and
    /// build: a second one fails with [`StoreError::StepAlreadyStarted`], and nothing of the call is stored.
    ///
    /// # Errors
    /// [`StoreError::TurnNotOpen`] for a turn that is not open.
    async fn append_journal(
        &self,
        id: &ConversationId,
        turn: TurnNumber,
        records: Vec<JournalRecord>,
    ) -> Result<(), StoreError>;
    /// Commits a turn: events, replies, journal, snapshot, and that its message is answered. All or nothing, and only
    /// if the version is still `after` and the turn is open. The replies wait in the outbox, except those in
    /// [`TurnCommit::delivered`], which are delivered already.
    ///
    /// Cancellation: the write continues when the future is dropped. Read the version to learn the result.
    async fn append(&self, id: &ConversationId, after: Version, batch: TurnCommit) -> Result<Version, StoreError>;
    /// The unfinished turns of a conversation, oldest first.
    async fn unfinished_turns(&self, id: &ConversationId) -> Result<Vec<UnfinishedTurn>, StoreError>;
    /// The unfinished turns with these numbers, oldest first. If there are none, the cost does not grow with the
    /// conversation.
    async fn unfinished_turns_in(
        &self,
        id: &ConversationId,
        turns: Range<TurnNumber>,
    ) -> Result<Vec<UnfinishedTurn>, StoreError>;
    /// The replies of a turn; `None` while it is open, and if there is no such turn.
    async fn replies_of(&self, id: &ConversationId, turn: TurnNumber) -> Result<Option<Vec<StoredReply>>, StoreError>;
    /// Conversations that have unfinished turns or undelivered replies, the most recently active first; used for
    /// recovery at start.
    async fn conversations_with_work(&self) -> Result<Vec<ConversationId>, StoreError>;
    /// The conversations with reminders and the time at which the earliest of each is due, the earliest first, at most
    /// `limit`.
    async fn next_reminders(&self, limit: usize) -> Result<Vec<(ConversationId, Timestamp)>, StoreError>;
    /// Replies that are stored and not delivered, oldest first. At most [`limits::OUTBOX`](segue_base::limits::OUTBOX)
    /// are kept: older ones are dropped from the outbox.
    async fn pending_replies(&self, id: &ConversationId) -> Result<Vec<StoredReply>, StoreError>;
    /// Marks replies as delivered. Returns when the store has queued the mark; later reads see it. A crash may lose it,
    /// and then the reply is sent again under the same id.
    async fn mark_delivered(&self, id: &ConversationId, replies: Vec<Arc<str>>) -> Result<(), StoreError>;
    /// One turn with its journal. `None` while it is open, if there is no such turn, and for 0. The cost does not grow with the
    /// conversation.
    async fn turn(&self, id: &ConversationId, turn: TurnNumber) -> Result<Option<StoredTurn>, StoreError>;
    /// The turns of a conversation with their journals, oldest first.
    async fn turns(&self, id: &ConversationId) -> Result<Vec<StoredTurn>, StoreError>;
    /// The events of a conversation turn by turn, newest first: those before the version `before`, at most `most`
    /// turns.
    async fn latest_turns(
        &self,
        id: &ConversationId,
        before: Option<Version>,
        most: usize,
    ) -> Result<Vec<TurnEvents>, StoreError>;
    /// The newest events of a conversation, oldest first, at most `most`.
    async fn latest_events(&self, id: &ConversationId, most: usize) -> Result<Vec<Event>, StoreError>;
    /// Ids of the conversations, newest first, at most `limit`.
    async fn conversations(&self, limit: usize) -> Result<Vec<ConversationId>, StoreError>;
    /// Deletes a conversation with everything stored of it.
    async fn erase(&self, id: &ConversationId) -> Result<(), StoreError>;
    /// Deletes journals, traces, texts and deduplication entries whose retention has passed. Returns how many rows were
    /// deleted.
    async fn purge_expired(&self, now: Timestamp) -> Result<u64, StoreError>;
    /// The replies to one message, if it was answered.
    async fn replies_to_message(
        &self,
        id: &ConversationId,
        message: &MessageId,
    ) -> Result<Option<Vec<StoredReply>>, StoreError>;
    /// Conversations that may need an operator, sorted by id. This reads every conversation that
    /// [`conversations`](Self::conversations) lists.
    async fn problems(&self) -> Result<Vec<ConversationProblem>, StoreError> {
        let mut ids = self.conversations_with_work().await?;
        ids.extend(self.conversations(usize::MAX).await?);
        ids.sort_unstable();
        ids.dedup();
        let mut found = Vec::new();
        for conversation in ids {
            let read = async {
                self.load(&conversation).await?;
                let open = self.unfinished_turns(&conversation).await?.into_iter();
                let open = open.map(|open| UnfinishedTurnSummary {
                    turn: open.turn,
                    at: open.inbound.at,
                    attempts: open.attempts(),
                });
                let open: Vec<UnfinishedTurnSummary> = open.collect();
                Ok((open, self.pending_replies(&conversation).await?.len()))
            };
            let (open, pending_replies, corruption) = match read.await {
                Ok((open, pending_replies)) => (open, pending_replies, None),
                Err(StoreError::Corrupt { reason, .. }) => (Vec::new(), 0, Some(reason)),
                Err(error) => return Err(error),
            };
            if !open.is_empty() || pending_replies > 0 || corruption.is_some() {
                found.push(ConversationProblem { conversation, unfinished_turns: open, pending_replies, corruption });
            }
        }
        Ok(found)
    }
    /// Checks that messages can be stored, for readiness probes. A store should make one small write through the same
    /// path as all others, and one that uses files should check that they still exist. The default only reads.
    async fn ping(&self) -> Result<(), StoreError> {
        self.conversations(1).await.map(drop)
    }
    /// Flushes pending writes and merges side files into the main file, for a clean shutdown. Writing remains possible.
    async fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
    /// The text that a commit stored under this hash.
    async fn text_by_hash(&self, id: &ConversationId, hash: &str) -> Result<Option<Arc<str>>, StoreError>;
    /// Stores a text under a name beside a conversation, or removes it (`None`). It is for data that must be in no
    /// event, snapshot or trace, such as credentials of a caller. It is deleted with its conversation and, after its
    /// retention, by [`purge_expired`](Self::purge_expired).
    ///
    /// # Errors
    /// A store that has no private texts (the default) returns [`StoreError::Unavailable`].
    async fn set_private_text(
        &self,
        _id: &ConversationId,
        _name: &str,
        _text: Option<String>,
        _at: Timestamp,
    ) -> Result<(), StoreError> {
        Err(StoreError::Unavailable("this store does not support private texts".to_owned()))
    }
    /// The private text of this name, if any.
    async fn private_text(&self, _id: &ConversationId, _name: &str) -> Result<Option<String>, StoreError> {
        Ok(None)
    }
}
