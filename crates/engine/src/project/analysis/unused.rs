//! Finds unused slots, responses, actions and agents. The findings are only notes, because unused definitions are harmless.

use std::collections::HashSet;

use super::{
    super::{ActionReference, Call, Mapping, StepKind, references::ReferenceKind},
    project_index::{ProjectIndex, is_builtin_action},
};
use crate::finding::{Findings, SourceLocation};

pub(super) fn check(index: &ProjectIndex<'_>, findings: &mut Findings) {
    let used = UsedNames::of(index);
    for slot in index.project.domain.slots.values().filter(|slot| !slot.builtin) {
        let name = slot.name.as_str();
        if !used.slots.contains(name) && !index.has_code && !used.texts_name(name) {
            note(findings, &slot.place, &format!("the slot `{name}` is not used"));
        }
    }
    // Custom actions may send any response and read any slot.
    if !index.has_code {
        for response in index.project.domain.responses.values().filter(|response| !response.builtin) {
            let name = response.name.as_str();
            if !used.actions.contains(name) && !used.texts_name(name) {
                note(findings, &response.place, &format!("the response `{name}` is never sent"));
            }
        }
        collected_never_read(index, &used, findings);
    }
    for agent in index.project.agents.values().filter(|agent| !used.agents.contains(agent.name.as_str())) {
        note(findings, &agent.place, &format!("no flow and no mission calls the agent `{}`", agent.name));
    }
    actions(index, &used, findings);
}

fn note(findings: &mut Findings, place: &SourceLocation, what: &str) {
    findings.note("F0324", place, what, "Use it, or remove it.");
}

fn actions(index: &ProjectIndex<'_>, used: &UsedNames<'_>, findings: &mut Findings) {
    for (name, place) in index.listed_actions {
        let name = name.as_str();
        let by_slot = ["action_ask_", "validate_"]
            .iter()
            .any(|prefix| name.strip_prefix(prefix).is_some_and(|slot| index.project.slot(slot).is_some()));
        if !by_slot && !used.actions.contains(name) && !is_builtin_action(name) && !name.starts_with("validate_") {
            note(findings, place, &format!("no flow runs the action `{name}`"));
        }
    }
}

/// Reports slots that are collected and never read.
fn collected_never_read(index: &ProjectIndex<'_>, used: &UsedNames<'_>, findings: &mut Findings) {
    let mut reported: HashSet<&str> = HashSet::new();
    for flow in index.own_flows().filter(|flow| !flow.is_pattern()) {
        for (step, collect) in flow.collects() {
            let slot = collect.slot.as_str();
            if !used.read.contains(slot) && !used.texts_name(slot) && reported.insert(slot) {
                let message = format!("`{slot}` is collected, but nothing reads it");
                findings.note("F0247", &step.place, message, "Use the slot, or remove the step.");
            }
        }
    }
}

/// All names that something uses.
struct UsedNames<'p> {
    slots: HashSet<&'p str>,
    read: HashSet<&'p str>,
    actions: HashSet<&'p str>,
    agents: HashSet<&'p str>,
    /// Texts that may contain any name: prompts and built-in patterns.
    texts: Vec<&'p str>,
}

impl<'p> UsedNames<'p> {
    fn of(index: &ProjectIndex<'p>) -> Self {
        let mut names = Self {
            slots: HashSet::new(),
            read: HashSet::new(),
            actions: HashSet::new(),
            agents: HashSet::new(),
            texts: index
                .sources
                .texts
                .values()
                .chain(index.sources.patterns.iter().map(|file| &file.text))
                .map(|t| &**t)
                .collect(),
        };
        for used in index.references {
            match used.kind {
                ReferenceKind::Slot | ReferenceKind::PayloadSlot => _ = names.slots.insert(&*used.name),
                ReferenceKind::PrintedSlot => {
                    names.slots.insert(&*used.name);
                    names.read.insert(&*used.name);
                }
                ReferenceKind::Response | ReferenceKind::Action | ReferenceKind::CustomAction => {
                    _ = names.actions.insert(&*used.name)
                }
                _ => {}
            }
        }
        for used in index.conditions {
            for slot in used.condition.slots() {
                names.slots.insert(slot);
                let own = matches!(&used.role, super::super::references::ConditionRole::Rejection(own) if *own == slot);
                if !own {
                    names.read.insert(slot);
                }
            }
        }
        names.steps(index);
        names.missions(index);
        names.domain(index);
        names
    }

    fn steps(&mut self, index: &ProjectIndex<'p>) {
        for step in index.project.flows.values().flat_map(|flow| &flow.steps) {
            match &step.kind {
                StepKind::Collect(collect) => _ = self.actions.insert(collect.utter.as_str()),
                StepKind::Action(ActionReference::Plain(name)) => _ = self.actions.insert(name.as_str()),
                StepKind::Call(Call::Agent { agent, .. }) => _ = self.agents.insert(agent.as_str()),
                StepKind::Call(Call::Tool { input, .. }) => {
                    self.read.extend(input.iter().map(|(_, slot)| slot.as_str()));
                }
                _ => {}
            }
        }
        for server in index.project.endpoints.mcp_servers.values() {
            self.slots.extend(server.meta_slots.iter().map(|(_, slot)| slot.as_str()));
            self.read.extend(server.meta_slots.iter().map(|(_, slot)| slot.as_str()));
            // The server may ask for these slots during a call.
            for slot in server.elicitation.values() {
                self.slots.insert(slot.as_str());
                self.read.insert(slot.as_str());
                if let Some(question) = index.project.response(&format!("utter_ask_{slot}")) {
                    self.actions.insert(question.name.as_str());
                }
            }
        }
    }

    /// The agents that missions and their tasks may call.
    fn missions(&mut self, index: &ProjectIndex<'p>) {
        for mission in index.project.missions.values() {
            let of_tasks = mission.tasks.values().flat_map(|task| &task.agents);
            self.agents.extend(mission.agents.iter().chain(of_tasks).map(|agent| agent.as_str()));
        }
    }

    fn domain(&mut self, index: &ProjectIndex<'p>) {
        for slot in index.project.domain.slots.values() {
            if let Some(validation) = &slot.validation {
                self.actions.insert(validation.refill_utter.as_str());
            }
            // A slot that an intent or an entity fills counts as used.
            if slot
                .mappings
                .iter()
                .any(|mapping| !matches!(mapping, Mapping::FromLlm { .. } | Mapping::Controlled { .. }))
            {
                self.slots.insert(slot.name.as_str());
            }
        }
        for response in index.project.domain.responses.values() {
            let older = response.variations.iter().flat_map(|one| &one.slot_conditions);
            self.read.extend(older.map(|(slot, _)| slot.as_str()));
        }
    }

    fn texts_name(&self, name: &str) -> bool {
        self.texts.iter().any(|text| text.contains(name))
    }
}
