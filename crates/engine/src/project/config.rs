//! `config.yml`, checked.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::{Folders, RetrievalConfig, SearchConfig};

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
}

/// Switches that keep older behaviour.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compat {
    /// Patterns as in this generation: `3.13`, `3.15`; absent = ours.
    pub patterns: Option<Arc<str>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            assistant_id: "assistant".into(),
            language: "en".into(),
            additional_languages: Vec::new(),
            generator: Some(GeneratorConfig::default()),
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
        }
    }
}
