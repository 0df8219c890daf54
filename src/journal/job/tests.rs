#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;

use super::*;
use crate::{
    effect::EffectClass,
    store::runs::{ForwardingRunStore, MemoryRunStore, RunBatch, RunStatus, Signal, contract},
    testing::ManualClock,
};

struct Job {
    store: Arc<dyn RunStore>,
    clock: ManualClock,
    stop: CancellationToken,
    journal: JobJournal,
    key: UnitKey,
    epoch: u64,
}

/// A job that its first owner has claimed.
async fn job() -> Job {
    let (store, clock) = (Arc::new(MemoryRunStore::new()), ManualClock::new());
    store.start_run(contract::new_run("r", &["a"])).await.unwrap();
    claim(store, clock).await
}

/// The job of the next owner.
async fn claim(store: Arc<dyn RunStore>, clock: ManualClock) -> Job {
    let claimed = contract::claim_one(&*store, i64::try_from(clock.elapsed().as_secs()).unwrap() + 2).await;
    let (key, epoch, stop) = (claimed.key, claimed.epoch, CancellationToken::new());
    let owned =
        JobClaim { store: store.clone(), key: key.clone(), epoch, clock: Arc::new(clock.clone()), stop: stop.clone() };
    let journal = JobJournal::new(owned, 1, Arc::new(NoEvents), claimed.content.unwrap().records);
    Job { store, clock, stop, journal, key, epoch }
}

fn step<'a>(key: &'a StepKey, kind: &'a str, class: EffectClass) -> Step<'a> {
    Step { key, kind, class, request: "h" }
}

fn at() -> Timestamp {
    Timestamp::from_micros(9)
}

impl Job {
    fn claim(&self) -> JobClaim {
        JobClaim {
            store: self.store.clone(),
            key: self.key.clone(),
            epoch: self.epoch,
            clock: Arc::new(self.clock.clone()),
            stop: self.stop.clone(),
        }
    }
    async fn stored(&self) -> Vec<String> {
        let records = self.store.unit(&self.key).await.unwrap().unwrap().records;
        records.iter().map(|record| format!("{} {}", record.key, record.outcome.is_some())).collect()
    }
}

#[tokio::test]
async fn responses_of_models_are_stored_at_once_and_other_reads_with_the_next_write() {
    let job = job().await;
    let (read, response) = (StepKey::new("read"), StepKey::new("response"));
    for (key, kind, expected) in [(&read, "tool", &[][..]), (&response, "llm", &["read true", "response true"])] {
        assert_eq!(job.journal.begin(step(key, kind, EffectClass::Read)).await.unwrap(), StepStart::Run);
        job.journal.finish(key, "1".into(), at()).await.unwrap();
        assert_eq!(job.stored().await, expected, "{kind}");
    }
}

#[tokio::test]
async fn a_step_that_contains_others_has_no_outcome_after_a_stop_and_runs_again_in_the_next_process() {
    let first = job().await;
    let (task, send) = (StepKey::new("task"), StepKey::new("task/send"));
    first.journal.begin(step(&task, "tool", EffectClass::Composite)).await.unwrap();
    first.journal.begin(step(&send, "tool", EffectClass::Write)).await.unwrap();
    assert!(!first.journal.is_stopped());
    first.stop.cancel();
    assert!(first.journal.is_stopped());
    first.journal.finish(&send, "1".into(), at()).await.unwrap();
    first.journal.finish(&task, "cancelled".into(), at()).await.unwrap_err();
    assert_eq!(first.stored().await, ["task/send true"]);

    first.clock.advance(Duration::from_secs(100));
    let second = claim(first.store.clone(), first.clock.clone()).await;
    assert_eq!(second.journal.begin(step(&task, "tool", EffectClass::Composite)).await.unwrap(), StepStart::Run);
    let replayed = StepStart::Replay { outcome: "1".into(), at: at() };
    assert_eq!(second.journal.begin(step(&send, "tool", EffectClass::Write)).await.unwrap(), replayed);
    // The first process has lost the job: it stores nothing any more.
    first.journal.commit(|batch| batch.events.push("late".into())).await.unwrap_err();
    assert!(matches!(first.journal.halt(), Some(Halt::Store(RunStoreError::Fenced { .. }))));
}

#[tokio::test]
async fn the_owner_of_a_job_learns_of_a_signal_and_of_its_end_when_it_renews_its_lease() {
    let job = job().await;
    let seen = Mutex::new(Vec::new());
    let note = |request: Option<StopRequest>| seen.lock().unwrap().push(request);
    let mut holding = pin!(hold(&*job.store, &job.key, job.epoch, &job.clock, note, std::future::pending::<()>()));
    assert!(futures::poll!(&mut holding).is_pending());
    job.clock.advance(RENEWAL);
    assert!(futures::poll!(&mut holding).is_pending());
    assert_eq!(job.store.units(&job.key.run).await.unwrap()[0].lease_until, Some(later(job.clock.now(), LEASE)));
    assert!(seen.lock().unwrap().is_empty());

    job.store.signal(&job.key.run, Signal::Cancel, at()).await.unwrap();
    job.clock.advance(RENEWAL);
    assert!(futures::poll!(&mut holding).is_pending());
    assert_eq!(*seen.lock().unwrap(), [Some(StopRequest::Cancel)]);

    let end = RunBatch { status: Some(RunStatus::Cancelled), ..RunBatch::new(job.key.run.clone(), at()) };
    job.store.append_run(end).await.unwrap();
    job.clock.advance(RENEWAL);
    assert!(futures::poll!(&mut holding).is_pending());
    assert_eq!(*seen.lock().unwrap(), [Some(StopRequest::Cancel), None]);
}

#[tokio::test]
async fn work_stops_before_another_owner_may_take_a_unit_whose_lease_is_not_confirmed() {
    let (clock, key) = (ManualClock::new(), UnitKey::new("r", "a"));
    let (is_down, stops) = (std::cell::Cell::new(true), std::cell::Cell::new(0));
    let renewal = || {
        let down = Err(RunStoreError::Store(StoreError::Unavailable("no connection".into())));
        std::future::ready(if is_down.get() { down } else { Ok(Signals::default()) })
    };
    let mut renewals = pin!(renew(&key, &clock, renewal, |_| stops.set(stops.get() + 1)));
    let mut pass = |down: bool| {
        is_down.set(down);
        clock.advance(RENEWAL);
        assert!(futures::FutureExt::now_or_never(&mut renewals).is_none());
        stops.get()
    };
    assert_eq!([pass(true), pass(false), pass(true)], [0; 3], "the lease is not over yet");
    assert_eq!(pass(true), 1, "it is over at the next renewal");
    assert!(clock.elapsed() < RENEWAL * 2 + LEASE);
}

/// A store that reports so many failures of appends, which it has stored or not.
struct Failing {
    inner: Arc<dyn RunStore>,
    failures: AtomicU32,
    stores: bool,
}

#[async_trait]
impl ForwardingRunStore for Failing {
    fn inner(&self) -> &dyn RunStore {
        &*self.inner
    }
    async fn append(&self, batch: UnitBatch) -> Result<u64, RunStoreError> {
        let left = self.failures.load(Ordering::SeqCst);
        if left == 0 {
            return self.inner.append(batch).await;
        }
        self.failures.store(left - 1, Ordering::SeqCst);
        if self.stores {
            self.inner.append(batch).await?;
        }
        Err(StoreError::Unavailable("database is locked".into()).into())
    }
}

#[tokio::test]
async fn a_store_that_fails_for_a_while_gets_everything_once_and_one_that_fails_for_long_ends_the_job() {
    for (failures, stores) in [(3, false), (1, true), (u32::MAX, false)] {
        let job = job().await;
        let store = Arc::new(Failing { inner: job.store.clone(), failures: failures.into(), stores });
        let journal = JobJournal::new(JobClaim { store, ..job.claim() }, 1, Arc::new(NoEvents), Vec::new());
        for write in 0..2 {
            if write == 0 {
                journal.note("noted".into());
            } else {
                journal.add_pending(JournalRecord {
                    outcome: Some("1".into()),
                    ..journal.record(&StepKey::new("s"), "llm")
                });
            }
            let mut commit = pin!(journal.commit(|_| {}));
            let stored = loop {
                match futures::poll!(&mut commit) {
                    std::task::Poll::Ready(stored) => break stored,
                    std::task::Poll::Pending => job.clock.advance(Duration::from_secs(10)),
                }
            };
            if failures == u32::MAX {
                assert_eq!(stored.unwrap_err().code(), "S0103");
                assert!(matches!(journal.halt(), Some(Halt::Store(_))));
                assert!(job.clock.elapsed() >= limits::JOB_STORE_WAIT);
                break;
            }
            stored.unwrap();
            assert!(journal.halt().is_none());
        }
        if failures != u32::MAX {
            let events = job.store.events(&job.key.run, 1, 9).await.unwrap();
            assert_eq!(events.iter().map(|event| &*event.event).collect::<Vec<_>>(), ["noted"]);
            assert_eq!(job.stored().await, ["s true"]);
        }
    }
}

#[tokio::test]
async fn a_write_without_an_outcome_is_needed_later_and_a_read_is_not() {
    let job = job().await;
    let (write, read) = (StepKey::new("write"), StepKey::new("read"));
    for (key, class) in [(&write, EffectClass::Write), (&read, EffectClass::Read)] {
        assert_eq!(job.journal.begin(step(key, "tool", class)).await.unwrap(), StepStart::Run);
    }
    let kept = job.journal.records();
    assert_eq!(kept.iter().map(|record| record.key.as_str()).collect::<Vec<_>>(), ["write"]);
    let later = JobJournal::new(job.claim(), 1, Arc::new(NoEvents), kept);
    assert_eq!(later.begin(step(&write, "tool", EffectClass::Write)).await.unwrap(), StepStart::Unknown);
}
