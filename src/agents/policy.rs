//! The tool policy: whether a tool call may run, by the `tools` rules of the agent's configuration (`requires`, `max_calls`,
//! `confirm`).
//!
//! A decision depends only on these rules, on slots, and on the user's reply to calls that were shown for confirmation. Nothing that a
//! model, a tool or a document says can change it. Its state between turns is metadata of the agent's frame, so it survives a restart
//! of the process.

use std::{collections::BTreeMap, sync::Arc};

use minijinja::context;
use segue_engine::{
    condition::Condition,
    conversation::{UNCONFIRMED_CALLS_KEY, UnconfirmedCall},
    project::AgentRules,
};
use serde_json::{Map, Value as Json, json};

use super::slots::RunSlots;
use crate::{limits, llm::ToolCall, prompts::PromptSet, react::GuardDecision, tools::EffectClass};

/// The key of the frame's metadata for counted calls.
const CALLS: &str = "tool_calls";
/// The key of the frame's metadata for tools that succeeded and changed something.
const EFFECTS: &str = "tool_effects";

/// The rules of one agent and their state. In conversations a call that needs a confirmation waits for the user; in missions the caller
/// asks a person and passes the answer.
pub(crate) struct ToolPolicy<'a> {
    rules: &'a AgentRules,
    unconfirmed: Vec<UnconfirmedCall>,
    calls: BTreeMap<Arc<str>, u32>,
    effects: Vec<Arc<str>>,
}

impl<'a> ToolPolicy<'a> {
    /// The policy of an agent, with the state of its task so far: that of [`metadata`](Self::metadata).
    pub(crate) fn new(rules: &'a AgentRules, metadata: &Map<String, Json>) -> Self {
        let read = |key: &str| metadata.get(key).cloned();
        Self {
            rules,
            unconfirmed: Vec::new(),
            calls: read(CALLS).and_then(|kept| serde_json::from_value(kept).ok()).unwrap_or_default(),
            effects: read(EFFECTS).and_then(|kept| serde_json::from_value(kept).ok()).unwrap_or_default(),
        }
    }

    /// Decides whether a call may run. `confirmed`: the user was shown exactly this call and confirmed it.
    pub(super) fn decide(
        &mut self,
        call: &ToolCall,
        effect: EffectClass,
        confirmed: bool,
        slots: &RunSlots<'_>,
        prompts: &PromptSet,
    ) -> GuardDecision {
        if let Some(rejection) = self.rejection(&call.name, |condition| slots.is_true(condition)) {
            return GuardDecision::Refuse(rejection.text(prompts));
        }
        let changes = effect.changes().is_some();
        let asks = !confirmed && self.must_confirm(&call.name, effect);
        // An earlier call waits, and effects must happen in the order in which the model wrote the calls.
        if !asks && changes && !self.unconfirmed.is_empty() {
            return GuardDecision::Refuse(text_for_model(prompts, context! { outcome => "behind" }));
        }
        if asks {
            let arguments = call.arguments.as_json().cloned().unwrap_or(Json::Null);
            self.unconfirmed.push(UnconfirmedCall { tool: call.name.clone(), arguments });
            return GuardDecision::AwaitConfirmation(text_for_model(prompts, context! { outcome => "held" }));
        }
        self.count(&call.name);
        GuardDecision::Allow
    }

    /// Why a call may not run, whatever a person says: its condition is false, or it was made as often as is allowed.
    pub(crate) fn rejection(&self, tool: &str, is_true: impl Fn(&Condition) -> bool) -> Option<Rejection> {
        let rule = self.rules.tool(tool)?;
        if let Some(condition) = rule.requires.as_ref().filter(|condition| !is_true(condition)) {
            let reason = rule.refusal.as_deref().unwrap_or_else(|| condition.text());
            return Some(Rejection::Requires(reason.to_owned()));
        }
        let made = self.calls.get(tool).copied().unwrap_or(0);
        rule.max_calls.filter(|most| made >= *most).map(Rejection::Capped)
    }
    /// Whether a person must confirm a call. The steps of a composite call are decided one by one.
    pub(crate) fn must_confirm(&self, tool: &str, effect: EffectClass) -> bool {
        self.rules.must_confirm(tool, effect.changes().is_some())
    }
    /// Counts a call that will be sent.
    pub(crate) fn count(&mut self, tool: &Arc<str>) {
        if self.rules.tool(tool).is_some_and(|rule| rule.max_calls.is_some()) {
            *self.calls.entry(tool.clone()).or_default() += 1;
        }
    }

    /// Records that a tool succeeded, if it changes something.
    pub(super) fn record_effect(&mut self, tool: &Arc<str>, effect: EffectClass) {
        if effect != EffectClass::Read && !self.effects.contains(tool) {
            self.effects.push(tool.clone());
        }
    }
    /// The tools that succeeded in this task and changed something.
    pub(super) fn effects(&self) -> &[Arc<str>] {
        &self.effects
    }
    /// Counts calls that earlier attempts of the same work have made, which changed something or may have.
    pub(crate) fn count_earlier<'w>(&mut self, tools: impl IntoIterator<Item = &'w Arc<str>>) {
        tools.into_iter().for_each(|tool| self.count(tool));
    }
    /// Whether calls wait for the user's confirmation.
    pub(super) fn awaits_confirmation(&self) -> bool {
        !self.unconfirmed.is_empty()
    }
    /// The metadata of the frame for the next turn of this task.
    pub(crate) fn metadata(&self) -> Map<String, Json> {
        let mut metadata = Map::new();
        if !self.unconfirmed.is_empty() {
            metadata.insert(UNCONFIRMED_CALLS_KEY.to_owned(), json!(self.unconfirmed));
        }
        if !self.calls.is_empty() {
            metadata.insert(CALLS.to_owned(), json!(self.calls));
        }
        if !self.effects.is_empty() {
            metadata.insert(EFFECTS.to_owned(), json!(self.effects));
        }
        metadata
    }
    /// Whether a key of the frame's metadata belongs to the policy.
    pub(super) fn is_own_key(key: &str) -> bool {
        [UNCONFIRMED_CALLS_KEY, CALLS, EFFECTS].contains(&key)
    }
}

/// Why a call may not run, whatever a person says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// Its condition is false: the text of the author, or the condition.
    Requires(String),
    /// It was made as often as is allowed.
    Capped(u32),
}

impl Rejection {
    /// The text for the model.
    pub(crate) fn text(&self, prompts: &PromptSet) -> String {
        text_for_model(
            prompts,
            match self {
                Self::Requires(reason) => context! { outcome => "requires", reason },
                Self::Capped(most) => context! { outcome => "capped", most },
            },
        )
    }
}

/// The text for the model about calls that reached no tool.
pub(crate) fn text_for_model(prompts: &PromptSet, variables: minijinja::Value) -> String {
    prompts.render(&prompts.agent_gate, variables).unwrap_or_default().trim().to_owned()
}

/// The origins of the values of a call, by path: `user`, `shown` (a text the user saw), `tool` (the result of a tool or a document),
/// or `model`. A value found in several places has the least trusted origin. Only the first [`limits::AGENT_ORIGINS`] values are
/// searched.
pub(super) fn origins<'m>(
    arguments: &Json,
    messages: impl Iterator<Item = &'m crate::llm::ChatMessage>,
) -> BTreeMap<String, String> {
    let messages: Vec<_> = messages.map(|message| (message, message.text().to_lowercase())).collect();
    let mut origins = BTreeMap::new();
    for_each_leaf(arguments, String::new(), &mut |path, text| {
        if origins.len() < limits::AGENT_ORIGINS {
            origins.insert(path, origin(&text, &messages).to_owned());
        }
    });
    origins
}

/// `messages` contain each message with its text in lower case.
fn origin(text: &str, messages: &[(&crate::llm::ChatMessage, String)]) -> &'static str {
    use crate::llm::ChatMessage;
    let needle = text.trim().to_lowercase();
    let mut found = "model";
    for (message, lower) in messages {
        if needle.is_empty() || !lower.contains(&needle) {
            continue;
        }
        match message {
            ChatMessage::Tool { .. } => return "tool",
            ChatMessage::User { .. } => found = "user",
            ChatMessage::Assistant { .. } if found == "model" => found = "shown",
            ChatMessage::Assistant { .. } | ChatMessage::System { .. } => {}
        }
    }
    found
}

fn for_each_leaf(value: &Json, path: String, take: &mut dyn FnMut(String, String)) {
    let below = |part: &str| if path.is_empty() { part.to_owned() } else { format!("{path}.{part}") };
    match value {
        Json::Object(map) => map.iter().for_each(|(name, value)| for_each_leaf(value, below(name), take)),
        Json::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| for_each_leaf(item, below(&at.to_string()), take))
        }
        Json::String(text) => take(path, text.clone()),
        Json::Number(number) => take(path, number.to_string()),
        Json::Bool(_) | Json::Null => {}
    }
}
