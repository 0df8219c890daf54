//! The journal of a unit, in a [`RunStore`]. Events that a step causes are stored in one transaction with its outcome.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use segue_engine::{
    ids::QuestionId,
    mission::{
        budget,
        event::{NewEvent, RunEventKind},
        scheduler,
        state::RunState,
        tools::ToolAnswer,
        unit::UnitId,
    },
    project::missions::MissionDef,
    text::{ELLIPSIS, TextLimit, truncate},
    time::Timestamp,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value as Json;

use super::view::{RunView, event_text};
use crate::{
    clock::Clock,
    context::StepKey,
    failpoint,
    journal::{BegunStep, Journal, JournalObserver, RecordedToolCall, Step, StepRecords, StepStart, StepStatus},
    llm::ChatResponse,
    store::{
        JournalRecord, StoreError,
        runs::{NewQuestion, RunStore, RunStoreError, UnitBatch, UnitKey},
    },
    tools::{ToolInfo, ToolOutcome},
};

/// The part of a step key that names an agent.
pub(super) const AGENT_PART: &str = "agent:";
/// The part of a step key of a question to a copy of a session.
pub(super) const CLONE_PART: &str = "clone";
/// Characters of a result that its event contains.
const RESULT_CHARS: usize = 400;

/// Why a unit stops without a result: its owner lost it, or the store failed.
#[derive(Clone, Debug)]
pub(super) enum Halt {
    /// The store refused a write.
    Store(RunStoreError),
    /// A recorded step does not fit: the mission was changed while the unit ran.
    Changed(StoreError),
    /// The state of the run cannot be read.
    Unreadable(super::parts::MissionError),
}

/// The journal of a claimed unit.
pub(super) struct UnitJournal {
    store: Arc<dyn RunStore>,
    key: UnitKey,
    epoch: u64,
    id: UnitId,
    clock: Arc<dyn Clock>,
    view: Arc<RunView>,
    /// Held while a batch is stored, so that nothing is stored twice: the store numbers every event that it gets.
    storing: tokio::sync::Mutex<()>,
    /// Never locked across an await point.
    state: Mutex<State>,
}

struct State {
    /// Records of other builds are replayed: a unit may outlive the program that began it. Pending records are taken out for a write
    /// with the events that belong to them, and put back if it fails.
    steps: StepRecords,
    /// Events that are not stored yet, in order.
    events: Vec<NewEvent>,
    /// Why no step begins any more.
    halt: Option<Halt>,
}

/// A claimed unit in short.
pub(super) struct Claim {
    pub(super) key: UnitKey,
    pub(super) epoch: u64,
    pub(super) id: UnitId,
}

impl UnitJournal {
    pub(super) fn new(
        store: Arc<dyn RunStore>,
        claim: Claim,
        build: u64,
        clock: Arc<dyn Clock>,
        view: Arc<RunView>,
        records: Vec<JournalRecord>,
    ) -> Self {
        let steps = StepRecords::new(build, records).replaying_other_builds();
        let state = State { steps, events: Vec::new(), halt: None };
        let Claim { key, epoch, id } = claim;
        Self { store, key, epoch, id, clock, view, storing: Default::default(), state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the unit cannot go on, if it cannot.
    pub(super) fn halt(&self) -> Option<Halt> {
        self.lock().halt.clone()
    }

    fn stop(&self, halt: Halt) {
        self.lock().halt.get_or_insert(halt);
    }

    /// Stores what is pending, together with what `edit` adds.
    ///
    /// # Errors
    /// After [`RunStoreError::Conflict`] the call may be repeated; after any other error the unit has halted.
    pub(super) async fn commit(&self, edit: impl FnOnce(&mut UnitBatch)) -> Result<(), RunStoreError> {
        let _storing = self.storing.lock().await;
        let (records, events) = {
            let mut state = self.lock();
            if let Some(Halt::Store(error)) = &state.halt {
                return Err(error.clone());
            }
            (std::mem::take(state.steps.pending()), std::mem::take(&mut state.events))
        };
        let mut batch = UnitBatch::new(self.key.clone(), self.epoch, self.clock.now());
        batch.records.clone_from(&records);
        batch.events = events.iter().map(event_text).collect();
        edit(&mut batch);
        let has_events = !batch.events.is_empty();
        let is_checkpoint = batch.checkpoint.is_some();
        match self.store.append(batch).await {
            Ok(_) => {
                if is_checkpoint {
                    self.lock().steps.clear();
                }
                if has_events {
                    self.view.changed.notify_one();
                }
                Ok(())
            }
            Err(error) => {
                let mut state = self.lock();
                state.steps.pending().splice(..0, records);
                state.events.splice(..0, events);
                if !matches!(error, RunStoreError::Conflict { .. }) {
                    state.halt.get_or_insert(Halt::Store(error.clone()));
                }
                Err(error)
            }
        }
    }

    /// Runs a call of a tool of the mission: computes its answer from the latest state and stores its events with it, or returns the
    /// recorded answer. `None`: the unit has halted.
    pub(super) async fn control(&self, key: &StepKey, compute: impl Fn(&RunState) -> ToolAnswer) -> Option<ToolAnswer> {
        if let Some(recorded) = self.outcome(key) {
            return Some(recorded);
        }
        loop {
            let state = match self.view.latest().await {
                Ok(state) => state,
                Err(error) => {
                    self.stop(Halt::Unreadable(error));
                    return None;
                }
            };
            let answer = compute(&state);
            let record = self.record(key, &answer);
            if answer.events.is_empty() {
                self.lock().steps.add_pending(record);
                return Some(answer);
            }
            let questions = answer.events.iter().filter_map(new_question).collect::<Vec<_>>();
            let stored = self
                .commit(|batch| {
                    batch.after = Some(state.sequence);
                    batch.events.extend(answer.events.iter().map(event_text));
                    batch.records.push(record.clone());
                    batch.questions = questions;
                })
                .await;
            match stored {
                Ok(()) => {
                    self.lock().steps.add_stored(record);
                    return Some(answer);
                }
                Err(RunStoreError::Conflict { .. }) => {}
                Err(_) => return None,
            }
        }
    }

    /// Runs a step without an effect outside: `work` is recorded with the next write.
    pub(super) async fn once<T: Serialize + DeserializeOwned>(
        &self,
        key: &StepKey,
        work: impl Future<Output = Option<T>>,
    ) -> Option<T> {
        if let Some(recorded) = self.outcome(key) {
            return Some(recorded);
        }
        let outcome = work.await?;
        let record = self.record(key, &outcome);
        self.lock().steps.add_pending(record);
        Some(outcome)
    }

    /// The outcomes of the steps, for a checkpoint within a response; without those steps for whose keys `is_left_out` holds.
    pub(super) fn records_without(&self, is_left_out: impl Fn(&str) -> bool) -> Vec<JournalRecord> {
        let mut records = self.lock().steps.all();
        records.retain(|record| record.outcome.is_some() && !is_left_out(record.key.as_str()));
        records
    }

    fn outcome<T: DeserializeOwned>(&self, key: &StepKey) -> Option<T> {
        serde_json::from_str(self.lock().steps.outcome(key)?).ok()
    }

    /// The record of a step of the mission.
    fn record(&self, key: &StepKey, outcome: &impl Serialize) -> JournalRecord {
        let outcome = serde_json::to_string(outcome).unwrap_or_else(|_| "null".into());
        let record = self.lock().steps.record(key, "mission", "", self.clock.now());
        JournalRecord { outcome: Some(outcome.into()), ..record }
    }

    /// Stores an event with the next write.
    pub(super) fn note(&self, kind: RunEventKind) {
        let event = NewEvent::of_unit(&self.id, kind);
        self.lock().events.push(event);
    }

    /// The ends of the agents that still work when the unit ends.
    pub(super) async fn agents_cancelled(&self) -> Vec<NewEvent> {
        match self.view.latest().await {
            Ok(state) => scheduler::agents_cancelled(&state, &self.id),
            Err(_) => Vec::new(),
        }
    }

    /// Stores the warnings and breaches of budgets that follow from the usage so far.
    pub(super) async fn check_budgets(&self, def: &MissionDef) -> Option<()> {
        if def.budget.is_none() && def.tasks.get(&self.id.task).is_none_or(|task| task.budget.is_none()) {
            return Some(());
        }
        self.commit(|_| {}).await.ok()?;
        loop {
            let state = self.view.latest().await.map_err(|error| self.stop(Halt::Unreadable(error))).ok()?;
            let events = budget::check(def, &state, &self.id.task);
            if events.is_empty() {
                return Some(());
            }
            let stored = self
                .commit(|batch| {
                    batch.after = Some(state.sequence);
                    batch.events.extend(events.iter().map(event_text));
                })
                .await;
            match stored {
                Ok(()) => return Some(()),
                Err(RunStoreError::Conflict { .. }) => {}
                Err(_) => return None,
            }
        }
    }

    async fn begin_step(&self, step: Step<'_>) -> Result<StepStart, StoreError> {
        let begun = {
            let mut state = self.lock();
            if let Some(halt) = &state.halt {
                return Err(halted(halt));
            }
            state.steps.begin(step, self.clock.now())?
        };
        let intent = match begun {
            BegunStep::Now(start) => return Ok(start),
            BegunStep::AfterWrite { intent } => intent,
        };
        let is_new = intent.is_some();
        if let Err(error) = self.commit(|batch| batch.records.extend(intent)).await {
            if is_new && !matches!(error, RunStoreError::StepAlreadyStarted { .. }) {
                self.lock().steps.intent_not_stored(step.key);
            }
            return Err(store_error(error));
        }
        failpoint::hit("C11");
        Ok(StepStart::Run)
    }

    async fn finish_step(&self, key: &StepKey, outcome: Arc<str>, at: Timestamp) -> Result<(), StoreError> {
        let effect = {
            let mut state = self.lock();
            let stopped = state.halt.as_ref().map(halted);
            let began = state.steps.time_of(key).unwrap_or(at);
            let (effect, record) = state.steps.finish(key, outcome, at, stopped)?;
            let duration = at.as_micros().saturating_sub(began.as_micros()) / 1_000;
            state.events.extend(
                event_of(&record, u64::try_from(duration).unwrap_or(0)).map(|kind| NewEvent::of_unit(&self.id, kind)),
            );
            effect
        };
        if effect.has_intent() {
            failpoint::hit("C14");
            self.commit(|_| {}).await.map_err(store_error)?;
            failpoint::hit("C15");
        }
        Ok(())
    }
}

/// The question of an event, for the list of questions.
fn new_question(event: &NewEvent) -> Option<NewQuestion> {
    let RunEventKind::HumanInputRequested { question_id, question, .. } = &event.kind else { return None };
    let text = serde_json::to_string(question).ok()?;
    Some(NewQuestion { id: QuestionId::new(question_id.clone()), question: text.into() })
}

/// `commander`, the name of an agent, or `clone`: whose step a key belongs to.
fn entity(key: &StepKey) -> Arc<str> {
    let mut entity = "commander";
    for part in key.as_str().split('/') {
        if let Some(agent) = part.strip_prefix(AGENT_PART) {
            entity = agent;
        } else if part == CLONE_PART {
            entity = CLONE_PART;
        }
    }
    entity.into()
}

/// The event of a step that was performed in so many milliseconds.
fn event_of(record: &JournalRecord, duration_ms: u64) -> Option<RunEventKind> {
    let outcome = record.outcome.as_deref()?;
    match &*record.kind {
        "llm" => {
            let recorded: Json = serde_json::from_str(outcome).ok()?;
            let answer: ChatResponse = serde_json::from_value(recorded.get("Ok")?.clone()).ok()?;
            Some(RunEventKind::SessionTurn {
                entity: entity(&record.key),
                model: (!answer.model.is_empty()).then_some(answer.model),
                usage: answer.usage,
                duration_ms,
            })
        }
        "tool" => {
            // An outcome that was unknown is recorded without the wrapper; both have the same form.
            let call: RecordedToolCall = serde_json::from_str(outcome).ok()?;
            let result = call.outcome.for_model();
            Some(RunEventKind::ToolCompleted {
                entity: entity(&record.key),
                call: record.key.as_str().into(),
                tool: record.request.split(':').next().unwrap_or_default().into(),
                failed: !matches!(call.outcome, ToolOutcome::Done(_)),
                result: truncate(&result, TextLimit::Chars(RESULT_CHARS), ELLIPSIS).into(),
            })
        }
        _ => None,
    }
}

fn halted(halt: &Halt) -> StoreError {
    match halt {
        Halt::Store(error) => store_error(error.clone()),
        Halt::Changed(error) => error.clone(),
        Halt::Unreadable(error) => StoreError::Unavailable(error.to_string()),
    }
}

fn store_error(error: RunStoreError) -> StoreError {
    match error {
        RunStoreError::Store(error) => error,
        other => StoreError::Unavailable(other.to_string()),
    }
}

impl Journal for UnitJournal {
    fn begin<'a>(&'a self, step: Step<'a>) -> BoxFuture<'a, Result<StepStart, StoreError>> {
        Box::pin(async move {
            let begun = self.begin_step(step).await;
            if let Err(error @ StoreError::RequestChanged { .. }) = &begun {
                self.stop(Halt::Changed(error.clone()));
            }
            begun
        })
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
        // An error of the store has halted the unit in `commit`.
        Box::pin(self.finish_step(key, outcome, at))
    }

    fn announce_reply<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        // A unit shows nothing while it works.
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Notes the calls of tools.
pub(super) struct ToolNotes(pub(super) Arc<UnitJournal>);

impl JournalObserver for ToolNotes {
    fn tool_called(&self, key: &StepKey, tool: &ToolInfo, arguments: &Json) {
        self.0.note(RunEventKind::ToolCalled {
            entity: entity(key),
            call: key.as_str().into(),
            tool: tool.name.clone(),
            input: arguments.clone(),
        });
    }
}

#[cfg(test)]
mod tests;
