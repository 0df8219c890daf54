//! Invariants of slot values, against an independent computation: every change has a cause, and no given value is lost.

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
    CheckResult, InvariantChecker, TurnRecord,
    idle_state::{is_base, shown, top_chain},
    reference,
};
use crate::driver::InputRecord;

/// The independently computed slot values.
#[derive(Default)]
pub(super) struct Slots {
    /// Values before the turn, and after it once the turn was checked; initial values are not included.
    values: BTreeMap<String, Json>,
    filled_by: BTreeMap<String, Option<FilledBy>>,
    /// Slots that were set since their last reset.
    set: BTreeSet<String>,
    /// Slots that a step, an action or an agent emptied while they were being asked for.
    emptied: BTreeSet<String>,
    /// For values of the user: the active flow at that time, and the newest frame.
    given_to: BTreeMap<String, (Option<FrameId>, u64)>,
    hashes: BTreeMap<String, u64>,
    /// Values at the newest checked end of a flow.
    ended: BTreeMap<String, Json>,
    /// The state when the message was understood.
    judged: Option<Box<Judged>>,
}

/// The state when command cleanup ran.
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

    /// All values before the commands of the newest message.
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
                // Fingerprints are not values: they are kept as long as the flows can be active.
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
    /// Copies the values from the conversation after a revert, which `replay` checks.
    fn reload_values(&mut self, turn: &TurnRecord<'_>) {
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

/// Whether a source represents the user.
fn by_user(by: Option<FilledBy>) -> bool {
    matches!(by, Some(FilledBy::Llm | FilledBy::Shortcut | FilledBy::Payload | FilledBy::Nlu))
}

/// Every slot change has one of the causes that the format knows.
pub(super) fn slot_changes_have_a_cause(checker: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
    let state = &mut checker.slots;
    state.judged = None;
    for record in turn.inputs {
        let events = turn.events_of(record);
        let mut session_begins = false;
        for event in events {
            if let EventKind::Slot { name, value, reset, filled_by } = &event.kind {
                let old = state.value(&record.project, name.as_str());
                let carried = session_begins && *value == old;
                if !carried && !has_reason(state, record, events, event) {
                    let by = if *reset { "a reset".to_owned() } else { format!("{filled_by:?}") };
                    let at = event.location.active_flow.as_ref().map_or("nowhere", |flow| flow.as_str());
                    return Err(format!("`{name}` went from {old} to {value} by {by} in `{at}` without a cause"));
                }
                note_emptied(state, record, event);
            }
            match &event.kind {
                EventKind::SessionStarted => session_begins = true,
                EventKind::Action { name } if *name == "action_listen" => session_begins = false,
                _ => {}
            }
            state.take(&event.kind);
        }
    }
    if turn.is_reverted() {
        state.reload_values(turn);
    }
    Ok(())
}

fn note_emptied(state: &mut Slots, record: &InputRecord, event: &Event) {
    let EventKind::Slot { name, value, filled_by, reset } = &event.kind else { return };
    let place = event.location.active_flow.as_ref().map_or("", |flow| flow.as_str());
    if by_user(*filled_by) {
        let base = top_chain(&record.before).first().filter(|frame| is_base(frame)).map(|frame| frame.frame_id.clone());
        let newest = record.before.iter().filter_map(|frame| frame.frame_id.as_str().parse().ok()).max().unwrap_or(0);
        state.given_to.insert(name.to_string(), (base, newest));
    }
    let asks = if by_user(*filled_by) {
        reference::asked(&record.before) == Some(name.as_str())
    } else {
        place.starts_with("pattern_")
            || step_of(&record.project, event).is_some_and(|step| matches!(step, StepKind::Collect(_)))
    };
    // Flows share slots: the end of one flow empties slots that another one has collected.
    if *reset || (value.is_null() && !asks && !by_user(*filled_by)) {
        state.emptied.insert(name.to_string());
    } else if asks {
        state.emptied.remove(name.as_str());
    }
}

fn step_of<'p>(project: &'p Project, event: &Event) -> Option<&'p StepKind> {
    let (flow, step) = (event.location.active_flow.as_ref()?, event.location.step_id.as_ref()?);
    Some(&project.flow(flow.as_str())?.step(step.as_str())?.kind)
}

fn has_reason(state: &Slots, record: &InputRecord, events: &[Event], event: &Event) -> bool {
    let EventKind::Slot { name, value, filled_by, reset } = &event.kind else { return true };
    let (project, name) = (&*record.project, name.as_str());
    let old = state.value(project, name);
    let place = event.location.active_flow.as_ref().map_or("", |flow| flow.as_str());
    if *reset {
        let initial = project.slot(name).map_or(&Json::Null, |slot| &slot.initial);
        // The user wrote: the silence counter is reset.
        let counted = name == "consecutive_silence_timeouts"
            || events.iter().any(|event| event.kind == EventKind::RoutingSessionEnded);
        return value == initial
            && (counted || project.flow(place).is_some_and(|flow| reference::ends_with(project, flow).contains(name)));
    }
    match filled_by {
        Some(FilledBy::Llm | FilledBy::Shortcut | FilledBy::Payload | FilledBy::Nlu) => {
            is_corrected(record, name, value) || is_given(record, events, name, value, *filled_by)
        }
        Some(FilledBy::Flow) => {
            let step = step_of(project, event);
            let by_step = step.is_some_and(|step| match step {
                StepKind::SetSlots(values) => values
                    .iter()
                    .any(|(slot, to)| *slot == *name && reference::set_by_anyone(project, name, to) == *value),
                // The silence timeout for voice channels is set.
                StepKind::Collect(_) if name == "silence_timeout" => true,
                StepKind::Collect(collect) => collect.slot == *name && collect.ask_before_filling && value.is_null(),
                StepKind::Call(Call::Tool { output, .. }) => match &record.input.kind {
                    // The tool did not accept the value: the slot is asked for.
                    InputKind::ToolResult(ToolResult::NeedsInput { slots, .. }) => {
                        value.is_null() && slots.iter().any(|slot| *slot == *name)
                    }
                    InputKind::ToolResult(_) => output.iter().any(|(slot, _)| *slot == *name),
                    _ => false,
                },
                StepKind::Call(Call::Agent { exit_if, .. }) => {
                    value.is_null() && exit_if.iter().any(|condition| condition.slots().any(|slot| slot == name))
                }
                _ => false,
            });
            // The flow was interrupted before the step that the slot confirms.
            let is_late =
                |why: &Reason| matches!(why, Reason::Note { text } if text.contains(&format!("`{name}` confirms")));
            let late = value.is_null() && record.reasons.iter().any(is_late);
            by_step || late || is_checked(project, place, &old, value, name, &state.all(project))
        }
        Some(FilledBy::Agent) => came_in(record, name, |given| reference::becomes(project, name, given) == *value),
        Some(FilledBy::Custom) | None => {
            let metadata = matches!(&record.input.kind, InputKind::Message(message) if Json::Object(message.metadata.clone()) == *value);
            (name == "session_started_metadata" && metadata)
                || came_in(record, name, |given| reference::set_by_anyone(project, name, given) == *value)
                || is_given(record, events, name, value, *filled_by)
        }
    }
}

/// A validation rejected the value, or coerced it to the type.
fn is_checked(project: &Project, place: &str, old: &Json, value: &Json, name: &str, all: &Map<String, Json>) -> bool {
    match place {
        "pattern_collect_information" | "pattern_validate_slot" if value.is_null() => {
            reference::refused_somewhere(project, name, all)
        }
        "pattern_collect_information" | "pattern_validate_slot" => reference::becomes(project, name, old) == *value,
        // A name that is not an interrupted flow is asked for again.
        "pattern_continue_interrupted" => value.is_null() && name == "interrupted_flow_to_continue",
        _ => false,
    }
}

/// An earlier correction contains the value.
fn is_corrected(record: &InputRecord, name: &str, value: &Json) -> bool {
    record.before.iter().any(|frame| match &frame.kind {
        FrameKind::Pattern { context: PatternFrame::Correction { corrected_slots, .. } } => {
            corrected_slots.get(name) == Some(value)
        }
        _ => false,
    })
}

/// The message sets it, from a permitted source, for a slot that a flow asks for.
fn is_given(record: &InputRecord, events: &[Event], name: &str, value: &Json, by: Option<FilledBy>) -> bool {
    let project = &*record.project;
    // It was kept with a flow that begins or resumes now.
    let mut kept = record.before.iter().flat_map(|frame| &frame.kept_values);
    if kept.any(|kept| kept.slot == *name && kept.value == *value && Some(kept.filled_by) == by) {
        return true;
    }
    let Some(commands) = events.iter().find_map(|event| match &event.kind {
        EventKind::Understood { commands, .. } => Some(commands),
        _ => None,
    }) else {
        return false;
    };
    let fresh = super::begins_session(events);
    let stack: &[Frame] = if fresh { &[] } else { &record.before };
    let mut flows: BTreeSet<String> = top_chain(stack).iter().map(|frame| frame.flow_id.to_string()).collect();
    flows.extend(commands.iter().filter_map(|command| match command {
        Command::StartFlow { flow } => Some(flow.to_string()),
        _ => None,
    }));
    let asks = reference::asked(stack) == Some(name)
        || reference::collects(project, flows.iter().map(String::as_str), name, false);
    let gives = commands.iter().any(|command| match command {
        Command::SetSlot { name: slot, value: given, extractor } => {
            // A correction is recorded with the model as its source.
            let source = Some(*extractor) == by || by == Some(FilledBy::Llm);
            *slot == *name
                && reference::becomes(project, name, given) == *value
                && source
                && reference::may_fill(project, name, *extractor, &flows)
        }
        _ => false,
    });
    asks && gives
}

/// An effect set it.
fn came_in(record: &InputRecord, name: &str, fits: impl Fn(&Json) -> bool) -> bool {
    let events = match &record.input.kind {
        InputKind::ActionOutcome(ActionOutcome::Done { events }) => events,
        // In the format of an action server.
        InputKind::ActionOutcome(ActionOutcome::ServerResponse(answer)) => {
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

/// A value that the user gives, for an open or a later question or as a correction, is set, or an active correction
/// contains it.
pub(super) fn given_values_are_applied(checker: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
    let Some(judged) = &checker.slots.judged else { return Ok(()) };
    let Some((record, commands, source)) = turn.understood() else { return Ok(()) };
    let (project, stack) = (&*record.project, turn.judged(record));
    // Values of triggers are exempt; and flows that the user has to choose from do not start yet.
    if turn.resets_after_understanding()
        || source == "external"
        || project.config.compat.clarify_on_multiple_start_flows
        || turn.interrupts_turn()
        || reference::has_changed(project, &stack, &judged.hashes)
    {
        return Ok(());
    }
    let active: BTreeSet<String> = top_chain(&stack).iter().map(|frame| frame.flow_id.to_string()).collect();
    let asked = reference::asked(&stack);
    let only = reference::asking(project, &stack).filter(|collect| collect.force_slot_filling && source == "model");
    // An active flow is not started.
    let mut started = reference::started(project, commands);
    started.retain(|flow| !active.contains(*flow));
    let (mut seen, cancels) = (BTreeSet::new(), commands.contains(&Command::CancelFlow));
    for command in commands {
        let Command::SetSlot { name, value: given, extractor } = command else { continue };
        let name = name.as_str();
        if only.is_some_and(|collect| collect.slot != *name) || !reference::may_fill(project, name, *extractor, &active)
        {
            continue;
        }
        if !seen.insert(name) {
            continue;
        }
        // Values for a flow that the same message cancels are dropped.
        if cancels && !reference::collects(project, started.iter().copied(), name, false) {
            continue;
        }
        // A value for a flow that does not run first is kept for it.
        let later = |why: &Reason| match why {
            Reason::Note { text } => text.starts_with(&format!("`{name}` is kept for")),
            Reason::Dropped { command: other, rule } => {
                let rules =
                    ["the flow asks for the slot itself", "the message was written before its sender got the question"];
                other == command && rules.contains(&rule.as_str())
            }
            _ => false,
        };
        if turn.reasons().any(later) {
            continue;
        }
        // A message does not answer a question whose text it changes.
        let unshown = |why: &Reason| {
            matches!(why, Reason::Dropped { command: other, rule }
            if other == command && rule.contains("changes what the question shows"))
        };
        if asked == Some(name) && commands.len() > 1 && turn.reasons().any(unshown) {
            continue;
        }
        let (old, new) = (value(&judged.values, project, name), reference::becomes(project, name, given));
        let from_intent = judged.filled_by.get(name) == Some(&Some(FilledBy::Nlu)) && *extractor == FilledBy::Llm;
        if reference::alike(&old, &new) || from_intent {
            continue;
        }
        let filled = judged.set.contains(name) && !old.is_null();
        let corrects = filled
            && asked != Some(name)
            && reference::collects(project, active.iter().map(String::as_str), name, false);
        if asked != Some(name) && *extractor == FilledBy::Llm {
            match project.slot(name).map(|slot| slot.fill) {
                Some(FillPolicy::WhenAsked) if !corrects => continue,
                Some(FillPolicy::Once)
                    if commands.iter().any(|other| reference::gives_to_another(other, name, given)) =>
                {
                    continue;
                }
                _ => {}
            }
        }
        if corrects {
            let undone =
                cancels || turn.is_exhausted() || turn.reasons().any(|why| matches!(why, Reason::Failed { .. }));
            if !undone && !is_taken(turn, record, name, &new) && !is_pending(turn, name, &new) {
                return Err(format!("`{name}` is {old}, was corrected to {new}, and the correction is lost"));
            }
        } else {
            let eager = reference::collects(project, active.iter().map(String::as_str), name, true)
                || reference::collects(project, started.iter().copied(), name, true);
            if (asked == Some(name) || eager) && !is_taken(turn, record, name, &new) {
                return Err(format!("`{name}` was {old} and was given as {new}, which is lost: {}", shown(&stack)));
            }
        }
    }
    Ok(())
}

/// The `fill` policy of a slot is respected, because the model infers too much.
pub(super) fn fill_policy_is_respected(checker: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
    let (Some(judged), Some((record, commands, "model"))) = (&checker.slots.judged, turn.understood()) else {
        return Ok(());
    };
    let (project, stack) = (&*record.project, turn.judged(record));
    let asked = reference::asked(&stack);
    let filled: Vec<(&str, &Json)> = turn
        .events_of(record)
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
        if asked == Some(*name) || is_corrected(record, name, new) {
            continue;
        }
        let fill = project.slot(name).map(|slot| slot.fill);
        if fill == Some(FillPolicy::WhenAsked) && value(&judged.values, project, name).is_null() {
            return Err(format!("`{name}` became {new} without being asked for: {}", shown(&stack)));
        }
        let goes_first = |other: &str| asked == Some(other) || given(other) < given(name);
        let other = filled.iter().find(|(other, value)| {
            other != name && reference::reads_alike(value, new) && given(other).is_some() && goes_first(other)
        });
        if let (Some(FillPolicy::Once), false, Some((other, _))) = (fill, new.is_null(), other) {
            return Err(format!("`{name}` became {new} out of a message that gave the same to `{other}`"));
        }
    }
    Ok(())
}

fn is_taken(turn: &TurnRecord<'_>, record: &InputRecord, name: &str, wanted: &Json) -> bool {
    let from = record.events.start - turn.first;
    turn.events[from..].iter().any(|event| {
        matches!(&event.kind, EventKind::Slot { name: slot, value, reset: false, .. } if *slot == *name && value == wanted)
    })
}

fn is_pending(turn: &TurnRecord<'_>, name: &str, wanted: &Json) -> bool {
    turn.rest().iter().any(|frame| {
        matches!(&frame.kind, FrameKind::Pattern { context: PatternFrame::Correction { corrected_slots, .. } }
            if corrected_slots.get(name) == Some(wanted))
    }) || !turn.is_over()
}

/// An ended flow resets its slots, so that its next start does not find old answers, and keeps persisted ones.
pub(super) fn ended_flow_resets_its_slots(checker: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
    if turn.is_reverted() {
        checker.slots.ended = checker.slots.values.clone();
        return Ok(());
    }
    let values = &mut checker.slots.ended;
    for record in turn.inputs {
        let project = &*record.project;
        for event in turn.events_of(record) {
            fold(values, &event.kind);
            let (flow_id, gone) = match &event.kind {
                EventKind::FlowCompleted { flow_id, .. } => (flow_id, true),
                EventKind::FlowCancelled { flow_id, .. } => {
                    (flow_id, event.location.active_flow.as_ref() == Some(flow_id))
                }
                _ => continue,
            };
            let Some(flow) = project.flow(flow_id.as_str()).filter(|_| gone) else { continue };
            // A flow that a new project version changed keeps the answers for its next start.
            if matches!(event.kind, EventKind::FlowCancelled { .. }) && turn.is_notified_of_change() {
                continue;
            }
            if reference::is_called(project, flow_id.as_str()) {
                continue;
            }
            for slot in reference::ends_with(project, flow) {
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

/// Rejected values do not pass, in whatever order users give them: later steps rely on the check.
pub(super) fn rejected_values_do_not_pass(checker: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
    if !turn.listens() || turn.is_exhausted() {
        return Ok(());
    }
    let (state, project) = (&checker.slots, turn.project());
    let all = state.all(project);
    for slot in project.domain.slots.values() {
        let (name, Some(own)) = (slot.name.as_str(), &slot.validation) else { continue };
        let refused = !all[name].is_null() && own.rejections.iter().any(|one| reference::holds(&one.condition, &all));
        let is_checked = turn.rest().iter().any(|frame| match &frame.kind {
            FrameKind::Pattern { context: PatternFrame::ValidateSlot { validate, .. } } => validate == name,
            FrameKind::Pattern { context: PatternFrame::Correction { .. } } => true,
            _ => false,
        });
        if refused && !is_checked && by_user(state.filled_by.get(name).copied().flatten()) {
            return Err(format!("`{name}` is {}, which its validation rejects: {}", all[name], shown(turn.rest())));
        }
    }
    for (at, frame) in turn.rest().iter().enumerate() {
        let (FrameKind::Flow { .. }, Some(flow)) = (&frame.kind, project.flow(frame.flow_id.as_str())) else {
            continue;
        };
        let (Position::At(now) | Position::Before(now)) = &frame.at else { continue };
        let above = &turn.rest()[at + 1..];
        let base = turn.rest()[..=at].iter().rev().find(|frame| is_base(frame)).map(|frame| &frame.frame_id);
        for step in frame.visited_steps.iter().take_while(|step| *step != now) {
            let Some(StepKind::Collect(collect)) = flow.step(step.as_str()).map(|step| &step.kind) else { continue };
            let slot = collect.slot.as_str();
            if !by_user(state.filled_by.get(slot).copied().flatten()) || state.emptied.contains(slot) {
                continue;
            }
            // Flows share slots: a value for one changes that of another.
            let begun_since =
                |newest: u64| base.and_then(|id| id.as_str().parse().ok()).is_some_and(|id: u64| id > newest);
            if state.given_to.get(slot).is_some_and(|(to, newest)| to.as_ref() != base && !begun_since(*newest)) {
                continue;
            }
            let is_at_it = above.iter().any(|frame| match &frame.kind {
                FrameKind::Pattern { context: PatternFrame::ValidateSlot { validate, .. } } => validate == slot,
                FrameKind::Pattern { context: PatternFrame::Correction { .. } } => true,
                FrameKind::Pattern { context: PatternFrame::CollectInformation { collect, .. } } => collect == slot,
                _ => false,
            });
            if !is_at_it && reference::refused_by(project, collect, &all) {
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
