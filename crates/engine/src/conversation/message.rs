//! Messages from users and replies to them, as every channel understands them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::ids::MessageId;

/// One message of a user, as a channel hands it in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserMessage {
    /// What was written, trimmed; empty text is an answer to nothing and leads to an error message, not a crash.
    pub text: Arc<str>,
    /// The wire's own id of the message; the key against duplicates.
    pub message_id: MessageId,
    /// The name of the channel.
    pub input_channel: Arc<str>,
    /// What the channel knows beside; put into `session_started_metadata` at the first message of a session.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Json>,
}

/// A button under a reply. `payload` comes back as the user's message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Button {
    /// What is shown.
    pub title: Arc<str>,
    /// What is sent when it is pressed.
    pub payload: Arc<str>,
    /// Further keys of the author, passed on.
    #[serde(flatten, default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Json>,
}

/// One message to the user, complete.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Arc<str>>,
    /// Buttons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buttons: Vec<Button>,
    /// Address of an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// An attachment, as the author wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<Json>,
    /// A payload of the author for the channel.
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
    /// A reply of text alone.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }
    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
