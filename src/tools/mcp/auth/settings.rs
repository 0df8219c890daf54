//! What an entry of `endpoints.yml` says under `oauth`.

use std::time::Duration;

use serde_json::{Map, Value as Json};

use crate::{limits, secret::Secret};

/// How tokens are come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tools::mcp) enum Grant {
    /// By a secret of ours.
    ClientCredentials,
    /// By the consent of a person.
    AuthorizationCode,
}

/// `oauth`, read.
pub(in crate::tools::mcp) struct Settings {
    pub(super) grant: Grant,
    pub(super) client_id: Option<String>,
    pub(super) client_secret: Option<Secret>,
    /// Where tokens are given; none: the server's metadata says so.
    pub(super) token_url: Option<String>,
    pub(super) scope: Vec<String>,
    pub(super) audience: Option<String>,
    /// Where the document about this client is published.
    pub(super) client_metadata_url: Option<String>,
    /// Hosts that metadata may name beside those on the public net.
    pub(super) hosts: Vec<String>,
    /// The port of this machine to which a login returns; none: any.
    pub(super) redirect_port: Option<u16>,
    pub(super) timeout: Duration,
}

impl Settings {
    /// Reads the map.
    ///
    /// # Errors
    /// In words, for operators: a key is missing.
    pub(in crate::tools::mcp) fn read(oauth: &Map<String, Json>) -> Result<Self, String> {
        let text = |key: &str| oauth.get(key).and_then(Json::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
        let grant = match text("grant").as_deref() {
            None | Some("client_credentials") => Grant::ClientCredentials,
            Some("authorization_code") => Grant::AuthorizationCode,
            Some(other) => return Err(format!("`oauth` has the grant `{other}`, which is not known")),
        };
        let hosts = oauth.get("hosts").and_then(Json::as_array).into_iter().flatten();
        let seconds = oauth.get("timeout").and_then(Json::as_f64);
        let settings = Self {
            grant,
            client_id: text("client_id"),
            client_secret: text("client_secret").map(Secret::new),
            token_url: text("token_url"),
            scope: text("scope").unwrap_or_default().split_ascii_whitespace().map(str::to_owned).collect(),
            audience: text("audience"),
            client_metadata_url: text("client_metadata_url"),
            hosts: hosts.filter_map(|host| host.as_str().map(str::to_owned)).collect(),
            redirect_port: oauth.get("redirect_port").and_then(Json::as_u64).and_then(|port| u16::try_from(port).ok()),
            timeout: seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()).unwrap_or(limits::MCP_INITIALISE),
        };
        if grant == Grant::ClientCredentials {
            for (key, there) in
                [("client_id", settings.client_id.is_some()), ("client_secret", settings.client_secret.is_some())]
            {
                if !there {
                    return Err(format!("`oauth` lacks `{key}`"));
                }
            }
        }
        Ok(settings)
    }
}
