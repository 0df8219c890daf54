//! Saying who we are to servers that are asked over HTTP: a fixed header, or a token of an authorization server.
//!
//! *For*: every room that asks others with the `auth` of agents.md 1.4. *Entry*: [`Credentials`]. *Never*: a secret is printed,
//! or sent anywhere but to the server it is for and the token server that was configured.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value as Json};
use tokio::sync::Mutex;

use crate::{clock::Clock, cx::Cx, http::Outbound, limits, secret::Secret};

/// How long a token is kept whose server does not say.
const DEFAULT_LIFE: Duration = Duration::from_secs(300);
/// How long before its end a token is no longer used.
const MARGIN: Duration = Duration::from_secs(30);

/// How we say who we are.
pub enum Credentials {
    /// Not at all.
    None,
    /// A header that is always the same.
    Header(String, Secret),
    /// A bearer token, asked for when it is needed.
    Token(ClientCredentials),
}

impl Credentials {
    /// Reads an `auth` of the project, whose shape was checked when it was loaded.
    ///
    /// # Errors
    /// In words, for operators: a key is missing.
    pub fn read(auth: &Map<String, Json>, clock: &Arc<dyn Clock>, http: &Outbound) -> Result<Self, String> {
        let text = |key: &str| auth.get(key).and_then(Json::as_str).filter(|text| !text.trim().is_empty());
        if let Some(oauth) = auth.get("oauth").and_then(Json::as_object) {
            return ClientCredentials::new(oauth, clock.clone(), http.clone()).map(Self::Token);
        }
        if let Some(key) = text("api_key") {
            let format = text("header_format").unwrap_or("Bearer {key}");
            let name = text("header_name").unwrap_or("Authorization").to_owned();
            return Ok(Self::Header(name, Secret::new(format.replace("{key}", key))));
        }
        match text("token") {
            Some(token) => Ok(Self::Header("Authorization".to_owned(), Secret::new(format!("Bearer {token}")))),
            None => Ok(Self::None),
        }
    }

    /// The header of a request that leaves now. `refused` is the value that the server did not take: where another can be
    /// had, it is not given again.
    ///
    /// # Errors
    /// In words, for operators, without any secret: there is no token to be had.
    pub async fn header(&self, refused: Option<&Secret>) -> Result<Option<(String, Secret)>, String> {
        match self {
            Self::None => Ok(None),
            Self::Header(name, value) => Ok(Some((name.clone(), value.clone()))),
            Self::Token(source) => {
                let token = source.token(refused.and_then(|value| value.expose().strip_prefix("Bearer "))).await?;
                Ok(Some(("Authorization".to_owned(), Secret::new(format!("Bearer {token}")))))
            }
        }
    }

    /// Whether a value that was refused may be followed by another.
    pub fn may_change(&self) -> bool {
        matches!(self, Self::Token(_))
    }
}

/// The client credentials grant of OAuth 2 (RFC 6749, 4.4).
pub struct ClientCredentials {
    http: Outbound,
    clock: Arc<dyn Clock>,
    url: String,
    id: String,
    secret: Secret,
    form: Vec<(&'static str, String)>,
    timeout: Duration,
    /// The token, and when it runs out. Held across the request, so that many calls ask for one token.
    held: Mutex<Option<(Secret, Duration)>>,
}

impl ClientCredentials {
    /// Reads an `oauth` of the project.
    ///
    /// # Errors
    /// In words, for operators: a key is missing.
    pub fn new(oauth: &Map<String, Json>, clock: Arc<dyn Clock>, http: Outbound) -> Result<Self, String> {
        let text = |key: &str| oauth.get(key).and_then(Json::as_str).filter(|text| !text.is_empty());
        let needed = |key: &str| text(key).map(str::to_owned).ok_or_else(|| format!("`oauth` lacks `{key}`"));
        let mut form = vec![("grant_type", "client_credentials".to_owned())];
        form.extend(["scope", "audience"].into_iter().filter_map(|key| Some((key, text(key)?.to_owned()))));
        let timeout = oauth.get("timeout").and_then(Json::as_f64).and_then(|s| Duration::try_from_secs_f64(s).ok());
        Ok(Self {
            http,
            clock,
            url: needed("token_url")?,
            id: needed("client_id")?,
            secret: Secret::new(needed("client_secret")?),
            form,
            timeout: timeout.unwrap_or(limits::TOKEN_WAIT),
            held: Mutex::new(None),
        })
    }

    /// A token that is good now. `refused` is one that the server did not take: it is not given again.
    ///
    /// # Errors
    /// In words, for operators, without any secret: there is none to be had.
    pub async fn token(&self, refused: Option<&str>) -> Result<String, String> {
        let mut held = self.held.lock().await;
        if let Some((token, until)) = held.as_ref()
            && self.clock.elapsed() < *until
            && refused != Some(token.expose())
        {
            return Ok(token.expose().to_owned());
        }
        let cx = Cx::new(self.clock.clone(), self.timeout);
        let (token, life) = match cx.wait(self.asked()).await {
            Ok(result) => result?,
            Err(stopped) => return Err(format!("no token in {:?}: {stopped}", self.timeout)),
        };
        let until = self.clock.elapsed().saturating_add(life.saturating_sub(MARGIN));
        *held = Some((Secret::new(token.clone()), until));
        Ok(token)
    }

    /// Asks with the secret in the header, as every server must take it; one that does not gets it in the form.
    async fn asked(&self) -> Result<(String, Duration), String> {
        match self.asked_once(true).await {
            Err((400 | 401, _)) => self.asked_once(false).await.map_err(|(_, words)| words),
            other => other.map_err(|(_, words)| words),
        }
    }

    async fn asked_once(&self, in_header: bool) -> Result<(String, Duration), (u16, String)> {
        // The address stays out of the words: it may hold a secret in its query.
        let failed = |error: reqwest::Error| (0, format!("no token: {}", error.without_url()));
        let client = self.http.client().map_err(|error| (0, format!("no token: {error}")))?;
        let mut form: Vec<(&str, &str)> = self.form.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let mut request = client.post(&self.url);
        if in_header {
            request = request.basic_auth(&self.id, Some(self.secret.expose()));
        } else {
            form.extend([("client_id", self.id.as_str()), ("client_secret", self.secret.expose())]);
        }
        let mut response = request.form(&form).send().await.map_err(failed)?;
        let status = response.status();
        if !status.is_success() {
            return Err((status.as_u16(), format!("no token: the token server answers {status}")));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            body.extend_from_slice(&chunk);
            if body.len() > limits::TOKEN_ANSWER {
                return Err((0, "no token: the answer of the token server is too large".to_owned()));
            }
        }
        let nothing = |words: &str| (0, format!("no token: {words}"));
        let answer: Json = serde_json::from_slice(&body).map_err(|_| nothing("the answer is no JSON"))?;
        let token =
            answer.get("access_token").and_then(Json::as_str).ok_or_else(|| nothing("the answer holds none"))?;
        let life = answer.get("expires_in").and_then(Json::as_f64).and_then(|s| Duration::try_from_secs_f64(s).ok());
        Ok((token.to_owned(), life.unwrap_or(DEFAULT_LIFE)))
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "Credentials(none)",
            Self::Header(..) => "Credentials(header …)",
            Self::Token(_) => "Credentials(token …)",
        })
    }
}

#[cfg(test)]
mod tests;
