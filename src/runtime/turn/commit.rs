//! Commit: stores events, replies, receipts, journal, the next reminder and the mark "answered" in one transaction.
//! No other code appends turns to the store.

use segue_engine::{
    conversation::{Conversation, EventKind},
    time::Timestamp,
};

use super::{SharedTexts, TurnResult};
use crate::{
    failpoint, limits,
    runtime::{Failure, Inner, TurnReport, mailbox::CachedConversation},
    store::{JournalRecord, StoreError, TurnCommit, TurnNumber},
};

/// Stores a turn. `due_before` is the time of the next reminder before the turn.
pub(super) async fn commit(
    inner: &Inner,
    cached: &mut CachedConversation,
    turn: TurnNumber,
    result: TurnResult,
    due_before: Option<Timestamp>,
    journal: Vec<JournalRecord>,
    texts: &SharedTexts,
) -> Result<TurnReport, StoreError> {
    let TurnResult { events, replies, delivered, session_ended, failures, .. } = result;
    let wants_snapshot = (cached.version.0 + 1).is_multiple_of(limits::SNAPSHOT_EVERY);
    let next_due = next_reminder(&cached.conversation);
    let usage = events.iter().rev().find_map(|event| match &event.kind {
        EventKind::ModelsUsed(used) => Some(*used),
        _ => None,
    });
    let changed_reminder = (next_due != due_before).then_some(next_due);
    let batch = TurnCommit {
        turn,
        events,
        replies: replies.clone(),
        delivered,
        journal,
        texts: texts.new_texts(),
        snapshot: wants_snapshot.then(|| cached.conversation.clone()),
        trace: failures_json(&failures),
        next_reminder: changed_reminder,
    };
    failpoint::hit("C19");
    cached.version = inner.store.append(&cached.conversation.id, cached.version, batch).await?;
    cached.known_texts = texts.take_known();
    failpoint::hit("C21");
    if changed_reminder.is_some() {
        inner.reminders_changed.notify_one();
    }
    let failures = failures.into_iter().map(|(code, reason)| Failure { code, reason }).collect();
    Ok(TurnReport { failures, session_ended, usage: usage.unwrap_or_default(), ..TurnReport::new(turn, replies) })
}

/// The time of the earliest reminder of a conversation.
pub(super) fn next_reminder(conversation: &Conversation) -> Option<Timestamp> {
    conversation.reminders.next().map(|reminder| reminder.due)
}

/// The failures as JSON. They are the only part of a trace that a replay cannot compute.
fn failures_json(failures: &[(String, String)]) -> Option<String> {
    (!failures.is_empty()).then(|| serde_json::to_string(failures).unwrap_or_default())
}
