//! One slice of a unit: it is claimed, worked on until it ends, waits or has used its share, and its checkpoint is stored.

use std::{
    any::Any,
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures::FutureExt as _;
use minijinja::{Value, context};
use segue_engine::{
    conversation::{AgentStatus, BotKind, Writes},
    ids::RunId,
    limits::RUN_TEXT,
    mission::{
        budget,
        event::{NewEvent, RunEventKind},
        handed_over::SourceRun,
        scheduler,
        state::RunState,
        tools::{Caller, MissionTool, NoResults, ToolContext},
        unit::{UnitId, UnitView},
    },
    project::missions::MissionDef,
    template::Template,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{
    agent::journaled,
    call_rules::CallRules,
    calls::{self, OpenCall},
    checkpoint::UnitCheckpoint,
    commander::{ANSWER_POLL, CommanderHost, UnitEnd},
    compaction::compaction_rules,
    journal::{Claim, ToolNotes, UnitJournal},
    parts::{MissionError, MissionParts},
    results::with_result_tools,
    secrets::Secrets,
    view::{RunView, SourceState, event_text},
};
use crate::{
    clock::Clock,
    context::{CallContext, StepKey},
    journal::{EffectJournal, Halt, TurnClock, hold, later},
    llm::{ChatMessage, Llm, Purpose, ToolList, ToolSpec},
    prompts::WritesOf,
    react::{BareText, LoopEnd, LoopProfile, LoopServices, LoopState, ReactLoop, tool_spec},
    store::{
        JournalRecord,
        runs::{ClaimedUnit, QuestionKey, RunStore, RunStoreError, UnitBatch, UnitContent, UnitKey, UnitTransition},
    },
    tools::tool_set::ToolSet,
};

/// Model calls of a commander, its agents and copies in one slice.
const SLICE_CALLS: u32 = 8;
/// Consecutive responses of a commander whose calls may all fail.
const MOST_FAILED_ANSWERS: u32 = 8;
/// The time after which a slice ends with the next model call.
const SLICE_TIME: Duration = Duration::from_secs(60);
/// The longest time of a slice, whatever it does.
const SLICE_DEADLINE: Duration = Duration::from_secs(3600);
/// The stored data of a unit cannot be read.
const CODE_UNREADABLE: &str = "unit.unreadable";
/// The sessions of a unit are too large to be stored.
const CODE_TOO_LARGE: &str = "unit.too_large";
/// The work on a unit met a defect of the program, or of code that is registered with it.
const CODE_PANICKED: &str = "unit.panicked";

/// The limits of a slice. Loops of agents and of the commander count towards the same.
pub(super) struct SliceLimit {
    clock: Arc<dyn Clock>,
    began: Duration,
    calls: AtomicU32,
}

impl SliceLimit {
    fn new(clock: Arc<dyn Clock>) -> Self {
        Self { began: clock.elapsed(), clock, calls: AtomicU32::new(0) }
    }
    /// Counts a model call.
    pub(super) fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
    /// Whether the slice ends as soon as its state can be stored.
    pub(super) fn is_spent(&self) -> bool {
        let elapsed = self.clock.elapsed().saturating_sub(self.began);
        self.calls.load(Ordering::Relaxed) >= SLICE_CALLS || elapsed >= SLICE_TIME
    }
}

/// What a unit has to do, as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct UnitInput {
    /// The unit.
    pub(super) unit: UnitId,
    /// Its objective.
    pub(super) objective: Arc<str>,
}

/// A claimed unit with all that its loops use.
pub(super) struct UnitRun {
    pub(super) parts: Arc<MissionParts>,
    pub(super) def: Arc<MissionDef>,
    pub(super) run: RunId,
    pub(super) id: UnitId,
    pub(super) view: Arc<RunView>,
    pub(super) journal: Arc<UnitJournal>,
    pub(super) effects: EffectJournal,
    pub(super) rules: CallRules,
    pub(super) dry_run: bool,
    /// What earlier attempts of the same work changed that ended without success.
    pub(super) earlier_writes: Writes,
    /// The run before in the chain, if it handed something over.
    pub(super) source: Option<SourceState>,
    pub(super) deadlines: Deadlines,
    pub(super) limit: SliceLimit,
}

/// When questions were asked, to know when their time is over.
#[derive(Default)]
pub(super) struct Deadlines(Mutex<HashMap<Arc<str>, Timestamp>>);

impl Deadlines {
    pub(super) async fn load(&self, store: &Arc<dyn RunStore>, run: &RunId, id: &Arc<str>) {
        let key = QuestionKey::new(run.clone(), &**id);
        if let Ok(Some(question)) = store.question(&key).await {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), question.asked_at);
        }
    }
    /// When the time of a question is over, if it has a limit.
    pub(super) fn get(&self, state: &RunState, id: &Arc<str>) -> Option<Timestamp> {
        let seconds = state.human_inputs.get(id)?.question.timeout_seconds?;
        let asked = *self.0.lock().unwrap_or_else(PoisonError::into_inner).get(id)?;
        let micros = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        Some(Timestamp::from_micros(asked.as_micros().saturating_add(micros)))
    }
}

impl UnitRun {
    pub(super) fn render(&self, prompt: &Template, variables: Value) -> String {
        self.parts.prompts.render(prompt, variables).map(|text| text.trim().to_owned()).unwrap_or_else(|error| {
            tracing::error!("a prompt of missions cannot be rendered: {error}");
            String::new()
        })
    }
    /// What earlier attempts changed, for the prompts of this one.
    pub(super) fn earlier_changes(&self) -> Option<String> {
        self.parts.prompts.writes_text(&self.earlier_writes, WritesOf::Attempt)
    }
    pub(super) fn envelope(&self, envelope: &str, text: &str) -> String {
        self.render(&self.parts.prompts.mission_envelopes, context! { envelope, text })
    }
    /// What a tool of the mission may read. `None` if a later attempt has replaced the unit.
    pub(super) fn tool_context<'a>(
        &'a self,
        state: &'a RunState,
        caller: Caller,
        call: &'a str,
    ) -> Option<ToolContext<'a>> {
        self.tool_context_of(state, &self.id, caller, call)
    }
    /// The same for any unit of the run.
    pub(super) fn tool_context_of<'a>(
        &'a self,
        state: &'a RunState,
        id: &'a UnitId,
        caller: Caller,
        call: &'a str,
    ) -> Option<ToolContext<'a>> {
        Some(ToolContext {
            unit: UnitView::new(&self.def, state, id)?,
            caller,
            call,
            templates: &self.parts.project.templates,
            missions: &self.parts.project.missions,
            results: &NoResults,
            busy: &[],
            learnings: None,
            source: self.source(),
            seed: seed(self.run.as_str(), call),
        })
    }
    /// The run before in the chain, if it handed something over.
    pub(super) fn source(&self) -> Option<SourceRun<'_>> {
        self.source.as_ref().map(|(def, state)| SourceRun { def, state })
    }
    /// Whether the unit waits because a budget is used up: until a person has raised it, or, if the run fails by it, until the unit is
    /// cancelled. `None`: the unit has halted.
    async fn waits_for_budget(&self, mut fails: bool) -> Option<BudgetWait> {
        if !fails && !budget::asks(&self.def, &self.id.task) {
            return Some(BudgetWait::No);
        }
        // The run has no end before that of a task that always runs.
        let is_cancelled = self.def.tasks.get(&self.id.task).is_none_or(|task| !task.always);
        let question = self.view.latest().await.ok()?.budget_question(&self.id.task).cloned();
        if let Some(question) = question {
            let closed = |state: &RunState| {
                let (unit, question_id) = (&state.human_inputs.get(&question)?.unit, question.clone());
                let kind =
                    RunEventKind::HumanInputResolved { question_id, answer: None, timed_out: true, responder: None };
                Some(vec![NewEvent::of_unit(unit, kind)])
            };
            self.close_overdue(&question, closed).await?;
            fails |= self.journal.check_budgets(&self.def).await?;
            let state = self.view.latest().await.ok()?;
            if let Some(question) = state.budget_question(&self.id.task) {
                // The answer wakes the unit that asked; the others look.
                let next = later(self.parts.clock.now(), Duration::from_micros(ANSWER_POLL.unsigned_abs()));
                let end = self.deadlines.get(&state, question);
                let wake_at = Some(end.map_or(next, |end| end.min(next)));
                return Some(BudgetWait::Until(UnitTransition::Waiting { wake_at }));
            }
        }
        Some(match fails && is_cancelled {
            true => BudgetWait::Until(UnitTransition::Waiting { wake_at: None }),
            false => BudgetWait::No,
        })
    }
    pub(super) fn model(&self) -> Option<Arc<dyn Llm>> {
        self.parts.commander_models.get(&self.def.name).cloned()
    }
}

/// Whether a unit waits because a budget is used up.
enum BudgetWait {
    /// It goes on.
    No,
    /// It ends its slice like this.
    Until(UnitTransition),
}

/// How a unit that works is ended from outside.
#[derive(Clone)]
pub(super) struct UnitStop {
    /// The unit goes on later: when the run is resumed, or in another process.
    stop: CancellationToken,
    /// Cancelled with `stop`, and alone if the run has cancelled the unit.
    pub(super) cancel: CancellationToken,
}

impl UnitStop {
    /// `run` stops all units of the run.
    pub(super) fn new(run: &CancellationToken) -> Self {
        let stop = run.child_token();
        Self { cancel: stop.child_token(), stop }
    }
}

/// Works on a claimed unit. An error concerns the store; the unit is released, or another owner has it.
pub(super) async fn run(
    parts: Arc<MissionParts>,
    def: Arc<MissionDef>,
    view: Arc<RunView>,
    claimed: ClaimedUnit,
    end: UnitStop,
) -> Result<(), MissionError> {
    let (key, epoch) = (claimed.key.clone(), claimed.epoch);
    let work = AssertUnwindSafe(work(&parts, def, view.clone(), claimed, end.clone())).catch_unwind();
    // It is to stop, or another owner has it.
    let stopped = |_| end.stop.cancel();
    match hold(&*parts.runs, &key, epoch, &*parts.clock, stopped, work).await {
        Ok(done) => done,
        Err(panic) => {
            let reason = format!("the work on it panicked: {}", panic_text(&*panic));
            fail_unit(&parts, &view, key, epoch, (CODE_PANICKED, &reason)).await
        }
    }
}

/// What code says that panics.
fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let owned = || panic.downcast_ref::<String>().map(String::as_str);
    panic.downcast_ref::<&str>().copied().or_else(owned).unwrap_or("it gave no reason")
}

/// A seed that is the same when a call runs again.
fn seed(run: &str, call: &str) -> u64 {
    u64::from_str_radix(&crate::journal::request_hash(&format!("{run}/{call}")), 16).unwrap_or(0)
}

async fn work(
    parts: &Arc<MissionParts>,
    def: Arc<MissionDef>,
    view: Arc<RunView>,
    claimed: ClaimedUnit,
    UnitStop { stop, cancel }: UnitStop,
) -> Result<(), MissionError> {
    let ClaimedUnit { key, epoch, content, .. } = claimed;
    let stored = match read(content) {
        Ok(stored) => stored,
        Err(reason) => {
            let reason = format!("its stored data cannot be read: {reason}");
            return fail_unit(parts, &view, key, epoch, (CODE_UNREADABLE, &reason)).await;
        }
    };
    let StoredWork { input, mut checkpoint, records } = stored;
    // What is stored since the checkpoint is newer.
    let records = std::mem::take(&mut checkpoint.records).into_iter().chain(records).collect();
    let claim = Claim { key: key.clone(), epoch, id: input.unit.clone() };
    let build = parts.project.hash;
    let journal = UnitJournal::new(parts.runs.clone(), claim, build, parts.clock.clone(), view.clone(), records, stop);
    let journal = Arc::new(journal);
    let clock = Arc::new(TurnClock::new(parts.clock.clone(), parts.clock.now()));
    let effects = EffectJournal::new(journal.job(), clock, Arc::new(ToolNotes(journal.clone())));
    let (dry_run, earlier_writes) = {
        let state = view.latest().await?;
        (state.dry_run, state.earlier_writes(&input.unit).cloned().unwrap_or_default())
    };
    let source = view.source(&parts.project).await?;
    let iterator = def.tasks.get(&input.unit.task).and_then(|task| task.iterator.as_ref());
    let may_repeat = iterator.is_some_and(|iterator| iterator.parallel && iterator.retry_after_writes);
    let rules = CallRules {
        prompts: parts.prompts.clone(),
        dry_run,
        done_before: Arc::new(if may_repeat { Writes::default() } else { earlier_writes.clone() }),
        secrets: Secrets::of(&def, parts),
    };
    let unit = UnitRun {
        parts: parts.clone(),
        rules,
        def,
        run: key.run.clone(),
        id: input.unit,
        view,
        journal: journal.clone(),
        effects,
        dry_run,
        earlier_writes,
        source,
        deadlines: Deadlines::default(),
        limit: SliceLimit::new(parts.clock.clone()),
    };
    let stopped_by = |error: RunStoreError| async {
        match error {
            // It would be so again whenever the unit is continued.
            RunStoreError::TooLarge { .. } => {
                fail_unit(parts, &unit.view, key.clone(), epoch, (CODE_TOO_LARGE, &error.to_string())).await
            }
            error => give_back(parts, &key, epoch, error).await,
        }
    };
    let ended = Slice { unit: &unit, checkpoint, cancel }.run(&input.objective).await;
    match ended {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => stopped_by(error).await,
        None => match journal.halt() {
            Some(Halt::Store(error)) => stopped_by(error).await,
            Some(Halt::Unreadable(reason)) => {
                Err(MissionError::Unreadable { run: key.run.clone(), reason: reason.to_string() })
            }
            Some(Halt::Changed(error)) => {
                let event = scheduler::failed(&unit.id, "unit.changed", &error.to_string());
                ignore_fenced(unit.journal.finish_unit(&event, None).await)
            }
            // It was told to stop: what is recorded stays.
            None => {
                ignore_fenced(journal.commit(|_| {}).await)?;
                ignore_fenced(parts.runs.release(&key, epoch, parts.clock.now()).await)
            }
        },
    }
}

/// What is stored of a unit, as it is used.
struct StoredWork {
    input: UnitInput,
    checkpoint: UnitCheckpoint,
    records: Vec<JournalRecord>,
}

/// Reads what is stored of a unit; the error is the reason why it cannot be read.
fn read(content: Result<UnitContent, RunStoreError>) -> Result<StoredWork, String> {
    let content = content.map_err(|error| error.to_string())?;
    let input = serde_json::from_str(&content.input).map_err(|error| format!("its input: {error}"))?;
    let checkpoint = match &content.checkpoint {
        Some(stored) => serde_json::from_str(stored).map_err(|error| format!("its checkpoint: {error}"))?,
        None => UnitCheckpoint::default(),
    };
    Ok(StoredWork { input, checkpoint, records: content.records })
}

/// Ends a claimed unit that nobody could continue: it fails, and the rest of the run decides what follows from that.
async fn fail_unit(
    parts: &Arc<MissionParts>,
    view: &Arc<RunView>,
    key: UnitKey,
    epoch: u64,
    (code, reason): (&str, &str),
) -> Result<(), MissionError> {
    tracing::error!("{key} cannot be continued: {reason}");
    let mut batch = UnitBatch::new(key.clone(), epoch, parts.clock.now());
    {
        let state = view.latest().await?;
        batch.transition = match state.open_units().into_iter().find(|unit| unit.to_string() == *key.unit) {
            Some(unit) => {
                batch.events.extend(scheduler::agents_cancelled(&state, &unit).iter().map(event_text));
                batch.events.push(event_text(&scheduler::failed(&unit, code, reason)));
                UnitTransition::Failed
            }
            // The run has replaced it.
            None => UnitTransition::Cancelled,
        };
    }
    let stored = parts.runs.append(batch).await.map(drop);
    view.changed.notify_one();
    ignore_fenced(stored)
}

/// Releases a unit after a failure of the store, so that nobody, this process included, waits for its lease.
async fn give_back(parts: &MissionParts, key: &UnitKey, epoch: u64, error: RunStoreError) -> Result<(), MissionError> {
    let _ = parts.runs.release(key, epoch, parts.clock.now()).await;
    ignore_fenced(Err(error))
}

/// Another owner has the unit, or its run has ended: there is nothing left to do.
fn ignore_fenced(result: Result<(), RunStoreError>) -> Result<(), MissionError> {
    match result {
        Err(RunStoreError::Fenced { .. }) => Ok(()),
        other => other.map_err(MissionError::from),
    }
}

struct Slice<'a> {
    unit: &'a UnitRun,
    checkpoint: UnitCheckpoint,
    cancel: CancellationToken,
}

impl Slice<'_> {
    /// `None`: the unit has stopped without a result.
    async fn run(mut self, objective: &str) -> Option<Result<(), RunStoreError>> {
        let unit = self.unit;
        let cx = CallContext {
            cancel: Arc::new(self.cancel.clone()),
            key: StepKey::new(unit.id.to_string()),
            ..CallContext::new(unit.parts.clock.clone(), SLICE_DEADLINE)
        };
        if unit.view.latest().await.ok().is_none_or(|state| UnitView::new(&unit.def, &state, &unit.id).is_none()) {
            return Some(unit.journal.commit(|batch| batch.transition = UnitTransition::Cancelled).await);
        }
        let Some(model) = unit.model() else {
            let event = scheduler::failed(&unit.id, "model.missing", "the mission has no model");
            return Some(unit.journal.finish_unit(&event, None).await);
        };
        if self.checkpoint.commander.start.messages.is_empty() {
            let start = unit.journal.once(&cx.step("start").key, unit.commander_start(objective)).await?;
            self.checkpoint.commander.start = start;
        }
        let commander = &unit.def.commander;
        let mut profile = LoopProfile {
            purpose: Purpose::COMMANDER,
            bare_text: BareText::Correct { most: commander.corrections },
            closing_message: false,
            max_model_calls: commander.max_turns,
            max_failed_answers: MOST_FAILED_ANSWERS,
            fails_on_tool_error: false,
            tool_timeout: None,
            text_beside_calls: BotKind::Intermediate,
        };
        let files = unit.parts.file_tools(&unit.def).iter();
        let files = files.fold(ToolSet::builder(), |set, tool| set.tool(tool.clone())).build();
        let files = journaled(unit, &self.checkpoint.commander.start.tools, &files);
        let results = unit.results(self.checkpoint.commander.state.results.clone(), &commander.context);
        let tools = with_result_tools(files, &results);
        let fails = unit.journal.check_budgets(&unit.def).await?;
        if let BudgetWait::Until(transition) = unit.waits_for_budget(fails).await? {
            // Within a response of the commander: the checkpoint stays.
            return Some(unit.journal.commit(|batch| batch.transition = transition).await);
        }
        loop {
            let is_last = self.is_last_turn(&cx).await?;
            // The checkpoint stays as it is until the response is done.
            let session = &self.checkpoint.commander;
            let mut work = self.checkpoint.clone();
            profile.max_model_calls = commander.max_turns.saturating_add(session.calls_before);
            let mut host = CommanderHost {
                unit,
                model: unit.journaled(model.clone()),
                start: &session.start,
                tools: &tools,
                results: &results,
                agents: &mut work.agents,
                calls: &mut work.calls,
                questions: &mut work.questions,
                learnings: &mut work.learnings,
                waits_for: Vec::new(),
                end: None,
                parked: None,
                yielded: false,
                stopped: false,
                fresh: false,
                next_item: false,
                is_repeated: false,
            };
            let mut react = ReactLoop {
                services: LoopServices {
                    compaction: compaction_rules(&commander.context),
                    results: Some(results.clone()),
                    ..LoopServices::default()
                },
                profile: &profile,
                prompts: &unit.parts.prompts,
                offered: offered(&session.start.control, &tools, is_last),
                tools: &tools,
                host: &mut host,
                state: session.state.clone(),
            };
            let ended = react.advance(&cx.step("commander")).await;
            let mut state = react.state;
            let (end, parked, yielded) = (host.end, host.parked, host.yielded);
            let (stopped, fresh, next_item) = (host.stopped, host.fresh, host.next_item);
            if stopped || unit.journal.halt().is_some() || self.cancel.is_cancelled() && end.is_none() {
                return None;
            }
            let transition = match parked {
                Some(parked) => UnitTransition::Waiting { wake_at: parked.wake_at },
                None => UnitTransition::Ready { wake_at: None },
            };
            if parked.is_some() && work.calls.is_empty() {
                // The checkpoint stays: the calls before this one are replayed from their records.
                return Some(unit.journal.commit(|batch| batch.transition = transition).await);
            }
            if parked.is_some() || yielded {
                // The response is not done: its records stay, and so do the sessions of the agents that it called.
                self.checkpoint.records = unit.journal.records_without(|key| {
                    let is_done = |(call, open): (&Arc<str>, &OpenCall)| {
                        !open.waits && key.starts_with(&calls::steps_of(call, open))
                    };
                    work.calls.iter().any(is_done)
                });
                self.checkpoint.calls = work.calls;
                return Some(self.store(transition).await);
            }
            (work.calls, work.records) = Default::default();
            if fresh {
                let key = cx.step(format!("learnings.{}", state.model_calls)).key;
                let learnings = unit.journal.once(&key, self.learnings_text()).await?;
                (state.messages, state.summary) = (last_response(&state), None);
                state.messages.insert(0, ChatMessage::user(learnings));
            }
            if next_item {
                // Each item of a sequential iteration has as many model calls as a task without iterator.
                work.commander.calls_before = state.model_calls;
            }
            work.commander.state = state;
            self.checkpoint = work;
            let fails = unit.journal.check_budgets(&unit.def).await?;
            match (end, ended) {
                (Some(end), _) => return Some(self.store(transition_of(end)).await),
                (None, Some(end)) => return self.fail(end).await,
                (None, None) if is_last => {
                    let reason = "the budget is used up, and the last turn did not end the task";
                    let event = scheduler::failed(&unit.id, budget::CODE_EXCEEDED, reason);
                    return Some(unit.journal.finish_unit(&event, Some(self.text())).await);
                }
                (None, None) => {}
            }
            if let BudgetWait::Until(transition) = unit.waits_for_budget(fails).await? {
                return Some(self.store(transition).await);
            }
            if unit.limit.is_spent() {
                return Some(self.store(UnitTransition::Ready { wake_at: None }).await);
            }
        }
    }

    /// Whether this turn is the last one, because a budget is used up. Recorded, so that a repetition sends the model the same tools.
    async fn is_last_turn(&self, cx: &CallContext) -> Option<bool> {
        let unit = self.unit;
        let task = unit.def.tasks.get(&unit.id.task);
        if unit.def.budget.is_none() && task.is_none_or(|task| task.budget.is_none()) {
            return Some(false);
        }
        let key = cx.step(format!("last.{}", self.checkpoint.commander.state.model_calls)).key;
        let must_finish = async { Some(unit.view.latest().await.ok()?.must_finish(&unit.id.task)) };
        unit.journal.once(&key, must_finish).await
    }

    fn text(&self) -> Arc<str> {
        serde_json::to_string(&self.checkpoint).unwrap_or_default().into()
    }

    async fn store(&self, transition: UnitTransition) -> Result<(), RunStoreError> {
        let text = self.text();
        if text.len() > RUN_TEXT && transition != (UnitTransition::Ready { wake_at: None }) {
            // Its result is stored; only its session cannot be asked later.
            return self.unit.journal.commit(|batch| batch.transition = transition).await;
        }
        if text.len() > RUN_TEXT {
            let reason = format!("its sessions have {} bytes, more than {}", text.len(), RUN_TEXT);
            let event = scheduler::failed(&self.unit.id, CODE_TOO_LARGE, &reason);
            return self.unit.journal.finish_unit(&event, None).await;
        }
        let stored = self.unit.journal.commit(|batch| {
            batch.checkpoint = Some(text);
            batch.transition = transition;
        });
        stored.await
    }

    /// The loop ended without an accepted `task_complete`.
    async fn fail(&self, end: LoopEnd) -> Option<Result<(), RunStoreError>> {
        let (code, reason) = match end.status {
            AgentStatus::Failed { code, reason } => (code, reason),
            AgentStatus::Cancelled { .. } => return None,
            other => ("task.unfinished".to_owned(), format!("the loop of the commander ended: {other:?}")),
        };
        let event = scheduler::failed(&self.unit.id, &code, &reason);
        Some(self.unit.journal.finish_unit(&event, Some(self.text())).await)
    }

    async fn learnings_text(&self) -> Option<String> {
        let state = self.unit.view.latest().await.ok()?;
        let learned = state.tasks.get(&self.unit.id.task).map(|task| task.learnings.clone()).unwrap_or_default();
        let learned = serde_json::to_string_pretty(&learned).unwrap_or_default();
        Some(self.unit.envelope("learnings", &learned))
    }
}

/// The tools of a turn. The last one has those only that end the task.
fn offered(control: &[ToolSpec], ordinary: &ToolSet, is_last: bool) -> ToolList {
    let ends = [MissionTool::TaskComplete, MissionTool::SubmitOutput, MissionTool::CompleteSubtask];
    let is_kept = |tool: &&ToolSpec| !is_last || ends.iter().any(|end| *end.name() == *tool.name);
    let ordinary = ordinary.infos().filter(|_| !is_last).map(tool_spec);
    control.iter().filter(is_kept).cloned().chain(ordinary).collect()
}

/// The last response with the results of its calls.
fn last_response(state: &LoopState) -> Vec<Arc<ChatMessage>> {
    let last = state.messages.iter().rposition(|message| matches!(&**message, ChatMessage::Assistant { .. }));
    state.messages.get(last.unwrap_or(0)..).unwrap_or_default().to_vec()
}

fn transition_of(end: UnitEnd) -> UnitTransition {
    match end {
        UnitEnd::Completed => UnitTransition::Completed,
        UnitEnd::Failed => UnitTransition::Failed,
    }
}

impl UnitJournal {
    /// Stores that a unit has failed.
    async fn finish_unit(
        &self,
        event: &segue_engine::mission::event::NewEvent,
        checkpoint: Option<Arc<str>>,
    ) -> Result<(), RunStoreError> {
        let cancelled = self.agents_cancelled().await;
        let stored = self.commit(|batch| {
            batch.events.extend(cancelled.iter().chain([event]).map(event_text));
            batch.checkpoint = checkpoint;
            batch.transition = UnitTransition::Failed;
        });
        stored.await
    }
}
