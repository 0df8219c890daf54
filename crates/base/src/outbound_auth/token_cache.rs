//! A token cache: many concurrent calls share one token and one request for it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::sync::Mutex;

use super::{IssuedToken, TokenError};
use crate::{clock::Clock, context::CallContext, limits, secret::Secret};

/// A source of tokens.
pub trait TokenSource: Send {
    /// What a single call adds to the request, such as the challenge it received.
    type Request: Sync;

    /// Requests a new token. *Cancellation*: the future may be dropped at any point; the next call sends a new request.
    fn request_token<'a>(&'a mut self, request: &'a Self::Request) -> BoxFuture<'a, Result<IssuedToken, TokenError>>;
}

/// A cache for the token of one source.
pub struct TokenCache<S> {
    clock: Arc<dyn Clock>,
    /// The longest wait for a token, including the wait for the request of another call.
    timeout: Duration,
    /// The number of finished requests, successful or not.
    requests: AtomicU64,
    /// Locked during a request, so that concurrent calls send only one.
    cached: Mutex<CachedToken<S>>,
}

struct CachedToken<S> {
    source: S,
    /// The token, and the time of the monotonic clock from which it is no longer used.
    token: Option<(Secret, Duration)>,
    /// The error of the last request, if it failed.
    failed: Option<TokenError>,
}

impl<S: TokenSource> TokenCache<S> {
    /// An empty cache.
    pub fn new(source: S, clock: Arc<dyn Clock>, timeout: Duration) -> Self {
        let cached = Mutex::new(CachedToken { source, token: None, failed: None });
        Self { clock, timeout, requests: AtomicU64::new(0), cached }
    }

    /// A token that is valid now and is not the `refused` one. A call that waits for the request of another call gets the result of that
    /// request, even an error: concurrent calls wait for an unresponsive server only once and send a wrong secret only once.
    ///
    /// # Errors
    /// [`TokenError`].
    pub async fn token(&self, refused: Option<&str>, request: &S::Request) -> Result<Secret, TokenError> {
        let cx = CallContext::new(self.clock.clone(), self.timeout);
        let timed_out = |error| TokenError::TimedOut(self.timeout, error);
        let before = self.requests.load(Ordering::Acquire);
        let mut cached = cx.wait(self.cached.lock()).await.map_err(timed_out)?;
        if let Some((token, until)) = &cached.token
            && self.clock.elapsed() < *until
            && refused != Some(token.expose())
        {
            return Ok(token.clone());
        }
        if let Some(error) = &cached.failed
            && self.requests.load(Ordering::Acquire) != before
            && error.applies_to_all_callers()
        {
            return Err(error.clone());
        }
        cached.token = None;
        let issued = cx.wait(cached.source.request_token(request)).await.map_err(timed_out).and_then(|issued| issued);
        self.requests.fetch_add(1, Ordering::AcqRel);
        match issued {
            Ok(IssuedToken { token, lifetime }) => {
                let until = self.clock.elapsed().saturating_add(lifetime.saturating_sub(refresh_margin(lifetime)));
                (cached.token, cached.failed) = (Some((token.clone(), until)), None);
                Ok(token)
            }
            Err(error) => {
                cached.failed = Some(error.clone());
                Err(error)
            }
        }
    }
}

/// How long before its expiry a token with this lifetime is no longer used: [`limits::TOKEN_MARGIN`], but at most a quarter of the
/// lifetime, so that a short-lived token is used too.
pub fn refresh_margin(lifetime: Duration) -> Duration {
    limits::TOKEN_MARGIN.min(lifetime / 4)
}
