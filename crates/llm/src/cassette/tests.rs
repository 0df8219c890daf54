#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::time::Duration;

use segue_base::manual_clock::ManualClock;

use super::*;
use crate::{
    ChatMessage, Purpose,
    scripted::{ScriptedLlm, Step},
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

async fn ask(model: &dyn Llm, request: ChatRequest) -> Result<String, LlmError> {
    let cx = ManualClock::new().context(Duration::from_secs(60));
    Ok(model.chat(request, &cx).await?.finish().await?.text.to_string())
}

/// A cassette of two answers and a failure that came after some text.
async fn tape() -> String {
    let steps: Vec<Step> = vec!["one".into(), "two".into(), Step::broken("th", LlmErrorKind::Idle)];
    let buffer = Buffer::default();
    let recorder = Recorder::new(Arc::new(ScriptedLlm::strict(steps)), buffer.clone());
    for text in ["a", "b", "c"] {
        let _ = ask(&recorder, request(text)).await;
    }
    let bytes = buffer.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn what_was_recorded_is_replayed() {
    let tape = tape().await;
    assert_eq!(tape.lines().count(), 3);
    let replayer = Replayer::new(&tape, Order::AsRecorded).unwrap();
    assert_eq!(ask(&replayer, request("a")).await.unwrap(), "one");
    assert_eq!(ask(&replayer, request("b")).await.unwrap(), "two");
    let cx = ManualClock::new().context(Duration::from_secs(60));
    let mut stream = replayer.chat(request("c"), &cx).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap(), Delta::Text("th".into()));
    assert_eq!(stream.next().await.unwrap().unwrap_err().kind, LlmErrorKind::Idle);
    replayer.verify().unwrap();
}

#[tokio::test]
async fn the_order_counts_only_when_asked_for() {
    let tape = tape().await;
    let strict = Replayer::new(&tape, Order::AsRecorded).unwrap();
    assert_eq!(ask(&strict, request("b")).await.unwrap_err().kind, LlmErrorKind::Unscripted);
    let loose = Replayer::new(&tape, Order::Any).unwrap();
    assert_eq!(ask(&loose, request("b")).await.unwrap(), "two");
    assert_eq!(ask(&loose, request("a")).await.unwrap(), "one");
    assert_eq!(
        ask(&loose, request("a")).await.unwrap_err().kind,
        LlmErrorKind::Unscripted,
        "one recording, one answer"
    );
}

#[tokio::test]
async fn unexpected_and_unused_exchanges_are_found() {
    let replayer = Replayer::new(&tape().await, Order::Any).unwrap();
    let _ = ask(&replayer, request("unheard of")).await;
    let problems = replayer.verify().unwrap_err();
    assert!(problems.contains("not on the cassette: agent: …unheard of"), "{problems}");
    assert_eq!(problems.lines().count(), 4, "{problems}");
}

#[test]
fn dates_times_and_ids_do_not_count() {
    let on = |text: &str| masked_hash(&ChatRequest::new(Purpose::AGENT, vec![ChatMessage::system(text)]));
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
        assert_eq!(on(a), on(b), "{a} / {b}");
    }
    assert_ne!(on("for 2 people"), on("for 3 people"));
    assert_ne!(on("NW-7F3K2"), on("NW-7F3K3"));
}

#[test]
fn a_broken_cassette_is_told_with_its_line() {
    let error = Replayer::new("\n{}\n", Order::Any).err().unwrap();
    assert_eq!(error.line, 2);
    assert!(error.to_string().contains("record the cassette again"));
}
