//! Invariants of commands: requested flows start, and interrupted flows are offered again.

use segue_engine::{
    conversation::{AgentState, Command, EventKind, FilledBy, Frame, FrameKind, PatternFrame, Position},
    dialogue::{Next, Reason},
};

use super::{
    CheckResult, InvariantChecker, TurnRecord,
    idle_state::{is_base, shown, top_chain},
    reference,
};

fn flows(frames: &[Frame]) -> impl Iterator<Item = &Frame> {
    frames.iter().filter(|frame| matches!(frame.kind, FrameKind::Flow { .. }))
}

/// Every started flow runs, is on the stack, or a reason says why not: a silently dropped command could not be
/// explained.
pub(super) fn start_flow_is_executed_or_explained(_: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
    let Some((record, commands, _)) = turn.understood() else { return Ok(()) };
    // An action may have reset the conversation.
    if turn.resets_after_understanding() {
        return Ok(());
    }
    for command in commands {
        let Command::StartFlow { flow } = command else { continue };
        let from = record.events.start - turn.first;
        let happened = turn.events[from..].iter().any(|event| match &event.kind {
            EventKind::FlowStarted { flow_id, .. } | EventKind::FlowResumed { flow_id, .. } => flow_id == flow,
            _ => false,
        });
        let waits = flows(turn.rest()).any(|frame| frame.flow_id == *flow);
        let explained = turn.reasons().any(|why| match why {
            Reason::Dropped { command: other, .. } | Reason::Replaced { command: other, .. } => other == command,
            Reason::Note { text } => text.contains(flow.as_str()) || text.contains("in a loop"),
            // A failure removes the flows that were about to start.
            Reason::Failed { .. } => true,
            _ => false,
        });
        if !happened && !waits && !explained && turn.is_over() && !super::idle_state::stopped_from_outside(turn) {
            return Err(format!("`{flow}` did not start, and no reason says why"));
        }
    }
    Ok(())
}

/// A flow whose guard does not hold, for example a premium service, cannot be started by any command of the model.
pub(super) fn guards_prevent_starts(checker: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
    let Some((record, commands, source)) = turn.understood() else { return Ok(()) };
    let values = checker.slots.when_judged(&record.project);
    let stack = turn.judged(record);
    // Links and calls ignore the guard.
    let lies = |flow: &str| stack.iter().any(|frame| frame.flow_id == *flow);
    for event in turn.events_of(record) {
        let EventKind::FlowStarted { flow_id, .. } = &event.kind else { continue };
        let named = commands.iter().any(|command| match command {
            Command::StartFlow { flow } => flow == flow_id,
            Command::Clarify { options } => options.contains(flow_id),
            _ => false,
        });
        let Some(flow) = record.project.flow(flow_id.as_str()).filter(|_| named && source == "model") else { continue };
        let closed = flow.guard.as_ref().is_some_and(|guard| !reference::allows(guard, &values));
        if closed && !lies(flow_id.as_str()) && !reference::is_led_to(&record.project, flow_id.as_str()) {
            return Err(format!("`{flow_id}` starts though its guard does not hold"));
        }
    }
    Ok(())
}

/// The commands of an ordinary message from the command generator, and the stack before them.
fn plain<'t>(turn: &'t TurnRecord<'_>) -> Option<(&'t [Command], Vec<Frame>)> {
    let (record, commands, source) = turn.understood()?;
    let stack = turn.judged(record);
    let forced = reference::asking(&record.project, &stack).is_some_and(|collect| collect.force_slot_filling);
    let cut_short = turn.is_exhausted() || turn.interrupts_turn() || super::idle_state::stopped_from_outside(turn);
    let usual = source == "model" && !forced && turn.listens() && !cut_short;
    let failed = turn.reasons().any(|why| matches!(why, Reason::Failed { .. }));
    let forgotten = turn.resets_after_understanding();
    (usual && !failed && (!forgotten || stack.is_empty())).then_some((commands, stack))
}

/// Starting a flow that is below on the stack resumes it with its answers, instead of a new one.
pub(super) fn started_flow_is_on_top(_: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
    let Some((commands, stack)) = plain(turn) else { return Ok(()) };
    let [Command::StartFlow { flow }] = commands else { return Ok(()) };
    let known = turn.project().flow(flow.as_str()).is_some_and(|flow| flow.guard.is_none());
    let lies = flows(&stack).find(|frame| frame.flow_id == *flow && frame.at != Position::End);
    let (Some(frame), true) = (lies, known) else { return Ok(()) };
    if top_chain(&stack).iter().any(|frame| frame.flow_id == *flow) || has_changed(turn, &stack) {
        return Ok(());
    }
    let twice = flows(turn.rest()).filter(|other| other.flow_id == *flow).count()
        > flows(&stack).filter(|o| o.flow_id == *flow).count();
    if twice {
        return Err(format!("`{flow}` is on the stack and was started again: {}", shown(turn.rest())));
    }
    // A linked or called flow may push others; it only must not stay below.
    let still_there = turn.rest().iter().any(|other| other.frame_id == frame.frame_id);
    let on_top = top_chain(turn.rest()).iter().any(|other| other.frame_id == frame.frame_id);
    if still_there && !on_top && !turn.has(|kind| matches!(kind, EventKind::FlowResumed { .. })) {
        return Err(format!("`{flow}` was started and stays below: {}", shown(turn.rest())));
    }
    Ok(())
}

fn has_changed(turn: &TurnRecord<'_>, stack: &[Frame]) -> bool {
    turn.is_notified_of_change() || flows(stack).any(|frame| turn.project().flow(frame.flow_id.as_str()).is_none())
}

/// `force_slot_filling`: while such a question is open, other commands of the model have no effect, because feedback
/// may read like anything.
pub(super) fn force_slot_filling_accepts_only_the_answer(
    _: &mut InvariantChecker,
    turn: &TurnRecord<'_>,
) -> CheckResult {
    let Some((record, _, "model")) = turn.understood() else { return Ok(()) };
    let stack = turn.judged(record);
    let Some(forced) = reference::asking(&record.project, &stack).filter(|collect| collect.force_slot_filling) else {
        return Ok(());
    };
    for event in turn.events_of(record) {
        match &event.kind {
            EventKind::Slot { name, filled_by: Some(FilledBy::Llm), .. } if *name != forced.slot => {
                return Err(format!("`{}` has force_slot_filling, but `{name}` was set", forced.slot));
            }
            EventKind::FlowStarted { flow_id, .. } if *flow_id == "pattern_cancel_flow" => {
                return Err(format!("`{}` has force_slot_filling, but the flow was cancelled", forced.slot));
            }
            _ => {}
        }
    }
    Ok(())
}

/// `cancel flow` removes the active flow with everything it called and asked, and nothing of it sends messages again.
pub(super) fn cancelled_flow_is_removed(_: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
    let Some((commands, stack)) = plain(turn) else { return Ok(()) };
    if !commands.contains(&Command::CancelFlow) || has_changed(turn, &stack) {
        return Ok(());
    }
    let chain = top_chain(&stack);
    let Some(base) = chain.first().filter(|frame| is_base(frame)) else { return Ok(()) };
    if let Some(frame) = turn.rest().iter().find(|frame| chain.iter().any(|old| old.frame_id == frame.frame_id)) {
        // A flow that the same message starts may only stay if it starts again.
        return Err(format!(
            "`{}` was cancelled, and `{}` of it stays: {}",
            base.flow_id,
            frame.flow_id,
            shown(turn.rest())
        ));
    }
    let told = turn.has(|kind| matches!(kind, EventKind::FlowCancelled { flow_id, .. } if *flow_id == base.flow_id));
    if told || base.at == Position::Start || base.at == Position::End {
        return Ok(());
    }
    Err(format!("`{}` was cancelled without an event", base.flow_id))
}

/// After a digression an interrupted flow resumes only after a question, or when the user starts it.
pub(super) fn interrupted_flow_resumes_only_after_a_question(
    _: &mut InvariantChecker,
    turn: &TurnRecord<'_>,
) -> CheckResult {
    let own = turn.project().flow("pattern_continue_interrupted").is_some_and(|flow| {
        !flow.steps.iter().any(|step| matches!(step.kind, segue_engine::project::StepKind::Collect(_)))
    });
    // A project may resume it at once; with a cleared stack nothing resumes.
    if !turn.listens() || turn.is_exhausted() || own {
        return Ok(());
    }
    let Some(first) = turn.inputs.first() else { return Ok(()) };
    let before = &first.before;
    let Some(base) = top_chain(turn.rest()).first().filter(|frame| is_base(frame)) else { return Ok(()) };
    let was_below = before.iter().any(|frame| frame.frame_id == base.frame_id && frame.at != Position::Start)
        && !top_chain(before).iter().any(|frame| frame.frame_id == base.frame_id);
    if !was_below {
        return Ok(());
    }
    let asked = top_chain(turn.rest())
        .iter()
        .any(|frame| matches!(frame.kind, FrameKind::Pattern { context: PatternFrame::ContinueInterrupted { .. } }));
    let resumed = turn.has(|kind| matches!(kind, EventKind::FlowResumed { flow_id, .. } if *flow_id == base.flow_id));
    let named = turn.understood().is_some_and(|(_, commands, _)| {
        commands.iter().any(|command| match command {
            Command::StartFlow { flow } => *flow == base.flow_id,
            Command::Clarify { options } => options.contains(&base.flow_id),
            _ => false,
        })
    });
    // If the turn interrupted the previous one, the digression may be over when the commands run: a correction then
    // concerns the flow below.
    let changed = turn.interrupts_turn()
        && turn.has(|kind| matches!(kind, EventKind::FlowStarted { flow_id, .. } if *flow_id == *"pattern_correction"));
    if asked || resumed || named || changed {
        return Ok(());
    }
    Err(format!("`{}` resumed without a question: {}", base.flow_id, shown(turn.rest())))
}

/// A waiting agent gets every message that only sets slots, so that a user need not repeat anything. A correction may
/// lead the flow back, and a value may have to be validated first.
pub(super) fn waiting_agent_gets_the_message(_: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
    let Some((record, commands, source)) = turn.understood() else { return Ok(()) };
    let stack = turn.judged(record);
    let waits = matches!(stack.last().map(|frame| &frame.kind), Some(FrameKind::Agent(agent)) if agent.state == AgentState::WaitingForInput);
    let for_it = |command: &Command| match command {
        Command::ContinueAgent | Command::SetSlot { .. } => true,
        Command::CannotHandle { reason } => reason != "cannot_handle_chitchat",
        _ => false,
    };
    let interfered = super::idle_state::stopped_from_outside(turn) || turn.resets_after_understanding();
    if !waits
        || interfered
        || ["check", "payload"].contains(&source)
        || !commands.iter().all(for_it)
        || model_changed(turn)
    {
        return Ok(());
    }
    let ran = turn.inputs.iter().any(|record| matches!(record.next, Next::Agent(_)));
    let about_to =
        |frame: &Frame| matches!(&frame.kind, FrameKind::Agent(agent) if agent.state == AgentState::Continuing);
    let went_back = turn.has(|kind| matches!(kind, EventKind::AgentCancelled { .. }));
    if ran || turn.is_exhausted() || went_back || turn.rest().iter().any(about_to) {
        return Ok(());
    }
    Err(format!("an agent waited and was not run: {}", shown(turn.rest())))
}

fn model_changed(turn: &TurnRecord<'_>) -> bool {
    turn.is_notified_of_change() || turn.notes("in this project") || turn.notes("no longer calls an agent")
}
