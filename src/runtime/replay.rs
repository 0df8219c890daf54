//! Running a stored conversation again from its record, to compare it or to see why it went as it did.

use std::sync::Arc;

use futures::future::BoxFuture;
use segue_engine::{
    conversation::{Conversation, Event, EventKind, ModelUsage},
    dialogue::Reason,
    ids::ConversationId,
};
use serde::Serialize;

use super::{
    Assistant,
    project_runtime::ProjectRuntime,
    turn::{
        AcceptedMessage, SharedTexts, TraceEntry, TurnRecord, TurnResult, TurnSink, UsageMeter, give_up,
        recorded_give_up, recovered_from_record, run_turn,
    },
};
use crate::{
    context::CallContext,
    conversation::{DeliveryError, Receipt, ReplyEvent, ReplySink},
    journal::{Journal, ReplayJournal, TraceProgress, progress_of},
    limits,
    store::{StoreError, StoredTurn, announced_replies},
};

/// The first difference between what is stored and what a replay gives.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// The turn.
    pub turn: u64,
    /// Position of the event in the turn.
    pub event: usize,
    /// As stored; absent when the replay gave more.
    pub stored: Option<String>,
    /// As the replay gave it; absent when it gave less.
    pub replayed: Option<String>,
}

/// Why a conversation cannot be replayed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReplayError {
    /// There is no such conversation.
    #[error("there is no conversation {0} in the store")]
    Unknown(ConversationId),
    /// A journal is past its retention.
    #[error("turn {0} is past the retention of its journal: expired")]
    Expired(u64),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ReplayError {
    /// The code that `segue explain` knows.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "R0201",
            Self::Expired(_) => "R0202",
            Self::Store(error) => error.code(),
        }
    }
}

/// Why one turn went as it did.
#[derive(Clone, Debug, Serialize)]
pub struct TurnTrace {
    /// Its number.
    pub turn: u64,
    /// What the user wrote.
    pub message: String,
    /// Commands kept and dropped, branches, notes.
    pub why: Vec<Reason>,
    /// What was asked of models and tools, and what they said.
    pub seen: Vec<TraceEntry>,
    /// Steps of the journal with the time each outcome came, in milliseconds after the message.
    pub steps: Vec<TraceStep>,
    /// What happened.
    pub events: Vec<Event>,
    /// What went wrong on our side.
    pub failures: Vec<(String, String)>,
    /// What models used in this turn.
    pub used: ModelUsage,
    /// What they used from the beginning of the conversation to the end of this turn.
    pub used_so_far: ModelUsage,
}

/// One step of the journal.
#[derive(Clone, Debug, Serialize)]
pub struct TraceStep {
    /// Its key.
    pub key: String,
    /// What kind of effect.
    pub kind: String,
    /// Milliseconds after the message; absent when there is no outcome.
    pub after: Option<f64>,
    /// What a tool told of itself while it worked, the newest pieces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub news: Vec<TraceProgress>,
}

impl Assistant {
    /// Runs every stored turn again and compares each event byte for byte. `Ok(None)` means that they are equal.
    ///
    /// # Errors
    /// [`ReplayError`] when the record is not there.
    pub async fn replay(&self, id: &ConversationId) -> Result<Option<Difference>, ReplayError> {
        let turns = self.turns(id).await?;
        let mut conversation = Conversation::new(id.clone());
        for turn in &turns {
            let (result, _) = self.replay_turn(&mut conversation.clone(), turn, UsageMeter::default()).await;
            if let Some(difference) = compare(&conversation, turn, result.events) {
                return Ok(Some(difference));
            }
            turn.events.iter().for_each(|event| conversation.apply(event));
        }
        Ok(None)
    }

    /// Why turns went as they did; all, or one.
    ///
    /// # Errors
    /// [`ReplayError`] when the record is not there.
    pub async fn trace(&self, id: &ConversationId, only: Option<u64>) -> Result<Vec<TurnTrace>, ReplayError> {
        let mut traces = Vec::new();
        let mut conversation = Conversation::new(id.clone());
        for turn in self.turns(id).await? {
            let seen = if only.is_none_or(|number| number == turn.turn.0) {
                Some(self.replay_turn(&mut conversation.clone(), &turn, UsageMeter::tracing()).await)
            } else {
                None
            };
            turn.events.iter().for_each(|event| conversation.apply(event));
            if let Some((result, seen)) = seen {
                traces.push(trace_of(&turn, result, seen, conversation.models));
            }
        }
        Ok(traces)
    }

    async fn turns(&self, id: &ConversationId) -> Result<Vec<StoredTurn>, ReplayError> {
        let turns = self.0.store.turns(id).await?;
        if turns.is_empty() {
            return Err(ReplayError::Unknown(id.clone()));
        }
        Ok(turns)
    }

    /// Runs one turn behind a journal that lets nothing out.
    async fn replay_turn(
        &self,
        conversation: &mut Conversation,
        turn: &StoredTurn,
        usage: UsageMeter,
    ) -> (TurnResult, Vec<TraceEntry>) {
        let journal = Arc::new(ReplayJournal::new(turn.journal.clone()));
        let texts = SharedTexts::new(self.0.store.clone(), conversation.id.clone(), Default::default());
        let record = TurnRecord::new(journal.clone(), self.0.clock.clone(), turn.inbound.at, usage, texts);
        let accepted = AcceptedMessage { turn: turn.turn, inbound: &turn.inbound };
        if let Some(left) = recorded_give_up(&turn.journal) {
            return (give_up(&self.0.runtime, conversation, accepted, left), Vec::new());
        }
        let recovered = recovered_from_record(turn.turn, &turn.journal);
        let mut cx = CallContext::new(record.clock(), limits::TURN_TIMEOUT_MAX);
        cx.key = recovered.root.clone();
        // What was said in pieces then is said in pieces again: of a text that broke off, only what was shown stayed. Of a turn that
        // was taken over, its record says it.
        let streams = recovered.takeovers.is_empty() && announced_replies(&turn.journal).next().is_some();
        let mut discarding = DiscardingSink { streams };
        let mut sink = TurnSink::new(&mut discarding, journal as Arc<dyn Journal>);
        let runtime = self.offline_runtime();
        let result = run_turn(&runtime, conversation, accepted, recovered, &record, &mut sink, &cx).await;
        (result, record.usage.seen())
    }

    /// The same runtime without a way out.
    fn offline_runtime(&self) -> ProjectRuntime {
        ProjectRuntime {
            action_server: None,
            remote_agents: Default::default(),
            tool_lists: Arc::default(),
            offline: true,
            ..(*self.0.runtime).clone()
        }
    }
}

/// Shows nothing; takes pieces where the channel of then did.
struct DiscardingSink {
    streams: bool,
}

impl ReplySink for DiscardingSink {
    fn wants_deltas(&self) -> bool {
        self.streams
    }
    fn send<'a>(&'a mut self, _: ReplyEvent, _: &'a CallContext) -> BoxFuture<'a, Result<Receipt, DeliveryError>> {
        Box::pin(std::future::ready(Ok(Receipt::Skipped)))
    }
}

/// The first difference between a stored turn and its replay; `before` is the conversation before the turn.
fn compare(before: &Conversation, turn: &StoredTurn, replayed: Vec<Event>) -> Option<Difference> {
    let difference = first_difference(turn, &replayed)?;
    let says_what_is_pending =
        turn.events.iter().any(|event| matches!(&event.kind, EventKind::Stack { pending: Some(_), .. }));
    if says_what_is_pending {
        return Some(difference);
    }
    first_difference(turn, &without_pending(before, replayed)).map(|_| difference)
}

fn first_difference(turn: &StoredTurn, replayed: &[Event]) -> Option<Difference> {
    let text = |event: &Event| serde_json::to_string(event).unwrap_or_default();
    let longest = turn.events.len().max(replayed.len());
    (0..longest).find_map(|at| {
        let (stored, replayed) = (turn.events.get(at).map(text), replayed.get(at).map(text));
        (stored != replayed).then_some(Difference { turn: turn.turn.0, event: at, stored, replayed })
    })
}

/// The events as earlier releases recorded them, which did not say which effect a turn waits for.
fn without_pending(before: &Conversation, events: Vec<Event>) -> Vec<Event> {
    let (mut stack, mut frame) = (before.stack.clone(), before.next_frame);
    let mut left = Vec::with_capacity(events.len());
    for mut event in events {
        if let EventKind::Stack { frames, next_frame, pending } = &mut event.kind {
            *pending = None;
            if *frames == stack && *next_frame == frame {
                continue;
            }
            (stack, frame) = (frames.clone(), *next_frame);
        }
        left.push(event);
    }
    left
}

fn trace_of(turn: &StoredTurn, result: TurnResult, seen: Vec<TraceEntry>, used_so_far: ModelUsage) -> TurnTrace {
    let mut used = ModelUsage::default();
    for event in &turn.events {
        if let EventKind::ModelsUsed(more) = &event.kind {
            used += *more;
        }
    }
    let began = turn.inbound.at;
    let steps = turn.journal.iter().map(|record| TraceStep {
        key: record.key.to_string(),
        kind: record.kind.to_string(),
        after: record.outcome.as_ref().map(|_| record.at.since(began) as f64 / 1000.0),
        news: if &*record.kind == "tool" { progress_of(record.outcome.as_deref()) } else { Vec::new() },
    });
    TurnTrace {
        turn: turn.turn.0,
        message: turn.inbound.message.text.to_string(),
        why: result.reasons,
        seen,
        steps: steps.collect(),
        events: turn.events.clone(),
        failures: turn.trace.as_deref().and_then(|trace| serde_json::from_str(trace).ok()).unwrap_or_default(),
        used,
        used_so_far,
    }
}
