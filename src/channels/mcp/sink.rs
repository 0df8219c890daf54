//! The sink of a tool call: replies become progress notifications, and a cancelled call interrupts its turn.

use async_trait::async_trait;
use rmcp::{
    Peer, RoleServer,
    model::{ProgressNotificationParam, ProgressToken},
    service::RequestContext,
};
use tokio_util::sync::CancellationToken;

use super::super::encode;
use crate::{
    context::CallContext,
    conversation::{DeliveryError, Receipt, ReplySink, TurnEvent},
    limits,
};

/// Sends replies as progress, if the call has a progress token. The result of the call contains the same replies.
pub(super) struct ProgressSink {
    /// The token and the host; `None` when the host wants no progress, or does not read it.
    receiver: Option<(ProgressToken, Peer<RoleServer>)>,
    /// Number of notifications sent: MCP requires that `progress` grows.
    sent: f64,
    is_silent: bool,
    cancellation: CancellationToken,
}

impl ProgressSink {
    /// The sink of one turn. A silent one sends nothing.
    pub(super) fn new(context: &RequestContext<RoleServer>, is_silent: bool) -> Self {
        let token = context.meta.get_progress_token().filter(|_| !is_silent);
        let receiver = token.map(|token| (token, context.peer.clone()));
        Self { receiver, sent: 0.0, is_silent, cancellation: context.ct.clone() }
    }

    async fn notify(&mut self, message: String, cx: &CallContext) {
        let Some((token, peer)) = &self.receiver else { return };
        self.sent += 1.0;
        let progress = ProgressNotificationParam::new(token.clone(), self.sent).with_message(message);
        // A host that does not read must not block the turn; the result contains everything.
        let sent = cx.with_timeout(limits::CHANNEL_SEND_TIMEOUT).wait(peer.notify_progress(progress)).await;
        if !matches!(sent, Ok(Ok(()))) {
            self.receiver = None;
        }
    }
}

#[async_trait]
impl ReplySink for ProgressSink {
    fn wants_deltas(&self) -> bool {
        self.receiver.is_some()
    }
    fn accepts_earlier_replies(&self) -> bool {
        !self.is_silent
    }
    fn repeats_delivered_replies(&self) -> bool {
        true
    }
    async fn send(&mut self, event: TurnEvent, cx: &CallContext) -> Result<Receipt, DeliveryError> {
        match event {
            TurnEvent::Message { message, .. } | TurnEvent::MessageEnd { message, .. } => {
                let text = encode::plain_texts(&message).join("\n\n");
                if !text.is_empty() {
                    self.notify(text, cx).await;
                }
            }
            _ => {}
        }
        Ok(Receipt::Delivered)
    }
    fn cancellation(&self) -> Option<CancellationToken> {
        Some(self.cancellation.clone())
    }
}
