//! The tools of a run: listed from their sources, filtered, and recorded, so that a replay offers the model the same list
//! without any server.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use segue_engine::{ids::AgentName, project::AgentDef};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, value::RawValue};

use super::{hooks::HookSource, mcp_callbacks::McpCallbacks};
use crate::{
    context::CallContext,
    effect::EffectClass,
    journal::{JournaledTool, Step, StepResult, TOOL_LIST},
    limits,
    llm::Llm,
    runtime::{
        project_runtime::ProjectRuntime,
        turn::{TurnContext, TurnRecord, shared_text},
    },
    store::StoredText,
    tools::{ToolCatalog, ToolHandler, ToolInfo, tool_set::ToolSet},
};

/// A tool as the record keeps it.
#[derive(Serialize, Deserialize)]
struct RecordedToolSpec {
    name: Arc<str>,
    description: Arc<str>,
    parameters: Arc<Json>,
    strict: bool,
    effect: EffectClass,
    source: Arc<str>,
}

/// What the record of a list holds.
#[derive(Deserialize)]
#[serde(untagged)]
enum RecordedToolList {
    /// The list.
    Whole(Vec<RecordedToolSpec>),
    /// The hash under which the list is stored.
    Stored { body: String },
}

/// The tools of these connections and the agent's own; every call of them is recorded. A server that is down lists nothing.
pub(in crate::runtime) async fn tools(
    agent: &AgentDef,
    own: &[Arc<dyn ToolHandler>],
    reserved: &[String],
    turn: &TurnContext<'_>,
    model: &Arc<dyn Llm>,
    cx: &CallContext,
) -> ToolSet {
    let TurnContext { runtime, record, .. } = *turn;
    let servers: Vec<&str> = agent.connections.iter().map(|connection| connection.server.as_str()).collect();
    let step = Step { key: &cx.key, kind: TOOL_LIST, class: EffectClass::Read, request: &servers.join(",") };
    let mut live = Arc::default();
    let listing = async {
        live = list(agent, own, reserved, runtime, cx).await;
        match record.texts.hash_if_stored(&live.record, record.now()) {
            Some(hash) => RawValue::from_string(format!("{{\"body\":\"{hash}\"}}")),
            None => RawValue::from_string(live.record.text.to_string()),
        }
        .unwrap_or_default()
    };
    let recorded = record.journal.once(step, listing).await;
    let (callbacks, turn_record) = (McpCallbacks::of(turn, model), record.clone());
    let wrap = move |spec: ToolInfo, inner| {
        let journal = turn_record.journal.clone();
        callbacks.with_callbacks(Arc::new(JournaledTool { spec, inner, journal }), &turn_record)
    };
    match recorded {
        Ok(StepResult::Performed(_)) => {}
        Ok(StepResult::Replayed(recorded)) => {
            if !runtime.offline {
                live = list(agent, own, reserved, runtime, cx).await;
            }
            // A list whose body is gone is past its retention: what is listed now is the best there is.
            if let Some(listed) = listed(&recorded, record).await {
                let tools = listed.into_iter().map(ToolInfo::from).map(|spec| {
                    let inner = live.tools.get(&spec.name).map(|entry| live.tools.tool(entry));
                    wrap(spec, inner)
                });
                return tools.fold(ToolSet::builder(), |set, tool| set.tool(tool)).build();
            }
        }
        Ok(StepResult::Unknown) | Err(_) => return ToolSet::default(),
    }
    live.tools.clone().with_wrapper(move |entry, tool| wrap(entry.info.clone(), Some(tool)))
}

/// The list that is recorded.
async fn listed(recorded: &RawValue, record: &TurnRecord) -> Option<Vec<RecordedToolSpec>> {
    match serde_json::from_str(recorded.get()).ok()? {
        RecordedToolList::Whole(listed) => Some(listed),
        RecordedToolList::Stored { body } => serde_json::from_str(&record.texts.text(&body).await?).ok(),
    }
}

/// ToolListCache that were made, so that the same tools are named, sorted, written down and hashed once and not in every turn. There
/// are at most as many as steps that call an agent.
#[derive(Default)]
pub(in crate::runtime) struct ToolListCache(Mutex<HashMap<AgentName, Vec<CachedToolList>>>);

/// A list, and what it was made of. An agent's own tools never change; what is reserved depends on the step that calls it.
struct CachedToolList {
    reserved: Vec<String>,
    catalogs: Vec<Option<ToolCatalog>>,
    live: Arc<ToolListing>,
}

/// A list of tools, and how the record keeps it.
#[derive(Default)]
struct ToolListing {
    tools: ToolSet,
    record: StoredText,
}

impl ToolListCache {
    /// The list that was made of the same tools.
    fn get(
        &self,
        agent: &AgentName,
        reserved: &[String],
        catalogs: &[Option<ToolCatalog>],
    ) -> Option<Arc<ToolListing>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let CachedToolList { catalogs: of, live, .. } =
            kept.get(agent)?.iter().find(|made| made.reserved == reserved)?;
        let equal = of.len() == catalogs.len() && of.iter().zip(catalogs).all(|(one, other)| same(one, other));
        equal.then(|| live.clone())
    }
    fn keep(&self, agent: &AgentName, made: CachedToolList) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lists = kept.entry(agent.clone()).or_default();
        match lists.iter_mut().find(|earlier| earlier.reserved == made.reserved) {
            Some(earlier) => *earlier = made,
            None => lists.push(made),
        }
    }
}

/// Whether these are the very same tools. What was left out follows from them.
fn same(one: &Option<ToolCatalog>, other: &Option<ToolCatalog>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => {
            one.version == other.version
                && one.tools.len() == other.tools.len()
                && one.tools.iter().zip(&other.tools).all(|(one, other)| Arc::ptr_eq(one, other))
        }
        _ => false,
    }
}

async fn list(
    agent: &AgentDef,
    own: &[Arc<dyn ToolHandler>],
    reserved: &[String],
    runtime: &ProjectRuntime,
    cx: &CallContext,
) -> Arc<ToolListing> {
    let cx = cx.with_timeout(limits::MCP_INITIALISE);
    let listing = agent.connections.iter().map(|connection| {
        let (source, cx) = (runtime.sources.get(&connection.server), cx.clone());
        async move { cx.wait(source?.list(&cx)).await.ok()?.ok() }
    });
    let catalogs: Vec<Option<ToolCatalog>> = futures::future::join_all(listing).await;
    // What hooks add may be another thing every time.
    let hooked = runtime.hooks.get(agent.name.as_str()).is_some_and(|hooks| !matches!(hooks, HookSource::PythonClass));
    if let Some(live) = runtime.tool_lists.get(&agent.name, reserved, &catalogs).filter(|_| !hooked) {
        return live;
    }
    let mut set = reserved.iter().fold(ToolSet::builder(), |set, name| set.reserve(name.as_str()));
    set = own.iter().fold(set, |set, tool| set.tool(tool.clone()));
    for (connection, catalog) in agent.connections.iter().zip(&catalogs) {
        if let Some(catalog) = catalog {
            set = set.server(connection.server.as_str(), catalog, &connection.include, &connection.exclude);
        }
    }
    // The author's word on what a tool does stands over that of its server.
    let tools =
        set.build().with_effects(|name| agent.rules.tool(name)?.effect.as_deref().and_then(EffectClass::from_name));
    let listed: Vec<RecordedToolSpec> = tools.infos().map(RecordedToolSpec::from).collect();
    let record = shared_text(serde_json::to_string(&listed).unwrap_or_default().into());
    let live = Arc::new(ToolListing { tools, record });
    if !hooked {
        runtime
            .tool_lists
            .keep(&agent.name, CachedToolList { reserved: reserved.to_vec(), catalogs, live: live.clone() });
    }
    live
}

impl From<&ToolInfo> for RecordedToolSpec {
    fn from(spec: &ToolInfo) -> Self {
        let spec = spec.clone();
        Self {
            name: spec.name,
            description: spec.description,
            parameters: spec.parameters,
            strict: spec.strict,
            effect: spec.effect,
            source: spec.source,
        }
    }
}

impl From<RecordedToolSpec> for ToolInfo {
    fn from(listed: RecordedToolSpec) -> Self {
        let mut info = Self::new(listed.name, listed.description).effect(listed.effect).source(listed.source);
        info.parameters = listed.parameters;
        info.strict = listed.strict;
        info
    }
}
