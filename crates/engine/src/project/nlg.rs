//! The checked `nlg` section of `endpoints.yml`: rephrasing by a model, or an NLG server.

use std::{fmt, sync::Arc, time::Duration};

use serde_json::{Map, Value as Json};

use super::Variation;
use crate::template::Template;

/// How the text of responses is generated.
#[derive(Debug)]
pub enum Nlg {
    /// A model rephrases it.
    Rephraser(Rephraser),
    /// A server generates it.
    Server(NlgServer),
}

/// A model that rephrases responses.
#[derive(Debug)]
pub struct Rephraser {
    /// Whether responses without their own `rephrase` setting are rephrased.
    pub all: bool,
    /// The prompt template that replaces the built-in one.
    pub prompt: Option<Template>,
    /// How many of the last turns are in the prompt.
    pub turns: usize,
    /// The model group, if set.
    pub model_group: Option<Arc<str>>,
    /// The settings of its own model. May contain secrets: never print them.
    pub llm: Map<String, Json>,
}

impl Rephraser {
    /// Whether this variation of a response is rephrased. Its own `rephrase` setting takes precedence.
    pub fn rephrases(&self, variation: &Variation) -> bool {
        variation.rephrase.unwrap_or(self.all)
    }
}

/// An NLG server, which generates the text of responses.
#[derive(Clone)]
pub struct NlgServer {
    /// Its URL.
    pub url: String,
    /// The token that is sent as `?token=`. A secret: never print it.
    pub token: Option<String>,
    /// User name and password. A secret: never print it.
    pub basic_auth: Option<(String, String)>,
    /// Headers of every request. May contain secrets: never print them.
    pub headers: Vec<(String, String)>,
    /// The time limit of a request, if set.
    pub timeout: Option<Duration>,
}

impl fmt::Debug for NlgServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NlgServer").field("url", &self.url).finish_non_exhaustive()
    }
}
