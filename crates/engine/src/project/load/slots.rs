//! Reads slots with types, mappings and validation, and adds the built-in slots.

use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::Value as Json;

use super::super::{
    Config, FillPolicy, Mapping, Rejection, SlotDef, SlotType, Validation,
    builtin::{self, BuiltinSlot},
    load_context::{LoadContext, MapFields, describe},
    references::{ConditionRole, ReferenceKind},
    schema::{MAPPING, MAPPING_CONDITION, REJECTION, SLOT, VALIDATION},
    yaml::{Entry, Node},
};
use crate::{
    finding::{SourceLocation, did_you_mean},
    ids::{FlowId, ResponseName, SlotName},
};

const TYPES: [&str; 6] = ["text", "bool", "categorical", "float", "list", "any"];
const MAPPINGS: [&str; 5] = ["from_llm", "controlled", "from_entity", "from_intent", "from_text"];

/// Reads a slot.
pub(super) fn slot(context: &mut LoadContext<'_>, entry: &Entry) -> Option<SlotDef> {
    let fields = context.fields(&entry.node, &SLOT)?;
    if entry.key.contains(['(', ')', '=', ',']) {
        let message =
            format!("buttons cannot fill the slot `{}`: its name contains one of `(`, `)`, `=`, `,`", entry.key);
        context.warning("F0312", &entry.at, message, "Use letters, digits and `_`.");
    }
    let kind = slot_type(context, &fields)?;
    let name = SlotName::from(entry.key.as_str());
    let initial = fields.node("initial_value").map_or(Json::Null, |node| initial(context, node, &kind));
    let mappings = fields.list("mappings").iter().filter_map(|node| mapping(context, node)).collect();
    let fill = match fields.text("fill") {
        Some("when_asked") => FillPolicy::WhenAsked,
        Some("once") => FillPolicy::Once,
        _ => FillPolicy::AnyTime,
    };
    let validation = fields.node("validation").and_then(|node| validation(context, node, &name));
    let place = context.place(&entry.at);
    let shared = fields.flag("shared_for_coexistence");
    let (builtin, write_once, public) = (context.builtin, fields.flag("write_once"), fields.flag("public"));
    Some(SlotDef { name, kind, initial, mappings, fill, validation, shared, write_once, public, builtin, place })
}

fn slot_type(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> Option<SlotType> {
    let node = fields.node("type")?;
    let written = node.text()?;
    for (key, of) in [("values", "categorical"), ("min_value", "float"), ("max_value", "float")] {
        if fields.has(key) && written != of {
            let message = format!("`{key}` is a key of slots of type `{of}`, not `{written}`");
            context.warning("F0303", fields.at(key), message, format!("Remove it, or write `type: {of}`."));
        }
    }
    match written {
        "text" => Some(SlotType::Text),
        "bool" => Some(SlotType::Bool),
        "boolean" => {
            context.warning("F0317", node, "the type is called `bool`", "Write `type: bool`.");
            Some(SlotType::Bool)
        }
        "categorical" => Some(SlotType::Categorical(values(context, fields))),
        "float" => Some(SlotType::Float { min: fields.number("min_value"), max: fields.number("max_value") }),
        "list" => Some(SlotType::List),
        "any" => Some(SlotType::Any),
        other => {
            let help = if other.contains('.') {
                "Slot types in Python are not supported; use `any` with a custom action.".to_owned()
            } else {
                match did_you_mean(other, TYPES) {
                    Some(near) => format!("Did you mean `{near}`?"),
                    None if matches!(other, "int" | "integer" | "number") => "Numbers are `float`.".to_owned(),
                    None => format!("Write one of `{}`.", TYPES.join("`, `")),
                }
            };
            context.error("F0302", node, format!("`{other}` is not a slot type"), help);
            None
        }
    }
}

fn values(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> Vec<Arc<str>> {
    let mut values: Vec<Arc<str>> = Vec::new();
    for node in fields.list("values") {
        let Some(text) = node.text() else {
            let message = format!("a value of a categorical slot must be a string; {} is ignored", describe(node));
            context.warning("F0303", node, message, "Write a string.");
            continue;
        };
        if let Some(other) = values.iter().find(|other| other.to_lowercase() == text.to_lowercase()) {
            let message = format!("`{text}` and `{other}` differ only in case, which is ignored");
            context.warning("F0303", node, message, "Remove one of them.");
            continue;
        }
        values.push(text.into());
    }
    if values.is_empty() {
        let at = fields.at("values");
        context.error("F0303", at, "a categorical slot needs `values`", "List its values: `values: [small, large]`.");
    }
    values
}

fn initial(context: &mut LoadContext<'_>, node: &Node, kind: &SlotType) -> Json {
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
            // The initial value of a text slot keeps its spelling, such as `007` and `yes`.
            (SlotType::Text, Some(text)) => Json::from(text),
            (SlotType::Categorical(values), Some(text)) => {
                let known = values.iter().find(|v| v.to_lowercase() == text.to_lowercase());
                Json::from(known.map_or(text, |known| known))
            }
            _ => value,
        };
    }
    let message = format!("the initial value of a `{}` slot cannot be {}", kind.name(), describe(node));
    let help = match kind {
        SlotType::Categorical(values) => format!("Write one of its values: `{}`.", values.join("`, `")),
        _ => format!("Write a value of type `{}`, or `null`.", kind.name()),
    };
    context.error("F0305", node, message, help);
    Json::Null
}

fn mapping(context: &mut LoadContext<'_>, node: &Node) -> Option<Mapping> {
    let fields = context.fields(node, &MAPPING)?;
    let active_flows = active_flows(context, &fields);
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
            if kind == "custom" && !context.builtin {
                context.warning(
                    "F0306",
                    written,
                    "`custom` is an older name of `controlled`",
                    "Write `type: controlled`.",
                );
            }
            let action = fields.node("run_action_every_turn");
            if let Some(action) = action {
                context.reference(ReferenceKind::CustomAction, action);
            }
            Some(Mapping::Controlled { run_action_every_turn: action.and_then(Node::text).map(str::to_owned) })
        }
        "from_entity" => {
            let Some(entity) = fields.shared("entity") else {
                context.error("F0109", node, "a `from_entity` mapping needs `entity`", "Add `entity: <name>`.");
                return None;
            };
            let (role, group) = (fields.shared("role"), fields.shared("group"));
            Some(Mapping::FromEntity { entity, role, group, intents, not_intents, active_flows })
        }
        kind @ ("from_intent" | "from_trigger_intent") => {
            if kind == "from_trigger_intent" {
                context.warning(
                    "F0306",
                    written,
                    "`from_trigger_intent` is a mapping of forms",
                    "It is read as `from_intent`.",
                );
            }
            let Some(value) = fields.node("value") else {
                context.error("F0109", node, "a `from_intent` mapping needs `value`", "Add `value: …`.");
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
            context.error("F0306", written, format!("`{other}` is not a mapping type"), help);
            None
        }
    }
}

fn active_flows(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> Vec<FlowId> {
    let mut flows = Vec::new();
    for node in fields.list("conditions") {
        let Some(fields) = context.fields(node, &MAPPING_CONDITION) else { continue };
        if let Some(flow) = fields.node("active_flow") {
            context.reference(ReferenceKind::Flow, flow);
            flows.extend(flow.text().map(FlowId::from));
        } else if !fields.has("active_flow") && !fields.has("active_loop") {
            context.error(
                "F0108",
                node,
                "a condition of a mapping must be `active_flow: <flow>`",
                "Write `- active_flow: <flow>`.",
            );
        }
    }
    flows
}

fn validation(context: &mut LoadContext<'_>, node: &Node, slot: &SlotName) -> Option<Validation> {
    let fields = context.fields(node, &VALIDATION)?;
    let rejections = rejections(context, &fields, slot);
    let refill_utter = match fields.node("refill_utter") {
        Some(node) => {
            context.reference(ReferenceKind::Response, node);
            ResponseName::from(node.text()?)
        }
        None => ResponseName::from(format!("utter_ask_{slot}")),
    };
    Some(Validation { rejections, refill_utter })
}

/// Reads `rejections` of a slot or of a collect step.
pub(super) fn rejections(context: &mut LoadContext<'_>, fields: &MapFields<'_>, slot: &SlotName) -> Vec<Rejection> {
    let mut rejections = Vec::new();
    for node in fields.list("rejections") {
        let Some(item) = context.fields(node, &REJECTION) else { continue };
        let condition =
            item.node("if").and_then(|node| context.condition(node, ConditionRole::Rejection(slot.clone())));
        let utter = item.node("utter");
        if let Some(utter) = utter {
            context.reference(ReferenceKind::Response, utter);
        }
        if let (Some(condition), Some(utter)) = (condition, utter.and_then(Node::text)) {
            rejections.push(Rejection { condition, utter: utter.into() });
        }
    }
    rejections
}

/// Adds the built-in slots that neither the project nor the patterns define.
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
            write_once: false,
            public: false,
            builtin: true,
            place: SourceLocation::default(),
        });
    }
}
