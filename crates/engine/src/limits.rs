//! Every size, count and depth limit of loading and of the dialogue with its default, in one table.

/// Conversation: entries of the history that the fold keeps for prompts.
pub const HISTORY_ITEMS: usize = 48;
/// Turn: steps that flows may walk before the assistant must listen; the same number as in the CALM format (dialogue.md 5.3).
pub const FLOW_STEPS: usize = 250;
/// Turn: frames on the stack.
pub const STACK_FRAMES: usize = 64;
/// Message: characters shown to the command generator when the project sets none (dialogue.md 4.1).
pub const MESSAGE_CHARACTERS: usize = 420;
/// Message: `=` signs in one `/SetSlots(…)` (dialogue.md 3.5).
pub const PAYLOAD_PAIRS: usize = 10;
/// YAML: bytes of one file.
pub const YAML_FILE: usize = 16 * 1024 * 1024;
/// YAML: nodes of one file.
pub const YAML_NODES: usize = 2_000_000;
/// YAML: nesting.
pub const YAML_DEPTH: usize = 64;
/// Project: files read.
pub const PROJECT_FILES: usize = 20_000;
/// YAML: aliases (`*name`) in one file.
pub const YAML_ALIASES: usize = 1_000;
/// YAML: values that aliases may repeat in one file, all together.
pub const YAML_ALIAS_EVENTS: usize = 200_000;

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
