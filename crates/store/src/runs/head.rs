//! The rules of runs and units, without their storage: what can be claimed, and what a change does to a status. All stores use them.

use std::{sync::Arc, time::Duration};

use segue_base::limits;
use segue_engine::{ids::RunId, time::Timestamp};

use super::{
    ClaimRequest, LimitReached, LimitScope, RunBatch, RunLimits, RunStatus, RunStoreError, Signal, SignalOutcome,
    StopRequest, UnitBatch, UnitStatus, UnitTransition,
};

/// The changing part of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunHead {
    pub(crate) status: RunStatus,
    pub(crate) stop: Option<StopRequest>,
    pub(crate) last_seq: u64,
    pub(crate) last_message: u64,
    /// How many units it has.
    pub(crate) units: u64,
    pub(crate) updated_at: Timestamp,
    pub(crate) ended_at: Option<Timestamp>,
}

impl RunHead {
    pub(crate) fn new(queued: bool, at: Timestamp) -> Self {
        let status = if queued { RunStatus::Queued } else { RunStatus::Running };
        Self { status, stop: None, last_seq: 0, last_message: 0, units: 0, updated_at: at, ended_at: None }
    }

    /// Whether its units can be claimed.
    fn is_claimable(&self) -> bool {
        !self.status.is_ended() && (self.status != RunStatus::Queued || self.stop.is_some())
    }

    pub(crate) fn set_status(&mut self, status: RunStatus, at: Timestamp) {
        self.status = status;
        self.ended_at = status.is_ended().then_some(at);
    }

    /// Checks that a change that no unit makes fits the status.
    pub(crate) fn check_change(&self, batch: &RunBatch) -> Result<(), RunStoreError> {
        let run = &batch.run;
        let wrong = |reason| Err(RunStoreError::WrongStatus { run: run.clone(), status: self.status, reason });
        match (self.status.is_ended(), batch.resume) {
            (true, true) if self.status == RunStatus::Cancelled => return wrong("to cancel a run ends it for good"),
            (true, true) if !self.status.is_resumable() => return wrong("it is complete and cannot be resumed"),
            // What could be resumed can still be ended for good.
            (true, false) if batch.status == Some(RunStatus::Cancelled) && self.status.is_resumable() => {}
            (true, false) => return wrong("it has ended and cannot be changed; resume it first"),
            (false, true) => return wrong("it has not ended and cannot be resumed"),
            _ => {}
        }
        self.check_after(run, batch.after)
    }

    /// Checks that the last event is the one that the caller expects, if it expects one.
    pub(crate) fn check_after(&self, run: &RunId, after: Option<u64>) -> Result<(), RunStoreError> {
        match after {
            Some(expected) if expected != self.last_seq => {
                Err(RunStoreError::Conflict { run: run.clone(), expected, found: self.last_seq })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn resume(&mut self) {
        (self.status, self.stop, self.ended_at) = (RunStatus::Running, None, None);
    }

    /// Stores a request to stop. The outcome is an error if the run has ended.
    pub(crate) fn request_stop(&mut self, signal: &Signal) {
        let request = match signal {
            Signal::Cancel => StopRequest::Cancel,
            Signal::Stop => StopRequest::Stop,
            Signal::Message { .. } => return,
        };
        self.stop = self.stop.max(Some(request));
    }

    /// The outcome of a signal to a run that has ended.
    pub(crate) fn refuse_signal(&self) -> Option<SignalOutcome> {
        self.status.is_ended().then_some(SignalOutcome::Ended(self.status))
    }
}

impl RunStatus {
    /// Whether a run of this status counts for [`RunLimits`].
    pub(crate) fn counts_for_limits(self) -> bool {
        matches!(self, Self::Running | Self::Waiting)
    }
}

impl RunLimits {
    /// The limit that is reached, if one is. `count` returns how many other runs count; it is called only for limits that are set.
    pub(crate) fn reached<E>(
        self,
        mut count: impl FnMut(LimitScope) -> Result<u64, E>,
    ) -> Result<Option<LimitReached>, E> {
        for (scope, limit) in [(LimitScope::Mission, self.mission), (LimitScope::Group, self.group)] {
            let Some(limit) = limit else { continue };
            let running = count(scope)?;
            if running >= u64::from(limit) {
                return Ok(Some(LimitReached { scope, running, limit }));
            }
        }
        Ok(None)
    }
}

/// The changing part of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnitHead {
    pub(crate) status: UnitStatus,
    pub(crate) epoch: u64,
    pub(crate) owner: Option<Arc<str>>,
    pub(crate) lease_until: Option<Timestamp>,
    pub(crate) wake_at: Option<Timestamp>,
    /// Whether it was answered or sent something since it was claimed.
    pub(crate) notified: bool,
    /// Since when it is ready.
    pub(crate) ready_since: Timestamp,
    pub(crate) messages_seen: u64,
    pub(crate) updated_at: Timestamp,
}

/// From when a unit can be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// The place in the order of claims.
    pub(crate) at: Timestamp,
    /// Whether it must not be claimed earlier. A unit that is simply ready can be claimed even if the clock was set back.
    pub(crate) timed: bool,
}

impl Due {
    pub(crate) fn is_over(self, now: Timestamp) -> bool {
        !self.timed || self.at <= now
    }
}

impl UnitHead {
    /// A new unit of `run`.
    pub(crate) fn new(run: &RunHead, wake_at: Option<Timestamp>, at: Timestamp) -> Self {
        Self {
            status: UnitStatus::Ready,
            epoch: 0,
            owner: None,
            lease_until: None,
            wake_at,
            notified: false,
            ready_since: at,
            messages_seen: run.last_message,
            updated_at: at,
        }
    }

    /// From when it can be claimed, if ever.
    pub(crate) fn due(&self, run: &RunHead) -> Option<Due> {
        if !run.is_claimable() {
            return None;
        }
        let timed = |at| Due { at, timed: true };
        match self.status {
            UnitStatus::Ready => Some(self.wake_at.map_or(Due { at: self.ready_since, timed: false }, timed)),
            UnitStatus::Waiting => self.wake_at.map(timed),
            UnitStatus::Claimed => self.lease_until.map(timed),
            UnitStatus::Completed | UnitStatus::Failed | UnitStatus::Cancelled => None,
        }
    }

    pub(crate) fn claim(&mut self, owner: &Arc<str>, now: Timestamp, until: Timestamp) {
        self.enter(UnitStatus::Claimed, None, now);
        self.epoch += 1;
        (self.owner, self.lease_until, self.notified) = (Some(owner.clone()), Some(until), false);
    }

    /// Whether the owner with this epoch holds it.
    pub(crate) fn is_held(&self, run: &RunHead, epoch: u64) -> bool {
        self.status == UnitStatus::Claimed && self.epoch == epoch && !run.status.is_ended()
    }

    /// Whether another process may take it before its lease is over: its owner has ended, or the lease cannot be true.
    pub(crate) fn is_abandoned(&self, request: &ClaimRequest) -> bool {
        let (Some(owner), Some(until)) = (&self.owner, self.lease_until) else { return false };
        let is_held = lease_holds(until, request.now, request.lease) && !request.gone.contains(owner);
        self.status == UnitStatus::Claimed && *owner != request.owner && until > request.now && !is_held
    }

    fn enter(&mut self, status: UnitStatus, wake_at: Option<Timestamp>, at: Timestamp) {
        (self.status, self.wake_at, self.updated_at) = (status, wake_at, at);
        (self.owner, self.lease_until) = (None, None);
        if status == UnitStatus::Ready {
            self.ready_since = at;
        }
    }

    /// Takes the progress of its owner. `settled` says that a question of the batch needs no answer any more; `last_message` is the
    /// number of the last message to the run.
    pub(crate) fn apply(&mut self, batch: &UnitBatch, settled: bool, last_message: u64) {
        let at = batch.at;
        self.notified |= settled;
        self.messages_seen = self.messages_seen.max(batch.messages_seen.unwrap_or(0).min(last_message));
        match batch.transition {
            UnitTransition::Hold => self.updated_at = at,
            UnitTransition::Ready { wake_at } => self.enter(UnitStatus::Ready, wake_at, at),
            UnitTransition::Waiting { .. } if self.notified => self.enter(UnitStatus::Ready, None, at),
            UnitTransition::Waiting { wake_at } => self.enter(UnitStatus::Waiting, wake_at, at),
            UnitTransition::Completed => self.enter(UnitStatus::Completed, None, at),
            UnitTransition::Failed => self.enter(UnitStatus::Failed, None, at),
            UnitTransition::Cancelled => self.enter(UnitStatus::Cancelled, None, at),
        }
    }

    /// Wakes it; `again` also makes one ready that has failed or was cancelled.
    pub(crate) fn wake(&mut self, again: bool, at: Timestamp) {
        match self.status {
            UnitStatus::Claimed => self.notified = true,
            UnitStatus::Ready if self.wake_at.is_none() => {}
            UnitStatus::Ready | UnitStatus::Waiting => self.enter(UnitStatus::Ready, None, at),
            UnitStatus::Failed | UnitStatus::Cancelled if again => self.enter(UnitStatus::Ready, None, at),
            UnitStatus::Completed | UnitStatus::Failed | UnitStatus::Cancelled => {}
        }
    }

    /// Cancels it unless it has ended.
    pub(crate) fn cancel(&mut self, at: Timestamp) {
        if !self.status.is_ended() {
            self.enter(UnitStatus::Cancelled, None, at);
        }
    }

    /// Takes it from its owner because the run has ended.
    pub(crate) fn revoke(&mut self, at: Timestamp) {
        if self.status == UnitStatus::Claimed {
            self.enter(UnitStatus::Ready, None, at);
        }
    }

    pub(crate) fn release(&mut self, at: Timestamp) {
        self.enter(UnitStatus::Ready, None, at);
    }
}

/// Whether a lease that ends at this time is in force. One that ends later than a lease can last comes from a wrong clock and is not
/// believed; small differences between clocks are allowed for.
pub fn lease_holds(until: Timestamp, now: Timestamp, lease: Duration) -> bool {
    until > now && until <= longest_lease(now, lease)
}

/// The latest end of a lease that is believed now.
pub(crate) fn longest_lease(now: Timestamp, lease: Duration) -> Timestamp {
    lease_end(now, lease.saturating_add(limits::LEASE_CLOCK_LEEWAY))
}

/// When a lease ends that begins now.
pub(crate) fn lease_end(now: Timestamp, lease: Duration) -> Timestamp {
    let lease = i64::try_from(lease.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(now.as_micros().saturating_add(lease))
}
