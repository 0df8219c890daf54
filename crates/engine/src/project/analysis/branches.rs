//! Checks branches: conditions that are always or never true, branches that are never taken, and an unused `else`.

use super::{
    super::{Branch, NextStep, Otherwise, Step},
    dataflow::{AbstractState, Dataflow, fork},
    flow_graph::FlowGraph,
    project_index::ProjectIndex,
    slot_domains::{SlotDomains, ValueSet},
};
use crate::{
    condition::Condition,
    finding::{Findings, SourceLocation},
};

pub(super) fn check(index: &ProjectIndex<'_>, graph: &FlowGraph<'_>, dataflow: &Dataflow, findings: &mut Findings) {
    for (at, step) in graph.flow.steps.iter().enumerate() {
        let NextStep::Branch { branches, otherwise } = &step.next else { continue };
        let Some(state) = dataflow.after.get(at).and_then(Option::as_ref) else { continue };
        let seen = BranchingStep { index, graph, dataflow, at, step, state };
        for (nth, branch) in branches.iter().enumerate() {
            seen.branch(nth, branch, branches, findings);
        }
        if let Some(otherwise) = otherwise.as_ref().filter(|_| !dataflow.is_open(at, branches.len())) {
            seen.no_else(branches, otherwise, findings);
        }
    }
}

/// A step with branches and the state after it.
struct BranchingStep<'s, 'p> {
    index: &'s ProjectIndex<'p>,
    graph: &'s FlowGraph<'p>,
    dataflow: &'s Dataflow,
    at: usize,
    step: &'p Step,
    state: &'s AbstractState,
}

impl BranchingStep<'_, '_> {
    fn place(&self, condition: &Condition) -> SourceLocation {
        condition.place().unwrap_or(&self.step.place).clone()
    }

    fn reached_by(&self, by: Option<&str>) -> String {
        let is_open = |at: usize, nth: usize| self.dataflow.is_open(at, nth);
        self.graph.path(self.at, &is_open, by).map(|path| format!(" Reached by: {path}.")).unwrap_or_default()
    }

    fn branch(&self, nth: usize, branch: &Branch, branches: &[Branch], findings: &mut Findings) {
        let condition = &branch.condition;
        if self.index.is_reported(condition) {
            return;
        }
        let domains = &self.dataflow.domains;
        let place = self.place(condition);
        let by = self.reached_by(Some(condition.text()));
        if let Some(always) = decided(domains, condition, &domains.everything()) {
            // A constant `true` is intended; it only hides the branches below, which are reported themselves.
            match (always, condition.as_constant()) {
                (true, None) => {
                    let message = format!("this is always true, for all values of the slots: `{condition}`");
                    let help = format!("Correct the condition; an `or` of two `!=` is always true, use `and`.{by}");
                    findings.warning("F0411", &place, message, help);
                }
                (true, Some(_)) => {}
                (false, _) => {
                    let message = format!("this is never true, for any values of the slots: `{condition}`");
                    let help =
                        format!("Correct the condition (such as `or` instead of `and`), or remove the branch.{by}");
                    findings.warning("F0410", &place, message, help);
                }
            }
            return;
        }
        if self.dataflow.is_open(self.at, nth) {
            return;
        }
        let everywhere = AbstractState { sets: domains.everything(), asked: 0 };
        let is_hidden = fork(domains, self.step, &self.step.next, &everywhere).get(nth).is_some_and(Option::is_none);
        if is_hidden {
            let above = |other: &&Branch| !self.index.is_reported(&other.condition);
            let twin = branches.iter().take(nth).filter(above).find(|other| other.condition == *condition);
            let (message, help) = match twin {
                Some(_) => (
                    format!("a branch above has the same condition, so this branch is never taken: `{condition}`"),
                    "Remove one of the two, or correct the condition.",
                ),
                None => (
                    format!("the branches above cover every case of this branch, so it is never taken: `{condition}`"),
                    "Move the more specific branch up, or correct the condition.",
                ),
            };
            findings.warning("F0412", &place, message, format!("{help}{by}"));
        } else {
            let known = self.known(condition);
            let message = format!("this is never true here: {known}");
            let help = format!("Correct the condition, or remove the branch.{by}");
            findings.warning("F0413", &place, message, help);
        }
    }

    /// The possible values of the slots that a condition reads, for a message.
    fn known(&self, condition: &Condition) -> String {
        let domains = &self.dataflow.domains;
        let mut known = Vec::new();
        for at in condition.slots().filter_map(|slot| domains.at(slot)) {
            let (Some(domain), Some(set)) = (domains.slots.get(at), self.state.sets.get(at)) else { continue };
            if *set != domain.all() {
                known.push(format!("`{}` is {}", domain.slot, domain.describe(*set)));
            }
        }
        if known.is_empty() { "the branches above cover every case".to_owned() } else { known.join(", ") }
    }

    /// An unused `else` is only a note, because `else` is required. There is no finding if it is the consequence of a branch that
    /// is already reported.
    fn no_else(&self, branches: &[Branch], otherwise: &Otherwise, findings: &mut Findings) {
        let domains = &self.dataflow.domains;
        let is_at_fault = |branch: &Branch| {
            branch.condition.as_constant() == Some(true)
                || self.index.is_reported(&branch.condition)
                || decided(domains, &branch.condition, &domains.everything()) == Some(true)
        };
        if branches.iter().any(is_at_fault) {
            return;
        }
        let edge = self.graph.edges_of(self.at).get(branches.len());
        let lost = edge.and_then(|edge| edge.to).filter(|to| !self.dataflow.is_reached(*to));
        let lost = lost.and_then(|to| self.graph.step(to)).map(|step| &step.place);
        let place = lost.unwrap_or(&otherwise.place);
        let message = "`else` is never taken: the branches above cover every case";
        let help = format!("Its steps never run. Ignore this if it is a safeguard.{}", self.reached_by(Some("else")));
        findings.note("F0414", place, message, help);
    }
}

/// Whether a condition is always true or always false for these values; `None`: it depends on the values.
pub(super) fn decided(domains: &SlotDomains, condition: &Condition, within: &[ValueSet]) -> Option<bool> {
    let (mut holds, mut fails) = (false, false);
    domains.each_assignment(std::iter::once(condition), within, &mut |assignment| {
        let possible = condition.possible_results(assignment);
        holds |= possible.holds;
        fails |= possible.fails;
    });
    match (holds, fails) {
        (true, false) => Some(true),
        (false, true) => Some(false),
        _ => None,
    }
}
