//! The client credentials grant (RFC 6749, section 4.4) for an MCP server. The token endpoint is `token_url` of the entry,
//! otherwise that in the metadata of the server.

use std::{collections::BTreeSet, sync::Arc};

use segue_engine::project::OAuthDef;
use serde_json::Value as Json;

use super::{
    discovery::{discover, fetch_challenge},
    oauth_http::OAuthHttp,
};
use segue_base::{
    http::parse_endpoint_url,
    outbound_auth::{ClientAuthMethod, ClientGrant, IssuedToken, TokenEndpoint, TokenError},
    secret::Secret,
};

/// Client id and secret, and the token endpoint once it is discovered.
pub(super) struct DiscoveredClient {
    /// The scopes of the entry.
    configured_scopes: Vec<String>,
    /// The URL of the MCP server.
    url: String,
    http: reqwest::Client,
    oauth_http: Arc<OAuthHttp>,
    grant: ClientGrant,
    endpoint: Option<TokenEndpoint>,
    /// The scopes of the first challenge or the metadata, if the entry has none.
    discovered_scopes: Vec<String>,
}

impl DiscoveredClient {
    pub(super) fn new(
        oauth: &OAuthDef,
        url: &str,
        http: reqwest::Client,
        oauth_http: Arc<OAuthHttp>,
    ) -> Result<Self, String> {
        let endpoint = match &oauth.token_url {
            Some(token_url) => Some(TokenEndpoint {
                client: http.clone(),
                url: parse_endpoint_url(token_url)?,
                auth_method: None,
                resource: None,
            }),
            None => None,
        };
        let required =
            |value: &Option<String>, key: &str| value.clone().ok_or_else(|| format!("`oauth` lacks `{key}`"));
        let id = required(&oauth.client_id, "client_id")?;
        let secret = Secret::new(required(&oauth.client_secret, "client_secret")?);
        let grant = ClientGrant::new(id, secret, oauth.audience.clone());
        let configured_scopes = oauth.scope.split_ascii_whitespace().map(str::to_owned).collect();
        Ok(Self {
            configured_scopes,
            url: url.to_owned(),
            http,
            oauth_http,
            grant,
            endpoint,
            discovered_scopes: Vec::new(),
        })
    }

    /// A new token with the scopes of the entry and `required`.
    pub(super) async fn token(
        &mut self,
        required: &BTreeSet<String>,
        challenge: Option<&str>,
    ) -> Result<IssuedToken, TokenError> {
        let endpoint = match &self.endpoint {
            Some(endpoint) => endpoint.clone(),
            None => {
                let (endpoint, scopes) =
                    self.discover_endpoint(challenge).await.map_err(TokenError::ClientUnavailable)?;
                self.discovered_scopes = scopes;
                self.endpoint.insert(endpoint).clone()
            }
        };
        let mut scopes: Vec<&str> = Vec::new();
        for scope in self.configured_scopes.iter().chain(&self.discovered_scopes).chain(required) {
            if !scopes.contains(&scope.as_str()) {
                scopes.push(scope);
            }
        }
        self.grant.token(&endpoint, &scopes.join(" ")).await
    }

    /// Discovers the token endpoint, and the scopes for the first request.
    async fn discover_endpoint(&self, challenge: Option<&str>) -> Result<(TokenEndpoint, Vec<String>), String> {
        let fetched = match challenge {
            Some(_) => None,
            None => fetch_challenge(&self.http, &self.url).await,
        };
        let (manager, metadata) = discover(&self.url, challenge.or(fetched.as_deref()), &self.oauth_http).await?;
        let scopes =
            if self.configured_scopes.is_empty() { manager.select_initial_scopes(&[]).await } else { Vec::new() };
        let methods = metadata.additional_fields.get("token_endpoint_auth_methods_supported").and_then(Json::as_array);
        let accepts = |method: &str| methods.is_none_or(|all| all.iter().any(|name| name.as_str() == Some(method)));
        let auth_method = match (accepts("client_secret_basic"), accepts("client_secret_post")) {
            (true, false) => Some(ClientAuthMethod::Basic),
            (false, true) => Some(ClientAuthMethod::Post),
            (true, true) => None,
            (false, false) => return Err("the token endpoint does not accept clients with a secret".to_owned()),
        };
        let url = self.oauth_http.check(&metadata.token_endpoint).await?;
        let client = self.oauth_http.client()?.clone();
        // `offline_access` requests a refresh token, which this grant does not use.
        let scopes = scopes.into_iter().filter(|scope| scope != "offline_access").collect();
        Ok((TokenEndpoint { client, url, auth_method, resource: Some(self.url.clone()) }, scopes))
    }
}
