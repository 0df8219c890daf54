//! The state of a run, computed from its stored events.

use std::sync::Arc;

use segue_engine::{
    ids::RunId,
    mission::{
        event::{NewEvent, RunEvent},
        state::RunState,
    },
};
use tokio::sync::{Mutex, MutexGuard, Notify};

use super::parts::MissionError;
use crate::store::runs::{RunStore, StoredRunEvent};

/// The state of a run, shared by its units in this process. A caller that decides something by it holds the lock until the decision is stored.
pub(super) struct RunView {
    store: Arc<dyn RunStore>,
    run: RunId,
    state: Mutex<RunState>,
    /// Notified when events were stored.
    pub(super) changed: Arc<Notify>,
}

impl RunView {
    pub(super) fn new(store: Arc<dyn RunStore>, run: RunId) -> Self {
        Self { store, run, state: Mutex::default(), changed: Arc::default() }
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
