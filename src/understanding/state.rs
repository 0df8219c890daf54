//! What the model is shown of flows, state and history: compact JSON and lines, in which texts of others are quoted data.

use std::fmt::Write as _;

use segue_engine::{
    conversation::{BotKind, HistoryItem},
    project::{Collect, SlotDef},
    text::{ELLIPSIS, TextLimit, single_line, strip_hidden, truncate},
};
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::Value as Json;

use super::view::{Asked, View, allowed_values, is_for_models};
use crate::limits;

/// The flows that are shown, one JSON object per line. Depends on the project and the set of flows alone, so that the
/// text stays the same from turn to turn: a slot that is only filled when asked for is left to the state.
pub(super) fn flows(view: &View<'_>) -> String {
    let mut out = String::new();
    for flow in &view.shown {
        let slots = Slots {
            view,
            collects: view.collects(flow, |collect| !collect.ask_before_filling && fillable(view, collect)),
            values: false,
        };
        let agents = view.agents_of(flow);
        let agents: Vec<_> = agents
            .into_iter()
            .map(|name| AgentShown { name: name.as_str(), description: view.agent_description(name) })
            .collect();
        let shown = FlowShown { flow: flow.id.as_str(), description: &flow.description, slots, agents };
        line(&mut out, &shown);
    }
    out.truncate(out.trim_end().len());
    out
}

/// The state as one JSON object, a key per line.
pub(super) fn state(view: &View<'_>) -> String {
    let mut out = String::with_capacity(512);
    let current = view.current_flow();
    out.push_str("{\"active_flow\": ");
    json(&mut out, &current.map(|id| id.as_str()));
    out.push_str(",\n\"open_question\": ");
    json(&mut out, &view.asked.map(|asked| Question { view, asked }));
    let asked = view.asked.map(|asked| asked.slot.as_str());
    let collects = current.and_then(|id| view.project.flow(id.as_str())).map(|flow| {
        view.collects(flow, |collect| {
            let open = asked == Some(collect.slot.as_str());
            !open && view.is_extractable(collect) && fillable(view, collect)
        })
    });
    out.push_str(",\n\"slots\": ");
    json(&mut out, &Slots { view, collects: collects.unwrap_or_default(), values: true });
    if let Some(name) = view.active_agent() {
        out.push_str(",\n\"active_agent\": ");
        json(&mut out, &AgentShown { name: name.as_str(), description: view.agent_description(name) });
    }
    let completed: Vec<&str> = view.completed_agents().map(|name| name.as_str()).collect();
    if !completed.is_empty() {
        out.push_str(",\n\"completed_agents\": ");
        json(&mut out, &completed);
    }
    out.push('}');
    out
}

/// The latest utterances as lines `USER: …` and `AI: …`, oldest first; the newest message is among them. One utterance is
/// one line, whatever is in it.
pub(super) fn history(view: &View<'_>) -> String {
    let mut shown: Vec<(&str, &str)> = Vec::with_capacity(limits::COMMAND_HISTORY);
    for item in view.conversation.history.iter().rev() {
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

/// A text on one line, without what nobody can see.
pub(super) fn one_line(text: &str) -> std::borrow::Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text.into(); // the common case, without a look at each character's class
    }
    match strip_hidden(text) {
        std::borrow::Cow::Borrowed(text) => single_line(text),
        std::borrow::Cow::Owned(text) => single_line(&text).into_owned().into(),
    }
}

fn fillable(view: &View<'_>, collect: &Collect) -> bool {
    view.project.slot(collect.slot.as_str()).is_none_or(is_for_models)
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

/// Slots by name.
struct Slots<'a> {
    view: &'a View<'a>,
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
                definition: self.view.project.slot(name),
                description: collect.description.as_deref(),
                value: self.values.then(|| self.view.value(name)),
            };
            map.serialize_entry(name, &slot)?;
        }
        map.end()
    }
}

/// One slot: its value, and what a value must be like.
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

/// The open question.
struct Question<'a> {
    view: &'a View<'a>,
    asked: Asked<'a>,
}

impl Serialize for Question<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = self.asked.slot.as_str();
        let value = self.view.value(name);
        let slot = Slot {
            definition: self.view.project.slot(name),
            description: self.asked.collect.and_then(|collect| collect.description.as_deref()),
            value: (!value.is_null()).then_some(value),
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("slot", name)?;
        slot.entries(&mut map)?;
        map.end()
    }
}

/// A value that fits into a prompt: long ones are cut, as text.
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
    // Names, texts and JSON values always serialise; if one ever did not, `null` is a state that a model can read.
    match serde_json::to_string(value) {
        Ok(text) => out.push_str(&text),
        Err(_) => out.push_str("null"),
    }
}

fn line(out: &mut String, value: &impl Serialize) {
    json(out, value);
    let _ = writeln!(out);
}
