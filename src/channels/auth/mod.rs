//! Authentication of callers, for all channels: a fixed bearer token, or JWTs of one authorization server.
//!
//! Entry: [`Authenticator`]. A token is never printed. A rejection tells the caller no more than its token already shows. However many
//! requests arrive, the keys of the authorization server are fetched at most once per [`limits::JWKS_MIN_INTERVAL`].

mod bearer;
mod jwks;
mod jwt;
mod ring_provider;

use std::{borrow::Cow, fmt, sync::Arc};

use axum::http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE},
};
use segue_engine::project::{CallerAuth, JwtDef};

pub use self::bearer::BearerToken;
use self::jwt::JwtValidator;
use super::Body;
use crate::{clock::Clock, limits};

/// Authenticates the callers of a channel. The default accepts everybody. Cheap to clone.
#[derive(Clone, Default)]
pub struct Authenticator {
    token: Option<BearerToken>,
    jwt: Option<Arc<JwtValidator>>,
}

/// An accepted caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// An id that distinguishes this caller from others: a hash of the issuer and subject of its JWT, which reveals neither. `None` for
    /// callers with the fixed token, and without authentication: these cannot be distinguished.
    pub id: Option<Arc<str>>,
}

/// Why a caller is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthError {
    /// The request contains no bearer token.
    MissingToken,
    /// The token is invalid, for this reason; the caller may read it.
    InvalidToken(&'static str),
    /// The token is valid but lacks scopes; these are required, separated by spaces.
    InsufficientScope(String),
    /// The token cannot be verified at present: the keys of the authorization server are not available.
    Unavailable,
}

impl Authenticator {
    /// Accepts `token`, and JWTs that satisfy `jwt`; without either, everybody.
    ///
    /// # Errors
    /// The definition for JWTs is invalid.
    pub fn new(token: Option<BearerToken>, jwt: Option<&JwtDef>) -> Result<Self, String> {
        let jwt = jwt.map(JwtValidator::new).transpose()?.map(Arc::new);
        Ok(Self { token, jwt })
    }

    /// An authenticator with the settings of a channel in `credentials.yml`.
    ///
    /// # Errors
    /// The token is empty, or the definition for JWTs is invalid.
    pub fn from_settings(auth: &CallerAuth) -> Result<Self, String> {
        let token =
            auth.token.as_deref().map(|token| BearerToken::new(token).ok_or("`auth_token` is empty")).transpose()?;
        Self::new(token, auth.jwt.as_ref())
    }

    /// Sets the fixed token, unless callers must authenticate already.
    #[must_use]
    pub fn with_default_token(mut self, token: Option<BearerToken>) -> Self {
        if !self.requires_authentication() {
            self.token = token;
        }
        self
    }

    /// Whether callers must authenticate.
    pub fn requires_authentication(&self) -> bool {
        self.token.is_some() || self.jwt.is_some()
    }

    /// Whether callers may authenticate with a JWT.
    pub fn accepts_jwt(&self) -> bool {
        self.jwt.is_some()
    }

    /// Authenticates the caller of a request with these headers. May wait for the keys of the authorization server.
    ///
    /// # Errors
    /// [`AuthError`] if the caller is rejected.
    pub async fn authenticate(&self, headers: &HeaderMap, clock: &Arc<dyn Clock>) -> Result<Caller, AuthError> {
        if !self.requires_authentication() {
            return Ok(Caller::default());
        }
        let token = bearer_token(headers).ok_or(AuthError::MissingToken)?;
        if self.token.as_ref().is_some_and(|fixed| fixed.matches(token)) {
            return Ok(Caller::default());
        }
        match &self.jwt {
            Some(jwt) => jwt.authenticate(token, clock).await,
            None => Err(AuthError::InvalidToken("the token is wrong")),
        }
    }
}

/// The bearer token of a request. A request with several `Authorization` headers is ambiguous and has none.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim()).filter(|token| !token.is_empty())
}

impl AuthError {
    /// The reason as a text for the caller, for protocols without HTTP responses.
    pub fn reason(&self) -> Cow<'static, str> {
        match self {
            Self::MissingToken => "a token is required".into(),
            Self::InvalidToken(reason) => (*reason).into(),
            Self::InsufficientScope(scope) => format!("a token with the scope `{scope}` is required").into(),
            Self::Unavailable => "tokens cannot be verified at present; try again later".into(),
        }
    }
    /// The HTTP response with status and challenge as in RFC 6750, section 3. `resource` names what the caller wants to use, for
    /// example `this agent`.
    pub fn response(&self, resource: &str) -> Response<Body> {
        let (status, challenge, problem) = match self {
            Self::MissingToken => {
                (StatusCode::UNAUTHORIZED, Some("Bearer".to_owned()), format!("{resource} requires a bearer token"))
            }
            Self::InvalidToken(reason) => {
                let challenge = format!("Bearer error=\"invalid_token\", error_description=\"{reason}\"");
                (
                    StatusCode::UNAUTHORIZED,
                    Some(challenge),
                    format!("{resource} requires a valid bearer token: {reason}"),
                )
            }
            Self::InsufficientScope(scope) => {
                let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\"");
                (
                    StatusCode::FORBIDDEN,
                    Some(challenge),
                    format!("{resource} requires a token with the scope `{scope}`"),
                )
            }
            Self::Unavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                None,
                "tokens cannot be verified at present; try again later".to_owned(),
            ),
        };
        let mut response = super::problem(status, &problem);
        let headers = response.headers_mut();
        match challenge.map(HeaderValue::try_from) {
            Some(Ok(challenge)) => drop(headers.insert(WWW_AUTHENTICATE, challenge)),
            Some(Err(_)) => drop(headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            None => drop(headers.insert(RETRY_AFTER, HeaderValue::from(limits::JWKS_MIN_INTERVAL.as_secs()))),
        }
        response
    }
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").field("token", &self.token).field("jwt", &self.jwt).finish()
    }
}

#[cfg(test)]
pub(super) mod tests;
