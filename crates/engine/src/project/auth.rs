//! How the assistant says who it is to servers that it asks: `auth` and `hook_auth` of agents, `oauth` of MCP servers.

use std::{fmt, time::Duration};

use serde::{Deserialize, Deserializer};

/// `auth` or `hook_auth` of an agent: one of `api_key`, `oauth` and `token`, or none. Never print it.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub struct AuthDef {
    /// A key.
    pub api_key: Option<String>,
    /// The header that carries the key; `Authorization` unless set.
    pub header_name: Option<String>,
    /// The value of that header, with `{key}`; `Bearer {key}` unless set.
    pub header_format: Option<String>,
    /// Where tokens come from.
    pub oauth: Option<OAuthDef>,
    /// A bearer token.
    pub token: Option<String>,
    /// Hosts that a fetched card may name, and that are told it as well.
    pub hosts: Vec<String>,
}

/// `oauth`: how tokens are come by. Never print it.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub struct OAuthDef {
    /// How a token is given.
    pub grant: OAuthGrant,
    /// The client.
    #[serde(deserialize_with = "text")]
    pub client_id: Option<String>,
    /// Its secret.
    #[serde(deserialize_with = "text")]
    pub client_secret: Option<String>,
    /// Where tokens are given; found out by the server's metadata where there is none.
    #[serde(deserialize_with = "text")]
    pub token_url: Option<String>,
    /// Rights that are asked for, with blanks between them.
    pub scope: String,
    /// For whom.
    #[serde(deserialize_with = "text")]
    pub audience: Option<String>,
    /// Where a document about this client is published.
    #[serde(deserialize_with = "text")]
    pub client_metadata_url: Option<String>,
    /// Hosts that metadata may name beside those on the public net.
    pub hosts: Vec<String>,
    /// The port of this machine to which a login returns; any where there is none.
    pub redirect_port: Option<u16>,
    /// The longest time of a request, where set.
    #[serde(deserialize_with = "seconds")]
    pub timeout: Option<Duration>,
}

/// How a token is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OAuthGrant {
    /// For a secret of ours.
    #[default]
    ClientCredentials,
    /// With the consent of a person.
    AuthorizationCode,
}

/// A text; an empty one, as of a variable that is set to nothing, counts as none.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.filter(|text| !text.is_empty()))
}

fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let seconds = Option::<f64>::deserialize(deserializer)?;
    Ok(seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()))
}

impl fmt::Debug for AuthDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthDef(…)")
    }
}

impl fmt::Debug for OAuthDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthDef").field("grant", &self.grant).finish_non_exhaustive()
    }
}
