//! Checks across missions: names that could mean several things, and routes to other missions.

use super::super::{Project, mission_graph, missions::RouteTarget};
use crate::finding::{Findings, did_you_mean};

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
        }
    }
}
