//! Checks that referenced names exist: slots, responses, actions, servers, model groups, flows, intents.

use super::{
    super::{
        Project, builtin, builtin_tools,
        references::{NameReference, ReferenceKind},
    },
    suggestion,
};
use crate::finding::Findings;

pub(super) fn check(project: &Project, references: &[NameReference], findings: &mut Findings) {
    for reference in references {
        match reference.kind {
            ReferenceKind::Slot | ReferenceKind::PayloadSlot | ReferenceKind::PrintedSlot => {
                slot(project, reference, findings)
            }
            ReferenceKind::Response => response(project, reference, findings),
            ReferenceKind::Action | ReferenceKind::CustomAction => action(project, reference, findings),
            ReferenceKind::Flow => flow(project, reference, findings),
            ReferenceKind::Server | ReferenceKind::AgentServer => server(project, reference, findings),
            ReferenceKind::ModelGroup => model_group(project, reference, findings),
            ReferenceKind::Intent => intent(project, reference, findings),
            ReferenceKind::DoubleBraces | ReferenceKind::SingleBraces => braces(project, reference, findings),
            ReferenceKind::ButtonIntent => button_intent(project, reference, findings),
        }
    }
    missing_action_server(project, references, findings);
    unasked_elicitation_slots(project, references, findings);
    for slot in project.domain.slots.values() {
        let Some(validation) = &slot.validation else { continue };
        let asks = format!("action_ask_{}", slot.name);
        let is_default = *validation.refill_utter.as_str() == format!("utter_ask_{}", slot.name);
        if is_default && project.response(validation.refill_utter.as_str()).is_none() && !project.lists_action(&asks) {
            let message = format!(
                "after a rejection nothing asks for `{}` again: there is no response `{}`",
                slot.name, validation.refill_utter
            );
            findings.warning("F0225", &slot.place, message, format!("Add the response `{}`.", validation.refill_utter));
        }
    }
}

/// A server may ask the user for a slot during a call step. The flow then asks for it, so it needs a response or an action.
fn unasked_elicitation_slots(project: &Project, references: &[NameReference], findings: &mut Findings) {
    let by_a_step = |server: &str| {
        references.iter().any(|reference| reference.kind == ReferenceKind::Server && *reference.name == *server)
    };
    for def in project.endpoints.mcp_servers.values().filter(|def| by_a_step(def.name.as_str())) {
        for (field, slot) in &def.elicitation {
            let asks = (format!("utter_ask_{slot}"), format!("action_ask_{slot}"));
            let is_known = project.slot(slot.as_str()).is_some();
            if is_known && project.response(&asks.0).is_none() && !project.lists_action(&asks.1) {
                let message = format!(
                    "`{}` may ask for `{field}`, but nothing asks the user for `{slot}`: there is no response `{}`",
                    def.name, asks.0
                );
                findings.warning("F0258", &def.place, message, format!("Add the response `{}`.", asks.0));
            }
        }
    }
}

fn slot(project: &Project, reference: &NameReference, findings: &mut Findings) {
    let NameReference { kind: role, name, place, builtin } = reference;
    if project.slot(name).is_some() {
        return;
    }
    let names = || project.domain.slots.keys().map(|slot| slot.as_str());
    let near = crate::finding::did_you_mean(name, names());
    let help = suggestion(name, names(), || format!("Add `{name}` under `slots` of the domain."));
    match role {
        ReferenceKind::PayloadSlot => {
            let message =
                format!("the button fills the slot `{name}`, which does not exist; the whole payload would be ignored");
            findings.error("F0310", place, message, help);
        }
        // Actions may pass values with any name, so only a likely typo is a warning.
        ReferenceKind::PrintedSlot if *builtin => {}
        ReferenceKind::PrintedSlot => {
            let message = format!("the text contains `{name}`, which is not a slot");
            if near.is_some() {
                findings.warning("F0316", place, message, help);
            } else {
                findings.note(
                    "F0316",
                    place,
                    message,
                    "Ignore this if an action passes the value; otherwise add the slot.",
                );
            }
        }
        _ => findings.error("F0301", place, format!("there is no slot `{name}`"), help),
    }
}

fn response(project: &Project, reference: &NameReference, findings: &mut Findings) {
    let name = &reference.name;
    if project.response(name).is_none() {
        let names = project.domain.responses.keys().map(|response| response.as_str());
        let help = suggestion(name, names, || format!("Add `{name}` under `responses` of the domain."));
        findings.error("F0309", &reference.place, format!("there is no response `{name}`"), help);
    }
}

fn action(project: &Project, reference: &NameReference, findings: &mut Findings) {
    let name = &*reference.name;
    let is_response = reference.kind == ReferenceKind::Action && project.response(name).is_some();
    if is_response || project.lists_action(name) || builtin::action(name).is_some() {
        return;
    }
    if name.starts_with("utter_") {
        return response(project, reference, findings);
    }
    let listed = project.domain.actions.keys().map(|action| action.as_str());
    let help = suggestion(name, listed.chain(builtin::action_names()), || {
        if project.flows.contains_key(name) {
            format!("`{name}` is a flow: write `call: {name}` or `link: {name}`.")
        } else if project.agent(name).is_some() {
            format!("`{name}` is an agent: write `call: {name}`.")
        } else {
            format!("Add `{name}` under `actions` of the domain.")
        }
    });
    findings.error("F0222", &reference.place, format!("there is no action `{name}`"), help);
}

/// Reports custom actions without an action server once, at the first reference.
fn missing_action_server(project: &Project, references: &[NameReference], findings: &mut Findings) {
    let is_custom = |reference: &&NameReference| {
        let as_action = matches!(reference.kind, ReferenceKind::Action | ReferenceKind::CustomAction);
        as_action && project.lists_action(&reference.name) && project.response(&reference.name).is_none()
    };
    if project.endpoints.action_endpoint.is_some() {
        return;
    }
    if let Some(first) = references.iter().find(is_custom) {
        let message = format!("`{}` is a custom action, but no action server is configured", first.name);
        let help = "Add `action_endpoint: {url: \"http://localhost:5055/webhook\"}` to `endpoints.yml`. \
                    Ignore this if your program registers the actions in Rust.";
        findings.warning("F0624", &first.place, message, help);
    }
}

fn flow(project: &Project, reference: &NameReference, findings: &mut Findings) {
    let name = &reference.name;
    if project.flow(name).is_none() {
        let help =
            suggestion(name, project.flows.keys().map(|flow| flow.as_str()), || format!("Add the flow `{name}`."));
        findings.error("F0216", &reference.place, format!("there is no flow `{name}`"), help);
    }
}

fn server(project: &Project, reference: &NameReference, findings: &mut Findings) {
    let name = &reference.name;
    let servers = &project.endpoints.mcp_servers;
    if servers.contains_key(&**name) {
        return;
    }
    let help = builtin_tools::supplied_by_the_runtime(name);
    let help = help.unwrap_or_else(|| suggest_server(name, project));
    let message = format!("there is no MCP server `{name}`");
    if reference.kind == ReferenceKind::AgentServer {
        findings.error("F0505", &reference.place, message, help);
    } else {
        findings.error("F0229", &reference.place, message, help);
    }
}

fn suggest_server(name: &str, project: &Project) -> String {
    let servers = &project.endpoints.mcp_servers;
    suggestion(name, servers.keys().map(|server| server.as_str()), || {
        let known: Vec<&str> = servers.keys().map(|server| server.as_str()).collect();
        let known = if known.is_empty() { String::new() } else { format!(" It defines `{}`.", known.join("`, `")) };
        format!("Add `{name}` under `mcp_servers` of `endpoints.yml`.{known}")
    })
}

fn model_group(project: &Project, reference: &NameReference, findings: &mut Findings) {
    let name = &reference.name;
    let groups = &project.endpoints.model_groups;
    if !groups.contains_key(&**name) {
        let help = suggestion(name, groups.keys().map(|group| &**group), || {
            format!("Add a group with `id: {name}` under `model_groups` of `endpoints.yml`.")
        });
        findings.error("F0606", &reference.place, format!("there is no model group `{name}`"), help);
    }
}

fn intent(project: &Project, reference: &NameReference, findings: &mut Findings) {
    let name = &*reference.name;
    let listed = &project.domain.intents;
    if reference.builtin || builtin::INTENTS.contains(&name) || listed.iter().any(|intent| &**intent == name) {
        return;
    }
    let help = suggestion(name, listed.iter().map(|intent| &**intent), || {
        format!("Add `{name}` under `intents` of the domain.")
    });
    findings.warning("F0318", &reference.place, format!("there is no intent `{name}` in the domain"), help);
}

/// A button may also send an intent of `nlu_trigger`. An unknown intent triggers `pattern_cannot_handle`.
fn button_intent(project: &Project, reference: &NameReference, findings: &mut Findings) {
    let name = &*reference.name;
    let listed = &project.domain.intents;
    let triggers = || project.flows.values().flat_map(|flow| &flow.nlu_triggers).map(|trigger| &*trigger.intent);
    let known = || listed.iter().map(|intent| &**intent).chain(triggers());
    if reference.builtin || builtin::INTENTS.contains(&name) || known().any(|intent| intent == name) {
        return;
    }
    let help = suggestion(name, known(), || {
        format!(
            "Write `nlu_trigger: [{{intent: {name}}}]` in a flow, or write a text or `/SetSlots(…)` as the payload."
        )
    });
    findings.warning(
        "F0322",
        &reference.place,
        format!("the button sends the intent `{name}`, which does not exist"),
        help,
    );
}

/// Reports a slot in the braces of the other format, which would be sent literally.
fn braces(project: &Project, reference: &NameReference, findings: &mut Findings) {
    let is_double = reference.kind == ReferenceKind::DoubleBraces;
    let slot = reference.name.strip_prefix("slots.").filter(|_| is_double).unwrap_or(&reference.name);
    if reference.builtin || project.slot(slot).is_none() {
        return;
    }
    let (written, help) = if is_double {
        let help = format!("Write `{{{slot}}}`, or add `metadata: {{template: jinja}}` to the variation.");
        (format!("{{{{{}}}}}", reference.name), help)
    } else {
        (format!("{{{slot}}}"), format!("Write `{{{{ slots.{slot} }}}}`: this variation is a Jinja template."))
    };
    let message = format!("`{written}` is sent literally, not replaced by the slot");
    findings.warning("F0325", &reference.place, message, help);
}
