//! Keys of `sub_agents/*/config.yml`.

use super::{MODEL, MapSchema, OAUTH, UnknownKeys::*, ValueType::*, key};

const FILE: &str = "sub_agents/*/config.yml";

/// The file.
pub(crate) static AGENT_FILE: MapSchema = MapSchema::new("agent's configuration", FILE, Refused).keys(&[
    key("version", Any, "The format's version; conventional and not needed.").accepted(""),
    key("agent", Section(&AGENT), "Who it is.").required(),
    key("configuration", Section(&CONFIGURATION), "How it works."),
    key("connections", Section(&CONNECTIONS), "What it may use."),
]);

/// `agent`.
pub(crate) static AGENT: MapSchema = MapSchema::new("`agent` section", FILE, Refused).keys(&[
    key("name", Text, "Flows call it by this.").required(),
    key("description", Text, "Its task; the model that chooses flows sees it too.").required(),
    key(
        "protocol",
        Known(&["RASA", "A2A", "rasa", "a2a"]),
        "`RASA` for agents of this project, `A2A` for remote ones.",
    )
    .default("RASA"),
]);

/// `configuration`.
pub(crate) static CONFIGURATION: MapSchema = MapSchema::new("`configuration` section", FILE, Refused).keys(&[
    key("llm", Section(&MODEL), "`model_group: <id>`, or the model's settings in place."),
    key("prompt_template", Text, "A template of the project's own."),
    key("module", Text, "The name of registered hooks, or an HTTP address."),
    key("timeout", Seconds, "Longest time of a run."),
    key("max_retries", Whole, "Tries to connect.").default("3"),
    key("include_date_time", Bool, "Whether prompts show the date.").default("true"),
    key("timezone", Text, "IANA time zone of that date.").default("UTC"),
    key("enable_filler_messages", Bool, "Whether it speaks before its tools return.").default("true"),
    key("tool_timeout", Seconds, "Longest time of one tool call.").default("10"),
    key("max_iterations", Positive, "Model calls of one run."),
    key(
        "on_tool_error",
        OneOf(&["feed_back", "fail"]),
        "What a failed tool does: the model is told, or the run fails.",
    ),
    key("agent_card", Text, "Remote agents: the card's file or address."),
    key("auth", Section(&AUTH), "Remote agents: how we say who we are."),
    key("hook_auth", Section(&AUTH), "Remote agents with a hook server: how we say who we are to it."),
    key("max_polling_time", Seconds, "Remote agents: longest wait for a result.").default("60"),
    key("push_notification_url", Text, "Remote agents: our public address, under which they report on long tasks."),
    key("use_streaming", Bool, "Remote agents: whether answers come in pieces, where they can.").default("true"),
    key("polling_initial_delay", Seconds, "Remote agents: first pause between questions.").default("0.5"),
    key("health_check", OneOf(&["card", "message", "none"]), "Remote agents: how we see that they are there.")
        .default("card"),
    key("message_means", OneOf(&["input_required", "completed"]), "Remote agents: what an answer without a task is.")
        .default("input_required"),
    key("forward_slots", Texts, "Remote agents: the slots that they are told; all with a value unless set."),
    key("output_mapping", List(&Section(&REMOTE_OUTPUT)), "Remote agents: slots that are set from the result."),
    key("tools", Map(&Section(&AGENT_TOOL)), "Rules of single tools, by name."),
    key(
        "confirm",
        OneOf(&["never", "writes"]),
        "Whether every call that changes something is shown to the user first.",
    )
    .default("never"),
    key(
        "taint",
        OneOf(&["trace", "confirm"]),
        "What is done about arguments from texts nobody vouches for: recorded, or shown to the user first.",
    ),
    key(
        "grounded",
        OneOf(&["off", "warn", "repair"]),
        "What is done when it says that something is done that no tool did.",
    )
    .default("warn"),
    key("claims", List(&Section(&CLAIM)), "What counts as such a claim, beside the built-in ones."),
    key(
        "filler_after",
        AnyOf(&[Number, Bool, Map(&AnyOf(&[Number, Bool]))]),
        "Seconds of silence after which something is said while tools work; by channel as a map.",
    ),
    key(
        "resume",
        OneOf(&["invoke", "repeat"]),
        "After an interruption: run the agent, or say its last question again.",
    )
    .default("invoke"),
    key(
        "forward_metadata",
        Texts,
        "Keys of the metadata that may leave the process, to a hook server or a remote agent.",
    ),
]);

/// An entry of `tools` of an agent.
pub(crate) static AGENT_TOOL: MapSchema = MapSchema::new("tool rule", FILE, Refused).keys(&[
    key("effect", OneOf(&["read", "idempotent", "write"]), "What the tool does; as its server says unless set."),
    key("requires", Condition, "What must hold when it is called."),
    key("refusal", Text, "What the model is told when that does not hold."),
    key("confirm", Bool, "Whether the user is asked first; as the agent says unless set."),
    key("max_calls", Whole, "Calls of it in one task."),
]);

/// An item of `claims` of an agent.
pub(crate) static CLAIM: MapSchema = MapSchema::new("claim", FILE, Refused).keys(&[
    key("says", Text, "A regular expression that is found in a sentence with the claim.").required(),
    key("needs", TextOrTexts, "Tools of which one must have worked; any that changes something unless set."),
]);

/// `auth` of a remote agent.
pub(crate) static AUTH: MapSchema = MapSchema::new("`auth`", FILE, Refused).keys(&[
    key("api_key", Secret, "A key, as `${NAME}`."),
    key("header_name", Text, "The header that carries it.").default("Authorization"),
    key("header_format", Text, "Its value, with `{key}`; `Bearer {key}` unless set."),
    key("oauth", Section(&OAUTH), "Client credentials."),
    key("token", Secret, "A bearer token, as `${NAME}`."),
    key(
        "hosts",
        Texts,
        "Hosts that a fetched card may name and that are told it as well; the card's own host alone unless set.",
    ),
]);

/// An item of `output_mapping` of a remote agent.
pub(crate) static REMOTE_OUTPUT: MapSchema = MapSchema::new("item of `output_mapping`", FILE, Refused).keys(&[
    key("slot", Text, "The slot.").required(),
    key("value", Text, "What it gets: an expression over `result`, such as `result.data.price`.").required(),
]);

/// `connections`.
pub(crate) static CONNECTIONS: MapSchema = MapSchema::new("`connections` section", FILE, Refused).keys(&[key(
    "mcp_servers",
    List(&Section(&CONNECTION)),
    "The servers whose tools it may use.",
)]);

/// An item of `connections.mcp_servers`.
pub(crate) static CONNECTION: MapSchema = MapSchema::new("server of an agent", FILE, Refused).keys(&[
    key("name", Text, "The server's name in `endpoints.yml`.").required(),
    key("include_tools", Texts, "Only these tools."),
    key("exclude_tools", Texts, "Not these tools."),
]);
