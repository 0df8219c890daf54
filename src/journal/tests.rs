#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::time::Duration;

use async_trait::async_trait;
use segue_engine::ids::ConversationId;

use super::*;
use crate::{
    clock::{Clock, Deadline},
    store::{
        AcceptOutcome, MemoryStore, Store, TurnCommit, TurnNumber, Version, announced_replies, attempts, contract,
    },
};

/// A clock that does not advance.
struct Still;

#[async_trait]
impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(5)
    }
    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
    async fn sleep(&self, _: Deadline) {
        std::future::pending().await
    }
}

const BUILD: u64 = 7;

struct World {
    store: Arc<MemoryStore>,
    id: ConversationId,
}

impl World {
    async fn new() -> Self {
        let store = Arc::new(MemoryStore::new());
        let accepted = store.accept(contract::message("c", "m", 1)).await.unwrap();
        assert_eq!(accepted, AcceptOutcome::New(TurnNumber(1)));
        Self { store, id: "c".into() }
    }

    /// The records that a new process finds.
    async fn recorded(&self) -> Vec<JournalRecord> {
        self.store.unfinished_turns(&self.id).await.unwrap()[0].journal.clone()
    }

    async fn stored(&self) -> Vec<(String, bool)> {
        let mut stored: Vec<_> =
            self.recorded().await.iter().map(|r| (r.key.to_string(), r.outcome.is_some())).collect();
        stored.sort();
        stored
    }

    async fn journal(&self, build: u64) -> TurnJournal {
        let store: Arc<dyn Store> = self.store.clone();
        TurnJournal::new(store, self.id.clone(), TurnNumber(1), build, Arc::new(Still), self.recorded().await)
    }
}

fn step<'a>(key: &'a StepKey, kind: &'a str, class: EffectClass, request: &'a str) -> Step<'a> {
    Step { key, kind, class, request }
}

fn key(text: &str) -> StepKey {
    StepKey::new(text)
}

fn at() -> Timestamp {
    Timestamp::from_micros(9)
}

fn done(outcome: &str) -> StepStart {
    StepStart::Replay { outcome: outcome.into(), at: at() }
}

#[tokio::test]
async fn read_is_written_with_the_next_commit() {
    let world = World::new().await;
    let journal = world.journal(BUILD).await;
    assert_eq!(journal.begin(step(&key("llm.0"), "llm", EffectClass::Read, "h")).await.unwrap(), StepStart::Run);
    journal.finish(&key("llm.0"), "1".into(), at()).await.unwrap();
    assert_eq!(world.stored().await, []);
    assert_eq!(journal.begin(step(&key("llm.0"), "llm", EffectClass::Read, "h")).await.unwrap(), done("1"));

    assert_eq!(journal.begin(step(&key("tool.0"), "tool", EffectClass::Write, "h")).await.unwrap(), StepStart::Run);
    let expected = [("llm.0".to_owned(), true), ("tool.0".to_owned(), false)];
    assert_eq!(world.stored().await, expected, "the answer is stored before what it decided");
    journal.finish(&key("tool.0"), "2".into(), at()).await.unwrap();
    assert!(world.stored().await[1].1, "the outcome of a write is durable at once");
    assert_eq!(journal.pending(), []);
}

#[tokio::test]
async fn pending_outcomes_are_part_of_the_commit() {
    let world = World::new().await;
    let journal = world.journal(BUILD).await;
    journal.begin(step(&key("llm.0"), "llm", EffectClass::Read, "h")).await.unwrap();
    journal.finish(&key("llm.0"), "1".into(), at()).await.unwrap();
    let pending = journal.pending();
    assert_eq!((pending.len(), pending[0].outcome.as_deref(), pending[0].build), (1, Some("1"), BUILD));
    let batch = TurnCommit { turn: TurnNumber(1), journal: pending.clone(), ..TurnCommit::default() };
    world.store.append(&world.id, Version(0), batch).await.unwrap();
    assert_eq!(world.store.turns(&world.id).await.unwrap()[0].journal, pending);
}

#[tokio::test]
async fn each_effect_class_has_its_recovery_rule() {
    let world = World::new().await;
    let first = world.journal(BUILD).await;
    for (name, effect) in [
        ("read", EffectClass::Read),
        ("same", EffectClass::Idempotent),
        ("once", EffectClass::Write),
        ("done", EffectClass::Write),
    ] {
        assert_eq!(first.begin(step(&key(name), "tool", effect, "h")).await.unwrap(), StepStart::Run);
    }
    first.finish(&key("done"), "1".into(), at()).await.unwrap();
    drop(first);

    let second = world.journal(BUILD).await;
    assert_eq!(second.begin(step(&key("read"), "tool", EffectClass::Read, "h")).await.unwrap(), StepStart::Run);
    assert_eq!(second.begin(step(&key("same"), "tool", EffectClass::Idempotent, "h")).await.unwrap(), StepStart::Run);
    assert_eq!(second.begin(step(&key("once"), "tool", EffectClass::Write, "h")).await.unwrap(), StepStart::Unknown);
    assert_eq!(second.begin(step(&key("done"), "tool", EffectClass::Write, "h")).await.unwrap(), done("1"));
    // The outcome recorded for the unknown step is replayed like any other.
    second.finish(&key("once"), "\"unknown\"".into(), at()).await.unwrap();
    let third = world.journal(BUILD).await;
    assert_eq!(third.begin(step(&key("once"), "tool", EffectClass::Write, "h")).await.unwrap(), done("\"unknown\""));
}

#[tokio::test]
async fn changed_request_is_an_error() {
    let world = World::new().await;
    let journal = world.journal(BUILD).await;
    journal.begin(step(&key("a"), "tool", EffectClass::Write, "h1")).await.unwrap();
    for journal in [&journal, &world.journal(BUILD).await] {
        let error = journal.begin(step(&key("a"), "tool", EffectClass::Write, "h2")).await.unwrap_err();
        assert_eq!(error.code(), "S0201", "{error}");
    }
}

#[tokio::test]
async fn a_changed_request_is_an_error_although_the_step_may_be_repeated_now() {
    let world = World::new().await;
    world.journal(BUILD).await.begin(step(&key("a"), "tool", EffectClass::Write, "h1")).await.unwrap();
    let journal = world.journal(BUILD).await;
    let error = journal.begin(step(&key("a"), "tool", EffectClass::Read, "h2")).await.unwrap_err();
    assert_eq!(error.code(), "S0201", "{error}");
}

#[tokio::test]
async fn records_of_another_build_are_not_replayed() {
    let world = World::new().await;
    let journal = world.journal(BUILD).await;
    journal.begin(step(&key("a"), "tool", EffectClass::Write, "h")).await.unwrap();
    journal.finish(&key("a"), "1".into(), at()).await.unwrap();
    let other = world.journal(BUILD + 1).await;
    assert_eq!(other.begin(step(&key("a"), "tool", EffectClass::Write, "h")).await.unwrap(), StepStart::OtherBuild);
    assert_eq!(other.begin(step(&key("b"), "tool", EffectClass::Write, "h")).await.unwrap(), StepStart::Run);
}

#[tokio::test]
async fn reply_announcement_is_written_once_and_recovered() {
    let world = World::new().await;
    let journal = world.journal(BUILD).await;
    journal.begin(step(&key("llm.0"), "llm", EffectClass::Read, "h")).await.unwrap();
    journal.finish(&key("llm.0"), "1".into(), at()).await.unwrap();
    journal.announce_reply("r1").await.unwrap();
    journal.announce_reply("r1").await.unwrap();
    let recorded = world.recorded().await;
    assert_eq!(recorded.len(), 2, "the pending answer went along");
    assert_eq!(announced_replies(&recorded).map(|id| &**id).collect::<Vec<_>>(), ["r1"]);
}

#[tokio::test]
async fn tool_list_is_written_with_the_response_that_depends_on_it() {
    let world = World::new().await;
    let journal = world.journal(BUILD).await;
    for (name, kind) in [("tools", TOOL_LIST), ("llm.0", "llm")] {
        journal.begin(step(&key(name), kind, EffectClass::Read, "h")).await.unwrap();
        journal.finish(&key(name), "1".into(), at()).await.unwrap();
        journal.announce_reply(name).await.unwrap();
        if kind == TOOL_LIST {
            assert_eq!(world.stored().await, [("speaking/tools".into(), false)], "the tool list has no response yet");
        }
    }
    let stored = world.stored().await;
    assert_eq!(stored.len(), 4, "the answer takes the offer along: {stored:?}");
    assert!(stored.contains(&("tools".into(), true)) && stored.contains(&("llm.0".into(), true)), "{stored:?}");
}

#[tokio::test]
async fn failed_write_prevents_the_effect() {
    let world = World::new().await;
    let journal = world.journal(BUILD).await;
    journal.begin(step(&key("llm.0"), "llm", EffectClass::Read, "h")).await.unwrap();
    journal.finish(&key("llm.0"), "1".into(), at()).await.unwrap();
    world.store.erase(&world.id).await.unwrap();
    for _ in 0..2 {
        let refused = journal.begin(step(&key("a"), "tool", EffectClass::Write, "h")).await;
        assert!(matches!(refused, Err(StoreError::TurnNotOpen { .. })), "{refused:?}");
    }
    assert_eq!(journal.pending().len(), 1, "nothing is lost");
    let error = journal.finish(&key("never"), "1".into(), at()).await.unwrap_err();
    assert_eq!(error.code(), "S0202", "{error}");
}

#[tokio::test]
async fn step_begun_by_another_process_is_not_performed() {
    let world = World::new().await;
    let (one, two) = (world.journal(BUILD).await, world.journal(BUILD).await);
    assert_eq!(one.begin(step(&key("a"), "tool", EffectClass::Write, "h")).await.unwrap(), StepStart::Run);
    let refused = two.begin(step(&key("a"), "tool", EffectClass::Write, "h")).await;
    assert!(matches!(refused, Err(StoreError::StepAlreadyStarted { .. })), "{refused:?}");
    two.record_attempt(2).await.unwrap();
    assert_eq!(two.begin(step(&key("a"), "tool", EffectClass::Write, "h")).await.unwrap(), StepStart::Unknown);
}

#[tokio::test]
async fn attempts_are_recorded_with_pending_outcomes() {
    let world = World::new().await;
    let journal = world.journal(BUILD).await;
    journal.begin(step(&key("llm.0"), "llm", EffectClass::Read, "h")).await.unwrap();
    journal.finish(&key("llm.0"), "1".into(), at()).await.unwrap();
    let open = async || world.store.unfinished_turns(&world.id).await.unwrap().remove(0);
    assert_eq!(open().await.attempts(), 1, "an open turn may have been tried before");
    for number in [2, 3] {
        journal.record_attempt(number).await.unwrap();
        assert_eq!(open().await.attempts(), number);
    }
    assert_eq!(world.stored().await, [("1/attempts".to_owned(), true), ("llm.0".to_owned(), true)]);
    let next = world.journal(BUILD).await.records();
    assert_eq!(attempts(&next), 3, "the next process counts on");
}

#[tokio::test]
async fn records_keep_the_order_in_which_they_were_recorded() {
    let world = World::new().await;
    let journal = world.journal(BUILD).await;
    let keys: Vec<StepKey> = (1..=12).map(|number| key(&format!("1/{number}"))).collect();
    for key in &keys {
        journal.begin(step(key, "action", EffectClass::Write, "h")).await.unwrap();
        journal.finish(key, "1".into(), at()).await.unwrap();
    }
    journal.begin(step(&key("1/0"), "action", EffectClass::Write, "h")).await.unwrap();
    let expected: Vec<StepKey> = keys.into_iter().chain([key("1/0")]).collect();
    let order = |records: Vec<JournalRecord>| records.into_iter().map(|record| record.key).collect::<Vec<_>>();
    assert_eq!(order(journal.records()), expected);
    assert_eq!(order(world.journal(BUILD + 1).await.records()), expected, "after a restart");
}

#[tokio::test]
async fn stopped_attempt_begins_no_further_step() {
    let world = World::new().await;
    let journal = world.journal(BUILD).await;
    journal.begin(step(&key("a"), "tool", EffectClass::Write, "h")).await.unwrap();
    journal.begin(step(&key("a"), "tool", EffectClass::Write, "other")).await.unwrap_err();
    let refused = journal.begin(step(&key("b"), "llm", EffectClass::Read, "h")).await;
    assert!(matches!(refused, Err(StoreError::RequestChanged { .. })), "{refused:?}");
    journal.announce_reply("r1").await.unwrap_err();
    // A step in progress finishes; the next attempt starts with its outcome.
    journal.finish(&key("a"), "1".into(), at()).await.unwrap();
    journal.record_attempt(2).await.unwrap();
    assert_eq!(journal.begin(step(&key("a"), "tool", EffectClass::Write, "h")).await.unwrap(), done("1"));
    assert_eq!(journal.begin(step(&key("b"), "llm", EffectClass::Read, "h")).await.unwrap(), StepStart::Run);
}

#[tokio::test]
async fn replay_uses_records_only() {
    let records = vec![contract::record("a", Some("1")), contract::record("b", None), contract::record("c", Some("3"))];
    let replay = ReplayJournal::new(records);
    let begun = replay.begin(step(&key("a"), "tool", EffectClass::Read, "hash")).await.unwrap();
    assert_eq!(begun, StepStart::Replay { outcome: "1".into(), at: Timestamp::from_micros(1) });
    assert_eq!(
        replay.begin(step(&key("b"), "tool", EffectClass::Idempotent, "hash")).await.unwrap(),
        StepStart::Unknown
    );
    replay.finish(&key("b"), "1".into(), at()).await.unwrap();
    let changed = replay.begin(step(&key("a"), "tool", EffectClass::Read, "other")).await.unwrap_err();
    assert_eq!(changed.code(), "S0201");
    let fresh = replay.begin(step(&key("new"), "llm", EffectClass::Read, "hash")).await.unwrap_err();
    assert_eq!(fresh.code(), "S0202");
    assert_eq!(replay.unused(), [key("c")]);
}

fn effects(records: TurnJournal) -> EffectJournal {
    EffectJournal::new(Arc::new(records), Arc::new(TurnClock::new(Arc::new(Still), at())), Arc::new(NoObserver))
}

async fn never() -> u32 {
    panic!("the work of a step that is known was polled")
}

#[tokio::test]
async fn step_runs_once_and_its_outcome_is_replayed() {
    let world = World::new().await;
    let journal = effects(world.journal(BUILD).await);
    let (key, other) = (key("tool.0"), effects(world.journal(BUILD).await));
    let write = step(&key, "tool", EffectClass::Write, "h");
    assert_eq!(journal.once(write, async { 7 }).await.unwrap(), StepResult::Performed(7));
    assert_eq!(journal.once(write, never()).await.unwrap(), StepResult::Replayed(7));
    assert_eq!(journal.recorded_outcome(write).await, Some(7));
    let after_a_crash = effects(world.journal(BUILD).await);
    assert_eq!(after_a_crash.once(write, never()).await.unwrap(), StepResult::Replayed(7));
    let refused = other.once(write, never()).await;
    assert!(matches!(refused, Err(JournalError::Store(StoreError::StepAlreadyStarted { .. }))), "{refused:?}");
}

#[tokio::test]
async fn write_without_an_outcome_is_unknown_until_the_caller_records_one() {
    let world = World::new().await;
    let key = key("tool.0");
    let write = step(&key, "tool", EffectClass::Write, "h");
    world.journal(BUILD).await.begin(write).await.unwrap();
    let journal = effects(world.journal(BUILD).await);
    assert_eq!(journal.once(write, never()).await.unwrap(), StepResult::Unknown);
    journal.record_outcome(&key, &8).await.unwrap();
    let after_a_crash = effects(world.journal(BUILD).await);
    assert_eq!(after_a_crash.once(write, never()).await.unwrap(), StepResult::Replayed(8));
}

#[tokio::test]
async fn composite_runs_again_and_its_inner_steps_replay() {
    let world = World::new().await;
    let (outer, inner) = (key("outcome"), key("tool.0"));
    let composite = step(&outer, "agent", EffectClass::Composite, "a");
    let write = step(&inner, "tool", EffectClass::Write, "h");
    let journal = effects(world.journal(BUILD).await);
    {
        let mut crashes = std::pin::pin!(journal.once(composite, async {
            journal.once(write, async { 1 }).await.unwrap();
            std::future::pending::<u32>().await
        }));
        assert!(futures::poll!(&mut crashes).is_pending());
    }
    assert_eq!(world.stored().await, [("tool.0".to_owned(), true)], "a composite has no intent");
    let journal = effects(world.journal(BUILD).await);
    let entered =
        journal.once(composite, async { journal.once(write, never()).await.unwrap().into_outcome().unwrap() + 1 });
    assert_eq!(entered.await.unwrap(), StepResult::Performed(2));
    assert_eq!(journal.once(composite, never()).await.unwrap(), StepResult::Replayed(2));
}

#[tokio::test]
async fn composite_with_a_stopped_step_has_no_outcome() {
    let world = World::new().await;
    let (outer, inner) = (key("result"), key("tool.0"));
    let composite = step(&outer, "result", EffectClass::Composite, "a");
    let write = step(&inner, "tool", EffectClass::Write, "h");
    let records = Arc::new(world.journal(BUILD).await);
    let clock = Arc::new(TurnClock::new(Arc::new(Still), at()));
    let journal = EffectJournal::new(records.clone(), clock, Arc::new(NoObserver));
    journal.once(write, async { 1 }).await.unwrap();
    let changed = Step { request: "other", ..write };
    let stopped = journal.once(composite, async { journal.once(changed, never()).await.map_or(0, |_| 1) }).await;
    assert!(matches!(stopped, Err(JournalError::Store(StoreError::RequestChanged { .. }))), "{stopped:?}");
    records.start_attempt();
    let entered =
        journal.once(composite, async { journal.once(write, never()).await.unwrap().into_outcome().unwrap() + 1 });
    assert_eq!(entered.await.unwrap(), StepResult::Performed(2));
}

#[tokio::test]
async fn work_that_fails_leaves_no_record() {
    let world = World::new().await;
    let key = key("hooks");
    let read = step(&key, "hook", EffectClass::Read, "describe");
    let journal = effects(world.journal(BUILD).await);
    assert_eq!(journal.once_if_ok(read, async { Err::<u32, _>("down") }).await.unwrap(), Err("down"));
    assert_eq!(journal.once_if_ok(read, async { Ok::<_, &str>(1) }).await.unwrap(), Ok(StepResult::Performed(1)));
    assert_eq!(journal.once_if_ok(read, async { Err::<u32, _>("down") }).await.unwrap(), Ok(StepResult::Replayed(1)));
}
