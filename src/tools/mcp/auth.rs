//! Tokens of servers that want OAuth: the client credentials grant, asked for when needed and kept until they run out.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value as Json};
use tokio::sync::Mutex;

use crate::{clock::Clock, cx::Cx, limits, secret::Secret};

/// How long a token is kept whose server does not say.
const DEFAULT_LIFE: Duration = Duration::from_secs(300);
/// How long before its end a token is no longer used.
const MARGIN: Duration = Duration::from_secs(30);

/// Where a server's tokens come from.
pub(super) struct Tokens {
    http: reqwest::Client,
    clock: Arc<dyn Clock>,
    url: String,
    form: Vec<(&'static str, Secret)>,
    timeout: Duration,
    /// The token, and when it runs out. Held across the request, so that many calls ask for one token.
    held: Mutex<Option<(Secret, Duration)>>,
}

impl Tokens {
    /// Reads the `oauth` of an entry.
    ///
    /// # Errors
    /// In words, for operators: a key is missing.
    pub(super) fn new(
        oauth: &Map<String, Json>,
        http: &reqwest::Client,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let text = |key: &str| oauth.get(key).and_then(Json::as_str).filter(|text| !text.is_empty());
        let needed = |key: &str| text(key).ok_or_else(|| format!("`oauth` lacks `{key}`"));
        let mut form = vec![
            ("grant_type", Secret::new("client_credentials")),
            ("client_id", Secret::new(needed("client_id")?)),
            ("client_secret", Secret::new(needed("client_secret")?)),
        ];
        form.extend(["scope", "audience"].into_iter().filter_map(|key| Some((key, Secret::new(text(key)?)))));
        let timeout = oauth.get("timeout").and_then(Json::as_f64).and_then(|s| Duration::try_from_secs_f64(s).ok());
        Ok(Self {
            http: http.clone(),
            clock,
            url: needed("token_url")?.to_owned(),
            form,
            timeout: timeout.unwrap_or(limits::MCP_INITIALISE),
            held: Mutex::new(None),
        })
    }

    /// A token that is good now. `refused` is one that the server did not take: it is not given again.
    ///
    /// # Errors
    /// In words, for operators, without any secret: there is none to be had.
    pub(super) async fn token(&self, refused: Option<&str>) -> Result<String, String> {
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

    async fn asked(&self) -> Result<(String, Duration), String> {
        let form: Vec<_> = self.form.iter().map(|(key, value)| (*key, value.expose())).collect();
        // The address stays out of the words: it may hold a secret in its query.
        let failed = |error: reqwest::Error| format!("no token: {}", error.without_url());
        let mut response = self.http.post(&self.url).form(&form).send().await.map_err(failed)?;
        if !response.status().is_success() {
            return Err(format!("no token: the token server answers {}", response.status()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            body.extend_from_slice(&chunk);
            if body.len() > limits::MCP_TOKEN {
                return Err("no token: the answer of the token server is too large".to_owned());
            }
        }
        let answer: Json = serde_json::from_slice(&body).map_err(|_| "no token: the answer is no JSON".to_owned())?;
        let token = answer.get("access_token").and_then(Json::as_str).ok_or("no token: the answer holds none")?;
        let life = answer.get("expires_in").and_then(Json::as_u64).map_or(DEFAULT_LIFE, Duration::from_secs);
        Ok((token.to_owned(), life))
    }
}
