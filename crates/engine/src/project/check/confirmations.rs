//! Checks the responses that ask the user to confirm a call of an agent. They must always have a text, because the user cannot
//! confirm a call that is not shown.

use super::super::{Project, ResponseText, Variation};
use crate::finding::Findings;

const QUESTION: &str = "utter_agent_confirm";

pub(super) fn check(project: &Project, findings: &mut Findings) {
    let asks = |name: &str| name.strip_prefix(QUESTION).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
    for response in project.domain.responses.values().filter(|one| !one.builtin && asks(one.name.as_str())) {
        let always = response
            .variations
            .iter()
            .any(|one| one.channel.is_none() && one.condition.is_none() && one.slot_conditions.is_empty());
        let message = match () {
            () if !response.variations.iter().all(has_text) => "has a variation without text",
            () if !always => "has no variation for some channel or condition",
            () => continue,
        };
        let message = format!("`{}` asks for confirmation of a call but {message}", response.name);
        let help = "Add a text to every variation, and a variation without `channel` and `condition`.";
        findings.error("F0328", &response.place, message, help);
    }
}

fn has_text(variation: &Variation) -> bool {
    let text = match &variation.text {
        Some(ResponseText::Braces(text)) => text,
        Some(ResponseText::Jinja(template)) => template.source().text(),
        None => "",
    };
    !text.trim().is_empty()
}
