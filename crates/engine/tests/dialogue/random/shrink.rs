//! Shortens a failed conversation while the same invariant is violated: fewer turns, fewer commands, default outcomes,
//! fewer flows and steps.

use super::{
    conversation::{Failure, RandomConversation, replay},
    plan::{Plan, Step, drop_flow, drop_step, settle},
};

/// The shortest conversation found within this number of attempts.
pub(crate) fn shrink(
    conversation: RandomConversation,
    failure: Failure,
    tries: usize,
) -> (RandomConversation, Failure) {
    let mut search = Shrinker { best: conversation, failure, tries };
    search.cut_tail();
    loop {
        let before = search.best.clone();
        search.turns();
        search.turn_contents();
        search.flows();
        if search.best == before || search.tries == 0 {
            return (search.best, search.failure);
        }
    }
}

struct Shrinker {
    best: RandomConversation,
    failure: Failure,
    tries: usize,
}

impl Shrinker {
    /// Keeps a conversation if it violates the same invariant.
    fn accept_if_failing(&mut self, mut conversation: RandomConversation) -> bool {
        if self.tries == 0 || conversation == self.best || conversation.turns.is_empty() {
            return false;
        }
        self.tries -= 1;
        match replay(&mut conversation, |_| false) {
            Err(failure) if failure.violation.rule == self.failure.violation.rule => {
                conversation.turns.truncate(failure.turn + 1);
                (self.best, self.failure) = (conversation, failure);
                true
            }
            _ => false,
        }
    }

    fn cut_tail(&mut self) {
        let mut conversation = self.best.clone();
        conversation.turns.truncate(self.failure.turn + 1);
        // Even without a change: from here on the recorded outcomes are used.
        if !self.accept_if_failing(conversation.clone()) {
            self.best = conversation;
        }
    }

    /// Removes turns: halves first, then smaller parts.
    fn turns(&mut self) {
        let mut size = self.best.turns.len().div_ceil(2);
        while size > 0 {
            let mut at = 0;
            while at < self.best.turns.len() {
                let mut conversation = self.best.clone();
                conversation.turns.drain(at..(at + size).min(conversation.turns.len()));
                if !self.accept_if_failing(conversation) {
                    at += size;
                }
            }
            size /= 2;
        }
    }

    /// Removes commands, outcomes, waiting times and deployments from turns.
    fn turn_contents(&mut self) {
        for at in 0..self.best.turns.len() {
            let mut which = 0;
            while at < self.best.turns.len() && which < self.best.turns[at].commands.len() {
                let mut conversation = self.best.clone();
                conversation.turns[at].commands.remove(which);
                if !self.accept_if_failing(conversation) {
                    which += 1;
                }
            }
            let calmer: [fn(&mut super::conversation::UserTurn); 5] = [
                |said| said.outcomes.clear(),
                |said| said.wait = 0.0,
                |said| said.new_version = None,
                |said| said.interrupt_after = None,
                |said| said.metadata.clear(),
            ];
            for calm in calmer {
                if at >= self.best.turns.len() {
                    return;
                }
                let mut conversation = self.best.clone();
                calm(&mut conversation.turns[at]);
                self.accept_if_failing(conversation);
            }
        }
    }

    /// Applies the same change to every version of the project in the conversation.
    fn try_plan(&mut self, change: impl Fn(&mut Plan)) -> bool {
        let mut conversation = self.best.clone();
        change(&mut conversation.plan);
        for said in &mut conversation.turns {
            if let Some(plan) = &mut said.new_version {
                change(plan);
            }
        }
        self.accept_if_failing(conversation)
    }

    fn flows(&mut self) {
        self.try_plan(|plan| {
            plan.own_patterns.clear();
            (plan.every_turn, plan.compat, plan.shortcuts, plan.carry_over) = (false, None, true, true);
        });
        self.try_plan(|plan| plan.own_patterns.clear());
        let numbers: Vec<usize> = self.best.plan.flows.iter().map(|flow| flow.number).collect();
        for number in numbers.into_iter().rev() {
            let of = move |plan: &Plan| plan.flows.iter().position(|flow| flow.number == number);
            self.try_plan(|plan| {
                if let Some(at) = of(plan).filter(|_| number > 0) {
                    drop_flow(plan, at);
                }
            });
            self.try_plan(|plan| {
                if let Some(at) = of(plan) {
                    let flow = &mut plan.flows[at];
                    flow.persisted.clear();
                    flow.guard = flow.guard.filter(|_| flow.child);
                    (flow.trigger, flow.told) = (false, true);
                }
            });
            let mut step = 0;
            while let Some(at) = of(&self.best.plan) {
                if step >= self.best.plan.flows[at].steps.len() {
                    break;
                }
                let shorter = self.try_plan(|plan| {
                    if let Some(at) = of(plan).filter(|at| plan.flows[*at].steps.len() > step) {
                        drop_step(plan, at, step);
                    }
                });
                if !shorter {
                    self.try_plan(|plan| {
                        if let Some(flow) =
                            of(plan).map(|at| &mut plan.flows[at]).filter(|flow| flow.steps.len() > step)
                        {
                            simpler(&mut flow.steps[step]);
                            settle(flow);
                        }
                    });
                    step += 1;
                }
            }
        }
    }
}

fn simpler(step: &mut Step) {
    match step {
        Step::Collect { slot, .. } => *step = Step::Collect { slot, always: false, forced: false, stays: false },
        Step::Branch { then, otherwise, .. } => {
            then.truncate(1);
            otherwise.clear();
        }
        Step::Set(values) => values.truncate(1),
        _ => {}
    }
}
