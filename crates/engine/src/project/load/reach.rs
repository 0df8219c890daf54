//! What a flow can still do from each of its steps, as a hash. By it a conversation in mid-flow finds its step again in a
//! changed project, or learns that the change concerns it.

use std::collections::HashMap;

use super::super::{NextStep, Step, Target, yaml::Node};
use crate::{ids::StepId, stable_hash::StableHash};

/// Steps of a flow up to which every step has a hash of its own; the work grows with their square. In a longer flow every
/// change concerns every step.
const STEPS: usize = 400;

/// Keys of a step that do not change what it does, or are told by what follows it.
const OUTSIDE: [&str; 5] = ["id", "next", "on_error", "metadata", "description"];

/// A hash over what one step does by itself.
pub(super) fn own(node: &Node) -> u32 {
    let entries = node.map().unwrap_or_default().iter().filter(|entry| !OUTSIDE.contains(&entry.key.as_str()));
    entries.fold(StableHash::new(), |hash, entry| hash.text(&entry.key).json(&entry.node.json())).value()
}

/// Turns the steps' own hashes into those of all that can follow them.
pub(super) fn fill(steps: &mut [Step], index: &HashMap<StepId, usize>) {
    let ways: Vec<Way> = steps.iter().map(|step| Way::of(step, index)).collect();
    let all = |from: usize| if ways.len() > STEPS { whole(&ways) } else { reach(&ways, from) };
    let filled: Vec<u32> = (0..ways.len()).map(all).collect();
    steps.iter_mut().zip(filled).for_each(|(step, reach)| step.reach = reach);
}

/// A step as a node of a graph: what it does, and where it leads; `None` is the end.
struct Way {
    own: u32,
    to: Vec<Option<usize>>,
}

impl Way {
    fn of(step: &Step, index: &HashMap<StepId, usize>) -> Self {
        let place = |target: &Target| match target {
            Target::Step(id) => index.get(id).copied(),
            Target::End => None,
        };
        let mut own = StableHash::from_value(step.reach);
        for next in std::iter::once(&step.next).chain(&step.on_error) {
            if let NextStep::Branch { branches, .. } = next {
                own = branches.iter().fold(own, |hash, branch| hash.text(branch.condition.text()));
            }
        }
        Self { own: own.value(), to: step.exits().map(place).collect() }
    }
}

/// A hash over everything that can be reached, in the order in which it is first seen.
fn reach(ways: &[Way], from: usize) -> u32 {
    let mut seen = vec![from];
    let mut hash = StableHash::new();
    let mut at = 0;
    while let Some(way) = seen.get(at).and_then(|step| ways.get(*step)) {
        hash = hash.number(way.own);
        for to in &way.to {
            let order = to.map(|to| {
                seen.iter().position(|step| *step == to).unwrap_or_else(|| {
                    seen.push(to);
                    seen.len() - 1
                })
            });
            hash = hash.number(order.and_then(|order| u32::try_from(order).ok()).unwrap_or(u32::MAX));
        }
        at += 1;
    }
    // 0 stands for "not known" in a frame.
    hash.value().max(1)
}

fn whole(ways: &[Way]) -> u32 {
    ways.iter().fold(StableHash::new(), |hash, way| hash.number(way.own)).value().max(1)
}
