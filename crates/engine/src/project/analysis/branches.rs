//! Branches: those that cannot hold, always hold, or are never come to, and `else` that nothing is left for.

use super::{
    super::{Branch, NextStep, Otherwise, Step},
    cells::{Ground, Mask},
    facts::{Env, Facts, fork},
    graph::Graph,
    survey::Survey,
};
use crate::{
    condition::Condition,
    finding::{Findings, SourceLocation},
};

pub(super) fn check(survey: &Survey<'_>, graph: &Graph<'_>, facts: &Facts, findings: &mut Findings) {
    for (at, step) in graph.flow.steps.iter().enumerate() {
        let NextStep::Branch { branches, otherwise } = &step.next else { continue };
        let Some(env) = facts.after.get(at).and_then(Option::as_ref) else { continue };
        let seen = Seen { survey, graph, facts, at, step, env };
        for (nth, branch) in branches.iter().enumerate() {
            seen.branch(nth, branch, branches, findings);
        }
        if let Some(otherwise) = otherwise.as_ref().filter(|_| !facts.is_open(at, branches.len())) {
            seen.no_else(branches, otherwise, findings);
        }
    }
}

/// One step with branches, and what is known there.
struct Seen<'s, 'p> {
    survey: &'s Survey<'p>,
    graph: &'s Graph<'p>,
    facts: &'s Facts,
    at: usize,
    step: &'p Step,
    env: &'s Env,
}

impl Seen<'_, '_> {
    fn place(&self, condition: &Condition) -> SourceLocation {
        condition.place().unwrap_or(&self.step.place).clone()
    }

    fn reached_by(&self, by: Option<&str>) -> String {
        let is_open = |at: usize, nth: usize| self.facts.is_open(at, nth);
        self.graph.path(self.at, &is_open, by).map(|path| format!(" Reached by: {path}.")).unwrap_or_default()
    }

    fn branch(&self, nth: usize, branch: &Branch, branches: &[Branch], findings: &mut Findings) {
        let condition = &branch.condition;
        if self.survey.is_told(condition) {
            return;
        }
        let ground = &self.facts.ground;
        let place = self.place(condition);
        let by = self.reached_by(Some(condition.text()));
        if let Some(always) = decided(ground, condition, &ground.everything()) {
            // A constant is meant, unless it hides what stands below or never opens.
            match (always, condition.as_constant()) {
                (true, None) => {
                    let message = format!("this always holds, whatever the slots are: `{condition}`");
                    let help = format!(
                        "Correct the condition; an `or` between two `!=` is always true, `and` may be meant.{by}"
                    );
                    findings.warning("F0411", &place, message, help);
                }
                (true, Some(_)) => {}
                (false, _) => {
                    let message = format!("this can never hold, whatever the slots are: `{condition}`");
                    let help = format!(
                        "Correct the condition, or remove the branch; `or` may be meant in place of `and`.{by}"
                    );
                    findings.warning("F0410", &place, message, help);
                }
            }
            return;
        }
        if self.facts.is_open(self.at, nth) {
            return;
        }
        let everywhere = Env { masks: ground.everything(), asked: 0 };
        let is_hidden = fork(ground, self.step, &self.step.next, &everywhere).get(nth).is_some_and(Option::is_none);
        if is_hidden {
            let above = |other: &&Branch| !self.survey.is_told(&other.condition);
            let twin = branches.iter().take(nth).filter(above).find(|other| other.condition == *condition);
            let (message, help) = match twin {
                Some(_) => (
                    format!("the same condition stands above, so this branch is never taken: `{condition}`"),
                    "Remove one of the two, or correct the condition.",
                ),
                None => (
                    format!("the branches above take every case of this one, so it is never taken: `{condition}`"),
                    "Move the narrower branch up, or correct the condition.",
                ),
            };
            findings.warning("F0412", &place, message, format!("{help}{by}"));
        } else {
            let known = self.known(condition);
            let message = format!("this cannot hold here: {known}");
            let help = format!("Correct the condition, or remove the branch.{by}");
            findings.warning("F0413", &place, message, help);
        }
    }

    /// What is known of the slots that a condition reads.
    fn known(&self, condition: &Condition) -> String {
        let ground = &self.facts.ground;
        let mut known = Vec::new();
        for at in condition.slots().filter_map(|slot| ground.at(slot)) {
            let (Some(cells), Some(mask)) = (ground.slots.get(at), self.env.masks.get(at)) else { continue };
            if *mask != cells.all() {
                known.push(format!("`{}` is {}", cells.slot, cells.said(*mask)));
            }
        }
        if known.is_empty() { "the branches above leave nothing for it".to_owned() } else { known.join(", ") }
    }

    /// `else` must stand there, so this is only worth a note; not where a branch above is at fault, which was told.
    fn no_else(&self, branches: &[Branch], otherwise: &Otherwise, findings: &mut Findings) {
        let ground = &self.facts.ground;
        let is_at_fault = |branch: &Branch| {
            branch.condition.as_constant() == Some(true)
                || self.survey.is_told(&branch.condition)
                || decided(ground, &branch.condition, &ground.everything()) == Some(true)
        };
        if branches.iter().any(is_at_fault) {
            return;
        }
        let way = self.graph.ways_of(self.at).get(branches.len());
        let lost = way.and_then(|way| way.to).filter(|to| !self.facts.is_reached(*to));
        let lost = lost.and_then(|to| self.graph.step(to)).map(|step| &step.place);
        let place = lost.unwrap_or(&otherwise.place);
        let message = "`else` is never taken: the branches above take every case";
        let help = format!("Fine as a safeguard; what stands there is never run.{}", self.reached_by(Some("else")));
        findings.note("F0414", place, message, help);
    }
}

/// Whether a condition always holds or never, within these cases; `None`: it depends.
pub(super) fn decided(ground: &Ground, condition: &Condition, within: &[Mask]) -> Option<bool> {
    let (mut holds, mut fails) = (false, false);
    ground.each_case(std::iter::once(condition), within, &mut |case| {
        let possible = condition.possible_results(case);
        holds |= possible.holds;
        fails |= possible.fails;
    });
    match (holds, fails) {
        (true, false) => Some(true),
        (false, true) => Some(false),
        _ => None,
    }
}
