//! Model groups: routing, retries, fallbacks and circuit breakers over several models.
//!
//! `strategy` decides the order of the members, `circuit_breaker` and `rate_limit` which of them may be called, and `retry` what is
//! retried.

mod circuit_breaker;
mod rate_limit;
pub mod strategy;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::{StreamExt, stream};
use segue_base::context::CallContext;

use self::circuit_breaker::{CallPermit, MemberHealth, OpenReason};
pub use self::{
    rate_limit::{RateLimit, RateLimits},
    strategy::{MemberLimits, RouterConfig, RoutingStrategy},
};
use super::{
    ChatRequest, ChatResponse, ChatStream, Delta, Llm, LlmError, LlmErrorKind, MAX_ATTEMPTS, ModelProfile,
    context_window,
    message::RoutingInfo,
    retry::{AttemptState, RetryDecision, RetryPolicy, random},
};

/// One model of a group.
#[derive(Clone)]
pub struct GroupMember {
    /// The model.
    pub model: Arc<dyn Llm>,
    /// Attempts that it may have in one call, at least one.
    pub max_attempts: u32,
    /// Its weight, rate limits and prices.
    pub limits: MemberLimits,
    /// The wait that its provider asked for, which members of other groups may share.
    pub rate_limit: RateLimit,
}

/// A model group.
pub struct Router(Arc<Group>);

struct Group {
    profile: ModelProfile,
    members: Vec<GroupMember>,
    config: RouterConfig,
    policy: RetryPolicy,
    seed: u64,
    health: Arc<MemberHealth>,
}

impl Router {
    /// A group of `first` and `others`. `seed` seeds the jitter of waits.
    pub fn new(
        first: GroupMember,
        others: Vec<GroupMember>,
        config: RouterConfig,
        policy: RetryPolicy,
        seed: u64,
    ) -> Self {
        let profile = first.model.profile().clone();
        let members: Vec<GroupMember> = std::iter::once(first).chain(others).collect();
        let health = MemberHealth::new(members.iter().map(|member| member.rate_limit.clone()), &config);
        Self(Arc::new(Group { profile, members, config, policy, seed, health }))
    }
}

impl Group {
    /// The members in the order in which this call uses them.
    fn order(&self, request: &ChatRequest, cx: &CallContext) -> Vec<usize> {
        if self.members.len() == 1 {
            return vec![0];
        }
        let stats = self.health.stats(cx.clock.elapsed());
        let members: Vec<_> = self.members.iter().map(|member| member.limits).zip(stats).collect();
        strategy::order(self.config.strategy, &members, call_id(request, cx))
    }
}

/// A number that is the same for the same call, also in another process.
fn call_id(request: &ChatRequest, cx: &CallContext) -> u64 {
    let last = request.messages.last().map_or("", |message| message.text());
    let texts = [cx.key.as_str(), request.purpose.as_str(), last];
    texts.iter().flat_map(|text| text.bytes().chain([0])).fold(request.messages.len() as u64, |id, byte| {
        // FNV-1a step; `random` mixes the result further.
        (id ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

#[async_trait]
impl Llm for Router {
    fn profile(&self) -> &ModelProfile {
        &self.0.profile
    }

    /// With `streamed_to_user`, the stream begins with the first delta of the model that answers. After the first text delta,
    /// a failure is returned without retries. Without `streamed_to_user`, the text is one delta at the end.
    async fn chat(&self, request: ChatRequest, cx: &CallContext) -> Result<ChatStream, LlmError> {
        let mut call = RoutedCall {
            order: self.0.order(&request, cx).into_iter(),
            group: self.0.clone(),
            member: None,
            permit: None,
            stream: None,
            request,
            cx: cx.clone(),
            made: 0,
            attempts: 0,
            failed_at: None,
            last_error: None,
            shortened: 0,
            has_waited: false,
            exhausted: false,
            has_streamed_text: false,
            ended: false,
        };
        let streamed_to_user = call.request.streamed_to_user;
        let first = match call.start().await {
            Some(Err(error)) => return Err(error),
            Some(Ok(delta)) => delta,
            None => return Err(LlmErrorKind::Truncated.into()),
        };
        let rest = stream::unfold(call, |mut call| async move { Some((call.next_delta().await?, call)) });
        let stream = ChatStream::new(stream::iter([Ok(first)]).chain(rest));
        if streamed_to_user { Ok(stream) } else { stream.finish().await.map(ChatStream::from_response) }
    }
}

/// One call to a group, over all its attempts.
struct RoutedCall {
    group: Arc<Group>,
    /// Members that were not called yet.
    order: std::vec::IntoIter<usize>,
    member: Option<usize>,
    permit: Option<CallPermit>,
    stream: Option<ChatStream>,
    request: ChatRequest,
    cx: CallContext,
    /// Attempts with the current member.
    made: u32,
    /// Attempts with all members.
    attempts: u64,
    /// When the first attempt failed; the retry budget runs from then.
    failed_at: Option<Duration>,
    /// The error of the latest attempt.
    last_error: Option<LlmError>,
    /// How often parts of the conversation were left out of the request.
    shortened: u32,
    /// Whether it has already waited for a rate-limited member.
    has_waited: bool,
    /// Whether no other member may be called, so that nothing more can be tried.
    exhausted: bool,
    /// Whether text was streamed to the user; from then on nothing is retried.
    has_streamed_text: bool,
    ended: bool,
}

/// How often one request is shortened.
const MOST_SHORTENINGS: u32 = 2;

impl RoutedCall {
    /// Makes attempts until a model begins to answer or no attempt is left.
    async fn start(&mut self) -> Option<Result<Delta, LlmError>> {
        while !self.ended {
            let first = self.attempt().await.and_then(|first| first.unwrap_or(Err(LlmErrorKind::Truncated.into())));
            match first {
                Ok(delta) => return Some(Ok(self.observe(delta))),
                Err(error) => {
                    if let Some(last) = self.retry_or_end(error).await {
                        return Some(Err(last));
                    }
                }
            }
        }
        None
    }

    /// Updates the state of the call with a delta before it is returned.
    fn observe(&mut self, delta: Delta) -> Delta {
        match delta {
            Delta::Done(answer) => {
                self.ended = true;
                Delta::Done(self.complete(answer))
            }
            delta => {
                self.has_streamed_text |=
                    self.request.streamed_to_user && matches!(delta, Delta::Text(_) | Delta::Refusal(_));
                delta
            }
        }
    }

    /// The next delta. After a failed or truncated stream, makes another attempt where that is allowed.
    async fn next_delta(&mut self) -> Option<Result<Delta, LlmError>> {
        let stream = self.stream.as_mut().filter(|_| !self.ended)?;
        let error = match stream.next().await {
            Some(Ok(delta)) => return Some(Ok(self.observe(delta))),
            Some(Err(error)) => error,
            None => LlmErrorKind::Truncated.into(),
        };
        match self.retry_or_end(error).await {
            Some(last) => Some(Err(last)),
            None => self.start().await,
        }
    }

    /// Prepares another attempt after `error`; returns the error when the call ends with it.
    async fn retry_or_end(&mut self, error: LlmError) -> Option<LlmError> {
        self.stream = None;
        let last = self.after_failure(error).await.err();
        self.ended = last.is_some();
        last
    }

    /// Calls a member, and returns the first delta of its response.
    async fn attempt(&mut self) -> Result<Option<Result<Delta, LlmError>>, LlmError> {
        let at = self.select_member().await?;
        let Some(member) = self.group.members.get(at) else { return Err(LlmErrorKind::Unreachable.into()) };
        self.made += 1;
        self.attempts += 1;
        let mut stream = member.model.chat(self.request.clone(), &self.cx).await?;
        let first = stream.next().await;
        self.stream = Some(stream);
        if let (Some(permit), Some(Ok(_))) = (&self.permit, &first) {
            permit.record_first_delta(self.cx.clock.elapsed());
        }
        Ok(first)
    }

    /// The member to call: the same again, or the next whose circuit is closed.
    async fn select_member(&mut self) -> Result<usize, LlmError> {
        loop {
            let now = self.cx.clock.elapsed();
            let again = self.member;
            for at in again.into_iter().chain(self.order.by_ref()) {
                if let Some(permit) = self.group.health.try_acquire(at, now) {
                    self.made = if again == Some(at) { self.made } else { 0 };
                    self.member = Some(at);
                    self.permit = Some(permit);
                    return Ok(at);
                }
            }
            self.member = None;
            self.exhausted = true;
            if let Some(last) = self.last_error.take() {
                return Err(last);
            }
            let (until, why) = self.group.health.next_available(now).unwrap_or((now, OpenReason::Failing));
            let wait = until.saturating_sub(now);
            let time_left = self.group.policy.budget.min(self.cx.remaining());
            // The call waits once for a rate-limited member, but never for a failing one (`docs/reference/failure-handling.md`).
            if why == OpenReason::Failing || self.has_waited || wait >= time_left {
                let after = Some(wait);
                let kind = match why {
                    OpenReason::RateLimited => LlmErrorKind::RateLimited { after },
                    OpenReason::Failing => LlmErrorKind::Overloaded { after },
                };
                return Err(
                    LlmError::new(kind).with_detail("all models of the group failed before and are not called for now")
                );
            }
            (self.has_waited, self.exhausted) = (true, false);
            let until = self.cx.clock.deadline(wait);
            self.cx.wait(self.cx.clock.sleep(until)).await?;
            self.order = self.group.order(&self.request, &self.cx).into_iter();
        }
    }

    /// Adds routing and cost to the complete response.
    fn complete(&mut self, answer: Arc<ChatResponse>) -> Arc<ChatResponse> {
        if let Some(permit) = self.permit.take() {
            permit.record_success(&answer.usage, self.cx.clock.elapsed());
        }
        let Some((at, member)) = self.member.and_then(|at| Some((at, self.group.members.get(at)?))) else {
            return answer;
        };
        let prices = member.limits.prices.filter(|_| answer.usage.cost.is_none());
        let adds_routing = answer.routing.is_none() && (self.group.members.len() > 1 || self.shortened > 0);
        if prices.is_none() && !adds_routing {
            return answer;
        }
        let mut answer = Arc::unwrap_or_clone(answer);
        if let Some(prices) = prices {
            answer.usage.cost = Some(prices.cost(&answer.usage));
        }
        if adds_routing {
            let model = member.model.profile().model.as_str().into();
            let attempts = self.attempts;
            let info = RoutingInfo { member: at, model, attempts, shortened: self.shortened > 0 };
            answer.routing = Some(Arc::new(info));
        }
        Arc::new(answer)
    }

    /// Prepares the next attempt, or returns the error.
    async fn after_failure(&mut self, error: LlmError) -> Result<(), LlmError> {
        let now = self.cx.clock.elapsed();
        let model = self.member.and_then(|at| self.group.members.get(at)).map(|member| &member.model.profile().model);
        let model = model.map_or("", String::as_str);
        if let Some(permit) = self.permit.take()
            && permit.record_failure(&error, now)
        {
            tracing::error!(model, code = error.code(), "a model failed; its circuit is open for a while: {error}");
        }
        if self.has_streamed_text || self.exhausted || self.has_used_all_attempts() {
            return Err(error);
        }
        if error.kind == LlmErrorKind::ContextLengthExceeded
            && self.group.policy.shortens_requests
            && self.shortened < MOST_SHORTENINGS
            && let Some(shorter) = context_window::shorten(&self.request, self.shortened > 0)
        {
            self.shortened += 1;
            tracing::warn!(
                model,
                "a request exceeds the model's context window; retrying with less of the conversation"
            );
            self.request = shorter;
            self.last_error = Some(error);
            return Ok(());
        }
        let current = self.member.and_then(|at| self.group.members.get(at));
        let attempt = AttemptState {
            made: self.made,
            allowed: current.map_or(1, |member| member.max_attempts.max(1)),
            has_next: self.order.as_slice().iter().any(|at| self.group.health.is_available(*at, now)),
            spent: now.saturating_sub(*self.failed_at.get_or_insert(now)),
            left: self.cx.remaining(),
        };
        // The request is part of the seed, so that calls that failed together do not retry at the same time.
        let [a, b, c, d, e, f, g, h, ..] = self.request.hash().0;
        let random_number = random(self.group.seed ^ u64::from_be_bytes([a, b, c, d, e, f, g, h]), self.attempts);
        match self.group.policy.decide(&error, attempt, random_number) {
            RetryDecision::Fail => return Err(error),
            RetryDecision::NextModel => {
                tracing::warn!(model, code = error.code(), "a model failed; calling the next of its group");
                self.member = None;
            }
            RetryDecision::RetryAfter(wait) => {
                tracing::warn!(model, code = error.code(), ?wait, "a model failed; retrying it");
                let until = self.cx.clock.deadline(wait);
                self.cx.wait(self.cx.clock.sleep(until)).await?;
            }
        }
        self.last_error = Some(error);
        Ok(())
    }

    fn has_used_all_attempts(&self) -> bool {
        let limit = self.group.config.num_retries.map(|retries| u64::from(retries.min(MAX_ATTEMPTS)) + 1);
        limit.is_some_and(|limit| self.attempts >= limit)
    }
}

#[cfg(test)]
mod tests;
