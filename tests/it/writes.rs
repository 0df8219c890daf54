//! What the user and the next run of an agent learn about writes of work that failed, and the responses that report a call.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use segue::{
    Assistant, Tool, ToolCallContext, ToolInfo, ToolOutcome, ToolOutput,
    llm::{ChatResponse, FinishReason, LlmErrorKind, ToolArguments, ToolCall},
    testing::{CollectingSink, ManualClock, ScriptedCall, ScriptedLlm, StrictLlm},
};
use serde_json::{Value as Json, json};

use crate::support::project_files::{BOATS_ENDPOINT, CONFIG};

/// A conversation with the agent `booker`, whose tool `book` counts its calls.
struct Booking {
    assistant: Assistant,
    model: Arc<StrictLlm>,
    clock: ManualClock,
    booked: Arc<AtomicUsize>,
}

impl Booking {
    fn new(configuration: &'static str, steps: Vec<ScriptedCall>) -> Self {
        let agent = format!(
            "agent: {{name: booker, description: books}}\nconnections: {{mcp_servers: []}}\nconfiguration: {configuration}\n"
        );
        let files = [
            CONFIG,
            BOATS_ENDPOINT,
            (
                "domain.yml",
                "responses:\n  utter_booked: [{text: 'Booked {boat}, {reference}.'}]\n  utter_not_booked: [{text: 'There is no {boat}.'}]\n",
            ),
            (
                "data/flows.yml",
                "flows:\n  book: {description: book a boat, run_pattern_completed: false, steps: [{call: booker}]}\n",
            ),
            ("sub_agents/booker/config.yml", agent.as_str()),
        ];
        let booked = Arc::<AtomicUsize>::default();
        let count = booked.clone();
        let info = ToolInfo::new("book", "books").parameters(json!({"type": "object"}));
        let book = Tool::from_fn(info, move |arguments: Json, _: ToolCallContext| {
            std::future::ready(match arguments["boat"] == "none" {
                true => ToolOutcome::failed(segue::FailureKind::ToolError, "no such boat"),
                false => {
                    let reference = format!("NW-{}", count.fetch_add(1, Ordering::SeqCst) + 1);
                    ToolOutcome::Done(ToolOutput::structured(json!({ "reference": reference })))
                }
            })
        });
        let (model, clock) = (Arc::new(ScriptedLlm::strict(steps)), ManualClock::new());
        let builder = Assistant::builder_from_texts(files).unwrap().tool("booker", book).seeds(|| 7);
        let assistant = builder.clock(Arc::new(clock.clone())).model(model.clone()).build().unwrap();
        Self { assistant, model, clock, booked }
    }
    async fn say(&self, text: &str) -> Vec<String> {
        let sink = CollectingSink::streaming();
        let shown = sink.collected();
        let incoming = segue::IncomingMessage::new("u", text).input_channel("test");
        self.assistant.receive(incoming, Box::new(sink)).await.unwrap();
        assert!(self.assistant.replay(&"u".into()).await.unwrap().is_none(), "the turn replays");
        shown.texts()
    }
}

fn call(name: &str, arguments: Json) -> ChatResponse {
    ChatResponse::calls(vec![ToolCall {
        id: format!("c-{name}-{arguments}").into(),
        name: name.into(),
        arguments: ToolArguments::json(arguments),
    }])
}

#[tokio::test]
async fn an_agent_that_fails_after_a_write_tells_the_user_and_its_next_run() {
    let failures: [(&str, Vec<ScriptedCall>); 3] = [
        ("{}", vec![LlmErrorKind::BadRequest.into()]),
        ("{}", vec![ChatResponse { finish: FinishReason::ContentFilter, ..ChatResponse::default() }.into()]),
        ("{max_iterations: 1}", Vec::new()),
    ];
    for (configuration, failure) in failures {
        let first = ["start flow book".into(), call("book", json!({"boat": "Ada"})).into()];
        let again = ["start flow book".into(), call("task_completed", json!({})).into(), "It was booked.".into()];
        let steps = first.into_iter().chain(failure).chain(again).collect();
        let booking = Booking::new(configuration, steps);
        let said = booking.say("book Ada").await;
        assert_eq!(
            said,
            [
                "Something went wrong on my side before I could finish. This was done already: book. Please check before you ask for it again."
            ],
            "{configuration}"
        );
        booking.clock.advance(Duration::from_secs(1));
        booking.say("book Ada").await;
        let requests = booking.model.requests();
        let mut texts = requests.iter().rev().flat_map(|request| &request.messages).map(|message| message.text());
        let told = texts.find(|text| text.starts_with("An earlier run of this task ended")).unwrap();
        assert!(told.contains("- `book` with {\"boat\": \"Ada\"}. Result: {\"reference\":\"NW-1\"}"), "{told}");
        assert_eq!(booking.booked.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn a_response_reports_each_call_before_the_model_goes_on() {
    let steps = vec![
        "start flow book".into(),
        call("book", json!({"boat": "Ada"})).into(),
        call("book", json!({"boat": "none"})).into(),
        call("task_completed", json!({})).into(),
        "Done.".into(),
    ];
    let booking = Booking::new("{tools: {book: {on_success: utter_booked, on_failure: utter_not_booked}}}", steps);
    assert_eq!(booking.say("book").await, ["Booked Ada, NW-1.", "There is no none.", "Done."]);
    let requests = booking.model.requests();
    let results: Vec<&str> = requests.iter().filter_map(|request| Some(request.messages.last()?.text())).collect();
    assert!(
        results.iter().any(|text| text.contains("NW-1") && text.contains("has been sent this message")),
        "{results:?}"
    );
}
