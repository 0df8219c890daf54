//! What happened, and where replies go. The events and their fold live in the engine; this room adds the way out.
//!
//! Entry: [`ReplySink`]. This room never renders, stores or decides.

pub mod sink;

pub use segue_engine::conversation::*;

pub(crate) use self::sink::AcceptAllSink;
pub use self::sink::{DeliveryError, DiscardReplies, Receipt, ReplyEvent, ReplyKind, ReplySink};
