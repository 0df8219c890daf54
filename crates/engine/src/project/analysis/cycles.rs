//! Finds endless cycles in a flow: cycles that never wait for the user, and steps from which no path leads to the end.

use std::collections::HashSet;

use super::{
    super::{ActionReference, Call, Collect, Step, StepKind, builtin::LISTEN},
    dataflow::Dataflow,
    flow_graph::{EdgeLabel, FlowGraph, cyclic_components},
    project_index::{ProjectIndex, outputs},
};
use crate::finding::Findings;

pub(super) fn check(index: &ProjectIndex<'_>, graph: &FlowGraph<'_>, dataflow: &Dataflow, findings: &mut Findings) {
    let is_open = |at: usize, nth: usize| dataflow.is_open(at, nth);
    let all: Vec<usize> = (0..graph.edges.len()).filter(|at| dataflow.is_reached(*at)).collect();
    let mut is_reported = false;
    for cycle in open_cycles(graph, &all, &is_open) {
        let emptied = emptied(index, graph, &cycle);
        let silent = |at: &usize| {
            graph.step(*at).is_some_and(|step| !listens(index, step, &emptied)) && !waits_for_correction(graph, *at)
        };
        let rest: Vec<usize> = cycle.iter().copied().filter(silent).collect();
        for silent in open_cycles(graph, &rest, &is_open) {
            is_reported |= report_silent(graph, dataflow, &silent, findings);
        }
    }
    if !is_reported {
        no_path_to_end(graph, dataflow, &all, findings);
    }
}

/// The slots that may be reset in the cycle; `None`: any slot.
fn emptied<'p>(index: &ProjectIndex<'p>, graph: &FlowGraph<'p>, cycle: &[usize]) -> Option<HashSet<&'p str>> {
    let mut emptied = HashSet::new();
    for step in cycle.iter().filter_map(|at| graph.step(*at)) {
        match &step.kind {
            StepKind::SetSlots(pairs) => emptied.extend(pairs.iter().map(|(slot, _)| slot.as_str())),
            StepKind::Action(name) if index.is_own_code(name) => return None,
            StepKind::Call(Call::Flow(flow)) => {
                let effects = index.effects_of(flow.as_str())?;
                if effects.anything {
                    return None;
                }
                emptied.extend(effects.writes.iter().copied());
            }
            StepKind::Call(call) => emptied.extend(outputs(index.project, call)),
            _ => {}
        }
    }
    Some(emptied)
}

/// Whether a collect step has only itself as the next step. Such a step waits until the user corrects an earlier slot.
fn waits_for_correction(graph: &FlowGraph<'_>, at: usize) -> bool {
    let is_question = graph.step(at).is_some_and(|step| matches!(step.kind, StepKind::Collect(_)));
    is_question && at > 0 && matches!(graph.edges_of(at), [edge] if edge.to == Some(at))
}

/// Whether a step waits for the user each time it is reached, or has unknown effects.
fn listens(index: &ProjectIndex<'_>, step: &Step, emptied: &Option<HashSet<&str>>) -> bool {
    match &step.kind {
        StepKind::Collect(collect) => asks_again(collect, emptied),
        StepKind::Action(ActionReference::Plain(name)) if *name == *LISTEN => true,
        StepKind::Action(name) => {
            let is_response =
                matches!(name, ActionReference::Plain(name) if index.project.response(name.as_str()).is_some());
            !is_response
        }
        StepKind::Call(Call::Agent { .. }) => true,
        StepKind::Call(Call::Flow(flow)) => {
            index.effects_of(flow.as_str()).is_none_or(|effects| effects.anything || effects.listens)
        }
        _ => false,
    }
}

fn asks_again(collect: &Collect, emptied: &Option<HashSet<&str>>) -> bool {
    let slot = collect.slot.as_str();
    let is_emptied = emptied.as_ref().is_none_or(|emptied| emptied.contains(slot));
    // A rejection that reads another slot may reject a value in the second iteration that it accepted in the first.
    let depends_on_other_slots =
        collect.rejections.iter().any(|rejection| rejection.condition.slots().any(|other| other != slot));
    collect.ask_before_filling || is_emptied || depends_on_other_slots
}

/// Reports a cycle that never waits for the user. If a slot that its branches read is set in the cycle, the cycle may end, and
/// there is no finding.
fn report_silent(graph: &FlowGraph<'_>, dataflow: &Dataflow, cycle: &[usize], findings: &mut Findings) -> bool {
    let inside: HashSet<usize> = cycle.iter().copied().collect();
    let mut read: HashSet<&str> = HashSet::new();
    let mut set: HashSet<&str> = HashSet::new();
    for at in cycle {
        for edge in graph.edges_of(*at) {
            if let EdgeLabel::If(condition) = edge.label {
                read.extend(condition.slots());
            }
        }
        if let Some(StepKind::SetSlots(pairs)) = graph.step(*at).map(|step| &step.kind) {
            set.extend(pairs.iter().map(|(slot, _)| slot.as_str()));
        }
    }
    if !read.is_disjoint(&set) {
        return false;
    }
    let steps = || cycle.iter().filter_map(|at| Some((*at, graph.step(*at)?)));
    let question = steps().find(|(_, step)| matches!(step.kind, StepKind::Collect(_)));
    let Some((first, step)) = question.or_else(|| steps().min_by_key(|(at, _)| *at)) else { return false };
    let is_open = |at: usize, nth: usize| dataflow.is_open(at, nth);
    let by = graph.path(first, &is_open, None).map(|path| format!(" Reached by: {path}.")).unwrap_or_default();
    let round = cycle_path(graph, first, &inside, &is_open);
    let calls_tool = steps().any(|(_, step)| matches!(step.kind, StepKind::Call(Call::Tool { .. })));
    let (message, help) = match &step.kind {
        StepKind::Collect(collect) => (
            format!(
                "the flow returns here while `{}` is filled, so the step does not ask again: {round}",
                collect.slot
            ),
            format!(
                "Reset it before with `set_slots: [{{{}: null}}]`, or set `ask_before_filling: true`.",
                collect.slot
            ),
        ),
        _ if calls_tool => (
            format!("these steps repeat without waiting for the user as long as the tool fails: {round}"),
            "Ask the user in between, or end the flow after a failure.".to_owned(),
        ),
        _ => (
            format!("these steps repeat forever without waiting for the user: {round}"),
            "Add a collect step to the cycle, or change the `next` of one of the steps.".to_owned(),
        ),
    };
    findings.warning("F0240", &step.place, message, format!("{help}{by}"));
    true
}

/// The shortest path around the cycle, for a message.
fn cycle_path(
    graph: &FlowGraph<'_>,
    first: usize,
    inside: &HashSet<usize>,
    is_open: &dyn Fn(usize, usize) -> bool,
) -> String {
    let mut names = vec![graph.name(first)];
    let mut seen = HashSet::from([first]);
    let mut at = first;
    loop {
        let edges = graph.edges_of(at).iter().enumerate().filter(|(nth, _)| is_open(at, *nth));
        let next: Vec<usize> = edges.filter_map(|(_, edge)| edge.to).filter(|to| inside.contains(to)).collect();
        if next.contains(&first) {
            break;
        }
        let Some(to) = next.into_iter().find(|to| seen.insert(*to)) else { break };
        names.push(graph.name(to));
        at = to;
    }
    names.push(graph.name(first));
    names.join(" → ")
}

/// Reports the first step from which no path leads to the end. The user can only cancel the flow.
fn no_path_to_end(graph: &FlowGraph<'_>, dataflow: &Dataflow, all: &[usize], findings: &mut Findings) {
    let leaves = |at: usize| {
        let is_link = graph.step(at).is_some_and(|step| matches!(step.kind, StepKind::Link(_)));
        is_link
            || waits_for_correction(graph, at)
            || graph.edges_of(at).iter().enumerate().any(|(nth, edge)| edge.to.is_none() && dataflow.is_open(at, nth))
    };
    let is_open = |at: usize, nth: usize| dataflow.is_open(at, nth);
    let last: Vec<usize> = all.iter().copied().filter(|at| leaves(*at)).collect();
    let ends = graph.leading(&last, &is_open);
    let is_stuck = |at: &&usize| !last.contains(*at) && !ends.get(**at).copied().unwrap_or(true);
    let Some((at, step)) = all.iter().find(is_stuck).and_then(|at| Some((*at, graph.step(*at)?))) else { return };
    let by = graph.path(at, &is_open, None).map(|path| format!(" Reached by: {path}.")).unwrap_or_default();
    let message = format!("no path leads from here to the end of `{}`; users can only cancel it", graph.flow.id);
    findings.warning("F0241", &step.place, message, format!("Set the `next` of a step or branch to `END`.{by}"));
}

/// The strongly connected components with a cycle among `nodes`.
fn open_cycles(graph: &FlowGraph<'_>, nodes: &[usize], is_open: &dyn Fn(usize, usize) -> bool) -> Vec<Vec<usize>> {
    let among: HashSet<usize> = nodes.iter().copied().collect();
    cyclic_components(nodes.iter().flat_map(|at| {
        let edges = graph.edges_of(*at).iter().enumerate().filter(|(nth, _)| is_open(*at, *nth));
        edges.filter_map(|(_, edge)| Some((*at, edge.to.filter(|to| among.contains(to))?)))
    }))
}
