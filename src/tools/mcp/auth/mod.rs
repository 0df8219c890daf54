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
mod settings;

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use serde_json::{Map, Value as Json};
use tokio::sync::Mutex;

pub use self::login::Login;
pub(super) use self::settings::Settings;
use self::{client_grant::ClientGrant, code_grant::CodeGrant, errand::Errand, kept::Kept, settings::Grant};
use crate::{clock::Clock, cx::Cx, limits, secret::Secret};

/// Why the token at hand will not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The server takes it no more; its challenge says where to ask.
    Unknown { challenge: Option<String> },
    /// It lacks rights that the challenge names.
    Scope { wanted: String, challenge: String },
}

/// A token as its giver tells it.
struct Given {
    token: Secret,
    /// How long it is good.
    life: Duration,
}

/// Where a server's tokens come from.
pub(super) struct Tokens {
    clock: Arc<dyn Clock>,
    timeout: Duration,
    /// Held across the request, so that many calls ask for one token.
    held: Mutex<Held>,
}

struct Held {
    grant: Way,
    /// The token, and when it is no longer used.
    token: Option<(Secret, Duration)>,
    /// Rights that challenges asked for.
    wanted: BTreeSet<String>,
}

enum Way {
    Client(Box<ClientGrant>),
    Code(Box<CodeGrant>),
}

impl Tokens {
    /// Reads the `oauth` of the entry `name`, which is reached at `url`. `kept` is the folder of what logins gave.
    ///
    /// # Errors
    /// In words, for operators: a key is missing, or an address is none.
    pub(super) fn new(
        (name, url): (&str, &str),
        oauth: &Map<String, Json>,
        http: &reqwest::Client,
        clock: Arc<dyn Clock>,
        kept: Option<PathBuf>,
    ) -> Result<Self, String> {
        let settings = Settings::read(oauth)?;
        let errand = Arc::new(Errand::new(url, &settings.hosts)?);
        let timeout = settings.timeout;
        let grant = match settings.grant {
            Grant::ClientCredentials => Way::Client(Box::new(ClientGrant::new(settings, url, http.clone(), errand)?)),
            Grant::AuthorizationCode => {
                Way::Code(Box::new(CodeGrant::new(Kept::new(kept, name), url, errand, clock.clone())))
            }
        };
        Ok(Self { clock, timeout, held: Mutex::new(Held { grant, token: None, wanted: BTreeSet::new() }) })
    }

    /// A token that is good now; none where nobody has logged in: the server may let us in all the same, and if not, its
    /// challenge says what it wants.
    ///
    /// # Errors
    /// In words, for operators, without any secret: there is none to be had.
    pub(super) async fn token(&self) -> Result<Option<String>, String> {
        let mut held = self.held.lock().await;
        if let Some(token) = held.good(&self.clock) {
            return Ok(Some(token));
        }
        if let Way::Code(grant) = &held.grant
            && !grant.is_logged_in().await
        {
            return Ok(None);
        }
        self.renewed(&mut held, None, None).await.map(Some)
    }

    /// Another token than `refused`, which the server did not take. Who comes second gets what the first one brought.
    ///
    /// # Errors
    /// As [`Self::token`]; also when more rights are wanted that only a person can give.
    pub(super) async fn instead_of(&self, refused: Option<&str>, why: &Refusal) -> Result<String, String> {
        let mut held = self.held.lock().await;
        if let Some(token) = held.good(&self.clock)
            && refused != Some(token.as_str())
        {
            return Ok(token);
        }
        let challenge = match why {
            Refusal::Unknown { challenge } => challenge.as_deref(),
            Refusal::Scope { wanted, challenge } => {
                held.wanted.extend(wanted.split_ascii_whitespace().map(str::to_owned));
                Some(challenge.as_str())
            }
        };
        self.renewed(&mut held, refused, challenge).await
    }

    async fn renewed(&self, held: &mut Held, refused: Option<&str>, challenge: Option<&str>) -> Result<String, String> {
        held.token = None;
        let cx = Cx::new(self.clock.clone(), self.timeout);
        let Held { grant, wanted, .. } = held;
        let asked = async {
            match grant {
                Way::Client(grant) => grant.token(wanted, challenge).await,
                Way::Code(grant) => grant.token(refused, wanted).await,
            }
        };
        let given = match cx.wait(asked).await {
            Ok(given) => given?,
            Err(stopped) => return Err(format!("no token in {:?}: {stopped}", self.timeout)),
        };
        let token = given.token.expose().to_owned();
        let until = self.clock.elapsed().saturating_add(given.life.saturating_sub(margin(given.life)));
        held.token = Some((given.token, until));
        Ok(token)
    }
}

/// How long before its end a token of this life is no longer used: a token that lives shorter than the usual margin must be
/// of use too.
fn margin(life: Duration) -> Duration {
    limits::MCP_TOKEN_MARGIN.min(life / 4)
}

impl Held {
    fn good(&self, clock: &Arc<dyn Clock>) -> Option<String> {
        let (token, until) = self.token.as_ref()?;
        (clock.elapsed() < *until).then(|| token.expose().to_owned())
    }
}
