//! From a parsed message to the assistant: the record that every channel fills, and its defaults.

use std::{fmt, sync::Arc};

use segue_engine::{conversation::UserMessage, ids::ConversationId};
use serde_json::{Map, Value as Json};

use crate::{
    clock::Clock,
    conversation::ReplySink,
    runtime::{Assistant, IncomingMessage, ReceiveError, TurnReport},
};

/// A message as a channel understood it.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Arrival {
    /// Who wrote; `default` when empty.
    pub sender: String,
    /// What was written; may be empty.
    pub text: String,
    /// The wire's own id of the message; empty where it has none, and then a repetition is a new message.
    pub message_id: String,
    /// Another channel name for the conversation to see, where the wire lets the message choose.
    pub input_channel: Option<String>,
    /// What the channel knows beside.
    pub metadata: Map<String, Json>,
}

impl Arrival {
    /// A text from somebody.
    pub fn new(sender: impl Into<String>, text: impl Into<String>) -> Self {
        Self { sender: sender.into(), text: text.into(), ..Self::default() }
    }
    /// The wire's own id of the message: one that comes again gets no second turn.
    #[must_use]
    pub fn message_id(mut self, id: impl Into<String>) -> Self {
        self.message_id = id.into();
        self
    }
    /// What the channel knows beside.
    #[must_use]
    pub fn metadata(mut self, metadata: Map<String, Json>) -> Self {
        self.metadata = metadata;
        self
    }
}

/// The way from one channel to the assistant. Cheap to clone.
#[derive(Clone)]
pub struct Inbox {
    assistant: Assistant,
    channel: Arc<str>,
    payloads: bool,
    caller: Option<Arc<str>>,
}

impl Inbox {
    /// For the channel of this name.
    pub fn new(assistant: Assistant, channel: &str) -> Self {
        Self { assistant, channel: channel.into(), payloads: true, caller: None }
    }

    /// The same way, with or without payloads: without, a message such as `/SetSlots(…)` is read as words of the user.
    #[must_use]
    pub fn taking_payloads(mut self, payloads: bool) -> Self {
        self.payloads = payloads;
        self
    }

    /// The same for one caller, as a proof names it: all its conversations together count for the turns that it may have open.
    /// Without a name each conversation counts for itself.
    #[must_use]
    pub fn for_caller(&self, caller: Option<&Arc<str>>) -> Self {
        Self { caller: caller.cloned(), ..self.clone() }
    }

    /// Hands a message in and answers through `sink`. *Cancellation*: the turn goes on when the future is dropped after its
    /// first poll.
    ///
    /// # Errors
    /// [`ReceiveError`] when the message got no turn.
    pub async fn receive(&self, arrival: Arrival, sink: Box<dyn ReplySink>) -> Result<TurnReport, ReceiveError> {
        let Arrival { sender, text, message_id, input_channel, metadata } = arrival;
        let message = UserMessage {
            text: if self.payloads { text.trim() } else { words(&text) }.into(),
            message_id: message_id.into(),
            input_channel: input_channel.map_or_else(|| self.channel.clone(), Into::into),
            metadata,
        };
        let sender = if sender.is_empty() { "default".to_owned() } else { sender };
        let conversation = ConversationId::from(sender);
        let incoming = IncomingMessage { conversation, message, tenant: "".into(), account: "".into() };
        self.assistant.receive_for(self.caller.as_deref(), incoming, sink).await
    }

    /// Whether a message of the caller would be accepted now; for wires that say something before they hand it in.
    ///
    /// # Errors
    /// What [`Inbox::receive`] would say.
    pub fn admits(&self, conversation: &ConversationId) -> Result<(), ReceiveError> {
        self.assistant.check_admission(self.caller.as_deref(), conversation)
    }

    /// The assistant itself, for channels that do more than hand in messages: they read conversations, or begin flows.
    pub fn assistant(&self) -> &Assistant {
        &self.assistant
    }

    /// Where time comes from, for heartbeats.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        self.assistant.clock()
    }
}

/// A message without what would make it a payload: the slash at its beginning.
pub(super) fn words(text: &str) -> &str {
    text.trim_start_matches(|c: char| c == '/' || c.is_whitespace()).trim_end()
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("channel", &self.channel).finish_non_exhaustive()
    }
}
