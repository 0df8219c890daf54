//! What is said during a turn, as progress of the call; and the way a host stops a turn.

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

/// Tells a host how a call is coming on, if it asked for that. Everything that is said stands in the answer as well.
pub(super) struct ProgressSink {
    told: Option<(ProgressToken, Peer<RoleServer>)>,
    /// How many pieces were told: progress must grow.
    count: f64,
    silent: bool,
    stop: CancellationToken,
}

impl ProgressSink {
    /// A `silent` one tells nothing.
    pub(super) fn new(context: &RequestContext<RoleServer>, silent: bool) -> Self {
        let token = context.meta.get_progress_token().filter(|_| !silent);
        let told = token.map(|token| (token, context.peer.clone()));
        Self { told, count: 0.0, silent, stop: context.ct.clone() }
    }

    async fn tell(&mut self, words: String, cx: &CallContext) {
        let Some((token, peer)) = &self.told else { return };
        self.count += 1.0;
        let news = ProgressNotificationParam::new(token.clone(), self.count).with_message(words);
        // A host that does not read must not hold the turn: the answer has everything.
        let told = cx.with_timeout(limits::CHANNEL_SEND_TIMEOUT).wait(peer.notify_progress(news)).await;
        if !matches!(told, Ok(Ok(()))) {
            self.told = None;
        }
    }
}

impl ReplySink for ProgressSink {
    fn streams(&self) -> bool {
        self.told.is_some()
    }
    fn takes_earlier(&self) -> bool {
        !self.silent
    }
    fn send<'a>(&'a mut self, piece: ReplyEvent, cx: &'a CallContext) -> BoxFuture<'a, Result<Receipt, DeliveryError>> {
        Box::pin(async move {
            match piece {
                ReplyEvent::Message { message, .. } | ReplyEvent::End { message, .. } => {
                    let words = encode::plain_texts(&message).join("\n\n");
                    if !words.is_empty() {
                        self.tell(words, cx).await;
                    }
                }
                ReplyEvent::Start { .. } | ReplyEvent::Delta { .. } | ReplyEvent::Activity { .. } => {}
            }
            Ok(Receipt::Delivered)
        })
    }
    fn stop(&self) -> Option<CancellationToken> {
        Some(self.stop.clone())
    }
}
