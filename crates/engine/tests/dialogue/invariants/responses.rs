//! Invariants of the replies.

use segue_engine::{
    conversation::{BotMessage, Command, EventKind, Frame, FrameKind, PatternFrame, Position, SearchOutcome},
    dialogue::{InputKind, Next, Reason},
    ids::{ActionName, ResponseName},
    project::{ActionReference, Project, Step, StepKind},
};

use super::{CheckResult, InvariantChecker, TurnRecord, idle_state::shown};

const FAILURES: [&str; 5] = [
    "utter_internal_error_rasa",
    "utter_outcome_unknown",
    "utter_partly_done",
    "utter_user_input_too_long_error_rasa",
    "utter_user_input_empty_error_rasa",
];

/// Whether a frame is at a step that listens.
pub(super) fn is_at_listen_step(project: &Project, frame: &Frame) -> bool {
    let Position::At(step) = &frame.at else { return false };
    project.flow(frame.flow_id.as_str()).and_then(|flow| flow.step(step.as_str())).is_some_and(
        |step| matches!(&step.kind, StepKind::Action(ActionReference::Plain(name)) if *name == "action_listen"),
    )
}

fn bots<'t>(turn: &'t TurnRecord<'_>) -> impl DoubleEndedIterator<Item = &'t BotMessage> {
    turn.events.iter().filter_map(|event| match &event.kind {
        EventKind::Bot(bot) => Some(&**bot),
        _ => None,
    })
}

/// Whether the turn is a trigger that led to nothing: no message is sent then.
fn is_trigger_without_effect(turn: &TurnRecord<'_>) -> bool {
    turn.notes("the trigger leads to no command") || turn.notes("is no longer due")
}

/// An open question was asked in this turn, after all other replies.
pub(super) fn open_question_is_the_last_reply(_: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
    let apart = is_trigger_without_effect(turn) || turn.interrupts_turn() || turn.driver.conversation.paused;
    let quiet = apart || turn.is_reverted() || super::idle_state::stopped_from_outside(turn);
    if !turn.listens() || turn.is_exhausted() || quiet {
        return Ok(());
    }
    let (question, action): (&ResponseName, &ActionName) = match turn.rest().last().map(|frame| &frame.kind) {
        Some(FrameKind::Pattern { context: PatternFrame::CollectInformation { utter, collect_action, .. } }) => {
            (utter, collect_action)
        }
        Some(FrameKind::Pattern { context: PatternFrame::ValidateSlot { refill_utter, refill_action, .. } }) => {
            (refill_utter, refill_action)
        }
        _ => return Ok(()),
    };
    let asks_by_action = turn.project().lists_action(action.as_str());
    let asked = if asks_by_action {
        // No response may follow it; replies of the action itself may.
        let asks = |kind: &EventKind| matches!(kind, EventKind::Action { name } if name == action);
        let says = |kind: &EventKind| matches!(kind, EventKind::Bot(bot) if bot.utter_action.is_some());
        let at = turn.events.iter().rposition(|event| asks(&event.kind));
        at.is_some_and(|at| !turn.events[at..].iter().any(|event| says(&event.kind)))
    } else {
        bots(turn).next_back().is_some_and(|bot| bot.utter_action.as_deref() == Some(question.as_str()))
    };
    if asked {
        return Ok(());
    }
    let said: Vec<_> = bots(turn).map(|bot| bot.utter_action.as_deref().or(bot.reply.text.as_deref())).collect();
    Err(format!("`{question}` is open, and the replies are {said:?}; {}", shown(turn.rest())))
}

/// Each failure is reported exactly once.
pub(super) fn failure_is_reported_once(_: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
    let own = turn.project().flow("pattern_internal_error").is_none_or(|flow| {
        let says = |step: &Step| matches!(&step.kind, StepKind::Action(ActionReference::Plain(name)) if FAILURES.contains(&name.as_str()));
        !flow.steps.iter().any(says)
    });
    // A project may have its own response.
    let own = own || turn.driver.next == Next::EndSession || turn.driver.conversation.paused;
    // Error messages that are pending from an earlier turn or after this one.
    let has_pending_error = |frames: &[Frame]| {
        let is_error =
            |frame: &Frame| matches!(frame.kind, FrameKind::Pattern { context: PatternFrame::InternalError { .. } });
        frames.iter().any(is_error)
    };
    let deferred = has_pending_error(&turn.inputs[0].before) || has_pending_error(turn.rest()) || !turn.is_over();
    // An action may have reset the conversation; another version notifies of the change.
    let recovered = turn.inputs.iter().any(|record| matches!(record.input.kind, InputKind::VersionChanged { .. }));
    let forgotten = turn.resets_after_understanding();
    if own || deferred || recovered || forgotten || super::idle_state::stopped_from_outside(turn) {
        return Ok(());
    }
    let is_failure = |why: &&Reason| match why {
        Reason::Failed { .. } => true,
        // A rejection that cannot be evaluated rejects, which counts as an internal error.
        Reason::Rejected { cause: because, .. } => because.contains("cannot be evaluated"),
        _ => false,
    };
    let failed = turn.reasons().filter(is_failure).count();
    let lost = |input: &InputKind| matches!(input, InputKind::SearchOutcome(SearchOutcome::Failed { .. }));
    let failed = failed + turn.inputs.iter().filter(|record| lost(&record.input.kind)).count();
    let refused = turn.understood().map_or(0, |(_, commands, _)| {
        commands.iter().filter(|command| matches!(command, Command::Error { .. })).count()
    });
    let reported =
        bots(turn).filter(|bot| bot.utter_action.as_deref().is_some_and(|name| FAILURES.contains(&name))).count();
    // A failure during the report of another one is not reported separately.
    let loops = usize::from(turn.notes("in a loop") || turn.is_exhausted());
    // A pattern that does more than report may fail itself, or continue elsewhere before it has reported.
    let only_reports = turn.project().flow("pattern_internal_error").is_none_or(|flow| {
        let acts = |step: &Step| matches!(&step.kind, StepKind::Action(ActionReference::Plain(name)) if turn.project().lists_action(name.as_str()));
        !flow.steps.iter().any(acts)
    });
    if !only_reports {
        return Ok(());
    }
    let (least, most) = ((failed + refused).saturating_sub(loops), failed + refused + loops);
    if (least..=most).contains(&reported) && (reported > 0 || failed + refused == 0) {
        return Ok(());
    }
    Err(format!("{failed} failures and {refused} refused messages were reported {reported} times"))
}

/// Every message is answered, unless the project wants it otherwise.
pub(super) fn every_message_is_answered(_: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
    let conversation = &turn.driver.conversation;
    if !turn.listens() || conversation.paused || bots(turn).next().is_some() {
        return Ok(());
    }
    // Exceptions by design: an agent that yielded without a text, an action that replies or listens itself, a flow
    // without `pattern_completed`, a pattern that only resets, an ignored payload, a silence timeout.
    let effects = turn.inputs.iter().any(|record| {
        matches!(
            record.input.kind,
            InputKind::Agent(_)
                | InputKind::ActionOutcome(_)
                | InputKind::VersionChanged { .. }
                | InputKind::Interrupted
        )
    });
    let wordless = turn.has(|kind| match kind {
        EventKind::FlowCompleted { flow_id, .. } | EventKind::FlowCancelled { flow_id, .. } => {
            turn.project().flow(flow_id.as_str()).is_some_and(|flow| !flow.run_pattern_completed)
        }
        EventKind::Restart => true,
        _ => false,
    }) || turn.is_reverted()
        || is_trigger_without_effect(turn);
    let text = turn.inputs.iter().find_map(|record| match &record.input.kind {
        InputKind::Message(message) => Some(message.text.clone()),
        _ => None,
    });
    let text = text.unwrap_or_default();
    let technical = ["/SetSlots(", "/session_start", "/silence_timeout"].iter().any(|start| text.starts_with(start));
    let noop = turn.understood().is_some_and(|(_, commands, _)| commands.contains(&Command::Noop));
    if effects || wordless || technical || noop {
        return Ok(());
    }
    Err(format!("`{text}` was not answered: {}", shown(turn.rest())))
}

/// A paused assistant does not reply until it is resumed.
pub(super) fn paused_conversation_is_silent(_: &mut InvariantChecker, turn: &TurnRecord<'_>) -> CheckResult {
    // Only a restart is processed.
    let restarts = turn.inputs.iter().any(
        |record| matches!(&record.input.kind, InputKind::Message(message) if message.text.starts_with("/restart")),
    );
    let mut paused = turn.driver.conversation.paused && !restarts;
    for event in turn.events.iter().rev() {
        match event.kind {
            // Earlier in the turn the assistant may have replied.
            EventKind::Pause | EventKind::Resume | EventKind::Restart => paused = false,
            EventKind::Bot(_) | EventKind::Understood { .. }
                if paused && !turn.has(|kind| *kind == EventKind::Pause) =>
            {
                return Err("the conversation is paused, but the assistant replied or acted".to_owned());
            }
            _ => {}
        }
    }
    Ok(())
}
