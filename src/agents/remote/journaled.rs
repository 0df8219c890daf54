//! Calls of remote agents through the journal: a message is sent once, and its recorded outcome is used when the work is repeated. If a
//! process died while it sent a message, the next attempt asks the remote agent whether it has received the message.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::{
    a2a::{
        A2aClient, A2aError, A2aErrorKind, FirstResponse, RemoteAgent, SendReceipt, SendRequest, TaskListener,
        model::Task,
    },
    context::CallContext,
    effect::EffectClass,
    journal::{EffectJournal, JournalError, Step, StepResult, request_hash},
    limits,
    store::TurnNumber,
    tools::invoke,
};

/// A remote agent whose requests are recorded. Without `inner` it only answers from the record.
pub(crate) struct JournaledRemote {
    pub(crate) inner: Option<Arc<RemoteAgent>>,
    pub(crate) journal: EffectJournal,
    /// The conversation or the run of a mission.
    pub(crate) conversation: Arc<str>,
    pub(crate) number: TurnNumber,
    /// The URL for push notifications about a task that continues after the turn.
    pub(crate) report_to: Option<String>,
}

/// The recorded result of following a task.
#[derive(Serialize, Deserialize)]
struct FollowedTask {
    #[serde(rename = "said")]
    status_texts: Vec<String>,
    #[serde(rename = "end")]
    result: Result<Task, A2aError>,
}

impl JournaledRemote {
    fn inner(&self) -> Result<&Arc<RemoteAgent>, A2aError> {
        self.inner.as_ref().ok_or_else(|| A2aError::new(A2aErrorKind::JournalClosed, "a replay performs no effects"))
    }

    /// The id of a message: the same when the turn runs again, so that the remote agent can be asked for the message.
    fn message_id(&self, cx: &CallContext) -> String {
        let key = invoke::idempotency_number(&self.conversation, self.number.0, cx);
        uuid::Builder::from_random_bytes(key.to_be_bytes()).into_uuid().to_string()
    }

    async fn send_once(&self, outgoing: &SendRequest, cx: &CallContext) -> Result<SendReceipt, A2aError> {
        let mut outgoing = outgoing.clone();
        outgoing.message.id = self.message_id(cx);
        outgoing.report_to = self.report_to.clone();
        let request = request_hash(&serde_json::to_string(&outgoing.message).unwrap_or_default());
        let step = Step { key: &cx.key, kind: "a2a", class: EffectClass::Write, request: &request };
        let mut live = None;
        let sending = Box::pin(async {
            let accepted = self.send_message(&outgoing, cx).await?;
            live = accepted.live;
            Ok(accepted.first)
        });
        let first: Result<FirstResponse, A2aError> =
            match self.journal.once(step, sending).await.map_err(journal_error)? {
                StepResult::Performed(first) | StepResult::Replayed(first) => first,
                // The process before this one may have sent the message: the remote agent knows.
                StepResult::Unknown => {
                    let first = match self.inner()?.find_task_for_message(&outgoing.message, cx).await {
                        Ok(Some(task)) => Ok(FirstResponse::Task(task)),
                        Ok(None) => self.send_message(&outgoing, cx).await.map(|accepted| {
                            live = accepted.live;
                            accepted.first
                        }),
                        Err(error) => {
                            let known = "a message may have been sent before an interruption; its outcome is unknown";
                            Err(A2aError::new(A2aErrorKind::OutcomeUnknown, format!("{known} ({error})")))
                        }
                    };
                    self.journal.record_outcome(&cx.key, &first).await.map_err(journal_error)?;
                    first
                }
            };
        first.map(|first| SendReceipt { first, live })
    }

    /// Sends a message, which is a `write`. An interrupted turn waits for the first answer, at most [`limits::A2A_SEND_GRACE`]: only
    /// with it the task is known and can be cancelled.
    async fn send_message(&self, outgoing: &SendRequest, cx: &CallContext) -> Result<SendReceipt, A2aError> {
        let remote = self.inner()?;
        // Nothing is sent yet, so the turn may be interrupted here.
        remote.card(cx).await?;
        if cx.cancel.is_cancelled() {
            return Err(A2aError::new(A2aErrorKind::Cancelled, "the turn was interrupted before the message was sent"));
        }
        let uncancellable = cx.uncancellable();
        let mut sending = std::pin::pin!(remote.send(outgoing, &uncancellable));
        tokio::select! {
            biased;
            sent = &mut sending => return sent,
            () = cx.cancel.cancelled() => {}
        }
        match uncancellable.with_timeout(limits::A2A_SEND_GRACE).wait(sending).await {
            Ok(sent) => sent,
            Err(_) => {
                match remote
                    .find_task_for_message(&outgoing.message, &uncancellable.with_timeout(limits::A2A_CANCEL))
                    .await
                {
                    Ok(Some(task)) => Ok(SendReceipt { first: FirstResponse::Task(task), live: None }),
                    // Also without a task the message may still arrive.
                    Ok(None) | Err(_) => Err(A2aError::new(
                        A2aErrorKind::OutcomeUnknown,
                        "the turn was interrupted before the agent answered; whether it received the message is unknown",
                    )),
                }
            }
        }
    }

    async fn follow_once(
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
            let mut recorder = RecordingListener { listener: &mut *listener, status_texts: Vec::new() };
            let result = self.inner()?.follow(accepted, &mut recorder, cx).await;
            Ok(FollowedTask { status_texts: recorder.status_texts, result })
        };
        match self.journal.once_if_ok(step, following).await.map_err(journal_error)?? {
            StepResult::Performed(followed) => followed.result,
            StepResult::Replayed(followed) => {
                for text in &followed.status_texts {
                    listener.on_status_text(text).await;
                }
                followed.result
            }
            StepResult::Unknown => Err(journal_error(JournalError::OutcomeUnknown)),
        }
    }

    async fn cancel_once(&self, task: &str, cx: &CallContext) -> Result<(), A2aError> {
        let step = Step { key: &cx.key, kind: "a2a", class: EffectClass::Idempotent, request: task };
        let cancelling = async {
            let remote = self.inner()?;
            Ok(remote.cancel(task, cx).await)
        };
        let cancelled: StepResult<Result<(), A2aError>> =
            self.journal.once_if_ok(step, cancelling).await.map_err(journal_error)??;
        cancelled.into_outcome().map_err(journal_error)?
    }
}

fn journal_error(error: JournalError) -> A2aError {
    A2aError::new(A2aErrorKind::JournalClosed, error.to_string())
}

/// Passes status texts on and collects them for the record.
struct RecordingListener<'a> {
    listener: &'a mut dyn TaskListener,
    status_texts: Vec<String>,
}

impl TaskListener for RecordingListener<'_> {
    fn on_status_text<'b>(&'b mut self, text: &'b str) -> BoxFuture<'b, ()> {
        self.status_texts.push(text.to_owned());
        self.listener.on_status_text(text)
    }
}

impl A2aClient for JournaledRemote {
    fn send<'a>(
        &'a self,
        outgoing: &'a SendRequest,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<SendReceipt, A2aError>> {
        Box::pin(self.send_once(outgoing, cx))
    }
    fn follow<'a>(
        &'a self,
        accepted: SendReceipt,
        listener: &'a mut dyn TaskListener,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<Task, A2aError>> {
        Box::pin(self.follow_once(accepted, listener, cx))
    }
    fn cancel<'a>(&'a self, task: &'a str, cx: &'a CallContext) -> BoxFuture<'a, Result<(), A2aError>> {
        Box::pin(self.cancel_once(task, cx))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    /// Stored journals contain these names.
    #[test]
    fn field_names_of_stored_remote_tasks_do_not_change() {
        let failed: Result<Task, A2aError> = Err(A2aError::new(A2aErrorKind::OutcomeUnknown, "unknown"));
        let stored = json!({"said": ["Working."], "end": failed});
        let read: FollowedTask = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), stored);
    }
}
