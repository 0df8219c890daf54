//! The tools that a model is offered, as they are recorded: a repetition and a replay offer the same ones without any server.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::{effect::EffectClass, tools::ToolInfo};

/// The record kind of a list of tools that a model is offered. It is written together with the model response that depends on it.
pub const TOOL_LIST: &str = "tools";

/// A tool as it is recorded with a list of tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ListedTool {
    name: Arc<str>,
    description: Arc<str>,
    parameters: Arc<Json>,
    strict: bool,
    effect: EffectClass,
    source: Arc<str>,
}

impl From<&ToolInfo> for ListedTool {
    fn from(info: &ToolInfo) -> Self {
        let info = info.clone();
        Self {
            name: info.name,
            description: info.description,
            parameters: info.parameters,
            strict: info.strict,
            effect: info.effect,
            source: info.source,
        }
    }
}

impl From<&ListedTool> for ToolInfo {
    fn from(listed: &ListedTool) -> Self {
        let listed = listed.clone();
        let mut info = Self::new(listed.name, listed.description).effect(listed.effect).source(listed.source);
        (info.parameters, info.strict) = (listed.parameters, listed.strict);
        info
    }
}
