#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::time::Duration;

use segue_base::manual_clock::ManualClock;

use super::*;
use crate::{
    ChatMessage, Purpose,
    scripted::{ScriptedCall, ScriptedLlm},
};

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn request(text: &str) -> ChatRequest {
    ChatRequest::new(Purpose::AGENT, vec![ChatMessage::system("It is 2025-11-21 10:30."), ChatMessage::user(text)])
}

async fn chat(model: &dyn Llm, request: ChatRequest) -> Result<String, LlmError> {
    let cx = ManualClock::new().context(Duration::from_secs(60));
    Ok(model.chat(request, &cx).await?.finish().await?.text.to_string())
}

/// A cassette with two responses and an error after some text.
async fn record() -> String {
    let steps: Vec<ScriptedCall> =
        vec!["one".into(), "two".into(), ScriptedCall::failing_after("th", LlmErrorKind::IdleTimeout)];
    let buffer = Buffer::default();
    let recorder = Recorder::new(Arc::new(ScriptedLlm::strict(steps)), buffer.clone());
    for text in ["a", "b", "c"] {
        let _ = chat(&recorder, request(text)).await;
    }
    let bytes = buffer.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn recorded_exchanges_are_replayed() {
    let cassette = record().await;
    assert_eq!(cassette.lines().count(), 3);
    let replayer = Replayer::new(&cassette, ReplayOrder::AsRecorded).unwrap();
    assert_eq!(chat(&replayer, request("a")).await.unwrap(), "one");
    assert_eq!(chat(&replayer, request("b")).await.unwrap(), "two");
    let cx = ManualClock::new().context(Duration::from_secs(60));
    let mut stream = replayer.chat(request("c"), &cx).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap(), Delta::Text("th".into()));
    assert_eq!(stream.next().await.unwrap().unwrap_err().kind, LlmErrorKind::IdleTimeout);
    replayer.verify().unwrap();
}

#[tokio::test]
async fn the_order_matters_only_as_recorded() {
    let cassette = record().await;
    let ordered = Replayer::new(&cassette, ReplayOrder::AsRecorded).unwrap();
    assert_eq!(chat(&ordered, request("b")).await.unwrap_err().kind, LlmErrorKind::NotInScript);
    let unordered = Replayer::new(&cassette, ReplayOrder::Any).unwrap();
    assert_eq!(chat(&unordered, request("b")).await.unwrap(), "two");
    assert_eq!(chat(&unordered, request("a")).await.unwrap(), "one");
    assert_eq!(
        chat(&unordered, request("a")).await.unwrap_err().kind,
        LlmErrorKind::NotInScript,
        "each exchange is used once"
    );
}

#[tokio::test]
async fn unexpected_requests_and_unused_exchanges_are_reported() {
    let replayer = Replayer::new(&record().await, ReplayOrder::Any).unwrap();
    let _ = chat(&replayer, request("not recorded")).await;
    let problems = replayer.verify().unwrap_err();
    assert!(problems.contains("not in the cassette: agent: …not recorded"), "{problems}");
    assert_eq!(problems.lines().count(), 4, "{problems}");
}

#[test]
fn dates_times_and_uuids_are_masked() {
    let hash = |text: &str| masked_hash(&ChatRequest::new(Purpose::AGENT, vec![ChatMessage::system(text)]));
    let pairs = [
        ("It is 2025-11-21.", "It is 2026-01-02."),
        ("It is 2025-11-21T10:30:00Z.", "It is 2026-01-02T11:31:22.5+01:00."),
        ("at 10:30", "at 9:05 pm"),
        ("on 21 November 2025", "on 2 Jan 2026"),
        ("on November 21, 2025", "on January 2, 2026"),
        ("today is Friday", "today is Monday"),
        ("id 123e4567-e89b-12d3-a456-426614174000", "id 00000000-e89b-12d3-a456-4266141740ff"),
    ];
    for (a, b) in pairs {
        assert_eq!(hash(a), hash(b), "{a} / {b}");
    }
    assert_ne!(hash("for 2 people"), hash("for 3 people"));
    assert_ne!(hash("NW-7F3K2"), hash("NW-7F3K3"));
}

#[test]
fn an_invalid_cassette_is_reported_with_its_line() {
    let error = Replayer::new("\n{}\n", ReplayOrder::Any).err().unwrap();
    assert_eq!(error.line, 2);
    assert!(error.to_string().contains("record the cassette again"));
}
