//! Conversations: the engine's events and state, the events of a turn, and the sink for replies.
//!
//! Entry: [`TurnEvent`] and [`ReplySink`]. This module never renders, stores or decides.

pub mod sink;
mod turn_event;
mod write_gate;

pub use segue_engine::conversation::*;

pub(crate) use self::sink::AcceptAllSink;
pub use self::{
    sink::{DeliveryError, DiscardReplies, Receipt, ReplySink},
    turn_event::{AgentPhase, FlowPhase, QuestionKind, ReplyKind, ToolPhase, TurnEvent},
    write_gate::WriteGate,
};
