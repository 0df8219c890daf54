//! One message to one stored turn: load, walk, append, deliver. The only place that appends.

use std::sync::Arc;

use segue_engine::{conversation::Conversation, ids::ConversationId, time::Timestamp};

use super::{
    Failure, Inner, ReceiveError, Report,
    bodies::Bodies,
    mailbox::Cached,
    meter::Meter,
    recorded::{Door, RecordedClock},
    replies::TurnSink,
    takeover,
    turn::{self, Walked},
};
use crate::{
    conversation::ReplySink,
    cx::{Cx, StepKey},
    failpoint, limits,
    store::{Batch, Inbound, Journal, JournalRecord, StoreError, TurnJournal, TurnNumber},
};

/// Tries of one turn, when the store moved on under it or did not answer.
const TRIES: usize = 3;

/// Runs the turn of an accepted message until it is stored, then delivers.
pub(super) async fn run(
    inner: &Inner,
    state: &mut Option<Box<Cached>>,
    (number, inbound): (TurnNumber, &Inbound),
    mut recorded: Vec<JournalRecord>,
    sink: &mut dyn ReplySink,
) -> Result<Report, ReceiveError> {
    let id = &inbound.conversation;
    let mut last = StoreError::Unavailable("not tried".into());
    for _ in 0..TRIES {
        let cached = match state.take() {
            Some(cached) => cached,
            None => load(inner, id).await?,
        };
        failpoint::hit("C07");
        match attempt(inner, cached, (number, inbound), std::mem::take(&mut recorded), sink).await {
            Ok((cached, report)) => {
                *state = Some(cached);
                return Ok(report);
            }
            // The version is the law: somebody else appended, or nobody knows. What is stored says what to do.
            Err(error @ (StoreError::Conflict { .. } | StoreError::Unavailable(_))) => last = error,
            Err(error) => return Err(error.into()),
        }
        if let Some(replies) = inner.store.answered(id, &inbound.message.message_id).await? {
            return Ok(Report {
                turn: number,
                earlier: Vec::new(),
                replies,
                failures: Vec::new(),
                session_ended: false,
                repeated: true,
            });
        }
        let unfinished = inner.store.unfinished(id).await?;
        recorded = unfinished.into_iter().find(|one| one.turn == number).map(|one| one.journal).unwrap_or_default();
    }
    Err(last.into())
}

/// The conversation as it is stored.
pub(super) async fn load(inner: &Inner, id: &ConversationId) -> Result<Box<Cached>, StoreError> {
    let stored = inner.store.load(id).await?;
    let mut conversation = stored.snapshot.unwrap_or_else(|| Conversation::new(id.clone()));
    stored.tail.iter().for_each(|event| conversation.apply(event));
    Ok(Box::new(Cached { conversation, version: stored.version, bodies: Default::default(), waits: true }))
}

async fn attempt(
    inner: &Inner,
    mut cached: Box<Cached>,
    (number, inbound): (TurnNumber, &Inbound),
    recorded: Vec<JournalRecord>,
    sink: &mut dyn ReplySink,
) -> Result<(Box<Cached>, Report), StoreError> {
    let inherited = takeover::inherit(inner.build, &recorded);
    let id = &inbound.conversation;
    let real = inner.clock.clone();
    // Of another version's record nothing is replayed: its outcomes are inherited as events.
    let recorded = if inherited.upgraded.is_some() { Vec::new() } else { recorded };
    let journal =
        Arc::new(TurnJournal::new(inner.store.clone(), id.clone(), number, inner.build, real.clone(), recorded));
    // A recording is read without this conversation's store: every text stands in it whole.
    let known = if inner.around.is_some() { Default::default() } else { std::mem::take(&mut cached.bodies) };
    let outer = match &inner.around {
        Some(around) => around(journal.clone()),
        None => journal.clone() as Arc<dyn Journal>,
    };
    let door = Door {
        journal: outer.clone(),
        clock: Arc::new(RecordedClock::new(real, inbound.at)),
        meter: Arc::new(Meter::default()),
        bodies: Arc::new(Bodies::new(inner.store.clone(), id.clone(), known)),
    };
    let mut cx = Cx::new(door.clock.clone(), inner.turn_wall);
    cx.key = StepKey::new(number.0.to_string());
    if let Some(stop) = sink.stop() {
        cx.cancel = stop.into();
    }
    takeover::note(&inherited, &door, &cx).await;
    let due = next_due(&cached.conversation);
    let mut sink = TurnSink::new(sink, outer);
    let walked =
        turn::walk(&inner.parts, &mut cached.conversation, (number, inbound), inherited, &door, &mut sink, &cx).await;
    if let Some(error) = door.meter.take_broken() {
        return Err(error);
    }
    let delivered = walked.replies.iter().filter(|reply| sink.has(&reply.id)).map(|reply| reply.id.clone()).collect();
    let report = store(inner, &mut cached, (number, due), (walked, delivered), &journal, &door.bodies).await?;
    if !deliver(inner, id, &report, &mut sink, &cx).await {
        cached.waits = true;
        inner.outbox.add(id);
    }
    Ok((cached, report))
}

async fn store(
    inner: &Inner,
    cached: &mut Cached,
    (number, before): (TurnNumber, Option<Timestamp>),
    (walked, delivered): (Walked, Vec<Arc<str>>),
    journal: &TurnJournal,
    bodies: &Bodies,
) -> Result<Report, StoreError> {
    let Walked { events, replies, why, ended, failures } = walked;
    let due = (cached.version.0 + 1).is_multiple_of(limits::SNAPSHOT_EVERY);
    let trace = trace(&why, &failures);
    let next = next_due(&cached.conversation);
    let timer = (next != before).then_some(next);
    let batch = Batch {
        turn: number,
        events,
        replies: replies.clone(),
        delivered,
        journal: journal.take_pending(),
        bodies: bodies.fresh(),
        snapshot: due.then(|| cached.conversation.clone()),
        trace,
        timer,
        ..Batch::default()
    };
    failpoint::hit("C19");
    cached.version = inner.store.append(&cached.conversation.id, cached.version, batch).await?;
    cached.bodies = bodies.take_known();
    failpoint::hit("C21");
    if timer.is_some() {
        inner.timer_set.notify_one();
    }
    let failures = failures.into_iter().map(|(code, reason)| Failure { code, reason }).collect();
    Ok(Report { turn: number, earlier: Vec::new(), replies, failures, session_ended: ended, repeated: false })
}

/// When the earliest reminder of a conversation is due.
fn next_due(conversation: &Conversation) -> Option<Timestamp> {
    conversation.reminders.next().map(|reminder| reminder.due)
}

/// What cannot be found again by walking the turn: the failures. The rest of a trace is made from the record when it is wanted.
fn trace(_: &[segue_engine::dialogue::Reason], failures: &[(String, String)]) -> Option<String> {
    (!failures.is_empty()).then(|| serde_json::to_string(failures).unwrap_or_default())
}

/// Hands the replies to the channel that it does not have yet; whether it has all of them. Delivery never fails a turn: what was not
/// delivered stays in the outbox.
async fn deliver(inner: &Inner, id: &ConversationId, report: &Report, sink: &mut TurnSink<'_>, cx: &Cx) -> bool {
    let mut done = Vec::with_capacity(report.replies.len());
    let mut has_all = true;
    for reply in &report.replies {
        if sink.has(&reply.id) {
            continue;
        }
        if sink.deliver_stored(reply, cx).await {
            done.push(reply.id.clone());
        } else {
            has_all = false;
        }
    }
    failpoint::hit("C22");
    if !done.is_empty()
        && let Err(error) = inner.store.delivered(id, done).await
    {
        tracing::warn!(conversation = %id, turn = report.turn.0, code = "S0501", "receipts were not stored: {error}");
    }
    has_all
}
