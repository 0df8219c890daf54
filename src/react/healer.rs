//! Makes a damaged or truncated message history valid for providers that check it.
//!
//! A crash can store a response without the results of its calls, and a lost write can remove any message. Providers then refuse
//! every further request (<https://github.com/letta-ai/letta/issues/3250>). [`heal`] restores the rules that all of them share:
//! each tool call has exactly one result, directly after its response and in the order of the calls; there is no result without a
//! call; no call id is used twice; and no two assistant messages follow each other. A valid history stays unchanged.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use minijinja::context;

use crate::{
    llm::{ChatMessage, ToolCall, message::ReasoningBlocks},
    prompts::PromptSet,
};

/// What became of a call without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallFate {
    /// It was running; whether it had its effect is unknown.
    Interrupted,
    /// It was never started.
    Queued,
}

impl CallFate {
    /// The name in the prompt file and in error codes.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Interrupted => "interrupted",
            Self::Queued => "queued",
        }
    }

    /// The result that tells the model about it.
    pub(crate) fn result(self, call: &ToolCall, prompts: &PromptSet) -> Arc<ChatMessage> {
        let variables = context! { fate => self.as_str(), tool => &*call.name };
        let text = prompts.render(&prompts.loop_healing, variables);
        ChatMessage::tool(call, text.map_or_else(|_| format!("error: tool.{}", self.as_str()), |t| t.trim().to_owned()))
    }
}

/// The same history, valid. `fate` says what became of each call without a result.
pub(crate) fn heal(
    messages: &[Arc<ChatMessage>],
    prompts: &PromptSet,
    fate: &dyn Fn(&ToolCall) -> CallFate,
) -> Vec<Arc<ChatMessage>> {
    let results = Results::of(messages);
    let mut healed: Vec<Arc<ChatMessage>> = Vec::with_capacity(messages.len());
    let mut used: HashSet<Arc<str>> = HashSet::new();
    for (at, message) in messages.iter().enumerate() {
        let ChatMessage::Assistant { text, tool_calls, reasoning } = &**message else {
            if !matches!(**message, ChatMessage::Tool { .. }) {
                healed.push(message.clone());
            }
            continue;
        };
        if tool_calls.is_empty() && text.trim().is_empty() || results.is_repeated(at) {
            continue;
        }
        let calls: Vec<ToolCall> = tool_calls.iter().map(|call| with_unused_id(call, &mut used)).collect();
        let response = match calls == *tool_calls {
            true => message.clone(),
            false => Arc::new(ChatMessage::Assistant {
                text: text.clone(),
                tool_calls: calls.clone(),
                reasoning: reasoning.clone(),
            }),
        };
        push_response(&mut healed, response);
        for (position, (stored, call)) in tool_calls.iter().zip(&calls).enumerate() {
            healed.push(match results.of_call(at, position) {
                Some(result) if stored.id == call.id => result.clone(),
                Some(result) => ChatMessage::tool(call, result.text()),
                None => fate(call).result(call, prompts),
            });
        }
    }
    healed
}

/// Which result belongs to which call of a history.
struct Results<'a> {
    messages: &'a [Arc<ChatMessage>],
    /// By the index of the response and the position of the call.
    of_call: HashMap<(usize, usize), usize>,
}

impl<'a> Results<'a> {
    fn of(messages: &'a [Arc<ChatMessage>]) -> Self {
        let mut results = Self { messages, of_call: HashMap::new() };
        let mut calls: HashMap<&str, Vec<(usize, usize)>> = HashMap::new();
        let mut answers: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, message) in messages.iter().enumerate() {
            match &**message {
                ChatMessage::Assistant { tool_calls, .. } if !results.is_repeated(at) => {
                    for (position, call) in tool_calls.iter().enumerate() {
                        calls.entry(&call.id).or_default().push((at, position));
                    }
                }
                ChatMessage::Tool { call_id, .. } => answers.entry(call_id).or_default().push(at),
                _ => {}
            }
        }
        for (id, places) in calls {
            let mut free = answers.remove(id).unwrap_or_default();
            // Calls with one id: each takes the first result between its response and the next one with this id.
            for (at, position) in &places {
                let until = places.iter().map(|(next, _)| *next).find(|next| next > at).unwrap_or(usize::MAX);
                let found = free.iter().position(|answer| (*at..until).contains(answer));
                // A result before its only call was stored in the wrong order.
                let found = found.or_else(|| (places.len() == 1 && !free.is_empty()).then_some(0));
                if let Some(found) = found {
                    results.of_call.insert((*at, *position), free.remove(found));
                }
            }
        }
        results
    }

    fn of_call(&self, at: usize, position: usize) -> Option<&'a Arc<ChatMessage>> {
        self.of_call.get(&(at, position)).and_then(|answer| self.messages.get(*answer))
    }

    /// Whether the message is the same response as the one before it, stored twice.
    fn is_repeated(&self, at: usize) -> bool {
        let before = at.checked_sub(1).and_then(|before| self.messages.get(before));
        match (before.map(|before| &**before), self.messages.get(at).map(|message| &**message)) {
            (Some(before), Some(message @ ChatMessage::Assistant { tool_calls, .. })) => {
                !tool_calls.is_empty() && before == message
            }
            _ => false,
        }
    }
}

/// The call, with another id if an earlier call has this one.
fn with_unused_id(call: &ToolCall, used: &mut HashSet<Arc<str>>) -> ToolCall {
    let mut id = call.id.clone();
    let mut number = 2_usize;
    while !used.insert(id.clone()) {
        id = format!("{}_{number}", call.id).into();
        number += 1;
    }
    ToolCall { id, ..call.clone() }
}

/// Adds a response. Two responses in a row become one message.
fn push_response(healed: &mut Vec<Arc<ChatMessage>>, response: Arc<ChatMessage>) {
    let merged = healed.last().and_then(|last| merged(last, &response));
    match (merged, healed.last_mut()) {
        (Some(merged), Some(last)) => *last = merged,
        _ => healed.push(response),
    }
}

/// One message for two responses; `None` if the first message is not a response.
fn merged(first: &ChatMessage, second: &ChatMessage) -> Option<Arc<ChatMessage>> {
    let (ChatMessage::Assistant { text, .. }, ChatMessage::Assistant { text: more, tool_calls, reasoning }) =
        (first, second)
    else {
        return None;
    };
    let has_more = !more.trim().is_empty();
    let joined: Arc<str> = if has_more { format!("{text}\n\n{more}").into() } else { text.clone() };
    // The text counts as one part before the calls.
    let shift = usize::from(!has_more);
    let reasoning = reasoning.as_deref().map(|reasoning| {
        let mut blocks = reasoning.blocks.clone();
        for block in &mut blocks {
            block.after += if block.after > 0 { shift } else { 0 };
        }
        Arc::new(ReasoningBlocks { model: reasoning.model.clone(), blocks })
    });
    Some(Arc::new(ChatMessage::Assistant { text: joined, tool_calls: tool_calls.clone(), reasoning }))
}

#[cfg(test)]
pub(super) mod tests;
