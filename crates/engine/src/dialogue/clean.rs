//! Cleaning: which commands survive, and why the others do not (dialogue.md 4.6). Every drop and every replacement is a line
//! in `why`.

use serde_json::Value as Json;

use super::{
    Reason, code_change, collect, commands,
    commands::{Source, Verdict},
    ending::each_step,
    interrupt, slots,
    turn::Turn,
    walked,
};
use crate::{
    conversation::{Command, FilledBy, FrameKind, PatternFrame},
    ids::{FlowId, FrameId, SlotName},
    project::{Call, Project, StepKind},
};

/// What was under way when the user wrote. Commands change the stack one after the other; they all judge by this.
pub(super) struct Scene {
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

impl Scene {
    /// Looks at the stack before any command.
    pub(super) fn of(turn: &Turn<'_>) -> Self {
        let base = interrupt::top_base(&turn.stack);
        let chain = turn.stack.get(base.unwrap_or(0)..).unwrap_or_default();
        Self {
            asked: collect::asked(turn).cloned(),
            base: base.and_then(|at| turn.stack.get(at)).map(|frame| frame.frame_id.clone()),
            active: chain.iter().map(|frame| frame.flow_id.clone()).collect(),
            agent_waits: super::agent_frame::waits(&turn.stack),
            asks_to_continue: chain.iter().any(|frame| {
                matches!(frame.kind, FrameKind::Pattern { context: PatternFrame::ContinueInterrupted { .. } })
            }),
            started: Vec::new(),
            answered: false,
        }
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

/// Cleans the commands of one message and puts them into the order in which they run.
pub(super) fn clean(turn: &mut Turn<'_>, scene: &Scene, commands: Vec<Command>, source: Source) -> Vec<Command> {
    let by_name = commands.iter().any(|command| matches!(command, Command::StartPattern { .. }));
    if let Some(flow) = code_change::changed(turn).filter(|_| !by_name) {
        for command in commands {
            let rule = format!("`{flow}` has changed since it was started");
            turn.because(Reason::Replaced { command, by: Command::CodeChange, rule });
        }
        turn.note(format!("`{flow}` has changed since it was started"));
        return vec![Command::CodeChange];
    }
    let commands = forced(turn, commands, source);
    let mut kept: Vec<Command> = Vec::with_capacity(commands.len());
    let all: Vec<Command> = if commands.len() > 1 { commands.clone() } else { Vec::new() };
    for command in commands {
        match commands::clean(turn, scene, &kept, &all, command.clone(), source) {
            Verdict::Keep => kept.push(command),
            Verdict::Front => kept.insert(0, command),
            Verdict::Drop(rule) => turn.dropped(command, rule),
            Verdict::Replace(by, rule) => {
                turn.because(Reason::Replaced { command, by: by.clone(), rule: rule.to_owned() });
                merge(&mut kept, by);
            }
        }
    }
    let kept = asked_which(turn, scene, kept);
    let mut kept = with_agent(turn, scene, kept, source);
    if kept.len() > 1 {
        drop_where(turn, &mut kept, "other commands can be handled", |command| {
            matches!(command, Command::CannotHandle { .. })
        });
    }
    if kept.contains(&Command::CancelFlow) {
        forget_answers(turn, scene, &mut kept);
    }
    not_yet_shown(turn, scene, &mut kept);
    in_order(scene, kept)
}

/// A yes is a yes to what was shown: a message that changes it, or lets an agent look anew, does not answer the question as well.
fn not_yet_shown(turn: &mut Turn<'_>, scene: &Scene, kept: &mut Vec<Command>) {
    let Some(asked) = &scene.asked else { return };
    let answers = |command: &Command| matches!(command, Command::SetSlot { name, .. } if name == asked);
    if kept.len() < 2 || !kept.iter().any(answers) {
        return;
    }
    let mut changed: Vec<SlotName> = Vec::new();
    for command in kept.iter().filter(|command| !answers(command)) {
        match command {
            Command::SetSlot { name, value, .. } if !has_already(turn, name, value) => changed.push(name.clone()),
            Command::CorrectSlots { corrected_slots, .. } => {
                changed.extend(corrected_slots.iter().map(|(name, _)| name.clone()));
            }
            _ => {}
        }
    }
    let begins_anew = kept.iter().any(|command| matches!(command, Command::RestartAgent { .. }));
    if begins_anew && walked::asks_now_for_a_yes(turn) || walked::is_confirmed_now(turn, &changed) {
        drop_where(turn, kept, "the message changes what the question shows, so it does not answer it", answers);
    }
}

/// While a question takes nothing but its answer, everything else is dropped.
fn forced(turn: &mut Turn<'_>, commands: Vec<Command>, source: Source) -> Vec<Command> {
    let forced = collect::asking_step(turn).filter(|collect| collect.force_slot_filling);
    let Some(collect) = forced.filter(|_| source == Source::Model) else { return commands };
    let (mut kept, mut dropped) = (Vec::new(), Vec::new());
    for command in commands {
        let answers = matches!(&command, Command::SetSlot { name, .. } if *name == collect.slot);
        if answers { kept.push(command) } else { dropped.push(command) }
    }
    for command in dropped {
        turn.dropped(command, "the question takes nothing but its answer (force_slot_filling)");
    }
    if kept.is_empty() {
        kept.push(Command::CannotHandle { reason: "cannot_handle_default".to_owned() });
    }
    kept
}

/// Corrections become one command; a second of its kind is dropped, as is a second "cannot handle".
fn merge(kept: &mut Vec<Command>, command: Command) {
    match command {
        Command::CorrectSlots { corrected_slots: more, extractor } => {
            let first = kept.iter_mut().find_map(|command| match command {
                Command::CorrectSlots { corrected_slots, .. } => Some(corrected_slots),
                _ => None,
            });
            match first {
                Some(corrected) => corrected.extend(more),
                None => kept.push(Command::CorrectSlots { corrected_slots: more, extractor }),
            }
        }
        Command::CannotHandle { .. } if kept.iter().any(|one| matches!(one, Command::CannotHandle { .. })) => {}
        Command::StartFlow { .. } if kept.contains(&command) => {}
        other => kept.push(other),
    }
}

/// Where the project wants it: several flows while none is under way become the question which of them is meant.
fn asked_which(turn: &mut Turn<'_>, scene: &Scene, kept: Vec<Command>) -> Vec<Command> {
    let starts = |command: &Command| match command {
        Command::StartFlow { flow } => Some(flow.clone()),
        _ => None,
    };
    let options: Vec<FlowId> = kept.iter().filter_map(starts).collect();
    let wanted = turn.project.config.compat.clarify_on_multiple_start_flows;
    if !wanted || options.len() < 2 || scene.base.is_some() {
        return kept;
    }
    let by = Command::Clarify { options };
    let mut others = vec![by.clone()];
    for command in kept {
        if starts(&command).is_some() {
            let rule = "several flows were named (clarify_on_multiple_start_flows)".to_owned();
            turn.because(Reason::Replaced { command, by: by.clone(), rule });
        } else if !matches!(command, Command::SetSlot { .. }) {
            others.push(command);
        } else {
            turn.dropped(command, "no flow is started before it is known which");
        }
    }
    others
}

/// While an agent waits, what nobody can handle is for the agent, and so is a message that only fills slots.
fn with_agent(turn: &mut Turn<'_>, scene: &Scene, mut kept: Vec<Command>, source: Source) -> Vec<Command> {
    if !scene.agent_waits || source == Source::External {
        return kept;
    }
    let is_unhandled = |command: &Command| {
        matches!(command, Command::CannotHandle { reason } if reason != "cannot_handle_chitchat")
            && source != Source::Check
    };
    for at in 0..kept.len() {
        if let Some(command) = kept.get_mut(at).filter(|command| is_unhandled(command)) {
            let command = std::mem::replace(command, Command::ContinueAgent);
            let rule = "an agent waits for the user".to_owned();
            turn.because(Reason::Replaced { command, by: Command::ContinueAgent, rule });
        }
    }
    let only_fills = |command: &Command| matches!(command, Command::SetSlot { .. } | Command::CorrectSlots { .. });
    if kept.iter().all(only_fills) {
        turn.note("an agent waits for the user, and no command speaks against it: it goes on");
        kept.push(Command::ContinueAgent);
    }
    let mut seen = false;
    kept.retain(|command| !matches!(command, Command::ContinueAgent) || !std::mem::replace(&mut seen, true));
    kept
}

/// What was said to the flow that is given up is of no use any more, but for what a flow asks for that begins with this message.
fn forget_answers(turn: &mut Turn<'_>, scene: &Scene, kept: &mut Vec<Command>) {
    let project = turn.project;
    let starts = kept.iter().filter_map(|command| match command {
        Command::StartFlow { flow } => Some(flow.clone()),
        _ => None,
    });
    let starts: Vec<FlowId> = starts.collect();
    drop_where(turn, kept, "the flow that asks for it is cancelled", |command| match command {
        Command::CorrectSlots { .. } => true,
        Command::SetSlot { name, .. } => !scene.collects(project, &starts, name, false),
        _ => false,
    });
}

fn has_already(turn: &Turn<'_>, name: &SlotName, value: &Json) -> bool {
    let value = turn.project.slot(name.as_str()).map(|slot| slots::coerced(&slot.kind, value.clone()));
    value.is_some_and(|value| slots::same(&value, turn.slot(name.as_str())))
}

fn drop_where(turn: &mut Turn<'_>, kept: &mut Vec<Command>, rule: &str, goes: impl Fn(&Command) -> bool) {
    let all = std::mem::take(kept);
    for command in all {
        if goes(&command) { turn.dropped(command, rule) } else { kept.push(command) }
    }
}

/// With nothing under way the last flow to start comes last; then the list is turned round, so that the first flow that was
/// named ends up on top of the stack. "Stop" comes before everything: nothing may run to a question before the flow that was
/// given up is gone. Then what is answered in words, then corrections of the flow under way: what the same message starts
/// finds them made.
fn in_order(scene: &Scene, mut kept: Vec<Command>) -> Vec<Command> {
    if scene.base.is_none()
        && let Some(at) = kept.iter().rposition(|command| matches!(command, Command::StartFlow { .. }))
    {
        let start = kept.remove(at);
        kept.push(start);
    }
    // Stable: what was named first stays first among its kind.
    kept.sort_by_key(|command| match command {
        Command::CancelFlow => 0,
        Command::ChitChat
        | Command::Search
        | Command::RepeatBotMessages
        | Command::SkipQuestion
        | Command::HumanHandoff => 1,
        Command::CorrectSlots { .. } => 2,
        _ => 3,
    });
    kept.reverse();
    kept
}

/// Whether a slot may be filled by this source now (dialogue.md 3.3).
pub(super) fn may_fill(turn: &Turn<'_>, scene: &Scene, slot: &SlotName, by: FilledBy, all: &[Command]) -> bool {
    let starts = all.iter().filter_map(|command| match command {
        Command::StartFlow { flow } => Some(flow.as_str()),
        _ => None,
    });
    let active: Vec<&str> = scene.active_names().into_iter().chain(starts).collect();
    turn.project.slot(slot.as_str()).is_some_and(|slot| slots::may_fill(slot, by, &active))
}
