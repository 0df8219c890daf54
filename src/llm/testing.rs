//! A clock by hand, for the tests of this room.
#![allow(clippy::unwrap_used)]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use segue_engine::time::Timestamp;
use tokio::sync::watch;

use crate::{
    clock::{Clock, Deadline},
    cx::Cx,
};

/// Time that moves only when told, or, with [`ManualClock::jumping`], to the deadline of whoever sleeps.
pub(crate) struct ManualClock {
    now: watch::Sender<Duration>,
    jumps: bool,
    /// Every wait that was begun, as its length.
    pub(crate) slept: Mutex<Vec<Duration>>,
}

impl ManualClock {
    /// Time that moves only when told.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { now: watch::Sender::new(Duration::ZERO), jumps: false, slept: Mutex::default() })
    }
    /// Time that jumps to the end of every wait: a sleeper never waits.
    pub(crate) fn jumping() -> Arc<Self> {
        Arc::new(Self { now: watch::Sender::new(Duration::ZERO), jumps: true, slept: Mutex::default() })
    }
    pub(crate) fn advance(&self, by: Duration) {
        self.now.send_modify(|now| *now += by);
    }
    pub(crate) fn cx(self: &Arc<Self>, limit: Duration) -> Cx {
        Cx::new(self.clone(), limit)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.elapsed().as_micros().try_into().unwrap())
    }
    fn elapsed(&self) -> Duration {
        *self.now.borrow()
    }
    fn sleep(&self, until: Deadline) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.slept.lock().unwrap().push(until.0.saturating_sub(self.elapsed()));
            if self.jumps {
                self.now.send_modify(|now| *now = (*now).max(until.0));
            }
            let _ = self.now.subscribe().wait_for(|now| *now >= until.0).await;
        })
    }
}
