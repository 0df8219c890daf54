//! A sink that records what it is sent.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use crate::{
    context::CallContext,
    conversation::{BotKind, DeliveryError, Receipt, ReplySink, TurnEvent},
};

/// The events that a [`CollectingSink`] was sent. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct CollectedReplies(Arc<Mutex<Vec<TurnEvent>>>);

impl CollectedReplies {
    /// All events, in order.
    pub fn events(&self) -> Vec<TurnEvent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// The texts of complete messages with their kinds, in order; empty for a message without a text.
    pub fn messages(&self) -> Vec<(String, BotKind)> {
        let text = |event: TurnEvent| match event {
            TurnEvent::MessageEnd { message, kind, .. } | TurnEvent::Message { message, kind, .. } => {
                Some((message.text.as_deref().unwrap_or_default().to_owned(), kind))
            }
            _ => None,
        };
        self.events().into_iter().filter_map(text).collect()
    }
    /// The texts of complete messages, in order.
    pub fn texts(&self) -> Vec<String> {
        self.messages().into_iter().map(|(text, _)| text).collect()
    }
}

/// A sink that records every event and counts it as delivered. [`CollectingSink::collected`] gives access to the events, also after
/// the sink was moved into a turn.
#[derive(Clone, Debug, Default)]
pub struct CollectingSink {
    wants_deltas: bool,
    collected: CollectedReplies,
}

impl CollectingSink {
    /// A sink that is sent complete messages only, after they are stored.
    pub fn without_streaming() -> Self {
        Self::default()
    }
    /// A sink that is sent deltas while a message is generated.
    pub fn streaming() -> Self {
        Self { wants_deltas: true, ..Self::default() }
    }
    /// The recorded events, including later ones.
    pub fn collected(&self) -> CollectedReplies {
        self.collected.clone()
    }
}

#[async_trait]
impl ReplySink for CollectingSink {
    fn wants_deltas(&self) -> bool {
        self.wants_deltas
    }
    async fn send(&mut self, event: TurnEvent, _: &CallContext) -> Result<Receipt, DeliveryError> {
        self.collected.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        Ok(Receipt::Delivered)
    }
}
