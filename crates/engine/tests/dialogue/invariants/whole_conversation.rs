//! Invariants of a whole conversation: it can be replayed, stored, loaded from any snapshot, and ended.

use std::sync::Arc;

use segue_engine::{
    conversation::{
        ActionOutcome, AgentOutcome, AgentStatus, Conversation, Event, EventKind, FrameKind, PatternFrame,
        SearchOutcome, ToolResult,
    },
    dialogue::{InputKind, Next, advance},
    ids::SlotName,
    project::{Call, Project, SlotType, StepKind},
    time::Timestamp,
};
use serde_json::{Map, Value as Json, json};

use super::{Violation, reference};
use crate::driver::Driver;

const NAMES: [&str; 5] = [
    "replay_is_identical",
    "snapshot_and_tail_equal_the_conversation",
    "stored_events_round_trip",
    "every_flow_can_be_cancelled",
    "answers_complete_every_flow",
];

/// Checks the stored conversation; `cut` selects the position of the snapshot.
pub(crate) fn check_conversation(driver: &Driver, cut: usize) -> Result<(), Violation> {
    let violation = |rule: &'static str| move |message: String| Violation { rule, message };
    replay_is_identical(driver).map_err(violation(NAMES[0]))?;
    snapshot_and_tail_equal_the_conversation(driver, cut).map_err(violation(NAMES[1]))?;
    stored_events_round_trip(driver).map_err(violation(NAMES[2]))
}

/// Checks that the current flows can be cancelled.
pub(crate) fn check_cancellable(driver: &Driver) -> Result<(), Violation> {
    every_flow_can_be_cancelled(driver).map_err(|message| Violation { rule: NAMES[3], message })
}

/// Checks that the current flows can be completed, in projects whose questions accept the usual answers.
pub(crate) fn check_completable(driver: &Driver) -> Result<(), Violation> {
    answers_complete_every_flow(driver).map_err(|message| Violation { rule: NAMES[4], message })
}

/// A replay of the stored inputs gives the same bytes: recovery after a crash, `segue replay` and recorded tests rely
/// on that.
fn replay_is_identical(driver: &Driver) -> Result<(), String> {
    let mut conversation = Conversation::new(driver.conversation.id.clone());
    for (at, record) in driver.log.iter().enumerate() {
        let done = advance(&record.project, &mut conversation, record.input.clone());
        let wanted = &driver.all[record.events.clone()];
        let bytes = |events: &[Event]| serde_json::to_string(events).unwrap();
        if bytes(&done.events) != bytes(wanted) {
            return Err(format!("input {at} gave {} and its replay {}", bytes(wanted), bytes(&done.events)));
        }
        if done.next != record.next || done.reasons != record.reasons {
            return Err(format!("input {at} led to {:?} and its replay to {:?}", record.next, done.next));
        }
    }
    Ok(())
}

/// The newest snapshot with the later events is the conversation itself.
fn snapshot_and_tail_equal_the_conversation(driver: &Driver, cut: usize) -> Result<(), String> {
    let cut = cut % (driver.all.len() + 1);
    let (head, tail) = driver.all.split_at(cut);
    let id = || driver.conversation.id.clone();
    let whole = Conversation::fold(id(), &driver.all);
    if whole != driver.conversation {
        return Err("the state of all events is not the conversation".to_owned());
    }
    let snapshot = serde_json::to_string(&Conversation::fold(id(), head)).map_err(|error| error.to_string())?;
    let mut loaded: Conversation = serde_json::from_str(&snapshot).map_err(|error| error.to_string())?;
    tail.iter().for_each(|event| loaded.apply(event));
    if loaded != whole {
        return Err(format!(
            "a snapshot after event {cut} and the later events give {loaded:?}, all events give {whole:?}"
        ));
    }
    Ok(())
}

/// Stored events are read unchanged.
fn stored_events_round_trip(driver: &Driver) -> Result<(), String> {
    for event in &driver.all {
        let text = serde_json::to_string(event).map_err(|error| error.to_string())?;
        let read = Event::from_json(&text).map_err(|error| error.to_string())?;
        if read != *event {
            return Err(format!("an event changed when it was stored: {event:?} became {read:?}"));
        }
    }
    Ok(())
}

/// A copy of the conversation for experiments.
fn trial(driver: &Driver) -> Driver {
    let mut trial = Driver::new(driver.project.clone());
    trial.conversation = driver.conversation.clone();
    // The first message interrupts a running turn.
    trial.clock_like(driver);
    trial
}

/// No flow may hold the user: enough `cancel flow` and "no" end everything. A question with `force_slot_filling` must
/// be answered first.
fn every_flow_can_be_cancelled(driver: &Driver) -> Result<(), String> {
    let mut trial = trial(driver);
    let most = 3 * trial.conversation.stack.frames().len() + 6;
    for _ in 0..most {
        if done(&trial) {
            return Ok(());
        }
        let (text, commands) =
            if trial.conversation.paused { ("/restart".to_owned(), Vec::new()) } else { stop(&trial) };
        say(&mut trial, &text, &commands)?;
    }
    if done(&trial) { Ok(()) } else { Err(format!("after {most} cancellations: {}", shown(&trial))) }
}

/// A flow whose questions are all answered and whose effects succeed completes.
fn answers_complete_every_flow(driver: &Driver) -> Result<(), String> {
    let mut trial = trial(driver);
    let flows: usize = trial.project.user_flows().map(|flow| flow.steps.len()).sum();
    let most = 6 * trial.conversation.stack.frames().len() + 2 * flows + 10;
    for _ in 0..most {
        if done(&trial) {
            return Ok(());
        }
        let (text, commands) = if trial.conversation.paused {
            ("/restart".to_owned(), Vec::new())
        } else if let Some(asked) = reference::asked(trial.conversation.stack.frames()) {
            answer(&trial.project, asked, false)
        } else {
            ("continue".to_owned(), vec!["continue agent".to_owned()])
        };
        say(&mut trial, &text, &commands)?;
    }
    if done(&trial) { Ok(()) } else { Err(format!("after {most} valid answers: {}", shown(&trial))) }
}

fn shown(trial: &Driver) -> String {
    super::idle_state::shown(trial.conversation.stack.frames())
}

fn done(trial: &Driver) -> bool {
    trial.conversation.stack.is_empty() && !trial.conversation.paused && trial.next == Next::Listen
        || trial.next == Next::EndSession
}

fn stop(trial: &Driver) -> (String, Vec<String>) {
    let frames = trial.conversation.stack.frames();
    let project = &trial.project;
    let Some(asked) = reference::asked(frames) else { return ("stop".to_owned(), vec!["cancel flow".to_owned()]) };
    let by_pattern = frames.iter().rev().nth(1).is_none_or(|frame| matches!(frame.kind, FrameKind::Pattern { .. }));
    let by_check = frames
        .last()
        .is_some_and(|frame| matches!(frame.kind, FrameKind::Pattern { context: PatternFrame::ValidateSlot { .. } }));
    let forced = reference::asking(project, frames).is_some_and(|collect| collect.force_slot_filling);
    if (by_pattern && !by_check) || forced {
        return answer(project, asked, true);
    }
    ("stop".to_owned(), vec!["cancel flow".to_owned()])
}

/// An answer that the question accepts; `no` to everything that asks for consent.
pub(crate) fn answer(project: &Project, asked: &str, no: bool) -> (String, Vec<String>) {
    let Some(slot) = project.slot(asked) else { return ("hm".to_owned(), Vec::new()) };
    let any_of_mapping = |wanted: fn(&segue_engine::project::Mapping) -> bool| slot.mappings.iter().any(wanted);
    use segue_engine::project::Mapping;
    let value = match (&slot.kind, asked) {
        (_, "interrupted_flow_to_continue") => json!("none"),
        (SlotType::Bool, _) => json!(!no && asked == "continue_interrupted_flow_confirmation"),
        (SlotType::Float { .. }, _) => json!(7),
        (SlotType::Categorical(known), _) => known.first().map_or(Json::Null, |first| json!(**first)),
        _ => json!("fine"),
    };
    let by_model = slot.mappings.is_empty() || any_of_mapping(|mapping| matches!(mapping, Mapping::FromLlm { .. }));
    let conditional =
        any_of_mapping(|mapping| matches!(mapping, Mapping::FromLlm { active_flows, .. } if !active_flows.is_empty()));
    if by_model && !conditional {
        return ("well, this".to_owned(), vec![format!("set slot {asked} {value}")]);
    }
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    (format!("/SetSlots({asked}={text})"), Vec::new())
}

/// Runs a turn in which all effects succeed.
pub(crate) fn say(trial: &mut Driver, text: &str, commands: &[String]) -> Result<(), String> {
    let lines: Vec<&str> = commands.iter().map(String::as_str).collect();
    trial.user(text);
    for _ in 0..400 {
        match trial.next.clone() {
            Next::Listen | Next::EndSession => return Ok(()),
            Next::Understand => trial.understood(&lines),
            Next::Act(_) => trial.input(InputKind::ActionOutcome(ActionOutcome::Done { events: Vec::new() })),
            Next::Tool(_) => {
                let result = json!({"content": [], "structuredContent": {"f": "made"}, "isError": false});
                trial.input(InputKind::ToolResult(ToolResult::done(result)))
            }
            Next::Search(_) => trial.input(InputKind::SearchOutcome(SearchOutcome::NoAnswer { reason: "none".into() })),
            Next::Agent(call) => {
                let events = exit_slots(&trial.project, call.flow_id.as_str(), call.step_id.as_str());
                let (status, metadata) = (AgentStatus::Finished, Map::new());
                trial.input(InputKind::Agent(AgentOutcome { status, events, data: Json::Null, metadata }))
            }
        };
    }
    Err(format!("the turn of `{text}` does not end: {:?}", trial.stack()))
}

/// Values for the `exit_if` slots of an agent.
fn exit_slots(project: &Arc<Project>, flow: &str, step: &str) -> Vec<Event> {
    let step = project.flow(flow).and_then(|flow| flow.step(step));
    let Some(StepKind::Call(Call::Agent { exit_if, .. })) = step.map(|step| &step.kind) else { return Vec::new() };
    let names = exit_if.iter().flat_map(|condition| condition.slots());
    let event = |name: &str| {
        let (name, value) = (SlotName::from(name), json!("done"));
        let kind = EventKind::Slot { name, value, filled_by: None, reset: false };
        Event { at: Timestamp::from_micros(1), kind, location: Default::default() }
    };
    names.map(event).collect()
}
