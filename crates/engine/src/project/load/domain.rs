//! Reads the files of the domain and merges them. Definitions of the project take precedence over built-in ones.

use std::sync::Arc;

use indexmap::{IndexMap, IndexSet};
use serde_json::{Map, Value as Json, json};

use super::{
    super::{
        ActionDef, Config, Domain, ResponseDef, SessionConfig, SlotDef, SourceFile,
        load_context::{LoadContext, MapFields, describe},
        references::ReferenceKind,
        schema::{ACTION, DOMAIN, SESSION},
        yaml::{Entry, Node},
    },
    responses, slots,
};
use crate::{
    finding::SourceLocation,
    ids::{ActionName, ResponseName, SlotName},
};

/// The merged domain of the files read so far.
#[derive(Default)]
pub(super) struct DomainBuilder {
    slots: IndexMap<SlotName, SlotDef>,
    responses: IndexMap<ResponseName, Arc<ResponseDef>>,
    actions: IndexMap<ActionName, ActionDef>,
    intents: IndexSet<Arc<str>>,
    session: Option<SessionConfig>,
    session_place: Option<SourceLocation>,
    /// The sections as written in the files, for action servers.
    json: IndexMap<&'static str, Json>,
}

/// Whether a file in a data folder is a part of the domain.
pub(super) fn is_domain_file(root: &Node) -> bool {
    let keys = ["slots", "responses", "actions", "intents", "entities", "forms", "session_config"];
    keys.iter().any(|key| root.get(key).is_some())
}

impl DomainBuilder {
    /// Reads a file of the domain.
    pub(super) fn file(&mut self, context: &mut LoadContext<'_>, file: &SourceFile) {
        if let Some(root) = context.open(file) {
            self.root(context, &root);
        }
    }

    /// Reads a parsed file.
    pub(super) fn root(&mut self, context: &mut LoadContext<'_>, root: &Node) {
        if root.is_null() {
            return;
        }
        let Some(fields) = context.fields(root, &DOMAIN) else { return };
        for entry in fields.map("slots") {
            self.slot(context, entry);
        }
        for entry in fields.map("responses") {
            self.response(context, entry);
        }
        for node in fields.list("actions") {
            self.action(context, node);
        }
        for node in fields.list("intents") {
            self.intent(context, node);
        }
        if let Some(node) = fields.node("session_config") {
            self.session(context, node);
        }
        self.merge_json(&fields);
    }

    fn slot(&mut self, context: &mut LoadContext<'_>, entry: &Entry) {
        let Some(slot) = slots::slot(context, entry) else { return };
        match self.slots.get(entry.key.as_str()) {
            None => {
                self.slots.insert(slot.name.clone(), slot);
            }
            Some(first) => report_duplicate(context, "slot", entry, &first.place.clone()),
        }
    }

    fn response(&mut self, context: &mut LoadContext<'_>, entry: &Entry) {
        let Some(response) = responses::response(context, entry) else { return };
        match self.responses.get(entry.key.as_str()) {
            None => {
                self.responses.insert(response.name.clone(), Arc::new(response));
            }
            Some(first) => report_duplicate(context, "response", entry, &first.place.clone()),
        }
    }

    /// `action_x`, or `action_x: {send_domain: true, inputs: [slot]}`.
    fn action(&mut self, context: &mut LoadContext<'_>, node: &Node) {
        let (name, more) = match (node.text(), node.map()) {
            (Some(name), _) => (name, ActionDef::default()),
            (None, Some([entry])) => (entry.key.as_str(), action_settings(context, &entry.node)),
            _ => {
                let message = format!("an action must be a name, but this is {}", describe(node));
                context.error(
                    "F0108",
                    node,
                    message,
                    "Write `- action_name`, or `- action_name: {send_domain: true}`.",
                );
                return;
            }
        };
        if !context.builtin {
            context.listed_actions.push((ActionName::from(name), context.place(node)));
        }
        let action = self.actions.entry(ActionName::from(name)).or_default();
        action.send_domain |= more.send_domain;
        action.inputs = action.inputs.take().or(more.inputs);
    }

    fn intent(&mut self, context: &mut LoadContext<'_>, node: &Node) {
        let name = node.text().or(match node.map() {
            Some([entry]) => Some(entry.key.as_str()),
            _ => None,
        });
        match name {
            Some(name) => _ = self.intents.insert(name.into()),
            None => {
                let message = format!("an intent must be a name, but this is {}", describe(node));
                context.error("F0108", node, message, "Write `- intent_name`.");
            }
        }
    }

    fn session(&mut self, context: &mut LoadContext<'_>, node: &Node) {
        let Some(fields) = context.fields(node, &SESSION) else { return };
        if let Some(first) = &self.session_place {
            let message = format!("`session_config` is already defined in {}:{}", first.file, first.line);
            context.warning("F0304", node, message, "The first one is used; remove this one.");
            return;
        }
        let default = SessionConfig::default();
        let minutes = fields.number("session_expiration_time").unwrap_or(default.expiration_minutes);
        if minutes < 0.0 {
            let at = fields.at("session_expiration_time");
            context.error(
                "F0315",
                at,
                "`session_expiration_time` must be 0 (never) or more",
                "Write minutes, such as 60.",
            );
        }
        let start_after_expiry = fields.bool("start_session_after_expiry").unwrap_or(default.start_after_expiry);
        if !start_after_expiry && fields.has("carry_over_slots_to_new_session") {
            let at = fields.at("carry_over_slots_to_new_session");
            let message = "`carry_over_slots_to_new_session` has no effect while `start_session_after_expiry` is false";
            context.warning("F0315", at, message, "Remove one of the two.");
        }
        self.session_place = Some(context.place(node));
        self.session = Some(SessionConfig {
            expiration_minutes: minutes.max(0.0),
            carry_over_slots: fields.bool("carry_over_slots_to_new_session").unwrap_or(default.carry_over_slots),
            start_after_expiry,
        });
    }

    /// Merges the sections as written: maps by key, lists without duplicates. The first value takes precedence.
    fn merge_json(&mut self, fields: &MapFields<'_>) {
        for section in ["slots", "responses", "forms"] {
            let into = self.json.entry(section).or_insert_with(|| json!({}));
            if let (Json::Object(into), Some(from)) = (into, fields.json_map(section)) {
                for (key, value) in from {
                    into.entry(key).or_insert(value);
                }
            }
        }
        for section in ["actions", "intents", "entities", "e2e_actions"] {
            let into = self.json.entry(section).or_insert_with(|| json!([]));
            if let Json::Array(into) = into {
                for value in fields.list(section).iter().map(Node::json) {
                    if !into.contains(&value) {
                        into.push(value);
                    }
                }
            }
        }
    }

    /// The merged domain, including built-in slots.
    pub(super) fn finish(mut self, context: &mut LoadContext<'_>, config: &Config) -> Domain {
        slots::add_builtin(&mut self.slots, config);
        context.file = "".into();
        let session = self.session.unwrap_or_default();
        let mut json = Map::new();
        json.insert("config".into(), json!({"store_entities_as_slots": true}));
        json.insert(
            "session_config".into(),
            json!({
                "session_expiration_time": session.expiration_minutes,
                "carry_over_slots_to_new_session": session.carry_over_slots,
            }),
        );
        for section in ["intents", "entities", "slots", "responses", "actions", "forms", "e2e_actions"] {
            let empty = if matches!(section, "slots" | "responses" | "forms") { json!({}) } else { json!([]) };
            json.insert(section.into(), self.json.swap_remove(section).unwrap_or(empty));
        }
        Domain {
            slots: self.slots,
            responses: self.responses,
            actions: self.actions,
            intents: self.intents.into_iter().collect(),
            session,
            as_json: Json::Object(json),
        }
    }
}

fn action_settings(context: &mut LoadContext<'_>, node: &Node) -> ActionDef {
    if node.map().is_none() {
        return ActionDef::default();
    }
    let Some(fields) = context.fields(node, &ACTION) else { return ActionDef::default() };
    let inputs = fields.has("inputs").then(|| {
        let nodes = fields.texts("inputs");
        nodes.iter().for_each(|node| context.reference(ReferenceKind::Slot, node));
        nodes.into_iter().filter_map(Node::text).map(SlotName::from).collect()
    });
    ActionDef { send_domain: fields.flag("send_domain"), inputs }
}

/// Reports a duplicate name in the project's files. A built-in definition is replaced without a finding.
fn report_duplicate(context: &mut LoadContext<'_>, what: &str, entry: &Entry, first: &SourceLocation) {
    if !context.builtin {
        let message = format!("the {what} `{}` is already defined in {}:{}", entry.key, first.file, first.line);
        context.warning("F0304", &entry.at, message, "The first one is used; remove or rename this one.");
    }
}
