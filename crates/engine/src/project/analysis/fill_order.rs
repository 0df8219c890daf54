//! Checks the order of steps: slots that are read before a step fills them, and collect steps that never ask.

use std::collections::HashSet;

use super::{
    super::{
        ActionReference, Call, Collect, Flow, Mapping, ResponseDef, ResponseText, Step, StepKind, check::with_called,
    },
    dataflow::Dataflow,
    flow_graph::{EdgeLabel, FlowGraph},
    project_index::{ProjectIndex, outputs},
    slot_domains::NULL,
};
use crate::{
    finding::{Findings, SourceLocation},
    ids::{FlowId, SlotName},
    template::{Expression, placeholders},
};

pub(super) fn check(index: &ProjectIndex<'_>, graph: &FlowGraph<'_>, dataflow: &Dataflow, findings: &mut Findings) {
    never_asks(index, graph, dataflow, findings);
    stale_results(index, graph, dataflow, findings);
    let assignments = assignments(index, graph);
    let slots: HashSet<&str> = assignments.iter().map(|(_, slot)| *slot).collect();
    if index.effects_of(graph.flow.id.as_str()).is_some() {
        // The caller of this flow may have filled them.
        return;
    }
    let mut family: HashSet<usize> = HashSet::new();
    for flow in with_called(index.project, graph.flow) {
        family.extend(index.project.flows.get_index_of(&flow.id));
    }
    let mut slots: Vec<&str> = slots.into_iter().filter(|slot| is_only_here(index, &family, slot)).collect();
    slots.sort_unstable();
    for slot in slots {
        read_before_filled(index, graph, dataflow, slot, &assignments, findings);
    }
}

/// Reports collect steps whose slot has a value on every path, so that they never ask.
fn never_asks(index: &ProjectIndex<'_>, graph: &FlowGraph<'_>, dataflow: &Dataflow, findings: &mut Findings) {
    for (at, step) in graph.flow.steps.iter().enumerate() {
        let StepKind::Collect(collect) = &step.kind else { continue };
        filled_only_in_other_flows(index, graph, step, collect, findings);
        // Rejections may reject here a value that was accepted before.
        if collect.ask_before_filling || !collect.rejections.is_empty() || !index.has_builtin_collect_pattern {
            continue;
        }
        let name = &collect.slot;
        if let Some(slot) = index.project.slot(name.as_str()).filter(|slot| !slot.initial.is_null() && !slot.builtin) {
            if !index.is_emptied(name.as_str()) {
                let message = format!("`{name}` has the initial value {}, so this step never asks", slot.initial);
                let help =
                    "Remove `initial_value` or set `ask_before_filling: true`. Ignore this for an optional question.";
                findings.note("F0256", &step.place, message, help);
            }
            continue;
        }
        let Some(slot) = dataflow.domains.at(name.as_str()) else { continue };
        let before = dataflow.before.get(at).and_then(Option::as_ref);
        let is_filled = before.and_then(|state| state.sets.get(slot)).is_some_and(|set| *set != 0 && set & NULL == 0);
        // A collect step lets the user correct a slot that an agent or a tool has filled.
        let is_asked = before.is_some_and(|state| state.asked & (1 << slot) != 0);
        if is_filled && (is_asked || !is_filled_by_call(index, graph, name.as_str())) {
            let is_open = |at: usize, nth: usize| dataflow.is_open(at, nth);
            let by = graph.path(at, &is_open, None).map(|path| format!(" Reached by: {path}.")).unwrap_or_default();
            let message = format!("`{name}` has a value on every path to this step, so it never asks");
            let help = "Remove the step, set `ask_before_filling: true`, or reset the slot before with `set_slots`.";
            findings.warning("F0243", &step.place, message, format!("{help}{by}"));
        }
    }
}

/// Whether an agent, a tool or a flow that this flow calls fills the slot.
fn is_filled_by_call(index: &ProjectIndex<'_>, graph: &FlowGraph<'_>, slot: &str) -> bool {
    graph.flow.steps.iter().any(|step| match &step.kind {
        StepKind::Call(Call::Flow(flow)) => {
            index.effects_of(flow.as_str()).is_some_and(|effects| effects.writes.contains(slot))
        }
        StepKind::Call(call) => outputs(index.project, call).contains(&slot),
        _ => false,
    })
}

/// Reports a text that shows the result of a tool call together with an argument that may have changed after the call.
fn stale_results(index: &ProjectIndex<'_>, graph: &FlowGraph<'_>, dataflow: &Dataflow, findings: &mut Findings) {
    for (at, step) in graph.flow.steps.iter().enumerate().filter(|(at, _)| dataflow.is_reached(*at)) {
        let StepKind::Call(Call::Tool { input, output, .. }) = &step.kind else { continue };
        let given = input.iter().map(|(_, slot)| slot.as_str());
        let given: Vec<&str> = given.filter(|slot| !output.iter().any(|(filled, _)| filled == *slot)).collect();
        let fresh = |at: usize| {
            let step = graph.step(at).map(|step| &step.kind);
            matches!(step, Some(StepKind::Call(Call::Tool { output: other, .. }))
                if other.iter().any(|(slot, _)| output.iter().any(|(filled, _)| filled == slot)))
        };
        // An edge that does not lead to the call again, or to another call that fills the same slots.
        let stale = |from: usize, nth: usize| {
            let to = graph.edges_of(from).get(nth).and_then(|edge| edge.to);
            dataflow.is_open(from, nth) && to.is_none_or(|to| !fresh(to))
        };
        let behind = graph.reached(&[at], &stale);
        let found = given.iter().find_map(|slot| {
            let changes = (0..graph.flow.steps.len()).filter(|at| behind.get(*at) == Some(&true));
            let change = changes.filter(|at| fills_slot(index, graph, *at, slot)).find_map(|change| {
                let late = graph.reached(&[change], &stale);
                // A collect step may show the old value of its own slot.
                let is_later = |at: &usize| *at != change && late.get(*at) == Some(&true);
                let mut later = (0..graph.flow.steps.len()).filter(is_later);
                later.find_map(|shows| Some((change, shows, shown_with(index, graph, shows, slot, output)?)))
            })?;
            Some((*slot, change))
        });
        if let Some((slot, (change, shows, filled))) = found {
            let message = format!(
                "`{}` shows the result `{filled}` of this call with `{slot}`, which `{}` may change after the call",
                graph.name(shows),
                graph.name(change)
            );
            let help =
                format!("Move the call after `{}`, so that it references the value that is shown.", graph.name(change));
            findings.warning("F0259", &step.place, message, help);
        }
    }
}

/// Whether a step may change the slot, not counting digressions and corrections.
fn fills_slot(index: &ProjectIndex<'_>, graph: &FlowGraph<'_>, at: usize, slot: &str) -> bool {
    match graph.step(at).map(|step| &step.kind) {
        Some(StepKind::Collect(collect)) => collect.slot == *slot,
        Some(StepKind::SetSlots(pairs)) => pairs.iter().any(|(name, value)| *name == *slot && !value.is_null()),
        Some(StepKind::Call(Call::Flow(flow))) => {
            index.effects_of(flow.as_str()).is_some_and(|effects| effects.writes.contains(slot))
        }
        Some(StepKind::Call(call)) => outputs(index.project, call).contains(&slot),
        _ => false,
    }
}

/// The first of the output slots that a step shows together with `slot`.
fn shown_with<'p>(
    index: &ProjectIndex<'p>,
    graph: &FlowGraph<'p>,
    at: usize,
    slot: &str,
    output: &'p [(SlotName, Expression)],
) -> Option<&'p str> {
    let response = match &graph.step(at)?.kind {
        StepKind::Collect(collect) => index.project.response(collect.utter.as_str())?,
        StepKind::Action(ActionReference::Plain(name)) => index.project.response(name.as_str())?,
        _ => return None,
    };
    let filled = output.iter().map(|(filled, _)| filled.as_str()).find(|filled| response.shows(filled))?;
    response.shows(slot).then_some(filled)
}

/// Reports a collected slot that the model may fill only while other flows are active.
fn filled_only_in_other_flows(
    index: &ProjectIndex<'_>,
    graph: &FlowGraph<'_>,
    step: &Step,
    collect: &Collect,
    findings: &mut Findings,
) {
    let Some(slot) = index.project.slot(collect.slot.as_str()).filter(|slot| !slot.mappings.is_empty()) else {
        return;
    };
    let mut flows = Vec::new();
    for mapping in &slot.mappings {
        match mapping {
            Mapping::FromLlm { active_flows, .. } if !active_flows.is_empty() => flows.extend(active_flows),
            _ => return,
        }
    }
    let holds = |outer: &Flow, inner: &Flow| with_called(index.project, outer).iter().any(|flow| flow.id == inner.id);
    let is_related = |id: &&FlowId| match index.project.flow(id.as_str()) {
        Some(flow) => holds(flow, graph.flow) || holds(graph.flow, flow),
        None => true,
    };
    if let Some(other) = flows.first().filter(|_| !flows.iter().any(is_related)) {
        let message = format!(
            "the model may fill `{}` only while `{other}` is active, so no answer fills it in `{}`",
            collect.slot, graph.flow.id
        );
        let help = format!(
            "Add `- active_flow: {}` to the conditions of the mapping, or remove the conditions.",
            graph.flow.id
        );
        findings.warning("F0257", &step.place, message, help);
    }
}

/// The steps that set a slot to a value, with the slot.
fn assignments<'p>(index: &ProjectIndex<'p>, graph: &FlowGraph<'p>) -> Vec<(usize, &'p str)> {
    let mut assignments = Vec::new();
    for (at, step) in graph.flow.steps.iter().enumerate() {
        match &step.kind {
            StepKind::Collect(collect) => assignments.push((at, collect.slot.as_str())),
            StepKind::SetSlots(pairs) => {
                assignments
                    .extend(pairs.iter().filter(|(_, value)| !value.is_null()).map(|(slot, _)| (at, slot.as_str())));
            }
            StepKind::Call(Call::Flow(flow)) => {
                assignments.extend(
                    index.effects_of(flow.as_str()).iter().flat_map(|effects| &effects.writes).map(|slot| (at, *slot)),
                );
            }
            _ => {}
        }
    }
    assignments
}

/// Whether only steps of these flows (a flow and those that it calls) fill the slot, so that it is null at the start.
fn is_only_here(index: &ProjectIndex<'_>, family: &HashSet<usize>, slot: &str) -> bool {
    if index.is_filled_otherwise(slot) || index.writers.get(slot).is_none_or(|writers| writers.lasting) {
        return false;
    }
    index.writers.get(slot).is_some_and(|writers| writers.flows.iter().all(|at| family.contains(at)))
}

fn read_before_filled(
    index: &ProjectIndex<'_>,
    graph: &FlowGraph<'_>,
    dataflow: &Dataflow,
    slot: &str,
    assignments: &[(usize, &str)],
    findings: &mut Findings,
) {
    let is_open = |at: usize, nth: usize| dataflow.is_open(at, nth);
    let own: Vec<usize> = assignments.iter().filter(|(_, name)| *name == slot).map(|(at, _)| *at).collect();
    // Steps after one that fills the slot, or after custom code that may fill it.
    let code = (0..graph.edges.len()).filter(|at| graph.step(*at).is_some_and(|step| may_fill(index, &step.kind)));
    let filling: Vec<usize> = own.iter().copied().chain(code).collect();
    let late = graph.reached(&filling, &is_open);
    let leading = graph.leading(&own, &is_open);
    let holds = |list: &[bool], at: usize| list.get(at).copied().unwrap_or(false);
    for (at, step) in graph.flow.steps.iter().enumerate() {
        let is_late = holds(&late, at) || filling.contains(&at);
        if is_late || !dataflow.is_reached(at) || !holds(&leading, at) {
            continue;
        }
        let Some((place, what)) = read(index, graph, at, &step.kind, &step.place, slot) else { continue };
        let by = graph.path(at, &is_open, None).map(|path| format!(" Reached by: {path}.")).unwrap_or_default();
        let message = format!("{what} `{slot}` before anything in `{}` fills it", graph.flow.id);
        let help = format!("Move the step after the one that fills the slot, or fill the slot earlier.{by}");
        // A custom action may have filled it in an earlier flow.
        if index.has_code {
            findings.note("F0244", &place, message, help);
        } else {
            findings.warning("F0244", &place, message, help);
        }
        return;
    }
}

/// Whether a step runs custom code, which may fill any slot.
fn may_fill(index: &ProjectIndex<'_>, kind: &StepKind) -> bool {
    match kind {
        StepKind::Action(name) => index.is_own_code(name),
        StepKind::Call(Call::Agent { agent, .. }) => {
            index.project.agent(agent.as_str()).is_none_or(|agent| agent.module.is_some())
        }
        StepKind::Call(Call::Flow(flow)) => index.effects_of(flow.as_str()).is_none_or(|effects| effects.anything),
        _ => false,
    }
}

/// The location and kind of a read of the slot's value. Tests for null do not count.
fn read(
    index: &ProjectIndex<'_>,
    graph: &FlowGraph<'_>,
    at: usize,
    kind: &StepKind,
    place: &SourceLocation,
    slot: &str,
) -> Option<(SourceLocation, &'static str)> {
    match kind {
        StepKind::Call(Call::Tool { input, .. }) if input.iter().any(|(_, name)| *name == slot) => {
            return Some((place.clone(), "the tool call reads"));
        }
        StepKind::Action(ActionReference::Plain(name))
            if index.project.response(name.as_str()).is_some_and(|response| always_prints(response, slot)) =>
        {
            return Some((place.clone(), "this text shows"));
        }
        _ => {}
    }
    graph.edges_of(at).iter().find_map(|edge| match edge.label {
        EdgeLabel::If(condition)
            if condition.compared_slots().any(|name| name == slot) && !tests_for_null(condition, slot) =>
        {
            Some((condition.place()?.clone(), "this condition reads"))
        }
        _ => None,
    })
}

/// Whether the condition also tests the slot for null, so that an empty slot is expected.
fn tests_for_null(condition: &crate::condition::Condition, slot: &str) -> bool {
    use crate::condition::Literal;
    condition
        .comparisons()
        .any(|one| one.slot == slot && matches!(one.literal, Literal::Null | Literal::Undefined | Literal::Empty))
}

/// Whether every variation shows the slot without a condition.
fn always_prints(response: &ResponseDef, slot: &str) -> bool {
    response.variations.iter().all(|variation| {
        let is_plain = variation.condition.is_none() && variation.slot_conditions.is_empty();
        is_plain
            && matches!(&variation.text, Some(ResponseText::Braces(text))
                if placeholders(text).any(|(_, name)| name == slot))
    })
}
