//! Keys of `credentials.yml`, and those of the built-in channels.

use super::{JWT, Key, MapSchema, UnknownKeys::*, ValueType::*, key};

const FILE: &str = "credentials.yml";

const NOT_YET: &str = "This version does not speak this channel; use `rest`, or implement the `Channel` trait";

/// The file: one key for each channel.
pub(crate) static CREDENTIALS: MapSchema = MapSchema::new("credentials file", FILE, Kept).keys(&[
    key("version", Any, "The format's version; conventional and not needed.").accepted(""),
    key("rest", Section(&REST), "Messages over HTTP."),
    key("mcp", Section(&MCP_CHANNEL), "The assistant as an MCP server, under `/mcp`."),
    key("cmdline", Any, "The terminal; `segue chat` needs no entry.").accepted(""),
    key("rasa", Any, "A server of the vendor.").accepted(""),
    key("inspector", Any, "The development page.").accepted(""),
    key("callback", Section(&CHANNEL), "Replies to an address.").warned(NOT_YET),
    key("socketio", Section(&CHANNEL), "Socket.IO.").warned(NOT_YET),
    key("slack", Section(&CHANNEL), "Slack.").warned(NOT_YET),
    key("telegram", Section(&CHANNEL), "Telegram.").warned(NOT_YET),
    key("twilio", Section(&CHANNEL), "SMS and WhatsApp over Twilio.").warned(NOT_YET),
    key("facebook", Section(&CHANNEL), "Messenger.").warned(NOT_YET),
    key("botframework", Section(&CHANNEL), "Teams and others over the Bot Framework.").warned(NOT_YET),
    key("mattermost", Section(&CHANNEL), "Mattermost.").warned(NOT_YET),
    key("rocketchat", Section(&CHANNEL), "Rocket.Chat.").warned(NOT_YET),
    key("webexteams", Section(&CHANNEL), "Webex.").warned(NOT_YET),
    key("hangouts", Section(&CHANNEL), "Google Chat.").warned(NOT_YET),
    key("twilio_voice", Section(&CHANNEL), "Calls over Twilio, as text.").warned(NOT_YET),
    key("audiocodes", Section(&CHANNEL), "Calls over AudioCodes, as text.").warned(NOT_YET),
    key("jambonz", Section(&CHANNEL), "Calls over Jambonz, as text.").warned(NOT_YET),
    key("genesys", Section(&CHANNEL), "Calls over Genesys, as sound.").warned(NOT_YET),
    key("browser_audio", Section(&CHANNEL), "Sound from a browser.").warned(NOT_YET),
    key("twilio_media_streams", Section(&CHANNEL), "Calls over Twilio, as sound.").warned(NOT_YET),
    key("audiocodes_stream", Section(&CHANNEL), "Calls over AudioCodes, as sound.").warned(NOT_YET),
    key("jambonz_stream", Section(&CHANNEL), "Calls over Jambonz, as sound.").warned(NOT_YET),
]);

const ORIGINS: Key =
    key("allowed_origins", Texts, "Web pages that may call, as `https://host:port` or `https://host:*`.");
const HOSTS: Key =
    key("allowed_hosts", Texts, "The names under which the server is called; any that its address admits unless set.");
const JWT_RULES: Key =
    key("jwt", Section(&JWT), "Which tokens of an authorization server are taken; beside `auth_token`, or alone.");
const PAYLOADS: Key =
    key("payloads", Bool, "Whether messages such as `/SetSlots(…)` are read as payloads; else they are words.")
        .default("true");

/// What every channel may have; the server checks it before the channel sees a request.
pub(crate) static CHANNEL: MapSchema = MapSchema::new("channel", FILE, Kept).keys(&[ORIGINS, HOSTS]);

/// `rest`.
pub(crate) static REST: MapSchema = MapSchema::new("`rest` channel", FILE, Warned).keys(&[
    key("auth_token", Text, "The token that callers must show, as `${NAME}`.").older(&["token"]),
    JWT_RULES,
    key(
        "senders",
        TextOrTexts,
        "For whom `auth_token` speaks; `shop-*` stands for all that begin so. Anybody unless set.",
    ),
    PAYLOADS,
    key("metadata_bytes", Whole, "Bytes that `metadata` of a message may have.").default("16384"),
    ORIGINS,
    HOSTS,
]);

/// `mcp`.
pub(crate) static MCP_CHANNEL: MapSchema = MapSchema::new("`mcp` channel", FILE, Warned).keys(&[
    key("auth_token", Text, "The token that callers over HTTP must show, as `${NAME}`."),
    JWT_RULES,
    key(
        "elicitation",
        Bool,
        "Whether a question is put to the person behind a host that can do so, in place of ending the call.",
    )
    .default("false"),
    PAYLOADS,
    key("prompts", List(&Section(&MCP_PROMPT)), "Prompts of the author."),
    key("resources", List(&Section(&MCP_RESOURCE)), "Resources of the author."),
    ORIGINS,
    HOSTS,
]);

const RESPONSE: Key = key("response", Text, "The response it is made from, with one plain variation.").required();

/// An item of `prompts` of the channel `mcp`.
pub(crate) static MCP_PROMPT: MapSchema = MapSchema::new("MCP prompt", FILE, Refused).keys(&[
    key("name", Text, "Its name.").required(),
    key("description", Text, "What it is for."),
    RESPONSE,
    key("arguments", List(&Section(&MCP_ARGUMENT)), "Values for `{name}` in the response."),
]);

/// An argument of such a prompt.
pub(crate) static MCP_ARGUMENT: MapSchema = MapSchema::new("argument of an MCP prompt", FILE, Refused).keys(&[
    key("name", Text, "Its name.").required(),
    key("description", Text, "What it is."),
    key("required", Bool, "Whether it must be given.").default("false"),
]);

/// An item of `resources` of the channel `mcp`.
pub(crate) static MCP_RESOURCE: MapSchema = MapSchema::new("MCP resource", FILE, Refused).keys(&[
    key("uri", Text, "Its address; with `{name}` it is a template.").required(),
    key("name", Text, "Its name."),
    key("description", Text, "What the resource holds, in one sentence."),
    key("mime_type", Text, "Its media type.").default("text/plain"),
    RESPONSE,
]);
