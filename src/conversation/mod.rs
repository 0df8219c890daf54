//! Conversations: the engine's events and state, and the sink for replies.
//!
//! Entry: [`ReplySink`]. This module never renders, stores or decides.

pub mod sink;

pub use segue_engine::conversation::*;

pub(crate) use self::sink::AcceptAllSink;
pub use self::sink::{DeliveryError, DiscardReplies, Receipt, ReplyEvent, ReplyKind, ReplySink};
