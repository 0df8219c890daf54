//! Conditions: unknown slots, bare names, traps of `and` and `or`, and comparisons that can never hold.

use super::{
    super::{
        Project, SlotType,
        uses::{ConditionUse, Role},
    },
    cure,
};
use crate::{
    condition::{Comparison, Literal, Operator},
    finding::{Findings, SourceLocation, did_you_mean},
};

pub(super) fn check(project: &Project, conditions: &[ConditionUse], findings: &mut Findings) {
    for used in conditions {
        slots(project, used, findings);
        bare_names(project, used, findings);
        mixed(used, findings);
        for comparison in used.condition.comparisons() {
            never(project, used, &comparison, findings);
        }
        role(used, findings);
    }
}

/// Where a word stands in the condition.
fn place_of(used: &ConditionUse, word: &str) -> SourceLocation {
    let text = used.condition.text();
    let part = |c: char| c.is_alphanumeric() || "_.-:;".contains(c);
    let at = text.match_indices(word).map(|(at, _)| at).find(|at| {
        let before = text.get(..*at).is_none_or(|before| !before.ends_with(part));
        before && text.get(at + word.len()..).is_none_or(|after| !after.starts_with(|c: char| part(c) && c != '.'))
    });
    let offset = at.and_then(|at| text.get(..at)).map_or(0, |before| before.chars().count());
    used.at.place_at(&used.file, offset, word.chars().count())
}

fn slots(project: &Project, used: &ConditionUse, findings: &mut Findings) {
    for slot in used.condition.slots().filter(|slot| project.slot(slot).is_none()) {
        let names = project.domain.slots.keys().map(|name| name.as_str());
        let help = match did_you_mean(slot, names) {
            Some(near) => format!("Did you mean `slots.{near}`?"),
            None => format!("Add `{slot}` under `slots` of the domain."),
        };
        let place = place_of(used, &format!("slots.{slot}"));
        findings.error("F0403", &place, format!("the condition reads the slot `{slot}`, which is not there"), help);
    }
}

fn bare_names(project: &Project, used: &ConditionUse, findings: &mut Findings) {
    for name in used.condition.bare_names() {
        let help = if project.slot(name).is_some() {
            format!("Write `slots.{name}`.")
        } else {
            cure(name, project.domain.slots.keys().map(|slot| slot.as_str()), || {
                format!("Write `slots.{name}` for a slot, or `\"{name}\"` for a text.")
            })
        };
        let message = format!("`{name}` is neither a slot nor a text: it counts as undefined");
        findings.warning("F0402", &place_of(used, name), message, help);
    }
}

fn mixed(used: &ConditionUse, findings: &mut Findings) {
    if used.condition.mixes_and_or_without_parentheses() {
        let reading = used.condition.normalized().unwrap_or_default();
        let message = "`and` and `or` stand side by side, and neither binds tighter than the other";
        findings.warning(
            "F0404",
            &used.at.place(&used.file),
            message,
            format!("It is read as `{reading}`; write the parentheses you mean."),
        );
    }
}

fn role(used: &ConditionUse, findings: &mut Findings) {
    let condition = &used.condition;
    let place = used.at.place(&used.file);
    match &used.role {
        Role::ExitIf if condition.slots().next().is_none() && !condition.is_template() => {
            let help = "Name the slots that the agent must fill, such as `slots.appointment is not null`.";
            findings.error("F0515", &place, "a condition of `exit_if` must read at least one slot", help);
        }
        Role::Rejection(slot) if !used.builtin => {
            if let Some(other) = condition.slots().find(|other| slot != *other) {
                let message = format!("the rejection of `{slot}` also reads `{other}`");
                let help = "This works here; elsewhere a rejection may read its own slot only.";
                findings.note("F0233", &place, message, help);
            }
        }
        Role::Response => {
            if let Some(name) = condition.context_properties().next() {
                let message =
                    format!("the condition of a response reads `context.{name}`, but only slots are known there");
                findings.warning("F0408", &place, message, "Branch in the flow instead, or keep the value in a slot.");
            }
        }
        _ => {}
    }
}

fn never(project: &Project, used: &ConditionUse, comparison: &Comparison<'_>, findings: &mut Findings) {
    let Some(slot) = project.slot(comparison.slot) else { return };
    let Some((why, help)) = impossible(&slot.kind, comparison) else { return };
    let message = format!("this can never hold: `{}` is a `{}` slot, and {why}", slot.name, slot.kind.name());
    findings.warning("F0405", &place_of(used, &format!("slots.{}", slot.name)), message, help);
}

/// Why a comparison can never hold, and the cure; `None` if it may.
fn impossible(kind: &SlotType, comparison: &Comparison<'_>) -> Option<(String, String)> {
    let Comparison { operator, literal, .. } = *comparison;
    let says = |why: &str, help: &str| Some((why.to_owned(), help.to_owned()));
    if operator == Operator::NotEqual {
        return None;
    }
    match literal {
        Literal::Undefined if matches!(operator, Operator::Equal | Operator::OneOf) => {
            return says("a slot of the domain is never undefined", "Write `is null` for a slot without a value.");
        }
        Literal::Null | Literal::Undefined | Literal::Empty => {
            return operator
                .is_order()
                .then(|| ("nothing is less or greater than that".into(), "Compare with a value.".into()));
        }
        _ => {}
    }
    match operator {
        Operator::Matches if !matches!(kind, SlotType::Text | SlotType::Categorical(_) | SlotType::Any) => {
            return says("only texts are matched", "Compare with `=` or `>` instead.");
        }
        Operator::Contains if matches!(kind, SlotType::Float { .. } | SlotType::Bool) => {
            return says("it contains nothing", "Compare with `=` instead.");
        }
        Operator::Contains if matches!(kind, SlotType::Text | SlotType::Categorical(_)) => {
            return match literal {
                Literal::Text(_) => None,
                _ => says("a text contains texts only", "Put quotes around the value."),
            };
        }
        Operator::Matches | Operator::Contains => return None,
        _ => {}
    }
    typed(kind, operator, literal)
}

fn typed(kind: &SlotType, operator: Operator, literal: Literal<'_>) -> Option<(String, String)> {
    let says = |why: &str, help: &str| Some((why.to_owned(), help.to_owned()));
    match (kind, literal) {
        (SlotType::Categorical(values), Literal::Text(text)) if !operator.is_order() => {
            if values.iter().any(|value| &**value == text) {
                return None;
            }
            let help = match did_you_mean(text, values.iter().map(|value| &**value)) {
                Some(near) => format!("Did you mean `\"{near}\"`?"),
                None => format!("Its values are `{}`.", values.join("`, `")),
            };
            Some((format!("`{text}` is not one of its values"), help))
        }
        (SlotType::Text | SlotType::Categorical(_), Literal::Number(_) | Literal::Bool(_)) => {
            says("a text never equals or is ordered with a number or a boolean", "Put quotes around the value.")
        }
        (SlotType::Float { .. }, Literal::Text(_)) => {
            says("a number never equals or is ordered with a text", "Remove the quotes around the value.")
        }
        (SlotType::Bool, Literal::Text(_)) => {
            says("a boolean never equals a text", "Write `true` or `false` without quotes.")
        }
        (SlotType::Bool, Literal::Number(number)) if operator == Operator::Equal && number != 0.0 && number != 1.0 => {
            says("it is true or false", "Write `true` or `false`.")
        }
        (SlotType::List, Literal::Text(_) | Literal::Number(_) | Literal::Bool(_)) => {
            says("a list never equals one value", "Write `slots.name contains \"value\"`.")
        }
        _ => None,
    }
}
