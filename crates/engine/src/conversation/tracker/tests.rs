#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::*;
use crate::{
    conversation::{Command, Conversation, FilledBy, StepError, UserMessage},
    project::{SourceFile, Sources},
    time::Timestamp,
};

fn project() -> Project {
    let file = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into() };
    let domain = "slots:\n  amount: {type: float}\n  who: {type: text, initial_value: nobody}\n";
    let sources = Sources { domain: vec![file("domain.yml", domain)], ..Sources::default() };
    Project::load(&sources).project.unwrap()
}

fn event(kind: EventKind) -> Event {
    Event { at: Timestamp::from_micros(1_500_000), kind, location: FlowLocation::default() }
}

fn user(text: &str) -> EventKind {
    let metadata = Map::from_iter([("device".to_owned(), Json::from("phone"))]);
    EventKind::User(UserMessage {
        via: "".into(),
        holds_writes: false,
        before_question: false,
        text: text.into(),
        message_id: "m1".into(),
        input_channel: "rest".into(),
        metadata,
    })
}

fn parsed(json: Json) -> Option<EventKind> {
    let Json::Object(fields) = json else { panic!("a map") };
    parse_event(fields, &"action_x".into())
}

#[test]
fn action_server_events_are_parsed() {
    let slot = |value: Json| EventKind::Slot { name: "a".into(), value, filled_by: None, reset: false };
    for (written, read) in [
        (json!({"event": "slot", "timestamp": null, "name": "a", "value": [1]}), slot(json!([1]))),
        (json!({"event": "slot", "name": "a"}), slot(Json::Null)),
        (
            json!({"event": "followup", "timestamp": null, "name": "action_y"}),
            EventKind::Followup { name: Some("action_y".into()) },
        ),
        (json!({"event": "reset_slots", "timestamp": null}), EventKind::ResetSlots),
        (json!({"event": "restart", "timestamp": null}), EventKind::Restart),
        (json!({"event": "session_started", "timestamp": null}), EventKind::SessionStarted),
        (json!({"event": "pause", "timestamp": null}), EventKind::Pause),
        (json!({"event": "resume", "timestamp": null}), EventKind::Resume),
        (json!({"event": "rewind", "timestamp": null}), EventKind::Rewind),
        (json!({"event": "undo", "timestamp": null}), EventKind::Undo),
        (
            json!({"event": "active_loop", "name": "f", "timestamp": null}),
            EventKind::ActiveLoop { name: Some("f".into()) },
        ),
        (json!({"event": "active_loop", "name": null}), EventKind::ActiveLoop { name: None }),
        (
            json!({"event": "session_ended", "timestamp": null, "metadata": {"_reason": "bye"}}),
            EventKind::SessionEnded { reason: Some("bye".into()) },
        ),
        (
            json!({"event": "session_ended", "timestamp": null, "metadata": null}),
            EventKind::SessionEnded { reason: None },
        ),
    ] {
        assert_eq!(parsed(written.clone()), Some(read), "{written}");
    }
}

#[test]
fn engine_only_events_become_reported_events() {
    for name in ENGINE_ONLY_EVENTS {
        let kind = parsed(json!({"event": name, "timestamp": 5.0, "name": "n"})).unwrap();
        let EventKind::Reported { by, reported } = &kind else { panic!("{name}: {kind:?}") };
        assert_eq!((by.as_str(), reported["event"].as_str()), ("action_x", Some(name)));
        assert_eq!(events_json(&project(), [&event(kind)])[0]["event"], name, "and is exported unchanged");
    }
}

#[test]
fn unknown_kinds_and_shapes_round_trip() {
    for json in [
        json!({"event": "weather", "timestamp": null, "rain": true}),
        json!({"event": "export", "timestamp": null}),
        json!({"event": "agent", "text": "hi", "data": null, "timestamp": null}),
        json!({"event": "loop_interrupted", "is_interrupted": true, "timestamp": null}),
    ] {
        let kind = parsed(json.clone()).unwrap();
        assert!(matches!(kind, EventKind::Unknown(_)), "{json} {kind:?}");
        let stored = serde_json::to_string(&event(kind.clone())).unwrap();
        assert_eq!(Event::from_json(&stored).unwrap().kind, kind, "{stored}");
        assert_eq!(events_json(&project(), [&event(kind)])[0]["event"], json["event"]);
    }
    assert_eq!(parsed(json!({"name": "a"})), None);
    assert_eq!(parsed(json!({"event": 5})), None);
    assert_eq!(parsed(json!({"event": "slot", "value": 1})), None, "a slot without a name");
}

#[test]
fn bot_event_is_parsed_completely() {
    let kind = parsed(json!({"event": "bot", "text": "hi", "metadata": {"utter_action": "utter_hi"}, "data": {
        "buttons": [{"title": "A", "payload": "/a", "type": "url"}, {"title": "B"}, "no button"],
        "custom": {"x": 1}, "image": "http://i", "elements": null, "quick_replies": [], "attachment": {},
    }}));
    let Some(EventKind::Bot(bot)) = kind else { panic!("{kind:?}") };
    assert_eq!(bot.utter_action.as_deref(), Some("utter_hi"));
    let reply = bot.reply;
    assert_eq!((reply.text.as_deref(), reply.image.as_deref()), (Some("hi"), Some("http://i")));
    assert_eq!(reply.buttons.iter().map(|b| (&*b.title, &*b.payload)).collect::<Vec<_>>(), [("A", "/a"), ("B", "B")]);
    assert_eq!(reply.buttons[0].extra["type"], "url");
    assert_eq!((reply.custom, reply.attachment), (Some(json!({"x": 1})), None));
}

#[test]
fn state_contains_slots_message_and_events() {
    let project = project();
    let commands = vec![Command::StartFlow { flow: "pay".into() }];
    let said =
        BotMessage { reply: Reply::text("How much?"), utter_action: Some("utter_ask".into()), ..Default::default() };
    let value = json!(50.0);
    let events = [
        event(EventKind::Action { name: "action_session_start".into() }),
        event(EventKind::SessionStarted),
        event(user("send 50")),
        event(EventKind::Understood { commands, source: "model".into() }),
        event(EventKind::Slot { name: "amount".into(), value, filled_by: Some(FilledBy::Llm), reset: false }),
        event(EventKind::bot(said)),
        event(EventKind::ActionFailed { name: "action_y".into(), error: StepError::new("timeout", "late") }),
        event(EventKind::Action { name: "utter_ask".into() }),
    ];
    let conversation = Conversation::fold("u1".into(), &events);
    let state = state(&project, &conversation, events.iter());
    assert_eq!(state["sender_id"], "u1");
    assert_eq!((&state["slots"]["amount"], &state["slots"]["who"]), (&json!(50.0), &json!("nobody")));
    let latest = &state["latest_message"];
    assert_eq!((&latest["text"], &latest["message_id"]), (&json!("send 50"), &json!("m1")));
    assert_eq!(latest["commands"][0], json!({"command": "start flow", "flow": "pay"}));
    assert_eq!(latest["metadata"]["device"], "phone");
    assert_eq!((&state["latest_action_name"], &state["active_loop"]), (&json!("utter_ask"), &json!({})));
    let lines = state["events"].as_array().unwrap();
    let names: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["action", "session_started", "user", "slot", "bot", "action_failed", "action"]);
    assert_eq!(lines[2]["parse_data"]["commands"], latest["commands"]);
    assert_eq!(lines[4]["metadata"]["utter_action"], "utter_ask");
    assert_eq!(lines[4]["data"]["buttons"], Json::Null);
    assert!(lines.iter().all(|line| line["timestamp"] == 1.5 && line["metadata"]["assistant_id"] == "assistant"));
}

#[test]
fn latest_message_contains_the_intent_of_an_intent_message() {
    let events = [event(user(r#"/inform{"city": "Oslo"}"#))];
    let conversation = Conversation::fold("u1".into(), &events);
    let latest = latest_message(&conversation, &[]);
    assert_eq!(latest["intent"], json!({"name": "inform", "confidence": 1.0}));
    assert_eq!(latest["entities"], json!([{"entity": "city", "value": "Oslo"}]));
    let plain = Conversation::fold("u1".into(), &[event(user("/not an intent"))]);
    assert_eq!(latest_message(&plain, &[])["intent"]["name"], Json::Null);
    assert_eq!(latest_message(&Conversation::new("u".into()), &[]), json!({}));
}

#[test]
fn stack_frames_use_the_names_of_the_format() {
    use crate::conversation::{FlowFrameType, Frame, FrameKind, PatternFrame, Position};
    let frame = |flow: &str, at, kind| Frame {
        frame_id: "1".into(),
        flow_id: flow.into(),
        at,
        kind,
        visited_steps: Vec::new(),
        continuation_hash: 0,
        completed_steps: Vec::new(),
        error: None,
        used_slot_hashes: Vec::new(),
        writes: Default::default(),
        kept_values: Vec::new(),
        tool_questions: Vec::new(),
    };
    let flow = frame("pay", Position::Start, FrameKind::Flow { frame_type: FlowFrameType::Regular });
    let context = PatternFrame::CollectInformation {
        collect: "amount".into(),
        utter: "utter_ask_amount".into(),
        collect_action: "action_ask_amount".into(),
        step_id: "pay_0".into(),
    };
    let asking = frame("pattern_collect_information", Position::At("ask".into()), FrameKind::Pattern { context });
    let kind = EventKind::Stack { frames: vec![flow, asking].into(), next_frame: 3, pending: None };
    let line = &events_json(&project(), [&event(kind)])[0];
    let patch: Json = serde_json::from_str(line["update"].as_str().unwrap()).unwrap();
    assert_eq!(patch[0]["op"], "replace");
    let frames = &patch[0]["value"];
    assert_eq!((&frames[0]["type"], &frames[0]["step_id"]), (&json!("flow"), &json!("START")));
    assert_eq!(frames[1]["type"], "pattern_collect_information");
    assert_eq!((&frames[1]["collect"], &frames[1]["step_id"]), (&json!("amount"), &json!("ask")));
}
