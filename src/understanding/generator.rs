//! What the model is asked: one stable message for the project and its flows, one for the turn.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use minijinja::context;
use segue_engine::{
    project::GeneratorConfig,
    template::ZonedTime,
    text::{ELLIPSIS, TextLimit, truncate},
    time::Timestamp,
};

use super::{own, state, view::View};
use crate::{
    limits,
    llm::{ChatMessage, ChatRequest, ModelProfile, Purpose},
    prompts::PromptSet,
};

/// Which project, and which of its flows are shown.
type Stable = (u64, Vec<u64>);

/// Makes the requests of the command generator.
#[derive(Debug)]
pub(super) struct Generator {
    prompts: Arc<PromptSet>,
    /// The stable messages: rendered once, then shared by all turns. Guarded for the time of a look-up only.
    stable: Mutex<HashMap<Stable, Arc<ChatMessage>>>,
}

impl Generator {
    pub(super) fn new(prompts: Arc<PromptSet>) -> Self {
        Self { prompts, stable: Mutex::new(HashMap::new()) }
    }

    /// The request for the newest message.
    ///
    /// # Errors
    /// A template cannot be rendered; the text names its file and line.
    pub(super) fn request(
        &self,
        view: &View<'_>,
        at: Timestamp,
        profile: &ModelProfile,
    ) -> Result<ChatRequest, String> {
        let default;
        let config = match &view.project.config.generator {
            Some(config) => config,
            None => {
                default = GeneratorConfig::default();
                &default
            }
        };
        let now = config.include_date_time.then(|| ZonedTime::new(at, &config.timezone).ok()).flatten();
        let messages = match &view.project.command_prompt {
            Some(template) => {
                let text = view.project.templates.render(template, own::variables(view, now.as_ref()));
                vec![ChatMessage::user(text.map_err(|error| error.to_string())?)]
            }
            None => vec![self.stable(view)?, self.turn(view, now.as_ref())?],
        };
        let settings = view.project.endpoints.model_settings(config.model_group.as_deref(), &config.llm);
        let request = ChatRequest::new(Purpose::COMMANDS, messages);
        Ok(request.with_defaults(&settings, profile, 0.0, limits::COMMAND_TOKENS))
    }

    /// The request for the same message after an answer that cannot be used.
    ///
    /// # Errors
    /// A template cannot be rendered.
    pub(super) fn mend(&self, first: &ChatRequest, answer: &str, mistakes: &[String]) -> Result<ChatRequest, String> {
        let mistakes: Vec<String> = mistakes.iter().take(limits::COMMAND_MISTAKES).cloned().collect();
        let text =
            self.prompts.render(&self.prompts.commands_repair, context! { mistakes }).map_err(|e| e.to_string())?;
        let shown = truncate(answer, TextLimit::Bytes(limits::COMMAND_QUOTED), ELLIPSIS);
        let mut request = first.clone();
        request.messages.push(ChatMessage::assistant(&*shown));
        request.messages.push(ChatMessage::user(text));
        Ok(request)
    }

    /// The request for the same message after an answer in which nothing was.
    ///
    /// # Errors
    /// A template cannot be rendered.
    pub(super) fn nudge(&self, first: &ChatRequest) -> Result<ChatRequest, String> {
        let prompts = &self.prompts;
        let text = prompts.render(&prompts.commands_retry_empty, context! {}).map_err(|error| error.to_string())?;
        let mut request = first.clone();
        request.messages.push(ChatMessage::user(text.trim()));
        Ok(request)
    }

    fn stable(&self, view: &View<'_>) -> Result<Arc<ChatMessage>, String> {
        let key = (view.project.hash, view.mask.clone());
        if let Some(message) = self.stable.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(message.clone());
        }
        let has_agents = !view.project.agents.is_empty();
        let values = context! { flows => state::flows(view), has_agents };
        let text = self.prompts.render(&self.prompts.commands, values).map_err(|error| error.to_string())?;
        let message = ChatMessage::system(text.trim_end());
        let mut known = self.stable.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= limits::COMMAND_PROMPTS {
            known.clear();
        }
        known.insert(key, message.clone());
        Ok(message)
    }

    fn turn(&self, view: &View<'_>, now: Option<&ZonedTime>) -> Result<Arc<ChatMessage>, String> {
        let values = context! {
            state => state::state(view),
            history => state::history(view),
            current_datetime => now.map(ZonedTime::to_value),
            user_message => state::one_line(view.message()),
        };
        let text = self.prompts.render(&self.prompts.commands_turn, values).map_err(|error| error.to_string())?;
        Ok(ChatMessage::user(text))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::understanding::fixture::{NOON, bank, transfer};

    fn generator() -> Generator {
        Generator::new(Arc::new(PromptSet::new(|_| None).unwrap()))
    }

    #[test]
    fn no_more_stable_prompts_are_kept_than_allowed() {
        let (generator, project, talk) = (generator(), bank(), transfer());
        for hash in 0..limits::COMMAND_PROMPTS as u64 {
            generator.stable.lock().unwrap().insert((hash, vec![u64::MAX]), ChatMessage::system("old"));
        }
        let view = View::new(&project, &talk.0);
        let request = generator.request(&view, NOON, &ModelProfile::of("openai", "gpt-4o")).unwrap();
        assert!(request.messages.first().unwrap().text().contains("transfer_money"));
        assert_eq!(generator.stable.lock().unwrap().len(), 1, "the old ones went");
    }

    #[test]
    fn an_unusable_answer_and_its_mistakes_are_told_in_brief() {
        let first = ChatRequest::new(Purpose::COMMANDS, vec![ChatMessage::user("x")]);
        let mistakes: Vec<String> = (0..100).map(|n| format!("mistake number {n}.")).collect();
        let request = generator().mend(&first, &"y".repeat(100_000), &mistakes).unwrap();
        let (answer, told) = (request.messages.get(1).unwrap(), request.messages.get(2).unwrap());
        assert!(answer.text().len() <= limits::COMMAND_QUOTED, "{}", answer.text().len());
        assert_eq!(told.text().matches("mistake number").count(), limits::COMMAND_MISTAKES);
    }
}
