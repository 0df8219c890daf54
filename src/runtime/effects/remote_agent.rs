//! Remote agents in turns: they are opened when the assistant is built, checked at its start, and called through the journal of the turn.

use std::{collections::HashMap, sync::Arc, time::Duration};

use segue_engine::{
    conversation::AgentOutcome,
    project::{AgentDef, CardSource, HealthCheck, Project, RemoteDef},
};

use super::failed_outcome;
use crate::{
    a2a::{self, A2aEnvironment, CardLocation, RemoteAgent, RemoteAgentConfig},
    agents::{self, AgentRequest, remote::JournaledRemote},
    clock::Clock,
    context::CallContext,
    http::HttpClients,
    limits,
    outbound_auth::OutboundCredentials,
    runtime::{
        project_runtime::ProjectRuntime,
        turn::{TurnContext, TurnSink},
    },
};

/// The remote agents of a project, not connected yet.
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
            max_polling_time: max_polling_time(remote),
            push_notifications: remote.push_notification_url.is_some(),
        };
        let environment = A2aEnvironment { clock: clock.clone(), http: http.clone() };
        Some((definition.name.to_string(), Arc::new(RemoteAgent::new(access, environment))))
    };
    project.agents.values().filter_map(|definition| remote(definition)).collect()
}

/// Checks all remote agents concurrently, each as its configuration requires. Failures are logged.
pub(in crate::runtime) async fn check_remote_agents(runtime: &ProjectRuntime, clock: &Arc<dyn Clock>) {
    let checks = runtime.project.agents.values().filter_map(|definition| {
        let (health_check, remote) =
            (definition.remote.as_ref()?.health_check, runtime.remote_agents.get(definition.name.as_str())?);
        let cx = CallContext::new(clock.clone(), definition.timeout.unwrap_or(limits::A2A_REQUEST));
        Some(async move {
            let outcome = match health_check {
                HealthCheck::None => Ok(()),
                HealthCheck::Card => remote.card(&cx).await.map(|_| ()),
                HealthCheck::Message => remote.send_test_message(&uuid::Uuid::new_v4().to_string(), &cx).await,
            };
            if let Err(error) = outcome {
                tracing::warn!(agent = %definition.name, code = "A0511", "a remote agent does not answer: {error}");
            }
        })
    });
    futures::future::join_all(checks).await;
}

fn max_polling_time(remote: &RemoteDef) -> Duration {
    remote.max_polling_time.unwrap_or(limits::A2A_POLL_TIMEOUT)
}

/// The longest time that a turn may wait for a remote agent.
pub(in crate::runtime) fn longest_wait(definition: &AgentDef) -> Option<Duration> {
    let remote = definition.remote.as_ref()?;
    Some(max_polling_time(remote).saturating_add(definition.timeout.unwrap_or(limits::A2A_REQUEST)))
}

/// Sends one message to a remote agent and follows its task.
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
    let remote_client = JournaledRemote {
        inner: runtime.remote_agents.get(name).cloned(),
        journal: record.journal.clone(),
        conversation: conversation.id.as_str().into(),
        number,
        report_to: remote.push_notification_url.as_ref().map(|base| {
            let base = base.trim_end_matches('/');
            format!("{base}{}", a2a::report_path(name, conversation.id.as_str()))
        }),
    };
    agents::remote::run_hooked(&task, remote, &remote_client, sink, cx).await
}
