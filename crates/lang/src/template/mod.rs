//! Templates: text of the project in which values of a conversation are filled in.
//!
//! Two formats. Jinja ([`TemplateEngine`]: prompts, agent descriptions, Jinja responses, conditions with `{{ }}`, expressions of
//! tool mappings) and the plain `{slot}` form of responses ([`fill`]). Entry points: [`TemplateEngine::compile`] once at load,
//! [`TemplateEngine::render`] on every turn.
//!
//! What this room must never do: compile text that came out of a conversation. [`TemplateEngine::compile`] takes a
//! [`TemplateSource`], which is made by the loaders of project files and by nobody else; values enter as data and are not
//! looked at again (`values_are_never_templates` in `tests/bounds.rs`, the property tests of `interpolate.rs`). No template reads a file, a
//! clock or a random number, and every rendering is bounded in steps, nesting and size.
//!
//! Printing follows Python: `True`, `None`, `50.0`, `['a', 1]`. Where the engine differs from Jinja2 is listed, with the
//! reason, in `tests/data/jinja-differences.md` and held to it by the golden test.

mod datetime;
mod engine;
mod error;
mod filters;
mod interpolate;
mod methods;
mod names;
mod python;
mod slots;
mod strftime;
#[cfg(test)]
mod tests;

pub use self::{
    datetime::{UnknownZone, ZonedTime},
    engine::{Expression, Mode, Template, TemplateEngine, TemplateSource, from_json, to_json},
    error::{TemplateError, TemplateErrorKind},
    interpolate::{Interpolated, Over, ValueLookup, fill, fill_json, placeholders},
    python::{float_text, python_text},
    slots::{SlotInfo, SlotsLookup, SlotsView},
};
