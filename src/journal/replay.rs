//! A read-only journal: it returns recorded outcomes and performs no effects. `segue replay` runs a turn with it.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::BoxFuture;
use segue_engine::time::Timestamp;

use super::{Journal, Step, StepStart, StepStatus, step_records::start_of};
use crate::{
    context::StepKey,
    effect::EffectClass,
    store::{ATTEMPTS, JournalRecord, REPLY_ANNOUNCED, StoreError},
};

/// Replays every step from the records of a finished turn. It ignores which build recorded them: a replay shows where another build
/// behaves differently.
pub struct ReplayJournal {
    records: HashMap<StepKey, JournalRecord>,
    asked: Mutex<HashSet<StepKey>>,
}

impl ReplayJournal {
    /// A journal of these records.
    pub fn new(records: Vec<JournalRecord>) -> Self {
        let records = records.into_iter().map(|record| (record.key.clone(), record)).collect();
        Self { records, asked: Mutex::default() }
    }

    /// Recorded steps that the replay did not reach, in the order of their keys.
    pub fn unused(&self) -> Vec<StepKey> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let mut unused: Vec<StepKey> = self
            .records
            .values()
            .filter(|record| !matches!(&*record.kind, REPLY_ANNOUNCED | ATTEMPTS) && !asked.contains(&record.key))
            .map(|record| record.key.clone())
            .collect();
        unused.sort();
        unused
    }

    fn look_up(&self, step: Step<'_>) -> Result<StepStart, StoreError> {
        let Some(record) = self.records.get(step.key) else {
            return Err(StoreError::NotRecorded { key: step.key.clone(), kind: step.kind.into() });
        };
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(step.key.clone());
        // Treated as `Write` whatever the class: without an outcome nothing may be performed.
        start_of(record, EffectClass::Write, step.request)
    }
}

impl Journal for ReplayJournal {
    fn begin<'a>(&'a self, step: Step<'a>) -> BoxFuture<'a, Result<StepStart, StoreError>> {
        Box::pin(async move { self.look_up(step) })
    }

    fn status(&self, step: Step<'_>) -> StepStatus {
        if self.records.contains_key(step.key) { StepStatus::Done } else { StepStatus::ReplayOnly }
    }

    fn finish<'a>(&'a self, _: &'a StepKey, _: Arc<str>, _: Timestamp) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }

    fn announce_reply<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }
}
