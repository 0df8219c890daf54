//! What work has changed outside the program: calls that were carried out, and calls of which nobody knows.
//!
//! Every piece of work that ends (a tool, an agent, a sub-agent, a unit of a mission, a run) reports it, whether it succeeded or
//! not: the user, the next run of an agent and the next attempt of an item read it, so that nothing is done twice.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::{
    stable_hash::StableHash,
    text::{ELLIPSIS, TextLimit, truncate},
};

/// Calls of each kind that a report names; of more, only the hashes of the requests are kept.
const NAMED_WRITES: usize = 50;
/// Bytes of the arguments that a report repeats; longer ones are cut.
const ARGUMENT_BYTES: usize = 1_000;
/// Characters of a result that a report repeats.
const RESULT_CHARS: usize = 400;

/// A call that changes something outside the program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Write {
    /// The tool or action.
    pub tool: Arc<str>,
    /// Its arguments; a text that ends with an ellipsis if they are long.
    #[serde(default, skip_serializing_if = "Json::is_null")]
    pub arguments: Json,
    /// A hash of the tool and the whole arguments: two calls with the same hash ask for the same change.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub request: u32,
    /// The beginning of its result; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Arc<str>>,
    /// Whether a repetition changes nothing: its effect class is `idempotent`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeatable: bool,
    /// In missions: `commander` or the name of the agent that made the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Arc<str>>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Write {
    /// A call with these arguments and no result.
    pub fn new(tool: impl Into<Arc<str>>, arguments: &Json) -> Self {
        let tool = tool.into();
        let request = request_hash(&tool, arguments);
        let text = arguments.to_string();
        let arguments = match text.len() > ARGUMENT_BYTES {
            true => truncate(&text, TextLimit::Bytes(ARGUMENT_BYTES), ELLIPSIS).into(),
            false => arguments.clone(),
        };
        Self { tool, arguments, request, result: None, repeatable: false, by: None }
    }
    /// The same call with its result.
    #[must_use]
    pub fn with_result(self, result: &str) -> Self {
        let result = truncate(result.trim(), TextLimit::Chars(RESULT_CHARS), ELLIPSIS);
        Self { result: (!result.is_empty()).then(|| result.into()), ..self }
    }
    /// The same call of a tool with this effect class: `write` or `idempotent`.
    #[must_use]
    pub fn with_effect(self, effect: &str) -> Self {
        Self { repeatable: effect == "idempotent", ..self }
    }
}

/// A hash of a call: that of [`Write::request`]. The order of keys does not matter, nor does the way in which a number is written; a key
/// with null is as good as none.
pub fn request_hash(tool: &str, arguments: &Json) -> u32 {
    let mut arguments = arguments.clone();
    normalise(&mut arguments);
    arguments.sort_all_objects();
    StableHash::new().text(tool).json(&arguments).value()
}

fn normalise(value: &mut Json) {
    /// Up to this number each whole number is exact as a floating-point number: 2 to the power of 53.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Json::Number(number) => {
            let whole = number.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < EXACT);
            if let Some(whole) = whole {
                *number = (whole as i64).into();
            }
        }
        Json::Array(items) => items.iter_mut().for_each(normalise),
        Json::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(normalise);
        }
        Json::Null | Json::Bool(_) | Json::String(_) => {}
    }
}

/// How a call ended that changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteState {
    /// It was carried out.
    Done,
    /// It may have been carried out.
    InDoubt,
}

/// The calls of a piece of work that changed something, or may have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Writes {
    /// Those that were carried out, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub done: Vec<Write>,
    /// Those that may have been carried out, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub in_doubt: Vec<Write>,
    /// The [`Write::request`] of each further call of both kinds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub omitted: Vec<u32>,
}

impl Writes {
    /// Whether nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.done.is_empty() && self.in_doubt.is_empty()
    }
    /// Whether a repetition of the work could change something twice.
    pub fn forbid_repetition(&self) -> bool {
        !self.omitted.is_empty() || self.done.iter().chain(&self.in_doubt).any(|write| !write.repeatable)
    }
    /// Adds a call.
    pub fn add(&mut self, write: Write, state: WriteState) {
        let calls = match state {
            WriteState::Done => &mut self.done,
            WriteState::InDoubt => &mut self.in_doubt,
        };
        match calls.len() < NAMED_WRITES {
            true => calls.push(write),
            false => self.omitted.push(write.request),
        }
    }
    /// Whether a call with this [`Write::request`] that is not repeatable was carried out, and its result if it is known. A call that is not
    /// named counts as one that may have been.
    pub fn find(&self, request: u32) -> Option<(WriteState, Option<&str>)> {
        let is_it = |write: &&Write| write.request == request && !write.repeatable;
        if let Some(write) = self.done.iter().find(is_it) {
            return Some((WriteState::Done, write.result.as_deref()));
        }
        let in_doubt = self.in_doubt.iter().any(|write| is_it(&write)) || self.omitted.contains(&request);
        in_doubt.then_some((WriteState::InDoubt, None))
    }
    /// Those that match.
    #[must_use]
    pub fn only(&self, matches: impl Fn(&Write) -> bool) -> Self {
        let of = |writes: &[Write]| writes.iter().filter(|write| matches(write)).cloned().collect();
        Self { done: of(&self.done), in_doubt: of(&self.in_doubt), omitted: self.omitted.clone() }
    }
    /// Adds the calls of another piece of work.
    pub fn merge(&mut self, other: &Self) {
        self.omitted.extend(&other.omitted);
        other.done.iter().for_each(|write| self.add(write.clone(), WriteState::Done));
        other.in_doubt.iter().for_each(|write| self.add(write.clone(), WriteState::InDoubt));
    }
    /// Why work ended, with the names of what it had changed.
    pub fn after(&self, why: &str) -> Arc<str> {
        match self.is_empty() {
            true => why.into(),
            false => format!("{why}; {}", self.names_text()).into(),
        }
    }
    /// What was carried out, and what may have been: a text for people and models; empty if that is nothing.
    pub fn names_text(&self) -> String {
        let kinds = [("carried out: ", self.done_names()), ("may have been carried out: ", self.in_doubt_names())];
        let lists = kinds.into_iter().filter(|(_, names)| !names.is_empty());
        lists.map(|(kind, names)| format!("{kind}{}", names.join(", "))).collect::<Vec<_>>().join("; ")
    }
    /// The names of tools that were carried out, each once, as people read them.
    pub fn done_names(&self) -> Vec<String> {
        names(&self.done)
    }
    /// The names of tools that may have been carried out, each once, as people read them.
    pub fn in_doubt_names(&self) -> Vec<String> {
        names(&self.in_doubt)
    }
}

fn names(writes: &[Write]) -> Vec<String> {
    let mut names = Vec::new();
    for write in writes {
        let name = write.tool.replace('_', " ");
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn long_arguments_are_cut_and_the_request_is_that_of_the_whole() {
        let (one, other) = (json!({"a": "x".repeat(5_000)}), json!({"a": "x".repeat(5_001)}));
        let (first, second) = (Write::new("pay", &one), Write::new("pay", &other));
        assert!(first.arguments.as_str().unwrap().len() <= ARGUMENT_BYTES);
        assert_ne!(first.request, second.request);
        assert_eq!(first.request, request_hash("pay", &one));
        assert_ne!(first.request, request_hash("refund", &one));
        let ordered = |text: &str| request_hash("pay", &serde_json::from_str(text).unwrap());
        assert_eq!(ordered(r#"{"a": {"x": 1, "y": 2}, "b": 3}"#), ordered(r#"{"b": 3, "a": {"y": 2, "x": 1}}"#));
        for other in [r#"{"a": 5e2}"#, r#"{"a": 500.00}"#, r#"{"a": 500, "note": null}"#] {
            assert_eq!(ordered(r#"{"a": 500}"#), ordered(other), "{other}");
        }
        assert_ne!(ordered(r#"{"a": 500}"#), ordered(r#"{"a": 500.5}"#));
        assert_ne!(ordered(r#"{"a": 9007199254740993}"#), ordered(r#"{"a": 9007199254740992}"#));
    }

    #[test]
    fn more_calls_than_a_report_names_are_recognised_and_forbid_a_repetition() {
        let mut writes = Writes::default();
        assert!(writes.is_empty() && !writes.forbid_repetition());
        for _ in 0..NAMED_WRITES + 3 {
            writes.add(Write::new("put", &Json::Null).with_effect("idempotent"), WriteState::Done);
        }
        assert_eq!((writes.done.len(), writes.omitted.len()), (NAMED_WRITES, 3));
        assert!(writes.forbid_repetition(), "what is not named may be a write");
        let stored = serde_json::to_value(&writes).unwrap();
        assert_eq!(serde_json::from_value::<Writes>(stored).unwrap(), writes);
        let mut sum = Writes::default();
        sum.add(Write::new("send_mail", &Json::Null), WriteState::InDoubt);
        sum.merge(&writes);
        let last = Write::new("pay", &json!({"amount": 51})).with_result("paid");
        assert_eq!(sum.find(last.request), None);
        sum.add(last.clone(), WriteState::Done);
        assert_eq!(sum.find(last.request), Some((WriteState::InDoubt, None)), "it is one of those that are not named");
        assert_eq!(sum.find(request_hash("send_mail", &Json::Null)), Some((WriteState::InDoubt, None)));
        assert_eq!((sum.done_names(), sum.in_doubt_names()), (vec!["put".into()], vec!["send mail".to_owned()]));
    }
}
