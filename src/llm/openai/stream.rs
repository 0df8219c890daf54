//! Decodes the bytes of a chat completion: a stream of events, or one JSON answer presented as such.
//!
//! Hot path: one typed parse per event that borrows from the event's bytes (none where only the text is another than in the
//! event before), one copy of the text into the answer and one shared piece for the listener. Vendors' quirks that are accepted are named in `tests/wire/openai/`.

use std::{borrow::Cow, collections::VecDeque, sync::Arc};

use bytes::Bytes;
use serde_json::value::RawValue;

use super::{
    chunk::{Chunk, Piece, Text, WireUsage},
    mould::Mould,
};
use crate::{
    limits,
    llm::{
        assemble::{Assembler, CallPiece},
        error::{Fault, LlmError, LlmErrorKind},
        message::{Answer, Finish, Usage},
        oddity::Oddity,
        pump::Decode,
        response,
        sse::SseDecoder,
        stream::Delta,
    },
};

/// What the bytes turned out to be.
#[derive(Debug, PartialEq, Eq)]
enum Form {
    /// Only white space so far.
    Unknown,
    Events,
    /// A whole answer, or an error, as one JSON text.
    Json,
}

/// The decoder of one answer.
pub(crate) struct ChunkDecoder {
    form: Form,
    /// The JSON text so far; at most [`limits::MODEL_BODY`].
    json: Vec<u8>,
    sse: SseDecoder,
    /// `None` after the answer was taken.
    assembler: Option<Assembler>,
    /// Deltas of the bytes fed last; the reader empties it before it reads on.
    out: VecDeque<Delta>,
    events: u64,
    choices: Choices,
    closed: bool,
}

/// What was seen of the choices.
#[derive(Default)]
struct Choices {
    seen: u64,
    mould: Mould,
}

impl ChunkDecoder {
    /// A decoder for the answer to a request of `round` messages and `request_bytes` bytes.
    pub(crate) fn new(round: usize, request_bytes: usize) -> Self {
        Self {
            form: Form::Unknown,
            json: Vec::new(),
            sse: SseDecoder::default(),
            assembler: Some(Assembler::new(round, request_bytes)),
            out: VecDeque::with_capacity(16),
            events: 0,
            choices: Choices::default(),
            closed: false,
        }
    }

    /// Tells the form from the first byte that is no white space: content types lie.
    fn detect(&mut self, bytes: &[u8]) -> Result<(), LlmError> {
        self.form = match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
            None => Form::Unknown,
            Some(b'{' | b'[') => Form::Json,
            Some(b'<') => {
                return Err(LlmError::from(Fault::NotAnAnswer).because(String::from_utf8_lossy(bytes)));
            }
            Some(_) => Form::Events,
        };
        Ok(())
    }

    fn drain_events(&mut self) -> Result<(), LlmError> {
        while !self.closed {
            let Some(event) = self.sse.next()? else { break };
            self.events += 1;
            let Some(assembler) = self.assembler.as_mut() else { break };
            self.closed = take_event(event.name, event.data, assembler, &mut self.out, &mut self.choices)?;
        }
        Ok(())
    }
}

impl Decode for ChunkDecoder {
    fn feed(&mut self, bytes: Bytes) -> Result<(), LlmError> {
        if self.form == Form::Unknown {
            self.detect(&bytes)?;
        }
        if self.form == Form::Json {
            if self.json.len() + bytes.len() > limits::MODEL_BODY {
                return Err(Fault::TextTooLong.into());
            }
            self.json.extend_from_slice(&bytes);
            return Ok(());
        }
        self.sse.feed(bytes);
        self.drain_events()
    }

    fn end(&mut self) -> Result<(), LlmError> {
        let Some(assembler) = self.assembler.as_mut() else { return Ok(()) };
        if self.form == Form::Json {
            self.events += 1;
            take_chunk(&self.json, assembler, &mut self.out, &mut self.choices)?;
            return Ok(());
        }
        if !self.closed
            && let Some(event) = self.sse.end()?
        {
            self.events += 1;
            match take_event(event.name, event.data, assembler, &mut self.out, &mut self.choices) {
                Ok(closed) => self.closed = closed,
                // The last event has no end mark: it may be cut anywhere.
                Err(error) if error.kind == LlmErrorKind::BadAnswer(Fault::NotJson) => {}
                Err(error) => return Err(error),
            }
        }
        if self.events == 0 && self.form == Form::Events { Err(Fault::NotAnAnswer.into()) } else { Ok(()) }
    }

    fn pop(&mut self) -> Option<Delta> {
        self.out.pop_front()
    }
    fn events(&self) -> u64 {
        self.events
    }
    fn is_finished(&self) -> bool {
        self.assembler.as_ref().is_none_or(Assembler::is_finished)
    }
    fn is_closed(&self) -> bool {
        self.closed
    }

    fn answer(&mut self) -> Result<Answer, LlmError> {
        let Some(mut assembler) = self.assembler.take() else { return Err(LlmErrorKind::CutShort.into()) };
        if self.closed {
            if self.choices.seen == 0 {
                return Err(Fault::Empty.into());
            }
            assembler.wire_end();
        }
        assembler.done()
    }
}

/// Takes one event; tells whether it was the wire's end mark.
fn take_event(
    name: &[u8],
    data: &[u8],
    assembler: &mut Assembler,
    out: &mut VecDeque<Delta>,
    choices: &mut Choices,
) -> Result<bool, LlmError> {
    if data.trim_ascii() == b"[DONE]" {
        return Ok(true);
    }
    if name == b"error" {
        return Err(response::in_stream(data));
    }
    if data.trim_ascii().is_empty() {
        return Ok(false);
    }
    take_chunk(data, assembler, out, choices)?;
    Ok(false)
}

fn take_chunk(
    data: &[u8],
    assembler: &mut Assembler,
    out: &mut VecDeque<Delta>,
    choices: &mut Choices,
) -> Result<(), LlmError> {
    if let Some(text) = choices.mould.text(data) {
        choices.seen += 1;
        return take_text(text, assembler, out);
    }
    match response::read::<Chunk<'_>>(data) {
        Ok(chunk) => {
            if let Some(text) = chunk.only_text() {
                choices.mould.learn(data, text);
            }
            apply(chunk, data, assembler, out, choices)
        }
        Err(error) if error.is_eof() => Err(LlmError::new(LlmErrorKind::CutShort).because(error)),
        Err(_) => {
            // Broken UTF-8 and lone surrogates cost a replacement character, not the answer.
            let repaired = response::repair(data);
            let not_json = |error| LlmError::from(Fault::NotJson).because(error);
            let chunk = serde_json::from_str::<Chunk<'_>>(&repaired).map_err(not_json)?;
            assembler.odd(Oddity::Repaired);
            apply(chunk, repaired.as_bytes(), assembler, out, choices)
        }
    }
}

fn apply(
    chunk: Chunk<'_>,
    data: &[u8],
    assembler: &mut Assembler,
    out: &mut VecDeque<Delta>,
    choices: &mut Choices,
) -> Result<(), LlmError> {
    if chunk.error.is_some() {
        return Err(response::in_stream(data));
    }
    if let Some(Text(model)) = chunk.model {
        assembler.model(&model);
    }
    for choice in chunk.choices.unwrap_or_default() {
        // Only one choice is ever asked for.
        if choice.index.is_some_and(|index| index > 0) {
            continue;
        }
        choices.seen += 1;
        if let Some(piece) = choice.delta.or(choice.message) {
            take_piece(piece, assembler, out)?;
        }
        if let Some(finish) = choice.finish_reason.and_then(|Text(reason)| finish(&reason)) {
            assembler.finish(finish?);
        }
    }
    if let Some(usage) = chunk.usage.and_then(|raw| serde_json::from_str::<WireUsage>(raw.get()).ok()) {
        assembler.usage(Usage {
            input: usage.prompt_tokens,
            output: usage.completion_tokens,
            cached: usage.prompt_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0),
            reasoning: usage.completion_tokens_details.and_then(|details| details.reasoning_tokens).unwrap_or(0),
            ..Usage::default()
        });
    }
    Ok(())
}

fn take_piece(piece: Piece<'_>, assembler: &mut Assembler, out: &mut VecDeque<Delta>) -> Result<(), LlmError> {
    if let Some(Text(text)) = piece.content {
        take_text(&text, assembler, out)?;
    }
    if let Some(Text(text)) = piece.refusal
        && !text.is_empty()
        && assembler.refusal(&text)?
    {
        out.push_back(Delta::Refusal(Arc::from(&*text)));
    }
    for call in piece.tool_calls.unwrap_or_default() {
        let Text(id) = call.id.unwrap_or_default();
        let (name, raw) = call.function.map_or((None, None), |function| (function.name, function.arguments));
        let Text(name) = name.unwrap_or_default();
        let arguments = raw.map_or(Ok(Cow::Borrowed("")), arguments)?;
        let piece = CallPiece { index: call.index, id: &id, name: &name, arguments: &arguments };
        if let Some(index) = assembler.call(piece)? {
            out.push_back(Delta::CallBegan { index, name: Arc::from(&*name) });
        }
    }
    Ok(())
}

fn take_text(text: &str, assembler: &mut Assembler, out: &mut VecDeque<Delta>) -> Result<(), LlmError> {
    if !text.is_empty() && assembler.text(text)? {
        out.push_back(Delta::Text(Arc::from(text)));
    }
    Ok(())
}

fn arguments(raw: &RawValue) -> Result<Cow<'_, str>, LlmError> {
    let text = raw.get();
    if !text.starts_with('"') {
        return Ok(if text == "null" { Cow::Borrowed("") } else { Cow::Borrowed(text) });
    }
    let parsed = serde_json::from_str::<Text<'_>>(text);
    parsed.map(|Text(text)| text).map_err(|error| LlmError::from(Fault::NotJson).because(error))
}

/// What a finish reason means; `None`: the server wrote an empty one into a chunk that ends nothing.
fn finish(reason: &str) -> Option<Result<Finish, LlmError>> {
    Some(Ok(match reason {
        "" => return None,
        "tool_calls" | "function_call" | "tool_use" => Finish::ToolCalls,
        "length" | "max_tokens" | "model_length" => Finish::Length,
        "content_filter" | "safety" => Finish::ContentFilter,
        "error" | "abort" | "cancelled" | "network_error" => {
            return Some(Err(LlmError::new(LlmErrorKind::CutShort).because(reason)));
        }
        _ => Finish::Stop,
    }))
}
