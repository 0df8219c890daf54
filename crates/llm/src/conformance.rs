//! The conformance grid: every scenario of `tests/wire/scenarios.yml` on every wire, and every recorded stream of `tests/wire/openai/`.
//!
//! A wire is a [`Wire`]: how it writes a scenario, how it decodes, and the model that speaks it. What it has no words for it
//! says with a reason; those are the skips, and the list of them stands in [`skips_are_known`].
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
    answer: Vec<Part>,
    usage: Option<Figures>,
    #[serde(default)]
    whole: bool,
    #[serde(default)]
    cut: bool,
    #[serde(default)]
    page: bool,
    lines: Option<Lines>,
    refused: Option<(u16, Trouble)>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    expect: Expected,
}

#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "snake_case")]
enum Part {
    Text(String),
    Long(usize),
    Refusal(String),
    Thought(String),
    Call(u64, String, String),
    Arguments(u64, String),
    Many(u64),
    Ping(usize),
    Unknown(usize),
    Error(Trouble),
    End(End),
}

#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum End {
    Stop,
    Calls,
    Length,
    Filter,
    Pause,
    Other,
}

#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Trouble {
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
    Page,
}

#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Lines {
    Crlf,
    Cr,
    Bom,
}

#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct Figures {
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
    pieces: Option<usize>,
    refusal: Option<String>,
    #[serde(default)]
    calls: Vec<(String, String, Option<String>)>,
    #[serde(default)]
    lost: Vec<String>,
    finish: Option<FinishReason>,
    usage: Option<Figures>,
    #[serde(default)]
    estimated: bool,
    model: Option<String>,
    #[serde(default)]
    thoughts: usize,
    /// What is strange about it, in the words of a record.
    #[serde(default)]
    odd: Vec<ResponseWarning>,
    error: Option<String>,
    shown: Option<String>,
    wait: Option<u64>,
}

/// A reason why a wire cannot say something.
type Skip = &'static str;

trait Wire {
    fn name(&self) -> &'static str;
    /// The bytes of an answer with status 200.
    fn stream(&self, scenario: &Scenario) -> Result<Vec<u8>, Skip>;
    /// The bytes of the same answer in one JSON text.
    fn whole(&self, scenario: &Scenario) -> Result<Vec<u8>, Skip>;
    /// The body of an error answer.
    fn refusal(&self, trouble: Trouble) -> Result<Vec<u8>, Skip>;
    fn decoder(&self) -> Box<dyn ResponseDecoder>;
    fn provider(&self) -> &'static str;
}

fn wires() -> [&'static dyn Wire; 2] {
    [&openai::OpenAi, &anthropic::Anthropic]
}

fn scenarios() -> Vec<Scenario> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire/scenarios.yml")).unwrap();
    let scenarios: Vec<Scenario> = serde_yaml::from_str(&text).unwrap();
    let names: std::collections::BTreeSet<&str> = scenarios.iter().map(|scenario| &*scenario.name).collect();
    assert_eq!(names.len(), scenarios.len(), "every scenario has a name of its own");
    scenarios
}

/// The body of a scenario, and its status.
fn written(wire: &dyn Wire, scenario: &Scenario) -> Result<(u16, Vec<u8>), Skip> {
    if let Some((status, trouble)) = scenario.refused {
        let body = if trouble == Trouble::Page { PAGE.as_bytes().to_vec() } else { wire.refusal(trouble)? };
        return Ok((status, body));
    }
    if scenario.page {
        return Ok((200, PAGE.as_bytes().to_vec()));
    }
    let bytes = if scenario.whole { wire.whole(scenario)? } else { wire.stream(scenario)? };
    Ok((200, marked(&bytes, scenario.lines)))
}

const PAGE: &str = "<!doctype html><html><body>Bad gateway</body></html>";

/// Puts what JSON cannot carry in the place of its stand-ins.
fn marked(bytes: &[u8], lines: Option<Lines>) -> Vec<u8> {
    let mut text = String::from_utf8(bytes.to_vec()).unwrap();
    text = match lines {
        Some(Lines::Crlf) => text.replace('\n', "\r\n"),
        Some(Lines::Cr) => text.replace('\n', "\r"),
        Some(Lines::Bom) => format!("\u{FEFF}{text}"),
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

/// What a reader sees: the pieces of text, and the end.
type Seen = (Vec<String>, Result<ChatResponse, LlmError>);

fn decode<'a>(wire: &dyn Wire, chunks: impl IntoIterator<Item = &'a [u8]>) -> Seen {
    let mut decoder = wire.decoder();
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
    let mut shown = Vec::new();
    while let Some(delta) = decoder.next_delta() {
        if let Delta::Text(text) = delta {
            shown.push(text.to_string());
        }
    }
    (shown, outcome.and_then(|()| decoder.answer()))
}

fn judge(at: &str, (shown, end): Seen, expected: &Expected) {
    let all: String = shown.concat();
    let answer = match (end, &expected.error) {
        (Err(error), Some(code)) => {
            assert_eq!(error.code(), code, "{at}: {error:?}");
            assert_eq!(&all, expected.shown.as_ref().unwrap_or(&all), "{at}");
            let wait = error.retry_after().map(|wait| wait.as_secs());
            assert_eq!(wait, expected.wait, "{at}");
            return;
        }
        (Ok(answer), None) => answer,
        (end, _) => panic!("{at}: {end:?}, expected {expected:?}"),
    };
    assert_eq!(*answer.text, *all, "{at}: what is shown is what is answered");
    match expected.length {
        Some(length) => assert_eq!(answer.text.len(), length, "{at}"),
        None => assert_eq!(*answer.text, *expected.text, "{at}"),
    }
    if let Some(pieces) = expected.pieces {
        assert_eq!(shown.len(), pieces, "{at}: pieces leave as they come");
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
    assert_eq!(answer.lost_calls.iter().map(|name| name.to_string()).collect::<Vec<_>>(), expected.lost, "{at}");
    assert_eq!(Some(answer.finish), expected.finish, "{at}");
    if let Some(figures) = expected.usage {
        let Usage { input, output, cached, cache_written, reasoning, estimated, .. } = answer.usage;
        assert_eq!(Figures { input, output, cached, cache_written, reasoning }, figures, "{at}");
        assert!(!estimated, "{at}");
    }
    assert!(!expected.estimated || answer.usage.estimated && answer.usage.output > 0, "{at}: {:?}", answer.usage);
    assert!(expected.model.as_ref().is_none_or(|model| *answer.model == **model), "{at}: {}", answer.model);
    let thoughts = answer.thoughts.as_ref().map_or(0, |thoughts| thoughts.blocks.len());
    assert_eq!(thoughts, expected.thoughts, "{at}");
    assert_eq!(answer.oddities, expected.odd, "{at}");
}

/// Every scenario that a wire can say, with its status and its body.
fn grid() -> Vec<(&'static dyn Wire, Scenario, u16, Vec<u8>)> {
    let mut grid = Vec::new();
    for wire in wires() {
        for scenario in scenarios() {
            if let Ok((status, bytes)) = written(wire, &scenario) {
                grid.push((wire, scenario, status, bytes));
            }
        }
    }
    grid
}

/// An answer with status 200.
struct Case {
    at: String,
    wire: &'static dyn Wire,
    bytes: Vec<u8>,
    expected: Expected,
}

/// The scenarios of the grid that have no status of their own, and the recorded streams.
fn cases() -> Vec<Case> {
    let answered = grid().into_iter().filter(|(_, scenario, ..)| scenario.refused.is_none());
    let named = answered.map(|(wire, scenario, _, bytes)| {
        let at = format!("{} on {}", scenario.name, wire.name());
        Case { at, wire, bytes, expected: scenario.expect }
    });
    named.chain(recorded()).collect()
}

/// The streams of `tests/wire/openai/`. Fails when a file has no line or a line has no file.
fn recorded() -> Vec<Case> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/wire/openai");
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
        Case { at: format!("{name}.sse"), wire: &openai::OpenAi, bytes, expected }
    };
    lines.into_iter().map(case).collect()
}

/// Every byte of an answer, but of huge ones 40: what could differ does so near the head of an event.
fn pace(bytes: &[u8]) -> usize {
    if bytes.len() < 10_000 { 1 } else { bytes.len() / 40 }
}

/// A scenario over HTTP, through the model itself.
async fn ask(wire: &dyn Wire, scenario: &Scenario, status: u16, body: Vec<u8>, around: &LlmEnvironment) -> Seen {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let headers: String = scenario.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    tokio::task::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut heard = Vec::new();
        while !heard.ends_with(b"}") {
            let mut some = [0; 4096];
            let n = stream.read(&mut some).await.unwrap();
            heard.extend_from_slice(&some[..n]);
        }
        let head =
            format!("HTTP/1.1 {status} x\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        // The reader hangs up as soon as it has read enough.
        let _ = stream.write_all(&body).await;
    });
    let config = ModelConfig {
        provider: wire.provider().into(),
        model: "m".into(),
        api_base: Some(base),
        api_key: Some(Secret::new("key-of-the-grid")),
        ..ModelConfig::default()
    };
    let model: Arc<dyn Llm> = super::open_one(&config, around).unwrap();
    let cx = ManualClock::new().context(Duration::from_secs(60));
    let messages = vec![ChatMessage::system("s"), ChatMessage::user("hello")];
    let mut shown = Vec::new();
    let mut stream = match model.chat(ChatRequest::new(Purpose::AGENT, messages), &cx).await {
        Ok(stream) => stream,
        Err(error) => return (shown, Err(error)),
    };
    loop {
        match stream.next().await.unwrap() {
            Ok(Delta::Text(text)) => shown.push(text.to_string()),
            Ok(Delta::Done(answer)) => return (shown, Ok(ChatResponse::clone(&answer))),
            Ok(_) => {}
            Err(error) => return (shown, Err(error)),
        }
    }
}

#[tokio::test]
async fn every_scenario_on_every_wire() {
    let mut cells = BTreeMap::<&str, usize>::new();
    // One pool of connections: making one reads the machine's certificates.
    let around = LlmEnvironment::default();
    for (wire, scenario, status, body) in grid() {
        let at = format!("{} on {}", scenario.name, wire.name());
        judge(&at, ask(wire, &scenario, status, body, &around).await, &scenario.expect);
        *cells.entry(wire.name()).or_default() += 1;
    }
    println!("{} scenarios; {cells:?}", scenarios().len());
    assert!(scenarios().len() > 80 && cells.values().all(|cells| *cells > 75), "{cells:?}");
}

#[test]
fn chunking_changes_nothing() {
    for Case { at, wire, bytes, expected } in cases() {
        judge(&at, decode(wire, [&bytes[..]]), &expected);
        for size in [1, 2, 3, 7, 61] {
            judge(&format!("{at} in chunks of {size}"), decode(wire, bytes.chunks(size)), &expected);
        }
        for split in (0..bytes.len()).step_by(pace(&bytes)) {
            let (head, tail) = bytes.split_at(split);
            judge(&format!("{at} split at {split}"), decode(wire, [head, tail]), &expected);
        }
    }
}

/// Cut anywhere, an answer is whole or a typed failure: never half of a call, and no text that the whole one does not show.
#[test]
fn every_cut_is_a_typed_failure() {
    let (mut failed, mut whole) = (0, 0);
    for Case { at, wire, bytes, .. } in cases() {
        let (all_shown, full) = decode(wire, [&bytes[..]]);
        let all_shown = all_shown.concat();
        for cut in (0..bytes.len()).step_by(pace(&bytes)) {
            let at = format!("{at} cut at {cut}");
            let (shown, end) = decode(wire, [&bytes[..cut]]);
            let shown = shown.concat();
            assert!(all_shown.starts_with(shown.trim_end_matches('\u{FFFD}')), "{at}: shown {shown:?}");
            match end {
                Err(error) => {
                    assert!(!error.code().is_empty());
                    failed += 1;
                }
                Ok(answer) => {
                    whole += 1;
                    let full = full.as_ref().map(|full| full.tool_calls.as_slice()).unwrap_or_default();
                    assert!(answer.tool_calls.is_empty() || answer.tool_calls == full, "{at}: {:?}", answer.tool_calls);
                }
            }
        }
    }
    assert!(failed > 25_000 && whole > 2_500, "{failed} {whole}");
}

/// What a wire has no words for. A skip that is not in this list, and a line that is no skip, fail.
#[test]
fn skips_are_known() {
    let mut skips = Vec::new();
    for wire in wires() {
        for scenario in scenarios() {
            if let Err(reason) = written(wire, &scenario) {
                skips.push((wire.name(), scenario.name.clone(), reason));
            }
        }
    }
    for (wire, scenario, reason) in &skips {
        println!("skip: {scenario} on {wire}: {reason}");
    }
    println!("{} skips of {} cells", skips.len(), scenarios().len() * wires().len());
    let known = [
        ("openai", "a vendor's pause"),
        ("openai", "thoughts before text"),
        ("openai", "thoughts between calls"),
        ("openai", "usage of writing to a vendor's cache"),
        ("openai", "a whole answer with thoughts"),
        ("anthropic", "a refusal in words of its own"),
        ("anthropic", "usage of unseen reasoning"),
        ("anthropic", "the vendor's filter before the answer"),
    ];
    let found: Vec<(&str, &str)> = skips.iter().map(|(wire, scenario, _)| (*wire, &**scenario)).collect();
    assert_eq!(found, known);
}
