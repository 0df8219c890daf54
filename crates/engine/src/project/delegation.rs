//! Checked settings of delegation: which sub-agents an agent may start, and the types of sub-agents.

use std::{fmt, sync::Arc, time::Duration};

use indexmap::IndexMap;
use serde_json::{Map, Value as Json};

use super::{budget::BudgetLimits, missions::FieldDef};
use crate::finding::SourceLocation;

/// `delegation` of an agent, if it is enabled.
#[derive(Clone, Debug)]
pub struct DelegationDef {
    /// The types that it may start; `None`: all.
    pub types: Option<Vec<Arc<str>>>,
    /// Sub-agents at the same time, from 1 to 16.
    pub max_concurrent: u32,
    /// Sub-agents in one turn of the user, from 1 to 50.
    pub max_total: u32,
    /// Sub-agents in a conversation; `None`: no limit.
    pub per_conversation: Option<u32>,
    /// The depth of delegation, from 1 to 4. With 1, sub-agents start none.
    pub depth: u32,
    /// Whether sub-agents may run while the conversation goes on.
    pub background: bool,
    /// What the agent and its sub-agents may use together in one turn.
    pub budget: BudgetLimits,
    /// The location of `types`, or of the section.
    pub place: SourceLocation,
}

/// The tools of an agent for the folder of its conversation or run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceAccess {
    tools: Vec<&'static str>,
}

impl WorkspaceAccess {
    /// The words that stand for several tools.
    pub const WORDS: [&str; 4] = ["none", "read", "files", "commands"];
    /// All tools that an agent can have, in the order of the words that include them.
    pub const TOOLS: [&str; 7] = ["ls", "read_file", "glob", "grep", "write_file", "str_replace", "bash"];
    /// How many tools of the list only read.
    const READING: usize = 4;
    /// How many do not need the sandbox.
    const FILES: usize = 6;

    /// The tools for which a word stands.
    pub fn named(word: &str) -> Option<Self> {
        let count = match word {
            "none" => 0,
            "read" => Self::READING,
            "files" => Self::FILES,
            "commands" => Self::TOOLS.len(),
            _ => return None,
        };
        Some(Self { tools: Self::TOOLS.into_iter().take(count).collect() })
    }

    /// These tools; other names are left out.
    pub fn of<'t>(names: impl IntoIterator<Item = &'t str>) -> Self {
        let named: Vec<&str> = names.into_iter().collect();
        Self { tools: Self::TOOLS.into_iter().filter(|tool| named.contains(tool)).collect() }
    }

    /// The names of the tools.
    pub fn tools(&self) -> &[&'static str] {
        &self.tools
    }

    /// Whether there are none.
    pub fn is_none(&self) -> bool {
        self.tools.is_empty()
    }

    /// Whether a tool is among them.
    pub fn has(&self, tool: &str) -> bool {
        self.tools.contains(&tool)
    }

    /// Whether some of them change files.
    pub fn changes_files(&self) -> bool {
        Self::TOOLS.iter().skip(Self::READING).any(|tool| self.has(tool))
    }

    /// The same without `bash`.
    #[must_use]
    pub fn without_commands(mut self) -> Self {
        self.tools.retain(|tool| *tool != "bash");
        self
    }
}

/// The types of sub-agents, and the limits of all.
#[derive(Clone, Debug)]
pub struct SubagentsDef {
    /// The types by name, the built-in ones first. `bash` is absent without a sandbox.
    pub types: IndexMap<Arc<str>, SubagentType>,
    /// How many sub-agents run at the same time.
    pub admission: AdmissionDef,
    /// The default of `max_total` of an agent.
    pub max_total: u32,
}

/// A type of sub-agents, with all defaults applied.
#[derive(Clone)]
pub struct SubagentType {
    /// Its name.
    pub name: Arc<str>,
    /// The built-in type whose description and instructions it has, unless it sets its own.
    pub preset: Option<Preset>,
    /// When to delegate to it; `None`: the description of the preset.
    pub description: Option<Arc<str>>,
    /// Its instructions; `None`: those of the preset.
    pub system_prompt: Option<Arc<str>>,
    /// The tools that it may use; `None`: all of its parent.
    pub tools: Option<Vec<Arc<str>>>,
    /// The tools that it may not use.
    pub disallowed_tools: Vec<Arc<str>>,
    /// The skills that it may load; `None`: all of its parent.
    pub skills: Option<Vec<Arc<str>>>,
    /// Its model.
    pub model: DelegateModel,
    /// Model calls.
    pub max_turns: u32,
    /// The time limit. Waiting for a free place does not count.
    pub timeout: Duration,
    /// The budget of one sub-agent; it limits tokens only.
    pub token_budget: BudgetLimits,
    /// The fields of its result; empty: its result is a text.
    pub output: IndexMap<Arc<str>, FieldDef>,
    /// Its location in the project files; the default for a built-in type.
    pub place: SourceLocation,
}

/// Without the settings of its model.
impl fmt::Debug for SubagentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubagentType").field("name", &self.name).field("preset", &self.preset).finish_non_exhaustive()
    }
}

/// A built-in type of sub-agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// `general-purpose`: independent work with the tools of the parent.
    GeneralPurpose,
    /// `bash`: commands in the sandbox.
    Bash,
}

impl Preset {
    /// The preset for long work: a built-in type with more model calls. It is `bash` for the type of that name, else `general-purpose`.
    pub const DEEP: &str = "deep";
    /// Both, in the order in which models see them.
    pub const ALL: [Self; 2] = [Self::GeneralPurpose, Self::Bash];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::GeneralPurpose => "general-purpose",
            Self::Bash => "bash",
        }
    }
    /// The preset with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.name() == name)
    }
    /// The tools that it may use; `None`: all of its parent.
    pub fn tools(self) -> Option<&'static [&'static str]> {
        match self {
            Self::GeneralPurpose => None,
            Self::Bash => Some(&["bash", "ls", "read_file", "write_file", "str_replace"]),
        }
    }
    /// Model calls.
    pub fn max_turns(self) -> u32 {
        match self {
            Self::GeneralPurpose => 50,
            Self::Bash => 30,
        }
    }
    /// Model calls of a type with [`Preset::DEEP`].
    pub fn deep_turns(self) -> u32 {
        match self {
            Self::GeneralPurpose => 150,
            Self::Bash => 60,
        }
    }
}

/// The model of a sub-agent.
#[derive(Clone, Default, PartialEq)]
pub enum DelegateModel {
    /// That of its parent.
    #[default]
    Inherit,
    /// A model group.
    Group(Arc<str>),
    /// A model with these settings.
    Own(Map<String, Json>),
}

/// Without the settings, which may contain a key.
impl fmt::Debug for DelegateModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inherit => f.write_str("Inherit"),
            Self::Group(id) => f.debug_tuple("Group").field(id).finish(),
            Self::Own(_) => f.write_str("Own(…)"),
        }
    }
}

/// How many sub-agents run at the same time, over all conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionDef {
    /// Sub-agents that run, from 1 to 64.
    pub max_running: u32,
    /// Sub-agents that wait; 0 with `policy: reject`.
    pub max_queued: u32,
    /// The longest wait.
    pub queue_timeout: Duration,
}

impl Default for AdmissionDef {
    fn default() -> Self {
        Self { max_running: 3, max_queued: 64, queue_timeout: Duration::from_secs(300) }
    }
}

/// The built-in types, without `bash`.
impl Default for SubagentsDef {
    fn default() -> Self {
        let general = SubagentType::of_preset(Preset::GeneralPurpose);
        Self {
            types: IndexMap::from([(general.name.clone(), general)]),
            admission: AdmissionDef::default(),
            max_total: Self::MAX_TOTAL,
        }
    }
}

impl SubagentsDef {
    /// The default of `max_total_per_run`.
    pub const MAX_TOTAL: u32 = 6;

    /// The types that an agent with these settings may start, in their order.
    pub fn allowed<'a>(&'a self, delegation: &'a DelegationDef) -> impl Iterator<Item = &'a SubagentType> {
        let is_allowed =
            |name: &Arc<str>| delegation.types.as_ref().is_none_or(|types| types.iter().any(|one| one == name));
        self.types.values().filter(move |kind| is_allowed(&kind.name))
    }
}

impl SubagentType {
    /// The default time limit.
    pub const TIMEOUT: Duration = Duration::from_secs(900);
    /// The default budget.
    pub const TOKEN_BUDGET: BudgetLimits = BudgetLimits { tokens: Some(1_000_000), cost: None, warn_at: Some(0.7) };
    /// The default number of model calls of a type without a preset.
    pub const MAX_TURNS: u32 = 50;

    /// A built-in type with its defaults.
    pub fn of_preset(preset: Preset) -> Self {
        Self {
            name: preset.name().into(),
            preset: Some(preset),
            description: None,
            system_prompt: None,
            tools: preset.tools().map(|tools| tools.iter().map(|tool| (*tool).into()).collect()),
            disallowed_tools: Vec::new(),
            skills: None,
            model: DelegateModel::Inherit,
            max_turns: preset.max_turns(),
            timeout: Self::TIMEOUT,
            token_budget: Self::TOKEN_BUDGET,
            output: IndexMap::new(),
            place: SourceLocation::default(),
        }
    }
}
