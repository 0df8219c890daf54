//! Checks mappings of tool calls: duplicate parameters and slots, and expressions that do not read `result`.

use std::collections::HashSet;

use super::{
    super::{Call, Step, StepKind},
    project_index::ProjectIndex,
};
use crate::finding::Findings;

pub(super) fn check(index: &ProjectIndex<'_>, findings: &mut Findings) {
    for step in index.own_flows().flat_map(|flow| &flow.steps) {
        let StepKind::Call(Call::Tool { tool, input, output, .. }) = &step.kind else { continue };
        let mut params = HashSet::new();
        if let Some((param, _)) = input.iter().find(|(param, _)| !params.insert(param.as_str())) {
            twice(step, &format!("duplicate parameter `{param}` of `{tool}`"), findings);
        }
        let mut slots = HashSet::new();
        if let Some((slot, _)) = output.iter().find(|(slot, _)| !slots.insert(slot.as_str())) {
            twice(step, &format!("two parts of the result of `{tool}` fill `{slot}`"), findings);
        }
        for (slot, value) in output {
            let names = index.project.templates.expression_variables(value);
            let is_result = |name: &String| name.split('.').next() == Some("result");
            if let Some(name) = names.first().filter(|_| !names.iter().any(is_result)) {
                let message = format!("`{slot}` is filled from `{name}`, but the result of a tool is called `result`");
                let help = "Write `result.structuredContent.…`, or `result.content` for a text result.";
                findings.warning("F0254", &step.place, message, help);
            }
        }
    }
}

fn twice(step: &Step, what: &str, findings: &mut Findings) {
    findings.warning("F0253", &step.place, what, "The last one is used; remove the other.");
}
