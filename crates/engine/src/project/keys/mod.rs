//! Every key of the format, declared once: where it stands, what it takes, and whether it works here.
//!
//! The loaders read by these tables, so a key that is not declared is an unknown key; the reference pages and the schemas for
//! editors are made from [`SHAPES`].

mod agents;
mod cases;
mod channels;
mod config;
mod domain;
mod endpoints;
mod flows;
mod reference;
mod services;

pub use self::reference::reference;
pub(crate) use self::{
    agents::{AGENT, AGENT_FILE, AGENT_TOOL, AUTH, CLAIM, CONFIGURATION, CONNECTION, CONNECTIONS, REMOTE_OUTPUT},
    cases::{
        ASSERTION, CONFTEST, FLOW_ASSERTION, FLOWS_ASSERTION, GENERATIVE, JUDGE_SHAPE, SLOT_ASSERTION, STUB_ACTION,
        STUB_AGENT, STUB_TOOL, TEST_CASE, TEST_FILE, TEST_STEP, TEST_STEP_KINDS, TOOL_ASSERTION, UTTERED,
        UTTERED_BUTTON,
    },
    channels::CREDENTIALS,
    config::{COMPAT, CONFIG, DOCUMENTS, GENERATOR, RETRIEVAL, SEARCH, USER_INPUT},
    domain::{ACTION, BUTTON, DOMAIN, MAPPING, REJECTION, RESPONSE_METADATA, SESSION, SLOT, VALIDATION, VARIATION},
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

/// One kind of map in a project's files.
#[derive(Debug)]
pub struct Shape {
    /// What it is called in messages: `step`, `slot`.
    pub name: &'static str,
    /// The file it stands in.
    pub file: &'static str,
    /// The keys it may have.
    pub keys: &'static [Key],
    /// What happens to a key that is not declared.
    pub unknown: Unknown,
}

/// What happens to a key that is not declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// It is an error.
    Refused,
    /// It is a warning and the key is left out.
    Warned,
    /// It is kept; only one that looks like a slip of the pen is warned about.
    Kept,
}

/// One key.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub takes: Takes,
    /// Whether it must be there.
    pub required: bool,
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
    Quiet(&'static str),
    /// It is accepted with a warning: why, and what to do.
    Warned(&'static str),
    /// It is refused: why, and what to do.
    Refused(&'static str),
}

/// What a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// A text; a number or a boolean without quotes counts as the text it was written as.
    Text,
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
    /// A list of anything.
    List,
    /// A list of texts.
    Texts,
    /// A map.
    Map,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// A text or a list of texts.
    TextOrTexts,
    /// Anything; the reader of the key looks further.
    Any,
}

impl Takes {
    /// What it takes, for people.
    pub fn expected(self) -> String {
        match self {
            Self::Text => "a text".into(),
            Self::Bool => "`true` or `false`".into(),
            Self::Condition => "a condition as text, or `true` or `false`".into(),
            Self::Number => "a number".into(),
            Self::Whole => "a whole number, 0 or more".into(),
            Self::Positive => "a whole number, 1 or more".into(),
            Self::Seconds => "a number of seconds above 0".into(),
            Self::List => "a list".into(),
            Self::Texts => "a list of texts".into(),
            Self::Map => "a map".into(),
            Self::OneOf(names) => format!("one of `{}`", names.join("`, `")),
            Self::TextOrTexts => "a text or a list of texts".into(),
            Self::Any => "a value".into(),
        }
    }
}

pub(crate) const fn key(name: &'static str, takes: Takes, doc: &'static str) -> Key {
    Key { name, takes, required: false, support: Support::Full, doc }
}

impl Key {
    pub(crate) const fn required(mut self) -> Self {
        self.required = true;
        self
    }
    pub(crate) const fn quiet(mut self) -> Self {
        self.support = Support::Quiet("");
        self
    }
    pub(crate) const fn quietly(mut self, why: &'static str) -> Self {
        self.support = Support::Quiet(why);
        self
    }
    pub(crate) const fn warned(mut self, why: &'static str) -> Self {
        self.support = Support::Warned(why);
        self
    }
    pub(crate) const fn refused(mut self, why: &'static str) -> Self {
        self.support = Support::Refused(why);
        self
    }
}

impl Shape {
    /// Its name with the article: `a step`, `an agent's configuration`.
    pub(crate) fn a(&self) -> String {
        let first = self.name.trim_start_matches('`').split(' ').next().unwrap_or_default();
        let is_spelled = !first.chars().any(char::is_lowercase);
        // Of an acronym the name of its first letter is spoken: an MCP server.
        let vowels = if is_spelled { "AEFHILMNORSX" } else { "aeio" };
        let article = if first.starts_with(|c: char| vowels.contains(c)) { "an" } else { "a" };
        format!("{article} {}", self.name)
    }
    /// A key by name.
    pub fn key(&self, name: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.name == name)
    }
    /// The names of keys that may be written.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().filter(|key| !matches!(key.support, Support::Refused(_))).map(|key| key.name)
    }
}

/// All shapes, in the order of the reference.
pub static SHAPES: &[&Shape] = &[
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
    &VALIDATION,
    &REJECTION,
    &VARIATION,
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
    &JUDGE_SHAPE,
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
        for shape in SHAPES {
            for (at, key) in shape.keys.iter().enumerate() {
                assert!(key.doc.ends_with('.'), "{} / {}", shape.name, key.name);
                assert!(!shape.keys[..at].iter().any(|other| other.name == key.name), "{} / {}", shape.name, key.name);
            }
        }
    }

    #[test]
    fn a_shape_is_named_with_the_article_it_is_spoken_with() {
        let a = |shape: &Shape| shape.a();
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
