//! Keys of the other sections of `endpoints.yml`: stores, NLG, tracing, the server and authentication.

use super::{BASIC_AUTH, MODEL, MapSchema, UnknownKeys::*, ValueType::*, key};

const FILE: &str = "endpoints.yml";
pub(super) const NO_VOICE: &str = "Voice channels are not implemented";
const NO_PRIVACY: &str = "These rules are not applied; events are stored unchanged";
const NO_EXPORT: &str = "Nothing is exported; use `segue trace`";

/// `nlg`.
pub(crate) static NLG: MapSchema = MapSchema::new("`nlg` section", FILE, IgnoredWithWarning).keys(&[
    key("type", Text, "`rephrase`: a model rephrases responses."),
    key("rephrase_all", Bool, "Whether every response is rephrased, not only those with `rephrase: true`.")
        .default("false"),
    key("summarize_history", Bool, "Whether the conversation is summarised before rephrasing.")
        .accepted("The prompt always contains the last turns unchanged"),
    key("max_historical_turns", Integer, "How many of the last turns are in the prompt.").default("5"),
    key("prompt_template", Text, "The file of a prompt template that replaces the built-in one.").aliases(&["prompt"]),
    key("llm", Section(&MODEL), "The model: `model_group: <id>`, or the settings of a model."),
    key("model_group", Text, "The model group, if it is not set under `llm`."),
    key("trace_prompt_tokens", Bool, "Whether traces contain token counts. They always do.").accepted(""),
    key("url", Text, "The URL of an NLG server that generates responses."),
    key("token", Secret, "A token that is sent to the NLG server as `?token=`, as `${NAME}`."),
    key("basic_auth", Section(&BASIC_AUTH), "HTTP Basic credentials for the NLG server."),
    key("headers", Map(&Text), "Headers of every request to the NLG server."),
    key("timeout", Seconds, "The time limit of a request in seconds.").default("5"),
]);

/// `tracker_store`.
pub(crate) static TRACKER_STORE: MapSchema = MapSchema::new("`tracker_store` section", FILE, Allowed).keys(&[
    key("type", Text, "The store: `SQL` with `dialect: sqlite`, `sqlite`, `segue`, or `in_memory`."),
    key("dialect", Text, "With `SQL`: the database; only `sqlite` is supported."),
    key("db", Any, "The database file. Default: `rasa.db` for `SQL`, `.segue/segue.db` for `sqlite` and `segue`."),
    key("path", Text, "With `sqlite` and `segue`: an alternative to `db`."),
    key(
        "synchronous",
        OneOf(&["full", "normal"]),
        "SQLite's `synchronous` setting. `full`: commits survive a power failure. `normal`: a power failure may lose the latest turns.",
    )
    .default("full"),
    key("url", Text, "Other databases: the host.").accepted(""),
    key("port", Any, "Other databases: the port.").accepted(""),
    key("username", Text, "Other databases: the user.").accepted(""),
    key("password", Text, "Other databases: the password.").accepted(""),
    key("login_db", Text, "PostgreSQL: the database for the login.").accepted(""),
    key("query", Map(&Any), "Options of the driver.").accepted(""),
]);

/// `lock_store`.
pub(crate) static LOCK_STORE: MapSchema = MapSchema::new("`lock_store` section", FILE, Allowed).keys(&[
    key("type", Text, "The lock store. The messages of a conversation are processed in order without one.")
        .accepted(""),
    key("host", Text, "The host of the lock store.").accepted(""),
    key("url", Text, "The host of the lock store.").accepted(""),
    key("port", Any, "The port of the lock store.").accepted(""),
    key("db", Any, "The database of the lock store.").accepted(""),
    key("username", Text, "The user of the lock store.").accepted(""),
    key("password", Text, "The password of the lock store.").accepted(""),
    key("key_prefix", Text, "The prefix of all keys.").accepted(""),
    key("use_ssl", Any, "Whether the connection uses TLS.").accepted(""),
    key("socket_timeout", Any, "The socket timeout in seconds.").accepted(""),
]);

/// `interaction_handling`.
pub(crate) static INTERACTION: MapSchema = MapSchema::new("`interaction_handling` section", FILE, IgnoredWithWarning)
    .keys(&[key("global_silence_timeout", Seconds, "Seconds of silence on voice channels.").accepted(NO_VOICE)]);

/// `privacy`.
pub(crate) static PRIVACY: MapSchema = MapSchema::new("`privacy` section", FILE, IgnoredWithWarning).keys(&[
    key("tracker_store_settings", Map(&Any), "When stored events are anonymised or deleted.").accepted(NO_PRIVACY),
    key("rules", List(&Any), "Which slots are anonymised, and how.").accepted(NO_PRIVACY),
]);

/// `tracing`.
pub(crate) static TRACING: MapSchema = MapSchema::new("`tracing` section", FILE, Allowed).keys(&[
    key("type", Text, "The tracing backend: `otlp`, `jaeger` or `langfuse`.").accepted(NO_EXPORT),
    key("tracers", List(&Any), "Several tracing backends.").accepted(NO_EXPORT),
    key("endpoint", Text, "The address of the tracing backend.").accepted(NO_EXPORT),
    key("host", Text, "The address of the tracing backend.").accepted(NO_EXPORT),
    key("port", Any, "The address of the tracing backend.").accepted(NO_EXPORT),
    key("insecure", Any, "Whether the connection is unencrypted.").accepted(NO_EXPORT),
    key("service_name", Text, "The service name in traces.").accepted(NO_EXPORT),
    key("root_certificates", Text, "The root certificates for that server.").accepted(NO_EXPORT),
    key("sync_export", Any, "Whether traces are exported synchronously.").accepted(NO_EXPORT),
]);

/// `metrics`.
pub(crate) static METRICS: MapSchema = MapSchema::new("`metrics` section", FILE, Allowed).keys(&[
    key("type", Text, "The metrics backend: `otlp`.").accepted(NO_EXPORT),
    key("endpoint", Text, "The address of the metrics backend.").accepted(NO_EXPORT),
    key("insecure", Any, "Whether the connection is unencrypted.").accepted(NO_EXPORT),
    key("service_name", Text, "The service name in metrics.").accepted(NO_EXPORT),
    key("root_certificates", Text, "The root certificates for that server.").accepted(NO_EXPORT),
]);

/// `server`.
pub(crate) static SERVER: MapSchema = MapSchema::new("`server` section", FILE, IgnoredWithWarning).keys(&[
        key("open_turns", Integer, "The maximum number of turns that are accepted and not finished.").default("256"),
        key("running_turns", Integer, "The maximum number of turns that run at the same time. Further open turns wait.").default("256"),
        key("turns_per_caller", Integer, "The maximum number of open turns of a caller: the subject of its token, or else the sender id.").default("8"),
        key(
            "expected_wait",
            Seconds,
            "A message is rejected if the expected time until its reply is longer than this, in seconds. Default: 30, or half of the time limit of a turn.",
        ),
        key("connections", Integer, "The maximum number of open connections.").default("4096"),
        key(
            "connections_per_address",
            Integer,
            "The maximum number of open connections from one address. 0: no limit. Default: 512. Addresses of this machine have no limit.",
        ),
        key(
            "chat_page",
            Bool,
            "Whether the server has a chat page at `/`, which uses the channel `rest`. Default: only on a loopback address.",
        ),
    ]);

/// `http`.
pub(crate) static HTTP: MapSchema = MapSchema::new("`http` section", FILE, IgnoredWithWarning).keys(&[
        key(
            "proxy",
            Text,
            "The proxy for outbound requests, such as `http://proxy.corp:3128`. Default: `HTTP_PROXY`, `HTTPS_PROXY` and `ALL_PROXY`.",
        ),
        key(
            "no_proxy",
            TextOrList,
            "Hosts that are reached without the proxy: names with their subdomains, addresses, networks such as `10.0.0.0/8`, or `*` for all. This machine is always included. Default: `NO_PROXY`.",
        ),
    ]);

/// `sandbox`.
pub(crate) static SANDBOX: MapSchema = MapSchema::new("`sandbox` section", FILE, Refused).keys(&[
    key(
        "preset",
        OneOf(&["bubblewrap"]),
        "`bubblewrap`: the installed `bwrap`, with the files of the workspace, the programs of the system and nothing else.",
    ),
    key("network", Bool, "With `preset`: whether commands may use the network.").default("false"),
    key("read_only", TextList, "With `preset`: further folders of this machine that commands can read, such as that of a compiler."),
    key(
        "command",
        TextList,
        "In place of `preset`: a program and its arguments, such as `[bwrap, --unshare-all, …]`. The command of an agent is added at the end. `{workspace}`, `{uploads}` and `{outputs}` are folders of the run.",
    ),
    key("timeout_seconds", Seconds, "The time limit of one command in seconds.").default("120"),
    key("max_parallel", PositiveInteger, "The maximum number of commands at the same time.").default("4"),
    key("path", Text, "The variable `PATH` of commands. Default: the usual folders of the system."),
]);

/// `workspaces`.
pub(crate) static WORKSPACES: MapSchema = MapSchema::new("`workspaces` section", FILE, Refused).keys(&[key(
    "max_mib",
    PositiveInteger,
    "What the files of one conversation, of one run or of one folder of `storage` may take, in MiB.",
)
.default("256")]);

/// `runs`.
pub(crate) static RUNS: MapSchema = MapSchema::new("`runs` section", FILE, Refused).keys(&[key(
    "retention_days",
    Integer,
    "How many days a run is stored after it has ended, with its events, checkpoints, questions and files. `0`: for ever.",
)
.default("30")]);

/// `a2a_server`.
pub(crate) static A2A_SERVER: MapSchema = MapSchema::new("`a2a_server` section", FILE, IgnoredWithWarning).keys(&[
    key("description", Text, "The description of the assistant in its agent card."),
    key("url", Text, "The public URL of the assistant. Default: the address that it listens on."),
    key("agent_card_path", Text, "The file of an agent card; the URL in it is replaced."),
    key(
        "include_conversation_repair",
        Bool,
        "Whether the assistant asks the caller when it does not understand a message. Otherwise the task is rejected.",
    )
    .default("true"),
    key("task_timeout_seconds", Number, "The longest time a caller waits for a turn in seconds. 0: no limit.")
        .default("600"),
    key("a2a_message_cache_ttl_seconds", Number, "How long repeated messages are recognised. Always thirty days.")
        .accepted(""),
    key("max_contexts", Number, "The maximum number of conversations in memory. Conversations are in the store.")
        .accepted(""),
    key("auth", Section(&A2A_AUTH), "The authentication of callers."),
    key("push_notifications", Bool, "Whether callers may register push notifications.").default("true"),
    key(
        "payloads",
        Bool,
        "Whether messages such as `/SetSlots(…)` are parsed as payloads. Otherwise they are ordinary text.",
    )
    .default("true"),
]);

/// `auth` of `a2a_server`.
pub(crate) static A2A_AUTH: MapSchema = MapSchema::new("`auth` of `a2a_server`", FILE, Refused).keys(&[
    key("token", Secret, "The bearer token that callers must send, as `${NAME}`."),
    key("jwt", Section(&JWT), "Which JWTs of an authorization server are accepted, in addition to `token` or alone."),
]);

/// `jwt` of `a2a_server` and of channels.
pub(crate) static JWT: MapSchema = MapSchema::new("`jwt` section", "endpoints.yml, credentials.yml", Refused).keys(&[
    key("issuer", Text, "The issuer of the tokens, as in their `iss` claim.").required(),
    key("audience", TextOrList, "The accepted audiences; the `aud` claim must contain one of them.").required(),
    key(
        "jwks",
        AnyOf(&[Text, Map(&Any)]),
        "The issuer's keys (JWKS): a URL, a JSON file of the project, or a map with `keys`.",
    ),
    key("secret", Secret, "Instead of `jwks`: a shared secret of at least 32 bytes, as `${NAME}`."),
    key(
        "algorithms",
        TextList,
        "The accepted signature algorithms. Default: RS256, ES256 and EdDSA with `jwks`, HS256 with `secret`.",
    ),
    key("leeway", Number, "The allowed clock difference in seconds, at most 300.").default("30"),
    key("scope", Text, "The scopes that every caller needs, separated by spaces."),
]);

/// The values of `routing_strategy`, named as in LiteLLM; `in-order` calls the models in the order of the list.
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
pub(crate) static ROUTER: MapSchema = MapSchema::new("`router`", FILE, Allowed).keys(&[
        key("routing_strategy", OneOf(STRATEGIES), "How a model of the group is chosen. `in-order` is the order of the list.").default("simple-shuffle"),
        key("cooldown_time", Number, "How long a failed model is not called, in seconds."),
        key("allowed_fails", Number, "How many failures are allowed before that."),
        key("num_retries", Number, "The maximum number of retries of a call over all models."),
        key(
            "fallbacks",
            AnyOf(&[Text, Map(&AnyOf(&[Text, List(&Text)])), List(&AnyOf(&[Text, Map(&AnyOf(&[Text, List(&Text)]))]))]),
            "The groups to call when all models of this one fail, in order: `[spare]`, or `[{main: [spare]}]` as in LiteLLM.",
        ),
        key("use_chat_completions_endpoint", Any, "Whether self-hosted servers use the chat completions endpoint. It is always used.").accepted(""),
        key("cache_responses", Any, "Whether responses are cached. They are not.").accepted(""),
        key("redis_host", Text, "Redis for routers of several processes.").accepted(""),
        key("redis_port", Any, "Redis for routers of several processes.").accepted(""),
        key("redis_password", Text, "Redis for routers of several processes.").accepted(""),
        key("redis_url", Text, "Redis for routers of several processes.").accepted(""),
    ]);
