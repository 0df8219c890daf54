//! The inbox of a channel: it passes parsed messages to the assistant.

use std::{fmt, sync::Arc};

use segue_engine::{conversation::UserMessage, ids::ConversationId, project::WhileBusy};
use serde_json::{Map, Value as Json};

use crate::{
    clock::Clock,
    conversation::ReplySink,
    runtime::{Accepted, Assistant, IncomingMessage, ReceiveError, TurnReport},
    store::TurnNumber,
};

/// A message that a channel has parsed.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ChannelMessage {
    /// The user, who is also the conversation; `default` if empty.
    pub sender: String,
    /// The text; may be empty.
    pub text: String,
    /// The protocol's id of the message, by which a repeated delivery is recognised. Empty if the protocol has none: then a repeated
    /// message is a new one.
    pub message_id: String,
    /// The channel name that the conversation sees, if the message itself contains one; otherwise that of the inbox.
    pub input_channel: Option<String>,
    /// Further data for flows and actions.
    pub metadata: Map<String, Json>,
}

impl ChannelMessage {
    /// A text message from `sender`.
    pub fn new(sender: impl Into<String>, text: impl Into<String>) -> Self {
        Self { sender: sender.into(), text: text.into(), ..Self::default() }
    }
    /// Sets the protocol's id of the message: a second message with this id gets the replies of the first one and no turn.
    #[must_use]
    pub fn message_id(mut self, id: impl Into<String>) -> Self {
        self.message_id = id.into();
        self
    }
    /// Sets further data for flows and actions.
    #[must_use]
    pub fn metadata(mut self, metadata: Map<String, Json>) -> Self {
        self.metadata = metadata;
        self
    }
}

/// Passes the messages of one channel to the assistant. Cheap to clone.
#[derive(Clone)]
pub struct Inbox {
    assistant: Assistant,
    channel: Arc<str>,
    accepts_payloads: bool,
    while_busy: WhileBusy,
    caller: Option<Arc<str>>,
}

impl Inbox {
    /// The inbox of the channel with this name.
    pub fn new(assistant: Assistant, channel: &str) -> Self {
        Self {
            assistant,
            channel: channel.into(),
            accepts_payloads: true,
            while_busy: WhileBusy::default(),
            caller: None,
        }
    }

    /// Sets what happens to a message while another one of its conversation is processed. The default is that it waits.
    #[must_use]
    pub fn while_busy(mut self, while_busy: WhileBusy) -> Self {
        self.while_busy = while_busy;
        self
    }

    /// Sets whether messages such as `/SetSlots(…)` are payloads. If not, they are ordinary text, without the slash.
    #[must_use]
    pub fn with_payloads(mut self, accepts_payloads: bool) -> Self {
        self.accepts_payloads = accepts_payloads;
        self
    }

    /// The inbox for one authenticated caller: the limit of open turns per caller counts all its conversations together. Without a
    /// caller id, each conversation counts as a caller of its own.
    #[must_use]
    pub fn for_caller(&self, caller: Option<&Arc<str>>) -> Self {
        Self { caller: caller.cloned(), ..self.clone() }
    }

    /// Passes a message to the assistant and waits for its turn; replies are sent to `sink`. *Cancellation*: if the future is dropped
    /// after its first poll, the turn continues.
    ///
    /// # Errors
    /// [`ReceiveError`] if the message got no turn.
    pub async fn receive(&self, message: ChannelMessage, sink: Box<dyn ReplySink>) -> Result<TurnReport, ReceiveError> {
        self.assistant.receive_for(self.caller.as_deref(), self.incoming(message), sink).await
    }

    /// [`receive`](Self::receive) that returns as soon as the message is stored, for channels that must answer a platform at once: the
    /// message is then answered even if this process ends. Replies are sent to `sink`, if the message is not a
    /// [duplicate](Accepted::is_duplicate) whose replies were delivered. *Cancellation*: as for `receive`.
    ///
    /// # Errors
    /// [`ReceiveError`] if the message was not accepted.
    pub async fn accept(&self, message: ChannelMessage, sink: Box<dyn ReplySink>) -> Result<Accepted, ReceiveError> {
        self.assistant.accept_for(self.caller.as_deref(), self.incoming(message), sink).await
    }

    /// Interrupts the running turn of a conversation, as [`Assistant::interrupt`] does.
    pub fn interrupt(&self, conversation: &ConversationId, turn: Option<TurnNumber>) -> bool {
        self.assistant.interrupt(conversation, turn)
    }

    fn incoming(&self, message: ChannelMessage) -> IncomingMessage {
        let ChannelMessage { sender, text, message_id, input_channel, metadata } = message;
        let message = UserMessage {
            via: self.channel.clone(),
            holds_writes: false,
            text: if self.accepts_payloads { text.trim() } else { strip_payload_slash(&text) }.into(),
            message_id: message_id.into(),
            input_channel: input_channel.map_or_else(|| self.channel.clone(), Into::into),
            metadata,
        };
        let sender = if sender.is_empty() { "default".to_owned() } else { sender };
        let mut incoming = IncomingMessage::new(ConversationId::from(sender), message);
        incoming.while_busy = self.while_busy;
        incoming
    }

    /// Checks whether a message of the caller would be accepted now, without reserving anything; for channels that respond before they
    /// call [`receive`](Self::receive).
    ///
    /// # Errors
    /// The error with which [`receive`](Self::receive) would reject the message.
    pub fn check_admission(&self, conversation: &ConversationId) -> Result<(), ReceiveError> {
        self.assistant.check_admission(self.caller.as_deref(), conversation)
    }

    /// The assistant, for channels that also read conversations or start flows.
    pub fn assistant(&self) -> &Assistant {
        &self.assistant
    }

    /// The clock of the assistant, for heartbeats.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        self.assistant.clock()
    }
}

/// The text without the leading slashes that would make it a payload.
pub(super) fn strip_payload_slash(text: &str) -> &str {
    text.trim_start_matches(|c: char| c == '/' || c.is_whitespace()).trim_end()
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("channel", &self.channel).finish_non_exhaustive()
    }
}
