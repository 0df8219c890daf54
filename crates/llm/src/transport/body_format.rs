//! The format of a response body: an event stream, or one JSON text, which is handled as one event.

use segue_base::{
    limits,
    sse::{SseDecoder, TooLong},
};

use serde_json::Value;

use super::{ResponseDecoder, assembler::Assembler, thoughts::ThoughtHistory};
use crate::{
    error::{InvalidResponse, LlmError, LlmErrorKind},
    message::ChatResponse,
    stream::Delta,
};

/// Handles the events of one API.
pub(crate) trait EventHandler: Send {
    /// Handles one event and adds its content to `to`. `name` is empty where the event has none.
    ///
    /// # Errors
    /// The event reports an error or is invalid.
    fn event(&mut self, name: &[u8], data: &[u8], to: &mut Assembler) -> Result<EventKind, LlmError>;
    /// Adds content that the assembler does not collect. `call_states`: data of the provider that belongs to calls, with their positions.
    fn complete(&mut self, answer: &mut ChatResponse, call_states: Vec<(usize, Value)>);
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// A keep-alive.
    Ping,
    /// Anything that counts as progress.
    Progress,
    /// The end marker of the API.
    End,
}

/// The format of a body, detected by its first byte that is not white space, because content types are unreliable.
#[derive(Debug, PartialEq, Eq)]
enum BodyFormat {
    /// Only white space so far.
    Unknown,
    Events,
    /// A complete response, or an error, as one JSON text.
    Json,
}

/// The decoder of one response.
pub(crate) struct BodyDecoder<H> {
    format: BodyFormat,
    /// The JSON text so far; at most [`limits::MODEL_BODY`].
    json: Vec<u8>,
    sse: SseDecoder,
    handler: H,
    /// `None` after [`ResponseDecoder::response`].
    assembler: Option<Assembler>,
    /// Events other than pings.
    events: u64,
    saw_end_marker: bool,
}

impl<H: EventHandler> BodyDecoder<H> {
    pub(crate) fn new(handler: H, assembler: Assembler) -> Self {
        Self {
            format: BodyFormat::Unknown,
            json: Vec::new(),
            sse: SseDecoder::new(limits::MODEL_LINE),
            handler,
            assembler: Some(assembler),
            events: 0,
            saw_end_marker: false,
        }
    }

    /// Sets what is known about thoughts in the texts of the model; `None` keeps them in the text.
    pub(crate) fn with_thoughts(mut self, history: Option<ThoughtHistory>) -> Self {
        if let Some(assembler) = &mut self.assembler {
            match history {
                Some(history) => assembler.filter_thoughts(history),
                None => assembler.keep_thoughts(),
            }
        }
        self
    }

    fn event(&mut self, name: &[u8], data: &[u8]) -> Result<(), LlmError> {
        let Some(assembler) = &mut self.assembler else { return Ok(()) };
        let kind = self.handler.event(name, data, assembler)?;
        self.events += u64::from(kind != EventKind::Ping);
        self.saw_end_marker |= kind == EventKind::End;
        Ok(())
    }
}

impl<H: EventHandler> ResponseDecoder for BodyDecoder<H> {
    fn feed(&mut self, bytes: &[u8]) -> Result<(), LlmError> {
        if self.format == BodyFormat::Unknown {
            self.format = match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
                None => BodyFormat::Unknown,
                Some(b'{' | b'[') => BodyFormat::Json,
                Some(b'<') => {
                    return Err(
                        LlmError::from(InvalidResponse::UnexpectedFormat).with_detail(String::from_utf8_lossy(bytes))
                    );
                }
                Some(_) => BodyFormat::Events,
            };
        }
        if self.format == BodyFormat::Json {
            if self.json.len() + bytes.len() > limits::MODEL_BODY {
                return Err(InvalidResponse::TextTooLong.into());
            }
            self.json.extend_from_slice(bytes);
            return Ok(());
        }
        let fed = self.sse.feed(bytes);
        while !self.saw_end_marker
            && let Some(event) = self.sse.pop()
        {
            self.event(&event.name, &event.data)?;
        }
        if self.saw_end_marker { Ok(()) } else { fed.map_err(|TooLong| InvalidResponse::LineTooLong.into()) }
    }

    fn end(&mut self) -> Result<(), LlmError> {
        if self.format == BodyFormat::Json {
            let json = std::mem::take(&mut self.json);
            return self.event(b"", &json);
        }
        if !self.saw_end_marker
            && let Some(event) = self.sse.end()
        {
            match self.event(&event.name, &event.data) {
                // The last event has no terminating blank line, so it may be truncated.
                Err(error) if error.kind == LlmErrorKind::InvalidResponse(InvalidResponse::NotJson) => self.events += 1,
                other => other?,
            }
        }
        if self.events == 0 && self.format == BodyFormat::Events {
            Err(InvalidResponse::UnexpectedFormat.into())
        } else {
            Ok(())
        }
    }

    fn next_delta(&mut self) -> Option<Delta> {
        self.assembler.as_mut()?.next_delta()
    }
    fn events(&self) -> u64 {
        self.events
    }
    fn is_finished(&self) -> bool {
        self.assembler.as_ref().is_none_or(Assembler::is_finished)
    }
    fn saw_end_marker(&self) -> bool {
        self.saw_end_marker
    }

    fn response(&mut self) -> Result<ChatResponse, LlmError> {
        let mut assembler = self.assembler.take().ok_or(LlmErrorKind::Truncated)?;
        if self.saw_end_marker {
            assembler.end_marker()?;
        }
        let mut answer = assembler.finish_response()?;
        self.handler.complete(&mut answer, assembler.take_call_states());
        Ok(answer)
    }
}
