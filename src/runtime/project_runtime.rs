//! The running parts of one project: models, tool sources, agents, actions. Shared by every conversation, never changed.

use std::{collections::HashMap, sync::Arc};

use indexmap::IndexMap;
use segue_engine::{
    conversation::{ActionOutcome, Conversation},
    ids::ServerName,
    project::{AgentDef, Project},
};
use serde_json::{Map, Value as Json};

use super::effects::{AgentExecutor, ToolListCache, hooks::HookSource};
use crate::{
    a2a::RemoteAgent,
    actions::ActionServer,
    context::CallContext,
    knowledge::Knowledge,
    llm::Llm,
    rephrasing::Rephrasing,
    store::Store,
    tools::{Health, ToolHandler, ToolSource},
    understanding::CommandGenerator,
};
use futures::future::BoxFuture;

/// An action written in Rust. It runs where a flow has an `action` step of its name.
pub trait Action: Send + Sync {
    /// Runs once. Its events are applied in order. *Cancellation*: it may be dropped at a wait; whether its effect happened
    /// is then recorded as unknown.
    fn run<'a>(&'a self, conversation: &'a Conversation, cx: &'a CallContext) -> BoxFuture<'a, ActionOutcome>;
}

/// The running parts of one project.
#[derive(Clone)]
pub(super) struct ProjectRuntime {
    pub(super) project: Arc<Project>,
    pub(super) command_generator: Arc<CommandGenerator>,
    /// The model of the command generator.
    pub(super) command_model: Arc<dyn Llm>,
    /// The models of agents, by agent.
    pub(super) agent_models: HashMap<String, Arc<dyn Llm>>,
    /// MCP servers and other sources.
    pub(super) sources: IndexMap<ServerName, Arc<dyn ToolSource>>,
    /// Where the hooks of agents are, by agent.
    pub(super) hooks: HashMap<String, HookSource>,
    /// Tools that were registered, by agent.
    pub(super) tools: HashMap<String, Vec<Arc<dyn ToolHandler>>>,
    /// Actions that were registered, by name.
    pub(super) actions: HashMap<String, Arc<dyn Action>>,
    /// Who words responses, if not their own texts do.
    pub(super) rephrasing: Option<Arc<Rephrasing>>,
    /// The model that says them in other words.
    pub(super) rephrasing_model: Arc<dyn Llm>,
    /// Runs the other custom actions.
    pub(super) action_server: Option<Arc<dyn ActionServer>>,
    /// Where the events of earlier turns are.
    pub(super) store: Arc<dyn Store>,
    /// Documents to answer from, where the project has a policy for them.
    pub(super) knowledge: Option<Arc<Knowledge>>,
    /// The model that writes such answers.
    pub(super) knowledge_model: Arc<dyn Llm>,
    /// Remote agents, by agent.
    pub(super) remote_agents: HashMap<String, Arc<RemoteAgent>>,
    /// ToolListCache of tools that were made.
    pub(super) tool_lists: Arc<ToolListCache>,
    /// Who runs each agent, by agent.
    pub(super) executors: Arc<HashMap<String, AgentExecutor>>,
    /// True while a record is replayed: nothing may leave.
    pub(super) offline: bool,
}

impl ProjectRuntime {
    /// The model of an agent.
    pub(super) fn model_of(&self, definition: &AgentDef) -> Arc<dyn Llm> {
        self.agent_models.get(definition.name.as_str()).unwrap_or(&self.command_model).clone()
    }
    /// Tools registered for an agent.
    pub(super) fn custom_tools(&self, agent: &str) -> &[Arc<dyn ToolHandler>] {
        self.tools.get(agent).map(Vec::as_slice).unwrap_or_default()
    }
    /// `_meta` by server: constants, and slots that have a value.
    pub(super) fn meta(&self, conversation: &Conversation) -> Map<String, Json> {
        let mut meta = Map::new();
        for (name, server) in &self.project.endpoints.mcp_servers {
            let mut own = server.meta_static.clone();
            for (parameter, slot) in &server.meta_slots {
                let initial = || self.project.slot(slot.as_str()).map(|slot| &slot.initial);
                if let Some(value) = conversation.slots.get(slot.as_str()).or_else(initial).filter(|v| !v.is_null()) {
                    own.insert(parameter.clone(), value.clone());
                }
            }
            for (parameter, key) in &server.meta_metadata {
                let known = self.metadata(conversation);
                let of_message = known.get("message_metadata").and_then(|all| all.get(key));
                let value = known.get(key).filter(|_| key != "message_metadata").or(of_message);
                if let Some(value) = value.filter(|value| !value.is_null()) {
                    own.insert(parameter.clone(), value.clone());
                }
            }
            if !own.is_empty() {
                meta.insert(name.to_string(), Json::Object(own));
            }
        }
        meta
    }
    /// Facts for tools that no model sees.
    pub(super) fn metadata(&self, conversation: &Conversation) -> Arc<Map<String, Json>> {
        let mut metadata = Map::with_capacity(3);
        metadata.insert("sender_id".into(), Json::from(conversation.id.as_str()));
        if let Some(message) = &conversation.latest_message {
            metadata.insert("input_channel".into(), Json::from(&*message.input_channel));
            metadata.insert("message_metadata".into(), Json::Object(message.metadata.clone()));
        }
        Arc::new(metadata)
    }
    /// Why a server lists nothing, if it is down.
    pub(super) fn unavailable_reason(&self, server: &ServerName) -> Option<String> {
        match self.sources.get(server).map(|source| source.status()) {
            Some(Health::Down { reason }) => Some(format!("{server}: {reason}")),
            Some(_) => None,
            None => Some(format!("{server}: not configured")),
        }
    }
}
