//! Errors that tools return to models.

use serde_json::{Map, Value as Json, json};

use super::MissionTool;

/// Why a call was refused. Nothing was executed.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolError(Box<Content>);

#[derive(Clone, Debug, PartialEq)]
struct Content {
    code: &'static str,
    message: String,
    hint: String,
    extra: Map<String, Json>,
}

impl ToolError {
    pub(super) fn new(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self(Box::new(Content { code, message: message.into(), hint: hint.into(), extra: Map::new() }))
    }
    /// Adds a field to the result.
    pub(super) fn with(mut self, name: &str, value: Json) -> Self {
        self.0.extra.insert(name.to_owned(), value);
        self
    }
    /// The code.
    pub fn code(&self) -> &'static str {
        self.0.code
    }
    /// The result for the model.
    pub fn json(self, tool: Option<MissionTool>) -> Json {
        let Content { code, message, hint, extra } = *self.0;
        let mut result = json!({"status": "error", "code": code, "message": message, "hint": hint});
        if let Some(object) = result.as_object_mut() {
            if tool == Some(MissionTool::TaskComplete) {
                object.insert("error".into(), json!(message));
            }
            object.extend(extra);
        }
        result
    }
}
