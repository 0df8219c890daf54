//! The body of a messages request. Borrowed from the request: nothing of the history is copied but into the body.
//!
//! What the wire wants otherwise than chat completions: instructions stand apart from the messages; user and assistant take
//! turns, so that what follows one another on one side becomes one message of several blocks; results of tools are blocks of
//! the user's side; and the stable parts are marked for the vendor's cache.

use std::{borrow::Cow, sync::Arc};

use segue_base::limits;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    blocks::{self, Marked, System, Turn, turns},
    family::{self, Family},
    markers::{self, Caching},
    strict::Room,
};
use crate::{
    ModelConfig,
    message::ChatMessage,
    price::LOCAL_KEYS,
    profile::ReasoningEffort,
    request::{ChatRequest, ToolChoice},
};

/// Keys of a model entry that this side sets or uses itself; they never travel as extras.
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
    // A header.
    "anthropic_beta",
    // Of client libraries and of the other wire.
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

/// What of an entry stays the same for every request.
pub(super) struct Settled {
    pub(super) family: Family,
    caching: Caching,
    /// Whether tools may be marked strict: the entry asks for it (`strict: true`), the model knows it, and the entry has no
    /// schema for answers.
    strict: bool,
    extra: Map<String, Value>,
}

impl Settled {
    /// Whether the model thinks unseen when a request names no effort of its own.
    pub(super) fn thinks(&self, effort: Option<ReasoningEffort>) -> bool {
        thoughts(self.extra.get("thinking"), self.extra.get("output_config"), effort).0
    }

    /// Reads the entry once.
    ///
    /// # Errors
    /// The key that is wrong, and why.
    pub(super) fn of(config: &ModelConfig) -> Result<Self, (&'static str, String)> {
        let family = Family::of(&config.model);
        let sampling = |key: &str| matches!(key, "top_p" | "top_k");
        let travels = |key: &str| {
            !OWN_KEYS.contains(&key)
                && !LOCAL_KEYS.contains(&key)
                && !key.starts_with("aws_")
                && (family.samples || !sampling(key))
        };
        let kept = config.extra.iter().filter(|(key, _)| travels(key));
        let mut extra: Map<String, Value> = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
        match config.extra.get("stop") {
            Some(Value::String(one)) => drop(extra.insert("stop_sequences".into(), json!([one]))),
            Some(many @ Value::Array(_)) => drop(extra.insert("stop_sequences".into(), many.clone())),
            _ => {}
        }
        // A schema for answers, which an entry may bring, takes from the same room: then there are no marks.
        let has_format = extra.get("output_config").is_some_and(|config| config.get("format").is_some());
        let asked = config.extra.get("strict").and_then(Value::as_bool).unwrap_or(false);
        let strict = family.strict && asked && !has_format;
        Ok(Self { family, caching: Caching::of(config)?, strict, extra })
    }
}

/// Whether the answer is asked for in pieces; `stream: false` of the entry asks for it whole.
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
    system: Vec<Marked<'a>>,
    messages: Vec<Turn<'a>>,
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
    settled: &Settled,
) -> Result<Vec<u8>, serde_json::Error> {
    let family = &settled.family;
    let effort = family.effort(request.reasoning_effort.or(config.reasoning_effort));
    let mut extra = settled.extra.clone();
    let (thinking, output_config) = thinking(family, effort, &mut extra);
    let (thinks, room) = thoughts(thinking.as_ref(), output_config.as_ref(), effort);
    let limit = request.max_tokens.or(config.max_tokens).unwrap_or(limits::MODEL_TOKENS);
    let temperature = request.temperature.or(config.temperature).filter(|_| family.samples && !thinks);
    let parallel = request.parallel_tool_calls.or(config.parallel_tool_calls);

    let System { blocks: mut system, rest } = blocks::system(&request.messages);
    let mut messages = turns(rest, &config.model);
    let mut tools = tools(request, rest, settled.strict);
    let caching = &settled.caching;
    let mut left = limits::MODEL_CACHE_MARKS;
    if let Some(last) = tools.last_mut() {
        last.cache_control = caching.mark(&mut left);
    }
    if let Some(last) = system.last_mut() {
        last.cache_control = caching.mark(&mut left);
    }
    markers::mark_messages(&mut messages, rest, !request.tools.is_empty(), caching, &mut left);

    let choice = choice(request, parallel, tools.is_empty(), thinks);
    let max_tokens = limit.saturating_add(room);
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

/// `thinking` and `output_config`. What the entry says itself wins.
fn thinking(
    family: &Family,
    effort: Option<ReasoningEffort>,
    extra: &mut Map<String, Value>,
) -> (Option<Value>, Option<Value>) {
    let (words, effort) = family.words(effort);
    let thinking = extra.shift_remove("thinking").or(words);
    let mut config = match extra.shift_remove("output_config") {
        Some(Value::Object(config)) => config,
        _ => Map::new(),
    };
    if let (Some(effort), false) = (effort, config.contains_key("effort")) {
        config.insert("effort".into(), json!(effort));
    }
    (thinking, (!config.is_empty()).then_some(Value::Object(config)))
}

/// Whether a model thinks that is told so, and the tokens that its thoughts may take beside those of the answer.
pub(super) fn thoughts(
    thinking: Option<&Value>,
    config: Option<&Value>,
    effort: Option<ReasoningEffort>,
) -> (bool, u32) {
    let ours = effort.filter(|effort| *effort > ReasoningEffort::Minimal);
    let Some(thinking) = thinking else { return (ours.is_some(), family::allowance(ours)) };
    if matches!(thinking.get("type").and_then(Value::as_str), Some("disabled" | "between_tools")) {
        return (false, 0);
    }
    let budget = thinking.get("budget_tokens").and_then(Value::as_u64).map(|n| u32::try_from(n).unwrap_or(u32::MAX));
    let asked = config.and_then(|config| ReasoningEffort::deserialize(config.get("effort")?).ok());
    // Where nobody names an effort, the vendor's own is `high`.
    (true, budget.unwrap_or_else(|| family::allowance(asked.or(ours).or(Some(ReasoningEffort::High)))))
}

/// The tools on offer. When there are none but the history holds calls, the wire still wants their definitions: then the names
/// that were called stand in, and [`choice`] forbids to call them.
fn tools<'a>(request: &'a ChatRequest, messages: &'a [Arc<ChatMessage>], strict: bool) -> Vec<Tool<'a>> {
    let mut room = Room::of(strict);
    let offered = request.tools.iter().map(|tool| Tool {
        name: &tool.name,
        description: &tool.description,
        input_schema: Cow::Borrowed(&*tool.parameters),
        strict: room.takes(tool),
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

fn choice(request: &ChatRequest, parallel: Option<bool>, no_tools: bool, thinks: bool) -> Option<Value> {
    if no_tools {
        return None;
    }
    if request.tools.is_empty() {
        return Some(json!({"type": "none"}));
    }
    let mut choice = match &request.tool_choice {
        ToolChoice::None => return Some(json!({"type": "none"})),
        // A model that thinks refuses to be forced.
        _ if thinks => json!({"type": "auto"}),
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
