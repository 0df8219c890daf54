//! Commands: one file each, all of the same shape: `clean` says whether the command survives, `run` what it does.
//!
//! Entry: [`execute`], the pipeline: what is under way is looked at ([`command_context`]), commands that make no sense now are dropped or
//! replaced ([`cleanup`]), the others are put in order and run. Commands never walk flows and never speak: they move frames, set
//! slots and push patterns; walking begins when all have run.

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
use super::{Next, context::View, interrupt, patterns, turn::Turn, walked};
use crate::{
    conversation::{Command, EventKind, Frame, PatternFrame, Position},
    ids::{FlowId, SlotName},
};

/// Where commands came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The command generator.
    Model,
    /// A `/SetSlots(…)` message.
    Payload,
    /// An intent message.
    Intent,
    /// A text that needs no model.
    Shortcut,
    /// A check of the message itself.
    Check,
    /// The whole text, taken by a mapping that needs no model.
    Mapping,
    /// A reminder, or a program: no user wrote.
    External,
}

impl Source {
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

/// What cleaning says about one command.
pub(super) enum CommandDecision {
    /// It stays where it is.
    Keep,
    /// It stays, before all others.
    Front,
    /// It goes, by this rule.
    Drop(&'static str),
    /// Another takes its place, by this rule.
    Replace(Command, &'static str),
}

/// Takes the commands of a message: cleans them, puts them in order, runs them, then walks.
pub(super) fn execute(turn: &mut Turn<'_>, commands: Vec<Command>, source: Source) -> Next {
    if turn.conversation().turn.understood && source == Source::Model {
        turn.note("the message was understood already: what came now is left out");
        return Next::Listen;
    }
    turn.emit(EventKind::Understood { commands: commands.clone(), source: source.name().to_owned() });
    let twice = wants_twice(&commands);
    let ctx = CommandContext::of(turn);
    let commands = cleanup::clean(turn, &ctx, commands, source);
    let commands = in_order(&ctx, commands);
    let ctx = ctx.with(&commands);
    if source == Source::External && commands.is_empty() {
        turn.note("nothing of it can be done here, and nobody is told");
        return turn.listen();
    }
    let silent = source == Source::External || commands.iter().any(|command| matches!(command, Command::Noop));
    run_all(turn, &ctx, commands);
    if twice && !silent {
        turn.note("the message wants one flow twice: the user is told that it runs once");
        let reason = "cannot_handle_one_at_a_time".to_owned();
        turn.push_pattern(patterns::CANNOT_HANDLE, PatternFrame::CannotHandle { reason });
    }
    if turn.stack.is_empty() && !silent {
        turn.note("nothing is under way and no command changed that");
        cannot_handle::run(turn, "cannot_handle_default");
    }
    turn.walk()
}

/// Runs the commands one after the other; the values that they filled are checked first when flows are walked.
fn run_all(turn: &mut Turn<'_>, ctx: &CommandContext, commands: Vec<Command>) {
    // Before the first value changes: what the message gives to the flow that it starts may be what this one has used.
    let base = ctx.base_in(turn).filter(|_| !ctx.started.is_empty());
    let aside = base.is_some_and(|base| walked::set_aside(turn, base));
    let mut validated = Vec::new();
    for command in commands {
        run(turn, ctx, command, &mut validated);
    }
    if let Some(base) = ctx.base_in(turn).filter(|_| aside) {
        walked::is_not_aside(turn, base);
    }
    validate(turn, &validated);
}

/// With nothing under way the last flow to start comes last; then the list is turned round, so that the first flow that was
/// named ends up on top of the stack. "Stop" comes before everything: nothing may run to a question before the flow that was
/// given up is gone. Then what is answered in words, then corrections of the flow under way: what the same message starts
/// finds them made.
fn in_order(ctx: &CommandContext, mut kept: Vec<Command>) -> Vec<Command> {
    if ctx.base.is_none()
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

/// Whether a message starts one flow twice, each time with another value for the same slot: two orders to be cancelled, say.
fn wants_twice(commands: &[Command]) -> bool {
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

/// Lets the values be checked that the commands filled: once the user knows that the flow they gave up is gone.
fn validate(turn: &mut Turn<'_>, filled: &[SlotName]) {
    let gives_up =
        |frame: &Frame| frame.at == Position::Start && matches!(frame.pattern(), Some(PatternFrame::CancelFlow { .. }));
    let cancel = turn.stack.pop_if(|frame| gives_up(frame));
    push_validations(turn, filled);
    turn.stack.extend(cancel);
}

/// A message that leads to nothing: the open question is asked again.
pub(super) fn none(turn: &mut Turn<'_>, source: Source) -> Next {
    turn.emit(EventKind::Understood { commands: Vec::new(), source: source.name().to_owned() });
    turn.walk()
}

fn started(command: &Command) -> Option<FlowId> {
    match command {
        Command::StartFlow { flow } => Some(flow.clone()),
        _ => None,
    }
}

/// Whether somebody may ask for a flow as things stand: one of the author's, whose guard holds.
pub(super) fn may_start(view: &View<'_>, flow: &FlowId) -> bool {
    let known = view.project.flow(flow.as_str()).filter(|flow| !flow.is_pattern());
    known.is_some_and(|flow| flow.guard.as_ref().is_none_or(|guard| view.eval(guard).holds))
}

/// Runs a command that survived.
fn run(turn: &mut Turn<'_>, ctx: &CommandContext, command: Command, validated: &mut Vec<SlotName>) {
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
        Command::Search => plain(turn, patterns::SEARCH),
        Command::ChitChat => plain(turn, patterns::CHITCHAT),
        Command::SkipQuestion => plain(turn, patterns::SKIP_QUESTION),
        Command::RepeatBotMessages => plain(turn, patterns::REPEAT),
        Command::HumanHandoff => plain(turn, patterns::HUMAN_HANDOFF),
        Command::CodeChange => plain(turn, patterns::CODE_CHANGE),
        Command::StartPattern { flow } => plain(turn, flow.as_str()),
        Command::Noop => {}
    }
}

/// Pushes a pattern without facts. A project that removed it is told in `why`, and its user that this cannot be done.
fn plain(turn: &mut Turn<'_>, pattern: &str) {
    if !turn.push_pattern(pattern, PatternFrame::Plain) {
        cannot_handle::run(turn, "cannot_handle_not_supported");
    }
}

/// Slots that commands filled and that have checks of their own are checked before anything else goes on.
pub(super) fn push_validations(turn: &mut Turn<'_>, slots: &[SlotName]) {
    let project = turn.project;
    for name in slots {
        let Some(validation) = project.slot(name.as_str()).and_then(|slot| slot.validation.as_ref()) else { continue };
        // A check that is open already looks at the value once the stack comes to it.
        let checks = |frame: &Frame| matches!(frame.pattern(), Some(PatternFrame::ValidateSlot { validate, .. }) if validate == name);
        if turn.stack.iter().rev().take_while(|frame| !interrupt::is_base(frame)).any(checks) {
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
