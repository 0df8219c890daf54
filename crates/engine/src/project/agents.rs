//! Agents, checked: `sub_agents/*/config.yml`.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value as Json};

use super::AgentRules;
use crate::{
    finding::Place,
    ids::{AgentName, ServerName, ToolName},
    template::Template,
};

/// One agent (agents.md 1.2).
#[derive(Debug)]
pub struct AgentDef {
    /// `agent.name`; flows call it by this.
    pub name: AgentName,
    /// `agent.description`: the task of an open agent; shown to the command generator.
    pub description: Arc<str>,
    /// Ours or a remote one.
    pub protocol: Protocol,
    /// The model group, when one is named.
    pub model_group: Option<Arc<str>>,
    /// Model settings written in place.
    pub llm: Map<String, Json>,
    /// The project's own template.
    pub prompt: Option<Template>,
    /// Name of registered hooks or agent, or an HTTP address.
    pub module: Option<Arc<str>>,
    /// The longest a run may take.
    pub timeout: Option<Duration>,
    /// Tries to connect.
    pub max_retries: u32,
    /// Whether prompts show the date.
    pub include_date_time: bool,
    /// IANA name; checked.
    pub timezone: Arc<str>,
    /// Whether it speaks before tools return.
    pub enable_filler_messages: bool,
    /// The longest one tool call may take.
    pub tool_timeout: Option<Duration>,
    /// What a failed tool does to the run.
    pub on_tool_error: OnToolError,
    /// Iterations of one run, where the author sets them.
    pub max_iterations: Option<u32>,
    /// The servers it may use.
    pub connections: Vec<AgentConnection>,
    /// What it may do, and what must hold first.
    pub rules: AgentRules,
    /// Keys of remote agents: `agent_card`, `auth`, `max_polling_time`, `polling_initial_delay`.
    pub remote: Map<String, Json>,
    /// Where it stands.
    pub place: Place,
}

/// Who runs an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// We do.
    Rasa,
    /// Somebody else, over A2A.
    A2a,
}

/// What a failed tool does to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnToolError {
    /// The model is told and goes on.
    #[default]
    FeedBack,
    /// The run fails.
    Fail,
}

/// A server that an agent may use.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentConnection {
    /// Its name in `endpoints.yml`.
    pub server: ServerName,
    /// Only these tools; empty = all.
    pub include: Vec<ToolName>,
    /// Not these tools.
    pub exclude: Vec<ToolName>,
}
