//! Conformance tests: every scenario of `tests/responses/scenarios.yml` on every API, and every byte stream of `tests/responses/openai/`.
//!
//! An [`Api`] encodes scenarios, decodes responses, and has a client. Scenarios that an API cannot express are skipped with a
//! reason; [`skips_are_listed`] lists all skips.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

mod anthropic;
mod openai;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use segue_base::{manual_clock::ManualClock, secret::Secret};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{
    ChatMessage, ChatRequest, ChatResponse, Delta, Llm, LlmError, ModelConfig, Purpose, ResponseWarning, Usage,
    message::FinishReason, transport::ResponseDecoder,
};
use crate::LlmEnvironment;

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Scenario {
    name: String,
    #[serde(default)]
    response: Vec<ResponsePart>,
    usage: Option<TokenCounts>,
    #[serde(default = "enabled")]
    streamed: bool,
    #[serde(default = "enabled")]
    end_marker: bool,
    #[serde(default)]
    html: bool,
    lines: Option<LineFormat>,
    error_status: Option<(u16, ErrorCase)>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    expect: Expected,
}

fn enabled() -> bool {
    true
}

#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "snake_case")]
enum ResponsePart {
    Text(String),
    Long(usize),
    Refusal(String),
    Reasoning(String),
    Call(u64, String, String),
    Arguments(u64, String),
    Many(u64),
    Ping(usize),
    Unknown(usize),
    Error(ErrorCase),
    End(StopReason),
}

#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum StopReason {
    Stop,
    Calls,
    Length,
    Filter,
    Pause,
    Other,
}

#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum ErrorCase {
    Rate,
    Quota,
    Server,
    Overloaded,
    Key,
    Model,
    Invalid,
    TooLong,
    TooLarge,
    Filter,
    Html,
}

#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum LineFormat {
    Crlf,
    Cr,
    Bom,
}

#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct TokenCounts {
    input: u64,
    output: u64,
    #[serde(default)]
    cached: u64,
    #[serde(default)]
    cache_written: u64,
    #[serde(default)]
    reasoning: u64,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Expected {
    #[serde(default)]
    text: String,
    length: Option<usize>,
    deltas: Option<usize>,
    refusal: Option<String>,
    #[serde(default)]
    calls: Vec<(String, String, Option<String>)>,
    #[serde(default)]
    truncated_calls: Vec<String>,
    finish: Option<FinishReason>,
    usage: Option<TokenCounts>,
    #[serde(default)]
    estimated: bool,
    model: Option<String>,
    #[serde(default)]
    reasoning: usize,
    /// The warnings of the response, as stored.
    #[serde(default)]
    warnings: Vec<ResponseWarning>,
    error: Option<String>,
    streamed: Option<String>,
    retry_after: Option<u64>,
}

/// Why an API cannot express a scenario.
type Skip = &'static str;

trait Api {
    fn name(&self) -> &'static str;
    /// The body of a streamed response with status 200.
    fn stream(&self, scenario: &Scenario) -> Result<Vec<u8>, Skip>;
    /// The body of the same response as one JSON text.
    fn json(&self, scenario: &Scenario) -> Result<Vec<u8>, Skip>;
    /// The body of an error response.
    fn error_body(&self, case: ErrorCase) -> Result<Vec<u8>, Skip>;
    fn decoder(&self) -> Box<dyn ResponseDecoder>;
    fn provider(&self) -> &'static str;
}

fn apis() -> [&'static dyn Api; 2] {
    [&openai::OpenAi, &anthropic::Anthropic]
}

fn scenarios() -> Vec<Scenario> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/responses/scenarios.yml")).unwrap();
    let scenarios: Vec<Scenario> = serde_yaml::from_str(&text).unwrap();
    let names: std::collections::BTreeSet<&str> = scenarios.iter().map(|scenario| &*scenario.name).collect();
    assert_eq!(names.len(), scenarios.len(), "scenario names are unique");
    scenarios
}

/// The status and body of a scenario.
fn encode(api: &dyn Api, scenario: &Scenario) -> Result<(u16, Vec<u8>), Skip> {
    if let Some((status, case)) = scenario.error_status {
        let body = if case == ErrorCase::Html { HTML.as_bytes().to_vec() } else { api.error_body(case)? };
        return Ok((status, body));
    }
    if scenario.html {
        return Ok((200, HTML.as_bytes().to_vec()));
    }
    let bytes = if scenario.streamed { api.stream(scenario)? } else { api.json(scenario)? };
    Ok((200, with_line_format(&bytes, scenario.lines)))
}

const HTML: &str = "<!doctype html><html><body>Bad gateway</body></html>";

/// Applies the line format, and replaces the placeholders of bytes that JSON cannot contain.
fn with_line_format(bytes: &[u8], lines: Option<LineFormat>) -> Vec<u8> {
    let mut text = String::from_utf8(bytes.to_vec()).unwrap();
    text = match lines {
        Some(LineFormat::Crlf) => text.replace('\n', "\r\n"),
        Some(LineFormat::Cr) => text.replace('\n', "\r"),
        Some(LineFormat::Bom) => format!("\u{FEFF}{text}"),
        None => text,
    };
    let mut out = Vec::with_capacity(text.len());
    for c in text.replace('\u{E001}', "\\ud83d").chars() {
        match c {
            '\u{E000}' => out.push(0xFF),
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out
}

/// The text deltas and the result of a response.
type Decoded = (Vec<String>, Result<ChatResponse, LlmError>);

fn decode<'a>(api: &dyn Api, chunks: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    let mut decoder = api.decoder();
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
    let mut streamed = Vec::new();
    while let Some(delta) = decoder.next_delta() {
        if let Delta::Text(text) = delta {
            streamed.push(text.to_string());
        }
    }
    (streamed, outcome.and_then(|()| decoder.response()))
}

fn check(at: &str, (streamed, end): Decoded, expected: &Expected) {
    let all: String = streamed.concat();
    let answer = match (end, &expected.error) {
        (Err(error), Some(code)) => {
            assert_eq!(error.code(), code, "{at}: {error:?}");
            assert_eq!(&all, expected.streamed.as_ref().unwrap_or(&all), "{at}");
            let retry_after = error.retry_after().map(|wait| wait.as_secs());
            assert_eq!(retry_after, expected.retry_after, "{at}");
            return;
        }
        (Ok(answer), None) => answer,
        (end, _) => panic!("{at}: {end:?}, expected {expected:?}"),
    };
    assert_eq!(*answer.text, *all, "{at}: the deltas are the text of the response");
    match expected.length {
        Some(length) => assert_eq!(answer.text.len(), length, "{at}"),
        None => assert_eq!(*answer.text, *expected.text, "{at}"),
    }
    if let Some(deltas) = expected.deltas {
        assert_eq!(streamed.len(), deltas, "{at}: deltas are returned as they come");
    }
    assert_eq!(answer.refusal.as_deref(), expected.refusal.as_deref(), "{at}");
    let calls: Vec<(String, String, Option<Value>)> = answer
        .tool_calls
        .iter()
        .map(|call| (call.id.to_string(), call.name.to_string(), call.arguments.as_json().cloned()))
        .collect();
    let json = |text: &String| serde_json::from_str::<Value>(text).unwrap();
    let wanted: Vec<_> =
        expected.calls.iter().map(|(id, name, text)| (id.clone(), name.clone(), text.as_ref().map(json))).collect();
    assert_eq!(calls, wanted, "{at}");
    assert_eq!(
        answer.truncated_calls.iter().map(|name| name.to_string()).collect::<Vec<_>>(),
        expected.truncated_calls,
        "{at}"
    );
    assert_eq!(Some(answer.finish), expected.finish, "{at}");
    if let Some(counts) = expected.usage {
        let Usage { input, output, cached, cache_written, reasoning, estimated, .. } = answer.usage;
        assert_eq!(TokenCounts { input, output, cached, cache_written, reasoning }, counts, "{at}");
        assert!(!estimated, "{at}");
    }
    assert!(!expected.estimated || answer.usage.estimated && answer.usage.output > 0, "{at}: {:?}", answer.usage);
    assert!(expected.model.as_ref().is_none_or(|model| *answer.model == **model), "{at}: {}", answer.model);
    let reasoning = answer.reasoning.as_ref().map_or(0, |reasoning| reasoning.blocks.len());
    assert_eq!(reasoning, expected.reasoning, "{at}");
    assert_eq!(answer.warnings, expected.warnings, "{at}");
}

/// All scenarios that an API can express, with status and body.
fn grid() -> Vec<(&'static dyn Api, Scenario, u16, Vec<u8>)> {
    let mut grid = Vec::new();
    for api in apis() {
        for scenario in scenarios() {
            if let Ok((status, bytes)) = encode(api, &scenario) {
                grid.push((api, scenario, status, bytes));
            }
        }
    }
    grid
}

/// A response with status 200.
struct Case {
    at: String,
    api: &'static dyn Api,
    bytes: Vec<u8>,
    expected: Expected,
}

/// The scenarios with status 200, and the recorded byte streams.
fn cases() -> Vec<Case> {
    let answered = grid().into_iter().filter(|(_, scenario, ..)| scenario.error_status.is_none());
    let named = answered.map(|(api, scenario, _, bytes)| {
        let at = format!("{} on {}", scenario.name, api.name());
        Case { at, api, bytes, expected: scenario.expect }
    });
    named.chain(recorded()).collect()
}

/// The byte streams of `tests/responses/openai/`. Panics unless files and lines of `expected.json` match.
fn recorded() -> Vec<Case> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/responses/openai");
    let text = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    let lines: BTreeMap<String, Expected> = serde_json::from_str(&text).unwrap();
    let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let names: BTreeSet<String> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "sse"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(lines.keys().cloned().collect::<BTreeSet<_>>(), names, "files and lines of expected.json");
    assert!(names.len() > 40);
    let case = |(name, expected): (String, Expected)| {
        let bytes = std::fs::read(folder.join(format!("{name}.sse"))).unwrap();
        Case { at: format!("{name}.sse"), api: &openai::OpenAi, bytes, expected }
    };
    lines.into_iter().map(case).collect()
}

/// The distance of the positions at which a body is split: every byte, but 40 positions in large bodies.
fn step_size(bytes: &[u8]) -> usize {
    if bytes.len() < 10_000 { 1 } else { bytes.len() / 40 }
}

/// Requests a scenario over HTTP with the client of the API.
async fn request(
    api: &dyn Api,
    scenario: &Scenario,
    status: u16,
    body: Vec<u8>,
    environment: &LlmEnvironment,
) -> Decoded {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let headers: String = scenario.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    tokio::task::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"}") {
            let mut some = [0; 4096];
            let n = stream.read(&mut some).await.unwrap();
            received.extend_from_slice(&some[..n]);
        }
        let head =
            format!("HTTP/1.1 {status} x\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        // The client closes the connection as soon as it has read enough.
        let _ = stream.write_all(&body).await;
    });
    let config = ModelConfig {
        provider: api.provider().into(),
        model: "m".into(),
        api_base: Some(base),
        api_key: Some(Secret::new("test-key")),
        ..ModelConfig::default()
    };
    let model: Arc<dyn Llm> = super::open_one(&config, environment).unwrap();
    let cx = ManualClock::new().context(Duration::from_secs(60));
    let messages = vec![ChatMessage::system("s"), ChatMessage::user("hello")];
    let mut streamed = Vec::new();
    let mut stream = match model.chat(ChatRequest::new(Purpose::AGENT, messages), &cx).await {
        Ok(stream) => stream,
        Err(error) => return (streamed, Err(error)),
    };
    loop {
        match stream.next().await.unwrap() {
            Ok(Delta::Text(text)) => streamed.push(text.to_string()),
            Ok(Delta::Done(answer)) => return (streamed, Ok(ChatResponse::clone(&answer))),
            Ok(_) => {}
            Err(error) => return (streamed, Err(error)),
        }
    }
}

#[tokio::test]
async fn every_scenario_on_every_wire() {
    let mut cells = BTreeMap::<&str, usize>::new();
    // One HTTP client for all, because making one reads the system's certificates.
    let environment = LlmEnvironment::default();
    for (api, scenario, status, body) in grid() {
        let at = format!("{} on {}", scenario.name, api.name());
        check(&at, request(api, &scenario, status, body, &environment).await, &scenario.expect);
        *cells.entry(api.name()).or_default() += 1;
    }
    println!("{} scenarios; {cells:?}", scenarios().len());
    assert!(scenarios().len() > 80 && cells.values().all(|cells| *cells > 75), "{cells:?}");
}

/// Of how many points of a stream one is tried: of one with `SEGUE_FULL=1`, otherwise of three.
fn tried_of() -> usize {
    if std::env::var_os("SEGUE_FULL").is_some() { 1 } else { 3 }
}

#[test]
fn chunk_boundaries_do_not_matter() {
    for Case { at, api, bytes, expected } in cases() {
        check(&at, decode(api, [&bytes[..]]), &expected);
        for size in [1, 2, 3, 7, 61] {
            check(&format!("{at} in chunks of {size}"), decode(api, bytes.chunks(size)), &expected);
        }
        for split in (0..bytes.len()).step_by(tried_of() * step_size(&bytes)) {
            let (head, tail) = bytes.split_at(split);
            check(&format!("{at} split at {split}"), decode(api, [head, tail]), &expected);
        }
    }
}

/// A stream that is truncated at any point results in a complete response or an error: no partial tool call, and only text of the full
/// response.
#[test]
fn a_truncated_stream_fails_or_is_complete() {
    let every = tried_of();
    let (mut failed, mut complete) = (0, 0);
    for Case { at, api, bytes, .. } in cases() {
        let (all_streamed, full) = decode(api, [&bytes[..]]);
        let all_streamed = all_streamed.concat();
        for length in (0..bytes.len()).step_by(every * step_size(&bytes)) {
            let at = format!("{at} truncated at {length}");
            let (streamed, end) = decode(api, [&bytes[..length]]);
            let streamed = streamed.concat();
            assert!(all_streamed.starts_with(streamed.trim_end_matches('\u{FFFD}')), "{at}: streamed {streamed:?}");
            match end {
                Err(error) => {
                    assert!(!error.code().is_empty());
                    failed += 1;
                }
                Ok(answer) => {
                    complete += 1;
                    let full = full.as_ref().map(|full| full.tool_calls.as_slice()).unwrap_or_default();
                    assert!(answer.tool_calls.is_empty() || answer.tool_calls == full, "{at}: {:?}", answer.tool_calls);
                }
            }
        }
    }
    assert!(failed > 25_000 / every && complete > 2_500 / every, "{failed} {complete}");
}

/// All scenarios that an API cannot express. The test fails for a skip that is not listed and for a listed one that is not skipped.
#[test]
fn skips_are_listed() {
    let mut skips = Vec::new();
    for api in apis() {
        for scenario in scenarios() {
            if let Err(reason) = encode(api, &scenario) {
                skips.push((api.name(), scenario.name.clone(), reason));
            }
        }
    }
    for (api, scenario, reason) in &skips {
        println!("skip: {scenario} on {api}: {reason}");
    }
    println!("{} skips of {} cells", skips.len(), scenarios().len() * apis().len());
    let known = [
        ("openai", "the stop reason pause_turn"),
        ("openai", "reasoning before text"),
        ("openai", "reasoning between calls"),
        ("openai", "usage with cache writes"),
        ("openai", "a response with reasoning that is not streamed"),
        ("anthropic", "a marked refusal"),
        ("anthropic", "usage of hidden reasoning"),
        ("anthropic", "a content filter error before the response"),
    ];
    let found: Vec<(&str, &str)> = skips.iter().map(|(api, scenario, _)| (*api, &**scenario)).collect();
    assert_eq!(found, known);
}
