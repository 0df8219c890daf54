//! Tokens of the authorization code grant. A token is used while it is valid, then renewed with the refresh token (RFC 6749,
//! section 6).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use rmcp::transport::auth::{
    AuthError, AuthorizationManager, CredentialStore, InMemoryCredentialStore, OAuthClientConfig, StoredCredentials,
};
use serde_json::{Value as Json, json};

use super::{
    discovery::{discover, error_text, fetch_challenge},
    login_store::{LoginLock, LoginRecord, LoginStore},
    oauth_http::OAuthHttp,
};
use segue_base::{
    clock::Clock,
    context::CallContext,
    limits,
    outbound_auth::{IssuedToken, refresh_margin},
    secret::Secret,
};

/// The authorization code grant at one server, with its stored login.
pub(super) struct CodeGrant {
    logins: LoginStore,
    url: String,
    oauth_http: Arc<OAuthHttp>,
    clock: Arc<dyn Clock>,
    /// The client id, and the OAuth client for the authorization server, once it is discovered.
    manager: Option<(String, AuthorizationManager)>,
}

impl CodeGrant {
    pub(super) fn new(logins: LoginStore, url: &str, oauth_http: Arc<OAuthHttp>, clock: Arc<dyn Clock>) -> Self {
        Self { logins, url: url.to_owned(), oauth_http, clock, manager: None }
    }

    /// Whether a login for this server is stored.
    pub(super) async fn is_logged_in(&self) -> bool {
        self.logins.read(&self.url).await.is_ok()
    }

    /// A token other than `rejected`: the stored one if it is still valid, otherwise a refreshed one.
    ///
    /// # Errors
    /// A text for operators: there is no login, it has expired, or it lacks some of the `required` scopes.
    pub(super) async fn token(
        &mut self,
        rejected: Option<&str>,
        required: &BTreeSet<String>,
    ) -> Result<IssuedToken, String> {
        if let Some(token) = self.usable_token(&self.logins.read(&self.url).await?, rejected) {
            return Ok(token);
        }
        let cx = CallContext::new(self.clock.clone(), limits::MCP_LOGIN_LOCK);
        let lock = self.logins.lock(&cx).await?;
        // Another process may have refreshed the token in the meantime; the file then contains the new one.
        let mut record = self.logins.read(&self.url).await?;
        if let Some(token) = self.usable_token(&record, rejected) {
            return Ok(token);
        }
        let granted = &record.credentials.granted_scopes;
        let missing: Vec<String> = required.iter().filter(|scope| !granted.contains(scope)).cloned().collect();
        if missing.is_empty() {
            return self.refresh(lock, record).await;
        }
        let reason = format!("the server requires more scopes ({}); {}", missing.join(" "), self.logins.login_hint());
        // The limit includes the scopes that earlier processes stored.
        let available = limits::MCP_SCOPES.saturating_sub(record.required_scopes.len());
        let new: Vec<String> =
            missing.into_iter().filter(|scope| !record.required_scopes.contains(scope)).take(available).collect();
        if !new.is_empty() {
            record.required_scopes.extend(new);
            record.required_scopes.sort_unstable();
            lock.write(&record).await?;
        }
        Err(reason)
    }

    /// The token of a login, if it is not `rejected` and does not expire soon.
    fn usable_token(&self, record: &LoginRecord, rejected: Option<&str>) -> Option<IssuedToken> {
        let (token, lifetime) = access_token(&record.credentials, self.clock.now().as_micros() / 1_000_000);
        let token = token.filter(|token| rejected != Some(token.as_str()) && !lifetime.is_zero())?;
        Some(IssuedToken { token: Secret::new(token), lifetime })
    }

    /// Refreshes the token and stores the result. It continues when the caller stops waiting: a refresh token is often
    /// valid for one use, so the result must not be lost.
    async fn refresh(&mut self, lock: LoginLock, record: LoginRecord) -> Result<IssuedToken, String> {
        let refresh = Refresh {
            logins: self.logins.clone(),
            url: self.url.clone(),
            oauth_http: self.oauth_http.clone(),
            clock: self.clock.clone(),
            manager: self.manager.take(),
        };
        let cx = CallContext::new(self.clock.clone(), limits::MCP_REFRESH);
        let task = tokio::spawn(async move {
            let mut refresh = refresh;
            let token = cx.wait(refresh.run(&lock, record)).await;
            (
                refresh.manager,
                token.unwrap_or_else(|error| Err(format!("no token within {:?}: {error}", limits::MCP_REFRESH))),
            )
        });
        let (manager, token) = task.await.map_err(|_| "the token refresh failed unexpectedly".to_owned())?;
        self.manager = manager;
        token
    }
}

/// A token refresh. It owns its data, because it runs as a task of its own.
struct Refresh {
    logins: LoginStore,
    url: String,
    oauth_http: Arc<OAuthHttp>,
    clock: Arc<dyn Clock>,
    manager: Option<(String, AuthorizationManager)>,
}

impl Refresh {
    /// Refreshes the token of a login and stores the result.
    async fn run(&mut self, lock: &LoginLock, record: LoginRecord) -> Result<IssuedToken, String> {
        let store = InMemoryCredentialStore::new();
        let failed = |error: AuthError| error_text(&error);
        store.save(record.credentials.clone()).await.map_err(failed)?;
        let manager = match &mut self.manager {
            Some((client, manager)) if *client == record.client_id => manager,
            entry => {
                let challenge = fetch_challenge(self.oauth_http.client()?, &self.url).await;
                let (mut manager, metadata) = discover(&self.url, challenge.as_deref(), &self.oauth_http).await?;
                let issuer = record.credentials.issuer.as_deref();
                if issuer.is_some() && metadata.issuer.is_some() && issuer != metadata.issuer.as_deref() {
                    return Err(format!(
                        "the authorization server of the MCP server has changed; {}",
                        self.logins.login_hint()
                    ));
                }
                manager.configure_client(client_config(&record)).map_err(failed)?;
                &mut entry.insert((record.client_id.clone(), manager)).1
            }
        };
        manager.set_credential_store(store.clone());
        match manager.refresh_token().await {
            Ok(_) => {}
            Err(AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_)) => {
                return Err(format!("the login has expired; {}", self.logins.login_hint()));
            }
            Err(error) => return Err(error_text(&error)),
        }
        let now = self.clock.now().as_micros() / 1_000_000;
        let credentials = store.load().await.map_err(failed)?.ok_or("the authorization server returned no token")?;
        let credentials = with_received_at(credentials, now);
        let (token, lifetime) = access_token(&credentials, now);
        lock.write(&LoginRecord { credentials, ..record }).await?;
        let token = token.ok_or("the authorization server returned no token")?;
        Ok(IssuedToken { token: Secret::new(token), lifetime })
    }
}

/// The OAuth client of a login.
fn client_config(record: &LoginRecord) -> OAuthClientConfig {
    let config = OAuthClientConfig::new(&record.client_id, &record.redirect_uri);
    match &record.client_secret {
        Some(secret) => config.with_client_secret(secret),
        None => config,
    }
}

/// The credentials with `now`, in seconds since 1970 by the clock of this process, as the time when they were received.
pub(super) fn with_received_at(mut credentials: StoredCredentials, now: i64) -> StoredCredentials {
    credentials.token_received_at = u64::try_from(now).ok();
    credentials
}

/// The token of a login, and how long it is still valid at `now` (seconds since 1970); zero also if it expires soon.
fn access_token(credentials: &StoredCredentials, now: i64) -> (Option<String>, Duration) {
    // Read from its JSON form, because the types of the response are from a crate that is not a direct dependency.
    let response = json!(credentials.token_response);
    let token = response.get("access_token").and_then(Json::as_str).map(str::to_owned);
    let lifetime = response.get("expires_in").and_then(Json::as_u64).map(Duration::from_secs);
    let remaining = match (lifetime, credentials.token_received_at) {
        (Some(lifetime), Some(received_at)) => {
            let age = Duration::from_secs(u64::try_from(now).unwrap_or_default().saturating_sub(received_at));
            let remaining = lifetime.saturating_sub(age);
            if remaining > refresh_margin(lifetime) { remaining } else { Duration::ZERO }
        }
        _ => limits::TOKEN_LIFETIME,
    };
    (token, remaining)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use segue_base::manual_clock::ManualClock;

    #[tokio::test]
    async fn stored_required_scopes_are_limited() {
        const URL: &str = "http://127.0.0.1:9/mcp";
        let folder = tempfile::tempdir().unwrap();
        let (logins, clock) = (LoginStore::new(Some(folder.path().to_owned()), "far"), ManualClock::new());
        let scopes = |mark: &str, count: usize| (0..count).map(|at| format!("{mark}{at}")).collect::<BTreeSet<_>>();
        let record = json!({
            "url": URL, "client_id": "me", "redirect_uri": URL, "wanted": scopes("old", limits::MCP_SCOPES - 2),
            "credentials": {"client_id": "me", "token_response": {"access_token": "t", "token_type": "bearer"}},
        });
        let lock = logins.lock(&clock.context(Duration::from_secs(1))).await.unwrap();
        lock.write(&serde_json::from_value(record).unwrap()).await.unwrap();
        drop(lock);
        let oauth_http = Arc::new(OAuthHttp::new(URL, &[], &segue_base::http::HttpClients::new()).unwrap());
        let mut grant = CodeGrant::new(logins.clone(), URL, oauth_http, Arc::new(clock));
        for mark in ["new", "newer"] {
            assert!(
                grant.token(Some("t"), &scopes(mark, limits::MCP_SCOPES)).await.is_err(),
                "new scopes need a new login"
            );
            assert_eq!(logins.read(URL).await.unwrap().required_scopes.len(), limits::MCP_SCOPES);
        }
    }
}
