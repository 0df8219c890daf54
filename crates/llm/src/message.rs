//! Messages to a model and its responses. All types are cheap to clone: texts and arguments are shared.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use segue_lang::usage::Usage;

use super::warning::ResponseWarning;

/// Sent as a user message where an API requires one and the user said nothing. Many models reject requests that end with an
/// assistant message, so every request ends with a user message or tool results.
pub(super) const NO_USER_MESSAGE: &str = include_str!("../prompts/wire_silence.txt");

/// One message of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum ChatMessage {
    /// Instructions. Where a model accepts them only at the start, later ones are sent with the role `user`.
    System {
        /// The text.
        text: Arc<str>,
    },
    /// A message of the user.
    User {
        /// The text.
        text: Arc<str>,
    },
    /// An earlier response of the model.
    Assistant {
        /// The text; may be empty when there are tool calls.
        #[serde(default)]
        text: Arc<str>,
        /// Its tool calls. Exactly one `Tool` message must answer each of them before the next request.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
        /// Its reasoning, for providers that require it back with the tool results.
        #[serde(rename = "thoughts", default, skip_serializing_if = "Option::is_none")]
        reasoning: Option<Arc<ReasoningBlocks>>,
    },
    /// The result of one tool call.
    Tool {
        /// The call it answers.
        call_id: Arc<str>,
        /// The tool's name.
        name: Arc<str>,
        /// The result as the model reads it.
        text: Arc<str>,
    },
}

impl ChatMessage {
    /// A system message.
    pub fn system(text: impl Into<Arc<str>>) -> Arc<Self> {
        Arc::new(Self::System { text: text.into() })
    }
    /// A user message.
    pub fn user(text: impl Into<Arc<str>>) -> Arc<Self> {
        Arc::new(Self::User { text: text.into() })
    }
    /// An assistant message without tool calls.
    pub fn assistant(text: impl Into<Arc<str>>) -> Arc<Self> {
        Arc::new(Self::Assistant { text: text.into(), tool_calls: Vec::new(), reasoning: None })
    }
    /// The result of `call`.
    pub fn tool(call: &ToolCall, text: impl Into<Arc<str>>) -> Arc<Self> {
        Arc::new(Self::Tool { call_id: call.id.clone(), name: call.name.clone(), text: text.into() })
    }
    /// The same message without the model's reasoning.
    pub fn without_reasoning(&self) -> Self {
        match self {
            Self::Assistant { text, tool_calls, .. } => {
                Self::Assistant { text: text.clone(), tool_calls: tool_calls.clone(), reasoning: None }
            }
            other => other.clone(),
        }
    }
    /// The text of the message.
    pub fn text(&self) -> &str {
        match self {
            Self::System { text } | Self::User { text } | Self::Assistant { text, .. } | Self::Tool { text, .. } => {
                text
            }
        }
    }
}

/// One tool call that the model requests. It exists only when the response has a finish reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Unique within its response; generated where the provider sent none or sent one twice.
    pub id: Arc<str>,
    /// The name of the tool as the model wrote it; no such tool may exist.
    pub name: Arc<str>,
    /// The arguments.
    pub arguments: ToolArguments,
}

/// The arguments of a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolArguments {
    /// Valid JSON: an object, unless the model wrote something else.
    Json(Arc<Value>),
    /// Invalid JSON: the call must not run, and the model should get the error.
    Malformed {
        /// What the model wrote.
        text: Arc<str>,
        /// The parser's message, for the model: `expected … at line 1 column 9`.
        error: Arc<str>,
    },
    /// The arguments were not kept: the call must not run, and the model should be told why.
    Dropped {
        /// Why.
        reason: DropReason,
    },
}

/// Why a call of a response can never run, whatever its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropReason {
    /// It has no name; [`UNNAMED_CALL`] takes its place.
    NoName,
    /// It is not the call of a function.
    OtherType,
    /// It has not the form of a call.
    Unreadable,
    /// Its arguments are longer than [`segue_base::limits::MODEL_ARGUMENTS`], or those of the response longer than
    /// [`segue_base::limits::MODEL_ARGUMENTS_TOTAL`].
    TooLong,
    /// [`segue_base::limits::MODEL_CALLS`] calls that can run come before it.
    TooMany,
}

/// The name of a call without one: APIs require a name in the call that the model's next request repeats.
pub const UNNAMED_CALL: &str = "unnamed";

impl ToolArguments {
    /// Arguments of a JSON value.
    pub fn json(value: impl Into<Value>) -> Self {
        Self::Json(Arc::new(value.into()))
    }
    /// The JSON value, if the arguments are valid.
    pub fn as_json(&self) -> Option<&Value> {
        match self {
            Self::Json(value) => Some(value),
            Self::Malformed { .. } | Self::Dropped { .. } => None,
        }
    }
    /// Why the call can never run, if it cannot.
    pub fn drop_reason(&self) -> Option<DropReason> {
        match self {
            Self::Dropped { reason } => Some(*reason),
            Self::Json(_) | Self::Malformed { .. } => None,
        }
    }
}

/// The arguments as text: compact JSON, or what the model wrote; empty if they were not kept.
impl fmt::Display for ToolArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(value) => write!(f, "{value}"),
            Self::Malformed { text, .. } => f.write_str(text),
            Self::Dropped { .. } => Ok(()),
        }
    }
}

/// The reasoning of one response, as opaque blocks that are never shown. Some providers require them back unchanged with the
/// results of the tool calls that followed. They are sent to no other model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReasoningBlocks {
    /// The model that produced them, as its entry names it.
    pub model: Arc<str>,
    /// In the order of the response.
    pub blocks: Vec<ReasoningBlock>,
}

/// One block of reasoning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReasoningBlock {
    /// How many parts of the response came before it: the text counts as one part, each tool call as another.
    pub after: usize,
    /// As the provider sent it.
    pub block: Arc<Value>,
}

/// A complete response: all deltas of a stream that reached its finish reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatResponse {
    /// All text as it was streamed; may be empty.
    #[serde(default)]
    pub text: Arc<str>,
    /// The text of a refusal, where the API marks refusals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Arc<str>>,
    /// The tool calls, in the model's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Names of the tools whose calls were incomplete when the length limit or a filter ended the response. They must never run.
    #[serde(rename = "lost_calls", default, skip_serializing_if = "Vec::is_empty")]
    pub truncated_calls: Vec<Arc<str>>,
    /// Why the response ended.
    pub finish: FinishReason,
    /// Token usage and cost.
    #[serde(default)]
    pub usage: Usage,
    /// The model that answered, as the provider names it.
    #[serde(default)]
    pub model: Arc<str>,
    /// The model's reasoning, for providers that require it back.
    #[serde(rename = "thoughts", default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Arc<ReasoningBlocks>>,
    /// Which member of the model group answered. `None` for a group of one model whose request was not shortened.
    #[serde(rename = "route", default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<Arc<RoutingInfo>>,
    /// Deviations that do not make the response invalid.
    #[serde(rename = "oddities", default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<ResponseWarning>,
}

/// Which member of a model group answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutingInfo {
    /// Its position in the group, counted from 0.
    pub member: usize,
    /// The model, as its entry names it.
    pub model: Arc<str>,
    /// Attempts of the call over all members, this one included.
    #[serde(rename = "tries")]
    pub attempts: u64,
    /// The request was longer than the model's context window, so older parts of the conversation were left out.
    #[serde(rename = "shrunk", default, skip_serializing_if = "std::ops::Not::not")]
    pub shortened: bool,
}

impl ChatResponse {
    /// A response with text only.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
    /// A response with tool calls only.
    pub fn calls(tool_calls: Vec<ToolCall>) -> Self {
        Self { tool_calls, finish: FinishReason::ToolCalls, ..Self::default() }
    }
    /// The assistant message that represents this response in the next request.
    pub fn to_message(&self) -> Arc<ChatMessage> {
        let text = if self.text.is_empty() { self.refusal.clone().unwrap_or_default() } else { self.text.clone() };
        Arc::new(ChatMessage::Assistant {
            text,
            tool_calls: self.tool_calls.clone(),
            reasoning: self.reasoning.clone(),
        })
    }
    /// Whether it is empty: no tool call, no refusal, and only white space as text.
    pub fn is_blank(&self) -> bool {
        self.tool_calls.is_empty() && self.refusal.is_none() && self.text.trim().is_empty()
    }
}

/// Why a response ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FinishReason {
    /// The model finished.
    #[default]
    Stop,
    /// The model requests tool calls.
    ToolCalls,
    /// The token limit ended it: the text is incomplete and its tool calls are dropped.
    Length,
    /// The provider's content filter ended it: the text is incomplete and its tool calls are dropped.
    ContentFilter,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Journals and cassettes store these names.
    #[test]
    fn stored_names_of_a_response_do_not_change() {
        let block = ReasoningBlock { after: 0, block: Arc::new(Value::Null) };
        let routing = RoutingInfo { member: 1, model: "m".into(), attempts: 2, shortened: true };
        let response = ChatResponse {
            truncated_calls: vec!["pay".into()],
            reasoning: Some(Arc::new(ReasoningBlocks { model: "m".into(), blocks: vec![block] })),
            routing: Some(Arc::new(routing)),
            warnings: vec![ResponseWarning::DataAfterEnd, ResponseWarning::InvalidUnicodeReplaced],
            ..ChatResponse::text("hi")
        };
        let stored = serde_json::to_value(&response).unwrap();
        assert_eq!(stored["lost_calls"], serde_json::json!(["pay"]));
        assert_eq!(stored["thoughts"]["model"], "m");
        assert_eq!(stored["route"], serde_json::json!({"member": 1, "model": "m", "tries": 2, "shrunk": true}));
        assert_eq!(stored["oddities"], serde_json::json!(["after_end", "repaired"]));
        assert_eq!(serde_json::from_value::<ChatResponse>(stored).unwrap(), response);
    }
}
