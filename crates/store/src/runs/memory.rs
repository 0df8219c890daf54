//! A run store in memory, for tests and for runs that may end with the process.
//!
//! It is bounded: beyond [`limits::MEMORY_RUNS`] the runs that ended first are removed.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use segue_base::limits;
use segue_engine::{
    ids::{ConversationId, QuestionId, RunId},
    time::Timestamp,
};

use super::{
    ClaimRequest, ClaimedUnit, Due, LimitReached, LimitScope, NewRun, NewUnit, Overflow, QuestionBody, QuestionFilter,
    QuestionKey, QuestionReply, ReplyOutcome, RunAdmission, RunBatch, RunCounts, RunFilter, RunHead, RunLimits,
    RunMessage, RunStatus, RunStore, RunStoreError, RunSummary, Signal, SignalOutcome, Signals, StartOutcome,
    StoredQuestion, StoredRun, StoredRunEvent, StoredUnit, UnitBatch, UnitContent, UnitHead, UnitKey, UnitStatus,
    check_batch, check_message_count, check_reply, check_run, check_run_batch, check_signal, check_unit_count,
    lease_end,
};
use crate::{JournalRecord, merge_journal};

type RunResult<T> = Result<T, RunStoreError>;

/// A run store in memory. Every future is ready at once.
#[derive(Default)]
pub struct MemoryRunStore(Mutex<State>);

#[derive(Default)]
struct State {
    /// The runs in the order of their starts.
    runs: BTreeMap<u64, MemoryRun>,
    numbers: HashMap<RunId, u64>,
    /// Runs by mission and idempotency key.
    keys: HashMap<(Arc<str>, Arc<str>), RunId>,
    last_run: u64,
    /// Counts units and questions; orders units that are ready at the same time.
    last_item: u64,
}

struct MemoryRun {
    id: RunId,
    mission: Arc<str>,
    conversation: Option<ConversationId>,
    group: Option<Arc<str>>,
    inputs: Arc<str>,
    idempotency_key: Option<Arc<str>>,
    started_at: Timestamp,
    head: RunHead,
    events: Vec<StoredRunEvent>,
    units: Vec<MemoryUnit>,
    /// Places in `units`.
    places: HashMap<Arc<str>, usize>,
    /// All units before this place have ended, so that those of a long run are not looked at again and again.
    first_open: usize,
    blobs: HashMap<Arc<str>, Arc<str>>,
    questions: Vec<MemoryQuestion>,
    /// With the unit that each is for.
    messages: Vec<(RunMessage, Option<Arc<str>>)>,
}

struct MemoryQuestion {
    id: QuestionId,
    number: u64,
    body: QuestionBody,
}

struct MemoryUnit {
    name: Arc<str>,
    number: u64,
    input: Arc<str>,
    created_at: Timestamp,
    head: UnitHead,
    checkpoint: Option<Arc<str>>,
    /// Since the checkpoint, in the order of writing.
    records: Vec<JournalRecord>,
}

impl MemoryRunStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn run(&self, id: &RunId) -> Option<&MemoryRun> {
        self.runs.get(self.numbers.get(id)?)
    }

    fn run_mut(&mut self, id: &RunId) -> Option<&mut MemoryRun> {
        self.runs.get_mut(self.numbers.get(id)?)
    }

    fn start(&mut self, run: NewRun) -> RunResult<StartOutcome> {
        check_run(&run)?;
        let key = run.idempotency_key.clone().map(|key| (run.mission.clone(), key));
        if let Some(first) = key.as_ref().and_then(|key| self.keys.get(key)) {
            return Ok(StartOutcome::Existing(first.clone()));
        }
        if self.numbers.contains_key(&run.id) {
            return Ok(StartOutcome::Existing(run.id));
        }
        let full = self.limit_reached(run.limits, &run.id, &run.mission, run.group.as_ref());
        if let Some(full) = full.filter(|_| run.overflow == Overflow::Refuse) {
            return Ok(StartOutcome::Full(full));
        }
        let mut started = MemoryRun {
            id: run.id.clone(),
            mission: run.mission,
            conversation: run.conversation,
            group: run.group,
            inputs: run.inputs,
            idempotency_key: run.idempotency_key,
            started_at: run.at,
            head: RunHead::new(run.queued || full.is_some(), run.at),
            events: Vec::new(),
            units: Vec::new(),
            places: HashMap::new(),
            first_open: 0,
            blobs: HashMap::new(),
            questions: Vec::new(),
            messages: Vec::new(),
        };
        started.check_new_units(&run.units)?;
        started.add_events(None, run.events, run.at);
        started.add_units(run.units, run.at, &mut self.last_item);
        self.last_run += 1;
        self.numbers.insert(run.id.clone(), self.last_run);
        if let Some(key) = key {
            self.keys.insert(key, run.id);
        }
        self.runs.insert(self.last_run, started);
        self.evict_ended();
        Ok(full.map_or(StartOutcome::New, StartOutcome::Queued))
    }

    /// The limit that another run keeps this one from running by, if there is one.
    fn limit_reached(
        &self,
        limits: RunLimits,
        id: &RunId,
        mission: &Arc<str>,
        group: Option<&Arc<str>>,
    ) -> Option<LimitReached> {
        let counts = |run: &&MemoryRun| run.head.status.counts_for_limits() && run.id != *id;
        let count = |scope| {
            let same = |run: &&MemoryRun| match scope {
                LimitScope::Mission => run.mission == *mission,
                LimitScope::Group => group.is_some() && run.group.as_ref() == group,
            };
            Ok::<_, Infallible>(self.runs.values().filter(counts).filter(same).count() as u64)
        };
        let Ok(reached) = limits.reached(count);
        reached
    }

    fn admit(&mut self, id: &RunId, limits: RunLimits, at: Timestamp) -> RunResult<RunAdmission> {
        let unknown = || RunStoreError::UnknownRun(id.clone());
        let run = self.run(id).ok_or_else(unknown)?;
        if run.head.status != RunStatus::Queued {
            return Ok(RunAdmission::Admitted);
        }
        if let Some(full) = self.limit_reached(limits, id, &run.mission, run.group.as_ref()) {
            return Ok(RunAdmission::Queued(full));
        }
        let run = self.run_mut(id).ok_or_else(unknown)?;
        run.head.updated_at = at;
        run.set_status(Some(RunStatus::Running), at);
        Ok(RunAdmission::Admitted)
    }

    fn remove(&mut self, number: u64) {
        let Some(run) = self.runs.remove(&number) else { return };
        self.numbers.remove(&run.id);
        if let Some(key) = run.idempotency_key {
            self.keys.remove(&(run.mission, key));
        }
    }

    fn evict_ended(&mut self) {
        if self.runs.len() > limits::MEMORY_RUNS {
            let ended = self.runs.iter().filter_map(|(number, run)| Some((run.head.ended_at?, *number)));
            if let Some((_, first)) = ended.min() {
                self.remove(first);
            }
        }
    }

    /// Removes the runs that `gone` selects; returns their ids.
    fn remove_all(&mut self, gone: impl Fn(&MemoryRun) -> bool) -> Vec<RunId> {
        let gone: Vec<(u64, RunId)> =
            self.runs.iter().filter(|(_, run)| gone(run)).map(|(number, run)| (*number, run.id.clone())).collect();
        gone.iter().for_each(|(number, _)| self.remove(*number));
        gone.into_iter().map(|(_, id)| id).collect()
    }

    /// The places of units that can be claimed at some time: time and number, number of the run, place within it.
    fn due_units(&self) -> impl Iterator<Item = (Due, u64, u64, usize)> {
        self.runs.iter().flat_map(|(number, run)| {
            let due = move |(place, unit): (usize, &MemoryUnit)| {
                Some((unit.head.due(&run.head)?, unit.number, *number, place))
            };
            run.units.iter().enumerate().skip(run.first_open).filter_map(due)
        })
    }

    fn claim(&mut self, request: &ClaimRequest) -> Vec<ClaimedUnit> {
        let only = match &request.run {
            Some(run) => match self.numbers.get(run) {
                Some(number) => Some(*number),
                None => return Vec::new(),
            },
            None => None,
        };
        let now = request.now;
        self.runs.values_mut().for_each(MemoryRun::skip_ended);
        for (_, run) in self.runs.iter_mut().filter(|(number, _)| only.is_none_or(|only| only == **number)) {
            let units = run.units.iter_mut().skip(run.first_open);
            units.filter(|unit| unit.head.is_abandoned(request)).for_each(|unit| unit.head.release(now));
        }
        let open = self.due_units().filter(|(due, _, run, _)| due.is_over(now) && only.is_none_or(|only| only == *run));
        let mut open: Vec<_> = open.map(|(due, unit, run, place)| (due.at, unit, run, place)).collect();
        open.sort_unstable();
        open.truncate(request.limit.min(limits::RUN_CLAIMS));
        let lease_until = lease_end(now, request.lease);
        let mut claimed = Vec::new();
        for (_, _, number, place) in open {
            let Some(run) = self.runs.get_mut(&number) else { continue };
            let Some(unit) = run.units.get_mut(place) else { continue };
            unit.head.claim(&request.owner, now, lease_until);
            let (name, epoch) = (unit.name.clone(), unit.head.epoch);
            let Some(content) = run.content(&name) else { continue };
            let key = UnitKey { run: run.id.clone(), unit: name };
            claimed.push(ClaimedUnit { key, epoch, lease_until, content: Ok(content) });
        }
        claimed
    }

    fn append(&mut self, batch: UnitBatch) -> RunResult<u64> {
        check_batch(&batch)?;
        let mut last_item = self.last_item;
        let run = self.held_run(&batch.unit, batch.epoch)?;
        run.head.check_after(&batch.unit.run, batch.after)?;
        run.append(batch, &mut last_item)?;
        let last_seq = run.head.last_seq;
        self.last_item = last_item;
        Ok(last_seq)
    }

    /// The run of a unit that is held with this epoch.
    fn held_run(&mut self, unit: &UnitKey, epoch: u64) -> RunResult<&mut MemoryRun> {
        let held =
            |run: &&mut MemoryRun| run.unit(&unit.unit).is_some_and(|found| found.head.is_held(&run.head, epoch));
        self.run_mut(&unit.run).filter(held).ok_or_else(|| RunStoreError::Fenced { unit: unit.clone(), epoch })
    }

    fn append_run(&mut self, batch: RunBatch) -> RunResult<u64> {
        check_run_batch(&batch)?;
        let mut last_item = self.last_item;
        let run = self.run_mut(&batch.run).ok_or_else(|| RunStoreError::UnknownRun(batch.run.clone()))?;
        run.head.check_change(&batch)?;
        run.check_new_units(&batch.new_units)?;
        if batch.resume {
            run.head.resume();
        }
        run.add_events(None, batch.events, batch.at);
        run.add_units(batch.new_units, batch.at, &mut last_item);
        run.wake_and_cancel(&batch.wake_units, &batch.cancel_units, batch.resume, batch.at);
        run.set_status(batch.status, batch.at);
        let last_seq = run.head.last_seq;
        self.last_item = last_item;
        Ok(last_seq)
    }

    fn renew(&mut self, unit: &UnitKey, epoch: u64, until: Timestamp) -> RunResult<Signals> {
        let run = self.held_run(unit, epoch)?;
        let Some(found) = run.unit_mut(&unit.unit) else { return Ok(Signals::default()) };
        found.head.lease_until = Some(until);
        Ok(run.unit(&unit.unit).map(|found| run.signals(found)).unwrap_or_default())
    }

    fn release(&mut self, unit: &UnitKey, epoch: u64, at: Timestamp) -> RunResult<()> {
        if let Some(found) = self.held_run(unit, epoch)?.unit_mut(&unit.unit) {
            found.head.release(at);
        }
        Ok(())
    }

    fn reply(&mut self, reply: QuestionReply) -> RunResult<ReplyOutcome> {
        check_reply(&reply)?;
        let QuestionKey { run: id, id: question } = &reply.question;
        let unknown = || RunStoreError::UnknownQuestion { run: id.clone(), question: question.clone() };
        let run = self.run_mut(id).ok_or_else(unknown)?;
        let status = run.head.status;
        let found = run.questions.iter_mut().find(|found| found.id == *question).ok_or_else(unknown)?;
        let (outcome, changed) = found.body.reply(&reply, status);
        if changed {
            let unit = found.body.unit.clone();
            run.add_events(None, reply.events, reply.at);
            run.head.updated_at = reply.at;
            if let Some(unit) = run.unit_mut(&unit) {
                unit.head.wake(false, reply.at);
            }
        }
        Ok(outcome)
    }

    fn signal(&mut self, id: &RunId, signal: Signal, at: Timestamp) -> RunResult<SignalOutcome> {
        check_signal(id, &signal)?;
        let run = self.run_mut(id).ok_or_else(|| RunStoreError::UnknownRun(id.clone()))?;
        if let Some(refused) = run.head.refuse_signal() {
            return Ok(refused);
        }
        run.head.request_stop(&signal);
        let mut only = None;
        if let Signal::Message { id: message, unit, text } = signal {
            if run.messages.iter().any(|(earlier, _)| earlier.id == message) {
                return Ok(SignalOutcome::Accepted);
            }
            if let Some(unit) = unit.as_ref().filter(|unit| !run.places.contains_key(*unit)) {
                return Err(RunStoreError::UnknownUnit(UnitKey { run: id.clone(), unit: unit.clone() }));
            }
            check_message_count(id, run.head.last_message + 1)?;
            run.head.last_message += 1;
            run.messages.push((RunMessage { seq: run.head.last_message, id: message, text, at }, unit.clone()));
            only = unit;
        }
        run.head.updated_at = at;
        for unit in run.units.iter_mut().filter(|unit| only.as_ref().is_none_or(|only| *only == unit.name)) {
            unit.head.wake(false, at);
        }
        Ok(SignalOutcome::Accepted)
    }

    /// The runs of missions.
    fn missions(&self) -> impl Iterator<Item = &MemoryRun> {
        self.runs.values().filter(|run| !run.is_job())
    }

    fn counts(&self, now: Timestamp) -> RunCounts {
        let mut counts = RunCounts::default();
        for status in RunStatus::ALL {
            let count = self.missions().filter(|run| run.head.status == status).count() as u64;
            counts.runs.extend((count > 0).then_some((status, count)));
        }
        for run in self.missions().filter(|run| !run.head.status.is_ended()) {
            for unit in run.units.iter().filter(|unit| !unit.head.status.is_ended()) {
                let is_due = unit.head.due(&run.head).is_some_and(|due| due.is_over(now));
                match unit.head.status {
                    UnitStatus::Claimed => {
                        counts.claimed_units += 1;
                        counts.expired_leases += u64::from(is_due);
                    }
                    _ if is_due => counts.ready_units += 1,
                    _ => counts.waiting_units += 1,
                }
            }
            counts.open_questions += run.questions.iter().filter(|question| question.body.is_open()).count() as u64;
        }
        counts
    }

    fn questions(&self, filter: &QuestionFilter, limit: usize) -> Vec<StoredQuestion> {
        let runs = self.runs.values().filter(|run| filter.run.as_ref().is_none_or(|only| *only == run.id));
        let all = runs.flat_map(|run| run.questions.iter().map(move |question| (run, question)));
        let open = |(run, question): &(&MemoryRun, &MemoryQuestion)| {
            !filter.open || (question.body.is_open() && !run.head.status.is_ended())
        };
        let mut found: Vec<_> = all.filter(open).collect();
        found.sort_by_key(|(_, question)| question.number);
        found.truncate(limit.min(limits::RUNS_LISTED));
        found.into_iter().map(|(run, question)| run.stored_question(question)).collect()
    }
}

impl MemoryRun {
    fn is_job(&self) -> bool {
        self.mission.starts_with(NewRun::JOB)
    }

    fn unit(&self, name: &str) -> Option<&MemoryUnit> {
        self.units.get(*self.places.get(name)?)
    }

    fn unit_mut(&mut self, name: &str) -> Option<&mut MemoryUnit> {
        self.units.get_mut(*self.places.get(name)?)
    }

    fn summary(&self) -> RunSummary {
        RunSummary {
            id: self.id.clone(),
            mission: self.mission.clone(),
            conversation: self.conversation.clone(),
            group: self.group.clone(),
            status: self.head.status,
            stop: self.head.stop,
            last_seq: self.head.last_seq,
            started_at: self.started_at,
            updated_at: self.head.updated_at,
            ended_at: self.head.ended_at,
        }
    }

    fn stored(&self) -> StoredRun {
        StoredRun {
            summary: self.summary(),
            inputs: self.inputs.clone(),
            idempotency_key: self.idempotency_key.clone(),
        }
    }

    fn stored_unit(&self, unit: &MemoryUnit) -> StoredUnit {
        let head = &unit.head;
        StoredUnit {
            key: UnitKey { run: self.id.clone(), unit: unit.name.clone() },
            status: head.status,
            epoch: head.epoch,
            owner: head.owner.clone(),
            lease_until: head.lease_until,
            wake_at: head.wake_at,
            created_at: unit.created_at,
            updated_at: head.updated_at,
        }
    }

    fn stored_question(&self, question: &MemoryQuestion) -> StoredQuestion {
        question.body.stored(QuestionKey { run: self.id.clone(), id: question.id.clone() }, self.head.status)
    }

    fn signals(&self, unit: &MemoryUnit) -> Signals {
        let new = |(message, to): &&(RunMessage, Option<Arc<str>>)| {
            message.seq > unit.head.messages_seen && to.as_ref().is_none_or(|to| *to == unit.name)
        };
        let messages = self.messages.iter().filter(new).map(|(message, _)| message.clone()).collect();
        Signals { stop: self.head.stop, messages }
    }

    fn content(&self, name: &str) -> Option<UnitContent> {
        let unit = self.unit(name)?;
        let mut records = Vec::new();
        merge_journal(&mut records, unit.records.clone());
        let asked = self.questions.iter().filter(|question| *question.body.unit == *name);
        Some(UnitContent {
            input: unit.input.clone(),
            checkpoint: unit.checkpoint.clone(),
            records,
            questions: asked.map(|question| self.stored_question(question)).collect(),
            signals: self.signals(unit),
        })
    }

    fn check_new_units(&self, units: &[NewUnit]) -> RunResult<()> {
        let mut new: Vec<_> =
            units.iter().map(|unit| &unit.name).filter(|name| !self.places.contains_key(*name)).collect();
        new.sort_unstable();
        new.dedup();
        if new.is_empty() { Ok(()) } else { check_unit_count(&self.id, (self.units.len() + new.len()) as u64) }
    }

    fn add_events(&mut self, unit: Option<&Arc<str>>, events: Vec<Arc<str>>, at: Timestamp) {
        self.head.updated_at = at;
        for event in events {
            self.head.last_seq += 1;
            self.events.push(StoredRunEvent { seq: self.head.last_seq, unit: unit.cloned(), at, event });
        }
    }

    fn add_units(&mut self, units: Vec<NewUnit>, at: Timestamp, last: &mut u64) {
        for unit in units {
            if self.places.contains_key(&unit.name) {
                continue;
            }
            *last += 1;
            self.places.insert(unit.name.clone(), self.units.len());
            self.units.push(MemoryUnit {
                name: unit.name,
                number: *last,
                input: unit.input,
                created_at: at,
                head: UnitHead::new(&self.head, unit.wake_at, at),
                checkpoint: None,
                records: Vec::new(),
            });
        }
        self.head.units = self.units.len() as u64;
    }

    fn skip_ended(&mut self) {
        let ended = self.units.iter().skip(self.first_open).take_while(|unit| unit.head.status.is_ended()).count();
        self.first_open += ended;
    }

    fn wake_and_cancel(&mut self, wake: &[Arc<str>], cancel: &[Arc<str>], again: bool, at: Timestamp) {
        if again {
            self.first_open = 0;
        }
        for name in wake {
            if let Some(unit) = self.unit_mut(name) {
                unit.head.wake(again, at);
            }
        }
        for name in cancel {
            if let Some(unit) = self.unit_mut(name) {
                unit.head.cancel(at);
            }
        }
    }

    fn set_status(&mut self, status: Option<RunStatus>, at: Timestamp) {
        let Some(status) = status else { return };
        self.head.set_status(status, at);
        if status.is_ended() {
            self.units.iter_mut().for_each(|unit| unit.head.revoke(at));
        }
    }

    /// Stores and closes the questions of a batch. Returns whether one that it asks needs no answer any more.
    fn ask(&mut self, unit: &Arc<str>, batch: &UnitBatch, last_item: &mut u64) -> bool {
        let mut settled = false;
        for new in &batch.questions {
            match self.questions.iter_mut().find(|question| question.id == new.id) {
                Some(question) => settled |= question.body.ask_again(unit),
                None => {
                    *last_item += 1;
                    let body = QuestionBody::new(unit.clone(), new.question.clone(), batch.at);
                    self.questions.push(MemoryQuestion { id: new.id.clone(), number: *last_item, body });
                }
            }
        }
        for question in self.questions.iter_mut().filter(|question| batch.close_questions.contains(&question.id)) {
            question.body.close(batch.at);
        }
        settled
    }

    /// Stores the progress of a unit that is held.
    fn append(&mut self, batch: UnitBatch, last_item: &mut u64) -> RunResult<()> {
        self.check_new_units(&batch.new_units)?;
        let name = batch.unit.unit.clone();
        let Some(unit) = self.unit_mut(&name) else { return Ok(()) };
        let recorded = |record: &JournalRecord| {
            unit.records.iter().any(|earlier| earlier.key == record.key && earlier.build == record.build)
        };
        if let Some(record) = batch.records.iter().find(|record| record.is_intent() && recorded(record)) {
            return Err(RunStoreError::StepAlreadyStarted { unit: batch.unit.clone(), key: record.key.clone() });
        }
        unit.records.extend(batch.records.iter().cloned());
        if batch.checkpoint.is_some() {
            unit.checkpoint.clone_from(&batch.checkpoint);
            unit.records.clear();
        }
        self.blobs.extend(batch.blobs.iter().map(|blob| (blob.id.clone(), blob.text.clone())));
        let settled = self.ask(&name, &batch, last_item);
        let last_message = self.head.last_message;
        if let Some(unit) = self.unit_mut(&name) {
            unit.head.apply(&batch, settled, last_message);
        }
        self.add_events(Some(&name), batch.events, batch.at);
        self.add_units(batch.new_units, batch.at, last_item);
        self.wake_and_cancel(&batch.wake_units, &batch.cancel_units, false, batch.at);
        self.set_status(batch.run_status, batch.at);
        Ok(())
    }
}

#[async_trait]
impl RunStore for MemoryRunStore {
    async fn start_run(&self, run: NewRun) -> RunResult<StartOutcome> {
        self.lock().start(run)
    }
    async fn admit(&self, run: &RunId, limits: RunLimits, at: Timestamp) -> RunResult<RunAdmission> {
        self.lock().admit(run, limits, at)
    }
    async fn run(&self, run: &RunId) -> RunResult<Option<StoredRun>> {
        Ok(self.lock().run(run).map(MemoryRun::stored))
    }
    async fn summary(&self, run: &RunId) -> RunResult<Option<RunSummary>> {
        Ok(self.lock().run(run).map(MemoryRun::summary))
    }
    async fn runs(&self, filter: RunFilter, limit: usize) -> RunResult<Vec<RunSummary>> {
        let selected = |run: &&MemoryRun| {
            filter.id_prefix.as_ref().is_none_or(|prefix| run.id.as_str().starts_with(&**prefix))
                && filter.mission.as_ref().is_none_or(|mission| *mission == run.mission)
                && filter.idempotency_key.as_ref().is_none_or(|key| run.idempotency_key.as_ref() == Some(key))
                && filter.conversation.as_ref().is_none_or(|id| run.conversation.as_ref() == Some(id))
                && filter.group.as_ref().is_none_or(|group| run.group.as_ref() == Some(group))
                && (filter.statuses.is_empty() || filter.statuses.contains(&run.head.status))
                && !(filter.without_jobs && run.is_job())
        };
        let state = self.lock();
        let found = state.runs.values().rev().filter(selected).take(limit.min(limits::RUNS_LISTED));
        Ok(found.map(MemoryRun::summary).collect())
    }
    async fn events(&self, run: &RunId, after: u64, limit: usize) -> RunResult<Vec<StoredRunEvent>> {
        let (state, after) = (self.lock(), usize::try_from(after).unwrap_or(usize::MAX));
        let events = state.run(run).and_then(|run| run.events.get(after..)).unwrap_or_default();
        Ok(events.iter().take(limit.min(limits::RUN_EVENTS_READ)).cloned().collect())
    }
    async fn units(&self, run: &RunId) -> RunResult<Vec<StoredUnit>> {
        let units = |run: &MemoryRun| run.units.iter().map(|unit| run.stored_unit(unit)).collect();
        Ok(self.lock().run(run).map(units).unwrap_or_default())
    }
    async fn unit(&self, unit: &UnitKey) -> RunResult<Option<UnitContent>> {
        Ok(self.lock().run(&unit.run).and_then(|run| run.content(&unit.unit)))
    }
    async fn claim(&self, request: ClaimRequest) -> RunResult<Vec<ClaimedUnit>> {
        Ok(self.lock().claim(&request))
    }
    async fn append(&self, batch: UnitBatch) -> RunResult<u64> {
        self.lock().append(batch)
    }
    async fn append_run(&self, batch: RunBatch) -> RunResult<u64> {
        self.lock().append_run(batch)
    }
    async fn renew(&self, unit: &UnitKey, epoch: u64, until: Timestamp) -> RunResult<Signals> {
        self.lock().renew(unit, epoch, until)
    }
    async fn release(&self, unit: &UnitKey, epoch: u64, at: Timestamp) -> RunResult<()> {
        self.lock().release(unit, epoch, at)
    }
    async fn blob(&self, run: &RunId, id: &str) -> RunResult<Option<Arc<str>>> {
        Ok(self.lock().run(run).and_then(|run| run.blobs.get(id).cloned()))
    }
    async fn questions(&self, filter: QuestionFilter, limit: usize) -> RunResult<Vec<StoredQuestion>> {
        Ok(self.lock().questions(&filter, limit))
    }
    async fn question(&self, question: &QuestionKey) -> RunResult<Option<StoredQuestion>> {
        let state = self.lock();
        let run = state.run(&question.run);
        let found = |run: &MemoryRun| {
            run.questions.iter().find(|found| found.id == question.id).map(|found| run.stored_question(found))
        };
        Ok(run.and_then(found))
    }
    async fn answer(&self, reply: QuestionReply) -> RunResult<ReplyOutcome> {
        self.lock().reply(reply)
    }
    async fn signal(&self, run: &RunId, signal: Signal, at: Timestamp) -> RunResult<SignalOutcome> {
        self.lock().signal(run, signal, at)
    }
    async fn next_wake(&self) -> RunResult<Option<Timestamp>> {
        Ok(self.lock().due_units().map(|(due, ..)| due.at).min())
    }
    async fn counts(&self, at: Timestamp) -> RunResult<RunCounts> {
        Ok(self.lock().counts(at))
    }
    async fn purge_runs(&self, at: Timestamp, older_than: Duration) -> RunResult<Vec<RunId>> {
        let is_old = |ended: Timestamp| lease_end(ended, older_than) < at;
        Ok(self.lock().remove_all(|run| !run.is_job() && run.head.ended_at.is_some_and(is_old)))
    }
    async fn erase_runs(&self, conversation: &ConversationId) -> RunResult<Vec<RunId>> {
        Ok(self.lock().remove_all(|run| run.conversation.as_ref() == Some(conversation)))
    }
}
