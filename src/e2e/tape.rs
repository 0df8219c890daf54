//! Recordings: what models, tools, actions and agents answered in a case, one file of JSON lines for each.
//!
//! A recording is made and played at the journal, the one place that every effect passes; so a replay needs no model, no
//! server and no network, and what was never recorded is an error, never a call. An answer is found by what was asked; among
//! equal questions the one of the same step comes first, then the order of the recording. So a recording outlives changes
//! of a project that leave the questions as they were.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;
use segue_engine::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::{
    plan::Planned,
    stub::{Problems, note},
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
pub(super) struct Head {
    /// The version of the form.
    recording: u32,
    /// The case, for people.
    case: String,
    /// The conversation that it was: tools may have been told.
    pub(super) conversation: String,
    /// When it began.
    pub(super) began: Timestamp,
    /// A hash of what stood in for the world: other stubs make another recording.
    #[serde(default)]
    stubs: String,
    /// How long each turn took, in milliseconds, for assertions about it.
    #[serde(default)]
    pub(super) took: Vec<u64>,
}

/// The form that is written.
const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    key: StepKey,
    kind: String,
    request: String,
    /// As it was written: not a digit of it may change.
    outcome: Box<RawValue>,
}

/// The recording of one case.
pub(super) struct Tape {
    path: PathBuf,
    plays: bool,
    clock: Arc<dyn Clock>,
    problems: Problems,
    /// Held for no wait.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    lines: Vec<Line>,
    /// What was asked and has no outcome yet.
    begun: HashMap<StepKey, (String, String)>,
}

/// What a recording says to a question.
pub(super) enum Played {
    /// This was the answer.
    Answer(Arc<str>),
    /// It is being made: ask the world.
    Ask,
    /// It has no answer, and nobody may be asked.
    Missing,
}

/// Why a recording cannot be played.
pub(super) type Unplayable = String;

impl Tape {
    /// A recording that is being made.
    pub(super) fn record(folder: &Path, planned: &Planned, clock: Arc<dyn Clock>, problems: Problems) -> Self {
        Self { path: path(folder, planned), plays: false, clock, problems, state: Mutex::default() }
    }

    /// The head of a recording, before it is played.
    pub(super) fn head(folder: &Path, planned: &Planned) -> Result<(Head, String), Unplayable> {
        let path = path(folder, planned);
        let text = read_limited(&path, TEST_RECORDING).map_err(|error| format!("{}: {error}", path.display()))?;
        let first = text.lines().next().unwrap_or_default();
        let head: Head = serde_json::from_str(first).map_err(|error| format!("{}, line 1: {error}", path.display()))?;
        if head.recording > VERSION {
            return Err(format!("{}: a newer program made this recording", path.display()));
        }
        if head.stubs != stubs(planned) {
            return Err(format!("{}: the stubs of this case have changed since", path.display()));
        }
        Ok((head, text))
    }

    /// A recording that is played.
    pub(super) fn play(
        folder: &Path,
        planned: &Planned,
        text: &str,
        clock: Arc<dyn Clock>,
        problems: Problems,
    ) -> Result<Self, Unplayable> {
        let path = path(folder, planned);
        let mut lines = Vec::new();
        for (at, line) in text.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty()) {
            let line = serde_json::from_str(line);
            lines.push(line.map_err(|error| format!("{}, line {}: {error}", path.display(), at + 1))?);
        }
        let state = Mutex::new(State { lines, begun: HashMap::new() });
        Ok(Self { path, plays: true, clock, problems, state })
    }

    /// What was answered to this; a question that has no answer is noted.
    pub(super) fn ask(&self, key: &StepKey, kind: &str, request: &str) -> Played {
        let mut state = self.lock();
        if !self.plays {
            state.begun.insert(key.clone(), (kind.to_owned(), request.to_owned()));
            return Played::Ask;
        }
        let same = |line: &Line| line.kind == kind && line.request == request;
        let at = state.lines.iter().position(|line| line.key == *key && same(line));
        match at.or_else(|| state.lines.iter().position(same)) {
            Some(at) => Played::Answer(state.lines.remove(at).outcome.get().into()),
            None => {
                let asked = state.lines.iter().find(|line| line.key == *key);
                let words = match asked {
                    Some(line) if line.kind == kind => "was asked something else when the recording was made",
                    Some(_) => "was another kind of step when the recording was made",
                    None => "is not on the recording",
                };
                note(&self.problems, "E0502", format!("step {key} ({kind}) {words}: {}", self.path.display()));
                Played::Missing
            }
        }
    }

    /// Whether it is played and has an answer to this.
    fn answers(&self, kind: &str, request: &str) -> bool {
        self.plays && self.lock().lines.iter().any(|line| line.kind == kind && line.request == request)
    }

    /// Keeps an answer of the world.
    pub(super) fn keep(&self, key: &StepKey, outcome: &str) {
        let mut state = self.lock();
        let Some((kind, request)) = state.begun.remove(key) else { return };
        if let Ok(outcome) = RawValue::from_string(outcome.to_owned()) {
            state.lines.push(Line { key: key.clone(), kind, request, outcome });
        }
    }

    /// Writes the recording, whole or not at all; one that is played stays as it is.
    pub(super) fn write(
        &self,
        planned: &Planned,
        conversation: &str,
        began: Timestamp,
        took: Vec<u64>,
    ) -> std::io::Result<()> {
        if self.plays {
            return Ok(());
        }
        let case = format!("{}::{}", planned.file, planned.case.name);
        let conversation = conversation.to_owned();
        let head = Head { recording: VERSION, case, conversation, began, stubs: stubs(planned), took };
        let mut state = self.lock();
        // Calls that ran at the same time end in any order; the file does not show it.
        state.lines.sort_by(|a, b| a.key.cmp(&b.key));
        let mut text = serde_json::to_string(&head)?;
        for line in &state.lines {
            text.push('\n');
            text.push_str(&serde_json::to_string(line)?);
        }
        text.push('\n');
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let new = self.path.with_extension("new");
        fs::write(&new, text)?;
        fs::rename(&new, &self.path)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file of a case's recording: readable, and different for names that differ in signs alone.
fn path(folder: &Path, planned: &Planned) -> PathBuf {
    let plain = |text: &str| -> String {
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).take(60).collect()
    };
    let file = planned.inside.trim_end_matches(".yaml").trim_end_matches(".yml");
    let digest = Sha256::digest(format!("{}::{}", planned.inside, planned.case.name));
    let mark: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    folder.join(plain(file)).join(format!("{}-{mark}.jsonl", plain(&planned.case.name)))
}

/// A hash of the stubs of a case: a recording holds their answers, so it must not outlive them.
fn stubs(planned: &Planned) -> String {
    let shared = &planned.shared;
    let mut written = String::new();
    for name in planned.stubbed(&shared.actions) {
        let stub = planned.stub(&shared.actions, name).map(|stub| (&stub.events, &stub.responses));
        written.push_str(&format!("{name}{stub:?}"));
    }
    for name in planned.stubbed(&shared.tools) {
        let stub = planned.stub(&shared.tools, name).map(|stub| &stub.answers);
        written.push_str(&format!("{name}{stub:?}"));
    }
    for name in planned.stubbed(&shared.agents) {
        let stub = planned.stub(&shared.agents, name).map(|stub| &stub.answers);
        written.push_str(&format!("{name}{stub:?}"));
    }
    if let Some(named) = &shared.llm {
        written.push_str(&read_limited(&Planned::beside(named), TEST_RECORDING).unwrap_or_default());
    }
    Sha256::digest(written).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Stands before the journal of a turn.
pub(super) struct TapedJournal {
    pub(super) inner: Arc<dyn Journal>,
    pub(super) tape: Arc<Tape>,
}

impl TapedJournal {
    async fn begin_step(&self, step: Step<'_>) -> Result<StepStart, StoreError> {
        let Step { key, kind, request, .. } = step;
        let begun = self.inner.begin(step).await?;
        if begun != StepStart::Run {
            return Ok(begun);
        }
        match self.tape.ask(key, kind, request) {
            Played::Ask => Ok(StepStart::Run),
            Played::Answer(outcome) => {
                let at = self.tape.clock.now();
                self.inner.finish(key, outcome.clone(), at).await?;
                Ok(StepStart::Replay { outcome, at })
            }
            Played::Missing => Err(StoreError::NotRecorded { key: key.clone(), kind: kind.into() }),
        }
    }
}

impl Journal for TapedJournal {
    fn status(&self, step: Step<'_>) -> StepStatus {
        match self.inner.status(step) {
            StepStatus::Open if self.tape.answers(step.kind, step.request) => StepStatus::Done,
            StepStatus::Open if self.tape.plays => StepStatus::ReplayOnly,
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
        self.tape.keep(key, &outcome);
        self.inner.finish(key, outcome, at)
    }
    fn announce_reply<'a>(&'a self, reply_id: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        self.inner.announce_reply(reply_id)
    }
}

#[cfg(test)]
mod tests;
