//! Translates an expression of Python's dialect into one that both matchers understand in the same sense.
//!
//! The translator knows the whole grammar, so that it refuses what Python refuses (a repeat of a repeat, flags in the middle,
//! a lookbehind of varying width) even where a matcher would take it. Groups lose their names, switches other than `i` are
//! resolved on the spot, and every literal that is not a letter or digit is written as a number.

use super::{
    Flags, PythonRegexError,
    escape::{Escaped, push_literal},
    group::Group,
};
use crate::limits::PATTERN_DEPTH;

/// How `$` is read outside multi-line mode.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dollar {
    /// Only at the very end: right for every text that does not end with a line break.
    AtEnd,
    /// Python's own reading, which needs lookahead.
    AtEndOrBeforeLastBreak,
}

/// A translated expression.
pub(super) struct Translation {
    pub(super) text: String,
    /// Whether a `$` stands outside multi-line mode.
    pub(super) has_dollar: bool,
}

/// How many characters a part takes, at least and at most.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Width {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Width {
    pub(super) const ZERO: Self = Self { min: 0, max: 0 };
    pub(super) const ONE: Self = Self { min: 1, max: 1 };

    fn then(self, next: Self) -> Self {
        Self { min: self.min.saturating_add(next.min), max: self.max.saturating_add(next.max) }
    }

    pub(super) fn or(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    fn times(self, low: u64, high: u64) -> Self {
        Self { min: self.min.saturating_mul(low), max: self.max.saturating_mul(high) }
    }
}

/// The switches in force at a place.
#[derive(Clone, Copy)]
pub(super) struct Modes {
    pub(super) ignore_case: bool,
    pub(super) multi_line: bool,
    pub(super) dot_all: bool,
    pub(super) verbose: bool,
    pub(super) ascii: bool,
}

/// What was written last, as far as a repeat after it cares.
#[derive(Clone, Copy)]
pub(super) enum Last {
    Nothing,
    Anchor,
    Repeat,
    /// Text from this place in the output on, of this width.
    Plain(usize, Width),
}

/// The state of one translation.
pub(super) struct Translator<'t> {
    rest: std::str::Chars<'t>,
    offset: usize,
    dollar: Dollar,
    has_dollar: bool,
    pub(super) groups: Vec<Group>,
    /// The highest group asked for by a `(?(1)…)` before it was seen.
    pub(super) highest_asked: usize,
    pub(super) depth: usize,
    pub(super) flags: Modes,
    pub(super) out: String,
}

/// Translates `text`.
pub(super) fn translate(text: &str, flags: Flags, dollar: Dollar) -> Result<Translation, PythonRegexError> {
    let Flags { ignore_case, multi_line, dot_all } = flags;
    let mut translator = Translator {
        rest: text.chars(),
        offset: 0,
        dollar,
        has_dollar: false,
        groups: Vec::new(),
        highest_asked: 0,
        depth: 0,
        flags: Modes { ignore_case, multi_line, dot_all, verbose: false, ascii: false },
        out: String::new(),
    };
    translator.alternatives(true)?;
    if translator.peek().is_some() {
        return Err(translator.wrong("this `)` closes nothing"));
    }
    if translator.highest_asked > translator.groups.len() {
        return Err(translator.wrong("a condition asks for a group that does not exist"));
    }
    // Switches at the start hold for the whole expression, and only there may they stand.
    let text = if translator.flags.ignore_case { format!("(?i:{})", translator.out) } else { translator.out };
    Ok(Translation { text, has_dollar: translator.has_dollar })
}

impl Translator<'_> {
    pub(super) fn peek(&self) -> Option<char> {
        self.rest.clone().next()
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let c = self.rest.next();
        self.offset += usize::from(c.is_some());
        c
    }

    pub(super) fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.next();
        }
        found
    }

    pub(super) fn wrong(&self, message: &str) -> PythonRegexError {
        PythonRegexError::Syntax { offset: self.offset.saturating_sub(1), message: message.to_owned() }
    }

    pub(super) fn alternatives(&mut self, outermost: bool) -> Result<Width, PythonRegexError> {
        self.deeper()?;
        let mut width = self.sequence(outermost)?;
        while self.eat('|') {
            self.out.push('|');
            width = width.or(self.sequence(false)?);
        }
        self.depth -= 1;
        Ok(width)
    }

    pub(super) fn deeper(&mut self) -> Result<(), PythonRegexError> {
        self.depth += 1;
        if self.depth > PATTERN_DEPTH { Err(self.wrong("groups are nested too deeply")) } else { Ok(()) }
    }

    /// Items up to `|`, `)` or the end. `first` says that switches for the whole expression may still come.
    pub(super) fn sequence(&mut self, first: bool) -> Result<Width, PythonRegexError> {
        let mut width = Width::ZERO;
        let mut last = Last::Nothing;
        let mut started = false;
        loop {
            if self.flags.verbose {
                self.skip_verbose();
            }
            let Some(c) = self.peek().filter(|c| !matches!(c, '|' | ')')) else { break };
            self.next();
            let start = self.out.len();
            if let '*' | '+' | '?' | '{' = c
                && let Some((low, high)) = self.repeat_bounds(c)?
            {
                width = self.repeat(&mut last, width, low, high)?;
                continue;
            }
            last = match c {
                '\\' => match self.escape()? {
                    Escaped::Plain(item) => Last::Plain(start, item),
                    Escaped::Anchor => Last::Anchor,
                },
                '[' => Last::Plain(start, self.class()?),
                '.' => {
                    self.out.push_str(if self.flags.dot_all { "(?s:.)" } else { r"[^\n]" });
                    Last::Plain(start, Width::ONE)
                }
                '^' => {
                    self.out.push_str(if self.flags.multi_line { "(?m:^)" } else { r"\A" });
                    Last::Anchor
                }
                '$' => {
                    self.dollar();
                    Last::Anchor
                }
                '(' => match self.group(first && !started)? {
                    // Comments and switches leave what stood before them open to a repeat.
                    None => continue,
                    Some(last) => last,
                },
                c => {
                    push_literal(&mut self.out, c);
                    Last::Plain(start, Width::ONE)
                }
            };
            started = true;
            if let Last::Plain(_, item) = last {
                width = width.then(item);
            }
        }
        Ok(width)
    }

    fn skip_verbose(&mut self) {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c' => _ = self.next(),
                '#' => while self.next().is_some_and(|c| c != '\n') {},
                _ => break,
            }
        }
    }

    fn dollar(&mut self) {
        self.out.push_str(match (self.flags.multi_line, self.dollar) {
            (true, _) => "(?m:$)",
            (false, Dollar::AtEnd) => r"\z",
            (false, Dollar::AtEndOrBeforeLastBreak) => r"(?=\n?\z)",
        });
        self.has_dollar |= !self.flags.multi_line;
    }

    /// The bounds of a repeat; `None` when a `{` is only a brace.
    fn repeat_bounds(&mut self, c: char) -> Result<Option<(u64, Option<u64>)>, PythonRegexError> {
        match c {
            '*' => return Ok(Some((0, None))),
            '+' => return Ok(Some((1, None))),
            '?' => return Ok(Some((0, Some(1)))),
            _ => {}
        }
        let inside = self.rest.as_str().split('}').next().unwrap_or_default();
        let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
        let (low, high) = inside.split_once(',').unwrap_or((inside, inside));
        if inside.len() == self.rest.as_str().len() || inside.is_empty() || !digits(low) || !digits(high) {
            return Ok(None);
        }
        let number = |text: &str| text.parse::<u32>().map(u64::from);
        let bounds = (
            if low.is_empty() { Ok(0) } else { number(low) },
            if high.is_empty() { Ok(None) } else { number(high).map(Some) },
        );
        for _ in 0..=inside.len() {
            self.next();
        }
        match bounds {
            (Ok(low), Ok(high)) if high.is_none_or(|high| low <= high) => Ok(Some((low, high))),
            _ => Err(self.wrong("the bounds of this repeat are out of order or too large")),
        }
    }

    fn repeat(
        &mut self,
        last: &mut Last,
        before: Width,
        low: u64,
        high: Option<u64>,
    ) -> Result<Width, PythonRegexError> {
        let (start, item) = match *last {
            Last::Nothing | Last::Anchor => return Err(self.wrong("there is nothing to repeat")),
            Last::Repeat => return Err(self.wrong("a repeat cannot be repeated")),
            Last::Plain(start, item) => (start, item),
        };
        let lazy = self.eat('?');
        let possessive = !lazy && self.eat('+');
        if item.max == 0 {
            // A look, or a group of looks: the matchers refuse to repeat what takes no text, and it would be pointless.
            // Needed if it must hold once, free otherwise.
            if low == 0 {
                self.out.insert_str(start, "(?:");
                self.out.push_str("|)");
            }
        } else {
            self.out.push_str(&match high {
                Some(high) => format!("{{{low},{high}}}"),
                None => format!("{{{low},}}"),
            });
            if lazy {
                self.out.push('?');
            }
            if possessive {
                self.out.insert_str(start, "(?>");
                self.out.push(')');
            }
        }
        *last = Last::Repeat;
        let without = Width { min: before.min.saturating_sub(item.min), max: before.max.saturating_sub(item.max) };
        Ok(without.then(item.times(low, high.unwrap_or(u64::MAX))))
    }
}
