//! Slots: types, mappings, validation, and those that every project has.

use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::Value as Json;

use super::super::{
    Config, FillPolicy, Mapping, Rejection, SlotDef, SlotType, Validation,
    builtin::{self, BuiltinSlot},
    reader::{Fields, Reader, said},
    schema::{MAPPING, MAPPING_CONDITION, REJECTION, SLOT, VALIDATION},
    uses::{Role, Used},
    yaml::{Entry, Node},
};
use crate::{
    finding::{SourceLocation, did_you_mean},
    ids::{FlowId, ResponseName, SlotName},
};

const TYPES: [&str; 6] = ["text", "bool", "categorical", "float", "list", "any"];
const MAPPINGS: [&str; 5] = ["from_llm", "controlled", "from_entity", "from_intent", "from_text"];

/// Reads one slot.
pub(super) fn slot(reader: &mut Reader<'_>, entry: &Entry) -> Option<SlotDef> {
    let fields = reader.fields(&entry.node, &SLOT)?;
    if entry.key.contains(['(', ')', '=', ',']) {
        let message = format!("buttons cannot fill the slot `{}`: its name holds one of `(`, `)`, `=`, `,`", entry.key);
        reader.warning("F0312", &entry.at, message, "Use letters, digits and `_`.");
    }
    let kind = slot_type(reader, &fields)?;
    let name = SlotName::from(entry.key.as_str());
    let initial = fields.node("initial_value").map_or(Json::Null, |node| initial(reader, node, &kind));
    let mappings = fields.list("mappings").iter().filter_map(|node| mapping(reader, node)).collect();
    let fill = match fields.text("fill") {
        Some("when_asked") => FillPolicy::WhenAsked,
        Some("once") => FillPolicy::Once,
        _ => FillPolicy::AnyTime,
    };
    let validation = fields.node("validation").and_then(|node| validation(reader, node, &name));
    let place = reader.place(&entry.at);
    let shared = fields.flag("shared_for_coexistence");
    Some(SlotDef { name, kind, initial, mappings, fill, validation, shared, builtin: reader.builtin, place })
}

fn slot_type(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<SlotType> {
    let node = fields.node("type")?;
    let written = node.text()?;
    for (key, of) in [("values", "categorical"), ("min_value", "float"), ("max_value", "float")] {
        if fields.has(key) && written != of {
            let message = format!("`{key}` belongs to slots of type `{of}`, not `{written}`");
            reader.warning("F0303", fields.at(key), message, format!("Remove it, or write `type: {of}`."));
        }
    }
    match written {
        "text" => Some(SlotType::Text),
        "bool" => Some(SlotType::Bool),
        "boolean" => {
            reader.warning("F0317", node, "the type is called `bool`", "Write `type: bool`.");
            Some(SlotType::Bool)
        }
        "categorical" => Some(SlotType::Categorical(values(reader, fields))),
        "float" => Some(SlotType::Float { min: fields.number("min_value"), max: fields.number("max_value") }),
        "list" => Some(SlotType::List),
        "any" => Some(SlotType::Any),
        other => {
            let help = if other.contains('.') {
                "Slot types in Python are not run here; use `any` with a custom action.".to_owned()
            } else {
                match did_you_mean(other, TYPES) {
                    Some(near) => format!("Did you mean `{near}`?"),
                    None if matches!(other, "int" | "integer" | "number") => "Numbers are `float`.".to_owned(),
                    None => format!("Write one of `{}`.", TYPES.join("`, `")),
                }
            };
            reader.error("F0302", node, format!("`{other}` is not a type of slots"), help);
            None
        }
    }
}

fn values(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<Arc<str>> {
    let mut values: Vec<Arc<str>> = Vec::new();
    for node in fields.list("values") {
        let Some(text) = node.text() else {
            let message = format!("a value of a categorical slot is a text; {} is left out", said(node));
            reader.warning("F0303", node, message, "Write a text.");
            continue;
        };
        if let Some(other) = values.iter().find(|other| other.to_lowercase() == text.to_lowercase()) {
            let message = format!("`{text}` and `{other}` differ only in case, and case does not count");
            reader.warning("F0303", node, message, "Keep one of them.");
            continue;
        }
        values.push(text.into());
    }
    if values.is_empty() {
        let at = fields.at("values");
        reader.error(
            "F0303",
            at,
            "a categorical slot needs `values`",
            "List what it may hold: `values: [small, large]`.",
        );
    }
    values
}

fn initial(reader: &mut Reader<'_>, node: &Node, kind: &SlotType) -> Json {
    let value = node.json();
    let fits = match kind {
        SlotType::Text | SlotType::Any => true,
        SlotType::Bool => value.is_boolean(),
        SlotType::Float { .. } => value.is_number(),
        SlotType::List => value.is_array(),
        SlotType::Categorical(values) => {
            node.text().is_some_and(|text| values.iter().any(|v| v.to_lowercase() == text.to_lowercase()))
        }
    };
    if node.is_null() || fits {
        return match (kind, node.text()) {
            // What an author writes for a text is a text: `007` and `yes` stay as they are.
            (SlotType::Text, Some(text)) => Json::from(text),
            (SlotType::Categorical(values), Some(text)) => {
                let known = values.iter().find(|v| v.to_lowercase() == text.to_lowercase());
                Json::from(known.map_or(text, |known| known))
            }
            _ => value,
        };
    }
    let message = format!("the initial value of a `{}` slot cannot be {}", kind.name(), said(node));
    let help = match kind {
        SlotType::Categorical(values) => format!("Write one of its values: `{}`.", values.join("`, `")),
        _ => format!("Write a value of type `{}`, or `null`.", kind.name()),
    };
    reader.error("F0305", node, message, help);
    Json::Null
}

fn mapping(reader: &mut Reader<'_>, node: &Node) -> Option<Mapping> {
    let fields = reader.fields(node, &MAPPING)?;
    let active_flows = active_flows(reader, &fields);
    let names =
        |key| fields.texts(key).into_iter().filter_map(|node| node.text().map(Into::into)).collect::<Vec<Arc<str>>>();
    let (intents, not_intents) = (names("intent"), names("not_intent"));
    let written = fields.node("type")?;
    match written.text()? {
        "from_llm" => {
            let allow_nlu_correction = fields.flag("allow_nlu_correction");
            Some(Mapping::FromLlm { allow_nlu_correction, active_flows })
        }
        kind @ ("controlled" | "custom") => {
            if kind == "custom" && !reader.builtin {
                reader.warning(
                    "F0306",
                    written,
                    "`custom` is the older name of `controlled`",
                    "Write `type: controlled`.",
                );
            }
            let action = fields.node("run_action_every_turn");
            if let Some(action) = action {
                reader.uses(Used::CustomAction, action);
            }
            Some(Mapping::Controlled { run_action_every_turn: action.and_then(Node::text).map(str::to_owned) })
        }
        "from_entity" => {
            let Some(entity) = fields.shared("entity") else {
                reader.error("F0109", node, "a mapping `from_entity` needs `entity`", "Add `entity: <name>`.");
                return None;
            };
            let (role, group) = (fields.shared("role"), fields.shared("group"));
            Some(Mapping::FromEntity { entity, role, group, intents, not_intents, active_flows })
        }
        kind @ ("from_intent" | "from_trigger_intent") => {
            if kind == "from_trigger_intent" {
                reader.warning(
                    "F0306",
                    written,
                    "`from_trigger_intent` belongs to forms",
                    "It is read as `from_intent`.",
                );
            }
            let Some(value) = fields.node("value") else {
                reader.error("F0109", node, "a mapping `from_intent` needs `value`", "Add `value: …`.");
                return None;
            };
            Some(Mapping::FromIntent { value: value.json(), intents, not_intents, active_flows })
        }
        "from_text" => Some(Mapping::FromText { intents, not_intents, active_flows }),
        other => {
            let help = match did_you_mean(other, MAPPINGS) {
                Some(near) => format!("Did you mean `{near}`?"),
                None => format!("Write one of `{}`.", MAPPINGS.join("`, `")),
            };
            reader.error("F0306", written, format!("`{other}` is not a type of mappings"), help);
            None
        }
    }
}

fn active_flows(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<FlowId> {
    let mut flows = Vec::new();
    for node in fields.list("conditions") {
        let Some(fields) = reader.fields(node, &MAPPING_CONDITION) else { continue };
        if let Some(flow) = fields.node("active_flow") {
            reader.uses(Used::Flow, flow);
            flows.extend(flow.text().map(FlowId::from));
        } else if !fields.has("active_flow") && !fields.has("active_loop") {
            reader.error(
                "F0108",
                node,
                "a condition of a mapping is `active_flow: <flow>`",
                "Write `- active_flow: <flow>`.",
            );
        }
    }
    flows
}

fn validation(reader: &mut Reader<'_>, node: &Node, slot: &SlotName) -> Option<Validation> {
    let fields = reader.fields(node, &VALIDATION)?;
    let rejections = rejections(reader, &fields, slot);
    let refill_utter = match fields.node("refill_utter") {
        Some(node) => {
            reader.uses(Used::Response, node);
            ResponseName::from(node.text()?)
        }
        None => ResponseName::from(format!("utter_ask_{slot}")),
    };
    Some(Validation { rejections, refill_utter })
}

/// `rejections` of a slot or of a collect step.
pub(super) fn rejections(reader: &mut Reader<'_>, fields: &Fields<'_>, slot: &SlotName) -> Vec<Rejection> {
    let mut rejections = Vec::new();
    for node in fields.list("rejections") {
        let Some(item) = reader.fields(node, &REJECTION) else { continue };
        let condition = item.node("if").and_then(|node| reader.condition(node, Role::Rejection(slot.clone())));
        let utter = item.node("utter");
        if let Some(utter) = utter {
            reader.uses(Used::Response, utter);
        }
        if let (Some(condition), Some(utter)) = (condition, utter.and_then(Node::text)) {
            rejections.push(Rejection { condition, utter: utter.into() });
        }
    }
    rejections
}

/// Adds the slots that every conversation has, unless the project or the patterns define them.
pub(super) fn add_builtin(slots: &mut IndexMap<SlotName, SlotDef>, config: &Config) {
    for BuiltinSlot { name, kind, initial, by_model } in builtin::slots(config) {
        let mapping = if by_model {
            Mapping::FromLlm { allow_nlu_correction: false, active_flows: Vec::new() }
        } else {
            Mapping::Controlled { run_action_every_turn: None }
        };
        let name = SlotName::from(name);
        slots.entry(name.clone()).or_insert_with(|| SlotDef {
            name,
            kind,
            initial,
            mappings: vec![mapping],
            fill: FillPolicy::AnyTime,
            validation: None,
            shared: true,
            builtin: true,
            place: SourceLocation::default(),
        });
    }
}
