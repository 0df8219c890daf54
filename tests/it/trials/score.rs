//! What is right in a turn, what was seen, and whether the one is the other.

use regex::Regex;
use segue_engine::conversation::{BotKind, Command, Event, EventKind, Slots};
use serde::Deserialize;
use serde_json::{Map, Value as Json};

/// A turn and what is right in it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Turn {
    pub(super) user: String,
    /// What is right, for people.
    pub(super) right: String,
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

/// What one turn showed.
pub(super) struct Seen {
    commands: Vec<String>,
    calls: Vec<(String, Json)>,
    /// Slots that an agent set, in order.
    set: Vec<(String, Json)>,
    said: String,
    slots: Slots,
    asked: usize,
    pub(super) sizes: Vec<usize>,
}

/// Tools that change something.
const WRITES: [&str; 3] = ["book_crossing", "change_booking", "refund_booking"];

impl Seen {
    pub(super) fn of(events: &[Event], slots: Slots, asked: usize, sizes: Vec<usize>) -> Self {
        let mut seen =
            Self { commands: Vec::new(), calls: Vec::new(), set: Vec::new(), said: String::new(), slots, asked, sizes };
        for event in events {
            match &event.kind {
                EventKind::Understood { commands, .. } => seen.commands = commands.iter().map(text).collect(),
                EventKind::ToolExecuted { tool_name, arguments, .. } => {
                    seen.calls.push((tool_name.to_string(), arguments.clone()));
                }
                EventKind::Slot { name, value, filled_by: Some(by), .. } if format!("{by:?}") == "Agent" => {
                    seen.set.push((name.to_string(), value.clone()));
                }
                EventKind::Bot(bot) if bot.kind != BotKind::Filler => {
                    seen.said += bot.reply.text.as_deref().unwrap_or_default();
                    seen.said.push('\n');
                }
                _ => {}
            }
        }
        if seen.commands.is_empty() {
            seen.commands.push("continue agent".to_owned());
        }
        seen
    }

    /// What is wrong, if anything is.
    pub(super) fn problem(&self, turn: &Turn) -> Option<String> {
        let told = |what: String| Some(format!("{what}\nit did: {}\nit said: {}", self.brief(), self.said));
        if self.asked == 0 {
            return told("no model was asked".to_owned());
        }
        let is_meant = |wanted: &Vec<String>| {
            wanted.len() == self.commands.len()
                && wanted.iter().zip(&self.commands).all(|(wanted, one)| fits(wanted, one))
        };
        if !turn.commands.iter().any(is_meant) {
            return told(format!("the commands are {:?}", self.commands));
        }
        if let Some(problem) = self.calls_problem(turn) {
            return told(problem);
        }
        for (name, wanted) in &turn.slots {
            let found = self.slots.get(name).cloned().unwrap_or(Json::Null);
            if !same(wanted, &found) {
                return told(format!("{name} is {found}, not {wanted}"));
            }
        }
        let within = |wanted: &str| match wanted.strip_prefix('~') {
            Some(pattern) => Regex::new(pattern).unwrap().is_match(&self.said),
            None => self.said.contains(wanted),
        };
        if let Some(missing) = turn.bot.iter().find(|wanted| !within(wanted)) {
            return told(format!("{missing:?} is missing"));
        }
        let unwanted = turn.not_bot.iter().find(|unwanted| within(unwanted))?;
        told(format!("{unwanted:?} should not be there"))
    }

    fn calls_problem(&self, turn: &Turn) -> Option<String> {
        if turn.no_calls && !self.calls.is_empty() {
            return Some("there should be no call".to_owned());
        }
        let mut wanted = turn.calls.iter().flatten().peekable();
        for (tool, arguments) in &self.calls {
            let is_wanted = wanted.next_if(|(name, given)| {
                let given = given.as_object().unwrap();
                *name == tool && given.iter().all(|(key, value)| value.is_null() || same(value, &arguments[key]))
            });
            if is_wanted.is_none() && WRITES.contains(&tool.as_str()) {
                return Some(format!("{tool} {arguments} should not happen"));
            }
        }
        wanted.next().map(|(name, given)| format!("{name} {given} is missing"))
    }

    /// Commands, calls and what agents recorded, for a table.
    pub(super) fn brief(&self) -> String {
        let mut parts: Vec<String> = self.commands.iter().map(|command| format!("`{command}`")).collect();
        parts.extend(self.calls.iter().map(|(tool, arguments)| format!("`{tool}` {}", plain(arguments))));
        parts.extend(self.set.iter().map(|(slot, value)| format!("{slot} = {}", bare(value))));
        parts.join("; ").replace('|', "/")
    }
}

fn fits(wanted: &str, found: &str) -> bool {
    match wanted.strip_prefix('~') {
        Some(pattern) => Regex::new(pattern).unwrap().is_match(found),
        None => wanted == found,
    }
}

fn same(wanted: &Json, found: &Json) -> bool {
    match (wanted.as_f64(), found.as_f64(), wanted.as_str(), found.as_str()) {
        (Some(wanted), Some(found), ..) => wanted == found,
        (_, _, Some(wanted), Some(found)) => wanted.eq_ignore_ascii_case(found),
        _ => wanted == found,
    }
}

fn plain(arguments: &Json) -> String {
    let given = arguments.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    given.map(|(_, value)| bare(value)).collect::<Vec<_>>().join(" ")
}

fn bare(value: &Json) -> String {
    match (value.as_str(), value.as_f64()) {
        (Some(text), _) => text.to_owned(),
        (None, Some(number)) => number.to_string(),
        _ => value.to_string(),
    }
}

/// A command in the words of the prompt.
fn text(command: &Command) -> String {
    let of = |ids: &[segue::ids::FlowId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    match command {
        Command::StartFlow { flow } => format!("start flow {flow}"),
        Command::SetSlot { name, value, .. } => format!("set slot {name} {}", bare(value)),
        Command::CorrectSlots { .. } => "correct slots".to_owned(),
        Command::CancelFlow => "cancel flow".to_owned(),
        Command::Clarify { options } => format!("disambiguate flows {}", of(options)),
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
