//! The checked `endpoints.yml`. Secrets are plain strings here, after `${NAME}` was replaced; the runtime moves them into its
//! secret type immediately.

use std::{fmt, sync::Arc, time::Duration};

use indexmap::IndexMap;
use serde_json::{Map, Value as Json};

use super::{JwtDef, Nlg, OAuthDef};
use crate::{
    finding::SourceLocation,
    ids::{ServerName, SlotName, ToolName},
};

/// `endpoints.yml`.
#[derive(Debug, Default)]
pub struct Endpoints {
    /// Model groups by id.
    pub model_groups: IndexMap<Arc<str>, ModelGroup>,
    /// MCP servers by name.
    pub mcp_servers: IndexMap<ServerName, McpServerDef>,
    /// `action_endpoint`: where custom actions run.
    pub action_endpoint: Option<ActionEndpointDef>,
    /// `nlg`: rephrasing or an NLG server.
    pub nlg: Option<Nlg>,
    /// `tracker_store`: the store of conversations.
    pub tracker_store: Option<TrackerStoreDef>,
    /// `runs`: how long runs are stored.
    pub runs: RunsDef,
    /// `vector_store` with `type: qdrant`.
    pub qdrant: Option<super::QdrantDef>,
    /// `server`: limits of the load that the server accepts.
    pub server: ServerDef,
    /// `http`: the proxy for outbound requests.
    pub http: HttpDef,
    /// `a2a_server`: the assistant as an A2A agent.
    pub a2a_server: Option<A2aServerDef>,
    /// `sandbox`: the program in which commands of agents run; `None`: agents run no commands.
    pub sandbox: Option<SandboxDef>,
    /// `workspaces.max_mib` in bytes, if set.
    pub workspace_bytes: Option<u64>,
}

impl Endpoints {
    /// The settings of the model of a component: its own (`own`), then those of each model of its group. A component without
    /// settings and group uses the first group.
    pub fn model_settings<'a>(&'a self, group: Option<&str>, own: &'a Map<String, Json>) -> Vec<&'a Map<String, Json>> {
        let group = match group {
            Some(id) => self.model_groups.get(id),
            None if own.is_empty() => self.model_groups.values().next(),
            None => None,
        };
        let entries = group.into_iter().flat_map(|group| group.models.iter().map(|model| &model.settings));
        std::iter::once(own).chain(entries).collect()
    }

    /// The effect class that the entry of a server declares for a tool; `None`: none, so that the tool counts as a `write`.
    pub fn tool_effect(&self, server: &ServerName, tool: &ToolName) -> Option<&str> {
        self.mcp_servers.get(server)?.effects.get(tool.as_str()).map(String::as_str)
    }
}

/// `tracker_store`: the store of conversations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrackerStoreDef {
    /// In memory; lost when the process ends.
    Memory,
    /// In an SQLite file.
    Sqlite {
        /// Its path; `None`: the default of the store.
        file: Option<String>,
        /// Whether `synchronous` is `full`, so that commits survive a power failure; `None`: the default of the store.
        full: Option<bool>,
    },
    /// In a store that this version does not support; its name.
    Unsupported(String),
}

/// `runs`: how long runs are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunsDef {
    /// Days after the end of a run until it is deleted; 0: never. `None`: the default of the store.
    pub retention_days: Option<u32>,
}

/// `server`: limits of the load that the server accepts; `None`: the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerDef {
    /// The maximum number of turns that are accepted and not finished.
    pub open_turns: Option<usize>,
    /// The maximum number of turns that run at the same time.
    pub running_turns: Option<usize>,
    /// The maximum number of open turns of a caller.
    pub turns_per_caller: Option<usize>,
    /// A message is refused if the expected time to its answer is longer.
    pub expected_wait: Option<Duration>,
    /// The maximum number of open connections.
    pub connections: Option<usize>,
    /// The maximum number of open connections from one address; 0: no limit.
    pub connections_per_address: Option<usize>,
    /// Whether the chat page is served; if not set, only on a loopback address.
    pub chat_page: Option<bool>,
}

/// `http`: the proxy for outbound requests. Its URL may contain a password, so `Debug` does not print it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HttpDef {
    /// The URL of the proxy.
    pub proxy: Option<String>,
    /// Hosts that are reached without the proxy, separated by commas.
    pub no_proxy: Option<String>,
}

impl fmt::Debug for HttpDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpDef").field("no_proxy", &self.no_proxy).finish_non_exhaustive()
    }
}

/// `sandbox`: the program in which commands of agents run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxDef {
    /// The program.
    pub program: SandboxProgram,
    /// The time limit of a command, if set.
    pub timeout: Option<Duration>,
    /// Commands at the same time, if set.
    pub max_parallel: Option<usize>,
    /// `PATH` of commands, if set.
    pub path: Option<Arc<str>>,
}

/// The program that isolates commands. The arguments of an own one may contain secrets, so `Debug` does not print them.
#[derive(Clone, PartialEq, Eq)]
pub enum SandboxProgram {
    /// The program and its arguments; never empty. The command of an agent is added at the end.
    Command(Vec<Arc<str>>),
    /// The installed `bwrap`.
    Bubblewrap {
        /// Whether commands may use the network.
        network: bool,
        /// Further folders that they can read.
        read_only: Vec<Arc<str>>,
    },
}

impl fmt::Debug for SandboxProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(command) => f.debug_tuple("Command").field(&command.first()).finish_non_exhaustive(),
            Self::Bubblewrap { .. } => f.debug_tuple("Bubblewrap").finish_non_exhaustive(),
        }
    }
}

/// `a2a_server`: the assistant as an A2A agent.
#[derive(Clone)]
pub struct A2aServerDef {
    /// The description in the agent card.
    pub description: Arc<str>,
    /// Its public URL, if set.
    pub url: Option<String>,
    /// A custom agent card, if set.
    pub card: Option<Json>,
    /// Whether the assistant asks the caller when it does not understand a message; otherwise the task is rejected.
    pub include_repair: bool,
    /// The longest time a caller waits for a turn; `None`: no limit.
    pub task_timeout: Option<Duration>,
    /// The bearer token that callers must send. Never print it.
    pub token: Option<String>,
    /// Which JWTs are accepted.
    pub jwt: Option<JwtDef>,
    /// Whether callers may register push notifications.
    pub push: bool,
    /// Whether messages such as `/SetSlots(…)` are parsed as payloads; otherwise they are ordinary text.
    pub payloads: bool,
    /// Its location in the project files.
    pub place: SourceLocation,
}

impl fmt::Debug for A2aServerDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("A2aServerDef").field("description", &self.description).finish_non_exhaustive()
    }
}

/// `action_endpoint`: where custom actions run.
#[derive(Clone, Default, PartialEq)]
pub struct ActionEndpointDef {
    /// The webhook URL of an action server.
    pub url: Option<String>,
    /// A Python module that a child process of this program serves; used only without `url`.
    pub module: Option<String>,
    /// Headers of every request. May contain secrets: never print them.
    pub headers: Vec<(String, String)>,
    /// Query parameters that are added to the URL, including `token`. May contain secrets: never print them.
    pub params: Vec<(String, String)>,
    /// User name and password. Never print them.
    pub basic_auth: Option<(String, String)>,
    /// The file with the trusted CA certificates, relative to the project folder.
    pub cafile: Option<String>,
    /// Whether only requests for actions with `send_domain` contain the domain.
    pub selective_domain: bool,
    /// Which events are sent.
    pub tracker_events: TrackerEvents,
    /// The time limit of an action, if set.
    pub timeout: Option<Duration>,
    /// Whether requests are compressed; `None`: from the environment.
    pub compress: Option<bool>,
    /// Effect classes by action: `read`, `idempotent`, `write`.
    pub effects: IndexMap<String, String>,
    /// Its location in the project files.
    pub place: Option<SourceLocation>,
}

impl fmt::Debug for ActionEndpointDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActionEndpointDef").field("module", &self.module).finish_non_exhaustive()
    }
}

/// Which events of a conversation are sent to an action server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrackerEvents {
    /// All events.
    #[default]
    All,
    /// The events of the current session.
    Session,
    /// The last N events.
    Latest(usize),
}

/// A group of interchangeable models.
#[derive(Debug)]
pub struct ModelGroup {
    /// Its id.
    pub id: Arc<str>,
    /// Its models, in order.
    pub models: Vec<ModelDef>,
    /// `router`, if set.
    pub router: Option<RouterDef>,
    /// `fallbacks` of its router: the groups to call when all models of this one fail, in order, without duplicates.
    pub fallbacks: Vec<Arc<str>>,
    /// Its location in the project files.
    pub place: SourceLocation,
}

/// `router` of a model group: how one of its models is chosen, retried and replaced. `None`: the default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouterDef {
    /// `routing_strategy`, as written in the file.
    pub strategy: Option<String>,
    /// How long the circuit of a failed model stays open.
    pub cooldown: Option<Duration>,
    /// How many failures are allowed before that.
    pub allowed_fails: Option<u32>,
    /// The maximum number of retries of a call over all models.
    pub num_retries: Option<u32>,
}

/// A model.
#[derive(Clone)]
pub struct ModelDef {
    /// The provider.
    pub provider: Arc<str>,
    /// The name of the model; empty if the provider needs none.
    pub model: Arc<str>,
    /// All other keys, with `${NAME}` replaced. May contain secrets: never print them.
    pub settings: Map<String, Json>,
}

impl fmt::Debug for ModelDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelDef").field("provider", &self.provider).field("model", &self.model).finish_non_exhaustive()
    }
}

/// An MCP server.
pub struct McpServerDef {
    /// Its name.
    pub name: ServerName,
    /// How it is connected.
    pub transport: McpTransport,
    /// Headers of every request, including authentication. May contain secrets: never print them.
    pub headers: Vec<(String, String)>,
    /// `oauth`: how access tokens are obtained.
    pub oauth: Option<OAuthDef>,
    /// Fixed fields of `_meta` in every call.
    pub meta_static: Map<String, Json>,
    /// Fields of `_meta` that are filled from slots: field and slot.
    pub meta_slots: Vec<(String, SlotName)>,
    /// Fields of `_meta` that are filled from the message and its metadata: field and key.
    pub meta_metadata: Vec<(String, String)>,
    /// The time limit to connect, if set.
    pub connect_timeout: Option<Duration>,
    /// The time limit of a call, if set. For a call with progress notifications: the longest time between two of them.
    pub tool_timeout: Option<Duration>,
    /// The time limit of a call regardless of progress notifications, if set.
    pub tool_timeout_total: Option<Duration>,
    /// Whether the user may see the text of the server's progress notifications.
    pub progress_messages: bool,
    /// The protocol revision to offer first, if set.
    pub protocol_version: Option<String>,
    /// The fields that the server may ask the user for (elicitation), each with the slot for the answer.
    pub elicitation: IndexMap<String, SlotName>,
    /// Whether the server may call the model of the project (sampling).
    pub sampling: bool,
    /// What else of the server is available as tools: `resources`, `prompts`.
    pub offers: Vec<String>,
    /// Whether the annotations of its tools are trusted: `readOnlyHint`, `idempotentHint`.
    pub trust_annotations: bool,
    /// Effect classes by tool: `read`, `idempotent`, `write`.
    pub effects: IndexMap<String, String>,
    /// Whether the definitions of its tools must not change after they were first listed.
    pub pin: bool,
    /// Its location in the project files.
    pub place: SourceLocation,
}

impl McpServerDef {
    /// A server with only a name and a transport: everything else is not set, and its annotations are not trusted.
    pub fn new(name: impl Into<ServerName>, transport: McpTransport) -> Self {
        Self {
            name: name.into(),
            transport,
            headers: Vec::new(),
            oauth: None,
            meta_static: Map::new(),
            meta_slots: Vec::new(),
            meta_metadata: Vec::new(),
            connect_timeout: None,
            tool_timeout: None,
            tool_timeout_total: None,
            progress_messages: false,
            protocol_version: None,
            elicitation: IndexMap::new(),
            sampling: false,
            offers: Vec::new(),
            trust_annotations: false,
            effects: IndexMap::new(),
            pin: false,
            place: SourceLocation::default(),
        }
    }
}

impl fmt::Debug for McpServerDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServerDef")
            .field("name", &self.name)
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}

/// How an MCP server is connected.
#[derive(Clone, Debug, PartialEq)]
pub enum McpTransport {
    /// Streamable HTTP.
    Http {
        /// The URL of the MCP endpoint.
        url: String,
    },
    /// A child process. `command: segue` is this program.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Environment variables, in addition to an allow-list.
        env: Vec<(String, String)>,
    },
}
