//! Responses that ask for a yes to the calls of an agent: what is not shown cannot be agreed to, so they always say something.

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
            () if !response.variations.iter().all(has_text) => "has a variation without a text",
            () if !always => "says nothing on some channel or under some condition",
            () => continue,
        };
        let message = format!("`{}` asks for a yes to a call, and {message}", response.name);
        let help = "Give every variation a text, and one of them neither `channel` nor `condition`.";
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
