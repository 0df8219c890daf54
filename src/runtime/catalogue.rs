//! The tools of a run: listed from their sources, filtered, and recorded, so that a replay offers the model the same list
//! without any server.

use std::sync::Arc;

use segue_engine::project::AgentConnection;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::{
    parts::Parts,
    recorded::{Door, RecordedTool},
};
use crate::{
    clock::Clock,
    cx::Cx,
    effect::Effect,
    limits,
    tools::{Tool, ToolSpec, registry::ToolSet},
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

/// What the record of a list holds.
#[derive(Deserialize)]
#[serde(untagged)]
enum Record {
    /// The list.
    Whole(Vec<Listed>),
    /// The hash under which the list is stored.
    Stored { body: String },
}

/// The tools of these connections and the agent's own; every call of them is recorded. A server that is down lists nothing.
pub(super) async fn tools(
    connections: &[AgentConnection],
    own: &[Arc<dyn Tool>],
    reserved: &[String],
    parts: &Parts,
    door: &Door,
    open: &(dyn Fn(Arc<dyn Tool>) -> Arc<dyn Tool> + Sync),
    cx: &Cx,
) -> ToolSet {
    let request: Vec<&str> = connections.iter().map(|connection| connection.server.as_str()).collect();
    let Ok(recorded) = door.begin::<Record>(cx, "tools", Effect::Read, &request.join(",")).await else {
        return ToolSet::default();
    };
    let recorded = match recorded {
        Some(Record::Stored { body }) => {
            let text = door.bodies.text(&body).await;
            // A body that is gone is past its retention: what is listed now is the best there is.
            text.and_then(|text| serde_json::from_str(&text).ok())
        }
        Some(Record::Whole(listed)) => Some(listed),
        None => None,
    };
    let live = if parts.offline { ToolSet::default() } else { list(connections, own, reserved, parts, cx).await };
    let wrap = |spec: ToolSpec, inner| Arc::new(RecordedTool { spec, inner, door: door.clone() }) as Arc<dyn Tool>;
    match recorded {
        None => {
            let listed: Vec<Listed> = live.specs().map(Listed::from).collect();
            let text = serde_json::to_string(&listed).unwrap_or_default();
            let text = match door.bodies.refer(&text, door.clock.now()) {
                Some(hash) => json!({ "body": &*hash }).to_string(),
                None => text,
            };
            if door.finish_text(cx, text).await.is_err() {
                return ToolSet::default();
            }
            live.wrapped(|entry| wrap(entry.spec.clone(), Some(open(entry.tool.clone()))))
        }
        Some(listed) => {
            let tools = listed.into_iter().map(ToolSpec::from).map(|spec| {
                let inner = live.get(&spec.name).map(|entry| open(entry.tool.clone()));
                wrap(spec, inner)
            });
            tools.fold(ToolSet::builder(), |set, tool| set.own(tool)).build()
        }
    }
}

async fn list(
    connections: &[AgentConnection],
    own: &[Arc<dyn Tool>],
    reserved: &[String],
    parts: &Parts,
    cx: &Cx,
) -> ToolSet {
    let cx = cx.within(limits::MCP_INITIALISE);
    let listing = connections.iter().filter_map(|connection| {
        let source = parts.sources.get(&connection.server)?;
        let cx = cx.clone();
        Some(async move { (connection, cx.wait(source.list(&cx)).await) })
    });
    let mut set = reserved.iter().fold(ToolSet::builder(), |set, name| set.reserve(name.as_str()));
    set = own.iter().fold(set, |set, tool| set.own(tool.clone()));
    for (connection, listed) in futures::future::join_all(listing).await {
        if let Ok(Ok(catalog)) = listed {
            set = set.server(connection.server.as_str(), &catalog, &connection.include, &connection.exclude);
        }
    }
    set.build()
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
