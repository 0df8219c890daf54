//! Names that must exist: slots, responses, actions, servers, model groups, flows, intents.

use super::{
    super::{
        Project, builtin,
        uses::{Use, Used},
    },
    cure,
};
use crate::finding::Findings;

pub(super) fn check(project: &Project, uses: &[Use], findings: &mut Findings) {
    for used in uses {
        match used.used {
            Used::Slot | Used::PayloadSlot | Used::PrintedSlot => slot(project, used, findings),
            Used::Response => response(project, used, findings),
            Used::Action | Used::CustomAction => action(project, used, findings),
            Used::Flow => flow(project, used, findings),
            Used::Server | Used::AgentServer => server(project, used, findings),
            Used::ModelGroup => model_group(project, used, findings),
            Used::Intent => intent(project, used, findings),
            Used::DoubleBraces | Used::SingleBraces => braces(project, used, findings),
            Used::ButtonIntent => button_intent(project, used, findings),
        }
    }
    nobody_runs(project, uses, findings);
    nobody_asks(project, uses, findings);
    for slot in project.domain.slots.values() {
        let Some(validation) = &slot.validation else { continue };
        let asks = format!("action_ask_{}", slot.name);
        let is_default = *validation.refill_utter.as_str() == format!("utter_ask_{}", slot.name);
        if is_default && project.response(validation.refill_utter.as_str()).is_none() && !project.lists_action(&asks) {
            let message = format!(
                "after a refusal nobody asks for `{}` again: there is no `{}`",
                slot.name, validation.refill_utter
            );
            findings.warning("F0225", &slot.place, message, format!("Add the response `{}`.", validation.refill_utter));
        }
    }
}

/// What a server may ask in the middle of a call step becomes a question of the flow, which needs words.
fn nobody_asks(project: &Project, uses: &[Use], findings: &mut Findings) {
    let by_a_step = |server: &str| uses.iter().any(|used| used.used == Used::Server && *used.name == *server);
    for def in project.endpoints.mcp_servers.values().filter(|def| by_a_step(def.name.as_str())) {
        for (field, slot) in &def.elicitation {
            let asks = (format!("utter_ask_{slot}"), format!("action_ask_{slot}"));
            let is_known = project.slot(slot.as_str()).is_some();
            if is_known && project.response(&asks.0).is_none() && !project.lists_action(&asks.1) {
                let message = format!(
                    "`{}` may ask for `{field}`, and nobody asks the user for `{slot}`: there is no `{}`",
                    def.name, asks.0
                );
                findings.warning("F0258", &def.place, message, format!("Add the response `{}`.", asks.0));
            }
        }
    }
}

fn slot(project: &Project, used: &Use, findings: &mut Findings) {
    let Use { used: role, name, place, builtin } = used;
    if project.slot(name).is_some() {
        return;
    }
    let names = || project.domain.slots.keys().map(|slot| slot.as_str());
    let near = crate::finding::did_you_mean(name, names());
    let help = cure(name, names(), || format!("Add `{name}` under `slots` of the domain."));
    match role {
        Used::PayloadSlot => {
            let message =
                format!("the button fills the slot `{name}`, which is not there; the whole payload would be dropped");
            findings.error("F0310", place, message, help);
        }
        // Actions may hand in values of any name, so only a likely slip is worth a warning.
        Used::PrintedSlot if *builtin => {}
        Used::PrintedSlot => {
            let message = format!("the text prints `{name}`, which is not a slot");
            if near.is_some() {
                findings.warning("F0316", place, message, help);
            } else {
                findings.note("F0316", place, message, "Fine if an action hands the value in; else add the slot.");
            }
        }
        _ => findings.error("F0301", place, format!("there is no slot `{name}`"), help),
    }
}

fn response(project: &Project, used: &Use, findings: &mut Findings) {
    let name = &used.name;
    if project.response(name).is_none() {
        let names = project.domain.responses.keys().map(|response| response.as_str());
        let help = cure(name, names, || format!("Add `{name}` under `responses` of the domain."));
        findings.error("F0309", &used.place, format!("there is no response `{name}`"), help);
    }
}

fn action(project: &Project, used: &Use, findings: &mut Findings) {
    let name = &*used.name;
    let is_response = used.used == Used::Action && project.response(name).is_some();
    if is_response || project.lists_action(name) || builtin::action(name).is_some() {
        return;
    }
    if name.starts_with("utter_") {
        return response(project, used, findings);
    }
    let listed = project.domain.actions.keys().map(|action| action.as_str());
    let help = cure(name, listed.chain(builtin::action_names()), || {
        if project.flows.contains_key(name) {
            format!("`{name}` is a flow: write `call: {name}` or `link: {name}`.")
        } else if project.agent(name).is_some() {
            format!("`{name}` is an agent: write `call: {name}`.")
        } else {
            format!("Add `{name}` under `actions` of the domain.")
        }
    });
    findings.error("F0222", &used.place, format!("there is no action `{name}`"), help);
}

/// Custom actions are used, and nothing says where they run: told once, at the first of them.
fn nobody_runs(project: &Project, uses: &[Use], findings: &mut Findings) {
    let is_custom = |used: &&Use| {
        let as_action = matches!(used.used, Used::Action | Used::CustomAction);
        as_action && project.lists_action(&used.name) && project.response(&used.name).is_none()
    };
    if project.endpoints.action_endpoint.is_some() {
        return;
    }
    if let Some(first) = uses.iter().find(is_custom) {
        let message = format!("`{}` is a custom action, and nothing says where custom actions run", first.name);
        let help = "Add `action_endpoint: {url: \"http://localhost:5055/webhook\"}` to `endpoints.yml`; \
                    fine if the program that embeds the assistant registers them.";
        findings.warning("F0624", &first.place, message, help);
    }
}

fn flow(project: &Project, used: &Use, findings: &mut Findings) {
    let name = &used.name;
    if project.flow(name).is_none() {
        let help = cure(name, project.flows.keys().map(|flow| flow.as_str()), || format!("Add the flow `{name}`."));
        findings.error("F0216", &used.place, format!("there is no flow `{name}`"), help);
    }
}

fn server(project: &Project, used: &Use, findings: &mut Findings) {
    let name = &used.name;
    let servers = &project.endpoints.mcp_servers;
    if servers.contains_key(&**name) {
        return;
    }
    let help = cure(name, servers.keys().map(|server| server.as_str()), || {
        let known: Vec<&str> = servers.keys().map(|server| server.as_str()).collect();
        let known = if known.is_empty() { String::new() } else { format!(" It has `{}`.", known.join("`, `")) };
        format!("Add `{name}` under `mcp_servers` of `endpoints.yml`.{known}")
    });
    let message = format!("there is no MCP server `{name}`");
    if used.used == Used::AgentServer {
        findings.error("F0505", &used.place, message, help);
    } else {
        findings.error("F0229", &used.place, message, help);
    }
}

fn model_group(project: &Project, used: &Use, findings: &mut Findings) {
    let name = &used.name;
    let groups = &project.endpoints.model_groups;
    if !groups.contains_key(&**name) {
        let help = cure(name, groups.keys().map(|group| &**group), || {
            format!("Add a group with `id: {name}` under `model_groups` of `endpoints.yml`.")
        });
        findings.error("F0606", &used.place, format!("there is no model group `{name}`"), help);
    }
}

fn intent(project: &Project, used: &Use, findings: &mut Findings) {
    let name = &*used.name;
    let listed = &project.domain.intents;
    if used.builtin || builtin::INTENTS.contains(&name) || listed.iter().any(|intent| &**intent == name) {
        return;
    }
    let help =
        cure(name, listed.iter().map(|intent| &**intent), || format!("Add `{name}` under `intents` of the domain."));
    findings.warning("F0318", &used.place, format!("the domain lists no intent `{name}`"), help);
}

/// A button may send the intents of triggers as well; one that nobody knows ends in "cannot handle".
fn button_intent(project: &Project, used: &Use, findings: &mut Findings) {
    let name = &*used.name;
    let listed = &project.domain.intents;
    let triggers = || project.flows.values().flat_map(|flow| &flow.nlu_triggers).map(|trigger| &*trigger.intent);
    let known = || listed.iter().map(|intent| &**intent).chain(triggers());
    if used.builtin || builtin::INTENTS.contains(&name) || known().any(|intent| intent == name) {
        return;
    }
    let help = cure(name, known(), || {
        format!("Write `nlu_trigger: [{{intent: {name}}}]` in a flow, or let the button send a text or `/SetSlots(…)`.")
    });
    findings.warning("F0322", &used.place, format!("the button sends the intent `{name}`, which nothing knows"), help);
}

/// A slot in the braces of the other format: it would be said as it is written.
fn braces(project: &Project, used: &Use, findings: &mut Findings) {
    let is_double = used.used == Used::DoubleBraces;
    let slot = used.name.strip_prefix("slots.").filter(|_| is_double).unwrap_or(&used.name);
    if used.builtin || project.slot(slot).is_none() {
        return;
    }
    let (written, help) = if is_double {
        let help = format!("Write `{{{slot}}}`, or add `metadata: {{template: jinja}}` to the variation.");
        (format!("{{{{{}}}}}", used.name), help)
    } else {
        (format!("{{{slot}}}"), format!("Write `{{{{ slots.{slot} }}}}`: this variation is a template."))
    };
    let message = format!("`{written}` is said as it is written here, not filled with the slot");
    findings.warning("F0325", &used.place, message, help);
}
