//! Checked agents: `sub_agents/*/config.yml`.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value as Json};

use super::{AgentRules, AgentSkills, AuthDef, BuiltinTools, DelegationDef, WorkspaceAccess};
use crate::{
    finding::SourceLocation,
    ids::{AgentName, ServerName, SlotName, ToolName},
    template::{Expression, Template},
};

/// An agent.
pub struct AgentDef {
    /// `agent.name`: the name that `call` steps use.
    pub name: AgentName,
    /// `agent.description`: the task of an open agent; shown to the command generator.
    pub description: Arc<str>,
    /// Whether it runs in this process or is a remote agent.
    pub protocol: Protocol,
    /// The model group, if set.
    pub model_group: Option<Arc<str>>,
    /// The settings of its own model; empty if it uses a group.
    pub llm: Map<String, Json>,
    /// The prompt template that replaces the built-in one.
    pub prompt: Option<Template>,
    /// The name of registered hooks or of a registered agent, or the URL of a hook server.
    pub module: Option<Arc<str>>,
    /// The time limit of a run.
    pub timeout: Option<Duration>,
    /// The maximum number of attempts to connect.
    pub max_retries: u32,
    /// Whether prompts contain the date.
    pub include_date_time: bool,
    /// A valid IANA time zone name.
    pub timezone: Arc<str>,
    /// Whether text that the model writes together with tool calls is sent before the tools return.
    pub enable_filler_messages: bool,
    /// The time limit of a tool call.
    pub tool_timeout: Option<Duration>,
    /// What happens after a failed tool call.
    pub on_tool_error: OnToolError,
    /// The maximum number of model calls in a run, if set.
    pub max_iterations: Option<u32>,
    /// The MCP servers that it may use.
    pub connections: Vec<AgentConnection>,
    /// What it may do, and under which conditions.
    pub rules: AgentRules,
    /// `auth`: the credentials for a remote agent, or for the hook server of an agent of this project.
    pub auth: AuthDef,
    /// `hook_auth`: the credentials for the hook server of a remote agent.
    pub hook_auth: AuthDef,
    /// `delegation`: which sub-agents it may start; `None`: none.
    pub delegation: Option<Box<DelegationDef>>,
    /// `workspace`: its tools for the folder of the conversation.
    pub workspace: WorkspaceAccess,
    /// `builtin_tools`: the time, a wait, HTTP requests.
    pub builtin_tools: BuiltinTools,
    /// The Agent Skills that it may load; `None`: none.
    pub skills: Option<Arc<AgentSkills>>,
    /// The settings of a remote agent; `None` for an agent of this project.
    pub remote: Option<Box<RemoteDef>>,
    /// Its location in the project files.
    pub place: SourceLocation,
}

impl std::fmt::Debug for AgentDef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentDef").field("name", &self.name).field("protocol", &self.protocol).finish_non_exhaustive()
    }
}

/// Where an agent runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// In this process.
    Rasa,
    /// On a remote server that is called over A2A.
    A2a,
}

/// What happens after a failed tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnToolError {
    /// The model gets the error and continues.
    #[default]
    FeedBack,
    /// The run fails.
    Fail,
}

/// An MCP server that an agent may use.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentConnection {
    /// Its name in `endpoints.yml`.
    pub server: ServerName,
    /// Use only these tools; empty: all.
    pub include: Vec<ToolName>,
    /// Do not use these tools.
    pub exclude: Vec<ToolName>,
}

/// The settings that only remote agents have.
pub struct RemoteDef {
    /// Its agent card.
    pub card: CardSource,
    /// The time limit for a result when polling.
    pub max_polling_time: Option<Duration>,
    /// The first pause between two polls.
    pub polling_initial_delay: Option<Duration>,
    /// Whether results are streamed, if the agent supports it.
    pub use_streaming: bool,
    /// The public URL of this server, to which it may send push notifications.
    pub push_notification_url: Option<String>,
    /// How its health is checked.
    pub health_check: HealthCheck,
    /// The meaning of a message reply without a task.
    pub message_means: MessageReplyMeaning,
    /// The keys of the message's metadata that are sent.
    pub forward_metadata: Vec<Arc<str>>,
    /// The slots that are sent; `None`: all slots with a value.
    pub forward_slots: Option<Vec<SlotName>>,
    /// The slots that the result fills, with expressions over `result`.
    pub output: Vec<(SlotName, Expression)>,
}

impl std::fmt::Debug for RemoteDef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteDef").field("card", &self.card).finish_non_exhaustive()
    }
}

/// The source of an agent card.
#[derive(Clone, Debug, PartialEq)]
pub enum CardSource {
    /// A file of the project; its content.
    File(Json),
    /// A URL.
    Address(Arc<str>),
}

/// How the health of a remote agent is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HealthCheck {
    /// By fetching its agent card.
    #[default]
    Card,
    /// By sending a message, which starts a task on the remote server.
    Message,
    /// No check.
    None,
}

/// The meaning of an A2A message reply without a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MessageReplyMeaning {
    /// A question to the user.
    #[default]
    InputRequired,
    /// The result of the task.
    Completed,
}
