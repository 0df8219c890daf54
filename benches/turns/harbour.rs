//! The bench project: an information desk with one tool, and a flow that counts.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::BoxFuture;
use segue::{
    cx::Cx,
    tools::{
        Catalog, Effect, SourceError, SourceStatus, Tool, ToolOutcome, ToolOutput, ToolSource, ToolSpec,
        registry::FunctionTool,
    },
};
use serde_json::{Value as Json, json};
use tokio::sync::watch;

/// The prompt of both sides.
pub(crate) const PROMPT: &str = include_str!("../project/prompt.jinja2");
/// The tool of both sides.
pub(crate) const TOOL: &str = "departures";
/// What the model reads of it.
pub(crate) const DESCRIPTION: &str = "Lists the next boats to an island, with pier and time.";

const FILES: &[(&str, &str)] = &[
    ("config.yml", include_str!("../project/config.yml")),
    ("domain.yml", include_str!("../project/domain.yml")),
    ("flows/flows.yml", include_str!("../project/flows.yml")),
    ("endpoints.yml", include_str!("../project/endpoints.yml")),
    ("sub_agents/clerk/config.yml", include_str!("../project/sub_agents/clerk/config.yml")),
    ("prompt.jinja2", PROMPT),
];

/// Writes the project into `folder`, with the model at `address`.
pub(crate) fn write(folder: &Path, address: SocketAddr) -> PathBuf {
    let root = folder.join("project");
    for (name, text) in FILES {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text.replace("PORT", &address.port().to_string())).unwrap();
    }
    root
}

/// The schema of the tool's arguments.
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

/// The tool's work.
pub(crate) fn departures(arguments: &Json) -> Json {
    let island = arguments["island"].as_str().unwrap_or_default();
    json!({"island": island, "boats": [
        {"boat": "Kestrel", "pier": 3, "time": "09:15"},
        {"boat": "Curlew", "pier": 3, "time": "11:45"},
    ]})
}

/// The server of the tool, inside this process.
pub(crate) struct Harbour {
    catalog: Catalog,
    changes: watch::Receiver<u64>,
}

impl Harbour {
    pub(crate) fn new() -> Arc<Self> {
        let spec = ToolSpec {
            name: TOOL.into(),
            description: DESCRIPTION.into(),
            parameters: Arc::new(parameters()),
            strict: false,
            effect: Effect::Read,
            source: "harbour".into(),
        };
        let tool = FunctionTool::new(spec, |arguments, _| async move {
            ToolOutcome::Done(ToolOutput { structured: Some(departures(&arguments)), ..ToolOutput::default() })
        });
        let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(tool.unwrap())];
        Arc::new(Self { catalog: Catalog { version: 1, tools, excluded: Vec::new() }, changes: watch::channel(1).1 })
    }
}

impl ToolSource for Harbour {
    fn name(&self) -> &str {
        "harbour"
    }
    fn list<'a>(&'a self, _: &'a Cx) -> BoxFuture<'a, Result<Catalog, SourceError>> {
        Box::pin(std::future::ready(Ok(self.catalog.clone())))
    }
    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }
    fn status(&self) -> SourceStatus {
        SourceStatus::Up
    }
    fn close<'a>(&'a self, _: &'a Cx) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}
