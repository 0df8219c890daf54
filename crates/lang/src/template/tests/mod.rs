//! Tests of the template engine: its guarantees, and comparisons with CPython and Jinja2.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod bounds;
mod golden;
mod objects;

use minijinja::Value;
use serde_json::Value as Json;

use super::*;

/// Renders a text in lenient mode with a JSON context.
fn render(text: &str, context: &Json) -> Result<String, TemplateError> {
    render_in(UndefinedMode::Lenient, text, from_json(context))
}

fn render_in(mode: UndefinedMode, text: &str, context: Value) -> Result<String, TemplateError> {
    let engine = TemplateEngine::new();
    let template = engine.compile(&TemplateSource::from_project_file("prompts/test.jinja2", text), mode)?;
    engine.render(&template, context)
}
