#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use crate::{
    Purpose, ToolArguments, ToolCall, ToolSpec,
    message::{ReasoningBlock, ReasoningBlocks},
};

fn config(model: &str, extra: Value) -> ModelConfig {
    let extra = extra.as_object().cloned().unwrap_or_default();
    ModelConfig { provider: "anthropic".into(), model: model.into(), extra, ..ModelConfig::default() }
}

fn sent(config: &ModelConfig, request: &ChatRequest) -> Value {
    let defaults = RequestDefaults::from_config(config).map_err(|(key, problem)| format!("{key}: {problem}")).unwrap();
    serde_json::from_slice(&body(request, config, &defaults).unwrap()).unwrap()
}

fn hello() -> ChatRequest {
    ChatRequest::new(Purpose::AGENT, vec![ChatMessage::system("s"), ChatMessage::user("u")])
}

fn tool(name: &str) -> ToolSpec {
    let parameters = Arc::new(json!({"type": "object", "properties": {"b": {}, "a": {}}}));
    ToolSpec { name: name.into(), description: "Finds.".into(), parameters, strict: true }
}

fn call(id: &str, arguments: ToolArguments) -> ToolCall {
    ToolCall { id: id.into(), name: "find".into(), arguments }
}

fn assistant(text: &str, tool_calls: Vec<ToolCall>) -> Arc<ChatMessage> {
    Arc::new(ChatMessage::Assistant { text: text.into(), tool_calls, reasoning: None })
}

#[test]
fn the_smallest_request() {
    assert_eq!(
        sent(&config("claude-opus-4-6", json!({})), &hello()),
        json!({
            "model": "claude-opus-4-6", "max_tokens": 4096, "stream": true,
            "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "u"}]}],
        })
    );
    let body = sent(&config("m", json!({"prompt_cache": false, "stream": false})), &hello());
    assert_eq!((&body["stream"], body["system"][0].get("cache_control")), (&json!(false), None));
}

#[test]
fn an_invalid_prompt_cache_is_rejected() {
    assert!(
        RequestDefaults::from_config(&config("m", json!({"prompt_cache": "1d"})))
            .is_err_and(|(key, _)| key == "prompt_cache")
    );
}

#[test]
fn parameters_that_the_model_rejects_are_omitted() {
    let extra = json!({"top_p": 0.5, "stop": "END", "metadata": {"user_id": "u"}, "rpm": 5});
    let entry =
        ModelConfig { temperature: Some(0.3), max_tokens: Some(256), ..config("claude-sonnet-4-5", extra.clone()) };
    let body = sent(&entry, &hello());
    assert_eq!((&body["temperature"], &body["max_tokens"], &body["top_p"]), (&json!(0.3), &json!(256), &json!(0.5)));
    assert_eq!((&body["stop_sequences"], body.get("stop"), body.get("rpm")), (&json!(["END"]), None, None));
    assert_eq!(body["metadata"], json!({"user_id": "u"}));
    let mut thinking = hello();
    thinking.reasoning_effort = Some(ReasoningEffort::Low);
    let body = sent(&entry, &thinking);
    assert_eq!(body["thinking"], json!({"type": "enabled", "budget_tokens": 2048}));
    assert_eq!((body.get("temperature"), &body["max_tokens"]), (None, &json!(2304)), "the thinking budget is added");
    let entry = ModelConfig { model: "claude-opus-4-8".into(), ..entry };
    let body = sent(&entry, &thinking);
    assert_eq!((body.get("temperature"), body.get("top_p")), (None, None), "newer models accept neither");
    assert_eq!((&body["thinking"], &body["output_config"]), (&json!({"type": "adaptive"}), &json!({"effort": "low"})));
}

/// The API rejects a temperature together with thinking, and a token limit that is not above the thinking budget.
#[test]
fn thinking_enabled_in_the_entry_sets_temperature_and_limit() {
    let mut request = hello();
    (request.temperature, request.max_tokens) = (Some(0.0), Some(256));
    for (model, thinking, budget) in [
        ("claude-sonnet-4-5", json!({"type": "enabled", "budget_tokens": 8000}), 8000),
        ("claude-opus-4-6", json!({"type": "adaptive"}), 16_384),
    ] {
        let entry = config(model, json!({"thinking": thinking}));
        let body = sent(&entry, &request);
        assert_eq!((&body["thinking"], body.get("temperature")), (&thinking, None), "{model}");
        assert_eq!(body["max_tokens"], json!(256 + budget), "{model}");
        assert!(RequestDefaults::from_config(&entry).unwrap().uses_reasoning(None), "the first token may take long");
    }
    let off = config("claude-opus-5", json!({"thinking": {"type": "disabled"}}));
    request.reasoning_effort = Some(ReasoningEffort::High);
    assert_eq!(sent(&off, &request)["max_tokens"], json!(256));
}

#[test]
fn thinking_settings_of_the_entry_override_the_defaults() {
    let extra =
        json!({"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"format": {"a": 1}}});
    let entry = ModelConfig { reasoning_effort: Some(ReasoningEffort::High), ..config("claude-opus-5", extra) };
    let body = sent(&entry, &hello());
    assert_eq!(body["thinking"]["display"], json!("summarized"));
    assert_eq!(body["output_config"], json!({"format": {"a": 1}, "effort": "high"}));
}

#[test]
fn tool_choice_is_mapped_to_the_api() {
    let entry = config("claude-haiku-4-5", json!({}));
    let offering = |choice: ToolChoice, parallel: Option<bool>| {
        let mut request = hello().with_tools([tool("find"), tool("list")]);
        (request.tool_choice, request.parallel_tool_calls) = (choice, parallel);
        request
    };
    let body = sent(&entry, &offering(ToolChoice::Auto, None));
    assert_eq!(body.get("tool_choice"), None);
    assert_eq!(body["tools"][0]["name"], json!("find"));
    // The author's order of properties reaches the model.
    assert!(body["tools"][0]["input_schema"].to_string().contains(r#"{"b":{},"a":{}}"#));
    for (choice, parallel, sent_choice) in [
        (ToolChoice::Auto, Some(false), json!({"type": "auto", "disable_parallel_tool_use": true})),
        (ToolChoice::None, Some(false), json!({"type": "none"})),
        (ToolChoice::Required, None, json!({"type": "any"})),
        (ToolChoice::Tool("list".into()), None, json!({"type": "tool", "name": "list"})),
    ] {
        assert_eq!(sent(&entry, &offering(choice, parallel))["tool_choice"], sent_choice);
    }
    let mut thinking = offering(ToolChoice::Required, None);
    thinking.reasoning_effort = Some(ReasoningEffort::High);
    assert_eq!(sent(&entry, &thinking)["tool_choice"], json!({"type": "auto"}), "no forced choice with thinking");
}

#[test]
fn tools_are_strict_where_entry_model_and_schema_allow_it() {
    let closed = json!({
        "type": "object", "properties": {"slot_value": {"type": ["string", "null"]}}, "required": ["slot_value"],
        "additionalProperties": false,
    });
    let own = ToolSpec { parameters: Arc::new(closed), strict: true, ..tool("set_slot_a") };
    let open = ToolSpec { strict: true, ..tool("book") };
    let request = hello().with_tools([open, tool("find"), own]);
    let strict = |model: &str, extra: Value| {
        let body = sent(&config(model, extra), &request);
        body["tools"].as_array().unwrap().iter().map(|tool| tool.get("strict").cloned()).collect::<Vec<_>>()
    };
    assert_eq!(strict("claude-haiku-4-5", json!({"strict": true})), [None, None, Some(json!(true))]);
    assert_eq!(strict("claude-opus-4-1", json!({"strict": true})), [None, None, None], "a model without support");
    assert_eq!(strict("claude-haiku-4-5", json!({})), [None, None, None], "not enabled in the entry");
    let format =
        json!({"strict": true, "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}});
    assert_eq!(strict("claude-haiku-4-5", format), [None, None, None], "a schema for responses excludes strict tools");
}

#[test]
fn tool_calls_and_results_become_blocks() {
    let good = call("c1", ToolArguments::json(json!({"x": 1})));
    let bad = call("call:2", ToolArguments::Malformed { text: "{\"x\":".into(), error: "EOF".into() });
    let mut request = hello();
    request.messages.extend([
        assistant("I look.", vec![good.clone(), bad.clone()]),
        ChatMessage::tool(&good, "found"),
        ChatMessage::tool(&bad, ""),
        ChatMessage::system("note"),
    ]);
    let body = sent(&config("m", json!({"prompt_cache": false})), &request);
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": [{"type": "text", "text": "u"}]},
            {"role": "assistant", "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "find", "input": {"x": 1}},
                {"type": "tool_use", "id": "call_2", "name": "find", "input": {"malformed": "{\"x\":"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "found"},
                {"type": "tool_result", "tool_use_id": "call_2"},
                {"type": "text", "text": "note"},
            ]},
        ])
    );
    // A request without tools still defines the tools that were called before.
    assert_eq!(body["tools"], json!([{"name": "find", "input_schema": {"type": "object"}}]));
    assert_eq!(body["tool_choice"], json!({"type": "none"}));
}

#[test]
fn roles_alternate_and_begin_and_end_with_user() {
    let roles = |messages: Vec<Arc<ChatMessage>>| {
        let body = sent(&config("m", json!({})), &ChatRequest::new(Purpose::AGENT, messages));
        let messages = body["messages"].as_array().unwrap().clone();
        let role = |message: &Value| {
            (message["role"].as_str().unwrap().to_owned(), message["content"].as_array().unwrap().len())
        };
        messages.iter().map(role).collect::<Vec<_>>()
    };
    let (user, bot) = (|n| ("user".to_owned(), n), |n| ("assistant".to_owned(), n));
    let (says, said) = (|| ChatMessage::user("u"), || ChatMessage::assistant("a"));
    assert_eq!(roles(vec![said(), says(), says(), said()]), [user(1), bot(1), user(2), bot(1), user(1)]);
    assert_eq!(roles(vec![ChatMessage::system("s")]), [user(1)]);
    assert_eq!(
        roles(vec![ChatMessage::user(" "), said(), ChatMessage::system("n"), says()]),
        [user(1), bot(1), user(2)]
    );
}

#[test]
fn cache_breakpoints_follow_stable_content_within_the_limit() {
    let round = |n: usize| {
        let call = call(&format!("c{n}"), ToolArguments::json(json!({})));
        [assistant("", vec![call.clone()]), ChatMessage::tool(&call, "found")]
    };
    let mut messages = vec![
        ChatMessage::system("stable"),
        ChatMessage::user("first"),
        ChatMessage::assistant("answer"),
        ChatMessage::system("the time"),
        ChatMessage::user("newest"),
    ];
    let breakpoints = |messages: &[Arc<ChatMessage>]| {
        let request = ChatRequest::new(Purpose::AGENT, messages.to_vec()).with_tools([tool("a"), tool("b")]);
        let body = sent(&config("m", json!({"prompt_cache": "1h"})), &request);
        let mut found = Vec::new();
        let mut look = |place: String, block: &Value| {
            if let Some(mark) = block.get("cache_control") {
                assert_eq!(mark, &json!({"type": "ephemeral", "ttl": "1h"}));
                found.push(place);
            }
        };
        for (key, list) in [("tools", &body["tools"]), ("system", &body["system"])] {
            list.as_array().unwrap().iter().enumerate().for_each(|(at, block)| look(format!("{key} {at}"), block));
        }
        for (at, message) in body["messages"].as_array().unwrap().iter().enumerate() {
            let blocks = message["content"].as_array().unwrap();
            blocks.iter().enumerate().for_each(|(block, value)| look(format!("message {at}.{block}"), value));
        }
        found
    };
    assert_eq!(breakpoints(&messages), ["tools 1", "system 0", "message 1.0"]);
    messages.extend(round(1));
    messages.extend(round(2));
    let four = breakpoints(&messages);
    assert_eq!(four, ["tools 1", "system 0", "message 1.0", "message 6.0"]);
    assert_eq!(four.len(), limits::MODEL_CACHE_MARKS);
    // A single request without tools is not repeated, so its messages get no breakpoint.
    let once = sent(&config("m", json!({})), &hello());
    assert_eq!(once["messages"][0]["content"][0].get("cache_control"), None);
}

#[test]
fn reasoning_is_sent_back_only_to_the_model_that_produced_it() {
    let thought = |after, text: &str| ReasoningBlock {
        after,
        block: Arc::new(json!({"type": "thinking", "thinking": text, "signature": "s"})),
    };
    let reasoning = ReasoningBlocks { model: "claude-a".into(), blocks: vec![thought(0, "one"), thought(2, "two")] };
    let calls = vec![call("c1", ToolArguments::json(json!({}))), call("c2", ToolArguments::json(json!({})))];
    let mut request = hello();
    request.messages.push(Arc::new(ChatMessage::Assistant {
        text: "I look.".into(),
        tool_calls: calls.clone(),
        reasoning: Some(Arc::new(reasoning)),
    }));
    request.messages.extend(calls.iter().map(|call| ChatMessage::tool(call, "found")));
    let kinds = |model: &str| {
        let body = sent(&config(model, json!({})), &request);
        let blocks = body["messages"][1]["content"].as_array().unwrap().clone();
        blocks.iter().map(|block| block["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(kinds("claude-a"), ["thinking", "text", "tool_use", "thinking", "tool_use"]);
    assert_eq!(kinds("claude-b"), ["text", "tool_use", "tool_use"]);
    assert!(!request.messages[2].without_reasoning().eq(&request.messages[2]));
}
