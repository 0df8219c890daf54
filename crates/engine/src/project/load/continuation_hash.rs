//! A hash of everything that a flow can do from a step on. With it an active conversation finds its step again after the
//! project has changed, or detects that the change affects it.

use std::collections::HashMap;

use super::super::{NextStep, Step, Target, yaml::Node};
use crate::{ids::StepId, stable_hash::StableHash};

/// The maximum number of steps of a flow whose steps have individual hashes, because the cost is quadratic. In a longer flow
/// every change affects every step.
const STEPS: usize = 400;

/// Keys of a step that do not change its behaviour, or that are hashed with the following steps.
const EXCLUDED_KEYS: [&str; 5] = ["id", "next", "on_error", "metadata", "description"];

/// A hash of a single step.
pub(super) fn own(node: &Node) -> u32 {
    let entries = node.map().unwrap_or_default().iter().filter(|entry| !EXCLUDED_KEYS.contains(&entry.key.as_str()));
    entries.fold(StableHash::new(), |hash, entry| hash.text(&entry.key).json(&entry.node.json())).value()
}

/// Replaces the hash of each single step by that of the step with all steps that can follow it.
pub(super) fn fill(steps: &mut [Step], index: &HashMap<StepId, usize>) {
    let ways: Vec<StepNode> = steps.iter().map(|step| StepNode::of(step, index)).collect();
    let all = |from: usize| if ways.len() > STEPS { whole(&ways) } else { reach(&ways, from) };
    let filled: Vec<u32> = (0..ways.len()).map(all).collect();
    steps.iter_mut().zip(filled).for_each(|(step, hash)| step.continuation_hash = hash);
}

/// A step as a node of a graph: the hash of the step and its targets; `None` is the end.
struct StepNode {
    own: u32,
    to: Vec<Option<usize>>,
}

impl StepNode {
    fn of(step: &Step, index: &HashMap<StepId, usize>) -> Self {
        let place = |target: &Target| match target {
            Target::Step(id) => index.get(id).copied(),
            Target::End => None,
        };
        let mut own = StableHash::from_value(step.continuation_hash);
        for next in std::iter::once(&step.next).chain(&step.on_error) {
            if let NextStep::Branch { branches, .. } = next {
                own = branches.iter().fold(own, |hash, branch| hash.text(branch.condition.text()));
            }
        }
        Self { own: own.value(), to: step.exits().map(place).collect() }
    }
}

/// A hash of all reachable steps, in breadth-first order.
fn reach(ways: &[StepNode], from: usize) -> u32 {
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
    // In a frame, 0 means "unknown".
    hash.value().max(1)
}

fn whole(ways: &[StepNode]) -> u32 {
    ways.iter().fold(StableHash::new(), |hash, way| hash.number(way.own)).value().max(1)
}
