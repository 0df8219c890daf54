//! The tools that a model is offered. An agent offers the same ones in every turn, so what a wire and the hash need of them is
//! written once and kept with them.

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, OnceLock},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::request::ToolSpec;

/// The tools that a model is offered, in the order in which it sees them. Cheap to clone.
#[derive(Clone)]
pub struct ToolList(Arc<List>);

struct List {
    tools: Box<[ToolSpec]>,
    /// What was written of them, by [`Form`].
    written: [OnceLock<Box<[u8]>>; 3],
}

/// For whom tools are written.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// For the hash of a request.
    Canonical,
    /// For chat completions.
    Chat,
    /// For chat completions that know strictness.
    StrictChat,
}

impl ToolList {
    #[cfg(test)]
    /// Whether these very tools are in it: not equal ones but the same, so that nothing of them has to be read.
    pub(crate) fn is_of(&self, tools: &[ToolSpec]) -> bool {
        let same = |one: &ToolSpec, other: &ToolSpec| {
            Arc::ptr_eq(&one.name, &other.name)
                && Arc::ptr_eq(&one.description, &other.description)
                && Arc::ptr_eq(&one.parameters, &other.parameters)
                && one.strict == other.strict
        };
        self.len() == tools.len() && self.iter().zip(tools).all(|(one, other)| same(one, other))
    }

    /// The tools in a form, written by `write` if nobody has yet.
    pub(super) fn written(&self, form: Form, write: impl FnOnce(&[ToolSpec], &mut Vec<u8>)) -> &[u8] {
        let [canonical, chat, strict_chat] = &self.0.written;
        let place = match form {
            Form::Canonical => canonical,
            Form::Chat => chat,
            Form::StrictChat => strict_chat,
        };
        place.get_or_init(|| {
            let mut bytes = Vec::new();
            write(self, &mut bytes);
            bytes.into()
        })
    }
}

impl Deref for ToolList {
    type Target = [ToolSpec];
    fn deref(&self) -> &[ToolSpec] {
        &self.0.tools
    }
}

impl From<Vec<ToolSpec>> for ToolList {
    fn from(tools: Vec<ToolSpec>) -> Self {
        Self(Arc::new(List { tools: tools.into(), written: Default::default() }))
    }
}
impl<const N: usize> From<[ToolSpec; N]> for ToolList {
    fn from(tools: [ToolSpec; N]) -> Self {
        Vec::from(tools).into()
    }
}
impl FromIterator<ToolSpec> for ToolList {
    fn from_iter<I: IntoIterator<Item = ToolSpec>>(tools: I) -> Self {
        Vec::from_iter(tools).into()
    }
}

/// No tools.
impl Default for ToolList {
    fn default() -> Self {
        static NONE: OnceLock<ToolList> = OnceLock::new();
        NONE.get_or_init(|| Vec::new().into()).clone()
    }
}

impl PartialEq for ToolList {
    fn eq(&self, other: &Self) -> bool {
        self.0.tools == other.0.tools
    }
}
impl fmt::Debug for ToolList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.tools, f)
    }
}
impl Serialize for ToolList {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        self.0.tools.serialize(s)
    }
}
impl<'de> Deserialize<'de> for ToolList {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Vec::deserialize(d).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> ToolSpec {
        ToolSpec { name: name.into(), description: "".into(), parameters: Arc::default(), strict: false }
    }

    #[test]
    fn a_list_is_of_the_same_tools_and_not_of_equal_ones() {
        let tools = vec![tool("a"), tool("b")];
        let list = ToolList::from(tools.clone());
        assert!(list.is_of(&tools));
        assert!(!list.is_of(&tools[..1]));
        assert!(!list.is_of(&[tools[1].clone(), tools[0].clone()]));
        assert!(!list.is_of(&[tools[0].clone(), ToolSpec { strict: true, ..tools[1].clone() }]));
        assert!(!list.is_of(&[tool("a"), tool("b")]));
        assert_eq!(list, ToolList::from([tool("a"), tool("b")]));
    }

    #[test]
    fn each_form_is_written_once() {
        let list = ToolList::from([tool("a")]);
        let forms = [(Form::Canonical, b"1"), (Form::Chat, b"2"), (Form::StrictChat, b"3")];
        for (form, text) in forms {
            assert_eq!(list.written(form, |_, out| out.extend(text)), text);
        }
        for (form, text) in forms {
            assert_eq!(list.clone().written(form, |_, out| out.push(b'4')), text);
        }
    }
}
