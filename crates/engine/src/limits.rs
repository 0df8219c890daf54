//! Every size, count and depth limit of loading and of the dialogue with its default, in one table.

/// Conversation: entries of the history that the fold keeps for prompts.
pub const HISTORY_ITEMS: usize = 48;
/// Conversation: replies to one message that are kept whole, for saying them again; the oldest are forgotten first.
pub const SAID_REPLIES: usize = 16;
/// Turn: steps that flows may walk before the assistant must listen; the same number as in the CALM format.
pub const FLOW_STEPS: usize = 250;
/// Turn: frames on the stack, up to which a flow may come onto it.
pub const STACK_FRAMES: usize = 64;
/// Turn: frames on the stack beyond those, for questions, patterns and agents: what is asked or said about the flow on top always
/// has a place.
pub const STACK_HEADROOM: usize = 32;
/// Turn: actions, tool calls of steps and agent tasks; a flow that runs in circles through them ends here.
pub const TURN_ACTS: u32 = 250;
/// Turn: changes of slots that can be taken back; more than any turn makes that does not run in circles.
pub const UNDO_SLOTS: usize = 256;
/// Conversation: actions and tool calls that a frame on the stack remembers, so that a correction need not run them again;
/// the oldest are forgotten first.
pub const RAN_STEPS: usize = 32;
/// Conversation: reminders that wait; a further one is left out.
pub const REMINDERS: usize = 32;
/// Turn: characters of a tool's answer that the event about it keeps.
pub const TOOL_SUMMARY: usize = 500;
/// Message: characters that are stored and understood; a longer one is answered with "too long".
pub const MESSAGE_TEXT: usize = 4_000;
/// Message: characters shown to the command generator when the project sets none.
pub const MESSAGE_CHARACTERS: usize = 420;
/// Message: `=` signs in one `/SetSlots(…)`.
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
pub const YAML_ALIAS_NODES: usize = 200_000;

// ---- flow analysis ----

/// Cases of slots gone through for one question about conditions; a slot that would pass it counts as unknown, so that less is
/// found and nothing wrongly. Sixteen booleans, or three choices of sixteen values.
pub const ANALYSIS_CASES: u64 = 4_096;
/// Cases of one slot: the literals it is compared with, what lies between them, and null. They are bits of a word.
pub const ANALYSIS_CELLS: usize = 64;
/// Visits to each step, on average over a flow, until the facts about slots are settled; past it everything counts as possible.
pub const ANALYSIS_VISITS: usize = 32;
/// Parts of a way through a flow that a finding shows; the middle of a longer one is left out.
pub const PATH_STEPS: usize = 14;
/// Characters of one line of text in a picture of flows.
pub const PICTURE_LINE: usize = 38;
/// Lines of one text in a picture of flows.
pub const PICTURE_LINES: usize = 3;

/// Confirmation: characters of one argument of a call that the user is shown whole; of a longer one they see both ends.
pub const CONFIRM_VALUE: usize = 400;
