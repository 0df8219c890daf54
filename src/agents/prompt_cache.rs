//! A cache of the stable system messages of agents.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{limits, llm::ChatMessage};

/// What a built-in prompt depends on: the agent's description and the calling step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PromptKey {
    /// Whether the step fills slots.
    pub(super) is_task: bool,
    pub(super) description: Arc<str>,
    pub(super) fillers: bool,
    pub(super) slots: Vec<Arc<str>>,
}

/// Rendered prompts by their key, at most [`limits::AGENT_PROMPTS`].
#[derive(Default)]
pub(super) struct PromptCache(Mutex<HashMap<PromptKey, Arc<ChatMessage>>>);

impl PromptCache {
    /// The cached message of this key; renders it if it is missing. A full cache is cleared first.
    pub(super) fn get(
        &self,
        key: PromptKey,
        render: impl FnOnce() -> Result<String, String>,
    ) -> Result<Arc<ChatMessage>, String> {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(message) = cached.get(&key) {
            return Ok(message.clone());
        }
        let message = ChatMessage::system(render()?);
        if cached.len() >= limits::AGENT_PROMPTS {
            cached.clear();
        }
        cached.insert(key, message.clone());
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_cache_is_cleared_and_errors_are_not_cached() {
        let cache = PromptCache::default();
        let get = |name: &str, rendered: Result<&str, &str>| {
            let key = PromptKey { is_task: false, description: name.into(), fillers: false, slots: Vec::new() };
            let message = cache.get(key, || rendered.map(str::to_owned).map_err(str::to_owned))?;
            Ok::<_, String>(message.text().to_owned())
        };
        assert_eq!(get("a", Err("broken")), Err("broken".into()));
        assert_eq!(get("a", Ok("first")), Ok("first".into()));
        assert_eq!(get("a", Ok("second")), Ok("first".into()));
        for n in 0..limits::AGENT_PROMPTS {
            assert_eq!(get(&n.to_string(), Ok("other")), Ok("other".into()));
        }
        assert_eq!(get("a", Ok("third")), Ok("third".into()));
    }
}
