//! Flow files: each flow with its own keys; its steps are read by [`super::steps`].

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
        reader::{Fields, Reader, said},
        schema::{FLOW, FLOW_FILE, FLOW_TRANSLATION, TRIGGER, TRIGGER_INTENT},
        uses::{Role, Used},
        yaml::{Entry, Node},
    },
    first_bytes,
    steps::Draft,
};
use crate::{
    finding::SourceLocation,
    ids::{FlowId, SlotName},
};

/// The flows while they are found.
#[derive(Default)]
pub(super) struct Found {
    /// Names of agents: a `call` that names one is no flow.
    agents: HashSet<String>,
    flows: IndexMap<FlowId, Arc<Flow>>,
    /// Every id that was written, also of flows that could not be read, and where.
    written: HashMap<String, SourceLocation>,
    triggers: HashMap<String, (FlowId, SourceLocation)>,
}

/// Whether a file of a data folder holds flows, or what stood there in older projects.
pub(super) fn is_flow_file(root: &Node) -> bool {
    ["flows", "nlu", "rules", "stories"].iter().any(|key| root.get(key).is_some())
}

impl Found {
    /// No flows yet; `agents` are the names that a `call` may mean instead of a flow.
    pub(super) fn new(agents: HashSet<String>) -> Self {
        Self { agents, ..Self::default() }
    }

    /// Reads all flows of a file that is already open.
    pub(super) fn file(&mut self, reader: &mut Reader<'_>, root: &Node) {
        let Some(fields) = reader.fields(root, &FLOW_FILE) else { return };
        for entry in fields.map("flows") {
            if let Some(first) = self.written.get(&entry.key) {
                if !reader.builtin {
                    let message = format!("the flow `{}` already stands in {}:{}", entry.key, first.file, first.line);
                    reader.error("F0202", &entry.at, message, "Give each flow an id of its own.");
                }
                continue;
            }
            self.written.insert(entry.key.clone(), reader.place(&entry.at));
            if let Some(flow) = self.flow(reader, entry) {
                self.flows.insert(flow.id.clone(), Arc::new(flow));
            }
        }
    }

    /// All flows in the order they were read.
    pub(super) fn finish(self) -> IndexMap<FlowId, Arc<Flow>> {
        self.flows
    }

    fn flow(&mut self, reader: &mut Reader<'_>, entry: &Entry) -> Option<Flow> {
        let id = FlowId::from(entry.key.as_str());
        if !is_flow_id(&entry.key) {
            let message = format!("`{id}` cannot be the id of a flow");
            let help = "Use letters, digits, `_` and `-`, and do not begin with `-`.";
            reader.error("F0201", &entry.at, message, help);
        }
        let fields = reader.fields(&entry.node, &FLOW)?;
        if fields.text("description").is_some_and(|text| text.trim().is_empty()) {
            let help = "Say what the user gets from it; the model chooses flows by this text.";
            reader.error("F0215", fields.at("description"), "the description of a flow must not be empty", help);
        }
        let persisted_slots = self.persisted(reader, &fields);
        let nlu_triggers = self.triggers(reader, &fields, &id);
        let guard = fields.node("if").and_then(|node| reader.condition(node, Role::Guard));
        let steps = fields.node("steps").and_then(Node::list).unwrap_or_default();
        if steps.is_empty() && fields.node("steps").is_some() {
            reader.error(
                "F0203",
                fields.at("steps"),
                "a flow needs at least one step",
                "Add a step such as `- action: utter_…`.",
            );
        }
        let (steps, index) = Draft::new(&id, &self.agents).read(reader, steps);
        Some(Flow {
            name: fields.shared("name").unwrap_or_else(|| entry.key.replace(['_', '-'], " ").into()),
            translations: translations(reader, &fields),
            description: fields.shared("description").unwrap_or_default(),
            guard,
            always_include_in_prompt: fields.flag("always_include_in_prompt"),
            nlu_triggers,
            run_pattern_completed: fields.flag("run_pattern_completed"),
            persisted_slots,
            steps,
            index,
            place: reader.place(&entry.at),
            builtin: reader.builtin,
            fingerprint: fingerprint(&entry.node),
            id,
        })
    }

    fn persisted(&self, reader: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<SlotName> {
        let mut slots = Vec::new();
        for node in fields.texts("persisted_slots") {
            reader.uses(Used::Slot, node);
            slots.extend(node.text().map(SlotName::from));
        }
        slots
    }

    fn triggers(&mut self, reader: &mut Reader<'_>, fields: &Fields<'_>, flow: &FlowId) -> Vec<NluTrigger> {
        let mut triggers = Vec::new();
        for node in fields.list("nlu_trigger") {
            let Some(intent) = reader.fields(node, &TRIGGER).and_then(|item| item.node("intent")) else { continue };
            let (at, threshold) = match intent.map() {
                Some(_) => {
                    let Some(long) = reader.fields(intent, &TRIGGER_INTENT) else { continue };
                    let Some(name) = long.node("name") else { continue };
                    (name, long.number("confidence_threshold").unwrap_or(0.0))
                }
                None => (intent, 0.0),
            };
            let Some(name) = at.text() else {
                let message = format!("an intent is a name, but this is {}", said(at));
                reader.error("F0108", at, message, "Write `- intent: <name>`.");
                continue;
            };
            if let Some((other, place)) = self.triggers.get(name) {
                let message =
                    format!("the intent `{name}` already starts the flow `{other}` ({}:{})", place.file, place.line);
                reader.error("F0213", at, message, "An intent starts one flow; remove it from one of them.");
                continue;
            }
            reader.uses(Used::Intent, at);
            self.triggers.insert(name.to_owned(), (flow.clone(), reader.place(at)));
            triggers.push(NluTrigger { intent: name.into(), confidence_threshold: threshold });
        }
        triggers
    }
}

/// Names by language: `de: {name: …}`, or `de: …`.
fn translations(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<(Arc<str>, Arc<str>)> {
    let mut names: Vec<(Arc<str>, Arc<str>)> = Vec::new();
    for entry in fields.map("translation") {
        let name = match entry.node.text() {
            Some(text) => Some(text.into()),
            None => reader.fields(&entry.node, &FLOW_TRANSLATION).and_then(|long| long.shared("name")),
        };
        names.extend(name.map(|name| (entry.key.as_str().into(), name)));
    }
    names
}

/// `^[a-zA-Z0-9_][a-zA-Z0-9_-]*$`.
fn is_flow_id(id: &str) -> bool {
    !id.is_empty() && !id.starts_with('-') && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// A hash over what a flow does; places, comments and editors' notes do not count.
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
