//! The tools of an agent run: listed from their sources, filtered, and recorded, so that a replay offers the model the same tools
//! without any server.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use segue_engine::{ids::AgentName, project::AgentDef};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{hooks::HookSource, mcp_callbacks::McpCallbacks};
use crate::{
    context::CallContext,
    delegation::PARENT_TOOLS,
    effect::EffectClass,
    journal::{JournaledTool, ListedTool, Step, StepResult, TOOL_LIST},
    limits,
    llm::Llm,
    react::SKILL_TOOLS,
    runtime::{
        project_runtime::ProjectRuntime,
        turn::{TurnContext, TurnRecord, shared_text},
    },
    store::StoredText,
    tools::{ToolCatalog, ToolHandler, ToolInfo, tool_set::ToolSet},
};

/// The record of a tool list.
#[derive(Deserialize)]
#[serde(untagged)]
enum RecordedToolList {
    /// The tools.
    Full(Vec<ListedTool>),
    /// The hash of the tools' JSON, which is stored as a shared text.
    Stored {
        #[serde(rename = "body")]
        hash: String,
    },
}

/// The tools of a run.
#[derive(Default)]
pub(in crate::runtime) struct RunTools {
    /// Every call of them is recorded.
    pub(in crate::runtime) recorded: ToolSet,
    /// The same tools, whose calls are not recorded.
    pub(in crate::runtime) unrecorded: ToolSet,
}

/// The tools of an agent's servers and its own. Their calls are recorded. A server that is unavailable lists no tools.
pub(in crate::runtime) async fn tools(
    agent: &AgentDef,
    own: &[Arc<dyn ToolHandler>],
    reserved: &[String],
    turn: &TurnContext<'_>,
    model: &Arc<dyn Llm>,
    cx: &CallContext,
) -> RunTools {
    let TurnContext { runtime, record, .. } = *turn;
    let servers: Vec<&str> = agent.connections.iter().map(|connection| connection.server.as_str()).collect();
    let step = Step { key: &cx.key, kind: TOOL_LIST, class: EffectClass::Read, request: &servers.join(",") };
    let mut listing = Arc::default();
    let record_listing = async {
        listing = list_tools(agent, own, reserved, runtime, cx).await;
        match record.texts.hash_if_stored(&listing.record, record.now()) {
            Some(hash) => RawValue::from_string(format!("{{\"body\":\"{hash}\"}}")),
            None => RawValue::from_string(listing.record.text.to_string()),
        }
        .unwrap_or_default()
    };
    let recorded = record.journal.once(step, record_listing).await;
    let (callbacks, turn_record) = (McpCallbacks::new(turn, model), record.clone());
    let wrap = move |spec: ToolInfo, inner| {
        let journal = turn_record.journal.clone();
        callbacks.with_callbacks(Arc::new(JournaledTool { spec, inner, journal }), &turn_record)
    };
    match recorded {
        Ok(StepResult::Performed(_)) => {}
        Ok(StepResult::Replayed(recorded)) => {
            if !runtime.offline {
                listing = list_tools(agent, own, reserved, runtime, cx).await;
            }
            // If the stored text has expired, the current list is used.
            if let Some(listed) = recorded_list(&recorded, record).await {
                let tools = listed.iter().map(ToolInfo::from).map(|spec| {
                    let inner = listing.tools.get(&spec.name).map(|entry| listing.tools.tool(entry));
                    wrap(spec, inner)
                });
                let recorded = tools.fold(ToolSet::builder(), |set, tool| set.tool(tool)).build();
                return RunTools { recorded, unrecorded: listing.tools.clone() };
            }
        }
        Ok(StepResult::Unknown) | Err(_) => return RunTools::default(),
    }
    let recorded = listing.tools.clone().with_wrapper(move |entry, tool| wrap(entry.info.clone(), Some(tool)));
    RunTools { recorded, unrecorded: listing.tools.clone() }
}

/// The tools of an agent as they are now, outside a turn.
pub(in crate::runtime) async fn live(agent: &AgentDef, runtime: &ProjectRuntime, cx: &CallContext) -> ToolSet {
    let skills = SKILL_TOOLS.iter().filter(|_| agent.skills.is_some());
    let reserved: Vec<String> = PARENT_TOOLS.iter().chain(skills).map(|name| (*name).to_owned()).collect();
    list_tools(agent, runtime.custom_tools(agent.name.as_str()), &reserved, runtime, cx).await.tools.clone()
}

/// Reads a recorded list.
async fn recorded_list(recorded: &RawValue, record: &TurnRecord) -> Option<Vec<ListedTool>> {
    match serde_json::from_str(recorded.get()).ok()? {
        RecordedToolList::Full(listed) => Some(listed),
        RecordedToolList::Stored { hash } => serde_json::from_str(&record.texts.text(&hash).await?).ok(),
    }
}

/// Caches tool lists, so that they are not sorted, serialised and hashed again in every turn. There are at most as many as steps that
/// call an agent.
#[derive(Default)]
pub(in crate::runtime) struct ToolListCache(Mutex<HashMap<AgentName, Vec<CachedToolList>>>);

/// A tool list and what it depends on. An agent's own tools never change; reserved names depend on the calling step.
struct CachedToolList {
    reserved: Vec<String>,
    catalogs: Vec<Option<ToolCatalog>>,
    listing: Arc<ToolListing>,
}

/// A tool list and its record.
#[derive(Default)]
struct ToolListing {
    tools: ToolSet,
    record: StoredText,
}

impl ToolListCache {
    /// The list of the same tools, if it is cached.
    fn get(
        &self,
        agent: &AgentName,
        reserved: &[String],
        catalogs: &[Option<ToolCatalog>],
    ) -> Option<Arc<ToolListing>> {
        let lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let cached = lists.get(agent)?.iter().find(|cached| cached.reserved == reserved)?;
        let is_equal = cached.catalogs.len() == catalogs.len()
            && cached.catalogs.iter().zip(catalogs).all(|(one, other)| is_same_catalog(one, other));
        is_equal.then(|| cached.listing.clone())
    }
    fn insert(&self, agent: &AgentName, cached: CachedToolList) {
        let mut agents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lists = agents.entry(agent.clone()).or_default();
        match lists.iter_mut().find(|earlier| earlier.reserved == cached.reserved) {
            Some(earlier) => *earlier = cached,
            None => lists.push(cached),
        }
    }
}

/// Whether two catalogs contain the identical tools. What a catalog left out depends on them.
fn is_same_catalog(one: &Option<ToolCatalog>, other: &Option<ToolCatalog>) -> bool {
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

async fn list_tools(
    agent: &AgentDef,
    own: &[Arc<dyn ToolHandler>],
    reserved: &[String],
    runtime: &ProjectRuntime,
    cx: &CallContext,
) -> Arc<ToolListing> {
    let cx = cx.with_timeout(limits::MCP_INITIALISE);
    let listing = agent.connections.iter().map(|connection| {
        let (source, cx) = (runtime.sources.get(&connection.server), cx.clone());
        async move {
            let source = source?;
            for _ in 0..agent.max_retries.max(1) {
                // Out of time, no attempt succeeds.
                if let Ok(catalog) = cx.wait(source.list(&cx)).await.ok()? {
                    return Some(catalog);
                }
            }
            None
        }
    });
    let catalogs: Vec<Option<ToolCatalog>> = futures::future::join_all(listing).await;
    // Hooks may add different tools in every run.
    let has_dynamic_hooks =
        runtime.hooks.get(agent.name.as_str()).is_some_and(|hooks| !matches!(hooks, HookSource::PythonClass));
    if let Some(listing) = runtime.tool_lists.get(&agent.name, reserved, &catalogs).filter(|_| !has_dynamic_hooks) {
        return listing;
    }
    let mut set = reserved.iter().fold(ToolSet::builder(), |set, name| set.reserve(name.as_str()));
    set = own.iter().fold(set, |set, tool| set.tool(tool.clone()));
    for (connection, catalog) in agent.connections.iter().zip(&catalogs) {
        if let Some(catalog) = catalog {
            set = set.server(connection.server.as_str(), catalog, &connection.include, &connection.exclude);
        }
    }
    // The effect class in the project takes precedence over that of the server.
    let tools =
        set.build().with_effects(|name| agent.rules.tool(name)?.effect.as_deref().and_then(EffectClass::from_name));
    for (name, reason) in tools.excluded() {
        tracing::warn!(agent = %agent.name, tool = %name, code = "T0604", "the agent does not get a tool: {reason}");
    }
    let listed: Vec<ListedTool> = tools.infos().map(ListedTool::from).collect();
    let record = shared_text(serde_json::to_string(&listed).unwrap_or_default().into());
    let listing = Arc::new(ToolListing { tools, record });
    if !has_dynamic_hooks {
        runtime
            .tool_lists
            .insert(&agent.name, CachedToolList { reserved: reserved.to_vec(), catalogs, listing: listing.clone() });
    }
    listing
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    /// Stored journals contain these names.
    #[test]
    fn a_stored_tool_list_may_be_a_hash() {
        let read: RecordedToolList = serde_json::from_value(json!({"body": "1f"})).unwrap();
        assert!(matches!(read, RecordedToolList::Stored { hash } if hash == "1f"));
    }
}
