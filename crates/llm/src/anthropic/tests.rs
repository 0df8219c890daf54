#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::time::Duration;

use segue_base::manual_clock::ManualClock;
use serde_json::{Value, json};

use super::*;
use crate::{ChatMessage, Delta, Purpose, ReasoningEffort, test_server::serve_responses, transport::ResponseDecoder};

fn entry(base: Option<&str>) -> ModelConfig {
    ModelConfig {
        provider: "anthropic".into(),
        model: "claude-haiku-4-5".into(),
        api_base: base.map(Into::into),
        api_key: Some(Secret::new("hunter2-long")),
        ..ModelConfig::default()
    }
}

#[test]
fn addresses() {
    let none = LlmEnvironment::default();
    let environment = LlmEnvironment { anthropic_base_url: Some("http://b/".into()), ..LlmEnvironment::default() };
    for (base, environment, url) in [
        (None, &none, "https://api.anthropic.com/v1/messages"),
        (None, &environment, "http://b/v1/messages"),
        (Some("http://c"), &environment, "http://c/v1/messages"),
        (Some("http://c/v1/"), &none, "http://c/v1/messages"),
        (Some("http://c/x/v1/messages"), &none, "http://c/x/v1/messages"),
    ] {
        assert_eq!(Anthropic::new(&entry(base), environment).unwrap().transport.endpoint.url.as_str(), url, "{base:?}");
    }
}

#[test]
fn invalid_entries_are_reported_with_a_fix() {
    let none = LlmEnvironment::default();
    let refused = |config: &ModelConfig| Anthropic::new(config, &none).err().unwrap();
    let no_key = ModelConfig { api_key: None, ..entry(None) };
    assert_eq!(refused(&no_key).key, "api_key");
    assert!(refused(&no_key).to_string().contains("ANTHROPIC_API_KEY"));
    assert!(Anthropic::new(&ModelConfig { api_key: None, ..entry(Some("http://gateway")) }, &none).is_ok());
    assert_eq!(refused(&entry(Some("not an address"))).key, "api_base");
    let broken = ModelConfig { api_key: Some(Secret::new("a\nb")), ..entry(None) };
    assert!(!refused(&broken).to_string().contains("a\nb"));
}

#[tokio::test]
async fn a_request_carries_version_beta_and_api_key() {
    let body = json!({"type": "message", "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn"});
    let (base, requests) = serve_responses(vec![(200, body.to_string())]).await;
    let extra = json!({"anthropic_beta": ["one", "two"]}).as_object().unwrap().clone();
    let model = Anthropic::new(&ModelConfig { extra, ..entry(Some(&base)) }, &LlmEnvironment::default()).unwrap();
    let cx = ManualClock::new().context(Duration::from_secs(60));
    let request = ChatRequest::new(Purpose::AGENT, vec![ChatMessage::user("hello")]);
    assert_eq!(&*model.chat(request, &cx).await.unwrap().finish().await.unwrap().text, "hi");
    let requests = requests.take();
    let head = requests[0].head.to_lowercase();
    for line in [
        "post /v1/messages http/1.1",
        "x-api-key: hunter2-long",
        "anthropic-version: 2023-06-01",
        "anthropic-beta: one,two",
    ] {
        assert!(head.contains(&format!("{line}\r\n")), "{line}: {head}");
    }
    assert!(!requests[0].body.contains("anthropic_beta"));
}

#[tokio::test]
async fn the_key_is_masked_in_the_providers_message() {
    let body = json!({"type": "error", "error": {"type": "authentication_error", "message": "wrong key hunter2-long"}});
    let (base, _requests) = serve_responses(vec![(401, body.to_string())]).await;
    let model = Anthropic::new(&entry(Some(&base)), &LlmEnvironment::default()).unwrap();
    let cx = ManualClock::new().context(Duration::from_secs(60));
    let request = ChatRequest::new(Purpose::AGENT, vec![ChatMessage::user("hello")]);
    let error = model.chat(request, &cx).await.unwrap_err();
    assert_eq!(error.kind, LlmErrorKind::Unauthorised);
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}

#[test]
fn reasoning_extends_the_first_token_and_idle_timeouts_to_the_whole_call() {
    let timeouts = |effort| {
        let config = ModelConfig { reasoning_effort: effort, ..entry(None) };
        Anthropic::new(&config, &LlmEnvironment::default()).unwrap().transport.timeouts
    };
    assert_eq!(timeouts(None).first, limits::MODEL_FIRST_TOKEN);
    assert_eq!(timeouts(None).idle, limits::MODEL_IDLE);
    assert_eq!(
        (timeouts(Some(ReasoningEffort::High)).first, timeouts(Some(ReasoningEffort::High)).idle),
        (limits::MODEL_TOTAL, limits::MODEL_TOTAL)
    );
}

fn event(data: &serde_json::Value) -> String {
    format!("event: x\ndata: {data}\n\n")
}

fn decode(events: &str) -> (usize, Result<super::super::ChatResponse, LlmError>) {
    let mut decoder = response::decoder("m".into(), 1, 0);
    let fed = decoder.feed(events.as_bytes());
    let ended = fed.and_then(|()| decoder.end());
    let mut texts = 0;
    while let Some(delta) = decoder.next_delta() {
        texts += usize::from(matches!(delta, Delta::Text(_)));
    }
    (texts, ended.and_then(|()| decoder.response()))
}

#[test]
fn many_blocks_do_not_spoil_a_call_after_them() {
    let start = |index, block: &serde_json::Value| {
        event(&json!({"type": "content_block_start", "index": index, "content_block": block}))
    };
    let mut events: String = (0..=limits::MODEL_BLOCKS).map(|index| start(index, &json!({"type": "new"}))).collect();
    let at = limits::MODEL_BLOCKS + 1;
    events += &start(at, &json!({"type": "tool_use", "id": "a", "name": "f", "input": {}}));
    let delta = json!({"type": "input_json_delta", "partial_json": "{\"x\":1}"});
    events += &event(&json!({"type": "content_block_delta", "index": at, "delta": delta}));
    events += &event(&json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}));
    events += &event(&json!({"type": "message_stop"}));
    let answer = decode(&events).1.unwrap();
    assert_eq!(answer.tool_calls[0].arguments.to_string(), "{\"x\":1}");
}

#[test]
fn too_much_reasoning_is_dropped_without_failing() {
    let long = "x".repeat(limits::MODEL_REASONING / 2);
    let think = |index: usize| {
        let block = json!({"type": "thinking", "thinking": long, "signature": "s"});
        event(&json!({"type": "content_block_start", "index": index, "content_block": block}))
    };
    let rest = [
        event(&json!({"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": "hi"}})),
        event(&json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})),
        event(&json!({"type": "message_stop"})),
    ];
    let (_, few) = decode(&[think(0), rest.concat()].concat());
    assert_eq!(few.unwrap().reasoning.unwrap().blocks.len(), 1);
    let (texts, many) = decode(&[think(0), think(1), rest.concat()].concat());
    let many = many.unwrap();
    assert_eq!((texts, &*many.text, many.reasoning), (1, "hi", None));
}

#[test]
fn calls_of_provider_side_tools_are_ignored() {
    let events = [
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{\"query\""}}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "hi"}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
        json!({"type": "message_stop"}),
    ];
    let answer = decode(&events.iter().map(event).collect::<String>()).1.unwrap();
    assert_eq!((&*answer.text, answer.tool_calls.len()), ("hi", 0));
}

#[test]
fn redacted_reasoning_is_sent_back_and_unsigned_reasoning_is_not() {
    let start = |index: u64, block: serde_json::Value| {
        event(&json!({"type": "content_block_start", "index": index, "content_block": block}))
    };
    let events = [
        start(0, json!({"type": "redacted_thinking", "data": "encrypted"})),
        start(1, json!({"type": "thinking", "thinking": "unsigned"})),
        event(&json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})),
    ];
    let reasoning = decode(&events.concat()).1.unwrap().reasoning.unwrap();
    assert_eq!(reasoning.blocks.len(), 1);
    assert_eq!(*reasoning.blocks[0].block, json!({"type": "redacted_thinking", "data": "encrypted"}));
}

#[test]
fn an_odd_block_spoils_neither_the_text_nor_the_other_calls() {
    let good = json!({"type": "tool_use", "id": "a", "name": "f", "input": {}});
    let odd = |key: &str, value: Value| {
        let mut block = json!({"type": "tool_use", "id": "b", "name": "g", "input": {"x": 1}});
        block[key] = value;
        block
    };
    let x = Some(json!({"x": 1}));
    let cases = [
        (odd("id", json!(7)), Some(("7", "g", x.clone()))),
        (odd("input", json!("{\"x\":1}")), Some(("b", "g", x))),
        (odd("input", Value::Null), Some(("b", "g", Some(json!({}))))),
        (odd("name", json!(5)), Some(("b", "unnamed", None))),
        (odd("type", json!("custom_use")), None),
        (Value::Null, None),
    ];
    for (block, expected) in cases {
        let text = json!({"type": "text", "text": "Hello."});
        let blocks = [text, good.clone(), block.clone()];
        let whole = json!({"type": "message", "content": blocks, "stop_reason": "tool_use"}).to_string();
        let mut stream = String::new();
        for (index, block) in blocks.iter().enumerate() {
            let event = json!({"type": "content_block_start", "index": index.to_string(), "content_block": block});
            stream.push_str(&format!("data: {event}\n\n"));
        }
        let end = json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}});
        stream.push_str(&format!("data: {end}\n\ndata: {{\"type\":\"message_stop\"}}\n\n"));
        for body in [whole, stream] {
            let mut decoder = response::decoder("m".into(), 2, 100);
            decoder.feed(body.as_bytes()).and_then(|()| decoder.end()).unwrap();
            let answer = decoder.response().unwrap();
            assert_eq!(&*answer.text, "Hello.", "{block}");
            assert_eq!((&*answer.tool_calls[0].id, &*answer.tool_calls[0].name), ("a", "f"), "{block}");
            let second = answer.tool_calls.get(1);
            let second = second.map(|call| (&*call.id, &*call.name, call.arguments.as_json().cloned()));
            assert_eq!(second, expected, "{block}");
        }
    }
}
