//! Action servers: the tracker that they receive, and the effects of their responses and failures on a conversation.

use std::{path::Path, sync::Arc};

use segue::{
    Assistant, AssistantBuilder, DiscardReplies, IncomingMessage, TurnReport,
    project::{LoadOptions, Severity, TrackerEvents},
};
use serde_json::{Value as Json, json};

use crate::action_server::{ActionServer, set_slot};

/// The project `clerk` with this action server.
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
    assistant.receive(IncomingMessage::new("ada", text).input_channel("test"), Box::new(DiscardReplies)).await.unwrap()
}

fn texts(report: &TurnReport) -> Vec<&str> {
    report.replies.iter().filter_map(|reply| reply.reply.text.as_deref()).collect()
}

/// The names of the events of a tracker.
fn event_names(tracker: &Json) -> Vec<&str> {
    tracker["events"].as_array().unwrap().iter().map(|event| event["event"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn action_receives_the_whole_conversation() {
    let actions = ActionServer::start(|_, number| set_slot("reference", &format!("R{number}")));
    let assistant = clerk(&actions, |_| {});
    assert_eq!(texts(&say(&assistant, "/book").await), ["Booked as R1."]);
    assert_eq!(texts(&say(&assistant, "/book{\"topic\": \"tea\"}").await), ["Booked as R2."]);
    let calls = actions.calls();
    let first = &calls[0].body["tracker"];
    assert_eq!(event_names(first), ["action", "session_started", "action", "user", "flow_started", "stack"]);
    assert_eq!(
        (&first["latest_message"]["intent"]["name"], &first["slots"]["reference"]),
        (&json!("book"), &Json::Null)
    );
    assert_eq!(first["stack"][0]["flow_id"], "book");
    assert!(first["events"][3]["parse_data"]["commands"][0]["flow"] == "book", "{}", first["events"][3]);
    let second = &calls[1].body["tracker"];
    let names = event_names(second);
    assert!(names.starts_with(&event_names(first)), "all events, earlier turns first: {names:?}");
    assert_eq!(names.iter().filter(|name| **name == "user").count(), 2);
    assert_eq!(second["latest_message"]["entities"], json!([{"entity": "topic", "value": "tea"}]));
    assert_eq!((&second["slots"]["reference"], &second["latest_input_channel"]), (&json!("R1"), &json!("test")));
    assert_ne!(calls[0].key, calls[1].key, "each call has its own key");
    assert_eq!(assistant.replay(&"ada".into()).await.unwrap().map(|difference| difference.event), None);
}

#[tokio::test]
async fn tracker_events_selects_the_events_that_are_sent() {
    let actions = ActionServer::start(|_, _| set_slot("reference", "R"));
    for (setting, sent) in [(TrackerEvents::Latest(3), 3), (TrackerEvents::Session, 13)] {
        let assistant = clerk(&actions, |endpoint| endpoint.tracker_events = setting);
        say(&assistant, "/book").await;
        say(&assistant, "/session_start").await;
        say(&assistant, "/book").await;
        let tracker = actions.calls().pop().unwrap().body["tracker"].clone();
        let names = event_names(&tracker);
        assert_eq!(names.len(), sent, "{setting:?}: {names:?}");
        assert_eq!(names.last(), Some(&"stack"));
        assert_eq!(tracker["latest_message"]["text"], "/book", "the message is always sent");
        if setting == TrackerEvents::Session {
            assert_eq!(names[..2], ["action", "session_started"], "the first event is that of the session");
        }
    }
}

#[tokio::test]
async fn action_failures_reach_the_flow_and_the_turn_report() {
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
    assert_eq!(texts(&report), ["Something went wrong on my side. Please try again later."], "one error response");
    let report = say(&assistant, "/order").await;
    assert_eq!(
        (texts(&report), report.failures.len()),
        (vec!["Ordered as None."], 0),
        "a rejected action is not a failure"
    );
    let turns = assistant.store().turns(&"ada".into()).await.unwrap();
    let events = serde_json::to_string(&turns[2].events).unwrap();
    assert!(events.contains("action_execution_rejected"), "{events}");
}

#[tokio::test]
async fn action_can_send_responses_of_the_domain() {
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
async fn action_timeout_extends_the_turn_timeout() {
    let actions = ActionServer::start(|_, _| set_slot("reference", "R"));
    let assistant = clerk(&actions, |endpoint| endpoint.timeout = Some(std::time::Duration::from_secs(300)));
    assert_eq!(texts(&say(&assistant, "/book").await), ["Booked as R."]);
    assert_eq!(assistant.action_server_status(), Some(segue::actions::Health::Up));
    assert_eq!(clerk(&actions, |_| {}).list_server_actions().await, Some(Ok(vec!["action_book".to_owned()])));
}
