//! One message to one stored turn: load, walk, append, deliver. The only place that appends.

use std::sync::Arc;

use segue_engine::{conversation::Conversation, ids::ConversationId, time::Timestamp};
use tokio_util::sync::CancellationToken;

use super::{
    Failure, Inner, ReceiveError, Report,
    bodies::Bodies,
    mailbox::Cached,
    meter::Meter,
    replies::TurnSink,
    takeover::{self, After},
    turn::{self, Inheritance, Walked},
    turn_record::TurnRecord,
};
use crate::{
    conversation::ReplySink,
    cx::Cx,
    failpoint,
    journal::{Journal, TurnJournal},
    limits,
    store::{self, Batch, Inbound, JournalRecord, StoreError, TurnNumber, Unfinished},
};

/// Everything that the tries of one turn share.
struct Work<'a> {
    inner: &'a Inner,
    number: TurnNumber,
    inbound: &'a Inbound,
    journal: Arc<TurnJournal>,
    /// The same, or what somebody put around it.
    outer: Arc<dyn Journal>,
    /// Fires when whoever asked wants no more.
    stop: Option<CancellationToken>,
}

/// Runs the turn of a message that was accepted just now until it is stored, then delivers.
pub(super) async fn run(
    inner: &Inner,
    state: &mut Option<Box<Cached>>,
    (number, inbound): (TurnNumber, &Inbound),
    sink: &mut dyn ReplySink,
) -> Result<Report, ReceiveError> {
    let work = Work::new(inner, (number, inbound), None, sink.stop());
    let mut sink = TurnSink::new(sink, work.outer.clone());
    work.tried(state, 0, None, &mut sink).await
}

/// Runs a turn that was found open, until it is stored or given up; then delivers.
pub(super) async fn take_over(
    inner: &Inner,
    state: &mut Option<Box<Cached>>,
    Unfinished { turn, inbound, journal }: Unfinished,
    sink: &mut dyn ReplySink,
) -> Result<Report, ReceiveError> {
    let work = Work::new(inner, (turn, &inbound), Some(journal), sink.stop());
    let made = store::attempts(&work.journal.records());
    let mut sink = TurnSink::new(sink, work.outer.clone());
    work.tried(state, made, Some(After::Interruption), &mut sink).await
}

/// Ends an open turn with one honest message, without trying it again.
pub(super) async fn give_up(
    inner: &Inner,
    state: &mut Option<Box<Cached>>,
    Unfinished { turn, inbound, journal }: Unfinished,
    sink: &mut dyn ReplySink,
) -> Result<Report, ReceiveError> {
    let work = Work::new(inner, (turn, &inbound), Some(journal), None);
    let mut sink = TurnSink::new(sink, work.outer.clone());
    let report = work.given_up(state, "an operator closed it", &mut sink).await;
    work.leave(report)
}

impl<'a> Work<'a> {
    /// `recorded` is what the store has of an open turn. What this process knows and could not store is more.
    fn new(
        inner: &'a Inner,
        (number, inbound): (TurnNumber, &'a Inbound),
        recorded: Option<Vec<JournalRecord>>,
        stop: Option<CancellationToken>,
    ) -> Self {
        let id = &inbound.conversation;
        let unsaved = recorded.as_ref().and_then(|_| inner.unsaved.take(id, number));
        let journal = unsaved.unwrap_or_else(|| {
            let recorded = recorded.unwrap_or_default();
            let (store, clock) = (inner.store.clone(), inner.clock.clone());
            Arc::new(TurnJournal::new(store, id.clone(), number, inner.build, clock, recorded))
        });
        let outer = match &inner.around {
            Some(around) => around(journal.clone()),
            None => journal.clone() as Arc<dyn Journal>,
        };
        Self { inner, number, inbound, journal, outer, stop }
    }

    /// Tries the turn until it is stored, at most [`limits::TURN_ATTEMPTS`] times, of which `made` are over.
    async fn tried(
        &self,
        state: &mut Option<Box<Cached>>,
        made: u32,
        after: Option<After>,
        sink: &mut TurnSink<'_>,
    ) -> Result<Report, ReceiveError> {
        let report = self.try_on(state, made, after, sink).await;
        self.leave(report)
    }

    /// What could not be stored is kept for whoever takes the turn up again.
    fn leave(&self, report: Result<Report, ReceiveError>) -> Result<Report, ReceiveError> {
        let erased = matches!(report, Err(ReceiveError::Store(StoreError::NotAccepted { .. })));
        if report.is_err() && !erased && !self.journal.pending().is_empty() {
            self.inner.unsaved.keep(&self.inbound.conversation, self.number, self.journal.clone());
        }
        report
    }

    async fn try_on(
        &self,
        state: &mut Option<Box<Cached>>,
        mut made: u32,
        mut after: Option<After>,
        sink: &mut TurnSink<'_>,
    ) -> Result<Report, ReceiveError> {
        let Self { inner, number, inbound, .. } = *self;
        let id = &inbound.conversation;
        loop {
            // These defects show where nothing else covers them.
            let uncovered = ["defect:interrupted-first", "defect:clock-first"].into_iter().any(failpoint::is_set);
            if made >= limits::TURN_ATTEMPTS && !uncovered {
                return Box::pin(self.given_up(state, "it was tried too often", sink)).await;
            }
            if made > 0 {
                // Durable before the turn is tried again: it may be what ends the process.
                self.journal.count(made + 1).await?;
            }
            made += 1;
            let cached = match state.take() {
                Some(cached) => cached,
                None => load(inner, id).await?,
            };
            failpoint::hit("C07");
            let error = match self.attempt(cached, after, sink).await {
                Ok((cached, report)) => {
                    *state = Some(cached);
                    return Ok(report);
                }
                Err(StoreError::RequestChanged { key, recorded, found }) if !uncovered => {
                    tracing::warn!(
                        conversation = %id, turn = number.0, step = %key, code = "S0201",
                        "a turn that is walked again asks for something else than was recorded ({recorded} then, {found} now): \
                         nothing is sent again, its outcomes are kept as they are recorded"
                    );
                    after = Some(After::Misfit);
                    continue;
                }
                Err(error) => error,
            };
            // The version is the law: somebody else appended or answered, or nobody knows. What is stored says what to do.
            if !error.may_pass() && !matches!(error, StoreError::NotAccepted { .. }) {
                return Err(error.into());
            }
            if let Some(replies) = inner.store.replies_of(id, number).await? {
                let (earlier, failures) = (Vec::new(), Vec::new());
                let report = Report { turn: number, earlier, replies, failures, session_ended: false, repeated: false };
                let cx = Cx::new(inner.clock.clone(), inner.turn_wall);
                deliver(inner, id, &report, sink, &cx).await;
                return Ok(report);
            }
            if !error.may_pass() {
                return Err(error.into());
            }
            after = Some(After::Failure);
        }
    }
}

/// The conversation as it is stored.
pub(super) async fn load(inner: &Inner, id: &ConversationId) -> Result<Box<Cached>, StoreError> {
    let stored = inner.store.load(id).await?;
    let mut conversation = stored.snapshot.unwrap_or_else(|| Conversation::new(id.clone()));
    stored.tail.iter().for_each(|event| conversation.apply(event));
    Ok(Box::new(Cached { conversation, version: stored.version, bodies: Default::default(), waits: true }))
}

impl Work<'_> {
    async fn attempt(
        &self,
        mut cached: Box<Cached>,
        after: Option<After>,
        sink: &mut TurnSink<'_>,
    ) -> Result<(Box<Cached>, Report), StoreError> {
        let Self { inner, number, inbound, .. } = *self;
        let id = &inbound.conversation;
        let inherited = match after {
            None => Inheritance::none(number),
            Some(after) => takeover::inherit(inner.build, number, &self.journal.records(), sink.shows(), after),
        };
        let record = self.record(&mut cached);
        let mut cx = Cx::new(record.clock(), inner.turn_wall);
        cx.key = inherited.root.clone();
        if let Some(stop) = &self.stop {
            cx.cancel = stop.clone().into();
        }
        let due = next_due(&cached.conversation);
        let (parts, turn) = (&inner.parts, (number, inbound));
        let walked = turn::walk(parts, &mut cached.conversation, turn, inherited, &record, sink, &cx).await;
        if let Some(error) = record.meter.take_store_error() {
            return Err(error);
        }
        let delivered = walked.replies.iter().filter(|reply| sink.has(reply)).map(|reply| reply.id.clone()).collect();
        let records = self.journal.pending();
        let report = append(inner, &mut cached, (number, due), (walked, delivered), records, &record.bodies).await?;
        cached.waits |= !deliver(inner, id, &report, sink, &cx).await;
        Ok((cached, report))
    }

    /// Ends the turn without walking it.
    async fn given_up(
        &self,
        state: &mut Option<Box<Cached>>,
        reason: &str,
        sink: &mut TurnSink<'_>,
    ) -> Result<Report, ReceiveError> {
        let Self { inner, number, inbound, .. } = *self;
        let id = &inbound.conversation;
        let mut cached = match state.take() {
            Some(cached) => cached,
            None => load(inner, id).await?,
        };
        let record = self.record(&mut cached);
        let left = takeover::given_up(&self.journal.records());
        let given_up = takeover::record(number, &left, inner.clock.now(), inner.build);
        let due = next_due(&cached.conversation);
        let mut walked = turn::give_up(&inner.parts, &mut cached.conversation, (number, inbound), left);
        walked.failures.push(("R0105".into(), format!("the turn was given up: {reason}")));
        let records = self.journal.pending().into_iter().chain([given_up]).collect();
        let report = append(inner, &mut cached, (number, due), (walked, Vec::new()), records, &record.bodies).await?;
        tracing::error!(conversation = %id, turn = number.0, code = "R0105", "a turn was given up: {reason}");
        cached.waits |= !deliver(inner, id, &report, sink, &Cx::new(record.clock(), inner.turn_wall)).await;
        *state = Some(cached);
        Ok(report)
    }

    fn record(&self, cached: &mut Cached) -> TurnRecord {
        let Self { inner, inbound, .. } = *self;
        // A recording is read without this conversation's store: every text stands in it whole.
        let known = if inner.around.is_some() { Default::default() } else { std::mem::take(&mut cached.bodies) };
        let at = if failpoint::is_set("defect:clock-first") { inner.clock.now() } else { inbound.at };
        let bodies = Bodies::new(inner.store.clone(), inbound.conversation.clone(), known);
        TurnRecord::new(self.outer.clone(), inner.clock.clone(), at, Meter::default(), bodies)
    }
}

async fn append(
    inner: &Inner,
    cached: &mut Cached,
    (number, before): (TurnNumber, Option<Timestamp>),
    (walked, delivered): (Walked, Vec<Arc<str>>),
    journal: Vec<JournalRecord>,
    bodies: &Bodies,
) -> Result<Report, StoreError> {
    let Walked { events, replies, ended, failures, .. } = walked;
    let due = (cached.version.0 + 1).is_multiple_of(limits::SNAPSHOT_EVERY);
    let trace = trace(&failures);
    let next = next_due(&cached.conversation);
    let timer = (next != before).then_some(next);
    let batch = Batch {
        turn: number,
        events,
        replies: replies.clone(),
        delivered,
        journal,
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
fn trace(failures: &[(String, String)]) -> Option<String> {
    (!failures.is_empty()).then(|| serde_json::to_string(failures).unwrap_or_default())
}

/// Hands the replies to the channel that it does not have yet; whether it has all of them. Delivery never fails a turn: what was not
/// delivered stays in the outbox.
async fn deliver(inner: &Inner, id: &ConversationId, report: &Report, sink: &mut TurnSink<'_>, cx: &Cx) -> bool {
    let mut done = Vec::with_capacity(report.replies.len());
    let mut has_all = true;
    for reply in &report.replies {
        if sink.has(reply) {
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
    if !has_all {
        inner.outbox.add(id);
    }
    has_all
}
