//! What the journal of a turn says about the turn itself: how often it was attempted, and which replies were announced.

use std::sync::Arc;

use segue_base::context::StepKey;
use segue_engine::time::Timestamp;

use super::JournalRecord;

/// The kind of the record that announces a reply: the reply is about to be shown.
pub const REPLY_ANNOUNCED: &str = "speaking";
/// The kind of the record that counts the attempts of a turn.
pub const ATTEMPTS: &str = "attempts";

/// The record that a reply is about to be shown.
pub fn announce_reply(reply_id: &str, at: Timestamp, build: u64) -> JournalRecord {
    let key = StepKey::root().child(REPLY_ANNOUNCED).child(reply_id);
    JournalRecord { key, kind: REPLY_ANNOUNCED.into(), request: reply_id.into(), outcome: None, at, build }
}

/// How often the turn of these records was attempted. A turn without a count was attempted at least once.
pub fn attempts(records: &[JournalRecord]) -> u32 {
    let count = records.iter().find(|record| &*record.kind == ATTEMPTS);
    count.and_then(|record| record.outcome.as_deref()?.parse().ok()).unwrap_or(1)
}

/// The ids of the announced replies.
pub fn announced_replies(records: &[JournalRecord]) -> impl Iterator<Item = &Arc<str>> {
    records.iter().filter(|record| &*record.kind == REPLY_ANNOUNCED).map(|record| &record.request)
}
