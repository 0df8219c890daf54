//! Making a story that goes wrong shorter, as long as the same invariant breaks: fewer turns, fewer commands, a calmer world,
//! fewer flows and steps.

use super::{
    plan::{Plan, Step, drop_flow, drop_step, settle},
    story::{Story, Wrong, tell},
};

/// The shortest story found within so many tries.
pub(crate) fn shrink(story: Story, wrong: Wrong, tries: usize) -> (Story, Wrong) {
    let mut search = Search { best: story, wrong, tries };
    search.cut_tail();
    loop {
        let before = search.best.clone();
        search.turns();
        search.words();
        search.flows();
        if search.best == before || search.tries == 0 {
            return (search.best, search.wrong);
        }
    }
}

struct Search {
    best: Story,
    wrong: Wrong,
    tries: usize,
}

impl Search {
    /// Keeps a story if the same invariant breaks in it.
    fn keep(&mut self, mut story: Story) -> bool {
        if self.tries == 0 || story == self.best || story.turns.is_empty() {
            return false;
        }
        self.tries -= 1;
        match tell(&mut story, |_| false) {
            Err(wrong) if wrong.breach.rule == self.wrong.breach.rule => {
                story.turns.truncate(wrong.turn + 1);
                (self.best, self.wrong) = (story, wrong);
                true
            }
            _ => false,
        }
    }

    fn cut_tail(&mut self) {
        let mut story = self.best.clone();
        story.turns.truncate(self.wrong.turn + 1);
        // Even if it is told as it is: from here on the world answers as written.
        if !self.keep(story.clone()) {
            self.best = story;
        }
    }

    /// Takes turns out: halves first, then ever smaller parts.
    fn turns(&mut self) {
        let mut size = self.best.turns.len().div_ceil(2);
        while size > 0 {
            let mut at = 0;
            while at < self.best.turns.len() {
                let mut story = self.best.clone();
                story.turns.drain(at..(at + size).min(story.turns.len()));
                if !self.keep(story) {
                    at += size;
                }
            }
            size /= 2;
        }
    }

    /// Takes commands, answers, waiting and deploys out of turns.
    fn words(&mut self) {
        for at in 0..self.best.turns.len() {
            let mut which = 0;
            while at < self.best.turns.len() && which < self.best.turns[at].commands.len() {
                let mut story = self.best.clone();
                story.turns[at].commands.remove(which);
                if !self.keep(story) {
                    which += 1;
                }
            }
            let calmer: [fn(&mut super::story::Said); 5] = [
                |said| said.answers.clear(),
                |said| said.wait = 0.0,
                |said| said.becomes = None,
                |said| said.cut = None,
                |said| said.metadata.clear(),
            ];
            for calm in calmer {
                if at >= self.best.turns.len() {
                    return;
                }
                let mut story = self.best.clone();
                calm(&mut story.turns[at]);
                self.keep(story);
            }
        }
    }

    /// Changes the project in the same way wherever the story has an edition of it.
    fn try_plan(&mut self, change: impl Fn(&mut Plan)) -> bool {
        let mut story = self.best.clone();
        change(&mut story.plan);
        for said in &mut story.turns {
            if let Some(plan) = &mut said.becomes {
                change(plan);
            }
        }
        self.keep(story)
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
