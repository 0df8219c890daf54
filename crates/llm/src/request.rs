//! What a model is asked. A request shares its messages and tools with the conversation: sending one copies no history.

use std::{borrow::Cow, fmt, sync::Arc};

use segue_base::limits;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    message::ChatMessage,
    profile::{ModelProfile, ReasoningEffort},
};

/// What a model is asked. Fields left `None` take the value of the model's entry in its group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatRequest {
    /// Who asks: for traces, and for rules of scripted models. Not sent.
    pub purpose: Purpose,
    /// The conversation so far, oldest first.
    pub messages: Vec<Arc<ChatMessage>>,
    /// The tools on offer; keep them sorted by name, so that provider caches hit.
    #[serde(default, skip_serializing_if = "<[ToolSpec]>::is_empty")]
    pub tools: ToolList,
    /// Whether and which tool must be called.
    #[serde(default, skip_serializing_if = "ToolChoice::is_auto")]
    pub tool_choice: ToolChoice,
    /// Whether several calls may come in one answer; `None`: the vendor's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// Dropped where the model refuses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Most tokens of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Dropped where the model knows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<ReasoningEffort>,
    /// Whether pieces of the text are shown to somebody as they come. Then nothing is tried again after the first of them; without
    /// it the text comes in one piece, and every failure may be made good until the end. Not sent, and no part of the hash.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shown: bool,
}

impl ChatRequest {
    /// A request without tools and with the settings of the model's entry.
    pub fn new(purpose: Purpose, messages: Vec<Arc<ChatMessage>>) -> Self {
        Self {
            purpose,
            messages,
            tools: ToolList::default(),
            tool_choice: ToolChoice::Auto,
            parallel_tool_calls: None,
            temperature: None,
            max_tokens: None,
            reasoning_effort: None,
            shown: false,
        }
    }

    /// The same request with tools on offer.
    #[must_use]
    pub fn with_tools(mut self, tools: impl Into<ToolList>) -> Self {
        self.tools = tools.into();
        self
    }

    /// The same request with a temperature and a limit of tokens where `settings`, what the author set for the model, have none. A model
    /// that thinks has [`limits::COMMAND_TOKENS_REASONING`]: hidden thoughts count as tokens of the answer, and would leave none for it.
    #[must_use]
    pub fn with_defaults(
        mut self,
        settings: &[&Map<String, Value>],
        profile: &ModelProfile,
        temperature: f64,
        max_tokens: u32,
    ) -> Self {
        if !is_set(settings, &["temperature"]) {
            self.temperature = Some(temperature);
        }
        if !is_set(settings, &["max_tokens", "max_completion_tokens"]) {
            let thinks = profile.thinks_with(settings.iter().copied());
            self.max_tokens = Some(if thinks { limits::COMMAND_TOKENS_REASONING } else { max_tokens });
        }
        self
    }
}

/// Whether one of these keys is set: then the author's value stays as it is.
pub fn is_set(settings: &[&Map<String, Value>], keys: &[&str]) -> bool {
    keys.iter().any(|key| settings.iter().any(|settings| settings.contains_key(*key)))
}

/// Who asks a model.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Purpose(Cow<'static, str>);

impl Purpose {
    /// Understanding a message as commands.
    pub const COMMANDS: Self = Self(Cow::Borrowed("commands"));
    /// A step of an agent's loop.
    pub const AGENT: Self = Self(Cow::Borrowed("agent"));
    /// A step of a commander's loop.
    pub const COMMANDER: Self = Self(Cow::Borrowed("commander"));
    /// Saying a response in other words.
    pub const REPHRASE: Self = Self(Cow::Borrowed("rephrase"));
    /// Answering from found documents.
    pub const SEARCH: Self = Self(Cow::Borrowed("search"));
    /// Answering for an MCP server that may ask our model.
    pub const SAMPLING: Self = Self(Cow::Borrowed("sampling"));
    /// Judging in a test or a mission.
    pub const JUDGE: Self = Self(Cow::Borrowed("judge"));

    /// Any other purpose.
    pub fn other(name: impl Into<String>) -> Self {
        Self(Cow::Owned(name.into()))
    }
    /// The purpose as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The tools that a model is offered, in the order in which it sees them. Cheap to clone.
pub type ToolList = Arc<[ToolSpec]>;

/// A tool as a model sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// What the model calls.
    pub name: Arc<str>,
    /// What it is for, in words for the model.
    pub description: Arc<str>,
    /// JSON Schema of the arguments: an object.
    pub parameters: Arc<Value>,
    /// Whether the vendor shall enforce the schema. Only for schemas that are closed and have all properties required;
    /// ignored where the model cannot.
    #[serde(default)]
    pub strict: bool,
}

impl ToolSpec {
    /// The same with another description.
    #[must_use]
    pub fn description(mut self, description: impl Into<Arc<str>>) -> Self {
        self.description = description.into();
        self
    }
}

/// Whether and which tool must be called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// As the model likes.
    #[default]
    Auto,
    /// No call.
    None,
    /// At least one call.
    Required,
    /// This tool.
    Tool(Arc<str>),
}

impl ToolChoice {
    /// Whether it is the default.
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}
