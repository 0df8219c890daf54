//! The services of a loop: guards, compaction and the store of long results.

use std::sync::Arc;

use super::{
    compaction::CompactionRules,
    guards::{Guards, RepeatGuard, RepeatLimits},
    interception::ResultStore,
};

/// The services of a loop. By default: the guard against repeated calls; no compaction; long results are cut.
#[derive(Default)]
pub(crate) struct LoopServices {
    /// The guards.
    pub(crate) guards: Guards,
    /// When the history is compacted, if ever.
    pub(crate) compaction: Option<CompactionRules>,
    /// Where long results are stored; without one they are cut.
    pub(crate) results: Option<Arc<ResultStore>>,
}

impl LoopServices {
    /// The services of an agent in a conversation.
    pub(crate) fn of_dialogues() -> Self {
        let repeats = RepeatGuard::new(RepeatLimits::of_dialogues());
        Self { guards: Guards::of(vec![Box::new(repeats)]), ..Self::default() }
    }
}
