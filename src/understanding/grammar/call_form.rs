//! Commands in the form of calls: `StartFlow(x)`, `SetSlot(name, value)`. A line may hold several, at any place.

use super::{
    DropReason, Grammar, LinePosition, MAX_PER_LINE, Parsed, command_names, command_names::CommandName, names, values,
};

/// How many possible ends of a quoted value are tried. Bounds the work on a line; no realistic value has more.
const MAX_VALUE_ENDS: usize = 32;

/// A command name with an opening parenthesis.
#[derive(Clone, Copy)]
struct CallStart {
    command: CommandName,
    /// Byte offset of the command name.
    start: usize,
    /// Byte offset after the parenthesis.
    open: usize,
}

impl Grammar<'_> {
    /// Parses the calls of a line; false when there is none.
    pub(super) fn parse_calls(&self, at: LinePosition<'_>, parsed: &mut Parsed) -> bool {
        let starts = call_starts(at.line);
        let mut from = 0;
        for (index, call) in starts.iter().enumerate() {
            // A call inside the arguments of the previous call is part of a value.
            if call.start >= from {
                from = self.parse_call(at, *call, starts.get(index + 1..).unwrap_or_default(), parsed);
            }
        }
        !starts.is_empty()
    }

    /// Parses one call and returns where it ends.
    fn parse_call(&self, at: LinePosition<'_>, call: CallStart, later: &[CallStart], parsed: &mut Parsed) -> usize {
        let line = at.line;
        let body = line.get(call.start..).unwrap_or_default();
        let rest = line.get(call.open..).unwrap_or_default();
        let length = match call.command {
            CommandName::Set => {
                let comma = rest.find([',', ')']).unwrap_or(rest.len());
                let (name, _) = names::take(values::argument(rest.get(..comma).unwrap_or_default()));
                let Some(tail) = rest.get(comma..).and_then(|tail| tail.strip_prefix(',')) else {
                    parsed.drop(at, rest, if name.is_empty() { DropReason::NoName } else { DropReason::NoValue });
                    return call.open + comma;
                };
                let length = value_length(line, line.len() - tail.len(), later);
                let value = values::argument(tail.get(..length).unwrap_or_default());
                self.set_slot(at, body, name, Some(value), parsed);
                comma + 1 + length
            }
            command => {
                let length = rest.find(')').unwrap_or(rest.len());
                let arguments = values::argument(rest.get(..length).unwrap_or_default());
                let _ = match command {
                    CommandName::Start => self.parse_start(at, body, arguments, parsed),
                    CommandName::Restart => self.parse_restart(at, body, arguments, parsed),
                    CommandName::Clarify => {
                        self.parse_clarify(at, body, arguments, parsed);
                        ""
                    }
                    command => self.parse_without_arguments(at, body, command, arguments, parsed),
                };
                length
            }
        };
        call.open + length
    }
}

/// All command names with an opening parenthesis in a line.
fn call_starts(line: &str) -> Vec<CallStart> {
    let mut found = Vec::new();
    let mut word = 0;
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            b'(' => {
                if let Some(command) = line.get(word..at).and_then(command_names::whole_name)
                    && found.len() < MAX_PER_LINE
                {
                    found.push(CallStart { command, start: word, open: at + 1 });
                }
                word = at + 1;
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {}
            _ => word = at + 1,
        }
    }
    found
}

/// The length in bytes of the value that begins at `from`, up to the closing parenthesis of its call.
///
/// A quoted value ends at a quote followed by a parenthesis, any other value where the parentheses balance. Both hold only if
/// nothing or another call follows. A value with unbalanced parentheses ends at the last one of the line.
fn value_length(line: &str, from: usize, later: &[CallStart]) -> usize {
    let tail = line.get(from..).unwrap_or_default();
    let begins = values::argument(tail);
    let quote = begins.chars().next().filter(|c| matches!(c, '"' | '\'' | '`'));
    let ends = |close: usize| {
        let after = line.get(from + close + 1..).unwrap_or_default();
        let next = after.find(|c: char| c.is_alphanumeric() || c == '(').map(|at| from + close + 1 + at);
        next.is_none_or(|next| later.binary_search_by_key(&next, |call| call.start).is_ok())
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
    closes.take(MAX_VALUE_ENDS).find(|close| ends(*close)).or(last).unwrap_or(tail.len())
}

/// The offset of the parenthesis that closes one opened before `text`.
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
