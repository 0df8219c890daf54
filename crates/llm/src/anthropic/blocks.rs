//! Messages as blocks of the wire.

use std::{borrow::Cow, sync::Arc};

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Value, json};

use crate::message::{ChatMessage, ReasoningBlocks, SILENCE, ToolCall};

/// One block of a message.
pub(super) enum Block<'a> {
    Text(&'a str),
    Call(&'a ToolCall),
    Result {
        call_id: &'a str,
        text: &'a str,
    },
    /// A block of the vendor's own, given back as it came.
    Thought(&'a Value),
}

/// A block, and whether the vendor's cache shall reach up to it.
pub(super) struct Marked<'a> {
    pub(super) block: Block<'a>,
    pub(super) cache_control: Option<&'a Value>,
}

/// One message of the wire.
#[derive(Serialize)]
pub(super) struct Turn<'a> {
    role: &'static str,
    pub(super) content: Vec<Marked<'a>>,
    /// How many messages of the request it and those before it stand for.
    #[serde(skip)]
    pub(super) upto: usize,
}

/// The instructions at the head of the request, and what follows them.
pub(super) struct System<'a> {
    pub(super) blocks: Vec<Marked<'a>>,
    pub(super) rest: &'a [Arc<ChatMessage>],
}

const USER: &str = "user";
const ASSISTANT: &str = "assistant";

/// Splits the instructions off.
pub(super) fn system(messages: &[Arc<ChatMessage>]) -> System<'_> {
    let leading = messages.iter().take_while(|message| matches!(***message, ChatMessage::System { .. })).count();
    let (system, rest) = messages.split_at(leading);
    System { blocks: system.iter().filter_map(|message| text(message.text())).collect(), rest }
}

/// The messages after the instructions, as turns that begin and end with the user's side. `model` may see its own thoughts.
pub(super) fn turns<'a>(messages: &'a [Arc<ChatMessage>], model: &str) -> Vec<Turn<'a>> {
    let mut turns: Vec<Turn<'a>> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let role = if matches!(**message, ChatMessage::Assistant { .. }) { ASSISTANT } else { USER };
        let mut content = blocks(message, model);
        if content.is_empty() {
            continue;
        }
        match turns.last_mut() {
            Some(last) if last.role == role => {
                last.content.append(&mut content);
                last.upto = at + 1;
            }
            last => {
                if last.is_none() && role == ASSISTANT {
                    turns.push(silence(at));
                }
                turns.push(Turn { role, content, upto: at + 1 });
            }
        }
    }
    // Newer models refuse to go on with an answer of their own.
    if turns.last().is_none_or(|last| last.role == ASSISTANT) {
        turns.push(silence(messages.len()));
    }
    turns
}

fn silence<'a>(upto: usize) -> Turn<'a> {
    Turn { role: USER, content: vec![plain(Block::Text(SILENCE.trim_ascii_end()))], upto }
}

fn plain(block: Block<'_>) -> Marked<'_> {
    Marked { block, cache_control: None }
}

/// The wire refuses blocks of text that hold none.
fn text(text: &str) -> Option<Marked<'_>> {
    (!text.trim().is_empty()).then(|| plain(Block::Text(text)))
}

fn blocks<'a>(message: &'a ChatMessage, model: &str) -> Vec<Marked<'a>> {
    match message {
        ChatMessage::System { text: said } | ChatMessage::User { text: said } => text(said).into_iter().collect(),
        ChatMessage::Tool { call_id, text, .. } => vec![plain(Block::Result { call_id, text })],
        ChatMessage::Assistant { text: said, tool_calls, thoughts } => {
            let mine = thoughts.as_deref().filter(|thoughts| &*thoughts.model == model);
            let said = text(said).into_iter().chain(tool_calls.iter().map(|call| plain(Block::Call(call)))).collect();
            match mine {
                Some(thoughts) => interleaved(said, thoughts),
                None => said,
            }
        }
    }
}

/// Thoughts at their places among what was said.
fn interleaved<'a>(said: Vec<Marked<'a>>, thoughts: &'a ReasoningBlocks) -> Vec<Marked<'a>> {
    let mut thoughts = thoughts.blocks.iter().peekable();
    let mut content = Vec::with_capacity(said.len() + 1);
    for (place, block) in said.into_iter().enumerate() {
        while let Some(thought) = thoughts.next_if(|thought| thought.after <= place) {
            content.push(plain(Block::Thought(&thought.block)));
        }
        content.push(block);
    }
    content.extend(thoughts.map(|thought| plain(Block::Thought(&thought.block))));
    content
}

impl Serialize for Marked<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if let Block::Thought(value) = self.block {
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
                    // The wire takes nothing but objects; what the model wrote otherwise comes back inside one.
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
            Block::Thought(_) => {}
        }
        if let Some(cache_control) = self.cache_control {
            map.serialize_entry("cache_control", cache_control)?;
        }
        map.end()
    }
}

/// The wire takes letters, digits, `_` and `-` in ids; other vendors' ids may hold more.
fn id(text: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if text.chars().all(fits) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if fits(c) { c } else { '_' }).collect())
}
