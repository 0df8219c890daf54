//! Keys of `endpoints.yml`.

use super::{
    A2A_SERVER, HTTP, INTERACTION, LOCK_STORE, METRICS, MapSchema, NLG, PRIVACY, ROUTER, RUNS, SANDBOX, SERVER,
    TRACING, TRACKER_STORE, UnknownKeys::*, ValueType::*, WORKSPACES, key, services::NO_VOICE,
};

const FILE: &str = "endpoints.yml";

/// The file.
pub(crate) static ENDPOINTS: MapSchema = MapSchema::new("endpoints file", FILE, IgnoredWithWarning).keys(&[
    key("version", Any, "The version of the format. Not needed.").accepted(""),
    key("model_groups", List(&Section(&MODEL_GROUP)), "Language models."),
    key("mcp_servers", List(&Section(&MCP_SERVER)), "MCP servers, whose tools flows and agents call."),
    key("action_endpoint", Section(&ACTION_ENDPOINT), "The action server that runs custom actions."),
    key("nlg", Section(&NLG), "A rephraser or an NLG server."),
    key("tracker_store", Section(&TRACKER_STORE), "The store of conversations."),
    key("runs", Section(&RUNS), "How long runs of missions are stored."),
    key("lock_store", Section(&LOCK_STORE), "The lock store."),
    key("event_broker", Any, "The event broker.")
        .accepted_with_warning("Events are not published; read them from the store"),
    key("vector_store", Section(&VECTOR_STORE), "Documents to search."),
    key("timer_store", Any, "The store of timers. Timers are stored with the conversations.").accepted(""),
    key("privacy", AnyOf(&[Section(&PRIVACY), Any]), "Anonymisation and deletion of events.")
        .accepted_with_warning("These rules are not applied; events are stored unchanged"),
    key("interaction_handling", Section(&INTERACTION), "Silence on voice channels.").accepted(NO_VOICE),
    key("tracing", Section(&TRACING), "The tracing backend.").accepted("Nothing is exported; use `segue trace`"),
    key("metrics", Section(&METRICS), "The metrics backend.").accepted("Nothing is exported"),
    key("server", Section(&SERVER), "Limits of the load that `segue run` accepts."),
    key("http", Section(&HTTP), "The proxy for outbound requests."),
    key("sandbox", Section(&SANDBOX), "The program in which commands of agents run. Default: agents run no commands."),
    key("workspaces", Section(&WORKSPACES), "The files of agents, below `.segue`."),
    key("a2a_server", Section(&A2A_SERVER), "The assistant as an A2A agent."),
    key("nlu", Any, "An NLU server.")
        .accepted_with_warning("There is no NLU pipeline; the language model understands messages"),
    key("models", Any, "A server of trained models.")
        .accepted_with_warning("There are no trained models; projects are loaded directly"),
]);

/// `action_endpoint`.
pub(crate) static ACTION_ENDPOINT: MapSchema = MapSchema::new("action endpoint", FILE, IgnoredWithWarning).keys(&[
    key(
        "url",
        Text,
        "The webhook of an action server, such as `http://localhost:5055/webhook` or `grpc://localhost:5055`.",
    ),
    key(
        "actions_module",
        Text,
        "A Python module with actions; an action server for it is started with this program. `url` takes precedence.",
    ),
    key("token", Text, "A token that is added to the URL as a query parameter, as `${NAME}`."),
    key("token_name", Text, "The name of that parameter.").default("token"),
    key("basic_auth", Section(&BASIC_AUTH), "HTTP Basic credentials."),
    key("headers", Map(&Text), "Headers of every request."),
    key("params", Map(&Text), "Query parameters that are added to the URL."),
    key("cafile", Text, "A file with the CA certificates that are trusted for the server."),
    key(
        "enable_selective_domain",
        Bool,
        "Whether only requests for actions with `send_domain: true` contain the domain.",
    )
    .default("false"),
    key(
        "tracker_events",
        AnyOf(&[PositiveInteger, OneOf(&["all", "session"])]),
        "Which events are sent: `all`, those of the `session`, or the last N. Default: `all`.",
    ),
    key("timeout", Seconds, "The time limit of an action in seconds."),
    key(
        "compress",
        Bool,
        "Whether requests are compressed. Default: the environment variable `COMPRESS_ACTION_SERVER_REQUEST`.",
    ),
    key(
        "effects",
        Map(&OneOf(&["read", "idempotent", "write"])),
        "The effect class of each action: `read`, `idempotent` or `write`.",
    ),
]);

/// `basic_auth`.
pub(crate) static BASIC_AUTH: MapSchema = MapSchema::new("`basic_auth`", FILE, Refused).keys(&[
    key("username", Text, "The user name.").required(),
    key("password", Text, "The password, as `${NAME}`.").required(),
]);

/// An item of `model_groups`.
pub(crate) static MODEL_GROUP: MapSchema = MapSchema::new("model group", FILE, Refused).keys(&[
    key("id", Text, "The id of the group.").required(),
    key("models", List(&Section(&MODEL)), "The models of the group, at least one.").required(),
    key("router", Section(&ROUTER), "How one of several models is chosen, retried and replaced."),
]);

/// The values of `reasoning_effort`.
const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// An item of `models`; also a model that a component configures itself under `llm`.
pub(crate) static MODEL: MapSchema = MapSchema::new("model", FILE, Allowed).keys(&[
    key("provider", Text, "The provider: `openai`, `azure`, `anthropic`, `self-hosted`, `scripted`, …."),
    key("model", Text, "The name of the model.").aliases(&["model_name"]),
    key(
        "model_group",
        Text,
        "In the `llm` section of a component: the id of a group in `model_groups`, instead of all other keys.",
    )
    .aliases(&["model-group"]),
    key("deployment", Text, "Azure: the name of the deployment."),
    key("api_base", Text, "The base URL of the API."),
    key("api_version", Text, "Azure, Anthropic: the version of the API."),
    key("api_type", Text, "Azure: the type of the API."),
    key("api_key", Secret, "The API key, as `${NAME}`."),
    key("temperature", Number, "The sampling temperature."),
    key("top_p", Number, "The probability mass of nucleus sampling."),
    key("max_tokens", Integer, "The maximum number of tokens of a response."),
    key("max_completion_tokens", Integer, "The maximum number of tokens of a response, for newer OpenAI models."),
    key("timeout", Seconds, "The time limit of a call in seconds.").aliases(&["request_timeout"]),
    key("first_token_timeout", Seconds, "The time limit until the response starts, in seconds.").default("15"),
    key("idle_timeout", Seconds, "The longest pause within a streamed response, in seconds.").default("10"),
    key("num_retries", Integer, "How often a failed call is retried."),
    key("reasoning_effort", OneOf(EFFORTS), "The reasoning effort. Default: the lowest that the model supports."),
    key("parallel_tool_calls", Bool, "Whether a response may contain several tool calls."),
    key("stream", Bool, "Whether responses are streamed. Write `false` for servers without streaming."),
    key(
        "prompt_cache",
        AnyOf(&[Bool, OneOf(&["1h"])]),
        "`anthropic`: whether prompt prefixes are cached: `true`, `false`, or `1h` for one hour. Default: `true`.",
    ),
    key("strict", Bool, "`anthropic`: whether tools may be sent with `strict: true`. Default: `false`."),
    key("anthropic_beta", TextList, "`anthropic`: the beta features to enable (header `anthropic-beta`)."),
    key("weight", Number, "In a group: the share of the calls."),
    key("rpm", Number, "In a group: the maximum number of requests per minute."),
    key("tpm", Number, "In a group: the maximum number of tokens per minute."),
    key("input_cost_per_token", Number, "The price of an input token."),
    key("output_cost_per_token", Number, "The price of an output token."),
    key(
        "cache_read_input_token_cost",
        Number,
        "The price of an input token that is read from the provider's cache. Default: the price of an input token.",
    ),
    key(
        "cache_creation_input_token_cost",
        Number,
        "The price of an input token that is written to the cache. Default: the price of an input token.",
    ),
    key(
        "output_cost_per_reasoning_token",
        Number,
        "The price of a reasoning token. Default: the price of an output token.",
    ),
    key("script", Text, "`scripted`: the file with the rules."),
    key("path", Text, "`cassette`: the file with the recorded responses."),
]);

/// An item of `mcp_servers`.
pub(crate) static MCP_SERVER: MapSchema = MapSchema::new("MCP server", FILE, Refused).keys(&[
    key("name", Text, "The name that flows and agents use.").required(),
    key("type", OneOf(&["http", "https", "stdio"]), "The transport. Default: `http` if there is a `url`, else `stdio`."),
    key("url", Text, "The URL of the MCP endpoint."),
    key("command", Text, "`stdio`: the program to start. `segue` is this program."),
    key("args", TextList, "`stdio`: the arguments of the program."),
    key("env", Map(&Text), "`stdio`: the environment variables of the program."),
    key("headers", Map(&Text), "Headers of every request."),
    key("api_key", Secret, "An API key, as `${NAME}`."),
    key("header_name", Text, "The header for the API key.").default("Authorization"),
    key("header_format", Text, "The value of that header, with `{key}`. Default: `Bearer {key}`."),
    key("token", Secret, "A bearer token, as `${NAME}`."),
    key("oauth", Section(&MCP_OAUTH), "How access tokens are obtained by OAuth 2.0."),
    key("meta_map", Section(&MCP_META), "The `_meta` field of every tool call."),
    key("connect_timeout", Seconds, "The time limit to connect in seconds."),
    key("tool_timeout", Seconds, "The time limit of a call in seconds. For a call with progress notifications: the longest time between two of them."),
    key("tool_timeout_total", Seconds, "The time limit of a call in seconds, regardless of progress notifications.").default("45"),
    key(
        "progress_messages",
        Bool,
        "Whether the user may see the text of the server's progress notifications instead of a response of the assistant.",
    )
    .default("false"),
    key("protocol_version", Text, "The protocol revision to offer first, such as `2026-07-28`."),
    key("elicitation", Map(&Text), "The fields that the server may ask the user for (elicitation), each with the slot for the answer."),
    key("sampling", Bool, "Whether the server may call the model of the project (sampling).").default("false"),
    key(
        "offers",
        List(&OneOf(&["resources", "prompts"])),
        "What else of the server is available as tools: `resources`, `prompts`.",
    ),
    key("trust_annotations", Bool, "Whether the server's annotations about read-only tools are trusted.").default("false"),
    key(
        "effects",
        Map(&OneOf(&["read", "idempotent", "write"])),
        "The effect class of each tool: `read`, `idempotent` or `write`.",
    ),
    key(
        "pin",
        Bool,
        "Whether the definitions of its tools must not change after they were first listed. `pins.json` contains their hashes.",
    )
    .default("false"),
]);

/// `vector_store`.
pub(crate) static VECTOR_STORE: MapSchema = MapSchema::new("vector store", FILE, Allowed).keys(&[
    key("type", Text, "`qdrant`. A folder of the project needs no entry here."),
    key("collection", Text, "Qdrant: the name of the collection."),
    key("url", Text, "Qdrant: the URL, instead of `host` and `port`."),
    key("host", Text, "Qdrant: the host.").default("localhost"),
    key("port", Integer, "Qdrant: the port.").default("6333"),
    key("https", Bool, "Qdrant: whether the connection uses TLS.").default("false"),
    key("prefix", Text, "Qdrant: a path prefix of the REST API."),
    key("api_key", Secret, "Qdrant: the API key, as `${NAME}`."),
    key("timeout", Seconds, "Qdrant: the time limit of a request in seconds."),
    key("vector_name", Text, "Qdrant: the name of the vector to search, if points have several."),
    key(
        "content_payload_key",
        Text,
        "Qdrant: the payload key with the text of a point. Default: `text`, `page_content` or `content`.",
    ),
    key("metadata_payload_key", Text, "Qdrant: the payload key with the metadata of a point.").default("metadata"),
    key("grpc_port", Any, "Qdrant: the port of the gRPC API, which is not used.").accepted(""),
    key("prefer_grpc", Any, "Qdrant: whether the gRPC API is preferred. REST is always used.").accepted(""),
]);

/// `oauth`.
pub(crate) static OAUTH: MapSchema = MapSchema::new("`oauth`", FILE, Refused).keys(&[
    key("client_id", Text, "The client id.").required(),
    key("client_secret", Secret, "The client secret, as `${NAME}`.").required(),
    key("token_url", Text, "The URL of the token endpoint.").required(),
    key("scope", Text, "The requested scopes, separated by spaces."),
    key("audience", Text, "The audience of the token."),
    key("timeout", Seconds, "The time limit of the token request in seconds."),
]);

/// `oauth` of an MCP server.
pub(crate) static MCP_OAUTH: MapSchema = MapSchema::new("`oauth` of an MCP server", FILE, Refused).keys(&[
    key(
        "grant",
        OneOf(&["client_credentials", "authorization_code"]),
        "The OAuth grant type. `authorization_code` needs a login once, with `segue mcp login`.",
    ),
    key("client_id", Text, "The client id. Optional with `authorization_code`."),
    key("client_secret", Secret, "The client secret, as `${NAME}`."),
    key("token_url", Text, "The URL of the token endpoint. Default: from the server's metadata."),
    key("scope", Text, "The requested scopes, separated by spaces. Default: those that the server lists."),
    key("audience", Text, "The audience of the token."),
    key("client_metadata_url", Text, "The URL of the client ID metadata document."),
    key("redirect_port", Integer, "The local port of the redirect URI for a login. Default: any free port."),
    key("hosts", TextList, "Hosts of a private network that the server's metadata may refer to."),
    key("timeout", Seconds, "The time limit of the token request in seconds."),
]);

/// `meta_map`.
pub(crate) static MCP_META: MapSchema = MapSchema::new("`meta_map`", FILE, Refused).keys(&[
    key("static", Map(&Any), "Fields with fixed values."),
    key("from_slots", List(&Section(&MCP_META_SLOT)), "Fields that are filled from slots."),
    key("from_metadata", List(&Section(&MCP_META_KEY)), "Fields that are filled from the message and its metadata."),
]);

/// An item of `meta_map.from_metadata`.
pub(crate) static MCP_META_KEY: MapSchema = MapSchema::new("`from_metadata` item", FILE, Refused).keys(&[
    key("key", Text, "`sender_id`, `input_channel`, or a key of the message's metadata.").required(),
    key("param", Text, "The name of the field.").required(),
]);

/// An item of `meta_map.from_slots`.
pub(crate) static MCP_META_SLOT: MapSchema = MapSchema::new("`from_slots` item", FILE, Refused)
    .keys(&[key("slot", Text, "The slot.").required(), key("param", Text, "The name of the field.").required()]);
