//! Deliver: sends replies to the channel, and writes them into the feed of the conversation. Deltas of a streamed reply may be sent before
//! the turn is stored; each such reply is announced in the journal before its first delta, so that the next attempt after a crash knows what
//! the user may have seen. All other replies are sent after the commit.

use std::{
    collections::{HashMap, HashSet},
    future::ready,
    iter,
    pin::Pin,
    sync::Arc,
};

use segue_engine::{
    conversation::{Conversation, Event},
    ids::ConversationId,
    project::Project,
};

use crate::{
    context::CallContext,
    conversation::{DeliveryError, Receipt, Reply, ReplySink, TurnEvent, WriteGate},
    failpoint,
    journal::Journal,
    runtime::{
        Inner, ReceiveError, TurnReport,
        activity::{self, Visible},
        feed::FeedWriter,
    },
    store::StoredReply,
};

/// The message of a failure in a turn that was stored.
const INTERNAL_ERROR: &str = "an internal error occurred";

/// Sends the replies that the channel does not have yet, and returns whether it has all of them. A failed delivery does not fail the
/// turn: the reply stays in the outbox. `rest`: what clients see of the turn that they have not seen yet.
pub(super) async fn deliver(
    inner: &Inner,
    id: &ConversationId,
    report: &TurnReport,
    rest: Vec<Visible>,
    sink: &mut TurnSink<'_>,
    cx: &CallContext,
) -> bool {
    let mut done = Vec::with_capacity(report.replies.len());
    let mut has_all = true;
    let later = rest.iter().filter(|seen| **seen == Visible::Reply).count();
    let earlier = report.replies.len().saturating_sub(later);
    let mut replies = report.replies.iter();
    for seen in iter::repeat_n(Visible::Reply, earlier).chain(rest) {
        let reply = match seen {
            Visible::Activity(event) => {
                sink.show_activity(event, cx).await;
                continue;
            }
            Visible::Reply => replies.next(),
        };
        let Some(reply) = reply else { continue };
        sink.show_to_readers(reply);
        if sink.is_delivered(reply) {
            continue;
        }
        // Of a request that the client has ended before it counted as confirmed, nothing was done and nothing is told.
        if sink.is_taken_back() || sink.deliver_stored(reply, cx).await {
            done.push(reply.id.clone());
        } else {
            has_all = false;
        }
    }
    failpoint::hit("C22");
    if !done.is_empty()
        && let Err(error) = inner.store.mark_delivered(id, done).await
    {
        tracing::warn!(conversation = %id, turn = report.turn.0, code = "S0501", "receipts were not stored: {error}");
    }
    if !has_all {
        inner.outbox.add(id);
    }
    has_all
}

/// The last events of a turn: its failures, then its end. A turn that is not stored has no end: it goes on later.
pub(super) fn last_events(result: &Result<TurnReport, ReceiveError>) -> Vec<TurnEvent> {
    let error = |code: &str, message: &str| TurnEvent::Error { code: code.into(), message: message.into() };
    match result {
        Ok(report) => {
            let failures = report.failures.iter().map(|failure| error(&failure.code, INTERNAL_ERROR));
            let end = TurnEvent::Finished { turn: report.turn, session_ended: report.session_ended };
            failures.chain([end]).collect()
        }
        Err(problem) => vec![error(problem.code(), problem.advice())],
    }
}

/// The sink of a turn, for all its attempts: the sink of the channel, and the feed of the conversation. It announces streamed replies in
/// the journal.
pub(in crate::runtime) struct TurnSink<'a> {
    inner: &'a mut dyn ReplySink,
    feed: FeedWriter,
    journal: Arc<dyn Journal>,
    /// Whether the channel shows text while it is generated.
    channel_streams: bool,
    /// Whether somebody sees text while it is generated: the channel, or readers of the conversation when the turn began.
    streams: bool,
    /// Complete replies that the channel has, by id.
    delivered: HashMap<Arc<str>, Box<Reply>>,
    /// Complete replies that were sent while the turn ran, to the channel or to readers.
    shown: HashMap<Arc<str>, Box<Reply>>,
    /// Ids of replies that are announced in the journal.
    announced: HashSet<Arc<str>>,
    /// Ids of replies that were cut off because the turn was interrupted. Who interrupted it does not want them later.
    cut: HashSet<Arc<str>>,
    /// If set, whether models stream: as recorded, independent of the channel.
    recorded_streaming: Option<bool>,
    /// The gate that holds the writes of the turn, if none had begun in an earlier process.
    gate: Option<Arc<WriteGate>>,
    /// The events and replies of this attempt that were shown.
    shown_up_to: (usize, usize),
    /// What was shown beside messages, in all attempts; and how much of it this attempt has repeated.
    activity: (Vec<TurnEvent>, usize),
}

impl<'a> TurnSink<'a> {
    /// A sink that writes to the sink of a channel, and to the readers of the conversation.
    pub(in crate::runtime) fn new(inner: &'a mut dyn ReplySink, feed: FeedWriter, journal: Arc<dyn Journal>) -> Self {
        let channel_streams = inner.wants_deltas();
        Self {
            streams: channel_streams || feed.has_readers(),
            inner,
            feed,
            journal,
            channel_streams,
            delivered: HashMap::new(),
            shown: HashMap::new(),
            announced: HashSet::new(),
            cut: HashSet::new(),
            recorded_streaming: None,
            gate: None,
            shown_up_to: (0, 0),
            activity: (Vec::new(), 0),
        }
    }

    /// Begins an attempt: what it repeats of an earlier one is not shown again.
    pub(super) fn begin_attempt(&mut self) {
        self.shown_up_to = (0, 0);
        self.activity.1 = 0;
    }

    /// Shows what has happened so far, before an effect that may take long. Only if somebody sees deltas; others get it after the commit.
    pub(in crate::runtime) async fn show_progress(
        &mut self,
        project: &Project,
        events: &[Event],
        replies: &[StoredReply],
        cx: &CallContext,
    ) {
        if !self.streams {
            return;
        }
        for seen in self.unseen(project, events) {
            match seen {
                Visible::Activity(event) => self.show_activity(event, cx).await,
                Visible::Reply => {
                    let reply = replies.get(self.shown_up_to.1);
                    self.shown_up_to.1 += 1;
                    if let Some(reply) = reply {
                        self.deliver(reply, cx).await;
                    }
                }
            }
        }
    }

    /// What clients see of the turn that was not shown yet, and the open question at its end.
    pub(super) fn rest(&mut self, project: &Project, events: &[Event], conversation: &Conversation) -> Vec<Visible> {
        if !self.channel_streams && !self.feed.is_kept() {
            return Vec::new();
        }
        let mut rest = self.unseen(project, events);
        rest.extend(activity::open_question(project, conversation).map(Visible::Activity));
        rest
    }

    fn unseen(&mut self, project: &Project, events: &[Event]) -> Vec<Visible> {
        let unseen = events.get(self.shown_up_to.0..).unwrap_or_default();
        self.shown_up_to.0 = events.len();
        activity::visible(project, unseen)
    }

    /// Shows what happens beside messages to readers, and to a channel that shows the turn while it runs; once in all attempts.
    async fn show_activity(&mut self, event: TurnEvent, cx: &CallContext) {
        let (shown, at) = &mut self.activity;
        if shown.get(*at) == Some(&event) {
            *at += 1;
            return;
        }
        shown.push(event.clone());
        *at = shown.len();
        self.feed.push(|| event.clone());
        if self.channel_streams && !self.is_taken_back() {
            // It is not stored for a later delivery: a client that does not get it reads the conversation.
            let _ = self.inner.send(event, cx).await;
        }
    }

    /// Whether somebody sees deltas.
    pub(in crate::runtime) fn streams_to_channel(&self) -> bool {
        self.streams
    }

    /// Sets whether models stream from here on as the record has it, whatever the channel does: recorded requests depend on it.
    pub(in crate::runtime) fn set_recorded_streaming(&mut self, recorded_streaming: Option<bool>) {
        self.recorded_streaming = recorded_streaming;
    }

    /// Sends the replies so far, before an effect that may take long. Only if somebody sees deltas; others get replies after the commit.
    pub(in crate::runtime) async fn send_early(&mut self, replies: &[StoredReply], cx: &CallContext) {
        if !self.streams {
            return;
        }
        for reply in replies {
            self.deliver(reply, cx).await;
        }
    }

    /// Sends a complete reply, unless it was sent.
    pub(in crate::runtime) async fn deliver(&mut self, reply: &StoredReply, cx: &CallContext) -> bool {
        self.is_delivered(reply) || self.send(full_message(reply), cx).await.is_ok()
    }

    /// Whether the channel has this reply in full, or the user has cut it off.
    pub(in crate::runtime) fn is_delivered(&self, reply: &StoredReply) -> bool {
        self.delivered.get(&reply.id).is_some_and(|had| **had == reply.reply) || self.cut.contains(&reply.id)
    }

    /// Whether the client has ended its request before it counted as confirmed.
    fn is_taken_back(&self) -> bool {
        self.gate.as_ref().is_some_and(|gate| gate.is_closed())
    }

    /// Sets the gate that the client of this turn closes when it ends its request.
    pub(super) fn with_gate(mut self, gate: Option<Arc<WriteGate>>) -> Self {
        self.gate = gate;
        self
    }

    /// Sends a stored reply to the channel. It needs no announcement.
    pub(in crate::runtime) async fn deliver_stored(&mut self, reply: &StoredReply, cx: &CallContext) -> bool {
        self.inner.send(full_message(reply), cx).await.is_ok()
    }

    /// Writes a stored reply into the feed, unless it is there.
    fn show_to_readers(&mut self, reply: &StoredReply) {
        if self.shown.get(&reply.id).is_none_or(|shown| **shown != reply.reply) {
            self.feed.push(|| full_message(reply));
        }
    }

    /// Ends the run of the turn for the readers of the conversation.
    pub(super) fn finish(&self, inner: &Inner, id: &ConversationId, result: &Result<TurnReport, ReceiveError>) {
        self.feed.finish(inner, id, || last_events(result));
    }

    async fn forward(&mut self, event: TurnEvent, cx: &CallContext) -> Result<Receipt, DeliveryError> {
        if !self.streams {
            return Ok(Receipt::Skipped);
        }
        if event.message_id().is_none() {
            self.show_activity(event, cx).await;
            return Ok(Receipt::Skipped);
        }
        let Some(event) = self.remaining(event) else { return Ok(Receipt::Skipped) };
        if let TurnEvent::MessageStart { id, .. } | TurnEvent::Message { id, .. } = &event
            && !self.announced.contains(id)
        {
            // Durable before anything is sent; without the record nothing may be shown.
            if let Err(error) = self.journal.announce_reply(id).await {
                return Err(DeliveryError::Temporary(error.to_string()));
            }
            self.announced.insert(id.clone());
        }
        if event.message_id().is_some_and(|id| !self.announced.contains(id)) {
            // Its start was not sent: the complete reply follows after the commit.
            return Ok(Receipt::Skipped);
        }
        if let TurnEvent::MessageEnd { id, interrupted: true, .. } = &event
            && cx.cancel.is_cancelled()
        {
            self.cut.insert(id.clone());
        }
        let complete = event.complete_message().map(|(id, message)| (id.clone(), Box::new(message.clone())));
        self.feed.push(|| event.clone());
        let receipt = match self.channel_streams {
            true => self.inner.send(event, cx).await,
            // The channel gets it after the commit.
            false => Ok(Receipt::Skipped),
        };
        failpoint::hit("C09");
        if let Some((id, message)) = complete {
            let is_delivered = matches!(receipt, Ok(Receipt::Delivered));
            // A reader that comes later finds it in the feed, once.
            if is_delivered || self.feed.is_kept() {
                self.shown.insert(id.clone(), message.clone());
            }
            if is_delivered {
                self.delivered.insert(id, message);
            }
        }
        receipt
    }

    /// Filters what an earlier attempt has sent. If the reply differs now, the new one is sent in full.
    fn remaining(&self, event: TurnEvent) -> Option<TurnEvent> {
        match event {
            TurnEvent::MessageStart { id, .. } | TurnEvent::MessageDelta { id, .. } if self.shown.contains_key(&id) => {
                None
            }
            TurnEvent::MessageEnd { id, message, kind, .. } | TurnEvent::Message { id, message, kind }
                if self.shown.contains_key(&id) =>
            {
                let same = self.shown.get(&id).is_some_and(|had| *had == message);
                (!same).then_some(TurnEvent::Message { id, message, kind })
            }
            event => Some(event),
        }
    }
}

/// A stored reply as one event.
pub(in crate::runtime) fn full_message(reply: &StoredReply) -> TurnEvent {
    TurnEvent::Message { id: reply.id.clone(), message: Box::new(reply.reply.clone()), kind: reply.kind }
}

/// What a sink returns for an event. Written out, because the future of another sink is passed on as it is.
type Sending<'a> = Pin<Box<dyn Future<Output = Result<Receipt, DeliveryError>> + Send + 'a>>;

impl ReplySink for TurnSink<'_> {
    fn wants_deltas(&self) -> bool {
        self.recorded_streaming.unwrap_or(self.streams)
    }
    fn send<'s, 'c, 'f>(&'s mut self, event: TurnEvent, cx: &'c CallContext) -> Sending<'f>
    where
        's: 'f,
        'c: 'f,
        Self: 'f,
    {
        // Short path for deltas: only starts and ends concern the journal.
        match event {
            TurnEvent::MessageDelta { ref id, .. }
                if self.announced.contains(id)
                    && !self.shown.contains_key(id)
                    && self.streams
                    && !failpoint::is_armed("C09") =>
            {
                self.feed.push(|| event.clone());
                if self.channel_streams { self.inner.send(event, cx) } else { Box::pin(ready(Ok(Receipt::Skipped))) }
            }
            event => Box::pin(self.forward(event, cx)),
        }
    }
}
