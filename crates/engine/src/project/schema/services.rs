//! Keys of the sections of `endpoints.yml` that are neither models nor tool servers.

use super::{BASIC_AUTH, MODEL, MapSchema, UnknownKeys::*, ValueType::*, key};

const FILE: &str = "endpoints.yml";
pub(super) const NO_VOICE: &str = "No voice channel is spoken yet";
const NO_PRIVACY: &str = "These rules are not applied; events are stored as they are";
const NO_EXPORT: &str = "Nothing is exported; `segue trace` shows what happened";

/// `nlg`.
pub(crate) static NLG: MapSchema = MapSchema::new("`nlg` section", FILE, Warned).keys(&[
    key("type", Text, "`rephrase`: a model says responses in other words."),
    key("rephrase_all", Bool, "Whether every response is rephrased.").default("false"),
    key("summarize_history", Bool, "Whether the conversation is summed up first.")
        .accepted("One call is made for a response, with the last turns as they were said"),
    key("max_historical_turns", Whole, "How many turns the model sees.").default("5"),
    key("prompt_template", Text, "A template of the project's own.").older(&["prompt"]),
    key("llm", Section(&MODEL), "`model_group: <id>`, or the model's settings in place."),
    key("model_group", Text, "The group, where it does not stand under `llm`."),
    key("trace_prompt_tokens", Bool, "Whether traces count tokens; they always do.").accepted(""),
    key("url", Text, "Address of a server that words responses."),
    key("token", Secret, "Sent to it as `?token=`, as `${NAME}`."),
    key("basic_auth", Section(&BASIC_AUTH), "`username` and `password` for it."),
    key("headers", Map(&Text), "Headers of every request to it."),
    key("timeout", Seconds, "Longest time of an answer.").default("5"),
]);

/// `tracker_store`.
pub(crate) static TRACKER_STORE: MapSchema = MapSchema::new("`tracker_store` section", FILE, Kept).keys(&[
    key("type", Text, "`SQL` with `dialect: sqlite`, `sqlite`, `segue`, or `in_memory`."),
    key("dialect", Text, "`sqlite`."),
    key("db", Any, "The file; unless set `rasa.db` for `SQL`, `.segue/segue.db` for `sqlite` and `segue`."),
    key("path", Text, "`sqlite` and `segue`: the same as `db`."),
    key(
        "synchronous",
        OneOf(&["full", "normal"]),
        "With `full` a commit survives a loss of power; with `normal` the latest turns may be lost with the power.",
    )
    .default("full"),
    key("url", Text, "Other databases: the host.").accepted(""),
    key("port", Any, "Other databases: the port.").accepted(""),
    key("username", Text, "Other databases: the user.").accepted(""),
    key("password", Text, "Other databases: the password.").accepted(""),
    key("login_db", Text, "PostgreSQL: the database of the login.").accepted(""),
    key("query", Map(&Any), "Options of the driver.").accepted(""),
]);

/// `lock_store`.
pub(crate) static LOCK_STORE: MapSchema = MapSchema::new("`lock_store` section", FILE, Kept).keys(&[
    key("type", Text, "Any; messages of a conversation wait for one another without a lock store.").accepted(""),
    key("host", Text, "The host.").accepted(""),
    key("url", Text, "The host.").accepted(""),
    key("port", Any, "The port.").accepted(""),
    key("db", Any, "The database.").accepted(""),
    key("username", Text, "The user.").accepted(""),
    key("password", Text, "The password.").accepted(""),
    key("key_prefix", Text, "What keys begin with.").accepted(""),
    key("use_ssl", Any, "Whether the connection is encrypted.").accepted(""),
    key("socket_timeout", Any, "Seconds.").accepted(""),
]);

/// `interaction_handling`.
pub(crate) static INTERACTION: MapSchema = MapSchema::new("`interaction_handling` section", FILE, Warned).keys(&[key(
    "global_silence_timeout",
    Seconds,
    "Seconds of silence on voice channels.",
)
.accepted(NO_VOICE)]);

/// `privacy`.
pub(crate) static PRIVACY: MapSchema = MapSchema::new("`privacy` section", FILE, Warned).keys(&[
    key("tracker_store_settings", Map(&Any), "When stored events are made anonymous or deleted.").accepted(NO_PRIVACY),
    key("rules", List(&Any), "Which slots are hidden, and how.").accepted(NO_PRIVACY),
]);

/// `tracing`.
pub(crate) static TRACING: MapSchema = MapSchema::new("`tracing` section", FILE, Kept).keys(&[
    key("type", Text, "`otlp`, `jaeger` or `langfuse`.").accepted(NO_EXPORT),
    key("tracers", List(&Any), "Several of them.").accepted(NO_EXPORT),
    key("endpoint", Text, "Where traces go.").accepted(NO_EXPORT),
    key("host", Text, "Where traces go.").accepted(NO_EXPORT),
    key("port", Any, "Where traces go.").accepted(NO_EXPORT),
    key("insecure", Any, "Whether the connection is plain.").accepted(NO_EXPORT),
    key("service_name", Text, "The name that traces carry.").accepted(NO_EXPORT),
    key("root_certificates", Text, "Certificates of that server.").accepted(NO_EXPORT),
    key("sync_export", Any, "Whether traces are written at once.").accepted(NO_EXPORT),
]);

/// `metrics`.
pub(crate) static METRICS: MapSchema = MapSchema::new("`metrics` section", FILE, Kept).keys(&[
    key("type", Text, "`otlp`.").accepted(NO_EXPORT),
    key("endpoint", Text, "Where figures go.").accepted(NO_EXPORT),
    key("insecure", Any, "Whether the connection is plain.").accepted(NO_EXPORT),
    key("service_name", Text, "The name that figures carry.").accepted(NO_EXPORT),
    key("root_certificates", Text, "Certificates of that server.").accepted(NO_EXPORT),
]);

/// `server`.
pub(crate) static SERVER: MapSchema = MapSchema::new("`server` section", FILE, Warned).keys(&[
        key("open_turns", Whole, "Messages that may be accepted and not yet answered.").default("256"),
        key("running_turns", Whole, "Turns that run at once, while other open ones wait.").default("256"),
        key("turns_per_caller", Whole, "Open turns of one caller: a token's subject, else a sender.").default("8"),
        key(
            "expected_wait",
            Seconds,
            "The longest time to an answer that may be expected when a message is accepted; 30 unless set, or half of what a turn may take.",
        ),
        key("connections", Whole, "Connections that are open at once.").default("4096"),
        key(
            "connections_per_address",
            Whole,
            "The same from one address; 512 unless set, 0 for no limit. Addresses of this machine have none.",
        ),
    ]);

/// `http`.
pub(crate) static HTTP: MapSchema = MapSchema::new("`http` section", FILE, Warned).keys(&[
        key(
            "proxy",
            Text,
            "Address of the proxy that outbound requests go through, such as `http://proxy.corp:3128`; `HTTP_PROXY`, `HTTPS_PROXY` and `ALL_PROXY` unless set.",
        ),
        key(
            "no_proxy",
            TextOrTexts,
            "Hosts that are reached directly: names with their subdomains, addresses, networks such as `10.0.0.0/8`, or `*` for all; `NO_PROXY` unless set. This machine always is.",
        ),
    ]);

/// `a2a_server`.
pub(crate) static A2A_SERVER: MapSchema = MapSchema::new("`a2a_server` section", FILE, Warned).keys(&[
    key("description", Text, "What the assistant does, for other agents."),
    key("url", Text, "Its public address; where it listens unless set."),
    key("agent_card_path", Text, "A card that stands in a file; its address is put in."),
    key(
        "include_conversation_repair",
        Bool,
        "Whether what is not understood is asked about; else such a task is refused.",
    )
    .default("true"),
    key("task_timeout_seconds", Number, "How long a caller waits for a turn, 0 for ever.").default("600"),
    key("a2a_message_cache_ttl_seconds", Number, "How long a repeated message is recognised; thirty days, always.")
        .accepted(""),
    key("max_contexts", Number, "Most conversations in memory; they are kept in the store.").accepted(""),
    key("auth", Section(&A2A_AUTH), "Who may call."),
    key("push_notifications", Bool, "Whether changes are reported to addresses that callers name.").default("true"),
    key("payloads", Bool, "Whether messages such as `/SetSlots(…)` are read as payloads; else they are words.")
        .default("true"),
]);

/// `auth` of `a2a_server`.
pub(crate) static A2A_AUTH: MapSchema = MapSchema::new("`auth` of `a2a_server`", FILE, Refused).keys(&[
    key("token", Secret, "The bearer token that callers must show, as `${NAME}`."),
    key("jwt", Section(&JWT), "Which tokens of an authorization server are taken; beside `token`, or alone."),
]);

/// `jwt` of `a2a_server` and of channels.
pub(crate) static JWT: MapSchema = MapSchema::new("`jwt` section", "endpoints.yml, credentials.yml", Refused).keys(&[
    key("issuer", Text, "Who signs the tokens, as their `iss` says it.").required(),
    key("audience", TextOrTexts, "For whom they are: one of these stands in their `aud`.").required(),
    key(
        "jwks",
        AnyOf(&[Text, Map(&Any)]),
        "The issuer's keys: an address, a JSON file of the project, or `keys` in place.",
    ),
    key("secret", Secret, "In place of `jwks`: a secret that both sides know, as `${NAME}`; 32 bytes or more."),
    key(
        "algorithms",
        Texts,
        "How they may be signed; RS256, ES256 and EdDSA with `jwks` and HS256 with `secret` unless set.",
    ),
    key("leeway", Number, "Seconds by which clocks may differ, at most 300.").default("30"),
    key("scope", Text, "Rights that every caller needs, with blanks between them."),
]);

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
pub(crate) static ROUTER: MapSchema = MapSchema::new("`router`", FILE, Kept).keys(&[
        key("routing_strategy", OneOf(STRATEGIES), "How a model is chosen.").default("simple-shuffle"),
        key("cooldown_time", Number, "Seconds in which a model that failed is left alone."),
        key("allowed_fails", Number, "How often it may fail before that."),
        key("num_retries", Number, "How often a call is tried again, over all of them."),
        key(
            "fallbacks",
            AnyOf(&[Text, Map(&AnyOf(&[Text, List(&Text)])), List(&AnyOf(&[Text, Map(&AnyOf(&[Text, List(&Text)]))]))]),
            "Groups that stand in when all models of this one fail, in order: `[spare]`, or `[{main: [spare]}]` as LiteLLM has it.",
        ),
        key("use_chat_completions_endpoint", Any, "For servers of your own; it is always used.").accepted(""),
        key("cache_responses", Any, "Whether answers are kept; they are not.").accepted(""),
        key("redis_host", Text, "Where routers of several processes meet.").accepted(""),
        key("redis_port", Any, "Where routers of several processes meet.").accepted(""),
        key("redis_password", Text, "Where routers of several processes meet.").accepted(""),
        key("redis_url", Text, "Where routers of several processes meet.").accepted(""),
    ]);
