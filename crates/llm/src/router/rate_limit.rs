//! Rate limits of providers, shared by all clients of one account and model.
//!
//! A provider that answers "too many requests" names the time to wait. The wait concerns every client with the same account and model,
//! whichever group or component opened it: none of them sends a request before it is over.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{ModelConfig, ScriptSource};

/// Until when a provider asked for no more requests. Clones are the same limit.
#[derive(Clone, Debug, Default)]
pub struct RateLimit(Arc<AtomicU64>);

impl RateLimit {
    /// The time of the clock until which no request may be sent.
    pub(super) fn until(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
    /// Sends no request before this time. A shorter wait does not replace a longer one.
    pub(super) fn wait_until(&self, until: Duration) {
        self.0.fetch_max(u64::try_from(until.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// The rate limits of the models that were opened together, by account and model. Clones are the same limits.
#[derive(Clone, Debug, Default)]
pub struct RateLimits(Arc<Mutex<Known>>);

/// One entry for each model of the configuration.
#[derive(Debug, Default)]
struct Known {
    hasher: RandomState,
    limits: HashMap<(String, String, u64), RateLimit>,
}

impl RateLimits {
    /// The limit of a model. The key of the account is only kept as a hash.
    pub(crate) fn of(&self, config: &ModelConfig) -> RateLimit {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let source = match &config.source {
            Some(ScriptSource::File(path)) => path.to_string_lossy().into_owned(),
            Some(ScriptSource::Text { text, .. }) => text.to_string(),
            None => String::new(),
        };
        let key = config.api_key.as_ref().map(|key| key.expose());
        let account = known.hasher.hash_one((key, config.api_base.as_deref(), source));
        let model = config.deployment.as_ref().unwrap_or(&config.model).clone();
        known.limits.entry((config.provider.clone(), model, account)).or_default().clone()
    }
}
