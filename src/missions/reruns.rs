//! Runs that repeat another run, as a whole or from a task, and what they do again.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use segue_engine::{
    conversation::Writes,
    ids::RunId,
    mission::{
        event::RunEvent,
        inputs::NewRunOptions,
        rerun::{self, RerunFrom, TakenOver},
        state::{self, RunState},
    },
};
use serde_json::Value as Json;

use super::{
    engine::{NewStart, RunEngine},
    input_files::FileSource,
    parts::MissionError,
};

impl RunEngine {
    /// Starts a new run with the mission and the inputs of another: from the beginning, or from a task. Then the new run takes over what is
    /// completed and does not depend on that task, and gets a copy of the files of the other one.
    ///
    /// # Errors
    /// As [`start`](Self::start) and [`status`](Self::status); [`MissionError::Rerun`], [`MissionError::Files`].
    pub async fn rerun(&self, run: &RunId, from: Option<&RerunFrom>) -> Result<RunId, MissionError> {
        let stored = self.control.stored(run).await?;
        let inputs: Json = serde_json::from_str(&stored.inputs)
            .map_err(|error| MissionError::Unreadable { run: run.clone(), reason: error.to_string() })?;
        let inputs = inputs.as_object().cloned().unwrap_or_default();
        let mission = stored.summary.mission;
        let events = self.control.all_events(run).await?;
        let state = RunState::from_events(&events);
        let entry = from.and(state.entry);
        let rerun_of = Some(run.as_str().into());
        let options = NewRunOptions { rerun_of, entry, dry_run: state.dry_run, ..NewRunOptions::default() };
        let taken = match from {
            None => TakenOver::default(),
            Some(from) => {
                let def = self.parts.mission(&mission)?;
                rerun::taken_over(&def, &events, from).map_err(MissionError::Rerun)?
            }
        };
        let id = RunId::new(uuid::Uuid::new_v4().simple().to_string());
        if from.is_some() {
            // Before the run exists, so that no unit of it can begin without them.
            let copied = self.parts.workspaces.copy_run(run.as_str(), id.as_str()).await;
            copied.map_err(|error| MissionError::Files(run.clone(), error))?;
        }
        let mut new = NewStart::new(&mission, &inputs, options);
        (new.taken, new.files) = (taken, FileSource::Run(run.clone()));
        let started = self.start_as(id.clone(), new).await;
        if started.is_err() {
            let _ = self.parts.workspaces.remove(id.as_str()).await;
        }
        started
    }

    /// The calls of a run that [`rerun`](Self::rerun) may make again although they changed something, or may have.
    ///
    /// # Errors
    /// [`MissionError`] of the store or of unreadable data.
    pub async fn repeated_writes(&self, run: &RunId, from: Option<&RerunFrom>) -> Result<Writes, MissionError> {
        let def = self.parts.mission(&self.control.summary(run).await?.mission)?;
        let events = self.control.all_events(run).await?;
        let state = RunState::from_events(&events);
        let is_taken = rerun::taken(&def, &state, from);
        let mut writes = state::writes(events.iter().filter(|event| !is_taken(event)));
        // Tasks that earlier reruns took over did their work in the runs before.
        let (mut copied, mut before) = (copied(&state), state.rerun_of.clone());
        while let Some(run) = before.filter(|_| !copied.is_empty()) {
            let events = self.control.all_events(&RunId::new(run)).await?;
            let is_copied = |event: &RunEvent| event.event.task.as_ref().is_some_and(|task| copied.contains(task));
            writes.merge(&state::writes(events.iter().filter(|event| is_copied(event) && !is_taken(event))));
            let earlier = RunState::from_events(&events);
            copied = copied.intersection(&self::copied(&earlier)).cloned().collect();
            before = earlier.rerun_of;
        }
        // It leads to the same missions again.
        let mut next: VecDeque<RunId> = next_runs(&state).collect();
        while let Some(run) = next.pop_front() {
            let events = self.control.all_events(&run).await?;
            writes.merge(&state::writes(&events));
            next.extend(next_runs(&RunState::from_events(&events)));
        }
        Ok(writes)
    }
}

/// The tasks that a rerun took over, as a whole or in part.
fn copied(state: &RunState) -> HashSet<Arc<str>> {
    state.tasks.iter().filter(|(_, task)| task.copied_from.is_some()).map(|(name, _)| name.clone()).collect()
}

/// The runs of other missions that a run has led to.
fn next_runs(state: &RunState) -> impl Iterator<Item = RunId> {
    state.follow_ups.iter().filter(|next| next.started).map(|next| RunId::new(next.run.clone()))
}
