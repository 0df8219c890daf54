//! What the analyses ask about the project as a whole: who writes which slot, what flows do inside, whose code may do more.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    super::{
        ActionReference, Call, Flow, Mapping, Project, Sources, StepKind, builtin,
        check::with_called,
        uses::{ConditionUse, SlotAssignment, Use},
    },
    Noted,
};
use crate::{
    condition::Condition,
    finding::{Finding, Severity, SourceLocation},
    ids::ActionName,
};

/// What a flow does with slots, the flows it calls included.
#[derive(Debug, Default)]
pub(super) struct Touch<'p> {
    /// Slots it writes in any way.
    pub(super) writes: HashSet<&'p str>,
    /// Whether something in it may write any slot: an action of the author's own, an agent with code of its own.
    pub(super) anything: bool,
    /// Whether a user may be listened to in it.
    pub(super) listens: bool,
}

/// Who fills a slot, and how long that lasts.
#[derive(Debug, Default)]
pub(super) struct Writers {
    /// Positions of the flows whose steps ask for it or set it: gone when the flow ends.
    pub(super) flows: Vec<usize>,
    /// Whether something fills it for longer: a tool, an agent, a flow that persists it.
    pub(super) lasting: bool,
}

/// The project, with what several analyses need to know of it.
pub(super) struct Survey<'p> {
    pub(super) project: &'p Project,
    pub(super) sources: &'p Sources,
    pub(super) uses: &'p [Use],
    pub(super) conditions: &'p [ConditionUse],
    pub(super) fills: &'p [SlotAssignment],
    pub(super) listed: &'p [(ActionName, SourceLocation)],
    /// Whether code of the author's own may write slots at any moment.
    pub(super) has_code: bool,
    /// Whether asking works as usual: an answer is there when the question is over.
    pub(super) asks_as_usual: bool,
    /// Slots that some flow asks for.
    pub(super) collected: HashSet<&'p str>,
    pub(super) writers: HashMap<&'p str, Writers>,
    broken: HashSet<&'p str>,
    /// Lines, by file, with a finding that says why a condition there does not do what was meant.
    told: HashSet<(Arc<str>, u32)>,
    called: HashMap<&'p str, Touch<'p>>,
}

impl<'p> Survey<'p> {
    pub(super) fn of(project: &'p Project, sources: &'p Sources, noted: &Noted<'p>, found: &[Finding]) -> Self {
        let agents_with_code = project.agents.values().any(|agent| agent.module.is_some());
        let asking = project.flow(builtin::pattern::COLLECT_INFORMATION);
        let mut survey = Self {
            project,
            sources,
            uses: noted.uses,
            conditions: noted.conditions,
            fills: noted.fills,
            listed: noted.listed,
            has_code: !project.domain.actions.is_empty() || agents_with_code,
            asks_as_usual: asking.is_none_or(|flow| flow.builtin),
            collected: project.flows.values().flat_map(|flow| flow.collects()).map(|(_, c)| c.slot.as_str()).collect(),
            writers: HashMap::new(),
            broken: broken(project, found),
            told: told(found),
            called: HashMap::new(),
        };
        survey.writers = survey.find_writers();
        survey.called = survey.find_called();
        survey
    }

    /// The author's flows that have no error.
    pub(super) fn own_flows(&self) -> impl Iterator<Item = &'p Flow> {
        let own = |flow: &&Flow| !flow.builtin && !self.broken.contains(flow.id.as_str());
        self.project.flows.values().map(|flow| &**flow).filter(own).collect::<Vec<_>>().into_iter()
    }

    /// Whether something was already said about the condition itself.
    pub(super) fn is_told(&self, condition: &Condition) -> bool {
        condition.place().is_some_and(|place| self.told.contains(&(place.file.clone(), place.line)))
    }

    /// What a called flow does inside.
    pub(super) fn touch_of(&self, flow: &str) -> Option<&Touch<'p>> {
        self.called.get(flow)
    }

    /// Whether an action runs code of the author's own; a template may come to anything.
    pub(super) fn is_own_code(&self, name: &ActionReference) -> bool {
        match name {
            ActionReference::Template(_) => true,
            ActionReference::Plain(name) => {
                let name = name.as_str();
                self.project.lists_action(name) && self.project.response(name).is_none()
            }
        }
    }

    /// Whether a flow writes the slot, other than the one at hand.
    pub(super) fn is_written_outside(&self, slot: &str, flow: &Flow) -> bool {
        let here = self.project.flows.get_index_of(&flow.id);
        self.writers.get(slot).is_some_and(|writers| writers.flows.iter().any(|at| Some(*at) != here))
    }

    /// Whether some step empties the slot.
    pub(super) fn is_emptied(&self, slot: &str) -> bool {
        self.fills.iter().any(|fill| &*fill.slot == slot && fill.value.is_null())
    }

    /// Whether something beside flows fills the slot: an action at every turn, an NLU mapping, the runtime, its beginning.
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

    fn find_writers(&self) -> HashMap<&'p str, Writers> {
        let mut all: HashMap<&str, Writers> = HashMap::new();
        for (at, flow) in self.project.flows.values().enumerate() {
            // What a pattern writes belongs to the conversation, not to a task.
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
        for fill in self.fills.iter().filter(|fill| fill.button_of.is_some() && !fill.builtin) {
            all.entry(&*fill.slot).or_default();
        }
        all
    }

    fn find_called(&self) -> HashMap<&'p str, Touch<'p>> {
        let mut called = HashMap::new();
        let steps = self.project.flows.values().flat_map(|flow| &flow.steps);
        for step in steps {
            if let StepKind::Call(Call::Flow(target)) = &step.kind
                && let Some(flow) = self.project.flow(target.as_str())
                && !called.contains_key(target.as_str())
            {
                called.insert(target.as_str(), self.touch(flow));
            }
        }
        called
    }

    fn touch(&self, flow: &'p Flow) -> Touch<'p> {
        let mut touch = Touch::default();
        for step in with_called(self.project, flow).into_iter().flat_map(|flow| &flow.steps) {
            match &step.kind {
                StepKind::Collect(collect) => {
                    touch.writes.insert(collect.slot.as_str());
                    touch.listens = true;
                }
                StepKind::SetSlots(pairs) => touch.writes.extend(pairs.iter().map(|(slot, _)| slot.as_str())),
                StepKind::Action(name) => {
                    touch.anything |= self.is_own_code(name);
                    touch.listens |= matches!(name, ActionReference::Plain(name) if *name == *builtin::LISTEN);
                }
                StepKind::Call(call) => {
                    touch.writes.extend(outputs(self.project, call));
                    if let Call::Agent { agent, .. } = call {
                        touch.listens = true;
                        let code = |agent: &Arc<super::super::AgentDef>| agent.module.is_some();
                        touch.anything |= self.project.agent(agent.as_str()).is_none_or(code);
                    }
                }
                StepKind::Link(_) | StepKind::Noop => {}
            }
        }
        touch
    }
}

/// Slots that the answer of a tool or the work of an agent fills.
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

/// Whether the name is an action of the runtime.
pub(super) fn is_builtin_action(name: &str) -> bool {
    builtin::action(name).is_some()
}

/// Flows that hold an error: from their first line to the next flow of the file.
fn broken<'p>(project: &'p Project, found: &[Finding]) -> HashSet<&'p str> {
    let mut starts: HashMap<&str, Vec<(u32, &str)>> = HashMap::new();
    for flow in project.flows.values() {
        starts.entry(&*flow.place.file).or_default().push((flow.place.line, flow.id.as_str()));
    }
    starts.values_mut().for_each(|starts| starts.sort_unstable());
    let mut broken = HashSet::new();
    for finding in found.iter().filter(|finding| finding.severity == Severity::Error) {
        let Some(starts) = starts.get(&*finding.place.file) else { continue };
        let after = starts.partition_point(|(line, _)| *line <= finding.place.line);
        if let Some((_, flow)) = after.checked_sub(1).and_then(|at| starts.get(at)) {
            broken.insert(*flow);
        }
    }
    broken
}

/// Codes of findings that already say why a condition does not do what was meant.
const SAID: [&str; 5] = ["F0401", "F0402", "F0403", "F0405", "F0515"];

fn told(found: &[Finding]) -> HashSet<(Arc<str>, u32)> {
    found.iter().filter(|f| SAID.contains(&f.code)).map(|f| (f.place.file.clone(), f.place.line)).collect()
}
