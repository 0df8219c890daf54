//! Saying who we are to servers that are asked over HTTP: a fixed header, or a token of an authorization server.
//!
//! *For*: every room that asks others with the `auth` of an entry. *Entry*: [`Credentials`]. *Never*: a secret is printed,
//! or sent anywhere but to the server it is for and the token server that was configured.

mod grant;
mod tokens;

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;

pub use self::{
    grant::{ClientAuthMethod, ClientGrant, IssuedToken, TokenEndpoint},
    tokens::{TokenCache, TokenSource, margin},
};
use crate::{
    clock::Clock,
    context::WaitError,
    http::{HttpClients, destination},
    secret::Secret,
};

/// Why there is no token to be had. None of the words holds a secret, or the address of the token server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The token server does not answer, or its answer breaks off.
    #[error("no token: {0}")]
    Unreachable(String),
    /// It says no.
    #[error("no token: the token server answers {status}{}", shown(.code.as_deref()))]
    Refused {
        /// The status of HTTP.
        status: u16,
        /// The error as OAuth names it, where it does.
        code: Option<String>,
    },
    /// Its answer is larger than [`crate::limits::TOKEN_ANSWER`].
    #[error("no token: the answer of the token server is too large")]
    TooLarge,
    /// Its answer is no JSON.
    #[error("no token: the answer is no JSON")]
    NoJson,
    /// Its answer holds no token.
    #[error("no token: the answer holds none")]
    Missing,
    /// Its tokens are no bearer tokens.
    #[error("no token: the token is of the kind `{0}`, and only `Bearer` is spoken")]
    Kind(String),
    /// It did not come in time.
    #[error("no token in {0:?}: {1}")]
    Late(Duration, WaitError),
    /// Nobody is there who could ask for one: a person has to let us in first.
    #[error("{0}")]
    Nobody(String),
    /// There is no way to ask.
    #[error("{0}")]
    NoWay(String),
}

impl TokenError {
    /// Whether the server may not have understood who we are, so that saying it in another manner may help (RFC 6749, 5.2).
    fn is_about_us(&self) -> bool {
        let Self::Refused { status: 400 | 401, code } = self else { return false };
        let other = ["invalid_scope", "invalid_target", "invalid_grant", "unsupported_grant_type"];
        code.as_deref().is_none_or(|code| !other.contains(&code))
    }

    /// Whether another call at the same time would meet the same.
    fn holds_for_all(&self) -> bool {
        !matches!(self, Self::Nobody(_) | Self::NoWay(_))
    }
}

fn shown(code: Option<&str>) -> String {
    code.map(|code| format!(" ({code})")).unwrap_or_default()
}

/// How we say who we are.
pub enum Credentials {
    /// Not at all.
    None,
    /// A header that is always the same.
    Header(String, Secret),
    /// A bearer token, asked for when it is needed.
    Token(Box<TokenCache<ClientCredentials>>),
}

impl Credentials {
    /// The header of a request that leaves now. `refused` is the value that the server did not take: where another can be
    /// had, it is not given again.
    ///
    /// # Errors
    /// [`TokenError`].
    pub async fn header(&self, refused: Option<&Secret>) -> Result<Option<(String, Secret)>, TokenError> {
        match self {
            Self::None => Ok(None),
            Self::Header(name, value) => Ok(Some((name.clone(), value.clone()))),
            Self::Token(tokens) => {
                let refused = refused.and_then(|value| value.expose().strip_prefix("Bearer "));
                let token = tokens.token(refused, &()).await?;
                Ok(Some(("Authorization".to_owned(), Secret::new(format!("Bearer {}", token.expose())))))
            }
        }
    }

    /// Whether a value that was refused may be followed by another.
    pub fn may_change(&self) -> bool {
        matches!(self, Self::Token(_))
    }
}

/// Tokens for our own id and secret, of a token server that was configured.
pub struct ClientCredentials {
    http: HttpClients,
    url: reqwest::Url,
    scope: String,
    grant: ClientGrant,
}

impl ClientCredentials {
    /// Tokens with the rights `scope` that the token server at `url` gives for `grant`, each within `timeout`.
    ///
    /// # Errors
    /// The address is none.
    pub fn tokens(
        grant: ClientGrant,
        url: &str,
        scope: &str,
        timeout: Duration,
        clock: Arc<dyn Clock>,
        http: HttpClients,
    ) -> Result<TokenCache<Self>, String> {
        let source = Self { http, url: destination(url)?, scope: scope.to_owned(), grant };
        Ok(TokenCache::new(source, clock, timeout))
    }
}

impl TokenSource for ClientCredentials {
    type Why = ();

    fn ask<'a>(&'a mut self, (): &'a ()) -> BoxFuture<'a, Result<IssuedToken, TokenError>> {
        Box::pin(async move {
            let client = self.http.client().map_err(|error| TokenError::NoWay(format!("no token: {error}")))?.clone();
            let giver = TokenEndpoint { client, url: self.url.clone(), manner: None, resource: None };
            self.grant.token(&giver, &self.scope).await
        })
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
