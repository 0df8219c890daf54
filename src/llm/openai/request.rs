//! The body of a chat completions request. Borrowed from the request: nothing of the history is copied but into the body.

use std::borrow::Cow;

use serde::{Serialize, Serializer, ser::SerializeSeq};
use serde_json::{Map, Value, json};

use crate::llm::{
    ModelConfig,
    message::{ChatMessage, ToolCall},
    price::LOCAL_KEYS,
    profile::{Effort, ModelProfile, TokenLimit},
    request::{ChatRequest, ToolChoice, ToolSpec},
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

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Messages<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Tools<'a>>,
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
    let tools = (profile.tools && !request.tools.is_empty()).then(|| Tools(&request.tools, profile.strict_tools));
    let has_tools = tools.is_some();
    let parallel = request.parallel_tool_calls.or(config.parallel_tool_calls);
    let stream = streams(config);
    let size = request.messages.iter().map(|message| message.text().len() + 64).sum::<usize>() + 1024;
    let mut bytes = Vec::with_capacity(size);
    serde_json::to_writer(
        &mut bytes,
        &Body {
            model: &config.model,
            messages: Messages(request, profile.system_anywhere),
            tools,
            tool_choice: if has_tools { choice(&request.tool_choice) } else { None },
            parallel_tool_calls: parallel.filter(|_| has_tools && profile.parallel_switch),
            temperature: profile.temperature(request.temperature.or(config.temperature), effort),
            max_tokens: limit.filter(|_| profile.token_limit == TokenLimit::MaxTokens),
            max_completion_tokens: limit.filter(|_| profile.token_limit == TokenLimit::MaxCompletionTokens),
            reasoning_effort: effort,
            stream,
            stream_options: (stream && profile.stream_options).then_some(StreamOptions { include_usage: true }),
            extra,
        },
    )?;
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

struct Tools<'a>(&'a [ToolSpec], bool);

impl Serialize for Tools<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Tool<'a> {
            r#type: &'static str,
            function: Function<'a>,
        }
        #[derive(Serialize)]
        struct Function<'a> {
            name: &'a str,
            description: &'a str,
            parameters: &'a Value,
            #[serde(skip_serializing_if = "Option::is_none")]
            strict: Option<bool>,
        }
        s.collect_seq(self.0.iter().map(|tool| Tool {
            r#type: "function",
            function: Function {
                name: &tool.name,
                description: &tool.description,
                parameters: &tool.parameters,
                strict: self.1.then_some(tool.strict),
            },
        }))
    }
}

/// The messages, and whether system messages may stand anywhere.
struct Messages<'a>(&'a ChatRequest, bool);

#[derive(Serialize)]
struct Wire<'a> {
    role: &'static str,
    content: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<WireCall<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

#[derive(Serialize)]
struct WireCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: WireFunction<'a>,
}

#[derive(Serialize)]
struct WireFunction<'a> {
    name: &'a str,
    arguments: String,
}

impl Serialize for Messages<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut seq = s.serialize_seq(None)?;
        let mut messages = self.0.messages.as_slice();
        if !self.1 {
            // Many chat templates take one system message, at the start.
            let leading =
                messages.iter().take_while(|message| matches!(***message, ChatMessage::System { .. })).count();
            let (system, rest) = messages.split_at(leading);
            if let Some(first) = system.first() {
                let mut text = Cow::Borrowed(first.text());
                for more in system.iter().skip(1) {
                    text.to_mut().push_str("\n\n");
                    text.to_mut().push_str(more.text());
                }
                seq.serialize_element(&plain("system", text))?;
            }
            messages = rest;
        }
        for message in messages {
            seq.serialize_element(&wire(message, self.1))?;
        }
        seq.end()
    }
}

fn plain<'a>(role: &'static str, text: impl Into<Cow<'a, str>>) -> Wire<'a> {
    Wire { role, content: Some(text.into()), tool_calls: None, tool_call_id: None }
}

fn wire(message: &ChatMessage, system_anywhere: bool) -> Wire<'_> {
    match message {
        ChatMessage::System { text } => plain(if system_anywhere { "system" } else { "user" }, &**text),
        ChatMessage::User { text } => plain("user", &**text),
        ChatMessage::Assistant { text, tool_calls, .. } if tool_calls.is_empty() => plain("assistant", &**text),
        ChatMessage::Assistant { text, tool_calls, .. } => Wire {
            content: (!text.is_empty()).then_some(Cow::Borrowed(text)),
            tool_calls: Some(tool_calls.iter().map(wire_call).collect()),
            ..plain("assistant", "")
        },
        ChatMessage::Tool { call_id, text, .. } => Wire { tool_call_id: Some(call_id), ..plain("tool", &**text) },
    }
}

fn wire_call(call: &ToolCall) -> WireCall<'_> {
    // Servers parse the arguments of the history again; what was malformed must come back as JSON all the same.
    let arguments = match call.arguments.as_json() {
        Some(value) => value.to_string(),
        None => json!({"malformed": call.arguments.to_string()}).to_string(),
    };
    WireCall { id: &call.id, r#type: "function", function: WireFunction { name: &call.name, arguments } }
}

#[cfg(test)]
mod tests;
