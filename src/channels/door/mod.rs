//! One door for all servers that ask callers who they are: a fixed token, or tokens that an authorization server signs.
//!
//! Entry: [`Door`]. Never: a token is printed; a refusal says more than whoever holds the token may know; a caller makes us ask
//! others more often than [`limits::JWKS_MIN_INTERVAL`](crate::limits::JWKS_MIN_INTERVAL) allows.

mod bearer;
mod crypto;
mod jwt;
mod keys;

use std::{fmt, sync::Arc};

use axum::http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE},
};
use segue_engine::project::{CallerAuth, JwtDef};

pub use self::bearer::Bearer;
use self::jwt::Rules;
use super::Body;
use crate::{clock::Clock, limits};

/// Who may come in. Cheap to clone.
#[derive(Clone, Default)]
pub struct Door {
    token: Option<Bearer>,
    rules: Option<Arc<Rules>>,
}

/// Somebody who was let in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// What tells callers apart, where their tokens do; made of issuer and subject, and telling neither.
    pub mark: Option<Arc<str>>,
}

/// Why somebody was not let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No token was shown.
    Nothing,
    /// A token was shown that is not good; why, in words that its holder may read.
    Invalid(&'static str),
    /// The token is good and lacks rights; these are wanted.
    Scope(String),
    /// Whether the token is good cannot be told now.
    Later,
}

impl Door {
    /// A door for those who know `token`, and for those whose tokens keep to the rules; open to all where there is neither.
    ///
    /// # Errors
    /// What is wrong with a rule.
    pub fn new(token: Option<Bearer>, rules: Option<&JwtDef>) -> Result<Self, String> {
        let rules = rules.map(Rules::new).transpose()?.map(Arc::new);
        Ok(Self { token, rules })
    }

    /// For the callers of a channel of `credentials.yml`.
    ///
    /// # Errors
    /// What is wrong with a rule.
    pub fn of(auth: &CallerAuth) -> Result<Self, String> {
        let token = auth.token.as_deref().map(|token| Bearer::new(token).ok_or("`auth_token` is empty")).transpose()?;
        Self::new(token, auth.jwt.as_ref())
    }

    /// The same door, with a token where none was set and no other proof is asked for.
    #[must_use]
    pub fn or_token(mut self, token: Option<Bearer>) -> Self {
        if !self.is_guarded() {
            self.token = token;
        }
        self
    }

    /// Whether callers must show something.
    pub fn is_guarded(&self) -> bool {
        self.token.is_some() || self.rules.is_some()
    }

    /// Whether callers may show tokens that an authorization server signed.
    pub fn takes_jwt(&self) -> bool {
        self.rules.is_some()
    }

    /// Lets somebody in, or not.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn caller(&self, headers: &HeaderMap, clock: &Arc<dyn Clock>) -> Result<Caller, Refused> {
        if !self.is_guarded() || self.token.as_ref().is_some_and(|token| token.admits(headers)) {
            return Ok(Caller::default());
        }
        let shown = shown(headers).ok_or(Refused::Nothing)?;
        match &self.rules {
            Some(rules) => rules.caller(shown, clock).await,
            None => Err(Refused::Invalid("the token is not the one that is expected")),
        }
    }
}

/// The token of a request. Two headers could be read as either: then there is none.
fn shown(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let (Some(only), None) = (all.next(), all.next()) else { return None };
    let (scheme, token) = only.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim()).filter(|token| !token.is_empty())
}

impl Refused {
    /// The answer over HTTP (RFC 6750, 3); `whom` is what the caller wants to speak to, such as `this agent`.
    pub fn answer(&self, whom: &str) -> Response<Body> {
        let (status, challenge, problem) = match self {
            Self::Nothing => {
                (StatusCode::UNAUTHORIZED, Some("Bearer".to_owned()), format!("{whom} needs its token as a bearer"))
            }
            Self::Invalid(why) => {
                let challenge = format!("Bearer error=\"invalid_token\", error_description=\"{why}\"");
                (StatusCode::UNAUTHORIZED, Some(challenge), format!("{whom} needs its token as a bearer: {why}"))
            }
            Self::Scope(scope) => {
                let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\"");
                (StatusCode::FORBIDDEN, Some(challenge), format!("the token lacks rights: {whom} wants `{scope}`"))
            }
            Self::Later => {
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

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("token", &self.token).field("rules", &self.rules).finish()
    }
}

#[cfg(test)]
pub(super) mod tests;
