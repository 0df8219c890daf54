//! The state of the conversation when the message arrived.

use super::started;
use crate::{
    conversation::{Command, FilledBy, PatternFrame},
    dialogue::{advance_context::AdvanceContext, agent_frame, chains, collect, frame_end::for_each_step_kind, slots},
    ids::{FlowId, FrameId, SlotName},
    project::{Call, Project, StepKind},
};

/// The state of the conversation when the message arrived. Commands change the stack one after the other; all their
/// rules refer to this state.
pub(super) struct CommandContext {
    /// The slot that was being asked for.
    pub(super) asked_slot: Option<SlotName>,
    /// The base frame of the topmost chain, if a flow was active.
    pub(super) base: Option<FrameId>,
    /// The flows and patterns of the topmost chain.
    pub(super) active: Vec<FlowId>,
    /// Whether an agent waited for the user.
    pub(super) agent_waits: bool,
    /// Whether the user was being asked which flow to continue.
    pub(super) asks_to_continue: bool,
    /// Flows that the kept commands start.
    pub(super) started: Vec<FlowId>,
    /// Whether the kept commands set the slot that was being asked for.
    pub(super) answered: bool,
    /// Whether the message is for the waiting agent first, and only then starts flows.
    pub(super) agent_first: bool,
    /// Whether the message cancels the active flow. If it also starts that flow, it begins again.
    pub(super) cancels: bool,
}

impl CommandContext {
    /// Captures the state before any command runs.
    pub(super) fn of(turn: &AdvanceContext<'_>, commands: &[Command]) -> Self {
        let base = chains::top_base(&turn.stack);
        let chain = turn.stack.get(base.unwrap_or(0)..).unwrap_or_default();
        let agent_waits = agent_frame::is_top_agent_waiting(&turn.stack);
        let is_for_either = |command: &&Command| matches!(command, Command::ContinueAgent | Command::StartFlow { .. });
        let first = commands.iter().find(is_for_either);
        Self {
            asked_slot: collect::asked_slot(turn).cloned(),
            base: base.and_then(|at| turn.stack.get(at)).map(|frame| frame.frame_id.clone()),
            active: chain.iter().map(|frame| frame.flow_id.clone()).collect(),
            agent_waits,
            asks_to_continue: chain
                .iter()
                .any(|frame| matches!(frame.pattern(), Some(PatternFrame::ContinueInterrupted { .. }))),
            started: Vec::new(),
            answered: false,
            agent_first: agent_waits && first == Some(&Command::ContinueAgent),
            cancels: base.is_some() && commands.contains(&Command::CancelFlow),
        }
    }

    /// Adds what the kept commands start and answer.
    pub(super) fn with(mut self, commands: &[Command]) -> Self {
        let answers = |command: &Command| matches!(command, Command::SetSlot { name, .. } if self.asked_slot.as_ref() == Some(name));
        self.answered = commands.iter().any(answers);
        self.started = commands.iter().filter_map(started).collect();
        self
    }

    /// The current index of the base frame, if it is still on the stack.
    pub(super) fn base_in(&self, turn: &AdvanceContext<'_>) -> Option<usize> {
        let id = self.base.as_ref()?;
        turn.stack.iter().position(|frame| frame.frame_id == *id)
    }

    /// The flows whose slots the user may fill.
    pub(super) fn active_names(&self) -> Vec<&str> {
        self.active.iter().chain(&self.started).map(FlowId::as_str).collect()
    }

    /// The flow that a value is for, if the message starts it: the last flow that asks for the slot among those `before`
    /// the value. A value before all of them is for the active flow if that asks for it and is not cancelled, otherwise
    /// for the first started flow that asks for it. `None`: for the active flow, or for none.
    pub(super) fn started_owner(
        &self,
        project: &Project,
        before: &[Command],
        all: &[Command],
        slot: &SlotName,
    ) -> Option<FlowId> {
        let asks = |flow: &FlowId| self.collects(project, std::slice::from_ref(flow), slot, false);
        if let Some(flow) = before.iter().rev().filter_map(started).find(asks) {
            return Some(flow).filter(|flow| !self.goes_on(flow));
        }
        let stays = self.base.is_some() && !self.cancels;
        if stays && (self.asked_slot.as_ref() == Some(slot) || self.collects(project, &self.active, slot, false)) {
            return None;
        }
        all.iter().filter_map(started).find(|flow| !self.goes_on(flow) && asks(flow))
    }

    /// Whether a flow is active and is not cancelled by the message.
    pub(super) fn goes_on(&self, flow: &FlowId) -> bool {
        self.active.contains(flow) && !self.cancels
    }

    /// Whether one of the flows asks for the slot; `eager` excludes collect steps that always ask.
    pub(super) fn collects(&self, project: &Project, flows: &[FlowId], slot: &SlotName, eager: bool) -> bool {
        flows.iter().filter_map(|flow| project.flow(flow.as_str())).any(|flow| {
            let mut found = false;
            for_each_step_kind(project, flow, &mut Vec::new(), &mut |kind| match kind {
                StepKind::Collect(collect) => {
                    found |= collect.slot == *slot && !(eager && collect.ask_before_filling);
                }
                StepKind::Call(Call::Tool { server, .. }) => found |= project.may_ask(server, slot),
                _ => {}
            });
            found
        })
    }
}

/// Whether this source may fill the slot now.
pub(super) fn may_fill(
    turn: &AdvanceContext<'_>,
    ctx: &CommandContext,
    slot: &SlotName,
    by: FilledBy,
    all: &[Command],
) -> bool {
    let starts = all.iter().filter_map(|command| match command {
        Command::StartFlow { flow } => Some(flow.as_str()),
        _ => None,
    });
    let active: Vec<&str> = ctx.active_names().into_iter().chain(starts).collect();
    turn.project.slot(slot.as_str()).is_some_and(|slot| slots::may_fill(slot, by, &active))
}
