//! What follows a step: `next` in its five forms, and the rules that tie steps together.

use std::collections::{HashMap, HashSet};

use super::{
    super::{
        Branch, NextStep, Otherwise, Step, Target,
        reader::{Reader, said},
        schema::BRANCH,
        uses::Role,
        yaml::Node,
    },
    reach,
    steps::{Draft, Position},
};
use crate::{
    condition::Condition,
    finding::{SourceLocation, did_you_mean},
    ids::StepId,
};

/// What follows, before ids are known.
#[derive(Debug)]
pub(super) enum Follow {
    /// Nothing was written.
    Unsaid,
    /// One way.
    Go(Dest),
    /// Branches.
    Branch(Vec<(Condition, Dest)>, Option<(Dest, SourceLocation)>),
}

/// Where a `next` leads, before ids are known.
#[derive(Debug)]
pub(super) enum Dest {
    /// To the step of this id.
    Id(String, SourceLocation),
    /// To the step at this position.
    At(usize),
    /// To the end.
    End,
}

impl Draft<'_> {
    /// Reads the `next` of a step, or its `on_error`, which has the same forms.
    pub(super) fn next(&mut self, reader: &mut Reader<'_>, node: Option<&Node>, key: &str) -> Follow {
        let Some(node) = node.filter(|node| !node.is_null()) else { return Follow::Unsaid };
        if let Some(text) = node.text() {
            return Follow::Go(dest(reader, text, node));
        }
        let Some(items) = node.list() else {
            let message = format!("`{key}` is a step id, `END`, or a list, but this is {}", said(node));
            let help = format!("Write branches as a list: `- if: …` on a line of its own, below `{key}:`.");
            reader.error("F0108", node, message, help);
            return Follow::Go(Dest::End);
        };
        if items.is_empty() {
            let message = format!("the list under `{key}` is empty");
            reader.error("F0203", node, message, "Write branches or steps, or a step id.");
            return Follow::Go(Dest::End);
        }
        let is_branch = |item: &Node| ["if", "then", "else"].iter().any(|key| item.get(key).is_some());
        if items.iter().any(is_branch) {
            self.branches(reader, node, items)
        } else {
            self.list(reader, items, Position::Plain).map_or(Follow::Go(Dest::End), |first| Follow::Go(Dest::At(first)))
        }
    }

    fn branches(&mut self, reader: &mut Reader<'_>, node: &Node, items: &[Node]) -> Follow {
        let mut branches = Vec::new();
        let mut otherwise: Option<(Dest, SourceLocation)> = None;
        let mut has_else = false;
        for item in items {
            let Some(fields) = reader.fields(item, &BRANCH) else { continue };
            if fields.has("if") && fields.has("else") {
                let help = "Put `else` into an item of its own: `- else: …`.";
                reader.error("F0237", fields.at("else"), "`if` and `else` stand in one item", help);
            }
            if fields.has("else") {
                if has_else {
                    reader.error("F0234", fields.at("else"), "`else` stands twice", "Keep one of them.");
                }
                has_else = true;
                let place = reader.place(fields.at("else"));
                let target = self.target(reader, fields.node("else"), fields.at("else"), "else");
                otherwise = otherwise.or(target.map(|target| (target, place)));
            }
            if let Some(condition) = fields.node("if") {
                let condition = reader.condition(condition, Role::Branch(self.flow.clone()));
                let target = self.target(reader, fields.node("then"), fields.at("if"), "then");
                branches.extend(condition.zip(target));
            } else if fields.has("then") {
                reader.error(
                    "F0109",
                    fields.at("then"),
                    "`then` needs an `if`",
                    "Write `- if: <condition>` before it.",
                );
            }
        }
        if !has_else {
            let help = "Add `- else: <step id>` or `- else: END`, so that there is always a way on.";
            reader.error("F0206", node, "a list with `if` needs an `else`", help);
        }
        Follow::Branch(branches, otherwise)
    }

    /// What stands under `then` or `else`: a step id, `END`, or a list of steps.
    fn target(&mut self, reader: &mut Reader<'_>, node: Option<&Node>, at: &Node, key: &str) -> Option<Dest> {
        let Some(node) = node.filter(|node| !node.is_null()) else {
            let message = format!("the branch does not say where it goes: `{key}` is missing");
            reader.error("F0109", at, message, format!("Add `{key}: <step id>`, `{key}: END`, or a list of steps."));
            return None;
        };
        if let Some(text) = node.text() {
            return Some(dest(reader, text, node));
        }
        match node.list() {
            Some([]) => {
                let message = format!("the list under `{key}` is empty");
                reader.error("F0203", node, message, "Add a step, or write a step id or `END`.");
                None
            }
            Some(items) => self.list(reader, items, Position::Branch).map(Dest::At),
            None => {
                let message = format!("`{key}` takes a step id, `END` or a list of steps, but this is {}", said(node));
                reader.error("F0108", node, message, "Write the steps as a list, each with `- ` before it.");
                None
            }
        }
    }

    /// Resolves every id, and tells of steps that no way leads to.
    pub(super) fn resolve(self, reader: &mut Reader<'_>) -> (Vec<Step>, HashMap<StepId, usize>) {
        let mut index = HashMap::with_capacity(self.steps.len());
        for (at, step) in self.steps.iter().enumerate() {
            index.entry(step.id.clone()).or_insert(at);
        }
        let ids: Vec<StepId> = self.steps.iter().map(|step| step.id.clone()).collect();
        let named: Vec<StepId> = self.steps.iter().filter(|step| step.named).map(|step| step.id.clone()).collect();
        let flow = self.flow;
        let mut resolve = |dest: Dest| match dest {
            Dest::End => Target::End,
            Dest::At(at) => ids.get(at).cloned().map_or(Target::End, Target::Step),
            Dest::Id(id, place) => {
                let long = format!("{flow}_{id}");
                match [id.as_str(), long.as_str()].into_iter().find(|id| index.contains_key(*id)) {
                    Some(id) => Target::Step(id.into()),
                    None => {
                        let help = match did_you_mean(&id, named.iter().map(StepId::as_str)) {
                            Some(near) => format!("Did you mean `{near}`?"),
                            None => format!("Give the step `id: {id}`, or write `END`."),
                        };
                        let message = format!("there is no step `{id}` in the flow `{flow}`");
                        reader.findings.error("F0205", &place, message, help);
                        Target::End
                    }
                }
            }
        };
        let mut steps = Vec::with_capacity(self.steps.len());
        for draft in self.steps {
            let next = resolved(draft.follow, &mut resolve);
            let on_error = draft.on_error.map(|follow| resolved(follow, &mut resolve));
            steps.push(Step {
                id: draft.id,
                kind: draft.kind,
                next,
                on_error,
                place: draft.place,
                description: draft.description,
                reach: draft.own,
            });
        }
        unreachable_steps(reader, &steps, &index);
        reach::fill(&mut steps, &index);
        (steps, index)
    }
}

fn resolved(follow: Follow, resolve: &mut impl FnMut(Dest) -> Target) -> NextStep {
    match follow {
        Follow::Unsaid => NextStep::Go(Target::End),
        Follow::Go(dest) => NextStep::Go(resolve(dest)),
        Follow::Branch(branches, otherwise) => NextStep::Branch {
            branches: branches
                .into_iter()
                .map(|(condition, dest)| Branch { condition, target: resolve(dest) })
                .collect(),
            otherwise: otherwise.map(|(dest, place)| Otherwise { target: resolve(dest), place }),
        },
    }
}

fn dest(reader: &Reader<'_>, text: &str, node: &Node) -> Dest {
    if text == "END" { Dest::End } else { Dest::Id(text.to_owned(), reader.place(node)) }
}

fn unreachable_steps(reader: &mut Reader<'_>, steps: &[Step], index: &HashMap<StepId, usize>) {
    let mut reached = HashSet::new();
    let mut open: Vec<usize> = if steps.is_empty() { Vec::new() } else { vec![0] };
    while let Some(at) = open.pop() {
        let Some(step) = steps.get(at).filter(|_| reached.insert(at)) else { continue };
        open.extend(step.exits().filter_map(|target| match target {
            Target::Step(id) => index.get(id),
            Target::End => None,
        }));
    }
    for (at, step) in steps.iter().enumerate().filter(|(at, _)| !reached.contains(at)) {
        // One finding for a chain of steps: those behind an unreachable one are its consequence.
        let led_to = at.checked_sub(1).is_some_and(|before| !reached.contains(&before));
        if !led_to {
            let help = "Lead a `next` here by the step's `id`, or remove the step.";
            reader.findings.error("F0211", &step.place, "no way leads to this step", help);
        }
    }
}
