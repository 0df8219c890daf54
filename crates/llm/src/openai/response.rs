//! Decodes the response of the Chat Completions API: its stream of chunks, or one JSON text. Accepted deviations of providers are
//! listed in `tests/responses/openai/`. Source: <https://platform.openai.com/docs/api-reference/chat-streaming>.

use std::sync::Arc;

use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value};

use super::vendor_state::{CONTENT, VendorState, is_state};
use crate::{
    error::{LlmError, LlmErrorKind},
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
pub(crate) fn decoder(model: Arc<str>, message_count: usize, request_bytes: usize) -> BodyDecoder<ChunkHandler> {
    BodyDecoder::new(ChunkHandler(VendorState::new(model)), Assembler::new(message_count, request_bytes))
}

/// Handles chunks, and collects what the provider wants back.
pub(crate) struct ChunkHandler(VendorState);

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
    /// A text, or a list of parts.
    content: Option<Value>,
    #[serde(default, deserialize_with = "lenient::text")]
    refusal: Option<String>,
    /// A list of calls. Each is read by itself, so that an odd one does not spoil the response.
    tool_calls: Option<Value>,
    /// The only call, in the form before `tool_calls`.
    function_call: Option<Value>,
    // Data of the provider. Listed one by one: collecting unknown keys would cost every delta a second pass.
    reasoning_content: Option<Value>,
    reasoning: Option<Value>,
    reasoning_text: Option<Value>,
    reasoning_details: Option<Value>,
    reasoning_opaque: Option<Value>,
    thinking: Option<Value>,
    thinking_blocks: Option<Value>,
    thought_signature: Option<Value>,
    extra_content: Option<Value>,
    provider_specific_fields: Option<Value>,
    signature: Option<Value>,
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
        add_chunk(chunk, &mut self.0, to)?;
        Ok(EventKind::Progress)
    }

    fn complete(&mut self, answer: &mut ChatResponse, call_states: Vec<(usize, Value)>) {
        answer.reasoning = self.0.finish(call_states, !answer.text.is_empty());
    }
}

fn add_chunk(chunk: Chunk, state: &mut VendorState, to: &mut Assembler) -> Result<(), LlmError> {
    to.model(&chunk.model.unwrap_or_default());
    for choice in chunk.choices.unwrap_or_default() {
        // Requests ask for one choice only.
        if choice.index.is_some_and(|index| index > 0) {
            continue;
        }
        to.begin();
        if let Some(delta) = choice.delta.or(choice.message) {
            add_delta(delta, state, to)?;
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

fn add_delta(delta: MessageDelta, state: &mut VendorState, to: &mut Assembler) -> Result<(), LlmError> {
    match delta.content {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => {
            to.text(&text)?;
        }
        parts => {
            for part in lenient::list_of(parts) {
                add_part(part, state, to)?;
            }
        }
    }
    to.refusal(&delta.refusal.unwrap_or_default())?;
    for (key, value) in [
        ("reasoning_content", delta.reasoning_content),
        ("reasoning", delta.reasoning),
        ("reasoning_text", delta.reasoning_text),
        ("reasoning_details", delta.reasoning_details),
        ("reasoning_opaque", delta.reasoning_opaque),
        ("thinking", delta.thinking),
        ("thinking_blocks", delta.thinking_blocks),
        ("thought_signature", delta.thought_signature),
        ("extra_content", delta.extra_content),
        ("provider_specific_fields", delta.provider_specific_fields),
        ("signature", delta.signature),
    ] {
        if let Some(value) = value {
            state.add(key, value);
        }
    }
    if let Some(Value::Object(function)) = delta.function_call {
        add_call(
            0,
            &Value::Object(Map::from_iter([("index".to_owned(), 0.into()), ("function".to_owned(), function.into())])),
            to,
        );
    }
    for (place, call) in lenient::list_of(delta.tool_calls).into_iter().enumerate() {
        add_call(place, &call, to);
    }
    Ok(())
}

/// Adds one part of a list-shaped `content`. Texts are the text, thoughts are reasoning, and anything else is skipped.
fn add_part(part: Value, state: &mut VendorState, to: &mut Assembler) -> Result<(), LlmError> {
    let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
    let text = part.as_str().or_else(|| part.get("text")?.as_str());
    match (kind, text) {
        ("" | "text" | "output_text", Some(text)) => {
            to.text(text)?;
        }
        ("refusal", _) => to.refusal(part.get("refusal").and_then(Value::as_str).unwrap_or_default())?,
        ("thinking" | "redacted_thinking" | "reasoning", _) => state.add(CONTENT, Value::Array(vec![part])),
        _ => to.warn(ResponseWarning::PartsSkipped),
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
    let state: Map<String, Value> = call
        .iter()
        .filter(|(key, value)| is_state(key) && !value.is_null())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let is_bare = index.is_none() && id.is_empty() && drop_reason == Some(DropReason::Unreadable);
    to.call(ToolCallDelta {
        index,
        id: &id,
        name: name.and_then(Value::as_str).or(other_name).unwrap_or_default(),
        arguments: &lenient::arguments_of(function.and_then(|function| function.get("arguments"))),
        drop_reason,
        place: is_bare.then_some(place),
        state: (!state.is_empty()).then_some(&state),
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
