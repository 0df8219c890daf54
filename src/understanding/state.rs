//! Renders flows, state and history for the built-in prompt: compact JSON, and one line per utterance. Text of users and of
//! documents is quoted, so that it cannot add lines to the prompt.

use std::fmt::Write as _;

use segue_engine::{
    conversation::{BotKind, HistoryItem},
    project::{Collect, SlotDef},
    text::{ELLIPSIS, TextLimit, single_line, strip_hidden, truncate},
};
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::Value as Json;

use super::context::{GeneratorContext, OpenQuestion, allowed_values, is_for_models};
use crate::limits;

/// The shown flows, one JSON object per line. The text depends on the project and the set of flows only, so that it stays the
/// same from turn to turn. A slot with `ask_before_filling` is therefore not in it, but in [`state`] while it may be filled.
pub(super) fn flows(context: &GeneratorContext<'_>) -> String {
    let mut out = String::new();
    for flow in &context.shown {
        let slots = Slots {
            context,
            collects: context.collects(flow, |collect| !collect.ask_before_filling && fillable(context, collect)),
            values: false,
        };
        let agents = context.agents_of(flow);
        let agents: Vec<_> = agents
            .into_iter()
            .map(|name| AgentShown { name: name.as_str(), description: context.agent_description(name) })
            .collect();
        let shown = FlowShown { flow: flow.id.as_str(), description: &flow.description, slots, agents };
        line(&mut out, &shown);
    }
    out.truncate(out.trim_end().len());
    out
}

/// The state as one JSON object, a key per line.
pub(super) fn state(context: &GeneratorContext<'_>) -> String {
    let mut out = String::with_capacity(512);
    let current = context.current_flow();
    out.push_str("{\"active_flow\": ");
    json(&mut out, &current.map(|id| id.as_str()));
    out.push_str(",\n\"open_question\": ");
    json(&mut out, &context.open_question.map(|open_question| QuestionShown { context, open_question }));
    let open_question = context.open_question.map(|open_question| open_question.slot.as_str());
    let collects = current.and_then(|id| context.project.flow(id.as_str())).map(|flow| {
        context.collects(flow, |collect| {
            let open = open_question == Some(collect.slot.as_str());
            !open && context.is_extractable(collect) && fillable(context, collect)
        })
    });
    out.push_str(",\n\"slots\": ");
    json(&mut out, &Slots { context, collects: collects.unwrap_or_default(), values: true });
    if let Some(name) = context.active_agent() {
        out.push_str(",\n\"active_agent\": ");
        json(&mut out, &AgentShown { name: name.as_str(), description: context.agent_description(name) });
    }
    let completed: Vec<&str> = context.completed_agents().map(|name| name.as_str()).collect();
    if !completed.is_empty() {
        out.push_str(",\n\"completed_agents\": ");
        json(&mut out, &completed);
    }
    out.push('}');
    out
}

/// The latest utterances as lines `USER: …` and `AI: …`, oldest first, including the newest message. Every utterance is on
/// one line, whatever it contains.
pub(super) fn history(context: &GeneratorContext<'_>) -> String {
    let mut shown: Vec<(&str, &str)> = Vec::with_capacity(limits::COMMAND_HISTORY);
    for item in context.conversation.history.iter().rev() {
        match item {
            HistoryItem::User { text, .. } => shown.push(("USER: ", text)),
            HistoryItem::Bot { text, kind, .. } if *kind != BotKind::Intermediate => shown.push(("AI: ", text)),
            _ => {}
        }
        if shown.len() == limits::COMMAND_HISTORY {
            break;
        }
    }
    let mut out =
        String::with_capacity(shown.iter().map(|(_, text)| text.len().min(limits::COMMAND_UTTERANCE) + 8).sum());
    for (who, text) in shown.into_iter().rev() {
        if !out.is_empty() {
            out.push('\n');
        }
        let text = truncate(text, TextLimit::Chars(limits::COMMAND_UTTERANCE), ELLIPSIS);
        out.push_str(who);
        out.push_str(&one_line(&text));
    }
    out
}

/// A text on one line, without invisible characters.
pub(super) fn one_line(text: &str) -> std::borrow::Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text.into(); // fast path: printable ASCII needs no change
    }
    match strip_hidden(text) {
        std::borrow::Cow::Borrowed(text) => single_line(text),
        std::borrow::Cow::Owned(text) => single_line(&text).into_owned().into(),
    }
}

fn fillable(context: &GeneratorContext<'_>, collect: &Collect) -> bool {
    context.project.slot(collect.slot.as_str()).is_none_or(is_for_models)
}

#[derive(Serialize)]
struct FlowShown<'a> {
    flow: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "Slots::is_empty")]
    slots: Slots<'a>,
    #[serde(rename = "sub-agents", skip_serializing_if = "Vec::is_empty")]
    agents: Vec<AgentShown<'a>>,
}

#[derive(Serialize)]
struct AgentShown<'a> {
    name: &'a str,
    description: &'a str,
}

/// Slots as a JSON object, keyed by name.
struct Slots<'a> {
    context: &'a GeneratorContext<'a>,
    collects: Vec<&'a Collect>,
    values: bool,
}

impl Slots<'_> {
    fn is_empty(&self) -> bool {
        self.collects.is_empty()
    }
}

impl Serialize for Slots<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.collects.len()))?;
        for collect in &self.collects {
            let name = collect.slot.as_str();
            let slot = Slot {
                definition: self.context.project.slot(name),
                description: collect.description.as_deref(),
                value: self.values.then(|| self.context.value(name)),
            };
            map.serialize_entry(name, &slot)?;
        }
        map.end()
    }
}

/// One slot: its value, type, allowed values and description.
struct Slot<'a> {
    definition: Option<&'a SlotDef>,
    description: Option<&'a str>,
    value: Option<&'a Json>,
}

impl Slot<'_> {
    fn entries<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        if let Some(value) = self.value {
            map.serialize_entry("value", &shortened(value))?;
        }
        if let Some(definition) = self.definition {
            map.serialize_entry("type", definition.kind.name())?;
            if let Some(values) = allowed_values(&definition.kind) {
                map.serialize_entry("allowed_values", &values)?;
            }
        }
        match self.description {
            Some(description) => map.serialize_entry("description", description),
            None => Ok(()),
        }
    }
}

impl Serialize for Slot<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.entries(&mut map)?;
        map.end()
    }
}

/// The open question as a JSON object.
struct QuestionShown<'a> {
    context: &'a GeneratorContext<'a>,
    open_question: OpenQuestion<'a>,
}

impl Serialize for QuestionShown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = self.open_question.slot.as_str();
        let value = self.context.value(name);
        let slot = Slot {
            definition: self.context.project.slot(name),
            description: self.open_question.collect.and_then(|collect| collect.description.as_deref()),
            value: (!value.is_null()).then_some(value),
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("slot", name)?;
        slot.entries(&mut map)?;
        map.end()
    }
}

/// A value that fits into a prompt: long values are truncated, and then always strings.
fn shortened(value: &Json) -> std::borrow::Cow<'_, Json> {
    let cut = |text: &str| Json::from(&*truncate(text, TextLimit::Bytes(limits::COMMAND_VALUE), ELLIPSIS));
    match value {
        Json::String(text) if text.len() > limits::COMMAND_VALUE => std::borrow::Cow::Owned(cut(text)),
        Json::Array(_) | Json::Object(_) => {
            let text = value.to_string();
            if text.len() > limits::COMMAND_VALUE {
                std::borrow::Cow::Owned(cut(&text))
            } else {
                std::borrow::Cow::Borrowed(value)
            }
        }
        _ => std::borrow::Cow::Borrowed(value),
    }
}

fn json(out: &mut String, value: &impl Serialize) {
    // Strings and JSON values always serialise; `null` is only a fallback.
    match serde_json::to_string(value) {
        Ok(text) => out.push_str(&text),
        Err(_) => out.push_str("null"),
    }
}

fn line(out: &mut String, value: &impl Serialize) {
    json(out, value);
    let _ = writeln!(out);
}
