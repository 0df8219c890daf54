//! The contract of a run store as a test suite that runs against every implementation.
//!
//! The tests of an implementation call [`check`] with a function that creates empty stores. Tests that need files are beside the
//! implementation.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{sync::Arc, time::Duration};

use segue_base::{context::StepKey, limits};
use segue_engine::{
    ids::RunId,
    limits::{RUN_NAME, RUN_TEXT, RUN_UNITS},
    time::Timestamp,
};

use super::{
    ClaimRequest, ClaimedUnit, LimitReached, LimitScope, NewQuestion, NewRun, NewUnit, Overflow, QuestionFilter,
    QuestionKey, QuestionReply, QuestionStatus, ReplyOutcome, RunAdmission, RunBatch, RunBlob, RunCounts, RunFilter,
    RunLimits, RunMessage, RunStatus, RunStore, RunStoreError, Signal, SignalOutcome, StartOutcome, StopRequest,
    StoredUnit, UnitBatch, UnitKey, UnitStatus, UnitTransition,
};
use crate::JournalRecord;

/// Runs the whole suite; `make` returns an empty store each time.
///
/// # Panics
/// When the store violates the contract.
pub async fn check(make: impl Fn() -> Arc<dyn RunStore>) {
    a_start_is_repeated_without_effect(&*make()).await;
    concurrent_starts_with_one_key_make_one_run(&*make()).await;
    runs_are_listed_newest_first(&*make()).await;
    starts_above_a_limit_are_refused_or_queued(&*make()).await;
    a_queued_run_is_admitted_when_another_has_ended(&*make()).await;
    concurrent_starts_keep_the_limit(&*make()).await;
    two_owners_never_claim_the_same_unit(&*make()).await;
    units_are_claimed_in_order_and_at_most_the_limit(&*make()).await;
    units_with_a_wake_time_wait_for_it(&*make()).await;
    units_of_a_queued_run_are_not_claimed(&*make()).await;
    a_unit_is_taken_over_when_its_lease_is_over(&*make()).await;
    a_renewed_lease_is_not_taken_over(&*make()).await;
    a_lease_that_cannot_be_true_and_one_of_an_ended_owner_do_not_hold(&*make()).await;
    a_refused_batch_stores_nothing(&*make()).await;
    events_are_numbered_without_gaps(&*make()).await;
    checkpoints_replace_the_journal(&*make()).await;
    a_step_starts_once(&*make()).await;
    units_start_once_and_can_be_woken_and_cancelled(&*make()).await;
    stored_results_are_replaced(&*make()).await;
    an_answer_wakes_the_unit_once(&*make()).await;
    an_answer_before_the_unit_waits_is_not_lost(&*make()).await;
    questions_close_with_their_run(&*make()).await;
    signals_reach_units_in_every_status(&*make()).await;
    messages_are_read_until_acknowledged(&*make()).await;
    the_end_of_a_run_takes_its_units(&*make()).await;
    a_run_is_resumed(&*make()).await;
    changes_of_a_run_are_checked(&*make()).await;
    a_batch_based_on_earlier_events_is_refused(&*make()).await;
    counts_and_the_next_wake_time(&*make()).await;
    ended_runs_are_purged(&*make()).await;
    runs_of_a_conversation_are_erased(&*make()).await;
    sizes_are_limited(&*make()).await;
}

/// The time `seconds` after 1970.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

/// A run with units of these names, started at second 1.
pub fn new_run(id: &str, units: &[&str]) -> NewRun {
    NewRun {
        events: vec![r#"{"event":"mission_started"}"#.into()],
        units: units.iter().map(|name| NewUnit::new(*name, format!("{{\"task\":\"{name}\"}}"))).collect(),
        ..NewRun::new(id, "research", at(1))
    }
}

/// Claims units at second `now`, for 60 seconds.
pub async fn claim(store: &dyn RunStore, owner: &str, now: i64, limit: usize) -> Vec<ClaimedUnit> {
    let lease = Duration::from_secs(60);
    store
        .claim(ClaimRequest { run: None, owner: owner.into(), now: at(now), lease, limit, gone: Vec::new() })
        .await
        .unwrap()
}

/// Claims the only unit that can be claimed at second `now`.
pub async fn claim_one(store: &dyn RunStore, now: i64) -> ClaimedUnit {
    let mut claimed = claim(store, "one", now, 9).await;
    assert_eq!(claimed.len(), 1, "{claimed:?}");
    claimed.remove(0)
}

/// An empty batch of a claimed unit, at second `now`.
pub fn batch(unit: &ClaimedUnit, now: i64) -> UnitBatch {
    UnitBatch::new(unit.key.clone(), unit.epoch, at(now))
}

/// A record of the step `key`.
pub fn record(key: &str, outcome: Option<&str>) -> JournalRecord {
    crate::contract::record(key, outcome)
}

fn names(claimed: &[ClaimedUnit]) -> Vec<&str> {
    claimed.iter().map(|unit| &*unit.key.unit).collect()
}

async fn unit(store: &dyn RunStore, run: &str, name: &str) -> StoredUnit {
    let units = store.units(&run.into()).await.unwrap();
    units.into_iter().find(|unit| *unit.key.unit == *name).unwrap()
}

async fn status(store: &dyn RunStore, run: &str, name: &str) -> UnitStatus {
    unit(store, run, name).await.status
}

async fn event_texts(store: &dyn RunStore, run: &str) -> Vec<String> {
    let events = store.events(&run.into(), 0, 999).await.unwrap();
    events.iter().map(|event| event.event.to_string()).collect()
}

fn assert_fenced<T: std::fmt::Debug>(refused: Result<T, RunStoreError>) {
    assert!(matches!(refused, Err(RunStoreError::Fenced { .. })), "{refused:?}");
}

async fn a_start_is_repeated_without_effect(store: &dyn RunStore) {
    let keyed = |id: &str, mission: &str| NewRun {
        idempotency_key: Some("delivery-1".into()),
        mission: mission.into(),
        conversation: Some("c".into()),
        group: Some("issue-7".into()),
        inputs: r#"{"topic":"caf\u00e9"}"#.into(),
        ..new_run(id, &["a"])
    };
    assert_eq!(store.start_run(keyed("r1", "research")).await.unwrap(), StartOutcome::New);
    let first = StartOutcome::Existing("r1".into());
    assert_eq!(store.start_run(keyed("r2", "research")).await.unwrap(), first);
    assert_eq!(store.start_run(NewRun { idempotency_key: None, ..keyed("r1", "other") }).await.unwrap(), first);
    assert_eq!(store.start_run(keyed("r3", "other")).await.unwrap(), StartOutcome::New, "keys belong to a mission");
    assert_eq!(store.run(&"r2".into()).await.unwrap(), None);
    assert_eq!(store.summary(&"r2".into()).await.unwrap(), None);
    let stored = store.run(&"r1".into()).await.unwrap().unwrap();
    assert_eq!(store.summary(&"r1".into()).await.unwrap().as_ref(), Some(&stored.summary));
    assert_eq!((&*stored.inputs, stored.idempotency_key.as_deref()), (r#"{"topic":"caf\u00e9"}"#, Some("delivery-1")));
    let run = stored.summary;
    assert_eq!((run.id.as_str(), &*run.mission, run.status, run.stop), ("r1", "research", RunStatus::Running, None));
    assert_eq!((run.conversation, run.group.as_deref(), run.last_seq), (Some("c".into()), Some("issue-7"), 1));
    assert_eq!((run.started_at, run.updated_at, run.ended_at), (at(1), at(1), None));
    assert_eq!(store.units(&"r1".into()).await.unwrap().len(), 1, "once, not twice");
    assert_eq!(event_texts(store, "r1").await.len(), 1);
    let input = store.unit(&UnitKey::new("r1", "a")).await.unwrap().unwrap().input;
    assert_eq!(&*input, r#"{"task":"a"}"#);
    assert_eq!(store.unit(&UnitKey::new("r1", "z")).await.unwrap(), None);
    assert_eq!(store.unit(&UnitKey::new("r9", "a")).await.unwrap(), None);
}

async fn concurrent_starts_with_one_key_make_one_run(store: &dyn RunStore) {
    let start =
        |n: usize| store.start_run(NewRun { idempotency_key: Some("k".into()), ..new_run(&format!("r{n}"), &["a"]) });
    let outcomes = futures::future::join_all((0..8).map(start)).await;
    let outcomes: Vec<StartOutcome> = outcomes.into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == StartOutcome::New).count(), 1, "{outcomes:?}");
    let runs = store.runs(RunFilter::default(), 9).await.unwrap();
    assert_eq!(runs.len(), 1);
    let same = |outcome: &StartOutcome| match outcome {
        StartOutcome::New => true,
        StartOutcome::Existing(id) => *id == runs[0].id,
        StartOutcome::Queued(_) | StartOutcome::Full(_) => false,
    };
    assert!(outcomes.iter().all(same), "{outcomes:?}");
}

async fn runs_are_listed_newest_first(store: &dyn RunStore) {
    store.start_run(NewRun { mission: "@job".into(), ..new_run("j", &["a"]) }).await.unwrap();
    for (n, mission) in ["x", "y", "x", "x"].into_iter().enumerate() {
        let run = NewRun {
            mission: mission.into(),
            queued: n == 3,
            group: (n > 1).then(|| "g".into()),
            idempotency_key: (n < 2).then(|| "k".into()),
            conversation: (n < 2).then(|| "c".into()),
            ..new_run(&format!("r{n}"), &["a"])
        };
        store.start_run(run).await.unwrap();
    }
    store.append_run(RunBatch { status: Some(RunStatus::Failed), ..RunBatch::new("r0".into(), at(2)) }).await.unwrap();
    let all = RunFilter::default;
    for (filter, limit, expected) in [
        (all(), 9, vec!["r3", "r2", "r1", "r0", "j"]),
        (all(), 2, vec!["r3", "r2"]),
        (all(), 0, vec![]),
        (RunFilter { mission: Some("x".into()), ..all() }, 9, vec!["r3", "r2", "r0"]),
        (RunFilter { mission: Some("x".into()), ..all() }, 1, vec!["r3"]),
        (RunFilter { group: Some("g".into()), ..all() }, 9, vec!["r3", "r2"]),
        (RunFilter { idempotency_key: Some("k".into()), ..all() }, 9, vec!["r1", "r0"]),
        (RunFilter { mission: Some("x".into()), idempotency_key: Some("k".into()), ..all() }, 9, vec!["r0"]),
        (RunFilter { id_prefix: Some("r2".into()), ..all() }, 9, vec!["r2"]),
        (RunFilter { id_prefix: Some("r".into()), mission: Some("y".into()), ..all() }, 9, vec!["r1"]),
        (RunFilter { id_prefix: Some("r22".into()), ..all() }, 9, vec![]),
        (RunFilter { id_prefix: Some("R".into()), ..all() }, 9, vec![]),
        (RunFilter { conversation: Some("c".into()), ..all() }, 9, vec!["r1", "r0"]),
        (RunFilter { statuses: vec![RunStatus::Queued], ..all() }, 9, vec!["r3"]),
        (RunFilter { statuses: vec![RunStatus::Failed, RunStatus::Running], ..all() }, 9, vec!["r2", "r1", "r0", "j"]),
        (RunFilter { mission: Some("y".into()), statuses: vec![RunStatus::Failed], ..all() }, 9, vec![]),
        (RunFilter { mission: Some("@job".into()), ..all() }, 9, vec!["j"]),
        (RunFilter { without_jobs: true, ..all() }, 9, vec!["r3", "r2", "r1", "r0"]),
        (RunFilter { without_jobs: true, ..all() }, 1, vec!["r3"]),
    ] {
        let found = store.runs(filter.clone(), limit).await.unwrap();
        let found: Vec<&str> = found.iter().map(|run| run.id.as_str()).collect();
        assert_eq!(found, expected, "{filter:?} {limit}");
    }
}

fn limited(id: &str, mission: Option<u32>, group: Option<u32>, overflow: Overflow) -> NewRun {
    NewRun { limits: RunLimits { mission, group }, group: Some("issue-7".into()), overflow, ..new_run(id, &["a"]) }
}

async fn end(store: &dyn RunStore, run: &str, status: RunStatus) {
    store.append_run(RunBatch { status: Some(status), ..RunBatch::new(run.into(), at(9)) }).await.unwrap();
}

async fn starts_above_a_limit_are_refused_or_queued(store: &dyn RunStore) {
    let full = |scope, running, limit| LimitReached { scope, running, limit };
    let of_mission = full(LimitScope::Mission, 2, 2);
    for id in ["r1", "r2"] {
        assert_eq!(store.start_run(limited(id, Some(2), None, Overflow::Refuse)).await.unwrap(), StartOutcome::New);
    }
    end(store, "r1", RunStatus::Waiting).await; // a run that waits for people counts
    let refused = store.start_run(limited("r3", Some(2), None, Overflow::Refuse)).await.unwrap();
    assert_eq!(refused, StartOutcome::Full(of_mission));
    assert_eq!(store.run(&"r3".into()).await.unwrap(), None, "nothing is stored");
    let other = NewRun { mission: "other".into(), ..limited("r4", Some(2), None, Overflow::Refuse) };
    assert_eq!(store.start_run(other).await.unwrap(), StartOutcome::New, "runs of another mission do not count");
    let other = NewRun { mission: "more".into(), ..limited("r5", None, Some(3), Overflow::Refuse) };
    let refused = store.start_run(other).await.unwrap();
    assert_eq!(refused, StartOutcome::Full(full(LimitScope::Group, 3, 3)), "a group is not limited to a mission");
    let alone = NewRun { group: None, mission: "more".into(), ..limited("r6", None, Some(1), Overflow::Refuse) };
    assert_eq!(store.start_run(alone).await.unwrap(), StartOutcome::New, "a run without a group is in none");
    let queued = store.start_run(limited("r3", Some(2), None, Overflow::Queue)).await.unwrap();
    assert_eq!(queued, StartOutcome::Queued(of_mission));
    assert_eq!(store.run(&"r3".into()).await.unwrap().unwrap().summary.status, RunStatus::Queued);
    let repeated = store.start_run(limited("r3", Some(2), None, Overflow::Refuse)).await.unwrap();
    assert_eq!(repeated, StartOutcome::Existing("r3".into()), "a repeated start is no further run");
}

async fn a_queued_run_is_admitted_when_another_has_ended(store: &dyn RunStore) {
    let limits = RunLimits { mission: Some(1), group: None };
    for id in ["r1", "r2", "r3"] {
        store.start_run(limited(id, limits.mission, None, Overflow::Queue)).await.unwrap();
    }
    let full = RunAdmission::Queued(LimitReached { scope: LimitScope::Mission, running: 1, limit: 1 });
    assert_eq!(store.admit(&"r2".into(), limits, at(2)).await.unwrap(), full);
    let claimed = claim(store, "o", 2, 9).await;
    assert_eq!(claimed.iter().map(|unit| unit.key.run.as_str()).collect::<Vec<_>>(), ["r1"]);
    end(store, "r1", RunStatus::Completed).await;
    assert_eq!(store.admit(&"r2".into(), limits, at(10)).await.unwrap(), RunAdmission::Admitted);
    assert_eq!(store.admit(&"r2".into(), limits, at(10)).await.unwrap(), RunAdmission::Admitted, "once more");
    assert_eq!(store.admit(&"r3".into(), limits, at(10)).await.unwrap(), full, "one for each run that ended");
    assert_eq!(store.run(&"r2".into()).await.unwrap().unwrap().summary.status, RunStatus::Running);
    assert_eq!(claim_one(store, 10).await.key, UnitKey::new("r2", "a"));
    let unknown = store.admit(&"r9".into(), limits, at(10)).await;
    assert!(matches!(unknown, Err(RunStoreError::UnknownRun(_))), "{unknown:?}");
}

async fn concurrent_starts_keep_the_limit(store: &dyn RunStore) {
    let ids: Vec<String> = (0..8).map(|n| format!("r{n}")).collect();
    let starts = ids.iter().map(|id| store.start_run(limited(id, Some(3), None, Overflow::Queue)));
    let outcomes = futures::future::join_all(starts).await;
    let started = outcomes.iter().filter(|outcome| matches!(outcome, Ok(StartOutcome::New))).count();
    assert_eq!((started, outcomes.len()), (3, 8), "{outcomes:?}");
}

async fn two_owners_never_claim_the_same_unit(store: &dyn RunStore) {
    let units: Vec<String> = (0..40).map(|n| format!("u{n}")).collect();
    let units: Vec<&str> = units.iter().map(String::as_str).collect();
    store.start_run(new_run("r", &units)).await.unwrap();
    let claims = futures::future::join_all(
        (0..8).map(|owner| async move { claim(store, &format!("owner-{owner}"), 2, 5).await }),
    );
    let claims = claims.await;
    assert!(claims.iter().all(|claimed| claimed.len() == 5));
    let mut claimed: Vec<String> = claims.iter().flatten().map(|unit| unit.key.unit.to_string()).collect();
    claimed.sort();
    claimed.dedup();
    assert_eq!(claimed.len(), 40);
    assert!(claims.iter().flatten().all(|unit| unit.epoch == 1 && unit.lease_until == at(62)));
    assert_eq!(names(&claim(store, "late", 2, 9).await), [""; 0]);
    let stored = unit(store, "r", "u0").await;
    assert_eq!((stored.status, stored.epoch, stored.lease_until), (UnitStatus::Claimed, 1, Some(at(62))));
    assert!(stored.owner.unwrap().starts_with("owner-"));
}

async fn units_are_claimed_in_order_and_at_most_the_limit(store: &dyn RunStore) {
    let units: Vec<String> = (0..1_000).map(|n| format!("u{n}")).collect();
    let units: Vec<&str> = units.iter().map(String::as_str).collect();
    store.start_run(new_run("r", &units)).await.unwrap();
    let mut claimed = Vec::new();
    loop {
        let part = claim(store, "o", 2, usize::MAX).await;
        assert!(part.len() <= limits::RUN_CLAIMS);
        if part.is_empty() {
            break;
        }
        claimed.extend(part);
    }
    assert_eq!(names(&claimed), units);
    // Those that were given back first are claimed first, after those of an earlier time.
    for (name, now) in [(5, 20), (3, 21), (4, 19)] {
        let unit: &ClaimedUnit = &claimed[name];
        store.release(&unit.key, unit.epoch, at(now)).await.unwrap();
    }
    store.start_run(NewRun { at: at(3), ..new_run("s", &["b", "a"]) }).await.unwrap();
    let request = |run: Option<&str>| ClaimRequest {
        run: run.map(RunId::from),
        owner: "o".into(),
        now: at(30),
        lease: Duration::from_secs(60),
        limit: 9,
        gone: Vec::new(),
    };
    let of_s = store.claim(ClaimRequest { limit: 1, ..request(Some("s")) }).await.unwrap();
    assert_eq!(names(&of_s), ["b"]);
    assert_eq!(names(&store.claim(request(Some("none"))).await.unwrap()), [""; 0]);
    assert_eq!(names(&store.claim(ClaimRequest { limit: 0, ..request(None) }).await.unwrap()), [""; 0]);
    assert_eq!(names(&store.claim(request(None)).await.unwrap()), ["a", "u4", "u5", "u3"]);
}

async fn units_with_a_wake_time_wait_for_it(store: &dyn RunStore) {
    let timed = |name: &str, seconds| NewUnit { wake_at: Some(at(seconds)), ..NewUnit::new(name, "{}") };
    let units = vec![timed("late", 50), timed("early", 40), NewUnit::new("now", "{}")];
    store.start_run(NewRun { units, ..new_run("r", &[]) }).await.unwrap();
    // A clock that was set back delays only units with a time.
    let now = claim_one(store, 0).await;
    assert_eq!(&*now.key.unit, "now");
    let waits = UnitTransition::Waiting { wake_at: Some(at(45)) };
    store.append(UnitBatch { transition: waits, ..batch(&now, 3) }).await.unwrap();
    assert_eq!(names(&claim(store, "o", 39, 9).await), [""; 0]);
    assert_eq!(store.next_wake().await.unwrap(), Some(at(40)));
    assert_eq!(names(&claim(store, "o", 40, 9).await), ["early"]);
    let rest = claim(store, "o", 60, 9).await;
    assert_eq!(names(&rest), ["now", "late"]);
    let ready = UnitTransition::Ready { wake_at: Some(at(70)) };
    store.append(UnitBatch { transition: ready, ..batch(&rest[0], 61) }).await.unwrap();
    let stored = unit(store, "r", "now").await;
    assert_eq!((stored.status, stored.wake_at, stored.owner), (UnitStatus::Ready, Some(at(70)), None));
    assert_eq!(names(&claim(store, "o", 69, 9).await), [""; 0]);
    assert_eq!(claim_one(store, 70).await.epoch, 3);
}

async fn units_of_a_queued_run_are_not_claimed(store: &dyn RunStore) {
    for id in ["start", "cancel"] {
        store.start_run(NewRun { queued: true, ..new_run(id, &["a"]) }).await.unwrap();
    }
    assert_eq!(names(&claim(store, "o", 2, 9).await), [""; 0]);
    assert_eq!(store.next_wake().await.unwrap(), None);
    store
        .append_run(RunBatch { status: Some(RunStatus::Running), ..RunBatch::new("start".into(), at(3)) })
        .await
        .unwrap();
    assert_eq!(claim_one(store, 3).await.key, UnitKey::new("start", "a"));
    assert_eq!(store.signal(&"cancel".into(), Signal::Cancel, at(4)).await.unwrap(), SignalOutcome::Accepted);
    let cancelled = claim_one(store, 4).await;
    assert_eq!(cancelled.key, UnitKey::new("cancel", "a"));
    assert_eq!(cancelled.content.unwrap().signals.stop, Some(StopRequest::Cancel));
}

async fn a_unit_is_taken_over_when_its_lease_is_over(store: &dyn RunStore) {
    store.start_run(new_run("r", &["a"])).await.unwrap();
    let first = claim(store, "first", 2, 9).await.remove(0);
    store.append(UnitBatch { records: vec![record("a", None)], ..batch(&first, 3) }).await.unwrap();
    assert_eq!(names(&claim(store, "second", 61, 9).await), [""; 0]);
    // The lease is over, and nobody has taken the unit.
    let late = UnitBatch { records: vec![record("a", Some("1"))], events: vec!["late".into()], ..batch(&first, 62) };
    store.append(late).await.unwrap();
    let second = claim(store, "second", 62, 9).await.remove(0);
    assert_eq!((second.epoch, second.lease_until), (2, at(122)));
    assert_eq!(second.content.as_ref().unwrap().records, [record("a", Some("1"))]);
    assert_fenced(store.append(UnitBatch { events: vec!["fenced".into()], ..batch(&first, 63) }).await);
    assert_fenced(store.renew(&first.key, first.epoch, at(999)).await);
    assert_fenced(store.release(&first.key, first.epoch, at(63)).await);
    assert_fenced(store.append(UnitBatch { epoch: 3, ..batch(&second, 63) }).await);
    assert_fenced(store.append(UnitBatch { unit: UnitKey::new("r", "z"), ..batch(&second, 63) }).await);
    assert_fenced(store.append(UnitBatch { unit: UnitKey::new("z", "a"), ..batch(&second, 63) }).await);
    let last = store.append(UnitBatch { events: vec!["second".into()], ..batch(&second, 64) }).await.unwrap();
    assert_eq!(last, 3);
    assert_eq!(event_texts(store, "r").await[1..], ["late", "second"]);
    store.release(&second.key, 2, at(65)).await.unwrap();
    // The epoch is still the latest, but the unit is held no more.
    assert_fenced(store.append(batch(&second, 66)).await);
    assert_fenced(store.release(&second.key, 2, at(66)).await);
    assert_eq!(claim_one(store, 66).await.epoch, 3);
}

async fn a_renewed_lease_is_not_taken_over(store: &dyn RunStore) {
    store.start_run(new_run("r", &["a"])).await.unwrap();
    let held = claim_one(store, 2).await;
    assert_eq!(store.renew(&held.key, held.epoch, at(200)).await.unwrap(), super::Signals::default());
    assert_eq!(unit(store, "r", "a").await.lease_until, Some(at(200)));
    assert_eq!(names(&claim(store, "o", 199, 9).await), [""; 0]);
    assert_eq!(names(&claim(store, "o", 200, 9).await), ["a"]);
}

async fn a_lease_that_cannot_be_true_and_one_of_an_ended_owner_do_not_hold(store: &dyn RunStore) {
    const DAY: i64 = 24 * 3600;
    for id in ["ahead", "ended", "other"] {
        store.start_run(new_run(id, &["a"])).await.unwrap();
    }
    let request = |owner: &str, run: &str, now: i64| ClaimRequest {
        run: Some(run.into()),
        owner: owner.into(),
        now: at(now),
        lease: Duration::from_secs(60),
        limit: 9,
        gone: Vec::new(),
    };
    for (owner, run, now) in [("ahead", "ahead", DAY), ("ended", "ended", 2), ("ended", "other", 2)] {
        assert_eq!(names(&store.claim(request(owner, run, now)).await.unwrap()), ["a"]);
    }
    // The clock of an owner that goes on working may have been set back.
    assert_eq!(names(&store.claim(request("ahead", "ahead", 3)).await.unwrap()), [""; 0]);
    let next = store.claim(request("next", "ahead", 3)).await.unwrap().remove(0);
    assert_eq!((next.epoch, next.lease_until), (2, at(63)));
    assert_eq!(names(&store.claim(request("next", "ended", 3)).await.unwrap()), [""; 0]);
    let informed = ClaimRequest { gone: vec!["ended".into()], ..request("next", "ended", 3) };
    assert_eq!(store.claim(informed).await.unwrap().remove(0).epoch, 2);
    assert_eq!(names(&store.claim(request("next", "other", 3)).await.unwrap()), [""; 0]);
}

async fn a_refused_batch_stores_nothing(store: &dyn RunStore) {
    store.start_run(new_run("r", &["a", "b", "c"])).await.unwrap();
    let mut claimed = claim(store, "o", 2, 2).await;
    let (b, a) = (claimed.remove(1), claimed.remove(0));
    store.append(UnitBatch { records: vec![record("s", None)], ..batch(&a, 3) }).await.unwrap();
    let full = |of: &ClaimedUnit| UnitBatch {
        events: vec!["e".into()],
        records: vec![record("t", Some("1")), record("s", None)],
        blobs: vec![RunBlob { id: "x".into(), text: "blob".into() }],
        questions: vec![NewQuestion { id: "q".into(), question: "?".into() }],
        transition: UnitTransition::Completed,
        new_units: vec![NewUnit::new("d", "{}")],
        wake_units: vec!["c".into()],
        cancel_units: vec!["b".into()],
        run_status: Some(RunStatus::Completed),
        ..batch(of, 4)
    };
    let before = store.run(&"r".into()).await.unwrap();
    let units = store.units(&"r".into()).await.unwrap();
    let refused = store.append(full(&a)).await;
    assert!(
        matches!(&refused, Err(RunStoreError::StepAlreadyStarted { key, .. }) if key.as_str() == "s"),
        "{refused:?}"
    );
    assert_fenced(store.append(UnitBatch { epoch: 0, ..full(&b) }).await);
    assert_eq!(store.run(&"r".into()).await.unwrap(), before);
    assert_eq!(store.units(&"r".into()).await.unwrap(), units);
    assert_eq!(store.blob(&"r".into(), "x").await.unwrap(), None);
    assert_eq!(store.question(&QuestionKey::new("r", "q")).await.unwrap(), None);
    assert_eq!(event_texts(store, "r").await.len(), 1);
    assert_eq!(store.unit(&a.key).await.unwrap().unwrap().records, [record("s", None)]);
    // The same batch without the repeated step is accepted, and its parts are all there.
    let accepted = UnitBatch { records: vec![record("t", Some("1"))], ..full(&a) };
    assert_eq!(store.append(accepted).await.unwrap(), 2);
    assert_eq!(store.run(&"r".into()).await.unwrap().unwrap().summary.status, RunStatus::Completed);
    let mut found = Vec::new();
    for name in ["a", "b", "c", "d"] {
        found.push(status(store, "r", name).await);
    }
    assert_eq!(found, [UnitStatus::Completed, UnitStatus::Cancelled, UnitStatus::Ready, UnitStatus::Ready]);
    assert_eq!(store.blob(&"r".into(), "x").await.unwrap().as_deref(), Some("blob"));
    assert!(store.question(&QuestionKey::new("r", "q")).await.unwrap().is_some());
}

async fn events_are_numbered_without_gaps(store: &dyn RunStore) {
    let units: Vec<String> = (0..8).map(|n| format!("u{n}")).collect();
    store.start_run(new_run("r", &units.iter().map(String::as_str).collect::<Vec<_>>())).await.unwrap();
    store.start_run(new_run("s", &[])).await.unwrap();
    let claimed = claim(store, "o", 2, 8).await;
    let work = claimed.iter().map(|unit| async move {
        for n in 0..10 {
            let events = vec![format!("{}/{n}a", unit.key.unit).into(), format!("{}/{n}b", unit.key.unit).into()];
            store.append(UnitBatch { events, ..batch(unit, 3) }).await.unwrap();
            store.append_run(RunBatch { events: vec!["s".into()], ..RunBatch::new("s".into(), at(3)) }).await.unwrap();
        }
    });
    futures::future::join_all(work).await;
    let events = store.events(&"r".into(), 0, usize::MAX).await.unwrap();
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), (1..=161).collect::<Vec<u64>>());
    assert_eq!((events[0].unit.clone(), events[0].at, events[1].at), (None, at(1), at(3)));
    for unit in &units {
        let of_unit = events.iter().filter(|event| event.unit.as_deref() == Some(unit));
        let of_unit: Vec<&str> = of_unit.map(|event| &*event.event).collect();
        let expected: Vec<String> = (0..10).flat_map(|n| [format!("{unit}/{n}a"), format!("{unit}/{n}b")]).collect();
        assert_eq!(of_unit, expected);
    }
    // In parts.
    let part = store.events(&"r".into(), 159, 9).await.unwrap();
    assert_eq!(part, events[159..]);
    assert_eq!(store.events(&"r".into(), 7, 2).await.unwrap(), events[7..9]);
    for after in [161, 162, u64::MAX] {
        assert_eq!(store.events(&"r".into(), after, 9).await.unwrap(), []);
    }
    assert_eq!(store.events(&"none".into(), 0, 9).await.unwrap(), []);
    assert_eq!(store.run(&"s".into()).await.unwrap().unwrap().summary.last_seq, 81);
}

async fn checkpoints_replace_the_journal(store: &dyn RunStore) {
    store.start_run(new_run("r", &["a", "b"])).await.unwrap();
    let a = claim(store, "o", 2, 1).await.remove(0);
    let records = vec![record("s1", Some("1")), record("s2", None)];
    store.append(UnitBatch { records, ..batch(&a, 3) }).await.unwrap();
    store.append(UnitBatch { records: vec![record("s2", Some("2"))], ..batch(&a, 4) }).await.unwrap();
    let content = store.unit(&a.key).await.unwrap().unwrap();
    assert_eq!((content.records, content.checkpoint), (vec![record("s1", Some("1")), record("s2", Some("2"))], None));
    let saved = UnitBatch { checkpoint: Some("c1".into()), records: vec![record("s3", Some("3"))], ..batch(&a, 5) };
    store.append(saved).await.unwrap();
    let content = store.unit(&a.key).await.unwrap().unwrap();
    assert_eq!((content.records, content.checkpoint.as_deref()), (vec![], Some("c1")));
    // The keys of steps may begin again.
    store.append(UnitBatch { records: vec![record("s1", None)], ..batch(&a, 6) }).await.unwrap();
    let ends = UnitBatch { transition: UnitTransition::Completed, ..batch(&a, 7) };
    store.append(ends).await.unwrap();
    let content = store.unit(&a.key).await.unwrap().unwrap();
    assert_eq!((content.records, content.checkpoint.as_deref()), (vec![record("s1", None)], Some("c1")));
    let b = claim_one(store, 8).await;
    let content = b.content.unwrap();
    assert_eq!((&*b.key.unit, content.checkpoint, content.records), ("b", None, vec![]), "units share nothing");
}

async fn a_step_starts_once(store: &dyn RunStore) {
    store.start_run(new_run("r", &["a"])).await.unwrap();
    let a = claim_one(store, 2).await;
    store.append(UnitBatch { records: vec![record("s", None)], ..batch(&a, 3) }).await.unwrap();
    let again = store.append(UnitBatch { records: vec![record("s", None)], ..batch(&a, 4) }).await.unwrap_err();
    assert_eq!(again.code(), "S0108");
    let other_build = JournalRecord { build: 1, ..record("s", None) };
    store.append(UnitBatch { records: vec![other_build], ..batch(&a, 5) }).await.unwrap();
    // Also after a takeover; then an outcome is unknown.
    let taken = claim_one(store, 99).await;
    let again = store.append(UnitBatch { records: vec![record("s", None)], ..batch(&taken, 99) }).await.unwrap_err();
    assert_eq!(again.code(), "S0108");
    store.append(UnitBatch { records: vec![record("s", Some("1"))], ..batch(&taken, 99) }).await.unwrap();
    // An intent does not replace an outcome.
    let late = UnitBatch { records: vec![record("t", Some("2")), record("t", None)], ..batch(&taken, 99) };
    store.append(late).await.unwrap();
    let records = store.unit(&a.key).await.unwrap().unwrap().records;
    assert_eq!(records, [record("s", Some("1")), record("t", Some("2"))]);
    assert_eq!(records[0].key, StepKey::new("s"));
}

async fn units_start_once_and_can_be_woken_and_cancelled(store: &dyn RunStore) {
    store.start_run(new_run("r", &["a", "b"])).await.unwrap();
    let mut claimed = claim(store, "o", 2, 2).await;
    let (b, a) = (claimed.remove(1), claimed.remove(0));
    let later = NewUnit { wake_at: Some(at(500)), ..NewUnit::new("d", "late") };
    let new_units = vec![NewUnit::new("c", "first"), NewUnit::new("c", "second"), NewUnit::new("b", "third"), later];
    store.append(UnitBatch { new_units, ..batch(&a, 3) }).await.unwrap();
    let all: Vec<_> =
        store.units(&"r".into()).await.unwrap().into_iter().map(|unit| unit.key.unit.to_string()).collect();
    assert_eq!(all, ["a", "b", "c", "d"]);
    assert_eq!(&*store.unit(&UnitKey::new("r", "c")).await.unwrap().unwrap().input, "first");
    assert_eq!(&*store.unit(&b.key).await.unwrap().unwrap().input, r#"{"task":"b"}"#);
    let c = claim_one(store, 4).await;
    let waits = UnitTransition::Waiting { wake_at: None };
    store.append(UnitBatch { transition: waits, ..batch(&c, 5) }).await.unwrap();
    assert_eq!(names(&claim(store, "o", 6, 9).await), [""; 0]);
    // Waiting and timed units become ready, a claimed one would not wait, an unknown one is ignored.
    let wake_units = ["b", "c", "d", "z"].map(Into::into).to_vec();
    store.append(UnitBatch { wake_units, ..batch(&a, 6) }).await.unwrap();
    store.append(UnitBatch { transition: waits, ..batch(&b, 7) }).await.unwrap();
    assert_eq!(status(store, "r", "b").await, UnitStatus::Ready);
    let claimed = claim(store, "o", 8, 9).await;
    assert_eq!(names(&claimed), ["c", "d", "b"]);
    // Cancelled: the owner may not write, and nobody claims it.
    let cancel = ["b", "c"].map(Into::into).to_vec();
    store
        .append(UnitBatch { cancel_units: cancel, transition: UnitTransition::Completed, ..batch(&a, 9) })
        .await
        .unwrap();
    assert_fenced(store.append(batch(&claimed[0], 10)).await);
    assert_fenced(store.renew(&claimed[2].key, claimed[2].epoch, at(999)).await);
    assert_eq!(status(store, "r", "b").await, UnitStatus::Cancelled);
    let rest = RunBatch { cancel_units: vec!["d".into(), "a".into()], ..RunBatch::new("r".into(), at(11)) };
    store.append_run(rest).await.unwrap();
    assert_eq!(status(store, "r", "d").await, UnitStatus::Cancelled);
    assert_eq!(status(store, "r", "a").await, UnitStatus::Completed, "it has ended");
    let wakes = RunBatch { wake_units: vec!["d".into(), "a".into()], ..RunBatch::new("r".into(), at(12)) };
    store.append_run(wakes).await.unwrap();
    assert_eq!(names(&claim(store, "o", 999, 9).await), [""; 0], "ended units are not woken");
}

async fn stored_results_are_replaced(store: &dyn RunStore) {
    for run in ["r", "s"] {
        store.start_run(new_run(run, &["a"])).await.unwrap();
    }
    let claimed = claim(store, "o", 2, 9).await;
    for (text, now) in [("one", 3), ("two", 4)] {
        let blobs = vec![
            RunBlob { id: "x".into(), text: text.into() },
            RunBlob { id: format!("only-{text}").into(), text: text.into() },
        ];
        store.append(UnitBatch { blobs, ..batch(&claimed[0], now) }).await.unwrap();
    }
    let run = RunId::from("r");
    assert_eq!(store.blob(&run, "x").await.unwrap().as_deref(), Some("two"));
    assert_eq!(store.blob(&run, "only-one").await.unwrap().as_deref(), Some("one"));
    assert_eq!(store.blob(&"s".into(), "x").await.unwrap(), None);
}

/// Asks a question in a claimed unit, and makes it wait.
async fn ask(store: &dyn RunStore, unit: &ClaimedUnit, id: &str, now: i64) {
    let questions = vec![NewQuestion { id: id.into(), question: format!("{id}?").into() }];
    let transition = UnitTransition::Waiting { wake_at: None };
    store.append(UnitBatch { questions, transition, ..batch(unit, now) }).await.unwrap();
}

/// An answer of the event `event_id` at second `now`.
pub fn reply(run: &str, id: &str, text: &str, event_id: &str, now: i64) -> QuestionReply {
    QuestionReply {
        question: QuestionKey::new(run, id),
        text: text.into(),
        event_id: event_id.into(),
        events: vec![format!("reply {event_id}").into()],
        at: at(now),
    }
}

async fn an_answer_wakes_the_unit_once(store: &dyn RunStore) {
    store.start_run(new_run("r", &["a"])).await.unwrap();
    let a = claim_one(store, 2).await;
    ask(store, &a, "q", 3).await;
    assert_eq!(names(&claim(store, "o", 9_999, 9).await), [""; 0], "it waits");
    let question = store.question(&QuestionKey::new("r", "q")).await.unwrap().unwrap();
    assert_eq!((&*question.unit, &*question.question), ("a", "q?"));
    assert_eq!((question.status, question.asked_at, question.answer), (QuestionStatus::Open, at(3), None));
    let unknown = store.answer(reply("r", "z", "!", "e1", 4)).await;
    assert!(matches!(unknown, Err(RunStoreError::UnknownQuestion { .. })), "{unknown:?}");
    let unknown = store.answer(reply("z", "q", "!", "e1", 4)).await;
    assert!(matches!(unknown, Err(RunStoreError::UnknownQuestion { .. })), "{unknown:?}");
    assert_eq!(store.answer(reply("r", "q", "yes", "e1", 4)).await.unwrap(), ReplyOutcome::Answered);
    let again = claim_one(store, 5).await;
    let content = again.content.as_ref().unwrap();
    assert_eq!(content.questions[0].answer.as_deref(), Some("yes"));
    assert_eq!(content.questions[0].answered_by.as_deref(), Some("e1"));
    assert_eq!(content.questions[0].status, QuestionStatus::Answered);
    store
        .append(UnitBatch { transition: UnitTransition::Waiting { wake_at: None }, ..batch(&again, 6) })
        .await
        .unwrap();
    // The same event again, and another one: nothing is woken or appended.
    assert_eq!(store.answer(reply("r", "q", "other", "e1", 7)).await.unwrap(), ReplyOutcome::Answered);
    let already = ReplyOutcome::Already { answer: "yes".into(), event_id: "e1".into() };
    assert_eq!(store.answer(reply("r", "q", "no", "e2", 7)).await.unwrap(), already);
    assert_eq!(names(&claim(store, "o", 9_999, 9).await), [""; 0]);
    assert_eq!(event_texts(store, "r").await[1..], ["reply e1"]);
    assert_eq!(store.questions(QuestionFilter { open: true, run: None }, 9).await.unwrap(), []);
    assert_eq!(store.questions(QuestionFilter::default(), 9).await.unwrap().len(), 1);
    // Events without an id are never the same.
    store.append_run(RunBatch { wake_units: vec!["a".into()], ..RunBatch::new("r".into(), at(8)) }).await.unwrap();
    let a = claim_one(store, 9).await;
    ask(store, &a, "n", 9).await;
    assert_eq!(store.answer(reply("r", "n", "yes", "", 10)).await.unwrap(), ReplyOutcome::Answered);
    let already = ReplyOutcome::Already { answer: "yes".into(), event_id: "".into() };
    assert_eq!(store.answer(reply("r", "n", "yes", "", 10)).await.unwrap(), already);
}

async fn an_answer_before_the_unit_waits_is_not_lost(store: &dyn RunStore) {
    store.start_run(new_run("r", &["a", "b"])).await.unwrap();
    let mut claimed = claim(store, "o", 2, 2).await;
    let (b, a) = (claimed.remove(1), claimed.remove(0));
    // The owner still works when the answer arrives.
    let questions = vec![NewQuestion { id: "q".into(), question: "q?".into() }];
    store.append(UnitBatch { questions, ..batch(&a, 3) }).await.unwrap();
    assert_eq!(store.answer(reply("r", "q", "yes", "e1", 4)).await.unwrap(), ReplyOutcome::Answered);
    store.append(UnitBatch { transition: UnitTransition::Waiting { wake_at: None }, ..batch(&a, 5) }).await.unwrap();
    let a = claim_one(store, 6).await;
    assert_eq!(a.content.as_ref().unwrap().questions[0].answer.as_deref(), Some("yes"));
    // A repeated slice asks a question that is answered already: it does not wait, and the answer stays.
    ask(store, &a, "q", 7).await;
    let a = claim_one(store, 8).await;
    assert_eq!(a.content.as_ref().unwrap().questions.len(), 1);
    assert_eq!(a.content.as_ref().unwrap().questions[0].answer.as_deref(), Some("yes"));
    // Answered while no owner holds the unit: after the lease is over, before the next claim.
    ask(store, &a, "q2", 9).await;
    assert_eq!(store.answer(reply("r", "q2", "two", "e2", 10)).await.unwrap(), ReplyOutcome::Answered);
    let a = claim_one(store, 11).await;
    assert_eq!(a.content.as_ref().unwrap().questions[1].answer.as_deref(), Some("two"));
    // Another unit, such as the next attempt, takes the question over.
    ask(store, &a, "q3", 12).await;
    ask(store, &b, "q3", 13).await;
    assert_eq!(store.answer(reply("r", "q3", "three", "e3", 14)).await.unwrap(), ReplyOutcome::Answered);
    let woken = claim_one(store, 15).await;
    assert_eq!(&*woken.key.unit, "b");
    assert_eq!(woken.content.unwrap().questions[0].answer.as_deref(), Some("three"));
    let order = store.questions(QuestionFilter { run: Some("r".into()), open: false }, 9).await.unwrap();
    assert_eq!(order.iter().map(|question| question.key.id.as_str()).collect::<Vec<_>>(), ["q", "q2", "q3"]);
}

async fn questions_close_with_their_run(store: &dyn RunStore) {
    store.start_run(new_run("r", &["a", "b"])).await.unwrap();
    let mut claimed = claim(store, "o", 2, 2).await;
    let (b, a) = (claimed.remove(1), claimed.remove(0));
    ask(store, &a, "q", 3).await;
    ask(store, &b, "given up", 3).await;
    let run = RunId::from("r");
    let open = || async {
        let open = store.questions(QuestionFilter { run: Some("r".into()), open: true }, 9).await.unwrap();
        open.into_iter().map(|question| question.key.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(open().await, ["q", "given up"]);
    store.append_run(RunBatch { wake_units: vec!["b".into()], ..RunBatch::new(run.clone(), at(4)) }).await.unwrap();
    let b = claim_one(store, 4).await;
    let closes = UnitBatch { close_questions: vec!["given up".into(), "unknown".into()], ..batch(&b, 5) };
    store.append(closes).await.unwrap();
    assert_eq!(open().await, ["q"]);
    assert_eq!(store.answer(reply("r", "given up", "late", "e1", 6)).await.unwrap(), ReplyOutcome::Closed);
    // A unit that asks a closed question again does not wait for ever.
    ask(store, &b, "given up", 6).await;
    assert_eq!(&*claim_one(store, 6).await.key.unit, "b");
    let stop = RunBatch { status: Some(RunStatus::Stopped), ..RunBatch::new(run.clone(), at(7)) };
    store.append_run(stop).await.unwrap();
    assert_eq!(open().await, [""; 0]);
    assert_eq!(store.question(&QuestionKey::new("r", "q")).await.unwrap().unwrap().status, QuestionStatus::Closed);
    assert_eq!(store.answer(reply("r", "q", "late", "e2", 8)).await.unwrap(), ReplyOutcome::Closed);
    assert_eq!(event_texts(store, "r").await.len(), 1);
    // It is open again when the run goes on, for the same event too.
    store.append_run(RunBatch { resume: true, ..RunBatch::new(run, at(9)) }).await.unwrap();
    assert_eq!(open().await, ["q"]);
    assert_eq!(store.answer(reply("r", "q", "yes", "e2", 10)).await.unwrap(), ReplyOutcome::Answered);
    let claimed = claim(store, "o", 11, 9).await;
    assert_eq!(names(&claimed), ["b", "a"]);
}

async fn signals_reach_units_in_every_status(store: &dyn RunStore) {
    let run = RunId::from("r");
    assert!(matches!(
        store.signal(&run, Signal::Cancel, at(1)).await,
        Err(RunStoreError::UnknownRun(unknown)) if unknown == run
    ));
    store.start_run(new_run("r", &["claimed", "waiting", "ready", "ended"])).await.unwrap();
    let claimed = claim(store, "o", 2, 9).await;
    let [held, waiting, ready, ended] = &claimed[..] else { panic!("{claimed:?}") };
    let later = Some(at(900));
    for (unit, transition) in [
        (waiting, UnitTransition::Waiting { wake_at: None }),
        (ready, UnitTransition::Ready { wake_at: later }),
        (ended, UnitTransition::Failed),
    ] {
        store.append(UnitBatch { transition, ..batch(unit, 3) }).await.unwrap();
    }
    assert_eq!(store.signal(&run, Signal::Stop, at(4)).await.unwrap(), SignalOutcome::Accepted);
    assert_eq!(store.run(&run).await.unwrap().unwrap().summary.stop, Some(StopRequest::Stop));
    let woken = claim(store, "o", 5, 9).await;
    assert_eq!(names(&woken), ["waiting", "ready"]);
    assert!(woken.iter().all(|unit| unit.content.as_ref().unwrap().signals.stop == Some(StopRequest::Stop)));
    assert_eq!(store.renew(&held.key, held.epoch, at(90)).await.unwrap().stop, Some(StopRequest::Stop));
    // To cancel has precedence over to stop.
    for signal in [Signal::Cancel, Signal::Stop, Signal::Cancel] {
        assert_eq!(store.signal(&run, signal, at(6)).await.unwrap(), SignalOutcome::Accepted);
    }
    assert_eq!(store.renew(&held.key, held.epoch, at(90)).await.unwrap().stop, Some(StopRequest::Cancel));
    // Who has not read it yet does not begin to wait.
    store.append(UnitBatch { transition: UnitTransition::Waiting { wake_at: None }, ..batch(held, 7) }).await.unwrap();
    assert_eq!(status(store, "r", "claimed").await, UnitStatus::Ready);
    assert_eq!(status(store, "r", "ended").await, UnitStatus::Failed);
    let end = UnitBatch { run_status: Some(RunStatus::Cancelled), ..batch(&woken[0], 8) };
    store.append(end).await.unwrap();
    let late = store.signal(&run, Signal::Cancel, at(9)).await.unwrap();
    assert_eq!(late, SignalOutcome::Ended(RunStatus::Cancelled));
}

async fn messages_are_read_until_acknowledged(store: &dyn RunStore) {
    let run = RunId::from("r");
    let message = |id: &str, unit: Option<&str>| Signal::Message {
        id: id.into(),
        unit: unit.map(Into::into),
        text: format!("text of {id}").into(),
    };
    store.start_run(new_run("r", &["a", "b"])).await.unwrap();
    let mut claimed = claim(store, "o", 2, 2).await;
    let (b, a) = (claimed.remove(1), claimed.remove(0));
    let waits = UnitTransition::Waiting { wake_at: None };
    store.append(UnitBatch { transition: waits, ..batch(&b, 3) }).await.unwrap();
    for (id, unit) in [("m1", None), ("m2", Some("a")), ("m1", Some("b")), ("m3", Some("b"))] {
        assert_eq!(store.signal(&run, message(id, unit), at(4)).await.unwrap(), SignalOutcome::Accepted);
    }
    let unknown = store.signal(&run, message("m4", Some("z")), at(4)).await;
    assert!(matches!(&unknown, Err(RunStoreError::UnknownUnit(unit)) if *unit.unit == *"z"), "{unknown:?}");
    let ids = |messages: &[RunMessage]| {
        messages.iter().map(|message| (message.seq, message.id.to_string())).collect::<Vec<_>>()
    };
    let of_a = store.renew(&a.key, a.epoch, at(64)).await.unwrap();
    assert_eq!(ids(&of_a.messages), [(1, "m1".into()), (2, "m2".into())]);
    assert_eq!((&*of_a.messages[0].text, of_a.messages[0].at, of_a.stop), ("text of m1", at(4), None));
    let b = claim_one(store, 5).await;
    assert_eq!(ids(&b.content.as_ref().unwrap().signals.messages), [(1, "m1".into()), (3, "m3".into())]);
    // Acknowledged by one unit, and only so far.
    store.append(UnitBatch { messages_seen: Some(1), ..batch(&a, 6) }).await.unwrap();
    assert_eq!(ids(&store.renew(&a.key, a.epoch, at(64)).await.unwrap().messages), [(2, "m2".into())]);
    // Lost with its owner, the others come again.
    let b = claim(store, "o", 95, 9).await.into_iter().find(|unit| *unit.key.unit == *"b").unwrap();
    assert_eq!(ids(&b.content.as_ref().unwrap().signals.messages).len(), 2);
    // No message is acknowledged before it is sent, and no number goes back.
    store.append(UnitBatch { messages_seen: Some(99), ..batch(&b, 96) }).await.unwrap();
    store.append(UnitBatch { messages_seen: Some(1), ..batch(&b, 96) }).await.unwrap();
    // A new unit gets those that are sent after its creation.
    store.append(UnitBatch { new_units: vec![NewUnit::new("c", "{}")], ..batch(&b, 97) }).await.unwrap();
    store.signal(&run, message("m5", None), at(98)).await.unwrap();
    assert_eq!(ids(&store.renew(&b.key, b.epoch, at(990)).await.unwrap().messages), [(4, "m5".into())]);
    let c = store.unit(&UnitKey::new("r", "c")).await.unwrap().unwrap();
    assert_eq!(ids(&c.signals.messages), [(4, "m5".into())]);
    store.append(UnitBatch { transition: waits, ..batch(&b, 99) }).await.unwrap();
    assert_eq!(status(store, "r", "b").await, UnitStatus::Ready, "it may have missed it");
    for n in 4..limits::RUN_MESSAGES {
        store.signal(&run, message(&format!("n{n}"), Some("a")), at(99)).await.unwrap();
    }
    assert_eq!(store.signal(&run, message("full", None), at(99)).await.unwrap_err().code(), "S0208");
}

async fn the_end_of_a_run_takes_its_units(store: &dyn RunStore) {
    for ended in [RunStatus::Completed, RunStatus::Failed, RunStatus::Stopped, RunStatus::Cancelled] {
        let id = ended.name();
        store.start_run(new_run(id, &["a", "b", "c"])).await.unwrap();
        let claimed = claim(store, "o", 2, 2).await;
        let end = UnitBatch { run_status: Some(ended), events: vec!["end".into()], ..batch(&claimed[0], 3) };
        assert_eq!(store.append(end).await.unwrap(), 2);
        for unit in &claimed {
            assert_fenced(store.append(UnitBatch { events: vec!["late".into()], ..batch(unit, 4) }).await);
            assert_fenced(store.renew(&unit.key, unit.epoch, at(999)).await);
            assert_fenced(store.release(&unit.key, unit.epoch, at(4)).await);
        }
        assert_eq!(names(&claim(store, "o", 999, 9).await), [""; 0]);
        assert_eq!(store.next_wake().await.unwrap(), None);
        let run = store.run(&id.into()).await.unwrap().unwrap().summary;
        assert_eq!((run.status, run.ended_at, run.last_seq), (ended, Some(at(3)), 2));
        let refused = store.append_run(RunBatch::new(id.into(), at(5))).await;
        assert!(matches!(refused, Err(RunStoreError::WrongStatus { status, .. }) if status == ended), "{refused:?}");
        // What could be resumed can be cancelled instead, and what is cancelled is never resumed.
        let change = |status, resume| RunBatch { status, resume, ..RunBatch::new(id.into(), at(6)) };
        let cancelled = store.append_run(change(Some(RunStatus::Cancelled), false)).await;
        assert_eq!(cancelled.is_ok(), ended.is_resumable(), "{cancelled:?}");
        let resumed = store.append_run(change(None, true)).await;
        assert!(matches!(resumed, Err(RunStoreError::WrongStatus { .. })), "{resumed:?}");
    }
}

async fn a_run_is_resumed(store: &dyn RunStore) {
    let run = RunId::from("r");
    store.start_run(new_run("r", &["done", "failed", "claimed", "waiting"])).await.unwrap();
    let claimed = claim(store, "o", 2, 9).await;
    let end = |unit: &ClaimedUnit, transition| UnitBatch { transition, ..batch(unit, 3) };
    store.append(end(&claimed[0], UnitTransition::Completed)).await.unwrap();
    let failed =
        UnitBatch { checkpoint: Some("so far".into()), transition: UnitTransition::Failed, ..batch(&claimed[1], 3) };
    store.append(failed).await.unwrap();
    store.append(end(&claimed[3], UnitTransition::Waiting { wake_at: Some(at(50)) })).await.unwrap();
    store.signal(&run, Signal::Stop, at(4)).await.unwrap();
    let early = store.append_run(RunBatch { resume: true, ..RunBatch::new(run.clone(), at(4)) }).await;
    assert!(matches!(early, Err(RunStoreError::WrongStatus { .. })), "{early:?}");
    store.append(UnitBatch { run_status: Some(RunStatus::Stopped), ..batch(&claimed[2], 5) }).await.unwrap();
    let resume = RunBatch {
        resume: true,
        events: vec!["resumed".into()],
        wake_units: ["done", "failed", "z"].map(Into::into).to_vec(),
        new_units: vec![NewUnit::new("new", "{}")],
        ..RunBatch::new(run.clone(), at(6))
    };
    assert_eq!(store.append_run(resume).await.unwrap(), 2);
    let resumed = store.run(&run).await.unwrap().unwrap().summary;
    assert_eq!((resumed.status, resumed.stop, resumed.ended_at), (RunStatus::Running, None, None));
    // The former owner has lost its unit for good.
    assert_fenced(store.append(batch(&claimed[2], 7)).await);
    let again = claim(store, "o", 8, 9).await;
    assert_eq!(names(&again), ["waiting", "claimed", "failed", "new"], "the signal had woken the waiting one");
    assert_eq!(again[2].content.as_ref().unwrap().checkpoint.as_deref(), Some("so far"));
    assert_eq!(again[2].content.as_ref().unwrap().signals.stop, None);
    assert_eq!((again[1].epoch, status(store, "r", "done").await), (2, UnitStatus::Completed));
    store.append(UnitBatch { run_status: Some(RunStatus::Completed), ..batch(&again[0], 9) }).await.unwrap();
    let complete = store.append_run(RunBatch { resume: true, ..RunBatch::new(run, at(10)) }).await;
    assert!(matches!(complete, Err(RunStoreError::WrongStatus { .. })), "{complete:?}");
}

async fn changes_of_a_run_are_checked(store: &dyn RunStore) {
    let run = RunId::from("r");
    let unknown = store.append_run(RunBatch::new(run.clone(), at(1))).await;
    assert!(matches!(unknown, Err(RunStoreError::UnknownRun(_))), "{unknown:?}");
    store.start_run(new_run("r", &["a"])).await.unwrap();
    let change = |after| RunBatch { after, events: vec!["e".into()], ..RunBatch::new("r".into(), at(2)) };
    assert_eq!(store.append_run(change(Some(1))).await.unwrap(), 2);
    let conflict = store.append_run(change(Some(1))).await;
    assert!(matches!(conflict, Err(RunStoreError::Conflict { expected: 1, found: 2, .. })), "{conflict:?}");
    assert!(conflict.unwrap_err().is_transient());
    let (one, two) = tokio::join!(store.append_run(change(Some(2))), store.append_run(change(Some(2))));
    assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
    assert_eq!(store.append_run(change(None)).await.unwrap(), 4);
    let waits = RunBatch { status: Some(RunStatus::Waiting), ..RunBatch::new(run.clone(), at(3)) };
    store.append_run(waits).await.unwrap();
    assert_eq!(store.run(&run).await.unwrap().unwrap().summary.status, RunStatus::Waiting);
    claim_one(store, 4).await;
}

/// Of two units that end at once, each based on the same events, one learns that it is the last.
async fn a_batch_based_on_earlier_events_is_refused(store: &dyn RunStore) {
    store.start_run(new_run("r", &["a", "b"])).await.unwrap();
    let claimed = claim(store, "o", 2, 9).await;
    let ends = |unit: &ClaimedUnit, after| UnitBatch {
        after,
        events: vec!["completed".into()],
        transition: UnitTransition::Completed,
        ..batch(unit, 3)
    };
    let (one, two) = tokio::join!(store.append(ends(&claimed[0], Some(1))), store.append(ends(&claimed[1], Some(1))),);
    let (refused, last) = if one.is_ok() { (two, 1) } else { (one, 0) };
    assert!(matches!(refused, Err(RunStoreError::Conflict { expected: 1, found: 2, .. })), "{refused:?}");
    assert_eq!(status(store, "r", &claimed[last].key.unit).await, UnitStatus::Claimed, "it is still held");
    assert_eq!(store.append(ends(&claimed[last], Some(2))).await.unwrap(), 3);
    assert_fenced(store.append(ends(&claimed[last], Some(1))).await);
}

async fn counts_and_the_next_wake_time(store: &dyn RunStore) {
    assert_eq!(store.counts(at(1)).await.unwrap(), RunCounts::default());
    assert_eq!(store.next_wake().await.unwrap(), None);
    store.start_run(new_run("r", &["a", "b", "c", "d", "e"])).await.unwrap();
    store.start_run(NewRun { queued: true, ..new_run("q", &["a"]) }).await.unwrap();
    store.start_run(NewRun { queued: true, ..new_run("f", &["a"]) }).await.unwrap();
    store.append_run(RunBatch { status: Some(RunStatus::Failed), ..RunBatch::new("f".into(), at(2)) }).await.unwrap();
    assert_eq!(store.next_wake().await.unwrap(), Some(at(1)), "some can be claimed already");
    let claimed = claim(store, "o", 2, 4).await;
    let end = |unit: &ClaimedUnit, transition| UnitBatch { transition, ..batch(unit, 3) };
    store.append(end(&claimed[0], UnitTransition::Completed)).await.unwrap();
    ask(store, &claimed[1], "q", 3).await;
    store.append(end(&claimed[2], UnitTransition::Waiting { wake_at: Some(at(50)) })).await.unwrap();
    let counts = |ready_units, expired_leases, waiting_units| RunCounts {
        runs: vec![(RunStatus::Queued, 1), (RunStatus::Running, 1), (RunStatus::Failed, 1)],
        ready_units,
        claimed_units: 1,
        expired_leases,
        waiting_units,
        open_questions: 1,
    };
    assert_eq!(store.counts(at(4)).await.unwrap(), counts(1, 0, 3), "that of the queued run waits");
    assert_eq!(store.counts(at(55)).await.unwrap(), counts(2, 0, 2));
    assert_eq!(store.counts(at(62)).await.unwrap(), counts(2, 1, 2));
    store.start_run(NewRun { mission: "@job".into(), ..new_run("j", &["a"]) }).await.unwrap();
    assert_eq!(store.counts(at(62)).await.unwrap(), counts(2, 1, 2), "jobs do not count");
    claim(store, "o", 5, 2).await;
    assert_eq!(store.next_wake().await.unwrap(), Some(at(50)), "before the leases are over");
}

async fn ended_runs_are_purged(store: &dyn RunStore) {
    let long = Duration::from_secs(100);
    let keyed = |id: &str| NewRun { idempotency_key: Some(id.into()), ..new_run(id, &["a", "b"]) };
    for id in ["old", "new", "open"] {
        store.start_run(keyed(id)).await.unwrap();
    }
    for unit in claim(store, "o", 2, 9).await {
        let full = UnitBatch {
            events: (0..700).map(|n| format!("e{n}").into()).collect(),
            records: vec![record("s", Some("1"))],
            blobs: vec![RunBlob { id: "x".into(), text: "blob".into() }],
            ..batch(&unit, 3)
        };
        store.append(full).await.unwrap();
        ask(store, &unit, "q", 3).await;
    }
    store.signal(&"old".into(), Signal::Message { id: "m".into(), unit: None, text: "t".into() }, at(4)).await.unwrap();
    for (id, ended) in [("old", 10), ("new", 11)] {
        let end = RunBatch { status: Some(RunStatus::Completed), ..RunBatch::new(id.into(), at(ended)) };
        store.append_run(end).await.unwrap();
    }
    assert!(store.purge_runs(at(110), long).await.unwrap().is_empty());
    assert_eq!(store.purge_runs(at(111), long).await.unwrap(), [RunId::from("old")]);
    assert!(store.purge_runs(at(111), long).await.unwrap().is_empty());
    let left = store.runs(RunFilter::default(), 9).await.unwrap();
    assert_eq!(left.iter().map(|run| run.id.as_str()).collect::<Vec<_>>(), ["open", "new"]);
    let gone = RunId::from("old");
    assert_eq!(store.run(&gone).await.unwrap(), None);
    assert_eq!(store.events(&gone, 0, 9).await.unwrap(), []);
    assert_eq!(store.units(&gone).await.unwrap(), []);
    assert_eq!(store.blob(&gone, "x").await.unwrap(), None);
    assert_eq!(store.question(&QuestionKey::new("old", "q")).await.unwrap(), None);
    assert_eq!(store.events(&"new".into(), 1_400, 9).await.unwrap().len(), 1, "the others are complete");
    assert_eq!(store.blob(&"new".into(), "x").await.unwrap().as_deref(), Some("blob"));
    // Its id and its key can be used again, and nothing of it is found.
    assert_eq!(store.start_run(keyed("old")).await.unwrap(), StartOutcome::New);
    assert_eq!(event_texts(store, "old").await.len(), 1);
    let job = NewRun { mission: "@job".into(), conversation: Some("c".into()), ..new_run("job", &[]) };
    store.start_run(job).await.unwrap();
    let end = RunBatch { status: Some(RunStatus::Completed), ..RunBatch::new("job".into(), at(11)) };
    store.append_run(end).await.unwrap();
    assert_eq!(store.purge_runs(at(9_999), long).await.unwrap(), [RunId::from("new")]);
    assert_eq!(store.runs(RunFilter::default(), 9).await.unwrap().len(), 3, "runs that have not ended stay, and jobs");
    assert_eq!(store.erase_runs(&"c".into()).await.unwrap(), [RunId::from("job")]);
}

async fn runs_of_a_conversation_are_erased(store: &dyn RunStore) {
    let of = |id: &str, conversation: Option<&str>| NewRun {
        conversation: conversation.map(Into::into),
        ..new_run(id, &["a"])
    };
    for (id, conversation) in [("r1", Some("c")), ("r2", Some("d")), ("r3", Some("c")), ("r4", None)] {
        store.start_run(of(id, conversation)).await.unwrap();
    }
    let claimed = claim(store, "o", 2, 9).await;
    store.append_run(RunBatch { status: Some(RunStatus::Failed), ..RunBatch::new("r3".into(), at(3)) }).await.unwrap();
    let mut erased = store.erase_runs(&"c".into()).await.unwrap();
    erased.sort();
    assert_eq!(erased, [RunId::from("r1"), RunId::from("r3")]);
    assert!(store.erase_runs(&"c".into()).await.unwrap().is_empty());
    assert_fenced(store.append(batch(&claimed[0], 4)).await);
    store.append(batch(&claimed[1], 4)).await.unwrap();
    let left = store.runs(RunFilter::default(), 9).await.unwrap();
    assert_eq!(left.iter().map(|run| run.id.as_str()).collect::<Vec<_>>(), ["r4", "r2"]);
    assert_eq!(names(&claim(store, "o", 999, 9).await), ["a", "a"]);
    assert_eq!(store.counts(at(1)).await.unwrap().runs, [(RunStatus::Running, 2)]);
}

async fn sizes_are_limited(store: &dyn RunStore) {
    let too_large = |refused: RunStoreError| {
        assert!(matches!(refused, RunStoreError::TooLarge { .. }), "{refused}");
        assert_eq!(refused.code(), "S0208");
    };
    let (text, name): (Arc<str>, Arc<str>) = ("x".repeat(RUN_TEXT + 1).into(), "x".repeat(RUN_NAME + 1).into());
    too_large(store.start_run(NewRun::new(&*name, "m", at(1))).await.unwrap_err());
    too_large(store.start_run(NewRun { inputs: text.clone(), ..new_run("r", &["a"]) }).await.unwrap_err());
    too_large(store.start_run(NewRun { idempotency_key: Some(name.clone()), ..new_run("r", &[]) }).await.unwrap_err());
    store.start_run(new_run("r", &["a"])).await.unwrap();
    let a = claim_one(store, 2).await;
    let empty = || batch(&a, 3);
    for large in [
        UnitBatch { events: vec![text.clone()], ..empty() },
        UnitBatch { events: vec!["e".into(); limits::RUN_BATCH + 1], ..empty() },
        UnitBatch { checkpoint: Some(text.clone()), ..empty() },
        UnitBatch { records: vec![record("s", Some(&text))], ..empty() },
        UnitBatch { blobs: vec![RunBlob { id: name.clone(), text: "t".into() }], ..empty() },
        UnitBatch { blobs: vec![RunBlob { id: "x".into(), text: text.clone() }], ..empty() },
        UnitBatch { questions: vec![NewQuestion { id: "q".into(), question: text.clone() }], ..empty() },
        UnitBatch { new_units: vec![NewUnit::new(name.clone(), "{}")], ..empty() },
    ] {
        too_large(store.append(large).await.unwrap_err());
    }
    too_large(store.answer(QuestionReply { text: text.clone(), ..reply("r", "q", "", "e", 3) }).await.unwrap_err());
    let message = Signal::Message { id: "m".into(), unit: None, text: text.clone() };
    too_large(store.signal(&"r".into(), message, at(3)).await.unwrap_err());
    too_large(store.append_run(RunBatch { events: vec![text], ..RunBatch::new("r".into(), at(3)) }).await.unwrap_err());
    // As many units as allowed, and one more.
    let many = |from: usize, to: usize| (from..to).map(|n| NewUnit::new(format!("u{n}"), "")).collect();
    store.append(UnitBatch { new_units: many(1, RUN_UNITS), ..empty() }).await.unwrap();
    too_large(store.append(UnitBatch { new_units: many(RUN_UNITS, RUN_UNITS + 1), ..empty() }).await.unwrap_err());
    store.append(UnitBatch { new_units: many(5, 9), ..empty() }).await.unwrap();
    assert_eq!(store.units(&"r".into()).await.unwrap().len(), RUN_UNITS);
    assert_eq!(event_texts(store, "r").await.len(), 1, "nothing of a refused batch is stored");
}
