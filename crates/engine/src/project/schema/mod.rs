//! Every key of the project files, declared once: where it stands, its type, its default, and whether it works here.
//!
//! The loader reads maps by these declarations, so a key that is not declared is an unknown key. The reference page
//! ([`reference`]) and the JSON Schemas for editors ([`json_schema`]) are made from them.

mod agents;
mod cases;
mod channels;
mod config;
mod domain;
mod endpoints;
mod flows;
pub(super) mod json_schema;
mod reference;
mod services;

use std::fmt;

pub(crate) use self::{
    agents::{AGENT, AGENT_FILE, AGENT_TOOL, AUTH, CLAIM, CONFIGURATION, CONNECTION, CONNECTIONS, REMOTE_OUTPUT},
    cases::{
        ASSERTION, CONFTEST, FLOW_ASSERTION, FLOWS_ASSERTION, GENERATIVE, LLM_JUDGE, SLOT_ASSERTION, STUB_ACTION,
        STUB_AGENT, STUB_TOOL, TEST_CASE, TEST_FILE, TEST_STEP, TEST_STEP_KINDS, TOOL_ASSERTION, UTTERED,
        UTTERED_BUTTON,
    },
    channels::{CHANNEL, CREDENTIALS, MCP_ARGUMENT, MCP_CHANNEL, MCP_PROMPT, MCP_RESOURCE, REST},
    config::{COMPAT, CONFIG, DOCUMENTS, GENERATOR, RETRIEVAL, SEARCH, USER_INPUT},
    domain::{
        ACTION, BUTTON, DOMAIN, MAPPING, MAPPING_CONDITION, REJECTION, RESPONSE_METADATA, SESSION, SLOT,
        SLOT_CONDITION, VALIDATION, VARIATION,
    },
    endpoints::{
        ACTION_ENDPOINT, BASIC_AUTH, ENDPOINTS, MCP_META, MCP_META_KEY, MCP_META_SLOT, MCP_OAUTH, MCP_SERVER, MODEL,
        MODEL_GROUP, OAUTH, VECTOR_STORE,
    },
    flows::{
        BRANCH, DTMF, FLOW, FLOW_FILE, FLOW_TRANSLATION, STEP, STEP_KINDS, TOOL_INPUT, TOOL_MAPPING, TOOL_OUTPUT,
        TRIGGER, TRIGGER_INTENT, belongs,
    },
    services::{
        A2A_AUTH, A2A_SERVER, HTTP, INTERACTION, JWT, LOCK_STORE, METRICS, NLG, PRIVACY, ROUTER, SERVER, TRACING,
        TRACKER_STORE,
    },
};
pub use self::{
    json_schema::{ProjectFile, json_schema},
    reference::reference,
};

/// The schema of one kind of map in a project's files. A channel from outside hands one of its own to the loader
/// ([`Sources::channels`](super::Sources::channels)).
pub struct MapSchema {
    /// What the map is called in messages: `step`, `slot`.
    pub name: &'static str,
    /// The file it stands in.
    pub file: &'static str,
    /// The keys it may have.
    pub keys: &'static [Key],
    /// What happens to a key that is not declared.
    pub unknown: UnknownKeys,
}

/// What happens to a key that is not declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownKeys {
    /// It is an error.
    Refused,
    /// It is a warning and the key is left out.
    Warned,
    /// It is kept; only a likely typo is a warning.
    Kept,
}

/// One key.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Names it had before, which still work.
    pub older: &'static [&'static str],
    /// What it takes.
    pub takes: ValueType,
    /// Whether it must be there.
    pub required: bool,
    /// The value it has unless set, where that is one value.
    pub default: Option<&'static str>,
    /// Whether it works here.
    pub support: Support,
    /// What it is for, in one sentence.
    pub doc: &'static str,
}

/// Whether a key works here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It works.
    Full,
    /// It is accepted and has no effect; nothing is lost, so nothing is said. Why, where that is not plain.
    Accepted(&'static str),
    /// It is accepted with a warning: why, and what to do.
    AcceptedWithWarning(&'static str),
    /// It is refused: why, and what to do.
    Refused(&'static str),
}

/// The type of a key's value. The loader checks the outermost form and items that are texts; what stands further inside is
/// checked where the key is read.
#[derive(Clone, Copy)]
pub enum ValueType {
    /// A text; a number or a boolean without quotes counts as the text it was written as.
    Text,
    /// A text that must come from the environment: `${NAME}`.
    Secret,
    /// `true` or `false`.
    Bool,
    /// A condition as text, or `true` or `false`.
    Condition,
    /// A number.
    Number,
    /// A whole number, 0 or more.
    Whole,
    /// A whole number, 1 or more.
    Positive,
    /// A number of seconds above 0.
    Seconds,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// One of these texts; the reader of the key says what is wrong with another.
    Known(&'static [&'static str]),
    /// A list of texts.
    Texts,
    /// A text or a list of texts.
    TextOrTexts,
    /// A list.
    List(&'static ValueType),
    /// A map from names that the author chooses.
    Map(&'static ValueType),
    /// A map with declared keys.
    Section(&'static MapSchema),
    /// One of several forms; the reader of the key tells them apart.
    AnyOf(&'static [ValueType]),
    /// Nothing.
    Null,
    /// Anything.
    Any,
}

impl ValueType {
    /// What the loader expects, for messages.
    pub fn expected(self) -> String {
        match self {
            Self::Text | Self::Secret | Self::Known(_) => "a text".into(),
            Self::Bool => "`true` or `false`".into(),
            Self::Condition => "a condition as text, or `true` or `false`".into(),
            Self::Number => "a number".into(),
            Self::Whole => "a whole number, 0 or more".into(),
            Self::Positive => "a whole number, 1 or more".into(),
            Self::Seconds => "a number of seconds above 0".into(),
            Self::OneOf(names) => format!("one of `{}`", names.join("`, `")),
            Self::Texts => "a list of texts".into(),
            Self::TextOrTexts => "a text or a list of texts".into(),
            Self::List(_) => "a list".into(),
            Self::Map(_) | Self::Section(_) => "a map".into(),
            Self::Null => "nothing".into(),
            Self::AnyOf(_) | Self::Any => "a value".into(),
        }
    }

    /// The whole of it, for the reference.
    pub fn described(self) -> String {
        match self {
            Self::Secret => "a text, as `${NAME}`".into(),
            Self::Known(names) => Self::OneOf(names).expected(),
            Self::Section(schema) => format!("a map: {}", schema.a()),
            Self::List(Self::Any) | Self::Map(Self::Any) => self.expected(),
            Self::List(item) => format!("a list, each item {}", item.described()),
            Self::Map(value) => format!("a map by name, each value {}", value.described()),
            Self::AnyOf(forms) => forms.iter().map(|form| form.described()).collect::<Vec<_>>().join("; or "),
            other => other.expected(),
        }
    }
}

/// A key that may be left out, and works.
pub const fn key(name: &'static str, takes: ValueType, doc: &'static str) -> Key {
    Key { name, older: &[], takes, required: false, default: None, support: Support::Full, doc }
}

impl Key {
    /// The key must be there.
    #[must_use]
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }
    /// The value it has unless set.
    #[must_use]
    pub const fn default(mut self, value: &'static str) -> Self {
        self.default = Some(value);
        self
    }
    /// Names it had before.
    #[must_use]
    pub const fn older(mut self, names: &'static [&'static str]) -> Self {
        self.older = names;
        self
    }
    pub(crate) const fn accepted(mut self, why: &'static str) -> Self {
        self.support = Support::Accepted(why);
        self
    }
    pub(crate) const fn warned(mut self, why: &'static str) -> Self {
        self.support = Support::AcceptedWithWarning(why);
        self
    }
    pub(crate) const fn refused(mut self, why: &'static str) -> Self {
        self.support = Support::Refused(why);
        self
    }
    /// Its name, then the older ones.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.older.iter().copied())
    }
}

impl MapSchema {
    /// A map that is called `name` in messages and stands in `file`; its keys follow.
    pub const fn new(name: &'static str, file: &'static str, unknown: UnknownKeys) -> Self {
        Self { name, file, keys: &[], unknown }
    }
    /// The keys it may have.
    #[must_use]
    pub const fn keys(mut self, keys: &'static [Key]) -> Self {
        self.keys = keys;
        self
    }
    /// Its name with the article: `a step`, `an agent's configuration`.
    pub(crate) fn a(&self) -> String {
        let first = self.name.trim_start_matches('`').split(' ').next().unwrap_or_default();
        let is_spelled = !first.chars().any(char::is_lowercase);
        // Of an acronym the name of its first letter is spoken: an MCP server.
        let vowels = if is_spelled { "AEFHILMNORSX" } else { "aeio" };
        let article = if first.starts_with(|c: char| vowels.contains(c)) { "an" } else { "a" };
        format!("{article} {}", self.name)
    }
    /// A key by its name, or by one it had before.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.names().any(|one| one == name))
    }
    /// The names of keys that may be written.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().filter(|key| !matches!(key.support, Support::Refused(_))).map(|key| key.name)
    }
}

// Schemas refer to one another in circles: a step holds branches, which hold steps.
impl fmt::Debug for MapSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapSchema").field("name", &self.name).field("file", &self.file).finish_non_exhaustive()
    }
}

impl fmt::Debug for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.described())
    }
}

/// All schemas, in the order of the reference.
pub static SCHEMAS: &[&MapSchema] = &[
    &CONFIG,
    &GENERATOR,
    &RETRIEVAL,
    &USER_INPUT,
    &SEARCH,
    &DOCUMENTS,
    &COMPAT,
    &DOMAIN,
    &SLOT,
    &ACTION,
    &MAPPING,
    &MAPPING_CONDITION,
    &VALIDATION,
    &REJECTION,
    &VARIATION,
    &SLOT_CONDITION,
    &RESPONSE_METADATA,
    &BUTTON,
    &SESSION,
    &FLOW_FILE,
    &FLOW,
    &FLOW_TRANSLATION,
    &TRIGGER,
    &TRIGGER_INTENT,
    &STEP,
    &DTMF,
    &BRANCH,
    &TOOL_MAPPING,
    &TOOL_INPUT,
    &TOOL_OUTPUT,
    &ENDPOINTS,
    &ACTION_ENDPOINT,
    &BASIC_AUTH,
    &MODEL_GROUP,
    &MODEL,
    &ROUTER,
    &MCP_SERVER,
    &OAUTH,
    &MCP_OAUTH,
    &MCP_META,
    &MCP_META_SLOT,
    &MCP_META_KEY,
    &VECTOR_STORE,
    &NLG,
    &TRACKER_STORE,
    &LOCK_STORE,
    &INTERACTION,
    &PRIVACY,
    &TRACING,
    &METRICS,
    &SERVER,
    &HTTP,
    &A2A_SERVER,
    &A2A_AUTH,
    &JWT,
    &CREDENTIALS,
    &CHANNEL,
    &REST,
    &MCP_CHANNEL,
    &MCP_PROMPT,
    &MCP_ARGUMENT,
    &MCP_RESOURCE,
    &AGENT_FILE,
    &AGENT,
    &CONFIGURATION,
    &AGENT_TOOL,
    &CLAIM,
    &AUTH,
    &CONNECTIONS,
    &CONNECTION,
    &REMOTE_OUTPUT,
    &TEST_FILE,
    &CONFTEST,
    &LLM_JUDGE,
    &TEST_CASE,
    &TEST_STEP,
    &ASSERTION,
    &FLOWS_ASSERTION,
    &FLOW_ASSERTION,
    &SLOT_ASSERTION,
    &UTTERED,
    &UTTERED_BUTTON,
    &GENERATIVE,
    &TOOL_ASSERTION,
    &STUB_ACTION,
    &STUB_TOOL,
    &STUB_AGENT,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_declared_once_and_told_about() {
        for schema in SCHEMAS {
            for (at, key) in schema.keys.iter().enumerate() {
                assert!(key.doc.ends_with('.'), "{} / {}", schema.name, key.name);
                let twice = |name: &str| schema.keys[..at].iter().any(|other| other.names().any(|one| one == name));
                assert!(!key.names().any(twice), "{} / {}", schema.name, key.name);
            }
        }
    }

    #[test]
    fn a_map_is_named_with_the_article_it_is_spoken_with() {
        let a = |schema: &MapSchema| schema.a();
        assert_eq!((a(&MCP_SERVER).as_str(), a(&STEP).as_str()), ("an MCP server", "a step"));
        assert_eq!((a(&ACTION_ENDPOINT).as_str(), a(&NLG).as_str()), ("an action endpoint", "a `nlg` section"));
    }

    #[test]
    fn every_step_kind_is_a_key_of_steps() {
        for kind in STEP_KINDS {
            assert!(STEP.key(kind).is_some(), "{kind}");
        }
    }
}
