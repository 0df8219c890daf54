//! The settings of delegation, and the types of delegates: their instructions, tools and skills.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use indexmap::IndexMap;
use minijinja::{Value, context};
use segue_engine::{
    project::{
        AgentSkills, BudgetLimits, DelegationDef, Preset, SubagentType, SubagentsDef,
        field_values::{Extra, object_schema},
    },
    text::{ELLIPSIS, TextLimit, single_line, strip_hidden, truncate},
};
use serde_json::Value as Json;

use super::parent::DelegationParent;
use crate::{limits, llm::Llm, prompts::PromptSet, tools::tool_set::ToolSet};

/// The name of the tool that starts a delegate.
pub(crate) const TASK: &str = "task";
/// The tools for delegates in the background.
pub(super) const TASK_STATUS: &str = "task_status";
/// See [`TASK_STATUS`].
pub(super) const TASK_RESULT: &str = "task_result";
/// See [`TASK_STATUS`].
pub(super) const TASK_CANCEL: &str = "task_cancel";
/// The source of tools that only delegates have, and of those only the ones whose type names them.
pub(crate) const DELEGATES_ONLY: &str = "sub-agents";
/// Tools that no delegate inherits: those that start delegates, and those that speak to the user.
const NEVER_INHERITED: [&str; 6] = [TASK, TASK_STATUS, TASK_RESULT, TASK_CANCEL, "ask_clarification", "present_files"];

/// What one agent may delegate. The default: the built-in type `general-purpose`, three delegates at once, six in a turn.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DelegationSettings {
    /// The types that it may start, in the order in which its model sees them.
    pub types: IndexMap<Arc<str>, SubagentType>,
    /// Delegates of one run of the agent that run at the same time.
    pub max_concurrent: u32,
    /// Delegates of one run of the agent.
    pub max_total: u32,
    /// Delegates in a conversation; `None`: no limit.
    pub per_conversation: Option<u32>,
    /// Levels of delegation. With 1, delegates start none.
    pub depth: u32,
    /// Whether delegates may run in the background.
    pub background: bool,
    /// What the agent and its delegates may use together in one run; `None`: no limit.
    pub budget: BudgetLimits,
}

/// What one agent may delegate, with opened models.
#[derive(Clone)]
pub struct AgentDelegation {
    /// Its settings.
    pub settings: Arc<DelegationSettings>,
    /// The models of the types that have one of their own, by type.
    pub models: HashMap<Arc<str>, Arc<dyn Llm>>,
}

impl Default for DelegationSettings {
    fn default() -> Self {
        Self {
            types: SubagentsDef::default().types,
            max_concurrent: 3,
            max_total: SubagentsDef::MAX_TOTAL,
            per_conversation: None,
            depth: 1,
            background: false,
            budget: BudgetLimits::default(),
        }
    }
}

impl DelegationSettings {
    /// The settings of an agent in a project.
    pub fn of(delegation: &DelegationDef, subagents: &SubagentsDef) -> Self {
        Self {
            types: subagents.allowed(delegation).map(|kind| (kind.name.clone(), kind.clone())).collect(),
            max_concurrent: delegation.max_concurrent,
            max_total: delegation.max_total,
            per_conversation: delegation.per_conversation,
            depth: delegation.depth,
            background: delegation.background,
            budget: delegation.budget,
        }
    }

    /// The longest time of a delegate.
    pub fn longest(&self) -> Duration {
        self.types.values().map(|kind| kind.timeout).max().unwrap_or_default()
    }

    /// The longest time of a call, waiting included: a watchdog, because the time of a delegate is limited by itself.
    pub(super) fn call_limit(&self, queue: Duration) -> Duration {
        let rounds = self.max_total.div_ceil(self.max_concurrent.max(1)).max(1);
        let round = queue.saturating_add(self.longest()).saturating_add(limits::DELEGATION_WATCHDOG);
        round.saturating_mul(rounds)
    }

    /// The names of the types, for error texts.
    pub(super) fn names(&self) -> String {
        self.types.keys().map(|name| &**name).collect::<Vec<_>>().join(", ")
    }

    /// The types for templates. Descriptions come from project files: they are one line without hidden characters, and templates quote
    /// them.
    pub(super) fn listed(&self) -> Value {
        let line = |text: &Arc<str>| {
            let text = strip_hidden(text);
            let text = single_line(&text);
            truncate(text.trim(), TextLimit::Chars(limits::DELEGATION_DESCRIPTION), ELLIPSIS).into_owned()
        };
        let types = self.types.values().map(|kind| {
            context! {
                name => &*kind.name,
                preset => kind.preset.map(Preset::name).unwrap_or_default(),
                description => kind.description.as_ref().map(line),
            }
        });
        types.collect()
    }
}

/// The skills of a delegate of this type: those of its parent that the type allows.
pub(super) fn skills_of(kind: &SubagentType, parent: &DelegationParent) -> Option<Arc<AgentSkills>> {
    let own = parent.skills.as_ref()?.only(kind.skills.as_deref());
    (!own.skills.is_empty()).then(|| Arc::new(own))
}

/// The tools of a delegate of this type with these skills: those that it inherits and that the loaded skills of its parent leave. Scripts
/// belong to the skills.
pub(super) fn tools_of(kind: &SubagentType, skills: Option<&AgentSkills>, parent: &DelegationParent) -> ToolSet {
    let scripts = |skills: Option<&AgentSkills>, name: &str| {
        skills.is_some_and(|skills| skills.scripts.iter().any(|script| *script.tool == *name))
    };
    inherited(kind, parent.tools.clone()).only(|name| {
        parent.narrowing.allows(name) && (!scripts(parent.skills.as_deref(), name) || scripts(skills, name))
    })
}

/// The tools of a parent that a type allows and does not deny.
pub(super) fn inherited(kind: &SubagentType, tools: ToolSet) -> ToolSet {
    let only_named = delegates_only(&tools);
    tools.only(|name| {
        let allowed = match &kind.tools {
            Some(tools) => tools.iter().any(|tool| **tool == *name),
            None => !only_named.contains(name),
        };
        let denied = NEVER_INHERITED.contains(&name) || kind.disallowed_tools.iter().any(|tool| **tool == *name);
        allowed && !denied
    })
}

/// The names of the tools that only delegates have.
pub(crate) fn delegates_only(tools: &ToolSet) -> BTreeSet<Arc<str>> {
    tools.infos().filter(|info| &*info.source == DELEGATES_ONLY).map(|info| info.name.clone()).collect()
}

/// The schema of the result of a type; `None` if its result is a text.
pub(super) fn output_schema(kind: &SubagentType) -> Option<Json> {
    (!kind.output.is_empty()).then(|| object_schema(&kind.output, Extra::Refused))
}

/// The system prompt of a delegate.
///
/// # Errors
/// The problem of a prompt that a project replaced.
pub(super) fn instructions(
    kind: &SubagentType,
    has_schema: bool,
    tools: &ToolSet,
    prompts: &PromptSet,
) -> Result<String, String> {
    let template = match (kind.preset, &kind.system_prompt) {
        (Some(Preset::Bash), None) => &prompts.delegate_bash,
        _ => &prompts.delegate,
    };
    let has = |name: &str| tools.get(name).is_some();
    let variables = context! {
        instructions => kind.system_prompt.as_deref(),
        has_schema,
        has_files => has("read_file") || has("write_file"),
        can_edit => has("str_replace"),
    };
    prompts.render(template, variables).map(|text| text.trim().to_owned()).map_err(|error| error.to_string())
}
