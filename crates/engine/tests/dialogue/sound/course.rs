//! The course of the conversation: what people ask for happens, and what they left is offered again.

use segue_engine::{
    conversation::{AgentState, Command, EventKind, FilledBy, Frame, FrameKind, PatternFrame, Position},
    dialogue::{Next, Reason},
};

use super::{
    Ledger, Turn, Verdict, model,
    rest::{is_base, shown, top_chain},
};

fn flows(frames: &[Frame]) -> impl Iterator<Item = &Frame> {
    frames.iter().filter(|frame| matches!(frame.kind, FrameKind::Flow { .. }))
}

/// A command that is dropped in silence cannot be understood by anybody who looks for the reason: a flow that was asked for
/// is started, is under way, or the record says why not.
pub(super) fn a_start_is_followed_or_explained(_: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    let Some((taken, commands, _)) = turn.understood() else { return Ok(()) };
    // An action may have forgotten everything.
    if turn.forgets_it() {
        return Ok(());
    }
    for command in commands {
        let Command::StartFlow { flow } = command else { continue };
        let from = taken.events.start - turn.first;
        let happened = turn.events[from..].iter().any(|event| match &event.kind {
            EventKind::FlowStarted { flow_id, .. } | EventKind::FlowResumed { flow_id, .. } => flow_id == flow,
            _ => false,
        });
        let waits = flows(turn.rest()).any(|frame| frame.flow_id == *flow);
        let explained = turn.why().any(|why| match why {
            Reason::Dropped { command: other, .. } | Reason::Replaced { command: other, .. } => other == command,
            Reason::Note { text } => text.contains(flow.as_str()) || text.contains("circles"),
            // What fails takes what it was about to begin with it.
            Reason::Failed { .. } => true,
            _ => false,
        });
        if !happened && !waits && !explained && turn.is_over() && !super::rest::left_alone(turn) {
            return Err(format!("`{flow}` was to start and did not, and nothing says why"));
        }
    }
    Ok(())
}

/// What a guard keeps closed, a premium service for instance, stays closed to every command of the model.
pub(super) fn a_guard_keeps_its_flow_closed(ledger: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    let Some((taken, commands, source)) = turn.understood() else { return Ok(()) };
    let values = ledger.slots.when_judged(&taken.project);
    let stack = turn.judged(taken);
    // A link or a call leads past the guard.
    let lies = |flow: &str| stack.iter().any(|frame| frame.flow_id == *flow);
    for event in turn.events_of(taken) {
        let EventKind::FlowStarted { flow_id, .. } = &event.kind else { continue };
        let named = commands.iter().any(|command| match command {
            Command::StartFlow { flow } => flow == flow_id,
            Command::Clarify { options } => options.contains(flow_id),
            _ => false,
        });
        let Some(flow) = taken.project.flow(flow_id.as_str()).filter(|_| named && source == "model") else { continue };
        let closed = flow.guard.as_ref().is_some_and(|guard| !model::allows(guard, &values));
        if closed && !lies(flow_id.as_str()) && !model::is_led_to(&taken.project, flow_id.as_str()) {
            return Err(format!("`{flow_id}` starts though its guard does not hold"));
        }
    }
    Ok(())
}

/// Commands of a message that does one thing only, judged by the model.
fn plain<'t>(turn: &'t Turn<'_>) -> Option<(&'t [Command], Vec<Frame>)> {
    let (taken, commands, source) = turn.understood()?;
    let stack = turn.judged(taken);
    let forced = model::asking(&taken.project, &stack).is_some_and(|collect| collect.force_slot_filling);
    let cut_short = turn.is_exhausted() || turn.cuts() || super::rest::left_alone(turn);
    let usual = source == "model" && !forced && turn.listens() && !cut_short;
    let failed = turn.why().any(|why| matches!(why, Reason::Failed { .. }));
    let forgotten = turn.forgets_it();
    (usual && !failed && (!forgotten || stack.is_empty())).then_some((commands, stack))
}

/// Who names a task that lies below goes on with it: the same task, with the answers it has, not a new one.
pub(super) fn what_is_named_comes_to_the_top(_: &mut Ledger, turn: &Turn<'_>) -> Verdict {
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
        return Err(format!("`{flow}` lies on the stack and was started once more: {}", shown(turn.rest())));
    }
    // A linked or called flow may bring others up meanwhile; what counts is that it is not below.
    let still_there = turn.rest().iter().any(|other| other.frame_id == frame.frame_id);
    let on_top = top_chain(turn.rest()).iter().any(|other| other.frame_id == frame.frame_id);
    if still_there && !on_top && !turn.has(|kind| matches!(kind, EventKind::FlowResumed { .. })) {
        return Err(format!("`{flow}` was named and stays below: {}", shown(turn.rest())));
    }
    Ok(())
}

fn has_changed(turn: &Turn<'_>, stack: &[Frame]) -> bool {
    turn.is_told_of_change() || flows(stack).any(|frame| turn.project().flow(frame.flow_id.as_str()).is_none())
}

/// An author who forces an answer knows why: feedback may read like anything. While such a question is open, what the model
/// reads into the message beside the answer has no effect.
pub(super) fn a_forced_question_takes_its_answer_only(_: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    let Some((taken, _, "model")) = turn.understood() else { return Ok(()) };
    let stack = turn.judged(taken);
    let Some(forced) = model::asking(&taken.project, &stack).filter(|collect| collect.force_slot_filling) else {
        return Ok(());
    };
    for event in turn.events_of(taken) {
        match &event.kind {
            EventKind::Slot { name, filled_by: Some(FilledBy::Llm), .. } if *name != forced.slot => {
                return Err(format!("`{}` is asked for and nothing else, and `{name}` was filled", forced.slot));
            }
            EventKind::FlowStarted { flow_id, .. } if *flow_id == "pattern_cancel_flow" => {
                return Err(format!("`{}` is asked for and nothing else, and the flow was stopped", forced.slot));
            }
            _ => {}
        }
    }
    Ok(())
}

/// "Stop" means stop: the task that was under way is gone, with what it called and asked, and nothing of it speaks again.
pub(super) fn what_is_cancelled_is_gone(_: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    let Some((commands, stack)) = plain(turn) else { return Ok(()) };
    if !commands.contains(&Command::CancelFlow) || has_changed(turn, &stack) {
        return Ok(());
    }
    let chain = top_chain(&stack);
    let Some(base) = chain.first().filter(|frame| is_base(frame)) else { return Ok(()) };
    if let Some(frame) = turn.rest().iter().find(|frame| chain.iter().any(|old| old.frame_id == frame.frame_id)) {
        // A task that the same message named is taken out of what is cancelled only by beginning anew.
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
    Err(format!("`{}` was cancelled, and no event says so", base.flow_id))
}

/// Who digressed has forgotten where they were: a task that was interrupted goes on only after the user was asked, or named it.
pub(super) fn nothing_interrupted_goes_on_by_itself(_: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    let own = turn.project().flow("pattern_continue_interrupted").is_some_and(|flow| {
        !flow.steps.iter().any(|step| matches!(step.kind, segue_engine::project::StepKind::Collect(_)))
    });
    // A project may have it go on at once; and with the stack cleared nothing goes on.
    if !turn.listens() || turn.is_exhausted() || own {
        return Ok(());
    }
    let Some(first) = turn.taken.first() else { return Ok(()) };
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
    // In a turn that cut the one before, what had come between may be over when the message is judged: who changes an answer of
    // the flow below speaks of it.
    let changed = turn.cuts()
        && turn.has(|kind| matches!(kind, EventKind::FlowStarted { flow_id, .. } if *flow_id == *"pattern_correction"));
    if asked || resumed || named || changed {
        return Ok(());
    }
    Err(format!("`{}` goes on, and nobody was asked: {}", base.flow_id, shown(turn.rest())))
}

/// While an agent waits, a message in which nothing else was found than values is for it; a user must not have to say things
/// twice. What it changed of earlier answers may take the flow back, and a value may have to be checked first.
pub(super) fn an_agent_that_waits_gets_the_message(_: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    let Some((taken, commands, source)) = turn.understood() else { return Ok(()) };
    let stack = turn.judged(taken);
    let waits = matches!(stack.last().map(|frame| &frame.kind), Some(FrameKind::Agent(agent)) if agent.state == AgentState::WaitingForInput);
    let for_it = |command: &Command| match command {
        Command::ContinueAgent | Command::SetSlot { .. } => true,
        Command::CannotHandle { reason } => reason != "cannot_handle_chitchat",
        _ => false,
    };
    let interfered = super::rest::left_alone(turn) || turn.forgets_it();
    if !waits
        || interfered
        || ["check", "payload"].contains(&source)
        || !commands.iter().all(for_it)
        || model_changed(turn)
    {
        return Ok(());
    }
    let ran = turn.taken.iter().any(|taken| matches!(taken.next, Next::Agent(_)));
    let about_to =
        |frame: &Frame| matches!(&frame.kind, FrameKind::Agent(agent) if agent.state == AgentState::Continuing);
    let went_back = turn.has(|kind| matches!(kind, EventKind::AgentCancelled { .. }));
    if ran || turn.is_exhausted() || went_back || turn.rest().iter().any(about_to) {
        return Ok(());
    }
    Err(format!("an agent waited and was not asked: {}", shown(turn.rest())))
}

fn model_changed(turn: &Turn<'_>) -> bool {
    turn.is_told_of_change() || turn.notes("in this project") || turn.notes("calls no agent")
}
