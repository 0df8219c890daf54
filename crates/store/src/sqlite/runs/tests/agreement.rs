//! Random operations: the stores in memory and in SQLite agree on every result and on all that is stored.

use proptest::prelude::*;

use super::*;
use crate::runs::{MemoryRunStore, Overflow, RunLimits, StopRequest};

/// An operation. Numbers select from few names, so that operations meet.
#[derive(Clone, Debug)]
enum Operation {
    Start { run: u8, key: Option<u8>, queued: bool, limits: (RunLimits, bool), units: u8 },
    Admit { run: u8, limits: RunLimits },
    Claim { run: Option<u8>, limit: usize },
    Append { held: usize, after: Option<u64>, parts: Parts },
    AppendRun { run: u8, resume: bool, after: Option<u64>, parts: Parts },
    Renew { held: usize, lease: i64 },
    Release { held: usize },
    Reply { run: u8, question: u8, event: u8 },
    Stop { run: u8, request: StopRequest },
    Message { run: u8, id: u8, unit: Option<u8> },
    Purge { older_than: u64 },
    Erase { run: u8 },
}

/// The parts of a batch.
#[derive(Clone, Debug)]
struct Parts {
    events: u8,
    record: Option<(u8, bool)>,
    checkpoint: bool,
    transition: u8,
    wake_after: Option<i64>,
    new_unit: Option<u8>,
    wake: Option<u8>,
    cancel: Option<u8>,
    blob: Option<u8>,
    question: Option<u8>,
    close: Option<u8>,
    seen: Option<u64>,
    status: Option<u8>,
}

fn parts() -> impl Strategy<Value = Parts> {
    let some = |range: std::ops::Range<u8>| proptest::option::weighted(0.2, range);
    let first = (0..3u8, proptest::option::weighted(0.5, (0..4u8, any::<bool>())), proptest::bool::weighted(0.2));
    let second = (0..8u8, proptest::option::of(0..60i64), some(0..5), some(0..5), some(0..5));
    let third = (some(0..2), proptest::option::weighted(0.4, 0..3u8), some(0..3), proptest::option::of(0..6u64));
    // Few batches change the status of the run, and fewer end it.
    (first, second, third, proptest::option::weighted(0.15, 0..7u8)).prop_map(|(first, second, third, status)| Parts {
        events: first.0,
        record: first.1,
        checkpoint: first.2,
        transition: second.0,
        wake_after: second.1,
        new_unit: second.2,
        wake: second.3,
        cancel: second.4,
        blob: third.0,
        question: third.1,
        close: third.2,
        seen: third.3,
        status,
    })
}

fn limits() -> impl Strategy<Value = RunLimits> {
    let few = || proptest::option::weighted(0.3, 1..3u32);
    (few(), few()).prop_map(|(mission, group)| RunLimits { mission, group })
}

fn operation() -> impl Strategy<Value = Operation> {
    let run = 0..4u8;
    let few = proptest::option::weighted(0.3, 0..2u8);
    prop_oneof![
        3 => (run.clone(), few, proptest::bool::weighted(0.2), (limits(), any::<bool>()), 0..4u8)
            .prop_map(|(run, key, queued, limits, units)| Operation::Start { run, key, queued, limits, units }),
        1 => (run.clone(), limits()).prop_map(|(run, limits)| Operation::Admit { run, limits }),
        5 => (proptest::option::weighted(0.2, run.clone()), 0..4usize)
            .prop_map(|(run, limit)| Operation::Claim { run, limit }),
        12 => (0..6usize, proptest::option::weighted(0.1, 0..9u64), parts())
            .prop_map(|(held, after, parts)| Operation::Append { held, after, parts }),
        3 => (run.clone(), any::<bool>(), proptest::option::weighted(0.2, 0..9u64), parts())
            .prop_map(|(run, resume, after, parts)| Operation::AppendRun { run, resume, after, parts }),
        1 => (0..6usize, 0..90i64).prop_map(|(held, lease)| Operation::Renew { held, lease }),
        1 => (0..6usize).prop_map(|held| Operation::Release { held }),
        4 => (run.clone(), 0..3u8, 0..5u8).prop_map(|(run, question, event)| Operation::Reply { run, question, event }),
        1 => (run.clone(), any::<bool>()).prop_map(|(run, cancel)| Operation::Stop {
            run,
            request: if cancel { StopRequest::Cancel } else { StopRequest::Stop },
        }),
        2 => (run.clone(), 0..5u8, proptest::option::of(0..4u8))
            .prop_map(|(run, id, unit)| Operation::Message { run, id, unit }),
        1 => (0..200u64).prop_map(|older_than| Operation::Purge { older_than }),
        1 => run.prop_map(|run| Operation::Erase { run }),
    ]
}

fn run_id(run: u8) -> RunId {
    format!("r{run}").into()
}

fn unit_name(unit: u8) -> Arc<str> {
    format!("u{unit}").into()
}

impl Parts {
    fn new_units(&self, at: Timestamp) -> Vec<NewUnit> {
        let wake_at = self.wake_after.map(|after| lease_end(at, Duration::from_secs(after.unsigned_abs())));
        self.new_unit.map(|unit| NewUnit { wake_at, ..NewUnit::new(unit_name(unit), "input") }).into_iter().collect()
    }

    fn events(&self) -> Vec<Arc<str>> {
        (0..self.events).map(|n| format!("{{\"n\":{n}}}").into()).collect()
    }

    fn status(&self) -> Option<RunStatus> {
        self.status.map(|status| RunStatus::ALL[usize::from(status)])
    }

    fn unit_batch(self, unit: &ClaimedUnit, at: Timestamp) -> UnitBatch {
        let wake_at = self.wake_after.map(|after| lease_end(at, Duration::from_secs(after.unsigned_abs())));
        UnitBatch {
            events: self.events(),
            records: self.record.iter().map(|(step, done)| record(&format!("s{step}"), done.then_some("1"))).collect(),
            checkpoint: self.checkpoint.then(|| format!("at {at:?}").into()),
            transition: match self.transition {
                0 => UnitTransition::Ready { wake_at },
                1 | 2 => UnitTransition::Waiting { wake_at },
                3 => UnitTransition::Completed,
                4 => UnitTransition::Failed,
                5 => UnitTransition::Cancelled,
                _ => UnitTransition::Hold,
            },
            new_units: self.new_units(at),
            wake_units: self.wake.map(unit_name).into_iter().collect(),
            cancel_units: self.cancel.map(unit_name).into_iter().collect(),
            blobs: self
                .blob
                .map(|blob| RunBlob {
                    id: if blob == 0 { "x".into() } else { "y".into() },
                    text: format!("{at:?}").into(),
                })
                .into_iter()
                .collect(),
            questions: self
                .question
                .map(|id| NewQuestion { id: format!("q{id}").into(), question: format!("{at:?}?").into() })
                .into_iter()
                .collect(),
            close_questions: self.close.map(|id| format!("q{id}").into()).into_iter().collect(),
            messages_seen: self.seen,
            run_status: self.status(),
            ..UnitBatch::new(unit.key.clone(), unit.epoch, at)
        }
    }
}

/// Performs an operation; returns its result as text. `held` are the units claimed so far, the latest last.
async fn perform(store: &dyn RunStore, operation: Operation, held: &mut Vec<ClaimedUnit>, now: i64) -> String {
    let at = at(now);
    // The latest first: earlier ones are mostly fenced.
    let pick = |held: &Vec<ClaimedUnit>, back: usize| held.iter().rev().nth(back).cloned();
    match operation {
        Operation::Admit { run, limits } => format!("{:?}", store.admit(&run_id(run), limits, at).await),
        Operation::Start { run, key, queued, limits: (limits, queues), units } => {
            let new = NewRun {
                idempotency_key: key.map(|key| format!("k{key}").into()),
                conversation: (run % 2 == 0).then(|| format!("c{run}").into()),
                queued,
                group: (run > 1).then(|| "g".into()),
                limits,
                overflow: if queues { Overflow::Queue } else { Overflow::Refuse },
                units: (0..units).map(|unit| NewUnit::new(unit_name(unit), "{}")).collect(),
                ..NewRun::new(run_id(run), if run == 3 { "@job" } else { "m" }, at)
            };
            format!("{:?}", store.start_run(new).await)
        }
        Operation::Claim { run, limit } => {
            let (run, lease) = (run.map(run_id), Duration::from_secs(60));
            let claimed =
                store.claim(ClaimRequest { run, owner: "o".into(), now: at, lease, limit, gone: Vec::new() }).await;
            held.extend(claimed.iter().flatten().cloned());
            format!("{claimed:?}")
        }
        Operation::Append { held: back, after, parts } => match pick(held, back) {
            Some(unit) => {
                format!("{:?}", store.append(UnitBatch { after, ..parts.unit_batch(&unit, at) }).await)
            }
            None => String::new(),
        },
        Operation::AppendRun { run, resume, after, parts } => {
            let batch = RunBatch {
                after,
                resume,
                events: parts.events(),
                new_units: parts.new_units(at),
                wake_units: parts.wake.map(unit_name).into_iter().collect(),
                cancel_units: parts.cancel.map(unit_name).into_iter().collect(),
                status: parts.status(),
                ..RunBatch::new(run_id(run), at)
            };
            format!("{:?}", store.append_run(batch).await)
        }
        Operation::Renew { held: back, lease } => match pick(held, back) {
            Some(unit) => format!("{:?}", store.renew(&unit.key, unit.epoch, contract::at(now + lease)).await),
            None => String::new(),
        },
        Operation::Release { held: back } => match pick(held, back) {
            Some(unit) => format!("{:?}", store.release(&unit.key, unit.epoch, at).await),
            None => String::new(),
        },
        Operation::Reply { run, question, event } => {
            let event = if event == 0 { String::new() } else { format!("e{event}") };
            let reply = reply(run_id(run).as_str(), &format!("q{question}"), &format!("{at:?}"), &event, now);
            format!("{:?}", store.answer(reply).await)
        }
        Operation::Stop { run, request } => {
            let signal = if request == StopRequest::Cancel { Signal::Cancel } else { Signal::Stop };
            format!("{:?}", store.signal(&run_id(run), signal, at).await)
        }
        Operation::Message { run, id, unit } => {
            let signal = Signal::Message {
                id: format!("m{id}").into(),
                unit: unit.map(unit_name),
                text: format!("{at:?}").into(),
            };
            format!("{:?}", store.signal(&run_id(run), signal, at).await)
        }
        Operation::Purge { older_than } => {
            format!("{:?}", store.purge_runs(at, Duration::from_secs(older_than)).await.map(sorted))
        }
        Operation::Erase { run } => {
            format!("{:?}", store.erase_runs(&format!("c{run}").as_str().into()).await.map(sorted))
        }
    }
}

/// The stores delete in different orders.
fn sorted(mut runs: Vec<RunId>) -> Vec<RunId> {
    runs.sort();
    runs
}

/// All that is stored.
async fn dump_all(store: &dyn RunStore, now: i64) -> String {
    let mut all = format!(
        "{:?}\n{:?}\n{:?}\n{:?}\n",
        store.runs(RunFilter::default(), 99).await.unwrap(),
        store.questions(QuestionFilter { run: None, open: true }, 99).await.unwrap(),
        store.counts(at(now)).await.unwrap(),
        store.next_wake().await.unwrap()
    );
    for run in 0..4 {
        all += &dump(store, run_id(run).as_str()).await;
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn memory_and_sqlite_agree(operations in proptest::collection::vec((operation(), -5..30i64), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let files = Files::new();
            let (memory, mut sqlite) = (MemoryRunStore::new(), files.open("a.db"));
            let (mut now, mut held, mut held_sqlite) = (100, Vec::new(), Vec::new());
            for (number, (operation, later)) in operations.into_iter().enumerate() {
                now += later;
                let expected = perform(&memory, operation.clone(), &mut held, now).await;
                let found = perform(&sqlite, operation.clone(), &mut held_sqlite, now).await;
                prop_assert_eq!(&found, &expected, "{:?}", operation);
                if number % 8 == 0 {
                    prop_assert_eq!(dump_all(&sqlite, now).await, dump_all(&memory, now).await, "{:?}", operation);
                }
                if number % 29 == 28 {
                    drop(sqlite);
                    sqlite = files.open("a.db");
                }
            }
            prop_assert_eq!(dump_all(&sqlite, now).await, dump_all(&memory, now).await);
            Ok(())
        })?;
    }
}
