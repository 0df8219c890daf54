//! The schema of the project files: every key with its file, type, default and support.
//!
//! The loader reads maps with these declarations, so a key that is not declared is an unknown key. The reference page
//! ([`reference`]) and the JSON Schemas for editors ([`json_schema`]) are generated from them.

mod agents;
mod channels;
mod config;
mod domain;
mod endpoints;
mod examples;
mod flows;
pub(super) mod json_schema;
mod missions;
mod reference;
mod services;
mod skills;
mod subagents;
mod test_cases;

use std::fmt;

pub(crate) use self::{
    agents::{
        AGENT, AGENT_FILE, AGENT_TOOL, AUTH, BUILTIN_TOOLS, CLAIM, CONFIGURATION, CONNECTION, CONNECTIONS, HTTP_TOOLS,
        REMOTE_OUTPUT,
    },
    channels::{
        CALLBACK, CHANNEL, CREDENTIALS, HOLD_WRITES_MS, MCP_ARGUMENT, MCP_CHANNEL, MCP_PROMPT, MCP_RESOURCE, OPENAI,
        REST, SOCKETIO, WEBSOCKET,
    },
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
        TRIGGER, TRIGGER_INTENT, is_key_of_kind,
    },
    missions::{
        BUDGET, COMMANDER, COMPACTION, CONCURRENCY, DATASET, FIELD, INPUT, ITERATOR, MISSION, MISSION_AGENT,
        MISSION_FILE, MISSION_TRIGGER, PACKET, QUESTIONS, REPEAT, ROUTE, STORAGE, TASK, TASK_ROUTER, TOOL_RESPONSE,
    },
    services::{
        A2A_AUTH, A2A_SERVER, HTTP, INTERACTION, JWT, LOCK_STORE, METRICS, NLG, PRIVACY, ROUTER, RUNS, SANDBOX, SERVER,
        TRACING, TRACKER_STORE, WORKSPACES,
    },
    skills::{SKILL, SKILL_SCRIPT},
    subagents::{
        ADMISSION, DELEGATION, DELEGATION_BUDGET, SUBAGENT_DEFAULTS, SUBAGENT_OVERRIDE, SUBAGENT_TYPE, SUBAGENTS,
        SUBAGENTS_FILE, TOKEN_BUDGET,
    },
    test_cases::{
        ASSERTION, CONFTEST, FLOW_ASSERTION, FLOWS_ASSERTION, GENERATIVE, LLM_JUDGE, SLOT_ASSERTION, STUB_ACTION,
        STUB_AGENT, STUB_TOOL, TEST_CASE, TEST_FILE, TEST_STEP, TEST_STEP_KINDS, TOOL_ASSERTION, UTTERED,
        UTTERED_BUTTON,
    },
};
pub use self::{
    json_schema::{ProjectFile, json_schema},
    reference::reference,
};

/// The schema of one kind of map in a project's files. A third-party channel passes its own schema to the loader
/// in [`Sources::channels`](super::Sources::channels).
pub struct MapSchema {
    /// What the map is called in messages: `step`, `slot`.
    pub name: &'static str,
    /// The file that contains it.
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
    /// It is a warning, and the key is ignored.
    IgnoredWithWarning,
    /// It is allowed; only a likely typo is a warning.
    Allowed,
}

/// One key.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Older names that still work.
    pub aliases: &'static [&'static str],
    /// The type of its value.
    pub value_type: ValueType,
    /// Whether it must be present.
    pub required: bool,
    /// The default value as it would be written; absent if there is none or it depends on something else.
    pub default: Option<&'static str>,
    /// Whether this version supports it.
    pub support: Support,
    /// The documentation: one sentence, printed in the reference and in editors.
    pub doc: &'static str,
}

/// Whether this version supports a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It works as documented.
    Full,
    /// It has no effect and needs none, so there is no finding. Holds the reason, or is empty where that is obvious.
    Accepted(&'static str),
    /// It is a warning. Holds the reason and what to do.
    AcceptedWithWarning(&'static str),
    /// It is an error. Holds the reason and what to do.
    Refused(&'static str),
}

/// The type of a key's value. The loader checks the outermost type and lists of strings; nested values are checked by the
/// code that reads the key.
#[derive(Clone, Copy)]
pub enum ValueType {
    /// A string. A number or a boolean without quotes is accepted and read as the string that is written.
    Text,
    /// A string that must come from the environment: `${NAME}`.
    Secret,
    /// `true` or `false`.
    Bool,
    /// A condition as a string, or `true` or `false`.
    Condition,
    /// A number.
    Number,
    /// An integer, 0 or more.
    Integer,
    /// An integer, 1 or more.
    PositiveInteger,
    /// A number of seconds above 0.
    Seconds,
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// One of these strings; the code that reads the key reports other values.
    OneOfUnchecked(&'static [&'static str]),
    /// A list of strings.
    TextList,
    /// A string or a list of strings.
    TextOrList,
    /// A list.
    List(&'static ValueType),
    /// A map with arbitrary keys.
    Map(&'static ValueType),
    /// A map with declared keys.
    Section(&'static MapSchema),
    /// One of several types; the code that reads the key distinguishes and checks them.
    AnyOf(&'static [ValueType]),
    /// Null.
    Null,
    /// Any value.
    Any,
}

impl ValueType {
    /// The expected value with an article, for messages: `a string`.
    pub fn expected(self) -> String {
        match self {
            Self::Text | Self::Secret | Self::OneOfUnchecked(_) => "a string".into(),
            Self::Bool => "`true` or `false`".into(),
            Self::Condition => "a condition as a string, or `true` or `false`".into(),
            Self::Number => "a number".into(),
            Self::Integer => "an integer, 0 or more".into(),
            Self::PositiveInteger => "an integer, 1 or more".into(),
            Self::Seconds => "a number of seconds above 0".into(),
            Self::OneOf(names) => format!("one of `{}`", names.join("`, `")),
            Self::TextList => "a list of strings".into(),
            Self::TextOrList => "a string or a list of strings".into(),
            Self::List(_) => "a list".into(),
            Self::Map(_) | Self::Section(_) => "a map".into(),
            Self::Null => "null".into(),
            Self::AnyOf(_) | Self::Any => "any value".into(),
        }
    }

    /// The complete type with nested types, for the reference.
    pub fn description(self) -> String {
        match self {
            Self::Secret => "a string of the form `${NAME}`".into(),
            Self::OneOfUnchecked(names) => Self::OneOf(names).expected(),
            Self::Section(schema) => format!("a map: {}", schema.name_with_article()),
            Self::List(Self::Any) | Self::Map(Self::Any) => self.expected(),
            Self::List(item) => format!("a list, each item {}", item.description()),
            Self::Map(value) => format!("a map by name, each value {}", value.description()),
            Self::AnyOf(forms) => forms.iter().map(|form| form.description()).collect::<Vec<_>>().join("; or "),
            other => other.expected(),
        }
    }
}

/// An optional, fully supported key without a default.
pub const fn key(name: &'static str, value_type: ValueType, doc: &'static str) -> Key {
    Key { name, aliases: &[], value_type, required: false, default: None, support: Support::Full, doc }
}

impl Key {
    /// Makes the key required.
    #[must_use]
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }
    /// Sets the default value, as it would be written in YAML.
    #[must_use]
    pub const fn default(mut self, value: &'static str) -> Self {
        self.default = Some(value);
        self
    }
    /// Adds older names that still work.
    #[must_use]
    pub const fn aliases(mut self, names: &'static [&'static str]) -> Self {
        self.aliases = names;
        self
    }
    pub(crate) const fn accepted(mut self, reason: &'static str) -> Self {
        self.support = Support::Accepted(reason);
        self
    }
    pub(crate) const fn accepted_with_warning(mut self, reason: &'static str) -> Self {
        self.support = Support::AcceptedWithWarning(reason);
        self
    }
    pub(crate) const fn refused(mut self, reason: &'static str) -> Self {
        self.support = Support::Refused(reason);
        self
    }
    /// Its name, then the aliases.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }
}

impl MapSchema {
    /// A schema without keys for a map that messages call `name` and that is part of `file`.
    pub const fn new(name: &'static str, file: &'static str, unknown: UnknownKeys) -> Self {
        Self { name, file, keys: &[], unknown }
    }
    /// Sets the keys it may have.
    #[must_use]
    pub const fn keys(mut self, keys: &'static [Key]) -> Self {
        self.keys = keys;
        self
    }
    /// Its name with the indefinite article: `a step`, `an agent's configuration`.
    pub(crate) fn name_with_article(&self) -> String {
        let first = self.name.trim_start_matches('`').split(' ').next().unwrap_or_default();
        let is_acronym = !first.chars().any(char::is_lowercase);
        // The article of an acronym depends on the name of its first letter: an MCP server.
        let vowels = if is_acronym { "AEFHILMNORSX" } else { "aeio" };
        let article = if first.starts_with(|c: char| vowels.contains(c)) { "an" } else { "a" };
        format!("{article} {}", self.name)
    }
    /// The key with this name or alias.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.names().any(|one| one == name))
    }
    /// The names of all keys that are not rejected.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().filter(|key| !matches!(key.support, Support::Refused(_))).map(|key| key.name)
    }
}

// Not derived: schemas contain each other in cycles (a step has branches, which have steps).
impl fmt::Debug for MapSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapSchema").field("name", &self.name).field("file", &self.file).finish_non_exhaustive()
    }
}

impl fmt::Debug for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.description())
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
    &SANDBOX,
    &WORKSPACES,
    &RUNS,
    &A2A_SERVER,
    &A2A_AUTH,
    &JWT,
    &CREDENTIALS,
    &CHANNEL,
    &REST,
    &WEBSOCKET,
    &SOCKETIO,
    &CALLBACK,
    &MCP_CHANNEL,
    &OPENAI,
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
    &SKILL_SCRIPT,
    &BUILTIN_TOOLS,
    &HTTP_TOOLS,
    &DELEGATION,
    &DELEGATION_BUDGET,
    &MISSION_FILE,
    &MISSION,
    &COMMANDER,
    &TOOL_RESPONSE,
    &COMPACTION,
    &MISSION_AGENT,
    &SKILL,
    &INPUT,
    &FIELD,
    &DATASET,
    &STORAGE,
    &PACKET,
    &BUDGET,
    &CONCURRENCY,
    &MISSION_TRIGGER,
    &TASK,
    &TASK_ROUTER,
    &ROUTE,
    &QUESTIONS,
    &REPEAT,
    &ITERATOR,
    &SUBAGENTS_FILE,
    &SUBAGENTS,
    &SUBAGENT_DEFAULTS,
    &ADMISSION,
    &TOKEN_BUDGET,
    &SUBAGENT_TYPE,
    &SUBAGENT_OVERRIDE,
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
    fn every_key_is_declared_once_and_documented() {
        for schema in SCHEMAS {
            for (at, key) in schema.keys.iter().enumerate() {
                assert!(key.doc.ends_with('.'), "{} / {}", schema.name, key.name);
                let twice = |name: &str| schema.keys[..at].iter().any(|other| other.names().any(|one| one == name));
                assert!(!key.names().any(twice), "{} / {}", schema.name, key.name);
            }
        }
    }

    #[test]
    fn the_article_follows_the_pronunciation_of_the_name() {
        assert_eq!(MCP_SERVER.name_with_article(), "an MCP server");
        assert_eq!(STEP.name_with_article(), "a step");
        assert_eq!(ACTION_ENDPOINT.name_with_article(), "an action endpoint");
        assert_eq!(NLG.name_with_article(), "a `nlg` section");
    }

    #[test]
    fn every_step_kind_is_a_key_of_steps() {
        for kind in STEP_KINDS {
            assert!(STEP.key(kind).is_some(), "{kind}");
        }
    }
}
