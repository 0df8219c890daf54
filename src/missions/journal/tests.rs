#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use segue_engine::time::Timestamp;

use super::*;
use crate::{
    effect::EffectClass,
    journal::{Journal, Step, StepStart},
    llm::ChatResponse,
    store::{
        StoreError,
        runs::{MemoryRunStore, contract},
    },
    testing::ManualClock,
};

/// A store with a run of one unit.
async fn store() -> Arc<dyn RunStore> {
    let store = MemoryRunStore::default();
    store.start_run(contract::new_run("r", &["a#1"])).await.unwrap();
    Arc::new(store)
}

/// The journal of a process that claims the unit at second `now`.
async fn journal(store: &Arc<dyn RunStore>, now: i64, build: u64) -> UnitJournal {
    let claimed = contract::claim_one(&**store, now).await;
    let claim = Claim { key: claimed.key, epoch: claimed.epoch, id: UnitId::task("a", 1) };
    let view = Arc::new(RunView::new(store.clone(), "r".into()));
    let records = claimed.content.unwrap().records;
    UnitJournal::new(store.clone(), claim, build, Arc::new(ManualClock::new()), view, records, CancellationToken::new())
}

async fn records(store: &Arc<dyn RunStore>) -> Vec<JournalRecord> {
    let unit = UnitKey::new("r", "a#1");
    let mut records = store.unit(&unit).await.unwrap().unwrap().records;
    records.sort_by(|one, other| one.key.cmp(&other.key));
    records
}

fn step<'a>(key: &'a StepKey, class: EffectClass, request: &'a str) -> Step<'a> {
    Step { key, kind: "step", class, request }
}

fn at() -> Timestamp {
    Timestamp::from_micros(9)
}

#[tokio::test]
async fn pending_outcomes_are_stored_before_an_effect_is_repeated() {
    let store = store().await;
    let (read, send) = (StepKey::new("read"), StepKey::new("send"));
    let first = journal(&store, 2, 1).await;
    assert_eq!(first.begin(step(&send, EffectClass::Idempotent, "h")).await.unwrap(), StepStart::Run);

    let second = journal(&store, 100, 1).await;
    second.begin(step(&read, EffectClass::Read, "h")).await.unwrap();
    second.finish(&read, "1".into(), at()).await.unwrap();
    assert_eq!(records(&store).await.len(), 1, "a read is stored with the next write");
    assert_eq!(second.begin(step(&send, EffectClass::Idempotent, "h")).await.unwrap(), StepStart::Run);
    let stored: Vec<_> = records(&store).await.iter().map(|r| (r.key.to_string(), r.outcome.is_some())).collect();
    assert_eq!(stored, [("read".to_owned(), true), ("send".to_owned(), false)]);
}

#[tokio::test]
async fn records_of_another_build_are_replayed_and_outcomes_name_the_build_that_recorded_them() {
    let store = store().await;
    let (done, open) = (StepKey::new("done"), StepKey::new("open"));
    let first = journal(&store, 2, 1).await;
    for key in [&done, &open] {
        assert_eq!(first.begin(step(key, EffectClass::Idempotent, "h")).await.unwrap(), StepStart::Run);
    }
    first.finish(&done, "1".into(), at()).await.unwrap();

    let second = journal(&store, 100, 2).await;
    let replayed = StepStart::Replay { outcome: "1".into(), at: at() };
    assert_eq!(second.begin(step(&done, EffectClass::Idempotent, "h")).await.unwrap(), replayed);
    assert_eq!(second.begin(step(&open, EffectClass::Idempotent, "h")).await.unwrap(), StepStart::Run);
    second.finish(&open, "2".into(), at()).await.unwrap();
    let builds: Vec<_> = records(&store).await.iter().map(|record| record.build).collect();
    assert_eq!(builds, [1, 2]);
}

#[tokio::test]
async fn a_composite_with_a_stopped_step_has_no_outcome() {
    let store = store().await;
    let (outer, inner) = (StepKey::new("outer"), StepKey::new("inner"));
    let journal = journal(&store, 2, 1).await;
    journal.begin(step(&outer, EffectClass::Composite, "h")).await.unwrap();
    journal.begin(step(&inner, EffectClass::Write, "h")).await.unwrap();
    journal.finish(&inner, "1".into(), at()).await.unwrap();
    let changed = journal.begin(step(&inner, EffectClass::Write, "other")).await;
    assert!(matches!(changed, Err(StoreError::RequestChanged { .. })), "{changed:?}");
    assert!(matches!(journal.halt(), Some(Halt::Changed(_))));
    let finished = journal.finish(&outer, "2".into(), at()).await;
    assert!(matches!(finished, Err(StoreError::RequestChanged { .. })), "{finished:?}");
    journal.commit(|_| {}).await.unwrap();
    let stored: Vec<_> = records(&store).await.iter().map(|record| record.key.to_string()).collect();
    assert_eq!(stored, ["inner"]);
}

#[tokio::test]
async fn what_could_not_be_stored_is_stored_first_later_and_in_order() {
    let store = store().await;
    let journal = journal(&store, 2, 1).await;
    let note = |number: u64| {
        let (entity, call, tool) = ("commander".into(), number.to_string().into(), "find".into());
        journal.note(RunEventKind::ToolCalled { entity, call, tool, input: Json::Null, effect: None });
    };
    let keys = [StepKey::new("one"), StepKey::new("two")];
    note(1);
    journal.begin(step(&keys[0], EffectClass::Read, "h")).await.unwrap();
    journal.finish(&keys[0], "1".into(), at()).await.unwrap();
    let refused = journal.commit(|batch| batch.after = Some(99)).await;
    assert!(matches!(refused, Err(RunStoreError::Conflict { .. })), "{refused:?}");
    note(2);
    journal.begin(step(&keys[1], EffectClass::Read, "h")).await.unwrap();
    journal.finish(&keys[1], "2".into(), at()).await.unwrap();
    journal.commit(|_| {}).await.unwrap();
    let events = store.events(&"r".into(), 1, 9).await.unwrap();
    let numbers: Vec<_> = events.iter().map(|event| event.event.contains("\"1\"")).collect();
    assert_eq!(numbers, [true, false], "{events:?}");
    assert_eq!(records(&store).await.len(), 2);
}

#[tokio::test]
async fn the_event_of_a_model_call_has_its_model_and_its_duration() {
    let store = store().await;
    let journal = journal(&store, 2, 1).await;
    let key = StepKey::new("a/agent:helper/llm.0");
    journal.begin(Step { key: &key, kind: "llm", class: EffectClass::Read, request: "h" }).await.unwrap();
    let answer = ChatResponse { model: "m-1".into(), ..ChatResponse::text("done") };
    let outcome = serde_json::json!({ "Ok": answer }).to_string();
    journal.finish(&key, outcome.into(), Timestamp::from_micros(1_250_000)).await.unwrap();
    journal.commit(|_| {}).await.unwrap();
    let events = store.events(&"r".into(), 1, 9).await.unwrap();
    let event: Json = serde_json::from_str(&events[0].event).unwrap();
    let shown = (&event["event"], &event["entity"], &event["model"], &event["duration_ms"]);
    assert_eq!(shown, (&"session_turn".into(), &"helper".into(), &"m-1".into(), &1_250.into()));
}

/// A step that was performed is not performed again because its record cannot be read.
#[tokio::test]
async fn a_unit_with_a_record_that_cannot_be_read_halts() {
    let store = store().await;
    let (key, first) = (StepKey::new("count"), journal(&store, 2, 1).await);
    assert_eq!(first.once(&key, async { Some("a text".to_owned()) }).await.as_deref(), Some("a text"));
    first.commit(|_| {}).await.unwrap();
    let second = journal(&store, 100, 1).await;
    let performed = second.once(&key, async { panic!("it is performed again") }).await;
    assert_eq!(performed, None::<u32>);
    assert!(matches!(second.halt(), Some(Halt::Unreadable(reason)) if reason.contains("count")));
}
