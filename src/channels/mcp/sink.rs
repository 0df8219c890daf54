//! The sink of a tool call: replies become progress notifications, and a cancelled call interrupts its turn.

use futures::future::BoxFuture;
use rmcp::{
    Peer, RoleServer,
    model::{ProgressNotificationParam, ProgressToken},
    service::RequestContext,
};
use tokio_util::sync::CancellationToken;

use super::super::encode;
use crate::{
    context::CallContext,
    conversation::{DeliveryError, Receipt, ReplyEvent, ReplySink},
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

impl ReplySink for ProgressSink {
    fn wants_deltas(&self) -> bool {
        self.receiver.is_some()
    }
    fn accepts_earlier_replies(&self) -> bool {
        !self.is_silent
    }
    fn send<'a>(&'a mut self, event: ReplyEvent, cx: &'a CallContext) -> BoxFuture<'a, Result<Receipt, DeliveryError>> {
        Box::pin(async move {
            match event {
                ReplyEvent::Message { message, .. } | ReplyEvent::End { message, .. } => {
                    let text = encode::plain_texts(&message).join("\n\n");
                    if !text.is_empty() {
                        self.notify(text, cx).await;
                    }
                }
                ReplyEvent::Start { .. } | ReplyEvent::Delta { .. } | ReplyEvent::Activity { .. } => {}
            }
            Ok(Receipt::Delivered)
        })
    }
    fn cancellation(&self) -> Option<CancellationToken> {
        Some(self.cancellation.clone())
    }
}
