//! Encodes scripted replies as response bodies of the Chat Completions API, with their timing and faults.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream};
use segue_base::context::CallContext;
use serde_json::{Value, json};

use super::{
    reply::Reply,
    script::{ChunkUnit, FailureMode, GarbageKind},
};
use crate::{
    ChatRequest, LlmError,
    retry::random,
    transport::{Body, error_response::error_from_status},
};

/// The error of a scripted error status.
pub(super) fn error_response(status: u16, code: &str, after: Option<Duration>) -> LlmError {
    let body = json!({"error": {"code": code, "message": "the script refuses"}}).to_string();
    error_from_status(status, after, body.as_bytes())
}

/// The response body. `split` is the seed of random chunk boundaries.
pub(super) fn body(reply: &Reply, request: &ChatRequest, split: Option<u64>, cx: &CallContext) -> Body {
    let mut events = match reply.fail {
        Some(FailureMode::Garbage(GarbageKind::Page)) => {
            vec![(Duration::ZERO, "<!doctype html><title>502</title>".to_owned())]
        }
        Some(FailureMode::Garbage(GarbageKind::Noise)) => {
            vec![(Duration::ZERO, "data: {\"choices\": nonsense}\n\n".to_owned())]
        }
        Some(FailureMode::Garbage(GarbageKind::Error)) => {
            vec![(Duration::ZERO, event(&json!({"error": {"code": 503, "message": "the script breaks"}})))]
        }
        Some(FailureMode::Silence) => Vec::new(),
        _ => response_events(reply, request),
    };
    if let Some(FailureMode::Cut(after)) = reply.fail {
        events.truncate(after);
    }
    let mut chunks: VecDeque<(Duration, Bytes)> = VecDeque::new();
    for (wait, text) in events {
        let mut rest = Bytes::from(text);
        let mut wait = wait;
        while let Some(seed) = split.filter(|_| rest.len() > 1) {
            let at = random(seed, chunks.len() as u64) % rest.len() as u64;
            let head = rest.split_to(usize::try_from(at).unwrap_or(0).max(1));
            chunks.push_back((std::mem::take(&mut wait), head));
        }
        chunks.push_back((wait, rest));
    }
    if reply.fail == Some(FailureMode::Silence) {
        return stream::pending().boxed();
    }
    let clock = cx.clock.clone();
    stream::unfold((chunks, clock), |(mut chunks, clock)| async move {
        let (wait, bytes) = chunks.pop_front()?;
        if !wait.is_zero() {
            clock.sleep(clock.deadline(wait)).await;
        }
        Some((Ok(bytes), (chunks, clock)))
    })
    .boxed()
}

fn event(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn chunk(delta: Value, finish: Option<&str>) -> String {
    event(&json!({"object": "chat.completion.chunk", "model": "scripted",
                  "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}))
}

fn response_events(reply: &Reply, request: &ChatRequest) -> Vec<(Duration, String)> {
    let timing = reply.timing;
    let mut events = vec![(timing.first, chunk(json!({"role": "assistant", "content": ""}), None))];
    for (position, delta) in split_text(&reply.text, timing.unit).into_iter().enumerate() {
        let wait = if position == 0 { Duration::ZERO } else { timing.every };
        events.push((wait, chunk(json!({"content": delta}), None)));
    }
    for (index, (name, arguments)) in reply.calls.iter().enumerate() {
        let id = format!("call_{}_{index}", request.messages.len());
        let call = |more: Value| chunk(json!({"tool_calls": [more]}), None);
        let head = json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}});
        events.push((timing.every, call(head)));
        let arguments = arguments.to_string();
        let middle = (0..=arguments.len() / 2).rev().find(|at| arguments.is_char_boundary(*at)).unwrap_or(0);
        let (a, b) = arguments.split_at(middle);
        for part in [a, b] {
            events.push((Duration::ZERO, call(json!({"index": index, "function": {"arguments": part}}))));
        }
    }
    let finish = match (reply.cut_by_length, reply.calls.is_empty()) {
        (true, _) => "length",
        (false, false) => "tool_calls",
        (false, true) => "stop",
    };
    events.push((Duration::ZERO, chunk(json!({}), Some(finish))));
    let bytes: usize = request.messages.iter().map(|message| message.text().len()).sum();
    let usage = json!({"prompt_tokens": bytes.div_ceil(4), "completion_tokens": reply.text.len().div_ceil(4)});
    events.push((Duration::ZERO, event(&json!({"model": "scripted", "choices": [], "usage": usage}))));
    events.push((Duration::ZERO, "data: [DONE]\n\n".to_owned()));
    events
}

/// Splits the text into deltas.
fn split_text(text: &str, unit: ChunkUnit) -> Vec<String> {
    match unit {
        ChunkUnit::Whole if text.is_empty() => Vec::new(),
        ChunkUnit::Whole => vec![text.to_owned()],
        ChunkUnit::Char => text.chars().map(String::from).collect(),
        ChunkUnit::Word => text.split_inclusive(' ').map(str::to_owned).collect(),
    }
}
