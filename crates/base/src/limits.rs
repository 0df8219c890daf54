//! Every size, count and time limit of the running parts with its default, in one table. The limits of loading and of the
//! dialogue are in the package `segue-engine`, those of conditions and templates in `segue-lang`.

use std::time::Duration;

/// Project: bytes of one prompt or other text file.
pub const PROJECT_TEXT: usize = 1024 * 1024;
/// Model: time to connect.
pub const MODEL_CONNECT: Duration = Duration::from_secs(3);
/// Model: from the request to the first event of the answer.
pub const MODEL_FIRST_TOKEN: Duration = Duration::from_secs(15);
/// Model: between two events of an answer.
pub const MODEL_IDLE: Duration = Duration::from_secs(10);
/// Model: events that an answer gives in twice [`MODEL_IDLE`], or twice its `idle_timeout`, at least.
pub const MODEL_RATE: u64 = 8;
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
/// Model: blocks of one answer, on wires that have them: texts, calls and thoughts.
pub const MODEL_BLOCKS: usize = 256;
/// Model: bytes of thoughts in one answer that are kept, to be given back with the results of its calls.
pub const MODEL_THOUGHTS: usize = 256 * 1024;
/// Model: tokens of one answer on the messages wire, where neither the request nor the model's entry says otherwise: the wire
/// wants a figure.
pub const MODEL_TOKENS: u32 = 4_096;
/// Model: places of one prompt that are marked for the vendor's cache; the messages wire refuses more.
pub const MODEL_CACHE_MARKS: usize = 4;
/// Model: tries of one call, the first included.
pub const MODEL_TRIES: u32 = 2;
/// Model: time that all tries of one call may take together beyond the first.
pub const MODEL_RETRY_BUDGET: Duration = Duration::from_secs(10);
/// Model: failures of one member of a group, within [`MODEL_FAILS_WITHIN`], after which it is left alone; `allowed_fails`
/// of the router says otherwise.
pub const MODEL_FAILS: usize = 5;
/// Model: how long a failure is held against a member of a group.
pub const MODEL_FAILS_WITHIN: Duration = Duration::from_secs(30);
/// Model: how long a member that failed too often is left alone; `cooldown_time` of the router says otherwise.
pub const MODEL_COOLDOWN: Duration = Duration::from_secs(30);
/// Model: the same for a member whose account has no quota left.
pub const MODEL_COOLDOWN_QUOTA: Duration = Duration::from_secs(600);
/// Model: the longest wait that a vendor's `Retry-After` is believed.
pub const MODEL_RETRY_AFTER: Duration = Duration::from_secs(3_600);
/// Model: how soon the end of a call is expected that tries whether a member answers again.
pub const MODEL_PROBE_NEAR: Duration = Duration::from_secs(1);
/// Model: how long the quickness of a member is remembered.
pub const MODEL_LATENCY_KEPT: Duration = Duration::from_secs(300);
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
/// Turn: times that it is tried, in all processes together; then it ends with one message to the user.
pub const TURN_ATTEMPTS: u32 = 3;
/// Turn: open turns whose outcomes are kept in memory until the store takes them; those of others are as after a crash.
pub const TURNS_UNSAVED: usize = 1_024;
/// Turn: model calls.
pub const TURN_MODEL_CALLS: u32 = 40;
/// Loop: model calls.
pub const LOOP_MODEL_CALLS: u32 = 12;
/// Reminders: the longest pause between two looks at what is due; another process may have set one, or a clock have jumped.
pub const TIMER_PACE: Duration = Duration::from_secs(15);
/// Reminders: conversations whose reminders are fired at once.
pub const TIMERS_AT_ONCE: usize = 64;
/// Reminders: the first pause after a reminder of a conversation could not be fired; it doubles with each failure.
pub const TIMER_BACKOFF: Duration = Duration::from_secs(15);
/// Reminders: the longest such pause.
pub const TIMER_BACKOFF_MOST: Duration = Duration::from_secs(3600);
/// Recovery: conversations whose open turns are finished at once, beside the messages that arrive.
pub const RECOVERY_AT_ONCE: usize = 8;
/// Agent: iterations of one run.
pub const AGENT_ITERATIONS: u32 = 10;
/// Agent: rendered prompts of one agent kept for its next runs; one for each step that calls it.
pub const AGENT_PROMPTS: usize = 64;
/// Agent: utterances of the conversation shown.
pub const AGENT_HISTORY: usize = 10;
/// Agent: answers in a row whose tool calls all failed that a run may have; one more ends it.
pub const AGENT_FAILURES: u32 = 3;
/// Agent: texts that are said while the calls of one answer work.
pub const FILLERS: usize = 3;
/// Agent: times that one run is asked to take back a claim that nothing proves.
pub const AGENT_REPAIRS: u32 = 1;
/// Agent: arguments of one call that are looked for in what was said and read; of further ones the event names no origin.
pub const AGENT_ORIGINS: usize = 64;
/// Hooks: texts that one call of a hook may say.
pub const HOOK_SPEECH: usize = 8;
/// Hooks: one call of a hook server.
pub const HOOK_DEADLINE: Duration = Duration::from_secs(10);
/// Hooks: bytes of one answer of a hook server.
pub const HOOK_ANSWER: usize = 1024 * 1024;
/// Hooks: tools that a hook server may add.
pub const HOOK_TOOLS: usize = 32;
/// Pins: bytes of the file that keeps them.
pub const PIN_FILE: u64 = 4 * 1024 * 1024;
/// Agent: bytes of tool exchanges that one run keeps for the user's next turns of one task; calls of tools that change something
/// are kept beyond it.
pub const AGENT_EXCHANGES: usize = 64 * 1024;
/// Agent: bytes to which a text of a tool exchange is cut at most, where the exchanges of a run are too long.
pub const AGENT_EXCHANGE_LEAST: usize = 1024;
/// Commands: utterances of the conversation shown to the command generator.
pub const COMMAND_HISTORY: usize = 20;
/// Commands: characters of one earlier utterance that are shown.
pub const COMMAND_UTTERANCE: usize = 1_000;
/// Commands: bytes of one slot's value, as JSON, that are shown.
pub const COMMAND_VALUE: usize = 500;
/// Commands: tokens of one answer, where neither the project nor the model's entry says otherwise.
pub const COMMAND_TOKENS: u32 = 256;
/// Commands: the same for models that think unseen; their thoughts count.
pub const COMMAND_TOKENS_THINKING: u32 = 4_096;
/// Rephraser: one call, where neither the project nor the model's entry sets a timeout.
pub const REPHRASE_WAIT: Duration = Duration::from_secs(5);
/// Rephraser: how freely it chooses words, where the project sets no temperature.
pub const REPHRASE_TEMPERATURE: f64 = 0.3;
/// Rephraser: tokens of one answer, where the project sets no limit.
pub const REPHRASE_TOKENS: u32 = 256;
/// Rephraser: utterances of the conversation that are shown, whatever the project asks for.
pub const REPHRASE_LINES: usize = 40;
/// Import: events that are brought over at once.
pub const IMPORT_EVENTS: usize = 1_000_000;
/// Import: bytes of one line.
pub const IMPORT_LINE: usize = 4 * 1024 * 1024;
/// Import: rows that were left out and are told one by one.
pub const IMPORT_TOLD: usize = 1_000;
/// Response server: one answer, where the project sets no timeout.
pub const NLG_WAIT: Duration = Duration::from_secs(5);
/// Response server: bytes of one answer.
pub const NLG_BODY: usize = 256 * 1024;
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
/// Embeddings: texts in one request.
pub const EMBED_BATCH: usize = 128;
/// Embeddings: bytes of one text that are sent; models read about 8,000 tokens.
pub const EMBED_TEXT: usize = 16 * 1024;
/// Embeddings: bytes of one answer.
pub const EMBED_ANSWER: usize = 32 * 1024 * 1024;
/// Embeddings: numbers in one vector.
pub const EMBED_DIMENSIONS: usize = 8_192;
/// Embeddings: vectors kept in memory by the content of their text; 4,096 numbers each make 32 MiB.
pub const EMBED_CACHE: usize = 2_048;
/// Embeddings: time for one request, when the model's entry sets none.
pub const EMBED_WAIT: Duration = Duration::from_secs(10);
/// Embeddings: after a failure, words are compared for so long before the service is asked again.
pub const EMBED_PAUSE: Duration = Duration::from_secs(30);
/// Flow retrieval: characters of one flow that are compared.
pub const RETRIEVAL_FLOW: usize = 4_000;
/// Flow retrieval: characters of the text that flows are compared with, the newest.
pub const RETRIEVAL_QUERY: usize = 4_000;
/// Knowledge: documents read from a folder.
pub const KNOWLEDGE_FILES: usize = 2_000;
/// Knowledge: levels of folders below the one that is named.
pub const KNOWLEDGE_DEPTH: usize = 16;
/// Knowledge: bytes of one document.
pub const KNOWLEDGE_FILE: usize = 4 * 1024 * 1024;
/// Knowledge: passages of all documents.
pub const KNOWLEDGE_PASSAGES: usize = 20_000;
/// Knowledge: characters of one passage.
pub const KNOWLEDGE_PASSAGE: usize = 1_000;
/// Knowledge: passages that an answer is made from.
pub const KNOWLEDGE_SHOWN: usize = 4;
/// Knowledge: characters of the question that documents are compared with, the newest.
pub const KNOWLEDGE_QUERY: usize = 2_000;
/// Knowledge: characters of one slot's value that the model is shown.
pub const KNOWLEDGE_VALUE: usize = 500;
/// Knowledge: tokens of one answer, where the model's entry says nothing.
pub const KNOWLEDGE_TOKENS: u32 = 512;
/// Knowledge: time for one request to a vector store, when its entry sets none.
pub const KNOWLEDGE_WAIT: Duration = Duration::from_secs(10);
/// Knowledge: bytes of one answer of a vector store.
pub const KNOWLEDGE_ANSWER: usize = 4 * 1024 * 1024;
/// Tool: time for one call, when the agent sets no `tool_timeout`.
pub const TOOL_DEADLINE: Duration = Duration::from_secs(10);
/// Tool: time for one call that keeps telling how far it is, when its server sets no `tool_timeout_total`; less than a turn may
/// take, so that something can still be said of it.
pub const TOOL_TOTAL: Duration = Duration::from_secs(45);
/// Tool: pieces of news of one call that its record keeps, the newest.
pub const TOOL_NEWS: usize = 32;
/// Tool: characters of one piece of news that are kept and, where that is allowed, shown.
pub const TOOL_NEWS_TEXT: usize = 200;
/// Tool: bytes of one result shown to the model.
pub const TOOL_RESULT: usize = 64 * 1024;
/// Tool: bytes of one raw result.
pub const TOOL_RAW_RESULT: usize = 4 * 1024 * 1024;
/// Tool: time beyond its deadline in which a tool may still say how it ended, so that the record is complete.
pub const TOOL_GRACE: Duration = Duration::from_secs(1);
/// Tool: problems with its arguments that the model is told at once.
pub const TOOL_PROBLEMS: usize = 8;
/// Tool: bytes of a name; models take no longer ones.
pub const TOOL_NAME: usize = 64;
/// Action server: time for one action, where `timeout` of the endpoint sets none; half of what a turn may take, so that the flow
/// can still say something afterwards.
pub const ACTION_DEADLINE: Duration = Duration::from_secs(30);
/// Action server: bytes of one request before they are compressed.
pub const ACTION_REQUEST: usize = 16 * 1024 * 1024;
/// Action server: bytes of one answer.
pub const ACTION_ANSWER: usize = 4 * 1024 * 1024;
/// Action server: time for an answer about its health or its actions.
pub const ACTION_HEALTH: Duration = Duration::from_secs(5);
/// Module of actions: time from the start of the child to its first answer.
pub const ACTION_START: Duration = Duration::from_secs(45);
/// Module of actions: pause between two looks whether the child answers.
pub const ACTION_POLL: Duration = Duration::from_millis(50);
/// Module of actions: pauses before the first, second, … new start; the last holds for all further ones.
pub const ACTION_BACKOFF: [Duration; 5] =
    [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(30), Duration::from_secs(120)];
/// Module of actions: a child that lived this long had a good life: the pauses begin anew.
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
/// MCP: levels of JSON in one tool schema; about half as many schemas inside one another.
pub const MCP_SCHEMA_DEPTH: usize = 32;
/// MCP: steps that a pattern with look-around may take on one argument.
pub const MCP_PATTERN_STEPS: usize = 100_000;
/// MCP: bytes of one line or one event; a little more than [`TOOL_RAW_RESULT`], for its wrapping.
pub const MCP_LINE: usize = TOOL_RAW_RESULT + 64 * 1024;
/// MCP: lines on standard output that are no messages, after which a server is given up.
pub const MCP_NOISE: usize = 20;
/// MCP: bytes of standard error kept of one server, the newest.
pub const MCP_STDERR: usize = 64 * 1024;
/// MCP: calls waiting for one server.
pub const MCP_QUEUE: usize = 64;
/// MCP: connections made to one server within [`MCP_RECONNECT_WINDOW`].
pub const MCP_RECONNECTS: usize = 5;
/// MCP: the window in which [`MCP_RECONNECTS`] are counted.
pub const MCP_RECONNECT_WINDOW: Duration = Duration::from_secs(10 * 60);
/// MCP: pauses before the first, second, … new connection after a failure.
pub const MCP_BACKOFF: [Duration; MCP_RECONNECTS] = [
    Duration::ZERO,
    Duration::from_millis(500),
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
];
/// MCP: the longest pause before a new connection that a call waits for; longer ones fail it at once.
pub const MCP_BACKOFF_WAIT: Duration = Duration::from_secs(1);
/// MCP: a connection that lived this long was a good one: the pauses begin anew.
pub const MCP_STABLE: Duration = Duration::from_secs(60);
/// MCP over HTTP: requests in a row that fail although the server answers pings; then the session is replaced, if it is older than
/// [`MCP_STABLE`].
pub const MCP_LOST: usize = 20;
/// MCP: bytes of the answer of a token server.
pub const MCP_TOKEN: usize = 64 * 1024;
/// MCP: questions that a server may ask during one call.
pub const MCP_QUESTIONS: usize = 8;
/// MCP: rights that the challenges of one server may ask for; more are not asked for.
pub const MCP_SCOPES: usize = 64;
/// MCP: bytes of one right that a challenge asks for; a longer one is not asked for.
pub const MCP_SCOPE: usize = 256;
/// MCP: how long the file of a login is waited for while another process changes it.
pub const MCP_LOGIN_LOCK: Duration = Duration::from_secs(8);
/// MCP: how long a login is refreshed at most, whether anybody waits for it or not.
pub const MCP_REFRESH: Duration = Duration::from_secs(30);
/// MCP: bytes that a server may have our model read at once.
pub const MCP_SAMPLE: usize = 32 * 1024;
/// MCP: tokens of one answer of our model to a server.
pub const MCP_SAMPLE_TOKENS: u32 = 1_000;
/// MCP: how long `segue mcp login` waits for consent.
pub const MCP_CONSENT: Duration = Duration::from_secs(5 * 60);
/// MCP: time for the answer to a ping, sent after a call was too late.
pub const MCP_PING: Duration = Duration::from_secs(3);
/// MCP: time for a child to end after its input closed, and again after it was asked to.
pub const MCP_CLOSE: Duration = Duration::from_millis(500);
/// MCP: time for a notice of cancellation to leave.
pub const MCP_CANCEL: Duration = Duration::from_secs(1);
/// MCP: the shortest time between two pieces of news of one call.
pub const MCP_PROGRESS: Duration = Duration::from_millis(100);
/// MCP server: tools in one page of the list.
pub const MCP_SERVED_PAGE: usize = 64;
/// MCP server: bytes of one message on standard input; over HTTP the limit is that of every body ([`BODY`]).
pub const MCP_SERVED_LINE: usize = BODY;
/// MCP server: sessions open at once over HTTP.
pub const MCP_SERVED_SESSIONS: usize = 256;
/// MCP server: silence after which a session over HTTP ends.
pub const MCP_SERVED_IDLE: Duration = Duration::from_secs(30 * 60);
/// MCP server: calls of one session that may be under way.
pub const MCP_SERVED_CALLS: usize = 16;
/// MCP server: talks of one session whose transcripts it may read, the newest.
pub const MCP_SERVED_TALKS: usize = 256;
/// MCP server: events of a talk that its transcript is made of, the newest.
pub const MCP_SERVED_EVENTS: usize = 2_000;
/// MCP server: characters that a key against repetitions has at least where there is no session.
pub const MCP_SERVED_KEY: usize = 16;
/// MCP server: questions that are put to the person during one call.
pub const MCP_SERVED_QUESTIONS: usize = 16;
/// MCP server: fields of one form.
pub const MCP_SERVED_FIELDS: usize = 12;
/// MCP server: time for the person to answer one.
pub const MCP_SERVED_ANSWER: Duration = Duration::from_secs(10 * 60);
/// Mailbox: messages waiting in one conversation.
pub const MAILBOX: usize = 8;
/// Admission: turns that run at once in one process; `running_turns` of `server` in endpoints.yml says otherwise.
pub const TURNS_IN_FLIGHT: usize = 256;
/// Admission: turns that are accepted and not answered; `open_turns` of `server` says otherwise.
pub const OPEN_TURNS: usize = 256;
/// Admission: open turns of one caller, who is the subject of a token, or else the sender; `turns_per_caller` of `server` says
/// otherwise.
pub const TURNS_PER_CALLER: usize = 8;
/// Admission: the longest time to an answer that may be expected when a message is accepted; `expected_wait` of `server` says
/// otherwise. Where a turn may take longer than twice this, half of its time.
pub const EXPECTED_WAIT: Duration = Duration::from_secs(30);
/// Admission: open turns up to which nobody is refused for the expected wait.
pub const ADMITTED_ALWAYS: usize = 8;
/// Admission: turns that go on without a place in the budget after their callers have left.
pub const TURNS_LEFT: usize = 64;
/// Admission: turns over which the time of a turn is averaged.
pub const TURN_TIME_WEIGHT: u32 = 16;
/// Admission: the longest time after which a caller is asked to try again.
pub const RETRY_AFTER_MOST: Duration = Duration::from_secs(60);
/// Admission: the shortest time between two lines in the log that say that messages are refused.
pub const OVERLOAD_TOLD: Duration = Duration::from_secs(10);
/// Mailbox: busy conversations that are looked at, when one more comes, before the search for an idle one ends.
pub const MAILBOX_LOOKS: usize = 8;
/// Mailbox: how long a message may wait to be accepted; an accepted one waits as long as the turns before it take.
pub const MAILBOX_WAIT: Duration = Duration::from_secs(30);
/// Server: bytes of one request body.
pub const BODY: usize = 1024 * 1024;
/// Journal: how long records are kept.
pub const JOURNAL_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);
/// Duplicates: how long a message id is remembered; as long as the message itself, so that every channel forgets it at the same time.
pub const DUPLICATE_MEMORY: Duration = JOURNAL_RETENTION;
/// Store: replies of one conversation that may wait for delivery; older ones are given up.
pub const OUTBOX: usize = 256;
/// Outbox: how long replies wait for their user to write again, from the last event of the conversation; then they are given up.
pub const OUTBOX_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Outbox: conversations whose replies wait for a channel that reaches its users by itself.
pub const OUTBOX_WAITING: usize = 10_000;
/// Store: writes that may wait for the writer; more wait outside, in their callers.
pub const STORE_QUEUE: usize = 1024;
/// Store: writes that share one transaction.
pub const STORE_GROUP: usize = 256;
/// Store: conversation heads that the writer keeps in memory.
pub const STORE_HEADS: usize = 8192;
/// Store: connections for reading.
pub const STORE_READERS: usize = 4;
/// Store: how long a write waits for another process that holds the file.
pub const STORE_BUSY: Duration = Duration::from_secs(5);
/// Store in memory: conversations; beyond them those go that were idle for longest.
pub const MEMORY_CONVERSATIONS: usize = 50_000;
/// Store in memory: turns of the whole process whose journals and traces are kept.
pub const MEMORY_TRACED: usize = 1_000;
/// Store: conversations that one list holds at most.
pub const CONVERSATIONS_LISTED: usize = 10_000;
/// Conversations kept in memory while they are idle; more are read from the store when they speak again, which doubles what a short
/// turn costs.
pub const CACHED_CONVERSATIONS: usize = 2048;
/// Store: batches between two snapshots of a conversation.
pub const SNAPSHOT_EVERY: u64 = 16;
/// Tests: cases that run at the same time unless the command line says otherwise.
pub const TEST_JOBS: usize = 4;
/// Tests: cases that may run at the same time, whatever the command line says.
pub const TEST_JOBS_MOST: usize = 64;
/// Tests: bytes of one recording.
pub const TEST_TAPE: usize = 64 * 1024 * 1024;
/// Tests: characters of one line in a report of a failure.
pub const TEST_LINE: usize = 400;
/// Closing tool sources at the end of the process.
pub const CLOSE: Duration = Duration::from_secs(5);
/// Channel: pieces of an answer that wait for a client to read them.
pub const CHANNEL_QUEUE: usize = 256;
/// Channel: how long a turn waits for a client whose queue is full.
pub const CHANNEL_PATIENCE: Duration = Duration::from_secs(5);
/// Channel: silence on a stream after which a sign of life leaves.
pub const HEARTBEAT: Duration = Duration::from_secs(15);
/// Channel: bytes of a sender's or a message's id.
pub const WIRE_NAME: usize = 512;
/// Server: bytes of all request bodies that are in memory at once.
pub const BODIES: usize = 64 * 1024 * 1024;
/// Server: connections that are open at once; `connections` of `server` in endpoints.yml says otherwise.
pub const CONNECTIONS: usize = 4096;
/// Server: connections from one address; `connections_per_address` of `server` says otherwise. Addresses of this machine have no limit.
pub const CONNECTIONS_PER_ADDRESS: usize = 512;
/// Server: bytes of the head of one request.
pub const HEAD: usize = 32 * 1024;
/// Server: time for the head of a request, from its first byte.
pub const HEAD_READ: Duration = Duration::from_secs(10);
/// Server: time that a connection may wait for a request.
pub const CONNECTION_IDLE: Duration = Duration::from_secs(75);
/// Server: time that a client may leave an answer unread.
pub const WRITE_STALLED: Duration = Duration::from_secs(30);
/// Server: how often it is looked which connections are past these times.
pub const CONNECTION_LOOK: Duration = Duration::from_secs(1);
/// Server: the pause after no connection could be taken, as when the process has no file left.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Server: connections without a request that are closed in this case, those that waited longest.
pub const FILES_FREED: usize = 16;
/// Server: time for requests whose head is on its way when the server is told to end.
pub const CLOSING_GRACE: Duration = Duration::from_secs(1);
/// Server: time to read one request body.
pub const BODY_READ: Duration = Duration::from_secs(10);
/// Server: how long turns that run at the end may still take.
pub const DRAIN: Duration = Duration::from_secs(30);
/// Server: time for the store to answer a question about its health.
pub const HEALTH: Duration = Duration::from_secs(2);
/// Server: how long it counts that the store answered a question about its health.
pub const READY_KEPT: Duration = Duration::from_secs(5);
/// Server: how often what is past its retention is removed.
pub const EXPIRY_PACE: Duration = Duration::from_secs(24 * 3600);
/// Channels: bytes of what a client says beside a message, as JSON, unless `metadata_bytes` of the channel is set. It is stored with the
/// message, and kept in memory with its conversation.
pub const METADATA: usize = 16 * 1024;
/// Remote agents: time for one request and its first answer, unless `timeout` is set.
pub const A2A_REQUEST: Duration = Duration::from_secs(30);
/// Remote agents: the longest wait for a task by questions, unless `max_polling_time` is set.
pub const A2A_PATIENCE: Duration = Duration::from_secs(60);
/// Remote agents: the first pause between two questions, unless `polling_initial_delay` is set.
pub const A2A_PAUSE: Duration = Duration::from_millis(500);
/// Remote agents: the longest pause between two questions or two tries; pauses double until then.
pub const A2A_PAUSE_MOST: Duration = Duration::from_secs(5);
/// Remote agents: silence on a stream after which it counts as gone.
pub const A2A_SILENCE: Duration = Duration::from_secs(60);
/// Remote agents: how long a card is believed.
pub const A2A_CARD_LIFE: Duration = Duration::from_secs(300);
/// Remote agents: the pause before the second try to get a card.
pub const A2A_CARD_PAUSE: Duration = Duration::from_secs(1);
/// Remote agents: tries of a message that the other side surely did not act on.
pub const A2A_TRIES: u32 = 3;
/// Remote agents: the pause before the second try; it doubles.
pub const A2A_TRY_PAUSE: Duration = Duration::from_secs(1);
/// Remote agents: time to ask that a task be stopped.
pub const A2A_CANCEL: Duration = Duration::from_secs(5);
/// Remote agents: time that a message which is under way gets for its first answer after the user spoke on: then it is given up, and
/// whether it was taken is not known.
pub const A2A_SHELTER: Duration = Duration::from_secs(5);
/// Remote agents: questions for a task in a row that may fail; one more gives the task up.
pub const A2A_POLL_FAILS: u32 = 3;
/// Remote agents: messages that may be exchanged about one task. Each costs the user one; more is a circle.
pub const A2A_EXCHANGES: u64 = 50;
/// Remote agents: texts that one run may pass on while it works.
pub const A2A_SAID: usize = 100;
/// Remote agents: messages of a task's history that are asked for.
pub const A2A_HISTORY: u32 = 20;
/// Remote agents: bytes of one answer.
pub const A2A_ANSWER: usize = 5 * 1024 * 1024;
/// Remote agents: bytes of one event of a stream.
pub const A2A_EVENT: usize = 1024 * 1024;
/// Remote agents: bytes of a task that is put together from a stream.
pub const A2A_TASK: usize = 4 * 1024 * 1024;
/// Remote agents: bytes of a file in place, in base64, that a result keeps; of a larger one only its name is kept.
pub const A2A_FILE: usize = 64 * 1024;
/// Remote agents: characters of a reason of theirs that an operator sees.
pub const A2A_WORDS: usize = 400;
/// Tokens of authorization servers: time for one, unless `oauth.timeout` is set.
pub const TOKEN_WAIT: Duration = Duration::from_secs(10);
/// Tokens of authorization servers: bytes of an answer.
pub const TOKEN_ANSWER: usize = 64 * 1024;
/// Tokens of authorization servers: how long one is kept whose server does not say.
pub const TOKEN_LIFE: Duration = Duration::from_secs(300);
/// Tokens of authorization servers: how long before its end one is no longer used.
pub const TOKEN_MARGIN: Duration = Duration::from_secs(30);
/// Offered agent: tasks that may run at once, tasks that ended whose streams can still be joined, and tasks of which is
/// remembered where they are reported.
pub const A2A_COURSES: usize = 256;
/// Offered agent: characters of a message's id from which on a message without a context is found again by it.
pub const A2A_MESSAGE_KEY: usize = 16;
/// Offered agent: updates that one turn tells beside its end.
pub const A2A_UPDATES: usize = 200;
/// Offered agent: newest events of a conversation that are read after a turn; a turn has fewer.
pub const A2A_EVENTS: usize = 2_000;
/// Offered agent: messages of a task's history that are shown.
pub const A2A_HISTORY_SHOWN: usize = 100;
/// Offered agent: tasks of one page of a list, and contexts whose tasks are listed.
pub const A2A_LISTED: usize = 100;
/// Offered agent: bytes that tell where a task is reported.
pub const A2A_PUSH: usize = 8 * 1024;
/// Offered agent: addresses that one task is reported to.
pub const A2A_PUSHES: usize = 4;
/// Offered agent: tries of one report.
pub const A2A_PUSH_TRIES: u32 = 3;
/// Offered agent: the pause before the second try of a report; it doubles.
pub const A2A_PUSH_PAUSE: Duration = Duration::from_secs(1);
/// Offered agent: time for one try of a report.
pub const A2A_PUSH_WAIT: Duration = Duration::from_secs(10);
/// Served agents: turns that are read at once, back to the beginning of a task.
pub const A2A_TURNS: usize = 32;
/// Tokens of callers: bytes of one.
pub const JWT_TEXT: usize = 16 * 1024;
/// Keys of an issuer: how many are read.
pub const JWKS_KEYS: usize = 64;
/// Keys of an issuer: how many are tried for a token that names none.
pub const JWKS_TRIED: usize = 8;
/// Keys of an issuer: bytes of an answer.
pub const JWKS_ANSWER: usize = 256 * 1024;
/// Keys of an issuer: time for an answer.
pub const JWKS_WAIT: Duration = Duration::from_secs(5);
/// Keys of an issuer: how long they are used before they are asked for again.
pub const JWKS_LIFE: Duration = Duration::from_secs(600);
/// Keys of an issuer: the shortest time between two questions.
pub const JWKS_PAUSE: Duration = Duration::from_secs(10);
/// Keys of an issuer: how long they are used at most while the issuer does not answer.
pub const JWKS_STALE: Duration = Duration::from_secs(3_600);
