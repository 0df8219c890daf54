//! A sink whose turn a test can interrupt.

use segue::{CallContext, DeliveryError, Receipt, ReplySink, TurnEvent, async_trait};
use tokio_util::sync::CancellationToken;

/// A sink that accepts every reply and interrupts its turn when the token is cancelled.
pub(crate) struct InterruptibleSink(pub(crate) CancellationToken);

#[async_trait]
impl ReplySink for InterruptibleSink {
    fn wants_deltas(&self) -> bool {
        false
    }
    async fn send(&mut self, _: TurnEvent, _: &CallContext) -> Result<Receipt, DeliveryError> {
        Ok(Receipt::Delivered)
    }
    fn cancellation(&self) -> Option<CancellationToken> {
        Some(self.0.clone())
    }
}
