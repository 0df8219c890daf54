//! The values of slots, held to a model of our own: nothing changes without a reason, and nothing that was given is lost.

use std::collections::{BTreeMap, BTreeSet};

use segue_engine::{
    conversation::{
        ActionOutcome, Command, Event, EventKind, FilledBy, Frame, FrameKind, PatternFrame, Position, ToolResult,
    },
    dialogue::{InputKind, Reason},
    ids::FrameId,
    project::{Call, FillPolicy, Project, StepKind},
};
use serde_json::{Map, Value as Json};

use super::{
    Ledger, Turn, Verdict, model,
    rest::{is_base, shown, top_chain},
};
use crate::driver::Taken;

/// What the model holds.
#[derive(Default)]
pub(super) struct Slots {
    /// Values at the beginning of the turn, and at its end once the turn was looked at; initial ones are not here.
    values: BTreeMap<String, Json>,
    filled_by: BTreeMap<String, Option<FilledBy>>,
    /// Slots that were set since their last reset.
    set: BTreeSet<String>,
    /// Slots that a step, an action or an agent emptied behind the question's back.
    emptied: BTreeSet<String>,
    /// For what the user gave: the flow that was under way then, and the newest frame there was.
    given_to: BTreeMap<String, (Option<FrameId>, u64)>,
    hashes: BTreeMap<String, u64>,
    /// Values as of the newest end of a flow that was looked at.
    ended: BTreeMap<String, Json>,
    /// The books as they were when the message was understood.
    judged: Option<Box<Judged>>,
}

/// The books at the moment in which commands were judged.
struct Judged {
    values: BTreeMap<String, Json>,
    filled_by: BTreeMap<String, Option<FilledBy>>,
    set: BTreeSet<String>,
    hashes: BTreeMap<String, u64>,
}

impl Slots {
    fn value(&self, project: &Project, slot: &str) -> Json {
        value(&self.values, project, slot)
    }

    fn all(&self, project: &Project) -> Map<String, Json> {
        let names = project.domain.slots.keys().map(|name| name.as_str());
        names.map(|name| (name.to_owned(), self.value(project, name))).collect()
    }

    /// All values as the commands of the newest message found them.
    pub(super) fn when_judged(&self, project: &Project) -> Map<String, Json> {
        let values = self.judged.as_ref().map_or(&self.values, |judged| &judged.values);
        let names = project.domain.slots.keys().map(|name| name.as_str());
        names.map(|name| (name.to_owned(), value(values, project, name))).collect()
    }

    fn take(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Slot { name, value, filled_by, reset } => {
                let name = name.to_string();
                if *reset {
                    self.set.remove(&name);
                } else {
                    self.set.insert(name.clone());
                }
                self.filled_by.insert(name.clone(), *filled_by);
                self.values.insert(name, value.clone());
            }
            EventKind::ResetSlots | EventKind::Restart => {
                let (judged, ended) = (self.judged.take(), std::mem::take(&mut self.ended));
                let emptied = std::mem::take(&mut self.values).into_keys().collect();
                let mut hashes = std::mem::take(&mut self.hashes);
                // What flows were like when they began is no value: it stays as long as they can be under way.
                if *kind == EventKind::Restart {
                    hashes.clear();
                }
                *self = Self { judged, ended, emptied, hashes, ..Self::default() };
            }
            EventKind::FlowStarted { flow_id, fingerprint, .. } => {
                self.hashes.insert(flow_id.to_string(), *fingerprint);
            }
            EventKind::SessionStarted => self.hashes.clear(),
            EventKind::Understood { .. } => {
                let (values, filled_by) = (self.values.clone(), self.filled_by.clone());
                let (set, hashes) = (self.set.clone(), self.hashes.clone());
                self.judged = Some(Box::new(Judged { values, filled_by, set, hashes }));
            }
            _ => {}
        }
    }
}

impl Slots {
    /// Takes the values from the conversation: something was taken back, which the mirror watches.
    fn as_they_are(&mut self, turn: &Turn<'_>) {
        let slots = &turn.driver.conversation.slots;
        self.values = slots.iter().map(|(name, slot)| (name.to_string(), slot.value.clone())).collect();
        self.filled_by = slots.iter().map(|(name, slot)| (name.to_string(), slot.filled_by)).collect();
        self.set = slots.iter().filter(|(_, slot)| slot.has_been_set).map(|(name, _)| name.to_string()).collect();
        self.judged = None;
    }
}

fn value(values: &BTreeMap<String, Json>, project: &Project, slot: &str) -> Json {
    let initial = || project.slot(slot).map_or(Json::Null, |slot| slot.initial.clone());
    values.get(slot).cloned().unwrap_or_else(initial)
}

/// Whether a source speaks for the user.
fn by_user(by: Option<FilledBy>) -> bool {
    matches!(by, Some(FilledBy::Llm | FilledBy::Shortcut | FilledBy::Payload | FilledBy::Nlu))
}

/// A value that changes by itself is a booking for the wrong day: every change has one of the causes that the format knows.
pub(super) fn values_change_for_a_reason(ledger: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    let books = &mut ledger.slots;
    books.judged = None;
    for taken in turn.taken {
        let events = turn.events_of(taken);
        let mut session_begins = false;
        for event in events {
            if let EventKind::Slot { name, value, reset, filled_by } = &event.kind {
                let old = books.value(&taken.project, name.as_str());
                let carried = session_begins && *value == old;
                if !carried && !has_reason(books, taken, events, event) {
                    let by = if *reset { "a reset".to_owned() } else { format!("{filled_by:?}") };
                    let at = event.place.active_flow.as_ref().map_or("nowhere", |flow| flow.as_str());
                    return Err(format!("`{name}` went from {old} to {value} by {by} in `{at}` without a reason"));
                }
                note_emptied(books, taken, event);
            }
            match &event.kind {
                EventKind::SessionStarted => session_begins = true,
                EventKind::Action { name } if *name == "action_listen" => session_begins = false,
                _ => {}
            }
            books.take(&event.kind);
        }
    }
    if turn.is_undone() {
        books.as_they_are(turn);
    }
    Ok(())
}

fn note_emptied(books: &mut Slots, taken: &Taken, event: &Event) {
    let EventKind::Slot { name, value, filled_by, reset } = &event.kind else { return };
    let place = event.place.active_flow.as_ref().map_or("", |flow| flow.as_str());
    if by_user(*filled_by) {
        let base = top_chain(&taken.before).first().filter(|frame| is_base(frame)).map(|frame| frame.frame_id.clone());
        let newest = taken.before.iter().filter_map(|frame| frame.frame_id.as_str().parse().ok()).max().unwrap_or(0);
        books.given_to.insert(name.to_string(), (base, newest));
    }
    let asks = if by_user(*filled_by) {
        model::asked(&taken.before) == Some(name.as_str())
    } else {
        place.starts_with("pattern_")
            || step_of(&taken.project, event).is_some_and(|step| matches!(step, StepKind::Collect(_)))
    };
    // Flows share slots: the end of one empties what another has asked for.
    if *reset || (value.is_null() && !asks && !by_user(*filled_by)) {
        books.emptied.insert(name.to_string());
    } else if asks {
        books.emptied.remove(name.as_str());
    }
}

fn step_of<'p>(project: &'p Project, event: &Event) -> Option<&'p StepKind> {
    let (flow, step) = (event.place.active_flow.as_ref()?, event.place.step_id.as_ref()?);
    Some(&project.flow(flow.as_str())?.step(step.as_str())?.kind)
}

fn has_reason(books: &Slots, taken: &Taken, events: &[Event], event: &Event) -> bool {
    let EventKind::Slot { name, value, filled_by, reset } = &event.kind else { return true };
    let (project, name) = (&*taken.project, name.as_str());
    let old = books.value(project, name);
    let place = event.place.active_flow.as_ref().map_or("", |flow| flow.as_str());
    if *reset {
        let initial = project.slot(name).map_or(&Json::Null, |slot| &slot.initial);
        // The user spoke: silence is counted anew.
        let counted = name == "consecutive_silence_timeouts"
            || events.iter().any(|event| event.kind == EventKind::RoutingSessionEnded);
        return value == initial
            && (counted || project.flow(place).is_some_and(|flow| model::ends_with(project, flow).contains(name)));
    }
    match filled_by {
        Some(FilledBy::Llm | FilledBy::Shortcut | FilledBy::Payload | FilledBy::Nlu) => {
            is_corrected(taken, name, value) || is_given(taken, events, name, value, *filled_by)
        }
        Some(FilledBy::Flow) => {
            let step = step_of(project, event);
            let by_step = step.is_some_and(|step| match step {
                StepKind::SetSlots(values) => {
                    values.iter().any(|(slot, to)| *slot == *name && model::set_by_anyone(project, name, to) == *value)
                }
                // Voice channels are told how long to wait.
                StepKind::Collect(_) if name == "silence_timeout" => true,
                StepKind::Collect(collect) => collect.slot == *name && collect.ask_before_filling && value.is_null(),
                StepKind::Call(Call::Tool { output, .. }) => match &taken.input.kind {
                    // What was in it is not what the tool needs to know: it is asked for.
                    InputKind::Called(ToolResult::Wants { slots, .. }) => {
                        value.is_null() && slots.iter().any(|slot| *slot == *name)
                    }
                    InputKind::Called(_) => output.iter().any(|(slot, _)| *slot == *name),
                    _ => false,
                },
                StepKind::Call(Call::Agent { exit_if, .. }) => {
                    value.is_null() && exit_if.iter().any(|condition| condition.slots().any(|slot| slot == name))
                }
                _ => false,
            });
            by_step || is_checked(project, place, &old, value, name, &books.all(project))
        }
        Some(FilledBy::Agent) => came_in(taken, name, |given| model::becomes(project, name, given) == *value),
        Some(FilledBy::Custom) | None => {
            let metadata = matches!(&taken.input.kind, InputKind::Message(message) if Json::Object(message.metadata.clone()) == *value);
            (name == "session_started_metadata" && metadata)
                || came_in(taken, name, |given| model::set_by_anyone(project, name, given) == *value)
                || is_given(taken, events, name, value, *filled_by)
        }
    }
}

/// A check refused the value, or read it as its type wants.
fn is_checked(project: &Project, place: &str, old: &Json, value: &Json, name: &str, all: &Map<String, Json>) -> bool {
    match place {
        "pattern_collect_information" | "pattern_validate_slot" if value.is_null() => {
            model::refused_somewhere(project, name, all)
        }
        "pattern_collect_information" | "pattern_validate_slot" => model::becomes(project, name, old) == *value,
        // A name that is none of the interrupted flows is asked for again.
        "pattern_continue_interrupted" => value.is_null() && name == "interrupted_flow_to_continue",
        _ => false,
    }
}

/// A correction that was taken in before carries the value.
fn is_corrected(taken: &Taken, name: &str, value: &Json) -> bool {
    taken.before.iter().any(|frame| match &frame.kind {
        FrameKind::Pattern { context: PatternFrame::Correction { corrected_slots, .. } } => {
            corrected_slots.get(name) == Some(value)
        }
        _ => false,
    })
}

/// The message gave it, from a source that may, for a slot that somebody asks for.
fn is_given(taken: &Taken, events: &[Event], name: &str, value: &Json, by: Option<FilledBy>) -> bool {
    let project = &*taken.project;
    let Some(commands) = events.iter().find_map(|event| match &event.kind {
        EventKind::Understood { commands, .. } => Some(commands),
        _ => None,
    }) else {
        return false;
    };
    let fresh = super::begins_session(events);
    let stack: &[Frame] = if fresh { &[] } else { &taken.before };
    let mut flows: BTreeSet<String> = top_chain(stack).iter().map(|frame| frame.flow_id.to_string()).collect();
    flows.extend(commands.iter().filter_map(|command| match command {
        Command::StartFlow { flow } => Some(flow.to_string()),
        _ => None,
    }));
    let asks =
        model::asked(stack) == Some(name) || model::collects(project, flows.iter().map(String::as_str), name, false);
    let gives = commands.iter().any(|command| match command {
        Command::SetSlot { name: slot, value: given, extractor } => {
            // A correction is filed under the model, whoever gave it.
            let source = Some(*extractor) == by || by == Some(FilledBy::Llm);
            *slot == *name
                && model::becomes(project, name, given) == *value
                && source
                && model::may_fill(project, name, *extractor, &flows)
        }
        _ => false,
    });
    asks && gives
}

/// An effect brought it.
fn came_in(taken: &Taken, name: &str, fits: impl Fn(&Json) -> bool) -> bool {
    let events = match &taken.input.kind {
        InputKind::Acted(ActionOutcome::Done { events }) => events,
        // As an action server writes it.
        InputKind::Acted(ActionOutcome::Answered(answer)) => {
            let is = |event: &Map<String, Json>| event.get("event") == Some(&"slot".into());
            let named = |event: &Map<String, Json>| event.get("name").and_then(Json::as_str) == Some(name);
            return answer
                .events
                .iter()
                .any(|event| is(event) && named(event) && fits(event.get("value").unwrap_or(&Json::Null)));
        }
        InputKind::Agent(outcome) => &outcome.events,
        _ => return false,
    };
    events
        .iter()
        .any(|event| matches!(&event.kind, EventKind::Slot { name: slot, value, .. } if *slot == *name && fits(value)))
}

/// Whoever answers a question, names a value for a later one, or corrects an earlier one, has said it once and for all: the
/// value is set, or a correction under way carries it.
pub(super) fn what_was_given_is_taken(ledger: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    let Some(judged) = &ledger.slots.judged else { return Ok(()) };
    let Some((taken, commands, source)) = turn.understood() else { return Ok(()) };
    let (project, stack) = (&*taken.project, turn.judged(taken));
    // What a program sets, it sets where it likes; and flows of which the user is to choose one do not begin yet.
    if turn.forgets_it()
        || source == "external"
        || project.config.compat.clarify_on_multiple_start_flows
        || turn.cuts()
        || model::has_changed(project, &stack, &judged.hashes)
    {
        return Ok(());
    }
    let active: BTreeSet<String> = top_chain(&stack).iter().map(|frame| frame.flow_id.to_string()).collect();
    let asked = model::asked(&stack);
    let only = model::asking(project, &stack).filter(|collect| collect.force_slot_filling && source == "model");
    // One that is under way is not started.
    let mut started = model::started(project, commands);
    started.retain(|flow| !active.contains(*flow));
    let (mut seen, cancels) = (BTreeSet::new(), commands.contains(&Command::CancelFlow));
    for command in commands {
        let Command::SetSlot { name, value: given, extractor } = command else { continue };
        let name = name.as_str();
        if only.is_some_and(|collect| collect.slot != *name) || !model::may_fill(project, name, *extractor, &active) {
            continue;
        }
        if !seen.insert(name) {
            continue;
        }
        // What was said to a flow that the same message gives up went with it.
        if cancels && !model::collects(project, started.iter().copied(), name, false) {
            continue;
        }
        // Nor does a message answer a question whose text it changes.
        let unshown = |why: &Reason| {
            matches!(why, Reason::Dropped { command: other, rule }
            if other == command && rule.contains("changes what the question shows"))
        };
        if asked == Some(name) && commands.len() > 1 && turn.why().any(unshown) {
            continue;
        }
        let (old, new) = (value(&judged.values, project, name), model::becomes(project, name, given));
        let from_intent = judged.filled_by.get(name) == Some(&Some(FilledBy::Nlu)) && *extractor == FilledBy::Llm;
        if model::alike(&old, &new) || from_intent {
            continue;
        }
        let filled = judged.set.contains(name) && !old.is_null();
        let corrects =
            filled && asked != Some(name) && model::collects(project, active.iter().map(String::as_str), name, false);
        if asked != Some(name) && *extractor == FilledBy::Llm {
            match project.slot(name).map(|slot| slot.fill) {
                Some(FillPolicy::WhenAsked) if !corrects => continue,
                Some(FillPolicy::Once) if commands.iter().any(|other| model::gives_to_another(other, name, given)) => {
                    continue;
                }
                _ => {}
            }
        }
        if corrects {
            let undone = cancels || turn.is_exhausted() || turn.why().any(|why| matches!(why, Reason::Failed { .. }));
            if !undone && !is_taken(turn, taken, name, &new) && !is_pending(turn, name, &new) {
                return Err(format!("`{name}` is {old}, was corrected to {new}, and the correction is lost"));
            }
        } else {
            let eager = model::collects(project, active.iter().map(String::as_str), name, true)
                || model::collects(project, started.iter().copied(), name, true);
            if (asked == Some(name) || eager) && !is_taken(turn, taken, name, &new) {
                return Err(format!("`{name}` was {old} and was given as {new}, which is lost: {}", shown(&stack)));
            }
        }
    }
    Ok(())
}

/// An author who says when a slot may be filled knows that the model fills too much: what it reads between the lines stays out.
pub(super) fn a_slot_is_filled_when_its_author_says(ledger: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    let (Some(judged), Some((taken, commands, "model"))) = (&ledger.slots.judged, turn.understood()) else {
        return Ok(());
    };
    let (project, stack) = (&*taken.project, turn.judged(taken));
    let asked = model::asked(&stack);
    let filled: Vec<(&str, &Json)> = turn
        .events_of(taken)
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Slot { name, value, filled_by: Some(FilledBy::Llm), reset: false } => {
                Some((name.as_str(), value))
            }
            _ => None,
        })
        .collect();
    let given = |slot: &str| {
        commands.iter().position(|command| matches!(command, Command::SetSlot { name, .. } if *name == *slot))
    };
    for (name, new) in &filled {
        if asked == Some(*name) || is_corrected(taken, name, new) {
            continue;
        }
        let fill = project.slot(name).map(|slot| slot.fill);
        if fill == Some(FillPolicy::WhenAsked) && value(&judged.values, project, name).is_null() {
            return Err(format!("`{name}` became {new}, and nobody had asked for it: {}", shown(&stack)));
        }
        let goes_first = |other: &str| asked == Some(other) || given(other) < given(name);
        let other = filled.iter().find(|(other, value)| {
            other != name && model::reads_alike(value, new) && given(other).is_some() && goes_first(other)
        });
        if let (Some(FillPolicy::Once), false, Some((other, _))) = (fill, new.is_null(), other) {
            return Err(format!("`{name}` became {new} out of a message that gave the same to `{other}`"));
        }
    }
    Ok(())
}

fn is_taken(turn: &Turn<'_>, taken: &Taken, name: &str, wanted: &Json) -> bool {
    let from = taken.events.start - turn.first;
    turn.events[from..].iter().any(|event| {
        matches!(&event.kind, EventKind::Slot { name: slot, value, reset: false, .. } if *slot == *name && value == wanted)
    })
}

fn is_pending(turn: &Turn<'_>, name: &str, wanted: &Json) -> bool {
    turn.rest().iter().any(|frame| {
        matches!(&frame.kind, FrameKind::Pattern { context: PatternFrame::Correction { corrected_slots, .. } }
            if corrected_slots.get(name) == Some(wanted))
    }) || !turn.is_over()
}

/// A flow that begins anew must not find the answers of last time, nor may one that ended take values that are to persist.
pub(super) fn a_flow_that_ended_takes_its_values_with_it(ledger: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    if turn.is_undone() {
        ledger.slots.ended = ledger.slots.values.clone();
        return Ok(());
    }
    let values = &mut ledger.slots.ended;
    for taken in turn.taken {
        let project = &*taken.project;
        for event in turn.events_of(taken) {
            fold(values, &event.kind);
            let (flow_id, gone) = match &event.kind {
                EventKind::FlowCompleted { flow_id, .. } => (flow_id, true),
                EventKind::FlowCancelled { flow_id, .. } => {
                    (flow_id, event.place.active_flow.as_ref() == Some(flow_id))
                }
                _ => continue,
            };
            let Some(flow) = project.flow(flow_id.as_str()).filter(|_| gone) else { continue };
            // A flow that was changed under the user's feet leaves the answers for its next beginning.
            if matches!(event.kind, EventKind::FlowCancelled { .. }) && turn.is_told_of_change() {
                continue;
            }
            if model::is_called(project, flow_id.as_str()) {
                continue;
            }
            for slot in model::ends_with(project, flow) {
                let (now, initial) = (value(values, project, &slot), &project.slot(&slot).unwrap().initial);
                if now != *initial {
                    return Err(format!("`{flow_id}` ended, and `{slot}` is still {now}"));
                }
            }
        }
    }
    Ok(())
}

fn fold(values: &mut BTreeMap<String, Json>, kind: &EventKind) {
    match kind {
        EventKind::Slot { name, value, .. } => {
            values.insert(name.to_string(), value.clone());
        }
        EventKind::ResetSlots | EventKind::Restart => values.clear(),
        _ => {}
    }
}

/// A flow beyond a question relies on what the question lets through, in whatever order people say things.
pub(super) fn no_refused_value_gets_past_its_question(ledger: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    if !turn.listens() || turn.is_exhausted() {
        return Ok(());
    }
    let (books, project) = (&ledger.slots, turn.project());
    let all = books.all(project);
    for slot in project.domain.slots.values() {
        let (name, Some(own)) = (slot.name.as_str(), &slot.validation) else { continue };
        let refused = !all[name].is_null() && own.rejections.iter().any(|one| model::holds(&one.condition, &all));
        let is_checked = turn.rest().iter().any(|frame| match &frame.kind {
            FrameKind::Pattern { context: PatternFrame::ValidateSlot { validate, .. } } => validate == name,
            FrameKind::Pattern { context: PatternFrame::Correction { .. } } => true,
            _ => false,
        });
        if refused && !is_checked && by_user(books.filled_by.get(name).copied().flatten()) {
            return Err(format!("`{name}` is {}, which its own check refuses: {}", all[name], shown(turn.rest())));
        }
    }
    for (at, frame) in turn.rest().iter().enumerate() {
        let (FrameKind::Flow { .. }, Some(flow)) = (&frame.kind, project.flow(frame.flow_id.as_str())) else {
            continue;
        };
        let (Position::At(now) | Position::Before(now)) = &frame.at else { continue };
        let above = &turn.rest()[at + 1..];
        let base = turn.rest()[..=at].iter().rev().find(|frame| is_base(frame)).map(|frame| &frame.frame_id);
        for step in frame.trail.iter().take_while(|step| *step != now) {
            let Some(StepKind::Collect(collect)) = flow.step(step.as_str()).map(|step| &step.kind) else { continue };
            let slot = collect.slot.as_str();
            if !by_user(books.filled_by.get(slot).copied().flatten()) || books.emptied.contains(slot) {
                continue;
            }
            // Flows share slots: what is said to one changes what another has.
            let begun_since =
                |newest: u64| base.and_then(|id| id.as_str().parse().ok()).is_some_and(|id: u64| id > newest);
            if books.given_to.get(slot).is_some_and(|(to, newest)| to.as_ref() != base && !begun_since(*newest)) {
                continue;
            }
            let is_at_it = above.iter().any(|frame| match &frame.kind {
                FrameKind::Pattern { context: PatternFrame::ValidateSlot { validate, .. } } => validate == slot,
                FrameKind::Pattern { context: PatternFrame::Correction { .. } } => true,
                FrameKind::Pattern { context: PatternFrame::CollectInformation { collect, .. } } => collect == slot,
                _ => false,
            });
            if !is_at_it && model::refused_by(project, collect, &all) {
                let value = &all[slot];
                return Err(format!(
                    "`{slot}` is {value}, which `{}` refuses at `{step}`: {}",
                    flow.id,
                    shown(turn.rest())
                ));
            }
        }
    }
    Ok(())
}
