//! Running cases: each with an assistant, a store, a clock and stand-ins of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::StreamExt;
use segue_engine::{
    conversation::{Event, EventKind, EventPlace, FilledBy, UserMessage},
    dialogue::{self, Reason},
    finding::{Finding, Findings, Place, Severity},
    ids::{ActionName, ConversationId, SlotName},
    project::{
        Project, Sources,
        cases::{AssertionKind, CaseStep, CaseStepKind, UserStep},
    },
    time::Timestamp,
};
use serde_json::{Map, Value as Json};

use super::{
    CaseResult, Coverage, Miss, Options, Outcome, Results, Selection, TapeMode, TurnLines,
    clock::CaseClock,
    judge::{Judge, Question},
    look::{self, Look, Verdict},
    plan::{self, Planned},
    seen::Seen,
    stub::{self, Problems},
    tape::{Tape, TapedJournal},
};
use crate::{
    clock::{Clock, SystemClock},
    conversation::NoSink,
    limits,
    llm::scripted::ScriptedLlm,
    project::{Places, read_bounded},
    prompts::PromptSet,
    runtime::{Assistant, AssistantBuilder, Incoming},
    store::{Accepted, Batch, Inbound, MemoryStore, Store, Version},
};

/// The channel that responses and conditions see.
const CHANNEL: &str = "test";
/// Chance in a case is always the same; a case that runs several times meets another one each time.
const SEED: u64 = 7;

/// Why cases cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The project with the endpoints of some cases has errors.
    #[error("the project has errors")]
    Findings(Vec<Finding>, Box<Sources>),
    /// Its folder cannot be read.
    #[error("the project's folder cannot be read: {0}")]
    Folder(String),
}

/// Runs cases against a project.
pub struct Runner {
    root: PathBuf,
    places: Places,
    project: Arc<Project>,
    /// The project with other endpoints, by their file.
    others: BTreeMap<PathBuf, Arc<Project>>,
    began: Timestamp,
}

/// What one case is run with.
struct Setting<'a> {
    planned: &'a Planned,
    project: Arc<Project>,
    problems: Problems,
    clock: Arc<CaseClock>,
    tape: Option<Arc<Tape>>,
    id: ConversationId,
    began: Timestamp,
    /// How long each turn took when it was recorded.
    took: Option<Vec<u64>>,
    coverage: bool,
    seed: u64,
}

impl Runner {
    /// For a loaded project in this folder; `places` are those it was loaded from.
    pub fn new(project: Arc<Project>, root: PathBuf, places: Places) -> Self {
        Self { root, places, project, others: BTreeMap::new(), began: SystemClock.now() }
    }

    /// Joins each case with its fixtures, metadata and stubs, and loads the project again for cases with endpoints of their own.
    /// `part` keeps only cases whose name holds it.
    ///
    /// # Errors
    /// [`RunError`] when the project cannot be loaded with such endpoints.
    pub fn plan(
        &mut self,
        selection: &Selection,
        part: Option<&str>,
    ) -> Result<(Vec<Arc<Planned>>, Vec<Finding>), RunError> {
        let mut findings = Findings::default();
        let planned = plan::plan(selection, part, &mut findings);
        for case in &planned {
            if let Some(endpoints) = self.endpoints_of(case)
                && !self.others.contains_key(&endpoints)
            {
                let project = self.load(&endpoints)?;
                self.others.insert(endpoints, project);
            }
            plan::check_names(case, self.project_of(case), &mut findings);
        }
        // What is left of a case with an error would pass for less than it says.
        let whole = planned.into_iter().filter(|case| case.case.whole).collect();
        Ok((whole, findings.sorted()))
    }

    fn load(&self, endpoints: &Path) -> Result<Arc<Project>, RunError> {
        // Paths of places begin in the project's folder; this one begins where the program was started.
        let here = endpoints.canonicalize().unwrap_or_else(|_| endpoints.to_path_buf());
        let places = Places { endpoints: Some(here), ..self.places.clone() };
        let loaded = crate::project::load(&self.root, &places).map_err(|error| RunError::Folder(error.to_string()))?;
        let broken = loaded.findings.iter().any(|finding| finding.severity == Severity::Error);
        match loaded.project {
            Some(project) if !broken => Ok(Arc::new(project)),
            _ => Err(RunError::Findings(loaded.findings, Box::new(loaded.texts))),
        }
    }

    fn project_of(&self, planned: &Planned) -> &Arc<Project> {
        let own = self.endpoints_of(planned).and_then(|endpoints| self.others.get(&endpoints));
        own.unwrap_or(&self.project)
    }

    /// The endpoints file of a case; what the operator names stands above it.
    fn endpoints_of(&self, planned: &Planned) -> Option<PathBuf> {
        planned.shared.endpoints.as_ref().filter(|_| self.places.endpoints.is_none()).map(Planned::beside)
    }

    /// Runs the cases, several at a time, and tells each result in the order of the cases.
    ///
    /// # Cancellation
    /// Dropping the future leaves cases that run; nothing of them is kept.
    pub async fn run(
        &self,
        cases: &[Arc<Planned>],
        options: &Options,
        coverage: bool,
        mut told: impl FnMut(&CaseResult),
    ) -> Results {
        let rounds = options.repeat.max(1);
        let all: Vec<(Arc<Planned>, usize)> =
            cases.iter().flat_map(|case| (1..=rounds).map(move |round| (case.clone(), round))).collect();
        let total = all.len();
        let mut running = futures::stream::iter(all)
            .map(|(case, round)| self.case(case, round, options, coverage))
            .buffered(jobs(options.jobs));
        let mut results = Results::default();
        while let Some(result) = running.next().await {
            told(&result);
            let failed = result.outcome != Outcome::Passed;
            results.cases.push(result);
            if failed && options.fail_fast {
                break;
            }
        }
        results.skipped = total - results.cases.len();
        results
    }

    /// The steps of the project's flows that the cases walked.
    pub fn coverage(&self, results: &Results) -> Coverage {
        Coverage::of(&self.project, results)
    }

    async fn case(&self, planned: Arc<Planned>, round: usize, options: &Options, coverage: bool) -> CaseResult {
        let begun = SystemClock.elapsed();
        let mut result = CaseResult {
            file: planned.file.clone(),
            name: planned.case.name.to_string(),
            place: planned.case.place.clone(),
            round,
            outcome: Outcome::Passed,
            misses: Vec::new(),
            turns: Vec::new(),
            tally: BTreeMap::new(),
            visited: BTreeSet::new(),
            commands: BTreeMap::new(),
            took: Duration::ZERO,
            case: planned.clone(),
        };
        if let Err((code, reason)) = self.whole(&planned, round, options, coverage, &mut result).await {
            result.outcome = Outcome::NotRun;
            result.misses.push(Miss::beside(&planned.case.place, code, reason));
        }
        if result.outcome == Outcome::Passed && !result.misses.is_empty() {
            result.outcome = Outcome::Failed;
        }
        result.took = SystemClock.elapsed().saturating_sub(begun);
        result
    }

    /// One case from beginning to end; `Err` is why it could not run.
    async fn whole(
        &self,
        planned: &Planned,
        round: usize,
        options: &Options,
        coverage: bool,
        result: &mut CaseResult,
    ) -> Result<(), (&'static str, String)> {
        let project = self.project_of(planned).clone();
        let setting = self.setting(planned, project, round, options, coverage)?;
        let replays = matches!(options.tape, TapeMode::Replay(_));
        let mut builder = AssistantBuilder::new(setting.project.clone(), self.root.clone());
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let seed = setting.seed;
        builder = builder.store(store.clone()).clock(setting.clock.clone()).seeds(move || seed);
        if let Some(named) = planned.shared.llm.as_ref().filter(|_| !replays) {
            builder = builder.model(Arc::new(script(&Planned::beside(named), seed)?));
        }
        let judge = self.judge(&builder, &setting, replays)?;
        builder = stub::install(builder, planned, &setting.project, &setting.problems);
        if let Some(tape) = setting.tape.clone() {
            builder = builder.journal(move |inner| Arc::new(TapedJournal { inner, tape: tape.clone() }));
        }
        if replays {
            builder = builder.offline();
        }
        let assistant = builder.build().map_err(|error| ("E0503", error.to_string()))?;
        seed_fixtures(&setting, &store).await.map_err(|error| ("E0503", error))?;
        let took = talk(&assistant, &setting, &judge, result).await;
        assistant.close(limits::CLOSE).await;
        if let Some(tape) = &setting.tape {
            let written = tape.write(planned, setting.id.as_str(), setting.began, took);
            written.map_err(|error| ("E0503", format!("the recording cannot be written: {error}")))?;
        }
        Ok(())
    }

    fn setting<'a>(
        &self,
        planned: &'a Planned,
        project: Arc<Project>,
        round: usize,
        options: &Options,
        coverage: bool,
    ) -> Result<Setting<'a>, (&'static str, String)> {
        let problems = Problems::default();
        let scripted = planned.shared.llm.is_some() || is_scripted(&project);
        let fresh = || format!("test-{}", uuid::Uuid::new_v4().simple());
        let seed = SEED + round as u64 - 1;
        let hurries = scripted || matches!(options.tape, TapeMode::Replay(_));
        let at = |began: Timestamp| Arc::new(CaseClock::new(began, hurries));
        let usual = planned.began.unwrap_or(self.began);
        let (clock, tape, id, began, took) = match &options.tape {
            TapeMode::Live => (at(usual), None, fresh(), usual, None),
            TapeMode::Record(folder) => {
                let clock = at(usual);
                let tape = Tape::record(folder, planned, clock.clone(), problems.clone());
                (clock, Some(Arc::new(tape)), fresh(), usual, None)
            }
            TapeMode::Replay(folder) => {
                let (head, text) = Tape::head(folder, planned).map_err(|error| ("E0502", error))?;
                let began = planned.began.unwrap_or(head.began);
                let clock = at(began);
                let tape = Tape::play(folder, planned, &text, clock.clone(), problems.clone());
                let tape = tape.map_err(|error| ("E0502", error))?;
                (clock, Some(Arc::new(tape)), head.conversation, began, Some(head.took))
            }
        };
        Ok(Setting { planned, project, problems, clock, tape, id: id.into(), began, took, coverage, seed })
    }

    /// The judge, where the case has anything to judge.
    fn judge(
        &self,
        builder: &AssistantBuilder,
        setting: &Setting<'_>,
        replays: bool,
    ) -> Result<Option<Judge>, (&'static str, String)> {
        let judged = |step: &CaseStep| match &step.kind {
            CaseStepKind::User(user) => user
                .assertions
                .iter()
                .any(|assertion| matches!(assertion.kind, AssertionKind::Relevant(_) | AssertionKind::Grounded(_))),
            _ => false,
        };
        if !setting.planned.case.steps.iter().any(judged) {
            return Ok(None);
        }
        let mut own: Map<String, Json> = setting.planned.shared.judge.clone().unwrap_or_default();
        let group = own.shift_remove("model_group").and_then(|group| group.as_str().map(str::to_owned));
        let llm = match replays {
            true => None,
            false => {
                let opened = builder.open_model(group.as_deref(), &own);
                Some(opened.map_err(|error| ("E0503", format!("the judge: {error}")))?)
            }
        };
        let own_text = |name: &str| setting.project.prompts.get(&format!("prompts/{name}")).cloned();
        let prompts = PromptSet::new(own_text).map_err(|error| ("E0503", error.to_string()))?;
        let clock: Arc<dyn Clock> = setting.clock.clone();
        Ok(Some(Judge { llm, prompts: Arc::new(prompts), tape: setting.tape.clone(), clock }))
    }
}

/// How many cases run at once.
fn jobs(asked: usize) -> usize {
    asked.clamp(1, limits::TEST_JOBS_MOST)
}

fn script(path: &Path, seed: u64) -> Result<ScriptedLlm, (&'static str, String)> {
    let name = path.display().to_string();
    let text = read_bounded(path, limits::PROJECT_TEXT).map_err(|error| ("E0503", format!("{name}: {error}")))?;
    ScriptedLlm::from_text(&name, &text, seed).map_err(|error| ("E0503", format!("{name}: {error}")))
}

/// Whether no model of the project lives outside of this process.
fn is_scripted(project: &Project) -> bool {
    let inside = |provider: &str| matches!(provider, "scripted" | "cassette");
    let own =
        |llm: &Map<String, Json>| llm.is_empty() || llm.get("provider").and_then(Json::as_str).is_some_and(inside);
    let groups = &project.endpoints.model_groups;
    !groups.is_empty()
        && groups.values().flat_map(|group| &group.models).all(|model| inside(&model.provider))
        && project.config.generator.as_ref().is_none_or(|generator| own(&generator.llm))
        && project.agents.values().all(|agent| own(&agent.llm))
}

/// Begins the session and sets the slots of the fixtures, so that the first message meets them.
async fn seed_fixtures(setting: &Setting<'_>, store: &Arc<dyn Store>) -> Result<(), String> {
    let slots = &setting.planned.slots;
    if slots.is_empty() {
        return Ok(());
    }
    let at = setting.began;
    let event = |kind| Event { at, kind, place: EventPlace::default() };
    let mut events = vec![
        event(EventKind::Action { name: ActionName::from("action_session_start") }),
        event(EventKind::SessionStarted),
    ];
    let mut set = |name: &str, value: Json| {
        let name = SlotName::from(name);
        events.push(event(EventKind::Slot { name, value, filled_by: Some(FilledBy::Custom), reset: false }));
    };
    if let Some(metadata) = &setting.planned.case.metadata
        && let Some(values) = setting.planned.shared.metadata.get(&metadata.name)
    {
        set("session_started_metadata", Json::Object(values.clone()));
    }
    for (slot, value) in slots {
        let kind = setting.project.slot(&slot.name).map(|slot| &slot.kind);
        set(&slot.name, kind.map_or(value.clone(), |kind| dialogue::coerced(kind, value.clone())));
    }
    events.push(event(EventKind::Action { name: ActionName::from("action_listen") }));
    let message = UserMessage {
        text: "".into(),
        message_id: "fixtures".into(),
        input_channel: CHANNEL.into(),
        metadata: Map::new(),
    };
    let conversation = setting.id.clone();
    let inbound = Inbound { tenant: "".into(), account: "".into(), conversation, message, at, seed: setting.seed };
    let accepted = store.accept(inbound).await.map_err(|error| error.to_string())?;
    let Accepted::New(turn) = accepted else { return Err("the store holds this conversation already".to_owned()) };
    let batch = Batch { turn, events, ..Batch::default() };
    store.append(&setting.id, Version(0), batch).await.map(drop).map_err(|error| error.to_string())
}

/// The conversation of a case, until it is over or something did not hold. How long each turn took, in milliseconds.
async fn talk(
    assistant: &Assistant,
    setting: &Setting<'_>,
    judge: &Option<Judge>,
    result: &mut CaseResult,
) -> Vec<u64> {
    let case = &setting.planned.case;
    let asserts = case.asserts();
    let mut took = Vec::new();
    let mut steps = case.steps.iter().peekable();
    while let Some(step) = steps.next() {
        let CaseStepKind::User(user) = &step.kind else { continue };
        let mut expected = Vec::new();
        while let Some(next) = steps.next_if(|step| !matches!(step.kind, CaseStepKind::User(_))) {
            expected.push(next);
        }
        let number = result.turns.len() + 1;
        let outcome = turn(assistant, setting, user, number).await;
        setting.clock.next_turn();
        let (seen, number_in_store) = match outcome {
            Ok(found) => found,
            Err((code, reason)) => {
                let mut misses = beside(setting, step, number, user);
                if misses.is_empty() {
                    misses.push(Miss {
                        turn: number,
                        user: user.text.to_string(),
                        ..Miss::beside(&step.place, code, reason)
                    });
                }
                result.misses.append(&mut misses);
                result.turns.push(TurnLines { user: user.text.to_string(), happened: Vec::new() });
                return took;
            }
        };
        took.push(u64::try_from(seen.took.as_millis()).unwrap_or(u64::MAX));
        let mut misses = match asserts {
            true => assertions(setting, user, &seen, judge, number, result).await,
            false => free(setting, &expected, &seen, number, user),
        };
        misses.append(&mut beside(setting, step, number, user));
        for (kind, count) in seen.commands() {
            *result.commands.entry(kind).or_default() += count;
        }
        result.turns.push(TurnLines { user: user.text.to_string(), happened: seen.lines() });
        if setting.coverage || !misses.is_empty() {
            explain(assistant, setting, number_in_store, &mut misses, result).await;
        }
        if !misses.is_empty() {
            result.misses.append(&mut misses);
            return took;
        }
    }
    took
}

/// One message: what the turn showed, and its number in the store.
async fn turn(
    assistant: &Assistant,
    setting: &Setting<'_>,
    user: &UserStep,
    number: usize,
) -> Result<(Seen, u64), (&'static str, String)> {
    let mut incoming = Incoming::text(setting.id.clone(), user.text.clone(), CHANNEL);
    incoming.message.metadata = setting.planned.metadata(user);
    let before = SystemClock.elapsed();
    let report = assistant.receive(incoming, Box::new(NoSink)).await;
    let mut took = SystemClock.elapsed().saturating_sub(before);
    if let Some(recorded) = setting.took.as_ref().and_then(|took| took.get(number - 1)) {
        took = Duration::from_millis(*recorded);
    }
    let report = report.map_err(|error| (error.code(), format!("the message got no turn: {error}")))?;
    let turns = assistant.store().turns(&setting.id).await.map_err(|error| (error.code(), error.to_string()))?;
    let Some(stored) = turns.into_iter().find(|stored| stored.turn == report.turn) else {
        return Err(("E0503", "the turn is not in the store".to_owned()));
    };
    let llm_calls = stored.journal.iter().filter(|record| &*record.kind == "llm").count() as u64;
    // What stands before the message belongs to the session, not to the turn.
    let after = stored.events.iter().rposition(|event| matches!(event.kind, EventKind::User(_))).map_or(0, |at| at + 1);
    let events = stored.events.into_iter().skip(after).collect();
    Ok((Seen { user: user.text.clone(), events, llm_calls, took }, report.turn.0))
}

/// The assertions of a step, all of them, so that a failure shows everything that is wrong with the turn.
async fn assertions(
    setting: &Setting<'_>,
    user: &UserStep,
    seen: &Seen,
    judge: &Option<Judge>,
    number: usize,
    result: &mut CaseResult,
) -> Vec<Miss> {
    let mut misses = Vec::new();
    let mut from = 0;
    for (at, assertion) in user.assertions.iter().enumerate() {
        let look = Look { seen, from, project: &setting.project };
        let judged = match &assertion.kind {
            AssertionKind::Relevant(wanted) => Some((Question::Relevant, wanted)),
            AssertionKind::Grounded(wanted) => Some((Question::Grounded, wanted)),
            _ => None,
        };
        let verdict = match (judged, judge) {
            (Some((question, wanted)), Some(judge)) => {
                let key = format!("{number}/{at}");
                match judge.judge(question, wanted, seen, from, &key).await {
                    Ok(verdict) => verdict,
                    Err(super::judge::NoJudgement(why)) => {
                        Verdict::Missed { expected: vec!["a judgement".to_owned()], seen: vec![why] }
                    }
                }
            }
            _ => look.assertion(&assertion.kind),
        };
        let kind = assertion.kind.key();
        let tally = result.tally.entry(kind).or_default();
        match verdict {
            Verdict::Held(event) => {
                tally.held += 1;
                if let (true, Some(event)) = (user.ordered, event) {
                    from = event + 1;
                }
            }
            Verdict::Missed { expected, seen } => {
                tally.failed += 1;
                misses.push(Miss::of(&assertion.place, number, user, kind, expected, seen));
            }
        }
    }
    misses
}

/// What stands in steps of their own.
fn free(setting: &Setting<'_>, expected: &[&CaseStep], seen: &Seen, number: usize, user: &UserStep) -> Vec<Miss> {
    let look = Look { seen, from: 0, project: &setting.project };
    let mut misses = Vec::new();
    for (step, verdict) in look::steps(&look, expected) {
        let kind = match &step.kind {
            CaseStepKind::Bot(_) => "bot",
            CaseStepKind::Utter(_) => "utter",
            CaseStepKind::SlotWasSet(_) => "slot_was_set",
            _ => "slot_was_not_set",
        };
        if let Verdict::Missed { expected, seen } = verdict {
            misses.push(Miss::of(&step.place, number, user, kind, expected, seen));
        }
    }
    misses
}

/// What went wrong beside the expectations.
fn beside(setting: &Setting<'_>, step: &CaseStep, number: usize, user: &UserStep) -> Vec<Miss> {
    let problems = stub::take(&setting.problems);
    let miss =
        |(code, reason)| Miss { turn: number, user: user.text.to_string(), ..Miss::beside(&step.place, code, reason) };
    problems.into_iter().map(miss).collect()
}

/// Walks the turn once more from its record, to say why it went as it did and which steps it walked.
async fn explain(
    assistant: &Assistant,
    setting: &Setting<'_>,
    turn: u64,
    misses: &mut [Miss],
    result: &mut CaseResult,
) {
    let Ok(traces) = assistant.trace(&setting.id, Some(turn)).await else { return };
    for trace in traces {
        for reason in &trace.why {
            if let Reason::Step { flow, step } = reason {
                result.visited.insert((flow.clone(), step.clone()));
            }
        }
        for miss in misses.iter_mut() {
            miss.why.clone_from(&trace.why);
            miss.failures.clone_from(&trace.failures);
        }
    }
}

impl Miss {
    fn of(
        place: &Place,
        turn: usize,
        user: &UserStep,
        what: &'static str,
        expected: Vec<String>,
        seen: Vec<String>,
    ) -> Self {
        let user = user.text.to_string();
        Self { place: place.clone(), turn, user, what, expected, seen, why: Vec::new(), failures: Vec::new() }
    }

    /// Something that went wrong beside what a case demands.
    fn beside(place: &Place, code: &'static str, reason: String) -> Self {
        let (why, failures) = (Vec::new(), Vec::new());
        Self {
            place: place.clone(),
            turn: 0,
            user: String::new(),
            what: code,
            expected: Vec::new(),
            seen: vec![reason],
            why,
            failures,
        }
    }
}

#[cfg(test)]
mod tests;
