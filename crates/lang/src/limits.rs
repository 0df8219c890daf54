//! Sizes, counts and depths of templates, conditions and regular expressions.

// ---- templates ----

/// Instructions one rendering may execute: ten times what a prompt over a hundred flows needs.
pub const TEMPLATE_FUEL: u64 = 100_000;
/// Nesting of loops, blocks and macro calls inside one rendering.
pub const TEMPLATE_RECURSION: usize = 50;
/// Bytes one rendering may produce.
pub const TEMPLATE_OUTPUT_BYTES: usize = 256 * 1024;
/// Bytes of JSON that the `fromjson` filter reads.
pub const TEMPLATE_JSON_BYTES: usize = 4 * 1024 * 1024;
/// Characters of the widest text that `ljust`, `rjust`, `center` and `zfill` make in a template.
pub const TEMPLATE_PAD_CHARS: usize = 10_000;
/// Levels of nesting that are filled inside the `custom`, `buttons` and `elements` of a response.
pub const RESPONSE_DEPTH: usize = 64;

// ---- conditions and regular expressions ----

/// Longest regular expression, in bytes of UTF-8. Longer ones are refused when the project is loaded.
pub const PATTERN_TEXT: usize = 1024;
/// Deepest nesting of groups in a regular expression; the translator walks groups on the call stack.
pub const PATTERN_DEPTH: usize = 64;
/// Largest compiled regular expression, in bytes. One `\w` takes about 50 KiB, since it knows every script: 1 MiB would refuse
/// `\w{1,30}`, and an ordinary expression for mail addresses with counted repeats takes 6 MiB (measured 2026-11).
pub const PATTERN_COMPILED: usize = 8 << 20;
/// Largest cache of one search in linear time, in bytes; past it the search goes on more slowly.
pub const PATTERN_CACHE: usize = 1 << 20;
/// Longest text a regular expression is searched in, in bytes. Longer texts count as "not matched", and the trace says so.
pub const PATTERN_HAYSTACK: usize = 64 << 10;
/// Most steps back in one search, for expressions that need backtracking. One start position costs at least one step, so
/// this is well above [`PATTERN_HAYSTACK`]; it is also the default of the library in use and takes some tens of milliseconds.
pub const PATTERN_BACKTRACKS: usize = 1_000_000;

/// Longest condition, in bytes, as written and again after its template is rendered.
pub const CONDITION_TEXT: usize = 16 << 10;
/// Deepest nesting of parentheses, sets and `not` in a condition; chains of `and` and `or` do not count.
pub const CONDITION_DEPTH: usize = 32;
