#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;

use super::{super::vendor_state::VendorState, *};
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

/// What a provider wants back goes back to the model that it came from, with the calls, and only there.
#[test]
fn data_of_the_provider_goes_back_with_the_calls_to_the_same_model() {
    let calls =
        ["a", "b"].map(|id| ToolCall { id: id.into(), name: "f".into(), arguments: ToolArguments::json(json!({})) });
    let details = json!([{"type": "reasoning.encrypted", "data": "abc", "index": 0}]);
    let thoughts = json!([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]);
    let mut state = VendorState::new("m".into());
    state.add("reasoning_content", json!("Let me "));
    state.add("reasoning_content", json!("think."));
    state.add("reasoning_details", details.clone());
    state.add("content", thoughts.clone());
    let of_second = json!({"extra_content": {"google": {"thought_signature": "t"}}});
    let reasoning = state.finish(vec![(1, of_second.clone())], true);
    let message = |tool_calls: &[ToolCall]| {
        let (tool_calls, reasoning) = (tool_calls.to_vec(), reasoning.clone());
        Arc::new(ChatMessage::Assistant { text: "Looking.".into(), tool_calls, reasoning })
    };
    let results = calls.iter().map(|call| ChatMessage::tool(call, "{}"));
    let messages = [ChatMessage::user("u"), message(&calls)].into_iter().chain(results).collect();
    let request = ChatRequest::new(Purpose::AGENT, messages);
    let own = sent("self-hosted", "m", &request, ModelConfig::default())["messages"][1].clone();
    assert_eq!((&own["reasoning_content"], &own["reasoning_details"]), (&json!("Let me think."), &details));
    assert_eq!(own["content"], json!([thoughts[0], {"type": "text", "text": "Looking."}]));
    assert_eq!(own["tool_calls"][1]["extra_content"], of_second["extra_content"]);
    assert_eq!(own["tool_calls"][0].get("extra_content"), None);
    let other = sent("self-hosted", "other", &request, ModelConfig::default())["messages"][1].clone();
    let plain = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let expected = json!({"role": "assistant", "content": "Looking.", "tool_calls": [plain("a"), plain("b")]});
    assert_eq!(other, expected, "nothing of it goes to another model");
    let request = ChatRequest::new(Purpose::AGENT, vec![message(&[]), ChatMessage::user("u")]);
    let own = sent("self-hosted", "m", &request, ModelConfig::default())["messages"][0].clone();
    assert_eq!(own, json!({"role": "assistant", "content": "Looking."}), "nor where no call needs it");
}

#[test]
fn increments_of_provider_data_are_put_together() {
    let mut state = VendorState::new("m".into());
    state.add("reasoning_details", json!([{"type": "reasoning.text", "text": "a", "index": 0}]));
    state.add("reasoning_details", json!([{"text": "b", "signature": "s", "index": 0}]));
    state.add("reasoning_details", json!([{"type": "reasoning.encrypted", "data": "x", "index": 1}]));
    state.add("reasoning", json!("ab"));
    let reasoning = state.finish(Vec::new(), false).unwrap();
    let expected = json!({"reasoning_details": [
        {"type": "reasoning.text", "text": "ab", "signature": "s", "index": 0},
        {"type": "reasoning.encrypted", "data": "x", "index": 1},
    ]});
    assert_eq!(*reasoning.blocks[0].block, json!({"message": expected}));
}
