//! Reads `builtin_tools` of an agent.

use super::super::{
    builtin_tools::{BuiltinTools, HttpTarget},
    load_context::{LoadContext, MapFields},
    schema::{BUILTIN_TOOLS, HTTP_TOOLS},
};

/// Reads `builtin_tools` of the agent in `file`.
pub(super) fn read(context: &mut LoadContext<'_>, file: &MapFields<'_>) -> BuiltinTools {
    let Some(node) = file.node("builtin_tools").filter(|node| !node.is_null()) else { return BuiltinTools::default() };
    let Some(fields) = context.fields(node, &BUILTIN_TOOLS) else { return BuiltinTools::default() };
    let utils = fields.flag("utils");
    let http = fields.node("http").and_then(|node| context.fields(node, &HTTP_TOOLS));
    let mut targets = Vec::new();
    for node in http.iter().flat_map(|http| http.list("allow")) {
        let text = node.text().unwrap_or_default();
        match HttpTarget::parse(text) {
            Ok(target) => targets.push(target),
            Err(problem) => {
                let message = format!("`{text}` is no address that can be allowed: {problem}");
                let help = "Write a host such as `api.example.com`, or the beginning of an address such as `https://api.example.com/v1/`.";
                context.error("F0858", node, message, help);
            }
        }
    }
    BuiltinTools { utils, http: targets.into() }
}
