//! A model group: several models of which one answers. Asks them in order, falls back on typed failure, tries again what may
//! be tried again. Weights and a circuit breaker will decide the order in `Router::order`; nothing else changes then.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, future::BoxFuture, stream};

use super::{
    ChatRequest, ChatStream, Delta, Llm, LlmError, LlmErrorKind, ModelProfile,
    retry::{RetryPolicy, Standing, Verdict, random},
};
use crate::cx::Cx;

/// One model of a group.
#[derive(Clone)]
pub struct Member {
    /// The model.
    pub model: Arc<dyn Llm>,
    /// How often it may be asked for one call, at least once.
    pub tries: u32,
}

/// A model group.
pub struct Router {
    first: Member,
    others: Vec<Member>,
    policy: RetryPolicy,
    seed: u64,
}

impl Router {
    /// A group that asks `first`, then `others` in order. `seed` is for the jitter of waits.
    pub fn new(first: Member, others: Vec<Member>, policy: RetryPolicy, seed: u64) -> Self {
        Self { first, others, policy, seed }
    }

    /// The members in the order in which this call asks them.
    fn order(&self) -> Vec<Member> {
        std::iter::once(&self.first).chain(&self.others).cloned().collect()
    }
}

impl Llm for Router {
    fn profile(&self) -> &ModelProfile {
        self.first.model.profile()
    }

    /// The stream begins with the first piece of whichever model answered; until then failures change nothing for the
    /// reader. After a piece of text left, a failure is told as it is.
    fn chat<'a>(&'a self, request: ChatRequest, cx: &'a Cx) -> BoxFuture<'a, Result<ChatStream, LlmError>> {
        let mut call = Call {
            members: self.order().into_iter(),
            member: None,
            stream: None,
            request,
            cx: cx.clone(),
            policy: self.policy,
            seed: self.seed,
            made: 0,
            total: 0,
            failed_at: None,
            shown: false,
            ended: false,
        };
        Box::pin(async move {
            let first = match call.next().await {
                Some(Err(error)) => return Err(error),
                Some(Ok(delta)) => delta,
                None => return Err(LlmErrorKind::CutShort.into()),
            };
            // Boxed: the stream moves its state at every delta.
            let rest =
                stream::unfold(Box::new(call), |mut call| async move { call.next().await.map(|delta| (delta, call)) });
            Ok(ChatStream::new(stream::iter([Ok(first)]).chain(rest)))
        })
    }
}

/// One call to a group, over all its tries.
struct Call {
    members: std::vec::IntoIter<Member>,
    member: Option<Member>,
    stream: Option<ChatStream>,
    request: ChatRequest,
    cx: Cx,
    policy: RetryPolicy,
    seed: u64,
    /// Tries of this member.
    made: u32,
    /// Tries of all members.
    total: u64,
    /// When the first try failed: the budget runs from there.
    failed_at: Option<Duration>,
    /// Whether text left: from then on nothing is tried again.
    shown: bool,
    ended: bool,
}

impl Call {
    async fn next(&mut self) -> Option<Result<Delta, LlmError>> {
        while !self.ended {
            let error = match self.advance().await {
                Ok(delta) => {
                    self.shown |= matches!(delta, Delta::Text(_) | Delta::Refusal(_));
                    self.ended = matches!(delta, Delta::Done(_));
                    return Some(Ok(delta));
                }
                Err(error) => error,
            };
            self.stream = None;
            if let Err(last) = self.recover(error).await {
                self.ended = true;
                return Some(Err(last));
            }
        }
        None
    }

    /// One delta of the model that is being asked; asks one first if none is.
    async fn advance(&mut self) -> Result<Delta, LlmError> {
        if let Some(stream) = &mut self.stream {
            return stream.next().await.unwrap_or(Err(LlmErrorKind::CutShort.into()));
        }
        if self.member.is_none() {
            self.member = self.members.next();
        }
        let Some(member) = &self.member else { return Err(LlmErrorKind::Unreachable.into()) };
        self.made += 1;
        self.total += 1;
        let mut stream = member.model.chat(self.request.clone(), &self.cx).await?;
        let first = stream.next().await;
        self.stream = Some(stream);
        first.unwrap_or(Err(LlmErrorKind::CutShort.into()))
    }

    /// Prepares the next try, or gives the failure back.
    async fn recover(&mut self, error: LlmError) -> Result<(), LlmError> {
        if self.shown {
            return Err(error);
        }
        let now = self.cx.clock.elapsed();
        let standing = Standing {
            made: self.made,
            allowed: self.member.as_ref().map_or(1, |member| member.tries.max(1)),
            has_next: self.members.len() > 0,
            spent: now.saturating_sub(*self.failed_at.get_or_insert(now)),
            left: self.cx.remaining(),
        };
        // The request is part of the luck, so that calls that failed together do not come back together.
        let [a, b, c, d, e, f, g, h, ..] = self.request.hash().0;
        let luck = random(self.seed ^ u64::from_be_bytes([a, b, c, d, e, f, g, h]), self.total);
        let model = self.member.as_ref().map_or("", |member| &member.model.profile().model);
        match self.policy.judge(&error, standing, luck) {
            Verdict::Fail => return Err(error),
            Verdict::Next => {
                tracing::warn!(model, code = error.code(), "a model failed; asking the next of its group");
                self.member = None;
                self.made = 0;
            }
            Verdict::Again(wait) => {
                tracing::warn!(model, code = error.code(), ?wait, "a model failed; asking it again");
                let until = self.cx.clock.deadline(wait);
                self.cx.wait(self.cx.clock.sleep(until)).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
