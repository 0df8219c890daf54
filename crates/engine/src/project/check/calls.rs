//! Checks links and calls between flows, calls of agents, and the restrictions of patterns.

use std::collections::{HashMap, HashSet};

use super::{
    super::{Call, Flow, Project, Protocol, StepKind, builtin::pattern},
    suggestion,
};
use crate::finding::{Findings, SourceLocation};

/// Patterns that other patterns may link to.
const LINKED_PATTERNS: [&str; 3] = [pattern::HUMAN_HANDOFF, pattern::CHITCHAT, pattern::CUSTOMER_SATISFACTION];

pub(super) fn check(project: &Project, findings: &mut Findings) {
    for flow in project.flows.values() {
        if flow.is_pattern() && !pattern::ALL.contains(&flow.id.as_str()) {
            let help =
                suggestion(flow.id.as_str(), pattern::ALL, || "Choose an id without the prefix `pattern_`.".to_owned());
            let message = format!(
                "there is no pattern `{}`, so nothing starts it, and the model does not see flows with this prefix",
                flow.id
            );
            findings.warning("F0230", &flow.place, message, help);
        }
        for step in &flow.steps {
            match &step.kind {
                StepKind::Link(target) => link(project, flow, target.as_str(), &step.place, findings),
                StepKind::Call(call) => self::call(project, flow, call, &step.place, findings),
                _ => {}
            }
        }
    }
    for agent in project.agents.values().filter(|agent| project.flows.contains_key(agent.name.as_str())) {
        let message = format!("the agent `{}` has the name of a flow, so `call` is ambiguous", agent.name);
        findings.error("F0512", &agent.place, message, "Rename one of the two.");
    }
    links_in_called_flows(project, findings);
    cycles(project, findings);
}

fn link(project: &Project, flow: &Flow, target: &str, place: &SourceLocation, findings: &mut Findings) {
    if project.flow(target).is_none() {
        let help = suggestion(target, project.flows.keys().map(|id| id.as_str()), || {
            if project.agent(target).is_some() {
                format!("`{target}` is an agent: write `call: {target}`.")
            } else {
                format!("Add the flow `{target}`, or correct the name.")
            }
        });
        findings.error("F0216", place, format!("there is no flow `{target}`"), help);
        return;
    }
    if flow.id == target {
        let help = "To restart the flow, write `next: <id of the first step>` and reset the slots before.";
        findings.error("F0221", place, "a flow cannot link to itself", help);
    }
    let to_pattern = target.starts_with("pattern_");
    if flow.id == *pattern::INTERNAL_ERROR {
        let help = "Send a response instead; an error in the linked flow would trigger this pattern again.";
        findings.error("F0220", place, "`pattern_internal_error` may not link to anything", help);
    } else if to_pattern && !flow.is_pattern() && target != pattern::HUMAN_HANDOFF {
        let help =
            "The only pattern that a flow may link to is `pattern_human_handoff`; the others start automatically.";
        findings.error("F0220", place, format!("a flow may not link to `{target}`"), help);
    } else if to_pattern && flow.is_pattern() && !LINKED_PATTERNS.contains(&target) {
        let help = format!("A pattern may link to flows and to `{}`.", LINKED_PATTERNS.join("`, `"));
        findings.error("F0220", place, format!("a pattern may not link to `{target}`"), help);
    }
}

fn call(project: &Project, flow: &Flow, call: &Call, place: &SourceLocation, findings: &mut Findings) {
    if flow.is_pattern() {
        findings.error(
            "F0220",
            place,
            "a pattern may not use `call`",
            "Use `link` at its end, or actions and responses.",
        );
    }
    match call {
        Call::Flow(target) => called_flow(project, target.as_str(), place, findings),
        Call::Agent { agent, exit_if } => {
            let is_remote = project.agent(agent.as_str()).is_some_and(|agent| agent.protocol == Protocol::A2a);
            if is_remote && !exit_if.is_empty() {
                let message = format!(
                    "`{agent}` is a remote agent, which decides when its task ends; `exit_if` is not supported"
                );
                findings.error("F0516", place, message, "Remove `exit_if`.");
            }
        }
        Call::Tool { .. } => {}
    }
}

fn called_flow(project: &Project, target: &str, place: &SourceLocation, findings: &mut Findings) {
    if target.starts_with("pattern_") {
        let help = "Patterns start automatically; write the steps in a flow.";
        findings.error("F0220", place, format!("a step may not call the pattern `{target}`"), help);
    } else if project.flow(target).is_none() && project.mission(target).is_some() {
        let help = format!("Remove the step, and start the mission with `segue mission run {target}`.");
        findings.error(
            "F0217",
            place,
            format!("`{target}` is a mission, which a flow cannot start in this version"),
            help,
        );
    } else if project.flow(target).is_none() {
        let flows = project.flows.keys().map(|id| id.as_str()).filter(|id| !id.starts_with("pattern_"));
        let known = flows.chain(project.agents.keys().map(|agent| agent.as_str()));
        let help = suggestion(target, known, || {
            format!("Add the flow or the agent `{target}`; a tool call also needs `mcp_server` and `mapping`.")
        });
        findings.error("F0217", place, format!("there is neither a flow nor an agent `{target}`"), help);
    }
}

/// The flows that `flow` calls, with the locations of the calls.
fn callees<'p>(project: &'p Project, flow: &'p Flow) -> impl Iterator<Item = (&'p Flow, &'p SourceLocation)> {
    flow.steps.iter().filter_map(|step| match &step.kind {
        StepKind::Call(Call::Flow(target)) => Some((&**project.flow(target.as_str())?, &step.place)),
        _ => None,
    })
}

/// `flow` and all flows that it calls, directly or indirectly.
pub(crate) fn with_called<'p>(project: &'p Project, flow: &'p Flow) -> Vec<&'p Flow> {
    let mut found = vec![flow];
    let mut seen: HashSet<&str> = HashSet::from([flow.id.as_str()]);
    let mut at = 0;
    while let Some(next) = found.get(at).copied() {
        for (callee, _) in callees(project, next) {
            if seen.insert(callee.id.as_str()) {
                found.push(callee);
            }
        }
        at += 1;
    }
    found
}

fn links_in_called_flows(project: &Project, findings: &mut Findings) {
    let mut called: HashMap<&str, &Flow> = HashMap::new();
    for flow in project.flows.values() {
        for (callee, _) in callees(project, flow) {
            called.entry(callee.id.as_str()).or_insert(flow);
        }
    }
    for flow in project.flows.values() {
        let Some(caller) = called.get(flow.id.as_str()) else { continue };
        for step in flow.steps.iter().filter(|step| matches!(step.kind, StepKind::Link(_))) {
            let message = format!("`{}` is called by `{}`, and a called flow may not use `link`", flow.id, caller.id);
            findings.error("F0219", &step.place, message, "Use `call`, or link in the calling flow.");
        }
    }
}

/// Reports each cycle of calls once, at the call that closes it. Iterative, because a chain may be as long as the project.
fn cycles(project: &Project, findings: &mut Findings) {
    let mut done: HashSet<&str> = HashSet::new();
    for root in project.flows.values() {
        if done.contains(root.id.as_str()) {
            continue;
        }
        let mut path: Vec<(&Flow, Vec<(&Flow, &SourceLocation)>)> = vec![(root, callees(project, root).collect())];
        let mut on_path: HashSet<&str> = HashSet::from([root.id.as_str()]);
        while let Some((flow, open)) = path.last_mut() {
            let Some((callee, place)) = open.pop() else {
                on_path.remove(flow.id.as_str());
                done.insert(flow.id.as_str());
                path.pop();
                continue;
            };
            if on_path.contains(callee.id.as_str()) {
                let names = path.iter().map(|(flow, _)| flow.id.as_str()).skip_while(|id| callee.id != *id);
                let cycle: Vec<&str> = names.chain([callee.id.as_str()]).collect();
                let message = format!("these calls form a cycle: `{}`", cycle.join("` → `"));
                findings.error("F0218", place, message, "Remove one of the calls, or use `link` instead.");
            } else if !done.contains(callee.id.as_str()) {
                on_path.insert(callee.id.as_str());
                path.push((callee, callees(project, callee).collect()));
            }
        }
    }
}
