//! Slots that are read where no value can be: nothing fills them, or what filled them is over.
//!
//! Only in projects without code of their own, since an action may fill any slot at any time.

use std::collections::{BTreeMap, HashSet};

use super::{
    super::{
        Call, Flow, StepKind,
        check::with_called,
        uses::{Role, Use, Used},
    },
    branches::decided,
    cells::{Ground, NULL},
    survey::Survey,
};
use crate::finding::{Findings, SourceLocation};

pub(super) fn check(survey: &Survey<'_>, findings: &mut Findings) {
    if survey.has_code {
        return;
    }
    let reads = reads(survey);
    let families = Families::of(survey);
    let mut never: BTreeMap<&str, &Read<'_>> = BTreeMap::new();
    for read in &reads {
        if survey.is_filled_otherwise(read.slot) {
            continue;
        }
        match survey.writers.get(read.slot) {
            None => {
                // One slip, however often the slot is read: told where it weighs most.
                let first = never.entry(read.slot).or_insert(read);
                if read.how < first.how {
                    *first = read;
                }
            }
            Some(writers) if read.how == How::Guard && waits_for_itself(survey, read, &writers.flows) => {
                let message = format!("the guard waits for `{}`, which nothing but this flow itself fills", read.slot);
                let help = "Fill the slot in another flow, or turn the guard: `not slots.…` lets the flow run once.";
                findings.warning("F0255", &read.place, message, help);
            }
            Some(writers) if !writers.lasting && !writers.flows.is_empty() => {
                let Some(flow) = read.flow else { continue };
                if !writers.flows.iter().any(|at| families.are_related(*at, flow)) {
                    gone(survey, read, writers.flows.first().copied(), findings);
                }
            }
            Some(_) => {}
        }
    }
    for (slot, read) in never {
        let message = format!("{} `{slot}`, which nothing ever fills", read.how.said());
        let help = "Collect it, set it by `set_slots`, a tool or an agent, or give it an `initial_value`.";
        findings.warning("F0245", &read.place, message, help);
    }
}

/// Whether a guard cannot hold before its own flow has run, and nothing else starts that flow.
fn waits_for_itself(survey: &Survey<'_>, read: &Read<'_>, writers: &[usize]) -> bool {
    let Some((id, flow)) = read.flow.and_then(|at| survey.project.flows.get_index(at)) else { return false };
    let own = !writers.is_empty() && writers.iter().all(|at| Some(*at) == read.flow);
    let Some(guard) = flow.guard.as_ref().filter(|_| own && flow.nlu_triggers.is_empty()) else { return false };
    let mut steps = survey.project.flows.values().flat_map(|flow| &flow.steps);
    let starts = |kind: &StepKind| matches!(kind, StepKind::Link(to) | StepKind::Call(Call::Flow(to)) if to == id);
    if steps.any(|step| starts(&step.kind)) {
        return false;
    }
    let ground = Ground::of(survey.project, std::iter::once(guard), std::iter::empty(), std::iter::empty());
    let mut masks = ground.everything();
    if let Some(mask) = ground.at(read.slot).and_then(|at| masks.get_mut(at)) {
        *mask = NULL;
    }
    decided(&ground, guard, &masks) == Some(false)
}

fn gone(survey: &Survey<'_>, read: &Read<'_>, writer: Option<usize>, findings: &mut Findings) {
    let Some((id, _)) = writer.and_then(|at| survey.project.flows.get_index(at)) else { return };
    let message = format!("{} `{}`, which is emptied when `{id}` ends", read.how.said(), read.slot);
    let help = format!("Write `persisted_slots: [{}]` in `{id}`, or call that flow instead.", read.slot);
    // A text or a tool may be meant for the time while the other flow is interrupted.
    match read.how {
        How::Guard | How::Branch => findings.warning("F0246", &read.place, message, help),
        How::Tool | How::Text => findings.note("F0246", &read.place, message, help),
    }
}

/// How a slot is read, by weight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum How {
    Guard,
    Branch,
    Tool,
    Text,
}

impl How {
    fn said(self) -> &'static str {
        match self {
            Self::Guard => "the guard reads",
            Self::Branch => "the condition reads",
            Self::Tool => "the tool is given",
            Self::Text => "the text prints",
        }
    }
}

struct Read<'p> {
    slot: &'p str,
    how: How,
    /// The flow, by position; none for a text.
    flow: Option<usize>,
    place: SourceLocation,
}

fn reads<'p>(survey: &Survey<'p>) -> Vec<Read<'p>> {
    let mut reads = Vec::new();
    for (flow, def) in survey.project.flows.values().enumerate().filter(|(_, def)| !def.is_pattern()) {
        if let Some(guard) = &def.guard {
            let place = guard.place().unwrap_or(&def.place).clone();
            let read = |slot| Read { slot, how: How::Guard, flow: Some(flow), place: place.clone() };
            reads.extend(guard.slots().map(read));
        }
        for step in &def.steps {
            if let StepKind::Call(Call::Tool { input, .. }) = &step.kind {
                let read = |slot| Read { slot, how: How::Tool, flow: Some(flow), place: step.place.clone() };
                reads.extend(input.iter().map(|(_, slot)| read(slot.as_str())));
            }
        }
    }
    for used in survey.conditions.iter().filter(|used| !used.builtin) {
        let Role::Branch(id) = &used.role else { continue };
        let Some(flow) = survey.project.flows.get_index_of(id).filter(|_| !id.as_str().starts_with("pattern_")) else {
            continue;
        };
        let place = used.at.place(&used.file);
        let read = |slot| Read { slot, how: How::Branch, flow: Some(flow), place: place.clone() };
        reads.extend(used.condition.slots().map(read));
    }
    let said = Said::of(survey);
    for used in survey.uses.iter().filter(|used| used.used == Used::PrintedSlot && !used.builtin) {
        if survey.project.slot(&used.name).is_some() && said.holds(&used.place) {
            reads.push(Read { slot: &used.name, how: How::Text, flow: None, place: used.place.clone() });
        }
    }
    reads
}

/// Where the responses stand that something says: a text that nobody hears misses nothing.
struct Said<'p>(BTreeMap<&'p str, Vec<(u32, bool)>>);

impl<'p> Said<'p> {
    fn of(survey: &Survey<'p>) -> Self {
        let as_name = |used: &&Use| matches!(used.used, Used::Response | Used::Action);
        let mut names: HashSet<&str> = survey.uses.iter().filter(as_name).map(|used| &*used.name).collect();
        let collects = survey.project.flows.values().flat_map(|flow| flow.collects());
        names.extend(collects.map(|(_, collect)| collect.utter.as_str()));
        let mut starts: BTreeMap<&str, Vec<(u32, bool)>> = BTreeMap::new();
        for response in survey.project.domain.responses.values() {
            let is_said = names.contains(response.name.as_str());
            starts.entry(&*response.place.file).or_default().push((response.place.line, is_said));
        }
        starts.values_mut().for_each(|starts| starts.sort_unstable());
        Self(starts)
    }

    fn holds(&self, place: &SourceLocation) -> bool {
        let Some(starts) = self.0.get(&*place.file) else { return false };
        let after = starts.partition_point(|(line, _)| *line <= place.line);
        after.checked_sub(1).and_then(|at| starts.get(at)).is_some_and(|(_, is_said)| *is_said)
    }
}

/// Which flows share the life of their slots: a caller and what it calls.
struct Families(Vec<HashSet<usize>>);

impl Families {
    fn of(survey: &Survey<'_>) -> Self {
        let at = |flow: &Flow| survey.project.flows.get_index_of(&flow.id);
        let calls = |flow: &&Flow| flow.steps.iter().any(|step| matches!(step.kind, StepKind::Call(Call::Flow(_))));
        let callers = survey.project.flows.values().map(|flow| &**flow).filter(calls);
        Self(callers.map(|flow| with_called(survey.project, flow).into_iter().filter_map(at).collect()).collect())
    }

    /// Whether some flow holds both: one calls the other, or a third calls them.
    fn are_related(&self, a: usize, b: usize) -> bool {
        a == b || self.0.iter().any(|family| family.contains(&a) && family.contains(&b))
    }
}
