//! What a run store stores and returns. All texts are opaque to it; by convention they are JSON.

use std::{fmt, sync::Arc, time::Duration};

use segue_engine::{
    ids::{ConversationId, QuestionId, RunId},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

use super::RunStoreError;
use crate::{JournalRecord, escape_controls};

/// A unit of a run: a durable job that one owner at a time works on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnitKey {
    /// The run.
    pub run: RunId,
    /// The name of the unit, unique within the run.
    pub unit: Arc<str>,
}

impl UnitKey {
    /// The key of a unit.
    pub fn new(run: impl Into<RunId>, unit: impl Into<Arc<str>>) -> Self {
        Self { run: run.into(), unit: unit.into() }
    }
}

impl fmt::Display for UnitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unit {} of run {}", escape_controls(&self.unit), escape_controls(self.run.as_str()))
    }
}

/// The status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// It waits to be started: its units cannot be claimed, unless it is to be stopped.
    Queued,
    /// Its units are worked on.
    Running,
    /// It waits for a person or for something outside. Its units can be claimed as those of a running one.
    Waiting,
    /// It has ended with success.
    Completed,
    /// It has ended with an error. It can be resumed.
    Failed,
    /// It was ended to be resumed later.
    Stopped,
    /// It was cancelled, which ends it for good.
    Cancelled,
}

impl RunStatus {
    /// Every status.
    pub const ALL: [Self; 7] =
        [Self::Queued, Self::Running, Self::Waiting, Self::Completed, Self::Failed, Self::Stopped, Self::Cancelled];

    /// Whether a run of this status has ended.
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Stopped | Self::Cancelled)
    }

    /// Whether a run of this status can be resumed.
    pub fn is_resumable(self) -> bool {
        matches!(self, Self::Failed | Self::Stopped)
    }

    /// The name, as it is stored.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

impl fmt::Display for RunStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The status of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnitStatus {
    /// It can be claimed, at its wake time if it has one.
    Ready,
    /// An owner holds it until its lease is over.
    Claimed,
    /// It waits for an answer, a signal or its wake time.
    Waiting,
    /// It has ended with success.
    Completed,
    /// It has ended with an error.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl UnitStatus {
    /// Every status.
    pub const ALL: [Self; 6] =
        [Self::Ready, Self::Claimed, Self::Waiting, Self::Completed, Self::Failed, Self::Cancelled];

    /// Whether a unit of this status has ended.
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// The name, as it is stored.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Claimed => "claimed",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

impl fmt::Display for UnitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A run to start.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// Its id.
    pub id: RunId,
    /// The mission. A name that begins with [`JOB`](Self::JOB) is that of a job of a conversation, such as a sub-agent in the background.
    pub mission: Arc<str>,
    /// The conversation that it belongs to.
    pub conversation: Option<ConversationId>,
    /// A name that runs share which must not run at once, by which [`RunFilter`] finds them.
    pub group: Option<Arc<str>>,
    /// The inputs.
    pub inputs: Arc<str>,
    /// A later start of the same mission with this key returns this run.
    pub idempotency_key: Option<Arc<str>>,
    /// Whether the run waits as [`RunStatus::Queued`]; otherwise it is [`RunStatus::Running`], unless a limit is reached.
    pub queued: bool,
    /// How many runs there may be at the same time.
    pub limits: RunLimits,
    /// What happens when a limit is reached.
    pub overflow: Overflow,
    /// Its first events.
    pub events: Vec<Arc<str>>,
    /// Its first units.
    pub units: Vec<NewUnit>,
    /// The time of the start.
    pub at: Timestamp,
}

impl NewRun {
    /// The first character of the names of jobs. No mission has such a name.
    pub const JOB: char = '@';

    /// A run without inputs, events and units.
    pub fn new(id: impl Into<RunId>, mission: impl Into<Arc<str>>, at: Timestamp) -> Self {
        Self {
            id: id.into(),
            mission: mission.into(),
            conversation: None,
            group: None,
            inputs: "{}".into(),
            idempotency_key: None,
            queued: false,
            limits: RunLimits::default(),
            overflow: Overflow::Refuse,
            events: Vec::new(),
            units: Vec::new(),
            at,
        }
    }
}

/// How many runs may have begun and not ended at the same time: those that are running or waiting. Queued ones do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunLimits {
    /// Runs of the same mission.
    pub mission: Option<u32>,
    /// Runs of the same [group](NewRun::group).
    pub group: Option<u32>,
}

/// What happens to a run that would be above a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// It is not stored.
    #[default]
    Refuse,
    /// It is stored as [`RunStatus::Queued`], until [`RunStore::admit`](super::RunStore::admit) lets it run.
    Queue,
}

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitScope {
    /// The runs of a mission.
    Mission,
    /// The runs of a group.
    Group,
}

/// A limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitReached {
    /// What is counted.
    pub scope: LimitScope,
    /// How many other runs count.
    pub running: u64,
    /// The limit.
    pub limit: u32,
}

/// The result of [`RunStore::admit`](super::RunStore::admit).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunAdmission {
    /// The run is not queued, now or before.
    Admitted,
    /// It stays queued.
    Queued(LimitReached),
}

/// A unit to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewUnit {
    /// Its name. If the run has a unit of this name already, that one is kept and this one is ignored.
    pub name: Arc<str>,
    /// What it has to do.
    pub input: Arc<str>,
    /// When it may be claimed; at once if there is no time.
    pub wake_at: Option<Timestamp>,
}

impl NewUnit {
    /// A unit that may be claimed at once.
    pub fn new(name: impl Into<Arc<str>>, input: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), input: input.into(), wake_at: None }
    }
}

/// The result of [`RunStore::start_run`](super::RunStore::start_run).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartOutcome {
    /// The run is new and is stored.
    New,
    /// The run is new and is stored as queued, because a limit is reached.
    Queued(LimitReached),
    /// A limit is reached; nothing was stored.
    Full(LimitReached),
    /// There is a run with this idempotency key or this id already; nothing was stored.
    Existing(RunId),
}

/// A run in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunSummary {
    /// Its id.
    pub id: RunId,
    /// Its mission.
    pub mission: Arc<str>,
    /// The conversation that it belongs to.
    pub conversation: Option<ConversationId>,
    /// See [`NewRun::group`].
    pub group: Option<Arc<str>>,
    /// Its status.
    pub status: RunStatus,
    /// Whether it is to be stopped.
    pub stop: Option<StopRequest>,
    /// The sequence number of its last event; 0 if it has none.
    pub last_seq: u64,
    /// When it was started.
    pub started_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

impl RunSummary {
    /// Whether it is a job of a conversation, and no run of a mission.
    pub fn is_job(&self) -> bool {
        self.mission.starts_with(NewRun::JOB)
    }
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredRun {
    /// The run in short.
    pub summary: RunSummary,
    /// Its inputs.
    pub inputs: Arc<str>,
    /// The key that it was started with.
    pub idempotency_key: Option<Arc<str>>,
}

/// Which runs are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunFilter {
    /// Runs whose id begins with this text.
    pub id_prefix: Option<Arc<str>>,
    /// Runs of this mission.
    pub mission: Option<Arc<str>>,
    /// Runs that were started with this key; with a mission, it is one at most.
    pub idempotency_key: Option<Arc<str>>,
    /// Runs of this conversation.
    pub conversation: Option<ConversationId>,
    /// Runs of this group.
    pub group: Option<Arc<str>>,
    /// Runs of one of these statuses; of any if there are none.
    pub statuses: Vec<RunStatus>,
    /// Runs of missions only, no jobs of conversations.
    pub without_jobs: bool,
}

impl RunFilter {
    /// Only runs whose id begins with this text.
    #[must_use]
    pub fn id_prefix(mut self, id_prefix: impl Into<Arc<str>>) -> Self {
        self.id_prefix = Some(id_prefix.into());
        self
    }
    /// Only runs of this mission.
    #[must_use]
    pub fn mission(mut self, mission: impl Into<Arc<str>>) -> Self {
        self.mission = Some(mission.into());
        self
    }
    /// Only runs that were started with this key.
    #[must_use]
    pub fn idempotency_key(mut self, idempotency_key: impl Into<Arc<str>>) -> Self {
        self.idempotency_key = Some(idempotency_key.into());
        self
    }
    /// Only runs of this conversation.
    #[must_use]
    pub fn conversation(mut self, conversation: impl Into<ConversationId>) -> Self {
        self.conversation = Some(conversation.into());
        self
    }
    /// Only runs of this group.
    #[must_use]
    pub fn group(mut self, group: impl Into<Arc<str>>) -> Self {
        self.group = Some(group.into());
        self
    }
    /// Only runs of one of these statuses.
    #[must_use]
    pub fn statuses(mut self, statuses: impl Into<Vec<RunStatus>>) -> Self {
        self.statuses = statuses.into();
        self
    }
    /// Only runs of missions, no jobs of conversations.
    #[must_use]
    pub fn without_jobs(mut self) -> Self {
        self.without_jobs = true;
        self
    }
}

/// An event of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredRunEvent {
    /// Its number within the run, from 1, without gaps.
    pub seq: u64,
    /// The unit that appended it.
    pub unit: Option<Arc<str>>,
    /// The time of its batch.
    pub at: Timestamp,
    /// The event.
    pub event: Arc<str>,
}

/// A unit in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredUnit {
    /// Its run and name.
    pub key: UnitKey,
    /// Its status.
    pub status: UnitStatus,
    /// How often it was claimed. A write of an owner with an earlier epoch is refused.
    pub epoch: u64,
    /// Who holds it.
    pub owner: Option<Arc<str>>,
    /// Until when it is held.
    pub lease_until: Option<Timestamp>,
    /// When it can be claimed again, if it waits for a time.
    pub wake_at: Option<Timestamp>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed, apart from renewals of its lease.
    pub updated_at: Timestamp,
}

/// Which units to claim, for whom and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    /// Only units of this run.
    pub run: Option<RunId>,
    /// The claimant; for people who read the store.
    pub owner: Arc<str>,
    /// The present time.
    pub now: Timestamp,
    /// How long the units are held unless the lease is renewed.
    pub lease: Duration,
    /// At most so many units; never more than [`limits::RUN_CLAIMS`](segue_base::limits::RUN_CLAIMS).
    pub limit: usize,
    /// Other owners that are known to have ended: their leases are over.
    pub gone: Vec<Arc<str>>,
}

/// A claimed unit.
#[derive(Clone, Debug)]
pub struct ClaimedUnit {
    /// Its run and name.
    pub key: UnitKey,
    /// The epoch that every write of this owner must name.
    pub epoch: u64,
    /// Until when it is held.
    pub lease_until: Timestamp,
    /// What is stored of it, or why that cannot be read. The unit is claimed in both cases.
    pub content: Result<UnitContent, RunStoreError>,
}

/// What is stored of a unit.
#[derive(Clone, Debug, PartialEq)]
pub struct UnitContent {
    /// What it has to do.
    pub input: Arc<str>,
    /// The latest checkpoint.
    pub checkpoint: Option<Arc<str>>,
    /// The journal since the checkpoint: the latest record of each step, in the order of the first records.
    pub records: Vec<JournalRecord>,
    /// Its questions, in the order of asking.
    pub questions: Vec<StoredQuestion>,
    /// What it was sent and has not acknowledged.
    pub signals: Signals,
}

/// What a batch does with its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnitTransition {
    /// The owner goes on; the lease stays as it is.
    #[default]
    Hold,
    /// The unit can be claimed again, at this time if there is one.
    Ready {
        /// The earliest time.
        wake_at: Option<Timestamp>,
    },
    /// The unit waits for an answer, a signal or this time. If it was answered or sent a signal since it was claimed, it is ready at
    /// once.
    Waiting {
        /// When it is woken in any case.
        wake_at: Option<Timestamp>,
    },
    /// The unit has ended with success.
    Completed,
    /// The unit has ended with an error.
    Failed,
    /// The unit has ended because it was cancelled.
    Cancelled,
}

/// A stored result, which events and checkpoints refer to by its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunBlob {
    /// Its id within the run. A later blob of this id replaces it.
    pub id: Arc<str>,
    /// Its text.
    pub text: Arc<str>,
}

/// A question to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewQuestion {
    /// Its id. If the run has a question of this id already, that one is kept, its answer wakes the unit that asked last, and a unit that
    /// asks it after it was answered or closed does not wait: it is ready at once.
    pub id: QuestionId,
    /// The question.
    pub question: Arc<str>,
}

/// The progress of a unit, written in one transaction.
#[derive(Clone, Debug)]
pub struct UnitBatch {
    /// The unit.
    pub unit: UnitKey,
    /// The epoch of its claim.
    pub epoch: u64,
    /// The sequence number of the last event that the batch is based on; it is refused if there are later events. Set it when the batch
    /// decides what the run does next, so that two units that end at once do not both miss that they were the last.
    pub after: Option<u64>,
    /// Events of the run. They get the next sequence numbers.
    pub events: Vec<Arc<str>>,
    /// Records of the journal of the unit.
    pub records: Vec<JournalRecord>,
    /// A checkpoint. It replaces the earlier one and the journal: all records of the unit, those of this batch included, are deleted.
    pub checkpoint: Option<Arc<str>>,
    /// What becomes of the unit.
    pub transition: UnitTransition,
    /// Units to start.
    pub new_units: Vec<NewUnit>,
    /// Units of the run to wake: a waiting one becomes ready; one that is claimed becomes ready when it would wait.
    pub wake_units: Vec<Arc<str>>,
    /// Units of the run to cancel. Later writes of their owners are refused.
    pub cancel_units: Vec<Arc<str>>,
    /// Results to store.
    pub blobs: Vec<RunBlob>,
    /// Questions of the unit.
    pub questions: Vec<NewQuestion>,
    /// Questions of the run that need no answer any more.
    pub close_questions: Vec<QuestionId>,
    /// The number of the last message that the unit has taken over; see [`RunMessage::seq`].
    pub messages_seen: Option<u64>,
    /// The status of the run, if it changes. A status that [ends](RunStatus::is_ended) the run takes all units from their owners.
    pub run_status: Option<RunStatus>,
    /// The time of the batch.
    pub at: Timestamp,
}

impl UnitBatch {
    /// A batch that changes nothing.
    pub fn new(unit: UnitKey, epoch: u64, at: Timestamp) -> Self {
        Self {
            unit,
            epoch,
            after: None,
            events: Vec::new(),
            records: Vec::new(),
            checkpoint: None,
            transition: UnitTransition::Hold,
            new_units: Vec::new(),
            wake_units: Vec::new(),
            cancel_units: Vec::new(),
            blobs: Vec::new(),
            questions: Vec::new(),
            close_questions: Vec::new(),
            messages_seen: None,
            run_status: None,
            at,
        }
    }
}

/// A change of a run that no unit makes, written in one transaction.
#[derive(Clone, Debug)]
pub struct RunBatch {
    /// The run.
    pub run: RunId,
    /// The sequence number of the last event that the change is based on; it is refused if there are later events.
    pub after: Option<u64>,
    /// Whether a run that has ended is resumed: it becomes [`RunStatus::Running`], unless `status` is set, its request to stop is
    /// removed, and of `wake_units` also those become ready that have failed or were cancelled.
    pub resume: bool,
    /// Events.
    pub events: Vec<Arc<str>>,
    /// Units to start.
    pub new_units: Vec<NewUnit>,
    /// Units to wake, as [`UnitBatch::wake_units`].
    pub wake_units: Vec<Arc<str>>,
    /// Units to cancel, as [`UnitBatch::cancel_units`].
    pub cancel_units: Vec<Arc<str>>,
    /// The status of the run, if it changes.
    pub status: Option<RunStatus>,
    /// The time of the change.
    pub at: Timestamp,
}

impl RunBatch {
    /// A batch that changes nothing.
    pub fn new(run: RunId, at: Timestamp) -> Self {
        Self {
            run,
            after: None,
            resume: false,
            events: Vec::new(),
            new_units: Vec::new(),
            wake_units: Vec::new(),
            cancel_units: Vec::new(),
            status: None,
            at,
        }
    }
}

/// A question of a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QuestionKey {
    /// The run.
    pub run: RunId,
    /// Its id.
    pub id: QuestionId,
}

impl QuestionKey {
    /// The key of a question.
    pub fn new(run: impl Into<RunId>, id: impl Into<QuestionId>) -> Self {
        Self { run: run.into(), id: id.into() }
    }
}

/// The status of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionStatus {
    /// It waits for its answer.
    Open,
    /// It was answered.
    Answered,
    /// It needs no answer any more, or its run has ended.
    Closed,
}

/// A question as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredQuestion {
    /// Its run and id.
    pub key: QuestionKey,
    /// The unit that asks.
    pub unit: Arc<str>,
    /// The question.
    pub question: Arc<str>,
    /// Its status. Closed for every unanswered question of a run that has ended; it is open again when the run is resumed.
    pub status: QuestionStatus,
    /// The answer.
    pub answer: Option<Arc<str>>,
    /// The id of the event that answered it.
    pub answered_by: Option<Arc<str>>,
    /// When it was asked first.
    pub asked_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// Which questions are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuestionFilter {
    /// Questions of this run.
    pub run: Option<RunId>,
    /// Only those that wait for an answer.
    pub open: bool,
}

impl QuestionFilter {
    /// Only questions of this run.
    #[must_use]
    pub fn run(mut self, run: impl Into<RunId>) -> Self {
        self.run = Some(run.into());
        self
    }
    /// Only questions that wait for an answer.
    #[must_use]
    pub fn open(mut self) -> Self {
        self.open = true;
        self
    }
}

/// An answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionReply {
    /// The question.
    pub question: QuestionKey,
    /// The answer.
    pub text: Arc<str>,
    /// The id of the event that brought the reply. A repeated event has the same result and changes nothing.
    pub event_id: Arc<str>,
    /// Events of the run, appended if the reply is accepted.
    pub events: Vec<Arc<str>>,
    /// When it arrived.
    pub at: Timestamp,
}

/// The result of a reply to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyOutcome {
    /// The question is answered by this event.
    Answered,
    /// Another event had answered it before.
    Already {
        /// The answer.
        answer: Arc<str>,
        /// The event.
        event_id: Arc<str>,
    },
    /// The question needs no answer any more, or its run has ended.
    Closed,
}

/// How a run is to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopRequest {
    /// It may be resumed later.
    Stop,
    /// For good. It has precedence over `Stop`.
    Cancel,
}

impl StopRequest {
    /// The name, as it is stored.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Cancel => "cancel",
        }
    }

    /// The request of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Stop, Self::Cancel].into_iter().find(|request| request.name() == name)
    }
}

/// Something sent to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The run is to end for good.
    Cancel,
    /// The run is to end, and may be resumed later.
    Stop,
    /// A message.
    Message {
        /// Its id. A second message of this id changes nothing.
        id: Arc<str>,
        /// The unit that it is for; every unit of the run if there is none.
        unit: Option<Arc<str>>,
        /// Its text.
        text: Arc<str>,
    },
}

/// The result of [`RunStore::signal`](super::RunStore::signal).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalOutcome {
    /// It is stored, now or before, and the units are woken.
    Accepted,
    /// The run has ended with this status; nothing was stored.
    Ended(RunStatus),
}

/// What a unit was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    /// Whether the run is to end.
    pub stop: Option<StopRequest>,
    /// The messages after the last one that the unit acknowledged with [`UnitBatch::messages_seen`], oldest first. A new unit gets those
    /// that are sent after its creation.
    pub messages: Vec<RunMessage>,
}

/// A message to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunMessage {
    /// Its number within the run, from 1.
    pub seq: u64,
    /// Its id.
    pub id: Arc<str>,
    /// Its text.
    pub text: Arc<str>,
    /// When it was sent.
    pub at: Timestamp,
}

/// How many runs of missions and units of them there are, for operators. Jobs of conversations do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RunCounts {
    /// Runs by status, in the order of [`RunStatus::ALL`], without statuses that have no run.
    pub runs: Vec<(RunStatus, u64)>,
    /// Units that can be claimed now, apart from those whose lease is over.
    pub ready_units: u64,
    /// Units that are held.
    pub claimed_units: u64,
    /// Units whose owner has not renewed its lease in time: its process has probably ended.
    pub expired_leases: u64,
    /// Units that wait for an answer, a signal or a time.
    pub waiting_units: u64,
    /// Questions that wait for an answer.
    pub open_questions: u64,
}
