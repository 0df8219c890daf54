//! Tests of the stored JSON of events and conversations: it round-trips and keeps its shape.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;

use proptest::{collection::vec, option, prelude::*};
use serde_json::{Map, Value as Json, json};

use super::*;
use crate::{
    conversation::{
        AgentFrame, AgentState, BotKind, BotMessage, Button, Command, CompletedStep, EventKind, ExternalTrigger,
        FilledBy, FlowFrameType, FlowLocation, Frame, FrameKind, ModelUsage, PatternFrame, Position, Reply,
        TriggerAction, Usage, UserMessage,
    },
    time::Timestamp,
};

fn json_value() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<u64>().prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        any::<String>().prop_map(Json::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Json::from),
            vec((any::<String>(), inner), 0..4).prop_map(|pairs| Json::Object(pairs.into_iter().collect())),
        ]
    })
}

fn map() -> impl Strategy<Value = Map<String, Json>> {
    let key = prop_oneof!["[a-z_]{1,8}", Just("active_flow".to_owned()), Just("event".to_owned())];
    vec((key, json_value()), 0..4).prop_map(|pairs| pairs.into_iter().collect())
}

fn word() -> impl Strategy<Value = String> {
    any::<String>()
}

fn frame() -> impl Strategy<Value = Frame> {
    let pattern = prop_oneof![
        Just(PatternFrame::Plain),
        (word(), map()).prop_map(|(error_type, info)| PatternFrame::InternalError { error_type, info }),
        (word(), word()).prop_map(|(a, b)| PatternFrame::Correction {
            filled_by: Some(FilledBy::Shortcut),
            is_reset_only: true,
            corrected_slots: Map::new(),
            reset_flow_id: Some(a.into()),
            reset_step_id: None,
            new_slot_values: vec![Json::from(b)],
        }),
    ];
    let kind = prop_oneof![
        Just(FrameKind::Flow { frame_type: FlowFrameType::Link }),
        pattern.prop_map(|context| FrameKind::Pattern { context }),
        (word(), map()).prop_map(|(agent, metadata)| FrameKind::Agent(AgentFrame {
            agent_id: agent.into(),
            state: AgentState::Interrupted,
            is_restart: false,
            metadata,
        })),
    ];
    (word(), kind, vec(word(), 0..3)).prop_map(|(name, kind, visited_steps)| Frame {
        frame_id: name.clone().into(),
        flow_id: name.clone().into(),
        at: Position::Before(name.into()),
        kind,
        continuation_hash: u32::try_from(visited_steps.len()).unwrap(),
        completed_steps: visited_steps
            .iter()
            .map(|step| CompletedStep {
                flow: step.as_str().into(),
                step: step.as_str().into(),
                input_hash: 7,
                visited_count: 1,
                skippable: visited_steps.len() > 1,
            })
            .collect(),
        used_slot_hashes: visited_steps.iter().map(|slot| (slot.as_str().into(), 7)).collect(),
        writes: Default::default(),
        tool_questions: visited_steps.iter().map(|slot| (slot.as_str().into(), 2)).collect(),
        kept_values: visited_steps
            .iter()
            .map(|slot| KeptValue { slot: slot.as_str().into(), value: json!(slot), filled_by: FilledBy::Llm })
            .collect(),
        visited_steps: visited_steps.into_iter().map(Into::into).collect(),
        error: None,
    })
}

fn user() -> impl Strategy<Value = EventKind> {
    (word(), word(), word(), map()).prop_map(|(text, id, channel, metadata)| {
        EventKind::User(UserMessage {
            via: "".into(),
            holds_writes: false,
            before_question: false,
            text: text.into(),
            message_id: id.into(),
            input_channel: channel.into(),
            metadata,
        })
    })
}

fn bot() -> impl Strategy<Value = EventKind> {
    let extra = vec(("x_[a-z]{1,5}", json_value()), 0..3);
    (option::of(word()), vec((word(), extra), 0..3), option::of(json_value()), any::<bool>()).prop_map(
        |(text, buttons, custom, in_exchange)| {
            EventKind::bot(BotMessage {
                reply: Reply {
                    text: text.map(Into::into),
                    buttons: buttons
                        .into_iter()
                        .map(|(title, extra)| Button {
                            title: title.clone().into(),
                            payload: title.into(),
                            extra: extra.into_iter().collect(),
                        })
                        .collect(),
                    // An absent value and null have the same JSON.
                    custom: custom.filter(|custom| !custom.is_null()),
                    ..Reply::default()
                },
                utter_source: Some("EnterpriseSearchPolicy".into()),
                search_results: vec![serde_json::json!({"source": "a.md"})],
                utter_action: Some("utter_x".into()),
                kind: BotKind::Filler,
                agent: None,
                reply_id: Some("r".into()),
                rephrase: None,
                in_exchange,
                truncated: in_exchange,
            })
        },
    )
}

fn other() -> impl Strategy<Value = EventKind> {
    prop_oneof![
        word().prop_map(|name| EventKind::Action { name: name.into() }),
        (word(), json_value(), any::<bool>()).prop_map(|(name, value, reset)| EventKind::Slot {
            name: name.into(),
            value,
            filled_by: Some(FilledBy::Payload),
            reset,
        }),
        Just(EventKind::ResetSlots),
        Just(EventKind::SessionStarted),
        Just(EventKind::Restart),
        Just(EventKind::Rewind),
        Just(EventKind::Undo),
        (word(), word(), json_value(), any::<bool>()).prop_map(|(name, intent, entities, kill_on_user_msg)| {
            EventKind::Reminder {
                name: Some(name.into()),
                intent: intent.into(),
                entities,
                date_time: "2026-11-03T08:00:00Z".into(),
                kill_on_user_msg,
            }
        }),
        (option::of(word()), option::of(word())).prop_map(|(name, intent)| EventKind::CancelReminder {
            name: name.map(Into::into),
            intent: intent.map(Into::into),
            entities: Json::Null,
        }),
        (word(), map(), option::of(word())).prop_map(|(intent, values, reminder)| EventKind::External {
            trigger: ExternalTrigger {
                action: TriggerAction::Intent(intent.into()),
                values,
                reminder: reminder.map(Into::into)
            },
        }),
        Just(EventKind::Followup { name: None }),
        (vec(frame(), 0..3), any::<u64>()).prop_map(|(frames, next_frame)| EventKind::Stack {
            frames: frames.into(),
            next_frame,
            pending: None
        }),
        (word(), any::<u64>(), json_value()).prop_map(|(flow, fingerprint, context)| EventKind::FlowStarted {
            flow_id: flow.into(),
            fingerprint,
            context,
        }),
        (word(), vec(json_value(), 0..3)).prop_map(|(agent, exchanges)| EventKind::AgentExchanges {
            agent_id: agent.into(),
            exchanges: Arc::new(exchanges),
        }),
        (word(), json_value()).prop_map(|(name, value)| EventKind::Understood {
            commands: vec![Command::SetSlot { name: name.clone().into(), value, extractor: FilledBy::Llm }],
            source: name,
        }),
    ]
}

/// Events as an action server or a later version may write them: any fields, including the keys that stored events
/// reserve.
fn unknown_event() -> impl Strategy<Value = EventKind> {
    let key = prop_oneof![
        Just("place".to_owned()),
        Just("metadata".to_owned()),
        Just("timestamp".to_owned()),
        Just("_place".to_owned()),
        Just("name".to_owned()),
    ];
    let value = prop_oneof![json_value(), Just(json!({"active_flow": "f", "step_id": "s"})), Just(json!({}))];
    vec((key, value), 0..5).prop_map(|pairs| {
        let name = [("event".to_owned(), Json::from("weather"))];
        EventKind::unknown(name.into_iter().chain(pairs).collect())
    })
}

fn event() -> impl Strategy<Value = Event> {
    (
        prop_oneof![user(), bot(), other(), unknown_event()],
        0..4_102_444_800_000_000_i64,
        option::of(word()),
        option::of(word()),
    )
        .prop_map(|(kind, at, flow, step)| Event {
            at: Timestamp::from_micros(at),
            kind,
            location: FlowLocation { active_flow: flow.map(Into::into), step_id: step.map(Into::into) },
        })
}

fn to_json(event: &Event) -> String {
    serde_json::to_string(event).unwrap()
}

proptest! {
    #[test]
    fn events_round_trip(event in event()) {
        let text = to_json(&event);
        prop_assert_eq!(&Event::from_json(&text).unwrap(), &event);
        prop_assert_eq!(&serde_json::from_str::<Event>(&text).unwrap(), &event, "both parsers agree");
    }
}

#[test]
fn unknown_events_are_written_unchanged() {
    for text in [
        r#"{"timestamp":1.5,"event":"from_the_future","b":1,"a":[null],"metadata":{"model_id":"m"}}"#,
        r#"{"timestamp":1.5,"event":"slot","nom":"a known kind in an unknown shape"}"#,
    ] {
        let event: Event = serde_json::from_str(text).unwrap();
        assert!(matches!(event.kind, EventKind::Unknown(_)), "{event:?}");
        assert_eq!(Event::from_json(text).unwrap(), event);
        assert_eq!(serde_json::to_string(&event).unwrap(), text);
    }
}

#[test]
fn fields_of_unknown_events_do_not_collide_with_reserved_keys() {
    let fields = json!({"event": "weather", "place": "Oslo", "timestamp": "noon", "metadata": 5, "_place": "x"});
    let Json::Object(fields) = fields else { panic!() };
    let location = FlowLocation { active_flow: Some("pay".into()), step_id: None };
    for kind in [EventKind::unknown(fields.clone()), EventKind::Unknown(fields)] {
        let event = Event { at: Timestamp::from_micros(1_500_000), kind, location: location.clone() };
        let read = Event::from_json(&to_json(&event)).unwrap();
        assert_eq!((read.at, &read.location), (event.at, &location));
        let EventKind::Unknown(fields) = read.kind else { panic!() };
        assert_eq!(Json::Object(fields), json!({"event": "weather", "place": "Oslo", "metadata": 5}));
    }
}

#[test]
fn last_of_two_equal_keys_is_read() {
    let text = r#"{"timestamp":1.5,"event":"weather","place":"Oslo","place":{"active_flow":"pay","step_id":"ask"}}"#;
    let event = Event::from_json(text).unwrap();
    assert_eq!(event.location, FlowLocation { active_flow: Some("pay".into()), step_id: Some("ask".into()) });
    assert_eq!(event.kind, EventKind::unknown([("event".to_owned(), json!("weather"))].into_iter().collect()));
    assert_eq!(Event::from_json(&to_json(&event)).unwrap(), event, "written again, it has one form");
}

#[test]
fn numbers_round_trip() {
    for number in (1..2_000).map(|cents| f64::from(cents) * 1.1 / 3.0) {
        let text = serde_json::to_string(&number).unwrap();
        assert_eq!(serde_json::from_str::<Json>(&text).unwrap(), json!(number), "{text}");
    }
}

#[test]
fn event_json_is_stable() {
    let event = |kind, flow: Option<&str>| Event {
        at: Timestamp::from_micros(1_500_000),
        kind,
        location: FlowLocation { active_flow: flow.map(Into::into), step_id: None },
    };
    let message = UserMessage {
        via: "".into(),
        holds_writes: false,
        before_question: false,
        text: "hi".into(),
        message_id: "m".into(),
        input_channel: "rest".into(),
        metadata: [("active_flow".to_owned(), json!(5))].into_iter().collect(),
    };
    let user = json!({"event": "user", "timestamp": 1.5, "text": "hi", "message_id": "m", "input_channel": "rest",
        "metadata": {"active_flow": 5}, "place": {"active_flow": "f"}});
    assert_eq!(serde_json::to_value(event(EventKind::User(message), Some("f"))).unwrap(), user);
    let action = json!({"event": "action", "timestamp": 1.5, "name": "a", "metadata": {"active_flow": "f"}});
    assert_eq!(serde_json::to_value(event(EventKind::Action { name: "a".into() }, Some("f"))).unwrap(), action);
    assert_eq!(
        serde_json::to_string(&event(EventKind::Restart, None)).unwrap(),
        r#"{"timestamp":1.5,"event":"restart"}"#
    );
}

/// The JSON that turns had before these figures shared a type with those of one model answer.
#[test]
fn model_usage_json_is_stable() {
    let owner = ConversationId::from("a");
    let all = r#""answers":2,"input":200,"output":20,"cached":120,"cache_written":7,"reasoning":3,"estimated":true,"cost":0.25"#;
    let usage = Usage {
        input: 200,
        output: 20,
        cached: 120,
        cache_written: 7,
        reasoning: 3,
        estimated: true,
        cost: Some(0.25),
    };
    let few = r#""answers":1,"input":5,"output":6"#;
    let less = ModelUsage::single(Usage { input: 5, output: 6, ..Usage::default() });
    for (figures, used) in [(all, ModelUsage { answers: 2, usage }), (few, less)] {
        let text = format!(r#"{{"timestamp":1.5,"event":"models_used",{figures},"metadata":{{"active_flow":"f"}}}}"#);
        let event = Event::from_json(&text).unwrap();
        assert_eq!(event.kind, EventKind::ModelsUsed(used), "{text}");
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
        assert_eq!(serde_json::to_string(&event).unwrap(), text);

        let mut snapshot = serde_json::to_value(Conversation::new(owner.clone())).unwrap();
        snapshot["models"] = serde_json::from_str(&format!("{{{figures}}}")).unwrap();
        let read: Conversation = serde_json::from_str(&snapshot.to_string()).unwrap();
        assert_eq!(read.models, used);
        assert_eq!(serde_json::to_value(&read).unwrap(), snapshot);
    }
}
