//! Tests of state between turns: what a turn uses from the previous one and what it leaves behind.

use std::sync::Arc;

use segue_engine::{
    conversation::{
        ActionOutcome, AgentOutcome, AgentStatus, BotMessage, Button, Conversation, Event, EventKind, FilledBy,
        FlowLocation, Reply, UserMessage,
    },
    dialogue::{InputKind, Next},
    ids::ConversationId,
    project::Project,
    time::Timestamp,
};
use serde_json::{Map, Value as Json, json};

use crate::{driver::Driver, limits::apply_all, project};

const CONFIG: &str = "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\nlanguage: de\n";

fn shop(domain: &str, flows: &str) -> Arc<Project> {
    let agent = "agent: {name: helper, protocol: RASA, description: helps}\nconnections: {mcp_servers: [{name: s}]}\n";
    project::of_files([
        ("config.yml", CONFIG),
        ("endpoints.yml", "mcp_servers: [{name: s, url: http://localhost:1/mcp, type: http}]\n"),
        ("domain.yml", domain),
        ("agent_helper.yml", agent),
        ("flows.yml", flows),
    ])
}

const SIZE: &str = r#"
slots:
  size: {type: text}
  name: {type: text}
responses:
  utter_ask_size:
    - {text: "Welche Größe?", channel: slack, buttons: [{title: Standard, payload: "/SetSlots(size=large)"}]}
    - text: "Welche Größe?"
      buttons:
        - {title: Standard, payload: "/SetSlots(size=small)"}
        - {title: Ändern, payload: "/SetSlots(size=other)"}
  utter_ask_name: [{text: "Wer?"}]
  utter_hello:
    - text: Hallo
      image: "https://example.org/a.png"
      buttons: [{title: Mehr, payload: "/SetSlots(name=mehr)"}]
"#;
const SIZES: &str = "
flows:
  size:
    name: size
    description: asks for a size
    steps:
      - collect: size
      - collect: name
  hello:
    name: hello
    description: says hello
    run_pattern_completed: false
    steps:
      - action: utter_hello
";

#[test]
fn typed_button_title_sends_its_payload() {
    for (text, size) in [("Standard", "small"), ("standard", "small"), ("ändern", "other"), ("ÄNDERN", "other")] {
        let mut driver = Driver::new(shop(SIZE, SIZES));
        driver.user("size");
        driver.understood(&["start flow size"]);
        driver.user(text);
        assert_eq!(driver.next, Next::Listen, "no model is asked about `{text}`");
        assert_eq!(driver.conversation.set_value("size"), Some(&json!(size)), "{text}");
    }
}

#[test]
fn button_title_not_shown_is_ignored() {
    let mut driver = Driver::new(shop(SIZE, SIZES));
    driver.user("size");
    driver.understood(&["start flow size"]);
    driver.user("Mehr");
    assert_eq!(driver.next, Next::Understand);
}

#[test]
fn repeated_replies_are_complete() {
    let mut driver = Driver::new(shop(SIZE, SIZES));
    driver.user("hello");
    driver.understood(&["start flow hello"]);
    let first: Vec<Reply> = replies(&driver);
    driver.user("what?");
    driver.understood(&["repeat"]);
    assert_eq!(replies(&driver), first);
    assert_eq!(first[0].buttons.len(), 1);
    assert!(first[0].image.is_some());
}

#[test]
fn number_of_repeated_replies_is_bounded() {
    let say = |n: usize| EventKind::bot(BotMessage { reply: Reply::text(n.to_string()), ..BotMessage::default() });
    let most = segue_engine::limits::RECENT_REPLIES;
    let mut conversation = Conversation::new(ConversationId::from("c"));
    apply_all(&mut conversation, (0..most + 4).map(say));
    apply_all(&mut conversation, [user("again")]);
    let kept = conversation.recent_replies.before_message();
    assert_eq!((kept.len(), kept[0].text.as_deref()), (most, Some("4")));
}

fn replies(driver: &Driver) -> Vec<Reply> {
    let reply = |event: &Event| match &event.kind {
        EventKind::Bot(bot) => Some(bot.reply.clone()),
        _ => None,
    };
    driver.events.iter().filter_map(reply).collect()
}

#[test]
fn correction_records_the_source() {
    for (text, commands, by) in
        [("/SetSlots(size=large)", vec![], FilledBy::Payload), ("large", vec!["set slot size large"], FilledBy::Llm)]
    {
        let mut driver = Driver::new(shop(SIZE, SIZES));
        driver.user("size");
        driver.understood(&["start flow size", "set slot size small"]);
        driver.user(text);
        if driver.next == Next::Understand {
            driver.understood(&commands);
        }
        let filled = driver.events.iter().find_map(|event| match &event.kind {
            EventKind::Slot { name, value, filled_by, .. } if *name == *"size" && *value == json!("large") => {
                *filled_by
            }
            _ => None,
        });
        assert_eq!(filled, Some(by), "{text}");
    }
}

fn user(text: &str) -> EventKind {
    let (text, message_id, input_channel) = (text.into(), "m".into(), "rest".into());
    EventKind::User(UserMessage {
        via: "".into(),
        holds_writes: false,
        before_question: false,
        text,
        message_id,
        input_channel,
        metadata: Map::new(),
    })
}

/// The events of an agent run.
fn run() -> Vec<EventKind> {
    let (flow_id, agent_id) = ("f".into(), "helper".into());
    let bot = BotMessage {
        reply: Reply {
            buttons: vec![Button { title: "A".into(), payload: "a".into(), extra: Map::new() }],
            ..Reply::text("said")
        },
        agent: Some("helper".into()),
        ..BotMessage::default()
    };
    vec![
        EventKind::AgentStarted { flow_id, agent_id, context_id: None, restarted: false },
        EventKind::bot(bot),
        EventKind::AgentExchanges {
            agent_id: "helper".into(),
            exchanges: Arc::new(vec![json!({"role": "assistant"})]),
        },
        EventKind::Reported {
            by: "action_x".into(),
            reported: Map::from_iter([("event".to_owned(), json!("user")), ("text".to_owned(), json!("x"))]),
        },
        EventKind::AgentCompleted {
            flow_id: "f".into(),
            agent_id: "helper".into(),
            status: "completed".to_owned(),
            context_id: None,
        },
    ]
}

#[test]
fn rewind_removes_the_message_from_the_history() {
    let mut conversation = Conversation::new(ConversationId::from("c"));
    apply_all(
        &mut conversation,
        [user("one"), EventKind::bot(BotMessage { reply: Reply::text("first"), ..BotMessage::default() })],
    );
    let before = conversation.history.clone();
    apply_all(&mut conversation, [user("two")]);
    apply_all(&mut conversation, run());
    apply_all(&mut conversation, [EventKind::Rewind]);
    assert_eq!(conversation.history, before);
    assert_eq!(conversation.latest_message.as_ref().map(|message| &*message.text), Some("one"));
    apply_all(&mut conversation, [user("again")]);
    assert_eq!(
        conversation.recent_replies.before_message()[0].text.as_deref(),
        Some("first"),
        "what was said to the message before"
    );
}

#[test]
fn undo_removes_the_action_from_the_history() {
    let mut conversation = Conversation::new(ConversationId::from("c"));
    apply_all(&mut conversation, [user("one"), EventKind::Action { name: "action_a".into() }]);
    let before = conversation.history.clone();
    apply_all(&mut conversation, run());
    apply_all(&mut conversation, [EventKind::Undo]);
    assert_eq!(conversation.history, before);
}

#[test]
fn undo_log_is_empty_while_an_agent_waits() {
    let flows = "flows:\n  f:\n    description: helps\n    steps:\n      - call: helper\n";
    let mut driver = Driver::new(shop(SIZE, flows));
    driver.user("help");
    driver.understood(&["start flow f"]);
    let outcome =
        AgentOutcome { status: AgentStatus::AwaitingUser, events: Vec::new(), data: Json::Null, metadata: Map::new() };
    driver.input(InputKind::Agent(outcome));
    assert_eq!(driver.next, Next::Listen);
    assert!(driver.conversation.undo.is_empty(), "{:?}", driver.conversation.undo);
}

#[test]
fn session_start_during_a_turn_skips_no_action() {
    let domain = "
slots:
  a: {type: text, mappings: [{type: controlled, run_action_every_turn: action_a}]}
  b: {type: text, mappings: [{type: controlled, run_action_every_turn: action_b}]}
actions: [action_a, action_b, action_session_start]
";
    for before in [0, 1] {
        let mut driver = Driver::new(shop(domain, SIZES.split("  size:").next().unwrap()));
        let mut ran = Vec::new();
        for turn in 0..=before {
            ran.clear();
            driver.user("hello");
            while let Next::Act(call) = driver.next.clone() {
                let begins = turn == before && call.name == *"action_a";
                let kinds = if begins { vec![EventKind::SessionStarted] } else { Vec::new() };
                let event = |kind| Event { at: Timestamp::from_micros(1), kind, location: FlowLocation::default() };
                ran.push(call.name.to_string());
                driver.input(InputKind::ActionOutcome(ActionOutcome::Done {
                    events: kinds.into_iter().map(event).collect(),
                }));
            }
            driver.understood(&["chitchat"]);
        }
        let greets: &[&str] = if before == 0 { &["action_session_start"] } else { &[] };
        assert_eq!(ran, [greets, &["action_a", "action_b"]].concat());
    }
}

#[test]
fn agent_not_completed_in_a_flow_is_not_restarted() {
    let flow = |id: &str| {
        format!(
            "  {id}:\n    name: {id}\n    description: helps with {id}\n    steps:\n      - call: helper\n        exit_if: [slots.name is not null]\n"
        )
    };
    let mut driver = Driver::new(shop(SIZE, &format!("flows:\n{}{}", flow("one"), flow("two"))));
    let outcome = |status| AgentOutcome { status, events: Vec::new(), data: Json::Null, metadata: Map::new() };
    let mut starts = |flow: &str| {
        driver.user("help");
        driver.understood(&[&format!("start flow {flow}")]);
        let Next::Agent(call) = driver.next.clone() else { panic!("no agent is called, but {:?}", driver.next) };
        let status = if flow == "one" { AgentStatus::Finished } else { AgentStatus::AwaitingUser };
        driver.input(InputKind::Agent(outcome(status)));
        if flow == "two" {
            driver.user("stop");
            driver.understood(&["cancel flow"]);
        }
        call.restarted
    };
    assert_eq!(["one", "two", "two", "one"].map(&mut starts), [false, false, false, true]);
}
