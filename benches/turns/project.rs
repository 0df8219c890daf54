//! The bench project: an agent with one tool, and a flow that needs no model.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use segue::tools::{EffectClass, Tool, ToolInfo, ToolOutcome, ToolOutput, Toolbox};
use serde_json::{Value as Json, json};

/// The system prompt of the agent and of the baseline.
pub(crate) const PROMPT: &str = include_str!("../project/prompt.jinja2");
/// The name of the tool.
pub(crate) const TOOL: &str = "departures";
/// The description of the tool for the model.
pub(crate) const DESCRIPTION: &str = "Lists the next boats to an island, with pier and time.";

const FILES: &[(&str, &str)] = &[
    ("config.yml", include_str!("../project/config.yml")),
    ("domain.yml", include_str!("../project/domain.yml")),
    ("flows/flows.yml", include_str!("../project/flows.yml")),
    ("endpoints.yml", include_str!("../project/endpoints.yml")),
    ("sub_agents/clerk/config.yml", include_str!("../project/sub_agents/clerk/config.yml")),
    ("prompt.jinja2", PROMPT),
];

/// Writes the project to `folder`, with a model server at `address`. Returns the folder of the project.
pub(crate) fn write(folder: &Path, address: SocketAddr) -> PathBuf {
    let root = folder.join("project");
    for (name, text) in FILES {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text.replace("PORT", &address.port().to_string())).unwrap();
    }
    root
}

/// The JSON schema of the tool's arguments.
pub(crate) fn parameters() -> Json {
    json!({
        "type": "object",
        "properties": {
            "island": {"type": "string", "description": "The name of the island."},
            "day": {"type": "string", "description": "A date, or `today`."},
        },
        "required": ["island"],
        "additionalProperties": false,
    })
}

/// The result of the tool.
pub(crate) fn departures(arguments: &Json) -> Json {
    let island = arguments["island"].as_str().unwrap_or_default();
    json!({"island": island, "boats": [
        {"boat": "Kestrel", "pier": 3, "time": "09:15"},
        {"boat": "Curlew", "pier": 3, "time": "11:45"},
    ]})
}

/// The tool as a Rust function. It replaces the MCP server `harbour` of `endpoints.yml`.
pub(crate) fn tools() -> Toolbox {
    let info = ToolInfo::new(TOOL, DESCRIPTION).parameters(parameters()).effect(EffectClass::Read).source("harbour");
    Toolbox::new(
        "harbour",
        [Tool::from_fn(info, |arguments, _| async move {
            ToolOutcome::Done(ToolOutput::structured(departures(&arguments)))
        })],
    )
}
