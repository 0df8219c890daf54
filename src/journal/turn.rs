//! The journal of a running turn.

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

/// The journal of a running turn, in a [`Store`].
pub struct TurnJournal {
    store: Arc<dyn Store>,
    conversation: ConversationId,
    turn: TurnNumber,
    /// Hash of engine version and project.
    build: u64,
    clock: Arc<dyn Clock>,
    /// Never locked across an await point.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The latest record of each step, from before a crash and from now.
    entries: HashMap<StepKey, StepEntry>,
    /// Outcomes that are not durable yet, in order. They are removed after a write that contained them succeeded; two concurrent writes
    /// both contain them.
    pending: Vec<JournalRecord>,
    /// The error that stopped the current attempt: no step begins after it.
    halted: Option<StoreError>,
}

struct StepEntry {
    record: JournalRecord,
    /// `None` until the step begins in this process.
    effect: Option<EffectClass>,
}

impl TurnJournal {
    /// A journal for `turn`. `recorded` are the records of an earlier process, empty for a new turn; `build` is the hash of
    /// engine version and project.
    pub fn new(
        store: Arc<dyn Store>,
        conversation: ConversationId,
        turn: TurnNumber,
        build: u64,
        clock: Arc<dyn Clock>,
        recorded: Vec<JournalRecord>,
    ) -> Self {
        let entries =
            recorded.into_iter().map(|record| (record.key.clone(), StepEntry { record, effect: None })).collect();
        let state = State { entries, ..State::default() };
        Self { store, conversation, turn, build, clock, state: Mutex::new(state) }
    }

    /// The outcomes that are not durable yet, for the commit of the turn. They stay pending, because the commit may fail. Call it only
    /// when no step is in progress.
    pub fn pending(&self) -> Vec<JournalRecord> {
        self.lock().pending.clone()
    }

    /// The latest record of each step, stored or not, in the order of their keys.
    pub fn records(&self) -> Vec<JournalRecord> {
        let mut records: Vec<_> = self.lock().entries.values().map(|entry| entry.record.clone()).collect();
        records.sort_by(|one, other| one.key.cmp(&other.key));
        records
    }

    /// Records that the attempt `number` of the turn begins, counted from 1, together with the pending outcomes; durable when it
    /// returns. The first attempt needs no record.
    ///
    /// # Errors
    /// Those of [`Store::append_journal`]: then the attempt must not start.
    pub async fn record_attempt(&self, number: u32) -> Result<(), StoreError> {
        let key = StepKey::new(self.turn.0.to_string()).child(ATTEMPTS);
        let mut record = self.record(&key, ATTEMPTS, "");
        record.outcome = Some(number.to_string().into());
        self.flush(Some(record.clone())).await?;
        self.lock().entries.insert(key, StepEntry { record, effect: None });
        self.start_attempt();
        Ok(())
    }

    /// Starts another attempt: clears the error that stopped the previous one.
    pub fn start_attempt(&self) {
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

    /// Writes the pending outcomes and the intent, if there is one, in one transaction.
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

    /// After an error of the store, or a record that does not match, no further step begins in this attempt: its outcome would differ
    /// from that of the retry. Steps in progress still finish.
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
        // The intent of a repeated step is already durable; the pending outcomes before it may not be.
        if let Err(error) = self.flush((!again).then_some(record)).await {
            if !again && !matches!(error, StoreError::StepAlreadyStarted { .. }) {
                // The caller may try again: the intent must not count as written.
                self.lock().entries.remove(step.key);
            }
            return Err(error);
        }
        failpoint::hit("C11");
        Ok(StepStart::Run)
    }

    /// The recorded state of the step of `record`; adds an entry for a new step.
    fn look_up(&self, record: &JournalRecord, effect: EffectClass) -> Result<RecordedStep, StoreError> {
        let mut state = self.lock();
        let Some(entry) = state.entries.get_mut(&record.key) else {
            state.entries.insert(record.key.clone(), StepEntry { record: record.clone(), effect: Some(effect) });
            return Ok(RecordedStep::New);
        };
        entry.effect = Some(effect);
        if entry.record.build != self.build {
            return Ok(RecordedStep::Answer(StepStart::OtherBuild));
        }
        if !effect.has_intent() && entry.record.outcome.is_none() {
            // Begun before in this process without an outcome: nothing is stored that the new request could contradict.
            entry.record.clone_from(record);
            return Ok(RecordedStep::New);
        }
        Ok(match start_of(&entry.record, effect, &record.request)? {
            StepStart::Run => RecordedStep::Again,
            begun => RecordedStep::Answer(begun),
        })
    }

    async fn finish_step(&self, key: &StepKey, outcome: Arc<str>, at: Timestamp) -> Result<(), StoreError> {
        let effect = {
            let mut state = self.lock();
            let state = &mut *state;
            let begun = state.entries.get_mut(key).and_then(|entry| Some((entry.effect?, &mut entry.record)));
            let Some((effect, record)) = begun else {
                return Err(StoreError::NotRecorded { key: key.clone(), kind: "finish".into() });
            };
            if let (EffectClass::Composite, Some(error)) = (effect, &state.halted) {
                // One of its steps was stopped: its outcome would differ from that of the retry.
                return Err(error.clone());
            }
            (record.outcome, record.at, record.build) = (Some(outcome), at, self.build);
            let record = record.clone();
            // Pending even if it is written at once: if that fails, the commit of the turn contains it.
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

    async fn announce(&self, reply_id: &str) -> Result<(), StoreError> {
        self.may_begin()?;
        let record = announce_reply(reply_id, self.clock.now(), self.build);
        if self.lock().entries.contains_key(&record.key) {
            return Ok(());
        }
        if self.lock().pending.iter().all(|pending| *pending.kind == *TOOL_LIST) {
            // No pending outcome exists that the reply could depend on.
            self.store.append_journal(&self.conversation, self.turn, vec![record.clone()]).await?;
        } else {
            self.flush(Some(record.clone())).await?;
        }
        self.lock().entries.insert(record.key.clone(), StepEntry { record, effect: None });
        Ok(())
    }
}

/// The recorded state of a step that begins.
enum RecordedStep {
    /// There is no record.
    New,
    /// It began before and may be performed again.
    Again,
    /// It must not be performed.
    Answer(StepStart),
}

/// The start of a step by a record of the same build.
pub(crate) fn start_of(record: &JournalRecord, effect: EffectClass, request: &str) -> Result<StepStart, StoreError> {
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
        let done = state.entries.get(step.key).is_some_and(|entry| entry.record.outcome.is_some());
        if done { StepStatus::Done } else { StepStatus::Open }
    }

    fn recorded(&self, key: &StepKey) -> Option<JournalRecord> {
        let state = self.lock();
        let entry = state.entries.get(key)?;
        // A repeatable step that began in this process is not in doubt: its caller knows its state.
        let may_have_happened = matches!(entry.effect, None | Some(EffectClass::Write));
        (entry.record.outcome.is_some() || may_have_happened).then(|| entry.record.clone())
    }

    fn finish<'a>(
        &'a self,
        key: &'a StepKey,
        outcome: Arc<str>,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move { self.halt(self.finish_step(key, outcome, at).await) })
    }

    fn announce_reply<'a>(&'a self, reply_id: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(self.announce(reply_id))
    }
}
