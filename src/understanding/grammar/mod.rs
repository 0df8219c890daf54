//! Parses a model's answer into commands, in one pass. It accepts the text forms of all Rasa command generators: words
//! (`start flow x`, at the start of a line) and calls (`StartFlow(x)`, anywhere in a line).
//!
//! Parsing never fails: every line is either a command or is dropped with a reason and a position. It is linear: no part of a
//! line is read more than a fixed number of times. A line that sets a slot yields no other command, whatever its value
//! contains: values come from users and must not become commands.

mod call_form;
mod command_names;
mod json_form;
mod names;
#[cfg(test)]
pub(super) mod tests;
mod values;

use std::fmt;

use segue_engine::{
    conversation::Command,
    project::Project,
    text::{ELLIPSIS, TextLimit, truncate},
};

use self::command_names::CommandName;
use super::CANNOT_HANDLE;
use crate::limits;

/// The parser of answers for one project.
pub(super) struct Grammar<'a> {
    pub(super) project: &'a Project,
    /// The active flow and its callers, which `cancel flow` may name. When empty, it may name any flow.
    pub(super) active: Vec<&'a str>,
}

/// The commands of an answer and the parts that are none.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Parsed {
    /// The commands in the order of the answer, without duplicates.
    pub(super) commands: Vec<Command>,
    /// The parts of the answer that are no commands.
    pub(super) dropped: Vec<DroppedText>,
    /// There is prose between commands: they may be alternatives that the model only considers.
    pub(super) has_prose_between: bool,
    /// The answer contains a placeholder of the prompt, such as `<flow>`.
    pub(super) repeats_prompt: bool,
    prose_since_last_command: bool,
}

/// A part of an answer that is no command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DroppedText {
    /// The line of the answer, counted from 1 without empty lines.
    pub(super) line: usize,
    /// The character where the dropped part begins, counted from 1.
    pub(super) column: usize,
    /// The line, truncated.
    pub(super) text: String,
    /// Why it was dropped.
    pub(super) reason: DropReason,
}

/// Why a part of an answer is no command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DropReason {
    /// It has the form of no command.
    NotACommand,
    /// The name that must follow is missing.
    NoName,
    /// `set slot` without a value.
    NoValue,
    /// No flow of that name, or one that commands do not start.
    UnknownFlow,
    /// No slot of that name.
    UnknownSlot,
    /// No agent of that name.
    UnknownAgent,
    /// Text follows a command that takes no arguments.
    UnexpectedArguments,
    /// A command of Rasa that Segue does not execute.
    NotOffered,
    /// `cancel flow` names a flow that is not active.
    NotActive,
    /// The same command precedes it.
    Duplicate,
    /// The token limit of the answer ended this line, so it may be incomplete.
    Truncated,
    /// The answer has more lines or commands than the limits allow.
    LimitExceeded,
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotACommand => "no action has this form",
            Self::NoName => "a name must follow",
            Self::NoValue => "a value must follow the slot",
            Self::UnknownFlow => "there is no such flow to start",
            Self::UnknownSlot => "there is no such slot",
            Self::UnknownAgent => "there is no such agent",
            Self::UnexpectedArguments => "nothing may follow this action",
            Self::NotOffered => "this action is not on offer",
            Self::NotActive => "only the active flow can be cancelled",
            Self::Duplicate => "the same action was given before",
            Self::Truncated => "the answer was cut off here",
            Self::LimitExceeded => "the answer is too long",
        })
    }
}

impl fmt::Display for DroppedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {:?}: {}", self.line, self.column, self.text, self.reason)
    }
}

/// The line that is parsed and its number, for the positions of dropped parts.
#[derive(Clone, Copy)]
struct LinePosition<'t> {
    number: usize,
    line: &'t str,
}

/// The byte offset of `part` in `whole`; 0 when it is no part of it.
fn offset(whole: &str, part: &str) -> usize {
    let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
    if start <= whole.len() { start } else { 0 }
}

impl Parsed {
    fn drop(&mut self, at: LinePosition<'_>, part: &str, reason: DropReason) {
        // One entry for each line, and as many again for lists of names.
        if self.dropped.len() >= 2 * limits::COMMAND_LINES {
            return;
        }
        let before = at.line.get(..offset(at.line, part)).unwrap_or_default();
        let text = truncate(at.line.trim(), TextLimit::Chars(REASON_CHARS), ELLIPSIS).into_owned();
        self.dropped.push(DroppedText { line: at.number, column: before.chars().count() + 1, text, reason });
    }

    fn push(&mut self, at: LinePosition<'_>, part: &str, command: Command) {
        if self.commands.contains(&command) {
            self.drop(at, part, DropReason::Duplicate);
        } else if self.commands.len() >= limits::COMMANDS_MAX {
            self.drop(at, part, DropReason::LimitExceeded);
        } else {
            self.has_prose_between |= self.prose_since_last_command && !self.commands.is_empty();
            self.commands.push(command);
        }
        self.prose_since_last_command = false;
    }

    /// Removes `cannot handle` when there are other commands.
    fn drop_redundant_cannot_handle(mut self) -> Self {
        let is_cannot_handle = |command: &Command| matches!(command, Command::CannotHandle { .. });
        if !self.commands.iter().all(is_cannot_handle) {
            self.commands.retain(|command| !is_cannot_handle(command));
        }
        self
    }

    fn drop_prose(&mut self, at: LinePosition<'_>, part: &str) {
        // A heading between commands does not count as prose.
        self.prose_since_last_command |= !at.line.trim_end().ends_with([':', '*', '#']);
        self.drop(at, part, DropReason::NotACommand);
    }
}

/// How many characters of a line [`DroppedText::text`] shows.
const REASON_CHARS: usize = 80;
/// How many commands, calls or names are parsed in one line.
const MAX_PER_LINE: usize = 2 * limits::COMMANDS_MAX;

impl Grammar<'_> {
    /// Parses an answer. `is_truncated`: the token limit ended it, so its last line may be incomplete and is dropped.
    pub(super) fn parse(&self, text: &str, is_truncated: bool) -> Parsed {
        let mut parsed = Parsed::default();
        let mut lines = text.split(['\n', '\r']).enumerate().peekable();
        let mut number = 0;
        while let Some((_, line)) = lines.next() {
            let is_last = lines.peek().is_none();
            if line.trim().is_empty() {
                continue;
            }
            number += 1;
            let at = LinePosition { number, line };
            if number > limits::COMMAND_LINES {
                parsed.drop(at, line, DropReason::LimitExceeded);
                break;
            }
            if is_truncated && is_last {
                parsed.drop(at, line, DropReason::Truncated);
                continue;
            }
            self.parse_line(LinePosition { line: self.alias(line).unwrap_or(line), ..at }, &mut parsed);
        }
        parsed.drop_redundant_cannot_handle()
    }

    /// The command that an alias of the project replaces this line by.
    fn alias(&self, line: &str) -> Option<&str> {
        let aliases = self.project.config.generator.as_ref().map(|generator| generator.aliases.as_slice());
        let mut aliases = aliases.unwrap_or_default().iter();
        aliases.find(|alias| alias.line.is_match(line).is_match()).map(|alias| &*alias.command)
    }

    fn parse_line(&self, at: LinePosition<'_>, parsed: &mut Parsed) {
        let line = at.line;
        if line.trim_start().starts_with("```") {
            return; // the fence of a code block, with or without a language
        }
        parsed.repeats_prompt |= ["<flow>", "<slot>", "<value>", "<agent>"].iter().any(|mark| line.contains(mark));
        let body = command_names::line_start(line);
        if body.is_empty() {
            return;
        }
        match command_names::strip_name(body) {
            Some((_, rest)) if rest.trim_start().starts_with('(') && self.parse_calls(at, parsed) => {}
            Some((command_name, rest)) => self.parse_words(at, body, command_name, rest, parsed),
            None if self.parse_calls(at, parsed) => {}
            None => parsed.drop_prose(at, body),
        }
    }

    /// Parses commands written as words, from the first command name on.
    fn parse_words(
        &self,
        at: LinePosition<'_>,
        body: &str,
        command_name: CommandName,
        rest: &str,
        parsed: &mut Parsed,
    ) {
        let (mut body, mut command_name, mut rest) = (body, command_name, rest);
        for _ in 0..MAX_PER_LINE {
            let after = match command_name {
                CommandName::Set => return self.parse_set(at, body, rest, parsed),
                CommandName::Clarify => return self.parse_clarify(at, body, rest, parsed),
                CommandName::Start => self.parse_start(at, body, rest, parsed),
                CommandName::Restart => self.parse_restart(at, body, rest, parsed),
                _ => self.parse_without_arguments(at, body, command_name, rest, parsed),
            };
            // A second command on the line counts only after a separator, and never after a value.
            let Some(next) = command_names::next_command(after) else { return };
            let Some((next_name, next_rest)) = command_names::strip_name(next) else { return };
            (body, command_name, rest) = (next, next_name, next_rest);
        }
    }

    fn parse_start<'t>(&self, at: LinePosition<'t>, body: &'t str, rest: &'t str, parsed: &mut Parsed) -> &'t str {
        let (name, after) = names::take(rest);
        if name.is_empty() {
            parsed.drop(at, rest, DropReason::NoName);
            return "";
        }
        if let Some(flow) = self.flow(name) {
            parsed.push(at, body, Command::StartFlow { flow });
            return after;
        }
        // A flow's id written as separate words.
        let clause = names::clause(rest);
        match self.flow(clause) {
            Some(flow) => parsed.push(at, body, Command::StartFlow { flow }),
            None => parsed.drop(at, name, DropReason::UnknownFlow),
        }
        rest.get(offset(rest, clause) + clause.len()..).unwrap_or_default()
    }

    fn parse_restart<'t>(&self, at: LinePosition<'t>, body: &'t str, rest: &'t str, parsed: &mut Parsed) -> &'t str {
        let (name, after) = names::take(rest);
        match self.agent(name) {
            Some(agent_id) => parsed.push(at, body, Command::RestartAgent { agent_id }),
            None => parsed.drop(at, rest, if name.is_empty() { DropReason::NoName } else { DropReason::UnknownAgent }),
        }
        after
    }

    fn parse_set(&self, at: LinePosition<'_>, body: &str, rest: &str, parsed: &mut Parsed) {
        let (name, after) = names::take(rest);
        if name.is_empty() {
            return parsed.drop(at, rest, DropReason::NoName);
        }
        let spaced = if self.slot(name).is_none() { self.spaced_slot(rest) } else { None };
        let (name, value) = spaced.unwrap_or((name, after));
        self.set_slot(at, body, name, values::value_of_words(value), parsed);
    }

    /// Adds the command that fills a slot, from the name and value as the model wrote them.
    fn set_slot(&self, at: LinePosition<'_>, body: &str, name: &str, value: Option<&str>, parsed: &mut Parsed) {
        let Some(slot) = self.slot(name) else {
            // Some models write a flow as a slot.
            let flow = value.filter(|_| names::same(name, "flow_name") || names::same(name, "flow"));
            return match flow.and_then(|value| self.flow(values::trimmed(value))) {
                Some(flow) => parsed.push(at, body, Command::StartFlow { flow }),
                None => parsed.drop(at, name, DropReason::UnknownSlot),
            };
        };
        let Some(value) = value else { return parsed.drop(at, name, DropReason::NoValue) };
        let value = values::value(value, &slot.kind);
        parsed.push(at, body, Command::SetSlot { name: slot.name.clone(), value, extractor: values::FILLED_BY });
    }

    /// Parses the options of a clarification; they extend to the end of the text.
    fn parse_clarify(&self, at: LinePosition<'_>, body: &str, options: &str, parsed: &mut Parsed) {
        let options: Vec<&str> = names::list(options).take(MAX_PER_LINE).collect();
        let mut known = Vec::new();
        for name in &options {
            match self.flow(name) {
                Some(flow) if !known.contains(&flow) => known.push(flow),
                Some(_) => {}
                None => parsed.drop(at, name, DropReason::UnknownFlow),
            }
        }
        known.sort_unstable();
        match <[_; 1]>::try_from(known) {
            Ok([flow]) => parsed.push(at, body, Command::StartFlow { flow }),
            Err(known) if known.is_empty() && !options.is_empty() => {}
            Err(options) => parsed.push(at, body, Command::Clarify { options }),
        }
    }

    /// Parses a command without arguments. A name that does not change its meaning may follow: the active flow after
    /// `cancel flow`, an agent after `continue agent`, a slot after `skip question`.
    fn parse_without_arguments<'t>(
        &self,
        at: LinePosition<'t>,
        body: &'t str,
        command_name: CommandName,
        rest: &'t str,
        parsed: &mut Parsed,
    ) -> &'t str {
        let command = match command_name {
            CommandName::Cancel => Command::CancelFlow,
            CommandName::Skip => Command::SkipQuestion,
            CommandName::Search => Command::Search,
            CommandName::ChitChat => Command::ChitChat,
            CommandName::HandOver => Command::HumanHandoff,
            CommandName::Repeat => Command::RepeatBotMessages,
            CommandName::Continue => Command::ContinueAgent,
            CommandName::CannotHandle => Command::CannotHandle { reason: CANNOT_HANDLE.into() },
            _ => {
                parsed.drop(at, body, DropReason::NotOffered);
                return "";
            }
        };
        let (name, after) = names::take(rest);
        if values::is_remark(rest)
            || command_names::next_command(rest).is_some_and(|next| command_names::strip_name(next).is_some())
        {
            parsed.push(at, body, command);
            return rest;
        }
        let fits = match command_name {
            CommandName::Cancel if !values::is_remark(after) => Err(DropReason::UnexpectedArguments),
            CommandName::Cancel => match self.flow(name) {
                Some(flow) if self.active.is_empty() || self.active.contains(&flow.as_str()) => Ok(()),
                Some(_) => Err(DropReason::NotActive),
                None => Err(DropReason::UnexpectedArguments),
            },
            CommandName::Continue if values::is_remark(after) && self.agent(name).is_some() => Ok(()),
            CommandName::Skip if values::is_remark(after) && self.slot(name).is_some() => Ok(()),
            _ => Err(DropReason::UnexpectedArguments),
        };
        match fits {
            Ok(()) => parsed.push(at, body, command),
            Err(reason) => parsed.drop(at, rest, reason),
        }
        after
    }
}
