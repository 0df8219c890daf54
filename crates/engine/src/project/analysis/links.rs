//! Flows that link to one another in a circle without ever listening.

use std::collections::HashMap;

use super::{
    super::{ActionReference, Call, Flow, StepKind},
    graph::{Graph, circles},
    survey::Survey,
};
use crate::finding::{Findings, SourceLocation};

pub(super) fn check(survey: &Survey<'_>, findings: &mut Findings) {
    let flows: Vec<&Flow> = survey.own_flows().collect();
    let at: HashMap<&str, usize> = flows.iter().enumerate().map(|(at, flow)| (flow.id.as_str(), at)).collect();
    let silent: Vec<Vec<(usize, &SourceLocation)>> = flows.iter().map(|flow| silent_links(survey, flow, &at)).collect();
    let links = silent.iter().enumerate().flat_map(|(from, links)| links.iter().map(move |(to, _)| (from, *to)));
    for knot in circles(links).iter().filter(|knot| knot.len() > 1) {
        let first = knot.first().copied().unwrap_or_default();
        let inside = silent.get(first).into_iter().flatten().find(|(to, _)| knot.contains(to));
        let Some((_, place)) = inside else { continue };
        let names: Vec<&str> = knot.iter().filter_map(|at| flows.get(*at)).map(|flow| flow.id.as_str()).collect();
        let message = format!("these flows link to one another and never listen: `{}`", names.join("`, `"));
        findings.warning("F0242", place, message, "Ask for something in one of them, or take one of the links out.");
    }
}

/// Links of a flow that are reached from its start without listening and without code that might lead elsewhere.
fn silent_links<'p>(
    survey: &Survey<'_>,
    flow: &'p Flow,
    flows: &HashMap<&str, usize>,
) -> Vec<(usize, &'p SourceLocation)> {
    let graph = Graph::of(flow);
    let is_silent = |at: usize| match graph.step(at).map(|step| &step.kind) {
        Some(StepKind::SetSlots(_) | StepKind::Noop | StepKind::Link(_) | StepKind::Call(Call::Tool { .. })) => true,
        Some(StepKind::Action(ActionReference::Plain(name))) => survey.project.response(name.as_str()).is_some(),
        Some(StepKind::Call(Call::Flow(flow))) => {
            survey.touch_of(flow.as_str()).is_some_and(|touch| !touch.listens && !touch.anything)
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
