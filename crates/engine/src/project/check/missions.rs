//! Checks across missions: names that could mean several things, and routes to other missions.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};

use super::super::{
    GroundedRule, Project, mission_graph,
    missions::{BudgetDef, MissionDef, RouteTarget, ValueKind},
};
use crate::{
    finding::{Findings, SourceLocation, did_you_mean},
    ids::AgentName,
};

pub(super) fn check(project: &Project, findings: &mut Findings) {
    for mission in project.missions.values() {
        let name = &*mission.name;
        let other = if project.flows.contains_key(name) {
            Some("a flow")
        } else if project.agents.contains_key(name) {
            Some("an agent")
        } else {
            None
        };
        if let Some(other) = other {
            let message = format!("the mission `{name}` has the name of {other}, so `call` is ambiguous");
            findings.error("F0803", &mission.place, message, "Rename one of the two.");
        }
        unkept_rules(project, mission, findings);
        uncounted_cost(project, mission, findings);
        unreadable_file(project, mission, findings);
        for route in mission.tasks.values().flat_map(mission_graph::routes) {
            let RouteTarget::Mission(target, entry) = &route.target else { continue };
            let Some(target) = project.missions.get(target) else {
                let help = match did_you_mean(target, project.missions.keys().map(|name| &**name)) {
                    Some(near) => format!("Did you mean `mission:{near}`?"),
                    None => format!("Add `missions/{target}.yml`."),
                };
                findings.error("F0842", &route.place, format!("there is no mission `{target}`"), help);
                continue;
            };
            if let Some(entry) = entry.as_ref().filter(|entry| !target.tasks.contains_key(*entry)) {
                let help = match did_you_mean(entry, target.tasks.keys().map(|name| &**name)) {
                    Some(near) => format!("Did you mean `mission:{}#{near}`?", target.name),
                    None => format!("Write a task of `{}` after `#`, or only the mission.", target.name),
                };
                let message = format!("the mission `{}` has no task `{entry}`", target.name);
                findings.error("F0842", &route.place, message, help);
            }
            if let Some(input) = first_file(target) {
                let message =
                    format!("the mission `{}` needs the file `{input}`, which a route cannot pass", target.name);
                let help = "Write `type: string` in the input, and hand over the content or a path.";
                findings.error("F0819", &route.place, message, help);
            }
        }
    }
}

/// Rules of agents that a mission cannot keep: it has no slots, no hooks and no text for a user, and its agents have a prompt of their own.
/// An agent whose rules do not all hold does not work there at all.
fn unkept_rules(project: &Project, mission: &MissionDef, findings: &mut Findings) {
    let called = mission.agents.iter().chain(mission.tasks.values().flat_map(|task| &task.agents));
    let called: BTreeSet<&AgentName> = called.filter(|name| !mission.local_agents.contains_key(*name)).collect();
    for agent in called.into_iter().filter_map(|name| project.agent(name.as_str())) {
        let mut report = |place: &SourceLocation, rule: &str, why: &str| {
            let message =
                format!("`{rule}` of the agent `{}` cannot hold in the mission `{}`: {why}", agent.name, mission.name);
            let help = "Remove the rule, or give the mission an agent of its own under `local_agents`.";
            findings.error("F0859", place, message, help);
        };
        for (tool, rule) in &agent.rules.tools {
            if rule.on_success.is_some() || rule.on_failure.is_some() {
                let key = if rule.on_success.is_some() { "on_success" } else { "on_failure" };
                report(&rule.place, &format!("tools.{tool}.{key}"), "no user reads its responses");
            }
            if rule.requires.is_some() {
                report(&rule.place, &format!("tools.{tool}.requires"), "missions have no slots");
            }
        }
        if agent.module.is_some() {
            report(&agent.place, "module", "missions call no hooks");
        }
        if agent.prompt.is_some() && agent.remote.is_none() {
            report(&agent.place, "prompt_template", "agents of missions have a prompt of their own");
        }
        if agent.rules.grounded == GroundedRule::Repair || !agent.rules.claims.is_empty() {
            let rule = if agent.rules.claims.is_empty() { "grounded" } else { "claims" };
            report(&agent.place, rule, "no user reads the texts of agents of missions");
        }
    }
}

/// The first input of type `file`.
fn first_file(mission: &MissionDef) -> Option<&str> {
    let found = mission.inputs.iter().find(|(_, input)| input.field.kind == ValueKind::File);
    found.map(|(name, _)| &**name)
}

/// A file that no agent of the mission can read, because none has tools for the folder of the run.
fn unreadable_file(project: &Project, mission: &MissionDef, findings: &mut Findings) {
    let Some(input) = first_file(mission) else { return };
    let called = mission.agents.iter().chain(mission.tasks.values().flat_map(|task| &task.agents));
    let reads = |name: &AgentName| match (mission.local_agents.get(name), project.agent(name.as_str())) {
        (Some(agent), _) => !agent.workspace.is_none(),
        (None, Some(agent)) => !agent.workspace.is_none(),
        (None, None) => true,
    };
    if !called.into_iter().any(reads) {
        let message = format!("no agent of the mission can read the file `{input}`");
        let help = "Add `workspace: read` to an agent of the mission.";
        findings.warning("F0818", &mission.place, message, help);
    }
}

/// A budget of money with models that have no price: their calls cost nothing, so it never ends anything.
fn uncounted_cost(project: &Project, mission: &MissionDef, findings: &mut Findings) {
    let has_cost = |budget: Option<BudgetDef>| budget.is_some_and(|budget| budget.limits.cost.is_some());
    let of_task = mission.tasks.values().find(|task| has_cost(task.budget)).map(|task| &task.place);
    let of_run = has_cost(mission.budget).then_some(&mission.place);
    let Some(place) = of_run.or(of_task) else { return };
    let has_price = |group: Option<&str>, own: &Map<String, Json>| {
        let settings = project.endpoints.model_settings(group, own);
        let entries = settings.get(usize::from(own.is_empty())..).unwrap_or_default();
        let is_priced = |entry: &&Map<String, Json>| {
            ["input_cost_per_token", "output_cost_per_token"].iter().any(|key| entry.contains_key(*key))
        };
        !entries.is_empty() && entries.iter().all(is_priced)
    };
    let called = mission.agents.iter().chain(mission.tasks.values().flat_map(|task| &task.agents));
    let called: BTreeSet<&AgentName> = called.collect();
    let agent_has_price = |name: &AgentName| match (mission.local_agents.get(name), project.agent(name.as_str())) {
        (Some(agent), _) => has_price(agent.model_group.as_deref(), &agent.llm),
        (None, Some(agent)) => agent.remote.is_some() || has_price(agent.model_group.as_deref(), &agent.llm),
        (None, None) => true,
    };
    let mut without = Vec::new();
    if !has_price(mission.commander.model_group.as_deref(), &mission.commander.llm) {
        without.push("the commanders".to_owned());
    }
    without.extend(called.into_iter().filter(|name| !agent_has_price(name)).map(|name| format!("`{name}`")));
    if !without.is_empty() {
        let who = without.join(", ");
        let message = format!("the budget in `dollars` does not count {who}: not all of their models have prices");
        let help =
            "Add `input_cost_per_token` and `output_cost_per_token` to the models in `endpoints.yml`, or use `tokens`.";
        findings.warning("F0817", place, message, help);
    }
}
