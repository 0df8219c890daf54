//! template (being built).
/// Stub.
#[derive(Clone, Debug)]
pub struct Template(pub String);
/// Stub.
#[derive(Clone, Debug)]
pub struct Expression(pub String);
/// Stub.
#[derive(Debug, Default)]
pub struct TemplateEngine;
/// Stub.
#[derive(Debug)]
pub struct TemplateError;
