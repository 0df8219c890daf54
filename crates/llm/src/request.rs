//! Requests to a model. A request shares its messages and tools with the conversation, so sending it copies no history.

use std::{borrow::Cow, fmt, sync::Arc};

use segue_base::limits;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    message::ChatMessage,
    profile::{ModelProfile, ReasoningEffort},
};

/// A request to a model. Fields that are `None` take the value of the model's entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatRequest {
    /// What the call is for: used in traces and in the rules of scripted models. Not sent.
    pub purpose: Purpose,
    /// The conversation so far, oldest first.
    pub messages: Vec<Arc<ChatMessage>>,
    /// The tools that the model may call; keep them in a stable order, so that the provider's prompt cache hits.
    #[serde(default, skip_serializing_if = "<[ToolSpec]>::is_empty")]
    pub tools: ToolList,
    /// Whether and which tool must be called.
    #[serde(default, skip_serializing_if = "ToolChoice::is_auto")]
    pub tool_choice: ToolChoice,
    /// Whether one response may have several tool calls; `None`: the provider's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// Sampling temperature. Omitted where the model rejects it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Maximum tokens of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Omitted where the model has no reasoning efforts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<ReasoningEffort>,
    /// Whether text deltas are shown to the user as they come. If so, nothing is retried after the first of them. Otherwise the
    /// text is one delta, and a failure may be retried until the end. Not sent, and not part of the hash.
    #[serde(rename = "shown", default, skip_serializing_if = "std::ops::Not::not")]
    pub streamed_to_user: bool,
}

impl ChatRequest {
    /// A request without tools, with the settings of the model's entry.
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
            streamed_to_user: false,
        }
    }

    /// The same request with tools.
    #[must_use]
    pub fn with_tools(mut self, tools: impl Into<ToolList>) -> Self {
        self.tools = tools.into();
        self
    }

    /// The same request with a temperature and a token limit where `settings`, the author's settings of the model, have none. A model
    /// with hidden reasoning gets [`limits::COMMAND_TOKENS_REASONING`] tokens, because its reasoning counts against the limit.
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
            let reasons = profile.uses_reasoning_with(settings.iter().copied());
            self.max_tokens = Some(if reasons { limits::COMMAND_TOKENS_REASONING } else { max_tokens });
        }
        self
    }
}

/// Whether one of these keys is set, so that the author's value must not be replaced.
pub fn is_set(settings: &[&Map<String, Value>], keys: &[&str]) -> bool {
    keys.iter().any(|key| settings.iter().any(|settings| settings.contains_key(*key)))
}

/// What a model call is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Purpose(Cow<'static, str>);

impl Purpose {
    /// Turning a user message into commands.
    pub const COMMANDS: Self = Self(Cow::Borrowed("commands"));
    /// A step of an agent's loop.
    pub const AGENT: Self = Self(Cow::Borrowed("agent"));
    /// A step of a commander's loop.
    pub const COMMANDER: Self = Self(Cow::Borrowed("commander"));
    /// A step of the loop of a sub-agent.
    pub const DELEGATE: Self = Self(Cow::Borrowed("delegate"));
    /// Rephrasing a response.
    pub const REPHRASE: Self = Self(Cow::Borrowed("rephrase"));
    /// Answering from retrieved documents.
    pub const SEARCH: Self = Self(Cow::Borrowed("search"));
    /// Answering a sampling request of an MCP server.
    pub const SAMPLING: Self = Self(Cow::Borrowed("sampling"));
    /// Judging the outcome of a test or a mission.
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

/// The tools of a request, in the order in which the model sees them. Cheap to clone.
pub type ToolList = Arc<[ToolSpec]>;

/// A tool as a model sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name that the model calls.
    pub name: Arc<str>,
    /// What the tool is for, written for the model.
    pub description: Arc<str>,
    /// JSON Schema of the arguments: an object schema.
    pub parameters: Arc<Value>,
    /// Whether the provider enforces the schema. Only for schemas with `additionalProperties: false` and all properties
    /// required; ignored where the model does not support it.
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
    /// The model decides.
    #[default]
    Auto,
    /// No tool call.
    None,
    /// At least one tool call.
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
