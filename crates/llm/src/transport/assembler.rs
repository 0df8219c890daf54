//! Deltas to a whole answer. The one place that decides whether a tool call exists.
//!
//! A call leaves only when the model's own finish reason came. Arguments that are no JSON leave marked as malformed, so that
//! the model can be told; calls that the length limit or a filter cut leave as names only.

use std::{collections::VecDeque, sync::Arc};

use segue_base::limits;
use serde::de::IgnoredAny;

use crate::{
    error::{InvalidResponse, LlmError, LlmErrorKind},
    message::{ChatResponse, FinishReason, ToolArguments, ToolCall, Usage},
    oddity::ResponseWarning,
    stream::Delta,
};

/// A piece of a call, as a wire brings it. Wires differ in which fields they repeat or leave out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ToolCallDelta<'a> {
    /// The call's place, if the wire says it.
    pub(crate) index: Option<u64>,
    /// Empty when the wire says none.
    pub(crate) id: &'a str,
    /// Empty when the wire says none.
    pub(crate) name: &'a str,
    /// More of the arguments.
    pub(crate) arguments: &'a str,
}

/// Collects the pieces of one answer, and hands them on as deltas.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    text: String,
    refusal: String,
    calls: Vec<PartialToolCall>,
    finish: Option<FinishReason>,
    usage: Option<Usage>,
    model: Arc<str>,
    oddities: Vec<ResponseWarning>,
    /// Deltas that were not taken yet.
    deltas: VecDeque<Delta>,
    /// Whether anything of an answer came, even if there is nothing in it.
    began: bool,
    /// Part of the ids made here: the number of messages before the answer, so that no two rounds of a loop share an id.
    message_count: usize,
    /// Bytes of the request, for the estimate of its tokens.
    request_bytes: usize,
}

#[derive(Debug, Default)]
struct PartialToolCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

/// More tokens than any model has: a figure above it is a mistake of the server.
const MOST_TOKENS: u64 = 100_000_000;

impl Assembler {
    /// An empty answer to a request of `message_count` messages and `request_bytes` bytes.
    pub(crate) fn new(message_count: usize, request_bytes: usize) -> Self {
        Self { message_count, request_bytes, ..Self::default() }
    }

    /// An answer begins.
    pub(crate) fn begin(&mut self) {
        self.began = true;
    }

    /// Adds text. `false`: it is empty, or came after the finish reason and is left out.
    pub(crate) fn text(&mut self, text: &str) -> Result<bool, InvalidResponse> {
        if text.is_empty() || self.is_late() {
            return Ok(false);
        }
        push(&mut self.text, text)?;
        self.deltas.push_back(Delta::Text(text.into()));
        Ok(true)
    }

    /// Adds text of a refusal; left out after the finish reason.
    pub(crate) fn refusal(&mut self, text: &str) -> Result<(), InvalidResponse> {
        if !text.is_empty() && !self.is_late() {
            push(&mut self.refusal, text)?;
            self.deltas.push_back(Delta::Refusal(text.into()));
        }
        Ok(())
    }

    /// Adds a piece of a call. `true`: the call got its name.
    pub(crate) fn call(&mut self, piece: ToolCallDelta<'_>) -> Result<bool, InvalidResponse> {
        if self.is_late() {
            return Ok(false);
        }
        let at = match self.place(piece) {
            Some(at) => at,
            None if self.calls.len() == limits::MODEL_CALLS => return Err(InvalidResponse::TooManyCalls),
            None => {
                self.calls.push(PartialToolCall { index: piece.index, ..PartialToolCall::default() });
                self.calls.len() - 1
            }
        };
        let Some(call) = self.calls.get_mut(at) else { return Ok(false) };
        if call.arguments.len() + piece.arguments.len() > limits::MODEL_ARGUMENTS {
            return Err(InvalidResponse::ArgumentsTooLong);
        }
        // Ids and names come whole; the first one counts, later ones are repetitions.
        if call.id.is_empty() {
            call.id.push_str(piece.id);
        }
        let named = call.name.is_empty() && !piece.name.is_empty();
        if named {
            call.name.push_str(piece.name);
        }
        call.arguments.push_str(piece.arguments);
        if named {
            self.deltas.push_back(Delta::CallBegan { index: at, name: piece.name.into() });
        }
        Ok(named)
    }

    /// The next delta, except `Done`.
    pub(crate) fn next_delta(&mut self) -> Option<Delta> {
        self.deltas.pop_front()
    }

    /// Whether what comes now comes after the finish reason, which is odd.
    fn is_late(&mut self) -> bool {
        self.began = true;
        if self.finish.is_some() {
            self.odd(ResponseWarning::AfterEnd);
        }
        self.finish.is_some()
    }

    /// The call that `piece` continues; `None` when it begins a new one.
    fn place(&self, piece: ToolCallDelta<'_>) -> Option<usize> {
        // The last of a place: servers that number every call 0 mean the newest.
        let (at, call) = match piece.index {
            Some(index) => self.calls.iter().enumerate().rfind(|(_, call)| call.index == Some(index))?,
            None if piece.id.is_empty() => self.calls.iter().enumerate().next_back()?,
            None => self.calls.iter().enumerate().rfind(|(_, call)| call.id == piece.id)?,
        };
        let names_it = !piece.name.is_empty() && !call.name.is_empty();
        let begins = match piece.index {
            Some(_) if piece.id.is_empty() != call.id.is_empty() => names_it && piece.name != call.name,
            Some(_) if !piece.id.is_empty() => names_it && piece.id != call.id,
            // Some servers give every call the place 0 and no id.
            Some(_) if piece.arguments.is_empty() => names_it && piece.name != call.name,
            _ => names_it && (piece.name != call.name || is_json(&call.arguments)),
        };
        (!begins).then_some(at)
    }

    /// The model's finish reason. The first one counts.
    pub(crate) fn finish(&mut self, finish: FinishReason) {
        if *self.finish.get_or_insert(finish) != finish {
            self.odd(ResponseWarning::AfterEnd);
        }
    }

    /// Notes that something was strange, once.
    pub(crate) fn odd(&mut self, oddity: ResponseWarning) {
        if !self.oddities.contains(&oddity) {
            self.oddities.push(oddity);
        }
    }

    /// The end marker of the API, when the finish reason is missing: enough for text, not for calls.
    ///
    /// # Errors
    /// [`InvalidResponse::Empty`]: no answer began before it.
    pub(crate) fn wire_end(&mut self) -> Result<(), InvalidResponse> {
        if !self.began {
            return Err(InvalidResponse::Empty);
        }
        if self.calls.is_empty() {
            self.finish.get_or_insert(FinishReason::Stop);
        }
        Ok(())
    }

    /// Whether the finish reason came.
    pub(crate) fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// What the vendor says it cost; unbelievable figures are ignored.
    pub(crate) fn usage(&mut self, usage: Usage) {
        if usage.input <= MOST_TOKENS && usage.output <= MOST_TOKENS {
            self.usage = Some(usage);
        }
    }

    /// The model that answers. The first name counts.
    pub(crate) fn model(&mut self, model: &str) {
        if self.model.is_empty() && !model.is_empty() {
            self.model = model.into();
        }
    }

    /// The whole answer.
    ///
    /// # Errors
    /// [`LlmErrorKind::CutShort`] without a finish reason; [`InvalidResponse::NamelessCall`].
    pub(crate) fn done(self) -> Result<ChatResponse, LlmError> {
        let Some(mut finish) = self.finish else { return Err(LlmErrorKind::CutShort.into()) };
        let usage = self.usage.unwrap_or_else(|| self.estimate());
        let (mut tool_calls, mut lost_calls) = (Vec::new(), Vec::new());
        if matches!(finish, FinishReason::Length | FinishReason::ContentFilter) {
            lost_calls = self.calls.iter().map(|call| Arc::from(call.name.as_str())).collect();
        } else {
            tool_calls = whole_calls(self.calls, self.message_count)?;
            finish = if tool_calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
        }
        Ok(ChatResponse {
            text: self.text.into(),
            refusal: (!self.refusal.is_empty()).then(|| self.refusal.into()),
            tool_calls,
            lost_calls,
            finish,
            usage,
            model: self.model,
            thoughts: None,
            route: None,
            oddities: self.oddities,
        })
    }

    /// Four bytes to a token: right to a factor of two for Latin scripts, and never zero for something.
    fn estimate(&self) -> Usage {
        let calls: usize = self.calls.iter().map(|call| call.name.len() + call.arguments.len()).sum();
        let tokens = |bytes: usize| bytes.div_ceil(4) as u64;
        Usage {
            input: tokens(self.request_bytes),
            output: tokens(self.text.len() + self.refusal.len() + calls),
            estimated: true,
            ..Usage::default()
        }
    }
}

/// Adds text up to the limit.
fn push(to: &mut String, text: &str) -> Result<(), InvalidResponse> {
    if to.len() + text.len() > limits::MODEL_ANSWER {
        return Err(InvalidResponse::TextTooLong);
    }
    to.push_str(text);
    Ok(())
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

fn whole_calls(partials: Vec<PartialToolCall>, message_count: usize) -> Result<Vec<ToolCall>, LlmError> {
    let mut calls: Vec<ToolCall> = Vec::with_capacity(partials.len());
    for (place, partial) in partials.into_iter().enumerate() {
        if partial.name.is_empty() {
            return Err(InvalidResponse::NamelessCall.into());
        }
        let arguments = whole_arguments(&partial.arguments);
        let taken = |calls: &[ToolCall], id: &str| calls.iter().any(|call| *call.id == *id);
        if !partial.id.is_empty() {
            // The same call sent twice is one call.
            let twin =
                |call: &ToolCall| *call.id == *partial.id && *call.name == *partial.name && call.arguments == arguments;
            if calls.iter().any(twin) {
                continue;
            }
        }
        let mut id = partial.id;
        if id.is_empty() || taken(&calls, &id) {
            id = format!("call_{message_count}_{place}");
            while taken(&calls, &id) {
                id.push('_');
            }
        }
        calls.push(ToolCall { id: id.into(), name: partial.name.into(), arguments });
    }
    Ok(calls)
}

fn whole_arguments(text: &str) -> ToolArguments {
    if text.trim().is_empty() {
        return ToolArguments::json(serde_json::Map::new());
    }
    match serde_json::from_str(text) {
        Ok(value) => ToolArguments::Json(Arc::new(value)),
        Err(error) => ToolArguments::Malformed { text: text.into(), error: error.to_string().into() },
    }
}

#[cfg(test)]
mod tests;
