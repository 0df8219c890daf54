//! Regular expressions in Python's dialect, with bounds on everything.
//!
//! * What for: conditions (`matches`), slot mappings and validations hold expressions written for Python's `re`.
//! * Entry: [`PythonRegex::new`], then [`PythonRegex::is_match`], which searches anywhere in the text.
//! * Must never: run without a bound. Linear-time matching comes first; only what it refuses (lookaround, references back
//!   to groups, possessive repeats) goes to a backtracking matcher, which stops after
//!   [`crate::limits::PATTERN_BACKTRACKS`] steps and says so.
//!
//! Known differences from Python 3.11, found by comparing 100,000 random searches: named characters (`\N{…}`) and lone
//! surrogates are refused; `\b` counts combining marks as parts of a word; the `a` flag leaves `\b` and letter case as they
//! are; `\B` also matches in an empty text (as it does from Python 3.14 on); a group that asks about itself (`((?(1)a))`)
//! may be answered differently; a lookbehind may refer to a group of its own; compiled size is bounded.

mod dialect;
mod escape;
mod group;

use std::fmt;

use crate::limits::{PATTERN_BACKTRACKS, PATTERN_CACHE, PATTERN_COMPILED, PATTERN_HAYSTACK, PATTERN_TEXT};

/// Switches that stand outside the expression, as in `/…/ims`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags {
    /// `i`: letters match in either case.
    pub ignore_case: bool,
    /// `m`: `^` and `$` also match at line breaks.
    pub multi_line: bool,
    /// `s`: `.` also matches a line break.
    pub dot_all: bool,
}

impl Flags {
    /// Reads letters out of `simlu`; `l` (locale) and `u` (Unicode) are accepted and change nothing. `None` for any other.
    pub fn from_letters(letters: &str) -> Option<Self> {
        let mut flags = Self::default();
        for letter in letters.chars() {
            match letter {
                'i' => flags.ignore_case = true,
                'm' => flags.multi_line = true,
                's' => flags.dot_all = true,
                'l' | 'u' => {}
                _ => return None,
            }
        }
        Some(flags)
    }
}

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchResult {
    /// The expression matches somewhere in the text.
    Match,
    /// It matches nowhere.
    NoMatch,
    /// The search was given up at the backtrack limit: nobody knows.
    TooHard,
    /// The text was longer than the bound and was not searched.
    TooLong,
}

impl MatchResult {
    /// Whether a match was found; both ways of giving up count as no.
    pub fn is_match(self) -> bool {
        self == Self::Match
    }

    /// Why there is no answer, for the trace; `None` where there is one.
    pub fn trouble(self) -> Option<String> {
        match self {
            Self::Match | Self::NoMatch => None,
            Self::TooHard => Some(format!(
                "the regular expression was given up after {PATTERN_BACKTRACKS} steps back; make its repeats less ambiguous"
            )),
            Self::TooLong => Some(format!(
                "the text is longer than {PATTERN_HAYSTACK} bytes, the most a regular expression searches"
            )),
        }
    }
}

/// Why an expression cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PythonRegexError {
    /// Longer than [`PATTERN_TEXT`].
    #[error("the regular expression has {bytes} bytes; at most {PATTERN_TEXT} are allowed")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// Its compiled form passes [`PATTERN_COMPILED`].
    #[error("the regular expression compiles to more than {PATTERN_COMPILED} bytes; use smaller repeat counts")]
    TooLarge,
    /// Python's dialect does not have this form, or it is not supported here.
    #[error("the regular expression is wrong at character {offset}: {message}")]
    Syntax {
        /// Where, in characters from the start of the expression.
        offset: usize,
        /// What is wrong there.
        message: String,
    },
    /// The translated expression was refused by both matchers.
    #[error("the regular expression cannot be used: {message}")]
    Refused {
        /// The matcher's words.
        message: String,
    },
}

/// A compiled regular expression of Python's dialect. Cloning is cheap.
#[derive(Clone)]
pub struct PythonRegex {
    source: Box<str>,
    flags: Flags,
    matcher: Matcher,
    /// Used for texts that end with a line break when the expression has a `$`: Python's `$` also matches before that
    /// last line break, which costs lookahead. All other texts keep the linear matcher.
    before_last_break: Option<Matcher>,
}

#[derive(Clone)]
enum Matcher {
    Linear(regex::Regex),
    Backtracking(fancy_regex::Regex),
}

impl PythonRegex {
    /// Translates and compiles `text`.
    ///
    /// # Errors
    /// [`PythonRegexError`], for what Python would refuse as well and for what passes a bound.
    pub fn new(text: &str, flags: Flags) -> Result<Self, PythonRegexError> {
        if text.len() > PATTERN_TEXT {
            return Err(PythonRegexError::TooLong { bytes: text.len() });
        }
        let plain = dialect::translate(text, flags, dialect::Dollar::AtEnd)?;
        let before_last_break = if plain.has_dollar {
            let other = dialect::translate(text, flags, dialect::Dollar::AtEndOrBeforeLastBreak)?;
            Some(Matcher::compile(&other.text)?)
        } else {
            None
        };
        Ok(Self { source: text.into(), flags, matcher: Matcher::compile(&plain.text)?, before_last_break })
    }

    /// Searches anywhere in `hay`.
    pub fn is_match(&self, hay: &str) -> MatchResult {
        if hay.len() > PATTERN_HAYSTACK {
            return MatchResult::TooLong;
        }
        match &self.before_last_break {
            Some(matcher) if hay.ends_with('\n') => matcher.search(hay),
            _ => self.matcher.search(hay),
        }
    }

    /// The expression as it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The switches it was compiled with.
    pub fn flags(&self) -> Flags {
        self.flags
    }

    /// Whether it runs in linear time; if not, a search may end in [`MatchResult::TooHard`].
    pub fn is_linear(&self) -> bool {
        matches!(self.matcher, Matcher::Linear(_))
    }
}

impl Matcher {
    fn compile(translated: &str) -> Result<Self, PythonRegexError> {
        let linear =
            regex::RegexBuilder::new(translated).size_limit(PATTERN_COMPILED).dfa_size_limit(PATTERN_CACHE).build();
        match linear {
            Ok(regex) => return Ok(Self::Linear(regex)),
            Err(regex::Error::CompiledTooBig(_)) => return Err(PythonRegexError::TooLarge),
            Err(_) => {}
        }
        fancy_regex::RegexBuilder::new(translated)
            .backtrack_limit(PATTERN_BACKTRACKS)
            .delegate_size_limit(PATTERN_COMPILED)
            .delegate_dfa_size_limit(PATTERN_CACHE)
            .build()
            .map(Self::Backtracking)
            .map_err(|error| if is_too_large(&error) { PythonRegexError::TooLarge } else { refused(&error) })
    }

    fn search(&self, hay: &str) -> MatchResult {
        match self {
            Self::Linear(regex) if regex.is_match(hay) => MatchResult::Match,
            Self::Linear(_) => MatchResult::NoMatch,
            Self::Backtracking(regex) => match regex.is_match(hay) {
                Ok(true) => MatchResult::Match,
                Ok(false) => MatchResult::NoMatch,
                // The two run-time errors, steps and stack, are both ways of having looked for too long.
                Err(_) => MatchResult::TooHard,
            },
        }
    }
}

fn is_too_large(error: &fancy_regex::Error) -> bool {
    let fancy_regex::Error::CompileError(error) = error else { return false };
    matches!(&**error, fancy_regex::CompileError::InnerError(inner) if inner.size_limit().is_some())
}

fn refused(error: &fancy_regex::Error) -> PythonRegexError {
    PythonRegexError::Refused { message: error.to_string() }
}

impl PartialEq for PythonRegex {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source && self.flags == other.flags
    }
}

impl Eq for PythonRegex {}

impl fmt::Debug for PythonRegex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({:?}, {:?})", self.source, self.flags)
    }
}

#[cfg(test)]
mod tests;
