//! An interactive login: a URL to open, and the redirect URI to which it returns.

use rmcp::transport::auth::{
    AuthorizationCallback, AuthorizationManager, CredentialStore, InMemoryCredentialStore, OAuthClientConfig,
};
use segue_engine::project::{McpServerDef, McpTransport, OAuthDef, OAuthGrant};

use super::{
    authorization_code::with_received_at,
    discovery::{discover, error_text, fetch_challenge},
    login_store::{LoginRecord, LoginStore},
    oauth_http::OAuthHttp,
};
use crate::mcp::McpEnvironment;
use segue_base::{context::CallContext, limits};

/// A started login; [`Self::finish`] completes it.
pub struct Login {
    logins: LoginStore,
    url: String,
    authorization_url: String,
    manager: AuthorizationManager,
    client: OAuthClientConfig,
    store: InMemoryCredentialStore,
    environment: McpEnvironment,
}

/// The settings of a login at one server.
struct LoginTarget {
    name: String,
    url: String,
    oauth: OAuthDef,
}

impl LoginTarget {
    fn new(def: &McpServerDef) -> Result<Self, String> {
        let McpTransport::Http { url } = &def.transport else {
            return Err(format!("`{}` is a program on this machine and needs no login", def.name));
        };
        let is_code_grant = |oauth: &&OAuthDef| oauth.grant == OAuthGrant::AuthorizationCode;
        let oauth = def.oauth.as_ref().filter(is_code_grant).cloned().ok_or_else(|| {
            format!("`{}` needs no login: its entry has no `oauth: {{grant: authorization_code}}`", def.name)
        })?;
        Ok(Self { name: def.name.to_string(), url: url.clone(), oauth })
    }

    fn login_store(&self, environment: &McpEnvironment) -> LoginStore {
        LoginStore::new(environment.logins.clone(), &self.name)
    }
}

impl Login {
    /// The port of the redirect URI, if the entry of the server sets one.
    pub fn port(def: &McpServerDef) -> Option<u16> {
        LoginTarget::new(def).ok().and_then(|target| target.oauth.redirect_port)
    }

    /// Discovers the authorization server, registers the client if necessary, and creates the URL to open.
    /// The browser is redirected to `redirect_uri` after the consent. Cancellation: nothing is stored before [`Self::finish`].
    ///
    /// # Errors
    /// A text for operators, without secrets.
    pub async fn begin(def: &McpServerDef, redirect_uri: &str, environment: &McpEnvironment) -> Result<Self, String> {
        let target = LoginTarget::new(def)?;
        let logins = target.login_store(environment);
        let LoginTarget { name, url, oauth } = target;
        let oauth_http = std::sync::Arc::new(OAuthHttp::new(&url, &oauth.hosts, &environment.http)?);
        let http = environment.http.client().map_err(|error| error.to_string())?;
        let challenge = fetch_challenge(http, &url).await;
        let (mut manager, metadata) = discover(&url, challenge.as_deref(), &oauth_http).await?;
        oauth_http.check(&metadata.authorization_endpoint).await?;
        let mut scopes: Vec<String> = oauth.scope.split_ascii_whitespace().map(str::to_owned).collect();
        if scopes.is_empty() {
            scopes = manager.select_initial_scopes(&[]).await;
        }
        // Adds the scopes of the earlier login and those that the server has required since.
        if let Ok(record) = logins.read(&url).await
            && !record.required_scopes.is_empty()
        {
            scopes.extend(record.credentials.granted_scopes.into_iter().chain(record.required_scopes));
        }
        let mut unique = std::collections::HashSet::new();
        scopes.retain(|scope| unique.insert(scope.clone()));
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let supports_metadata_document = metadata.additional_fields.get("client_id_metadata_document_supported");
        let supports_metadata_document =
            supports_metadata_document.and_then(serde_json::Value::as_bool).unwrap_or(false);
        // In the order of the MCP specification: a configured client, a client id metadata document, dynamic
        // registration.
        let client = match (&oauth.client_id, &oauth.client_metadata_url) {
            (Some(id), _) => {
                let config = OAuthClientConfig::new(id, redirect_uri);
                match &oauth.client_secret {
                    Some(secret) => config.with_client_secret(secret),
                    None => config,
                }
            }
            (None, Some(document)) if supports_metadata_document => OAuthClientConfig::new(document, redirect_uri),
            _ => manager.register_client("Segue", redirect_uri, &scopes).await.map_err(|error| {
                format!(
                    "`{name}` does not allow dynamic client registration: {}; obtain a client id and set `oauth.client_id`",
                    error_text(&error)
                )
            })?,
        };
        manager.configure_client(client.clone()).map_err(|error| error_text(&error))?;
        let store = InMemoryCredentialStore::new();
        manager.set_credential_store(store.clone());
        let authorization_url = manager.get_authorization_url(&scopes).await.map_err(|error| error_text(&error))?;
        Ok(Self { logins, url, authorization_url, manager, client, store, environment: environment.clone() })
    }

    /// The URL that the user must open.
    pub fn authorization_url(&self) -> &str {
        &self.authorization_url
    }

    /// Completes the login with the URL to which the browser was redirected, and stores the tokens. Returns the granted
    /// scopes.
    ///
    /// # Errors
    /// A text for operators: consent was refused, or the response is not for this login.
    pub async fn finish(self, callback: &str) -> Result<Vec<String>, String> {
        let url = reqwest::Url::parse(callback).map_err(|error| format!("the callback is not a valid URL: {error}"))?;
        let error = url.query_pairs().find(|(key, _)| key == "error").map(|(_, reason)| reason.into_owned());
        if let Some(reason) = error {
            let reason: String = reason.chars().filter(|c| c.is_ascii_graphic()).take(60).collect();
            return Err(format!("consent was not given ({reason})"));
        }
        let callback = AuthorizationCallback::from_redirect_url(callback).map_err(|error| error_text(&error))?;
        let exchanged = self.manager.exchange_code_for_token_with_issuer(
            &callback.code,
            &callback.csrf_token,
            callback.issuer.as_deref(),
        );
        exchanged.await.map_err(|error| error_text(&error))?;
        let credentials = self
            .store
            .load()
            .await
            .map_err(|error| error_text(&error))?
            .ok_or("the authorization server returned no token")?;
        let scopes = credentials.granted_scopes.clone();
        let record = LoginRecord {
            url: self.url,
            client_id: self.client.client_id,
            client_secret: self.client.client_secret,
            redirect_uri: self.client.redirect_uri,
            credentials: with_received_at(credentials, self.environment.clock.now().as_micros() / 1_000_000),
            required_scopes: Vec::new(),
        };
        let cx = CallContext::new(self.environment.clock.clone(), limits::MCP_LOGIN_LOCK);
        self.logins.lock(&cx).await?.write(&record).await?;
        Ok(scopes)
    }

    /// Deletes the login at this server; returns whether there was one.
    ///
    /// # Errors
    /// A text for operators.
    pub async fn delete(def: &McpServerDef, environment: &McpEnvironment) -> Result<bool, String> {
        let logins = LoginTarget::new(def)?.login_store(environment);
        if environment.logins.is_none() {
            return Ok(false);
        }
        logins.lock(&CallContext::new(environment.clock.clone(), limits::MCP_LOGIN_LOCK)).await?.delete().await
    }
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("url", &self.url).finish_non_exhaustive()
    }
}
