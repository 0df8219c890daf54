//! The order of questions: slots that are read before anything can fill them, and questions that are never asked again.

use std::collections::HashSet;

use super::{
    super::{
        ActionReference, Call, Collect, Flow, Mapping, ResponseDef, ResponseText, Step, StepKind, check::with_called,
    },
    cells::NULL,
    facts::Facts,
    graph::{Graph, Label},
    survey::{Survey, outputs},
};
use crate::{
    finding::{Findings, SourceLocation},
    ids::{FlowId, SlotName},
    template::{Expression, placeholders},
};

pub(super) fn check(survey: &Survey<'_>, graph: &Graph<'_>, facts: &Facts, findings: &mut Findings) {
    asked_again(survey, graph, facts, findings);
    shown_late(survey, graph, facts, findings);
    let fills = fills(survey, graph);
    let slots: HashSet<&str> = fills.iter().map(|(_, slot)| *slot).collect();
    if survey.touch_of(graph.flow.id.as_str()).is_some() {
        // Who calls this flow may have filled them.
        return;
    }
    let mut family: HashSet<usize> = HashSet::new();
    for flow in with_called(survey.project, graph.flow) {
        family.extend(survey.project.flows.get_index_of(&flow.id));
    }
    let mut slots: Vec<&str> = slots.into_iter().filter(|slot| is_only_here(survey, &family, slot)).collect();
    slots.sort_unstable();
    for slot in slots {
        read_early(survey, graph, facts, slot, &fills, findings);
    }
}

/// A question whose slot has a value on every way to it is passed over.
fn asked_again(survey: &Survey<'_>, graph: &Graph<'_>, facts: &Facts, findings: &mut Findings) {
    for (at, step) in graph.flow.steps.iter().enumerate() {
        let StepKind::Collect(collect) = &step.kind else { continue };
        elsewhere(survey, graph, step, collect, findings);
        // Rejections may refuse here what was taken before.
        if collect.ask_before_filling || !collect.rejections.is_empty() || !survey.asks_as_usual {
            continue;
        }
        let name = &collect.slot;
        if let Some(slot) = survey.project.slot(name.as_str()).filter(|slot| !slot.initial.is_null() && !slot.builtin) {
            if !survey.is_emptied(name.as_str()) {
                let message = format!("`{name}` begins with {}, so this question is never asked", slot.initial);
                let help =
                    "Fine for an optional question; else remove `initial_value` or set `ask_before_filling: true`.";
                findings.note("F0256", &step.place, message, help);
            }
            continue;
        }
        let Some(slot) = facts.ground.at(name.as_str()) else { continue };
        let before = facts.before.get(at).and_then(Option::as_ref);
        let is_filled = before.and_then(|env| env.masks.get(slot)).is_some_and(|mask| *mask != 0 && mask & NULL == 0);
        // What an agent or a tool filled can be corrected only because a question asks for it.
        let is_asked = before.is_some_and(|env| env.asked & (1 << slot) != 0);
        if is_filled && (is_asked || !is_filled_by_call(survey, graph, name.as_str())) {
            let is_open = |at: usize, nth: usize| facts.is_open(at, nth);
            let by = graph.path(at, &is_open, None).map(|path| format!(" Reached by: {path}.")).unwrap_or_default();
            let message = format!("`{name}` has a value on every way here, so this question is never asked");
            let help = "Remove the step, set `ask_before_filling: true`, or empty the slot before with `set_slots`.";
            findings.warning("F0243", &step.place, message, format!("{help}{by}"));
        }
    }
}

/// Whether an agent, a tool or a called flow of this flow fills the slot.
fn is_filled_by_call(survey: &Survey<'_>, graph: &Graph<'_>, slot: &str) -> bool {
    graph.flow.steps.iter().any(|step| match &step.kind {
        StepKind::Call(Call::Flow(flow)) => {
            survey.touch_of(flow.as_str()).is_some_and(|touch| touch.writes.contains(slot))
        }
        StepKind::Call(call) => outputs(survey.project, call).contains(&slot),
        _ => false,
    })
}

/// A text that shows what a call came to together with what the call was given, where that may have changed since.
fn shown_late(survey: &Survey<'_>, graph: &Graph<'_>, facts: &Facts, findings: &mut Findings) {
    for (at, step) in graph.flow.steps.iter().enumerate().filter(|(at, _)| facts.is_reached(*at)) {
        let StepKind::Call(Call::Tool { input, output, .. }) = &step.kind else { continue };
        let given = input.iter().map(|(_, slot)| slot.as_str());
        let given: Vec<&str> = given.filter(|slot| !output.iter().any(|(filled, _)| filled == *slot)).collect();
        let fresh = |at: usize| {
            let step = graph.step(at).map(|step| &step.kind);
            matches!(step, Some(StepKind::Call(Call::Tool { output: other, .. }))
                if other.iter().any(|(slot, _)| output.iter().any(|(filled, _)| filled == slot)))
        };
        // A way on which the call, or another that fills the same slots, does not come again.
        let stale = |from: usize, nth: usize| {
            let to = graph.ways_of(from).get(nth).and_then(|way| way.to);
            facts.is_open(from, nth) && to.is_none_or(|to| !fresh(to))
        };
        let behind = graph.reached(&[at], &stale);
        let found = given.iter().find_map(|slot| {
            let changes = (0..graph.flow.steps.len()).filter(|at| behind.get(*at) == Some(&true));
            let change = changes.filter(|at| fills_slot(survey, graph, *at, slot)).find_map(|change| {
                let late = graph.reached(&[change], &stale);
                // A question may show what it asks for the next time.
                let is_later = |at: &usize| *at != change && late.get(*at) == Some(&true);
                let mut later = (0..graph.flow.steps.len()).filter(is_later);
                later.find_map(|shows| Some((change, shows, shown_with(survey, graph, shows, slot, output)?)))
            })?;
            Some((*slot, change))
        });
        if let Some((slot, (change, shows, filled))) = found {
            let message = format!(
                "`{}` shows `{filled}` of this call together with `{slot}`, which `{}` may change after the call",
                graph.name(shows),
                graph.name(change)
            );
            let help = format!(
                "Move the call behind `{}`, so that it is made with the value that is shown.",
                graph.name(change)
            );
            findings.warning("F0259", &step.place, message, help);
        }
    }
}

/// Whether a step may give the slot another value in the ordinary course of the flow.
fn fills_slot(survey: &Survey<'_>, graph: &Graph<'_>, at: usize, slot: &str) -> bool {
    match graph.step(at).map(|step| &step.kind) {
        Some(StepKind::Collect(collect)) => collect.slot == *slot,
        Some(StepKind::SetSlots(pairs)) => pairs.iter().any(|(name, value)| *name == *slot && !value.is_null()),
        Some(StepKind::Call(Call::Flow(flow))) => {
            survey.touch_of(flow.as_str()).is_some_and(|touch| touch.writes.contains(slot))
        }
        Some(StepKind::Call(call)) => outputs(survey.project, call).contains(&slot),
        _ => false,
    }
}

/// The first of the filled slots that a step shows beside `slot`.
fn shown_with<'p>(
    survey: &Survey<'p>,
    graph: &Graph<'p>,
    at: usize,
    slot: &str,
    output: &'p [(SlotName, Expression)],
) -> Option<&'p str> {
    let response = match &graph.step(at)?.kind {
        StepKind::Collect(collect) => survey.project.response(collect.utter.as_str())?,
        StepKind::Action(ActionReference::Plain(name)) => survey.project.response(name.as_str())?,
        _ => return None,
    };
    let filled = output.iter().map(|(filled, _)| filled.as_str()).find(|filled| response.shows(filled))?;
    response.shows(slot).then_some(filled)
}

/// A slot that the model may fill only while other flows are active.
fn elsewhere(survey: &Survey<'_>, graph: &Graph<'_>, step: &Step, collect: &Collect, findings: &mut Findings) {
    let Some(slot) = survey.project.slot(collect.slot.as_str()).filter(|slot| !slot.mappings.is_empty()) else {
        return;
    };
    let mut flows = Vec::new();
    for mapping in &slot.mappings {
        match mapping {
            Mapping::FromLlm { active_flows, .. } if !active_flows.is_empty() => flows.extend(active_flows),
            _ => return,
        }
    }
    let holds = |outer: &Flow, inner: &Flow| with_called(survey.project, outer).iter().any(|flow| flow.id == inner.id);
    let is_related = |id: &&FlowId| match survey.project.flow(id.as_str()) {
        Some(flow) => holds(flow, graph.flow) || holds(graph.flow, flow),
        None => true,
    };
    if let Some(other) = flows.first().filter(|_| !flows.iter().any(is_related)) {
        let message = format!(
            "the model may fill `{}` only while `{other}` is active, so no answer fills it in `{}`",
            collect.slot, graph.flow.id
        );
        let help = format!("Add `- active_flow: {}` to the conditions of the mapping, or remove them.", graph.flow.id);
        findings.warning("F0257", &step.place, message, help);
    }
}

/// The steps that give a slot a value, with the slot.
fn fills<'p>(survey: &Survey<'p>, graph: &Graph<'p>) -> Vec<(usize, &'p str)> {
    let mut fills = Vec::new();
    for (at, step) in graph.flow.steps.iter().enumerate() {
        match &step.kind {
            StepKind::Collect(collect) => fills.push((at, collect.slot.as_str())),
            StepKind::SetSlots(pairs) => {
                fills.extend(pairs.iter().filter(|(_, value)| !value.is_null()).map(|(slot, _)| (at, slot.as_str())));
            }
            StepKind::Call(Call::Flow(flow)) => {
                fills.extend(
                    survey.touch_of(flow.as_str()).iter().flat_map(|touch| &touch.writes).map(|slot| (at, *slot)),
                );
            }
            _ => {}
        }
    }
    fills
}

/// Whether a slot has no other way to a value than steps of these flows, one and what it calls, and is empty when the flow begins.
fn is_only_here(survey: &Survey<'_>, family: &HashSet<usize>, slot: &str) -> bool {
    if survey.is_filled_otherwise(slot) || survey.writers.get(slot).is_none_or(|writers| writers.lasting) {
        return false;
    }
    survey.writers.get(slot).is_some_and(|writers| writers.flows.iter().all(|at| family.contains(at)))
}

fn read_early(
    survey: &Survey<'_>,
    graph: &Graph<'_>,
    facts: &Facts,
    slot: &str,
    fills: &[(usize, &str)],
    findings: &mut Findings,
) {
    let is_open = |at: usize, nth: usize| facts.is_open(at, nth);
    let own: Vec<usize> = fills.iter().filter(|(_, name)| *name == slot).map(|(at, _)| *at).collect();
    // Steps behind something that fills the slot, or behind code that might.
    let code = (0..graph.ways.len()).filter(|at| graph.step(*at).is_some_and(|step| may_fill(survey, &step.kind)));
    let filling: Vec<usize> = own.iter().copied().chain(code).collect();
    let late = graph.reached(&filling, &is_open);
    let leading = graph.leading(&own, &is_open);
    let holds = |list: &[bool], at: usize| list.get(at).copied().unwrap_or(false);
    for (at, step) in graph.flow.steps.iter().enumerate() {
        let is_late = holds(&late, at) || filling.contains(&at);
        if is_late || !facts.is_reached(at) || !holds(&leading, at) {
            continue;
        }
        let Some((place, what)) = read(survey, graph, at, &step.kind, &step.place, slot) else { continue };
        let by = graph.path(at, &is_open, None).map(|path| format!(" Reached by: {path}.")).unwrap_or_default();
        let message = format!("{what} `{slot}` before anything in `{}` fills it", graph.flow.id);
        let help = format!("Move the step behind the question, or ask for it earlier.{by}");
        // An action that ran long ago may have filled it.
        if survey.has_code {
            findings.note("F0244", &place, message, help);
        } else {
            findings.warning("F0244", &place, message, help);
        }
        return;
    }
}

/// Whether a step runs code that may fill any slot.
fn may_fill(survey: &Survey<'_>, kind: &StepKind) -> bool {
    match kind {
        StepKind::Action(name) => survey.is_own_code(name),
        StepKind::Call(Call::Agent { agent, .. }) => {
            survey.project.agent(agent.as_str()).is_none_or(|agent| agent.module.is_some())
        }
        StepKind::Call(Call::Flow(flow)) => survey.touch_of(flow.as_str()).is_none_or(|touch| touch.anything),
        _ => false,
    }
}

/// Where and how a step reads the slot, so that its value counts and not only whether there is one.
fn read(
    survey: &Survey<'_>,
    graph: &Graph<'_>,
    at: usize,
    kind: &StepKind,
    place: &SourceLocation,
    slot: &str,
) -> Option<(SourceLocation, &'static str)> {
    match kind {
        StepKind::Call(Call::Tool { input, .. }) if input.iter().any(|(_, name)| *name == slot) => {
            return Some((place.clone(), "the tool is given"));
        }
        StepKind::Action(ActionReference::Plain(name))
            if survey.project.response(name.as_str()).is_some_and(|response| always_prints(response, slot)) =>
        {
            return Some((place.clone(), "this text prints"));
        }
        _ => {}
    }
    graph.ways_of(at).iter().find_map(|way| match way.label {
        Label::If(condition)
            if condition.compared_slots().any(|name| name == slot) && !asks_whether(condition, slot) =>
        {
            Some((condition.place()?.clone(), "this condition reads"))
        }
        _ => None,
    })
}

/// Whether the condition also asks if there is a value, so that an empty slot is meant.
fn asks_whether(condition: &crate::condition::Condition, slot: &str) -> bool {
    use crate::condition::Literal;
    condition
        .comparisons()
        .any(|one| one.slot == slot && matches!(one.literal, Literal::Null | Literal::Undefined | Literal::Empty))
}

/// Whether every variation prints the slot, as a plain text that asks nothing first.
fn always_prints(response: &ResponseDef, slot: &str) -> bool {
    response.variations.iter().all(|variation| {
        let is_plain = variation.condition.is_none() && variation.slot_conditions.is_empty();
        is_plain
            && matches!(&variation.text, Some(ResponseText::Braces(text))
                if placeholders(text).any(|(_, name)| name == slot))
    })
}
