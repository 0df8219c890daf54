//! Replaces the older messages of a long run by one summary message.
//!
//! The text is made of data, without a model call, so that the same state always gives the same summary. The cut is at the start of a
//! turn, never between a call and its result. The [`Summary`] is part of the [`LoopState`]: a resumed run has the same short form, and
//! the next summary continues from it.

use std::{collections::BTreeMap, sync::Arc};

use minijinja::{context, value::Serde};
use segue_engine::text::{ELLIPSIS, TextLimit, single_line, truncate};
use serde::{Deserialize, Serialize};

use super::{interception::ResultStore, state::LoopState};
use crate::{limits, llm::ChatMessage, prompts::PromptSet};

/// Bytes of a shortened result for the mark that says so.
const MARK_BYTES: usize = 80;

/// When a history is compacted, and what stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompactionRules {
    /// Input tokens of a response above which the history is compacted.
    pub(crate) token_limit: u64,
    /// Turns that stay as they are, at least one. A turn is a response with the results of its calls.
    pub(crate) keep_turns: usize,
}

/// What a summary always contains besides the facts of the replaced messages; the agent knows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct KeptFacts {
    /// The assignment; without one, the user message with which the history begins.
    pub(crate) assignment: Option<Arc<str>>,
    /// The plan, one line for each step.
    pub(crate) plan: Vec<String>,
    /// Where the work is: position in a dataset, number of outputs.
    pub(crate) progress: Vec<String>,
    /// Open questions.
    pub(crate) questions: Vec<String>,
    /// What was learned from earlier items.
    pub(crate) learnings: Vec<String>,
    /// Loaded skills.
    pub(crate) skills: Vec<String>,
}

/// What the summary message of a history is made of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Summary {
    /// Messages that it replaces, over all compactions.
    pub(crate) messages: usize,
    /// What the agent wants to keep.
    pub(crate) facts: KeptFacts,
    /// How often each tool was called.
    pub(crate) tools: BTreeMap<Arc<str>, u64>,
    /// The beginnings of the messages to the model.
    pub(crate) received: Texts,
    /// The beginnings of the model's texts.
    pub(crate) answers: Texts,
}

/// The latest of a series of texts, each shortened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Texts {
    /// The latest, oldest first.
    pub(crate) latest: Vec<String>,
    /// How many are left out.
    pub(crate) omitted: usize,
}

impl Texts {
    fn push(&mut self, text: &str) {
        let line = single_line(text.trim());
        if line.is_empty() {
            return;
        }
        self.latest.push(truncate(&line, TextLimit::Chars(limits::SUMMARY_TEXT), ELLIPSIS).into_owned());
        if self.latest.len() > limits::SUMMARY_TEXTS {
            self.latest.remove(0);
            self.omitted += 1;
        }
    }
}

/// A compaction that took place, for traces and events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompactionReport {
    /// Input tokens of the response that caused it.
    pub(crate) input_tokens: u64,
    /// The limit that they exceeded.
    pub(crate) token_limit: u64,
    /// Messages that were replaced.
    pub(crate) messages: usize,
    /// Turns that stayed.
    pub(crate) kept_turns: usize,
}

/// Whether the last response exceeded the limit and some messages can be replaced.
pub(super) fn is_due(state: &LoopState, rules: CompactionRules) -> bool {
    state.last_input_tokens > rules.token_limit && cut(state, rules).is_some()
}

/// The index of the first message that stays.
fn cut(state: &LoopState, rules: CompactionRules) -> Option<usize> {
    // A summary is not replaced alone.
    let start = usize::from(state.summary.is_some());
    cut_before(&state.messages, rules.keep_turns.max(1)).filter(|cut| *cut > start)
}

/// Compacts the history if the last response exceeded the limit. `None` if it did not, or if nothing can be replaced.
pub(crate) fn compact(
    state: &mut LoopState,
    rules: CompactionRules,
    facts: KeptFacts,
    prompts: &PromptSet,
) -> Option<CompactionReport> {
    if state.last_input_tokens <= rules.token_limit {
        return None;
    }
    let keep_turns = rules.keep_turns.max(1);
    let start = usize::from(state.summary.is_some());
    let cut = cut(state, rules)?;
    let kept = state.messages.split_off(cut);
    let replaced = std::mem::replace(&mut state.messages, kept);
    let mut summary = state.summary.take().map_or_else(Summary::default, |summary| *summary);
    let replaced = replaced.get(start..).unwrap_or_default();
    summary.add(replaced, facts);
    let report = CompactionReport {
        input_tokens: state.last_input_tokens,
        token_limit: rules.token_limit,
        messages: replaced.len(),
        kept_turns: keep_turns,
    };
    // The next response measures the shorter history.
    state.last_input_tokens = 0;
    state.messages.insert(0, ChatMessage::user(summary.text(state, prompts)));
    state.summary = Some(Box::new(summary));
    Some(report)
}

/// The index at which the last `keep_turns` turns begin: the cut. `None` if there are not more turns.
fn cut_before(messages: &[Arc<ChatMessage>], keep_turns: usize) -> Option<usize> {
    let mut turns = 0;
    for at in (0..messages.len()).rev() {
        if !is_response(messages.get(at)) {
            continue;
        }
        turns += 1;
        if turns == keep_turns {
            // Messages to the model directly before the response belong to its turn.
            let before = messages.get(..at).unwrap_or_default().iter().rev();
            let leading = before.take_while(|message| is_note(message)).count();
            return Some(at - leading).filter(|cut| *cut > 0 && is_boundary(messages, *cut));
        }
    }
    None
}

fn is_response(message: Option<&Arc<ChatMessage>>) -> bool {
    message.is_some_and(|message| matches!(**message, ChatMessage::Assistant { .. }))
}

fn is_note(message: &ChatMessage) -> bool {
    matches!(message, ChatMessage::User { .. } | ChatMessage::System { .. })
}

/// Whether no call before the cut has its result after it. In a valid history, every start of a turn is such a place.
fn is_boundary(messages: &[Arc<ChatMessage>], cut: usize) -> bool {
    let (before, after) = messages.split_at(cut.min(messages.len()));
    let results = |messages: &[Arc<ChatMessage>], id: &str| {
        messages.iter().filter(|m| matches!(&***m, ChatMessage::Tool { call_id, .. } if **call_id == *id)).count()
    };
    let calls = before.iter().filter_map(|message| match &**message {
        ChatMessage::Assistant { tool_calls, .. } => Some(tool_calls),
        _ => None,
    });
    calls.flatten().all(|call| results(before, &call.id) > 0 || results(after, &call.id) == 0)
}

/// Shortens the tool results of the history after a request that is too long for the model: each to a quarter of the longest at most. With
/// a store, a result becomes a preview with an id; otherwise its middle is left out. `false` if all are short already.
pub(super) async fn shorten_results(state: &mut LoopState, store: Option<&ResultStore>, prompts: &PromptSet) -> bool {
    let lengths = state.messages.iter().filter(|message| matches!(***message, ChatMessage::Tool { .. }));
    let longest = lengths.map(|message| message.text().len()).max().unwrap_or_default();
    let most = (longest / 4).max(limits::RESULT_SHORTENED);
    for message in &mut state.messages {
        let ChatMessage::Tool { call_id, name, text } = &**message else { continue };
        if text.len() <= most {
            continue;
        }
        let preview = match store {
            Some(store) => store.shortened(name, text, most).await,
            None => None,
        };
        let shorter = preview.filter(|preview| preview.len() <= text.len() / 2);
        let text = shorter.unwrap_or_else(|| without_middle(text, most, prompts)).into();
        *message = Arc::new(ChatMessage::Tool { call_id: call_id.clone(), name: name.clone(), text });
    }
    if let Some(store) = store {
        state.results = store.index();
    }
    longest > most
}

/// The beginning and the end of a text: `most` bytes with the mark between them. The end of a preview has the id of the result.
fn without_middle(text: &str, most: usize, prompts: &PromptSet) -> String {
    let room = most.saturating_sub(MARK_BYTES);
    let (head, tail) = (text.floor_char_boundary(room / 2), text.ceil_char_boundary(text.len() - room / 2));
    let (head, tail) = (text.get(..head).unwrap_or_default(), text.get(tail..).unwrap_or_default());
    let (shown, total) = (head.len() + tail.len(), text.len());
    let variables = context! { text => "shortened", head, tail, shown, total };
    // A replaced prompt file that cannot be rendered, or is too long, must not keep the request too long.
    let rendered = prompts.render(&prompts.loop_results, variables).ok().filter(|rendered| rendered.len() <= most);
    rendered.unwrap_or_else(|| head.to_owned())
}

impl Summary {
    /// Adds the facts of replaced messages.
    fn add(&mut self, replaced: &[Arc<ChatMessage>], facts: KeptFacts) {
        let assignment = facts.assignment.clone().or_else(|| self.facts.assignment.clone());
        self.facts = KeptFacts { assignment, ..facts };
        for (at, message) in replaced.iter().enumerate() {
            match &**message {
                ChatMessage::User { text } if self.messages == 0 && at == 0 && self.facts.assignment.is_none() => {
                    self.facts.assignment = Some(text.clone());
                }
                ChatMessage::User { text } if Some(text) == self.facts.assignment.as_ref() => {}
                ChatMessage::User { text } => self.received.push(text),
                ChatMessage::Assistant { text, tool_calls, .. } => {
                    self.answers.push(text);
                    for call in tool_calls {
                        *self.tools.entry(call.name.clone()).or_default() += 1;
                    }
                }
                // Requests of the loop were for the next response; results belong to calls that are replaced too.
                ChatMessage::System { .. } | ChatMessage::Tool { .. } => {}
            }
        }
        self.messages += replaced.len();
    }

    /// The message for the model.
    fn text(&self, state: &LoopState, prompts: &PromptSet) -> String {
        let tools: Vec<_> = self.tools.iter().map(|(name, count)| context! { name => &**name, count }).collect();
        let facts = &self.facts;
        let variables = context! {
            messages => self.messages,
            assignment => facts.assignment.as_deref().unwrap_or_default(),
            plan => &facts.plan,
            progress => &facts.progress,
            questions => &facts.questions,
            learnings => &facts.learnings,
            skills => &facts.skills,
            tools,
            results => Serde(state.results.latest(limits::SUMMARY_TEXTS)),
            received => &self.received.latest,
            received_omitted => self.received.omitted,
            answers => &self.answers.latest,
            answers_omitted => self.answers.omitted,
        };
        match prompts.render(&prompts.loop_summary, variables) {
            Ok(text) => text.trim().to_owned(),
            // A replaced prompt file that cannot be rendered must not lose the assignment.
            Err(_) => facts.assignment.as_deref().unwrap_or_default().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
