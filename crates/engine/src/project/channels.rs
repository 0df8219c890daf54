//! `credentials.yml`: the channels and their settings, checked.

use std::fmt;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value as Json};

use super::JwtDef;

/// One channel of `credentials.yml`.
#[derive(Clone, Debug, Default)]
pub struct ChannelDef {
    /// `allowed_origins`: web pages that may call.
    pub origins: Vec<String>,
    /// `allowed_hosts`: names under which the server is called; any where there are none.
    pub hosts: Vec<String>,
    /// A key that is not known and looks like one that is: it may have been meant to keep callers out.
    pub misspelt: Option<String>,
    /// Everything else.
    pub settings: ChannelSettings,
}

/// Settings of one channel.
#[derive(Clone)]
pub enum ChannelSettings {
    /// Of `rest`.
    Rest(RestSettings),
    /// Of `mcp`.
    Mcp(McpChannelSettings),
    /// Of any other channel, as its own schema has them, or as written where it handed none to the loader.
    Other(Map<String, Json>),
}

/// Settings of `rest`.
#[derive(Clone, Debug, Default)]
pub struct RestSettings {
    /// What callers must show.
    pub auth: CallerAuth,
    /// For whom the fixed token speaks; anybody where there are none. One that ends in `*` stands for all that begin so.
    pub senders: Vec<String>,
    /// Whether messages such as `/SetSlots(…)` count as words.
    pub refuses_payloads: bool,
    /// Bytes that `metadata` of a message may have, where set.
    pub metadata_bytes: Option<u64>,
}

/// Settings of `mcp`.
#[derive(Clone, Debug, Default)]
pub struct McpChannelSettings {
    /// What callers over HTTP must show.
    pub auth: CallerAuth,
    /// Whether questions for a slot are put to the person behind a host that can do so, in place of ending the call.
    pub elicitation: bool,
    /// Whether messages such as `/SetSlots(…)` count as words.
    pub refuses_payloads: bool,
    /// Prompts of the author.
    pub prompts: Vec<McpPromptDef>,
    /// Resources of the author.
    pub resources: Vec<McpResourceDef>,
}

/// What callers of a channel must show: nothing, a fixed token, a signed token, or one of both.
#[derive(Clone, Default)]
pub struct CallerAuth {
    /// The fixed token. Never print it.
    pub token: Option<String>,
    /// The signed tokens that are taken.
    pub jwt: Option<JwtDef>,
}

/// A prompt that hosts are offered: a response of the domain.
#[derive(Clone, Debug, Deserialize)]
pub struct McpPromptDef {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// The response.
    pub response: String,
    /// Its arguments; `{name}` in the response is the value of one.
    #[serde(default)]
    pub arguments: Vec<McpArgumentDef>,
}

/// An argument of a prompt.
#[derive(Clone, Debug, Deserialize)]
pub struct McpArgumentDef {
    /// Its name.
    pub name: String,
    /// What it is.
    pub description: Option<String>,
    /// Whether it must be given.
    #[serde(default)]
    pub required: bool,
}

/// A resource that hosts are offered: a response of the domain. One with `{name}` in its address is a template.
#[derive(Clone, Debug, Deserialize)]
pub struct McpResourceDef {
    /// Its address.
    pub uri: String,
    /// Its name.
    pub name: Option<String>,
    /// What the resource holds, in one sentence.
    pub description: Option<String>,
    /// Its media type.
    pub mime_type: Option<String>,
    /// The response.
    pub response: String,
}

impl ChannelDef {
    /// Whether the channel may be opened as far as its keys go.
    ///
    /// # Errors
    /// A key is misspelt.
    pub fn check_spelling(&self) -> Result<(), String> {
        match &self.misspelt {
            Some(key) => Err(format!("there is no setting `{key}`, and it may have been meant to keep callers out")),
            None => Ok(()),
        }
    }

    /// The settings of a channel from outside as its own type. Where the channel handed its schema to the loader, types and
    /// unknown keys were checked there.
    ///
    /// # Errors
    /// What is wrong with a setting.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, String> {
        match &self.settings {
            ChannelSettings::Other(settings) => {
                serde_json::from_value(Json::Object(settings.clone())).map_err(|error| error.to_string())
            }
            ChannelSettings::Rest(_) | ChannelSettings::Mcp(_) => {
                Err("a built-in channel has settings of its own".into())
            }
        }
    }
}

impl Default for ChannelSettings {
    fn default() -> Self {
        Self::Other(Map::new())
    }
}

// Settings of a channel may hold secrets.
impl fmt::Debug for ChannelSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rest(settings) => settings.fmt(f),
            Self::Mcp(settings) => settings.fmt(f),
            Self::Other(settings) => f.debug_set().entries(settings.keys()).finish(),
        }
    }
}

impl fmt::Debug for CallerAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerAuth").field("token", &self.token.is_some()).field("jwt", &self.jwt).finish()
    }
}
