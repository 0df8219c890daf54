//! The project model, its loader and its checks.
//!
//! [`Project::load`] takes the texts of a project's files and returns the project with all findings.
//! [`Project::load_and_analyse`] also analyses how flows run. This module reads neither files nor the environment: the caller
//! passes texts and variables in [`Sources`].

mod agent_rules;
mod agents;
mod analysis;
mod auth;
mod budget;
pub(crate) mod builtin;
mod builtin_tools;
mod channels;
mod check;
mod config;
pub mod delegation;
pub mod diagram;
mod domain;
mod endpoints;
pub mod field_values;
pub mod findings_report;
mod flows;
mod folders;
mod jwt;
mod load;
mod load_context;
pub mod mission_graph;
pub mod mission_sizes;
pub mod missions;
mod nlg;
mod references;
mod schema;
mod search;
mod skills;
pub mod test_cases;
mod yaml;

use std::{collections::BTreeMap, fmt, sync::Arc};

use indexmap::IndexMap;

pub use self::{
    agent_rules::{
        AgentRules, ClaimRule, ConfirmRule, FillerDelays, GroundedRule, ResumeRule, ToolRule, UntrustedInputPolicy,
        offered_tool_name, tool_name_hash,
    },
    agents::{
        AgentConnection, AgentDef, CardSource, HealthCheck, MessageReplyMeaning, OnToolError, Protocol, RemoteDef,
    },
    auth::{AuthDef, OAuthDef, OAuthGrant},
    budget::BudgetLimits,
    builtin::LANGUAGE,
    builtin_tools::{BuiltinTools, HTTP_TOOLS, HttpTarget, MISSION_TOOLS, is_supplied_by_the_runtime},
    channels::{
        CallbackSettings, CallerAuth, ChannelDef, ChannelSettings, McpArgumentDef, McpChannelSettings, McpPromptDef,
        McpResourceDef, OpenAiSettings, RestSettings, SocketIoSettings, WhileBusy,
    },
    config::{CalmVersion, CommandAlias, Compat, Config, GeneratorConfig},
    delegation::{AdmissionDef, DelegateModel, DelegationDef, Preset, SubagentType, SubagentsDef, WorkspaceAccess},
    domain::{
        ActionDef, Domain, FillPolicy, Mapping, Rejection, ResponseDef, ResponseText, SessionConfig, SlotDef, SlotType,
        Validation, Variation,
    },
    endpoints::{
        A2aServerDef, ActionEndpointDef, Endpoints, HttpDef, McpServerDef, McpTransport, ModelDef, ModelGroup,
        RouterDef, RunsDef, SandboxDef, SandboxProgram, ServerDef, TrackerEvents, TrackerStoreDef,
    },
    flows::{ActionReference, Branch, Call, Collect, Flow, NextStep, NluTrigger, Otherwise, Step, StepKind, Target},
    folders::{Folders, named_files, named_skill_folders},
    jwt::{JwtDef, JwtKeys, JwtRuleError},
    load::variables,
    nlg::{Nlg, NlgServer, Rephraser},
    schema::{Key, MapSchema, ProjectFile, SCHEMAS, Support, UnknownKeys, ValueType, json_schema, key, reference},
    search::{DocumentStore, ModelChoice, QdrantDef, RetrievalConfig, SearchConfig},
    skills::{
        AgentSkills, SKILL_FILE, SKILL_FOLDER, SkillDef, SkillFile, SkillFolder, SkillOrigin, SkillProblem,
        SkillScript, SkillSource,
    },
};
use crate::{
    finding::Finding,
    ids::{ActionName, AgentName, FlowId, ResponseName, ServerName, SlotName},
    template::{Template, TemplateEngine},
};

/// One file of a project, as text.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Its path relative to the project folder, with `/`.
    pub path: Arc<str>,
    /// Its text.
    pub text: Arc<str>,
}

/// The input of a load; the runtime reads it from disk.
#[derive(Clone, Default)]
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
    /// The files of `missions/`.
    pub missions: Vec<SourceFile>,
    /// `subagents.yml`, if there is one.
    pub subagents: Option<SourceFile>,
    /// The folders of skills that agents use.
    pub skills: Vec<SkillFolder>,
    /// Other files that the configuration may refer to, such as prompt templates, by their path relative to the project folder.
    pub texts: BTreeMap<String, Arc<str>>,
    /// Built-in patterns: flow files whose flows are used unless the project defines a flow with the same id, and their domain.
    pub patterns: Vec<SourceFile>,
    /// Schemas of third-party channels; the name of a schema is the name of its channel.
    pub channels: Vec<&'static MapSchema>,
    /// Environment variables that `${NAME}` may read.
    pub environment: BTreeMap<String, String>,
    /// What an unset variable leads to.
    pub unset_variables: UnsetVariables,
}

/// What an unset environment variable of a project leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnsetVariables {
    /// An error.
    #[default]
    Reported,
    /// Nothing, except in `tracker_store`: for commands that only read the store.
    IgnoredExceptStore,
    /// Nothing: for commands that only read a store that is named elsewhere.
    Ignored,
}

/// Shows the paths of the files and the names of the variables. Values are secrets, and texts may contain some.
impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let single = [&self.config, &self.endpoints, &self.credentials, &self.subagents];
        let several = [&self.domain, &self.data, &self.agents, &self.missions];
        let files = single.into_iter().flatten().chain(several.into_iter().flatten());
        f.debug_struct("Sources")
            .field("files", &files.map(|file| &file.path).collect::<Vec<_>>())
            .field("environment", &self.environment.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// A loaded project: immutable, shared by every conversation.
#[derive(Debug)]
pub struct Project {
    /// `config.yml`.
    pub config: Config,
    /// Slots, responses, actions and the session configuration, including the built-in ones.
    pub domain: Domain,
    /// All flows: those of the project, then the built-in patterns that it does not replace.
    pub flows: IndexMap<FlowId, Arc<Flow>>,
    /// Agents by `agent.name`.
    pub agents: IndexMap<AgentName, Arc<AgentDef>>,
    /// Missions by name.
    pub missions: IndexMap<Arc<str>, Arc<missions::MissionDef>>,
    /// The types of sub-agents that agents may start, and the limits of all.
    pub subagents: SubagentsDef,
    /// `endpoints.yml`.
    pub endpoints: Endpoints,
    /// `credentials.yml`: the channels by name.
    pub credentials: IndexMap<String, ChannelDef>,
    /// The engine that compiled every template of this project.
    pub templates: TemplateEngine,
    /// The prompt template of the command generator, if the project replaces the built-in one.
    pub command_prompt: Option<Template>,
    /// The files in the project's `prompts/` folder, by path. A file with the name of a built-in prompt replaces it.
    pub prompts: BTreeMap<String, Arc<str>>,
    /// A hash of all files; recorded with every turn.
    pub hash: u64,
}

/// The result of a load.
#[derive(Debug)]
pub struct LoadResult {
    /// The project; `None` if a finding is an error.
    pub project: Option<Project>,
    /// All findings, sorted by file and line.
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
    /// A mission by name.
    pub fn mission(&self, name: &str) -> Option<&Arc<missions::MissionDef>> {
        self.missions.get(name)
    }
    /// Whether the domain lists a custom action with this name.
    pub fn lists_action(&self, name: &str) -> bool {
        self.domain.actions.contains_key(name)
    }
    /// Whether an MCP server may ask the user for this slot during a call (elicitation).
    pub fn may_ask(&self, server: &ServerName, slot: &SlotName) -> bool {
        self.endpoints.mcp_servers.get(server).is_some_and(|def| def.elicitation.values().any(|named| named == slot))
    }
    /// All flows that are not patterns.
    pub fn user_flows(&self) -> impl Iterator<Item = &Arc<Flow>> {
        self.flows.values().filter(|flow| !flow.is_pattern())
    }
}

/// Custom actions by name.
pub type Actions = IndexMap<ActionName, ActionDef>;
/// Slots by name.
pub type SlotDefs = IndexMap<SlotName, SlotDef>;
/// Responses by name.
pub type Responses = IndexMap<ResponseName, Arc<ResponseDef>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_of_sources_contains_no_values() {
        let mut sources = Sources::default();
        sources.environment.insert("API_KEY".to_owned(), "s3cret".to_owned());
        sources.endpoints = Some(SourceFile { path: "endpoints.yml".into(), text: "api_key: s3cret".into() });
        let shown = format!("{sources:?}");
        assert!(shown.contains("API_KEY") && shown.contains("endpoints.yml"), "{shown}");
        assert!(!shown.contains("s3cret"), "{shown}");
    }
}
