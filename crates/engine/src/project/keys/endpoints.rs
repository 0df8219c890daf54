//! Keys of `endpoints.yml`.

use super::{Shape, Takes, Unknown, key};

const FILE: &str = "endpoints.yml";

/// The file.
pub(crate) static ENDPOINTS: Shape = Shape {
    name: "endpoints file",
    file: FILE,
    keys: &[
        key("version", Takes::Any, "The format's version; conventional and not needed.").quiet(),
        key("model_groups", Takes::List, "Language models."),
        key("mcp_servers", Takes::List, "Servers that offer tools."),
        key("action_endpoint", Takes::Map, "Where custom actions run."),
        key("nlg", Takes::Map, "A rephraser or a response server."),
        key("tracker_store", Takes::Map, "Where conversations are kept."),
        key("lock_store", Takes::Map, "What keeps conversations in order."),
        key("event_broker", Takes::Any, "Where events are published.")
            .warned("Events are not published; read them from the store"),
        key("vector_store", Takes::Any, "Documents to search."),
        key("timer_store", Takes::Any, "Where timers are kept; they are kept with the conversations.").quiet(),
        key("privacy", Takes::Any, "What is left out of events.")
            .warned("These rules are not applied; events are stored as they are"),
        key("interaction_handling", Takes::Any, "Silence on voice channels."),
        key("tracing", Takes::Any, "Where traces go.")
            .quietly("Nothing is exported; `segue trace` shows what happened"),
        key("metrics", Takes::Any, "Where figures go.").quietly("Nothing is exported"),
        key("server", Takes::Map, "How much `segue run` takes on at once."),
        key("http", Takes::Map, "The proxy of outbound requests."),
        key("a2a_server", Takes::Map, "The assistant as an agent for others."),
        key("nlu", Takes::Any, "An NLU server.").warned("There is no NLU pipeline here"),
        key("models", Takes::Any, "A server of trained models.")
            .warned("Projects are loaded directly; there are no trained models"),
    ],
    unknown: Unknown::Warned,
};

/// `action_endpoint`.
pub(crate) static ACTION_ENDPOINT: Shape = Shape {
    name: "action endpoint",
    file: FILE,
    keys: &[
        key(
            "url",
            Takes::Text,
            "Address of an action server, its webhook: `http://localhost:5055/webhook`; or `grpc://localhost:5055`.",
        ),
        key("actions_module", Takes::Text, "Python module that is served beside this program; `url` wins over it."),
        key("token", Takes::Text, "Added to the address as a parameter, as `${NAME}`."),
        key("token_name", Takes::Text, "Name of that parameter; `token` unless set."),
        key("basic_auth", Takes::Map, "User name and password."),
        key("headers", Takes::Map, "Headers of every request."),
        key("params", Takes::Map, "Parameters added to the address."),
        key("cafile", Takes::Text, "Certificates that the server may show."),
        key(
            "enable_selective_domain",
            Takes::Bool,
            "Whether the domain is sent only to actions with `send_domain: true`; `false` unless set.",
        ),
        key(
            "tracker_events",
            Takes::Any,
            "How much of the conversation is sent: `all` unless set, `session`, or a number.",
        ),
        key("timeout", Takes::Seconds, "Longest time of one action."),
        key(
            "compress",
            Takes::Bool,
            "Whether requests are compressed; as `COMPRESS_ACTION_SERVER_REQUEST` unless set.",
        ),
        key("effects", Takes::Map, "What each action does: `read`, `idempotent` or `write`."),
    ],
    unknown: Unknown::Warned,
};

/// `basic_auth`.
pub(crate) static BASIC_AUTH: Shape = Shape {
    name: "`basic_auth`",
    file: FILE,
    keys: &[
        key("username", Takes::Text, "The user.").required(),
        key("password", Takes::Text, "The password, as `${NAME}`.").required(),
    ],
    unknown: Unknown::Refused,
};

/// An item of `model_groups`.
pub(crate) static MODEL_GROUP: Shape = Shape {
    name: "model group",
    file: FILE,
    keys: &[
        key("id", Takes::Text, "Its name.").required(),
        key("models", Takes::List, "Its models, at least one.").required(),
        key("router", Takes::Map, "How one of several models is chosen."),
    ],
    unknown: Unknown::Refused,
};

/// `reasoning_effort`.
const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// An item of `models`, also a model in place.
pub(crate) static MODEL: Shape = Shape {
    name: "model",
    file: FILE,
    keys: &[
        key("provider", Takes::Text, "The vendor: `openai`, `azure`, `anthropic`, `self-hosted`, `scripted`, …."),
        key("model", Takes::Text, "The model's name."),
        key("model_name", Takes::Text, "Older name of `model`."),
        key("deployment", Takes::Text, "Azure: the deployment."),
        key("api_base", Takes::Text, "The address of the service."),
        key("api_version", Takes::Text, "Azure, Anthropic: the version of the interface."),
        key("api_type", Takes::Text, "Azure: the kind of interface."),
        key("api_key", Takes::Text, "The key, as `${NAME}`."),
        key("temperature", Takes::Number, "How freely it chooses words."),
        key("top_p", Takes::Number, "How many words it chooses among."),
        key("max_tokens", Takes::Whole, "Longest answer."),
        key("max_completion_tokens", Takes::Whole, "Longest answer, on newer models."),
        key("timeout", Takes::Seconds, "Longest time of one call."),
        key("request_timeout", Takes::Seconds, "Older name of `timeout`."),
        key("first_token_timeout", Takes::Seconds, "Longest time until an answer begins; 15 s unless set."),
        key("idle_timeout", Takes::Seconds, "Longest pause within an answer; 10 s unless set."),
        key("num_retries", Takes::Whole, "How often a failed call is repeated."),
        key("reasoning_effort", Takes::OneOf(EFFORTS), "How long it thinks; the least the model knows unless set."),
        key("parallel_tool_calls", Takes::Bool, "Whether several calls may come in one answer."),
        key("stream", Takes::Bool, "Whether answers come in pieces; `false` for servers that cannot."),
        key(
            "prompt_cache",
            Takes::Any,
            "`anthropic`: whether the vendor keeps what prompts begin with: `true` unless set, `false`, or `1h` for an hour.",
        ),
        key("strict", Takes::Bool, "`anthropic`: whether our tools may be marked strict; off unless `true`."),
        key("anthropic_beta", Takes::Texts, "`anthropic`: features that the vendor offers for trial."),
        key("weight", Takes::Number, "In a group: its part of the calls."),
        key("rpm", Takes::Number, "In a group: requests a minute that it may take."),
        key("tpm", Takes::Number, "In a group: tokens a minute that it may take."),
        key("input_cost_per_token", Takes::Number, "Price of a token of the request."),
        key("output_cost_per_token", Takes::Number, "Price of a token of the answer."),
        key(
            "cache_read_input_token_cost",
            Takes::Number,
            "Price of a token from the vendor's cache; that of the request unless set.",
        ),
        key(
            "cache_creation_input_token_cost",
            Takes::Number,
            "Price of a token that is written to it; that of the request unless set.",
        ),
        key(
            "output_cost_per_reasoning_token",
            Takes::Number,
            "Price of a token of unseen reasoning; that of the answer unless set.",
        ),
        key("script", Takes::Text, "`scripted`: the file with its answers."),
        key("path", Takes::Text, "`cassette`: the recorded answers."),
    ],
    unknown: Unknown::Kept,
};

/// An item of `mcp_servers`.
pub(crate) static MCP_SERVER: Shape = Shape {
    name: "MCP server",
    file: FILE,
    keys: &[
        key("name", Takes::Text, "Its name.").required(),
        key(
            "type",
            Takes::OneOf(&["http", "https", "stdio"]),
            "How it is reached; `http` where there is a `url`, else `stdio`.",
        ),
        key("url", Takes::Text, "Its address, with the path."),
        key("command", Takes::Text, "`stdio`: the program; `segue` is this one."),
        key("args", Takes::Texts, "`stdio`: the program's arguments."),
        key("env", Takes::Map, "`stdio`: variables the program gets."),
        key("headers", Takes::Map, "Headers of every request."),
        key("api_key", Takes::Text, "A key, as `${NAME}`."),
        key("header_name", Takes::Text, "The header that carries it; `Authorization` unless set."),
        key("header_format", Takes::Text, "Its value, with `{key}`; `Bearer {key}` unless set."),
        key("token", Takes::Text, "A bearer token, as `${NAME}`."),
        key("oauth", Takes::Map, "How tokens are come by."),
        key("meta_map", Takes::Map, "What every call carries beside its arguments."),
        key("connect_timeout", Takes::Seconds, "Longest time to connect."),
        key(
            "tool_timeout",
            Takes::Seconds,
            "Longest time of one call; of one that tells how far it is, the longest silence.",
        ),
        key("tool_timeout_total", Takes::Seconds, "Longest time of one call whatever it tells; 45 unless set."),
        key(
            "progress_messages",
            Takes::Bool,
            "Whether the user may hear what it says of a running call; `false` unless set: only our own words.",
        ),
        key("protocol_version", Takes::Text, "The revision of the protocol to begin with, as in `2026-07-28`."),
        key("elicitation", Takes::Map, "What it may ask of the user: the field, and the slot that answers it."),
        key("sampling", Takes::Bool, "Whether it may let our model answer something; `false` unless set."),
        key("offers", Takes::Texts, "What else of it is offered as tools: `resources`, `prompts`."),
        key(
            "trust_annotations",
            Takes::Bool,
            "Whether its word on which tools only read is believed; `false` unless set.",
        ),
        key("effects", Takes::Map, "What each tool does: `read`, `idempotent` or `write`."),
        key(
            "pin",
            Takes::Bool,
            "Whether its tools must stay what they were when they were first listed; `pins.json` keeps their hashes.",
        ),
    ],
    unknown: Unknown::Refused,
};

/// `vector_store`.
pub(crate) static VECTOR_STORE: Shape = Shape {
    name: "vector store",
    file: FILE,
    keys: &[
        key("type", Takes::Text, "`qdrant`; a folder of the project needs no entry here."),
        key("collection", Takes::Text, "Qdrant: the collection."),
        key("url", Takes::Text, "Qdrant: its address, in place of `host` and `port`."),
        key("host", Takes::Text, "Qdrant: its host; `localhost` unless set."),
        key("port", Takes::Whole, "Qdrant: its port; 6333 unless set."),
        key("https", Takes::Bool, "Qdrant: whether it is reached by TLS; `false` unless set."),
        key("prefix", Takes::Text, "Qdrant: a path before those of the interface."),
        key("api_key", Takes::Text, "Qdrant: the key, as `${NAME}`."),
        key("timeout", Takes::Seconds, "Qdrant: longest time of one request."),
        key("vector_name", Takes::Text, "Qdrant: the vector that is compared, where points have several."),
        key(
            "content_payload_key",
            Takes::Text,
            "Qdrant: the key of a point's text; `text`, `page_content` or `content` unless set.",
        ),
        key("metadata_payload_key", Takes::Text, "Qdrant: the key of what is known about it; `metadata` unless set."),
        key("grpc_port", Takes::Any, "Qdrant: the port of its other interface, which is not spoken.").quiet(),
        key("prefer_grpc", Takes::Any, "Qdrant: whether that one is taken; HTTP always is.").quiet(),
    ],
    unknown: Unknown::Kept,
};

/// `oauth`.
pub(crate) static OAUTH: Shape = Shape {
    name: "`oauth`",
    file: FILE,
    keys: &[
        key("client_id", Takes::Text, "The client.").required(),
        key("client_secret", Takes::Text, "Its secret, as `${NAME}`.").required(),
        key("token_url", Takes::Text, "Where tokens are given.").required(),
        key("scope", Takes::Text, "What is asked for."),
        key("audience", Takes::Text, "For whom."),
        key("timeout", Takes::Seconds, "Longest time of the request."),
    ],
    unknown: Unknown::Refused,
};

/// `oauth` of an MCP server.
pub(crate) static MCP_OAUTH: Shape = Shape {
    name: "`oauth` of an MCP server",
    file: FILE,
    keys: &[
        key(
            "grant",
            Takes::OneOf(&["client_credentials", "authorization_code"]),
            "`client_credentials` unless set; `authorization_code` needs a person once, by `segue mcp login`.",
        ),
        key("client_id", Takes::Text, "The client; `authorization_code` can do without."),
        key("client_secret", Takes::Text, "Its secret, as `${NAME}`."),
        key("token_url", Takes::Text, "Where tokens are given; found out by the server's metadata unless set."),
        key("scope", Takes::Text, "What is asked for; what the server names unless set."),
        key("audience", Takes::Text, "For whom."),
        key("client_metadata_url", Takes::Text, "Where a document about this client is published."),
        key("redirect_port", Takes::Whole, "The port of this machine to which a login returns; any unless set."),
        key("hosts", Takes::Texts, "Hosts of a private net that the server's metadata may name."),
        key("timeout", Takes::Seconds, "Longest time of the request."),
    ],
    unknown: Unknown::Refused,
};

/// `meta_map`.
pub(crate) static MCP_META: Shape = Shape {
    name: "`meta_map`",
    file: FILE,
    keys: &[
        key("static", Takes::Map, "Names and fixed values."),
        key("from_slots", Takes::List, "Names filled from slots."),
        key("from_metadata", Takes::List, "Names filled from what is known of the message."),
    ],
    unknown: Unknown::Refused,
};

/// An item of `meta_map.from_metadata`.
pub(crate) static MCP_META_KEY: Shape = Shape {
    name: "`from_metadata` item",
    file: FILE,
    keys: &[
        key("key", Takes::Text, "`sender_id`, `input_channel`, or a key of the message's metadata.").required(),
        key("param", Takes::Text, "The name it goes under.").required(),
    ],
    unknown: Unknown::Refused,
};

/// An item of `meta_map.from_slots`.
pub(crate) static MCP_META_SLOT: Shape = Shape {
    name: "`from_slots` item",
    file: FILE,
    keys: &[
        key("slot", Takes::Text, "The slot.").required(),
        key("param", Takes::Text, "The name it goes under.").required(),
    ],
    unknown: Unknown::Refused,
};
