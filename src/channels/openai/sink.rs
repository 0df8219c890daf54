//! The sink of a turn over OpenAI's API: its messages as one text, in parts, as they come.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use segue_engine::ids::ConversationId;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::running::{RunningRequest, RunningRequests};
use crate::{
    channels::{Capabilities, encode},
    context::CallContext,
    conversation::{DeliveryError, Receipt, Reply, ReplySink, TurnEvent, WriteGate},
    limits,
};

/// Puts the text of a turn into the queue of its response. What was sent cannot be taken back, so the text of a message only grows.
pub(super) struct ChatSink {
    queue: mpsc::Sender<String>,
    separator: &'static str,
    capabilities: Capabilities,
    /// What was sent of each message, and the text of the attempt that runs.
    sent: HashMap<Arc<str>, SentMessage>,
    has_sent: bool,
    /// Tells that the turn has ended, when the sink is dropped.
    turn: TurnEnd,
}

#[derive(Default)]
struct SentMessage {
    sent: String,
    /// The text of the current attempt: a turn that is attempted again streams a message again.
    current: String,
}

/// Tells that the turn has ended when it is dropped with its sink.
pub(super) struct TurnEnd {
    pub(super) running: RunningRequests,
    pub(super) conversation: ConversationId,
    pub(super) request: Arc<RunningRequest>,
}

impl Drop for TurnEnd {
    fn drop(&mut self) {
        self.running.turn_ended(&self.conversation, &self.request);
    }
}

/// A sink, and the receiver from which the response reads.
pub(super) fn chat_sink(
    separator: &'static str,
    capabilities: Capabilities,
    turn: TurnEnd,
) -> (ChatSink, mpsc::Receiver<String>) {
    let (queue, receiver) = mpsc::channel(limits::CHANNEL_QUEUE);
    (ChatSink { queue, separator, capabilities, sent: HashMap::new(), has_sent: false, turn }, receiver)
}

#[async_trait]
impl ReplySink for ChatSink {
    fn wants_deltas(&self) -> bool {
        true
    }
    fn accepts_earlier_replies(&self) -> bool {
        true
    }
    fn repeats_delivered_replies(&self) -> bool {
        true
    }
    fn cancellation(&self) -> Option<CancellationToken> {
        Some(self.turn.request.cancel.clone())
    }
    fn write_gate(&self) -> Option<Arc<WriteGate>> {
        Some(self.turn.request.gate.clone())
    }
    async fn send(&mut self, event: TurnEvent, cx: &CallContext) -> Result<Receipt, DeliveryError> {
        match event {
            TurnEvent::MessageStart { id, .. } => {
                self.sent.entry(id).or_default().current.clear();
                Ok(Receipt::Skipped)
            }
            TurnEvent::MessageDelta { id, text } => {
                let mut current = self.sent.get_mut(&id).map(|it| std::mem::take(&mut it.current)).unwrap_or_default();
                current.push_str(&text);
                self.say(id, current, cx).await?;
                Ok(Receipt::Delivered)
            }
            TurnEvent::MessageEnd { id, message, .. } | TurnEvent::Message { id, message, .. } => {
                self.say(id, text_of(&message, self.capabilities), cx).await?;
                self.taken(cx).await
            }
            _ => Ok(Receipt::Skipped),
        }
    }
}

impl ChatSink {
    /// Sends what is new of a message whose text so far is `text`. If it is another text than was sent, it follows as a whole.
    async fn say(&mut self, id: Arc<str>, text: String, cx: &CallContext) -> Result<(), DeliveryError> {
        let message = self.sent.entry(id).or_default();
        // Spaces at the beginning of a message, as some models write them, do not add to the separator.
        let is_first = message.sent.trim().is_empty();
        let new = match text.strip_prefix(message.sent.as_str()) {
            Some(new) => new.to_owned(),
            // The beginning of it, streamed again.
            None if message.sent.starts_with(text.as_str()) => String::new(),
            None => {
                message.sent.clear();
                format!("{}{text}", self.separator)
            }
        };
        if message.sent.is_empty() {
            message.sent.push_str(&text);
        } else {
            message.sent.push_str(&new);
        }
        message.current = text;
        if new.is_empty() {
            return Ok(());
        }
        let part = match is_first {
            true if new.trim().is_empty() => return Ok(()),
            true if self.has_sent => format!("{}{}", self.separator, new.trim_start()),
            true => new.trim_start().to_owned(),
            false => new,
        };
        self.has_sent = true;
        let sending = self.queue.send(part);
        match cx.with_timeout(limits::CHANNEL_SEND_TIMEOUT).wait(sending).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => {
                self.queue = mpsc::channel(1).0;
                Err(hung_up())
            }
        }
    }

    /// Waits until the client's connection has taken everything: only then a message counts as delivered, so that one that a client did not
    /// get is told with its next request.
    async fn taken(&self, cx: &CallContext) -> Result<Receipt, DeliveryError> {
        let taken = self.queue.reserve_many(self.queue.max_capacity());
        match cx.uncancellable().with_timeout(limits::CHANNEL_SEND_TIMEOUT).wait(taken).await {
            Ok(Ok(_)) => Ok(Receipt::Delivered),
            Ok(Err(_)) | Err(_) => Err(hung_up()),
        }
    }
}

fn hung_up() -> DeliveryError {
    DeliveryError::Temporary("the client has ended its request".to_owned())
}

/// A reply as text.
pub(super) fn text_of(reply: &Reply, capabilities: Capabilities) -> String {
    let fitted = encode::fit(reply, capabilities);
    let texts = fitted.iter().filter_map(|reply| reply.text.as_deref());
    texts.collect::<Vec<_>>().join("\n\n")
}
