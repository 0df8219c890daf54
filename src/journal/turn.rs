//! The journal of a running turn.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use segue_engine::{ids::ConversationId, time::Timestamp};

use super::{
    Journal, Step, StepStart, StepStatus, TOOL_LIST,
    step_records::{BegunStep, StepRecords},
};
use crate::{
    clock::Clock,
    context::StepKey,
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

struct State {
    /// Records of another build are not replayed: the turn ends. A pending record is removed after a write that contained it succeeded;
    /// two concurrent writes both contain it, and the store keeps one.
    steps: StepRecords,
    /// The error that stopped the current attempt: no step begins after it.
    halted: Option<StoreError>,
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
        let state = State { steps: StepRecords::new(build, recorded), halted: None };
        Self { store, conversation, turn, build, clock, state: Mutex::new(state) }
    }

    /// The outcomes that are not durable yet, for the commit of the turn. They stay pending, because the commit may fail. Call it only
    /// when no step is in progress.
    pub fn pending(&self) -> Vec<JournalRecord> {
        self.lock().steps.pending().clone()
    }

    /// The latest record of each step, stored or not, in the order in which they were recorded.
    pub fn records(&self) -> Vec<JournalRecord> {
        self.lock().steps.all()
    }

    /// Records that the attempt `number` of the turn begins, counted from 1, together with the pending outcomes; durable when it
    /// returns. The first attempt needs no record.
    ///
    /// # Errors
    /// Those of [`Store::append_journal`]: then the attempt must not start.
    pub async fn record_attempt(&self, number: u32) -> Result<(), StoreError> {
        let key = StepKey::new(self.turn.0.to_string()).child(ATTEMPTS);
        let mut record = self.lock().steps.record(&key, ATTEMPTS, "", self.clock.now());
        record.outcome = Some(number.to_string().into());
        self.flush(Some(record.clone())).await?;
        self.lock().steps.add_stored(record);
        self.start_attempt();
        Ok(())
    }

    /// Starts another attempt: clears the error that stopped the previous one.
    pub fn start_attempt(&self) {
        self.lock().halted = None;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the pending outcomes and the intent, if there is one, in one transaction.
    async fn flush(&self, intent: Option<JournalRecord>) -> Result<(), StoreError> {
        let mut records = self.pending();
        records.extend(intent);
        if records.is_empty() {
            return Ok(());
        }
        self.store.append_journal(&self.conversation, self.turn, records.clone()).await?;
        self.lock().steps.pending().retain(|record| !records.contains(record));
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
        let begun = self.lock().steps.begin(step, self.clock.now())?;
        let intent = match begun {
            BegunStep::Now(start) => return Ok(start),
            BegunStep::AfterWrite { intent } => intent,
        };
        let is_new = intent.is_some();
        if let Err(error) = self.flush(intent).await {
            if is_new && !matches!(error, StoreError::StepAlreadyStarted { .. }) {
                self.lock().steps.intent_not_stored(step.key);
            }
            return Err(error);
        }
        failpoint::hit("C11");
        Ok(StepStart::Run)
    }

    async fn finish_step(&self, key: &StepKey, outcome: Arc<str>, at: Timestamp) -> Result<(), StoreError> {
        let (effect, _) = {
            let mut state = self.lock();
            let stopped = state.halted.clone();
            state.steps.finish(key, outcome, at, stopped)?
        };
        if effect.has_intent() {
            failpoint::hit("C14");
            // If this fails, the commit of the turn contains the outcome.
            self.flush(None).await?;
            failpoint::hit("C15");
        }
        Ok(())
    }

    async fn announce(&self, reply_id: &str) -> Result<(), StoreError> {
        self.may_begin()?;
        let record = announce_reply(reply_id, self.clock.now(), self.build);
        if self.lock().steps.contains(&record.key) {
            return Ok(());
        }
        if self.lock().steps.pending().iter().all(|pending| *pending.kind == *TOOL_LIST) {
            // No pending outcome exists that the reply could depend on.
            self.store.append_journal(&self.conversation, self.turn, vec![record.clone()]).await?;
        } else {
            self.flush(Some(record.clone())).await?;
        }
        self.lock().steps.add_stored(record);
        Ok(())
    }
}

impl Journal for TurnJournal {
    fn begin<'a>(&'a self, step: Step<'a>) -> BoxFuture<'a, Result<StepStart, StoreError>> {
        Box::pin(async move { self.halt(self.begin_step(step).await) })
    }

    fn status(&self, step: Step<'_>) -> StepStatus {
        self.lock().steps.status(step.key)
    }

    fn recorded(&self, key: &StepKey) -> Option<JournalRecord> {
        self.lock().steps.recorded(key)
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
