//! The limits of loading, analysis and the dialogue engine on sizes, counts and depths, with their values.

/// Conversation: entries of the history that are kept for prompts.
pub const HISTORY_ITEMS: usize = 48;
/// Conversation: complete replies kept since a user message, for repeating them; the oldest are dropped first.
pub const RECENT_REPLIES: usize = 16;
/// Turn: steps that flows may execute before the assistant must listen; the same number as in the CALM format.
pub const FLOW_STEPS: usize = 250;
/// Turn: frames on the stack up to which a flow may be pushed.
pub const STACK_FRAMES: usize = 64;
/// Turn: frames beyond [`STACK_FRAMES`] for collect steps, patterns and agents, so that the flow on top can always ask
/// and report errors.
pub const STACK_HEADROOM: usize = 32;
/// Turn: actions, tool calls of steps and agent runs that the engine requests. A safeguard of the engine alone: the runtime ends a turn
/// earlier, at its own `TURN_EFFECTS`.
pub const ENGINE_TURN_EFFECTS: u32 = 250;
/// Turn: slot changes that can be undone; a turn that makes more is in a loop.
pub const UNDO_SLOTS: usize = 256;
/// Conversation: completed actions and tool calls that a frame remembers, so that a correction need not run them again;
/// the oldest are dropped first.
pub const COMPLETED_STEPS: usize = 32;
/// Conversation: pending reminders; further ones are discarded.
pub const REMINDERS: usize = 32;
/// Tool call of a flow: how often it asks the user for one slot (MCP elicitation): once, and twice more for values that do not fit.
pub const TOOL_QUESTIONS: u32 = 3;
/// Turn: characters of a tool's result that the event about it keeps.
pub const TOOL_SUMMARY: usize = 500;
/// Message: characters that are stored and processed; a longer message is answered with "too long".
pub const MESSAGE_TEXT: usize = 4_000;
/// Message: characters passed to the command generator when the project sets no limit.
pub const MESSAGE_CHARACTERS: usize = 420;
/// Message: `=` signs in one `/SetSlots(…)`.
pub const PAYLOAD_PAIRS: usize = 10;
/// Secrets: the characters from which a value is masked in texts; shorter ones would hide ordinary text.
pub const SHORTEST_SECRET: usize = 4;
/// YAML: size of one file, in bytes.
pub const YAML_FILE: usize = 16 * 1024 * 1024;
/// YAML: nodes in one file.
pub const YAML_NODES: usize = 2_000_000;
/// YAML: nesting depth.
pub const YAML_DEPTH: usize = 64;
/// Project: files that are read.
pub const PROJECT_FILES: usize = 20_000;
/// YAML: aliases (`*name`) in one file.
pub const YAML_ALIASES: usize = 1_000;
/// YAML: nodes that aliases may repeat in one file, in total.
pub const YAML_ALIAS_NODES: usize = 200_000;

// ---- flow analysis ----

/// Combinations of slot values that are tried for one question about conditions. A slot that would exceed the limit
/// counts as unknown, so that fewer mistakes are found but none wrongly. The value allows sixteen booleans, or three
/// slots of sixteen values.
pub const ANALYSIS_CASES: u64 = 4_096;
/// Value classes of one slot: the literals it is compared with, the ranges between them, and null. They are the bits of
/// a `u64`.
pub const ANALYSIS_CELLS: usize = 64;
/// Average visits to each step of a flow until the facts about slots are stable; beyond it every value counts as
/// possible.
pub const ANALYSIS_VISITS: usize = 32;
/// Elements of a path through a flow that a finding shows; the middle of a longer path is omitted.
pub const PATH_STEPS: usize = 14;
/// Characters of one line of text in a flow diagram.
pub const PICTURE_LINE: usize = 38;
/// Lines of one text in a flow diagram.
pub const PICTURE_LINES: usize = 3;

/// Agent: model calls of one run in a conversation that `max_iterations` may allow: those of a turn.
pub const AGENT_MODEL_CALLS: u32 = 40;

/// Confirmation: characters of one argument that the user is shown in full; of a longer one both ends are shown.
pub const CONFIRM_VALUE: usize = 400;

/// Mission: learned insights, and learned failures, that are passed on to the next items; the newest stay.
pub const MISSION_LEARNINGS: usize = 20;
/// Mission: characters of one learned insight, failure or recommendation.
pub const MISSION_LEARNING_CHARS: usize = 1_000;
/// Mission: runs of one chain, when routers choose missions: beyond it no router may choose another one.
pub const MISSION_CHAIN: u32 = 16;
/// Mission: items of one dataset.
pub const MISSION_DATASET_ITEMS: usize = 100_000;
/// Mission: bytes of the items that one call stores in a dataset.
pub const MISSION_DATASET_BYTES: usize = 4 * 1024 * 1024;

// ---- missions and delegation ----

/// Mission: model calls of one commander that a project may allow.
pub const MISSION_TURNS: u32 = 1_000;
/// Mission: corrections in a row that a project may allow.
pub const MISSION_CORRECTIONS: u32 = 20;
/// Mission: size of a tool result in tokens above which it is always stored.
pub const MISSION_RESULT_TOKENS: u32 = 64_000;
/// Mission: runs, tasks and iterations at the same time that a project may allow.
pub const MISSION_PARALLEL: u32 = 64;
/// Mission: rounds of a repeated task that a project may allow.
pub const MISSION_ROUNDS: u32 = 50;
/// Mission: earlier rounds of a repeated task that the prompt of the next one shows; the newest stay.
pub const MISSION_ROUNDS_SHOWN: usize = 5;
/// Mission: characters of the summary and of the output of an earlier round that the prompt of the next one shows.
pub const MISSION_ROUND_CHARS: usize = 4_000;
/// Mission: attempts after the first that a project may allow for an iteration.
pub const MISSION_RETRIES: u32 = 20;
/// Mission: seconds that a question of a model to a person waits at most. What the mission declares for its questions comes first.
pub const MISSION_QUESTION_SECONDS: u64 = 366 * 24 * 3600;
/// Run store: units of one run, each with a session of its own. A run that needs more even if nothing fails is not started.
pub const RUN_UNITS: usize = 10_000;
/// Run store: bytes of one text: inputs, an event, a checkpoint, the outcome of a step, a stored result, a question, an answer or a
/// message.
pub const RUN_TEXT: usize = 8 * 1024 * 1024;
/// Run store: bytes of one id or name.
pub const RUN_NAME: usize = 1024;
/// Delegation: sub-agents at the same time that an agent may be allowed.
pub const DELEGATION_CONCURRENT: u32 = 16;
/// Delegation: sub-agents in one turn that an agent may be allowed.
pub const DELEGATION_TOTAL: u32 = 50;
/// Delegation: the depth that an agent may be allowed.
pub const DELEGATION_DEPTH: u32 = 4;
/// Delegation: sub-agents that may run at the same time over all conversations.
pub const DELEGATION_RUNNING: u32 = 64;
/// Delegation: sub-agents that may wait at the same time over all conversations.
pub const DELEGATION_QUEUED: u32 = 1_000;

// ---- skills ----

/// Skill: characters of a name.
pub const SKILL_NAME: usize = 64;
/// Skill: characters of a description.
pub const SKILL_DESCRIPTION: usize = 1_024;
/// Skill: bytes of `SKILL.md`.
pub const SKILL_BODY: usize = 256 * 1024;
/// Skill: bytes of another file of a skill that is text for models.
pub const SKILL_FILE_BYTES: usize = 1024 * 1024;
/// Skill: files of one skill that are known.
pub const SKILL_FILES: usize = 1_000;
/// Skill: depth of skills below a folder of skills.
pub const SKILL_DEPTH: usize = 4;
/// Skill: folders that are searched below a folder of skills.
pub const SKILL_FOLDERS: usize = 2_000;
/// Skill: bytes of all files of all skills of a project that are kept in memory.
pub const SKILL_BYTES: usize = 64 * 1024 * 1024;
