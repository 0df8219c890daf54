//! The client credentials grant (RFC 6749, section 4.4) at the authorization server of an MCP server, which its
//! metadata names unless the entry does.

use std::{collections::BTreeSet, sync::Arc};

use segue_engine::project::OAuthDef;
use serde_json::Value as Json;

use super::{
    discovery::{challenge as ask_challenge, discovered},
    oauth_http::OAuthHttp,
};
use segue_base::{
    http::parse_endpoint_url,
    outbound_auth::{ClientAuthMethod, ClientGrant, IssuedToken, TokenEndpoint, TokenError},
    secret::Secret,
};

/// Client id and secret, and the token endpoint once it is discovered.
pub(super) struct DiscoveredClient {
    /// Scopes of the entry.
    named: Vec<String>,
    /// The server.
    url: String,
    http: reqwest::Client,
    oauth_http: Arc<OAuthHttp>,
    grant: ClientGrant,
    giver: Option<TokenEndpoint>,
    /// Scopes of the first challenge or the metadata.
    scopes: Vec<String>,
}

impl DiscoveredClient {
    pub(super) fn new(
        oauth: &OAuthDef,
        url: &str,
        http: reqwest::Client,
        oauth_http: Arc<OAuthHttp>,
    ) -> Result<Self, String> {
        let giver = match &oauth.token_url {
            Some(given) => Some(TokenEndpoint {
                client: http.clone(),
                url: parse_endpoint_url(given)?,
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
        let named = oauth.scope.split_ascii_whitespace().map(str::to_owned).collect();
        Ok(Self { named, url: url.to_owned(), http, oauth_http, grant, giver, scopes: Vec::new() })
    }

    /// A new token with the scopes of the entry and `wanted`.
    pub(super) async fn token(
        &mut self,
        wanted: &BTreeSet<String>,
        challenge: Option<&str>,
    ) -> Result<IssuedToken, TokenError> {
        let giver = match &self.giver {
            Some(giver) => giver.clone(),
            None => {
                let (giver, scopes) = self.found(challenge).await.map_err(TokenError::ClientUnavailable)?;
                self.scopes = scopes;
                self.giver.insert(giver).clone()
            }
        };
        let mut scopes: Vec<&str> = Vec::new();
        for scope in self.named.iter().chain(&self.scopes).chain(wanted) {
            if !scopes.contains(&scope.as_str()) {
                scopes.push(scope);
            }
        }
        self.grant.token(&giver, &scopes.join(" ")).await
    }

    /// The token endpoint, and the scopes of the first request.
    async fn found(&self, challenge: Option<&str>) -> Result<(TokenEndpoint, Vec<String>), String> {
        let asked = match challenge {
            Some(_) => None,
            None => ask_challenge(&self.http, &self.url).await,
        };
        let (manager, metadata) = discovered(&self.url, challenge.or(asked.as_deref()), &self.oauth_http).await?;
        let scopes = if self.named.is_empty() { manager.select_initial_scopes(&[]).await } else { Vec::new() };
        let methods = metadata.additional_fields.get("token_endpoint_auth_methods_supported").and_then(Json::as_array);
        let takes = |method: &str| methods.is_none_or(|all| all.iter().any(|one| one.as_str() == Some(method)));
        let auth_method = match (takes("client_secret_basic"), takes("client_secret_post")) {
            (true, false) => Some(ClientAuthMethod::Basic),
            (false, true) => Some(ClientAuthMethod::Post),
            (true, true) => None,
            (false, false) => return Err("the token server takes no client that has a secret".to_owned()),
        };
        let url = self.oauth_http.check(&metadata.token_endpoint).await?;
        let client = self.oauth_http.client()?.clone();
        // A token that needs consent anew is not for us.
        let scopes = scopes.into_iter().filter(|scope| scope != "offline_access").collect();
        Ok((TokenEndpoint { client, url, auth_method, resource: Some(self.url.clone()) }, scopes))
    }
}
