//! Push notifications: a remote agent reports on a task that outlasted its turn.
//!
//! A notification counts only where the agent that waits on top of the conversation works on the very task that it names, whose id
//! nobody else knows; and nothing it says is believed: the agent is asked how the task stands.

use std::{convert::Infallible, sync::Arc};

use axum::http::{Method, Request, Response, StatusCode};
use bytes::Bytes;
use segue_engine::{
    conversation::{ExternalTrigger, TriggerAction},
    ids::{AgentName, ConversationId, MessageId},
    project::Project,
};
use serde_json::{Map, Value as Json};

use super::{Body, Channel, ChannelService, Inbox, Routes, json, problem, rest::decoded};
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
    code: registry::CODE,
    is_required: true,
};

/// Whether the project lets an agent report.
fn is_used(project: &Project) -> bool {
    let mut remotes = project.agents.values().filter_map(|agent| agent.remote.as_ref());
    remotes.any(|remote| remote.push_notification_url.is_some())
}

/// Receives notifications; the path of a request is the whole one.
#[derive(Clone, Copy, Debug)]
pub struct PushReceiver;

impl Channel for PushReceiver {
    fn name(&self) -> &str {
        NAME
    }
    fn routes(&self) -> Routes {
        Routes::Paths(vec![format!("{REPORT_PATH_PREFIX}/{{*rest}}")])
    }
    /// The id of the task is the proof, and is found in the body.
    fn is_guarded(&self) -> bool {
        true
    }
    fn service(&self, inbox: Inbox) -> ChannelService {
        ChannelService::new(tower::service_fn(move |request| {
            let assistant = inbox.assistant().clone();
            async move { Ok::<_, Infallible>(answer(&assistant, request).await) }
        }))
    }
}

async fn answer(assistant: &Assistant, request: Request<Bytes>) -> Response<Body> {
    let (head, body) = request.into_parts();
    // All refusals look alike: a caller who guesses learns nothing.
    let unknown = || problem(StatusCode::NOT_FOUND, "nothing is waited for here");
    let path = head.uri.path().strip_prefix(REPORT_PATH_PREFIX).map(|rest| rest.trim_start_matches('/'));
    let names = path.and_then(|rest| rest.split_once('/')).map(|(agent, id)| (decoded(agent), decoded(id)));
    let (Some((agent, id)), Method::POST) = (names, head.method) else { return unknown() };
    let Some((task, is_settled)) = reported(&body) else { return unknown() };
    let (agent, id) = (AgentName::from(agent), ConversationId::from(id));
    if !waits(assistant, &id, &agent, &task).await {
        return unknown();
    }
    if is_settled {
        let what = TriggerAction::Continue(agent);
        let trigger = ExternalTrigger { action: what, values: Map::new(), reminder: None };
        let rung = assistant.trigger(id.clone(), trigger, MessageId::from(""), Box::new(OutboxSink)).await;
        if let Err(error) = rung {
            tracing::warn!(conversation = %id, code = error.code(), "a report of an agent waits: {error}");
            return problem(StatusCode::SERVICE_UNAVAILABLE, "try again later");
        }
    }
    json(StatusCode::OK, &Map::new())
}

/// The task that a report names, and whether it stands still, in whatever generation it is written.
fn reported(body: &[u8]) -> Option<(String, bool)> {
    let json: Json = serde_json::from_slice(body).ok()?;
    let update = [A2aWireFormat::ProtoJsonV1_0, A2aWireFormat::JsonRpcV0_3]
        .into_iter()
        .find_map(|dialect| decode::update(&json, dialect).ok())?;
    let is_artifact = matches!(update, Update::Artifact(_));
    match FirstResponse::from_update(update)? {
        FirstResponse::Task(task) => Some((task.id, !is_artifact && task.status.state.is_terminal_or_interrupted())),
        FirstResponse::Message(message) => Some((message.task_id?, false)),
    }
}

async fn waits(assistant: &Assistant, id: &ConversationId, agent: &AgentName, task: &str) -> bool {
    let Ok(conversation) = assistant.conversation(id).await else { return false };
    conversation.stack.waiting_agent().is_some_and(|frame| {
        let own = |key: &str| frame.metadata.get(key);
        frame.agent_id == *agent
            && own("working").and_then(Json::as_bool).unwrap_or_default()
            && own("task_id").and_then(Json::as_str) == Some(task)
    })
}
