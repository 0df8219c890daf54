//! Ways that lead round for ever: circles that never listen, and questions without a way to the end.

use std::collections::HashSet;

use super::{
    super::{ActionReference, Call, Collect, Step, StepKind, builtin::LISTEN},
    facts::Facts,
    graph::{Graph, Label, circles},
    survey::{Survey, outputs},
};
use crate::finding::Findings;

pub(super) fn check(survey: &Survey<'_>, graph: &Graph<'_>, facts: &Facts, findings: &mut Findings) {
    let is_open = |at: usize, nth: usize| facts.is_open(at, nth);
    let all: Vec<usize> = (0..graph.ways.len()).filter(|at| facts.is_reached(*at)).collect();
    let mut is_told = false;
    for circle in knots(graph, &all, &is_open) {
        let emptied = emptied(survey, graph, &circle);
        let silent = |at: &usize| {
            graph.step(*at).is_some_and(|step| !listens(survey, step, &emptied)) && !waits_for_others(graph, *at)
        };
        let rest: Vec<usize> = circle.iter().copied().filter(silent).collect();
        for silent in knots(graph, &rest, &is_open) {
            is_told |= tell_silent(graph, facts, &silent, findings);
        }
    }
    if !is_told {
        no_way_out(graph, facts, &all, findings);
    }
}

/// What may be emptied on the way round; `None`: anything.
fn emptied<'p>(survey: &Survey<'p>, graph: &Graph<'p>, circle: &[usize]) -> Option<HashSet<&'p str>> {
    let mut emptied = HashSet::new();
    for step in circle.iter().filter_map(|at| graph.step(*at)) {
        match &step.kind {
            StepKind::SetSlots(pairs) => emptied.extend(pairs.iter().map(|(slot, _)| slot.as_str())),
            StepKind::Action(name) if survey.is_own_code(name) => return None,
            StepKind::Call(Call::Flow(flow)) => {
                let touch = survey.touch_of(flow.as_str())?;
                if touch.anything {
                    return None;
                }
                emptied.extend(touch.writes.iter().copied());
            }
            StepKind::Call(call) => emptied.extend(outputs(survey.project, call)),
            _ => {}
        }
    }
    Some(emptied)
}

/// A question that leads to itself and nowhere else: it waits until the user corrects something before it, and is not meant to be
/// answered itself.
fn waits_for_others(graph: &Graph<'_>, at: usize) -> bool {
    let is_question = graph.step(at).is_some_and(|step| matches!(step.kind, StepKind::Collect(_)));
    is_question && at > 0 && matches!(graph.ways_of(at), [way] if way.to == Some(at))
}

/// Whether a step lets the user speak each time it is come to, or does what nobody can foresee.
fn listens(survey: &Survey<'_>, step: &Step, emptied: &Option<HashSet<&str>>) -> bool {
    match &step.kind {
        StepKind::Collect(collect) => asks_again(collect, emptied),
        StepKind::Action(ActionReference::Plain(name)) if *name == *LISTEN => true,
        StepKind::Action(name) => {
            let is_said =
                matches!(name, ActionReference::Plain(name) if survey.project.response(name.as_str()).is_some());
            !is_said
        }
        StepKind::Call(Call::Agent { .. }) => true,
        StepKind::Call(Call::Flow(flow)) => {
            survey.touch_of(flow.as_str()).is_none_or(|touch| touch.anything || touch.listens)
        }
        _ => false,
    }
}

fn asks_again(collect: &Collect, emptied: &Option<HashSet<&str>>) -> bool {
    let slot = collect.slot.as_str();
    let is_emptied = emptied.as_ref().is_none_or(|emptied| emptied.contains(slot));
    // A rejection that reads another slot may refuse on the second round what it took on the first.
    let is_moody = collect.rejections.iter().any(|rejection| rejection.condition.slots().any(|other| other != slot));
    collect.ask_before_filling || is_emptied || is_moody
}

/// A circle in which the assistant never listens. Not told where a slot that its branches read is set inside: that may end it.
fn tell_silent(graph: &Graph<'_>, facts: &Facts, circle: &[usize], findings: &mut Findings) -> bool {
    let inside: HashSet<usize> = circle.iter().copied().collect();
    let mut read: HashSet<&str> = HashSet::new();
    let mut set: HashSet<&str> = HashSet::new();
    for at in circle {
        for way in graph.ways_of(*at) {
            if let Label::If(condition) = way.label {
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
    let steps = || circle.iter().filter_map(|at| Some((*at, graph.step(*at)?)));
    let question = steps().find(|(_, step)| matches!(step.kind, StepKind::Collect(_)));
    let Some((first, step)) = question.or_else(|| steps().min_by_key(|(at, _)| *at)) else { return false };
    let is_open = |at: usize, nth: usize| facts.is_open(at, nth);
    let by = graph.path(first, &is_open, None).map(|path| format!(" Reached by: {path}.")).unwrap_or_default();
    let round = round(graph, first, &inside, &is_open);
    let calls_tool = steps().any(|(_, step)| matches!(step.kind, StepKind::Call(Call::Tool { .. })));
    let (message, help) = match &step.kind {
        StepKind::Collect(collect) => (
            format!("on the way back here `{}` is still filled, so it is not asked for again: {round}", collect.slot),
            format!(
                "Empty it on the way with `set_slots: [{{{}: null}}]`, or set `ask_before_filling: true`.",
                collect.slot
            ),
        ),
        _ if calls_tool => (
            format!("these steps go round without ever listening, for as long as the tool fails: {round}"),
            "Ask the user in between, or end the flow after a try.".to_owned(),
        ),
        _ => (
            format!("these steps go round without ever listening: {round}"),
            "Ask for something on the way round, or lead one of the steps elsewhere.".to_owned(),
        ),
    };
    findings.warning("F0240", &step.place, message, format!("{help}{by}"));
    true
}

/// The shortest way round, for people.
fn round(graph: &Graph<'_>, first: usize, inside: &HashSet<usize>, is_open: &dyn Fn(usize, usize) -> bool) -> String {
    let mut names = vec![graph.name(first)];
    let mut seen = HashSet::from([first]);
    let mut at = first;
    loop {
        let ways = graph.ways_of(at).iter().enumerate().filter(|(nth, _)| is_open(at, *nth));
        let next: Vec<usize> = ways.filter_map(|(_, way)| way.to).filter(|to| inside.contains(to)).collect();
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

/// Steps from which no way leads to the end: a user can only cancel.
fn no_way_out(graph: &Graph<'_>, facts: &Facts, all: &[usize], findings: &mut Findings) {
    let leaves = |at: usize| {
        let is_link = graph.step(at).is_some_and(|step| matches!(step.kind, StepKind::Link(_)));
        is_link
            || waits_for_others(graph, at)
            || graph.ways_of(at).iter().enumerate().any(|(nth, way)| way.to.is_none() && facts.is_open(at, nth))
    };
    let is_open = |at: usize, nth: usize| facts.is_open(at, nth);
    let last: Vec<usize> = all.iter().copied().filter(|at| leaves(*at)).collect();
    let ends = graph.leading(&last, &is_open);
    let is_stuck = |at: &&usize| !last.contains(*at) && !ends.get(**at).copied().unwrap_or(true);
    let Some((at, step)) = all.iter().find(is_stuck).and_then(|at| Some((*at, graph.step(*at)?))) else { return };
    let by = graph.path(at, &is_open, None).map(|path| format!(" Reached by: {path}.")).unwrap_or_default();
    let message = format!("from here no way leads to the end of `{}`; users can only cancel it", graph.flow.id);
    findings.warning("F0241", &step.place, message, format!("Lead one of the branches to `END`.{by}"));
}

/// Groups of steps among `nodes` that lead round to one another.
fn knots(graph: &Graph<'_>, nodes: &[usize], is_open: &dyn Fn(usize, usize) -> bool) -> Vec<Vec<usize>> {
    let among: HashSet<usize> = nodes.iter().copied().collect();
    circles(nodes.iter().flat_map(|at| {
        let ways = graph.ways_of(*at).iter().enumerate().filter(|(nth, _)| is_open(*at, *nth));
        ways.filter_map(|(_, way)| Some((*at, way.to.filter(|to| among.contains(to))?)))
    }))
}
