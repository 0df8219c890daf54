//! What a run may read of the run before it in its chain.

use std::sync::Arc;

use super::{
    context::{self, AncestorContext},
    state::{RunState, TaskState, TaskStatus},
};
use crate::project::missions::{HandOver, MissionDef, TaskDef};

/// The run before, with its mission.
#[derive(Clone, Copy, Debug)]
pub struct SourceRun<'a> {
    /// The mission.
    pub def: &'a MissionDef,
    /// The state of the run.
    pub state: &'a RunState,
}

impl<'a> SourceRun<'a> {
    /// The completed tasks that can be queried, by the names under which this run knows them: `<mission>:<task>`.
    pub fn outputs(self, hand_over: HandOver) -> Vec<(Arc<str>, &'a TaskDef, &'a TaskState)> {
        if !hand_over.outputs {
            return Vec::new();
        }
        let completed = |task: &'a TaskDef| {
            let state = self.state.tasks.get(&task.name).filter(|state| state.status == TaskStatus::Completed)?;
            Some((self.name_of(&task.name), task, state))
        };
        self.def.tasks.values().filter_map(completed).collect()
    }

    /// The completed tasks as the prompt of a commander shows them: their summaries and the fields of their outputs, as far as these are
    /// handed over.
    pub fn context(self, hand_over: HandOver) -> Vec<AncestorContext> {
        if hand_over.is_empty() {
            return Vec::new();
        }
        let shown = |task: &TaskDef| {
            let mut shown = context::completed(self.def, self.state, &task.name)?;
            shown.task = self.name_of(&task.name);
            if !hand_over.summaries {
                shown.summary = "".into();
            }
            if !hand_over.outputs {
                shown.fields.clear();
            }
            (!shown.summary.is_empty() || !shown.fields.is_empty()).then_some(shown)
        };
        self.def.tasks.values().filter_map(shown).collect()
    }

    fn name_of(self, task: &str) -> Arc<str> {
        format!("{}:{task}", self.def.name).into()
    }
}
