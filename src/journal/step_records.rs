//! The records of steps, and the rules by which a step begins and ends. The journals of turns and of units use them; where records are
//! stored, and what stops a journal, is up to each.

use std::{collections::HashMap, sync::Arc};

use segue_engine::time::Timestamp;

use super::{Step, StepStart, StepStatus};
use crate::{
    context::StepKey,
    effect::EffectClass,
    store::{JournalRecord, StoreError},
};

/// The records of the steps of a journal.
pub(crate) struct StepRecords {
    /// The build that records: a hash of engine version and project.
    build: u64,
    /// Whether the records of another build are replayed.
    replays_other_builds: bool,
    /// The latest record of each step, from before a crash and from now.
    entries: HashMap<StepKey, StepEntry>,
    /// How many records were added so far.
    added: usize,
    /// Outcomes that are not durable yet, in order.
    pending: Vec<JournalRecord>,
}

struct StepEntry {
    record: JournalRecord,
    /// Increases with every record, also with the outcome of a step that has a record.
    order: usize,
    /// `None` until the step begins in this process.
    effect: Option<EffectClass>,
}

/// How a step begins.
#[derive(Debug, PartialEq)]
pub(crate) enum BegunStep {
    /// Nothing has to be stored before.
    Now(StepStart),
    /// It is performed as soon as the pending outcomes are durable, together with its intent. The intent of a step that is repeated is
    /// durable already; the pending outcomes before it may not be.
    AfterWrite {
        /// The intent to store.
        intent: Option<JournalRecord>,
    },
}

impl StepRecords {
    /// The records of an earlier process, none for a new journal. `build` is the hash of engine version and project.
    pub(crate) fn new(build: u64, recorded: Vec<JournalRecord>) -> Self {
        let mut records =
            Self { build, replays_other_builds: false, entries: HashMap::new(), added: 0, pending: Vec::new() };
        recorded.into_iter().for_each(|record| records.add_stored(record));
        records
    }

    /// Replays the records of other builds too, if the requests are the same.
    pub(crate) fn replaying_other_builds(self) -> Self {
        Self { replays_other_builds: true, ..self }
    }

    /// A record of this build.
    pub(crate) fn record(&self, key: &StepKey, kind: &str, request: &str, at: Timestamp) -> JournalRecord {
        JournalRecord {
            key: key.clone(),
            kind: kind.into(),
            request: request.into(),
            outcome: None,
            at,
            build: self.build,
        }
    }

    /// Begins a step, and adds a record for a new one.
    ///
    /// # Errors
    /// [`StoreError::RequestChanged`].
    pub(crate) fn begin(&mut self, step: Step<'_>, at: Timestamp) -> Result<BegunStep, StoreError> {
        let record = self.record(step.key, step.kind, step.request, at);
        let has_intent = step.class.has_intent();
        let Some(entry) = self.entries.get_mut(step.key) else {
            self.insert(record.clone(), Some(step.class));
            return Ok(if has_intent {
                BegunStep::AfterWrite { intent: Some(record) }
            } else {
                BegunStep::Now(StepStart::Run)
            });
        };
        let began_here = entry.effect.replace(step.class).is_some();
        if entry.record.build != self.build && !self.replays_other_builds {
            return Ok(BegunStep::Now(StepStart::OtherBuild));
        }
        if began_here && !has_intent && entry.record.outcome.is_none() {
            // Nothing is stored that the new request could contradict.
            entry.record = record;
            return Ok(BegunStep::Now(StepStart::Run));
        }
        Ok(match start_of(&entry.record, step.class, step.request)? {
            StepStart::Run if has_intent => BegunStep::AfterWrite { intent: None },
            start => BegunStep::Now(start),
        })
    }

    /// The intent of a step was not stored: it must not count as stored, because the caller may begin the step again.
    pub(crate) fn intent_not_stored(&mut self, key: &StepKey) {
        self.entries.remove(key);
    }

    /// Ends a step that began: its outcome is pending, even if the caller stores it at once. Returns its class and its record.
    ///
    /// `stopped` is why the journal begins no further step. Then a composite step has no outcome: one of its steps may not have run, and
    /// the outcome would differ from that of the next attempt.
    ///
    /// # Errors
    /// [`StoreError::NotRecorded`] for a step that did not begin; `stopped`.
    pub(crate) fn finish(
        &mut self,
        key: &StepKey,
        outcome: Arc<str>,
        at: Timestamp,
        stopped: Option<StoreError>,
    ) -> Result<(EffectClass, JournalRecord), StoreError> {
        let begun =
            self.entries.get_mut(key).and_then(|entry| Some((entry.effect?, &mut entry.record, &mut entry.order)));
        let Some((effect, record, order)) = begun else {
            return Err(StoreError::NotRecorded { key: key.clone(), kind: "finish".into() });
        };
        if let (EffectClass::Composite, Some(error)) = (effect, stopped) {
            return Err(error);
        }
        (record.outcome, record.at, record.build) = (Some(outcome), at, self.build);
        self.added += 1;
        *order = self.added;
        self.pending.push(record.clone());
        Ok((effect, record.clone()))
    }

    /// Adds a record that is stored already.
    pub(crate) fn add_stored(&mut self, record: JournalRecord) {
        self.insert(record, None);
    }

    fn insert(&mut self, record: JournalRecord, effect: Option<EffectClass>) {
        self.added += 1;
        self.entries.insert(record.key.clone(), StepEntry { record, order: self.added, effect });
    }

    /// Adds a record with an outcome that is not stored yet.
    pub(crate) fn add_pending(&mut self, record: JournalRecord) {
        self.pending.push(record.clone());
        self.add_stored(record);
    }

    /// Forgets the steps whose records the store has deleted.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Outcomes that are not durable yet, in order.
    pub(crate) fn pending(&mut self) -> &mut Vec<JournalRecord> {
        &mut self.pending
    }

    /// Whether there is a record of the step.
    pub(crate) fn contains(&self, key: &StepKey) -> bool {
        self.entries.contains_key(key)
    }

    /// The recorded outcome of a step.
    pub(crate) fn outcome(&self, key: &StepKey) -> Option<&Arc<str>> {
        self.entries.get(key)?.record.outcome.as_ref()
    }

    /// The latest record of each step, stored or not, in the order in which they were recorded.
    pub(crate) fn all(&self) -> Vec<JournalRecord> {
        let mut entries: Vec<_> = self.entries.values().collect();
        entries.sort_by_key(|entry| entry.order);
        entries.into_iter().map(|entry| entry.record.clone()).collect()
    }

    /// The records that a later attempt needs, in the order in which they were recorded: outcomes, and intents of steps that may have
    /// happened.
    pub(crate) fn needed_later(&self) -> Vec<JournalRecord> {
        let mut records = self.all();
        records.retain(|record| self.recorded(&record.key).is_some());
        records
    }

    /// When a step began, or when its outcome was recorded.
    pub(crate) fn time_of(&self, key: &StepKey) -> Option<Timestamp> {
        self.entries.get(key).map(|entry| entry.record.at)
    }

    /// See [`Journal::status`](super::Journal::status).
    pub(crate) fn status(&self, key: &StepKey) -> StepStatus {
        if self.outcome(key).is_some() { StepStatus::Done } else { StepStatus::Open }
    }

    /// See [`Journal::recorded`](super::Journal::recorded).
    pub(crate) fn recorded(&self, key: &StepKey) -> Option<JournalRecord> {
        let entry = self.entries.get(key)?;
        // A repeatable step that began in this process is not in doubt: its caller knows its state.
        let may_have_happened = matches!(entry.effect, None | Some(EffectClass::Write));
        (entry.record.outcome.is_some() || may_have_happened).then(|| entry.record.clone())
    }
}

/// The start of a step by its record.
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
        (None, EffectClass::Write) => StepStart::Unknown,
        (None, EffectClass::Read | EffectClass::Idempotent | EffectClass::Composite) => StepStart::Run,
    })
}
