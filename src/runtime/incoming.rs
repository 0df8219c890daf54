//! The messages that the assistant receives.

use std::sync::Arc;

use segue_engine::{
    conversation::UserMessage,
    ids::{ConversationId, MessageId},
    project::WhileBusy,
    time::Timestamp,
};
use serde_json::{Map, Value as Json};

use super::Assistant;
use crate::store::InboxMessage;

/// A message for the assistant, as a channel has parsed it or a program has made it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct IncomingMessage {
    /// The conversation: on most channels, the user. An [`Inbox`](crate::channels::Inbox) takes `default` if it is empty.
    pub conversation: ConversationId,
    /// The text; may be empty. White space around it is removed.
    pub text: Arc<str>,
    /// The protocol's id of the message, by which a repeated delivery is recognised. Empty if the protocol has none: then a repeated
    /// message is a new one.
    pub message_id: MessageId,
    /// The channel name that flows and actions see. If it is absent, it is that of the inbox, or [`Assistant::CHANNEL`] without one.
    pub input_channel: Option<Arc<str>>,
    /// Further data for flows and actions.
    pub metadata: Map<String, Json>,
    /// The tenant; "" if there is only one.
    pub tenant: Arc<str>,
    /// The account on the channel; "" if there is only one.
    pub account: Arc<str>,
    /// What happens to it while another message of the conversation is processed. If it is absent, the inbox decides; without one, the
    /// message waits.
    pub while_busy: Option<WhileBusy>,
    /// The channel that has accepted the message; no caller can choose it. Empty without an inbox.
    pub(crate) via: Arc<str>,
}

impl IncomingMessage {
    /// A text in a conversation, without an id and further data.
    pub fn new(conversation: impl Into<ConversationId>, text: impl Into<Arc<str>>) -> Self {
        let none = Arc::<str>::from("");
        Self {
            conversation: conversation.into(),
            text: text.into(),
            message_id: MessageId::new(none.clone()),
            input_channel: None,
            metadata: Map::new(),
            tenant: none.clone(),
            account: none.clone(),
            while_busy: None,
            via: none,
        }
    }
    /// Sets the protocol's id of the message: a second message with this id gets the replies of the first one and no turn.
    #[must_use]
    pub fn message_id(mut self, id: impl Into<MessageId>) -> Self {
        self.message_id = id.into();
        self
    }
    /// Sets the channel name that flows and actions see.
    #[must_use]
    pub fn input_channel(mut self, channel: impl Into<Arc<str>>) -> Self {
        self.input_channel = Some(channel.into());
        self
    }
    /// Sets further data for flows and actions.
    #[must_use]
    pub fn metadata(mut self, metadata: Map<String, Json>) -> Self {
        self.metadata = metadata;
        self
    }
    /// Sets the tenant, which is part of the key by which a repeated message is recognised.
    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<Arc<str>>) -> Self {
        self.tenant = tenant.into();
        self
    }
    /// Sets the account on the channel, which is part of the key by which a repeated message is recognised.
    #[must_use]
    pub fn account(mut self, account: impl Into<Arc<str>>) -> Self {
        self.account = account.into();
        self
    }
    /// Sets what happens to it while another message of the conversation is processed.
    #[must_use]
    pub fn while_busy(mut self, while_busy: WhileBusy) -> Self {
        self.while_busy = Some(while_busy);
        self
    }

    /// The form in which it is stored, with what its acceptance adds.
    pub(super) fn accepted(self, at: Timestamp, seed: u64) -> InboxMessage {
        let mut text = self.text.trim();
        // One character above the limit stays, so that the engine recognises the message as too long and rejects it.
        if let Some((end, _)) = text.char_indices().nth(segue_engine::limits::MESSAGE_TEXT + 1) {
            text = text.get(..end).unwrap_or_default();
        }
        let text = if text.len() == self.text.len() { self.text } else { text.into() };
        let input_channel = self.input_channel.unwrap_or_else(|| match &*self.via {
            "" => Assistant::CHANNEL.into(),
            _ => self.via.clone(),
        });
        let (via, message_id, metadata) = (self.via, self.message_id, self.metadata);
        let message =
            UserMessage { via, holds_writes: false, before_question: false, text, message_id, input_channel, metadata };
        let (tenant, account, conversation) = (self.tenant, self.account, self.conversation);
        InboxMessage { tenant, account, conversation, message, at, seed }
    }
}
