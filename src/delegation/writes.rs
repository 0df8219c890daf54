//! What a delegate has changed, also if it ends in the middle of a call: its report says it, so that nobody does it a second time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use segue_engine::conversation::{Write, WriteState, Writes};

use crate::{
    context::StepKey,
    journal::{EffectJournal, RecordedToolCall},
    llm::ToolCall,
    tools::{ToolInfo, ToolOutcome},
};

use super::report::writes_of;

/// The writes of delegates whose reports are lost, because the call that started them was abandoned. Their parent takes them.
pub(crate) type LostWrites = Arc<Mutex<Writes>>;

/// The writes of one delegate. Its loop may be dropped at any time; what a call in progress has come to is then read from the journal.
pub(super) struct WriteTracker {
    journal: EffectJournal,
    state: Mutex<State>,
    /// Those of its own delegates.
    lost: LostWrites,
}

#[derive(Default)]
struct State {
    ended: Writes,
    begun: Vec<BegunWrite>,
}

/// A call that the loop has passed on.
struct BegunWrite {
    call_id: Arc<str>,
    key: StepKey,
    write: Write,
}

impl WriteTracker {
    pub(super) fn new(journal: EffectJournal) -> Self {
        Self { journal, state: Mutex::default(), lost: LostWrites::default() }
    }
    /// Where its own delegates leave theirs.
    pub(super) fn lost(&self) -> LostWrites {
        self.lost.clone()
    }

    /// A call will be sent, at the step `key`.
    pub(super) fn begin(&self, call: &ToolCall, tool: Option<&ToolInfo>, key: &StepKey) {
        let Some(write) = write(call, tool) else { return };
        self.lock().begun.push(BegunWrite { call_id: call.id.clone(), key: key.clone(), write });
    }

    /// A call has ended.
    pub(super) fn finish(&self, call: &ToolCall, outcome: &ToolOutcome, text: &str) {
        let mut state = self.lock();
        if let Some(at) = state.begun.iter().position(|begun| begun.call_id == call.id) {
            let begun = state.begun.remove(at);
            if let Some(ended) = write_state(outcome) {
                let text = if ended == WriteState::Done { text } else { "" };
                state.ended.add(begun.write.with_result(text), ended);
            }
        }
        state.ended.merge(&writes_of(outcome));
    }

    /// All writes so far. A call in progress is in doubt if its intent is recorded.
    pub(super) fn all(&self) -> Writes {
        let state = self.lock();
        let mut writes = state.ended.clone();
        for BegunWrite { key, write, .. } in &state.begun {
            let Some(record) = self.journal.recorded(key) else { continue };
            let recorded = record.outcome.as_deref().map(serde_json::from_str::<RecordedToolCall>);
            let ended = match recorded {
                Some(Ok(call)) => write_state(&call.outcome),
                Some(Err(_)) | None => Some(WriteState::InDoubt),
            };
            if let Some(ended) = ended {
                writes.add(write.clone(), ended);
            }
        }
        drop(state);
        writes.merge(&self.lost.lock().unwrap_or_else(PoisonError::into_inner));
        writes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call as a write; `None` if it changes nothing itself.
fn write(call: &ToolCall, tool: Option<&ToolInfo>) -> Option<Write> {
    let tool = tool?;
    let effect = tool.changes(tool.effect)?;
    let arguments = call.arguments.as_json().cloned().unwrap_or_default();
    Some(Write::new(call.name.clone(), &arguments).with_effect(effect))
}

/// Whether a call has changed something; `None` if it certainly has not.
fn write_state(outcome: &ToolOutcome) -> Option<WriteState> {
    match outcome {
        ToolOutcome::Done(_) => Some(WriteState::Done),
        ToolOutcome::Unknown(_) | ToolOutcome::Pending(_) => Some(WriteState::InDoubt),
        ToolOutcome::Failed(_) => None,
    }
}

/// Takes what delegates left whose reports are lost.
pub(crate) fn take_lost(lost: &LostWrites) -> Writes {
    std::mem::take(&mut *lost.lock().unwrap_or_else(PoisonError::into_inner))
}
