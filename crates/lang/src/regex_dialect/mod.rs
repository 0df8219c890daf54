//! Regular expressions in the dialect of Python's `re`, with a bound on the time and memory of every search.
//!
//! Conditions (`matches`), slot mappings and validations of existing projects contain expressions written for Python.
//! [`PythonRegex::new`] compiles one; [`PythonRegex::is_match`] searches anywhere in a text. Expressions run in linear time on the
//! `regex` crate. Only what it refuses (lookaround, backreferences, possessive repeats) runs on the backtracking `fancy-regex`, which
//! stops after [`crate::limits::REGEX_BACKTRACKS`] steps and reports it.
//!
//! Known differences from Python 3.11, found by comparing 100,000 random searches: named characters (`\N{…}`) and lone surrogates are
//! refused; `\b` counts combining marks as word characters; the `a` flag changes neither `\b` nor letter case; `\B` also matches in an
//! empty text (as in Python 3.14 and later); a group whose condition refers to the group itself (`((?(1)a))`) may match differently; a
//! lookbehind may refer to a group inside itself; the compiled size is bounded.

mod escape;
mod group;
mod translate;

use std::fmt;

use crate::limits::{REGEX_BACKTRACKS, REGEX_BYTES, REGEX_CACHE_BYTES, REGEX_COMPILED_BYTES, REGEX_HAYSTACK_BYTES};

/// Flags given outside the expression, as in `/…/ims`.
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
    /// Flags from the letters `simlu`; `l` (locale) and `u` (Unicode) are accepted and change nothing. `None` for any other letter.
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

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchResult {
    /// The expression matches somewhere in the text.
    Match,
    /// It matches nowhere.
    NoMatch,
    /// The search stopped at the backtracking limit; whether the text matches is unknown.
    BacktrackLimit,
    /// The text is longer than [`REGEX_HAYSTACK_BYTES`] and was not searched.
    TooLong,
}

impl MatchResult {
    /// Whether a match was found. A search that stopped at a limit counts as no match.
    pub fn is_match(self) -> bool {
        self == Self::Match
    }

    /// Why the search stopped without a result, for the trace; `None` if it has one.
    pub fn error(self) -> Option<String> {
        match self {
            Self::Match | Self::NoMatch => None,
            Self::BacktrackLimit => Some(format!(
                "the search was given up after {REGEX_BACKTRACKS} backtracking steps; \
                 make the repeats of the regular expression less ambiguous"
            )),
            Self::TooLong => Some(format!(
                "the text is longer than {REGEX_HAYSTACK_BYTES} bytes, the limit for a search by regular expression"
            )),
        }
    }
}

/// Why an expression cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PythonRegexError {
    /// Longer than [`REGEX_BYTES`].
    #[error("the regular expression has {bytes} bytes; at most {REGEX_BYTES} are allowed")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// Its compiled form is larger than [`REGEX_COMPILED_BYTES`].
    #[error("the regular expression compiles to more than {REGEX_COMPILED_BYTES} bytes; use smaller repeat counts")]
    TooLarge,
    /// Python's syntax does not have this form, or it is not supported here.
    #[error("the regular expression is wrong at character {offset}: {message}")]
    Syntax {
        /// The position, in characters from the start of the expression.
        offset: usize,
        /// What is wrong there.
        message: String,
    },
    /// Both matchers refused the translated expression.
    #[error("the regular expression cannot be used: {message}")]
    Refused {
        /// The message of the backtracking matcher.
        message: String,
    },
}

/// A compiled regular expression in Python's dialect. Cloning is cheap.
#[derive(Clone)]
pub struct PythonRegex {
    source: Box<str>,
    flags: Flags,
    matcher: Matcher,
    /// The matcher for texts that end with a line break, if the expression has a `$`: Python's `$` also matches before a final line
    /// break, which needs lookahead. All other texts use the linear matcher.
    before_final_break: Option<Matcher>,
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
    /// [`PythonRegexError`] for what Python refuses too, for what is not supported, and for what exceeds a limit.
    pub fn new(text: &str, flags: Flags) -> Result<Self, PythonRegexError> {
        if text.len() > REGEX_BYTES {
            return Err(PythonRegexError::TooLong { bytes: text.len() });
        }
        let plain = translate::translate(text, flags, translate::Dollar::AtEnd)?;
        let before_final_break = if plain.has_dollar {
            let other = translate::translate(text, flags, translate::Dollar::AtEndOrBeforeFinalBreak)?;
            Some(Matcher::compile(&other.text)?)
        } else {
            None
        };
        Ok(Self { source: text.into(), flags, matcher: Matcher::compile(&plain.text)?, before_final_break })
    }

    /// Searches anywhere in `haystack`.
    pub fn is_match(&self, haystack: &str) -> MatchResult {
        if haystack.len() > REGEX_HAYSTACK_BYTES {
            return MatchResult::TooLong;
        }
        match &self.before_final_break {
            Some(matcher) if haystack.ends_with('\n') => matcher.search(haystack),
            _ => self.matcher.search(haystack),
        }
    }

    /// The expression as written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The flags it was compiled with.
    pub fn flags(&self) -> Flags {
        self.flags
    }

    /// Whether every search runs in linear time; if not, a search may end with [`MatchResult::BacktrackLimit`].
    pub fn is_linear(&self) -> bool {
        matches!(self.matcher, Matcher::Linear(_))
    }
}

impl Matcher {
    fn compile(translated: &str) -> Result<Self, PythonRegexError> {
        let linear = regex::RegexBuilder::new(translated)
            .size_limit(REGEX_COMPILED_BYTES)
            .dfa_size_limit(REGEX_CACHE_BYTES)
            .build();
        match linear {
            Ok(regex) => return Ok(Self::Linear(regex)),
            Err(regex::Error::CompiledTooBig(_)) => return Err(PythonRegexError::TooLarge),
            Err(_) => {}
        }
        fancy_regex::RegexBuilder::new(translated)
            .backtrack_limit(REGEX_BACKTRACKS)
            .delegate_size_limit(REGEX_COMPILED_BYTES)
            .delegate_dfa_size_limit(REGEX_CACHE_BYTES)
            .build()
            .map(Self::Backtracking)
            .map_err(|error| if is_too_large(&error) { PythonRegexError::TooLarge } else { refused(&error) })
    }

    fn search(&self, haystack: &str) -> MatchResult {
        match self {
            Self::Linear(regex) if regex.is_match(haystack) => MatchResult::Match,
            Self::Linear(_) => MatchResult::NoMatch,
            Self::Backtracking(regex) => match regex.is_match(haystack) {
                Ok(true) => MatchResult::Match,
                Ok(false) => MatchResult::NoMatch,
                // Both run-time errors, too many steps and stack overflow, mean that the search took too long.
                Err(_) => MatchResult::BacktrackLimit,
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
        write!(f, "PythonRegex({:?}, {:?})", self.source, self.flags)
    }
}

#[cfg(test)]
mod tests;
