//! What stands between a model and a tool: preconditions, caps, a yes before an effect, and where arguments come from.

use segue_engine::conversation::{AgentOutcome, AgentStatus, BotKind, Event, EventKind, FilledBy, UnconfirmedCall};
use serde_json::{Value as Json, json};

use super::world::{World, calls, said, text};
use crate::llm::ChatMessage;

const CONFIRM: &str = "configuration:\n  confirm: writes\n  tools:\n    find: { effect: write }\n";

fn executed(outcome: &AgentOutcome) -> Vec<(String, String)> {
    let tool = |event: &Event| match &event.kind {
        EventKind::ToolExecuted { tool_name, status, .. } => Some((tool_name.to_string(), status.clone())),
        _ => None,
    };
    outcome.events.iter().filter_map(tool).collect()
}

/// The next turn of the same task.
async fn next(world: &mut World, outcome: &AgentOutcome, words: &str, confirmed: Option<bool>) -> AgentOutcome {
    world.user(words);
    world.call.metadata = outcome.metadata.clone();
    world.call.confirmed = confirmed;
    world.run_more().await
}

#[tokio::test]
async fn a_call_that_changes_something_waits_for_a_yes_and_then_runs_as_it_was_shown() {
    let steps = vec![
        calls("Let me see.", &[("other", json!({})), ("find", json!({"port": "Arnvik"}))]),
        calls("It is done.", &[("task_completed", json!({}))]),
    ];
    let mut world = World::new("search", CONFIRM, "book it", steps);
    let outcome = world.run_more().await;
    assert_eq!(outcome.status, AgentStatus::AwaitingUser);
    assert_eq!(executed(&outcome), [("other".into(), "done".into())], "what only reads ran at once");
    let held = UnconfirmedCall::of(&outcome.metadata);
    assert_eq!(held, [UnconfirmedCall { tool: "find".into(), arguments: json!({"port": "Arnvik"}) }]);

    let outcome = next(&mut world, &outcome, "yes", Some(true)).await;
    assert_eq!(outcome.status, AgentStatus::Finished);
    assert_eq!(world.called.lock().unwrap().last().unwrap(), &("find".to_owned(), json!({"port": "Arnvik"})));
    let seen = world.request(1);
    assert_eq!(seen.last().unwrap(), &("tool".into(), r#"{"crossings":["NW-1"]}"#.into()));
    assert!(seen.iter().any(|(role, text)| role == "tool" && text.contains("Nothing has happened so far")), "{seen:?}");
    world.model.verify().unwrap();
}

/// Vendors refuse a request in which an id stands twice.
#[tokio::test]
async fn calls_that_were_confirmed_in_different_turns_have_different_ids() {
    let steps = vec![
        calls("", &[("find", json!({"port": "A"}))]),
        calls("", &[("find", json!({"port": "B"}))]),
        text("Both are booked."),
    ];
    let mut world = World::new("search", CONFIRM, "book A and B", steps);
    let outcome = world.run_more().await;
    let outcome = next(&mut world, &outcome, "yes", Some(true)).await;
    next(&mut world, &outcome, "yes", Some(true)).await;
    assert_eq!(world.called.lock().unwrap().len(), 2);
    let request = world.model.requests()[2].clone();
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
async fn a_no_runs_nothing_and_something_else_is_for_the_model() {
    for (words, confirmed, told) in
        [("no", Some(false), "The user said no"), ("for three please", None, "neither a yes nor a no")]
    {
        let steps = vec![calls("", &[("find", json!({"port": "A"}))]), text("What then?")];
        let mut world = World::new("search", CONFIRM, "book it", steps);
        let outcome = world.run_more().await;
        let outcome = next(&mut world, &outcome, words, confirmed).await;
        assert_eq!(outcome.status, AgentStatus::AwaitingUser);
        assert!(world.called.lock().unwrap().is_empty(), "{words}");
        assert!(UnconfirmedCall::of(&outcome.metadata).is_empty(), "an old call can never be confirmed later");
        assert!(world.request(1).iter().any(|(_, text)| text.contains(told)), "{:?}", world.request(1));
    }
}

#[tokio::test]
async fn a_corrected_call_is_asked_for_again() {
    let steps = vec![calls("", &[("find", json!({"n": 2}))]), calls("", &[("find", json!({"n": 3}))]), text("Done.")];
    let mut world = World::new("search", CONFIRM, "book it", steps);
    let first = world.run_more().await;
    let second = next(&mut world, &first, "three of us", None).await;
    assert_eq!(UnconfirmedCall::of(&second.metadata)[0].arguments, json!({"n": 3}));
    next(&mut world, &second, "yes", Some(true)).await;
    assert_eq!(*world.called.lock().unwrap(), [("find".to_owned(), json!({"n": 3}))]);
}

#[tokio::test]
async fn a_closing_line_before_the_yes_is_not_the_end_and_is_not_said() {
    let both = calls("All booked!", &[("find", json!({})), ("task_completed", json!({}))]);
    let mut world = World::new("search", CONFIRM, "book it", vec![both]);
    world.sink.whole = true;
    let outcome = world.run().await;
    assert_eq!(outcome.status, AgentStatus::AwaitingUser);
    assert!(said(&outcome).is_empty(), "{:?}", said(&outcome));
}

#[tokio::test]
async fn effects_after_a_held_one_wait_behind_it() {
    let rules = "configuration:\n  tools:\n    find: { effect: write, confirm: true }\n    other: { effect: write }\n";
    let both = calls("", &[("find", json!({})), ("other", json!({}))]);
    let mut world = World::new("search", rules, "go", vec![both]);
    let outcome = world.run().await;
    assert_eq!(executed(&outcome), [("other".into(), "refused".into())]);
    assert!(world.called.lock().unwrap().is_empty());
    assert_eq!(UnconfirmedCall::of(&outcome.metadata).len(), 1);
}

#[tokio::test]
async fn what_a_tool_requires_must_hold_and_the_model_is_told_why_it_may_not() {
    let rules = "configuration:\n  tools:\n    find: { requires: slots.vehicle, refusal: The user must have a car. }\n";
    let steps = || vec![calls("", &[("find", json!({}))]), text("Have you got a car?")];
    let mut world = World::new("search", rules, "go", steps());
    let outcome = world.run().await;
    assert_eq!(executed(&outcome), [("find".into(), "refused".into())]);
    let told = world.request(1).last().unwrap().1.clone();
    assert_eq!(told, "error: refused: this call is not allowed now. Reason: The user must have a car.");

    let mut world = World::new("search", rules, "go", steps());
    let car =
        EventKind::Slot { name: "vehicle".into(), value: json!(true), filled_by: Some(FilledBy::Llm), reset: false };
    world.happened(car);
    assert_eq!(executed(&world.run().await), [("find".into(), "done".into())]);
}

#[tokio::test]
async fn a_yes_does_not_help_when_the_condition_no_longer_holds() {
    let rules = "configuration:\n  tools:\n    find: { effect: write, confirm: true, requires: slots.vehicle }\n";
    let mut world = World::new("search", rules, "go", vec![calls("", &[("find", json!({}))]), text("No car.")]);
    let vehicle = |value: bool| EventKind::Slot {
        name: "vehicle".into(),
        value: json!(value),
        filled_by: Some(FilledBy::Llm),
        reset: false,
    };
    world.happened(vehicle(true));
    let outcome = world.run_more().await;
    world.happened(vehicle(false));
    next(&mut world, &outcome, "yes", Some(true)).await;
    assert!(world.called.lock().unwrap().is_empty());
}

#[tokio::test]
async fn calls_are_counted_over_the_turns_of_a_task() {
    let rules = "configuration:\n  tools:\n    find: { max_calls: 2 }\n";
    let find = || calls("", &[("find", json!({}))]);
    let steps = vec![find(), text("More?"), find(), find(), text("That is all.")];
    let mut world = World::new("search", rules, "go", steps);
    let first = world.run_more().await;
    assert_eq!(first.metadata["tool_calls"], json!({"find": 1}));
    let second = next(&mut world, &first, "more", None).await;
    assert_eq!(executed(&second), [("find".into(), "done".into()), ("find".into(), "refused".into())]);
    assert_eq!(world.called.lock().unwrap().len(), 2);
    assert!(world.request(4).last().unwrap().1.contains("called 2 times"), "{:?}", world.request(4).last());
}

#[tokio::test]
async fn an_agent_without_rules_keeps_nothing_in_its_frame() {
    let mut world = World::new("search", "", "go", vec![calls("", &[("find", json!({}))]), text("Where to?")]);
    assert!(world.run().await.metadata.is_empty());
}

#[tokio::test]
async fn an_event_says_where_the_arguments_of_an_effect_come_from() {
    let rules = "configuration:\n  tools:\n    other: { effect: write }\n";
    let arguments = json!({"port": "Arnvik", "id": "NW-1", "made_up": "zzz", "list": [{"port": "Arnvik"}]});
    let steps = vec![calls("", &[("find", json!({}))]), calls("", &[("other", arguments)]), text("Well.")];
    let mut world = World::new("search", rules, "from Arnvik", steps);
    let outcome = world.run().await;
    let origins: Vec<Json> = outcome
        .events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::ToolExecuted { origins, .. } => Some(json!(origins)),
            _ => None,
        })
        .collect();
    assert_eq!(origins[0], json!({}), "what only reads is not looked at");
    assert_eq!(origins[1], json!({"id": "tool", "list.0.port": "user", "made_up": "model", "port": "user"}),);
    assert_eq!(said(&outcome), [(BotKind::InputRequired, "Well.".into())]);
}

#[tokio::test]
async fn a_call_that_does_not_fit_is_shown_to_nobody_and_counts_for_nothing() {
    let wrong = || calls("", &[("find", json!({"port": 3}))]);
    let mut world = World::new("search", CONFIRM, "book it", vec![wrong(), text("To which port?")]);
    let outcome = world.run().await;
    assert!(UnconfirmedCall::of(&outcome.metadata).is_empty());
    assert_eq!(executed(&outcome), [("find".into(), "failed".into())]);
    assert!(world.request(1).last().unwrap().1.starts_with("error[bad_arguments]"), "{:?}", world.request(1).last());

    let once = "configuration:\n  tools:\n    find: { max_calls: 1 }\n";
    let steps = vec![wrong(), calls("", &[("find", json!({"port": "A"}))]), text("There.")];
    let mut world = World::new("search", once, "go", steps);
    let outcome = world.run().await;
    assert_eq!(executed(&outcome), [("find".into(), "failed".into()), ("find".into(), "done".into())]);
    assert_eq!(outcome.metadata["tool_calls"], json!({"find": 1}));
}

#[tokio::test]
async fn of_a_call_with_many_arguments_only_some_are_looked_for() {
    let rules = "configuration:\n  tools:\n    other: { effect: write }\n";
    let numbers: Vec<u32> = (0..10_000).collect();
    let steps = vec![calls("", &[("other", json!({ "n": numbers }))]), text("Well.")];
    let outcome = World::new("search", rules, "go", steps).run().await;
    let origins = outcome.events.iter().find_map(|event| match &event.kind {
        EventKind::ToolExecuted { origins, .. } => Some(origins.len()),
        _ => None,
    });
    assert_eq!(origins, Some(crate::limits::AGENT_ORIGINS));
}
