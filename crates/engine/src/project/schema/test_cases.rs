//! Keys of end-to-end test cases and of `conftest.yml`.

use super::{
    Key, MODEL, MapSchema,
    UnknownKeys::*,
    ValueType::{self, *},
    key,
};

const CASES: &str = "tests/**/*.yml";
const CONFTEST_FILE: &str = "tests/**/conftest.yml";

/// The slots of a fixture: a map, or a list of maps.
const FIXTURE: ValueType = AnyOf(&[Map(&Any), List(&AnyOf(&[Map(&Any), Null])), Null]);
/// The slots of a `slot_was_set` step: a name, a map `name: value`, or a list of both.
static SLOTS: [ValueType; 3] = [Text, Map(&Any), List(&AnyOf(&[Text, Map(&Any)]))];
/// The flows of an assertion.
static FLOWS: [ValueType; 3] = [Text, TextList, Section(&FLOWS_ASSERTION)];
static ACTION_STUB: ValueType = AnyOf(&[Section(&STUB_ACTION), Null]);
static TOOL_STUB: ValueType = AnyOf(&[Section(&STUB_TOOL), List(&Section(&STUB_TOOL))]);
static AGENT_STUB: ValueType = AnyOf(&[Section(&STUB_AGENT), List(&Section(&STUB_AGENT))]);

const FIXTURES: Key = key("fixtures", List(&Map(&FIXTURE)), "Named sets of slot values, one in each item.");
const METADATA: Key = key("metadata", List(&Map(&Map(&Any))), "Named metadata of messages, one in each item.");
const STUB_ACTIONS: Key = key(
    "stub_custom_actions",
    Map(&ACTION_STUB),
    "The results of custom actions, by `action` or `case::action`. With a stub, no custom action runs for real.",
);
const STUB_TOOLS: Key = key(
    "stub_mcp_tools",
    Map(&TOOL_STUB),
    "The results of tools, by `server.tool` or `case::server.tool`. A server with a stub is not started.",
);
const STUB_AGENTS: Key = key(
    "stub_agents",
    Map(&AGENT_STUB),
    "The messages and slots of agents, by `agent` or `case::agent`. The agent does not run.",
);
const STUB_LLM: Key = key(
    "stub_llm",
    Text,
    "The script of a scripted model that replaces every model. The path is relative to this file.",
);
const JUDGE: Key = key("llm_judge", Section(&LLM_JUDGE), "The model that judges generated texts.");
const ENDPOINTS: Key =
    key("endpoints", Text, "The endpoints file that replaces that of the project. The path is relative to this file.");
const VERSION: Key = key("version", Any, "The version of the format. Not needed.").accepted("");

/// A file of end-to-end cases.
pub(crate) static TEST_FILE: MapSchema = MapSchema::new("test file", CASES, Refused).keys(&[
    VERSION,
    FIXTURES,
    METADATA,
    STUB_ACTIONS,
    STUB_TOOLS,
    STUB_AGENTS,
    STUB_LLM,
    JUDGE,
    ENDPOINTS,
    key("test_cases", List(&Section(&TEST_CASE)), "The test cases.").required(),
]);

/// `conftest.yml`: the settings shared by all test files in its folder and the folders below.
pub(crate) static CONFTEST: MapSchema = MapSchema::new("conftest", CONFTEST_FILE, Refused).keys(&[
    VERSION,
    FIXTURES,
    METADATA,
    STUB_ACTIONS,
    STUB_TOOLS,
    STUB_AGENTS,
    STUB_LLM,
    JUDGE,
    ENDPOINTS,
    key(
        "llm_e2e_test_conversion",
        Map(&Any),
        "The settings of Rasa's test converter, which is not part of this program.",
    )
    .accepted(""),
]);

/// `llm_judge`.
pub(crate) static LLM_JUDGE: MapSchema = MapSchema::new("llm_judge", CONFTEST_FILE, Refused).keys(&[
    key("llm", Section(&MODEL), "The model: `model_group: <id>`, or the settings of a model.").required(),
    key("embeddings", Map(&Any), "A model to compare questions.")
        .accepted_with_warning("The judge model compares questions itself; embeddings are not used"),
]);

/// A test case.
pub(crate) static TEST_CASE: MapSchema = MapSchema::new("test case", CASES, Refused).keys(&[
    key("test_case", Text, "The name, unique in the file.").required(),
    key("fixtures", TextOrList, "The fixtures whose slots are set before the first step."),
    key("metadata", Text, "The name of the metadata of every message."),
    key("steps", List(&Section(&TEST_STEP)), "The messages of the user and the expectations.").required(),
]);

/// The keys that determine the kind of a test step. Each step has exactly one of them.
pub(crate) const TEST_STEP_KINDS: [&str; 6] = ["user", "bot", "utter", "slot_was_set", "slot_was_not_set", "commands"];

/// A step of a test case.
pub(crate) static TEST_STEP: MapSchema = MapSchema::new("test step", CASES, Refused).keys(&[
    key("user", Text, "A message of the user."),
    key("metadata", Text, "The name of the metadata of this message, merged over that of the test case."),
    key("assertions", List(&Section(&ASSERTION)), "Assertions about the events of this turn."),
    key("assertion_order_enabled", Bool, "Whether the events must occur in the order of the assertions.")
        .default("false"),
    key("commands", List(&Any), "The expected commands for this message, for `segue test du`."),
    key("bot", Text, "The exact text of a message of the assistant in this turn."),
    key("utter", Text, "The name of a response that the assistant sends in this turn."),
    key("slot_was_set", AnyOf(&SLOTS), "Slots that are set in this turn, optionally with their values."),
    key("slot_was_not_set", AnyOf(&SLOTS), "Slots that are not set in this turn, or not to this value. A value that was set and then rejected counts as set."),
]);

/// An assertion: a map of exactly one of these keys.
pub(crate) static ASSERTION: MapSchema = MapSchema::new("test assertion", CASES, Refused).keys(&[
    key("flow_started", AnyOf(&FLOWS), "Flows that started: an id, a list of ids, or `flow_ids` and `operator`."),
    key(
        "flow_completed",
        AnyOf(&[Text, Section(&FLOW_ASSERTION)]),
        "A flow that ended: its id, or `flow_id` and `flow_step_id` of its last step.",
    ),
    key(
        "flow_cancelled",
        AnyOf(&[Text, Section(&FLOW_ASSERTION)]),
        "A flow that was cancelled: its id, or `flow_id` and `flow_step_id` of its last active step.",
    ),
    key(
        "pattern_clarification_contains",
        AnyOf(&FLOWS),
        "Flows among which a clarification question asked the user to choose.",
    ),
    key("slot_was_set", List(&Section(&SLOT_ASSERTION)), "Slots that were set: `name`, and optionally `value`."),
    key(
        "slot_was_not_set",
        List(&Section(&SLOT_ASSERTION)),
        "Slots that were not set, or not to `value`: `name`, and optionally `value`.",
    ),
    key("action_executed", Text, "An action or a response that ran."),
    key(
        "bot_uttered",
        Section(&UTTERED),
        "A message of the assistant that has all of `utter_name`, `text_matches` and `buttons`.",
    ),
    key("bot_did_not_utter", Section(&UTTERED), "The same for a message that must not occur."),
    key(
        "generative_response_is_relevant",
        Section(&GENERATIVE),
        "A generated text that is relevant to the user's message, as judged by a model.",
    ),
    key(
        "generative_response_is_grounded",
        Section(&GENERATIVE),
        "A generated text whose statements are all grounded, as judged by a model.",
    ),
    key("agent_started", Text, "An agent that started its task."),
    key("agent_completed", Text, "An agent that completed its task."),
    key("agent_interrupted", Text, "An agent whose task was interrupted."),
    key("agent_resumed", Text, "An agent that resumed its task."),
    key("agent_cancelled", Text, "An agent whose task ended without a result."),
    key("tool_called", AnyOf(&[Text, Section(&TOOL_ASSERTION)]), "A tool that was called: its name, or a map."),
    key("tool_not_called", AnyOf(&[Text, Section(&TOOL_ASSERTION)]), "A tool that was not called: its name, or a map."),
    key("max_llm_calls", Integer, "The maximum number of model calls in this turn."),
    key("max_turn_latency_ms", Integer, "The maximum duration of this turn in milliseconds."),
]);

/// `flow_started` and `pattern_clarification_contains`.
pub(crate) static FLOWS_ASSERTION: MapSchema = MapSchema::new("list of flows", CASES, Refused).keys(&[
    key("flow_ids", TextOrList, "The flows.").required(),
    key("operator", OneOf(&["any", "all"]), "Whether one of the flows is enough (`any`) or all are needed.")
        .default("all"),
]);

/// `flow_completed` and `flow_cancelled`.
pub(crate) static FLOW_ASSERTION: MapSchema = MapSchema::new("flow of an assertion", CASES, Refused)
    .keys(&[key("flow_id", Text, "The flow.").required(), key("flow_step_id", Text, "The step at which it ended.")]);

/// An item of `slot_was_set` and `slot_was_not_set` as assertions.
pub(crate) static SLOT_ASSERTION: MapSchema = MapSchema::new("slot of an assertion", CASES, Refused).keys(&[
    key("name", Text, "The slot.").required(),
    key("value", Any, "The value; null for a slot that was reset. Default: any value."),
]);

/// `bot_uttered` and `bot_did_not_utter`.
pub(crate) static UTTERED: MapSchema = MapSchema::new("message of an assertion", CASES, Refused).keys(&[
    key("utter_name", Text, "The name of the response."),
    key("text_matches", Text, "A regular expression that matches a part of the text."),
    key("buttons", List(&Section(&UTTERED_BUTTON)), "The buttons, in order."),
]);

/// A button of an assertion.
pub(crate) static UTTERED_BUTTON: MapSchema = MapSchema::new("button of an assertion", CASES, Refused)
    .keys(&[key("title", Text, "The label.").required(), key("payload", Text, "The payload. Default: any.")]);

/// `generative_response_is_relevant` and `generative_response_is_grounded`, which a model judges.
pub(crate) static GENERATIVE: MapSchema = MapSchema::new("judged text", CASES, Refused).keys(&[
    key("threshold", Number, "The minimum score, from 0 to 1.").default("0.5"),
    key("utter_name", Text, "Judge only texts of this response."),
    key("utter_source", Text, "Judge only texts of this component, custom action or agent."),
    key("ground_truth", Text, "The facts to judge by. Default: the sources that the text was generated from."),
]);

/// `tool_called` and `tool_not_called`.
pub(crate) static TOOL_ASSERTION: MapSchema = MapSchema::new("tool of an assertion", CASES, Refused).keys(&[
    key("name", Text, "The tool.").required(),
    key("server", Text, "The server of the tool."),
    key("agent_id", Text, "The agent that calls the tool. Default: any agent or flow."),
    key("arguments", Map(&Any), "The arguments: values, or regular expressions that match a whole string."),
    key("success", Bool, "Whether the call succeeded or failed. Default: both."),
    key("times", Integer, "The number of calls. Default: at least one."),
]);

/// A stub of a custom action.
pub(crate) static STUB_ACTION: MapSchema = MapSchema::new("stub of an action", CASES, Refused).keys(&[
    key("events", List(&Map(&Any)), "Events in the format of an action server."),
    key("responses", List(&Map(&Any)), "Messages in the format of an action server."),
]);

/// A stub of a tool.
pub(crate) static STUB_TOOL: MapSchema = MapSchema::new("stub of a tool", CASES, Refused).keys(&[
    key("result", Any, "The result: a string, or a map for structured content."),
    key("error", Text, "The error message of a failed call."),
    key("outcome", OneOf(&["unknown"]), "`unknown`: it is not known whether the call had its effect."),
]);

/// A stub of an agent.
pub(crate) static STUB_AGENT: MapSchema = MapSchema::new("stub of an agent", CASES, Refused).keys(&[
    key("says", TextOrList, "The messages of the agent."),
    key("slots", Map(&Any), "The slots that the agent fills."),
    key("status", OneOf(&["awaiting_user", "finished", "failed"]), "The status at the end of the run.")
        .default("finished"),
]);
