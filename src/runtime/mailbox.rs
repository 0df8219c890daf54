//! One conversation, one turn at a time. Messages of a conversation wait in the order in which they were accepted; other
//! conversations do not notice.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use segue_engine::{conversation::Conversation, ids::ConversationId};

use super::bodies::Known;
use crate::{limits, store::Version};

/// The place of one conversation in this process.
pub(super) struct Cell {
    /// Held while a message is accepted and takes its place in the queue, so that both have the same order.
    pub(super) door: tokio::sync::Mutex<()>,
    /// Held during a turn; tokio's mutex is fair, so it is the queue as well. Inside: the conversation, while it is cached.
    pub(super) turn: Arc<tokio::sync::Mutex<Option<Box<Cached>>>>,
    /// Places of the queue.
    pub(super) places: Arc<tokio::sync::Semaphore>,
    /// Counts how often the conversation was erased: a message that was accepted before belongs to no conversation any more.
    pub(super) epoch: AtomicU64,
    /// A message may be stored of which this process knows nothing: what is cached counts no more.
    pub(super) stale: AtomicBool,
    /// It was asked for again since it was last looked at as one that may go.
    again: AtomicBool,
}

/// A conversation as the last turn left it. Always in a box: it is handed on several times in a turn.
pub(super) struct Cached {
    /// The conversation.
    pub(super) conversation: Conversation,
    /// The version it has in the store.
    pub(super) version: Version,
    /// Texts that are stored with it.
    pub(super) bodies: Known,
    /// Whether replies may wait in the outbox.
    pub(super) waits: bool,
}

impl Cached {
    /// A conversation of which nothing is stored.
    pub(super) fn new(id: ConversationId) -> Box<Self> {
        Box::new(Self {
            conversation: Conversation::new(id),
            version: Version::default(),
            bodies: Known::default(),
            waits: false,
        })
    }
}

impl Default for Cell {
    fn default() -> Self {
        Self {
            door: tokio::sync::Mutex::default(),
            turn: Arc::default(),
            places: Arc::new(tokio::sync::Semaphore::new(limits::MAILBOX)),
            epoch: AtomicU64::new(0),
            stale: AtomicBool::new(false),
            again: AtomicBool::new(false),
        }
    }
}

/// The conversations that this process has at hand; at most [`limits::CACHED_CONVERSATIONS`] that are idle.
#[derive(Default)]
pub(super) struct Mailboxes(Mutex<Held>);

#[derive(Default)]
struct Held {
    cells: HashMap<ConversationId, Arc<Cell>>,
    /// In the order of arrival; the oldest idle one goes first. One that spoke again goes to the end instead, once for each look.
    order: VecDeque<ConversationId>,
}

impl Mailboxes {
    /// The place of a conversation.
    pub(super) fn cell(&self, id: &ConversationId) -> Arc<Cell> {
        let mut held = self.lock();
        if let Some(cell) = held.cells.get(id) {
            cell.again.store(true, Ordering::Relaxed);
            return cell.clone();
        }
        let cell = Arc::<Cell>::default();
        held.cells.insert(id.clone(), cell.clone());
        held.order.push_back(id.clone());
        held.evict();
        cell
    }
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn evict(&mut self) {
        // One that spoke again is passed over once for each time it spoke. Of busy ones only a few are looked at, so that a new
        // conversation costs the same however many are busy; those behind them are looked at when the next one comes.
        let mut busy = limits::MAILBOX_LOOKS;
        while self.order.len() > limits::CACHED_CONVERSATIONS && busy > 0 {
            let Some(id) = self.order.pop_front() else { return };
            match self.cells.get(&id) {
                Some(cell) if Arc::strong_count(cell) > 1 => {
                    busy -= 1;
                    self.order.push_back(id);
                }
                Some(cell) if cell.again.swap(false, Ordering::Relaxed) => self.order.push_back(id),
                // Only the map holds it: nobody waits and nothing runs.
                Some(_) => {
                    self.cells.remove(&id);
                }
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_conversations_beyond_the_limit_are_let_go_and_busy_ones_are_not() {
        let mailboxes = Mailboxes::default();
        let busy = mailboxes.cell(&"busy".into());
        let friend = Arc::downgrade(&mailboxes.cell(&"old friend".into()));
        for n in 0..2 * limits::CACHED_CONVERSATIONS {
            if n % 100 == 0 {
                drop(mailboxes.cell(&"old friend".into()));
            }
            mailboxes.cell(&format!("c{n}").as_str().into());
        }
        let held = mailboxes.lock();
        assert_eq!((held.cells.len(), held.order.len()), (limits::CACHED_CONVERSATIONS, limits::CACHED_CONVERSATIONS));
        assert!(held.cells.get("busy").is_some_and(|cell| Arc::ptr_eq(cell, &busy)));
        assert!(!held.cells.contains_key("c0"), "the oldest idle one went first");
        assert_eq!(friend.strong_count(), 1, "who speaks again and again stays");
    }

    #[test]
    fn many_busy_conversations_cost_a_new_one_no_more_than_few() {
        let mailboxes = Mailboxes::default();
        let busy: Vec<_> = (0..2 * limits::CACHED_CONVERSATIONS)
            .map(|n| mailboxes.cell(&format!("busy{n}").as_str().into()))
            .collect();
        let first = |mailboxes: &Mailboxes| mailboxes.lock().order.front().cloned();
        let before = first(&mailboxes);
        drop(mailboxes.cell(&"new".into()));
        let looked = mailboxes.lock().order.iter().rev().position(|id| Some(id) == before.as_ref());
        assert_eq!(looked, Some(limits::MAILBOX_LOOKS - 1), "so many were put behind the new one");
        // Once they are idle, those that come let them go.
        drop(busy);
        for n in 0..2 * limits::CACHED_CONVERSATIONS {
            drop(mailboxes.cell(&format!("c{n}").as_str().into()));
        }
        assert_eq!(mailboxes.lock().cells.len(), limits::CACHED_CONVERSATIONS);
    }

    #[test]
    fn conversations_that_all_spoke_again_do_not_stay_for_that() {
        let mailboxes = Mailboxes::default();
        for _ in 0..2 {
            for n in 0..limits::CACHED_CONVERSATIONS {
                drop(mailboxes.cell(&format!("c{n}").as_str().into()));
            }
        }
        drop(mailboxes.cell(&"new".into()));
        let held = mailboxes.lock();
        assert_eq!(held.cells.len(), limits::CACHED_CONVERSATIONS);
        assert!(held.cells.contains_key("new") && !held.cells.contains_key("c0"));
    }
}
