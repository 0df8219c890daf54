//! The inbox of a channel: it passes parsed messages to the assistant.

use std::{fmt, sync::Arc};

use segue_engine::{ids::ConversationId, project::WhileBusy};

use crate::{
    clock::Clock,
    conversation::ReplySink,
    runtime::{Accepted, Assistant, IncomingMessage, ReceiveError, TurnReport},
    store::TurnNumber,
};

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

    /// Sets what happens to a message that does not say it while another one of its conversation is processed. The default is that it waits.
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
    pub async fn receive(
        &self,
        message: IncomingMessage,
        sink: Box<dyn ReplySink>,
    ) -> Result<TurnReport, ReceiveError> {
        self.assistant.receive_for(self.caller.as_deref(), self.complete(message), sink).await
    }

    /// [`receive`](Self::receive) that returns as soon as the message is stored, for channels that must answer a platform at once: the
    /// message is then answered even if this process ends. Replies are sent to `sink`, if the message is not a
    /// [duplicate](Accepted::is_duplicate) whose replies were delivered. *Cancellation*: as for `receive`.
    ///
    /// # Errors
    /// [`ReceiveError`] if the message was not accepted.
    pub async fn accept(&self, message: IncomingMessage, sink: Box<dyn ReplySink>) -> Result<Accepted, ReceiveError> {
        self.assistant.accept_for(self.caller.as_deref(), self.complete(message), sink).await
    }

    /// Interrupts the running turn of a conversation, as [`Assistant::interrupt`] does.
    pub fn interrupt(&self, conversation: &ConversationId, turn: Option<TurnNumber>) -> bool {
        self.assistant.interrupt(conversation, turn)
    }

    /// Adds what the inbox knows to a message.
    fn complete(&self, mut message: IncomingMessage) -> IncomingMessage {
        if message.conversation.as_str().is_empty() {
            message.conversation = "default".into();
        }
        if !self.accepts_payloads {
            message.text = strip_payload_slash(&message.text).into();
        }
        message.via = self.channel.clone();
        message.while_busy.get_or_insert(self.while_busy);
        message
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
