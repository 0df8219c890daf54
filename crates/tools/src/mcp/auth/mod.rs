//! OAuth 2.1 authentication to MCP servers. Tokens are cached, renewed before they expire, and requested once for
//! concurrent calls.
//!
//! [`Tokens`] is the token source of one server, and [`Login`] an interactive login. Two grants are supported: client
//! credentials, and authorization code with PKCE, whose refresh token comes from a stored login ([`login_store`]). The authorization
//! server is discovered from the metadata of the MCP server (RFC 9728, RFC 8414, OpenID Connect Discovery) unless the
//! entry names it. Tokens, codes and secrets are never in messages and logs, and a token is never sent to another URL
//! than its own.

mod authorization_code;
mod client_credentials;
mod discovery;
mod login;
mod login_store;
mod oauth_http;

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use futures::future::BoxFuture;
use segue_engine::project::{OAuthDef, OAuthGrant};

pub use self::login::Login;
use self::{authorization_code::CodeGrant, login_store::LoginStore, oauth_http::OAuthHttp};
use segue_base::{
    clock::Clock,
    http::HttpClients,
    limits,
    outbound_auth::{self, IssuedToken, TokenError, TokenSource},
};

/// Why a server rejected a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TokenRefusal {
    /// It is invalid, for example revoked. The challenge is the `WWW-Authenticate` header, if there is one.
    Invalid { challenge: Option<String> },
    /// It lacks scopes, which the server names, separated by spaces.
    InsufficientScope { scopes: String, challenge: String },
}

/// The token source of a server.
pub(super) struct Tokens(outbound_auth::TokenCache<OAuthTokenSource>);

/// Requests tokens from the authorization server.
struct OAuthTokenSource {
    grant: Grant,
    /// The scopes that challenges required.
    required_scopes: BTreeSet<String>,
}

enum Grant {
    ClientCredentials(Box<client_credentials::DiscoveredClient>),
    AuthorizationCode(Box<CodeGrant>),
}

/// Why a token is requested.
enum TokenReason {
    /// There is none yet, or it expires soon.
    First,
    /// The server rejected the previous one.
    Replacement { rejected: Option<String>, refusal: TokenRefusal },
}

impl Tokens {
    /// The token source for the `oauth` settings of the entry `name` at `url`. `logins` is the folder of logins.
    ///
    /// # Errors
    /// A text for operators: a key is missing, or a URL is invalid.
    pub(super) fn new(
        (name, url): (&str, &str),
        oauth: &OAuthDef,
        outbound: &HttpClients,
        clock: Arc<dyn Clock>,
        logins: Option<PathBuf>,
    ) -> Result<Self, String> {
        let oauth_http = Arc::new(OAuthHttp::new(url, &oauth.hosts, outbound)?);
        let timeout = oauth.timeout.unwrap_or(limits::MCP_INITIALISE);
        let grant = match oauth.grant {
            OAuthGrant::ClientCredentials => {
                let http = outbound.client().map_err(|error| error.to_string())?;
                Grant::ClientCredentials(Box::new(client_credentials::DiscoveredClient::new(
                    oauth,
                    url,
                    http.clone(),
                    oauth_http,
                )?))
            }
            OAuthGrant::AuthorizationCode => Grant::AuthorizationCode(Box::new(CodeGrant::new(
                LoginStore::new(logins, name),
                url,
                oauth_http,
                clock.clone(),
            ))),
        };
        Ok(Self(outbound_auth::TokenCache::new(
            OAuthTokenSource { grant, required_scopes: BTreeSet::new() },
            clock,
            timeout,
        )))
    }

    /// A valid token; `None` if no login is stored. The server may accept requests without a token, and if not, its challenge
    /// says what it requires.
    ///
    /// # Errors
    /// No token can be obtained.
    pub(super) async fn token(&self) -> Result<Option<String>, TokenError> {
        match self.0.token(None, &TokenReason::First).await {
            Ok(token) => Ok(Some(token.expose().to_owned())),
            Err(TokenError::LoginRequired(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A token in place of `rejected`, which the server rejected. Concurrent callers share one request.
    ///
    /// # Errors
    /// As [`Self::token`]; also when more scopes are required, which need a new login.
    pub(super) async fn replacement_for(
        &self,
        rejected: Option<&str>,
        refusal: &TokenRefusal,
    ) -> Result<String, TokenError> {
        let reason = TokenReason::Replacement { rejected: rejected.map(str::to_owned), refusal: refusal.clone() };
        self.0.token(rejected, &reason).await.map(|token| token.expose().to_owned())
    }
}

impl TokenSource for OAuthTokenSource {
    type Request = TokenReason;

    fn request_token<'a>(&'a mut self, reason: &'a TokenReason) -> BoxFuture<'a, Result<IssuedToken, TokenError>> {
        let (rejected, challenge) = match reason {
            TokenReason::First => (None, None),
            TokenReason::Replacement { rejected, refusal: TokenRefusal::Invalid { challenge } } => {
                (rejected.as_deref(), challenge.as_deref())
            }
            TokenReason::Replacement { rejected, refusal: TokenRefusal::InsufficientScope { scopes, challenge } } => {
                // A server may name any number of scopes, so they are limited to as many as a login can store.
                for scope in scopes.split_ascii_whitespace().filter(|scope| scope.len() <= limits::MCP_SCOPE) {
                    if self.required_scopes.len() < limits::MCP_SCOPES {
                        self.required_scopes.insert(scope.to_owned());
                    }
                }
                (rejected.as_deref(), Some(challenge.as_str()))
            }
        };
        Box::pin(async move {
            match &mut self.grant {
                Grant::ClientCredentials(grant) => grant.token(&self.required_scopes, challenge).await,
                Grant::AuthorizationCode(grant) => {
                    if matches!(reason, TokenReason::First) && !grant.is_logged_in().await {
                        return Err(TokenError::LoginRequired("no login is stored".to_owned()));
                    }
                    grant.token(rejected, &self.required_scopes).await.map_err(TokenError::ClientUnavailable)
                }
            }
        })
    }
}
