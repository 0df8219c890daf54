//! Keys of end-to-end cases and of `conftest.yml`.

use super::{
    Key, MODEL, MapSchema,
    UnknownKeys::*,
    ValueType::{self, *},
    key,
};

const CASES: &str = "tests/**/*.yml";
const CONFTEST_FILE: &str = "tests/**/conftest.yml";

/// Slots and values of a fixture: a list of small maps, or one map.
const FIXTURE: ValueType = AnyOf(&[Map(&Any), List(&AnyOf(&[Map(&Any), Null])), Null]);
/// Slots of a step of their own: names, `name: value`, or a list of both.
static SLOTS: [ValueType; 3] = [Text, Map(&Any), List(&AnyOf(&[Text, Map(&Any)]))];
/// Flows of an assertion.
static FLOWS: [ValueType; 3] = [Text, Texts, Section(&FLOWS_ASSERTION)];
static ACTION_STUB: ValueType = AnyOf(&[Section(&STUB_ACTION), Null]);
static TOOL_STUB: ValueType = AnyOf(&[Section(&STUB_TOOL), List(&Section(&STUB_TOOL))]);
static AGENT_STUB: ValueType = AnyOf(&[Section(&STUB_AGENT), List(&Section(&STUB_AGENT))]);

const FIXTURES: Key = key("fixtures", List(&Map(&FIXTURE)), "Named sets of slot values, one per item.");
const METADATA: Key = key("metadata", List(&Map(&Map(&Any))), "Named metadata of messages, one per item.");
const STUB_ACTIONS: Key = key(
    "stub_custom_actions",
    Map(&ACTION_STUB),
    "What custom actions answer, by `action` or `case::action`; none runs for real where one is stubbed.",
);
const STUB_TOOLS: Key = key(
    "stub_mcp_tools",
    Map(&TOOL_STUB),
    "What tools answer, by `server.tool` or `case::server.tool`; a server with a stub is not started.",
);
const STUB_AGENTS: Key = key(
    "stub_agents",
    Map(&AGENT_STUB),
    "What agents say and fill, by `agent` or `case::agent`; the agent does not run.",
);
const STUB_LLM: Key =
    key("stub_llm", Text, "The script of a scripted model that answers for every model; beside this file.");
const JUDGE: Key = key("llm_judge", Section(&LLM_JUDGE), "The model that judges generated texts.");
const ENDPOINTS: Key =
    key("endpoints", Text, "The endpoints file of these cases in place of the project's; beside this file.");
const VERSION: Key = key("version", Any, "The format's version; conventional and not needed.").accepted("");

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
    key("test_cases", List(&Section(&TEST_CASE)), "The cases.").required(),
]);

/// `conftest.yml`: what the cases of a folder and of those below it share.
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
    key("llm_e2e_test_conversion", Map(&Any), "The model of a converter that is not part of this program.")
        .accepted(""),
]);

/// `llm_judge`.
pub(crate) static LLM_JUDGE: MapSchema = MapSchema::new("llm_judge", CONFTEST_FILE, Refused).keys(&[
    key("llm", Section(&MODEL), "The model: `model_group`, or `provider`, `model` and settings.").required(),
    key("embeddings", Map(&Any), "A model for comparing questions.")
        .warned("The judge compares questions itself; no embeddings are asked for"),
]);

/// A case.
pub(crate) static TEST_CASE: MapSchema = MapSchema::new("test case", CASES, Refused).keys(&[
    key("test_case", Text, "Its name, unique in the file.").required(),
    key("fixtures", TextOrTexts, "Fixtures whose slots are set before the first step."),
    key("metadata", Text, "Metadata of every message of this case."),
    key("steps", List(&Section(&TEST_STEP)), "What the user says, and what is expected.").required(),
]);

/// The keys that say what a step of a case is; each step has exactly one.
pub(crate) const TEST_STEP_KINDS: [&str; 6] = ["user", "bot", "utter", "slot_was_set", "slot_was_not_set", "commands"];

/// A step of a case.
pub(crate) static TEST_STEP: MapSchema = MapSchema::new("test step", CASES, Refused).keys(&[
    key("user", Text, "What the user says."),
    key("metadata", Text, "Metadata of this message, over that of the case."),
    key("assertions", List(&Section(&ASSERTION)), "What must hold for the events of this turn."),
    key("assertion_order_enabled", Bool, "Whether assertions must hold one after the other.").default("false"),
    key("commands", List(&Any), "The commands that this message means; for `segue test du`."),
    key("bot", Text, "A text of the assistant in this turn, exactly."),
    key("utter", Text, "A response of the assistant in this turn, by name."),
    key("slot_was_set", AnyOf(&SLOTS), "Slots that were set in this turn, with or without a value."),
    key("slot_was_not_set", AnyOf(&SLOTS), "Slots that were not set in this turn, or not to this value."),
]);

/// An assertion: a map of exactly one of these keys.
pub(crate) static ASSERTION: MapSchema = MapSchema::new("test assertion", CASES, Refused).keys(&[
    key("flow_started", AnyOf(&FLOWS), "Flows that began: an id, or `flow_ids` and `operator`."),
    key(
        "flow_completed",
        AnyOf(&[Text, Section(&FLOW_ASSERTION)]),
        "A flow that ended: `flow_id`, and `flow_step_id` of its last step.",
    ),
    key(
        "flow_cancelled",
        AnyOf(&[Text, Section(&FLOW_ASSERTION)]),
        "A flow that was stopped: `flow_id`, and `flow_step_id` where it stood.",
    ),
    key("pattern_clarification_contains", AnyOf(&FLOWS), "Flows that the user was asked to choose from."),
    key(
        "slot_was_set",
        List(&Section(&SLOT_ASSERTION)),
        "Slots that got a value: `name`, and `value` unless any will do.",
    ),
    key(
        "slot_was_not_set",
        List(&Section(&SLOT_ASSERTION)),
        "Slots that did not: `name`, and `value` where only that is unwanted.",
    ),
    key("action_executed", Text, "An action or a response that ran."),
    key("bot_uttered", Section(&UTTERED), "A message: `utter_name`, `text_matches`, `buttons`, all on the same one."),
    key("bot_did_not_utter", Section(&UTTERED), "The same, for a message that must not be there."),
    key("generative_response_is_relevant", Section(&GENERATIVE), "A generated text that answers what the user asked."),
    key(
        "generative_response_is_grounded",
        Section(&GENERATIVE),
        "A generated text that says nothing without a ground.",
    ),
    key("agent_started", Text, "An agent that began its task."),
    key("agent_completed", Text, "An agent that finished its task."),
    key("agent_interrupted", Text, "An agent whose task waits while the user does something else."),
    key("agent_resumed", Text, "An agent that goes on with its task."),
    key("agent_cancelled", Text, "An agent whose task is over without a result."),
    key("tool_called", AnyOf(&[Text, Section(&TOOL_ASSERTION)]), "A tool that was called: its name, or a map."),
    key("tool_not_called", AnyOf(&[Text, Section(&TOOL_ASSERTION)]), "A tool that was not called: its name, or a map."),
    key("max_llm_calls", Whole, "The most calls of models in this turn."),
    key("max_turn_latency_ms", Whole, "The longest this turn may take, in milliseconds."),
]);

/// `flow_started` and `pattern_clarification_contains`.
pub(crate) static FLOWS_ASSERTION: MapSchema = MapSchema::new("list of flows", CASES, Refused).keys(&[
    key("flow_ids", TextOrTexts, "The flows.").required(),
    key("operator", OneOf(&["any", "all"]), "Whether one of them is enough.").default("all"),
]);

/// `flow_completed` and `flow_cancelled`.
pub(crate) static FLOW_ASSERTION: MapSchema = MapSchema::new("flow of an assertion", CASES, Refused)
    .keys(&[key("flow_id", Text, "The flow.").required(), key("flow_step_id", Text, "The step at which it ended.")]);

/// An item of `slot_was_set` and `slot_was_not_set` as assertions.
pub(crate) static SLOT_ASSERTION: MapSchema = MapSchema::new("slot of an assertion", CASES, Refused).keys(&[
    key("name", Text, "The slot.").required(),
    key("value", Any, "Its value; any unless set, and null for a slot that was emptied."),
]);

/// `bot_uttered` and `bot_did_not_utter`.
pub(crate) static UTTERED: MapSchema = MapSchema::new("message of an assertion", CASES, Refused).keys(&[
    key("utter_name", Text, "The response it was made from."),
    key("text_matches", Text, "A regular expression that is found in its text."),
    key("buttons", List(&Section(&UTTERED_BUTTON)), "Its buttons, in order."),
]);

/// A button of an assertion.
pub(crate) static UTTERED_BUTTON: MapSchema = MapSchema::new("button of an assertion", CASES, Refused).keys(&[
    key("title", Text, "What is shown.").required(),
    key("payload", Text, "What is sent; not looked at unless set."),
]);

/// The two assertions that a model judges.
pub(crate) static GENERATIVE: MapSchema = MapSchema::new("judged text", CASES, Refused).keys(&[
    key("threshold", Number, "The least score, from 0 to 1.").default("0.5"),
    key("utter_name", Text, "Only texts made from this response."),
    key("utter_source", Text, "Also texts of this component, custom action or agent; only of it."),
    key("ground_truth", Text, "What is true; what the text was made from unless set."),
]);

/// `tool_called` and `tool_not_called`.
pub(crate) static TOOL_ASSERTION: MapSchema = MapSchema::new("tool of an assertion", CASES, Refused).keys(&[
    key("name", Text, "The tool.").required(),
    key("server", Text, "The server that has it."),
    key("agent_id", Text, "The agent that calls it; any, or a flow, unless set."),
    key("arguments", Map(&Any), "Arguments that it gets: values, or regular expressions that match all of a text."),
    key("success", Bool, "Whether it answered or failed; both unless set."),
    key("times", Whole, "How often; at least once unless set."),
]);

/// A stub of a custom action.
pub(crate) static STUB_ACTION: MapSchema = MapSchema::new("stub of an action", CASES, Refused).keys(&[
    key("events", List(&Map(&Any)), "Events, as an action server sends them."),
    key("responses", List(&Map(&Any)), "Messages, as an action server sends them."),
]);

/// A stub of a tool.
pub(crate) static STUB_TOOL: MapSchema = MapSchema::new("stub of a tool", CASES, Refused).keys(&[
    key("result", Any, "What it answers: a text, or a map for a structured answer."),
    key("error", Text, "What it says when it fails."),
]);

/// A stub of an agent.
pub(crate) static STUB_AGENT: MapSchema = MapSchema::new("stub of an agent", CASES, Refused).keys(&[
    key("says", TextOrTexts, "What it says."),
    key("slots", Map(&Any), "Slots that it fills."),
    key("status", OneOf(&["awaiting_user", "finished", "failed"]), "How the run ends.").default("finished"),
]);
