//! Names of flows, slots and agents as models write them.

use segue_engine::{
    ids::{AgentName, FlowId},
    project::SlotDef,
};

use super::Grammar;

/// Length in bytes of the longest name that is compared with the names of the project regardless of case and separators.
const MAX_NAME_BYTES: usize = 200;

/// Splits a name from the start of `text`, without the quotes and brackets around it. Returns the name and the text after it.
pub(super) fn take(text: &str) -> (&str, &str) {
    let open = text.trim_start_matches([' ', '\t', ':', '=', '(', '[', '{', '<', '\'', '"', '`', '*', '“', '‘']);
    let end = open.find(|c: char| !is_part(c)).unwrap_or(open.len());
    let (name, after) = open.split_at(end);
    (name, after.trim_start_matches(['\'', '"', '`', '*', '>', ']', '}', '”', '’']))
}

fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// The words up to the next punctuation mark, trimmed.
pub(super) fn clause(text: &str) -> &str {
    let open = text.trim_start_matches(|c: char| !c.is_alphanumeric());
    let end = open.find([',', ';', '.', ':', '(', '#', '|', '"', '\'', '`', '>']).unwrap_or(open.len());
    open.get(..end).unwrap_or_default().trim_end()
}

/// The names of a list with any separators.
pub(super) fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !is_part(c))
        .map(|name| name.trim_matches('-'))
        .filter(|name| !name.is_empty() && !matches!(*name, "and" | "or" | "flow" | "flows"))
}

/// Whether two names are equal apart from case and separators.
pub(super) fn same(a: &str, b: &str) -> bool {
    let letters = |text: &'_ str| -> Vec<u8> {
        text.bytes().filter(|byte| !matches!(byte, b'_' | b'-' | b' ')).map(|byte| byte.to_ascii_lowercase()).collect()
    };
    a.len() <= MAX_NAME_BYTES && letters(a) == letters(b)
}

/// The only one of `names` that equals `wanted` apart from case and separators; `None` when none or several do.
fn unique_match<'n, T: AsRef<str> + 'n>(wanted: &str, names: impl Iterator<Item = T>) -> Option<T> {
    if wanted.is_empty() || wanted.len() > MAX_NAME_BYTES {
        return None;
    }
    let mut near = names.filter(|name| same(wanted, name.as_ref()));
    let found = near.next()?;
    near.next().is_none().then_some(found)
}

impl Grammar<'_> {
    /// The flow of the project that has this name: exactly, or as the only [`same`] one. Patterns are excluded.
    pub(super) fn flow(&self, name: &str) -> Option<FlowId> {
        if let Some(flow) = self.project.flow(name) {
            return (!flow.is_pattern()).then(|| flow.id.clone());
        }
        unique_match(name, self.project.user_flows().map(|flow| flow.id.as_str())).map(FlowId::from)
    }

    /// The slot that has this name: exactly, or as the only [`same`] one.
    pub(super) fn slot(&self, name: &str) -> Option<&SlotDef> {
        let exact = self.project.slot(name);
        exact.or_else(|| {
            self.project.slot(unique_match(name, self.project.domain.slots.keys().map(|name| name.as_str()))?)
        })
    }

    /// The agent that has this name: exactly, or as the only [`same`] one.
    pub(super) fn agent(&self, name: &str) -> Option<AgentName> {
        let exact = self.project.agent(name).map(|agent| agent.name.clone());
        exact.or_else(|| unique_match(name, self.project.agents.keys().map(|name| name.as_str())).map(AgentName::from))
    }

    /// A slot's name written as two or three separate words at the start of `text`, and the text after it.
    pub(super) fn spaced_slot<'t>(&self, text: &'t str) -> Option<(&'t str, &'t str)> {
        let open = text.trim_start();
        let ends = open.match_indices(' ').map(|(at, _)| at).chain([open.len()]).take(3).skip(1);
        let mut found = None;
        for end in ends {
            let (name, after) = open.split_at_checked(end)?;
            let name = name.trim_end_matches([':', '=']);
            if self.slot(name).is_some() {
                found = Some((name, after));
            }
        }
        found
    }
}
