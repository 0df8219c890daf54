//! Sizes, counts and depths of templates, conditions and regular expressions.

// ---- templates ----

/// Instructions that one rendering may execute: ten times what a prompt over a hundred flows needs.
pub const TEMPLATE_FUEL: u64 = 100_000;
/// Nesting of loops, blocks and macro calls in one rendering.
pub const TEMPLATE_RECURSION: usize = 50;
/// Bytes that one rendering may produce.
pub const TEMPLATE_OUTPUT_BYTES: usize = 256 * 1024;
/// Bytes of JSON that the `fromjson` filter reads.
pub const TEMPLATE_JSON_BYTES: usize = 4 * 1024 * 1024;
/// Largest width, in characters, that `ljust`, `rjust`, `center` and `zfill` accept in a template.
pub const TEMPLATE_PAD_CHARS: usize = 10_000;
/// Levels of nesting in `custom`, `buttons` and `elements` of a response in which slots are interpolated.
pub const RESPONSE_DEPTH: usize = 64;

// ---- conditions and regular expressions ----

/// Longest regular expression, in bytes of UTF-8. A longer one is an error when the project is loaded.
pub const REGEX_BYTES: usize = 1024;
/// Deepest nesting of groups in a regular expression. The translator recurses into groups on the call stack.
pub const REGEX_DEPTH: usize = 64;
/// Largest compiled regular expression, in bytes. One `\w` takes about 50 KiB because it covers every script: 1 MiB would reject
/// `\w{1,30}`, and an ordinary expression for e-mail addresses with counted repeats takes 6 MiB (measured 2026-11).
pub const REGEX_COMPILED_BYTES: usize = 8 << 20;
/// Largest cache of one linear-time search, in bytes. A search that fills it continues more slowly.
pub const REGEX_CACHE_BYTES: usize = 1 << 20;
/// Longest text that a regular expression searches, in bytes. A longer text counts as "no match", and the trace reports it.
pub const REGEX_HAYSTACK_BYTES: usize = 64 << 10;
/// Backtracking steps in one search of an expression that needs backtracking. One start position costs at least one step, so this is
/// well above [`REGEX_HAYSTACK_BYTES`]. It is also the default of the `fancy-regex` crate and takes some tens of milliseconds.
pub const REGEX_BACKTRACKS: usize = 1_000_000;

/// Longest condition, in bytes, both as written and after its template is rendered.
pub const CONDITION_BYTES: usize = 16 << 10;
/// Deepest nesting of parentheses, sets and `not` in a condition; chains of `and` and `or` do not count.
pub const CONDITION_DEPTH: usize = 32;
