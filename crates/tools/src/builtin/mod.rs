//! Tools that are built in and need no server: `sleep` and `current_time`, and HTTP requests to addresses that the project allows. Their
//! descriptions and schemas are in `prompts/builtin.json`.

mod http;
mod utils;

#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::LazyLock};

use serde::Deserialize;
use serde_json::Value as Json;

use crate::{EffectClass, ToolInfo};

pub use self::{
    http::{HTTP_DELETE, HTTP_GET, HTTP_PATCH, HTTP_POST, HTTP_PUT, HttpTools},
    utils::{CURRENT_TIME, SLEEP, utils},
};

/// The source of these tools.
pub const SOURCE: &str = "builtin";

const FILE: &str = include_str!("../../prompts/builtin.json");

#[derive(Deserialize)]
struct Definition {
    description: String,
    parameters: Json,
}

static DEFINITIONS: LazyLock<HashMap<String, Definition>> =
    LazyLock::new(|| serde_json::from_str(FILE).unwrap_or_default());

/// The description of a tool of the file.
fn info(name: &str, effect: EffectClass) -> ToolInfo {
    let info = match DEFINITIONS.get(name) {
        Some(definition) => {
            ToolInfo::new(name, definition.description.as_str()).parameters(definition.parameters.clone())
        }
        None => ToolInfo::new(name, ""),
    };
    info.effect(effect).source(SOURCE)
}
