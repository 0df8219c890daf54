//! Which tools are left while skills with `allowed-tools` are loaded.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError, RwLock},
};

use segue_engine::project::AgentSkills;

use super::LoadedSkills;
use crate::react::result_tools::RESULT_TOOLS;

/// The tool that is never taken away, besides those that read stored results: it reads what a skill refers to.
const READ_FILE: &str = "read_file";

/// The tools that loaded skills leave. Clones share it, so that sub-agents that are started later get no other tools.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolNarrowing(Arc<RwLock<Option<BTreeSet<Arc<str>>>>>);

impl ToolNarrowing {
    /// Whether an agent may call a tool.
    pub(crate) fn allows(&self, tool: &str) -> bool {
        let allowed = self.0.read().unwrap_or_else(PoisonError::into_inner);
        allowed
            .as_ref()
            .is_none_or(|allowed| allowed.contains(tool) || tool == READ_FILE || RESULT_TOOLS.contains(&tool))
    }

    /// Sets what the loaded skills allow together: each tool that one of them names. Skills without `allowed-tools` neither add nor take
    /// away. If the user loaded some that name tools, only those count. A skill that is no longer known allows nothing.
    pub(super) fn set(&self, skills: &AgentSkills, loaded: &LoadedSkills) {
        let rule = |name: &str| match skills.skills.get(name) {
            Some(skill) => skill.allowed_tools.clone(),
            None => Some(Vec::new()),
        };
        let rules: Vec<(bool, Vec<Arc<str>>)> =
            loaded.0.iter().filter_map(|one| Some((one.by_user, rule(&one.name)?))).collect();
        let by_user = rules.iter().any(|(by_user, _)| *by_user);
        let counting = rules.iter().filter(|(of_user, _)| !by_user || *of_user);
        // Restrictions of arguments, such as `Bash(git:*)`, cannot be enforced: such an entry allows nothing.
        let allowed = counting.flat_map(|(_, tools)| tools).filter(|tool| !tool.contains('(')).cloned().collect();
        let allowed = (skills.narrows && !rules.is_empty()).then_some(allowed);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = allowed;
    }
}
