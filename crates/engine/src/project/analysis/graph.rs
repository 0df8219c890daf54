//! The ways through a flow: a step per node, what may follow it, and the shortest way to a step.

use std::collections::VecDeque;

use super::super::{Call, Flow, NameText, NextStep, Step, StepKind, Target};
use crate::{condition::Condition, limits::PATH_STEPS};

/// Why a way is taken.
#[derive(Clone, Copy, Debug)]
pub(super) enum Label<'p> {
    /// Nothing else follows.
    On,
    /// This branch holds.
    If(&'p Condition),
    /// No branch holds.
    Else,
}

/// One way out of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way<'p> {
    /// The step it leads to; `None`: the end.
    pub(super) to: Option<usize>,
    /// Why.
    pub(super) label: Label<'p>,
    /// Whether it is taken when the step fails.
    pub(super) on_error: bool,
}

/// A flow as a graph.
pub(super) struct Graph<'p> {
    pub(super) flow: &'p Flow,
    /// The ways out of each step, in the order in which they are tried.
    pub(super) ways: Vec<Vec<Way<'p>>>,
}

impl<'p> Graph<'p> {
    pub(super) fn of(flow: &'p Flow) -> Self {
        let ways = flow.steps.iter().map(|step| ways(flow, step)).collect();
        Self { flow, ways }
    }

    pub(super) fn step(&self, at: usize) -> Option<&'p Step> {
        self.flow.steps.get(at)
    }

    pub(super) fn ways_of(&self, at: usize) -> &[Way<'p>] {
        self.ways.get(at).map_or(&[], Vec::as_slice)
    }

    /// Steps reached from any of `from` over ways that `is_open` allows; those themselves only if a way leads back.
    pub(super) fn reached(&self, from: &[usize], is_open: &dyn Fn(usize, usize) -> bool) -> Vec<bool> {
        let mut reached = vec![false; self.ways.len()];
        let mut open = from.to_vec();
        while let Some(at) = open.pop() {
            for (nth, way) in self.ways_of(at).iter().enumerate() {
                let Some(to) = way.to.filter(|_| is_open(at, nth)) else { continue };
                if let Some(seen) = reached.get_mut(to).filter(|seen| !**seen) {
                    *seen = true;
                    open.push(to);
                }
            }
        }
        reached
    }

    /// Steps from which a way leads to any of `to`; those themselves only if a way leads back.
    pub(super) fn leading(&self, to: &[usize], is_open: &dyn Fn(usize, usize) -> bool) -> Vec<bool> {
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); self.ways.len()];
        for (at, ways) in self.ways.iter().enumerate() {
            let open = ways.iter().enumerate().filter(|(nth, _)| is_open(at, *nth));
            for to in open.filter_map(|(_, way)| way.to) {
                before.get_mut(to).into_iter().for_each(|list| list.push(at));
            }
        }
        let mut leading = vec![false; self.ways.len()];
        let mut open = to.to_vec();
        while let Some(at) = open.pop() {
            for from in before.get(at).into_iter().flatten().copied() {
                if let Some(seen) = leading.get_mut(from).filter(|seen| !**seen) {
                    *seen = true;
                    open.push(from);
                }
            }
        }
        leading
    }

    /// The shortest way from the start to a step, for people: `start → ask_amount → [slots.amount > 10] → x`. `by` is added as
    /// the last mark in brackets. `None` where no way leads.
    pub(super) fn path(&self, to: usize, is_open: &dyn Fn(usize, usize) -> bool, by: Option<&str>) -> Option<String> {
        let mut from: Vec<Option<(usize, usize)>> = vec![None; self.ways.len()];
        let mut queue = VecDeque::from([0]);
        let mut seen = vec![false; self.ways.len()];
        *seen.first_mut()? = true;
        while let Some(at) = queue.pop_front().filter(|at| *at != to) {
            for (nth, way) in self.ways_of(at).iter().enumerate() {
                let Some(next) = way.to.filter(|_| is_open(at, nth)) else { continue };
                if let (Some(seen), Some(from)) = (seen.get_mut(next).filter(|seen| !**seen), from.get_mut(next)) {
                    *seen = true;
                    *from = Some((at, nth));
                    queue.push_back(next);
                }
            }
        }
        seen.get(to).filter(|seen| **seen)?;
        let mut parts = Vec::new();
        let mut at = to;
        loop {
            parts.push(self.name(at));
            let Some((before, nth)) = from.get(at).copied().flatten() else { break };
            parts.extend(self.ways_of(before).get(nth).and_then(said));
            at = before;
        }
        parts.push("start".to_owned());
        parts.reverse();
        parts.extend(by.map(|by| format!("[{by}]")));
        if parts.len() > PATH_STEPS {
            let half = PATH_STEPS / 2;
            parts.splice(half..parts.len() - half, ["…".to_owned()]);
        }
        Some(parts.join(" → "))
    }

    /// The step as people know it: its id, or what it does.
    pub(super) fn name(&self, at: usize) -> String {
        self.step(at).map_or_else(String::new, |step| step_name(self.flow, step, at))
    }
}

/// The step as people know it: the id they gave it, or what it does.
pub(in super::super) fn step_name(flow: &Flow, step: &Step, at: usize) -> String {
    if !step.id.as_str().starts_with(&format!("{}_{at}_", flow.id)) {
        return step.id.to_string();
    }
    match &step.kind {
        StepKind::Collect(collect) => format!("collect {}", collect.slot),
        StepKind::Action(NameText::Plain(name)) => name.to_string(),
        StepKind::Action(NameText::Template(_)) => "action".to_owned(),
        StepKind::SetSlots(pairs) => {
            format!("set {}", pairs.iter().map(|(slot, _)| slot.as_str()).collect::<Vec<_>>().join(", "))
        }
        StepKind::Call(Call::Flow(flow)) => format!("call {flow}"),
        StepKind::Call(Call::Agent { agent, .. }) => format!("call {agent}"),
        StepKind::Call(Call::Tool { tool, .. }) => format!("call {tool}"),
        StepKind::Link(flow) => format!("link {flow}"),
        StepKind::Noop => "noop".to_owned(),
    }
}

fn said(way: &Way<'_>) -> Option<String> {
    let said = match way.label {
        Label::On if way.on_error => return Some("[on error]".to_owned()),
        Label::On => return None,
        Label::If(condition) => condition.to_string(),
        Label::Else => "else".to_owned(),
    };
    Some(if way.on_error { format!("[on error: {said}]") } else { format!("[{said}]") })
}

/// The ways by `next`, then those by `on_error`.
fn ways<'p>(flow: &'p Flow, step: &'p Step) -> Vec<Way<'p>> {
    if matches!(step.kind, StepKind::Link(_)) {
        return Vec::new();
    }
    let failing = step.on_error.iter().flat_map(|next| ways_by(flow, next, true));
    ways_by(flow, &step.next, false).into_iter().chain(failing).collect()
}

fn ways_by<'p>(flow: &'p Flow, next: &'p NextStep, on_error: bool) -> Vec<Way<'p>> {
    let to = |target: &Target| match target {
        Target::Step(id) => flow.index.get(id).copied(),
        Target::End => None,
    };
    let way = |target: &Target, label: Label<'p>| Way { to: to(target), label, on_error };
    match next {
        NextStep::Go(target) => vec![way(target, Label::On)],
        NextStep::Branch { branches, otherwise } => {
            let branches = branches.iter().map(|one| way(&one.target, Label::If(&one.condition)));
            branches.chain(otherwise.as_ref().map(|target| way(target, Label::Else))).collect()
        }
    }
}
