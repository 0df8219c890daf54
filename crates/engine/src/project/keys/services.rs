//! Keys of the sections of `endpoints.yml` that are neither models nor tool servers.

use super::{Shape, Takes, Unknown, key};

const FILE: &str = "endpoints.yml";
const NO_EXPORT: &str = "Nothing is exported; `segue trace` shows what happened";

/// `nlg`.
pub(crate) static NLG: Shape = Shape {
    name: "`nlg` section",
    file: FILE,
    keys: &[
        key("type", Takes::Text, "`rephrase`: a model says responses in other words."),
        key("rephrase_all", Takes::Bool, "Whether every response is rephrased; `false` unless set."),
        key("summarize_history", Takes::Bool, "Whether the conversation is summed up first.")
            .quietly("One call is made for a response, with the last turns as they were said"),
        key("max_historical_turns", Takes::Whole, "How many turns the model sees; 5 unless set."),
        key("prompt", Takes::Text, "A template of the project's own."),
        key("prompt_template", Takes::Text, "The same."),
        key("llm", Takes::Map, "`model_group: <id>`, or the model's settings in place."),
        key("model_group", Takes::Text, "The group, where it does not stand under `llm`."),
        key("trace_prompt_tokens", Takes::Bool, "Whether traces count tokens; they always do.").quiet(),
        key("url", Takes::Text, "Address of a server that words responses."),
        key("token", Takes::Text, "Sent to it as `?token=`, as `${NAME}`."),
        key("basic_auth", Takes::Map, "`username` and `password` for it."),
        key("headers", Takes::Map, "Headers of every request to it."),
        key("timeout", Takes::Seconds, "Longest time of an answer; 5 unless set."),
    ],
    unknown: Unknown::Warned,
};

/// `tracker_store`.
pub(crate) static TRACKER_STORE: Shape = Shape {
    name: "`tracker_store` section",
    file: FILE,
    keys: &[
        key("type", Takes::Text, "`SQL` with `dialect: sqlite`, `sqlite`, `segue`, or `in_memory`."),
        key("dialect", Takes::Text, "`sqlite`."),
        key("db", Takes::Any, "The file; unless set `rasa.db` for `SQL`, `.segue/segue.db` for `sqlite` and `segue`."),
        key("path", Takes::Text, "`sqlite` and `segue`: the same as `db`."),
        key(
            "synchronous",
            Takes::OneOf(&["full", "normal"]),
            "`full` unless set: a commit survives a loss of power. With `normal` the latest turns may be lost with the power.",
        ),
        key("url", Takes::Text, "Other databases: the host.").quiet(),
        key("port", Takes::Any, "Other databases: the port.").quiet(),
        key("username", Takes::Text, "Other databases: the user.").quiet(),
        key("password", Takes::Text, "Other databases: the password.").quiet(),
        key("login_db", Takes::Text, "PostgreSQL: the database of the login.").quiet(),
        key("query", Takes::Map, "Options of the driver.").quiet(),
    ],
    unknown: Unknown::Kept,
};

/// `lock_store`.
pub(crate) static LOCK_STORE: Shape = Shape {
    name: "`lock_store` section",
    file: FILE,
    keys: &[
        key("type", Takes::Text, "Any; messages of a conversation wait for one another without a lock store.").quiet(),
        key("host", Takes::Text, "The host.").quiet(),
        key("url", Takes::Text, "The host.").quiet(),
        key("port", Takes::Any, "The port.").quiet(),
        key("db", Takes::Any, "The database.").quiet(),
        key("username", Takes::Text, "The user.").quiet(),
        key("password", Takes::Text, "The password.").quiet(),
        key("key_prefix", Takes::Text, "What keys begin with.").quiet(),
        key("use_ssl", Takes::Any, "Whether the connection is encrypted.").quiet(),
        key("socket_timeout", Takes::Any, "Seconds.").quiet(),
    ],
    unknown: Unknown::Kept,
};

/// `interaction_handling`.
pub(crate) static INTERACTION: Shape = Shape {
    name: "`interaction_handling` section",
    file: FILE,
    keys: &[key("global_silence_timeout", Takes::Seconds, "Seconds of silence on voice channels; 7 unless set.")],
    unknown: Unknown::Warned,
};

/// `privacy`.
pub(crate) static PRIVACY: Shape = Shape {
    name: "`privacy` section",
    file: FILE,
    keys: &[
        key("tracker_store_settings", Takes::Map, "When stored events are made anonymous or deleted."),
        key("rules", Takes::List, "Which slots are hidden, and how."),
    ],
    unknown: Unknown::Warned,
};

/// `tracing`.
pub(crate) static TRACING: Shape = Shape {
    name: "`tracing` section",
    file: FILE,
    keys: &[
        key("type", Takes::Text, "`otlp`, `jaeger` or `langfuse`.").quietly(NO_EXPORT),
        key("tracers", Takes::List, "Several of them.").quietly(NO_EXPORT),
        key("endpoint", Takes::Text, "Where traces go.").quietly(NO_EXPORT),
        key("host", Takes::Text, "Where traces go.").quietly(NO_EXPORT),
        key("port", Takes::Any, "Where traces go.").quietly(NO_EXPORT),
        key("insecure", Takes::Any, "Whether the connection is plain.").quietly(NO_EXPORT),
        key("service_name", Takes::Text, "The name that traces carry.").quietly(NO_EXPORT),
        key("root_certificates", Takes::Text, "Certificates of that server.").quietly(NO_EXPORT),
        key("sync_export", Takes::Any, "Whether traces are written at once.").quietly(NO_EXPORT),
    ],
    unknown: Unknown::Kept,
};

/// `metrics`.
pub(crate) static METRICS: Shape = Shape {
    name: "`metrics` section",
    file: FILE,
    keys: &[
        key("type", Takes::Text, "`otlp`.").quietly(NO_EXPORT),
        key("endpoint", Takes::Text, "Where figures go.").quietly(NO_EXPORT),
        key("insecure", Takes::Any, "Whether the connection is plain.").quietly(NO_EXPORT),
        key("service_name", Takes::Text, "The name that figures carry.").quietly(NO_EXPORT),
        key("root_certificates", Takes::Text, "Certificates of that server.").quietly(NO_EXPORT),
    ],
    unknown: Unknown::Kept,
};

/// `server`.
pub(crate) static SERVER: Shape = Shape {
    name: "`server` section",
    file: FILE,
    keys: &[
        key("open_turns", Takes::Whole, "Messages that may be accepted and not yet answered; 256 unless set."),
        key("running_turns", Takes::Whole, "Turns that run at once, while other open ones wait; 256 unless set."),
        key(
            "turns_per_caller",
            Takes::Whole,
            "Open turns of one caller: a token's subject, else a sender; 8 unless set.",
        ),
        key(
            "expected_wait",
            Takes::Seconds,
            "The longest time to an answer that may be expected when a message is accepted; 30 unless set, or half of what a turn may take.",
        ),
        key("connections", Takes::Whole, "Connections that are open at once; 4096 unless set."),
        key(
            "connections_per_address",
            Takes::Whole,
            "The same from one address; 512 unless set, 0 for no limit. Addresses of this machine have none.",
        ),
    ],
    unknown: Unknown::Warned,
};

/// `http`.
pub(crate) static HTTP: Shape = Shape {
    name: "`http` section",
    file: FILE,
    keys: &[
        key(
            "proxy",
            Takes::Text,
            "Address of the proxy that outbound requests go through, such as `http://proxy.corp:3128`; `HTTP_PROXY`, `HTTPS_PROXY` and `ALL_PROXY` unless set.",
        ),
        key(
            "no_proxy",
            Takes::TextOrTexts,
            "Hosts that are reached directly: names with their subdomains, addresses, networks such as `10.0.0.0/8`, or `*` for all; `NO_PROXY` unless set. This machine always is.",
        ),
    ],
    unknown: Unknown::Warned,
};

/// `a2a_server`.
pub(crate) static A2A_SERVER: Shape = Shape {
    name: "`a2a_server` section",
    file: FILE,
    keys: &[
        key("description", Takes::Text, "What the assistant does, for other agents."),
        key("url", Takes::Text, "Its public address; where it listens unless set."),
        key("agent_card_path", Takes::Text, "A card that stands in a file; its address is put in."),
        key(
            "include_conversation_repair",
            Takes::Bool,
            "Whether what is not understood is asked about; else such a task is refused. `true` unless set.",
        ),
        key("task_timeout_seconds", Takes::Number, "How long a caller waits for a turn; 600 unless set, 0 for ever."),
        key(
            "a2a_message_cache_ttl_seconds",
            Takes::Number,
            "How long a repeated message is recognised; thirty days, always.",
        )
        .quiet(),
        key("max_contexts", Takes::Number, "Most conversations in memory; they are kept in the store.").quiet(),
        key("auth", Takes::Map, "Who may call."),
        key(
            "push_notifications",
            Takes::Bool,
            "Whether changes are reported to addresses that callers name; `true` unless set.",
        ),
        key(
            "payloads",
            Takes::Bool,
            "Whether messages such as `/SetSlots(…)` are read as payloads; `true` unless set, else they are words.",
        ),
    ],
    unknown: Unknown::Warned,
};

/// `auth` of `a2a_server`.
pub(crate) static A2A_AUTH: Shape = Shape {
    name: "`auth` of `a2a_server`",
    file: FILE,
    keys: &[
        key("token", Takes::Text, "The bearer token that callers must show, as `${NAME}`."),
        key("jwt", Takes::Map, "Which tokens of an authorization server are taken; beside `token`, or alone."),
    ],
    unknown: Unknown::Refused,
};

/// `jwt` of `a2a_server` and of channels.
pub(crate) static JWT: Shape = Shape {
    name: "`jwt` section",
    file: "endpoints.yml, credentials.yml",
    keys: &[
        key("issuer", Takes::Text, "Who signs the tokens, as their `iss` says it.").required(),
        key("audience", Takes::TextOrTexts, "For whom they are: one of these stands in their `aud`.").required(),
        key("jwks", Takes::Any, "The issuer's keys: an address, a JSON file of the project, or `keys` in place."),
        key(
            "secret",
            Takes::Text,
            "In place of `jwks`: a secret that both sides know, as `${NAME}`; 32 bytes or more.",
        ),
        key(
            "algorithms",
            Takes::Texts,
            "How they may be signed; RS256, ES256 and EdDSA with `jwks` and HS256 with `secret` unless set.",
        ),
        key("leeway", Takes::Number, "Seconds by which clocks may differ; 30 unless set, at most 300."),
        key("scope", Takes::Text, "Rights that every caller needs, with blanks between them."),
    ],
    unknown: Unknown::Refused,
};

/// `routing_strategy`, as the format names them; `in-order` asks them as they are listed.
const STRATEGIES: &[&str] = &[
    "simple-shuffle",
    "least-busy",
    "latency-based-routing",
    "cost-based-routing",
    "usage-based-routing",
    "usage-based-routing-v2",
    "in-order",
];

/// `router` of a model group.
pub(crate) static ROUTER: Shape = Shape {
    name: "`router`",
    file: FILE,
    keys: &[
        key("routing_strategy", Takes::OneOf(STRATEGIES), "How a model is chosen; `simple-shuffle` unless set."),
        key("cooldown_time", Takes::Number, "Seconds in which a model that failed is left alone."),
        key("allowed_fails", Takes::Number, "How often it may fail before that."),
        key("num_retries", Takes::Number, "How often a call is tried again, over all of them."),
        key(
            "fallbacks",
            Takes::Any,
            "Groups that stand in when all models of this one fail, in order: `[spare]`, or `[{main: [spare]}]` as LiteLLM has it.",
        ),
        key("use_chat_completions_endpoint", Takes::Any, "For servers of your own; it is always used.").quiet(),
        key("cache_responses", Takes::Any, "Whether answers are kept; they are not.").quiet(),
        key("redis_host", Takes::Text, "Where routers of several processes meet.").quiet(),
        key("redis_port", Takes::Any, "Where routers of several processes meet.").quiet(),
        key("redis_password", Takes::Text, "Where routers of several processes meet.").quiet(),
        key("redis_url", Takes::Text, "Where routers of several processes meet.").quiet(),
    ],
    unknown: Unknown::Kept,
};
