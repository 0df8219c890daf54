//! Reads `next` and `on_error` of steps and resolves their targets.

use std::collections::{HashMap, HashSet};

use super::{
    super::{
        Branch, NextStep, Otherwise, Step, Target,
        load_context::{LoadContext, describe},
        references::ConditionRole,
        schema::BRANCH,
        yaml::Node,
    },
    continuation_hash,
    steps::{StepListBuilder, StepListKind},
};
use crate::{
    condition::Condition,
    finding::{SourceLocation, did_you_mean},
    ids::StepId,
};

/// A `next` before step ids are resolved.
#[derive(Debug)]
pub(super) enum UnresolvedNext {
    /// The key is absent.
    Omitted,
    /// Always the same target.
    Go(UnresolvedTarget),
    /// Branches and their `else`.
    Branch(Vec<(Condition, UnresolvedTarget)>, Option<(UnresolvedTarget, SourceLocation)>),
}

/// A target before step ids are resolved.
#[derive(Debug)]
pub(super) enum UnresolvedTarget {
    /// The step with this id.
    Id(String, SourceLocation),
    /// The step at this position.
    At(usize),
    /// The end of the flow.
    End,
}

impl StepListBuilder<'_> {
    /// Reads `next` or `on_error` of a step, which have the same forms.
    pub(super) fn next(&mut self, context: &mut LoadContext<'_>, node: Option<&Node>, key: &str) -> UnresolvedNext {
        let Some(node) = node.filter(|node| !node.is_null()) else { return UnresolvedNext::Omitted };
        if let Some(text) = node.text() {
            return UnresolvedNext::Go(dest(context, text, node));
        }
        let Some(items) = node.list() else {
            let message = format!("`{key}` must be a step id, `END`, or a list, but this is {}", describe(node));
            let help = format!("Write branches as a list: `- if: …` on a separate line below `{key}:`.");
            context.error("F0108", node, message, help);
            return UnresolvedNext::Go(UnresolvedTarget::End);
        };
        if items.is_empty() {
            let message = format!("the list under `{key}` is empty");
            context.error("F0203", node, message, "Write branches or steps, or a step id.");
            return UnresolvedNext::Go(UnresolvedTarget::End);
        }
        let is_branch = |item: &Node| ["if", "then", "else"].iter().any(|key| item.get(key).is_some());
        if items.iter().any(is_branch) {
            self.branches(context, node, items)
        } else {
            self.list(context, items, StepListKind::Plain).map_or(UnresolvedNext::Go(UnresolvedTarget::End), |first| {
                UnresolvedNext::Go(UnresolvedTarget::At(first))
            })
        }
    }

    fn branches(&mut self, context: &mut LoadContext<'_>, node: &Node, items: &[Node]) -> UnresolvedNext {
        let mut branches = Vec::new();
        let mut otherwise: Option<(UnresolvedTarget, SourceLocation)> = None;
        let mut has_else = false;
        for item in items {
            let Some(fields) = context.fields(item, &BRANCH) else { continue };
            if fields.has("if") && fields.has("else") {
                let help = "Move `else` to a separate item: `- else: …`.";
                context.error("F0237", fields.at("else"), "`if` and `else` are in the same item", help);
            }
            if fields.has("else") {
                if has_else {
                    context.error("F0234", fields.at("else"), "duplicate `else`", "Remove one of them.");
                }
                has_else = true;
                let place = context.place(fields.at("else"));
                let target = self.target(context, fields.node("else"), fields.at("else"), "else");
                otherwise = otherwise.or(target.map(|target| (target, place)));
            }
            if let Some(condition) = fields.node("if") {
                let condition = context.condition(condition, ConditionRole::Branch(self.flow.clone()));
                let target = self.target(context, fields.node("then"), fields.at("if"), "then");
                branches.extend(condition.zip(target));
            } else if fields.has("then") {
                context.error(
                    "F0109",
                    fields.at("then"),
                    "`then` needs an `if`",
                    "Write `- if: <condition>` before it.",
                );
            }
        }
        if !has_else {
            let help = "Add `- else: <step id>` or `- else: END`, so that there is always a next step.";
            context.error("F0206", node, "a list with `if` needs an `else`", help);
        }
        UnresolvedNext::Branch(branches, otherwise)
    }

    /// Reads `then` or `else`: a step id, `END`, or a list of steps.
    fn target(
        &mut self,
        context: &mut LoadContext<'_>,
        node: Option<&Node>,
        at: &Node,
        key: &str,
    ) -> Option<UnresolvedTarget> {
        let Some(node) = node.filter(|node| !node.is_null()) else {
            let message = format!("the branch has no target: `{key}` is missing");
            context.error("F0109", at, message, format!("Add `{key}: <step id>`, `{key}: END`, or a list of steps."));
            return None;
        };
        if let Some(text) = node.text() {
            return Some(dest(context, text, node));
        }
        match node.list() {
            Some([]) => {
                let message = format!("the list under `{key}` is empty");
                context.error("F0203", node, message, "Add a step, or write a step id or `END`.");
                None
            }
            Some(items) => self.list(context, items, StepListKind::Branch).map(UnresolvedTarget::At),
            None => {
                let message =
                    format!("`{key}` must be a step id, `END` or a list of steps, but this is {}", describe(node));
                context.error("F0108", node, message, "Write the steps as a list, each starting with `- `.");
                None
            }
        }
    }

    /// Resolves all step ids and reports unreachable steps.
    pub(super) fn resolve(self, context: &mut LoadContext<'_>) -> (Vec<Step>, HashMap<StepId, usize>) {
        let mut index = HashMap::with_capacity(self.steps.len());
        for (at, step) in self.steps.iter().enumerate() {
            index.entry(step.id.clone()).or_insert(at);
        }
        let ids: Vec<StepId> = self.steps.iter().map(|step| step.id.clone()).collect();
        let named: Vec<StepId> = self.steps.iter().filter(|step| step.named).map(|step| step.id.clone()).collect();
        let flow = self.flow;
        let mut resolve = |dest: UnresolvedTarget| match dest {
            UnresolvedTarget::End => Target::End,
            UnresolvedTarget::At(at) => ids.get(at).cloned().map_or(Target::End, Target::Step),
            UnresolvedTarget::Id(id, place) => {
                let long = format!("{flow}_{id}");
                match [id.as_str(), long.as_str()].into_iter().find(|id| index.contains_key(*id)) {
                    Some(id) => Target::Step(id.into()),
                    None => {
                        let help = match did_you_mean(&id, named.iter().map(StepId::as_str)) {
                            Some(near) => format!("Did you mean `{near}`?"),
                            None => format!("Set `id: {id}` at a step, or write `END`."),
                        };
                        let message = format!("there is no step `{id}` in the flow `{flow}`");
                        context.findings.error("F0205", &place, message, help);
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
                continuation_hash: draft.own,
            });
        }
        unreachable_steps(context, &steps, &index);
        continuation_hash::fill(&mut steps, &index);
        (steps, index)
    }
}

fn resolved(follow: UnresolvedNext, resolve: &mut impl FnMut(UnresolvedTarget) -> Target) -> NextStep {
    match follow {
        UnresolvedNext::Omitted => NextStep::Go(Target::End),
        UnresolvedNext::Go(dest) => NextStep::Go(resolve(dest)),
        UnresolvedNext::Branch(branches, otherwise) => NextStep::Branch {
            branches: branches
                .into_iter()
                .map(|(condition, dest)| Branch { condition, target: resolve(dest) })
                .collect(),
            otherwise: otherwise.map(|(dest, place)| Otherwise { target: resolve(dest), place }),
        },
    }
}

fn dest(context: &LoadContext<'_>, text: &str, node: &Node) -> UnresolvedTarget {
    if text == "END" { UnresolvedTarget::End } else { UnresolvedTarget::Id(text.to_owned(), context.place(node)) }
}

fn unreachable_steps(context: &mut LoadContext<'_>, steps: &[Step], index: &HashMap<StepId, usize>) {
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
        // One finding for consecutive unreachable steps: the later ones are a consequence of the first.
        let led_to = at.checked_sub(1).is_some_and(|before| !reached.contains(&before));
        if !led_to {
            let help = "Refer to the `id` of the step in a `next`, or remove the step.";
            context.findings.error("F0211", &step.place, "this step is unreachable", help);
        }
    }
}
