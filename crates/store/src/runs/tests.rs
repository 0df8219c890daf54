#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::*;

#[tokio::test]
async fn fulfils_the_run_store_contract() {
    contract::check(|| Arc::new(MemoryRunStore::new())).await;
}

#[tokio::test]
async fn runs_that_ended_first_are_removed_at_the_limit() {
    let store = MemoryRunStore::new();
    let end = |id: String, at| {
        let batch = RunBatch { status: Some(RunStatus::Completed), ..RunBatch::new(id.into(), contract::at(at)) };
        store.append_run(batch)
    };
    for n in 0..segue_base::limits::MEMORY_RUNS {
        store.start_run(NewRun::new(format!("r{n}"), "m", contract::at(1))).await.unwrap();
    }
    store.start_run(NewRun::new("more", "m", contract::at(1))).await.unwrap();
    assert!(store.run(&"r0".into()).await.unwrap().is_some(), "runs that have not ended stay");
    end("r5".to_owned(), 9).await.unwrap();
    end("r7".to_owned(), 8).await.unwrap();
    store.start_run(NewRun::new("further", "m", contract::at(1))).await.unwrap();
    assert!(store.run(&"r7".into()).await.unwrap().is_none());
    assert!(store.run(&"r5".into()).await.unwrap().is_some());
}

#[test]
fn names_of_statuses_are_stable() {
    let runs = RunStatus::ALL.map(RunStatus::name);
    assert_eq!(runs, ["queued", "running", "waiting", "completed", "failed", "stopped", "cancelled"]);
    let units = UnitStatus::ALL.map(UnitStatus::name);
    assert_eq!(units, ["ready", "claimed", "waiting", "completed", "failed", "cancelled"]);
    assert!(RunStatus::ALL.into_iter().all(|status| RunStatus::from_name(status.name()) == Some(status)));
    assert!(UnitStatus::ALL.into_iter().all(|status| UnitStatus::from_name(status.name()) == Some(status)));
    for request in [StopRequest::Stop, StopRequest::Cancel] {
        assert_eq!(StopRequest::from_name(request.name()), Some(request));
    }
}

#[test]
fn control_characters_of_ids_are_escaped_in_messages() {
    let id = "a\u{1b}[2J\nERROR b";
    for error in [
        RunStoreError::UnknownRun(id.into()),
        RunStoreError::Fenced { unit: UnitKey::new(id, id), epoch: 1 },
        RunStoreError::UnknownQuestion { run: id.into(), question: id.into() },
        RunStoreError::corrupt(&id.into(), "gone"),
    ] {
        assert!(!error.to_string().contains(char::is_control), "{error:?}");
    }
}
