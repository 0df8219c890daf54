#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod faulty_server;

use segue_base::limits;
use serde_json::{Value, json};

use super::{OpenAi, response::decoder};
use crate::{
    LlmEnvironment, ModelConfig,
    error::LlmError,
    message::{ChatResponse, DropReason},
    stream::Delta,
    transport::ResponseDecoder,
};

#[test]
fn reasoning_extends_the_first_token_and_idle_timeouts_to_the_whole_call() {
    for (model, timeouts) in [
        ("gpt-oss-20b", (limits::MODEL_TOTAL, limits::MODEL_TOTAL)),
        ("llama3", (limits::MODEL_FIRST_TOKEN, limits::MODEL_IDLE)),
    ] {
        let base = Some("http://127.0.0.1:9/v1".into());
        let config = ModelConfig { model: model.into(), api_base: base, ..ModelConfig::default() };
        let config = ModelConfig { provider: "self-hosted".into(), ..config };
        let transport = OpenAi::new(&config, &LlmEnvironment::default()).unwrap().transport;
        assert_eq!((transport.timeouts.first, transport.timeouts.idle), timeouts, "{model}");
    }
}

/// The streamed text and the result of a response.
fn decode<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> (String, Result<ChatResponse, LlmError>) {
    let mut decoder = decoder("m".into(), 2, 400);
    let mut streamed = String::new();
    let mut outcome = Ok(());
    for chunk in chunks {
        outcome = decoder.feed(chunk);
        if outcome.is_err() || decoder.saw_end_marker() {
            break;
        }
    }
    if outcome.is_ok() && !decoder.saw_end_marker() {
        outcome = decoder.end();
    }
    while let Some(delta) = decoder.next_delta() {
        if let Delta::Text(text) = delta {
            assert!(!text.is_empty());
            streamed.push_str(&text);
        }
    }
    (streamed, outcome.and_then(|()| decoder.response()))
}

/// Text is returned with the bytes that complete its event.
#[test]
fn text_is_returned_with_its_event() {
    let mut decoder = decoder("m".into(), 1, 0);
    decoder.feed(b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n").unwrap();
    assert_eq!(decoder.next_delta(), None);
    decoder.feed(b"\n").unwrap();
    assert_eq!(decoder.next_delta(), Some(Delta::Text("a".into())));
}

#[test]
fn a_stream_over_the_text_limit_fails() {
    let event = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "x".repeat(1000));
    let (streamed, end) = decode(std::iter::repeat_n(event.as_bytes(), 10_000));
    assert_eq!(end.unwrap_err(), crate::InvalidResponse::TextTooLong.into());
    assert!(streamed.len() <= segue_base::limits::MODEL_ANSWER);
}

#[test]
fn a_json_body_over_the_limit_fails() {
    let chunk = vec![b' '; 64 * 1024];
    let chunks =
        std::iter::once(&b"{"[..]).chain(std::iter::repeat_n(&chunk[..], segue_base::limits::MODEL_BODY / chunk.len()));
    assert_eq!(decode(chunks).1.unwrap_err(), crate::InvalidResponse::TextTooLong.into());
}

/// A response with this `tool_calls`, as a stream and as a whole.
fn with_calls(tool_calls: &Value) -> [ChatResponse; 2] {
    let message = json!({"content": "Hello.", "tool_calls": tool_calls});
    let chunk = json!({"choices": [{"index": 0, "delta": message}]});
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]});
    let stream = format!("data: {chunk}\n\ndata: {end}\n\ndata: [DONE]\n\n");
    let whole = json!({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}).to_string();
    [stream, whole].map(|body| decode([body.as_bytes()]).1.unwrap_or_else(|error| panic!("{tool_calls}: {error:?}")))
}

#[test]
fn an_odd_call_spoils_neither_the_text_nor_the_other_calls() {
    let good = json!({"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let call = |change: fn(&mut Value)| {
        let mut call =
            json!({"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": "{\"x\":1}"}});
        change(&mut call);
        call
    };
    let x = Some(r#"{"x":1}"#);
    // The odd call, and what it counts as: its id, its name, and its arguments if it can run.
    type Read = (&'static str, &'static str, Option<&'static str>);
    let cases: [(Value, Read); 15] = [
        (call(|call| call["id"] = json!(7)), ("7", "g", x)),
        (call(|call| call["id"] = json!({})), ("call_2_1", "g", x)),
        (call(|call| call["index"] = json!("1")), ("b", "g", x)),
        (call(|call| call["index"] = json!(-1)), ("b", "g", x)),
        (call(|call| call["index"] = json!(1.0)), ("b", "g", x)),
        (call(|call| call["index"] = json!([])), ("b", "g", x)),
        (call(|call| call["function"]["arguments"] = json!({"x": 1})), ("b", "g", x)),
        (call(|call| call["function"]["arguments"] = Value::Null), ("b", "g", Some("{}"))),
        (json!({"id": "b", "name": "g", "arguments": {"x": 1}}), ("b", "g", x)),
        (call(|call| call["function"]["name"] = json!(5)), ("b", "unnamed", None)),
        (call(|call| call["function"] = json!("book")), ("b", "unnamed", None)),
        (call(|call| call["function"] = json!(["g"])), ("b", "unnamed", None)),
        (call(|call| call["type"] = json!("custom")), ("b", "g", None)),
        (Value::Null, ("call_2_1", "unnamed", None)),
        (json!("x"), ("call_2_1", "unnamed", None)),
    ];
    for (odd, (id, name, arguments)) in cases {
        for answer in with_calls(&json!([good, odd])) {
            assert_eq!(&*answer.text, "Hello.", "{odd}");
            let [first, second] = &*answer.tool_calls else { panic!("{odd}: {:?}", answer.tool_calls) };
            assert_eq!((&*first.id, &*first.name, first.arguments.as_json()), ("a", "f", Some(&json!({}))), "{odd}");
            let shown = second.arguments.as_json().map(Value::to_string);
            assert_eq!((&*second.id, &*second.name, shown.as_deref()), (id, name, arguments), "{odd}");
        }
        for answer in with_calls(&json!([odd, good])) {
            assert_eq!(answer.tool_calls.len(), 2, "{odd}");
            assert!(
                answer.tool_calls.iter().any(|call| &*call.id == "a" && call.arguments.as_json().is_some()),
                "{odd}"
            );
        }
    }
    for (tool_calls, expected) in [
        (good.clone(), vec![None]),
        (json!([null, "x", 5]), vec![Some(DropReason::Unreadable); 3]),
        (json!("book"), vec![Some(DropReason::Unreadable)]),
        (json!({}), vec![]),
        (Value::Null, vec![]),
    ] {
        for answer in with_calls(&tool_calls) {
            let reasons: Vec<_> = answer.tool_calls.iter().map(|call| call.arguments.drop_reason()).collect();
            assert_eq!((&*answer.text, &reasons), ("Hello.", &expected), "{tool_calls}");
        }
    }
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn invalid_streams_never_panic_and_never_produce_tool_calls(
            parts in proptest::collection::vec(prop_oneof![
                Just("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n"), Just("data: "), Just("\n\n"), Just("{"), Just("["),
                Just("data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]}}]}\n\n"),
                Just("data: [DONE]\n\n"), Just("\"\\ud800"), Just("null"), Just("data: {\"choices\":null}\n\n"), Just("data: {\"choices\":[{}]}\n\n"),
                Just("data: {\"error\":null,\"usage\":null,\"choices\":[]}\n\n"), Just("data: []\n\n"), Just("data: {\"error\":{}}\n\n"),
            ], 0..30),
            size in 1usize..50,
        ) {
            let bytes = parts.concat().into_bytes();
            let (_, end) = decode(bytes.chunks(size));
            // None of the parts has a finish reason.
            prop_assert!(end.map_or(true, |answer| answer.tool_calls.is_empty()));
        }
    }
}
