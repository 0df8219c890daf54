//! Tokens that a person's consent gave: used while they are good, then renewed by the refresh token (RFC 6749, 6).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use rmcp::transport::auth::{
    AuthError, AuthorizationManager, CredentialStore, InMemoryCredentialStore, OAuthClientConfig, StoredCredentials,
};
use serde_json::{Value as Json, json};

use super::{
    discovery::{challenge, discovered, words},
    errand::Errand,
    kept::{Kept, Record},
};
use crate::{
    auth::{Given, margin},
    clock::Clock,
    limits,
    secret::Secret,
};

pub(super) struct CodeGrant {
    kept: Kept,
    url: String,
    errand: Arc<Errand>,
    clock: Arc<dyn Clock>,
    /// The dance with the token server, once it had to be found; good for one client.
    dance: Option<(String, AuthorizationManager)>,
}

impl CodeGrant {
    pub(super) fn new(kept: Kept, url: &str, errand: Arc<Errand>, clock: Arc<dyn Clock>) -> Self {
        Self { kept, url: url.to_owned(), errand, clock, dance: None }
    }

    /// Whether anybody has logged in.
    pub(super) async fn is_logged_in(&self) -> bool {
        self.kept.read(&self.url).await.is_ok()
    }

    /// A token other than `refused`. `wanted` are rights that only a new login can bring.
    pub(super) async fn token(&mut self, refused: Option<&str>, wanted: &BTreeSet<String>) -> Result<Given, String> {
        let mut record = self.kept.read(&self.url).await?;
        let (token, life) = access(&record.credentials, self.clock.now().as_micros() / 1_000_000);
        let another = token.as_deref().filter(|token| refused != Some(*token));
        if let Some(token) = another
            && !life.is_zero()
        {
            return Ok(Given { token: Secret::new(token), life });
        }
        let granted = &record.credentials.granted_scopes;
        let missing: Vec<String> = wanted.iter().filter(|scope| !granted.contains(scope)).cloned().collect();
        if !missing.is_empty() {
            let why = format!("it wants more rights ({}): {}", missing.join(" "), self.kept.cure());
            if missing.iter().any(|scope| !record.wanted.contains(scope)) {
                record.wanted.extend(missing);
                record.wanted.sort_unstable();
                record.wanted.dedup();
                self.kept.write(&record).await?;
            }
            return Err(why);
        }
        self.refreshed(record).await
    }

    async fn refreshed(&mut self, record: Record) -> Result<Given, String> {
        let store = InMemoryCredentialStore::new();
        let failed = |error: AuthError| words(&error);
        store.save(record.credentials.clone()).await.map_err(failed)?;
        let dance = match &mut self.dance {
            Some((client, dance)) if *client == record.client_id => dance,
            place => {
                let asked = challenge(self.errand.client()?, &self.url).await;
                let (mut dance, metadata) = discovered(&self.url, asked.as_deref(), &self.errand).await?;
                let issuer = record.credentials.issuer.as_deref();
                if issuer.is_some() && metadata.issuer.is_some() && issuer != metadata.issuer.as_deref() {
                    return Err(format!("its tokens come from another server now; {}", self.kept.cure()));
                }
                dance.configure_client(client(&record)).map_err(failed)?;
                &mut place.insert((record.client_id.clone(), dance)).1
            }
        };
        dance.set_credential_store(store.clone());
        match dance.refresh_token().await {
            Ok(_) => {}
            Err(AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_)) => {
                // Another process may have been quicker: then its token is in the file.
                let now = self.kept.read(&self.url).await?;
                let (token, life) = access(&now.credentials, self.clock.now().as_micros() / 1_000_000);
                return match token {
                    Some(token) if access(&record.credentials, 0).0.as_deref() != Some(&token) => {
                        Ok(Given { token: Secret::new(token), life })
                    }
                    _ => Err(format!("the login has run out; {}", self.kept.cure())),
                };
            }
            Err(error) => return Err(words(&error)),
        }
        let credentials = store.load().await.map_err(failed)?.ok_or("the token server gave nothing")?;
        let credentials = stamped(credentials, self.clock.now().as_micros() / 1_000_000);
        let (token, life) = access(&credentials, self.clock.now().as_micros() / 1_000_000);
        self.kept.write(&Record { credentials, ..record }).await?;
        let token = token.ok_or("the token server gave nothing")?;
        Ok(Given { token: Secret::new(token), life })
    }
}

/// The client that a record belongs to.
fn client(record: &Record) -> OAuthClientConfig {
    let config = OAuthClientConfig::new(&record.client_id, &record.redirect_uri);
    match &record.client_secret {
        Some(secret) => config.with_client_secret(secret),
        None => config,
    }
}

/// The same, received at `now` by the clock that everything else goes by.
pub(super) fn stamped(mut credentials: StoredCredentials, now: i64) -> StoredCredentials {
    credentials.token_received_at = u64::try_from(now).ok();
    credentials
}

/// The token of a record, and how long it is good at `now`, in seconds since 1970; zero, too, when its end is near.
fn access(credentials: &StoredCredentials, now: i64) -> (Option<String>, Duration) {
    // Read as the JSON it is kept as: the library's types for it are of a crate that is not ours.
    let kept = json!(credentials.token_response);
    let token = kept.get("access_token").and_then(Json::as_str).map(str::to_owned);
    let life = kept.get("expires_in").and_then(Json::as_u64).map(Duration::from_secs);
    let left = match (life, credentials.token_received_at) {
        (Some(life), Some(at)) => {
            let age = Duration::from_secs(u64::try_from(now).unwrap_or_default().saturating_sub(at));
            let left = life.saturating_sub(age);
            if left > margin(life) { left } else { Duration::ZERO }
        }
        _ => limits::TOKEN_LIFE,
    };
    (token, left)
}
