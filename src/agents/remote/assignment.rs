//! Assignments to remote agents outside conversations: a text, and the result.

use futures::future::BoxFuture;
use segue_engine::{conversation::AgentStatus, project::RemoteDef};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::{Exchange, OnStop, RemoteTaskState, cancel_task};
use crate::{
    a2a::{
        A2aClient, TaskListener,
        model::{Message, Part, Role},
    },
    context::CallContext,
};

/// What is kept between two assignments to the same agent: the ids of the context and of the open task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct RemoteSession(Map<String, Json>);

impl RemoteSession {
    /// Whether nothing was sent yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Forgets the open task, so that the next assignment begins a new one in the same context.
    pub(crate) fn forget_task(&mut self) {
        let mut state = RemoteTaskState::from_metadata(&self.0);
        state.forget_task();
        self.0 = state.into_metadata();
    }
}

/// How an assignment ended.
pub(crate) struct RemoteEnd {
    /// Finished, waiting for an answer to `text`, failed or cancelled.
    pub(crate) status: AgentStatus,
    /// The last text.
    pub(crate) text: String,
    /// The structured results, as a list.
    pub(crate) data: Json,
}

/// Sends an assignment, or the answer to the last question of an open task, and waits for the result. When `cx` is cancelled, the remote
/// task goes on; the same assignment with the same journal asks for its result.
pub(crate) async fn assign(
    text: &str,
    session: &mut RemoteSession,
    agent: &str,
    remote: &RemoteDef,
    client: &dyn A2aClient,
    cx: &CallContext,
) -> RemoteEnd {
    let mut state = RemoteTaskState::from_metadata(&session.0);
    let exchange = Exchange { remote, client, is_reported: false, stop: OnStop::KeepTask };
    let message = |state: &RemoteTaskState| Message {
        id: String::new(),
        context_id: state.context_id.clone(),
        task_id: state.task_id.clone(),
        role: Role::User,
        parts: vec![Part::Text(text.to_owned())],
        metadata: Map::new(),
    };
    let result = exchange.run(&message, &mut state, &mut IgnoredTexts, cx).await;
    session.0 = state.into_metadata();
    RemoteEnd { status: result.status, text: result.text, data: result.results.to_list(agent) }
}

/// Cancels the open task of an assignment that was stopped.
pub(crate) async fn cancel(session: &RemoteSession, client: &dyn A2aClient, cx: &CallContext) {
    if let Some(task) = RemoteTaskState::from_metadata(&session.0).task_id {
        cancel_task(client, &task, cx).await;
    }
}

/// Status texts of a task that nobody waits for.
struct IgnoredTexts;

impl TaskListener for IgnoredTexts {
    fn on_status_text<'a>(&'a mut self, _: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}
