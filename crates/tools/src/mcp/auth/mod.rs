//! Who we are to servers that want OAuth: tokens that are held, renewed before they run out, and asked for once however
//! many calls want them.
//!
//! Entry: [`Tokens`], one per server, and [`Login`], the door through which a person lets us in. Two grants are spoken:
//! client credentials, which need nobody, and authorization code with PKCE, whose refresh token a person's consent gave
//! ([`kept`]). Where to ask is found out by the metadata of the server (RFC 9728, RFC 8414, OpenID discovery) unless the
//! entry says so. Never: a token, a code or a secret in a message or a log; a token to another address than its own.

mod client_grant;
mod code_grant;
mod discovery;
mod errand;
mod kept;
mod login;

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use futures::future::BoxFuture;
use segue_engine::project::{OAuthDef, OAuthGrant};

pub use self::login::Login;
use self::{code_grant::CodeGrant, errand::Errand, kept::Kept};
use segue_base::{
    clock::Clock,
    http::HttpClients,
    limits,
    outbound_auth::{self, IssuedToken, TokenError, TokenSource},
};

/// Why the token at hand will not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The server takes it no more; its challenge says where to ask.
    Unknown { challenge: Option<String> },
    /// It lacks rights that the challenge names.
    Scope { wanted: String, challenge: String },
}

/// Where a server's tokens come from.
pub(super) struct Tokens(outbound_auth::TokenCache<Origin>);

struct Origin {
    way: Way,
    /// Rights that challenges asked for.
    wanted: BTreeSet<String>,
}

enum Way {
    Client(Box<client_grant::Found>),
    Code(Box<CodeGrant>),
}

/// Why a token is asked for.
enum Why {
    /// There is none yet, or its time has come.
    First,
    /// Another one was refused.
    Instead { refused: Option<String>, why: Refusal },
}

impl Tokens {
    /// As the `oauth` of the entry `name`, which is reached at `url`. `kept` is the folder of what logins gave.
    ///
    /// # Errors
    /// In words, for operators: a key is missing, or an address is none.
    pub(super) fn new(
        (name, url): (&str, &str),
        oauth: &OAuthDef,
        outbound: &HttpClients,
        clock: Arc<dyn Clock>,
        kept: Option<PathBuf>,
    ) -> Result<Self, String> {
        let errand = Arc::new(Errand::new(url, &oauth.hosts, outbound)?);
        let timeout = oauth.timeout.unwrap_or(limits::MCP_INITIALISE);
        let way = match oauth.grant {
            OAuthGrant::ClientCredentials => {
                let http = outbound.client().map_err(|error| error.to_string())?;
                Way::Client(Box::new(client_grant::Found::new(oauth, url, http.clone(), errand)?))
            }
            OAuthGrant::AuthorizationCode => {
                Way::Code(Box::new(CodeGrant::new(Kept::new(kept, name), url, errand, clock.clone())))
            }
        };
        Ok(Self(outbound_auth::TokenCache::new(Origin { way, wanted: BTreeSet::new() }, clock, timeout)))
    }

    /// A token that is good now; none where nobody has logged in: the server may let us in all the same, and if not, its
    /// challenge says what it wants.
    ///
    /// # Errors
    /// There is none to be had.
    pub(super) async fn token(&self) -> Result<Option<String>, TokenError> {
        match self.0.token(None, &Why::First).await {
            Ok(token) => Ok(Some(token.expose().to_owned())),
            Err(TokenError::LoginRequired(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Another token than `refused`, which the server did not take. Who comes second gets what the first one brought.
    ///
    /// # Errors
    /// As [`Self::token`]; also when more rights are wanted that only a person can give.
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
                // A server may name what it likes: no more is remembered than a login can keep.
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
