//! Remote agents behind the journal: a message leaves once, and what came of it answers when the turn runs again. A process
//! that died while a message was under way asks the other side whether it was heard.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use segue_engine::{
    conversation::AgentOutcome,
    project::{AgentDef, CardSource, HealthCheck, Project, RemoteDef},
};
use serde::{Deserialize, Serialize};

use super::failed_outcome;
use crate::{
    a2a::{
        self, A2aClient, A2aEnvironment, A2aError, A2aErrorKind, CardLocation, FirstResponse, RemoteAgent,
        RemoteAgentConfig, SendReceipt, SendRequest, TaskListener, model::Task,
    },
    agents::{self, AgentRequest},
    clock::Clock,
    context::CallContext,
    effect::EffectClass,
    http::HttpClients,
    journal::{EffectJournal, JournalError, Step, StepResult, request_hash},
    limits,
    outbound_auth::OutboundCredentials,
    runtime::{
        project_runtime::ProjectRuntime,
        turn::{TurnContext, TurnSink},
    },
    store::TurnNumber,
    tools::invoke,
};

/// The remote agents of a project; connects to none yet.
pub(in crate::runtime) fn open(
    project: &Project,
    clock: &Arc<dyn Clock>,
    http: &HttpClients,
) -> HashMap<String, Arc<RemoteAgent>> {
    let remote = |definition: &AgentDef| {
        let remote = definition.remote.as_ref()?;
        let credentials = agents::credentials(&definition.auth, clock, http)
            .inspect_err(|reason| tracing::error!(agent = %definition.name, code = "A0511", "{reason}"));
        let access = RemoteAgentConfig {
            card: match &remote.card {
                CardSource::File(json) => CardLocation::File(json.clone()),
                CardSource::Address(address) => CardLocation::Address(address.to_string()),
            },
            credentials: credentials.unwrap_or(OutboundCredentials::None),
            credential_hosts: definition.auth.hosts.clone(),
            timeout: definition.timeout.unwrap_or(limits::A2A_REQUEST),
            card_attempts: definition.max_retries,
            streaming: remote.use_streaming,
            polling_initial_delay: remote.polling_initial_delay.unwrap_or(limits::A2A_PAUSE),
            max_polling_time: patience(remote),
            push_notifications: remote.push_notification_url.is_some(),
        };
        let around = A2aEnvironment { clock: clock.clone(), http: http.clone() };
        Some((definition.name.to_string(), Arc::new(RemoteAgent::new(access, around))))
    };
    project.agents.values().filter_map(|definition| remote(definition)).collect()
}

/// Looks whether they are there, all at once, each as its configuration says.
pub(in crate::runtime) async fn check_remote_agents(runtime: &ProjectRuntime, clock: &Arc<dyn Clock>) {
    let looks = runtime.project.agents.values().filter_map(|definition| {
        let (how, remote) =
            (definition.remote.as_ref()?.health_check, runtime.remote_agents.get(definition.name.as_str())?);
        let cx = CallContext::new(clock.clone(), definition.timeout.unwrap_or(limits::A2A_REQUEST));
        Some(async move {
            let outcome = match how {
                HealthCheck::None => Ok(()),
                HealthCheck::Card => remote.card(&cx).await.map(|_| ()),
                HealthCheck::Message => remote.send_test_message(&uuid::Uuid::new_v4().to_string(), &cx).await,
            };
            if let Err(fault) = outcome {
                tracing::warn!(agent = %definition.name, code = "A0511", "a remote agent does not answer: {fault}");
            }
        })
    });
    futures::future::join_all(looks).await;
}

fn patience(remote: &RemoteDef) -> Duration {
    remote.max_polling_time.unwrap_or(limits::A2A_POLL_TIMEOUT)
}

/// How long a turn must be able to wait for a remote agent.
pub(in crate::runtime) fn longest_wait(definition: &AgentDef) -> Option<Duration> {
    let remote = definition.remote.as_ref()?;
    Some(patience(remote).saturating_add(definition.timeout.unwrap_or(limits::A2A_REQUEST)))
}

/// Runs one for one message.
pub(in crate::runtime) async fn run(
    task: AgentRequest<'_>,
    turn: &TurnContext<'_>,
    sink: &mut TurnSink<'_>,
    cx: &CallContext,
) -> AgentOutcome {
    let TurnContext { runtime, conversation, number, record, .. } = *turn;
    let name = task.call.agent.as_str();
    let Some(remote) = &task.definition.remote else {
        return failed_outcome(task.call, "A0511", format!("agent {name}: it has no card"));
    };
    let peer = JournaledRemote {
        inner: runtime.remote_agents.get(name).cloned(),
        journal: record.journal.clone(),
        conversation: conversation.id.as_str().into(),
        number,
        report_to: remote.push_notification_url.as_ref().map(|base| {
            let base = base.trim_end_matches('/');
            format!("{base}{}", a2a::report_path(name, conversation.id.as_str()))
        }),
    };
    agents::remote::run_hooked(&task, remote, &peer, sink, cx).await
}

/// A remote agent whose every exchange is recorded. Without an inner one it only answers from the record.
struct JournaledRemote {
    inner: Option<Arc<RemoteAgent>>,
    journal: EffectJournal,
    conversation: Arc<str>,
    number: TurnNumber,
    /// Where it may report on a task that outlasts the turn.
    report_to: Option<String>,
}

/// What following a task came to.
#[derive(Serialize, Deserialize)]
struct FollowedTask {
    said: Vec<String>,
    end: Result<Task, A2aError>,
}

impl JournaledRemote {
    fn inner(&self) -> Result<&Arc<RemoteAgent>, A2aError> {
        self.inner
            .as_ref()
            .ok_or_else(|| A2aError::new(A2aErrorKind::JournalClosed, "nothing leaves while a record is replayed"))
    }

    /// The id that we choose for a message: the same when the turn runs again, so that the other side can be asked for it.
    fn message_id(&self, cx: &CallContext) -> String {
        let key = invoke::idempotency_number(&self.conversation, self.number.0, cx);
        uuid::Builder::from_random_bytes(key.to_be_bytes()).into_uuid().to_string()
    }

    async fn sent(&self, outgoing: &SendRequest, cx: &CallContext) -> Result<SendReceipt, A2aError> {
        let mut outgoing = outgoing.clone();
        outgoing.message.id = self.message_id(cx);
        outgoing.report_to = self.report_to.clone();
        let request = request_hash(&serde_json::to_string(&outgoing.message).unwrap_or_default());
        let step = Step { key: &cx.key, kind: "a2a", class: EffectClass::Write, request: &request };
        let mut live = None;
        let leaving = Box::pin(async {
            let accepted = self.left(&outgoing, cx).await?;
            live = accepted.live;
            Ok(accepted.first)
        });
        let first: Result<FirstResponse, A2aError> = match self.journal.once(step, leaving).await.map_err(shut)? {
            StepResult::Performed(first) | StepResult::Replayed(first) => first,
            // The process before this one may have sent it: the other side knows.
            StepResult::Unknown => {
                let first = match self.inner()?.find_task_for_message(&outgoing.message, cx).await {
                    Ok(Some(task)) => Ok(FirstResponse::Task(task)),
                    Ok(None) => self.left(&outgoing, cx).await.map(|accepted| {
                        live = accepted.live;
                        accepted.first
                    }),
                    Err(fault) => {
                        let known = "a message may have been sent before an interruption; what came of it is not known";
                        Err(A2aError::new(A2aErrorKind::OutcomeUnknown, format!("{known} ({fault})")))
                    }
                };
                self.journal.record_outcome(&cx.key, &first).await.map_err(shut)?;
                first
            }
        };
        first.map(|first| SendReceipt { first, live })
    }

    /// Sends a message, a write: once it is under way, a turn that is stopped waits for its first answer, by which a task is
    /// known and can be stopped. An agent that answers only at the end of its task is not waited for longer than
    /// [`limits::A2A_SEND_GRACE`].
    async fn left(&self, outgoing: &SendRequest, cx: &CallContext) -> Result<SendReceipt, A2aError> {
        let remote = self.inner()?;
        // Nothing is under way yet: this may be stopped.
        remote.card(cx).await?;
        if cx.cancel.is_cancelled() {
            return Err(A2aError::new(A2aErrorKind::Cancelled, "the turn was stopped before the message was sent"));
        }
        let sheltered = cx.uncancellable();
        let mut sending = std::pin::pin!(remote.send(outgoing, &sheltered));
        tokio::select! {
            biased;
            sent = &mut sending => return sent,
            () = cx.cancel.cancelled() => {}
        }
        match sheltered.with_timeout(limits::A2A_SEND_GRACE).wait(sending).await {
            Ok(sent) => sent,
            Err(_) => {
                match remote.find_task_for_message(&outgoing.message, &sheltered.with_timeout(limits::A2A_CANCEL)).await
                {
                    Ok(Some(task)) => Ok(SendReceipt { first: FirstResponse::Task(task), live: None }),
                    // Not yet is no answer: it may still be on its way.
                    Ok(None) | Err(_) => Err(A2aError::new(
                        A2aErrorKind::OutcomeUnknown,
                        "the turn was stopped before the agent answered; whether it took the message is not known",
                    )),
                }
            }
        }
    }

    async fn followed(
        &self,
        accepted: SendReceipt,
        listener: &mut dyn TaskListener,
        cx: &CallContext,
    ) -> Result<Task, A2aError> {
        let request = match &accepted.first {
            FirstResponse::Task(task) => task.id.clone(),
            FirstResponse::Message(message) => message.id.clone(),
        };
        let step = Step { key: &cx.key, kind: "a2a", class: EffectClass::Read, request: &request };
        let following = async {
            let mut recorder = RecordingListener { listener: &mut *listener, said: Vec::new() };
            let end = self.inner()?.follow(accepted, &mut recorder, cx).await;
            Ok(FollowedTask { said: recorder.said, end })
        };
        match self.journal.once_if_ok(step, following).await.map_err(shut)?? {
            StepResult::Performed(followed) => followed.end,
            StepResult::Replayed(followed) => {
                for text in &followed.said {
                    listener.on_status_text(text).await;
                }
                followed.end
            }
            StepResult::Unknown => Err(shut(JournalError::OutcomeUnknown)),
        }
    }

    async fn cancelled(&self, task: &str, cx: &CallContext) -> Result<(), A2aError> {
        let step = Step { key: &cx.key, kind: "a2a", class: EffectClass::Idempotent, request: task };
        let cancelling = async {
            let remote = self.inner()?;
            Ok(remote.cancel(task, cx).await)
        };
        let cancelled: StepResult<Result<(), A2aError>> =
            self.journal.once_if_ok(step, cancelling).await.map_err(shut)??;
        cancelled.into_outcome().map_err(shut)?
    }
}

fn shut(error: JournalError) -> A2aError {
    A2aError::new(A2aErrorKind::JournalClosed, error.to_string())
}

/// Passes texts on and keeps them for the record.
struct RecordingListener<'a> {
    listener: &'a mut dyn TaskListener,
    said: Vec<String>,
}

impl TaskListener for RecordingListener<'_> {
    fn on_status_text<'b>(&'b mut self, text: &'b str) -> BoxFuture<'b, ()> {
        self.said.push(text.to_owned());
        self.listener.on_status_text(text)
    }
}

impl A2aClient for JournaledRemote {
    fn send<'a>(
        &'a self,
        outgoing: &'a SendRequest,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<SendReceipt, A2aError>> {
        Box::pin(self.sent(outgoing, cx))
    }
    fn follow<'a>(
        &'a self,
        accepted: SendReceipt,
        listener: &'a mut dyn TaskListener,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<Task, A2aError>> {
        Box::pin(self.followed(accepted, listener, cx))
    }
    fn cancel<'a>(&'a self, task: &'a str, cx: &'a CallContext) -> BoxFuture<'a, Result<(), A2aError>> {
        Box::pin(self.cancelled(task, cx))
    }
}
