//! Authentication of outbound HTTP requests: a fixed header, or a bearer token of an OAuth 2 authorization server.
//!
//! [`OutboundCredentials`] holds what the `auth` key of an endpoint configures. A secret is never printed, and is sent only to the server
//! it belongs to and to the configured authorization server.

mod client_credentials;
mod token_cache;

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;

pub use self::{
    client_credentials::{ClientAuthMethod, ClientGrant, IssuedToken, TokenEndpoint},
    token_cache::{TokenCache, TokenSource, refresh_margin},
};
use crate::{
    clock::Clock,
    context::WaitError,
    http::{HttpClients, parse_endpoint_url},
    secret::Secret,
};

/// Why there is no token. No message contains a secret or the address of the authorization server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The authorization server does not respond, or its response broke off.
    #[error("no token: {0}")]
    Unreachable(String),
    /// It refused the request.
    #[error("no token: the authorization server answered {status}{}", suffix(.code.as_deref()))]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The `error` code of the response (RFC 6749, section 5.2), if there is one.
        code: Option<String>,
    },
    /// Its response is larger than [`crate::limits::TOKEN_ANSWER`].
    #[error("no token: the response of the authorization server is too large")]
    TooLarge,
    /// Its response is not JSON.
    #[error("no token: the response of the authorization server is not JSON")]
    InvalidJson,
    /// Its response contains no token.
    #[error("no token: the response of the authorization server contains no `access_token`")]
    MissingToken,
    /// The token is not a bearer token.
    #[error("no token: its type is `{0}`, but only `Bearer` is supported")]
    UnsupportedTokenType(String),
    /// There was no token within the timeout.
    #[error("no token within {0:?}: {1}")]
    TimedOut(Duration, WaitError),
    /// The user must log in first.
    #[error("{0}")]
    LoginRequired(String),
    /// The request cannot be sent, for example because the HTTP client cannot be built.
    #[error("{0}")]
    ClientUnavailable(String),
}

impl TokenError {
    /// Whether the server may have refused the method of client authentication, so that the other method may succeed (RFC 6749,
    /// section 5.2).
    fn may_concern_auth_method(&self) -> bool {
        let Self::Refused { status: 400 | 401, code } = self else { return false };
        let other = ["invalid_scope", "invalid_target", "invalid_grant", "unsupported_grant_type"];
        code.as_deref().is_none_or(|code| !other.contains(&code))
    }

    /// Whether concurrent calls would get the same error.
    fn applies_to_all_callers(&self) -> bool {
        !matches!(self, Self::LoginRequired(_) | Self::ClientUnavailable(_))
    }
}

fn suffix(code: Option<&str>) -> String {
    code.map(|code| format!(" ({code})")).unwrap_or_default()
}

/// The credentials of requests to a server.
pub enum OutboundCredentials {
    /// No credentials.
    None,
    /// A fixed header: name and value.
    Header(String, Secret),
    /// A bearer token, requested when it is needed.
    Token(Box<TokenCache<ClientCredentials>>),
}

impl OutboundCredentials {
    /// The header, name and value, of the next request. `refused` is a value that the server rejected; it is not returned again if another
    /// one is available.
    ///
    /// # Errors
    /// [`TokenError`].
    pub async fn header(&self, refused: Option<&Secret>) -> Result<Option<(String, Secret)>, TokenError> {
        match self {
            Self::None => Ok(None),
            Self::Header(name, value) => Ok(Some((name.clone(), value.clone()))),
            Self::Token(cache) => {
                let refused = refused.and_then(|value| value.expose().strip_prefix("Bearer "));
                let token = cache.token(refused, &()).await?;
                Ok(Some(("Authorization".to_owned(), Secret::new(format!("Bearer {}", token.expose())))))
            }
        }
    }

    /// Whether [`header`](Self::header) may return another value after one was refused.
    pub fn may_change(&self) -> bool {
        matches!(self, Self::Token(_))
    }
}

/// The source of tokens for a client id and secret at a configured authorization server (client credentials grant).
pub struct ClientCredentials {
    http: HttpClients,
    url: reqwest::Url,
    scope: String,
    grant: ClientGrant,
}

impl ClientCredentials {
    /// A cache for tokens with the scopes `scope` from the authorization server at `url`. `timeout` limits the wait for each token.
    ///
    /// # Errors
    /// A message that ends a sentence about the key: `url` is not a valid address.
    pub fn token_cache(
        grant: ClientGrant,
        url: &str,
        scope: &str,
        timeout: Duration,
        clock: Arc<dyn Clock>,
        http: HttpClients,
    ) -> Result<TokenCache<Self>, String> {
        let source = Self { http, url: parse_endpoint_url(url)?, scope: scope.to_owned(), grant };
        Ok(TokenCache::new(source, clock, timeout))
    }
}

impl TokenSource for ClientCredentials {
    type Request = ();

    fn request_token<'a>(&'a mut self, (): &'a ()) -> BoxFuture<'a, Result<IssuedToken, TokenError>> {
        Box::pin(async move {
            let client = self
                .http
                .client()
                .map_err(|error| TokenError::ClientUnavailable(format!("no token: {error}")))?
                .clone();
            let endpoint = TokenEndpoint { client, url: self.url.clone(), auth_method: None, resource: None };
            self.grant.token(&endpoint, &self.scope).await
        })
    }
}

impl std::fmt::Debug for OutboundCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "OutboundCredentials(none)",
            Self::Header(..) => "OutboundCredentials(header …)",
            Self::Token(_) => "OutboundCredentials(token …)",
        })
    }
}

#[cfg(test)]
mod tests;
