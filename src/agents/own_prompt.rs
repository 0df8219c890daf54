//! The prompt that a project wrote for its agent.

use std::sync::Arc;

use minijinja::{
    Value,
    value::{Enumerator, Object},
};
use segue_engine::template::{Template, ZonedTime};

use super::{
    AgentTask,
    lasting::Lasting,
    profile::Profile,
    session::{now, readable},
    slots::RunSlots,
};
use crate::llm::ChatMessage;

/// The project's own prompt, rendered anew for each run.
pub(super) fn own_prompt(
    task: &AgentTask<'_>,
    prompt: &Template,
    profile: &Profile,
    slots: &RunSlots<'_>,
    lasting: &Lasting,
) -> Result<Arc<ChatMessage>, String> {
    let variables = own_variables(task, &lasting.mentioned(prompt, &OWN_VARIABLES), profile, slots);
    let message = |text: &str| ChatMessage::system(text.trim_end());
    task.project.templates.render_to(prompt, variables, message).map_err(|error| error.to_string())
}

/// The variables of agents.md 6.2, of all generations.
const OWN_VARIABLES: [&str; 14] = [
    "current_datetime",
    "current_date",
    "current_time",
    "current_day",
    "description",
    "slots",
    "slot_names",
    "enable_filler_messages",
    "resumed_after_interruption",
    "resumed_last_request",
    "restarted",
    "user_message",
    "conversation_history",
    "recipient_id",
];

/// The values of those of [`OWN_VARIABLES`] that the prompt mentions.
fn own_variables(task: &AgentTask<'_>, names: &[&'static str], profile: &Profile, slots: &RunSlots<'_>) -> Value {
    let now = names.iter().any(|name| name.starts_with("current_")).then(|| now(task)).flatten();
    let part = |format: &str| Value::from(now.as_ref().and_then(|now| now.strftime(format).ok()));
    let call = task.call;
    let value = |name: &str| match name {
        "current_datetime" => Value::from(now.as_ref().map(ZonedTime::to_value)),
        "current_date" => part("%d %B, %Y"),
        "current_time" => part("%H:%M:%S"),
        "current_day" => part("%A"),
        "description" => Value::from(&*task.definition.description),
        "slots" => slots.snapshot(&profile.exit_slots).into_value(),
        "slot_names" => Value::from(profile.slot_names()),
        "enable_filler_messages" => Value::from(profile.fillers),
        "resumed_after_interruption" => Value::from(call.resumed),
        "resumed_last_request" => Value::from(call.resumed_last_request.as_deref().unwrap_or_default()),
        "restarted" => Value::from(call.restarted),
        "user_message" => Value::from(&*call.user_message),
        "conversation_history" => Value::from(readable(task)),
        "recipient_id" => Value::from(task.conversation.id.as_str()),
        _ => Value::UNDEFINED,
    };
    Value::from_object(Variables(names.iter().map(|name| (*name, value(name))).collect()))
}

/// A few variables for one rendering. They are found by comparing names: a map costs more than it saves here.
#[derive(Debug)]
struct Variables(Vec<(&'static str, Value)>);

impl Object for Variables {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }
    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.0.iter().find(|(name, _)| *name == key).map(|(_, value)| value.clone())
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.iter().map(|(name, _)| Value::from(*name)).collect())
    }
}
