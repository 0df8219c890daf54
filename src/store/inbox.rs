//! How an accepted message is kept, and what makes two messages the same.

use std::{borrow::Cow, sync::Arc, time::Duration};

use segue_engine::{
    conversation::{Event, EventKind, UserMessage, codec},
    ids::{ConversationId, MessageId},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::{Inbound, StoreError};
use crate::limits;

/// The key against duplicates within a conversation; `None` for a message without an id.
///
/// Tenant, channel and account are in it with their lengths, so that no two different messages share a key.
pub(super) fn duplicate_key(inbound: &Inbound) -> Option<String> {
    let id = inbound.message.message_id.as_str();
    (!id.is_empty()).then(|| {
        let (tenant, channel, account) = (&inbound.tenant, &inbound.message.input_channel, &inbound.account);
        format!("{}.{}.{}:{tenant}{channel}{account}{id}", tenant.len(), channel.len(), account.len())
    })
}

/// A hash of [`duplicate_key`], by which a store finds a message quickly; never 0. Different messages may share one, so
/// whoever finds a message compares the keys.
pub(super) fn mark(key: &str) -> u64 {
    codec::checksum(key, 0, &[]).max(1)
}

/// Whether a message that came `earlier` is no longer remembered as the same as one that comes `now`.
pub(super) fn is_forgotten(earlier: Timestamp, now: Timestamp) -> bool {
    is_older(limits::DUPLICATE_MEMORY, earlier, now)
}

/// Whether what was recorded `earlier` is past its retention `now`.
pub(super) fn is_expired(earlier: Timestamp, now: Timestamp) -> bool {
    is_older(limits::JOURNAL_RETENTION, earlier, now)
}

fn is_older(age: Duration, earlier: Timestamp, now: Timestamp) -> bool {
    i128::from(now.since(earlier)) > age.as_micros() as i128
}

/// An [`Inbound`] without its conversation, as an array: the names of the fields would cost more than the fields.
#[derive(Serialize, Deserialize)]
struct Packed<'a>(
    Cow<'a, str>,
    Cow<'a, str>,
    Cow<'a, str>,
    Cow<'a, str>,
    Cow<'a, str>,
    i64,
    u64,
    #[serde(default, skip_serializing_if = "Option::is_none")] Option<Cow<'a, Map<String, Json>>>,
);

/// Packs a message for storing.
pub(super) fn pack(inbound: &Inbound) -> Result<Vec<u8>, StoreError> {
    let message = &inbound.message;
    let packed = Packed(
        Cow::Borrowed(&inbound.tenant),
        Cow::Borrowed(&inbound.account),
        Cow::Borrowed(&message.text),
        Cow::Borrowed(message.message_id.as_str()),
        Cow::Borrowed(&message.input_channel),
        inbound.at.as_micros(),
        inbound.seed,
        (!message.metadata.is_empty()).then_some(Cow::Borrowed(&message.metadata)),
    );
    serde_json::to_vec(&packed).map_err(|e| StoreError::damaged(&inbound.conversation, e))
}

/// Unpacks a stored message.
pub(super) fn unpack(conversation: &ConversationId, bytes: &[u8]) -> Result<Inbound, StoreError> {
    let packed: Packed<'_> = serde_json::from_slice(bytes).map_err(|e| StoreError::damaged(conversation, e))?;
    let Packed(tenant, account, text, message_id, input_channel, at, seed, metadata) = packed;
    Ok(Inbound {
        tenant: tenant.into(),
        account: account.into(),
        conversation: conversation.clone(),
        message: UserMessage {
            text: text.into(),
            message_id: message_id.into_owned().into(),
            input_channel: input_channel.into(),
            metadata: metadata.map(Cow::into_owned).unwrap_or_default(),
        },
        at: Timestamp::from_micros(at),
        seed,
    })
}

/// The message of a turn whose own record is past its retention, as far as the turn's events tell.
pub(super) fn from_events(conversation: &ConversationId, events: &[Event]) -> Inbound {
    let user = events.iter().find_map(|event| match &event.kind {
        EventKind::User(message) => Some((message.clone(), event.at)),
        _ => None,
    });
    let at = events.first().map(|event| event.at).unwrap_or_default();
    let (message, at) = user.unwrap_or_else(|| {
        let none: Arc<str> = "".into();
        let message_id = MessageId::from("");
        (UserMessage { text: none.clone(), message_id, input_channel: none, metadata: Map::new() }, at)
    });
    Inbound { tenant: "".into(), account: "".into(), conversation: conversation.clone(), message, at, seed: 0 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

    use super::*;

    fn inbound(tenant: &str, channel: &str, account: &str, id: &str) -> Inbound {
        Inbound {
            tenant: tenant.into(),
            account: account.into(),
            conversation: "c".into(),
            message: UserMessage {
                text: "hi \"there\"".into(),
                message_id: id.into(),
                input_channel: channel.into(),
                metadata: [("a".to_owned(), Json::from(1))].into_iter().collect(),
            },
            at: Timestamp::from_micros(7),
            seed: u64::MAX,
        }
    }

    #[test]
    fn a_packed_message_comes_back() {
        let message = inbound("t", "rest", "a", "m1");
        assert_eq!(unpack(&"c".into(), &pack(&message).unwrap()).unwrap(), message);
        let plain = Inbound { message: UserMessage { metadata: Map::new(), ..message.message.clone() }, ..message };
        assert_eq!(unpack(&"c".into(), &pack(&plain).unwrap()).unwrap(), plain);
    }

    #[test]
    fn keys_differ_wherever_a_part_differs() {
        let parts = [
            ("a", "b", "c", "d"),
            ("ab", "", "c", "d"),
            ("a", "bc", "", "d"),
            ("a", "b", "", "cd"),
            ("", "", "", "abcd"),
        ];
        let keys: Vec<_> = parts.iter().map(|(t, c, a, id)| duplicate_key(&inbound(t, c, a, id)).unwrap()).collect();
        for key in &keys {
            assert_eq!(keys.iter().filter(|other| *other == key).count(), 1, "{key}");
        }
        assert_eq!(duplicate_key(&inbound("a", "b", "c", "")), None);
    }
}
