//! What stands between a call that a model wants and the tool: what must hold, how often, and whether the user was asked.
//!
//! Nothing a model, a tool or a document says gets past it: it looks at the author's rules, at slots, and at what the user
//! said to calls that were shown to them. What it remembers between turns stands in the agent's frame, so it survives a
//! restart of the process.

use std::{collections::BTreeMap, sync::Arc};

use minijinja::context;
use segue_engine::{
    conversation::{UNCONFIRMED_CALLS_KEY, UnconfirmedCall},
    project::AgentRules,
};
use serde_json::{Map, Value as Json, json};

use super::{AgentRequest, slots::RunSlots};
use crate::{limits, llm::ToolCall, prompts::PromptSet, tools::EffectClass};

/// The key of the frame's metadata for counted calls.
const CALLS: &str = "tool_calls";
/// The key of the frame's metadata for tools that worked and changed something.
const EFFECTS: &str = "tool_effects";

/// What the gate says to one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It may run.
    Pass,
    /// It may not; what the model is told.
    Refused(String),
    /// The user must be asked first.
    Held,
    /// It comes after one that is held, and the order of effects is the order in which the model wrote them.
    Behind,
}

/// The rules of one agent at work.
pub(super) struct Gate<'a> {
    rules: &'a AgentRules,
    held: Vec<UnconfirmedCall>,
    calls: BTreeMap<Arc<str>, u32>,
    effects: Vec<Arc<str>>,
}

impl<'a> Gate<'a> {
    /// With what the earlier turns of this task left.
    pub(super) fn open(task: &AgentRequest<'a>) -> Self {
        let metadata = &task.call.metadata;
        let read = |key: &str| metadata.get(key).cloned();
        Self {
            rules: &task.definition.rules,
            held: Vec::new(),
            calls: read(CALLS).and_then(|kept| serde_json::from_value(kept).ok()).unwrap_or_default(),
            effects: read(EFFECTS).and_then(|kept| serde_json::from_value(kept).ok()).unwrap_or_default(),
        }
    }

    /// What may be done about a call. `confirmed` says that the user was shown this very call and said yes.
    pub(super) fn judge(
        &mut self,
        call: &ToolCall,
        effect: EffectClass,
        confirmed: bool,
        slots: &RunSlots<'_>,
        prompts: &PromptSet,
    ) -> Verdict {
        let changes = effect != EffectClass::Read;
        if let Some(rule) = self.rules.tool(&call.name) {
            if let Some(condition) = rule.requires.as_ref().filter(|condition| !slots.holds(condition)) {
                let reason = rule.refusal.as_deref().unwrap_or_else(|| condition.text());
                return Verdict::Refused(words(prompts, context! { outcome => "requires", reason }));
            }
            let made = self.calls.get(&call.name).copied().unwrap_or(0);
            if let Some(most) = rule.max_calls.filter(|most| made >= *most) {
                return Verdict::Refused(words(prompts, context! { outcome => "capped", most }));
            }
        }
        let asks = !confirmed && self.rules.must_confirm(&call.name, changes);
        if !asks && changes && !self.held.is_empty() {
            return Verdict::Behind;
        }
        if asks {
            let arguments = call.arguments.as_json().cloned().unwrap_or(Json::Null);
            self.held.push(UnconfirmedCall { tool: call.name.clone(), arguments });
            return Verdict::Held;
        }
        if self.rules.tool(&call.name).is_some_and(|rule| rule.max_calls.is_some()) {
            *self.calls.entry(call.name.clone()).or_default() += 1;
        }
        Verdict::Pass
    }

    /// A tool worked that changes something.
    pub(super) fn worked(&mut self, tool: &Arc<str>, effect: EffectClass) {
        if effect != EffectClass::Read && !self.effects.contains(tool) {
            self.effects.push(tool.clone());
        }
    }
    /// The tools that worked in this task and changed something.
    pub(super) fn effects(&self) -> &[Arc<str>] {
        &self.effects
    }
    /// Whether calls wait for the user.
    pub(super) fn holds(&self) -> bool {
        !self.held.is_empty()
    }
    /// What the frame keeps for the next turn of this task.
    pub(super) fn metadata(&self) -> Map<String, Json> {
        let mut metadata = Map::new();
        if !self.held.is_empty() {
            metadata.insert(UNCONFIRMED_CALLS_KEY.to_owned(), json!(self.held));
        }
        if !self.calls.is_empty() {
            metadata.insert(CALLS.to_owned(), json!(self.calls));
        }
        if !self.effects.is_empty() {
            metadata.insert(EFFECTS.to_owned(), json!(self.effects));
        }
        metadata
    }
    /// Whether a key of the frame's metadata is the gate's own.
    pub(super) fn is_own(key: &str) -> bool {
        [UNCONFIRMED_CALLS_KEY, CALLS, EFFECTS].contains(&key)
    }
}

/// What the model is told of calls that reached no tool.
pub(super) fn words(prompts: &PromptSet, variables: minijinja::Value) -> String {
    prompts.render(&prompts.agent_gate, variables).unwrap_or_default().trim().to_owned()
}

/// Where the values of a call come from, by path: `user`, `shown` (a text the user saw), `tool` (what a tool or a document
/// said), or `model`. The most doubtful place counts where a value stands in several. Of more than [`limits::AGENT_ORIGINS`]
/// values the rest are not looked for.
pub(super) fn origins<'m>(
    arguments: &Json,
    messages: impl Iterator<Item = &'m crate::llm::ChatMessage>,
) -> BTreeMap<String, String> {
    let messages: Vec<_> = messages.map(|message| (message, message.text().to_lowercase())).collect();
    let mut origins = BTreeMap::new();
    leaves(arguments, String::new(), &mut |path, text| {
        if origins.len() < limits::AGENT_ORIGINS {
            origins.insert(path, origin(&text, &messages).to_owned());
        }
    });
    origins
}

/// `messages` come with their texts in lower case.
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

fn leaves(value: &Json, path: String, take: &mut dyn FnMut(String, String)) {
    let below = |part: &str| if path.is_empty() { part.to_owned() } else { format!("{path}.{part}") };
    match value {
        Json::Object(map) => map.iter().for_each(|(name, value)| leaves(value, below(name), take)),
        Json::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| leaves(item, below(&at.to_string()), take))
        }
        Json::String(text) => take(path, text.clone()),
        Json::Number(number) => take(path, number.to_string()),
        Json::Bool(_) | Json::Null => {}
    }
}
