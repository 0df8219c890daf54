//! Recordings of cases: the outcomes of models, tools, actions and agents, one file of JSON lines for each case.
//!
//! A recording is made and replayed in the effect journal, which every effect passes. So a replay needs no model, no server and no
//! network, and an effect without a recorded outcome is an error, never a call. An outcome is found by its kind and request. If several
//! steps have the same ones, the outcome of the step with the same key is preferred, then the first one. So a recording stays valid when
//! the project changes, as long as its requests stay the same.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;
use segue_engine::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::{
    resolve::ResolvedCase,
    stub::{CaseErrors, report_error},
};
use crate::{
    clock::Clock,
    context::StepKey,
    journal::{Journal, Step, StepStart, StepStatus},
    limits::TEST_RECORDING,
    project::read_limited,
    store::StoreError,
};

/// The first line of a recording.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RecordingHeader {
    /// The version of the format.
    #[serde(rename = "recording")]
    version: u32,
    /// `file::case`, for people who read the file.
    case: String,
    /// The id of the conversation. A replay uses it again, because requests may contain it.
    pub(super) conversation: String,
    /// The time at which the conversation started. A replay starts at the same time.
    #[serde(rename = "began")]
    pub(super) started_at: Timestamp,
    /// A hash of the stubs: their outcomes are recorded too, so a recording is invalid when the stubs change.
    #[serde(default, rename = "stubs")]
    stubs_hash: String,
    /// The duration of each turn in milliseconds, for `max_turn_latency_ms`.
    #[serde(default, rename = "took")]
    pub(super) turn_durations_ms: Vec<u64>,
}

/// The version of the format that is written.
const VERSION: u32 = 1;

/// Each further line of a recording.
#[derive(Debug, Serialize, Deserialize)]
struct RecordedStep {
    key: StepKey,
    kind: String,
    request: String,
    /// The unchanged JSON text: parsing it could change the digits of a number.
    outcome: Box<RawValue>,
}

/// The recording of one case, while it is made or replayed.
pub(super) struct Recording {
    path: PathBuf,
    is_replay: bool,
    clock: Arc<dyn Clock>,
    errors: CaseErrors,
    /// Never locked across an `await`.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Recorded steps; in a replay those that are not used yet.
    steps: Vec<RecordedStep>,
    /// Kind and request of steps without an outcome.
    open_steps: HashMap<StepKey, (String, String)>,
}

/// What a recording contains for a step.
pub(super) enum Lookup {
    /// The outcome, as JSON text.
    Recorded(Arc<str>),
    /// The recording is being made: perform the effect.
    Forward,
    /// The recording is replayed and has no outcome. The effect must not be performed.
    Missing,
}

/// Why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordingError {
    /// The file is missing, too large or unreadable.
    #[error("{}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    /// A line is not valid.
    #[error("{}, line {line}: {error}", path.display())]
    Parse { path: PathBuf, line: usize, error: serde_json::Error },
    /// A later version of the format.
    #[error("{}: a newer version of segue made this recording", path.display())]
    NewerVersion { path: PathBuf },
    /// The stubs are not those of the recording.
    #[error("{}: the stubs of this case have changed; record it again", path.display())]
    StubsChanged { path: PathBuf },
}

impl Recording {
    /// A new recording, which [`write`](Self::write) stores.
    pub(super) fn record(folder: &Path, case: &ResolvedCase, clock: Arc<dyn Clock>, errors: CaseErrors) -> Self {
        Self { path: recording_path(folder, case), is_replay: false, clock, errors, state: Mutex::default() }
    }

    /// Reads the file of a recording. Returns its header, which the clock of the replay needs, and the text for
    /// [`replay`](Self::replay).
    pub(super) fn read_header(folder: &Path, case: &ResolvedCase) -> Result<(RecordingHeader, String), RecordingError> {
        let path = recording_path(folder, case);
        let text = match read_limited(&path, TEST_RECORDING) {
            Ok(text) => text,
            Err(error) => return Err(RecordingError::Read { path, error }),
        };
        let header: RecordingHeader = match serde_json::from_str(text.lines().next().unwrap_or_default()) {
            Ok(header) => header,
            Err(error) => return Err(RecordingError::Parse { path, line: 1, error }),
        };
        if header.version > VERSION {
            return Err(RecordingError::NewerVersion { path });
        }
        if header.stubs_hash != hash_stubs(case) {
            return Err(RecordingError::StubsChanged { path });
        }
        Ok((header, text))
    }

    /// A recording to replay, from the text of its file.
    pub(super) fn replay(
        folder: &Path,
        case: &ResolvedCase,
        text: &str,
        clock: Arc<dyn Clock>,
        errors: CaseErrors,
    ) -> Result<Self, RecordingError> {
        let path = recording_path(folder, case);
        let mut steps = Vec::new();
        for (index, line) in text.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty()) {
            match serde_json::from_str(line) {
                Ok(step) => steps.push(step),
                Err(error) => return Err(RecordingError::Parse { path, line: index + 1, error }),
            }
        }
        let state = Mutex::new(State { steps, open_steps: HashMap::new() });
        Ok(Self { path, is_replay: true, clock, errors, state })
    }

    /// Looks up the outcome of a step. Each recorded outcome is used once. If a replay has none, it is an error of the case.
    pub(super) fn lookup(&self, key: &StepKey, kind: &str, request: &str) -> Lookup {
        let mut state = self.lock();
        if !self.is_replay {
            state.open_steps.insert(key.clone(), (kind.to_owned(), request.to_owned()));
            return Lookup::Forward;
        }
        let has_request = |step: &RecordedStep| step.kind == kind && step.request == request;
        let index = state.steps.iter().position(|step| step.key == *key && has_request(step));
        match index.or_else(|| state.steps.iter().position(has_request)) {
            Some(index) => Lookup::Recorded(state.steps.remove(index).outcome.get().into()),
            None => {
                let cause = match state.steps.iter().find(|step| step.key == *key) {
                    Some(step) if step.kind == kind => "was recorded with another request",
                    Some(_) => "was recorded as another kind of step",
                    None => "is not in the recording",
                };
                report_error(&self.errors, "E0502", format!("step {key} ({kind}) {cause}: {}", self.path.display()));
                Lookup::Missing
            }
        }
    }

    /// Whether this is a replay that has an outcome for this request.
    fn has_outcome(&self, kind: &str, request: &str) -> bool {
        self.is_replay && self.lock().steps.iter().any(|step| step.kind == kind && step.request == request)
    }

    /// Records the outcome, as JSON text, of a step that [`lookup`](Self::lookup) forwarded.
    pub(super) fn record_outcome(&self, key: &StepKey, outcome: &str) {
        let mut state = self.lock();
        let Some((kind, request)) = state.open_steps.remove(key) else { return };
        if let Ok(outcome) = RawValue::from_string(outcome.to_owned()) {
            state.steps.push(RecordedStep { key: key.clone(), kind, request, outcome });
        }
    }

    /// Writes a new recording atomically. Does nothing in a replay.
    pub(super) fn write(
        &self,
        case: &ResolvedCase,
        conversation: &str,
        started_at: Timestamp,
        turn_durations_ms: Vec<u64>,
    ) -> io::Result<()> {
        if self.is_replay {
            return Ok(());
        }
        let header = RecordingHeader {
            version: VERSION,
            case: format!("{}::{}", case.file, case.case.name),
            conversation: conversation.to_owned(),
            started_at,
            stubs_hash: hash_stubs(case),
            turn_durations_ms,
        };
        let mut state = self.lock();
        // Concurrent calls end in any order. Sorted by key, two recordings of the same run are equal.
        state.steps.sort_by(|a, b| a.key.cmp(&b.key));
        let mut text = serde_json::to_string(&header)?;
        for step in &state.steps {
            text.push('\n');
            text.push_str(&serde_json::to_string(step)?);
        }
        text.push('\n');
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let temporary = self.path.with_extension("new");
        fs::write(&temporary, text)?;
        fs::rename(&temporary, &self.path)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file of a recording: a readable name, and a hash because names that differ only in punctuation look the same.
fn recording_path(folder: &Path, case: &ResolvedCase) -> PathBuf {
    let slug = |text: &str| -> String {
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).take(60).collect()
    };
    let file = case.path_in_project.trim_end_matches(".yaml").trim_end_matches(".yml");
    let digest = Sha256::digest(format!("{}::{}", case.path_in_project, case.case.name));
    let hash: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    folder.join(slug(file)).join(format!("{}-{hash}.jsonl", slug(&case.case.name)))
}

/// A hash of the stubs of a case; see [`RecordingHeader::stubs_hash`].
fn hash_stubs(case: &ResolvedCase) -> String {
    let shared = &case.shared;
    let mut text = String::new();
    for name in case.stubbed_names(&shared.actions) {
        let stub = case.stub(&shared.actions, name).map(|stub| (&stub.events, &stub.responses));
        text.push_str(&format!("{name}{stub:?}"));
    }
    for name in case.stubbed_names(&shared.tools) {
        let stub = case.stub(&shared.tools, name).map(|stub| &stub.answers);
        text.push_str(&format!("{name}{stub:?}"));
    }
    for name in case.stubbed_names(&shared.agents) {
        let stub = case.stub(&shared.agents, name).map(|stub| &stub.answers);
        text.push_str(&format!("{name}{stub:?}"));
    }
    if let Some(script) = &shared.llm {
        text.push_str(&read_limited(&ResolvedCase::path_of(script), TEST_RECORDING).unwrap_or_default());
    }
    Sha256::digest(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The journal of a turn, with a recording before it.
pub(super) struct RecordingJournal {
    pub(super) inner: Arc<dyn Journal>,
    pub(super) recording: Arc<Recording>,
}

impl RecordingJournal {
    async fn begin_step(&self, step: Step<'_>) -> Result<StepStart, StoreError> {
        let Step { key, kind, request, .. } = step;
        let start = self.inner.begin(step).await?;
        if start != StepStart::Run {
            return Ok(start);
        }
        match self.recording.lookup(key, kind, request) {
            Lookup::Forward => Ok(StepStart::Run),
            Lookup::Recorded(outcome) => {
                let at = self.recording.clock.now();
                self.inner.finish(key, outcome.clone(), at).await?;
                Ok(StepStart::Replay { outcome, at })
            }
            Lookup::Missing => Err(StoreError::NotRecorded { key: key.clone(), kind: kind.into() }),
        }
    }
}

impl Journal for RecordingJournal {
    fn status(&self, step: Step<'_>) -> StepStatus {
        match self.inner.status(step) {
            StepStatus::Open if self.recording.has_outcome(step.kind, step.request) => StepStatus::Done,
            StepStatus::Open if self.recording.is_replay => StepStatus::ReplayOnly,
            status => status,
        }
    }
    fn begin<'a>(&'a self, step: Step<'a>) -> BoxFuture<'a, Result<StepStart, StoreError>> {
        Box::pin(self.begin_step(step))
    }
    fn finish<'a>(
        &'a self,
        key: &'a StepKey,
        outcome: Arc<str>,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.recording.record_outcome(key, &outcome);
        self.inner.finish(key, outcome, at)
    }
    fn announce_reply<'a>(&'a self, reply_id: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        self.inner.announce_reply(reply_id)
    }
}

#[cfg(test)]
mod tests;
