//! What the user hears.

use segue_engine::{
    conversation::{BotMessage, Command, EventKind, Frame, FrameKind, PatternFrame, Position, SearchOutcome},
    dialogue::{InputKind, Next, Reason},
    ids::{ActionName, ResponseName},
    project::{ActionReference, Project, Step, StepKind},
};

use super::{Ledger, Turn, Verdict, rest::shown};

const FAILURES: [&str; 4] = [
    "utter_internal_error_rasa",
    "utter_outcome_unknown",
    "utter_user_input_too_long_error_rasa",
    "utter_user_input_empty_error_rasa",
];

/// Whether a frame stands at a step that listens.
pub(super) fn stands_at_listen(project: &Project, frame: &Frame) -> bool {
    let Position::At(step) = &frame.at else { return false };
    project.flow(frame.flow_id.as_str()).and_then(|flow| flow.step(step.as_str())).is_some_and(
        |step| matches!(&step.kind, StepKind::Action(ActionReference::Plain(name)) if *name == "action_listen"),
    )
}

fn bots<'t>(turn: &'t Turn<'_>) -> impl DoubleEndedIterator<Item = &'t BotMessage> {
    turn.events.iter().filter_map(|event| match &event.kind {
        EventKind::Bot(bot) => Some(&**bot),
        _ => None,
    })
}

/// A program that wants something of a conversation where it has no meaning is not the user's business.
fn nobody_wrote(turn: &Turn<'_>) -> bool {
    turn.notes("nobody is told") || turn.notes("does not wait any more") || turn.notes("does not wait for now any more")
}

/// Nobody can answer a question that they have not heard, or that three other texts have pushed off the screen: when a question
/// is open, it was asked in this turn, and after everything else.
pub(super) fn the_open_question_is_the_last_thing_said(_: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    let apart = nobody_wrote(turn) || turn.cuts() || turn.driver.conversation.paused;
    let quiet = apart || turn.is_undone() || super::rest::left_alone(turn);
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
        // Responses may not come after it; what the action itself brings about may.
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
    Err(format!("`{question}` is open, and was said: {said:?}; {}", shown(turn.rest())))
}

/// Two messages for one failure contradict each other, none leaves the user alone with it.
pub(super) fn a_failure_is_told_once(_: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    let own = turn.project().flow("pattern_internal_error").is_none_or(|flow| {
        let says = |step: &Step| matches!(&step.kind, StepKind::Action(ActionReference::Plain(name)) if FAILURES.contains(&name.as_str()));
        !flow.steps.iter().any(says)
    });
    // A project may say it in its own words.
    let own = own || turn.driver.next == Next::EndSession || turn.driver.conversation.paused;
    // What an earlier turn left untold, or this one will.
    let untold = |frames: &[Frame]| {
        let is_error =
            |frame: &Frame| matches!(frame.kind, FrameKind::Pattern { context: PatternFrame::InternalError { .. } });
        frames.iter().any(is_error)
    };
    let deferred = untold(&turn.taken[0].before) || untold(turn.rest()) || !turn.is_over();
    // An action may have forgotten everything; another version says that things changed.
    let taken_over = turn.taken.iter().any(|taken| matches!(taken.input.kind, InputKind::Upgraded { .. }));
    let forgotten = turn.forgets_it();
    if own || deferred || taken_over || forgotten || super::rest::left_alone(turn) {
        return Ok(());
    }
    let is_failure = |why: &&Reason| match why {
        Reason::Failed { .. } => true,
        // A check that the author got wrong refuses, and it is our fault.
        Reason::Rejected { because, .. } => because.contains("cannot be evaluated"),
        _ => false,
    };
    let failed = turn.why().filter(is_failure).count();
    let lost = |input: &InputKind| matches!(input, InputKind::Searched(SearchOutcome::Failed { .. }));
    let failed = failed + turn.taken.iter().filter(|taken| lost(&taken.input.kind)).count();
    let refused = turn.understood().map_or(0, |(_, commands, _)| {
        commands.iter().filter(|command| matches!(command, Command::Error { .. })).count()
    });
    let told =
        bots(turn).filter(|bot| bot.utter_action.as_deref().is_some_and(|name| FAILURES.contains(&name))).count();
    // A second failure in the middle of the first is the same one to the user.
    let circles = usize::from(turn.notes("ran in circles") || turn.is_exhausted());
    // Where the pattern that tells does more than tell, it may fail itself, or hand the word on before it has told.
    let tells_alone = turn.project().flow("pattern_internal_error").is_none_or(|flow| {
        let acts = |step: &Step| matches!(&step.kind, StepKind::Action(ActionReference::Plain(name)) if turn.project().lists_action(name.as_str()));
        !flow.steps.iter().any(acts)
    });
    if !tells_alone {
        return Ok(());
    }
    let (least, most) = ((failed + refused).saturating_sub(circles), failed + refused + circles);
    if (least..=most).contains(&told) && (told > 0 || failed + refused == 0) {
        return Ok(());
    }
    Err(format!("{failed} failures and {refused} refused messages were told {told} times"))
}

/// Silence is no answer: whoever writes hears something, unless the project wants it otherwise.
pub(super) fn nobody_is_left_without_an_answer(_: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    let conversation = &turn.driver.conversation;
    if !turn.listens() || conversation.paused || bots(turn).next().is_some() {
        return Ok(());
    }
    // By design: an agent that gave the turn back without a text, an action that answers by itself or took the word, a
    // flow whose author wants no last word, a pattern that only forgets, a payload that is no answer at all, silence.
    let effects = turn.taken.iter().any(|taken| {
        matches!(taken.input.kind, InputKind::Agent(_) | InputKind::Acted(_) | InputKind::Upgraded { .. })
    });
    let wordless = turn.has(|kind| match kind {
        EventKind::FlowCompleted { flow_id, .. } | EventKind::FlowCancelled { flow_id, .. } => {
            turn.project().flow(flow_id.as_str()).is_some_and(|flow| !flow.run_pattern_completed)
        }
        EventKind::Restart => true,
        _ => false,
    }) || turn.is_undone()
        || nobody_wrote(turn);
    let text = turn.taken.iter().find_map(|taken| match &taken.input.kind {
        InputKind::Message(message) => Some(message.text.clone()),
        _ => None,
    });
    let text = text.unwrap_or_default();
    let technical = ["/SetSlots(", "/session_start", "/silence_timeout"].iter().any(|start| text.starts_with(start));
    let noop = turn.understood().is_some_and(|(_, commands, _)| commands.contains(&Command::Noop));
    if effects || wordless || technical || noop {
        return Ok(());
    }
    Err(format!("nothing was said to `{text}`: {}", shown(turn.rest())))
}

/// An action paused the assistant because a person talks: it keeps silent until told otherwise.
pub(super) fn a_paused_conversation_is_silent(_: &mut Ledger, turn: &Turn<'_>) -> Verdict {
    // Only a restart is heard.
    let restarts = turn
        .taken
        .iter()
        .any(|taken| matches!(&taken.input.kind, InputKind::Message(message) if message.text.starts_with("/restart")));
    let mut paused = turn.driver.conversation.paused && !restarts;
    for event in turn.events.iter().rev() {
        match event.kind {
            // Before this the turn may have spoken.
            EventKind::Pause | EventKind::Resume | EventKind::Restart => paused = false,
            EventKind::Bot(_) | EventKind::Understood { .. }
                if paused && !turn.has(|kind| *kind == EventKind::Pause) =>
            {
                return Err("the conversation is paused, and the assistant spoke or acted".to_owned());
            }
            _ => {}
        }
    }
    Ok(())
}
