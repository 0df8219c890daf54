//! Admission: how many delegates run at the same time in the process, and who is next.
//!
//! Within a conversation the order is first in, first out. Between conversations it is round robin, so that one conversation with many
//! delegates does not keep the others waiting. A place is given back when its [`Place`] is dropped.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use segue_engine::project::AdmissionDef;
use tokio::sync::oneshot;

use crate::context::{CallContext, WaitError};

/// Gives out the places of running delegates.
pub(super) struct Admission {
    limits: AdmissionDef,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    running: u32,
    max_running: u32,
    /// Conversations with waiting delegates, in the order in which they get the next place.
    queues: VecDeque<(Arc<str>, VecDeque<oneshot::Sender<Place>>)>,
}

/// A place of a running delegate; given back when it is dropped.
pub(super) struct Place {
    state: Arc<Mutex<State>>,
}

/// Why a delegate got no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// Too many others wait.
    QueueFull,
    /// None became free in time.
    QueueTimeout,
    /// The call was cancelled, or its deadline passed.
    Stopped(WaitError),
}

impl Admission {
    pub(super) fn new(limits: AdmissionDef) -> Self {
        let state = State { max_running: limits.max_running.max(1), ..State::default() };
        Self { limits, state: Arc::new(Mutex::new(state)) }
    }

    pub(super) fn limits(&self) -> &AdmissionDef {
        &self.limits
    }

    /// Waits for a place. The queue timeout begins now.
    pub(super) async fn place(&self, conversation: &Arc<str>, cx: &CallContext) -> Result<Place, NoPlace> {
        let waiting = match self.enter(conversation) {
            Entered::Place(place) => return Ok(place),
            Entered::Full => return Err(NoPlace::QueueFull),
            Entered::Queue(waiting) => waiting,
        };
        let limited = cx.with_timeout(self.limits.queue_timeout);
        match limited.wait(waiting).await {
            Ok(Ok(place)) => Ok(place),
            // The sender lives as long as the queue.
            Ok(Err(_)) => Err(NoPlace::Stopped(WaitError::Cancelled)),
            Err(WaitError::DeadlinePassed) if !cx.remaining().is_zero() => Err(NoPlace::QueueTimeout),
            Err(stopped) => Err(NoPlace::Stopped(stopped)),
        }
    }

    fn enter(&self, conversation: &Arc<str>) -> Entered {
        let mut state = lock(&self.state);
        // Callers that went away no longer count.
        for (_, queue) in &mut state.queues {
            queue.retain(|waiter| !waiter.is_closed());
        }
        state.queues.retain(|(_, queue)| !queue.is_empty());
        if state.running < state.max_running && state.queues.is_empty() {
            state.running += 1;
            return Entered::Place(Place { state: self.state.clone() });
        }
        let waiting: usize = state.queues.iter().map(|(_, queue)| queue.len()).sum();
        if waiting >= usize::try_from(self.limits.max_queued).unwrap_or(usize::MAX) {
            return Entered::Full;
        }
        let (sender, receiver) = oneshot::channel();
        match state.queues.iter_mut().find(|(name, _)| name == conversation) {
            Some((_, queue)) => queue.push_back(sender),
            None => state.queues.push_back((conversation.clone(), VecDeque::from([sender]))),
        }
        Entered::Queue(receiver)
    }

    /// Delegates that run, and those that wait.
    pub(super) fn counts(&self) -> (u32, usize) {
        let state = lock(&self.state);
        let waiting = state.queues.iter().flat_map(|(_, queue)| queue).filter(|waiter| !waiter.is_closed()).count();
        (state.running, waiting)
    }
}

enum Entered {
    Place(Place),
    Queue(oneshot::Receiver<Place>),
    Full,
}

impl State {
    /// Takes the next waiting delegate for a free place.
    fn next(&mut self) -> Option<oneshot::Sender<Place>> {
        if self.running >= self.max_running {
            return None;
        }
        loop {
            let (conversation, mut queue) = self.queues.pop_front()?;
            let next = queue.pop_front();
            if !queue.is_empty() {
                self.queues.push_back((conversation, queue));
            }
            if let Some(waiter) = next.filter(|waiter| !waiter.is_closed()) {
                self.running += 1;
                return Some(waiter);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.state).running -= 1;
        loop {
            let Some(waiter) = lock(&self.state).next() else { break };
            // A waiter that just went away drops the place, which then goes to the next.
            if waiter.send(Self { state: self.state.clone() }).is_ok() {
                break;
            }
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::{pin::pin, time::Duration};

    use futures::{FutureExt, future::BoxFuture, poll};

    use super::*;
    use crate::testing::ManualClock;

    fn limits(max_running: u32, max_queued: u32) -> AdmissionDef {
        AdmissionDef { max_running, max_queued, queue_timeout: Duration::from_secs(10) }
    }

    #[tokio::test]
    async fn places_go_round_robin_over_conversations_and_first_in_first_out_within_one() {
        let (clock, admission) = (ManualClock::new(), Admission::new(limits(1, 64)));
        let cx = clock.context(Duration::from_secs(100));
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        let mut place = Some(admission.place(&one, &cx).await.unwrap_or_else(|_| panic!("a free place")));
        let names = ["one 1", "one 2", "one 3", "other 1", "other 2"];
        let mut waiting: Vec<(&str, BoxFuture<'_, Result<Place, NoPlace>>)> = Vec::new();
        for name in names {
            let conversation = if name.starts_with("one") { &one } else { &other };
            let mut next = admission.place(conversation, &cx).boxed();
            assert!(poll!(&mut next).is_pending(), "{name}");
            waiting.push((name, next));
        }
        assert_eq!(admission.counts(), (1, 5));
        let mut order = Vec::new();
        while !waiting.is_empty() {
            drop(place.take());
            for at in 0..waiting.len() {
                if let std::task::Poll::Ready(next) = poll!(&mut waiting[at].1) {
                    order.push(waiting.remove(at).0);
                    place = Some(next.unwrap_or_else(|_| panic!("a place")));
                    break;
                }
            }
        }
        assert_eq!(order, ["one 1", "other 1", "one 2", "other 2", "one 3"]);
        drop(place);
        assert_eq!(admission.counts(), (0, 0));
    }

    #[tokio::test]
    async fn a_full_queue_refuses_and_a_wait_ends_at_the_queue_timeout() {
        let (clock, admission) = (ManualClock::new(), Admission::new(limits(1, 1)));
        let cx = clock.context(Duration::from_secs(100));
        let name: Arc<str> = "c".into();
        let _place = admission.place(&name, &cx).await.unwrap_or_else(|_| panic!("a free place"));
        let mut waiting = pin!(admission.place(&name, &cx));
        assert!(poll!(&mut waiting).is_pending());
        assert_eq!(admission.place(&name, &cx).await.err(), Some(NoPlace::QueueFull));
        clock.advance(Duration::from_secs(10));
        assert_eq!(waiting.await.err(), Some(NoPlace::QueueTimeout));
        // The one that gave up leaves its place in the queue to another.
        let mut next = pin!(admission.place(&name, &cx));
        assert!(poll!(&mut next).is_pending());
    }

    #[tokio::test]
    async fn a_cancelled_wait_takes_no_place() {
        let (clock, admission) = (ManualClock::new(), Admission::new(limits(1, 8)));
        let cx = clock.context(Duration::from_secs(100));
        let name: Arc<str> = "c".into();
        let place = admission.place(&name, &cx).await.unwrap_or_else(|_| panic!("a free place"));
        {
            let mut gone = pin!(admission.place(&name, &cx));
            assert!(poll!(&mut gone).is_pending());
        }
        let mut second = pin!(admission.place(&name, &cx));
        assert!(poll!(&mut second).is_pending());
        drop(place);
        assert!(second.await.is_ok());
        assert_eq!(admission.counts(), (0, 0));
    }
}
