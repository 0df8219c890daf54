//! Messages of users and replies to them, in the form that all channels share.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::ids::MessageId;

/// A message of a user, as a channel delivers it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserMessage {
    /// The text, trimmed. For an empty text, the dialogue engine sends an error response.
    pub text: Arc<str>,
    /// The channel's own id of the message; used to detect duplicates.
    pub message_id: MessageId,
    /// The name of the channel, as flows and actions see it. Some channels let their callers choose it.
    pub input_channel: Arc<str>,
    /// The channel that has accepted the message; no caller can choose it. Empty if none did, as in a program that passes messages on itself.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub via: Arc<str>,
    /// Whether the writes of its turn wait until the request of the client counts as confirmed. If the process ends before, none begins.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub holds_writes: bool,
    /// Whether it was written before the user got the question that is open, which the assistant has asked without a message, for example
    /// by a reminder. Then it does not answer that question.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub before_question: bool,
    /// Further data from the channel; stored in the slot `session_started_metadata` at the first message of a session.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Json>,
}

/// A button of a reply. The channel sends `payload` back as the user's message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Button {
    /// The label.
    pub title: Arc<str>,
    /// The text that is sent when the button is pressed.
    pub payload: Arc<str>,
    /// Further keys that the author set; passed to the channel unchanged.
    #[serde(flatten, default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Json>,
}

/// A complete message to the user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Arc<str>>,
    /// Buttons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buttons: Vec<Button>,
    /// URL of an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// An attachment, in the form that the author chose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<Json>,
    /// A custom payload for the channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom: Option<Json>,
    /// Carousel elements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elements: Vec<Json>,
    /// Quick replies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quick_replies: Vec<Json>,
}

impl From<&str> for Reply {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}
impl From<String> for Reply {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}
impl From<Arc<str>> for Reply {
    fn from(text: Arc<str>) -> Self {
        Self::text(text)
    }
}

impl Reply {
    /// A reply that consists of text only.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }
    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
