//! Checks conditions: unknown slots, undefined names, `and` and `or` without parentheses, comparisons that are never true.

use super::{
    super::{
        Project, SlotType,
        references::{ConditionReference, ConditionRole},
    },
    suggestion,
};
use crate::{
    condition::{Comparison, Literal, Operator},
    finding::{Findings, SourceLocation, did_you_mean},
};

pub(super) fn check(project: &Project, conditions: &[ConditionReference], findings: &mut Findings) {
    for reference in conditions {
        slots(project, reference, findings);
        bare_names(project, reference, findings);
        mixed(reference, findings);
        for comparison in reference.condition.comparisons() {
            never(project, reference, &comparison, findings);
        }
        role(reference, findings);
    }
}

/// The location of a word in the condition.
fn place_of(reference: &ConditionReference, word: &str) -> SourceLocation {
    let text = reference.condition.text();
    let part = |c: char| c.is_alphanumeric() || "_.-:;".contains(c);
    let at = text.match_indices(word).map(|(at, _)| at).find(|at| {
        let before = text.get(..*at).is_none_or(|before| !before.ends_with(part));
        before && text.get(at + word.len()..).is_none_or(|after| !after.starts_with(|c: char| part(c) && c != '.'))
    });
    let offset = at.and_then(|at| text.get(..at)).map_or(0, |before| before.chars().count());
    reference.at.place_at(&reference.file, offset, word.chars().count())
}

fn slots(project: &Project, reference: &ConditionReference, findings: &mut Findings) {
    for slot in reference.condition.slots().filter(|slot| project.slot(slot).is_none()) {
        let names = project.domain.slots.keys().map(|name| name.as_str());
        let help = match did_you_mean(slot, names) {
            Some(near) => format!("Did you mean `slots.{near}`?"),
            None => format!("Add `{slot}` under `slots` of the domain."),
        };
        let place = place_of(reference, &format!("slots.{slot}"));
        findings.error("F0403", &place, format!("the condition reads the slot `{slot}`, which does not exist"), help);
    }
}

fn bare_names(project: &Project, reference: &ConditionReference, findings: &mut Findings) {
    for name in reference.condition.bare_names() {
        let help = if project.slot(name).is_some() {
            format!("Write `slots.{name}`.")
        } else {
            suggestion(name, project.domain.slots.keys().map(|slot| slot.as_str()), || {
                format!("Write `slots.{name}` for a slot, or `\"{name}\"` for a string.")
            })
        };
        let message = format!("`{name}` is neither a slot nor a string: it is undefined");
        findings.warning("F0402", &place_of(reference, name), message, help);
    }
}

fn mixed(reference: &ConditionReference, findings: &mut Findings) {
    if reference.condition.mixes_and_or_without_parentheses() {
        let reading = reference.condition.normalized().unwrap_or_default();
        let message = "`and` and `or` are combined without parentheses, and neither has precedence";
        findings.warning(
            "F0404",
            &reference.at.place(&reference.file),
            message,
            format!("It is evaluated as `{reading}`; add parentheses."),
        );
    }
}

fn role(reference: &ConditionReference, findings: &mut Findings) {
    let condition = &reference.condition;
    let place = reference.at.place(&reference.file);
    match &reference.role {
        ConditionRole::ExitIf if condition.slots().next().is_none() && !condition.is_template() => {
            let help = "Write the slots that the agent must fill, such as `slots.appointment is not null`.";
            findings.error("F0515", &place, "a condition of `exit_if` must read at least one slot", help);
        }
        ConditionRole::Rejection(slot) if !reference.builtin => {
            if let Some(other) = condition.slots().find(|other| slot != *other) {
                let message = format!("the rejection of `{slot}` also reads `{other}`");
                let help = "This works in Segue; in Rasa a rejection may read only its own slot.";
                findings.note("F0233", &place, message, help);
            }
        }
        ConditionRole::Response => {
            if let Some(name) = condition.context_properties().next() {
                let message =
                    format!("the condition of a response reads `context.{name}`, but only slots are available there");
                findings.warning("F0408", &place, message, "Branch in the flow instead, or store the value in a slot.");
            }
        }
        _ => {}
    }
}

fn never(project: &Project, reference: &ConditionReference, comparison: &Comparison<'_>, findings: &mut Findings) {
    let Some(slot) = project.slot(comparison.slot) else { return };
    let Some((why, help)) = impossible(&slot.kind, comparison) else { return };
    let message = format!("this is never true: `{}` is a `{}` slot, and {why}", slot.name, slot.kind.name());
    findings.warning("F0405", &place_of(reference, &format!("slots.{}", slot.name)), message, help);
}

/// Why a comparison is never true, and the help text; `None` if it may be true.
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
                .then(|| ("null and empty values have no order".into(), "Compare with a value.".into()));
        }
        _ => {}
    }
    match operator {
        Operator::Matches if !matches!(kind, SlotType::Text | SlotType::Categorical(_) | SlotType::Any) => {
            return says("only strings can match", "Compare with `=` or `>` instead.");
        }
        Operator::Contains if matches!(kind, SlotType::Float { .. } | SlotType::Bool) => {
            return says("it cannot contain a value", "Compare with `=` instead.");
        }
        Operator::Contains if matches!(kind, SlotType::Text | SlotType::Categorical(_)) => {
            return match literal {
                Literal::Text(_) => None,
                _ => says("a string can contain only strings", "Put quotes around the value."),
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
        (SlotType::Text | SlotType::Categorical(_), Literal::Number(_) | Literal::Bool(_)) => says(
            "a string is never equal to a number or a boolean and has no order with them",
            "Put quotes around the value.",
        ),
        (SlotType::Float { .. }, Literal::Text(_)) => {
            says("a number is never equal to a string and has no order with it", "Remove the quotes around the value.")
        }
        (SlotType::Bool, Literal::Text(_)) => {
            says("a boolean is never equal to a string", "Write `true` or `false` without quotes.")
        }
        (SlotType::Bool, Literal::Number(number)) if operator == Operator::Equal && number != 0.0 && number != 1.0 => {
            says("it is true or false", "Write `true` or `false`.")
        }
        (SlotType::List, Literal::Text(_) | Literal::Number(_) | Literal::Bool(_)) => {
            says("a list is never equal to a single value", "Write `slots.name contains \"value\"`.")
        }
        _ => None,
    }
}
