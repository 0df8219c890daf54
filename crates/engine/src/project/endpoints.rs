//! `endpoints.yml`, checked. Secrets stand here as texts after expansion; the runtime moves them into its own type at once.

use std::{fmt, sync::Arc, time::Duration};

use indexmap::IndexMap;
use serde_json::{Map, Value as Json};

use super::{JwtDef, Nlg, OAuthDef};
use crate::{
    finding::SourceLocation,
    ids::{ServerName, SlotName},
};

/// `endpoints.yml`.
#[derive(Debug, Default)]
pub struct Endpoints {
    /// Model groups by id.
    pub model_groups: IndexMap<Arc<str>, ModelGroup>,
    /// MCP servers by name.
    pub mcp_servers: IndexMap<ServerName, McpServerDef>,
    /// Where custom actions run.
    pub action_endpoint: Option<ActionEndpointDef>,
    /// `nlg`: who words responses.
    pub nlg: Option<Nlg>,
    /// `tracker_store`: where conversations are kept.
    pub tracker_store: Option<TrackerStoreDef>,
    /// `vector_store`, when it is a Qdrant.
    pub qdrant: Option<super::QdrantDef>,
    /// `server`: how much the server takes on at once.
    pub server: ServerDef,
    /// `http`: the proxy of outbound requests.
    pub http: HttpDef,
    /// `a2a_server`: the assistant as an agent for others.
    pub a2a_server: Option<A2aServerDef>,
}

impl Endpoints {
    /// What the author set for the model of a component: in place (`own`), and in the entries of the group that it names. One that names
    /// nothing has the first group.
    pub fn model_settings<'a>(&'a self, group: Option<&str>, own: &'a Map<String, Json>) -> Vec<&'a Map<String, Json>> {
        let group = match group {
            Some(id) => self.model_groups.get(id),
            None if own.is_empty() => self.model_groups.values().next(),
            None => None,
        };
        let entries = group.into_iter().flat_map(|group| group.models.iter().map(|model| &model.settings));
        std::iter::once(own).chain(entries).collect()
    }
}

/// `tracker_store`: where conversations are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrackerStoreDef {
    /// In memory, while the process runs.
    Memory,
    /// In a file of SQLite.
    Sqlite {
        /// Its path; a default of the store where there is none.
        file: Option<String>,
        /// `synchronous`, where set: whether a commit survives a loss of power.
        full: Option<bool>,
    },
    /// In a store that this version does not have.
    Unsupported(String),
}

/// `server`: how much the server takes on at once; what is not set has its default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerDef {
    /// Turns that may be open.
    pub open_turns: Option<usize>,
    /// Turns that run at once.
    pub running_turns: Option<usize>,
    /// Open turns of one caller.
    pub turns_per_caller: Option<usize>,
    /// The longest time to an answer that may be expected.
    pub expected_wait: Option<Duration>,
    /// Connections that are open at once.
    pub connections: Option<usize>,
    /// The same from one address; 0 is no limit.
    pub connections_per_address: Option<usize>,
}

/// `http`: the proxy of outbound requests. Its address may hold a password, so it is never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HttpDef {
    /// The address of the proxy.
    pub proxy: Option<String>,
    /// Hosts that are reached directly, separated by commas.
    pub no_proxy: Option<String>,
}

impl fmt::Debug for HttpDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpDef").field("no_proxy", &self.no_proxy).finish_non_exhaustive()
    }
}

/// `a2a_server`: the assistant as an agent for others.
#[derive(Clone)]
pub struct A2aServerDef {
    /// What it does.
    pub description: Arc<str>,
    /// Its public address, where set.
    pub url: Option<String>,
    /// A card of the author's, where there is one.
    pub card: Option<Json>,
    /// Whether what is not understood is asked about.
    pub include_repair: bool,
    /// How long a caller waits for a turn, unless for ever.
    pub task_timeout: Option<Duration>,
    /// The token that callers must show. Never print it.
    pub token: Option<String>,
    /// The signed tokens that callers may show.
    pub jwt: Option<JwtDef>,
    /// Whether changes are reported to addresses that callers name.
    pub push: bool,
    /// Whether messages such as `/SetSlots(…)` are read as payloads; else they are words.
    pub payloads: bool,
    /// Where it stands.
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
    /// Address of an action server, the webhook itself.
    pub url: Option<String>,
    /// Python module that is served by a child of this program; counts where there is no `url`.
    pub module: Option<String>,
    /// Headers of every request. May hold secrets: never print them.
    pub headers: Vec<(String, String)>,
    /// Parameters added to the address, a `token` among them. May hold secrets: never print them.
    pub params: Vec<(String, String)>,
    /// User name and password. Never print them.
    pub basic_auth: Option<(String, String)>,
    /// File with the certificates that the server may show, from the project's folder.
    pub cafile: Option<String>,
    /// Whether the domain is sent only to actions that ask for it by `send_domain`.
    pub selective_domain: bool,
    /// How much of the conversation is sent.
    pub tracker_events: TrackerEvents,
    /// Time for one action, where set.
    pub timeout: Option<Duration>,
    /// Whether requests are compressed; absent: as the environment says.
    pub compress: Option<bool>,
    /// Effect classes by action, as the author states them: `read`, `idempotent`, `write`.
    pub effects: IndexMap<String, String>,
    /// Where it stands.
    pub place: Option<SourceLocation>,
}

impl fmt::Debug for ActionEndpointDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActionEndpointDef").field("module", &self.module).finish_non_exhaustive()
    }
}

/// How much of a conversation is sent to an action server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrackerEvents {
    /// Every event, as the protocol has it.
    #[default]
    All,
    /// Events of the present session.
    Session,
    /// The latest so many events.
    Latest(usize),
}

/// Models that stand for one another.
#[derive(Debug)]
pub struct ModelGroup {
    /// Its id.
    pub id: Arc<str>,
    /// In order.
    pub models: Vec<ModelDef>,
    /// `router`, where there is one.
    pub router: Option<RouterDef>,
    /// The groups that stand in when all models of this one fail, in order, each once; from its router.
    pub fallbacks: Vec<Arc<str>>,
    /// Where it stands.
    pub place: SourceLocation,
}

/// `router` of a model group: how one of its models is chosen, and when another is. What is not set has its default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouterDef {
    /// `routing_strategy`, as the format names it.
    pub strategy: Option<String>,
    /// How long a model that failed too often is left alone.
    pub cooldown: Option<Duration>,
    /// Failures before that.
    pub allowed_fails: Option<u32>,
    /// How often one call is tried again, over all models.
    pub num_retries: Option<u32>,
}

/// One model.
#[derive(Clone)]
pub struct ModelDef {
    /// The vendor.
    pub provider: Arc<str>,
    /// The model's id; empty where the provider needs none.
    pub model: Arc<str>,
    /// Every other key, expanded. May hold secrets: never print it.
    pub settings: Map<String, Json>,
}

impl fmt::Debug for ModelDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelDef").field("provider", &self.provider).field("model", &self.model).finish_non_exhaustive()
    }
}

/// One MCP server.
pub struct McpServerDef {
    /// Its name.
    pub name: ServerName,
    /// How it is reached.
    pub transport: McpTransport,
    /// Headers of every request, auth included. May hold secrets: never print them.
    pub headers: Vec<(String, String)>,
    /// `oauth`: how tokens are come by.
    pub oauth: Option<OAuthDef>,
    /// `_meta` that every call carries.
    pub meta_static: Map<String, Json>,
    /// `_meta` filled from slots: parameter and slot.
    pub meta_slots: Vec<(String, SlotName)>,
    /// `_meta` filled from what is known of the message: parameter and key.
    pub meta_metadata: Vec<(String, String)>,
    /// Time to connect, where set.
    pub connect_timeout: Option<Duration>,
    /// Time for one call, where set; one that keeps telling how far it is may take longer.
    pub tool_timeout: Option<Duration>,
    /// The longest time of one call whatever it tells, where set.
    pub tool_timeout_total: Option<Duration>,
    /// Whether the user may hear what it says of a running call, in its own words.
    pub progress_messages: bool,
    /// The revision of the protocol to begin with, where set.
    pub protocol_version: Option<String>,
    /// What it may ask of the user: field and the slot that answers it. Empty: nothing.
    pub elicitation: IndexMap<String, SlotName>,
    /// Whether it may let our model answer something.
    pub sampling: bool,
    /// What it has beside tools that is offered as tools: `resources`, `prompts`.
    pub offers: Vec<String>,
    /// Whether the annotations of its tools are believed: `readOnlyHint`, `idempotentHint`.
    pub trust_annotations: bool,
    /// Effect classes by tool, as the author states them: `read`, `idempotent`, `write`.
    pub effects: IndexMap<String, String>,
    /// Whether its tools must stay what they were when they were first listed.
    pub pin: bool,
    /// Where it stands.
    pub place: SourceLocation,
}

impl fmt::Debug for McpServerDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServerDef")
            .field("name", &self.name)
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}

/// How an MCP server is reached.
#[derive(Clone, Debug, PartialEq)]
pub enum McpTransport {
    /// Streamable HTTP at this address.
    Http {
        /// The full endpoint.
        url: String,
    },
    /// A child process. `command: segue` means this very binary.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables it gets beside an allow-list.
        env: Vec<(String, String)>,
    },
}
