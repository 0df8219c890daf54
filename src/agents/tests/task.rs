//! Runs of task agents, which fill slots.

use segue_engine::{
    conversation::{AgentStatus, BotKind, EventKind, FilledBy},
    project::SlotType,
};
use serde_json::{Value as Json, json};

use super::harness::{Harness, calls, said, slots, text};
use crate::agents::slot_tools;

fn set(slot: &str, value: Json) -> (String, Json) {
    (format!("set_slot_{slot}"), json!({"slot_value": value}))
}

fn set_slots(text: &str, sets: &[(String, Json)]) -> crate::llm::scripted::ScriptedCall {
    let sets: Vec<(&str, Json)> = sets.iter().map(|(name, arguments)| (name.as_str(), arguments.clone())).collect();
    calls(text, &sets)
}

#[tokio::test]
async fn task_completes_silently_when_the_last_condition_is_true() {
    let steps = vec![set_slots("", &[set("crossing", json!("NW-1"))]), set_slots("", &[set("passengers", json!(2))])];
    let mut harness = Harness::new("book", "", "NW-1 for two", steps);
    let outcome = harness.run().await;
    assert_eq!(outcome.status, AgentStatus::Finished);
    assert_eq!(slots(&outcome), [("crossing".into(), json!("NW-1")), ("passengers".into(), json!(2.0))]);
    assert!(said(&outcome).is_empty());
}

#[tokio::test]
async fn all_values_of_one_response_count_before_the_exit_check() {
    let both = set_slots("Noted.", &[set("passengers", json!(2)), set("crossing", json!("NW-1"))]);
    let mut harness = Harness::new("book", "", "NW-1 for two", vec![both]);
    let outcome = harness.run().await;
    assert_eq!(outcome.status, AgentStatus::Finished);
    assert_eq!(harness.model.requests().len(), 1);
    assert_eq!(said(&outcome), [(BotKind::Filler, "Noted.".into())]);
}

#[tokio::test]
async fn value_set_before_a_question_is_stored() {
    let steps = vec![set_slots("", &[set("passengers", json!(3))]), text("Which crossing?")];
    let mut harness = Harness::new("book", "", "three of us", steps);
    let outcome = harness.run().await;
    assert_eq!(outcome.status, AgentStatus::AwaitingUser);
    assert_eq!(slots(&outcome), [("passengers".into(), json!(3.0))]);
}

#[tokio::test]
async fn invalid_number_is_rejected_with_a_reason() {
    let steps = vec![
        set_slots("", &[set("crossing", json!("NW-1")), set("passengers", json!("12,5x"))]),
        text("How many of you?"),
    ];
    let mut harness = Harness::new("book", "", "12,5x", steps);
    let outcome = harness.run().await;
    assert_eq!(outcome.status, AgentStatus::AwaitingUser);
    assert_eq!(slots(&outcome), [("crossing".into(), json!("NW-1"))]);
    let result = harness.request(1).last().unwrap().1.clone();
    assert_eq!(result, "error: not recorded: expected a number, with a point as decimal mark");
}

#[tokio::test]
async fn declared_spelling_of_a_category_is_recorded() {
    let mut harness = Harness::new("choose", "", "cabin", vec![set_slots("", &[set("class", json!("cabin"))])]);
    let outcome = harness.run().await;
    assert_eq!(outcome.status, AgentStatus::Finished);
    assert_eq!(slots(&outcome), [("class".into(), json!("Cabin"))]);
}

#[tokio::test]
async fn text_with_all_slots_filled_completes_the_task() {
    let mut harness = Harness::new("choose", "", "as before", vec![text("Cabin it is.")]);
    let filled =
        EventKind::Slot { name: "class".into(), value: json!("Cabin"), filled_by: Some(FilledBy::Llm), reset: false };
    harness.apply(filled);
    let outcome = harness.run().await;
    assert_eq!(outcome.status, AgentStatus::Finished);
    assert_eq!(said(&outcome), [(BotKind::FinalResponse, "Cabin it is.".into())]);
    assert_eq!(
        slots(&outcome),
        [("class".into(), json!("Cabin"))],
        "every slot of the exit conditions is set at the end"
    );
}

#[tokio::test]
async fn last_value_within_one_run_wins() {
    let steps = vec![
        set_slots("", &[set("passengers", json!(2)), set("passengers", json!(3))]),
        set_slots("", &[set("crossing", json!("NW-1"))]),
    ];
    let mut harness = Harness::new("book", "", "two, no, three", steps);
    assert_eq!(slots(&harness.run().await), [("crossing".into(), json!("NW-1")), ("passengers".into(), json!(3.0))]);
}

#[tokio::test]
async fn slot_tools_are_typed_and_in_the_order_of_the_conditions() {
    let mut harness = Harness::new("book", "", "hi", vec![text("Which crossing?")]);
    harness.run().await;
    let tools = harness.model.requests()[0].tools.clone();
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["fail", "find", "other", "set_slot_crossing", "set_slot_passengers"]);
    assert_eq!(tools[4].parameters["properties"]["slot_value"]["type"], json!(["number", "null"]));
    assert!(tools[4].strict && !tools[0].strict);
}

#[test]
fn values_are_coerced_to_the_slot_type() {
    let category = SlotType::Categorical(vec!["36".into(), "Deck".into()]);
    let float = SlotType::Float { min: Some(1.0), max: Some(9.0) };
    let accepted = [
        (&SlotType::Text, json!(7), json!("7")),
        (&SlotType::Text, json!("true"), json!("true")),
        (&SlotType::Bool, json!("Yes"), json!(true)),
        (&SlotType::Bool, json!(0), json!(false)),
        (&category, json!(36), json!("36")),
        (&category, json!(" deck "), json!("Deck")),
        (&float, json!("2.5"), json!(2.5)),
        (&SlotType::List, json!("[\"a\"]"), json!(["a"])),
        (&SlotType::List, json!("a"), json!(["a"])),
        (&SlotType::Any, json!("{\"a\": 1}"), json!({"a": 1})),
        (&SlotType::Any, json!("plain"), json!("plain")),
        (&float, Json::Null, Json::Null),
    ];
    for (kind, input, value) in accepted {
        assert_eq!(slot_tools::coerce(kind, &input), Ok(value), "{kind:?} {input}");
    }
    let rejected = [
        (&SlotType::Bool, json!("maybe")),
        (&category, json!("Cabin")),
        (&float, json!("NaN")),
        (&float, json!("inf")),
        (&float, json!(10)),
        (&SlotType::List, json!({})),
        (&SlotType::Text, json!([])),
    ];
    for (kind, input) in rejected {
        assert!(slot_tools::coerce(kind, &input).is_err(), "{kind:?} {input}");
    }
}
