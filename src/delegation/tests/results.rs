//! Texts, metadata and events as other programs read them.

use std::sync::Arc;

use serde_json::json;

use super::harness::{World, call, meta_of, say, task, text_of};
use crate::{
    delegation::{
        TaskEvent, TokenCounts,
        report::{ReportStatus, StopReason, TaskReport, brief, hash},
        types::DelegationSettings,
    },
    prompts::PromptSet,
};

#[test]
fn result_texts_are_those_of_the_contract() {
    let prompts = PromptSet::new(|_| None).unwrap();
    let report = |status, result: Option<&str>, error: Option<&str>, partial: Option<&str>, stop_reason| {
        let mut report = TaskReport::ended("i".into(), status, "m".into());
        (report.result, report.error) = (result.map(Into::into), error.map(Into::into));
        (report.partial, report.stop_reason) = (partial.map(Into::into), stop_reason);
        report.text(&prompts)
    };
    use ReportStatus::{Cancelled, Completed, Failed, TimedOut};
    let (turns, tokens, repeats) = (StopReason::TurnCapped, StopReason::TokenCapped, StopReason::LoopCapped);
    assert_eq!(report(Completed, Some("a < b"), None, None, None), "Task Succeeded. Result: a < b");
    assert_eq!(
        report(Completed, Some("x"), None, None, Some(turns)),
        "Task Succeeded (capped: turn budget). Result: x"
    );
    assert_eq!(report(Failed, None, Some("e"), None, None), "Task failed. Error: e");
    assert_eq!(report(Failed, None, None, None, None), "Task failed.");
    assert_eq!(report(Failed, None, Some("e"), None, Some(tokens)), "Task failed (capped: token budget). Error: e");
    assert_eq!(
        report(Failed, None, Some("e"), None, Some(repeats)),
        "Task failed (capped: repeated tool-call loop). Error: e"
    );
    assert_eq!(report(TimedOut, None, Some("late"), None, None), "Task timed out. Error: late");
    assert_eq!(
        report(TimedOut, None, Some("late"), Some("half"), None),
        "Task timed out. Error: late Partial result: half"
    );
    assert_eq!(report(Cancelled, None, None, None, None), "Task cancelled by user.");
    assert_eq!(report(Cancelled, None, Some("e"), None, None), "Task cancelled by user. Error: e");
}

#[test]
fn a_brief_has_two_thirds_of_the_head_and_one_third_of_the_tail() {
    assert_eq!(brief("short", 2_000), "short");
    let long: String = ('a'..='z').cycle().take(3_000).collect();
    let short = brief(&long, 2_000);
    assert_eq!(short.chars().count(), 2_000);
    let (head, tail) = short.split_once(" … ").unwrap();
    assert_eq!((head.len(), tail.len()), (1_331, 666));
    assert!(long.starts_with(head) && long.ends_with(tail));
    assert_eq!(hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

#[test]
fn settings_without_a_file_are_three_at_once_six_in_a_turn_and_no_nesting() {
    let settings = DelegationSettings::default();
    assert_eq!((settings.max_concurrent, settings.max_total, settings.depth), (3, 6, 1));
    assert_eq!(settings.types.keys().map(|name| &**name).collect::<Vec<_>>(), ["general-purpose"]);
    let kind = &settings.types["general-purpose"];
    assert_eq!((kind.max_turns, kind.timeout.as_secs()), (50, 900));
}

#[tokio::test]
async fn events_of_a_delegate_are_golden() {
    let world = World::new([("delegate: a", vec![call("Looking.", &[("find", json!({}))]), say("It is blue.")])]).await;
    let outcome = world.parent("c").await.task("t", task("a")).await;
    let id = meta_of(&outcome)["subagent_id"].clone();
    let message = |index: u64, message: serde_json::Value, usage: serde_json::Value| {
        json!({
            "type": "task_running", "task_id": id, "message": message, "message_index": index,
            "total_messages": index, "usage": usage, "model_name": "scripted",
        })
    };
    let one = json!({"input_tokens": 10, "output_tokens": 5, "total_tokens": 15});
    let two = json!({"input_tokens": 20, "output_tokens": 10, "total_tokens": 30});
    let golden = json!([
        {"type": "task_queued", "task_id": id, "description": "look at a", "subagent_type": "general-purpose"},
        {"type": "task_started", "task_id": id, "description": "look at a", "model_name": "scripted"},
        message(1, json!({"role": "assistant", "text": "Looking.", "tool_calls": [
            {"id": "c0", "name": "find", "arguments": {"json": {}}}]}), one.clone()),
        message(2, json!({"role": "tool", "call_id": "c0", "name": "find", "text": "{\"found\":\"find\"}"}), one),
        message(3, json!({"role": "assistant", "text": "It is blue."}), two.clone()),
        {"type": "task_completed", "task_id": id, "result": "It is blue.", "usage": two, "model_name": "scripted"},
    ]);
    assert_eq!(json!(world.events.all()), golden);
}

#[tokio::test]
async fn an_error_has_at_most_two_thousand_characters() {
    let long: Vec<String> = (0..20).map(|n| format!("{n}{}", "x".repeat(1_000))).collect();
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": long});
    let submit = || call("", &[("submit_result", json!({"n": 1}))]);
    let world = World::new([("delegate: a", vec![submit(), submit()])]).await;
    let mut arguments = task("a");
    arguments["output_schema"] = schema;
    let outcome = world.parent("c").await.task("t", arguments).await;
    let error = meta_of(&outcome)["subagent_error"].as_str().unwrap().to_owned();
    assert_eq!(error.chars().count(), 2_000);
    let failed = world.events.all().pop().unwrap();
    assert_eq!((&failed["type"], &failed["error"]), (&json!("task_failed"), &json!(error)));
}

#[tokio::test]
async fn metadata_of_a_result_is_golden() {
    let world = World::new([("delegate: a", vec![say("It is blue.")])]).await;
    let outcome = world.parent("c").await.task("t", task("a")).await;
    assert_eq!(text_of(&outcome), "Task Succeeded. Result: It is blue.");
    let mut meta = meta_of(&outcome);
    assert_eq!(meta["subagent_id"].as_str().unwrap().len(), 16);
    meta.as_object_mut().unwrap().shift_remove("subagent_id");
    let golden = json!({
        "subagent_status": "completed",
        "subagent_result_brief": "It is blue.",
        "subagent_result_sha256": hash("It is blue."),
        "subagent_model_name": "scripted",
        "subagent_turns": 1,
        "subagent_token_usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
        "subagent_usage": {"answers": 1, "input": 10, "output": 5},
    });
    assert_eq!(meta, golden);
}

#[test]
fn other_ends_of_a_delegate_are_golden() {
    let usage = Some(TokenCounts { input_tokens: 2, output_tokens: 1, total_tokens: 3 });
    let (task_id, model_name): (Arc<str>, Arc<str>) = ("t".into(), "m".into());
    let events = [
        TaskEvent::TaskFailed {
            task_id: task_id.clone(),
            error: "e".into(),
            usage: None,
            model_name: model_name.clone(),
        },
        TaskEvent::TaskTimedOut {
            task_id: task_id.clone(),
            error: "e".into(),
            partial: Some("half".into()),
            usage,
            model_name: model_name.clone(),
        },
        TaskEvent::TaskCancelled { task_id, error: "Cancelled by user".into(), usage, model_name },
    ];
    let tokens = json!({"input_tokens": 2, "output_tokens": 1, "total_tokens": 3});
    let golden = json!([
        {"type": "task_failed", "task_id": "t", "error": "e", "usage": null, "model_name": "m"},
        {"type": "task_timed_out", "task_id": "t", "error": "e", "partial": "half", "usage": tokens, "model_name": "m"},
        {"type": "task_cancelled", "task_id": "t", "error": "Cancelled by user", "usage": tokens, "model_name": "m"},
    ]);
    assert_eq!(json!(events), golden);
    assert!(events.iter().all(TaskEvent::is_terminal));
}
