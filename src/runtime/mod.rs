//! One turn, from message to replies, and everything that keeps turns apart and safe.
//!
//! Entry: [`Assistant`]. This room knows no HTTP, no vendor and no channel; it is the only one that sees the dialogue engine and the
//! instruments together. Its promises: a message is stored before it is acted on; one turn at a time per conversation; a
//! turn is one transaction; every effect passes the journal; a reply leaves after it is stored, except streamed
//! pieces, which are announced first.

mod admission;
mod builder;
mod effects;
mod mailbox;
mod outbox;
mod project_models;
mod project_runtime;
mod recovery;
mod reminders;
mod replay;
mod seeds;
mod turn;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use segue_engine::{
    conversation::{Conversation, UserMessage},
    ids::ConversationId,
    project::Project,
};
use tokio_util::task::TaskTracker;

use self::{
    admission::AdmissionControl,
    mailbox::Mailboxes,
    project_runtime::ProjectRuntime,
    turn::{Origin, UnsavedTurns},
};
pub use self::{
    admission::{Admission, Overload, OverloadLimit},
    builder::{AssistantBuilder, LoadError},
    outbox::Reach,
    project_runtime::Action,
    reminders::{Outbox, Outlet},
    replay::{Difference, ReplayError, TraceStep, TurnTrace},
    turn::TraceEntry,
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
    store::{Store, StoreError, StoredReply, TurnNumber, Version},
};

/// A loaded project and its running runtime. Cheap to clone; clones are the same assistant.
#[derive(Clone)]
pub struct Assistant(Arc<Inner>);

struct Inner {
    runtime: Arc<ProjectRuntime>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    mailboxes: Mailboxes,
    /// Which messages are taken, and how many turns run.
    admission: Arc<AdmissionControl>,
    /// Every turn runs as a task of its own, so that neither a caller who goes away nor a panic takes others along.
    tasks: TaskTracker,
    /// What goes on beside turns and may begin some, such as reports of a channel.
    beside: TaskTracker,
    /// Hash of engine version and project; stands in every record.
    build: u64,
    turn_wall: Duration,
    /// What turns came to that the store did not take.
    unsaved: UnsavedTurns,
    /// Rings when a turn has changed when the next reminder is due.
    timer_set: tokio::sync::Notify,
    /// Conversations that recovery has not finished with.
    recovering: AtomicUsize,
    /// It ends soon: load balancers are told, messages are still answered.
    closing: AtomicBool,
    /// Conversations with replies that may wait for a channel.
    outbox: outbox::Waiting,
    /// Conversations whose reminders could not be fired.
    timers_held: reminders::HeldBack,
    seeds: Arc<dyn Fn() -> u64 + Send + Sync>,
    outbound: HttpClients,
    /// Goes around the journal of every turn, where somebody records or plays back.
    journal_wrapper: Option<JournalWrapper>,
}

/// Makes of a turn's journal another one that stands before it.
pub(crate) type JournalWrapper = Arc<dyn Fn(Arc<dyn Journal>) -> Arc<dyn Journal> + Send + Sync>;

/// A message at the assistant's door.
#[derive(Clone, Debug)]
pub struct IncomingMessage {
    /// Whose conversation.
    pub conversation: ConversationId,
    /// The message. An empty `message_id` means that the channel has none: then a repetition is a new message.
    pub message: UserMessage,
    /// The tenant; "" unless there are several.
    pub tenant: Arc<str>,
    /// The account on the channel; "" unless there are several.
    pub account: Arc<str>,
}

impl IncomingMessage {
    /// A text from somebody on a channel.
    pub fn text(conversation: impl Into<ConversationId>, text: impl Into<Arc<str>>, channel: &str) -> Self {
        let text: Arc<str> = text.into();
        let message = UserMessage {
            text: text.trim().into(),
            message_id: "".into(),
            input_channel: channel.into(),
            metadata: serde_json::Map::new(),
        };
        Self { conversation: conversation.into(), message, tenant: "".into(), account: "".into() }
    }
}

/// What became of a message.
#[derive(Clone, Debug)]
pub struct TurnReport {
    /// Its turn.
    pub turn: TurnNumber,
    /// Replies of earlier turns that the channel was given before those of this one, because nobody had been given them; only where
    /// the sink takes them.
    pub earlier: Vec<StoredReply>,
    /// What the user was told, in order.
    pub replies: Vec<StoredReply>,
    /// What went wrong on our side, for operators. The user heard the pattern's words, never these.
    pub failures: Vec<Failure>,
    /// Whether the session is over.
    pub session_ended: bool,
    /// Whether the message had been answered before; the replies are those of then.
    pub repeated: bool,
}

impl TurnReport {
    /// The texts that the user was told, in order: those of earlier turns that came late, then those of this one.
    pub fn texts(&self) -> Vec<&str> {
        let replies = self.earlier.iter().chain(&self.replies);
        replies.filter_map(|reply| reply.reply.text.as_deref()).collect()
    }
    /// The same as one text, a line each.
    pub fn text(&self) -> String {
        self.texts().join("\n")
    }
}

/// One failure during a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code that `segue explain` knows.
    pub code: String,
    /// Why, for operators.
    pub reason: String,
}

/// Why a message got no turn.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReceiveError {
    /// Too many messages of this conversation wait already.
    #[error("the conversation is busy: {0}; try again later")]
    Busy(&'static str),
    /// The assistant, or the caller, is at a limit.
    #[error("the message was not accepted: {0}")]
    Overloaded(Overload),
    /// The store failed. The message was accepted only if the error says so by another way.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The turn failed; the conversation is as it was before.
    #[error("the turn failed; the conversation is as it was before")]
    Broken,
    /// The assistant is being shut down.
    #[error("the assistant is being shut down")]
    Closing,
}

impl ReceiveError {
    /// The code that `segue explain` knows.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Busy(_) => "R0101",
            Self::Overloaded(_) => "R0106",
            Self::Store(error) => error.code(),
            Self::Broken => "R0102",
            Self::Closing => "R0103",
        }
    }

    /// When it is worth sending the message again; `None` where it may have been accepted.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy(_) | Self::Closing => Some(Duration::from_secs(1)),
            Self::Overloaded(overload) => Some(overload.retry_after),
            Self::Store(_) | Self::Broken => None,
        }
    }
}

impl Assistant {
    /// The channel that messages come from which a program says by [`say`](Self::say).
    pub const CHANNEL: &str = "program";

    /// Says something in a conversation and waits for the turn: [`TurnReport::text`] is what the user is told.
    ///
    /// A user who says something twice gets two turns; [`receive`](Self::receive) takes an id of the message, and whatever else a channel
    /// knows.
    ///
    /// # Errors
    /// [`ReceiveError`] when the message got no turn; with [`ReceiveError::Busy`] and [`ReceiveError::Overloaded`] it was not accepted.
    pub async fn say(
        &self,
        conversation: impl Into<ConversationId>,
        text: impl Into<Arc<str>>,
    ) -> Result<TurnReport, ReceiveError> {
        self.receive(IncomingMessage::text(conversation, text, Self::CHANNEL), Box::new(AcceptAllSink)).await
    }

    /// Receives a message and answers through `sink`. The turn goes on when the future is dropped; whether it was accepted is
    /// then known from the store alone.
    ///
    /// # Errors
    /// [`ReceiveError`] when the message got no turn; with [`ReceiveError::Busy`] and [`ReceiveError::Overloaded`] it was not accepted.
    pub async fn receive(
        &self,
        incoming: IncomingMessage,
        sink: Box<dyn ReplySink>,
    ) -> Result<TurnReport, ReceiveError> {
        self.receive_for(None, incoming, sink).await
    }

    /// The same, from a caller who may speak in many conversations: all of them count for the limit of open turns that one caller has.
    ///
    /// # Errors
    /// As [`Assistant::receive`].
    pub async fn receive_for(
        &self,
        caller: Option<&str>,
        mut incoming: IncomingMessage,
        sink: Box<dyn ReplySink>,
    ) -> Result<TurnReport, ReceiveError> {
        incoming.message.input_channel = reminders::outer_channel(incoming.message.input_channel);
        self.enqueue(incoming, sink, Origin::Caller(caller)).await
    }

    /// Whether a message of this caller would be accepted now. Nothing is set aside for it.
    ///
    /// # Errors
    /// [`ReceiveError::Overloaded`] or [`ReceiveError::Closing`], as [`Assistant::receive_for`].
    pub fn admits(&self, caller: Option<&str>, conversation: &ConversationId) -> Result<(), ReceiveError> {
        if self.0.tasks.is_closed() {
            return Err(ReceiveError::Closing);
        }
        self.0.admission.admit(true)?.claim(caller.unwrap_or(conversation.as_str()), 0)
    }

    /// The project.
    pub fn project(&self) -> &Arc<Project> {
        &self.0.runtime.project
    }
    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }
    /// The HTTP clients of its project.
    pub fn outbound(&self) -> &HttpClients {
        &self.0.outbound
    }
    /// Where its time comes from.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }
    /// The conversation as stored.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read.
    pub async fn conversation(&self, id: &ConversationId) -> Result<Conversation, StoreError> {
        turn::load(&self.0, id).await.map(|cached| cached.conversation)
    }
    /// The same, with the version it has in the store.
    pub(crate) async fn conversation_at(&self, id: &ConversationId) -> Result<(Conversation, Version), StoreError> {
        turn::load(&self.0, id).await.map(|cached| (cached.conversation, cached.version))
    }
    /// Which tool sources answer, for `/health`.
    pub fn sources(&self) -> BTreeMap<String, Health> {
        self.0.runtime.sources.iter().map(|(name, source)| (name.to_string(), source.status())).collect()
    }
    /// Whether the action server answers, for `/health`; `None` when the project has none.
    pub fn action_server(&self) -> Option<Health> {
        self.0.runtime.action_server.as_ref().map(|server| server.status())
    }
    /// The actions that the action server has, asked now; a module of actions is started for it. `None` when the project has no
    /// action server; the error is for operators.
    pub async fn served_actions(&self) -> Option<Result<Vec<String>, String>> {
        let server = self.0.runtime.action_server.as_ref()?;
        let cx = CallContext::new(self.0.clock.clone(), limits::ACTION_START);
        Some(server.list_actions(&cx).await)
    }
    /// Which remote agents were found, for `/health`.
    pub fn remote_agents(&self) -> BTreeMap<String, a2a::Health> {
        self.0.runtime.remote_agents.iter().map(|(name, remote)| (name.clone(), remote.health())).collect()
    }
    /// Connects to every tool source, every remote agent and the action server at once; a failure of one does not stop the others.
    pub async fn connect(&self) {
        tokio::join!(self.connect_tools(), effects::remote_agent::check_remote_agents(&self.0.runtime, &self.0.clock));
    }

    async fn connect_tools(&self) {
        let cx = CallContext::new(self.0.clock.clone(), limits::MCP_INITIALISE);
        let listing = self.0.runtime.sources.values().map(|source| source.list(&cx));
        let (listed, served) = tokio::join!(futures::future::join_all(listing), self.served_actions());
        for error in listed.into_iter().filter_map(Result::err) {
            tracing::warn!(code = "T0101", "a tool source does not answer: {error}");
        }
        if let Some(Err(reason)) = served {
            tracing::warn!(code = "T0601", "the action server does not answer: {reason}");
        }
    }
    /// How many conversations [`Assistant::recover`] has not finished with, for `/health`.
    pub fn recovering(&self) -> usize {
        self.0.recovering.load(Ordering::Relaxed)
    }
    /// Says that the assistant is about to be closed: [`Assistant::is_closing`] is true from now on, messages are still answered.
    pub fn begin_closing(&self) {
        self.0.closing.store(true, Ordering::Relaxed);
    }
    /// Whether the assistant is being shut down, for `/readyz`.
    pub fn is_closing(&self) -> bool {
        self.0.closing.load(Ordering::Relaxed) || self.0.tasks.is_closed()
    }
    /// Forgets a conversation, in the store and here, once the turns that wait are over. Messages that were accepted before and come
    /// later are refused.
    ///
    /// # Errors
    /// [`StoreError`] when the store does not erase it.
    pub async fn erase(&self, id: &ConversationId) -> Result<(), StoreError> {
        let mailbox = self.0.mailboxes.of(id);
        let mut state = mailbox.turn_lock.clone().lock_owned().await;
        // No message is accepted meanwhile: one that came before belongs to the old conversation, one that comes after to the new.
        let accept_lock = mailbox.accept_lock.lock().await;
        // Whatever comes of it: what is cached must not be used again.
        *state = None;
        let erased = self.0.store.erase(id).await;
        mailbox.epoch.fetch_add(1, Ordering::SeqCst);
        self.0.unsaved.forget(id);
        drop(accept_lock);
        erased
    }

    /// Ends an open turn with one honest message, without trying it again; the message waits in the outbox. A turn that is answered
    /// already stays as it is.
    ///
    /// # Errors
    /// [`ReceiveError::Store`] when there is no such turn, or when the store fails.
    pub async fn close_turn(&self, id: &ConversationId, turn: TurnNumber) -> Result<TurnReport, ReceiveError> {
        let mailbox = self.0.mailboxes.of(id);
        let mut state = mailbox.turn_lock.clone().lock_owned().await;
        if let Some(replies) = self.0.store.replies_of(id, turn).await? {
            let (earlier, failures) = (Vec::new(), Vec::new());
            return Ok(TurnReport { turn, earlier, replies, failures, session_ended: false, repeated: true });
        }
        // Turns are stored in their order: what a turn says is no answer to a message before it.
        match self.0.store.unfinished_turns_in(id, turn..TurnNumber(turn.0.saturating_add(1))).await?.pop() {
            Some(open) => self.0.close_open(&mut state, open, &mut Outbox).await,
            None => Err(StoreError::TurnNotOpen { conversation: id.clone(), turn: turn.0 }.into()),
        }
    }

    /// Where work of channels runs that nobody waits for: it ends before the assistant closes.
    pub(crate) fn beside(&self) -> &TaskTracker {
        &self.0.beside
    }
    /// Lets work of channels beside turns end, then takes no more messages and waits for running turns, both together at most
    /// `patience`; then closes tool sources and the action server.
    pub async fn close(&self, patience: Duration) {
        let cx = CallContext::new(self.0.clock.clone(), patience);
        self.0.beside.close();
        let _ = cx.wait(self.0.beside.wait()).await;
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
        f.debug_struct("Assistant").field("build", &self.0.build).finish_non_exhaustive()
    }
}
