//! The expectations of a turn, its result, and the comparison of both.

use regex::Regex;
use segue_engine::conversation::{BotKind, Command, Event, EventKind, Slots};
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::support::json::json_equal;

/// A turn of `turns.yml` and its expectations.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedTurn {
    pub(super) user: String,
    /// The expectation in words.
    pub(super) right: String,
    /// Alternative lists of commands.
    commands: Vec<Vec<String>>,
    #[serde(default)]
    calls: Vec<Map<String, Json>>,
    #[serde(default)]
    no_calls: bool,
    #[serde(default)]
    bot: Vec<String>,
    #[serde(default)]
    not_bot: Vec<String>,
    #[serde(default)]
    slots: Map<String, Json>,
}

/// The result of one turn.
pub(super) struct TurnResult {
    commands: Vec<String>,
    calls: Vec<(String, Json)>,
    /// The slots that an agent set, in order.
    agent_slots: Vec<(String, Json)>,
    /// The texts of the replies without fillers, one per line.
    replies: String,
    slots: Slots,
    /// The estimated tokens of each request to a model.
    pub(super) sizes: Vec<usize>,
}

/// The tools that write.
const WRITES: [&str; 3] = ["book_crossing", "change_booking", "refund_booking"];

impl TurnResult {
    pub(super) fn of(events: &[Event], slots: Slots, sizes: Vec<usize>) -> Self {
        let (commands, calls, agent_slots) = (Vec::new(), Vec::new(), Vec::new());
        let mut result = Self { commands, calls, agent_slots, replies: String::new(), slots, sizes };
        for event in events {
            match &event.kind {
                EventKind::Understood { commands, .. } => result.commands = commands.iter().map(text).collect(),
                EventKind::ToolExecuted { tool_name, arguments, .. } => {
                    result.calls.push((tool_name.to_string(), arguments.clone()));
                }
                EventKind::Slot { name, value, filled_by: Some(by), .. } if format!("{by:?}") == "Agent" => {
                    result.agent_slots.push((name.to_string(), value.clone()));
                }
                EventKind::Bot(bot) if bot.kind != BotKind::Filler => {
                    result.replies += bot.reply.text.as_deref().unwrap_or_default();
                    result.replies.push('\n');
                }
                _ => {}
            }
        }
        if result.commands.is_empty() {
            result.commands.push("continue agent".to_owned());
        }
        result
    }

    /// The first expectation that does not hold.
    pub(super) fn problem(&self, turn: &ExpectedTurn) -> Option<String> {
        let report =
            |problem: String| Some(format!("{problem}\nresult: {}\nreplies: {}", self.summary(), self.replies));
        if self.sizes.is_empty() {
            return report("no request to a model".to_owned());
        }
        let are_expected = |expected: &Vec<String>| {
            expected.len() == self.commands.len()
                && expected.iter().zip(&self.commands).all(|(expected, command)| matches(expected, command))
        };
        if !turn.commands.iter().any(are_expected) {
            return report(format!("the commands are {:?}", self.commands));
        }
        if let Some(problem) = self.calls_problem(turn) {
            return report(problem);
        }
        for (name, expected) in &turn.slots {
            let found = self.slots.get(name).cloned().unwrap_or(Json::Null);
            if !equal(expected, &found) {
                return report(format!("{name} is {found}, not {expected}"));
            }
        }
        let is_in_replies = |expected: &str| match expected.strip_prefix('~') {
            Some(pattern) => Regex::new(pattern).unwrap().is_match(&self.replies),
            None => self.replies.contains(expected),
        };
        if let Some(missing) = turn.bot.iter().find(|expected| !is_in_replies(expected)) {
            return report(format!("{missing:?} is missing"));
        }
        let unwanted = turn.not_bot.iter().find(|unwanted| is_in_replies(unwanted))?;
        report(format!("{unwanted:?} should not be there"))
    }

    /// The first expectation about calls that does not hold. Reads that are not expected are allowed, writes are not.
    fn calls_problem(&self, turn: &ExpectedTurn) -> Option<String> {
        if turn.no_calls && !self.calls.is_empty() {
            return Some("there should be no call".to_owned());
        }
        let mut expected = turn.calls.iter().flatten().peekable();
        for (tool, arguments) in &self.calls {
            let is_expected = expected.next_if(|(name, given)| {
                let given = given.as_object().unwrap();
                *name == tool && given.iter().all(|(key, value)| value.is_null() || equal(value, &arguments[key]))
            });
            if is_expected.is_none() && WRITES.contains(&tool.as_str()) {
                return Some(format!("{tool} {arguments} should not happen"));
            }
        }
        expected.next().map(|(name, given)| format!("{name} {given} is missing"))
    }

    /// The commands, the calls and the slots that agents set, for the table.
    pub(super) fn summary(&self) -> String {
        let mut parts: Vec<String> = self.commands.iter().map(|command| format!("`{command}`")).collect();
        parts.extend(self.calls.iter().map(|(tool, arguments)| format!("`{tool}` {}", argument_values(arguments))));
        parts.extend(self.agent_slots.iter().map(|(slot, value)| format!("{slot} = {}", bare(value))));
        parts.join("; ").replace('|', "/")
    }
}

/// Whether a command is as expected: equal, or a match of the regular expression after `~`.
fn matches(expected: &str, found: &str) -> bool {
    match expected.strip_prefix('~') {
        Some(pattern) => Regex::new(pattern).unwrap().is_match(found),
        None => expected == found,
    }
}

/// Whether two values are equal: numbers as numbers, texts without case.
fn equal(expected: &Json, found: &Json) -> bool {
    match (expected.as_str(), found.as_str()) {
        (Some(expected), Some(found)) => expected.eq_ignore_ascii_case(found),
        _ => json_equal(expected, found),
    }
}

/// The values of the arguments.
fn argument_values(arguments: &Json) -> String {
    let given = arguments.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    given.map(|(_, value)| bare(value)).collect::<Vec<_>>().join(" ")
}

/// A value without quotes.
fn bare(value: &Json) -> String {
    match (value.as_str(), value.as_f64()) {
        (Some(text), _) => text.to_owned(),
        (None, Some(number)) => number.to_string(),
        _ => value.to_string(),
    }
}

/// A command in the syntax of the prompt.
fn text(command: &Command) -> String {
    let join = |ids: &[segue::ids::FlowId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    match command {
        Command::StartFlow { flow } => format!("start flow {flow}"),
        Command::SetSlot { name, value, .. } => format!("set slot {name} {}", bare(value)),
        Command::CorrectSlots { .. } => "correct slots".to_owned(),
        Command::CancelFlow => "cancel flow".to_owned(),
        Command::Clarify { options } => format!("disambiguate flows {}", join(options)),
        Command::ContinueAgent => "continue agent".to_owned(),
        Command::RestartAgent { agent_id } => format!("restart agent {agent_id}"),
        Command::Search => "search and reply".to_owned(),
        Command::ChitChat => "offtopic reply".to_owned(),
        Command::SkipQuestion => "skip question".to_owned(),
        Command::RepeatBotMessages => "repeat message".to_owned(),
        Command::HumanHandoff => "hand over".to_owned(),
        Command::CannotHandle { .. } => "cannot handle".to_owned(),
        other => format!("{other:?}"),
    }
}
