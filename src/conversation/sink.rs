//! How replies reach a user: a turn sends [`TurnEvent`]s to a [`ReplySink`], which every channel implements.

use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::{TurnEvent, WriteGate};
use crate::context::CallContext;

/// What a channel has done with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// The channel has taken it.
    Delivered,
    /// The channel does not show this event.
    Skipped,
}

/// A delivery that failed. The turn continues: replies are stored with it, and a [temporary](Self::Temporary) failure is retried later.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DeliveryError {
    /// A later attempt may succeed.
    #[error("the channel did not take the message: {0}")]
    Temporary(String),
    /// No attempt will succeed.
    #[error("the channel refuses the message: {0}")]
    Permanent(String),
}

/// Delivers the events of a turn to a user. An implementation needs `wants_deltas` and `send`; everything else has a default.
#[async_trait]
pub trait ReplySink: Send {
    /// Whether the sink wants to show the turn while it runs: the text of a message while it is generated, and what flows, agents and tools
    /// do. When false, only complete messages are sent, and the beginning and the end of the turn.
    fn wants_deltas(&self) -> bool;
    /// Delivers one event. A complete message, or the end of a streamed one, for which this returns [`Receipt::Delivered`] is not sent
    /// again, not even after a crash; of other events the result has no effect. Return [`Receipt::Skipped`] for events that the channel
    /// does not show: later versions send further ones. *Cancellation*: an event whose future is dropped may or may not have been shown.
    ///
    /// # Errors
    /// [`DeliveryError`]; the turn continues.
    async fn send(&mut self, event: TurnEvent, cx: &CallContext) -> Result<Receipt, DeliveryError>;
    /// Whether undelivered replies of earlier turns are sent to this sink before those of this turn: replies to reminders on a channel
    /// that cannot reach its users, or replies to a client that had disconnected. A channel that accepts them shows what the sink was
    /// sent, or [`TurnReport::earlier_replies`](crate::runtime::TurnReport::earlier_replies) before the replies of the report.
    fn accepts_earlier_replies(&self) -> bool {
        false
    }
    /// Whether a repeated message sends its delivered replies once more. False for a channel that pushes: when a platform repeats a
    /// webhook, the user has the replies, and only those that are undelivered are sent. True for the response to a request: a
    /// client that repeats the request has not got its response.
    fn repeats_delivered_replies(&self) -> bool {
        false
    }
    /// A token that the caller cancels to interrupt the turn. The turn then ends before its next call of a model, an agent or a search, and
    /// what has happened is stored. `None` if the turn can be interrupted only by
    /// [`Assistant::interrupt`](crate::runtime::Assistant::interrupt).
    fn cancellation(&self) -> Option<CancellationToken> {
        None
    }
    /// The gate that holds the writes of the turn back until the client's request counts as confirmed. If the client ends the request
    /// before, it closes the gate and cancels the turn: then no write has begun, and none begins, not even after a crash. `None`: writes
    /// begin at once.
    fn write_gate(&self) -> Option<Arc<WriteGate>> {
        None
    }
}

/// A sink that shows nothing. The replies are in the conversation's events and in the turn's report.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiscardReplies;

#[async_trait]
impl ReplySink for DiscardReplies {
    fn wants_deltas(&self) -> bool {
        false
    }
    async fn send(&mut self, _: TurnEvent, _: &CallContext) -> Result<Receipt, DeliveryError> {
        Ok(Receipt::Skipped)
    }
}

/// Counts every event as delivered: the caller shows the replies of the turn's report.
pub(crate) struct AcceptAllSink;

#[async_trait]
impl ReplySink for AcceptAllSink {
    fn wants_deltas(&self) -> bool {
        false
    }
    fn accepts_earlier_replies(&self) -> bool {
        true
    }
    fn repeats_delivered_replies(&self) -> bool {
        true
    }
    async fn send(&mut self, _: TurnEvent, _: &CallContext) -> Result<Receipt, DeliveryError> {
        Ok(Receipt::Delivered)
    }
}
