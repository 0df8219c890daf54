//! Messages as content blocks of the Messages API.

use std::{borrow::Cow, sync::Arc};

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Value, json};

use crate::message::{ChatMessage, NO_USER_MESSAGE, ReasoningBlocks, ToolCall};

/// The content of one block.
pub(super) enum Block<'a> {
    Text(&'a str),
    Call(&'a ToolCall),
    Result {
        call_id: &'a str,
        text: &'a str,
    },
    /// A reasoning block, sent back unchanged.
    Reasoning(&'a Value),
}

/// A content block, and whether the prompt cache has a breakpoint after it.
pub(super) struct ContentBlock<'a> {
    pub(super) block: Block<'a>,
    pub(super) cache_control: Option<&'a Value>,
}

/// One message of the API.
#[derive(Serialize)]
pub(super) struct ApiMessage<'a> {
    role: &'static str,
    pub(super) content: Vec<ContentBlock<'a>>,
    /// How many messages of the request it and the API messages before it represent.
    #[serde(skip)]
    pub(super) messages_covered: usize,
}

/// The leading system messages of a request, and the messages after them.
pub(super) struct SystemPrompt<'a> {
    pub(super) blocks: Vec<ContentBlock<'a>>,
    pub(super) rest: &'a [Arc<ChatMessage>],
}

const USER: &str = "user";
const ASSISTANT: &str = "assistant";

/// Splits off the leading system messages.
pub(super) fn split_system(messages: &[Arc<ChatMessage>]) -> SystemPrompt<'_> {
    let leading = messages.iter().take_while(|message| matches!(***message, ChatMessage::System { .. })).count();
    let (system, rest) = messages.split_at(leading);
    SystemPrompt { blocks: system.iter().filter_map(|message| text_block(message.text())).collect(), rest }
}

/// The messages after the system prompt, with alternating roles, beginning and ending with `user`. Only reasoning of `model` is
/// included.
pub(super) fn api_messages<'a>(messages: &'a [Arc<ChatMessage>], model: &str) -> Vec<ApiMessage<'a>> {
    let mut api_messages: Vec<ApiMessage<'a>> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let role = if matches!(**message, ChatMessage::Assistant { .. }) { ASSISTANT } else { USER };
        let mut content = blocks(message, model);
        if content.is_empty() {
            continue;
        }
        match api_messages.last_mut() {
            Some(last) if last.role == role => {
                last.content.append(&mut content);
                last.messages_covered = at + 1;
            }
            last => {
                if last.is_none() && role == ASSISTANT {
                    api_messages.push(no_user_message(at));
                }
                api_messages.push(ApiMessage { role, content, messages_covered: at + 1 });
            }
        }
    }
    // Newer models reject requests that end with an assistant message.
    if api_messages.last().is_none_or(|last| last.role == ASSISTANT) {
        api_messages.push(no_user_message(messages.len()));
    }
    api_messages
}

fn no_user_message<'a>(messages_covered: usize) -> ApiMessage<'a> {
    ApiMessage { role: USER, content: vec![block(Block::Text(NO_USER_MESSAGE.trim_ascii_end()))], messages_covered }
}

fn block(content: Block<'_>) -> ContentBlock<'_> {
    ContentBlock { block: content, cache_control: None }
}

/// A text block; `None` for blank text, which the API rejects.
fn text_block(text: &str) -> Option<ContentBlock<'_>> {
    (!text.trim().is_empty()).then(|| block(Block::Text(text)))
}

/// The content blocks of one message.
fn blocks<'a>(message: &'a ChatMessage, model: &str) -> Vec<ContentBlock<'a>> {
    match message {
        ChatMessage::System { text } | ChatMessage::User { text } => text_block(text).into_iter().collect(),
        ChatMessage::Tool { call_id, text, .. } => vec![block(Block::Result { call_id, text })],
        ChatMessage::Assistant { text, tool_calls, reasoning } => {
            let own_reasoning = reasoning.as_deref().filter(|reasoning| &*reasoning.model == model);
            let content =
                text_block(text).into_iter().chain(tool_calls.iter().map(|call| block(Block::Call(call)))).collect();
            match own_reasoning {
                Some(reasoning) => with_reasoning(content, reasoning),
                None => content,
            }
        }
    }
}

/// Inserts reasoning blocks at their positions.
fn with_reasoning<'a>(blocks: Vec<ContentBlock<'a>>, reasoning: &'a ReasoningBlocks) -> Vec<ContentBlock<'a>> {
    let mut reasoning = reasoning.blocks.iter().peekable();
    let mut content = Vec::with_capacity(blocks.len() + 1);
    for (position, block_of_message) in blocks.into_iter().enumerate() {
        while let Some(next) = reasoning.next_if(|reasoning| reasoning.after <= position) {
            content.push(block(Block::Reasoning(&next.block)));
        }
        content.push(block_of_message);
    }
    content.extend(reasoning.map(|reasoning| block(Block::Reasoning(&reasoning.block))));
    content
}

impl Serialize for ContentBlock<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if let Block::Reasoning(value) = self.block {
            return value.serialize(s);
        }
        let mut map = s.serialize_map(None)?;
        match &self.block {
            Block::Text(text) => {
                map.serialize_entry("type", "text")?;
                map.serialize_entry("text", text)?;
            }
            Block::Call(call) => {
                map.serialize_entry("type", "tool_use")?;
                map.serialize_entry("id", &id(&call.id))?;
                map.serialize_entry("name", &call.name)?;
                match call.arguments.as_json().filter(|value| value.is_object()) {
                    Some(value) => map.serialize_entry("input", value)?,
                    // The API accepts only objects; malformed arguments are wrapped in one.
                    None if call.arguments.drop_reason().is_some() => map.serialize_entry("input", &json!({}))?,
                    None => map.serialize_entry("input", &json!({"malformed": call.arguments.to_string()}))?,
                }
            }
            Block::Result { call_id, text } => {
                map.serialize_entry("type", "tool_result")?;
                map.serialize_entry("tool_use_id", &id(call_id))?;
                if !text.trim().is_empty() {
                    map.serialize_entry("content", text)?;
                }
            }
            Block::Reasoning(_) => {}
        }
        if let Some(cache_control) = self.cache_control {
            map.serialize_entry("cache_control", cache_control)?;
        }
        map.end()
    }
}

/// The API accepts letters, digits, `_` and `-` in ids; ids of other providers may contain more.
fn id(text: &str) -> Cow<'_, str> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if text.chars().all(is_allowed) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if is_allowed(c) { c } else { '_' }).collect())
}
