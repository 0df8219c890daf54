//! The text forms of commands, of all generations, read in one pass.
//!
//! Words (`start flow x`, at the head of a line) and calls (`StartFlow(x)`, anywhere in a line). Total: whatever a model
//! writes is either a command or dropped with a reason and a place. Linear: no part of a line is read more than a fixed
//! number of times. A line that sets a slot yields nothing else, whatever its value holds: a value is what a person wrote,
//! and must not become a command.

mod calls;
mod fields;
mod items;
mod names;
#[cfg(test)]
pub(super) mod tests;
mod verbs;

use std::fmt;

use segue_engine::{
    conversation::Command,
    project::Project,
    text::{ELLIPSIS, TextLimit, truncate},
};

use self::verbs::Verb;
use super::CANNOT_HANDLE;
use crate::limits;

/// Reads answers about one project.
pub(super) struct Grammar<'a> {
    pub(super) project: &'a Project,
    /// The flow under way and those that called it, which `cancel flow` may name; empty: any.
    pub(super) active: Vec<&'a str>,
}

/// What was read.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Parsed {
    /// In the order of the answer, no two the same.
    pub(super) commands: Vec<Command>,
    /// What was left out, and why.
    pub(super) dropped: Vec<Dropped>,
    /// Prose stands between commands: they may be alternatives that the model only considers.
    pub(super) is_broken_up: bool,
    /// A form of the prompt was repeated with its placeholders.
    pub(super) is_echo: bool,
    prose_since: bool,
}

/// A part of an answer that is no command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dropped {
    /// Line of the answer, from 1.
    pub(super) line: usize,
    /// Where the trouble is, in characters, from 1.
    pub(super) column: usize,
    /// The line, cut short.
    pub(super) text: String,
    /// Why.
    pub(super) why: Why,
}

/// Why a part of an answer is no command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It has no known form.
    Prose,
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
    /// Words follow a form that takes none.
    Surplus,
    /// A form of an older generation that does nothing here.
    NotOffered,
    /// A flow that is not under way cannot be stopped.
    NotActive,
    /// The same command stands there before.
    Again,
    /// The limit of the answer cut it: nobody knows how it goes on.
    Cut,
    /// Past the limits of lines or commands.
    TooMuch,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prose => "no action has this form",
            Self::NoName => "a name must follow",
            Self::NoValue => "a value must follow the slot",
            Self::UnknownFlow => "there is no such flow to start",
            Self::UnknownSlot => "there is no such slot",
            Self::UnknownAgent => "there is no such agent",
            Self::Surplus => "nothing may follow this action",
            Self::NotOffered => "this action is not on offer",
            Self::NotActive => "only the active flow can be cancelled",
            Self::Again => "the same action stands there before",
            Self::Cut => "the answer was cut off here",
            Self::TooMuch => "the answer is too long",
        })
    }
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {:?}: {}", self.line, self.column, self.text, self.why)
    }
}

/// Where the parser is: for reasons.
#[derive(Clone, Copy)]
struct At<'t> {
    number: usize,
    line: &'t str,
}

/// Where `part` begins in `whole`; 0 when it is no piece of it.
fn offset(whole: &str, part: &str) -> usize {
    let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
    if start <= whole.len() { start } else { 0 }
}

impl Parsed {
    fn drop(&mut self, at: At<'_>, part: &str, why: Why) {
        // One reason for each of the lines that are read, and the same again for lists of names.
        if self.dropped.len() >= 2 * limits::COMMAND_LINES {
            return;
        }
        let before = at.line.get(..offset(at.line, part)).unwrap_or_default();
        let text = truncate(at.line.trim(), TextLimit::Chars(SHOWN), ELLIPSIS).into_owned();
        self.dropped.push(Dropped { line: at.number, column: before.chars().count() + 1, text, why });
    }

    fn push(&mut self, at: At<'_>, part: &str, command: Command) {
        if self.commands.contains(&command) {
            self.drop(at, part, Why::Again);
        } else if self.commands.len() >= limits::COMMANDS_MAX {
            self.drop(at, part, Why::TooMuch);
        } else {
            self.is_broken_up |= self.prose_since && !self.commands.is_empty();
            self.commands.push(command);
        }
        self.prose_since = false;
    }

    /// `cannot handle` says nothing beside other commands.
    fn without_empty_hands(mut self) -> Self {
        let empty_handed = |command: &Command| matches!(command, Command::CannotHandle { .. });
        if !self.commands.iter().all(empty_handed) {
            self.commands.retain(|command| !empty_handed(command));
        }
        self
    }

    fn prose(&mut self, at: At<'_>, part: &str) {
        // A heading between commands takes nothing back.
        self.prose_since |= !at.line.trim_end().ends_with([':', '*', '#']);
        self.drop(at, part, Why::Prose);
    }
}

/// Characters of a line that a reason shows.
const SHOWN: usize = 80;
/// Commands, calls or names that are read in one line.
const PER_LINE: usize = 2 * limits::COMMANDS_MAX;

impl Grammar<'_> {
    /// Reads an answer. `is_cut`: a limit ended it, so that its last line may be incomplete and does not count.
    pub(super) fn read(&self, text: &str, is_cut: bool) -> Parsed {
        let mut parsed = Parsed::default();
        let mut lines = text.split(['\n', '\r']).enumerate().peekable();
        let mut number = 0;
        while let Some((_, line)) = lines.next() {
            let is_last = lines.peek().is_none();
            if line.trim().is_empty() {
                continue;
            }
            number += 1;
            let at = At { number, line };
            if number > limits::COMMAND_LINES {
                parsed.drop(at, line, Why::TooMuch);
                break;
            }
            if is_cut && is_last {
                parsed.drop(at, line, Why::Cut);
                continue;
            }
            self.line(At { line: self.alias(line).unwrap_or(line), ..at }, &mut parsed);
        }
        parsed.without_empty_hands()
    }

    /// The command that a line stands for by the project's own word.
    fn alias(&self, line: &str) -> Option<&str> {
        let aliases = self.project.config.generator.as_ref().map(|generator| generator.aliases.as_slice());
        let mut aliases = aliases.unwrap_or_default().iter();
        aliases.find(|alias| alias.line.is_match(line).is_match()).map(|alias| &*alias.command)
    }

    fn line(&self, at: At<'_>, parsed: &mut Parsed) {
        let line = at.line;
        if line.trim_start().starts_with("```") {
            return; // the fence of a code block, with or without a language
        }
        parsed.is_echo |= ["<flow>", "<slot>", "<value>", "<agent>"].iter().any(|mark| line.contains(mark));
        let body = verbs::head(line);
        if body.is_empty() {
            return;
        }
        match verbs::strip(body) {
            Some((_, rest)) if rest.trim_start().starts_with('(') && self.calls(at, parsed) => {}
            Some((verb, rest)) => self.words(at, body, verb, rest, parsed),
            None if self.calls(at, parsed) => {}
            None => parsed.prose(at, body),
        }
    }

    /// Reads commands written as words, from the first verb on.
    fn words(&self, at: At<'_>, body: &str, verb: Verb, rest: &str, parsed: &mut Parsed) {
        let (mut body, mut verb, mut rest) = (body, verb, rest);
        for _ in 0..PER_LINE {
            let after = match verb {
                Verb::Set => return self.set_words(at, body, rest, parsed),
                Verb::Clarify => return self.clarify(at, body, rest, parsed),
                Verb::Start => self.start_words(at, body, rest, parsed),
                Verb::Restart => self.restart_words(at, body, rest, parsed),
                _ => self.bare(at, body, verb, rest, parsed),
            };
            // Two actions on one line: only behind a clear sign, and never behind a value.
            let Some(next) = verbs::joined(after) else { return };
            let Some((next_verb, next_rest)) = verbs::strip(next) else { return };
            (body, verb, rest) = (next, next_verb, next_rest);
        }
    }

    fn start_words<'t>(&self, at: At<'t>, body: &'t str, rest: &'t str, parsed: &mut Parsed) -> &'t str {
        let (name, after) = names::take(rest);
        if name.is_empty() {
            parsed.drop(at, rest, Why::NoName);
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
            None => parsed.drop(at, name, Why::UnknownFlow),
        }
        rest.get(offset(rest, clause) + clause.len()..).unwrap_or_default()
    }

    fn restart_words<'t>(&self, at: At<'t>, body: &'t str, rest: &'t str, parsed: &mut Parsed) -> &'t str {
        let (name, after) = names::take(rest);
        match self.agent(name) {
            Some(agent_id) => parsed.push(at, body, Command::RestartAgent { agent_id }),
            None => parsed.drop(at, rest, if name.is_empty() { Why::NoName } else { Why::UnknownAgent }),
        }
        after
    }

    fn set_words(&self, at: At<'_>, body: &str, rest: &str, parsed: &mut Parsed) {
        let (name, after) = names::take(rest);
        if name.is_empty() {
            return parsed.drop(at, rest, Why::NoName);
        }
        let spaced = if self.slot(name).is_none() { self.spaced_slot(rest) } else { None };
        let (name, value) = spaced.unwrap_or((name, after));
        self.set(at, body, name, fields::value_of_words(value), parsed);
    }

    /// Fills a slot, by the names and values as they were written.
    fn set(&self, at: At<'_>, body: &str, name: &str, value: Option<&str>, parsed: &mut Parsed) {
        let Some(slot) = self.slot(name) else {
            // Some models take the flow for a slot.
            let flow = value.filter(|_| names::same(name, "flow_name") || names::same(name, "flow"));
            return match flow.and_then(|value| self.flow(fields::trimmed(value))) {
                Some(flow) => parsed.push(at, body, Command::StartFlow { flow }),
                None => parsed.drop(at, name, Why::UnknownSlot),
            };
        };
        let Some(value) = value else { return parsed.drop(at, name, Why::NoValue) };
        let value = fields::value(value, &slot.kind);
        parsed.push(at, body, Command::SetSlot { name: slot.name.clone(), value, extractor: fields::BY });
    }

    /// Options of a clarification, from here to the end of the text.
    fn clarify(&self, at: At<'_>, body: &str, options: &str, parsed: &mut Parsed) {
        let options: Vec<&str> = names::list(options).take(PER_LINE).collect();
        let mut known = Vec::new();
        for name in &options {
            match self.flow(name) {
                Some(flow) if !known.contains(&flow) => known.push(flow),
                Some(_) => {}
                None => parsed.drop(at, name, Why::UnknownFlow),
            }
        }
        known.sort_unstable();
        match <[_; 1]>::try_from(known) {
            Ok([flow]) => parsed.push(at, body, Command::StartFlow { flow }),
            Err(known) if known.is_empty() && !options.is_empty() => {}
            Err(options) => parsed.push(at, body, Command::Clarify { options }),
        }
    }

    /// A command without arguments; a name that can only mean what is meant anyway may follow.
    fn bare<'t>(&self, at: At<'t>, body: &'t str, verb: Verb, rest: &'t str, parsed: &mut Parsed) -> &'t str {
        let command = match verb {
            Verb::Cancel => Command::CancelFlow,
            Verb::Skip => Command::SkipQuestion,
            Verb::Search => Command::Search,
            Verb::ChitChat => Command::ChitChat,
            Verb::HandOver => Command::HumanHandoff,
            Verb::Repeat => Command::RepeatBotMessages,
            Verb::Continue => Command::ContinueAgent,
            Verb::CannotHandle => Command::CannotHandle { reason: CANNOT_HANDLE.into() },
            _ => {
                parsed.drop(at, body, Why::NotOffered);
                return "";
            }
        };
        let (name, after) = names::take(rest);
        if fields::is_remark(rest) || verbs::joined(rest).is_some_and(|next| verbs::strip(next).is_some()) {
            parsed.push(at, body, command);
            return rest;
        }
        let fits = match verb {
            Verb::Cancel if !fields::is_remark(after) => Err(Why::Surplus),
            Verb::Cancel => match self.flow(name) {
                Some(flow) if self.active.is_empty() || self.active.contains(&flow.as_str()) => Ok(()),
                Some(_) => Err(Why::NotActive),
                None => Err(Why::Surplus),
            },
            Verb::Continue if fields::is_remark(after) && self.agent(name).is_some() => Ok(()),
            Verb::Skip if fields::is_remark(after) && self.slot(name).is_some() => Ok(()),
            _ => Err(Why::Surplus),
        };
        match fits {
            Ok(()) => parsed.push(at, body, command),
            Err(why) => parsed.drop(at, rest, why),
        }
        after
    }
}
