//! A model group: several models of which one answers. Asks them in the order of the group's strategy, falls back on typed
//! failure, tries again what may be tried again, and leaves alone who failed too often.
//!
//! `strategy` decides the order, `health` knows who may be asked, `retry` decides what is tried again.

mod health;
pub mod strategy;

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, future::BoxFuture, stream};
use segue_base::context::CallContext;

use self::health::{Health, Visit, Why};
pub use self::strategy::{RouterConfig, RoutingStrategy, Share};
use super::{
    ChatRequest, ChatResponse, ChatStream, Delta, Llm, LlmError, LlmErrorKind, MOST_TRIES, ModelProfile,
    message::Route,
    retry::{AttemptState, RetryDecision, RetryPolicy, random},
    window,
};

/// One model of a group.
#[derive(Clone)]
pub struct GroupMember {
    /// The model.
    pub model: Arc<dyn Llm>,
    /// How often it may be asked for one call, at least once.
    pub tries: u32,
    /// Its share of the calls, and its prices.
    pub share: Share,
}

/// A model group.
pub struct Router(Arc<Group>);

struct Group {
    profile: ModelProfile,
    members: Vec<GroupMember>,
    config: RouterConfig,
    policy: RetryPolicy,
    seed: u64,
    health: Arc<Health>,
}

impl Router {
    /// A group of `first` and `others`. `seed` is for the jitter of waits.
    pub fn new(
        first: GroupMember,
        others: Vec<GroupMember>,
        config: RouterConfig,
        policy: RetryPolicy,
        seed: u64,
    ) -> Self {
        let profile = first.model.profile().clone();
        let members: Vec<GroupMember> = std::iter::once(first).chain(others).collect();
        let health = Health::new(members.len(), &config);
        Self(Arc::new(Group { profile, members, config, policy, seed, health }))
    }
}

impl Group {
    /// The members in the order in which this call asks them.
    fn order(&self, request: &ChatRequest, cx: &CallContext) -> Vec<usize> {
        if self.members.len() == 1 {
            return vec![0];
        }
        let known = self.health.known(cx.clock.elapsed());
        let members: Vec<_> = self.members.iter().map(|member| member.share).zip(known).collect();
        strategy::order(self.config.strategy, &members, call_id(request, cx))
    }
}

/// The same for the same call, whenever and wherever it is made.
fn call_id(request: &ChatRequest, cx: &CallContext) -> u64 {
    let last = request.messages.last().map_or("", |message| message.text());
    let texts = [cx.key.as_str(), request.purpose.as_str(), last];
    texts.iter().flat_map(|text| text.bytes().chain([0])).fold(request.messages.len() as u64, |id, byte| {
        // FNV-1a: the lot is drawn by a better mixer.
        (id ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

impl Llm for Router {
    fn profile(&self) -> &ModelProfile {
        &self.0.profile
    }

    /// Where pieces are shown, the stream begins with the first piece of whichever model answered; until then failures change
    /// nothing for the reader. After a piece of text left, a failure is told as it is. Where none is shown, the text comes in
    /// one piece with the end.
    fn chat<'a>(&'a self, request: ChatRequest, cx: &'a CallContext) -> BoxFuture<'a, Result<ChatStream, LlmError>> {
        let mut call = Call {
            order: self.0.order(&request, cx).into_iter(),
            group: self.0.clone(),
            member: None,
            visit: None,
            stream: None,
            request,
            cx: cx.clone(),
            made: 0,
            total: 0,
            failed_at: None,
            last: None,
            is_shrunk: false,
            has_waited: false,
            nobody_left: false,
            shown: false,
            ended: false,
        };
        Box::pin(async move {
            let shown = call.request.shown;
            let first = match call.next().await {
                Some(Err(error)) => return Err(error),
                Some(Ok(delta)) => delta,
                None => return Err(LlmErrorKind::CutShort.into()),
            };
            let rest = stream::unfold(call, |mut call| async move { Some((call.more().await?, call)) });
            let answer = ChatStream::new(stream::iter([Ok(first)]).chain(rest));
            if shown { Ok(answer) } else { answer.finish().await.map(ChatStream::of) }
        })
    }
}

/// One call to a group, over all its tries.
struct Call {
    group: Arc<Group>,
    /// Members that were not asked yet.
    order: std::vec::IntoIter<usize>,
    member: Option<usize>,
    visit: Option<Visit>,
    stream: Option<ChatStream>,
    request: ChatRequest,
    cx: CallContext,
    /// Tries of this member.
    made: u32,
    /// Tries of all members.
    total: u64,
    /// When the first try failed: the budget runs from there.
    failed_at: Option<Duration>,
    /// The failure of the latest try.
    last: Option<LlmError>,
    /// Whether parts of the conversation were left out of the request.
    is_shrunk: bool,
    /// Whether it waited for a member that asked to wait.
    has_waited: bool,
    /// Whether all others are left alone: then there is no more to try.
    nobody_left: bool,
    /// Whether text left to be shown: from then on nothing is tried again.
    shown: bool,
    ended: bool,
}

impl Call {
    /// Asks until somebody begins to answer, or nobody is left.
    async fn next(&mut self) -> Option<Result<Delta, LlmError>> {
        while !self.ended {
            let first = self.begin().await.and_then(|first| first.unwrap_or(Err(LlmErrorKind::CutShort.into())));
            match first {
                Ok(delta) => return Some(Ok(self.passed(delta))),
                Err(error) => {
                    if let Some(last) = self.give_up(error).await {
                        return Some(Err(last));
                    }
                }
            }
        }
        None
    }

    /// Notes a piece that passes.
    fn passed(&mut self, delta: Delta) -> Delta {
        match delta {
            Delta::Done(answer) => {
                self.ended = true;
                Delta::Done(self.done(answer))
            }
            delta => {
                self.shown |= self.request.shown && matches!(delta, Delta::Text(_) | Delta::Refusal(_));
                delta
            }
        }
    }

    /// The next piece. After an answer that broke off, or had no end, asks again where that is allowed.
    async fn more(&mut self) -> Option<Result<Delta, LlmError>> {
        let stream = self.stream.as_mut().filter(|_| !self.ended)?;
        let error = match stream.next().await {
            Some(Ok(delta)) => return Some(Ok(self.passed(delta))),
            Some(Err(error)) => error,
            None => LlmErrorKind::CutShort.into(),
        };
        match self.give_up(error).await {
            Some(last) => Some(Err(last)),
            None => self.next().await,
        }
    }

    /// Takes a failure; gives it back when it is the last word.
    async fn give_up(&mut self, error: LlmError) -> Option<LlmError> {
        self.stream = None;
        let last = self.recover(error).await.err();
        self.ended = last.is_some();
        last
    }

    /// Asks a member, and gives the first piece of its answer.
    async fn begin(&mut self) -> Result<Option<Result<Delta, LlmError>>, LlmError> {
        let at = self.pick().await?;
        let Some(member) = self.group.members.get(at) else { return Err(LlmErrorKind::Unreachable.into()) };
        self.made += 1;
        self.total += 1;
        let mut stream = member.model.chat(self.request.clone(), &self.cx).await?;
        let first = stream.next().await;
        self.stream = Some(stream);
        if let (Some(visit), Some(Ok(_))) = (&self.visit, &first) {
            visit.began_to_answer(self.cx.clock.elapsed());
        }
        Ok(first)
    }

    /// The member to ask: the same again, or the next that may be asked.
    async fn pick(&mut self) -> Result<usize, LlmError> {
        loop {
            let now = self.cx.clock.elapsed();
            let again = self.member;
            for at in again.into_iter().chain(self.order.by_ref()) {
                if let Some(visit) = self.group.health.enter(at, now) {
                    self.made = if again == Some(at) { self.made } else { 0 };
                    self.member = Some(at);
                    self.visit = Some(visit);
                    return Ok(at);
                }
            }
            self.member = None;
            self.nobody_left = true;
            if let Some(last) = self.last.take() {
                return Err(last);
            }
            let (until, why) = self.group.health.next_opening(now).unwrap_or((now, Why::Failing));
            let wait = until.saturating_sub(now);
            let room = self.group.policy.budget.min(self.cx.remaining());
            // What asked to wait is waited for, once; what fails is not (`docs/faults.md` L1, L3).
            if why == Why::Failing || self.has_waited || wait >= room {
                let after = Some(wait);
                let kind = match why {
                    Why::Limited => LlmErrorKind::RateLimited { after },
                    Why::Failing => LlmErrorKind::Overloaded { after },
                };
                return Err(
                    LlmError::new(kind).because("after earlier failures, no model of the group is asked for now")
                );
            }
            (self.has_waited, self.nobody_left) = (true, false);
            let until = self.cx.clock.deadline(wait);
            self.cx.wait(self.cx.clock.sleep(until)).await?;
            self.order = self.group.order(&self.request, &self.cx).into_iter();
        }
    }

    /// Notes who answered and what it cost.
    fn done(&mut self, answer: Arc<ChatResponse>) -> Arc<ChatResponse> {
        if let Some(visit) = self.visit.take() {
            visit.answered(&answer.usage, self.cx.clock.elapsed());
        }
        let Some((at, member)) = self.member.and_then(|at| Some((at, self.group.members.get(at)?))) else {
            return answer;
        };
        let prices = member.share.prices.filter(|_| answer.usage.cost.is_none());
        let is_told = answer.route.is_none() && (self.group.members.len() > 1 || self.is_shrunk);
        if prices.is_none() && !is_told {
            return answer;
        }
        let mut answer = Arc::unwrap_or_clone(answer);
        if let Some(prices) = prices {
            answer.usage.cost = Some(prices.cost(&answer.usage));
        }
        if is_told {
            let model = member.model.profile().model.as_str().into();
            answer.route = Some(Arc::new(Route { member: at, model, tries: self.total, shrunk: self.is_shrunk }));
        }
        Arc::new(answer)
    }

    /// Prepares the next try, or gives the failure back.
    async fn recover(&mut self, error: LlmError) -> Result<(), LlmError> {
        let now = self.cx.clock.elapsed();
        let model = self.member.and_then(|at| self.group.members.get(at)).map(|member| &member.model.profile().model);
        let model = model.map_or("", String::as_str);
        if let Some(visit) = self.visit.take()
            && visit.failed(&error, now)
        {
            tracing::error!(model, code = error.code(), "a model fails; it is left alone for a while: {error}");
        }
        if self.shown || self.nobody_left || self.is_tried_enough() {
            return Err(error);
        }
        if error.kind == LlmErrorKind::TooLong
            && self.group.policy.shrinks
            && !std::mem::replace(&mut self.is_shrunk, true)
            && let Some(smaller) = window::shrunk(&self.request)
        {
            tracing::warn!(model, "a request is longer than the model's window; asking with less of the conversation");
            self.request = smaller;
            self.last = Some(error);
            return Ok(());
        }
        let mine = self.member.and_then(|at| self.group.members.get(at));
        let standing = AttemptState {
            made: self.made,
            allowed: mine.map_or(1, |member| member.tries.max(1)),
            has_next: self.order.as_slice().iter().any(|at| self.group.health.may_ask(*at, now)),
            spent: now.saturating_sub(*self.failed_at.get_or_insert(now)),
            left: self.cx.remaining(),
        };
        // The request is part of the luck, so that calls that failed together do not come back together.
        let [a, b, c, d, e, f, g, h, ..] = self.request.hash().0;
        let luck = random(self.group.seed ^ u64::from_be_bytes([a, b, c, d, e, f, g, h]), self.total);
        match self.group.policy.judge(&error, standing, luck) {
            RetryDecision::Fail => return Err(error),
            RetryDecision::Next => {
                tracing::warn!(model, code = error.code(), "a model failed; asking the next of its group");
                self.member = None;
            }
            RetryDecision::Again(wait) => {
                tracing::warn!(model, code = error.code(), ?wait, "a model failed; asking it again");
                let until = self.cx.clock.deadline(wait);
                self.cx.wait(self.cx.clock.sleep(until)).await?;
            }
        }
        self.last = Some(error);
        Ok(())
    }

    fn is_tried_enough(&self) -> bool {
        let most = self.group.config.num_retries.map(|retries| u64::from(retries.min(MOST_TRIES)) + 1);
        most.is_some_and(|most| self.total >= most)
    }
}

#[cfg(test)]
mod tests;
