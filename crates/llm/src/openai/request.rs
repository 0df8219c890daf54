//! The body of a Chat Completions request. It borrows the history from the request.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::vendor_state::{self, CONTENT};
use crate::{
    ModelConfig,
    message::{ChatMessage, NO_USER_MESSAGE, ToolArguments, ToolCall},
    price::LOCAL_KEYS,
    profile::{ModelProfile, ReasoningEffort, TokenLimitParam},
    request::{ChatRequest, ToolChoice, ToolSpec},
};

/// Keys of a model entry that this module sets or uses itself. They are not passed through.
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
    // Settings of client libraries, not of the API.
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
    messages: Vec<ApiMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
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
    reasoning_effort: Option<ReasoningEffort>,
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

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum ApiMessage<'a> {
    System {
        content: Cow<'a, str>,
    },
    User {
        content: &'a str,
    },
    Assistant {
        /// `null` where there are only tool calls.
        content: Option<Content<'a>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Call<'a>>,
        /// Data of the provider.
        #[serde(flatten)]
        state: BTreeMap<&'a str, &'a Value>,
    },
    Tool {
        content: &'a str,
        tool_call_id: Cow<'a, str>,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(&'a str),
    /// The thoughts of the model, then its text.
    Parts(Vec<Value>),
}

#[derive(Serialize)]
struct Call<'a> {
    id: Cow<'a, str>,
    #[serde(flatten)]
    function: Function<CalledFunction<'a>>,
    /// Data of the provider.
    #[serde(flatten)]
    state: Option<&'a Map<String, Value>>,
}

/// A function that is offered, or one that was called.
#[derive(Serialize)]
#[serde(tag = "type", content = "function", rename_all = "snake_case")]
enum Function<F> {
    Function(F),
}

#[derive(Serialize)]
struct CalledFunction<'a> {
    name: &'a str,
    arguments: String,
}

type Tool<'a> = Function<OfferedFunction<'a>>;

#[derive(Serialize)]
struct OfferedFunction<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

/// The settings of a model entry that are sent unchanged.
pub(super) fn passthrough_settings(config: &ModelConfig) -> Map<String, Value> {
    let passes_through = |key: &str| !OWN_KEYS.contains(&key) && !LOCAL_KEYS.contains(&key) && !key.starts_with("aws_");
    config
        .extra
        .iter()
        .filter(|(key, _)| passes_through(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Whether the response is streamed: yes, unless the entry has `stream: false`, for servers that cannot stream. Such a response
/// is decoded as a stream of one event.
pub(super) fn streams(config: &ModelConfig) -> bool {
    config.extra.get("stream").and_then(Value::as_bool).unwrap_or(true)
}

/// The body for `request`. `extra` comes from [`passthrough_settings`].
pub(super) fn body(
    request: &ChatRequest,
    config: &ModelConfig,
    profile: &ModelProfile,
    extra: &Map<String, Value>,
) -> Result<Vec<u8>, serde_json::Error> {
    let limit = request.max_tokens.or(config.max_tokens);
    let effort = profile.effort(request.reasoning_effort.or(config.reasoning_effort));
    // Several servers reject an empty list of tools, and tool settings without tools.
    let has_tools = profile.supports_tools && !request.tools.is_empty();
    let parallel = request.parallel_tool_calls.or(config.parallel_tool_calls);
    let stream = streams(config);
    let tool = |spec| tool(spec, profile.supports_strict_tools);
    serde_json::to_vec(&Body {
        model: &config.model,
        messages: messages(&request.messages, profile.allows_late_system_messages, config),
        tools: if has_tools { request.tools.iter().map(tool).collect() } else { Vec::new() },
        tool_choice: if has_tools { choice(&request.tool_choice) } else { None },
        parallel_tool_calls: parallel.filter(|_| has_tools && profile.supports_parallel_tool_calls),
        temperature: profile.temperature(request.temperature.or(config.temperature), effort),
        max_tokens: limit.filter(|_| profile.token_limit == TokenLimitParam::MaxTokens),
        max_completion_tokens: limit.filter(|_| profile.token_limit == TokenLimitParam::MaxCompletionTokens),
        reasoning_effort: effort,
        stream,
        stream_options: (stream && profile.supports_stream_options).then_some(StreamOptions { include_usage: true }),
        extra,
    })
}

fn choice(choice: &ToolChoice) -> Option<Value> {
    Some(match choice {
        ToolChoice::Auto => return None,
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Tool(name) => json!({"type": "function", "function": {"name": name}}),
    })
}

fn tool(spec: &ToolSpec, supports_strict: bool) -> Tool<'_> {
    Function::Function(OfferedFunction {
        name: &spec.name,
        description: &spec.description,
        parameters: &spec.parameters,
        strict: supports_strict.then_some(spec.strict),
    })
}

/// Mistral accepts only tool call ids of nine letters or digits.
fn wants_short_ids(config: &ModelConfig) -> bool {
    let model = config.model.to_ascii_lowercase();
    config.provider == "mistral" || ["mistral", "mixtral", "magistral"].iter().any(|name| model.contains(name))
}

/// A tool call id that the server accepts. Equal ids stay equal, so that results match their calls.
fn id(id: &str, short: bool) -> Cow<'_, str> {
    if !short || (id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())) {
        return id.into();
    }
    let letter = |byte: &u8| char::from_digit(u32::from(byte % 36), 36);
    Sha256::digest(id.as_bytes()).iter().filter_map(letter).take(9).collect()
}

fn messages<'a>(
    messages: &'a [Arc<ChatMessage>],
    allows_late_system_messages: bool,
    config: &'a ModelConfig,
) -> Vec<ApiMessage<'a>> {
    let short_ids = wants_short_ids(config);
    let mut api_messages = Vec::with_capacity(messages.len() + 1);
    let mut rest = messages;
    if !allows_late_system_messages {
        // Many chat templates accept only one system message, at the start.
        let leading = messages.iter().take_while(|message| matches!(***message, ChatMessage::System { .. })).count();
        let (system, others) = messages.split_at(leading);
        if let Some((first, more)) = system.split_first() {
            let mut content = Cow::Borrowed(first.text());
            for message in more {
                content.to_mut().push_str("\n\n");
                content.to_mut().push_str(message.text());
            }
            api_messages.push(ApiMessage::System { content });
        }
        rest = others;
    }
    api_messages
        .extend(rest.iter().map(|message| api_message(message, allows_late_system_messages, &config.model, short_ids)));
    if let Some(ChatMessage::Assistant { .. }) = messages.last().map(|last| &**last) {
        api_messages.push(ApiMessage::User { content: NO_USER_MESSAGE.trim_ascii_end() });
    }
    api_messages
}

fn api_message<'a>(
    message: &'a ChatMessage,
    allows_late_system_messages: bool,
    model: &str,
    short_ids: bool,
) -> ApiMessage<'a> {
    match message {
        ChatMessage::System { text } if allows_late_system_messages => {
            ApiMessage::System { content: Cow::Borrowed(text) }
        }
        ChatMessage::System { text } | ChatMessage::User { text } => ApiMessage::User { content: text },
        ChatMessage::Assistant { text, tool_calls, reasoning } => {
            // Only with calls: some providers reject it in other messages, and none needs it there.
            let own = reasoning.as_deref().filter(|own| &*own.model == model && !tool_calls.is_empty());
            let state = own.and_then(vendor_state::of_message);
            let thoughts = state.and_then(|state| state.get(CONTENT)?.as_array());
            let said = Some(&**text).filter(|text| !text.is_empty() || tool_calls.is_empty());
            let content = match thoughts {
                Some(thoughts) => {
                    let text = said.map(|text| json!({"type": "text", "text": text}));
                    Some(Content::Parts(thoughts.iter().cloned().chain(text).collect()))
                }
                None => said.map(Content::Text),
            };
            let of_call = |at| own.and_then(|own| vendor_state::of_call(own, at, !text.is_empty()));
            ApiMessage::Assistant {
                content,
                tool_calls: (0..).zip(tool_calls).map(|(at, call)| api_call(call, of_call(at), short_ids)).collect(),
                state: state
                    .into_iter()
                    .flatten()
                    .filter(|(key, _)| *key != CONTENT)
                    .map(|(key, value)| (key.as_str(), value))
                    .collect(),
            }
        }
        ChatMessage::Tool { call_id, text, .. } => {
            ApiMessage::Tool { content: text, tool_call_id: id(call_id, short_ids) }
        }
    }
}

fn api_call<'a>(call: &'a ToolCall, state: Option<&'a Map<String, Value>>, short_ids: bool) -> Call<'a> {
    let function = Function::Function(CalledFunction { name: &call.name, arguments: arguments(call) });
    Call { id: id(&call.id, short_ids), function, state }
}

/// The arguments as JSON. Servers parse the arguments in the history, so malformed ones are wrapped in an object.
fn arguments(call: &ToolCall) -> String {
    match &call.arguments {
        ToolArguments::Json(value) => value.to_string(),
        ToolArguments::Malformed { text, .. } => json!({"malformed": text}).to_string(),
        ToolArguments::Dropped { .. } => "{}".to_owned(),
    }
}

#[cfg(test)]
mod tests;
