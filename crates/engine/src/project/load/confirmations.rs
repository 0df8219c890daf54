//! Which questions are confirmations: those whose answer decides what follows.

use std::sync::Arc;

use indexmap::IndexMap;

use super::super::{Call, Endpoints, Flow, NextStep, Step, StepKind, Target};
use crate::ids::{FlowId, SlotName, StepId};

/// Sets [`Collect::decides`](crate::project::Collect::decides), when all flows are known: the condition may stand in another flow.
pub(super) fn mark(flows: &mut IndexMap<FlowId, Arc<Flow>>, endpoints: &Endpoints) {
    let search = Search { flows, endpoints };
    let found: Vec<(FlowId, StepId)> = flows
        .values()
        .flat_map(|flow| flow.collects().map(move |(step, collect)| (flow, step, collect)))
        .filter(|(_, _, collect)| collect.ask_before_filling)
        .filter(|(flow, step, collect)| search.decides(flow, step, &collect.slot))
        .map(|(flow, step, _)| (flow.id.clone(), step.id.clone()))
        .collect();
    for (flow, step) in found {
        let steps = flows.get_mut(&flow).and_then(Arc::get_mut).map(|flow| flow.steps.iter_mut());
        if let Some(StepKind::Collect(collect)) =
            steps.and_then(|mut steps| steps.find(|one| one.id == step)).map(|step| &mut step.kind)
        {
            collect.decides = true;
        }
    }
}

struct Search<'a> {
    flows: &'a IndexMap<FlowId, Arc<Flow>>,
    endpoints: &'a Endpoints,
}

/// A place from which a flow goes on.
#[derive(Clone, Copy)]
enum Place<'a> {
    After(&'a Flow, &'a Step),
    At(&'a Flow, &'a Step),
    /// The flow has ended.
    End(&'a Flow),
}

impl<'a> Search<'a> {
    /// Whether a condition on the slot follows the step, before the next question and before anything that may write, an agent included.
    fn decides(&self, flow: &'a Flow, step: &'a Step, slot: &SlotName) -> bool {
        let mut open = vec![Place::After(flow, step)];
        let mut seen: Vec<(&FlowId, Option<&StepId>)> = Vec::new();
        while let Some(place) = open.pop() {
            match place {
                Place::After(flow, step) => {
                    if let NextStep::Branch { branches, .. } = &step.next
                        && branches.iter().any(|branch| branch.condition.slots().any(|name| *slot == *name))
                    {
                        return true;
                    }
                    open.extend(step.next.targets().filter_map(|target| match target {
                        Target::End => Some(Place::End(flow)),
                        Target::Step(id) => flow.step(id.as_str()).map(|step| Place::At(flow, step)),
                    }));
                }
                Place::At(flow, step) if is_new(&mut seen, &flow.id, Some(&step.id)) => match &step.kind {
                    StepKind::Noop | StepKind::Action(_) | StepKind::SetSlots(_) => open.push(Place::After(flow, step)),
                    StepKind::Call(Call::Tool { server, tool, .. })
                        if self.endpoints.tool_effect(server, tool) == Some("read") =>
                    {
                        open.push(Place::After(flow, step));
                    }
                    StepKind::Call(Call::Flow(entered)) | StepKind::Link(entered) => {
                        let Some(entered) = self.flows.get(entered) else { continue };
                        if entered.guard.iter().flat_map(|guard| guard.slots()).any(|name| *slot == *name) {
                            return true;
                        }
                        open.push(entered.first().map_or(Place::End(entered), |first| Place::At(entered, first)));
                    }
                    StepKind::Collect(_) | StepKind::Call(_) => {}
                },
                Place::End(flow) if is_new(&mut seen, &flow.id, None) => open.extend(self.calls_of(&flow.id)),
                Place::At(..) | Place::End(_) => {}
            }
        }
        false
    }

    /// The places behind the calls of a flow.
    fn calls_of(&self, called: &FlowId) -> Vec<Place<'a>> {
        let steps = self.flows.values().flat_map(|flow| flow.steps.iter().map(move |step| (&**flow, step)));
        let calls = steps.filter(|(_, step)| matches!(&step.kind, StepKind::Call(Call::Flow(one)) if one == called));
        calls.map(|(flow, step)| Place::After(flow, step)).collect()
    }
}

fn is_new<'a>(seen: &mut Vec<(&'a FlowId, Option<&'a StepId>)>, flow: &'a FlowId, step: Option<&'a StepId>) -> bool {
    let is_new = !seen.contains(&(flow, step));
    if is_new {
        seen.push((flow, step));
    }
    is_new
}
