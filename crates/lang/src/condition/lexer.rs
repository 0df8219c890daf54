//! The tokens of a condition.
//!
//! A number takes precedence over a word, so `2nd` is a number and a word. Words may contain `-.:;`. Quoted strings have no escapes. Only
//! space, tab and line feed separate tokens. Existing conditions depend on all of these rules.

use std::sync::LazyLock;

use regex::Regex;

use super::ConditionError;

/// A token and the byte at which it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'t> {
    pub(super) kind: Kind<'t>,
    pub(super) at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind<'t> {
    And,
    Or,
    Not,
    Is,
    Contains,
    Matches,
    True,
    False,
    Undefined,
    Null,
    Empty,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Open,
    Close,
    OpenSet,
    CloseSet,
    Number(f64),
    Word(&'t str),
    /// With its quotes.
    Quoted(&'t str),
    /// `/…/` with its slashes and flags.
    Regex(&'t str),
}

const KEYWORDS: [(&str, Kind<'static>); 11] = [
    ("is", Kind::Is),
    ("and", Kind::And),
    ("or", Kind::Or),
    ("not", Kind::Not),
    ("contains", Kind::Contains),
    ("matches", Kind::Matches),
    ("true", Kind::True),
    ("false", Kind::False),
    ("undefined", Kind::Undefined),
    ("null", Kind::Null),
    ("empty", Kind::Empty),
];

const SIGNS: [(&str, Kind<'static>); 11] = [
    (">=", Kind::GreaterOrEqual),
    ("<=", Kind::LessOrEqual),
    ("==", Kind::Equal),
    ("!=", Kind::NotEqual),
    (">", Kind::Greater),
    ("<", Kind::Less),
    ("=", Kind::Equal),
    ("(", Kind::Open),
    (")", Kind::Close),
    ("{", Kind::OpenSet),
    ("}", Kind::CloseSet),
];

// Python's `\w` and `\d`, which are not those of `char::is_alphanumeric` and `char::is_numeric`.
static WORD: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\A[\p{L}\p{N}_]").ok());
static DIGIT: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\A\p{Nd}").ok());

fn matches_class(class: &LazyLock<Option<Regex>>, c: char) -> bool {
    let mut buffer = [0; 4];
    class.as_ref().is_some_and(|class| class.is_match(c.encode_utf8(&mut buffer)))
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit() || !c.is_ascii() && matches_class(&DIGIT, c)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | ';') || !c.is_ascii() && matches_class(&WORD, c)
}

/// The number of bytes at the start of `text` whose characters satisfy `test`.
fn prefix_len(text: &str, test: impl Fn(char) -> bool) -> usize {
    text.find(|c| !test(c)).unwrap_or(text.len())
}

/// Splits `text` into tokens.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, ConditionError> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n']);
        if let Some(comment) = rest.strip_prefix('#') {
            rest = comment.trim_start_matches(|c| c != '\n');
            continue;
        }
        let at = text.len() - rest.len();
        let Some(first) = rest.chars().next() else { return Ok(tokens) };
        let wrong = |message: String, help: &str| ConditionError::new(char_offset(text, at), message, help);
        let (kind, length) = if let Some((number, length)) = number(rest) {
            (Kind::Number(number), length)
        } else if is_word(first) {
            let length = prefix_len(rest, is_word);
            let word = rest.get(..length).unwrap_or(rest);
            let keyword = KEYWORDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
            (keyword.map_or(Kind::Word(word), |(_, kind)| *kind), length)
        } else if let '"' | '\'' = first {
            let Some(end) = rest.get(1..).and_then(|inside| inside.find(first)) else {
                return Err(wrong(format!("this {first} is not closed"), "Close the string with the same quote."));
            };
            (Kind::Quoted(rest.get(..end + 2).unwrap_or(rest)), end + 2)
        } else if let Some(length) = regex_len(rest) {
            (Kind::Regex(rest.get(..length).unwrap_or(rest)), length)
        } else if let Some((sign, kind)) = SIGNS.iter().find(|(sign, _)| rest.starts_with(sign)) {
            (*kind, sign.len())
        } else {
            return Err(wrong(format!("{first:?} has no meaning in a condition"), fix(first)));
        };
        tokens.push(Token { kind, at });
        rest = rest.get(length..).unwrap_or_default();
    }
}

/// The offset in characters of an offset in bytes.
pub(super) fn char_offset(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or(text).chars().count()
}

fn number(rest: &str) -> Option<(f64, usize)> {
    let minus = usize::from(rest.starts_with('-'));
    let integer = prefix_len(rest.get(minus..)?, is_digit);
    if integer == 0 {
        return None;
    }
    let mut length = minus + integer;
    if let Some(fraction) = rest.get(length..).and_then(|rest| rest.strip_prefix('.')) {
        let digits = prefix_len(fraction, is_digit);
        length += if digits > 0 { 1 + digits } else { 0 };
    }
    let written = rest.get(..length)?;
    let value =
        if written.is_ascii() { written.parse() } else { written.chars().map(ascii_digit).collect::<String>().parse() };
    value.ok().map(|value| (value, length))
}

/// The ASCII digit of the same value. In Unicode, the decimal digits of every script are blocks of ten, in order.
fn ascii_digit(c: char) -> char {
    if c.is_ascii() {
        return c;
    }
    let before = (1..60).take_while(|back| char::from_u32(u32::from(c) - back).is_some_and(is_digit)).count();
    u32::try_from(before % 10).ok().and_then(|value| char::from_digit(value, 10)).unwrap_or('0')
}

/// The length in bytes of `/…/flags`, where `\/` does not end it.
fn regex_len(rest: &str) -> Option<usize> {
    let inside = rest.strip_prefix('/')?;
    let mut escaped = false;
    for (at, c) in inside.char_indices() {
        match c {
            '\n' => return None,
            '/' if !escaped => {
                let flags = prefix_len(inside.get(at + 1..)?, |c| matches!(c, 's' | 'i' | 'm' | 'l' | 'u'));
                return Some(at + 2 + flags);
            }
            _ => escaped = c == '\\' && !escaped,
        }
    }
    None
}

/// How to compare with one of several values.
pub(super) const ONE_OF_SEVERAL: &str = "To test for one of several values write `{\"a\" \"b\"} contains slots.name`: braces, spaces between \
    the items, the name on the right.";

fn fix(c: char) -> &'static str {
    match c {
        '&' => "Write `and`.",
        '|' => "Write `or`.",
        '!' => "Write `not`, or `!=` for inequality.",
        ',' | '[' | ']' => ONE_OF_SEVERAL,
        '+' | '*' | '%' => "There is no arithmetic; let an action set a slot.",
        '/' => "Write a regular expression after `matches`, in quotes or as `/…/`.",
        '$' => "Write names without `$`: `slots.name`.",
        '\r' => "Save the file with plain line feeds.",
        _ => "Remove it, or put the string it belongs to in quotes.",
    }
}
