//! Running cases. Each has its own assistant, store in memory, clock and stubs.

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
    AssertionFailure, CaseOutcome, CaseResult, Coverage, RecordingMode, Results, Selection, TestOptions,
    clock::CaseClock,
    conversation::run_conversation,
    judge::Judge,
    recording::{Recording, RecordingJournal},
    resolve::{self, ResolvedCase},
    stub::{self, CaseErrors},
};
use crate::{
    clock::{Clock, SystemClock},
    limits,
    llm::scripted::ScriptedLlm,
    project::{LoadOptions, read_limited},
    prompts::PromptSet,
    runtime::AssistantBuilder,
    store::{AcceptOutcome, InboxMessage, MemoryStore, Store, TurnCommit, Version},
    tools::workspace::Workspaces,
};

/// The input channel of test messages, as responses and conditions see it.
pub(super) const CHANNEL: &str = "test";
/// The seed of the first run of a case. Each further run has the next seed, so that a repeated run is random and reproducible.
const FIRST_SEED: u64 = 7;

/// Why the cases cannot be resolved.
#[derive(Debug, thiserror::Error)]
pub enum TestRunError {
    /// The project has errors when it is loaded with the endpoints file of a case.
    #[error("the project has errors")]
    Findings(Vec<Finding>, Box<Sources>),
    /// The folder of the project cannot be read.
    #[error("the project's folder cannot be read: {0}")]
    Folder(String),
}

/// Runs cases against a project.
pub struct Runner {
    root: PathBuf,
    places: LoadOptions,
    project: Arc<Project>,
    /// The project loaded with the endpoints file of a case, by the path of that file.
    projects_by_endpoints: BTreeMap<PathBuf, Arc<Project>>,
    started_at: Timestamp,
}

/// What one run of a case needs.
pub(super) struct CaseContext<'a> {
    pub(super) case: &'a ResolvedCase,
    pub(super) project: Arc<Project>,
    pub(super) errors: CaseErrors,
    pub(super) clock: Arc<CaseClock>,
    pub(super) recording: Option<Arc<Recording>>,
    pub(super) conversation: ConversationId,
    pub(super) started_at: Timestamp,
    /// In a replay: the duration of each recorded turn in milliseconds.
    pub(super) recorded_durations_ms: Option<Vec<u64>>,
    /// Whether executed steps are collected for every turn.
    pub(super) collect_coverage: bool,
    pub(super) seed: u64,
}

impl Runner {
    /// A runner for a loaded project. `root` is its folder, `places` the paths that it was loaded from.
    pub fn new(project: Arc<Project>, root: PathBuf, places: LoadOptions) -> Self {
        Self { root, places, project, projects_by_endpoints: BTreeMap::new(), started_at: SystemClock.now() }
    }

    /// Resolves the selected cases: merges each with its fixtures, metadata and stubs, and loads the project again for cases with
    /// their own endpoints file. If `name_contains` is set, cases whose name does not contain it are omitted. A case with an error is
    /// omitted as well; the error is among the findings.
    ///
    /// # Errors
    /// [`TestRunError`] if the project cannot be loaded with the endpoints file of a case.
    pub fn resolve(
        &mut self,
        selection: &Selection,
        name_contains: Option<&str>,
    ) -> Result<(Vec<Arc<ResolvedCase>>, Vec<Finding>), TestRunError> {
        let mut findings = Findings::default();
        let cases = resolve::resolve_cases(selection, name_contains, &mut findings);
        for case in &cases {
            if let Some(endpoints) = self.endpoints_of(case)
                && !self.projects_by_endpoints.contains_key(&endpoints)
            {
                let project = self.load(&endpoints)?;
                self.projects_by_endpoints.insert(endpoints, project);
            }
            resolve::check_names(case, self.project_of(case), &mut findings);
        }
        // A case without its invalid parts could pass although what its author wrote would fail.
        let valid = cases.into_iter().filter(|case| case.case.whole).collect();
        Ok((valid, findings.sorted()))
    }

    fn load(&self, endpoints: &Path) -> Result<Arc<Project>, TestRunError> {
        // Paths in `Places` are relative to the folder of the project, this one is relative to the current directory.
        let absolute = endpoints.canonicalize().unwrap_or_else(|_| endpoints.to_path_buf());
        let places = LoadOptions { endpoints: Some(absolute), ..self.places.clone() };
        let loaded =
            crate::project::load(&self.root, &places).map_err(|error| TestRunError::Folder(error.to_string()))?;
        let has_errors = loaded.findings.iter().any(|finding| finding.severity == Severity::Error);
        match loaded.project {
            Some(project) if !has_errors => Ok(Arc::new(project)),
            _ => Err(TestRunError::Findings(loaded.findings, Box::new(loaded.sources))),
        }
    }

    fn project_of(&self, case: &ResolvedCase) -> &Arc<Project> {
        let own = self.endpoints_of(case).and_then(|endpoints| self.projects_by_endpoints.get(&endpoints));
        own.unwrap_or(&self.project)
    }

    /// The endpoints file of a case; none if the caller chose an endpoints file, which takes precedence.
    fn endpoints_of(&self, case: &ResolvedCase) -> Option<PathBuf> {
        let endpoints = case.shared.endpoints.as_ref().filter(|_| self.places.endpoints.is_none());
        endpoints.map(ResolvedCase::path_of)
    }

    /// Runs the cases, several at a time. `on_result` gets each result, in the order of the cases.
    ///
    /// # Cancellation
    /// Dropping the future stops the running cases. They write no recording.
    pub async fn run(
        &self,
        cases: &[Arc<ResolvedCase>],
        options: &TestOptions,
        collect_coverage: bool,
        mut on_result: impl FnMut(&CaseResult),
    ) -> Results {
        let repeat = options.repeat.max(1);
        let runs: Vec<(Arc<ResolvedCase>, usize)> =
            cases.iter().flat_map(|case| (1..=repeat).map(move |run| (case.clone(), run))).collect();
        let mut running = futures::stream::iter(runs.clone())
            .map(|(case, run)| self.run_case(case, run, options, collect_coverage))
            .buffered(clamp_jobs(options.jobs));
        let mut results = Results::default();
        while let Some(result) = running.next().await {
            on_result(&result);
            let failed = result.outcome != CaseOutcome::Passed;
            results.cases.push(result);
            if failed && options.fail_fast {
                break;
            }
        }
        results.skipped = runs.into_iter().skip(results.cases.len()).map(|(case, _)| case).collect();
        results
    }

    /// Which steps of the project's flows were executed. The run must have collected coverage.
    pub fn coverage(&self, results: &Results) -> Coverage {
        Coverage::of(&self.project, results)
    }

    async fn run_case(
        &self,
        case: Arc<ResolvedCase>,
        run: usize,
        options: &TestOptions,
        collect_coverage: bool,
    ) -> CaseResult {
        let start = SystemClock.elapsed();
        let mut result = CaseResult {
            file: case.file.clone(),
            name: case.case.name.to_string(),
            place: case.case.place.clone(),
            run,
            outcome: CaseOutcome::Passed,
            failures: Vec::new(),
            turns: Vec::new(),
            assertion_counts: BTreeMap::new(),
            real_tools: BTreeSet::new(),
            executed_steps: BTreeSet::new(),
            commands: BTreeMap::new(),
            duration: Duration::ZERO,
            case: case.clone(),
        };
        if let Err((code, message)) = self.try_run_case(&case, run, options, collect_coverage, &mut result).await {
            result.outcome = CaseOutcome::Error;
            result.failures.push(AssertionFailure::error(&case.case.place, code, message));
        }
        if result.outcome == CaseOutcome::Passed && !result.failures.is_empty() {
            result.outcome = CaseOutcome::Failed;
        }
        result.duration = SystemClock.elapsed().saturating_sub(start);
        result
    }

    /// Runs a case and adds to its result. `Err` has the code and the message of an error because of which it could not run.
    async fn try_run_case(
        &self,
        case: &ResolvedCase,
        run: usize,
        options: &TestOptions,
        collect_coverage: bool,
        result: &mut CaseResult,
    ) -> Result<(), (&'static str, String)> {
        let project = self.project_of(case).clone();
        let context = self.case_context(case, project, run, options, collect_coverage)?;
        let is_replay = matches!(options.recording, RecordingMode::Replay(_));
        let mut builder = AssistantBuilder::new(context.project.clone(), self.root.clone());
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let seed = context.seed;
        builder = builder.store(store.clone()).clock(context.clock.clone()).seeds(move || seed);
        if let Some(script) = case.shared.llm.as_ref().filter(|_| !is_replay) {
            builder = builder.model(Arc::new(open_script(&ResolvedCase::path_of(script), seed)?));
        }
        let judge = self.open_judge(&builder, &context, is_replay)?;
        builder = stub::install_stubs(builder, case, &context.project, &context.errors);
        if let Some(recording) = context.recording.clone() {
            builder = builder.journal(move |inner| Arc::new(RecordingJournal { inner, recording: recording.clone() }));
        }
        if is_replay {
            builder = builder.offline();
        }
        let assistant = builder.build().map_err(|error| ("E0503", error.to_string()))?;
        seed_fixtures(&context, &store).await.map_err(|error| ("E0503", error))?;
        let durations_ms = run_conversation(&assistant, &context, &judge, result).await;
        // The conversation lasts no longer than the case, and so do its files.
        let files = Workspaces::conversation_folder(context.conversation.as_str());
        if let Err(error) = assistant.workspaces().remove(&files).await {
            tracing::warn!(?error, "the files of a test case were not deleted");
        }
        assistant.close(limits::SOURCE_CLOSE_TIMEOUT).await;
        if let Some(recording) = &context.recording {
            let written = recording.write(case, context.conversation.as_str(), context.started_at, durations_ms);
            written.map_err(|error| ("E0503", format!("the recording cannot be written: {error}")))?;
        }
        Ok(())
    }

    fn case_context<'a>(
        &self,
        case: &'a ResolvedCase,
        project: Arc<Project>,
        run: usize,
        options: &TestOptions,
        collect_coverage: bool,
    ) -> Result<CaseContext<'a>, (&'static str, String)> {
        let errors = CaseErrors::default();
        let new_id = || format!("test-{}", uuid::Uuid::new_v4().simple());
        let seed = FIRST_SEED + run as u64 - 1;
        let is_replay = matches!(options.recording, RecordingMode::Replay(_));
        let skips_short_waits = is_replay || case.shared.llm.is_some() || is_scripted(&project);
        let clock_at = |started_at: Timestamp| Arc::new(CaseClock::new(started_at, skips_short_waits));
        let start = case.started_at.unwrap_or(self.started_at);
        let (clock, recording, conversation, started_at, recorded_durations_ms) = match &options.recording {
            RecordingMode::Live => (clock_at(start), None, new_id(), start, None),
            RecordingMode::Record(folder) => {
                let clock = clock_at(start);
                let recording = Recording::record(folder, case, clock.clone(), errors.clone());
                (clock, Some(Arc::new(recording)), new_id(), start, None)
            }
            RecordingMode::Replay(folder) => {
                let unusable = |error: super::recording::RecordingError| ("E0502", error.to_string());
                let (header, text) = Recording::read_header(folder, case).map_err(unusable)?;
                let start = case.started_at.unwrap_or(header.started_at);
                let clock = clock_at(start);
                let recording = Recording::replay(folder, case, &text, clock.clone(), errors.clone());
                let recording = Some(Arc::new(recording.map_err(unusable)?));
                (clock, recording, header.conversation, start, Some(header.turn_durations_ms))
            }
        };
        Ok(CaseContext {
            case,
            project,
            errors,
            clock,
            recording,
            conversation: conversation.into(),
            started_at,
            recorded_durations_ms,
            collect_coverage,
            seed,
        })
    }

    /// The judge model, if the case has an assertion that needs one.
    fn open_judge(
        &self,
        builder: &AssistantBuilder,
        context: &CaseContext<'_>,
        is_replay: bool,
    ) -> Result<Option<Judge>, (&'static str, String)> {
        let needs_judge = |step: &TestStep| match &step.kind {
            TestStepKind::User(user) => user
                .assertions
                .iter()
                .any(|assertion| matches!(assertion.kind, AssertionKind::Relevant(_) | AssertionKind::Grounded(_))),
            _ => false,
        };
        if !context.case.case.steps.iter().any(needs_judge) {
            return Ok(None);
        }
        let mut settings: Map<String, Json> = context.case.shared.judge.clone().unwrap_or_default();
        let group = settings.shift_remove("model_group").and_then(|group| group.as_str().map(str::to_owned));
        let llm = match is_replay {
            true => None,
            false => {
                let opened = builder.open_model(group.as_deref(), &settings);
                Some(opened.map_err(|error| ("E0503", format!("the judge model cannot be opened: {error}")))?)
            }
        };
        let project_prompt = |name: &str| context.project.prompts.get(&format!("prompts/{name}")).cloned();
        let prompts = PromptSet::new(project_prompt).map_err(|error| ("E0503", error.to_string()))?;
        let clock: Arc<dyn Clock> = context.clock.clone();
        Ok(Some(Judge { llm, prompts: Arc::new(prompts), recording: context.recording.clone(), clock }))
    }
}

/// The number of cases that run at the same time, within its limits.
fn clamp_jobs(requested: usize) -> usize {
    requested.clamp(1, limits::TEST_JOBS_MAX)
}

fn open_script(path: &Path, seed: u64) -> Result<ScriptedLlm, (&'static str, String)> {
    let name = path.display().to_string();
    let text = read_limited(path, limits::PROJECT_TEXT).map_err(|error| ("E0503", format!("{name}: {error}")))?;
    ScriptedLlm::from_text(&name, &text, seed).map_err(|error| ("E0503", format!("{name}: {error}")))
}

/// Whether all models of the project run in this process: scripted models and cassettes.
fn is_scripted(project: &Project) -> bool {
    let is_local = |provider: &str| matches!(provider, "scripted" | "cassette");
    let is_local_or_unset =
        |llm: &Map<String, Json>| llm.is_empty() || llm.get("provider").and_then(Json::as_str).is_some_and(is_local);
    let groups = &project.endpoints.model_groups;
    !groups.is_empty()
        && groups.values().flat_map(|group| &group.models).all(|model| is_local(&model.provider))
        && project.config.generator.as_ref().is_none_or(|generator| is_local_or_unset(&generator.llm))
        && project.agents.values().all(|agent| is_local_or_unset(&agent.llm))
}

/// Stores the start of the session and the slots of the fixtures before the first message. Does nothing if no fixture sets a slot.
async fn seed_fixtures(context: &CaseContext<'_>, store: &Arc<dyn Store>) -> Result<(), String> {
    let slots = &context.case.slots;
    if slots.is_empty() {
        return Ok(());
    }
    let at = context.started_at;
    let event = |kind| Event { at, kind, location: FlowLocation::default() };
    let mut events = vec![
        event(EventKind::Action { name: ActionName::from("action_session_start") }),
        event(EventKind::SessionStarted),
    ];
    let mut set = |name: &str, value: Json| {
        let name = SlotName::from(name);
        events.push(event(EventKind::Slot { name, value, filled_by: Some(FilledBy::Custom), reset: false }));
    };
    if let Some(metadata) = &context.case.case.metadata
        && let Some(values) = context.case.shared.metadata.get(&metadata.name)
    {
        set("session_started_metadata", Json::Object(values.clone()));
    }
    for (slot, value) in slots {
        let kind = context.project.slot(&slot.name).map(|slot| &slot.kind);
        set(&slot.name, kind.map_or(value.clone(), |kind| dialogue::coerce(kind, value.clone())));
    }
    events.push(event(EventKind::Action { name: ActionName::from("action_listen") }));
    let message = UserMessage {
        via: "".into(),
        holds_writes: false,
        before_question: false,
        text: "".into(),
        message_id: "fixtures".into(),
        input_channel: CHANNEL.into(),
        metadata: Map::new(),
    };
    let conversation = context.conversation.clone();
    let inbound = InboxMessage { tenant: "".into(), account: "".into(), conversation, message, at, seed: context.seed };
    let accepted = store.accept(inbound).await.map_err(|error| error.to_string())?;
    let AcceptOutcome::New(turn) = accepted else { return Err("the conversation exists already".to_owned()) };
    let batch = TurnCommit { turn, events, ..TurnCommit::default() };
    store.append(&context.conversation, Version(0), batch).await.map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
