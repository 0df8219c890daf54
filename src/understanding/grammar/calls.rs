//! Commands in the look of calls: `StartFlow(x)`, `SetSlot(name, value)`, several in a line, anywhere in it.

use super::{At, Grammar, PER_LINE, Parsed, Why, fields, names, verbs, verbs::Verb};

/// Ends of a value that are tried; more stand in no value that anybody wrote.
const ENDS: usize = 32;

/// A verb with an open parenthesis.
#[derive(Clone, Copy)]
struct Head {
    verb: Verb,
    /// Where the verb begins.
    start: usize,
    /// Behind the parenthesis.
    open: usize,
}

impl Grammar<'_> {
    /// Reads the calls of a line; false when there is none.
    pub(super) fn calls(&self, at: At<'_>, parsed: &mut Parsed) -> bool {
        let heads = heads(at.line);
        let mut from = 0;
        for (index, head) in heads.iter().enumerate() {
            // What stands inside the arguments of the last call is its value.
            if head.start >= from {
                from = self.call(at, *head, heads.get(index + 1..).unwrap_or_default(), parsed);
            }
        }
        !heads.is_empty()
    }

    /// Reads one call and returns where it ends.
    fn call(&self, at: At<'_>, head: Head, later: &[Head], parsed: &mut Parsed) -> usize {
        let line = at.line;
        let body = line.get(head.start..).unwrap_or_default();
        let rest = line.get(head.open..).unwrap_or_default();
        let length = match head.verb {
            Verb::Set => {
                let comma = rest.find([',', ')']).unwrap_or(rest.len());
                let (name, _) = names::take(fields::argument(rest.get(..comma).unwrap_or_default()));
                let Some(tail) = rest.get(comma..).and_then(|tail| tail.strip_prefix(',')) else {
                    parsed.drop(at, rest, if name.is_empty() { Why::NoName } else { Why::NoValue });
                    return head.open + comma;
                };
                let length = value_length(line, line.len() - tail.len(), later);
                let value = fields::argument(tail.get(..length).unwrap_or_default());
                self.set(at, body, name, Some(value), parsed);
                comma + 1 + length
            }
            verb => {
                let length = rest.find(')').unwrap_or(rest.len());
                let arguments = fields::argument(rest.get(..length).unwrap_or_default());
                let _ = match verb {
                    Verb::Start => self.start_words(at, body, arguments, parsed),
                    Verb::Restart => self.restart_words(at, body, arguments, parsed),
                    Verb::Clarify => {
                        self.clarify(at, body, arguments, parsed);
                        ""
                    }
                    verb => self.bare(at, body, verb, arguments, parsed),
                };
                length
            }
        };
        head.open + length
    }
}

/// All verbs with an open parenthesis in a line.
fn heads(line: &str) -> Vec<Head> {
    let mut found = Vec::new();
    let mut word = 0;
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            b'(' => {
                if let Some(verb) = line.get(word..at).and_then(verbs::named)
                    && found.len() < PER_LINE
                {
                    found.push(Head { verb, start: word, open: at + 1 });
                }
                word = at + 1;
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {}
            _ => word = at + 1,
        }
    }
    found
}

/// How long the value is that begins at `from`: up to its own closing parenthesis.
///
/// In quotes it ends at a quote with a parenthesis behind it, else where the parentheses are even; either way only if nothing
/// or another call follows. A value with stray parentheses ends at the last one of the line.
fn value_length(line: &str, from: usize, later: &[Head]) -> usize {
    let tail = line.get(from..).unwrap_or_default();
    let begins = fields::argument(tail);
    let quote = begins.chars().next().filter(|c| matches!(c, '"' | '\'' | '`'));
    let ends = |close: usize| {
        let after = line.get(from + close + 1..).unwrap_or_default();
        let next = after.find(|c: char| c.is_alphanumeric() || c == '(').map(|at| from + close + 1 + at);
        next.is_none_or(|next| later.binary_search_by_key(&next, |head| head.start).is_ok())
    };
    let last = tail.rfind(')');
    let Some(quote) = quote else {
        return balanced(tail).filter(|close| ends(*close)).or(last).unwrap_or(tail.len());
    };
    let begin = tail.len() - tail.trim_start().len();
    let first = tail.get(begin..).and_then(|t| t.find(quote)).map_or(0, |at| begin + at + quote.len_utf8());
    let closes = tail.get(first..).unwrap_or_default().match_indices(quote).filter_map(|(at, mark)| {
        let behind = tail.get(first + at + mark.len()..)?;
        let blanks = behind.len() - behind.trim_start().len();
        behind.trim_start().starts_with(')').then_some(first + at + mark.len() + blanks)
    });
    closes.take(ENDS).find(|close| ends(*close)).or(last).unwrap_or(tail.len())
}

/// The closing parenthesis that belongs to one that is already open.
fn balanced(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' if depth == 0 => return Some(at),
            b')' => depth -= 1,
            _ => {}
        }
    }
    None
}
