//! Commands: one file each, with `clean`, which decides whether the command is kept, and `run`, which executes it.
//!
//! [`execute`] is the pipeline: it captures the state ([`command_context`]), drops or replaces commands that do not
//! apply ([`cleanup`]), orders the others and runs them. Commands never execute flow steps and never send messages:
//! they change frames, set slots and push patterns. Flow execution starts when all have run.

mod agent;
mod cancel_flow;
mod cannot_handle;
mod clarify;
mod cleanup;
mod command_context;
mod correct_slots;
mod free_form;
mod set_slot;
mod start_flow;

use serde_json::Value as Json;

use self::command_context::CommandContext;
use super::{
    Next, advance_context::AdvanceContext, chains, eval_scope::EvalScope, kept_values, late_confirmations, patterns,
    slot_dependencies,
};
use crate::{
    conversation::{Command, EventKind, Frame, PatternFrame, Position},
    ids::{FlowId, SlotName},
};

/// The source of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandSource {
    /// The command generator.
    Model,
    /// A `/SetSlots(…)` message.
    Payload,
    /// An intent message.
    Intent,
    /// A text that is recognised without a model.
    Shortcut,
    /// A check of the message, such as its length.
    Check,
    /// The whole text, by a `from_text` mapping.
    Mapping,
    /// A reminder or another program, without a user message.
    External,
}

impl CommandSource {
    fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Payload => "payload",
            Self::Intent => "intent",
            Self::Shortcut => "shortcut",
            Self::Check => "check",
            Self::Mapping => "mapping",
            Self::External => "external",
        }
    }
}

/// The decision of command cleanup about one command.
pub(super) enum CommandDecision {
    /// It is kept at its position.
    Keep,
    /// It is kept and moved to the front.
    Front,
    /// It is dropped by this rule.
    Drop(&'static str),
    /// It is replaced by another command, by this rule.
    Replace(Command, &'static str),
}

/// Processes the commands of a message: cleans them up, orders them, runs them, then executes flow steps.
pub(super) fn execute(turn: &mut AdvanceContext<'_>, commands: Vec<Command>, source: CommandSource) -> Next {
    if turn.conversation().turn.understood && source == CommandSource::Model {
        turn.add_note("the message was understood already: further commands are ignored");
        return Next::Listen;
    }
    turn.emit(EventKind::Understood { commands: commands.clone(), source: source.name().to_owned() });
    let twice = starts_one_flow_twice(&commands);
    let ctx = CommandContext::of(turn, &commands);
    let (commands, later) = cleanup::clean(turn, &ctx, commands, source);
    let starts = commands.iter().any(|command| matches!(command, Command::StartFlow { .. }));
    if starts && commands.contains(&Command::ContinueAgent) {
        turn.add_note(if ctx.agent_first {
            "the message is for the agent first: the flow that it starts follows when the active one has ended"
        } else {
            "the message starts a flow first: the agent goes on when its flow resumes"
        });
    }
    let commands = in_order(&ctx, commands);
    let ctx = ctx.with(&commands);
    if source == CommandSource::External && commands.is_empty() {
        turn.add_note("the trigger leads to no command; no message is sent");
        return turn.listen();
    }
    let silent = source == CommandSource::External || commands.iter().any(|command| matches!(command, Command::Noop));
    run_all(turn, &ctx, commands);
    later.into_iter().for_each(|(flow, value)| kept_values::keep(turn, &flow, value));
    if twice && !silent {
        turn.add_note("the message starts one flow twice: the user is notified that it runs once");
        let reason = "cannot_handle_one_at_a_time".to_owned();
        turn.push_pattern(patterns::CANNOT_HANDLE, PatternFrame::CannotHandle { reason });
    }
    if turn.stack.is_empty() && !silent {
        turn.add_note("no flow is active and no command started one");
        cannot_handle::run(turn, "cannot_handle_default");
    }
    turn.run_until_effect()
}

/// Runs the commands one after the other. The values that they set are validated before flow steps are executed.
fn run_all(turn: &mut AdvanceContext<'_>, ctx: &CommandContext, commands: Vec<Command>) {
    // Taken before the first value changes: the values for a flow that the message starts may be values that the active
    // flow has used.
    let base = ctx.base_in(turn).filter(|_| !ctx.started.is_empty());
    let aside = base.is_some_and(|base| slot_dependencies::snapshot_used_slots(turn, base));
    let mut validated = Vec::new();
    for command in commands {
        run(turn, ctx, command, &mut validated);
    }
    if let Some(base) = ctx.base_in(turn) {
        if aside {
            slot_dependencies::clear_snapshot(turn, base);
        }
        // The message that answered a confirmation also started another flow.
        if chains::top_base(&turn.stack) != Some(base) {
            late_confirmations::empty_unused(turn, base);
        }
    }
    push_validations_below_cancel(turn, &validated);
}

/// Orders the commands for execution; they run in reverse, so that the first named flow ends up on top of the stack.
/// Without an active flow, the last started flow comes last. `cancel flow` comes first, so that nothing asks before the
/// cancelled flow is gone; then commands that only lead to a reply; then corrections, so that started flows see the
/// corrected values.
fn in_order(ctx: &CommandContext, mut kept: Vec<Command>) -> Vec<Command> {
    if ctx.base.is_none()
        && let Some(at) = kept.iter().rposition(|command| matches!(command, Command::StartFlow { .. }))
    {
        let start = kept.remove(at);
        kept.push(start);
    }
    // A stable sort keeps the order within a kind.
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

/// Whether a message starts one flow twice with different values for the same slot, for example to cancel two orders.
fn starts_one_flow_twice(commands: &[Command]) -> bool {
    let starts: Vec<FlowId> = commands.iter().filter_map(started).collect();
    let values = commands.iter().filter_map(|command| match command {
        Command::SetSlot { name, value, .. } => Some((name, value)),
        _ => None,
    });
    let values: Vec<_> = values.collect();
    let twice = |at: usize, flow: &FlowId| starts.iter().skip(at + 1).any(|other| other == flow);
    let differ = |at: usize, one: &(&SlotName, &Json)| {
        values.iter().skip(at + 1).any(|(name, value)| *name == one.0 && *value != one.1)
    };
    starts.iter().enumerate().any(|(at, flow)| twice(at, flow))
        && values.iter().enumerate().any(|(at, one)| differ(at, one))
}

/// Pushes the validations of the set slots below a new cancel pattern, so that the cancellation is reported first.
fn push_validations_below_cancel(turn: &mut AdvanceContext<'_>, filled: &[SlotName]) {
    let gives_up =
        |frame: &Frame| frame.at == Position::Start && matches!(frame.pattern(), Some(PatternFrame::CancelFlow { .. }));
    let cancel = turn.stack.pop_if(|frame| gives_up(frame));
    push_validations(turn, filled);
    turn.stack.extend(cancel);
}

/// Processes a message without commands: the open question is asked again.
pub(super) fn execute_none(turn: &mut AdvanceContext<'_>, source: CommandSource) -> Next {
    turn.emit(EventKind::Understood { commands: Vec::new(), source: source.name().to_owned() });
    turn.run_until_effect()
}

fn started(command: &Command) -> Option<FlowId> {
    match command {
        Command::StartFlow { flow } => Some(flow.clone()),
        _ => None,
    }
}

/// Whether a flow may be started now: it is a flow of the project, not a pattern, and its guard holds.
pub(super) fn may_start(view: &EvalScope<'_>, flow: &FlowId) -> bool {
    let known = view.project.flow(flow.as_str()).filter(|flow| !flow.is_pattern());
    known.is_some_and(|flow| flow.guard.as_ref().is_none_or(|guard| view.eval(guard).holds))
}

/// Runs a command that was kept.
fn run(turn: &mut AdvanceContext<'_>, ctx: &CommandContext, command: Command, validated: &mut Vec<SlotName>) {
    match command {
        Command::StartFlow { flow } => start_flow::run(turn, ctx, &flow),
        Command::SetSlot { name, value, extractor } => set_slot::run(turn, ctx, name, value, extractor, validated),
        Command::CorrectSlots { corrected_slots, extractor } => {
            correct_slots::run(turn, ctx, corrected_slots, extractor)
        }
        Command::CancelFlow => cancel_flow::run(turn, ctx),
        Command::Clarify { options } => clarify::run(turn, options),
        Command::ContinueAgent => agent::run_continue(turn),
        Command::RestartAgent { agent_id } => agent::run_restart(turn, ctx, &agent_id),
        Command::CannotHandle { reason } => cannot_handle::run(turn, &reason),
        Command::Error { error_type, info } => {
            turn.push_pattern(patterns::INTERNAL_ERROR, PatternFrame::InternalError { error_type, info });
        }
        Command::Search => push_plain_pattern(turn, patterns::SEARCH),
        Command::ChitChat => push_plain_pattern(turn, patterns::CHITCHAT),
        Command::SkipQuestion => push_plain_pattern(turn, patterns::SKIP_QUESTION),
        Command::RepeatBotMessages => push_plain_pattern(turn, patterns::REPEAT),
        Command::HumanHandoff => push_plain_pattern(turn, patterns::HUMAN_HANDOFF),
        Command::CodeChange => push_plain_pattern(turn, patterns::CODE_CHANGE),
        Command::StartPattern { flow } => push_plain_pattern(turn, flow.as_str()),
        Command::Noop => {}
    }
}

/// Pushes a pattern without a context. In a project that removed it, the user is notified that this is not supported.
fn push_plain_pattern(turn: &mut AdvanceContext<'_>, pattern: &str) {
    if !turn.push_pattern(pattern, PatternFrame::Plain) {
        cannot_handle::run(turn, "cannot_handle_not_supported");
    }
}

/// Pushes the validation pattern for slots that commands set and that have a `validation`.
pub(super) fn push_validations(turn: &mut AdvanceContext<'_>, slots: &[SlotName]) {
    let project = turn.project;
    for name in slots {
        let Some(validation) = project.slot(name.as_str()).and_then(|slot| slot.validation.as_ref()) else { continue };
        // An open validation checks the new value when it runs.
        let checks = |frame: &Frame| matches!(frame.pattern(), Some(PatternFrame::ValidateSlot { validate, .. }) if validate == name);
        if turn.stack.iter().rev().take_while(|frame| !chains::is_base(frame)).any(checks) {
            continue;
        }
        let context = PatternFrame::ValidateSlot {
            validate: name.clone(),
            refill_utter: validation.refill_utter.clone(),
            refill_action: crate::ids::ActionName::from(format!("action_ask_{name}")),
        };
        turn.push_pattern(patterns::VALIDATE_SLOT, context);
    }
}
