//! Every size, count and time limit of the running parts with its default, in one table. The limits of loading and of the
//! dialogue stand in [`segue_engine::limits`].

use std::time::Duration;

/// Model: time to connect.
pub const MODEL_CONNECT: Duration = Duration::from_secs(3);
/// Model: from the request to the first event of the answer.
pub const MODEL_FIRST_TOKEN: Duration = Duration::from_secs(15);
/// Model: between two events of an answer.
pub const MODEL_IDLE: Duration = Duration::from_secs(10);
/// Model: a whole call, when the model entry sets no `timeout`.
pub const MODEL_TOTAL: Duration = Duration::from_secs(45);
/// Model: bytes of text in one answer.
pub const MODEL_ANSWER: usize = 64 * 1024;
/// Model: bytes of one SSE line.
pub const MODEL_LINE: usize = 1024 * 1024;
/// Model: bytes of the arguments of one tool call.
pub const MODEL_ARGUMENTS: usize = 64 * 1024;
/// Model: tool calls in one answer.
pub const MODEL_CALLS: usize = 16;
/// Model: tries of one call, the first included.
pub const MODEL_TRIES: u32 = 2;
/// Model: time that all tries of one call may take together beyond the first.
pub const MODEL_RETRY_BUDGET: Duration = Duration::from_secs(10);
/// Model: how long to wait for usage and end mark after the model said that it is done.
pub const MODEL_AFTER_END: Duration = Duration::from_millis(500);
/// Model: bytes of an error body or of a whole JSON answer.
pub const MODEL_BODY: usize = 4 * 1024 * 1024;
/// Scripted model: steps that one template may take.
pub const SCRIPT_FUEL: u64 = 100_000;
/// Scripted model: bytes of one compiled pattern.
pub const SCRIPT_PATTERN: usize = 1024 * 1024;
/// HTTP: how long an unused connection to a server is kept.
pub const HTTP_IDLE: Duration = Duration::from_secs(90);
/// HTTP: unused connections kept to one server.
pub const HTTP_IDLE_PER_HOST: usize = 64;
/// Turn: wall time.
pub const TURN_WALL: Duration = Duration::from_secs(60);
/// Turn: the longest wall time that configured timeouts may raise it to.
pub const TURN_WALL_MOST: Duration = Duration::from_secs(15 * 60);
/// Turn: effects performed.
pub const TURN_EFFECTS: u32 = 50;
/// Turn: model calls.
pub const TURN_MODEL_CALLS: u32 = 40;
/// Loop: model calls.
pub const LOOP_MODEL_CALLS: u32 = 12;
/// Agent: iterations of one run.
pub const AGENT_ITERATIONS: u32 = 10;
/// Agent: utterances of the conversation shown.
pub const AGENT_HISTORY: usize = 10;
/// Agent: failed tool calls in a row that end a run.
pub const AGENT_FAILURES: u32 = 3;
/// Agent: bytes of tool exchanges kept between the user's turns of one task.
pub const AGENT_EXCHANGES: usize = 64 * 1024;
/// Commands: utterances of the conversation shown to the command generator (dialogue.md 4.2).
pub const COMMAND_HISTORY: usize = 20;
/// Commands: characters of one earlier utterance that are shown.
pub const COMMAND_UTTERANCE: usize = 1_000;
/// Commands: bytes of one slot's value, as JSON, that are shown.
pub const COMMAND_VALUE: usize = 500;
/// Commands: tokens of one answer, where neither the project nor the model's entry says otherwise (dialogue.md 4.1).
pub const COMMAND_TOKENS: u32 = 256;
/// Commands: the same for models that think unseen; their thoughts count.
pub const COMMAND_TOKENS_THINKING: u32 = 4_096;
/// Commands: lines of one answer that are read.
pub const COMMAND_LINES: usize = 200;
/// Commands: commands taken from one answer.
pub const COMMANDS_MOST: usize = 32;
/// Commands: rounds in which the model may mend its answer.
pub const COMMAND_REPAIRS: u32 = 1;
/// Commands: bytes of an unusable answer, and mistakes of it, that the model is shown again.
pub const COMMAND_QUOTED: usize = 2_000;
/// Commands: mistakes told to the model in one round.
pub const COMMAND_MISTAKES: usize = 8;
/// Commands: stable prompts kept, one for each set of flows that could be started together.
pub const COMMAND_PROMPTS: usize = 64;
/// Commands: flows that call one another, followed this deep to find their slots.
pub const COMMAND_CALL_DEPTH: usize = 16;
/// Tool: time for one call, when the agent sets no `tool_timeout`.
pub const TOOL_DEADLINE: Duration = Duration::from_secs(10);
/// Tool: bytes of one result shown to the model.
pub const TOOL_RESULT: usize = 64 * 1024;
/// Tool: bytes of one raw result.
pub const TOOL_RAW_RESULT: usize = 4 * 1024 * 1024;
/// MCP: time to connect and initialise one server.
pub const MCP_INITIALISE: Duration = Duration::from_secs(10);
/// MCP: tools listed by one server.
pub const MCP_TOOLS: usize = 128;
/// MCP: pages of one tool list.
pub const MCP_PAGES: usize = 20;
/// MCP: bytes of one tool description.
pub const MCP_DESCRIPTION: usize = 8 * 1024;
/// MCP: bytes of one tool schema.
pub const MCP_SCHEMA: usize = 32 * 1024;
/// Mailbox: messages waiting in one conversation.
pub const MAILBOX: usize = 8;
/// Turns in flight in one process.
pub const TURNS_IN_FLIGHT: usize = 256;
/// Mailbox: how long a message may wait for its turn.
pub const MAILBOX_WAIT: Duration = Duration::from_secs(30);
/// Server: bytes of one request body.
pub const BODY: usize = 1024 * 1024;
/// Message: characters stored.
pub const MESSAGE_TEXT: usize = 4_000;
/// Journal: how long records are kept.
pub const JOURNAL_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);
/// Duplicates: how long a message id is remembered.
pub const DUPLICATE_MEMORY: Duration = Duration::from_secs(7 * 24 * 3600);
