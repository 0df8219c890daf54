//! Client credentials: a token for our own id and secret (RFC 6749, 4.4).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::Value as Json;

use super::{
    Given,
    discovery::{challenge as ask_challenge, discovered},
    errand::{Errand, capped},
    settings::Settings,
};
use crate::{http::destination, limits, secret::Secret};

/// How we say who we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// In the head of the request, as every server must understand.
    Head,
    /// In its form, as some servers want.
    Form,
}

/// Where tokens are given.
#[derive(Clone)]
struct Giver {
    client: reqwest::Client,
    url: reqwest::Url,
    /// The one manner it takes, where it says so.
    manner: Option<Manner>,
    /// For whom the token is, where the server's metadata was asked.
    resource: Option<String>,
    /// Rights that the first challenge or the metadata named.
    scopes: Vec<String>,
}

pub(super) struct ClientGrant {
    settings: Settings,
    /// The server.
    url: String,
    http: reqwest::Client,
    errand: Arc<Errand>,
    giver: Option<Giver>,
    /// The manner that worked.
    manner: Manner,
}

impl ClientGrant {
    pub(super) fn new(
        settings: Settings,
        url: &str,
        http: reqwest::Client,
        errand: Arc<Errand>,
    ) -> Result<Self, String> {
        let giver = match &settings.token_url {
            Some(given) => {
                let (client, url) = (http.clone(), destination(given)?);
                Some(Giver { client, url, manner: None, resource: None, scopes: Vec::new() })
            }
            None => None,
        };
        Ok(Self { settings, url: url.to_owned(), http, errand, giver, manner: Manner::Head })
    }

    /// A new token with the rights of the entry and those `wanted`.
    pub(super) async fn token(&mut self, wanted: &BTreeSet<String>, challenge: Option<&str>) -> Result<Given, String> {
        let giver = match &self.giver {
            Some(giver) => giver.clone(),
            None => {
                let giver = self.found(challenge).await?;
                self.giver.insert(giver).clone()
            }
        };
        let manners = match giver.manner {
            Some(only) => vec![only],
            None if self.manner == Manner::Head => vec![Manner::Head, Manner::Form],
            None => vec![self.manner],
        };
        let mut refused = String::new();
        for manner in manners {
            match self.asked(&giver, manner, wanted).await? {
                Ok(given) => {
                    self.manner = manner;
                    return Ok(given);
                }
                Err(why) => refused = why,
            }
        }
        Err(refused)
    }

    async fn found(&self, challenge: Option<&str>) -> Result<Giver, String> {
        let asked = match challenge {
            Some(_) => None,
            None => ask_challenge(&self.http, &self.url).await,
        };
        let (manager, metadata) = discovered(&self.url, challenge.or(asked.as_deref()), &self.errand).await?;
        let scopes = if self.settings.scope.is_empty() { manager.select_initial_scopes(&[]).await } else { Vec::new() };
        let methods = metadata.additional_fields.get("token_endpoint_auth_methods_supported").and_then(Json::as_array);
        let takes = |method: &str| methods.is_none_or(|all| all.iter().any(|one| one.as_str() == Some(method)));
        let manner = match (takes("client_secret_basic"), takes("client_secret_post")) {
            (true, false) => Some(Manner::Head),
            (false, true) => Some(Manner::Form),
            (true, true) => None,
            (false, false) => return Err("the token server takes no client that has a secret".to_owned()),
        };
        let url = self.errand.admits(&metadata.token_endpoint)?;
        let client = self.errand.client()?.clone();
        // A token that needs consent anew is not for us.
        let scopes = scopes.into_iter().filter(|scope| scope != "offline_access").collect();
        Ok(Giver { client, url, manner, resource: Some(self.url.clone()), scopes })
    }

    /// Asks once. The inner error is a refusal of who we say we are.
    async fn asked(
        &self,
        giver: &Giver,
        manner: Manner,
        wanted: &BTreeSet<String>,
    ) -> Result<Result<Given, String>, String> {
        let (id, secret) =
            (self.settings.client_id.as_deref().unwrap_or_default(), self.settings.client_secret.as_ref());
        let secret = secret.map(Secret::expose).unwrap_or_default();
        let mut scopes: Vec<&str> = Vec::new();
        let all = self.settings.scope.iter().chain(&giver.scopes).chain(wanted);
        all.for_each(|scope| {
            if !scopes.contains(&scope.as_str()) {
                scopes.push(scope);
            }
        });
        let scope = scopes.join(" ");
        let mut form = vec![("grant_type", "client_credentials")];
        let mut request = giver.client.post(giver.url.clone());
        match manner {
            Manner::Head => request = request.basic_auth(encoded(id), Some(encoded(secret))),
            Manner::Form => form.extend([("client_id", id), ("client_secret", secret)]),
        }
        let more = [
            ("scope", Some(scope.as_str()).filter(|scope| !scope.is_empty())),
            ("audience", self.settings.audience.as_deref()),
            ("resource", giver.resource.as_deref()),
        ];
        form.extend(more.into_iter().filter_map(|(key, value)| Some((key, value?))));
        // The address stays out of the words: it may hold a secret in its query.
        let sent = request.form(&form).send().await;
        let mut response = sent.map_err(|error| format!("no token: {}", with_cause(error)))?;
        let status = response.status();
        let body = capped(&mut response).await.map_err(|why| format!("no token: {why}"))?;
        let answer: Option<Json> = serde_json::from_slice(&body).ok();
        if !status.is_success() {
            let code = answer.as_ref().and_then(|answer| answer.get("error")).and_then(Json::as_str);
            let code = code.filter(|code| code.len() < 60).map(|code| format!(" ({code})")).unwrap_or_default();
            let why = format!("no token: the token server answers {status}{code}");
            return if matches!(status.as_u16(), 400 | 401) { Ok(Err(why)) } else { Err(why) };
        }
        let answer = answer.ok_or("no token: the answer is no JSON")?;
        let token = answer.get("access_token").and_then(Json::as_str).ok_or("no token: the answer holds none")?;
        let life = answer.get("expires_in").and_then(Json::as_u64).map_or(limits::MCP_TOKEN_LIFE, Duration::from_secs);
        Ok(Ok(Given { token: Secret::new(token), life }))
    }
}

/// The outermost error of a request says little; its cause is what operators can use.
fn with_cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    match std::error::Error::source(&error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// As a form writes it: RFC 6749, 2.3.1 wants id and secret so encoded before they are joined.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' => out.push(char::from(byte)),
            b' ' => out.push('+'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_secrets_are_encoded_as_forms_are() {
        assert_eq!(encoded("plain-id_1.x"), "plain-id_1.x");
        assert_eq!(encoded("a b:c%/é"), "a+b%3Ac%25%2F%C3%A9");
    }
}
