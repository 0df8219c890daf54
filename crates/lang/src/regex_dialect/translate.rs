//! Translates an expression in Python's dialect into one that both matchers interpret alike.
//!
//! The translator implements Python's whole grammar, so that it refuses what Python refuses (a repeat of a repeat, global flags not at
//! the start, a lookbehind of varying width) even where a matcher would accept it. In the output, groups have no names, flags other
//! than `i` are resolved, and every literal that is not a letter or digit is written as a code point.

use super::{
    Flags, PythonRegexError,
    escape::{Escaped, push_literal},
    group::Group,
};
use crate::limits::REGEX_DEPTH;

/// The meaning of `$` outside multi-line mode.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dollar {
    /// Only the very end; correct for every text that does not end with a line break.
    AtEnd,
    /// Also before a final line break, as in Python; needs lookahead.
    AtEndOrBeforeFinalBreak,
}

/// A translated expression.
pub(super) struct Translation {
    pub(super) text: String,
    /// Whether it has a `$` outside multi-line mode.
    pub(super) has_dollar: bool,
}

/// The smallest and largest number of characters that a part matches.
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

/// The flags that apply at the current position.
#[derive(Clone, Copy)]
pub(super) struct ActiveFlags {
    pub(super) ignore_case: bool,
    pub(super) multi_line: bool,
    pub(super) dot_all: bool,
    pub(super) verbose: bool,
    pub(super) ascii: bool,
}

/// What a following quantifier would apply to.
#[derive(Clone, Copy)]
pub(super) enum PreviousItem {
    Nothing,
    Anchor,
    Repeat,
    /// The output from this byte on, which matches this width.
    Plain(usize, Width),
}

/// The state of one translation.
pub(super) struct Translator<'t> {
    rest: std::str::Chars<'t>,
    offset: usize,
    dollar: Dollar,
    has_dollar: bool,
    pub(super) groups: Vec<Group>,
    /// The highest group number that a conditional `(?(1)…)` refers to; the group may follow later.
    pub(super) highest_condition: usize,
    pub(super) depth: usize,
    pub(super) flags: ActiveFlags,
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
        highest_condition: 0,
        depth: 0,
        flags: ActiveFlags { ignore_case, multi_line, dot_all, verbose: false, ascii: false },
        out: String::new(),
    };
    translator.alternatives(true)?;
    if translator.peek().is_some() {
        return Err(translator.syntax_error("this `)` has no matching `(`"));
    }
    if translator.highest_condition > translator.groups.len() {
        return Err(translator.syntax_error("a conditional refers to a group that does not exist"));
    }
    // Global flags apply to the whole expression and are allowed only at its start.
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

    pub(super) fn syntax_error(&self, message: &str) -> PythonRegexError {
        PythonRegexError::Syntax { offset: self.offset.saturating_sub(1), message: message.to_owned() }
    }

    pub(super) fn alternatives(&mut self, outermost: bool) -> Result<Width, PythonRegexError> {
        self.enter_level()?;
        let mut width = self.sequence(outermost)?;
        while self.eat('|') {
            self.out.push('|');
            width = width.or(self.sequence(false)?);
        }
        self.depth -= 1;
        Ok(width)
    }

    pub(super) fn enter_level(&mut self) -> Result<(), PythonRegexError> {
        self.depth += 1;
        if self.depth > REGEX_DEPTH { Err(self.syntax_error("groups are nested too deeply")) } else { Ok(()) }
    }

    /// Items up to `|`, `)` or the end. `first`: global flags are still allowed.
    pub(super) fn sequence(&mut self, first: bool) -> Result<Width, PythonRegexError> {
        let mut width = Width::ZERO;
        let mut last = PreviousItem::Nothing;
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
                    Escaped::Plain(item) => PreviousItem::Plain(start, item),
                    Escaped::Anchor => PreviousItem::Anchor,
                },
                '[' => PreviousItem::Plain(start, self.class()?),
                '.' => {
                    self.out.push_str(if self.flags.dot_all { "(?s:.)" } else { r"[^\n]" });
                    PreviousItem::Plain(start, Width::ONE)
                }
                '^' => {
                    self.out.push_str(if self.flags.multi_line { "(?m:^)" } else { r"\A" });
                    PreviousItem::Anchor
                }
                '$' => {
                    self.dollar();
                    PreviousItem::Anchor
                }
                '(' => match self.group(first && !started)? {
                    // A quantifier after a comment or flags applies to the item before them.
                    None => continue,
                    Some(last) => last,
                },
                c => {
                    push_literal(&mut self.out, c);
                    PreviousItem::Plain(start, Width::ONE)
                }
            };
            started = true;
            if let PreviousItem::Plain(_, item) = last {
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
            (false, Dollar::AtEndOrBeforeFinalBreak) => r"(?=\n?\z)",
        });
        self.has_dollar |= !self.flags.multi_line;
    }

    /// The bounds of a quantifier; `None` if a `{` is a literal brace.
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
            _ => Err(self.syntax_error("the bounds of this repeat are out of order or too large")),
        }
    }

    fn repeat(
        &mut self,
        last: &mut PreviousItem,
        before: Width,
        low: u64,
        high: Option<u64>,
    ) -> Result<Width, PythonRegexError> {
        let (start, item) = match *last {
            PreviousItem::Nothing | PreviousItem::Anchor => return Err(self.syntax_error("there is nothing to repeat")),
            PreviousItem::Repeat => return Err(self.syntax_error("a repeat cannot be repeated")),
            PreviousItem::Plain(start, item) => (start, item),
        };
        let lazy = self.eat('?');
        let possessive = !lazy && self.eat('+');
        if item.max == 0 {
            // The matchers refuse to repeat a lookaround, and repeating it has no effect: it is required if the minimum is at least
            // one, optional otherwise.
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
        *last = PreviousItem::Repeat;
        let without = Width { min: before.min.saturating_sub(item.min), max: before.max.saturating_sub(item.max) };
        Ok(without.then(item.times(low, high.unwrap_or(u64::MAX))))
    }
}
