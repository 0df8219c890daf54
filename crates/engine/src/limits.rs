//! limits (being built).

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
