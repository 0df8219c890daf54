//! What the author wrote, checked.
//!
//! Entry: [`Project::load`], which takes the texts of a project's files and gives the project and the findings about it at
//! once; [`Project::load_and_analyse`] finds more. This room reads no file and no environment: texts and variables are handed in.

mod agent_rules;
mod agents;
mod analysis;
mod auth;
pub(crate) mod builtin;
pub mod cases;
mod channels;
mod check;
mod config;
mod domain;
pub mod drawing;
mod endpoints;
mod flows;
mod folders;
mod jwt;
mod load;
mod nlg;
mod reader;
pub mod render;
mod schema;
mod search;
mod uses;
mod yaml;

use std::{collections::BTreeMap, sync::Arc};

use indexmap::IndexMap;

pub use self::{
    agent_rules::{
        AgentRules, ClaimRule, ConfirmRule, FillerPace, GroundedRule, ResumeRule, ToolRule, UntrustedInputPolicy,
    },
    agents::{
        AgentConnection, AgentDef, CardSource, HealthCheck, MessageReplyMeaning, OnToolError, Protocol, RemoteDef,
    },
    auth::{AuthDef, OAuthDef, OAuthGrant},
    builtin::LANGUAGE,
    channels::{
        CallerAuth, ChannelDef, ChannelSettings, McpArgumentDef, McpChannelSettings, McpPromptDef, McpResourceDef,
        RestSettings,
    },
    config::{CalmVersion, CommandAlias, Compat, Config, GeneratorConfig},
    domain::{
        ActionDef, Domain, FillPolicy, Mapping, Rejection, ResponseDef, ResponseText, SessionConfig, SlotDef, SlotType,
        Validation, Variation,
    },
    endpoints::{
        A2aServerDef, ActionEndpointDef, Endpoints, HttpDef, McpServerDef, McpTransport, ModelDef, ModelGroup,
        RouterDef, ServerDef, TrackerEvents, TrackerStoreDef,
    },
    flows::{ActionReference, Branch, Call, Collect, Flow, NextStep, NluTrigger, Otherwise, Step, StepKind, Target},
    folders::{Folders, named_files},
    jwt::{JwtDef, JwtKeys, JwtRuleError},
    load::variables,
    nlg::{Nlg, NlgServer, Rephraser},
    schema::{Key, MapSchema, ProjectFile, SCHEMAS, Support, UnknownKeys, ValueType, json_schema, key, reference},
    search::{DocumentStore, ModelChoice, QdrantDef, RetrievalConfig, SearchConfig},
};
use crate::{
    finding::Finding,
    ids::{ActionName, AgentName, FlowId, ResponseName, ServerName, SlotName},
    template::{Template, TemplateEngine},
};

/// One file of a project, as text.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Path from the project's folder, with `/`.
    pub path: Arc<str>,
    /// Its text.
    pub text: Arc<str>,
}

/// Everything that a load needs; the runtime fills it from disk.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// `config.yml`, if there is one.
    pub config: Option<SourceFile>,
    /// The files of the domain.
    pub domain: Vec<SourceFile>,
    /// All YAML files under the data folders.
    pub data: Vec<SourceFile>,
    /// `endpoints.yml`, if there is one.
    pub endpoints: Option<SourceFile>,
    /// `credentials.yml`, if there is one.
    pub credentials: Option<SourceFile>,
    /// `config.yml` of each agent's folder.
    pub agents: Vec<SourceFile>,
    /// Any other file that configuration may name by path: prompt templates above all. Keyed by path from the project's folder.
    pub texts: BTreeMap<String, Arc<str>>,
    /// Built-in patterns: flow files whose flows are added where the project defines none of that id, and their domain.
    pub patterns: Vec<SourceFile>,
    /// Schemas of channels that the program brings, by the name of the channel.
    pub channels: Vec<&'static MapSchema>,
    /// Environment variables that `${NAME}` may read.
    pub environment: BTreeMap<String, String>,
}

/// A loaded project: immutable, shared by every conversation.
#[derive(Debug)]
pub struct Project {
    /// `config.yml`.
    pub config: Config,
    /// Slots, responses, actions, sessions; the built-in ones included.
    pub domain: Domain,
    /// All flows, the author's first, then the built-in patterns that were not replaced.
    pub flows: IndexMap<FlowId, Arc<Flow>>,
    /// Agents by `agent.name`.
    pub agents: IndexMap<AgentName, Arc<AgentDef>>,
    /// `endpoints.yml`.
    pub endpoints: Endpoints,
    /// `credentials.yml`: the channels by name.
    pub credentials: IndexMap<String, ChannelDef>,
    /// The engine that every template of this project was compiled with.
    pub templates: TemplateEngine,
    /// The command generator's template, where the project brings its own.
    pub command_prompt: Option<Template>,
    /// Texts under the project's `prompts/` folder, by path: those with the name of a built-in prompt replace it.
    pub prompts: BTreeMap<String, Arc<str>>,
    /// A hash over all files; recorded with every turn.
    pub hash: u64,
}

/// What a load gives.
#[derive(Debug)]
pub struct Loaded {
    /// The project; absent when an error makes it impossible to go on.
    pub project: Option<Project>,
    /// Everything that was found, by file and line.
    pub findings: Vec<Finding>,
}

impl Project {
    /// A flow by id.
    pub fn flow(&self, id: &str) -> Option<&Arc<Flow>> {
        self.flows.get(id)
    }
    /// A slot by name.
    pub fn slot(&self, name: &str) -> Option<&SlotDef> {
        self.domain.slots.get(name)
    }
    /// A response by name.
    pub fn response(&self, name: &str) -> Option<&Arc<ResponseDef>> {
        self.domain.responses.get(name)
    }
    /// An agent by name.
    pub fn agent(&self, name: &str) -> Option<&Arc<AgentDef>> {
        self.agents.get(name)
    }
    /// Whether a custom action of this name is listed.
    pub fn lists_action(&self, name: &str) -> bool {
        self.domain.actions.contains_key(name)
    }
    /// Whether an MCP server may have this slot asked for in the middle of a call.
    pub fn may_ask(&self, server: &ServerName, slot: &SlotName) -> bool {
        self.endpoints.mcp_servers.get(server).is_some_and(|def| def.elicitation.values().any(|named| named == slot))
    }
    /// The author's flows: those that are no patterns.
    pub fn user_flows(&self) -> impl Iterator<Item = &Arc<Flow>> {
        self.flows.values().filter(|flow| !flow.is_pattern())
    }
}

/// Names that maps of this room are keyed by.
pub type Actions = IndexMap<ActionName, ActionDef>;
/// Slots by name.
pub type SlotDefs = IndexMap<SlotName, SlotDef>;
/// Responses by name.
pub type Responses = IndexMap<ResponseName, Arc<ResponseDef>>;
