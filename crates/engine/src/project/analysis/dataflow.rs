//! A forward dataflow analysis of a flow: the possible abstract values of each slot before and after every step, computed up
//! to the fixed point.
//!
//! An edge that can never be taken does not propagate values, so steps that only it leads to are unreachable. Where a slot may
//! change invisibly, every value becomes possible: after a custom action, and, while the assistant waits for the user, for
//! slots that a digression or a correction may write.

use std::collections::VecDeque;

use super::{
    super::{ActionReference, Call, Collect, NextStep, Step, StepKind, builtin::LISTEN},
    flow_graph::{EdgeLabel, FlowGraph},
    project_index::{ProjectIndex, outputs},
    slot_domains::{NULL, SlotDomains, ValueSet},
};
use crate::{condition::Condition, limits::ANALYSIS_VISITS};

/// The state of the analysis before or after a step, or on an edge.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AbstractState {
    /// The possible values of each slot.
    pub(super) sets: Vec<ValueSet>,
    /// A bit set of the slots that were asked for on every path and not reset since.
    pub(super) asked: u64,
}

/// The result of the analysis of a flow.
pub(super) struct Dataflow {
    pub(super) domains: SlotDomains,
    /// The state before each step; `None`: the step is unreachable.
    pub(super) before: Vec<Option<AbstractState>>,
    /// The state after each step.
    pub(super) after: Vec<Option<AbstractState>>,
    /// For each step, which of its edges can be taken.
    pub(super) open: Vec<Vec<bool>>,
    /// For each slot that only this flow changes while the assistant waits for the user: the values that this flow may set.
    private: Vec<Option<ValueSet>>,
    /// For each slot, whether another flow writes it.
    shared: Vec<bool>,
}

impl Dataflow {
    pub(super) fn of(index: &ProjectIndex<'_>, graph: &FlowGraph<'_>) -> Self {
        let domains = domains(index, graph);
        let everything = domains.everything();
        let steps = graph.edges.len();
        let mut dataflow = Self {
            private: private(index, graph, &domains),
            shared: domains.slots.iter().map(|domain| index.is_written_outside(&domain.slot, graph.flow)).collect(),
            before: vec![None; steps],
            after: vec![None; steps],
            open: graph.edges.iter().map(|edges| vec![false; edges.len()]).collect(),
            domains,
        };
        if let Some(first) = dataflow.before.first_mut() {
            *first = Some(AbstractState { sets: everything, asked: 0 });
            dataflow.solve(index, graph);
        }
        dataflow
    }

    /// Whether the edge at position `nth` of the step `at` can be taken.
    pub(super) fn is_open(&self, at: usize, nth: usize) -> bool {
        self.open.get(at).and_then(|edges| edges.get(nth)).copied().unwrap_or(false)
    }

    /// Whether a step can be reached.
    pub(super) fn is_reached(&self, at: usize) -> bool {
        self.before.get(at).is_some_and(Option::is_some)
    }

    fn solve(&mut self, index: &ProjectIndex<'_>, graph: &FlowGraph<'_>) {
        let mut queue = VecDeque::from([0]);
        let mut visits = ANALYSIS_VISITS.saturating_mul(graph.edges.len());
        while let Some(at) = queue.pop_front() {
            let Some(state) = self.before.get(at).cloned().flatten() else { continue };
            let Some(step) = graph.step(at) else { continue };
            // Beyond the limit every value is possible everywhere, which is less precise but never wrong.
            visits = visits.saturating_sub(1);
            let failed = state.clone();
            let after = if visits == 0 { self.unknown() } else { self.transfer(index, step, state) };
            let mut edges = fork(&self.domains, step, &step.next, &after);
            if let Some(next) = &step.on_error {
                // A failed step may have had a part of its effects.
                let mut failed = Some(failed);
                join(&mut failed, after.clone());
                edges.extend(failed.map(|state| fork(&self.domains, step, next, &state)).unwrap_or_default());
            }
            for (nth, taken) in edges.into_iter().enumerate() {
                let taken = if visits == 0 { Some(after.clone()) } else { taken };
                let Some(taken) = taken else { continue };
                if let Some(open) = self.open.get_mut(at).and_then(|edges| edges.get_mut(nth)) {
                    *open = true;
                }
                let to = graph.edges_of(at).get(nth).and_then(|edge| edge.to);
                if let Some(before) = to.and_then(|to| self.before.get_mut(to))
                    && join(before, taken)
                {
                    queue.extend(to);
                }
            }
            if let Some(slot) = self.after.get_mut(at) {
                *slot = Some(after);
            }
        }
    }

    fn unknown(&self) -> AbstractState {
        AbstractState { sets: self.domains.everything(), asked: 0 }
    }

    /// The transfer function of a step.
    fn transfer(&self, index: &ProjectIndex<'_>, step: &Step, mut state: AbstractState) -> AbstractState {
        match &step.kind {
            StepKind::Collect(collect) => {
                self.listened(&mut state);
                self.collected(index, collect, &mut state);
                state
            }
            StepKind::Action(name) if index.is_own_code(name) => self.unknown(),
            StepKind::Action(ActionReference::Plain(name)) if *name == *LISTEN => {
                self.listened(&mut state);
                state
            }
            StepKind::Action(ActionReference::Plain(name)) if index.project.response(name.as_str()).is_none() => {
                self.unknown()
            }
            StepKind::SetSlots(pairs) => {
                for (slot, value) in pairs {
                    let Some(at) = self.domains.at(slot.as_str()) else { continue };
                    let assignment = self.domains.slots.get(at).map_or(0, |domain| domain.value_of(value));
                    assign(&mut state, at, assignment);
                    state.asked &= !(1 << at);
                }
                state
            }
            StepKind::Call(call) => self.called(index, call, state),
            StepKind::Action(_) | StepKind::Link(_) | StepKind::Noop => state,
        }
    }

    fn called(&self, index: &ProjectIndex<'_>, call: &Call, mut state: AbstractState) -> AbstractState {
        match call {
            Call::Flow(flow) => {
                let Some(effects) = index.effects_of(flow.as_str()) else { return self.unknown() };
                if effects.anything {
                    return self.unknown();
                }
                if effects.listens {
                    self.listened(&mut state);
                }
                effects.writes.iter().for_each(|slot| self.forget(&mut state, slot));
                state
            }
            Call::Tool { .. } => {
                outputs(index.project, call).into_iter().for_each(|slot| self.forget(&mut state, slot));
                state
            }
            Call::Agent { agent, exit_if } => {
                if index.project.agent(agent.as_str()).is_none_or(|agent| agent.module.is_some()) {
                    return self.unknown();
                }
                self.listened(&mut state);
                outputs(index.project, call).into_iter().for_each(|slot| self.forget(&mut state, slot));
                for condition in exit_if {
                    let left = self.narrowed(condition, &state.sets, true);
                    if left.iter().all(|set| *set != 0) {
                        state.sets = left;
                    }
                }
                state
            }
        }
    }

    /// The values for which a condition may be true, or may be false.
    fn narrowed(&self, condition: &Condition, within: &[ValueSet], holds: bool) -> Vec<ValueSet> {
        let mut sets = vec![0; within.len()];
        self.domains.each_assignment(std::iter::once(condition), within, &mut |assignment| {
            let possible = condition.possible_results(assignment);
            if if holds { possible.holds } else { possible.fails } {
                assignment.add_to(&mut sets, within);
            }
        });
        sets
    }

    fn forget(&self, state: &mut AbstractState, slot: &str) {
        if let Some(at) = self.domains.at(slot) {
            assign(state, at, self.domains.slots.get(at).map_or(0, super::slot_domains::SlotDomain::all));
            state.asked &= !(1 << at);
        }
    }

    /// The effects of waiting for the user: a message may fill slots early, start other flows, or correct an earlier slot, which
    /// returns to its step and reaches this step again.
    fn listened(&self, state: &mut AbstractState) {
        for (at, domain) in self.domains.slots.iter().enumerate() {
            let is_asked = state.asked & (1 << at) != 0;
            let is_shared = self.shared.get(at).copied().unwrap_or(true);
            let set = state.sets.get(at).copied().unwrap_or_default();
            let left = match self.private.get(at).copied().flatten() {
                Some(own) => set | own,
                None if is_asked && !is_shared => set,
                None => domain.all(),
            };
            assign(state, at, left);
        }
    }

    fn collected(&self, index: &ProjectIndex<'_>, collect: &Collect, state: &mut AbstractState) {
        let Some(at) = self.domains.at(collect.slot.as_str()) else { return };
        let Some(domain) = self.domains.slots.get(at) else { return };
        if !index.has_builtin_collect_pattern
            || !index.project.slot(collect.slot.as_str()).is_some_and(|slot| slot.initial.is_null())
        {
            assign(state, at, domain.all());
            return;
        }
        assign(state, at, domain.all() & !NULL);
        for rejection in &collect.rejections {
            let left = self.narrowed(&rejection.condition, &state.sets, false);
            // Rejections that reject every value are reported elsewhere; the following steps are still analysed.
            assign(state, at, left.get(at).copied().filter(|set| *set != 0).unwrap_or(domain.all() & !NULL));
        }
        state.asked |= 1 << at;
    }
}

fn assign(state: &mut AbstractState, at: usize, set: ValueSet) {
    if let Some(slot) = state.sets.get_mut(at) {
        *slot = set;
    }
}

/// Joins the state of another edge into the state before a step. Returns whether it changed.
fn join(before: &mut Option<AbstractState>, taken: AbstractState) -> bool {
    let Some(state) = before else {
        *before = Some(taken);
        return true;
    };
    let old = state.clone();
    for (set, more) in state.sets.iter_mut().zip(&taken.sets) {
        *set |= more;
    }
    state.asked &= taken.asked;
    *state != old
}

/// The state on each edge of a `next`, in order; `None`: the edge cannot be taken.
pub(super) fn fork(
    domains: &SlotDomains,
    step: &Step,
    next: &NextStep,
    state: &AbstractState,
) -> Vec<Option<AbstractState>> {
    if matches!(step.kind, StepKind::Link(_)) {
        return Vec::new();
    }
    let NextStep::Branch { branches, otherwise } = next else { return vec![Some(state.clone())] };
    let count = branches.len() + usize::from(otherwise.is_some());
    let mut taken: Vec<Option<Vec<ValueSet>>> = vec![None; count];
    let mut take = |nth: usize, assignment: &super::slot_domains::Assignment<'_>| {
        if let Some(sets) = taken.get_mut(nth) {
            assignment.add_to(sets.get_or_insert_with(|| vec![0; state.sets.len()]), &state.sets);
        }
    };
    let conditions = || branches.iter().map(|branch| &branch.condition);
    domains.each_assignment(conditions(), &state.sets, &mut |assignment| {
        for (nth, branch) in branches.iter().enumerate() {
            // The same condition above was false, so it is false here too.
            let is_twin = branches.iter().take(nth).any(|other| other.condition == branch.condition);
            let possible = branch.condition.possible_results(assignment);
            if possible.holds && !is_twin {
                take(nth, assignment);
            }
            if !possible.fails {
                return;
            }
        }
        take(branches.len(), assignment);
    });
    taken.into_iter().map(|sets| sets.map(|sets| AbstractState { sets, asked: state.asked })).collect()
}

fn domains(index: &ProjectIndex<'_>, graph: &FlowGraph<'_>) -> SlotDomains {
    let steps = || graph.flow.steps.iter();
    let branches = graph.edges.iter().flatten().filter_map(|edge| match edge.label {
        EdgeLabel::If(condition) => Some(condition),
        _ => None,
    });
    let inner = steps().flat_map(|step| match &step.kind {
        StepKind::Collect(collect) => collect.rejections.iter().map(|rejection| &rejection.condition).collect(),
        StepKind::Call(Call::Agent { exit_if, .. }) => exit_if.iter().collect(),
        _ => Vec::new(),
    });
    let constants = steps().flat_map(|step| match &step.kind {
        StepKind::SetSlots(pairs) => pairs.iter().map(|(slot, value)| (slot.as_str(), value)).collect(),
        _ => Vec::new(),
    });
    let asked = graph.flow.collects().map(|(_, collect)| collect.slot.as_str());
    SlotDomains::of(index.project, branches.chain(inner), constants, asked)
}

/// For each slot that only this flow writes and no step asks for: the values that its steps may set.
fn private(index: &ProjectIndex<'_>, graph: &FlowGraph<'_>, domains: &SlotDomains) -> Vec<Option<ValueSet>> {
    let own = |domain: &super::slot_domains::SlotDomain| {
        let slot = domain.slot.as_str();
        if index.collected.contains(slot)
            || index.is_written_outside(slot, graph.flow)
            || index.is_filled_otherwise(slot)
        {
            return None;
        }
        let mut set = 0;
        for step in &graph.flow.steps {
            match &step.kind {
                StepKind::SetSlots(pairs) => {
                    let own = pairs.iter().filter(|(name, _)| *name == slot);
                    own.for_each(|(_, value)| set |= domain.value_of(value));
                }
                StepKind::Call(call) if outputs(index.project, call).contains(&slot) => set = domain.all(),
                StepKind::Action(name) if index.is_own_code(name) => set = domain.all(),
                _ => {}
            }
        }
        Some(set)
    };
    domains.slots.iter().map(own).collect()
}
