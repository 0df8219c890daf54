//! `nlg` of `endpoints.yml`, checked: who words responses, if not their own texts do.

use std::{fmt, sync::Arc, time::Duration};

use serde_json::{Map, Value as Json};

use super::Variation;
use crate::template::Template;

/// Who words responses.
#[derive(Debug)]
pub enum Nlg {
    /// A model says them in other words.
    Rephraser(Rephraser),
    /// A server words them.
    Server(NlgServer),
}

/// A model that says responses in other words.
#[derive(Debug)]
pub struct Rephraser {
    /// Whether every response is rephrased that does not say otherwise.
    pub all: bool,
    /// The project's own template.
    pub prompt: Option<Template>,
    /// How many turns the model sees.
    pub turns: usize,
    /// The model group, when one is named.
    pub model_group: Option<Arc<str>>,
    /// Model settings written in place. May hold secrets: never print it.
    pub llm: Map<String, Json>,
}

impl Rephraser {
    /// Whether this variation of a response is rephrased: what it says itself comes first.
    pub fn takes(&self, variation: &Variation) -> bool {
        variation.rephrase.unwrap_or(self.all)
    }
}

/// A server that words responses.
#[derive(Clone)]
pub struct NlgServer {
    /// Its address.
    pub url: String,
    /// Sent as `?token=`. A secret: never print it.
    pub token: Option<String>,
    /// User and password. A secret: never print it.
    pub basic_auth: Option<(String, String)>,
    /// Headers of every request. May hold secrets: never print them.
    pub headers: Vec<(String, String)>,
    /// Longest time of an answer, where set.
    pub timeout: Option<Duration>,
}

impl fmt::Debug for NlgServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NlgServer").field("url", &self.url).finish_non_exhaustive()
    }
}
