//! The running parts of a project: models, tool sources, agents, actions. All conversations share them; they never change.

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
    delegation::{AgentDelegation, BackgroundTasks, Delegations},
    knowledge::Knowledge,
    llm::Llm,
    prompts::PromptSet,
    rephrasing::Rephrasing,
    store::Store,
    tools::{Health, ToolHandler, ToolSource, workspace::Workspaces},
    understanding::CommandGenerator,
};
use async_trait::async_trait;

/// A custom action in Rust. It runs at an `action` step with its name.
#[async_trait]
pub trait Action: Send + Sync {
    /// Runs the action. The events of the outcome are applied in order. *Cancellation*: the future may be dropped at any `await`; the
    /// flow is then informed that the effect may have happened.
    async fn run(&self, conversation: &Conversation, cx: &CallContext) -> ActionOutcome;
}

/// The running parts of a project.
#[derive(Clone)]
pub(super) struct ProjectRuntime {
    pub(super) project: Arc<Project>,
    pub(super) command_generator: Arc<CommandGenerator>,
    /// The model of the command generator.
    pub(super) command_model: Arc<dyn Llm>,
    /// The models of agents, by agent name.
    pub(super) agent_models: HashMap<String, Arc<dyn Llm>>,
    /// MCP servers and other tool sources.
    pub(super) sources: IndexMap<ServerName, Arc<dyn ToolSource>>,
    /// The hooks of agents, by agent name.
    pub(super) hooks: HashMap<String, HookSource>,
    /// Registered tools, by agent name.
    pub(super) tools: HashMap<String, Vec<Arc<dyn ToolHandler>>>,
    /// Registered actions, by name.
    pub(super) actions: HashMap<String, Arc<dyn Action>>,
    /// Rephrases responses, or generates them by an NLG server; if configured.
    pub(super) rephrasing: Option<Arc<Rephrasing>>,
    /// The model of the rephraser.
    pub(super) rephrasing_model: Arc<dyn Llm>,
    /// Runs the custom actions that are not registered.
    pub(super) action_server: Option<Arc<dyn ActionServer>>,
    /// Events of earlier turns.
    pub(super) store: Arc<dyn Store>,
    /// Document search, if configured.
    pub(super) knowledge: Option<Arc<Knowledge>>,
    /// The model that answers from documents.
    pub(super) knowledge_model: Arc<dyn Llm>,
    /// Remote agents, by agent name.
    pub(super) remote_agents: HashMap<String, Arc<RemoteAgent>>,
    /// Cache of tool lists.
    pub(super) tool_lists: Arc<ToolListCache>,
    /// How each agent runs, by agent name.
    pub(super) executors: Arc<HashMap<String, AgentExecutor>>,
    /// Agents that may start sub-agents, by agent.
    pub(super) delegation: Arc<HashMap<String, AgentDelegation>>,
    /// The sub-agents of all conversations.
    pub(super) delegations: Arc<Delegations>,
    /// The files of conversations.
    pub(super) workspaces: Workspaces,
    /// Sub-agents in the background; `None` in the copy of this that they use themselves.
    pub(super) background: Option<Arc<BackgroundTasks>>,
    /// Texts that models read.
    pub(super) prompts: Arc<PromptSet>,
    /// Whether a record is replayed: then no connection is used.
    pub(super) offline: bool,
}

impl ProjectRuntime {
    /// The model of an agent.
    pub(super) fn model_of(&self, definition: &AgentDef) -> Arc<dyn Llm> {
        self.agent_models.get(definition.name.as_str()).unwrap_or(&self.command_model).clone()
    }
    /// The tools that are registered for an agent.
    pub(super) fn custom_tools(&self, agent: &str) -> &[Arc<dyn ToolHandler>] {
        self.tools.get(agent).map(Vec::as_slice).unwrap_or_default()
    }
    /// The `_meta` object of tool calls, by server: constants, and the values of slots and of message metadata.
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
                let metadata = self.metadata(conversation);
                let in_message = metadata.get("message_metadata").and_then(|all| all.get(key));
                let value = metadata.get(key).filter(|_| key != "message_metadata").or(in_message);
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
    /// The constants of `_meta` of tool calls, by server. They may contain secrets and are not stored.
    pub(super) fn static_meta(&self) -> Map<String, Json> {
        let servers = self.project.endpoints.mcp_servers.iter();
        servers.map(|(name, server)| (name.to_string(), Json::Object(server.meta_static.clone()))).collect()
    }
    /// Metadata for tools that models do not see.
    pub(super) fn metadata(&self, conversation: &Conversation) -> Arc<Map<String, Json>> {
        let mut metadata = Map::with_capacity(3);
        metadata.insert("sender_id".into(), Json::from(conversation.id.as_str()));
        if let Some(message) = &conversation.latest_message {
            metadata.insert("input_channel".into(), Json::from(&*message.input_channel));
            metadata.insert("message_metadata".into(), Json::Object(message.metadata.clone()));
        }
        Arc::new(metadata)
    }
    /// Why a server is unavailable; `None` if it is not.
    pub(super) fn unavailable_reason(&self, server: &ServerName) -> Option<String> {
        match self.sources.get(server).map(|source| source.status()) {
            Some(Health::Down { reason }) => Some(format!("{server}: {reason}")),
            Some(_) => None,
            None => Some(format!("{server}: not configured")),
        }
    }
}
