//! What an agent keeps from run to run, because it comes out the same each time: its stable prompts, which variables its own prompt
//! mentions, the tools of its profile, the lists of tools that it offers, and the exchanges of earlier turns that it has read.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
};

use segue_engine::{conversation::AgentKind, project::SlotType, template::Template};

use super::{AgentTask, exchanges::Exchanges, profile::Profile};
use crate::{
    limits,
    llm::{ChatMessage, ToolList, ToolSpec},
};

/// Values by what they were made of; few enough to look through.
type Kept<K, V> = Mutex<Vec<(K, V)>>;

/// What an agent keeps from run to run.
#[derive(Default)]
pub(super) struct Lasting {
    prompts: Kept<Stable, Arc<ChatMessage>>,
    mentioned: Kept<Template, Arc<[&'static str]>>,
    tools: Kept<Built, ToolSpec>,
    offered: Kept<ToolList, ToolList>,
    /// What conversations keep of earlier turns.
    pub(super) exchanges: Exchanges,
}

/// What one of our own prompts depends on: the agent's description and the calling step.
struct Stable {
    kind: AgentKind,
    description: Arc<str>,
    fillers: bool,
    slots: Vec<Arc<str>>,
}

/// What a tool of the profile depends on: its name, and the type of its slot.
struct Built {
    name: Arc<str>,
    kind: Option<SlotType>,
}

impl Lasting {
    /// The system message of an agent that has no prompt of its own.
    pub(super) fn prompt(
        &self,
        task: &AgentTask<'_>,
        profile: &Profile,
        render: impl FnOnce() -> Result<String, String>,
    ) -> Result<Arc<ChatMessage>, String> {
        let description = &task.definition.description;
        let same = |known: &Stable| {
            known.kind == profile.kind
                && known.fillers == profile.fillers
                && known.description == *description
                && known.slots == profile.exit_slots
        };
        let stable = || Stable {
            kind: profile.kind,
            description: description.clone(),
            fillers: profile.fillers,
            slots: profile.exit_slots.clone(),
        };
        kept(&self.prompts, same, || Ok((stable(), ChatMessage::system(render()?))))
    }

    /// Those of `variables`, always the same list, that a project's own prompt mentions.
    pub(super) fn mentioned(&self, prompt: &Template, variables: &[&'static str]) -> Arc<[&'static str]> {
        let look = || variables.iter().copied().filter(|name| prompt.mentions(name)).collect();
        let same = |known: &Template| known.is(prompt);
        made(kept(&self.mentioned, same, || Ok((prompt.clone(), look()))))
    }

    /// A tool of the profile, by its name and the type of its slot.
    pub(super) fn tool(&self, name: &str, kind: Option<&SlotType>, make: impl FnOnce() -> ToolSpec) -> ToolSpec {
        let same = |known: &Built| *known.name == *name && known.kind.as_ref() == kind;
        let built = || Built { name: name.into(), kind: kind.cloned() };
        made(kept(&self.tools, same, || Ok((built(), make()))))
    }

    /// These tools as a list: the one that was made of the same tools, if there is one.
    pub(super) fn offered(&self, tools: Vec<ToolSpec>) -> ToolList {
        let same = |known: &ToolList| known.is_of(&tools);
        made(kept(&self.offered, same, || {
            let list = ToolList::from(tools.clone());
            Ok((list.clone(), list))
        }))
    }
}

/// What comes of a making that cannot fail.
fn made<T>(done: Result<T, Infallible>) -> T {
    match done {
        Ok(value) => value,
        Err(never) => match never {},
    }
}

/// The value of the key that is the `same`, made if nobody has yet. A full list begins anew.
fn kept<K, V: Clone, E>(
    list: &Kept<K, V>,
    same: impl Fn(&K) -> bool,
    make: impl FnOnce() -> Result<(K, V), E>,
) -> Result<V, E> {
    let mut kept = list.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, value)) = kept.iter().find(|(known, _)| same(known)) {
        return Ok(value.clone());
    }
    let (key, value) = make()?;
    if kept.len() >= limits::AGENT_PROMPTS {
        kept.clear();
    }
    kept.push((key, value.clone()));
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stable_prompt_is_rendered_once_and_only_some_are_kept() {
        let list = Mutex::default();
        let get = |key: &str, made: Result<&'static str, &'static str>| {
            kept(&list, |known: &String| known == key, || made.map(|made| (key.to_owned(), made)))
        };
        assert_eq!(get("a", Err("broken")), Err("broken"));
        assert_eq!(get("a", Ok("first")), Ok("first"));
        assert_eq!(get("a", Ok("second")), Ok("first"));
        for n in 0..limits::AGENT_PROMPTS {
            assert_eq!(get(&n.to_string(), Ok("other")), Ok("other"));
        }
        assert_eq!(get("a", Ok("third")), Ok("third"));
    }
}
