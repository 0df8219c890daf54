//! OAuth 2.1 authentication to MCP servers: tokens are cached, renewed before they expire, and requested once for
//! concurrent calls.
//!
//! [`Tokens`] is the token source of one server, and [`Login`] an interactive login. Two grants are supported: client
//! credentials, and authorization code with PKCE, whose refresh token comes from a login ([`kept`]). The authorization
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

/// Why a server refused a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is not valid any more; the challenge names the metadata.
    Unknown { challenge: Option<String> },
    /// It lacks scopes that the challenge names.
    Scope { wanted: String, challenge: String },
}

/// The token source of a server.
pub(super) struct Tokens(outbound_auth::TokenCache<Origin>);

struct Origin {
    way: Way,
    /// Scopes that challenges asked for.
    wanted: BTreeSet<String>,
}

enum Way {
    Client(Box<client_credentials::DiscoveredClient>),
    Code(Box<CodeGrant>),
}

/// Why a token is requested.
enum Why {
    /// There is none yet, or it expires soon.
    First,
    /// The previous one was refused.
    Instead { refused: Option<String>, why: Refusal },
}

impl Tokens {
    /// The token source for the `oauth` settings of the entry `name` at `url`. `kept` is the folder of logins.
    ///
    /// # Errors
    /// A text for operators: a key is missing, or a URL is invalid.
    pub(super) fn new(
        (name, url): (&str, &str),
        oauth: &OAuthDef,
        outbound: &HttpClients,
        clock: Arc<dyn Clock>,
        kept: Option<PathBuf>,
    ) -> Result<Self, String> {
        let oauth_http = Arc::new(OAuthHttp::new(url, &oauth.hosts, outbound)?);
        let timeout = oauth.timeout.unwrap_or(limits::MCP_INITIALISE);
        let way = match oauth.grant {
            OAuthGrant::ClientCredentials => {
                let http = outbound.client().map_err(|error| error.to_string())?;
                Way::Client(Box::new(client_credentials::DiscoveredClient::new(oauth, url, http.clone(), oauth_http)?))
            }
            OAuthGrant::AuthorizationCode => {
                Way::Code(Box::new(CodeGrant::new(LoginStore::new(kept, name), url, oauth_http, clock.clone())))
            }
        };
        Ok(Self(outbound_auth::TokenCache::new(Origin { way, wanted: BTreeSet::new() }, clock, timeout)))
    }

    /// A valid token; `None` if nobody has logged in: the server may accept requests without one, and if not, its
    /// challenge says what it requires.
    ///
    /// # Errors
    /// No token can be obtained.
    pub(super) async fn token(&self) -> Result<Option<String>, TokenError> {
        match self.0.token(None, &Why::First).await {
            Ok(token) => Ok(Some(token.expose().to_owned())),
            Err(TokenError::LoginRequired(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Another token than `refused`, which the server refused. Concurrent callers share one request.
    ///
    /// # Errors
    /// As [`Self::token`]; also when more scopes are required, which need a new login.
    pub(super) async fn instead_of(&self, refused: Option<&str>, why: &Refusal) -> Result<String, TokenError> {
        let asked = Why::Instead { refused: refused.map(str::to_owned), why: why.clone() };
        self.0.token(refused, &asked).await.map(|token| token.expose().to_owned())
    }
}

impl TokenSource for Origin {
    type Request = Why;

    fn request_token<'a>(&'a mut self, why: &'a Why) -> BoxFuture<'a, Result<IssuedToken, TokenError>> {
        let (refused, challenge) = match why {
            Why::First => (None, None),
            Why::Instead { refused, why: Refusal::Unknown { challenge } } => (refused.as_deref(), challenge.as_deref()),
            Why::Instead { refused, why: Refusal::Scope { wanted, challenge } } => {
                // Limited to the number of scopes that a login can store, because a server may name any.
                for scope in wanted.split_ascii_whitespace().filter(|scope| scope.len() <= limits::MCP_SCOPE) {
                    if self.wanted.len() < limits::MCP_SCOPES {
                        self.wanted.insert(scope.to_owned());
                    }
                }
                (refused.as_deref(), Some(challenge.as_str()))
            }
        };
        Box::pin(async move {
            match &mut self.way {
                Way::Client(grant) => grant.token(&self.wanted, challenge).await,
                Way::Code(grant) => {
                    if matches!(why, Why::First) && !grant.is_logged_in().await {
                        return Err(TokenError::LoginRequired("nobody has logged in".to_owned()));
                    }
                    grant.token(refused, &self.wanted).await.map_err(TokenError::ClientUnavailable)
                }
            }
        })
    }
}
