//! What was under way when the user wrote.

use super::started;
use crate::{
    conversation::{Command, FilledBy, PatternFrame},
    dialogue::{agent_frame, collect, ending::each_step, interrupt, slots, turn::Turn},
    ids::{FlowId, FrameId, SlotName},
    project::{Call, Project, StepKind},
};

/// What was under way when the user wrote. Commands change the stack one after the other; they all judge by this.
pub(super) struct CommandContext {
    /// The slot that was being asked for.
    pub(super) asked: Option<SlotName>,
    /// The base of the topmost chain, if a flow was under way.
    pub(super) base: Option<FrameId>,
    /// The flows and patterns of the topmost chain.
    pub(super) active: Vec<FlowId>,
    /// Whether an agent waited for the user.
    pub(super) agent_waits: bool,
    /// Whether the user was being asked which flow to go on with.
    pub(super) asks_to_continue: bool,
    /// Flows that the surviving commands start.
    pub(super) started: Vec<FlowId>,
    /// Whether the surviving commands answer the slot that was being asked for.
    pub(super) answered: bool,
}

impl CommandContext {
    /// Looks at the stack before any command.
    pub(super) fn of(turn: &Turn<'_>) -> Self {
        let base = interrupt::top_base(&turn.stack);
        let chain = turn.stack.get(base.unwrap_or(0)..).unwrap_or_default();
        Self {
            asked: collect::asked(turn).cloned(),
            base: base.and_then(|at| turn.stack.get(at)).map(|frame| frame.frame_id.clone()),
            active: chain.iter().map(|frame| frame.flow_id.clone()).collect(),
            agent_waits: agent_frame::waits(&turn.stack),
            asks_to_continue: chain
                .iter()
                .any(|frame| matches!(frame.pattern(), Some(PatternFrame::ContinueInterrupted { .. }))),
            started: Vec::new(),
            answered: false,
        }
    }

    /// The same with what these commands, which survived, will start and answer.
    pub(super) fn with(mut self, commands: &[Command]) -> Self {
        let answers =
            |command: &Command| matches!(command, Command::SetSlot { name, .. } if self.asked.as_ref() == Some(name));
        self.answered = commands.iter().any(answers);
        self.started = commands.iter().filter_map(started).collect();
        self
    }

    /// Where the base stands now, if it still does.
    pub(super) fn base_in(&self, turn: &Turn<'_>) -> Option<usize> {
        let id = self.base.as_ref()?;
        turn.stack.iter().position(|frame| frame.frame_id == *id)
    }

    /// The flows whose slots the user may fill.
    pub(super) fn active_names(&self) -> Vec<&str> {
        self.active.iter().chain(&self.started).map(FlowId::as_str).collect()
    }

    /// Whether a flow under way asks for a slot somewhere; `eager` leaves out questions that are always asked.
    pub(super) fn collects(&self, project: &Project, flows: &[FlowId], slot: &SlotName, eager: bool) -> bool {
        flows.iter().filter_map(|flow| project.flow(flow.as_str())).any(|flow| {
            let mut found = false;
            each_step(project, flow, &mut Vec::new(), &mut |kind| match kind {
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

/// Whether a slot may be filled by this source now.
pub(super) fn may_fill(turn: &Turn<'_>, ctx: &CommandContext, slot: &SlotName, by: FilledBy, all: &[Command]) -> bool {
    let starts = all.iter().filter_map(|command| match command {
        Command::StartFlow { flow } => Some(flow.as_str()),
        _ => None,
    });
    let active: Vec<&str> = ctx.active_names().into_iter().chain(starts).collect();
    turn.project.slot(slot.as_str()).is_some_and(|slot| slots::may_fill(slot, by, &active))
}
