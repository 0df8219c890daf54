//! The body of a request to the Messages API. It borrows the history from the request.
//!
//! Differences from Chat Completions: the system prompt is separate from the messages; the roles `user` and `assistant` alternate,
//! so consecutive messages of one role become one message with several blocks; tool results are blocks of user messages; and
//! breakpoints mark the stable parts for the prompt cache.

use std::{borrow::Cow, sync::Arc};

use segue_base::limits;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    blocks::{self, ApiMessage, ContentBlock, SystemPrompt, api_messages},
    cache_control::{self, CacheControl},
    family::{self, Family},
    strict::StrictToolBudget,
};
use crate::{
    ModelConfig,
    message::ChatMessage,
    price::LOCAL_KEYS,
    profile::ReasoningEffort,
    request::{ChatRequest, ToolChoice},
};

/// Keys of a model entry that this module sets or uses itself. They are not passed through.
const OWN_KEYS: &[&str] = &[
    "model",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "max_tokens",
    "stream",
    "temperature",
    "stop",
    // Sent as a header.
    "anthropic_beta",
    // Settings of client libraries and of Chat Completions.
    "n",
    "logit_bias",
    "stream_options",
    "cache",
    "use_chat_completions_endpoint",
    "api_type",
    "request_timeout",
    "num_retries",
    "drop_params",
    "strict",
];

/// The parts of a model entry that are the same for every request.
pub(super) struct RequestDefaults {
    pub(super) family: Family,
    cache: CacheControl,
    /// Whether tools may be strict: the entry has `strict: true` and no schema for responses, and the model supports it.
    allows_strict: bool,
    extra: Map<String, Value>,
}

impl RequestDefaults {
    /// Whether the model reasons at the effort of its entry.
    pub(super) fn uses_reasoning(&self, effort: Option<ReasoningEffort>) -> bool {
        reasoning_settings(self.extra.get("thinking"), self.extra.get("output_config"), effort).0
    }

    /// Reads the entry once.
    ///
    /// # Errors
    /// The invalid key and the problem.
    pub(super) fn from_config(config: &ModelConfig) -> Result<Self, (&'static str, String)> {
        let family = Family::from_model_name(&config.model);
        let is_sampling = |key: &str| matches!(key, "top_p" | "top_k");
        let passes_through = |key: &str| {
            !OWN_KEYS.contains(&key)
                && !LOCAL_KEYS.contains(&key)
                && !key.starts_with("aws_")
                && (family.supports_sampling || !is_sampling(key))
        };
        let kept = config.extra.iter().filter(|(key, _)| passes_through(key));
        let mut extra: Map<String, Value> = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
        match config.extra.get("stop") {
            Some(Value::String(one)) => drop(extra.insert("stop_sequences".into(), json!([one]))),
            Some(many @ Value::Array(_)) => drop(extra.insert("stop_sequences".into(), many.clone())),
            _ => {}
        }
        // A schema for responses (`output_config.format`) counts against the same limits, so tools are not strict then.
        let has_format = extra.get("output_config").is_some_and(|config| config.get("format").is_some());
        let asked = config.extra.get("strict").and_then(Value::as_bool).unwrap_or(false);
        let allows_strict = family.supports_strict_tools && asked && !has_format;
        Ok(Self { family, cache: CacheControl::from_config(config)?, allows_strict, extra })
    }
}

/// Whether the response is streamed: yes, unless the entry has `stream: false`.
pub(super) fn streams(config: &ModelConfig) -> bool {
    config.extra.get("stream").and_then(Value::as_bool).unwrap_or(true)
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<ContentBlock<'a>>,
    messages: Vec<ApiMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<Value>,
    stream: bool,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    input_schema: Cow<'a, Value>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    strict: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<&'a Value>,
}

/// The body for `request`.
pub(super) fn body(
    request: &ChatRequest,
    config: &ModelConfig,
    defaults: &RequestDefaults,
) -> Result<Vec<u8>, serde_json::Error> {
    let family = &defaults.family;
    let effort = family.effort(request.reasoning_effort.or(config.reasoning_effort));
    let mut extra = defaults.extra.clone();
    let (thinking, output_config) = thinking(family, effort, &mut extra);
    let (reasons, budget) = reasoning_settings(thinking.as_ref(), output_config.as_ref(), effort);
    let limit = request.max_tokens.or(config.max_tokens).unwrap_or(limits::MODEL_TOKENS);
    let temperature = request.temperature.or(config.temperature).filter(|_| family.supports_sampling && !reasons);
    let parallel = request.parallel_tool_calls.or(config.parallel_tool_calls);

    let SystemPrompt { blocks: mut system, rest } = blocks::split_system(&request.messages);
    let mut messages = api_messages(rest, &config.model);
    let mut tools = tools(request, rest, defaults.allows_strict);
    let cache = &defaults.cache;
    let mut left = limits::MODEL_CACHE_MARKS;
    if let Some(last) = tools.last_mut() {
        last.cache_control = cache.breakpoint(&mut left);
    }
    if let Some(last) = system.last_mut() {
        last.cache_control = cache.breakpoint(&mut left);
    }
    cache_control::add_cache_breakpoints(&mut messages, rest, !request.tools.is_empty(), cache, &mut left);

    let choice = choice(request, parallel, tools.is_empty(), reasons);
    let max_tokens = limit.saturating_add(budget);
    let stream = streams(config);
    serde_json::to_vec(&Body {
        model: &config.model,
        max_tokens,
        tools,
        tool_choice: choice,
        system,
        messages,
        temperature,
        thinking,
        output_config,
        stream,
        extra,
    })
}

/// `thinking` and `output_config` of the body. Settings of the entry override the family's.
fn thinking(
    family: &Family,
    effort: Option<ReasoningEffort>,
    extra: &mut Map<String, Value>,
) -> (Option<Value>, Option<Value>) {
    let (params, effort) = family.thinking_params(effort);
    let thinking = extra.shift_remove("thinking").or(params);
    let mut config = match extra.shift_remove("output_config") {
        Some(Value::Object(config)) => config,
        _ => Map::new(),
    };
    if let (Some(effort), false) = (effort, config.contains_key("effort")) {
        config.insert("effort".into(), json!(effort));
    }
    (thinking, (!config.is_empty()).then_some(Value::Object(config)))
}

/// Whether the model reasons with these parameters, and the tokens that its reasoning may use in addition to the response.
pub(super) fn reasoning_settings(
    thinking: Option<&Value>,
    config: Option<&Value>,
    effort: Option<ReasoningEffort>,
) -> (bool, u32) {
    let requested = effort.filter(|effort| *effort > ReasoningEffort::Minimal);
    let Some(thinking) = thinking else { return (requested.is_some(), family::thinking_budget(requested)) };
    if matches!(thinking.get("type").and_then(Value::as_str), Some("disabled" | "between_tools")) {
        return (false, 0);
    }
    let budget = thinking.get("budget_tokens").and_then(Value::as_u64).map(|n| u32::try_from(n).unwrap_or(u32::MAX));
    let asked = config.and_then(|config| ReasoningEffort::deserialize(config.get("effort")?).ok());
    // The provider's default effort is `high`.
    (true, budget.unwrap_or_else(|| family::thinking_budget(asked.or(requested).or(Some(ReasoningEffort::High)))))
}

/// The tools of the body. Without tools, the API still requires definitions of all tools that were called in the history: then
/// these are sent with an open schema, and [`choice`] forbids calling them.
fn tools<'a>(request: &'a ChatRequest, messages: &'a [Arc<ChatMessage>], allows_strict: bool) -> Vec<Tool<'a>> {
    let mut budget = StrictToolBudget::new(allows_strict);
    let offered = request.tools.iter().map(|tool| Tool {
        name: &tool.name,
        description: &tool.description,
        input_schema: Cow::Borrowed(&*tool.parameters),
        strict: budget.try_take(tool),
        cache_control: None,
    });
    let tools: Vec<Tool<'a>> = offered.collect();
    if !tools.is_empty() {
        return tools;
    }
    let mut names: Vec<&str> = Vec::new();
    for message in messages {
        if let ChatMessage::Assistant { tool_calls, .. } = &**message {
            names.extend(tool_calls.iter().map(|call| &*call.name));
        }
    }
    names.sort_unstable();
    names.dedup();
    let schema = || Cow::Owned(json!({"type": "object"}));
    let tool = |name| Tool { name, description: "", input_schema: schema(), strict: false, cache_control: None };
    names.into_iter().map(tool).collect()
}

fn choice(request: &ChatRequest, parallel: Option<bool>, no_tools: bool, reasons: bool) -> Option<Value> {
    if no_tools {
        return None;
    }
    if request.tools.is_empty() {
        return Some(json!({"type": "none"}));
    }
    let mut choice = match &request.tool_choice {
        ToolChoice::None => return Some(json!({"type": "none"})),
        // With reasoning, the API rejects a forced tool choice.
        _ if reasons => json!({"type": "auto"}),
        ToolChoice::Auto => json!({"type": "auto"}),
        ToolChoice::Required => json!({"type": "any"}),
        ToolChoice::Tool(name) => json!({"type": "tool", "name": name}),
    };
    match (parallel, choice.as_object_mut()) {
        (Some(false), Some(choice)) => drop(choice.insert("disable_parallel_tool_use".into(), json!(true))),
        _ if request.tool_choice.is_auto() => return None,
        _ => {}
    }
    Some(choice)
}

#[cfg(test)]
mod tests;
