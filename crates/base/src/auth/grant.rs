//! The client credentials grant of OAuth 2 (RFC 6749, 4.4): one request for one token.

use std::time::Duration;

use reqwest::Url;
use serde_json::Value as Json;

use super::TokenError;
use crate::{
    http::{BodyError, TransportError, read_limited},
    limits,
    secret::Secret,
};

/// A token as its giver tells it.
pub struct IssuedToken {
    /// The token.
    pub token: Secret,
    /// How long it is good.
    pub life: Duration,
}

/// How we say who we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuthMethod {
    /// In the head of the request, as every server must understand.
    Head,
    /// In its form, as some servers want.
    Form,
}

/// Where tokens are given.
#[derive(Clone)]
pub struct TokenEndpoint {
    /// The way there; it follows no redirects.
    pub client: reqwest::Client,
    /// The address.
    pub url: Url,
    /// The one manner it takes, where it says so.
    pub manner: Option<ClientAuthMethod>,
    /// For whom the token is (RFC 8707), where that is known.
    pub resource: Option<String>,
}

/// Who asks: our id and secret at a giver.
pub struct ClientGrant {
    id: String,
    secret: Secret,
    audience: Option<String>,
    /// The manner that worked.
    manner: ClientAuthMethod,
}

impl ClientGrant {
    /// A client with a secret; `audience` goes with every request.
    pub fn new(id: String, secret: Secret, audience: Option<String>) -> Self {
        Self { id, secret, audience, manner: ClientAuthMethod::Head }
    }

    /// A new token with the rights of `scope`, if there are any. Who takes no secret in the head gets it in the form, and
    /// from then on at once.
    ///
    /// # Errors
    /// [`TokenError`].
    pub async fn token(&mut self, giver: &TokenEndpoint, scope: &str) -> Result<IssuedToken, TokenError> {
        let first = giver.manner.unwrap_or(self.manner);
        let outcome = self.asked(giver, first, scope).await;
        let (manner, outcome) = match outcome {
            Err(error) if giver.manner.is_none() && first == ClientAuthMethod::Head && error.is_about_us() => {
                (ClientAuthMethod::Form, self.asked(giver, ClientAuthMethod::Form, scope).await)
            }
            outcome => (first, outcome),
        };
        if outcome.is_ok() {
            self.manner = manner;
        }
        outcome
    }

    async fn asked(
        &self,
        giver: &TokenEndpoint,
        manner: ClientAuthMethod,
        scope: &str,
    ) -> Result<IssuedToken, TokenError> {
        let (id, secret) = (self.id.as_str(), self.secret.expose());
        let mut form = vec![("grant_type", "client_credentials")];
        let mut request = giver.client.post(giver.url.clone());
        match manner {
            ClientAuthMethod::Head => request = request.basic_auth(encoded(id), Some(encoded(secret))),
            ClientAuthMethod::Form => form.extend([("client_id", id), ("client_secret", secret)]),
        }
        let more = [
            ("scope", Some(scope).filter(|scope| !scope.is_empty())),
            ("audience", self.audience.as_deref()),
            ("resource", giver.resource.as_deref()),
        ];
        form.extend(more.into_iter().filter_map(|(key, value)| Some((key, value?))));
        let unreachable = |error: TransportError| TokenError::Unreachable(error.to_string());
        let response = request.form(&form).send().await.map_err(|error| unreachable(error.into()))?;
        let status = response.status();
        let body = read_limited(response, limits::TOKEN_ANSWER).await.map_err(|error| match error {
            BodyError::TooLong { .. } => TokenError::TooLarge,
            BodyError::Broken(error) => unreachable(error),
        })?;
        let answer: Option<Json> = serde_json::from_slice(&body).ok();
        if !status.is_success() {
            let code = answer.as_ref().and_then(|answer| answer.get("error")).and_then(Json::as_str);
            let is_code = |code: &&str| code.len() < 60 && code.bytes().all(|byte| byte.is_ascii_graphic());
            return Err(TokenError::Refused { status: status.as_u16(), code: code.filter(is_code).map(str::to_owned) });
        }
        read(&answer.ok_or(TokenError::NoJson)?)
    }
}

/// A token answer (RFC 6749, 5.1).
fn read(answer: &Json) -> Result<IssuedToken, TokenError> {
    let text = |key: &str| answer.get(key).and_then(Json::as_str);
    let token = text("access_token").filter(|token| !token.is_empty()).ok_or(TokenError::Missing)?;
    // A token of another kind must not be used as if it were a bearer (7.1); one whose kind is not told is one.
    if let Some(kind) = text("token_type").filter(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return Err(TokenError::Kind(kind.chars().filter(char::is_ascii_graphic).take(20).collect()));
    }
    // Some write the number as a text.
    let seconds = answer.get("expires_in");
    let seconds = seconds.and_then(|life| life.as_f64().or_else(|| life.as_str()?.trim().parse().ok()));
    let life = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    Ok(IssuedToken { token: Secret::new(token), life: life.unwrap_or(limits::TOKEN_LIFE) })
}

/// As a form writes it: RFC 6749, 2.3.1 wants id and secret so encoded before they are joined.
fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_and_secrets_are_encoded_as_forms_are() {
        assert_eq!(encoded("plain-id_1.x"), "plain-id_1.x");
        assert_eq!(encoded("a b:c%/é"), "a+b%3Ac%25%2F%C3%A9");
    }

    #[test]
    fn a_token_is_read_with_its_life_and_only_if_it_is_a_bearer() {
        let life = |answer: Json| read(&answer).map(|given| given.life.as_secs());
        let usual = limits::TOKEN_LIFE.as_secs();
        for (expires, seconds) in
            [(json!(60), 60), (json!("90"), 90), (json!(60.0), 60), (json!(-1), usual), (json!("soon"), usual)]
        {
            let answer = json!({"access_token": "t", "token_type": "BEARER", "expires_in": expires});
            assert_eq!(life(answer).unwrap(), seconds, "{expires}");
        }
        assert_eq!(life(json!({"access_token": "t"})).unwrap(), usual);
        assert_eq!(life(json!({"access_token": "t", "token_type": "DPoP"})), Err(TokenError::Kind("DPoP".into())));
        assert_eq!(life(json!({"access_token": ""})), Err(TokenError::Missing));
    }
}
