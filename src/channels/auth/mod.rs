//! Authentication of callers, for all channels: a fixed token, or tokens that an authorization server signs.
//!
//! Entry: [`Authenticator`]. Never: a token is printed; a refusal says more than the holder of the token may know; a caller makes us ask
//! others more often than [`limits::JWKS_MIN_INTERVAL`](crate::limits::JWKS_MIN_INTERVAL) allows.

mod bearer;
mod jwks;
mod jwt;
mod ring_provider;

use std::{fmt, sync::Arc};

use axum::http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE},
};
use segue_engine::project::{CallerAuth, JwtDef};

pub use self::bearer::BearerToken;
use self::jwt::JwtValidator;
use super::Body;
use crate::{clock::Clock, limits};

/// What callers must show. Cheap to clone.
#[derive(Clone, Default)]
pub struct Authenticator {
    token: Option<BearerToken>,
    jwt: Option<Arc<JwtValidator>>,
}

/// A caller who was authenticated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// What tells callers apart, where their tokens do; made of issuer and subject, and telling neither.
    pub id: Option<Arc<str>>,
}

/// Why a caller is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthError {
    /// No token was shown.
    MissingToken,
    /// A token was shown that is not good; why, in words that its holder may read.
    InvalidToken(&'static str),
    /// The token is good and lacks rights; these are wanted.
    InsufficientScope(String),
    /// The token cannot be verified now.
    Unavailable,
}

impl Authenticator {
    /// Takes `token`, and signed tokens that keep to the rules; everybody where there is neither.
    ///
    /// # Errors
    /// What is wrong with a rule.
    pub fn new(token: Option<BearerToken>, rules: Option<&JwtDef>) -> Result<Self, String> {
        let jwt = rules.map(JwtValidator::new).transpose()?.map(Arc::new);
        Ok(Self { token, jwt })
    }

    /// For the callers of a channel of `credentials.yml`.
    ///
    /// # Errors
    /// What is wrong with a rule.
    pub fn of(auth: &CallerAuth) -> Result<Self, String> {
        let token =
            auth.token.as_deref().map(|token| BearerToken::new(token).ok_or("`auth_token` is empty")).transpose()?;
        Self::new(token, auth.jwt.as_ref())
    }

    /// The same, with a token where nothing else is asked for.
    #[must_use]
    pub fn with_default_token(mut self, token: Option<BearerToken>) -> Self {
        if !self.is_guarded() {
            self.token = token;
        }
        self
    }

    /// Whether callers must show something.
    pub fn is_guarded(&self) -> bool {
        self.token.is_some() || self.jwt.is_some()
    }

    /// Whether callers may show tokens that an authorization server signed.
    pub fn takes_jwt(&self) -> bool {
        self.jwt.is_some()
    }

    /// Who sends a request with these headers.
    ///
    /// # Errors
    /// [`AuthError`].
    pub async fn authenticate(&self, headers: &HeaderMap, clock: &Arc<dyn Clock>) -> Result<Caller, AuthError> {
        if !self.is_guarded() || self.token.as_ref().is_some_and(|token| token.admits(headers)) {
            return Ok(Caller::default());
        }
        let shown = bearer_token(headers).ok_or(AuthError::MissingToken)?;
        match &self.jwt {
            Some(jwt) => jwt.authenticate(shown, clock).await,
            None => Err(AuthError::InvalidToken("the token is not the one that is expected")),
        }
    }
}

/// The token of a request. Two headers could be read as either: then there is none.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let (Some(only), None) = (all.next(), all.next()) else { return None };
    let (scheme, token) = only.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim()).filter(|token| !token.is_empty())
}

impl AuthError {
    /// The answer over HTTP (RFC 6750, 3); `whom` is what the caller wants to speak to, such as `this agent`.
    pub fn response(&self, whom: &str) -> Response<Body> {
        let (status, challenge, problem) = match self {
            Self::MissingToken => {
                (StatusCode::UNAUTHORIZED, Some("Bearer".to_owned()), format!("{whom} needs its token as a bearer"))
            }
            Self::InvalidToken(why) => {
                let challenge = format!("Bearer error=\"invalid_token\", error_description=\"{why}\"");
                (StatusCode::UNAUTHORIZED, Some(challenge), format!("{whom} needs its token as a bearer: {why}"))
            }
            Self::InsufficientScope(scope) => {
                let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\"");
                (StatusCode::FORBIDDEN, Some(challenge), format!("the token lacks rights: {whom} wants `{scope}`"))
            }
            Self::Unavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, None, "tokens cannot be checked now; try again later".to_owned())
            }
        };
        let mut answer = super::problem(status, &problem);
        let headers = answer.headers_mut();
        match challenge.map(HeaderValue::try_from) {
            Some(Ok(challenge)) => drop(headers.insert(WWW_AUTHENTICATE, challenge)),
            Some(Err(_)) => drop(headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            None => drop(headers.insert(RETRY_AFTER, HeaderValue::from(limits::JWKS_MIN_INTERVAL.as_secs()))),
        }
        answer
    }
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").field("token", &self.token).field("jwt", &self.jwt).finish()
    }
}

#[cfg(test)]
pub(super) mod tests;
