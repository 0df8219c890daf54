//! `POST /v1/chat/completions`.

use std::{pin::Pin, sync::Arc};

use axum::http::{self, Response, StatusCode};
use bytes::Bytes;
use futures::stream;
use segue_engine::ids::ConversationId;
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;

use super::{
    super::{
        Body, Caller, Channel as _, Inbox, json,
        stream::{SSE_HEARTBEAT, stream_response},
    },
    ApiError, OpenAiChannel, model_id,
    request::{ChatRequest, Position, UserTurn, completion_id},
    running::{HangUp, RunningRequest},
    sink::{TurnEnd, chat_sink},
};
use crate::{
    conversation::WriteGate,
    llm::Usage,
    runtime::{IncomingMessage, ReceiveError, TurnReport},
};

/// What the assistant gets when a request has no user message: it begins the conversation.
const BEGIN: &str = "/session_start";

/// Runs the turn of a request, and answers with its text: as a stream, or as a whole.
pub(super) async fn complete(
    channel: &OpenAiChannel,
    inbox: Inbox,
    caller: &Caller,
    (head, in_path): (&http::request::Parts, Option<String>),
    request: ChatRequest,
) -> Response<Body> {
    let conversation = match channel.conversation_of(caller, in_path, &head.headers, &request.body) {
        Ok(conversation) => conversation,
        Err(error) => return error.response(),
    };
    let inbox = inbox.for_caller(caller.id.as_ref());
    let hold = if request.is_final() { std::time::Duration::ZERO } else { channel.hold_writes };
    let gate = WriteGate::new(inbox.clock().clone(), hold);
    let running = Arc::new(RunningRequest::new(gate));
    let mut hang_up = HangUp::new(running.clone());
    let (turn, position) = match new_turn(channel, &inbox, &conversation, &request).await {
        Ok(found) => found,
        Err(error) => {
            hang_up.disarm();
            return error.response();
        }
    };
    channel.running.enter(&conversation, &running);
    let turn_end = TurnEnd { running: channel.running.clone(), conversation: conversation.clone(), request: running };
    let (sink, parts) = chat_sink(channel.separator, channel.capabilities(), turn_end);
    let inbox = if turn.text.is_none() { inbox.with_payloads(true) } else { inbox };
    let message = IncomingMessage::new(conversation.clone(), turn.text.unwrap_or_else(|| BEGIN.to_owned()))
        .message_id(position.message_id());
    let accepted = match inbox.accept(message, Box::new(sink)).await {
        Ok(accepted) => accepted,
        Err(error) => {
            hang_up.disarm();
            return ApiError::of_receive(&error).response();
        }
    };
    let completion = Completion {
        id: completion_id(conversation.as_str(), accepted.turn().0),
        model: model_id(&inbox),
        created: inbox.clock().now().as_seconds() as u64,
        with_usage: request.stream_options.and_then(|options| options.include_usage).unwrap_or_default(),
    };
    let answer = Answer { parts, turn: Box::pin(accepted.finished()), result: None, hang_up };
    match request.stream.unwrap_or_default() {
        true => stream_response(completion.chunks(answer), "text/event-stream", Some(SSE_HEARTBEAT), inbox.clock()),
        false => completion.whole(answer).await,
    }
}

/// What the user has said, and where it is in the conversation.
async fn new_turn(
    channel: &OpenAiChannel,
    inbox: &Inbox,
    id: &ConversationId,
    request: &ChatRequest,
) -> Result<(UserTurn, Position), ApiError> {
    let did_nothing = channel.running.newest_did_nothing(id).await;
    let conversation = inbox.assistant().conversation(id).await.map_err(|error| ApiError::of_receive(&error.into()))?;
    let last = conversation.latest_message.as_ref();
    let last = last.and_then(|message| Position::parse(message.message_id.as_str()));
    let turn = request.user_turn(last.as_ref())?;
    match last.filter(|last| turn.repeats(last) && !did_nothing) {
        // The client repeats its request: it gets the recorded answer.
        Some(last) => Ok((turn, last)),
        None => {
            let position = turn.position(conversation.events);
            Ok((turn, position))
        }
    }
}

/// The answer to a request, as it comes.
struct Answer {
    parts: mpsc::Receiver<String>,
    turn: Pin<Box<dyn Future<Output = Result<TurnReport, ReceiveError>> + Send>>,
    result: Option<Result<TurnReport, ReceiveError>>,
    hang_up: HangUp,
}

impl Answer {
    /// The next part of the text; `None` after the last one, when the turn has ended.
    async fn next(&mut self) -> Option<String> {
        loop {
            tokio::select! {
                biased;
                part = self.parts.recv() => match part {
                    Some(part) => return Some(part),
                    None if self.result.is_some() => return None,
                    None => {
                        self.result = Some((&mut self.turn).await);
                        return None;
                    }
                },
                result = &mut self.turn, if self.result.is_none() => self.result = Some(result),
            }
        }
    }

    /// The end, after the last part: the tokens of all models that the turn has used.
    fn end(&mut self) -> Result<Json, ApiError> {
        self.hang_up.disarm();
        let used = match &self.result {
            Some(Err(error)) => return Err(ApiError::of_receive(error)),
            Some(Ok(report)) => report.usage.usage,
            None => Usage::default(),
        };
        let Usage { input, output, cached, reasoning, .. } = used;
        Ok(json!({
            "prompt_tokens": input, "completion_tokens": output, "total_tokens": input.saturating_add(output),
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }))
    }
}

/// The completion that answers a request.
struct Completion {
    id: Arc<str>,
    model: Arc<str>,
    created: u64,
    /// Whether a stream ends with the tokens that were used.
    with_usage: bool,
}

impl Completion {
    async fn whole(self, mut answer: Answer) -> Response<Body> {
        let mut text = String::new();
        while let Some(part) = answer.next().await {
            text.push_str(&part);
        }
        let usage = match answer.end() {
            Ok(usage) => usage,
            Err(error) => return error.response(),
        };
        let message = json!({"role": "assistant", "content": text, "refusal": null});
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop", "logprobs": null});
        let Self { id, model, created, .. } = self;
        let completion = json!({
            "id": &*id, "object": "chat.completion", "created": created, "model": &*model, "choices": [choice],
            "usage": usage,
        });
        json(StatusCode::OK, &completion)
    }

    fn chunks(self, answer: Answer) -> impl futures::Stream<Item = Bytes> + Send {
        let first = self.chunk(&json!({"role": "assistant", "content": ""}), None);
        let rest = stream::unfold(Some((self, answer)), |state| async move {
            let (completion, mut answer) = state?;
            if let Some(part) = answer.next().await {
                let chunk = completion.chunk(&json!({"content": part}), None);
                return Some((chunk, Some((completion, answer))));
            }
            let end = match answer.end() {
                Ok(usage) if completion.with_usage => {
                    [completion.chunk(&json!({}), Some("stop")), completion.part(&json!([]), usage)].concat().into()
                }
                Ok(_) => completion.chunk(&json!({}), Some("stop")),
                Err(error) => event(&error.body()),
            };
            Some(([end, Bytes::from_static(b"data: [DONE]\n\n")].concat().into(), None))
        });
        stream::StreamExt::chain(stream::iter([first]), rest)
    }

    fn chunk(&self, delta: &Json, finish_reason: Option<&str>) -> Bytes {
        self.part(&json!([{"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": null}]), Json::Null)
    }

    fn part(&self, choices: &Json, usage: Json) -> Bytes {
        let Self { id, model, created, with_usage } = self;
        let mut part = json!({
            "id": &**id, "object": "chat.completion.chunk", "created": created, "model": &**model, "choices": choices,
        });
        if let (true, Some(part)) = (with_usage, part.as_object_mut()) {
            part.insert("usage".into(), usage);
        }
        event(&part)
    }
}

fn event(data: &Json) -> Bytes {
    format!("data: {data}\n\n").into()
}
