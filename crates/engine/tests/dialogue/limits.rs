//! Tests that reach the limits of the dialogue: the turn ends and reports the reason.

use std::fmt::Write as _;

use segue_engine::{
    conversation::{ActionOutcome, Conversation, Event, EventKind, FlowLocation, HistoryItem, ToolResult, UserMessage},
    dialogue::{InputKind, Next},
    ids::ConversationId,
    limits,
    time::Timestamp,
};
use serde_json::{Map, json};

use crate::{driver::Driver, project};

const TOO_LONG: &str = "utter_user_input_too_long_error_rasa";
const INTERNAL: &str = "utter_internal_error_rasa";
const FLOWS: &str = "flows: {wave: {description: waves, steps: [{id: a, noop: true, next: END}]}}";

fn generator(settings: &str) -> Driver {
    let config = format!(
        "recipe: default.v1\npipeline: [{{name: CompactLLMCommandGenerator{settings}}}]\npolicies: [{{name: FlowPolicy}}]\n"
    );
    Driver::new(project::with_config(&config, FLOWS))
}

#[test]
fn message_longer_than_the_generator_limit_is_rejected() {
    let mut driver = generator("");
    assert_eq!(*driver.user(&"é".repeat(limits::MESSAGE_CHARACTERS)), Next::Understand);
    let mut driver = generator("");
    driver.user(&"é".repeat(limits::MESSAGE_CHARACTERS + 1));
    assert_eq!((driver.said()[0].as_str(), &driver.next), (TOO_LONG, &Next::Listen));
    assert!(driver.texts()[0].contains(&limits::MESSAGE_CHARACTERS.to_string()), "{:?}", driver.texts());
}

#[test]
fn message_longer_than_the_hard_limit_is_rejected() {
    let unlimited = ", user_input: {max_characters: -1}";
    let mut driver = generator(unlimited);
    assert_eq!(*driver.user(&"é".repeat(limits::MESSAGE_TEXT)), Next::Understand);
    let payload = format!("/SetSlots(a={})", "x".repeat(limits::MESSAGE_TEXT));
    for text in ["é".repeat(limits::MESSAGE_TEXT + 1), payload] {
        let mut driver = generator(unlimited);
        driver.user(&text);
        assert_eq!((driver.said()[0].as_str(), &driver.next), (TOO_LONG, &Next::Listen));
        assert!(driver.texts()[0].contains(&limits::MESSAGE_TEXT.to_string()), "{:?}", driver.texts());
    }
}

#[test]
fn turn_with_too_many_actions_ends_with_one_error_response() {
    let mut driver = Driver::new(project::load("bank"));
    driver.user("slow");
    driver.understood(&["start flow slow_loop"]);
    let mut acts = 0;
    while let Next::Act(_) = &driver.next {
        acts += 1;
        assert!(acts <= limits::ENGINE_TURN_EFFECTS + 1, "the turn does not end");
        driver.input(InputKind::ActionOutcome(ActionOutcome::Done { events: Vec::new() }));
    }
    assert_eq!((driver.said(), &driver.next), (vec![INTERNAL.to_owned()], &Next::Listen));
    assert!(acts > limits::ENGINE_TURN_EFFECTS - 10, "{acts}");
}

#[test]
fn too_deeply_nested_calls_end_with_one_error_response() {
    let mut flows = String::from("flows:\n");
    for n in 0..=limits::STACK_FRAMES {
        writeln!(flows, "  f{n}: {{description: calls the next, steps: [{{call: f{}}}]}}", n + 1).unwrap();
    }
    let last = limits::STACK_FRAMES + 1;
    writeln!(flows, "  f{last}: {{description: says, steps: [{{id: a, noop: true, next: END}}]}}").unwrap();
    let config = "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n";
    let mut driver = Driver::new(project::with_config(config, &flows));
    driver.user("go");
    driver.understood(&["start flow f0"]);
    assert_eq!((driver.said()[0].as_str(), &driver.next), (INTERNAL, &Next::Listen));
    let why = serde_json::to_string(&driver.reasons).unwrap();
    assert!(why.contains("the calls between flows are nested too deeply"), "{why}");
    assert!(driver.conversation.stack.frames().len() <= limits::STACK_FRAMES);
}

#[test]
fn cancel_flow_works_with_a_full_stack() {
    let mut flows = String::from("flows:\n");
    for n in 0..limits::STACK_FRAMES {
        writeln!(
            flows,
            "  f{n}: {{name: f{n}, description: asks {n}, steps: [{{collect: a, ask_before_filling: true}}]}}"
        )
        .unwrap();
    }
    let domain = "slots: {a: {type: text}}\nresponses: {utter_ask_a: [{text: A?}]}\n";
    let config = "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n";
    let project = project::of_files([("config.yml", config), ("domain.yml", domain), ("flows.yml", flows.as_str())]);
    let mut driver = Driver::new(project);
    let mut begun = 0;
    for n in 0..limits::STACK_FRAMES {
        driver.user("go");
        driver.understood(&[&format!("start flow f{n}")]);
        begun += usize::from(driver.said() == ["utter_ask_a"]);
    }
    assert_eq!(begun, limits::STACK_FRAMES / 2, "each flow takes two frames");
    assert_eq!(
        driver.said(),
        ["utter_cannot_handle", "utter_ask_a"],
        "another flow does not start, and the user is notified"
    );
    driver.user("stop");
    driver.understood(&["cancel flow"]);
    assert_eq!(driver.said()[0], "utter_flow_cancelled_rasa");
    assert!(driver.conversation.stack.frames().len() <= limits::STACK_FRAMES + limits::STACK_HEADROOM);
}

/// Applies events one after the other.
pub(crate) fn apply_all(conversation: &mut Conversation, kinds: impl IntoIterator<Item = EventKind>) {
    for kind in kinds {
        conversation.apply(&Event { at: Timestamp::default(), kind, location: FlowLocation::default() });
    }
}

#[test]
fn tool_event_summary_is_truncated() {
    let mut driver = Driver::new(project::load("desk"));
    driver.user("book it");
    driver.understood(&["start flow book", "set slot topic teeth"]);
    let result = json!({"content": [], "isError": false, "text": "é".repeat(limits::TOOL_SUMMARY + 100)});
    driver.input(InputKind::ToolResult(ToolResult::done(result)));
    let summary = driver.all.iter().find_map(|event| match &event.kind {
        EventKind::ToolExecuted { summary, .. } => summary.clone(),
        _ => None,
    });
    let summary = summary.unwrap();
    assert_eq!(summary.chars().count(), limits::TOOL_SUMMARY);
    assert!(summary.starts_with("éé") && !summary.ends_with('é'), "the truncation is marked: {summary}");
}

#[test]
fn history_keeps_the_latest_entries() {
    let mut conversation = Conversation::new(ConversationId::from("c"));
    for n in 0..limits::HISTORY_ITEMS + 5 {
        let (text, message_id) = (n.to_string().into(), "m".into());
        let message = UserMessage {
            via: "".into(),
            holds_writes: false,
            before_question: false,
            text,
            message_id,
            input_channel: "rest".into(),
            metadata: Map::new(),
        };
        let (at, place) = (Timestamp::default(), FlowLocation::default());
        conversation.apply(&Event { at, kind: EventKind::User(message), location: place });
    }
    assert_eq!(conversation.history.len(), limits::HISTORY_ITEMS);
    let first = conversation.history.iter().next().unwrap();
    assert!(matches!(first, HistoryItem::User { text, .. } if &**text == "5"), "{first:?}");
}

#[test]
fn number_of_completed_steps_is_bounded() {
    let many = limits::COMPLETED_STEPS + 8;
    let mut flows = String::from("flows:\n  f:\n    description: acts\n    steps:\n      - collect: a\n");
    let mut domain = String::from(
        "slots: {a: {type: text}, b: {type: text}}\nresponses: {utter_ask_a: [{text: A?}], utter_ask_b: [{text: B?}]}\nactions:\n",
    );
    for n in 0..many {
        writeln!(flows, "      - action: action_{n}").unwrap();
        writeln!(domain, "  - action_{n}: {{inputs: []}}").unwrap();
    }
    flows.push_str("      - collect: b\n");
    let endpoints = "mcp_servers: [{name: s, url: http://localhost:1/mcp, type: http}]\n";
    let agent = "agent: {name: helper, protocol: RASA, description: helps}\nconnections: {mcp_servers: [{name: s}]}\n";
    let mut driver = Driver::new(project::of_parts(&domain, &flows, endpoints, agent));
    let acts = |driver: &mut Driver, command: &str| {
        driver.user("go");
        driver.understood(&command.split(", ").collect::<Vec<_>>());
        let mut acts = 0;
        while let Next::Act(_) = &driver.next {
            acts += 1;
            driver.input(InputKind::ActionOutcome(ActionOutcome::Done { events: Vec::new() }));
        }
        assert!(driver.conversation.stack.frames()[0].completed_steps.len() <= limits::COMPLETED_STEPS);
        acts
    };
    assert_eq!(acts(&mut driver, "start flow f, set slot a x"), many);
    assert_eq!(acts(&mut driver, "set slot a y"), 8);
    assert_eq!(acts(&mut driver, "set slot a z"), 8, "the same ones run again");
}

#[test]
fn number_of_undone_slot_changes_is_bounded() {
    let mut conversation = Conversation::new(ConversationId::from("c"));
    let mut apply = |kind| {
        conversation.apply(&Event { at: Timestamp::default(), kind, location: FlowLocation::default() });
    };
    let slot = |name: &str, value: usize| EventKind::Slot {
        name: name.into(),
        value: value.into(),
        filled_by: None,
        reset: false,
    };
    apply(slot("a", 7));
    apply(EventKind::User(UserMessage {
        via: "".into(),
        holds_writes: false,
        before_question: false,
        text: "go".into(),
        message_id: "m".into(),
        input_channel: "rest".into(),
        metadata: Map::new(),
    }));
    (0..limits::UNDO_SLOTS).for_each(|n| apply(slot("a", n)));
    apply(slot("b", 1));
    apply(EventKind::Rewind);
    assert_eq!(conversation.set_value("a"), Some(&json!(7)));
    assert_eq!(conversation.set_value("b"), Some(&json!(1)), "one change more than the limit");
    assert_eq!((conversation.history.len(), &conversation.latest_message), (0, &None));
}
