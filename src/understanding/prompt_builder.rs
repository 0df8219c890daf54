//! Builds the requests to the model: a system message that depends on the project and its shown flows only, so that
//! providers can cache it, and a user message for the turn.

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

use super::{context::GeneratorContext, custom_template, state};
use crate::{
    limits,
    llm::{ChatMessage, ChatRequest, ModelProfile, Purpose},
    prompts::PromptSet,
};

/// The key of a cached system message: the hash of the project, and which of its flows are shown.
type PromptKey = (u64, Vec<u64>);

/// Builds the requests of the command generator.
#[derive(Debug)]
pub(super) struct PromptBuilder {
    prompts: Arc<PromptSet>,
    /// The system messages: rendered once, then shared by all turns. Locked only for a look-up.
    system_messages: Mutex<HashMap<PromptKey, Arc<ChatMessage>>>,
}

impl PromptBuilder {
    pub(super) fn new(prompts: Arc<PromptSet>) -> Self {
        Self { prompts, system_messages: Mutex::new(HashMap::new()) }
    }

    /// The request for the newest message.
    ///
    /// # Errors
    /// A template cannot be rendered; the message names its file and line.
    pub(super) fn request(
        &self,
        context: &GeneratorContext<'_>,
        at: Timestamp,
        profile: &ModelProfile,
    ) -> Result<ChatRequest, String> {
        let default;
        let config = match &context.project.config.generator {
            Some(config) => config,
            None => {
                default = GeneratorConfig::default();
                &default
            }
        };
        let now = config.include_date_time.then(|| ZonedTime::new(at, &config.timezone).ok()).flatten();
        let messages = match &context.project.command_prompt {
            Some(template) => {
                let text =
                    context.project.templates.render(template, custom_template::variables(context, now.as_ref()));
                vec![ChatMessage::user(text.map_err(|error| error.to_string())?)]
            }
            None => vec![self.system_message(context)?, self.turn_message(context, now.as_ref())?],
        };
        let settings = context.project.endpoints.model_settings(config.model_group.as_deref(), &config.llm);
        let request = ChatRequest::new(Purpose::COMMANDS, messages);
        Ok(request.with_defaults(&settings, profile, 0.0, limits::COMMAND_TOKENS))
    }

    /// The request after an answer that cannot be used: the first request, the answer and the mistakes in it.
    ///
    /// # Errors
    /// A template cannot be rendered.
    pub(super) fn repair_request(
        &self,
        first: &ChatRequest,
        answer: &str,
        mistakes: &[String],
    ) -> Result<ChatRequest, String> {
        let mistakes: Vec<String> = mistakes.iter().take(limits::COMMAND_MISTAKES).cloned().collect();
        let text =
            self.prompts.render(&self.prompts.commands_repair, context! { mistakes }).map_err(|e| e.to_string())?;
        let shown = truncate(answer, TextLimit::Bytes(limits::COMMAND_QUOTED), ELLIPSIS);
        let mut request = first.clone();
        request.messages.push(ChatMessage::assistant(&*shown));
        request.messages.push(ChatMessage::user(text));
        Ok(request)
    }

    /// The request after an empty answer: the first request and a reminder.
    ///
    /// # Errors
    /// A template cannot be rendered.
    pub(super) fn empty_answer_request(&self, first: &ChatRequest) -> Result<ChatRequest, String> {
        let prompts = &self.prompts;
        let text = prompts.render(&prompts.commands_retry_empty, context! {}).map_err(|error| error.to_string())?;
        let mut request = first.clone();
        request.messages.push(ChatMessage::user(text.trim()));
        Ok(request)
    }

    fn system_message(&self, context: &GeneratorContext<'_>) -> Result<Arc<ChatMessage>, String> {
        let key = (context.project.hash, context.shown_flows_key.clone());
        if let Some(message) = self.system_messages.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(message.clone());
        }
        let has_agents = !context.project.agents.is_empty();
        let values = context! { flows => state::flows(context), has_agents };
        let text = self.prompts.render(&self.prompts.commands, values).map_err(|error| error.to_string())?;
        let message = ChatMessage::system(text.trim_end());
        let mut cache = self.system_messages.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= limits::COMMAND_PROMPTS {
            cache.clear();
        }
        cache.insert(key, message.clone());
        Ok(message)
    }

    fn turn_message(
        &self,
        context: &GeneratorContext<'_>,
        now: Option<&ZonedTime>,
    ) -> Result<Arc<ChatMessage>, String> {
        let values = context! {
            state => state::state(context),
            history => state::history(context),
            current_datetime => now.map(ZonedTime::to_value),
            user_message => state::one_line(context.message()),
        };
        let text = self.prompts.render(&self.prompts.commands_turn, values).map_err(|error| error.to_string())?;
        Ok(ChatMessage::user(text))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::understanding::fixture::{TURN_TIME, bank, transfer};

    fn prompt_builder() -> PromptBuilder {
        PromptBuilder::new(Arc::new(PromptSet::new(|_| None).unwrap()))
    }

    #[test]
    fn the_cache_of_system_messages_is_bounded() {
        let (prompt_builder, project, conversation) = (prompt_builder(), bank(), transfer());
        for hash in 0..limits::COMMAND_PROMPTS as u64 {
            prompt_builder.system_messages.lock().unwrap().insert((hash, vec![u64::MAX]), ChatMessage::system("old"));
        }
        let context = GeneratorContext::new(&project, &conversation.0);
        let request =
            prompt_builder.request(&context, TURN_TIME, &ModelProfile::for_model("openai", "gpt-4o")).unwrap();
        assert!(request.messages.first().unwrap().text().contains("transfer_money"));
        assert_eq!(prompt_builder.system_messages.lock().unwrap().len(), 1, "the old entries are gone");
    }

    #[test]
    fn repair_requests_truncate_the_answer_and_its_mistakes() {
        let first = ChatRequest::new(Purpose::COMMANDS, vec![ChatMessage::user("x")]);
        let mistakes: Vec<String> = (0..100).map(|n| format!("mistake number {n}.")).collect();
        let request = prompt_builder().repair_request(&first, &"y".repeat(100_000), &mistakes).unwrap();
        let (answer, reported) = (request.messages.get(1).unwrap(), request.messages.get(2).unwrap());
        assert!(answer.text().len() <= limits::COMMAND_QUOTED, "{}", answer.text().len());
        assert_eq!(reported.text().matches("mistake number").count(), limits::COMMAND_MISTAKES);
    }
}
