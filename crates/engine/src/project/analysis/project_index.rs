//! An index over the project for all analyses: which flows write a slot, the effects of called flows, and custom code.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    super::{
        ActionReference, Call, Flow, Mapping, Project, Sources, StepKind, builtin,
        check::with_called,
        references::{ConditionReference, NameReference, SlotAssignment},
    },
    ProjectReferences,
};
use crate::{
    condition::Condition,
    finding::{Finding, Severity, SourceLocation},
    ids::ActionName,
};

/// The effects of a flow on slots, including the flows that it calls.
#[derive(Debug, Default)]
pub(super) struct FlowEffects<'p> {
    /// The slots that it writes.
    pub(super) writes: HashSet<&'p str>,
    /// Whether it may write any slot, because it runs a custom action or an agent with custom code.
    pub(super) anything: bool,
    /// Whether it may wait for the user.
    pub(super) listens: bool,
}

/// What fills a slot, and whether the value outlives the flow.
#[derive(Debug, Default)]
pub(super) struct SlotWriters {
    /// The positions of the flows whose steps collect or set it. Such a value is reset when the flow ends.
    pub(super) flows: Vec<usize>,
    /// Whether something fills it beyond the end of the flow: a tool, an agent, a flow that persists it.
    pub(super) lasting: bool,
}

/// The project with an index of what several analyses need.
pub(super) struct ProjectIndex<'p> {
    pub(super) project: &'p Project,
    pub(super) sources: &'p Sources,
    pub(super) references: &'p [NameReference],
    pub(super) conditions: &'p [ConditionReference],
    pub(super) assignments: &'p [SlotAssignment],
    pub(super) listed_actions: &'p [(ActionName, SourceLocation)],
    /// Whether custom code may write slots at any time.
    pub(super) has_code: bool,
    /// Whether `pattern_collect_information` is the built-in one, so that a slot has a value after its collect step.
    pub(super) has_builtin_collect_pattern: bool,
    /// The slots with a collect step.
    pub(super) collected: HashSet<&'p str>,
    pub(super) writers: HashMap<&'p str, SlotWriters>,
    flows_with_errors: HashSet<&'p str>,
    /// The files and lines with a finding that already explains an error in a condition.
    reported: HashSet<(Arc<str>, u32)>,
    called: HashMap<&'p str, FlowEffects<'p>>,
}

impl<'p> ProjectIndex<'p> {
    pub(super) fn of(
        project: &'p Project,
        sources: &'p Sources,
        recorded: &ProjectReferences<'p>,
        found: &[Finding],
    ) -> Self {
        let agents_with_code = project.agents.values().any(|agent| agent.module.is_some());
        let asking = project.flow(builtin::pattern::COLLECT_INFORMATION);
        let mut index = Self {
            project,
            sources,
            references: recorded.references,
            conditions: recorded.conditions,
            assignments: recorded.assignments,
            listed_actions: recorded.listed_actions,
            has_code: !project.domain.actions.is_empty() || agents_with_code,
            has_builtin_collect_pattern: asking.is_none_or(|flow| flow.builtin),
            collected: project.flows.values().flat_map(|flow| flow.collects()).map(|(_, c)| c.slot.as_str()).collect(),
            writers: HashMap::new(),
            flows_with_errors: flows_with_errors(project, found),
            reported: reported(found),
            called: HashMap::new(),
        };
        index.writers = index.find_writers();
        index.called = index.find_called();
        index
    }

    /// The flows of the project without errors.
    pub(super) fn own_flows(&self) -> impl Iterator<Item = &'p Flow> {
        let own = |flow: &&Flow| !flow.builtin && !self.flows_with_errors.contains(flow.id.as_str());
        self.project.flows.values().map(|flow| &**flow).filter(own).collect::<Vec<_>>().into_iter()
    }

    /// Whether an error in the condition is already reported.
    pub(super) fn is_reported(&self, condition: &Condition) -> bool {
        condition.place().is_some_and(|place| self.reported.contains(&(place.file.clone(), place.line)))
    }

    /// The effects of a called flow.
    pub(super) fn effects_of(&self, flow: &str) -> Option<&FlowEffects<'p>> {
        self.called.get(flow)
    }

    /// Whether an action is custom code. A template may result in any action.
    pub(super) fn is_own_code(&self, name: &ActionReference) -> bool {
        match name {
            ActionReference::Template(_) => true,
            ActionReference::Plain(name) => {
                let name = name.as_str();
                self.project.lists_action(name) && self.project.response(name).is_none()
            }
        }
    }

    /// Whether a flow other than `flow` writes the slot.
    pub(super) fn is_written_outside(&self, slot: &str, flow: &Flow) -> bool {
        let here = self.project.flows.get_index_of(&flow.id);
        self.writers.get(slot).is_some_and(|writers| writers.flows.iter().any(|at| Some(*at) != here))
    }

    /// Whether a step or button resets the slot.
    pub(super) fn is_emptied(&self, slot: &str) -> bool {
        self.assignments.iter().any(|fill| &*fill.slot == slot && fill.value.is_null())
    }

    /// Whether something other than a flow fills the slot: an action in every turn, an NLU mapping, the runtime, an initial value.
    pub(super) fn is_filled_otherwise(&self, slot: &str) -> bool {
        self.project.slot(slot).is_none_or(|slot| {
            let by_itself = |mapping: &Mapping| match mapping {
                Mapping::FromLlm { .. } => false,
                Mapping::Controlled { run_action_every_turn } => run_action_every_turn.is_some(),
                _ => true,
            };
            slot.builtin || !slot.initial.is_null() || slot.mappings.iter().any(by_itself)
        })
    }

    fn find_writers(&self) -> HashMap<&'p str, SlotWriters> {
        let mut all: HashMap<&str, SlotWriters> = HashMap::new();
        for (at, flow) in self.project.flows.values().enumerate() {
            // Slots that a pattern writes are not reset when it ends.
            let lasts = flow.is_pattern();
            for step in &flow.steps {
                let (slots, lasts): (Vec<&str>, bool) = match &step.kind {
                    StepKind::Collect(collect) => {
                        (vec![collect.slot.as_str()], lasts || !collect.reset_after_flow_ends)
                    }
                    StepKind::SetSlots(pairs) => {
                        let filled = pairs.iter().filter(|(_, value)| !value.is_null());
                        (filled.map(|(slot, _)| slot.as_str()).collect(), lasts)
                    }
                    StepKind::Call(call) => (outputs(self.project, call), true),
                    _ => continue,
                };
                for slot in slots {
                    let writers = all.entry(slot).or_default();
                    writers.lasting |= lasts;
                    if writers.flows.last() != Some(&at) {
                        writers.flows.push(at);
                    }
                }
            }
            for slot in &flow.persisted_slots {
                all.entry(slot.as_str()).or_default().lasting = true;
            }
        }
        for fill in self.assignments.iter().filter(|fill| fill.button_of.is_some() && !fill.builtin) {
            all.entry(&*fill.slot).or_default();
        }
        all
    }

    fn find_called(&self) -> HashMap<&'p str, FlowEffects<'p>> {
        let mut called = HashMap::new();
        let steps = self.project.flows.values().flat_map(|flow| &flow.steps);
        for step in steps {
            if let StepKind::Call(Call::Flow(target)) = &step.kind
                && let Some(flow) = self.project.flow(target.as_str())
                && !called.contains_key(target.as_str())
            {
                called.insert(target.as_str(), self.effects(flow));
            }
        }
        called
    }

    fn effects(&self, flow: &'p Flow) -> FlowEffects<'p> {
        let mut effects = FlowEffects::default();
        for step in with_called(self.project, flow).into_iter().flat_map(|flow| &flow.steps) {
            match &step.kind {
                StepKind::Collect(collect) => {
                    effects.writes.insert(collect.slot.as_str());
                    effects.listens = true;
                }
                StepKind::SetSlots(pairs) => effects.writes.extend(pairs.iter().map(|(slot, _)| slot.as_str())),
                StepKind::Action(name) => {
                    effects.anything |= self.is_own_code(name);
                    effects.listens |= matches!(name, ActionReference::Plain(name) if *name == *builtin::LISTEN);
                }
                StepKind::Call(call) => {
                    effects.writes.extend(outputs(self.project, call));
                    if let Call::Agent { agent, .. } = call {
                        effects.listens = true;
                        let code = |agent: &Arc<super::super::AgentDef>| agent.module.is_some();
                        effects.anything |= self.project.agent(agent.as_str()).is_none_or(code);
                    }
                }
                StepKind::Link(_) | StepKind::Noop => {}
            }
        }
        effects
    }
}

/// The slots that the result of a tool or an agent fills.
pub(super) fn outputs<'p>(project: &'p Project, call: &'p Call) -> Vec<&'p str> {
    match call {
        Call::Flow(_) => Vec::new(),
        Call::Agent { agent, exit_if } => {
            let remote = project.agent(agent.as_str()).and_then(|agent| agent.remote.as_deref());
            let mapped = remote.into_iter().flat_map(|remote| &remote.output).map(|(slot, _)| slot.as_str());
            exit_if.iter().flat_map(Condition::slots).chain(mapped).collect()
        }
        Call::Tool { output, .. } => output.iter().map(|(slot, _)| slot.as_str()).collect(),
    }
}

/// Whether the name is a built-in action.
pub(super) fn is_builtin_action(name: &str) -> bool {
    builtin::action(name).is_some()
}

/// The flows with an error, which extend from their first line to the next flow in the file.
fn flows_with_errors<'p>(project: &'p Project, found: &[Finding]) -> HashSet<&'p str> {
    let mut starts: HashMap<&str, Vec<(u32, &str)>> = HashMap::new();
    for flow in project.flows.values() {
        starts.entry(&*flow.place.file).or_default().push((flow.place.line, flow.id.as_str()));
    }
    starts.values_mut().for_each(|starts| starts.sort_unstable());
    let mut flows_with_errors = HashSet::new();
    for finding in found.iter().filter(|finding| finding.severity == Severity::Error) {
        let Some(starts) = starts.get(&*finding.place.file) else { continue };
        let after = starts.partition_point(|(line, _)| *line <= finding.place.line);
        if let Some((_, flow)) = after.checked_sub(1).and_then(|at| starts.get(at)) {
            flows_with_errors.insert(*flow);
        }
    }
    flows_with_errors
}

/// The codes of findings that already explain an error in a condition.
const CONDITION_ERRORS: [&str; 5] = ["F0401", "F0402", "F0403", "F0405", "F0515"];

fn reported(found: &[Finding]) -> HashSet<(Arc<str>, u32)> {
    found.iter().filter(|f| CONDITION_ERRORS.contains(&f.code)).map(|f| (f.place.file.clone(), f.place.line)).collect()
}
