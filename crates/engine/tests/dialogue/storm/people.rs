//! What people do: they see the state and choose, answers most of the time, and everything else that people do.

use segue_engine::{
    conversation::{AgentState, Frame, FrameKind, PatternFrame},
    limits,
};
use serde_json::{Map, Value as Json, json};

use super::{
    chance::Chance,
    plan::{Plan, SLOTS, Weather},
    story::Said,
    write::id,
};
use crate::driver::Driver;

/// One habit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
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

use Habit::*;

const WILD: &[(usize, Habit)] = &[
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

const AGENTS: &[(usize, Habit)] = &[
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

/// The next thing that somebody says.
pub(crate) fn says(chance: &mut Chance, weather: Weather, driver: &Driver, plan: &Plan) -> Said {
    let habits = if weather == Weather::Agents { AGENTS } else { WILD };
    let conversation = &driver.conversation;
    if conversation.paused {
        return Said::text(*chance.of(&["/restart", "hello?"]), Vec::new());
    }
    let scene = Scene::of(driver, plan);
    if conversation.stack.is_empty() && chance.percent(60) {
        let habit = *chance.of(&[Start, StartAndFill, StartAndFill, StartTwo, Intent]);
        return act(chance, &scene, habit);
    }
    let habit = chance.weighed(habits);
    act(chance, &scene, habit)
}

/// What people know of the state.
struct Scene<'a> {
    driver: &'a Driver,
    plan: &'a Plan,
    asked: Option<String>,
    /// Whether an agent waits.
    agent: bool,
    /// Flows on the stack.
    under_way: Vec<String>,
    /// Slots with a value.
    filled: Vec<&'static str>,
}

impl<'a> Scene<'a> {
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

    fn any_flow(&self, chance: &mut Chance) -> String {
        id(chance.of(&self.plan.flows).number)
    }
}

fn set(slot: &str, value: &str) -> String {
    format!("set slot {slot} {value}")
}

/// A value for a slot: one that is taken, or one that is not.
fn value(chance: &mut Chance, slot: &str, good: bool) -> String {
    let known = SLOTS.iter().find(|(name, ..)| *name == slot);
    match (known, slot) {
        (Some((_, taken, refused)), _) => {
            (*chance.of(if good || refused.is_empty() { taken } else { refused })).to_owned()
        }
        (None, "interrupted_flow_to_continue") if good => {
            (*chance.of(&["\"none\"", "\"flow 0\"", "\"flow 1\"", "\"f2\"", "\"flow 3\""])).to_owned()
        }
        (None, "continue_interrupted_flow_confirmation" | "more") if good => {
            (*chance.of(&["true", "true", "false"])).to_owned()
        }
        (None, _) => (*chance.of(&["\"flow 77\"", "\"hm\"", "null"])).to_owned(),
    }
}

/// An answer to the open question, in one of the forms that people and channels use.
fn answer(chance: &mut Chance, scene: &Scene<'_>, good: bool) -> (String, Vec<String>) {
    let Some(slot) = scene.asked.as_deref() else {
        return ("go on".to_owned(), if scene.agent { vec!["continue agent".to_owned()] } else { Vec::new() });
    };
    let value = value(chance, slot, good);
    let plain = serde_json::from_str::<Json>(&value).unwrap_or_default();
    let text = plain.as_str().map_or_else(|| plain.to_string(), str::to_owned);
    match (slot, chance.below(4)) {
        ("e0", _) if good => (format!("/inform{}", json!({"city": text})), Vec::new()),
        ("k1" | "m0" | "a0", _) if good => (format!("/SetSlots({slot}={text})"), Vec::new()),
        // The bare text: taken by a shortcut where there is one, else the model reads it.
        (_, 0) => (text, vec![set(slot, &value)]),
        (_, 1) => (format!("/SetSlots({slot}={text})"), Vec::new()),
        _ => ("well, that".to_owned(), vec![set(slot, &value)]),
    }
}

/// Fills a few slots that nobody asked for now.
fn fills(chance: &mut Chance, good: bool) -> Vec<String> {
    (0..chance.between(1, 3))
        .map(|_| {
            let slot = chance.of(SLOTS).0;
            set(slot, &value(chance, slot, good))
        })
        .collect()
}

/// Changes a slot that has a value.
fn corrects(chance: &mut Chance, scene: &Scene<'_>, good: bool) -> String {
    let slot = if scene.filled.is_empty() { "t0" } else { *chance.of(&scene.filled) };
    set(slot, &value(chance, slot, good))
}

fn start(chance: &mut Chance, scene: &Scene<'_>) -> String {
    format!("start flow {}", scene.any_flow(chance))
}

fn act(chance: &mut Chance, scene: &Scene<'_>, habit: Habit) -> Said {
    let words = |commands: Vec<String>| Said::text("well", commands);
    match habit {
        Answer | WrongAnswer => {
            let (text, commands) = answer(chance, scene, habit == Answer);
            Said::text(text, commands)
        }
        OverAnswer => words([answered(chance, scene)].into_iter().chain(fills(chance, true)).collect()),
        AnswerAndCorrect => {
            let good = chance.percent(75);
            let mut all = vec![answered(chance, scene), corrects(chance, scene, good)];
            if chance.percent(30) {
                all.push(corrects(chance, scene, true));
            }
            shuffled(chance, all)
        }
        Correct => {
            let good = chance.percent(80);
            words(vec![corrects(chance, scene, good)])
        }
        CorrectToNothing => {
            let slot = if scene.filled.is_empty() { "t0" } else { *chance.of(&scene.filled) };
            words(vec![set(slot, "null")])
        }
        Cancel => words(vec!["cancel flow".to_owned()]),
        CancelAndStart => {
            let all = vec!["cancel flow".to_owned(), start(chance, scene)];
            shuffled(chance, all)
        }
        Start => words(vec![start(chance, scene)]),
        StartAndFill => words([start(chance, scene)].into_iter().chain(fills(chance, chance_good(scene))).collect()),
        StartTwo => words(vec![start(chance, scene), start(chance, scene)]),
        DigressAndAnswer => {
            let all = vec![start(chance, scene), answered(chance, scene)];
            shuffled(chance, all)
        }
        DigressAndCorrect => {
            let good = chance.percent(70);
            let all = vec![start(chance, scene), corrects(chance, scene, good)];
            shuffled(chance, all)
        }
        Resume => {
            let flow = if scene.under_way.is_empty() { "f0".to_owned() } else { chance.of(&scene.under_way).clone() };
            words(vec![format!("start flow {flow}")])
        }
        Clarify => words(vec![format!("clarify {} {}", scene.any_flow(chance), scene.any_flow(chance))]),
        ClarifyNothing => words(vec!["clarify".to_owned()]),
        Words => words(vec![(*chance.of(&["chitchat", "search", "repeat", "skip", "handoff"])).to_owned()]),
        CannotHandle => words(vec!["cannot handle x".to_owned()]),
        ContinueAgent => words(if chance.percent(70) { vec!["continue agent".to_owned()] } else { Vec::new() }),
        RestartAgent => words(vec![format!("restart agent {}", chance.of(&["chooser", "helper", "researcher"]))]),
        Everything => {
            let all = (0..chance.between(2, 5)).map(|_| anything(chance, scene)).collect();
            shuffled(chance, all)
        }
        _ => unusual(chance, scene, habit),
    }
}

fn chance_good(scene: &Scene<'_>) -> bool {
    // Whoever begins afresh mostly says what fits.
    scene.under_way.len() < 3
}

fn answered(chance: &mut Chance, scene: &Scene<'_>) -> String {
    match scene.asked.as_deref() {
        Some(slot) => {
            let good = chance.percent(75);
            set(slot, &value(chance, slot, good))
        }
        None if scene.agent => "continue agent".to_owned(),
        None => "noop".to_owned(),
    }
}

fn shuffled(chance: &mut Chance, mut all: Vec<String>) -> Said {
    for at in (1..all.len()).rev() {
        all.swap(at, chance.below(at + 1));
    }
    Said::text("well", all)
}

fn anything(chance: &mut Chance, scene: &Scene<'_>) -> String {
    match chance.below(14) {
        0 | 1 => start(chance, scene),
        2..=4 => answered(chance, scene),
        5..=7 => {
            let good = chance.percent(60);
            corrects(chance, scene, good)
        }
        8 => fills(chance, true).remove(0),
        9 => "cancel flow".to_owned(),
        10 => (*chance.of(&["chitchat", "search", "repeat", "skip", "handoff", "clarify f0 f1"])).to_owned(),
        11 => "continue agent".to_owned(),
        12 => format!("restart agent {}", chance.of(&["chooser", "helper", "researcher"])),
        _ => nonsense(chance),
    }
}

fn nonsense(chance: &mut Chance) -> String {
    (*chance.of(&[
        "start flow nowhere",
        "start flow pattern_restart",
        "set slot zz 1",
        "set slot l0 1",
        "set slot k1 9",
        "clarify nowhere",
        "restart agent nobody",
        "cannot handle",
        "noop",
    ]))
    .to_owned()
}

fn unusual(chance: &mut Chance, scene: &Scene<'_>, habit: Habit) -> Said {
    match habit {
        Silence => Said::text("/silence_timeout", Vec::new()),
        Button => match scene.asked.as_deref() {
            Some("b0") => Said::text(*chance.of(&["On", "Go", "yes", "/SetSlots(b0=true)"]), vec!["noop".to_owned()]),
            Some("c0") => Said::text(*chance.of(&["Crimson", "red.", "/SetSlots(c0=Blue)"]), vec!["noop".to_owned()]),
            Some(slot) if slot.starts_with('n') => {
                Said::text(*chance.of(&["5", "-3", "7.25"]), vec!["noop".to_owned()])
            }
            _ => Said::text(*chance.of(&["yes", "no", "On", "5", "none"]), vec!["chitchat".to_owned()]),
        },
        SetSlots => {
            let pair = |chance: &mut Chance| {
                let slot = chance.of(SLOTS).0;
                let good = chance.percent(80);
                let value: Json = serde_json::from_str(&value(chance, slot, good)).unwrap_or_default();
                format!("{slot}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            };
            let pairs: Vec<String> = (0..chance.between(1, 3)).map(|_| pair(chance)).collect();
            let broken = chance.percent(15);
            Said::text(format!("/SetSlots({}{})", pairs.join(", "), if broken { ", zz=1" } else { "" }), Vec::new())
        }
        Intent => Said::text(
            *chance.of(&["/go", "/inform{\"place\": \"sea\"}", "/inform{\"city\": \"Oslo\"}", "/feel", "/nothing"]),
            Vec::new(),
        ),
        Restart => Said::text("/restart", Vec::new()),
        SessionStart => {
            let metadata = Map::from_iter([("call_id".to_owned(), json!(chance.below(9)))]);
            Said { metadata, ..Said::text("/session_start", Vec::new()) }
        }
        Expiry => {
            let minutes = *chance.of(&[59.0, 61.0, 600.0]);
            Said {
                wait: minutes,
                ..act(chance, scene, *[Answer, Start, Words, Correct].get(scene.under_way.len() % 4).unwrap_or(&Answer))
            }
        }
        Nonsense => {
            let many = (0..chance.between(1, 2)).map(|_| nonsense(chance)).collect();
            Said::text("well", many)
        }
        Empty => Said::text("  ", Vec::new()),
        TooLong => Said::text("long ".repeat(limits::MESSAGE_CHARACTERS), Vec::new()),
        Deploy => {
            let becomes = Some(super::plan::edited(chance, scene.plan));
            let habit = *chance.of(&[Answer, Start, ContinueAgent, Cancel, Words]);
            Said { becomes, ..act(chance, scene, habit) }
        }
        Cut => {
            let cut = Some(chance.between(1, 3));
            let habit = *chance.of(&[Answer, Start, ContinueAgent, StartAndFill]);
            Said { cut, ..act(chance, scene, habit) }
        }
        EndSession if scene.driver.conversation.session.turns > 3 => Said::text("/session_end", Vec::new()),
        _ => Said::text("hello", vec!["chitchat".to_owned()]),
    }
}
