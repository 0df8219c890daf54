//! The prompt that a project defines for its agent.

use std::sync::Arc;

use minijinja::{Value, context};
use segue_engine::template::{Template, ZonedTime};

use super::{
    AgentRequest,
    profile::Profile,
    slots::RunSlots,
    transcript::{now, readable_history},
};
use crate::llm::ChatMessage;

/// The project's own prompt, rendered for each run, with the variables of all supported Rasa versions.
pub(super) fn own_prompt(
    request: &AgentRequest<'_>,
    prompt: &Template,
    profile: &Profile,
    slots: &RunSlots<'_>,
) -> Result<Arc<ChatMessage>, String> {
    let now = now(request);
    let part = |format: &str| Value::from(now.as_ref().and_then(|now| now.strftime(format).ok()));
    let call = request.call;
    let variables = context! {
        current_datetime => now.as_ref().map(ZonedTime::to_value),
        current_date => part("%d %B, %Y"),
        current_time => part("%H:%M:%S"),
        current_day => part("%A"),
        description => &*request.definition.description,
        slots => slots.snapshot(&profile.exit_slots).into_value(),
        slot_names => profile.slot_names(),
        enable_filler_messages => profile.fillers,
        resumed_after_interruption => call.resumed,
        resumed_last_request => call.resumed_last_request.as_deref().unwrap_or_default(),
        restarted => call.restarted,
        user_message => &*call.user_message,
        conversation_history => readable_history(request),
        recipient_id => request.conversation.id.as_str(),
    };
    let text = request.project.templates.render(prompt, variables).map_err(|error| error.to_string())?;
    Ok(ChatMessage::system(text.trim_end()))
}
