//! Keys of `credentials.yml`.

use super::{Shape, Takes, Unknown, key};

const NOT_YET: &str = "This version does not speak this channel; use `rest`, or implement the `Channel` trait";

/// The file: one key for each channel.
pub(crate) static CREDENTIALS: Shape = Shape {
    name: "credentials file",
    file: "credentials.yml",
    keys: &[
        key("version", Takes::Any, "The format's version; conventional and not needed.").quiet(),
        key("rest", Takes::Any, "Messages over HTTP."),
        key("mcp", Takes::Any, "The assistant as an MCP server, under `/mcp`."),
        key("cmdline", Takes::Any, "The terminal; `segue chat` needs no entry.").quiet(),
        key("rasa", Takes::Any, "A server of the vendor.").quiet(),
        key("inspector", Takes::Any, "The development page.").quiet(),
        key("callback", Takes::Any, "Replies to an address.").warned(NOT_YET),
        key("socketio", Takes::Any, "Socket.IO.").warned(NOT_YET),
        key("slack", Takes::Any, "Slack.").warned(NOT_YET),
        key("telegram", Takes::Any, "Telegram.").warned(NOT_YET),
        key("twilio", Takes::Any, "SMS and WhatsApp over Twilio.").warned(NOT_YET),
        key("facebook", Takes::Any, "Messenger.").warned(NOT_YET),
        key("botframework", Takes::Any, "Teams and others over the Bot Framework.").warned(NOT_YET),
        key("mattermost", Takes::Any, "Mattermost.").warned(NOT_YET),
        key("rocketchat", Takes::Any, "Rocket.Chat.").warned(NOT_YET),
        key("webexteams", Takes::Any, "Webex.").warned(NOT_YET),
        key("hangouts", Takes::Any, "Google Chat.").warned(NOT_YET),
        key("twilio_voice", Takes::Any, "Calls over Twilio, as text.").warned(NOT_YET),
        key("audiocodes", Takes::Any, "Calls over AudioCodes, as text.").warned(NOT_YET),
        key("jambonz", Takes::Any, "Calls over Jambonz, as text.").warned(NOT_YET),
        key("genesys", Takes::Any, "Calls over Genesys, as sound.").warned(NOT_YET),
        key("browser_audio", Takes::Any, "Sound from a browser.").warned(NOT_YET),
        key("twilio_media_streams", Takes::Any, "Calls over Twilio, as sound.").warned(NOT_YET),
        key("audiocodes_stream", Takes::Any, "Calls over AudioCodes, as sound.").warned(NOT_YET),
        key("jambonz_stream", Takes::Any, "Calls over Jambonz, as sound.").warned(NOT_YET),
    ],
    unknown: Unknown::Kept,
};
