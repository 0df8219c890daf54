//! Credentials for servers that the assistant calls: `auth` and `hook_auth` of agents, `oauth` of MCP servers.

use std::{fmt, time::Duration};

use serde::{Deserialize, Deserializer};

/// `auth` or `hook_auth` of an agent: at most one of `api_key`, `oauth` and `token`. Contains secrets: never print it.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub struct AuthDef {
    /// An API key.
    pub api_key: Option<String>,
    /// The header for the API key; `None`: `Authorization`.
    pub header_name: Option<String>,
    /// The value of that header, with `{key}`; `None`: `Bearer {key}`.
    pub header_format: Option<String>,
    /// OAuth 2.0 client credentials.
    pub oauth: Option<OAuthDef>,
    /// A bearer token.
    pub token: Option<String>,
    /// Hosts that a fetched agent card may refer to and that get the credentials too.
    pub hosts: Vec<String>,
}

/// `oauth`: how access tokens are obtained. Contains secrets: never print it.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub struct OAuthDef {
    /// The grant type.
    pub grant: OAuthGrant,
    /// The client id.
    #[serde(deserialize_with = "text")]
    pub client_id: Option<String>,
    /// The client secret.
    #[serde(deserialize_with = "text")]
    pub client_secret: Option<String>,
    /// The URL of the token endpoint; `None`: from the server's metadata.
    #[serde(deserialize_with = "text")]
    pub token_url: Option<String>,
    /// The requested scopes, separated by spaces.
    pub scope: String,
    /// The audience of the token.
    #[serde(deserialize_with = "text")]
    pub audience: Option<String>,
    /// The URL of the client ID metadata document.
    #[serde(deserialize_with = "text")]
    pub client_metadata_url: Option<String>,
    /// Hosts of a private network that the server's metadata may refer to.
    pub hosts: Vec<String>,
    /// The local port of the redirect URI for a login; `None`: any free port.
    pub redirect_port: Option<u16>,
    /// The time limit of a token request, if set.
    #[serde(deserialize_with = "seconds")]
    pub timeout: Option<Duration>,
}

/// An OAuth 2.0 grant type (RFC 6749).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OAuthGrant {
    /// The client authenticates with its own secret.
    #[default]
    ClientCredentials,
    /// A user logs in and authorizes the client.
    AuthorizationCode,
}

/// A string; an empty one, such as from an empty environment variable, is `None`.
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
