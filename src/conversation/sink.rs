//! Where the pieces of a reply go; every channel implements [`ReplySink`].

use std::sync::Arc;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{BotKind, Reply};
use crate::context::CallContext;

/// What a piece belongs to, as far as it is known: while a text streams its kind is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyKind {
    /// Not known yet; told by [`ReplyEvent::End`].
    Pending,
    /// Known.
    #[serde(untagged)]
    Known(BotKind),
}

/// One piece of a reply.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ReplyEvent {
    /// A streamed message begins.
    #[serde(rename = "message_start")]
    Start {
        /// Its id; the pieces that follow carry it.
        id: Arc<str>,
        /// Who speaks: `agent:<name>`, `response:<name>`.
        source: Arc<str>,
        /// What it is for, if known.
        kind: ReplyKind,
    },
    /// More text of it. Provisional until [`ReplyEvent::End`].
    #[serde(rename = "message_delta")]
    Delta {
        /// The message.
        id: Arc<str>,
        /// The text to add.
        text: Arc<str>,
    },
    /// It is complete; `message` is what counts, whatever was streamed.
    #[serde(rename = "message_end")]
    End {
        /// The message.
        id: Arc<str>,
        /// The whole of it. Boxed, for the many pieces of a text are moved with the room for it.
        message: Box<Reply>,
        /// What it was for.
        kind: BotKind,
        /// Whether it was cut.
        interrupted: bool,
    },
    /// A message that was not streamed.
    #[serde(rename = "message")]
    Message {
        /// Its id.
        id: Arc<str>,
        /// The whole of it.
        message: Box<Reply>,
        /// What it was for.
        kind: BotKind,
    },
    /// Something began or ended that a channel may show.
    Activity {
        /// `agent_started`, `tool_started`, `tool_finished`.
        kind: &'static str,
        /// Of what.
        name: Arc<str>,
    },
}

/// What became of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// The channel has it.
    Delivered,
    /// The channel does not show this piece; the whole message will come when its turn is stored.
    Skipped,
}

/// Why a piece could not be delivered. The turn goes on: what was said is stored, and delivery is tried again.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DeliveryError {
    /// May work later.
    #[error("the channel did not take the message: {0}")]
    Temporary(String),
    /// Will never work.
    #[error("the channel refuses the message: {0}")]
    Permanent(String),
}

/// Where pieces of a reply go.
pub trait ReplySink: Send {
    /// Whether it shows text while it streams. When false, pieces are not sent, only whole messages.
    fn streams(&self) -> bool;
    /// Takes one piece. A whole message, or the end of one, that is [`Receipt::Delivered`] is never offered again, not even after
    /// a crash. *Cancellation*: a piece whose future is dropped may or may not have been shown.
    fn send<'a>(&'a mut self, piece: ReplyEvent, cx: &'a CallContext) -> BoxFuture<'a, Result<Receipt, DeliveryError>>;
    /// Whether replies of earlier turns that nobody could be given yet go out here before those of this turn: reminders on a channel that
    /// cannot reach its users, or what was said after a client had left. A channel that takes them shows what the sink was sent, or
    /// [`TurnReport::earlier_replies`](crate::runtime::TurnReport::earlier_replies) before the replies of the report.
    fn takes_earlier(&self) -> bool {
        false
    }
    /// The message is stored: it gets its turn, whatever happens to this process. Called once, before the first piece; not where the
    /// message is refused.
    fn accepted(&mut self) {}
    /// Fires when the caller wants no more of the turn: it then ends before its next model, agent or search, and what
    /// happened is kept. `None` where nobody can stop a turn.
    fn stop(&self) -> Option<CancellationToken> {
        None
    }
}

/// A sink that shows nothing; the replies are in the events.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiscardReplies;

impl ReplySink for DiscardReplies {
    fn streams(&self) -> bool {
        false
    }
    fn send<'a>(&'a mut self, _: ReplyEvent, _: &'a CallContext) -> BoxFuture<'a, Result<Receipt, DeliveryError>> {
        Box::pin(std::future::ready(Ok(Receipt::Skipped)))
    }
}

/// Takes whole messages as delivered: whoever waits for the turn shows those of its report.
pub(crate) struct AcceptAllSink;

impl ReplySink for AcceptAllSink {
    fn streams(&self) -> bool {
        false
    }
    fn takes_earlier(&self) -> bool {
        true
    }
    fn send<'a>(&'a mut self, _: ReplyEvent, _: &'a CallContext) -> BoxFuture<'a, Result<Receipt, DeliveryError>> {
        Box::pin(std::future::ready(Ok(Receipt::Delivered)))
    }
}
