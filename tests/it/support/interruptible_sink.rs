//! A sink whose turn a test can interrupt.

use segue::{BoxFuture, CallContext, DeliveryError, Receipt, ReplyEvent, ReplySink};
use tokio_util::sync::CancellationToken;

/// A sink that accepts every reply and interrupts its turn when the token is cancelled.
pub(crate) struct InterruptibleSink(pub(crate) CancellationToken);

impl ReplySink for InterruptibleSink {
    fn wants_deltas(&self) -> bool {
        false
    }
    fn send<'a>(&'a mut self, _: ReplyEvent, _: &'a CallContext) -> BoxFuture<'a, Result<Receipt, DeliveryError>> {
        Box::pin(std::future::ready(Ok(Receipt::Delivered)))
    }
    fn cancellation(&self) -> Option<CancellationToken> {
        Some(self.0.clone())
    }
}
