//! What a turn came to is stored, as one: events, replies, receipts, journal, the next reminder, and that the message is answered.
//! The only place that appends.

use segue_engine::{conversation::Conversation, time::Timestamp};

use super::{SharedTexts, TurnResult};
use crate::{
    failpoint, limits,
    runtime::{Failure, Inner, TurnReport, mailbox::CachedConversation},
    store::{JournalRecord, StoreError, TurnCommit, TurnNumber},
};

/// Stores a turn; `due_before` is when the next reminder was due before it.
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
    let due = next_reminder(&cached.conversation);
    let timer = (due != due_before).then_some(due);
    let batch = TurnCommit {
        turn,
        events,
        replies: replies.clone(),
        delivered,
        journal,
        texts: texts.new_texts(),
        snapshot: wants_snapshot.then(|| cached.conversation.clone()),
        trace: failures_json(&failures),
        next_reminder: timer,
    };
    failpoint::hit("C19");
    cached.version = inner.store.append(&cached.conversation.id, cached.version, batch).await?;
    cached.texts = texts.take_known();
    failpoint::hit("C21");
    if timer.is_some() {
        inner.timer_set.notify_one();
    }
    let failures = failures.into_iter().map(|(code, reason)| Failure { code, reason }).collect();
    Ok(TurnReport { turn, earlier: Vec::new(), replies, failures, session_ended, repeated: false })
}

/// When the earliest reminder of a conversation is due.
pub(super) fn next_reminder(conversation: &Conversation) -> Option<Timestamp> {
    conversation.reminders.next().map(|reminder| reminder.due)
}

/// What cannot be found again by running the turn: the failures. The rest of a trace is made from the record when it is wanted.
fn failures_json(failures: &[(String, String)]) -> Option<String> {
    (!failures.is_empty()).then(|| serde_json::to_string(failures).unwrap_or_default())
}
