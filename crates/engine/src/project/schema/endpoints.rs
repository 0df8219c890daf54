//! Keys of `endpoints.yml`.

use super::{
    A2A_SERVER, HTTP, INTERACTION, LOCK_STORE, METRICS, MapSchema, NLG, PRIVACY, ROUTER, SERVER, TRACING,
    TRACKER_STORE, UnknownKeys::*, ValueType::*, key, services::NO_VOICE,
};

const FILE: &str = "endpoints.yml";

/// The file.
pub(crate) static ENDPOINTS: MapSchema = MapSchema::new("endpoints file", FILE, Warned).keys(&[
    key("version", Any, "The format's version; conventional and not needed.").accepted(""),
    key("model_groups", List(&Section(&MODEL_GROUP)), "Language models."),
    key("mcp_servers", List(&Section(&MCP_SERVER)), "Servers that offer tools."),
    key("action_endpoint", Section(&ACTION_ENDPOINT), "Where custom actions run."),
    key("nlg", Section(&NLG), "A rephraser or a response server."),
    key("tracker_store", Section(&TRACKER_STORE), "Where conversations are kept."),
    key("lock_store", Section(&LOCK_STORE), "What keeps conversations in order."),
    key("event_broker", Any, "Where events are published.")
        .warned("Events are not published; read them from the store"),
    key("vector_store", Section(&VECTOR_STORE), "Documents to search."),
    key("timer_store", Any, "Where timers are kept; they are kept with the conversations.").accepted(""),
    key("privacy", AnyOf(&[Section(&PRIVACY), Any]), "What is left out of events.")
        .warned("These rules are not applied; events are stored as they are"),
    key("interaction_handling", Section(&INTERACTION), "Silence on voice channels.").accepted(NO_VOICE),
    key("tracing", Section(&TRACING), "Where traces go.")
        .accepted("Nothing is exported; `segue trace` shows what happened"),
    key("metrics", Section(&METRICS), "Where figures go.").accepted("Nothing is exported"),
    key("server", Section(&SERVER), "How much `segue run` takes on at once."),
    key("http", Section(&HTTP), "The proxy of outbound requests."),
    key("a2a_server", Section(&A2A_SERVER), "The assistant as an agent for others."),
    key("nlu", Any, "An NLU server.").warned("There is no NLU pipeline here"),
    key("models", Any, "A server of trained models.")
        .warned("Projects are loaded directly; there are no trained models"),
]);

/// `action_endpoint`.
pub(crate) static ACTION_ENDPOINT: MapSchema = MapSchema::new("action endpoint", FILE, Warned).keys(&[
    key(
        "url",
        Text,
        "Address of an action server, its webhook: `http://localhost:5055/webhook`; or `grpc://localhost:5055`.",
    ),
    key("actions_module", Text, "Python module that is served beside this program; `url` wins over it."),
    key("token", Text, "Added to the address as a parameter, as `${NAME}`."),
    key("token_name", Text, "Name of that parameter.").default("token"),
    key("basic_auth", Section(&BASIC_AUTH), "User name and password."),
    key("headers", Map(&Text), "Headers of every request."),
    key("params", Map(&Text), "Parameters added to the address."),
    key("cafile", Text, "Certificates that the server may show."),
    key("enable_selective_domain", Bool, "Whether the domain is sent only to actions with `send_domain: true`.")
        .default("false"),
    key(
        "tracker_events",
        AnyOf(&[Positive, OneOf(&["all", "session"])]),
        "How much of the conversation is sent: `all` unless set, `session`, or a number.",
    ),
    key("timeout", Seconds, "Longest time of one action."),
    key("compress", Bool, "Whether requests are compressed; as `COMPRESS_ACTION_SERVER_REQUEST` unless set."),
    key(
        "effects",
        Map(&OneOf(&["read", "idempotent", "write"])),
        "What each action does: `read`, `idempotent` or `write`.",
    ),
]);

/// `basic_auth`.
pub(crate) static BASIC_AUTH: MapSchema = MapSchema::new("`basic_auth`", FILE, Refused).keys(&[
    key("username", Text, "The user.").required(),
    key("password", Text, "The password, as `${NAME}`.").required(),
]);

/// An item of `model_groups`.
pub(crate) static MODEL_GROUP: MapSchema = MapSchema::new("model group", FILE, Refused).keys(&[
    key("id", Text, "Its name.").required(),
    key("models", List(&Section(&MODEL)), "Its models, at least one.").required(),
    key("router", Section(&ROUTER), "How one of several models is chosen."),
]);

/// `reasoning_effort`.
const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// An item of `models`, also a model in place.
pub(crate) static MODEL: MapSchema = MapSchema::new("model", FILE, Kept).keys(&[
        key("provider", Text, "The vendor: `openai`, `azure`, `anthropic`, `self-hosted`, `scripted`, …."),
        key("model", Text, "The model's name.").older(&["model_name"]),
        key(
            "model_group",
            Text,
            "Where a component names its model: a group of `model_groups`, in place of all other keys.",
        ),
        key("deployment", Text, "Azure: the deployment."),
        key("api_base", Text, "The address of the service."),
        key("api_version", Text, "Azure, Anthropic: the version of the interface."),
        key("api_type", Text, "Azure: the kind of interface."),
        key("api_key", Secret, "The key, as `${NAME}`."),
        key("temperature", Number, "How freely it chooses words."),
        key("top_p", Number, "How many words it chooses among."),
        key("max_tokens", Whole, "Longest answer."),
        key("max_completion_tokens", Whole, "Longest answer, on newer models."),
        key("timeout", Seconds, "Longest time of one call.").older(&["request_timeout"]),
        key("first_token_timeout", Seconds, "Longest time until an answer begins.").default("15"),
        key("idle_timeout", Seconds, "Longest pause within an answer.").default("10"),
        key("num_retries", Whole, "How often a failed call is repeated."),
        key("reasoning_effort", OneOf(EFFORTS), "How long it thinks; the least the model knows unless set."),
        key("parallel_tool_calls", Bool, "Whether several calls may come in one answer."),
        key("stream", Bool, "Whether answers come in pieces; `false` for servers that cannot."),
        key(
            "prompt_cache",
            AnyOf(&[Bool, OneOf(&["1h"])]),
            "`anthropic`: whether the vendor keeps what prompts begin with: `true` unless set, `false`, or `1h` for an hour.",
        ),
        key("strict", Bool, "`anthropic`: whether our tools may be marked strict; off unless `true`."),
        key("anthropic_beta", Texts, "`anthropic`: features that the vendor offers for trial."),
        key("weight", Number, "In a group: its part of the calls."),
        key("rpm", Number, "In a group: requests a minute that it may take."),
        key("tpm", Number, "In a group: tokens a minute that it may take."),
        key("input_cost_per_token", Number, "Price of a token of the request."),
        key("output_cost_per_token", Number, "Price of a token of the answer."),
        key(
            "cache_read_input_token_cost",
            Number,
            "Price of a token from the vendor's cache; that of the request unless set.",
        ),
        key(
            "cache_creation_input_token_cost",
            Number,
            "Price of a token that is written to it; that of the request unless set.",
        ),
        key(
            "output_cost_per_reasoning_token",
            Number,
            "Price of a token of unseen reasoning; that of the answer unless set.",
        ),
        key("script", Text, "`scripted`: the file with its answers."),
        key("path", Text, "`cassette`: the recorded answers."),
    ]);

/// An item of `mcp_servers`.
pub(crate) static MCP_SERVER: MapSchema = MapSchema::new("MCP server", FILE, Refused).keys(&[
    key("name", Text, "Its name.").required(),
    key("type", OneOf(&["http", "https", "stdio"]), "How it is reached; `http` where there is a `url`, else `stdio`."),
    key("url", Text, "Its address, with the path."),
    key("command", Text, "`stdio`: the program; `segue` is this one."),
    key("args", Texts, "`stdio`: the program's arguments."),
    key("env", Map(&Text), "`stdio`: variables the program gets."),
    key("headers", Map(&Text), "Headers of every request."),
    key("api_key", Secret, "A key, as `${NAME}`."),
    key("header_name", Text, "The header that carries it.").default("Authorization"),
    key("header_format", Text, "Its value, with `{key}`; `Bearer {key}` unless set."),
    key("token", Secret, "A bearer token, as `${NAME}`."),
    key("oauth", Section(&MCP_OAUTH), "How tokens are come by."),
    key("meta_map", Section(&MCP_META), "What every call carries beside its arguments."),
    key("connect_timeout", Seconds, "Longest time to connect."),
    key("tool_timeout", Seconds, "Longest time of one call; of one that tells how far it is, the longest silence."),
    key("tool_timeout_total", Seconds, "Longest time of one call whatever it tells.").default("45"),
    key(
        "progress_messages",
        Bool,
        "Whether the user may hear what it says of a running call, in place of our own words.",
    )
    .default("false"),
    key("protocol_version", Text, "The revision of the protocol to begin with, as in `2026-07-28`."),
    key("elicitation", Map(&Text), "What it may ask of the user: the field, and the slot that answers it."),
    key("sampling", Bool, "Whether it may let our model answer something.").default("false"),
    key(
        "offers",
        List(&OneOf(&["resources", "prompts"])),
        "What else of it is offered as tools: `resources`, `prompts`.",
    ),
    key("trust_annotations", Bool, "Whether its word on which tools only read is believed.").default("false"),
    key(
        "effects",
        Map(&OneOf(&["read", "idempotent", "write"])),
        "What each tool does: `read`, `idempotent` or `write`.",
    ),
    key(
        "pin",
        Bool,
        "Whether its tools must stay what they were when they were first listed; `pins.json` keeps their hashes.",
    )
    .default("false"),
]);

/// `vector_store`.
pub(crate) static VECTOR_STORE: MapSchema = MapSchema::new("vector store", FILE, Kept).keys(&[
    key("type", Text, "`qdrant`; a folder of the project needs no entry here."),
    key("collection", Text, "Qdrant: the collection."),
    key("url", Text, "Qdrant: its address, in place of `host` and `port`."),
    key("host", Text, "Qdrant: its host.").default("localhost"),
    key("port", Whole, "Qdrant: its port.").default("6333"),
    key("https", Bool, "Qdrant: whether it is reached by TLS.").default("false"),
    key("prefix", Text, "Qdrant: a path before those of the interface."),
    key("api_key", Secret, "Qdrant: the key, as `${NAME}`."),
    key("timeout", Seconds, "Qdrant: longest time of one request."),
    key("vector_name", Text, "Qdrant: the vector that is compared, where points have several."),
    key(
        "content_payload_key",
        Text,
        "Qdrant: the key of a point's text; `text`, `page_content` or `content` unless set.",
    ),
    key("metadata_payload_key", Text, "Qdrant: the key of what is known about it.").default("metadata"),
    key("grpc_port", Any, "Qdrant: the port of its other interface, which is not spoken.").accepted(""),
    key("prefer_grpc", Any, "Qdrant: whether that one is taken; HTTP always is.").accepted(""),
]);

/// `oauth`.
pub(crate) static OAUTH: MapSchema = MapSchema::new("`oauth`", FILE, Refused).keys(&[
    key("client_id", Text, "The client.").required(),
    key("client_secret", Secret, "Its secret, as `${NAME}`.").required(),
    key("token_url", Text, "Where tokens are given.").required(),
    key("scope", Text, "What is asked for."),
    key("audience", Text, "For whom."),
    key("timeout", Seconds, "Longest time of the request."),
]);

/// `oauth` of an MCP server.
pub(crate) static MCP_OAUTH: MapSchema = MapSchema::new("`oauth` of an MCP server", FILE, Refused).keys(&[
    key(
        "grant",
        OneOf(&["client_credentials", "authorization_code"]),
        "How a token is given; `authorization_code` needs a person once, by `segue mcp login`.",
    ),
    key("client_id", Text, "The client; `authorization_code` can do without."),
    key("client_secret", Secret, "Its secret, as `${NAME}`."),
    key("token_url", Text, "Where tokens are given; found out by the server's metadata unless set."),
    key("scope", Text, "What is asked for; what the server names unless set."),
    key("audience", Text, "For whom."),
    key("client_metadata_url", Text, "Where a document about this client is published."),
    key("redirect_port", Whole, "The port of this machine to which a login returns; any unless set."),
    key("hosts", Texts, "Hosts of a private net that the server's metadata may name."),
    key("timeout", Seconds, "Longest time of the request."),
]);

/// `meta_map`.
pub(crate) static MCP_META: MapSchema = MapSchema::new("`meta_map`", FILE, Refused).keys(&[
    key("static", Map(&Any), "Names and fixed values."),
    key("from_slots", List(&Section(&MCP_META_SLOT)), "Names filled from slots."),
    key("from_metadata", List(&Section(&MCP_META_KEY)), "Names filled from what is known of the message."),
]);

/// An item of `meta_map.from_metadata`.
pub(crate) static MCP_META_KEY: MapSchema = MapSchema::new("`from_metadata` item", FILE, Refused).keys(&[
    key("key", Text, "`sender_id`, `input_channel`, or a key of the message's metadata.").required(),
    key("param", Text, "The name it goes under.").required(),
]);

/// An item of `meta_map.from_slots`.
pub(crate) static MCP_META_SLOT: MapSchema = MapSchema::new("`from_slots` item", FILE, Refused)
    .keys(&[key("slot", Text, "The slot.").required(), key("param", Text, "The name it goes under.").required()]);
