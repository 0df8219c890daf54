//! The contract of a store as a test suite that runs against every implementation.
//!
//! The tests of an implementation call [`check`] with a function that creates empty stores. Tests that need files (two
//! handles, reopening, corrupt rows) are beside the implementation.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;

use segue_base::{context::StepKey, limits};
use segue_engine::{
    conversation::{BotKind, BotMessage, Conversation, Event, EventKind, FlowLocation, Reply, UserMessage},
    ids::{ConversationId, MessageId},
    time::Timestamp,
};

use serde_json::json;

use super::{
    AcceptOutcome, ConversationProblem, InboxMessage, JournalRecord, Store, StoreError, StoredReply, StoredText,
    TurnCommit, TurnEvents, TurnNumber, UnfinishedTurnSummary, Version,
};

/// Runs the whole suite; `make` returns an empty store each time.
///
/// # Panics
/// When the store violates the contract.
pub async fn check(make: impl Fn() -> Arc<dyn Store>) {
    duplicates(&*make()).await;
    duplicates_past_the_window(&*make()).await;
    first_turn_after_an_import(&*make()).await;
    version_guard(&*make()).await;
    a_refused_commit_stores_nothing(&*make()).await;
    journal_of_an_open_turn(&*make()).await;
    a_second_intent_is_refused(&*make()).await;
    announced_replies_are_stored(&*make()).await;
    a_second_commit_of_a_turn_is_refused(&*make()).await;
    ping_and_close_keep_the_store_usable(&*make()).await;
    lookups_of_single_turns(&*make()).await;
    conversations_with_work(&*make()).await;
    outbox(&*make()).await;
    delivered_replies_do_not_wait(&*make()).await;
    replies_equal_to_those_in_events(&*make()).await;
    outbox_is_bounded(&*make()).await;
    next_reminders(&*make()).await;
    snapshots(&*make()).await;
    turns_and_lists(&*make()).await;
    erase(&*make()).await;
    private_texts(&*make()).await;
    purge_expired(&*make()).await;
    future_timestamps_do_not_block_the_purge(&*make()).await;
    problems(&*make()).await;
    concurrent_conversations(make()).await;
}

/// A message of the conversation `id`, at second `at`.
pub fn message(id: &str, message_id: &str, at: i64) -> InboxMessage {
    InboxMessage {
        tenant: "".into(),
        account: "".into(),
        conversation: id.into(),
        message: UserMessage {
            via: "".into(),
            holds_writes: false,
            before_question: false,
            text: "hello \u{1f600}".into(),
            message_id: message_id.into(),
            input_channel: "rest".into(),
            metadata: serde_json::Map::new(),
        },
        at: Timestamp::from_micros(at * 1_000_000),
        seed: u64::MAX - 1,
    }
}

/// A small turn: a user event, a slot, and one reply named after the turn.
pub fn turn_commit(inbound: &InboxMessage, turn: TurnNumber) -> TurnCommit {
    let event = |kind| Event { at: inbound.at, kind, location: FlowLocation::default() };
    TurnCommit {
        turn,
        events: vec![
            event(EventKind::User(inbound.message.clone())),
            event(EventKind::Slot { name: "count".into(), value: turn.0.into(), filled_by: None, reset: false }),
        ],
        replies: vec![StoredReply {
            id: format!("{}-{}", inbound.conversation, turn.0).into(),
            reply: Reply::text("hi"),
            kind: BotKind::Response,
        }],
        ..TurnCommit::default()
    }
}

/// A record of the step `key`.
pub fn record(key: &str, outcome: Option<&str>) -> JournalRecord {
    JournalRecord {
        key: StepKey::new(key),
        kind: "tool".into(),
        request: "hash".into(),
        outcome: outcome.map(Into::into),
        at: Timestamp::from_micros(1),
        build: u64::MAX,
    }
}

/// Accepts a new message and appends its turn.
pub async fn complete_turn(store: &dyn Store, id: &str, message_id: &str, at: i64) -> TurnNumber {
    let inbound = message(id, message_id, at);
    let AcceptOutcome::New(turn) = store.accept(inbound.clone()).await.unwrap() else {
        panic!("not new: {message_id}")
    };
    let version = store.load(&id.into()).await.unwrap().version;
    let after = store.append(&id.into(), version, turn_commit(&inbound, turn)).await.unwrap();
    assert_eq!(after, Version(version.0 + 1));
    turn
}

fn ids(replies: &[StoredReply]) -> Vec<&str> {
    replies.iter().map(|reply| &*reply.id).collect()
}

async fn duplicates(store: &dyn Store) {
    let first = message("c", "m1", 1);
    assert_eq!(store.accept(first.clone()).await.unwrap(), AcceptOutcome::New(TurnNumber(1)));
    assert_eq!(store.accept(first.clone()).await.unwrap(), AcceptOutcome::Running(TurnNumber(1)));
    let id = ConversationId::from("c");
    assert_eq!(store.replies_to_message(&id, &"m1".into()).await.unwrap(), None);
    store.append(&id, Version(0), turn_commit(&first, TurnNumber(1))).await.unwrap();
    let AcceptOutcome::Answered(turn, replies) = store.accept(first.clone()).await.unwrap() else {
        panic!("not answered")
    };
    assert_eq!((turn, ids(&replies)), (TurnNumber(1), vec!["c-1"]));
    assert_eq!(replies[0].reply, Reply::text("hi"));
    assert_eq!(store.replies_to_message(&id, &"m1".into()).await.unwrap(), Some(replies));
    // The same id with another tenant, account, channel or conversation is another message.
    let elsewhere = |change: fn(&mut InboxMessage)| {
        let mut inbound = first.clone();
        change(&mut inbound);
        inbound
    };
    for other in [
        elsewhere(|inbound| inbound.tenant = "t".into()),
        elsewhere(|inbound| inbound.account = "t".into()),
        elsewhere(|inbound| inbound.message.input_channel = "t".into()),
        elsewhere(|inbound| inbound.conversation = "d".into()),
    ] {
        assert!(matches!(store.accept(other.clone()).await.unwrap(), AcceptOutcome::New(_)), "{other:?}");
        assert!(matches!(store.accept(other.clone()).await.unwrap(), AcceptOutcome::Running(_)), "{other:?}");
    }
    // Messages without an id are never duplicates.
    for turn in [5, 6] {
        assert_eq!(store.accept(message("c", "", 1)).await.unwrap(), AcceptOutcome::New(TurnNumber(turn)));
    }
}

/// After an import, commits have no turn. The first turn is then number 2, because turn 1 means that there is nothing
/// to load.
async fn first_turn_after_an_import(store: &dyn Store) {
    let id = ConversationId::from("imported");
    let batch = TurnCommit { turn: TurnNumber(0), ..turn_commit(&message("imported", "m0", 1), TurnNumber(0)) };
    store.append(&id, Version(0), batch).await.unwrap();
    assert_eq!(store.accept(message("imported", "m1", 2)).await.unwrap(), AcceptOutcome::New(TurnNumber(2)));
}

async fn duplicates_past_the_window(store: &dyn Store) {
    let long = i64::try_from(limits::DEDUP_WINDOW.as_secs()).unwrap();
    complete_turn(store, "d", "m", 10).await;
    // A lookup without sending the message again has the same result.
    for (at, known) in [(10 + long, true), (12 + long, false)] {
        store.purge_expired(Timestamp::from_micros(at * 1_000_000)).await.unwrap();
        assert_eq!(store.replies_to_message(&"d".into(), &"m".into()).await.unwrap().is_some(), known, "{at}");
        let again = store.accept(message("d", "m", at)).await.unwrap();
        assert_eq!(matches!(again, AcceptOutcome::Answered(..)), known, "{at}");
    }
    // The row may not be purged yet.
    complete_turn(store, "e", "m", 10).await;
    assert!(matches!(store.accept(message("e", "m", 10 + long)).await.unwrap(), AcceptOutcome::Answered(..)));
    assert_eq!(store.accept(message("e", "m", 11 + long)).await.unwrap(), AcceptOutcome::New(TurnNumber(2)));
    // A message that is not answered is never forgotten.
    let late = message("e", "m", 20 + 3 * long);
    assert_eq!(store.accept(late).await.unwrap(), AcceptOutcome::Running(TurnNumber(2)));
    assert_eq!(store.turns(&"e".into()).await.unwrap()[0].inbound, message("e", "m", 10));
}

async fn version_guard(store: &dyn Store) {
    let id = ConversationId::from("c");
    let inbound = message("c", "m", 1);
    store.accept(inbound.clone()).await.unwrap();
    let turn = TurnNumber(1);
    let (one, two) = tokio::join!(
        store.append(&id, Version(0), turn_commit(&inbound, turn)),
        store.append(&id, Version(0), turn_commit(&inbound, turn)),
    );
    let (won, lost) = if one.is_ok() { (one, two) } else { (two, one) };
    assert_eq!(won.unwrap(), Version(1));
    let Err(StoreError::Conflict { expected: Version(0), found: Version(1) }) = lost else { panic!("{lost:?}") };
    assert_eq!(store.load(&id).await.unwrap().tail, turn_commit(&inbound, turn).events, "once, not twice");
    let refused = store.append(&id, Version(7), turn_commit(&inbound, turn)).await;
    assert!(matches!(refused, Err(StoreError::Conflict { found: Version(1), .. })), "{refused:?}");
    // Events that answer no message.
    let free = TurnCommit { turn: TurnNumber(0), replies: Vec::new(), ..turn_commit(&inbound, turn) };
    assert_eq!(store.append(&id, Version(1), free.clone()).await.unwrap(), Version(2));
    assert_eq!(store.append(&"new".into(), Version(0), free).await.unwrap(), Version(1));
}

async fn a_refused_commit_stores_nothing(store: &dyn Store) {
    let id = ConversationId::from("c");
    complete_turn(store, "c", "m1", 1).await;
    let inbound = message("c", "m2", 2);
    store.accept(inbound.clone()).await.unwrap();
    let full = TurnCommit {
        journal: vec![record("late", Some("1"))],
        texts: vec![StoredText { hash: "h".into(), text: "late".into() }],
        snapshot: Some(Conversation::new(id.clone())),
        trace: Some("{}".to_owned()),
        ..turn_commit(&inbound, TurnNumber(2))
    };
    store.append(&id, Version(0), full).await.unwrap_err();
    let stored = store.load(&id).await.unwrap();
    assert_eq!((stored.version, stored.tail.len(), stored.snapshot), (Version(1), 2, None));
    assert_eq!(ids(&store.pending_replies(&id).await.unwrap()), ["c-1"]);
    assert_eq!(store.text_by_hash(&id, "h").await.unwrap(), None);
    let open = store.unfinished_turns(&id).await.unwrap();
    assert_eq!((open.len(), open[0].journal.len()), (1, 0));
    // A turn that was never accepted.
    let refused = store.append(&"unknown".into(), Version(0), turn_commit(&inbound, TurnNumber(1))).await;
    assert!(matches!(refused, Err(StoreError::TurnNotOpen { .. })), "{refused:?}");
    let refused = store.append_journal(&"unknown".into(), TurnNumber(1), vec![record("a", None)]).await;
    assert!(matches!(refused, Err(StoreError::TurnNotOpen { .. })), "{refused:?}");
    assert_eq!(store.conversations(9).await.unwrap(), std::slice::from_ref(&id));
}

async fn journal_of_an_open_turn(store: &dyn Store) {
    let id = ConversationId::from("c");
    store.accept(message("c", "m", 1)).await.unwrap();
    let turn = TurnNumber(1);
    store.append_journal(&id, turn, vec![record("b", Some("1")), record("a", None)]).await.unwrap();
    store.append_journal(&id, turn, vec![record("a", Some("2"))]).await.unwrap();
    store.append_journal(&id, turn, vec![record("c", None)]).await.unwrap();
    let open = store.unfinished_turns(&id).await.unwrap();
    let mut journal = open[0].journal.clone();
    journal.sort_by(|a, b| a.key.cmp(&b.key));
    assert_eq!(journal, [record("a", Some("2")), record("b", Some("1")), record("c", None)]);
    let inbound = message("c", "m", 1);
    let last =
        TurnCommit { journal: vec![record("c", Some("3")), record("d", Some("4"))], ..turn_commit(&inbound, turn) };
    store.append(&id, Version(0), last).await.unwrap();
    let mut journal = store.turns(&id).await.unwrap()[0].journal.clone();
    journal.sort_by(|a, b| a.key.cmp(&b.key));
    let expected = [("a", "2"), ("b", "1"), ("c", "3"), ("d", "4")].map(|(key, outcome)| record(key, Some(outcome)));
    assert_eq!(journal, expected);
}

/// Announced replies are known of open and of committed turns.
async fn announced_replies_are_stored(store: &dyn Store) {
    let id = ConversationId::from("c");
    for turn in [1, 2] {
        store.accept(message("c", &format!("m{turn}"), 1)).await.unwrap();
        let announced = super::announce_reply(&format!("{turn}/r0"), Timestamp::from_micros(1), 7);
        store.append_journal(&id, TurnNumber(turn), vec![announced]).await.unwrap();
    }
    let announced =
        |journal: &[JournalRecord]| super::announced_replies(journal).map(ToString::to_string).collect::<Vec<_>>();
    let open = store.unfinished_turns(&id).await.unwrap();
    assert_eq!(open.iter().map(|open| announced(&open.journal)).collect::<Vec<_>>(), [["1/r0"], ["2/r0"]]);
    store.append(&id, Version(0), turn_commit(&message("c", "m1", 1), TurnNumber(1))).await.unwrap();
    assert_eq!(announced(&store.turns(&id).await.unwrap()[0].journal), ["1/r0"]);
    assert_eq!(announced(&store.unfinished_turns(&id).await.unwrap()[0].journal), ["2/r0"]);
}

/// A second run of the same turn must not perform the same step.
async fn a_second_intent_is_refused(store: &dyn Store) {
    let id = ConversationId::from("c");
    store.accept(message("c", "m", 1)).await.unwrap();
    store.accept(message("d", "m", 1)).await.unwrap();
    let turn = TurnNumber(1);
    let mark = || JournalRecord { kind: "speaking".into(), ..record("speaking/r0", None) };
    store.append_journal(&id, turn, vec![record("a", Some("1")), record("b", None)]).await.unwrap();
    store.append_journal(&id, turn, vec![mark()]).await.unwrap();
    for (again, key) in [(vec![record("b", None)], "b"), (vec![record("c", Some("1")), record("a", None)], "a")] {
        let refused = store.append_journal(&id, turn, again).await.unwrap_err();
        assert!(
            matches!(&refused, StoreError::StepAlreadyStarted { turn: 1, key: of } if of.as_str() == key),
            "{refused}"
        );
        assert_eq!(store.unfinished_turns(&id).await.unwrap()[0].journal.len(), 3, "nothing of the call is stored");
    }
    store.append_journal(&id, turn, vec![record("b", Some("2")), mark()]).await.unwrap();
    store.append_journal(&id, turn, vec![record("b", Some("2")), record("c", None)]).await.unwrap();
    let other = JournalRecord { build: 1, ..record("b", None) };
    store.append_journal(&id, turn, vec![other]).await.unwrap();
    store.append_journal(&"d".into(), turn, vec![record("b", None)]).await.unwrap();
    // A committed turn starts no more steps, and its journal does not change.
    store.append(&id, Version(0), turn_commit(&message("c", "m", 1), turn)).await.unwrap();
    for late in [record("d", None), record("c", Some("3"))] {
        let refused = store.append_journal(&id, turn, vec![late]).await.unwrap_err();
        assert!(matches!(refused, StoreError::TurnNotOpen { turn: 1, .. }), "{refused}");
    }
    assert!(store.turns(&id).await.unwrap()[0].journal.contains(&record("c", None)));
}

async fn a_second_commit_of_a_turn_is_refused(store: &dyn Store) {
    let (id, inbound) = (ConversationId::from("c"), message("c", "m", 1));
    store.accept(inbound.clone()).await.unwrap();
    store.append(&id, Version(0), turn_commit(&inbound, TurnNumber(1))).await.unwrap();
    let refused = store.append(&id, Version(1), turn_commit(&inbound, TurnNumber(1))).await.unwrap_err();
    assert!(matches!(refused, StoreError::TurnNotOpen { turn: 1, .. }), "{refused}");
    assert_eq!(store.load(&id).await.unwrap().version, Version(1));
}

async fn ping_and_close_keep_the_store_usable(store: &dyn Store) {
    complete_turn(store, "c", "m1", 1).await;
    store.ping().await.unwrap();
    store.ping().await.unwrap();
    store.close().await.unwrap();
    store.ping().await.unwrap();
    complete_turn(store, "c", "m2", 2).await;
    assert_eq!(store.conversations(9).await.unwrap(), ["c"]);
}

async fn lookups_of_single_turns(store: &dyn Store) {
    const STRANGE: &str = "m \"1\" \\ \u{f6}\n";
    let id = ConversationId::from("c");
    assert_eq!(store.replies_of(&id, TurnNumber(1)).await.unwrap(), None, "there is no such conversation");
    // Two messages without an id, and two with one id on two channels: only the turn number distinguishes them.
    for (n, message_id, channel) in [(1, "", "rest"), (2, "", "rest"), (3, STRANGE, "rest"), (4, STRANGE, "other")] {
        let mut inbound = message("c", message_id, n);
        inbound.message.input_channel = channel.into();
        assert_eq!(store.accept(inbound).await.unwrap(), AcceptOutcome::New(TurnNumber(n as u64)));
    }
    for (version, turn) in [(0, 1), (1, 3)] {
        store.append(&id, Version(version), turn_commit(&message("c", "", 1), TurnNumber(turn))).await.unwrap();
    }
    for (turn, reply) in [(1, Some("c-1")), (2, None), (3, Some("c-3")), (4, None), (5, None)] {
        let replies = store.replies_of(&id, TurnNumber(turn)).await.unwrap();
        assert_eq!(replies.as_deref().map(ids), reply.map(|id| vec![id]), "{turn}");
    }
    let answered = async |message: &str| store.replies_to_message(&id, &message.into()).await.unwrap();
    assert_eq!(answered(STRANGE).await.as_deref().map(ids), Some(vec!["c-3"]), "the other one is open");
    assert_eq!((answered("m").await, answered("1").await), (None, None));
    store.append_journal(&id, TurnNumber(2), vec![record("a", None)]).await.unwrap();
    let open = async |from, to| {
        let open = store.unfinished_turns_in(&id, TurnNumber(from)..TurnNumber(to)).await.unwrap();
        open.iter().map(|open| (open.turn.0, open.inbound.at, open.journal.len())).collect::<Vec<_>>()
    };
    let at = |second: i64| Timestamp::from_micros(second * 1_000_000);
    assert_eq!(open(0, u64::MAX).await, [(2, at(2), 1), (4, at(4), 0)], "oldest first");
    assert_eq!((open(0, 4).await, open(4, 5).await), (vec![(2, at(2), 1)], vec![(4, at(4), 0)]));
    assert_eq!((open(1, 2).await, open(3, 4).await), (vec![], vec![]));
    let all = store.unfinished_turns(&id).await.unwrap();
    assert_eq!(all, store.unfinished_turns_in(&id, TurnNumber(0)..TurnNumber(u64::MAX)).await.unwrap());
}

async fn conversations_with_work(store: &dyn Store) {
    for id in ["a", "b", "c"] {
        complete_turn(store, id, "m1", 1).await;
        store.mark_delivered(&id.into(), vec![format!("{id}-1").into()]).await.unwrap();
    }
    assert!(store.conversations_with_work().await.unwrap().is_empty());
    for (n, text) in [(2, "m2"), (3, "m3")] {
        assert_eq!(store.accept(message("b", text, n)).await.unwrap(), AcceptOutcome::New(TurnNumber(n as u64)));
    }
    assert_eq!(store.conversations_with_work().await.unwrap(), ["b"]);
    let open = store.unfinished_turns(&"b".into()).await.unwrap();
    assert_eq!(open.iter().map(|open| open.turn.0).collect::<Vec<_>>(), [2, 3], "oldest first");
    assert_eq!(open[1].inbound, message("b", "m3", 3));
    assert_eq!(store.unfinished_turns(&"a".into()).await.unwrap(), []);
    assert_eq!(store.unfinished_turns(&"unknown".into()).await.unwrap(), []);
    // An undelivered reply is work, too.
    complete_turn(store, "c", "m2", 4).await;
    assert_eq!(store.conversations_with_work().await.unwrap(), ["c", "b"], "those that were active last come first");
}

async fn outbox(store: &dyn Store) {
    let id = ConversationId::from("c");
    complete_turn(store, "c", "m1", 1).await;
    complete_turn(store, "c", "m2", 2).await;
    let waiting = store.pending_replies(&id).await.unwrap();
    assert_eq!(ids(&waiting), ["c-1", "c-2"], "oldest first");
    store.mark_delivered(&id, vec!["c-1".into(), "unknown".into()]).await.unwrap();
    assert_eq!(ids(&store.pending_replies(&id).await.unwrap()), ["c-2"]);
    store.mark_delivered(&id, vec!["c-1".into(), "c-2".into()]).await.unwrap();
    assert_eq!(store.pending_replies(&id).await.unwrap(), []);
    store.mark_delivered(&"unknown".into(), vec!["x".into()]).await.unwrap();
    assert_eq!(store.pending_replies(&"unknown".into()).await.unwrap(), []);
}

async fn delivered_replies_do_not_wait(store: &dyn Store) {
    let id = ConversationId::from("c");
    let reply = |id: &str| StoredReply { id: id.into(), reply: Reply::text("x"), kind: BotKind::Response };
    let replies = vec![reply("seen"), reply("new")];
    let batch = TurnCommit { replies: replies.clone(), delivered: vec!["seen".into()], ..TurnCommit::default() };
    store.append(&id, Version(0), batch).await.unwrap();
    assert_eq!(ids(&store.pending_replies(&id).await.unwrap()), ["new"]);
    assert_eq!(store.turns(&id).await.unwrap()[0].replies, replies, "both are stored");
}

/// A turn with two bot messages, one of which has an id of its own, and the replies made from them.
pub fn turn_with_two_replies(inbound: &InboxMessage, turn: TurnNumber) -> TurnCommit {
    let bot = |text: &str, reply_id: Option<&str>| {
        let reply = Reply { quick_replies: vec![json!({"title": text})], ..Reply::text(text) };
        let kind = EventKind::bot(BotMessage { reply, reply_id: reply_id.map(Into::into), ..BotMessage::default() });
        Event { at: inbound.at, kind, location: FlowLocation::default() }
    };
    let user =
        Event { at: inbound.at, kind: EventKind::User(inbound.message.clone()), location: FlowLocation::default() };
    let events = vec![user, bot("one", Some("own")), bot("two", None)];
    let replies = StoredReply::from_events(turn, 0, &events).collect();
    TurnCommit { turn, events, replies, ..TurnCommit::default() }
}

async fn replies_equal_to_those_in_events(store: &dyn Store) {
    let (id, first) = (ConversationId::from("c"), message("c", "m1", 1));
    store.accept(first.clone()).await.unwrap();
    let whole = turn_with_two_replies(&first, TurnNumber(1));
    assert_eq!(ids(&whole.replies), ["own", "1/r1"]);
    store.append(&id, Version(0), whole.clone()).await.unwrap();
    // Here the replies differ from those in the events.
    let second = message("c", "m2", 2);
    store.accept(second.clone()).await.unwrap();
    let mut other = turn_with_two_replies(&second, TurnNumber(2));
    other.replies.truncate(1);
    store.append(&id, Version(1), other.clone()).await.unwrap();
    let stored: Vec<_> = store.turns(&id).await.unwrap().into_iter().map(|turn| turn.replies).collect();
    assert_eq!(stored, [whole.replies.clone(), other.replies.clone()]);
    let waiting = [&whole.replies[..], &other.replies[..]].concat();
    assert_eq!(store.pending_replies(&id).await.unwrap(), waiting);
    assert_eq!(
        store.accept(first.clone()).await.unwrap(),
        AcceptOutcome::Answered(TurnNumber(1), whole.replies.clone())
    );
    assert_eq!(store.replies_to_message(&id, &"m1".into()).await.unwrap(), Some(whole.replies));
    assert_eq!(store.replies_to_message(&id, &"m2".into()).await.unwrap(), Some(other.replies));
}

async fn outbox_is_bounded(store: &dyn Store) {
    let id = ConversationId::from("c");
    let reply = |n| StoredReply { id: format!("r{n}").into(), reply: Reply::text("x"), kind: BotKind::Response };
    let many = TurnCommit { replies: (0..limits::OUTBOX + 2).map(reply).collect(), ..TurnCommit::default() };
    store.append(&id, Version(0), many).await.unwrap();
    let waiting = store.pending_replies(&id).await.unwrap();
    assert_eq!((waiting.len(), &*waiting[0].id), (limits::OUTBOX, "r2"));
}

async fn snapshots(store: &dyn Store) {
    let id = ConversationId::from("c");
    let mut all = Vec::new();
    for n in 1..=6 {
        let inbound = message("c", &format!("m{n}"), n);
        let AcceptOutcome::New(turn) = store.accept(inbound.clone()).await.unwrap() else { panic!() };
        let mut batch = turn_commit(&inbound, turn);
        all.extend(batch.events.clone());
        batch.snapshot = (n % 3 == 1).then(|| Conversation::fold(id.clone(), &all));
        store.append(&id, Version(turn.0 - 1), batch).await.unwrap();
        let stored = store.load(&id).await.unwrap();
        assert_eq!(stored.tail.len() as i64, 2 * ((n - 1) % 3), "only what came after the snapshot");
        let mut conversation = stored.snapshot.unwrap();
        stored.tail.iter().for_each(|event| conversation.apply(event));
        assert_eq!(conversation, Conversation::fold(id.clone(), &all));
    }
}

async fn turns_and_lists(store: &dyn Store) {
    let id = ConversationId::from("c");
    let inbound = message("c", "m1", 1);
    store.accept(inbound.clone()).await.unwrap();
    let body = StoredText { hash: "h".into(), text: "a prompt".into() };
    let whole = TurnCommit {
        journal: vec![record("llm.0", Some("\"x\""))],
        trace: Some("{\"why\":[]}".to_owned()),
        texts: vec![body.clone(), body],
        ..turn_commit(&inbound, TurnNumber(1))
    };
    store.append(&id, Version(0), whole.clone()).await.unwrap();
    complete_turn(store, "c", "m2", 2).await;
    let turns = store.turns(&id).await.unwrap();
    assert_eq!(turns.iter().map(|turn| turn.turn.0).collect::<Vec<_>>(), [1, 2]);
    let first = &turns[0];
    assert_eq!((&first.inbound, &first.events, &first.replies), (&inbound, &whole.events, &whole.replies));
    assert_eq!((&first.journal, &first.trace), (&whole.journal, &whole.trace));
    assert_eq!((turns[1].journal.len(), &turns[1].trace), (0, &None));
    store.accept(message("c", "open", 2)).await.unwrap();
    for turn in [0, 3, 4, u64::MAX] {
        assert_eq!(store.turn(&id, TurnNumber(turn)).await.unwrap(), None, "turn {turn} is open or no turn");
    }
    for turn in &turns {
        assert_eq!(store.turn(&id, turn.turn).await.unwrap().as_ref(), Some(turn));
    }
    assert_eq!(store.turn(&"unknown".into(), TurnNumber(1)).await.unwrap(), None);
    assert_eq!(store.text_by_hash(&id, "h").await.unwrap().as_deref(), Some("a prompt"));
    assert_eq!(store.text_by_hash(&"d".into(), "h").await.unwrap(), None, "bodies belong to one conversation");
    complete_turn(store, "d", "m", 3).await;
    assert_eq!(store.conversations(9).await.unwrap(), ["d", "c"], "newest first");
    complete_turn(store, "c", "m3", 4).await;
    assert_eq!(store.conversations(1).await.unwrap(), ["c"]);
    let all: Vec<_> = store.turns(&id).await.unwrap().into_iter().flat_map(|turn| turn.events).collect();
    assert_eq!(store.latest_events(&id, usize::MAX).await.unwrap(), all);
    for most in [0, 1, all.len() - 1, all.len()] {
        let latest = store.latest_events(&id, most).await.unwrap();
        assert_eq!(latest, all[all.len() - most..], "the latest {most} events, oldest first");
    }
    assert_eq!(store.latest_events(&"unknown".into(), 5).await.unwrap(), []);
    let mut wanted: Vec<_> = store.turns(&id).await.unwrap().into_iter().map(|turn| (turn.turn, turn.events)).collect();
    wanted.reverse();
    let versions = |turns: &[TurnEvents]| turns.iter().map(|turn| turn.version.0).collect::<Vec<_>>();
    let newest_events = store.latest_turns(&id, None, 2).await.unwrap();
    let rest = store.latest_turns(&id, Some(newest_events[1].version), 2).await.unwrap();
    assert_eq!(
        (versions(&newest_events), versions(&rest)),
        (vec![3, 2], vec![1]),
        "pages follow each other, newest first"
    );
    assert_eq!(store.latest_turns(&id, Some(Version(1)), 2).await.unwrap(), []);
    let latest = store.latest_turns(&id, None, usize::MAX).await.unwrap();
    assert_eq!(versions(&latest), [3, 2, 1]);
    assert_eq!(latest.into_iter().map(|turn| (turn.turn, turn.events)).collect::<Vec<_>>(), wanted);
    assert_eq!(store.latest_turns(&"unknown".into(), None, 5).await.unwrap(), []);
    let nothing = store.load(&"unknown".into()).await.unwrap();
    assert_eq!((nothing.version, nothing.tail.len(), nothing.snapshot), (Version(0), 0, None));
    assert_eq!(store.turns(&"unknown".into()).await.unwrap(), []);
}

async fn erase(store: &dyn Store) {
    let id = ConversationId::from("c");
    complete_turn(store, "c", "m1", 1).await;
    complete_turn(store, "d", "m1", 1).await;
    let inbound = message("c", "m2", 2);
    store.accept(inbound.clone()).await.unwrap();
    store.append_journal(&id, TurnNumber(2), vec![record("a", None)]).await.unwrap();
    let bodies = vec![StoredText { hash: "h".into(), text: "x".into() }];
    store.append(&id, Version(1), TurnCommit { texts: bodies, ..TurnCommit::default() }).await.unwrap();
    store.erase(&id).await.unwrap();
    assert_eq!(store.load(&id).await.unwrap().version, Version(0));
    assert_eq!(store.conversations(9).await.unwrap(), ["d"]);
    assert_eq!(store.text_by_hash(&id, "h").await.unwrap(), None);
    assert_eq!((store.turns(&id).await.unwrap(), store.pending_replies(&id).await.unwrap()), (vec![], vec![]));
    assert_eq!(store.replies_to_message(&id, &MessageId::from("m1")).await.unwrap(), None);
    // A turn that was running cannot restore it.
    for after in [Version(0), Version(2)] {
        store.append(&id, after, turn_commit(&inbound, TurnNumber(2))).await.unwrap_err();
    }
    store.append_journal(&id, TurnNumber(2), vec![record("a", None)]).await.unwrap_err();
    assert_eq!(store.conversations(9).await.unwrap(), ["d"]);
    assert_eq!(
        store.accept(message("c", "m1", 3)).await.unwrap(),
        AcceptOutcome::New(TurnNumber(1)),
        "a new conversation"
    );
    assert_eq!(store.unfinished_turns(&id).await.unwrap()[0].journal, []);
}

async fn private_texts(store: &dyn Store) {
    let (id, at) = (ConversationId::from("c"), |second: i64| Timestamp::from_micros(second * 1_000_000));
    let of = async |name: &str| store.private_text(&id, name).await.unwrap();
    complete_turn(store, "c", "m1", 1).await;
    complete_turn(store, "d", "m1", 1).await;
    assert_eq!(of("a").await, None);
    for text in ["first", "second"] {
        store.set_private_text(&id, "a", Some(text.to_owned()), at(1)).await.unwrap();
        store.set_private_text(&id, "b", Some(text.to_owned()), at(1)).await.unwrap();
    }
    assert_eq!((of("a").await.as_deref(), of("b").await.as_deref()), (Some("second"), Some("second")));
    assert_eq!(store.private_text(&"d".into(), "a").await.unwrap(), None, "each conversation has its own");
    store.set_private_text(&id, "a", None, at(2)).await.unwrap();
    assert_eq!((of("a").await, of("b").await.as_deref()), (None, Some("second")));
    let month = i64::try_from(limits::JOURNAL_RETENTION.as_secs()).unwrap();
    store.set_private_text(&id, "a", Some("new".to_owned()), at(month)).await.unwrap();
    store.purge_expired(at(month + 50)).await.unwrap();
    assert_eq!((of("a").await.as_deref(), of("b").await), (Some("new"), None));
    store.erase(&id).await.unwrap();
    complete_turn(store, "c", "m1", 1).await;
    assert_eq!(of("a").await, None, "deleted with its conversation");
    // A conversation that does not exist has no private texts.
    store.set_private_text(&"unknown".into(), "a", Some("x".to_owned()), at(1)).await.unwrap();
    assert!(!store.conversations(9).await.unwrap().contains(&"unknown".into()));
}

async fn next_reminders(store: &dyn Store) {
    let at = |second: i64| Timestamp::from_micros(second * 1_000_000);
    let set = async |id: &str, version: u64, timer: Option<Option<Timestamp>>| {
        let inbound = message(id, &format!("m{version}"), 1);
        let AcceptOutcome::New(turn) = store.accept(inbound.clone()).await.unwrap() else { panic!("not new") };
        store
            .append(&id.into(), Version(version), TurnCommit { next_reminder: timer, ..turn_commit(&inbound, turn) })
            .await
            .unwrap();
    };
    assert_eq!(store.next_reminders(9).await.unwrap(), []);
    set("a", 0, Some(Some(at(30)))).await;
    set("b", 0, Some(Some(at(10)))).await;
    set("c", 0, None).await;
    assert_eq!(store.next_reminders(9).await.unwrap(), [("b".into(), at(10)), ("a".into(), at(30))]);
    assert_eq!(store.next_reminders(1).await.unwrap(), [("b".into(), at(10))]);
    set("a", 1, Some(Some(at(5)))).await;
    set("b", 1, None).await;
    assert_eq!(
        store.next_reminders(9).await.unwrap(),
        [("a".into(), at(5)), ("b".into(), at(10))],
        "a turn that says nothing"
    );
    // A failed append changes nothing.
    store
        .append(&"a".into(), Version(0), TurnCommit { next_reminder: Some(None), ..TurnCommit::default() })
        .await
        .unwrap_err();
    set("b", 2, Some(None)).await;
    assert_eq!(store.next_reminders(9).await.unwrap(), [("a".into(), at(5))]);
    store.erase(&"a".into()).await.unwrap();
    assert_eq!(store.next_reminders(9).await.unwrap(), []);
}

async fn purge_expired(store: &dyn Store) {
    let month = i64::try_from(limits::JOURNAL_RETENTION.as_secs()).unwrap();
    let id = ConversationId::from("c");
    let traced = |inbound: &InboxMessage, turn| TurnCommit {
        journal: vec![record("a", Some("1"))],
        trace: Some("{}".to_owned()),
        ..turn_commit(inbound, turn)
    };
    for (n, at) in [(1, 0), (2, 100)] {
        let inbound = message("c", &format!("m{n}"), at);
        store.accept(inbound.clone()).await.unwrap();
        store.append_journal(&id, TurnNumber(n), vec![record("b", Some("2"))]).await.unwrap();
        store.append(&id, Version(n - 1), traced(&inbound, TurnNumber(n))).await.unwrap();
    }
    store.accept(message("c", "m3", 0)).await.unwrap();
    store.append_journal(&id, TurnNumber(3), vec![record("a", None)]).await.unwrap();
    let now = Timestamp::from_micros((month + 50) * 1_000_000);
    assert!(store.purge_expired(now).await.unwrap() > 0);
    let turns = store.turns(&id).await.unwrap();
    assert_eq!((turns[0].journal.len(), &turns[0].trace), (0, &None), "past its retention");
    assert_eq!(turns[0].events.len(), 2, "events stay");
    assert_eq!(turns[0].inbound.message, message("c", "m1", 0).message, "the events tell the message");
    assert_eq!((turns[1].journal.len(), turns[1].trace.is_some()), (2, true));
    assert_eq!(store.unfinished_turns(&id).await.unwrap()[0].journal.len(), 1, "what is not finished never expires");
    assert_eq!(store.accept(message("c", "m1", 0)).await.unwrap(), AcceptOutcome::New(TurnNumber(4)));
    assert_eq!(store.purge_expired(now).await.unwrap(), 0);
}

async fn future_timestamps_do_not_block_the_purge(store: &dyn Store) {
    let month = i64::try_from(limits::JOURNAL_RETENTION.as_secs()).unwrap();
    let id = ConversationId::from("c");
    for (n, at) in [(1, 0), (2, 100 * month), (3, 10), (4, month)] {
        let inbound = message("c", &format!("m{n}"), at);
        store.accept(inbound.clone()).await.unwrap();
        let traced = TurnCommit { trace: Some("{}".to_owned()), ..turn_commit(&inbound, TurnNumber(n)) };
        store.append(&id, Version(n - 1), traced).await.unwrap();
    }
    store.purge_expired(Timestamp::from_micros((month + 50) * 1_000_000)).await.unwrap();
    let turns = store.turns(&id).await.unwrap();
    let traced = [0, 2, 3].map(|turn: usize| turns[turn].trace.is_some());
    assert_eq!(traced, [false, false, true], "later batches are purged too");
}

async fn problems(store: &dyn Store) {
    complete_turn(store, "fine", "m1", 1).await;
    store.mark_delivered(&"fine".into(), vec!["fine-1".into()]).await.unwrap();
    assert_eq!(store.problems().await.unwrap(), []);
    complete_turn(store, "b", "m1", 1).await;
    store.accept(message("b", "m2", 2)).await.unwrap();
    store.accept(message("a", "m1", 3)).await.unwrap();
    let tried = JournalRecord { kind: "attempts".into(), ..record("2/attempts", Some("3")) };
    store.append_journal(&"b".into(), TurnNumber(2), vec![tried]).await.unwrap();
    let open = |turn, second: i64, attempts| UnfinishedTurnSummary {
        turn: TurnNumber(turn),
        at: Timestamp::from_micros(second * 1_000_000),
        attempts,
    };
    let trouble = |id: &str, open, pending_replies| ConversationProblem {
        conversation: id.into(),
        unfinished_turns: open,
        pending_replies,
        corruption: None,
    };
    let expected = [trouble("a", vec![open(1, 3, 1)], 0), trouble("b", vec![open(2, 2, 3)], 1)];
    assert_eq!(store.problems().await.unwrap(), expected);
}

async fn concurrent_conversations(store: Arc<dyn Store>) {
    let talks = (0..32).map(|n| {
        let store = store.clone();
        async move {
            let id = format!("c{n}");
            for turn in 1..=8 {
                assert_eq!(complete_turn(&*store, &id, &format!("m{turn}"), turn).await.0, turn as u64);
            }
            let events = store.load(&id.as_str().into()).await.unwrap().tail;
            assert_eq!(events.len(), 16);
        }
    });
    futures::future::join_all(talks).await;
    assert_eq!(store.conversations(100).await.unwrap().len(), 32);
}
