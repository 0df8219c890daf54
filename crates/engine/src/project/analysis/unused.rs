//! What the project defines and nothing uses: only notes, since it does no harm.

use std::collections::HashSet;

use super::{
    super::{ActionReference, Call, Mapping, StepKind, uses::Used},
    survey::{Survey, is_builtin_action},
};
use crate::finding::{Findings, SourceLocation};

pub(super) fn check(survey: &Survey<'_>, findings: &mut Findings) {
    let used = Names::of(survey);
    for slot in survey.project.domain.slots.values().filter(|slot| !slot.builtin) {
        let name = slot.name.as_str();
        if !used.slots.contains(name) && !survey.has_code && !used.texts_name(name) {
            note(findings, &slot.place, &format!("the slot `{name}` is not used"));
        }
    }
    // Actions of the project's own may say any response and read any slot.
    if !survey.has_code {
        for response in survey.project.domain.responses.values().filter(|response| !response.builtin) {
            let name = response.name.as_str();
            if !used.said.contains(name) && !used.texts_name(name) {
                note(findings, &response.place, &format!("the response `{name}` is never said"));
            }
        }
        asked_for_nothing(survey, &used, findings);
    }
    for agent in survey.project.agents.values().filter(|agent| !used.agents.contains(agent.name.as_str())) {
        note(findings, &agent.place, &format!("no flow calls the agent `{}`", agent.name));
    }
    actions(survey, &used, findings);
}

fn note(findings: &mut Findings, place: &SourceLocation, what: &str) {
    findings.note("F0324", place, what, "Use it, or remove it.");
}

fn actions(survey: &Survey<'_>, used: &Names<'_>, findings: &mut Findings) {
    for (name, place) in survey.listed {
        let name = name.as_str();
        let by_slot = ["action_ask_", "validate_"]
            .iter()
            .any(|prefix| name.strip_prefix(prefix).is_some_and(|slot| survey.project.slot(slot).is_some()));
        if !by_slot && !used.said.contains(name) && !is_builtin_action(name) && !name.starts_with("validate_") {
            note(findings, place, &format!("no flow runs the action `{name}`"));
        }
    }
}

/// Slots that are asked for and then read by nothing.
fn asked_for_nothing(survey: &Survey<'_>, used: &Names<'_>, findings: &mut Findings) {
    let mut told: HashSet<&str> = HashSet::new();
    for flow in survey.own_flows().filter(|flow| !flow.is_pattern()) {
        for (step, collect) in flow.collects() {
            let slot = collect.slot.as_str();
            if !used.read.contains(slot) && !used.texts_name(slot) && told.insert(slot) {
                let message = format!("`{slot}` is asked for, and nothing ever reads it");
                findings.note("F0247", &step.place, message, "Use the answer, or spare the user the question.");
            }
        }
    }
}

/// Names that something uses.
struct Names<'p> {
    slots: HashSet<&'p str>,
    read: HashSet<&'p str>,
    said: HashSet<&'p str>,
    agents: HashSet<&'p str>,
    /// Texts that may name anything: prompts, and what the runtime itself says.
    texts: Vec<&'p str>,
}

impl<'p> Names<'p> {
    fn of(survey: &Survey<'p>) -> Self {
        let mut names = Self {
            slots: HashSet::new(),
            read: HashSet::new(),
            said: HashSet::new(),
            agents: HashSet::new(),
            texts: survey
                .sources
                .texts
                .values()
                .chain(survey.sources.patterns.iter().map(|file| &file.text))
                .map(|t| &**t)
                .collect(),
        };
        for used in survey.uses {
            match used.used {
                Used::Slot | Used::PayloadSlot => _ = names.slots.insert(&*used.name),
                Used::PrintedSlot => {
                    names.slots.insert(&*used.name);
                    names.read.insert(&*used.name);
                }
                Used::Response | Used::Action | Used::CustomAction => _ = names.said.insert(&*used.name),
                _ => {}
            }
        }
        for used in survey.conditions {
            for slot in used.condition.slots() {
                names.slots.insert(slot);
                let own = matches!(&used.role, super::super::uses::Role::Rejection(own) if *own == slot);
                if !own {
                    names.read.insert(slot);
                }
            }
        }
        names.steps(survey);
        names.domain(survey);
        names
    }

    fn steps(&mut self, survey: &Survey<'p>) {
        for step in survey.project.flows.values().flat_map(|flow| &flow.steps) {
            match &step.kind {
                StepKind::Collect(collect) => _ = self.said.insert(collect.utter.as_str()),
                StepKind::Action(ActionReference::Plain(name)) => _ = self.said.insert(name.as_str()),
                StepKind::Call(Call::Agent { agent, .. }) => _ = self.agents.insert(agent.as_str()),
                StepKind::Call(Call::Tool { input, .. }) => {
                    self.read.extend(input.iter().map(|(_, slot)| slot.as_str()));
                }
                _ => {}
            }
        }
        for server in survey.project.endpoints.mcp_servers.values() {
            self.slots.extend(server.meta_slots.iter().map(|(_, slot)| slot.as_str()));
            self.read.extend(server.meta_slots.iter().map(|(_, slot)| slot.as_str()));
        }
    }

    fn domain(&mut self, survey: &Survey<'p>) {
        for slot in survey.project.domain.slots.values() {
            if let Some(validation) = &slot.validation {
                self.said.insert(validation.refill_utter.as_str());
            }
            // What an intent or an entity fills is at least used by whoever sends it.
            if slot
                .mappings
                .iter()
                .any(|mapping| !matches!(mapping, Mapping::FromLlm { .. } | Mapping::Controlled { .. }))
            {
                self.slots.insert(slot.name.as_str());
            }
        }
        for response in survey.project.domain.responses.values() {
            let older = response.variations.iter().flat_map(|one| &one.slot_conditions);
            self.read.extend(older.map(|(slot, _)| slot.as_str()));
        }
    }

    fn texts_name(&self, name: &str) -> bool {
        self.texts.iter().any(|text| text.contains(name))
    }
}
