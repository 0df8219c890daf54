//! The tool policy: `requires`, `max_calls`, `confirm`, and the origins of arguments.

use std::sync::Arc;

use segue_engine::conversation::{AgentOutcome, AgentStatus, BotKind, Event, EventKind, FilledBy, UnconfirmedCall};
use serde_json::{Value as Json, json};

use super::harness::{Harness, calls, project, said, text};
use crate::{
    agents::inheritable_tools,
    effect::EffectClass,
    llm::ChatMessage,
    tools::{Tool, ToolCallContext, ToolInfo, ToolOutcome, ToolOutput, tool_set::ToolSet},
};

const CONFIRM: &str = "configuration:\n  confirm: writes\n  tools:\n    find: { effect: write }\n";

fn executed(outcome: &AgentOutcome) -> Vec<(String, String)> {
    let tool = |event: &Event| match &event.kind {
        EventKind::ToolExecuted { tool_name, status, .. } => Some((tool_name.to_string(), status.clone())),
        _ => None,
    };
    outcome.events.iter().filter_map(tool).collect()
}

/// The next turn of the same task.
async fn next_turn(
    harness: &mut Harness,
    outcome: &AgentOutcome,
    words: &str,
    confirmed: Option<bool>,
) -> AgentOutcome {
    harness.user(words);
    harness.call.metadata = outcome.metadata.clone();
    harness.call.confirmed = confirmed;
    harness.run_without_verify().await
}

#[tokio::test]
async fn confirmed_call_runs_exactly_as_shown() {
    let steps = vec![
        calls("Let me see.", &[("other", json!({})), ("find", json!({"port": "Arnvik"}))]),
        calls("It is done.", &[("task_completed", json!({}))]),
    ];
    let mut harness = Harness::new("search", CONFIRM, "book it", steps);
    let outcome = harness.run_without_verify().await;
    assert_eq!(outcome.status, AgentStatus::AwaitingUser);
    assert_eq!(executed(&outcome), [("other".into(), "done".into())], "the read ran without confirmation");
    let unconfirmed = UnconfirmedCall::of(&outcome.metadata);
    assert_eq!(unconfirmed, [UnconfirmedCall { tool: "find".into(), arguments: json!({"port": "Arnvik"}) }]);

    let outcome = next_turn(&mut harness, &outcome, "yes", Some(true)).await;
    assert_eq!(outcome.status, AgentStatus::Finished);
    assert_eq!(harness.tool_calls.lock().unwrap().last().unwrap(), &("find".to_owned(), json!({"port": "Arnvik"})));
    let request = harness.request(1);
    assert_eq!(request.last().unwrap(), &("tool".into(), r#"{"crossings":["NW-1"]}"#.into()));
    assert!(
        request.iter().any(|(role, text)| role == "tool" && text.contains("Nothing has happened so far")),
        "{request:?}"
    );
    harness.model.verify().unwrap();
}

/// Providers reject a request with a repeated call id.
#[tokio::test]
async fn calls_confirmed_in_different_turns_have_different_ids() {
    let steps = vec![
        calls("", &[("find", json!({"port": "A"}))]),
        calls("", &[("find", json!({"port": "B"}))]),
        text("Both are booked."),
    ];
    let mut harness = Harness::new("search", CONFIRM, "book A and B", steps);
    let outcome = harness.run_without_verify().await;
    let outcome = next_turn(&mut harness, &outcome, "yes", Some(true)).await;
    next_turn(&mut harness, &outcome, "yes", Some(true)).await;
    assert_eq!(harness.tool_calls.lock().unwrap().len(), 2);
    let request = harness.model.requests()[2].clone();
    let ids: Vec<&str> = request
        .messages
        .iter()
        .filter_map(|message| match &**message {
            ChatMessage::Assistant { tool_calls, .. } => Some(tool_calls),
            _ => None,
        })
        .flatten()
        .map(|call| &*call.id)
        .filter(|id| id.starts_with("held"))
        .collect();
    assert!(ids.len() == 2 && ids[0] != ids[1], "{ids:?}");
}

#[tokio::test]
async fn declined_call_does_not_run_and_other_replies_go_to_the_model() {
    for (words, confirmed, expected) in
        [("no", Some(false), "The user said no"), ("for three please", None, "neither a yes nor a no")]
    {
        let steps = vec![calls("", &[("find", json!({"port": "A"}))]), text("What then?")];
        let mut harness = Harness::new("search", CONFIRM, "book it", steps);
        let outcome = harness.run_without_verify().await;
        let outcome = next_turn(&mut harness, &outcome, words, confirmed).await;
        assert_eq!(outcome.status, AgentStatus::AwaitingUser);
        assert!(harness.tool_calls.lock().unwrap().is_empty(), "{words}");
        assert!(UnconfirmedCall::of(&outcome.metadata).is_empty(), "the call cannot be confirmed later");
        assert!(harness.request(1).iter().any(|(_, text)| text.contains(expected)), "{:?}", harness.request(1));
    }
}

#[tokio::test]
async fn corrected_call_needs_a_new_confirmation() {
    let steps = vec![calls("", &[("find", json!({"n": 2}))]), calls("", &[("find", json!({"n": 3}))]), text("Done.")];
    let mut harness = Harness::new("search", CONFIRM, "book it", steps);
    let first = harness.run_without_verify().await;
    let second = next_turn(&mut harness, &first, "three of us", None).await;
    assert_eq!(UnconfirmedCall::of(&second.metadata)[0].arguments, json!({"n": 3}));
    next_turn(&mut harness, &second, "yes", Some(true)).await;
    assert_eq!(*harness.tool_calls.lock().unwrap(), [("find".to_owned(), json!({"n": 3}))]);
}

#[tokio::test]
async fn closing_message_before_the_confirmation_is_not_sent() {
    let both = calls("All booked!", &[("find", json!({})), ("task_completed", json!({}))]);
    let mut harness = Harness::new("search", CONFIRM, "book it", vec![both]);
    harness.sink.without_streaming = true;
    let outcome = harness.run().await;
    assert_eq!(outcome.status, AgentStatus::AwaitingUser);
    assert!(said(&outcome).is_empty(), "{:?}", said(&outcome));
}

#[tokio::test]
async fn effects_after_an_unconfirmed_call_are_blocked() {
    let rules = "configuration:\n  tools:\n    find: { effect: write, confirm: true }\n    other: { effect: write }\n";
    let both = calls("", &[("find", json!({})), ("other", json!({}))]);
    let mut harness = Harness::new("search", rules, "go", vec![both]);
    let outcome = harness.run().await;
    assert_eq!(executed(&outcome), [("other".into(), "refused".into())]);
    assert!(harness.tool_calls.lock().unwrap().is_empty());
    assert_eq!(UnconfirmedCall::of(&outcome.metadata).len(), 1);
}

#[tokio::test]
async fn unmet_requirement_refuses_the_call_with_a_reason() {
    let rules = "configuration:\n  tools:\n    find: { requires: slots.vehicle, refusal: The user must have a car. }\n";
    let steps = || vec![calls("", &[("find", json!({}))]), text("Have you got a car?")];
    let mut harness = Harness::new("search", rules, "go", steps());
    let outcome = harness.run().await;
    assert_eq!(executed(&outcome), [("find".into(), "refused".into())]);
    let result = harness.request(1).last().unwrap().1.clone();
    assert_eq!(result, "error: refused: this call is not allowed now. Reason: The user must have a car.");

    let mut harness = Harness::new("search", rules, "go", steps());
    let car =
        EventKind::Slot { name: "vehicle".into(), value: json!(true), filled_by: Some(FilledBy::Llm), reset: false };
    harness.apply(car);
    assert_eq!(executed(&harness.run().await), [("find".into(), "done".into())]);
}

#[tokio::test]
async fn confirmation_does_not_override_an_unmet_requirement() {
    let rules = "configuration:\n  tools:\n    find: { effect: write, confirm: true, requires: slots.vehicle }\n";
    let mut harness = Harness::new("search", rules, "go", vec![calls("", &[("find", json!({}))]), text("No car.")]);
    let vehicle = |value: bool| EventKind::Slot {
        name: "vehicle".into(),
        value: json!(value),
        filled_by: Some(FilledBy::Llm),
        reset: false,
    };
    harness.apply(vehicle(true));
    let outcome = harness.run_without_verify().await;
    harness.apply(vehicle(false));
    next_turn(&mut harness, &outcome, "yes", Some(true)).await;
    assert!(harness.tool_calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn calls_are_counted_over_the_turns_of_a_task() {
    let rules = "configuration:\n  tools:\n    find: { max_calls: 2 }\n";
    let find = || calls("", &[("find", json!({}))]);
    let steps = vec![find(), text("More?"), find(), find(), text("That is all.")];
    let mut harness = Harness::new("search", rules, "go", steps);
    let first = harness.run_without_verify().await;
    assert_eq!(first.metadata["tool_calls"], json!({"find": 1}));
    let second = next_turn(&mut harness, &first, "more", None).await;
    assert_eq!(executed(&second), [("find".into(), "done".into()), ("find".into(), "refused".into())]);
    assert_eq!(harness.tool_calls.lock().unwrap().len(), 2);
    assert!(harness.request(4).last().unwrap().1.contains("called 2 times"), "{:?}", harness.request(4).last());
}

#[tokio::test]
async fn agent_without_rules_has_no_frame_metadata() {
    let mut harness = Harness::new("search", "", "go", vec![calls("", &[("find", json!({}))]), text("Where to?")]);
    assert!(harness.run().await.metadata.is_empty());
}

#[tokio::test]
async fn event_of_an_effect_names_the_origins_of_its_arguments() {
    let rules = "configuration:\n  tools:\n    other: { effect: write }\n";
    let arguments = json!({"port": "Arnvik", "id": "NW-1", "made_up": "zzz", "list": [{"port": "Arnvik"}]});
    let steps = vec![calls("", &[("find", json!({}))]), calls("", &[("other", arguments)]), text("Well.")];
    let mut harness = Harness::new("search", rules, "from Arnvik", steps);
    let outcome = harness.run().await;
    let origins: Vec<Json> = outcome
        .events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::ToolExecuted { origins, .. } => Some(json!(origins)),
            _ => None,
        })
        .collect();
    assert_eq!(origins[0], json!({}), "origins of a read are not recorded");
    assert_eq!(origins[1], json!({"id": "tool", "list.0.port": "user", "made_up": "model", "port": "user"}),);
    assert_eq!(said(&outcome), [(BotKind::InputRequired, "Well.".into())]);
}

#[tokio::test]
async fn invalid_call_is_not_confirmed_and_not_counted() {
    let wrong = || calls("", &[("find", json!({"port": 3}))]);
    let mut harness = Harness::new("search", CONFIRM, "book it", vec![wrong(), text("To which port?")]);
    let outcome = harness.run().await;
    assert!(UnconfirmedCall::of(&outcome.metadata).is_empty());
    assert_eq!(executed(&outcome), [("find".into(), "failed".into())]);
    assert!(
        harness.request(1).last().unwrap().1.starts_with("error[bad_arguments]"),
        "{:?}",
        harness.request(1).last()
    );

    let once = "configuration:\n  tools:\n    find: { max_calls: 1 }\n";
    let steps = vec![wrong(), calls("", &[("find", json!({"port": "A"}))]), text("There.")];
    let mut harness = Harness::new("search", once, "go", steps);
    let outcome = harness.run().await;
    assert_eq!(executed(&outcome), [("find".into(), "failed".into()), ("find".into(), "done".into())]);
    assert_eq!(outcome.metadata["tool_calls"], json!({"find": 1}));
}

#[tokio::test]
async fn origins_are_limited_for_calls_with_many_arguments() {
    let rules = "configuration:\n  tools:\n    other: { effect: write }\n";
    let numbers: Vec<u32> = (0..10_000).collect();
    let steps = vec![calls("", &[("other", json!({ "n": numbers }))]), text("Well.")];
    let outcome = Harness::new("search", rules, "go", steps).run().await;
    let origins = outcome.events.iter().find_map(|event| match &event.kind {
        EventKind::ToolExecuted { origins, .. } => Some(origins.len()),
        _ => None,
    });
    assert_eq!(origins, Some(crate::limits::AGENT_ORIGINS));
}

/// A sub-agent could neither ask nor report, and a condition or a limit would hold for another run.
#[test]
fn tools_with_rules_of_the_agent_stay_with_the_agent() {
    for (rule, stays) in [
        ("{ requires: slots.vehicle }", true),
        ("{ max_calls: 3 }", true),
        ("{ confirm: true }", true),
        ("{ effect: read }", false),
    ] {
        let project = project(&format!("configuration:\n  tools:\n    find: {rule}\n"));
        let rules = &project.agents.values().next().unwrap().rules;
        let tool = |name: &str| {
            let info = ToolInfo::new(name, "").effect(EffectClass::Read);
            Tool::from_fn(info, |_: Json, _: ToolCallContext| async { ToolOutcome::Done(ToolOutput::text("")) })
        };
        let tools = ToolSet::builder().tool(Arc::new(tool("find"))).tool(Arc::new(tool("other"))).build();
        let inherited = inheritable_tools(rules, tools);
        let names: Vec<&str> = inherited.infos().map(|info| &*info.name).collect();
        assert_eq!(names, if stays { vec!["other"] } else { vec!["find", "other"] }, "{rule}");
    }
}
