//! The keys of an authorization server for JWTs, as a JSON Web Key Set (JWKS, RFC 7517).
//!
//! Keys at a URL are cached. They are fetched again when they are old, or when a token names an unknown key, but at most once per
//! [`limits::JWKS_MIN_INTERVAL`]. A fetch that has started is completed even if the caller disconnects.

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

/// The source of the keys.
pub(super) enum JwkSource {
    /// Keys in the project files; they do not change.
    Fixed(KeySet),
    /// Keys at a URL.
    Url(Arc<RemoteJwks>),
}

/// A parsed key set. Cheap to clone.
pub(super) type KeySet = Arc<[VerificationKey]>;

/// A key that verifies signatures.
pub(super) struct VerificationKey {
    id: Option<String>,
    /// The only algorithm that the key may be used with; `None`: any of its family.
    algorithm: Option<Algorithm>,
    pub(super) key: DecodingKey,
}

/// A key set at a URL, with a cache.
pub(super) struct RemoteJwks {
    url: reqwest::Url,
    http: HttpClients,
    cache: Mutex<JwksCache>,
}

#[derive(Default)]
struct JwksCache {
    keys: Option<KeySet>,
    /// When `keys` were fetched, on the monotonic clock.
    fetched_at: Duration,
    /// When the last fetch began, and a future that resolves when it ends: all callers share one fetch.
    last_fetch: Option<(Duration, Shared<BoxFuture<'static, ()>>)>,
}

/// No usable keys are cached, and fetching them failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KeysUnavailable;

impl JwkSource {
    /// The source that the project defines. Fetches nothing yet.
    ///
    /// # Errors
    /// The key set or the URL is invalid; the message is for operators.
    pub(super) fn new(keys: &JwtKeys) -> Result<Self, String> {
        match keys {
            JwtKeys::Secret(secret) => {
                let key = DecodingKey::from_secret(secret.as_bytes());
                Ok(Self::Fixed([VerificationKey { id: None, algorithm: None, key }].into()))
            }
            JwtKeys::Set(json) => {
                let set = read_key_set(json).ok_or("`jwks` is not a key set; expected `{\"keys\": […]}`")?;
                Ok(Self::Fixed(set))
            }
            JwtKeys::Address(url) => Ok(Self::Url(Arc::new(RemoteJwks {
                url: parse_endpoint_url(url)?,
                http: HttpClients::with_proxy(None, None),
                cache: Mutex::default(),
            }))),
        }
    }

    /// The keys that can verify a token with this header, at most [`limits::JWKS_TRIED`]; none if the token names an unknown key.
    ///
    /// # Errors
    /// [`KeysUnavailable`] if the keys are at a URL and cannot be fetched.
    pub(super) async fn keys_for(
        &self,
        header: &Header,
        clock: &Arc<dyn Clock>,
    ) -> Result<Vec<DecodingKey>, KeysUnavailable> {
        match self {
            Self::Fixed(set) => Ok(matching_keys(set, header)),
            Self::Url(remote) => remote.keys_for(header, clock).await,
        }
    }
}

impl RemoteJwks {
    fn cache(&self) -> MutexGuard<'_, JwksCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Matching keys that are old but still usable are returned at once, and newer ones are fetched in the background: if the server
    /// does not respond, only callers with an unknown key wait.
    async fn keys_for(
        self: &Arc<Self>,
        header: &Header,
        clock: &Arc<dyn Clock>,
    ) -> Result<Vec<DecodingKey>, KeysUnavailable> {
        let cached = self.cache().usable(clock.elapsed());
        let (keys, age) = cached.map_or_else(Default::default, |(set, age)| (matching_keys(&set, header), age));
        if !keys.is_empty() && age < limits::JWKS_REFRESH_AFTER {
            return Ok(keys);
        }
        let fetch = self.start_fetch(clock);
        if !keys.is_empty() {
            return Ok(keys);
        }
        fetch.await;
        let (set, _) = self.cache().usable(clock.elapsed()).ok_or(KeysUnavailable)?;
        Ok(matching_keys(&set, header))
    }

    /// Starts to fetch the keys, unless a fetch began less than [`limits::JWKS_MIN_INTERVAL`] ago. The returned future resolves when that
    /// fetch ends. The fetch is a task of its own: if it were cancelled with the caller's request, a caller who disconnects could use up
    /// the only fetch of the interval.
    fn start_fetch(self: &Arc<Self>, clock: &Arc<dyn Clock>) -> Shared<BoxFuture<'static, ()>> {
        let mut cache = self.cache();
        let now = clock.elapsed();
        if let Some((began, end)) = &cache.last_fetch
            && now.saturating_sub(*began) < limits::JWKS_MIN_INTERVAL
        {
            return end.clone();
        }
        let (this, clock) = (self.clone(), clock.clone());
        let fetch = tokio::spawn(async move { this.fetch(&clock).await });
        // The outcome is in the cache. A fetch that panicked has ended too.
        let end = fetch.map(|_| ()).boxed().shared();
        cache.last_fetch = Some((now, end.clone()));
        end
    }

    /// Fetches the keys into the cache. A failure is logged and leaves the cache unchanged.
    async fn fetch(&self, clock: &Arc<dyn Clock>) {
        let cx = CallContext::new(clock.clone(), limits::JWKS_WAIT);
        let fetched = match cx.wait(self.request_keys()).await {
            Ok(fetched) => fetched,
            Err(timeout) => Err(timeout.to_string()),
        };
        match fetched {
            Ok(set) => {
                let mut cache = self.cache();
                (cache.keys, cache.fetched_at) = (Some(set), clock.elapsed());
            }
            Err(reason) => {
                tracing::warn!(code = "C0202", "the keys for the JWTs of callers could not be fetched: {reason}")
            }
        }
    }

    async fn request_keys(&self) -> Result<KeySet, String> {
        let text = |error: reqwest::Error| error.without_url().to_string();
        let client = self.http.client().map_err(|error| error.to_string())?;
        let response = client.get(self.url.clone()).header("accept", "application/json").send().await.map_err(text)?;
        if !response.status().is_success() {
            return Err(format!("the server returned {}", response.status()));
        }
        let body = read_limited(response, limits::JWKS_ANSWER).await.map_err(|error| match error {
            BodyError::TooLong { .. } => "the response is too large".to_owned(),
            BodyError::Broken(error) => error.to_string(),
        })?;
        let json: Json = serde_json::from_slice(&body).map_err(|_| "the response is not JSON".to_owned())?;
        read_key_set(&json).ok_or_else(|| "the response is not a key set".to_owned())
    }
}

impl JwksCache {
    /// The keys and their age; `None` if they are older than [`limits::JWKS_MAX_AGE`].
    fn usable(&self, now: Duration) -> Option<(KeySet, Duration)> {
        let age = now.saturating_sub(self.fetched_at);
        self.keys.clone().filter(|_| age < limits::JWKS_MAX_AGE).map(|set| (set, age))
    }
}

/// Parses a key set (RFC 7517, section 5): at most [`limits::JWKS_KEYS`] keys. As that section recommends, unsupported keys are ignored.
/// `None` if the JSON is not a key set.
pub(super) fn read_key_set(json: &Json) -> Option<KeySet> {
    let keys = json.get("keys")?.as_array()?;
    Some(keys.iter().take(limits::JWKS_KEYS).filter_map(parse_key).collect())
}

/// Parses a key; `None` if it is not supported or not meant for verifying signatures.
fn parse_key(json: &Json) -> Option<VerificationKey> {
    let jwk: jwk::Jwk = serde_json::from_value(json.clone()).ok()?;
    let signs = jwk.common.public_key_use.as_ref().is_none_or(|key_use| *key_use == jwk::PublicKeyUse::Signature);
    let verifies =
        jwk.common.key_operations.as_ref().is_none_or(|operations| operations.contains(&jwk::KeyOperations::Verify));
    if !signs || !verifies {
        return None;
    }
    let algorithm = match json.get("alg").and_then(Json::as_str) {
        Some(name) => Some(name.parse().ok()?),
        None => None,
    };
    Some(VerificationKey { id: jwk.common.key_id.clone(), algorithm, key: DecodingKey::from_jwk(&jwk).ok()? })
}

/// The keys of a set that can verify a token with this header.
fn matching_keys(set: &[VerificationKey], header: &Header) -> Vec<DecodingKey> {
    let Ok(family) = family(header.alg) else { return Vec::new() };
    let matches = |key: &&VerificationKey| {
        key.key.family() == family
            && key.algorithm.is_none_or(|algorithm| algorithm == header.alg)
            // A shared secret has no key id, but a token that it signs may name one.
            && (header.kid.is_none() || key.id == header.kid || family == jsonwebtoken::AlgorithmFamily::Hmac)
    };
    set.iter().filter(matches).take(limits::JWKS_TRIED).map(|key| key.key.clone()).collect()
}
