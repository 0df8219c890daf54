//! Deduplication of messages: which messages are the same, and for how long a message is remembered.

use std::{sync::Arc, time::Duration};

use segue_base::limits;
use segue_engine::{
    conversation::{Event, EventKind, UserMessage},
    ids::{ConversationId, MessageId},
    time::Timestamp,
};
use serde_json::Map;

use super::InboxMessage;
#[cfg(feature = "sqlite")]
use super::checksum::Checksum;

/// The deduplication key within a conversation; `None` for a message without an id.
///
/// It contains the lengths of tenant, channel and account, so that no two different messages share a key.
pub(super) fn dedup_key(inbound: &InboxMessage) -> Option<String> {
    let id = inbound.message.message_id.as_str();
    (!id.is_empty()).then(|| {
        let (tenant, channel, account) = (&inbound.tenant, &inbound.message.input_channel, &inbound.account);
        format!("{}.{}.{}:{tenant}{channel}{account}{id}", tenant.len(), channel.len(), account.len())
    })
}

/// A hash of [`dedup_key`] for a quick lookup; never 0. Different messages may share a hash, so a caller must compare
/// the keys too.
#[cfg(feature = "sqlite")]
pub(super) fn dedup_hash(key: &str) -> u64 {
    Checksum::new(key).number(0).text("").finish().max(1)
}

/// Whether a message accepted `earlier` is too old at `now` to count as a duplicate.
pub(super) fn is_past_dedup_window(earlier: Timestamp, now: Timestamp) -> bool {
    is_older(limits::DEDUP_WINDOW, earlier, now)
}

/// Whether a record of the time `earlier` is past its retention at `now`.
pub(super) fn is_expired(earlier: Timestamp, now: Timestamp) -> bool {
    is_older(limits::JOURNAL_RETENTION, earlier, now)
}

fn is_older(age: Duration, earlier: Timestamp, now: Timestamp) -> bool {
    i128::from(now.since(earlier)) > age.as_micros() as i128
}

/// The message of a turn reconstructed from its events, for turns whose inbox row is past its retention.
pub(super) fn from_events(conversation: &ConversationId, events: &[Event]) -> InboxMessage {
    let user = events.iter().find_map(|event| match &event.kind {
        EventKind::User(message) => Some((message.clone(), event.at)),
        _ => None,
    });
    let at = events.first().map(|event| event.at).unwrap_or_default();
    let (message, at) = user.unwrap_or_else(|| {
        let none: Arc<str> = "".into();
        let message_id = MessageId::from("");
        (
            UserMessage {
                via: "".into(),
                holds_writes: false,
                before_question: false,
                text: none.clone(),
                message_id,
                input_channel: none,
                metadata: Map::new(),
            },
            at,
        )
    });
    InboxMessage { tenant: "".into(), account: "".into(), conversation: conversation.clone(), message, at, seed: 0 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

    use super::*;

    fn inbound(tenant: &str, channel: &str, account: &str, id: &str) -> InboxMessage {
        InboxMessage {
            tenant: tenant.into(),
            account: account.into(),
            conversation: "c".into(),
            message: UserMessage {
                via: "".into(),
                holds_writes: false,
                before_question: false,
                text: "hi \"there\"".into(),
                message_id: id.into(),
                input_channel: channel.into(),
                metadata: Map::new(),
            },
            at: Timestamp::from_micros(7),
            seed: u64::MAX,
        }
    }

    #[test]
    fn dedup_keys_differ_when_any_part_differs() {
        let parts = [
            ("a", "b", "c", "d"),
            ("ab", "", "c", "d"),
            ("a", "bc", "", "d"),
            ("a", "b", "", "cd"),
            ("", "", "", "abcd"),
        ];
        let keys: Vec<_> = parts.iter().map(|(t, c, a, id)| dedup_key(&inbound(t, c, a, id)).unwrap()).collect();
        for key in &keys {
            assert_eq!(keys.iter().filter(|other| *other == key).count(), 1, "{key}");
        }
        assert_eq!(dedup_key(&inbound("a", "b", "c", "")), None);
    }
}
