//! People who write: each has a conversation, sends one message after the other, and sends a message again with the same id
//! until it is answered. Some ask for a stream, some leave before the answer and come back for it.

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

use crate::random::Random;

/// A message that was answered.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) conversation: String,
    pub(crate) reference: String,
    /// The texts that came with the answer; those of the message are the last ones.
    pub(crate) replies: Vec<String>,
}

/// What all people share.
pub(crate) struct Crowd {
    /// Where messages go.
    pub(crate) url: String,
    pub(crate) seed: u64,
    /// How long a person tries to get an answer to one message before the conversation counts as stuck.
    pub(crate) patience: Duration,
    /// Nobody begins another message.
    pub(crate) enough: AtomicBool,
    /// How many messages may be begun in all.
    pub(crate) most: u64,
    pub(crate) begun: AtomicU64,
    pub(crate) streamed: AtomicU64,
    pub(crate) repeated: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) answered: Mutex<Vec<Answered>>,
    /// What must never happen and did.
    pub(crate) wrong: Mutex<Vec<String>>,
}

impl Crowd {
    /// Notes what must never happen.
    pub(crate) fn wrong(&self, what: String) {
        let mut wrong = self.wrong.lock().unwrap();
        if wrong.len() < 200 && !wrong.contains(&what) {
            eprintln!("WRONG: {what}");
            wrong.push(what);
        }
    }
}

/// How a message is sent.
#[derive(Clone, Copy, PartialEq)]
enum Style {
    Whole,
    Deltas,
    Sse,
}

/// What came of one try.
enum Try {
    /// The texts of all replies.
    Replies(Vec<String>),
    /// The stream ended as it should; the replies are asked for once more.
    Streamed,
    /// Not now: after this time.
    Later(Duration),
    /// The server was not there, or went away.
    Gone,
}

/// One person: writes until it is enough, each message as often as it takes.
pub(crate) async fn person(crowd: Arc<Crowd>, number: u64) {
    let mut random = Random::new(crowd.seed, 1_000 + number);
    let client = Client::builder().pool_max_idle_per_host(1).build().unwrap();
    let conversation = format!("person-{number}");
    for n in 0u64.. {
        if crowd.enough.load(Ordering::SeqCst) || crowd.begun.fetch_add(1, Ordering::SeqCst) >= crowd.most {
            return;
        }
        let kind = match random.below(4) {
            0 => 'd',
            1 => 'a',
            _ => 't',
        };
        let reference = format!("ref-{kind}-{:x}p{number}-{n}", crowd.seed & 0xffff);
        let style = match random.below(4) {
            0 => Style::Deltas,
            1 => Style::Sse,
            _ => Style::Whole,
        };
        if style != Style::Whole {
            crowd.streamed.fetch_add(1, Ordering::SeqCst);
        }
        let Some(replies) = say(&crowd, &client, &mut random, &conversation, &reference, style).await else { return };
        if random.chance(5) {
            // Delivered once more: the same answer, and nothing done.
            let message = (&*conversation, &*reference);
            match one_try(&crowd, &client, message, Style::Whole).await {
                // Replies of earlier turns that nobody was there for come once, before those of the message.
                Try::Replies(again) if !replies.ends_with(&again) => {
                    crowd.wrong(format!("{reference}: a repeat was answered otherwise: {replies:?} then {again:?}"));
                }
                _ => {}
            }
            crowd.repeated.fetch_add(1, Ordering::SeqCst);
        }
        crowd.answered.lock().unwrap().push(Answered { conversation: conversation.clone(), reference, replies });
        if random.chance(30) {
            tokio::time::sleep(random.millis(1, 150)).await;
        }
    }
}

/// Sends a message until it is answered; its replies, or nothing when that takes too long.
async fn say(
    crowd: &Crowd,
    client: &Client,
    random: &mut Random,
    conversation: &str,
    reference: &str,
    style: Style,
) -> Option<Vec<String>> {
    let began = Instant::now();
    let mut style = style;
    let mut leave = random.chance(10).then(|| random.millis(1, 300));
    let mut last = String::new();
    while began.elapsed() < crowd.patience {
        let attempt = one_try(crowd, client, (conversation, reference), style);
        let outcome = match leave.take() {
            Some(after) => tokio::time::timeout(after, attempt).await.unwrap_or(Try::Gone),
            None => attempt.await,
        };
        match outcome {
            Try::Replies(replies) => return Some(replies),
            Try::Streamed => style = Style::Whole,
            Try::Later(after) => {
                "refused for now".clone_into(&mut last);
                crowd.refused.fetch_add(1, Ordering::SeqCst);
                // The wait that the server asks for, shortened: the run is short too.
                tokio::time::sleep(after.min(Duration::from_millis(500))).await;
            }
            Try::Gone => {
                "no answer".clone_into(&mut last);
                tokio::time::sleep(random.millis(20, 120)).await;
            }
        }
    }
    crowd.wrong(format!("{conversation} is stuck at {reference}: no answer within {:?} ({last})", crowd.patience));
    None
}

/// Sends a message once. The id of the message is its reference.
async fn one_try(crowd: &Crowd, client: &Client, (sender, reference): (&str, &str), style: Style) -> Try {
    let body = json!({"sender": sender, "message": format!("please do {reference}"), "message_id": reference});
    let url = match style {
        Style::Whole => crowd.url.clone(),
        Style::Deltas => format!("{}?stream=deltas", crowd.url),
        Style::Sse => format!("{}?stream=sse", crowd.url),
    };
    let request = client.post(url).json(&body).timeout(crowd.patience);
    let Ok(response) = request.send().await else { return Try::Gone };
    let status = response.status();
    if status == StatusCode::SERVICE_UNAVAILABLE || status == StatusCode::TOO_MANY_REQUESTS {
        let after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let Some(after) = after else {
            crowd.wrong(format!("{reference}: {status} without Retry-After"));
            return Try::Gone;
        };
        return Try::Later(Duration::from_secs(after));
    }
    if status != StatusCode::OK {
        crowd.wrong(format!("{reference}: answered with {status}"));
        return Try::Gone;
    }
    match style {
        Style::Whole => {
            let error = response.headers().get("x-turn-error").and_then(|code| code.to_str().ok().map(str::to_owned));
            let Ok(body) = response.json::<Json>().await else { return Try::Gone };
            let texts: Vec<_> = body.as_array().into_iter().flatten().filter_map(text).collect();
            if texts.is_empty() {
                crowd.wrong(format!("{reference}: answered 200 with nothing ({error:?})"));
                return Try::Gone;
            }
            Try::Replies(texts)
        }
        Style::Deltas | Style::Sse => {
            let mut pieces = response.bytes_stream();
            let mut all = Vec::new();
            while let Some(piece) = pieces.next().await {
                let Ok(piece) = piece else { return Try::Gone };
                all.extend_from_slice(&piece);
            }
            let all = String::from_utf8_lossy(&all);
            // Without the end of the turn the server went away, or refused it in the stream.
            if all.contains("turn_finished") || style == Style::Sse { Try::Streamed } else { Try::Gone }
        }
    }
}

fn text(reply: &Json) -> Option<String> {
    reply["text"].as_str().map(str::to_owned)
}
