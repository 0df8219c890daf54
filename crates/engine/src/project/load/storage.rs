//! Reads `storage` of missions: the folders that the file tools of a run may use.

use std::sync::Arc;

use super::{
    super::{
        load_context::{LoadContext, MapFields},
        missions::{PacketDef, StorageDef},
        schema::{PACKET, STORAGE},
        yaml::Node,
    },
    missions::plain,
};

/// Names of folders that runs have by themselves.
const OWN: [&str; 2] = ["memory", "scratchpad"];
/// The folder of the packets that are given by name only.
const PACKETS: &str = "packets";

/// Reads the folders of a mission.
pub(super) fn read(context: &mut LoadContext<'_>, mission: &MapFields<'_>) -> StorageDef {
    let mut storage = StorageDef::default();
    if let Some(fields) = mission.node("storage").and_then(|node| context.fields(node, &STORAGE)) {
        storage.memory = fields.shared("memory");
        storage.scratchpad = fields.flag("scratchpad");
        shared(context, &fields, "shared", &mut storage);
        packets(context, &fields, "packets", &mut storage);
    }
    shared(context, mission, "memories", &mut storage);
    packets(context, mission, "packets", &mut storage);
    storage
}

/// The names of a list, or the keys of a map with their values.
fn entries<'n>(
    context: &mut LoadContext<'_>,
    fields: &MapFields<'n>,
    key: &str,
) -> Vec<(&'n Node, &'n str, Option<&'n Node>)> {
    let Some(node) = fields.node(key).filter(|node| !node.is_null()) else { return Vec::new() };
    if let Some(items) = node.list() {
        let named = items.iter().filter_map(|item| Some((item, item.text()?, None)));
        return named.collect();
    }
    let Some(entries) = node.map() else {
        let message = format!("`{key}` must be a list of names or a map by name, but this is {}", node.kind());
        context.error("F0108", node, message, format!("Write for example `{key}: [reference]`."));
        return Vec::new();
    };
    entries.iter().map(|entry| (&entry.at, entry.key.as_str(), Some(&entry.node))).collect()
}

fn shared(context: &mut LoadContext<'_>, fields: &MapFields<'_>, key: &str, storage: &mut StorageDef) {
    for (at, name, description) in entries(context, fields, key) {
        let name = plain(name, "memory.");
        if !context.identifier(name, at, "a shared folder") {
            continue;
        }
        if OWN.contains(&name) {
            let message = format!("`{name}` is a folder that runs have by themselves");
            context.error("F0856", at, message, "Choose another name.");
        } else if storage.shared.contains_key(name) {
            context.error("F0856", at, format!("the shared folder `{name}` is listed twice"), "List it once.");
        } else {
            let description = description.and_then(Node::text).unwrap_or_default();
            storage.shared.insert(name.into(), description.into());
        }
    }
}

/// Reads `packets` of a mission or a task. A packet that was read before may be named again.
pub(super) fn packets(context: &mut LoadContext<'_>, fields: &MapFields<'_>, key: &str, storage: &mut StorageDef) {
    for (at, name, value) in entries(context, fields, key) {
        let name = plain(name, "packets.");
        if !context.identifier(name, at, "a packet") || (value.is_none() && storage.packets.contains_key(name)) {
            continue;
        }
        if storage.packets.contains_key(name) {
            context.error("F0856", at, format!("the packet `{name}` is already defined"), "Define it once.");
            continue;
        }
        let place = context.place(at);
        let Some((path_at, path, description)) = packet(context, at, name, value) else { continue };
        if is_below_project(&path) {
            storage.packets.insert(name.into(), PacketDef { path, description, place });
        } else {
            let message = format!("the path of the packet `{name}` must be that of a folder in the project");
            let help = "Write a relative path without `..`, such as `handbook/rules`.";
            context.error("F0856", path_at, message, help);
        }
    }
}

/// The path of a packet, where it is written, and its description.
fn packet<'n>(
    context: &mut LoadContext<'_>,
    at: &'n Node,
    name: &str,
    value: Option<&'n Node>,
) -> Option<(&'n Node, Arc<str>, Arc<str>)> {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Some((at, format!("{PACKETS}/{name}").into(), "".into()));
    };
    if let Some(path) = value.text() {
        return Some((value, trimmed(path), "".into()));
    }
    let fields = context.fields(value, &PACKET)?;
    Some((fields.at("path"), trimmed(fields.text("path")?), fields.shared("description").unwrap_or_default()))
}

fn trimmed(path: &str) -> Arc<str> {
    path.trim_start_matches("./").trim_end_matches('/').into()
}

/// Whether a path leads from the project to a folder below it.
fn is_below_project(path: &str) -> bool {
    !path.contains(['\\', ':', '\0']) && path.split('/').all(|name| !matches!(name, "" | "." | ".."))
}
