//! Keys of `credentials.yml` and of the built-in channels.

use super::{JWT, Key, MapSchema, UnknownKeys::*, ValueType::*, key};

const FILE: &str = "credentials.yml";

const NOT_YET: &str = "This version does not implement this channel; use `rest`, or implement the `Channel` trait";

/// The file: one key for each channel.
pub(crate) static CREDENTIALS: MapSchema = MapSchema::new("credentials file", FILE, Allowed).keys(&[
    key("version", Any, "The version of the format. Not needed.").accepted(""),
    key("rest", Section(&REST), "The REST channel: messages over HTTP."),
    key("mcp", Section(&MCP_CHANNEL), "The assistant as an MCP server, at `/mcp`."),
    key("openai", Section(&OPENAI), "OpenAI's API: chat completions, at `/v1`."),
    key("cmdline", Any, "The terminal. `segue chat` needs no entry.").accepted(""),
    key("rasa", Any, "A channel between Rasa products.").accepted(""),
    key("inspector", Any, "The Rasa Inspector.").accepted(""),
    key("websocket", Section(&WEBSOCKET), "Messages and events over WebSockets."),
    key("socketio", Section(&SOCKETIO), "Socket.IO, as chat widgets for Rasa use it."),
    key("callback", Section(&CALLBACK), "Messages over HTTP with replies to a callback URL."),
    key("slack", Section(&CHANNEL), "Slack.").accepted_with_warning(NOT_YET),
    key("telegram", Section(&CHANNEL), "Telegram.").accepted_with_warning(NOT_YET),
    key("twilio", Section(&CHANNEL), "SMS and WhatsApp over Twilio.").accepted_with_warning(NOT_YET),
    key("facebook", Section(&CHANNEL), "Messenger.").accepted_with_warning(NOT_YET),
    key("botframework", Section(&CHANNEL), "Teams and others over the Bot Framework.").accepted_with_warning(NOT_YET),
    key("mattermost", Section(&CHANNEL), "Mattermost.").accepted_with_warning(NOT_YET),
    key("rocketchat", Section(&CHANNEL), "Rocket.Chat.").accepted_with_warning(NOT_YET),
    key("webexteams", Section(&CHANNEL), "Webex.").accepted_with_warning(NOT_YET),
    key("hangouts", Section(&CHANNEL), "Google Chat.").accepted_with_warning(NOT_YET),
    key("twilio_voice", Section(&CHANNEL), "Twilio Voice: calls as text.").accepted_with_warning(NOT_YET),
    key("audiocodes", Section(&CHANNEL), "AudioCodes: calls as text.").accepted_with_warning(NOT_YET),
    key("jambonz", Section(&CHANNEL), "Jambonz: calls as text.").accepted_with_warning(NOT_YET),
    key("genesys", Section(&CHANNEL), "Genesys: calls as an audio stream.").accepted_with_warning(NOT_YET),
    key("browser_audio", Section(&CHANNEL), "Audio from a browser.").accepted_with_warning(NOT_YET),
    key("twilio_media_streams", Section(&CHANNEL), "Twilio: calls as an audio stream.").accepted_with_warning(NOT_YET),
    key("audiocodes_stream", Section(&CHANNEL), "AudioCodes: calls as an audio stream.").accepted_with_warning(NOT_YET),
    key("jambonz_stream", Section(&CHANNEL), "Jambonz: calls as an audio stream.").accepted_with_warning(NOT_YET),
]);

const ORIGINS: Key = key(
    "allowed_origins",
    TextList,
    "Origins of web pages that may send requests, as `https://host:port` or `https://host:*`.",
);
const HOSTS: Key = key(
    "allowed_hosts",
    TextList,
    "Host names that requests may use for this server. Default: those that its address allows.",
);
const JWT_RULES: Key = key(
    "jwt",
    Section(&JWT),
    "Which JWTs of an authorization server are accepted, in addition to `auth_token` or alone.",
);
const PAYLOADS: Key = key(
    "payloads",
    Bool,
    "Whether messages such as `/SetSlots(…)` are parsed as payloads. Otherwise they are ordinary text.",
)
.default("true");

/// The keys of every channel. The server checks them before the channel sees a request.
pub(crate) static CHANNEL: MapSchema = MapSchema::new("channel", FILE, Allowed).keys(&[ORIGINS, HOSTS]);

const TOKEN: Key =
    key("auth_token", Text, "The bearer token that callers must send, as `${NAME}`.").aliases(&["token"]);
const SENDERS: Key = key(
    "senders",
    TextOrList,
    "The sender ids that callers with `auth_token` may use. `shop-*` matches all that start with `shop-`. Default: any.",
);
const METADATA_BYTES: Key =
    key("metadata_bytes", Integer, "The maximum size of a message's `metadata` in bytes.").default("16384");
const WHILE_BUSY: Key = key(
    "while_busy",
    OneOf(&["queue", "interrupt", "reject"]),
    "What happens to a message while another one of its conversation is processed: it waits, it ends the running turn, or it is rejected with 429.",
)
.default("queue");

/// The keys of a channel whose messages are those of `rest`.
const MESSAGES: &[Key] = &[TOKEN, JWT_RULES, SENDERS, PAYLOADS, METADATA_BYTES, WHILE_BUSY, ORIGINS, HOSTS];

/// `rest`.
pub(crate) static REST: MapSchema = MapSchema::new("`rest` channel", FILE, IgnoredWithWarning).keys(MESSAGES);

/// `websocket`.
pub(crate) static WEBSOCKET: MapSchema = MapSchema::new("`websocket` channel", FILE, IgnoredWithWarning).keys(MESSAGES);

/// `callback`.
pub(crate) static CALLBACK: MapSchema = MapSchema::new("`callback` channel", FILE, IgnoredWithWarning).keys(&[
    key("url", Text, "The URL to which replies are sent.").required(),
    key("batch", Bool, "Whether the messages of a reply are sent as one array, instead of one object each.")
        .default("false"),
    key(
        "signing_secret",
        Secret,
        "The key of the signature of each request to `url`, in the header `X-Signature`, as `${NAME}`.",
    ),
    TOKEN,
    JWT_RULES,
    SENDERS,
    PAYLOADS,
    METADATA_BYTES,
    WHILE_BUSY,
    ORIGINS,
    HOSTS,
]);

/// `socketio`.
pub(crate) static SOCKETIO: MapSchema = MapSchema::new("`socketio` channel", FILE, IgnoredWithWarning).keys(&[
    key("user_message_evt", Text, "The event of a message of the user.").default("user_uttered"),
    key("bot_message_evt", Text, "The event of a message of the assistant.").default("bot_uttered"),
    key("namespace", Text, "The namespace.").default("/"),
    key(
        "session_persistence",
        Bool,
        "Whether the conversation is that of the session id that a client sends, so that it goes on after a break. Otherwise each connection is a conversation.",
    )
    .default("false"),
    key("socketio_path", Text, "The path of the server's end of the protocol.").default("/socket.io"),
    key("metadata_key", Text, "The key of a message with its metadata: a map, or a map as JSON text.")
        .default("metadata"),
    key(
        "stream",
        Bool,
        "Whether text is sent while it is generated, as `bot_message_start`, `bot_message_delta` and `bot_message_end`.",
    )
    .default("false"),
    key("jwt_key", Text, "The shared secret of the JWTs that clients must send when they connect, as `${NAME}`."),
    key("jwt_method", Text, "The signature algorithm of these JWTs.").default("HS256"),
    TOKEN,
    JWT_RULES,
    PAYLOADS,
    METADATA_BYTES,
    WHILE_BUSY,
    ORIGINS,
    HOSTS,
]);

/// How long a write waits for a voice stack, in milliseconds: LiveKit ends the turn of a user at most 3.0 s after the last word
/// (`max_delay` of livekit-agents 1.8.9), and may send requests before.
pub(crate) const HOLD_WRITES_MS: u64 = 3_200;

/// `openai`.
pub(crate) static OPENAI: MapSchema = MapSchema::new("`openai` channel", FILE, IgnoredWithWarning).keys(&[
    key("auth_token", Text, "The bearer token that callers must send as their API key, as `${NAME}`."),
    JWT_RULES,
    key(
        "mode",
        OneOf(&["voice", "chat"]),
        "What the clients are: voice stacks, which may send a request before their user has finished, or chat pages. It sets the default of `hold_writes_ms`, and whether the messages of a turn are separated by a space or a blank line.",
    )
    .default("voice"),
    key(
        "early_generation",
        Bool,
        "Whether the voice stack sends requests before its user has finished. `false` if that is switched off in the stack.",
    )
    .default("true"),
    key(
        "hold_writes_ms",
        Integer,
        "How long a request must have stayed open before a tool or an action that writes begins, in milliseconds. Default: 3200; 0 with `mode: chat` or `early_generation: false`.",
    ),
    key(
        "conversation_from",
        TextList,
        "JSON pointers to the values of a request that name its conversation, such as `/call/id`, before the usual ones.",
    ),
    key(
        "payloads",
        Bool,
        "Whether messages such as `/SetSlots(…)` are parsed as payloads. Otherwise they are ordinary text.",
    )
    .default("false"),
    ORIGINS,
    HOSTS,
]);

/// `mcp`.
pub(crate) static MCP_CHANNEL: MapSchema = MapSchema::new("`mcp` channel", FILE, IgnoredWithWarning).keys(&[
    key("auth_token", Text, "The bearer token that HTTP callers must send, as `${NAME}`."),
    JWT_RULES,
    key(
        "elicitation",
        Bool,
        "Whether the assistant asks the user through MCP elicitation, if the host supports it, instead of ending the call with a question.",
    )
    .default("false"),
    PAYLOADS,
    key("prompts", List(&Section(&MCP_PROMPT)), "MCP prompts."),
    key("resources", List(&Section(&MCP_RESOURCE)), "MCP resources."),
    ORIGINS,
    HOSTS,
]);

const RESPONSE: Key =
    key("response", Text, "The response with its text; it must have a single variation without conditions.").required();

/// An item of `prompts` of the channel `mcp`.
pub(crate) static MCP_PROMPT: MapSchema = MapSchema::new("MCP prompt", FILE, Refused).keys(&[
    key("name", Text, "The name.").required(),
    key("description", Text, "The description that hosts show."),
    RESPONSE,
    key("arguments", List(&Section(&MCP_ARGUMENT)), "The values for `{name}` in the response."),
]);

/// An argument of such a prompt.
pub(crate) static MCP_ARGUMENT: MapSchema = MapSchema::new("argument of an MCP prompt", FILE, Refused).keys(&[
    key("name", Text, "The name.").required(),
    key("description", Text, "The description that hosts show."),
    key("required", Bool, "Whether the argument is required.").default("false"),
]);

/// An item of `resources` of the channel `mcp`.
pub(crate) static MCP_RESOURCE: MapSchema = MapSchema::new("MCP resource", FILE, Refused).keys(&[
    key("uri", Text, "The URI. With `{name}` it is a resource template.").required(),
    key("name", Text, "The name."),
    key("description", Text, "What the resource contains, in one sentence."),
    key("mime_type", Text, "The media type.").default("text/plain"),
    RESPONSE,
]);
