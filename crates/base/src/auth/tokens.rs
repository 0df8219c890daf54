//! One token for many calls: held while it is good, asked for once however many want it, waited for no longer than allowed.

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

/// Where tokens come from.
pub trait TokenSource: Send {
    /// What one call knows and others do not.
    type Why: Sync;

    /// A new token. *Cancellation*: may be dropped at any point; the next call asks anew.
    fn ask<'a>(&'a mut self, why: &'a Self::Why) -> BoxFuture<'a, Result<IssuedToken, TokenError>>;
}

/// The tokens of one source.
pub struct TokenCache<S> {
    clock: Arc<dyn Clock>,
    /// The longest wait for a token, a wait for others who ask included.
    timeout: Duration,
    /// How many answers, good and bad, there were.
    answers: AtomicU64,
    /// Held across the request, so that many calls ask for one token.
    held: Mutex<Held<S>>,
}

struct Held<S> {
    source: S,
    /// The token, and when it is no longer used.
    token: Option<(Secret, Duration)>,
    /// What came instead of a token, the last time.
    failed: Option<TokenError>,
}

impl<S: TokenSource> TokenCache<S> {
    /// No token yet.
    pub fn new(source: S, clock: Arc<dyn Clock>, timeout: Duration) -> Self {
        let held = Mutex::new(Held { source, token: None, failed: None });
        Self { clock, timeout, answers: AtomicU64::new(0), held }
    }

    /// A token that is good now, and not the `refused` one. Who waits while another asks gets what that one got, a failure
    /// too: a server that hangs is waited for once, and a wrong secret is shown once.
    ///
    /// # Errors
    /// [`TokenError`].
    pub async fn token(&self, refused: Option<&str>, why: &S::Why) -> Result<Secret, TokenError> {
        let cx = CallContext::new(self.clock.clone(), self.timeout);
        let late = |stopped| TokenError::Late(self.timeout, stopped);
        let before = self.answers.load(Ordering::Acquire);
        let mut held = cx.wait(self.held.lock()).await.map_err(late)?;
        if let Some((token, until)) = &held.token
            && self.clock.elapsed() < *until
            && refused != Some(token.expose())
        {
            return Ok(token.clone());
        }
        if let Some(error) = &held.failed
            && self.answers.load(Ordering::Acquire) != before
            && error.holds_for_all()
        {
            return Err(error.clone());
        }
        held.token = None;
        let given = cx.wait(held.source.ask(why)).await.map_err(late).and_then(|given| given);
        self.answers.fetch_add(1, Ordering::AcqRel);
        match given {
            Ok(IssuedToken { token, life }) => {
                let until = self.clock.elapsed().saturating_add(life.saturating_sub(margin(life)));
                (held.token, held.failed) = (Some((token.clone(), until)), None);
                Ok(token)
            }
            Err(error) => {
                held.failed = Some(error.clone());
                Err(error)
            }
        }
    }
}

/// How long before its end a token of this life is no longer used: a token that lives shorter than the usual margin must be
/// of use too.
pub fn margin(life: Duration) -> Duration {
    limits::TOKEN_MARGIN.min(life / 4)
}
