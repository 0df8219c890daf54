//! Finds reads of slots that cannot have a value: nothing fills them, or they are reset before the read.
//!
//! Only for projects without custom code, because an action may fill any slot at any time.

use std::collections::{BTreeMap, HashSet};

use super::{
    super::{
        Call, Flow, StepKind,
        check::with_called,
        references::{ConditionRole, NameReference, ReferenceKind},
    },
    branches::decided,
    project_index::ProjectIndex,
    slot_domains::{NULL, SlotDomains},
};
use crate::finding::{Findings, SourceLocation};

pub(super) fn check(index: &ProjectIndex<'_>, findings: &mut Findings) {
    if index.has_code {
        return;
    }
    let reads = reads(index);
    let families = CallTrees::of(index);
    let mut never: BTreeMap<&str, &SlotRead<'_>> = BTreeMap::new();
    for read in &reads {
        if index.is_filled_otherwise(read.slot) {
            continue;
        }
        match index.writers.get(read.slot) {
            None => {
                // One finding for each slot, at its most important read.
                let first = never.entry(read.slot).or_insert(read);
                if read.kind < first.kind {
                    *first = read;
                }
            }
            Some(writers) if read.kind == ReadKind::Guard && waits_for_itself(index, read, &writers.flows) => {
                let message = format!("the guard reads `{}`, which only this flow fills", read.slot);
                let help = "Fill the slot in another flow, or negate the guard: with `not slots.…` the flow runs once.";
                findings.warning("F0255", &read.place, message, help);
            }
            Some(writers) if !writers.lasting && !writers.flows.is_empty() => {
                let Some(flow) = read.flow else { continue };
                if !writers.flows.iter().any(|at| families.are_related(*at, flow)) {
                    report_reset(index, read, writers.flows.first().copied(), findings);
                }
            }
            Some(_) => {}
        }
    }
    for (slot, read) in never {
        let message = format!("{} `{slot}`, which nothing ever fills", read.kind.description());
        let help = "Fill it with a collect step, `set_slots`, a tool or an agent, or add an `initial_value`.";
        findings.warning("F0245", &read.place, message, help);
    }
}

/// Whether a guard is never true before its own flow has run, and nothing else starts the flow.
fn waits_for_itself(index: &ProjectIndex<'_>, read: &SlotRead<'_>, writers: &[usize]) -> bool {
    let Some((id, flow)) = read.flow.and_then(|at| index.project.flows.get_index(at)) else { return false };
    let own = !writers.is_empty() && writers.iter().all(|at| Some(*at) == read.flow);
    let Some(guard) = flow.guard.as_ref().filter(|_| own && flow.nlu_triggers.is_empty()) else { return false };
    let mut steps = index.project.flows.values().flat_map(|flow| &flow.steps);
    let starts = |kind: &StepKind| matches!(kind, StepKind::Link(to) | StepKind::Call(Call::Flow(to)) if to == id);
    if steps.any(|step| starts(&step.kind)) {
        return false;
    }
    let domains = SlotDomains::of(index.project, std::iter::once(guard), std::iter::empty(), std::iter::empty());
    let mut sets = domains.everything();
    if let Some(set) = domains.at(read.slot).and_then(|at| sets.get_mut(at)) {
        *set = NULL;
    }
    decided(&domains, guard, &sets) == Some(false)
}

fn report_reset(index: &ProjectIndex<'_>, read: &SlotRead<'_>, writer: Option<usize>, findings: &mut Findings) {
    let Some((id, _)) = writer.and_then(|at| index.project.flows.get_index(at)) else { return };
    let message = format!("{} `{}`, which is reset when `{id}` ends", read.kind.description(), read.slot);
    let help = format!("Write `persisted_slots: [{}]` in `{id}`, or call that flow instead.", read.slot);
    // A text or a tool call may be intended for the time while the other flow is interrupted.
    match read.kind {
        ReadKind::Guard | ReadKind::Branch => findings.warning("F0246", &read.place, message, help),
        ReadKind::Tool | ReadKind::Text => findings.note("F0246", &read.place, message, help),
    }
}

/// The kinds of reads, the most important first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ReadKind {
    Guard,
    Branch,
    Tool,
    Text,
}

impl ReadKind {
    fn description(self) -> &'static str {
        match self {
            Self::Guard => "the guard reads",
            Self::Branch => "the condition reads",
            Self::Tool => "the tool call reads",
            Self::Text => "the text shows",
        }
    }
}

struct SlotRead<'p> {
    slot: &'p str,
    kind: ReadKind,
    /// The position of the flow; `None` for a text.
    flow: Option<usize>,
    place: SourceLocation,
}

fn reads<'p>(index: &ProjectIndex<'p>) -> Vec<SlotRead<'p>> {
    let mut reads = Vec::new();
    for (flow, def) in index.project.flows.values().enumerate().filter(|(_, def)| !def.is_pattern()) {
        if let Some(guard) = &def.guard {
            let place = guard.place().unwrap_or(&def.place).clone();
            let read = |slot| SlotRead { slot, kind: ReadKind::Guard, flow: Some(flow), place: place.clone() };
            reads.extend(guard.slots().map(read));
        }
        for step in &def.steps {
            if let StepKind::Call(Call::Tool { input, .. }) = &step.kind {
                let read = |slot| SlotRead { slot, kind: ReadKind::Tool, flow: Some(flow), place: step.place.clone() };
                reads.extend(input.iter().map(|(_, slot)| read(slot.as_str())));
            }
        }
    }
    for used in index.conditions.iter().filter(|used| !used.builtin) {
        let ConditionRole::Branch(id) = &used.role else { continue };
        let Some(flow) = index.project.flows.get_index_of(id).filter(|_| !id.as_str().starts_with("pattern_")) else {
            continue;
        };
        let place = used.at.place(&used.file);
        let read = |slot| SlotRead { slot, kind: ReadKind::Branch, flow: Some(flow), place: place.clone() };
        reads.extend(used.condition.slots().map(read));
    }
    let sent = SentResponses::of(index);
    for reference in
        index.references.iter().filter(|reference| reference.kind == ReferenceKind::PrintedSlot && !reference.builtin)
    {
        if index.project.slot(&reference.name).is_some() && sent.holds(&reference.place) {
            reads.push(SlotRead {
                slot: &reference.name,
                kind: ReadKind::Text,
                flow: None,
                place: reference.place.clone(),
            });
        }
    }
    reads
}

/// For each file, the first lines of responses and whether something sends them. Texts that are never sent are ignored.
struct SentResponses<'p>(BTreeMap<&'p str, Vec<(u32, bool)>>);

impl<'p> SentResponses<'p> {
    fn of(index: &ProjectIndex<'p>) -> Self {
        let as_name =
            |reference: &&NameReference| matches!(reference.kind, ReferenceKind::Response | ReferenceKind::Action);
        let mut names: HashSet<&str> =
            index.references.iter().filter(as_name).map(|reference| &*reference.name).collect();
        let collects = index.project.flows.values().flat_map(|flow| flow.collects());
        names.extend(collects.map(|(_, collect)| collect.utter.as_str()));
        let mut starts: BTreeMap<&str, Vec<(u32, bool)>> = BTreeMap::new();
        for response in index.project.domain.responses.values() {
            let is_sent = names.contains(response.name.as_str());
            starts.entry(&*response.place.file).or_default().push((response.place.line, is_sent));
        }
        starts.values_mut().for_each(|starts| starts.sort_unstable());
        Self(starts)
    }

    fn holds(&self, place: &SourceLocation) -> bool {
        let Some(starts) = self.0.get(&*place.file) else { return false };
        let after = starts.partition_point(|(line, _)| *line <= place.line);
        after.checked_sub(1).and_then(|at| starts.get(at)).is_some_and(|(_, is_sent)| *is_sent)
    }
}

/// The call trees: for each flow with calls, the flow and all flows that it calls. Their slots have the same lifetime.
struct CallTrees(Vec<HashSet<usize>>);

impl CallTrees {
    fn of(index: &ProjectIndex<'_>) -> Self {
        let at = |flow: &Flow| index.project.flows.get_index_of(&flow.id);
        let calls = |flow: &&Flow| flow.steps.iter().any(|step| matches!(step.kind, StepKind::Call(Call::Flow(_))));
        let callers = index.project.flows.values().map(|flow| &**flow).filter(calls);
        Self(callers.map(|flow| with_called(index.project, flow).into_iter().filter_map(at).collect()).collect())
    }

    /// Whether both flows are in a call tree: one calls the other, or a third flow calls both.
    fn are_related(&self, a: usize, b: usize) -> bool {
        a == b || self.0.iter().any(|family| family.contains(&a) && family.contains(&b))
    }
}
