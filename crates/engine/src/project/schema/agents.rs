//! Keys of `sub_agents/*/config.yml`.

use super::{DELEGATION, MODEL, MapSchema, OAUTH, UnknownKeys::*, ValueType::*, key, skills};

const FILE: &str = "sub_agents/*/config.yml";

/// The file.
pub(crate) static AGENT_FILE: MapSchema = MapSchema::new("agent's configuration", FILE, Refused).keys(&[
    key("version", Any, "The version of the format. Not needed.").accepted(""),
    key("agent", Section(&AGENT), "Its name, task and protocol.").required(),
    key("configuration", Section(&CONFIGURATION), "Its settings."),
    key("connections", Section(&CONNECTIONS), "The tool servers that it may use."),
    key("delegation", Section(&DELEGATION), "Whether it may start sub-agents, and which. Default: it may not."),
    key(
        "workspace",
        WORKSPACE,
        "Its tools for the folder of the conversation: `none`, `read` (`ls`, `read_file`, `glob`, `grep`), `files` (also `write_file`, `str_replace`), `commands` (also `bash`, which needs `sandbox` in `endpoints.yml`), or a list of tools.",
    )
    .default("none"),
    key("builtin_tools", Section(&BUILTIN_TOOLS), "Its built-in tools: the time, a wait, HTTP requests. Default: none."),
]);

/// `builtin_tools`.
pub(crate) static BUILTIN_TOOLS: MapSchema = MapSchema::new("`builtin_tools` section", FILE, Refused).keys(&[
    key("utils", Bool, "Whether it has `sleep` (at most 300 seconds) and `current_time`.").default("false"),
    key(
        "http",
        Section(&HTTP_TOOLS),
        "Its tools `http_get`, `http_post`, `http_put`, `http_patch` and `http_delete`. Default: none.",
    ),
]);

/// `builtin_tools.http`.
pub(crate) static HTTP_TOOLS: MapSchema = MapSchema::new("`http` section", FILE, Refused).keys(&[key(
    "allow",
    TextList,
    "The addresses that it may call: a host (`api.example.com`, by `https`), all hosts below one (`*.example.com`), or the beginning of an address (`http://localhost:8000/items/`). A host that is named may have a private address; others must be public.",
)
.required()]);

/// The tools of an agent for a workspace: a word for several, or their names.
pub(super) const WORKSPACE: super::ValueType = AnyOf(&[OneOf(&["none", "read", "files", "commands"]), TextList]);

/// `agent`.
pub(crate) static AGENT: MapSchema = MapSchema::new("`agent` section", FILE, Refused).keys(&[
    key("name", Text, "The name that `call` steps use.").required(),
    key("description", Text, "Its task. The model that chooses flows sees it too.").required(),
    key(
        "protocol",
        OneOfUnchecked(&["RASA", "A2A", "rasa", "a2a"]),
        "`RASA` for an agent of this project, `A2A` for a remote agent.",
    )
    .default("RASA"),
]);

/// `configuration`.
pub(crate) static CONFIGURATION: MapSchema = MapSchema::new("`configuration` section", FILE, Refused).keys(&[
    key("llm", Section(&MODEL), "The model: `model_group: <id>`, or the settings of a model."),
    key("prompt_template", Text, "The file of a prompt template that replaces the built-in one."),
    key("module", Text, "The name of registered hooks, or the URL of a hook server."),
    key("timeout", Seconds, "The time limit of a run in seconds."),
    key("max_retries", Integer, "The maximum number of attempts to connect to a server or remote agent in a run. The [pauses](limits.md) between them grow.").default("3"),
    key("include_date_time", Bool, "Whether prompts contain the date.").default("true"),
    key("timezone", Text, "The IANA time zone of that date.").default("UTC"),
    key("enable_filler_messages", Bool, "Whether text that the model writes together with tool calls is sent before the tools return.").default("true"),
    key("tool_timeout", Seconds, "The time limit of a tool call in seconds.").default("10"),
    key("max_iterations", PositiveInteger, "The maximum number of model calls in a run. Default: `10` in a conversation, where `40` is the most, and `40` in a mission."),
    key(
        "on_tool_error",
        OneOf(&["feed_back", "fail"]),
        "What happens after a failed tool call: the model gets the error (`feed_back`), or the run fails (`fail`). Then calls run one after the other, and those after the failed one in the same response are not started. Sub-agents follow it too.",
    ),
    key("agent_card", Text, "Remote agents: the file or URL of the agent card."),
    key("auth", Section(&AUTH), "Remote agents: the credentials for the agent."),
    key("hook_auth", Section(&AUTH), "Remote agents with a hook server: the credentials for the hook server."),
    key("max_polling_time", Seconds, "Remote agents: the time limit for a result in seconds.").default("60"),
    key("push_notification_url", Text, "Remote agents: the public URL of this server, to which they report the progress of long tasks."),
    key("use_streaming", Bool, "Remote agents: whether results are streamed, if the agent supports it.").default("true"),
    key("polling_initial_delay", Seconds, "Remote agents: the first pause between two polls in seconds.").default("0.5"),
    key("health_check", OneOf(&["card", "message", "none"]), "Remote agents: how the agent's health is checked.")
        .default("card"),
    key("message_means", OneOf(&["input_required", "completed"]), "Remote agents: the meaning of a message reply without a task.")
        .default("input_required"),
    key("forward_slots", TextList, "Remote agents: the slots that are sent. Default: all slots with a value."),
    key("output_mapping", List(&Section(&REMOTE_OUTPUT)), "Remote agents: the slots that the result fills."),
    key("tools", Map(&Section(&AGENT_TOOL)), "Rules for single tools, by tool name."),
    key(
        "confirm",
        OneOf(&["never", "writes"]),
        "`writes`: the user confirms every call of a tool whose effect class is not `read`.",
    )
    .default("never"),
    key(
        "taint",
        OneOf(&["trace", "confirm"]),
        "What happens if arguments of a tool call come from untrusted text: it is recorded in the trace (`trace`), or the user confirms the call (`confirm`).",
    ),
    key(
        "grounded",
        OneOf(&["off", "warn", "repair"]),
        "What happens if the agent claims an action that no tool performed: nothing (`off`), a warning in the trace (`warn`), or the model corrects its text (`repair`).",
    )
    .default("warn"),
    key("claims", List(&Section(&CLAIM)), "Further patterns of such claims, in addition to the built-in ones."),
    key(
        "filler_after",
        AnyOf(&[Number, Bool, Map(&AnyOf(&[Number, Bool]))]),
        "Seconds without a message after which a filler message is sent while tools run; or a map from channel to seconds.",
    ),
    key(
        "resume",
        OneOf(&["invoke", "repeat"]),
        "After an interruption: run the agent (`invoke`), or repeat its last question (`repeat`).",
    )
    .default("invoke"),
    key(
        "forward_metadata",
        TextList,
        "The keys of the message's metadata that are sent to a hook server or a remote agent.",
    ),
    key(
        "skills",
        AnyOf(&[OneOf(&["all"]), TextList]),
        "The Agent Skills that it may load: their names, or `all` of its folders. Default: none.",
    ),
    skills::SKILL_FOLDERS,
    skills::SKILL_SCRIPTS,
    skills::SKILLS_NARROW_TOOLS,
    skills::SKILLS_BY_USER,
    skills::TRUST,
]);

/// An entry of `tools` of an agent.
pub(crate) static AGENT_TOOL: MapSchema = MapSchema::new("tool rule", FILE, Refused).keys(&[
    key("effect", OneOf(&["read", "idempotent", "write"]), "The effect class of the tool. Default: from its server."),
    key("requires", Condition, "The condition that must be true when the tool is called."),
    key(
        "on_success",
        Text,
        "The response that the user is sent when a call has succeeded, before the model goes on. Its values are the arguments and the fields of the result.",
    ),
    key(
        "on_failure",
        Text,
        "The response that the user is sent when a call has certainly failed, before the model goes on. Its values are the arguments.",
    ),
    key("refusal", Text, "The text that the model gets when that condition is false."),
    key("confirm", Bool, "Whether the user confirms every call. Default: `confirm` of the agent."),
    key("max_calls", Integer, "The maximum number of calls in a task."),
]);

/// An item of `claims` of an agent.
pub(crate) static CLAIM: MapSchema = MapSchema::new("claim", FILE, Refused).keys(&[
    key("says", Text, "A regular expression that matches a sentence with the claim.").required(),
    key(
        "needs",
        TextOrList,
        "Tools of which one must have succeeded. Default: any tool whose effect class is not `read`.",
    ),
]);

/// `auth` of a remote agent.
pub(crate) static AUTH: MapSchema = MapSchema::new("`auth`", FILE, Refused).keys(&[
    key("api_key", Secret, "An API key, as `${NAME}`."),
    key("header_name", Text, "The header for the API key.").default("Authorization"),
    key("header_format", Text, "The value of that header, with `{key}`. Default: `Bearer {key}`."),
    key("oauth", Section(&OAUTH), "OAuth 2.0 client credentials."),
    key("token", Secret, "A bearer token, as `${NAME}`."),
    key(
        "hosts",
        TextList,
        "Hosts that a fetched agent card may refer to and that get the credentials too. Default: only the host of the card.",
    ),
]);

/// An item of `output_mapping` of a remote agent.
pub(crate) static REMOTE_OUTPUT: MapSchema = MapSchema::new("item of `output_mapping`", FILE, Refused).keys(&[
    key("slot", Text, "The slot.").required(),
    key("value", Text, "The value: an expression over `result`, such as `result.data.price`.").required(),
]);

/// `connections`.
pub(crate) static CONNECTIONS: MapSchema = MapSchema::new("`connections` section", FILE, Refused).keys(&[key(
    "mcp_servers",
    List(&Section(&CONNECTION)),
    "The MCP servers whose tools it may use.",
)]);

/// An item of `connections.mcp_servers`.
pub(crate) static CONNECTION: MapSchema = MapSchema::new("server of an agent", FILE, Refused).keys(&[
    key("name", Text, "The name of the server in `endpoints.yml`.").required(),
    key("include_tools", TextList, "Use only these tools."),
    key("exclude_tools", TextList, "Do not use these tools."),
]);
