//! The client credentials grant of OAuth 2 (RFC 6749, section 4.4).

use std::time::Duration;

use reqwest::Url;
use serde_json::Value as Json;

use super::TokenError;
use crate::{
    http::{BodyError, TransportError, read_limited},
    limits,
    secret::Secret,
};

/// A token as issued by an authorization server.
pub struct IssuedToken {
    /// The access token.
    pub token: Secret,
    /// How long it is valid.
    pub lifetime: Duration,
}

/// The method of client authentication at the token endpoint (RFC 6749, section 2.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuthMethod {
    /// `client_secret_basic`: HTTP Basic, which every server must support.
    Basic,
    /// `client_secret_post`: in the request body, which some servers require.
    Post,
}

/// The token endpoint of an authorization server.
#[derive(Clone)]
pub struct TokenEndpoint {
    /// The HTTP client. It must not follow redirects, which could leak the secret.
    pub client: reqwest::Client,
    /// The address.
    pub url: Url,
    /// The only authentication method that the server supports, if known.
    pub auth_method: Option<ClientAuthMethod>,
    /// The resource that the token is for (RFC 8707), if known.
    pub resource: Option<String>,
}

/// A client with id and secret.
pub struct ClientGrant {
    id: String,
    secret: Secret,
    audience: Option<String>,
    /// The method that succeeded last.
    auth_method: ClientAuthMethod,
}

impl ClientGrant {
    /// A client with this id and secret; `audience` is sent with every request.
    pub fn new(id: String, secret: Secret, audience: Option<String>) -> Self {
        Self { id, secret, audience, auth_method: ClientAuthMethod::Basic }
    }

    /// Requests a new token with these scopes (separated by spaces; may be empty). If the server refuses HTTP Basic, the secret is sent in
    /// the request body, and from then on at the first attempt.
    ///
    /// # Errors
    /// [`TokenError`].
    pub async fn token(&mut self, endpoint: &TokenEndpoint, scope: &str) -> Result<IssuedToken, TokenError> {
        let first = endpoint.auth_method.unwrap_or(self.auth_method);
        let result = self.request(endpoint, first, scope).await;
        let (auth_method, result) = match result {
            Err(error)
                if endpoint.auth_method.is_none()
                    && first == ClientAuthMethod::Basic
                    && error.may_concern_auth_method() =>
            {
                (ClientAuthMethod::Post, self.request(endpoint, ClientAuthMethod::Post, scope).await)
            }
            result => (first, result),
        };
        if result.is_ok() {
            self.auth_method = auth_method;
        }
        result
    }

    async fn request(
        &self,
        endpoint: &TokenEndpoint,
        auth_method: ClientAuthMethod,
        scope: &str,
    ) -> Result<IssuedToken, TokenError> {
        let (id, secret) = (self.id.as_str(), self.secret.expose());
        let mut form = vec![("grant_type", "client_credentials")];
        let mut request = endpoint.client.post(endpoint.url.clone());
        match auth_method {
            ClientAuthMethod::Basic => request = request.basic_auth(form_encoded(id), Some(form_encoded(secret))),
            ClientAuthMethod::Post => form.extend([("client_id", id), ("client_secret", secret)]),
        }
        let more = [
            ("scope", Some(scope).filter(|scope| !scope.is_empty())),
            ("audience", self.audience.as_deref()),
            ("resource", endpoint.resource.as_deref()),
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
        parse_token(&answer.ok_or(TokenError::InvalidJson)?)
    }
}

/// Parses a token response (RFC 6749, section 5.1).
fn parse_token(answer: &Json) -> Result<IssuedToken, TokenError> {
    let text = |key: &str| answer.get(key).and_then(Json::as_str);
    let token = text("access_token").filter(|token| !token.is_empty()).ok_or(TokenError::MissingToken)?;
    // A token of another type must not be used as a bearer token (RFC 6749, section 7.1). A missing type means a bearer token.
    if let Some(kind) = text("token_type").filter(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return Err(TokenError::UnsupportedTokenType(kind.chars().filter(char::is_ascii_graphic).take(20).collect()));
    }
    // Some servers write the number as a string.
    let seconds = answer.get("expires_in");
    let seconds = seconds.and_then(|value| value.as_f64().or_else(|| value.as_str()?.trim().parse().ok()));
    let lifetime = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    Ok(IssuedToken { token: Secret::new(token), lifetime: lifetime.unwrap_or(limits::TOKEN_LIFETIME) })
}

/// Form encoding. RFC 6749, section 2.3.1 requires it for id and secret before they are joined for HTTP Basic.
fn form_encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_and_secrets_are_form_encoded() {
        assert_eq!(form_encoded("plain-id_1.x"), "plain-id_1.x");
        assert_eq!(form_encoded("a b:c%/é"), "a+b%3Ac%25%2F%C3%A9");
    }

    #[test]
    fn a_bearer_token_is_parsed_with_its_lifetime() {
        let lifetime = |answer: Json| parse_token(&answer).map(|issued| issued.lifetime.as_secs());
        let usual = limits::TOKEN_LIFETIME.as_secs();
        for (expires, seconds) in
            [(json!(60), 60), (json!("90"), 90), (json!(60.0), 60), (json!(-1), usual), (json!("soon"), usual)]
        {
            let answer = json!({"access_token": "t", "token_type": "BEARER", "expires_in": expires});
            assert_eq!(lifetime(answer).unwrap(), seconds, "{expires}");
        }
        assert_eq!(lifetime(json!({"access_token": "t"})).unwrap(), usual);
        assert_eq!(
            lifetime(json!({"access_token": "t", "token_type": "DPoP"})),
            Err(TokenError::UnsupportedTokenType("DPoP".into()))
        );
        assert_eq!(lifetime(json!({"access_token": ""})), Err(TokenError::MissingToken));
    }
}
