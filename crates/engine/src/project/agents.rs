//! Agents, checked: `sub_agents/*/config.yml`.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value as Json};

use super::{AgentRules, AuthDef};
use crate::{
    finding::SourceLocation,
    ids::{AgentName, ServerName, SlotName, ToolName},
    template::{Expression, Template},
};

/// One agent.
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
    /// `auth`: how we say who we are, to a remote agent or to hooks behind an address.
    pub auth: AuthDef,
    /// `hook_auth`: how a remote agent's hooks behind an address know us.
    pub hook_auth: AuthDef,
    /// How a remote agent is reached and understood; none for one of this project.
    pub remote: Option<Box<RemoteDef>>,
    /// Where it stands.
    pub place: SourceLocation,
}

impl std::fmt::Debug for AgentDef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentDef").field("name", &self.name).field("protocol", &self.protocol).finish_non_exhaustive()
    }
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

/// What the configuration of a remote agent says beside what every agent has.
pub struct RemoteDef {
    /// Where its card is.
    pub card: CardSource,
    /// The longest wait for a result by questions.
    pub max_polling_time: Option<Duration>,
    /// The first pause between two questions.
    pub polling_initial_delay: Option<Duration>,
    /// Whether answers come in pieces, where the agent can.
    pub use_streaming: bool,
    /// Our public address, under which it may report changes of long tasks.
    pub push_notification_url: Option<String>,
    /// How its health is looked at.
    pub health_check: HealthCheck,
    /// What an answer without a task means.
    pub message_means: MessageReplyMeaning,
    /// Facts of the conversation that it is told.
    pub forward_metadata: Vec<Arc<str>>,
    /// The slots that it is told; all with a value unless set.
    pub forward_slots: Option<Vec<SlotName>>,
    /// Slots that are set from its result, with how the value is made of `result`.
    pub output: Vec<(SlotName, Expression)>,
}

impl std::fmt::Debug for RemoteDef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteDef").field("card", &self.card).finish_non_exhaustive()
    }
}

/// Where a card is.
#[derive(Clone, Debug, PartialEq)]
pub enum CardSource {
    /// In a file of the project, with this content.
    File(Json),
    /// At this address.
    Address(Arc<str>),
}

/// How the health of a remote agent is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HealthCheck {
    /// Its card is fetched.
    #[default]
    Card,
    /// It is greeted as a user would: that begins a task there.
    Message,
    /// Not at all.
    None,
}

/// What an answer without a task means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MessageReplyMeaning {
    /// It asks the user something.
    #[default]
    InputRequired,
    /// It is done.
    Completed,
}
