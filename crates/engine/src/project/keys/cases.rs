//! Keys of end-to-end cases and of `conftest.yml`.

use super::{Key, Shape, Takes, Unknown, key};

const CASES: &str = "tests/**/*.yml";
const CONFTEST_FILE: &str = "tests/**/conftest.yml";

const FIXTURES: Key = key("fixtures", Takes::List, "Named sets of slot values, one per item.");
const METADATA: Key = key("metadata", Takes::List, "Named metadata of messages, one per item.");
const STUB_ACTIONS: Key = key(
    "stub_custom_actions",
    Takes::Map,
    "What custom actions answer, by `action` or `case::action`; none runs for real where one is stubbed.",
);
const STUB_TOOLS: Key = key(
    "stub_mcp_tools",
    Takes::Map,
    "What tools answer, by `server.tool` or `case::server.tool`; a server with a stub is not started.",
);
const STUB_AGENTS: Key =
    key("stub_agents", Takes::Map, "What agents say and fill, by `agent` or `case::agent`; the agent does not run.");
const STUB_LLM: Key =
    key("stub_llm", Takes::Text, "The script of a scripted model that answers for every model; beside this file.");
const JUDGE: Key = key("llm_judge", Takes::Map, "The model that judges generated texts.");
const ENDPOINTS: Key =
    key("endpoints", Takes::Text, "The endpoints file of these cases in place of the project's; beside this file.");
const VERSION: Key = key("version", Takes::Any, "The format's version; conventional and not needed.").quiet();

/// A file of end-to-end cases.
pub(crate) static TEST_FILE: Shape = Shape {
    name: "test file",
    file: CASES,
    keys: &[
        VERSION,
        FIXTURES,
        METADATA,
        STUB_ACTIONS,
        STUB_TOOLS,
        STUB_AGENTS,
        STUB_LLM,
        JUDGE,
        ENDPOINTS,
        key("test_cases", Takes::List, "The cases.").required(),
    ],
    unknown: Unknown::Refused,
};

/// `conftest.yml`: what the cases of a folder and of those below it share.
pub(crate) static CONFTEST: Shape = Shape {
    name: "conftest",
    file: CONFTEST_FILE,
    keys: &[
        VERSION,
        FIXTURES,
        METADATA,
        STUB_ACTIONS,
        STUB_TOOLS,
        STUB_AGENTS,
        STUB_LLM,
        JUDGE,
        ENDPOINTS,
        key("llm_e2e_test_conversion", Takes::Map, "The model of a converter that is not part of this program.")
            .quiet(),
    ],
    unknown: Unknown::Refused,
};

/// `llm_judge`.
pub(crate) static JUDGE_SHAPE: Shape = Shape {
    name: "llm_judge",
    file: CONFTEST_FILE,
    keys: &[
        key("llm", Takes::Map, "The model: `model_group`, or `provider`, `model` and settings.").required(),
        key("embeddings", Takes::Map, "A model for comparing questions.")
            .warned("The judge compares questions itself; no embeddings are asked for"),
    ],
    unknown: Unknown::Refused,
};

/// A case.
pub(crate) static TEST_CASE: Shape = Shape {
    name: "test case",
    file: CASES,
    keys: &[
        key("test_case", Takes::Text, "Its name, unique in the file.").required(),
        key("fixtures", Takes::TextOrTexts, "Fixtures whose slots are set before the first step."),
        key("metadata", Takes::Text, "Metadata of every message of this case."),
        key("steps", Takes::List, "What the user says, and what is expected.").required(),
    ],
    unknown: Unknown::Refused,
};

/// The keys that say what a step of a case is; each step has exactly one.
pub(crate) const TEST_STEP_KINDS: [&str; 6] = ["user", "bot", "utter", "slot_was_set", "slot_was_not_set", "commands"];

/// A step of a case.
pub(crate) static TEST_STEP: Shape = Shape {
    name: "test step",
    file: CASES,
    keys: &[
        key("user", Takes::Text, "What the user says."),
        key("metadata", Takes::Text, "Metadata of this message, over that of the case."),
        key("assertions", Takes::List, "What must hold for the events of this turn."),
        key("assertion_order_enabled", Takes::Bool, "Whether assertions must hold one after the other."),
        key("commands", Takes::List, "The commands that this message means; for `segue test du`."),
        key("bot", Takes::Text, "A text of the assistant in this turn, exactly."),
        key("utter", Takes::Text, "A response of the assistant in this turn, by name."),
        key("slot_was_set", Takes::Any, "Slots that were set in this turn, with or without a value."),
        key("slot_was_not_set", Takes::Any, "Slots that were not set in this turn, or not to this value."),
    ],
    unknown: Unknown::Refused,
};

/// An assertion: a map of exactly one of these keys.
pub(crate) static ASSERTION: Shape = Shape {
    name: "test assertion",
    file: CASES,
    keys: &[
        key("flow_started", Takes::Any, "Flows that began: an id, or `flow_ids` and `operator`."),
        key("flow_completed", Takes::Any, "A flow that ended: `flow_id`, and `flow_step_id` of its last step."),
        key("flow_cancelled", Takes::Any, "A flow that was stopped: `flow_id`, and `flow_step_id` where it stood."),
        key("pattern_clarification_contains", Takes::Any, "Flows that the user was asked to choose from."),
        key("slot_was_set", Takes::List, "Slots that got a value: `name`, and `value` unless any will do."),
        key("slot_was_not_set", Takes::List, "Slots that did not: `name`, and `value` where only that is unwanted."),
        key("action_executed", Takes::Text, "An action or a response that ran."),
        key("bot_uttered", Takes::Map, "A message: `utter_name`, `text_matches`, `buttons`, all on the same one."),
        key("bot_did_not_utter", Takes::Map, "The same, for a message that must not be there."),
        key("generative_response_is_relevant", Takes::Map, "A generated text that answers what the user asked."),
        key("generative_response_is_grounded", Takes::Map, "A generated text that says nothing without a ground."),
        key("agent_started", Takes::Text, "An agent that began its task."),
        key("agent_completed", Takes::Text, "An agent that finished its task."),
        key("agent_interrupted", Takes::Text, "An agent whose task waits while the user does something else."),
        key("agent_resumed", Takes::Text, "An agent that goes on with its task."),
        key("agent_cancelled", Takes::Text, "An agent whose task is over without a result."),
        key("tool_called", Takes::Any, "A tool that was called: its name, or a map."),
        key("tool_not_called", Takes::Any, "A tool that was not called: its name, or a map."),
        key("max_llm_calls", Takes::Whole, "The most calls of models in this turn."),
        key("max_turn_latency_ms", Takes::Whole, "The longest this turn may take, in milliseconds."),
    ],
    unknown: Unknown::Refused,
};

/// `flow_started` and `pattern_clarification_contains`.
pub(crate) static FLOWS_ASSERTION: Shape = Shape {
    name: "list of flows",
    file: CASES,
    keys: &[
        key("flow_ids", Takes::TextOrTexts, "The flows.").required(),
        key("operator", Takes::OneOf(&["any", "all"]), "Whether one of them is enough; `all` unless set."),
    ],
    unknown: Unknown::Refused,
};

/// `flow_completed` and `flow_cancelled`.
pub(crate) static FLOW_ASSERTION: Shape = Shape {
    name: "flow of an assertion",
    file: CASES,
    keys: &[
        key("flow_id", Takes::Text, "The flow.").required(),
        key("flow_step_id", Takes::Text, "The step at which it ended."),
    ],
    unknown: Unknown::Refused,
};

/// An item of `slot_was_set` and `slot_was_not_set` as assertions.
pub(crate) static SLOT_ASSERTION: Shape = Shape {
    name: "slot of an assertion",
    file: CASES,
    keys: &[
        key("name", Takes::Text, "The slot.").required(),
        key("value", Takes::Any, "Its value; any unless set, and null for a slot that was emptied."),
    ],
    unknown: Unknown::Refused,
};

/// `bot_uttered` and `bot_did_not_utter`.
pub(crate) static UTTERED: Shape = Shape {
    name: "message of an assertion",
    file: CASES,
    keys: &[
        key("utter_name", Takes::Text, "The response it was made from."),
        key("text_matches", Takes::Text, "A regular expression that is found in its text."),
        key("buttons", Takes::List, "Its buttons, in order."),
    ],
    unknown: Unknown::Refused,
};

/// A button of an assertion.
pub(crate) static UTTERED_BUTTON: Shape = Shape {
    name: "button of an assertion",
    file: CASES,
    keys: &[
        key("title", Takes::Text, "What is shown.").required(),
        key("payload", Takes::Text, "What is sent; not looked at unless set."),
    ],
    unknown: Unknown::Refused,
};

/// The two assertions that a model judges.
pub(crate) static GENERATIVE: Shape = Shape {
    name: "judged text",
    file: CASES,
    keys: &[
        key("threshold", Takes::Number, "The least score, from 0 to 1; 0.5 unless set."),
        key("utter_name", Takes::Text, "Only texts made from this response."),
        key("utter_source", Takes::Text, "Also texts of this component, custom action or agent; only of it."),
        key("ground_truth", Takes::Text, "What is true; what the text was made from unless set."),
    ],
    unknown: Unknown::Refused,
};

/// `tool_called` and `tool_not_called`.
pub(crate) static TOOL_ASSERTION: Shape = Shape {
    name: "tool of an assertion",
    file: CASES,
    keys: &[
        key("name", Takes::Text, "The tool.").required(),
        key("server", Takes::Text, "The server that has it."),
        key("agent_id", Takes::Text, "The agent that calls it; any, or a flow, unless set."),
        key(
            "arguments",
            Takes::Map,
            "Arguments that it gets: values, or regular expressions that match all of a text.",
        ),
        key("success", Takes::Bool, "Whether it answered or failed; both unless set."),
        key("times", Takes::Whole, "How often; at least once unless set."),
    ],
    unknown: Unknown::Refused,
};

/// A stub of a custom action.
pub(crate) static STUB_ACTION: Shape = Shape {
    name: "stub of an action",
    file: CASES,
    keys: &[
        key("events", Takes::List, "Events, as an action server sends them."),
        key("responses", Takes::List, "Messages, as an action server sends them."),
    ],
    unknown: Unknown::Refused,
};

/// A stub of a tool.
pub(crate) static STUB_TOOL: Shape = Shape {
    name: "stub of a tool",
    file: CASES,
    keys: &[
        key("result", Takes::Any, "What it answers: a text, or a map for a structured answer."),
        key("error", Takes::Text, "What it says when it fails."),
    ],
    unknown: Unknown::Refused,
};

/// A stub of an agent.
pub(crate) static STUB_AGENT: Shape = Shape {
    name: "stub of an agent",
    file: CASES,
    keys: &[
        key("says", Takes::TextOrTexts, "What it says."),
        key("slots", Takes::Map, "Slots that it fills."),
        key(
            "status",
            Takes::OneOf(&["awaiting_user", "finished", "failed"]),
            "How the run ends; `finished` unless set.",
        ),
    ],
    unknown: Unknown::Refused,
};
