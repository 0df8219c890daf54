//! Reads flow files. [`super::steps`] reads the steps of a flow.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use indexmap::IndexMap;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use super::{
    super::{
        Flow, NluTrigger,
        load_context::{LoadContext, MapFields, describe},
        references::{ConditionRole, ReferenceKind},
        schema::{FLOW, FLOW_FILE, FLOW_TRANSLATION, TRIGGER, TRIGGER_INTENT},
        yaml::{Entry, Node},
    },
    first_bytes,
    steps::StepListBuilder,
};
use crate::{
    finding::SourceLocation,
    ids::{FlowId, SlotName},
};

/// The flows of the files read so far.
#[derive(Default)]
pub(super) struct FlowCollector {
    /// Names of agents: a `call` with one of these does not call a flow.
    agents: HashSet<String>,
    flows: IndexMap<FlowId, Arc<Flow>>,
    /// The locations of all flow ids, including flows with errors.
    written: HashMap<String, SourceLocation>,
    triggers: HashMap<String, (FlowId, SourceLocation)>,
}

/// Whether a file in a data folder contains flows or NLU data, rules or stories.
pub(super) fn is_flow_file(root: &Node) -> bool {
    ["flows", "nlu", "rules", "stories"].iter().any(|key| root.get(key).is_some())
}

impl FlowCollector {
    /// An empty collector. `agents`: the names of agents.
    pub(super) fn new(agents: HashSet<String>) -> Self {
        Self { agents, ..Self::default() }
    }

    /// Reads all flows of a parsed file.
    pub(super) fn file(&mut self, context: &mut LoadContext<'_>, root: &Node) {
        let Some(fields) = context.fields(root, &FLOW_FILE) else { return };
        for entry in fields.map("flows") {
            if let Some(first) = self.written.get(&entry.key) {
                if !context.builtin {
                    let message =
                        format!("the flow `{}` is already defined in {}:{}", entry.key, first.file, first.line);
                    context.error("F0202", &entry.at, message, "Give each flow a unique id.");
                }
                continue;
            }
            self.written.insert(entry.key.clone(), context.place(&entry.at));
            if let Some(flow) = self.flow(context, entry) {
                self.flows.insert(flow.id.clone(), Arc::new(flow));
            }
        }
    }

    /// All flows in the order of the files.
    pub(super) fn finish(self) -> IndexMap<FlowId, Arc<Flow>> {
        self.flows
    }

    fn flow(&mut self, context: &mut LoadContext<'_>, entry: &Entry) -> Option<Flow> {
        let id = FlowId::from(entry.key.as_str());
        if !is_flow_id(&entry.key) {
            let message = format!("`{id}` is not a valid flow id");
            let help = "Use letters, digits, `_` and `-`, and do not start with `-`.";
            context.error("F0201", &entry.at, message, help);
        }
        let fields = context.fields(&entry.node, &FLOW)?;
        if fields.text("description").is_some_and(|text| text.trim().is_empty()) {
            let help = "Write what the flow does; the model chooses flows by their descriptions.";
            context.error("F0215", fields.at("description"), "the description of a flow must not be empty", help);
        }
        let persisted_slots = self.persisted(context, &fields);
        let nlu_triggers = self.triggers(context, &fields, &id);
        let guard = fields.node("if").and_then(|node| context.condition(node, ConditionRole::Guard));
        let steps = fields.node("steps").and_then(Node::list).unwrap_or_default();
        if steps.is_empty() && fields.node("steps").is_some() {
            context.error(
                "F0203",
                fields.at("steps"),
                "a flow needs at least one step",
                "Add a step such as `- action: utter_…`.",
            );
        }
        let (steps, index) = StepListBuilder::new(&id, &self.agents).read(context, steps);
        Some(Flow {
            name: fields.shared("name").unwrap_or_else(|| entry.key.replace(['_', '-'], " ").into()),
            translations: translations(context, &fields),
            description: fields.shared("description").unwrap_or_default(),
            guard,
            always_include_in_prompt: fields.flag("always_include_in_prompt"),
            nlu_triggers,
            run_pattern_completed: fields.flag("run_pattern_completed"),
            persisted_slots,
            steps,
            index,
            place: context.place(&entry.at),
            builtin: context.builtin,
            fingerprint: fingerprint(&entry.node),
            id,
        })
    }

    fn persisted(&self, context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> Vec<SlotName> {
        let mut slots = Vec::new();
        for node in fields.texts("persisted_slots") {
            context.reference(ReferenceKind::Slot, node);
            slots.extend(node.text().map(SlotName::from));
        }
        slots
    }

    fn triggers(&mut self, context: &mut LoadContext<'_>, fields: &MapFields<'_>, flow: &FlowId) -> Vec<NluTrigger> {
        let mut triggers = Vec::new();
        for node in fields.list("nlu_trigger") {
            let Some(intent) = context.fields(node, &TRIGGER).and_then(|item| item.node("intent")) else { continue };
            let (at, threshold) = match intent.map() {
                Some(_) => {
                    let Some(long) = context.fields(intent, &TRIGGER_INTENT) else { continue };
                    let Some(name) = long.node("name") else { continue };
                    (name, long.number("confidence_threshold").unwrap_or(0.0))
                }
                None => (intent, 0.0),
            };
            let Some(name) = at.text() else {
                let message = format!("an intent must be a name, but this is {}", describe(at));
                context.error("F0108", at, message, "Write `- intent: <name>`.");
                continue;
            };
            if let Some((other, place)) = self.triggers.get(name) {
                let message =
                    format!("the intent `{name}` already starts the flow `{other}` ({}:{})", place.file, place.line);
                context.error("F0213", at, message, "An intent may start only one flow; remove it from one of them.");
                continue;
            }
            context.reference(ReferenceKind::Intent, at);
            self.triggers.insert(name.to_owned(), (flow.clone(), context.place(at)));
            triggers.push(NluTrigger { intent: name.into(), confidence_threshold: threshold });
        }
        triggers
    }
}

/// Names by language: `de: {name: …}`, or `de: …`.
fn translations(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> Vec<(Arc<str>, Arc<str>)> {
    let mut names: Vec<(Arc<str>, Arc<str>)> = Vec::new();
    for entry in fields.map("translation") {
        let name = match entry.node.text() {
            Some(text) => Some(text.into()),
            None => context.fields(&entry.node, &FLOW_TRANSLATION).and_then(|long| long.shared("name")),
        };
        names.extend(name.map(|name| (entry.key.as_str().into(), name)));
    }
    names
}

/// `^[a-zA-Z0-9_][a-zA-Z0-9_-]*$`.
fn is_flow_id(id: &str) -> bool {
    !id.is_empty() && !id.starts_with('-') && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// A hash of the behaviour of a flow, without locations, comments and `metadata`.
fn fingerprint(node: &Node) -> u64 {
    fn strip(json: &mut Json) {
        match json {
            Json::Object(map) => {
                map.retain(|key, _| key != "metadata" && key != "file_path");
                map.values_mut().for_each(strip);
            }
            Json::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut json = node.json();
    strip(&mut json);
    let mut hasher = Sha256::new();
    hasher.update(json.to_string().as_bytes());
    first_bytes(hasher)
}
