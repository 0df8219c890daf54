//! The names of commands in all their spellings, and the start of a line.

/// A command that an answer can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandName {
    Start,
    Set,
    Cancel,
    Clarify,
    Skip,
    Search,
    ChitChat,
    HandOver,
    Repeat,
    Continue,
    Restart,
    CannotHandle,
    /// A command of Rasa that Segue does not execute.
    NotOffered,
}

/// All spellings, as letters only: `set slot`, `SetSlot`, `set_slot` and `Set-Slot` are the same. A longer spelling comes
/// before its own prefix, because the first match counts.
const SPELLINGS: &[(&str, CommandName)] = &[
    ("startflow", CommandName::Start),
    ("setslot", CommandName::Set),
    ("cancelflow", CommandName::Cancel),
    ("disambiguateflows", CommandName::Clarify),
    ("disambiguateflow", CommandName::Clarify),
    ("clarifyflows", CommandName::Clarify),
    ("clarify", CommandName::Clarify),
    ("skipquestion", CommandName::Skip),
    ("searchandreply", CommandName::Search),
    ("provideinfo", CommandName::Search),
    ("knowledge", CommandName::Search),
    ("offtopicreply", CommandName::ChitChat),
    ("chitchat", CommandName::ChitChat),
    ("humanhandoff", CommandName::HandOver),
    ("handover", CommandName::HandOver),
    ("repeatlastbotmessages", CommandName::Repeat),
    ("repeatbotmessages", CommandName::Repeat),
    ("repeatmessage", CommandName::Repeat),
    ("continueagent", CommandName::Continue),
    ("restartagent", CommandName::Restart),
    ("cannothandle", CommandName::CannotHandle),
    ("changeflow", CommandName::NotOffered),
    ("correctslot", CommandName::NotOffered),
];

/// Words that may precede a command, with a colon after them.
const LABELS: &[&str] = &["action", "actions", "command", "commands", "answer", "output", "ai", "assistant"];

/// The line from its first word on, without bullets, numbers, quotes and labels.
pub(super) fn line_start(line: &str) -> &str {
    let mut body = skip_to_letter(line);
    // `a) start flow x` and `Action 2: start flow x`: at most both of them.
    for _ in 0..2 {
        let word = body.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        let after = body.get(word.len()..).unwrap_or_default();
        let letter = word.len() == 1 && after.starts_with([')', '.']);
        let numbered = after.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit() || c == '*');
        let label = numbered.starts_with(':') && LABELS.iter().any(|label| word.eq_ignore_ascii_case(label));
        if !letter && !label {
            break;
        }
        body = skip_to_letter(after);
    }
    body
}

fn skip_to_letter(text: &str) -> &str {
    text.trim_start_matches(|c: char| !c.is_alphabetic())
}

/// The command named at the start of `text`, and the text after the name.
pub(super) fn strip_name(text: &str) -> Option<(CommandName, &str)> {
    SPELLINGS.iter().find_map(|(letters, command)| strip_letters(text, letters).map(|rest| (*command, rest)))
}

fn strip_letters<'t>(text: &'t str, letters: &str) -> Option<&'t str> {
    let mut wanted = letters.bytes().peekable();
    // No spelling has more than a few separators: a long run of blanks is not scanned to its end.
    let mut separators = 0;
    for (at, c) in text.char_indices() {
        let Some(&next) = wanted.peek() else {
            return if c.is_alphanumeric() || c == '_' { None } else { text.get(at..) };
        };
        if c.is_ascii() && (c as u8).eq_ignore_ascii_case(&next) {
            wanted.next();
        } else if at > 0 && matches!(c, ' ' | '\t' | '_' | '-') && separators < 16 {
            separators += 1;
        } else {
            return None;
        }
    }
    wanted.peek().is_none().then(|| text.get(text.len()..).unwrap_or_default())
}

/// The command named by the letters and underscores before a parenthesis.
pub(super) fn whole_name(word: &str) -> Option<CommandName> {
    // The length of the longest spelling with an underscore between any two letters.
    if word.len() > 48 {
        return None;
    }
    strip_name(word.trim_start_matches('_')).and_then(|(command, rest)| rest.is_empty().then_some(command))
}

/// The text of the next command on the same line, after a separator such as `,` or `and`.
pub(super) fn next_command(after: &str) -> Option<&str> {
    let text = after.trim_start_matches([' ', '\t', '`', '"', '\'', '.', ')', '*', '>', ']']);
    let signed = text
        .strip_prefix([',', ';', '|', '&', '+'])
        .or_else(|| text.strip_prefix("and "))
        .or_else(|| text.strip_prefix("then "))?;
    let body = skip_to_letter(signed);
    Some(body.strip_prefix("and ").or_else(|| body.strip_prefix("then ")).map_or(body, skip_to_letter))
}
