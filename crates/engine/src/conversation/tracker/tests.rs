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
    Event { at: Timestamp::from_micros(1_500_000), kind, place: FlowLocation::default() }
}

fn user(text: &str) -> EventKind {
    let metadata = Map::from_iter([("device".to_owned(), Json::from("phone"))]);
    EventKind::User(UserMessage { text: text.into(), message_id: "m1".into(), input_channel: "rest".into(), metadata })
}

fn given(json: Json) -> Option<EventKind> {
    let Json::Object(fields) = json else { panic!("a map") };
    read(fields, &"action_x".into())
}

#[test]
fn events_of_action_servers_become_ours() {
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
        assert_eq!(given(written.clone()), Some(read), "{written}");
    }
}

#[test]
fn what_only_the_brain_may_write_is_kept_as_reported() {
    for name in OURS {
        let kind = given(json!({"event": name, "timestamp": 5.0, "name": "n"})).unwrap();
        let EventKind::Reported { by, reported } = &kind else { panic!("{name}: {kind:?}") };
        assert_eq!((by.as_str(), reported["event"].as_str()), ("action_x", Some(name)));
        assert_eq!(written(&project(), [&event(kind)])[0]["event"], name, "and is told on as it came");
    }
}

#[test]
fn unknown_kinds_and_wrong_shapes_are_kept_and_survive_the_store() {
    for json in [
        json!({"event": "weather", "timestamp": null, "rain": true}),
        json!({"event": "export", "timestamp": null}),
        json!({"event": "agent", "text": "hi", "data": null, "timestamp": null}),
        json!({"event": "loop_interrupted", "is_interrupted": true, "timestamp": null}),
    ] {
        let kind = given(json.clone()).unwrap();
        assert!(matches!(kind, EventKind::Unknown(_)), "{json} {kind:?}");
        let stored = serde_json::to_string(&event(kind.clone())).unwrap();
        assert_eq!(Event::from_json(&stored).unwrap().kind, kind, "{stored}");
        assert_eq!(written(&project(), [&event(kind)])[0]["event"], json["event"]);
    }
    assert_eq!(given(json!({"name": "a"})), None);
    assert_eq!(given(json!({"event": 5})), None);
    assert_eq!(given(json!({"event": "slot", "value": 1})), None, "a slot without a name");
}

#[test]
fn a_bot_event_is_read_with_all_its_parts() {
    let kind = given(json!({"event": "bot", "text": "hi", "metadata": {"utter_action": "utter_hi"}, "data": {
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
fn a_conversation_is_told_as_its_state() {
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
fn a_message_that_names_an_intent_is_told_with_it() {
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
fn frames_have_the_names_of_the_format() {
    use crate::conversation::{FlowFrameType, Frame, FrameKind, PatternFrame, Position};
    let frame = |flow: &str, at, kind| Frame {
        frame_id: "1".into(),
        flow_id: flow.into(),
        at,
        kind,
        trail: Vec::new(),
        reach: 0,
        ran: Vec::new(),
        error: None,
        aside: Vec::new(),
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
    let line = &written(&project(), [&event(kind)])[0];
    let patch: Json = serde_json::from_str(line["update"].as_str().unwrap()).unwrap();
    assert_eq!(patch[0]["op"], "replace");
    let frames = &patch[0]["value"];
    assert_eq!((&frames[0]["type"], &frames[0]["step_id"]), (&json!("flow"), &json!("START")));
    assert_eq!(frames[1]["type"], "pattern_collect_information");
    assert_eq!((&frames[1]["collect"], &frames[1]["step_id"]), (&json!("amount"), &json!("ask")));
}
