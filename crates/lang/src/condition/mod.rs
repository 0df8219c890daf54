//! The condition language of CALM flows: `slots.amount > 100 and not context.interrupted`.
//!
//! Conditions are used in `if` of links and guards, in rejections, in `exit_if` and in responses. The language is that of
//! [pypred](https://pypi.org/project/pypred/), which Rasa uses, including its peculiarities; `tests/data/conditions.jsonl` holds
//! several thousand results recorded from it. [`Condition::parse`] compiles a condition once, at load; [`Condition::eval`] evaluates it
//! at every turn.
//!
//! Evaluation never fails. An error (a number ordered against a string, a name looked up inside null) makes the *whole* condition false;
//! [`Evaluation::error`] has the reason, which the trace shows.
//!
//! Two peculiarities that existing projects rely on: `and` and `or` have equal precedence and group to the right
//! ([`Condition::mixes_and_or_without_parentheses`] lets a checker warn), and an unquoted word is never a string but a name, which is
//! undefined unless it begins with `slots` or `context` ([`Condition::bare_names`]).

mod evaluate;
mod inspect;
mod lexer;
mod parser;
mod partial_eval;
mod syntax;
mod value;

use std::{fmt, sync::Arc};

use minijinja::Value;
use serde_json::Value as Json;

pub use inspect::{Comparison, Literal, Operator};
pub use partial_eval::{KnownValue, PartialScope, PossibleResults};

use crate::{
    finding::SourceLocation,
    limits::CONDITION_BYTES,
    template::{Template, from_json},
};
use syntax::Node;

/// The values a condition is evaluated against: the document `{context, slots}`.
pub trait Scope {
    /// The value of a slot: `None` for a slot that the project does not declare, null for one that is not set.
    fn slot(&self, name: &str) -> Option<&Json>;
    /// The number of slots, for conditions that use `slots` as a whole.
    fn slot_count(&self) -> usize;
    /// The top frame of the stack as an object; `None` if no flow is active.
    fn context(&self) -> Option<&Json>;
    /// The variables for rendering a condition that is a Jinja template; by default only `context`.
    fn template_variables(&self) -> Value {
        let empty = || Value::from_pairs(std::iter::empty::<(&str, Value)>());
        Value::from_pairs([("context", self.context().map_or_else(empty, from_json))])
    }
}

/// A scope made of two JSON values, for tests and for callers without slot storage.
#[derive(Clone, Copy, Debug)]
pub struct Document<'a> {
    /// Names and values of all slots.
    pub slots: &'a serde_json::Map<String, Json>,
    /// The top frame as an object.
    pub context: Option<&'a Json>,
}

impl Scope for Document<'_> {
    fn slot(&self, name: &str) -> Option<&Json> {
        self.slots.get(name)
    }
    fn slot_count(&self) -> usize {
        self.slots.len()
    }
    fn context(&self) -> Option<&Json> {
        self.context
    }
}

/// The result of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// Whether the condition holds.
    pub holds: bool,
    /// The error that made it false, if there was one; never contains the value of a slot.
    pub error: Option<String>,
}

/// Why a string is not a valid condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (character {offset} of the condition); {help}")]
pub struct ConditionError {
    /// The position, in characters from the start of the condition.
    pub offset: usize,
    /// What is wrong, without a full stop.
    pub message: String,
    /// How to fix it, in one sentence.
    pub help: String,
}

impl ConditionError {
    fn new(offset: usize, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { offset, message: message.into(), help: help.into() }
    }
}

/// A compiled condition. Cloning is cheap; two conditions are equal if their source texts are.
#[derive(Clone)]
pub struct Condition {
    text: Arc<str>,
    body: Body,
    place: Option<SourceLocation>,
}

#[derive(Clone)]
enum Body {
    /// A YAML boolean.
    Constant(bool),
    Plain(Arc<Node>),
    /// A Jinja template: it is rendered at each evaluation, and the result is parsed as a condition.
    Template(Template),
}

impl Condition {
    /// Parses a condition that is not a Jinja template.
    ///
    /// # Errors
    /// [`ConditionError`] for a syntax error, an invalid regular expression, and a condition that exceeds [`CONDITION_BYTES`] or
    /// [`CONDITION_DEPTH`](crate::limits::CONDITION_DEPTH).
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        Ok(Self { text: text.into(), body: Body::Plain(Arc::new(compile(text)?)), place: None })
    }

    /// A condition that is rendered and then parsed at each evaluation.
    ///
    /// # Errors
    /// [`ConditionError`] for a template longer than [`CONDITION_BYTES`].
    pub fn from_template(template: Template) -> Result<Self, ConditionError> {
        let text = template.source().text();
        check_length(text)?;
        Ok(Self { text: text.into(), body: Body::Template(template), place: None })
    }

    /// The condition of a YAML boolean.
    pub fn constant(holds: bool) -> Self {
        Self { text: if holds { "true" } else { "false" }.into(), body: Body::Constant(holds), place: None }
    }

    /// Evaluates the condition against `scope`.
    ///
    /// Never fails: an error is an [`Evaluation`] that does not hold and has an `error`.
    pub fn eval(&self, scope: &dyn Scope) -> Evaluation {
        let truth = match &self.body {
            Body::Constant(holds) => Ok(*holds),
            Body::Plain(node) => evaluate::truth(node, scope).map_err(|error| error.0),
            Body::Template(template) => template
                .render(scope.template_variables())
                .map_err(|error| format!("the template in the condition could not be rendered: {error}"))
                .and_then(|text| compile(&text).map_err(|error| format!("after rendering, {error}")))
                .and_then(|node| evaluate::truth(&node, scope).map_err(|error| error.0)),
        };
        match truth {
            Ok(holds) => Evaluation { holds, error: None },
            Err(error) => Evaluation { holds: false, error: Some(error) },
        }
    }

    /// Sets its location in the project.
    #[must_use]
    pub fn at(mut self, place: SourceLocation) -> Self {
        self.place = Some(place);
        self
    }

    /// Its location in the project; `None` for a condition that is not from a file.
    pub fn place(&self) -> Option<&SourceLocation> {
        self.place.as_ref()
    }

    /// The text as written; `true` or `false` for a YAML boolean.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it is a Jinja template; the methods that list its names then return nothing.
    pub fn is_template(&self) -> bool {
        matches!(self.body, Body::Template(_))
    }

    /// The value, if the condition is a YAML boolean.
    pub fn as_constant(&self) -> Option<bool> {
        match self.body {
            Body::Constant(holds) => Some(holds),
            _ => None,
        }
    }

    fn node(&self) -> Option<&Node> {
        match &self.body {
            Body::Plain(node) => Some(node),
            _ => None,
        }
    }
}

fn check_length(text: &str) -> Result<(), ConditionError> {
    if text.len() > CONDITION_BYTES {
        let message = format!("the condition has {} bytes; at most {CONDITION_BYTES} are allowed", text.len());
        return Err(ConditionError::new(0, message, "Split it over several links or move it into an action."));
    }
    Ok(())
}

fn compile(text: &str) -> Result<Node, ConditionError> {
    check_length(text)?;
    parser::parse(text)
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Condition({:?})", self.text)
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Condition {}

#[cfg(test)]
mod tests;
