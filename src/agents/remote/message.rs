//! What a remote agent is told: the words, the slots, and what the author lets out beside.

use segue_engine::{condition::Scope, conversation::AgentCall};
use serde_json::{Map, Value as Json, json};

use super::{
    super::{AgentRequest, session::readable, slots::RunSlots},
    outcome::Memory,
};
use crate::a2a::model::{Message, Part, Role};
use segue_engine::project::RemoteDef;

/// The message of one invocation. Its id is made by whoever records it.
pub(super) fn of(task: &AgentRequest<'_>, remote: &RemoteDef, memory: &Memory) -> Message {
    let mut parts = vec![Part::Text(text(task, memory))];
    let slots = slots(task, remote);
    if !slots.is_empty() {
        parts.push(Part::Data(json!({ "slots": slots })));
    }
    Message {
        id: String::new(),
        context_id: memory.context_id.clone(),
        task_id: memory.task_id.clone(),
        role: Role::User,
        parts,
        metadata: metadata(task, remote),
    }
}

/// An agent that knows the conversation is told what is new; another one all that was said.
fn text(task: &AgentRequest<'_>, memory: &Memory) -> String {
    let AgentCall { user_message, .. } = task.call;
    if memory.context_id.is_some() {
        return user_message.to_string();
    }
    let all = readable(task);
    if all.is_empty() { user_message.to_string() } else { all }
}

/// Slots with a value, of those that the author lets out.
fn slots(task: &AgentRequest<'_>, remote: &RemoteDef) -> Vec<Json> {
    let view = RunSlots::new(task.project, task.conversation).seen_as(task.slots.clone());
    let shown = view.shown();
    let allowed =
        |name: &str| remote.forward_slots.as_ref().is_none_or(|only| only.iter().any(|one| one.as_str() == name));
    shown
        .into_iter()
        .filter(|name| allowed(name))
        .filter_map(|name| {
            let value = view.slot(name).filter(|value| !value.is_null())?;
            Some(json!({"name": name, "value": value}))
        })
        .collect()
}

/// Facts that the author named, where there are such: of the conversation, or of what the channel said beside the message.
fn metadata(task: &AgentRequest<'_>, remote: &RemoteDef) -> Map<String, Json> {
    let beside = task.metadata.get("message_metadata").and_then(Json::as_object);
    let of = |name: &str| task.metadata.get(name).or_else(|| beside.and_then(|beside| beside.get(name)));
    remote.forward_metadata.iter().filter_map(|name| Some((name.to_string(), of(name)?.clone()))).collect()
}
