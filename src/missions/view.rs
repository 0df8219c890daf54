//! The state of a run, computed from its stored events.

use std::sync::Arc;

use segue_engine::{
    ids::RunId,
    mission::{
        event::{NewEvent, RunEvent},
        state::RunState,
    },
    project::{Project, missions::MissionDef},
};
use tokio::sync::{Mutex, MutexGuard, Notify, OnceCell};

use super::parts::MissionError;
use crate::store::runs::{RunStore, StoredRunEvent};

/// A run before another one in a chain: its mission and its state.
pub(super) type SourceState = (Arc<MissionDef>, Arc<RunState>);

/// The state of a run, shared by its units in this process. A caller that decides something by it holds the lock until the decision is stored.
pub(super) struct RunView {
    store: Arc<dyn RunStore>,
    run: RunId,
    state: Mutex<RunState>,
    /// The run before in the chain, once it was read.
    source: OnceCell<Option<SourceState>>,
    /// Notified when events were stored.
    pub(super) changed: Arc<Notify>,
}

impl RunView {
    pub(super) fn new(store: Arc<dyn RunStore>, run: RunId) -> Self {
        Self { store, run, state: Mutex::default(), source: OnceCell::new(), changed: Arc::default() }
    }

    /// The run before, if it handed something over and is still stored. It has ended, so that it is read once.
    pub(super) async fn source(&self, project: &Project) -> Result<Option<SourceState>, MissionError> {
        let (previous, hand_over) = {
            let state = self.latest().await?;
            (state.previous.clone(), state.hand_over)
        };
        let Some(previous) = previous.filter(|_| !hand_over.is_empty()) else { return Ok(None) };
        let read = async {
            let view = Self::new(self.store.clone(), RunId::new(previous.run.clone()));
            let state = view.latest().await?.clone();
            // A run that was deleted has no events.
            let def = project.mission(&state.mission).filter(|_| state.sequence > 0).cloned();
            Ok::<_, MissionError>(def.map(|def| (def, Arc::new(state))))
        };
        self.source.get_or_try_init(|| read).await.cloned()
    }

    /// The state after the last stored event.
    pub(super) async fn latest(&self) -> Result<MutexGuard<'_, RunState>, MissionError> {
        let mut state = self.state.lock().await;
        loop {
            let events = self.store.events(&self.run, state.sequence, crate::limits::RUN_EVENTS_READ).await?;
            for stored in &events {
                state.apply(&read_event(&self.run, stored)?);
            }
            if events.len() < crate::limits::RUN_EVENTS_READ {
                return Ok(state);
            }
        }
    }
}

/// An event as it is stored.
pub(super) fn event_text(event: &NewEvent) -> Arc<str> {
    serde_json::to_string(event).unwrap_or_else(|_| "null".into()).into()
}

/// A stored event.
pub(super) fn read_event(run: &RunId, stored: &StoredRunEvent) -> Result<RunEvent, MissionError> {
    let event: NewEvent = serde_json::from_str(&stored.event).map_err(|error| MissionError::Unreadable {
        run: run.clone(),
        reason: format!("event {}: {error}", stored.seq),
    })?;
    Ok(event.at(stored.seq, stored.at))
}
