//! Remote agents over A2A: one invocation sends the user's message, follows the remote task until it waits or ends, and returns the
//! outcome.
//!
//! The [`A2aClient`] is recorded by the runtime. This module never sends the id of a task that has ended, and never repeats a message
//! that the agent may have accepted. It stores nothing: the state for the next invocation is metadata of the outcome, which is kept in
//! the agent's frame.

mod assignment;
mod journaled;
mod message;
mod outcome;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::future::BoxFuture;
use segue_engine::{
    conversation::{AgentOutcome, AgentStatus, BotKind},
    project::{MessageReplyMeaning, RemoteDef},
};
use serde_json::Value as Json;

pub(super) use self::outcome::is_own_key;
use self::outcome::{RemoteResult, RemoteTaskState};
pub(crate) use self::{
    assignment::{RemoteEnd, RemoteSession, assign, cancel},
    journaled::JournaledRemote,
};
use super::{
    AgentRequest,
    completion::RunRecorder,
    hook_run::{self, HookRun},
};
use crate::{
    a2a::{
        A2aClient, A2aError, A2aErrorKind, FirstResponse, SendReceipt, SendRequest, TaskListener,
        model::{Message, Task, TaskState, text_of},
    },
    context::CallContext,
    conversation::{Reply, ReplySink, TurnEvent},
    limits,
};

/// The remote agent cannot be reached, or its agent card cannot be used.
const CODE_UNREACHABLE: &str = "A0511";
/// Its response cannot be used, or it returned an error.
const CODE_BAD_ANSWER: &str = "A0512";
/// Its task failed, was rejected, or was cancelled.
const CODE_TASK_FAILED: &str = "A0513";
/// Its task did not end in time.
const CODE_LATE: &str = "A0514";
/// It is not known whether it accepted the message.
pub(crate) const CODE_UNKNOWN_OUTCOME: &str = "A0515";
/// One task took too many messages.
const CODE_EXCHANGE_LIMIT: &str = "A0516";

/// Works on one user message.
///
/// *Cancellation*: when `cx` is cancelled, the remote task is cancelled too, and the status of the outcome is cancelled.
pub(crate) async fn run(
    request: &AgentRequest<'_>,
    remote: &RemoteDef,
    client: &dyn A2aClient,
    out: &mut dyn ReplySink,
    cx: &CallContext,
) -> AgentOutcome {
    let mut task_state = RemoteTaskState::from_metadata(&request.call.metadata);
    let mut relay =
        ProgressRelay { agent: request.call.agent.as_str().into(), out, cx: cx.step("said"), texts: Vec::new() };
    // The message that resumed the agent is not the answer to its last question: the question is repeated.
    let repeated = request.call.resumed_last_request.as_ref().filter(|_| request.call.resumed);
    let result = match repeated.filter(|_| task_state.exchanges < limits::A2A_EXCHANGES) {
        Some(question) => RemoteResult::input_required(question.clone()),
        None => {
            let is_reported = remote.push_notification_url.is_some();
            let exchange = Exchange { remote, client, is_reported, stop: OnStop::CancelTask };
            let message = |state: &RemoteTaskState| message::build(request, remote, state);
            exchange.run(&message, &mut task_state, &mut relay, cx).await
        }
    };
    relay.finish(request, result, task_state, remote, cx).await
}

/// What becomes of a remote task when the work that waits for it is stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnStop {
    /// It is cancelled.
    CancelTask,
    /// It goes on: the work is resumed later and asks for its result.
    KeepTask,
}

/// One exchange with a remote agent: a message, and what comes of it.
struct Exchange<'a> {
    remote: &'a RemoteDef,
    client: &'a dyn A2aClient,
    /// Whether the agent reports the end of a task that outlasts the time limit.
    is_reported: bool,
    stop: OnStop,
}

impl Exchange<'_> {
    /// Sends the message, or waits for the task that is still worked on, and returns the result.
    async fn run(
        &self,
        message: &(dyn Fn(&RemoteTaskState) -> Message + Sync),
        task_state: &mut RemoteTaskState,
        listener: &mut dyn TaskListener,
        cx: &CallContext,
    ) -> RemoteResult {
        if task_state.exchanges >= limits::A2A_EXCHANGES {
            let reason =
                format!("{} messages were exchanged about one task, and it is not complete", task_state.exchanges);
            if let Some(id) = task_state.task_id.clone() {
                cancel_task(self.client, &id, cx).await;
            }
            task_state.forget_task();
            return RemoteResult::failed(CODE_EXCHANGE_LIMIT, reason);
        }
        for attempt in 0..limits::A2A_TRIES {
            let step = cx.step(format!("try.{attempt}"));
            let accepted = if task_state.is_working {
                Ok(SendReceipt { first: FirstResponse::Task(task_state.task()), live: None })
            } else {
                let message = message(task_state);
                self.client.send(&SendRequest { message, report_to: None }, &step.step("send")).await
            };
            // After a task was accepted, only the remote agent can allow a retry: a failed status request says nothing about the task.
            let (reply, again) = match accepted {
                Ok(accepted) => {
                    let reply = wait_for_reply(self.client, accepted, task_state, listener, &step).await;
                    let again = reply.as_ref().is_ok_and(outcome::is_repeatable);
                    (reply, again)
                }
                Err(error) => {
                    let again = error.can_resend();
                    // The task of the message gets cancelled, so that its outcome is not in doubt.
                    let is_stopped = task_state.task_id.is_some() && error.kind == A2aErrorKind::TimedOut;
                    (Err(if is_stopped { error } else { error.into_send_error() }), again)
                }
            };
            if again && attempt + 1 < limits::A2A_TRIES && !cx.cancel.is_cancelled() {
                if reply.is_ok() {
                    task_state.forget_task();
                }
                let wait = limits::A2A_TRY_PAUSE * 2_u32.pow(attempt);
                if cx.wait(cx.clock.sleep(cx.clock.deadline(wait))).await.is_ok() {
                    continue;
                }
            }
            return self.result_of(reply, task_state, cx).await;
        }
        RemoteResult::failed(CODE_TASK_FAILED, "every attempt failed".to_owned())
    }

    /// Converts the reply to the result of the run; keeps the id of the task only if it is open.
    async fn result_of(
        &self,
        reply: Result<RemoteReply, A2aError>,
        task_state: &mut RemoteTaskState,
        cx: &CallContext,
    ) -> RemoteResult {
        task_state.exchanges += 1;
        match reply {
            Ok(RemoteReply::Message(message)) => {
                task_state.forget_task();
                let text = text_of(&message.parts);
                let results = outcome::result_parts(&message.parts);
                match self.remote.message_means {
                    MessageReplyMeaning::InputRequired => {
                        RemoteResult { results, ..RemoteResult::input_required(text) }
                    }
                    MessageReplyMeaning::Completed => RemoteResult { results, ..RemoteResult::completed(text) },
                }
            }
            Ok(RemoteReply::Task(task)) => {
                if !task.status.state.is_interrupted() {
                    task_state.forget_task();
                }
                task_state.is_working = false;
                outcome::task_result(&task)
            }
            Err(error) if error.kind == A2aErrorKind::TimedOut && self.is_reported && task_state.task_id.is_some() => {
                // The agent reports the end of the task; until then the user can continue the conversation.
                task_state.is_working = true;
                RemoteResult { status: AgentStatus::Yielded, ..RemoteResult::input_required(String::new()) }
            }
            Err(error) => {
                let is_kept = error.kind == A2aErrorKind::Cancelled && self.stop == OnStop::KeepTask;
                if !is_kept {
                    let open = task_state.task_id.as_ref().filter(|_| error.kind != A2aErrorKind::JournalClosed);
                    if let Some(id) = open {
                        cancel_task(self.client, id, cx).await;
                    }
                    task_state.forget_task();
                }
                failure(&error)
            }
        }
    }
}

/// Like [`run`], with registered hooks.
pub(crate) async fn run_hooked(
    request: &AgentRequest<'_>,
    remote: &RemoteDef,
    client: &dyn A2aClient,
    out: &mut dyn ReplySink,
    cx: &CallContext,
) -> AgentOutcome {
    let Some(hooks) = &request.hooks else { return run(request, remote, client, out, &cx.step("remote")).await };
    let mut recorder = RunRecorder::new(request);
    let started = HookRun::start(&**hooks, request, &mut recorder, out, cx).await;
    let said = recorder.into_events();
    let hook_run = match started {
        Ok(hook_run) => hook_run,
        Err(error) => {
            let status = AgentStatus::Finished;
            let nothing =
                AgentOutcome { status, events: said, data: Json::Null, metadata: request.call.metadata_if_not_run() };
            return hook_run::fail_run(nothing, &error, cx);
        }
    };
    let call = hook_run.call(request);
    let request = hook_run.request(request, &call);
    let mut outcome = run(&request, remote, client, out, &cx.step("remote")).await;
    outcome.events.splice(0..0, said);
    // Metadata of hooks is kept whatever the status: a cancelled run may be resumed, and a hook may keep a finished one open. The
    // state of the remote task comes from this run.
    let kept = call.metadata.iter().filter(|(key, _)| !is_own_key(key));
    outcome.metadata.extend(kept.map(|(key, value)| (key.clone(), value.clone())));
    let mut outcome = hook_run::finish(&**hooks, &request, true, outcome, out, cx).await;
    if outcome.status == AgentStatus::Finished {
        // A hook may have completed a task that is still open at the remote agent: the next run starts a new task.
        outcome.metadata.retain(|key, _| !is_own_key(key) || key == "context_id");
    }
    outcome
}

/// The reply of the remote agent: a message, or a task that waits or has ended.
enum RemoteReply {
    Message(Message),
    Task(Box<Task>),
}

async fn wait_for_reply(
    client: &dyn A2aClient,
    accepted: SendReceipt,
    task_state: &mut RemoteTaskState,
    listener: &mut dyn TaskListener,
    step: &CallContext,
) -> Result<RemoteReply, A2aError> {
    match accepted.first {
        FirstResponse::Message(message) => {
            task_state.update_ids(message.context_id.as_deref(), None);
            Ok(RemoteReply::Message(message))
        }
        FirstResponse::Task(ref task) => {
            task_state.update_ids(Some(&task.context_id), Some(&task.id));
            let task = client.follow(accepted, listener, &step.step("follow")).await?;
            task_state.update_ids(Some(&task.context_id), Some(&task.id));
            Ok(RemoteReply::Task(Box::new(task)))
        }
    }
}

/// Cancels a remote task whose result is not needed, so that it causes no further cost.
async fn cancel_task(client: &dyn A2aClient, task: &str, cx: &CallContext) {
    let cancel_cx =
        CallContext { deadline: cx.clock.deadline(limits::A2A_CANCEL), ..cx.step("cancel").uncancellable() };
    if let Err(error) = client.cancel(task, &cancel_cx).await {
        tracing::debug!(task, "the remote task could not be cancelled: {error}");
    }
}

fn failure(error: &A2aError) -> RemoteResult {
    let code = match error.kind {
        A2aErrorKind::Cancelled => {
            let status = AgentStatus::Cancelled { reason: error.message.clone() };
            return RemoteResult { status, ..RemoteResult::completed(String::new()) };
        }
        A2aErrorKind::Card | A2aErrorKind::Authentication | A2aErrorKind::Unreachable => CODE_UNREACHABLE,
        A2aErrorKind::TimedOut => CODE_LATE,
        A2aErrorKind::OutcomeUnknown => CODE_UNKNOWN_OUTCOME,
        A2aErrorKind::JournalClosed => "A0510",
        _ => CODE_BAD_ANSWER,
    };
    RemoteResult::failed(code, error.message.clone())
}

/// Sends progress messages of the remote task to the user, and collects them.
struct ProgressRelay<'a> {
    agent: Arc<str>,
    out: &'a mut dyn ReplySink,
    cx: CallContext,
    /// Id and text of each, in order.
    texts: Vec<(Arc<str>, Arc<str>)>,
}

impl TaskListener for ProgressRelay<'_> {
    fn on_status_text<'b>(&'b mut self, text: &'b str) -> BoxFuture<'b, ()> {
        Box::pin(async move {
            let id: Arc<str> = self.cx.step(self.texts.len()).key.as_str().into();
            tracing::debug!(agent = &*self.agent, "a remote agent sent a progress message");
            self.show(&id, text, BotKind::Intermediate).await;
            self.texts.push((id, text.into()));
        })
    }
}

impl ProgressRelay<'_> {
    /// Sends a message. A lost message does not stop the run: it is stored with the turn and delivered from there.
    async fn show(&mut self, id: &Arc<str>, text: &str, kind: BotKind) {
        let piece = TurnEvent::Message { id: id.clone(), message: Box::new(Reply::text(text)), kind };
        let _ = self.out.send(piece, &self.cx).await;
    }

    async fn finish(
        mut self,
        request: &AgentRequest<'_>,
        result: RemoteResult,
        task_state: RemoteTaskState,
        remote: &RemoteDef,
        cx: &CallContext,
    ) -> AgentOutcome {
        let kind = match result.status {
            AgentStatus::Finished => BotKind::FinalResponse,
            _ => BotKind::InputRequired,
        };
        let last = (!result.text.trim().is_empty()).then(|| {
            let id: Arc<str> = cx.step("last").key.as_str().into();
            (id, Arc::<str>::from(result.text.trim()))
        });
        let said = last.clone().map(|last| (last, kind));
        let outcome = outcome::build(request, result, task_state, remote, &self.texts, said, cx);
        // The final message is sent only after its results turned out to be usable: a failure has another message.
        if let Some((id, text)) = last.filter(|_| !matches!(outcome.status, AgentStatus::Failed { .. })) {
            self.show(&id, &text, kind).await;
        }
        outcome
    }
}

/// A description of a state for operators.
pub(super) fn describe_state(state: TaskState) -> &'static str {
    match state {
        TaskState::Failed => "its task failed",
        TaskState::Rejected => "it rejected the task",
        TaskState::Canceled => "its task was cancelled",
        _ => "its task ended in an unknown state",
    }
}
