//! Decodes the bytes of a messages answer: a stream of events, or one JSON answer.
//!
//! One typed parse per event that borrows from the event's bytes, one copy of the text into the answer and one shared piece for
//! the listener. Events and blocks of kinds that are not known are passed over, as the vendor asks for. A `ping` is no sign of
//! progress: the deadlines of the call run on (reliability.md L8).

use std::{borrow::Cow, collections::VecDeque, sync::Arc};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::thoughts::Thinking;
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
pub(crate) struct EventDecoder {
    form: Form,
    /// The JSON text so far; at most [`limits::MODEL_BODY`].
    json: Vec<u8>,
    sse: SseDecoder,
    reading: Reading,
    /// The answer was taken.
    taken: bool,
    /// Events other than pings.
    events: u64,
    closed: bool,
}

/// What was read of the answer.
struct Reading {
    assembler: Assembler,
    /// Blocks that began, by the wire's number of each; at most [`limits::MODEL_BLOCKS`].
    blocks: Vec<(u64, Kind)>,
    thinking: Thinking,
    usage: Counts,
    /// Deltas of the bytes fed last; the reader empties it before it reads on.
    out: VecDeque<Delta>,
    /// Whether anything of an answer came.
    began: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Call,
    Thought,
    /// A kind that this side did not ask for.
    Other,
}

/// A string that borrows where it can; serde's derive does not see through `Option<Cow>`.
#[derive(Deserialize, Default)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Text<'a>>,
    index: Option<u64>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    content_block: Option<Block<'a>>,
    #[serde(borrow)]
    delta: Option<Piece<'a>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    /// Of a whole answer.
    #[serde(borrow)]
    content: Option<Vec<Block<'a>>>,
    #[serde(borrow)]
    model: Option<Text<'a>>,
    #[serde(borrow)]
    stop_reason: Option<Text<'a>>,
}

/// What `message_start` tells.
#[derive(Deserialize)]
struct Start<'a> {
    #[serde(borrow)]
    model: Option<Text<'a>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    thinking: Option<Text<'a>>,
    #[serde(borrow)]
    signature: Option<Text<'a>>,
    #[serde(borrow)]
    data: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    partial_json: Option<Text<'a>>,
    #[serde(borrow)]
    thinking: Option<Text<'a>>,
    #[serde(borrow)]
    signature: Option<Text<'a>>,
    #[serde(borrow)]
    stop_reason: Option<Text<'a>>,
}

/// Tokens as the wire counts them: those from and to the cache are not among `input_tokens`. Later figures replace earlier ones.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Counts {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
}

impl EventDecoder {
    /// A decoder for the answer of `model` to a request of `round` messages and `request_bytes` bytes.
    pub(crate) fn new(model: Arc<str>, round: usize, request_bytes: usize) -> Self {
        let reading = Reading {
            assembler: Assembler::new(round, request_bytes),
            blocks: Vec::new(),
            thinking: Thinking::of(model),
            usage: Counts::default(),
            out: VecDeque::new(),
            began: false,
        };
        let sse = SseDecoder::default();
        Self { form: Form::Unknown, json: Vec::new(), sse, reading, taken: false, events: 0, closed: false }
    }

    /// Tells the form from the first byte that is no white space: content types lie.
    fn detect(&mut self, bytes: &[u8]) -> Result<(), LlmError> {
        self.form = match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
            None => Form::Unknown,
            Some(b'{' | b'[') => Form::Json,
            Some(b'<') => return Err(LlmError::from(Fault::NotAnAnswer).because(String::from_utf8_lossy(bytes))),
            Some(_) => Form::Events,
        };
        Ok(())
    }

    fn take(&mut self, step: Step) {
        self.events += u64::from(step != Step::Ping);
        self.closed |= step == Step::End;
    }
}

impl Decode for EventDecoder {
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
        while !self.closed {
            let Some(event) = self.sse.next()? else { break };
            let step = self.reading.event(event.name, event.data)?;
            self.take(step);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), LlmError> {
        if self.form == Form::Json {
            self.events += 1;
            self.reading.event(b"", &self.json)?;
            return Ok(());
        }
        if !self.closed
            && let Some(event) = self.sse.end()?
        {
            match self.reading.event(event.name, event.data) {
                Ok(step) => self.take(step),
                // The last event has no end mark: it may be cut anywhere.
                Err(error) if error.kind == LlmErrorKind::BadAnswer(Fault::NotJson) => self.take(Step::More),
                Err(error) => return Err(error),
            }
        }
        if self.events == 0 && self.form == Form::Events { Err(Fault::NotAnAnswer.into()) } else { Ok(()) }
    }

    fn pop(&mut self) -> Option<Delta> {
        self.reading.out.pop_front()
    }
    fn events(&self) -> u64 {
        self.events
    }
    fn is_finished(&self) -> bool {
        self.taken || self.reading.assembler.is_finished()
    }
    fn is_closed(&self) -> bool {
        self.closed
    }

    fn answer(&mut self) -> Result<Answer, LlmError> {
        if std::mem::replace(&mut self.taken, true) {
            return Err(LlmErrorKind::CutShort.into());
        }
        let mut assembler = std::mem::replace(&mut self.reading.assembler, Assembler::new(0, 0));
        if self.closed {
            if !self.reading.began {
                return Err(Fault::Empty.into());
            }
            assembler.wire_end();
        }
        let mut answer = assembler.done()?;
        answer.thoughts = self.reading.thinking.done();
        Ok(answer)
    }
}

/// What an event was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A sign that the connection lives, and nothing else.
    Ping,
    More,
    /// The wire's own end mark.
    End,
}

impl Reading {
    /// Takes one event.
    fn event(&mut self, name: &[u8], data: &[u8]) -> Result<Step, LlmError> {
        if data.trim_ascii().is_empty() {
            return Ok(Step::Ping);
        }
        match response::read::<Event<'_>>(data) {
            Ok(event) => self.apply(event, name, data),
            Err(error) if error.is_eof() => Err(LlmError::new(LlmErrorKind::CutShort).because(error)),
            Err(_) => {
                // Broken UTF-8 and lone surrogates cost a replacement character, not the answer.
                let repaired = response::repair(data);
                let not_json = |error| LlmError::from(Fault::NotJson).because(error);
                let event = serde_json::from_str::<Event<'_>>(&repaired).map_err(not_json)?;
                self.assembler.odd(Oddity::Repaired);
                self.apply(event, name, repaired.as_bytes())
            }
        }
    }

    fn apply(&mut self, event: Event<'_>, name: &[u8], data: &[u8]) -> Result<Step, LlmError> {
        // The kind stands in the data; the name of the event repeats it.
        let kind =
            event.kind.as_ref().map_or_else(|| String::from_utf8_lossy(name), |Text(kind)| Cow::Borrowed(&**kind));
        match &*kind {
            "ping" => return Ok(Step::Ping),
            "message_stop" => return Ok(Step::End),
            "error" => return Err(response::in_stream(data)),
            "message_start" => self.start(event.message),
            "content_block_start" => {
                if let Some(block) = event.content_block {
                    self.block(event.index, block)?;
                }
            }
            "content_block_delta" => {
                if let Some(piece) = event.delta {
                    self.piece(event.index, piece)?;
                }
            }
            "message_delta" => {
                self.counts(event.usage);
                self.stop(event.delta.and_then(|delta| delta.stop_reason));
            }
            "message" => {
                self.began = true;
                if let Some(Text(model)) = event.model {
                    self.assembler.model(&model);
                }
                for (index, block) in (0u64..).zip(event.content.unwrap_or_default()) {
                    self.block(Some(index), block)?;
                }
                self.counts(event.usage);
                self.stop(event.stop_reason);
            }
            // Kinds that came later; and the ends of blocks, which the next block tells as well.
            _ => {}
        }
        Ok(Step::More)
    }

    fn start(&mut self, message: Option<&RawValue>) {
        self.began = true;
        let Some(start) = message.and_then(|raw| serde_json::from_str::<Start<'_>>(raw.get()).ok()) else { return };
        if let Some(Text(model)) = start.model {
            self.assembler.model(&model);
        }
        // The output of this event is a placeholder: it counts only with the figures of the end.
        if let Some(counts) = start.usage.and_then(|raw| serde_json::from_str::<Counts>(raw.get()).ok()) {
            self.usage = Counts { output_tokens: None, ..counts };
        }
    }

    fn counts(&mut self, usage: Option<&RawValue>) {
        let Some(more) = usage.and_then(|raw| serde_json::from_str::<Counts>(raw.get()).ok()) else { return };
        let known = self.usage;
        self.usage = Counts {
            input_tokens: more.input_tokens.or(known.input_tokens),
            output_tokens: more.output_tokens.or(known.output_tokens),
            cache_creation_input_tokens: more.cache_creation_input_tokens.or(known.cache_creation_input_tokens),
            cache_read_input_tokens: more.cache_read_input_tokens.or(known.cache_read_input_tokens),
        };
        let Counts { input_tokens: Some(input), output_tokens: Some(output), .. } = self.usage else { return };
        let cached = self.usage.cache_read_input_tokens.unwrap_or(0);
        let cache_written = self.usage.cache_creation_input_tokens.unwrap_or(0);
        let input = input.saturating_add(cached).saturating_add(cache_written);
        self.assembler.usage(Usage { input, output, cached, cache_written, ..Usage::default() });
    }

    fn stop(&mut self, reason: Option<Text<'_>>) {
        if let Some(finish) = reason.and_then(|Text(reason)| finish(&reason)) {
            self.assembler.finish(finish);
        }
    }

    fn block(&mut self, index: Option<u64>, block: Block<'_>) -> Result<(), LlmError> {
        self.began = true;
        let Text(kind) = block.kind.unwrap_or_default();
        let kind = match &*kind {
            "text" => Kind::Text,
            "tool_use" => Kind::Call,
            "thinking" | "redacted_thinking" => Kind::Thought,
            _ => Kind::Other,
        };
        let index = index.unwrap_or_else(|| self.blocks.last().map_or(0, |(last, _)| last + 1));
        self.blocks.retain(|(number, _)| *number != index);
        if self.blocks.len() == limits::MODEL_BLOCKS {
            return Err(Fault::TooManyCalls.into());
        }
        self.blocks.push((index, kind));
        match kind {
            Kind::Text => self.text(block.text),
            Kind::Call => {
                let (Text(id), Text(name)) = (block.id.unwrap_or_default(), block.name.unwrap_or_default());
                // An empty object only opens the call; its arguments come in pieces.
                let input = block.input.map(RawValue::get).filter(|input| *input != "null" && !is_empty_object(input));
                self.call(CallPiece { index: Some(index), id: &id, name: &name, arguments: input.unwrap_or("") })
            }
            Kind::Thought => {
                let text = |part: Option<Text<'_>>| part.map(|Text(text)| text.into_owned()).unwrap_or_default();
                let data = block.data.map(|Text(data)| data.into_owned());
                if !self.assembler.is_finished() {
                    self.thinking.begin(index, text(block.thinking), text(block.signature), data);
                }
                Ok(())
            }
            Kind::Other => Ok(()),
        }
    }

    fn piece(&mut self, index: Option<u64>, piece: Piece<'_>) -> Result<(), LlmError> {
        self.began = true;
        let index = index.or(self.blocks.last().map(|(last, _)| *last)).unwrap_or(0);
        let kind = self.blocks.iter().find(|(number, _)| *number == index).map(|(_, kind)| *kind);
        match kind {
            Some(Kind::Other) => Ok(()),
            Some(Kind::Thought) => {
                if !self.assembler.is_finished() {
                    let text = piece.thinking.as_ref().map_or("", |Text(text)| text);
                    let signature = piece.signature.as_ref().map_or("", |Text(text)| text);
                    self.thinking.more(index, text, signature);
                }
                Ok(())
            }
            Some(Kind::Text) => self.text(piece.text),
            Some(Kind::Call) | None => {
                if let Some(Text(arguments)) = piece.partial_json {
                    self.call(CallPiece { index: Some(index), arguments: &arguments, ..CallPiece::default() })?;
                }
                self.text(piece.text)
            }
        }
    }

    fn text(&mut self, text: Option<Text<'_>>) -> Result<(), LlmError> {
        let Some(Text(text)) = text.filter(|Text(text)| !text.is_empty()) else { return Ok(()) };
        if self.assembler.text(&text)? {
            self.thinking.said();
            self.out.push_back(Delta::Text(Arc::from(&*text)));
        }
        Ok(())
    }

    fn call(&mut self, piece: CallPiece<'_>) -> Result<(), LlmError> {
        if let Some(index) = self.assembler.call(piece)? {
            self.thinking.called();
            self.out.push_back(Delta::CallBegan { index, name: Arc::from(piece.name) });
        }
        Ok(())
    }
}

fn is_empty_object(input: &str) -> bool {
    input.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).is_some_and(|inner| inner.trim().is_empty())
}

/// What a stop reason means; `None`: the server wrote an empty one into an event that ends nothing.
///
/// `refusal` is the vendor's safety classifier that stepped in, not words of the model. `pause_turn` belongs to tools that run
/// at the vendor, none of which is ever offered: the answer is incomplete.
fn finish(reason: &str) -> Option<Finish> {
    Some(match reason {
        "" => return None,
        "tool_use" => Finish::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" | "pause_turn" => Finish::Length,
        "refusal" => Finish::ContentFilter,
        _ => Finish::Stop,
    })
}
