//! The engine against its promises, and against what CPython and Jinja2 print.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod bounds;
mod golden;
mod views;

use minijinja::Value;
use serde_json::Value as Json;

use super::*;

/// Renders a text leniently with a JSON context.
fn render(text: &str, context: &Json) -> Result<String, TemplateError> {
    render_in(Mode::Lenient, text, from_json(context))
}

fn render_in(mode: Mode, text: &str, context: Value) -> Result<String, TemplateError> {
    let engine = TemplateEngine::new();
    let template = engine.compile(&TemplateSource::from_project_file("prompts/test.jinja2", text), mode)?;
    engine.render(&template, context)
}
