//! What the command generator sees of a project and a conversation: the startable flows, the active flow, the open question.
//!
//! A context borrows everything; building it only evaluates the guards of the flows.

use std::cell::OnceCell;

use segue_engine::{
    condition::{Condition, Scope},
    conversation::{Conversation, FlowFrameType, Frame, FrameKind, PatternFrame, Position},
    ids::{AgentName, FlowId, SlotName},
    project::{AgentDef, Call, Collect, Flow, Mapping, Project, SlotDef, SlotType, StepKind},
};
use serde_json::{Map, Value as Json};

use crate::limits;

static NULL: Json = Json::Null;

/// One conversation and its project as the command generator sees them.
pub(super) struct GeneratorContext<'a> {
    pub(super) project: &'a Project,
    pub(super) conversation: &'a Conversation,
    /// The author's flows whose guards hold, in the order of the project.
    pub(super) startable: Vec<&'a Flow>,
    /// The startable flows that the prompt shows, in the same order.
    pub(super) shown: Vec<&'a Flow>,
    /// Which flows are shown, as a bit set in the order of the project; a part of the key of the cached system message.
    pub(super) shown_flows_key: Vec<u64>,
    /// The question that the assistant asked last and that is not answered yet.
    pub(super) open_question: Option<OpenQuestion<'a>>,
}

/// A question that is not answered yet.
#[derive(Clone, Copy)]
pub(super) struct OpenQuestion<'a> {
    /// The slot that it asks for.
    pub(super) slot: &'a SlotName,
    /// The collect step that asks; `None` when the project no longer has it.
    pub(super) collect: Option<&'a Collect>,
}

impl<'a> GeneratorContext<'a> {
    /// The context of a conversation. Guards are evaluated with its current slots.
    pub(super) fn new(project: &'a Project, conversation: &'a Conversation) -> Self {
        let scope = GuardScope { project, conversation, context: OnceCell::new() };
        let holds = |flow: &&'a Flow| flow.guard.as_ref().is_none_or(|guard| scope.holds(guard));
        let startable: Vec<&Flow> = project.user_flows().map(|flow| &**flow).filter(holds).collect();
        let (shown, shown_flows_key) = (startable.clone(), flows_key(project, &startable));
        Self {
            project,
            conversation,
            startable,
            shown,
            shown_flows_key,
            open_question: open_question(project, conversation),
        }
    }

    /// Limits the shown flows to `chosen`, the flows that were started before or are active, and those with
    /// `always_include_in_prompt`.
    pub(super) fn show_only(&mut self, chosen: &[(FlowId, f32)]) {
        let active: Vec<&FlowId> = self.active_flows().collect();
        let conversation = self.conversation;
        self.shown.retain(|flow| {
            flow.always_include_in_prompt
                || conversation.started_flows.contains(&flow.id)
                || active.contains(&&flow.id)
                || chosen.iter().any(|(id, _)| *id == flow.id)
        });
        self.shown_flows_key = flows_key(self.project, &self.shown);
    }

    /// The newest message.
    pub(super) fn message(&self) -> &'a str {
        self.conversation.latest_message.as_ref().map_or("", |message| &*message.text)
    }

    /// The frame of the active flow: questions, called flows and agents belong to the frame below them.
    fn current_frame(&self) -> Option<&'a Frame> {
        self.conversation.stack.frames().iter().rev().find(|frame| {
            frame.at != Position::End
                && match &frame.kind {
                    FrameKind::Agent(_) => false,
                    FrameKind::Flow { frame_type } => *frame_type != FlowFrameType::Call,
                    FrameKind::Pattern { context } => {
                        !matches!(context, PatternFrame::CollectInformation { .. } | PatternFrame::ValidateSlot { .. })
                    }
                }
        })
    }

    /// The id of the active flow; may be that of a pattern.
    pub(super) fn current_flow(&self) -> Option<&'a FlowId> {
        self.current_frame().map(|frame| &frame.flow_id)
    }

    /// The ids that `cancel flow` may name: the active flow of the project and its callers, topmost first.
    pub(super) fn cancellable(&self) -> Vec<&'a str> {
        let mut found = Vec::new();
        for frame in self.conversation.stack.frames().iter().rev() {
            if let FrameKind::Flow { frame_type } = &frame.kind {
                found.push(frame.flow_id.as_str());
                if *frame_type != FlowFrameType::Call {
                    break;
                }
            }
        }
        found
    }

    /// The ids of the author's flows on the stack.
    pub(super) fn active_flows(&self) -> impl Iterator<Item = &'a FlowId> {
        let frames = self.conversation.stack.frames().iter();
        frames.filter(|frame| matches!(frame.kind, FrameKind::Flow { .. })).map(|frame| &frame.flow_id)
    }

    /// The collect steps of a flow and of the flows it calls for which `wanted` is true; the first one for each slot, in order.
    pub(super) fn collects(&self, flow: &'a Flow, wanted: impl Fn(&Collect) -> bool) -> Vec<&'a Collect> {
        collects_of(self.project, flow, wanted)
    }

    /// The agents that a flow and the flows it calls run.
    pub(super) fn agents_of(&self, flow: &'a Flow) -> Vec<&'a AgentName> {
        let mut found: Vec<&AgentName> = Vec::new();
        visit_steps(self.project, flow, 0, &mut Vec::new(), &mut |step| {
            if let StepKind::Call(Call::Agent { agent, .. }) = step
                && !found.contains(&agent)
            {
                found.push(agent);
            }
        });
        found
    }

    /// Whether a message may fill the slot of this step now.
    pub(super) fn is_extractable(&self, collect: &Collect) -> bool {
        !collect.ask_before_filling
            || self.conversation.slots.has_been_set(collect.slot.as_str())
            || self.open_question.is_some_and(|open_question| *open_question.slot == collect.slot)
    }

    /// The current value of a slot; null when it has none.
    pub(super) fn value(&self, slot: &str) -> &'a Json {
        value(self.project, self.conversation, slot).unwrap_or(&NULL)
    }

    /// The agent that waits for the user's input.
    pub(super) fn active_agent(&self) -> Option<&'a AgentName> {
        self.conversation.stack.waiting_agent().map(|agent| &agent.agent_id)
    }

    /// The agents that completed a task in this conversation.
    pub(super) fn completed_agents(&self) -> impl Iterator<Item = &'a AgentName> {
        self.conversation.agents.iter().filter(|(_, record)| record.completed > 0).map(|(name, _)| name)
    }

    /// The description of an agent; empty when the project no longer has it.
    pub(super) fn agent_description(&self, name: &AgentName) -> &'a str {
        let agent: Option<&AgentDef> = self.project.agent(name.as_str()).map(|agent| &**agent);
        agent.map_or("", |agent| &agent.description)
    }
}

/// A set of flows as bits in the order of the project.
fn flows_key(project: &Project, flows: &[&Flow]) -> Vec<u64> {
    let mut shown_flows_key = Vec::new();
    let mut rest = flows.iter().peekable();
    for (at, flow) in project.user_flows().enumerate() {
        if at % 64 == 0 {
            shown_flows_key.push(0_u64);
        }
        if rest.next_if(|next| next.id == flow.id).is_some()
            && let Some(last) = shown_flows_key.last_mut()
        {
            *last |= 1 << (at % 64);
        }
    }
    shown_flows_key
}

/// The collect steps of a flow and of the flows it calls for which `wanted` is true; the first one for each slot, in order.
pub(super) fn collects_of<'a>(
    project: &'a Project,
    flow: &'a Flow,
    wanted: impl Fn(&Collect) -> bool,
) -> Vec<&'a Collect> {
    let mut found: Vec<&Collect> = Vec::new();
    visit_steps(project, flow, 0, &mut Vec::new(), &mut |step| {
        if let StepKind::Collect(collect) = step
            && wanted(collect)
            && !found.iter().any(|earlier| earlier.slot == collect.slot)
        {
            found.push(collect);
        }
    });
    found
}

/// Whether the mappings of a slot let a model fill it.
pub(super) fn is_for_models(slot: &SlotDef) -> bool {
    slot.mappings.is_empty() || slot.mappings.iter().any(|mapping| matches!(mapping, Mapping::FromLlm { .. }))
}

/// The values that a categorical or boolean slot may have; `None` for other types.
pub(super) fn allowed_values(kind: &SlotType) -> Option<Vec<Json>> {
    match kind {
        SlotType::Categorical(values) => Some(values.iter().map(|value| Json::from(&**value)).collect()),
        SlotType::Bool => Some(vec![Json::Bool(true), Json::Bool(false)]),
        _ => None,
    }
}

/// Visits the steps of a flow and of the flows it calls, down to [`limits::COMMAND_CALL_DEPTH`]. Each flow is visited once, also
/// in a cycle of calls.
fn visit_steps<'a>(
    project: &'a Project,
    flow: &'a Flow,
    depth: usize,
    visited: &mut Vec<&'a FlowId>,
    visit: &mut dyn FnMut(&'a StepKind),
) {
    if depth >= limits::COMMAND_CALL_DEPTH || visited.contains(&&flow.id) {
        return;
    }
    visited.push(&flow.id);
    for step in &flow.steps {
        visit(&step.kind);
        if let StepKind::Call(Call::Flow(child)) = &step.kind
            && let Some(child) = project.flow(child.as_str())
        {
            visit_steps(project, child, depth + 1, visited, visit);
        }
    }
}

fn open_question<'a>(project: &'a Project, conversation: &'a Conversation) -> Option<OpenQuestion<'a>> {
    let (top, below) = conversation.stack.frames().split_last()?;
    let FrameKind::Pattern { context } = &top.kind else { return None };
    let flow = below.last().and_then(|frame| project.flow(frame.flow_id.as_str()));
    match context {
        PatternFrame::CollectInformation { collect, step_id, .. } => {
            let step = flow.and_then(|flow| flow.step(step_id.as_str()));
            let collect_step = step.and_then(|step| match &step.kind {
                StepKind::Collect(found) if found.slot == *collect => Some(&**found),
                _ => None,
            });
            Some(OpenQuestion { slot: collect, collect: collect_step })
        }
        PatternFrame::ValidateSlot { validate, .. } => {
            let collect = flow.and_then(|flow| flow.collects().map(|(_, found)| found).find(|f| f.slot == *validate));
            Some(OpenQuestion { slot: validate, collect })
        }
        _ => None,
    }
}

fn value<'a>(project: &'a Project, conversation: &'a Conversation, slot: &str) -> Option<&'a Json> {
    let definition = project.slot(slot)?;
    Some(conversation.slots.get(slot).unwrap_or(&definition.initial))
}

/// The values that guards may read: the slots, and the top frame as `context`, which is built only when a guard reads it.
struct GuardScope<'a> {
    project: &'a Project,
    conversation: &'a Conversation,
    context: OnceCell<Option<Json>>,
}

impl GuardScope<'_> {
    fn holds(&self, guard: &Condition) -> bool {
        guard.eval(self).holds
    }
}

impl Scope for GuardScope<'_> {
    fn slot(&self, name: &str) -> Option<&Json> {
        value(self.project, self.conversation, name)
    }
    fn slot_count(&self) -> usize {
        self.project.domain.slots.len()
    }
    fn context(&self) -> Option<&Json> {
        self.context
            .get_or_init(|| {
                let top = self.conversation.stack.top()?;
                let mut values = match &top.kind {
                    FrameKind::Pattern { context } => match serde_json::to_value(context) {
                        Ok(Json::Object(values)) => values,
                        _ => Map::new(),
                    },
                    FrameKind::Agent(_) | FrameKind::Flow { .. } => Map::new(),
                };
                values.insert("flow_id".into(), top.flow_id.as_str().into());
                Some(Json::Object(values))
            })
            .as_ref()
    }
}
