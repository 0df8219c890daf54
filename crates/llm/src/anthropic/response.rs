//! Decodes the response of the Messages API: its stream of events, or one JSON text.
//!
//! Unknown events and blocks are ignored, as the API reference requires. A `ping` does not count as progress and extends no
//! deadline. Source: <https://docs.anthropic.com/en/docs/build-with-claude/streaming>.

use std::sync::Arc;

use segue_base::limits;
use serde::Deserialize;
use serde_json::Value;

use super::thinking::ThinkingCollector;
use crate::{
    error::LlmError,
    message::{ChatResponse, DropReason, FinishReason, Usage},
    transport::{
        assembler::{Assembler, ToolCallDelta},
        body_format::{BodyDecoder, EventHandler, EventKind},
        error_response::error_from_event,
        json_repair, lenient,
    },
    warning::ResponseWarning,
};

/// The decoder of the response of `model` to a request of `message_count` messages and `request_bytes` bytes.
pub(crate) fn decoder(model: Arc<str>, message_count: usize, request_bytes: usize) -> BodyDecoder<MessageState> {
    let state = MessageState { blocks: Vec::new(), thinking: ThinkingCollector::new(model), usage: Counts::default() };
    BodyDecoder::new(state, Assembler::new(message_count, request_bytes))
}

/// The state of a response, in addition to the assembler's.
pub(crate) struct MessageState {
    /// Index and kind of the latest blocks that began; at most [`limits::MODEL_BLOCKS`].
    blocks: Vec<(u64, BlockKind)>,
    thinking: ThinkingCollector,
    usage: Counts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockKind {
    Text,
    Call,
    Reasoning,
    /// Another kind, such as a tool call that runs at the provider. It is ignored.
    Other,
}

#[derive(Deserialize)]
struct Event {
    #[serde(default, rename = "type", deserialize_with = "lenient::text")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "lenient::number")]
    index: Option<u64>,
    message: Option<Value>,
    content_block: Option<Value>,
    delta: Option<BlockDelta>,
    usage: Option<Value>,
    /// The blocks of a response that is not streamed. Each is read by itself, so that an odd one does not spoil the response.
    content: Option<Value>,
    #[serde(default, deserialize_with = "lenient::text")]
    model: Option<String>,
    #[serde(default, deserialize_with = "lenient::text")]
    stop_reason: Option<String>,
}

/// The message of `message_start`.
#[derive(Deserialize)]
struct MessageStart {
    model: Option<String>,
    usage: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Block {
    #[serde(rename = "type", deserialize_with = "lenient::text")]
    kind: Option<String>,
    #[serde(deserialize_with = "lenient::text")]
    text: Option<String>,
    #[serde(deserialize_with = "lenient::text")]
    id: Option<String>,
    name: Option<Value>,
    input: Option<Value>,
    #[serde(deserialize_with = "lenient::text")]
    thinking: Option<String>,
    #[serde(deserialize_with = "lenient::text")]
    signature: Option<String>,
    #[serde(deserialize_with = "lenient::text")]
    data: Option<String>,
}

impl Block {
    /// Reads a block. A bare text is a block of text; anything else that is no object has no content.
    fn of(value: Value) -> Self {
        match value {
            Value::String(text) => Self { kind: Some("text".to_owned()), text: Some(text), ..Self::default() },
            value => serde_json::from_value(value).unwrap_or_default(),
        }
    }
}

#[derive(Deserialize)]
struct BlockDelta {
    #[serde(default, deserialize_with = "lenient::text")]
    text: Option<String>,
    partial_json: Option<Value>,
    #[serde(default, deserialize_with = "lenient::text")]
    thinking: Option<String>,
    #[serde(default, deserialize_with = "lenient::text")]
    signature: Option<String>,
    #[serde(default, deserialize_with = "lenient::text")]
    stop_reason: Option<String>,
}

/// Token counts of the API. `input_tokens` excludes tokens read from and written to the cache. Later counts replace earlier ones.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Counts {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
}

impl EventHandler for MessageState {
    fn event(&mut self, name: &[u8], data: &[u8], to: &mut Assembler) -> Result<EventKind, LlmError> {
        if data.trim_ascii().is_empty() {
            return Ok(EventKind::Ping);
        }
        let (event, repaired) = json_repair::parse::<Event>(data)?;
        if repaired {
            to.warn(ResponseWarning::InvalidUnicodeReplaced);
        }
        // The data has the kind; the name of the event only repeats it.
        let kind = event.kind.clone().unwrap_or_else(|| String::from_utf8_lossy(name).into_owned());
        match kind.as_str() {
            "ping" => return Ok(EventKind::Ping),
            "message_stop" => return Ok(EventKind::End),
            "error" => return Err(error_from_event(data)),
            "message_start" => self.start(event.message, to),
            "content_block_start" => {
                if let Some(block) = event.content_block {
                    self.block(event.index, Block::of(block), to)?;
                }
            }
            "content_block_delta" => {
                if let Some(delta) = event.delta {
                    self.delta(event.index, delta, to)?;
                }
            }
            "message_delta" => {
                self.counts(event.usage, to);
                stop(event.delta.and_then(|delta| delta.stop_reason), to);
            }
            "message" => {
                to.begin();
                to.model(&event.model.unwrap_or_default());
                for (index, block) in (0u64..).zip(lenient::list_of(event.content)) {
                    self.block(Some(index), Block::of(block), to)?;
                }
                self.counts(event.usage, to);
                stop(event.stop_reason, to);
            }
            // Unknown events, and the ends of blocks, which are not needed.
            _ => {}
        }
        Ok(EventKind::Progress)
    }

    fn complete(&mut self, answer: &mut ChatResponse, _: Vec<(usize, Value)>) {
        answer.reasoning = self.thinking.finish();
    }
}

impl MessageState {
    fn start(&mut self, message: Option<Value>, to: &mut Assembler) {
        to.begin();
        let Some(start) = message.and_then(|message| serde_json::from_value::<MessageStart>(message).ok()) else {
            return;
        };
        to.model(&start.model.unwrap_or_default());
        // `output_tokens` of this event is a placeholder; the final count comes with `message_delta`.
        if let Some(counts) = start.usage.and_then(|usage| serde_json::from_value::<Counts>(usage).ok()) {
            self.usage = Counts { output_tokens: None, ..counts };
        }
    }

    fn counts(&mut self, usage: Option<Value>, to: &mut Assembler) {
        let Some(more) = usage.and_then(|usage| serde_json::from_value::<Counts>(usage).ok()) else { return };
        let known = self.usage;
        self.usage = Counts {
            input_tokens: more.input_tokens.or(known.input_tokens),
            output_tokens: more.output_tokens.or(known.output_tokens),
            cache_creation_input_tokens: more.cache_creation_input_tokens.or(known.cache_creation_input_tokens),
            cache_read_input_tokens: more.cache_read_input_tokens.or(known.cache_read_input_tokens),
        };
        let Counts { input_tokens: Some(input), output_tokens: Some(output), .. } = self.usage else { return };
        let cached = self.usage.cache_read_input_tokens.unwrap_or(0);
        let cache_written = self.usage.cache_creation_input_tokens.unwrap_or(0);
        let input = input.saturating_add(cached).saturating_add(cache_written);
        to.usage(Usage { input, output, cached, cache_written, ..Usage::default() });
    }

    fn block(&mut self, index: Option<u64>, block: Block, to: &mut Assembler) -> Result<(), LlmError> {
        to.begin();
        let kind = match block.kind.as_deref() {
            Some("text") => BlockKind::Text,
            Some("tool_use") => BlockKind::Call,
            Some("thinking" | "redacted_thinking") => BlockKind::Reasoning,
            _ => BlockKind::Other,
        };
        let index = index.unwrap_or_else(|| self.blocks.last().map_or(0, |(last, _)| last + 1));
        self.blocks.retain(|(number, _)| *number != index);
        if self.blocks.len() == limits::MODEL_BLOCKS {
            self.blocks.remove(0);
        }
        self.blocks.push((index, kind));
        match kind {
            BlockKind::Text => self.text(block.text, to),
            BlockKind::Call => {
                // An empty object only begins the call; its arguments come as deltas.
                let input = block.input.filter(|input| input.as_object().is_none_or(|input| !input.is_empty()));
                let arguments = lenient::arguments_of(input.as_ref());
                let id = block.id.unwrap_or_default();
                let is_odd = block.name.as_ref().is_some_and(|name| !name.is_string());
                let delta = ToolCallDelta {
                    index: Some(index),
                    id: &id,
                    name: block.name.as_ref().and_then(Value::as_str).unwrap_or_default(),
                    arguments: &arguments,
                    drop_reason: is_odd.then_some(DropReason::Unreadable),
                    place: None,
                    state: None,
                };
                self.call(delta, to);
                Ok(())
            }
            BlockKind::Reasoning => {
                if !to.is_finished() {
                    let (text, signature) = (block.thinking.unwrap_or_default(), block.signature.unwrap_or_default());
                    self.thinking.begin(index, text, signature, block.data);
                }
                Ok(())
            }
            BlockKind::Other => Ok(()),
        }
    }

    fn delta(&mut self, index: Option<u64>, delta: BlockDelta, to: &mut Assembler) -> Result<(), LlmError> {
        to.begin();
        let index = index.or(self.blocks.last().map(|(last, _)| *last)).unwrap_or(0);
        let kind = self.blocks.iter().find(|(number, _)| *number == index).map(|(_, kind)| *kind);
        match kind {
            Some(BlockKind::Other) => Ok(()),
            Some(BlockKind::Reasoning) => {
                if !to.is_finished() {
                    let (text, signature) = (delta.thinking.unwrap_or_default(), delta.signature.unwrap_or_default());
                    self.thinking.more(index, &text, &signature);
                }
                Ok(())
            }
            Some(BlockKind::Text) => self.text(delta.text, to),
            Some(BlockKind::Call) | None => {
                if let Some(arguments) = delta.partial_json {
                    let arguments = lenient::arguments_of(Some(&arguments));
                    let delta = ToolCallDelta { index: Some(index), arguments: &arguments, ..ToolCallDelta::default() };
                    self.call(delta, to);
                }
                self.text(delta.text, to)
            }
        }
    }

    fn text(&mut self, text: Option<String>, to: &mut Assembler) -> Result<(), LlmError> {
        if to.text(&text.unwrap_or_default())? {
            self.thinking.text_started();
        }
        Ok(())
    }

    fn call(&mut self, delta: ToolCallDelta<'_>, to: &mut Assembler) {
        if to.call(delta) {
            self.thinking.call_started();
        }
    }
}

fn stop(reason: Option<String>, to: &mut Assembler) {
    if let Some(finish) = reason.and_then(|reason| finish(&reason)) {
        to.finish(finish);
    }
}

/// The finish reason of a stop reason; `None` for an empty one, which some servers send before the end.
///
/// `refusal` means that the provider's safety classifier stopped the response. `pause_turn` belongs to tools that run at the
/// provider, which are never offered here, so the response is incomplete.
/// Source: <https://docs.anthropic.com/en/api/handling-stop-reasons>.
fn finish(reason: &str) -> Option<FinishReason> {
    Some(match reason {
        "" => return None,
        "tool_use" => FinishReason::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" | "pause_turn" => FinishReason::Length,
        "refusal" => FinishReason::ContentFilter,
        _ => FinishReason::Stop,
    })
}
