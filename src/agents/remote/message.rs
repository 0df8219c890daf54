//! The message for a remote agent: text, slots, and metadata, as far as the configuration allows them.

use segue_engine::{condition::Scope, conversation::AgentCall};
use serde_json::{Map, Value as Json, json};

use super::{
    super::{AgentRequest, slots::RunSlots, transcript::readable_history},
    outcome::RemoteTaskState,
};
use crate::a2a::model::{Message, Part, Role};
use segue_engine::project::RemoteDef;

/// The message of one invocation. Its id is set by the recorded client.
pub(super) fn build(request: &AgentRequest<'_>, remote: &RemoteDef, task_state: &RemoteTaskState) -> Message {
    let mut parts = vec![Part::Text(text(request, task_state))];
    let slots = slots(request, remote);
    if !slots.is_empty() {
        parts.push(Part::Data(json!({ "slots": slots })));
    }
    Message {
        id: String::new(),
        context_id: task_state.context_id.clone(),
        task_id: task_state.task_id.clone(),
        role: Role::User,
        parts,
        metadata: metadata(request, remote),
    }
}

/// The newest message for an agent that knows the conversation, else the whole conversation.
fn text(request: &AgentRequest<'_>, task_state: &RemoteTaskState) -> String {
    let AgentCall { user_message, .. } = request.call;
    if task_state.context_id.is_some() {
        return user_message.to_string();
    }
    let all = readable_history(request);
    if all.is_empty() { user_message.to_string() } else { all }
}

/// Slots with a value, as far as `forward_slots` allows them.
fn slots(request: &AgentRequest<'_>, remote: &RemoteDef) -> Vec<Json> {
    let view = RunSlots::new(request.project, request.conversation).with_view(request.slots.clone());
    let shown = view.visible_names();
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

/// The metadata that `forward_metadata` names: of the conversation, or of the user's message.
fn metadata(request: &AgentRequest<'_>, remote: &RemoteDef) -> Map<String, Json> {
    let beside = request.metadata.get("message_metadata").and_then(Json::as_object);
    let of = |name: &str| request.metadata.get(name).or_else(|| beside.and_then(|beside| beside.get(name)));
    remote.forward_metadata.iter().filter_map(|name| Some((name.to_string(), of(name)?.clone()))).collect()
}
