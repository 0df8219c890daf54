//! Vectors 10 to 15: an agent that fills slots.

use segue_engine::{
    conversation::{AgentStatus, BotKind, EventKind, FilledBy},
    project::SlotType,
};
use serde_json::{Value as Json, json};

use super::world::{World, calls, said, slots, text};
use crate::agents::slot_tools;

fn set(slot: &str, value: Json) -> (String, Json) {
    (format!("set_slot_{slot}"), json!({"slot_value": value}))
}

fn answer(words: &str, sets: &[(String, Json)]) -> crate::llm::scripted::ScriptedCall {
    let sets: Vec<(&str, Json)> = sets.iter().map(|(name, arguments)| (name.as_str(), arguments.clone())).collect();
    calls(words, &sets)
}

#[tokio::test]
async fn v10_the_task_is_done_when_the_last_condition_holds_and_ends_without_a_word() {
    let steps = vec![answer("", &[set("crossing", json!("NW-1"))]), answer("", &[set("passengers", json!(2))])];
    let mut world = World::new("book", "", "NW-1 for two", steps);
    let outcome = world.run().await;
    assert_eq!(outcome.status, AgentStatus::Finished);
    assert_eq!(slots(&outcome), [("crossing".into(), json!("NW-1")), ("passengers".into(), json!(2.0))]);
    assert!(said(&outcome).is_empty());
}

#[tokio::test]
async fn v11_both_values_of_one_answer_count_before_the_exit_check() {
    let both = answer("Noted.", &[set("passengers", json!(2)), set("crossing", json!("NW-1"))]);
    let mut world = World::new("book", "", "NW-1 for two", vec![both]);
    let outcome = world.run().await;
    assert_eq!(outcome.status, AgentStatus::Finished);
    assert_eq!(world.model.requests().len(), 1);
    assert_eq!(said(&outcome), [(BotKind::Filler, "Noted.".into())]);
}

#[tokio::test]
async fn v12_a_value_set_before_a_question_is_kept() {
    let steps = vec![answer("", &[set("passengers", json!(3))]), text("Which crossing?")];
    let mut world = World::new("book", "", "three of us", steps);
    let outcome = world.run().await;
    assert_eq!(outcome.status, AgentStatus::AwaitingUser);
    assert_eq!(slots(&outcome), [("passengers".into(), json!(3.0))]);
}

#[tokio::test]
async fn v13_what_is_no_number_is_refused_with_a_reason_and_does_not_end_the_task() {
    let steps = vec![
        answer("", &[set("crossing", json!("NW-1")), set("passengers", json!("12,5x"))]),
        text("How many of you?"),
    ];
    let mut world = World::new("book", "", "12,5x", steps);
    let outcome = world.run().await;
    assert_eq!(outcome.status, AgentStatus::AwaitingUser);
    assert_eq!(slots(&outcome), [("crossing".into(), json!("NW-1"))]);
    let told = world.request(1).last().unwrap().1.clone();
    assert_eq!(told, "error: not recorded: expected a number, with a point as decimal mark");
}

#[tokio::test]
async fn v14_the_declared_spelling_of_a_category_is_recorded() {
    let mut world = World::new("choose", "", "cabin", vec![answer("", &[set("class", json!("cabin"))])]);
    let outcome = world.run().await;
    assert_eq!(outcome.status, AgentStatus::Finished);
    assert_eq!(slots(&outcome), [("class".into(), json!("Cabin"))]);
}

#[tokio::test]
async fn v15_a_text_when_everything_is_filled_completes_and_is_recorded() {
    let mut world = World::new("choose", "", "as before", vec![text("Cabin it is.")]);
    let filled =
        EventKind::Slot { name: "class".into(), value: json!("Cabin"), filled_by: Some(FilledBy::Llm), reset: false };
    world.happened(filled);
    let outcome = world.run().await;
    assert_eq!(outcome.status, AgentStatus::Finished);
    assert_eq!(said(&outcome), [(BotKind::FinalResponse, "Cabin it is.".into())]);
    assert_eq!(slots(&outcome), [("class".into(), json!("Cabin"))], "every exit slot is told at the end");
}

#[tokio::test]
async fn a_change_of_mind_within_one_run_keeps_the_last_value() {
    let steps = vec![
        answer("", &[set("passengers", json!(2)), set("passengers", json!(3))]),
        answer("", &[set("crossing", json!("NW-1"))]),
    ];
    let mut world = World::new("book", "", "two, no, three", steps);
    assert_eq!(slots(&world.run().await), [("crossing".into(), json!("NW-1")), ("passengers".into(), json!(3.0))]);
}

#[tokio::test]
async fn slot_tools_come_in_the_order_of_the_conditions_and_are_typed() {
    let mut world = World::new("book", "", "hi", vec![text("Which crossing?")]);
    world.run().await;
    let tools = world.model.requests()[0].tools.clone();
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["fail", "find", "other", "set_slot_crossing", "set_slot_passengers"]);
    assert_eq!(tools[4].parameters["properties"]["slot_value"]["type"], json!(["number", "null"]));
    assert!(tools[4].strict && !tools[0].strict);
}

#[test]
fn the_table_of_slot_types() {
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
    for (kind, written, value) in accepted {
        assert_eq!(slot_tools::coerce(kind, &written), Ok(value), "{kind:?} {written}");
    }
    let refused = [
        (&SlotType::Bool, json!("maybe")),
        (&category, json!("Cabin")),
        (&float, json!("NaN")),
        (&float, json!("inf")),
        (&float, json!(10)),
        (&SlotType::List, json!({})),
        (&SlotType::Text, json!([])),
    ];
    for (kind, written) in refused {
        assert!(slot_tools::coerce(kind, &written).is_err(), "{kind:?} {written}");
    }
}
