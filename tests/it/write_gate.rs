//! Requests of voice stacks, which may be ended before they count as confirmed: nothing is written early, nothing twice, and what was
//! written is told.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt as _;
use segue::{
    Assistant, Store,
    channels::{self, ChannelOptions, ChannelService, Inbox},
    clock::Clock,
    store::MemoryStore,
    testing::{ManualClock, ScriptedLlm},
    tools::{Tool, ToolCallContext},
};
use serde_json::{Value as Json, json};
use tower::ServiceExt as _;

use crate::support::project_files::CONFIG;

/// How long requests must stay open before a write begins.
const HOLD: u64 = 3_200;
/// How far the clock moves at once. The hold is a multiple of it, so that its end is met exactly.
const STEP: u64 = 400;

const FILES: [(&str, &str); 5] = [
    CONFIG,
    ("credentials.yml", "openai: {payloads: true}\n"),
    (
        "domain.yml",
        "intents: [book]\nslots: {number: {type: text, mappings: [{type: controlled}]}}\nresponses: {utter_booked: [{text: 'Booked {number}.'}]}\n",
    ),
    ("endpoints.yml", "mcp_servers: [{name: bookings, url: 'http://localhost:1/mcp', type: http}]\n"),
    (
        "data/flows.yml",
        "flows:
  book:
    description: books
    run_pattern_completed: false
    nlu_trigger: [{intent: book}]
    steps:
      - call: book
        mcp_server: bookings
        mapping: {output: [{slot: number, value: result.structuredContent.number}]}
      - action: utter_booked
",
    ),
];

/// When each booking began, in milliseconds.
type Bookings = Arc<Mutex<Vec<u64>>>;

/// An assistant with a tool that takes `lasts` milliseconds, and the service of its channel.
struct BookingServer {
    clock: ManualClock,
    service: ChannelService,
    bookings: Bookings,
    received: Arc<Mutex<String>>,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct NoArguments {}

impl BookingServer {
    fn new(lasts: u64) -> Self {
        let (clock, bookings) = (ManualClock::new(), Bookings::default());
        let (time, begun) = (clock.clone(), bookings.clone());
        let book = Tool::new("book", "Books", move |_: NoArguments, _: ToolCallContext| {
            let (time, begun) = (time.clone(), begun.clone());
            async move {
                let number = {
                    let mut begun = begun.lock().unwrap();
                    begun.push(time.elapsed().as_millis() as u64);
                    begun.len()
                };
                time.sleep(time.deadline(Duration::from_millis(lasts))).await;
                Ok(json!({"number": number.to_string()}))
            }
        });
        let store = Arc::new(MemoryStore::default()) as Arc<dyn Store>;
        let builder = Assistant::builder_from_texts(FILES).unwrap().store(store).tool("bookings", book);
        let model = Arc::new(ScriptedLlm::strict(["cancel flow"]));
        let assistant = builder.model(model).clock(Arc::new(clock.clone())).seeds(|| 7).build().unwrap();
        let (opened, errors) = channels::open(&assistant.project(), &ChannelOptions::new());
        assert!(errors.is_empty(), "{errors:?}");
        let service = opened[0].service(Inbox::new(assistant, "openai"));
        Self { clock, service, bookings, received: Arc::default() }
    }

    /// Sends a request; its text is in `received`, as it comes.
    fn request(&self, messages: &[&str], is_streamed: bool) -> tokio::task::JoinHandle<()> {
        let roles = ["user", "assistant"].into_iter().cycle();
        let messages: Vec<Json> =
            messages.iter().zip(roles).map(|(text, role)| json!({"role": role, "content": text})).collect();
        let body = json!({"user": "ada", "stream": is_streamed, "messages": messages}).to_string();
        let request = axum::http::Request::post("/v1/chat/completions").body(body.into()).unwrap();
        *self.received.lock().unwrap() = String::new();
        let (service, received) = (self.service.clone(), self.received.clone());
        tokio::spawn(async move {
            let mut body = service.oneshot(request).await.unwrap().into_body().into_data_stream();
            while let Some(chunk) = body.next().await {
                received.lock().unwrap().push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
            }
        })
    }

    /// Lets everything run that does not wait for a time.
    async fn settle() {
        for _ in 0..40 {
            tokio::task::yield_now().await;
        }
    }

    async fn advance(&self, milliseconds: u64) {
        Self::settle().await;
        let (end, step) = (self.clock.elapsed() + Duration::from_millis(milliseconds), Duration::from_millis(STEP));
        while self.clock.elapsed() < end {
            self.clock.advance(step.min(end - self.clock.elapsed()));
            Self::settle().await;
        }
    }

    /// Sends a request and waits for its end.
    async fn answer(&self, messages: &[&str]) -> String {
        let request = self.request(messages, false);
        self.advance(20_000).await;
        request.await.unwrap();
        let completion: Json = serde_json::from_str(&self.received.lock().unwrap()).unwrap();
        completion["choices"][0]["message"]["content"].as_str().unwrap_or_else(|| panic!("{completion}")).to_owned()
    }

    fn bookings(&self) -> Vec<u64> {
        self.bookings.lock().unwrap().clone()
    }
}

struct Rng(u64);

impl Rng {
    /// Xorshift.
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// What was wrong with one request that was ended after `cut` milliseconds, and the one after it.
async fn try_cut(cut: u64, lasts: u64, is_streamed: bool, is_repeated: bool) -> Result<(), String> {
    let server = BookingServer::new(lasts);
    let request = server.request(&["/book"], is_streamed);
    server.advance(cut).await;
    let had_text = server.received.lock().unwrap().contains("Booked 1.");
    request.abort();
    server.advance(10_000).await;
    let begun = server.bookings();
    let expected = if cut < HOLD { Vec::new() } else { vec![HOLD] };
    if begun != expected {
        return Err(format!("bookings began at {begun:?}"));
    }
    let next =
        if is_repeated { server.answer(&["/book"]).await } else { server.answer(&["/book", "…", "forget it"]).await };
    let (count, told) = (server.bookings().len(), next.matches("Booked 1.").count());
    let wanted = match (cut < HOLD, is_repeated) {
        // Nothing had happened, and the user forgets it.
        (true, false) => (0, 0),
        // Nothing had happened, so the repeated request is a new one.
        (true, true) => (1, 1),
        // It was done, and is told if the client did not get it.
        (false, false) => (1, usize::from(!had_text)),
        (false, true) => (1, 1),
    };
    if (count, told) != wanted {
        return Err(format!("then {count} bookings, told {told} times; expected {wanted:?}: {next}"));
    }
    Ok(())
}

#[tokio::test]
async fn nothing_is_written_for_a_request_that_was_ended_early_and_nothing_twice() {
    let seed = 20_261_129;
    let mut rng = Rng(seed);
    for number in 0..300 {
        let (lasts, cut) = ([0, 700, 2_500][rng.below(3) as usize], rng.below(8_000));
        let (is_streamed, is_repeated) = (rng.below(2) == 0, rng.below(2) == 0);
        if let Err(wrong) = try_cut(cut, lasts, is_streamed, is_repeated).await {
            panic!(
                "seed {seed}, request {number}, ended after {cut} ms (streamed: {is_streamed}, repeated: {is_repeated}, the tool takes {lasts} ms): {wrong}"
            );
        }
    }
}

#[tokio::test]
async fn a_request_that_stays_open_is_confirmed_by_time_or_by_its_client() {
    let server = BookingServer::new(0);
    assert_eq!(server.answer(&["/book"]).await, "Booked 1.");
    assert_eq!(server.bookings(), [HOLD]);
}
