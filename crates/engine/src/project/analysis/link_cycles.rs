//! Finds cycles of links between flows that never wait for the user.

use std::collections::HashMap;

use super::{
    super::{ActionReference, Call, Flow, StepKind},
    flow_graph::{FlowGraph, cyclic_components},
    project_index::ProjectIndex,
};
use crate::finding::{Findings, SourceLocation};

pub(super) fn check(index: &ProjectIndex<'_>, findings: &mut Findings) {
    let flows: Vec<&Flow> = index.own_flows().collect();
    let at: HashMap<&str, usize> = flows.iter().enumerate().map(|(at, flow)| (flow.id.as_str(), at)).collect();
    let silent: Vec<Vec<(usize, &SourceLocation)>> = flows.iter().map(|flow| silent_links(index, flow, &at)).collect();
    let links = silent.iter().enumerate().flat_map(|(from, links)| links.iter().map(move |(to, _)| (from, *to)));
    for cycle in cyclic_components(links).iter().filter(|cycle| cycle.len() > 1) {
        let first = cycle.first().copied().unwrap_or_default();
        let inside = silent.get(first).into_iter().flatten().find(|(to, _)| cycle.contains(to));
        let Some((_, place)) = inside else { continue };
        let names: Vec<&str> = cycle.iter().filter_map(|at| flows.get(*at)).map(|flow| flow.id.as_str()).collect();
        let message = format!(
            "these flows link to one another in a cycle that never waits for the user: `{}`",
            names.join("`, `")
        );
        findings.warning("F0242", place, message, "Add a collect step to one of them, or remove one of the links.");
    }
}

/// The links of a flow that are reachable from its start without waiting for the user and without custom code.
fn silent_links<'p>(
    index: &ProjectIndex<'_>,
    flow: &'p Flow,
    flows: &HashMap<&str, usize>,
) -> Vec<(usize, &'p SourceLocation)> {
    let graph = FlowGraph::of(flow);
    let is_silent = |at: usize| match graph.step(at).map(|step| &step.kind) {
        Some(StepKind::SetSlots(_) | StepKind::Noop | StepKind::Link(_) | StepKind::Call(Call::Tool { .. })) => true,
        Some(StepKind::Action(ActionReference::Plain(name))) => index.project.response(name.as_str()).is_some(),
        Some(StepKind::Call(Call::Flow(flow))) => {
            index.effects_of(flow.as_str()).is_some_and(|effects| !effects.listens && !effects.anything)
        }
        _ => false,
    };
    let goes_on = |at: usize, _: usize| is_silent(at);
    let reached = graph.reached(&[0], &goes_on);
    let steps = flow.steps.iter().zip(reached).enumerate().filter(|(at, (_, reached))| *at == 0 || *reached);
    steps
        .map(|(_, (step, _))| step)
        .filter_map(|step| match &step.kind {
            StepKind::Link(target) => Some((*flows.get(target.as_str())?, &step.place)),
            _ => None,
        })
        .collect()
}
