//! The body of a chat completions request. Borrowed from the request: nothing of the history is copied but into the body.

use std::{borrow::Cow, sync::Arc};

use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::llm::{
    ModelConfig, json,
    message::{ChatMessage, SILENCE, ToolCall},
    price::LOCAL_KEYS,
    profile::{Effort, ModelProfile, TokenLimit},
    request::{ChatRequest, ToolChoice, ToolSpec},
    tool_list::Form,
};

/// Keys of a model entry that this side sets or uses itself; they never travel as extras.
const OWN_KEYS: &[&str] = &[
    "model",
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "stream",
    "stream_options",
    "temperature",
    "max_tokens",
    "max_completion_tokens",
    "reasoning_effort",
    "n",
    "functions",
    "function_call",
    // Of client libraries, not of the wire.
    "cache",
    "use_chat_completions_endpoint",
    "api_type",
    "request_timeout",
    "num_retries",
    "drop_params",
    "strict",
];

/// What stands behind the messages and the tools.
#[derive(Serialize)]
struct Settings<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<Effort>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// The extras of a model entry that may travel.
pub(super) fn extras(config: &ModelConfig) -> Map<String, Value> {
    let travels = |key: &str| !OWN_KEYS.contains(&key) && !LOCAL_KEYS.contains(&key) && !key.starts_with("aws_");
    config.extra.iter().filter(|(key, _)| travels(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Whether the answer is asked for in pieces. Some servers cannot stream (`stream: false` of their entry); their whole answer
/// is read as a stream of one piece.
pub(super) fn streams(config: &ModelConfig) -> bool {
    config.extra.get("stream").and_then(Value::as_bool).unwrap_or(true)
}

/// The body for `request`. `extra` comes from [`extras`].
pub(super) fn body(
    request: &ChatRequest,
    config: &ModelConfig,
    profile: &ModelProfile,
    extra: &Map<String, Value>,
) -> Result<Vec<u8>, serde_json::Error> {
    let limit = request.max_tokens.or(config.max_tokens);
    let effort = profile.effort(request.reasoning_effort.or(config.reasoning_effort));
    // Several servers refuse an empty list, and settings of tools without tools.
    let has_tools = profile.tools && !request.tools.is_empty();
    let parallel = request.parallel_tool_calls.or(config.parallel_tool_calls);
    let stream = streams(config);
    let settings = Settings {
        tool_choice: if has_tools { choice(&request.tool_choice) } else { None },
        parallel_tool_calls: parallel.filter(|_| has_tools && profile.parallel_switch),
        temperature: profile.temperature(request.temperature.or(config.temperature), effort),
        max_tokens: limit.filter(|_| profile.token_limit == TokenLimit::MaxTokens),
        max_completion_tokens: limit.filter(|_| profile.token_limit == TokenLimit::MaxCompletionTokens),
        reasoning_effort: effort,
        stream,
        stream_options: (stream && profile.stream_options).then_some(StreamOptions { include_usage: true }),
        extra,
    };
    let offered: &[u8] = if has_tools {
        let strict = profile.strict_tools;
        let form = if strict { Form::StrictChat } else { Form::Chat };
        request.tools.written(form, |list, out| tools(list, strict, out))
    } else {
        &[]
    };
    let mut bytes = Vec::with_capacity(request.messages.iter().map(room).sum::<usize>() + offered.len() + 512);
    json::field("{\"model\":", &config.model, &mut bytes);
    bytes.extend_from_slice(b",\"messages\":[");
    let wire = Wire { system_anywhere: profile.system_anywhere, short_ids: wants_short_ids(config) };
    messages(&request.messages, wire, &mut bytes)?;
    bytes.push(b']');
    bytes.extend_from_slice(offered);
    let rest = bytes.len();
    serde_json::to_writer(&mut bytes, &settings)?;
    // The settings go on where the body has begun.
    if let Some(brace) = bytes.get_mut(rest) {
        *brace = b',';
    }
    Ok(bytes)
}

fn choice(choice: &ToolChoice) -> Option<Value> {
    Some(match choice {
        ToolChoice::Auto => return None,
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Tool(name) => json!({"type": "function", "function": {"name": name}}),
    })
}

fn tools(tools: &[ToolSpec], strict: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"tools\":[");
    // Schemas are plain data: they can always be written.
    let _ = json::list(tools, out, |spec, out| tool(spec, strict, out));
    out.push(b']');
}

fn tool(tool: &ToolSpec, strict: bool, out: &mut Vec<u8>) -> serde_json::Result<()> {
    json::field("{\"type\":\"function\",\"function\":{\"name\":", &tool.name, out);
    json::field(",\"description\":", &tool.description, out);
    out.extend_from_slice(b",\"parameters\":");
    serde_json::to_writer(&mut *out, &tool.parameters)?;
    out.extend_from_slice(match (strict, tool.strict) {
        (false, _) => b"}}".as_slice(),
        (true, true) => b",\"strict\":true}}",
        (true, false) => b",\"strict\":false}}",
    });
    Ok(())
}

/// Room for most messages as they are written: lines and quotes of a text become two bytes each.
fn room(message: &Arc<ChatMessage>) -> usize {
    let calls = match &**message {
        ChatMessage::Assistant { tool_calls, .. } => tool_calls.len(),
        _ => 0,
    };
    message.text().len() * 5 / 4 + 64 + 256 * calls
}

/// How this server wants its messages.
#[derive(Clone, Copy)]
struct Wire {
    system_anywhere: bool,
    short_ids: bool,
}

/// Mistral takes nothing but nine letters or digits as the id of a call.
fn wants_short_ids(config: &ModelConfig) -> bool {
    let model = config.model.to_ascii_lowercase();
    config.provider == "mistral" || ["mistral", "mixtral", "magistral"].iter().any(|name| model.contains(name))
}

/// An id as this server takes it; the same for the same id, so that a result finds its call.
fn id(id: &str, wire: Wire) -> Cow<'_, str> {
    if !wire.short_ids || (id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())) {
        return id.into();
    }
    let letter = |byte: &u8| char::from_digit(u32::from(byte % 36), 36);
    Sha256::digest(id.as_bytes()).iter().filter_map(letter).take(9).collect()
}

fn messages(messages: &[Arc<ChatMessage>], wire: Wire, out: &mut Vec<u8>) -> serde_json::Result<()> {
    let mut rest = messages;
    if !wire.system_anywhere {
        // Many chat templates take one system message, at the start.
        let leading = messages.iter().take_while(|message| matches!(***message, ChatMessage::System { .. })).count();
        let (system, others) = messages.split_at(leading);
        if let Some(first) = system.first() {
            let mut text = Cow::Borrowed(first.text());
            for more in system.iter().skip(1) {
                text.to_mut().push_str("\n\n");
                text.to_mut().push_str(more.text());
            }
            json::field("{\"role\":\"system\",\"content\":", &text, out);
            out.extend_from_slice(if others.is_empty() { b"}" } else { b"}," });
        }
        rest = others;
    }
    json::list(rest, out, |message, out| write(message, wire, out))?;
    if matches!(messages.last().map(|last| &**last), Some(ChatMessage::Assistant { .. })) {
        json::field(",{\"role\":\"user\",\"content\":", SILENCE.trim_ascii_end(), out);
        out.push(b'}');
    }
    Ok(())
}

fn write(message: &ChatMessage, wire: Wire, out: &mut Vec<u8>) -> serde_json::Result<()> {
    match message {
        ChatMessage::System { text } if wire.system_anywhere => {
            json::field("{\"role\":\"system\",\"content\":", text, out);
        }
        ChatMessage::System { text } | ChatMessage::User { text } => {
            json::field("{\"role\":\"user\",\"content\":", text, out);
        }
        ChatMessage::Assistant { text, tool_calls, .. } => {
            if text.is_empty() && !tool_calls.is_empty() {
                out.extend_from_slice(b"{\"role\":\"assistant\",\"content\":null");
            } else {
                json::field("{\"role\":\"assistant\",\"content\":", text, out);
            }
            if !tool_calls.is_empty() {
                out.extend_from_slice(b",\"tool_calls\":[");
                json::list(tool_calls, out, |call, out| {
                    json::field("{\"id\":", &id(&call.id, wire), out);
                    json::field(",\"type\":\"function\",\"function\":{\"name\":", &call.name, out);
                    json::field(",\"arguments\":", &arguments(call), out);
                    out.extend_from_slice(b"}}");
                    Ok(())
                })?;
                out.push(b']');
            }
        }
        ChatMessage::Tool { call_id, text, .. } => {
            json::field("{\"role\":\"tool\",\"content\":", text, out);
            json::field(",\"tool_call_id\":", &id(call_id, wire), out);
        }
    }
    out.push(b'}');
    Ok(())
}

/// Servers parse the arguments of the history again; what was malformed must come back as JSON all the same.
fn arguments(call: &ToolCall) -> String {
    match call.arguments.as_json() {
        // A formatter, which `to_string` would take, is slower.
        Some(value) => serde_json::to_string(value).unwrap_or_default(),
        None => json!({"malformed": call.arguments.to_string()}).to_string(),
    }
}

#[cfg(test)]
mod tests;
