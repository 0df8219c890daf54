//! `config.yml`, checked.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::{Folders, RetrievalConfig, SearchConfig};
use crate::regex_dialect::PythonRegex;

/// `config.yml`.
#[derive(Clone, Debug)]
pub struct Config {
    /// Put on events for others.
    pub assistant_id: Arc<str>,
    /// ISO 639-1.
    pub language: Arc<str>,
    /// Further languages.
    pub additional_languages: Vec<Arc<str>>,
    /// The command generator; absent when the pipeline has none.
    pub generator: Option<GeneratorConfig>,
    /// Whether `NLUCommandAdapter` stands in the pipeline: then mappings that need no model are asked before it.
    pub nlu_adapter: bool,
    /// `EnterpriseSearchPolicy`, where it is listed: answers from documents.
    pub search: Option<SearchConfig>,
    /// Switches that keep older behaviour.
    pub compat: Compat,
    /// Whether texts that need no model are taken without one: titles, yes and no, numbers. On by default.
    pub shortcuts: bool,
    /// Folders of the project's parts, where set.
    pub folders: Folders,
}

/// The command generator of the pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratorConfig {
    /// The component's name as written.
    pub name: Arc<str>,
    /// The model group, when one is named.
    pub model_group: Option<Arc<str>>,
    /// Model settings written in place.
    pub llm: Map<String, Json>,
    /// `user_input.max_characters`; `None` = no limit.
    pub max_characters: Option<usize>,
    /// Whether prompts show the date.
    pub include_date_time: bool,
    /// IANA name; checked.
    pub timezone: Arc<str>,
    /// How flows are chosen for the prompt when there are many.
    pub retrieval: RetrievalConfig,
    /// Lines of the model's answer that stand for a command of ours, in order.
    pub aliases: Vec<CommandAlias>,
}

/// What a project's own prompt calls a command.
#[derive(Clone, Debug)]
pub struct CommandAlias {
    /// Found in a line of the answer.
    pub line: PythonRegex,
    /// Read in its place.
    pub command: Arc<str>,
}

impl PartialEq for CommandAlias {
    fn eq(&self, other: &Self) -> bool {
        (self.line.source(), &self.command) == (other.line.source(), &other.command)
    }
}

/// Switches that keep older behaviour.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compat {
    /// Whose conversation patterns run where the project brings none of its own.
    pub patterns: CalmVersion,
    /// Whether actions run again whenever a correction leads past them, even when nothing they read has changed.
    pub rerun_actions: bool,
    /// Whether several flows in one message, while none is under way, lead to the question which of them is meant.
    pub clarify_on_multiple_start_flows: bool,
    /// Whether a flow goes on after a custom action that failed, as if it had done nothing; absent = it ends.
    pub failed_actions_continue: bool,
}

/// A generation of the CALM format, as far as its built-in patterns differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CalmVersion {
    /// Up to 3.13: an interrupted flow goes on at once, after one sentence.
    UpTo3_13,
    /// 3.14 and 3.15, and ours: the user is asked what to go on with; a completed flow is followed by one sentence.
    #[default]
    From3_14,
    /// From 3.16: after a completed flow the user is asked whether to go on, and how it was.
    From3_16,
}

impl CalmVersion {
    /// The generation of a version such as `3.13`.
    pub fn of(version: &str) -> Option<Self> {
        match version {
            "3.13" => Some(Self::UpTo3_13),
            "3.14" | "3.15" => Some(Self::From3_14),
            "3.16" | "3.17" => Some(Self::From3_16),
            _ => None,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            assistant_id: "assistant".into(),
            language: "en".into(),
            additional_languages: Vec::new(),
            generator: Some(GeneratorConfig::default()),
            nlu_adapter: false,
            search: None,
            compat: Compat::default(),
            shortcuts: true,
            folders: Folders::default(),
        }
    }
}

impl Default for GeneratorConfig {
    fn default() -> Self {
        Self {
            name: "CompactLLMCommandGenerator".into(),
            model_group: None,
            llm: Map::new(),
            max_characters: Some(crate::limits::MESSAGE_CHARACTERS),
            include_date_time: true,
            timezone: "UTC".into(),
            retrieval: RetrievalConfig::default(),
            aliases: Vec::new(),
        }
    }
}
