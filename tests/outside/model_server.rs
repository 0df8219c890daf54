//! A model server: streamed chat completions for the understanding of messages, agents, sub-agents, and commanders and agents of missions.
//! Its answer depends only on the reference of the request and on the step, so that a repeated request gets the same answer. Some answers
//! fail each time; another fault occurs at most once for each reference and step.

use std::{
    collections::{BTreeSet, HashMap},
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use futures::StreamExt;
use serde_json::{Value as Json, json};

use crate::{
    model_request::{ModelRequest, Role},
    payment_server::PaymentServer,
    random::hash_percent,
    violations::Violations,
};

/// The state of the model server.
pub(crate) struct ModelServer {
    /// The number of requests for each reference and step.
    request_counts: Mutex<HashMap<String, u32>>,
    /// The payments of agents in conversations whose model failed afterwards, by conversation, until the agent has completed its task.
    unfinished: Mutex<HashMap<String, BTreeSet<String>>>,
    /// How often the next run of an agent was told of such a payment, and how often it was not.
    pub(crate) told: Mutex<(u64, u64)>,
    payments: Arc<PaymentServer>,
    violations: Arc<Violations>,
    /// The number of all requests.
    pub(crate) requests: AtomicU64,
    /// Whether faults are switched off that occur once.
    pub(crate) is_fault_free: AtomicBool,
}

impl ModelServer {
    pub(crate) fn new(payments: Arc<PaymentServer>, violations: Arc<Violations>) -> Self {
        Self {
            request_counts: Mutex::default(),
            unfinished: Mutex::default(),
            told: Mutex::default(),
            payments,
            violations,
            requests: AtomicU64::new(0),
            is_fault_free: AtomicBool::new(false),
        }
    }
}

/// Starts the server. Returns its base URL.
pub(crate) async fn start(model: Arc<ModelServer>) -> String {
    let router = Router::new()
        .route("/v1/chat/completions", post(answer))
        .layer(axum::extract::DefaultBodyLimit::max(64 * 1024 * 1024))
        .with_state(model);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/v1")
}

/// An answer of the model.
struct Answer {
    text: String,
    /// The names and arguments of tool calls.
    calls: Vec<(&'static str, Json)>,
    /// What goes wrong each time that this answer is asked for.
    failure: Option<Failure>,
}

/// A failure of the model that a repetition of the request does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// Status 400.
    Rejected,
    /// Status 500.
    ServerError,
    /// The stream ends in the middle.
    Truncated,
    /// The provider stops the response.
    Filtered,
    /// There is no response for a long time.
    Silent,
}

impl Answer {
    fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), calls: Vec::new(), failure: None }
    }
    fn call(name: &'static str, arguments: Json) -> Self {
        Self { text: String::new(), calls: vec![(name, arguments)], failure: None }
    }
    fn with_text(self, text: impl Into<String>) -> Self {
        Self { text: text.into(), ..self }
    }
    fn then(mut self, name: &'static str, arguments: Json) -> Self {
        self.calls.push((name, arguments));
        self
    }
    fn failing(self, failure: Option<Failure>) -> Self {
        Self { failure, ..self }
    }
}

async fn answer(State(model): State<Arc<ModelServer>>, body: Bytes) -> Response {
    model.requests.fetch_add(1, Ordering::Relaxed);
    let request = ModelRequest::read(&serde_json::from_slice(&body).unwrap_or_default());
    let reference = request.reference.clone();
    let (step, answer) = match request.role {
        Role::Commands => ("commands", Answer::text(commands(&reference))),
        Role::Agent => model.agent(&request),
        Role::SubAgent => sub_agent(&request),
        Role::Commander => commander(&request),
        Role::MissionAgent => mission_agent(&request),
    };
    let count = {
        let mut counts = model.request_counts.lock().unwrap();
        let count = counts.entry(format!("{reference} {step}")).or_default();
        *count += 1;
        *count
    };
    let mut pause = Duration::from_millis(3 + hash_percent((&reference, step)) / 10);
    match answer.failure {
        Some(Failure::Rejected) => {
            return (StatusCode::BAD_REQUEST, "{\"error\": {\"message\": \"no\"}}").into_response();
        }
        Some(Failure::ServerError) => {
            return (StatusCode::INTERNAL_SERVER_ERROR, "{\"error\": {\"message\": \"no\"}}").into_response();
        }
        Some(Failure::Truncated) => return stream(truncated_events(answer), pause),
        Some(Failure::Filtered) => return stream(events_with(Answer::text("I"), "content_filter"), pause),
        Some(Failure::Silent) => return stream(events(answer), Duration::from_secs(8)),
        None => {}
    }
    if count == 1 && !model.is_fault_free.load(Ordering::Relaxed) {
        match hash_percent((&reference, step, "model")) {
            0..2 => return (StatusCode::INTERNAL_SERVER_ERROR, "{\"error\": {\"message\": \"no\"}}").into_response(),
            2 => {
                return (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "1")], "{}").into_response();
            }
            3 => return stream(truncated_events(answer), pause),
            4 => return "data: this is no JSON\n\n".into_response(),
            5..8 => pause = Duration::from_millis(400),
            // Anything at all, of a hostile size.
            8..12 if request.role == Role::Commander || (request.role == Role::MissionAgent && step == "first") => {
                return stream(events(nonsense(&reference, step)), pause);
            }
            _ => {}
        }
    }
    stream(events(answer), pause)
}

/// What a text says about the outcome of a payment, in one word.
fn outcome(text: &str) -> &'static str {
    let lower = text.to_lowercase();
    if text.contains("receipt-") {
        "PAID"
    } else if ["unknown", "nobody knows", "may have"].iter().any(|words| lower.contains(words)) {
        "UNKNOWN"
    } else if lower.contains("carried out") {
        "PAID"
    } else {
        "FAILED"
    }
}

/// The kind of a reference: the part after `ref-`.
fn kind(reference: &str) -> &str {
    reference.split('-').nth(1).unwrap_or_default()
}

/// The conversation or run of a reference: the part after its kind.
fn owner(reference: &str) -> &str {
    reference.split('-').nth(2).unwrap_or_default()
}

impl ModelServer {
    /// An agent in a conversation.
    fn agent(&self, request: &ModelRequest) -> (&'static str, Answer) {
        let ModelRequest { reference, .. } = request;
        let completed = |text: String| Answer::call("task_completed", json!({})).with_text(text);
        let tool = if kind(reference) == "g" { "task" } else { "pay" };
        match (kind(reference), request.result_of(tool)) {
            ("a" | "x", None) => {
                self.check_told(request);
                let text = format!("I am working on it. One moment for {reference}.");
                ("first", Answer::call("pay", json!({"reference": reference})).with_text(text))
            }
            ("g", None) => {
                let assignment = json!({
                    "description": "pays", "prompt": format!("please do {reference}"), "subagent_type": "clerk",
                });
                ("first", Answer::call("task", assignment))
            }
            (_, None) => {
                let text = format!("TALK {reference}: the weather is fine, the boats are on time and the tea is hot.");
                ("first", completed(text))
            }
            ("x", Some(_)) => {
                let failure = conversation_failure(reference);
                if self.payments.count(reference) > 0 {
                    let mut untold = self.unfinished.lock().unwrap();
                    untold.entry(owner(reference).to_owned()).or_default().insert(reference.clone());
                }
                ("last", completed(format!("DONE {reference}.")).failing(Some(failure)))
            }
            (kind, Some(result)) => {
                if kind == "a" {
                    self.unfinished.lock().unwrap().remove(owner(reference));
                }
                ("last", completed(format!("{} {reference}.", outcome(result))))
            }
        }
    }

    /// Checks that an agent that begins is told the payments of its earlier runs that failed.
    fn check_told(&self, request: &ModelRequest) {
        let unfinished = self.unfinished.lock().unwrap();
        for earlier in unfinished.get(owner(&request.reference)).into_iter().flatten() {
            if *earlier == request.reference {
                continue;
            }
            let is_told = request.text.contains(&format!("\"{earlier}\""));
            let mut counts = self.told.lock().unwrap();
            if is_told {
                counts.0 += 1
            } else {
                counts.1 += 1;
                let failure = conversation_failure(earlier);
                let before = &request.reference;
                self.violations.add(format!(
                    "the agent is not told of the earlier payment {earlier} ({failure:?}) before {before}"
                ));
            }
        }
    }
}

/// How the model fails after an agent in a conversation has paid.
fn conversation_failure(reference: &str) -> Failure {
    match hash_percent((reference, "agent fails")) {
        0..75 => Failure::Rejected,
        // Rare, because the program calls no model for a while after this failure.
        75..80 => Failure::ServerError,
        80..90 => Failure::Filtered,
        _ => Failure::Truncated,
    }
}

/// A sub-agent that pays. After that its model may fail, or be silent for longer than the sub-agent may work.
fn sub_agent(request: &ModelRequest) -> (&'static str, Answer) {
    let ModelRequest { reference, .. } = request;
    let Some(result) = request.result_of("pay") else {
        return ("sub first", Answer::call("pay", json!({"reference": reference})));
    };
    let failure = match hash_percent((reference, "sub-agent fails")) {
        0..20 => Some(Failure::Rejected),
        20..35 => Some(Failure::Silent),
        35..45 => Some(Failure::Filtered),
        _ => None,
    };
    let text = if result.contains("receipt-") { format!("receipt-{reference}") } else { result.to_owned() };
    ("sub last", Answer::text(text).failing(failure))
}

/// An agent of a mission that pays. After that its model may fail.
fn mission_agent(request: &ModelRequest) -> (&'static str, Answer) {
    let ModelRequest { reference, .. } = request;
    let Some((_, result)) = request.results.iter().find(|(name, _)| name == "pay") else {
        let pay = Answer::call("pay", json!({"reference": reference}));
        // More calls than `max_calls` of the cashier allows.
        return match reference.strip_suffix("-c") {
            Some(run) if hash_percent((reference, "calls")) < 30 => {
                ("first", pay.then("pay", json!({"reference": format!("{run}-d")})))
            }
            _ => ("first", pay),
        };
    };
    let is_rejected = result.starts_with("rejected:");
    let failure = match hash_percent((reference, "agent fails")) {
        _ if is_rejected => None,
        0..12 => Some(Failure::Rejected),
        12..20 => Some(Failure::Filtered),
        _ => None,
    };
    let text = match outcome(result) {
        "PAID" => format!("PAID {reference}: receipt-{reference}"),
        outcome => format!("{outcome} {reference}"),
    };
    ("last", Answer::text(format!("<ANSWER>{text}</ANSWER>")).failing(failure))
}

/// A commander of a mission. Its answer depends on the first word of its objective.
fn commander(request: &ModelRequest) -> (&'static str, Answer) {
    let ModelRequest { reference, objective, .. } = request;
    let complete = |summary: String| Answer::call("task_complete", json!({"summary": summary}));
    match objective.as_str() {
        "COLLECT" => {
            let items: Vec<Json> = (0..3).map(|n| json!({"reference": format!("{reference}-i{n}")})).collect();
            let collect = Answer::call("set_dataset", json!({"name": "bills", "items": items}));
            ("collect", collect.then("task_complete", json!({"summary": "collected"})))
        }
        "HAND_ON" => {
            let inputs = match request.result_of("task_complete") {
                None if hash_percent((reference, "inputs")) < 20 => json!({"number": 1}),
                _ => json!({"reference": format!("{reference}-f")}),
            };
            let route = if hash_percent((reference, "route")) < 60 { "follow_up" } else { "none" };
            let mut arguments = json!({"summary": "handed on", "route": route});
            if route == "follow_up" {
                arguments["mission_inputs"] = inputs;
            }
            ("hand on", Answer::call("task_complete", arguments))
        }
        "PAY" | "CONFIRM" => {
            let agent = if objective == "PAY" { "payer" } else { "cashier" };
            let results = request.results.iter().rev().filter(|(name, _)| name == "call_agent");
            // Not those of calls that made no sense.
            let is_rejected =
                |result: &str| ["agent.unknown", "args.invalid", "not_run"].iter().any(|code| result.contains(code));
            let result = results.map(|(_, result)| result).find(|result| !is_rejected(result));
            let Some(result) = result else {
                let assignment = json!({"name": agent, "task": format!("please do {reference}")});
                return ("assign", Answer::call("call_agent", assignment));
            };
            // One commander of two leaves it to the program to say what the agent had done.
            let gives_up = result.contains("agent.failed") && hash_percent((reference, "gives up")) < 50;
            let answer = match outcome(result) {
                _ if gives_up => fails("the agent failed"),
                "FAILED" => fails(&format!("FAILED {reference}")),
                outcome => complete(format!("{outcome} {reference}")),
            };
            ("report", answer)
        }
        _ => ("report", complete("reported".to_owned())),
    }
}

/// The response of a commander that reports a failure.
fn fails(reason: &str) -> Answer {
    Answer::call("task_complete", json!({"succeed": false, "reason": reason, "summary": ""}))
}

/// An answer that makes no sense: a long text, or calls of tools that do not exist or with wrong arguments.
fn nonsense(reference: &str, step: &str) -> Answer {
    match hash_percent((reference, step, "nonsense")) {
        0..25 => Answer::text("la ".repeat(100_000)),
        25..50 => Answer::call("no_such_tool", json!({"text": "la ".repeat(50_000)})),
        50..75 => Answer::call("pay", json!(["la".repeat(1_000)])).then("task_complete", json!({"succeed": 7})),
        _ => (0..100)
            .fold(Answer::text(""), |answer, n| answer.then("call_agent", json!({"name": format!("agent {n}")}))),
    }
}

/// The commands for a message with this reference.
fn commands(reference: &str) -> String {
    match kind(reference) {
        "d" => format!("start flow pay_direct\nset slot reference {reference}"),
        "a" | "x" => "start flow pay_by_agent".to_owned(),
        "g" => "start flow pay_by_sub_agent".to_owned(),
        _ => "start flow talk".to_owned(),
    }
}

fn chunk(choices: Json) -> Bytes {
    let chunk = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_763_000_000, "model": "test",
        "choices": choices,
    });
    format!("data: {chunk}\n\n").into()
}

fn delta(delta: Json) -> Bytes {
    chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}]))
}

/// The server-sent events of an answer.
fn events(answer: Answer) -> Vec<Bytes> {
    let reason = if answer.calls.is_empty() { "stop" } else { "tool_calls" };
    events_with(answer, reason)
}

/// The server-sent events of an answer that ends with this reason.
fn events_with(Answer { text, calls, .. }: Answer, reason: &str) -> Vec<Bytes> {
    let mut events = vec![delta(json!({"role": "assistant", "content": ""}))];
    events.extend(text.split_inclusive(' ').map(|word| delta(json!({"content": word}))));
    for (at, (name, arguments)) in calls.into_iter().enumerate() {
        let function = json!({"name": name, "arguments": arguments.to_string()});
        events.push(delta(json!({"tool_calls": [
            {"index": at, "id": format!("call_{name}_{at}"), "type": "function", "function": function}
        ]})));
    }
    events.push(chunk(json!([{"index": 0, "delta": {}, "finish_reason": reason}])));
    events.push("data: [DONE]\n\n".into());
    events
}

/// The first half of the events of an answer.
fn truncated_events(answer: Answer) -> Vec<Bytes> {
    let mut events = events(answer);
    events.truncate(events.len() / 2);
    events
}

/// A response that starts after `pause`.
fn stream(events: Vec<Bytes>, pause: Duration) -> Response {
    let chunks = futures::stream::iter(events.into_iter().enumerate()).then(move |(n, event)| async move {
        if n == 0 {
            tokio::time::sleep(pause).await;
        } else if n % 3 == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok::<_, Infallible>(event)
    });
    let mut response = Response::new(Body::from_stream(chunks));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/event-stream"));
    response
}
