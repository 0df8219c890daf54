//! A second implementation of the format's rules about values: coercion, permitted sources, rejections, and resets at
//! the end of a flow.

use std::collections::{BTreeMap, BTreeSet};

use segue_engine::{
    condition::{Condition, Document},
    conversation::{Command, FilledBy, Frame, FrameKind, PatternFrame, Position},
    project::{Call, Collect, Flow, Mapping, Project, SlotType, StepKind},
};
use serde_json::{Map, Value as Json, json};

/// The coerced value from a user, the model or an agent.
pub(super) fn becomes(project: &Project, slot: &str, value: &Json) -> Json {
    let Some(slot) = project.slot(slot) else { return value.clone() };
    let text = value.as_str().map(|text| text.trim().to_lowercase());
    match &slot.kind {
        SlotType::Bool => match (value, text.as_deref()) {
            (Json::Number(number), _) => json!(number.as_f64() == Some(1.0)),
            (_, Some("true" | "yes")) => json!(true),
            (_, Some("false" | "no")) => json!(false),
            (_, Some(other)) => number(other).map_or(value.clone(), |number| json!(number == 1.0)),
            _ => value.clone(),
        },
        SlotType::Float { .. } => match (value, text.as_deref()) {
            (Json::Number(number), _) => number.as_f64().map_or(value.clone(), |number| json!(number)),
            (Json::Bool(yes), _) => json!(if *yes { 1.0 } else { 0.0 }),
            (_, Some(text)) => number(text).map_or(value.clone(), |number| json!(number)),
            _ => value.clone(),
        },
        _ => set_by_anyone(project, slot.name.as_str(), value),
    }
}

/// The normalised value, whatever its source.
pub(super) fn set_by_anyone(project: &Project, slot: &str, value: &Json) -> Json {
    let Some(slot) = project.slot(slot) else { return value.clone() };
    match (&slot.kind, value) {
        (SlotType::Categorical(known), Json::String(_) | Json::Number(_) | Json::Bool(_)) => {
            let text = value.as_str().map_or_else(|| value.to_string(), |text| text.trim().to_owned());
            let exact = known.iter().find(|one| ***one == *text);
            let like = || known.iter().find(|one| one.to_lowercase() == text.to_lowercase());
            exact.or_else(like).map_or(value.clone(), |one| json!(**one))
        }
        (SlotType::List, Json::Array(_) | Json::Null) => value.clone(),
        (SlotType::List, Json::String(text)) if text.is_empty() => value.clone(),
        (SlotType::List, _) => json!([value]),
        _ => value.clone(),
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| number.is_finite())
}

/// Whether two values are equal for a user.
pub(super) fn alike(a: &Json, b: &Json) -> bool {
    a == b || matches!((a.as_f64(), b.as_f64()), (Some(a), Some(b)) if (a - b).abs() < f64::EPSILON)
}

/// Whether a value does not fit its slot's type, or is a null word.
pub(super) fn misfits(project: &Project, slot: &str, value: &Json) -> bool {
    let Some(slot) = project.slot(slot) else { return false };
    let fit = becomes(project, slot.name.as_str(), value);
    let declared =
        |text: &str| matches!(&slot.kind, SlotType::Categorical(known) if known.iter().any(|one| **one == *text));
    let nothing = ["None", "null", "undefined", "[missing]", "[missing information]"];
    if value.as_str().is_some_and(|text| nothing.contains(&text) && !declared(text)) {
        return true;
    }
    match &slot.kind {
        SlotType::Bool => !(fit.is_boolean() || fit.is_null()),
        SlotType::Float { .. } => !(fit.is_number() || fit.is_null()),
        SlotType::Categorical(_) => !(fit.is_null() || fit.as_str().is_some_and(declared)),
        _ => false,
    }
}

/// Whether a rejection applies; one that cannot be evaluated does.
pub(super) fn holds(condition: &Condition, values: &Map<String, Json>) -> bool {
    let outcome = condition.eval(&Document { slots: values, context: None });
    outcome.holds || outcome.error.is_some()
}

/// Whether a guard holds; one that cannot be evaluated does not.
pub(super) fn allows(guard: &Condition, values: &Map<String, Json>) -> bool {
    guard.eval(&Document { slots: values, context: None }).holds
}

/// Whether another flow links to or calls this one.
pub(super) fn is_led_to(project: &Project, flow: &str) -> bool {
    let mut steps = project.flows.values().flat_map(|flow| &flow.steps);
    steps.any(|step| match &step.kind {
        StepKind::Call(Call::Flow(to)) | StepKind::Link(to) => to == flow,
        _ => false,
    })
}

/// Whether this collect step rejects the value.
pub(super) fn refused_by(project: &Project, collect: &Collect, values: &Map<String, Json>) -> bool {
    let slot = collect.slot.as_str();
    let value = &values[slot];
    !value.is_null()
        && (misfits(project, slot, value) || collect.rejections.iter().any(|one| holds(&one.condition, values)))
}

/// Whether any collect step or the validation of the slot rejects the value.
pub(super) fn refused_somewhere(project: &Project, slot: &str, values: &Map<String, Json>) -> bool {
    let steps = project.flows.values().flat_map(|flow| flow.collects());
    let own = project.slot(slot).and_then(|slot| slot.validation.as_ref());
    misfits(project, slot, &values[slot])
        || own.is_some_and(|own| own.rejections.iter().any(|one| holds(&one.condition, values)))
        || steps.filter(|(_, collect)| collect.slot == *slot).any(|(_, collect)| refused_by(project, collect, values))
}

/// Whether this source may fill the slot while these flows are active.
pub(super) fn may_fill(project: &Project, slot: &str, by: FilledBy, active: &BTreeSet<String>) -> bool {
    let Some(slot) = project.slot(slot) else { return false };
    let among = |flows: &[segue_engine::ids::FlowId]| {
        flows.is_empty() || flows.iter().any(|flow| active.contains(flow.as_str()))
    };
    let lets = |mapping: &Mapping| match (by, mapping) {
        (FilledBy::Llm | FilledBy::Shortcut, Mapping::FromLlm { active_flows, .. })
        | (
            FilledBy::Nlu,
            Mapping::FromEntity { active_flows, .. }
            | Mapping::FromIntent { active_flows, .. }
            | Mapping::FromText { active_flows, .. },
        ) => among(active_flows),
        _ => false,
    };
    match by {
        FilledBy::Llm | FilledBy::Shortcut => slot.mappings.is_empty() || slot.mappings.iter().any(lets),
        FilledBy::Nlu => slot.mappings.iter().any(lets),
        _ => true,
    }
}

/// Every step of a flow and of the flows it calls.
pub(super) fn steps<'p>(project: &'p Project, flow: &'p Flow) -> Vec<&'p StepKind> {
    let (mut open, mut seen, mut found) = (vec![flow], BTreeSet::new(), Vec::new());
    while let Some(flow) = open.pop() {
        if !seen.insert(flow.id.as_str()) {
            continue;
        }
        for step in &flow.steps {
            found.push(&step.kind);
            if let StepKind::Call(Call::Flow(child)) = &step.kind {
                open.extend(project.flow(child.as_str()).map(|child| &**child));
            }
        }
    }
    found
}

/// Whether one of the flows asks for the slot; `eager` excludes collect steps that always ask.
pub(super) fn collects<'f>(
    project: &Project,
    flows: impl IntoIterator<Item = &'f str>,
    slot: &str,
    eager: bool,
) -> bool {
    flows.into_iter().filter_map(|flow| project.flow(flow)).any(|flow| {
        steps(project, flow).iter().any(|step| match step {
            StepKind::Collect(collect) => collect.slot == *slot && !(eager && collect.ask_before_filling),
            _ => false,
        })
    })
}

/// Whether two values read the same.
pub(super) fn reads_alike(a: &Json, b: &Json) -> bool {
    alike(a, b)
        || matches!((a.as_str(), b.as_str()), (Some(a), Some(b)) if a.trim().to_lowercase() == b.trim().to_lowercase())
}

/// Whether a command gives this value to another slot.
pub(super) fn gives_to_another(command: &Command, slot: &str, value: &Json) -> bool {
    matches!(command, Command::SetSlot { name, value: other, .. } if *name != *slot && reads_alike(other, value))
}

/// The slots that are reset when a flow ends.
pub(super) fn ends_with(project: &Project, flow: &Flow) -> BTreeSet<String> {
    let persists = |slot: &segue_engine::ids::SlotName| flow.persisted_slots.contains(slot);
    let (mut goes, mut stays, mut set) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for step in steps(project, flow) {
        match step {
            StepKind::Collect(collect) if persists(&collect.slot) || !collect.reset_after_flow_ends => {
                stays.insert(collect.slot.to_string());
            }
            StepKind::Collect(collect) => {
                goes.insert(collect.slot.to_string());
            }
            StepKind::SetSlots(values) => {
                set.extend(values.iter().filter(|(slot, _)| !persists(slot)).map(|(slot, _)| slot.to_string()));
            }
            _ => {}
        }
    }
    set.retain(|slot| !stays.contains(slot));
    goes.extend(set);
    goes
}

/// Whether some flow calls this one.
pub(super) fn is_called(project: &Project, flow: &str) -> bool {
    let mut steps = project.flows.values().flat_map(|flow| &flow.steps);
    steps.any(|step| matches!(&step.kind, StepKind::Call(Call::Flow(child)) if child == flow))
}

/// The slot that the frame on top is asking for.
pub(super) fn asked(frames: &[Frame]) -> Option<&str> {
    match &frames.last()?.kind {
        FrameKind::Pattern { context: PatternFrame::CollectInformation { collect, .. } } => Some(collect.as_str()),
        FrameKind::Pattern { context: PatternFrame::ValidateSlot { validate, .. } } => Some(validate.as_str()),
        _ => None,
    }
}

/// The collect step of the question on top.
pub(super) fn asking<'p>(project: &'p Project, frames: &[Frame]) -> Option<&'p Collect> {
    let [.., below, top] = frames else { return None };
    let FrameKind::Pattern { context: PatternFrame::CollectInformation { step_id, .. } } = &top.kind else {
        return None;
    };
    match &project.flow(below.flow_id.as_str())?.step(step_id.as_str())?.kind {
        StepKind::Collect(collect) => Some(collect),
        _ => None,
    }
}

/// Whether an active flow has changed since it started.
pub(super) fn has_changed(project: &Project, frames: &[Frame], hashes: &BTreeMap<String, u64>) -> bool {
    frames.iter().filter(|frame| matches!(frame.kind, FrameKind::Flow { .. })).any(|frame| {
        let known = hashes.get(frame.flow_id.as_str());
        project
            .flow(frame.flow_id.as_str())
            .is_none_or(|flow| frame.at != Position::Start && known.is_some_and(|known| *known != flow.fingerprint))
    })
}

/// The flows that a message certainly starts: flows of the project without a guard.
pub(super) fn started<'c>(project: &Project, commands: &'c [Command]) -> Vec<&'c str> {
    let names = commands.iter().filter_map(|command| match command {
        Command::StartFlow { flow } => Some(flow.as_str()),
        _ => None,
    });
    names.filter(|flow| project.flow(flow).is_some_and(|flow| !flow.is_pattern() && flow.guard.is_none())).collect()
}
