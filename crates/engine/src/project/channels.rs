//! The checked `credentials.yml`: channels and their settings.

use std::fmt;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value as Json};

use super::JwtDef;

/// A channel of `credentials.yml`.
#[derive(Clone, Debug, Default)]
pub struct ChannelDef {
    /// `allowed_origins`: origins of web pages that may send requests.
    pub origins: Vec<String>,
    /// `allowed_hosts`: host names that requests may use; empty: those that the address of the server allows.
    pub hosts: Vec<String>,
    /// An unknown key that looks like a typo of a declared one. It may have been meant to restrict access, so the channel must
    /// not open ([`check_spelling`](Self::check_spelling)).
    pub misspelt: Option<String>,
    /// All other settings.
    pub settings: ChannelSettings,
}

/// The settings of a channel.
#[derive(Clone)]
pub enum ChannelSettings {
    /// Settings of `rest`.
    Rest(RestSettings),
    /// Settings of `websocket`.
    WebSocket(RestSettings),
    /// Settings of `socketio`.
    SocketIo(SocketIoSettings),
    /// Settings of `callback`.
    Callback(CallbackSettings),
    /// Settings of `mcp`.
    Mcp(McpChannelSettings),
    /// Settings of `openai`.
    OpenAi(OpenAiSettings),
    /// Settings of any other channel: typed by its schema if it passed one to the loader, else as written.
    Other(Map<String, Json>),
}

/// Settings of `rest`, and of other channels for the messages that they accept.
#[derive(Clone, Debug, Default)]
pub struct RestSettings {
    /// The authentication of callers.
    pub auth: CallerAuth,
    /// The sender ids that callers with the fixed token may use; empty: any. An entry that ends in `*` matches a prefix.
    pub senders: Vec<String>,
    /// Whether messages such as `/SetSlots(…)` are ordinary text rather than payloads.
    pub refuses_payloads: bool,
    /// The maximum size of a message's `metadata` in bytes, if set.
    pub metadata_bytes: Option<u64>,
    /// What happens to a message while another one of its conversation is processed.
    pub while_busy: WhileBusy,
}

/// Settings of `openai`.
#[derive(Clone, Debug)]
pub struct OpenAiSettings {
    /// The authentication of callers.
    pub auth: CallerAuth,
    /// Whether the client is a chat page, which sends a message only when its user has finished it.
    pub is_chat: bool,
    /// How long a request must have stayed open before a write begins, in milliseconds.
    pub hold_writes_ms: u64,
    /// JSON pointers to values of a request that name its conversation.
    pub conversation_from: Vec<String>,
    /// Whether messages such as `/SetSlots(…)` are ordinary text rather than payloads.
    pub refuses_payloads: bool,
}

/// Settings of `socketio`.
#[derive(Clone, Debug)]
pub struct SocketIoSettings {
    /// Which callers and messages are accepted.
    pub messages: RestSettings,
    /// The event of a message of the user.
    pub user_event: String,
    /// The event of a message of the assistant.
    pub bot_event: String,
    /// The namespace.
    pub namespace: String,
    /// The path of the server's end of the protocol.
    pub path: String,
    /// The key of a message with its metadata.
    pub metadata_key: String,
    /// Whether the conversation is that of the session id that a client sends, instead of that of the connection.
    pub persists_sessions: bool,
    /// Whether text is sent while it is generated.
    pub streams: bool,
}

/// Settings of `callback`.
#[derive(Clone, Default)]
pub struct CallbackSettings {
    /// Which callers and messages are accepted.
    pub messages: RestSettings,
    /// The URL to which replies are sent.
    pub url: String,
    /// Whether the messages of a reply are sent as one array.
    pub batch: bool,
    /// The key of the signature of each request. Never print it.
    pub signing_secret: Option<String>,
}

/// What happens to a message while another one of its conversation is processed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhileBusy {
    /// It waits.
    #[default]
    Queue,
    /// It ends the running turn at its next safe point, then it is processed.
    Interrupt,
    /// It is rejected before it is stored.
    Reject,
}

/// Settings of `mcp`.
#[derive(Clone, Debug, Default)]
pub struct McpChannelSettings {
    /// The authentication of HTTP callers.
    pub auth: CallerAuth,
    /// Whether the assistant asks for slots through MCP elicitation, if the host supports it, instead of ending the call.
    pub elicitation: bool,
    /// Whether messages such as `/SetSlots(…)` are ordinary text rather than payloads.
    pub refuses_payloads: bool,
    /// MCP prompts.
    pub prompts: Vec<McpPromptDef>,
    /// MCP resources.
    pub resources: Vec<McpResourceDef>,
}

/// The credentials that callers of a channel must send: none, a fixed token, a JWT, or one of both.
#[derive(Clone, Default)]
pub struct CallerAuth {
    /// The fixed bearer token. Never print it.
    pub token: Option<String>,
    /// Which JWTs are accepted.
    pub jwt: Option<JwtDef>,
}

/// An MCP prompt: a response of the domain.
#[derive(Clone, Debug, Deserialize)]
pub struct McpPromptDef {
    /// Its name.
    pub name: String,
    /// The description that hosts show.
    pub description: Option<String>,
    /// The response.
    pub response: String,
    /// Its arguments. `{name}` in the response is replaced by the value of the argument.
    #[serde(default)]
    pub arguments: Vec<McpArgumentDef>,
}

/// An argument of an MCP prompt.
#[derive(Clone, Debug, Deserialize)]
pub struct McpArgumentDef {
    /// Its name.
    pub name: String,
    /// The description that hosts show.
    pub description: Option<String>,
    /// Whether it is required.
    #[serde(default)]
    pub required: bool,
}

/// An MCP resource: a response of the domain. With `{name}` in its URI it is a resource template.
#[derive(Clone, Debug, Deserialize)]
pub struct McpResourceDef {
    /// Its URI.
    pub uri: String,
    /// Its name.
    pub name: Option<String>,
    /// What the resource contains, in one sentence.
    pub description: Option<String>,
    /// Its media type.
    pub mime_type: Option<String>,
    /// The response.
    pub response: String,
}

impl ChannelDef {
    /// Checks that no key looks like a typo.
    ///
    /// # Errors
    /// A key is probably misspelt; the channel must not be opened.
    pub fn check_spelling(&self) -> Result<(), String> {
        match &self.misspelt {
            Some(key) => Err(format!("unknown setting `{key}`; it is probably misspelt and may restrict access")),
            None => Ok(()),
        }
    }

    /// Deserializes the settings of a third-party channel. If the channel passed its schema to the loader, types and unknown
    /// keys are already checked.
    ///
    /// # Errors
    /// A setting is invalid, or the channel is built in.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, String> {
        match &self.settings {
            ChannelSettings::Other(settings) => {
                serde_json::from_value(Json::Object(settings.clone())).map_err(|error| error.to_string())
            }
            ChannelSettings::Rest(_)
            | ChannelSettings::WebSocket(_)
            | ChannelSettings::SocketIo(_)
            | ChannelSettings::Callback(_)
            | ChannelSettings::Mcp(_)
            | ChannelSettings::OpenAi(_) => {
                Err("this is a built-in channel; its settings are not of a custom type".into())
            }
        }
    }
}

impl Default for OpenAiSettings {
    fn default() -> Self {
        Self {
            auth: CallerAuth::default(),
            is_chat: false,
            hold_writes_ms: super::schema::HOLD_WRITES_MS,
            conversation_from: Vec::new(),
            refuses_payloads: true,
        }
    }
}

impl Default for ChannelSettings {
    fn default() -> Self {
        Self::Other(Map::new())
    }
}

// Not derived: the settings may contain secrets.
impl fmt::Debug for ChannelSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rest(settings) | Self::WebSocket(settings) => settings.fmt(f),
            Self::SocketIo(settings) => settings.fmt(f),
            Self::Callback(settings) => settings.fmt(f),
            Self::Mcp(settings) => settings.fmt(f),
            Self::OpenAi(settings) => settings.fmt(f),
            Self::Other(settings) => f.debug_set().entries(settings.keys()).finish(),
        }
    }
}

impl fmt::Debug for CallbackSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackSettings").field("messages", &self.messages).finish_non_exhaustive()
    }
}

impl fmt::Debug for CallerAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerAuth").field("token", &self.token.is_some()).field("jwt", &self.jwt).finish()
    }
}
