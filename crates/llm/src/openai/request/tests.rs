#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;

use super::*;
use crate::{Purpose, ToolArguments, ToolList};

fn sent(provider: &str, model: &str, request: &ChatRequest, config: ModelConfig) -> Value {
    let config = ModelConfig { provider: provider.into(), model: model.into(), ..config };
    let profile = ModelProfile::for_model(provider, model);
    let bytes = body(request, &config, &profile, &passthrough_settings(&config)).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

fn hello() -> ChatRequest {
    ChatRequest::new(Purpose::AGENT, vec![ChatMessage::system("s"), ChatMessage::user("u")])
}

fn tool(strict: bool) -> ToolList {
    let parameters = Arc::new(json!({"type": "object", "properties": {"b": {}, "a": {}}}));
    [ToolSpec { name: "find".into(), description: "Finds.".into(), parameters, strict }].into()
}

#[test]
fn the_smallest_request() {
    assert_eq!(
        sent("self-hosted", "m", &hello(), ModelConfig::default()),
        json!({"model": "m", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
               "stream": true, "stream_options": {"include_usage": true}})
    );
}

#[test]
fn request_settings_override_the_entry_and_the_profile_filters_them() {
    let config = ModelConfig { temperature: Some(0.0), max_tokens: Some(256), ..ModelConfig::default() };
    let mut request = hello();
    request.temperature = Some(0.3);
    let body = sent("openai", "gpt-5.1", &request, config.clone());
    assert_eq!((&body["temperature"], &body["max_completion_tokens"]), (&json!(0.3), &json!(256)));
    assert_eq!((&body["reasoning_effort"], body.get("max_tokens")), (&json!("none"), None));
    let body = sent("openai", "gpt-5-mini", &request, config.clone());
    assert_eq!((body.get("temperature"), &body["reasoning_effort"]), (None, &json!("minimal")));
    let body = sent("ollama", "llama3", &request, config);
    assert_eq!((&body["max_tokens"], body.get("reasoning_effort")), (&json!(256), None));
}

#[test]
fn strict_is_sent_only_where_the_model_supports_it() {
    let mut request = hello().with_tools(tool(true));
    request.parallel_tool_calls = Some(false);
    request.tool_choice = ToolChoice::Tool("find".into());
    let body = sent("openai", "gpt-4o", &request, ModelConfig::default());
    assert_eq!(body["tools"][0]["function"]["strict"], json!(true));
    assert_eq!(body["tool_choice"], json!({"type": "function", "function": {"name": "find"}}));
    assert_eq!(body["parallel_tool_calls"], json!(false));
    // The author's order of properties reaches the model.
    assert!(body["tools"][0]["function"]["parameters"].to_string().contains(r#"{"b":{},"a":{}}"#));
    let body = sent("self-hosted", "m", &request, ModelConfig::default());
    assert_eq!(body["tools"][0]["function"].get("strict"), None);
    assert_eq!(body.get("parallel_tool_calls"), None);
}

#[test]
fn tool_settings_are_omitted_without_tools() {
    let mut request = hello();
    request.tool_choice = ToolChoice::Required;
    request.parallel_tool_calls = Some(true);
    let body = sent("openai", "gpt-4o", &request, ModelConfig::default());
    assert!(["tools", "tool_choice", "parallel_tool_calls"].iter().all(|key| body.get(key).is_none()), "{body}");
}

#[test]
fn tool_calls_and_results_become_messages() {
    let good = ToolCall { id: "c1".into(), name: "find".into(), arguments: ToolArguments::json(json!({"x": 1})) };
    let malformed = ToolArguments::Malformed { text: "{\"x\":".into(), error: "EOF".into() };
    let bad = ToolCall { id: "c2".into(), name: "find".into(), arguments: malformed };
    let mut request = hello();
    request.messages.extend([
        Arc::new(ChatMessage::Assistant {
            text: "".into(),
            tool_calls: vec![good.clone(), bad.clone()],
            reasoning: None,
        }),
        ChatMessage::tool(&good, "found"),
        ChatMessage::tool(&bad, "no JSON"),
        ChatMessage::system("note"),
    ]);
    let body = sent("self-hosted", "m", &request, ModelConfig::default());
    let messages = &body["messages"];
    assert_eq!(messages[2]["content"], Value::Null);
    assert_eq!(messages[2]["tool_calls"][0]["function"]["arguments"], json!(r#"{"x":1}"#));
    let wrapped = messages[2]["tool_calls"][1]["function"]["arguments"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(wrapped).unwrap().is_object());
    assert_eq!((&messages[3]["tool_call_id"], &messages[3]["content"]), (&json!("c1"), &json!("found")));
    assert_eq!(messages[5]["role"], json!("user"), "a late system message becomes a user message");
    assert_eq!(sent("openai", "gpt-4o", &request, ModelConfig::default())["messages"][5]["role"], json!("system"));
}

/// Many models reject requests that end with an assistant message.
#[test]
fn a_request_never_ends_with_an_assistant_message() {
    let request = ChatRequest::new(
        Purpose::AGENT,
        vec![ChatMessage::system("s"), ChatMessage::user("u"), ChatMessage::assistant("Welcome.")],
    );
    for (provider, model) in [("openai", "gpt-4o"), ("self-hosted", "m")] {
        let messages = sent(provider, model, &request, ModelConfig::default())["messages"].clone();
        let last = messages.as_array().unwrap().last().unwrap();
        assert_eq!((messages.as_array().unwrap().len(), &last["role"]), (4, &json!("user")), "{messages}");
        assert_eq!(last["content"], json!("(Nothing was said.)"));
    }
}

/// After a fallback, the history contains ids of another provider.
#[test]
fn tool_call_ids_are_shortened_for_mistral() {
    let (foreign, own) = ("call_8f2KqPz0Z1xYbQ", "aB3dE6gH9");
    let calls = [foreign, own].map(|id| ToolCall {
        id: id.into(),
        name: "find".into(),
        arguments: ToolArguments::json(json!({})),
    });
    let assistant = Arc::new(ChatMessage::Assistant { text: "".into(), tool_calls: calls.to_vec(), reasoning: None });
    let [first, second] = &calls;
    let request = ChatRequest::new(
        Purpose::AGENT,
        vec![ChatMessage::user("u"), assistant, ChatMessage::tool(first, "a"), ChatMessage::tool(second, "b")],
    );
    let body = sent("mistral", "mistral-large-latest", &request, ModelConfig::default());
    let id = |at: usize| body["messages"][1]["tool_calls"][at]["id"].as_str().unwrap();
    assert!(id(0).len() == 9 && id(0).bytes().all(|byte| byte.is_ascii_alphanumeric()), "{}", id(0));
    assert_eq!(id(1), own);
    assert_eq!(
        (&body["messages"][2]["tool_call_id"], &body["messages"][3]["tool_call_id"]),
        (&json!(id(0)), &json!(own))
    );
    let body = sent("openai", "gpt-4o", &request, ModelConfig::default());
    assert_eq!(body["messages"][1]["tool_calls"][0]["id"], json!(foreign));
}

#[test]
fn leading_system_messages_are_merged_where_only_one_is_accepted() {
    let request = ChatRequest::new(
        Purpose::AGENT,
        vec![ChatMessage::system("a"), ChatMessage::system("b"), ChatMessage::user("u")],
    );
    let body = sent("self-hosted", "m", &request, ModelConfig::default());
    assert_eq!(body["messages"], json!([{"role": "system", "content": "a\n\nb"}, {"role": "user", "content": "u"}]));
}

#[test]
fn passthrough_settings_never_replace_keys_of_the_body() {
    let extra =
        json!({"top_p": 0.5, "stop": ["\n"], "stream_options": {}, "n": 3, "aws_region_name": "x", "cache": {}});
    let config = ModelConfig { extra: extra.as_object().cloned().unwrap(), ..ModelConfig::default() };
    let body = sent("self-hosted", "m", &hello(), config);
    assert_eq!((&body["top_p"], &body["stop"], &body["stream"]), (&json!(0.5), &json!(["\n"]), &json!(true)));
    assert_ne!(body["stream_options"], json!({}));
    assert!(["n", "aws_region_name", "cache"].iter().all(|key| body.get(key).is_none()), "{body}");
}

#[test]
fn an_entry_can_disable_streaming() {
    let config =
        ModelConfig { extra: json!({"stream": false}).as_object().cloned().unwrap(), ..ModelConfig::default() };
    let body = sent("openai", "gpt-4o", &hello(), config);
    assert_eq!((&body["stream"], body.get("stream_options")), (&json!(false), None));
}
