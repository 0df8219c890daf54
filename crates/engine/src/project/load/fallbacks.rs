//! `fallbacks` of a model group's router: the groups that stand in for it.

use std::sync::Arc;

use super::super::{
    reader::{Reader, said},
    uses::Used,
    yaml::Node,
};

/// What stands for every group in the form of the map.
const EVERY: &str = "*";

/// The groups that stand in for the group `own`, in order, each once.
///
/// Written as one name, as a list of names, or as LiteLLM writes the fallbacks of all groups at once: a list of maps from a
/// group to those that stand in for it. Of these, what is said of `own` counts, then what is said of every group (`*`).
pub(super) fn fallbacks(reader: &mut Reader<'_>, own: &str, written: &Node) -> Vec<Arc<str>> {
    let mut found = Found { own: Vec::new(), every: Vec::new() };
    for item in written.list().unwrap_or(std::slice::from_ref(written)) {
        match item.map() {
            Some(entries) => {
                for entry in entries {
                    if entry.key != EVERY {
                        let place = reader.place(&entry.at);
                        reader.uses_name(Used::ModelGroup, &entry.key, place);
                    }
                    for name in entry.node.list().unwrap_or(std::slice::from_ref(&entry.node)) {
                        match entry.key.as_str() {
                            EVERY => name_of(reader, name, &mut found.every),
                            key if key == own => name_of(reader, name, &mut found.own),
                            // Of another group: only that it is there.
                            _ => name_of(reader, name, &mut Vec::new()),
                        }
                    }
                }
            }
            None => name_of(reader, item, &mut found.own),
        }
    }
    let mut groups: Vec<Arc<str>> = Vec::new();
    for group in found.own.into_iter().chain(found.every) {
        if *group != *own && !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

struct Found {
    own: Vec<Arc<str>>,
    every: Vec<Arc<str>>,
}

fn name_of(reader: &mut Reader<'_>, node: &Node, into: &mut Vec<Arc<str>>) {
    match node.text() {
        Some(name) => {
            reader.uses(Used::ModelGroup, node);
            into.push(name.into());
        }
        None => {
            let message = format!("`fallbacks` names model groups, but this is {}", said(node));
            reader.error("F0108", node, message, "Write `fallbacks: [spare]` with the ids of other groups.");
        }
    }
}
