//! Everything durable: messages, events, replies, journals, reminders.
//!
//! Entry: [`open`] gives a [`Store`]. One contract suite runs against every driver. This module never interprets events: it
//! keeps what it is given and guards the version. It never performs an effect.

#[cfg(feature = "sqlite")]
mod checksum;
#[cfg(any(test, debug_assertions, feature = "testing"))]
pub mod contract;
mod dedup;
mod location;
mod memory;
#[cfg(feature = "sqlite")]
mod sqlite;
mod turn_records;

use std::{ops::Range, sync::Arc};

use futures::future::BoxFuture;
use segue_base::context::StepKey;
use segue_engine::{
    conversation::{BotMessage, Conversation, Event, EventKind, Reply, UserMessage},
    ids::{ConversationId, MessageId},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

#[cfg(feature = "sqlite")]
pub use self::sqlite::SqliteStore;
pub use self::turn_records::{ATTEMPTS, SPEAKING, speaking};
pub use self::{
    location::{Location, backup, open, view},
    memory::MemoryStore,
    turn_records::{announced_replies, attempts},
};

/// How many batches a conversation has; the guard of every append.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version(pub u64);

/// The number of a turn within its conversation, from 1; given when its message is accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TurnNumber(pub u64);

impl TurnNumber {
    /// The first turn of a conversation of which nothing was stored.
    pub const FIRST: Self = Self(1);
}

/// A message at the door. (tenant, input channel, account, conversation, message id) is the key against duplicates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InboxMessage {
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
pub enum AcceptOutcome {
    /// It is new, and stored. Turn 1 says that nothing else of this conversation is stored: where batches stand without turns,
    /// as after an import, the first turn is number 2.
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

impl StoredReply {
    /// The id of the reply that a message of the assistant is, the `at`th of its turn from 0: its own, or its place.
    pub fn id_of(turn: TurnNumber, at: usize, bot: &BotMessage) -> Arc<str> {
        bot.reply_id.clone().unwrap_or_else(|| format!("{}/r{at}", turn.0).into())
    }

    /// The replies that events of a turn tell of, after `before` others.
    pub fn told(turn: TurnNumber, before: usize, events: &[Event]) -> impl Iterator<Item = Self> {
        bots(events).zip(before..).map(move |(bot, at)| Self {
            id: Self::id_of(turn, at, bot),
            reply: bot.reply.clone(),
            kind: bot.kind,
        })
    }
}

/// What the assistant said.
fn bots(events: &[Event]) -> impl Iterator<Item = &BotMessage> {
    events.iter().filter_map(|event| match &event.kind {
        EventKind::Bot(bot) => Some(&**bot),
        _ => None,
    })
}

/// A conversation as stored.
#[derive(Clone, Debug, Default)]
pub struct StoredConversation {
    /// The newest snapshot, if any.
    pub snapshot: Option<Conversation>,
    /// Events after the snapshot.
    pub tail: Vec<Event>,
    /// How many batches there are.
    pub version: Version,
}

/// All that a turn leaves, written in one transaction.
#[derive(Clone, Debug, Default)]
pub struct TurnCommit {
    /// The turn; 0 for events that answer no message, such as those of a timer or of the API.
    pub turn: TurnNumber,
    /// Its events.
    pub events: Vec<Event>,
    /// Its replies: they wait in the outbox until they are delivered, but for those of `delivered`.
    pub replies: Vec<StoredReply>,
    /// The ids of those that the channel has already: they do not wait.
    pub delivered: Vec<Arc<str>>,
    /// Journal records that were not written before.
    pub journal: Vec<JournalRecord>,
    /// A snapshot after these events, when one is due.
    pub snapshot: Option<Conversation>,
    /// The trace of the turn, as JSON text.
    pub trace: Option<String>,
    /// When the conversation's earliest reminder is due from now on, where that has changed; the inner `None` is never.
    pub timer: Option<Option<Timestamp>>,
    /// Large texts that the trace or the journal refer to by hash; each is stored once in a conversation.
    pub bodies: Vec<StoredText>,
}

/// A text that is stored once, however often it is referred to: a prompt, a tool list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredText {
    /// Its hash, as the caller made it; the name under which it is found.
    pub hash: Arc<str>,
    /// The text.
    pub text: Arc<str>,
}

/// One record of the journal: an intent, or an outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalRecord {
    /// The step.
    pub key: StepKey,
    /// What it does: `llm`, `tools`, `tool`, `action`, `speaking`, `input`, `takeover`, `attempts`.
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

impl JournalRecord {
    /// Whether it says that an effect is about to leave: it has no outcome, and announces no reply.
    pub(crate) fn is_intent(&self) -> bool {
        self.outcome.is_none() && *self.kind != *SPEAKING
    }
}

/// Adds records to those of the same turn: the latest of each step, but an intent never replaces an outcome.
pub(crate) fn merge_journal(into: &mut Vec<JournalRecord>, records: Vec<JournalRecord>) {
    for record in records {
        match into.iter_mut().find(|earlier| earlier.key == record.key) {
            Some(earlier) if record.outcome.is_some() || earlier.outcome.is_none() => *earlier = record,
            Some(_) => {}
            None => into.push(record),
        }
    }
}

/// The newest events of batches that were read newest first, oldest first, at most `most`.
pub(crate) fn newest(batches: Vec<Vec<Event>>, most: usize) -> Vec<Event> {
    let mut events: Vec<Event> = batches.into_iter().rev().flatten().collect();
    events.drain(..events.len().saturating_sub(most));
    events
}

/// A message that was accepted and not answered.
#[derive(Clone, Debug, PartialEq)]
pub struct UnfinishedTurn {
    /// Its turn.
    pub turn: TurnNumber,
    /// The message.
    pub inbound: InboxMessage,
    /// What its turn had recorded: the latest record of each step.
    pub journal: Vec<JournalRecord>,
}

/// A conversation that an operator may have to look at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trouble {
    /// Whose.
    pub conversation: ConversationId,
    /// Its turns whose messages were accepted and are not answered, oldest first.
    pub open: Vec<OpenTurn>,
    /// Replies that were stored and not delivered.
    pub undelivered: usize,
    /// Why its record cannot be read.
    pub damage: Option<String>,
}

/// A turn that is not finished.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OpenTurn {
    /// Its number.
    pub turn: TurnNumber,
    /// When its message was accepted.
    pub at: Timestamp,
    /// How often it was tried, as [`UnfinishedTurn::attempts`] says.
    pub attempts: u32,
}

impl UnfinishedTurn {
    /// How often it was tried, as far as is known; at most [`limits::TURN_ATTEMPTS`](segue_base::limits::TURN_ATTEMPTS).
    pub fn attempts(&self) -> u32 {
        attempts(&self.journal)
    }
}

/// A turn as stored, for traces and replays.
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
    /// Its journal; empty when it is past its retention.
    pub journal: Vec<JournalRecord>,
    /// Its trace, as JSON text.
    pub trace: Option<String>,
}

/// The events of one turn, without what only traces and replays need.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnEvents {
    /// The version that the conversation had after them.
    pub version: Version,
    /// The turn; 0 where they answer no message.
    pub turn: TurnNumber,
    /// The events.
    pub events: Vec<Event>,
}

/// A conversation's name as a message may show it: callers choose it, and it must neither move a cursor nor begin a line.
fn plain(id: &ConversationId) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    id.as_str().chars().map(shown).collect()
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
    #[error("the record of conversation {} is damaged: {reason}", plain(conversation))]
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
    /// The turn is not open: its message was never accepted, or is answered already, or the conversation was erased meanwhile.
    #[error(
        "turn {turn} of conversation {} is not open: it was answered already, or never accepted, or the conversation was erased meanwhile",
        plain(conversation)
    )]
    NotAccepted {
        /// Whose.
        conversation: ConversationId,
        /// Which.
        turn: u64,
    },
    /// Another process writes to the store.
    #[error(
        "the store {path} is in use by another process{}: stop that process, or name another file",
        pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
    )]
    InUse {
        /// The file.
        path: String,
        /// The process that has it, where it could be read.
        pid: Option<u32>,
    },
    /// The intent of a step is stored already: another run of the same turn may be performing it.
    #[error("step `{key}` of turn {turn} has begun already: it is not performed a second time")]
    AlreadyBegun {
        /// The turn.
        turn: u64,
        /// The step.
        key: StepKey,
    },
    /// A step asks for something else than its record says: the turn must not go on.
    #[error("step `{key}` asks for something else than what was recorded for it: {recorded} then, {found} now")]
    RequestChanged {
        /// The step.
        key: StepKey,
        /// The hash of the recorded request.
        recorded: Arc<str>,
        /// The hash of the present one.
        found: Arc<str>,
    },
    /// A replay came to a step that has no record.
    #[error("step `{key}` ({kind}) was not recorded: the replay took another way")]
    NotRecorded {
        /// The step.
        key: StepKey,
        /// Its kind.
        kind: Arc<str>,
    },
    /// The address of a store is not one that this program can open.
    #[error("{given}: {reason}; {cure}")]
    Unsupported {
        /// As written.
        given: String,
        /// Why not.
        reason: String,
        /// What to do.
        cure: String,
    },
}

impl StoreError {
    /// The code that `segue explain` knows.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Conflict { .. } => "S0101",
            Self::Damaged { .. } => "S0102",
            Self::Unavailable(_) => "S0103",
            Self::TooNew { .. } => "S0104",
            Self::NotAccepted { .. } => "S0105",
            Self::Unsupported { .. } => "S0106",
            Self::InUse { .. } => "S0107",
            Self::AlreadyBegun { .. } => "S0108",
            Self::RequestChanged { .. } => "S0201",
            Self::NotRecorded { .. } => "S0202",
        }
    }

    /// Whether the same may succeed later without anything being changed.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Conflict { .. } | Self::AlreadyBegun { .. })
    }

    /// A record that cannot be read.
    pub fn damaged(conversation: &ConversationId, reason: impl std::fmt::Display) -> Self {
        Self::Damaged { conversation: conversation.clone(), reason: reason.to_string() }
    }
}

/// Everything durable. Object-safe; every method may be called at once from many conversations.
pub trait Store: Send + Sync {
    /// Stores a message before anything is done about it, or says what became of the same one earlier. Durable when it returns.
    /// A message without an id is always new. Turn 1 of a conversation tells that nothing is stored of it: no load is needed.
    fn accept(&self, inbound: InboxMessage) -> BoxFuture<'_, Result<AcceptOutcome, StoreError>>;
    /// The conversation; empty when nothing is known of it.
    fn load<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<StoredConversation, StoreError>>;
    /// Writes records of an open turn. Durable when it returns. The latest record of a step replaces the earlier. An intent (a record
    /// without an outcome, but for announcements of replies) is written once for each step and build: otherwise nothing of the call is
    /// stored, and the answer is [`StoreError::AlreadyBegun`]. A turn that is not open is [`StoreError::NotAccepted`].
    fn journal<'a>(
        &'a self,
        id: &'a ConversationId,
        turn: TurnNumber,
        records: Vec<JournalRecord>,
    ) -> BoxFuture<'a, Result<(), StoreError>>;
    /// Writes a turn: events, replies, journal, snapshot, and the mark that its message is answered; all or nothing, and only
    /// if the version is still `after` and the turn is open. Replies wait in the outbox, but for those of [`TurnCommit::delivered`], of
    /// which no receipt comes.
    /// *Cancellation*: the write goes on; read the version to know.
    fn append<'a>(
        &'a self,
        id: &'a ConversationId,
        after: Version,
        batch: TurnCommit,
    ) -> BoxFuture<'a, Result<Version, StoreError>>;
    /// Messages accepted and not answered, oldest first.
    fn unfinished<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<Vec<UnfinishedTurn>, StoreError>>;
    /// The same for the turns with these numbers alone; where there are none, its cost does not grow with the conversation.
    fn open_turns<'a>(
        &'a self,
        id: &'a ConversationId,
        turns: Range<TurnNumber>,
    ) -> BoxFuture<'a, Result<Vec<UnfinishedTurn>, StoreError>> {
        Box::pin(async move {
            let mut open = self.unfinished(id).await?;
            open.retain(|one| turns.contains(&one.turn));
            Ok(open)
        })
    }
    /// The replies of a turn; `None` while it is open, and where there is no such turn.
    fn replies_of<'a>(
        &'a self,
        id: &'a ConversationId,
        turn: TurnNumber,
    ) -> BoxFuture<'a, Result<Option<Vec<StoredReply>>, StoreError>> {
        Box::pin(async move {
            let turns = self.turns(id).await?;
            Ok(turns.into_iter().find(|stored| stored.turn == turn).map(|stored| stored.replies))
        })
    }
    /// Conversations that have unfinished messages or undelivered replies, those that were active last first; for the sweep at start.
    fn waiting(&self) -> BoxFuture<'_, Result<Vec<ConversationId>, StoreError>>;
    /// Conversations whose earliest reminder is due first, with that time; at most `limit`, the earliest first.
    fn timers(&self, limit: usize) -> BoxFuture<'_, Result<Vec<(ConversationId, Timestamp)>, StoreError>>;
    /// Replies that were stored and not delivered, oldest first; at most [`limits::OUTBOX`](segue_base::limits::OUTBOX), older
    /// ones are given up.
    fn undelivered<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<Vec<StoredReply>, StoreError>>;
    /// Marks replies as delivered. Returns once the store has it in hand, and later looks see it; a crash may lose it, and then the
    /// reply goes out once more under the same id.
    fn delivered<'a>(&'a self, id: &'a ConversationId, replies: Vec<Arc<str>>)
    -> BoxFuture<'a, Result<(), StoreError>>;
    /// The turns of a conversation, oldest first.
    fn turns<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<Vec<StoredTurn>, StoreError>>;
    /// The events of a conversation turn by turn, newest first: those before the version `before`, at most `most` turns.
    fn latest_turns<'a>(
        &'a self,
        id: &'a ConversationId,
        before: Option<Version>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<TurnEvents>, StoreError>> {
        Box::pin(async move {
            let turns = self.turns(id).await?.into_iter().zip(1..);
            let events = turns.map(|(StoredTurn { turn, events, .. }, number)| TurnEvents {
                version: Version(number),
                turn,
                events,
            });
            let earlier = events.filter(|turn| before.is_none_or(|before| turn.version < before));
            let mut earlier: Vec<TurnEvents> = earlier.collect();
            earlier.reverse();
            earlier.truncate(most);
            Ok(earlier)
        })
    }
    /// The newest events of a conversation, oldest first, at most `most`.
    fn latest_events<'a>(
        &'a self,
        id: &'a ConversationId,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<Event>, StoreError>> {
        Box::pin(async move {
            let mut events: Vec<Event> = self.turns(id).await?.into_iter().flat_map(|turn| turn.events).collect();
            events.drain(..events.len().saturating_sub(most));
            Ok(events)
        })
    }
    /// Ids of the conversations, newest first, at most `limit`.
    fn conversations(&self, limit: usize) -> BoxFuture<'_, Result<Vec<ConversationId>, StoreError>>;
    /// Forgets a conversation, bodies included.
    fn erase<'a>(&'a self, id: &'a ConversationId) -> BoxFuture<'a, Result<(), StoreError>>;
    /// Removes journals, traces and bodies that are past their retention, and forgets old duplicates; how many rows went.
    fn expire(&self, now: Timestamp) -> BoxFuture<'_, Result<u64, StoreError>>;
    /// The replies to one message, if it was answered.
    fn answered<'a>(
        &'a self,
        id: &'a ConversationId,
        message: &'a MessageId,
    ) -> BoxFuture<'a, Result<Option<Vec<StoredReply>>, StoreError>>;
    /// Conversations that an operator may have to look at, by name. Reads every conversation; a store that lists only so many looks at those.
    fn troubles(&self) -> BoxFuture<'_, Result<Vec<Trouble>, StoreError>> {
        Box::pin(async move {
            let mut ids = self.waiting().await?;
            ids.extend(self.conversations(usize::MAX).await?);
            ids.sort_unstable();
            ids.dedup();
            let mut found = Vec::new();
            for conversation in ids {
                let read = async {
                    self.load(&conversation).await?;
                    let open = self.unfinished(&conversation).await?.into_iter();
                    let open =
                        open.map(|open| OpenTurn { turn: open.turn, at: open.inbound.at, attempts: open.attempts() });
                    let open: Vec<OpenTurn> = open.collect();
                    Ok((open, self.undelivered(&conversation).await?.len()))
                };
                let (open, undelivered, damage) = match read.await {
                    Ok((open, undelivered)) => (open, undelivered, None),
                    Err(StoreError::Damaged { reason, .. }) => (Vec::new(), 0, Some(reason)),
                    Err(error) => return Err(error),
                };
                if !open.is_empty() || undelivered > 0 || damage.is_some() {
                    found.push(Trouble { conversation, open, undelivered, damage });
                }
            }
            Ok(found)
        })
    }
    /// Whether messages can be stored, found out by one small write that goes the way of all others; for checks of readiness.
    /// A store that keeps what it has in files also looks whether they are still there. Unless a store says more, it reads.
    fn ping(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async { self.conversations(1).await.map(drop) })
    }
    /// Stores what waits for company and brings side files into one, for a clean end of the process. Writing stays possible.
    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// A text that some batch stored under this hash.
    fn body<'a>(&'a self, id: &'a ConversationId, hash: &'a str)
    -> BoxFuture<'a, Result<Option<Arc<str>>, StoreError>>;
    /// Keeps a text beside a conversation under a name, or removes it: what must stand in no event, snapshot or trace, such as the
    /// credentials of a caller. It goes with its conversation, and [`expire`](Self::expire) removes what was kept a retention ago.
    /// A store that keeps no such texts says so by an error: then they are lost when the process ends.
    fn keep_private<'a>(
        &'a self,
        _id: &'a ConversationId,
        _name: &'a str,
        _text: Option<String>,
        _at: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let refused = StoreError::Unavailable("this store keeps no private texts".to_owned());
        Box::pin(std::future::ready(Err(refused)))
    }
    /// The private text of a name, where there is one.
    fn private<'a>(
        &'a self,
        _id: &'a ConversationId,
        _name: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}
