//! Templates: project text into which values of a conversation are inserted.
//!
//! There are two formats: Jinja ([`TemplateEngine`]: prompts, agent descriptions, Jinja responses, conditions with `{{ }}`, expressions
//! of tool mappings), and the plain `{slot}` form of responses ([`interpolate_text`]). [`TemplateEngine::compile`] compiles a Jinja
//! template once, at load; [`Template::render`] renders it at every turn.
//!
//! Text from a conversation is never compiled. [`TemplateEngine::compile`] takes a [`TemplateSource`], which only loaders of project
//! files create; values are data and are not parsed again (test `values_are_never_templates`, property tests of `interpolate.rs`). No
//! template reads a file, a clock or a random number, and every rendering is bounded in steps, nesting and output size.
//!
//! Values print as in Python: `True`, `None`, `50.0`, `['a', 1]`. `tests/data/jinja-differences.md` lists the differences from Jinja2
//! with their reasons; a test compares the list with recorded output of Jinja2.

mod datetime;
mod engine;
mod error;
mod filters;
mod interpolate;
mod methods;
mod name_scan;
mod python;
mod slots;
mod strftime;
#[cfg(test)]
mod tests;

pub use self::{
    datetime::{UnknownTimeZone, ZonedTime},
    engine::{Expression, Template, TemplateEngine, TemplateSource, UndefinedMode, from_json, to_json},
    error::{TemplateError, TemplateErrorKind},
    interpolate::{Interpolated, LayeredValues, ValueLookup, interpolate_json, interpolate_text, placeholders},
    python::{float_text, python_text},
    slots::{SlotInfo, SlotsLookup, SlotsView},
};
