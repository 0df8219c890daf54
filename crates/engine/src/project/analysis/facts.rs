//! What is known of slots at each step: every case that can be there on some way, followed from the start until nothing changes.
//!
//! Order matters in one place: a way that cannot be taken carries nothing on, so that what stands behind it is not counted. Where
//! something may change a slot unseen, every case comes back: an action of the author's own, and while the user is listened to
//! whatever a digression or a correction may write.

use std::collections::VecDeque;

use super::{
    super::{ActionReference, Call, Collect, NextStep, Step, StepKind, builtin::LISTEN},
    cells::{Ground, Mask, NULL},
    graph::{Graph, Label},
    survey::{Survey, outputs},
};
use crate::{condition::Condition, limits::ANALYSIS_VISITS};

/// What is known where a step begins, or where a way is taken.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Env {
    /// For each slot of the ground, the cases that can be there.
    pub(super) masks: Vec<Mask>,
    /// Slots that were asked for on every way here and not emptied since.
    pub(super) asked: u64,
}

/// The facts of one flow.
pub(super) struct Facts {
    pub(super) ground: Ground,
    /// Where each step begins; `None`: it is never reached.
    pub(super) before: Vec<Option<Env>>,
    /// Where each step has done its work.
    pub(super) after: Vec<Option<Env>>,
    /// Which ways out of each step can be taken.
    pub(super) open: Vec<Vec<bool>>,
    /// Slots of the ground that nothing but this flow changes while the user is listened to, and what this flow may set them to.
    private: Vec<Option<Mask>>,
    /// Slots of the ground that a flow beside this one writes.
    shared: Vec<bool>,
}

impl Facts {
    pub(super) fn of(survey: &Survey<'_>, graph: &Graph<'_>) -> Self {
        let ground = ground(survey, graph);
        let everything = ground.everything();
        let steps = graph.ways.len();
        let mut facts = Self {
            private: private(survey, graph, &ground),
            shared: ground.slots.iter().map(|cells| survey.is_written_outside(&cells.slot, graph.flow)).collect(),
            before: vec![None; steps],
            after: vec![None; steps],
            open: graph.ways.iter().map(|ways| vec![false; ways.len()]).collect(),
            ground,
        };
        if let Some(first) = facts.before.first_mut() {
            *first = Some(Env { masks: everything, asked: 0 });
            facts.settle(survey, graph);
        }
        facts
    }

    /// Whether a way can be taken, by the step it leaves and its position.
    pub(super) fn is_open(&self, at: usize, nth: usize) -> bool {
        self.open.get(at).and_then(|ways| ways.get(nth)).copied().unwrap_or(false)
    }

    /// Whether a step can be reached.
    pub(super) fn is_reached(&self, at: usize) -> bool {
        self.before.get(at).is_some_and(Option::is_some)
    }

    fn settle(&mut self, survey: &Survey<'_>, graph: &Graph<'_>) {
        let mut queue = VecDeque::from([0]);
        let mut visits = ANALYSIS_VISITS.saturating_mul(graph.ways.len());
        while let Some(at) = queue.pop_front() {
            let Some(env) = self.before.get(at).cloned().flatten() else { continue };
            let Some(step) = graph.step(at) else { continue };
            // Past the limit everything is possible everywhere, which is never wrong.
            visits = visits.saturating_sub(1);
            let failed = env.clone();
            let after = if visits == 0 { self.unknown() } else { self.work(survey, step, env) };
            let mut ways = fork(&self.ground, step, &step.next, &after);
            if let Some(next) = &step.on_error {
                // Half of the work may be done.
                let mut failed = Some(failed);
                join(&mut failed, after.clone());
                ways.extend(failed.map(|env| fork(&self.ground, step, next, &env)).unwrap_or_default());
            }
            for (nth, taken) in ways.into_iter().enumerate() {
                let taken = if visits == 0 { Some(after.clone()) } else { taken };
                let Some(taken) = taken else { continue };
                if let Some(open) = self.open.get_mut(at).and_then(|ways| ways.get_mut(nth)) {
                    *open = true;
                }
                let to = graph.ways_of(at).get(nth).and_then(|way| way.to);
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

    fn unknown(&self) -> Env {
        Env { masks: self.ground.everything(), asked: 0 }
    }

    /// What a step does to the slots.
    fn work(&self, survey: &Survey<'_>, step: &Step, mut env: Env) -> Env {
        match &step.kind {
            StepKind::Collect(collect) => {
                self.listened(&mut env);
                self.collected(survey, collect, &mut env);
                env
            }
            StepKind::Action(name) if survey.is_own_code(name) => self.unknown(),
            StepKind::Action(ActionReference::Plain(name)) if *name == *LISTEN => {
                self.listened(&mut env);
                env
            }
            StepKind::Action(ActionReference::Plain(name)) if survey.project.response(name.as_str()).is_none() => {
                self.unknown()
            }
            StepKind::SetSlots(pairs) => {
                for (slot, value) in pairs {
                    let Some(at) = self.ground.at(slot.as_str()) else { continue };
                    let case = self.ground.slots.get(at).map_or(0, |cells| cells.case_of(value));
                    set(&mut env, at, case);
                    env.asked &= !(1 << at);
                }
                env
            }
            StepKind::Call(call) => self.called(survey, call, env),
            StepKind::Action(_) | StepKind::Link(_) | StepKind::Noop => env,
        }
    }

    fn called(&self, survey: &Survey<'_>, call: &Call, mut env: Env) -> Env {
        match call {
            Call::Flow(flow) => {
                let Some(touch) = survey.touch_of(flow.as_str()) else { return self.unknown() };
                if touch.anything {
                    return self.unknown();
                }
                if touch.listens {
                    self.listened(&mut env);
                }
                touch.writes.iter().for_each(|slot| self.forget(&mut env, slot));
                env
            }
            Call::Tool { .. } => {
                outputs(survey.project, call).into_iter().for_each(|slot| self.forget(&mut env, slot));
                env
            }
            Call::Agent { agent, exit_if } => {
                if survey.project.agent(agent.as_str()).is_none_or(|agent| agent.module.is_some()) {
                    return self.unknown();
                }
                self.listened(&mut env);
                outputs(survey.project, call).into_iter().for_each(|slot| self.forget(&mut env, slot));
                for condition in exit_if {
                    let left = self.narrowed(condition, &env.masks, true);
                    if left.iter().all(|mask| *mask != 0) {
                        env.masks = left;
                    }
                }
                env
            }
        }
    }

    /// The masks under which a condition may hold, or may fail.
    fn narrowed(&self, condition: &Condition, within: &[Mask], holds: bool) -> Vec<Mask> {
        let mut masks = vec![0; within.len()];
        self.ground.each_case(std::iter::once(condition), within, &mut |case| {
            let possible = condition.possible_results(case);
            if if holds { possible.holds } else { possible.fails } {
                case.add_to(&mut masks, within);
            }
        });
        masks
    }

    fn forget(&self, env: &mut Env, slot: &str) {
        if let Some(at) = self.ground.at(slot) {
            set(env, at, self.ground.slots.get(at).map_or(0, super::cells::Cells::all));
            env.asked &= !(1 << at);
        }
    }

    /// The user says something: answers may be given early, other flows may run in between, an earlier answer may be changed, which
    /// goes back to its question and comes here again.
    fn listened(&self, env: &mut Env) {
        for (at, cells) in self.ground.slots.iter().enumerate() {
            let is_asked = env.asked & (1 << at) != 0;
            let is_shared = self.shared.get(at).copied().unwrap_or(true);
            let mask = env.masks.get(at).copied().unwrap_or_default();
            let left = match self.private.get(at).copied().flatten() {
                Some(own) => mask | own,
                None if is_asked && !is_shared => mask,
                None => cells.all(),
            };
            set(env, at, left);
        }
    }

    fn collected(&self, survey: &Survey<'_>, collect: &Collect, env: &mut Env) {
        let Some(at) = self.ground.at(collect.slot.as_str()) else { return };
        let Some(cells) = self.ground.slots.get(at) else { return };
        if !survey.asks_as_usual
            || !survey.project.slot(collect.slot.as_str()).is_some_and(|slot| slot.initial.is_null())
        {
            set(env, at, cells.all());
            return;
        }
        set(env, at, cells.all() & !NULL);
        for rejection in &collect.rejections {
            let left = self.narrowed(&rejection.condition, &env.masks, false);
            // Rejections that refuse everything are told elsewhere; what stands behind them is still looked at.
            set(env, at, left.get(at).copied().filter(|mask| *mask != 0).unwrap_or(cells.all() & !NULL));
        }
        env.asked |= 1 << at;
    }
}

fn set(env: &mut Env, at: usize, mask: Mask) {
    if let Some(slot) = env.masks.get_mut(at) {
        *slot = mask;
    }
}

/// Adds what comes on one more way; whether that changed anything.
fn join(before: &mut Option<Env>, taken: Env) -> bool {
    let Some(env) = before else {
        *before = Some(taken);
        return true;
    };
    let old = env.clone();
    for (mask, more) in env.masks.iter_mut().zip(&taken.masks) {
        *mask |= more;
    }
    env.asked &= taken.asked;
    *env != old
}

/// For each way by one `next` of a step, in order: what is known when it is taken; `None` where it cannot be.
pub(super) fn fork(ground: &Ground, step: &Step, next: &NextStep, env: &Env) -> Vec<Option<Env>> {
    if matches!(step.kind, StepKind::Link(_)) {
        return Vec::new();
    }
    let NextStep::Branch { branches, otherwise } = next else { return vec![Some(env.clone())] };
    let count = branches.len() + usize::from(otherwise.is_some());
    let mut taken: Vec<Option<Vec<Mask>>> = vec![None; count];
    let mut take = |nth: usize, case: &super::cells::Case<'_>| {
        if let Some(masks) = taken.get_mut(nth) {
            case.add_to(masks.get_or_insert_with(|| vec![0; env.masks.len()]), &env.masks);
        }
    };
    let conditions = || branches.iter().map(|branch| &branch.condition);
    ground.each_case(conditions(), &env.masks, &mut |case| {
        for (nth, branch) in branches.iter().enumerate() {
            // The very same words above cannot have failed here and hold now.
            let is_twin = branches.iter().take(nth).any(|other| other.condition == branch.condition);
            let possible = branch.condition.possible_results(case);
            if possible.holds && !is_twin {
                take(nth, case);
            }
            if !possible.fails {
                return;
            }
        }
        take(branches.len(), case);
    });
    taken.into_iter().map(|masks| masks.map(|masks| Env { masks, asked: env.asked })).collect()
}

fn ground(survey: &Survey<'_>, graph: &Graph<'_>) -> Ground {
    let steps = || graph.flow.steps.iter();
    let branches = graph.ways.iter().flatten().filter_map(|way| match way.label {
        Label::If(condition) => Some(condition),
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
    Ground::of(survey.project, branches.chain(inner), constants, asked)
}

/// For each slot that nothing but this flow writes and nobody is asked for: what its steps may set it to.
fn private(survey: &Survey<'_>, graph: &Graph<'_>, ground: &Ground) -> Vec<Option<Mask>> {
    let own = |cells: &super::cells::Cells| {
        let slot = cells.slot.as_str();
        if survey.collected.contains(slot)
            || survey.is_written_outside(slot, graph.flow)
            || survey.is_filled_otherwise(slot)
        {
            return None;
        }
        let mut mask = 0;
        for step in &graph.flow.steps {
            match &step.kind {
                StepKind::SetSlots(pairs) => {
                    let own = pairs.iter().filter(|(name, _)| *name == slot);
                    own.for_each(|(_, value)| mask |= cells.case_of(value));
                }
                StepKind::Call(call) if outputs(survey.project, call).contains(&slot) => mask = cells.all(),
                StepKind::Action(name) if survey.is_own_code(name) => mask = cells.all(),
                _ => {}
            }
        }
        Some(mask)
    };
    ground.slots.iter().map(own).collect()
}
