//! The runtime executes turns: from the message to the stored and delivered replies.
//!
//! The entry is [`Assistant`]. The module is the only one that sees both the dialogue engine and the adapters; it contains no HTTP, no
//! vendor and no channel. Guarantees:
//!
//! * A message is stored before it is processed.
//! * A conversation runs one turn at a time.
//! * A turn is one transaction.
//! * Every effect goes through the effect journal.
//! * A reply is sent after it is stored, except the deltas of a stream, which are announced in the journal first.

mod activity;
mod admission;
mod builder;
mod effects;
mod feed;
mod incoming;
mod mailbox;
mod outbox;
mod project_models;
mod project_runtime;
mod recovery;
mod reminders;
mod replay;
mod running_turns;
mod seeds;
mod turn;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use segue_engine::{
    conversation::{Conversation, ModelUsage},
    ids::ConversationId,
    project::Project,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    admission::AdmissionControl,
    feed::Feeds,
    mailbox::Mailboxes,
    project_runtime::ProjectRuntime,
    running_turns::RunningTurns,
    turn::{Origin, UnsavedTurns},
};
pub use self::{
    admission::{Admission, Overload, OverloadLimit},
    builder::{AssistantBuilder, LoadError},
    feed::{FeedEvent, FeedPosition, InvalidPosition, TurnEventStream},
    incoming::IncomingMessage,
    outbox::OutboxSinks,
    project_runtime::Action,
    reminders::{OutboxSink, ReminderSinks},
    replay::{ReplayDifference, ReplayError, TraceStep, TurnTrace},
    turn::{Accepted, TraceEntry},
};
pub use crate::journal::TraceProgress;
use crate::{
    a2a,
    actions::Health,
    clock::Clock,
    context::CallContext,
    conversation::{AcceptAllSink, ReplySink},
    http::HttpClients,
    journal::Journal,
    limits,
    missions::RunRetention,
    store::{Store, StoreError, StoredReply, TurnNumber, Version},
    tools::{SourceError, ToolCatalog, workspace::Workspaces},
};

/// A running assistant: a loaded project with its models, tools and store. Cheap to clone; all clones are the same assistant.
#[derive(Clone)]
pub struct Assistant(Arc<Inner>);

struct Inner {
    runtime: Arc<ProjectRuntime>,
    store: Arc<dyn Store>,
    /// Deletes the runs of a conversation.
    runs: RunRetention,
    clock: Arc<dyn Clock>,
    mailboxes: Mailboxes,
    /// Which messages are accepted, and how many turns run at once.
    admission: Arc<AdmissionControl>,
    /// Each turn runs as its own task: it survives a caller that leaves, and a panic in it stops no other turn.
    tasks: TaskTracker,
    /// Work of channels outside turns, which may start turns: for example the reports of remote agents.
    background_tasks: TaskTracker,
    /// Hash of the version and the project. Each journal record contains it.
    build_hash: u64,
    turn_timeout: Duration,
    /// Journals of turns that could not be stored.
    unsaved: UnsavedTurns,
    /// Notified when a turn has changed the time of the next reminder.
    reminders_changed: tokio::sync::Notify,
    /// The number of conversations that recovery has not finished.
    recovering: AtomicUsize,
    /// Cancelled when the shutdown is announced: `/readyz` fails, readers of conversations end, and messages are still answered.
    shutdown: CancellationToken,
    /// The turns that can be interrupted.
    running_turns: RunningTurns,
    /// The readers of conversations.
    feeds: Feeds,
    /// Conversations with replies that may be undelivered.
    outbox: outbox::OutboxQueue,
    /// Conversations whose reminders failed, and when they are tried again.
    reminder_backoff: reminders::RetryBackoff,
    /// Draws the seed of each turn.
    seed_source: Arc<dyn Fn() -> u64 + Send + Sync>,
    outbound: HttpClients,
    /// Wraps the journal of each turn, to record test cases or to play them back.
    journal_wrapper: Option<JournalWrapper>,
}

/// Wraps the journal of a turn.
pub(crate) type JournalWrapper = Arc<dyn Fn(Arc<dyn Journal>) -> Arc<dyn Journal> + Send + Sync>;

/// The result of a message.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TurnReport {
    /// The number of its turn.
    pub turn: TurnNumber,
    /// Replies of earlier turns that were undelivered and that the sink received before those of this turn. Empty if the sink does not
    /// take them ([`ReplySink::accepts_earlier_replies`]).
    pub earlier_replies: Vec<StoredReply>,
    /// The replies of this turn, in order.
    pub replies: Vec<StoredReply>,
    /// Internal failures, for operators. The user received the response of the error pattern instead.
    pub failures: Vec<Failure>,
    /// Whether the session has ended.
    pub session_ended: bool,
    /// Whether the message was already answered. `replies` are then the stored replies.
    pub is_duplicate: bool,
    /// The responses of models that the turn has used, with their tokens and cost. None for a turn that this report did not run.
    pub usage: ModelUsage,
}

impl TurnReport {
    /// The report of a turn with these stored replies.
    pub fn new(turn: TurnNumber, replies: Vec<StoredReply>) -> Self {
        let (earlier_replies, failures) = (Vec::new(), Vec::new());
        let usage = ModelUsage::default();
        Self { turn, earlier_replies, replies, failures, session_ended: false, is_duplicate: false, usage }
    }
    /// The texts of all replies, in order: the undelivered ones of earlier turns, then those of this turn.
    pub fn texts(&self) -> Vec<&str> {
        let replies = self.earlier_replies.iter().chain(&self.replies);
        replies.filter_map(|reply| reply.reply.text.as_deref()).collect()
    }
    /// [`texts`](Self::texts) as one text, one line each.
    pub fn text(&self) -> String {
        self.texts().join("\n")
    }
}

/// A failure during a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The error code; `segue explain` shows its page.
    pub code: String,
    /// The cause, for operators.
    pub reason: String,
}

/// Why a message did not lead to a turn.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReceiveError {
    /// Too many messages of this conversation are waiting.
    #[error("the conversation is busy: {0}; try again later")]
    Busy(&'static str),
    /// A limit of the assistant or of the caller is reached.
    #[error("the message was not accepted: {0}")]
    Overloaded(Overload),
    /// The store failed. The message may have been accepted.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The message was accepted, and its turn could not be finished. A later message of the conversation finishes it first, or the next
    /// start of the program.
    #[error("the message was accepted, but its turn is not finished yet: {0}")]
    Unfinished(Box<ReceiveError>),
    /// The turn failed; the conversation is as it was before.
    #[error("the turn failed; the conversation is as it was before")]
    TurnFailed,
    /// The assistant is being shut down.
    #[error("the assistant is being shut down")]
    ShuttingDown,
}

impl ReceiveError {
    /// The error code; `segue explain` shows its page.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Busy(_) => "R0101",
            Self::Overloaded(_) => "R0106",
            Self::Store(error) => error.code(),
            Self::Unfinished(cause) => cause.code(),
            Self::TurnFailed => "R0102",
            Self::ShuttingDown => "R0103",
        }
    }

    /// After which time a retry is useful; `None` if the message may have been accepted.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy(_) | Self::ShuttingDown => Some(Duration::from_secs(1)),
            Self::Overloaded(overload) => Some(overload.retry_after),
            Self::Store(_) | Self::Unfinished(_) | Self::TurnFailed => None,
        }
    }

    /// Whether the message may be sent again, as a text for callers.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Busy(_) | Self::Overloaded(_) | Self::ShuttingDown => "the message was not accepted; send it again",
            Self::Store(_) => {
                "it is unknown whether the message was accepted; send it again only with the same `message_id`"
            }
            Self::Unfinished(_) | Self::TurnFailed => {
                "the message was accepted; its replies follow with your next request; send it again only with the same `message_id`"
            }
        }
    }

    /// The error of a message that was accepted before.
    fn after_accept(self) -> Self {
        match self {
            // The conversation was erased meanwhile: nothing follows.
            Self::TurnFailed | Self::Store(StoreError::TurnNotOpen { .. }) => self,
            error => Self::Unfinished(Box::new(error)),
        }
    }
}

impl Assistant {
    /// The files of conversations, which agents with `workspace` read and write: to add files of a user, and to read those that an agent
    /// presents.
    pub fn workspaces(&self) -> &Workspaces {
        &self.0.runtime.workspaces
    }
    /// The input channel of messages that name none, such as those of [`say`](Self::say).
    pub const CHANNEL: &str = "program";

    /// Sends a text and waits for the turn. [`TurnReport::text`] is the answer.
    ///
    /// Each call is a new message. To deduplicate messages, or to pass metadata, use [`receive`](Self::receive).
    ///
    /// # Errors
    /// [`ReceiveError`] if there was no turn. After [`ReceiveError::Busy`] and [`ReceiveError::Overloaded`] the message was not accepted.
    pub async fn say(
        &self,
        conversation: impl Into<ConversationId>,
        text: impl Into<Arc<str>>,
    ) -> Result<TurnReport, ReceiveError> {
        self.receive(IncomingMessage::new(conversation, text), Box::new(AcceptAllSink)).await
    }

    /// Receives a message and sends the replies to `sink`.
    ///
    /// *Cancellation*: the turn continues. Whether the message was accepted is then recorded only in the store.
    ///
    /// # Errors
    /// [`ReceiveError`] if there was no turn. After [`ReceiveError::Busy`] and [`ReceiveError::Overloaded`] the message was not accepted.
    pub async fn receive(
        &self,
        incoming: IncomingMessage,
        sink: Box<dyn ReplySink>,
    ) -> Result<TurnReport, ReceiveError> {
        self.receive_for(None, incoming, sink).await
    }

    /// [`receive`](Self::receive) for a caller with several conversations: the limit of open turns per caller applies to all of them
    /// together. Without a caller the conversation is the caller.
    ///
    /// # Errors
    /// As [`Assistant::receive`].
    pub async fn receive_for(
        &self,
        caller: Option<&str>,
        mut incoming: IncomingMessage,
        sink: Box<dyn ReplySink>,
    ) -> Result<TurnReport, ReceiveError> {
        reminders::strip_trigger_channel(&mut incoming);
        self.enqueue(incoming, sink, Origin::Caller(caller), None)?.finished().await
    }

    /// [`receive_for`](Self::receive_for) that returns as soon as the message is stored: for channels that must answer a platform before the
    /// turn is over. Replies go to `sink`; [`Accepted::finished`] waits for the turn.
    ///
    /// # Errors
    /// As [`Assistant::receive`], except for turns that fail later.
    pub async fn accept_for(
        &self,
        caller: Option<&str>,
        mut incoming: IncomingMessage,
        sink: Box<dyn ReplySink>,
    ) -> Result<Accepted, ReceiveError> {
        reminders::strip_trigger_channel(&mut incoming);
        self.enqueue_and_accept(incoming, sink, Origin::Caller(caller)).await
    }

    /// Whether a message of this caller would be accepted at this moment. It reserves nothing.
    ///
    /// # Errors
    /// [`ReceiveError::Overloaded`] or [`ReceiveError::ShuttingDown`], as [`Assistant::receive_for`].
    pub fn check_admission(&self, caller: Option<&str>, conversation: &ConversationId) -> Result<(), ReceiveError> {
        if self.0.tasks.is_closed() {
            return Err(ReceiveError::ShuttingDown);
        }
        self.0.admission.admit(true)?.assign_caller(caller.unwrap_or(conversation.as_str()), 0)
    }

    /// The project that new turns use.
    pub fn project(&self) -> Arc<Project> {
        self.0.runtime.project.clone()
    }
    /// The sub-agents that wait or work, to show and to cancel them.
    pub fn delegations(&self) -> &Arc<crate::delegation::Delegations> {
        &self.0.runtime.delegations
    }
    /// The store of the conversations.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }
    /// The HTTP clients of the project.
    pub fn outbound(&self) -> &HttpClients {
        &self.0.outbound
    }
    /// The clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }
    /// A conversation as it is stored.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read.
    pub async fn conversation(&self, id: &ConversationId) -> Result<Conversation, StoreError> {
        turn::load(&self.0, id).await.map(|cached| cached.conversation)
    }
    /// A conversation with its version in the store.
    pub(crate) async fn conversation_at(&self, id: &ConversationId) -> Result<(Conversation, Version), StoreError> {
        turn::load(&self.0, id).await.map(|cached| (cached.conversation, cached.version))
    }
    /// The status of each tool source, by name; for `/health`.
    pub fn tool_source_status(&self) -> BTreeMap<String, Health> {
        self.0.runtime.sources.iter().map(|(name, source)| (name.to_string(), source.status())).collect()
    }
    /// The tools that each tool source lists, by the name of the source. The error is for operators.
    pub async fn list_tools(&self) -> BTreeMap<String, Result<ToolCatalog, SourceError>> {
        let cx = CallContext::new(self.0.clock.clone(), limits::MCP_INITIALISE);
        let listing =
            self.0.runtime.sources.iter().map(async |(name, source)| (name.to_string(), source.list(&cx).await));
        futures::future::join_all(listing).await.into_iter().collect()
    }
    /// The status of the action server; for `/health`. `None` if the project has none.
    pub fn action_server_status(&self) -> Option<Health> {
        self.0.runtime.action_server.as_ref().map(|server| server.status())
    }
    /// The names of the actions that the action server lists. A Python action module is started for it. `None` if the project has no
    /// action server; the error is for operators.
    pub async fn list_server_actions(&self) -> Option<Result<Vec<String>, String>> {
        let server = self.0.runtime.action_server.as_ref()?;
        let cx = CallContext::new(self.0.clock.clone(), limits::ACTION_START);
        Some(server.list_actions(&cx).await)
    }
    /// The status of each remote agent, by name; for `/health`.
    pub fn remote_agent_status(&self) -> BTreeMap<String, a2a::Health> {
        self.0.runtime.remote_agents.iter().map(|(name, remote)| (name.clone(), remote.health())).collect()
    }
    /// Connects to all tool sources, remote agents and the action server concurrently. Failures are logged.
    pub async fn connect(&self) {
        tokio::join!(self.connect_tools(), effects::remote_agent::check_remote_agents(&self.0.runtime, &self.0.clock));
    }

    async fn connect_tools(&self) {
        let cx = CallContext::new(self.0.clock.clone(), limits::MCP_INITIALISE);
        let listing = self.0.runtime.sources.values().map(|source| source.list(&cx));
        let (listed, served) = tokio::join!(futures::future::join_all(listing), self.list_server_actions());
        for error in listed.into_iter().filter_map(Result::err) {
            tracing::warn!(code = "T0101", "a tool source does not answer: {error}");
        }
        if let Some(Err(reason)) = served {
            tracing::warn!(code = "T0601", "the action server does not answer: {reason}");
        }
    }
    /// The number of conversations that [`Assistant::recover`] has not finished; for `/health`.
    pub fn recovering(&self) -> usize {
        self.0.recovering.load(Ordering::Relaxed)
    }
    /// Announces the shutdown: [`Assistant::is_shutting_down`] becomes true, and messages are still answered.
    pub fn begin_shutdown(&self) {
        self.0.shutdown.cancel();
    }
    /// Whether the shutdown was announced or has begun; for `/readyz`.
    pub fn is_shutting_down(&self) -> bool {
        self.0.shutdown.is_cancelled() || self.0.tasks.is_closed()
    }
    /// Deletes a conversation with its files, its sub-agents in the background and its runs from the stores and the cache, after the turns
    /// that already wait. A message that is accepted during this wait fails with [`StoreError::TurnNotOpen`].
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot delete it, [`StoreError::Files`] if the system cannot delete its files: then the conversation is
    /// still stored, and can be erased again.
    pub async fn erase(&self, id: &ConversationId) -> Result<(), StoreError> {
        let mailbox = self.0.mailboxes.get_or_create(id);
        let mut state = mailbox.turn_lock.clone().lock_owned().await;
        // Accepting is locked meanwhile: earlier messages belong to the old conversation, later ones to the new one.
        let accept_lock = mailbox.accept_lock.lock().await;
        // Also after a failure: the cached conversation must not be used again.
        *state = None;
        if let Some(tasks) = &self.0.runtime.background {
            tasks.forget(id.as_str());
        }
        let erased = self.erase_stored(id).await;
        mailbox.epoch.fetch_add(1, Ordering::SeqCst);
        self.0.unsaved.forget(id);
        self.0.feeds.erase(id);
        drop(accept_lock);
        erased
    }

    /// The conversation is the last: without it, nothing would lead to its files and runs after an error.
    async fn erase_stored(&self, id: &ConversationId) -> Result<(), StoreError> {
        let files = self.workspaces().remove(&Workspaces::conversation_folder(id.as_str())).await;
        files.map_err(|error| StoreError::Files(error.detail()))?;
        self.0.runs.erase(id).await?;
        self.0.store.erase(id).await
    }

    /// Ends an open turn with an error message and does not run it again. The message stays in the outbox. A turn that is already
    /// answered does not change.
    ///
    /// # Errors
    /// [`ReceiveError::Store`] if there is no such turn, or if the store fails.
    pub async fn close_turn(&self, id: &ConversationId, turn: TurnNumber) -> Result<TurnReport, ReceiveError> {
        let mailbox = self.0.mailboxes.get_or_create(id);
        let mut state = mailbox.turn_lock.clone().lock_owned().await;
        if let Some(replies) = self.0.store.replies_of(id, turn).await? {
            return Ok(TurnReport { is_duplicate: true, ..TurnReport::new(turn, replies) });
        }
        // Turns are stored in their order, so the reply does not answer an earlier message.
        match self.0.store.unfinished_turns_in(id, turn..TurnNumber(turn.0.saturating_add(1))).await?.pop() {
            Some(open) => self.0.close_open_turn(&mut state, open, &mut OutboxSink).await,
            None => Err(StoreError::TurnNotOpen { conversation: id.clone(), turn: turn.0 }.into()),
        }
    }

    /// The tasks of channels outside turns. [`close`](Self::close) waits for them.
    pub(crate) fn background_tasks(&self) -> &TaskTracker {
        &self.0.background_tasks
    }
    /// Shuts down: releases sub-agents in the background, so that another process continues them; waits for the background
    /// tasks, then rejects messages and waits for the running turns, all within `patience` together; then closes the tool sources, the
    /// action server and the store.
    pub async fn close(&self, patience: Duration) {
        let cx = CallContext::new(self.0.clock.clone(), patience);
        if let Some(tasks) = &self.0.runtime.background {
            tasks.close(&cx).await;
        }
        self.0.background_tasks.close();
        let _ = cx.wait(self.0.background_tasks.wait()).await;
        self.0.tasks.close();
        let _ = cx.wait(self.0.tasks.wait()).await;
        let cx = CallContext::new(self.0.clock.clone(), limits::SOURCE_CLOSE_TIMEOUT);
        let closing = self.0.runtime.sources.values().map(|source| source.close(&cx));
        let serving = self.0.runtime.action_server.iter().map(|server| server.close(&cx));
        let _ = cx.wait(futures::future::join_all(closing.chain(serving))).await;
        if let Ok(Err(error)) = cx.wait(self.0.store.close()).await {
            tracing::warn!(code = error.code(), "the store was not closed well: {error}");
        }
    }
}

impl fmt::Debug for Assistant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assistant").field("build", &self.0.build_hash).finish_non_exhaustive()
    }
}
