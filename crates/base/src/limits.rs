//! Every size, count and time limit of the running parts, with its default. `segue-engine` has the limits of loading and of the
//! dialogue, `segue-lang` those of conditions and templates. `docs/reference/limits.md` is generated from all three.

use std::time::Duration;

/// Project: bytes of one prompt or other text file.
pub const PROJECT_TEXT: usize = 1024 * 1024;
/// Model: time to connect.
pub const MODEL_CONNECT: Duration = Duration::from_secs(3);
/// Model: from the request to the first event of the response.
pub const MODEL_FIRST_TOKEN: Duration = Duration::from_secs(15);
/// Model: between two events of a response.
pub const MODEL_IDLE: Duration = Duration::from_secs(10);
/// Model: events that a response must have in every period of twice [`MODEL_IDLE`], or of twice its `idle_timeout`; a slower
/// stream is given up.
pub const MODEL_MIN_EVENTS: u64 = 8;
/// Model: a whole call, when the model entry sets no `timeout`.
pub const MODEL_TOTAL: Duration = Duration::from_secs(45);
/// Model: bytes of text in one response.
pub const MODEL_ANSWER: usize = 64 * 1024;
/// Model: bytes of one SSE line.
pub const MODEL_LINE: usize = 1024 * 1024;
/// Model: bytes of the arguments of one tool call; of a longer call none are kept, and it is not run. As JSON, a text of
/// [`WORKSPACE_WRITE`] bytes takes up to three times its length, unless it consists of control characters.
pub const MODEL_ARGUMENTS: usize = 256 * 1024;
/// Model: bytes of the arguments of all tool calls of one response together; further calls are not run.
pub const MODEL_ARGUMENTS_TOTAL: usize = 4 * 1024 * 1024;
/// Model: tool calls of one response that are run, the first ones; the model is told of each other one that it was not run.
pub const MODEL_CALLS: usize = 16;
/// Model: tool calls of one response that are kept, those that are not run included; further ones are ignored.
pub const MODEL_CALLS_KEPT: usize = 64;
/// Model: content blocks of one response, where the API has them, that may still be continued: text, tool calls and reasoning. A
/// block that begins after them closes the oldest.
pub const MODEL_BLOCKS: usize = 256;
/// Model: bytes of reasoning in one response that are stored, to be sent back with the results of its tool calls.
pub const MODEL_REASONING: usize = 256 * 1024;
/// Model: output tokens of one response of the Anthropic Messages API, if neither the request nor the model entry sets a number;
/// the API requires one.
pub const MODEL_TOKENS: u32 = 4_096;
/// Model: cache breakpoints (`cache_control`) in one request; the Anthropic Messages API allows at most 4.
pub const MODEL_CACHE_MARKS: usize = 4;
/// Model: attempts of one call, including the first.
pub const MODEL_TRIES: u32 = 2;
/// Model: total time for the retries of one call, beyond the first attempt.
pub const MODEL_RETRY_BUDGET: Duration = Duration::from_secs(10);
/// Model: failures of one member of a group within [`MODEL_FAILURE_WINDOW`] that open its circuit breaker, unless `allowed_fails`
/// of the router is set.
pub const MODEL_FAILURES: usize = 5;
/// Model: how long a failure of a member of a group counts.
pub const MODEL_FAILURE_WINDOW: Duration = Duration::from_secs(30);
/// Model: how long the circuit breaker of a member stays open, unless `cooldown_time` of the router is set.
pub const MODEL_COOLDOWN: Duration = Duration::from_secs(30);
/// Model: how long it stays open for a member whose account has no quota left.
pub const MODEL_COOLDOWN_QUOTA: Duration = Duration::from_secs(600);
/// Model: the longest `Retry-After` of a vendor that is respected.
pub const MODEL_RETRY_AFTER: Duration = Duration::from_secs(3_600);
/// Model: how soon a call that probes a half-open circuit breaker is expected to end.
pub const MODEL_PROBE_EXPECTED: Duration = Duration::from_secs(1);
/// Model: how long the measured latency of a member is used.
pub const MODEL_LATENCY_WINDOW: Duration = Duration::from_secs(300);
/// Model: how long to wait for usage and end marker after the finish reason.
pub const MODEL_AFTER_END: Duration = Duration::from_millis(500);
/// Model: bytes of an error body or of a whole JSON response.
pub const MODEL_BODY: usize = 4 * 1024 * 1024;
/// Scripted model: instructions that one template may execute.
pub const SCRIPT_FUEL: u64 = 100_000;
/// Scripted model: bytes of one compiled pattern.
pub const SCRIPT_PATTERN: usize = 1024 * 1024;
/// HTTP: how long an idle connection to a server is kept open.
pub const HTTP_IDLE: Duration = Duration::from_secs(90);
/// HTTP: idle connections kept open to one server.
pub const HTTP_IDLE_PER_HOST: usize = 64;
/// Turn: wall-clock time.
pub const TURN_TIMEOUT: Duration = Duration::from_secs(60);
/// Turn: the longest wall-clock time to which configured timeouts can extend it.
pub const TURN_TIMEOUT_MAX: Duration = Duration::from_secs(20 * 60);
/// Turn: effects that the runtime performs, model calls of the command generator included. Reached before the engine's `ENGINE_TURN_EFFECTS`.
pub const TURN_EFFECTS: u32 = 50;
/// Turn: attempts to run it, in all processes together; after that the user is sent one error message.
pub const TURN_ATTEMPTS: u32 = 3;
/// Turn: open turns whose results are kept in memory until the store accepts them; further ones are recovered as after a crash.
pub const TURNS_UNSAVED: usize = 1_024;
/// Turn: model calls.
pub const TURN_MODEL_CALLS: u32 = 40;
/// Agent loop: bytes of a tool result from which on the model gets a preview and an id instead, for each token of `tool_response`.
pub const RESULT_BYTES_PER_TOKEN: usize = 4;
/// Agent loop: `tool_response` where nothing is configured, in tokens.
pub const RESULT_TOKENS: u32 = 16_000;
/// Agent loop: the smallest `tool_response`, in tokens.
pub const RESULT_TOKENS_MIN: u32 = 250;
/// Agent loop: the largest `tool_response`, in tokens.
pub const RESULT_TOKENS_MAX: u32 = 64_000;
/// Agent loop: items from which on a JSON array of at least [`RESULT_ARRAY_BYTES`] is shown as a preview.
pub const RESULT_ARRAY_ITEMS: usize = 20;
/// Agent loop: bytes below which an array is shown whole, however many items it has.
pub const RESULT_ARRAY_BYTES: usize = 2 * 1024;
/// Agent loop: bytes to which tool results are shortened at most, when the request is too long for the model.
pub const RESULT_SHORTENED: usize = 500;
/// Agent loop: stored results of one session; the oldest are forgotten beyond it.
pub const RESULT_IDS: usize = 1_000;
/// Agent loop: texts of earlier responses, and of earlier messages, that the summary of a history keeps, each.
pub const SUMMARY_TEXTS: usize = 40;
/// Agent loop: characters of each of these texts.
pub const SUMMARY_TEXT: usize = 200;
/// Skills: skills of one agent from which on the prompt lists only names.
pub const SKILLS_DESCRIBED: usize = 50;
/// Skills: bytes of the names that a prompt lists.
pub const SKILL_NAMES_BYTES: usize = 6_000;
/// Skills: skills that one call of `describe_skill` returns.
pub const SKILL_MATCHES: usize = 20;
/// Skills: files of a loaded skill that its instructions list.
pub const SKILL_LISTED_FILES: usize = 200;
/// Skills: bytes that one call of `read_skill_file` returns.
pub const SKILL_READ: usize = 16 * 1024;
/// Skills: bytes of the instructions of all loaded skills of a session.
pub const SKILLS_LOADED_BYTES: usize = 512 * 1024;
/// Skills: characters of a name or path that a message repeats to the model.
pub const SKILL_SHOWN_CHARS: usize = 100;
/// Skills: bytes of the output of a script.
pub const SKILL_SCRIPT_OUTPUT: usize = 1024 * 1024;
/// Agent loop: the latest responses in which repeated calls are counted.
pub const REPEAT_WINDOW: usize = 20;
/// Turn: model calls of sub-agents, in addition to [`TURN_MODEL_CALLS`].
pub const TURN_DELEGATE_CALLS: u32 = 600;
/// Delegation: acceptance criteria of one call.
pub const DELEGATION_CRITERIA: usize = 20;
/// Delegation: characters of one acceptance criterion.
pub const DELEGATION_CRITERION: usize = 500;
/// Delegation: how long a sub-agent that was cancelled, or whose time is over, may take to end by itself.
pub const DELEGATION_GRACE: Duration = Duration::from_millis(1_500);
/// Delegation: time beyond the limits of a sub-agent after which its call is given up.
pub const DELEGATION_WATCHDOG: Duration = Duration::from_secs(60);
/// Delegation: time of a turn that is kept for its agent when a sub-agent uses up the rest; less if half of the rest is less.
pub const DELEGATION_RESERVE: Duration = Duration::from_secs(15);
/// Delegation: characters of the description of a type in a prompt.
pub const DELEGATION_DESCRIPTION: usize = 1_000;
/// Delegation: characters of the description of a sub-agent in events and in the ledger.
pub const DELEGATION_LABEL: usize = 200;
/// Delegation: characters of the part of a result, and of an error, that metadata and the ledger contain.
pub const DELEGATION_BRIEF: usize = 2_000;
/// Delegation: sub-agents of one conversation in the ledger of an agent, the newest.
pub const DELEGATION_LEDGER: usize = 50;
/// Delegation: characters of the ledger in a prompt.
pub const DELEGATION_LEDGER_TEXT: usize = 6_000;
/// Delegation: characters of one result of the ledger in a prompt.
pub const DELEGATION_LEDGER_RESULT: usize = 120;
/// Delegation: processes that may work on one sub-agent in the background, one after the other.
pub const DELEGATION_CLAIMS: u64 = 10;
/// Delegation: the time in which a process opens the tools of a sub-agent in the background that it continues.
pub const DELEGATION_SETUP: Duration = Duration::from_secs(60);
/// Reminders: the longest interval between two checks for due reminders; another process may have set one, or a clock may have
/// jumped.
pub const REMINDER_POLL_INTERVAL: Duration = Duration::from_secs(15);
/// Reminders: conversations whose reminders are fired at once.
pub const REMINDERS_AT_ONCE: usize = 64;
/// Reminders: the first pause after the reminder of a conversation could not be fired; it doubles with each failure.
pub const REMINDER_BACKOFF: Duration = Duration::from_secs(15);
/// Reminders: the longest such pause.
pub const REMINDER_BACKOFF_MAX: Duration = Duration::from_secs(3600);
/// Recovery: conversations whose open turns are recovered at once, in addition to the messages that arrive.
pub const RECOVERY_AT_ONCE: usize = 8;
/// Agent: iterations of one run.
pub const AGENT_ITERATIONS: u32 = 10;
/// Agent: rendered prompts of one agent that are cached for its next runs, one for each step that calls it.
pub const AGENT_PROMPTS: usize = 64;
/// Agent: messages of the conversation in its prompt.
pub const AGENT_HISTORY: usize = 10;
/// Agent: consecutive responses whose tool calls all failed that a run may have; one more ends it.
pub const AGENT_FAILURES: u32 = 3;
/// Agent: filler messages sent while the tool calls of one response run.
pub const FILLER_MESSAGES: usize = 3;
/// Agent: times that one run is asked to retract a claim without evidence.
pub const AGENT_REPAIRS: u32 = 1;
/// Agent: arguments of one call whose origin in the conversation is looked up; for further ones the event has no origin.
pub const AGENT_ORIGINS: usize = 64;
/// Hooks: messages that one call of a hook may send.
pub const HOOK_MESSAGES: usize = 8;
/// Hooks: one call of a hook server.
pub const HOOK_DEADLINE: Duration = Duration::from_secs(10);
/// Hooks: bytes of the results of earlier responses that `process_tool_output` gets again, the newest.
pub const HOOK_RESULTS: usize = 256 * 1024;
/// Hooks: bytes of one response of a hook server.
pub const HOOK_ANSWER: usize = 1024 * 1024;
/// Hooks: tools that a hook server may add.
pub const HOOK_TOOLS: usize = 32;
/// Pins: bytes of the file that stores them.
pub const PIN_FILE: u64 = 4 * 1024 * 1024;
/// Agent: bytes of tool exchanges that one run stores for the next turns of the same task; calls of tools with side effects are
/// stored beyond it.
pub const AGENT_EXCHANGES: usize = 64 * 1024;
/// Agent: bytes to which a text of a tool exchange is truncated, if the exchanges of a run are too long.
pub const AGENT_EXCHANGE_MIN: usize = 1024;
/// Commands: messages of the conversation in the prompt of the command generator.
pub const COMMAND_HISTORY: usize = 20;
/// Commands: characters of one earlier message in the prompt.
pub const COMMAND_UTTERANCE: usize = 1_000;
/// Commands: bytes of the value of one slot, as JSON, in the prompt.
pub const COMMAND_VALUE: usize = 500;
/// Commands: output tokens of one response, if neither the project nor the model entry sets a number.
pub const COMMAND_TOKENS: u32 = 256;
/// Commands: the same for models with hidden reasoning, whose reasoning tokens count.
pub const COMMAND_TOKENS_REASONING: u32 = 4_096;
/// Rephraser: one call, if neither the project nor the model entry sets a timeout.
pub const REPHRASE_WAIT: Duration = Duration::from_secs(5);
/// Rephraser: sampling temperature, if the project sets none.
pub const REPHRASE_TEMPERATURE: f64 = 0.3;
/// Rephraser: output tokens of one response, if the project sets no limit.
pub const REPHRASE_TOKENS: u32 = 256;
/// Rephraser: messages of the conversation in the prompt, whatever the project sets.
pub const REPHRASE_LINES: usize = 40;
/// Import: events that one import reads.
pub const IMPORT_EVENTS: usize = 1_000_000;
/// Import: bytes of one line.
pub const IMPORT_LINE: usize = 4 * 1024 * 1024;
/// Import: excluded rows that are listed one by one.
pub const IMPORT_REPORTED: usize = 1_000;
/// NLG server: one response, if the project sets no timeout.
pub const NLG_WAIT: Duration = Duration::from_secs(5);
/// NLG server: bytes of one response.
pub const NLG_BODY: usize = 256 * 1024;
/// Commands: lines of one response that are read.
pub const COMMAND_LINES: usize = 200;
/// Commands: commands read from one response.
pub const COMMANDS_MAX: usize = 32;
/// Commands: rounds in which the model may fix its response.
pub const COMMAND_REPAIRS: u32 = 1;
/// Commands: bytes of an unusable response, and of its mistakes, that the model is shown again.
pub const COMMAND_QUOTED: usize = 2_000;
/// Commands: mistakes listed for the model in one round.
pub const COMMAND_MISTAKES: usize = 8;
/// Commands: stable prompt parts that are cached, one for each set of flows that can be started together.
pub const COMMAND_PROMPTS: usize = 64;
/// Commands: depth to which calls between flows are followed to find their slots.
pub const COMMAND_CALL_DEPTH: usize = 16;
/// Embeddings: texts in one request.
pub const EMBED_BATCH: usize = 128;
/// Embeddings: bytes of one text that are sent; models read about 8,000 tokens.
pub const EMBED_TEXT: usize = 16 * 1024;
/// Embeddings: bytes of one response.
pub const EMBED_ANSWER: usize = 32 * 1024 * 1024;
/// Embeddings: numbers in one vector.
pub const EMBED_DIMENSIONS: usize = 8_192;
/// Embeddings: vectors cached in memory by the content of their text; at 4,096 numbers each they take 32 MiB.
pub const EMBED_CACHE: usize = 2_048;
/// Embeddings: time for one request, if the model entry sets none.
pub const EMBED_WAIT: Duration = Duration::from_secs(10);
/// Embeddings: how long lexical comparison is used after a failure before the service is called again.
pub const EMBED_PAUSE: Duration = Duration::from_secs(30);
/// Flow retrieval: characters of one flow that are compared.
pub const RETRIEVAL_FLOW: usize = 4_000;
/// Flow retrieval: characters of the query, the newest.
pub const RETRIEVAL_QUERY: usize = 4_000;
/// Knowledge: documents read from a folder.
pub const KNOWLEDGE_FILES: usize = 2_000;
/// Knowledge: levels of folders below the configured one.
pub const KNOWLEDGE_DEPTH: usize = 16;
/// Knowledge: bytes of one document.
pub const KNOWLEDGE_FILE: usize = 4 * 1024 * 1024;
/// Knowledge: passages of all documents.
pub const KNOWLEDGE_PASSAGES: usize = 20_000;
/// Knowledge: characters of one passage.
pub const KNOWLEDGE_PASSAGE: usize = 1_000;
/// Knowledge: passages in the prompt of an answer.
pub const KNOWLEDGE_SHOWN: usize = 4;
/// Knowledge: characters of the query, the newest.
pub const KNOWLEDGE_QUERY: usize = 2_000;
/// Knowledge: characters of the value of one slot in the prompt.
pub const KNOWLEDGE_VALUE: usize = 500;
/// Knowledge: output tokens of one answer, if the model entry sets no number.
pub const KNOWLEDGE_TOKENS: u32 = 512;
/// Knowledge: time for one request to a vector store, if its entry sets none.
pub const KNOWLEDGE_WAIT: Duration = Duration::from_secs(10);
/// Knowledge: bytes of one response of a vector store.
pub const KNOWLEDGE_ANSWER: usize = 4 * 1024 * 1024;
/// Tool: time for one call, if the agent sets no `tool_timeout`.
pub const TOOL_DEADLINE: Duration = Duration::from_secs(10);
/// Built-in tools: the longest wait of `sleep`.
pub const SLEEP_LONGEST: Duration = Duration::from_secs(300);
/// Built-in tools: time for one HTTP call with its redirects, if the agent sets no `tool_timeout`.
pub const HTTP_TOOL_TIME: Duration = Duration::from_secs(30);
/// Built-in tools: bytes of the body of a request or a response.
pub const HTTP_TOOL_BODY: usize = 1024 * 1024;
/// Built-in tools: redirects that one HTTP call follows.
pub const HTTP_TOOL_REDIRECTS: usize = 5;
/// Tool: total time for one call that keeps reporting progress, if its server sets no `tool_timeout_total`; less than a turn may
/// take, so that the turn can still report on it.
pub const TOOL_TOTAL: Duration = Duration::from_secs(45);
/// Tool: progress notifications of one call that are recorded, the newest.
pub const TOOL_PROGRESS_ENTRIES: usize = 32;
/// Tool: characters of one progress notification that are recorded and, where that is allowed, shown.
pub const TOOL_PROGRESS_TEXT: usize = 200;
/// Tool: bytes of one result that the model is shown.
pub const TOOL_RESULT: usize = 64 * 1024;
/// Tool: bytes of one raw result.
pub const TOOL_RAW_RESULT: usize = 4 * 1024 * 1024;
/// Tool: time beyond its deadline in which a tool may still report how it ended, so that the record is complete.
pub const TOOL_GRACE: Duration = Duration::from_secs(1);
/// Tool: problems with the arguments that the model is shown at once.
pub const TOOL_PROBLEMS: usize = 8;
/// Tool: bytes of one problem with the arguments that the model is shown.
pub const TOOL_PROBLEM_TEXT: usize = 400;
/// Tool: bytes of a name; models accept no longer ones.
pub const TOOL_NAME: usize = 64;
/// Workspace: bytes of all files of one run, if its settings set no other number.
pub const WORKSPACE_BYTES: u64 = 256 * 1024 * 1024;
/// Workspace: files and folders of one run.
pub const WORKSPACE_ENTRIES: u64 = 20_000;
/// Workspace: files and folders that are counted; with more, no command is started.
pub const WORKSPACE_COUNTED: u64 = 200_000;
/// Workspace: levels of folders below `workspace`, `uploads` or `outputs`.
pub const WORKSPACE_DEPTH: usize = 32;
/// Workspace: levels of folders that a command may make; deeper ones are removed.
pub const WORKSPACE_NESTED: usize = 64;
/// Workspace: bytes of one path.
pub const WORKSPACE_PATH: usize = 1024;
/// Workspace: bytes of one name in a path; common file systems accept no longer ones.
pub const WORKSPACE_NAME: usize = 255;
/// Workspace: bytes of one call of `write_file` that does not append.
pub const WORKSPACE_WRITE: usize = 80 * 1024;
/// Workspace: bytes of a file that `str_replace` changes, and of one that the runtime reads as a whole.
pub const WORKSPACE_EDIT: u64 = 10 * 1024 * 1024;
/// Mission: bytes of the file of one input.
pub const MISSION_FILE: u64 = 10 * 1024 * 1024;
/// Workspace: characters of one result of `read_file`.
pub const WORKSPACE_READ: usize = 50_000;
/// Workspace: characters of one result of `ls`.
pub const WORKSPACE_LIST: usize = 20_000;
/// Workspace: levels of folders that `ls` shows.
pub const WORKSPACE_LIST_DEPTH: usize = 2;
/// Workspace: paths in one result of `glob`.
pub const WORKSPACE_GLOB: usize = 200;
/// Workspace: lines in one result of `grep`.
pub const WORKSPACE_GREP: usize = 100;
/// Workspace: characters of one line in a result of `grep`.
pub const WORKSPACE_GREP_LINE: usize = 300;
/// Workspace: bytes of a line of a file that are searched or shown.
pub const WORKSPACE_LINE: usize = 256 * 1024;
/// Workspace: characters of a pattern of `glob` or `grep`.
pub const WORKSPACE_PATTERN: usize = 1_000;
/// Workspace: bytes of a compiled pattern.
pub const WORKSPACE_COMPILED: usize = 1024 * 1024;
/// Workspace: files that one call of `present_files` names.
pub const WORKSPACE_PRESENTED: usize = 50;
/// Workspace: files whose versions are remembered for read-before-write; beyond it every file must be read again.
pub const WORKSPACE_VERSIONS: usize = 20_000;
/// Workspace: sessions of agents that have read files; beyond it the one that was longest inactive must read again.
pub const WORKSPACE_SESSIONS: usize = 1_000;
/// Workspace: workspaces that are kept open although nothing uses them; the longest unused one is closed.
pub const WORKSPACES_OPEN: usize = 64;
/// Scratchpad of a completed run: how long it stays after the start of the run. Other runs can be resumed and keep it.
pub const SCRATCHPAD_RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);
/// Sandbox: time for one command, if its settings set no other limit.
pub const SANDBOX_TIME: Duration = Duration::from_secs(120);
/// Sandbox: time that a command waits for a free place.
pub const SANDBOX_QUEUE: Duration = Duration::from_secs(60);
/// Sandbox: commands that run at once, if its settings set no other number.
pub const SANDBOX_PARALLEL: usize = 4;
/// Sandbox: bytes of one command.
pub const SANDBOX_COMMAND: usize = 64 * 1024;
/// Sandbox: characters of the output of one command that the model is shown; the middle of a longer one is left out.
pub const SANDBOX_OUTPUT: usize = 20_000;
/// Sandbox: bytes at the start and at the end of the output of one command that are kept in memory.
pub const SANDBOX_CAPTURE: usize = 128 * 1024;
/// Sandbox: time between two looks at the size of the workspace while a command runs.
pub const SANDBOX_CHECK: Duration = Duration::from_millis(5);
/// Sandbox: most time after which all files are counted again; few files, and files that grow fast, are counted at every look.
pub const SANDBOX_CHECK_MOST: Duration = Duration::from_secs(1);
/// Sandbox: time for the rest of the output after a command ended.
pub const SANDBOX_DRAIN: Duration = Duration::from_millis(500);
/// Sandbox: time in which the commands of a workspace end when it is removed.
pub const SANDBOX_CLOSE: Duration = Duration::from_secs(2);
/// Clarification: characters of the question, and of its context.
pub const CLARIFICATION_TEXT: usize = 4_000;
/// Clarification: fields of its form.
pub const CLARIFICATION_FIELDS: usize = 16;
/// Clarification: options of the question, and of one field.
pub const CLARIFICATION_OPTIONS: usize = 24;
/// Action server: time for one action, if the endpoint sets no `timeout`; half of what a turn may take, so that the flow can
/// continue afterwards.
pub const ACTION_DEADLINE: Duration = Duration::from_secs(30);
/// Action server: bytes of one request before compression.
pub const ACTION_REQUEST: usize = 16 * 1024 * 1024;
/// Action server: bytes of one response.
pub const ACTION_ANSWER: usize = 4 * 1024 * 1024;
/// Action server: time for a request of its health or its list of actions.
pub const ACTION_HEALTH: Duration = Duration::from_secs(5);
/// Action module: time from the start of the child process to its first response.
pub const ACTION_START: Duration = Duration::from_secs(45);
/// Action module: pause between two checks whether the child process responds.
pub const ACTION_POLL: Duration = Duration::from_millis(50);
/// Action module: pauses before the first, second, … restart; the last applies to all further ones.
pub const ACTION_BACKOFF: [Duration; 5] =
    [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(30), Duration::from_secs(120)];
/// Action module: how long a child process must have lived for the pauses to start again with the first.
pub const ACTION_STABLE: Duration = Duration::from_secs(60);
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
/// MCP: levels of JSON in one tool schema, which allow about half as many nested schemas.
pub const MCP_SCHEMA_DEPTH: usize = 32;
/// JSON Schema: nodes of one schema with its references expanded.
pub const SCHEMA_NODES: u64 = 10_000;
/// JSON Schema: levels of nested schemas with references expanded.
pub const SCHEMA_LEVELS: usize = 64;
/// JSON Schema: levels of nested schemas that one check applies to a value and its parts.
pub const SCHEMA_CHECK_DEPTH: usize = 512;
/// JSON Schema: bytes of the compiled patterns of one schema.
pub const SCHEMA_PATTERNS: usize = 2 * 1024 * 1024;
/// JSON Schema: steps of one check, about 50 ns each; a step is one node of the schema that meets one part of the value.
pub const SCHEMA_STEPS: u64 = 5_000_000;
/// JSON Schema: steps of a check that names the problems of a value; above that, the value is only said not to match.
pub const SCHEMA_PROBLEM_STEPS: u64 = 50_000;
/// MCP: steps that a `pattern` with lookaround may take on one argument.
pub const MCP_PATTERN_STEPS: usize = 100_000;
/// MCP: bytes of one line or one event; a little more than [`TOOL_RAW_RESULT`], for the message around the result.
pub const MCP_LINE: usize = TOOL_RAW_RESULT + 64 * 1024;
/// MCP: bytes on standard output between two messages that are no messages, after which a server is given up.
pub const MCP_NOISE: usize = 1024 * 1024;
/// MCP: bytes of the standard error of one server that are kept, the newest.
pub const MCP_STDERR: usize = 64 * 1024;
/// MCP: calls waiting for one server.
pub const MCP_QUEUE: usize = 64;
/// MCP: connections opened to one server within [`MCP_RECONNECT_WINDOW`].
pub const MCP_RECONNECTS: usize = 5;
/// MCP: the window in which [`MCP_RECONNECTS`] are counted.
pub const MCP_RECONNECT_WINDOW: Duration = Duration::from_secs(10 * 60);
/// MCP: pauses before the first, second, … reconnection after a failure.
pub const MCP_BACKOFF: [Duration; MCP_RECONNECTS] = [
    Duration::ZERO,
    Duration::from_millis(500),
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
];
/// MCP: the longest pause before a reconnection that a call waits for; a longer one fails the call at once.
pub const MCP_BACKOFF_WAIT: Duration = Duration::from_secs(1);
/// MCP: how long a connection must have lived for the pauses to start again with the first.
pub const MCP_STABLE: Duration = Duration::from_secs(60);
/// MCP over HTTP: consecutive failed requests, although the server answers pings, after which a session older than [`MCP_STABLE`]
/// is replaced.
pub const MCP_FAILED_REQUESTS: usize = 20;
/// MCP: bytes of the response of an authorization server.
pub const MCP_TOKEN: usize = 64 * 1024;
/// MCP: elicitation requests that a server may send during one call.
pub const MCP_QUESTIONS: usize = 8;
/// MCP: scopes that the challenges of one server may ask for; further ones are not requested.
pub const MCP_SCOPES: usize = 64;
/// MCP: bytes of one scope that a challenge asks for; a longer one is not requested.
pub const MCP_SCOPE: usize = 256;
/// MCP: how long to wait for the file of a login while another process changes it.
pub const MCP_LOGIN_LOCK: Duration = Duration::from_secs(8);
/// MCP: time for refreshing a login, whether or not a call waits for it.
pub const MCP_REFRESH: Duration = Duration::from_secs(30);
/// MCP: bytes of one sampling request of a server to the project's model.
pub const MCP_SAMPLE: usize = 32 * 1024;
/// MCP: output tokens of the project's model for one sampling request.
pub const MCP_SAMPLE_TOKENS: u32 = 1_000;
/// MCP: how long `segue mcp login` waits for consent.
pub const MCP_CONSENT: Duration = Duration::from_secs(5 * 60);
/// MCP: time for the response to a ping, which is sent after a call timed out.
pub const MCP_PING: Duration = Duration::from_secs(3);
/// MCP: time for a child process to end after its input was closed, and again after it was asked to end.
pub const MCP_CLOSE: Duration = Duration::from_millis(500);
/// MCP: time for sending a cancellation notification.
pub const MCP_CANCEL: Duration = Duration::from_secs(1);
/// MCP: the shortest time between two progress notifications of one call.
pub const MCP_PROGRESS: Duration = Duration::from_millis(100);
/// MCP server: tools on one page of the list.
pub const MCP_SERVED_PAGE: usize = 64;
/// MCP server: bytes of one message on standard input; over HTTP [`HTTP_BODY`] applies.
pub const MCP_SERVED_LINE: usize = HTTP_BODY;
/// MCP server: sessions open at once over HTTP.
pub const MCP_SERVED_SESSIONS: usize = 256;
/// MCP server: idle time after which a session over HTTP ends.
pub const MCP_SERVED_IDLE: Duration = Duration::from_secs(30 * 60);
/// MCP server: active calls of one session.
pub const MCP_SERVED_CALLS: usize = 16;
/// MCP server: conversations of one session whose transcripts it may read, the newest.
pub const MCP_SERVED_CONVERSATIONS: usize = 256;
/// MCP server: events of a conversation in its transcript, the newest.
pub const MCP_SERVED_EVENTS: usize = 2_000;
/// MCP server: minimum length, in characters, of an idempotency key without a session.
pub const MCP_SERVED_KEY: usize = 16;
/// MCP server: elicitation requests sent to the user during one call.
pub const MCP_SERVED_QUESTIONS: usize = 16;
/// MCP server: fields of one form.
pub const MCP_SERVED_FIELDS: usize = 12;
/// MCP server: time for the user to answer an elicitation request.
pub const MCP_SERVED_ANSWER: Duration = Duration::from_secs(10 * 60);
/// Mailbox: messages waiting in one conversation.
pub const MAILBOX: usize = 8;
/// Admission: turns that run at once in one process, unless `running_turns` of `server` in endpoints.yml is set.
pub const TURNS_IN_FLIGHT: usize = 256;
/// Admission: accepted turns that are not answered yet, unless `open_turns` of `server` is set.
pub const OPEN_TURNS: usize = 256;
/// Admission: open turns of one caller (the subject of a token, or else the sender), unless `turns_per_caller` of `server` is
/// set.
pub const TURNS_PER_CALLER: usize = 8;
/// Admission: the longest expected time to the reply at which a message is accepted, unless `expected_wait` of `server` is set.
/// If a turn may take longer than twice this, half of the turn's time applies.
pub const EXPECTED_WAIT: Duration = Duration::from_secs(30);
/// Admission: open turns up to which no message is rejected because of the expected wait.
pub const ADMITTED_MIN: usize = 8;
/// Admission: turns that continue outside the budget after their callers disconnected.
pub const TURNS_ABANDONED: usize = 64;
/// Admission: turns over which the duration of a turn is averaged.
pub const TURN_TIME_WEIGHT: u32 = 16;
/// Admission: the longest `Retry-After` that a caller is sent.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// Admission: the shortest time between two log lines that report rejected messages.
pub const OVERLOAD_LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Mailbox: conversations that are checked for an idle one to evict when a further one arrives.
pub const MAILBOX_EVICTION_SCAN: usize = 8;
/// Mailbox: how long a message may wait to be accepted; an accepted one waits as long as the turns before it take.
pub const ACCEPT_TIMEOUT: Duration = Duration::from_secs(30);
/// Server: bytes of one request body.
pub const HTTP_BODY: usize = 1024 * 1024;
/// Journal: how long records are stored.
pub const JOURNAL_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);
/// Deduplication: how long a message id is remembered; as long as the message itself, so that all channels forget it at the same
/// time.
pub const DEDUP_WINDOW: Duration = JOURNAL_RETENTION;
/// Outbox: replies of one conversation that may wait for delivery; older ones are dropped.
pub const OUTBOX: usize = 256;
/// Outbox: how long replies wait for their user to write again, from the last event of the conversation; then they are dropped.
pub const OUTBOX_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Outbox: conversations whose replies wait for a channel that can send to its users unprompted.
pub const OUTBOX_WAITING: usize = 10_000;
/// Outbox: conversations whose replies are delivered at once.
pub const OUTBOX_CONCURRENT: usize = 32;
/// Feed of a conversation: the turns that are kept in memory for its readers, the running one and the last ended one.
pub const FEED_TURNS: usize = 2;
/// Feed of a conversation: the events of a turn that are kept. Of further messages, readers get the end and not the text while it is streamed.
pub const FEED_EVENTS: usize = 2_000;
/// Feed of a conversation: the turns that a reader gets who begins at the beginning, the latest ones.
pub const FEED_HISTORY: usize = 100;
/// Feed of a conversation: how long it is kept after its last reader has left, so that a page that is loaded again finds the running reply.
pub const FEED_IDLE: Duration = Duration::from_secs(60);
/// Store: writes in the queue of the writer; further ones wait in their callers.
pub const STORE_QUEUE: usize = 1024;
/// Store: writes in one transaction (group commit).
pub const GROUP_COMMIT_MAX: usize = 256;
/// Store: conversation heads that the writer caches.
pub const STORE_HEADS: usize = 8192;
/// Store: connections for reads.
pub const STORE_READERS: usize = 4;
/// Store: how long a write waits for another process that has locked the file.
pub const STORE_BUSY: Duration = Duration::from_secs(5);
/// Store: how long a process that creates a file, or changes it to another version, is waited for.
pub const STORE_CREATION: Duration = Duration::from_secs(10);
/// Store: bytes of the write that shows whether a store that failed can be written again.
pub const STORE_PROBE: usize = 64 * 1024;
/// Run store: how long the worker of a job tries a write again while the store cannot be written, for example because it is locked.
pub const JOB_STORE_WAIT: Duration = Duration::from_secs(600);
/// Run store: how much longer than a lease can last it may seem to last, because clocks are set.
pub const LEASE_CLOCK_LEEWAY: Duration = Duration::from_secs(10);
/// In-memory store: conversations; beyond them, those that were idle for longest are removed.
pub const MEMORY_CONVERSATIONS: usize = 50_000;
/// In-memory store: turns of the whole process whose journals and traces are kept.
pub const MEMORY_JOURNALS: usize = 1_000;
/// In-memory store: runs; beyond them, those that ended first are removed.
pub const MEMORY_RUNS: usize = 1_000;
/// Run store: how long a run that has ended is stored, with its events, checkpoints, questions and files, unless `runs.retention_days` in
/// `endpoints.yml` is set.
pub const RUN_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);
/// Run store: how often a process that works on runs deletes those past their retention.
pub const RUN_RETENTION_INTERVAL: Duration = Duration::from_secs(3600);
/// Run store: events, records, units, stored results and questions in one batch.
pub const RUN_BATCH: usize = 10_000;
/// Run store: messages to one run.
pub const RUN_MESSAGES: usize = 1_000;
/// Run store: units that one call claims.
pub const RUN_CLAIMS: usize = 100;
/// Mission: one attempt of a model call.
pub const MISSION_MODEL_CALL: Duration = Duration::from_secs(600);
/// Mission: how long a loop waits in all for a model whose provider limits the rate or is overloaded, beside the time of its calls.
pub const MISSION_MODEL_WAIT: Duration = Duration::from_secs(1_800);
/// Mission: how long a loop waits in all for a model whose server fails or cannot be reached and names no time to wait.
pub const MISSION_SERVER_WAIT: Duration = Duration::from_secs(60);
/// Run store: events in one read.
pub const RUN_EVENTS_READ: usize = 1_000;
/// Run store: runs or questions in one list.
pub const RUNS_LISTED: usize = 1_000;
/// Missions: runs that are read for the beginning of an id.
pub const RUN_IDS_NAMED: usize = 20;
/// Missions: files of a run that a report names; further ones are counted.
pub const RUN_FILES_NAMED: usize = 100;
/// Store: conversations in one list.
pub const CONVERSATIONS_LISTED: usize = 10_000;
/// Runtime: idle conversations cached in memory; further ones are loaded from the store at their next message, which doubles the
/// cost of a short turn.
pub const CACHED_CONVERSATIONS: usize = 2048;
/// Store: batches between two snapshots of a conversation.
pub const SNAPSHOT_EVERY: u64 = 16;
/// Tests: cases that run at once, unless the command line sets a number.
pub const TEST_JOBS: usize = 4;
/// Tests: cases that may run at once, whatever the command line sets.
pub const TEST_JOBS_MAX: usize = 64;
/// Tests: bytes of one recording.
pub const TEST_RECORDING: usize = 64 * 1024 * 1024;
/// Tests: characters of one line in the report of a failure.
pub const TEST_LINE: usize = 400;
/// Shutdown: time for closing the tool sources.
pub const SOURCE_CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Channel: chunks of a reply that wait for a client to read them.
pub const CHANNEL_QUEUE: usize = 256;
/// Channel `openai`: the longest time for which writes can be held back.
pub const WRITE_HOLD: Duration = Duration::from_secs(60);
/// Channel `openai`: conversations whose newest request was ended by its client and is remembered.
pub const ENDED_REQUESTS: usize = 1_024;
/// Channel: how long a turn waits for a client whose queue is full.
pub const CHANNEL_SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// Channel: idle time of a stream after which a keep-alive is sent.
pub const HEARTBEAT: Duration = Duration::from_secs(15);
/// Channel: bytes of one message over a WebSocket or Socket.IO.
pub const SOCKET_MESSAGE: usize = 64 * 1024;
/// Channel: bytes that a socket buffers before it reads or writes more.
pub const SOCKET_BUFFER: usize = 4 * 1024;
/// Channel: requests of one Socket.IO client that wait.
pub const SOCKET_REQUESTS: usize = 16;
/// Channel: messages that wait for a Socket.IO client to read them; further ones wait in the outbox.
pub const SOCKET_QUEUE: usize = 64;
/// Channel: time after which a WebSocket is closed whose client has sent nothing, not even the answer to a ping.
pub const SOCKET_SILENCE: Duration = Duration::from_secs(45);
/// Channel: time for one request to the URL of the channel `callback`.
pub const CALLBACK_TIMEOUT: Duration = Duration::from_secs(10);
/// Channel: bytes of the id of a sender or a message.
pub const WIRE_ID: usize = 512;
/// Server: bytes of all request bodies in memory at once.
pub const BODIES: usize = 64 * 1024 * 1024;
/// Server: open connections, unless `connections` of `server` in endpoints.yml is set.
pub const CONNECTIONS: usize = 4096;
/// Server: open connections from one address, unless `connections_per_address` of `server` is set. Loopback addresses have no
/// limit.
pub const CONNECTIONS_PER_ADDRESS: usize = 512;
/// Server: bytes of the head of one request.
pub const HTTP_HEAD: usize = 32 * 1024;
/// Server: time for the head of a request, from its first byte.
pub const HTTP_HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Server: time that a connection may wait for a request.
pub const CONNECTION_IDLE: Duration = Duration::from_secs(75);
/// Server: time that a client may leave a response unread.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Server: how often connections are checked against these times.
pub const CONNECTION_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Server: the pause after a connection could not be accepted, for example because the process has no file descriptor left.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Server: connections without a request that are closed in this case, those that waited longest.
pub const CONNECTIONS_FREED: usize = 16;
/// Server: time at shutdown for requests whose head has begun to arrive, and for channels to end their sockets.
pub const CLOSING_GRACE: Duration = Duration::from_secs(1);
/// Server: time to read one request body.
pub const HTTP_BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Server: time at shutdown for running turns.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Server: time for the store to answer a health check.
pub const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);
/// Server: how long a successful health check of the store counts.
pub const READY_CACHE: Duration = Duration::from_secs(5);
/// Server: how often data past its retention is deleted.
pub const RETENTION_INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// Channels: bytes of the metadata that a client sends with a message, as JSON, unless `metadata_bytes` of the channel is set. It
/// is stored with the message, and kept in memory with its conversation.
pub const METADATA: usize = 16 * 1024;
/// Remote agents: time for one request and its first response, unless `timeout` is set.
pub const A2A_REQUEST: Duration = Duration::from_secs(30);
/// Remote agents: total time for polling a task, unless `max_polling_time` is set.
pub const A2A_POLL_TIMEOUT: Duration = Duration::from_secs(60);
/// Remote agents: the first pause between two polls, unless `polling_initial_delay` is set.
pub const A2A_PAUSE: Duration = Duration::from_millis(500);
/// Remote agents: the longest pause between two polls or two attempts; pauses double until then.
pub const A2A_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Remote agents: idle time of a stream after which it counts as lost.
pub const A2A_STREAM_IDLE: Duration = Duration::from_secs(60);
/// Remote agents: how long an agent card is used before it is fetched again.
pub const A2A_CARD_MAX_AGE: Duration = Duration::from_secs(300);
/// Remote agents: the pause before the second attempt to fetch an agent card.
pub const A2A_CARD_PAUSE: Duration = Duration::from_secs(1);
/// Remote agents: attempts to send a message on which the remote agent certainly has not acted.
pub const A2A_TRIES: u32 = 3;
/// Remote agents: the pause before the second attempt; it doubles.
pub const A2A_TRY_PAUSE: Duration = Duration::from_secs(1);
/// Remote agents: time for a request to cancel a task.
pub const A2A_CANCEL: Duration = Duration::from_secs(5);
/// Remote agents: time for the first response to a message that is being sent when the turn is interrupted; after that it is
/// unknown whether the message was received.
pub const A2A_SEND_GRACE: Duration = Duration::from_secs(5);
/// Remote agents: consecutive polls of a task that may fail; after one more, polling ends.
pub const A2A_POLL_FAILURES: u32 = 3;
/// Remote agents: messages exchanged about one task. Each takes a message of the user; more indicate a cycle.
pub const A2A_EXCHANGES: u64 = 50;
/// Remote agents: status messages of one run that are sent to the user.
pub const A2A_UPDATES_SENT: usize = 100;
/// Remote agents: messages of the history of a task that are requested.
pub const A2A_HISTORY: u32 = 20;
/// Remote agents: pages of the tasks of a context that are read to find the task of a message.
pub const A2A_TASK_PAGES: u32 = 10;
/// Remote agents: bytes of one response.
pub const A2A_ANSWER: usize = 5 * 1024 * 1024;
/// Remote agents: bytes of one event of a stream.
pub const A2A_EVENT: usize = 1024 * 1024;
/// Remote agents: bytes of a task that is assembled from a stream.
pub const A2A_TASK: usize = 4 * 1024 * 1024;
/// Remote agents: bytes of an inline file, in base64, that a result keeps; of a larger file only the name is kept.
pub const A2A_FILE: usize = 64 * 1024;
/// Remote agents: characters of an error text of a remote agent that operators see.
pub const A2A_REASON_TEXT: usize = 400;
/// Authorization servers: time for one token, unless `oauth.timeout` is set.
pub const TOKEN_WAIT: Duration = Duration::from_secs(10);
/// Authorization servers: bytes of a response.
pub const TOKEN_ANSWER: usize = 64 * 1024;
/// Authorization servers: how long a token without `expires_in` is used.
pub const TOKEN_LIFETIME: Duration = Duration::from_secs(300);
/// Authorization servers: how long before its expiry a token is no longer used.
pub const TOKEN_MARGIN: Duration = Duration::from_secs(30);
/// A2A server: tasks that run at once, ended tasks whose streams can still be joined, and tasks whose push notification settings
/// are remembered.
pub const A2A_TASK_RUNS: usize = 256;
/// A2A server: minimum length, in characters, of a message id by which a message without a context is deduplicated.
pub const A2A_MESSAGE_KEY: usize = 16;
/// A2A server: status updates of one turn before its end.
pub const A2A_UPDATES: usize = 200;
/// A2A server: newest events of a conversation that are read after a turn; a turn has fewer.
pub const A2A_EVENTS: usize = 2_000;
/// A2A server: messages of the history of a task in a response.
pub const A2A_HISTORY_SHOWN: usize = 100;
/// A2A server: tasks on one page of a list, and contexts whose tasks are listed.
pub const A2A_LISTED: usize = 100;
/// A2A server: bytes of one push notification setting.
pub const A2A_PUSH: usize = 8 * 1024;
/// A2A server: push notification addresses of one task.
pub const A2A_PUSHES: usize = 4;
/// A2A server: attempts to send one push notification.
pub const A2A_PUSH_TRIES: u32 = 3;
/// A2A server: the pause before the second attempt; it doubles.
pub const A2A_PUSH_PAUSE: Duration = Duration::from_secs(1);
/// A2A server: time for one attempt.
pub const A2A_PUSH_WAIT: Duration = Duration::from_secs(10);
/// A2A server: turns that are read at once when the beginning of a task is searched.
pub const A2A_TURNS: usize = 32;
/// JWTs of callers: bytes of one token.
pub const JWT_TEXT: usize = 16 * 1024;
/// JWKS of an issuer: keys that are read.
pub const JWKS_KEYS: usize = 64;
/// JWKS of an issuer: keys that are tried for a token without a key id.
pub const JWKS_TRIED: usize = 8;
/// JWKS of an issuer: bytes of a response.
pub const JWKS_ANSWER: usize = 256 * 1024;
/// JWKS of an issuer: time for a response.
pub const JWKS_WAIT: Duration = Duration::from_secs(5);
/// JWKS of an issuer: age after which the keys are fetched again.
pub const JWKS_REFRESH_AFTER: Duration = Duration::from_secs(600);
/// JWKS of an issuer: the shortest time between two fetches.
pub const JWKS_MIN_INTERVAL: Duration = Duration::from_secs(10);
/// JWKS of an issuer: the greatest age at which the keys are used while the issuer does not respond.
pub const JWKS_MAX_AGE: Duration = Duration::from_secs(3_600);
