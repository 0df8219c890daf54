//! The requests whose turns run, and what becomes of them when their clients end them.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use segue_engine::ids::ConversationId;
use tokio_util::sync::CancellationToken;

use crate::{conversation::WriteGate, limits};

/// The newest request of each conversation, until its turn has ended.
#[derive(Clone, Default)]
pub(super) struct RunningRequests(Arc<Mutex<HashMap<ConversationId, Arc<RunningRequest>>>>);

/// A request whose turn runs or waits.
pub(super) struct RunningRequest {
    pub(super) gate: Arc<WriteGate>,
    /// Interrupts the turn.
    pub(super) cancel: CancellationToken,
    /// Whether the client ended the request before its response was complete.
    was_ended: AtomicBool,
    /// Cancelled when the turn has ended.
    turn_ended: CancellationToken,
}

impl RunningRequest {
    pub(super) fn new(gate: WriteGate) -> Self {
        let (cancel, turn_ended) = (CancellationToken::new(), CancellationToken::new());
        Self { gate: Arc::new(gate), cancel, was_ended: AtomicBool::new(false), turn_ended }
    }
    fn was_ended(&self) -> bool {
        self.was_ended.load(Ordering::SeqCst)
    }
}

impl RunningRequests {
    fn all(&self) -> MutexGuard<'_, HashMap<ConversationId, Arc<RunningRequest>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a request as the newest one of its conversation.
    pub(super) fn enter(&self, id: &ConversationId, request: &Arc<RunningRequest>) {
        let mut all = self.all();
        if all.len() >= limits::ENDED_REQUESTS {
            all.retain(|_, request| !request.turn_ended.is_cancelled());
        }
        if all.len() < limits::ENDED_REQUESTS || all.contains_key(id) {
            all.insert(id.clone(), request.clone());
        }
    }

    /// The turn of a request has ended.
    pub(super) fn turn_ended(&self, id: &ConversationId, request: &Arc<RunningRequest>) {
        request.turn_ended.cancel();
        let mut all = self.all();
        // What became of a request that its client ended is known to the next one.
        if !request.was_ended() && all.get(id).is_some_and(|listed| Arc::ptr_eq(listed, request)) {
            all.remove(id);
        }
    }

    /// Whether the newest request of a conversation was ended by its client before it had done anything: then its message counts as not
    /// sent. Waits for its turn, which ends at its next safe point.
    pub(super) async fn newest_did_nothing(&self, id: &ConversationId) -> bool {
        let newest = self.all().get(id).filter(|request| request.was_ended()).cloned();
        let Some(newest) = newest else { return false };
        newest.turn_ended.cancelled().await;
        !newest.gate.has_passed()
    }
}

/// Ends a request when it is dropped before its response is complete: the client has hung up. No write begins then that has not begun, and
/// the turn ends at its next safe point.
pub(super) struct HangUp(Option<Arc<RunningRequest>>);

impl HangUp {
    pub(super) fn new(request: Arc<RunningRequest>) -> Self {
        Self(Some(request))
    }
    /// The response is complete.
    pub(super) fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for HangUp {
    fn drop(&mut self) {
        if let Some(request) = self.0.take() {
            request.was_ended.store(true, Ordering::SeqCst);
            request.gate.close();
            request.cancel.cancel();
        }
    }
}
