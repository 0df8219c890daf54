//! The feed of a conversation: the events of its turns for any number of readers, which may come late or come back.
//!
//! A turn writes its events into the feed of its conversation, if the conversation has readers. The feed keeps the running turn and the
//! last ended one in memory. A reader has a position and takes what follows it: a reader that does not read holds nothing up and costs no
//! memory. What the feed does not have, because the reader is far behind, or because the process has started again, comes from the store:
//! the messages of a turn as wholes, under the ids that they had in the stream.

use std::{
    collections::{HashMap, VecDeque},
    fmt, iter,
    str::FromStr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use segue_engine::{
    conversation::{Event, EventKind, UserMessage},
    ids::ConversationId,
    project::Project,
    time::Timestamp,
};
use tokio::sync::watch;

use super::{
    Assistant, Inner,
    activity::{self, Visible},
    reminders,
};
use crate::{
    conversation::TurnEvent,
    limits,
    store::{InboxMessage, StoreError, StoredReply, TurnEvents, TurnNumber},
};

/// The place of an event in the feed of a conversation: a reader that passes it gets what follows.
///
/// As a text it is opaque: the turn, the number of the next event in it, and the process that has numbered it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedPosition {
    /// The turn of the next event; 0 for the beginning.
    turn: u64,
    /// The number of the next event in the turn. Another process numbers the events of the turn differently.
    event: usize,
    process: u64,
}

impl FeedPosition {
    /// Before the first event of the conversation. A reader gets the last [`limits::FEED_HISTORY`] turns.
    pub const START: Self = Self { turn: 0, event: 0, process: 0 };
}

impl fmt::Display for FeedPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{:x}", self.turn, self.event, self.process)
    }
}

/// A text that is not a [`FeedPosition`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not a position: send the `id` of an event, or 0 for the beginning")]
pub struct InvalidPosition;

impl FromStr for FeedPosition {
    type Err = InvalidPosition;

    fn from_str(text: &str) -> Result<Self, InvalidPosition> {
        let mut parts = text.split('.');
        let mut part = |radix| parts.next().map(|part| u64::from_str_radix(part, radix)).transpose();
        let numbers = (part(10), part(10), part(16));
        let (Ok(turn), Ok(event), Ok(process)) = numbers else { return Err(InvalidPosition) };
        let (Some(turn), None) = (turn, parts.next()) else { return Err(InvalidPosition) };
        let event = usize::try_from(event.unwrap_or_default()).map_err(|_| InvalidPosition)?;
        Ok(Self { turn, event, process: process.unwrap_or_default() })
    }
}

/// An event of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct FeedEvent {
    /// Where a reader continues that has got this event.
    pub next: FeedPosition,
    /// The event.
    pub event: Arc<TurnEvent>,
}

/// The feeds of this process: of conversations that have readers, or had one a short time ago.
pub(super) struct Feeds {
    /// Distinguishes the positions of this process from those of an earlier one.
    process: u64,
    by_conversation: Mutex<HashMap<ConversationId, Arc<Feed>>>,
}

/// The feed of one conversation.
pub(super) struct Feed {
    state: Mutex<FeedState>,
    /// Changes with every event.
    changed: watch::Sender<u64>,
    readers: AtomicUsize,
}

#[derive(Default)]
struct FeedState {
    /// The last ended turn and the running one, oldest first.
    turns: VecDeque<FeedTurn>,
    /// When the last reader left.
    left_at: Option<Duration>,
    /// The conversation was erased: its readers end.
    is_erased: bool,
}

struct FeedTurn {
    number: u64,
    /// `None`: the text of a message that is complete by now.
    events: Vec<Option<Arc<TurnEvent>>>,
    /// Whether an event is missing, because there were too many. The messages then come from the store when the turn has ended.
    is_incomplete: bool,
    has_ended: bool,
}

impl Feeds {
    pub(super) fn new(process: u64) -> Self {
        Self { process, by_conversation: Mutex::default() }
    }
    fn all(&self) -> MutexGuard<'_, HashMap<ConversationId, Arc<Feed>>> {
        self.by_conversation.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The feed of a conversation, if it has one.
    fn get(&self, id: &ConversationId) -> Option<Arc<Feed>> {
        self.all().get(id).cloned()
    }
    /// Whether somebody reads a conversation.
    pub(super) fn has_readers(&self, id: &ConversationId) -> bool {
        self.get(id).is_some_and(|feed| feed.has_readers())
    }
    /// The feed of a conversation for one more reader. Feeds without readers are removed after [`limits::FEED_IDLE`].
    fn join(&self, id: &ConversationId, now: Duration) -> Arc<Feed> {
        let mut all = self.all();
        all.retain(|_, feed| !feed.is_idle(now));
        let feed = all.entry(id.clone()).or_insert_with(|| {
            Arc::new(Feed { state: Mutex::default(), changed: watch::Sender::new(0), readers: AtomicUsize::new(0) })
        });
        feed.readers.fetch_add(1, Ordering::SeqCst);
        feed.clone()
    }
    /// Ends the readers of an erased conversation.
    pub(super) fn erase(&self, id: &ConversationId) {
        if let Some(feed) = self.all().remove(id) {
            feed.state().is_erased = true;
            feed.notify();
        }
    }
}

impl Feed {
    fn state(&self) -> MutexGuard<'_, FeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn notify(&self) {
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }
    fn has_readers(&self) -> bool {
        self.readers.load(Ordering::SeqCst) > 0
    }
    fn is_idle(&self, now: Duration) -> bool {
        let left_at = self.state().left_at;
        !self.has_readers() && left_at.is_some_and(|left| now.saturating_sub(left) >= limits::FEED_IDLE)
    }
}

impl FeedState {
    /// Adds a turn; the oldest one goes.
    fn add(&mut self, turn: FeedTurn) {
        self.turns.retain(|other| other.number != turn.number);
        while self.turns.len() >= limits::FEED_TURNS {
            self.turns.pop_front();
        }
        self.turns.push_back(turn);
    }
}

impl FeedTurn {
    fn push(&mut self, event: TurnEvent) {
        let is_text = matches!(event, TurnEvent::MessageStart { .. } | TurnEvent::MessageDelta { .. });
        if self.events.len() >= limits::FEED_EVENTS && (is_text || self.events.len() >= 2 * limits::FEED_EVENTS) {
            self.is_incomplete |= !is_text;
            return;
        }
        if let Some((complete, _)) = event.complete_message() {
            // Its text is in this event, for readers that come later.
            for slot in &mut self.events {
                let is_part =
                    |event: &Arc<TurnEvent>| matches!(&**event, TurnEvent::MessageDelta { id, .. } if id == complete);
                if slot.as_ref().is_some_and(is_part) {
                    *slot = None;
                }
            }
        }
        self.events.push(Some(Arc::new(event)));
    }
}

/// Writes the events of one turn into the feed of its conversation. Without readers when the turn begins, it writes nothing.
pub(super) struct FeedWriter {
    feed: Option<Arc<Feed>>,
    turn: u64,
}

impl FeedWriter {
    /// A writer without a feed, for replays.
    pub(super) fn none() -> Self {
        Self { feed: None, turn: 0 }
    }

    /// Begins a turn.
    pub(super) fn begin(inner: &Inner, turn: TurnNumber, inbound: &InboxMessage) -> Self {
        let feed = inner.feeds.get(&inbound.conversation);
        if let Some(feed) = &feed {
            let mut state = feed.state();
            // A turn that could not be stored goes on where it was.
            if !state.turns.iter().any(|running| running.number == turn.0) {
                let mut new = FeedTurn { number: turn.0, events: Vec::new(), is_incomplete: false, has_ended: false };
                started(turn, inner.clock.now(), inbound).for_each(|event| new.push(event));
                state.add(new);
            }
            drop(state);
            feed.notify();
        }
        Self { feed, turn: turn.0 }
    }
    /// Whether the events are kept for readers, also for those that come later.
    pub(super) fn is_kept(&self) -> bool {
        self.feed.is_some()
    }
    /// Whether somebody reads now.
    pub(super) fn has_readers(&self) -> bool {
        self.feed.as_ref().is_some_and(|feed| feed.has_readers())
    }
    /// Writes an event.
    pub(super) fn push(&self, event: impl FnOnce() -> TurnEvent) {
        let Some(feed) = &self.feed else { return };
        let mut state = feed.state();
        if let Some(turn) = state.turns.iter_mut().find(|turn| turn.number == self.turn) {
            turn.push(event());
        }
        drop(state);
        feed.notify();
    }
    /// Writes the last events of a run. A turn that is not stored yet goes on later.
    pub(super) fn finish(&self, inner: &Inner, id: &ConversationId, last: impl FnOnce() -> Vec<TurnEvent>) {
        let Some(feed) = &self.feed else {
            // Readers that came while the turn ran get its messages from the store.
            if let Some(feed) = inner.feeds.get(id) {
                let has_ended = last().iter().any(|event| matches!(event, TurnEvent::Finished { .. }));
                let turn = FeedTurn { number: self.turn, events: Vec::new(), is_incomplete: true, has_ended };
                feed.state().add(turn);
                feed.notify();
            }
            return;
        };
        let mut state = feed.state();
        if let Some(turn) = state.turns.iter_mut().find(|turn| turn.number == self.turn) {
            for event in last() {
                turn.has_ended |= matches!(event, TurnEvent::Finished { .. });
                turn.push(event);
            }
        }
        drop(state);
        feed.notify();
    }
}

/// The first events of a turn for readers. A turn without a message of the user, such as that of a reminder, has no message.
fn started(turn: TurnNumber, at: Timestamp, inbound: &InboxMessage) -> impl Iterator<Item = TurnEvent> {
    let message = reminders::user_message(inbound).map(|message| user_message(turn, message));
    iter::once(TurnEvent::Started { turn, at }).chain(message)
}

fn user_message(turn: TurnNumber, message: &UserMessage) -> TurnEvent {
    TurnEvent::UserMessage { turn, message_id: message.message_id.as_str().into(), text: message.text.clone() }
}

/// The events of a stored turn.
fn stored_events(project: &Project, turn: TurnNumber, events: &[Event]) -> Vec<TurnEvent> {
    let at = events.first().map_or(Timestamp::default(), |event| event.at);
    let message = events.iter().find_map(|event| match &event.kind {
        EventKind::User(message) => Some(user_message(turn, message)),
        _ => None,
    });
    let mut replies = StoredReply::from_events(turn, 0, events);
    let shown = activity::visible(project, events).into_iter().filter_map(|seen| match seen {
        Visible::Reply => replies.next().map(|StoredReply { id, reply, kind, .. }| TurnEvent::Message {
            id,
            message: Box::new(reply),
            kind,
        }),
        Visible::Activity(event) => Some(event),
    });
    let session_ended = events.iter().any(|event| matches!(event.kind, EventKind::SessionEnded { .. }));
    let last = TurnEvent::Finished { turn, session_ended };
    iter::once(TurnEvent::Started { turn, at }).chain(message).chain(shown).chain([last]).collect()
}

/// The events of a conversation, for one reader. Dropping it ends the reading.
pub struct TurnEventStream {
    assistant: Assistant,
    id: ConversationId,
    feed: Arc<Feed>,
    changed: watch::Receiver<u64>,
    /// The turn and the number of the next event.
    next: (u64, usize),
    /// Whether ended turns from `next` on may be in the store only: at the beginning.
    reads_store: bool,
    /// Events that were read from the store.
    backlog: VecDeque<FeedEvent>,
}

/// What a reader does next.
enum Step {
    Take(Arc<TurnEvent>),
    ReadStore,
    Wait,
    End,
}

impl Assistant {
    /// The events of a conversation: those after a position, then every further one as it happens, of messages that any channel
    /// receives. `None` begins with the next event. The stream ends when the program shuts down, and when the conversation is erased.
    ///
    /// A turn streams text if a reader is there when it begins. If a reader is there, [`deliver_outbox`](Self::deliver_outbox) counts replies as
    /// delivered that no channel can send: a reader has a position, and gets them from the store after a break.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    pub async fn subscribe(
        &self,
        id: &ConversationId,
        after: Option<FeedPosition>,
    ) -> Result<TurnEventStream, StoreError> {
        let feed = self.0.feeds.join(id, self.0.clock.elapsed());
        let changed = feed.changed.subscribe();
        let mut stream = TurnEventStream {
            assistant: self.clone(),
            id: id.clone(),
            feed,
            changed,
            next: (0, 0),
            reads_store: true,
            backlog: VecDeque::new(),
        };
        match after {
            // In a turn that this process still has, the place is known; in any other, the turn is repeated.
            Some(FeedPosition { turn, event, process }) => {
                stream.next = (turn, if process == self.0.feeds.process { event } else { 0 });
            }
            None => {
                let latest = self.0.store.latest_turns(id, None, 1).await?;
                stream.next = (latest.first().map_or(0, |turn| turn.turn.0.saturating_add(1)), 0);
            }
        }
        Ok(stream)
    }
}

impl TurnEventStream {
    /// The next event; `None` at the end of the stream. *Cancellation*: no event is lost.
    ///
    /// # Errors
    /// [`StoreError`] if earlier turns cannot be read. The stream can be used again.
    pub async fn next(&mut self) -> Result<Option<FeedEvent>, StoreError> {
        loop {
            if let Some(event) = self.backlog.pop_front() {
                (self.next.0, self.next.1) = (event.next.turn, event.next.event);
                return Ok(Some(event));
            }
            self.changed.mark_unchanged();
            match self.step() {
                Step::Take(event) => return Ok(Some(FeedEvent { next: self.position(), event })),
                Step::ReadStore => self.read_store().await?,
                Step::End => return Ok(None),
                Step::Wait => {
                    tokio::select! {
                        // It cannot fail: the feed owns the sender.
                        _ = self.changed.changed() => {}
                        () = self.assistant.0.shutdown.cancelled() => return Ok(None),
                    }
                }
            }
        }
    }

    /// The position of the next event.
    pub fn position(&self) -> FeedPosition {
        FeedPosition { turn: self.next.0, event: self.next.1, process: self.assistant.0.feeds.process }
    }

    /// Takes the next event of the feed, or says what to do instead.
    fn step(&mut self) -> Step {
        let state = self.feed.state();
        if state.is_erased {
            return Step::End;
        }
        while let Some(turn) = state.turns.iter().find(|turn| turn.number >= self.next.0) {
            if turn.number > self.next.0 || turn.is_incomplete && turn.has_ended {
                // The store has the turns in between, and the messages of this one.
                return Step::ReadStore;
            }
            if turn.is_incomplete {
                return Step::Wait;
            }
            let event =
                turn.events.iter().enumerate().skip(self.next.1).find_map(|(at, slot)| Some((at, slot.clone()?)));
            let is_last = event.as_ref().is_none_or(|(at, _)| at + 1 == turn.events.len());
            self.next = match (&event, is_last && turn.has_ended) {
                (_, true) => (turn.number.saturating_add(1), 0),
                (Some((at, _)), false) => (turn.number, at + 1),
                (None, false) => return Step::Wait,
            };
            if let Some((_, event)) = event {
                return Step::Take(event);
            }
        }
        if self.reads_store { Step::ReadStore } else { Step::Wait }
    }

    /// Reads ended turns from the store, up to the first one that the feed has.
    async fn read_store(&mut self) -> Result<(), StoreError> {
        // First the feed: what it no longer has when the store is read, is in the store.
        let first_in_feed = |next: u64, state: &FeedState| {
            let turn = state.turns.iter().find(|turn| turn.number >= next);
            // Of an incomplete turn that has ended, the store has the messages; one that runs is waited for.
            turn.map(|turn| turn.number.saturating_add(u64::from(turn.is_incomplete && turn.has_ended)))
        };
        let mut in_feed = first_in_feed(self.next.0, &self.feed.state());
        let inner = self.assistant.0.clone();
        let mut turns = inner.store.latest_turns(&self.id, None, limits::FEED_HISTORY).await?;
        turns.reverse();
        let newest = turns.last().map_or(0, |turn| turn.turn.0);
        if in_feed.is_none() && self.next.0 > newest.saturating_add(1) {
            // The position is of a conversation that was erased.
            self.next = (0, 0);
            in_feed = first_in_feed(0, &self.feed.state());
        }
        let is_wanted = |turn: &TurnEvents| {
            let number = turn.turn.0;
            number > 0 && number >= self.next.0 && in_feed.is_none_or(|first| number < first)
        };
        let mut backlog = VecDeque::new();
        for TurnEvents { turn, events, .. } in turns.iter().filter(|turn| is_wanted(turn)) {
            let events = stored_events(&inner.runtime.project, *turn, events);
            let count = events.len();
            for (number, event) in (1..).zip(events) {
                // Within a stored turn there is no place to continue: after a break it is repeated.
                let next = if number == count { turn.0.saturating_add(1) } else { turn.0 };
                let next = FeedPosition { turn: next, event: 0, process: inner.feeds.process };
                backlog.push_back(FeedEvent { next, event: Arc::new(event) });
            }
        }
        if backlog.is_empty() {
            // Nothing is stored up to the turn that the feed has, or up to the next one.
            self.next = (in_feed.unwrap_or_else(|| newest.saturating_add(1).max(self.next.0)), 0);
        }
        self.reads_store = false;
        self.backlog = backlog;
        Ok(())
    }
}

impl Drop for TurnEventStream {
    fn drop(&mut self) {
        if self.feed.readers.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.feed.state().left_at = Some(self.assistant.0.clock.elapsed());
        }
    }
}

impl fmt::Debug for TurnEventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnEventStream").field("id", &self.id).field("next", &self.next).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::FutureExt as _;
    use segue_engine::conversation::{BotKind, Reply};

    use super::*;
    use crate::{conversation::ReplyKind, testing::ScriptedLlm};

    const TURN: TurnNumber = TurnNumber(1);

    fn assistant() -> Assistant {
        let files = [("config.yml", "recipe: default.v1\npolicies: [{name: FlowPolicy}]\n")];
        let model = Arc::new(ScriptedLlm::strict([""; 0]));
        Assistant::builder_from_texts(files).unwrap().model(model).build().unwrap()
    }

    fn begin(assistant: &Assistant) -> FeedWriter {
        let message = UserMessage {
            text: "hello".into(),
            message_id: "m".into(),
            input_channel: "rest".into(),
            via: "".into(),
            holds_writes: false,
            before_question: false,
            metadata: Default::default(),
        };
        let (tenant, account, conversation) = ("".into(), "".into(), "u".into());
        let inbound = InboxMessage { tenant, account, conversation, message, at: Default::default(), seed: 1 };
        FeedWriter::begin(&assistant.0, TURN, &inbound)
    }

    fn delta(text: &str) -> TurnEvent {
        TurnEvent::MessageDelta { id: "m".into(), text: text.into() }
    }

    fn end(text: &str) -> TurnEvent {
        let (id, message, kind) = ("m".into(), Box::new(Reply::text(text)), BotKind::Response);
        TurnEvent::MessageEnd { id, message, kind, interrupted: false }
    }

    /// The events that a reader has now.
    fn available(reader: &mut TurnEventStream) -> Vec<TurnEvent> {
        std::iter::from_fn(|| reader.next().now_or_never())
            .map(|next| (*next.unwrap().unwrap().event).clone())
            .collect()
    }

    #[tokio::test]
    async fn a_reader_gets_text_as_it_is_written_and_who_comes_after_the_end_of_a_message_gets_it_once() {
        let assistant = assistant();
        let mut reader = assistant.subscribe(&"u".into(), None).await.unwrap();
        let writer = begin(&assistant);
        assert_eq!(available(&mut reader).len(), 2, "started, and the message of the user");
        let start = TurnEvent::MessageStart { id: "m".into(), source: "agent:a".into(), kind: ReplyKind::Pending };
        writer.push(|| start.clone());
        writer.push(|| delta("Hel"));
        assert_eq!(available(&mut reader), [start.clone(), delta("Hel")]);
        writer.push(|| delta("lo"));
        let mut during = assistant.subscribe(&"u".into(), Some(FeedPosition::START)).await.unwrap();
        assert_eq!(available(&mut during)[2..], [start.clone(), delta("Hel"), delta("lo")]);
        writer.push(|| end("Hello"));
        assert_eq!(available(&mut reader), [end("Hello")], "the rest of the text is in the end of the message");
        let mut after = assistant.subscribe(&"u".into(), Some(FeedPosition::START)).await.unwrap();
        assert_eq!(available(&mut after)[2..], [start, end("Hello")]);
    }

    #[tokio::test]
    async fn a_turn_with_very_many_events_keeps_a_limited_number_and_its_messages() {
        let assistant = assistant();
        let reader = assistant.subscribe(&"u".into(), None).await.unwrap();
        let writer = begin(&assistant);
        (0..3 * limits::FEED_EVENTS).for_each(|_| writer.push(|| delta("x")));
        writer.push(|| end("xxx"));
        let count = |reader: &TurnEventStream| reader.feed.state().turns.back().map(|turn| turn.events.len());
        assert_eq!(count(&reader), Some(limits::FEED_EVENTS + 1), "further text is left out, the message is not");
        (0..3 * limits::FEED_EVENTS).for_each(|_| writer.push(|| end("xxx")));
        assert_eq!(count(&reader), Some(2 * limits::FEED_EVENTS));
        // Nothing more can be said of it from memory: the reader waits for its end, and then reads the store.
        let mut late = assistant.subscribe(&"u".into(), Some(FeedPosition::START)).await.unwrap();
        assert_eq!((available(&mut late), late.next), (Vec::new(), (TURN.0, 0)), "it waits for this turn");
    }

    #[tokio::test]
    async fn feeds_are_removed_some_time_after_their_last_reader_has_left() {
        let feeds = Feeds::new(1);
        let second = Duration::from_secs(1);
        let feed = feeds.join(&"u".into(), second);
        feed.readers.fetch_sub(1, Ordering::SeqCst);
        feed.state().left_at = Some(second);
        feeds.join(&"other".into(), limits::FEED_IDLE);
        assert!(feeds.get(&"u".into()).is_some(), "a page that is loaded again finds it");
        feeds.join(&"other".into(), limits::FEED_IDLE + second);
        assert!(feeds.get(&"u".into()).is_none() && feeds.get(&"other".into()).is_some());
    }
}
