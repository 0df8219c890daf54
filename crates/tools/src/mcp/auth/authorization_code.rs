//! Tokens of the authorization code grant: used while valid, then renewed by the refresh token (RFC 6749, section 6).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use rmcp::transport::auth::{
    AuthError, AuthorizationManager, CredentialStore, InMemoryCredentialStore, OAuthClientConfig, StoredCredentials,
};
use serde_json::{Value as Json, json};

use super::{
    discovery::{challenge, discovered, words},
    login_store::{Lock, LoginStore, Record},
    oauth_http::OAuthHttp,
};
use segue_base::{
    clock::Clock,
    context::CallContext,
    limits,
    outbound_auth::{IssuedToken, refresh_margin},
    secret::Secret,
};

pub(super) struct CodeGrant {
    kept: LoginStore,
    url: String,
    oauth_http: Arc<OAuthHttp>,
    clock: Arc<dyn Clock>,
    /// The OAuth client for the authorization server, after discovery; valid for one client id.
    manager: Option<(String, AuthorizationManager)>,
}

impl CodeGrant {
    pub(super) fn new(kept: LoginStore, url: &str, oauth_http: Arc<OAuthHttp>, clock: Arc<dyn Clock>) -> Self {
        Self { kept, url: url.to_owned(), oauth_http, clock, manager: None }
    }

    /// Whether there is a login.
    pub(super) async fn is_logged_in(&self) -> bool {
        self.kept.read(&self.url).await.is_ok()
    }

    /// A token other than `refused`. `wanted` are scopes that require a new login.
    pub(super) async fn token(
        &mut self,
        refused: Option<&str>,
        wanted: &BTreeSet<String>,
    ) -> Result<IssuedToken, String> {
        if let Some(given) = self.good(&self.kept.read(&self.url).await?, refused) {
            return Ok(given);
        }
        let cx = CallContext::new(self.clock.clone(), limits::MCP_LOGIN_LOCK);
        let lock = self.kept.lock(&cx).await?;
        // Another process may have refreshed it: then the new token is in the file.
        let mut record = self.kept.read(&self.url).await?;
        if let Some(given) = self.good(&record, refused) {
            return Ok(given);
        }
        let granted = &record.credentials.granted_scopes;
        let missing: Vec<String> = wanted.iter().filter(|scope| !granted.contains(scope)).cloned().collect();
        if missing.is_empty() {
            return self.refreshed(lock, record).await;
        }
        let why = format!("it wants more rights ({}): {}", missing.join(" "), self.kept.cure());
        // Scopes that earlier processes were asked for count too.
        let room = limits::MCP_SCOPES.saturating_sub(record.wanted.len());
        let new: Vec<String> = missing.into_iter().filter(|scope| !record.wanted.contains(scope)).take(room).collect();
        if !new.is_empty() {
            record.wanted.extend(new);
            record.wanted.sort_unstable();
            lock.write(&record).await?;
        }
        Err(why)
    }

    /// The token of a record, if it is another than `refused` and does not expire soon.
    fn good(&self, record: &Record, refused: Option<&str>) -> Option<IssuedToken> {
        let (token, life) = access(&record.credentials, self.clock.now().as_micros() / 1_000_000);
        let token = token.filter(|token| refused != Some(token.as_str()) && !life.is_zero())?;
        Some(IssuedToken { token: Secret::new(token), lifetime: life })
    }

    /// Refreshes the token and stores the result. It continues when the caller stops waiting: a refresh token is often
    /// valid for one use, so the result must not be lost.
    async fn refreshed(&mut self, lock: Lock, record: Record) -> Result<IssuedToken, String> {
        let refresh = Refresh {
            kept: self.kept.clone(),
            url: self.url.clone(),
            oauth_http: self.oauth_http.clone(),
            clock: self.clock.clone(),
            manager: self.manager.take(),
        };
        let cx = CallContext::new(self.clock.clone(), limits::MCP_REFRESH);
        let all = tokio::spawn(async move {
            let mut refresh = refresh;
            let given = cx.wait(refresh.run(&lock, record)).await;
            (
                refresh.manager,
                given.unwrap_or_else(|stopped| Err(format!("no token in {:?}: {stopped}", limits::MCP_REFRESH))),
            )
        });
        let (manager, given) = all.await.map_err(|_| "the refresh broke".to_owned())?;
        self.manager = manager;
        given
    }
}

/// One refresh request.
struct Refresh {
    kept: LoginStore,
    url: String,
    oauth_http: Arc<OAuthHttp>,
    clock: Arc<dyn Clock>,
    manager: Option<(String, AuthorizationManager)>,
}

impl Refresh {
    async fn run(&mut self, lock: &Lock, record: Record) -> Result<IssuedToken, String> {
        let store = InMemoryCredentialStore::new();
        let failed = |error: AuthError| words(&error);
        store.save(record.credentials.clone()).await.map_err(failed)?;
        let manager = match &mut self.manager {
            Some((client, manager)) if *client == record.client_id => manager,
            place => {
                let asked = challenge(self.oauth_http.client()?, &self.url).await;
                let (mut manager, metadata) = discovered(&self.url, asked.as_deref(), &self.oauth_http).await?;
                let issuer = record.credentials.issuer.as_deref();
                if issuer.is_some() && metadata.issuer.is_some() && issuer != metadata.issuer.as_deref() {
                    return Err(format!("its tokens come from another server now; {}", self.kept.cure()));
                }
                manager.configure_client(client(&record)).map_err(failed)?;
                &mut place.insert((record.client_id.clone(), manager)).1
            }
        };
        manager.set_credential_store(store.clone());
        match manager.refresh_token().await {
            Ok(_) => {}
            Err(AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_)) => {
                return Err(format!("the login has run out; {}", self.kept.cure()));
            }
            Err(error) => return Err(words(&error)),
        }
        let now = self.clock.now().as_micros() / 1_000_000;
        let credentials = store.load().await.map_err(failed)?.ok_or("the token server gave nothing")?;
        let credentials = stamped(credentials, now);
        let (token, life) = access(&credentials, now);
        lock.write(&Record { credentials, ..record }).await?;
        let token = token.ok_or("the token server gave nothing")?;
        Ok(IssuedToken { token: Secret::new(token), lifetime: life })
    }
}

/// The client of a record.
fn client(record: &Record) -> OAuthClientConfig {
    let config = OAuthClientConfig::new(&record.client_id, &record.redirect_uri);
    match &record.client_secret {
        Some(secret) => config.with_client_secret(secret),
        None => config,
    }
}

/// The record, received at `now` by the clock of this process.
pub(super) fn stamped(mut credentials: StoredCredentials, now: i64) -> StoredCredentials {
    credentials.token_received_at = u64::try_from(now).ok();
    credentials
}

/// The token of a record, and the seconds it is valid at `now` (seconds since 1970); zero also if it expires soon.
fn access(credentials: &StoredCredentials, now: i64) -> (Option<String>, Duration) {
    // Read from its JSON, because the types of the library are of a crate that is no direct dependency.
    let kept = json!(credentials.token_response);
    let token = kept.get("access_token").and_then(Json::as_str).map(str::to_owned);
    let life = kept.get("expires_in").and_then(Json::as_u64).map(Duration::from_secs);
    let left = match (life, credentials.token_received_at) {
        (Some(life), Some(at)) => {
            let age = Duration::from_secs(u64::try_from(now).unwrap_or_default().saturating_sub(at));
            let left = life.saturating_sub(age);
            if left > refresh_margin(life) { left } else { Duration::ZERO }
        }
        _ => limits::TOKEN_LIFETIME,
    };
    (token, left)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use segue_base::manual_clock::ManualClock;

    #[tokio::test]
    async fn a_login_keeps_no_more_rights_than_allowed() {
        const URL: &str = "http://127.0.0.1:9/mcp";
        let folder = tempfile::tempdir().unwrap();
        let (kept, clock) = (LoginStore::new(Some(folder.path().to_owned()), "far"), ManualClock::new());
        let rights = |mark: &str, count: usize| (0..count).map(|at| format!("{mark}{at}")).collect::<BTreeSet<_>>();
        let record = json!({
            "url": URL, "client_id": "me", "redirect_uri": URL, "wanted": rights("old", limits::MCP_SCOPES - 2),
            "credentials": {"client_id": "me", "token_response": {"access_token": "t", "token_type": "bearer"}},
        });
        let lock = kept.lock(&clock.context(Duration::from_secs(1))).await.unwrap();
        lock.write(&serde_json::from_value(record).unwrap()).await.unwrap();
        drop(lock);
        let oauth_http = Arc::new(OAuthHttp::new(URL, &[], &segue_base::http::HttpClients::new()).unwrap());
        let mut grant = CodeGrant::new(kept.clone(), URL, oauth_http, Arc::new(clock));
        for mark in ["new", "newer"] {
            assert!(grant.token(Some("t"), &rights(mark, limits::MCP_SCOPES)).await.is_err(), "a person must consent");
            assert_eq!(kept.read(URL).await.unwrap().wanted.len(), limits::MCP_SCOPES);
        }
    }
}
