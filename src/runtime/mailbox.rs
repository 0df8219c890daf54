//! Mailboxes: each conversation runs one turn at a time, and its messages wait in the order in which they were accepted.

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

/// The mailbox of one conversation in this process.
pub(super) struct Mailbox {
    /// Locked while a message is stored and enters the queue of `turn_lock`, so that both have the same order.
    pub(super) accept_lock: tokio::sync::Mutex<()>,
    /// Locked during a turn. Tokio's mutex is fair, so it is also the queue. It contains the conversation while it is cached.
    pub(super) turn_lock: Arc<tokio::sync::Mutex<Option<Box<CachedConversation>>>>,
    /// Limits the messages that are accepted and not answered.
    pub(super) capacity: Arc<tokio::sync::Semaphore>,
    /// Counts the erasures of the conversation: a message that was accepted in an earlier epoch is dropped.
    pub(super) epoch: AtomicU64,
    /// The cached conversation is out of date: a message may be stored that this process does not know.
    pub(super) is_stale: AtomicBool,
    /// Used since the last scan for eviction.
    recently_used: AtomicBool,
}

/// A conversation after its last turn. Boxed, because it is moved several times in a turn.
pub(super) struct CachedConversation {
    /// The conversation.
    pub(super) conversation: Conversation,
    /// Its version in the store.
    pub(super) version: Version,
    /// Hashes of texts that are stored with it.
    pub(super) known_texts: KnownTexts,
    /// Whether replies may be undelivered.
    pub(super) may_have_pending_replies: bool,
}

impl CachedConversation {
    /// A conversation without stored events.
    pub(super) fn new(id: ConversationId) -> Box<Self> {
        Box::new(Self {
            conversation: Conversation::new(id),
            version: Version::default(),
            known_texts: KnownTexts::default(),
            may_have_pending_replies: false,
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
            is_stale: AtomicBool::new(false),
            recently_used: AtomicBool::new(false),
        }
    }
}

/// The mailboxes of this process; at most [`limits::CACHED_CONVERSATIONS`] of them are idle.
#[derive(Default)]
pub(super) struct Mailboxes(Mutex<MailboxTable>);

#[derive(Default)]
struct MailboxTable {
    mailboxes: HashMap<ConversationId, Arc<Mailbox>>,
    /// Oldest first; the oldest idle one is evicted. A recently used one moves to the end once instead.
    eviction_order: VecDeque<ConversationId>,
}

impl Mailboxes {
    /// The mailbox of a conversation.
    pub(super) fn get_or_create(&self, id: &ConversationId) -> Arc<Mailbox> {
        let mut table = self.lock();
        if let Some(mailbox) = table.mailboxes.get(id) {
            mailbox.recently_used.store(true, Ordering::Relaxed);
            return mailbox.clone();
        }
        let mailbox = Arc::<Mailbox>::default();
        table.mailboxes.insert(id.clone(), mailbox.clone());
        table.eviction_order.push_back(id.clone());
        table.evict();
        mailbox
    }
    fn lock(&self) -> MutexGuard<'_, MailboxTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MailboxTable {
    fn evict(&mut self) {
        // Second chance: a recently used mailbox is skipped once. Only a few busy ones are skipped in one call, so that the cost of
        // a new conversation does not depend on how many are busy.
        let mut busy = limits::MAILBOX_EVICTION_SCAN;
        while self.eviction_order.len() > limits::CACHED_CONVERSATIONS && busy > 0 {
            let Some(id) = self.eviction_order.pop_front() else { return };
            match self.mailboxes.get(&id) {
                Some(mailbox) if Arc::strong_count(mailbox) > 1 => {
                    busy -= 1;
                    self.eviction_order.push_back(id);
                }
                Some(mailbox) if mailbox.recently_used.swap(false, Ordering::Relaxed) => {
                    self.eviction_order.push_back(id)
                }
                // Only the map holds it: no message waits and no turn runs.
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
    fn idle_conversations_above_the_limit_are_evicted_and_busy_ones_are_not() {
        let mailboxes = Mailboxes::default();
        let busy = mailboxes.get_or_create(&"busy".into());
        let recent = Arc::downgrade(&mailboxes.get_or_create(&"recent".into()));
        for n in 0..2 * limits::CACHED_CONVERSATIONS {
            if n % 100 == 0 {
                drop(mailboxes.get_or_create(&"recent".into()));
            }
            mailboxes.get_or_create(&format!("c{n}").as_str().into());
        }
        let table = mailboxes.lock();
        assert_eq!(
            (table.mailboxes.len(), table.eviction_order.len()),
            (limits::CACHED_CONVERSATIONS, limits::CACHED_CONVERSATIONS)
        );
        assert!(table.mailboxes.get("busy").is_some_and(|mailbox| Arc::ptr_eq(mailbox, &busy)));
        assert!(!table.mailboxes.contains_key("c0"), "the oldest idle one is evicted first");
        assert_eq!(recent.strong_count(), 1, "a recently used one stays");
    }

    #[test]
    fn a_new_conversation_skips_a_limited_number_of_busy_ones() {
        let mailboxes = Mailboxes::default();
        let busy: Vec<_> = (0..2 * limits::CACHED_CONVERSATIONS)
            .map(|n| mailboxes.get_or_create(&format!("busy{n}").as_str().into()))
            .collect();
        let first = |mailboxes: &Mailboxes| mailboxes.lock().eviction_order.front().cloned();
        let before = first(&mailboxes);
        drop(mailboxes.get_or_create(&"new".into()));
        let moved = mailboxes.lock().eviction_order.iter().rev().position(|id| Some(id) == before.as_ref());
        assert_eq!(moved, Some(limits::MAILBOX_EVICTION_SCAN - 1), "only these were moved behind the new one");
        // Once they are idle, new conversations evict them.
        drop(busy);
        for n in 0..2 * limits::CACHED_CONVERSATIONS {
            drop(mailboxes.get_or_create(&format!("c{n}").as_str().into()));
        }
        assert_eq!(mailboxes.lock().mailboxes.len(), limits::CACHED_CONVERSATIONS);
    }

    #[test]
    fn recently_used_conversations_are_skipped_only_once() {
        let mailboxes = Mailboxes::default();
        for _ in 0..2 {
            for n in 0..limits::CACHED_CONVERSATIONS {
                drop(mailboxes.get_or_create(&format!("c{n}").as_str().into()));
            }
        }
        drop(mailboxes.get_or_create(&"new".into()));
        let table = mailboxes.lock();
        assert_eq!(table.mailboxes.len(), limits::CACHED_CONVERSATIONS);
        assert!(table.mailboxes.contains_key("new") && !table.mailboxes.contains_key("c0"));
    }
}
