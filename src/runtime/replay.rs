//! Replay of stored conversations from their journals, without performing effects: to compare the events, or to compute a trace.

use std::sync::Arc;

use async_trait::async_trait;
use segue_engine::{
    conversation::{Conversation, Event, EventKind, ModelUsage},
    dialogue::Reason,
    ids::ConversationId,
};
use serde::Serialize;

use super::{
    Assistant,
    feed::FeedWriter,
    project_runtime::ProjectRuntime,
    turn::{
        AcceptedMessage, SharedTexts, TraceEntry, TurnRecord, TurnResult, TurnSink, UsageMeter, give_up,
        recorded_give_up, recovered_from_record, run_turn,
    },
};
use crate::{
    context::CallContext,
    conversation::{DeliveryError, Receipt, ReplySink, TurnEvent},
    journal::{Journal, ReplayJournal, TraceProgress, progress_of},
    limits,
    store::{StoreError, StoredTurn, TurnNumber, announced_replies},
};

/// The first difference between a stored turn and its replay.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ReplayDifference {
    /// The turn number.
    pub turn: u64,
    /// The index of the event in the turn.
    pub event: usize,
    /// The stored event as JSON; `None` if the replay has more events.
    pub stored: Option<String>,
    /// The event of the replay as JSON; `None` if the replay has fewer events.
    pub replayed: Option<String>,
}

/// Why a conversation cannot be replayed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReplayError {
    /// The store has no such conversation.
    #[error("there is no conversation {0} in the store")]
    Unknown(ConversationId),
    /// The journal of a turn was deleted after its retention.
    #[error("turn {0} is past the retention of its journal: expired")]
    Expired(u64),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ReplayError {
    /// The error code; `segue explain` shows its page.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "R0201",
            Self::Expired(_) => "R0202",
            Self::Store(error) => error.code(),
        }
    }
}

/// The trace of one turn: its decisions, requests, responses and timings.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TurnTrace {
    /// The turn number.
    pub turn: u64,
    /// The text of the message.
    pub message: String,
    /// Decisions of the engine: executed and dropped commands, branches, notes. Empty if `project_differs` is true.
    pub reasons: Vec<Reason>,
    /// Whether a replay of the turn has other events than the record, because the project differs from that of the turn. Its reasons
    /// would not be those of the turn.
    pub project_differs: bool,
    /// Requests to models and tools, and their responses.
    pub entries: Vec<TraceEntry>,
    /// The steps of the journal.
    pub steps: Vec<TraceStep>,
    /// The stored events.
    pub events: Vec<Event>,
    /// Internal failures: codes and causes.
    pub failures: Vec<(String, String)>,
    /// Tokens and cost of this turn.
    pub usage: ModelUsage,
    /// Tokens and cost from the start of the conversation to the end of this turn.
    pub usage_so_far: ModelUsage,
}

/// One step of the journal, for traces.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TraceStep {
    /// The step key.
    pub key: String,
    /// The kind of effect.
    pub kind: String,
    /// Milliseconds from the message to the outcome; `None` without an outcome.
    pub after_ms: Option<f64>,
    /// The newest progress notifications of a tool call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub progress: Vec<TraceProgress>,
}

impl Assistant {
    /// Replays all stored turns and compares each event byte for byte. `None` means that they are equal.
    ///
    /// # Errors
    /// [`ReplayError`] if there is no such conversation, or no journal.
    pub async fn replay(&self, id: &ConversationId) -> Result<Option<ReplayDifference>, ReplayError> {
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

    /// The traces of all turns of a conversation, or of the turn `only`.
    ///
    /// # Errors
    /// [`ReplayError`] if there is no such conversation, or no journal.
    pub async fn trace(&self, id: &ConversationId, only: Option<u64>) -> Result<Vec<TurnTrace>, ReplayError> {
        let mut conversation = Conversation::new(id.clone());
        let Some(number) = only.filter(|number| *number > 0) else {
            // Number 0 stands for the events that answer no message.
            let mut traces = Vec::new();
            for turn in self.turns(id).await? {
                let trace = self.trace_turn(&mut conversation, &turn).await;
                if only.is_none_or(|number| number == trace.turn) {
                    traces.push(trace);
                }
            }
            return Ok(traces);
        };
        // Of the turns before it the events suffice: the journals of a long conversation are large.
        let batches = self.0.store.latest_turns(id, None, usize::MAX).await?;
        if batches.is_empty() {
            return Err(ReplayError::Unknown(id.clone()));
        }
        let Some(turn) = self.0.store.turn(id, TurnNumber(number)).await? else { return Ok(Vec::new()) };
        let earlier = batches.iter().rev().take_while(|batch| batch.turn != turn.turn);
        earlier.flat_map(|batch| &batch.events).for_each(|event| conversation.apply(event));
        Ok(vec![self.trace_turn(&mut conversation, &turn).await])
    }

    /// The trace of the next turn of a conversation. The events of the turn are applied.
    async fn trace_turn(&self, conversation: &mut Conversation, turn: &StoredTurn) -> TurnTrace {
        let (mut result, entries) = self.replay_turn(&mut conversation.clone(), turn, UsageMeter::tracing()).await;
        let project_differs = compare(conversation, turn, std::mem::take(&mut result.events)).is_some();
        turn.events.iter().for_each(|event| conversation.apply(event));
        let mut trace = trace_of(turn, result, entries, conversation.models);
        trace.project_differs = project_differs;
        if project_differs {
            trace.reasons.clear();
        }
        trace
    }

    async fn turns(&self, id: &ConversationId) -> Result<Vec<StoredTurn>, ReplayError> {
        let turns = self.0.store.turns(id).await?;
        if turns.is_empty() {
            return Err(ReplayError::Unknown(id.clone()));
        }
        Ok(turns)
    }

    /// Replays one turn with a journal that performs no effect.
    async fn replay_turn(
        &self,
        conversation: &mut Conversation,
        turn: &StoredTurn,
        usage: UsageMeter,
    ) -> (TurnResult, Vec<TraceEntry>) {
        let journal = Arc::new(ReplayJournal::new(turn.journal.clone()));
        let texts = SharedTexts::new(self.0.store.clone(), conversation.id.clone(), Default::default());
        let record = TurnRecord::new(journal.clone(), self.0.clock.clone(), turn.inbound.at, usage, texts);
        let accepted = AcceptedMessage::new(turn.turn, &turn.inbound);
        if let Some(given_up) = recorded_give_up(&turn.journal) {
            return (give_up(&self.0.runtime, conversation, accepted, given_up), Vec::new());
        }
        let recovered = recovered_from_record(turn.turn, &turn.journal);
        let mut cx = CallContext::new(record.clock(), limits::TURN_TIMEOUT_MAX);
        cx.key = recovered.root.clone();
        // Replies are streamed again if they were streamed: of an interrupted stream, only the part that was shown is stored. For a
        // recovered turn the recovery records it.
        let streams = recovered.recoveries.is_empty() && announced_replies(&turn.journal).next().is_some();
        let mut discarding = DiscardingSink { streams };
        let mut sink = TurnSink::new(&mut discarding, FeedWriter::none(), journal as Arc<dyn Journal>);
        let runtime = self.offline_runtime();
        let result = run_turn(&runtime, conversation, accepted, recovered, &record, &mut sink, &cx).await;
        (result, record.usage.entries())
    }

    /// The project runtime without connections.
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

/// A sink that discards everything. It streams if the channel of the stored turn did.
struct DiscardingSink {
    streams: bool,
}

#[async_trait]
impl ReplySink for DiscardingSink {
    fn wants_deltas(&self) -> bool {
        self.streams
    }
    async fn send(&mut self, _: TurnEvent, _: &CallContext) -> Result<Receipt, DeliveryError> {
        Ok(Receipt::Skipped)
    }
}

/// The first difference between a stored turn and its replay. `before` is the conversation before the turn.
fn compare(before: &Conversation, turn: &StoredTurn, replayed: Vec<Event>) -> Option<ReplayDifference> {
    let difference = first_difference(turn, &replayed)?;
    let stores_pending =
        turn.events.iter().any(|event| matches!(&event.kind, EventKind::Stack { pending: Some(_), .. }));
    if stores_pending {
        return Some(difference);
    }
    first_difference(turn, &as_earlier_versions(before, replayed))
}

fn first_difference(turn: &StoredTurn, replayed: &[Event]) -> Option<ReplayDifference> {
    let text = |event: &Event| serde_json::to_string(event).unwrap_or_default();
    let longest = turn.events.len().max(replayed.len());
    (0..longest).find_map(|at| {
        let (stored, replayed) = (turn.events.get(at).map(text), replayed.get(at).map(text));
        (stored != replayed).then_some(ReplayDifference { turn: turn.turn.0, event: at, stored, replayed })
    })
}

/// Removes what earlier versions did not store: the pending effect of stack events, and what calls have changed.
fn as_earlier_versions(before: &Conversation, events: Vec<Event>) -> Vec<Event> {
    let (mut stack, mut frame) = (before.stack.clone(), before.next_frame);
    let mut left = Vec::with_capacity(events.len());
    for mut event in events {
        if let EventKind::ToolExecuted { effect, writes, .. } = &mut event.kind {
            (*effect, *writes) = Default::default();
        }
        if let EventKind::Stack { frames, next_frame, pending } = &mut event.kind {
            *pending = None;
            frames.iter_mut().for_each(|frame| frame.writes = Default::default());
            if *frames == stack && *next_frame == frame {
                continue;
            }
            (stack, frame) = (frames.clone(), *next_frame);
        }
        left.push(event);
    }
    left
}

fn trace_of(turn: &StoredTurn, result: TurnResult, entries: Vec<TraceEntry>, usage_so_far: ModelUsage) -> TurnTrace {
    let mut usage = ModelUsage::default();
    for event in &turn.events {
        if let EventKind::ModelsUsed(more) = &event.kind {
            usage += *more;
        }
    }
    let began = turn.inbound.at;
    let steps = turn.journal.iter().map(|record| TraceStep {
        key: record.key.to_string(),
        kind: record.kind.to_string(),
        after_ms: record.outcome.as_ref().map(|_| record.at.since(began) as f64 / 1000.0),
        progress: if &*record.kind == "tool" { progress_of(record.outcome.as_deref()) } else { Vec::new() },
    });
    TurnTrace {
        turn: turn.turn.0,
        message: turn.inbound.message.text.to_string(),
        reasons: result.reasons,
        project_differs: false,
        entries,
        steps: steps.collect(),
        events: turn.events.clone(),
        failures: turn.trace.as_deref().and_then(|trace| serde_json::from_str(trace).ok()).unwrap_or_default(),
        usage,
        usage_so_far,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{
        store::{ForwardingStore, MemoryStore, Store},
        testing::{ScriptedLlm, TestAssistant},
    };

    /// A store that cannot read all turns of a conversation with their journals.
    struct SingleTurns(MemoryStore);

    #[async_trait]
    impl ForwardingStore for SingleTurns {
        fn inner(&self) -> &dyn Store {
            &self.0
        }
        async fn turns(&self, _: &ConversationId) -> Result<Vec<StoredTurn>, StoreError> {
            Err(StoreError::Unavailable("too long".to_owned()))
        }
    }

    #[tokio::test]
    async fn the_trace_of_one_turn_reads_the_journal_of_that_turn_only() {
        let model = Arc::new(ScriptedLlm::strict(["start flow greet", "set slot name Ada"]));
        let builder = Assistant::builder("examples/projects/rust_examples").unwrap().model(model);
        let store = Arc::new(SingleTurns(MemoryStore::new()));
        let test = TestAssistant::build(builder.store(store)).unwrap();
        for text in ["hello", "I am Ada"] {
            test.say(text).await.unwrap();
        }
        let id = "u".into();
        let [trace] = test.assistant.trace(&id, Some(2)).await.unwrap().try_into().unwrap();
        assert_eq!(
            (trace.turn, &*trace.message, trace.project_differs),
            (2, "I am Ada", false),
            "the first turn counts"
        );
        assert!(!trace.reasons.is_empty());
        assert!(test.assistant.trace(&id, Some(3)).await.unwrap().is_empty());
        assert!(matches!(test.assistant.trace(&"x".into(), Some(1)).await, Err(ReplayError::Unknown(_))));
    }
}
