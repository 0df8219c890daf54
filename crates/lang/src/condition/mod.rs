//! The condition language of flows: `slots.amount > 100 and not context.interrupted`.
//!
//! * What for: `if` of links and guards, rejections, `exit_if`, conditions of responses. The language, with all its oddities,
//!   is that of existing projects, and a table of several thousand recorded answers (`tests/data/conditions.jsonl`) holds us
//!   to it.
//! * Entry: [`Condition::parse`] once, at load; [`Condition::eval`] at every turn.
//! * Must never: fail at run time. Whatever goes wrong (a number ordered against a text, a name looked up inside null)
//!   makes the *whole* condition false, and [`Evaluation::trouble`] says why; the trace shows it.
//!
//! Two traps that are kept because projects rely on them: `and` and `or` bind equally and group to the right
//! ([`Condition::mixes_and_or_without_parentheses`] lets the checker warn), and a bare word is never a text but a name, which
//! is undefined unless it begins with `slots` or `context` ([`Condition::bare_names`]).

mod evaluate;
mod inspect;
mod lexer;
mod parser;
mod suppose;
mod syntax;
mod value;

use std::{fmt, sync::Arc};

use minijinja::Value;
use serde_json::Value as Json;

pub use inspect::{Comparison, Literal, Operator};
pub use suppose::{PossibleResults, Suppose, Supposed};

use crate::{
    finding::SourceLocation,
    limits::CONDITION_TEXT,
    template::{Template, from_json},
};
use syntax::Node;

/// What a condition is evaluated against: the document `{context, slots}`.
pub trait Scope {
    /// The value of a slot; `None` for a slot that the project does not declare, `null` for one that is unset.
    fn slot(&self, name: &str) -> Option<&Json>;
    /// How many slots there are, for conditions that look at `slots` as a whole.
    fn slot_count(&self) -> usize;
    /// The top frame as an object; `None` when nothing is under way.
    fn context(&self) -> Option<&Json>;
    /// The variables of a condition with template marks; by default `context` alone.
    fn template_variables(&self) -> Value {
        let empty = || Value::from_pairs(std::iter::empty::<(&str, Value)>());
        Value::from_pairs([("context", self.context().map_or_else(empty, from_json))])
    }
}

/// A scope out of two JSON values, for tests and for callers without a store of slots.
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

/// What an evaluation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// Whether the condition holds.
    pub holds: bool,
    /// Why an exception made it false; never holds a value of a slot.
    pub trouble: Option<String>,
}

/// Why a text is not a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (character {offset} of the condition); {help}")]
pub struct ConditionError {
    /// Where, in characters from the start of the condition.
    pub offset: usize,
    /// What is wrong, without a final stop.
    pub message: String,
    /// The cure, in one sentence.
    pub help: String,
}

impl ConditionError {
    fn new(offset: usize, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { offset, message: message.into(), help: help.into() }
    }
}

/// A condition, compiled. Cloning is cheap; equality is that of the text.
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
    /// Holds template marks: rendered at each evaluation, and the result is read as a condition.
    Template(Template),
}

impl Condition {
    /// Reads a condition without template marks.
    ///
    /// # Errors
    /// [`ConditionError`] for a wrong form, a wrong regular expression, and for what passes [`CONDITION_TEXT`] or
    /// [`CONDITION_DEPTH`](crate::limits::CONDITION_DEPTH).
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        Ok(Self { text: text.into(), body: Body::Plain(Arc::new(compile(text)?)), place: None })
    }

    /// A condition that has to be rendered before it can be read.
    ///
    /// # Errors
    /// [`ConditionError`] for a text that passes [`CONDITION_TEXT`].
    pub fn from_template(template: Template) -> Result<Self, ConditionError> {
        let text = template.source().text();
        measure(text)?;
        Ok(Self { text: text.into(), body: Body::Template(template), place: None })
    }

    /// The condition that a YAML boolean stands for.
    pub fn constant(holds: bool) -> Self {
        Self { text: if holds { "true" } else { "false" }.into(), body: Body::Constant(holds), place: None }
    }

    /// Evaluates against `scope`.
    ///
    /// Never fails: every exception is an [`Evaluation`] that does not hold, with its trouble told.
    pub fn eval(&self, scope: &dyn Scope) -> Evaluation {
        let truth = match &self.body {
            Body::Constant(holds) => Ok(*holds),
            Body::Plain(node) => evaluate::truth(node, scope).map_err(|trouble| trouble.0),
            Body::Template(template) => template
                .render(scope.template_variables())
                .map_err(|error| format!("the template in the condition could not be rendered: {error}"))
                .and_then(|text| compile(&text).map_err(|error| format!("after rendering, {error}")))
                .and_then(|node| evaluate::truth(&node, scope).map_err(|trouble| trouble.0)),
        };
        match truth {
            Ok(holds) => Evaluation { holds, trouble: None },
            Err(trouble) => Evaluation { holds: false, trouble: Some(trouble) },
        }
    }

    /// Says where it stands in the project.
    #[must_use]
    pub fn at(mut self, place: SourceLocation) -> Self {
        self.place = Some(place);
        self
    }

    /// Where it stands in the project; `None` for a condition that no file holds.
    pub fn place(&self) -> Option<&SourceLocation> {
        self.place.as_ref()
    }

    /// The text as it was written; `true` or `false` for a YAML boolean.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it must be rendered before it can be read; such a condition tells nothing about its names.
    pub fn is_template(&self) -> bool {
        matches!(self.body, Body::Template(_))
    }

    /// The value of a YAML boolean.
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

fn measure(text: &str) -> Result<(), ConditionError> {
    if text.len() > CONDITION_TEXT {
        let message = format!("the condition has {} bytes; at most {CONDITION_TEXT} are allowed", text.len());
        return Err(ConditionError::new(0, message, "Split it over several links or move it into an action."));
    }
    Ok(())
}

fn compile(text: &str) -> Result<Node, ConditionError> {
    measure(text)?;
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
