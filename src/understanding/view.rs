//! What the command generator may look at: the flows that can start, the flow under way, the question that is open.
//!
//! A view borrows everything from the project and the conversation; it costs the guards of the flows and nothing else.

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

/// One conversation as the command generator sees it.
pub(super) struct View<'a> {
    pub(super) project: &'a Project,
    pub(super) conversation: &'a Conversation,
    /// The author's flows whose guards hold, in the order of the project.
    pub(super) startable: Vec<&'a Flow>,
    /// Those of them that the prompt shows, in the same order.
    pub(super) shown: Vec<&'a Flow>,
    /// Which of the author's flows are shown, as bits in the order of the project: the key of the stable prompt.
    pub(super) mask: Vec<u64>,
    /// The question that is open.
    pub(super) asked: Option<Asked<'a>>,
}

/// The question that is open.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    /// The slot it is about.
    pub(super) slot: &'a SlotName,
    /// The step that asks; absent when the project no longer has it.
    pub(super) collect: Option<&'a Collect>,
}

impl<'a> View<'a> {
    /// Looks at a conversation: guards are evaluated with its slots as they are now.
    pub(super) fn new(project: &'a Project, conversation: &'a Conversation) -> Self {
        let scope = Facts { project, conversation, context: OnceCell::new() };
        let holds = |flow: &&'a Flow| flow.guard.as_ref().is_none_or(|guard| scope.holds(guard));
        let startable: Vec<&Flow> = project.user_flows().map(|flow| &**flow).filter(holds).collect();
        let (shown, mask) = (startable.clone(), mask_of(project, &startable));
        Self { project, conversation, startable, shown, mask, asked: asked(project, conversation) }
    }

    /// Shows these flows alone, those that were started before or are under way, and those that are always shown.
    pub(super) fn choose(&mut self, chosen: &[(FlowId, f32)]) {
        let under_way: Vec<&FlowId> = self.flows_under_way().collect();
        let conversation = self.conversation;
        self.shown.retain(|flow| {
            flow.always_include_in_prompt
                || conversation.started_flows.contains(&flow.id)
                || under_way.contains(&&flow.id)
                || chosen.iter().any(|(id, _)| *id == flow.id)
        });
        self.mask = mask_of(self.project, &self.shown);
    }

    /// The newest message.
    pub(super) fn message(&self) -> &'a str {
        self.conversation.latest_message.as_ref().map_or("", |message| &*message.text)
    }

    /// The frame that counts as the flow under way: questions, called flows and agents belong to the one below them.
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

    /// The id of the flow under way; may be that of a pattern.
    pub(super) fn current_flow(&self) -> Option<&'a FlowId> {
        self.current_frame().map(|frame| &frame.flow_id)
    }

    /// The author's flow under way and those that called it, topmost first: what `cancel flow` may name.
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
    pub(super) fn flows_under_way(&self) -> impl Iterator<Item = &'a FlowId> {
        let frames = self.conversation.stack.frames().iter();
        frames.filter(|frame| matches!(frame.kind, FrameKind::Flow { .. })).map(|frame| &frame.flow_id)
    }

    /// The collect steps of a flow and of those it calls that `wanted` picks, one for each slot, in order.
    pub(super) fn collects(&self, flow: &'a Flow, wanted: impl Fn(&Collect) -> bool) -> Vec<&'a Collect> {
        let mut found: Vec<&Collect> = Vec::new();
        walk(self.project, flow, 0, &mut Vec::new(), &mut |step| {
            if let StepKind::Collect(collect) = step
                && wanted(collect)
                && !found.iter().any(|known| known.slot == collect.slot)
            {
                found.push(collect);
            }
        });
        found
    }

    /// The agents that a flow and those it calls hand over to.
    pub(super) fn agents_of(&self, flow: &'a Flow) -> Vec<&'a AgentName> {
        let mut found: Vec<&AgentName> = Vec::new();
        walk(self.project, flow, 0, &mut Vec::new(), &mut |step| {
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
            || self.asked.is_some_and(|asked| *asked.slot == collect.slot)
    }

    /// The value of a slot now; null when it has none.
    pub(super) fn value(&self, slot: &str) -> &'a Json {
        value(self.project, self.conversation, slot).unwrap_or(&NULL)
    }

    /// The agent that waits for the user.
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

/// Flows as bits in the order of the project.
fn mask_of(project: &Project, flows: &[&Flow]) -> Vec<u64> {
    let mut mask = Vec::new();
    let mut rest = flows.iter().peekable();
    for (at, flow) in project.user_flows().enumerate() {
        if at % 64 == 0 {
            mask.push(0_u64);
        }
        if rest.next_if(|next| next.id == flow.id).is_some()
            && let Some(last) = mask.last_mut()
        {
            *last |= 1 << (at % 64);
        }
    }
    mask
}

/// The collect steps of a flow and of those it calls, one for each slot.
pub(super) fn collects_of<'a>(project: &'a Project, flow: &'a Flow) -> Vec<&'a Collect> {
    let mut found: Vec<&Collect> = Vec::new();
    walk(project, flow, 0, &mut Vec::new(), &mut |step| {
        if let StepKind::Collect(collect) = step
            && !found.iter().any(|known| known.slot == collect.slot)
        {
            found.push(collect);
        }
    });
    found
}

/// Whether the mappings of a slot let a model fill it at all.
pub(super) fn is_for_models(slot: &SlotDef) -> bool {
    slot.mappings.is_empty() || slot.mappings.iter().any(|mapping| matches!(mapping, Mapping::FromLlm { .. }))
}

/// The values a slot may take, where they are few.
pub(super) fn allowed_values(kind: &SlotType) -> Option<Vec<Json>> {
    match kind {
        SlotType::Categorical(values) => Some(values.iter().map(|value| Json::from(&**value)).collect()),
        SlotType::Bool => Some(vec![Json::Bool(true), Json::Bool(false)]),
        _ => None,
    }
}

/// Visits the steps of a flow and of those it calls, down to [`limits::COMMAND_CALL_DEPTH`]; a flow that calls itself is visited
/// once.
fn walk<'a>(
    project: &'a Project,
    flow: &'a Flow,
    depth: usize,
    seen: &mut Vec<&'a FlowId>,
    visit: &mut dyn FnMut(&'a StepKind),
) {
    if depth >= limits::COMMAND_CALL_DEPTH || seen.contains(&&flow.id) {
        return;
    }
    seen.push(&flow.id);
    for step in &flow.steps {
        visit(&step.kind);
        if let StepKind::Call(Call::Flow(child)) = &step.kind
            && let Some(child) = project.flow(child.as_str())
        {
            walk(project, child, depth + 1, seen, visit);
        }
    }
}

fn asked<'a>(project: &'a Project, conversation: &'a Conversation) -> Option<Asked<'a>> {
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
            Some(Asked { slot: collect, collect: collect_step })
        }
        PatternFrame::ValidateSlot { validate, .. } => {
            let collect = flow.and_then(|flow| flow.collects().map(|(_, found)| found).find(|f| f.slot == *validate));
            Some(Asked { slot: validate, collect })
        }
        _ => None,
    }
}

fn value<'a>(project: &'a Project, conversation: &'a Conversation, slot: &str) -> Option<&'a Json> {
    let definition = project.slot(slot)?;
    Some(conversation.slots.get(slot).unwrap_or(&definition.initial))
}

/// What guards look at: slots, and the frame on top as `context`, built only when a guard asks for it.
struct Facts<'a> {
    project: &'a Project,
    conversation: &'a Conversation,
    context: OnceCell<Option<Json>>,
}

impl Facts<'_> {
    fn holds(&self, guard: &Condition) -> bool {
        guard.eval(self).holds
    }
}

impl Scope for Facts<'_> {
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
                let mut facts = match &top.kind {
                    FrameKind::Pattern { context } => match serde_json::to_value(context) {
                        Ok(Json::Object(facts)) => facts,
                        _ => Map::new(),
                    },
                    FrameKind::Agent(_) | FrameKind::Flow { .. } => Map::new(),
                };
                facts.insert("flow_id".into(), top.flow_id.as_str().into());
                Some(Json::Object(facts))
            })
            .as_ref()
    }
}
