//! The journal of a turn that runs.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;
use segue_engine::{ids::ConversationId, time::Timestamp};

use super::{Journal, Step, StepStart, StepStatus, TOOL_LIST};
use crate::{
    clock::Clock,
    context::StepKey,
    effect::EffectClass,
    failpoint,
    store::{ATTEMPTS, JournalRecord, Store, StoreError, TurnNumber, announce_reply},
};

/// The journal of a turn that runs, over a [`Store`].
pub struct TurnJournal {
    store: Arc<dyn Store>,
    conversation: ConversationId,
    turn: TurnNumber,
    /// Hash of engine version and project.
    build: u64,
    clock: Arc<dyn Clock>,
    /// Never held across a wait.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The latest record of each step, from before a crash and from now.
    known: HashMap<StepKey, StepEntry>,
    /// Outcomes that are not durable yet, in order. They leave the list when a write that carried them has succeeded, so that
    /// two writes under way at once both carry them, whichever arrives first.
    pending: Vec<JournalRecord>,
    /// Why the present try cannot go on: nothing more begins in it.
    halted: Option<StoreError>,
}

struct StepEntry {
    record: JournalRecord,
    /// `None` until the step begins in this process.
    effect: Option<EffectClass>,
}

impl TurnJournal {
    /// A journal for `turn`. `recorded` is what an earlier process left of it, empty for a new turn; `build` is the hash of
    /// engine version and project.
    pub fn new(
        store: Arc<dyn Store>,
        conversation: ConversationId,
        turn: TurnNumber,
        build: u64,
        clock: Arc<dyn Clock>,
        recorded: Vec<JournalRecord>,
    ) -> Self {
        let known =
            recorded.into_iter().map(|record| (record.key.clone(), StepEntry { record, effect: None })).collect();
        let state = State { known, ..State::default() };
        Self { store, conversation, turn, build, clock, state: Mutex::new(state) }
    }

    /// The outcomes that are not durable yet, for the batch of the turn. They stay, for the batch may fail. Call it once nothing is
    /// under way.
    pub fn pending(&self) -> Vec<JournalRecord> {
        self.lock().pending.clone()
    }

    /// The latest record of each step, stored or not, in the order of their keys.
    pub fn records(&self) -> Vec<JournalRecord> {
        let mut records: Vec<_> = self.lock().known.values().map(|known| known.record.clone()).collect();
        records.sort_by(|one, other| one.key.cmp(&other.key));
        records
    }

    /// Counts that the turn is tried for the `number`th time, from 1, together with the outcomes that are not durable yet; durable
    /// when it returns. The first time needs no count.
    ///
    /// # Errors
    /// Those of [`Store::append_journal`]: then the turn must not be tried.
    pub async fn count(&self, number: u32) -> Result<(), StoreError> {
        let key = StepKey::new(self.turn.0.to_string()).child(ATTEMPTS);
        let mut record = self.record(&key, ATTEMPTS, "");
        record.outcome = Some(number.to_string().into());
        self.flush(Some(record.clone())).await?;
        self.lock().known.insert(key, StepEntry { record, effect: None });
        self.begin_again();
        Ok(())
    }

    /// Another try begins: what halted the one before does not concern it.
    pub fn begin_again(&self) {
        self.lock().halted = None;
    }

    fn record(&self, key: &StepKey, kind: &str, request: &str) -> JournalRecord {
        JournalRecord {
            key: key.clone(),
            kind: kind.into(),
            request: request.into(),
            outcome: None,
            at: self.clock.now(),
            build: self.build,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is pending, then the intent if there is one, in one transaction.
    async fn flush(&self, intent: Option<JournalRecord>) -> Result<(), StoreError> {
        let mut records = self.lock().pending.clone();
        records.extend(intent);
        if records.is_empty() {
            return Ok(());
        }
        self.store.append_journal(&self.conversation, self.turn, records.clone()).await?;
        self.lock().pending.retain(|record| !records.contains(record));
        Ok(())
    }

    /// After an error of the store, or a record that does not fit, nothing more begins in this try: what would come of it is not
    /// what the turn does when it is tried again. What is under way still finishes.
    fn halt<T>(&self, done: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error) = &done {
            self.lock().halted.get_or_insert_with(|| error.clone());
        }
        done
    }

    fn may_begin(&self) -> Result<(), StoreError> {
        self.lock().halted.clone().map_or(Ok(()), Err)
    }

    async fn begin_step(&self, step: Step<'_>) -> Result<StepStart, StoreError> {
        self.may_begin()?;
        let record = self.record(step.key, step.kind, step.request);
        let again = match self.look_up(&record, step.class)? {
            RecordedStep::Answer(begun) => return Ok(begun),
            RecordedStep::Again => true,
            RecordedStep::New => false,
        };
        if !step.class.has_intent() {
            return Ok(StepStart::Run);
        }
        // The intent of a step that is done again is durable already; what led to it may not be.
        if let Err(error) = self.flush((!again).then_some(record)).await {
            if !again && !matches!(error, StoreError::StepAlreadyStarted { .. }) {
                // The caller may ask again: the intent must not count as written.
                self.lock().known.remove(step.key);
            }
            return Err(error);
        }
        failpoint::hit("C11");
        Ok(StepStart::Run)
    }

    /// What is known of the step of `record`, which becomes known now.
    fn look_up(&self, record: &JournalRecord, effect: EffectClass) -> Result<RecordedStep, StoreError> {
        let mut state = self.lock();
        let Some(known) = state.known.get_mut(&record.key) else {
            state.known.insert(record.key.clone(), StepEntry { record: record.clone(), effect: Some(effect) });
            return Ok(RecordedStep::New);
        };
        known.effect = Some(effect);
        if known.record.build != self.build {
            return Ok(RecordedStep::Answer(StepStart::OtherBuild));
        }
        if !effect.has_intent() && known.record.outcome.is_none() {
            // Asked before in this process, without an answer: nothing is stored that it could contradict.
            known.record.clone_from(record);
            return Ok(RecordedStep::New);
        }
        Ok(match start_of(&known.record, effect, &record.request)? {
            StepStart::Run => RecordedStep::Again,
            begun => RecordedStep::Answer(begun),
        })
    }

    async fn finish_step(&self, key: &StepKey, outcome: Arc<str>, at: Timestamp) -> Result<(), StoreError> {
        let effect = {
            let mut state = self.lock();
            let state = &mut *state;
            let begun = state.known.get_mut(key).and_then(|known| Some((known.effect?, &mut known.record)));
            let Some((effect, record)) = begun else {
                return Err(StoreError::NotRecorded { key: key.clone(), kind: "finish".into() });
            };
            if let (EffectClass::Composite, Some(error)) = (effect, &state.halted) {
                // One of its own steps was stopped: what came of it all is not what comes of it when the turn is tried again.
                return Err(error.clone());
            }
            (record.outcome, record.at, record.build) = (Some(outcome), at, self.build);
            let record = record.clone();
            // Pending even when it is written at once: should that fail, the batch of the turn carries it.
            state.pending.push(record);
            effect
        };
        if effect.has_intent() {
            failpoint::hit("C14");
            self.flush(None).await?;
            failpoint::hit("C15");
        }
        Ok(())
    }

    async fn mark(&self, reply_id: &str) -> Result<(), StoreError> {
        self.may_begin()?;
        let record = announce_reply(reply_id, self.clock.now(), self.build);
        if self.lock().known.contains_key(&record.key) {
            return Ok(());
        }
        if self.lock().pending.iter().all(|pending| *pending.kind == *TOOL_LIST) {
            // Nothing is decided yet that words could depend on.
            self.store.append_journal(&self.conversation, self.turn, vec![record.clone()]).await?;
        } else {
            self.flush(Some(record.clone())).await?;
        }
        self.lock().known.insert(record.key.clone(), StepEntry { record, effect: None });
        Ok(())
    }
}

/// What is known of a step that begins.
enum RecordedStep {
    /// Nothing.
    New,
    /// It began before and may be performed again.
    Again,
    /// It must not be performed.
    Answer(StepStart),
}

/// What a record of the same build says to a step that begins.
pub(super) fn start_of(record: &JournalRecord, effect: EffectClass, request: &str) -> Result<StepStart, StoreError> {
    if *record.request != *request {
        return Err(StoreError::RequestChanged {
            key: record.key.clone(),
            recorded: record.request.clone(),
            found: request.into(),
        });
    }
    Ok(match (&record.outcome, effect) {
        (Some(outcome), _) => StepStart::Replay { outcome: outcome.clone(), at: record.at },
        (None, EffectClass::Write) if failpoint::is_armed("defect:write-again") => StepStart::Run,
        (None, EffectClass::Write) => StepStart::Unknown,
        (None, EffectClass::Read | EffectClass::Idempotent | EffectClass::Composite) => StepStart::Run,
    })
}

impl Journal for TurnJournal {
    fn begin<'a>(&'a self, step: Step<'a>) -> BoxFuture<'a, Result<StepStart, StoreError>> {
        Box::pin(async move { self.halt(self.begin_step(step).await) })
    }

    fn status(&self, step: Step<'_>) -> StepStatus {
        let state = self.lock();
        let done = state.known.get(step.key).is_some_and(|known| known.record.outcome.is_some());
        if done { StepStatus::Done } else { StepStatus::Open }
    }

    fn recorded(&self, key: &StepKey) -> Option<JournalRecord> {
        let state = self.lock();
        let known = state.known.get(key)?;
        // What began in this process and may be repeated is no more in doubt than its caller says.
        let may_have_happened = matches!(known.effect, None | Some(EffectClass::Write));
        (known.record.outcome.is_some() || may_have_happened).then(|| known.record.clone())
    }

    fn finish<'a>(
        &'a self,
        key: &'a StepKey,
        outcome: Arc<str>,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move { self.halt(self.finish_step(key, outcome, at).await) })
    }

    fn speaking<'a>(&'a self, reply_id: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(self.mark(reply_id))
    }
}
