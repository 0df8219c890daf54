//! Reads responses and their variations. `${price}` is a dollar sign and a slot here, not an environment variable.

use serde_json::{Map, Value as Json};

use super::super::{
    ResponseDef, ResponseText, Variation,
    load_context::{LoadContext, MapFields, describe},
    references::{ConditionRole, ReferenceKind},
    schema::{RESPONSE_METADATA, VARIATION},
    yaml::{Entry, Node},
};
use crate::{
    ids::{ResponseName, SlotName},
    template::placeholders,
};

/// Reads a response: a list of variations, a variation, or a string.
pub(super) fn response(context: &mut LoadContext<'_>, entry: &Entry) -> Option<ResponseDef> {
    if !entry.key.starts_with("utter_") {
        let message = format!("the name of a response must start with `utter_`, but this is `{}`", entry.key);
        let help = format!("Write `utter_{}` here and where it is used.", entry.key.trim_start_matches("utter"));
        context.error("F0307", &entry.at, message, help.replace("utter__", "utter_"));
    }
    context.response = entry.key.as_str().into();
    let node = &entry.node;
    let single = std::slice::from_ref(node);
    let items = match (node.list(), node.map(), node.text()) {
        (Some(items), ..) => items,
        (None, None, None) | (None, Some([]), _) => &[],
        _ => single,
    };
    let variations: Vec<Variation> = items.iter().filter_map(|item| variation(context, item)).collect();
    if items.is_empty() {
        let message = format!("the response `{}` is empty", entry.key);
        context.error("F0308", &entry.at, message, "Write `- text: …` below it.");
    }
    if variations.is_empty() {
        return None;
    }
    let place = context.place(&entry.at);
    Some(ResponseDef { name: ResponseName::from(entry.key.as_str()), variations, builtin: context.builtin, place })
}

fn variation(context: &mut LoadContext<'_>, node: &Node) -> Option<Variation> {
    if node.text().is_some() {
        return Some(Variation { text: text(context, node, false), ..Variation::default() });
    }
    let fields = context.fields(node, &VARIATION)?;
    let metadata = fields.json_map("metadata").unwrap_or_default();
    let known = fields.node("metadata").and_then(|node| context.fields(node, &RESPONSE_METADATA));
    let known = |key: &str| known.as_ref().and_then(|known| known.node(key));
    let jinja = metadata.get("template").and_then(Json::as_str) == Some("jinja");
    let says = ["text", "custom", "image", "attachment", "elements", "quick_replies", "buttons", "translation"];
    if !says.iter().any(|key| fields.node(key).is_some()) {
        context.error("F0308", node, "this variation of a response is empty", "Add `text: …`.");
    }
    let (condition, slot_conditions) = condition(context, &fields);
    let mut translations = Vec::new();
    for entry in fields.map("translation") {
        match text(context, &entry.node, jinja) {
            Some(text) => translations.push((entry.key.as_str().into(), text)),
            None => report_translation(context, &entry.node),
        }
    }
    duplicate_titles(context, fields.list("buttons"));
    let buttons = fields.list("buttons").iter().filter_map(|button| context.button(button, jinja)).collect();
    Some(Variation {
        id: fields.shared("id"),
        text: fields.node("text").and_then(|node| text(context, node, jinja)),
        condition,
        slot_conditions,
        channel: fields.shared("channel"),
        buttons,
        image: fields.node("image").and_then(|node| text(context, node, jinja)),
        attachment: fields.node("attachment").map(Node::json).filter(|json| !json.is_null()),
        custom: fields.node("custom").map(Node::json).filter(|json| !json.is_null()),
        elements: fields.list("elements").iter().map(Node::json).collect(),
        quick_replies: fields.list("quick_replies").iter().map(Node::json).collect(),
        metadata: with_extras(metadata, &fields),
        rephrase: known("rephrase").and_then(Node::bool),
        rephrase_prompt: known("rephrase_prompt").and_then(|node| context.template(node, node.text()?)),
        translations,
    })
}

/// Reports buttons with the same title and different payloads.
fn duplicate_titles(context: &mut LoadContext<'_>, buttons: &[Node]) {
    for (at, button) in buttons.iter().enumerate() {
        let title = |button: &Node| button.get("title").and_then(Node::text).map(str::to_owned);
        let payload = |button: &Node| button.get("payload").and_then(Node::text).map(str::to_owned);
        let Some(own) = title(button) else { continue };
        let is_twin = |other: &Node| title(other).as_ref() == Some(&own) && payload(other) != payload(button);
        if buttons.iter().take(at).any(is_twin) {
            let message = format!("two buttons have the title `{own}` but different payloads");
            context.warning("F0326", button, message, "Give each button a unique title.");
        }
    }
}

/// Adds unknown keys of a variation to its metadata, where channels can read them.
fn with_extras(mut metadata: Map<String, Json>, fields: &MapFields<'_>) -> Map<String, Json> {
    for entry in fields.node.map().unwrap_or_default() {
        let kept =
            ["button_type", "allow_interruptions"].contains(&entry.key.as_str()) || VARIATION.key(&entry.key).is_none();
        if kept && !metadata.contains_key(&entry.key) {
            metadata.insert(entry.key.clone(), entry.node.json());
        }
    }
    metadata
}

fn report_translation(context: &mut LoadContext<'_>, node: &Node) {
    if node.text().is_none() {
        context.error(
            "F0108",
            node,
            format!("a translation must be a string, but this is {}", describe(node)),
            "Write a string.",
        );
    }
}

/// Reads a text in one of the two formats and records the slots in it.
pub(super) fn text(context: &mut LoadContext<'_>, node: &Node, jinja: bool) -> Option<ResponseText> {
    let text = node.text()?;
    if jinja {
        let template = context.template(node, text)?;
        for name in context.engine.variables(&template) {
            if let Some(slot) = name.strip_prefix("slots.") {
                let slot = slot.split('.').next().unwrap_or(slot);
                context.reference_name(ReferenceKind::PrintedSlot, slot, context.place(node));
            }
        }
        for (at, name) in placeholders(text) {
            braces(context, node, ReferenceKind::SingleBraces, at, name);
        }
        return Some(ResponseText::Jinja(template));
    }
    // `/inform{"city": "Bonn"}` is a payload with entities, not a placeholder.
    for (at, name) in placeholders(text).filter(|(_, name)| !name.contains('"')) {
        let place = node.place_at(
            &context.file,
            text.get(..at).map_or(0, |before| before.chars().count()),
            name.chars().count(),
        );
        context.reference_name(ReferenceKind::PrintedSlot, name, place);
    }
    for (at, name) in doubled(text) {
        braces(context, node, ReferenceKind::DoubleBraces, at, name);
    }
    Some(ResponseText::Braces(text.into()))
}

/// Records a name in braces of the other format. Whether it is a slot is checked later.
fn braces(context: &mut LoadContext<'_>, node: &Node, used: ReferenceKind, at: usize, name: &str) {
    let text = node.text().unwrap_or_default();
    let offset = text.get(..at).map_or(0, |before| before.chars().count());
    let place = node.place_at(&context.file, offset, name.chars().count());
    context.reference_name(used, name, place);
}

/// The names in double braces, without filters, with their byte offsets. Other content, such as JSON in payloads, is skipped.
fn doubled(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (open, _) in text.match_indices("{{") {
        let Some(inner) = text.get(open + 2..).and_then(|rest| rest.split_once("}}")).map(|(inner, _)| inner) else {
            break;
        };
        let name = inner.split('|').next().unwrap_or_default();
        let blanks = name.len() - name.trim_start().len();
        let name = name.trim();
        if !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.') {
            found.push((open + 2 + blanks, name));
        }
    }
    found
}

type Conditions = (Option<crate::condition::Condition>, Vec<(SlotName, Json)>);

/// Reads `condition`: a condition, or the list form with slots and values.
fn condition(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> Conditions {
    let Some(node) = fields.node("condition") else { return (None, Vec::new()) };
    let Some(items) = node.list() else {
        return (context.condition(node, ConditionRole::Response), Vec::new());
    };
    let mut slots = Vec::new();
    for item in items {
        let (Some(name), Some(value)) = (item.get("name"), item.get("value")) else {
            let message = "a condition of a response must be a string or a list of `{type: slot, name: …, value: …}`";
            context.error("F0108", item, message, "Write for example `condition: slots.vip is true`.");
            continue;
        };
        context.reference(ReferenceKind::Slot, name);
        slots.extend(name.text().map(|name| (SlotName::from(name), value.json())));
    }
    (None, slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_double_braces_are_found() {
        assert_eq!(doubled("{{ slots.a | upper }} {b} {{c}} /x{{\"a\": 1}}"), [(3, "slots.a"), (28, "c")]);
    }
}
