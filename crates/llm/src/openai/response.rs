//! Decodes the response of the Chat Completions API: its stream of chunks, or one JSON text. Accepted deviations of providers are
//! listed in `tests/responses/openai/`. Source: <https://platform.openai.com/docs/api-reference/chat-streaming>.

use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value};

use crate::{
    error::{LlmError, LlmErrorKind},
    message::{FinishReason, Usage},
    transport::{
        assembler::{Assembler, ToolCallDelta},
        body_format::{BodyDecoder, EventHandler, EventKind},
        error_response::error_from_event,
        json_repair,
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
    model: Option<String>,
    choices: Option<Vec<Choice>>,
    usage: Option<Value>,
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Choice {
    index: Option<u64>,
    delta: Option<MessageDelta>,
    /// Takes the place of `delta` in a response that is not streamed.
    message: Option<MessageDelta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct MessageDelta {
    content: Option<String>,
    refusal: Option<String>,
    tool_calls: Option<Vec<Call>>,
}

#[derive(Deserialize)]
struct Call {
    index: Option<u64>,
    id: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    function: Option<Function>,
    /// A call of another type has its name in an object of that name.
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Deserialize)]
struct Function {
    name: Option<String>,
    /// JSON as a string by the API; some servers send the object itself.
    arguments: Option<Value>,
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
    for call in delta.tool_calls.unwrap_or_default() {
        let other_type = call.kind.filter(|kind| call.function.is_none() && !matches!(kind.as_str(), "" | "function"));
        let other_name = other_type.as_ref().map(|kind| {
            let name = call.others.get(kind).and_then(|call| call.get("name")).and_then(Value::as_str);
            name.unwrap_or(kind).to_owned()
        });
        let (name, arguments) = call.function.map_or((None, None), |function| (function.name, function.arguments));
        let arguments = match arguments {
            None => String::new(),
            Some(Value::String(text)) => text,
            Some(object) => object.to_string(),
        };
        let (id, name) = (call.id.unwrap_or_default(), name.or(other_name).unwrap_or_default());
        to.call(ToolCallDelta {
            index: call.index,
            id: &id,
            name: &name,
            arguments: &arguments,
            is_other_type: other_type.is_some(),
        });
    }
    Ok(())
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
