//! The journal of a unit, in a [`RunStore`]. Events that a step causes are stored in one transaction with its outcome.

use std::{ops::Deref, sync::Arc};

use segue_engine::{
    ids::QuestionId,
    mission::{
        budget,
        event::{IssueSeverity, NewEvent, RunEventKind},
        scheduler,
        state::RunState,
        tools::ToolAnswer,
        unit::UnitId,
    },
    project::missions::MissionDef,
    text::{ELLIPSIS, TextLimit, truncate},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value as Json;
use tokio_util::sync::CancellationToken;

use super::{
    parts::MissionError,
    view::{RunView, event_text},
};
use crate::{
    clock::Clock,
    context::{CallContext, StepKey},
    effect::EffectClass,
    journal::{Halt, JobClaim, JobEvents, JobJournal, JournalObserver, RecordedToolCall, recorded_response},
    llm::{ToolArguments, ToolCall},
    store::{
        JournalRecord,
        runs::{NewQuestion, RunStore, RunStoreError, UnitKey},
    },
    tools::{ToolInfo, ToolOutcome},
};

/// The part of a step key that names an agent.
pub(super) const AGENT_PART: &str = "agent:";
/// The part of a step key of a question to a copy of a session.
pub(super) const CLONE_PART: &str = "clone";
/// Characters of a result that its event contains.
const RESULT_CHARS: usize = 400;

/// The journal of a claimed unit: that of its job, and the tools of its mission.
pub(super) struct UnitJournal {
    job: Arc<JobJournal>,
    id: UnitId,
    view: Arc<RunView>,
}

/// The unit has halted.
struct Halted;

/// The events of the steps of a unit.
struct UnitEvents {
    id: UnitId,
    view: Arc<RunView>,
}

impl JobEvents for UnitEvents {
    fn of_step(&self, record: &JournalRecord, duration_ms: u64) -> Option<Arc<str>> {
        event_of(record, duration_ms).map(|kind| event_text(&NewEvent::of_unit(&self.id, kind)))
    }
    /// A response is paid for, and people follow the run: it is not kept back until the next write.
    fn stores_at_once(&self, record: &JournalRecord) -> bool {
        &*record.kind == "llm"
    }
    fn stored(&self) {
        self.view.changed.notify_one();
    }
}

impl Deref for UnitJournal {
    type Target = JobJournal;
    fn deref(&self) -> &JobJournal {
        &self.job
    }
}

/// A claimed unit in short.
pub(super) struct Claim {
    pub(super) key: UnitKey,
    pub(super) epoch: u64,
    pub(super) id: UnitId,
}

impl UnitJournal {
    /// `stop` is cancelled when the run is to stop: then the unit goes on when the run is resumed.
    pub(super) fn new(
        store: Arc<dyn RunStore>,
        claim: Claim,
        build: u64,
        clock: Arc<dyn Clock>,
        view: Arc<RunView>,
        records: Vec<JournalRecord>,
        stop: CancellationToken,
    ) -> Self {
        let Claim { key, epoch, id } = claim;
        let kind = Arc::new(UnitEvents { id: id.clone(), view: view.clone() });
        let claim = JobClaim { store, key, epoch, clock, stop };
        Self { job: Arc::new(JobJournal::new(claim, build, kind, records)), id, view }
    }

    /// The journal of its steps.
    pub(super) fn job(&self) -> Arc<JobJournal> {
        self.job.clone()
    }

    fn unreadable(&self, error: &MissionError) {
        self.job.halt_with(match error {
            MissionError::Store(error) => Halt::Store(error.clone()),
            other => Halt::Unreadable(other.to_string().into()),
        });
    }

    /// Runs a step of a tool of the mission: computes its answer from the latest state and stores its events with it, or returns the
    /// recorded answer. `None`: the unit has halted.
    pub(super) async fn control(&self, key: &StepKey, compute: impl Fn(&RunState) -> ToolAnswer) -> Option<ToolAnswer> {
        if let Some(recorded) = self.recorded_outcome(key).ok()? {
            return Some(recorded);
        }
        loop {
            let state = self.view.latest().await.map_err(|error| self.unreadable(&error)).ok()?;
            let answer = compute(&state);
            let record = self.step_record(key, &answer);
            if answer.events.is_empty() {
                self.job.add_pending(record);
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
                    self.job.add_stored(record);
                    return Some(answer);
                }
                Err(RunStoreError::Conflict { .. }) => {}
                Err(_) => return None,
            }
        }
    }

    /// As [`control`](Self::control), for a call that a model wrote: if the mission refuses it, it leaves the events of a failed call.
    pub(super) async fn control_call(
        &self,
        call: &ToolCall,
        cx: &CallContext,
        compute: impl Fn(&RunState) -> ToolAnswer,
    ) -> Option<ToolAnswer> {
        let answer = self.control(&cx.key, compute).await?;
        if answer.is_error() {
            self.note_not_sent(call, &answer.text(), cx);
        }
        Some(answer)
    }

    /// Runs a step without an effect outside: `work` is recorded with the next write.
    pub(super) async fn once<T: Serialize + DeserializeOwned>(
        &self,
        key: &StepKey,
        work: impl Future<Output = Option<T>>,
    ) -> Option<T> {
        if let Some(recorded) = self.recorded_outcome(key).ok()? {
            return Some(recorded);
        }
        let outcome = work.await?;
        let record = self.step_record(key, &outcome);
        self.job.add_pending(record);
        Some(outcome)
    }

    /// The records of the steps, for a checkpoint within a response; without those steps for whose keys `is_left_out` holds. A write whose
    /// outcome is unknown is among them: it must not be sent again.
    pub(super) fn records_without(&self, is_left_out: impl Fn(&str) -> bool) -> Vec<JournalRecord> {
        let mut records = self.job.records();
        records.retain(|record| !is_left_out(record.key.as_str()));
        records
    }

    /// The recorded outcome of a step, if it has one. One that cannot be read halts the unit: the step is not performed a second time.
    fn recorded_outcome<T: DeserializeOwned>(&self, key: &StepKey) -> Result<Option<T>, Halted> {
        let Some(outcome) = self.job.outcome(key) else { return Ok(None) };
        serde_json::from_str(&outcome).map(Some).map_err(|error| {
            self.job.halt_with(Halt::Unreadable(format!("the record of the step {key}: {error}").into()));
            Halted
        })
    }

    /// The record of a step of the mission.
    fn step_record(&self, key: &StepKey, outcome: &impl Serialize) -> JournalRecord {
        let outcome = serde_json::to_string(outcome).unwrap_or_else(|_| "null".into());
        JournalRecord { outcome: Some(outcome.into()), ..self.job.record(key, "mission") }
    }

    /// Stores an event with the next write.
    pub(super) fn note(&self, kind: RunEventKind) {
        self.job.note(event_text(&NewEvent::of_unit(&self.id, kind)));
    }

    /// Stores the events of a call that reached no tool or that the mission refused, once however often the step runs again.
    pub(super) fn note_not_sent(&self, call: &ToolCall, result: &str, cx: &CallContext) {
        let key = cx.step("not_sent").key;
        let (entity, call_id, tool): (_, Arc<str>, Arc<str>) =
            (entity(&cx.key), cx.key.as_str().into(), call.name.clone());
        let input = match &call.arguments {
            ToolArguments::Json(arguments) => arguments.as_ref().clone(),
            ToolArguments::Malformed { text, .. } => Json::from(&**text),
            ToolArguments::Dropped { .. } => Json::from(""),
        };
        if self.job.outcome(&key).is_some() {
            return;
        }
        self.job.add_pending(self.step_record(&key, &true));
        let result = truncate(result, TextLimit::Chars(RESULT_CHARS), ELLIPSIS).into();
        self.note(RunEventKind::ToolCalled {
            entity: entity.clone(),
            call: call_id.clone(),
            tool: tool.clone(),
            input,
            effect: None,
        });
        self.note(RunEventKind::ToolCompleted { entity, call: call_id, tool, failed: true, unknown: false, result });
    }

    /// The ends of the agents that still work when the unit ends.
    pub(super) async fn agents_cancelled(&self) -> Vec<NewEvent> {
        match self.view.latest().await {
            Ok(state) => scheduler::agents_cancelled(&state, &self.id),
            Err(_) => Vec::new(),
        }
    }

    /// Stores the warnings and breaches of budgets that follow from the usage so far. Returns whether the run fails by one, now or before.
    pub(super) async fn check_budgets(&self, def: &MissionDef) -> Option<bool> {
        if def.budget.is_none() && def.tasks.get(&self.id.task).is_none_or(|task| task.budget.is_none()) {
            return Some(false);
        }
        self.commit(|_| {}).await.ok()?;
        loop {
            let state = self.view.latest().await.map_err(|error| self.unreadable(&error)).ok()?;
            let events = budget::check(def, &state, &self.id);
            if events.is_empty() {
                return Some(state.fails_by_budget());
            }
            let fails = |event: &NewEvent| {
                matches!(event.kind, RunEventKind::MissionIssue { severity: IssueSeverity::Fatal, .. })
            };
            let stored = self
                .commit(|batch| {
                    batch.after = Some(state.sequence);
                    batch.events.extend(events.iter().map(event_text));
                    batch.questions.extend(events.iter().filter_map(new_question));
                })
                .await;
            match stored {
                Ok(()) => return Some(events.iter().any(fails)),
                Err(RunStoreError::Conflict { .. }) => {}
                Err(_) => return None,
            }
        }
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
            let answer = recorded_response(outcome)?;
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
                unknown: matches!(call.outcome, ToolOutcome::Unknown(_) | ToolOutcome::Pending(_)),
                result: truncate(&result, TextLimit::Chars(RESULT_CHARS), ELLIPSIS).into(),
            })
        }
        _ => None,
    }
}

/// Notes the calls of tools.
pub(super) struct ToolNotes(pub(super) Arc<UnitJournal>);

impl JournalObserver for ToolNotes {
    fn tool_called(&self, key: &StepKey, tool: &ToolInfo, class: EffectClass, arguments: &Json) {
        self.0.note(RunEventKind::ToolCalled {
            entity: entity(key),
            call: key.as_str().into(),
            tool: tool.name.clone(),
            input: arguments.clone(),
            effect: tool.changes(class).map(Into::into),
        });
    }
}

#[cfg(test)]
mod tests;
