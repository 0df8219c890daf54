//! The checked `config.yml`.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::{Folders, RetrievalConfig, SearchConfig};
use crate::regex_dialect::PythonRegex;

/// `config.yml`.
#[derive(Clone, Debug)]
pub struct Config {
    /// The id of the assistant in events.
    pub assistant_id: Arc<str>,
    /// The language of the assistant, an ISO 639-1 code.
    pub language: Arc<str>,
    /// Further languages that responses are translated into.
    pub additional_languages: Vec<Arc<str>>,
    /// The command generator; `None` if the pipeline has none.
    pub generator: Option<GeneratorConfig>,
    /// Whether `NLUCommandAdapter` is in the pipeline: then NLU mappings are evaluated before the model is called.
    pub nlu_adapter: bool,
    /// `EnterpriseSearchPolicy`: answers from documents; `None` if it is not listed.
    pub search: Option<SearchConfig>,
    /// Switches for compatibility with Rasa.
    pub compat: Compat,
    /// Whether titles of buttons, yes, no, numbers and values of categorical slots are understood without a call of the model. On by default.
    pub shortcuts: bool,
    /// The folders of the project's parts, if set.
    pub folders: Folders,
}

/// The command generator of the pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratorConfig {
    /// The name of the component in the file.
    pub name: Arc<str>,
    /// The model group, if set.
    pub model_group: Option<Arc<str>>,
    /// The settings of its own model; empty if it uses a group.
    pub llm: Map<String, Json>,
    /// `user_input.max_characters`; `None`: no limit.
    pub max_characters: Option<usize>,
    /// Whether prompts contain the date.
    pub include_date_time: bool,
    /// A valid IANA time zone name.
    pub timezone: Arc<str>,
    /// How the flows in the prompt are chosen.
    pub retrieval: RetrievalConfig,
    /// Commands of a custom prompt that are replaced by built-in commands, in order.
    pub aliases: Vec<CommandAlias>,
}

/// A command of a custom prompt and the built-in command that it is replaced by.
#[derive(Clone, Debug)]
pub struct CommandAlias {
    /// Matches a part of a line of the model's answer.
    pub line: PythonRegex,
    /// The command that replaces the line.
    pub command: Arc<str>,
}

impl PartialEq for CommandAlias {
    fn eq(&self, other: &Self) -> bool {
        (self.line.source(), &self.command) == (other.line.source(), &other.command)
    }
}

/// Switches for compatibility with Rasa.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compat {
    /// The version whose built-in conversation patterns are used.
    pub patterns: CalmVersion,
    /// Whether actions run again after a correction even if none of the slots that they read has changed.
    pub rerun_actions: bool,
    /// Whether a message that starts several flows, while none is active, triggers a clarification question.
    pub clarify_on_multiple_start_flows: bool,
    /// Whether a flow continues after a failed custom action; otherwise it ends.
    pub failed_actions_continue: bool,
}

/// A version of the CALM format. Versions with the same built-in patterns are one variant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CalmVersion {
    /// Up to 3.13: an interrupted flow resumes immediately, after a message.
    UpTo3_13,
    /// 3.14 and 3.15, the default: the user is asked which interrupted flow to resume. After a completed flow a message is sent.
    #[default]
    From3_14,
    /// From 3.16: after a completed flow the user is asked whether to continue, and for a satisfaction score.
    From3_16,
}

impl CalmVersion {
    /// Parses a version such as `3.13`; `None` for an unknown version.
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
