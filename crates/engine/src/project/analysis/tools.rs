//! Calls of tools whose mapping says one thing twice, or reads an answer that is not there.

use std::collections::HashSet;

use super::{
    super::{Call, Step, StepKind},
    survey::Survey,
};
use crate::finding::Findings;

pub(super) fn check(survey: &Survey<'_>, findings: &mut Findings) {
    for step in survey.own_flows().flat_map(|flow| &flow.steps) {
        let StepKind::Call(Call::Tool { tool, input, output, .. }) = &step.kind else { continue };
        let mut params = HashSet::new();
        if let Some((param, _)) = input.iter().find(|(param, _)| !params.insert(param.as_str())) {
            twice(step, &format!("`{tool}` is given the parameter `{param}` twice"), findings);
        }
        let mut slots = HashSet::new();
        if let Some((slot, _)) = output.iter().find(|(slot, _)| !slots.insert(slot.as_str())) {
            twice(step, &format!("two parts of the answer of `{tool}` fill `{slot}`"), findings);
        }
        for (slot, value) in output {
            let names = survey.project.templates.expression_variables(value);
            let is_result = |name: &String| name.split('.').next() == Some("result");
            if let Some(name) = names.first().filter(|_| !names.iter().any(is_result)) {
                let message = format!("`{slot}` is filled from `{name}`, but the answer of a tool is called `result`");
                let help = "Write `result.structuredContent.…`, or `result.content` for an answer that is only text.";
                findings.warning("F0254", &step.place, message, help);
            }
        }
    }
}

fn twice(step: &Step, what: &str, findings: &mut Findings) {
    findings.warning("F0253", &step.place, what, "The last one counts; remove the other.");
}
