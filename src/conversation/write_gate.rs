//! The write gate of a turn: it holds writes back until the user's request counts as confirmed.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use crate::clock::Clock;

/// Holds the writes of a turn back, for a client that sends requests before its user has finished and ends those that were
/// premature, as voice stacks do. The gate opens when the request has stayed open for a time, and is closed if the client
/// ends it before. Through a closed gate no write ever passes: the turn is interrupted at its first one. Everything else runs at once.
pub struct WriteGate {
    clock: Arc<dyn Clock>,
    /// When the gate opens by itself, on the monotonic clock.
    opens_at: Duration,
    state: Mutex<State>,
    changed: Notify,
    has_passed: AtomicBool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Open,
    Closed,
}

impl WriteGate {
    /// A gate that opens after `hold`, if it is not closed before.
    pub fn new(clock: Arc<dyn Clock>, hold: Duration) -> Self {
        let opens_at = clock.elapsed().saturating_add(hold);
        Self {
            clock,
            opens_at,
            state: Mutex::new(State::Waiting),
            changed: Notify::new(),
            has_passed: AtomicBool::new(false),
        }
    }

    /// A closed gate, for a turn whose client is gone.
    pub fn closed(clock: Arc<dyn Clock>) -> Self {
        let gate = Self::new(clock, Duration::MAX);
        gate.close();
        gate
    }

    /// Opens the gate now: the request is confirmed. Without effect on a closed gate.
    pub fn open(&self) {
        self.decide(State::Open);
    }

    /// Closes the gate: the client has ended its request. Without effect on a gate that is open.
    pub fn close(&self) {
        self.decide(State::Closed);
    }

    /// Whether the gate is closed.
    pub fn is_closed(&self) -> bool {
        *self.state() == State::Closed
    }

    /// Whether the gate is open.
    pub fn is_open(&self) -> bool {
        self.decide(State::Waiting) == State::Open
    }

    /// Whether a write has passed.
    pub fn has_passed(&self) -> bool {
        self.has_passed.load(Ordering::SeqCst)
    }

    /// Waits until the gate is open or closed; returns whether it is open. *Cancellation*: nothing changes.
    pub async fn pass(&self) -> bool {
        loop {
            let changed = self.changed.notified();
            match self.decide(State::Waiting) {
                State::Open => {
                    self.has_passed.store(true, Ordering::SeqCst);
                    return true;
                }
                State::Closed => return false,
                State::Waiting => {}
            }
            let left = self.opens_at.saturating_sub(self.clock.elapsed());
            tokio::select! {
                () = changed => {}
                () = self.clock.sleep(self.clock.deadline(left)) => {}
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, after `wanted` if it is still undecided. A request that has stayed open long enough is confirmed,
    /// even if nobody has waited for it.
    fn decide(&self, wanted: State) -> State {
        let mut state = self.state();
        if *state == State::Waiting {
            *state = if self.clock.elapsed() >= self.opens_at { State::Open } else { wanted };
            if *state != State::Waiting {
                self.changed.notify_waiters();
            }
        }
        *state
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::{FutureExt, poll};

    use super::*;
    use crate::testing::ManualClock;

    const HOLD: Duration = Duration::from_secs(3);

    fn gate() -> (Arc<ManualClock>, WriteGate) {
        let clock = Arc::new(ManualClock::new());
        (clock.clone(), WriteGate::new(clock, HOLD))
    }

    #[tokio::test]
    async fn it_opens_when_the_request_has_stayed_open_long_enough() {
        let (clock, gate) = gate();
        let mut passing = Box::pin(gate.pass());
        assert!(poll!(&mut passing).is_pending());
        clock.advance(HOLD);
        assert!(passing.await);
        gate.close();
        assert!(gate.pass().now_or_never().unwrap(), "a write that has begun is not taken back");
    }

    #[tokio::test]
    async fn nothing_passes_once_the_client_has_gone_before_it_opened() {
        let (clock, gate) = gate();
        let mut passing = Box::pin(gate.pass());
        assert!(poll!(&mut passing).is_pending());
        gate.close();
        assert!(!passing.await);
        clock.advance(HOLD);
        gate.open();
        assert!(!gate.pass().now_or_never().unwrap());
    }

    #[tokio::test]
    async fn a_client_that_goes_after_the_hold_is_too_late_even_if_nobody_waited() {
        let (clock, gate) = gate();
        clock.advance(HOLD);
        gate.close();
        assert!(!gate.is_closed());
        assert!(gate.pass().now_or_never().unwrap());
    }

    #[tokio::test]
    async fn a_confirmed_request_does_not_wait() {
        let (_, gate) = gate();
        gate.open();
        assert!(gate.pass().now_or_never().unwrap());
    }
}
