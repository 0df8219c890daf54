//! The journal and the ledger: what a crash leaves, and what an agent reads about earlier delegates.

use futures::{FutureExt, poll};
use serde_json::{Map, json};

use super::harness::{World, call, meta_of, say, task, text_of};
use crate::{
    delegation::{
        Ledger, ReportStatus,
        ledger::SettledTask,
        report::{brief, key},
    },
    prompts::PromptSet,
    store::JournalRecord,
    tools::{FailureKind, ToolOutcome, ToolOutput},
};

fn has_outcome(records: &[JournalRecord], key: &str) -> bool {
    records.iter().any(|record| record.key.as_str() == key && record.outcome.is_some())
}

#[tokio::test]
async fn a_crash_repeats_no_finished_delegate_and_leaves_one_terminal_record_for_each() {
    let world = World::new([
        ("delegate: a", vec![call("", &[("find", json!({}))]), say("A is done.")]),
        ("delegate: b", vec![call("", &[("write", json!({}))]), call("", &[("hang", json!({}))]), say("B is done.")]),
    ])
    .await;
    let first = world.parent("c").await;
    let finished = first.task("t", task("a")).await;
    assert_eq!(text_of(&finished), "Task Succeeded. Result: A is done.");
    {
        // The process ends while the second one works.
        let mut lost = first.task("u", task("b")).boxed();
        while world.called.lock().unwrap().last().map(String::as_str) != Some("hang") {
            assert!(poll!(&mut lost).is_pending());
            tokio::task::yield_now().await;
        }
    }
    let left = world.recorded().await;
    assert!(has_outcome(&left, "t") && has_outcome(&left, "t/end"), "the report is durable at once: {left:?}");
    assert!(!has_outcome(&left, "u") && has_outcome(&left, "u/0/tool.0"), "{left:?}");

    let asked = world.model.requests.lock().unwrap().len();
    let second = world.parent("c").await;
    assert_eq!(second.task("t", task("a")).await, finished);
    assert_eq!(*world.replayed.lock().unwrap(), [2], "what it used is counted again");
    let resumed = world.driving(second.task("u", task("b"))).await;
    assert_eq!(text_of(&resumed), "Task Succeeded. Result: B is done.");
    // The response before the write is replayed; the one after it was not durable.
    let repeated = world.model.requests.lock().unwrap().len() - asked;
    assert_eq!(repeated, 1);
    assert_eq!(world.called.lock().unwrap().iter().filter(|tool| *tool == "write").count(), 1);
    let records = world.recorded().await;
    for key in ["t", "t/end", "u", "u/end"] {
        let terminal = records.iter().filter(|record| record.key.as_str() == key && record.outcome.is_some());
        assert_eq!(terminal.count(), 1, "{key}");
    }
}

#[tokio::test]
async fn the_limit_counts_replayed_delegates_too() {
    let mut world = World::new([("delegate: a", vec![say("1"), say("2")])]).await;
    world.settings.max_total = 2;
    let first = world.parent("c").await;
    first.task("t", task("a")).await;
    first.task("u", task("a")).await;
    let second = world.parent("c").await;
    for key in ["t", "u"] {
        assert!(matches!(second.task(key, task("a")).await, ToolOutcome::Done(_)));
    }
    assert!(
        matches!(second.task("v", task("a")).await, ToolOutcome::Failed(failure) if failure.kind == FailureKind::Refused)
    );
}

fn outcome(id: &str, status: &str, result: &str) -> ToolOutcome {
    let meta = json!({"subagent_id": id, "subagent_status": status, "subagent_result_brief": result});
    ToolOutcome::Done(ToolOutput::text("x").with_meta(meta.as_object().unwrap().clone()))
}

fn at() -> segue_engine::time::Timestamp {
    segue_engine::time::Timestamp::from_micros(5)
}

#[test]
fn the_ledger_takes_short_descriptions_and_only_real_hashes() {
    let mut ledger = Ledger::default();
    let result = "r".repeat(3_000);
    let arguments = json!({"description": "d".repeat(300), "prompt": "p", "subagent_type": "general-purpose"});
    for (id, hash) in [("1", "0f".repeat(32)), ("2", "0f".repeat(31)), ("3", "z".repeat(64))] {
        let meta = json!({key::ID: id, key::STATUS: "completed", key::BRIEF: brief(&result, 2_000), key::SHA256: hash});
        let meta = meta.as_object().unwrap().clone();
        let outcome = ToolOutcome::Done(ToolOutput::text("x").with_meta(meta));
        ledger.record("task", Some(&arguments), &outcome, at());
    }
    let entries: Vec<_> = ledger.entries().collect();
    assert_eq!(entries[0].description.chars().count(), 200);
    assert_eq!(entries[0].result_brief.as_ref().unwrap().chars().count(), 2_000);
    let hashes: Vec<bool> = entries.iter().map(|entry| entry.result_sha256.is_some()).collect();
    assert_eq!(hashes, [true, false, false]);
}

#[test]
fn the_ledger_keeps_the_newest_fifty_and_is_rendered_within_its_limit() {
    let prompts = PromptSet::new(|_| None).unwrap();
    let mut ledger = Ledger::default();
    assert_eq!(ledger.render(&prompts), None);
    for n in 0..60 {
        let mut arguments = task(&"p".repeat(300));
        arguments["description"] = json!(format!("number {n} {}", "d".repeat(300)));
        ledger.record("task", Some(&arguments), &outcome(&format!("i{n}"), "completed", &"r".repeat(500)), at());
    }
    assert_eq!((ledger.entries().count(), ledger.total()), (50, 60));
    let text = ledger.render(&prompts).unwrap();
    assert!(text.chars().count() <= 6_000, "{}", text.chars().count());
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].starts_with("- i59 general-purpose \"number 59 "), "newest first: {}", lines[1]);
    assert!(lines[1].contains("do not delegate this again, use the result"));
    assert!(lines.last().unwrap().ends_with("older ones not shown."), "{lines:?}");
    let mut metadata = Map::new();
    ledger.write(&mut metadata);
    assert_eq!(Ledger::read(&metadata), ledger);
}

#[test]
fn a_terminal_entry_of_the_ledger_is_never_overwritten() {
    let prompts = PromptSet::new(|_| None).unwrap();
    let mut ledger = Ledger::default();
    ledger.record("task", Some(&task("a")), &outcome("i", "running", ""), at());
    assert_eq!(ledger.running(), ["i".into()]);
    assert!(ledger.render(&prompts).unwrap().contains("It still works"));
    ledger.record("task_result", Some(&json!({"id": "i"})), &outcome("i", "completed", "found"), at());
    ledger.record("task_status", Some(&json!({"id": "i"})), &outcome("i", "running", ""), at());
    ledger.settle(&[SettledTask { id: "i".into(), meta: None }], &prompts);
    let entry = ledger.entries().next().unwrap();
    assert_eq!((entry.status, entry.result_brief.as_deref()), (ReportStatus::Completed, Some("found")));
    assert_eq!(&*entry.description, "look at a");
    assert_eq!(ledger.total(), 1);
}

#[test]
fn a_delegate_whose_run_is_gone_has_failed_and_one_that_ended_shows_its_result() {
    let prompts = PromptSet::new(|_| None).unwrap();
    let mut ledger = Ledger::default();
    ledger.record("task", Some(&task("a")), &outcome("i", "running", ""), at());
    ledger.record("task", Some(&task("b")), &outcome("j", "running", ""), at());
    let meta = json!({key::ID: "j", key::STATUS: "completed", key::BRIEF: "blue"}).as_object().cloned();
    let settled = [SettledTask { id: "i".into(), meta: None }, SettledTask { id: "j".into(), meta }];
    ledger.settle(&settled, &prompts);
    let text = ledger.render(&prompts).unwrap();
    assert!(text.contains("failed, error \"The sub-agent ended before its result was stored\"."), "{text}");
    assert!(text.contains(r#""look at b": completed, result "blue"."#), "{text}");
    assert!(text.contains("You may try again with a changed plan."));
}

#[test]
fn calls_that_started_nothing_are_not_in_the_ledger_and_lost_reports_are() {
    let mut ledger = Ledger::default();
    ledger.record("task", Some(&task("a")), &ToolOutcome::failed(FailureKind::Refused, "limit"), at());
    ledger.record("find", Some(&json!({})), &outcome("i", "completed", ""), at());
    assert_eq!(ledger.total(), 0);
    ledger.record("task", Some(&task("a")), &ToolOutcome::failed(FailureKind::Cancelled, "stopped"), at());
    assert_eq!(ledger.entries().next().unwrap().status, ReportStatus::Cancelled);
}

#[tokio::test]
async fn metadata_of_a_result_is_what_the_ledger_reads() {
    let world = World::new([("delegate: a", vec![say("It is blue.")])]).await;
    let outcome = world.parent("c").await.task("t", task("a")).await;
    let mut ledger = Ledger::default();
    ledger.record("task", Some(&task("a")), &outcome, at());
    let entry = ledger.entries().next().unwrap();
    assert_eq!((&*entry.id, entry.status), (meta_of(&outcome)[key::ID].as_str().unwrap(), ReportStatus::Completed));
    assert_eq!(entry.result_brief.as_deref(), Some("It is blue."));
}
