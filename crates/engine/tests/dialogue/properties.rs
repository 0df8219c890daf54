//! Property tests with random projects and conversations: nothing panics, every turn ends, the events determine the
//! conversation, the same inputs give the same bytes, and every flow ends.

use std::{fmt::Write as _, sync::Arc};

use proptest::{prelude::*, strategy::ValueTree as _};
use segue_engine::{
    conversation::{
        ActionOutcome, AgentOutcome, AgentStatus, BotMessage, Command, Conversation, Event, EventKind, FilledBy,
        FrameKind, PatternFrame, Position, Reply, SearchOutcome, ToolResult,
    },
    dialogue::{InputKind, Next},
    ids::{ActionName, ConversationId, SlotName},
    project::Project,
    time::Timestamp,
};
use serde_json::{Map, Value as Json, json};

use crate::{
    driver::{Driver, command},
    project,
};

const DOMAIN: &str = r#"
version: "3.1"
intents: [go]
slots:
  a: { type: text }
  b: { type: float }
  c: { type: bool }
  d: { type: categorical, values: [Red, Blue] }
  e: { type: text, validation: { rejections: [{ if: slots.e is "bad", utter: utter_no }] } }
  f: { type: any, mappings: [{ type: controlled }] }
actions: [action_one, validate_b]
responses:
  utter_ask_a: [{ text: "a? {b}" }]
  utter_ask_b: [{ text: "b?" }]
  utter_ask_c: [{ text: "c?", buttons: [{ title: "On", payload: "/SetSlots(c=true)" }] }]
  utter_ask_d: [{ text: "d?" }, { text: "d, please?" }, { text: "D?", condition: slots.c }]
  utter_ask_e: [{ text: "e?" }]
  utter_no: [{ text: "no {nothing}" }]
  utter_say: [{ text: "say {a}" }, { text: "SAY" }]
"#;
const AGENTS: &str =
    "agent:\n  name: helper\n  protocol: RASA\n  description: helps\nconnections:\n  mcp_servers:\n    - name: shop\n";
const ENDPOINTS: &str = "mcp_servers:\n  - name: shop\n    url: http://localhost:1/mcp\n    type: http\n";

/// The steps of generated flows.
const STEPS: [&str; 14] = [
    "collect: a",
    "collect: b\n        rejections:\n          - if: slots.b > 100\n            utter: utter_no",
    "collect: c\n        ask_before_filling: true",
    "collect: d\n        reset_after_flow_ends: false",
    "collect: e",
    "collect: a\n        force_slot_filling: true",
    "action: utter_say",
    "action: action_one",
    "set_slots:\n          - a: x\n          - f: 1",
    "noop: true",
    "call: helper",
    "call: helper\n        exit_if:\n          - slots.b > 1",
    "call: buy\n        mcp_server: shop\n        mapping:\n          input:\n            - { param: a, slot: a }\n          output:\n            - { slot: f, value: result.structuredContent.f }",
    "call: f4",
];

#[derive(Clone, Debug)]
struct Plan {
    steps: Vec<usize>,
    /// 0: the flow ends, 1: it branches, 2: it loops, 3: it links.
    end: u8,
    guard: bool,
}

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let plan = (prop::collection::vec(0..STEPS.len(), 1..5), 0u8..8, prop::bool::weighted(0.15))
        .prop_map(|(steps, end, guard)| Plan { steps, end, guard });
    prop::collection::vec(plan, 5)
}

fn project_of(plans: &[Plan]) -> Arc<Project> {
    let mut flows = String::from("flows:\n");
    for (at, plan) in plans.iter().enumerate() {
        let trigger = if at == 0 { "    nlu_trigger:\n      - intent: go\n" } else { "" };
        let guard = if plan.guard { "    if: slots.c\n" } else { "" };
        write!(flows, "  f{at}:\n    name: flow {at}\n    description: flow {at}\n{guard}{trigger}    steps:\n")
            .unwrap();
        let last = plan.steps.len() - 1;
        for (number, step) in plan.steps.iter().enumerate() {
            // Only f4 is called, and it calls no flow, so that calls end.
            let step = if at == 4 && *step == 13 { "noop: true" } else { STEPS[*step] };
            let next = match (number == last, plan.end) {
                (true, 1) => {
                    "        next:\n          - if: slots.c\n            then:\n              - action: utter_say\n                next: END\n          - else: END\n"
                        .to_owned()
                }
                (true, 2) => format!("        next: s{at}_0\n"),
                (true, 3) if at < 4 => format!("        next: s{at}_link\n"),
                (false, _) => format!("        next: s{at}_{}\n", number + 1),
                _ => "        next: END\n".to_owned(),
            };
            write!(flows, "      - id: s{at}_{number}\n        {step}\n{next}").unwrap();
        }
        if plan.end == 3 && at < 4 {
            write!(flows, "      - id: s{at}_link\n        link: f{}\n", (at + 1) % 4).unwrap();
        }
    }
    project::of_parts(DOMAIN, &flows, ENDPOINTS, AGENTS)
}

/// A generated turn.
#[derive(Clone, Debug)]
struct Move {
    text: &'static str,
    commands: Vec<&'static str>,
    /// Determines the outcomes of effects, one after the other.
    luck: Vec<u8>,
    minutes: u8,
}

const TEXTS: [&str; 16] = [
    "hello",
    "yes",
    "no",
    "42",
    "red",
    "on",
    "",
    "/go",
    "/restart",
    "/session_start",
    "/silence_timeout",
    "/nothing",
    "/SetSlots(a=1, b=2)",
    "/SetSlots(zz=1)",
    "none",
    "flow 1",
];
const COMMANDS: [&str; 30] = [
    "start flow f0",
    "start flow f1",
    "start flow f2",
    "start flow f3",
    "start flow f4",
    "start flow nowhere",
    "set slot a x",
    "set slot a y",
    "set slot a null",
    "set slot b 5",
    "set slot b 500",
    "set slot b many",
    "set slot c true",
    "set slot c false",
    "set slot d blue",
    "set slot d pink",
    "set slot e bad",
    "set slot e good",
    "set slot f 1",
    "set slot zz 1",
    "set slot continue_interrupted_flow_confirmation true",
    "set slot interrupted_flow_to_continue flow 1",
    "cancel flow",
    "clarify f0 f1",
    "continue agent",
    "restart agent helper",
    "search",
    "chitchat",
    "repeat",
    "cannot handle x",
];

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let command =
        prop_oneof![1 => prop::sample::select(COMMANDS[..4].to_vec()), 2 => prop::sample::select(COMMANDS.to_vec())];
    let one = (
        prop_oneof![4 => Just("hello"), 1 => prop::sample::select(TEXTS.to_vec())],
        prop::collection::vec(command, 0..4),
        prop::collection::vec(any::<u8>(), 1..6),
        prop_oneof![20 => Just(0u8), 1 => Just(90u8)],
    )
        .prop_map(|(text, commands, luck, minutes)| Move { text, commands, luck, minutes });
    prop::collection::vec(one, 1..16)
}

/// An answer to the open question, for cooperative users.
fn answer(driver: &Driver) -> Option<(&'static str, &'static str)> {
    let FrameKind::Pattern { context: PatternFrame::CollectInformation { collect, .. } } =
        &driver.conversation.stack.top()?.kind
    else {
        return None;
    };
    Some(match collect.as_str() {
        "a" => ("x", "set slot a x"),
        "b" => ("42", "noop"),
        "c" => ("yes", "noop"),
        "d" => ("red", "noop"),
        "e" => ("good", "set slot e good"),
        "continue_interrupted_flow_confirmation" => ("yes", "noop"),
        _ => ("flow 1", "set slot interrupted_flow_to_continue flow 1"),
    })
}

/// Runs one turn; returns the number of requests of the engine.
fn play(driver: &mut Driver, turn: &Move) -> usize {
    driver.wait(f64::from(turn.minutes));
    let mut luck = turn.luck.iter().copied().cycle();
    let mut asked = 0;
    if turn.luck[0] == 7 {
        // An outcome that is not pending must have no effect.
        driver.input(InputKind::ToolResult(ToolResult::Failed { reason: "late".into() }));
    }
    let obliging = answer(driver).filter(|_| !turn.luck[0].is_multiple_of(3));
    let commands = obliging.map_or(turn.commands.clone(), |(_, command)| vec![command]);
    driver.user(obliging.map_or(turn.text, |(text, _)| text));
    while !matches!(driver.next, Next::Listen | Next::EndSession) {
        asked += 1;
        if asked > 1_000 {
            return asked;
        }
        let luck = luck.next().unwrap();
        if luck == 255 {
            driver.input(InputKind::BudgetExhausted { budget: "steps".into() });
            continue;
        }
        match driver.next.clone() {
            Next::Understand => driver.understood(&commands),
            Next::Act(_) => driver.input(InputKind::ActionOutcome(action_outcome(luck))),
            Next::Tool(_) => driver.input(InputKind::ToolResult(tool_result(luck))),
            Next::Agent(_) => driver.input(InputKind::Agent(agent_outcome(luck))),
            Next::Search(_) => {
                driver.input(InputKind::SearchOutcome(SearchOutcome::NoAnswer { reason: "none".into() }))
            }
            Next::Listen | Next::EndSession => unreachable!(),
        };
        one_stack_event(driver);
    }
    asked
}

fn one_stack_event(driver: &Driver) {
    let earlier = driver.latest().iter().rev().skip(1);
    let recorded = earlier.filter(|event| matches!(event.kind, EventKind::Stack { .. })).count();
    assert_eq!(recorded, 0, "the stack is recorded once, and last");
}

fn event(kind: EventKind) -> Event {
    Event { at: Timestamp::from_micros(5), kind, location: Default::default() }
}

fn slot(name: &str, value: Json) -> Event {
    event(EventKind::Slot { name: SlotName::from(name), value, filled_by: None, reset: false })
}

fn action_outcome(luck: u8) -> ActionOutcome {
    let events = match luck % 16 {
        0 => return ActionOutcome::failed("x"),
        1 => vec![slot("a", json!("z")), slot("nowhere", json!(1))],
        2 => vec![slot("b", Json::Null)],
        3 => vec![event(EventKind::Followup { name: Some(ActionName::from("action_one")) })],
        4 => vec![event(EventKind::Followup { name: Some(ActionName::from("action_listen")) })],
        5 => vec![event(EventKind::Restart)],
        6 => vec![event(EventKind::SessionStarted)],
        7 => vec![event(EventKind::ResetSlots)],
        8 => vec![event(EventKind::Stack { frames: Vec::new().into(), next_frame: 0, pending: None })],
        9 if luck > 200 => vec![event(EventKind::SessionEnded { reason: None })],
        _ => vec![event(EventKind::bot(BotMessage { reply: Reply::text("done"), ..BotMessage::default() }))],
    };
    ActionOutcome::Done { events }
}

fn tool_result(luck: u8) -> ToolResult {
    match luck % 7 {
        0 => ToolResult::Failed { reason: "x".into() },
        1 => ToolResult::Unknown { reason: "x".into() },
        2 => ToolResult::done(json!({"isError": true})),
        3 => ToolResult::done(json!(null)),
        4 => ToolResult::NeedsInput { reason: "x".into(), slots: vec!["b".into(), "d".into()] },
        5 => ToolResult::NeedsInput { reason: "x".into(), slots: vec!["f".into()] },
        _ => ToolResult::done(json!({"structuredContent": {"f": [1, {"x": null}]}})),
    }
}

fn agent_outcome(luck: u8) -> AgentOutcome {
    let status = match luck % 8 {
        0 => AgentStatus::Failed { code: "A1".into(), reason: "x".into() },
        1 => AgentStatus::Cancelled { reason: "x".into() },
        2 => AgentStatus::Yielded,
        3 | 4 => AgentStatus::Finished,
        _ => AgentStatus::AwaitingUser,
    };
    let events =
        if luck.is_multiple_of(3) { vec![slot("b", json!("3")), slot("nowhere", json!(3))] } else { Vec::new() };
    AgentOutcome { status, events, data: Json::Null, metadata: Map::new() }
}

fn at_rest(driver: &Driver) {
    for frame in driver.conversation.stack.frames() {
        assert_ne!(frame.at, Position::End, "an ended frame stays on the stack: {:?}", driver.stack());
    }
    assert!(driver.conversation.turn.effects <= 260, "a turn has a limited number of effects");
}

/// Few cases by default; `PROPTEST_CASES` sets another number.
fn sampled() -> ProptestConfig {
    let all = ProptestConfig::default();
    let cases = if all.cases == 256 { 64 } else { all.cases };
    ProptestConfig { cases, failure_persistence: None, ..all }
}

proptest! {
    #![proptest_config(sampled())]

    #[test]
    fn random_conversations_replay_and_end(plans in plans(), turns in moves()) {
        let project = project_of(&plans);
        let mut driver = Driver::new(project.clone());
        for turn in &turns {
            let asked = play(&mut driver, turn);
            prop_assert!(asked <= 600, "the turn does not end: {turn:?}");
            at_rest(&driver);
        }
        // The events determine the conversation, also after serialisation.
        let text = serde_json::to_string(&driver.all).unwrap();
        let read: Vec<Event> = serde_json::from_str(&text).unwrap();
        let folded = Conversation::fold(ConversationId::from("c"), &read);
        prop_assert_eq!(&folded, &driver.conversation);
        // The same inputs give the same bytes.
        let mut again = Driver::new(project);
        for turn in &turns {
            play(&mut again, turn);
        }
        prop_assert_eq!(text, serde_json::to_string(&again.all).unwrap());
        // Cancelling often enough ends every flow.
        let stop = Move { text: "stop it", commands: vec!["cancel flow", "set slot a q"], luck: vec![9], minutes: 0 };
        let most = 2 * driver.conversation.stack.frames().len() + 4;
        for _ in 0..most {
            play(&mut driver, &stop);
        }
        prop_assert!(driver.conversation.stack.is_empty(), "left behind: {:?}", driver.stack());
    }
}

#[test]
fn random_conversations_reach_all_features() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..150 {
        let (plans, turns) = (plans(), moves()).new_tree(&mut runner).unwrap().current();
        let mut driver = Driver::new(project_of(&plans));
        for turn in &turns {
            play(&mut driver, turn);
        }
        for event in &driver.all {
            let json = serde_json::to_value(event).unwrap();
            let flow = json["flow_id"].as_str().filter(|flow| flow.starts_with("pattern_")).unwrap_or_default();
            seen.insert(format!("{} {flow}", json["event"].as_str().unwrap()));
        }
    }
    for wanted in [
        "flow_interrupted ",
        "flow_resumed ",
        "flow_cancelled ",
        "agent_interrupted ",
        "agent_resumed ",
        "agent_cancelled ",
        "agent_completed ",
        "tool_executed ",
        "restart ",
        "session_ended ",
        "flow_completed pattern_correction",
        "flow_completed pattern_validate_slot",
        "flow_completed pattern_clarification",
        "flow_completed pattern_continue_interrupted",
        "flow_completed pattern_cancel_flow",
        "flow_completed pattern_internal_error",
    ] {
        assert!(seen.contains(wanted), "no random conversation reaches `{wanted}`: {seen:#?}");
    }
}

#[test]
fn response_variation_depends_on_the_seed() {
    let plans: Vec<Plan> = (0..5).map(|_| Plan { steps: vec![6], end: 0, guard: false }).collect();
    let project = project_of(&plans);
    let mut texts = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let mut driver = Driver::new(project.clone());
        driver.seed = seed;
        driver.user("hello");
        driver.input(InputKind::Commands(vec![command("start flow f1")]));
        texts.insert(driver.texts()[0].clone());
    }
    assert_eq!(texts.into_iter().collect::<Vec<_>>(), ["SAY", "say None"]);
}

#[test]
fn engine_only_commands_are_refused() {
    let plans: Vec<Plan> = (0..5).map(|_| Plan { steps: vec![0], end: 0, guard: false }).collect();
    let mut driver = Driver::new(project_of(&plans));
    driver.user("hello");
    driver.input(InputKind::Commands(vec![
        Command::CorrectSlots { corrected_slots: vec![(SlotName::from("a"), json!("x"))], extractor: FilledBy::Llm },
        Command::CodeChange,
        Command::StartPattern { flow: "pattern_nowhere".into() },
    ]));
    assert_eq!(driver.said(), ["utter_ask_rephrase"]);
    assert!(driver.conversation.set_value("a").is_none());
}

#[test]
fn changed_flow_ends_and_user_is_notified() {
    let collect = |step: usize| (0..5).map(|_| Plan { steps: vec![step, 6], end: 0, guard: false }).collect::<Vec<_>>();
    let mut driver = Driver::new(project_of(&collect(0)));
    driver.user("hello");
    driver.understood(&["start flow f1"]);
    assert_eq!(driver.said(), ["utter_ask_a"]);
    driver.project = project_of(&collect(1));
    driver.user("x");
    driver.understood(&["set slot a x"]);
    assert_eq!(driver.said(), ["utter_inform_code_change", "utter_can_do_something_else"]);
    assert!(driver.conversation.stack.is_empty());
}

#[test]
fn removed_step_does_not_break_the_conversation() {
    // The outcome arrives in a project whose flow has been changed.
    let of = |step: usize| (0..5).map(|_| Plan { steps: vec![step, 6], end: 0, guard: false }).collect::<Vec<_>>();
    let mut driver = Driver::new(project_of(&of(7)));
    driver.user("hello");
    driver.understood(&["start flow f1"]);
    assert!(matches!(driver.next, Next::Act(_)));
    driver.project = project::of_parts(
        DOMAIN,
        "flows:\n  f9:\n    description: other\n    steps:\n      - action: utter_say\n",
        ENDPOINTS,
        AGENTS,
    );
    driver.input(InputKind::ActionOutcome(ActionOutcome::Done { events: Vec::new() }));
    assert_eq!(driver.next, Next::Listen);
    driver.user("hello");
    driver.understood(&["start flow f9"]);
    assert_eq!(driver.said(), ["utter_inform_code_change", "utter_can_do_something_else"]);
    driver.user("hello");
    driver.understood(&["start flow f9"]);
    assert_eq!(driver.said().len(), 2);
    assert!(driver.conversation.stack.is_empty());
}

#[test]
fn interrupting_message_finds_agent_waiting_and_tool_failed() {
    let of = |step: usize| (0..5).map(|_| Plan { steps: vec![step, 6], end: 0, guard: false }).collect::<Vec<_>>();
    let mut driver = Driver::new(project_of(&of(10)));
    driver.user("hello");
    driver.understood(&["start flow f1"]);
    assert!(matches!(driver.next, Next::Agent(_)));
    driver.user("wait, rather this");
    driver.understood(&["continue agent"]);
    let Next::Agent(call) = &driver.next else { panic!("{:?}", driver.next) };
    assert_eq!(&*call.user_message, "wait, rather this");
    driver.user("and this");
    driver.understood(&[]);
    assert!(matches!(driver.next, Next::Agent(_)));
    driver.input(InputKind::Agent(AgentOutcome {
        status: AgentStatus::Finished,
        events: Vec::new(),
        data: Json::Null,
        metadata: Map::new(),
    }));
    assert_eq!(driver.said(), ["utter_say", "utter_can_do_something_else"]);

    let mut driver = Driver::new(project_of(&of(12)));
    driver.user("hello");
    driver.understood(&["start flow f1"]);
    assert!(matches!(driver.next, Next::Tool(_)));
    driver.user("hm");
    driver.understood(&["chitchat"]);
    assert_eq!(driver.said(), ["utter_cannot_handle", "utter_internal_error_rasa"]);
    assert!(driver.conversation.stack.is_empty());
}
