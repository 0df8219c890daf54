//! What the records of a turn tell by themselves: how often it was tried, and which replies had begun to be shown.

use std::sync::Arc;

use segue_base::context::StepKey;
use segue_engine::time::Timestamp;

use super::JournalRecord;

/// The kind of the record that a reply is about to be shown.
pub const SPEAKING: &str = "speaking";
/// The kind of the record that counts how often a turn was tried.
pub const ATTEMPTS: &str = "attempts";

/// The record that a reply is about to be shown.
pub fn speaking(reply_id: &str, at: Timestamp, build: u64) -> JournalRecord {
    let key = StepKey::root().child(SPEAKING).child(reply_id);
    JournalRecord { key, kind: SPEAKING.into(), request: reply_id.into(), outcome: None, at, build }
}

/// How often the turn of these records was tried, as far as they tell: one that is found open was tried once at least.
pub fn attempts(records: &[JournalRecord]) -> u32 {
    let count = records.iter().find(|record| &*record.kind == ATTEMPTS);
    count.and_then(|record| record.outcome.as_deref()?.parse().ok()).unwrap_or(1)
}

/// The replies that had begun to be shown.
pub fn announced_replies(records: &[JournalRecord]) -> impl Iterator<Item = &Arc<str>> {
    records.iter().filter(|record| &*record.kind == SPEAKING).map(|record| &record.request)
}
