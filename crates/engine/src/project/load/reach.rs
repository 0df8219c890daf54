//! What a flow can still do from each of its steps, as a hash. By it a conversation in mid-flow finds its step again in a
//! changed project, or learns that the change concerns it.

use std::collections::HashMap;

use super::super::{NextStep, Step, Target, yaml::Node};
use crate::ids::StepId;

/// Steps of a flow up to which every step has a hash of its own; the work grows with their square. In a longer flow every
/// change concerns every step.
const STEPS: usize = 400;

/// Keys of a step that do not change what it does, or are told by what follows it.
const OUTSIDE: [&str; 5] = ["id", "next", "on_error", "metadata", "description"];

/// A hash over what one step does by itself.
pub(super) fn own(node: &Node) -> u32 {
    let mut hash = Fnv::default();
    for entry in node.map().unwrap_or_default().iter().filter(|entry| !OUTSIDE.contains(&entry.key.as_str())) {
        hash.text(&entry.key);
        hash.text(&entry.node.json().to_string());
    }
    hash.0
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
        let mut own = Fnv(step.reach);
        for next in std::iter::once(&step.next).chain(&step.on_error) {
            if let NextStep::Branch { branches, .. } = next {
                branches.iter().for_each(|branch| own.text(branch.condition.text()));
            }
        }
        Self { own: own.0, to: step.exits().map(place).collect() }
    }
}

/// A hash over everything that can be reached, in the order in which it is first seen.
fn reach(ways: &[Way], from: usize) -> u32 {
    let mut seen = vec![from];
    let mut hash = Fnv::default();
    let mut at = 0;
    while let Some(way) = seen.get(at).and_then(|step| ways.get(*step)) {
        hash.number(way.own);
        for to in &way.to {
            let order = to.map(|to| {
                seen.iter().position(|step| *step == to).unwrap_or_else(|| {
                    seen.push(to);
                    seen.len() - 1
                })
            });
            hash.number(order.and_then(|order| u32::try_from(order).ok()).unwrap_or(u32::MAX));
        }
        at += 1;
    }
    // 0 stands for "not known" in a frame.
    hash.0.max(1)
}

fn whole(ways: &[Way]) -> u32 {
    let mut hash = Fnv::default();
    ways.iter().for_each(|way| hash.number(way.own));
    hash.0.max(1)
}

/// The 32-bit FNV-1a hash.
struct Fnv(u32);

impl Default for Fnv {
    fn default() -> Self {
        Self(0x811c_9dc5)
    }
}

impl Fnv {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    }
    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
        self.bytes(&[0xff]);
    }
    fn number(&mut self, number: u32) {
        self.bytes(&number.to_le_bytes());
    }
}
