//! Reads `fallbacks` of a model group's router: the groups to call when all its models fail.

use std::sync::Arc;

use super::super::{
    load_context::{LoadContext, describe},
    references::ReferenceKind,
    yaml::Node,
};

/// In the map form: the key for every group.
const EVERY: &str = "*";

/// The fallback groups of the group `own`, in order, without duplicates.
///
/// The value is a name, a list of names, or, as in LiteLLM, a list of maps with the fallbacks of all groups. Of these maps the
/// entries for `own` are used first, then those for every group (`*`). See <https://docs.litellm.ai/docs/routing>.
pub(super) fn fallbacks(context: &mut LoadContext<'_>, own: &str, written: &Node) -> Vec<Arc<str>> {
    let mut found = FallbackNames { own: Vec::new(), every: Vec::new() };
    for item in written.list().unwrap_or(std::slice::from_ref(written)) {
        match item.map() {
            Some(entries) => {
                for entry in entries {
                    if entry.key != EVERY {
                        let place = context.place(&entry.at);
                        context.reference_name(ReferenceKind::ModelGroup, &entry.key, place);
                    }
                    for name in entry.node.list().unwrap_or(std::slice::from_ref(&entry.node)) {
                        match entry.key.as_str() {
                            EVERY => name_of(context, name, &mut found.every),
                            key if key == own => name_of(context, name, &mut found.own),
                            // For another group: only check that the names exist.
                            _ => name_of(context, name, &mut Vec::new()),
                        }
                    }
                }
            }
            None => name_of(context, item, &mut found.own),
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

struct FallbackNames {
    own: Vec<Arc<str>>,
    every: Vec<Arc<str>>,
}

fn name_of(context: &mut LoadContext<'_>, node: &Node, into: &mut Vec<Arc<str>>) {
    match node.text() {
        Some(name) => {
            context.reference(ReferenceKind::ModelGroup, node);
            into.push(name.into());
        }
        None => {
            let message = format!("`fallbacks` must be ids of model groups, but this is {}", describe(node));
            context.error("F0108", node, message, "Write `fallbacks: [spare]` with the ids of other groups.");
        }
    }
}
