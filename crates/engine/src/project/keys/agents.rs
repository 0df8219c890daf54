//! Keys of `sub_agents/*/config.yml`.

use super::{Shape, Takes, Unknown, key};

const FILE: &str = "sub_agents/*/config.yml";

/// The file.
pub(crate) static AGENT_FILE: Shape = Shape {
    name: "agent's configuration",
    file: FILE,
    keys: &[
        key("version", Takes::Any, "The format's version; conventional and not needed.").quiet(),
        key("agent", Takes::Map, "Who it is.").required(),
        key("configuration", Takes::Map, "How it works."),
        key("connections", Takes::Map, "What it may use."),
    ],
    unknown: Unknown::Refused,
};

/// `agent`.
pub(crate) static AGENT: Shape = Shape {
    name: "`agent` section",
    file: FILE,
    keys: &[
        key("name", Takes::Text, "Flows call it by this.").required(),
        key("description", Takes::Text, "Its task; the model that chooses flows sees it too.").required(),
        key("protocol", Takes::Text, "`RASA` for agents of this project, `A2A` for remote ones; `RASA` unless set."),
    ],
    unknown: Unknown::Refused,
};

/// `configuration`.
pub(crate) static CONFIGURATION: Shape = Shape {
    name: "`configuration` section",
    file: FILE,
    keys: &[
        key("llm", Takes::Map, "`model_group: <id>`, or the model's settings in place."),
        key("prompt_template", Takes::Text, "A template of the project's own."),
        key("module", Takes::Text, "The name of registered hooks, or an HTTP address."),
        key("timeout", Takes::Seconds, "Longest time of a run."),
        key("max_retries", Takes::Whole, "Tries to connect; 3 unless set."),
        key("include_date_time", Takes::Bool, "Whether prompts show the date; `true` unless set."),
        key("timezone", Takes::Text, "IANA time zone of that date; `UTC` unless set."),
        key("enable_filler_messages", Takes::Bool, "Whether it speaks before its tools return; `true` unless set."),
        key("tool_timeout", Takes::Seconds, "Longest time of one tool call; 10 unless set."),
        key("max_iterations", Takes::Positive, "Model calls of one run."),
        key(
            "on_tool_error",
            Takes::OneOf(&["feed_back", "fail"]),
            "What a failed tool does: the model is told, or the run fails.",
        ),
        key("agent_card", Takes::Text, "Remote agents: the card's file or address."),
        key("auth", Takes::Map, "Remote agents: how we say who we are."),
        key("hook_auth", Takes::Map, "Remote agents with a hook server: how we say who we are to it."),
        key("max_polling_time", Takes::Seconds, "Remote agents: longest wait for a result; 60 unless set."),
        key(
            "push_notification_url",
            Takes::Text,
            "Remote agents: our public address, under which they report on long tasks.",
        ),
        key(
            "use_streaming",
            Takes::Bool,
            "Remote agents: whether answers come in pieces, where they can; `true` unless set.",
        ),
        key("polling_initial_delay", Takes::Seconds, "Remote agents: first pause between questions; 0.5 unless set."),
        key(
            "health_check",
            Takes::OneOf(&["card", "message", "none"]),
            "Remote agents: how we see that they are there; `card` unless set.",
        ),
        key(
            "message_means",
            Takes::OneOf(&["input_required", "completed"]),
            "Remote agents: what an answer without a task is; `input_required` unless set.",
        ),
        key("forward_slots", Takes::Texts, "Remote agents: the slots that they are told; all with a value unless set."),
        key("output_mapping", Takes::List, "Remote agents: slots that are set from the result."),
        key("tools", Takes::Map, "Rules of single tools, by name."),
        key(
            "confirm",
            Takes::OneOf(&["never", "writes"]),
            "Whether every call that changes something is shown to the user first; `never` unless set.",
        ),
        key(
            "taint",
            Takes::OneOf(&["trace", "confirm"]),
            "What is done about arguments from texts nobody vouches for: recorded, or shown to the user first.",
        ),
        key(
            "grounded",
            Takes::OneOf(&["off", "warn", "repair"]),
            "What is done when it says that something is done that no tool did; `warn` unless set.",
        ),
        key("claims", Takes::List, "What counts as such a claim, beside the built-in ones."),
        key(
            "filler_after",
            Takes::Any,
            "Seconds of silence after which something is said while tools work; by channel as a map.",
        ),
        key(
            "resume",
            Takes::OneOf(&["invoke", "repeat"]),
            "After an interruption: run the agent, or say its last question again; `invoke` unless set.",
        ),
        key(
            "forward_metadata",
            Takes::Texts,
            "Keys of the metadata that may leave the process, to a hook server or a remote agent.",
        ),
    ],
    unknown: Unknown::Refused,
};

/// An entry of `tools` of an agent.
pub(crate) static AGENT_TOOL: Shape = Shape {
    name: "tool rule",
    file: FILE,
    keys: &[
        key(
            "effect",
            Takes::OneOf(&["read", "idempotent", "write"]),
            "What the tool does; as its server says unless set.",
        ),
        key("requires", Takes::Condition, "What must hold when it is called."),
        key("refusal", Takes::Text, "What the model is told when that does not hold."),
        key("confirm", Takes::Bool, "Whether the user is asked first; as the agent says unless set."),
        key("max_calls", Takes::Whole, "Calls of it in one task."),
    ],
    unknown: Unknown::Refused,
};

/// An item of `claims` of an agent.
pub(crate) static CLAIM: Shape = Shape {
    name: "claim",
    file: FILE,
    keys: &[
        key("says", Takes::Text, "A regular expression that is found in a sentence with the claim.").required(),
        key("needs", Takes::TextOrTexts, "Tools of which one must have worked; any that changes something unless set."),
    ],
    unknown: Unknown::Refused,
};

/// `auth` of a remote agent.
pub(crate) static AUTH: Shape = Shape {
    name: "`auth`",
    file: FILE,
    keys: &[
        key("api_key", Takes::Text, "A key, as `${NAME}`."),
        key("header_name", Takes::Text, "The header that carries it; `Authorization` unless set."),
        key("header_format", Takes::Text, "Its value, with `{key}`; `Bearer {key}` unless set."),
        key("oauth", Takes::Map, "Client credentials."),
        key("token", Takes::Text, "A bearer token, as `${NAME}`."),
        key(
            "hosts",
            Takes::Texts,
            "Hosts that a fetched card may name and that are told it as well; the card's own host alone unless set.",
        ),
    ],
    unknown: Unknown::Refused,
};

/// An item of `output_mapping` of a remote agent.
pub(crate) static REMOTE_OUTPUT: Shape = Shape {
    name: "item of `output_mapping`",
    file: FILE,
    keys: &[
        key("slot", Takes::Text, "The slot.").required(),
        key("value", Takes::Text, "What it gets: an expression over `result`, such as `result.data.price`.").required(),
    ],
    unknown: Unknown::Refused,
};

/// `connections`.
pub(crate) static CONNECTIONS: Shape = Shape {
    name: "`connections` section",
    file: FILE,
    keys: &[key("mcp_servers", Takes::List, "The servers whose tools it may use.")],
    unknown: Unknown::Refused,
};

/// An item of `connections.mcp_servers`.
pub(crate) static CONNECTION: Shape = Shape {
    name: "server of an agent",
    file: FILE,
    keys: &[
        key("name", Takes::Text, "The server's name in `endpoints.yml`.").required(),
        key("include_tools", Takes::Texts, "Only these tools."),
        key("exclude_tools", Takes::Texts, "Not these tools."),
    ],
    unknown: Unknown::Refused,
};
