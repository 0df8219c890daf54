#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod server;

use std::{collections::BTreeMap, path::PathBuf};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use super::{OpenAi, stream::ChunkDecoder};
use crate::{
    limits,
    llm::{
        ModelConfig, Surroundings,
        error::LlmError,
        message::{Answer, Finish},
        pump::Decode,
        retry::random,
        stream::Delta,
    },
};

/// As on the messages wire: a model that thinks may be silent for as long as the call lasts, between two events too.
#[test]
fn who_thinks_may_take_its_time() {
    for (model, waits) in [
        ("gpt-oss-20b", (limits::MODEL_TOTAL, limits::MODEL_TOTAL)),
        ("llama3", (limits::MODEL_FIRST_TOKEN, limits::MODEL_IDLE)),
    ] {
        let base = Some("http://127.0.0.1:9/v1".into());
        let config = ModelConfig { model: model.into(), api_base: base, ..ModelConfig::default() };
        let config = ModelConfig { provider: "self-hosted".into(), ..config };
        let frame = OpenAi::new(&config, &Surroundings::default()).unwrap().frame;
        assert_eq!((frame.waits.first, frame.waits.idle), waits, "{model}");
    }
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Expected {
    #[serde(default)]
    text: String,
    refusal: Option<String>,
    #[serde(default)]
    calls: Vec<(String, String, Option<Value>)>,
    #[serde(default)]
    lost: Vec<String>,
    finish: Option<Finish>,
    usage: Option<[u64; 4]>,
    #[serde(default)]
    estimated: bool,
    model: Option<String>,
    error: Option<String>,
    shown: Option<String>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/wire/openai")
}

/// Every stream with what must come of it. Fails when a file has no line or a line has no file.
fn grid() -> Vec<(String, Vec<u8>, Expected)> {
    let text = std::fs::read_to_string(folder().join("expected.json")).unwrap();
    let mut expected: BTreeMap<String, Expected> = serde_json::from_str(&text).unwrap();
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "sse"));
    files.sort();
    let grid: Vec<_> = files
        .iter()
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let expected = expected.remove(&name).unwrap_or_else(|| panic!("expected.json has no line for {name}"));
            (name, std::fs::read(path).unwrap(), expected)
        })
        .collect();
    assert!(expected.is_empty(), "lines without a file: {expected:?}");
    assert!(grid.len() > 40);
    grid
}

/// What a reader sees: the text shown, and the end.
fn decode<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> (String, Result<Answer, LlmError>) {
    let mut decoder = ChunkDecoder::new(2, 400);
    let mut shown = String::new();
    let mut outcome = Ok(());
    for chunk in chunks {
        outcome = decoder.feed(Bytes::copy_from_slice(chunk));
        if outcome.is_err() || decoder.is_closed() {
            break;
        }
    }
    if outcome.is_ok() && !decoder.is_closed() {
        outcome = decoder.end();
    }
    while let Some(delta) = decoder.pop() {
        if let Delta::Text(text) = delta {
            assert!(!text.is_empty());
            shown.push_str(&text);
        }
    }
    (shown, outcome.and_then(|()| decoder.answer()))
}

fn judge(name: &str, (shown, end): (String, Result<Answer, LlmError>), expected: &Expected) {
    let answer = match (end, &expected.error) {
        (Err(error), Some(code)) => {
            assert_eq!(error.code(), code, "{name}: {error:?}");
            assert_eq!(&shown, expected.shown.as_ref().unwrap_or(&shown), "{name}");
            return;
        }
        (Ok(answer), None) => answer,
        (end, _) => panic!("{name}: {end:?}, expected {expected:?}"),
    };
    assert_eq!((&*answer.text, &shown), (&*expected.text, &expected.text), "{name}");
    assert_eq!(answer.refusal.as_deref(), expected.refusal.as_deref(), "{name}");
    let call =
        |call: &crate::llm::ToolCall| (call.id.to_string(), call.name.to_string(), call.arguments.as_json().cloned());
    assert_eq!(answer.tool_calls.iter().map(call).collect::<Vec<_>>(), expected.calls, "{name}");
    assert_eq!(answer.lost_calls.iter().map(|name| name.to_string()).collect::<Vec<_>>(), expected.lost, "{name}");
    assert_eq!(Some(answer.finish), expected.finish, "{name}");
    if let Some(usage) = expected.usage {
        let told = answer.usage;
        assert_eq!([told.input, told.output, told.cached, told.reasoning], usage, "{name}");
        assert!(!told.estimated, "{name}");
    }
    if expected.estimated {
        assert!(answer.usage.estimated && answer.usage.input == 100, "{name}: {:?}", answer.usage);
    }
    if let Some(model) = &expected.model {
        assert_eq!(&*answer.model, model, "{name}");
    }
}

#[test]
fn every_stream_gives_what_it_must() {
    for (name, bytes, expected) in grid() {
        judge(&name, decode([&bytes[..]]), &expected);
    }
}

#[test]
fn chunking_changes_nothing() {
    for (name, bytes, expected) in grid() {
        for size in [1, 2, 3, 5, 7, 16, 61] {
            judge(&format!("{name} in chunks of {size}"), decode(bytes.chunks(size)), &expected);
        }
        for seed in 0..20 {
            let mut chunks = Vec::new();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let size = 1 + usize::try_from(random(seed, chunks.len() as u64) % 40).unwrap();
                let (head, tail) = rest.split_at(size.min(rest.len()));
                chunks.push(head);
                rest = tail;
            }
            judge(&format!("{name} in random chunks of seed {seed}"), decode(chunks), &expected);
        }
    }
}

/// Cut anywhere, a stream gives its whole answer or a typed failure, never half of a call, and shows no text that the whole
/// stream does not show.
#[test]
fn every_cut_is_a_typed_failure() {
    let (mut failed, mut whole) = (0, 0);
    for (name, bytes, expected) in grid() {
        let (all_shown, full) = decode([&bytes[..]]);
        for cut in 0..bytes.len() {
            let (shown, end) = decode(bytes[..cut].chunks(9));
            let shown = shown.trim_end_matches('\u{FFFD}');
            assert!(all_shown.starts_with(shown), "{name} cut at {cut}: shown {shown:?}");
            match end {
                Err(error) => {
                    assert!(!error.code().is_empty());
                    failed += 1;
                }
                Ok(answer) => {
                    whole += 1;
                    if answer.tool_calls.is_empty() {
                        continue;
                    }
                    let full =
                        full.as_ref().unwrap_or_else(|error| panic!("{name} cut at {cut}: {answer:?} of {error:?}"));
                    assert_eq!(answer.tool_calls, full.tool_calls, "{name} cut at {cut}");
                    assert_eq!(expected.calls.len(), answer.tool_calls.len(), "{name} cut at {cut}");
                }
            }
        }
    }
    assert!(failed > 5_000 && whole > 500, "{failed} {whole}");
}

/// Text is told with the bytes that complete its event, not later.
#[test]
fn text_leaves_with_its_event() {
    let mut decoder = ChunkDecoder::new(1, 0);
    decoder.feed(Bytes::from_static(b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n")).unwrap();
    assert_eq!(decoder.pop(), None);
    decoder.feed(Bytes::from_static(b"\n")).unwrap();
    assert_eq!(decoder.pop(), Some(Delta::Text("a".into())));
}

#[test]
fn a_flood_is_cut_at_its_limit() {
    let event = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "x".repeat(1000));
    let (shown, end) = decode(std::iter::repeat_n(event.as_bytes(), 10_000));
    assert_eq!(end.unwrap_err(), crate::llm::Fault::TextTooLong.into());
    assert!(shown.len() <= crate::limits::MODEL_ANSWER);
}

#[test]
fn a_whole_answer_without_end_is_cut_at_its_limit() {
    let piece = vec![b' '; 64 * 1024];
    let pieces =
        std::iter::once(&b"{"[..]).chain(std::iter::repeat_n(&piece[..], crate::limits::MODEL_BODY / piece.len()));
    assert_eq!(decode(pieces).1.unwrap_err(), crate::llm::Fault::TextTooLong.into());
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rubbish_never_panics_and_never_calls(
            pieces in proptest::collection::vec(prop_oneof![
                Just("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n"), Just("data: "), Just("\n\n"), Just("{"), Just("["),
                Just("data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]}}]}\n\n"),
                Just("data: [DONE]\n\n"), Just("\"\\ud800"), Just("null"), Just("data: {\"choices\":null}\n\n"), Just("data: {\"choices\":[{}]}\n\n"),
                Just("data: {\"error\":null,\"usage\":null,\"choices\":[]}\n\n"), Just("data: []\n\n"), Just("data: {\"error\":{}}\n\n"),
            ], 0..30),
            size in 1usize..50,
        ) {
            let bytes = pieces.concat().into_bytes();
            let (_, end) = decode(bytes.chunks(size));
            // None of the pieces holds a terminal mark of the model.
            prop_assert!(end.map_or(true, |answer| answer.tool_calls.is_empty()));
        }
    }
}
