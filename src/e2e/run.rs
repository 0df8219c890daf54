//! Running cases: each with an assistant, a store, a clock and stand-ins of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::StreamExt;
use segue_engine::{
    conversation::{Event, EventKind, FilledBy, FlowLocation, UserMessage},
    dialogue,
    finding::{Finding, Findings, Severity},
    ids::{ActionName, ConversationId, SlotName},
    project::{
        Project, Sources,
        test_cases::{AssertionKind, TestStep, TestStepKind},
    },
    time::Timestamp,
};
use serde_json::{Map, Value as Json};

use super::{
    AssertionFailure, CaseResult, Coverage, Options, Outcome, RecordingMode, Results, Selection,
    clock::CaseClock,
    judge::Judge,
    plan::{self, Planned},
    stub::{self, Problems},
    talk::talk,
    tape::{Tape, TapedJournal},
};
use crate::{
    clock::{Clock, SystemClock},
    limits,
    llm::scripted::ScriptedLlm,
    project::{LoadOptions, read_limited},
    prompts::PromptSet,
    runtime::AssistantBuilder,
    store::{AcceptOutcome, InboxMessage, MemoryStore, Store, TurnCommit, Version},
};

/// The channel that responses and conditions see.
pub(super) const CHANNEL: &str = "test";
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
    places: LoadOptions,
    project: Arc<Project>,
    /// The project with other endpoints, by their file.
    others: BTreeMap<PathBuf, Arc<Project>>,
    began: Timestamp,
}

/// What one case is run with.
pub(super) struct Setting<'a> {
    pub(super) planned: &'a Planned,
    pub(super) project: Arc<Project>,
    pub(super) problems: Problems,
    pub(super) clock: Arc<CaseClock>,
    pub(super) tape: Option<Arc<Tape>>,
    pub(super) id: ConversationId,
    pub(super) began: Timestamp,
    /// How long each turn took when it was recorded.
    pub(super) took: Option<Vec<u64>>,
    pub(super) coverage: bool,
    pub(super) seed: u64,
}

impl Runner {
    /// For a loaded project in this folder; `places` are those it was loaded from.
    pub fn new(project: Arc<Project>, root: PathBuf, places: LoadOptions) -> Self {
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
        let places = LoadOptions { endpoints: Some(here), ..self.places.clone() };
        let loaded = crate::project::load(&self.root, &places).map_err(|error| RunError::Folder(error.to_string()))?;
        let broken = loaded.findings.iter().any(|finding| finding.severity == Severity::Error);
        match loaded.project {
            Some(project) if !broken => Ok(Arc::new(project)),
            _ => Err(RunError::Findings(loaded.findings, Box::new(loaded.sources))),
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
        let mut running = futures::stream::iter(all.clone())
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
        results.skipped = all.into_iter().skip(results.cases.len()).map(|(case, _)| case).collect();
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
            result.misses.push(AssertionFailure::beside(&planned.case.place, code, reason));
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
        let replays = matches!(options.tape, RecordingMode::Replay(_));
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
        assistant.close(limits::SOURCE_CLOSE_TIMEOUT).await;
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
        let hurries = scripted || matches!(options.tape, RecordingMode::Replay(_));
        let at = |began: Timestamp| Arc::new(CaseClock::new(began, hurries));
        let usual = planned.began.unwrap_or(self.began);
        let (clock, tape, id, began, took) = match &options.tape {
            RecordingMode::Live => (at(usual), None, fresh(), usual, None),
            RecordingMode::Record(folder) => {
                let clock = at(usual);
                let tape = Tape::record(folder, planned, clock.clone(), problems.clone());
                (clock, Some(Arc::new(tape)), fresh(), usual, None)
            }
            RecordingMode::Replay(folder) => {
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
        let judged = |step: &TestStep| match &step.kind {
            TestStepKind::User(user) => user
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
    asked.clamp(1, limits::TEST_JOBS_MAX)
}

fn script(path: &Path, seed: u64) -> Result<ScriptedLlm, (&'static str, String)> {
    let name = path.display().to_string();
    let text = read_limited(path, limits::PROJECT_TEXT).map_err(|error| ("E0503", format!("{name}: {error}")))?;
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
    let event = |kind| Event { at, kind, location: FlowLocation::default() };
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
        set(&slot.name, kind.map_or(value.clone(), |kind| dialogue::coerce(kind, value.clone())));
    }
    events.push(event(EventKind::Action { name: ActionName::from("action_listen") }));
    let message = UserMessage {
        text: "".into(),
        message_id: "fixtures".into(),
        input_channel: CHANNEL.into(),
        metadata: Map::new(),
    };
    let conversation = setting.id.clone();
    let inbound = InboxMessage { tenant: "".into(), account: "".into(), conversation, message, at, seed: setting.seed };
    let accepted = store.accept(inbound).await.map_err(|error| error.to_string())?;
    let AcceptOutcome::New(turn) = accepted else { return Err("the store holds this conversation already".to_owned()) };
    let batch = TurnCommit { turn, events, ..TurnCommit::default() };
    store.append(&setting.id, Version(0), batch).await.map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
