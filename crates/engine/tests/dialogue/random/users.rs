//! Random users: they see the state and choose, mostly answers, and everything else that users do.

use segue_engine::{
    conversation::{AgentState, Frame, FrameKind, PatternFrame},
    limits,
};
use serde_json::{Map, Value as Json, json};

use super::{
    conversation::UserTurn,
    plan::{Plan, SLOTS, Scenario},
    project_files::id,
    rng::Rng,
};
use crate::driver::Driver;

/// What a user does in one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UserBehaviour {
    Answer,
    WrongAnswer,
    OverAnswer,
    AnswerAndCorrect,
    Correct,
    CorrectToNothing,
    Cancel,
    CancelAndStart,
    Start,
    StartAndFill,
    StartTwo,
    DigressAndAnswer,
    DigressAndCorrect,
    Resume,
    Clarify,
    ClarifyNothing,
    Words,
    Silence,
    Button,
    SetSlots,
    Intent,
    Restart,
    SessionStart,
    Expiry,
    Nonsense,
    CannotHandle,
    Empty,
    TooLong,
    ContinueAgent,
    RestartAgent,
    Deploy,
    Cut,
    Everything,
    EndSession,
}

use UserBehaviour::*;

const WILD: &[(usize, UserBehaviour)] = &[
    (30, Answer),
    (6, WrongAnswer),
    (6, OverAnswer),
    (5, AnswerAndCorrect),
    (5, Correct),
    (2, CorrectToNothing),
    (5, Cancel),
    (3, CancelAndStart),
    (7, Start),
    (5, StartAndFill),
    (2, StartTwo),
    (2, DigressAndAnswer),
    (2, DigressAndCorrect),
    (4, Resume),
    (2, Clarify),
    (1, ClarifyNothing),
    (5, Words),
    (1, Silence),
    (3, Button),
    (2, SetSlots),
    (3, Intent),
    (1, Restart),
    (1, SessionStart),
    (1, Expiry),
    (3, Nonsense),
    (2, CannotHandle),
    (1, Empty),
    (1, TooLong),
    (4, ContinueAgent),
    (2, RestartAgent),
    (1, Deploy),
    (1, Cut),
    (4, Everything),
    (1, EndSession),
];

const AGENTS: &[(usize, UserBehaviour)] = &[
    (20, Answer),
    (2, AnswerAndCorrect),
    (6, Cancel),
    (3, CancelAndStart),
    (14, Start),
    (3, StartTwo),
    (10, Resume),
    (2, Clarify),
    (4, Words),
    (2, CannotHandle),
    (16, ContinueAgent),
    (10, RestartAgent),
    (1, Restart),
    (1, Expiry),
    (1, Deploy),
    (3, Cut),
    (3, Everything),
];

/// The next turn of a random user.
pub(crate) fn next_turn(rng: &mut Rng, scenario: Scenario, driver: &Driver, plan: &Plan) -> UserTurn {
    let behaviours = if scenario == Scenario::Agents { AGENTS } else { WILD };
    let conversation = &driver.conversation;
    if conversation.paused {
        return UserTurn::text(*rng.of(&["/restart", "hello?"]), Vec::new());
    }
    let state = VisibleState::of(driver, plan);
    if conversation.stack.is_empty() && rng.percent(60) {
        let behaviour = *rng.of(&[Start, StartAndFill, StartAndFill, StartTwo, Intent]);
        return act(rng, &state, behaviour);
    }
    let behaviour = rng.weighed(behaviours);
    act(rng, &state, behaviour)
}

/// What users know of the state.
struct VisibleState<'a> {
    driver: &'a Driver,
    plan: &'a Plan,
    asked: Option<String>,
    /// Whether an agent waits for the user.
    agent: bool,
    /// Flows on the stack.
    under_way: Vec<String>,
    /// Slots with a value.
    filled: Vec<&'static str>,
}

impl<'a> VisibleState<'a> {
    fn of(driver: &'a Driver, plan: &'a Plan) -> Self {
        let frames = driver.conversation.stack.frames();
        let top = frames.last().map(|frame| &frame.kind);
        let asked = match top {
            Some(FrameKind::Pattern { context: PatternFrame::CollectInformation { collect, .. } }) => Some(collect),
            Some(FrameKind::Pattern { context: PatternFrame::ValidateSlot { validate, .. } }) => Some(validate),
            _ => None,
        };
        let walks = |frame: &&Frame| matches!(frame.kind, FrameKind::Flow { .. });
        let is_filled = |slot: &str| driver.conversation.set_value(slot).is_some_and(|value| !value.is_null());
        Self {
            driver,
            plan,
            asked: asked.map(ToString::to_string),
            agent: matches!(top, Some(FrameKind::Agent(agent)) if agent.state == AgentState::WaitingForInput),
            under_way: frames.iter().filter(walks).map(|frame| frame.flow_id.to_string()).collect(),
            filled: SLOTS.iter().map(|(slot, ..)| *slot).filter(|slot| is_filled(slot)).collect(),
        }
    }

    fn any_flow(&self, rng: &mut Rng) -> String {
        id(rng.of(&self.plan.flows).number)
    }
}

fn set(slot: &str, value: &str) -> String {
    format!("set slot {slot} {value}")
}

/// A value for a slot: a valid or an invalid one.
fn value(rng: &mut Rng, slot: &str, good: bool) -> String {
    let known = SLOTS.iter().find(|(name, ..)| *name == slot);
    match (known, slot) {
        (Some((_, taken, refused)), _) => {
            (*rng.of(if good || refused.is_empty() { taken } else { refused })).to_owned()
        }
        (None, "interrupted_flow_to_continue") if good => {
            (*rng.of(&["\"none\"", "\"flow 0\"", "\"flow 1\"", "\"f2\"", "\"flow 3\""])).to_owned()
        }
        (None, "continue_interrupted_flow_confirmation" | "more") if good => {
            (*rng.of(&["true", "true", "false"])).to_owned()
        }
        (None, _) => (*rng.of(&["\"flow 77\"", "\"hm\"", "null"])).to_owned(),
    }
}

/// An answer to the open question, in one of the forms of users and channels.
fn answer(rng: &mut Rng, state: &VisibleState<'_>, good: bool) -> (String, Vec<String>) {
    let Some(slot) = state.asked.as_deref() else {
        return ("go on".to_owned(), if state.agent { vec!["continue agent".to_owned()] } else { Vec::new() });
    };
    let value = value(rng, slot, good);
    let plain = serde_json::from_str::<Json>(&value).unwrap_or_default();
    let text = plain.as_str().map_or_else(|| plain.to_string(), str::to_owned);
    match (slot, rng.below(4)) {
        ("e0", _) if good => (format!("/inform{}", json!({"city": text})), Vec::new()),
        ("k1" | "m0" | "a0", _) if good => (format!("/SetSlots({slot}={text})"), Vec::new()),
        // The plain text: parsed by a shortcut if possible, otherwise by the command generator.
        (_, 0) => (text, vec![set(slot, &value)]),
        (_, 1) => (format!("/SetSlots({slot}={text})"), Vec::new()),
        _ => ("well, that".to_owned(), vec![set(slot, &value)]),
    }
}

/// Sets a few slots that are not being asked for.
fn fills(rng: &mut Rng, good: bool) -> Vec<String> {
    (0..rng.between(1, 3))
        .map(|_| {
            let slot = rng.of(SLOTS).0;
            set(slot, &value(rng, slot, good))
        })
        .collect()
}

/// Corrects a slot that has a value.
fn corrects(rng: &mut Rng, state: &VisibleState<'_>, good: bool) -> String {
    let slot = if state.filled.is_empty() { "t0" } else { *rng.of(&state.filled) };
    set(slot, &value(rng, slot, good))
}

fn start(rng: &mut Rng, state: &VisibleState<'_>) -> String {
    format!("start flow {}", state.any_flow(rng))
}

fn act(rng: &mut Rng, state: &VisibleState<'_>, behaviour: UserBehaviour) -> UserTurn {
    let words = |commands: Vec<String>| UserTurn::text("well", commands);
    match behaviour {
        Answer | WrongAnswer => {
            let (text, commands) = answer(rng, state, behaviour == Answer);
            UserTurn::text(text, commands)
        }
        OverAnswer => words([answered(rng, state)].into_iter().chain(fills(rng, true)).collect()),
        AnswerAndCorrect => {
            let good = rng.percent(75);
            let mut all = vec![answered(rng, state), corrects(rng, state, good)];
            if rng.percent(30) {
                all.push(corrects(rng, state, true));
            }
            shuffled(rng, all)
        }
        Correct => {
            let good = rng.percent(80);
            words(vec![corrects(rng, state, good)])
        }
        CorrectToNothing => {
            let slot = if state.filled.is_empty() { "t0" } else { *rng.of(&state.filled) };
            words(vec![set(slot, "null")])
        }
        Cancel => words(vec!["cancel flow".to_owned()]),
        CancelAndStart => {
            let all = vec!["cancel flow".to_owned(), start(rng, state)];
            shuffled(rng, all)
        }
        Start => words(vec![start(rng, state)]),
        StartAndFill => words([start(rng, state)].into_iter().chain(fills(rng, chance_good(state))).collect()),
        StartTwo => words(vec![start(rng, state), start(rng, state)]),
        DigressAndAnswer => {
            let all = vec![start(rng, state), answered(rng, state)];
            shuffled(rng, all)
        }
        DigressAndCorrect => {
            let good = rng.percent(70);
            let all = vec![start(rng, state), corrects(rng, state, good)];
            shuffled(rng, all)
        }
        Resume => {
            let flow = if state.under_way.is_empty() { "f0".to_owned() } else { rng.of(&state.under_way).clone() };
            words(vec![format!("start flow {flow}")])
        }
        Clarify => words(vec![format!("clarify {} {}", state.any_flow(rng), state.any_flow(rng))]),
        ClarifyNothing => words(vec!["clarify".to_owned()]),
        Words => words(vec![(*rng.of(&["chitchat", "search", "repeat", "skip", "handoff"])).to_owned()]),
        CannotHandle => words(vec!["cannot handle x".to_owned()]),
        ContinueAgent => words(if rng.percent(70) { vec!["continue agent".to_owned()] } else { Vec::new() }),
        RestartAgent => words(vec![format!("restart agent {}", rng.of(&["chooser", "helper", "researcher"]))]),
        Everything => {
            let all = (0..rng.between(2, 5)).map(|_| anything(rng, state)).collect();
            shuffled(rng, all)
        }
        _ => unusual(rng, state, behaviour),
    }
}

fn chance_good(state: &VisibleState<'_>) -> bool {
    // A user who starts a flow mostly gives valid values.
    state.under_way.len() < 3
}

fn answered(rng: &mut Rng, state: &VisibleState<'_>) -> String {
    match state.asked.as_deref() {
        Some(slot) => {
            let good = rng.percent(75);
            set(slot, &value(rng, slot, good))
        }
        None if state.agent => "continue agent".to_owned(),
        None => "noop".to_owned(),
    }
}

fn shuffled(rng: &mut Rng, mut all: Vec<String>) -> UserTurn {
    for at in (1..all.len()).rev() {
        all.swap(at, rng.below(at + 1));
    }
    UserTurn::text("well", all)
}

fn anything(rng: &mut Rng, state: &VisibleState<'_>) -> String {
    match rng.below(14) {
        0 | 1 => start(rng, state),
        2..=4 => answered(rng, state),
        5..=7 => {
            let good = rng.percent(60);
            corrects(rng, state, good)
        }
        8 => fills(rng, true).remove(0),
        9 => "cancel flow".to_owned(),
        10 => (*rng.of(&["chitchat", "search", "repeat", "skip", "handoff", "clarify f0 f1"])).to_owned(),
        11 => "continue agent".to_owned(),
        12 => format!("restart agent {}", rng.of(&["chooser", "helper", "researcher"])),
        _ => nonsense(rng),
    }
}

fn nonsense(rng: &mut Rng) -> String {
    (*rng.of(&[
        "start flow nowhere",
        "start flow pattern_restart",
        "set slot zz 1",
        "set slot l0 1",
        "set slot k1 9",
        "clarify nowhere",
        "restart agent unknown",
        "cannot handle",
        "noop",
    ]))
    .to_owned()
}

fn unusual(rng: &mut Rng, state: &VisibleState<'_>, behaviour: UserBehaviour) -> UserTurn {
    match behaviour {
        Silence => UserTurn::text("/silence_timeout", Vec::new()),
        Button => match state.asked.as_deref() {
            Some("b0") => UserTurn::text(*rng.of(&["On", "Go", "yes", "/SetSlots(b0=true)"]), vec!["noop".to_owned()]),
            Some("c0") => UserTurn::text(*rng.of(&["Crimson", "red.", "/SetSlots(c0=Blue)"]), vec!["noop".to_owned()]),
            Some(slot) if slot.starts_with('n') => {
                UserTurn::text(*rng.of(&["5", "-3", "7.25"]), vec!["noop".to_owned()])
            }
            _ => UserTurn::text(*rng.of(&["yes", "no", "On", "5", "none"]), vec!["chitchat".to_owned()]),
        },
        SetSlots => {
            let pair = |rng: &mut Rng| {
                let slot = rng.of(SLOTS).0;
                let good = rng.percent(80);
                let value: Json = serde_json::from_str(&value(rng, slot, good)).unwrap_or_default();
                format!("{slot}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            };
            let pairs: Vec<String> = (0..rng.between(1, 3)).map(|_| pair(rng)).collect();
            let broken = rng.percent(15);
            UserTurn::text(format!("/SetSlots({}{})", pairs.join(", "), if broken { ", zz=1" } else { "" }), Vec::new())
        }
        Intent => UserTurn::text(
            *rng.of(&["/go", "/inform{\"place\": \"sea\"}", "/inform{\"city\": \"Oslo\"}", "/feel", "/nothing"]),
            Vec::new(),
        ),
        Restart => UserTurn::text("/restart", Vec::new()),
        SessionStart => {
            let metadata = Map::from_iter([("call_id".to_owned(), json!(rng.below(9)))]);
            UserTurn { metadata, ..UserTurn::text("/session_start", Vec::new()) }
        }
        Expiry => {
            let minutes = *rng.of(&[59.0, 61.0, 600.0]);
            UserTurn {
                wait: minutes,
                ..act(rng, state, *[Answer, Start, Words, Correct].get(state.under_way.len() % 4).unwrap_or(&Answer))
            }
        }
        Nonsense => {
            let many = (0..rng.between(1, 2)).map(|_| nonsense(rng)).collect();
            UserTurn::text("well", many)
        }
        Empty => UserTurn::text("  ", Vec::new()),
        TooLong => UserTurn::text("long ".repeat(limits::MESSAGE_CHARACTERS), Vec::new()),
        Deploy => {
            let new_version = Some(super::plan::edited(rng, state.plan));
            let behaviour = *rng.of(&[Answer, Start, ContinueAgent, Cancel, Words]);
            UserTurn { new_version, ..act(rng, state, behaviour) }
        }
        Cut => {
            let interrupt_after = Some(rng.between(1, 3));
            let behaviour = *rng.of(&[Answer, Start, ContinueAgent, StartAndFill]);
            UserTurn { interrupt_after, ..act(rng, state, behaviour) }
        }
        EndSession if state.driver.conversation.session.turns > 3 => UserTurn::text("/session_end", Vec::new()),
        _ => UserTurn::text("hello", vec!["chitchat".to_owned()]),
    }
}
