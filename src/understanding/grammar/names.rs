//! Names of flows, slots and agents as models write them.

use segue_engine::{
    ids::{AgentName, FlowId},
    project::SlotDef,
};

use super::Grammar;

/// Bytes of the longest name that is compared letter by letter with those of the project.
const LONGEST: usize = 200;

/// Takes a name from the start of a text: what stands around it is left out.
pub(super) fn take(text: &str) -> (&str, &str) {
    let open = text.trim_start_matches([' ', '\t', ':', '=', '(', '[', '{', '<', '\'', '"', '`', '*', '“', '‘']);
    let end = open.find(|c: char| !is_part(c)).unwrap_or(open.len());
    let (name, after) = open.split_at(end);
    (name, after.trim_start_matches(['\'', '"', '`', '*', '>', ']', '}', '”', '’']))
}

fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// The words up to the next sign, without what stands around them.
pub(super) fn clause(text: &str) -> &str {
    let open = text.trim_start_matches(|c: char| !c.is_alphanumeric());
    let end = open.find([',', ';', '.', ':', '(', '#', '|', '"', '\'', '`', '>']).unwrap_or(open.len());
    open.get(..end).unwrap_or_default().trim_end()
}

/// The names of a list, however they are parted.
pub(super) fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !is_part(c))
        .map(|name| name.trim_matches('-'))
        .filter(|name| !name.is_empty() && !matches!(*name, "and" | "or" | "flow" | "flows"))
}

/// Whether two names are the same but for case and separators.
pub(super) fn same(a: &str, b: &str) -> bool {
    let letters = |text: &'_ str| -> Vec<u8> {
        text.bytes().filter(|byte| !matches!(byte, b'_' | b'-' | b' ')).map(|byte| byte.to_ascii_lowercase()).collect()
    };
    a.len() <= LONGEST && letters(a) == letters(b)
}

/// The one of `names` that is meant: exactly that, or the only one that is the same but for case and separators.
fn meant<'n, T: AsRef<str> + 'n>(wanted: &str, names: impl Iterator<Item = T>) -> Option<T> {
    if wanted.is_empty() || wanted.len() > LONGEST {
        return None;
    }
    let mut near = names.filter(|name| same(wanted, name.as_ref()));
    let found = near.next()?;
    near.next().is_none().then_some(found)
}

impl Grammar<'_> {
    /// The author's flow that a name means.
    pub(super) fn flow(&self, name: &str) -> Option<FlowId> {
        if let Some(flow) = self.project.flow(name) {
            return (!flow.is_pattern()).then(|| flow.id.clone());
        }
        meant(name, self.project.user_flows().map(|flow| flow.id.as_str())).map(FlowId::from)
    }

    /// The slot that a name means.
    pub(super) fn slot(&self, name: &str) -> Option<&SlotDef> {
        let exact = self.project.slot(name);
        exact.or_else(|| self.project.slot(meant(name, self.project.domain.slots.keys().map(|name| name.as_str()))?))
    }

    /// The agent that a name means.
    pub(super) fn agent(&self, name: &str) -> Option<AgentName> {
        let exact = self.project.agent(name).map(|agent| agent.name.clone());
        exact.or_else(|| meant(name, self.project.agents.keys().map(|name| name.as_str())).map(AgentName::from))
    }

    /// The slot whose name stands there as two or three separate words, and what follows it.
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
