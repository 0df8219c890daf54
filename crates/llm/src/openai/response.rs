//! Decodes the response of the Chat Completions API: its stream of chunks, or one JSON text. Accepted deviations of providers are
//! listed in `tests/responses/openai/`. Source: <https://platform.openai.com/docs/api-reference/chat-streaming>.

use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

use crate::{
    error::{LlmError, LlmErrorKind},
    message::{DropReason, FinishReason, Usage},
    transport::{
        assembler::{Assembler, ToolCallDelta},
        body_format::{BodyDecoder, EventHandler, EventKind},
        error_response::error_from_event,
        json_repair, lenient,
    },
    warning::ResponseWarning,
};

/// The decoder of the response to a request of `message_count` messages and `request_bytes` bytes.
pub(crate) fn decoder(message_count: usize, request_bytes: usize) -> BodyDecoder<ChunkHandler> {
    BodyDecoder::new(ChunkHandler, Assembler::new(message_count, request_bytes))
}

/// Handles chunks, which need no state.
pub(crate) struct ChunkHandler;

/// The fields of interest of one chunk, or of a response that is not streamed.
#[derive(Deserialize)]
struct Chunk {
    #[serde(default, deserialize_with = "lenient::text")]
    model: Option<String>,
    choices: Option<Vec<Choice>>,
    usage: Option<Value>,
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default, deserialize_with = "lenient::number")]
    index: Option<u64>,
    delta: Option<MessageDelta>,
    /// Takes the place of `delta` in a response that is not streamed.
    message: Option<MessageDelta>,
    #[serde(default, deserialize_with = "lenient::text")]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct MessageDelta {
    content: Option<String>,
    #[serde(default, deserialize_with = "lenient::text")]
    refusal: Option<String>,
    /// A list of calls. Each is read by itself, so that an odd one does not spoil the response.
    tool_calls: Option<Value>,
}

#[derive(Deserialize)]
struct ApiUsage {
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
    prompt_tokens_details: Option<InputDetails>,
    completion_tokens_details: Option<OutputDetails>,
}
#[derive(Deserialize)]
struct InputDetails {
    cached_tokens: Option<u64>,
}
#[derive(Deserialize)]
struct OutputDetails {
    reasoning_tokens: Option<u64>,
}

impl EventHandler for ChunkHandler {
    fn event(&mut self, name: &[u8], data: &[u8], to: &mut Assembler) -> Result<EventKind, LlmError> {
        if data.trim_ascii() == b"[DONE]" {
            return Ok(EventKind::End);
        }
        if name == b"error" {
            return Err(error_from_event(data));
        }
        if data.trim_ascii().is_empty() {
            return Ok(EventKind::Progress);
        }
        let (chunk, repaired) = json_repair::parse::<Chunk>(data)?;
        if repaired {
            to.warn(ResponseWarning::InvalidUnicodeReplaced);
        }
        if chunk.error.is_some() {
            return Err(error_from_event(data));
        }
        add_chunk(chunk, to)?;
        Ok(EventKind::Progress)
    }
}

fn add_chunk(chunk: Chunk, to: &mut Assembler) -> Result<(), LlmError> {
    to.model(&chunk.model.unwrap_or_default());
    for choice in chunk.choices.unwrap_or_default() {
        // Requests ask for one choice only.
        if choice.index.is_some_and(|index| index > 0) {
            continue;
        }
        to.begin();
        if let Some(delta) = choice.delta.or(choice.message) {
            add_delta(delta, to)?;
        }
        if let Some(finish) = choice.finish_reason.and_then(|reason| finish(&reason)) {
            to.finish(finish?);
        }
    }
    if let Some(usage) = chunk.usage.and_then(|usage| serde_json::from_value::<ApiUsage>(usage).ok()) {
        to.usage(Usage {
            input: usage.prompt_tokens,
            output: usage.completion_tokens,
            cached: usage.prompt_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0),
            reasoning: usage.completion_tokens_details.and_then(|details| details.reasoning_tokens).unwrap_or(0),
            ..Usage::default()
        });
    }
    Ok(())
}

fn add_delta(delta: MessageDelta, to: &mut Assembler) -> Result<(), LlmError> {
    to.text(&delta.content.unwrap_or_default())?;
    to.refusal(&delta.refusal.unwrap_or_default())?;
    for (place, call) in lenient::list_of(delta.tool_calls).into_iter().enumerate() {
        add_call(place, &call, to);
    }
    Ok(())
}

/// Adds one element of `tool_calls`. What cannot be read as a call stays as one that never runs, so that the model is told.
fn add_call(place: usize, call: &Value, to: &mut Assembler) {
    let Value::Object(call) = call else {
        let (place, drop_reason) = (Some(place), Some(DropReason::Unreadable));
        to.call(ToolCallDelta { place, drop_reason, ..ToolCallDelta::default() });
        return;
    };
    let present = |key: &str| call.get(key).filter(|value| !value.is_null());
    // Some servers leave out the object of the function.
    let function = match present("function") {
        Some(Value::Object(function)) => Some(function),
        None => Some(call),
        Some(_) => None,
    };
    let name = function.and_then(|function| function.get("name")).filter(|name| !name.is_null());
    let other_type = present("type").filter(|kind| !matches!(kind.as_str(), Some("" | "function")));
    let other_name = other_type.and_then(Value::as_str).map(|kind| {
        let name = call.get(kind).and_then(|call| call.get("name")).and_then(Value::as_str);
        name.unwrap_or(kind)
    });
    let is_unreadable = function.is_none() || name.is_some_and(|name| !name.is_string());
    let drop_reason = match (other_type, is_unreadable) {
        (Some(_), _) => Some(DropReason::OtherType),
        (None, true) => Some(DropReason::Unreadable),
        (None, false) => None,
    };
    let id = present("id").and_then(lenient::text_of).unwrap_or_default();
    let index = present("index").and_then(lenient::number_of);
    let is_bare = index.is_none() && id.is_empty() && drop_reason == Some(DropReason::Unreadable);
    to.call(ToolCallDelta {
        index,
        id: &id,
        name: name.and_then(Value::as_str).or(other_name).unwrap_or_default(),
        arguments: &lenient::arguments_of(function.and_then(|function| function.get("arguments"))),
        drop_reason,
        place: is_bare.then_some(place),
    });
}

/// The finish reason of the API's `finish_reason`; `None` for an empty one, which some servers send before the end.
fn finish(reason: &str) -> Option<Result<FinishReason, LlmError>> {
    Some(Ok(match reason {
        "" => return None,
        "tool_calls" | "function_call" | "tool_use" => FinishReason::ToolCalls,
        "length" | "max_tokens" | "model_length" => FinishReason::Length,
        "content_filter" | "safety" => FinishReason::ContentFilter,
        "error" | "abort" | "cancelled" | "network_error" => {
            return Some(Err(LlmError::new(LlmErrorKind::Truncated).with_detail(reason)));
        }
        _ => FinishReason::Stop,
    }))
}
