//! What must hold of a whole conversation: it can be told again, stored and read in any two parts, and left.

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

use super::{Breach, model};
use crate::driver::Driver;

const NAMES: [&str; 5] = [
    "a_replay_gives_the_same_bytes",
    "a_snapshot_and_its_tail_are_the_whole",
    "what_is_stored_reads_the_same",
    "there_is_always_a_way_out",
    "answers_lead_to_the_end",
];

/// What holds of every conversation; `cut` chooses where it is cut into snapshot and tail.
pub(crate) fn at_the_end(driver: &Driver, cut: usize) -> Result<(), Breach> {
    let breach = |rule: &'static str| move |says: String| Breach { rule, says };
    a_replay_gives_the_same_bytes(driver).map_err(breach(NAMES[0]))?;
    a_snapshot_and_its_tail_are_the_whole(driver, cut).map_err(breach(NAMES[1]))?;
    what_is_stored_reads_the_same(driver).map_err(breach(NAMES[2]))
}

/// The way out from here.
pub(crate) fn way_out(driver: &Driver) -> Result<(), Breach> {
    there_is_always_a_way_out(driver).map_err(|says| Breach { rule: NAMES[3], says })
}

/// The way to the end from here, in projects whose questions take the usual answers.
pub(crate) fn way_on(driver: &Driver) -> Result<(), Breach> {
    answers_lead_to_the_end(driver).map_err(|says| Breach { rule: NAMES[4], says })
}

/// Recovery after a crash, `segue replay` and every recorded test walk the stored inputs again and trust the outcome.
fn a_replay_gives_the_same_bytes(driver: &Driver) -> Result<(), String> {
    let mut conversation = Conversation::new(driver.conversation.id.clone());
    for (at, taken) in driver.log.iter().enumerate() {
        let done = advance(&taken.project, &mut conversation, taken.input.clone());
        let wanted = &driver.all[taken.events.clone()];
        let bytes = |events: &[Event]| serde_json::to_string(events).unwrap();
        if bytes(&done.events) != bytes(wanted) {
            return Err(format!("input {at} gave {} and now {}", bytes(wanted), bytes(&done.events)));
        }
        if done.next != taken.next || done.why != taken.why {
            return Err(format!("input {at} led to {:?} and now to {:?}", taken.next, done.next));
        }
    }
    Ok(())
}

/// Loading a conversation takes the newest snapshot and the events after it; that must be the conversation itself.
fn a_snapshot_and_its_tail_are_the_whole(driver: &Driver, cut: usize) -> Result<(), String> {
    let cut = cut % (driver.all.len() + 1);
    let (head, tail) = driver.all.split_at(cut);
    let id = || driver.conversation.id.clone();
    let whole = Conversation::fold(id(), &driver.all);
    if whole != driver.conversation {
        return Err("the fold of all events is not the conversation".to_owned());
    }
    let snapshot = serde_json::to_string(&Conversation::fold(id(), head)).map_err(|error| error.to_string())?;
    let mut loaded: Conversation = serde_json::from_str(&snapshot).map_err(|error| error.to_string())?;
    tail.iter().for_each(|event| loaded.apply(event));
    if loaded != whole {
        return Err(format!("a snapshot after event {cut} and its tail make {loaded:?}, the whole is {whole:?}"));
    }
    Ok(())
}

/// What a store gives back is what it was given.
fn what_is_stored_reads_the_same(driver: &Driver) -> Result<(), String> {
    for event in &driver.all {
        let text = serde_json::to_string(event).map_err(|error| error.to_string())?;
        let read = Event::from_json(&text).map_err(|error| error.to_string())?;
        if read != *event {
            return Err(format!("an event is read differently from how it was written: {event:?} became {read:?}"));
        }
    }
    Ok(())
}

/// The conversation alone, to try something out.
fn trial(driver: &Driver) -> Driver {
    let mut trial = Driver::new(driver.project.clone());
    trial.conversation = driver.conversation.clone();
    // A turn that is still at work is cut by the first message.
    trial.clock_like(driver);
    trial
}

/// Nobody may be held in a task: who says "stop" and "no" long enough has nothing under way any more. A question that takes
/// nothing but its answer must get it first.
fn there_is_always_a_way_out(driver: &Driver) -> Result<(), String> {
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
    if done(&trial) { Ok(()) } else { Err(format!("after {most} times of stop and no: {}", shown(&trial))) }
}

/// A task whose every question is answered, whose actions and agents do what they should, comes to its end.
fn answers_lead_to_the_end(driver: &Driver) -> Result<(), String> {
    let mut trial = trial(driver);
    let flows: usize = trial.project.user_flows().map(|flow| flow.steps.len()).sum();
    let most = 6 * trial.conversation.stack.frames().len() + 2 * flows + 10;
    for _ in 0..most {
        if done(&trial) {
            return Ok(());
        }
        let (text, commands) = if trial.conversation.paused {
            ("/restart".to_owned(), Vec::new())
        } else if let Some(asked) = model::asked(trial.conversation.stack.frames()) {
            answer(&trial.project, asked, false)
        } else {
            ("go on".to_owned(), vec!["continue agent".to_owned()])
        };
        say(&mut trial, &text, &commands)?;
    }
    if done(&trial) { Ok(()) } else { Err(format!("after {most} good answers: {}", shown(&trial))) }
}

fn shown(trial: &Driver) -> String {
    super::rest::shown(trial.conversation.stack.frames())
}

fn done(trial: &Driver) -> bool {
    trial.conversation.stack.is_empty() && !trial.conversation.paused && trial.next == Next::Listen
        || trial.next == Next::EndSession
}

fn stop(trial: &Driver) -> (String, Vec<String>) {
    let frames = trial.conversation.stack.frames();
    let project = &trial.project;
    let Some(asked) = model::asked(frames) else { return ("stop".to_owned(), vec!["cancel flow".to_owned()]) };
    let by_pattern = frames.iter().rev().nth(1).is_none_or(|frame| matches!(frame.kind, FrameKind::Pattern { .. }));
    let by_check = frames
        .last()
        .is_some_and(|frame| matches!(frame.kind, FrameKind::Pattern { context: PatternFrame::ValidateSlot { .. } }));
    let forced = model::asking(project, frames).is_some_and(|collect| collect.force_slot_filling);
    if (by_pattern && !by_check) || forced {
        return answer(project, asked, true);
    }
    ("stop".to_owned(), vec!["cancel flow".to_owned()])
}

/// An answer that the question takes; `no` to everything that asks for consent.
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

/// Says something to a world in which everything succeeds.
pub(crate) fn say(trial: &mut Driver, text: &str, commands: &[String]) -> Result<(), String> {
    let lines: Vec<&str> = commands.iter().map(String::as_str).collect();
    trial.user(text);
    for _ in 0..400 {
        match trial.next.clone() {
            Next::Listen | Next::EndSession => return Ok(()),
            Next::Understand => trial.understood(&lines),
            Next::Act(_) => trial.input(InputKind::Acted(ActionOutcome::Done { events: Vec::new() })),
            Next::Tool(_) => {
                let result = json!({"content": [], "structuredContent": {"f": "made"}, "isError": false});
                trial.input(InputKind::Called(ToolResult::Done { result }))
            }
            Next::Search(_) => trial.input(InputKind::Searched(SearchOutcome::NoAnswer { reason: "none".into() })),
            Next::Agent(call) => {
                let events = exit_slots(&trial.project, call.flow_id.as_str(), call.step_id.as_str());
                let (status, metadata) = (AgentStatus::Finished, Map::new());
                trial.input(InputKind::Agent(AgentOutcome { status, events, data: Json::Null, metadata }))
            }
        };
    }
    Err(format!("the turn of `{text}` does not end: {:?}", trial.stack()))
}

/// Values for what the task of an agent is about.
fn exit_slots(project: &Arc<Project>, flow: &str, step: &str) -> Vec<Event> {
    let step = project.flow(flow).and_then(|flow| flow.step(step));
    let Some(StepKind::Call(Call::Agent { exit_if, .. })) = step.map(|step| &step.kind) else { return Vec::new() };
    let names = exit_if.iter().flat_map(|condition| condition.slots());
    let event = |name: &str| {
        let (name, value) = (SlotName::from(name), json!("done"));
        let kind = EventKind::Slot { name, value, filled_by: None, reset: false };
        Event { at: Timestamp::from_micros(1), kind, place: Default::default() }
    };
    names.map(event).collect()
}
