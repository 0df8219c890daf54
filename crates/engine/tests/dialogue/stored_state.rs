//! Tests of stored state and of loading that cannot be written as a conversation.

use segue_engine::{
    conversation::{Conversation, Event, EventKind, Frame},
    finding::Severity,
    ids::ConversationId,
    project::{Project, SourceFile, Sources},
};
use serde_json::{Value as Json, json};

use crate::{driver::Driver, project};

#[test]
fn history_with_unknown_names_is_readable() {
    let lines = [
        json!({"timestamp": 1.0, "event": "session_started"}),
        json!({"timestamp": 1.0, "event": "slot", "name": "gone", "value": {"deep": [1]}, "filled_by": "LLM"}),
        json!({"timestamp": 1.0, "event": "flow_started", "flow_id": "gone"}),
        json!({"timestamp": 1.0, "event": "flow_cancelled", "flow_id": "gone", "step_id": "nowhere"}),
        json!({"timestamp": 1.0, "event": "agent_completed", "flow_id": "gone", "agent_id": "gone", "status": "completed"}),
        json!({"timestamp": 1.0, "event": "reminder", "intent": "gone", "date_time": "no time"}),
        json!({"timestamp": 1.0, "event": "from_a_later_version", "anything": null}),
    ];
    let events: Vec<Event> = lines.iter().map(|line| Event::from_json(&line.to_string()).unwrap()).collect();
    let folded = Conversation::fold(ConversationId::from("c"), &events);
    assert_eq!(folded.events, lines.len() as u64);
    let mut driver = Driver::new(project::load("bank"));
    driver.conversation = folded;
    driver.user("pay");
    driver.understood(&["start flow pay"]);
    assert_eq!(driver.said(), ["utter_ask_recipient"]);
}

#[test]
fn frame_of_an_older_release_is_readable() {
    let mut driver = Driver::new(project::load("bank"));
    driver.user("pay Joe");
    driver.understood(&["start flow pay", "set slot recipient Joe"]);
    // The first release wrote none of these fields.
    let mut json = serde_json::to_value(&driver.conversation).unwrap();
    for frame in json["stack"].as_array_mut().unwrap() {
        let frame = frame.as_object_mut().unwrap();
        ["reach", "ran", "trail"].iter().for_each(|key| _ = frame.remove(*key));
    }
    ["reminders", "undo", "turn"].iter().for_each(|key| _ = json.as_object_mut().unwrap().remove(*key));
    driver.conversation = serde_json::from_value(json).unwrap();
    driver.user("5");
    assert_eq!(driver.said(), ["utter_done", "utter_can_do_something_else"]);
}

#[test]
fn continue_interrupted_frame_without_flow_name_is_readable() {
    let old = json!({"frame_id": "3", "flow_id": "pattern_continue_interrupted", "at": "start", "type": "pattern",
        "context": {"pattern": "continue_interrupted", "interrupted_flow_names": [], "interrupted_flow_ids": [],
            "interrupted_flow_options": "", "multiple_flows_interrupted": false}});
    assert!(serde_json::from_value::<Frame>(old).is_ok());
}

#[test]
fn stack_event_alone_restores_the_stack() {
    let mut driver = Driver::new(project::load("bank"));
    driver.user("pay Joe");
    driver.understood(&["start flow pay", "set slot recipient Joe"]);
    driver.user("my balance");
    driver.understood(&["start flow balance"]);
    let newest = driver.all.iter().rposition(|event| matches!(event.kind, EventKind::Stack { .. })).unwrap();
    let folded = Conversation::fold(ConversationId::from("c"), &driver.all[newest..]);
    assert_eq!(folded.stack, driver.conversation.stack, "no earlier event is needed");
}

#[test]
fn unknown_action_is_a_load_error() {
    let file = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into() };
    let loaded = Project::load(&Sources {
        data: vec![file("data/f.yml", "flows: {f: {description: d, steps: [{action: action_nowhere}]}}")],
        patterns: project::patterns(),
        ..Sources::default()
    });
    let errors: Vec<&str> =
        loaded.findings.iter().filter(|one| one.severity == Severity::Error).map(|one| one.code).collect();
    assert_eq!(errors, ["F0222"]);
    assert!(loaded.project.is_none());
}

#[test]
fn snapshot_size_is_bounded() {
    let mut driver = Driver::new(project::load("bank"));
    let mut sizes = Vec::new();
    for round in 0..60 {
        for line in ["start flow pay", "set slot recipient Joe", "set slot recipient John", "set slot amount 5"] {
            driver.user("x");
            driver.understood(&[line]);
        }
        if round >= 20 {
            let stored: Json = serde_json::to_value(&driver.conversation).unwrap();
            sizes.push(stored.to_string().len());
        }
    }
    let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
    assert!(most - least < 40, "a snapshot takes {least} to {most} bytes");
}
