//! condition (being built).
use crate::template::TemplateError;
/// Stub.
#[derive(Clone, Debug)]
pub struct Condition(pub String);
/// Stub.
pub type X = TemplateError;
