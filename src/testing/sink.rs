//! A channel that keeps what it is given.

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;

use crate::{
    context::CallContext,
    conversation::{BotKind, DeliveryError, Receipt, ReplyEvent, ReplySink},
};

/// What a [`CollectingSink`] was given. Clones see the same.
#[derive(Clone, Debug, Default)]
pub struct Collected(Arc<Mutex<Vec<ReplyEvent>>>);

impl Collected {
    /// All pieces, in order.
    pub fn pieces(&self) -> Vec<ReplyEvent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// The texts of complete messages with their kinds, in order.
    pub fn messages(&self) -> Vec<(String, BotKind)> {
        let text = |piece: ReplyEvent| match piece {
            ReplyEvent::End { message, kind, .. } | ReplyEvent::Message { message, kind, .. } => {
                Some((message.text.as_deref().unwrap_or_default().to_owned(), kind))
            }
            ReplyEvent::Start { .. } | ReplyEvent::Delta { .. } | ReplyEvent::Activity { .. } => None,
        };
        self.pieces().into_iter().filter_map(text).collect()
    }
    /// The texts alone.
    pub fn texts(&self) -> Vec<String> {
        self.messages().into_iter().map(|(text, _)| text).collect()
    }
}

/// Keeps what it is given; [`CollectingSink::collected`] shows it, also after the sink went into a turn.
#[derive(Clone, Debug, Default)]
pub struct CollectingSink {
    streams: bool,
    collected: Collected,
}

impl CollectingSink {
    /// One that is given whole messages, after they are stored.
    pub fn whole() -> Self {
        Self::default()
    }
    /// One that is given pieces as they come.
    pub fn streaming() -> Self {
        Self { streams: true, ..Self::default() }
    }
    /// What it was given, now and later.
    pub fn collected(&self) -> Collected {
        self.collected.clone()
    }
}

impl ReplySink for CollectingSink {
    fn wants_deltas(&self) -> bool {
        self.streams
    }
    fn send<'a>(&'a mut self, piece: ReplyEvent, _: &'a CallContext) -> BoxFuture<'a, Result<Receipt, DeliveryError>> {
        self.collected.0.lock().unwrap_or_else(PoisonError::into_inner).push(piece);
        Box::pin(std::future::ready(Ok(Receipt::Delivered)))
    }
}
