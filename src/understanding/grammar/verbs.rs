//! The verbs of the grammar, and the start of a line.

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
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
    /// Known, but without an effect here.
    NotOffered,
}

/// All spellings, letters alone: `set slot`, `SetSlot`, `set_slot` and `Set-Slot` are one. Longer ones come before their
/// own beginnings.
const VERBS: &[(&str, Verb)] = &[
    ("startflow", Verb::Start),
    ("setslot", Verb::Set),
    ("cancelflow", Verb::Cancel),
    ("disambiguateflows", Verb::Clarify),
    ("disambiguateflow", Verb::Clarify),
    ("clarifyflows", Verb::Clarify),
    ("clarify", Verb::Clarify),
    ("skipquestion", Verb::Skip),
    ("searchandreply", Verb::Search),
    ("provideinfo", Verb::Search),
    ("knowledge", Verb::Search),
    ("offtopicreply", Verb::ChitChat),
    ("chitchat", Verb::ChitChat),
    ("humanhandoff", Verb::HandOver),
    ("handover", Verb::HandOver),
    ("repeatlastbotmessages", Verb::Repeat),
    ("repeatbotmessages", Verb::Repeat),
    ("repeatmessage", Verb::Repeat),
    ("continueagent", Verb::Continue),
    ("restartagent", Verb::Restart),
    ("cannothandle", Verb::CannotHandle),
    ("changeflow", Verb::NotOffered),
    ("correctslot", Verb::NotOffered),
];

/// Words that may stand before a command, with a colon.
const LABELS: &[&str] = &["action", "actions", "command", "commands", "answer", "output", "ai", "assistant"];

/// The line from its first word on: bullets, numbers, quotes and labels are left out.
pub(super) fn head(line: &str) -> &str {
    let mut body = skip(line);
    // `a) start flow x`, and `Action 2: start flow x`; no line has more than the two of them.
    for _ in 0..2 {
        let word = body.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        let after = body.get(word.len()..).unwrap_or_default();
        let letter = word.len() == 1 && after.starts_with([')', '.']);
        let numbered = after.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit() || c == '*');
        let label = numbered.starts_with(':') && LABELS.iter().any(|label| word.eq_ignore_ascii_case(label));
        if !letter && !label {
            break;
        }
        body = skip(after);
    }
    body
}

fn skip(text: &str) -> &str {
    text.trim_start_matches(|c: char| !c.is_alphabetic())
}

/// The verb at the start of `text`, and what follows it.
pub(super) fn strip(text: &str) -> Option<(Verb, &str)> {
    VERBS.iter().find_map(|(letters, verb)| strip_letters(text, letters).map(|rest| (*verb, rest)))
}

fn strip_letters<'t>(text: &'t str, letters: &str) -> Option<&'t str> {
    let mut wanted = letters.bytes().peekable();
    // No spelling has more than a handful of separators: a text of blanks is not walked to its end.
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

/// The verb that letters and underscores before a parenthesis name.
pub(super) fn named(word: &str) -> Option<Verb> {
    // The longest spelling with an underscore between any two letters.
    if word.len() > 48 {
        return None;
    }
    strip(word.trim_start_matches('_')).and_then(|(verb, rest)| rest.is_empty().then_some(verb))
}

/// What follows a sign that joins two actions on one line.
pub(super) fn joined(after: &str) -> Option<&str> {
    let text = after.trim_start_matches([' ', '\t', '`', '"', '\'', '.', ')', '*', '>', ']']);
    let signed = text
        .strip_prefix([',', ';', '|', '&', '+'])
        .or_else(|| text.strip_prefix("and "))
        .or_else(|| text.strip_prefix("then "))?;
    let body = skip(signed);
    Some(body.strip_prefix("and ").or_else(|| body.strip_prefix("then ")).map_or(body, skip))
}
