//! How replies reach a user: a turn sends [`ReplyEvent`]s to a [`ReplySink`], which every channel implements.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{BotKind, Reply};
use crate::context::CallContext;

/// The kind of a streamed message, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyKind {
    /// Not known before [`ReplyEvent::End`].
    Pending,
    /// The kind.
    #[serde(untagged)]
    Known(BotKind),
}

/// A message to the user, a part of one, or an activity. The JSON form is that of the REST channel's event stream.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ReplyEvent {
    /// A streamed message begins.
    #[serde(rename = "message_start")]
    Start {
        /// Its id; the events that follow name it.
        id: Arc<str>,
        /// Its source: `agent:<name>` or `response:<name>`.
        source: Arc<str>,
        /// Its kind, if known.
        kind: ReplyKind,
    },
    /// More text of a streamed message. Provisional until [`ReplyEvent::End`].
    #[serde(rename = "message_delta")]
    Delta {
        /// The id of the message.
        id: Arc<str>,
        /// The text to add.
        text: Arc<str>,
    },
    /// A streamed message is complete. `message` is authoritative; it may differ from the streamed text.
    #[serde(rename = "message_end")]
    End {
        /// The id of the message.
        id: Arc<str>,
        /// The complete message. Boxed, so that the far more frequent deltas stay small.
        message: Box<Reply>,
        /// Its kind.
        kind: BotKind,
        /// Whether it was cut off, by an interruption or a failure.
        interrupted: bool,
    },
    /// A message that was not streamed.
    #[serde(rename = "message")]
    Message {
        /// Its id.
        id: Arc<str>,
        /// The complete message.
        message: Box<Reply>,
        /// Its kind.
        kind: BotKind,
    },
    /// An activity that a channel may show, for example as "is typing".
    Activity {
        /// `agent_started`, `tool_started`, `tool_finished`.
        kind: &'static str,
        /// The name of the agent or tool.
        name: Arc<str>,
    },
}

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

/// Delivers the replies of a turn to a user.
pub trait ReplySink: Send {
    /// Whether the sink wants the text of a message while it is generated. When false, only complete messages are sent.
    fn wants_deltas(&self) -> bool;
    /// Delivers one event. A complete message, or the end of a streamed one, for which this returns [`Receipt::Delivered`] is not sent
    /// again, not even after a crash. *Cancellation*: an event whose future is dropped may or may not have been shown.
    ///
    /// # Errors
    /// [`DeliveryError`]; the turn continues.
    fn send<'a>(&'a mut self, event: ReplyEvent, cx: &'a CallContext) -> BoxFuture<'a, Result<Receipt, DeliveryError>>;
    /// Whether undelivered replies of earlier turns are sent to this sink before those of this turn: replies to reminders on a channel
    /// that cannot reach its users, or replies to a client that had disconnected. A channel that accepts them shows what the sink was
    /// sent, or [`TurnReport::earlier_replies`](crate::runtime::TurnReport::earlier_replies) before the replies of the report.
    fn accepts_earlier_replies(&self) -> bool {
        false
    }
    /// Called when the message is stored: it will be answered even if this process ends. Called once, before the first event; not called
    /// for a message that is rejected.
    fn on_accepted(&mut self) {}
    /// A token that the caller cancels to interrupt the turn. The turn then ends before its next call of a model, an agent or a search, and
    /// what has happened is stored. `None` if the turn cannot be interrupted this way.
    fn cancellation(&self) -> Option<CancellationToken> {
        None
    }
}

/// A sink that shows nothing. The replies are in the conversation's events and in the turn's report.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiscardReplies;

impl ReplySink for DiscardReplies {
    fn wants_deltas(&self) -> bool {
        false
    }
    fn send<'a>(&'a mut self, _: ReplyEvent, _: &'a CallContext) -> BoxFuture<'a, Result<Receipt, DeliveryError>> {
        Box::pin(std::future::ready(Ok(Receipt::Skipped)))
    }
}

/// Counts every event as delivered: the caller shows the replies of the turn's report.
pub(crate) struct AcceptAllSink;

impl ReplySink for AcceptAllSink {
    fn wants_deltas(&self) -> bool {
        false
    }
    fn accepts_earlier_replies(&self) -> bool {
        true
    }
    fn send<'a>(&'a mut self, _: ReplyEvent, _: &'a CallContext) -> BoxFuture<'a, Result<Receipt, DeliveryError>> {
        Box::pin(std::future::ready(Ok(Receipt::Delivered)))
    }
}
