//! A model that waits when its provider limits the rate or is overloaded, instead of failing the loop that calls it.
//!
//! A mission may wait for minutes where a conversation may not. The wait is not part of the time limit of a model call, and it is no
//! attempt of an iteration. Models with the same account share the wait that their provider asked for (`crates/llm/src/router`), so that
//! loops that wait send no requests meanwhile. A server that fails, or that cannot be reached, is waited for much shorter: its address may
//! be wrong.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use segue_engine::mission::event::{IssueSeverity, RunEventKind};
use serde_json::json;

use super::{journal::UnitJournal, slice::UnitRun};
use crate::{
    context::CallContext,
    journal::JournaledModel,
    limits,
    llm::{ChatRequest, ChatStream, Llm, LlmError, LlmErrorKind, ModelProfile},
};

/// The first wait after a failure without a time from the provider; it doubles with each failure.
const FIRST_WAIT: Duration = Duration::from_secs(2);

/// A model that waits for its provider.
struct PatientModel {
    inner: Arc<dyn Llm>,
    journal: Arc<UnitJournal>,
}

#[async_trait]
impl Llm for PatientModel {
    fn profile(&self) -> &ModelProfile {
        self.inner.profile()
    }
    async fn chat(&self, request: ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError> {
        // The wait after a server failed without asking for one is bounded more narrowly.
        let (mut waited, mut waited_unasked, mut failures) = (Duration::ZERO, Duration::ZERO, 0);
        loop {
            let attempt = cx.with_timeout(limits::MISSION_MODEL_CALL);
            let error = match self.inner.chat(request.clone(), &attempt).await {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            };
            failures += u32::from(error.retry_after().is_none());
            let Some(wait) = wait_after(&error, failures) else { return Err(error) };
            let wait = wait + wait.mul_f64(spread(&request, waited));
            waited += wait;
            if !is_asked_for(&error, failures) {
                waited_unasked += wait;
            }
            if waited > limits::MISSION_MODEL_WAIT || waited_unasked > limits::MISSION_SERVER_WAIT {
                return Err(error);
            }
            self.note(&error, wait).await;
            cx.wait(cx.clock.sleep(cx.clock.deadline(wait))).await?;
        }
    }
}

impl PatientModel {
    /// Stores that the loop waits, so that people see why nothing happens.
    async fn note(&self, error: &LlmError, wait: Duration) {
        tracing::warn!(code = error.code(), ?wait, "a model cannot be called now; waiting");
        self.journal.note(RunEventKind::MissionIssue {
            severity: IssueSeverity::Warning,
            category: "provider_error".into(),
            message: format!("the model cannot be called now; waiting {} s: {error}", wait.as_secs()).into(),
            details: json!({"code": error.code(), "wait_seconds": wait.as_secs()}),
        });
        // A failure of the store ends the unit with its next step.
        let _ = self.journal.commit(|_| {}).await;
    }
}

/// Whether the provider limits the rate, or asked for the wait. After failures without such a time, a time comes from the router, which
/// does not call a server that fails.
fn is_asked_for(error: &LlmError, failures: u32) -> bool {
    matches!(error.kind, LlmErrorKind::RateLimited { .. }) || (error.retry_after().is_some() && failures == 0)
}

/// How long to wait after an error, the `failures`-th without a time from the provider; `None` if waiting does not help.
fn wait_after(error: &LlmError, failures: u32) -> Option<Duration> {
    use LlmErrorKind as K;
    if let Some(wait) = error.retry_after() {
        return Some(wait);
    }
    let passes = matches!(
        error.kind,
        K::RateLimited { .. } | K::Overloaded { .. } | K::Unreachable | K::FirstTokenTimeout | K::IdleTimeout
    );
    let doubled = FIRST_WAIT.saturating_mul(1 << failures.saturating_sub(1).min(16));
    passes.then_some(doubled)
}

/// A number below 0.25 that differs from request to request, so that loops that failed together do not return together.
fn spread(request: &ChatRequest, waited: Duration) -> f64 {
    let [a, b, c, d, ..] = request.hash().0;
    let number = u64::from(u32::from_be_bytes([a, b, c, d])) ^ u64::from(waited.subsec_nanos());
    (number % 1_000) as f64 / 4_000.0
}

impl UnitRun {
    /// A model whose responses are recorded, and that waits for its provider.
    pub(super) fn journaled(&self, model: Arc<dyn Llm>) -> JournaledModel {
        let patient = PatientModel { inner: model, journal: self.journal.clone() };
        JournaledModel::new(Arc::new(patient), self.effects.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_that_pass_are_waited_for_and_waits_grow() {
        let seconds = |kind: LlmErrorKind, failures| wait_after(&kind.into(), failures).map(|wait| wait.as_secs());
        let after = Some(Duration::from_secs(90));
        assert_eq!(seconds(LlmErrorKind::RateLimited { after }, 0), Some(90));
        let waits: Vec<_> = (1..=7).map(|failures| seconds(LlmErrorKind::Unreachable, failures)).collect();
        assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128].map(Some));
        for kind in [LlmErrorKind::Unauthorised, LlmErrorKind::BadRequest, LlmErrorKind::Cancelled] {
            assert_eq!(seconds(kind, 1), None);
        }
    }
}
