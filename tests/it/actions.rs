//! Action servers behind the runtime: what they are told of a conversation, and what their answers and failures come to.

use std::{path::Path, sync::Arc};

use segue::{
    Assistant, AssistantBuilder, DiscardReplies, IncomingMessage, TurnReport,
    project::{LoadOptions, Severity, TrackerEvents},
};
use serde_json::{Value as Json, json};

use crate::action_server::{ActionServer, sets};

/// The clerk with this action server.
fn clerk(actions: &ActionServer, change: impl FnOnce(&mut segue::project::ActionEndpointDef)) -> Assistant {
    let root = crate::project("clerk");
    let mut loaded = segue::project::load(Path::new(&root), &LoadOptions::default()).unwrap();
    assert!(loaded.findings.iter().all(|finding| finding.severity == Severity::Note), "{:?}", loaded.findings);
    let endpoint = loaded.project.as_mut().unwrap().endpoints.action_endpoint.as_mut().unwrap();
    endpoint.url = Some(format!("http://{}/webhook", actions.address));
    change(endpoint);
    AssistantBuilder::new(Arc::new(loaded.project.unwrap()), root.into()).build().unwrap()
}

async fn say(assistant: &Assistant, text: &str) -> TurnReport {
    assistant.receive(IncomingMessage::text("ada", text, "test"), Box::new(DiscardReplies)).await.unwrap()
}

fn texts(report: &TurnReport) -> Vec<&str> {
    report.replies.iter().filter_map(|reply| reply.reply.text.as_deref()).collect()
}

fn kinds(tracker: &Json) -> Vec<&str> {
    tracker["events"].as_array().unwrap().iter().map(|event| event["event"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_action_is_told_the_whole_conversation() {
    let actions = ActionServer::start(|_, number| sets("reference", &format!("R{number}")));
    let assistant = clerk(&actions, |_| {});
    assert_eq!(texts(&say(&assistant, "/book").await), ["Booked as R1."]);
    assert_eq!(texts(&say(&assistant, "/book{\"topic\": \"tea\"}").await), ["Booked as R2."]);
    let calls = actions.calls();
    let first = &calls[0].body["tracker"];
    assert_eq!(kinds(first), ["action", "session_started", "action", "user", "flow_started", "stack"]);
    assert_eq!(
        (&first["latest_message"]["intent"]["name"], &first["slots"]["reference"]),
        (&json!("book"), &Json::Null)
    );
    assert_eq!(first["stack"][0]["flow_id"], "book");
    assert!(first["events"][3]["parse_data"]["commands"][0]["flow"] == "book", "{}", first["events"][3]);
    let second = &calls[1].body["tracker"];
    let twice = kinds(second);
    assert!(twice.starts_with(&kinds(first)), "all events, those of earlier turns first: {twice:?}");
    assert_eq!(twice.iter().filter(|kind| **kind == "user").count(), 2);
    assert_eq!(second["latest_message"]["entities"], json!([{"entity": "topic", "value": "tea"}]));
    assert_eq!((&second["slots"]["reference"], &second["latest_input_channel"]), (&json!("R1"), &json!("test")));
    assert_ne!(calls[0].key, calls[1].key, "each call has a key of its own");
    assert_eq!(assistant.replay(&"ada".into()).await.unwrap().map(|difference| difference.event), None);
}

#[tokio::test]
async fn the_part_of_the_conversation_that_is_sent_can_be_chosen() {
    let actions = ActionServer::start(|_, _| sets("reference", "R"));
    for (wants, sent) in [(TrackerEvents::Latest(3), 3), (TrackerEvents::Session, 13)] {
        let assistant = clerk(&actions, |endpoint| endpoint.tracker_events = wants);
        say(&assistant, "/book").await;
        say(&assistant, "/session_start").await;
        say(&assistant, "/book").await;
        let tracker = actions.calls().pop().unwrap().body["tracker"].clone();
        let kinds = kinds(&tracker);
        assert_eq!(kinds.len(), sent, "{wants:?}: {kinds:?}");
        assert_eq!(kinds.last(), Some(&"stack"));
        assert_eq!(tracker["latest_message"]["text"], "/book", "the message is told in any case");
        if wants == TrackerEvents::Session {
            assert_eq!(kinds[..2], ["action", "session_started"], "it begins with the session");
        }
    }
}

#[tokio::test]
async fn a_failure_is_told_to_the_flow_and_to_operators() {
    let actions = ActionServer::start(|call, _| match call.body["next_action"].as_str() {
        Some("action_book") => Some((500, json!({"error": "boom"}))),
        Some("action_look") => Some((404, json!({"error": "none", "action_name": "action_look"}))),
        _ => Some((400, json!({"error": "not now", "action_name": "action_order"}))),
    });
    let assistant = clerk(&actions, |_| {});
    let report = say(&assistant, "/book").await;
    assert_eq!(texts(&report), ["Whether it was booked is not known (server_error)."]);
    assert_eq!(report.failures[0].code, "R0501");
    assert!(report.failures[0].reason.contains("boom"), "{:?}", report.failures);
    let report = say(&assistant, "/look").await;
    assert_eq!(texts(&report), ["Something went wrong on my side. Please try again later."], "one message, no more");
    let report = say(&assistant, "/order").await;
    assert_eq!((texts(&report), report.failures.len()), (vec!["Ordered as None."], 0), "a refusal is no failure");
    let turns = assistant.store().turns(&"ada".into()).await.unwrap();
    let happened = serde_json::to_string(&turns[2].events).unwrap();
    assert!(happened.contains("action_execution_rejected"), "{happened}");
}

#[tokio::test]
async fn an_action_speaks_with_responses_of_the_domain() {
    let actions = ActionServer::start(|_, _| {
        let responses = json!([
            {"response": "utter_noted", "template": "utter_noted", "text": null, "who": "Ada", "buttons": [{"title": "Ok"}], "custom": {}},
            {"text": "and more", "image": "http://i", "custom": {"a": 1}},
        ]);
        Some((200, json!({"events": [], "responses": responses})))
    });
    let report = say(&clerk(&actions, |_| {}), "/note").await;
    assert_eq!(texts(&report), ["Noted for Ada.", "and more"]);
    assert_eq!(&*report.replies[0].reply.buttons[0].payload, "Ok");
    assert_eq!(report.replies[1].reply.custom, Some(json!({"a": 1})));
}

#[tokio::test]
async fn a_turn_may_take_as_long_as_its_action_is_given() {
    let actions = ActionServer::start(|_, _| sets("reference", "R"));
    let assistant = clerk(&actions, |endpoint| endpoint.timeout = Some(std::time::Duration::from_secs(300)));
    assert_eq!(texts(&say(&assistant, "/book").await), ["Booked as R."]);
    assert_eq!(assistant.action_server_status(), Some(segue::actions::Health::Up));
    assert_eq!(clerk(&actions, |_| {}).list_server_actions().await, Some(Ok(vec!["action_book".to_owned()])));
}
