//! What a turn writes down and counts while it runs.

use std::sync::Arc;

use segue_engine::time::Timestamp;

use super::{bodies::Bodies, meter::Meter};
use crate::{
    clock::Clock,
    journal::{EffectJournal, Journal, TurnClock},
};

/// The journal of a turn, and what belongs beside it. Cheap to clone.
#[derive(Clone)]
pub(super) struct TurnRecord {
    /// Where effects are recorded.
    pub(super) journal: EffectJournal,
    /// What the turn used, for budgets and traces.
    pub(super) meter: Arc<Meter>,
    /// Texts that the record names by their hash.
    pub(super) bodies: Arc<Bodies>,
}

impl TurnRecord {
    /// That of a turn which begins at `at`.
    pub(super) fn new(
        records: Arc<dyn Journal>,
        clock: Arc<dyn Clock>,
        at: Timestamp,
        meter: Meter,
        bodies: Bodies,
    ) -> Self {
        let meter = Arc::new(meter);
        let journal = EffectJournal::new(records, Arc::new(TurnClock::new(clock, at)), meter.clone());
        Self { journal, meter, bodies: Arc::new(bodies) }
    }
    /// The turn's clock.
    pub(super) fn clock(&self) -> Arc<dyn Clock> {
        self.journal.clock().clone()
    }
    /// Wall time as the turn sees it.
    pub(super) fn now(&self) -> Timestamp {
        self.journal.clock().now()
    }
}
