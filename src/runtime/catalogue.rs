//! The tools of a run: listed from their sources, filtered, and recorded, so that a replay offers the model the same list
//! without any server.

use std::sync::Arc;

use segue_engine::project::AgentConnection;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::{
    parts::Parts,
    recorded::{Door, RecordedTool},
};
use crate::{
    cx::Cx,
    effect::Effect,
    limits,
    tools::{Tool, ToolSpec},
};

/// A tool as the record keeps it.
#[derive(Serialize, Deserialize)]
struct Listed {
    name: Arc<str>,
    description: Arc<str>,
    parameters: Arc<Json>,
    strict: bool,
    effect: Effect,
    source: Arc<str>,
}

/// The tools of these connections, in their order; every call of them is recorded. A server that is down lists nothing.
pub(super) async fn tools(
    connections: &[AgentConnection],
    parts: &Parts,
    door: &Door,
    cx: &Cx,
) -> Vec<Arc<dyn Tool>> {
    let request: Vec<&str> = connections.iter().map(|connection| connection.server.as_str()).collect();
    let recorded = match door.begin::<Vec<Listed>>(cx, "tools", Effect::Read, &request.join(",")).await {
        Ok(recorded) => recorded,
        Err(_) => return Vec::new(),
    };
    let live = match (&recorded, parts.offline) {
        (Some(_), true) => Vec::new(),
        _ => list(connections, parts, cx).await,
    };
    let specs: Vec<ToolSpec> = match recorded {
        Some(listed) => listed.into_iter().map(ToolSpec::from).collect(),
        None => {
            let specs: Vec<ToolSpec> = live.iter().map(|tool| tool.spec().clone()).collect();
            let listed: Vec<Listed> = specs.iter().map(Listed::from).collect();
            if door.finish(cx, &listed).await.is_err() {
                return Vec::new();
            }
            specs
        }
    };
    let wrap = |spec: ToolSpec| {
        let inner = live.iter().find(|tool| tool.spec().name == spec.name && tool.spec().source == spec.source).cloned();
        Arc::new(RecordedTool { spec, inner, door: door.clone() }) as Arc<dyn Tool>
    };
    specs.into_iter().map(wrap).collect()
}

async fn list(connections: &[AgentConnection], parts: &Parts, cx: &Cx) -> Vec<Arc<dyn Tool>> {
    let cx = cx.within(limits::MCP_INITIALISE);
    let listing = connections.iter().filter_map(|connection| {
        let source = parts.sources.get(&connection.server)?;
        let cx = cx.clone();
        Some(async move { (connection, cx.wait(source.list(&cx)).await) })
    });
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    for (connection, listed) in futures::future::join_all(listing).await {
        let Ok(Ok(catalog)) = listed else { continue };
        for tool in catalog.tools {
            let name = &tool.spec().name;
            let included = connection.include.is_empty() || connection.include.iter().any(|wanted| *wanted == **name);
            let excluded = connection.exclude.iter().any(|unwanted| *unwanted == **name);
            if included && !excluded {
                tools.push(tool);
            }
        }
    }
    crate::tools::registry::distinct(tools)
}

impl From<&ToolSpec> for Listed {
    fn from(spec: &ToolSpec) -> Self {
        let ToolSpec { name, description, parameters, strict, effect, source } = spec.clone();
        Self { name, description, parameters, strict, effect, source }
    }
}

impl From<Listed> for ToolSpec {
    fn from(listed: Listed) -> Self {
        let Listed { name, description, parameters, strict, effect, source } = listed;
        Self { name, description, parameters, strict, effect, source }
    }
}
