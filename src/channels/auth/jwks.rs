//! The keys of an issuer: read once, looked up by their id, fetched anew when they are old or when a token names one that is not
//! there; never more often than [`limits::JWKS_MIN_INTERVAL`] allows. A request that started is finished, even if its caller disconnects.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use jsonwebtoken::{Algorithm, DecodingKey, Header, jwk};
use segue_engine::project::JwtKeys;
use serde_json::Value as Json;

use super::ring_provider::family;
use crate::{
    clock::Clock,
    context::CallContext,
    http::{BodyError, HttpClients, parse_endpoint_url, read_limited},
    limits,
};

/// Where keys come from.
pub(super) enum JwkSource {
    /// They are known, and stay as they are.
    Fixed(KeySet),
    /// They stand at an address.
    Address(Arc<RemoteJwks>),
}

/// Keys, read. Cheap to clone.
pub(super) type KeySet = Arc<[VerificationKey]>;

/// One key.
pub(super) struct VerificationKey {
    id: Option<String>,
    /// The one algorithm it is for, where it says so.
    algorithm: Option<Algorithm>,
    pub(super) key: DecodingKey,
}

/// Keys at an address.
pub(super) struct RemoteJwks {
    url: reqwest::Url,
    http: HttpClients,
    known: Mutex<JwksCache>,
}

#[derive(Default)]
struct JwksCache {
    set: Option<KeySet>,
    /// When they came.
    came: Duration,
    /// When they were last asked for, and the end of that: one asks, the others wait.
    tried: Option<(Duration, Shared<BoxFuture<'static, ()>>)>,
}

/// There are no keys to be had now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KeysUnavailable;

impl JwkSource {
    /// Reads what the project says.
    ///
    /// # Errors
    /// In words, for operators.
    pub(super) fn new(keys: &JwtKeys) -> Result<Self, String> {
        match keys {
            JwtKeys::Secret(secret) => {
                let key = DecodingKey::from_secret(secret.as_bytes());
                Ok(Self::Fixed([VerificationKey { id: None, algorithm: None, key }].into()))
            }
            JwtKeys::Set(json) => {
                let set = read_key_set(json).ok_or("`jwks` holds no key set: `{\"keys\": […]}` is expected")?;
                Ok(Self::Fixed(set))
            }
            JwtKeys::Address(url) => Ok(Self::Address(Arc::new(RemoteJwks {
                url: parse_endpoint_url(url)?,
                http: HttpClients::with_proxy(None, None),
                known: Mutex::default(),
            }))),
        }
    }

    /// The keys with which a token of this head may have been signed; none where it names a key that nobody knows.
    ///
    /// # Errors
    /// [`KeysUnavailable`].
    pub(super) async fn of(&self, head: &Header, clock: &Arc<dyn Clock>) -> Result<Vec<DecodingKey>, KeysUnavailable> {
        match self {
            Self::Fixed(set) => Ok(matching_keys(set, head)),
            Self::Address(published) => published.of(head, clock).await,
        }
    }
}

impl RemoteJwks {
    fn known(&self) -> MutexGuard<'_, JwksCache> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Old keys that fit are answered with at once, while newer ones are on their way: an issuer that hangs makes nobody wait
    /// whose key is known.
    async fn of(self: &Arc<Self>, head: &Header, clock: &Arc<dyn Clock>) -> Result<Vec<DecodingKey>, KeysUnavailable> {
        let known = self.known().usable(clock.elapsed());
        let (keys, age) = known.map_or_else(Default::default, |(set, age)| (matching_keys(&set, head), age));
        if !keys.is_empty() && age < limits::JWKS_REFRESH_AFTER {
            return Ok(keys);
        }
        let fetched = self.refreshed(clock);
        if !keys.is_empty() {
            return Ok(keys);
        }
        fetched.await;
        let (set, _) = self.known().usable(clock.elapsed()).ok_or(KeysUnavailable)?;
        Ok(matching_keys(&set, head))
    }

    /// Fetches them unless that was begun a moment ago; the end of it may be waited for. It goes on when nobody waits any more:
    /// whoever hangs up has not used up the one question that may be asked for a while.
    fn refreshed(self: &Arc<Self>, clock: &Arc<dyn Clock>) -> Shared<BoxFuture<'static, ()>> {
        let mut known = self.known();
        let now = clock.elapsed();
        if let Some((at, end)) = &known.tried
            && now.saturating_sub(*at) < limits::JWKS_MIN_INTERVAL
        {
            return end.clone();
        }
        let (this, clock) = (self.clone(), clock.clone());
        let fetch = tokio::spawn(async move { this.fetch(&clock).await });
        // It gives nothing, and one that broke has ended as well.
        let end = fetch.map(|_| ()).boxed().shared();
        known.tried = Some((now, end.clone()));
        end
    }

    /// Fetches them. A failure leaves what was known.
    async fn fetch(&self, clock: &Arc<dyn Clock>) {
        let cx = CallContext::new(clock.clone(), limits::JWKS_WAIT);
        let fetched = match cx.wait(self.fetched()).await {
            Ok(fetched) => fetched,
            Err(stopped) => Err(stopped.to_string()),
        };
        match fetched {
            Ok(set) => {
                let mut known = self.known();
                (known.set, known.came) = (Some(set), clock.elapsed());
            }
            Err(reason) => tracing::warn!(code = "C0202", "keys for the tokens of callers: {reason}"),
        }
    }

    async fn fetched(&self) -> Result<KeySet, String> {
        let words = |error: reqwest::Error| error.without_url().to_string();
        let client = self.http.client().map_err(|error| error.to_string())?;
        let response = client.get(self.url.clone()).header("accept", "application/json").send().await.map_err(words)?;
        if !response.status().is_success() {
            return Err(format!("the server answers {}", response.status()));
        }
        let body = read_limited(response, limits::JWKS_ANSWER).await.map_err(|error| match error {
            BodyError::TooLong { .. } => "the answer is too large".to_owned(),
            BodyError::Broken(error) => error.to_string(),
        })?;
        let json: Json = serde_json::from_slice(&body).map_err(|_| "the answer is no JSON".to_owned())?;
        read_key_set(&json).ok_or_else(|| "the answer holds no keys".to_owned())
    }
}

impl JwksCache {
    /// The keys and their age, unless they are too old to be trusted.
    fn usable(&self, now: Duration) -> Option<(KeySet, Duration)> {
        let age = now.saturating_sub(self.came);
        self.set.clone().filter(|_| age < limits::JWKS_MAX_AGE).map(|set| (set, age))
    }
}

/// Reads a key set (RFC 7517, 5). A key that is not understood is left out, as it asks (5): others may be.
pub(super) fn read_key_set(json: &Json) -> Option<KeySet> {
    let keys = json.get("keys")?.as_array()?;
    Some(keys.iter().take(limits::JWKS_KEYS).filter_map(key).collect())
}

fn key(json: &Json) -> Option<VerificationKey> {
    let jwk: jwk::Jwk = serde_json::from_value(json.clone()).ok()?;
    let signs = jwk.common.public_key_use.as_ref().is_none_or(|what| *what == jwk::PublicKeyUse::Signature);
    let verifies = jwk.common.key_operations.as_ref().is_none_or(|what| what.contains(&jwk::KeyOperations::Verify));
    if !signs || !verifies {
        return None;
    }
    let algorithm = match json.get("alg").and_then(Json::as_str) {
        Some(named) => Some(named.parse().ok()?),
        None => None,
    };
    Some(VerificationKey { id: jwk.common.key_id.clone(), algorithm, key: DecodingKey::from_jwk(&jwk).ok()? })
}

fn matching_keys(set: &[VerificationKey], head: &Header) -> Vec<DecodingKey> {
    let Ok(family) = family(head.alg) else { return Vec::new() };
    let fits = |key: &&VerificationKey| {
        key.key.family() == family
            && key.algorithm.is_none_or(|algorithm| algorithm == head.alg)
            // A secret of the project has no id; a token may name one all the same.
            && (head.kid.is_none() || key.id == head.kid || family == jsonwebtoken::AlgorithmFamily::Hmac)
    };
    set.iter().filter(fits).take(limits::JWKS_TRIED).map(|key| key.key.clone()).collect()
}
