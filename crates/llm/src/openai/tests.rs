#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod faulty_server;

use segue_base::limits;

use super::{OpenAi, response::decoder};
use crate::{
    LlmEnvironment, ModelConfig, error::LlmError, message::ChatResponse, stream::Delta, transport::ResponseDecoder,
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
    let mut decoder = decoder(2, 400);
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
    let mut decoder = decoder(1, 0);
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
