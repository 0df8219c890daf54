//! The question that is open, as data, and what is asked right after it for certain: the fields of one form.

use segue_engine::{
    conversation::{Conversation, FrameKind, PatternFrame},
    project::{Collect, Flow, NextStep, Project, ResponseText, SlotDef, SlotType, StepKind, Target},
    text::{TextLimit, truncate},
};
use serde_json::{Value as Json, json};

use super::offers::{is_given, slot_schema};
use crate::limits;

/// The field of a form in which a person says something in their own words.
const WORDS: &str = "message";

/// A question for a slot.
pub(super) struct Question {
    /// The step that asks, by which an answer finds its question again; after a refusal the slot.
    pub(super) step: String,
    /// The slot.
    pub(super) slot: String,
    /// What its value may be.
    pub(super) schema: Json,
    /// Whether a form can hold it.
    pub(super) is_plain: bool,
    /// Whether any words will do: then the answer is said as it was written.
    pub(super) is_talk: bool,
    /// The questions that follow, whatever the answer to this one is.
    pub(super) following: Vec<Following>,
}

/// A question that follows.
pub(super) struct Following {
    /// The slot.
    pub(super) slot: String,
    /// What its value may be, with the words of the question.
    pub(super) schema: Json,
    /// What the buttons of the question say, by value.
    pub(super) titles: Vec<(String, String)>,
}

/// The question that is open in a talk.
pub(super) fn open(project: &Project, talk: &Conversation) -> Option<Question> {
    let FrameKind::Pattern { context } = &talk.stack.top()?.kind else { return None };
    let (name, step) = match context {
        PatternFrame::CollectInformation { collect, step_id, .. } => (collect, Some(step_id.as_str())),
        PatternFrame::ValidateSlot { validate, .. } => (validate, None),
        _ => return None,
    };
    let slot = project.slot(name.as_str())?;
    let flow = talk.stack.top_user_frame().and_then(|frame| project.flow(frame.flow_id.as_str()));
    let following = match (flow, step) {
        (Some(flow), Some(step)) => following(project, talk, flow, step),
        _ => Vec::new(),
    };
    Some(Question {
        step: step.unwrap_or(name.as_str()).to_owned(),
        slot: name.to_string(),
        schema: schema_of(slot, None),
        is_plain: is_plain(slot),
        is_talk: false,
        following,
    })
}

/// The question that a form may hold: that for a slot, or what an agent wants to know, in whatever words.
pub(super) fn for_form(project: &Project, talk: &Conversation) -> Option<Question> {
    open(project, talk).or_else(|| {
        talk.stack.waiting_agent()?;
        let schema = json!({"type": "string"});
        let (step, slot) = (WORDS.to_owned(), WORDS.to_owned());
        Some(Question { step, slot, schema, is_plain: true, is_talk: true, following: Vec::new() })
    })
}

fn is_plain(slot: &SlotDef) -> bool {
    !matches!(slot.kind, SlotType::List | SlotType::Any)
}

fn schema_of(slot: &SlotDef, about: Option<&str>) -> Json {
    let mut schema = slot_schema(slot, about);
    if let Some(schema) = schema.as_object_mut().filter(|_| !slot.initial.is_null()) {
        schema.insert("default".into(), slot.initial.clone());
    }
    schema
}

/// The questions between a step and the first one that does anything but ask: a call, a branch or an action may change what is
/// asked then. So may a question whose words hold values, and a confirmation: those stay alone.
fn following(project: &Project, talk: &Conversation, flow: &Flow, step: &str) -> Vec<Following> {
    let mut found: Vec<Following> = Vec::new();
    let Some(mut at) = flow.step(step) else { return found };
    let first = at.id.as_str();
    for _ in 0..flow.steps.len() {
        let NextStep::Go(Target::Step(next)) = &at.next else { break };
        let Some(step) = flow.step(next.as_str()).filter(|step| step.id.as_str() != first) else { break };
        let StepKind::Collect(collect) = &step.kind else { break };
        let Some(slot) = project.slot(collect.slot.as_str()) else { break };
        at = step;
        let is_known = !talk.slots.get(slot.name.as_str()).unwrap_or(&slot.initial).is_null();
        if is_known && !collect.ask_before_filling {
            continue;
        }
        // What has a suggestion is a question with an answer to start from, not a confirmation.
        let is_open = !collect.ask_before_filling || !slot.initial.is_null();
        let words = words_of(project, collect);
        let fits = is_open && is_plain(slot) && is_given(slot) && words.is_some();
        if !fits
            || found.len() + 1 >= limits::MCP_SERVED_FIELDS
            || found.iter().any(|one| one.slot == slot.name.as_str())
        {
            break;
        }
        let schema = schema_of(slot, words.or(collect.description.as_deref()));
        found.push(Following { slot: slot.name.to_string(), schema, titles: titles_of(project, collect) });
    }
    found
}

/// What a question says, where it always says the same.
fn words_of<'a>(project: &'a Project, collect: &Collect) -> Option<&'a str> {
    let response = project.response(collect.utter.as_str())?;
    let [only] = response.variations.as_slice() else { return None };
    only.text.as_ref().and_then(fixed)
}

/// What the buttons of a question say, by the value that each fills into its slot.
fn titles_of(project: &Project, collect: &Collect) -> Vec<(String, String)> {
    let variations = project.response(collect.utter.as_str()).map(|response| &response.variations);
    let buttons = variations.into_iter().flatten().flat_map(|one| &one.buttons);
    buttons.filter_map(|(title, payload, _)| titled(collect.slot.as_str(), fixed(title)?, fixed(payload)?)).collect()
}

/// The value and the title of a button, if it fills this slot and no other.
pub(super) fn titled(slot: &str, title: &str, payload: &str) -> Option<(String, String)> {
    let value = payload.strip_prefix("/SetSlots(")?.strip_suffix(')')?.split_once('=')?;
    (value.0.trim() == slot && !value.1.contains(['=', ','])).then(|| (value.1.trim().to_owned(), title.to_owned()))
}

fn fixed(text: &ResponseText) -> Option<&str> {
    match text {
        ResponseText::Braces(text) if !text.contains('{') => Some(text),
        _ => None,
    }
}

/// A text for people in a form.
pub(super) fn shortened(text: &str) -> String {
    truncate(text, TextLimit::Bytes(limits::MCP_DESCRIPTION), "…").into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_button_has_a_title_for_one_value() {
        let titled = |payload| titled("to", "Over there", payload);
        assert_eq!(titled("/SetSlots(to=oslo)"), Some(("oslo".into(), "Over there".into())));
        for other in ["/SetSlots(from=oslo)", "/SetSlots(to=oslo, from=x)", "/go", "oslo"] {
            assert_eq!(titled(other), None);
        }
    }
}
