//! What is said to a model and what it says back. Everything is cheap to clone: texts and arguments are shared.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use segue_lang::usage::Usage;

use super::oddity::ResponseWarning;

/// What a wire is told where it wants the user's side and nobody said anything. Many models refuse to go on with an answer of
/// their own, so every wire ends with the user's side or the results of tools.
pub(super) const SILENCE: &str = include_str!("../prompts/wire_silence.txt");

/// One message of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum ChatMessage {
    /// Instructions. Where the model wants them only at the start, later ones travel as notes of the user's side.
    System {
        /// The text.
        text: Arc<str>,
    },
    /// What the user's side says.
    User {
        /// The text.
        text: Arc<str>,
    },
    /// What the model said earlier.
    Assistant {
        /// The text; may be empty when there are calls.
        #[serde(default)]
        text: Arc<str>,
        /// Its calls, each of which must be answered by exactly one `Tool` message before the next request.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
        /// What it thought with them, for vendors that want it back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thoughts: Option<Arc<ReasoningBlocks>>,
    },
    /// The outcome of one call.
    Tool {
        /// The call it answers.
        call_id: Arc<str>,
        /// The tool's name.
        name: Arc<str>,
        /// The outcome as the model reads it.
        text: Arc<str>,
    },
}

impl ChatMessage {
    /// Instructions.
    pub fn system(text: impl Into<Arc<str>>) -> Arc<Self> {
        Arc::new(Self::System { text: text.into() })
    }
    /// What the user's side says.
    pub fn user(text: impl Into<Arc<str>>) -> Arc<Self> {
        Arc::new(Self::User { text: text.into() })
    }
    /// What the model said, without calls.
    pub fn assistant(text: impl Into<Arc<str>>) -> Arc<Self> {
        Arc::new(Self::Assistant { text: text.into(), tool_calls: Vec::new(), thoughts: None })
    }
    /// The outcome of `call`.
    pub fn tool(call: &ToolCall, text: impl Into<Arc<str>>) -> Arc<Self> {
        Arc::new(Self::Tool { call_id: call.id.clone(), name: call.name.clone(), text: text.into() })
    }
    /// The same message without what the model thought: vendors want that back only until the user speaks again.
    pub fn without_thoughts(&self) -> Self {
        match self {
            Self::Assistant { text, tool_calls, .. } => {
                Self::Assistant { text: text.clone(), tool_calls: tool_calls.clone(), thoughts: None }
            }
            other => other.clone(),
        }
    }
    /// The text of the message, whoever said it.
    pub fn text(&self) -> &str {
        match self {
            Self::System { text } | Self::User { text } | Self::Assistant { text, .. } | Self::Tool { text, .. } => {
                text
            }
        }
    }
}

/// One call the model asks for. It exists only when the model's answer ended properly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Unique within its answer; made by us where the vendor gave none or gave one twice.
    pub id: Arc<str>,
    /// The tool, as the model wrote it; may name no real tool.
    pub name: Arc<str>,
    /// The arguments.
    pub arguments: ToolArguments,
}

/// The arguments of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolArguments {
    /// They are JSON; an object, unless the model wrote something else.
    Json(Arc<Value>),
    /// They are no JSON: the call must not run, the model should be told.
    Malformed {
        /// What the model wrote.
        text: Arc<str>,
        /// Where it breaks, in words for the model: `expected … at line 1 column 9`.
        error: Arc<str>,
    },
}

impl ToolArguments {
    /// Takes a JSON value.
    pub fn json(value: impl Into<Value>) -> Self {
        Self::Json(Arc::new(value.into()))
    }
    /// The JSON, if it is JSON.
    pub fn as_json(&self) -> Option<&Value> {
        match self {
            Self::Json(value) => Some(value),
            Self::Malformed { .. } => None,
        }
    }
}

/// The arguments as text for the wire: compact JSON, or what the model wrote.
impl fmt::Display for ToolArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(value) => write!(f, "{value}"),
            Self::Malformed { text, .. } => f.write_str(text),
        }
    }
}

/// What a model thought while it answered: closed to us, and shown to nobody. Some vendors want it back, unchanged, with the
/// results of the calls that followed; no other model may see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReasoningBlocks {
    /// The model that thought them, as its entry names it.
    pub model: Arc<str>,
    /// In the order they came.
    pub blocks: Vec<ReasoningBlock>,
}

/// One thought.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReasoningBlock {
    /// How many parts of the answer came before it: its text counts as one, and each call.
    pub after: usize,
    /// As the vendor sent it.
    pub block: Arc<Value>,
}

/// A whole answer: the fold of a stream that reached its terminal mark.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatResponse {
    /// All text, as it was streamed; may be empty.
    #[serde(default)]
    pub text: Arc<str>,
    /// What the model said in a typed refusal; empty text otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Arc<str>>,
    /// The calls, in the model's order; empty unless the answer ended properly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Names of calls that had begun when the length limit or a filter ended the answer. They must never run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_calls: Vec<Arc<str>>,
    /// Why it ended.
    pub finish: FinishReason,
    /// What it cost.
    #[serde(default)]
    pub usage: Usage,
    /// The model that answered, as the vendor names it.
    #[serde(default)]
    pub model: Arc<str>,
    /// What it thought, for vendors that want it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thoughts: Option<Arc<ReasoningBlocks>>,
    /// Which model of a group of several answered, or how, where that is not the plain way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<Arc<Route>>,
    /// What was strange about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub oddities: Vec<ResponseWarning>,
}

/// Which model of a group answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Its place in its group, counted from 0.
    pub member: usize,
    /// The model, as its entry names it.
    pub model: Arc<str>,
    /// Tries of the call, this one included.
    pub tries: u64,
    /// The request was longer than the model's window: the model saw less of the conversation than it was asked with.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shrunk: bool,
}

impl ChatResponse {
    /// An answer of text alone.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
    /// An answer of calls alone.
    pub fn calls(tool_calls: Vec<ToolCall>) -> Self {
        Self { tool_calls, finish: FinishReason::ToolCalls, ..Self::default() }
    }
    /// The message that stands for this answer in the next request.
    pub fn to_message(&self) -> Arc<ChatMessage> {
        let text = if self.text.is_empty() { self.refusal.clone().unwrap_or_default() } else { self.text.clone() };
        Arc::new(ChatMessage::Assistant { text, tool_calls: self.tool_calls.clone(), thoughts: self.thoughts.clone() })
    }
    /// Whether there is nothing in it: no call, and only white space for text.
    pub fn is_blank(&self) -> bool {
        self.tool_calls.is_empty() && self.refusal.is_none() && self.text.trim().is_empty()
    }
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FinishReason {
    /// The model was done.
    #[default]
    Stop,
    /// The model wants its calls answered.
    ToolCalls,
    /// The token limit cut it: the text is incomplete and calls are dropped.
    Length,
    /// The vendor's filter cut it: the text is incomplete and calls are dropped.
    ContentFilter,
}
