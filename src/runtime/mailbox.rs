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

use super::turn::KnownTexts;
use crate::{limits, store::Version};

/// The place of one conversation in this process.
pub(super) struct Mailbox {
    /// Held while a message is accepted and takes its place in the queue, so that both have the same order.
    pub(super) accept_lock: tokio::sync::Mutex<()>,
    /// Held during a turn; tokio's mutex is fair, so it is the queue as well. Inside: the conversation, while it is cached.
    pub(super) turn_lock: Arc<tokio::sync::Mutex<Option<Box<CachedConversation>>>>,
    /// Places of the queue.
    pub(super) capacity: Arc<tokio::sync::Semaphore>,
    /// Counts how often the conversation was erased: a message that was accepted before belongs to no conversation any more.
    pub(super) epoch: AtomicU64,
    /// A message may be stored of which this process knows nothing: what is cached counts no more.
    pub(super) stale: AtomicBool,
    /// It was asked for again since it was last looked at as one that may go.
    recently_used: AtomicBool,
}

/// A conversation as the last turn left it. Always in a box: it is handed on several times in a turn.
pub(super) struct CachedConversation {
    /// The conversation.
    pub(super) conversation: Conversation,
    /// The version it has in the store.
    pub(super) version: Version,
    /// Texts that are stored with it.
    pub(super) texts: KnownTexts,
    /// Whether replies may wait in the outbox.
    pub(super) waits: bool,
}

impl CachedConversation {
    /// A conversation of which nothing is stored.
    pub(super) fn new(id: ConversationId) -> Box<Self> {
        Box::new(Self {
            conversation: Conversation::new(id),
            version: Version::default(),
            texts: KnownTexts::default(),
            waits: false,
        })
    }
}

impl Default for Mailbox {
    fn default() -> Self {
        Self {
            accept_lock: tokio::sync::Mutex::default(),
            turn_lock: Arc::default(),
            capacity: Arc::new(tokio::sync::Semaphore::new(limits::MAILBOX)),
            epoch: AtomicU64::new(0),
            stale: AtomicBool::new(false),
            recently_used: AtomicBool::new(false),
        }
    }
}

/// The conversations that this process has at hand; at most [`limits::CACHED_CONVERSATIONS`] that are idle.
#[derive(Default)]
pub(super) struct Mailboxes(Mutex<MailboxTable>);

#[derive(Default)]
struct MailboxTable {
    mailboxes: HashMap<ConversationId, Arc<Mailbox>>,
    /// In the order of arrival; the oldest idle one goes first. One that spoke again goes to the end instead, once for each look.
    order: VecDeque<ConversationId>,
}

impl Mailboxes {
    /// The place of a conversation.
    pub(super) fn of(&self, id: &ConversationId) -> Arc<Mailbox> {
        let mut held = self.lock();
        if let Some(mailbox) = held.mailboxes.get(id) {
            mailbox.recently_used.store(true, Ordering::Relaxed);
            return mailbox.clone();
        }
        let mailbox = Arc::<Mailbox>::default();
        held.mailboxes.insert(id.clone(), mailbox.clone());
        held.order.push_back(id.clone());
        held.evict();
        mailbox
    }
    fn lock(&self) -> MutexGuard<'_, MailboxTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MailboxTable {
    fn evict(&mut self) {
        // One that spoke again is passed over once for each time it spoke. Of busy ones only a few are looked at, so that a new
        // conversation costs the same however many are busy; those behind them are looked at when the next one comes.
        let mut busy = limits::MAILBOX_EVICTION_SCAN;
        while self.order.len() > limits::CACHED_CONVERSATIONS && busy > 0 {
            let Some(id) = self.order.pop_front() else { return };
            match self.mailboxes.get(&id) {
                Some(mailbox) if Arc::strong_count(mailbox) > 1 => {
                    busy -= 1;
                    self.order.push_back(id);
                }
                Some(mailbox) if mailbox.recently_used.swap(false, Ordering::Relaxed) => self.order.push_back(id),
                // Only the map holds it: nobody waits and nothing runs.
                Some(_) => {
                    self.mailboxes.remove(&id);
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
        let busy = mailboxes.of(&"busy".into());
        let friend = Arc::downgrade(&mailboxes.of(&"old friend".into()));
        for n in 0..2 * limits::CACHED_CONVERSATIONS {
            if n % 100 == 0 {
                drop(mailboxes.of(&"old friend".into()));
            }
            mailboxes.of(&format!("c{n}").as_str().into());
        }
        let held = mailboxes.lock();
        assert_eq!(
            (held.mailboxes.len(), held.order.len()),
            (limits::CACHED_CONVERSATIONS, limits::CACHED_CONVERSATIONS)
        );
        assert!(held.mailboxes.get("busy").is_some_and(|mailbox| Arc::ptr_eq(mailbox, &busy)));
        assert!(!held.mailboxes.contains_key("c0"), "the oldest idle one went first");
        assert_eq!(friend.strong_count(), 1, "who speaks again and again stays");
    }

    #[test]
    fn many_busy_conversations_cost_a_new_one_no_more_than_few() {
        let mailboxes = Mailboxes::default();
        let busy: Vec<_> =
            (0..2 * limits::CACHED_CONVERSATIONS).map(|n| mailboxes.of(&format!("busy{n}").as_str().into())).collect();
        let first = |mailboxes: &Mailboxes| mailboxes.lock().order.front().cloned();
        let before = first(&mailboxes);
        drop(mailboxes.of(&"new".into()));
        let looked = mailboxes.lock().order.iter().rev().position(|id| Some(id) == before.as_ref());
        assert_eq!(looked, Some(limits::MAILBOX_EVICTION_SCAN - 1), "so many were put behind the new one");
        // Once they are idle, those that come let them go.
        drop(busy);
        for n in 0..2 * limits::CACHED_CONVERSATIONS {
            drop(mailboxes.of(&format!("c{n}").as_str().into()));
        }
        assert_eq!(mailboxes.lock().mailboxes.len(), limits::CACHED_CONVERSATIONS);
    }

    #[test]
    fn conversations_that_all_spoke_again_do_not_stay_for_that() {
        let mailboxes = Mailboxes::default();
        for _ in 0..2 {
            for n in 0..limits::CACHED_CONVERSATIONS {
                drop(mailboxes.of(&format!("c{n}").as_str().into()));
            }
        }
        drop(mailboxes.of(&"new".into()));
        let held = mailboxes.lock();
        assert_eq!(held.mailboxes.len(), limits::CACHED_CONVERSATIONS);
        assert!(held.mailboxes.contains_key("new") && !held.mailboxes.contains_key("c0"));
    }
}
