//! The clients. Each has one conversation and sends one message after the other over REST. It repeats a message with the same id until it
//! is answered. Some requests ask for a stream; some clients disconnect before the response and repeat the request.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::StreamExt;
use reqwest::{Client, StatusCode};
use serde_json::{Value as Json, json};

use crate::{random::Random, violations::Violations};

/// A message and its replies.
#[derive(Clone, Debug)]
pub(crate) struct AnsweredMessage {
    pub(crate) conversation: String,
    /// The reference to pay, which is also the id of the message.
    pub(crate) reference: String,
    /// The texts of the response. The replies to the message are the last ones; before them there may be replies to earlier messages.
    pub(crate) replies: Vec<String>,
}

/// The settings and results that all clients share.
pub(crate) struct Workload {
    /// The webhook of the REST channel.
    pub(crate) url: String,
    pub(crate) seed: u64,
    /// How long a client repeats one message before the conversation counts as stuck.
    pub(crate) answer_timeout: Duration,
    /// Whether clients stop after their current message.
    pub(crate) is_stopping: AtomicBool,
    /// The number of messages sent with a request for a stream.
    pub(crate) streamed_messages: AtomicU64,
    /// The number of messages repeated after their answer.
    pub(crate) repeated_messages: AtomicU64,
    /// The number of responses with status 429 or 503.
    pub(crate) rejections: AtomicU64,
    pub(crate) answers: Mutex<Vec<AnsweredMessage>>,
    pub(crate) violations: Arc<Violations>,
}

impl Workload {
    /// Records and prints a violated guarantee.
    pub(crate) fn violation(&self, description: String) {
        self.violations.add(description);
    }
}

/// The form of the response that a request asks for.
#[derive(Clone, Copy, PartialEq)]
enum ResponseMode {
    /// One JSON array after the turn.
    Whole,
    /// `?stream=deltas`.
    Deltas,
    /// `?stream=sse`.
    Sse,
}

/// The outcome of one request.
enum Attempt {
    /// The texts of all replies.
    Replies(Vec<String>),
    /// The stream ended as specified. The client repeats the message without a stream to get the replies.
    StreamFinished,
    /// The server rejected the message; the client repeats it after this time.
    RetryAfter(Duration),
    /// No connection, or a response that breaks off.
    NoResponse,
}

/// Runs one client until the workload stops.
pub(crate) async fn run_client(workload: Arc<Workload>, number: u64) {
    let mut random = Random::new(workload.seed, 1_000 + number);
    let client = Client::builder().pool_max_idle_per_host(1).build().unwrap();
    let conversation = format!("client-{number}");
    for n in 0u64.. {
        if workload.is_stopping.load(Ordering::SeqCst) {
            return;
        }
        // The message asks for a direct payment, a payment by an agent, by an agent that fails afterwards, by a sub-agent, or for talk.
        let kind = match random.below(16) {
            0..4 => 'd',
            4..7 => 'a',
            7 => 'x',
            8 => 'g',
            _ => 't',
        };
        let reference = format!("ref-{kind}-{:x}p{number}-{n}", workload.seed & 0xffff);
        let mode = match random.below(4) {
            0 => ResponseMode::Deltas,
            1 => ResponseMode::Sse,
            _ => ResponseMode::Whole,
        };
        if mode != ResponseMode::Whole {
            workload.streamed_messages.fetch_add(1, Ordering::SeqCst);
        }
        let answer = send_until_answered(&workload, &client, &mut random, &conversation, &reference, mode).await;
        let Some(replies) = answer else { return };
        if random.chance(5) {
            // A duplicate must get the same replies. The checks at the end find a second turn or payment.
            let message = (&*conversation, &*reference);
            match send_once(&workload, &client, message, ResponseMode::Whole).await {
                // The first response may start with undelivered replies of earlier turns, which come only once.
                Attempt::Replies(repeated) if !replies.ends_with(&repeated) => {
                    workload.violation(format!(
                        "{reference}: a duplicate got other replies: {replies:?}, then {repeated:?}"
                    ));
                }
                _ => {}
            }
            workload.repeated_messages.fetch_add(1, Ordering::SeqCst);
        }
        workload.answers.lock().unwrap().push(AnsweredMessage {
            conversation: conversation.clone(),
            reference,
            replies,
        });
        if random.chance(30) {
            tokio::time::sleep(random.duration_ms(1, 150)).await;
        }
    }
}

/// Sends a message until it is answered. Returns the replies, or `None` after [`Workload::answer_timeout`].
async fn send_until_answered(
    workload: &Workload,
    client: &Client,
    random: &mut Random,
    conversation: &str,
    reference: &str,
    mode: ResponseMode,
) -> Option<Vec<String>> {
    let start = Instant::now();
    let mut mode = mode;
    let mut disconnect_after = random.chance(10).then(|| random.duration_ms(1, 300));
    let mut last_problem = String::new();
    while start.elapsed() < workload.answer_timeout {
        let attempt = send_once(workload, client, (conversation, reference), mode);
        let outcome = match disconnect_after.take() {
            Some(after) => tokio::time::timeout(after, attempt).await.unwrap_or(Attempt::NoResponse),
            None => attempt.await,
        };
        match outcome {
            Attempt::Replies(replies) => return Some(replies),
            Attempt::StreamFinished => mode = ResponseMode::Whole,
            Attempt::RetryAfter(after) => {
                "rejected with Retry-After".clone_into(&mut last_problem);
                workload.rejections.fetch_add(1, Ordering::SeqCst);
                // Shorter than the server asks for, because the run is short.
                tokio::time::sleep(after.min(Duration::from_millis(500))).await;
            }
            Attempt::NoResponse => {
                "no response".clone_into(&mut last_problem);
                tokio::time::sleep(random.duration_ms(20, 120)).await;
            }
        }
    }
    workload.violation(format!(
        "{conversation} is stuck at {reference}: no answer within {:?} ({last_problem})",
        workload.answer_timeout
    ));
    None
}

/// Sends a message once. The id of the message is its reference.
async fn send_once(
    workload: &Workload,
    client: &Client,
    (sender, reference): (&str, &str),
    mode: ResponseMode,
) -> Attempt {
    let body = json!({"sender": sender, "message": format!("please do {reference}"), "message_id": reference});
    let url = match mode {
        ResponseMode::Whole => workload.url.clone(),
        ResponseMode::Deltas => format!("{}?stream=deltas", workload.url),
        ResponseMode::Sse => format!("{}?stream=sse", workload.url),
    };
    let request = client.post(url).json(&body).timeout(workload.answer_timeout);
    let Ok(response) = request.send().await else { return Attempt::NoResponse };
    let status = response.status();
    if status == StatusCode::SERVICE_UNAVAILABLE || status == StatusCode::TOO_MANY_REQUESTS {
        let after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let Some(after) = after else {
            workload.violation(format!("{reference}: {status} without Retry-After"));
            return Attempt::NoResponse;
        };
        return Attempt::RetryAfter(Duration::from_secs(after));
    }
    if status != StatusCode::OK {
        workload.violation(format!("{reference}: unexpected status {status}"));
        return Attempt::NoResponse;
    }
    match mode {
        ResponseMode::Whole => {
            let error_code =
                response.headers().get("x-turn-error").and_then(|code| code.to_str().ok().map(str::to_owned));
            let Ok(body) = response.json::<Json>().await else { return Attempt::NoResponse };
            let texts: Vec<_> = body.as_array().into_iter().flatten().filter_map(text).collect();
            if texts.is_empty() {
                workload.violation(format!("{reference}: status 200 without replies ({error_code:?})"));
                return Attempt::NoResponse;
            }
            Attempt::Replies(texts)
        }
        ResponseMode::Deltas | ResponseMode::Sse => {
            let mut chunks = response.bytes_stream();
            let mut body = Vec::new();
            while let Some(chunk) = chunks.next().await {
                let Ok(chunk) = chunk else { return Attempt::NoResponse };
                body.extend_from_slice(&chunk);
            }
            let body = String::from_utf8_lossy(&body);
            // A stream of deltas without the end of the turn: the server died, or rejected the message in the stream.
            let is_finished = body.contains("turn_finished") || mode == ResponseMode::Sse;
            if is_finished { Attempt::StreamFinished } else { Attempt::NoResponse }
        }
    }
}

fn text(reply: &Json) -> Option<String> {
    reply["text"].as_str().map(str::to_owned)
}
