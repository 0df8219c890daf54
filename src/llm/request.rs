//! What a model is asked. A request shares its messages and tools with the conversation: sending one copies no history.

use std::{borrow::Cow, fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{
    canonical::{self, Hashed},
    message::ChatMessage,
    profile::Effort,
    tool_list::ToolList,
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
    pub reasoning_effort: Option<Effort>,
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

    /// SHA-256 of [`Self::canonical`]: equal for equal requests, on every machine and in every later version.
    pub fn hash(&self) -> RequestHash {
        self.hash_after(&mut None)
    }

    /// The same for a loop: `before` is what is known of the request before, and then of this one.
    pub(crate) fn hash_after(&self, before: &mut Option<Hashed>) -> RequestHash {
        RequestHash(canonical::hash(self, before))
    }

    /// The request as JSON in which object keys of schemas and arguments are sorted: what [`Self::hash`] is taken of.
    pub fn canonical(&self) -> String {
        canonical::with(self, |bytes| String::from_utf8_lossy(bytes).into_owned())
    }
}

/// The hash of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestHash(pub [u8; 32]);

impl fmt::Display for RequestHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In two halves: a formatter costs more than the digits.
        let (halves, _) = self.0.as_chunks::<16>();
        halves.iter().try_for_each(|half| write!(f, "{:032x}", u128::from_be_bytes(*half)))
    }
}
impl fmt::Debug for RequestHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl std::str::FromStr for RequestHash {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return Err("expected 64 hexadecimal digits");
        }
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).unwrap_or_default();
            *byte = u8::from_str_radix(pair, 16).map_err(|_| "expected 64 hexadecimal digits")?;
        }
        Ok(Self(bytes))
    }
}
impl Serialize for RequestHash {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}
impl<'de> Deserialize<'de> for RequestHash {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::llm::message::{Arguments, ToolCall};

    fn request(parameters: Value, arguments: Value) -> ChatRequest {
        let call = ToolCall { id: "c1".into(), name: "find".into(), arguments: Arguments::json(arguments) };
        ChatRequest::new(
            Purpose::AGENT,
            vec![
                ChatMessage::system("be brief"),
                Arc::new(ChatMessage::Assistant { text: "".into(), tool_calls: vec![call.clone()], thoughts: None }),
                ChatMessage::tool(&call, "{}"),
            ],
        )
        .with_tools([ToolSpec {
            name: "find".into(),
            description: "finds".into(),
            parameters: Arc::new(parameters),
            strict: false,
        }])
    }

    #[test]
    fn the_hash_ignores_the_order_of_keys_and_nothing_else() {
        let a = request(json!({"type": "object", "properties": {"b": {}, "a": {}}}), json!({"x": 1, "y": 2}));
        let b = request(json!({"properties": {"a": {}, "b": {}}, "type": "object"}), json!({"y": 2, "x": 1}));
        assert_eq!(a.hash(), b.hash());
        let c = request(json!({"type": "object", "properties": {"b": {}, "a": {}}}), json!({"x": 1, "y": 3}));
        assert_ne!(a.hash(), c.hash());
        let mut warm = a.clone();
        warm.temperature = Some(0.5);
        assert_ne!(a.hash(), warm.hash());
    }

    #[test]
    fn the_hash_stays_the_same_for_ever() {
        // Journals and cassettes hold these hashes: if this test fails, stored ones no longer match.
        let request = ChatRequest::new(Purpose::COMMANDS, vec![ChatMessage::user("hi")]);
        assert_eq!(
            request.canonical(),
            r#"{"messages":[{"role":"user","text":"hi"}],"settings":{"purpose":"commands","tool_choice":"auto","parallel_tool_calls":null,"temperature":null,"max_tokens":null,"reasoning_effort":null},"tools":[]}"#
        );
    }

    #[test]
    fn requests_and_hashes_survive_storage() {
        let a = request(json!({"type": "object"}), json!({"x": [1, "ü"]}));
        let text = serde_json::to_string(&a).unwrap();
        assert_eq!(serde_json::from_str::<ChatRequest>(&text).unwrap(), a);
        assert_eq!(a.hash().to_string().parse(), Ok(a.hash()));
        assert!("zz".parse::<RequestHash>().is_err());
        assert!("é".repeat(32).parse::<RequestHash>().is_err());
    }
}
