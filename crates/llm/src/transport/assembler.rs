//! Collects deltas to a complete response. This is the only place that creates tool calls.
//!
//! Tool calls exist only after the model's finish reason. Arguments that are not JSON are marked as malformed, so that the model
//! can get the error. Of calls that the length limit or a content filter ended, only the names remain.
//!
//! One call that cannot run does not spoil the response: it stays in its place without arguments and with the reason
//! ([`DropReason`]), so that the others run and the model is told.

use std::{collections::VecDeque, sync::Arc};

use segue_base::limits;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::thoughts::{Filtered, ThoughtFilter, ThoughtHistory};
use crate::{
    error::{InvalidResponse, LlmError, LlmErrorKind},
    message::{ChatResponse, DropReason, FinishReason, ToolArguments, ToolCall, UNNAMED_CALL, Usage},
    stream::Delta,
    warning::ResponseWarning,
};

/// An increment of a tool call. APIs differ in which fields they repeat or omit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ToolCallDelta<'a> {
    /// The position of the call, if the API sends it.
    pub(crate) index: Option<u64>,
    /// Empty when the API sends none.
    pub(crate) id: &'a str,
    /// Empty when the API sends none.
    pub(crate) name: &'a str,
    /// More of the arguments.
    pub(crate) arguments: &'a str,
    /// Why the call can never run.
    pub(crate) drop_reason: Option<DropReason>,
    /// For an element that is no call at all, and so has neither index nor id: its place in the list.
    pub(crate) place: Option<usize>,
    /// Data of the provider that is sent back with the call.
    pub(crate) state: Option<&'a Map<String, Value>>,
}

/// Collects one response, and queues its deltas.
#[derive(Debug)]
pub(crate) struct Assembler {
    text: String,
    /// Takes thoughts out of the text; `None` keeps them.
    thoughts: Option<ThoughtFilter>,
    refusal: String,
    calls: Vec<PartialToolCall>,
    /// Bytes of the arguments of all calls.
    argument_bytes: usize,
    finish: Option<FinishReason>,
    usage: Option<Usage>,
    model: Arc<str>,
    warnings: Vec<ResponseWarning>,
    /// Deltas that [`Self::next_delta`] has not returned yet.
    deltas: VecDeque<Delta>,
    /// Whether a response began, even an empty one.
    began: bool,
    /// What [`Self::take_call_states`] returns.
    call_states: Vec<(usize, Value)>,
    /// The number of messages of the request. Part of generated ids, so that ids stay unique over a conversation.
    message_count: usize,
    /// Bytes of the request, to estimate its tokens.
    request_bytes: usize,
}

#[derive(Debug, Default)]
struct PartialToolCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    /// Why it can never run, as far as its deltas say.
    drop_reason: Option<DropReason>,
    /// [`ToolCallDelta::place`].
    place: Option<usize>,
    /// Data of the provider that is sent back with the call.
    state: Map<String, Value>,
}

impl PartialToolCall {
    /// Whether nothing but an id or data of the provider came.
    fn is_none(&self) -> bool {
        self.name.is_empty() && self.arguments.trim().is_empty() && self.drop_reason.is_none()
    }
}

/// Reported token counts above this are errors of the server and are ignored.
const MAX_TOKENS: u64 = 100_000_000;

impl Assembler {
    /// An empty response to a request of `message_count` messages and `request_bytes` bytes.
    pub(crate) fn new(message_count: usize, request_bytes: usize) -> Self {
        Self {
            text: String::new(),
            thoughts: Some(ThoughtFilter::default()),
            refusal: String::new(),
            calls: Vec::new(),
            argument_bytes: 0,
            finish: None,
            usage: None,
            model: "".into(),
            warnings: Vec::new(),
            deltas: VecDeque::new(),
            began: false,
            call_states: Vec::new(),
            message_count,
            request_bytes,
        }
    }

    /// A response begins.
    pub(crate) fn begin(&mut self) {
        self.began = true;
    }

    /// Keeps thoughts in the text: its reader tells them apart itself.
    pub(crate) fn keep_thoughts(&mut self) {
        self.thoughts = None;
    }
    /// Sets what is known about the thoughts in the texts of the model.
    pub(crate) fn filter_thoughts(&mut self, history: ThoughtHistory) {
        self.thoughts = Some(ThoughtFilter::new(history));
    }

    /// Adds text. Returns `false` if it is empty, or came after the finish reason and is ignored.
    pub(crate) fn text(&mut self, text: &str) -> Result<bool, InvalidResponse> {
        if text.is_empty() || self.is_after_finish() {
            return Ok(false);
        }
        let Some(thoughts) = &mut self.thoughts else {
            self.show(text)?;
            return Ok(true);
        };
        if thoughts.held_back() + text.len() > limits::MODEL_ANSWER {
            return Err(InvalidResponse::TextTooLong);
        }
        let Filtered { text, retracts } = thoughts.add(text);
        if retracts {
            self.text.clear();
            self.deltas.retain(|delta| !matches!(delta, Delta::Text(_)));
        }
        self.show(&text)?;
        Ok(true)
    }

    fn show(&mut self, text: &str) -> Result<(), InvalidResponse> {
        if !text.is_empty() {
            push(&mut self.text, text)?;
            self.deltas.push_back(Delta::Text(text.into()));
        }
        Ok(())
    }

    /// Adds what the filter has held back, at the end of the text.
    fn end_text(&mut self) {
        if let Some(rest) = self.thoughts.as_mut().map(ThoughtFilter::end) {
            // Short, or part of a text that was within the limit.
            let _ = self.show(&rest);
        }
    }

    /// Adds text of a refusal; ignored after the finish reason.
    pub(crate) fn refusal(&mut self, text: &str) -> Result<(), InvalidResponse> {
        if !text.is_empty() && !self.is_after_finish() {
            push(&mut self.refusal, text)?;
            self.deltas.push_back(Delta::Refusal(text.into()));
        }
        Ok(())
    }

    /// Adds an increment of a tool call. Returns `true` when this is the first with the tool's name.
    pub(crate) fn call(&mut self, delta: ToolCallDelta<'_>) -> bool {
        let is_empty = delta.id.is_empty() && delta.name.is_empty() && delta.arguments.is_empty();
        // Some providers send data of their own, such as signatures, in increments that are otherwise empty.
        if self.is_after_finish() || is_empty && delta.drop_reason.is_none() && delta.state.is_none() {
            return false;
        }
        let is_unmarked = delta.index.is_none() && delta.id.is_empty() && delta.name.is_empty();
        let at = match self.position(delta) {
            // It continues a call that was ignored.
            Some(_) if is_unmarked && self.warnings.contains(&ResponseWarning::CallsIgnored) => return false,
            Some(at) => at,
            // Data of a call that did not begin belongs to none.
            None if is_empty && delta.drop_reason.is_none() => return false,
            None if self.calls.len() == limits::MODEL_CALLS_KEPT => {
                self.warn(ResponseWarning::CallsIgnored);
                return false;
            }
            None => {
                let (index, place) = (delta.index, delta.place);
                self.calls.push(PartialToolCall { index, place, ..PartialToolCall::default() });
                self.calls.len() - 1
            }
        };
        let Some(call) = self.calls.get_mut(at) else { return false };
        call.state.extend(delta.state.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
        if delta.drop_reason.is_some() {
            call.drop_reason = delta.drop_reason;
        }
        let added = delta.arguments.len();
        if call.arguments.len() + added > limits::MODEL_ARGUMENTS
            || self.argument_bytes + added > limits::MODEL_ARGUMENTS_TOTAL
        {
            call.drop_reason.get_or_insert(DropReason::TooLong);
        }
        // The arguments of a call that never runs are not kept.
        if call.drop_reason.is_some() {
            self.argument_bytes -= std::mem::take(&mut call.arguments).len();
        } else {
            call.arguments.push_str(delta.arguments);
            self.argument_bytes += added;
        }
        // Ids and names come as a whole; the first one counts, later ones are repetitions.
        if call.id.is_empty() {
            call.id.push_str(delta.id);
        }
        let named = call.name.is_empty() && !delta.name.is_empty();
        if named {
            call.name.push_str(delta.name);
        }
        if named {
            self.deltas.push_back(Delta::ToolCallStarted { index: at, name: delta.name.into() });
        }
        named
    }

    /// The next delta, except `Done`.
    pub(crate) fn next_delta(&mut self) -> Option<Delta> {
        self.deltas.pop_front()
    }

    /// Whether data comes after the finish reason, which adds a warning.
    fn is_after_finish(&mut self) -> bool {
        self.began = true;
        if self.finish.is_some() {
            self.warn(ResponseWarning::DataAfterEnd);
        }
        self.finish.is_some()
    }

    /// The index of the call that `delta` continues; `None` when it begins a new one.
    fn position(&self, delta: ToolCallDelta<'_>) -> Option<usize> {
        if delta.place.is_some() {
            return self.calls.iter().position(|call| call.place == delta.place);
        }
        // The last call with the index, because some servers give every call the index 0.
        let (at, call) = match delta.index {
            Some(index) => self.calls.iter().enumerate().rfind(|(_, call)| call.index == Some(index))?,
            None if delta.id.is_empty() => self.calls.iter().enumerate().rfind(|(_, call)| call.place.is_none())?,
            None => self.calls.iter().enumerate().rfind(|(_, call)| call.id == delta.id)?,
        };
        let repeats_name = !delta.name.is_empty() && !call.name.is_empty();
        let begins = match delta.index {
            Some(_) if delta.id.is_empty() != call.id.is_empty() => repeats_name && delta.name != call.name,
            Some(_) if !delta.id.is_empty() => repeats_name && delta.id != call.id,
            // Some servers give every call the index 0 and no id.
            Some(_) if delta.arguments.is_empty() => repeats_name && delta.name != call.name,
            _ => repeats_name && (delta.name != call.name || is_json(&call.arguments)),
        };
        (!begins).then_some(at)
    }

    /// Sets the model's finish reason. The first one counts.
    pub(crate) fn finish(&mut self, finish: FinishReason) {
        self.end_text();
        if *self.finish.get_or_insert(finish) != finish {
            self.warn(ResponseWarning::DataAfterEnd);
        }
    }

    /// Adds a warning once.
    pub(crate) fn warn(&mut self, warning: ResponseWarning) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Handles the API's end marker. Without a finish reason it completes text, but never tool calls.
    ///
    /// # Errors
    /// [`InvalidResponse::NoChoices`]: no response began before it.
    pub(crate) fn end_marker(&mut self) -> Result<(), InvalidResponse> {
        if !self.began {
            return Err(InvalidResponse::NoChoices);
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

    /// Sets the usage that the provider reports; impossible counts are ignored.
    pub(crate) fn usage(&mut self, usage: Usage) {
        if usage.input <= MAX_TOKENS && usage.output <= MAX_TOKENS {
            self.usage = Some(usage);
        }
    }

    /// Sets the name of the answering model. The first one counts.
    pub(crate) fn model(&mut self, model: &str) {
        if self.model.is_empty() && !model.is_empty() {
            self.model = model.into();
        }
    }

    /// The data of the provider that belongs to calls of the complete response, with their positions.
    pub(crate) fn take_call_states(&mut self) -> Vec<(usize, Value)> {
        std::mem::take(&mut self.call_states)
    }

    /// The complete response.
    ///
    /// # Errors
    /// [`LlmErrorKind::Truncated`] without a finish reason.
    pub(crate) fn finish_response(&mut self) -> Result<ChatResponse, LlmError> {
        let Some(mut finish) = self.finish else { return Err(LlmErrorKind::Truncated.into()) };
        self.end_text();
        let usage = self.usage.unwrap_or_else(|| self.estimate());
        self.calls.retain(|call| !call.is_none());
        let (mut tool_calls, mut truncated_calls) = (Vec::new(), Vec::new());
        if matches!(finish, FinishReason::Length | FinishReason::ContentFilter) {
            let name = |call: &PartialToolCall| Arc::from(if call.name.is_empty() { UNNAMED_CALL } else { &call.name });
            truncated_calls = self.calls.iter().map(name).collect();
        } else {
            let calls = std::mem::take(&mut self.calls);
            (tool_calls, self.call_states) = complete_calls(calls, self.message_count);
            finish = if tool_calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
        }
        let refusal = std::mem::take(&mut self.refusal);
        Ok(ChatResponse {
            text: std::mem::take(&mut self.text).into(),
            refusal: (!refusal.is_empty()).then(|| refusal.into()),
            tool_calls,
            truncated_calls,
            finish,
            usage,
            model: self.model.clone(),
            reasoning: None,
            routing: None,
            warnings: std::mem::take(&mut self.warnings),
        })
    }

    /// Estimates four bytes per token: within a factor of two for Latin scripts, and never zero for non-empty text.
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

/// Appends text up to [`limits::MODEL_ANSWER`].
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

/// The calls, and the data of the provider that belongs to each of them.
fn complete_calls(partials: Vec<PartialToolCall>, message_count: usize) -> (Vec<ToolCall>, Vec<(usize, Value)>) {
    let mut calls: Vec<ToolCall> = Vec::with_capacity(partials.len());
    let mut states = Vec::new();
    let mut runnable = 0;
    for (position, mut partial) in partials.into_iter().enumerate() {
        let is_unnamed = partial.name.is_empty();
        if is_unnamed {
            partial.name.push_str(UNNAMED_CALL);
        }
        let arguments = match partial.drop_reason.or(is_unnamed.then_some(DropReason::NoName)) {
            Some(reason) => ToolArguments::Dropped { reason },
            None => parse_arguments(&partial.arguments),
        };
        let taken = |calls: &[ToolCall], id: &str| calls.iter().any(|call| *call.id == *id);
        if !partial.id.is_empty() {
            // A call that is sent twice counts once.
            let is_duplicate =
                |call: &ToolCall| *call.id == *partial.id && *call.name == *partial.name && call.arguments == arguments;
            if calls.iter().any(is_duplicate) {
                continue;
            }
        }
        let mut id = partial.id;
        if id.is_empty() || taken(&calls, &id) {
            id = format!("call_{message_count}_{position}");
            while taken(&calls, &id) {
                id.push('_');
            }
        }
        let arguments = match arguments {
            ToolArguments::Dropped { reason } => ToolArguments::Dropped { reason },
            _ if runnable == limits::MODEL_CALLS => ToolArguments::Dropped { reason: DropReason::TooMany },
            arguments => {
                runnable += 1;
                arguments
            }
        };
        if !partial.state.is_empty() {
            states.push((calls.len(), Value::Object(partial.state)));
        }
        calls.push(ToolCall { id: id.into(), name: partial.name.into(), arguments });
    }
    (calls, states)
}

fn parse_arguments(text: &str) -> ToolArguments {
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
