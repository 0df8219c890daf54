//! Exchanges of earlier turns, read once. A conversation keeps them as JSON, and every turn of a task shows all of them again.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use serde::Deserialize;
use serde_json::Value as Json;

use crate::{limits, llm::ChatMessage};

/// Messages that were read, by the place of what they were read from.
#[derive(Default)]
pub(super) struct Exchanges(Mutex<HashMap<usize, Read>>);

struct Read {
    /// As long as it is here, nothing else can come to lie at the same place.
    from: Weak<Vec<Json>>,
    messages: Arc<[Arc<ChatMessage>]>,
}

impl Exchanges {
    /// The messages of stored exchanges. One that cannot be read is left out.
    pub(super) fn read(&self, stored: &Arc<Vec<Json>>) -> Arc<[Arc<ChatMessage>]> {
        let place = Arc::as_ptr(stored).addr();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = kept.get(&place) {
            return read.messages.clone();
        }
        let messages: Arc<[_]> =
            stored.iter().filter_map(|message| ChatMessage::deserialize(message).ok().map(Arc::new)).collect();
        if kept.len() >= limits::AGENT_EXCHANGES_READ {
            kept.retain(|_, read| read.from.strong_count() > 0);
        }
        if kept.len() >= limits::AGENT_EXCHANGES_READ {
            kept.clear();
        }
        kept.insert(place, Read { from: Arc::downgrade(stored), messages: messages.clone() });
        messages
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use serde_json::json;

    use super::*;

    fn stored(text: &str) -> Arc<Vec<Json>> {
        Arc::new(vec![json!({"role": "assistant", "text": text}), json!({"role": "nobody"})])
    }

    #[test]
    fn exchanges_are_read_once_and_those_of_nobody_go_first() {
        let exchanges = Exchanges::default();
        let first = stored("first");
        let read = exchanges.read(&first);
        assert_eq!((read.len(), read[0].text()), (1, "first"), "what cannot be read is left out");
        assert!(Arc::ptr_eq(&read, &exchanges.read(&first)));
        for n in 0..3 * limits::AGENT_EXCHANGES_READ {
            assert_eq!(
                exchanges.read(&stored(&n.to_string()))[0].text(),
                n.to_string(),
                "a place that was left is not mistaken"
            );
        }
        assert!(Arc::ptr_eq(&read, &exchanges.read(&first)), "the conversation still has it");
        assert!(exchanges.0.lock().unwrap().len() <= limits::AGENT_EXCHANGES_READ);
        let many: Vec<_> = (0..limits::AGENT_EXCHANGES_READ).map(|n| stored(&n.to_string())).collect();
        many.iter().for_each(|one| drop(exchanges.read(one)));
        assert!(exchanges.0.lock().unwrap().len() <= limits::AGENT_EXCHANGES_READ);
    }
}
