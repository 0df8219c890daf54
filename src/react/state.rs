//! The state of a loop between model calls.

use std::{collections::BTreeMap, sync::Arc};

use segue_engine::conversation::ModelUsage;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::{
    compaction::Summary,
    guards::Cap,
    healer::{self, CallFate},
    interception::ResultIndex,
    skills::LoadedSkills,
};
use crate::{
    llm::{ChatMessage, ToolCall},
    prompts::PromptSet,
};

/// All that a run keeps while it waits: readable JSON, from which another process can continue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LoopState {
    /// The messages that the run added: model responses with calls, one result for each call, and requests of the loop.
    pub(crate) messages: Vec<Arc<ChatMessage>>,
    /// Model calls so far.
    pub(crate) model_calls: u32,
    /// Whether the task is done and only the closing message is missing.
    pub(crate) closing: bool,
    /// A raised token limit, after a response that was truncated within a call.
    pub(crate) max_tokens: Option<u32>,
    /// Whether the token limit was raised.
    pub(crate) is_limit_raised: bool,
    /// How often the model was asked to correct a claim.
    pub(crate) grounding_retries: u32,
    /// Consecutive responses without the tool call that the profile demands.
    pub(crate) corrections: u32,
    /// Empty responses.
    pub(crate) empty_answers: u32,
    /// Consecutive responses whose calls all failed.
    pub(crate) failed_answers: u32,
    /// Tokens and cost of the responses so far.
    pub(crate) usage: ModelUsage,
    /// Input tokens of the last response; 0 after a compaction.
    pub(crate) last_input_tokens: u64,
    /// What the first message summarises, if the history was compacted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) summary: Option<Box<Summary>>,
    /// The long results that are stored for the tools that read them.
    #[serde(skip_serializing_if = "ResultIndex::is_empty")]
    pub(crate) results: ResultIndex,
    /// The skills that were loaded.
    #[serde(skip_serializing_if = "LoadedSkills::is_empty")]
    pub(crate) skills: LoadedSkills,
    /// The limit that was reached: no more tools are offered, and the model is asked for its answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) capped: Option<Cap>,
    /// The state of the guards, by their names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) guards: BTreeMap<String, Json>,
}

impl LoopState {
    /// Begins another run in the same session, with this message: limits and guards start again; messages, long results and what was
    /// summarised stay.
    pub(crate) fn begin_run(&mut self, message: Arc<ChatMessage>) {
        *self = Self {
            messages: std::mem::take(&mut self.messages),
            usage: self.usage,
            last_input_tokens: self.last_input_tokens,
            summary: self.summary.take(),
            results: std::mem::take(&mut self.results),
            skills: std::mem::take(&mut self.skills),
            ..Self::default()
        };
        self.messages.push(message);
    }

    /// Makes the messages of a stored state valid. `fate` says what became of each call without a result.
    pub(crate) fn heal(&mut self, prompts: &PromptSet, fate: &dyn Fn(&ToolCall) -> CallFate) {
        self.messages = healer::heal(&self.messages, prompts, fate);
    }
    /// The last text of the model since the last message to it, for runs that end without an answer.
    pub(crate) fn last_text(&self) -> Option<&str> {
        let run = self.messages.iter().rev().take_while(|message| !matches!(***message, ChatMessage::User { .. }));
        let texts = run.filter(|message| matches!(***message, ChatMessage::Assistant { .. }));
        texts.map(|message| message.text().trim()).find(|text| !text.is_empty())
    }
}
