//! An interactive login: a URL to open, and the redirect URI to which it returns.

use rmcp::transport::auth::{
    AuthorizationCallback, AuthorizationManager, CredentialStore, InMemoryCredentialStore, OAuthClientConfig,
};
use segue_engine::project::{McpServerDef, McpTransport, OAuthDef, OAuthGrant};

use super::{
    authorization_code::stamped,
    discovery::{challenge, discovered, words},
    login_store::{LoginStore, Record},
    oauth_http::OAuthHttp,
};
use crate::mcp::McpEnvironment;
use segue_base::{context::CallContext, limits};

/// A started login; [`Self::finish`] completes it.
pub struct Login {
    kept: LoginStore,
    url: String,
    address: String,
    manager: AuthorizationManager,
    client: OAuthClientConfig,
    store: InMemoryCredentialStore,
    around: McpEnvironment,
}

/// The settings of a login at one server.
struct Wanted {
    name: String,
    url: String,
    oauth: OAuthDef,
}

impl Wanted {
    fn of(def: &McpServerDef) -> Result<Self, String> {
        let McpTransport::Http { url } = &def.transport else {
            return Err(format!("`{}` is a program of this machine: there is nothing to log in to", def.name));
        };
        let by_consent = |oauth: &&OAuthDef| oauth.grant == OAuthGrant::AuthorizationCode;
        let oauth = def.oauth.as_ref().filter(by_consent).cloned().ok_or_else(|| {
            format!("the entry of `{}` has no `oauth: {{grant: authorization_code}}`: nobody has to log in", def.name)
        })?;
        Ok(Self { name: def.name.to_string(), url: url.clone(), oauth })
    }

    fn kept(&self, around: &McpEnvironment) -> LoginStore {
        LoginStore::new(around.logins.clone(), &self.name)
    }
}

impl Login {
    /// The port of the redirect URI, if the entry of the server sets one.
    pub fn port(def: &McpServerDef) -> Option<u16> {
        Wanted::of(def).ok().and_then(|wanted| wanted.oauth.redirect_port)
    }

    /// Discovers the authorization server, registers the client if necessary, and creates the URL to open.
    /// `redirect_uri` is where the response is awaited. Cancellation: nothing is stored before [`Self::finish`].
    ///
    /// # Errors
    /// A text for operators, without secrets.
    pub async fn begin(def: &McpServerDef, redirect_uri: &str, around: &McpEnvironment) -> Result<Self, String> {
        let wanted = Wanted::of(def)?;
        let kept = wanted.kept(around);
        let Wanted { name, url, oauth } = wanted;
        let oauth_http = std::sync::Arc::new(OAuthHttp::new(&url, &oauth.hosts, &around.http)?);
        let http = around.http.client().map_err(|error| error.to_string())?;
        let asked = challenge(http, &url).await;
        let (mut manager, metadata) = discovered(&url, asked.as_deref(), &oauth_http).await?;
        oauth_http.check(&metadata.authorization_endpoint).await?;
        let mut scopes: Vec<String> = oauth.scope.split_ascii_whitespace().map(str::to_owned).collect();
        if scopes.is_empty() {
            scopes = manager.select_initial_scopes(&[]).await;
        }
        // Requests the scopes of the earlier login and those the server has required since.
        if let Ok(record) = kept.read(&url).await
            && !record.wanted.is_empty()
        {
            scopes.extend(record.credentials.granted_scopes.into_iter().chain(record.wanted));
        }
        let mut seen = std::collections::HashSet::new();
        scopes.retain(|scope| seen.insert(scope.clone()));
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let by_document = metadata.additional_fields.get("client_id_metadata_document_supported");
        let by_document = by_document.and_then(serde_json::Value::as_bool).unwrap_or(false);
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
            (None, Some(document)) if by_document => OAuthClientConfig::new(document, redirect_uri),
            _ => manager.register_client("Segue", redirect_uri, &scopes).await.map_err(|error| {
                format!(
                    "`{name}` does not let us register: {}; get a client id and set `oauth.client_id`",
                    words(&error)
                )
            })?,
        };
        manager.configure_client(client.clone()).map_err(|error| words(&error))?;
        let store = InMemoryCredentialStore::new();
        manager.set_credential_store(store.clone());
        let address = manager.get_authorization_url(&scopes).await.map_err(|error| words(&error))?;
        Ok(Self { kept, url, address, manager, client, store, around: around.clone() })
    }

    /// The URL that the user must open.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Completes the login with the URL to which the browser was redirected, and stores the tokens. Returns the granted
    /// scopes.
    ///
    /// # Errors
    /// A text for operators: consent was refused, or the response is not for this login.
    pub async fn finish(self, callback: &str) -> Result<Vec<String>, String> {
        let url = reqwest::Url::parse(callback).map_err(|error| format!("the answer is no address: {error}"))?;
        let refused = url.query_pairs().find(|(key, _)| key == "error").map(|(_, why)| why.into_owned());
        if let Some(why) = refused {
            let why: String = why.chars().filter(|c| c.is_ascii_graphic()).take(60).collect();
            return Err(format!("consent was not given ({why})"));
        }
        let callback = AuthorizationCallback::from_redirect_url(callback).map_err(|error| words(&error))?;
        let exchanged = self.manager.exchange_code_for_token_with_issuer(
            &callback.code,
            &callback.csrf_token,
            callback.issuer.as_deref(),
        );
        exchanged.await.map_err(|error| words(&error))?;
        let credentials = self.store.load().await.map_err(|error| words(&error))?.ok_or("nothing was given")?;
        let scopes = credentials.granted_scopes.clone();
        let record = Record {
            url: self.url,
            client_id: self.client.client_id,
            client_secret: self.client.client_secret,
            redirect_uri: self.client.redirect_uri,
            credentials: stamped(credentials, self.around.clock.now().as_micros() / 1_000_000),
            wanted: Vec::new(),
        };
        let cx = CallContext::new(self.around.clock.clone(), limits::MCP_LOGIN_LOCK);
        self.kept.lock(&cx).await?.write(&record).await?;
        Ok(scopes)
    }

    /// Deletes the login at this server; returns whether there was one.
    ///
    /// # Errors
    /// A text for operators.
    pub async fn forget(def: &McpServerDef, around: &McpEnvironment) -> Result<bool, String> {
        let kept = Wanted::of(def)?.kept(around);
        if around.logins.is_none() {
            return Ok(false);
        }
        kept.lock(&CallContext::new(around.clock.clone(), limits::MCP_LOGIN_LOCK)).await?.forget().await
    }
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("url", &self.url).finish_non_exhaustive()
    }
}
