//! The receiver of push notifications from remote agents, for tasks that are still running when their turn ends.
//!
//! A notification is accepted only if the topmost frame of the conversation is the agent that waits for this task. The task id serves as
//! the credential: only the remote agent knows it. The content is not trusted: the notification only makes the runtime poll the task.

use std::{convert::Infallible, sync::Arc};

use axum::http::{Method, Request, Response, StatusCode};
use bytes::Bytes;
use segue_engine::{
    conversation::{ExternalTrigger, TriggerAction},
    ids::{AgentName, ConversationId, MessageId},
    project::Project,
};
use serde_json::{Map, Value as Json};

use super::{Body, Channel, ChannelService, Inbox, Routes, http_json::percent_decode, json, problem};
use crate::{
    a2a::{A2aWireFormat, FirstResponse, REPORT_PATH_PREFIX, decode, model::Update},
    channels::registry::{self, ChannelFactory},
    runtime::{Assistant, OutboxSink},
};

/// The name of the channel.
const NAME: &str = "a2a-push";

pub(in crate::channels) const FACTORY: ChannelFactory = ChannelFactory {
    name: NAME,
    is_wanted: |project, _| is_used(project),
    open: |_| Ok(Arc::new(PushReceiver)),
    place: "sub_agents",
    code: registry::CODE_CANNOT_OPEN,
    is_required: true,
};

/// Whether a remote agent of the project has a push notification URL.
fn is_used(project: &Project) -> bool {
    let mut remotes = project.agents.values().filter_map(|agent| agent.remote.as_ref());
    remotes.any(|remote| remote.push_notification_url.is_some())
}

/// The channel that receives push notifications.
#[derive(Clone, Copy, Debug)]
pub struct PushReceiver;

impl Channel for PushReceiver {
    fn name(&self) -> &str {
        NAME
    }
    fn routes(&self) -> Routes {
        Routes::Paths(vec![format!("{REPORT_PATH_PREFIX}/{{*rest}}")])
    }
    /// The task id in the body is the credential.
    fn requires_authentication(&self) -> bool {
        true
    }
    fn service(&self, inbox: Inbox) -> ChannelService {
        ChannelService::new(tower::service_fn(move |request| {
            let assistant = inbox.assistant().clone();
            async move { Ok::<_, Infallible>(respond(&assistant, request).await) }
        }))
    }
}

async fn respond(assistant: &Assistant, request: Request<Bytes>) -> Response<Body> {
    let (head, body) = request.into_parts();
    // All rejections are equal, so that a caller who guesses ids learns nothing.
    let not_found = || problem(StatusCode::NOT_FOUND, "no task is waiting for this notification");
    let path = head.uri.path().strip_prefix(REPORT_PATH_PREFIX).map(|rest| rest.trim_start_matches('/'));
    let ids = path.and_then(|rest| rest.split_once('/')).map(|(agent, id)| (percent_decode(agent), percent_decode(id)));
    let (Some((agent, id)), Method::POST) = (ids, head.method) else { return not_found() };
    let Some((task, needs_poll)) = parse_notification(&body) else { return not_found() };
    let (agent, id) = (AgentName::from(agent), ConversationId::from(id));
    if !waits_for_task(assistant, &id, &agent, &task).await {
        return not_found();
    }
    if needs_poll {
        let action = TriggerAction::Continue(agent);
        let trigger = ExternalTrigger { action, values: Map::new(), reminder: None };
        let triggered = assistant.trigger(id.clone(), trigger, MessageId::from(""), Box::new(OutboxSink)).await;
        if let Err(error) = triggered {
            tracing::warn!(conversation = %id, code = error.code(), "a push notification could not be processed: {error}");
            return problem(StatusCode::SERVICE_UNAVAILABLE, "try again later");
        }
    }
    json(StatusCode::OK, &Map::new())
}

/// The id of the task in a notification of A2A 1.0 or 0.3, and whether the task has ended or waits for input.
fn parse_notification(body: &[u8]) -> Option<(String, bool)> {
    let json: Json = serde_json::from_slice(body).ok()?;
    let update = [A2aWireFormat::ProtoJsonV1_0, A2aWireFormat::JsonRpcV0_3]
        .into_iter()
        .find_map(|format| decode::update(&json, format).ok())?;
    let is_artifact = matches!(update, Update::Artifact(_));
    match FirstResponse::from_update(update)? {
        FirstResponse::Task(task) => Some((task.id, !is_artifact && task.status.state.is_terminal_or_interrupted())),
        FirstResponse::Message(message) => Some((message.task_id?, false)),
    }
}

/// Whether the topmost frame of a conversation is this agent, waiting for this task.
async fn waits_for_task(assistant: &Assistant, id: &ConversationId, agent: &AgentName, task: &str) -> bool {
    let Ok(conversation) = assistant.conversation(id).await else { return false };
    conversation.stack.waiting_agent().is_some_and(|frame| {
        let metadata = |key: &str| frame.metadata.get(key);
        frame.agent_id == *agent
            && metadata("working").and_then(Json::as_bool).unwrap_or_default()
            && metadata("task_id").and_then(Json::as_str) == Some(task)
    })
}
