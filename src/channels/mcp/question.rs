//! The open question of a conversation as data, and the questions that are certain to follow it: the fields of one form.

use segue_engine::{
    conversation::{Conversation, FrameKind, PatternFrame},
    project::{Collect, Flow, NextStep, Project, ResponseText, SlotDef, SlotType, StepKind, Target},
    text::{TextLimit, truncate},
};
use serde_json::{Value as Json, json};

use super::served_tools::{is_user_fillable, slot_schema};
use crate::limits;

/// The field of a form for a free text.
const FREE_TEXT_FIELD: &str = "message";

/// A question of a flow or an agent.
pub(super) struct Question {
    /// The key of its answer in `inputResponses`: the step that asks; the slot, when a value was refused and is asked again.
    pub(super) step: String,
    /// The slot, or the free text field.
    pub(super) slot: String,
    /// The JSON schema of its value.
    pub(super) schema: Json,
    /// Whether a form can show it: form fields are texts, numbers, booleans and enums.
    pub(super) fits_form: bool,
    /// Whether the answer is a free text: a message as the user wrote it.
    pub(super) is_free_text: bool,
    /// The questions that follow whatever the answer is.
    pub(super) follow_ups: Vec<FollowUpQuestion>,
}

/// A question that follows the open one.
pub(super) struct FollowUpQuestion {
    pub(super) slot: String,
    /// The JSON schema of its value; the description is the text of the question.
    pub(super) schema: Json,
    /// The titles of its buttons, as (value, title).
    pub(super) titles: Vec<(String, String)>,
}

/// The open question for a slot.
pub(super) fn open_question(project: &Project, conversation: &Conversation) -> Option<Question> {
    let FrameKind::Pattern { context } = &conversation.stack.top()?.kind else { return None };
    let (name, step) = match context {
        PatternFrame::CollectInformation { collect, step_id, .. } => (collect, Some(step_id.as_str())),
        PatternFrame::ValidateSlot { validate, .. } => (validate, None),
        _ => return None,
    };
    let slot = project.slot(name.as_str())?;
    let flow = conversation.stack.top_user_frame().and_then(|frame| project.flow(frame.flow_id.as_str()));
    let follow_ups = match (flow, step) {
        (Some(flow), Some(step)) => follow_ups(project, conversation, flow, step),
        _ => Vec::new(),
    };
    Some(Question {
        step: step.unwrap_or(name.as_str()).to_owned(),
        slot: name.to_string(),
        schema: form_schema(slot, None),
        fits_form: fits_form(slot),
        is_free_text: false,
        follow_ups,
    })
}

/// The question for a form: the open one for a slot; else a free text, if an agent waits for the user.
pub(super) fn for_form(project: &Project, conversation: &Conversation) -> Option<Question> {
    open_question(project, conversation).or_else(|| {
        conversation.stack.waiting_agent()?;
        Some(Question {
            step: FREE_TEXT_FIELD.to_owned(),
            slot: FREE_TEXT_FIELD.to_owned(),
            schema: json!({"type": "string"}),
            fits_form: true,
            is_free_text: true,
            follow_ups: Vec::new(),
        })
    })
}

fn fits_form(slot: &SlotDef) -> bool {
    !matches!(slot.kind, SlotType::List | SlotType::Any)
}

fn form_schema(slot: &SlotDef, description: Option<&str>) -> Json {
    let mut schema = slot_schema(slot, description);
    if let Some(schema) = schema.as_object_mut().filter(|_| !slot.initial.is_null()) {
        schema.insert("default".into(), slot.initial.clone());
    }
    schema
}

/// The questions after a step that are asked whatever the answers are: up to the first step that is not a question, since a call, a
/// branch or an action may change what follows. A question whose text contains values, and a confirmation, end the list too: each has
/// a form of its own.
fn follow_ups(project: &Project, conversation: &Conversation, flow: &Flow, step: &str) -> Vec<FollowUpQuestion> {
    let mut questions: Vec<FollowUpQuestion> = Vec::new();
    let Some(mut current) = flow.step(step) else { return questions };
    let first = current.id.as_str();
    for _ in 0..flow.steps.len() {
        let NextStep::Go(Target::Step(next)) = &current.next else { break };
        let Some(step) = flow.step(next.as_str()).filter(|step| step.id.as_str() != first) else { break };
        let StepKind::Collect(collect) = &step.kind else { break };
        let Some(slot) = project.slot(collect.slot.as_str()) else { break };
        current = step;
        let is_filled = !conversation.slots.get(slot.name.as_str()).unwrap_or(&slot.initial).is_null();
        if is_filled && !collect.ask_before_filling {
            continue;
        }
        // A slot that is always asked and has an initial value is a suggestion to change, not a confirmation.
        let is_confirmation = collect.ask_before_filling && slot.initial.is_null();
        let text = question_text(project, collect);
        let fits = !is_confirmation && fits_form(slot) && is_user_fillable(slot) && text.is_some();
        if !fits
            || questions.len() + 1 >= limits::MCP_SERVED_FIELDS
            || questions.iter().any(|question| question.slot == slot.name.as_str())
        {
            break;
        }
        let schema = form_schema(slot, text.or(collect.description.as_deref()));
        let titles = button_choices(project, collect);
        questions.push(FollowUpQuestion { slot: slot.name.to_string(), schema, titles });
    }
    questions
}

/// The text of a question, if it is always the same.
fn question_text<'a>(project: &'a Project, collect: &Collect) -> Option<&'a str> {
    let response = project.response(collect.utter.as_str())?;
    let [variation] = response.variations.as_slice() else { return None };
    variation.text.as_ref().and_then(constant_text)
}

/// The buttons of a question that fill its slot, as (value, title).
fn button_choices(project: &Project, collect: &Collect) -> Vec<(String, String)> {
    let variations = project.response(collect.utter.as_str()).map(|response| &response.variations);
    let buttons = variations.into_iter().flatten().flat_map(|one| &one.buttons);
    buttons
        .filter_map(|(title, payload, _)| {
            button_choice(collect.slot.as_str(), constant_text(title)?, constant_text(payload)?)
        })
        .collect()
}

/// The value and the title of a button, if it fills this slot and no other.
pub(super) fn button_choice(slot: &str, title: &str, payload: &str) -> Option<(String, String)> {
    let (name, value) = payload.strip_prefix("/SetSlots(")?.strip_suffix(')')?.split_once('=')?;
    (name.trim() == slot && !value.contains(['=', ','])).then(|| (value.trim().to_owned(), title.to_owned()))
}

/// The text of a template without placeholders.
fn constant_text(text: &ResponseText) -> Option<&str> {
    match text {
        ResponseText::Braces(text) if !text.contains('{') => Some(text),
        _ => None,
    }
}

/// A text of a form within [`limits::MCP_DESCRIPTION`].
pub(super) fn shortened(text: &str) -> String {
    truncate(text, TextLimit::Bytes(limits::MCP_DESCRIPTION), "…").into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn button_is_a_choice_if_it_sets_one_slot() {
        let choice = |payload| button_choice("to", "Over there", payload);
        assert_eq!(choice("/SetSlots(to=oslo)"), Some(("oslo".into(), "Over there".into())));
        for other in ["/SetSlots(from=oslo)", "/SetSlots(to=oslo, from=x)", "/go", "oslo"] {
            assert_eq!(choice(other), None);
        }
    }
}
